//! A stripe of the disk group behind the flash cache.

use super::FlashCache;
use super::filler::Fill;
use super::format::Object;
use super::index::{CachedObject, Change, PAGES_MAX, Reservation, pages_of, parts};
use super::location::{PAGE, PAGE_BYTES};
use super::log::Log;
use crate::disk::{Check, Condition, DiskFile, Examined, FileStamp, FileStore, StartedRead, Stream, no_wait};
use crate::request::SMALL_BYTES_MAX;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Everything from an offset on.
const END: u64 = u64::MAX;

/// A disk whose data and units of files are cached in flash.
#[derive(Debug)]
pub struct FlashCachedDisk {
    inner: Arc<dyn FileStore>,
    stripe: u16,
    cache: Arc<FlashCache>,
}

impl FlashCachedDisk {
    pub fn new(inner: Arc<dyn FileStore>, stripe: u16, cache: Arc<FlashCache>) -> Self {
        Self { inner, stripe, cache }
    }

    fn object(&self, ino: u64, stream: Stream, create: bool) -> Option<Arc<CachedObject>> {
        match stream {
            Stream::Data | Stream::Units => self.cache.object(Object { stripe: self.stripe, ino, stream }, create),
            Stream::Redo0 | Stream::Redo1 => None,
        }
    }
}

impl FileStore for FlashCachedDisk {
    fn path(&self) -> &Path {
        self.inner.path()
    }
    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let Some(inner) = self.inner.open(ino, stream, create)? else { return Ok(None) };
        Ok(Some(match self.object(ino, stream, true) {
            Some(object) => Arc::new(CachedFile { inner, object, cache: self.cache.clone() }),
            None => inner,
        }))
    }
    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)> {
        self.inner.measure(ino, stream)
    }
    fn stamp(&self, ino: u64, stream: Stream) -> io::Result<Option<FileStamp>> {
        self.inner.stamp(ino, stream)
    }
    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()> {
        match self.object(ino, stream, false) {
            None => self.inner.remove(ino, stream)?,
            Some(object) => {
                let _no_repair = object.lock_out_repairs()?;
                let change = self.cache.begin_change(&object, &pages_of(&(0..END)))?;
                let _changing = Changing { object: &object, change };
                let removed = self.inner.remove(ino, stream);
                self.cache.add_pages(object.refuse());
                removed?;
                self.cache.objects.lock().remove(&object.object);
            }
        }
        if stream == Stream::Data {
            self.cache.forget_setting(ino);
        }
        Ok(())
    }
    fn sync_name(&self, ino: u64) -> io::Result<()> {
        self.inner.sync_name(ino)
    }
    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>> {
        self.inner.backing_files()
    }
    fn sync_everything(&self) -> io::Result<()> {
        self.inner.sync_everything()
    }
    fn has_copies(&self) -> bool {
        self.inner.has_copies()
    }
    fn write_waits(&self, ino: u64, stream: Stream, range: &Range<u64>) -> bool {
        let object = self.object(ino, stream, false);
        self.cache.change_waits(object.as_deref(), &pages_of(range)) || self.inner.write_waits(ino, stream, range)
    }
}

#[derive(Debug)]
struct CachedFile {
    inner: Arc<dyn DiskFile>,
    object: Arc<CachedObject>,
    cache: Arc<FlashCache>,
}

/// Ends a change when dropped, also after an error: the pages are not in flash then.
pub(super) struct Changing<'a> {
    pub object: &'a CachedObject,
    pub change: Option<Change>,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if let Some(change) = self.change.take() {
            self.object.end_change(change, 0..0, 1);
        }
    }
}

/// Reservations of fills, which end without a fill when dropped.
struct Reserved<'a> {
    file: &'a CachedFile,
    reservations: Vec<Reservation>,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        for reservation in self.reservations.drain(..) {
            self.file.object.end_fill(reservation, None);
        }
    }
}

impl Reserved<'_> {
    /// Fills the cache with the whole pages among `bytes`, which begin at `start`, a multiple of the page size.
    fn fill(mut self, bytes: &[u8], start: u64, is_rewrite: bool) {
        let first = (start / PAGE) as u32;
        for reservation in std::mem::take(&mut self.reservations) {
            let at = |page: u32| (page - first) as usize * PAGE_BYTES;
            let object = self.file.object.clone();
            match bytes.get(at(reservation.pages.start)..at(reservation.pages.end)) {
                Some(pages) => {
                    self.file.cache.queue(Fill { object, reservation, bytes: pages.to_vec(), is_rewrite });
                }
                // The file ends before the last page.
                None => drop(object.end_fill(reservation, None)),
            }
        }
    }
}

