//! A cache of opened compression units (their directories and dictionaries), shared by page reads and Smart Scans.
//!
//! A unit's bytes never change and its id is never reused, so entries are never stale. The size of an entry is the
//! maximum memory of its unit, including all dictionaries. Eviction is CLOCK (second chance) per shard.

use cellar_format::ByteSource;
use cellar_scan::unit::{Unit, UnitError};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

const SHARDS: usize = 16;
/// Enough for about ten thousand units, which is 40 GiB of heap in units of 4 MiB.
const CAPACITY_BYTES: usize = 256 << 20;

#[derive(Debug)]
pub struct UnitDirectories {
    shard_capacity_bytes: usize,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    units: HashMap<u64, Entry>,
    /// Unit ids in the order in which eviction considers them.
    queue: VecDeque<u64>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    unit: Arc<Unit>,
    bytes: usize,
    /// Used since eviction last considered the entry.
    used: bool,
}

impl Default for UnitDirectories {
    fn default() -> Self {
        Self::with_capacity(CAPACITY_BYTES)
    }
}

impl UnitDirectories {
    pub fn with_capacity(bytes: usize) -> Self {
        Self { shard_capacity_bytes: bytes / SHARDS, shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Returns the unit with the storage's id, and opens the unit from `source` if the cache lacks it.
    pub fn open(&self, id: u64, source: &dyn ByteSource) -> Result<Arc<Unit>, UnitError> {
        let shard = &self.shards[id as usize % SHARDS];
        if let Some(entry) = shard.lock().units.get_mut(&id) {
            entry.used = true;
            return Ok(entry.unit.clone());
        }
        let unit = Arc::new(Unit::open(source)?);
        shard.lock().insert(id, unit.clone(), self.shard_capacity_bytes);
        Ok(unit)
    }

    /// Returns the number of cached units and their maximum memory in bytes.
    pub fn usage(&self) -> (usize, usize) {
        let each = self.shards.iter().map(|shard| {
            let shard = shard.lock();
            (shard.units.len(), shard.bytes)
        });
        each.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }
}

impl Shard {
    fn insert(&mut self, id: u64, unit: Arc<Unit>, capacity_bytes: usize) {
        let bytes = unit.memory_bytes_max();
        if self.units.insert(id, Entry { unit, bytes, used: false }).is_some() {
            return;
        }
        self.queue.push_back(id);
        self.bytes += bytes;
        while self.bytes > capacity_bytes {
            let Some(oldest) = self.queue.pop_front() else { break };
            match self.units.get_mut(&oldest) {
                Some(entry) if entry.used => {
                    entry.used = false;
                    self.queue.push_back(oldest);
                }
                _ => self.bytes -= self.units.remove(&oldest).map_or(0, |entry| entry.bytes),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cellar_scan::unit::{Level, Shape, encode};

    #[test]
    fn used_units_stay_cached_and_memory_is_bounded() {
        let unit = encode(&[0; 8192], &Shape::default(), Level::QueryLow).unwrap();
        let one = Unit::open(&unit).unwrap().memory_bytes_max();
        // All ids belong to one shard, which has capacity for three units.
        let table = UnitDirectories::with_capacity(3 * one * SHARDS);
        let id = |number: u64| number * SHARDS as u64;
        let first = table.open(id(0), &unit).unwrap();
        for number in 1..50 {
            assert!(Arc::ptr_eq(&first, &table.open(id(0), &unit).unwrap()), "used before each insertion");
            table.open(id(number), &unit).unwrap();
            assert!(table.usage() <= (3, 3 * one), "{:?}", table.usage());
        }
        assert_eq!(table.usage(), (3, 3 * one));
        assert!(table.open(1, &Vec::new()).is_err());
        assert_eq!(UnitDirectories::with_capacity(0).open(0, &unit).unwrap().pages().len(), 1);
    }
}
