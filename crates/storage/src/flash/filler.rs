//! Filling the cache: pages that were read from the cell disks are written to flash, mostly by a background thread.
//!
//! Invariant: the queue is bounded; fills beyond the bound are dropped.

use super::eviction::Maintenance;
use super::format::{PIECES_MAX, Piece, Queue};
use super::index::{CachedObject, Reservation};
use super::location::{Location, PAGE_BYTES};
use super::log::Log;
use super::region::REGION_PAGES;
use super::{BLOCK, FlashCache, Mode};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes that wait at most.
const QUEUED_BYTES_MAX: usize = 32 << 20;
/// Bytes of records that are not durable at most, about.
const UNSYNCED_BYTES_MAX: u64 = 4 << 20;
/// Intents end with a checkpoint after this time at the latest, unless their regions change again.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(300);

/// Pages to be written to flash.
#[derive(Debug)]
pub struct Fill {
    pub object: Arc<CachedObject>,
    pub reservation: Reservation,
    /// Whole pages.
    pub bytes: Vec<u8>,
    /// The pages were in flash before a write changed them.
    pub is_rewrite: bool,
}

#[derive(Debug, Default)]
struct Waiting {
    fills: VecDeque<Fill>,
    bytes: usize,
    /// Segments are to be evicted, also without fills.
    needs_space: bool,
    /// A checkpoint is to make changed settings durable.
    needs_checkpoint: bool,
    is_stopped: bool,
}

#[derive(Debug, Default)]
pub struct Filler {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
    is_in_background: std::sync::atomic::AtomicBool,
}

impl Filler {
    pub fn start(&self, cache: &Arc<FlashCache>) -> io::Result<()> {
        let (cache, builder) = (cache.clone(), std::thread::Builder::new().name("flash".into()));
        *self.thread.lock() = Some(builder.spawn(move || work(&cache))?);
        self.is_in_background.store(true, Ordering::Release);
        Ok(())
    }

    pub fn stop(&self, cache: &FlashCache) {
        self.waiting.lock().is_stopped = true;
        self.clear(cache);
        self.wake.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            ::log::error!("the thread that fills the flash cache panicked");
        }
    }

    /// Lets the thread evict segments if few are free.
    pub fn wake(&self) {
        self.waiting.lock().needs_space = true;
        self.wake.notify_one();
    }

    /// Lets the thread take a checkpoint soon.
    fn request_checkpoint(&self) {
        self.waiting.lock().needs_checkpoint = true;
        self.wake.notify_one();
    }

    /// Drops the fills that wait.
    pub fn clear(&self, cache: &FlashCache) {
        let fills = {
            let mut waiting = self.waiting.lock();
            waiting.bytes = 0;
            std::mem::take(&mut waiting.fills)
        };
        fills.into_iter().for_each(|fill| cache.end(fill, None));
    }

    /// Returns a fill that does not fit.
    fn push(&self, fill: Fill) -> Option<Fill> {
        let mut waiting = self.waiting.lock();
        if waiting.is_stopped || waiting.bytes + fill.bytes.len() > QUEUED_BYTES_MAX {
            return Some(fill);
        }
        waiting.bytes += fill.bytes.len();
        waiting.fills.push_back(fill);
        self.wake.notify_one();
        None
    }
}

fn work(cache: &FlashCache) {
    let filler = &cache.filler;
    let mut checkpointed = Instant::now();
    loop {
        let (mut batch, mut needs_checkpoint) = (Vec::new(), false);
        {
            let mut waiting = filler.waiting.lock();
            if waiting.fills.is_empty() && !(waiting.is_stopped || waiting.needs_space || waiting.needs_checkpoint) {
                filler.wake.wait_for(&mut waiting, CHECKPOINT_INTERVAL / 10);
            }
            if waiting.is_stopped {
                return;
            }
            waiting.needs_space = false;
            needs_checkpoint |= std::mem::take(&mut waiting.needs_checkpoint);
            let pages_max = Log::pages_max(cache.segment_bytes);
            let mut pages = 0;
            while let Some(fill) = waiting.fills.front()
                && (pages == 0 || pages + fill.reservation.pages.len() <= pages_max)
            {
                pages += fill.reservation.pages.len();
                waiting.bytes -= fill.bytes.len();
                batch.extend(waiting.fills.pop_front());
            }
        }
        let mut maintenance = cache.maintenance.lock();
        let mut result = cache.fill(&mut maintenance, batch);
        if cache.mode() == Mode::On {
            result = result.and_then(|()| cache.make_space(&mut maintenance));
        }
        if (needs_checkpoint || checkpointed.elapsed() >= CHECKPOINT_INTERVAL) && cache.mode() == Mode::On {
            if needs_checkpoint || cache.log.lock().intents_since_checkpoint > 0 {
                result = result.and_then(|()| cache.checkpoint(&mut maintenance));
            }
            checkpointed = Instant::now();
        }
        drop(maintenance);
        if let Err(error) = result {
            cache.fail(&error);
        }
    }
}

impl FlashCache {
    /// Writes pages to flash, in the background if possible.
    pub(super) fn queue(&self, fill: Fill) {
        debug_assert_eq!(fill.bytes.len(), fill.reservation.pages.len() * PAGE_BYTES);
        if !self.is_on() {
            return self.end(fill, None);
        }
        if !self.filler.is_in_background.load(Ordering::Acquire) {
            let result = self.fill(&mut self.maintenance.lock(), vec![fill]);
            return result.unwrap_or_else(|error| self.fail(&error));
        }
        if let Some(dropped) = self.filler.push(fill) {
            self.counters.dropped_fills.fetch_add(1, Ordering::Relaxed);
            self.end(dropped, None);
        }
    }

