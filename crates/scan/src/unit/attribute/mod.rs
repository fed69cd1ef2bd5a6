//! One attribute in one chunk: its values, its NULLs, its bounds, and the datums that its representation cannot express.
//!
//! Every row of the chunk has an encoded value. The value of a row that is NULL, whose tuple ends before the attribute, or
//! that is an exception is a placeholder.

mod encode;
mod exceptions;

pub(super) use encode::AttributeRows;

use super::encoding::{IntBlockCache, IntChunk, StringCache, StringChunk, Strings};
use super::section::{DataSection, Result};
use super::shape::{Attribute, Number};
use crate::bounds::IntRange;
use cellar_format::bytes::{Corrupt, Reader, Write};
use cellar_format::postgres::Width;
use exceptions::Exceptions;
use std::ops::Range;

/// The longest payload of a varlena with a one-byte header.
pub const SHORT_PAYLOAD_MAX: usize = 126;

/// The encoded values in the attribute's representation.
#[derive(Debug)]
enum EncodedValues {
    Number(IntChunk),
    Numeric { scale: u8, ints: IntChunk },
    Payload(StringChunk),
    Datum(StringChunk),
}

/// How encoded values represent datums.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Representation {
    /// A fixed-width value of 1, 2, 4 or 8 bytes, as an integer.
    #[default]
    Number,
    /// A numeric as an integer: its value times `10^scale`, where `scale` is its display scale.
    Numeric { scale: u8 },
    /// The payload of a varlena whose header is the shortest that the payload allows.
    Payload,
    /// A whole datum.
    Datum,
}

/// Tags of representations in the directory.
mod tag {
    pub const NUMBER: u8 = 0;
    pub const NUMERIC: u8 = 1;
    pub const PAYLOAD: u8 = 2;
    pub const DATUM: u8 = 3;
}

/// Minimum and maximum of the values, without NULLs, missing values and exceptions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bounds {
    /// There is no value, or the order of the values is unknown.
    None,
    /// Numbers as [`super::ColumnReader`] returns them.
    Number { min: i64, max: i64 },
    /// Numerics times `10^scale`.
    Numeric { min: i64, max: i64, scale: u8 },
    /// Payloads in the order of their bytes, each cut to 32 bytes.
    Bytes { min: Vec<u8>, max: Vec<u8>, max_is_cut: bool },
}

/// An attribute's directory entry for one chunk.
#[derive(Debug)]
pub struct AttributeChunk {
    rows: u32,
    /// Rows that are NULL.
    pub nulls: u32,
    /// Rows whose tuple ends before the attribute.
    pub missing: u32,
    /// 0 where the row is NULL, else 1.
    validity: IntChunk,
    values: EncodedValues,
    exceptions: Option<Exceptions>,
    /// Least and greatest payload, cut to 32 bytes; empty for other representations.
    min: Vec<u8>,
    max: Vec<u8>,
    max_is_cut: bool,
}

/// Caches the most recently decoded blocks and frames of an attribute.
#[derive(Debug, Default)]
pub(super) struct AttributeCache {
    ints: IntBlockCache,
    pub strings: StringCache,
    validity: IntBlockCache,
}

impl AttributeCache {
    /// Memory of cached strings in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.strings.memory_bytes()
    }

    /// Sets whether the caller reads scattered rows.
    pub fn set_sparse(&mut self, sparse: bool) {
        self.ints.sparse = sparse;
        self.strings.codes.sparse = sparse;
        self.validity.sparse = sparse;
    }

    /// Sets whether the next read is probably the only read of its blocks and frames.
    pub fn set_single_reads(&mut self, single_reads: bool) {
        self.set_sparse(single_reads);
        self.strings.single_reads = single_reads;
    }
}

/// The decoded values of consecutive rows.
#[derive(Debug, Default)]
pub(super) struct DecodedValues {
    /// 0 where the row is NULL; empty when no row of the chunk is.
    pub validity: Vec<i64>,
    /// Values that are numbers or numerics.
    pub ints: Vec<i64>,
    /// Values that are payloads or datums.
    pub strings: Strings,
    pub representation: Representation,
    /// Whole datums of exceptions, by row counted from the first decoded one, ascending.
    pub exceptions: Vec<(u32, Vec<u8>)>,
}

impl DecodedValues {
    /// Returns the allocated memory in bytes, without exceptions.
    pub fn memory_bytes(&self) -> usize {
        (self.validity.capacity() + self.ints.capacity()) * 8 + self.strings.memory_bytes()
    }

    #[inline(always)]
    pub fn is_null(&self, row: usize) -> bool {
        self.validity.get(row) == Some(&0)
    }

