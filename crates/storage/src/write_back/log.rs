//! The log: segments of records, on each flash disk the same ones.
//!
//! Invariants:
//! - Nothing is written twice to the same place, and no segment number is used twice, so bytes that were read at a place are
//!   those of the page version that was written there.
//! - A record is durable on all flash disks that the cell disks name before a sync of a file relies on it. A flash disk
//!   whose operation fails leaves the notes of the cell disks first.
//! - A segment is removed after a durable record says that its records do not count; that record follows a flush of all
//!   records that replaced pages of the segment.

use super::format::{BLOCK, FilesNote, Note, PAGE, PAGE_BYTES, PAGES_MAX, Piece, RecordHeader};
use super::{WriteBackOptions, WriteBackStats, notes};
use crate::disk::pool::{Pool, waiting_until};
use crate::disk::{Disk, DiskFile, Stream};
use crate::flash::{CellDisks, Generation};
use crate::request::Expedited;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// Inode numbers of segments on flash disks begin here, above those of the flash cache.
const SEGMENT_INO_FIRST: u64 = 1 << 40;
/// After a flash disk had no space, pages become dirty again after this time, in nanoseconds.
const SPACE_RETRY_DELAY: i64 = 5_000_000_000;
/// An operation of the last flash disk fails if the disk has not answered after this time. Longer than the kernel repeats an operation
/// of a device.
const LAST_DISK_PATIENCE: Duration = Duration::from_secs(300);

/// What a record is for. A destage must find space for its records, whatever was written before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Destage,
    /// Pages that do not exist any more.
    Removal,
    /// Pages of redo: a commit that rewrites a dirty page of redo does not wait for a destage because other pages filled the log.
    Redo,
    Pages,
}

/// Returns whether a file of a flash disk is a segment of the log.
pub fn is_segment(ino: u64, stream: Stream) -> bool {
    ino >= SEGMENT_INO_FIRST && stream == Stream::Data
}

#[derive(Debug)]
pub struct Segment {
    ino: u64,
    /// The sequence of the first record.
    first: u64,
    /// By number of the flash disk; None where the segment could not be created.
    files: Vec<Option<Arc<dyn DiskFile>>>,
    /// Pages of the index.
    live: AtomicU32,
    /// Whether its names are durable.
    is_named: AtomicBool,
}

impl Segment {
    /// Counts that the index does not name one of the segment's pages any more.
    pub fn remove_live(&self) {
        self.live.fetch_sub(1, Ordering::AcqRel);
    }
}

#[derive(Debug)]
struct Tail {
    /// Sequence of the next record.
    next: u64,
    /// No record with a lower sequence counts.
    oldest: u64,
    next_ino: u64,
    open: Option<(Arc<Segment>, u64)>,
    /// Oldest first.
    closed: VecDeque<Arc<Segment>>,
    /// Segments with records that were written and are not durable.
    unsynced: Vec<Arc<Segment>>,
    /// Sequences of the records that are being written.
    writing: BTreeSet<u64>,
}

impl Tail {
    /// Returns the segments in use.
    fn used(&self) -> usize {
        self.closed.len() + usize::from(self.open.is_some())
    }
}

/// Why a record was not written.
#[derive(Debug)]
pub enum Refused {
    /// The caller makes pages clean, and tries again.
    Full,
    Failed(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => io::ErrorKind::StorageFull.into(),
            Refused::Failed(error) => error,
        }
    }
}

/// Where a record was written.
#[derive(Debug)]
pub struct Appended {
    pub segment: Arc<Segment>,
    /// The offset of the first page.
    pub offset: u64,
    pub sequence: u64,
}

/// Decides whether a flash disk fails because it is late. A stall that all flash disks have in common must not end the log: one disk
/// stays, and its operations are waited for. They are not repeated: the kernel reports an error of a sync once.
#[derive(Debug)]
struct LateDisks {
    /// By number of the flash disk: whether it failed, or an operation of it is not waited for any more.
    is_lost: Mutex<Vec<bool>>,
    /// How often the last disk was late.
    #[cfg(test)]
    waited: AtomicU32,
}

