//! The tuples of a few pages, and the locations of the columns that a scan reads.
//!
//! Rows are numbered in block and line pointer order. A walk advances the cursor of each selected row over a run of
//! attributes and records the location of every column that has a slot. The walk processes one attribute in all rows
//! before the next attribute, so the processor can overlap the dependent loads of different rows. Rows with NULLs or
//! missing attributes are walked one by one.
//! Invariant: a location that is neither [`NULL`] nor [`MISSING`] is the start of a datum within its tuple.

use super::page::TupleHeader;
use super::prefetch::Prefetch;
use super::tuple_layout::{AttributeRun, NO_SLOT, Slot, Step, TupleLayout};
use super::varlena;
use cellar_format::postgres::Width;

/// The location of a NULL. No datum starts there: offset 0 is in a page header.
pub const NULL: u32 = 0;
/// The location of a column that was added after the tuple was written.
pub const MISSING: u32 = 1;
/// The cursor of a malformed row: greater than the end of every tuple. Later steps only increase a cursor.
const POISON: u32 = 0x4000_0000;
/// The offset of the NULL bitmap in a tuple (`t_bits`).
const NULL_BITMAP: u8 = 23;
/// Rows that are advanced together by one step: enough to overlap their loads.
const WALK_ROWS: usize = 64;
/// Cache lines to prefetch during a step.
const LINES_PER_STEP: usize = 24;
/// Maximum bytes of a scan's input. Offsets stay below [`POISON`].
pub const PAGES_BYTES_MAX: usize = 1 << 29;

/// An item of a page other than a heap tuple, checked against the page.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    /// Offset of the item in the page, a multiple of eight.
    pub offset: u16,
    /// Offset of the data in the item, a multiple of eight.
    pub data: u8,
    /// The end of the data, as an offset in the item.
    pub end: u16,
    /// Offset of the NULL bitmap in the item.
    pub bitmap: u8,
    pub has_nulls: bool,
    /// The 1-based line pointer number.
    pub line: u16,
}

/// One tuple.
#[derive(Debug, Clone, Copy)]
pub struct TupleRow {
    /// Offset of the tuple's header in the scanned bytes.
    pub tuple: u32,
    pub bytes: u16,
    pub attributes: u16,
    /// The page's index in the scanned bytes.
    pub page: u16,
    /// The 1-based line pointer number.
    pub line: u16,
    /// The offset of the NULL bitmap in the tuple.
    bitmap: u8,
    has_nulls: bool,
    /// The tuple has NULLs or too few attributes, and is walked alone.
    irregular: bool,
}

/// One number per row, for every possible row number, so that indexing needs no bounds check.
type PerRow = Box<[u32; ROWS_MAX]>;
const ROWS_MAX: usize = 1 << 16;

fn per_row() -> PerRow {
    vec![0; ROWS_MAX].into_boxed_slice().try_into().expect("the vector has this length")
}

/// The position up to which each tuple was walked, and the end of the tuple.
#[derive(Debug)]
struct Spans {
    cursors: PerRow,
    ends: PerRow,
}

impl Spans {
    #[cold]
    fn new() -> Self {
        Self { cursors: per_row(), ends: per_row() }
    }
}

/// The rows of a few pages; fewer than 2^16 rows.
#[derive(Debug, Default)]
pub struct PageRows {
    rows: Vec<TupleRow>,
    /// Rows without tuples: for each page the end of its rows, and the page's index.
    located: Vec<(u32, u16)>,
    /// Allocated with the first tuple: a scan of units may have none.
    spans: Option<Spans>,
    any_irregular: bool,
    locations: Vec<PerRow>,
    regular_rows: Vec<u16>,
    irregular_rows: Vec<u16>,
}

impl PageRows {
    pub fn clear(&mut self) {
        self.rows.clear();
        self.located.clear();
        self.any_irregular = false;
    }

    /// Returns the memory of the rows and their locations in bytes.
    pub fn memory_bytes(&self) -> usize {
        let per_row = self.locations.len() + if self.spans.is_some() { 2 } else { 0 };
        per_row * size_of::<[u32; ROWS_MAX]>() + self.rows.capacity() * size_of::<TupleRow>()
    }

    /// Returns the memory of rows with tuples and the locations of `slots` columns, without [`TupleRow`]s, in bytes.
    pub fn bytes_for(slots: usize) -> usize {
        (slots + 2) * size_of::<[u32; ROWS_MAX]>()
    }

