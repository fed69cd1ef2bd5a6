//! The log: segments of the flash disks, to which records are appended in the order of their sequence.
//!
//! Invariants: records are written in the order of their sequence, and a flush makes all of them durable; nothing is
//! written twice to the same place of a segment; a segment is removed before its number is used again.

use super::format::{BLOCK, Generation, ListedSegment, Piece, Queue, RECORD_PAGES_MAX, RecordHeader};
use super::location::PAGE_BYTES;
use crate::disk::{Disk, DiskFile, Stream};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Inode numbers on flash disks: of the two checkpoints, on the first disk, and of the first segment.
pub const CHECKPOINT_INOS: [u64; 2] = [1, 2];
const SEGMENT_INO_FIRST: u64 = 16;

/// Segments that an eviction opens: for pages that are kept, and for the record that retires a segment.
pub const FREE_FOR_EVICTION: usize = 2;
/// Free segments that fills leave for intents, which are not to wait for an eviction.
pub const FREE_FOR_INTENTS: usize = 1;

/// Returns the flash disk that stores a segment.
pub fn disk_of(disks: &[Arc<dyn Disk>], segment: u32) -> &Arc<dyn Disk> {
    &disks[segment as usize % disks.len()]
}

pub fn ino_of(segment: u32) -> u64 {
    SEGMENT_INO_FIRST + u64::from(segment)
}

/// Returns the number of the segment that a file contains.
pub fn segment_of(ino: u64) -> Option<u32> {
    u32::try_from(ino.checked_sub(SEGMENT_INO_FIRST)?).ok()
}

#[derive(Debug)]
pub struct Segment {
    pub number: u32,
    /// The sequence of the segment's first record.
    pub incarnation: u64,
    pub queue: Queue,
    pub file: Arc<dyn DiskFile>,
    /// Bytes of the records.
    length: AtomicU64,
    /// Set before the segment's file is removed.
    is_retired: AtomicBool,
}

impl Segment {
    pub fn new(number: u32, incarnation: u64, queue: Queue, file: Arc<dyn DiskFile>, length: u64) -> Self {
        let (length, is_retired) = (AtomicU64::new(length), AtomicBool::new(false));
        Self { number, incarnation, queue, file, length, is_retired }
    }

    pub fn retire(&self) {
        self.is_retired.store(true, Ordering::SeqCst);
    }

    /// Returns whether bytes that were read before the call may be those of another segment.
    pub fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::SeqCst)
    }
}

/// A segment that gets no more records.
#[derive(Debug)]
pub struct Closed {
    pub segment: Arc<Segment>,
    /// The sequence of the segment's last record, or a higher one.
    pub last_sequence: u64,
}

#[derive(Debug)]
struct Open {
    segment: Arc<Segment>,
    /// Bytes written.
    length: u64,
    last_sequence: u64,
}

#[derive(Debug, Clone)]
struct Unsynced {
    segment: Arc<Segment>,
    is_new: bool,
    /// The sequence of the segment's last record.
    last: u64,
}

/// Makes the records up to a sequence durable, without the lock of the log.
pub struct Flush {
    disks: Vec<Arc<dyn Disk>>,
    unsynced: Vec<Unsynced>,
    last: u64,
    /// Bytes of all records up to the last one.
    written: u64,
    has_failed: Arc<Mutex<bool>>,
}

impl Flush {
    pub fn run(&self) -> io::Result<()> {
        // One at a time: the kernel reports the error of a sync once, maybe to another one of the same file.
        let mut has_failed = self.has_failed.lock();
        let sync = |Unsynced { segment, is_new, .. }: &Unsynced| {
            segment.file.sync()?;
            if *is_new { disk_of(&self.disks, segment.number).sync_name(ino_of(segment.number)) } else { Ok(()) }
        };
        let synced = if *has_failed { Err(earlier_failure()) } else { self.unsynced.iter().try_for_each(sync) };
        *has_failed |= synced.is_err();
        synced
    }
}

fn earlier_failure() -> io::Error {
    io::Error::other("an earlier write to a flash disk failed")
}

/// Where a record was written.
pub struct Appended {
    pub segment: Arc<Segment>,
    /// The block of the header.
    pub block: u32,
}

#[derive(Debug)]
pub struct Log {
    disks: Vec<Arc<dyn Disk>>,
    segment_bytes: u64,
    generation: Generation,
    /// Sequence of the next record.
    next: u64,
    /// Records up to this sequence are durable.
    flushed: u64,
    open: [Option<Open>; 3],
    unsynced: Vec<Unsynced>,
    /// Bytes of all records, and of those that are durable.
    written: u64,
    durable: u64,
    /// A flush failed.
    has_failed: Arc<Mutex<bool>>,
    /// Oldest first, by [`Queue`].
    closed: [VecDeque<Closed>; 3],
    free: VecDeque<u32>,
    /// A write or a sync failed. A later sync would succeed although the kernel may have dropped records.
    is_failed: bool,
    /// Segments that were closed since the last checkpoint.
    pub closed_since_checkpoint: u32,
    /// Intents since the last checkpoint.
    pub intents_since_checkpoint: u32,
}

