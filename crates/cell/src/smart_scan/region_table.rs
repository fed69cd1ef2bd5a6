//! What was learnt about regions of files: the storage index's summaries, and which checksums were found right.
//!
//! A fact is true of the bytes that the region had at one version; a region that has been written to since has
//! another version, so the fact is never used again. Memory is bounded: when a shard is full, it starts anew.

use std::collections::HashMap;

use parking_lot::Mutex;

const SHARDS: usize = 16;
/// Regions remembered: they cover a terabyte.
const REGIONS_MAX: usize = 1 << 20;

/// A region of a file: its inode and its number.
pub type RegionKey = (u64, u32);

pub struct RegionTable<T> {
    shards: [Mutex<HashMap<RegionKey, Fact<T>>>; SHARDS],
}

struct Fact<T> {
    version: u64,
    value: T,
}

impl<T> Default for RegionTable<T> {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl<T> RegionTable<T> {
    /// What `ask` makes of the region's fact; None when there is none for this version.
    pub fn look_up<A>(&self, key: RegionKey, version: u64, ask: impl FnOnce(&T) -> A) -> Option<A> {
        let shard = self.shard(key).lock();
        shard.get(&key).filter(|fact| fact.version == version).map(|fact| ask(&fact.value))
    }

    /// Keeps what was found out about the region at `version`; `merge` joins it to a fact of the same version.
    pub fn learn(&self, key: RegionKey, version: u64, value: T, merge: impl FnOnce(&mut T, T)) {
        let mut shard = self.shard(key).lock();
        if shard.len() >= REGIONS_MAX / SHARDS && !shard.contains_key(&key) {
            shard.clear();
        }
        match shard.get_mut(&key) {
            Some(fact) if fact.version == version => merge(&mut fact.value, value),
            _ => drop(shard.insert(key, Fact { version, value })),
        }
    }

    pub fn regions(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    fn shard(&self, (ino, region): RegionKey) -> &Mutex<HashMap<RegionKey, Fact<T>>> {
        let mixed = (ino ^ u64::from(region).rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.shards[(mixed >> 60) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_holds_for_its_version_only() {
        let table = RegionTable::default();
        table.learn((5, 1), 10, 1, |known, new| *known += new);
        table.learn((5, 1), 10, 2, |known, new| *known += new);
        assert_eq!(table.look_up((5, 1), 10, |fact| *fact), Some(3));
        assert_eq!(table.look_up((5, 1), 11, |fact| *fact), None);
        table.learn((5, 1), 11, 7, |known, new| *known += new);
        assert_eq!(table.look_up((5, 1), 11, |fact| *fact), Some(7));
        assert_eq!(table.look_up((5, 1), 10, |fact| *fact), None);
    }
}
