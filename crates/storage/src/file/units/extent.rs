//! One allocation unit that has a compression unit, and where each of its pages is current.

use super::{LogSequence, PAGE, StoredUnit};
use crate::meta::ExtentRecord;
use crate::page_set::PageSet;
use cellar_format::units::PageInAu;
use std::ops::Range;
use std::sync::Arc;

/// Invariant: the page sets only grow, and `superseded` ⊇ `durable` ⊇ `committed`.
#[derive(Debug, Clone)]
pub struct Extent {
    pub stored: Arc<StoredUnit>,
    /// Opaque to the storage; see `Volume::store_unit`.
    pub tag: u32,
    /// Records of the redo log below this sequence are older than the unit.
    pub log_sequence: LogSequence,
    /// Pages whose current content is in the backing file. The page count is the number of pages that the unit
    /// contains, counted from the start of the allocation unit; pages after them are raw.
    pub superseded: PageSet,
    /// A decompression is writing the current pages to the backing file, so the space under them must not be punched.
    pub is_decompressing: bool,
    /// Superseded pages that are durable in the backing file.
    pub(super) durable: PageSet,
    /// Superseded pages that the metadata on every disk name superseded.
    pub committed: PageSet,
}

impl Extent {
    pub(super) fn new(stored: Arc<StoredUnit>, tag: u32, log_sequence: LogSequence, superseded: PageSet) -> Self {
        let (durable, committed) = (superseded.clone(), superseded.clone());
        Self { stored, tag, log_sequence, superseded, is_decompressing: false, durable, committed }
    }

    /// Returns the extent of a unit outside the metadata, all of whose pages are current.
    pub fn unlogged(stored: Arc<StoredUnit>, tag: u32, page_count: u32) -> Self {
        Self::new(stored, tag, LogSequence(0), PageSet::new(page_count))
    }

    /// Returns the number of pages that the unit contains.
    pub fn page_count(&self) -> u32 {
        self.superseded.page_count()
    }

    /// Returns the number of pages that are current in the unit.
    pub fn current_count(&self) -> u32 {
        self.page_count() - self.superseded.len()
    }

    /// Returns whether the page is current in the unit.
    pub fn is_current(&self, page: PageInAu) -> bool {
        page.0 < self.page_count() && !self.superseded.contains(page)
    }

    /// Returns whether the unit contains the page and the metadata on disk do not name it superseded.
    pub fn has_uncommitted(&self, page: PageInAu) -> bool {
        page.0 < self.page_count() && !self.committed.contains(page)
    }

    /// Returns the runs of current pages within `pages`.
    pub fn current_runs(&self, pages: Range<u32>) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for page in pages.filter(|page| self.is_current(PageInAu(*page))) {
            match runs.last_mut() {
                Some(run) if run.end == page => run.end += 1,
                _ => runs.push(page..page + 1),
            }
        }
        runs
    }

    /// Returns the same unit, truncated to its first `pages` pages.
    pub(super) fn truncated(&self, pages: u32) -> Self {
        let [superseded, durable, committed] =
            [&self.superseded, &self.durable, &self.committed].map(|set| set.truncated(pages));
        Self { superseded, durable, committed, ..self.clone() }
    }

    pub(super) fn record(&self) -> ExtentRecord {
        let StoredUnit { format, slot, length, checksum, .. } = *self.stored;
        let (tag, log_sequence, superseded) = (self.tag, self.log_sequence.0, self.durable.clone());
        ExtentRecord { format, slot, length, checksum, tag, log_sequence, superseded }
    }

    /// Returns the bytes that the allocation unit occupies on disk beyond its size, negative if fewer.
    pub(super) fn extra_bytes(&self) -> i64 {
        self.stored.allocated() as i64 - i64::from(self.current_count()) * PAGE as i64
    }
}
