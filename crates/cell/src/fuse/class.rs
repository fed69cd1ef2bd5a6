//! Maps a file to its class: the counters of its area, and whether the file is WAL. The path determines the class,
//! which is cached by inode.

use super::stats::{Area, AreaCounters, IoStats};
use cellar_format::wire::FileIoKind;
use cellar_storage::{Ino, Volume};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The classes of the files in use. An entry lives until the kernel forgets the inode.
#[derive(Debug, Default)]
pub struct Classes(RwLock<HashMap<Ino, FileClass>>);

#[derive(Debug, Clone)]
pub struct FileClass {
    is_wal: bool,
    counters: Arc<AreaCounters>,
}

impl FileClass {
    pub fn count(&self, kind: FileIoKind, bytes: usize, took: Duration) {
        let kind = match kind {
            FileIoKind::DataFileWrite if self.is_wal => FileIoKind::WalWrite,
            kind => kind,
        };
        self.counters.count(kind, bytes, took);
    }
}

impl Classes {
    /// Returns a file's class, which is determined from the path at the first call.
    pub fn of(&self, ino: Ino, volume: &Volume, stats: &IoStats) -> FileClass {
        if let Some(class) = self.0.read().get(&ino) {
            return class.clone();
        }
        let path = volume.path_of(ino).unwrap_or_default();
        let class =
            FileClass { is_wal: path.split('/').any(|name| name == "pg_wal"), counters: stats.area(area(&path)) };
        self.0.write().insert(ino, class.clone());
        class
    }

    pub fn forget(&self, ino: Ino) {
        // Take the read lock first: most inodes that the kernel forgets have no entry.
        if self.0.read().contains_key(&ino) {
            self.0.write().remove(&ino);
        }
    }
}

/// Returns the area of a path. A path below `base/<database>`, `global` or `pg_…` belongs to the data directory that
/// contains these; a path below a tablespace's version directory (`PG_*`) belongs to that directory. Any other file
/// belongs to its parent directory.
fn area(path: &str) -> Area {
    let mut start = 0;
    for name in path.split('/') {
        let end = start + name.len();
        let is_version = name.starts_with("PG_");
        if is_version || name == "base" {
            let database = path.get(end + 1..).and_then(|rest| rest.split('/').next()?.parse().ok());
            let root = if is_version { &path[..end] } else { &path[..start] };
            return Area { root: root.trim_end_matches('/').to_owned(), database };
        }
        if name == "global" || name.starts_with("pg_") {
            return Area { root: path[..start].trim_end_matches('/').to_owned(), database: None };
        }
        start = end + 1;
    }
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    Area { root: folder.to_owned(), database: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_determines_the_area() {
        let cases = [
            ("base/5/1234.1", "", Some(5)),
            ("pgdata/base/16384/2619_fsm", "pgdata", Some(16384)),
            ("space1/PG_15_202209061/16401/16402", "space1/PG_15_202209061", Some(16401)),
            ("pgdata/base/pgsql_tmp/pgsql_tmp1.0", "pgdata", None),
            ("pgdata/global/1262", "pgdata", None),
            ("pgdata/pg_wal/000000010000000000000001", "pgdata", None),
            ("pgdata/postmaster.pid", "pgdata", None),
            ("notes", "", None),
        ];
        for (path, root, database) in cases {
            assert_eq!(area(path), Area { root: root.to_owned(), database }, "{path}");
        }
    }
}
