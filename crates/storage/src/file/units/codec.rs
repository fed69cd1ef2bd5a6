//! What the storage asks of whoever knows what a compression unit's bytes mean.

use crate::error::Result;
use std::fmt::Debug;
use std::ops::Range;

/// A compression unit's bytes. Every byte that is given out matched its checksum.
pub trait UnitBytes {
    /// Bytes of the whole unit.
    fn length(&self) -> u64;

    /// Fills `buffer` from `offset`; what lies past the end is an error.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;
}

/// Rebuilds pages from compression units.
pub trait UnitCodec: Send + Sync + Debug {
    /// Rebuilds the pages with these numbers in the allocation unit, byte for byte, into `out`, which has room for
    /// exactly them. Bytes that mean nothing are an error of kind `Corrupt`, never a panic.
    fn rebuild(&self, unit: &dyn UnitBytes, pages: Range<u32>, out: &mut [u8]) -> Result<()>;
}
