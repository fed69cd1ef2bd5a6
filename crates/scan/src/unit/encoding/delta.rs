//! Delta: the first value of each block, and the differences between neighbours in an encoding of differences.
//!
//! Differences are constant, bit-packed, or codes of a dictionary, which may be patched. The
//! first value of each block is stored, so a block is decoded without the blocks before it.

use super::super::section::{DataSection, Part, Result};
use super::bitpack::{BitPackPlan, BitPacked, FrameOfReference, Variant};
use super::bits::{BLOCK_ROWS, Selection};
use super::constant::Constant;
use super::dictionary::{Dictionary, DictionaryPlan};
use super::tag::integers as tag;
use super::{IntEncoding, dispatch_int_encoding};
use crate::bounds::IntRange;
use crate::vectors::vectorized;
use cellar_format::bytes::{Corrupt, Reader, Write};
use std::ops::Range;

vectorized! {
    /// Writes each value less the one before; the first difference repeats the second.
    fn subtract_neighbours(values: &[i64], out: &mut [i64]) {
        for ((one, next), out) in values.iter().zip(&values[1..]).zip(&mut out[1..]) {
            *out = next.wrapping_sub(*one);
        }
        out[0] = out.get(1).copied().unwrap_or(0);
    }
}

/// The encoding of the differences, and the estimated size. The estimate is raised by an eighth, because decoding must sum up
/// differences.
pub struct DeltaPlan {
    differences: DifferencesPlan,
    pub bytes: usize,
}

enum DifferencesPlan {
    BitPacked { values: Vec<i64>, packing: BitPackPlan },
    Dictionary(DictionaryPlan),
}

impl DeltaPlan {
    /// Returns None if the estimated size is at least `limit`. There is at least one value.
    pub fn new(values: &[i64], limit: usize) -> Option<Self> {
        let mut differences = vec![0; values.len()];
        subtract_neighbours(values, &mut differences);
        let whole = FrameOfReference::of(&differences);
        let packing = BitPackPlan::new(&differences, whole);
        let firsts_bytes = 8 * values.len().div_ceil(BLOCK_ROWS);
        let packed_bytes = (packing.bytes + firsts_bytes) * 9 / 8;
        let budget = packed_bytes.min(limit).saturating_sub(firsts_bytes) * 8 / 9;
        if let Some(dictionary) = DictionaryPlan::new(&differences, whole, budget, true) {
            let bytes = (dictionary.bytes + firsts_bytes) * 9 / 8;
            return Some(Self { differences: DifferencesPlan::Dictionary(dictionary), bytes });
        }
        let differences = DifferencesPlan::BitPacked { values: differences, packing };
        (packed_bytes < limit).then_some(Self { differences, bytes: packed_bytes })
    }

    pub fn encode(self, values: &[i64], data: &mut Vec<u8>) -> Delta {
        let differences = match self.differences {
            DifferencesPlan::BitPacked { values, packing } => Differences::BitPacked(packing.encode(&values, data)),
            DifferencesPlan::Dictionary(plan) => Differences::Dictionary(plan.encode(data)),
        };
        Delta { firsts: values.iter().copied().step_by(BLOCK_ROWS).collect(), differences: Box::new(differences) }
    }
}

#[derive(Debug)]
pub struct Delta {
    /// The first value of each block.
    firsts: Vec<i64>,
    /// Each value less the one before; the first of a block is ignored.
    differences: Box<Differences>,
}

/// Encoded differences.
#[derive(Debug)]
enum Differences {
    Constant(Constant),
    BitPacked(BitPacked),
    Dictionary(Dictionary),
}

dispatch_int_encoding!(Differences { Constant, BitPacked, Dictionary });

impl Differences {
    /// Decodes the first `rows` differences of a block, which is as long as `out`; the others are undefined.
    fn decode_start(&self, section: DataSection<'_>, block: usize, rows: usize, out: &mut [i64]) -> Result<()> {
        match self {
            Self::Dictionary(dictionary) => dictionary.decode_start(section, block, rows, out),
            _ => self.decode_block(section, block, out),
        }
    }

    fn get(reader: &mut Reader<'_>, count: usize) -> Result<Self, Corrupt> {
        let at = reader.position();
        Ok(match reader.u8("encoding of differences")? {
            tag::CONSTANT => Self::Constant(Constant::get(reader)?),
            tag::PACKED => Self::BitPacked(BitPacked::get(reader, count, Variant::Uniform)?),
            tag::PACKED_BY_BLOCK => Self::BitPacked(BitPacked::get(reader, count, Variant::ByBlock)?),
            tag::DICTIONARY => Self::Dictionary(Dictionary::get(reader, count, Variant::Uniform)?),
            tag::PATCHED_DICTIONARY => Self::Dictionary(Dictionary::get(reader, count, Variant::Patched)?),
            other => return Err(Corrupt::new("encoding of differences", at, format!("{other}"))),
        })
    }
}

impl Delta {
    pub fn get(reader: &mut Reader<'_>, count: usize) -> Result<Self, Corrupt> {
        let firsts = (0..count.div_ceil(BLOCK_ROWS)).map(|_| Ok(reader.u64("first value")? as i64));
        let firsts = firsts.collect::<Result<_, _>>()?;
        Ok(Self { firsts, differences: Box::new(Differences::get(reader, count)?) })
    }
}

impl IntEncoding for Delta {
    fn name(&self) -> &'static str {
        match &*self.differences {
            Differences::Dictionary(dictionary) if dictionary.is_patched() => "delta dictionary, patched",
            Differences::Dictionary(_) => "delta dictionary",
            _ => "delta",
        }
    }

    fn decode_block(&self, section: DataSection<'_>, block: usize, out: &mut [i64]) -> Result<()> {
        self.differences.decode_block(section, block, out)?;
        let mut value = self.firsts[block];
        if let [first, rest @ ..] = out {
            *first = value;
            for slot in rest {
                value = value.wrapping_add(*slot);
                *slot = value;
            }
        }
        Ok(())
    }

    fn decodes_preceding_rows(&self) -> bool {
        true
    }

    fn decode_rows(
        &self,
        section: DataSection<'_>,
        block: usize,
        block_rows: usize,
        rows: Selection<'_>,
        out: &mut Vec<i64>,
    ) -> Result<bool> {
        let mut differences = [0; BLOCK_ROWS];
        let end = if rows.len() > 0 { rows.get(rows.len() - 1) + 1 } else { 0 };
        self.differences.decode_start(section, block, end, &mut differences[..block_rows])?;
        let (mut value, mut at) = (self.firsts[block], 0);
        for row in (0..rows.len()).map(|index| rows.get(index)) {
            // Summing the differences between two selected rows is faster than storing a value for every row.
            value = differences[at + 1..=row].iter().fold(value, |sum, difference| sum.wrapping_add(*difference));
            at = row;
            out.push(value);
        }
        Ok(true)
    }

    fn block_bytes(&self, blocks: Range<usize>) -> Range<u32> {
        self.differences.block_bytes(blocks)
    }

    fn unread_part(&self) -> Option<Part> {
        self.differences.unread_part()
    }

    fn data_bytes(&self) -> usize {
        self.differences.data_bytes()
    }

    fn decoded_bytes_max(&self) -> usize {
        self.differences.decoded_bytes_max()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(tag::DELTA);
        self.firsts.iter().for_each(|first| out.put_u64(*first as u64));
        self.differences.put(out);
    }
}
