//! The source of a cell's figures: its metrics, requested over its socket.

use super::reading::{CellIoCounters, CellState, DiskState, FlashCacheState, Reading, ScanCounters};
use crate::cell_source::{Metrics, label};
use cellar_cell::status::query_metrics;
use std::path::Path;

/// Adds the figures of a cell. File I/O and Smart Scans are added only if `with_io`: the server reports them for its files
/// alone, and the cell for all of its files.
pub fn read(socket: &Path, with_io: bool, reading: &mut Reading) -> Result<(), String> {
    let document = query_metrics(socket).map_err(|error| error.to_string())?;
    let metrics = Metrics(&document);
    let cell = socket.display().to_string();
    reading.cells.push(state(&metrics, reading.time));
    if with_io {
        reading.cell_io.extend(file_io(&metrics, &cell));
        reading.scans.extend(scans(&metrics, &cell));
    }
    Ok(())
}

fn state(metrics: &Metrics<'_>, now: f64) -> CellState {
    let info = metrics.samples("cellar_cell_info").next();
    let of_info = |name: &str| info.map(|sample| label(sample, name)).unwrap_or_default();
    let disks = metrics.samples("cellar_disk_size_bytes").map(|sample| {
        let path = label(sample, "disk");
        let of_disk = |name: &str| metrics.labelled(name, "disk", &path) as u64;
        let errors = metrics.samples("cellar_disk_errors_total");
        let errors = errors.filter(|sample| sample["labels"]["disk"] == *path && sample["labels"]["error"] == "io");
        DiskState {
            size_bytes: of_disk("cellar_disk_size_bytes"),
            available_bytes: of_disk("cellar_disk_available_bytes"),
            reserve_bytes: of_disk("cellar_disk_reserve_bytes"),
            reserve_free_bytes: of_disk("cellar_disk_reserve_free_bytes"),
            io_errors: errors.filter_map(|sample| sample["value"].as_u64()).sum(),
            path,
        }
    });
    let has_flash_cache = metrics.samples("cellar_flash_cache_online").next().is_some();
    let sum = |name: &str| metrics.samples(name).filter_map(|sample| sample["value"].as_f64()).sum::<f64>();
    CellState {
        name: of_info("name"),
        mount: of_info("mount"),
        version: of_info("version"),
        uptime_seconds: now - metrics.value("cellar_start_time_seconds"),
        disks: disks.collect(),
        cache_used_bytes: metrics.value("cellar_page_cache_used_bytes") as u64,
        cache_capacity_bytes: metrics.value("cellar_page_cache_capacity_bytes") as u64,
        memory_used_bytes: metrics.value("cellar_memory_used_bytes") as u64,
        memory_limit_bytes: metrics.value("cellar_memory_limit_bytes") as u64,
        redo_log_bytes: metrics.value("cellar_redo_log_bytes") as u64,
        checkpoints_queued: metrics.value("cellar_checkpoints_queued") as u64,
        flash_cache: has_flash_cache.then(|| FlashCacheState {
            is_online: metrics.value("cellar_flash_cache_online") == 1.0,
            capacity_bytes: metrics.value("cellar_flash_cache_capacity_bytes") as u64,
            used_bytes: metrics.value("cellar_flash_cache_used_bytes") as u64,
            hits: metrics.value("cellar_flash_cache_hits_total") as u64,
            misses: metrics.value("cellar_flash_cache_misses_total") as u64,
            hit_percent: None,
        }),
        iorm_requests: sum("cellar_iorm_requests_total") as u64,
        iorm_wait_seconds: sum("cellar_iorm_wait_seconds_total"),
        iorm_wait_per_request_seconds: None,
    }
}

fn file_io(metrics: &Metrics<'_>, cell: &str) -> Vec<CellIoCounters> {
    let times = metrics.samples("cellar_file_operation_seconds").zip(metrics.samples("cellar_file_bytes_total"));
    let counters = times.map(|(time, bytes)| {
        let count = time["count"].as_u64().unwrap_or(0);
        let cumulative = time["buckets"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut sum = 0;
        let mut buckets: Vec<u64> = Vec::with_capacity(cumulative.len() + 1);
        for bound in cumulative.iter().map(|bucket| bucket[1].as_u64().unwrap_or(0)).chain([count]) {
            buckets.push(bound.saturating_sub(sum));
            sum = bound;
        }
        CellIoCounters {
            cell: cell.to_owned(),
            database: label(time, "database").parse().ok(),
            class: None,
            relation: None,
            kind: label(time, "kind").replace("single-block", "single block"),
            operations: count,
            bytes: bytes["value"].as_u64().unwrap_or(0),
            seconds: time["sum"].as_f64().unwrap_or(0.0),
            buckets,
        }
    });
    counters.collect()
}

fn scans(metrics: &Metrics<'_>, cell: &str) -> Vec<ScanCounters> {
    let opened = metrics.samples("cellar_smart_scans_total").map(|sample| {
        let database = label(sample, "database");
        let of = |name: &str| metrics.labelled(name, "database", &database) as u64;
        ScanCounters {
            cell: cell.to_owned(),
            scans: sample["value"].as_u64(),
            eligible_bytes: of("cellar_smart_scan_eligible_bytes_total"),
            returned_bytes: of("cellar_smart_scan_returned_bytes_total"),
            database: database.parse().unwrap_or(0),
        }
    });
    opened.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cumulative_buckets_become_counts_of_single_buckets() {
        let labels = json!({ "root": "pg", "database": "5", "kind": "single-block read" });
        let document = json!({ "metrics": [
            { "name": "cellar_file_operation_seconds",
              "samples": [{ "labels": labels, "count": 7, "sum": 0.5, "buckets": [[1e-6, 1], [2e-6, 1], [4e-6, 3]] }] },
            { "name": "cellar_file_bytes_total", "samples": [{ "labels": labels, "value": 57344 }] },
        ]});
        let counters = file_io(&Metrics(&document), "c");
        assert_eq!(counters[0].buckets, [1, 0, 2, 4]);
        assert_eq!((counters[0].database, counters[0].operations, counters[0].bytes), (Some(5), 7, 57344));
        assert_eq!(counters[0].kind, "single block read");
    }
}
