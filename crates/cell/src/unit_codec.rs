//! The storage's unit codec: rebuilds the pages of stored units with the scan code's compression units.

use crate::state::UnitDirectories;
use cellar_format::units::BLOCK_BYTES;
use cellar_scan::unit::{Rebuilder, Unit, UnitError, UnitSource};
use cellar_storage::{Error, ErrorKind, OpenUnit, Result, UnitBytes, UnitCodec};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::cell::Cell;
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
    /// Idle rebuilders, each with a read buffer. A stack, because the rebuilder that was used last has the decoded blocks
    /// that a sequential reader needs next.
    rebuilders: Mutex<Vec<(Rebuilder, Vec<u8>)>>,
}

impl Codec {
    pub fn new(units: Arc<UnitDirectories>) -> Self {
        Self { units, rebuilders: Mutex::default() }
    }
}

impl UnitCodec for Codec {
    fn open(&self, unit: &dyn UnitBytes, id: u64) -> Result<Box<dyn OpenUnit + '_>> {
        let unit = self.units.open(id, &StoredUnitBytes::new(unit)).map_err(storage_error)?;
        let (rebuilder, buffer) = self.rebuilders.lock().pop().unwrap_or_default();
        Ok(Box::new(Opened { codec: self, unit, rebuilder, buffer }))
    }
}

struct Opened<'a> {
    codec: &'a Codec,
    unit: Arc<Unit>,
    rebuilder: Rebuilder,
    buffer: Vec<u8>,
}

impl OpenUnit for Opened<'_> {
    fn rebuild(&mut self, unit: &dyn UnitBytes, pages: Range<u32>, out: &mut [u8]) -> Result<()> {
        let source = StoredUnitBytes { unit, buffer: Cell::new(std::mem::take(&mut self.buffer)) };
        for (page, out) in pages.zip(out.chunks_exact_mut(BLOCK_BYTES)) {
            let out = out.try_into().expect("a chunk is a page");
            self.rebuilder.page(&self.unit, &source, page as usize, out).map_err(storage_error)?;
        }
        self.buffer = source.buffer.into_inner();
        Ok(())
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        let (mut rebuilder, mut buffer) = (std::mem::take(&mut self.rebuilder), std::mem::take(&mut self.buffer));
        if rebuilder.held_bytes() + buffer.capacity() > REBUILDER_BYTES_MAX {
            rebuilder.forget();
            buffer = Vec::new();
        }
        let mut idle = self.codec.rebuilders.lock();
        if idle.len() < REBUILDERS_MAX {
            idle.push((rebuilder, buffer));
        }
    }
}

/// A stored unit's bytes for the scan code, which verifies checksums itself.
pub struct StoredUnitBytes<'a> {
    unit: &'a dyn UnitBytes,
    /// Reused by `look_at`.
    buffer: Cell<Vec<u8>>,
}

impl<'a> StoredUnitBytes<'a> {
    pub fn new(unit: &'a dyn UnitBytes) -> Self {
        Self { unit, buffer: Cell::default() }
    }

    /// Fails for bytes beyond the unit's end, before the caller allocates memory for them.
    fn check(&self, offset: u64, length: usize) -> io::Result<()> {
        match offset.checked_add(length as u64).is_some_and(|end| end <= self.unit.length()) {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl UnitSource for StoredUnitBytes<'_> {
    fn read_at(&self, offset: u64, length: usize) -> io::Result<Cow<'_, [u8]>> {
        self.check(offset, length)?;
        if let Some(bytes) = self.unit.in_memory() {
            return Ok(Cow::Borrowed(&bytes[offset as usize..offset as usize + length]));
        }
        let mut bytes = vec![0; length];
        self.unit.read_unchecked_at(&mut bytes, offset).map_err(io::Error::other)?;
        Ok(Cow::Owned(bytes))
    }

    fn checked(&self, offset: u64, length: usize) -> Option<&[u8]> {
        self.unit.checked_at(offset, length)
    }

    fn read_into(&self, offset: u64, length: usize, out: &mut Vec<u8>) -> io::Result<()> {
        self.check(offset, length)?;
        out.resize(length, 0);
        self.unit.read_unchecked_at(out, offset).map_err(io::Error::other)
    }

    fn look_at(&self, offset: u64, length: usize, look: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        if self.unit.in_memory().is_some() {
            look(&self.read_at(offset, length)?);
            return Ok(());
        }
        self.check(offset, length)?;
        let mut buffer = self.buffer.take();
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        let read = self.unit.read_unchecked_at(&mut buffer[..length], offset);
        if read.is_ok() {
            look(&buffer[..length]);
        }
        self.buffer.set(buffer);
        read.map_err(io::Error::other)
    }

    fn expect(&self, parts: &[Range<u64>]) {
        self.unit.expect(parts);
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
