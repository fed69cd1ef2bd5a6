//! How many bytes of the flash cache databases may have, by the plan.

use crate::request::DatabaseId;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// The limits of databases in bytes; 0 for a database that does not use flash. Databases without an entry have none.
#[derive(Debug, Default)]
pub struct FlashLimits {
    limits: RwLock<HashMap<DatabaseId, u64>>,
    changes: AtomicU64,
}

impl FlashLimits {
    pub fn of(&self, database: DatabaseId) -> Option<u64> {
        self.limits.read().get(&database).copied()
    }

    pub(crate) fn set(&self, database: DatabaseId, limit: Option<u64>) {
        let mut limits = self.limits.write();
        let former = match limit {
            Some(limit) => limits.insert(database, limit),
            None => limits.remove(&database),
        };
        if former != limit {
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Returns how often a limit changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }
}
