//! Metrics of the volume: cell disks, page cache, redo logs, metadata transactions.

use std::collections::BTreeMap;
use std::sync::Arc;

use cellar_storage::disk::{Disk, DiskIoCount, ModelStatus};
use cellar_storage::{
    ColumnarStats, DiskMode, DiskSpace, FlashCacheMode, FlashLogStats, FlashStats, GroupDisk, OperationCounts,
    ScrubReport, ScrubState, Volume, WriteBackStats,
};

use super::Source;
use super::family::{Family, Histogram, Labels, Value};

pub struct StorageMetrics {
    pub volume: Arc<Volume>,
}

impl Source for StorageMetrics {
    fn families(&self) -> Vec<Family> {
        let mut families = self.spaces();
        families.extend(self.disk_io());
        families.extend(self.flash_disk_io());
        families.extend(self.disk_models());
        families.extend(self.copies());
        families.extend(self.scrub());
        families.extend(self.page_cache());
        families.extend(self.flash_cache());
        families.extend(self.write_back());
        families.extend(self.columnar_cache());
        families.extend(self.flash_log());
        families.extend(self.backlog());
        families
    }
}

/// Name, help text and value of a metric without labels.
type Figure<S> = (&'static str, &'static str, fn(&S) -> u64);

/// Returns the metrics of what may be absent: they have no samples without `stats`.
fn figures<S>(stats: &[S], gauges: &[Figure<S>], counters: &[Figure<S>]) -> Vec<Family> {
    let with = |family: Family, figure: fn(&S) -> u64| {
        family.with(stats, |stats| (Labels::new(), Value::Integer(figure(stats))))
    };
    let gauges = gauges.iter().map(|(name, help, figure)| with(Family::gauge(name, help), *figure));
    let counters = counters.iter().map(|(name, help, figure)| with(Family::counter(name, help), *figure));
    gauges.chain(counters).collect()
}

/// The counters of the operations of disks, with the labels `disk` and `operation`.
fn io_counts<'a>(disks: impl Iterator<Item = &'a Arc<dyn Disk>>) -> Vec<(Labels, DiskIoCount)> {
    let of_disk = |disk: &Arc<dyn Disk>| {
        let path = disk.path().display().to_string();
        let counts = disk.io_stats()?.counts();
        Some(
            counts.map(|count| (vec![("disk", path.clone()), ("operation", count.operation.name().to_owned())], count)),
        )
    };
    disks.filter_map(of_disk).flatten().collect()
}

/// Fills the families of operations, bytes, durations and errors.
fn io_families(
    [operations, bytes, durations, mut errors]: [Family; 4],
    counts: &[(Labels, DiskIoCount)],
) -> Vec<Family> {
    let latency = |count: &DiskIoCount| Histogram {
        buckets: count.histogram.to_vec(),
        sum_seconds: count.nanoseconds as f64 / 1e9,
    };
    for (labels, count) in counts {
        for (error, value) in [("io", count.io_errors), ("no space", count.no_space_errors)] {
            let labels = labels.iter().cloned().chain([("error", error.to_owned())]).collect();
            errors.add(labels, Value::Integer(value));
        }
    }
    vec![
        operations.with(counts, |(labels, count)| (labels.clone(), Value::Integer(count.operations))),
        bytes.with(counts, |(labels, count)| (labels.clone(), Value::Integer(count.bytes))),
        durations.with(counts, |(labels, count)| (labels.clone(), Value::Histogram(latency(count)))),
        errors,
    ]
}

