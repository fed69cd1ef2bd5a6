//! The bytes of a cached unit, with the heap behind them: if flash cannot be read, the pages are encoded again, which gives the same
//! bytes, and the scan goes on.

use std::cell::OnceCell;
use std::io;
use std::ops::Range;

use cellar_format::ByteSource;
use cellar_format::units::{AuIndex, REGION_BYTES};
use cellar_scan::Grant;
use cellar_scan::unit::Shape;
use cellar_storage::UnitReader;

use super::{MEMORY_AUS, encode_pages, read_pages};
use crate::relation::DiskObject;
use crate::state::{CellState, MemoryKind};

/// What a scan has of a cached unit that could not be read from flash.
pub struct Unreadable {
    /// The first error of the flash disk.
    pub error: io::Error,
    /// The bytes of the unit. None if the pages have changed since, or if there is no memory for the encoding.
    bytes: Option<(Vec<u8>, Grant)>,
}

pub struct BackedByHeap<'a> {
    bytes: &'a dyn ByteSource,
    reader: &'a UnitReader,
    state: &'a CellState,
    object: DiskObject,
    au: AuIndex,
    /// The shape of the unit: that of the table may have changed since.
    shape: &'a Shape,
    unreadable: &'a OnceCell<Unreadable>,
}

impl<'a> BackedByHeap<'a> {
    /// `bytes` are the unit's bytes in the page cache, or those of the reader. `unreadable` is filled by the first read that fails.
    pub fn new(
        (bytes, reader): (&'a dyn ByteSource, &'a UnitReader),
        state: &'a CellState,
        (object, au): (DiskObject, AuIndex),
        shape: &'a Shape,
        unreadable: &'a OnceCell<Unreadable>,
    ) -> Self {
        Self { bytes, reader, state, object, au, shape, unreadable }
    }

    /// Encodes the pages. None if they are not those of the unit any more.
    fn encode(&self) -> Option<(Vec<u8>, Grant)> {
        let volume = &self.state.volume;
        let mut memory = Grant::new(self.state.memory.account(MemoryKind::ScanBuffers));
        let mut encoded = || -> cellar_storage::Result<Option<Vec<u8>>> {
            if !memory.cover(MEMORY_AUS * volume.au_bytes(self.object)?) {
                return Ok(None);
            }
            let pages = read_pages(volume, self.object, self.au, self.reader.version())?;
            pages.map(|pages| encode_pages(&pages, self.shape)).transpose()
        };
        let unit = encoded().inspect_err(|error| log::warn!("{error}")).ok().flatten();
        let unit = unit.filter(|unit| self.reader.has_bytes(unit))?;
        memory.shrink(unit.capacity() as u64);
        Some((unit, memory))
    }
}

impl ByteSource for BackedByHeap<'_> {
    fn length(&self) -> u64 {
        self.bytes.length()
    }

    /// Unverified reads are verified, too: a reader that finds damage in its bytes could not read them again.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let unreadable = match self.unreadable.get() {
            Some(unreadable) => unreadable,
            None => match self.bytes.read_at(buffer, offset) {
                Ok(()) => return Ok(()),
                Err(error) => self.unreadable.get_or_init(|| Unreadable { error, bytes: self.encode() }),
            },
        };
        match &unreadable.bytes {
            Some((unit, _)) => unit.read_at(buffer, offset),
            None => Err(io::Error::other(unreadable.error.to_string())),
        }
    }

    /// In parts of one region, which the page cache may have.
    fn read_unverified_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let within = REGION_BYTES - (at % REGION_BYTES as u64) as usize;
            let (now, later) = rest.split_at_mut(within.min(rest.len()));
            self.read_at(now, at)?;
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    fn prefetch(&self, parts: &[Range<u64>]) {
        self.bytes.prefetch(parts);
    }

    fn slice_at(&self, offset: u64, length: usize) -> Option<&[u8]> {
        self.bytes.slice_at(offset, length)
    }

    fn verified_slice_at(&self, offset: u64, length: usize) -> Option<&[u8]> {
        self.bytes.verified_slice_at(offset, length)
    }
}
