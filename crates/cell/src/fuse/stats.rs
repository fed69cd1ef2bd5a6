//! The file service's counters: operations, bytes and latencies by area (data directory or tablespace, and database)
//! and kind of operation.
//!
//! Every operation that the daemon serves is counted once. Before Linux 6.6, the kernel serves some reads from its own
//! cache; the daemon does not see these. Counters never decrease while the daemon runs.

use cellar_format::postgres::Oid;
use cellar_format::wire::{FILE_IO_BUCKETS, FileIoKind};
use cellar_storage::{OperationCounters, OperationCounts};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
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

/// The counters of one area and kind at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoCount {
    pub area: Area,
    pub kind: FileIoKind,
    pub operations: u64,
    pub bytes: u64,
    pub microseconds: u64,
    pub histogram: Histogram,
}

#[derive(Debug, Default)]
pub struct IoStats {
    areas: RwLock<HashMap<Area, Arc<AreaCounters>>>,
}

#[derive(Debug, Default)]
pub(super) struct AreaCounters([OperationCounters; FileIoKind::ALL.len()]);

impl IoStats {
    pub(super) fn area(&self, area: Area) -> Arc<AreaCounters> {
        if let Some(counters) = self.areas.read().get(&area) {
            return counters.clone();
        }
        self.areas.write().entry(area).or_default().clone()
    }

    /// Returns all nonzero counters.
    pub fn snapshot(&self) -> Vec<IoCount> {
        let areas = self.areas.read();
        let lines = areas.iter().flat_map(|(area, counters)| {
            let line = |kind: FileIoKind| line(&counters.0[kind as usize], area.clone(), kind);
            FileIoKind::ALL.into_iter().map(line)
        });
        lines.filter(|line| line.operations > 0).collect()
    }
}

impl AreaCounters {
    pub fn count(&self, kind: FileIoKind, bytes: usize, took: Duration) {
        self.0[kind as usize].count(bytes, took);
    }
}

fn line(counters: &OperationCounters, area: Area, kind: FileIoKind) -> IoCount {
    let OperationCounts { operations, bytes, nanoseconds, histogram } = counters.read();
    IoCount { area, kind, operations, bytes, microseconds: nanoseconds / 1000, histogram }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_contains_the_sums_of_all_counts() {
        let stats = IoStats::default();
        for _ in 0..3 {
            stats.area(Area { root: "pg".to_owned(), database: Some(5) }).count(
                FileIoKind::WalWrite,
                100,
                Duration::from_micros(7),
            );
        }
        let snapshot = stats.snapshot();
        assert_eq!(snapshot.len(), 1);
        let line = &snapshot[0];
        assert_eq!((line.operations, line.bytes, line.microseconds, line.histogram[3]), (3, 300, 21, 3));
    }
}
