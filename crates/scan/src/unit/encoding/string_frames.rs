//! String frames: the strings of a few blocks one after another, compressed together.
//!
//! A frame is its strings' lengths, bit-packed, and a body: the strings themselves (plain), as codes of symbols
//! ([`symbols`](super::symbols), FSST), or compressed by zstd. Plain and symbol-encoded strings can be decoded one by one; zstd
//! decompresses the whole frame.

use super::super::section::{DataSection, Part, Result, corrupt};
use super::super::shape::Level;
use super::bits::{BLOCK_ROWS, pack, packed_bytes, unpack, width_of};
use super::string_list::STRINGS_BYTES_MAX;
use super::symbol_search::SymbolSearch;
use super::symbols::{SymbolEncoder, SymbolTable, decoded_bytes_max};
use super::tag::strings as tag;
use super::zstd;
use super::{CHUNK_ROWS, StringCache, StringEncoding, Strings, get_or_try_init};
use cellar_format::bytes::{Corrupt, Reader, Write};
use std::ops::Range;
use std::sync::OnceLock;

/// At QUERY LOW, zstd is tried for strings of at least this average length.
const LONG_BYTES: usize = 128;

/// How the bodies of frames are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    Plain,
    Symbols,
    Zstd,
}

impl Compression {
    /// The compression for a level: symbols at QUERY LOW, where single pages must be read quickly, and zstd at other levels. QUERY LOW
    /// uses zstd if strings are long and zstd needs at most half as many bytes as symbols.
    pub fn of(rows: &[&[u8]], level: Level) -> Self {
        let total: usize = rows.iter().map(|row| row.len()).sum();
        match level {
            Level::QueryLow if total < LONG_BYTES * rows.len() => return Self::Symbols,
            Level::QueryLow => {}
            _ => return Self::Zstd,
        }
        // Compare both on the frame in the middle.
        let frames: Vec<_> = rows.chunks(level.frame_rows()).collect();
        let frame = frames[frames.len() / 2];
        let mut coded = Vec::new();
        SymbolEncoder::train(frame).encode(frame, &mut Vec::new(), &mut coded);
        let zstd_bytes = zstd::compress(&frame.concat(), level.zstd_level()).len();
        if zstd_bytes * 2 <= coded.len() { Self::Zstd } else { Self::Symbols }
    }
}

#[derive(Debug)]
pub struct StringFrames {
    compression: Compression,
    /// Rows of the chunk.
    count: u32,
    /// Rows of a frame, a multiple of [`BLOCK_ROWS`]; the last frame may have fewer.
    rows: u32,
    symbols: Option<(Part, OnceLock<Box<SymbolTable>>)>,
    parts: Vec<Part>,
}

impl StringFrames {
    pub fn encode(rows: &[&[u8]], compression: Compression, level: Level, data: &mut Vec<u8>) -> Self {
        let frame_rows = level.frame_rows();
        let encoder = (compression == Compression::Symbols).then(|| SymbolEncoder::train(rows));
        let symbols = encoder.as_ref().map(|encoder| {
            let (bytes, symbols) = encoder.table();
            (Part::append(data, &bytes), OnceLock::from(symbols))
        });
        let mut parts = Vec::new();
        let (mut lengths, mut body, mut frame) = (Vec::new(), Vec::new(), Vec::new());
        for rows in rows.chunks(frame_rows) {
            lengths.clear();
            body.clear();
            frame.clear();
            match &encoder {
                Some(encoder) => encoder.encode(rows, &mut lengths, &mut body),
                None => {
                    lengths.extend(rows.iter().map(|row| row.len() as u64));
                    rows.iter().for_each(|row| body.extend_from_slice(row));
                }
            }
            let shortest = lengths.iter().min().copied().unwrap_or(0);
            lengths.iter_mut().for_each(|length| *length -= shortest);
            let width = width_of(lengths.iter().max().copied().unwrap_or(0));
            frame.put_u32(shortest as u32);
            frame.put_u8(width);
            frame.put_u32(body.len() as u32);
            lengths.chunks(BLOCK_ROWS).for_each(|block| pack(block, width, &mut frame));
            match compression {
                Compression::Zstd => frame.extend_from_slice(&zstd::compress(&body, level.zstd_level())),
                _ => frame.extend_from_slice(&body),
            }
            parts.push(Part::append(data, &frame));
        }
        Self { compression, count: rows.len() as u32, rows: frame_rows as u32, symbols, parts }
    }

