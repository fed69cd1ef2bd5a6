//! Random access to immutable bytes: the interface through which the code that decodes a compression unit reads from
//! the code that stores the unit.

use std::io;
use std::ops::Range;

/// The bytes of one compression unit.
///
/// Errors are [`io::Error`]s. A source with another error type wraps its error ([`io::Error::other`]); a caller that
/// expects that type unwraps it ([`io::Error::downcast`]). A read beyond the end is an error.
pub trait ByteSource {
    /// Returns the length in bytes.
    fn length(&self) -> u64;

    /// Fills `buffer` from `offset`. A source with checksums verifies the bytes.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Fills `buffer` from `offset` with bytes that may be damaged, for a reader that verifies checksums inside the
    /// unit. Such a read is cheaper if the source's checksums cover more bytes than the reader needs.
    fn read_unverified_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_at(buffer, offset)
    }

    /// Announces ranges, ascending by start, that will be read unverified next: a slow source can fetch them with one
    /// request. Ranges may extend beyond the end.
    fn prefetch(&self, _ranges: &[Range<u64>]) {}

    /// Returns bytes that are contiguous in memory, without a copy; the bytes may be damaged. None if the bytes are not
    /// in memory; read them instead.
    fn slice_at(&self, _offset: u64, _length: usize) -> Option<&[u8]> {
        None
    }

    /// Returns bytes that are contiguous in memory and were verified when they were loaded, without a copy. None if
    /// there are no such bytes; read them instead.
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
