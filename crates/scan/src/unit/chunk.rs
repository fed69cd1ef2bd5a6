//! A chunk: a run of whole pages with at most 65,536 line pointers, and all that the directory knows of their rows.

use super::attribute::{AttributeChunk, Rows};
use super::encoding::IntChunk;
use super::model::{ATTRIBUTES_MASK, HEADER_FIELDS, HeaderField, Model, PageEntry};
use super::shape::{Level, Shape};
use cellar_format::bytes::{Corrupt, Reader, Write};

/// Bits of `t_infomask` (`access/htup_details.h`).
const XMIN_COMMITTED: u16 = 0x0100;
const XMIN_FROZEN: u16 = 0x0300;
const XMAX_INVALID: u16 = 0x0800;

/// What the tuple headers of a chunk say about who sees its rows. Only of pages that are kept as rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkVisibility {
    /// Every page is marked all-visible.
    pub all_visible: bool,
    /// Every row is frozen.
    pub all_frozen: bool,
    /// Every row's inserter is frozen or hinted committed.
    pub all_committed: bool,
    /// No row was deleted, updated or locked: every `xmax` is hinted invalid.
    pub no_xmax: bool,
    /// Least and greatest `xmin`, as numbers without their epoch; those of frozen rows included.
    pub xmin_min: u32,
    pub xmin_max: u32,
}

/// A run of pages. Source of the fields: [`HeaderField`].
#[derive(Debug)]
pub struct Chunk {
    pub(super) pages: std::ops::Range<usize>,
    pub(super) first_row: u32,
    pub(super) rows: u32,
    pub(super) first_line: u32,
    pub(super) line_state: IntChunk,
    pub(super) line_rest: IntChunk,
    pub(super) headers: [IntChunk; HEADER_FIELDS.len()],
    pub(super) attributes: Vec<AttributeChunk>,
    infomask_all: u16,
}

/// Rows and line pointers of a run of pages.
pub(super) struct Extent {
    pub pages: std::ops::Range<usize>,
    pub rows: std::ops::Range<usize>,
    pub lines: std::ops::Range<usize>,
}

/// The run of pages, with their rows and line pointers.
pub(super) fn extent(pages: &[PageEntry], range: std::ops::Range<usize>) -> Extent {
    let (mut rows, mut lines) = (0, 0);
    for page in &pages[range.clone()] {
        rows += page.rows as usize;
        lines += page.lines as usize;
    }
    let (row, line) = pages.get(range.start).map_or((0, 0), |page| (page.first_row as usize, page.first_line as usize));
    Extent { pages: range, rows: row..row + rows, lines: line..line + lines }
}

impl Chunk {
    pub(super) fn encode(
        model: &Model,
        shape: &Shape,
        bytes: &[u8],
        extent: &Extent,
        level: Level,
        data: &mut Vec<u8>,
    ) -> Self {
        let Extent { pages, rows, lines } = extent;
        let headers = || model.headers.of(rows.clone());
        let natts =
            |fields: &[i64; HEADER_FIELDS.len()]| (fields[HeaderField::Infomask2 as usize] & ATTRIBUTES_MASK) as usize;
        let every_row_has = headers().map(|(fields, _)| natts(fields)).min().unwrap_or(0);
        let natts: Vec<u16> = match every_row_has >= shape.attributes.len() {
            true => Vec::new(),
            false => headers().flat_map(|(fields, count)| std::iter::repeat_n(natts(fields) as u16, count)).collect(),
        };
        let mut scratch = Vec::new();
        let attributes = shape.attributes.iter().zip(&model.columns).enumerate().map(|(index, (attribute, column))| {
            let rows = Rows { attribute, pages: bytes, column, natts: &natts, index, range: rows.clone() };
            AttributeChunk::encode(rows, level, data)
        });
        let attributes = attributes.collect();
        Self {
            pages: pages.clone(),
            first_row: rows.start as u32,
            rows: rows.len() as u32,
            first_line: lines.start as u32,
            line_state: model.lines.encode(0, lines.clone(), &mut scratch, data),
            line_rest: model.lines.encode(1, lines.clone(), &mut scratch, data),
            headers: std::array::from_fn(|field| model.headers.encode(field, rows.clone(), &mut scratch, data)),
            attributes,
            infomask_all: headers()
                .fold(u16::MAX, |all, (fields, _)| all & fields[HeaderField::Infomask as usize] as u16),
        }
    }