    /// Adds a tuple whose page starts at offset `base`. The caller adds fewer than 2^16 rows.
    #[inline(always)]
    pub fn push(&mut self, layout: &TupleLayout, base: usize, page: u16, line: u16, tuple: &TupleHeader) {
        let attributes = tuple.attributes().min(layout.attributes.len());
        let irregular = tuple.has_nulls() || attributes < layout.attributes.len();
        let (at, start) = (self.rows.len() as u16 as usize, base as u32 + tuple.offset as u32);
        let spans = self.spans.get_or_insert_with(Spans::new);
        spans.cursors[at] = start + tuple.data as u32;
        spans.ends[at] = start + tuple.length as u32;
        self.any_irregular |= irregular;
        self.rows.push(TupleRow {
            tuple: start,
            bytes: tuple.length,
            attributes: attributes as u16,
            page,
            line,
            bitmap: NULL_BITMAP,
            has_nulls: tuple.has_nulls(),
            irregular,
        });
    }

    /// Adds an item with all attributes whose page starts at offset `base`. The caller adds fewer than 2^16 rows.
    #[inline]
    pub fn push_item(&mut self, layout: &TupleLayout, base: usize, page: u16, item: &Item) {
        let (at, start) = (self.rows.len() as u16 as usize, base as u32 + item.offset as u32);
        let spans = self.spans.get_or_insert_with(Spans::new);
        spans.cursors[at] = start + item.data as u32;
        spans.ends[at] = start + item.end as u32;
        self.any_irregular |= item.has_nulls;
        self.rows.push(TupleRow {
            tuple: start,
            bytes: item.end,
            attributes: layout.attributes.len() as u16,
            page,
            line: item.line,
            bitmap: item.bitmap,
            has_nulls: item.has_nulls,
            irregular: item.has_nulls,
        });
    }

    /// Adds the rows of a page, up to row `end` (exclusive), as rows without tuples. The caller sets the locations of
    /// their columns through [`Self::locations_mut`]. Either all rows have tuples or none has.
    pub fn push_located(&mut self, page: u16, end: u32) {
        self.located.push((end, page));
    }

    /// The index of the row's page.
    pub fn page(&self, row: u16) -> u16 {
        match self.rows.get(row as usize) {
            Some(row) => row.page,
            None => {
                let at = self.located.partition_point(|(end, _)| *end <= row as u32);
                self.located.get(at).map_or(0, |(_, page)| *page)
            }
        }
    }

