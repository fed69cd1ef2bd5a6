//! Reads a unit's columns for a scan: some rows of a chunk at a time, as datums or as encoded values.

mod datum;
mod headers;
mod retain;
mod row_strings;
mod window;

pub use headers::HeaderReader;

use super::attribute::{AttributeCache, AttributeChunk, DecodedValues};
use super::chunk::Chunk;
use super::encoding::{IntBlockCache, IntChunk, Strings, SymbolSearch};
use super::open::Unit;
use super::page::{ATTRIBUTES_MASK, HeaderField};
use super::section::{DataSection, Result, corrupt};
use crate::predicate::{CodeEncoding, EncodedColumn, StringList};
use cellar_format::ByteSource;
use row_strings::RowStrings;
use std::ops::Range;
use window::Window;

/// A chunk of a unit.
#[derive(Clone, Copy)]
pub struct ChunkRef<'a> {
    pub unit: &'a Unit,
    pub source: &'a dyn ByteSource,
    /// The chunk's number in the unit.
    pub number: usize,
}

impl<'a> ChunkRef<'a> {
    pub fn entry(&self) -> Result<&'a Chunk> {
        match self.unit.chunks().get(self.number) {
            Some(chunk) => Ok(chunk),
            None => corrupt("chunk", self.number, "none"),
        }
    }

    /// An attribute's directory entry.
    pub fn attribute(&self, attribute: usize) -> Result<&'a AttributeChunk> {
        match self.entry()?.attribute(attribute) {
            Some(entry) => Ok(entry),
            None => corrupt("column", attribute, format!("none in chunk {}", self.number)),
        }
    }

    pub fn block(self, block: usize) -> BlockRef<'a> {
        BlockRef { chunk: self, block }
    }

    /// An attribute's directory entry, and `rows` converted from row numbers in the unit to row numbers in the chunk.
    fn attribute_rows(&self, attribute: usize, rows: &Range<usize>) -> Result<(&'a AttributeChunk, Range<usize>)> {
        let all = self.entry()?.row_range();
        if rows.start < all.start || all.end < rows.end {
            return corrupt("column", attribute, format!("rows {rows:?} of chunk {}", self.number));
        }
        Ok((self.attribute(attribute)?, rows.start - all.start..rows.end - all.start))
    }
}

/// A block of a chunk.
#[derive(Clone, Copy)]
pub struct BlockRef<'a> {
    pub chunk: ChunkRef<'a>,
    /// The block's number in the chunk.
    pub block: usize,
}

/// What [`ColumnReader::gather`] reads of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatherMode {
    /// Which rows are NULL.
    Nulls,
    /// Numbers, or numerics as integers.
    Numbers,
    /// Codes of dictionary entries.
    Codes,
    /// Payloads without a dictionary.
    Strings,
}

/// Reads one attribute of a unit. Caches the most recently decoded blocks of one unit.
#[derive(Debug, Default)]
pub struct ColumnReader {
    unit: Option<u64>,
    cache: AttributeCache,
    natts_cache: IntBlockCache,
    decoded: DecodedValues,
    natts: Vec<i64>,
    /// Chunk and rows of `decoded`.
    read: Option<(usize, Range<usize>)>,
    window: Window,
    /// The constant of a chunk as a list of one string.
    constant: Strings,
    /// Searches by the symbols of chunk `searches_chunk`.
    searches: Vec<SymbolSearch>,
    searches_chunk: usize,
    row_strings: RowStrings,
    /// A block of numbers.
    scratch: Vec<i64>,
    /// Rows in which a text was found.
    found: Vec<u16>,
}

impl ColumnReader {
    /// Clears the caches if they belong to another unit. Reuses their memory.
    fn switch_to(&mut self, unit: &Unit) {
        if self.unit != Some(unit.id()) {
            let (decoded, mut window) = (std::mem::take(&mut self.decoded), std::mem::take(&mut self.window));
            window.clear();
            *self = Self { unit: Some(unit.id()), decoded, window, ..Self::default() };
        }
    }

    /// Returns the memory of the window, the decoded values and the caches in bytes.
    pub fn memory_bytes(&self) -> usize {
        let numbers = self.natts.capacity() + self.scratch.capacity();
        let caches = self.cache.memory_bytes() + self.constant.memory_bytes() + self.row_strings.memory_bytes();
        numbers * 8 + caches + self.decoded.memory_bytes() + self.window.memory_bytes()
    }

    /// Reads the encoded bytes of `rows` (row numbers in the unit) with one request, instead of one request per block.
    pub fn load(&mut self, at: ChunkRef<'_>, attribute: usize, rows: Range<usize>) -> Result<()> {
        self.switch_to(at.unit);
        let (entry, rows) = at.attribute_rows(attribute, &rows)?;
        let (start, range) = (at.unit.section(at.source).start, entry.row_bytes(rows));
        self.window.load(at.source, start + u64::from(range.start)..start + u64::from(range.end))
    }

    /// Sets whether the next reads are of scattered rows.
    pub fn set_sparse(&mut self, sparse: bool) {
        self.cache.set_sparse(sparse);
        self.natts_cache.sparse = sparse;
    }

    /// Decodes `rows`, which are row numbers in the unit, all in one chunk.
    pub fn read(&mut self, at: ChunkRef<'_>, attribute: usize, rows: Range<usize>) -> Result<()> {
        self.switch_to(at.unit);
        if self.read.as_ref() == Some(&(at.number, rows.clone())) {
            return Ok(());
        }
        self.read = None;
        let (entry, local) = at.attribute_rows(attribute, &rows)?;
        let source = self.window.over(at.source);
        entry.read(at.unit.section(&source), at.number, local, &mut self.cache, &mut self.decoded)?;
        self.read = Some((at.number, rows));
        Ok(())
    }

