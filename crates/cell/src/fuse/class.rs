//! Maps a file to its class: the counters of its area, file type and relation, and the priority of its requests for
//! space. The path determines the class, which is cached by inode.

use super::stats::{Area, Counters, IoStats, RelationCounters};
use cellar_format::wire::{FileIoKind, FileType};
use cellar_storage::iorm::Iorm;
use cellar_storage::request::{DatabaseId, GroupId, IoKind, Origin};
use cellar_storage::{Ino, SpacePriority, Volume};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The classes of the files in use. An entry lives until the kernel forgets the inode, or a database gets another number.
#[derive(Debug, Default)]
pub struct Classes {
    by_inode: RwLock<HashMap<Ino, Arc<FileClass>>>,
    /// The numbering of databases that the classes contain.
    numbering: AtomicU64,
}

#[derive(Debug)]
pub struct FileClass {
    pub file_type: FileType,
    /// The priority of requests for space by a process that neither writes a checkpoint nor recovers.
    pub priority: SpacePriority,
    /// Whose requests to the disks those for the file are, without the consumer group.
    origin: Origin,
    counters: Arc<Counters>,
    relation: Option<Arc<RelationCounters>>,
}

impl FileClass {
    /// Returns whose requests to the disks those of a process for the file are.
    pub fn origin_of(&self, process: u32, iorm: &Iorm) -> Origin {
        with_group(self.origin, process, iorm)
    }

    pub fn count(&self, kind: FileIoKind, bytes: usize, took: Duration) {
        let kind = match kind {
            FileIoKind::DataFileWrite if self.file_type == FileType::Wal => FileIoKind::WalWrite,
            kind => kind,
        };
        self.counters.count(kind, bytes, took);
        if let Some(relation) = &self.relation {
            relation.count(kind, bytes, took);
        }
    }
}

impl Classes {
    /// Returns a file's class, which is determined from the path at the first call.
    pub fn of(&self, ino: Ino, volume: &Volume, stats: &IoStats, iorm: &Iorm) -> Arc<FileClass> {
        let numbering = iorm.numbering();
        if self.numbering.load(Ordering::Acquire) != numbering {
            let mut classes = self.by_inode.write();
            classes.clear();
            self.numbering.store(numbering, Ordering::Release);
        }
        if let Some(class) = self.by_inode.read().get(&ino) {
            return class.clone();
        }
        let path = volume.path_of(ino).unwrap_or_default();
        let (area, (file_type, number)) = (area(&path), file_type(&path));
        let relation = number.map(|number| stats.of_relation(area.clone(), number));
        let evicts = relation.as_ref().is_some_and(|(_, evicts)| *evicts);
        let class = Arc::new(FileClass {
            file_type,
            priority: priority(&path),
            origin: origin_of(&area, file_type, iorm),
            counters: stats.of_type(area, file_type),
            relation: relation.map(|(relation, _)| relation),
        });
        let mut classes = self.by_inode.write();
        if iorm.numbering() != numbering {
            return class;
        }
        if evicts {
            // The next operation on a file of an evicted relation finds the class again, with counters.
            classes.retain(|_, class| class.relation.as_ref().is_none_or(|relation| !relation.is_evicted()));
        }
        classes.insert(ino, class.clone());
        class
    }

    pub fn forget(&self, ino: Ino) {
        // Take the read lock first: most inodes that the kernel forgets have no entry.
        if self.by_inode.read().contains_key(&ino) {
            self.by_inode.write().remove(&ino);
        }
    }
}

