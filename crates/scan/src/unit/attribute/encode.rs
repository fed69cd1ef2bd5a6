//! Encodes the values of one attribute in one chunk: chooses their representation, collects exceptions and bounds.

use super::super::encoding::{IntChunk, StringChunk, first_bytes, is_equal};
use super::super::parse::{DatumSpan, NO_SCALE, Numerics, ParsedColumn, Values};
use super::super::shape::{Attribute, Level};
use super::exceptions::Datums;
use super::{AttributeChunk, EncodedValues, SHORT_PAYLOAD_MAX};
use cellar_format::postgres::Width;
use std::ops::Range;

/// Maximum bytes of a minimum or maximum in the directory.
const BOUND_BYTES: usize = 32;
/// At most one row in 16 may be an exception; otherwise whole datums are encoded.
const EXCEPTION_SHARE: usize = 16;

/// The values of one attribute in the rows of one chunk.
pub struct AttributeRows<'a> {
    pub attribute: &'a Attribute,
    pub pages: &'a [u8],
    pub column: &'a ParsedColumn,
    /// Number of attributes in the tuple of each row of `range`; empty if every tuple has all attributes.
    pub natts: &'a [u16],
    /// The attribute's number, from 0.
    pub index: usize,
    pub range: Range<usize>,
}

impl AttributeChunk {
    pub(in crate::unit) fn encode(rows: AttributeRows<'_>, level: Level, data: &mut Vec<u8>) -> Self {
        let AttributeRows { attribute, pages, column, natts, index, range } = rows;
        let validity_rows = column.validity.get(range.clone()).unwrap_or_default();
        let is_missing = |natts: &u16| *natts as usize <= index;
        let missing = natts.iter().filter(|natts| is_missing(natts)).count() as u32;
        let nulls = validity_rows.iter().filter(|valid| **valid == 0).count() as u32;
        let count = range.len() as u32;
        let mut encoder = ValueEncoder { pages, exceptions: Datums::default(), min: None, max: None };
        let values = match &column.values {
            Values::Numbers(_, values) if nulls + missing == 0 => {
                EncodedValues::Number(IntChunk::encode(&values[range.clone()], data))
            }
            Values::Numbers(_, values) => {
                // Rows before the first value repeat that value.
                let has_value =
                    |row: &usize| validity_rows.get(*row) != Some(&0) && !natts.get(*row).is_some_and(is_missing);
                let mut values = values[range.clone()].to_vec();
                let before = (0..values.len()).find(has_value).unwrap_or(values.len());
                let value = values.get(before).copied().unwrap_or(0);
                values[..before].fill(value);
                EncodedValues::Number(IntChunk::encode(&values, data))
            }
            Values::Numerics(numerics) => match encoder.numeric(numerics, range.clone(), data) {
                Some(values) => values,
                None => encoder.payload(&numerics.spans[range.clone()], level, data),
            },
            Values::Datums(spans) if attribute.width == Width::Varlena => {
                encoder.payload(&spans[range.clone()], level, data)
            }
            Values::Datums(spans) => encoder.datum(&spans[range.clone()], level, data),
        };
        let validity = match validity_rows {
            [] => IntChunk::repeat(range.len(), i64::from(!range.is_empty())),
            rows => IntChunk::encode(rows, data),
        };
        let (min, max) = (encoder.min.unwrap_or_default(), encoder.max.unwrap_or_default());
        let cut = |bound: &[u8]| bound[..bound.len().min(BOUND_BYTES)].to_vec();
        Self {
            rows: count,
            nulls,
            missing,
            validity,
            values,
            exceptions: encoder.exceptions.encode(data),
            min: cut(min),
            max: cut(max),
            max_is_cut: max.len() > BOUND_BYTES,
        }
    }
}

/// Encodes values in a representation, and collects exceptions and bounds.
struct ValueEncoder<'a> {
    pages: &'a [u8],
    exceptions: Datums,
    /// Least and greatest payload.
    min: Option<&'a [u8]>,
    max: Option<&'a [u8]>,
}

