//! Chunks of up to 65,536 byte strings, of which a frame of rows can be read alone.
//!
//! Codings: one value; a sorted dictionary with codes; frames of concatenated strings, as they are, through FSST symbols
//! (decoded string by string) or zstd (decompressed as a whole). The level decides which of them are tried.

use super::bits::{BLOCK_ROWS, pack, packed_bytes, unpack, width_of};
use super::ints::{CHUNK_ROWS, IntBlock, IntChunk, cached};
use super::search::Search;
use super::shape::Level;
use super::source::{Data, Part, Result, corrupt, put_varint, varint, zstd_compress, zstd_decompress};
use super::symbols::{Coder, Symbols, room_for};
use cellar_format::bytes::{Corrupt, Reader, Write};
use cellar_format::units::BLOCK_BYTES;
use std::sync::OnceLock;

const DICTIONARY_MAX: usize = 1 << 14;
/// Entries of a dictionary whose codes are of a byte at most.
const FEW: u32 = 256;
/// Strings that are looked at before a dictionary is tried.
const SAMPLE: usize = 4096;
/// A chunk's strings, or a dictionary's, cannot be longer: they come out of at most 64 MiB of pages.
const BYTES_MAX: usize = 1 << 27;
/// Strings of this length on average may be worth zstd at every level.
const LONG: usize = 128;
/// A dictionary has so many zeroes behind its last entry.
const WIDE: usize = 32;

/// Strings one after the other.
#[derive(Debug, Default, Clone)]
pub struct Strings {
    pub bytes: Vec<u8>,
    /// Where each string ends.
    pub ends: Vec<u32>,
}

impl Strings {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len() as u32);
    }

    #[inline]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let (start, end) = self.place(index)?;
        self.bytes.get(start..end)
    }

    /// Where a string starts and ends in the bytes; a damaged unit may have put its end before its start.
    #[inline(always)]
    pub fn place(&self, index: usize) -> Option<(usize, usize)> {
        let start = if index == 0 { 0 } else { *self.ends.get(index - 1)? as usize };
        let end = *self.ends.get(index)? as usize;
        (start <= end).then_some((start, end))
    }

    /// Appends an entry for each code; returns the first code that has none.
    fn push_entries(&mut self, entries: &Strings, codes: &[i64]) -> Option<i64> {
        let mut end = self.bytes.len();
        for (index, code) in codes.iter().enumerate() {
            let Some((start, stop)) = entries.place(*code as usize) else { return Some(*code) };
            let count = stop - start;
            if self.bytes.len() < end + count + WIDE {
                // The others are mostly as long.
                self.bytes.resize(end + count * (codes.len() - index) + WIDE, 0);
            }
            match entries.bytes.get(start..start + WIDE) {
                // Copies of a fixed length are quicker than exact ones.
                Some(wide) if count <= WIDE => self.bytes[end..end + WIDE].copy_from_slice(wide),
                _ => self.bytes[end..end + count].copy_from_slice(entries.bytes.get(start..stop).unwrap_or_default()),
            }
            end += count;
            self.ends.push(end as u32);
        }
        self.bytes.truncate(end);
        None
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index).unwrap_or_default())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packer {
    Plain,
    Fsst,
    Zstd,
}

#[derive(Debug)]
struct Frames {
    packer: Packer,
    rows: u32,
    symbols: Option<(Part, OnceLock<Box<Symbols>>)>,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Dictionary {
    part: Part,
    count: u32,
    /// 0: the part is not compressed.
    raw_bytes: u32,
    entries: OnceLock<Strings>,
    codes: IntChunk,
}

#[derive(Debug)]
enum Coding {
    Constant(Vec<u8>),
    Dictionary(Box<Dictionary>),
    Frames(Frames),
}

mod tag {
    pub const CONSTANT: u8 = 0;
    pub const DICTIONARY: u8 = 1;
    pub const PLAIN: u8 = 2;
    pub const FSST: u8 = 3;
    pub const ZSTD: u8 = 4;
}

/// A chunk's entry in the directory.
#[derive(Debug)]
pub struct ByteChunk {
    count: u32,
    coding: Coding,
}

/// The last frame, and the last block of codes, that were read of a column.
#[derive(Debug, Default)]
pub struct ByteBlock {
    /// The next read is likely the only one of its frame.
    pub lone: bool,
    place: Option<(usize, usize)>,
    /// Where each string starts in `body`, and the end of the last.
    starts: Vec<u32>,
    body: Vec<u8>,
    /// Strings in which something was found.
    found: Vec<u16>,
    pub codes: IntBlock,
    scratch: Vec<i64>,
}

impl ByteBlock {
    pub fn held_bytes(&self) -> usize {
        self.body.capacity()
    }
}

/// Distinct strings by hash, in the order of their first occurrence, and each row's.
fn distinct<'a>(rows: &[&'a [u8]], most: usize) -> Option<(Vec<&'a [u8]>, Vec<u32>)> {
    let slots = (4 * most.min(rows.len()).max(16)).next_power_of_two();
    let mut table = vec![u32::MAX; slots];
    let mut found: Vec<&[u8]> = Vec::new();
    let mut codes = Vec::with_capacity(rows.len());
    for row in rows {
        let mut slot = hash(row) as usize & (slots - 1);
        let code = loop {
            match table[slot] {
                u32::MAX => {
                    if found.len() == most {
                        return None;
                    }
                    table[slot] = found.len() as u32;
                    found.push(row);
                    break found.len() as u32 - 1;
                }
                code if is_equal(found[code as usize], row) => break code,
                _ => slot = (slot + 1) & (slots - 1),
            }
        };
        codes.push(code);
    }
    Some((found, codes))
}