    /// The pages, as numbers in the unit.
    pub fn pages(&self) -> std::ops::Range<usize> {
        self.pages.clone()
    }

    /// The rows, as numbers in the unit: all tuples of the pages kept as rows, in block and line pointer order.
    pub fn row_range(&self) -> std::ops::Range<usize> {
        self.first_row as usize..(self.first_row + self.rows) as usize
    }

    pub fn attribute(&self, index: usize) -> Option<&AttributeChunk> {
        self.attributes.get(index)
    }

    pub fn header(&self, field: HeaderField) -> &IntChunk {
        &self.headers[field as usize]
    }

    /// Bytes of all dictionaries and the like, in memory.
    pub(super) fn decoded_bytes_max(&self) -> usize {
        let series = self.headers.iter().chain([&self.line_state, &self.line_rest]);
        let attributes = self.attributes.iter().map(AttributeChunk::decoded_bytes_max);
        series.map(IntChunk::decoded_bytes_max).chain(attributes).sum()
    }

    /// Adds where in the data section lies what is needed to rebuild the rows and line pointers, and is not in memory.
    pub(super) fn expect(
        &self,
        rows: std::ops::Range<usize>,
        lines: std::ops::Range<usize>,
        parts: &mut Vec<std::ops::Range<u32>>,
    ) {
        [&self.line_state, &self.line_rest].into_iter().for_each(|series| series.prefetch(lines.clone(), parts));
        self.headers.iter().for_each(|series| series.prefetch(rows.clone(), parts));
        self.attributes.iter().for_each(|attribute| attribute.expect(rows.clone(), parts));
    }

    pub(super) fn visibility(&self, pages: &[PageEntry]) -> ChunkVisibility {
        const PD_ALL_VISIBLE: u16 = 0x0004;
        let all = self.infomask_all;
        let xmin = self.header(HeaderField::Xmin);
        ChunkVisibility {
            all_visible: pages[self.pages()].iter().all(|page| page.rows == 0 || page.flags & PD_ALL_VISIBLE != 0),
            all_frozen: all & XMIN_FROZEN == XMIN_FROZEN,
            all_committed: all & XMIN_COMMITTED != 0,
            no_xmax: all & XMAX_INVALID != 0,
            xmin_min: xmin.min as u32,
            xmin_max: xmin.max as u32,
        }
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.infomask_all);
        self.line_state.put(out);
        self.line_rest.put(out);
        self.headers.iter().for_each(|header| header.put(out));
        self.attributes.iter().for_each(|attribute| attribute.put(out));
    }

    pub(super) fn get(reader: &mut Reader<'_>, shape: &Shape, extent: Extent) -> std::result::Result<Self, Corrupt> {
        let Extent { pages, rows, lines } = extent;
        let infomask_all = reader.u16("infomask")?;
        let line_state = IntChunk::get(reader, lines.len())?;
        let line_rest = IntChunk::get(reader, lines.len())?;
        let mut headers = Vec::with_capacity(HEADER_FIELDS.len());
        for _ in HEADER_FIELDS {
            headers.push(IntChunk::get(reader, rows.len())?);
        }
        let at = reader.position();
        let headers = headers.try_into().map_err(|_| Corrupt::new("headers", at, "another number of fields"))?;
        let mut attributes = Vec::with_capacity(shape.attributes.len());
        for attribute in &shape.attributes {
            attributes.push(AttributeChunk::get(reader, attribute, rows.len())?);
        }
        Ok(Self {
            pages,
            first_row: rows.start as u32,
            rows: rows.len() as u32,
            first_line: lines.start as u32,
            line_state,
            line_rest,
            headers,
            attributes,
            infomask_all,
        })
    }
}
