//! The names and the values of metrics.

use super::*;
use crate::config::Config;
use crate::fixtures;
use crate::state::MemoryKind;
use family::{MetricType, Value};
use std::collections::{BTreeMap, BTreeSet};

fn metrics() -> (tempfile::TempDir, Arc<MemoryBudget>, Arc<Metrics>) {
    let folder = tempfile::tempdir().unwrap();
    let volume = fixtures::volume(folder.path(), 1 << 20);
    let config = Config::parse("name = \"c1\"\nmount = \"/srv\"\n[disk_group]\ndisks = [\"/d\"]\n").unwrap();
    let budget = Arc::new(MemoryBudget::new(1 << 20, 8 << 20));
    let metrics = Metrics::new(ProcessMetrics::new(&config), volume, budget.clone(), Arc::default(), Arc::default());
    (folder, budget, metrics)
}

#[test]
fn statistics_of_a_range_are_counted_for_its_database() {
    let (_folder, _, metrics) = metrics();
    let stats = ScanStats { eligible_bytes: 8192, rows_returned: 3, ..ScanStats::default() };
    metrics.scan_opened(16384);
    metrics.range_scanned(16384, &stats);
    metrics.range_scanned(16384, &stats);
    metrics.range_scanned(5, &stats);
    let text = metrics.text();
    assert!(text.contains("cellar_smart_scan_eligible_bytes_total{database=\"16384\"} 16384\n"), "{text}");
    assert!(text.contains("cellar_smart_scan_rows_returned_total{database=\"5\"} 3\n"), "{text}");
    let (scans, totals) = metrics.totals();
    assert_eq!((scans, totals.eligible_bytes), (1, 3 * 8192));
}

#[test]
fn every_kind_of_memory_has_its_use_and_its_limit() {
    let (_folder, budget, metrics) = metrics();
    budget.account(MemoryKind::Groups).add(4711);
    let text = metrics.text();
    assert!(text.contains("cellar_memory_used_bytes{kind=\"groups\"} 4711\n"), "{text}");
    assert!(text.contains("cellar_memory_limit_bytes{kind=\"groups\"} 2097152\n"), "{text}");
    for kind in MemoryKind::ALL {
        assert!(text.contains(&format!("cellar_memory_limit_bytes{{kind=\"{}\"}}", kind.name())), "{text}");
    }
}

#[test]
fn names_follow_the_conventions_of_prometheus() {
    let (_folder, _, metrics) = metrics();
    let mut seen = BTreeSet::new();
    for family in metrics.families() {
        let name = family.name;
        assert!(seen.insert(name), "{name} occurs twice");
        assert!(name.starts_with("cellar_"), "{name}");
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'), "{name}");
        assert_eq!(name.ends_with("_total"), family.metric_type == MetricType::Counter, "{name}");
        assert!(family.metric_type != MetricType::Histogram || name.ends_with("_seconds"), "{name}");
        for suffix in ["_count", "_sum", "_bucket"] {
            assert!(!name.ends_with(suffix), "{name}");
        }
        for unit in ["microseconds", "milliseconds", "us", "ms", "kib", "mib", "pages", "percent"] {
            assert!(!name.split('_').any(|word| word == unit), "{name}: the base units are seconds and bytes");
        }
        assert!(!family.help.is_empty() && !family.help.ends_with('.'), "{name}: {}", family.help);
        for sample in &family.samples {
            let is_histogram = matches!(sample.value, Value::Histogram(_));
            assert_eq!(is_histogram, family.metric_type == MetricType::Histogram, "{name}");
        }
    }
}

/// Each metric has a row `name | type | text` in the reference, and each row names a metric.
#[test]
fn the_reference_lists_exactly_the_metrics_with_their_types() {
    let (_folder, _, metrics) = metrics();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `cellar_"));
    let documented: BTreeMap<String, String> = rows
        .map(|row| {
            let mut cells = row.split('|').map(str::trim);
            let name = format!("cellar_{}", cells.next().unwrap().trim_end_matches('`'));
            (name, cells.next().unwrap().to_owned())
        })
        .collect();
    let families = metrics.families();
    let existing: BTreeMap<String, String> =
        families.iter().map(|family| (family.name.to_owned(), family.metric_type.name().to_owned())).collect();
    assert_eq!(documented, existing);
}
