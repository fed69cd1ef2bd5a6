//! The state that all sessions of a cell share: the volume, and the facts that scans and compressions record for later
//! scans and compressions.
//!
//! Every fact is keyed by the identity of the thing it describes (disk object and region at a version, unit id,
//! transaction id), so no fact needs invalidation. Each table bounds its own memory.

pub mod commit_cache;
mod helpers;
mod incompressible_units;
pub mod region_table;
pub mod storage_index;
mod unit_directories;

pub use commit_cache::{CommitCache, Incarnation};
pub use helpers::HelperThreads;
pub use incompressible_units::IncompressibleUnits;
pub use region_table::RegionTable;
pub use storage_index::StorageIndex;
pub use unit_directories::UnitDirectories;

use cellar_storage::Volume;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub struct CellState {
    pub volume: Arc<Volume>,
    pub commit_cache: CommitCache,
    pub storage_index: StorageIndex,
    /// Regions in which a scan verified every page checksum.
    pub verified_checksums: RegionTable<()>,
    /// Shared with the storage's unit codec, which rebuilds pages for reads.
    pub unit_directories: Arc<UnitDirectories>,
    pub incompressible_units: IncompressibleUnits,
    /// Set when the cell shuts down: running scans and compressions then fail.
    pub stopping: AtomicBool,
    pub helper_threads: HelperThreads,
}

impl CellState {
    pub fn new(volume: Arc<Volume>, unit_directories: Arc<UnitDirectories>) -> Self {
        Self {
            volume,
            commit_cache: CommitCache::default(),
            storage_index: StorageIndex::default(),
            verified_checksums: RegionTable::default(),
            unit_directories,
            incompressible_units: IncompressibleUnits::default(),
            stopping: AtomicBool::new(false),
            helper_threads: HelperThreads::default(),
        }
    }
}
