//! How many bytes of the flash cache databases may have, by the plan.

use crate::request::DatabaseId;
use parking_lot::RwLock;
use std::collections::HashMap;

/// The limits of databases in bytes; 0 for a database that does not use flash. Databases without an entry have none.
#[derive(Debug, Default)]
pub struct FlashLimits(RwLock<HashMap<DatabaseId, u64>>);

impl FlashLimits {
    pub fn of(&self, database: DatabaseId) -> Option<u64> {
        self.0.read().get(&database).copied()
    }

    pub(crate) fn set(&self, database: DatabaseId, limit: Option<u64>) {
        let mut limits = self.0.write();
        match limit {
            Some(limit) => limits.insert(database, limit),
            None => limits.remove(&database),
        };
    }
}