fn hash(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = bytes.len() as u64;
    let (words, rest) = bytes.as_chunks();
    for word in words {
        state = (state ^ u64::from_le_bytes(*word)).wrapping_mul(FACTOR).rotate_left(29);
    }
    state = (state ^ start_of(rest)).wrapping_mul(FACTOR);
    state ^ state >> 32
}

/// As `==`, which for short strings takes longer to call than to run.
#[inline(always)]
pub(super) fn is_equal(left: &[u8], right: &[u8]) -> bool {
    let ((left_words, left_rest), (right_words, right_rest)) = (left.as_chunks::<8>(), right.as_chunks::<8>());
    left.len() == right.len()
        && left_words.iter().zip(right_words).all(|(left, right)| left == right)
        && start_of(left_rest) == start_of(right_rest)
}

/// The first eight bytes, with zeroes behind the last, as a number that orders as they do.
#[inline(always)]
pub(super) fn start_of(bytes: &[u8]) -> u64 {
    let short = |at: usize, byte: u8| u64::from(byte) << (56 - 8 * at);
    if let Some(whole) = bytes.first_chunk() {
        return u64::from_be_bytes(*whole);
    }
    // Pieces that overlap: quicker than a copy of any length.
    match (bytes.first_chunk(), bytes.last_chunk(), bytes) {
        (Some(first), Some(last), _) => {
            u64::from(u32::from_be_bytes(*first)) << 32 | u64::from(u32::from_be_bytes(*last)) << (64 - 8 * bytes.len())
        }
        (_, _, [first, .., last]) => {
            let middle = bytes.len() / 2;
            short(0, *first) | short(middle, bytes[middle]) | short(bytes.len() - 1, *last)
        }
        (_, _, [only]) => short(0, *only),
        _ => 0,
    }
}

