//! A chunk's integers: chooses their encoding, and reads any rows of them.

use super::super::section::{DataSection, Part, Result, corrupt};
use super::bitpack::{BitPackPlan, BitPacked, FrameOfReference, Variant, min_max};
use super::bits::{BLOCK_ROWS, Selection};
use super::constant::Constant;
use super::delta::{Delta, DeltaPlan};
use super::dictionary::{Dictionary, DictionaryPlan};
use super::runs::{Runs, RunsPlan};
use super::tag::integers as tag;
use super::{CHUNK_ROWS, IntBlockCache, IntEncoding, dispatch_int_encoding};
use crate::bounds::IntRange;
use cellar_format::bytes::{Corrupt, Reader, Write};
use std::ops::Range;

/// Up to this many rows of a block are decoded one by one; for more, decoding the whole block is faster.
const SINGLE_ROWS_MAX: usize = 192;

#[derive(Debug)]
enum Encoding {
    Constant(Constant),
    BitPacked(BitPacked),
    Delta(Delta),
    Dictionary(Dictionary),
    Runs(Runs),
}

dispatch_int_encoding!(Encoding { Constant, BitPacked, Delta, Dictionary, Runs });

/// The integers of a chunk: the directory entry. Any block can be read without the others.
#[derive(Debug)]
pub struct IntChunk {
    count: u32,
    /// Minimum and maximum of all values, including the placeholders of rows without a value.
    pub min: i64,
    pub max: i64,
    encoding: Encoding,
}

impl IntChunk {
    /// Encodes at most [`CHUNK_ROWS`] values.
    pub(in crate::unit) fn encode(values: &[i64], data: &mut Vec<u8>) -> Self {
        debug_assert!(values.len() <= CHUNK_ROWS);
        let (min, max) = min_max(values);
        match values.len() {
            count if min >= max => Self::repeat(count, if count == 0 { 0 } else { min }),
            count => Self { count: count as u32, min, max, encoding: choose(values, min, max, data) },
        }
    }

    /// A chunk of `count` values that all equal `value`.
    pub(in crate::unit) fn repeat(count: usize, value: i64) -> Self {
        Self { count: count as u32, min: value, max: value, encoding: Encoding::Constant(Constant(value)) }
    }

    /// Number of values.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// The value of all rows, if they are encoded as a constant.
    pub fn constant(&self) -> Option<i64> {
        if let Encoding::Constant(Constant(value)) = self.encoding { Some(value) } else { None }
    }

