//! Which pages stay: S3-FIFO over segments.
//!
//! New pages are written to segments of the small queue, which has a tenth of the segments. When its oldest segment is
//! needed, pages that were used are copied to the main queue, and the keys of the others are remembered: such a page goes
//! to the main queue when it comes back. When the oldest segment of the main queue is needed, pages that were used since they
//! were last copied are copied again, with one use less.

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
            let (free, is_checkpoint_due) = {
                let log = self.log.lock();
                (log.free_segments(), log.closed_since_checkpoint > self.segment_count / CHECKPOINT_PART)
            };
            self.free_segments.store(free as u64, Ordering::Relaxed);
            if is_checkpoint_due {
                self.checkpoint(maintenance)?;
            }
            if free >= FREE_MIN || !self.evict(maintenance)? {
                return Ok(());
            }
        }
    }

    /// Evicts one segment. Returns false if there is none.
    fn evict(&self, maintenance: &mut Maintenance) -> io::Result<bool> {
        let closed = {
            let mut log = self.log.lock();
            let is_small_full = log.closed_segments(Queue::Small) >= (self.segment_count as usize / 10).max(1);
            let (first, second) = if is_small_full { (Queue::Small, Queue::Main) } else { (Queue::Main, Queue::Small) };
            match log.take_oldest(first).or_else(|| log.take_oldest(second)) {
                Some(closed) => closed,
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
        let (used, unused): (Vec<Live>, Vec<Live>) = live.into_iter().partition(|page| page.uses > 0);
        self.keep(&segment, &used)?;
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

    /// Copies pages to the main queue.
    fn keep(&self, segment: &Segment, pages: &[Live]) -> io::Result<()> {
        for batch in pages.chunks(Log::pages_max(self.segment_bytes)) {
            let mut bytes = vec![0; batch.len() * PAGE_BYTES];
            for (live, page) in batch.iter().zip(bytes.chunks_exact_mut(PAGE_BYTES)) {
                let start = u64::from(live.location.block()) * BLOCK as u64;
                if segment.file.read_at(page, start)? < PAGE_BYTES {
                    return Err(io::Error::other(format!("segment {} ends before a page", segment.number)));
                }
            }
            let mut log = self.log.lock();
            if !log.has_space_for_copies(batch.len()) {
                // The other pages leave the cache.
                break;
            }
            // A page that was changed since then is not copied; a change from now on waits for the lock, or its region
            // has an intent.
            let is_live = |live: &Live| live.object.uses_at(live.page, live.location).is_some();
            let kept = batch.iter().zip(bytes.chunks_exact(PAGE_BYTES)).filter(|(live, _)| is_live(live));
            let (kept, payload): (Vec<&Live>, Vec<&[u8]>) = kept.unzip();
            if kept.is_empty() {
                continue;
            }
            let piece = |live: &&Live| Piece::Pages { object: live.object.object, first: live.page, count: 1 };
            let pieces: Vec<Piece> = kept.iter().map(piece).collect();
            let appended = log.append(Queue::Main, &pieces, &payload, |opened| self.add_segment(opened))?;
            for (nth, live) in kept.iter().enumerate() {
                let block = appended.block + 1 + (nth * PAGE_BYTES / BLOCK) as u32;
                let uses = if segment.queue == Queue::Main { live.uses - 1 } else { 0 };
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