impl ByteChunk {
    /// Of at most [`CHUNK_ROWS`] strings.
    pub(super) fn encode(rows: &[&[u8]], level: Level, data: &mut Vec<u8>) -> Self {
        debug_assert!(rows.len() <= CHUNK_ROWS);
        let count = rows.len() as u32;
        let coding = match rows.first() {
            None => Coding::Constant(Vec::new()),
            Some(first) if rows.iter().all(|row| is_equal(row, first)) => Coding::Constant(first.to_vec()),
            Some(_) => choose(rows, level, data),
        };
        Self { count, coding }
    }

    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// What the coding is called.
    pub fn coding_name(&self) -> &'static str {
        match &self.coding {
            Coding::Constant(_) => "constant",
            Coding::Dictionary(_) => "dictionary",
            Coding::Frames(Frames { packer: Packer::Plain, .. }) => "plain",
            Coding::Frames(Frames { packer: Packer::Fsst, .. }) => "fsst",
            Coding::Frames(Frames { packer: Packer::Zstd, .. }) => "zstd",
        }
    }

    /// Bytes in the data section, as far as the directory tells.
    pub fn data_bytes(&self) -> usize {
        match &self.coding {
            Coding::Constant(_) => 0,
            Coding::Dictionary(dictionary) => dictionary.part.bytes as usize + dictionary.codes.data_bytes(),
            Coding::Frames(frames) => {
                let symbols = frames.symbols.as_ref().map_or(0, |(part, _)| part.bytes as usize);
                symbols + frames.parts.iter().map(|part| part.bytes as usize).sum::<usize>()
            }
        }
    }

    /// Bytes that are kept in memory once they were read.
    pub(super) fn kept_bytes_max(&self) -> usize {
        match &self.coding {
            Coding::Constant(_) => 0,
            Coding::Dictionary(dictionary) => {
                let strings = dictionary.raw_bytes.max(dictionary.part.bytes) as usize + WIDE;
                strings + 4 * dictionary.count as usize + dictionary.codes.kept_bytes_max()
            }
            Coding::Frames(frames) => frames.symbols.as_ref().map_or(0, |_| size_of::<Symbols>()),
        }
    }

    /// The distinct strings, ascending, and each row's number among them; None: there is no dictionary.
    pub(super) fn dictionary(&self, data: Data<'_>) -> Result<Option<(&Strings, &IntChunk)>> {
        let Coding::Dictionary(dictionary) = &self.coding else { return Ok(None) };
        let (entries, codes) = (dictionary.entries(data)?, &dictionary.codes);
        if codes.min < 0 || codes.max as usize >= entries.len() {
            let found = format!("codes {} to {} of {}", codes.min, codes.max, entries.len());
            return corrupt("string dictionary", dictionary.part.offset as usize, found);
        }
        Ok(Some((entries, codes)))
    }

    /// Whether each row's string is one of a list.
    pub fn has_list(&self) -> bool {
        matches!(self.coding, Coding::Constant(_) | Coding::Dictionary(_))
    }

    /// Where in the data section the strings of `rows` lie, or their codes.
    pub(super) fn extent(&self, rows: std::ops::Range<usize>) -> std::ops::Range<u32> {
        match &self.coding {
            Coding::Constant(_) => 0..0,
            Coding::Dictionary(dictionary) => dictionary.codes.extent(rows),
            Coding::Frames(frames) => {
                let (first, end) = (rows.start / frames.rows as usize, rows.end.div_ceil(frames.rows as usize));
                match frames.parts.get(first..end.min(frames.parts.len())) {
                    Some([first, .., last]) if first.offset <= last.offset => {
                        first.offset..last.offset.saturating_add(last.bytes)
                    }
                    _ => 0..0,
                }
            }
        }
    }

    /// Adds where in the data section lies what a read of the rows needs and is not in memory yet.
    pub(super) fn expect(&self, rows: std::ops::Range<usize>, parts: &mut Vec<std::ops::Range<u32>>) {
        match &self.coding {
            Coding::Constant(_) => {}
            Coding::Dictionary(dictionary) => {
                dictionary.codes.expect(rows, parts);
                parts.extend(dictionary.entries.get().is_none().then(|| dictionary.part.range()));
            }
            Coding::Frames(frames) => {
                let (first, end) = (rows.start / frames.rows as usize, rows.end.div_ceil(frames.rows as usize));
                let needed = frames.parts.get(first..end.min(frames.parts.len())).unwrap_or_default();
                parts.extend(needed.iter().map(Part::range));
                let symbols = frames.symbols.as_ref().filter(|(_, symbols)| symbols.get().is_none());
                parts.extend(symbols.map(|(part, _)| part.range()));
            }
        }
    }

    /// The string of all rows.
    pub fn constant(&self) -> Option<&[u8]> {
        if let Coding::Constant(value) = &self.coding { Some(value) } else { None }
    }

    /// Appends the strings of `rows`, which lie in the chunk, to `out`. `place` tells this chunk from the column's
    /// others.
    pub(super) fn read(
        &self,
        data: Data<'_>,
        place: usize,
        rows: std::ops::Range<usize>,
        last: &mut ByteBlock,
        out: &mut Strings,
    ) -> Result<()> {
        match &self.coding {
            Coding::Constant(value) => rows.for_each(|_| out.push(value)),
            Coding::Dictionary(dictionary) => {
                let entries = dictionary.entries(data)?;
                last.scratch.clear();
                dictionary.codes.read(data, place, rows, &mut last.codes, &mut last.scratch)?;
                if let Some(code) = out.push_entries(entries, &last.scratch) {
                    return corrupt("dictionary code", dictionary.part.offset as usize, code.to_string());
                }
            }
            Coding::Frames(frames) => {
                let mut from = rows.start;
                while from < rows.end {
                    let frame = from / frames.rows as usize;
                    let first = frame * frames.rows as usize;
                    let to = rows.end.min(first + frames.rows as usize);
                    let count = (self.count() - first).min(frames.rows as usize);
                    if last.lone && last.place != Some((place, frame)) && frames.packer != Packer::Zstd {
                        frames.pick(data, frame, count, from - first..to - first, last, out)?;
                    } else {
                        frames.load(data, place, frame, count, last)?;
                        frames.copy(data, last, from - first..to - first, out)?;
                    }
                    from = to;
                }
            }
        }
        Ok(())
    }

    /// The symbols by which strings are coded that can be searched without decoding them: those of a block at a time.
    pub(super) fn searchable(&self, data: Data<'_>) -> Result<Option<&Symbols>> {
        match &self.coding {
            Coding::Frames(frames) if frames.rows as usize == BLOCK_ROWS => frames.symbols(data),
            _ => Ok(None),
        }
    }

    /// Shows the strings of a block in which the pieces of `search` lie, or may lie, with their numbers in the block, ascending.
    /// [`Self::searchable`] gave the symbols.
    pub(super) fn search(
        &self,
        data: Data<'_>,
        block: usize,
        search: &mut Search,
        last: &mut ByteBlock,
        show: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        let Coding::Frames(frames) = &self.coding else { return Ok(()) };
        let count = self.count().saturating_sub(block * BLOCK_ROWS).min(BLOCK_ROWS);
        frames.search(data, block, count, search, last, show)
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        match &self.coding {
            Coding::Constant(value) => {
                out.put_u8(tag::CONSTANT);
                out.put_blob(value);
            }
            Coding::Dictionary(dictionary) => {
                out.put_u8(tag::DICTIONARY);
                dictionary.part.encode(out);
                out.put_u32(dictionary.count);
                out.put_u32(dictionary.raw_bytes);
                dictionary.codes.put(out);
            }
            Coding::Frames(frames) => {
                out.put_u8(match frames.packer {
                    Packer::Plain => tag::PLAIN,
                    Packer::Fsst => tag::FSST,
                    Packer::Zstd => tag::ZSTD,
                });
                out.put_u32(frames.rows);
                if let Some((part, _)) = &frames.symbols {
                    part.encode(out);
                }
                frames.parts.iter().for_each(|part| part.encode(out));
            }
        }
    }

    /// `count` is known from elsewhere.
    pub(super) fn get(reader: &mut Reader<'_>, count: usize) -> std::result::Result<Self, Corrupt> {
        let at = reader.position();
        let coding = match reader.u8("string coding")? {
            tag::CONSTANT => match reader.blob("constant string")? {
                value if value.len() <= BLOCK_BYTES => Coding::Constant(value.to_vec()),
                value => return Err(Corrupt::new("constant string", at, format!("{} bytes", value.len()))),
            },
            tag::DICTIONARY => {
                let part = Part::decode(reader)?;
                let (entries, raw_bytes) = (reader.u32("dictionary entries")?, reader.u32("dictionary bytes")?);
                let codes = IntChunk::get(reader, count)?;
                Coding::Dictionary(Box::new(Dictionary {
                    part,
                    count: entries,
                    raw_bytes,
                    entries: OnceLock::new(),
                    codes,
                }))
            }
            tag @ (tag::PLAIN | tag::FSST | tag::ZSTD) => {
                let rows = reader.u32("frame rows")?;
                let whole_blocks =
                    (rows as usize).is_multiple_of(BLOCK_ROWS) && rows > 0 && rows as usize <= CHUNK_ROWS;
                if !whole_blocks {
                    return Err(Corrupt::new("frame rows", at, rows.to_string()));
                }
                let packer = match tag {
                    tag::PLAIN => Packer::Plain,
                    tag::FSST => Packer::Fsst,
                    _ => Packer::Zstd,
                };
                let symbols = match packer {
                    Packer::Fsst => Some((Part::decode(reader)?, OnceLock::new())),
                    _ => None,
                };
                let parts = (0..count.div_ceil(rows as usize)).map(|_| Part::decode(reader));
                Coding::Frames(Frames { packer, rows, symbols, parts: parts.collect::<std::result::Result<_, _>>()? })
            }
            other => return Err(Corrupt::new("string coding", at, other.to_string())),
        };
        Ok(Self { count: count as u32, coding })
    }
}