    /// The whole datum of a row that is an exception.
    #[inline(always)]
    pub fn exception(&self, row: usize) -> Option<&[u8]> {
        if self.exceptions.is_empty() {
            return None;
        }
        let found = self.exceptions.binary_search_by_key(&(row as u32), |(row, _)| *row);
        found.ok().map(|index| self.exceptions[index].1.as_slice())
    }
}

impl AttributeChunk {
    pub fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Rows stored as whole datums beside the values. The bounds do not cover them.
    pub fn exceptions(&self) -> u32 {
        self.exceptions.as_ref().map_or(0, |exceptions| exceptions.count)
    }

    pub fn bounds(&self) -> Bounds {
        if self.nulls as u64 + self.missing as u64 + self.exceptions() as u64 >= self.rows as u64 {
            return Bounds::None;
        }
        match &self.values {
            EncodedValues::Number(ints) => Bounds::Number { min: ints.min, max: ints.max },
            EncodedValues::Numeric { scale, ints } => Bounds::Numeric { min: ints.min, max: ints.max, scale: *scale },
            EncodedValues::Payload(_) => {
                Bounds::Bytes { min: self.min.clone(), max: self.max.clone(), max_is_cut: self.max_is_cut }
            }
            EncodedValues::Datum(_) => Bounds::None,
        }
    }

    /// Bytes in the data section.
    pub fn data_bytes(&self) -> usize {
        let values = match &self.values {
            EncodedValues::Number(ints) | EncodedValues::Numeric { ints, .. } => ints.data_bytes(),
            EncodedValues::Payload(strings) | EncodedValues::Datum(strings) => strings.data_bytes(),
        };
        values + self.validity.data_bytes() + self.exceptions.as_ref().map_or(0, Exceptions::data_bytes)
    }

    /// Memory in bytes of the parts that stay decoded after the first read.
    pub(super) fn decoded_bytes_max(&self) -> usize {
        let values = match &self.values {
            EncodedValues::Number(ints) | EncodedValues::Numeric { ints, .. } => ints.decoded_bytes_max(),
            EncodedValues::Payload(strings) | EncodedValues::Datum(strings) => strings.decoded_bytes_max(),
        };
        values + self.validity.decoded_bytes_max() + self.exceptions.as_ref().map_or(0, Exceptions::decoded_bytes_max)
    }

    /// Representation and encoding, for reports.
    pub fn encoding_name(&self) -> String {
        match &self.values {
            EncodedValues::Number(ints) => ints.encoding_name().to_string(),
            EncodedValues::Numeric { scale, ints } => format!("numeric*10^{scale}, {}", ints.encoding_name()),
            EncodedValues::Payload(strings) => strings.encoding_name().to_string(),
            EncodedValues::Datum(strings) => format!("datum, {}", strings.encoding_name()),
        }
    }

    pub(super) fn representation(&self) -> Representation {
        match &self.values {
            EncodedValues::Number(_) => Representation::Number,
            EncodedValues::Numeric { scale, .. } => Representation::Numeric { scale: *scale },
            EncodedValues::Payload(_) => Representation::Payload,
            EncodedValues::Datum(_) => Representation::Datum,
        }
    }

    /// The display scale, when the values are numerics as integers.
    pub fn numeric_scale(&self) -> Option<u8> {
        if let Representation::Numeric { scale } = self.representation() { Some(scale) } else { None }
    }

    /// Whether the values are numbers, or numerics as integers.
    pub fn is_number(&self) -> bool {
        matches!(self.representation(), Representation::Number | Representation::Numeric { .. })
    }

    /// Whether the values are payloads of varlenas.
    pub fn is_payload(&self) -> bool {
        self.representation() == Representation::Payload
    }

    /// The numbers, or numerics as integers; None for other representations.
    pub(super) fn ints(&self) -> Option<&IntChunk> {
        match &self.values {
            EncodedValues::Number(ints) | EncodedValues::Numeric { ints, .. } => Some(ints),
            EncodedValues::Payload(_) | EncodedValues::Datum(_) => None,
        }
    }

    /// The payloads; None for other representations.
    pub(super) fn payloads(&self) -> Option<&StringChunk> {
        if let EncodedValues::Payload(strings) = &self.values { Some(strings) } else { None }
    }

    /// Minimum and maximum of the integers, including placeholders; None for other representations.
    pub fn number_bounds(&self) -> Option<(i64, i64)> {
        self.ints().map(|ints| (ints.min, ints.max))
    }

    /// True if all integers pass, false if none passes; None if their bounds do not decide.
    pub fn all_pass(&self, range: &IntRange) -> Option<bool> {
        self.ints().and_then(|ints| ints.all_pass(range))
    }

    /// Whether the payloads are positions in a list: a dictionary, or a constant as a list of one.
    pub fn has_list(&self) -> bool {
        self.payloads().is_some_and(StringChunk::has_list)
    }

    pub(super) fn validity(&self) -> &IntChunk {
        &self.validity
    }

