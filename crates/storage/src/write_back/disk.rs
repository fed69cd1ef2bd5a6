//! A stripe of the disk group whose small writes go to the write-back log.

use super::WriteBack;
use super::format::{PAGE, PAGE_BYTES};
use super::log::{Log, Purpose, Refused};
use super::object::{DirtyObject, State};
use crate::disk::{Check, Condition, DiskFile, Examined, FileStamp, FileStore, StartedRead, Stream};
use crate::flash::{FlashSetting, Object};
use crate::request::{IoKind, SMALL_BYTES_MAX, current};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Pages with higher numbers are written through.
const PAGES_MAX: u64 = u32::MAX as u64;

/// Returns the pages that a byte range touches.
fn pages_of(range: &Range<u64>) -> Range<u32> {
    let page = |number: u64| number.min(PAGES_MAX) as u32;
    page(range.start / PAGE)..page(range.end.div_ceil(PAGE))
}

fn is_redo() -> bool {
    current().kind == IoKind::Redo
}

#[derive(Debug)]
pub struct WriteBackDisk {
    inner: Arc<dyn FileStore>,
    stripe: u16,
    write_back: Arc<WriteBack>,
}

impl WriteBackDisk {
    pub fn new(inner: Arc<dyn FileStore>, stripe: u16, write_back: Arc<WriteBack>) -> Self {
        write_back.stripes.write().insert(stripe, inner.clone());
        Self { inner, stripe, write_back }
    }

    /// Returns whether a write of a file may go to the log: if its pages may become dirty, or one is dirty.
    fn uses_log(&self, log: &Log, ino: u64) -> bool {
        let object =
            || self.write_back.objects.lock().get(&Object { stripe: self.stripe, ino, stream: Stream::Data }).cloned();
        // The state is locked while a record of the file is written.
        let has_dirty = |object: &Arc<DirtyObject>| object.state.try_lock().is_none_or(|state| !state.pages.is_empty());
        let is_taken = log.takes_pages() && (log.takes_redo() || !is_redo());
        is_taken || object().as_ref().is_some_and(has_dirty)
    }
}

impl FileStore for WriteBackDisk {
    fn path(&self) -> &Path {
        self.inner.path()
    }
    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let Some(inner) = self.inner.open(ino, stream, create)? else { return Ok(None) };
        if stream != Stream::Data {
            return Ok(Some(inner));
        }
        let (object, write_back) = (Object { stripe: self.stripe, ino, stream }, self.write_back.clone());
        Ok(Some(Arc::new(WriteBackFile { inner, object: write_back.object(object), write_back })))
    }
    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)> {
        self.inner.measure(ino, stream)
    }
    fn stamp(&self, ino: u64, stream: Stream) -> io::Result<Option<FileStamp>> {
        self.inner.stamp(ino, stream)
    }
    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()> {
        let key = Object { stripe: self.stripe, ino, stream };
        let object = self.write_back.objects.lock().get(&key).cloned();
        let Some(object) = object else { return self.inner.remove(ino, stream) };
        self.write_back.with_space(|| {
            let _cleaning = object.cleaning.lock();
            // A new file may get the inode number.
            self.write_back.drop_from(&object, 0)?;
            object.state.lock().is_removed = true;
            Ok(self.inner.remove(ino, stream)?)
        })?;
        self.write_back.objects.lock().remove(&key);
        Ok(())
    }
    fn sync_name(&self, ino: u64) -> io::Result<()> {
        self.inner.sync_name(ino)
    }
    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>> {
        self.inner.backing_files()
    }
    fn sync_everything(&self) -> io::Result<()> {
        if let Some(log) = self.write_back.log() {
            if let Err(error) = self.write_back.note_dirty_files(log) {
                ::log::warn!("{error}; all pages of the write-back log are written to the cell disks instead");
                self.write_back.destage()?;
            }
            log.flush_all()?;
        }
        self.inner.sync_everything()
    }
    fn has_copies(&self) -> bool {
        self.inner.has_copies()
    }
    fn write_waits(&self, ino: u64, stream: Stream, range: &Range<u64>) -> bool {
        let log_waits = || self.write_back.log().is_some_and(|log| self.uses_log(log, ino) && log.writes_wait());
        stream == Stream::Data && log_waits() || self.inner.write_waits(ino, stream, range)
    }
}

#[derive(Debug)]
struct WriteBackFile {
    inner: Arc<dyn DiskFile>,
    object: Arc<DirtyObject>,
    write_back: Arc<WriteBack>,
}

impl WriteBackFile {
    fn write_through(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let result = self.inner.write_at(data, offset);
        // After an error, too: a part may have arrived. After the write: a sync that began before does not cover it.
        self.object.require_sync();
        result
    }