/// The smallest coding that the level allows.
fn choose(rows: &[&[u8]], level: Level, data: &mut Vec<u8>) -> Coding {
    let total: usize = rows.iter().map(|row| row.len()).sum();
    let start = data.len();
    let dictionary = dictionary(rows, total, level, data);
    let dictionary_bytes = data.len() - start;
    // What other codings can hardly beat.
    let ratio = match level {
        Level::QueryLow => 4,
        Level::QueryHigh => 6,
        Level::ArchiveLow | Level::ArchiveHigh => 12,
    };
    if let Some(dictionary) = dictionary {
        if dictionary_bytes * ratio <= total {
            return Coding::Dictionary(Box::new(dictionary));
        }
        let mut other = Vec::new();
        let mut frames = Frames::encode(rows, level, &mut other);
        // A dictionary is worth something to a scan; one of few entries, by which rows are grouped, more.
        let worth = if dictionary.count <= FEW { dictionary_bytes / 2 } else { dictionary_bytes * 7 / 8 };
        if worth <= other.len() {
            return Coding::Dictionary(Box::new(dictionary));
        }
        data.truncate(start);
        frames.move_by(start as u32);
        data.extend_from_slice(&other);
        return Coding::Frames(frames);
    }
    Coding::Frames(Frames::encode(rows, level, data))
}

