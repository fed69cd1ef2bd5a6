//! Which counters a file's operations belong to, told from its path and remembered by inode.

use super::stats::{DatabaseCounters, IoKind, IoStats};
use cellar_format::postgres::Oid;
use cellar_storage::{Ino, Volume};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The classes of files in use; an entry lives until the kernel forgets the inode.
#[derive(Debug, Default)]
pub struct Classes(RwLock<HashMap<Ino, FileClass>>);

#[derive(Debug, Clone)]
pub struct FileClass {
    is_wal: bool,
    counters: Arc<DatabaseCounters>,
}

impl FileClass {
    pub fn count(&self, kind: IoKind, bytes: usize, took: Duration) {
        let kind = match kind {
            IoKind::DataFileWrite if self.is_wal => IoKind::WalWrite,
            kind => kind,
        };
        self.counters.count(kind, bytes, took);
    }
}

impl Classes {
    pub fn of(&self, ino: Ino, volume: &Volume, stats: &IoStats) -> FileClass {
        if let Some(class) = self.0.read().get(&ino) {
            return class.clone();
        }
        let path = volume.path_of(ino).unwrap_or_default();
        let class = FileClass {
            is_wal: path.split('/').any(|name| name == "pg_wal"),
            counters: stats.database(database(&path)),
        };
        self.0.write().insert(ino, class.clone());
        class
    }

    pub fn forget(&self, ino: Ino) {
        // Most inodes that the kernel forgets were never read or written.
        if self.0.read().contains_key(&ino) {
            self.0.write().remove(&ino);
        }
    }
}

/// The database that a file belongs to: the number below `base`, or below a tablespace's version directory (`PG_*`).
fn database(path: &str) -> Option<Oid> {
    let mut names = path.split('/');
    let mut number = None;
    while let Some(name) = names.next() {
        if name == "base" || name.starts_with("PG_") {
            number = names.next().and_then(|name| name.parse().ok()).or(number);
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_tells_the_database() {
        let cases = [
            ("base/5/1234.1", Some(5)),
            ("pgdata/base/16384/2619_fsm", Some(16384)),
            ("space1/PG_15_202209061/16401/16402", Some(16401)),
            ("pgdata/base/pgsql_tmp/pgsql_tmp1.0", None),
            ("pgdata/global/1262", None),
            ("pgdata/pg_wal/000000010000000000000001", None),
        ];
        for (path, expected) in cases {
            assert_eq!(database(path), expected, "{path}");
        }
    }
}