impl CachedFile {
    fn changing(&self, range: Range<u64>) -> io::Result<Changing<'_>> {
        let change = self.cache.begin_change(&self.object, &pages_of(&range))?;
        Ok(Changing { object: &self.object, change })
    }

    /// Takes the result of a change. After a failed one the copies of the bytes may differ, and the cell disks may return
    /// others later than a read now, so the object is not cached any more. The change has not ended yet.
    fn changed(&self, result: io::Result<()>) -> io::Result<()> {
        if result.is_err() {
            self.cache.add_pages(self.object.refuse());
        }
        result
    }

    fn pages_max(&self) -> u32 {
        Log::pages_max(self.cache.segment_bytes) as u32
    }

    /// Reserves fills of pages. Pages that the range does not contain whole are left out.
    fn reserve(&self, pages: Range<u32>) -> Reserved<'_> {
        let parts = parts(pages, self.pages_max());
        let reservations = parts.flat_map(|pages| self.object.reserve(pages)).collect();
        Reserved { file: self, reservations }
    }

    /// Returns the bytes of a range if all are in flash.
    fn read_cached(&self, range: &Range<u64>) -> Option<Vec<u8>> {
        if !self.cache.is_on() || range.end > PAGES_MAX * PAGE {
            return None;
        }
        let (pages, mut bytes) = (pages_of(range), vec![0; (range.end - range.start) as usize]);
        let found = self.object.find(pages.clone())?;
        let place = (&*self.object, pages.start, &found[..]);
        match self.cache.read(place, &mut bytes, (range.start % PAGE) as usize, false) {
            Ok(true) => Some(bytes),
            Ok(false) | Err(_) => None,
        }
    }

    /// Writes the bytes that flash had over damaged ones on the cell disks.
    fn rewrite(&self, range: &Range<u64>, bytes: &[u8]) -> io::Result<()> {
        self.changed(self.inner.write_at(bytes, range.start))?;
        self.inner.sync()?;
        let (Range { start, end }, Object { ino, .. }) = (range, self.object.object);
        ::log::warn!("repaired bytes {start} to {end} of a file of inode {ino} from the flash cache");
        Ok(())
    }

    fn read_inner(&self, buffer: &mut [u8], offset: u64, direct: bool) -> io::Result<usize> {
        match direct {
            true => self.inner.read_direct(buffer, offset),
            false => self.inner.read_at(buffer, offset),
        }
    }

    fn read(&self, buffer: &mut [u8], offset: u64, direct: bool) -> io::Result<usize> {
        let range = offset..offset.saturating_add(buffer.len() as u64);
        if !self.cache.is_on() || buffer.is_empty() || range.end > PAGES_MAX * PAGE {
            return self.read_inner(buffer, offset, direct);
        }
        let pages = pages_of(&range);
        self.object.used_by_current();
        if let Some(locations) = self.object.find(pages.clone()) {
            match self.cache.read((&self.object, pages.start, &locations), buffer, (offset % PAGE) as usize, direct) {
                Ok(true) => {
                    self.cache.counters.hit(&self.object, buffer.len());
                    return Ok(buffer.len());
                }
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && no_wait::is_on() => return Err(error),
                Err(error) => self.cache.fail(&error),
            }
        }
        self.read_and_fill(pages, buffer, offset, direct)
    }

    fn read_and_fill(&self, pages: Range<u32>, buffer: &mut [u8], offset: u64, direct: bool) -> io::Result<usize> {
        // Bytes that are read without waiting are in the operating system's memory.
        if no_wait::is_on() {
            return self.read_inner(buffer, offset, direct);
        }
        self.cache.counters.miss(&self.object, buffer.len());
        if !self.cache.is_wanted(&self.object, buffer.len()) {
            self.cache.counters.skip(&self.object, buffer.len());
            return self.read_inner(buffer, offset, direct);
        }
        let start = u64::from(pages.start) * PAGE;
        let length = pages.len() * PAGE_BYTES;
        let is_widened = (start, length) != (offset, buffer.len()) && !direct && length <= SMALL_BYTES_MAX;
        if start != offset && !is_widened {
            return self.read_inner(buffer, offset, direct);
        }
        // A fill contains whole pages.
        if !self.cache.admits(length as u64) {
            self.cache.counters.skip(&self.object, buffer.len());
            self.cache.counters.limit_skips.fetch_add(1, Ordering::Relaxed);
            return self.read_inner(buffer, offset, direct);
        }
        // Before the read: a change that begins meanwhile makes the fill void.
        let reserved = self.reserve(pages);
        if !is_widened {
            let count = self.read_inner(buffer, offset, direct)?;
            reserved.fill(&buffer[..count], start, false);
            return Ok(count);
        }
        // Whole pages are as fast to read as their parts.
        let mut wide = vec![0; length];
        let read = self.inner.read_at(&mut wide, start)?;
        let skipped = (offset - start) as usize;
        let count = read.saturating_sub(skipped).min(buffer.len());
        buffer[..count].copy_from_slice(&wide[skipped..skipped + count]);
        reserved.fill(&wide[..read], start, false);
        Ok(count)
    }
}