    /// Returns whether a write may make pages dirty that are not dirty yet: a small one of whole pages for which the cell disks
    /// have space.
    fn is_wanted(&self, log: &Log, range: &Range<u64>) -> io::Result<bool> {
        let length = range.end - range.start;
        Ok(range.start.is_multiple_of(PAGE)
            && length.is_multiple_of(PAGE)
            && length <= SMALL_BYTES_MAX as u64
            && (log.takes_redo() || !is_redo())
            && self.write_back.cache.setting(self.object.object.ino) != FlashSetting::None
            && self.write_back.cache.serves_database()
            && range.end <= self.inner.len()?
            && !self.has_hole(range)?)
    }

    fn has_hole(&self, range: &Range<u64>) -> io::Result<bool> {
        for start in range.clone().step_by(PAGE_BYTES) {
            if self.inner.is_hole(start, PAGE)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes pages to the log that are dirty afterwards. Returns all others.
    fn write_dirty(&self, data: &[u8], offset: u64) -> Result<Vec<Range<u32>>, Refused> {
        let range = offset..offset + data.len() as u64;
        let pages = pages_of(&range);
        let mut through = Vec::new();
        let mut state = self.object.state.lock();
        // With the state locked: the log in which pages are dirty does not end meanwhile.
        let Some(log) = self.write_back.log().filter(|_| !state.is_removed) else { return Ok(vec![pages]) };
        if state.has_failed_record && !log.is_writable() && log.is_alive() {
            let message = "an earlier write of the file to the write-back log failed; restart the cell";
            return Err(io::Error::other(message).into());
        }
        // While the log is nearly full, a commit waits for one write to the cell disks, not for a destage.
        let is_taken = log.takes_pages() && !(is_redo() && log.is_nearly_full());
        let is_wanted = (is_taken || is_redo()) && self.is_wanted(log, &range)?;
        let all = is_wanted && is_taken;
        let is_dirty: Vec<bool> = pages.clone().map(|page| all || state.pages.contains_key(&page)).collect();
        let mut first = pages.start;
        for run in is_dirty.chunk_by(|one, next| one == next) {
            let run_pages = first..first + run.len() as u32;
            match run[0] {
                true => self.write_run(log, &mut state, &run_pages, (data, offset))?,
                false => through.push(run_pages.clone()),
            }
            first = run_pages.end;
        }
        if is_wanted && !through.is_empty() {
            self.write_back.counters.redo_skips.fetch_add(1, Ordering::Relaxed);
        }
        Ok(through)
    }

    /// Writes pages to the log that are dirty afterwards, and all others to the cell disks.
    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let range = offset..offset + data.len() as u64;
        let mut through = Vec::new();
        self.write_back.with_space(|| {
            through = self.write_dirty(data, offset)?;
            Ok(())
        })?;
        // A destage makes no space on the cell disks.
        for run in through {
            let start = offset.max(u64::from(run.start) * PAGE);
            let end = range.end.min(u64::from(run.end) * PAGE);
            self.write_through(&data[(start - offset) as usize..(end - offset) as usize], start)?;
        }
        Ok(())
    }

    /// Writes successive pages to the log: dirty ones that the write covers in part with the bytes that they have.
    fn write_run(
        &self,
        log: &Log,
        state: &mut State,
        pages: &Range<u32>,
        (data, offset): (&[u8], u64),
    ) -> Result<(), Refused> {
        let (end, is_redo) = (offset + data.len() as u64, is_redo());
        if !is_redo {
            // Before the pages are dirty, and before a sync of them.
            self.object.needs_note.store(true, Ordering::Release);
        }
        let purpose = if is_redo { Purpose::Redo } else { Purpose::Pages };
        for first in pages.clone().step_by(log.pages_max()) {
            let batch = first..pages.end.min(first + log.pages_max() as u32);
            let mut payload = vec![0; batch.len() * PAGE_BYTES];
            for (page, bytes) in batch.clone().zip(payload.chunks_exact_mut(PAGE_BYTES)) {
                let start = u64::from(page) * PAGE;
                let part = offset.max(start)..end.min(start + PAGE);
                if part.end - part.start < PAGE {
                    let place = &state.pages[&page];
                    log.read(&place.segment, bytes, place.offset, false)?;
                }
                let within = (part.start - start) as usize..(part.end - start) as usize;
                bytes[within].copy_from_slice(&data[(part.start - offset) as usize..(part.end - offset) as usize]);
            }
            let piece = super::format::Piece::Pages {
                object: self.object.object,
                first: batch.start,
                count: batch.len() as u32,
            };
            state.has_failed_record = true;
            let appended = log.append(purpose, &[piece], &payload);
            state.has_failed_record = matches!(appended, Err(Refused::Failed(_)));
            let appended = appended?;
            let (count, added) = (batch.len() as u64, state.add(batch, &appended));
            let counters = &self.write_back.counters;
            counters.dirty_pages.fetch_add(added, Ordering::Relaxed);
            counters.written_pages.fetch_add(count, Ordering::Relaxed);
            counters.write_requests.fetch_add(1, Ordering::Relaxed);
            counters.overwrite_requests.fetch_add(u64::from(added == 0), Ordering::Relaxed);
            counters.overwritten_pages.fetch_add(count - added, Ordering::Relaxed);
            if is_redo {
                counters.redo_pages.fetch_add(count, Ordering::Relaxed);
                counters.redo_requests.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn read_inner(&self, buffer: &mut [u8], offset: u64, direct: bool) -> io::Result<usize> {
        match direct {
            true => self.inner.read_direct(buffer, offset),
            false => self.inner.read_at(buffer, offset),
        }
    }

    /// Reads dirty pages from flash, and all others from below.
    fn read(&self, buffer: &mut [u8], offset: u64, direct: bool) -> io::Result<usize> {
        let range = offset..offset.saturating_add(buffer.len() as u64);
        let pages = pages_of(&range);
        'again: loop {
            // Before the read below: pages that become clean meanwhile are there.
            let dirty = self.object.dirty(pages.clone())?;
            let Some(log) = self.write_back.last_log().filter(|_| !dirty.is_empty()) else {
                return self.read_inner(buffer, offset, direct);
            };
            // Dirty pages are within the length of the file.
            let count = match dirty.len() == pages.len() {
                true => buffer.len(),
                false => self.read_inner(buffer, offset, direct)?,
            };
            for (page, place) in &dirty {
                let start = u64::from(*page) * PAGE;
                let part = offset.max(start)..(offset + count as u64).min(start + PAGE);
                if part.is_empty() {
                    continue;
                }
                let bytes = &mut buffer[(part.start - offset) as usize..(part.end - offset) as usize];
                if let Err(error) = log.read(&place.segment, bytes, place.offset + part.start - start, direct) {
                    // The segment may have been removed since.
                    if self.object.is_at(*page, place)? {
                        return Err(error);
                    }
                    continue 'again;
                }
            }
            return Ok(count);
        }
    }
}

impl DiskFile for WriteBackFile {
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
        self.inner.prefetch(ranges);
    }
    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(buffer, offset, true)
    }
    fn read_medium(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_medium(buffer, offset)
    }
    fn start_read(&self, read: StartedRead) {
        if !self.object.is_dirty() {
            return self.inner.start_read(read);
        }
        let StartedRead { length, offset, direct, done } = read;
        let mut bytes = crate::disk::AlignedBytes::new(length);
        let count = self.read(&mut bytes, offset, direct);
        done(count.map(|count| (bytes, count)));
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        match self.write_back.log() {
            Some(log) if !data.is_empty() && offset.saturating_add(data.len() as u64) <= PAGES_MAX * PAGE => {
                self.write(data, offset)?;
                self.write_back.destage_if_due(log);
                Ok(())
            }
            _ => self.write_through(data, offset),
        }
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.write_back.with_space(|| {
            let _cleaning = self.object.cleaning.lock();
            let (first, end) = ((length / PAGE) as u32, length.div_ceil(PAGE) as u32);
            self.write_back.clean(&self.object, first..end)?;
            let result = self.inner.set_len(length);
            self.object.require_sync();
            result?;
            if !self.object.dirty(end..u32::MAX)?.is_empty() {
                // Until then, a crash may bring back the length, and with it the pages.
                self.object.sync_internally(|| self.inner.sync())?;
                self.write_back.drop_from(&self.object, end)?;
            }
            Ok(())
        })
    }
    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> io::Result<()> {
        let result = self.inner.allocate(offset, length, keep_size);
        self.object.require_sync();
        result
    }
    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.write_back.with_space(|| {
            let _cleaning = self.object.cleaning.lock();
            self.write_back.clean(&self.object, pages_of(&(offset..offset.saturating_add(length))))?;
            let result = self.inner.punch(offset, length);
            self.object.require_sync();
            Ok(result?)
        })
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
        let mut condition = Condition::Sound;
        self.write_back.with_space(|| {
            let _cleaning = self.object.cleaning.lock();
            self.write_back.clean(&self.object, pages_of(range))?;
            condition = self.inner.repair(range, check)?;
            Ok(())
        })?;
        Ok(condition)
    }
    fn sync(&self) -> io::Result<()> {
        if let Some(log) = self.write_back.log() {
            self.write_back.note_file(log, &self.object)?;
            let last = self.object.state.lock().last;
            log.flush(last)?;
            self.write_back.destage_if_due(log);
        }
        self.object.sync(|| self.inner.sync())
    }
}
