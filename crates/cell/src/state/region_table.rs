//! A bounded table of facts about regions of disk objects.
//!
//! A fact is valid for one region version. Every write changes the version, so a fact about older bytes never matches
//! again. A full table evicts facts that were not used recently.

use std::sync::Arc;

use cellar_format::units::{RegionIndex, RegionVersion};
use cellar_scan::Account;

use super::clock_cache::{ClockCache, HeapBytes};
use crate::relation::DiskObject;

/// A region of a disk object.
pub type RegionKey = (DiskObject, RegionIndex);

pub struct RegionTable<T>(ClockCache<RegionKey, Fact<T>>);

struct Fact<T> {
    version: RegionVersion,
    value: T,
}

impl<T: HeapBytes> HeapBytes for Fact<T> {
    fn heap_bytes(&self) -> usize {
        self.value.heap_bytes()
    }
}

impl HeapBytes for () {
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl HeapBytes for u8 {
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl<T: HeapBytes> RegionTable<T> {
    /// Returns a table of at most `capacity_bytes`, whose memory is added to `account`.
    pub fn new(account: &Arc<Account>, capacity_bytes: u64) -> Self {
        Self(ClockCache::new(account, capacity_bytes))
    }

    /// Returns `read` of the region's fact, or None if the table has no fact for this version.
    pub fn look_up<A>(&self, key: RegionKey, version: RegionVersion, read: impl FnOnce(&T) -> A) -> Option<A> {
        self.0.look_up(key, |fact| (fact.version == version).then(|| read(&fact.value))).flatten()
    }

    /// Calls `visit` with every fact, and the version that it is valid for. The table must not be used within a call.
    pub fn try_for_each<E>(
        &self,
        mut visit: impl FnMut(RegionKey, RegionVersion, &T) -> Result<(), E>,
    ) -> Result<(), E> {
        self.0.try_for_each(|key, fact| visit(key, fact.version, &fact.value))
    }

    /// Records a fact about the region at `version`. `merge` adds `value` to an existing fact of the same version; a
    /// fact of another version is replaced.
    pub fn record(&self, key: RegionKey, version: RegionVersion, value: T, merge: impl FnOnce(&mut T, T)) {
        self.0.insert(key, Fact { version, value }, |known, new| match known.version == new.version {
            true => merge(&mut known.value, new.value),
            false => *known = new,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_is_valid_for_its_version_only() {
        let table = RegionTable::new(&Account::unlimited(), 1 << 20);
        let region = (5, RegionIndex(1));
        let version = RegionVersion;
        table.record(region, version(10), 1u8, |known, new| *known += new);
        table.record(region, version(10), 2, |known, new| *known += new);
        assert_eq!(table.look_up(region, version(10), |fact| *fact), Some(3));
        assert_eq!(table.look_up(region, version(11), |fact| *fact), None);
        table.record(region, version(11), 7, |known, new| *known += new);
        assert_eq!(table.look_up(region, version(11), |fact| *fact), Some(7));
        assert_eq!(table.look_up(region, version(10), |fact| *fact), None);
    }
}
