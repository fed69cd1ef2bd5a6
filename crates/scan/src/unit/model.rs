//! Heap pages taken apart: one series of numbers or datums for each field of page, line pointer, tuple and attribute.
//!
//! Each series holds what cannot be foretold: offsets as distances from where the tuple would have been placed, `ctid`
//! as a distance from the tuple itself. A page that does not look like this stays raw, and none of it is in a series.
//! Taking a page apart also tells whether the series foretell all of it: then it needs no patch.
//! Source: `storage/bufpage.h`, `storage/itemid.h`, `access/htup_details.h`, `access/tupmacs.h`.

use super::attribute::{Span, Values};
use super::field_runs::FieldRuns;
use super::numeric;
use super::shape::{Attribute, Shape};
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

/// The pages of a unit, taken apart. Its memory can be used for one unit after the other.
pub(super) struct Model {
    pub pages: Vec<PageEntry>,
    /// By page: nothing but what the series hold is in it, and zeroes where these foretell zeroes.
    pub foretold: Vec<bool>,
    /// By line pointer: its state, and offset and length where these are no tuple's.
    pub lines: FieldRuns<2>,
    /// By row, in the order of [`HEADER_FIELDS`].
    pub headers: FieldRuns<{ HEADER_FIELDS.len() }>,
    pub columns: Vec<Column>,
    placed: Vec<Placed>,
    order: Vec<u16>,
}

/// An attribute's values.
pub(super) struct Column {
    width: Width,
    align_mask: usize,
    /// 0 where a row is NULL; empty as long as no row is.
    pub validity: Vec<i64>,
    pub values: Values,
}

/// A tuple where it lies, while its page is taken apart.
struct Placed {
    offset: u16,
    length: u16,
    line: u16,
    /// Rank and gap, as the series have them.
    rank: i16,
    gap: i32,
}

/// The page is not such as the series can hold.
struct Odd;

impl Model {
    pub fn new(shape: &Shape) -> Self {
        Self {
            pages: Vec::new(),
            foretold: Vec::new(),
            lines: FieldRuns::default(),
            headers: FieldRuns::default(),
            columns: shape.attributes.iter().map(Column::new).collect(),
            placed: Vec::new(),
            order: Vec::new(),
        }
    }