impl Log {
    pub fn new(disks: Vec<Arc<dyn Disk>>, segment_bytes: u64, generation: Generation, next: u64) -> Self {
        Self {
            disks,
            segment_bytes,
            generation,
            next,
            flushed: next - 1,
            open: [None, None, None],
            unsynced: Vec::new(),
            written: 0,
            durable: 0,
            has_failed: Arc::default(),
            closed: Default::default(),
            free: VecDeque::new(),
            is_failed: false,
            closed_since_checkpoint: 0,
            intents_since_checkpoint: 0,
        }
    }

    /// Adds a free segment, or one that an earlier process wrote. The latter come in the order of their incarnations.
    pub fn add(&mut self, number: u32, written: Option<Arc<Segment>>) {
        match written {
            Some(segment) => {
                self.closed[segment.queue as usize].push_back(Closed { segment, last_sequence: self.next - 1 });
            }
            None => self.free.push_back(number),
        }
    }

    /// Returns the sequence of the last record.
    pub fn last_sequence(&self) -> u64 {
        self.next - 1
    }

    pub fn generation(&self) -> Generation {
        self.generation
    }

    pub fn free_segments(&self) -> usize {
        self.free.len()
    }

    pub fn closed_segments(&self, queue: Queue) -> usize {
        self.closed[queue as usize].len()
    }

    /// Returns the segments of a queue, the open one included.
    pub fn segments_of(&self, queue: Queue) -> u64 {
        self.closed_segments(queue) as u64 + u64::from(self.open[queue as usize].is_some())
    }

    /// Takes the oldest closed segment of a queue for which `is_wanted`.
    pub fn take_if(&mut self, queue: Queue, is_wanted: impl Fn(&Segment) -> bool) -> Option<Closed> {
        let closed = &mut self.closed[queue as usize];
        let at = closed.iter().position(|closed| is_wanted(&closed.segment))?;
        closed.remove(at)
    }

    /// Takes the oldest closed segment of a queue.
    pub fn take_oldest(&mut self, queue: Queue) -> Option<Closed> {
        self.closed[queue as usize].pop_front()
    }

    pub fn put_back(&mut self, closed: Closed) {
        self.closed[closed.segment.queue as usize].push_front(closed);
    }

    /// Returns all segments with records.
    pub fn segments(&self) -> impl Iterator<Item = ListedSegment> {
        let of = |segment: &Arc<Segment>, is_open| ListedSegment {
            number: segment.number,
            incarnation: segment.incarnation,
            is_open,
            length: segment.length.load(Ordering::Acquire) as u32,
        };
        let closed = self.closed.iter().flatten().map(move |closed| of(&closed.segment, false));
        closed.chain(self.open.iter().flatten().map(move |open| of(&open.segment, true)))
    }

    /// Returns the number of pages that a record in a new segment can have.
    pub fn pages_max(segment_bytes: u64) -> usize {
        ((segment_bytes as usize - BLOCK) / PAGE_BYTES).min(RECORD_PAGES_MAX)
    }

    fn fits(&self, queue: Queue, bytes: usize) -> bool {
        self.open[queue as usize].as_ref().is_some_and(|open| open.length + bytes as u64 <= self.segment_bytes)
    }

    /// Returns whether a record with pages leaves what evictions and intents need: free segments, or no new one is used and the
    /// record that retires a segment still has space.
    pub fn has_space_for(&self, queue: Queue, pages: usize) -> bool {
        self.fits_beside_eviction(queue, pages) || self.free.len() > FREE_FOR_EVICTION + FREE_FOR_INTENTS
    }

    /// Returns the queue of an open segment, or of one that may be opened, for a record without pages that leaves what an eviction
    /// needs. None if an eviction must come first.
    pub fn queue_for_intent(&self) -> Option<Queue> {
        let fitting = [Queue::Small, Queue::Main].into_iter().find(|queue| self.fits_beside_eviction(*queue, 0));
        fitting.or((self.free.len() > FREE_FOR_EVICTION).then_some(Queue::Small))
    }

    /// Returns whether a record fits an open segment, and leaves space for the record that retires a segment.
    fn fits_beside_eviction(&self, queue: Queue, pages: usize) -> bool {
        let spare = if self.free.is_empty() { BLOCK } else { 0 };
        self.fits(queue, BLOCK + pages * PAGE_BYTES + spare)
    }

