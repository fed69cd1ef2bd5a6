//! The compression units of one file: the table of extents, the unit slots and the redo log.
//!
//! Invariants: a page of an allocation unit is current either in its compression unit or in the backing file, never in
//! both; the extent table records where, and a reader uses one [`Extent`] as a snapshot. A write to a page that the
//! metadata do not yet name superseded is appended to the redo log before the write is acknowledged.

mod cached;
mod codec;
mod extent;
mod reader;
mod redo_log;
mod slot_header;
mod slots;
mod stored_unit;

pub use cached::{CachedUnit, CountedBytes};
pub use codec::{OpenUnit, UnitCodec};
pub use extent::Extent;
pub use reader::{StoredUnitReader, UnitImage};
pub use redo_log::{LogSequence, RECORD_BYTES, RedoLog};
pub use slots::UnitSlots;
pub use stored_unit::{StoredUnit, stored_bytes};

use super::backing::Backing;
use super::locks::{SyncGuard, WriteGuard};
use crate::cache::{Cache, IoCost};
use crate::disk::no_wait;
use crate::error::{Error, ErrorKind, Result};
use crate::meta::ExtentRecord;
use crate::page_set::PageSet;
use cellar_format::units::{AuIndex, BLOCK_BYTES, PageInAu};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// Bytes of a page, as `usize` and as `u64`.
pub const PAGE_BYTES: usize = BLOCK_BYTES;
pub const PAGE: u64 = BLOCK_BYTES as u64;
/// Pages rebuilt by one call of the codec where many pages are rebuilt.
pub const BATCH_PAGES: u32 = 32;

#[derive(Debug)]
pub struct Units {
    codec: Option<Arc<dyn UnitCodec>>,
    cache: Arc<Cache>,
    slots: Arc<UnitSlots>,
    table: RwLock<Table>,
    redo_log: Mutex<RedoLog>,
    /// Set from the request for a checkpoint in the background until a checkpoint succeeds. A failed checkpoint is not
    /// requested again: the next sync, or the writer that finds the log full, runs a checkpoint.
    checkpoint_requested: AtomicBool,
    /// Set when a sync failed: the kernel may have dropped pages that only the redo log still has.
    failed_sync: AtomicBool,
    /// Bytes that the file occupies on disk beyond its size because of its units, negative if fewer.
    extra_bytes: AtomicI64,
}

#[derive(Debug, Default)]
struct Table {
    extents: BTreeMap<AuIndex, Arc<Extent>>,
    /// Allocation units with superseded pages that are not committed.
    uncommitted: BTreeSet<AuIndex>,
}

/// A stored unit that is about to become current.
#[derive(Debug)]
pub struct NewUnit {
    pub stored: Arc<StoredUnit>,
    /// Pages that the unit contains: all whole pages of the allocation unit.
    pub page_count: u32,
    pub tag: u32,
}

/// A running checkpoint of the redo log: the superseded pages that it must make durable and commit.
#[derive(Debug, Default)]
pub struct Checkpoint(Vec<CheckpointPages>);

#[derive(Debug)]
struct CheckpointPages {
    au: AuIndex,
    /// Identifies the extent. If another unit replaces the extent, the checkpoint does not apply to that unit's pages.
    log_sequence: LogSequence,
    pages: PageSet,
}

impl Checkpoint {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn aus(&self) -> impl Iterator<Item = AuIndex> + '_ {
        self.0.iter().map(|pages| pages.au)
    }
}

impl Units {
    pub fn new(codec: Option<Arc<dyn UnitCodec>>, cache: Arc<Cache>, slots: Arc<UnitSlots>, redo_log: RedoLog) -> Self {
        Self {
            codec,
            cache,
            slots,
            table: RwLock::default(),
            redo_log: Mutex::new(redo_log),
            checkpoint_requested: AtomicBool::new(false),
            failed_sync: AtomicBool::new(false),
            extra_bytes: AtomicI64::new(0),
        }
    }

    pub fn slots(&self) -> &Arc<UnitSlots> {
        &self.slots
    }

    pub fn codec(&self) -> Result<&dyn UnitCodec> {
        let missing = || Error::new(ErrorKind::NotSupported, "compression units are not supported by this cell");
        self.codec.as_deref().ok_or_else(missing)
    }

