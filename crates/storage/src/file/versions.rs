//! A number per region of a file that changes with every write, so that what was learnt from a region can be told stale,
//! and the time of that write.
//!
//! Invariants: numbers come from one clock of the process and are never given twice; a region that was never written
//! since the file was loaded has the number of the loading, or of the last cut before it, and for its time the file's
//! when it was loaded, which is that of the last change of any region.

use cellar_format::units::REGION_BYTES;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// A change that touches more regions than this makes all the file's numbers new instead.
const ENTRIES_MAX: usize = 1 << 14;

static CLOCK: AtomicU64 = AtomicU64::new(1);

#[derive(Debug)]
pub struct Versions(RwLock<State>);

#[derive(Debug)]
struct State {
    by_region: BTreeMap<u32, Change>,
    others: Change,
}

#[derive(Debug, Clone, Copy)]
struct Change {
    version: u64,
    /// Nanoseconds since 1970.
    time: i64,
}

impl Change {
    fn new(time: i64) -> Self {
        Self { version: CLOCK.fetch_add(1, Ordering::Relaxed), time }
    }
}

impl Versions {
    /// Of a file that was last changed at `time`.
    pub fn new(time: i64) -> Self {
        Self(RwLock::new(State { by_region: BTreeMap::new(), others: Change::new(time) }))
    }

    pub fn get(&self, region: u32) -> u64 {
        let state = self.0.read();
        state.by_region.get(&region).unwrap_or(&state.others).version
    }

    /// The highest number of some regions, and when one of them was last changed, in nanoseconds since 1970.
    pub fn latest(&self, regions: Range<u32>) -> (u64, i64) {
        let state = self.0.read();
        let wanted = regions.len();
        let own = state.by_region.range(regions).map(|(_, change)| (1, change.version, change.time));
        let add = |all: (usize, u64, i64), one: (usize, u64, i64)| (all.0 + one.0, all.1.max(one.1), all.2.max(one.2));
        let (found, version, time) = own.fold((0, 0, i64::MIN), add);
        match found == wanted {
            true => (version, time),
            false => (version.max(state.others.version), time.max(state.others.time)),
        }
    }

    /// Gives every region that the byte range touches a new number, and returns that number.
    pub fn bump(&self, range: Range<u64>) -> u64 {
        let regions = regions(range);
        if regions.len() > ENTRIES_MAX {
            return self.bump_all();
        }
        let time = crate::now();
        let mut state = self.0.write();
        let change = Change::new(time);
        for region in regions {
            state.by_region.insert(region, change);
        }
        change.version
    }

    /// Gives every region from the one that holds `offset` a new number.
    pub fn bump_from(&self, offset: u64) -> u64 {
        let first = (offset / REGION_BYTES as u64) as u32;
        if first as usize > ENTRIES_MAX {
            return self.bump_all();
        }
        let time = crate::now();
        let mut state = self.0.write();
        let change = Change::new(time);
        // Regions below keep their number, so those that shared the old default must get an entry of their own.
        let before = state.others;
        for region in 0..first {
            state.by_region.entry(region).or_insert(before);
        }
        state.by_region.split_off(&first);
        state.others = change;
        change.version
    }

    fn bump_all(&self) -> u64 {
        let time = crate::now();
        let mut state = self.0.write();
        state.by_region.clear();
        state.others = Change::new(time);
        state.others.version
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
        let versions = Versions::new(7);
        let before: Vec<u64> = (0..4).map(|region| versions.get(region)).collect();
        versions.bump((1 << 20) - 1..(1 << 20) + 1);
        let after: Vec<u64> = (0..4).map(|region| versions.get(region)).collect();
        assert!(after[0] > before[0] && after[1] > before[1] && after[2..] == before[2..]);
        let time = |region| versions.latest(region..region + 1).1;
        assert!(time(0) > 7 && time(1) > 7 && time(2) == 7);
    }

    #[test]
    fn a_cut_changes_all_from_its_region_on() {
        let versions = Versions::new(7);
        versions.bump(0..10);
        let before: Vec<u64> = (0..4).map(|region| versions.get(region)).collect();
        versions.bump_from(2 << 20);
        let after: Vec<u64> = (0..4).map(|region| versions.get(region)).collect();
        assert!(after[..2] == before[..2] && after[2] > before[2] && after[3] > before[3]);
        let time = |region| versions.latest(region..region + 1).1;
        assert!(time(1) == 7 && time(2) > 7);
    }
}
