//! The cell's own page cache: regions of files on huge pages, loaded whole, read in place.
//!
//! Invariants: a frame that a file's map names holds that region, or is being loaded, or is about to be dropped, and
//! whoever holds its lock sees which; a frame's content is never newer or older than its `version`; frames hold no
//! byte that is not also on disk or in the file's write under way, so a frame can be dropped at any time. Lock order: a
//! frame's lock, then a file's map; no frame lock is waited for inside a map. A reader holds one guard per frame at
//! most.

mod arena;

use arena::Arena;
use cellar_format::units::REGION_BYTES;
use parking_lot::{ArcRwLockReadGuard, ArcRwLockWriteGuard, Mutex, RawRwLock, RwLock};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Frames that get their memory in one request of the kernel.
const POPULATE_FRAMES: usize = 64;

/// The regions of one file that are in the cache.
#[derive(Debug, Default)]
pub struct CachedFile {
    frames: Mutex<HashMap<u32, Arc<Frame>>>,
    count: AtomicUsize,
}

#[derive(Debug)]
struct Frame {
    content: Arc<RwLock<Content>>,
    referenced: AtomicBool,
}

/// What a frame holds.
#[derive(Debug)]
struct Content {
    owner: Option<(Arc<CachedFile>, u32)>,
    memory: Memory,
    /// Bytes of the region that exist in the file; the rest is zeros.
    valid: usize,
    version: u64,
    source: RegionSource,
    /// Cleared by the first reader after loading.
    fresh: AtomicBool,
}

/// How a region came to be in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RegionSource {
    /// Bytes that this access read from disk; 0 when the region was in the cache already.
    pub disk_bytes: u64,
    /// Requests to disks for them.
    pub disk_requests: u64,
}

/// What a loader reports about the bytes that it put into a frame.
#[derive(Debug, Clone, Copy)]
pub struct Loaded {
    pub valid: usize,
    pub version: u64,
    pub source: RegionSource,
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
        // SAFETY: a shared borrow of the content is had under the frame's lock only, and the arena is held.
        unsafe { std::slice::from_raw_parts(self.arena.frame(self.index).as_ptr(), REGION_BYTES) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: an exclusive borrow of the content is had under the frame's write lock only; no other frame has this
        // index.
        unsafe { std::slice::from_raw_parts_mut(self.arena.frame(self.index).as_ptr(), REGION_BYTES) }
    }
}

#[derive(Debug)]
pub struct Cache {
    arena: Arc<Arena>,
    frames: Vec<Arc<Frame>>,
    hand: Mutex<usize>,
    capacity: usize,
    used: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
}

type WriteGuard = ArcRwLockWriteGuard<RawRwLock, Content>;
type ReadGuard = ArcRwLockReadGuard<RawRwLock, Content>;

/// What came of giving a region a frame.
enum Claim<L> {
    Loaded(WriteGuard),
    /// Another frame holds the region, or is getting it; the loader was not called.
    Taken(L),
    /// Every frame is in use.
    Full,
}

/// A cached region, locked against change while it lives.
pub struct CachedRegion {
    content: ReadGuard,
    source: RegionSource,
}

impl CachedRegion {
    pub fn bytes(&self) -> &[u8] {
        &self.content.memory.bytes()[..self.content.valid]
    }
    pub fn version(&self) -> u64 {
        self.content.version
    }
    pub fn source(&self) -> RegionSource {
        self.source
    }
}

impl Cache {
    pub fn new(bytes: u64) -> io::Result<Self> {
        let capacity = (bytes / REGION_BYTES as u64) as usize;
        let arena = Arc::new(Arena::new(capacity)?);
        let frame = |index| {
            let memory = Memory { arena: arena.clone(), index };
            let (valid, version, source) = (0, 0, RegionSource::default());
            let content = Content { owner: None, memory, valid, version, source, fresh: AtomicBool::new(false) };
            Arc::new(Frame { content: Arc::new(RwLock::new(content)), referenced: AtomicBool::new(false) })
        };
        Ok(Self {
            frames: (0..arena.frames()).map(frame).collect(),
            arena,
            hand: Mutex::new(0),
            capacity,
            used: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        })
    }

    /// Has the kernel give the cache its memory, piece by piece, until `stop` says so: zeroing pages in the middle of a
    /// cold scan would cost more than the disk.
    pub fn populate(&self, stop: impl Fn() -> bool) {
        let mut from = 0;
        while from < self.capacity && !stop() {
            self.arena.populate(from..from + POPULATE_FRAMES);
            from += POPULATE_FRAMES;
        }
    }

