//! Parses heap pages into columns: one column for each field of page, line pointer and tuple header, and one for each attribute.
//!
//! A field that follows from other fields in most tuples is stored as its difference from the derived value: a tuple's offset as
//! the distance from where PostgreSQL would have placed the tuple, `ctid` as the distance from the tuple itself. A page that the
//! columns cannot express is stored raw, and the columns contain none of its rows. Parsing also determines whether the columns
//! predict every byte of a page; such a page needs no patch.
//! Source: `storage/bufpage.h`, `storage/itemid.h`, `access/htup_details.h`, `access/tupmacs.h`.

mod values;

pub(super) use values::{DatumSpan, NO_SCALE, Numerics, Values};

use super::field_runs::FieldRuns;
use super::numeric;
use super::page::{
    ATTRIBUTES_MASK, HAS_NULLS, HEADER_FIELDS, LP_NORMAL, PAGE_HEADER_BYTES, PageEntry, PageKind, TUPLE_HEADER_BYTES,
    data_offset,
};
use super::shape::{Attribute, Shape};
use crate::heap::{Page, u16_at, u32_at, varlena};
use cellar_format::postgres::{Align, Width};
use cellar_format::units::BLOCK_BYTES;

/// The parsed pages of a unit. The memory is reused for the next unit.
pub(super) struct ParsedPages {
    pub pages: Vec<PageEntry>,
    /// For each page: whether the columns predict all of its bytes, so that the page needs no patch.
    pub predicted: Vec<bool>,
    /// For each line pointer: its state; its offset and length where the line pointer has no tuple, else 0.
    pub lines: FieldRuns<2>,
    /// For each row, in the order of [`HEADER_FIELDS`].
    pub headers: FieldRuns<{ HEADER_FIELDS.len() }>,
    pub columns: Vec<ParsedColumn>,
    /// The current page's tuples in line pointer order.
    tuples: Vec<TuplePlace>,
    /// The current page's rows in descending order of offsets.
    order: Vec<u16>,
}

/// An attribute's values.
pub(super) struct ParsedColumn {
    width: Width,
    align_mask: usize,
    /// 0 where a row is NULL, else 1; empty as long as no row is NULL.
    pub validity: Vec<i64>,
    pub values: Values,
}

/// Where a tuple is in its page.
struct TuplePlace {
    offset: u16,
    length: u16,
    /// Number of the line pointer, from 1.
    line: u16,
    /// See [`HeaderField::Rank`](super::page::HeaderField::Rank) and `Gap`.
    rank: i16,
    gap: i32,
}

/// The columns cannot express the page.
struct NotExpressible;

impl ParsedPages {
    pub fn new(shape: &Shape) -> Self {
        Self {
            pages: Vec::new(),
            predicted: Vec::new(),
            lines: FieldRuns::default(),
            headers: FieldRuns::default(),
            columns: shape.attributes.iter().map(ParsedColumn::new).collect(),
            tuples: Vec::new(),
            order: Vec::new(),
        }
    }

    /// Pages that are all stored raw.
    pub fn raw(pages: usize, shape: &Shape) -> Self {
        let mut parsed = Self::new(shape);
        parsed.pages = vec![PageEntry { kind: PageKind::Raw, ..PageEntry::EMPTY }; pages];
        parsed.predicted = vec![false; pages];
        parsed
    }

    /// Replaces the content by these pages.
    pub fn parse(&mut self, pages: &[u8]) {
        self.truncate(0, 0);
        self.pages.clear();
        self.predicted.clear();
        let mut padded = PaddedPage([0; BLOCK_BYTES + 8]);
        for (index, page) in pages.chunks_exact(BLOCK_BYTES).enumerate() {
            padded.0[..BLOCK_BYTES].copy_from_slice(page);
            let (lines, rows) = (self.lines.len(), self.headers.len());
            let (mut entry, predicted) = match self.parse_page(&padded, index) {
                Ok(parsed) => parsed,
                Err(NotExpressible) => {
                    self.truncate(lines, rows);
                    (PageEntry { kind: PageKind::Raw, ..PageEntry::EMPTY }, false)
                }
            };
            (entry.first_line, entry.first_row) = (lines as u32, rows as u32);
            self.pages.push(entry);
            self.predicted.push(predicted);
        }
        let rows = self.headers.len();
        let with_nulls = self.columns.iter_mut().filter(|column| !column.validity.is_empty());
        with_nulls.for_each(|column| column.validity.resize(rows, 1));
    }