impl LateDisks {
    /// Returns whether an operation of a disk that began at a time may fail because it is late. The disk is lost then.
    fn may_fail(&self, disk: usize, began: Instant) -> bool {
        let mut is_lost = self.is_lost.lock();
        let has_other = is_lost.iter().enumerate().any(|(other, is_lost)| other != disk && !is_lost);
        if is_lost[disk] || has_other || began.elapsed() >= LAST_DISK_PATIENCE {
            is_lost[disk] = true;
            return true;
        }
        #[cfg(test)]
        self.waited.fetch_add(1, Ordering::SeqCst);
        false
    }
}

#[derive(Debug)]
pub struct Log {
    disks: Vec<Arc<dyn Disk>>,
    cell_disks: Arc<dyn CellDisks>,
    generation: Generation,
    segment_bytes: u64,
    segments_max: usize,
    /// By number of the flash disk. Set after the cell disks record that the disk does not count.
    failed: Vec<AtomicBool>,
    late: Arc<LateDisks>,
    /// The note of the cell disks. Held while it changes.
    note: Mutex<Note>,
    tail: Mutex<Tail>,
    /// The segments in use. Readers of this number do not wait for a flash disk that creates a segment with the tail locked.
    used: AtomicUsize,
    /// A record was written, or its write failed.
    written: Condvar,
    /// By number of the flash disk: the threads for operations that other disks perform at the same time.
    pools: Vec<Arc<Pool>>,
    /// Held during a flush.
    flushing: Mutex<()>,
    flushed: AtomicU64,
    /// Set after an error that left a gap in the log: nothing may rely on later records.
    is_broken: AtomicBool,
    /// Pages become dirty with one flash disk left, too.
    allows_one_disk: bool,
    takes_redo: bool,
    /// Pages that are not dirty are written through, until the flush is cancelled.
    is_flushing: AtomicBool,
    /// As `is_flushing`, while the log is about to end, whatever commands cancel.
    is_ending: AtomicBool,
    /// No page is dirty, and everything is written through.
    is_ended: AtomicBool,
    /// When a flash disk had no space for a segment, in nanoseconds since 1970; 0 for never.
    full_at: AtomicI64,
}

impl Log {
    /// Begins an empty log after an earlier one of this process. Its flash disks have the generation, and the cell disks name no log.
    pub fn begin(
        generation: Generation,
        disks: Vec<Arc<dyn Disk>>,
        cell_disks: Arc<dyn CellDisks>,
        options: &WriteBackOptions,
        former: Option<&Self>,
    ) -> crate::error::Result<Self> {
        let note = Note { generation, value: (1 << disks.len()) - 1 };
        notes::write(cell_disks.as_ref(), Some(&note))?;
        let (open, closed, unsynced, writing) = (None, VecDeque::new(), Vec::new(), BTreeSet::new());
        let next_ino = former.map_or(SEGMENT_INO_FIRST, |former| former.tail.lock().next_ino);
        let tail = Tail { next: 1, oldest: 1, next_ino, open, closed, unsynced, writing };
        Ok(Self {
            failed: disks.iter().map(|_| AtomicBool::new(false)).collect(),
            late: Arc::new(LateDisks {
                is_lost: Mutex::new(vec![false; disks.len()]),
                #[cfg(test)]
                waited: AtomicU32::new(0),
            }),
            written: Condvar::new(),
            pools: disks.iter().map(|_| Arc::default()).collect(),
            disks,
            cell_disks,
            generation,
            segment_bytes: options.segment_bytes,
            segments_max: options.segments() as usize,
            note: Mutex::new(note),
            tail: Mutex::new(tail),
            used: AtomicUsize::new(0),
            flushing: Mutex::new(()),
            flushed: AtomicU64::new(0),
            is_broken: AtomicBool::new(false),
            allows_one_disk: options.allows_one_disk,
            takes_redo: options.takes_redo,
            is_flushing: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
            full_at: AtomicI64::new(0),
        })
    }

