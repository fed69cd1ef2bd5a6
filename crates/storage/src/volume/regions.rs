//! Regions for scans: read in place from the cell's page cache, loaded ahead by a pool of threads.

use super::{Ino, Volume};
use crate::cache::{Cache, CachedRegion, Loaded, RegionSource};
use crate::error::{Context, Error, Result};
use crate::file::FileData;
use cellar_format::units::REGION_BYTES;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Hints beyond this many are dropped.
const QUEUE_MAX: usize = 4096;
/// Tries of a load beside the cache before it stops the file's writers.
const RACES_MAX: usize = 3;

/// A region's valid bytes, which do not change while the guard lives: writers to the region wait. Hold it for as long
/// as decoding takes and never while waiting for anything; hold no two guards of one region.
pub struct RegionGuard {
    held: Held,
    is_whole: bool,
}

enum Held {
    Cached(CachedRegion),
    Private { bytes: Vec<u8>, version: u64, source: RegionSource },
}

impl RegionGuard {
    /// The region's version that these bytes are; compare it with [`Volume::region_version`].
    pub fn version(&self) -> u64 {
        match &self.held {
            Held::Cached(region) => region.version(),
            Held::Private { version, .. } => *version,
        }
    }

    /// False when the bytes may have a block in them of which only a part has arrived: that is for its writer to tell.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Bytes that this access read from disks; 0 when the region was in the cache. The first reader after a prefetch
    /// is told what the prefetch read.
    pub fn disk_read_bytes(&self) -> u64 {
        self.source().disk_bytes
    }

    /// Requests to disks for them.
    pub fn disk_read_requests(&self) -> u64 {
        self.source().disk_requests
    }

    fn source(&self) -> RegionSource {
        match &self.held {
            Held::Cached(region) => region.source(),
            Held::Private { source, .. } => *source,
        }
    }
}

impl Deref for RegionGuard {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.held {
            Held::Cached(region) => region.bytes(),
            Held::Private { bytes, .. } => bytes,
        }
    }
}

impl Volume {
    /// Pins a region, loading it when it is not in the cache. The bytes end early at the end of the file.
    pub fn region(&self, ino: Ino, region: u32) -> Result<RegionGuard> {
        let file = self.file(ino)?;
        // The version comes first: a write that ends the emptiness also ends the number.
        let version = file.versions.get(region);
        if u64::from(region) * REGION_BYTES as u64 >= file.size()? {
            let source = RegionSource::default();
            return Ok(RegionGuard { held: Held::Private { bytes: Vec::new(), version, source }, is_whole: true });
        }
        let held = match self.cache.get(&file.cached, region, |buffer| load(&file, region, buffer)) {
            Ok(Some(cached)) => Ok(Held::Cached(cached)),
            Ok(None) => load_beside_cache(&file, region),
            Err(error) => Err(error),
        };
        let held = held.map_err(|error| self.named(ino, error))?;
        let start = u64::from(region) * REGION_BYTES as u64;
        let whole = !file.halves.touch(&(start..start + REGION_BYTES as u64));
        // The missing part may have come since the bytes were read, where nobody waits for them to be let go.
        let is_whole = match &held {
            Held::Cached(_) => whole,
            Held::Private { version, .. } => whole && *version == file.versions.get(region),
        };
        Ok(RegionGuard { held, is_whole })
    }

    /// Whether a part of the file's bytes may have a block in it of which only a part has arrived.
    pub fn is_incomplete(&self, ino: Ino, range: Range<u64>) -> Result<bool> {
        Ok(self.file(ino)?.halves.touch(&range))
    }

    /// Asks for regions to be loaded soon; returns at once. Regions past the end of the file are ignored.
    pub fn prefetch(&self, ino: Ino, regions: Range<u32>) {
        let Ok(file) = self.file(ino) else { return };
        let Ok(size) = file.size() else { return };
        let end = regions.end.min(size.div_ceil(REGION_BYTES as u64).min(u64::from(u32::MAX)) as u32);
        let absent = (regions.start..end).filter(|region| !self.cache.contains(&file.cached, *region));
        self.prefetcher.push(absent.map(|region| (file.clone(), region)));
    }