    /// Returns whether pages of a segment that is evicted can be copied, so that the record that retires the segment still has
    /// space.
    pub fn has_space_for_copies(&self, queue: Queue, pages: usize) -> bool {
        let left = usize::from(!self.fits(Queue::Small, BLOCK));
        self.fits(queue, BLOCK + pages * PAGE_BYTES) || self.free.len() > left
    }

    /// Appends a record. The segment is added with `opened` before the record is written, if it is a new one.
    pub fn append(
        &mut self,
        queue: Queue,
        pieces: &[Piece],
        payload: &[&[u8]],
        opened: impl FnOnce(&Arc<Segment>),
    ) -> io::Result<Appended> {
        self.check()?;
        let appended = self.try_append(queue, pieces, payload, opened);
        self.is_failed |= appended.is_err();
        appended
    }

    fn check(&self) -> io::Result<()> {
        match self.is_failed {
            true => Err(earlier_failure()),
            false => Ok(()),
        }
    }

    fn try_append(
        &mut self,
        queue: Queue,
        pieces: &[Piece],
        payload: &[&[u8]],
        opened: impl FnOnce(&Arc<Segment>),
    ) -> io::Result<Appended> {
        let length = (BLOCK + payload.len() * PAGE_BYTES) as u64;
        if self.open[queue as usize].as_ref().is_none_or(|open| open.length + length > self.segment_bytes) {
            self.open_segment(queue, opened)?;
        }
        let open = self.open[queue as usize].as_mut().expect("a segment is open");
        let numbers = (self.next, open.segment.incarnation, self.flushed);
        let record = RecordHeader::new(self.generation, numbers, queue).encode(pieces, payload);
        debug_assert_eq!(record.len() as u64, length);
        match self.unsynced.iter_mut().find(|unsynced| unsynced.segment.number == open.segment.number) {
            Some(unsynced) => unsynced.last = self.next,
            None => {
                let (segment, is_new) = (open.segment.clone(), open.length == 0);
                self.unsynced.push(Unsynced { segment, is_new, last: self.next });
            }
        }
        open.segment.file.write_at(&record, open.length)?;
        let appended = Appended { segment: open.segment.clone(), block: (open.length / BLOCK as u64) as u32 };
        self.written += length;
        open.length += length;
        open.segment.length.store(open.length, Ordering::Release);
        open.last_sequence = self.next;
        self.next += 1;
        Ok(appended)
    }

    fn open_segment(&mut self, queue: Queue, opened: impl FnOnce(&Arc<Segment>)) -> io::Result<()> {
        let full = || io::Error::other("the flash cache has no free segment");
        let number = self.free.pop_front().ok_or_else(full)?;
        let disk = disk_of(&self.disks, number);
        let file = disk.open(ino_of(number), Stream::Data, true)?.expect("a disk creates a missing file");
        file.allocate(0, self.segment_bytes, true)?;
        let segment = Arc::new(Segment::new(number, self.next, queue, file, 0));
        opened(&segment);
        let open = Open { segment, length: 0, last_sequence: self.next };
        if let Some(Open { segment, last_sequence, .. }) = self.open[queue as usize].replace(open) {
            self.closed[queue as usize].push_back(Closed { segment, last_sequence });
            self.closed_since_checkpoint += 1;
        }
        Ok(())
    }

    /// Makes all records durable.
    pub fn flush(&mut self) -> io::Result<()> {
        self.check()?;
        let flush = self.begin_flush();
        let result = flush.run();
        self.end_flush(&flush, result)
    }

    /// Returns the bytes of records that are not durable.
    pub fn unsynced_bytes(&self) -> u64 {
        self.written - self.durable
    }

    /// Returns a flush of all records, to be run without the lock of the log.
    pub fn begin_flush(&self) -> Flush {
        Flush {
            disks: self.disks.clone(),
            unsynced: self.unsynced.clone(),
            last: self.last_sequence(),
            written: self.written,
            has_failed: self.has_failed.clone(),
        }
    }

    /// Ends a flush with its result.
    pub fn end_flush(&mut self, flush: &Flush, result: io::Result<()>) -> io::Result<()> {
        self.is_failed |= result.is_err();
        result?;
        self.unsynced.retain(|unsynced| unsynced.last > flush.last);
        for unsynced in &mut self.unsynced {
            let is_in_flush = |of: &Unsynced| of.segment.number == unsynced.segment.number;
            unsynced.is_new &= !flush.unsynced.iter().any(is_in_flush);
        }
        self.flushed = self.flushed.max(flush.last);
        self.durable = self.durable.max(flush.written);
        Ok(())
    }

    /// Removes the file of a retired segment, whose number is then free.
    pub fn free(&mut self, segment: &Segment) -> io::Result<()> {
        self.unsynced.retain(|unsynced| unsynced.segment.number != segment.number);
        disk_of(&self.disks, segment.number).remove(ino_of(segment.number), Stream::Data)?;
        self.free.push_back(segment.number);
        Ok(())
    }
}
