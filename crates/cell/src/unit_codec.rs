//! Implements the storage's [`UnitCodec`] with the compression units of `cellar-scan`: rebuilds pages of stored units.

use crate::state::UnitDirectories;
use cellar_format::ByteSource;
use cellar_format::units::BLOCK_BYTES;
use cellar_scan::unit::{Rebuilder, Unit, UnitError};
use cellar_storage::{Error, ErrorKind, OpenUnit, Result, UnitCodec};
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of idle rebuilders.
const REBUILDERS_MAX: usize = 8;
/// Maximum memory of an idle rebuilder; a larger one drops its buffers.
const REBUILDER_BYTES_MAX: usize = 8 << 20;

#[derive(Debug, Default)]
pub struct Codec {
    units: Arc<UnitDirectories>,
    /// Idle rebuilders, as a stack: the rebuilder that was used last contains the decoded blocks of rows that a
    /// sequential reader needs next.
    rebuilders: Mutex<Vec<Rebuilder>>,
}

impl Codec {
    pub fn new(units: Arc<UnitDirectories>) -> Self {
        Self { units, rebuilders: Mutex::default() }
    }
}

impl UnitCodec for Codec {
    fn open(&self, unit: &dyn ByteSource, id: u64) -> Result<Box<dyn OpenUnit + '_>> {
        let unit = self.units.open(id, unit).map_err(storage_error)?;
        let rebuilder = self.rebuilders.lock().pop().unwrap_or_default();
        Ok(Box::new(Opened { codec: self, unit, rebuilder }))
    }
}

struct Opened<'a> {
    codec: &'a Codec,
    unit: Arc<Unit>,
    rebuilder: Rebuilder,
}

impl OpenUnit for Opened<'_> {
    fn rebuild(&mut self, unit: &dyn ByteSource, pages: Range<u32>, out: &mut [u8]) -> Result<()> {
        for (page, out) in pages.zip(out.chunks_exact_mut(BLOCK_BYTES)) {
            let out = out.try_into().expect("a chunk is a page");
            self.rebuilder.page(&self.unit, unit, page as usize, out).map_err(storage_error)?;
        }
        Ok(())
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        let mut rebuilder = std::mem::take(&mut self.rebuilder);
        if rebuilder.memory_bytes() > REBUILDER_BYTES_MAX {
            rebuilder.clear();
        }
        let mut idle = self.codec.rebuilders.lock();
        if idle.len() < REBUILDERS_MAX {
            idle.push(rebuilder);
        }
    }
}

fn storage_error(error: UnitError) -> Error {
    Error::new(error_kind(&error), error.to_string())
}

/// Returns the kind of the storage error that corresponds to an error of a unit.
pub fn error_kind(error: &UnitError) -> ErrorKind {
    match error {
        UnitError::Corrupt(_) => ErrorKind::Corrupt,
        UnitError::Source(cause) => match cause.get_ref().and_then(|cause| cause.downcast_ref::<Error>()) {
            Some(cause) => cause.kind(),
            None if cause.kind() == io::ErrorKind::UnexpectedEof => ErrorKind::Corrupt,
            None => ErrorKind::Io,
        },
    }
}
