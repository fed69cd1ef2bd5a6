//! Which pages stay: S3-FIFO over segments.
//!
//! New pages are written to segments of the small queue, which has a tenth of the segments. When its oldest segment is
//! needed, pages that were used are copied to the main queue, and the keys of the others are remembered: such a page goes
//! to the main queue when it comes back. When the oldest segment of the main queue is needed, pages that were used since they
//! were last copied are copied again, with one use less.
//!
//! Pages of kept files are in segments of the keep queue, which has a quota. Its oldest segment is evicted only if the queue
//! exceeds the quota, or if there is no other. A segment of the keep queue with few pages is emptied first, whatever is needed:
//! its pages are copied.

use super::FlashCache;
use super::format::{BLOCK, Object, Piece, Queue, RecordHeader};
use super::ghost::Ghost;
use super::index::CachedObject;
use super::location::{Location, PAGE_BYTES};
use super::log::{Closed, FREE_FOR_EVICTION, FREE_FOR_INTENTS, Log, Segment};
use crate::disk::AlignedBytes;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Evictions keep as many segments free: one that fills can open, and what they leave.
pub const FREE_MIN: usize = FREE_FOR_EVICTION + FREE_FOR_INTENTS + 1;
/// A segment of the keep queue is evicted first if fewer than 1/SPARSE_PART of its pages are
/// still cached. Those are copied.
const SPARSE_PART: u32 = 2;
/// A checkpoint is due after this part of all segments was closed.
const CHECKPOINT_PART: u32 = 32;

/// What only one thread at a time may use: who has it evicts segments and takes checkpoints.
#[derive(Debug)]
pub struct Maintenance {
    pub ghost: Ghost,
    /// Which of the two checkpoints is written next.
    pub next_checkpoint: usize,
}

/// A page of a segment that is evicted.
struct Live {
    object: Arc<CachedObject>,
    page: u32,
    location: Location,
    uses: u32,
}

impl FlashCache {
    /// Evicts segments until fills have free ones.
    pub(super) fn make_space(&self, maintenance: &mut Maintenance) -> io::Result<()> {
        loop {
            let (free, kept, is_checkpoint_due) = {
                let log = self.log.lock();
                let is_due = log.closed_since_checkpoint > self.segment_count / CHECKPOINT_PART;
                (log.free_segments(), log.segments_of(Queue::Keep), is_due)
            };
            self.free_segments.store(free as u64, Ordering::Relaxed);
            self.keep_segments.store(kept, Ordering::Relaxed);
            if is_checkpoint_due {
                self.checkpoint(maintenance)?;
            }
            let is_enough = free >= FREE_MIN && kept <= self.keep_segments_max();
            if is_enough || !self.evict(maintenance)? {
                return Ok(());
            }
        }
    }