    /// Returns the maximum pages of a record.
    pub fn pages_max(&self) -> usize {
        ((self.segment_bytes as usize - BLOCK) / PAGE_BYTES).min(PAGES_MAX)
    }

    /// Returns the segments in use, and the maximum.
    pub fn used_segments(&self) -> (usize, usize) {
        (self.used.load(Ordering::Acquire), self.segments_max)
    }

    /// Returns whether pages may soon be refused.
    pub fn is_nearly_full(&self) -> bool {
        let (used, max) = self.used_segments();
        used + self.spare(Purpose::Pages) >= max || self.lacks_space()
    }

    /// Returns the segments that a record leaves to records of other purposes.
    fn spare(&self, purpose: Purpose) -> usize {
        match purpose {
            Purpose::Destage => 0,
            Purpose::Removal => 1,
            Purpose::Redo => 2,
            Purpose::Pages => 2 + usize::from(self.takes_redo),
        }
    }

    /// Returns the note that files may lack changes which the log has.
    pub fn files_note(&self, files: &BTreeSet<u64>) -> FilesNote {
        FilesNote { generation: self.generation, has_redo: self.takes_redo, inodes: files.iter().copied().collect() }
    }

    /// Returns whether pages of redo may become dirty while [`Self::takes_pages`].
    pub fn takes_redo(&self) -> bool {
        self.takes_redo
    }

    /// Returns whether a flash disk had no space for a segment just now. Nothing is lost: dirty pages are written to the cell disks,
    /// and all others through.
    fn lacks_space(&self) -> bool {
        let full_at = self.full_at.load(Ordering::Acquire);
        full_at > 0 && crate::now() - full_at < SPACE_RETRY_DELAY
    }

    /// Returns what the statistics say about the log, without counters.
    pub fn state(&self) -> WriteBackStats {
        let ((used, max), (disks, disks_left)) = (self.used_segments(), self.disks());
        let bytes = |segments: usize| segments as u64 * self.segment_bytes;
        let (log_bytes, used_bytes) = (bytes(max), bytes(used));
        let (is_on, is_flushing) = (self.takes_pages(), self.is_flushing());
        let takes_redo = self.takes_redo;
        WriteBackStats {
            log_bytes,
            used_bytes,
            disks,
            disks_left,
            is_on,
            takes_redo,
            is_flushing,
            ..WriteBackStats::default()
        }
    }

    /// Returns whether a flash disk is left. If there is none, the cell disks say that no record counts.
    pub fn is_alive(&self) -> bool {
        self.failed.iter().any(|failed| !failed.load(Ordering::Acquire))
    }

    /// Returns the flash disks, and how many of them have all durable records.
    pub fn disks(&self) -> (usize, usize) {
        let left = self.failed.iter().filter(|failed| !failed.load(Ordering::Acquire)).count();
        (self.disks.len(), left)
    }

    /// Returns whether pages may become dirty. With one flash disk left of two, the pages that are dirty are written to the cell
    /// disks, and all others through. Writers ask with the state of their object locked.
    pub fn takes_pages(&self) -> bool {
        let has_copies = || self.allows_one_disk || self.disks().1 > 1;
        self.is_writable()
            && !self.is_flushing()
            && !self.is_ending.load(Ordering::Acquire)
            && !self.lacks_space()
            && has_copies()
    }

    pub fn is_flushing(&self) -> bool {
        self.is_flushing.load(Ordering::Acquire)
    }

    pub fn set_flushing(&self, is_flushing: bool) {
        self.is_flushing.store(is_flushing, Ordering::Release);
    }

    pub fn set_ending(&self, is_ending: bool) {
        self.is_ending.store(is_ending, Ordering::Release);
    }

    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// Returns whether a write of a record may wait for a flash disk, or for space.
    pub fn writes_wait(&self) -> bool {
        self.disks.iter().any(|disk| disk.writes_wait()) || self.is_nearly_full()
    }

    /// Returns how often an operation of the last flash disk was waited for once more.
    #[cfg(test)]
    pub fn waits_for_last_disk(&self) -> u32 {
        self.late.waited.load(Ordering::SeqCst)
    }

