//! Values of a unit's columns for a scan: some rows of a chunk at a time.

use super::attribute::{AttributeBlock, AttributeChunk, Decoded, Form, SHORT_PAYLOAD_MAX};
use super::bits::BLOCK_ROWS;
use super::ints::{IntBlock, IntChunk};
use super::model::{ATTRIBUTES_MASK, HEADER_FIELDS, HeaderField};
use super::numeric;
use super::open::Unit;
use super::search::Search;
use super::shape::{Attribute, Number};
use super::source::{Data, Result, UnitSource, corrupt};
use super::strings::Strings;
use crate::bounds::IntRange;
use crate::predicate::{CodeEncoding, ColumnTest, EncodedColumn, StringList};
use cellar_format::postgres::Width;
use std::borrow::Cow;
use std::ops::Range;

/// The values of one attribute in some rows. Of one unit at a time: blocks are told apart by unit and chunk.
#[derive(Debug, Default)]
pub struct ColumnReader {
    unit: Option<u64>,
    last: AttributeBlock,
    natts_block: IntBlock,
    decoded: Decoded,
    natts: Vec<i64>,
    /// What was read: rows of a chunk.
    read: Option<(usize, Range<usize>)>,
    window: Window,
    /// The only string of a chunk, as a list.
    constant: Strings,
    /// For strings by the symbols of one chunk.
    searches: Vec<Search>,
    searches_chunk: usize,
    /// A block of numbers, and the rows in which a piece of text was found.
    scratch: Vec<i64>,
    found: Vec<u16>,
}

/// Bytes of a unit that were read at once, in front of the unit itself.
#[derive(Debug, Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

struct Windowed<'a> {
    window: &'a Window,
    source: &'a dyn UnitSource,
}

impl UnitSource for Windowed<'_> {
    fn read_at(&self, offset: u64, length: usize) -> std::io::Result<Cow<'_, [u8]>> {
        let from = offset.checked_sub(self.window.start).map(|from| from as usize);
        match from.and_then(|from| self.window.bytes.get(from..from.checked_add(length)?)) {
            Some(bytes) => Ok(Cow::Borrowed(bytes)),
            None => self.source.read_at(offset, length),
        }
    }

    fn checked(&self, offset: u64, length: usize) -> Option<&[u8]> {
        self.source.checked(offset, length)
    }
}

/// Marks of a block's rows while those are looked at that contain a test's pieces.
struct Candidates<'a> {
    test: &'a ColumnTest,
    marks: &'a mut [u8],
    /// The first row that nothing was said of yet.
    next: usize,
}

impl Candidates<'_> {
    /// Clears the mark of a row whose payload does not pass; rows before it that were not looked at lack the pieces.
    fn look(&mut self, row: usize, payload: &[u8]) {
        self.pass_over(row);
        self.marks[row] &= u8::from(self.test.passes_bytes(payload) == Some(true));
        self.next = row + 1;
    }

    fn finish(mut self) {
        self.pass_over(self.marks.len());
    }

    fn pass_over(&mut self, until: usize) {
        if !self.test.is_negated() {
            self.marks[self.next..until].fill(0);
        }
    }
}

/// How a column without datums is gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gathering {
    /// Which rows are NULL, and no more.
    Nulls,
    /// Numbers, or numerics as integers.
    Numbers,
    /// Numbers of dictionary entries.
    Codes,
}

