//! The cell's own page cache: regions of files on huge pages, loaded whole, read in place.
//!
//! Invariants:
//! - A slot in a file's slot map contains the region that the map names, is being loaded with that region, or is being
//!   released. `Content`, read under the slot's lock, distinguishes these cases.
//! - A slot contains exactly the bytes of its region at `version`.
//! - Every byte in a slot is also on disk or in the file's write in flight, so a slot can be released at any time.
//!
//! Lock order: a slot's lock, then a file's slot map; no thread waits for a slot's lock while it holds a slot map. A
//! reader holds at most one guard per slot.

mod arena;

use crate::flash;
use crate::request::{Urgency, with_urgency};
use arena::Arena;
use cellar_format::units::{REGION_BYTES, RegionIndex, RegionVersion};
use parking_lot::{ArcRwLockReadGuard, ArcRwLockWriteGuard, Mutex, RawRwLock, RwLock, RwLockWriteGuard};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Slots populated with memory by one system call.
const POPULATE_SLOTS: usize = 64;

/// The slot map of one file (or compression unit): which of its regions are in the cache.
#[derive(Debug, Default)]
pub struct CachedFile {
    slots: Mutex<HashMap<RegionIndex, Arc<CacheSlot>>>,
    /// Length of `slots`, readable without the lock.
    count: AtomicUsize,
}

#[derive(Debug)]
struct CacheSlot {
    content: Arc<RwLock<Content>>,
    /// Set at each use, cleared by the clock hand.
    referenced: AtomicBool,
    /// Raised while a change waits for a load.
    urgency: Arc<Urgency>,
}

impl CacheSlot {
    /// Locks the slot for a change. A load into the slot that waits in the queue of a device starts at once.
    fn lock_for_change(&self) -> RwLockWriteGuard<'_, Content> {
        self.content.try_write().unwrap_or_else(|| {
            self.urgency.raise();
            let content = self.content.write();
            self.urgency.lower();
            content
        })
    }
}

/// The content of a slot.
#[derive(Debug)]
struct Content {
    /// The file and region that the slot contains; None if it is empty.
    owner: Option<(Arc<CachedFile>, RegionIndex)>,
    memory: Memory,
    /// Bytes of the region that exist in the file; the rest of the slot is zeros.
    valid: usize,
    version: RegionVersion,
    cost: IoCost,
    /// Set by a prefetch; cleared by the first reader, which reports the cost of the prefetch as its own.
    is_cost_unreported: AtomicBool,
}

/// The I/O that an access took; nothing if the region was in the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IoCost {
    /// Bytes read from cell disks, and the requests for them.
    pub disk_bytes: u64,
    pub disk_requests: u64,
    /// The same of reads that the flash cache answered.
    pub flash_bytes: u64,
    pub flash_requests: u64,
}

impl IoCost {
    /// Runs one read request of this thread, which returns the bytes that it has read, and returns what it took.
    pub fn of_request<E>(read: impl FnOnce() -> Result<u64, E>) -> Result<Self, E> {
        let (bytes, is_from_flash) = flash::from_flash(read);
        let bytes = bytes?;
        Ok(match is_from_flash {
            true => Self { flash_bytes: bytes, flash_requests: 1, ..Self::default() },
            false => Self { disk_bytes: bytes, disk_requests: 1, ..Self::default() },
        })
    }

    pub fn add(&mut self, other: Self) {
        self.disk_bytes += other.disk_bytes;
        self.disk_requests += other.disk_requests;
        self.flash_bytes += other.flash_bytes;
        self.flash_requests += other.flash_requests;
    }

    /// Returns what an access took since it had taken `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            disk_bytes: self.disk_bytes - before.disk_bytes,
            disk_requests: self.disk_requests - before.disk_requests,
            flash_bytes: self.flash_bytes - before.flash_bytes,
            flash_requests: self.flash_requests - before.flash_requests,
        }
    }

    /// Returns whether nothing was read.
    pub fn is_nothing(&self) -> bool {
        self.disk_requests == 0 && self.flash_requests == 0
    }
}

