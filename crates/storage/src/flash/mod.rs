//! The flash cache: pages of the disk group's files, in a log on flash disks, written through.
//!
//! The cache sits between the files and the stripes of the group, so moves between disks, copies and resyncs below it
//! change nothing, and every change of a file's bytes passes it. `README.md` beside this file explains why no crash brings
//! back a stale page.
//!
//! Lock order: repairs of a file, maintenance, log, an object; none of the last three is held while a disk of the group is used.

mod checkpoint;
mod contents;
mod disk;
mod eviction;
mod filler;
mod format;
mod ghost;
mod index;
mod location;
mod log;
mod notes;
mod recovery;
mod region;
mod setting;
mod statistics;
#[cfg(test)]
mod tests;
mod usage;
mod waiting;

pub use disk::FlashCachedDisk;
pub use format::{Generation, Object};
pub use notes::CellDisks;
pub use recovery::{is_plain_directory, is_usable};
pub use setting::{FlashContent, FlashSetting};
pub use statistics::FlashStats;
pub(crate) use statistics::from_flash;
pub(crate) use waiting::check as check_may_wait;
pub use waiting::without_waiting;

use crate::disk::Disk;
use crate::error::Result;
use crate::request::SMALL_BYTES_MAX;
use eviction::Maintenance;
use filler::Filler;
use format::{BLOCK, Piece};
use index::{CachedObject, Change, NeedsIntent};
use location::{Location, PAGE_BYTES, SegmentPages};
use log::{Log, Segment};
use notes::IntentNotes;
use parking_lot::{Mutex, RwLock};
use statistics::Counters;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;
use usage::Usage;

/// The flash cache of a volume.
#[derive(Debug, Clone)]
pub struct FlashOptions {
    /// None of them if one could not be opened.
    pub disks: Vec<Arc<dyn Disk>>,
    /// Bytes that the cache uses on all flash disks together; None for most of their free space.
    pub size: Option<u64>,
    /// Bytes that the columnar cache uses on all flash disks together, besides `size`; 0 for no columnar cache.
    pub columnar_bytes: u64,
    /// Bytes of a segment. Another size empties the cache.
    pub segment_bytes: u64,
    /// Fills the cache in a background thread. Without it, a read that misses fills the cache before it returns.
    pub fills_in_background: bool,
    /// A flash disk with an operation that takes longer has failed; None to wait as long as it takes.
    pub timeout: Option<Duration>,
}

impl FlashOptions {
    pub const SEGMENT_BYTES: u64 = 16 << 20;
    /// The smallest number of segments.
    pub const SEGMENTS_MIN: u64 = 12;
    pub const TIMEOUT: Duration = Duration::from_secs(10);
}

/// Whether the cache is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Mode {
    On,
    /// A flash disk failed, and a later start could still use what is on it.
    Failing,
    Off,
}

/// The note of a flash disk that has a flash log.
pub const FLASH_LOG_NOTE: &str = "flash_log";

/// Bytes of a region.
const REGION_BYTES: u64 = region::REGION_PAGES as u64 * location::PAGE;

#[derive(Debug)]
pub struct FlashCache {
    disks: Vec<Arc<dyn Disk>>,
    /// They say which flash cache belongs to them.
    cell_disks: Arc<dyn CellDisks>,
    segment_bytes: u64,
    segment_count: u32,
    generation: Generation,
    intents: IntentNotes,
    mode: AtomicU8,
    /// Whether the operator switched the cache off.
    is_dropped: AtomicBool,
    /// Reads fill the cache. A write that replaces cached pages does so in any case.
    fills: AtomicBool,
    /// Held while the notes of the group's disks are revoked.
    revoking: Mutex<()>,
    objects: Mutex<HashMap<Object, Arc<CachedObject>>>,
    /// By inode; a file that is missing has the default.
    settings: Mutex<BTreeMap<u64, FlashSetting>>,
    /// Held while the setting of a file and of its objects changes.
    changing_settings: Mutex<()>,
    /// By number.
    segments: RwLock<Vec<Option<Arc<Segment>>>>,
    log: Mutex<Log>,
    maintenance: Mutex<Maintenance>,
    /// The sequence that the last durable checkpoint contains.
    checkpointed: AtomicU64,
    /// Free segments, readable without the lock of the log.
    free_segments: AtomicU64,
    /// Segments of the keep queue, readable without the lock of the log.
    keep_segments: AtomicU64,
    pages: AtomicI64,
    segment_pages: Arc<SegmentPages>,
    counters: Counters,
    filler: Filler,
    usage: Usage,
}

impl FlashCache {
    fn mode(&self) -> Mode {
        match self.mode.load(Ordering::Acquire) {
            0 => Mode::On,
            1 => Mode::Failing,
            _ => Mode::Off,
        }
    }

    pub fn disks(&self) -> &[Arc<dyn Disk>] {
        &self.disks
    }

    /// Makes durable that no later start uses a flash cache of the group.
    pub fn disown(cell_disks: &dyn CellDisks) -> Result<()> {
        notes::forget(cell_disks)
    }

