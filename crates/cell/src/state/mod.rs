//! The state that all sessions of a cell share: the volume, and the facts that scans and compressions record for later
//! scans and compressions.
//!
//! Every fact is keyed by the identity of the thing it describes (disk object and region at a version, unit id,
//! transaction id), so no fact needs invalidation. Each table keeps the limit of its kind in the memory budget
//! ([`memory`]).

mod clock_cache;
mod columnar_candidates;
pub mod commit_cache;
mod hash;
mod helpers;
mod incompressible_units;
pub mod memory;
pub mod region_table;
pub mod storage_index;
mod unit_directories;

pub use columnar_candidates::{Candidate, ColumnarCandidates, Heap, Times};
pub use commit_cache::{CommitCache, Incarnation, Transactions};
pub use helpers::{HelperPermit, HelperThreads};
pub use incompressible_units::IncompressibleUnits;
pub use memory::{MemoryBudget, MemoryKind};
pub use region_table::RegionTable;
pub use storage_index::StorageIndex;
pub use unit_directories::UnitDirectories;

use cellar_storage::iorm::Iorm;
use cellar_storage::{FactsWriter, Volume};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub struct CellState {
    pub volume: Arc<Volume>,
    pub memory: Arc<MemoryBudget>,
    pub commit_cache: CommitCache,
    pub storage_index: StorageIndex,
    /// Regions in which a scan verified every page checksum.
    pub verified_checksums: RegionTable<()>,
    /// Shared with the storage's unit codec, which rebuilds pages for reads.
    pub unit_directories: Arc<UnitDirectories>,
    pub incompressible_units: IncompressibleUnits,
    /// Allocation units that scans read raw, for the columnar cache.
    pub columnar_candidates: ColumnarCandidates,
    /// Set when the cell shuts down: running scans and compressions then fail.
    pub stopping: AtomicBool,
    pub helper_threads: HelperThreads,
    /// Orders the requests to the disks.
    pub iorm: Arc<Iorm>,
}

impl CellState {
    /// Returns the state of a cell that starts, with the storage index that the last clean stop saved.
    pub fn new(volume: Arc<Volume>, unit_directories: Arc<UnitDirectories>, memory: Arc<MemoryBudget>) -> Self {
        // Facts about regions share the storage index's limit; region summaries are the largest of them.
        let regions = memory.account(MemoryKind::StorageIndex);
        let eighth = regions.limit() / 8;
        let columnar = if volume.has_columnar_cache() { eighth / 2 } else { 0 };
        Self {
            storage_index: StorageIndex::load(&volume, regions, 6 * eighth),
            columnar_candidates: ColumnarCandidates::new(regions, columnar, Times::default()),
            volume,
            commit_cache: CommitCache::new(memory.account(MemoryKind::CommitCache)),
            verified_checksums: RegionTable::new(regions, eighth),
            unit_directories,
            incompressible_units: IncompressibleUnits::new(regions, eighth - columnar),
            stopping: AtomicBool::new(false),
            helper_threads: HelperThreads::default(),
            iorm: Arc::default(),
            memory,
        }
    }

    /// Makes every change durable, closes the volume and saves the storage index for the next start. No request may be able
    /// to change a file any more.
    pub fn close(&self) -> cellar_storage::Result<()> {
        let save = |writer: &mut FactsWriter| self.storage_index.save(&self.volume, writer);
        self.volume.close_saving_facts(self.storage_index.objects(), save)
    }
}