/// A block of a chunk of rows, counted from the chunk's first.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    pub unit: &'a Unit,
    pub source: &'a dyn UnitSource,
    pub chunk: usize,
    pub block: usize,
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
            let (decoded, window) = (std::mem::take(&mut self.decoded), std::mem::take(&mut self.window.bytes));
            *self = Self { unit: Some(unit.id()), decoded, ..Self::default() };
            self.window.bytes = window;
            self.window.bytes.clear();
        }
    }

    /// Reads the bytes of `rows` at once, so that their blocks need not be read one by one.
    pub fn load(
        &mut self,
        unit: &Unit,
        source: &dyn UnitSource,
        chunk: usize,
        attribute: usize,
        rows: Range<usize>,
    ) -> Result<()> {
        self.start(unit);
        let (entry, local) = entry(unit, chunk, attribute, &rows)?;
        let extent = entry.extent(local);
        self.window.start = unit.data(source).start + extent.start as u64;
        let length = (extent.end - extent.start) as usize;
        // Where the bytes lie in memory, nothing is gained by reading them at once.
        match length == 0 || source.checked(self.window.start, 0).is_some() {
            true => self.window.bytes.clear(),
            false => {
                let read = source.read_into(self.window.start, length, &mut self.window.bytes);
                read.inspect_err(|_| self.window.bytes.clear())?;
            }
        }
        Ok(())
    }

    /// Whether the next reads will be of few rows, far from one another.
    pub fn set_sparse(&mut self, sparse: bool) {
        self.last.set_sparse(sparse);
        self.natts_block.sparse = sparse;
    }

    /// Clears the marks of rows that are NULL, or of those that are not.
    pub fn retain_nulls(&mut self, at: Block<'_>, attribute: usize, wanted: bool, marks: &mut [u8]) -> Result<()> {
        self.start(at.unit);
        let (data, entry) = (at.unit.data(at.source), attribute_of(at, attribute)?);
        let range = IntRange { lo: 0, hi: 0, inside: wanted };
        entry.validity().retain(data, at.block, &range, &mut self.scratch, marks)
    }

    /// Clears the marks of rows whose number does not pass, or whose dictionary entry's number if it has a dictionary.
    pub fn retain(&mut self, at: Block<'_>, attribute: usize, range: &IntRange, marks: &mut [u8]) -> Result<()> {
        self.start(at.unit);
        let entry = attribute_of(at, attribute)?;
        let source = Windowed { window: &self.window, source: at.source };
        let data = at.unit.data(&source);
        numbers_or_codes(entry, data, attribute)?.retain(data, at.block, range, &mut self.scratch, marks)
    }

    /// As [`Self::retain`], of numbers for which `passes`.
    pub fn retain_each(
        &mut self,
        at: Block<'_>,
        attribute: usize,
        passes: impl Fn(i64) -> bool,
        marks: &mut [u8],
    ) -> Result<()> {
        self.start(at.unit);
        let entry = attribute_of(at, attribute)?;
        let source = Windowed { window: &self.window, source: at.source };
        let data = at.unit.data(&source);
        numbers_or_codes(entry, data, attribute)?.block(data, at.block, &mut self.scratch)?;
        for (mark, value) in marks.iter_mut().zip(&self.scratch) {
            *mark &= u8::from(passes(*value));
        }
        Ok(())
    }

    /// Clears the marks of rows whose payload does not pass. `pieces` are the test's.
    pub fn retain_strings(
        &mut self,
        at: Block<'_>,
        attribute: usize,
        test: &ColumnTest,
        pieces: &[&[u8]],
        marks: &mut [u8],
    ) -> Result<()> {
        let mut candidates = Candidates { test, marks, next: 0 };
        if !pieces.is_empty() && self.search(at, attribute, pieces, |row, payload| candidates.look(row, payload))? {
            candidates.finish();
            return Ok(());
        }
        let Some(chunk) = at.unit.chunks().get(at.chunk) else { return corrupt("chunk", at.chunk, "none") };
        let rows = chunk.row_range();
        let first = rows.start + at.block * BLOCK_ROWS;
        let end = (first + candidates.marks.len()).min(rows.end);
        self.read(at.unit, at.source, at.chunk, attribute, first..end)?;
        if let Some(finder) = test.required_substring() {
            // One search over all strings tells most of them apart.
            let mut found = std::mem::take(&mut self.found);
            self.find(finder, &mut found);
            found.iter().for_each(|row| candidates.look(*row as usize, self.string(*row as usize)));
            candidates.finish();
            self.found = found;
            return Ok(());
        }
        for (row, mark) in candidates.marks.iter_mut().enumerate().filter(|(_, mark)| **mark != 0) {
            *mark = u8::from(test.passes_bytes(self.string(row)) == Some(true));
        }
        Ok(())
    }

    /// Shows the payloads of a block in which the pieces may lie, with their rows, ascending, when strings can be searched
    /// as they are coded; else false.
    fn search(
        &mut self,
        at: Block<'_>,
        attribute: usize,
        pieces: &[&[u8]],
        show: impl FnMut(usize, &[u8]),
    ) -> Result<bool> {
        self.start(at.unit);
        self.read = None;
        let source = Windowed { window: &self.window, source: at.source };
        let data = at.unit.data(&source);
        let Some(strings) = attribute_of(at, attribute)?.strings() else { return Ok(false) };
        let Some(symbols) = strings.searchable(data)? else { return Ok(false) };
        if self.searches_chunk != at.chunk {
            self.searches.clear();
            self.searches_chunk = at.chunk;
        }
        let index = match self.searches.iter().position(|search| search.is_for(pieces)) {
            Some(index) => index,
            None => {
                self.searches.push(Search::new(pieces, symbols));
                self.searches.len() - 1
            }
        };
        strings.search(data, at.block, &mut self.searches[index], self.last.bytes(), show)?;
        Ok(true)
    }

    /// Reads some rows of a block, numbered as there; [`Self::gathered`] shows them.
    pub fn gather(&mut self, at: Block<'_>, attribute: usize, how: Gathering, rows: &[u16]) -> Result<()> {
        self.start(at.unit);
        self.read = None;
        let entry = attribute_of(at, attribute)?;
        let source = Windowed { window: &self.window, source: at.source };
        let data = at.unit.data(&source);
        let Decoded { ints, validity, .. } = &mut self.decoded;
        match entry.nulls {
            0 => validity.clear(),
            _ => entry.validity().gather(data, at.block, rows, &mut self.scratch, validity)?,
        }
        if how == Gathering::Nulls {
            ints.clear();
            return Ok(());
        }
        if let Some(value) = entry.strings().and_then(|strings| strings.constant()) {
            self.constant.clear();
            self.constant.push(value);
            ints.clear();
            ints.resize(rows.len(), 0);
            return Ok(());
        }
        let codes = numbers_or_codes(entry, data, attribute)?;
        codes.gather(data, at.block, rows, &mut self.scratch, ints)
    }

    /// The sum of the numbers in some rows of a chunk, those that stand in for NULLs included.
    pub fn sum(&mut self, at: Block<'_>, attribute: usize, rows: Range<usize>) -> Result<i128> {
        self.start(at.unit);
        let Some(numbers) = attribute_of(at, attribute)?.ints() else {
            return corrupt("column", attribute, "no numbers");
        };
        if rows.end > numbers.count() {
            return corrupt("rows", rows.end, format!("{} in the chunk", numbers.count()));
        }
        let source = Windowed { window: &self.window, source: at.source };
        numbers.sum(at.unit.data(&source), rows, &mut self.scratch)
    }

    /// What was gathered.
    pub fn gathered<'a>(&'a self, at: Block<'a>, attribute: usize, how: Gathering) -> Result<EncodedColumn<'a>> {
        let entry = attribute_of(at, attribute)?;
        let form = match (how, entry.strings()) {
            (Gathering::Codes, Some(strings)) => match strings.dictionary(at.unit.data(at.source))? {
                Some((entries, _)) => CodeEncoding::Strings(StringList { bytes: &entries.bytes, ends: &entries.ends }),
                None => {
                    let Strings { bytes, ends } = &self.constant;
                    CodeEncoding::Strings(StringList { bytes, ends })
                }
            },
            (Gathering::Numbers, _) => CodeEncoding::Numbers {
                scale: entry.numeric_scale(),
                bounds: entry.ints().map_or((i64::MIN, i64::MAX), |ints| (ints.min, ints.max)),
            },
            _ => CodeEncoding::Nulls,
        };
        let Decoded { ints, validity, .. } = &self.decoded;
        Ok(EncodedColumn { codes: ints, validity: (entry.nulls > 0).then_some(validity), encoding: form })
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
        if self.read.as_ref() == Some(&(chunk, rows.clone())) {
            return Ok(());
        }
        self.read = None;
        let (entry, local) = entry(unit, chunk, attribute, &rows)?;
        let source = Windowed { window: &self.window, source };
        entry.read(unit.data(&source), chunk, local, &mut self.last, &mut self.decoded)?;
        self.read = Some((chunk, rows));
        Ok(())
    }

    /// What `test` says of each entry of the chunk's dictionary, of one entry when all rows are equal. None: there is
    /// no dictionary.
    pub fn dictionary(
        &mut self,
        at: Block<'_>,
        attribute: usize,
        test: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Vec<bool>>> {
        let Some(strings) = attribute_of(at, attribute)?.strings() else { return Ok(None) };
        Ok(match (strings.constant(), strings.dictionary(at.unit.data(at.source))?) {
            (Some(value), _) => Some(vec![test(value)]),
            (None, Some((entries, _))) => Some(entries.iter().map(test).collect()),
            (None, None) => None,
        })
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
                let bytes = number.encode(decoded.ints[row]);
                out.resize(attribute.align.up(out.len()), 0);
                let at = out.len() as u32;
                out.extend_from_slice(&bytes[..number.bytes()]);
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

/// The numbers of a column, or those of its dictionary's entries.
fn numbers_or_codes<'a>(entry: &'a AttributeChunk, data: Data<'_>, attribute: usize) -> Result<&'a IntChunk> {
    match (entry.ints(), entry.strings()) {
        (Some(numbers), _) => Ok(numbers),
        (None, Some(strings)) => match strings.dictionary(data)? {
            Some((_, codes)) => Ok(codes),
            None => corrupt("column", attribute, "no dictionary"),
        },
        (None, None) => corrupt("column", attribute, "neither numbers nor codes"),
    }
}

fn attribute_of<'a>(at: Block<'a>, attribute: usize) -> Result<&'a AttributeChunk> {
    match at.unit.chunks().get(at.chunk).and_then(|chunk| chunk.attribute(attribute)) {
        Some(entry) => Ok(entry),
        None => corrupt("column", attribute, format!("none in chunk {}", at.chunk)),
    }
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
