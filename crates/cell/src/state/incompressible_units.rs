//! Allocation units that do not compress: at some level, their encoding took no less space than their raw pages.
//!
//! An entry is valid for one version of the allocation unit, so a write makes the allocation unit compressible again.

use cellar_format::units::AuIndex;

use super::region_table::RegionTable;
use crate::relation::DiskObject;

/// Facts have one bit per level: `1 << level`. Keys have the allocation unit's index in place of a region number.
#[derive(Default)]
pub struct IncompressibleUnits(RegionTable<u8>);

impl IncompressibleUnits {
    /// Returns whether the allocation unit at `version` is known to be incompressible at a level.
    pub fn contains(&self, object: DiskObject, au: AuIndex, version: u64, level: u32) -> bool {
        let has_level = |levels: &u8| levels & (1 << level) != 0;
        self.0.look_up((object, au.index() as u32), version, has_level).unwrap_or(false)
    }

    /// Records that the allocation unit at `version` is incompressible at a level.
    pub fn record(&self, object: DiskObject, au: AuIndex, version: u64, level: u32) {
        self.0.record((object, au.index() as u32), version, 1 << level, |levels, new| *levels |= new);
    }
}
