//! Sums of a chunk's numbers, of packed ones without unpacking them.

use super::{BLOCK_ROWS, Coding, Frame, IntChunk, Packed};
use crate::unit::bits::{SUM_WIDTH_MAX, sum};
use crate::unit::source::{Data, Result};
use std::ops::Range;

impl IntChunk {
    /// The sum of the numbers of `rows`, which lie in the chunk.
    pub(in crate::unit) fn sum(&self, data: Data<'_>, rows: Range<usize>, scratch: &mut Vec<i64>) -> Result<i128> {
        if let Coding::Constant(value) = self.coding {
            return Ok(value as i128 * rows.len() as i128);
        }
        let (mut total, mut from) = (0, rows.start);
        while from < rows.end {
            let block = from / BLOCK_ROWS;
            let first = block * BLOCK_ROWS;
            let to = rows.end.min(first + BLOCK_ROWS);
            total += match &self.coding {
                Coding::Packed(packed)
                    if to - from == self.block_rows(block) && packed.frame(block).width <= SUM_WIDTH_MAX =>
                {
                    packed.sum(data, block, to - from)?
                }
                _ => {
                    self.block(data, block, scratch)?;
                    scratch.iter().take(to - first).skip(from - first).map(|value| *value as i128).sum()
                }
            };
            from = to;
        }
        Ok(total)
    }
}

impl Packed {
    /// Of a whole block of `count` numbers.
    fn sum(&self, data: Data<'_>, block: usize, count: usize) -> Result<i128> {
        let Frame { base, width } = self.frame(block);
        let bases = base as i128 * count as i128;
        if width == 0 {
            return Ok(bases);
        }
        data.look_at(self.part(block), "packed block", |bytes| Ok(bases + sum(bytes, width, count)? as i128))
    }
}
