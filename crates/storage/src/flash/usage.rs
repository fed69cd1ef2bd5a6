//! Whether pages of a database may enter the cache. A limit is soft: pages that are cached stay until the cache evicts them.
//!
//! A page belongs to the database whose request read its file last. While a database with a limit fills the cache, the bytes of databases
//! are counted once a second, and after each change of a limit; what was admitted since then is added. A database can exceed its limit by
//! the fills that had not ended when they were counted.

use super::FlashCache;
use super::index::CachedObject;
use super::location::PAGE;
use crate::iorm::FlashLimits;
use crate::request::{self, DatabaseId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const COUNTED_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Usage {
    limits: OnceLock<Arc<FlashLimits>>,
    bytes: Mutex<Bytes>,
}

#[derive(Debug, Default)]
struct Bytes {
    /// When they were counted, and how often limits had changed then.
    counted: Option<(Instant, u64)>,
    of: HashMap<DatabaseId, u64>,
}

impl FlashCache {
    /// Applies limits of databases, which may change later. Later calls have no effect.
    pub fn set_limits(&self, limits: Arc<FlashLimits>) {
        let _ = self.usage.limits.set(limits);
    }

    fn limit(&self, database: DatabaseId) -> Option<u64> {
        self.usage.limits.get()?.of(database)
    }

    /// Returns whether the plan lets the database of the calling thread use flash.
    pub fn serves_database(&self) -> bool {
        self.limit(request::current().database) != Some(0)
    }

    /// Returns whether the database of the calling thread may have this many bytes more in the cache, and counts them.
    pub(super) fn admits(&self, length: u64) -> bool {
        let database = request::current().database;
        let Some(limits) = self.usage.limits.get() else { return true };
        let Some(limit) = limits.of(database) else { return true };
        let (mut bytes, changes) = (self.usage.bytes.lock(), limits.changes());
        let is_recent = |(at, changes_then): (Instant, u64)| at.elapsed() < COUNTED_EVERY && changes_then == changes;
        if limit > 0 && !bytes.counted.is_some_and(is_recent) {
            *bytes = Bytes { counted: Some((Instant::now(), changes)), of: self.bytes_of_databases() };
        }
        let sum = bytes.of.get(&database).copied().unwrap_or(0) + length;
        if sum <= limit {
            bytes.of.insert(database, sum);
        }
        sum <= limit
    }

    /// Returns the bytes that databases have in the cache.
    pub fn bytes_of_databases(&self) -> HashMap<DatabaseId, u64> {
        let objects: Vec<Arc<CachedObject>> = self.objects.lock().values().cloned().collect();
        let mut sums = HashMap::new();
        for object in objects {
            *sums.entry(object.database()).or_default() += object.pages().max(0) as u64 * PAGE;
        }
        sums
    }
}
