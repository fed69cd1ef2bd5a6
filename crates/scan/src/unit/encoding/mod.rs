//! Encodings of a chunk's integers and strings.
//!
//! Each encoding is one file of the same shape. A plan (`BitPackPlan`, `DeltaPlan`, …) estimates the encoded size; its `encode`
//! appends blocks and parts to the data section. [`IntEncoding`] or [`StringEncoding`] decodes whole blocks or
//! selected rows, evaluates ranges and sums on the encoded form where possible, and writes the directory entry (`put`); `get`
//! reads the entry. [`IntChunk`] and [`StringChunk`] choose the smallest encoding and dispatch to it. Encodings share [`tag`],
//! [`cache`], [`bits`], [`varint`] and [`string_list`], and may nest other encodings: [`delta`] contains bit packing or a
//! dictionary.
//!
//! Invariants: decoding returns the encoded values or [`UnitError::Corrupt`](super::UnitError). Decoding never panics, whatever the
//! entry and the data section contain. Every block and part is verified by its checksum before use.
//! Each encoding passes the conformance test in `conformance.rs`.
//!
//! | integers | strings |
//! |---|---|
//! | [`constant`] | [`constant`] |
//! | [`bitpack`]: frame of reference and bit packing | [`string_dictionary`] |
//! | [`delta`]: differences, bit-packed or in a dictionary | [`string_frames`]: plain, [`symbols`] (FSST) or [`zstd`] |
//! | [`dictionary`] | |
//! | [`runs`] | |

mod bitpack;
mod bits;
mod cache;
#[cfg(test)]
mod conformance;
mod constant;
mod delta;
mod dictionary;
mod integers;
mod runs;
mod string_dictionary;
mod string_frames;
mod string_list;
mod strings;
mod symbol_search;
mod symbols;
mod tag;
pub(super) mod varint;
pub(super) mod zstd;

pub use bits::BLOCK_ROWS;
pub(super) use cache::{IntBlockCache, StringCache};
pub use integers::IntChunk;
pub use string_list::Strings;
pub(super) use string_list::{COPY_BYTES, first_bytes, is_equal};
pub(super) use strings::StringChunk;
pub(super) use symbol_search::SymbolSearch;

use super::section::{DataSection, Part, Result};
use crate::bounds::IntRange;
use bits::Selection;
use std::ops::Range;
use std::sync::OnceLock;

/// Maximum number of line pointers of a chunk, and hence of rows.
pub const CHUNK_ROWS: usize = 1 << 16;

/// Common interface of the encodings of integers.
///
/// A block has [`BLOCK_ROWS`] values; the last block of a chunk may be shorter. Callers pass valid block numbers.
trait IntEncoding {
    fn name(&self) -> &'static str;

