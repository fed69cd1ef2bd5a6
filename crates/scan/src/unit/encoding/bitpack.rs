//! Bit packing: each value as its offset from a base (frame of reference), in as many bits as the largest offset needs.
//!
//! One frame of reference serves all blocks, or each block has its own. Packed blocks follow one another in the data
//! section. A dictionary's codes of differences may be *patched*: the frame of reference fits most codes, and the other codes
//! are stored as patches after their block. A few large codes then do not widen all codes.

use super::super::section::{DataSection, Part, Result};
use super::IntEncoding;
use super::bits::{self, BLOCK_ROWS, OffsetRange, SUM_WIDTH_MAX, Selection, pack, packed_bytes, unpack, width_of};
use super::tag::integers as tag;
use super::varint::{put_varint, unzigzag, varint, zigzag};
use crate::bounds::IntRange;
use crate::vectors::vectorized;
use cellar_format::bytes::{Corrupt, Reader, Write};
use std::ops::Range;

/// A base, and the width in bits of offsets from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameOfReference {
    base: i64,
    width: u8,
}

impl FrameOfReference {
    /// For values from `min` to `max`.
    pub fn between(min: i64, max: i64) -> Self {
        Self { base: min, width: width_of(max.wrapping_sub(min) as u64) }
    }

    pub fn of(values: &[i64]) -> Self {
        let (min, max) = min_max(values);
        if values.is_empty() { Self { base: 0, width: 0 } } else { Self::between(min, max) }
    }

    pub fn width(self) -> u8 {
        self.width
    }
}

vectorized! {
    /// Minimum and maximum; (`i64::MAX`, `i64::MIN`) without values.
    pub fn min_max(values: &[i64]) -> (i64, i64) {
        values.iter().fold((i64::MAX, i64::MIN), |(min, max), value| (min.min(*value), max.max(*value)))
    }
}

/// Frames of reference chosen for some values, and the estimated encoded size.
pub struct BitPackPlan {
    frames: Vec<FrameOfReference>,
    is_patched: bool,
    pub bytes: usize,
}

impl BitPackPlan {
    /// Plans one frame of reference for all blocks or one per block, whichever is smaller. `whole` fits all values.
    pub fn new(values: &[i64], whole: FrameOfReference) -> Self {
        const UNIFORM_BYTES: usize = 4;
        const BY_BLOCK_BYTES: usize = 13;
        let mut by_block = Vec::with_capacity(values.len() / BLOCK_ROWS + 1);
        let (mut uniform_bytes, mut by_block_bytes) = (9, 0);
        for block in values.chunks(BLOCK_ROWS) {
            let frame = FrameOfReference::of(block);
            uniform_bytes += packed_bytes(block.len(), whole.width) + UNIFORM_BYTES;
            by_block_bytes += packed_bytes(block.len(), frame.width) + BY_BLOCK_BYTES;
            by_block.push(frame);
        }
        if by_block_bytes < uniform_bytes {
            Self { frames: by_block, is_patched: false, bytes: by_block_bytes }
        } else {
            Self { frames: vec![whole], is_patched: false, bytes: uniform_bytes }
        }
    }

    /// Plans the codes of `rows` rows in a dictionary of `entries` entries.
    pub fn for_codes(rows: usize, entries: usize) -> Self {
        let frame = FrameOfReference::between(0, entries as i64 - 1);
        let blocks_bytes = 4 * (rows / BLOCK_ROWS + 1) + 32;
        Self { frames: vec![frame], is_patched: false, bytes: rows * frame.width as usize / 8 + blocks_bytes }
    }

    /// Plans codes with patches, with the frame of reference that minimizes packed codes and patches together. `occurrences` has a
    /// count for each code.
    pub fn for_patched_codes(occurrences: &[u32]) -> Self {
        /// Estimated bytes of a row distance and an offset, which have at least one byte each.
        const PATCH_BYTES: usize = 3;
        const BLOCK_BYTES: usize = 6;
        let total: usize = occurrences.iter().map(|count| *count as usize).sum();
        let blocks_bytes = 9 + BLOCK_BYTES * total.div_ceil(BLOCK_ROWS);
        let of_width = |width: u8| {
            let span = 1 << width;
            let mut fitting: usize = occurrences.iter().take(span).map(|count| *count as usize).sum();
            let (mut most, mut base) = (fitting, 0);
            for (left, entered) in occurrences.iter().skip(span).enumerate() {
                fitting = fitting + *entered as usize - occurrences[left] as usize;
                if fitting > most {
                    (most, base) = (fitting, left as i64 + 1);
                }
            }
            let bytes = total * width as usize / 8 + (total - most) * PATCH_BYTES + blocks_bytes;
            Self { frames: vec![FrameOfReference { base, width }], is_patched: true, bytes }
        };
        let narrower = 0..width_of(occurrences.len() as u64 - 1).max(1);
        narrower.map(of_width).min_by_key(|plan| plan.bytes).expect("at least one width is tried")
    }