    /// The range of the data section that contains the values of `rows`.
    pub(super) fn row_bytes(&self, rows: Range<usize>) -> Range<u32> {
        match &self.values {
            EncodedValues::Number(ints) | EncodedValues::Numeric { ints, .. } => ints.row_bytes(rows),
            EncodedValues::Payload(strings) | EncodedValues::Datum(strings) => strings.row_bytes(rows),
        }
    }

    /// Appends the ranges of the data section that a read of `rows` needs and that are not decoded yet.
    pub(super) fn prefetch(&self, rows: Range<usize>, ranges: &mut Vec<Range<u32>>) {
        if self.nulls > 0 {
            self.validity.prefetch(rows.clone(), ranges);
        }
        match &self.values {
            EncodedValues::Number(ints) | EncodedValues::Numeric { ints, .. } => ints.prefetch(rows, ranges),
            EncodedValues::Payload(strings) | EncodedValues::Datum(strings) => strings.prefetch(rows, ranges),
        }
        let exceptions = self.exceptions.as_ref().and_then(Exceptions::unread_part);
        ranges.extend(exceptions.map(|part| part.range()));
    }

    /// Replaces `out` by the values of `rows`, which are rows of the chunk. `chunk` identifies the chunk in `cache`.
    pub(super) fn read(
        &self,
        section: DataSection<'_>,
        chunk: usize,
        rows: Range<usize>,
        cache: &mut AttributeCache,
        out: &mut DecodedValues,
    ) -> Result<()> {
        out.ints.clear();
        out.strings.clear();
        out.exceptions.clear();
        out.representation = self.representation();
        out.validity.clear();
        if self.nulls > 0 {
            self.validity.read(section, chunk, rows.clone(), &mut cache.validity, &mut out.validity)?;
        }
        match &self.values {
            EncodedValues::Number(ints) | EncodedValues::Numeric { ints, .. } => {
                ints.read(section, chunk, rows.clone(), &mut cache.ints, &mut out.ints)?
            }
            EncodedValues::Payload(strings) | EncodedValues::Datum(strings) => {
                strings.read(section, chunk, rows.clone(), &mut cache.strings, &mut out.strings)?
            }
        }
        if let Some(exceptions) = &self.exceptions {
            let datums = exceptions.datums(section, self.rows)?.in_rows(rows);
            out.exceptions.extend(datums.map(|(row, datum)| (row, datum.to_vec())));
        }
        Ok(())
    }

    /// Appends the directory entry.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.nulls);
        out.put_u32(self.missing);
        self.validity.put(out);
        match &self.values {
            EncodedValues::Number(ints) => {
                out.put_u8(tag::NUMBER);
                ints.put(out);
            }
            EncodedValues::Numeric { scale, ints } => {
                out.put_u8(tag::NUMERIC);
                out.put_u8(*scale);
                ints.put(out);
            }
            EncodedValues::Payload(strings) => {
                out.put_u8(tag::PAYLOAD);
                out.put_blob(&self.min);
                out.put_blob(&self.max);
                out.put_bool(self.max_is_cut);
                strings.put(out);
            }
            EncodedValues::Datum(strings) => {
                out.put_u8(tag::DATUM);
                strings.put(out);
            }
        }
        Exceptions::put(self.exceptions.as_ref(), out);
    }

    /// Reads the directory entry of a chunk of `rows` rows.
    pub(super) fn get(reader: &mut Reader<'_>, attribute: &Attribute, rows: usize) -> Result<Self, Corrupt> {
        let (nulls, missing) = (reader.u32("nulls")?, reader.u32("missing")?);
        let validity = IntChunk::get(reader, rows)?;
        let (mut min, mut max, mut max_is_cut) = (Vec::new(), Vec::new(), false);
        let at = reader.position();
        let is_number = Number::of(attribute).is_some();
        let values = match reader.u8("representation")? {
            tag::NUMBER if is_number => EncodedValues::Number(IntChunk::get(reader, rows)?),
            tag::NUMERIC if attribute.width == Width::Varlena => {
                EncodedValues::Numeric { scale: reader.u8("scale")?, ints: IntChunk::get(reader, rows)? }
            }
            tag::PAYLOAD if attribute.width == Width::Varlena => {
                (min, max) = (reader.blob("minimum")?.to_vec(), reader.blob("maximum")?.to_vec());
                max_is_cut = reader.bool("cut")?;
                EncodedValues::Payload(StringChunk::get(reader, rows)?)
            }
            tag::DATUM if !is_number => EncodedValues::Datum(StringChunk::get(reader, rows)?),
            other => return Err(Corrupt::new("representation", at, other.to_string())),
        };
        let exceptions = Exceptions::get(reader)?;
        Ok(Self { rows: rows as u32, nulls, missing, validity, values, exceptions, min, max, max_is_cut })
    }
}