    pub fn get(reader: &mut Reader<'_>, count: usize, compression: Compression) -> Result<Self, Corrupt> {
        let at = reader.position();
        let rows = reader.u32("frame rows")?;
        let whole_blocks = (rows as usize).is_multiple_of(BLOCK_ROWS) && rows > 0 && rows as usize <= CHUNK_ROWS;
        if !whole_blocks {
            return Err(Corrupt::new("frame rows", at, rows.to_string()));
        }
        let symbols = match compression {
            Compression::Symbols => Some((Part::decode(reader)?, OnceLock::new())),
            _ => None,
        };
        let parts = (0..count.div_ceil(rows as usize)).map(|_| Part::decode(reader));
        let parts = parts.collect::<Result<_, _>>()?;
        Ok(Self { compression, count: count as u32, rows, symbols, parts })
    }

    /// Rows of a frame.
    pub fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Adds `bytes` to the offset of every part: the data section grew in front of them.
    pub fn shift_offsets(&mut self, bytes: u32) {
        let symbols = self.symbols.as_mut().map(|(part, _)| part);
        self.parts.iter_mut().chain(symbols).for_each(|part| part.offset += bytes);
    }

    /// Rows in this frame, which may be the last one.
    fn frame_rows(&self, frame: usize) -> usize {
        (self.count as usize).saturating_sub(frame * self.rows()).min(self.rows())
    }

    /// The symbol table; None for other compressions.
    pub fn symbols(&self, section: DataSection<'_>) -> Result<Option<&SymbolTable>> {
        let Some((part, symbols)) = &self.symbols else { return Ok(None) };
        Ok(Some(get_or_try_init(symbols, || SymbolTable::read(section, *part))?))
    }

    /// The frames that contain `rows`.
    fn parts_of(&self, rows: Range<usize>) -> &[Part] {
        let (first, end) = (rows.start / self.rows(), rows.end.div_ceil(self.rows()));
        self.parts.get(first..end.min(self.parts.len())).unwrap_or_default()
    }

    /// Decodes a frame into `cache`, unless `cache` contains the frame.
    fn load(&self, section: DataSection<'_>, chunk: usize, frame: usize, cache: &mut StringCache) -> Result<()> {
        if cache.key == Some((chunk, frame)) {
            return Ok(());
        }
        cache.key = None;
        let part = self.parts[frame];
        let StringCache { starts, scratch, body, .. } = cache;
        section.with_bytes(part, "string frame", |bytes| {
            let opened = StringFrame::open(bytes, part, self.frame_rows(frame), scratch)?;
            opened.check_length(put_starts(0, scratch, starts))?;
            match self.compression {
                Compression::Zstd => *body = zstd::decompress(opened.body, opened.body_bytes, "string frame")?,
                _ => {
                    body.clear();
                    body.extend_from_slice(opened.uncompressed()?);
                }
            }
            Ok(())
        })?;
        cache.key = Some((chunk, frame));
        Ok(())
    }

    /// Appends rows of the frame in `cache`.
    fn push_loaded(
        &self,
        section: DataSection<'_>,
        cache: &StringCache,
        rows: Range<usize>,
        out: &mut Strings,
    ) -> Result<()> {
        let Some(starts) = cache.starts.get(rows.start..rows.end + 1) else {
            return corrupt("rows", rows.end, format!("a frame of {} rows", cache.starts.len() - 1));
        };
        push_strings(&cache.body, starts, self.symbols(section)?, out);
        Ok(())
    }

