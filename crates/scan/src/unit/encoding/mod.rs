//! Encodings of a chunk's integers and strings.
//!
//! Each encoding is one file of the same shape. A plan (`BitPackPlan`, `DeltaPlan`, …) estimates the encoded size and then
//! encodes: it appends blocks and parts to the data section. [`IntEncoding`] or [`StringEncoding`] decodes whole blocks or
//! selected rows, evaluates what the encoded form can decide, and writes the directory entry; `get` reads the entry back.
//! [`IntChunk`] and [`StringChunk`] choose the smallest encoding and dispatch to it.
//!
//! Invariants: whatever an entry or the data section contains, decoding returns the encoded values or
//! [`UnitError::Corrupt`](super::UnitError); it never panics. Every block and part is verified by its checksum before use.
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

/// Rows, or line pointers, of a chunk at most.
pub const CHUNK_ROWS: usize = 1 << 16;

/// Common interface of the encodings of integers.
///
/// Blocks are [`BLOCK_ROWS`] values, the last one of a chunk may be shorter; block numbers are valid.
trait IntEncoding {
    fn name(&self) -> &'static str;

    /// Decodes a block into `out`, which is as long as the block.
    fn decode_block(&self, section: DataSection<'_>, block: usize, out: &mut [i64]) -> Result<()>;

    /// Appends the selected values of a block of `block_rows` values. Returns false, and appends nothing, when decoding the
    /// whole block is the only way.
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

    /// Clears the marks (0 or 1, one a value) of the values of a block that do not pass. Returns false, and changes nothing,
    /// when the encoded form cannot decide.
    fn retain(&self, _section: DataSection<'_>, _block: usize, _range: &IntRange, _marks: &mut [u8]) -> Result<bool> {
        Ok(false)
    }

    /// The sum of a whole block of `block_rows` values; None when the encoded form cannot be summed.
    fn sum_block(&self, _section: DataSection<'_>, _block: usize, _block_rows: usize) -> Result<Option<i128>> {
        Ok(None)
    }

    /// Where in the data section these blocks are.
    fn block_bytes(&self, _blocks: Range<usize>) -> Range<u32> {
        0..0
    }

    /// The part that is read once for all blocks, unless it is already decoded.
    fn unread_part(&self) -> Option<Part> {
        None
    }

    /// Bytes in the data section.
    fn data_bytes(&self) -> usize {
        0
    }

    /// Memory of the decoded part, in bytes.
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

    /// Where in the data section the strings of `rows`, or their codes, are.
    fn row_bytes(&self, rows: Range<usize>) -> Range<u32>;

    /// Appends the ranges of the data section that a read of `rows` needs and that are not decoded yet.
    fn prefetch(&self, rows: Range<usize>, ranges: &mut Vec<Range<u32>>);

    /// Bytes in the data section.
    fn data_bytes(&self) -> usize;

    /// Memory of what stays decoded after the first read, in bytes.
    fn decoded_bytes_max(&self) -> usize;

    /// Appends the directory entry, tag first.
    fn put(&self, out: &mut Vec<u8>);
}

/// The value of `cell`, read by `read` the first time.
pub(super) fn get_or_try_init<T>(cell: &OnceLock<T>, read: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    let value = read()?;
    Ok(cell.get_or_init(|| value))
}
