//! Values of a unit's columns for a scan: some rows of a chunk at a time.

use super::attribute::{AttributeBlock, AttributeChunk, Decoded, Form, SHORT_PAYLOAD_MAX};
use super::ints::IntBlock;
use super::model::{ATTRIBUTES_MASK, HEADER_FIELDS, HeaderField};
use super::numeric;
use super::open::Unit;
use super::shape::{Attribute, Number};
use super::source::{Result, UnitSource, corrupt};
use cellar_format::postgres::Width;
use std::ops::Range;
use std::sync::Arc;

/// The values of one attribute in some rows. Of one unit at a time: blocks are told apart by unit and chunk.
#[derive(Debug, Default)]
pub struct ColumnReader {
    unit: Option<u64>,
    last: AttributeBlock,
    codes: IntBlock,
    natts_block: IntBlock,
    decoded: Decoded,
    natts: Vec<i64>,
    /// What was read: rows of a chunk, and whether as codes.
    read: Option<(usize, Range<usize>, bool)>,
    /// Of a dictionary's entries, those of the chunk that was asked for last.
    table: Option<(usize, Arc<[Option<bool>]>)>,
}

/// Fields of the tuple headers of one page.
#[derive(Debug, Default)]
pub struct HeaderReader {
    unit: Option<u64>,
    blocks: [IntBlock; HEADER_FIELDS.len()],
    fields: [Vec<i64>; HEADER_FIELDS.len()],
}

impl HeaderReader {
    /// The fields that tell who sees a row.
    const NEEDED: [HeaderField; 4] =
        [HeaderField::Xmin, HeaderField::Xmax, HeaderField::Infomask2, HeaderField::Infomask];

    pub fn read(&mut self, unit: &Unit, source: &dyn UnitSource, page: usize) -> Result<()> {
        if self.unit != Some(unit.id()) {
            *self = Self { unit: Some(unit.id()), ..Self::default() };
        }
        let rows = unit.page_rows(page);
        let Some((place, chunk)) = unit.chunk_of(page) else { return corrupt("page", page, "in no chunk") };
        let first = chunk.row_range().start;
        for field in Self::NEEDED {
            let index = field as usize;
            self.fields[index].clear();
            let rows = rows.start - first..rows.end - first;
            chunk.header(field).read(
                unit.data(source),
                place,
                rows,
                &mut self.blocks[index],
                &mut self.fields[index],
            )?;
        }
        Ok(())
    }

    /// One number for each row of the page.
    pub fn field(&self, field: HeaderField) -> &[i64] {
        &self.fields[field as usize]
    }
}

impl AttributeChunk {
    /// The decimal scale, when numerics are held as integers.
    pub fn numeric_scale(&self) -> Option<u8> {
        if let Form::Numeric { scale } = self.form() { Some(scale) } else { None }
    }

    /// The values are numbers, or numerics as integers.
    pub fn is_number(&self) -> bool {
        matches!(self.form(), Form::Number | Form::Numeric { .. })
    }

    /// The values are varlenas' payloads.
    pub fn is_payload(&self) -> bool {
        self.form() == Form::Payload
    }
}

impl ColumnReader {
    fn start(&mut self, unit: &Unit) {
        if self.unit != Some(unit.id()) {
            *self = Self { unit: Some(unit.id()), decoded: std::mem::take(&mut self.decoded), ..Self::default() };
        }
    }

    /// Reads `rows`, numbered as in the unit, all of chunk `chunk`.
    pub fn read(
        &mut self,
        unit: &Unit,
        source: &dyn UnitSource,
        chunk: usize,
        attribute: usize,
        rows: Range<usize>,
    ) -> Result<()> {
        self.start(unit);
        if self.read.as_ref() == Some(&(chunk, rows.clone(), false)) {
            return Ok(());
        }
        self.read = None;
        let (entry, local) = entry(unit, chunk, attribute, &rows)?;
        entry.read(unit.data(source), chunk, local, &mut self.last, &mut self.decoded)?;
        self.read = Some((chunk, rows, false));
        Ok(())
    }

