//! Heap pages taken apart: one series of numbers or datums for each field of page, line pointer, tuple and attribute.
//!
//! Each series holds what cannot be foretold: offsets as distances from where the tuple would have been placed, `ctid`
//! as a distance from the tuple itself. A page that does not look like this stays raw, and none of it is in a series.
//! Taking a page apart also tells whether the series foretell all of it: then it needs no patch.
//! Source: `storage/bufpage.h`, `storage/itemid.h`, `access/htup_details.h`, `access/tupmacs.h`.

use super::attribute::{Span, Values};
use super::shape::Shape;
use crate::heap::{Page, u16_at, u32_at, varlena};
use cellar_format::postgres::{Align, Width};
use cellar_format::units::BLOCK_BYTES;

pub(super) const PAGE_HEADER_BYTES: usize = 24;
/// BLCKSZ with page layout version 4.
pub(super) const PAGE_SIZE_VERSION: u16 = BLOCK_BYTES as u16 | 4;
pub(super) const LP_NORMAL: i64 = 1;
pub(super) const TUPLE_HEADER_BYTES: usize = 23;
pub(super) const HAS_NULLS: i64 = 0x0001;
pub(super) const ATTRIBUTES_MASK: i64 = 0x07ff;
pub const LINES_MAX: usize = (BLOCK_BYTES - PAGE_HEADER_BYTES) / 4;

/// The series of tuple headers, one number a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum HeaderField {
    Xmin,
    Xmax,
    /// `t_cid` or `t_xvac`.
    Field3,
    /// Block of `t_ctid`, less the page's number in the unit.
    CtidBlock,
    /// Line pointer of `t_ctid`, less the tuple's own.
    CtidLine,
    Infomask2,
    Infomask,
    /// `t_hoff`, less what bitmap and alignment ask for.
    DataOffset,
    /// Length in the line pointer, less the end of the last attribute.
    Length,
    /// Place among the page's tuples from the page's end on, less the number of the row in the page.
    Rank,
    /// Bytes between the tuple and the one that lies behind it in the page, beyond alignment.
    Gap,
}

pub const HEADER_FIELDS: [HeaderField; 11] = [
    HeaderField::Xmin,
    HeaderField::Xmax,
    HeaderField::Field3,
    HeaderField::CtidBlock,
    HeaderField::CtidLine,
    HeaderField::Infomask2,
    HeaderField::Infomask,
    HeaderField::DataOffset,
    HeaderField::Length,
    HeaderField::Rank,
    HeaderField::Gap,
];

/// How a page is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// Nothing but zeroes.
    Zero = 0,
    /// As rows.
    Rows = 1,
    /// As it is.
    Raw = 2,
}

/// What is kept of a page's header. Source: `PageHeaderData`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageEntry {
    pub kind: PageKind,
    pub lsn: u64,
    pub checksum: u16,
    pub flags: u16,
    pub prune_xid: u32,
    /// Line pointers, and those of them that point to tuples.
    pub lines: u16,
    pub rows: u16,
    /// `pd_upper`, less where the lowest tuple lies.
    pub upper: i16,
    /// The first line pointer and the first row of the page in the unit.
    pub first_line: u32,
    pub first_row: u32,
}

impl PageEntry {
    pub(super) const EMPTY: Self = Self {
        kind: PageKind::Zero,
        lsn: 0,
        checksum: 0,
        flags: 0,
        prune_xid: 0,
        lines: 0,
        rows: 0,
        upper: 0,
        first_line: 0,
        first_row: 0,
    };
}

/// The pages of a unit, taken apart.
pub(super) struct Model {
    pub pages: Vec<PageEntry>,
    /// By page: nothing but what the series hold is in it, and zeroes where these foretell zeroes.
    pub foretold: Vec<bool>,
    /// By line pointer: its state, and offset and length where these are no tuple's.
    pub line_state: Vec<i64>,
    pub line_rest: Vec<i64>,
    pub headers: [Vec<i64>; HEADER_FIELDS.len()],
    /// By attribute: 0 where a row is NULL; empty as long as no row is.
    pub validity: Vec<Vec<i64>>,
    pub values: Vec<Values>,
}

/// A tuple that has been placed, while its page is taken apart.
struct Placed {
    offset: u16,
    length: u16,
    line: u16,
}

/// The page is not such as the series can hold.
struct Odd;

impl Model {
    pub fn new(pages: &[u8], shape: &Shape) -> Self {
        let mut model = Self {
            pages: Vec::with_capacity(pages.len() / BLOCK_BYTES),
            foretold: Vec::with_capacity(pages.len() / BLOCK_BYTES),
            line_state: Vec::new(),
            line_rest: Vec::new(),
            headers: Default::default(),
            validity: vec![Vec::new(); shape.attributes.len()],
            values: shape.attributes.iter().map(Values::new).collect(),
        };
        let steps: Vec<(Width, Align)> = shape.attributes.iter().map(|a| (a.width, a.align)).collect();
        let mut placed = Vec::new();
        for (index, page) in pages.chunks_exact(BLOCK_BYTES).enumerate() {
            let (lines, rows) = (model.line_state.len(), model.rows());
            let (mut entry, foretold) = match model.page(pages, page, index, &steps, &mut placed) {
                Ok(taken) => taken,
                Err(Odd) => {
                    model.truncate(lines, rows);
                    (PageEntry { kind: PageKind::Raw, ..PageEntry::EMPTY }, false)
                }
            };
            (entry.first_line, entry.first_row) = (lines as u32, rows as u32);
            model.pages.push(entry);
            model.foretold.push(foretold);
        }
        model
    }

