//! A compression unit's bytes in the page cache, for repeated scans of a unit and for reads of many of its pages.
//!
//! The regions of a unit are loaded whole and share the cache's slots with the regions of files. A unit's bytes never
//! change, so they are never patched; they are dropped from the cache when the unit becomes unused.

use super::stored_unit::StoredUnit;
use crate::cache::{Cache, CachedRegion, IoCost};
use crate::disk::no_wait;
use cellar_format::ByteSource;
use cellar_format::units::{REGION_BYTES, RegionIndex};
use std::cell::{Cell, OnceCell};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A unit's bytes from disk, with a count of the I/O.
pub trait CountedBytes: ByteSource {
    fn count(&self, cost: IoCost);
}

/// A unit's bytes, read in place in the page cache. Cached bytes were verified when they were loaded; other bytes are
/// read from disk. The value pins the regions that it has read, so drop it after decoding.
///
/// During [`no_wait::without_waiting`], a read loads no region and waits for no region that another thread loads: bytes of
/// such a region are read from disk, or the read is repeated if the region is to be loaded.
pub struct CachedUnit<'a> {
    reader: &'a dyn CountedBytes,
    stored: &'a StoredUnit,
    cache: &'a Arc<Cache>,
    regions: Box<[OnceCell<Option<CachedRegion>>]>,
    may_load: bool,
    hit_bytes: Cell<u64>,
}

impl<'a> CachedUnit<'a> {
    /// `reader` reads the bytes of `stored`. `may_load` allows loading regions that are not in the cache.
    pub fn new(reader: &'a dyn CountedBytes, stored: &'a StoredUnit, cache: &'a Arc<Cache>, may_load: bool) -> Self {
        let regions = (stored.length as usize).div_ceil(REGION_BYTES);
        let regions = (0..regions).map(|_| OnceCell::new()).collect();
        Self { reader, stored, cache, regions, may_load, hit_bytes: Cell::new(0) }
    }

    /// Returns the requested bytes that were in the cache before this value read them.
    pub fn hit_bytes(&self) -> u64 {
        self.hit_bytes.get()
    }

    /// Returns a region of the unit; None if the region is neither in the cache nor loaded.
    fn region(&self, region: RegionIndex) -> Option<&CachedRegion> {
        let load = || {
            let (stored, cache) = (self.stored, self.cache);
            let found = match (no_wait::is_on(), self.may_load) {
                (true, _) => Ok(cache.try_find(&stored.cached, region)),
                (false, true) => cache.get(&stored.cached, region, |buffer| stored.load(region, buffer)),
                (false, false) => Ok(cache.find(&stored.cached, region)),
            };
            // A read of the damaged bytes from disk reports the error.
            let cached = found.inspect_err(|error| log::debug!("{error}")).ok().flatten()?;
            self.reader.count(cached.cost());
            Some(cached)
        };
        self.regions.get(region.0 as usize)?.get_or_init(load).as_ref()
    }

    /// Returns bytes within one region from the cache; None if they must be read from disk. Fails if the read must be
    /// repeated by a thread that may wait, because the region is to be loaded.
    fn found(&self, offset: u64, length: usize) -> io::Result<Option<&[u8]>> {
        let at = (offset % REGION_BYTES as u64) as usize;
        let index = u32::try_from(offset / REGION_BYTES as u64).map(RegionIndex);
        let Some(region) = index.ok().and_then(|index| self.region(index)) else {
            return if self.may_load && no_wait::is_on() { Err(no_wait::would_wait()) } else { Ok(None) };
        };
        let bytes = at.checked_add(length).and_then(|end| region.bytes().get(at..end));
        if bytes.is_some() && region.cost().is_nothing() {
            self.hit_bytes.set(self.hit_bytes.get() + length as u64);
        }
        Ok(bytes)
    }
}

impl ByteSource for CachedUnit<'_> {
    fn length(&self) -> u64 {
        self.reader.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.found(offset, buffer.len())? {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                Ok(())
            }
            None => self.reader.read_at(buffer, offset),
        }
    }

    fn read_unverified_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let within = REGION_BYTES - (at % REGION_BYTES as u64) as usize;
            let (now, later) = rest.split_at_mut(within.min(rest.len()));
            match self.found(at, now.len())? {
                Some(bytes) => now.copy_from_slice(bytes),
                None => self.reader.read_unverified_at(now, at)?,
            }
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    fn prefetch(&self, parts: &[Range<u64>]) {
        let is_there = |part: &Range<u64>| {
            // A read that must be repeated needs no prefetch.
            self.found(part.start, (part.end - part.start) as usize).map_or(true, |bytes| bytes.is_some())
        };
        if !parts.iter().all(is_there) {
            self.reader.prefetch(parts);
        }
    }

    fn verified_slice_at(&self, offset: u64, length: usize) -> Option<&[u8]> {
        self.found(offset, length).ok().flatten()
    }
}