    /// A number that changes with every write, cut or hole that touches the region, before its bytes can be seen, and
    /// that is never used again while the daemon lives. 0, which no region ever has, when there is no such file.
    pub fn region_version(&self, ino: Ino, region: u32) -> u64 {
        self.file(ino).map_or(0, |file| file.versions.get(region))
    }
}

/// Fills a frame. A write that came meanwhile may have been seen in part, so the region is read again then; the next
/// writer finds the frame and waits for it.
fn load(file: &FileData, region: u32, buffer: &mut [u8]) -> Result<Loaded, Error> {
    let base = u64::from(region) * REGION_BYTES as u64;
    let mut source = RegionSource::default();
    loop {
        let version = file.versions.get(region);
        let valid = file.size()?.saturating_sub(base).min(REGION_BYTES as u64) as usize;
        let aligned = valid.next_multiple_of(crate::disk::DIRECT_ALIGN);
        let cost = file.load(&mut buffer[..aligned], base, true)?;
        buffer[valid..].fill(0);
        source.disk_bytes += cost.disk_bytes;
        source.disk_requests += cost.disk_requests.max(1);
        if version == file.versions.get(region) {
            return Ok(Loaded { valid, version, source });
        }
    }
}

/// Reads a region when no frame is free. Nobody patches such a copy, so it must have seen no write while it was read.
fn load_beside_cache(file: &FileData, region: u32) -> Result<Held> {
    let read = || -> Result<Held> {
        let version = file.versions.get(region);
        let base = u64::from(region) * REGION_BYTES as u64;
        let mut bytes = vec![0; file.size()?.saturating_sub(base).min(REGION_BYTES as u64) as usize];
        let source = file.load(&mut bytes, base, false)?;
        Ok(Held::Private { bytes, version, source })
    };
    for _ in 0..RACES_MAX {
        let held = read()?;
        let Held::Private { version, .. } = &held else { unreachable!("just made") };
        if *version == file.versions.get(region) {
            return Ok(held);
        }
    }
    let _write = file.write.lock();
    read()
}

/// Threads that load regions ahead of scans.
#[derive(Debug)]
pub struct Prefetcher {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<(Arc<FileData>, u32)>,
    stopped: bool,
}

impl Prefetcher {
    pub fn start(cache: Arc<Cache>, threads: usize) -> Result<Self> {
        let shared = Arc::<Shared>::default();
        let spawn = |_| {
            let (shared, cache) = (shared.clone(), cache.clone());
            let builder = std::thread::Builder::new().name("prefetch".into());
            builder.spawn(move || work(&shared, &cache)).context(|| "starting a prefetch thread".into())
        };
        let threads = (0..threads).map(spawn).collect::<Result<Vec<_>>>()?;
        Ok(Self { shared, threads: Mutex::new(threads) })
    }

    fn push(&self, jobs: impl Iterator<Item = (Arc<FileData>, u32)>) {
        let mut queue = self.shared.queue.lock();
        for job in jobs {
            if queue.jobs.len() >= QUEUE_MAX || queue.stopped {
                return;
            }
            queue.jobs.push_back(job);
            self.shared.wake.notify_one();
        }
    }

    pub fn stop(&self) {
        {
            let mut queue = self.shared.queue.lock();
            queue.stopped = true;
            queue.jobs.clear();
        }
        self.shared.wake.notify_all();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                log::error!("a prefetch thread panicked");
            }
        }
    }
}

fn work(shared: &Shared, cache: &Cache) {
    loop {
        let (file, region) = {
            let mut queue = shared.queue.lock();
            loop {
                if queue.stopped {
                    return;
                }
                match queue.jobs.pop_front() {
                    Some(job) => break job,
                    None => shared.wake.wait(&mut queue),
                }
            }
        };
        // The scan meets the error itself when it asks for the region.
        if let Err(error) = cache.prefetch(&file.cached, region, |buffer| load(&file, region, buffer)) {
            log::debug!("prefetch: {error}");
        }
    }
}
