//! Regions for scans: read in place in the cell's page cache, or as a private copy when no slot is free.

use super::{Ino, Volume};
use crate::cache::{CachedRegion, IoCost, Loaded};
use crate::error::Result;
use crate::file::FileData;
use cellar_format::units::{REGION_BYTES, RegionIndex, RegionVersion};
use std::ops::{Deref, Range};

/// Attempts to load a region outside the cache before the load locks out the file's writers.
const STABLE_ATTEMPTS_MAX: usize = 3;

/// A region's valid bytes, which do not change while the guard lives: writers to the region wait. Drop the guard after
/// decoding, and do not wait for anything while holding it. A thread holds at most one guard of a region.
pub struct RegionGuard {
    bytes: RegionBytes,
    is_whole: bool,
}

enum RegionBytes {
    Cached(CachedRegion),
    Private { bytes: Vec<u8>, version: RegionVersion, cost: IoCost },
}

impl RegionGuard {
    /// Returns the region version of these bytes; compare it with [`Volume::region_version`].
    pub fn version(&self) -> RegionVersion {
        match &self.bytes {
            RegionBytes::Cached(region) => region.version(),
            RegionBytes::Private { version, .. } => *version,
        }
    }

    /// Returns false if the bytes may contain a torn block. PostgreSQL, its writer, has the whole block.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Returns what this access read; nothing if the region was in the cache. The first reader after a prefetch reports
    /// what the prefetch read.
    pub fn cost(&self) -> IoCost {
        match &self.bytes {
            RegionBytes::Cached(region) => region.cost(),
            RegionBytes::Private { cost, .. } => *cost,
        }
    }
}

impl Deref for RegionGuard {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            RegionBytes::Cached(region) => region.bytes(),
            RegionBytes::Private { bytes, .. } => bytes,
        }
    }
}

impl Volume {
    /// Returns a region, loading it if it is not in the cache. The bytes end at the end of the file.
    pub fn region(&self, ino: Ino, region: RegionIndex) -> Result<RegionGuard> {
        let file = self.file(ino)?;
        file.check_not_passed_through()?;
        // Read the version before the size: an extending write bumps the version.
        let version = file.versions.get(region);
        if region.start() >= file.size()? {
            let bytes = RegionBytes::Private { bytes: Vec::new(), version, cost: IoCost::default() };
            return Ok(RegionGuard { bytes, is_whole: true });
        }
        let bytes = match self.cache.get(&file.cached, region, |buffer| load(&file, region, buffer)) {
            Ok(Some(cached)) => Ok(RegionBytes::Cached(cached)),
            Ok(None) => load_outside_cache(&file, region),
            Err(error) => Err(error),
        };
        let bytes = bytes.map_err(|error| self.with_path(ino, error))?;
        let start = region.start();
        let no_torn_block = !file.torn_blocks.any_in(&(start..start + REGION_BYTES as u64));
        // A private copy does not block writers, so the missing part may have arrived after the copy was read.
        let is_whole = match &bytes {
            RegionBytes::Cached(_) => no_torn_block,
            RegionBytes::Private { version, .. } => no_torn_block && *version == file.versions.get(region),
        };
        Ok(RegionGuard { bytes, is_whole })
    }

    /// Returns whether a range of a file may contain a torn block.
    pub fn has_torn_block(&self, ino: Ino, range: Range<u64>) -> Result<bool> {
        Ok(self.file(ino)?.torn_blocks.any_in(&range))
    }

    /// Requests that regions be loaded in the background. Ignores regions beyond the end of the file.
    pub fn prefetch(&self, ino: Ino, regions: Range<RegionIndex>) {
        let Ok(file) = self.file(ino) else { return };
        let Ok(size) = file.size() else { return };
        let end_of_file = RegionIndex(size.div_ceil(REGION_BYTES as u64).min(u64::from(u32::MAX)) as u32);
        let regions = RegionIndex::iter(regions.start..regions.end.min(end_of_file));
        let absent = regions.filter(|region| !self.cache.contains(&file.cached, *region));
        self.prefetcher.push(absent.map(|region| (file.clone(), region)));
    }

    /// Returns the version of a region. It changes before any write, truncate or punch of the region becomes visible,
    /// and is never reused while the process lives. Returns [`RegionVersion::NONE`] if the file does not exist.
    pub fn region_version(&self, ino: Ino, region: RegionIndex) -> RegionVersion {
        self.file(ino).map_or(RegionVersion::NONE, |file| file.versions.get(region))
    }
}

/// Loads a region into a slot of the cache. A load that overlaps a write may contain a part of the write, so the load
/// is repeated. The next writer waits for the slot's lock, which bounds the number of attempts.
pub(super) fn load(file: &FileData, region: RegionIndex, buffer: &mut [u8]) -> Result<Loaded> {
    file.check_not_passed_through()?;
    let base = region.start();
    let mut total = IoCost::default();
    file.versions.stable(region..region.next(), |version| {
        let valid = file.size()?.saturating_sub(base).min(REGION_BYTES as u64) as usize;
        let aligned = valid.next_multiple_of(crate::disk::DIRECT_ALIGN);
        let cost = file.load(&mut buffer[..aligned], base, true)?;
        buffer[valid..].fill(0);
        total.add(cost);
        // All bytes may be those of a write in flight; only an access of a loaded region is a hit.
        total.disk_requests += u64::from(cost.is_nothing());
        Ok(Loaded { valid, version, cost: total })
    })
}

/// Loads a region when no slot is free. Writers do not patch the copy, so no write may overlap the load.
fn load_outside_cache(file: &FileData, region: RegionIndex) -> Result<RegionBytes> {
    let read = |version| -> Result<RegionBytes> {
        let base = region.start();
        let mut bytes = vec![0; file.size()?.saturating_sub(base).min(REGION_BYTES as u64) as usize];
        let cost = file.load(&mut bytes, base, false)?;
        Ok(RegionBytes::Private { bytes, version, cost })
    };
    for _ in 0..STABLE_ATTEMPTS_MAX {
        if let Some(bytes) = file.versions.try_stable(region..region.next(), read)? {
            return Ok(bytes);
        }
    }
    let _write = file.lock_write();
    read(file.versions.get(region))
}