/// What a loader reports about the bytes that it wrote to a slot.
#[derive(Debug, Clone, Copy)]
pub struct Loaded {
    /// Bytes of the region that exist in the file.
    pub valid: usize,
    pub version: RegionVersion,
    pub cost: IoCost,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStats {
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    pub hits: u64,
    pub misses: u64,
    pub evictions: u64,
}

#[derive(Debug)]
struct Memory {
    arena: Arc<Arena>,
    index: usize,
}

impl Memory {
    fn bytes(&self) -> &[u8] {
        // SAFETY: a shared borrow of the content exists only under the slot's lock, and `self` keeps the arena alive.
        unsafe { std::slice::from_raw_parts(self.arena.slot(self.index).as_ptr(), REGION_BYTES) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: an exclusive borrow of the content exists only under the slot's write lock; no other slot has this
        // index.
        unsafe { std::slice::from_raw_parts_mut(self.arena.slot(self.index).as_ptr(), REGION_BYTES) }
    }
}

#[derive(Debug)]
pub struct Cache {
    arena: Arc<Arena>,
    slots: Vec<Arc<CacheSlot>>,
    /// Clock hand: the next slot to consider for eviction.
    hand: Mutex<usize>,
    /// Number of slots.
    capacity: usize,
    /// Slots that contain a region.
    used: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
}

type SlotWriteGuard = ArcRwLockWriteGuard<RawRwLock, Content>;
type SlotReadGuard = ArcRwLockReadGuard<RawRwLock, Content>;

/// The result of loading a region into a slot.
enum Claim<L> {
    Loaded(SlotWriteGuard),
    /// Another slot contains the region or is being loaded with it; the loader was not called.
    Taken(L),
    /// Every slot is in use.
    Full,
}

/// A slot that is being loaded. Dropping the value releases the slot.
struct ClaimedSlot<'a> {
    cache: &'a Cache,
    content: &'a mut Content,
}

impl Drop for ClaimedSlot<'_> {
    fn drop(&mut self) {
        self.cache.release(self.content);
    }
}

/// A cached region, locked against changes while the value lives.
pub struct CachedRegion {
    content: SlotReadGuard,
    cost: IoCost,
}

impl CachedRegion {
    pub fn bytes(&self) -> &[u8] {
        &self.content.memory.bytes()[..self.content.valid]
    }
    pub fn version(&self) -> RegionVersion {
        self.content.version
    }
    pub fn cost(&self) -> IoCost {
        self.cost
    }
}

impl Cache {
    pub fn new(bytes: u64) -> io::Result<Self> {
        let capacity = (bytes / REGION_BYTES as u64) as usize;
        let arena = Arc::new(Arena::new(capacity)?);
        let slot = |index| {
            let memory = Memory { arena: arena.clone(), index };
            let (valid, version, cost) = (0, RegionVersion::NONE, IoCost::default());
            let content =
                Content { owner: None, memory, valid, version, cost, is_cost_unreported: AtomicBool::new(false) };
            let (content, referenced) = (Arc::new(RwLock::new(content)), AtomicBool::new(false));
            Arc::new(CacheSlot { content, referenced, urgency: Arc::default() })
        };
        Ok(Self {
            slots: (0..arena.slots()).map(slot).collect(),
            arena,
            hand: Mutex::new(0),
            capacity,
            used: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        })
    }

    /// Populates the cache's memory until done or `stop` returns true. Otherwise cold scans would wait for the kernel
    /// to zero pages, which costs more than the disk.
    pub fn populate(&self, stop: impl Fn() -> bool) {
        let mut from = 0;
        while from < self.capacity && !stop() {
            self.arena.populate(from..from + POPULATE_SLOTS);
            from += POPULATE_SLOTS;
        }
    }