    pub fn stats(&self) -> CacheStats {
        let bytes = |frames: usize| (frames * REGION_BYTES) as u64;
        CacheStats {
            capacity_bytes: bytes(self.capacity),
            used_bytes: bytes(self.used.load(Ordering::Relaxed)),
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }

    /// Regions that there is room for.
    pub fn frames(&self) -> u64 {
        self.capacity as u64
    }

    /// Regions that gave way to others so far.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// A region of `file`, from the cache or through `load`. None when every frame is in use.
    pub fn get<E>(
        &self,
        file: &Arc<CachedFile>,
        region: u32,
        mut load: impl FnOnce(&mut [u8]) -> Result<Loaded, E>,
    ) -> Result<Option<CachedRegion>, E> {
        loop {
            if let Some(found) = self.find(file, region) {
                let counter = if found.source.disk_requests == 0 { &self.hits } else { &self.misses };
                counter.fetch_add(1, Ordering::Relaxed);
                return Ok(Some(found));
            }
            match self.load_into_victim(file, region, false, load)? {
                Claim::Full => return Ok(None),
                Claim::Taken(unused) => load = unused,
                Claim::Loaded(content) => {
                    self.misses.fetch_add(1, Ordering::Relaxed);
                    let source = content.source;
                    return Ok(Some(CachedRegion { content: ArcRwLockWriteGuard::downgrade(content), source }));
                }
            }
        }
    }

    /// Loads a region that is not in the cache, for a later reader, who is told what it cost.
    pub fn prefetch<E>(
        &self,
        file: &Arc<CachedFile>,
        region: u32,
        load: impl FnOnce(&mut [u8]) -> Result<Loaded, E>,
    ) -> Result<(), E> {
        if file.frames.lock().contains_key(&region) {
            return Ok(());
        }
        self.load_into_victim(file, region, true, load).map(drop)
    }

    /// Gives the region a frame that nobody uses and fills it; `fresh` tells its first reader what that cost.
    fn load_into_victim<E, L: FnOnce(&mut [u8]) -> Result<Loaded, E>>(
        &self,
        file: &Arc<CachedFile>,
        region: u32,
        fresh: bool,
        load: L,
    ) -> Result<Claim<L>, E> {
        let Some((frame, mut content)) = self.take_victim() else { return Ok(Claim::Full) };
        if !self.claim(file, region, &frame, &mut content) {
            return Ok(Claim::Taken(load));
        }
        let loaded = load(content.memory.bytes_mut()).inspect_err(|_| self.release(&mut content))?;
        content.valid = loaded.valid;
        content.version = loaded.version;
        content.source = loaded.source;
        content.fresh = AtomicBool::new(fresh);
        frame.referenced.store(true, Ordering::Relaxed);
        Ok(Claim::Loaded(content))
    }

    pub fn contains(&self, file: &CachedFile, region: u32) -> bool {
        file.count.load(Ordering::Acquire) > 0 && file.frames.lock().contains_key(&region)
    }

    /// A region that is in the cache; waits while it is being loaded or written.
    pub fn find(&self, file: &Arc<CachedFile>, region: u32) -> Option<CachedRegion> {
        if file.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let frame = file.frames.lock().get(&region)?.clone();
        let content = RwLock::read_arc(&frame.content);
        if !owns(&content, file, region) {
            return None;
        }
        frame.referenced.store(true, Ordering::Relaxed);
        let source = match content.fresh.swap(false, Ordering::Relaxed) {
            true => content.source,
            false => RegionSource::default(),
        };
        Some(CachedRegion { content, source })
    }

    /// Puts newly written bytes into the frames that hold their regions.
    pub fn patch(&self, file: &Arc<CachedFile>, offset: u64, data: &[u8], version: u64) {
        if file.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let end = offset + data.len() as u64;
        let mut start = offset;
        while start < end {
            let region = (start / REGION_BYTES as u64) as u32;
            let base = u64::from(region) * REGION_BYTES as u64;
            let stop = end.min(base + REGION_BYTES as u64);
            let frame = file.frames.lock().get(&region).cloned();
            if let Some(frame) = frame {
                let mut content = frame.content.write();
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

    /// Drops the frames of all regions from `first` up to, not including, `end`.
    pub fn forget(&self, file: &Arc<CachedFile>, first: u32, end: u32) {
        if file.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let doomed: Vec<(u32, Arc<Frame>)> = {
            let frames = file.frames.lock();
            let inside = frames.iter().filter(|(region, _)| (first..end).contains(*region));
            inside.map(|(region, frame)| (*region, frame.clone())).collect()
        };
        for (region, frame) in doomed {
            let mut content = frame.content.write();
            if owns(&content, file, region) {
                self.release(&mut content);
                frame.referenced.store(false, Ordering::Relaxed);
            }
        }
    }

    /// A frame that nobody uses, locked and emptied.
    fn take_victim(&self) -> Option<(Arc<Frame>, WriteGuard)> {
        let mut hand = self.hand.lock();
        for _ in 0..self.frames.len() * 2 {
            let frame = &self.frames[*hand];
            *hand = (*hand + 1) % self.frames.len();
            if frame.referenced.swap(false, Ordering::Relaxed) {
                continue;
            }
            if let Some(mut content) = RwLock::try_write_arc(&frame.content) {
                if content.owner.is_some() {
                    self.release(&mut content);
                    self.evictions.fetch_add(1, Ordering::Relaxed);
                }
                return Some((frame.clone(), content));
            }
        }
        None
    }

    /// Names the locked frame as the region's; false when another frame is.
    fn claim(&self, file: &Arc<CachedFile>, region: u32, frame: &Arc<Frame>, content: &mut WriteGuard) -> bool {
        let mut frames = file.frames.lock();
        if frames.contains_key(&region) {
            return false;
        }
        frames.insert(region, frame.clone());
        // A writer that sees no frame counted has its bytes where the loader will find them.
        file.count.store(frames.len(), Ordering::SeqCst);
        content.owner = Some((file.clone(), region));
        self.used.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn release(&self, content: &mut Content) {
        if let Some((file, region)) = content.owner.take() {
            let mut frames = file.frames.lock();
            frames.remove(&region);
            file.count.store(frames.len(), Ordering::SeqCst);
            self.used.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn owns(content: &Content, file: &Arc<CachedFile>, region: u32) -> bool {
    matches!(&content.owner, Some((owner, number)) if Arc::ptr_eq(owner, file) && *number == region)
}

impl Drop for Cache {
    /// Frames and files name each other; this unties them.
    fn drop(&mut self) {
        for frame in &self.frames {
            if let Some(mut content) = frame.content.try_write() {
                self.release(&mut content);
            }
        }
    }
}
