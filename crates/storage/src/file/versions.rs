//! A number per region of a file that changes with every write, so that what was learnt from a region can be told stale.
//!
//! Invariants: numbers come from one clock of the process and are never given twice; a region that was never written
//! since the file was loaded has the number of the loading, or of the last cut before it.

use cellar_format::units::REGION_BYTES;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// A change that touches more regions than this makes all the file's numbers new instead.
const ENTRIES_MAX: usize = 1 << 14;

static CLOCK: AtomicU64 = AtomicU64::new(1);

fn tick() -> u64 {
    CLOCK.fetch_add(1, Ordering::Relaxed)
}

#[derive(Debug)]
pub struct Versions(RwLock<State>);

#[derive(Debug)]
struct State {
    by_region: HashMap<u32, u64>,
    others: u64,
}

impl Default for Versions {
    fn default() -> Self {
        Self(RwLock::new(State { by_region: HashMap::new(), others: tick() }))
    }
}

impl Versions {
    pub fn get(&self, region: u32) -> u64 {
        let state = self.0.read();
        state.by_region.get(&region).copied().unwrap_or(state.others)
    }

    /// Gives every region that the byte range touches a new number, and returns that number.
    pub fn bump(&self, range: Range<u64>) -> u64 {
        let regions = regions(range);
        if regions.len() > ENTRIES_MAX {
            return self.bump_all();
        }
        let mut state = self.0.write();
        let version = tick();
        for region in regions {
            state.by_region.insert(region, version);
        }
        version
    }

    /// Gives every region from the one that holds `offset` a new number.
    pub fn bump_from(&self, offset: u64) -> u64 {
        let first = (offset / REGION_BYTES as u64) as u32;
        if first as usize > ENTRIES_MAX {
            return self.bump_all();
        }
        let mut state = self.0.write();
        let version = tick();
        // Regions below keep their number, so those that shared the old default must get an entry of their own.
        let before = state.others;
        for region in 0..first {
            state.by_region.entry(region).or_insert(before);
        }
        state.by_region.retain(|region, _| *region < first);
        state.others = version;
        version
    }

    fn bump_all(&self) -> u64 {
        let mut state = self.0.write();
        state.by_region.clear();
        state.others = tick();
        state.others
    }
}

/// The regions that a byte range touches.
pub fn regions(range: Range<u64>) -> Range<u32> {
    if range.is_empty() {
        return 0..0;
    }
    let region_bytes = REGION_BYTES as u64;
    (range.start / region_bytes) as u32..range.end.div_ceil(region_bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_changes_the_regions_it_touches_and_no_other() {
        let versions = Versions::default();
        let before: Vec<u64> = (0..4).map(|region| versions.get(region)).collect();
        versions.bump((1 << 20) - 1..(1 << 20) + 1);
        let after: Vec<u64> = (0..4).map(|region| versions.get(region)).collect();
        assert!(after[0] > before[0] && after[1] > before[1] && after[2..] == before[2..]);
    }

    #[test]
    fn a_cut_changes_all_from_its_region_on() {
        let versions = Versions::default();
        versions.bump(0..10);
        let before: Vec<u64> = (0..4).map(|region| versions.get(region)).collect();
        versions.bump_from(2 << 20);
        let after: Vec<u64> = (0..4).map(|region| versions.get(region)).collect();
        assert!(after[..2] == before[..2] && after[2] > before[2] && after[3] > before[3]);
    }
}
