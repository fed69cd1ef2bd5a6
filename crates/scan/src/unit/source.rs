//! Where a unit's bytes come from, and what can be wrong with them.

use cellar_format::bytes::{Corrupt, Reader, Write};
use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;

/// Bytes of one stored unit.
pub trait UnitSource {
    /// `length` bytes from `offset` on. Fewer there are: an error of kind `UnexpectedEof`.
    fn read_at(&self, offset: u64, length: usize) -> std::io::Result<Cow<'_, [u8]>>;

    /// As [`Self::read_at`], into room that can be used again.
    fn read_into(&self, offset: u64, length: usize, out: &mut Vec<u8>) -> std::io::Result<()> {
        out.clear();
        out.extend_from_slice(&self.read_at(offset, length)?);
        Ok(())
    }

    /// As [`Self::read_at`], for bytes that are needed no longer than `look` runs, which it does once.
    fn look_at(&self, offset: u64, length: usize, look: &mut dyn FnMut(&[u8])) -> std::io::Result<()> {
        look(&self.read_at(offset, length)?);
        Ok(())
    }

    /// Tells what will be read soon, one part after the other: a source that is slow to answer can fetch all of it at
    /// once. Parts may reach past the end.
    fn expect(&self, _parts: &[Range<u64>]) {}

    /// Exactly these bytes, where they lie in memory and were found undamaged before: they are not checked again.
    fn checked(&self, _offset: u64, _length: usize) -> Option<&[u8]> {
        None
    }
}

impl UnitSource for &[u8] {
    fn read_at(&self, offset: u64, length: usize) -> std::io::Result<Cow<'_, [u8]>> {
        slice(self, offset, length)
    }
}

impl UnitSource for Vec<u8> {
    fn read_at(&self, offset: u64, length: usize) -> std::io::Result<Cow<'_, [u8]>> {
        slice(self, offset, length)
    }
}

fn slice(bytes: &[u8], offset: u64, length: usize) -> std::io::Result<Cow<'_, [u8]>> {
    let from = usize::try_from(offset).ok();
    let range = from.and_then(|from| Some(from..from.checked_add(length)?));
    let bytes = range.and_then(|range| bytes.get(range));
    bytes.map(Cow::Borrowed).ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
}

/// Why a unit cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum UnitError {
    #[error("compression unit: {0}")]
    Corrupt(#[from] Corrupt),
    #[error("reading a compression unit: {0}")]
    Source(#[from] std::io::Error),
}

pub type Result<T> = std::result::Result<T, UnitError>;

/// A fuzzer does not guess checksums; it sees what lies behind them.
pub(super) const CHECK: bool = !cfg!(fuzzing);

pub(super) fn corrupt<T>(what: &'static str, place: usize, found: impl Into<String>) -> Result<T> {
    Err(Corrupt::new(what, place, found).into())
}

/// A run of the data section with its checksum: what is read and checked at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// From the start of the data section.
    pub offset: u32,
    pub bytes: u32,
    /// CRC-32C.
    pub checksum: u32,
}

impl Part {
    pub fn append(data: &mut Vec<u8>, bytes: &[u8]) -> Self {
        let offset = data.len() as u32;
        data.extend_from_slice(bytes);
        Self { offset, bytes: bytes.len() as u32, checksum: crc32c::crc32c(bytes) }
    }

    /// Where it lies in the data section.
    pub fn range(&self) -> Range<u32> {
        self.offset..self.offset.saturating_add(self.bytes)
    }

    fn check(&self, bytes: &[u8], what: &'static str) -> Result<()> {
        if bytes.len() != self.bytes as usize {
            return corrupt(what, self.offset as usize, format!("{} bytes of {}", bytes.len(), self.bytes));
        }
        let found = crc32c::crc32c(bytes);
        if found != self.checksum && CHECK {
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

    pub fn decode(reader: &mut Reader<'_>) -> std::result::Result<Self, Corrupt> {
        Ok(Self {
            offset: reader.u32("part offset")?,
            bytes: reader.u32("part length")?,
            checksum: reader.u32("part checksum")?,
        })
    }
}

/// The data section of a unit: reads parts and checks them.
#[derive(Clone, Copy)]
pub(super) struct Data<'a> {
    pub source: &'a dyn UnitSource,
    /// Where the section starts in the source.
    pub start: u64,
}

impl<'a> Data<'a> {
    pub fn read(&self, part: Part, what: &'static str) -> Result<Cow<'a, [u8]>> {
        let (place, length) = (self.start + part.offset as u64, part.bytes as usize);
        if let Some(bytes) = self.source.checked(place, length) {
            return Ok(Cow::Borrowed(bytes));
        }
        let bytes = self.source.read_at(place, length)?;
        part.check(&bytes, what)?;
        Ok(bytes)
    }

    /// What `look` makes of a part, whose bytes are not kept.
    pub fn look_at<R>(&self, part: Part, what: &'static str, look: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
        let (place, length) = (self.start + part.offset as u64, part.bytes as usize);
        if let Some(bytes) = self.source.checked(place, length) {
            return look(bytes);
        }
        let (mut look, mut seen) = (Some(look), None);
        self.source.look_at(place, length, &mut |bytes| {
            seen = look.take().map(|look| part.check(bytes, what).and_then(|()| look(bytes)));
        })?;
        seen.unwrap_or_else(|| corrupt(what, part.offset as usize, "no bytes"))
    }
}

/// LEB128.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn varint(reader: &mut Reader<'_>, what: &'static str) -> std::result::Result<u64, Corrupt> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = reader.u8(what)?;
        value |= ((byte & 0x7f) as u64) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Corrupt::new(what, reader.position(), "a number of more than ten bytes"))
}

/// Small magnitudes become small unsigned numbers.
pub(super) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

pub(super) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

thread_local! {
    // Making one takes longer than most of what it is asked for.
    static COMPRESSOR: RefCell<zstd::bulk::Compressor<'static>> = RefCell::default();
    static DECOMPRESSOR: RefCell<zstd::bulk::Decompressor<'static>> = RefCell::default();
}

/// Gives back what this thread keeps for compressing: some 20 MB at ARCHIVE HIGH. For a thread that stays and seldom does.
pub fn release_memory() {
    COMPRESSOR.take();
    DECOMPRESSOR.take();
}

/// Compresses with the content's size known to the reader from elsewhere.
pub(super) fn zstd_compress(bytes: &[u8], level: i32) -> Vec<u8> {
    let compressed = COMPRESSOR.with_borrow_mut(|compressor| {
        compressor.set_compression_level(level)?;
        compressor.compress(bytes)
    });
    compressed.expect("memory is all that compression can lack")
}

/// Decompresses to exactly `raw_bytes` bytes, which the caller has bounded.
pub(super) fn zstd_decompress(bytes: &[u8], raw_bytes: usize, what: &'static str) -> Result<Vec<u8>> {
    match DECOMPRESSOR.with_borrow_mut(|decompressor| decompressor.decompress(bytes, raw_bytes)) {
        Ok(raw) if raw.len() == raw_bytes => Ok(raw),
        Ok(raw) => corrupt(what, 0, format!("{} bytes decompressed instead of {raw_bytes}", raw.len())),
        Err(error) => corrupt(what, 0, error.to_string()),
    }
}
