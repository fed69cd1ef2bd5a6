//! One attribute in one chunk of rows: its values, NULLs, bounds, and the datums that do not fit the chunk's form.
//!
//! Every row of the chunk has an entry; that of a NULL, of an attribute that the tuple does not have, and of an
//! exception repeats a neighbour's value and means nothing.

use super::ints::{CHUNK_ROWS, IntBlock, IntChunk, cached};
use super::model::Column;
use super::shape::{Attribute, Level, Number};
use super::source::{Data, Part, Result, corrupt, put_varint, varint, zstd_compress, zstd_decompress};
use super::strings::{ByteBlock, ByteChunk, Strings, is_equal, start_of};
use crate::bounds::IntRange;
use cellar_format::bytes::{Corrupt, Reader, Write};
use cellar_format::postgres::{Width, type_oid};
use std::sync::OnceLock;

/// The most of a string that bounds keep.
const BOUND_BYTES: usize = 32;
/// The longest payload with a one-byte header.
pub const SHORT_PAYLOAD_MAX: usize = 126;
/// One row in so many may be an exception.
const EXCEPTION_SHARE: usize = 16;

/// Where a datum lies in the pages; `bytes` is 0 when there is none.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Span {
    pub at: u32,
    pub bytes: u32,
}

/// The values of an attribute, as the pages hold them.
#[derive(Debug)]
pub(super) enum Values {
    Numbers(Number, Vec<i64>),
    Numerics(Numerics),
    Datums(Vec<Span>),
}

/// Numerics, read while their pages are at hand.
#[derive(Debug, Default)]
pub(super) struct Numerics {
    /// By row, the value times `10^scale`; the scale is [`NO_SCALE`] where there is no such value.
    pub values: Vec<i64>,
    pub scales: Vec<u8>,
    pub spans: Vec<Span>,
}

/// No numeric has this display scale in a short header.
const NO_SCALE: u8 = u8::MAX;

impl Numerics {
    #[inline(always)]
    pub fn push(&mut self, value_and_scale: Option<(i64, u8)>, span: Span) {
        let (value, scale) = value_and_scale.unwrap_or((0, NO_SCALE));
        self.values.push(value);
        self.scales.push(scale);
        self.spans.push(span);
    }
}

impl Values {
    pub fn new(attribute: &Attribute) -> Self {
        match Number::of(attribute) {
            Some(number) => Self::Numbers(number, Vec::new()),
            None if attribute.type_oid == type_oid::NUMERIC && attribute.width == Width::Varlena => {
                Self::Numerics(Numerics::default())
            }
            None => Self::Datums(Vec::new()),
        }
    }

    pub fn truncate(&mut self, rows: usize) {
        match self {
            Self::Numbers(_, values) => values.truncate(rows),
            Self::Numerics(numerics) => {
                numerics.values.truncate(rows);
                numerics.scales.truncate(rows);
                numerics.spans.truncate(rows);
            }
            Self::Datums(spans) => spans.truncate(rows),
        }
    }
}

#[derive(Debug)]
enum Body {
    /// A fixed-width value of 1, 2, 4 or 8 bytes.
    Number(IntChunk),
    /// Numerics with one display scale, as integers.
    Numeric { scale: u8, ints: IntChunk },
    /// Varlenas with the shortest header that their payload allows.
    Payload(ByteChunk),
    /// Whole datums.
    Datum(ByteChunk),
}

mod tag {
    pub const NUMBER: u8 = 0;
    pub const NUMERIC: u8 = 1;
    pub const PAYLOAD: u8 = 2;
    pub const DATUM: u8 = 3;
}

/// Least and greatest of the values that are neither NULL nor missing nor exceptions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bounds {
    /// There is no such value, or nothing is known of their order.
    None,
    /// Numbers as [`super::ColumnReader`] hands them out.
    Number { min: i64, max: i64 },
    /// Numerics times `10^scale`.
    Numeric { min: i64, max: i64, scale: u8 },
    /// Payloads in the order of their bytes, of which only the first 32 are kept.
    Bytes { min: Vec<u8>, max: Vec<u8>, max_is_cut: bool },
}

