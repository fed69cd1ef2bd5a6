//! Counters of the flash cache.

use super::FlashCache;
use super::location::PAGE;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the flash cache did since the volume was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlashStats {
    /// False after a flash disk failed.
    pub is_on: bool,
    /// Bytes of all segments.
    pub capacity_bytes: u64,
    /// Bytes of pages in flash that are equal to those on disk.
    pub used_bytes: u64,
    /// Read requests that flash satisfied, and their bytes.
    pub read_hits: u64,
    pub read_hit_bytes: u64,
    /// Read requests that went to the cell disks.
    pub read_misses: u64,
    /// Read requests among the misses that were not to be cached because they were large.
    pub read_skips: u64,
    /// Bytes written to flash after a read that missed.
    pub populated_bytes: u64,
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
    pub read_misses: AtomicU64,
    pub read_skips: AtomicU64,
    pub populated_pages: AtomicU64,
    pub rewritten_pages: AtomicU64,
    pub dropped_fills: AtomicU64,
    pub intents: AtomicU64,
    pub evicted_segments: AtomicU64,
    pub kept_pages: AtomicU64,
    pub checkpoints: AtomicU64,
}

impl FlashCache {
    pub fn stats(&self) -> FlashStats {
        let counters = &self.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FlashStats {
            is_on: self.is_on(),
            capacity_bytes: self.segment_bytes * u64::from(self.segment_count),
            used_bytes: self.pages.load(Ordering::Relaxed).max(0) as u64 * PAGE,
            read_hits: get(&counters.read_hits),
            read_hit_bytes: get(&counters.read_hit_bytes),
            read_misses: get(&counters.read_misses),
            read_skips: get(&counters.read_skips),
            populated_bytes: get(&counters.populated_pages) * PAGE,
            rewritten_bytes: get(&counters.rewritten_pages) * PAGE,
            dropped_fills: get(&counters.dropped_fills),
            intents: get(&counters.intents),
            evicted_segments: get(&counters.evicted_segments),
            kept_bytes: get(&counters.kept_pages) * PAGE,
            checkpoints: get(&counters.checkpoints),
        }
    }
}
