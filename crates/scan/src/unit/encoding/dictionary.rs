//! Dictionary: the distinct values in ascending order, and for each row the bit-packed position (code) of its value.
//!
//! Codes order as the values do, so a range of values is evaluated as a range of codes. Only the codes of differences
//! (see [`super::delta`]) may be patched: codes of values are compared without being decoded.

use super::super::section::{DataSection, Part, Result, corrupt};
use super::bitpack::{BitPackPlan, BitPacked, FrameOfReference, Variant};
use super::bits::{BLOCK_ROWS, Selection};
use super::tag::integers as tag;
use super::varint::{put_varint, unzigzag, varint, zigzag};
use super::{CHUNK_ROWS, IntEncoding, get_or_try_init};
use crate::bounds::IntRange;
use cellar_format::bytes::{Corrupt, Reader, Write};
use std::ops::Range;
use std::sync::OnceLock;

const ENTRIES_MAX: usize = 4096;
/// Minimum size of the sample that is inspected first. If most sampled values are distinct, there is no dictionary.
const SAMPLE_ROWS: usize = 512;

/// A sorted dictionary with the values' codes, and the estimated encoded size.
pub struct DictionaryPlan {
    entries: Vec<i64>,
    codes: Vec<i64>,
    packing: BitPackPlan,
    pub bytes: usize,
}

impl DictionaryPlan {
    /// Returns None if the estimated size is at least `limit`, the values have fewer than three bits, or too many are distinct.
    /// `whole` fits all values. Only the codes of differences may be patched (`are_differences`).
    pub fn new(values: &[i64], whole: FrameOfReference, limit: usize, are_differences: bool) -> Option<Self> {
        const ENTRY_BYTES: usize = 4;
        if whole.width() < 3 {
            return None;
        }
        let step = (values.len() / SAMPLE_ROWS).max(1);
        let sample: Vec<i64> = values.iter().copied().step_by(step).collect();
        let seen = distinct(&sample, ENTRIES_MAX)?.len();
        if seen > sample.len() * 3 / 4 && sample.len() > 64 {
            return None;
        }
        let entries = distinct(values, ENTRIES_MAX.min(values.len() / 4 + 1))?;
        let entries_bytes = entries.len() * ENTRY_BYTES;
        let codes_limit = limit.saturating_sub(entries_bytes);
        let mut packing = BitPackPlan::for_codes(values.len(), entries.len());
        let likely_patched = || {
            let codes = sample.iter().map(|value| entries.partition_point(|entry| entry < value));
            BitPackPlan::for_patched_codes(&count_codes(codes, entries.len())).bytes * values.len() / sample.len()
        };
        let try_patches = are_differences && likely_patched() < packing.bytes.min(codes_limit);
        if !try_patches && packing.bytes >= codes_limit {
            return None;
        }
        let codes = codes_of(values, &entries);
        if try_patches {
            let occurrences = count_codes(codes.iter().map(|code| *code as usize), entries.len());
            let patched = BitPackPlan::for_patched_codes(&occurrences);
            packing = if patched.bytes < packing.bytes { patched } else { packing };
        }
        let bytes = entries_bytes + packing.bytes;
        (bytes < limit).then_some(Self { entries, codes, packing, bytes })
    }

    pub fn encode(self, data: &mut Vec<u8>) -> Dictionary {
        let Self { entries, codes, packing, .. } = self;
        let mut bytes = Vec::with_capacity(entries.len() * 3);
        let mut last = 0i64;
        for (index, entry) in entries.iter().enumerate() {
            let step = entry.wrapping_sub(last);
            put_varint(&mut bytes, if index == 0 { zigzag(step) } else { step as u64 });
            last = *entry;
        }
        let part = Part::append(data, &bytes);
        let codes = packing.encode(&codes, data);
        Dictionary { part, count: entries.len() as u32, entries: OnceLock::from(entries), codes }
    }
}

/// The distinct values, ascending; None when there are more than `most`.
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

/// Occurrences of each of `count` codes.
fn count_codes(codes: impl Iterator<Item = usize>, count: usize) -> Vec<u32> {
    let mut occurrences = vec![0; count];
    codes.for_each(|code| occurrences[code] += 1);
    occurrences
}

/// The position of each value among the entries, which contain all values.
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

#[derive(Debug)]
pub struct Dictionary {
    /// The entries' bytes.
    part: Part,
    count: u32,
    entries: OnceLock<Vec<i64>>,
    codes: BitPacked,
}

