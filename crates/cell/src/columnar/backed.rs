//! The bytes of a cached unit, with the heap behind them: if flash cannot be read, the pages are encoded again, which gives the same
//! bytes, and the scan goes on.

use std::cell::OnceCell;
use std::io;
use std::ops::Range;

use cellar_format::ByteSource;
use cellar_format::units::{AuIndex, REGION_BYTES};
use cellar_scan::unit::Shape;
use cellar_storage::{UnitReader, Volume};

use super::{encode_pages, read_pages};
use crate::relation::DiskObject;

pub struct BackedByHeap<'a> {
    bytes: &'a dyn ByteSource,
    reader: &'a UnitReader,
    volume: &'a Volume,
    object: DiskObject,
    au: AuIndex,
    shape: &'a Shape,
    /// The bytes of the unit after a read has failed. None if the pages have changed since.
    encoded: OnceCell<Option<Vec<u8>>>,
}

impl<'a> BackedByHeap<'a> {
    /// `bytes` are the unit's bytes in the page cache, or those of the reader.
    pub fn new(
        (bytes, reader): (&'a dyn ByteSource, &'a UnitReader),
        volume: &'a Volume,
        (object, au): (DiskObject, AuIndex),
        shape: &'a Shape,
    ) -> Self {
        Self { bytes, reader, volume, object, au, shape, encoded: OnceCell::new() }
    }

    /// Encodes the pages. None if they are not those of the unit any more.
    fn encode(&self) -> Option<Vec<u8>> {
        let encoded = || -> cellar_storage::Result<Option<Vec<u8>>> {
            let pages = read_pages(self.volume, self.object, self.au, self.reader.version())?;
            pages.map(|pages| encode_pages(&pages, self.shape)).transpose()
        };
        let unit = encoded().inspect_err(|error| log::warn!("{error}")).ok().flatten();
        unit.filter(|unit| self.reader.has_bytes(unit))
    }
}

impl ByteSource for BackedByHeap<'_> {
    fn length(&self) -> u64 {
        self.bytes.length()
    }

    /// Unverified reads are verified, too: a reader that finds damage in its bytes could not read them again.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if let Some(Some(unit)) = self.encoded.get() {
            return unit.read_at(buffer, offset);
        }
        self.bytes.read_at(buffer, offset).or_else(|error| {
            self.volume.drop_columns(self.object, self.au, &error);
            match self.encoded.get_or_init(|| self.encode()) {
                Some(unit) => unit.read_at(buffer, offset),
                None => Err(error),
            }
        })
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
