//! The file service's counters: operations, bytes and latencies by area (data directory or tablespace, and database),
//! file type and kind of operation; and of a bounded number of relations.
//!
//! Every operation that the daemon serves is counted once by file type, and once more for its relation. Before Linux 6.6, the kernel serves some reads from its own
//! cache; the daemon does not see these. Counters never decrease while the daemon runs.

use cellar_format::postgres::Oid;
use cellar_format::wire::{FILE_IO_BUCKETS, FileIoKind, FileType};
use cellar_storage::{OperationCounters, OperationCounts};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Latencies in log2 microseconds, in the buckets of the wire.
pub type Histogram = [u64; FILE_IO_BUCKETS];

/// The files that share counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Area {
    /// A data directory, or a tablespace's version directory, relative to the mount's root.
    pub root: String,
    /// None for files without a database.
    pub database: Option<Oid>,
}

/// The counters of one area, file type and kind, or of one relation among them, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoCount {
    pub area: Area,
    pub file_type: FileType,
    /// None for the counters of the file type, which include the counters of its relations.
    pub relation: Option<RelationCount>,
    pub kind: FileIoKind,
    pub operations: u64,
    pub bytes: u64,
    pub microseconds: u64,
    pub histogram: Histogram,
}

/// Identifies the counters of a relation within an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelationCount {
    /// The file number in the names of the relation's files.
    pub number: u32,
    /// Differs if the counters were evicted and have started from zero again.
    pub generation: u64,
}

/// Maximum number of relations with counters. Relations with the least time are evicted; the counters of their file type
/// still contain their operations.
pub const RELATIONS_MAX: usize = 2048;

#[derive(Debug, Default)]
pub struct IoStats {
    types: RwLock<HashMap<(Area, FileType), Arc<Counters>>>,
    relations: Mutex<Relations>,
}

#[derive(Debug, Default)]
struct Relations {
    entries: HashMap<(Area, u32), Arc<RelationCounters>>,
    last_generation: u64,
}

/// Counters by kind of operation.
#[derive(Debug, Default)]
pub(super) struct Counters([OperationCounters; FileIoKind::ALL.len()]);

#[derive(Debug)]
pub(super) struct RelationCounters {
    generation: u64,
    is_evicted: AtomicBool,
    counters: Counters,
}

impl RelationCounters {
    pub fn count(&self, kind: FileIoKind, bytes: usize, took: Duration) {
        self.counters.count(kind, bytes, took);
    }

    /// Returns whether no snapshot contains these counters any more.
    pub fn is_evicted(&self) -> bool {
        self.is_evicted.load(Ordering::Relaxed)
    }
}

impl Relations {
    /// Evicts an eighth of the relations: those with the least time.
    fn evict(&mut self) {
        let mut times: Vec<(u64, (Area, u32))> =
            self.entries.iter().map(|(key, relation)| (relation.counters.nanoseconds(), key.clone())).collect();
        times.sort_unstable_by_key(|(nanoseconds, _)| *nanoseconds);
        for (_, key) in times.into_iter().take(RELATIONS_MAX / 8) {
            if let Some(relation) = self.entries.remove(&key) {
                relation.is_evicted.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl IoStats {
    pub(super) fn of_type(&self, area: Area, file_type: FileType) -> Arc<Counters> {
        let key = (area, file_type);
        if let Some(counters) = self.types.read().get(&key) {
            return counters.clone();
        }
        self.types.write().entry(key).or_default().clone()
    }

    /// Returns the counters of a relation, and whether others were evicted.
    pub(super) fn of_relation(&self, area: Area, number: u32) -> (Arc<RelationCounters>, bool) {
        let mut relations = self.relations.lock();
        let key = (area, number);
        if let Some(relation) = relations.entries.get(&key) {
            return (relation.clone(), false);
        }
        let evicts = relations.entries.len() >= RELATIONS_MAX;
        if evicts {
            relations.evict();
        }
        relations.last_generation += 1;
        let generation = relations.last_generation;
        let relation = Arc::new(RelationCounters {
            generation,
            is_evicted: AtomicBool::new(false),
            counters: Counters::default(),
        });
        relations.entries.insert(key, relation.clone());
        (relation, evicts)
    }

    /// Returns all nonzero counters of file types. Their sum is the sum of all operations.
    pub fn snapshot(&self) -> Vec<IoCount> {
        let types = self.types.read();
        types.iter().flat_map(|((area, file_type), counters)| counters.lines(area, *file_type, None)).collect()
    }

    /// Returns all nonzero counters of relations.
    pub fn relations(&self) -> Vec<IoCount> {
        let relations = self.relations.lock();
        let lines = relations.entries.iter().flat_map(|((area, number), relation)| {
            let count = RelationCount { number: *number, generation: relation.generation };
            relation.counters.lines(area, FileType::Relation, Some(count))
        });
        lines.collect()
    }
}

impl Counters {
    pub fn count(&self, kind: FileIoKind, bytes: usize, took: Duration) {
        self.0[kind as usize].count(bytes, took);
    }

    fn nanoseconds(&self) -> u64 {
        self.0.iter().map(|counters| counters.read().nanoseconds).sum()
    }

    fn lines(&self, area: &Area, file_type: FileType, relation: Option<RelationCount>) -> Vec<IoCount> {
        let line = |kind: FileIoKind| {
            let OperationCounts { operations, bytes, nanoseconds, histogram } = self.0[kind as usize].read();
            let microseconds = nanoseconds / 1000;
            IoCount { area: area.clone(), file_type, relation, kind, operations, bytes, microseconds, histogram }
        };
        FileIoKind::ALL.into_iter().map(line).filter(|line| line.operations > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(database: u32) -> Area {
        Area { root: "pg".to_owned(), database: Some(database) }
    }

    #[test]
    fn a_snapshot_contains_the_sums_of_all_counts() {
        let stats = IoStats::default();
        for _ in 0..3 {
            stats.of_type(area(5), FileType::Wal).count(FileIoKind::WalWrite, 100, Duration::from_micros(7));
        }
        let snapshot = stats.snapshot();
        assert_eq!(snapshot.len(), 1);
        let line = &snapshot[0];
        assert_eq!((line.operations, line.bytes, line.microseconds, line.histogram[3]), (3, 300, 21, 3));
    }

    #[test]
    fn the_relations_with_the_most_time_keep_their_counters() {
        let stats = IoStats::default();
        let read = |number: u32| {
            let (relation, _) = stats.of_relation(area(5), number);
            relation.count(FileIoKind::SingleBlockRead, 8192, Duration::from_micros(number.into()));
            relation
        };
        let first = read(1);
        for number in 2..=RELATIONS_MAX as u32 {
            read(number);
        }
        assert!(!first.is_evicted());
        read(1_000_000);
        assert!(first.is_evicted());
        let numbers: Vec<u32> = stats.relations().iter().map(|line| line.relation.unwrap().number).collect();
        assert_eq!(numbers.len(), RELATIONS_MAX - RELATIONS_MAX / 8 + 1);
        assert!(numbers.contains(&(RELATIONS_MAX as u32)) && numbers.contains(&1_000_000));
        assert!(!numbers.contains(&1));

        read(1);
        let again = stats.relations().into_iter().find(|line| line.relation.unwrap().number == 1).unwrap();
        assert_eq!(again.operations, 1);
        assert_ne!(again.relation.unwrap().generation, first.generation);
    }
}
