//! A window: a range of a unit that was read with one request. Reads consult the window before the unit's source.

use super::super::section::{Result, check_end};
use cellar_format::ByteSource;
use std::io;
use std::ops::Range;

/// The bytes of the unit from offset `start` on; empty if nothing was read.
#[derive(Debug, Default)]
pub struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Reads `range` of the source. An empty range empties the window.
    pub fn load(&mut self, source: &dyn ByteSource, range: Range<u64>) -> Result<()> {
        let length = (range.end - range.start) as usize;
        self.start = range.start;
        // A source whose verified bytes are in memory needs no copy.
        if length == 0 || source.verified_slice_at(range.start, 0).is_some() {
            self.clear();
            return Ok(());
        }
        let read = check_end(source, range.start, length).and_then(|()| {
            self.bytes.resize(length, 0);
            source.read_unverified_at(&mut self.bytes, range.start)
        });
        Ok(read.inspect_err(|_| self.bytes.clear())?)
    }

    /// A source whose [`ByteSource::slice_at`] returns bytes of the window if the window contains the range.
    pub fn over<'a>(&'a self, source: &'a dyn ByteSource) -> WindowedSource<'a> {
        WindowedSource { window: self, source }
    }
}

pub struct WindowedSource<'a> {
    window: &'a Window,
    source: &'a dyn ByteSource,
}

impl ByteSource for WindowedSource<'_> {
    fn length(&self) -> u64 {
        self.source.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.source.read_at(buffer, offset)
    }

    fn read_unverified_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.source.read_unverified_at(buffer, offset)
    }

    fn slice_at(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let from = offset.checked_sub(self.window.start).map(|from| from as usize);
        let bytes = from.and_then(|from| self.window.bytes.get(from..from.checked_add(length)?));
        bytes.or_else(|| self.source.slice_at(offset, length))
    }

    fn verified_slice_at(&self, offset: u64, length: usize) -> Option<&[u8]> {
        self.source.verified_slice_at(offset, length)
    }
}