    pub fn encoding_name(&self) -> &'static str {
        self.encoding.name()
    }

    /// Bytes in the data section.
    pub fn data_bytes(&self) -> usize {
        self.encoding.data_bytes()
    }

    /// Memory in bytes of the parts that stay decoded after the first read.
    pub(in crate::unit) fn decoded_bytes_max(&self) -> usize {
        self.encoding.decoded_bytes_max()
    }

    /// The range of the data section that contains the blocks of `rows`.
    pub(in crate::unit) fn row_bytes(&self, rows: Range<usize>) -> Range<u32> {
        self.encoding.block_bytes(rows.start / BLOCK_ROWS..rows.end.div_ceil(BLOCK_ROWS))
    }

    /// Appends the ranges of the data section that a read of `rows` needs and that are not decoded yet.
    pub(in crate::unit) fn prefetch(&self, rows: Range<usize>, ranges: &mut Vec<Range<u32>>) {
        ranges.push(self.row_bytes(rows));
        ranges.extend(self.encoding.unread_part().map(|part: Part| part.range()));
    }

    /// Values in a block; 0 for a block after the last one.
    fn block_rows(&self, block: usize) -> usize {
        self.count().saturating_sub(block * BLOCK_ROWS).min(BLOCK_ROWS)
    }

    /// Replaces `out` by the values of one block, which exists.
    pub(in crate::unit) fn decode_block(
        &self,
        section: DataSection<'_>,
        block: usize,
        out: &mut Vec<i64>,
    ) -> Result<()> {
        out.resize(self.block_rows(block), 0);
        self.encoding.decode_block(section, block, out)
    }

    /// Appends the values of `rows`, which are rows of the chunk. `chunk` identifies the chunk in `cache`.
    pub(in crate::unit) fn read(
        &self,
        section: DataSection<'_>,
        chunk: usize,
        rows: Range<usize>,
        cache: &mut IntBlockCache,
        out: &mut Vec<i64>,
    ) -> Result<()> {
        if let Encoding::Constant(Constant(value)) = self.encoding {
            out.resize(out.len() + rows.len(), value);
            return Ok(());
        }
        let mut from = rows.start;
        while from < rows.end {
            let block = from / BLOCK_ROWS;
            if from == block * BLOCK_ROWS && from + self.block_rows(block) <= rows.end {
                let start = out.len();
                out.resize(start + self.block_rows(block), 0);
                self.encoding.decode_block(section, block, &mut out[start..])?;
                from += self.block_rows(block).max(1);
                continue;
            }
            let end = rows.end.min((block + 1) * BLOCK_ROWS);
            // If reading a row decodes the rows before it, the second read of a block decodes and caches the whole block.
            let again = cache.few == Some((chunk, block)) && self.encoding.decodes_preceding_rows();
            if cache.sparse && end - from <= SINGLE_ROWS_MAX && cache.key != Some((chunk, block)) && !again {
                cache.few = Some((chunk, block));
                let run = Selection::Run(from - block * BLOCK_ROWS, end - from);
                if self.encoding.decode_rows(section, block, self.block_rows(block), run, out)? {
                    from = end;
                    continue;
                }
            }
            if cache.key != Some((chunk, block)) {
                cache.key = None;
                self.decode_block(section, block, &mut cache.values)?;
                cache.key = Some((chunk, block));
            }
            let values = cache.values.get(from - block * BLOCK_ROWS..end - block * BLOCK_ROWS);
            let Some(values) = values else { return corrupt("rows", from, format!("{} in the chunk", self.count)) };
            out.extend_from_slice(values);
            from = end;
        }
        Ok(())
    }

    /// Replaces `out` by the values of some rows of a block, given in ascending order. `scratch` is memory for a block.
    pub(in crate::unit) fn gather(
        &self,
        section: DataSection<'_>,
        block: usize,
        rows: &[u16],
        scratch: &mut Vec<i64>,
        out: &mut Vec<i64>,
    ) -> Result<()> {
        let count = self.block_rows(block);
        if rows.last().is_some_and(|row| *row as usize >= count) {
            return corrupt("rows", block * BLOCK_ROWS, format!("{} in the chunk", self.count));
        }
        if let Encoding::Constant(Constant(value)) = self.encoding {
            out.clear();
            out.resize(rows.len(), value);
            return Ok(());
        }
        if rows.len() == count {
            // `decode_block` overwrites all of `out`, so `out` is not cleared first.
            out.resize(count, 0);
            return self.encoding.decode_block(section, block, out);
        }
        out.clear();
        if rows.len() <= SINGLE_ROWS_MAX
            && self.encoding.decode_rows(section, block, count, Selection::Each(rows), out)?
        {
            return Ok(());
        }
        self.decode_block(section, block, scratch)?;
        out.extend(rows.iter().map(|row| scratch.get(*row as usize).copied().unwrap_or(0)));
        Ok(())
    }

    /// True if all values pass, false if none passes; None if minimum and maximum do not decide.
    pub(in crate::unit) fn all_pass(&self, range: &IntRange) -> Option<bool> {
        let contained = range.lo <= self.min && self.max <= range.hi;
        let disjoint = range.lo > range.hi || self.max < range.lo || self.min > range.hi;
        match (contained, disjoint) {
            (_, true) => Some(!range.inside),
            (true, _) => Some(range.inside),
            _ => None,
        }
    }

    /// Clears the marks (0 or 1, one per value) of a block's values that do not pass. `scratch` is memory for a block.
    pub(in crate::unit) fn retain(
        &self,
        section: DataSection<'_>,
        block: usize,
        range: &IntRange,
        scratch: &mut Vec<i64>,
        marks: &mut [u8],
    ) -> Result<()> {
        if self.encoding.retain(section, block, range, marks)? {
            return Ok(());
        }
        self.decode_block(section, block, scratch)?;
        for (mark, value) in marks.iter_mut().zip(scratch.iter()) {
            *mark &= u8::from(range.passes(*value));
        }
        Ok(())
    }

    /// The sum of the values of `rows`, which are rows of the chunk. `scratch` is memory for a block.
    pub(in crate::unit) fn sum(
        &self,
        section: DataSection<'_>,
        rows: Range<usize>,
        scratch: &mut Vec<i64>,
    ) -> Result<i128> {
        if let Encoding::Constant(Constant(value)) = self.encoding {
            return Ok(value as i128 * rows.len() as i128);
        }
        let (mut total, mut from) = (0, rows.start);
        while from < rows.end {
            let block = from / BLOCK_ROWS;
            let first = block * BLOCK_ROWS;
            let to = rows.end.min(first + BLOCK_ROWS);
            let is_whole = to - from == self.block_rows(block);
            let sum = if is_whole { self.encoding.sum_block(section, block, to - from)? } else { None };
            total += match sum {
                Some(sum) => sum,
                None => {
                    self.decode_block(section, block, scratch)?;
                    scratch.iter().take(to - first).skip(from - first).map(|value| *value as i128).sum()
                }
            };
            from = to;
        }
        Ok(total)
    }

    /// Appends the directory entry.
    pub(in crate::unit) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.min as u64);
        out.put_u64(self.max as u64);
        self.encoding.put(out);
    }

    /// Reads the directory entry of `count` values.
    pub(in crate::unit) fn get(reader: &mut Reader<'_>, count: usize) -> Result<Self, Corrupt> {
        let (min, max) = (reader.u64("minimum")? as i64, reader.u64("maximum")? as i64);
        let encoding = Encoding::get(reader, count)?;
        Ok(Self { count: count as u32, min, max, encoding })
    }
}