    #[cfg(test)]
    pub fn records_being_written(&self) -> usize {
        self.tail.lock().writing.len()
    }

    /// Returns whether records can be written.
    pub fn is_writable(&self) -> bool {
        !self.is_broken.load(Ordering::Acquire)
    }

    fn is_failed(&self, disk: usize) -> bool {
        self.failed[disk].load(Ordering::Acquire)
    }

    /// Leaves a flash disk out. Durable on return: without this, a start could take an older page from the disk.
    fn fail_disk(&self, disk: usize, error: &io::Error) -> io::Result<()> {
        let mut note = self.note.lock();
        if self.is_failed(disk) {
            return Ok(());
        }
        let left = Note { value: note.value & !(1 << disk), ..*note };
        notes::write(self.cell_disks.as_ref(), Some(&left)).map_err(|error| io::Error::other(error.to_string()))?;
        *note = left;
        self.failed[disk].store(true, Ordering::Release);
        self.late.is_lost.lock()[disk] = true;
        let (path, others) = (self.disks[disk].path().display(), left.value.count_ones());
        match others {
            0 => log::error!(
                "flash disk {path} failed: {error}; no flash disk is left that has the pages which the cell disks lack: reads of \
                 these pages fail; replace the flash disk"
            ),
            _ => log::error!(
                "flash disk {path} failed: {error}; the write-back log is on {others} flash disk now; replace the flash disk and \
                 restart the cell"
            ),
        }
        Ok(())
    }

    /// Runs `work` for each flash disk that has not failed. A disk whose operation fails leaves the log. Fails if no disk is left.
    fn on_each(&self, work: impl Fn(usize, &Arc<dyn Disk>) -> io::Result<()>) -> io::Result<()> {
        let run = |number| (number, on_disk(&self.late, number, || work(number, &self.disks[number])));
        self.finish_on_each(|| self.left().map(run).collect())
    }

    /// As [`Self::on_each`], on all flash disks at the same time if their operations wait.
    fn on_each_at_once(
        &self,
        work: impl Fn(usize, &Arc<dyn Disk>) -> io::Result<()> + Clone + Send + 'static,
    ) -> io::Result<()> {
        self.finish_on_each(|| {
            let mut left = self.left();
            let Some(first) = left.next() else { return Vec::new() };
            let others: Vec<_> = left.map(|number| (number, self.begin_on(number, work.clone()))).collect();
            let on_first = || on_disk(&self.late, first, || work(first, &self.disks[first]));
            let on_first = catch_unwind(AssertUnwindSafe(on_first));
            // Also after a panic: no operation on a disk outlives the call.
            let others: Vec<_> = others.into_iter().map(|(number, wait)| (number, wait())).collect();
            let on_first = on_first.unwrap_or_else(|panic| resume_unwind(panic));
            std::iter::once((first, on_first)).chain(others).collect()
        })
    }

    /// Begins `work` of a flash disk, in another thread if its operations wait. The returned function waits for the end.
    fn begin_on(
        &self,
        number: usize,
        work: impl Fn(usize, &Arc<dyn Disk>) -> io::Result<()> + Clone + Send + 'static,
    ) -> Box<dyn FnOnce() -> io::Result<()>> {
        let (disk, late) = (self.disks[number].clone(), self.late.clone());
        if disk.writes_wait() {
            let (sender, receiver) = sync_channel(1);
            let (work, disk, late) = (work.clone(), disk.clone(), late.clone());
            let spawned = self.pools[number].spawn(move || {
                let result = on_disk(&late, number, || work(number, &disk));
                // When the caller goes on, the thread has nothing of the disk open.
                drop((work, disk));
                // The caller waits, so the result is received.
                drop(sender.send(result));
            });
            if spawned.is_ok() {
                let panicked = |_| Err(io::Error::other("an operation on a flash disk panicked"));
                return Box::new(move || receiver.recv().unwrap_or_else(panicked));
            }
        }
        Box::new(move || on_disk(&late, number, || work(number, &disk)))
    }