#[derive(Debug)]
struct Exceptions {
    part: Part,
    raw_bytes: u32,
    count: u32,
    datums: OnceLock<Datums>,
}

/// Whole datums of some rows.
#[derive(Debug, Default)]
struct Datums {
    /// In the chunk, ascending.
    rows: Vec<u32>,
    datums: Strings,
}

/// An attribute's entry in the directory, for one chunk of rows.
#[derive(Debug)]
pub struct AttributeChunk {
    rows: u32,
    /// Rows that are NULL, and rows whose tuple ends before the attribute.
    pub nulls: u32,
    pub missing: u32,
    /// 0 where the row is NULL.
    validity: IntChunk,
    body: Body,
    exceptions: Option<Exceptions>,
    min: Vec<u8>,
    max: Vec<u8>,
    max_is_cut: bool,
}

/// The last blocks that were read of an attribute.
#[derive(Debug, Default)]
pub(super) struct AttributeBlock {
    ints: IntBlock,
    bytes: ByteBlock,
    validity: IntBlock,
}

impl AttributeBlock {
    pub fn bytes(&mut self) -> &mut ByteBlock {
        &mut self.bytes
    }

    pub fn held_bytes(&self) -> usize {
        self.bytes.held_bytes()
    }

    /// Whether the next read will not be of the rows that follow.
    pub fn set_sparse(&mut self, sparse: bool) {
        self.ints.sparse = sparse;
        self.bytes.codes.sparse = sparse;
        self.validity.sparse = sparse;
    }

    /// Whether the next read is likely the only one of its blocks and frames.
    pub fn set_lone(&mut self, lone: bool) {
        self.set_sparse(lone);
        self.bytes.lone = lone;
    }
}

/// Values of some rows in a row, as they are decoded.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    /// 0 where the row is NULL; empty when no row of the chunk is.
    pub validity: Vec<i64>,
    /// Of a number or numeric body.
    pub ints: Vec<i64>,
    /// Of the others.
    pub strings: Strings,
    pub form: Form,
    /// Rows counted from the first decoded one, ascending, with their whole datums.
    pub exceptions: Vec<(u32, Vec<u8>)>,
}

impl Decoded {
    #[inline(always)]
    pub fn is_null(&self, row: usize) -> bool {
        self.validity.get(row) == Some(&0)
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    #[default]
    Number,
    Numeric {
        scale: u8,
    },
    Payload,
    Datum,
}

/// What is to be encoded of one attribute in one chunk.
pub(super) struct Rows<'a> {
    pub attribute: &'a Attribute,
    pub pages: &'a [u8],
    pub column: &'a Column,
    /// Attributes of the tuple of each row of the range; empty when all tuples have all.
    pub natts: &'a [u16],
    /// The attribute's number, from 0.
    pub index: usize,
    pub range: std::ops::Range<usize>,
}

