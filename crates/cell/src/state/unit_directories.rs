//! A cache of opened compression units (their directories and dictionaries), shared by page reads and Smart Scans.
//!
//! A unit's bytes never change and its id is never reused, so entries are never stale. The size of an entry is the
//! maximum memory of its unit, including all dictionaries.

use std::sync::Arc;

use cellar_format::ByteSource;
use cellar_scan::Account;
use cellar_scan::unit::{Unit, UnitError};

use super::clock_cache::{ClockCache, HeapBytes};

#[derive(Debug)]
pub struct UnitDirectories(ClockCache<u64, Arc<Unit>>);

impl HeapBytes for Arc<Unit> {
    fn heap_bytes(&self) -> usize {
        size_of::<Unit>() + self.memory_bytes_max()
    }
}

/// Capacity outside a cell: enough for about ten thousand units, which is 40 GiB of heap in units of 4 MiB.
const DEFAULT_BYTES: u64 = 256 << 20;

impl Default for UnitDirectories {
    fn default() -> Self {
        Self::new(&Account::new(DEFAULT_BYTES))
    }
}

impl UnitDirectories {
    /// Returns a cache that keeps the account's limit.
    pub fn new(account: &Arc<Account>) -> Self {
        Self(ClockCache::new(account, account.limit()))
    }

    /// Returns the unit with the storage's id, and opens the unit from `source` if the cache lacks it.
    pub fn open(&self, id: u64, source: &dyn ByteSource) -> Result<Arc<Unit>, UnitError> {
        if let Some(unit) = self.0.look_up(id, Arc::clone) {
            return Ok(unit);
        }
        let unit = Arc::new(Unit::open(source)?);
        self.0.insert(id, unit.clone(), |_, _| {});
        Ok(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cellar_scan::unit::{Level, Shape, encode};

    #[test]
    fn a_unit_is_opened_once_while_it_fits() {
        let unit = encode(&[0; 8192], &Shape::default(), Level::QueryLow).unwrap();
        let cache = UnitDirectories::new(&Account::new(1 << 20));
        let first = cache.open(5, &unit).unwrap();
        assert!(Arc::ptr_eq(&first, &cache.open(5, &unit).unwrap()));
        assert!(cache.open(1, &Vec::new()).is_err());
        let account = Account::new(0);
        assert_eq!(UnitDirectories::new(&account).open(0, &unit).unwrap().pages().len(), 1);
        assert_eq!(account.used(), 0, "a unit that does not fit is not cached");
    }
}