/// Returns the type of a file and, for the main fork of a relation, the number in the file's name.
fn file_type(path: &str) -> (FileType, Option<u32>) {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut folders = folder.rsplit('/');
    let parent = folders.next().unwrap_or_default();
    if path.split('/').any(|folder| folder == "pg_wal") {
        return (FileType::Wal, None);
    }
    if folder.split('/').any(|folder| folder.starts_with("pgsql_tmp")) || name.starts_with("pgsql_tmp") {
        return (FileType::Temporary, None);
    }
    if parent == "global" && name == "pg_control" {
        return (FileType::Control, None);
    }
    let above = folders.next().unwrap_or_default();
    let is_of_database = parent.parse::<u32>().is_ok() && (above == "base" || above.starts_with("PG_"));
    if !is_of_database && parent != "global" {
        return (FileType::Other, None);
    }
    // A relation's files: NUMBER[_FORK][.SEGMENT], with the prefix tBACKEND_ if the relation is temporary
    let without_segment = name.split_once('.').map_or(name, |(stem, _)| stem);
    if let Some((backend, _)) = without_segment.strip_prefix('t').and_then(|rest| rest.split_once('_'))
        && backend.parse::<u32>().is_ok()
    {
        return (FileType::Temporary, None);
    }
    let (number, fork) = without_segment.split_once('_').unwrap_or((without_segment, ""));
    match (number.parse(), fork) {
        (Ok(number), "") if number != 0 => (FileType::Relation, Some(number)),
        (Ok(_), "fsm" | "vm") => (FileType::Map, None),
        _ => (FileType::Other, None),
    }
}

/// Returns the type of a file.
pub fn type_of(path: &str) -> FileType {
    file_type(path).0
}

/// Returns whose requests those for a file are. WAL belongs to all databases of a cluster.
fn origin_of(area: &Area, file_type: FileType, iorm: &Iorm) -> Origin {
    let database = area.database.map_or(DatabaseId::OTHER, |oid| iorm.database(&area.root, oid));
    match file_type {
        FileType::Wal => Origin { database, group: GroupId::BACKGROUND, kind: IoKind::Redo },
        _ => Origin { database, ..Origin::default() },
    }
}

/// Returns the origin of the requests of a process that scans a relation's file.
pub fn origin(path: &str, process: u32, iorm: &Iorm) -> Origin {
    let origin = Origin { kind: IoKind::Large, ..origin_of(&area(path), FileType::Relation, iorm) };
    with_group(origin, process, iorm)
}

/// Adds the consumer group of a process. WAL belongs to all sessions, whichever of them writes it.
fn with_group(origin: Origin, process: u32, iorm: &Iorm) -> Origin {
    match origin.kind {
        IoKind::Redo => origin,
        _ => Origin { group: iorm.process_groups().of(process).unwrap_or(origin.group), ..origin },
    }
}

/// Returns the number of a file among the segments of its fork, if the file belongs to a relation that is not temporary.
pub fn relation_segment(path: &str) -> Option<u32> {
    let is_relation = matches!(file_type(path).0, FileType::Relation | FileType::Map);
    let name = path.rsplit('/').next()?;
    is_relation.then(|| name.split_once('.').map_or(Some(0), |(_, segment)| segment.parse().ok())).flatten()
}

/// Returns the number of the relation that a file belongs to, whichever fork and segment; None for other and temporary files.
pub fn relation_of(path: &str) -> Option<u32> {
    relation_segment(path)?;
    let name = path.rsplit('/').next()?;
    name.split(['.', '_']).next()?.parse().ok()
}

/// Returns the name of the first segment of a relation's main fork, if `name` is that of another segment or fork.
pub fn first_segment(name: &str) -> Option<&str> {
    let number = name.split(['.', '_']).next()?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && number.len() < name.len()).then_some(number)
}

/// Returns the data directory, or the tablespace's version directory, that a path belongs to, and the database.
pub fn area_of(path: &str) -> (String, Option<u32>) {
    let Area { root, database } = area(path);
    (root, database)
}

