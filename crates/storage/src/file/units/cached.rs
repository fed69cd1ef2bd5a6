//! A compression unit's bytes in the page cache, for scans that come back to it and for reads of many of its pages.
//!
//! A unit's regions are loaded whole and take their frames from the same budget as those of files. Its bytes never
//! change, so nothing is ever patched; they are forgotten when the unit goes out of use.

use super::place::Place;
use crate::cache::{Cache, CachedRegion};
use cellar_format::ByteSource;
use cellar_format::units::REGION_BYTES;
use std::cell::{Cell, OnceCell};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A unit's bytes from disk, with a count of what that takes.
pub trait CountedBytes: ByteSource {
    /// Adds bytes that were read from disk, and the requests for them.
    fn count(&self, bytes: u64, requests: u64);
}

/// A unit's bytes, read in place in the page cache: checked once, when they were loaded. Holds the regions that were
/// read until it is dropped, so keep it no longer than it takes to decode. What has no room there, or cannot be
/// loaded, comes from disk and is not checked.
pub struct CachedUnit<'a> {
    reader: &'a dyn CountedBytes,
    place: &'a Place,
    cache: &'a Arc<Cache>,
    regions: Box<[OnceCell<Option<CachedRegion>>]>,
    may_load: bool,
    hit_bytes: Cell<u64>,
}

impl<'a> CachedUnit<'a> {
    /// `reader` has the bytes of `place`.
    pub fn new(reader: &'a dyn CountedBytes, place: &'a Place, cache: &'a Arc<Cache>, may_load: bool) -> Self {
        let regions = (place.length as usize).div_ceil(REGION_BYTES);
        let regions = (0..regions).map(|_| OnceCell::new()).collect();
        Self { reader, place, cache, regions, may_load, hit_bytes: Cell::new(0) }
    }

    /// Bytes that were asked for and had been in the cache before.
    pub fn hit_bytes(&self) -> u64 {
        self.hit_bytes.get()
    }

    fn region(&self, number: usize) -> Option<&CachedRegion> {
        let load = || {
            let (place, cache, number) = (self.place, self.cache, number as u32);
            let found = match self.may_load {
                true => cache.get(&place.cached, number, |frame| place.load(number, frame)),
                false => Ok(cache.find(&place.cached, number)),
            };
            // Whoever needs the damaged bytes meets the error again.
            let region = found.inspect_err(|error| log::debug!("{error}")).ok().flatten()?;
            self.reader.count(region.source().disk_bytes, region.source().disk_requests);
            Some(region)
        };
        self.regions.get(number)?.get_or_init(load).as_ref()
    }

    fn found(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let (number, at) = ((offset / REGION_BYTES as u64) as usize, (offset % REGION_BYTES as u64) as usize);
        let region = self.region(number)?;
        let bytes = region.bytes().get(at..at.checked_add(length)?)?;
        if region.source().disk_requests == 0 {
            self.hit_bytes.set(self.hit_bytes.get() + length as u64);
        }
        Some(bytes)
    }
}

impl ByteSource for CachedUnit<'_> {
    fn length(&self) -> u64 {
        self.reader.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.found(offset, buffer.len()) {
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
            match self.found(at, now.len()) {
                Some(bytes) => now.copy_from_slice(bytes),
                None => self.reader.read_unverified_at(now, at)?,
            }
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    fn prefetch(&self, parts: &[Range<u64>]) {
        let is_there = |part: &Range<u64>| self.found(part.start, (part.end - part.start) as usize).is_some();
        if !parts.iter().all(is_there) {
            self.reader.prefetch(parts);
        }
    }

    fn verified_slice_at(&self, offset: u64, length: usize) -> Option<&[u8]> {
        self.found(offset, length)
    }
}