impl StorageMetrics {
    fn spaces(&self) -> Vec<Family> {
        let disks = self.volume.disk_spaces();
        let of_disk = |value: fn(&DiskSpace) -> u64| {
            move |disk: &DiskSpace| (vec![("disk", disk.path.display().to_string())], Value::Integer(value(disk)))
        };
        vec![
            Family::gauge("cellar_disk_size_bytes", "Size of the filesystem of a cell disk")
                .with(&disks, of_disk(|disk| disk.total)),
            Family::gauge("cellar_disk_available_bytes", "Free space of a cell disk beyond its reserve")
                .with(&disks, of_disk(|disk| disk.available)),
            Family::gauge("cellar_disk_reserve_bytes", "Size of the reserve of a cell disk")
                .with(&disks, of_disk(|disk| disk.reserve)),
            Family::gauge("cellar_disk_reserve_free_bytes", "Free part of the reserve of a cell disk")
                .with(&disks, of_disk(|disk| disk.reserve_free)),
        ]
    }

    fn disk_io(&self) -> Vec<Family> {
        let counts = io_counts(self.volume.member_disks());
        let families = [
            Family::counter("cellar_disk_operations_total", "Operations on files of cell disks, failed ones included"),
            Family::counter("cellar_disk_bytes_total", "Bytes read from and written to cell disks"),
            Family::histogram("cellar_disk_operation_seconds", "Durations of operations on cell disks"),
            Family::counter(
                "cellar_disk_errors_total",
                "Operations on cell disks that failed, by error: \"no space\" for a full disk, \"io\" for any other",
            ),
        ];
        let mut families = io_families(families, &counts);
        families.extend([
            Family::counter(
                "cellar_disk_large_operations_total",
                "Operations on cell disks that moved more than 128 KiB",
            )
            .with(&counts, |(labels, count)| (labels.clone(), Value::Integer(count.large.operations))),
            Family::counter("cellar_disk_large_bytes_total", "Bytes of operations that moved more than 128 KiB")
                .with(&counts, |(labels, count)| (labels.clone(), Value::Integer(count.large.bytes))),
            Family::counter("cellar_disk_large_seconds_total", "Durations of operations that moved more than 128 KiB")
                .with(&counts, |(labels, count)| (labels.clone(), Value::Real(count.large.nanoseconds as f64 / 1e9))),
        ]);
        families
    }

    fn flash_disk_io(&self) -> Vec<Family> {
        let families = [
            Family::counter("cellar_flash_disk_operations_total", "Operations on flash disks, failed ones included"),
            Family::counter("cellar_flash_disk_bytes_total", "Bytes read from and written to flash disks"),
            Family::histogram("cellar_flash_disk_operation_seconds", "Durations of operations on flash disks"),
            Family::counter(
                "cellar_flash_disk_errors_total",
                "Operations on flash disks that failed, by error: \"no space\" for a full disk, \"io\" for any other",
            ),
        ];
        io_families(families, &io_counts(self.volume.flash_disks().iter()))
    }

