//! Region versions: a number per region of a file that changes before any change of the region becomes visible, and the
//! time of that change. Facts derived from a region are valid while its version is the same.
//!
//! Invariants: versions come from one counter of the process and are never reused. A region without a separate entry
//! shares the file's default version. The file gets a default version when it is loaded, with its mtime as the time, and
//! another one when many regions change at once.

use cellar_format::units::{REGION_BYTES, RegionIndex, RegionVersion};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// A change of more regions than this changes the versions of all regions of the file instead, to bound the map.
const ENTRIES_MAX: usize = 1 << 14;

static CLOCK: AtomicU64 = AtomicU64::new(1);

#[derive(Debug)]
pub struct Versions(RwLock<State>);

#[derive(Debug)]
struct State {
    by_region: BTreeMap<RegionIndex, Change>,
    /// The last change of every region that is not in `by_region`.
    default: Change,
}

#[derive(Debug, Clone, Copy)]
struct Change {
    version: RegionVersion,
    /// Nanoseconds since 1970.
    time: i64,
}

impl Change {
    fn new(time: i64) -> Self {
        Self { version: RegionVersion(CLOCK.fetch_add(1, Ordering::Relaxed)), time }
    }
}

impl Versions {
    /// `time` is the file's mtime, in nanoseconds since 1970.
    pub fn new(time: i64) -> Self {
        Self(RwLock::new(State { by_region: BTreeMap::new(), default: Change::new(time) }))
    }

    pub fn get(&self, region: RegionIndex) -> RegionVersion {
        let state = self.0.read();
        state.by_region.get(&region).unwrap_or(&state.default).version
    }

    /// Returns the highest version of some regions, and the time of their last change in nanoseconds since 1970.
    pub fn latest(&self, regions: Range<RegionIndex>) -> (RegionVersion, i64) {
        let state = self.0.read();
        let wanted = (regions.end.0 - regions.start.0) as usize;
        let own = state.by_region.range(regions).map(|(_, change)| (1, change.version, change.time));
        type Found = (usize, RegionVersion, i64);
        let add = |all: Found, one: Found| (all.0 + one.0, all.1.max(one.1), all.2.max(one.2));
        let (found, version, time) = own.fold((0, RegionVersion::NONE, i64::MIN), add);
        match found == wanted {
            true => (version, time),
            false => (version.max(state.default.version), time.max(state.default.time)),
        }
    }

    /// Gives every region that the byte range touches one new version; returns that version.
    pub fn bump(&self, range: Range<u64>) -> RegionVersion {
        let regions = regions(range);
        if (regions.end.0 - regions.start.0) as usize > ENTRIES_MAX {
            return self.bump_all();
        }
        let time = crate::now();
        let mut state = self.0.write();
        let change = Change::new(time);
        for region in RegionIndex::iter(regions) {
            state.by_region.insert(region, change);
        }
        change.version
    }

    /// Gives every region from the one that contains `offset` one new version; returns that version.
    pub fn bump_from(&self, offset: u64) -> RegionVersion {
        let first = RegionIndex::containing(offset);
        if first.0 as usize > ENTRIES_MAX {
            return self.bump_all();
        }
        let time = crate::now();
        let mut state = self.0.write();
        let change = Change::new(time);
        // Regions below keep their version, so those without an entry get one with the old default.
        let before = state.default;
        for region in RegionIndex::iter(RegionIndex(0)..first) {
            state.by_region.entry(region).or_insert(before);
        }
        state.by_region.split_off(&first);
        state.default = change;
        change.version
    }

    /// Calls `read` with the highest version of the regions. Returns its result if the regions did not change
    /// meanwhile, None if they did.
    pub fn try_stable<T, E>(
        &self,
        regions: Range<RegionIndex>,
        read: impl FnOnce(RegionVersion) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let version = self.latest(regions.clone()).0;
        let result = read(version)?;
        Ok((version == self.latest(regions).0).then_some(result))
    }

    /// Repeats [`Self::try_stable`] until no region changes during a call of `read`.
    pub fn stable<T, E>(
        &self,
        regions: Range<RegionIndex>,
        mut read: impl FnMut(RegionVersion) -> Result<T, E>,
    ) -> Result<T, E> {
        loop {
            if let Some(result) = self.try_stable(regions.clone(), &mut read)? {
                return Ok(result);
            }
        }
    }

    fn bump_all(&self) -> RegionVersion {
        let time = crate::now();
        let mut state = self.0.write();
        state.by_region.clear();
        state.default = Change::new(time);
        state.default.version
    }
}

/// Returns the regions that a byte range touches.
pub fn regions(range: Range<u64>) -> Range<RegionIndex> {
    if range.is_empty() {
        return RegionIndex(0)..RegionIndex(0);
    }
    RegionIndex::containing(range.start)..RegionIndex(range.end.div_ceil(REGION_BYTES as u64) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_four(versions: &Versions) -> [RegionVersion; 4] {
        [0, 1, 2, 3].map(|region| versions.get(RegionIndex(region)))
    }

    #[test]
    fn a_write_changes_only_the_regions_that_it_touches() {
        let versions = Versions::new(7);
        let before = first_four(&versions);
        versions.bump((1 << 20) - 1..(1 << 20) + 1);
        let after = first_four(&versions);
        assert!(after[0] > before[0] && after[1] > before[1] && after[2..] == before[2..]);
        let time = |region| versions.latest(RegionIndex(region)..RegionIndex(region + 1)).1;
        assert!(time(0) > 7 && time(1) > 7 && time(2) == 7);
    }

    #[test]
    fn a_stable_read_is_repeated_when_a_write_overlaps_it() {
        let versions = Versions::new(7);
        let mut calls = 0;
        let read = |version: RegionVersion| -> Result<RegionVersion, ()> {
            calls += 1;
            if calls < 3 {
                versions.bump(0..1);
            }
            Ok(version)
        };
        let version = versions.stable(RegionIndex(0)..RegionIndex(1), read).unwrap();
        assert_eq!((calls, version), (3, versions.get(RegionIndex(0))));
        let overlapped = versions.try_stable(RegionIndex(0)..RegionIndex(2), |_| -> Result<(), ()> {
            versions.bump(1 << 20..(1 << 20) + 1);
            Ok(())
        });
        assert_eq!(overlapped, Ok(None));
    }

    #[test]
    fn a_truncate_changes_its_region_and_all_after_it() {
        let versions = Versions::new(7);
        versions.bump(0..10);
        let before = first_four(&versions);
        versions.bump_from(2 << 20);
        let after = first_four(&versions);
        assert!(after[..2] == before[..2] && after[2] > before[2] && after[3] > before[3]);
        let time = |region| versions.latest(RegionIndex(region)..RegionIndex(region + 1)).1;
        assert!(time(1) == 7 && time(2) > 7);
    }
}
