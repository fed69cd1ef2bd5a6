//! Chunks of up to 65,536 numbers, of which any block of 1024 can be read alone.
//!
//! What is known of a chunk lies in the unit's directory: its coding, each block's checksum, minimum and maximum.
//! Codings: one value; frame of reference and bit packing, with one base for all blocks or one a block; deltas, again
//! packed or through a dictionary, whose codes may be patched; a sorted dictionary with packed codes; runs.

use super::bits::{BLOCK_ROWS, Rows, pack, packed_bytes, pick, unpack, width_of};
use super::source::{Data, Part, Result, corrupt, put_varint, unzigzag, varint, zigzag};
use crate::vectors::vectorized;
use cellar_format::bytes::{Corrupt, Reader, Write};
use std::sync::OnceLock;

mod retain;
mod sum;

/// Rows of a chunk.
pub const CHUNK_ROWS: usize = 1 << 16;
const DICTIONARY_MAX: usize = 4096;
/// More rows are better unpacked with their block.
const PICK_ROWS_MAX: usize = 192;
/// Numbers that are looked at before a dictionary is tried.
const SAMPLE: usize = 512;

/// Blocks of bit-packed numbers, one after the other.
#[derive(Debug)]
struct Packed {
    /// Where each block starts in the data section, and the end of the last.
    starts: Vec<u32>,
    /// One for all, or one a block.
    frames: Vec<Frame>,
    /// Bytes behind each block for the numbers that the frame does not hold; empty when it holds all.
    patches: Vec<u16>,
    checksums: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Frame {
    base: i64,
    width: u8,
}

#[derive(Debug)]
struct Runs {
    /// The row after the run, ascending.
    ends: Vec<u32>,
    values: Vec<i64>,
}

#[derive(Debug)]
enum Coding {
    Constant(i64),
    Packed(Packed),
    /// The value of the first row of each block, and the difference of each row from the one before.
    Delta {
        firsts: Vec<i64>,
        deltas: Box<Coding>,
    },
    Dictionary {
        part: Part,
        entries: OnceLock<Vec<i64>>,
        count: u32,
        codes: Packed,
    },
    Runs {
        part: Part,
        count: u32,
        runs: OnceLock<Runs>,
    },
}

mod tag {
    pub const CONSTANT: u8 = 0;
    pub const PACKED: u8 = 1;
    pub const PACKED_BY_BLOCK: u8 = 2;
    pub const DELTA: u8 = 3;
    pub const DICTIONARY: u8 = 4;
    pub const RUNS: u8 = 5;
    pub const PATCHED_DICTIONARY: u8 = 6;
}

/// A chunk's entry in the directory.
#[derive(Debug)]
pub struct IntChunk {
    count: u32,
    /// Over all numbers, those that stand in for NULLs included.
    pub min: i64,
    pub max: i64,
    coding: Coding,
}

/// The last block that was read of a column.
#[derive(Debug, Default)]
pub struct IntBlock {
    /// The next read will not be of the rows that follow: a few rows are read without their block.
    pub sparse: bool,
    place: Option<(usize, usize)>,
    values: Vec<i64>,
}

/// Base and width of numbers between `min` and `max`.
fn frame(min: i64, max: i64) -> Frame {
    Frame { base: min, width: width_of(max.wrapping_sub(min) as u64) }
}

fn frame_of(values: &[i64]) -> Frame {
    let (min, max) = bounds(values);
    if values.is_empty() { Frame { base: 0, width: 0 } } else { frame(min, max) }
}

vectorized! {
    /// The least and the greatest.
    fn bounds(values: &[i64]) -> (i64, i64) {
        values.iter().fold((i64::MAX, i64::MIN), |(min, max), value| (min.min(*value), max.max(*value)))
    }

    /// How often a number is not the one before.
    fn changes(values: &[i64]) -> usize {
        values.iter().zip(values.iter().skip(1)).map(|(one, next)| usize::from(one != next)).sum()
    }

    /// The differences of the numbers to those before; the first repeats the second.
    fn differences(values: &[i64], out: &mut [i64]) {
        for ((one, next), out) in values.iter().zip(&values[1..]).zip(&mut out[1..]) {
            *out = next.wrapping_sub(*one);
        }
        out[0] = out.get(1).copied().unwrap_or(0);
    }
}

/// How numbers would be packed, and in how many bytes.
struct Packing {
    frames: Vec<Frame>,
    is_patched: bool,
    bytes: usize,
}

impl Packing {
    fn of(values: &[i64], whole: Frame) -> Self {
        const UNIFORM_BYTES: usize = 4;
        const BY_BLOCK_BYTES: usize = 13;
        let mut by_block = Vec::with_capacity(values.len() / BLOCK_ROWS + 1);
        let (mut uniform_bytes, mut by_block_bytes) = (9, 0);
        for block in values.chunks(BLOCK_ROWS) {
            let frame = frame_of(block);
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

    /// Of so many rows' codes, which are below `count`.
    fn of_codes(rows: usize, count: usize) -> Self {
        let frame = frame(0, count as i64 - 1);
        let blocks_bytes = 4 * (rows / BLOCK_ROWS + 1) + 32;
        Self { frames: vec![frame], is_patched: false, bytes: rows * frame.width as usize / 8 + blocks_bytes }
    }

    /// Of codes that occur so often: in a frame that holds most of them, the others as patches.
    fn patched(occurrences: &[u32]) -> Self {
        /// A row and a code; more, if it is a code of many.
        const PATCH_BYTES: usize = 3;
        const BLOCK_BYTES: usize = 6;
        let total: usize = occurrences.iter().map(|count| *count as usize).sum();
        let blocks_bytes = 9 + BLOCK_BYTES * total.div_ceil(BLOCK_ROWS);
        let of_width = |width: u8| {
            let span = 1 << width;
            let mut held: usize = occurrences.iter().take(span).map(|count| *count as usize).sum();
            let (mut most, mut base) = (held, 0);
            for (left, entered) in occurrences.iter().skip(span).enumerate() {
                held = held + *entered as usize - occurrences[left] as usize;
                if held > most {
                    (most, base) = (held, left as i64 + 1);
                }
            }
            let bytes = total * width as usize / 8 + (total - most) * PATCH_BYTES + blocks_bytes;
            Self { frames: vec![Frame { base, width }], is_patched: true, bytes }
        };
        let narrower = 0..width_of(occurrences.len() as u64 - 1).max(1);
        narrower.map(of_width).min_by_key(|packing| packing.bytes).expect("there is a width")
    }
}

impl Packed {
    fn encode(values: &[i64], packing: Packing, data: &mut Vec<u8>) -> Self {
        let mut starts = vec![data.len() as u32];
        let mut checksums = Vec::with_capacity(values.len() / BLOCK_ROWS + 1);
        let mut patches = Vec::new();
        let mut offsets = [0u64; BLOCK_ROWS];
        for (index, block) in values.chunks(BLOCK_ROWS).enumerate() {
            let Frame { base, width } = packing.frames[if packing.frames.len() == 1 { 0 } else { index }];
            for (offset, value) in offsets.iter_mut().zip(block) {
                *offset = value.wrapping_sub(base) as u64;
            }
            let start = data.len();
            let offsets = &mut offsets[..block.len()];
            let patch = if packing.is_patched { take_patches(offsets, width) } else { Vec::new() };
            pack(offsets, width, data);
            if packing.is_patched {
                data.extend_from_slice(&patch);
                patches.push(patch.len() as u16);
            }
            starts.push(data.len() as u32);
            checksums.push(crc32c::crc32c(&data[start..]));
        }
        Self { starts, frames: packing.frames, patches, checksums }
    }

    fn frame(&self, block: usize) -> Frame {
        self.frames[if self.frames.len() == 1 { 0 } else { block }]
    }

    /// Where a block lies.
    fn part(&self, block: usize) -> Part {
        let (start, end) = (self.starts[block], self.starts[block + 1]);
        Part { offset: start, bytes: end - start, checksum: self.checksums[block] }
    }

    fn block(&self, data: Data<'_>, block: usize, out: &mut [i64]) -> Result<()> {
        let Frame { base, width } = self.frame(block);
        let patches = self.patches.get(block).map_or(0, |bytes| *bytes as usize);
        if width == 0 && patches == 0 {
            out.fill(base);
            return Ok(());
        }
        data.look_at(self.part(block), "packed block", |bytes| {
            let (packed, patches) = bytes.split_at(bytes.len().saturating_sub(patches));
            unpack(packed, width, base, out)?;
            Ok(patch(patches, base, out)?)
        })
    }

    /// Appends some numbers of a block, which has `count`.
    fn pick(&self, data: Data<'_>, block: usize, count: usize, rows: Rows<'_>, out: &mut Vec<i64>) -> Result<()> {
        let Frame { base, width } = self.frame(block);
        data.look_at(self.part(block), "packed block", |bytes| Ok(pick(bytes, width, base, count, rows, out)?))
    }

    fn is_by_block(&self) -> bool {
        self.frames.len() > 1
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.starts[0]);
        for frame in &self.frames {
            out.put_u64(frame.base as u64);
            out.put_u8(frame.width);
        }
        self.patches.iter().for_each(|bytes| out.put_u16(*bytes));
        self.checksums.iter().for_each(|checksum| out.put_u32(*checksum));
    }

    fn get(
        reader: &mut Reader<'_>,
        count: usize,
        by_block: bool,
        is_patched: bool,
    ) -> std::result::Result<Self, Corrupt> {
        let blocks = count.div_ceil(BLOCK_ROWS);
        let mut start = reader.u32("block offset")?;
        let mut frames = Vec::with_capacity(blocks);
        for _ in 0..if by_block { blocks } else { 1 } {
            let (base, width) = (reader.u64("base")? as i64, reader.u8("width")?);
            if width > 64 {
                return Err(Corrupt::new("width", reader.position() - 1, format!("{width} bits")));
            }
            frames.push(Frame { base, width });
        }
        let patches = (0..if is_patched { blocks } else { 0 }).map(|_| reader.u16("patches"));
        let patches = patches.collect::<std::result::Result<Vec<_>, _>>()?;
        let mut checksums = Vec::with_capacity(blocks);
        let mut starts = Vec::with_capacity(blocks + 1);
        starts.push(start);
        for block in 0..blocks {
            let rows = (count - block * BLOCK_ROWS).min(BLOCK_ROWS);
            let width = frames[if by_block { block } else { 0 }].width;
            let bytes = packed_bytes(rows, width) as u32 + patches.get(block).map_or(0, |bytes| u32::from(*bytes));
            let next = start.checked_add(bytes);
            start = next.ok_or_else(|| Corrupt::new("block offset", reader.position(), format!("{start}")))?;
            starts.push(start);
            checksums.push(reader.u32("block checksum")?);
        }
        Ok(Self { starts, frames, patches, checksums })
    }
}

/// Takes out of a block's offsets those that so many bits do not hold; zeros stand in for them.
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

/// Puts the numbers of a block in their places that its frame does not hold.
fn patch(patches: &[u8], base: i64, out: &mut [i64]) -> std::result::Result<(), Corrupt> {
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

/// The distinct numbers, ascending; None when there are more than `most`.
fn distinct(values: &[i64], most: usize) -> Option<Vec<i64>> {
    let slots = (4 * most.min(values.len())).next_power_of_two();
    let mut table = vec![u32::MAX; slots];
    let mut found: Vec<i64> = Vec::new();
    let mut last = None;
    for value in values {
        if last == Some(*value) {
            continue;
        }
        last = Some(*value);
        let mut slot = ((*value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (slots - 1);
        loop {
            match table[slot] {
                u32::MAX => {
                    if found.len() == most {
                        return None;
                    }
                    table[slot] = found.len() as u32;
                    found.push(*value);
                    break;
                }
                entry if found[entry as usize] == *value => break,
                _ => slot = (slot + 1) & (slots - 1),
            }
        }
    }
    found.sort_unstable();
    Some(found)
}

/// A sorted dictionary, the numbers' codes, and how these are packed: in all in so many bytes, about.
struct Codes {
    entries: Vec<i64>,
    codes: Vec<i64>,
    packing: Packing,
    bytes: usize,
}

/// A dictionary that is likely to need fewer than `bytes` bytes in all. Numbers that are not differences stay comparable by
/// their codes, so these are not patched.
fn dictionary(values: &[i64], whole: Frame, bytes: usize, are_differences: bool) -> Option<Codes> {
    const ENTRY_BYTES: usize = 4;
    if whole.width < 3 {
        return None;
    }
    let step = (values.len() / SAMPLE).max(1);
    let sample: Vec<i64> = values.iter().copied().step_by(step).collect();
    let seen = distinct(&sample, DICTIONARY_MAX)?.len();
    if seen > sample.len() * 3 / 4 && sample.len() > 64 {
        return None;
    }
    let entries = distinct(values, DICTIONARY_MAX.min(values.len() / 4 + 1))?;
    let entries_bytes = entries.len() * ENTRY_BYTES;
    let room = bytes.saturating_sub(entries_bytes);
    let mut packing = Packing::of_codes(values.len(), entries.len());
    let likely_patched = || {
        let codes = sample.iter().map(|value| entries.partition_point(|entry| entry < value));
        Packing::patched(&occurrences(codes, entries.len())).bytes * values.len() / sample.len()
    };
    let try_patches = are_differences && likely_patched() < packing.bytes.min(room);
    if !try_patches && packing.bytes >= room {
        return None;
    }
    let codes = codes_of(values, &entries);
    if try_patches {
        let patched = Packing::patched(&occurrences(codes.iter().map(|code| *code as usize), entries.len()));
        packing = if patched.bytes < packing.bytes { patched } else { packing };
    }
    let cost = entries_bytes + packing.bytes;
    (cost < bytes).then_some(Codes { entries, codes, packing, bytes: cost })
}

/// How often each of so many codes occurs.
fn occurrences(codes: impl Iterator<Item = usize>, count: usize) -> Vec<u32> {
    let mut occurrences = vec![0; count];
    codes.for_each(|code| occurrences[code] += 1);
    occurrences
}

fn codes_of(values: &[i64], entries: &[i64]) -> Vec<i64> {
    let first = entries.first().copied().unwrap_or(0);
    let span = entries.last().map_or(0, |last| last.wrapping_sub(first) as u64);
    if span >= CHUNK_ROWS as u64 {
        return values.iter().map(|value| entries.partition_point(|entry| entry < value) as i64).collect();
    }
    let mut code_of = vec![0u16; span as usize + 1];
    for (code, entry) in entries.iter().enumerate() {
        code_of[(entry - first) as usize] = code as u16;
    }
    values.iter().map(|value| code_of[(value - first) as usize] as i64).collect()
}

fn put_dictionary(entries: &[i64], data: &mut Vec<u8>) -> Part {
    let mut bytes = Vec::with_capacity(entries.len() * 3);
    let mut last = 0i64;
    for (index, entry) in entries.iter().enumerate() {
        let step = entry.wrapping_sub(last);
        put_varint(&mut bytes, if index == 0 { zigzag(step) } else { step as u64 });
        last = *entry;
    }
    Part::append(data, &bytes)
}

fn encode_dictionary(Codes { entries, codes, packing, .. }: Codes, data: &mut Vec<u8>) -> Coding {
    let part = put_dictionary(&entries, data);
    let codes = Packed::encode(&codes, packing, data);
    Coding::Dictionary { part, count: entries.len() as u32, entries: OnceLock::from(entries), codes }
}

impl IntChunk {
    /// Of at most [`CHUNK_ROWS`] numbers.
    pub(super) fn encode(values: &[i64], data: &mut Vec<u8>) -> Self {
        debug_assert!(values.len() <= CHUNK_ROWS);
        let (min, max) = bounds(values);
        match values.len() {
            count if min >= max => Self::constant_of(count, if count == 0 { 0 } else { min }),
            count => Self { count: count as u32, min, max, coding: choose(values, min, max, data) },
        }
    }

    /// So many times the number.
    pub(super) fn constant_of(count: usize, value: i64) -> Self {
        Self { count: count as u32, min: value, max: value, coding: Coding::Constant(value) }
    }

    /// Numbers in the chunk.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    pub fn constant(&self) -> Option<i64> {
        if let Coding::Constant(value) = self.coding { Some(value) } else { None }
    }

    /// Where in the data section the rows' blocks lie.
    pub(super) fn extent(&self, rows: std::ops::Range<usize>) -> std::ops::Range<u32> {
        fn extent(coding: &Coding, blocks: std::ops::Range<usize>) -> std::ops::Range<u32> {
            match coding {
                Coding::Packed(packed) | Coding::Dictionary { codes: packed, .. } => {
                    let last = packed.starts.len() - 1;
                    packed.starts[blocks.start.min(last)]..packed.starts[blocks.end.min(last)]
                }
                Coding::Delta { deltas, .. } => extent(deltas, blocks),
                Coding::Constant(_) | Coding::Runs { .. } => 0..0,
            }
        }
        extent(&self.coding, rows.start / BLOCK_ROWS..rows.end.div_ceil(BLOCK_ROWS))
    }

    /// Adds where in the data section lies what a read of the rows needs and is not in memory yet.
    pub(super) fn expect(&self, rows: std::ops::Range<usize>, parts: &mut Vec<std::ops::Range<u32>>) {
        fn once(coding: &Coding) -> Option<Part> {
            match coding {
                Coding::Constant(_) | Coding::Packed(_) => None,
                Coding::Delta { deltas, .. } => once(deltas),
                Coding::Dictionary { part, entries, .. } => entries.get().is_none().then_some(*part),
                Coding::Runs { part, runs, .. } => runs.get().is_none().then_some(*part),
            }
        }
        parts.push(self.extent(rows));
        parts.extend(once(&self.coding).map(|part| part.range()));
    }

    /// Fills `out` with the numbers of some rows of a block; the rows ascend.
    pub(super) fn gather(
        &self,
        data: Data<'_>,
        block: usize,
        rows: &[u16],
        scratch: &mut Vec<i64>,
        out: &mut Vec<i64>,
    ) -> Result<()> {
        let count = self.block_rows(block);
        if rows.last().is_some_and(|row| *row as usize >= count) {
            return corrupt("rows", block * BLOCK_ROWS, format!("{} in the chunk", self.count));
        }
        if let Coding::Constant(value) = self.coding {
            out.clear();
            out.resize(rows.len(), value);
            return Ok(());
        }
        if rows.len() == count {
            // What is there already need not be cleared: all of it is filled.
            out.resize(count, 0);
            return self.coding.block(data, block, self.count(), out);
        }
        out.clear();
        if rows.len() <= PICK_ROWS_MAX && self.coding.pick(data, block, count, Rows::Each(rows), out)? {
            return Ok(());
        }
        self.block(data, block, scratch)?;
        out.extend(rows.iter().map(|row| scratch.get(*row as usize).copied().unwrap_or(0)));
        Ok(())
    }

    /// Bytes in the data section, as far as the directory tells.
    pub fn data_bytes(&self) -> usize {
        fn bytes(coding: &Coding) -> usize {
            let packed = |packed: &Packed| (packed.starts[packed.starts.len() - 1] - packed.starts[0]) as usize;
            match coding {
                Coding::Constant(_) => 0,
                Coding::Packed(blocks) => packed(blocks),
                Coding::Delta { deltas, .. } => bytes(deltas),
                Coding::Dictionary { part, codes, .. } => part.bytes as usize + packed(codes),
                Coding::Runs { part, .. } => part.bytes as usize,
            }
        }
        bytes(&self.coding)
    }

    /// Bytes that are kept in memory once they were read.
    pub(super) fn kept_bytes_max(&self) -> usize {
        let coding = match &self.coding {
            Coding::Delta { deltas, .. } => deltas,
            coding => coding,
        };
        match coding {
            Coding::Dictionary { count, .. } => 8 * *count as usize,
            Coding::Runs { count, .. } => 12 * *count as usize,
            _ => 0,
        }
    }

    /// What the coding is called.
    pub fn coding_name(&self) -> &'static str {
        match &self.coding {
            Coding::Constant(_) => "constant",
            Coding::Packed(packed) if packed.is_by_block() => "packed by block",
            Coding::Packed(_) => "packed",
            Coding::Delta { deltas, .. } => match &**deltas {
                Coding::Dictionary { codes, .. } if !codes.patches.is_empty() => "delta dictionary, patched",
                Coding::Dictionary { .. } => "delta dictionary",
                _ => "delta",
            },
            Coding::Dictionary { .. } => "dictionary",
            Coding::Runs { .. } => "runs",
        }
    }

    /// Rows of a block.
    fn block_rows(&self, block: usize) -> usize {
        self.count().saturating_sub(block * BLOCK_ROWS).min(BLOCK_ROWS)
    }

    /// The numbers of one block, which exists; as many as `out` has.
    pub(super) fn block(&self, data: Data<'_>, block: usize, out: &mut Vec<i64>) -> Result<()> {
        out.resize(self.block_rows(block), 0);
        self.coding.block(data, block, self.count(), out)
    }

    /// Appends the numbers of `rows`, which lie in the chunk, to `out`. `place` tells this chunk from the column's others.
    pub(super) fn read(
        &self,
        data: Data<'_>,
        place: usize,
        rows: std::ops::Range<usize>,
        last: &mut IntBlock,
        out: &mut Vec<i64>,
    ) -> Result<()> {
        if let Coding::Constant(value) = self.coding {
            out.resize(out.len() + rows.len(), value);
            return Ok(());
        }
        let mut from = rows.start;
        while from < rows.end {
            let block = from / BLOCK_ROWS;
            if from == block * BLOCK_ROWS && from + self.block_rows(block) <= rows.end {
                let start = out.len();
                out.resize(start + self.block_rows(block), 0);
                self.coding.block(data, block, self.count(), &mut out[start..])?;
                from += self.block_rows(block).max(1);
                continue;
            }
            let end = rows.end.min((block + 1) * BLOCK_ROWS);
            if last.sparse && end - from <= PICK_ROWS_MAX && last.place != Some((place, block)) {
                let run = Rows::Run(from - block * BLOCK_ROWS, end - from);
                if self.coding.pick(data, block, self.block_rows(block), run, out)? {
                    from = end;
                    continue;
                }
            }
            if last.place != Some((place, block)) {
                last.place = None;
                self.block(data, block, &mut last.values)?;
                last.place = Some((place, block));
            }
            let to = rows.end.min((block + 1) * BLOCK_ROWS);
            let values = last.values.get(from - block * BLOCK_ROWS..to - block * BLOCK_ROWS);
            let Some(values) = values else { return corrupt("rows", from, format!("{} in the chunk", self.count)) };
            out.extend_from_slice(values);
            from = to;
        }
        Ok(())
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.min as u64);
        out.put_u64(self.max as u64);
        self.coding.put(out);
    }

    /// `count` is known from elsewhere.
    pub(super) fn get(reader: &mut Reader<'_>, count: usize) -> std::result::Result<Self, Corrupt> {
        let (min, max) = (reader.u64("minimum")? as i64, reader.u64("maximum")? as i64);
        let coding = Coding::get(reader, count, true)?;
        Ok(Self { count: count as u32, min, max, coding })
    }
}

/// The smallest coding of numbers that are not all equal.
fn choose(values: &[i64], min: i64, max: i64, data: &mut Vec<u8>) -> Coding {
    let whole = frame(min, max);
    let packing = Packing::of(values, whole);
    let mut best = packing.bytes;

    let runs = 1 + changes(values);
    const RUN_BYTES: usize = 5;
    if runs * RUN_BYTES < best && runs <= values.len() / 8 + 1 {
        return encode_runs(values, data);
    }

    // The first row's delta would be its value; it stands in `firsts`.
    let mut deltas = vec![0; values.len()];
    differences(values, &mut deltas);
    let whole_delta = frame_of(&deltas);
    let delta_packing = Packing::of(&deltas, whole_delta);
    let firsts_bytes = 8 * values.len().div_ceil(BLOCK_ROWS);
    // A block of deltas has to be summed up: they must gain something.
    let delta_bytes = (delta_packing.bytes + firsts_bytes) * 9 / 8;
    let use_delta = delta_bytes < best;
    if use_delta {
        best = delta_bytes;
    }
    let delta_dictionary = dictionary(&deltas, whole_delta, best.saturating_sub(firsts_bytes) * 8 / 9, true);
    if let Some(codes) = &delta_dictionary {
        best = (codes.bytes + firsts_bytes) * 9 / 8;
    }
    if let Some(codes) = dictionary(values, whole, best, false) {
        return encode_dictionary(codes, data);
    }
    let firsts = || values.iter().copied().step_by(BLOCK_ROWS).collect();
    if let Some(codes) = delta_dictionary {
        return Coding::Delta { firsts: firsts(), deltas: Box::new(encode_dictionary(codes, data)) };
    }
    if use_delta {
        let deltas = Coding::Packed(Packed::encode(&deltas, delta_packing, data));
        return Coding::Delta { firsts: firsts(), deltas: Box::new(deltas) };
    }
    Coding::Packed(Packed::encode(values, packing, data))
}

fn encode_runs(values: &[i64], data: &mut Vec<u8>) -> Coding {
    let mut bytes = Vec::new();
    let (mut ends, mut run_values) = (Vec::new(), Vec::new());
    let mut row = 0;
    let mut last = 0i64;
    for run in values.chunk_by(|a, b| a == b) {
        put_varint(&mut bytes, run.len() as u64);
        put_varint(&mut bytes, zigzag(run[0].wrapping_sub(last)));
        last = run[0];
        row += run.len() as u32;
        ends.push(row);
        run_values.push(last);
    }
    let part = Part::append(data, &bytes);
    Coding::Runs { part, count: ends.len() as u32, runs: OnceLock::from(Runs { ends, values: run_values }) }
}

/// The cached value, or what `read` makes.
pub(super) fn cached<T>(cell: &OnceLock<T>, read: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    let value = read()?;
    Ok(cell.get_or_init(|| value))
}

impl Coding {
    /// Appends some numbers of a block; false: there is no quicker way than to read the block.
    fn pick(&self, data: Data<'_>, block: usize, count: usize, rows: Rows<'_>, out: &mut Vec<i64>) -> Result<bool> {
        match self {
            Self::Packed(packed) => packed.pick(data, block, count, rows, out)?,
            Self::Dictionary { part, entries, count: entry_count, codes } => {
                let entries = cached(entries, || read_dictionary(data, *part, *entry_count as usize))?;
                let start = out.len();
                codes.pick(data, block, count, rows, out)?;
                decode_codes(entries, *part, &mut out[start..])?;
            }
            Self::Delta { firsts, deltas } => {
                let mut values = [0; BLOCK_ROWS];
                let end = if rows.len() > 0 { rows.get(rows.len() - 1) + 1 } else { 0 };
                deltas.start_of_block(data, block, &mut values[..count], end)?;
                let (mut value, mut at) = (firsts[block], 0);
                for row in (0..rows.len()).map(|index| rows.get(index)) {
                    // Sums of what lies between are quicker than a number for each row.
                    value = values[at + 1..=row].iter().fold(value, |sum, delta| sum.wrapping_add(*delta));
                    at = row;
                    out.push(value);
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The first `rows` numbers of a block of deltas, of which `out` has the length; what follows them means nothing.
    fn start_of_block(&self, data: Data<'_>, block: usize, out: &mut [i64], rows: usize) -> Result<()> {
        match self {
            Self::Dictionary { part, entries, count, codes } => {
                let entries = cached(entries, || read_dictionary(data, *part, *count as usize))?;
                codes.block(data, block, out)?;
                decode_codes(entries, *part, &mut out[..rows])
            }
            // Neither runs nor deltas: `get` refuses these.
            _ => self.block(data, block, 0, out),
        }
    }

    fn block(&self, data: Data<'_>, block: usize, rows: usize, out: &mut [i64]) -> Result<()> {
        match self {
            Self::Constant(value) => out.fill(*value),
            Self::Packed(packed) => packed.block(data, block, out)?,
            Self::Delta { firsts, deltas } => {
                deltas.block(data, block, rows, out)?;
                let mut value = firsts[block];
                if let [first, rest @ ..] = out {
                    *first = value;
                    for slot in rest {
                        value = value.wrapping_add(*slot);
                        *slot = value;
                    }
                }
            }
            Self::Dictionary { part, entries, count, codes } => {
                let entries = cached(entries, || read_dictionary(data, *part, *count as usize))?;
                codes.block(data, block, out)?;
                decode_codes(entries, *part, out)?;
            }
            Self::Runs { part, count, runs } => {
                let runs = cached(runs, || read_runs(data, *part, *count as usize, rows))?;
                let (mut row, end) = ((block * BLOCK_ROWS) as u32, (block * BLOCK_ROWS + out.len()) as u32);
                let mut run = runs.ends.partition_point(|end| *end <= row);
                let mut out = out;
                while row < end {
                    let run_end = runs.ends[run].min(end);
                    let (now, later) = out.split_at_mut((run_end - row) as usize);
                    now.fill(runs.values[run]);
                    out = later;
                    row = run_end;
                    run += 1;
                }
            }
        }
        Ok(())
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Constant(value) => {
                out.put_u8(tag::CONSTANT);
                out.put_u64(*value as u64);
            }
            Self::Packed(packed) => {
                out.put_u8(if packed.is_by_block() { tag::PACKED_BY_BLOCK } else { tag::PACKED });
                packed.put(out);
            }
            Self::Delta { firsts, deltas } => {
                out.put_u8(tag::DELTA);
                firsts.iter().for_each(|first| out.put_u64(*first as u64));
                deltas.put(out);
            }
            Self::Dictionary { part, count, codes, .. } => {
                out.put_u8(if codes.patches.is_empty() { tag::DICTIONARY } else { tag::PATCHED_DICTIONARY });
                part.encode(out);
                out.put_u32(*count);
                codes.put(out);
            }
            Self::Runs { part, count, .. } => {
                out.put_u8(tag::RUNS);
                part.encode(out);
                out.put_u32(*count);
            }
        }
    }

    fn get(reader: &mut Reader<'_>, count: usize, outer: bool) -> std::result::Result<Self, Corrupt> {
        let at = reader.position();
        Ok(match reader.u8("coding")? {
            tag::CONSTANT => Self::Constant(reader.u64("constant")? as i64),
            tag::PACKED => Self::Packed(Packed::get(reader, count, false, false)?),
            tag::PACKED_BY_BLOCK => Self::Packed(Packed::get(reader, count, true, false)?),
            tag::DELTA if outer => {
                let blocks = count.div_ceil(BLOCK_ROWS);
                let firsts = (0..blocks)
                    .map(|_| Ok(reader.u64("first value")? as i64))
                    .collect::<std::result::Result<_, _>>()?;
                Self::Delta { firsts, deltas: Box::new(Self::get(reader, count, false)?) }
            }
            tag if tag == tag::DICTIONARY || tag == tag::PATCHED_DICTIONARY && !outer => {
                let (part, entries) = (Part::decode(reader)?, reader.u32("dictionary entries")?);
                let codes = Packed::get(reader, count, false, tag == tag::PATCHED_DICTIONARY)?;
                Self::Dictionary { part, entries: OnceLock::new(), count: entries, codes }
            }
            tag::RUNS if outer => {
                Self::Runs { part: Part::decode(reader)?, count: reader.u32("runs")?, runs: OnceLock::new() }
            }
            other => return Err(Corrupt::new("coding", at, format!("{other}"))),
        })
    }
}

fn decode_codes(entries: &[i64], part: Part, codes: &mut [i64]) -> Result<()> {
    for code in codes {
        match entries.get(*code as usize) {
            Some(value) => *code = *value,
            None => return corrupt("dictionary code", part.offset as usize, format!("{code} of {}", entries.len())),
        }
    }
    Ok(())
}

fn read_dictionary(data: Data<'_>, part: Part, count: usize) -> Result<Vec<i64>> {
    let bytes = data.read(part, "dictionary")?;
    if count > bytes.len() || count > CHUNK_ROWS {
        return corrupt("dictionary", part.offset as usize, format!("{count} entries in {} bytes", bytes.len()));
    }
    let mut reader = Reader::new(&bytes);
    let mut entries = Vec::with_capacity(count);
    let mut last = 0i64;
    for index in 0..count {
        let step = varint(&mut reader, "dictionary entry")?;
        let entry = last.wrapping_add(if index == 0 { unzigzag(step) } else { step as i64 });
        if index > 0 && entry <= last {
            return corrupt("dictionary", part.offset as usize, format!("{entry} behind {last}"));
        }
        last = entry;
        entries.push(entry);
    }
    reader.finish("dictionary")?;
    Ok(entries)
}

fn read_runs(data: Data<'_>, part: Part, count: usize, rows: usize) -> Result<Runs> {
    let bytes = data.read(part, "runs")?;
    if count > bytes.len() {
        return corrupt("runs", part.offset as usize, format!("{count} runs in {} bytes", bytes.len()));
    }
    let mut reader = Reader::new(&bytes);
    let (mut ends, mut values) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let (mut row, mut last) = (0usize, 0i64);
    for _ in 0..count {
        row = row.saturating_add(varint(&mut reader, "run length")? as usize);
        last = last.wrapping_add(unzigzag(varint(&mut reader, "run value")?));
        ends.push(row.min(rows) as u32);
        values.push(last);
    }
    reader.finish("runs")?;
    if row != rows {
        return corrupt("runs", part.offset as usize, format!("{row} rows of {rows}"));
    }
    Ok(Runs { ends, values })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(values: &[i64], coding: &str) {
        let mut data = Vec::new();
        let chunk = IntChunk::encode(values, &mut data);
        assert_eq!(chunk.coding_name(), coding);
        assert_eq!((chunk.min, chunk.max), (*values.iter().min().unwrap(), *values.iter().max().unwrap()));
        let mut entry = Vec::new();
        chunk.put(&mut entry);
        let mut reader = Reader::new(&entry);
        let chunk = IntChunk::get(&mut reader, values.len()).unwrap();
        reader.finish("chunk").unwrap();
        let mut out = Vec::new();
        let section = Data { source: &data, start: 0 };
        chunk.read(section, 0, 0..values.len(), &mut IntBlock::default(), &mut out).unwrap();
        assert_eq!(out, values);
        let (from, to) = (values.len() / 3, values.len() / 2 + 1);
        for to in [to, (from + 100).min(to)] {
            for sparse in [false, true] {
                out.clear();
                let mut last = IntBlock { sparse, ..IntBlock::default() };
                chunk.read(section, 0, from..to, &mut last, &mut out).unwrap();
                assert_eq!(out, &values[from..to]);
            }
        }
        // Any damaged bit is noticed.
        for at in (0..data.len()).step_by(data.len() / 17 + 1) {
            data[at] ^= 0x10;
            let mut last = IntBlock::default();
            let section = Data { source: &data, start: 0 };
            // Decoded dictionaries are kept: a new chunk has none.
            let chunk = IntChunk::get(&mut Reader::new(&entry), values.len()).unwrap();
            assert!(chunk.read(section, 0, 0..values.len(), &mut last, &mut Vec::new()).is_err(), "byte {at}");
            data[at] ^= 0x10;
        }
    }

    fn noise(index: i64) -> i64 {
        let mixed = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9)).rotate_left(23) as i64
    }

    #[test]
    fn every_coding_gives_its_numbers_back() {
        let ints = |count: i64, value: fn(i64) -> i64| (0..count).map(value).collect::<Vec<i64>>();
        check(&ints(5000, |_| -3), "constant");
        check(&ints(1, |_| i64::MIN), "constant");
        check(&ints(5000, |i| noise(i) >> 50), "packed");
        check(&ints(70, |i| noise(i) >> 44), "packed");
        check(&ints(3000, noise), "packed");
        check(&ints(2, |i| if i == 0 { i64::MIN } else { i64::MAX }), "delta");
        check(&ints(9000, |i| (i / 1024 * 1_000_000) + (noise(i) >> 58)), "packed by block");
        check(&ints(9000, |i| i * 1000 + (noise(i) >> 60)), "delta");
        // Loaded by two sessions, each of whose pages takes some rows.
        let two = |i: i64| i / 2 + i / 53 % 2 * (noise(i / 53) >> 40);
        check(&ints(9000, |i| i / 2 * 1000 + i % 2 * 3), "delta dictionary");
        check(&ints(9000, |i| i / 4 + i / 32 * 24), "delta dictionary, patched");
        check(&(0..30_000).map(two).collect::<Vec<_>>(), "delta dictionary, patched");
        check(&(0..30_000).map(|i| i + two(i / 53) * 7).collect::<Vec<_>>(), "delta dictionary, patched");
        check(&ints(9000, |i| (noise(i) >> 60) * 1_000_000_007), "dictionary");
        check(&ints(65536, |i| i / 1000), "runs");
        check(&[&ints(40_000, |i| i / 1000)[..], &[i64::MAX, i64::MIN]].concat(), "runs");
    }

    /// As the format's document has it, byte by byte.
    #[test]
    fn patches_lie_behind_their_block() {
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
        chunk.block(Data { source: &data, start: 0 }, 0, &mut out).unwrap();
        assert_eq!(out, [10, 11, 11, 511, 512]);
        // Not of the numbers themselves, whose codes are compared.
        assert!(IntChunk::get(&mut Reader::new(&[&entry[..16], &entry[25..]].concat()), 5).is_err());
    }
}