    pub fn extent(&self, au: AuIndex) -> Option<Arc<Extent>> {
        self.table.read().extents.get(&au).cloned()
    }

    /// Returns the allocation units that have compression units.
    pub fn aus(&self) -> Vec<AuIndex> {
        self.table.read().extents.keys().copied().collect()
    }

    pub fn extents(&self) -> Vec<Arc<Extent>> {
        self.table.read().extents.values().cloned().collect()
    }

    /// Returns whether any of the allocation units has a compression unit.
    pub fn any_in(&self, aus: Range<AuIndex>) -> bool {
        self.table.read().extents.range(aus).next().is_some()
    }

    /// Returns the extent record to commit; None if the allocation unit has no compression unit.
    pub fn record(&self, au: AuIndex) -> Option<ExtentRecord> {
        self.table.read().extents.get(&au).map(|extent| extent.record())
    }

    pub fn extra_bytes(&self) -> i64 {
        self.extra_bytes.load(Ordering::Relaxed)
    }

    /// Rebuilds current pages of a unit into `out`; adds the I/O to `cost`.
    pub fn rebuild(&self, extent: &Extent, pages: Range<u32>, out: &mut [u8], cost: &mut IoCost) -> Result<()> {
        assert_eq!(out.len(), pages.len() * PAGE_BYTES);
        let reader = StoredUnitReader::new(&extent.stored);
        let may_load = extent.stored.is_worth_loading();
        let cached = CachedUnit::new(&reader, &extent.stored, &self.cache, may_load);
        let codec = self.codec()?;
        let mut rebuild = || {
            let opened = codec.open(&cached, extent.stored.id);
            opened.and_then(|mut unit| unit.rebuild(&cached, pages.clone(), out))
        };
        let result = match rebuild() {
            Err(error) if !no_wait::is_on() && extent.stored.repair(&error) => rebuild(),
            result => result,
        };
        if !no_wait::will_be_repeated() {
            extent.stored.count_page_read(may_load);
        }
        cost.add(reader.cost());
        result.map_err(|error| cannot_rebuild(error, &extent.stored, pages))
    }

    /// Adds the extent that a record in the metadata describes.
    pub fn restore(&self, write: &WriteGuard<'_>, au: AuIndex, record: &ExtentRecord) {
        self.check_file(write);
        let stored = Arc::new(StoredUnit::recorded(&self.slots, au, record));
        let log_sequence = LogSequence(record.log_sequence);
        self.redo_log.lock().advance_beyond(log_sequence);
        let extent = Extent::new(stored, record.tag, log_sequence, record.superseded.clone());
        self.put(&mut self.table.write(), au, Some(extent));
    }

    /// Makes a stored unit the unit of its allocation unit, with all its pages current. Returns the log sequence of the
    /// new extent and the replaced unit.
    pub(in crate::file) fn publish(
        &self,
        write: &WriteGuard<'_>,
        unit: NewUnit,
    ) -> (LogSequence, Option<Arc<StoredUnit>>) {
        self.check_file(write);
        let log_sequence = self.redo_log.lock().next_sequence();
        let (au, mut table) = (unit.stored.au, self.table.write());
        table.uncommitted.remove(&au);
        let extent = Extent::new(unit.stored, unit.tag, log_sequence, PageSet::new(unit.page_count));
        let replaced = self.put(&mut table, au, Some(extent));
        (log_sequence, replaced.map(|extent| extent.stored.clone()))
    }

    fn put(&self, table: &mut Table, au: AuIndex, extent: Option<Extent>) -> Option<Arc<Extent>> {
        let added = extent.as_ref().map_or(0, Extent::extra_bytes);
        let replaced = match extent {
            Some(extent) => table.extents.insert(au, Arc::new(extent)),
            None => table.extents.remove(&au),
        };
        let removed = replaced.as_ref().map_or(0, |extent| extent.extra_bytes());
        self.extra_bytes.fetch_add(added - removed, Ordering::Relaxed);
        replaced
    }

    /// Marks pages as superseded: the backing file has their current content.
    pub fn mark_superseded(&self, write: &WriteGuard<'_>, au: AuIndex, pages: impl Iterator<Item = PageInAu>) {
        self.check_file(write);
        let mut table = self.table.write();
        let Some(extent) = table.extents.get_mut(&au) else { return };
        let extent = Arc::make_mut(extent);
        let before = extent.extra_bytes();
        let count = extent.page_count();
        pages.filter(|page| page.0 < count).for_each(|page| extent.superseded.insert(page));
        let (after, is_uncommitted) = (extent.extra_bytes(), extent.superseded != extent.committed);
        self.extra_bytes.fetch_add(after - before, Ordering::Relaxed);
        if is_uncommitted {
            table.uncommitted.insert(au);
        }
    }