    /// Replaces what it holds by pages.
    pub fn read(&mut self, pages: &[u8]) {
        self.truncate(0, 0);
        self.pages.clear();
        self.foretold.clear();
        let mut room = Room([0; BLOCK_BYTES + 8]);
        for (index, page) in pages.chunks_exact(BLOCK_BYTES).enumerate() {
            room.0[..BLOCK_BYTES].copy_from_slice(page);
            let (lines, rows) = (self.lines.len(), self.headers.len());
            let (mut entry, foretold) = match self.page(&room, index) {
                Ok(taken) => taken,
                Err(Odd) => {
                    self.truncate(lines, rows);
                    (PageEntry { kind: PageKind::Raw, ..PageEntry::EMPTY }, false)
                }
            };
            (entry.first_line, entry.first_row) = (lines as u32, rows as u32);
            self.pages.push(entry);
            self.foretold.push(foretold);
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

    fn page(&mut self, room: &Room, index: usize) -> Result<(PageEntry, bool), Odd> {
        let page = room.page();
        let (lower, upper) = (u16_at(page, 12) as usize, u16_at(page, 14) as usize);
        if upper == 0 && is_zero(page) {
            return Ok((PageEntry::EMPTY, true));
        }
        // What a heap scan would pass through is kept raw.
        if !matches!(Page::new(page), Ok(Some(_))) || !lower.is_multiple_of(4) {
            return Err(Odd);
        }
        let lines = (lower - PAGE_HEADER_BYTES) / 4;
        self.placed.clear();
        for line in 0..lines {
            let pointer = u32_at(page, PAGE_HEADER_BYTES + line * 4);
            let state = (pointer >> 15 & 3) as i64;
            if state != LP_NORMAL {
                self.lines.push([state, (pointer & 0x7fff | pointer >> 17 << 15) as i64]);
                continue;
            }
            self.lines.push([state, 0]);
            let (offset, length) = ((pointer & 0x7fff) as u16, (pointer >> 17) as u16);
            let within = offset as usize + length as usize <= BLOCK_BYTES;
            if (offset as usize) < upper || !offset.is_multiple_of(8) || !within {
                return Err(Odd);
            }
            self.placed.push(Placed { offset, length, line: line as u16 + 1, rank: 0, gap: 0 });
        }
        let (lowest, mut foretold) = self.place(room);
        foretold &= room.is_zero(lower, lowest);
        for row in 0..self.placed.len() {
            foretold &= self.tuple(room, index, row)?;
        }
        let entry = PageEntry {
            kind: PageKind::Rows,
            lsn: (u32_at(page, 0) as u64) << 32 | u32_at(page, 4) as u64,
            checksum: u16_at(page, 8),
            flags: u16_at(page, 10),
            prune_xid: u32_at(page, 20),
            lines: lines as u16,
            rows: self.placed.len() as u16,
            upper: (upper as i64 - lowest as i64) as i16,
            ..PageEntry::EMPTY
        };
        Ok((entry, foretold))
    }

    /// Finds out what the series say about where the page's tuples lie; returns the lowest offset, and whether between
    /// the tuples there are only zeroes.
    fn place(&mut self, room: &Room) -> (usize, bool) {
        let Self { placed, order, .. } = self;
        order.clear();
        order.extend(0..placed.len() as u16);
        if !placed.is_sorted_by(|a, b| a.offset >= b.offset) {
            order.sort_by_key(|row| std::cmp::Reverse(placed[*row as usize].offset));
        }
        let mut behind = BLOCK_BYTES;
        let mut zeroes_between = true;
        for (rank, row) in order.iter().enumerate() {
            let tuple = &mut placed[*row as usize];
            let expected = behind as i32 - Align::Double.up(tuple.length as usize) as i32;
            zeroes_between &= room.is_zero((tuple.offset + tuple.length) as usize, behind);
            behind = tuple.offset as usize;
            (tuple.rank, tuple.gap) = (rank as i16 - *row as i16, expected - behind as i32);
        }
        (behind, zeroes_between)
    }

    /// Whether the tuple's bytes are all foretold: alignment where it must be, and nothing in it.
    #[inline]
    fn tuple(&mut self, room: &Room, index: usize, row_in_page: usize) -> Result<bool, Odd> {
        let (page, placed) = (room.page(), &self.placed[row_in_page]);
        let (start, end) = (placed.offset as usize, (placed.offset + placed.length) as usize);
        let header = page.get(start..start + TUPLE_HEADER_BYTES).ok_or(Odd)?;
        let (infomask2, infomask) = (u16_at(header, 18) as i64, u16_at(header, 20) as i64);
        let natts = (infomask2 & ATTRIBUTES_MASK) as usize;
        let has_nulls = infomask & HAS_NULLS != 0;
        let expected = data_offset(natts, has_nulls);
        let offset = header[22] as usize;
        let bitmap = start + TUPLE_HEADER_BYTES;
        let bitmap_end = bitmap + if has_nulls { natts.div_ceil(8) } else { 0 };
        let mut cursor = start + offset;
        if natts > self.columns.len() || cursor > end || bitmap_end > cursor || !offset.is_multiple_of(8) {
            return Err(Odd);
        }
        let (base, row) = ((index * BLOCK_BYTES) as u32, self.headers.len());
        let mut foretold = room.is_zero(bitmap_end, cursor);
        if has_nulls && !natts.is_multiple_of(8) {
            foretold &= room.0[bitmap_end - 1] >> (natts % 8) == 0;
        }
        // Both tuple and offset are aligned to eight bytes, so places in the page are aligned as those in the tuple.
        let (present, missing) = self.columns.split_at_mut(natts);
        for (attribute, column) in present.iter_mut().enumerate() {
            let Column { width, align_mask, validity, values } = column;
            if has_nulls && room.0[bitmap + attribute / 8] >> (attribute % 8) & 1 == 0 {
                validity.resize(row, 1);
                validity.push(0);
                values.push_nothing();
                continue;
            }
            let aligned = (cursor + *align_mask) & !*align_mask;
            let at = match width {
                Width::Fixed(bytes) => {
                    foretold &= room.is_zero(cursor, aligned);
                    cursor = aligned + *bytes as usize;
                    aligned
                }
                Width::Varlena => {
                    // Padding is zeroes; a header that needs none is not zero at first.
                    let at = if room.word(cursor) & 0xff == 0 { aligned } else { cursor };
                    let is_short = room.word(at) & 1 == 1;
                    foretold &= at == if is_short { cursor } else { aligned } && room.is_zero(cursor, at);
                    cursor = at + varlena::datum_bytes(page, at, end).ok_or(Odd)?;
                    at
                }
                Width::Cstring => {
                    let rest = page.get(cursor..end).ok_or(Odd)?;
                    let at = cursor;
                    cursor += memchr::memchr(0, rest).ok_or(Odd)? + 1;
                    at
                }
            };
            if cursor > end {
                return Err(Odd);
            }
            match values {
                Values::Numbers(number, values) => values.push(number.decode(room.word(at))),
                Values::Numerics(numerics) => {
                    let datum = || page.get(at..cursor);
                    let value = numeric::decode_start(room.word(at)).or_else(|| numeric::decode(datum()?));
                    numerics.push(value, span(base, at..cursor));
                }
                Values::Datums(spans) => spans.push(span(base, at..cursor)),
            }
        }
        missing.iter_mut().for_each(|column| column.values.push_nothing());
        let ctid_block = (u16_at(header, 12) as u32) << 16 | u16_at(header, 14) as u32;
        self.headers.push([
            u32_at(header, 0) as i64,
            u32_at(header, 4) as i64,
            u32_at(header, 8) as i64,
            ctid_block.wrapping_sub(index as u32) as i64,
            u16_at(header, 16) as i64 - placed.line as i64,
            infomask2,
            infomask,
            offset as i64 - expected as i64,
            end as i64 - cursor as i64,
            placed.rank as i64,
            placed.gap as i64,
        ]);
        Ok(foretold && room.is_zero(cursor, end))
    }
}

impl Column {
    fn new(attribute: &Attribute) -> Self {
        let (width, align_mask) = (attribute.width, attribute.align.bytes() - 1);
        Self { width, align_mask, validity: Vec::new(), values: Values::new(attribute) }
    }
}

/// A page with room behind it, so that eight bytes can be read from any place.
struct Room([u8; BLOCK_BYTES + 8]);

impl Room {
    fn page(&self) -> &[u8] {
        &self.0[..BLOCK_BYTES]
    }

    /// Eight bytes; what lies behind the page is zeroes. No place is behind it.
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

impl Values {
    /// A row without a value repeats the one before.
    #[inline(always)]
    fn push_nothing(&mut self) {
        match self {
            Self::Numbers(_, values) => values.push(values.last().copied().unwrap_or(0)),
            Self::Numerics(numerics) => numerics.push(None, Span::default()),
            Self::Datums(spans) => spans.push(Span::default()),
        }
    }
}

/// A datum that lies at `place` of the page that starts at `base`.
#[inline(always)]
fn span(base: u32, place: std::ops::Range<usize>) -> Span {
    Span { at: base + place.start as u32, bytes: place.len() as u32 }
}

#[inline(always)]
fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Where a tuple's data start.
#[inline(always)]
pub(super) fn data_offset(natts: usize, has_nulls: bool) -> usize {
    let bitmap = if has_nulls { natts.div_ceil(8) } else { 0 };
    Align::Double.up(TUPLE_HEADER_BYTES + bitmap)
}

const _: () = assert!(LINES_MAX < u16::MAX as usize);
