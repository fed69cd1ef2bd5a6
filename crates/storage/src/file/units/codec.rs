//! The interface to the codec, which knows what a compression unit's bytes mean.

use crate::error::Result;
use std::fmt::Debug;
use std::ops::Range;

/// A compression unit's bytes. They never change.
pub trait UnitBytes {
    /// Returns the length of the unit in bytes.
    fn length(&self) -> u64;

    /// Fills `buffer` from `offset` with bytes that matched their checksums. A read beyond the unit is an error.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;

    /// Reads like [`Self::read_at`] without verifying checksums: faster for small reads, for codecs whose parts carry
    /// checksums.
    fn read_unchecked_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.read_at(buffer, offset)
    }

    /// Announces unchecked reads, in ascending order, so that the parts that are not in memory are fetched at once.
    fn expect(&self, _parts: &[Range<u64>]) {}

    /// Returns bytes that are in memory in one piece and matched their checksums when they were loaded; None otherwise.
    fn checked_at(&self, _offset: u64, _length: usize) -> Option<&[u8]> {
        None
    }

    /// Returns all bytes, verified, if they are in memory.
    fn in_memory(&self) -> Option<&[u8]> {
        None
    }
}

/// Rebuilds pages from compression units.
pub trait UnitCodec: Send + Sync + Debug {
    /// Opens a unit. `id` is unique among all units while the process lives, so a codec may cache what it decoded under
    /// that key. Invalid bytes are an error of kind `Corrupt`, never a panic.
    fn open(&self, unit: &dyn UnitBytes, id: u64) -> Result<Box<dyn OpenUnit + '_>>;
}

/// An opened unit.
pub trait OpenUnit {
    /// Rebuilds the pages with these numbers in the allocation unit, byte for byte, into `out`, whose length is exactly
    /// that of the pages. `unit` are the bytes that the unit was opened with. Errors as [`UnitCodec::open`].
    fn rebuild(&mut self, unit: &dyn UnitBytes, pages: Range<u32>, out: &mut [u8]) -> Result<()>;
}
