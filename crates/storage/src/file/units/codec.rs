//! What the storage asks of whoever knows what a compression unit's bytes mean.

use crate::error::{Error, Result};
use cellar_format::ByteSource;
use std::fmt::Debug;
use std::io;
use std::ops::Range;

/// Puts a storage error into the error of a [`ByteSource`]; [`Error::of_source`] takes the storage error out again.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::other(error)
    }
}

impl Error {
    /// The storage error inside an error of a [`ByteSource`]; any other error becomes one of kind `Io`.
    pub fn of_source(error: io::Error) -> Self {
        error.downcast().unwrap_or_else(|error| Self::io("reading a compression unit", error))
    }
}

/// Rebuilds pages from compression units.
pub trait UnitCodec: Send + Sync + Debug {
    /// Opens a unit. No other unit has this `id` as long as the process lives, so what was learnt of it may be kept.
    /// Bytes that mean nothing are an error of kind `Corrupt`, never a panic.
    fn open(&self, unit: &dyn ByteSource, id: u64) -> Result<Box<dyn OpenUnit + '_>>;
}

/// A unit of which pages are rebuilt.
pub trait OpenUnit {
    /// Rebuilds the pages with these numbers in the allocation unit, byte for byte, into `out`, which has room for
    /// exactly them. `unit` are the bytes it was opened with. Errors as [`UnitCodec::open`].
    fn rebuild(&mut self, unit: &dyn ByteSource, pages: Range<u32>, out: &mut [u8]) -> Result<()>;
}
