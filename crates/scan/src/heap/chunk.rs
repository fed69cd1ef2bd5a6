//! The tuples of a few pages, and where the columns that a scan wants lie in them.
//!
//! Rows are numbered in block and line pointer order. A walk moves each selected row's cursor over one segment and
//! writes down the location of every column that has a slot; it goes column by column over all rows, which lets the
//! processor overlap the chains of dependent loads. Rows with NULLs or missing attributes go one by one.
//! Invariant: a location that is neither [`NULL`] nor [`MISSING`] starts a datum that lies wholly inside its tuple.

use super::layout::{Layout, NO_SLOT, Segment, Slot, Step};
use super::page::TupleHeader;
use super::varlena;
use cellar_format::postgres::Width;

/// The column is NULL in this row. No datum lies there: it is a page header's first byte.
pub const NULL: u32 = 0;
/// The tuple was written before the column was added.
pub const MISSING: u32 = 1;
/// The cursor of a row that could not be walked.
const POISON: u32 = 0x4000_0000;
/// Longer input is refused by the scanner, so that positions stay below [`POISON`].
pub const PAGES_BYTES_MAX: usize = 1 << 29;

#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Where the tuple's header starts in the scanned bytes.
    pub tuple: u32,
    pub bytes: u16,
    pub attributes: u16,
    /// The block's number, counted from the first scanned one.
    pub page: u16,
    /// The 1-based line pointer number.
    pub line: u16,
    pub has_nulls: bool,
}

#[derive(Debug, Default)]
pub struct Chunk {
    rows: Vec<Row>,
    cursors: Vec<u32>,
    ends: Vec<u32>,
    irregular: Vec<bool>,
    any_irregular: bool,
    locations: Vec<Vec<u32>>,
    regular_rows: Vec<u16>,
    irregular_rows: Vec<u16>,
}

impl Chunk {
    pub fn clear(&mut self) {
        self.rows.clear();
        self.cursors.clear();
        self.ends.clear();
        self.irregular.clear();
        self.any_irregular = false;
    }

    /// Adds a tuple whose page starts at `base`.
    #[inline]
    pub fn push(&mut self, layout: &Layout, base: usize, page: u16, line: u16, tuple: &TupleHeader) {
        let start = base as u32 + tuple.offset as u32;
        let attributes = tuple.attributes().min(layout.attributes.len());
        let irregular = tuple.has_nulls() || attributes < layout.attributes.len();
        self.any_irregular |= irregular;
        self.irregular.push(irregular);
        self.cursors.push(start + tuple.data as u32);
        self.ends.push(start + tuple.length as u32);
        self.rows.push(Row {
            tuple: start,
            bytes: tuple.length,
            attributes: attributes as u16,
            page,
            line,
            has_nulls: tuple.has_nulls(),
        });
    }