    /// Decodes a block into `out`, which is as long as the block.
    fn decode_block(&self, section: DataSection<'_>, block: usize, out: &mut [i64]) -> Result<()>;

    /// Appends the selected values of a block of `block_rows` values. Returns false, and appends nothing, if only whole blocks
    /// can be decoded.
    fn decode_rows(
        &self,
        _section: DataSection<'_>,
        _block: usize,
        _block_rows: usize,
        _rows: Selection<'_>,
        _out: &mut Vec<i64>,
    ) -> Result<bool> {
        Ok(false)
    }

    /// Whether [`Self::decode_rows`] also decodes the values before the selected ones.
    fn decodes_preceding_rows(&self) -> bool {
        false
    }

    /// Clears the marks (0 or 1, one per value) of the values of a block that do not pass. Returns false, and changes nothing, if
    /// the encoded form does not decide.
    fn retain(&self, _section: DataSection<'_>, _block: usize, _range: &IntRange, _marks: &mut [u8]) -> Result<bool> {
        Ok(false)
    }

    /// The sum of a whole block of `block_rows` values; None when the encoded form cannot be summed.
    fn sum_block(&self, _section: DataSection<'_>, _block: usize, _block_rows: usize) -> Result<Option<i128>> {
        Ok(None)
    }

    /// The range of the data section that contains these blocks.
    fn block_bytes(&self, _blocks: Range<usize>) -> Range<u32> {
        0..0
    }

    /// The part that all blocks share; None if there is none, or the part is already decoded.
    fn unread_part(&self) -> Option<Part> {
        None
    }

    /// Bytes in the data section.
    fn data_bytes(&self) -> usize {
        0
    }

    /// Memory in bytes of the shared part after it has been decoded.
    fn decoded_bytes_max(&self) -> usize {
        0
    }

    /// Appends the directory entry, tag first.
    fn put(&self, out: &mut Vec<u8>);
}

/// Implements [`IntEncoding`] for an enum of encodings: the only place that matches on its variants for a call.
macro_rules! dispatch_int_encoding {
    ($name:ident { $($variant:ident),* }) => {
        impl IntEncoding for $name {
            fn name(&self) -> &'static str {
                match self { $(Self::$variant(encoding) => encoding.name()),* }
            }

            #[inline]
            fn decode_block(&self, section: DataSection<'_>, block: usize, out: &mut [i64]) -> Result<()> {
                match self { $(Self::$variant(encoding) => encoding.decode_block(section, block, out)),* }
            }

            #[inline]
            fn decode_rows(
                &self,
                section: DataSection<'_>,
                block: usize,
                block_rows: usize,
                rows: Selection<'_>,
                out: &mut Vec<i64>,
            ) -> Result<bool> {
                match self { $(Self::$variant(encoding) => encoding.decode_rows(section, block, block_rows, rows, out)),* }
            }

            fn decodes_preceding_rows(&self) -> bool {
                match self { $(Self::$variant(encoding) => encoding.decodes_preceding_rows()),* }
            }

            #[inline]
            fn retain(&self, section: DataSection<'_>, block: usize, range: &IntRange, marks: &mut [u8]) -> Result<bool> {
                match self { $(Self::$variant(encoding) => encoding.retain(section, block, range, marks)),* }
            }

            #[inline]
            fn sum_block(&self, section: DataSection<'_>, block: usize, block_rows: usize) -> Result<Option<i128>> {
                match self { $(Self::$variant(encoding) => encoding.sum_block(section, block, block_rows)),* }
            }

            fn block_bytes(&self, blocks: Range<usize>) -> Range<u32> {
                match self { $(Self::$variant(encoding) => encoding.block_bytes(blocks)),* }
            }

            fn unread_part(&self) -> Option<Part> {
                match self { $(Self::$variant(encoding) => encoding.unread_part()),* }
            }

            fn data_bytes(&self) -> usize {
                match self { $(Self::$variant(encoding) => encoding.data_bytes()),* }
            }

            fn decoded_bytes_max(&self) -> usize {
                match self { $(Self::$variant(encoding) => encoding.decoded_bytes_max()),* }
            }

            fn put(&self, out: &mut Vec<u8>) {
                match self { $(Self::$variant(encoding) => encoding.put(out)),* }
            }
        }
    };
}
use dispatch_int_encoding;

/// Common interface of the encodings of strings.
trait StringEncoding {
    fn name(&self) -> &'static str;

    /// Appends the strings of `rows`, which are rows of the chunk. `chunk` identifies the chunk in `cache`.
    fn read(
        &self,
        section: DataSection<'_>,
        chunk: usize,
        rows: Range<usize>,
        cache: &mut StringCache,
        out: &mut Strings,
    ) -> Result<()>;

    /// The range of the data section that contains the strings of `rows`, or their codes. Empty unless one read of
    /// the range replaces several reads.
    fn row_bytes(&self, rows: Range<usize>) -> Range<u32>;

    /// Appends the ranges of the data section that a read of `rows` needs and that are not decoded yet.
    fn prefetch(&self, rows: Range<usize>, ranges: &mut Vec<Range<u32>>);

    /// Bytes in the data section.
    fn data_bytes(&self) -> usize;

    /// Memory in bytes of the parts that stay decoded after the first read.
    fn decoded_bytes_max(&self) -> usize;

    /// Appends the directory entry, tag first.
    fn put(&self, out: &mut Vec<u8>);
}

/// Returns the value of `cell`. The first call reads the value with `read`; an error leaves the cell empty.
pub(super) fn get_or_try_init<T>(cell: &OnceLock<T>, read: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    let value = read()?;
    Ok(cell.get_or_init(|| value))
}