impl DiskFile for CachedFile {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn lengths(&self) -> io::Result<(u64, u64)> {
        self.inner.lengths()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(buffer, offset, false)
    }
    fn prefetch(&self, ranges: &[Range<u64>]) {
        // Reads of ranges that are in flash do not use the cell disks.
        let is_cached = |range: &Range<u64>| {
            self.cache.is_on() && range.end <= PAGES_MAX * PAGE && self.object.has_all(pages_of(range))
        };
        let ranges: Vec<Range<u64>> = ranges.iter().filter(|range| !is_cached(range)).cloned().collect();
        self.inner.prefetch(&ranges);
    }
    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(buffer, offset, true)
    }
    fn read_medium(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_medium(buffer, offset)
    }
    fn start_read(&self, read: StartedRead) {
        self.inner.start_read(read);
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let range = offset..offset.saturating_add(data.len() as u64);
        let was_cached = self.cache.is_on() && self.object.has_any(pages_of(&range));
        let _no_repair = self.object.lock_out_repairs()?;
        let mut changing = self.changing(range.clone())?;
        self.changed(self.inner.write_at(data, offset))?;
        let start = offset.next_multiple_of(PAGE);
        let whole = (start / PAGE) as u32..(range.end.min(PAGES_MAX * PAGE) / PAGE) as u32;
        if was_cached
            && !whole.is_empty()
            && let Some(change) = changing.change.take()
        {
            // Before another change can begin, whose bytes would be newer.
            let reservations = self.object.end_change(change, whole, self.pages_max());
            let reserved = Reserved { file: self, reservations };
            reserved.fill(&data[(start - offset) as usize..], start, true);
        }
        Ok(())
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        let _no_repair = self.object.lock_out_repairs()?;
        let _changing = self.changing(length..END)?;
        self.changed(self.inner.set_len(length))
    }
    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> io::Result<()> {
        // Changes no byte of the file.
        self.inner.allocate(offset, length, keep_size)
    }
    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let _no_repair = self.object.lock_out_repairs()?;
        let _changing = self.changing(offset..offset.saturating_add(length))?;
        self.changed(self.inner.punch(offset, length))
    }
    fn is_hole(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.inner.is_hole(offset, length)
    }
    fn has_unwritten_space(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.inner.has_unwritten_space(offset, length)
    }
    fn examine(&self, range: &Range<u64>, check: &Check<'_>) -> io::Result<Examined> {
        self.inner.examine(range, check)
    }
    fn repair(&self, range: &Range<u64>, check: &Check<'_>) -> io::Result<Condition> {
        let _no_change = self.object.lock_out_changes();
        let cached = self.read_cached(range);
        // The damaged copy may be the one in flash.
        let _changing = self.changing(range.clone())?;
        let condition = self.inner.repair(range, check);
        let is_damaged = condition.as_ref().map_or(true, |condition| *condition == Condition::Damaged);
        let Some(cached) = cached.filter(|bytes| is_damaged && (check.is_valid)(bytes) && (check.still_applies)())
        else {
            return condition;
        };
        self.rewrite(range, &cached)?;
        Ok(Condition::Repaired)
    }
    fn sync(&self) -> io::Result<()> {
        let syncing = self.object.begin_sync();
        if self.cache.is_on()
            && let Err(error) = self.cache.sync_intent(self.object.intent())
        {
            self.cache.fail(&error);
        }
        let synced = self.inner.sync();
        self.cache.add_pages(self.object.end_sync(syncing, synced.is_ok()));
        synced
    }
}