    /// Whether the value of a row is NULL. `row` counts from the first decoded row.
    #[inline(always)]
    pub fn is_null(&self, row: usize) -> bool {
        self.decoded.is_null(row)
    }

    /// The payload of a row, counted from the first decoded row; empty for a row without a value.
    pub fn string(&self, row: usize) -> &[u8] {
        self.decoded.strings.get(row).unwrap_or_default()
    }

    /// Reads the number of attributes of each row's tuple.
    pub fn read_natts(&mut self, at: ChunkRef<'_>, rows: Range<usize>) -> Result<()> {
        let chunk = at.entry()?;
        let first = chunk.row_range().start;
        self.natts.clear();
        let infomask2 = chunk.header(HeaderField::Infomask2);
        let local = rows.start - first..rows.end - first;
        infomask2.read(at.unit.section(at.source), at.number, local, &mut self.natts_cache, &mut self.natts)
    }

    /// The number of attributes of a row's tuple, after [`Self::read_natts`].
    pub fn natts(&self, row: usize) -> usize {
        (self.natts[row] & ATTRIBUTES_MASK) as usize
    }

    /// The result of `test` for each entry of the chunk's dictionary, or for the chunk's constant. None if the payloads have
    /// another encoding.
    pub fn test_list(
        &mut self,
        at: ChunkRef<'_>,
        attribute: usize,
        mut test: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<Vec<bool>>> {
        let Some(strings) = at.attribute(attribute)?.payloads() else { return Ok(None) };
        Ok(match (strings.constant(), strings.dictionary(at.unit.section(at.source))?) {
            (Some(value), _) => Some(vec![test(value)]),
            (None, Some((entries, _))) => Some(entries.iter().map(test).collect()),
            (None, None) => None,
        })
    }

    /// The sum of the numbers in `rows` (row numbers in the chunk), including placeholders.
    pub fn sum(&mut self, at: ChunkRef<'_>, attribute: usize, rows: Range<usize>) -> Result<i128> {
        self.switch_to(at.unit);
        let Some(numbers) = at.attribute(attribute)?.ints() else {
            return corrupt("column", attribute, "no numbers");
        };
        if rows.end > numbers.count() {
            return corrupt("rows", rows.end, format!("{} in the chunk", numbers.count()));
        }
        let source = self.window.over(at.source);
        numbers.sum(at.unit.section(&source), rows, &mut self.scratch)
    }

    /// Reads the encoded values of `rows` (row numbers in the block). [`Self::gathered`] returns the values.
    pub fn gather(&mut self, at: BlockRef<'_>, attribute: usize, mode: GatherMode, rows: &[u16]) -> Result<()> {
        self.switch_to(at.chunk.unit);
        if mode == GatherMode::Strings {
            return self.gather_strings(at, attribute, rows);
        }
        self.read = None;
        let entry = at.chunk.attribute(attribute)?;
        let source = self.window.over(at.chunk.source);
        let section = at.chunk.unit.section(&source);
        let DecodedValues { ints, validity, .. } = &mut self.decoded;
        match entry.nulls {
            0 => validity.clear(),
            _ => entry.validity().gather(section, at.block, rows, &mut self.scratch, validity)?,
        }
        if mode == GatherMode::Nulls {
            ints.clear();
            return Ok(());
        }
        if let Some(value) = entry.payloads().and_then(|strings| strings.constant()) {
            self.constant.clear();
            self.constant.push(value);
            ints.clear();
            ints.resize(rows.len(), 0);
            return Ok(());
        }
        let codes = numbers_or_codes(entry, section, attribute)?;
        codes.gather(section, at.block, rows, &mut self.scratch, ints)
    }

    /// The values that [`Self::gather`] read.
    pub fn gathered<'a>(&'a self, at: ChunkRef<'a>, attribute: usize, mode: GatherMode) -> Result<EncodedColumn<'a>> {
        if mode == GatherMode::Strings {
            return Ok(self.row_strings.column(&self.decoded.strings));
        }
        let entry = at.attribute(attribute)?;
        let encoding = match (mode, entry.payloads()) {
            (GatherMode::Codes, Some(strings)) => match strings.dictionary(at.unit.section(at.source))? {
                Some((entries, _)) => CodeEncoding::Strings(StringList { bytes: &entries.bytes, ends: &entries.ends }),
                None => {
                    let Strings { bytes, ends } = &self.constant;
                    CodeEncoding::Strings(StringList { bytes, ends })
                }
            },
            (GatherMode::Numbers, _) => CodeEncoding::Numbers {
                scale: entry.numeric_scale(),
                bounds: entry.ints().map_or((i64::MIN, i64::MAX), |ints| (ints.min, ints.max)),
            },
            _ => CodeEncoding::Nulls,
        };
        let DecodedValues { ints, validity, .. } = &self.decoded;
        Ok(EncodedColumn { codes: ints, validity: (entry.nulls > 0).then_some(validity), encoding })
    }
}

/// The numbers of a column, or the codes of its dictionary.
fn numbers_or_codes<'a>(entry: &'a AttributeChunk, section: DataSection<'_>, attribute: usize) -> Result<&'a IntChunk> {
    match (entry.ints(), entry.payloads()) {
        (Some(numbers), _) => Ok(numbers),
        (None, Some(strings)) => match strings.dictionary(section)? {
            Some((_, codes)) => Ok(codes),
            None => corrupt("column", attribute, "no dictionary"),
        },
        (None, None) => corrupt("column", attribute, "neither numbers nor codes"),
    }
}
