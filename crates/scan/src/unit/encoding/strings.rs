//! A chunk's byte strings: chooses their encoding, and reads any rows of them.

use super::super::section::{DataSection, Result, corrupt};
use super::super::shape::Level;
use super::bits::BLOCK_ROWS;
use super::constant::ConstantString;
use super::string_dictionary::{FEW_ENTRIES, StringDictionary};
use super::string_frames::{Compression, StringFrames};
use super::symbol_search::SymbolSearch;
use super::symbols::SymbolTable;
use super::tag::strings as tag;
use super::{CHUNK_ROWS, IntChunk, StringCache, StringEncoding, Strings, is_equal};
use cellar_format::bytes::{Corrupt, Reader};
use std::ops::Range;

#[derive(Debug)]
enum Encoding {
    Constant(ConstantString),
    Dictionary(Box<StringDictionary>),
    Frames(StringFrames),
}

/// Calls a method of [`StringEncoding`]: the only place that matches on all encodings for a call.
macro_rules! dispatch {
    ($self:ident, $encoding:ident => $call:expr) => {
        match &$self.encoding {
            Encoding::Constant($encoding) => $call,
            Encoding::Dictionary($encoding) => $call,
            Encoding::Frames($encoding) => $call,
        }
    };
}

/// The strings of a chunk: the directory entry. The frame or the block of codes of any row can be read without the others.
#[derive(Debug)]
pub struct StringChunk {
    encoding: Encoding,
}

impl StringChunk {
    /// Encodes at most [`CHUNK_ROWS`] strings.
    pub fn encode(rows: &[&[u8]], level: Level, data: &mut Vec<u8>) -> Self {
        debug_assert!(rows.len() <= CHUNK_ROWS);
        let encoding = match rows.first() {
            None => Encoding::Constant(ConstantString(Vec::new())),
            Some(first) if rows.iter().all(|row| is_equal(row, first)) => {
                Encoding::Constant(ConstantString(first.to_vec()))
            }
            Some(_) => choose(rows, level, data),
        };
        Self { encoding }
    }

    pub fn encoding_name(&self) -> &'static str {
        dispatch!(self, encoding => encoding.name())
    }

    /// Bytes in the data section.
    pub fn data_bytes(&self) -> usize {
        dispatch!(self, encoding => encoding.data_bytes())
    }

    /// Memory in bytes of the parts that stay decoded after the first read.
    pub fn decoded_bytes_max(&self) -> usize {
        dispatch!(self, encoding => encoding.decoded_bytes_max())
    }

    /// The range of the data section that contains the strings of `rows`, or their codes. Empty unless one read of
    /// the range replaces several reads.
    pub fn row_bytes(&self, rows: Range<usize>) -> Range<u32> {
        dispatch!(self, encoding => encoding.row_bytes(rows))
    }

    /// Appends the ranges of the data section that a read of `rows` needs and that are not decoded yet.
    pub fn prefetch(&self, rows: Range<usize>, ranges: &mut Vec<Range<u32>>) {
        dispatch!(self, encoding => encoding.prefetch(rows, ranges));
    }

    /// Appends the strings of `rows`, which are rows of the chunk. `chunk` identifies the chunk in `cache`.
    pub fn read(
        &self,
        section: DataSection<'_>,
        chunk: usize,
        rows: Range<usize>,
        cache: &mut StringCache,
        out: &mut Strings,
    ) -> Result<()> {
        dispatch!(self, encoding => encoding.read(section, chunk, rows, cache, out))
    }

    /// The distinct strings, ascending, and the codes of the rows; None when the chunk has no dictionary.
    pub fn dictionary(&self, section: DataSection<'_>) -> Result<Option<(&Strings, &IntChunk)>> {
        let Encoding::Dictionary(dictionary) = &self.encoding else { return Ok(None) };
        dictionary.entries_and_codes(section).map(Some)
    }

    /// Whether the rows' strings are positions in a list: a dictionary, or a constant as a list of one.
    pub fn has_list(&self) -> bool {
        matches!(self.encoding, Encoding::Constant(_) | Encoding::Dictionary(_))
    }

    /// The string of all rows, if they are encoded as a constant.
    pub fn constant(&self) -> Option<&[u8]> {
        if let Encoding::Constant(ConstantString(value)) = &self.encoding { Some(value) } else { None }
    }

    /// The symbol table, if the strings can be searched without decoding them: frames of one block, with symbols.
    pub fn searchable_symbols(&self, section: DataSection<'_>) -> Result<Option<&SymbolTable>> {
        match &self.encoding {
            Encoding::Frames(frames) if frames.rows() == BLOCK_ROWS => frames.symbols(section),
            _ => Ok(None),
        }
    }

    /// Calls `visit` with row and string of each row of a block that contains the pieces of `search`, in ascending order. May also
    /// visit rows that do not. `search` was built with [`Self::searchable_symbols`].
    pub fn search(
        &self,
        section: DataSection<'_>,
        block: usize,
        search: &mut SymbolSearch,
        cache: &mut StringCache,
        visit: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        match &self.encoding {
            Encoding::Frames(frames) => frames.search(section, block, search, cache, visit),
            _ => corrupt("strings", block, "not encoded by symbols"),
        }
    }

    /// Appends the directory entry.
    pub fn put(&self, out: &mut Vec<u8>) {
        dispatch!(self, encoding => encoding.put(out));
    }

    /// Reads the directory entry of `count` strings.
    pub fn get(reader: &mut Reader<'_>, count: usize) -> Result<Self, Corrupt> {
        let at = reader.position();
        let encoding = match reader.u8("string encoding")? {
            tag::CONSTANT => Encoding::Constant(ConstantString::get(reader)?),
            tag::DICTIONARY => Encoding::Dictionary(Box::new(StringDictionary::get(reader, count)?)),
            tag::PLAIN => Encoding::Frames(StringFrames::get(reader, count, Compression::Plain)?),
            tag::SYMBOLS => Encoding::Frames(StringFrames::get(reader, count, Compression::Symbols)?),
            tag::ZSTD => Encoding::Frames(StringFrames::get(reader, count, Compression::Zstd)?),
            other => return Err(Corrupt::new("string encoding", at, other.to_string())),
        };
        Ok(Self { encoding })
    }
}

