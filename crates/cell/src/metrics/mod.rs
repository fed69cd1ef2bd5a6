//! The cell's counters by database, in Prometheus format.
//!
//! Counters never decrease while the daemon runs. Help texts contain Oracle's name of the statistic where one exists
//! (for example "cell physical IO bytes eligible for predicate offload").

mod files;
mod http;
mod memory;

use std::sync::Arc;

use cellar_format::postgres::Oid;
use cellar_format::stats::ScanStats;
use cellar_format::wire::{FILE_IO_BUCKETS, FileIoCount};
use cellar_storage::Volume;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};

use crate::fuse::IoStats;
use crate::state::MemoryBudget;
use files::FileMetrics;
pub use http::MetricsServer;
use memory::MemoryMetrics;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Database {
    database: Oid,
}

type ByDatabase = Family<Database, Counter>;

macro_rules! metrics {
    ($($field:ident, $name:literal, $unit:expr, $help:literal, |$stats:ident| $value:expr;)*) => {
        pub struct Metrics {
            registry: Registry,
            io_stats: Arc<IoStats>,
            scans: ByDatabase,
            /// Number and statistics of the scans of all databases.
            totals: Mutex<(u64, ScanStats)>,
            $($field: ByDatabase,)*
        }

        impl Metrics {
            pub fn new(storage: Option<(Arc<Volume>, Arc<MemoryBudget>)>, io_stats: Arc<IoStats>) -> Arc<Self> {
                let mut registry = Registry::with_prefix("cellar");
                let scans = ByDatabase::default();
                registry.register("smart_scans", "Smart Scans opened", scans.clone());
                $(
                    let $field = ByDatabase::default();
                    match $unit {
                        Some(unit) => registry.register_with_unit($name, $help, unit, $field.clone()),
                        None => registry.register($name, $help, $field.clone()),
                    }
                )*
                if let Some((volume, budget)) = storage {
                    registry.register_collector(Box::new(MemoryMetrics { volume: volume.clone(), budget }));
                    registry.register_collector(Box::new(FileMetrics { volume, io_stats: io_stats.clone() }));
                }
                Arc::new(Self { registry, io_stats, scans, totals: Mutex::default(), $($field,)* })
            }

            pub fn range_scanned(&self, database: Oid, stats: &ScanStats) {
                self.totals.lock().1.add(stats);
                let label = Database { database };
                $(
                    let $stats = stats;
                    self.$field.get_or_create(&label).inc_by($value);
                )*
            }
        }
    };
}

const BYTES: Option<Unit> = Some(Unit::Bytes);
const COUNT: Option<Unit> = None;

metrics! {
    eligible, "smart_scan_eligible", BYTES, "cell physical IO bytes eligible for predicate offload",
        |stats| stats.eligible_bytes;
    saved, "smart_scan_saved_by_storage_index", BYTES, "cell physical IO bytes saved by storage index",
        |stats| stats.saved_by_storage_index_bytes;
    returned, "smart_scan_returned", BYTES, "cell physical IO interconnect bytes returned by smart scan, without passed-through blocks",
        |stats| stats.returned_bytes;
    uncompressed, "smart_scan_uncompressed", BYTES, "cell IO uncompressed bytes",
        |stats| stats.uncompressed_bytes;
    passthru, "smart_scan_passthru", BYTES, "cell num bytes in passthru during predicate offload",
        |stats| stats.passthru_bytes;
    disk_read, "smart_scan_disk_read", BYTES, "Bytes read from cell disks for Smart Scans",
        |stats| stats.disk_read_bytes;
    disk_read_requests, "smart_scan_disk_read_requests", COUNT, "Read requests to cell disks for Smart Scans",
        |stats| stats.disk_read_requests;
    cache_hit, "smart_scan_cache_hit", BYTES, "Bytes that Smart Scans found in the cell's page cache",
        |stats| stats.cache_hit_bytes;
    helped, "smart_scan_blocks_helped_by_commit_cache", COUNT, "cell blocks helped by commit cache",
        |stats| stats.blocks_helped_by_commit_cache;
    queries, "smart_scan_commit_cache_queries", COUNT, "cell commit cache queries",
        |stats| stats.commit_cache_queries;
    found, "smart_scan_commit_cache_found", COUNT, "cell transactions found in commit cache",
        |stats| stats.found_in_commit_cache;
    rows_scanned, "smart_scan_rows_scanned", COUNT, "Rows that Smart Scans examined",
        |stats| stats.rows_scanned;
    rows_returned, "smart_scan_rows_returned", COUNT, "Rows that Smart Scans returned",
        |stats| stats.rows_returned;
    cpu, "smart_scan_cpu_microseconds", COUNT, "CPU time of the cell for Smart Scans",
        |stats| stats.cell_cpu_ns / 1000;
}

impl Metrics {
    pub fn scan_opened(&self, database: Oid) {
        self.totals.lock().0 += 1;
        self.scans.get_or_create(&Database { database }).inc();
    }

    /// Returns the number and the statistics of all scans.
    pub fn totals(&self) -> (u64, ScanStats) {
        *self.totals.lock()
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

    /// Renders all metrics in the OpenMetrics text format.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_a_range_are_counted_for_its_database() {
        let metrics = Metrics::new(None, Arc::default());
        let stats = ScanStats { eligible_bytes: 8192, rows_returned: 3, ..ScanStats::default() };
        metrics.range_scanned(16384, &stats);
        metrics.range_scanned(16384, &stats);
        let text = metrics.render().unwrap();
        assert!(text.contains("cellar_smart_scan_eligible_bytes_total{database=\"16384\"} 16384\n"), "{text}");
        assert!(text.contains("cellar_smart_scan_rows_returned_total{database=\"16384\"} 6\n"), "{text}");
    }
}
