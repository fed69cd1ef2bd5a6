//! The cell's metrics: counters and gauges under stable names, as text for Prometheus and as JSON.
//!
//! Counters never decrease while the daemon runs. Each [`Source`] owns its counters; reading the metrics reads them.

mod alerts;
pub mod family;
mod files;
mod iorm;
mod json;
mod memory;
mod process;
mod scans;
mod storage;
mod text;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use cellar_format::postgres::Oid;
use cellar_format::stats::ScanStats;
use cellar_format::wire::{FILE_IO_BUCKETS, FileIoCount, FileTypeIoCount};
use cellar_storage::Volume;
use cellar_storage::iorm::Iorm;

use crate::fuse::{IoCount, IoStats};
use crate::state::MemoryBudget;
pub use alerts::OpenAlerts;
use family::Family;
use files::FileMetrics;
use iorm::IormMetrics;
pub use json::SCHEMA_VERSION;
use memory::MemoryMetrics;
pub use process::ProcessMetrics;
use scans::ScanCounters;
use storage::StorageMetrics;
pub use text::{CONTENT_TYPE, text};

/// A part of the cell that has metrics.
trait Source: Send + Sync {
    /// Returns the present values of all metrics of this source. The names do not depend on the values.
    fn families(&self) -> Vec<Family>;
}

pub struct Metrics {
    io_stats: Arc<IoStats>,
    scans: Arc<ScanCounters>,
    alerts: Arc<OpenAlerts>,
    sources: Vec<Arc<dyn Source>>,
}

impl Metrics {
    pub fn new(
        process: ProcessMetrics,
        volume: Arc<Volume>,
        budget: Arc<MemoryBudget>,
        io_stats: Arc<IoStats>,
        iorm: Arc<Iorm>,
    ) -> Arc<Self> {
        let (scans, alerts) = (Arc::new(ScanCounters::default()), Arc::new(OpenAlerts::default()));
        let sources: Vec<Arc<dyn Source>> = vec![
            Arc::new(process),
            scans.clone(),
            Arc::new(FileMetrics { io_stats: io_stats.clone() }),
            Arc::new(MemoryMetrics { volume: volume.clone(), budget }),
            Arc::new(StorageMetrics { volume: volume.clone() }),
            Arc::new(IormMetrics { iorm, volume }),
            alerts.clone(),
        ];
        Arc::new(Self { io_stats, scans, alerts, sources })
    }

    /// Returns the counts of open alerts, which their owner sets.
    pub fn open_alerts(&self) -> Arc<OpenAlerts> {
        self.alerts.clone()
    }

    pub fn scan_opened(&self, database: Oid) {
        self.scans.scan_opened(database);
    }

    pub fn range_scanned(&self, database: Oid, stats: &ScanStats) {
        self.scans.range_scanned(database, stats);
    }

    /// Returns the number and the statistics of all scans.
    pub fn totals(&self) -> (u64, ScanStats) {
        self.scans.totals()
    }

    /// Returns the file service's counters below `roots`, by database and kind.
    pub fn file_io(&self, roots: &[String]) -> Vec<FileIoCount> {
        let mut counts: Vec<FileIoCount> = Vec::new();
        for line in self.io_stats.snapshot().into_iter().filter(|line| roots.contains(&line.area.root)) {
            let (database, kind) = (line.area.database.unwrap_or(0), line.kind as u32);
            let index = counts.iter().position(|count| count.database == database && count.kind == kind);
            let count = match index {
                Some(index) => &mut counts[index],
                None => {
                    let histogram = [0; FILE_IO_BUCKETS];
                    counts.push(FileIoCount { database, kind, operations: 0, bytes: 0, microseconds: 0, histogram });
                    counts.last_mut().expect("just pushed")
                }
            };
            count.operations += line.operations;
            count.bytes += line.bytes;
            count.microseconds += line.microseconds;
            count.histogram.iter_mut().zip(line.histogram).for_each(|(sum, waits)| *sum += waits);
        }
        counts
    }

    /// Returns the file service's counters below `roots`, by directory, database, file type and kind, and those of
    /// relations.
    pub fn file_type_io(&self, roots: &[String]) -> Vec<FileTypeIoCount> {
        let line = |count: IoCount| {
            let root = roots.iter().position(|root| *root == count.area.root)?;
            Some(FileTypeIoCount {
                root: root as u32,
                database: count.area.database.unwrap_or(0),
                file_type: count.file_type as u32,
                relation: count.relation.map_or(0, |relation| relation.number),
                kind: count.kind as u32,
                reserved: 0,
                generation: count.relation.map_or(0, |relation| relation.generation),
                operations: count.operations,
                bytes: count.bytes,
                microseconds: count.microseconds,
                histogram: count.histogram,
            })
        };
        // Relations first: operations between the two readings are in the counters of the file type at least.
        let relations = self.io_stats.relations();
        relations.into_iter().chain(self.io_stats.snapshot()).filter_map(line).collect()
    }

    pub fn families(&self) -> Vec<Family> {
        self.sources.iter().flat_map(|source| source.families()).collect()
    }

    /// Renders all metrics in Prometheus's text format.
    pub fn text(&self) -> String {
        text(&self.families())
    }

    /// Renders all metrics as JSON.
    pub fn json(&self) -> serde_json::Value {
        json::json(&self.families(), now_ms())
    }
}

/// Returns milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as u64)
}

#[cfg(test)]
mod tests;
