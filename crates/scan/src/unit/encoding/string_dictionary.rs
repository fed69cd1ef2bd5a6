//! String dictionary: the distinct strings in ascending order, and for each row the position (code) of its string.
//!
//! The codes are a chunk of integers with a separate encoding. The entries are one part, decoded once, and compressed by
//! zstd if the compressed part is smaller.

use super::super::section::{DataSection, Part, Result, corrupt};
use super::super::shape::Level;
use super::bits::width_of;
use super::string_list::STRINGS_BYTES_MAX;
use super::tag::strings as tag;
use super::varint::{put_varint, varint};
use super::zstd;
use super::{COPY_BYTES, IntChunk, StringCache, StringEncoding, Strings, first_bytes, get_or_try_init, is_equal};
use cellar_format::bytes::{Corrupt, Reader, Write};
use cellar_format::units::BLOCK_BYTES;
use std::ops::Range;
use std::sync::OnceLock;

const ENTRIES_MAX: usize = 1 << 14;
/// Entries whose codes need one byte at most.
pub const FEW_ENTRIES: u32 = 256;
/// Minimum size of the sample that is inspected first. If most sampled strings are distinct, there is no dictionary.
const SAMPLE_ROWS: usize = 4096;

#[derive(Debug)]
pub struct StringDictionary {
    /// The entries' lengths and bytes.
    part: Part,
    count: u32,
    /// Uncompressed bytes of the part; 0: the part is not compressed.
    raw_bytes: u32,
    /// Followed by [`COPY_BYTES`] zero bytes.
    entries: OnceLock<Strings>,
    codes: IntChunk,
}

impl StringDictionary {
    /// Returns None, without a change of `data`, if the dictionary would not be smaller than the strings (`total` bytes), or too many
    /// strings are distinct.
    pub fn encode(rows: &[&[u8]], total: usize, level: Level, data: &mut Vec<u8>) -> Option<Self> {
        let sample: Vec<&[u8]> = rows.iter().copied().step_by((rows.len() / SAMPLE_ROWS).max(1)).collect();
        let (seen, _) = distinct(&sample, sample.len())?;
        if seen.len() > sample.len() * 3 / 4 && sample.len() > 64 {
            return None;
        }
        let (found, codes) = distinct(rows, ENTRIES_MAX.min(rows.len() / 2 + 1))?;
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
        entries.bytes.resize(entries.bytes.len() + COPY_BYTES, 0);
        // At QUERY LOW a small dictionary stays uncompressed; the cost of decompressing a large one spreads over more reads.
        let try_zstd = level != Level::QueryLow || found.len() > FEW_ENTRIES as usize;
        let compressed = try_zstd.then(|| zstd::compress(&raw, level.zstd_level()));
        let compressed = compressed.filter(|compressed| compressed.len() < raw.len());
        let raw_bytes = if compressed.is_some() { raw.len() as u32 } else { 0 };
        let part = Part::append(data, compressed.as_ref().unwrap_or(&raw));
        let codes: Vec<i64> = codes.iter().map(|code| ranks[*code as usize]).collect();
        let codes = IntChunk::encode(&codes, data);
        Some(Self { part, count: found.len() as u32, raw_bytes, entries: OnceLock::from(entries), codes })
    }

    pub fn get(reader: &mut Reader<'_>, count: usize) -> Result<Self, Corrupt> {
        let part = Part::decode(reader)?;
        let (entries, raw_bytes) = (reader.u32("dictionary entries")?, reader.u32("dictionary bytes")?);
        let codes = IntChunk::get(reader, count)?;
        Ok(Self { part, count: entries, raw_bytes, entries: OnceLock::new(), codes })
    }

    /// Number of entries.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The entries and the codes. Every code has an entry.
    pub fn entries_and_codes(&self, section: DataSection<'_>) -> Result<(&Strings, &IntChunk)> {
        let (entries, codes) = (self.entries(section)?, &self.codes);
        if codes.min < 0 || codes.max as usize >= entries.len() {
            let found = format!("codes {} to {} of {}", codes.min, codes.max, entries.len());
            return corrupt("string dictionary", self.part.offset as usize, found);
        }
        Ok((entries, codes))
    }

    fn entries(&self, section: DataSection<'_>) -> Result<&Strings> {
        get_or_try_init(&self.entries, || self.read_entries(section))
    }

    fn read_entries(&self, section: DataSection<'_>) -> Result<Strings> {
        let at = self.part.offset as usize;
        let mut bytes = section.read(self.part, "string dictionary")?;
        if self.raw_bytes as usize > STRINGS_BYTES_MAX {
            return corrupt("string dictionary", at, format!("{} bytes", self.raw_bytes));
        }
        if self.raw_bytes > 0 {
            bytes = zstd::decompress(&bytes, self.raw_bytes as usize, "string dictionary")?.into();
        }
        if self.count as usize > bytes.len() {
            return corrupt("string dictionary", at, format!("{} entries", self.count));
        }
        let mut reader = Reader::new(&bytes);
        let mut entries = Strings::default();
        let mut end = 0usize;
        for _ in 0..self.count {
            let length = varint(&mut reader, "string length")?;
            if length > BLOCK_BYTES as u64 {
                return corrupt("string dictionary", at, format!("a string of {length} bytes"));
            }
            end += length as usize;
            entries.ends.push(end.min(u32::MAX as usize) as u32);
        }
        let strings = reader.take(end, "dictionary strings")?;
        entries.bytes.reserve_exact(end + COPY_BYTES);
        entries.bytes.extend_from_slice(strings);
        entries.bytes.resize(end + COPY_BYTES, 0);
        reader.finish("string dictionary")?;
        Ok(entries)
    }
}

impl StringEncoding for StringDictionary {
    fn name(&self) -> &'static str {
        "dictionary"
    }

    fn read(
        &self,
        section: DataSection<'_>,
        chunk: usize,
        rows: Range<usize>,
        cache: &mut StringCache,
        out: &mut Strings,
    ) -> Result<()> {
        let entries = self.entries(section)?;
        cache.scratch.clear();
        self.codes.read(section, chunk, rows, &mut cache.codes, &mut cache.scratch)?;
        let pushed = out.push_entries(entries, &cache.scratch);
        pushed.or_else(|code| corrupt("dictionary code", self.part.offset as usize, code.to_string()))
    }

    fn row_bytes(&self, rows: Range<usize>) -> Range<u32> {
        self.codes.row_bytes(rows)
    }

    fn prefetch(&self, rows: Range<usize>, ranges: &mut Vec<Range<u32>>) {
        self.codes.prefetch(rows, ranges);
        ranges.extend(self.entries.get().is_none().then(|| self.part.range()));
    }

    fn data_bytes(&self) -> usize {
        self.part.bytes as usize + self.codes.data_bytes()
    }

    fn decoded_bytes_max(&self) -> usize {
        let strings = self.raw_bytes.max(self.part.bytes) as usize + COPY_BYTES;
        strings + 4 * self.count as usize + self.codes.decoded_bytes_max()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(tag::DICTIONARY);
        self.part.encode(out);
        out.put_u32(self.count);
        out.put_u32(self.raw_bytes);
        self.codes.put(out);
    }
}

/// The distinct strings in order of first occurrence, and for each row the position of its string; None when there are
/// more than `most`.
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
    state = (state ^ first_bytes(rest)).wrapping_mul(FACTOR);
    state ^ state >> 32
}
