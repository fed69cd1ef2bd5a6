//! Builds the tuples of a page in a buffer, as `heap_fill_tuple` would.
//!
//! The loop over a page's attributes is most of the cost of a rebuilt page: values are written by copies of constant
//! length, and the end of the tuple under construction stays in a register.

use super::super::attribute::{DecodedValues, Representation, SHORT_PAYLOAD_MAX};
use super::super::encoding::{COPY_BYTES, Strings};
use super::super::numeric;
use super::super::shape::{Attribute, Number};
use cellar_format::postgres::Width;
use cellar_format::units::BLOCK_BYTES;

/// Maximum bytes of a predicted tuple; a longer tuple is an error. A predicted tuple may be longer than a page: prediction aligns
/// all attributes, also those that a malformed page stores unaligned. The residue then corrects the page.
pub const TUPLE_BYTES_MAX: usize = 4 * BLOCK_BYTES;
/// Bytes of the buffer for one tuple, with space for a copy of constant length at the end of the longest tuple.
const TUPLE_BUFFER_BYTES: usize = TUPLE_BYTES_MAX + 64;

/// An attribute and its decoded values in the page's rows.
pub struct RowValues<'a> {
    attribute: &'a Attribute,
    align_mask: usize,
    values: TypedValues<'a>,
    /// 0 where the row is NULL; empty when no row is.
    pub validity: &'a [i64],
    decoded: &'a DecodedValues,
}

enum TypedValues<'a> {
    Numbers(Number, &'a [i64]),
    Numerics { scale: u8, values: &'a [i64] },
    Payloads(&'a Strings),
    Datums(&'a Strings),
}

impl<'a> RowValues<'a> {
    /// None when the attribute cannot have values of this representation.
    pub fn new(attribute: &'a Attribute, decoded: &'a DecodedValues, rows: usize) -> Option<Self> {
        let values = match decoded.representation {
            Representation::Number => TypedValues::Numbers(Number::of(attribute)?, decoded.ints.get(..rows)?),
            Representation::Numeric { scale } => TypedValues::Numerics { scale, values: decoded.ints.get(..rows)? },
            Representation::Payload => TypedValues::Payloads(&decoded.strings),
            Representation::Datum => TypedValues::Datums(&decoded.strings),
        };
        let align_mask = attribute.align.bytes() - 1;
        Some(Self { attribute, align_mask, values, validity: &decoded.validity, decoded })
    }
}

/// A page's tuples, one after another. Bytes from `end` on are undefined.
#[derive(Debug, Default)]
pub struct TupleBuffer {
    pub bytes: Vec<u8>,
    pub end: usize,
}

impl TupleBuffer {
    /// Starts a tuple after the last one.
    pub fn next(&mut self) -> TupleBuilder<'_> {
        if self.bytes.len() < self.end + TUPLE_BUFFER_BYTES {
            self.bytes.resize((self.end + TUPLE_BUFFER_BYTES).next_power_of_two(), 0);
        }
        let buffer = self.bytes[self.end..].first_chunk_mut().expect("the buffer was just extended");
        TupleBuilder { buffer, end: 0 }
    }
}

/// A tuple under construction. `end` is separate from the buffer, so the compiler knows that writes to the buffer leave `end`
/// alone and keeps it in a register. A tuple longer than [`TUPLE_BYTES_MAX`] overwrites its own bytes; the caller checks
/// `end` afterwards.
pub struct TupleBuilder<'a> {
    pub buffer: &'a mut [u8; TUPLE_BUFFER_BYTES],
    pub end: usize,
}

impl TupleBuilder<'_> {
    /// Appends `bytes`. Returns None if the tuple exceeds the buffer.
    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.end + bytes.len();
        self.buffer.get_mut(self.end..end)?.copy_from_slice(bytes);
        self.end = end;
        Some(())
    }

    /// Appends zeros up to `end`, or truncates the tuple to `end`. Returns None if the tuple exceeds the
    /// buffer.
    #[inline(always)]
    pub fn set_end(&mut self, end: usize) -> Option<()> {
        if end > self.end + 1 {
            self.buffer.get_mut(self.end..end)?.fill(0);
        } else {
            self.push_first(&[0], 0);
        }
        self.end = end;
        Some(())
    }

    /// Appends the first `count` of `bytes`. Copies all of `bytes`, because a copy of constant length is faster.
    #[inline(always)]
    pub fn push_first<const N: usize>(&mut self, bytes: &[u8; N], count: usize) {
        const { assert!(N <= TUPLE_BUFFER_BYTES - TUPLE_BYTES_MAX) };
        debug_assert!(count <= N);
        self.buffer[self.end % TUPLE_BYTES_MAX..][..N].copy_from_slice(bytes);
        self.end += count;
    }

    /// Appends `bytes[start..start + count]`; Returns None if there are fewer bytes or the tuple exceeds
    /// the buffer.
    #[inline(always)]
    fn push_slice(&mut self, bytes: &[u8], start: usize, count: usize) -> Option<()> {
        match bytes.get(start..start + COPY_BYTES) {
            Some(wide) if count <= COPY_BYTES => self.push_first::<COPY_BYTES>(wide.try_into().ok()?, count),
            _ => self.push(bytes.get(start..start + count)?)?,
        }
        Some(())
    }

    /// Appends zeros up to the alignment boundary, counted from the start of the tuple's data.
    #[inline(always)]
    fn align(&mut self, data: usize, mask: usize) {
        let end = data + ((self.end - data + mask) & !mask);
        self.push_first(&[0; 8], end - self.end);
    }

    /// Appends the value of a row; `data` is the offset of the tuple's data. Returns None if the row has no value in the
    /// column or the tuple exceeds the buffer.
    #[inline(always)]
    pub fn push_value(&mut self, data: usize, column: &RowValues<'_>, row: usize) -> Option<()> {
        if let Some(datum) = column.decoded.exception(row) {
            return self.push_datum(data, column, datum);
        }
        match column.values {
            TypedValues::Numbers(number, values) => {
                self.align(data, column.align_mask);
                self.push_first(&number.encode(values[row]), number.bytes());
            }
            TypedValues::Numerics { scale, values } => {
                let (bytes, count) = numeric::encode(values[row], scale)?;
                self.push_first(&bytes, count);
            }
            TypedValues::Payloads(strings) => {
                let (start, end) = strings.span(row)?;
                let count = end - start;
                if count <= SHORT_PAYLOAD_MAX {
                    self.push_first(&[((count + 1) << 1 | 1) as u8], 1);
                } else {
                    self.align(data, column.align_mask);
                    self.push_first(&((count as u32 + 4) << 2).to_le_bytes(), 4);
                }
                self.push_slice(&strings.bytes, start, count)?;
            }
            TypedValues::Datums(strings) => self.push_datum(data, column, strings.get(row)?)?,
        }
        Some(())
    }

    fn push_datum(&mut self, data: usize, column: &RowValues<'_>, datum: &[u8]) -> Option<()> {
        let is_aligned = match column.attribute.width {
            Width::Fixed(_) => true,
            Width::Varlena => datum.first().is_some_and(|first| first & 1 == 0),
            Width::Cstring => false,
        };
        if is_aligned {
            self.align(data, column.align_mask);
        }
        self.push(datum)
    }
}