    /// Removes all rows from number `rows` on.
    pub fn truncate(&mut self, rows: usize) {
        self.rows.truncate(rows);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn row(&self, row: u16) -> &TupleRow {
        &self.rows[row as usize]
    }

    /// The location of a column in each walked row.
    pub fn locations(&self, slot: Slot) -> &[u32; ROWS_MAX] {
        &self.locations[slot as usize]
    }

    /// [`Self::locations`] of a slot that [`Self::prepare`] has allocated.
    pub fn locations_mut(&mut self, slot: Slot) -> &mut [u32; ROWS_MAX] {
        &mut self.locations[slot as usize]
    }

    /// Allocates the locations of `slots` columns.
    pub fn prepare(&mut self, slots: usize) {
        self.locations.resize_with(slots.max(self.locations.len()), per_row);
    }

    /// Walks the selected rows over `run` and appends malformed rows to `malformed`. Prefetches bytes of `ahead` between steps.
    pub fn walk(
        &mut self,
        pages: &[u8],
        run: &AttributeRun,
        selected: &[u16],
        malformed: &mut Vec<u16>,
        ahead: &mut Prefetch<'_>,
    ) {
        if run.attributes.is_empty() || selected.is_empty() {
            return;
        }
        if self.any_irregular {
            let mut regular = std::mem::take(&mut self.regular_rows);
            let mut irregular = std::mem::take(&mut self.irregular_rows);
            regular.clear();
            irregular.clear();
            for &row in selected {
                if self.rows[row as usize].irregular { irregular.push(row) } else { regular.push(row) }
            }
            self.walk_regular(pages, run, regular.len(), |at| regular[at], ahead);
            for &row in &irregular {
                self.walk_irregular(pages, run, row as usize);
            }
            self.regular_rows = regular;
            self.irregular_rows = irregular;
        } else if selected.len() == self.rows.len() {
            self.walk_regular(pages, run, selected.len(), |at| at as u16, ahead);
        } else {
            self.walk_regular(pages, run, selected.len(), |at| selected[at], ahead);
        }
        let Some(Spans { cursors, ends }) = &self.spans else { return };
        if selected.iter().fold(false, |any, row| any | (cursors[*row as usize] > ends[*row as usize])) {
            malformed.extend(selected.iter().filter(|row| cursors[**row as usize] > ends[**row as usize]));
        }
    }

    /// Walks rows without NULLs and missing attributes; `row_at` maps positions in `0..count` to rows. Cursors never
    /// decrease, so the caller need only compare the final cursor with the tuple's end: every recorded datum ends
    /// before the final cursor.
    fn walk_regular(
        &mut self,
        pages: &[u8],
        run: &AttributeRun,
        count: usize,
        row_at: impl Fn(usize) -> u16,
        ahead: &mut Prefetch<'_>,
    ) {
        let Self { spans: Some(Spans { cursors, ends }), locations, .. } = self else { return };
        let cursors = &mut **cursors;
        for from in (0..count).step_by(WALK_ROWS) {
            let rows = || (from..count.min(from + WALK_ROWS)).map(|at| row_at(at) as usize);
            for step in &run.steps {
                match step {
                    Step::Fixed { align, bytes, outs } => {
                        let (mask, bytes) = (align - 1, *bytes);
                        for row in rows() {
                            cursors[row] = ((cursors[row] + mask) & !mask) + bytes;
                        }
                        for &(slot, delta) in outs {
                            let out = &mut *locations[slot as usize];
                            for row in rows() {
                                out[row] = cursors[row] - bytes + delta;
                            }
                        }
                    }
                    Step::Varlena { align, slot: None } => {
                        let mask = align - 1;
                        for row in rows() {
                            cursors[row] = varlena_at(pages, cursors[row], mask).1;
                        }
                        ahead.steps(LINES_PER_STEP);
                    }
                    Step::Varlena { align, slot: Some(slot) } => {
                        let (mask, out) = (align - 1, &mut *locations[*slot as usize]);
                        for row in rows() {
                            (out[row], cursors[row]) = varlena_at(pages, cursors[row], mask);
                        }
                        ahead.steps(LINES_PER_STEP);
                    }
                    Step::Cstring { slot } => {
                        for row in rows() {
                            let at = cursors[row];
                            cursors[row] = cstring_end(pages, at, ends[row]);
                            if let Some(slot) = slot {
                                locations[*slot as usize][row] = at;
                            }
                        }
                    }
                }
            }
        }
    }

    /// Walks a row with a NULL bitmap or too few attributes.
    fn walk_irregular(&mut self, pages: &[u8], run: &AttributeRun, row: usize) {
        let TupleRow { tuple, attributes, bitmap, has_nulls, .. } = self.rows[row];
        let Some(spans) = &mut self.spans else { return };
        let (mut cursor, end) = (spans.cursors[row], spans.ends[row]);
        let bitmap = pages.get(tuple as usize + bitmap as usize..).unwrap_or(&[]);
        for (index, attribute) in run.attributes.iter().enumerate() {
            let index = run.from + index;
            let mut location = NULL;
            if index >= attributes as usize {
                location = MISSING;
            } else if !has_nulls || bitmap.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1) {
                let mask = attribute.align.bytes() as u32 - 1;
                match attribute.width {
                    Width::Fixed(bytes) => {
                        location = (cursor + mask) & !mask;
                        cursor = location + bytes as u32;
                    }
                    Width::Varlena => (location, cursor) = varlena_at(pages, cursor, mask),
                    Width::Cstring => {
                        location = cursor;
                        cursor = cstring_end(pages, cursor, end);
                    }
                }
            }
            if attribute.slot != NO_SLOT {
                self.locations[attribute.slot as usize][row] = location;
            }
        }
        spans.cursors[row] = cursor;
    }
}

/// The start of the varlena at or after `cursor`, and its end; ([`NULL`], [`POISON`]) if there is no varlena.
#[inline(always)]
fn varlena_at(pages: &[u8], cursor: u32, mask: u32) -> (u32, u32) {
    match pages.get(cursor as usize) {
        // A short header is odd and not 1: rotated right it exceeds 0x80.
        Some(&first) if first.rotate_right(1) > 0x80 => (cursor, cursor + (first >> 1) as u32),
        Some(&first) => long_varlena_at(pages, cursor, mask, first),
        None => (NULL, POISON),
    }
}

#[inline(never)]
fn long_varlena_at(pages: &[u8], cursor: u32, mask: u32, first: u8) -> (u32, u32) {
    // A zero is a padding byte, or the low byte of an aligned long header: att_align_pointer.
    let at = if first == 0 { (cursor + mask) & !mask } else { cursor };
    match varlena::datum_bytes(pages, at as usize, pages.len()) {
        Some(bytes) => (at, at + bytes as u32),
        None => (NULL, POISON),
    }
}

/// The end of the NUL-terminated string at `at`, or [`POISON`].
fn cstring_end(pages: &[u8], at: u32, end: u32) -> u32 {
    let nul = pages.get(at as usize..end as usize).and_then(|bytes| memchr::memchr(0, bytes));
    nul.map_or(POISON, |nul| at + nul as u32 + 1)
}