    pub fn encode(self, values: &[i64], data: &mut Vec<u8>) -> BitPacked {
        let mut starts = vec![data.len() as u32];
        let mut checksums = Vec::with_capacity(values.len() / BLOCK_ROWS + 1);
        let mut patches = Vec::new();
        let mut offsets = [0u64; BLOCK_ROWS];
        for (index, block) in values.chunks(BLOCK_ROWS).enumerate() {
            let FrameOfReference { base, width } = self.frames[if self.frames.len() == 1 { 0 } else { index }];
            for (offset, value) in offsets.iter_mut().zip(block) {
                *offset = value.wrapping_sub(base) as u64;
            }
            let start = data.len();
            let offsets = &mut offsets[..block.len()];
            let patch = if self.is_patched { take_patches(offsets, width) } else { Vec::new() };
            pack(offsets, width, data);
            if self.is_patched {
                data.extend_from_slice(&patch);
                patches.push(patch.len() as u16);
            }
            starts.push(data.len() as u32);
            checksums.push(crc32c::crc32c(&data[start..]));
        }
        BitPacked { starts, frames: self.frames, patches, checksums }
    }
}

/// Bit-packed blocks.
#[derive(Debug)]
pub struct BitPacked {
    /// Where each block starts in the data section, and where the last one ends.
    starts: Vec<u32>,
    /// One for all blocks, or one per block.
    frames: Vec<FrameOfReference>,
    /// Bytes of patches that follow each block; empty without patches.
    patches: Vec<u16>,
    checksums: Vec<u32>,
}

/// Which variant of bit packing a directory entry has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    Uniform,
    ByBlock,
    Patched,
}

impl BitPacked {
    pub fn is_patched(&self) -> bool {
        !self.patches.is_empty()
    }

    fn is_by_block(&self) -> bool {
        self.frames.len() > 1
    }

    fn frame(&self, block: usize) -> FrameOfReference {
        self.frames[if self.frames.len() == 1 { 0 } else { block }]
    }

    fn part(&self, block: usize) -> Part {
        let (start, end) = (self.starts[block], self.starts[block + 1]);
        Part { offset: start, bytes: end - start, checksum: self.checksums[block] }
    }

    /// Appends the directory entry without a tag, as part of a dictionary's entry.
    pub fn put_blocks(&self, out: &mut Vec<u8>) {
        out.put_u32(self.starts[0]);
        for frame in &self.frames {
            out.put_u64(frame.base as u64);
            out.put_u8(frame.width);
        }
        self.patches.iter().for_each(|bytes| out.put_u16(*bytes));
        self.checksums.iter().for_each(|checksum| out.put_u32(*checksum));
    }

    /// Reads the directory entry of `count` values, without its tag.
    pub fn get(reader: &mut Reader<'_>, count: usize, variant: Variant) -> Result<Self, Corrupt> {
        let blocks = count.div_ceil(BLOCK_ROWS);
        let mut start = reader.u32("block offset")?;
        let mut frames = Vec::with_capacity(blocks);
        for _ in 0..if variant == Variant::ByBlock { blocks } else { 1 } {
            let (base, width) = (reader.u64("base")? as i64, reader.u8("width")?);
            if width > 64 {
                return Err(Corrupt::new("width", reader.position() - 1, format!("{width} bits")));
            }
            frames.push(FrameOfReference { base, width });
        }
        let patches = (0..if variant == Variant::Patched { blocks } else { 0 }).map(|_| reader.u16("patches"));
        let patches = patches.collect::<Result<Vec<_>, _>>()?;
        let mut checksums = Vec::with_capacity(blocks);
        let mut starts = Vec::with_capacity(blocks + 1);
        starts.push(start);
        for block in 0..blocks {
            let rows = (count - block * BLOCK_ROWS).min(BLOCK_ROWS);
            let width = frames[if variant == Variant::ByBlock { block } else { 0 }].width;
            let bytes = packed_bytes(rows, width) as u32 + patches.get(block).map_or(0, |bytes| u32::from(*bytes));
            let next = start.checked_add(bytes);
            start = next.ok_or_else(|| Corrupt::new("block offset", reader.position(), format!("{start}")))?;
            starts.push(start);
            checksums.push(reader.u32("block checksum")?);
        }
        Ok(Self { starts, frames, patches, checksums })
    }
}