/// Returns the data directory, or the tablespace's version directory, that a path belongs to.
pub fn cluster_root(path: &str) -> String {
    area(path).root
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

/// Folders of a data directory whose files PostgreSQL needs to write WAL, to complete a checkpoint and to recover.
const ESSENTIAL_FOLDERS: [&str; 10] = [
    "pg_commit_ts",
    "pg_logical",
    "pg_multixact",
    "pg_notify",
    "pg_serial",
    "pg_stat",
    "pg_subtrans",
    "pg_twophase",
    "pg_wal",
    "pg_xact",
];
/// Such files in other folders. A name may have a suffix, like the suffix of a temporary file.
const ESSENTIAL_FILES: [&str; 7] = [
    "backup_label",
    "pg_control",
    "pg_filenode.map",
    // A session that cannot write this file does not start.
    "pg_internal.init",
    "postmaster.opts",
    "postmaster.pid",
    "tablespace_map",
];

/// Returns the priority of a file's requests for space. A failure to grow a relation, a temporary file or a server log
/// is an ordinary error; a failure to write WAL or a file of a checkpoint stops the cluster.
fn priority(path: &str) -> SpacePriority {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let is_slot_state = name.starts_with("state") && folder.split('/').any(|name| name == "pg_replslot");
    let is_essential = is_slot_state
        || ESSENTIAL_FILES.iter().any(|file| name.starts_with(file))
        || folder.split('/').any(|name| ESSENTIAL_FOLDERS.contains(&name));
    if is_essential { SpacePriority::High } else { SpacePriority::Normal }
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

    #[test]
    fn the_path_determines_the_file_type() {
        let cases = [
            ("pgdata/base/5/1234", FileType::Relation, Some(1234)),
            ("base/5/1234.17", FileType::Relation, Some(1234)),
            ("pgdata/global/1262", FileType::Relation, Some(1262)),
            ("space1/PG_15_202209061/16401/16402.1", FileType::Relation, Some(16402)),
            ("space1/PG_15_202209061/16401/16402_vm.1", FileType::Map, None),
            ("pgdata/base/5/1234_fsm", FileType::Map, None),
            ("pgdata/base/5/1234_init", FileType::Other, None),
            ("pgdata/base/5/t3_16384", FileType::Temporary, None),
            ("pgdata/base/5/t3_16384_fsm", FileType::Temporary, None),
            ("pgdata/base/pgsql_tmp/pgsql_tmp4711.0", FileType::Temporary, None),
            ("space1/PG_15_202209061/pgsql_tmp/pgsql_tmp4711.0.sharedfileset/0.0", FileType::Temporary, None),
            ("pgdata/pg_wal/000000010000000000000001", FileType::Wal, None),
            ("pgdata/global/pg_control", FileType::Control, None),
            ("pgdata/base/5/pg_filenode.map", FileType::Other, None),
            ("pgdata/base/5/PG_VERSION", FileType::Other, None),
            ("pgdata/pg_xact/0000", FileType::Other, None),
            ("5/1234", FileType::Other, None),
            ("notes", FileType::Other, None),
            ("", FileType::Other, None),
        ];
        for (path, expected, number) in cases {
            assert_eq!(file_type(path), (expected, number), "{path}");
        }
    }

    #[test]
    fn files_of_wal_and_checkpoints_may_use_the_reserve() {
        let essential = [
            "pgdata/pg_wal/000000010000000000000001",
            "pg_wal/xlogtemp.47",
            "pgdata/pg_multixact/members/0000",
            "pgdata/pg_logical/replorigin_checkpoint.tmp",
            "pgdata/pg_replslot/standby/state.tmp",
            "pgdata/global/pg_control",
            "pgdata/base/5/pg_filenode.map.tmp",
            "pgdata/base/5/pg_internal.init.4711",
            "postmaster.pid",
        ];
        let ordinary = [
            "pgdata/base/5/1234.1",
            "pgdata/base/pgsql_tmp/pgsql_tmp1.0",
            "pgdata/global/1262",
            "space1/PG_15_202209061/16401/16402_vm",
            "pgdata/pg_replslot/decoder/xid-747-lsn-0-1000000.spill",
            "pgdata/log/postgresql.log",
            "",
        ];
        essential.iter().for_each(|path| assert_eq!(priority(path), SpacePriority::High, "{path}"));
        ordinary.iter().for_each(|path| assert_eq!(priority(path), SpacePriority::Normal, "{path}"));
    }
}