/// Encodes values that are not all equal in the encoding with the smallest estimated size.
fn choose(values: &[i64], min: i64, max: i64, data: &mut Vec<u8>) -> Encoding {
    let whole = FrameOfReference::between(min, max);
    let packing = BitPackPlan::new(values, whole);
    let mut smallest = packing.bytes;
    if let Some(runs) = RunsPlan::new(values).filter(|runs| runs.bytes < smallest) {
        return Encoding::Runs(runs.encode(values, data));
    }
    let delta = DeltaPlan::new(values, smallest);
    if let Some(delta) = &delta {
        smallest = delta.bytes;
    }
    if let Some(dictionary) = DictionaryPlan::new(values, whole, smallest, false) {
        return Encoding::Dictionary(dictionary.encode(data));
    }
    match delta {
        Some(delta) => Encoding::Delta(delta.encode(values, data)),
        None => Encoding::BitPacked(packing.encode(values, data)),
    }
}

impl Encoding {
    fn get(reader: &mut Reader<'_>, count: usize) -> Result<Self, Corrupt> {
        let at = reader.position();
        Ok(match reader.u8("encoding")? {
            tag::CONSTANT => Self::Constant(Constant::get(reader)?),
            tag::PACKED => Self::BitPacked(BitPacked::get(reader, count, Variant::Uniform)?),
            tag::PACKED_BY_BLOCK => Self::BitPacked(BitPacked::get(reader, count, Variant::ByBlock)?),
            tag::DELTA => Self::Delta(Delta::get(reader, count)?),
            tag::DICTIONARY => Self::Dictionary(Dictionary::get(reader, count, Variant::Uniform)?),
            tag::RUNS => Self::Runs(Runs::get(reader, count)?),
            other => return Err(Corrupt::new("encoding", at, format!("{other}"))),
        })
    }
}

