//! A chunk: a run of whole pages with at most 65,536 line pointers, and the directory entries of their rows.

use super::attribute::{AttributeChunk, AttributeRows};
use super::encoding::IntChunk;
use super::page::{ATTRIBUTES_MASK, HEADER_FIELDS, HeaderField, PD_ALL_VISIBLE, PageEntry};
use super::parse::ParsedPages;
use super::shape::{Level, Shape};
use cellar_format::bytes::{Corrupt, Reader, Write};
use std::ops::Range;

/// Bits of `t_infomask` (`access/htup_details.h`).
const XMIN_COMMITTED: u16 = 0x0100;
const XMIN_FROZEN: u16 = 0x0300;
const XMAX_INVALID: u16 = 0x0800;

/// Facts about the visibility of a chunk's rows, from the tuple headers of its pages that are stored as rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkVisibility {
    /// Every page with rows is marked all-visible.
    pub all_visible: bool,
    /// Every row is frozen.
    pub all_frozen: bool,
    /// Every `xmin` is frozen or hinted committed.
    pub all_committed: bool,
    /// Every `xmax` is hinted invalid: no row was deleted, updated or locked.
    pub no_xmax: bool,
    /// Minimum and maximum of `xmin` as 32-bit numbers, including frozen rows.
    pub xmin_min: u32,
    pub xmin_max: u32,
}

/// The directory entries of a run of pages.
#[derive(Debug)]
pub struct Chunk {
    pub(super) pages: Range<usize>,
    pub(super) first_row: u32,
    pub(super) rows: u32,
    pub(super) first_line: u32,
    /// `lp_flags` of each line pointer.
    pub(super) line_state: IntChunk,
    /// Offset and length of each line pointer that has no tuple, else 0.
    pub(super) line_rest: IntChunk,
    pub(super) headers: [IntChunk; HEADER_FIELDS.len()],
    pub(super) attributes: Vec<AttributeChunk>,
    /// AND of `t_infomask` of all rows.
    infomask_all: u16,
}

/// A run of pages with the numbers of its rows and line pointers in the unit.
pub(super) struct Extent {
    pub pages: Range<usize>,
    pub rows: Range<usize>,
    pub lines: Range<usize>,
}

/// Counts the rows and line pointers of the pages `range`.
pub(super) fn extent(pages: &[PageEntry], range: Range<usize>) -> Extent {
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
        parsed: &ParsedPages,
        shape: &Shape,
        bytes: &[u8],
        extent: &Extent,
        level: Level,
        data: &mut Vec<u8>,
    ) -> Self {
        let Extent { pages, rows, lines } = extent;
        let headers = || parsed.headers.overlapping(rows.clone());
        let natts =
            |fields: &[i64; HEADER_FIELDS.len()]| (fields[HeaderField::Infomask2 as usize] & ATTRIBUTES_MASK) as usize;
        let natts_min = headers().map(|(fields, _)| natts(fields)).min().unwrap_or(0);
        let natts: Vec<u16> = match natts_min >= shape.attributes.len() {
            true => Vec::new(),
            false => headers().flat_map(|(fields, count)| std::iter::repeat_n(natts(fields) as u16, count)).collect(),
        };
        let mut scratch = Vec::new();
        let attributes =
            shape.attributes.iter().zip(&parsed.columns).enumerate().map(|(index, (attribute, column))| {
                let rows = AttributeRows { attribute, pages: bytes, column, natts: &natts, index, range: rows.clone() };
                AttributeChunk::encode(rows, level, data)
            });
        let attributes = attributes.collect();
        Self {
            pages: pages.clone(),
            first_row: rows.start as u32,
            rows: rows.len() as u32,
            first_line: lines.start as u32,
            line_state: parsed.lines.encode(0, lines.clone(), &mut scratch, data),
            line_rest: parsed.lines.encode(1, lines.clone(), &mut scratch, data),
            headers: std::array::from_fn(|field| parsed.headers.encode(field, rows.clone(), &mut scratch, data)),
            attributes,
            infomask_all: headers()
                .fold(u16::MAX, |all, (fields, _)| all & fields[HeaderField::Infomask as usize] as u16),
        }
    }

    /// The pages, as numbers in the unit.
    pub fn pages(&self) -> Range<usize> {
        self.pages.clone()
    }

    /// The rows, as numbers in the unit: all tuples of the pages stored as rows, in block and line pointer order.
    pub fn row_range(&self) -> Range<usize> {
        self.first_row as usize..(self.first_row + self.rows) as usize
    }

    pub fn attribute(&self, index: usize) -> Option<&AttributeChunk> {
        self.attributes.get(index)
    }

    pub fn header(&self, field: HeaderField) -> &IntChunk {
        &self.headers[field as usize]
    }

    /// Memory in bytes of the parts that stay decoded after the first read.
    pub(super) fn decoded_bytes_max(&self) -> usize {
        let fields = self.headers.iter().chain([&self.line_state, &self.line_rest]);
        let attributes = self.attributes.iter().map(AttributeChunk::decoded_bytes_max);
        fields.map(IntChunk::decoded_bytes_max).chain(attributes).sum()
    }

    /// Appends the ranges of the data section that rebuilding the rows and line pointers needs and that are not decoded yet.
    pub(super) fn prefetch(&self, rows: Range<usize>, lines: Range<usize>, ranges: &mut Vec<Range<u32>>) {
        [&self.line_state, &self.line_rest].into_iter().for_each(|field| field.prefetch(lines.clone(), ranges));
        self.headers.iter().for_each(|field| field.prefetch(rows.clone(), ranges));
        self.attributes.iter().for_each(|attribute| attribute.prefetch(rows.clone(), ranges));
    }

    pub(super) fn visibility(&self, pages: &[PageEntry]) -> ChunkVisibility {
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

    /// Appends the directory entry.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.infomask_all);
        self.line_state.put(out);
        self.line_rest.put(out);
        self.headers.iter().for_each(|header| header.put(out));
        self.attributes.iter().for_each(|attribute| attribute.put(out));
    }

    /// Reads the directory entry.
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
        let headers = headers.try_into().map_err(|_| Corrupt::new("headers", at, "wrong number of fields"))?;
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
