//! Constant: all values of the chunk are equal. The value is stored in the directory, and nothing in the data section.

use super::super::section::{DataSection, Result};
use super::bits::Selection;
use super::{IntEncoding, StringCache, StringEncoding, Strings, tag};
use crate::bounds::IntRange;
use cellar_format::bytes::{Corrupt, Reader, Write};
use cellar_format::units::BLOCK_BYTES;
use std::ops::Range;

/// One integer for all rows.
#[derive(Debug)]
pub struct Constant(pub i64);

impl Constant {
    pub fn get(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(Self(reader.u64("constant")? as i64))
    }
}

impl IntEncoding for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn decode_block(&self, _: DataSection<'_>, _: usize, out: &mut [i64]) -> Result<()> {
        out.fill(self.0);
        Ok(())
    }

    fn decode_rows(
        &self,
        _: DataSection<'_>,
        _: usize,
        _: usize,
        rows: Selection<'_>,
        out: &mut Vec<i64>,
    ) -> Result<bool> {
        out.resize(out.len() + rows.len(), self.0);
        Ok(true)
    }

    fn retain(&self, _: DataSection<'_>, _: usize, range: &IntRange, marks: &mut [u8]) -> Result<bool> {
        if !range.passes(self.0) {
            marks.fill(0);
        }
        Ok(true)
    }

    fn sum_block(&self, _: DataSection<'_>, _: usize, block_rows: usize) -> Result<Option<i128>> {
        Ok(Some(self.0 as i128 * block_rows as i128))
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(tag::integers::CONSTANT);
        out.put_u64(self.0 as u64);
    }
}

/// One string for all rows.
#[derive(Debug)]
pub struct ConstantString(pub Vec<u8>);

impl ConstantString {
    pub fn get(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let at = reader.position();
        match reader.blob("constant string")? {
            value if value.len() <= BLOCK_BYTES => Ok(Self(value.to_vec())),
            value => Err(Corrupt::new("constant string", at, format!("{} bytes", value.len()))),
        }
    }
}

impl StringEncoding for ConstantString {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn read(
        &self,
        _: DataSection<'_>,
        _: usize,
        rows: Range<usize>,
        _: &mut StringCache,
        out: &mut Strings,
    ) -> Result<()> {
        rows.for_each(|_| out.push(&self.0));
        Ok(())
    }

    fn row_bytes(&self, _: Range<usize>) -> Range<u32> {
        0..0
    }

    fn prefetch(&self, _: Range<usize>, _: &mut Vec<Range<u32>>) {}

    fn data_bytes(&self) -> usize {
        0
    }

    fn decoded_bytes_max(&self) -> usize {
        0
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(tag::strings::CONSTANT);
        out.put_blob(&self.0);
    }
}