/// Encodes strings that are not all equal in the smallest encoding that the level allows.
fn choose(rows: &[&[u8]], level: Level, data: &mut Vec<u8>) -> Encoding {
    let total: usize = rows.iter().map(|row| row.len()).sum();
    let start = data.len();
    let dictionary = StringDictionary::encode(rows, total, level, data);
    let dictionary_bytes = data.len() - start;
    // A dictionary that compresses this well is chosen without trying frames.
    let ratio = match level {
        Level::QueryLow => 4,
        Level::QueryHigh => 6,
        Level::ArchiveLow | Level::ArchiveHigh => 12,
    };
    let Some(dictionary) = dictionary else {
        return Encoding::Frames(StringFrames::encode(rows, Compression::of(rows, level), level, data));
    };
    if dictionary_bytes * ratio <= total {
        return Encoding::Dictionary(Box::new(dictionary));
    }
    let mut frame_data = Vec::new();
    let mut frames = StringFrames::encode(rows, Compression::of(rows, level), level, &mut frame_data);
    // Scans evaluate dictionaries faster, and group rows by the codes of small ones: prefer them unless much larger.
    let weighted_bytes =
        if dictionary.count() <= FEW_ENTRIES { dictionary_bytes / 2 } else { dictionary_bytes * 7 / 8 };
    if weighted_bytes <= frame_data.len() {
        return Encoding::Dictionary(Box::new(dictionary));
    }
    data.truncate(start);
    frames.shift_offsets(start as u32);
    data.extend_from_slice(&frame_data);
    Encoding::Frames(frames)
}

#[cfg(test)]
impl StringChunk {
    /// The strings in every encoding that accepts them, each with its data section.
    pub(super) fn encode_in_each_encoding(rows: &[&[u8]], level: Level) -> Vec<(Self, Vec<u8>)> {
        let total = rows.iter().map(|row| row.len()).sum();
        let mut chunks = Vec::new();
        let mut push = |encode: &dyn Fn(&mut Vec<u8>) -> Option<Encoding>| {
            let mut data = super::conformance::PREFIX.to_vec();
            if let Some(encoding) = encode(&mut data) {
                chunks.push((Self { encoding }, data));
            }
        };
        push(&|_| {
            let is_constant = rows.iter().all(|row| *row == rows[0]);
            is_constant.then(|| Encoding::Constant(ConstantString(rows[0].to_vec())))
        });
        push(&|data| Some(Encoding::Dictionary(Box::new(StringDictionary::encode(rows, total, level, data)?))));
        for compression in [Compression::Plain, Compression::Symbols, Compression::Zstd] {
            push(&|data| Some(Encoding::Frames(StringFrames::encode(rows, compression, level, data))));
        }
        chunks
    }
}

#[cfg(test)]
mod tests {
    use super::super::conformance::text;
    use super::*;

    /// The chosen encoding at each level; the conformance test covers decoding.
    #[track_caller]
    fn check(rows: &[Vec<u8>], names: [&str; 4]) {
        let rows: Vec<&[u8]> = rows.iter().map(|row| row.as_slice()).collect();
        for (level, name) in Level::ALL.into_iter().zip(names) {
            let mut data = b"before".to_vec();
            let chunk = StringChunk::encode(&rows, level, &mut data);
            assert_eq!(chunk.encoding_name(), name, "{level:?}");
            let mut out = Strings::default();
            let section = DataSection { source: &data, start: 0 };
            chunk.read(section, 0, 0..rows.len(), &mut StringCache::default(), &mut out).unwrap();
            assert!(out.iter().eq(rows.iter().copied()), "{level:?}");
        }
    }

    #[test]
    fn the_smallest_encoding_that_the_level_allows_is_chosen() {
        let rows = |count: usize, row: fn(usize) -> Vec<u8>| (0..count).map(row).collect::<Vec<_>>();
        check(&rows(3000, |_| b"same".to_vec()), ["constant"; 4]);
        check(&rows(3000, |index| vec![b'a' + (index % 7) as u8; 1 + index % 7]), ["dictionary"; 4]);
        check(&rows(6000, text), ["symbols", "zstd", "zstd", "zstd"]);
        check(&rows(80, text), ["symbols", "zstd", "zstd", "zstd"]);
        // Long strings that repeat each other, and long strings that do not.
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
        check(&rows(1500, unlike), ["symbols", "zstd", "zstd", "zstd"]);
        // Bytes without a symbol, empty strings and long strings.
        let noise = |index: usize| {
            (0..index * 31 % 700).map(|at| (index.wrapping_mul(0x9e37_79b9) >> (at % 24)) as u8 ^ at as u8).collect()
        };
        check(&rows(2000, noise), ["symbols", "zstd", "zstd", "zstd"]);
    }
}