fn dictionary(rows: &[&[u8]], total: usize, level: Level, data: &mut Vec<u8>) -> Option<Dictionary> {
    let sample: Vec<&[u8]> = rows.iter().copied().step_by((rows.len() / SAMPLE).max(1)).collect();
    let (seen, _) = distinct(&sample, sample.len())?;
    if seen.len() > sample.len() * 3 / 4 && sample.len() > 64 {
        return None;
    }
    let (found, codes) = distinct(rows, DICTIONARY_MAX.min(rows.len() / 2 + 1))?;
    let bytes: usize = found.iter().map(|entry| entry.len() + 1).sum();
    let code_bytes = rows.len() * width_of(found.len() as u64 - 1) as usize / 8;
    if bytes + code_bytes >= total {
        return None;
    }
    let mut order: Vec<u32> = (0..found.len() as u32).collect();
    order.sort_unstable_by_key(|index| found[*index as usize]);
    let mut ranks = vec![0i64; found.len()];
    let mut entries = Strings::default();
    let mut raw = Vec::new();
    for (rank, index) in order.iter().enumerate() {
        ranks[*index as usize] = rank as i64;
        entries.push(found[*index as usize]);
        put_varint(&mut raw, found[*index as usize].len() as u64);
    }
    raw.extend_from_slice(&entries.bytes);
    entries.bytes.resize(entries.bytes.len() + WIDE, 0);
    // What is decoded once for all that is read of the chunk can be of many entries.
    let is_tried = level != Level::QueryLow || found.len() > FEW as usize;
    let compressed = is_tried.then(|| zstd_compress(&raw, level.zstd_level()));
    let compressed = compressed.filter(|compressed| compressed.len() < raw.len());
    let raw_bytes = if compressed.is_some() { raw.len() as u32 } else { 0 };
    let part = Part::append(data, compressed.as_ref().unwrap_or(&raw));
    let codes: Vec<i64> = codes.iter().map(|code| ranks[*code as usize]).collect();
    let codes = IntChunk::encode(&codes, data);
    Some(Dictionary { part, count: found.len() as u32, raw_bytes, entries: OnceLock::from(entries), codes })
}

impl Dictionary {
    fn entries(&self, data: Data<'_>) -> Result<&Strings> {
        cached(&self.entries, || {
            let mut bytes = data.read(self.part, "string dictionary")?;
            if self.raw_bytes as usize > BYTES_MAX {
                return corrupt("string dictionary", self.part.offset as usize, format!("{} bytes", self.raw_bytes));
            }
            if self.raw_bytes > 0 {
                bytes = zstd_decompress(&bytes, self.raw_bytes as usize, "string dictionary")?.into();
            }
            if self.count as usize > bytes.len() {
                return corrupt("string dictionary", self.part.offset as usize, format!("{} entries", self.count));
            }
            let mut reader = Reader::new(&bytes);
            let mut entries = Strings::default();
            let mut end = 0usize;
            for _ in 0..self.count {
                let length = varint(&mut reader, "string length")?;
                if length > BLOCK_BYTES as u64 {
                    return corrupt(
                        "string dictionary",
                        self.part.offset as usize,
                        format!("a string of {length} bytes"),
                    );
                }
                end += length as usize;
                entries.ends.push(end.min(u32::MAX as usize) as u32);
            }
            let strings = reader.take(end, "dictionary strings")?;
            entries.bytes.reserve_exact(end + WIDE);
            entries.bytes.extend_from_slice(strings);
            entries.bytes.resize(end + WIDE, 0);
            reader.finish("string dictionary")?;
            Ok(entries)
        })
    }
}