    /// Takes the last rows back.
    pub fn truncate(&mut self, rows: usize) {
        self.rows.truncate(rows);
        self.cursors.truncate(rows);
        self.ends.truncate(rows);
        self.irregular.truncate(rows);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn row(&self, row: u16) -> &Row {
        &self.rows[row as usize]
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Where the column of `slot` lies in each row that was walked.
    pub fn locations(&self, slot: Slot) -> &[u32] {
        &self.locations[slot as usize]
    }

    /// Makes room for the rows pushed so far; call before the first walk.
    pub fn prepare(&mut self, slots: usize) {
        self.locations.resize_with(slots, Vec::new);
        for locations in &mut self.locations {
            locations.resize(self.rows.len(), NULL);
        }
    }

    /// Walks the selected rows over `segment`; a row that cannot be walked is added to `malformed`.
    pub fn walk(
        &mut self,
        pages: &[u8],
        layout: &Layout,
        segment: &Segment,
        selected: &[u16],
        malformed: &mut Vec<u16>,
    ) {
        if segment.from >= segment.to || selected.is_empty() {
            return;
        }
        let mut failed = false;
        if self.any_irregular {
            let mut regular = std::mem::take(&mut self.regular_rows);
            let mut irregular = std::mem::take(&mut self.irregular_rows);
            regular.clear();
            irregular.clear();
            for &row in selected {
                if self.irregular[row as usize] { irregular.push(row) } else { regular.push(row) }
            }
            failed |= self.walk_regular(pages, segment, &regular);
            for &row in &irregular {
                failed |= self.walk_irregular(pages, layout, segment, row as usize).is_none();
            }
            self.regular_rows = regular;
            self.irregular_rows = irregular;
        } else {
            failed |= self.walk_regular(pages, segment, selected);
        }
        if failed {
            malformed.extend(selected.iter().filter(|row| self.cursors[**row as usize] == POISON));
        }
    }

    /// True when some row's cursor is poisoned.
    fn walk_regular(&mut self, pages: &[u8], segment: &Segment, selected: &[u16]) -> bool {
        let mut failed = false;
        let Self { cursors, ends, locations, .. } = self;
        let ends = &ends[..cursors.len()];
        for step in &segment.steps {
            match step {
                Step::Fixed { align, bytes, outs } => {
                    let (mask, bytes) = (align - 1, *bytes);
                    match outs.split_first() {
                        None => {
                            for &row in selected {
                                let row = row as usize;
                                let next = ((cursors[row] + mask) & !mask) + bytes;
                                let inside = next <= ends[row];
                                failed |= !inside;
                                cursors[row] = if inside { next } else { POISON };
                            }
                        }
                        Some((&(slot, delta), more)) => {
                            let first = &mut locations[slot as usize][..cursors.len()];
                            for &row in selected {
                                let row = row as usize;
                                let at = (cursors[row] + mask) & !mask;
                                let inside = at + bytes <= ends[row];
                                failed |= !inside;
                                first[row] = at + delta;
                                cursors[row] = if inside { at + bytes } else { POISON };
                            }
                            for &(slot, delta) in more {
                                let out = &mut locations[slot as usize][..cursors.len()];
                                for &row in selected {
                                    let row = row as usize;
                                    out[row] = cursors[row].wrapping_sub(bytes).wrapping_add(delta);
                                }
                            }
                        }
                    }
                }
                Step::Varlena { align, slot } => {
                    let mask = align - 1;
                    match slot {
                        None => {
                            for &row in selected {
                                let row = row as usize;
                                let (_, next) = varlena_at(pages, cursors[row], ends[row], mask);
                                failed |= next == POISON;
                                cursors[row] = next;
                            }
                        }
                        Some(slot) => {
                            let out = &mut locations[*slot as usize][..cursors.len()];
                            for &row in selected {
                                let row = row as usize;
                                let (at, next) = varlena_at(pages, cursors[row], ends[row], mask);
                                failed |= next == POISON;
                                out[row] = at;
                                cursors[row] = next;
                            }
                        }
                    }
                }
                Step::Cstring { slot } => {
                    for &row in selected {
                        let row = row as usize;
                        let at = cursors[row];
                        let next = cstring_end(pages, at, ends[row]).unwrap_or(POISON);
                        failed |= next == POISON;
                        if let Some(slot) = slot {
                            locations[*slot as usize][row] = at;
                        }
                        cursors[row] = next;
                    }
                }
            }
        }
        failed
    }

    /// One row with a null bitmap or too few attributes. None: it cannot be walked, and its cursor is poisoned.
    fn walk_irregular(&mut self, pages: &[u8], layout: &Layout, segment: &Segment, row: usize) -> Option<()> {
        let Row { tuple, attributes, has_nulls, .. } = self.rows[row];
        let end = self.ends[row];
        let mut cursor = self.cursors[row];
        self.cursors[row] = POISON;
        let bitmap = tuple as usize + 23;
        for (index, attribute) in layout.attributes[segment.from..segment.to].iter().enumerate() {
            let index = segment.from + index;
            let mut location = NULL;
            if index >= attributes as usize {
                location = MISSING;
            } else if !has_nulls || pages.get(bitmap + index / 8)? >> (index % 8) & 1 == 1 {
                let mask = attribute.align.bytes() as u32 - 1;
                match attribute.width {
                    Width::Fixed(bytes) => {
                        location = (cursor + mask) & !mask;
                        cursor = location + bytes as u32;
                    }
                    Width::Varlena => (location, cursor) = varlena_at(pages, cursor, end, mask),
                    Width::Cstring => {
                        location = cursor;
                        cursor = cstring_end(pages, cursor, end)?;
                    }
                }
                if cursor > end {
                    return None;
                }
            }
            if attribute.slot != NO_SLOT {
                self.locations[attribute.slot as usize][row] = location;
            }
        }
        self.cursors[row] = cursor;
        Some(())
    }
}

/// Where the varlena after `cursor` starts, and where the next attribute may.
#[inline(always)]
fn varlena_at(pages: &[u8], cursor: u32, end: u32, mask: u32) -> (u32, u32) {
    let mut at = cursor;
    let Some(&first) = pages.get(at as usize) else { return (NULL, POISON) };
    if first & 1 == 1 && first != 1 {
        let next = at + (first >> 1) as u32;
        return (at, if next <= end { next } else { POISON });
    }
    if first == 0 {
        // A padding byte, or the low byte of an aligned long header: att_align_pointer.
        at = (at + mask) & !mask;
    }
    match varlena::datum_bytes(pages, at as usize, end as usize) {
        Some(bytes) => (at, at + bytes as u32),
        None => (NULL, POISON),
    }
}

fn cstring_end(pages: &[u8], at: u32, end: u32) -> Option<u32> {
    let bytes = pages.get(at as usize..end as usize)?;
    let nul = memchr::memchr(0, bytes)?;
    Some(at + nul as u32 + 1)
}