    fn disk_models(&self) -> Vec<Family> {
        let models: Vec<(String, ModelStatus)> = self
            .volume
            .member_disks()
            .chain(self.volume.flash_disks())
            .filter_map(|disk| Some((disk.path().display().to_string(), disk.model_status()?)))
            .collect();
        let labels = |disk: &str, more: &[(&'static str, &str)]| -> Labels {
            let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
            [("disk", disk.to_owned())].into_iter().chain(more).collect()
        };
        let latency = |counts: &OperationCounts| {
            let sum_seconds = counts.nanoseconds as f64 / 1e9;
            Value::Histogram(Histogram { buckets: counts.histogram.to_vec(), sum_seconds })
        };
        let mut info = Family::gauge(
            "cellar_disk_model_time_scale_ratio",
            "Real seconds per second of the device model of a cell disk or a flash disk, by name of the model",
        );
        let mut queue =
            Family::gauge("cellar_disk_model_queued_requests", "Requests that the device model has not completed");
        let mut busy = Family::counter(
            "cellar_disk_model_busy_seconds_total",
            "Model time during which the mechanics, or all flash dies together, worked",
        );
        let mut requests = Family::histogram(
            "cellar_disk_model_request_seconds",
            "Durations of requests to the device model in model time, with the time in the queue",
        );
        let mut programmed = Family::counter(
            "cellar_disk_model_programmed_bytes_total",
            "Bytes that modelled flash programmed, by cause: \"request\" or \"collection\" of garbage",
        );
        let mut erases = Family::counter(
            "cellar_disk_model_erases_total",
            "Blocks that garbage collection of modelled flash erased: in the \"foreground\", or \"idle\"",
        );
        for (disk, status) in &models {
            let counts = &status.counts;
            info.add(labels(disk, &[("model", &status.model)]), Value::Real(status.time_scale));
            queue.add(labels(disk, &[]), Value::Integer(counts.queue));
            busy.add(labels(disk, &[]), Value::Real(counts.busy_ns as f64 / 1e9));
            requests.add(labels(disk, &[("operation", "read")]), latency(&status.read_latency));
            requests.add(labels(disk, &[("operation", "write")]), latency(&status.write_latency));
            programmed.add(labels(disk, &[("cause", "request")]), Value::Integer(counts.programmed_bytes));
            programmed.add(labels(disk, &[("cause", "collection")]), Value::Integer(counts.collected_bytes));
            erases.add(labels(disk, &[("when", "foreground")]), Value::Integer(counts.foreground_erases));
            erases.add(labels(disk, &[("when", "idle")]), Value::Integer(counts.idle_erases));
        }
        vec![info, queue, busy, requests, programmed, erases]
    }

    fn copies(&self) -> Vec<Family> {
        let status = self.volume.group_status();
        // A disk may replace an offline one at its path: then the path is not online until the other one has left.
        let mut is_online: BTreeMap<String, bool> = BTreeMap::new();
        for GroupDisk { path, mode, .. } in &status.disks {
            *is_online.entry(path.display().to_string()).or_insert(true) &= *mode == DiskMode::Online;
        }
        let is_online: Vec<(String, bool)> = is_online.into_iter().collect();
        let online =
            |(path, is_online): &(String, bool)| (vec![("disk", path.clone())], Value::Integer(u64::from(*is_online)));
        vec![
            Family::gauge("cellar_disk_online", "1 if the cell disk has all data of its copies, 0 if it is offline")
                .with(&is_online, online),
            Family::gauge("cellar_write_intents", "Regions of 1 MiB whose copies may differ after a crash")
                .value(Value::Integer(status.intents)),
            Family::counter("cellar_reads_from_other_copy_total", "Reads that another copy answered")
                .value(Value::Integer(status.reads_from_other_copy)),
            Family::counter(
                "cellar_reads_past_cap_total",
                "Reads that went to another copy, too, because a disk was slow",
            )
            .value(Value::Integer(status.reads_past_cap)),
            Family::counter("cellar_repairs_total", "Damaged ranges that were rewritten from another copy")
                .value(Value::Integer(status.repairs)),
            Family::counter("cellar_resync_read_bytes_total", "Bytes read to make copies equal")
                .value(Value::Integer(status.resync_read_bytes)),
            Family::counter("cellar_resync_written_bytes_total", "Bytes written to make copies equal")
                .value(Value::Integer(status.resync_written_bytes)),
        ]
    }

    fn scrub(&self) -> Vec<Family> {
        let scrub = self.volume.scrub_report();
        let value = |value: fn(&ScrubReport) -> u64| Value::Integer(scrub.as_ref().map_or(0, value));
        vec![
            Family::gauge("cellar_scrub_running", "1 while a scrub runs")
                .value(value(|scrub| u64::from(scrub.state == ScrubState::Running))),
            Family::gauge("cellar_scrub_read_bytes", "Bytes that the present or the last scrub has read")
                .value(value(|scrub| scrub.bytes_read)),
            Family::gauge("cellar_scrub_estimated_bytes", "Bytes that the scrub reads, as estimated at its start")
                .value(value(|scrub| scrub.bytes_total)),
            Family::gauge("cellar_scrub_unrepaired", "Damaged places that the scrub found and could not repair")
                .value(value(|scrub| scrub.unrepaired)),
            Family::gauge("cellar_scrub_end_timestamp_seconds", "When the last scrub ended, in seconds since 1970")
                .value(value(|scrub| scrub.ended.map_or(0, |ended| ended as u64 / 1_000_000_000))),
        ]
    }

    fn page_cache(&self) -> Vec<Family> {
        let cache = self.volume.cache_stats();
        vec![
            Family::counter("cellar_page_cache_hits_total", "Regions that scans found in the page cache")
                .value(Value::Integer(cache.hits)),
            Family::counter("cellar_page_cache_misses_total", "Regions that scans had to load")
                .value(Value::Integer(cache.misses)),
            Family::counter("cellar_page_cache_evictions_total", "Regions that were evicted for other regions")
                .value(Value::Integer(cache.evictions)),
            Family::gauge("cellar_page_cache_capacity_bytes", "Size of the page cache")
                .value(Value::Integer(cache.capacity_bytes)),
            Family::gauge("cellar_page_cache_used_bytes", "Bytes of the page cache in use")
                .value(Value::Integer(cache.used_bytes)),
        ]
    }

    fn flash_cache(&self) -> Vec<Family> {
        let stats: Vec<FlashStats> = self.volume.flash_stats().into_iter().collect();
        let gauges: [Figure<FlashStats>; 4] = [
            ("cellar_flash_cache_online", "1 if the flash cache is used, 0 after a flash disk failed", |stats| {
                u64::from(stats.is_on)
            }),
            ("cellar_flash_cache_capacity_bytes", "Size of the flash cache", |stats| stats.capacity_bytes),
            ("cellar_flash_cache_used_bytes", "Bytes of files in the flash cache", |stats| stats.used_bytes),
            (
                "cellar_flash_cache_keep_used_bytes",
                "Bytes of files with the setting KEEP in the flash cache",
                |stats| stats.keep_used_bytes,
            ),
        ];
        let counters: [Figure<FlashStats>; 23] = [
            ("cellar_flash_cache_hits_total", "Reads that the flash cache answered", |stats| stats.read_hits),
            ("cellar_flash_cache_hit_bytes_total", "Bytes of reads that the flash cache answered", |stats| {
                stats.read_hit_bytes
            }),
            ("cellar_flash_cache_large_hits_total", "Hits of reads of more than 128 KiB", |stats| stats.large_hits),
            ("cellar_flash_cache_large_hit_bytes_total", "Bytes of hits of reads of more than 128 KiB", |stats| {
                stats.large_hit_bytes
            }),
            ("cellar_flash_cache_keep_hits_total", "Hits of files with the setting KEEP", |stats| stats.keep_hits),
            ("cellar_flash_cache_keep_hit_bytes_total", "Bytes of hits of files with the setting KEEP", |stats| {
                stats.keep_hit_bytes
            }),
            ("cellar_flash_cache_misses_total", "Reads that the flash cache did not answer", |stats| stats.read_misses),
            ("cellar_flash_cache_miss_bytes_total", "Bytes of reads that the flash cache did not answer", |stats| {
                stats.read_miss_bytes
            }),
            ("cellar_flash_cache_large_misses_total", "Misses of reads of more than 128 KiB", |stats| {
                stats.large_misses
            }),
            ("cellar_flash_cache_large_miss_bytes_total", "Bytes of misses of reads of more than 128 KiB", |stats| {
                stats.large_miss_bytes
            }),
            ("cellar_flash_cache_keep_misses_total", "Misses of files with the setting KEEP", |stats| {
                stats.keep_misses
            }),
            ("cellar_flash_cache_skips_total", "Misses that were not to be cached", |stats| stats.read_skips),
            ("cellar_flash_cache_skip_bytes_total", "Bytes of misses that were not to be cached", |stats| {
                stats.read_skip_bytes
            }),
            ("cellar_flash_cache_setting_skips_total", "Misses of files with the setting NONE", |stats| {
                stats.setting_skips
            }),
            ("cellar_flash_cache_limit_skips_total", "Misses of databases at their limits in the plan", |stats| {
                stats.limit_skips
            }),
            ("cellar_flash_cache_populated_requests_total", "Fills of the cache after reads", |stats| {
                stats.populated_requests
            }),
            ("cellar_flash_cache_populated_bytes_total", "Bytes that were cached after a read", |stats| {
                stats.populated_bytes
            }),
            ("cellar_flash_cache_rewritten_bytes_total", "Bytes that were cached again after a write", |stats| {
                stats.rewritten_bytes
            }),
            ("cellar_flash_cache_dropped_fills_total", "Reads that were not cached because too many waited", |stats| {
                stats.dropped_fills
            }),
            ("cellar_flash_cache_intents_total", "Changes of files that waited for a record in flash", |stats| {
                stats.intents
            }),
            ("cellar_flash_cache_evicted_segments_total", "Segments that were evicted", |stats| stats.evicted_segments),
            ("cellar_flash_cache_kept_bytes_total", "Bytes that an eviction copied because they are in use", |stats| {
                stats.kept_bytes
            }),
            ("cellar_flash_cache_checkpoints_total", "Checkpoints of the index of the flash cache", |stats| {
                stats.checkpoints
            }),
        ];
        figures(&stats, &gauges, &counters)
    }

    fn columnar_cache(&self) -> Vec<Family> {
        let stats: Vec<ColumnarStats> = self.volume.columnar_stats().into_iter().collect();
        let gauges: [Figure<ColumnarStats>; 5] = [
            ("cellar_columnar_cache_online", "1 if the columnar cache is used, 0 after a flash disk failed", |stats| {
                u64::from(stats.is_on)
            }),
            ("cellar_columnar_cache_capacity_bytes", "Size of the columnar cache", |stats| stats.capacity_bytes),
            ("cellar_columnar_cache_used_bytes", "Bytes of units in the columnar cache", |stats| stats.used_bytes),
            ("cellar_columnar_cache_keep_bytes", "The part of files with KEEP", |stats| stats.keep_bytes),
            ("cellar_columnar_cache_units", "Units in the columnar cache", |stats| stats.units),
        ];
        let counters: [Figure<ColumnarStats>; 6] = [
            ("cellar_columnar_cache_hits_total", "Units that scans have opened", |stats| stats.hits),
            ("cellar_columnar_cache_populated_units_total", "Units that were stored", |stats| stats.populated_units),
            ("cellar_columnar_cache_populated_bytes_total", "Bytes of units that were stored", |stats| {
                stats.populated_bytes
            }),
            (
                "cellar_columnar_cache_invalidated_units_total",
                "Units dropped because their pages had changed",
                |stats| stats.invalidated_units,
            ),
            ("cellar_columnar_cache_evicted_units_total", "Units dropped for others", |stats| stats.evicted_units),
            ("cellar_columnar_cache_rejected_units_total", "Units that were encoded and not stored", |stats| {
                stats.rejected_units
            }),
        ];
        figures(&stats, &gauges, &counters)
    }

    fn write_back(&self) -> Vec<Family> {
        let modes: Vec<FlashCacheMode> =
            self.volume.flash_stats().map(|_| self.volume.flash_cache_mode()).into_iter().collect();
        let selected =
            Family::gauge("cellar_write_back_selected", "1 if the flash cache mode is WriteBack, 0 for WriteThrough")
                .with(&modes, |mode| (Labels::new(), Value::Integer(u64::from(*mode == FlashCacheMode::WriteBack))));
        let stats: Vec<WriteBackStats> = self.volume.write_back_stats().into_iter().collect();
        let gauges: [Figure<WriteBackStats>; 8] = [
            ("cellar_write_back_online", "1 if small writes go to the write-back log", |stats| stats.is_on.into()),
            ("cellar_write_back_takes_redo", "1 if redo goes to the write-back log, too", |stats| {
                stats.takes_redo.into()
            }),
            ("cellar_write_back_flushing", "1 from a flush of the flash cache until it is cancelled", |stats| {
                stats.is_flushing.into()
            }),
            ("cellar_write_back_size_bytes", "Size of the write-back log on each flash disk", |stats| stats.log_bytes),
            ("cellar_write_back_used_bytes", "Bytes of the segments of the write-back log that are in use", |stats| {
                stats.used_bytes
            }),
            ("cellar_write_back_dirty_bytes", "Bytes of pages that the cell disks do not have yet", |stats| {
                stats.dirty_bytes
            }),
            ("cellar_write_back_flash_disks", "Flash disks of the write-back log", |stats| stats.disks as u64),
            ("cellar_write_back_flash_disks_left", "Flash disks that have all dirty pages", |stats| {
                stats.disks_left as u64
            }),
        ];
        let counters: [Figure<WriteBackStats>; 12] = [
            ("cellar_write_back_written_bytes_total", "Bytes of pages that were written to flash", |stats| {
                stats.written_bytes
            }),
            ("cellar_write_back_write_requests_total", "Writes of pages to flash", |stats| stats.write_requests),
            ("cellar_write_back_first_written_bytes_total", "Bytes of pages that became dirty", |stats| {
                stats.written_bytes.saturating_sub(stats.overwritten_bytes)
            }),
            (
                "cellar_write_back_first_write_requests_total",
                "Writes to flash with a page that became dirty",
                |stats| stats.write_requests.saturating_sub(stats.overwrite_requests),
            ),
            ("cellar_write_back_overwritten_bytes_total", "Bytes of written pages that were dirty before", |stats| {
                stats.overwritten_bytes
            }),
            (
                "cellar_write_back_overwrite_requests_total",
                "Writes to flash of pages that were dirty before",
                |stats| stats.overwrite_requests,
            ),
            ("cellar_write_back_redo_bytes_total", "Bytes of written pages that are redo", |stats| stats.redo_bytes),
            ("cellar_write_back_redo_requests_total", "Writes of redo to flash", |stats| stats.redo_requests),
            (
                "cellar_write_back_redo_skips_total",
                "Writes of redo that went to the cell disks because the write-back log was nearly full or not in use",
                |stats| stats.redo_skips,
            ),
            (
                "cellar_write_back_destaged_bytes_total",
                "Bytes that were written from flash to the cell disks",
                |stats| stats.destaged_bytes,
            ),
            ("cellar_write_back_destage_requests_total", "Writes of pages from flash to the cell disks", |stats| {
                stats.destage_requests
            }),
            (
                "cellar_write_back_recovered_bytes_total",
                "Bytes of flash that the start wrote to the cell disks",
                |stats| stats.recovered_bytes,
            ),
        ];
        let lacking: Vec<u64> =
            self.volume.lacking_files().map(|files| files.inodes.len() as u64).into_iter().collect();
        let lacking = Family::gauge(
            "cellar_write_back_lacking_files",
            "Files that may lack synced changes after a start without the write-back log",
        )
        .with(&lacking, |count| (Labels::new(), Value::Integer(*count)));
        [selected, lacking].into_iter().chain(figures(&stats, &gauges, &counters)).collect()
    }

    fn flash_log(&self) -> Vec<Family> {
        let stats: Vec<FlashLogStats> = self.volume.flash_log_stats().into_iter().collect();
        let gauges: [Figure<FlashLogStats>; 3] = [
            (
                "cellar_flash_log_online",
                "1 if the flash log is used, 0 if a flash disk failed or could not be opened",
                |stats| u64::from(stats.is_on),
            ),
            ("cellar_flash_log_size_bytes", "Size of the flash log", |stats| stats.size_bytes),
            (
                "cellar_flash_log_unreleased_records",
                "Records of the flash log that the cell disks do not have yet",
                |stats| stats.unreleased_records,
            ),
        ];
        let counters: [Figure<FlashLogStats>; 17] = [
            ("cellar_flash_log_writes_total", "Syncs of WAL files that used the flash log", |stats| stats.writes),
            ("cellar_flash_log_flash_bytes_total", "Bytes that the flash log wrote to flash", |stats| {
                stats.flash_bytes
            }),
            ("cellar_flash_log_flash_first_total", "Syncs of WAL files that flash made durable first", |stats| {
                stats.flash_first
            }),
            (
                "cellar_flash_log_disk_first_total",
                "Syncs of WAL files that the cell disks made durable first",
                |stats| stats.disk_first,
            ),
            (
                "cellar_flash_log_actual_outliers_total",
                "Syncs of WAL files that took more than 500 ms on flash and on cell disks",
                |stats| stats.actual_outliers,
            ),
            (
                "cellar_flash_log_prevented_outliers_total",
                "Syncs of WAL files that took more than 500 ms on cell disks only",
                |stats| stats.prevented_outliers,
            ),
            (
                "cellar_flash_log_flash_only_outliers_total",
                "Syncs of WAL files that took more than 500 ms on flash only",
                |stats| stats.flash_only_outliers,
            ),
            (
                "cellar_flash_log_skips_busy_total",
                "Syncs of WAL files without the flash log because the flash disk was busy",
                |stats| stats.skips_busy,
            ),
            (
                "cellar_flash_log_skips_large_total",
                "Syncs of WAL files without the flash log because of their size",
                |stats| stats.skips_large,
            ),
            (
                "cellar_flash_log_skips_no_buffer_total",
                "Syncs of WAL files without the flash log because it was full",
                |stats| stats.skips_no_buffer,
            ),
            (
                "cellar_flash_log_skips_metadata_total",
                "Syncs of WAL files without the flash log: new, truncated or renamed files",
                |stats| stats.skips_metadata,
            ),
            (
                "cellar_flash_log_skip_outliers_total",
                "Syncs of WAL files without the flash log that took more than 500 ms",
                |stats| stats.skip_outliers,
            ),
            ("cellar_flash_log_flash_errors_total", "Errors of the flash disk of the flash log", |stats| {
                stats.flash_errors
            }),
            ("cellar_flash_log_disk_errors_total", "Failed syncs of WAL files on the cell disks", |stats| {
                stats.disk_errors
            }),
            ("cellar_flash_log_syncs_total", "Syncs of WAL files of a cell with a flash log", |stats| stats.syncs),
            (
                "cellar_flash_log_applied_records_total",
                "Records of the flash log that the start wrote to WAL files",
                |stats| stats.applied_records,
            ),
            ("cellar_flash_log_applied_bytes_total", "Bytes of redo that the start wrote to WAL files", |stats| {
                stats.applied_bytes
            }),
        ];
        let seconds = |stats: &FlashLogStats| (Labels::new(), Value::Real(stats.sync_nanoseconds as f64 / 1e9));
        let times = Family::counter("cellar_flash_log_sync_seconds_total", "Durations of syncs of WAL files");
        let mut families = figures(&stats, &gauges, &counters);
        families.push(times.with(&stats, seconds));
        families
    }

    fn backlog(&self) -> Vec<Family> {
        let backlog = self.volume.backlog();
        vec![
            Family::gauge("cellar_redo_log_bytes", "Bytes of all redo logs")
                .value(Value::Integer(backlog.redo_log_bytes)),
            Family::gauge("cellar_redo_log_longest_bytes", "Bytes of the longest redo log of a file")
                .value(Value::Integer(backlog.redo_log_longest_bytes)),
            Family::gauge("cellar_checkpoints_queued", "Files whose redo logs wait for a checkpoint in the background")
                .value(Value::Integer(backlog.checkpoints_queued)),
            Family::counter("cellar_metadata_commit_failures_total", "Metadata transactions that failed")
                .value(Value::Integer(backlog.commit_failures)),
        ]
    }
}
