//! Allocation units that do not compress: at some level, their encoding took no less space than their raw pages, or a thread of the
//! cell failed to encode them.
//!
//! An entry is valid for one version of the allocation unit, so a write makes the allocation unit compressible again. The table is
//! empty when the cell starts, so the threads of the cell try once again after a restart.

use std::sync::Arc;

use cellar_format::units::{AuIndex, RegionIndex, RegionVersion};
use cellar_format::wire::COMPRESSION_LEVEL_MAX;
use cellar_scan::Account;

use super::region_table::{RegionKey, RegionTable};
use crate::relation::DiskObject;

/// Facts have one bit per level, `1 << level`, and one bit for the failures of each thread. A failure of one thread is unknown to the
/// other and to backends.
pub struct IncompressibleUnits(RegionTable<u8>);

const _: () = assert!((COMPRESSION_LEVEL_MAX as u32) < IncompressibleUnits::RECOMPRESSION_FAILED);

impl IncompressibleUnits {
    /// The place of a level for allocation units that the recompression failed to encode.
    pub const RECOMPRESSION_FAILED: u32 = 6;
    /// The place of a level for allocation units that the thread of the columnar cache failed to encode.
    pub const COLUMNS_FAILED: u32 = 7;

    /// Returns a table of at most `capacity_bytes`, whose memory is added to `account`.
    pub fn new(account: &Arc<Account>, capacity_bytes: u64) -> Self {
        Self(RegionTable::new(account, capacity_bytes))
    }

    /// Returns whether the allocation unit at `version` is known to be incompressible at a level.
    pub fn contains(&self, object: DiskObject, au: AuIndex, version: RegionVersion, level: u32) -> bool {
        let has_level = |levels: &u8| levels & (1 << level) != 0;
        self.0.look_up(key(object, au), version, has_level).unwrap_or(false)
    }

    /// Records that the allocation unit at `version` is incompressible at a level.
    pub fn record(&self, object: DiskObject, au: AuIndex, version: RegionVersion, level: u32) {
        self.0.record(key(object, au), version, 1 << level, |levels, new| *levels |= new);
    }
}

/// Returns a key that contains the allocation unit's index in place of a region's index. The index fits, because an
/// allocation unit is at least as large as a region.
fn key(object: DiskObject, au: AuIndex) -> RegionKey {
    (object, RegionIndex(au.index() as u32))
}
