//! What the storage asks of whoever knows what a compression unit's bytes mean.

use crate::error::Result;
use std::fmt::Debug;
use std::ops::Range;

/// A compression unit's bytes. They never change.
pub trait UnitBytes {
    /// Bytes of the whole unit.
    fn length(&self) -> u64;

    /// Fills `buffer` from `offset` with bytes that matched their checksums; what lies past the end is an error.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;

    /// As [`Self::read_at`], for a codec that has checksums of its own: these bytes may be damaged. A few of them are
    /// read much quicker so.
    fn read_unchecked_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.read_at(buffer, offset)
    }

    /// Tells what will be read unchecked soon, in ascending order: what is not in memory is then fetched at once.
    fn expect(&self, _parts: &[Range<u64>]) {}

    /// Bytes that lie in memory in one piece and matched their checksums when they came there: a codec need not check
    /// them again.
    fn checked_at(&self, _offset: u64, _length: usize) -> Option<&[u8]> {
        None
    }

    /// All of the bytes, checked, where they are in memory.
    fn in_memory(&self) -> Option<&[u8]> {
        None
    }
}

/// Rebuilds pages from compression units.
pub trait UnitCodec: Send + Sync + Debug {
    /// Opens a unit. No other unit has this `id` as long as the process lives, so what was learnt of it may be kept.
    /// Bytes that mean nothing are an error of kind `Corrupt`, never a panic.
    fn open(&self, unit: &dyn UnitBytes, id: u64) -> Result<Box<dyn OpenUnit + '_>>;
}

/// A unit of which pages are rebuilt.
pub trait OpenUnit {
    /// Rebuilds the pages with these numbers in the allocation unit, byte for byte, into `out`, which has room for
    /// exactly them. `unit` are the bytes it was opened with. Errors as [`UnitCodec::open`].
    fn rebuild(&mut self, unit: &dyn UnitBytes, pages: Range<u32>, out: &mut [u8]) -> Result<()>;
}