impl AttributeChunk {
    pub(super) fn encode(rows: Rows<'_>, level: Level, data: &mut Vec<u8>) -> Self {
        let Rows { attribute, pages, column, natts, index, range } = rows;
        let validity_rows = column.validity.get(range.clone()).unwrap_or_default();
        let is_missing = |natts: &u16| *natts as usize <= index;
        let missing = natts.iter().filter(|natts| is_missing(natts)).count() as u32;
        let nulls = validity_rows.iter().filter(|valid| **valid == 0).count() as u32;
        let count = range.len() as u32;
        let mut builder = Builder { pages, exceptions: Datums::default(), min: None, max: None };
        let body = match &column.values {
            Values::Numbers(_, values) if nulls + missing == 0 => {
                Body::Number(IntChunk::encode(&values[range.clone()], data))
            }
            Values::Numbers(_, values) => {
                // Rows before the first value get that value too.
                let has_value =
                    |row: &usize| validity_rows.get(*row) != Some(&0) && !natts.get(*row).is_some_and(is_missing);
                let mut values = values[range.clone()].to_vec();
                let before = (0..values.len()).find(has_value).unwrap_or(values.len());
                let value = values.get(before).copied().unwrap_or(0);
                values[..before].fill(value);
                Body::Number(IntChunk::encode(&values, data))
            }
            Values::Numerics(numerics) => match builder.numeric(numerics, range.clone(), data) {
                Some(body) => body,
                None => builder.payload(&numerics.spans[range.clone()], level, data),
            },
            Values::Datums(spans) if attribute.width == Width::Varlena => {
                builder.payload(&spans[range.clone()], level, data)
            }
            Values::Datums(spans) => builder.datum(&spans[range.clone()], level, data),
        };
        let validity = match validity_rows {
            [] => IntChunk::constant_of(range.len(), i64::from(!range.is_empty())),
            rows => IntChunk::encode(rows, data),
        };
        let (min, max) = (builder.min.unwrap_or_default(), builder.max.unwrap_or_default());
        let cut = |bound: &[u8]| bound[..bound.len().min(BOUND_BYTES)].to_vec();
        Self {
            rows: count,
            nulls,
            missing,
            validity,
            body,
            exceptions: builder.exceptions.encode(data),
            min: cut(min),
            max: cut(max),
            max_is_cut: max.len() > BOUND_BYTES,
        }
    }

    pub fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Rows whose datum is kept apart: the bounds say nothing about them.
    pub fn exceptions(&self) -> u32 {
        self.exceptions.as_ref().map_or(0, |exceptions| exceptions.count)
    }

    pub fn bounds(&self) -> Bounds {
        if self.nulls as u64 + self.missing as u64 + self.exceptions() as u64 >= self.rows as u64 {
            return Bounds::None;
        }
        match &self.body {
            Body::Number(ints) => Bounds::Number { min: ints.min, max: ints.max },
            Body::Numeric { scale, ints } => Bounds::Numeric { min: ints.min, max: ints.max, scale: *scale },
            Body::Payload(_) => {
                Bounds::Bytes { min: self.min.clone(), max: self.max.clone(), max_is_cut: self.max_is_cut }
            }
            Body::Datum(_) => Bounds::None,
        }
    }

    /// Bytes in the data section, as far as the directory tells.
    pub fn data_bytes(&self) -> usize {
        let body = match &self.body {
            Body::Number(ints) | Body::Numeric { ints, .. } => ints.data_bytes(),
            Body::Payload(bytes) | Body::Datum(bytes) => bytes.data_bytes(),
        };
        let exceptions = self.exceptions.as_ref().map_or(0, |exceptions| exceptions.part.bytes as usize);
        body + self.validity.data_bytes() + exceptions
    }

    /// Bytes that are kept in memory once they were read.
    pub(super) fn kept_bytes_max(&self) -> usize {
        let body = match &self.body {
            Body::Number(ints) | Body::Numeric { ints, .. } => ints.kept_bytes_max(),
            Body::Payload(bytes) | Body::Datum(bytes) => bytes.kept_bytes_max(),
        };
        let exceptions = self.exceptions.as_ref().map_or(0, |kept| kept.raw_bytes as usize + 8 * kept.count as usize);
        body + self.validity.kept_bytes_max() + exceptions
    }

    /// Form and coding, in words.
    pub fn coding_name(&self) -> String {
        match &self.body {
            Body::Number(ints) => ints.coding_name().to_string(),
            Body::Numeric { scale, ints } => format!("numeric*10^{scale}, {}", ints.coding_name()),
            Body::Payload(bytes) => bytes.coding_name().to_string(),
            Body::Datum(bytes) => format!("datum, {}", bytes.coding_name()),
        }
    }

    pub(super) fn form(&self) -> Form {
        match &self.body {
            Body::Number(_) => Form::Number,
            Body::Numeric { scale, .. } => Form::Numeric { scale: *scale },
            Body::Payload(_) => Form::Payload,
            Body::Datum(_) => Form::Datum,
        }
    }

