//! The storage code's codec: its units are the scan code's compression units.

use super::table::UnitTable;
use cellar_format::units::BLOCK_BYTES;
use cellar_scan::unit::{Rebuilder, Unit, UnitError, UnitSource};
use cellar_storage::{Error, ErrorKind, OpenUnit, Result, UnitBytes, UnitCodec};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Rebuilders that wait for the next page, and what one of them may hold of the blocks that it read.
const REBUILDERS_MAX: usize = 8;
const REBUILDER_BYTES_MAX: usize = 8 << 20;

#[derive(Debug, Default)]
pub struct Codec {
    units: Arc<UnitTable>,
    /// The last one worked last: pages that are read in order find the blocks that they share in it.
    rebuilders: Mutex<Vec<Rebuilder>>,
}

impl Codec {
    pub fn new(units: Arc<UnitTable>) -> Self {
        Self { units, rebuilders: Mutex::default() }
    }
}

impl UnitCodec for Codec {
    fn open(&self, unit: &dyn UnitBytes, id: u64) -> Result<Box<dyn OpenUnit + '_>> {
        let unit = self.units.open(id, &Source(unit)).map_err(storage_error)?;
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
    fn rebuild(&mut self, unit: &dyn UnitBytes, pages: Range<u32>, out: &mut [u8]) -> Result<()> {
        let source = Source(unit);
        for (page, out) in pages.zip(out.chunks_exact_mut(BLOCK_BYTES)) {
            let out = out.try_into().expect("a chunk is a page");
            self.rebuilder.page(&self.unit, &source, page as usize, out).map_err(storage_error)?;
        }
        Ok(())
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        let mut rebuilder = std::mem::take(&mut self.rebuilder);
        if rebuilder.held_bytes() > REBUILDER_BYTES_MAX {
            rebuilder.forget();
        }
        let mut waiting = self.codec.rebuilders.lock();
        if waiting.len() < REBUILDERS_MAX {
            waiting.push(rebuilder);
        }
    }
}

/// A stored unit's bytes as the scan code reads them, which checks all that it reads.
pub struct Source<'a>(pub &'a dyn UnitBytes);

impl Source<'_> {
    /// Before room is made for it: the bytes are there.
    fn check(&self, offset: u64, length: usize) -> io::Result<()> {
        match offset.checked_add(length as u64).is_some_and(|end| end <= self.0.length()) {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl UnitSource for Source<'_> {
    fn read_at(&self, offset: u64, length: usize) -> io::Result<Cow<'_, [u8]>> {
        self.check(offset, length)?;
        if let Some(bytes) = self.0.in_memory() {
            return Ok(Cow::Borrowed(&bytes[offset as usize..offset as usize + length]));
        }
        let mut bytes = vec![0; length];
        self.0.read_unchecked_at(&mut bytes, offset).map_err(io::Error::other)?;
        Ok(Cow::Owned(bytes))
    }

    fn read_into(&self, offset: u64, length: usize, out: &mut Vec<u8>) -> io::Result<()> {
        self.check(offset, length)?;
        out.resize(length, 0);
        self.0.read_unchecked_at(out, offset).map_err(io::Error::other)
    }
}

fn storage_error(error: UnitError) -> Error {
    let kind = match &error {
        UnitError::Corrupt(_) => ErrorKind::Corrupt,
        UnitError::Source(cause) => match cause.get_ref().and_then(|cause| cause.downcast_ref::<Error>()) {
            Some(cause) => cause.kind(),
            None if cause.kind() == io::ErrorKind::UnexpectedEof => ErrorKind::Corrupt,
            None => ErrorKind::Io,
        },
    };
    Error::new(kind, error.to_string())
}