    /// Appends rows of a frame that is not compressed by zstd, decoding no other rows.
    fn push_rows(
        &self,
        section: DataSection<'_>,
        frame: usize,
        rows: Range<usize>,
        cache: &mut StringCache,
        out: &mut Strings,
    ) -> Result<()> {
        let (part, count) = (self.parts[frame], self.frame_rows(frame));
        let symbols = self.symbols(section)?;
        let StringCache { starts, scratch, key, .. } = cache;
        *key = None;
        section.with_bytes(part, "string frame", |bytes| {
            let opened = StringFrame::open(bytes, part, count, scratch)?;
            let Some(lengths) = scratch.get(rows.clone()) else {
                return corrupt("rows", rows.end, format!("a frame of {count} rows"));
            };
            let sum = |lengths: &[i64]| lengths.iter().fold(0u64, |sum, length| sum + *length as u64);
            let (before, after) = (sum(&scratch[..rows.start]), sum(&scratch[rows.end..]));
            opened.check_length(put_starts(before, lengths, starts) + after)?;
            push_strings(opened.uncompressed()?, starts, symbols, out);
            Ok(())
        })
    }

    /// See [`StringChunk::search`](super::StringChunk::search).
    pub fn search(
        &self,
        section: DataSection<'_>,
        frame: usize,
        search: &mut SymbolSearch,
        cache: &mut StringCache,
        mut visit: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        let Some(symbols) = self.symbols(section)? else { return Ok(()) };
        let Some(part) = self.parts.get(frame).copied() else { return corrupt("string frame", frame, "none") };
        let StringCache { starts, scratch, key, body, found, .. } = cache;
        *key = None;
        section.with_bytes(part, "string frame", |bytes| {
            let opened = StringFrame::open(bytes, part, self.frame_rows(frame), scratch)?;
            opened.check_length(put_starts(0, scratch, starts))?;
            let codes = opened.uncompressed()?;
            search.find(codes, starts, found);
            for row in found.iter().map(|row| *row as usize) {
                let codes = &codes[starts[row] as usize..starts[row + 1] as usize];
                if body.len() < decoded_bytes_max(codes.len()) {
                    body.resize(decoded_bytes_max(codes.len()), 0);
                }
                let end = symbols.decode_into(codes, body);
                visit(row, &body[..end]);
            }
            Ok(())
        })
    }
}

impl StringEncoding for StringFrames {
    fn name(&self) -> &'static str {
        match self.compression {
            Compression::Plain => "plain",
            Compression::Symbols => "symbols",
            Compression::Zstd => "zstd",
        }
    }

    fn read(
        &self,
        section: DataSection<'_>,
        chunk: usize,
        rows: Range<usize>,
        cache: &mut StringCache,
        out: &mut Strings,
    ) -> Result<()> {
        let mut from = rows.start;
        while from < rows.end {
            let frame = from / self.rows();
            let first = frame * self.rows();
            let to = rows.end.min(first + self.rows());
            let is_cached = cache.key == Some((chunk, frame));
            if cache.single_reads && !is_cached && self.compression != Compression::Zstd {
                self.push_rows(section, frame, from - first..to - first, cache, out)?;
            } else {
                self.load(section, chunk, frame, cache)?;
                self.push_loaded(section, cache, from - first..to - first, out)?;
            }
            from = to;
        }
        Ok(())
    }

    fn row_bytes(&self, rows: Range<usize>) -> Range<u32> {
        match self.parts_of(rows) {
            // A single frame needs no combined read.
            [first, .., last] if first.offset <= last.offset => first.offset..last.offset.saturating_add(last.bytes),
            _ => 0..0,
        }
    }

    fn prefetch(&self, rows: Range<usize>, ranges: &mut Vec<Range<u32>>) {
        ranges.extend(self.parts_of(rows).iter().map(Part::range));
        let symbols = self.symbols.as_ref().filter(|(_, symbols)| symbols.get().is_none());
        ranges.extend(symbols.map(|(part, _)| part.range()));
    }

    fn data_bytes(&self) -> usize {
        let symbols = self.symbols.as_ref().map_or(0, |(part, _)| part.bytes as usize);
        symbols + self.parts.iter().map(|part| part.bytes as usize).sum::<usize>()
    }

    fn decoded_bytes_max(&self) -> usize {
        self.symbols.as_ref().map_or(0, |_| size_of::<SymbolTable>())
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(match self.compression {
            Compression::Plain => tag::PLAIN,
            Compression::Symbols => tag::SYMBOLS,
            Compression::Zstd => tag::ZSTD,
        });
        out.put_u32(self.rows);
        if let Some((part, _)) = &self.symbols {
            part.encode(out);
        }
        self.parts.iter().for_each(|part| part.encode(out));
    }
}

