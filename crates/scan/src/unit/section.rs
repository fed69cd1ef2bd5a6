//! The data section of a unit: verified reads of its parts, and the errors of a unit.

use cellar_format::ByteSource;
use cellar_format::bytes::{Corrupt, Reader, Write};
use std::borrow::Cow;
use std::cell::Cell;
use std::io;
use std::ops::Range;

/// Why a unit cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum UnitError {
    #[error("compression unit: {0}")]
    Corrupt(#[from] Corrupt),
    #[error("reading a compression unit: {0}")]
    Source(#[from] io::Error),
}

pub type Result<T, E = UnitError> = std::result::Result<T, E>;

/// Whether checksums are verified. A fuzzer cannot guess checksums; a fuzzing build skips
/// them, so that inputs reach the decoding.
pub(super) const VERIFY_CHECKSUMS: bool = !cfg!(fuzzing);

pub(super) fn corrupt<T>(what: &'static str, place: usize, found: impl Into<String>) -> Result<T> {
    Err(Corrupt::new(what, place, found).into())
}

/// A contiguous piece of the data section with its checksum: the unit of reading and verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// From the start of the data section.
    pub offset: u32,
    pub bytes: u32,
    /// CRC-32C.
    pub checksum: u32,
}

impl Part {
    pub const EMPTY: Self = Self { offset: 0, bytes: 0, checksum: 0 };

    /// Appends `bytes` to the data section.
    pub fn append(data: &mut Vec<u8>, bytes: &[u8]) -> Self {
        let offset = data.len() as u32;
        data.extend_from_slice(bytes);
        Self { offset, bytes: bytes.len() as u32, checksum: crc32c::crc32c(bytes) }
    }

    /// Where the part is in the data section.
    pub fn range(&self) -> Range<u32> {
        self.offset..self.offset.saturating_add(self.bytes)
    }

    fn verify(&self, bytes: &[u8], what: &'static str) -> Result<()> {
        if bytes.len() != self.bytes as usize {
            return corrupt(what, self.offset as usize, format!("{} bytes of {}", bytes.len(), self.bytes));
        }
        let found = crc32c::crc32c(bytes);
        if found != self.checksum && VERIFY_CHECKSUMS {
            let found = format!("checksum {found:08x} instead of {:08x}", self.checksum);
            return corrupt(what, self.offset as usize, found);
        }
        Ok(())
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.offset);
        out.put_u32(self.bytes);
        out.put_u32(self.checksum);
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(Self {
            offset: reader.u32("part offset")?,
            bytes: reader.u32("part length")?,
            checksum: reader.u32("part checksum")?,
        })
    }
}

/// The data section of a unit in its source.
#[derive(Clone, Copy)]
pub(super) struct DataSection<'a> {
    pub source: &'a dyn ByteSource,
    /// Where the section starts in the source.
    pub start: u64,
}

impl<'a> DataSection<'a> {
    /// Offset of a part in the source, and its length in bytes.
    fn place(&self, part: Part) -> (u64, usize) {
        (self.start + u64::from(part.offset), part.bytes as usize)
    }

    /// Reads and verifies a part; `what` names the part in an error.
    pub fn read(&self, part: Part, what: &'static str) -> Result<Cow<'a, [u8]>> {
        let (offset, length) = self.place(part);
        if let Some(bytes) = self.source.verified_slice_at(offset, length) {
            return Ok(Cow::Borrowed(bytes));
        }
        let bytes = read_unverified(self.source, offset, length)?;
        part.verify(&bytes, what)?;
        Ok(bytes)
    }

    /// Like [`Self::read`], for bytes that are needed only while `visit` runs: these are read into a buffer of the thread.
    pub fn with_bytes<R>(&self, part: Part, what: &'static str, visit: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
        let (offset, length) = self.place(part);
        if let Some(bytes) = self.source.verified_slice_at(offset, length) {
            return visit(bytes);
        }
        if let Some(bytes) = self.source.slice_at(offset, length) {
            part.verify(bytes, what)?;
            return visit(bytes);
        }
        check_end(self.source, offset, length)?;
        let mut buffer = BUFFER.take();
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        let bytes = &mut buffer[..length];
        let read = self.source.read_unverified_at(bytes, offset).map_err(UnitError::from);
        let result = read.and_then(|()| part.verify(bytes, what)).and_then(|()| visit(bytes));
        if buffer.len() <= BUFFER_BYTES_MAX {
            BUFFER.set(buffer);
        }
        result
    }
}

/// A larger buffer is freed after use.
const BUFFER_BYTES_MAX: usize = 1 << 20;

thread_local! {
    /// Bytes of the part that [`DataSection::with_bytes`] read most recently. A nested call gets a new buffer.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Reads bytes without verifying them. A read beyond the end of the source is an error of kind `UnexpectedEof`.
pub(super) fn read_unverified(source: &dyn ByteSource, offset: u64, length: usize) -> io::Result<Cow<'_, [u8]>> {
    if let Some(bytes) = source.slice_at(offset, length) {
        return Ok(Cow::Borrowed(bytes));
    }
    check_end(source, offset, length)?;
    let mut bytes = vec![0; length];
    source.read_unverified_at(&mut bytes, offset)?;
    Ok(Cow::Owned(bytes))
}

/// Checks that a range is within the source. Prevents a damaged directory from causing a huge allocation.
pub(super) fn check_end(source: &dyn ByteSource, offset: u64, length: usize) -> io::Result<()> {
    match offset.checked_add(length as u64).is_some_and(|end| end <= source.length()) {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