impl IntEncoding for BitPacked {
    fn name(&self) -> &'static str {
        if self.is_by_block() { "bit-packed by block" } else { "bit-packed" }
    }

    fn decode_block(&self, section: DataSection<'_>, block: usize, out: &mut [i64]) -> Result<()> {
        let FrameOfReference { base, width } = self.frame(block);
        let patches = self.patches.get(block).map_or(0, |bytes| *bytes as usize);
        if width == 0 && patches == 0 {
            out.fill(base);
            return Ok(());
        }
        section.with_bytes(self.part(block), "packed block", |bytes| {
            let (packed, patches) = bytes.split_at(bytes.len().saturating_sub(patches));
            unpack(packed, width, base, out)?;
            Ok(apply_patches(patches, base, out)?)
        })
    }

    fn decode_rows(
        &self,
        section: DataSection<'_>,
        block: usize,
        block_rows: usize,
        rows: Selection<'_>,
        out: &mut Vec<i64>,
    ) -> Result<bool> {
        let FrameOfReference { base, width } = self.frame(block);
        section.with_bytes(self.part(block), "packed block", |bytes| {
            Ok(bits::unpack_rows(bytes, width, base, block_rows, rows, out)?)
        })?;
        Ok(true)
    }

    fn retain(&self, section: DataSection<'_>, block: usize, range: &IntRange, marks: &mut [u8]) -> Result<bool> {
        let FrameOfReference { base, width } = self.frame(block);
        let most = if width == 0 { 0 } else { u64::MAX >> (64 - width as u32) };
        // The range as offsets from the base. The subtraction may exceed 64 bits.
        let first = (range.lo as i128 - base as i128).max(0);
        let last = (range.hi as i128 - base as i128).min(most as i128);
        if first > last {
            if range.inside {
                marks.fill(0);
            }
            return Ok(true);
        }
        if first == 0 && last == most as i128 {
            if !range.inside {
                marks.fill(0);
            }
            return Ok(true);
        }
        let offsets = OffsetRange { first: first as u64, span: (last - first) as u64, inside: range.inside };
        bits::retain(&section.read(self.part(block), "packed block")?, width, offsets, marks)?;
        Ok(true)
    }

    fn sum_block(&self, section: DataSection<'_>, block: usize, block_rows: usize) -> Result<Option<i128>> {
        let FrameOfReference { base, width } = self.frame(block);
        if width > SUM_WIDTH_MAX {
            return Ok(None);
        }
        let bases = base as i128 * block_rows as i128;
        if width == 0 {
            return Ok(Some(bases));
        }
        section.with_bytes(self.part(block), "packed block", |bytes| {
            Ok(Some(bases + bits::sum(bytes, width, block_rows)? as i128))
        })
    }

    fn block_bytes(&self, blocks: Range<usize>) -> Range<u32> {
        let last = self.starts.len() - 1;
        self.starts[blocks.start.min(last)]..self.starts[blocks.end.min(last)]
    }

    fn data_bytes(&self) -> usize {
        (self.starts[self.starts.len() - 1] - self.starts[0]) as usize
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(if self.is_by_block() { tag::PACKED_BY_BLOCK } else { tag::PACKED });
        self.put_blocks(out);
    }
}

/// Replaces the offsets of a block that do not fit `width` by zeros, and returns these offsets as patches.
fn take_patches(offsets: &mut [u64], width: u8) -> Vec<u8> {
    let (mut bytes, mut next) = (Vec::new(), 0);
    for (row, offset) in offsets.iter_mut().enumerate() {
        if width_of(*offset) > width {
            put_varint(&mut bytes, (row - next) as u64);
            put_varint(&mut bytes, zigzag(*offset as i64));
            (next, *offset) = (row + 1, 0);
        }
    }
    bytes
}

/// Writes the patched values over their rows of a decoded block.
fn apply_patches(patches: &[u8], base: i64, out: &mut [i64]) -> Result<(), Corrupt> {
    let (mut reader, mut next) = (Reader::new(patches), 0usize);
    while reader.position() < patches.len() {
        let row = next.saturating_add(varint(&mut reader, "patched row")? as usize);
        let offset = unzigzag(varint(&mut reader, "patch")?);
        let rows = out.len();
        let found = || Corrupt::new("patched row", reader.position(), format!("{row} of {rows}"));
        *out.get_mut(row).ok_or_else(found)? = base.wrapping_add(offset);
        next = row + 1;
    }
    Ok(())
}