    /// Makes durable that a disk which joins the group, or returns, names no flash cache: while the disk was absent, the
    /// other disks may have disowned the cache that the disk names.
    pub fn disown_on(disk: &dyn Disk) -> Result<()> {
        notes::clear(disk)
    }

    pub fn is_on(&self) -> bool {
        self.mode() == Mode::On
    }

    /// Returns the index of an object; with `create` also of one that is not cached.
    fn object(&self, object: Object, create: bool) -> Option<Arc<CachedObject>> {
        let mut objects = self.objects.lock();
        let new = || {
            let cached = CachedObject::new(object, self.segment_pages.clone(), self.intents.written());
            cached.set_setting(self.setting(object.ino));
            Arc::new(cached)
        };
        match create {
            true => Some(objects.entry(object).or_insert_with(new).clone()),
            false => objects.get(&object).cloned(),
        }
    }

    fn add_pages(&self, count: i64) {
        self.pages.fetch_add(count, Ordering::Relaxed);
    }

    /// Switches the cache off after a flash disk failed. Reads use the disks of the group, which have everything.
    fn fail(&self, error: &io::Error) {
        let (on, failing) = (Mode::On as u8, Mode::Failing as u8);
        if self.mode.compare_exchange(on, failing, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        let disks: Vec<String> = self.disks.iter().map(|disk| disk.path().display().to_string()).collect();
        let advice = match error.kind() {
            io::ErrorKind::StorageFull => "free space on the flash disks, or lower flash_cache_size",
            _ => "replace the flash disk",
        };
        ::log::error!(
            "the flash cache on {} is switched off: {error}; no data are lost, reads use the cell disks; {advice} and \
             restart the cell",
            disks.join(", ")
        );
        self.filler.clear(self);
        if let Err(error) = self.revoke() {
            ::log::error!(
                "{error}; changes of files fail until the cell disks record that the flash cache is not used"
            );
        }
    }

    /// Switches the cache off at the operator's request. Reads use the disks of the group, which have everything. After an error,
    /// changes of files are refused until the cell disks record it.
    pub fn switch_off(&self) -> Result<()> {
        let (on, failing) = (Mode::On as u8, Mode::Failing as u8);
        let _ = self.mode.compare_exchange(on, failing, Ordering::AcqRel, Ordering::Acquire);
        self.filler.clear(self);
        self.revoke()?;
        self.is_dropped.store(true, Ordering::Release);
        ::log::info!("the flash cache was dropped");
        Ok(())
    }

    pub fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }

    /// Makes durable that no later start uses what is on the flash disks. Until then, changes of files are refused.
    fn revoke(&self) -> Result<()> {
        let _only_one = self.revoking.lock();
        if self.mode() == Mode::Off {
            return Ok(());
        }
        notes::revoke(self.cell_disks.as_ref())?;
        self.mode.store(Mode::Off as u8, Ordering::Release);
        Ok(())
    }

    /// Returns whether [`Self::begin_change`] would wait.
    fn change_waits(&self, object: Option<&CachedObject>, pages: &Range<u32>) -> bool {
        match self.mode() {
            Mode::On => object.is_some_and(|object| object.needs_intent(pages)),
            Mode::Failing => true,
            Mode::Off => false,
        }
    }

    /// Begins a change of pages on disk: removes them from the cache, and makes an intent durable if the log may contain
    /// them. None if the cache is off. Fails on a thread that must not wait.
    fn begin_change(&self, object: &CachedObject, pages: &Range<u32>) -> io::Result<Option<Change>> {
        loop {
            match self.mode() {
                Mode::On => {}
                Mode::Failing => {
                    waiting::check()?;
                    self.revoke().map_err(|error| io::Error::other(error.to_string()))?;
                    return Ok(None);
                }
                Mode::Off => return Ok(None),
            }
            match object.begin_change(pages) {
                Ok((change, removed)) => {
                    self.add_pages(removed);
                    return Ok(Some(change));
                }
                Err(NeedsIntent(regions)) => {
                    waiting::check()?;
                    if let Err(error) = self.log_intent(object, &regions) {
                        self.fail(&error);
                    }
                }
            }
        }
    }

    /// Makes durable that no page of the regions counts after a crash.
    fn log_intent(&self, object: &CachedObject, regions: &Range<u32>) -> io::Result<()> {
        let piece = Piece::Intent { object: object.object, first: regions.start, last: regions.end - 1 };
        loop {
            let (sequence, free) = {
                let mut log = self.log.lock();
                let Some(queue) = log.queue_for_intent() else {
                    drop(log);
                    self.make_space(&mut self.maintenance.lock())?;
                    continue;
                };
                log.append(queue, std::slice::from_ref(&piece), &[], |segment| self.add_segment(segment))?;
                log.flush()?;
                log.intents_since_checkpoint += 1;
                (log.last_sequence(), log.free_segments())
            };
            if free < eviction::FREE_MIN {
                self.filler.wake();
            }
            self.counters.intents.fetch_add(1, Ordering::Relaxed);
            // Before the change: a flash cache without the intent must not count. Without a lock of the cache, because a cell
            // disk may fail.
            self.note_intent(sequence)?;
            if object.set_intent(regions, sequence) {
                return Ok(());
            }
        }
    }