/// A frame's bytes, split into lengths and body.
struct StringFrame<'a> {
    part: Part,
    body: &'a [u8],
    body_bytes: usize,
}

impl<'a> StringFrame<'a> {
    /// Opens a frame of `rows` rows and replaces `lengths` by the lengths of the strings.
    fn open(bytes: &'a [u8], part: Part, rows: usize, lengths: &mut Vec<i64>) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let (shortest, width, body_bytes) =
            (reader.u32("shortest string")?, reader.u8("length width")?, reader.u32("string bytes")? as usize);
        if width > 32 || body_bytes > STRINGS_BYTES_MAX {
            return corrupt("string frame", part.offset as usize, format!("width {width}, {body_bytes} bytes"));
        }
        lengths.resize(rows, 0);
        for block in lengths.chunks_mut(BLOCK_ROWS) {
            let packed = reader.take(packed_bytes(block.len(), width), "string lengths")?;
            unpack(packed, width, shortest as i64, block)?;
        }
        Ok(Self { part, body: reader.take(reader.remaining(), "strings")?, body_bytes })
    }

    /// Compares the sum of the lengths with the length that the frame states.
    fn check_length(&self, bytes: u64) -> Result<()> {
        match bytes == self.body_bytes as u64 {
            true => Ok(()),
            false => {
                corrupt("string frame", self.part.offset as usize, format!("{bytes} bytes of {}", self.body_bytes))
            }
        }
    }

    /// The body, when zstd did not compress the body: plain strings or codes of symbols.
    fn uncompressed(&self) -> Result<&'a [u8]> {
        match self.body.len() == self.body_bytes {
            true => Ok(self.body),
            false => corrupt("string frame", self.part.offset as usize, format!("{} bytes", self.body.len())),
        }
    }
}

/// Appends the strings between neighbouring `starts` of a body, decoded by `symbols` if there are any. All starts are
/// within the body.
fn push_strings(body: &[u8], starts: &[u32], symbols: Option<&SymbolTable>, out: &mut Strings) {
    let (Some(first), Some(last)) = (starts.first().copied(), starts.last().copied()) else { return };
    let Some(symbols) = symbols else {
        let from = out.bytes.len() as u32;
        out.bytes.extend_from_slice(&body[first as usize..last as usize]);
        out.ends.extend(starts[1..].iter().map(|start| from + start - first));
        return;
    };
    let mut end = out.bytes.len();
    let code_bytes = (last - first) as usize;
    for pair in starts.windows(2) {
        let codes = &body[pair[0] as usize..pair[1] as usize];
        if out.bytes.len() - end < decoded_bytes_max(codes.len()) {
            // Four bytes a code are mostly enough for all strings, so the buffer grows once.
            out.bytes.resize(end + decoded_bytes_max(codes.len()) + 4 * code_bytes, 0);
        }
        end += symbols.decode_into(codes, &mut out.bytes[end..]);
        out.ends.push(end as u32);
    }
    out.bytes.truncate(end);
}

/// Replaces `starts` by the starts of strings of these lengths, the first one at `start`, and the end of the last one. Returns
/// that end.
fn put_starts(start: u64, lengths: &[i64], starts: &mut Vec<u32>) -> u64 {
    let cut = |place: u64| place.min(u32::MAX as u64) as u32;
    let mut end = start;
    starts.clear();
    starts.push(cut(start));
    starts.extend(lengths.iter().map(|length| {
        // Cannot overflow: a frame has at most 2^16 strings of less than 2^33 bytes each.
        end += *length as u64;
        cut(end)
    }));
    end
}
