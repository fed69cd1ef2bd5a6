//! Counters of the flash cache, and which reads of a thread it answered.

use super::FlashCache;
use super::index::CachedObject;
use super::location::PAGE;
use super::setting::FlashSetting;
use crate::request::SMALL_BYTES_MAX;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    /// Reads of this thread that the flash cache answered.
    static ANSWERED: Cell<u64> = const { Cell::new(0) };
    /// Reads of this thread that went to the cell disks although a flash cache is in use.
    static MISSED: Cell<u64> = const { Cell::new(0) };
}

/// Runs a read of this thread, and returns whether the flash cache answered all of it.
pub fn from_flash<T>(read: impl FnOnce() -> T) -> (T, bool) {
    let (answered, missed) = (ANSWERED.get(), MISSED.get());
    let result = read();
    (result, ANSWERED.get() != answered && MISSED.get() == missed)
}

/// What the flash cache did since the volume was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlashStats {
    /// False after a flash disk failed.
    pub is_on: bool,
    /// Bytes of all segments.
    pub capacity_bytes: u64,
    /// Bytes of pages in flash that are equal to those on disk.
    pub used_bytes: u64,
    /// Those among them of files with the setting KEEP.
    pub keep_used_bytes: u64,
    /// Read requests that flash satisfied, and their bytes.
    pub read_hits: u64,
    pub read_hit_bytes: u64,
    /// Those among them of more than 128 KiB, and their bytes.
    pub large_hits: u64,
    pub large_hit_bytes: u64,
    /// Those among them of files with the setting KEEP, and their bytes.
    pub keep_hits: u64,
    pub keep_hit_bytes: u64,
    /// Read requests that went to the cell disks.
    pub read_misses: u64,
    pub read_miss_bytes: u64,
    /// Those among them of more than 128 KiB, and their bytes.
    pub large_misses: u64,
    pub large_miss_bytes: u64,
    /// Read requests among the misses of files with the setting KEEP.
    pub keep_misses: u64,
    /// Read requests among the misses that were not to be cached, and their bytes.
    pub read_skips: u64,
    pub read_skip_bytes: u64,
    /// Those among the skips because of the setting NONE.
    pub setting_skips: u64,
    /// Those among the skips because of the limit of a database, 0 included.
    pub limit_skips: u64,
    /// Bytes written to flash after a read that missed, and the requests for them.
    pub populated_bytes: u64,
    pub populated_requests: u64,
    /// Bytes written to flash again because a write changed them.
    pub rewritten_bytes: u64,
    /// Fills that were dropped because too many waited.
    pub dropped_fills: u64,
    /// Times a change of a file waited until an intent was durable.
    pub intents: u64,
    pub evicted_segments: u64,
    /// Bytes that were copied within flash because they were in use.
    pub kept_bytes: u64,
    pub checkpoints: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub read_hits: AtomicU64,
    pub read_hit_bytes: AtomicU64,
    pub large_hits: AtomicU64,
    pub large_hit_bytes: AtomicU64,
    pub keep_hits: AtomicU64,
    pub keep_hit_bytes: AtomicU64,
    pub read_misses: AtomicU64,
    pub read_miss_bytes: AtomicU64,
    pub large_misses: AtomicU64,
    pub large_miss_bytes: AtomicU64,
    pub keep_misses: AtomicU64,
    pub read_skips: AtomicU64,
    pub read_skip_bytes: AtomicU64,
    pub setting_skips: AtomicU64,
    pub limit_skips: AtomicU64,
    pub populated_pages: AtomicU64,
    pub populated_requests: AtomicU64,
    pub rewritten_pages: AtomicU64,
    pub dropped_fills: AtomicU64,
    pub intents: AtomicU64,
    pub evicted_segments: AtomicU64,
    pub kept_pages: AtomicU64,
    pub checkpoints: AtomicU64,
}

impl Counters {
    /// Counts a read that flash answered.
    pub fn hit(&self, object: &CachedObject, length: usize) {
        ANSWERED.set(ANSWERED.get() + 1);
        object.uses().hits.fetch_add(1, Ordering::Relaxed);
        add((&self.read_hits, &self.read_hit_bytes), length);
        if length > SMALL_BYTES_MAX {
            add((&self.large_hits, &self.large_hit_bytes), length);
        }
        if object.setting() == FlashSetting::Keep {
            add((&self.keep_hits, &self.keep_hit_bytes), length);
        }
    }

    /// Counts a read that goes to the cell disks.
    pub fn miss(&self, object: &CachedObject, length: usize) {
        MISSED.set(MISSED.get() + 1);
        object.uses().misses.fetch_add(1, Ordering::Relaxed);
        add((&self.read_misses, &self.read_miss_bytes), length);
        if length > SMALL_BYTES_MAX {
            add((&self.large_misses, &self.large_miss_bytes), length);
        }
        if object.setting() == FlashSetting::Keep {
            self.keep_misses.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a miss that is not to be cached.
    pub fn skip(&self, object: &CachedObject, length: usize) {
        add((&self.read_skips, &self.read_skip_bytes), length);
        if object.setting() == FlashSetting::None {
            self.setting_skips.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Adds a request to counters of requests and bytes.
fn add((requests, bytes): (&AtomicU64, &AtomicU64), length: usize) {
    requests.fetch_add(1, Ordering::Relaxed);
    bytes.fetch_add(length as u64, Ordering::Relaxed);
}

impl FlashCache {
    fn keep_used_bytes(&self) -> u64 {
        let objects = self.objects.lock();
        let kept = objects.values().filter(|object| object.setting() == FlashSetting::Keep);
        kept.map(|object| object.pages().max(0) as u64 * PAGE).sum()
    }

    pub fn stats(&self) -> FlashStats {
        let counters = &self.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FlashStats {
            is_on: self.is_on(),
            capacity_bytes: self.segment_bytes * u64::from(self.segment_count),
            used_bytes: self.pages.load(Ordering::Relaxed).max(0) as u64 * PAGE,
            keep_used_bytes: self.keep_used_bytes(),
            read_hits: get(&counters.read_hits),
            read_hit_bytes: get(&counters.read_hit_bytes),
            large_hits: get(&counters.large_hits),
            large_hit_bytes: get(&counters.large_hit_bytes),
            keep_hits: get(&counters.keep_hits),
            keep_hit_bytes: get(&counters.keep_hit_bytes),
            read_misses: get(&counters.read_misses),
            read_miss_bytes: get(&counters.read_miss_bytes),
            large_misses: get(&counters.large_misses),
            large_miss_bytes: get(&counters.large_miss_bytes),
            keep_misses: get(&counters.keep_misses),
            read_skips: get(&counters.read_skips),
            read_skip_bytes: get(&counters.read_skip_bytes),
            setting_skips: get(&counters.setting_skips),
            limit_skips: get(&counters.limit_skips),
            populated_bytes: get(&counters.populated_pages) * PAGE,
            populated_requests: get(&counters.populated_requests),
            rewritten_bytes: get(&counters.rewritten_pages) * PAGE,
            dropped_fills: get(&counters.dropped_fills),
            intents: get(&counters.intents),
            evicted_segments: get(&counters.evicted_segments),
            kept_bytes: get(&counters.kept_pages) * PAGE,
            checkpoints: get(&counters.checkpoints),
        }
    }
}