    /// Sets whether a decompression of the unit is under way; returns the extent, None if there is no unit.
    pub fn set_decompressing(&self, write: &WriteGuard<'_>, au: AuIndex, value: bool) -> Option<Arc<Extent>> {
        self.check_file(write);
        let mut table = self.table.write();
        let extent = table.extents.get_mut(&au)?;
        Arc::make_mut(extent).is_decompressing = value;
        Some(extent.clone())
    }

    /// Truncates the units at a file size: afterwards no page beyond `size` is current in a unit. Returns the
    /// allocation units whose extents changed and the units that became unused.
    pub fn truncate(&self, write: &WriteGuard<'_>, size: u64) -> (Vec<AuIndex>, Vec<Arc<StoredUnit>>) {
        self.check_file(write);
        let layout = &self.slots.layout;
        let mut table = self.table.write();
        let from_size: Vec<(AuIndex, Arc<Extent>)> =
            table.extents.range(layout.au_at(size)..).map(|(au, extent)| (*au, extent.clone())).collect();
        let (mut changed, mut unused) = (Vec::new(), Vec::new());
        for (au, extent) in from_size {
            let pages = size.saturating_sub(layout.au_range(au).start) / PAGE;
            let pages = pages.min(u64::from(extent.page_count())) as u32;
            if pages == extent.page_count() {
                continue;
            }
            changed.push(au);
            if pages == 0 {
                self.put(&mut table, au, None);
                table.uncommitted.remove(&au);
                unused.push(extent.stored.clone());
                continue;
            }
            let truncated = extent.truncated(pages);
            if truncated.superseded == truncated.committed {
                table.uncommitted.remove(&au);
            }
            self.put(&mut table, au, Some(truncated));
        }
        (changed, unused)
    }

    /// Returns the superseded pages that are not committed: the pages of a checkpoint that begins now.
    pub(in crate::file) fn uncommitted_pages(&self, write: &WriteGuard<'_>) -> Checkpoint {
        self.check_file(write);
        let table = self.table.read();
        let of_extent = |au: &AuIndex| {
            let extent = &table.extents[au];
            let mut pages = extent.superseded.clone();
            pages.remove_all(&extent.committed);
            CheckpointPages { au: *au, log_sequence: extent.log_sequence, pages }
        };
        Checkpoint(table.uncommitted.iter().map(of_extent).collect())
    }

    /// Records that the pages of a checkpoint are durable in the backing files: transactions from now on name them
    /// superseded.
    pub fn mark_durable(&self, sync: &SyncGuard<'_>, checkpoint: &Checkpoint) {
        debug_assert_eq!(sync.file.ino, self.slots.ino);
        let mut table = self.table.write();
        for CheckpointPages { au, log_sequence, pages } in &checkpoint.0 {
            let extent = table.extents.get_mut(au).filter(|extent| extent.log_sequence == *log_sequence);
            if let Some(extent) = extent {
                Arc::make_mut(extent).durable.insert_all(pages);
            }
        }
    }

    /// Records that the metadata on every disk name the pages of a checkpoint superseded. Drops and returns
    /// the units without current pages.
    pub fn mark_committed(&self, sync: &SyncGuard<'_>, checkpoint: &Checkpoint) -> Vec<Arc<StoredUnit>> {
        debug_assert_eq!(sync.file.ino, self.slots.ino);
        let mut table = self.table.write();
        let mut unused = Vec::new();
        for CheckpointPages { au, log_sequence, pages } in &checkpoint.0 {
            let extent = table.extents.get_mut(au).filter(|extent| extent.log_sequence == *log_sequence);
            let Some(extent) = extent else { continue };
            let extent = Arc::make_mut(extent);
            extent.committed.insert_all(pages);
            if extent.committed.is_full() {
                unused.push(extent.stored.clone());
                table.uncommitted.remove(au);
                self.put(&mut table, *au, None);
            } else if extent.superseded == extent.committed {
                table.uncommitted.remove(au);
            }
        }
        unused
    }