    /// Returns the numbers of the flash disks that have not failed.
    fn left(&self) -> impl Iterator<Item = usize> {
        (0..self.disks.len()).filter(|number| !self.is_failed(*number))
    }

    /// Leaves out the flash disks whose operations failed.
    fn finish_on_each(&self, work: impl FnOnce() -> Vec<(usize, io::Result<()>)>) -> io::Result<()> {
        if !self.is_writable() {
            return Err(io::Error::other("an earlier write to the write-back log failed"));
        }
        let results = {
            let _breaks = BreaksByPanic(self);
            // Other writers and syncs wait for the log.
            let _expedited = Expedited::begin();
            work()
        };
        let mut failures = results.into_iter().filter_map(|(number, result)| Some((number, result.err()?)));
        let result = failures.try_for_each(|(number, error)| self.fail_disk(number, &error));
        let result = result.and_then(|()| match self.is_alive() {
            true => Ok(()),
            false => Err(io::Error::other("all flash disks of the write-back log have failed")),
        });
        if result.is_err() {
            self.is_broken.store(true, Ordering::Release);
        }
        result
    }

    /// Appends a record. Its pages count as pages of the index. Records of several callers are written at the same time.
    pub fn append(&self, purpose: Purpose, pieces: &[Piece], payload: &[u8]) -> Result<Appended, Refused> {
        let length = (BLOCK + payload.len()) as u64;
        assert!(length <= self.segment_bytes, "a record of {length} bytes");
        let (segment, start, numbers) = {
            let mut tail = self.tail.lock();
            let fits = |(_, used): &(Arc<Segment>, u64)| used + length <= self.segment_bytes;
            let fits = tail.open.as_ref().is_some_and(fits);
            // Also if the record fits: a record of another purpose may have opened one of the segments that this one leaves.
            if tail.used() + usize::from(!fits) + self.spare(purpose) > self.segments_max {
                return Err(Refused::Full);
            }
            if !fits {
                self.open_segment(&mut tail)?;
            }
            let (segment, start) = tail.open.clone().expect("a segment is open");
            let numbers = (tail.next, tail.oldest, self.flushed.load(Ordering::Acquire));
            // Also after an error: a part of the record may have arrived.
            tail.open = Some((segment.clone(), start + length));
            tail.next += 1;
            tail.writing.insert(numbers.0);
            // Before the segment can be closed, and removed.
            segment.live.fetch_add((payload.len() / PAGE_BYTES) as u32, Ordering::AcqRel);
            (segment, start, numbers)
        };
        // Also after a panic: flushes wait for the end.
        let _writing = Writing { log: self, segment: &segment, sequence: numbers.0 };
        let record = Arc::new(RecordHeader::new(self.generation, numbers).encode(pieces, payload));
        let of_write = segment.clone();
        let write = move |disk: usize, _: &Arc<dyn Disk>| match &of_write.files[disk] {
            Some(file) => file.write_at(&record, start),
            None => Err(io::Error::other("a segment is missing")),
        };
        self.on_each_at_once(write).map_err(Refused::Failed)?;
        Ok(Appended { segment: segment.clone(), offset: start + BLOCK as u64, sequence: numbers.0 })
    }

