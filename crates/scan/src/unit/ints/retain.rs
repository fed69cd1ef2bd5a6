//! Which numbers of a block lie in a range: told without making numbers of them where their coding allows that.

use super::{Coding, Frame, IntChunk, Packed, cached, read_dictionary};
use crate::bounds::IntRange;
use crate::unit::bits::{Offsets, retain};
use crate::unit::source::{Data, Result};

impl IntChunk {
    /// Whether all numbers pass, or none does, as far as the bounds tell.
    pub(in crate::unit) fn all_pass(&self, range: &IntRange) -> Option<bool> {
        let (within, apart) = (
            range.lo <= self.min && self.max <= range.hi,
            range.lo > range.hi || self.max < range.lo || self.min > range.hi,
        );
        match (within, apart) {
            (_, true) => Some(!range.inside),
            (true, _) => Some(range.inside),
            _ => None,
        }
    }

    /// Clears the marks, which are 0 or 1, of the block's numbers that do not pass.
    pub(in crate::unit) fn retain(
        &self,
        data: Data<'_>,
        block: usize,
        range: &IntRange,
        scratch: &mut Vec<i64>,
        marks: &mut [u8],
    ) -> Result<()> {
        match &self.coding {
            Coding::Packed(packed) => packed.retain(data, block, range, marks),
            Coding::Dictionary { part, entries, count, codes } => {
                let entries = cached(entries, || read_dictionary(data, *part, *count as usize))?;
                // The entries ascend.
                let first = entries.partition_point(|entry| *entry < range.lo) as i64;
                let end = entries.partition_point(|entry| *entry <= range.hi) as i64;
                codes.retain(data, block, &IntRange { lo: first, hi: end - 1, inside: range.inside }, marks)
            }
            _ => {
                self.block(data, block, scratch)?;
                for (mark, value) in marks.iter_mut().zip(scratch.iter()) {
                    *mark &= u8::from(range.passes(*value));
                }
                Ok(())
            }
        }
    }
}

impl Packed {
    fn retain(&self, data: Data<'_>, block: usize, range: &IntRange, marks: &mut [u8]) -> Result<()> {
        let Frame { base, width } = self.frame(block);
        let most = if width == 0 { 0 } else { u64::MAX >> (64 - width as u32) };
        // As offsets from the base, in wider arithmetic.
        let first = (range.lo as i128 - base as i128).max(0);
        let last = (range.hi as i128 - base as i128).min(most as i128);
        if first > last {
            if range.inside {
                marks.fill(0);
            }
            return Ok(());
        }
        if first == 0 && last == most as i128 {
            if !range.inside {
                marks.fill(0);
            }
            return Ok(());
        }
        let offsets = Offsets { first: first as u64, span: (last - first) as u64, inside: range.inside };
        Ok(retain(&data.read(self.part(block), "packed block")?, width, offsets, marks)?)
    }
}