impl Dictionary {
    pub fn get(reader: &mut Reader<'_>, count: usize, codes: Variant) -> Result<Self, Corrupt> {
        let (part, entries) = (Part::decode(reader)?, reader.u32("dictionary entries")?);
        let codes = BitPacked::get(reader, count, codes)?;
        Ok(Self { part, entries: OnceLock::new(), count: entries, codes })
    }

    pub fn is_patched(&self) -> bool {
        self.codes.is_patched()
    }

    /// Decodes the first `rows` values of a block, which is as long as `out`; the others are undefined.
    pub fn decode_start(&self, section: DataSection<'_>, block: usize, rows: usize, out: &mut [i64]) -> Result<()> {
        let entries = self.entries(section)?;
        self.codes.decode_block(section, block, out)?;
        self.replace_codes(entries, &mut out[..rows])
    }

    fn replace_codes(&self, entries: &[i64], codes: &mut [i64]) -> Result<()> {
        for code in codes {
            match entries.get(*code as usize) {
                Some(value) => *code = *value,
                None => {
                    let found = format!("{code} of {}", entries.len());
                    return corrupt("dictionary code", self.part.offset as usize, found);
                }
            }
        }
        Ok(())
    }

    fn entries(&self, section: DataSection<'_>) -> Result<&Vec<i64>> {
        get_or_try_init(&self.entries, || self.read_entries(section))
    }

    fn read_entries(&self, section: DataSection<'_>) -> Result<Vec<i64>> {
        let (at, count) = (self.part.offset as usize, self.count as usize);
        let bytes = section.read(self.part, "dictionary")?;
        if count > bytes.len() || count > CHUNK_ROWS {
            return corrupt("dictionary", at, format!("{count} entries in {} bytes", bytes.len()));
        }
        let mut reader = Reader::new(&bytes);
        let mut entries = Vec::with_capacity(count);
        let mut last = 0i64;
        for index in 0..count {
            let step = varint(&mut reader, "dictionary entry")?;
            let entry = last.wrapping_add(if index == 0 { unzigzag(step) } else { step as i64 });
            if index > 0 && entry <= last {
                return corrupt("dictionary", at, format!("{entry} follows {last}"));
            }
            last = entry;
            entries.push(entry);
        }
        reader.finish("dictionary")?;
        Ok(entries)
    }
}

impl IntEncoding for Dictionary {
    fn name(&self) -> &'static str {
        "dictionary"
    }

    fn decode_block(&self, section: DataSection<'_>, block: usize, out: &mut [i64]) -> Result<()> {
        let rows = out.len();
        self.decode_start(section, block, rows, out)
    }

    fn decode_rows(
        &self,
        section: DataSection<'_>,
        block: usize,
        block_rows: usize,
        rows: Selection<'_>,
        out: &mut Vec<i64>,
    ) -> Result<bool> {
        let entries = self.entries(section)?;
        let start = out.len();
        self.codes.decode_rows(section, block, block_rows, rows, out)?;
        self.replace_codes(entries, &mut out[start..])?;
        Ok(true)
    }

    fn retain(&self, section: DataSection<'_>, block: usize, range: &IntRange, marks: &mut [u8]) -> Result<bool> {
        let entries = self.entries(section)?;
        let first = entries.partition_point(|entry| *entry < range.lo) as i64;
        let end = entries.partition_point(|entry| *entry <= range.hi) as i64;
        self.codes.retain(section, block, &IntRange { lo: first, hi: end - 1, inside: range.inside }, marks)
    }

    fn block_bytes(&self, blocks: Range<usize>) -> Range<u32> {
        self.codes.block_bytes(blocks)
    }

    fn unread_part(&self) -> Option<Part> {
        self.entries.get().is_none().then_some(self.part)
    }

    fn data_bytes(&self) -> usize {
        self.part.bytes as usize + self.codes.data_bytes()
    }

    fn decoded_bytes_max(&self) -> usize {
        8 * self.count as usize
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(if self.is_patched() { tag::PATCHED_DICTIONARY } else { tag::DICTIONARY });
        self.part.encode(out);
        out.put_u32(self.count);
        self.codes.put_blocks(out);
    }
}

const _: () = assert!(ENTRIES_MAX <= u16::MAX as usize && BLOCK_ROWS <= CHUNK_ROWS);