    /// Numbers, or numerics as integers.
    pub(super) fn ints(&self) -> Option<&IntChunk> {
        match &self.body {
            Body::Number(ints) | Body::Numeric { ints, .. } => Some(ints),
            Body::Payload(_) | Body::Datum(_) => None,
        }
    }

    /// Bounds of the numbers, those that stand in for NULLs included.
    pub fn number_bounds(&self) -> Option<(i64, i64)> {
        self.ints().map(|ints| (ints.min, ints.max))
    }

    /// Whether all numbers that are not NULL pass, or none does, as far as their bounds tell.
    pub fn all_pass(&self, range: &IntRange) -> Option<bool> {
        self.ints().and_then(|ints| ints.all_pass(range))
    }

    /// Whether each row's payload is one of a list.
    pub fn has_list(&self) -> bool {
        self.strings().is_some_and(ByteChunk::has_list)
    }

    pub(super) fn validity(&self) -> &IntChunk {
        &self.validity
    }

    /// Where in the data section the values of `rows` lie.
    pub(super) fn extent(&self, rows: std::ops::Range<usize>) -> std::ops::Range<u32> {
        match &self.body {
            Body::Number(ints) | Body::Numeric { ints, .. } => ints.extent(rows),
            Body::Payload(bytes) | Body::Datum(bytes) => bytes.extent(rows),
        }
    }

    /// Adds where in the data section lies what a read of the rows needs and is not in memory yet.
    pub(super) fn expect(&self, rows: std::ops::Range<usize>, parts: &mut Vec<std::ops::Range<u32>>) {
        if self.nulls > 0 {
            self.validity.expect(rows.clone(), parts);
        }
        match &self.body {
            Body::Number(ints) | Body::Numeric { ints, .. } => ints.expect(rows, parts),
            Body::Payload(bytes) | Body::Datum(bytes) => bytes.expect(rows, parts),
        }
        let exceptions = self.exceptions.as_ref().filter(|exceptions| exceptions.datums.get().is_none());
        parts.extend(exceptions.map(|exceptions| exceptions.part.range()));
    }

    pub(super) fn strings(&self) -> Option<&ByteChunk> {
        if let Body::Payload(bytes) = &self.body { Some(bytes) } else { None }
    }

    /// As [`Self::read`], the NULLs alone.
    pub(super) fn read_validity(
        &self,
        data: Data<'_>,
        place: usize,
        rows: std::ops::Range<usize>,
        last: &mut AttributeBlock,
        out: &mut Decoded,
    ) -> Result<()> {
        out.validity.clear();
        if self.nulls == 0 {
            return Ok(());
        }
        self.validity.read(data, place, rows, &mut last.validity, &mut out.validity)
    }

