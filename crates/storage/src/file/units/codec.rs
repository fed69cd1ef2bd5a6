//! The interface to the codec, which decodes compression units. The storage does not interpret their bytes.

use crate::error::{Error, Result};
use cellar_format::ByteSource;
use std::fmt::Debug;
use std::io;
use std::ops::Range;

/// Wraps a storage error for a [`ByteSource`]; [`Error::of_source`] unwraps it.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::other(error)
    }
}

impl Error {
    /// Returns the storage error inside an error of a [`ByteSource`]. Any other error becomes one of kind `Io`.
    pub fn of_source(error: io::Error) -> Self {
        error.downcast().unwrap_or_else(|error| Self::io("could not read a compression unit", error))
    }
}

/// Rebuilds pages from compression units.
///
/// The storage verifies that the slot contains the unit that the metadata name when a codec reads the unit's first bytes
/// ([`ByteSource::read_unverified_at`] at offset 0). A codec that reads other bytes unverified must verify them with
/// checksums that it reached from the first bytes.
pub trait UnitCodec: Send + Sync + Debug {
    /// Opens a unit. `id` is unique among all units while the process lives, so a codec may cache what it decoded under
    /// that key. Invalid bytes are an error of kind `Corrupt`, never a panic.
    fn open(&self, unit: &dyn ByteSource, id: u64) -> Result<Box<dyn OpenUnit + '_>>;
}

/// An opened unit.
pub trait OpenUnit {
    /// Rebuilds the pages with these numbers in the allocation unit, byte for byte, into `out`, whose length is exactly
    /// that of the pages. `unit` are the bytes that the unit was opened with. Errors as [`UnitCodec::open`].
    fn rebuild(&mut self, unit: &dyn ByteSource, pages: Range<u32>, out: &mut [u8]) -> Result<()>;
}