    /// Lets the cell disks record that changes rely on the records up to a sequence.
    fn note_intent(&self, sequence: u64) -> io::Result<()> {
        self.intents.write(self.cell_disks.as_ref(), sequence).map_err(|error| io::Error::other(error.to_string()))
    }

    /// Makes durable that changes rely on the records up to a sequence.
    fn sync_intent(&self, sequence: u64) -> io::Result<()> {
        self.intents.sync(self.cell_disks.as_ref(), sequence).map_err(|error| io::Error::other(error.to_string()))
    }

    fn add_segment(&self, segment: &Arc<Segment>) {
        self.segments.write()[segment.number as usize] = Some(segment.clone());
    }

    fn segment(&self, number: u32) -> Option<Arc<Segment>> {
        self.segments.read().get(number as usize)?.clone()
    }

    /// Reads pages of an object from flash, from `first` on, that were found at `locations`. `offset` is the offset in the first
    /// page. Returns false if a page was evicted or changed meanwhile.
    fn read(
        &self,
        (object, first, locations): (&CachedObject, u32, &[Location]),
        buffer: &mut [u8],
        offset: usize,
        direct: bool,
    ) -> io::Result<bool> {
        let blocks = (PAGE_BYTES / BLOCK) as u32;
        let is_next = |one: &Location, next: &Location| one.place() + blocks == next.place();
        let runs = || locations.chunk_by(is_next);
        let Some(segments) = runs().map(|run| self.segment(run[0].segment())).collect::<Option<Vec<_>>>() else {
            return Ok(false);
        };
        // A segment may have been evicted, and its number used again, before it was looked up here. Pages that are still at
        // their places are in these segments, and a segment that is evicted from now on is retired first.
        if !object.are_at(first, locations) {
            return Ok(false);
        }
        let (mut at, mut skipped) = (0, offset);
        for (run, segment) in runs().zip(&segments) {
            let start = u64::from(run[0].block()) * BLOCK as u64 + skipped as u64;
            let length = (run.len() * PAGE_BYTES - skipped).min(buffer.len() - at);
            let part = &mut buffer[at..at + length];
            let count = match direct {
                true => segment.file.read_direct(part, start),
                false => segment.file.read_at(part, start),
            };
            if segment.is_retired() {
                return Ok(false);
            }
            if count? < length {
                return Err(io::Error::other(format!("segment {} ends before a page", segment.number)));
            }
            (at, skipped) = (at + length, 0);
        }
        Ok(segments.iter().all(|segment| !segment.is_retired()))
    }

    /// Removes pages in a byte range of an object that the cell disks may have otherwise. Before [`Self::start`].
    pub fn forget(&self, object: Object, range: &Range<u64>) {
        if let Some(cached) = self.object(object, false) {
            self.add_pages(cached.forget(range.start / REGION_BYTES..range.end.div_ceil(REGION_BYTES)));
        }
    }

    /// Lets reads fill the cache: from now on they return what the cell disks have.
    pub fn begin_fills(&self) {
        self.fills.store(true, Ordering::Release);
    }

    /// Returns whether a read of this length that misses fills the cache: small reads always, large ones while there are
    /// free segments, or for a file that is kept while the quota is not used up. The limit of the database is not considered.
    fn is_wanted(&self, object: &CachedObject, length: usize) -> bool {
        if !self.fills.load(Ordering::Acquire) {
            return false;
        }
        match object.setting() {
            FlashSetting::None => false,
            _ if length <= SMALL_BYTES_MAX => true,
            FlashSetting::Keep => self.keep_segments.load(Ordering::Relaxed) + 1 < self.keep_segments_max(),
            FlashSetting::Default => self.free_segments.load(Ordering::Relaxed) > eviction::FREE_MIN as u64 + 1,
        }
    }

    /// Stops the background thread without changing anything, like a crash.
    pub fn stop(&self) {
        self.filler.stop(self);
    }

    /// Writes a checkpoint of everything and stops. The files were synced, and nothing changes them any more. Returns an error if
    /// the cell disks cannot record the checkpoint.
    pub fn close(&self) -> Result<()> {
        self.filler.stop(self);
        if !self.is_on() {
            return Ok(());
        }
        match self.checkpoint(&mut self.maintenance.lock()) {
            Ok(()) => {
                let sequence = self.checkpointed.load(Ordering::Acquire);
                notes::write(self.cell_disks.as_ref(), self.generation, Some(sequence))
            }
            Err(error) => {
                self.fail(&error);
                Ok(())
            }
        }
    }
}

fn could_not(verb: &str, disk: &dyn Disk) -> String {
    format!("could not {verb} the flash disk {}", disk.path().display())
}
