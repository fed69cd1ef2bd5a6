//! Whether pages of a database may enter the cache. A limit is soft: pages that are cached stay until the cache evicts them.
//!
//! A page belongs to the database whose request used its file last. The bytes of databases are counted once a second at most; what was
//! admitted since then is added, so a database does not exceed its limit between two counts.

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
    counted: Option<Instant>,
    of: HashMap<DatabaseId, u64>,
}

impl FlashCache {
    /// Applies limits of databases, which may change later. The first call counts.
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
        let Some(limit) = self.limit(database) else { return true };
        let mut bytes = self.usage.bytes.lock();
        let would_be = |bytes: &Bytes| bytes.of.get(&database).copied().unwrap_or(0) + length;
        if would_be(&bytes) > limit && bytes.counted.is_none_or(|counted| counted.elapsed() >= COUNTED_EVERY) {
            *bytes = Bytes { counted: Some(Instant::now()), of: self.bytes_of_databases() };
        }
        let sum = would_be(&bytes);
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