    fn truncate(&mut self, lines: usize, rows: usize) {
        self.lines.truncate(lines);
        self.headers.truncate(rows);
        for column in &mut self.columns {
            column.validity.truncate(rows);
            column.values.truncate(rows);
        }
    }

    /// Appends the page's line pointers and rows; returns its entry, and whether the columns predict all of its bytes.
    fn parse_page(&mut self, padded: &PaddedPage, index: usize) -> Result<(PageEntry, bool), NotExpressible> {
        let page = padded.page();
        let (lower, upper) = (u16_at(page, 12) as usize, u16_at(page, 14) as usize);
        if upper == 0 && is_zero(page) {
            return Ok((PageEntry::EMPTY, true));
        }
        // A page that a heap scan would pass through is stored raw.
        if !matches!(Page::new(page), Ok(Some(_))) || !lower.is_multiple_of(4) {
            return Err(NotExpressible);
        }
        let lines = (lower - PAGE_HEADER_BYTES) / 4;
        self.tuples.clear();
        for line in 0..lines {
            let pointer = u32_at(page, PAGE_HEADER_BYTES + line * 4);
            let state = (pointer >> 15 & 3) as i64;
            if state != LP_NORMAL {
                self.lines.push([state, (pointer & 0x7fff | pointer >> 17 << 15) as i64]);
                continue;
            }
            self.lines.push([state, 0]);
            let (offset, length) = ((pointer & 0x7fff) as u16, (pointer >> 17) as u16);
            let is_inside = offset as usize + length as usize <= BLOCK_BYTES;
            if (offset as usize) < upper || !offset.is_multiple_of(8) || !is_inside {
                return Err(NotExpressible);
            }
            self.tuples.push(TuplePlace { offset, length, line: line as u16 + 1, rank: 0, gap: 0 });
        }
        let (lowest, mut predicted) = self.rank_tuples(padded);
        predicted &= padded.is_zero(lower, lowest);
        for row in 0..self.tuples.len() {
            predicted &= self.parse_tuple(padded, index, row)?;
        }
        let entry = PageEntry {
            kind: PageKind::Rows,
            lsn: (u32_at(page, 0) as u64) << 32 | u32_at(page, 4) as u64,
            checksum: u16_at(page, 8),
            flags: u16_at(page, 10),
            prune_xid: u32_at(page, 20),
            lines: lines as u16,
            rows: self.tuples.len() as u16,
            upper: (upper as i64 - lowest as i64) as i16,
            ..PageEntry::EMPTY
        };
        Ok((entry, predicted))
    }

    /// Computes rank and gap of the page's tuples; returns the lowest offset, and whether all bytes between tuples are zero.
    fn rank_tuples(&mut self, padded: &PaddedPage) -> (usize, bool) {
        let Self { tuples, order, .. } = self;
        order.clear();
        order.extend(0..tuples.len() as u16);
        if !tuples.is_sorted_by(|a, b| a.offset >= b.offset) {
            order.sort_by_key(|row| std::cmp::Reverse(tuples[*row as usize].offset));
        }
        let mut next = BLOCK_BYTES;
        let mut zeros_between = true;
        for (rank, row) in order.iter().enumerate() {
            let tuple = &mut tuples[*row as usize];
            let expected = next as i32 - Align::Double.up(tuple.length as usize) as i32;
            zeros_between &= padded.is_zero((tuple.offset + tuple.length) as usize, next);
            next = tuple.offset as usize;
            (tuple.rank, tuple.gap) = (rank as i16 - *row as i16, expected - next as i32);
        }
        (next, zeros_between)
    }