    pub fn rows(&self) -> usize {
        self.headers[0].len()
    }

    fn truncate(&mut self, lines: usize, rows: usize) {
        self.line_state.truncate(lines);
        self.line_rest.truncate(lines);
        self.headers.iter_mut().for_each(|series| series.truncate(rows));
        self.validity.iter_mut().for_each(|series| series.truncate(rows));
        self.values.iter_mut().for_each(|values| values.truncate(rows));
    }

    fn page(
        &mut self,
        pages: &[u8],
        page: &[u8],
        index: usize,
        steps: &[(Width, Align)],
        placed: &mut Vec<Placed>,
    ) -> Result<(PageEntry, bool), Odd> {
        let (lower, upper) = (u16_at(page, 12) as usize, u16_at(page, 14) as usize);
        if upper == 0 && is_zero(page) {
            return Ok((PageEntry::EMPTY, true));
        }
        // What a heap scan would pass through is kept raw.
        if !matches!(Page::new(page), Ok(Some(_))) || !lower.is_multiple_of(4) {
            return Err(Odd);
        }
        let lines = (lower - PAGE_HEADER_BYTES) / 4;
        placed.clear();
        let mut foretold = true;
        for line in 0..lines {
            let pointer = u32_at(page, PAGE_HEADER_BYTES + line * 4);
            let state = (pointer >> 15 & 3) as i64;
            self.line_state.push(state);
            if state != LP_NORMAL {
                self.line_rest.push((pointer & 0x7fff | pointer >> 17 << 15) as i64);
                continue;
            }
            self.line_rest.push(0);
            let tuple =
                Placed { offset: (pointer & 0x7fff) as u16, length: (pointer >> 17) as u16, line: line as u16 + 1 };
            if (tuple.offset as usize) < upper || !tuple.offset.is_multiple_of(8) {
                return Err(Odd);
            }
            foretold &= self.tuple(pages, page, index, &tuple, steps)?;
            placed.push(tuple);
        }
        let (lowest, zeroes_between) = self.place(page, placed);
        foretold &= zeroes_between && page.get(lower..lowest as usize).is_some_and(is_zero);
        let entry = PageEntry {
            kind: PageKind::Rows,
            lsn: (u32_at(page, 0) as u64) << 32 | u32_at(page, 4) as u64,
            checksum: u16_at(page, 8),
            flags: u16_at(page, 10),
            prune_xid: u32_at(page, 20),
            lines: lines as u16,
            rows: placed.len() as u16,
            upper: (upper as i64 - lowest) as i16,
            ..PageEntry::EMPTY
        };
        Ok((entry, foretold))
    }

    /// The series of a page's tuples about where they lie; returns the lowest offset, and whether between the tuples
    /// there are only zeroes.
    fn place(&mut self, page: &[u8], placed: &[Placed]) -> (i64, bool) {
        let first = self.headers[HeaderField::Rank as usize].len();
        for series in [HeaderField::Rank, HeaderField::Gap] {
            self.headers[series as usize].resize(first + placed.len(), 0);
        }
        let mut order: Vec<usize> = (0..placed.len()).collect();
        if !placed.is_sorted_by(|a, b| a.offset >= b.offset) {
            order.sort_by_key(|row| std::cmp::Reverse(placed[*row].offset));
        }
        let mut behind = BLOCK_BYTES as i64;
        let mut zeroes_between = true;
        for (rank, row) in order.into_iter().enumerate() {
            let expected = behind - Align::Double.up(placed[row].length as usize) as i64;
            let end = (placed[row].offset + placed[row].length) as usize;
            zeroes_between &= page.get(end..behind as usize).is_some_and(is_zero);
            behind = placed[row].offset as i64;
            self.headers[HeaderField::Rank as usize][first + row] = rank as i64 - row as i64;
            self.headers[HeaderField::Gap as usize][first + row] = expected - behind;
        }
        (behind, zeroes_between)
    }