    /// Drops and returns the units without current pages. The metadata contain such a unit if an earlier process
    /// crashed before it removed the unit's record.
    pub fn drop_fully_superseded(&self, write: &WriteGuard<'_>) -> Vec<Arc<StoredUnit>> {
        self.check_file(write);
        let mut table = self.table.write();
        let full = table.extents.iter().filter(|(_, extent)| extent.committed.is_full());
        let aus: Vec<AuIndex> = full.map(|(au, _)| *au).collect();
        aus.into_iter().filter_map(|au| self.put(&mut table, au, None)).map(|extent| extent.stored.clone()).collect()
    }

    /// Appends pages (allocation unit, page in it, whole new content) to the redo log.
    pub(in crate::file) fn append_to_redo_log<'a>(
        &self,
        pages: impl Iterator<Item = (AuIndex, PageInAu, &'a [u8])>,
    ) -> Result<()> {
        self.redo_log.lock().append(pages)
    }

    pub(in crate::file) fn switch_redo_log_segment(&self, _: &SyncGuard<'_>) {
        self.redo_log.lock().switch_segment();
    }

    /// Ends a checkpoint: empties the segment with the records that the checkpoint's transaction made obsolete.
    pub fn empty_redo_log(&self, _: &SyncGuard<'_>) -> Result<()> {
        let inactive = self.redo_log.lock().inactive();
        if let Some(segment) = inactive {
            // Without the log's lock, so that no append waits for the file system. Only the owner of the sync lock
            // switches segments, so the segment stays inactive.
            segment.clear()?;
            self.redo_log.lock().note_emptied();
        }
        self.checkpoint_requested.store(false, Ordering::Release);
        Ok(())
    }

    /// Returns whether the log needs a checkpoint that was not requested yet; the caller then requests the checkpoint.
    pub fn take_checkpoint_request(&self) -> bool {
        self.redo_log.lock().needs_checkpoint() && !self.checkpoint_requested.swap(true, Ordering::AcqRel)
    }

    /// Returns whether a checkpoint must shorten the redo log before the next write.
    pub fn is_redo_log_full(&self) -> bool {
        self.redo_log.lock().is_full()
    }

    /// Returns the length of the redo log in bytes.
    pub fn redo_log_bytes(&self) -> u64 {
        self.redo_log.lock().length()
    }

    pub(in crate::file) fn with_redo_log<T>(&self, work: impl FnOnce(&mut RedoLog) -> T) -> T {
        work(&mut self.redo_log.lock())
    }

    pub(in crate::file) fn note_failed_sync(&self) {
        self.failed_sync.store(true, Ordering::Release);
    }

    /// Returns whether pages of the redo log must be written to the backing file again because a sync failed.
    pub fn has_failed_sync(&self) -> bool {
        self.failed_sync.load(Ordering::Acquire)
    }

    pub(in crate::file) fn clear_failed_sync(&self) {
        self.failed_sync.store(false, Ordering::Release);
    }

    pub(in crate::file) fn unit_files(&self) -> impl Iterator<Item = &Backing> {
        self.slots.unit_files.iter()
    }

    /// Closes the descriptors of log segments that have nothing unsynced, unless the log is in use; returns how many.
    pub(in crate::file) fn close_redo_log(&self) -> usize {
        let log = self.redo_log.try_lock();
        log.map_or(0, |log| log.segments().iter().filter(|segment| segment.close()).count())
    }

    /// Removes unit files and redo log from the disks.
    pub(in crate::file) fn remove(&self) -> Result<()> {
        self.unit_files().try_for_each(Backing::remove)?;
        self.redo_log.lock().segments().iter().try_for_each(|segment| segment.remove())
    }

    fn check_file(&self, write: &WriteGuard<'_>) {
        debug_assert_eq!(write.ino, self.slots.ino, "the write lock of another file");
    }
}

/// Adds pages and location to a codec's error about damaged bytes.
pub fn cannot_rebuild(error: Error, stored: &StoredUnit, pages: Range<u32>) -> Error {
    match error.kind() {
        ErrorKind::Corrupt => {
            let pages = format!("pages {} to {} of {}", pages.start, pages.end - 1, stored.describe());
            Error::new(ErrorKind::Corrupt, format!("cannot rebuild {pages}: {error}"))
        }
        _ => error,
    }
}