    /// As [`Self::read`], but the numbers of dictionary entries instead of the strings.
    pub fn read_codes(
        &mut self,
        unit: &Unit,
        source: &dyn UnitSource,
        chunk: usize,
        attribute: usize,
        rows: Range<usize>,
    ) -> Result<()> {
        self.start(unit);
        self.read = None;
        let (entry, local) = entry(unit, chunk, attribute, &rows)?;
        let data = unit.data(source);
        self.decoded.ints.clear();
        match entry.strings() {
            Some(strings) => match strings.dictionary(data)? {
                Some((_, codes)) => codes.read(data, chunk, local.clone(), &mut self.codes, &mut self.decoded.ints)?,
                None => self.decoded.ints.resize(local.len(), 0),
            },
            None => return corrupt("column", attribute, "no dictionary"),
        }
        entry.read_validity(data, chunk, local, &mut self.last, &mut self.decoded)?;
        self.read = Some((chunk, rows, true));
        Ok(())
    }

    /// What `test` says of each entry of the chunk's dictionary, of one entry when all rows are equal. None: there is
    /// no dictionary. The answers are kept for the chunk.
    pub fn dictionary(
        &mut self,
        unit: &Unit,
        source: &dyn UnitSource,
        chunk: usize,
        attribute: usize,
        test: impl Fn(&[u8]) -> Option<bool>,
    ) -> Result<Option<Arc<[Option<bool>]>>> {
        self.start(unit);
        if let Some((known, table)) = &self.table
            && *known == chunk
        {
            return Ok(Some(Arc::clone(table)));
        }
        let (entry, _) = entry(unit, chunk, attribute, &unit.chunks()[chunk].row_range())?;
        let Some(strings) = entry.strings() else { return Ok(None) };
        let table: Arc<[Option<bool>]> = match (strings.constant(), strings.dictionary(unit.data(source))?) {
            (Some(value), _) => [test(value)].into(),
            (None, Some((entries, _))) => entries.iter().map(test).collect(),
            (None, None) => return Ok(None),
        };
        self.table = Some((chunk, Arc::clone(&table)));
        Ok(Some(table))
    }

    /// Attributes of each row's tuple.
    pub fn read_natts(&mut self, unit: &Unit, source: &dyn UnitSource, chunk: usize, rows: Range<usize>) -> Result<()> {
        let Some(entry) = unit.chunks().get(chunk) else { return corrupt("chunk", chunk, "none") };
        let first = entry.row_range().start;
        self.natts.clear();
        let series = entry.header(HeaderField::Infomask2);
        let local = rows.start - first..rows.end - first;
        series.read(unit.data(source), chunk, local, &mut self.natts_block, &mut self.natts)
    }

    pub fn natts(&self, row: usize) -> usize {
        (self.natts[row] & ATTRIBUTES_MASK) as usize
    }

    #[inline(always)]
    pub fn is_null(&self, row: usize) -> bool {
        self.decoded.is_null(row)
    }

    /// The rows in whose payload the piece occurs, ascending. Pieces that run over a payload's end are not told apart.
    pub fn find(&self, finder: &memchr::memmem::Finder<'_>, out: &mut Vec<u16>) {
        out.clear();
        let ends = &self.decoded.strings.ends;
        let mut row = 0;
        for at in finder.find_iter(&self.decoded.strings.bytes) {
            // An occurrence that starts inside this one is not reported: it may be another row's.
            let last = at + finder.needle().len() - 1;
            row += ends[row..].partition_point(|end| *end as usize <= at);
            let mut found = row;
            while found < ends.len() {
                if out.last() != Some(&(found as u16)) {
                    out.push(found as u16);
                }
                if ends[found] as usize > last {
                    break;
                }
                found += 1;
            }
        }
    }

