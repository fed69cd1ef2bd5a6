//! Counters of the flash log, under the meanings that Oracle's metrics give them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Why a sync of redo did not use the flash log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skip {
    /// The flash disk was busy for long with an earlier write.
    Busy,
    /// The changes do not fit a record.
    Large,
    /// The ring has no free space.
    NoBuffer,
    /// The file has changes that a record cannot contain: it is new, was truncated, or its name changed.
    Metadata,
}

/// What the flash log did since the volume was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlashLogStats {
    /// False if the flash disk failed or could not be used.
    pub is_on: bool,
    /// Bytes of the ring.
    pub size_bytes: u64,
    /// Records that the cell disks do not have yet.
    pub unreleased_records: u64,
    /// Syncs of redo that were written to flash and to the cell disks.
    pub writes: u64,
    pub flash_bytes: u64,
    pub disk_first: u64,
    pub flash_first: u64,
    /// Syncs that took longer than the limit on flash and on the cell disks.
    pub actual_outliers: u64,
    /// On the cell disks only.
    pub prevented_outliers: u64,
    /// On flash only.
    pub flash_only_outliers: u64,
    pub skips_busy: u64,
    pub skips_large: u64,
    pub skips_no_buffer: u64,
    pub skips_metadata: u64,
    /// Syncs that did not use the flash log and took longer than the limit.
    pub skip_outliers: u64,
    pub flash_errors: u64,
    pub disk_errors: u64,
    /// Durations of all syncs of redo.
    pub syncs: u64,
    pub sync_nanoseconds: u64,
    /// Records that the start wrote to files, and their bytes of redo.
    pub applied_records: u64,
    pub applied_bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub writes: AtomicU64,
    pub flash_bytes: AtomicU64,
    pub disk_first: AtomicU64,
    pub flash_first: AtomicU64,
    pub actual_outliers: AtomicU64,
    pub prevented_outliers: AtomicU64,
    pub flash_only_outliers: AtomicU64,
    pub skips_busy: AtomicU64,
    pub skips_large: AtomicU64,
    pub skips_no_buffer: AtomicU64,
    pub skips_metadata: AtomicU64,
    pub skip_outliers: AtomicU64,
    pub flash_errors: AtomicU64,
    pub disk_errors: AtomicU64,
    pub syncs: AtomicU64,
    pub sync_nanoseconds: AtomicU64,
}

pub(super) fn increase(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl Counters {
    pub fn skipped(&self, skip: Skip) {
        increase(
            match skip {
                Skip::Busy => &self.skips_busy,
                Skip::Large => &self.skips_large,
                Skip::NoBuffer => &self.skips_no_buffer,
                Skip::Metadata => &self.skips_metadata,
            },
            1,
        );
    }

    /// Counts a sync that was written to both, when both are done.
    pub fn done(&self, flash: Duration, disks: Duration, outlier: Duration) {
        match (flash > outlier, disks > outlier) {
            (true, true) => increase(&self.actual_outliers, 1),
            (false, true) => increase(&self.prevented_outliers, 1),
            (true, false) => increase(&self.flash_only_outliers, 1),
            (false, false) => {}
        }
    }

    pub fn read(&self) -> FlashLogStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FlashLogStats {
            writes: get(&self.writes),
            flash_bytes: get(&self.flash_bytes),
            disk_first: get(&self.disk_first),
            flash_first: get(&self.flash_first),
            actual_outliers: get(&self.actual_outliers),
            prevented_outliers: get(&self.prevented_outliers),
            flash_only_outliers: get(&self.flash_only_outliers),
            skips_busy: get(&self.skips_busy),
            skips_large: get(&self.skips_large),
            skips_no_buffer: get(&self.skips_no_buffer),
            skips_metadata: get(&self.skips_metadata),
            skip_outliers: get(&self.skip_outliers),
            flash_errors: get(&self.flash_errors),
            disk_errors: get(&self.disk_errors),
            syncs: get(&self.syncs),
            sync_nanoseconds: get(&self.sync_nanoseconds),
            ..FlashLogStats::default()
        }
    }
}