    fn open_segment(&self, tail: &mut Tail) -> Result<(), Refused> {
        let ino = tail.next_ino;
        let (files, is_full) = (Mutex::new(vec![None; self.disks.len()]), AtomicBool::new(false));
        let create = |number: usize, disk: &Arc<dyn Disk>| {
            let created = disk.open(ino, Stream::Data, true).and_then(|file| {
                let file = file.expect("a disk creates a missing file");
                file.allocate(0, self.segment_bytes, true)?;
                Ok(file)
            });
            match created {
                Ok(file) => files.lock()[number] = Some(file),
                // A disk without space has not failed.
                Err(error) if error.kind() == io::ErrorKind::StorageFull => is_full.store(true, Ordering::Release),
                Err(error) => return Err(error),
            }
            Ok(())
        };
        self.on_each(create).map_err(Refused::Failed)?;
        tail.next_ino += 1;
        if is_full.into_inner() {
            if !self.lacks_space() {
                log::error!(
                    "a flash disk has no space for the write-back log, so writes go to the cell disks; free space on the flash disks"
                );
            }
            self.full_at.store(crate::now(), Ordering::Release);
            // An error of a disk shows at the next operation.
            let created = self.disks.iter().enumerate().filter(|(number, _)| !self.is_failed(*number));
            created.for_each(|(_, disk)| drop(disk.remove(ino, Stream::Data)));
            return Err(Refused::Full);
        }
        self.full_at.store(0, Ordering::Release);
        let (files, live, is_named) = (files.into_inner(), AtomicU32::new(0), AtomicBool::new(false));
        let segment = Segment { ino, first: tail.next, files, live, is_named };
        if let Some((full, _)) = tail.open.replace((Arc::new(segment), 0)) {
            tail.closed.push_back(full);
        }
        self.used.store(tail.used(), Ordering::Release);
        Ok(())
    }

    /// Makes all records up to a sequence durable.
    pub fn flush(&self, sequence: u64) -> io::Result<()> {
        if self.flushed.load(Ordering::Acquire) >= sequence {
            return Ok(());
        }
        // One at a time: the kernel reports the error of a sync once.
        let _flushing = self.flushing.lock();
        if self.flushed.load(Ordering::Acquire) >= sequence {
            return Ok(());
        }
        let (unsynced, last) = {
            let mut tail = self.tail.lock();
            let last = tail.next - 1;
            while tail.writing.first().is_some_and(|first| *first <= last) {
                self.written.wait(&mut tail);
            }
            // The segment of a later record that is still being written is added again when the write ends.
            (Arc::new(std::mem::take(&mut tail.unsynced)), last)
        };
        let of_sync = unsynced.clone();
        let sync = move |number: usize, disk: &Arc<dyn Disk>| {
            for segment in &*of_sync {
                let file = segment.files[number].as_ref();
                file.ok_or_else(|| io::Error::other("a segment is missing"))?.sync()?;
                if !segment.is_named.load(Ordering::Acquire) {
                    disk.sync_name(segment.ino)?;
                }
            }
            Ok(())
        };
        if let Err(error) = self.on_each_at_once(sync) {
            self.tail.lock().unsynced.extend(unsynced.iter().cloned());
            return Err(error);
        }
        unsynced.iter().for_each(|segment| segment.is_named.store(true, Ordering::Release));
        self.flushed.fetch_max(last, Ordering::AcqRel);
        Ok(())
    }

    /// Makes all records durable.
    pub fn flush_all(&self) -> io::Result<()> {
        let last = self.tail.lock().next - 1;
        self.flush(last)
    }

    /// Reads bytes of a page from the first flash disk that returns them.
    pub fn read(&self, segment: &Segment, buffer: &mut [u8], offset: u64, direct: bool) -> io::Result<()> {
        debug_assert!(buffer.len() as u64 <= PAGE);
        let mut result = Err(io::Error::other("the flash disks that have the page have failed"));
        for (number, file) in segment.files.iter().enumerate() {
            let Some(file) = file.as_ref().filter(|_| !self.is_failed(number)) else { continue };
            let read = match direct {
                true => file.read_direct(buffer, offset),
                false => file.read_at(buffer, offset),
            };
            result = match read {
                Ok(count) if count == buffer.len() => return Ok(()),
                Ok(_) => Err(io::Error::other("a segment of the write-back log ends before a page")),
                Err(error) => Err(error),
            };
        }
        result
    }