    /// As [`Self::push_datum`] for all of `rows`, when the values are four- or eight-byte integers; else false.
    pub fn push_numbers(
        &self,
        attribute: &Attribute,
        rows: &[u16],
        locations: &mut [u32; 1 << 16],
        out: &mut Vec<u8>,
    ) -> bool {
        let bytes = match Number::of(attribute) {
            Some(Number::I32 | Number::U32) => 4,
            Some(Number::I64) => 8,
            _ => return false,
        };
        out.resize(attribute.align.up(out.len()), 0);
        let mut at = out.len();
        out.resize(at + rows.len() * bytes, 0);
        for row in rows {
            let value = self.decoded.ints[*row as usize].to_le_bytes();
            out[at..at + bytes].copy_from_slice(&value[..bytes]);
            locations[*row as usize] = at as u32;
            at += bytes;
        }
        true
    }

    /// Numbers or codes; as many as rows were read.
    pub fn ints(&self) -> &[i64] {
        &self.decoded.ints
    }

    /// A payload; empty for a row without a value.
    pub fn string(&self, row: usize) -> &[u8] {
        self.decoded.strings.get(row).unwrap_or_default()
    }

    /// Appends the row's whole datum, aligned, and says where it starts.
    #[inline(always)]
    pub fn push_datum(&self, attribute: &Attribute, row: usize, out: &mut Vec<u8>) -> Result<u32> {
        let decoded = &self.decoded;
        if !decoded.exceptions.is_empty()
            && let Ok(index) = decoded.exceptions.binary_search_by_key(&(row as u32), |(row, _)| *row)
        {
            return Ok(push_aligned(attribute, &decoded.exceptions[index].1, out));
        }
        Ok(match decoded.form {
            Form::Number => {
                let Some(number) = Number::of(attribute) else { return corrupt("value", row, "not a number") };
                let (bytes, count) = number.encode(decoded.ints[row]);
                out.resize(attribute.align.up(out.len()), 0);
                let at = out.len() as u32;
                out.extend_from_slice(&bytes[..count]);
                at
            }
            Form::Numeric { scale } => {
                let Some((bytes, count)) = numeric::encode(decoded.ints[row], scale) else {
                    return corrupt("value", row, "not a numeric");
                };
                let at = out.len() as u32;
                out.extend_from_slice(&bytes[..count]);
                at
            }
            Form::Payload => {
                let payload = decoded.strings.get(row).unwrap_or_default();
                let at;
                if payload.len() <= SHORT_PAYLOAD_MAX {
                    at = out.len() as u32;
                    out.push(((payload.len() + 1) << 1 | 1) as u8);
                } else {
                    out.resize(attribute.align.up(out.len()), 0);
                    at = out.len() as u32;
                    out.extend_from_slice(&((payload.len() as u32 + 4) << 2).to_le_bytes());
                }
                out.extend_from_slice(payload);
                at
            }
            Form::Datum => push_aligned(attribute, decoded.strings.get(row).unwrap_or_default(), out),
        })
    }
}

fn push_aligned(attribute: &Attribute, datum: &[u8], out: &mut Vec<u8>) -> u32 {
    let short = attribute.width == Width::Varlena && datum.first().is_some_and(|first| first & 1 == 1);
    if !short {
        out.resize(attribute.align.up(out.len()), 0);
    }
    let at = out.len() as u32;
    out.extend_from_slice(datum);
    at
}

fn entry<'a>(
    unit: &'a Unit,
    chunk: usize,
    attribute: usize,
    rows: &Range<usize>,
) -> Result<(&'a AttributeChunk, Range<usize>)> {
    let found = unit.chunks().get(chunk).filter(|found| {
        let all = found.row_range();
        all.start <= rows.start && rows.end <= all.end
    });
    match found.and_then(|found| Some((found.attribute(attribute)?, found.row_range().start))) {
        Some((entry, first)) => Ok((entry, rows.start - first..rows.end - first)),
        None => corrupt("column", attribute, format!("rows {rows:?} of chunk {chunk}")),
    }
}