impl Frames {
    fn encode(rows: &[&[u8]], level: Level, data: &mut Vec<u8>) -> Self {
        let frame_rows = level.frame_rows();
        let packer = packer(rows, level);
        let coder = (packer == Packer::Fsst).then(|| Coder::train(rows));
        let symbols = coder.as_ref().map(|coder| {
            let (bytes, symbols) = coder.symbols();
            (Part::append(data, &bytes), OnceLock::from(symbols))
        });
        let mut parts = Vec::new();
        let (mut lengths, mut body, mut frame) = (Vec::new(), Vec::new(), Vec::new());
        for rows in rows.chunks(frame_rows) {
            lengths.clear();
            body.clear();
            frame.clear();
            match &coder {
                Some(coder) => coder.encode(rows, &mut lengths, &mut body),
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
            match packer {
                Packer::Zstd => frame.extend_from_slice(&zstd_compress(&body, level.zstd_level())),
                _ => frame.extend_from_slice(&body),
            }
            parts.push(Part::append(data, &frame));
        }
        Self { packer, rows: frame_rows as u32, symbols, parts }
    }

    fn move_by(&mut self, bytes: u32) {
        let symbols = self.symbols.as_mut().map(|(part, _)| part);
        self.parts.iter_mut().chain(symbols).for_each(|part| part.offset += bytes);
    }

    /// Reads a frame, which has `rows` rows, into `last`.
    fn load(&self, data: Data<'_>, place: usize, frame: usize, rows: usize, last: &mut ByteBlock) -> Result<()> {
        if last.place == Some((place, frame)) {
            return Ok(());
        }
        last.place = None;
        let part = self.parts[frame];
        let ByteBlock { starts, scratch, body, .. } = last;
        data.look_at(part, "string frame", |bytes| {
            let opened = Frame::open(bytes, part, rows, scratch)?;
            opened.check(put_starts(0, scratch, starts))?;
            match self.packer {
                Packer::Zstd => *body = zstd_decompress(opened.body, opened.body_bytes, "string frame")?,
                _ => {
                    body.clear();
                    body.extend_from_slice(opened.plain()?);
                }
            }
            Ok(())
        })?;
        last.place = Some((place, frame));
        Ok(())
    }

    /// Appends rows of a frame, which has `count` rows and is not zstd's, without making anything of its others.
    fn pick(
        &self,
        data: Data<'_>,
        frame: usize,
        count: usize,
        rows: std::ops::Range<usize>,
        last: &mut ByteBlock,
        out: &mut Strings,
    ) -> Result<()> {
        let part = self.parts[frame];
        // Read before the frame is looked at: a source has room for one part at a time.
        let symbols = self.symbols(data)?;
        let ByteBlock { starts, scratch, place, .. } = last;
        *place = None;
        data.look_at(part, "string frame", |bytes| {
            let opened = Frame::open(bytes, part, count, scratch)?;
            let Some(lengths) = scratch.get(rows.clone()) else {
                return corrupt("rows", rows.end, format!("a frame of {count} rows"));
            };
            let sum = |lengths: &[i64]| lengths.iter().fold(0u64, |sum, length| sum + *length as u64);
            let (before, after) = (sum(&scratch[..rows.start]), sum(&scratch[rows.end..]));
            opened.check(put_starts(before, lengths, starts) + after)?;
            append(opened.plain()?, starts, symbols, out);
            Ok(())
        })
    }

    fn search(
        &self,
        data: Data<'_>,
        frame: usize,
        count: usize,
        search: &mut Search,
        last: &mut ByteBlock,
        mut show: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        let Some(symbols) = self.symbols(data)? else { return Ok(()) };
        let Some(part) = self.parts.get(frame).copied() else { return corrupt("string frame", frame, "none") };
        let ByteBlock { starts, scratch, place, body, found, .. } = last;
        *place = None;
        data.look_at(part, "string frame", |bytes| {
            let opened = Frame::open(bytes, part, count, scratch)?;
            opened.check(put_starts(0, scratch, starts))?;
            let coded = opened.plain()?;
            search.find(coded, starts, found);
            for row in found.iter().map(|row| *row as usize) {
                let coded = &coded[starts[row] as usize..starts[row + 1] as usize];
                if body.len() < room_for(coded.len()) {
                    body.resize(room_for(coded.len()), 0);
                }
                let end = symbols.decode_into(coded, body);
                show(row, &body[..end]);
            }
            Ok(())
        })
    }

    fn symbols(&self, data: Data<'_>) -> Result<Option<&Symbols>> {
        let Some((part, symbols)) = &self.symbols else { return Ok(None) };
        Ok(Some(cached(symbols, || Symbols::read(data, *part))?))
    }

    /// Appends rows of the loaded frame.
    fn copy(&self, data: Data<'_>, last: &ByteBlock, rows: std::ops::Range<usize>, out: &mut Strings) -> Result<()> {
        let Some(starts) = last.starts.get(rows.start..rows.end + 1) else {
            return corrupt("rows", rows.end, format!("a frame of {} rows", last.starts.len() - 1));
        };
        append(&last.body, starts, self.symbols(data)?, out);
        Ok(())
    }
}

/// Appends the strings of a body that end where the next one of `starts` begins. They lie in it.
fn append(body: &[u8], starts: &[u32], symbols: Option<&Symbols>, out: &mut Strings) {
    let (Some(first), Some(last)) = (starts.first().copied(), starts.last().copied()) else { return };
    let Some(symbols) = symbols else {
        let from = out.bytes.len() as u32;
        out.bytes.extend_from_slice(&body[first as usize..last as usize]);
        out.ends.extend(starts[1..].iter().map(|start| from + start - first));
        return;
    };
    let mut end = out.bytes.len();
    let coded_bytes = (last - first) as usize;
    for pair in starts.windows(2) {
        let coded = &body[pair[0] as usize..pair[1] as usize];
        if out.bytes.len() - end < room_for(coded.len()) {
            // Mostly enough for all of them.
            out.bytes.resize(end + room_for(coded.len()) + 4 * coded_bytes, 0);
        }
        end += symbols.decode_into(coded, &mut out.bytes[end..]);
        out.ends.push(end as u32);
    }
    out.bytes.truncate(end);
}

/// Replaces `starts` by where strings of these lengths start, the first one at `start`, and where the last one ends, which is
/// also returned.
fn put_starts(start: u64, lengths: &[i64], starts: &mut Vec<u32>) -> u64 {
    let cut = |place: u64| place.min(u32::MAX as u64) as u32;
    let mut end = start;
    starts.clear();
    starts.push(cut(start));
    starts.extend(lengths.iter().map(|length| {
        // A frame has at most 2^16 strings, of less than 2^33 bytes each.
        end += *length as u64;
        cut(end)
    }));
    end
}

/// A frame's bytes, taken apart.
struct Frame<'a> {
    part: Part,
    body: &'a [u8],
    body_bytes: usize,
}