    /// Removes the oldest segments of which no page counts any more.
    pub fn trim(&self) -> io::Result<()> {
        let (last, unused) = {
            let tail = self.tail.lock();
            let is_unused = |segment: &&Arc<Segment>| segment.live.load(Ordering::Acquire) == 0;
            (tail.next - 1, tail.closed.iter().take_while(is_unused).count())
        };
        if unused == 0 {
            return Ok(());
        }
        // The records that replaced their pages.
        self.flush(last)?;
        let removed: Vec<Arc<Segment>> = {
            let mut tail = self.tail.lock();
            let removed = tail.closed.drain(..unused).collect();
            let open = tail.open.as_ref().map(|(open, _)| open.first);
            tail.oldest = tail.closed.front().map(|segment| segment.first).or(open).unwrap_or(tail.next);
            self.used.store(tail.used(), Ordering::Release);
            removed
        };
        let appended = match self.append(Purpose::Destage, &[], &[]) {
            Ok(appended) => appended,
            // Segments were removed from the list, so there is space.
            Err(Refused::Full) => return Err(io::Error::other("the write-back log has no space")),
            Err(Refused::Failed(error)) => return Err(error),
        };
        self.flush(appended.sequence)?;
        self.on_each(|_, disk| removed.iter().try_for_each(|segment| disk.remove(segment.ino, Stream::Data)))
    }

    /// Returns the note of the cell disks, which does not change while the caller keeps the guard.
    pub fn note(&self) -> MutexGuard<'_, Note> {
        self.note.lock()
    }

    pub fn cell_disks(&self) -> &dyn CellDisks {
        self.cell_disks.as_ref()
    }

    /// Lets the cell disks name no log. No page is dirty, and none becomes dirty. After an error, the caller may repeat the call.
    pub fn end(&self) -> crate::error::Result<()> {
        self.is_ended.store(true, Ordering::Release);
        let _note = self.note.lock();
        notes::write(self.cell_disks.as_ref(), None)?;
        {
            // Their space is free when nothing has them open.
            let mut tail = self.tail.lock();
            (tail.open, tail.closed, tail.unsynced) = Default::default();
            self.used.store(0, Ordering::Release);
        }
        remove_segments(&self.disks);
        Ok(())
    }
}

/// Runs `work` of a flash disk, which may fail because it is late unless it is the last one. After an error, the disk is lost: the
/// caller fails it or ends the log.
fn on_disk(late: &Arc<LateDisks>, disk: usize, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let (of_wait, began) = (late.clone(), Instant::now());
    let result = waiting_until(move || of_wait.may_fail(disk, began), work);
    if result.is_err() {
        late.is_lost.lock()[disk] = true;
    }
    result
}

/// A panic leaves an operation that is neither done nor failed: a record that is missing, or a segment that no later flush syncs.
/// Nothing may rely on later records.
struct BreaksByPanic<'a>(&'a Log);

impl Drop for BreaksByPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.is_broken.store(true, Ordering::Release);
        }
    }
}

/// A record that is being written.
struct Writing<'a> {
    log: &'a Log,
    segment: &'a Arc<Segment>,
    sequence: u64,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        // Before a flush that waits for the record goes on.
        drop(BreaksByPanic(self.log));
        let mut tail = self.log.tail.lock();
        tail.writing.remove(&self.sequence);
        if !tail.unsynced.iter().any(|unsynced| Arc::ptr_eq(unsynced, self.segment)) {
            tail.unsynced.push(self.segment.clone());
        }
        self.log.written.notify_all();
    }
}

/// Writes the generation of a new log to its flash disks.
pub fn name_disks(disks: &[Arc<dyn Disk>], generation: Generation) -> io::Result<()> {
    let mut numbered = (0..).zip(disks);
    numbered.try_for_each(|(value, disk)| disk.write_note(notes::DISK_NOTE, &Note { generation, value }.encode()))
}

/// Removes the segments of logs that no cell disk names. An error is logged: the next start tries again.
pub fn remove_segments(disks: &[Arc<dyn Disk>]) {
    let remove = |disk: &Arc<dyn Disk>| -> io::Result<()> {
        let files = disk.backing_files()?.into_iter().filter(|(ino, stream)| is_segment(*ino, *stream));
        files.into_iter().try_for_each(|(ino, stream)| disk.remove(ino, stream))
    };
    for disk in disks {
        if let Err(error) = remove(disk) {
            log::warn!("could not remove the write-back log on flash disk {}: {error}", disk.path().display());
        }
    }
}
