//! Directories of compression units in memory, for page reads and Smart Scans alike.
//!
//! A unit's bytes never change and its id is never used again, so what is kept is never out of date. Memory is bounded
//! by what each unit can come to take with all its dictionaries; what was not asked for lately goes first.

use cellar_format::ByteSource;
use cellar_scan::unit::{Unit, UnitError};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

const SHARDS: usize = 16;
/// Some ten thousand directories, those of 40 GiB of heap.
const KEPT_BYTES_MAX: usize = 256 << 20;

#[derive(Debug)]
pub struct UnitTable {
    shard_bytes_max: usize,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    units: HashMap<u64, Kept>,
    /// In the order in which they are looked at when room is needed.
    queue: VecDeque<u64>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    unit: Arc<Unit>,
    bytes: usize,
    /// Asked for since it was looked at last.
    used: bool,
}

impl Default for UnitTable {
    fn default() -> Self {
        Self::with_max(KEPT_BYTES_MAX)
    }
}

impl UnitTable {
    pub fn with_max(bytes: usize) -> Self {
        Self { shard_bytes_max: bytes / SHARDS, shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// The unit that the storage knows by this id; opened when it is not kept.
    pub fn open(&self, id: u64, source: &dyn ByteSource) -> Result<Arc<Unit>, UnitError> {
        let shard = &self.shards[id as usize % SHARDS];
        if let Some(kept) = shard.lock().units.get_mut(&id) {
            kept.used = true;
            return Ok(kept.unit.clone());
        }
        let unit = Arc::new(Unit::open(source)?);
        shard.lock().keep(id, unit.clone(), self.shard_bytes_max);
        Ok(unit)
    }

    /// Directories that are kept, and bytes that they take at most.
    pub fn kept(&self) -> (usize, usize) {
        let each = self.shards.iter().map(|shard| {
            let shard = shard.lock();
            (shard.units.len(), shard.bytes)
        });
        each.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }
}

impl Shard {
    fn keep(&mut self, id: u64, unit: Arc<Unit>, bytes_max: usize) {
        let bytes = unit.memory_bytes_max();
        if self.units.insert(id, Kept { unit, bytes, used: false }).is_some() {
            return;
        }
        self.queue.push_back(id);
        self.bytes += bytes;
        while self.bytes > bytes_max {
            let Some(oldest) = self.queue.pop_front() else { break };
            match self.units.get_mut(&oldest) {
                Some(kept) if kept.used => {
                    kept.used = false;
                    self.queue.push_back(oldest);
                }
                _ => self.bytes -= self.units.remove(&oldest).map_or(0, |kept| kept.bytes),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cellar_scan::unit::{Level, Shape, encode};

    #[test]
    fn what_is_asked_for_stays_and_memory_is_bounded() {
        let unit = encode(&[0; 8192], &Shape::default(), Level::QueryLow).unwrap();
        let one = Unit::open(&unit).unwrap().memory_bytes_max();
        // All ids fall into one shard, which has room for three units.
        let table = UnitTable::with_max(3 * one * SHARDS);
        let id = |number: u64| number * SHARDS as u64;
        let first = table.open(id(0), &unit).unwrap();
        for number in 1..50 {
            assert!(Arc::ptr_eq(&first, &table.open(id(0), &unit).unwrap()), "asked for all the time");
            table.open(id(number), &unit).unwrap();
            assert!(table.kept() <= (3, 3 * one), "{:?}", table.kept());
        }
        assert_eq!(table.kept(), (3, 3 * one));
        assert!(table.open(1, &Vec::new()).is_err());
        assert_eq!(UnitTable::with_max(0).open(0, &unit).unwrap().pages().len(), 1);
    }
}