    /// Whether the tuple's bytes are all foretold: alignment where it must be, and nothing in it.
    #[inline]
    fn tuple(
        &mut self,
        pages: &[u8],
        page: &[u8],
        index: usize,
        placed: &Placed,
        steps: &[(Width, Align)],
    ) -> Result<bool, Odd> {
        let (start, length) = (placed.offset as usize, placed.length as usize);
        let tuple = page.get(start..start + length).filter(|tuple| tuple.len() >= TUPLE_HEADER_BYTES).ok_or(Odd)?;
        let (infomask2, infomask) = (u16_at(tuple, 18) as i64, u16_at(tuple, 20) as i64);
        let natts = (infomask2 & ATTRIBUTES_MASK) as usize;
        let has_nulls = infomask & HAS_NULLS != 0;
        let expected = data_offset(natts, has_nulls);
        let offset = tuple[22] as usize;
        let bitmap = if has_nulls { natts.div_ceil(8) } else { 0 };
        if natts > steps.len() || offset > length || TUPLE_HEADER_BYTES + bitmap > offset || !offset.is_multiple_of(8) {
            return Err(Odd);
        }
        let (base, row) = (index * BLOCK_BYTES + start, self.rows());
        let mut cursor = offset;
        let mut foretold = is_zero(&tuple[TUPLE_HEADER_BYTES + bitmap..offset]);
        if has_nulls && !natts.is_multiple_of(8) {
            foretold &= tuple[TUPLE_HEADER_BYTES + natts / 8] >> (natts % 8) == 0;
        }
        for (attribute, (width, align)) in steps.iter().enumerate() {
            let values = &mut self.values[attribute];
            let is_missing = attribute >= natts;
            let is_null =
                has_nulls && !is_missing && tuple[TUPLE_HEADER_BYTES + attribute / 8] >> (attribute % 8) & 1 == 0;
            let validity = &mut self.validity[attribute];
            if is_null && validity.is_empty() {
                validity.resize(row, 1);
            }
            if is_null || !validity.is_empty() {
                validity.push(i64::from(!is_null));
            }
            if is_null || is_missing {
                values.push_nothing();
                continue;
            }
            let (at, end) = match width {
                Width::Fixed(bytes) => {
                    let at = align_from(cursor, offset, *align);
                    (at, at + *bytes as usize)
                }
                Width::Varlena => {
                    // Padding is zeroes; a header that needs none is not zero at first.
                    let aligned = align_from(cursor, offset, *align);
                    let at = if tuple.get(cursor) == Some(&0) { aligned } else { cursor };
                    let bytes = varlena::datum_bytes(tuple, at, length).ok_or(Odd)?;
                    let is_short = tuple[at] & 1 == 1;
                    foretold &= at == if is_short { cursor } else { aligned };
                    (at, at + bytes)
                }
                Width::Cstring => {
                    let rest = tuple.get(cursor..).ok_or(Odd)?;
                    (cursor, cursor + memchr::memchr(0, rest).ok_or(Odd)? + 1)
                }
            };
            let datum = tuple.get(at..end).ok_or(Odd)?;
            foretold &= at == cursor || is_zero(&tuple[cursor..at]);
            match values {
                Values::Numbers(number, values) => values.push(number.decode(datum)),
                Values::Numerics(numerics) => numerics.push(datum, span(base, at..end)),
                Values::Datums(spans) => {
                    debug_assert_eq!(&pages[base + at..base + end], datum);
                    spans.push(span(base, at..end));
                }
            }
            cursor = end;
        }
        let ctid_block = (u16_at(tuple, 12) as u32) << 16 | u16_at(tuple, 14) as u32;
        let fields = [
            u32_at(tuple, 0) as i64,
            u32_at(tuple, 4) as i64,
            u32_at(tuple, 8) as i64,
            ctid_block.wrapping_sub(index as u32) as i64,
            u16_at(tuple, 16) as i64 - placed.line as i64,
            infomask2,
            infomask,
            offset as i64 - expected as i64,
            length as i64 - cursor as i64,
        ];
        for (series, field) in self.headers.iter_mut().zip(fields) {
            series.push(field);
        }
        Ok(foretold && is_zero(&tuple[cursor..]))
    }
}

impl Values {
    /// A row without a value repeats the one before.
    #[inline(always)]
    fn push_nothing(&mut self) {
        match self {
            Self::Numbers(_, values) => values.push(values.last().copied().unwrap_or(0)),
            Self::Numerics(numerics) => numerics.push(&[], Span::default()),
            Self::Datums(spans) => spans.push(Span::default()),
        }
    }
}

/// A datum that lies at `place` of the tuple that starts at `base`.
#[inline(always)]
fn span(base: usize, place: std::ops::Range<usize>) -> Span {
    Span { at: (base + place.start) as u32, bytes: place.len() as u32 }
}

#[inline(always)]
fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// `cursor`, aligned as counted from where the tuple's data start.
#[inline(always)]
fn align_from(cursor: usize, data: usize, align: Align) -> usize {
    data + align.up(cursor - data)
}

/// Where a tuple's data start.
#[inline(always)]
pub(super) fn data_offset(natts: usize, has_nulls: bool) -> usize {
    let bitmap = if has_nulls { natts.div_ceil(8) } else { 0 };
    Align::Double.up(TUPLE_HEADER_BYTES + bitmap)
}

const _: () = assert!(LINES_MAX < u16::MAX as usize);