    /// Evicts one segment. Returns false if there is none.
    fn evict(&self, maintenance: &mut Maintenance) -> io::Result<bool> {
        let (closed, is_sparse) = {
            let mut log = self.log.lock();
            let is_small_full = log.closed_segments(Queue::Small) >= (self.segment_count as usize / 10).max(1);
            let (first, second) = if is_small_full { (Queue::Small, Queue::Main) } else { (Queue::Main, Queue::Small) };
            let is_over_quota = log.segments_of(Queue::Keep) > self.keep_segments_max();
            let pages = (self.segment_bytes / PAGE_BYTES as u64) as u32;
            let is_sparse = |segment: &Segment| self.segment_pages.get(segment.number) < pages / SPARSE_PART;
            let sparse = log.take_if(Queue::Keep, is_sparse);
            let is_sparse = sparse.is_some();
            let others = |log: &mut Log| log.take_oldest(first).or_else(|| log.take_oldest(second));
            let oldest = |log: &mut Log| match is_over_quota {
                true => log.take_oldest(Queue::Keep),
                false => others(log).or_else(|| log.take_oldest(Queue::Keep)),
            };
            match sparse.or_else(|| oldest(&mut log)) {
                Some(closed) => (closed, is_sparse),
                None => return Ok(false),
            }
        };
        // The segment may contain intents that the last checkpoint does not have.
        if self.checkpointed.load(Ordering::Acquire) < closed.last_sequence
            && let Err(error) = self.checkpoint(maintenance)
        {
            self.log.lock().put_back(closed);
            return Err(error);
        }
        let Closed { segment, .. } = closed;
        let live = self.live_pages(&segment)?;
        // Pages of kept files stay as long as the quota lasts.
        let has_quota = self.log.lock().segments_of(Queue::Keep) < self.keep_segments_max();
        let stays_kept = |page: &Live| {
            let is_displaced = segment.queue != Queue::Keep && has_quota;
            page.object.is_kept() && (is_displaced || is_sparse)
        };
        let stays = |page: &Live| page.uses > 0 || stays_kept(page);
        let (used, unused): (Vec<Live>, Vec<Live>) = live.into_iter().partition(stays);
        for queue in [Queue::Main, Queue::Keep] {
            let of_queue = |page: &&Live| page.object.is_kept() == (queue == Queue::Keep);
            let copied: Vec<&Live> = used.iter().filter(of_queue).collect();
            self.copy(&segment, queue, &copied, is_sparse)?;
        }
        // Durable, and known to the cell disks, before the index forgets the pages: a change of a region without pages needs no
        // intent.
        let retired = {
            let mut log = self.log.lock();
            let piece = Piece::Retired { segment: segment.number, incarnation: segment.incarnation };
            log.append(Queue::Small, &[piece], &[], |opened| self.add_segment(opened))?;
            log.flush()?;
            log.last_sequence()
        };
        self.sync_intent(retired)?;
        for Live { object, page, location, .. } in used.iter().chain(&unused) {
            self.add_pages(object.relocate(*page, *location, Location::NONE, 0));
        }
        self.forget_damaged(&segment)?;
        if segment.queue == Queue::Small {
            unused.iter().for_each(|live| maintenance.ghost.insert(live.object.object, live.page));
        }
        segment.retire();
        self.segments.write()[segment.number as usize] = None;
        self.log.lock().free(&segment)?;
        self.counters.evicted_segments.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Removes the pages that the index still names in a retired segment, because the headers of their records are damaged.
    fn forget_damaged(&self, segment: &Segment) -> io::Result<()> {
        let number = segment.number;
        let found = self.segment_pages.get(number);
        if found == 0 {
            return Ok(());
        }
        ::log::warn!("segment {number} of the flash cache is damaged; {found} pages are dropped, no data are lost");
        let objects: Vec<_> = self.objects.lock().values().cloned().collect();
        objects.iter().for_each(|object| self.add_pages(object.forget_segment(number)));
        match self.segment_pages.get(number) {
            0 => Ok(()),
            left => Err(io::Error::other(format!("{left} pages of segment {number} are in use after its eviction"))),
        }
    }

    /// Returns the pages of a segment that the index still names. Damage ends the list.
    fn live_pages(&self, segment: &Segment) -> io::Result<Vec<Live>> {
        let (mut live, mut at, mut block) = (Vec::new(), 0, AlignedBytes::new(BLOCK));
        while at + (BLOCK as u64) < self.segment_bytes {
            let count = segment.file.read_direct(&mut block, at)?;
            let header = RecordHeader::decode(&block[..count]);
            let Ok(header) = header else { break };
            if header.incarnation != segment.incarnation {
                break;
            }
            for (object, page, block) in header.page_blocks((at / BLOCK as u64) as u32) {
                let location = Location::new(segment.number, block);
                let Some(object) = self.object(object, false) else { continue };
                if let Some(uses) = object.uses_at(page, location) {
                    live.push(Live { object, page, location, uses });
                }
            }
            at += header.length() as u64;
        }
        Ok(live)
    }

    /// Copies pages to a queue. Pages of a sparse segment keep their uses.
    fn copy(&self, segment: &Segment, queue: Queue, pages: &[&Live], is_sparse: bool) -> io::Result<()> {
        for batch in pages.chunks(Log::pages_max(self.segment_bytes)) {
            let mut bytes = vec![0; batch.len() * PAGE_BYTES];
            for (live, page) in batch.iter().zip(bytes.chunks_exact_mut(PAGE_BYTES)) {
                let start = u64::from(live.location.block()) * BLOCK as u64;
                if segment.file.read_at(page, start)? < PAGE_BYTES {
                    return Err(io::Error::other(format!("segment {} ends before a page", segment.number)));
                }
            }
            let mut log = self.log.lock();
            if !log.has_space_for_copies(queue, batch.len()) {
                // The other pages leave the cache.
                break;
            }
            // A page that was changed since then is not copied; a change from now on waits for the lock, or its region
            // has an intent.
            let is_live = |live: &&Live| live.object.uses_at(live.page, live.location).is_some();
            let kept = batch.iter().zip(bytes.chunks_exact(PAGE_BYTES)).filter(|(live, _)| is_live(live));
            let (kept, payload): (Vec<&&Live>, Vec<&[u8]>) = kept.unzip();
            if kept.is_empty() {
                continue;
            }
            let piece = |live: &&&Live| Piece::Pages { object: live.object.object, first: live.page, count: 1 };
            let pieces: Vec<Piece> = kept.iter().map(piece).collect();
            let appended = log.append(queue, &pieces, &payload, |opened| self.add_segment(opened))?;
            for (nth, live) in kept.iter().enumerate() {
                let block = appended.block + 1 + (nth * PAGE_BYTES / BLOCK) as u32;
                let uses = match segment.queue {
                    _ if is_sparse => live.uses,
                    Queue::Main | Queue::Keep => live.uses.saturating_sub(1),
                    Queue::Small => 0,
                };
                let location = Location::new(appended.segment.number, block);
                self.add_pages(live.object.relocate(live.page, live.location, location, uses));
            }
            self.counters.kept_pages.fetch_add(kept.len() as u64, Ordering::Relaxed);
            drop(log);
            self.flush_some()?;
        }
        Ok(())
    }

    /// Returns which queue a page that is filled belongs to.
    pub(super) fn queue_of(&self, maintenance: &mut Maintenance, object: Object, page: u32) -> Queue {
        match maintenance.ghost.take(object, page) {
            true => Queue::Main,
            false => Queue::Small,
        }
    }
}