    /// Replaces what is in `out` by the values of `rows`, which lie in the chunk. `place` tells this chunk from the
    /// attribute's others.
    pub(super) fn read(
        &self,
        data: Data<'_>,
        place: usize,
        rows: std::ops::Range<usize>,
        last: &mut AttributeBlock,
        out: &mut Decoded,
    ) -> Result<()> {
        out.ints.clear();
        out.strings.clear();
        out.exceptions.clear();
        out.form = self.form();
        self.read_validity(data, place, rows.clone(), last, out)?;
        match &self.body {
            Body::Number(ints) | Body::Numeric { ints, .. } => {
                ints.read(data, place, rows.clone(), &mut last.ints, &mut out.ints)?
            }
            Body::Payload(bytes) | Body::Datum(bytes) => {
                bytes.read(data, place, rows.clone(), &mut last.bytes, &mut out.strings)?
            }
        }
        if let Some(exceptions) = &self.exceptions {
            let datums = exceptions.datums(data, self.rows)?;
            let first = datums.rows.partition_point(|row| (*row as usize) < rows.start);
            for (index, row) in datums.rows.iter().enumerate().skip(first) {
                if *row as usize >= rows.end {
                    break;
                }
                let datum = datums.datums.get(index).unwrap_or_default().to_vec();
                out.exceptions.push((*row - rows.start as u32, datum));
            }
        }
        Ok(())
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.nulls);
        out.put_u32(self.missing);
        self.validity.put(out);
        match &self.body {
            Body::Number(ints) => {
                out.put_u8(tag::NUMBER);
                ints.put(out);
            }
            Body::Numeric { scale, ints } => {
                out.put_u8(tag::NUMERIC);
                out.put_u8(*scale);
                ints.put(out);
            }
            Body::Payload(bytes) => {
                out.put_u8(tag::PAYLOAD);
                out.put_blob(&self.min);
                out.put_blob(&self.max);
                out.put_bool(self.max_is_cut);
                bytes.put(out);
            }
            Body::Datum(bytes) => {
                out.put_u8(tag::DATUM);
                bytes.put(out);
            }
        }
        out.put_u32(self.exceptions());
        if let Some(exceptions) = &self.exceptions {
            exceptions.part.encode(out);
            out.put_u32(exceptions.raw_bytes);
        }
    }

    pub(super) fn get(
        reader: &mut Reader<'_>,
        attribute: &Attribute,
        rows: usize,
    ) -> std::result::Result<Self, Corrupt> {
        let (nulls, missing) = (reader.u32("nulls")?, reader.u32("missing")?);
        let validity = IntChunk::get(reader, rows)?;
        let (mut min, mut max, mut max_is_cut) = (Vec::new(), Vec::new(), false);
        let at = reader.position();
        let is_number = Number::of(attribute).is_some();
        let body = match reader.u8("form")? {
            tag::NUMBER if is_number => Body::Number(IntChunk::get(reader, rows)?),
            tag::NUMERIC if attribute.width == Width::Varlena => {
                Body::Numeric { scale: reader.u8("scale")?, ints: IntChunk::get(reader, rows)? }
            }
            tag::PAYLOAD if attribute.width == Width::Varlena => {
                (min, max) = (reader.blob("minimum")?.to_vec(), reader.blob("maximum")?.to_vec());
                max_is_cut = reader.bool("cut")?;
                Body::Payload(ByteChunk::get(reader, rows)?)
            }
            tag::DATUM if !is_number => Body::Datum(ByteChunk::get(reader, rows)?),
            other => return Err(Corrupt::new("form", at, other.to_string())),
        };
        let exceptions = match reader.u32("exceptions")? {
            0 => None,
            count => {
                let (part, raw_bytes) = (Part::decode(reader)?, reader.u32("exception bytes")?);
                Some(Exceptions { part, raw_bytes, count, datums: OnceLock::new() })
            }
        };
        Ok(Self { rows: rows as u32, nulls, missing, validity, body, exceptions, min, max, max_is_cut })
    }
}

struct Builder<'a> {
    pages: &'a [u8],
    exceptions: Datums,
    min: Option<&'a [u8]>,
    max: Option<&'a [u8]>,
}

