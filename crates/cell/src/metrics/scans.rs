//! Metrics of Smart Scans, by database.

use std::collections::BTreeMap;

use cellar_format::postgres::Oid;
use cellar_format::stats::ScanStats;
use parking_lot::Mutex;

use super::Source;
use super::family::{Family, Value};

/// Number and statistics of the Smart Scans of each database.
#[derive(Debug, Default)]
pub struct ScanCounters(Mutex<BTreeMap<Oid, (u64, ScanStats)>>);

impl ScanCounters {
    pub fn scan_opened(&self, database: Oid) {
        self.0.lock().entry(database).or_default().0 += 1;
    }

    pub fn range_scanned(&self, database: Oid, stats: &ScanStats) {
        self.0.lock().entry(database).or_default().1.add(stats);
    }

    /// Returns the number and the statistics of all scans.
    pub fn totals(&self) -> (u64, ScanStats) {
        let counters = self.0.lock();
        counters.values().fold((0, ScanStats::default()), |(scans, mut sum), (opened, stats)| {
            sum.add(stats);
            (scans + opened, sum)
        })
    }
}

type Statistic = (&'static str, &'static str, fn(&ScanStats) -> Value);

/// Help texts contain Oracle's name of the statistic where one exists.
const STATISTICS: [Statistic; 18] = [
    ("cellar_smart_scan_eligible_bytes_total", "cell physical IO bytes eligible for predicate offload", |stats| {
        Value::Integer(stats.eligible_bytes)
    }),
    (
        "cellar_smart_scan_saved_by_storage_index_bytes_total",
        "cell physical IO bytes saved by storage index",
        |stats| Value::Integer(stats.saved_by_storage_index_bytes),
    ),
    (
        "cellar_smart_scan_saved_by_columnar_cache_bytes_total",
        "cell physical IO bytes saved by columnar cache",
        |stats| Value::Integer(stats.saved_by_columnar_cache_bytes),
    ),
    (
        "cellar_smart_scan_returned_bytes_total",
        "cell physical IO interconnect bytes returned by smart scan, without passed-through blocks",
        |stats| Value::Integer(stats.returned_bytes),
    ),
    ("cellar_smart_scan_uncompressed_bytes_total", "cell IO uncompressed bytes", |stats| {
        Value::Integer(stats.uncompressed_bytes)
    }),
    ("cellar_smart_scan_passthru_bytes_total", "cell num bytes in passthru during predicate offload", |stats| {
        Value::Integer(stats.passthru_bytes)
    }),
    ("cellar_smart_scan_disk_read_bytes_total", "Bytes read from cell disks for Smart Scans", |stats| {
        Value::Integer(stats.disk_read_bytes)
    }),
    ("cellar_smart_scan_disk_read_requests_total", "Read requests to cell disks for Smart Scans", |stats| {
        Value::Integer(stats.disk_read_requests)
    }),
    ("cellar_smart_scan_flash_read_bytes_total", "Bytes read from the flash cache for Smart Scans", |stats| {
        Value::Integer(stats.flash_read_bytes)
    }),
    ("cellar_smart_scan_flash_read_requests_total", "Reads for Smart Scans that the flash cache answered", |stats| {
        Value::Integer(stats.flash_read_requests)
    }),
    ("cellar_smart_scan_cache_hit_bytes_total", "Bytes that Smart Scans found in the cell's page cache", |stats| {
        Value::Integer(stats.cache_hit_bytes)
    }),
    ("cellar_smart_scan_blocks_helped_by_commit_cache_total", "cell blocks helped by commit cache", |stats| {
        Value::Integer(stats.blocks_helped_by_commit_cache)
    }),
    ("cellar_smart_scan_commit_cache_queries_total", "cell commit cache queries", |stats| {
        Value::Integer(stats.commit_cache_queries)
    }),
    ("cellar_smart_scan_commit_cache_found_total", "cell transactions found in commit cache", |stats| {
        Value::Integer(stats.found_in_commit_cache)
    }),
    ("cellar_smart_scan_rows_scanned_total", "Rows that Smart Scans examined", |stats| {
        Value::Integer(stats.rows_scanned)
    }),
    ("cellar_smart_scan_rows_returned_total", "Rows that Smart Scans returned", |stats| {
        Value::Integer(stats.rows_returned)
    }),
    ("cellar_smart_scan_rows_aggregated_total", "Rows that Smart Scans aggregated into groups", |stats| {
        Value::Integer(stats.rows_aggregated)
    }),
    ("cellar_smart_scan_cpu_seconds_total", "CPU time of the cell for Smart Scans", |stats| {
        Value::Real(stats.cell_cpu_ns as f64 / 1e9)
    }),
];

impl Source for ScanCounters {
    fn families(&self) -> Vec<Family> {
        let counters = self.0.lock();
        let labels = |database: &Oid| vec![("database", database.to_string())];
        let opened = Family::counter("cellar_smart_scans_total", "Smart Scans opened")
            .with(counters.iter(), |(database, (opened, _))| (labels(database), Value::Integer(*opened)));
        let statistics = STATISTICS.iter().map(|(name, help, value)| {
            Family::counter(name, help).with(counters.iter(), |(database, (_, stats))| (labels(database), value(stats)))
        });
        [opened].into_iter().chain(statistics).collect()
    }
}