    /// Writes changed settings to flash: in the background if possible.
    pub(super) fn make_settings_durable(&self) {
        if self.filler.is_in_background.load(Ordering::Acquire) {
            return self.filler.request_checkpoint();
        }
        if self.is_on()
            && let Err(error) = self.checkpoint(&mut self.maintenance.lock())
        {
            self.fail(&error);
        }
    }

    fn end(&self, fill: Fill, filled: Option<(&[Location], bool)>) {
        let added = fill.object.end_fill(fill.reservation, filled);
        self.add_pages(added);
    }

    fn fill(&self, maintenance: &mut Maintenance, fills: Vec<Fill>) -> io::Result<()> {
        let (mut by_queue, mut result) = ([Vec::new(), Vec::new(), Vec::new()], Ok(()));
        for fill in fills {
            let queue = match fill.object.is_kept() {
                true => Queue::Keep,
                false => self.queue_of(maintenance, fill.object.object, fill.reservation.pages.start),
            };
            by_queue[queue as usize].push(fill);
        }
        for (queue, fills) in [Queue::Small, Queue::Main, Queue::Keep].into_iter().zip(by_queue) {
            result = result.and_then(|()| self.make_space(maintenance));
            let mut rest = fills.into_iter().peekable();
            while rest.peek().is_some() {
                let (mut batch, mut pages) = (Vec::new(), 0);
                let pages_max = Log::pages_max(self.segment_bytes);
                // A fill needs at most two pieces.
                while batch.len() < PIECES_MAX / 2
                    && let Some(fill) = rest.next_if(|fill: &Fill| pages + fill.reservation.pages.len() <= pages_max)
                {
                    pages += fill.reservation.pages.len();
                    batch.push(fill);
                }
                match &result {
                    Ok(()) => result = self.write(queue, batch).and_then(|()| self.flush_some()),
                    Err(_) => batch.into_iter().for_each(|fill| self.end(fill, None)),
                }
            }
        }
        result
    }

    /// Makes records durable if there are many that are not: an intent waits for all records before it.
    pub(super) fn flush_some(&self) -> io::Result<()> {
        let flush = {
            let log = self.log.lock();
            if log.unsynced_bytes() < UNSYNCED_BYTES_MAX.min(self.segment_bytes) {
                return Ok(());
            }
            log.begin_flush()
        };
        let result = flush.run();
        self.log.lock().end_flush(&flush, result)
    }

    /// Appends one record with the fills whose bytes are still those on disk.
    fn write(&self, queue: Queue, fills: Vec<Fill>) -> io::Result<()> {
        let mut log = self.log.lock();
        let (mut current, mut pieces, mut payload) = (Vec::new(), Vec::new(), Vec::new());
        // Intents may have used the segments that were free before.
        if !log.has_space_for(queue, fills.iter().map(|fill| fill.reservation.pages.len()).sum()) {
            drop(log);
            self.counters.dropped_fills.fetch_add(fills.len() as u64, Ordering::Relaxed);
            fills.into_iter().for_each(|fill| self.end(fill, None));
            return Ok(());
        }
        let mut intents: Vec<(super::Object, u32)> = Vec::new();
        for fill in fills {
            let Some(needs_intent) = fill.object.check_fill(&fill.reservation) else {
                self.end(fill, None);
                continue;
            };
            let (object, pages) = (fill.object.object, fill.reservation.pages.clone());
            let region = pages.start / REGION_PAGES;
            if needs_intent && !intents.contains(&(object, region)) {
                pieces.push(Piece::Intent { object, first: region, last: region });
                intents.push((object, region));
            }
            pieces.push(Piece::Pages { object, first: pages.start, count: pages.len() as u32 });
            current.push((fill, needs_intent));
        }
        if current.is_empty() {
            return Ok(());
        }
        for (fill, _) in &current {
            payload.extend(fill.bytes.chunks_exact(PAGE_BYTES));
        }
        let appended = match log.append(queue, &pieces, &payload, |segment| self.add_segment(segment)) {
            Ok(appended) => appended,
            Err(error) => {
                drop(log);
                // Before the fills end, because the record may be durable in spite of the error: as long as a region has
                // fills, a change of it needs an intent.
                self.fail(&error);
                current.into_iter().for_each(|(fill, _)| self.end(fill, None));
                return Err(error);
            }
        };
        log.intents_since_checkpoint += intents.len() as u32;
        let mut block = appended.block + 1;
        for (fill, has_intent) in current {
            let locations: Vec<Location> = fill
                .reservation
                .pages
                .clone()
                .map(|_| {
                    let location = Location::new(appended.segment.number, block);
                    block += (PAGE_BYTES / BLOCK) as u32;
                    location
                })
                .collect();
            let counters = &self.counters;
            let counter = if fill.is_rewrite { &counters.rewritten_pages } else { &counters.populated_pages };
            counter.fetch_add(locations.len() as u64, Ordering::Relaxed);
            counters.populated_requests.fetch_add(u64::from(!fill.is_rewrite), Ordering::Relaxed);
            self.end(fill, Some((&locations, has_intent)));
        }
        Ok(())
    }
}