impl<'a> Frame<'a> {
    /// Of a frame of `rows` rows; `lengths` become those of its strings.
    fn open(bytes: &'a [u8], part: Part, rows: usize, lengths: &mut Vec<i64>) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let (shortest, width, body_bytes) =
            (reader.u32("shortest string")?, reader.u8("length width")?, reader.u32("string bytes")? as usize);
        if width > 32 || body_bytes > BYTES_MAX {
            return corrupt("string frame", part.offset as usize, format!("width {width}, {body_bytes} bytes"));
        }
        lengths.resize(rows, 0);
        for block in lengths.chunks_mut(BLOCK_ROWS) {
            let packed = reader.take(packed_bytes(block.len(), width), "string lengths")?;
            unpack(packed, width, shortest as i64, block)?;
        }
        Ok(Self { part, body: reader.take(reader.remaining(), "strings")?, body_bytes })
    }

    /// All strings together are as long as the frame says.
    fn check(&self, bytes: u64) -> Result<()> {
        match bytes == self.body_bytes as u64 {
            true => Ok(()),
            false => {
                corrupt("string frame", self.part.offset as usize, format!("{bytes} bytes of {}", self.body_bytes))
            }
        }
    }

    /// The strings where they lie as they are, or as symbols.
    fn plain(&self) -> Result<&'a [u8]> {
        match self.body.len() == self.body_bytes {
            true => Ok(self.body),
            false => corrupt("string frame", self.part.offset as usize, format!("{} bytes", self.body.len())),
        }
    }
}