impl<'a> ValueEncoder<'a> {
    /// Encodes numerics of the most frequent scale as integers. Returns None if too few values have that scale.
    fn numeric(&mut self, numerics: &Numerics, range: Range<usize>, data: &mut Vec<u8>) -> Option<EncodedValues> {
        let (values, scales) = (&numerics.values[range.clone()], &numerics.scales[range.clone()]);
        let spans = &numerics.spans[range];
        let mut counts = [0u32; 64];
        let step = (scales.len() / 256).max(1);
        for scale in scales.iter().step_by(step).filter(|scale| **scale != NO_SCALE) {
            counts[*scale as usize] += 1;
        }
        let (scale, seen) = counts.iter().enumerate().max_by_key(|(_, count)| **count)?;
        if *seen == 0 {
            return None;
        }
        let scale = scale as u8;
        if scales.iter().all(|found| *found == scale) {
            return Some(EncodedValues::Numeric { scale, ints: IntChunk::encode(values, data) });
        }
        let exceptions_max = spans.len() / EXCEPTION_SHARE;
        let mut ints = Vec::with_capacity(spans.len());
        // Rows before the first value repeat that value.
        let mut last = None;
        let mut before = 0;
        for (row, (value, found)) in values.iter().zip(scales).enumerate() {
            if *found == scale {
                if last.is_none() {
                    ints.resize(before, *value);
                }
                last = Some(*value);
            } else if spans[row].bytes > 0 {
                if self.exceptions.rows.len() >= exceptions_max {
                    self.exceptions = Datums::default();
                    return None;
                }
                self.exceptions.push(row, spans[row].datum(self.pages));
            }
            match last {
                Some(value) => ints.push(value),
                None => before += 1,
            }
        }
        ints.resize(spans.len(), last.unwrap_or(0));
        Some(EncodedValues::Numeric { scale, ints: IntChunk::encode(&ints, data) })
    }

    /// Encodes the payloads of varlenas, or whole datums if too many varlenas have an unusual header.
    fn payload(&mut self, spans: &[DatumSpan], level: Level, data: &mut Vec<u8>) -> EncodedValues {
        let exceptions_max = spans.len() / EXCEPTION_SHARE;
        let mut rows: Vec<&[u8]> = Vec::with_capacity(spans.len());
        // The first bytes of two payloads usually order them, without a comparison of the rest.
        let (mut min_first, mut max_first) = (u64::MAX, 0);
        for (row, span) in spans.iter().enumerate() {
            let datum = span.datum(self.pages);
            let payload = match datum {
                [first, ..] if first & 1 == 1 && *first != 1 => datum.get(1..),
                [first, ..] if first & 3 == 0 => datum.get(4..).filter(|payload| payload.len() > SHORT_PAYLOAD_MAX),
                _ => None,
            };
            match payload {
                Some(payload) => {
                    let first = first_bytes(payload);
                    if first <= min_first && self.min.is_none_or(|min| !is_equal(payload, min) && payload < min) {
                        (self.min, min_first) = (Some(payload), first);
                    }
                    if first >= max_first && self.max.is_none_or(|max| !is_equal(payload, max) && payload > max) {
                        (self.max, max_first) = (Some(payload), first);
                    }
                    rows.push(payload);
                }
                None if datum.is_empty() => rows.push(&[]),
                None if self.exceptions.rows.len() >= exceptions_max => {
                    self.exceptions = Datums::default();
                    (self.min, self.max) = (None, None);
                    return self.datum(spans, level, data);
                }
                None => {
                    self.exceptions.push(row, datum);
                    rows.push(&[]);
                }
            }
        }
        EncodedValues::Payload(StringChunk::encode(&rows, level, data))
    }

    /// Encodes whole datums.
    fn datum(&mut self, spans: &[DatumSpan], level: Level, data: &mut Vec<u8>) -> EncodedValues {
        let rows: Vec<&[u8]> = spans.iter().map(|span| span.datum(self.pages)).collect();
        EncodedValues::Datum(StringChunk::encode(&rows, level, data))
    }
}