#[cfg(test)]
impl IntChunk {
    /// The values in every encoding that accepts them, each with its data section.
    pub(super) fn encode_in_each_encoding(values: &[i64]) -> Vec<(Self, Vec<u8>)> {
        let (min, max) = min_max(values);
        let whole = FrameOfReference::between(min, max);
        type Encode = fn(&[i64], FrameOfReference, &mut Vec<u8>) -> Option<Encoding>;
        let encoders: [Encode; 5] = [
            |values, _, _| {
                values.iter().all(|value| *value == values[0]).then(|| Encoding::Constant(Constant(values[0])))
            },
            |values, whole, data| Some(Encoding::BitPacked(BitPackPlan::new(values, whole).encode(values, data))),
            |values, _, data| Some(Encoding::Delta(DeltaPlan::new(values, usize::MAX)?.encode(values, data))),
            |values, whole, data| {
                Some(Encoding::Dictionary(DictionaryPlan::new(values, whole, usize::MAX, false)?.encode(data)))
            },
            |values, _, data| Some(Encoding::Runs(RunsPlan::new(values)?.encode(values, data))),
        ];
        let chunks = encoders.iter().filter_map(|encode| {
            let mut data = super::conformance::PREFIX.to_vec();
            let encoding = encode(values, whole, &mut data)?;
            Some((Self { count: values.len() as u32, min, max, encoding }, data))
        });
        chunks.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chosen encoding; the conformance test covers decoding.
    #[track_caller]
    fn check(values: &[i64], encoding: &str) {
        let mut data = Vec::new();
        let chunk = IntChunk::encode(values, &mut data);
        assert_eq!(chunk.encoding_name(), encoding);
        assert_eq!((chunk.min, chunk.max), (*values.iter().min().unwrap(), *values.iter().max().unwrap()));
        let mut out = Vec::new();
        let section = DataSection { source: &data, start: 0 };
        chunk.read(section, 0, 0..values.len(), &mut IntBlockCache::default(), &mut out).unwrap();
        assert_eq!(out, values);
    }

    fn noise(index: i64) -> i64 {
        super::super::conformance::noise(index as u64) as i64
    }

    #[test]
    fn the_smallest_encoding_is_chosen() {
        let ints = |count: i64, value: fn(i64) -> i64| (0..count).map(value).collect::<Vec<i64>>();
        check(&ints(5000, |_| -3), "constant");
        check(&ints(1, |_| i64::MIN), "constant");
        check(&ints(5000, |i| noise(i) >> 50), "bit-packed");
        check(&ints(70, |i| noise(i) >> 44), "bit-packed");
        check(&ints(3000, noise), "bit-packed");
        check(&ints(2, |i| if i == 0 { i64::MIN } else { i64::MAX }), "delta");
        check(&ints(9000, |i| (i / 1024 * 1_000_000) + (noise(i) >> 58)), "bit-packed by block");
        check(&ints(9000, |i| i * 1000 + (noise(i) >> 60)), "delta");
        // Keys loaded by two sessions, whose rows alternate page by page.
        let two = |i: i64| i / 2 + i / 53 % 2 * (noise(i / 53) >> 40);
        check(&ints(9000, |i| i / 2 * 1000 + i % 2 * 3), "delta dictionary");
        check(&ints(9000, |i| i / 4 + i / 32 * 24), "delta dictionary, patched");
        check(&(0..30_000).map(two).collect::<Vec<_>>(), "delta dictionary, patched");
        check(&(0..30_000).map(|i| i + two(i / 53) * 7).collect::<Vec<_>>(), "delta dictionary, patched");
        check(&ints(9000, |i| (noise(i) >> 60) * 1_000_000_007), "dictionary");
        check(&ints(65536, |i| i / 1000), "runs");
        check(&[&ints(40_000, |i| i / 1000)[..], &[i64::MAX, i64::MIN]].concat(), "runs");
    }

    /// An entry and its data written byte by byte from docs/format/compression-unit.md.
    #[test]
    fn patches_follow_the_packed_codes_of_their_block() {
        let (dictionary, block) = ([0u8, 1, 0xf3, 0x03], [0b10010u8, 3, 4]);
        let mut entry = Vec::new();
        entry.put_u64(10);
        entry.put_u64(512);
        entry.put_u8(3);
        entry.put_u64(10);
        entry.put_u8(6);
        Part { offset: 0, bytes: 4, checksum: crc32c::crc32c(&dictionary) }.encode(&mut entry);
        entry.put_u32(3);
        entry.put_u32(4);
        entry.put_u64(0);
        entry.put_u8(1);
        entry.put_u16(2);
        entry.put_u32(crc32c::crc32c(&block));
        let mut reader = Reader::new(&entry);
        let chunk = IntChunk::get(&mut reader, 5).unwrap();
        reader.finish("chunk").unwrap();
        let data = [&dictionary[..], &block].concat();
        let mut out = Vec::new();
        chunk.decode_block(DataSection { source: &data, start: 0 }, 0, &mut out).unwrap();
        assert_eq!(out, [10, 11, 11, 511, 512]);
        // A patched dictionary of values, not of differences, is refused.
        assert!(IntChunk::get(&mut Reader::new(&[&entry[..16], &entry[25..]].concat()), 5).is_err());
    }
}