/// FSST, of which a string is decoded alone, where pages are to be read quickly; but not where strings are long and so
/// much alike that zstd takes half of its bytes.
fn packer(rows: &[&[u8]], level: Level) -> Packer {
    let total: usize = rows.iter().map(|row| row.len()).sum();
    match level {
        Level::QueryLow if total < LONG * rows.len() => return Packer::Fsst,
        Level::QueryLow => {}
        _ => return Packer::Zstd,
    }
    // One frame from the middle tells.
    let frames: Vec<_> = rows.chunks(level.frame_rows()).collect();
    let frame = frames[frames.len() / 2];
    let mut coded = Vec::new();
    Coder::train(frame).encode(frame, &mut Vec::new(), &mut coded);
    let zstd_bytes = zstd_compress(&frame.concat(), level.zstd_level()).len();
    if zstd_bytes * 2 <= coded.len() { Packer::Zstd } else { Packer::Fsst }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rows: &[Vec<u8>], names: [&str; 4]) {
        let rows: Vec<&[u8]> = rows.iter().map(|row| row.as_slice()).collect();
        for (level, name) in Level::ALL.into_iter().zip(names) {
            let mut data = b"before".to_vec();
            let chunk = ByteChunk::encode(&rows, level, &mut data);
            assert_eq!(chunk.coding_name(), name, "{level:?}");
            let mut entry = Vec::new();
            chunk.put(&mut entry);
            let mut reader = Reader::new(&entry);
            let chunk = ByteChunk::get(&mut reader, rows.len()).unwrap();
            reader.finish("chunk").unwrap();
            let section = Data { source: &data, start: 0 };
            for range in [0..rows.len(), rows.len() / 3..rows.len() / 2 + 1, rows.len() - 1..rows.len()] {
                let mut out = Strings::default();
                chunk.read(section, 0, range.clone(), &mut ByteBlock::default(), &mut out).unwrap();
                assert!(out.iter().eq(rows[range].iter().copied()), "{level:?}");
            }
            for at in (6..data.len()).step_by(data.len() / 17 + 1) {
                data[at] ^= 0x10;
                let section = Data { source: &data, start: 0 };
                // Decoded dictionaries are kept: a new chunk has none.
                let chunk = ByteChunk::get(&mut Reader::new(&entry), rows.len()).unwrap();
                let read = chunk.read(section, 0, 0..rows.len(), &mut ByteBlock::default(), &mut Strings::default());
                assert!(read.is_err(), "{level:?}, byte {at}");
                data[at] ^= 0x10;
            }
        }
    }

    #[test]
    fn starts_order_as_the_bytes_do_and_strings_are_equal_to_themselves_alone() {
        let text = b"abcdefghijklmnopqrs";
        let strings: Vec<&[u8]> = (0..text.len()).flat_map(|end| [&text[..end], &text[end / 3..end]]).collect();
        for left in &strings {
            let mut padded = left.to_vec();
            padded.resize(left.len().max(8), 0);
            assert_eq!(start_of(left).to_be_bytes(), padded[..8]);
            assert!(strings.iter().all(|right| is_equal(left, right) == (left == right)));
            let mut other = left.to_vec();
            (0..left.len()).for_each(|at| {
                other[at] ^= 1;
                assert!(!is_equal(left, &other));
                other[at] ^= 1;
            });
        }
    }

    fn text(index: usize) -> Vec<u8> {
        let words = ["carefully", "final", "deposits", "sleep", "quickly", "ironic", "requests", "pinto beans"];
        let pick = |shift: usize| words[(index.wrapping_mul(2_654_435_761) >> shift) % words.len()];
        format!("{} {} {index} {}", pick(3), pick(11), pick(19)).into_bytes()
    }

    #[test]
    fn every_coding_gives_its_strings_back() {
        let rows = |count: usize, row: fn(usize) -> Vec<u8>| (0..count).map(row).collect::<Vec<_>>();
        check(&rows(3000, |_| b"same".to_vec()), ["constant"; 4]);
        check(&rows(3000, |index| vec![b'a' + (index % 7) as u8; 1 + index % 7]), ["dictionary"; 4]);
        check(&rows(6000, text), ["fsst", "zstd", "zstd", "zstd"]);
        check(&rows(80, text), ["fsst", "zstd", "zstd", "zstd"]);
        // Long ones, much alike and not.
        let alike = |index: usize| {
            let event = format!("{{\"level\": \"info\", \"host\": \"worker-{}\", \"step\": {index}, ", index % 40);
            [
                event.as_bytes(),
                &b"\"message\": \"the transfer was accepted by the next stage and put in its queue\", "[..],
            ]
            .concat()
            .repeat(2)
        };
        check(&rows(3000, alike), ["zstd"; 4]);
        let unlike = |index: usize| (0..40).flat_map(|at| text(index * 61 + at * at)).collect();
        check(&rows(1500, unlike), ["fsst", "zstd", "zstd", "zstd"]);
        // Bytes that no symbol stands for, empty strings, long ones.
        let noise = |index: usize| {
            (0..index * 31 % 700).map(|at| (index.wrapping_mul(0x9e37_79b9) >> (at % 24)) as u8 ^ at as u8).collect()
        };
        check(&rows(2000, noise), ["fsst", "zstd", "zstd", "zstd"]);
    }
}