    /// Appends a tuple to the columns. Returns whether the columns predict all bytes of the tuple: attributes are aligned as their
    /// types require, and padding is zero.
    #[inline]
    fn parse_tuple(&mut self, padded: &PaddedPage, index: usize, row_in_page: usize) -> Result<bool, NotExpressible> {
        let (page, place) = (padded.page(), &self.tuples[row_in_page]);
        let (start, end) = (place.offset as usize, (place.offset + place.length) as usize);
        let header = page.get(start..start + TUPLE_HEADER_BYTES).ok_or(NotExpressible)?;
        let (infomask2, infomask) = (u16_at(header, 18) as i64, u16_at(header, 20) as i64);
        let natts = (infomask2 & ATTRIBUTES_MASK) as usize;
        let has_nulls = infomask & HAS_NULLS != 0;
        let expected = data_offset(natts, has_nulls);
        let offset = header[22] as usize;
        let bitmap = start + TUPLE_HEADER_BYTES;
        let bitmap_end = bitmap + if has_nulls { natts.div_ceil(8) } else { 0 };
        let mut cursor = start + offset;
        if natts > self.columns.len() || cursor > end || bitmap_end > cursor || !offset.is_multiple_of(8) {
            return Err(NotExpressible);
        }
        let (base, row) = ((index * BLOCK_BYTES) as u32, self.headers.len());
        let mut predicted = padded.is_zero(bitmap_end, cursor);
        if has_nulls && !natts.is_multiple_of(8) {
            predicted &= padded.0[bitmap_end - 1] >> (natts % 8) == 0;
        }
        // Tuple offsets and `t_hoff` are multiples of eight, so an offset in the page is aligned if the offset in the tuple is.
        let (present, missing) = self.columns.split_at_mut(natts);
        for (attribute, column) in present.iter_mut().enumerate() {
            let ParsedColumn { width, align_mask, validity, values } = column;
            if has_nulls && padded.0[bitmap + attribute / 8] >> (attribute % 8) & 1 == 0 {
                validity.resize(row, 1);
                validity.push(0);
                values.push_missing();
                continue;
            }
            let aligned = (cursor + *align_mask) & !*align_mask;
            let at = match width {
                Width::Fixed(bytes) => {
                    predicted &= padded.is_zero(cursor, aligned);
                    cursor = aligned + *bytes as usize;
                    aligned
                }
                Width::Varlena => {
                    // Padding is zero, and the first byte of an unaligned (one-byte) header is not.
                    let at = if padded.word(cursor) & 0xff == 0 { aligned } else { cursor };
                    let is_short = padded.word(at) & 1 == 1;
                    predicted &= at == if is_short { cursor } else { aligned } && padded.is_zero(cursor, at);
                    cursor = at + varlena::datum_bytes(page, at, end).ok_or(NotExpressible)?;
                    at
                }
                Width::Cstring => {
                    let rest = page.get(cursor..end).ok_or(NotExpressible)?;
                    let at = cursor;
                    cursor += memchr::memchr(0, rest).ok_or(NotExpressible)? + 1;
                    at
                }
            };
            if cursor > end {
                return Err(NotExpressible);
            }
            match values {
                Values::Numbers(number, values) => values.push(number.decode(padded.word(at))),
                Values::Numerics(numerics) => {
                    let datum = || page.get(at..cursor);
                    let value = numeric::decode_start(padded.word(at)).or_else(|| numeric::decode(datum()?));
                    numerics.push(value, span(base, at..cursor));
                }
                Values::Datums(spans) => spans.push(span(base, at..cursor)),
            }
        }
        missing.iter_mut().for_each(|column| column.values.push_missing());
        let ctid_block = (u16_at(header, 12) as u32) << 16 | u16_at(header, 14) as u32;
        self.headers.push([
            u32_at(header, 0) as i64,
            u32_at(header, 4) as i64,
            u32_at(header, 8) as i64,
            ctid_block.wrapping_sub(index as u32) as i64,
            u16_at(header, 16) as i64 - place.line as i64,
            infomask2,
            infomask,
            offset as i64 - expected as i64,
            end as i64 - cursor as i64,
            place.rank as i64,
            place.gap as i64,
        ]);
        Ok(predicted && padded.is_zero(cursor, end))
    }
}

impl ParsedColumn {
    fn new(attribute: &Attribute) -> Self {
        let (width, align_mask) = (attribute.width, attribute.align.bytes() - 1);
        Self { width, align_mask, validity: Vec::new(), values: Values::new(attribute) }
    }
}

/// A page followed by eight zero bytes, so that eight bytes can be read from any offset.
struct PaddedPage([u8; BLOCK_BYTES + 8]);

impl PaddedPage {
    fn page(&self) -> &[u8] {
        &self.0[..BLOCK_BYTES]
    }

    /// Eight bytes from an offset within the page.
    #[inline(always)]
    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at % BLOCK_BYTES..][..8].try_into().expect("eight bytes"))
    }

    #[inline(always)]
    fn is_zero(&self, from: usize, to: usize) -> bool {
        match to.wrapping_sub(from) {
            bytes @ 0..8 => self.word(from) & !(u64::MAX << (8 * bytes)) == 0,
            _ => self.0.get(from..to).is_some_and(is_zero),
        }
    }
}

/// The span of a datum at `place` of the page that starts at `base`.
#[inline(always)]
fn span(base: u32, place: std::ops::Range<usize>) -> DatumSpan {
    DatumSpan { at: base + place.start as u32, bytes: place.len() as u32 }
}

#[inline(always)]
fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
