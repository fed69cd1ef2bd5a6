//! The tuples of a few pages, and where the columns that a scan wants lie in them.
//!
//! Rows are numbered in block and line pointer order. A walk moves each selected row's cursor over one segment and
//! writes down the location of every column that has a slot; it goes column by column over all rows, which lets the
//! processor overlap the chains of dependent loads. Rows with NULLs or missing attributes go one by one.
//! Invariant: a location that is neither [`NULL`] nor [`MISSING`] starts a datum that lies wholly inside its tuple.

use super::page::TupleHeader;
use super::prefetch::Prefetch;
use super::tuple_layout::{AttributeRun, NO_SLOT, Slot, Step, TupleLayout};
use super::varlena;
use cellar_format::postgres::Width;

/// The column is NULL in this row. No datum lies there: it is a page header's first byte.
pub const NULL: u32 = 0;
/// The tuple was written before the column was added.
pub const MISSING: u32 = 1;
/// A cursor that could not be moved on; steps leave it here or move it further, and it is beyond every tuple's end.
const POISON: u32 = 0x4000_0000;
/// Where the null bitmap lies in a tuple (`t_bits`).
const NULL_BITMAP: usize = 23;
/// Rows that are walked together over one step: enough to overlap their loads.
const WALK_ROWS: usize = 64;
/// Lines to be fetched in the meantime.
const LINES_PER_STEP: usize = 24;
/// Longer input is refused by the scanner, so that positions stay below [`POISON`].
pub const PAGES_BYTES_MAX: usize = 1 << 29;

/// A tuple of the chunk.
#[derive(Debug, Clone, Copy)]
pub struct TupleRow {
    /// Where the tuple's header starts in the scanned bytes.
    pub tuple: u32,
    pub bytes: u16,
    pub attributes: u16,
    /// The block's number, counted from the first scanned one.
    pub page: u16,
    /// The 1-based line pointer number.
    pub line: u16,
    has_nulls: bool,
    /// It has NULLs or too few attributes, and is walked on its own.
    irregular: bool,
}

/// One number per row. As long as there are row numbers, so that none needs a bounds check.
type PerRow = Box<[u32; ROWS_MAX]>;
const ROWS_MAX: usize = 1 << 16;

fn per_row() -> PerRow {
    vec![0; ROWS_MAX].into_boxed_slice().try_into().expect("the vector has this length")
}

/// How far each tuple is walked, and where it ends.
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

#[derive(Debug, Default)]
pub struct PageRows {
    rows: Vec<TupleRow>,
    /// Rows without a tuple: where those of each page end.
    located: Vec<(u32, u16)>,
    /// From the first tuple on: many a scan has none.
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

    /// Adds a tuple whose page starts at `base`. Whoever fills a chunk keeps it below 2^16 rows.
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
            has_nulls: tuple.has_nulls(),
            irregular,
        });
    }

    /// Adds the rows of a page, up to but without row `end`, whose columns lie wherever [`Self::locations_mut`] is
    /// told. They cannot be walked; of a chunk, all rows are such or none.
    pub fn push_located(&mut self, page: u16, end: u32) {
        self.located.push((end, page));
    }

    /// The number of the page that the row lies in.
    pub fn page(&self, row: u16) -> u16 {
        match self.rows.get(row as usize) {
            Some(row) => row.page,
            None => {
                let at = self.located.partition_point(|(end, _)| *end <= row as u32);
                self.located.get(at).map_or(0, |(_, page)| *page)
            }
        }
    }

    /// Takes the last rows back.
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

    /// Where the column of `slot` lies in each row that was walked.
    pub fn locations(&self, slot: Slot) -> &[u32; ROWS_MAX] {
        &self.locations[slot as usize]
    }

    /// As [`Self::locations`], of a slot that was prepared.
    pub fn locations_mut(&mut self, slot: Slot) -> &mut [u32; ROWS_MAX] {
        &mut self.locations[slot as usize]
    }

    /// Makes room for the locations of so many columns.
    pub fn prepare(&mut self, slots: usize) {
        self.locations.resize_with(slots.max(self.locations.len()), per_row);
    }

    /// Walks the selected rows over `segment`; a row that cannot be walked is added to `malformed`.
    pub fn walk(
        &mut self,
        pages: &[u8],
        layout: &TupleLayout,
        segment: &AttributeRun,
        selected: &[u16],
        malformed: &mut Vec<u16>,
        ahead: &mut Prefetch<'_>,
    ) {
        if segment.from >= segment.to || selected.is_empty() {
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
            self.walk_regular(pages, segment, regular.len(), |at| regular[at], ahead);
            for &row in &irregular {
                self.walk_irregular(pages, layout, segment, row as usize);
            }
            self.regular_rows = regular;
            self.irregular_rows = irregular;
        } else if selected.len() == self.rows.len() {
            self.walk_regular(pages, segment, selected.len(), |at| at as u16, ahead);
        } else {
            self.walk_regular(pages, segment, selected.len(), |at| selected[at], ahead);
        }
        let Some(Spans { cursors, ends }) = &self.spans else { return };
        if selected.iter().fold(false, |any, row| any | (cursors[*row as usize] > ends[*row as usize])) {
            malformed.extend(selected.iter().filter(|row| cursors[**row as usize] > ends[**row as usize]));
        }
    }

    /// Cursors only ever grow, so it is enough that the caller compares the last one with the tuple's end: whatever was
    /// located on the way lies before it. `row_at` tells the rows by their positions in `0..count`.
    fn walk_regular(
        &mut self,
        pages: &[u8],
        segment: &AttributeRun,
        count: usize,
        row_at: impl Fn(usize) -> u16,
        ahead: &mut Prefetch<'_>,
    ) {
        let Self { spans: Some(Spans { cursors, ends }), locations, .. } = self else { return };
        let cursors = &mut **cursors;
        for from in (0..count).step_by(WALK_ROWS) {
            let rows = || (from..count.min(from + WALK_ROWS)).map(|at| row_at(at) as usize);
            for step in &segment.steps {
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

    /// One row with a null bitmap or too few attributes.
    fn walk_irregular(&mut self, pages: &[u8], layout: &TupleLayout, segment: &AttributeRun, row: usize) {
        let TupleRow { tuple, attributes, has_nulls, .. } = self.rows[row];
        let Some(spans) = &mut self.spans else { return };
        let (mut cursor, end) = (spans.cursors[row], spans.ends[row]);
        let bitmap = pages.get(tuple as usize + NULL_BITMAP..).unwrap_or(&[]);
        for (index, attribute) in layout.attributes[segment.from..segment.to].iter().enumerate() {
            let index = segment.from + index;
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

/// Where the varlena after `cursor` starts, and where the next attribute may: beyond every tuple's end when no varlena
/// starts there.
#[inline(always)]
fn varlena_at(pages: &[u8], cursor: u32, mask: u32) -> (u32, u32) {
    match pages.get(cursor as usize) {
        // A short header, odd and not 1: above 0x80 once its length is in the low bits.
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

/// Where the attribute after a NUL-terminated string may start.
fn cstring_end(pages: &[u8], at: u32, end: u32) -> u32 {
    let nul = pages.get(at as usize..end as usize).and_then(|bytes| memchr::memchr(0, bytes));
    nul.map_or(POISON, |nul| at + nul as u32 + 1)
}