    pub fn stats(&self) -> CacheStats {
        let bytes = |slots: usize| (slots * REGION_BYTES) as u64;
        CacheStats {
            capacity_bytes: bytes(self.capacity),
            used_bytes: bytes(self.used.load(Ordering::Relaxed)),
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> u64 {
        self.capacity as u64
    }

    /// Returns the number of evictions so far.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Returns a region of `file` from the cache, loading it with `load` if absent. None if every slot is in use.
    pub fn get<E>(
        &self,
        file: &Arc<CachedFile>,
        region: RegionIndex,
        mut load: impl FnOnce(&mut [u8]) -> Result<Loaded, E>,
    ) -> Result<Option<CachedRegion>, E> {
        loop {
            if let Some(found) = self.find(file, region) {
                let counter = if found.cost.is_nothing() { &self.hits } else { &self.misses };
                counter.fetch_add(1, Ordering::Relaxed);
                return Ok(Some(found));
            }
            match self.load_into_victim(file, region, false, load)? {
                Claim::Full => return Ok(None),
                Claim::Taken(unused) => load = unused,
                Claim::Loaded(content) => {
                    self.misses.fetch_add(1, Ordering::Relaxed);
                    let cost = content.cost;
                    return Ok(Some(CachedRegion { content: ArcRwLockWriteGuard::downgrade(content), cost }));
                }
            }
        }
    }

    /// Loads a region that is not in the cache. The first reader reports the cost.
    pub fn prefetch<E>(
        &self,
        file: &Arc<CachedFile>,
        region: RegionIndex,
        load: impl FnOnce(&mut [u8]) -> Result<Loaded, E>,
    ) -> Result<(), E> {
        if file.slots.lock().contains_key(&region) {
            return Ok(());
        }
        self.load_into_victim(file, region, true, load).map(drop)
    }

    /// Evicts an unused slot and loads the region into it. With `is_cost_unreported` the first reader reports the cost.
    fn load_into_victim<E, L: FnOnce(&mut [u8]) -> Result<Loaded, E>>(
        &self,
        file: &Arc<CachedFile>,
        region: RegionIndex,
        is_cost_unreported: bool,
        load: L,
    ) -> Result<Claim<L>, E> {
        let Some((slot, mut content)) = self.take_victim() else { return Ok(Claim::Full) };
        if !self.claim(file, region, &slot, &mut content) {
            return Ok(Claim::Taken(load));
        }
        // Released unless the load succeeds: after an error, and after a panic of the loader.
        let claimed = ClaimedSlot { cache: self, content: &mut content };
        let loaded = with_urgency(&slot.urgency, || load(claimed.content.memory.bytes_mut()))?;
        std::mem::forget(claimed);
        content.valid = loaded.valid;
        content.version = loaded.version;
        content.cost = loaded.cost;
        content.is_cost_unreported = AtomicBool::new(is_cost_unreported);
        slot.referenced.store(true, Ordering::Relaxed);
        Ok(Claim::Loaded(content))
    }

    pub fn contains(&self, file: &CachedFile, region: RegionIndex) -> bool {
        file.count.load(Ordering::Acquire) > 0 && file.slots.lock().contains_key(&region)
    }

    /// Returns a region that is in the cache; waits while it is being loaded or written.
    pub fn find(&self, file: &Arc<CachedFile>, region: RegionIndex) -> Option<CachedRegion> {
        if file.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let slot = file.slots.lock().get(&region)?.clone();
        let content = RwLock::read_arc(&slot.content);
        Self::found(file, region, &slot, content)
    }

    /// Returns a region that is in the cache; None also while it is being loaded or written.
    pub fn try_find(&self, file: &Arc<CachedFile>, region: RegionIndex) -> Option<CachedRegion> {
        if file.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let slot = file.slots.lock().get(&region)?.clone();
        let content = RwLock::try_read_arc(&slot.content)?;
        Self::found(file, region, &slot, content)
    }

    /// Returns whether a write to the regions would wait for a scan or a load of one of them.
    pub fn is_busy(&self, file: &Arc<CachedFile>, regions: Range<RegionIndex>) -> bool {
        if file.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        RegionIndex::iter(regions).any(|region| {
            let slot = file.slots.lock().get(&region).cloned();
            slot.is_some_and(|slot| slot.content.is_locked())
        })
    }

    fn found(
        file: &Arc<CachedFile>,
        region: RegionIndex,
        slot: &CacheSlot,
        content: SlotReadGuard,
    ) -> Option<CachedRegion> {
        if !owns(&content, file, region) {
            return None;
        }
        slot.referenced.store(true, Ordering::Relaxed);
        let cost = match content.is_cost_unreported.swap(false, Ordering::Relaxed) {
            true => content.cost,
            false => IoCost::default(),
        };
        Some(CachedRegion { content, cost })
    }

    /// Copies newly written bytes into the slots of their regions.
    pub fn patch(&self, file: &Arc<CachedFile>, offset: u64, data: &[u8], version: RegionVersion) {
        if file.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let end = offset + data.len() as u64;
        let mut start = offset;
        while start < end {
            let region = RegionIndex::containing(start);
            let base = region.start();
            let stop = end.min(base + REGION_BYTES as u64);
            let slot = file.slots.lock().get(&region).cloned();
            if let Some(slot) = slot {
                let mut content = slot.lock_for_change();
                if owns(&content, file, region) {
                    let at = (start - base) as usize..(stop - base) as usize;
                    let bytes = &data[(start - offset) as usize..(stop - offset) as usize];
                    content.memory.bytes_mut()[at.clone()].copy_from_slice(bytes);
                    content.valid = content.valid.max(at.end);
                    content.version = content.version.max(version);
                }
            }
            start = stop;
        }
    }

    /// Releases the slots of regions.
    pub fn forget(&self, file: &Arc<CachedFile>, regions: Range<RegionIndex>) {
        if file.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let inside_range: Vec<(RegionIndex, Arc<CacheSlot>)> = {
            let slots = file.slots.lock();
            let inside = slots.iter().filter(|(region, _)| regions.contains(region));
            inside.map(|(region, slot)| (*region, slot.clone())).collect()
        };
        for (region, slot) in inside_range {
            let mut content = slot.lock_for_change();
            if owns(&content, file, region) {
                self.release(&mut content);
                slot.referenced.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Returns an unused slot, locked and emptied; None if every slot is in use.
    fn take_victim(&self) -> Option<(Arc<CacheSlot>, SlotWriteGuard)> {
        let mut hand = self.hand.lock();
        for _ in 0..self.slots.len() * 2 {
            let slot = &self.slots[*hand];
            *hand = (*hand + 1) % self.slots.len();
            if slot.referenced.swap(false, Ordering::Relaxed) {
                continue;
            }
            if let Some(mut content) = RwLock::try_write_arc(&slot.content) {
                if content.owner.is_some() {
                    self.release(&mut content);
                    self.evictions.fetch_add(1, Ordering::Relaxed);
                }
                return Some((slot.clone(), content));
            }
        }
        None
    }

    /// Assigns the locked slot to the region; returns false if another slot is already assigned to it.
    fn claim(
        &self,
        file: &Arc<CachedFile>,
        region: RegionIndex,
        slot: &Arc<CacheSlot>,
        content: &mut SlotWriteGuard,
    ) -> bool {
        let mut slots = file.slots.lock();
        if slots.contains_key(&region) {
            return false;
        }
        slots.insert(region, slot.clone());
        // Store the count before the load starts. A writer that still sees 0 patches no slot; the loader then reads
        // that writer's bytes from the write in flight, which the writer published before it read the count.
        file.count.store(slots.len(), Ordering::SeqCst);
        content.owner = Some((file.clone(), region));
        self.used.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn release(&self, content: &mut Content) {
        if let Some((file, region)) = content.owner.take() {
            let mut slots = file.slots.lock();
            slots.remove(&region);
            file.count.store(slots.len(), Ordering::SeqCst);
            self.used.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn owns(content: &Content, file: &Arc<CachedFile>, region: RegionIndex) -> bool {
    matches!(&content.owner, Some((owner, owned)) if Arc::ptr_eq(owner, file) && *owned == region)
}

impl Drop for Cache {
    /// Slots and slot maps refer to each other; releasing the slots breaks the cycle.
    fn drop(&mut self) {
        for slot in &self.slots {
            if let Some(mut content) = slot.content.try_write() {
                self.release(&mut content);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::is_urgent;
    use std::time::{Duration, Instant};

    #[test]
    fn a_load_that_a_write_waits_for_becomes_urgent_and_the_next_load_is_not() {
        let (cache, file) = (Cache::new(REGION_BYTES as u64).unwrap(), Arc::new(CachedFile::default()));
        let loaded = Loaded { valid: REGION_BYTES, version: RegionVersion::NONE, cost: IoCost::default() };
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let load = scope.spawn(|| {
                let until_urgent = |_: &mut [u8]| {
                    assert!(!is_urgent());
                    sender.send(()).unwrap();
                    let started = Instant::now();
                    while !is_urgent() && started.elapsed() < Duration::from_secs(10) {
                        std::thread::yield_now();
                    }
                    Ok::<_, io::Error>(loaded)
                };
                drop(cache.get(&file, RegionIndex(0), until_urgent).unwrap());
                !is_urgent()
            });
            receiver.recv().unwrap();
            let started = Instant::now();
            cache.patch(&file, 0, &[7], RegionVersion::NONE);
            assert!(load.join().unwrap() && started.elapsed() < Duration::from_secs(5));
        });
        assert_eq!(cache.find(&file, RegionIndex(0)).unwrap().bytes()[..2], [7, 0]);
        cache.forget(&file, RegionIndex(0)..RegionIndex(1));
        let mut was_urgent = true;
        let next = |_: &mut [u8]| {
            was_urgent = is_urgent();
            Ok::<_, io::Error>(loaded)
        };
        assert!(cache.get(&file, RegionIndex(0), next).unwrap().is_some() && !was_urgent);
    }
}
