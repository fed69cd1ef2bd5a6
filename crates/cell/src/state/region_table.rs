//! A bounded table of facts about regions of disk objects.
//!
//! A fact is valid for one region version. Every write changes the version, so a fact about older bytes never matches
//! again. A full shard drops all its facts.

use std::collections::HashMap;

use cellar_format::units::{RegionIndex, RegionVersion};
use parking_lot::Mutex;

use crate::relation::DiskObject;

const SHARDS: usize = 16;
/// Maximum number of facts: the regions of 1 TiB.
const REGIONS_MAX: usize = 1 << 20;

/// A region of a disk object.
pub type RegionKey = (DiskObject, RegionIndex);

pub struct RegionTable<T> {
    shards: [Mutex<HashMap<RegionKey, Fact<T>>>; SHARDS],
}

struct Fact<T> {
    version: RegionVersion,
    value: T,
}

impl<T> Default for RegionTable<T> {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl<T> RegionTable<T> {
    /// Returns `read` of the region's fact, or None if the table has no fact for this version.
    pub fn look_up<A>(&self, key: RegionKey, version: RegionVersion, read: impl FnOnce(&T) -> A) -> Option<A> {
        let shard = self.shard(key).lock();
        shard.get(&key).filter(|fact| fact.version == version).map(|fact| read(&fact.value))
    }

    /// Records a fact about the region at `version`. `merge` adds `value` to an existing fact of the same version; a
    /// fact of another version is replaced.
    pub fn record(&self, key: RegionKey, version: RegionVersion, value: T, merge: impl FnOnce(&mut T, T)) {
        let mut shard = self.shard(key).lock();
        if shard.len() >= REGIONS_MAX / SHARDS && !shard.contains_key(&key) {
            shard.clear();
        }
        match shard.get_mut(&key) {
            Some(fact) if fact.version == version => merge(&mut fact.value, value),
            _ => drop(shard.insert(key, Fact { version, value })),
        }
    }

    fn shard(&self, (object, region): RegionKey) -> &Mutex<HashMap<RegionKey, Fact<T>>> {
        let mixed = (object ^ u64::from(region.0).rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.shards[(mixed >> 60) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_is_valid_for_its_version_only() {
        let table = RegionTable::default();
        let region = (5, RegionIndex(1));
        let version = RegionVersion;
        table.record(region, version(10), 1, |known, new| *known += new);
        table.record(region, version(10), 2, |known, new| *known += new);
        assert_eq!(table.look_up(region, version(10), |fact| *fact), Some(3));
        assert_eq!(table.look_up(region, version(11), |fact| *fact), None);
        table.record(region, version(11), 7, |known, new| *known += new);
        assert_eq!(table.look_up(region, version(11), |fact| *fact), Some(7));
        assert_eq!(table.look_up(region, version(10), |fact| *fact), None);
    }
}