impl<'a> Builder<'a> {
    fn bytes(&self, span: Span) -> &'a [u8] {
        &self.pages[span.at as usize..(span.at + span.bytes) as usize]
    }

    /// None: too few of the values have the commonest scale.
    fn numeric(&mut self, numerics: &Numerics, range: std::ops::Range<usize>, data: &mut Vec<u8>) -> Option<Body> {
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
            return Some(Body::Numeric { scale, ints: IntChunk::encode(values, data) });
        }
        let allowed = spans.len() / EXCEPTION_SHARE;
        let mut ints = Vec::with_capacity(spans.len());
        // Rows before the first value get that value.
        let mut last = None;
        let mut before = 0;
        for (row, (value, found)) in values.iter().zip(scales).enumerate() {
            if *found == scale {
                if last.is_none() {
                    ints.resize(before, *value);
                }
                last = Some(*value);
            } else if spans[row].bytes > 0 {
                if self.exceptions.rows.len() >= allowed {
                    self.exceptions = Datums::default();
                    return None;
                }
                self.exceptions.push(row, self.bytes(spans[row]));
            }
            match last {
                Some(value) => ints.push(value),
                None => before += 1,
            }
        }
        ints.resize(spans.len(), last.unwrap_or(0));
        Some(Body::Numeric { scale, ints: IntChunk::encode(&ints, data) })
    }

    /// Payloads, or whole datums when too many of them have an unusual header.
    fn payload(&mut self, spans: &[Span], level: Level, data: &mut Vec<u8>) -> Body {
        let allowed = spans.len() / EXCEPTION_SHARE;
        let mut rows: Vec<&[u8]> = Vec::with_capacity(spans.len());
        // The first bytes mostly tell which of two payloads is less.
        let (mut min_start, mut max_start) = (u64::MAX, 0);
        for (row, span) in spans.iter().enumerate() {
            let datum = self.bytes(*span);
            let payload = match datum {
                [first, ..] if first & 1 == 1 && *first != 1 => datum.get(1..),
                [first, ..] if first & 3 == 0 => datum.get(4..).filter(|payload| payload.len() > SHORT_PAYLOAD_MAX),
                _ => None,
            };
            match payload {
                Some(payload) => {
                    let start = start_of(payload);
                    if start <= min_start && self.min.is_none_or(|min| !is_equal(payload, min) && payload < min) {
                        (self.min, min_start) = (Some(payload), start);
                    }
                    if start >= max_start && self.max.is_none_or(|max| !is_equal(payload, max) && payload > max) {
                        (self.max, max_start) = (Some(payload), start);
                    }
                    rows.push(payload);
                }
                None if datum.is_empty() => rows.push(&[]),
                None if self.exceptions.rows.len() >= allowed => {
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
        Body::Payload(ByteChunk::encode(&rows, level, data))
    }

    fn datum(&mut self, spans: &[Span], level: Level, data: &mut Vec<u8>) -> Body {
        let rows: Vec<&[u8]> = spans.iter().map(|span| self.bytes(*span)).collect();
        Body::Datum(ByteChunk::encode(&rows, level, data))
    }
}

impl Datums {
    fn push(&mut self, row: usize, datum: &[u8]) {
        self.rows.push(row as u32);
        self.datums.push(datum);
    }

    fn encode(self, data: &mut Vec<u8>) -> Option<Exceptions> {
        if self.rows.is_empty() {
            return None;
        }
        let mut raw = Vec::new();
        let mut last = 0;
        for (row, datum) in self.rows.iter().zip(self.datums.iter()) {
            put_varint(&mut raw, (row - last) as u64);
            put_varint(&mut raw, datum.len() as u64);
            last = *row;
        }
        raw.extend_from_slice(&self.datums.bytes);
        let part = Part::append(data, &zstd_compress(&raw, 3));
        let count = self.rows.len() as u32;
        Some(Exceptions { part, raw_bytes: raw.len() as u32, count, datums: OnceLock::from(self) })
    }
}

impl Exceptions {
    fn datums(&self, data: Data<'_>, rows: u32) -> Result<&Datums> {
        cached(&self.datums, || {
            let (at, raw_bytes) = (self.part.offset as usize, self.raw_bytes as usize);
            if self.count as usize > CHUNK_ROWS || raw_bytes > 1 << 27 {
                return corrupt("exceptions", at, format!("{} in {raw_bytes} bytes", self.count));
            }
            let raw = zstd_decompress(&data.read(self.part, "exceptions")?, raw_bytes, "exceptions")?;
            let mut reader = Reader::new(&raw);
            let mut found = Datums::default();
            let (mut row, mut end) = (0u64, 0u64);
            for _ in 0..self.count {
                row = row.saturating_add(varint(&mut reader, "exception row")?);
                end = end.saturating_add(varint(&mut reader, "exception length")?);
                if row >= rows as u64 || end > raw.len() as u64 {
                    return corrupt("exceptions", at, format!("row {row} of {rows}, end {end} of {}", raw.len()));
                }
                found.rows.push(row as u32);
                found.datums.ends.push(end as u32);
            }
            found.datums.bytes = reader.take(end as usize, "exception datums")?.to_vec();
            reader.finish("exceptions")?;
            Ok(found)
        })
    }
}
