//! Random access to bytes that never change: how code that decodes a compression unit reads from code that stores it.

use std::io;
use std::ops::Range;

/// The bytes of one compression unit.
///
/// Errors are [`io::Error`]s. A source with another error type puts the whole error, with kind and place, inside
/// ([`io::Error::other`]), and a caller that knows the type takes it out again ([`io::Error::downcast`]). A read beyond the
/// end is an error.
pub trait ByteSource {
    /// Length of the whole in bytes.
    fn length(&self) -> u64;

    /// Fills `buffer` from `offset`. A source that keeps checksums has verified the bytes.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Like [`Self::read_at`], but the bytes may be damaged: for a reader that verifies its own checksums. Cheaper where
    /// the source's checksums cover longer pieces than the reader needs.
    fn read_unverified_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_at(buffer, offset)
    }

    /// Announces ranges, ascending by start, that will be read unverified next: a slow source can fetch them with one
    /// request. Ranges may extend beyond the end.
    fn prefetch(&self, _ranges: &[Range<u64>]) {}

    /// Bytes that are in memory in one piece, possibly damaged. None: they have to be read.
    fn slice_at(&self, _offset: u64, _length: usize) -> Option<&[u8]> {
        None
    }

    /// Bytes that are in memory in one piece and were verified when they were loaded: a reader need not verify them again.
    fn verified_slice_at(&self, _offset: u64, _length: usize) -> Option<&[u8]> {
        None
    }
}

impl ByteSource for &[u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = self.slice_at(offset, buffer.len());
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn slice_at(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let from = usize::try_from(offset).ok()?;
        self.get(from..from.checked_add(length)?)
    }
}

impl ByteSource for Vec<u8> {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.as_slice().read_at(buffer, offset)
    }

    fn slice_at(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let from = usize::try_from(offset).ok()?;
        self.get(from..from.checked_add(length)?)
    }
}
