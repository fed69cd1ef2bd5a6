//! Builds the model of a report from what a reader finds, in the order of the file.
//!
//! The builder bounds the model: further tables and columns are counted, not kept, so that its memory stays a small multiple
//! of the file's size whatever the file contains.

use super::headings;
use super::model::{ColumnData, Counts, Data, RowData, SectionData, Span, TableData, UNPLACED_MAX, Unplaced, Warning};
use super::value;

const TABLES_MAX: usize = 50_000;
const SECTIONS_MAX: usize = 50_000;
const COLUMNS_MAX: usize = 1_000;
const WARNINGS_MAX: usize = 1_000;
/// Bounds the rows and the stored cells: 500 MB. No report has a hundredth.
const ROWS_MAX: usize = 24_000_000;
const CELLS_MAX: usize = 24_000_000;
/// Bounds a heading; longer texts are notes.
pub const HEADING_MAX: usize = 160;
/// Bounds the cells that stand for the rest of a cell that covers several columns or rows.
const REPEATED_MAX: u32 = 4_000_000;
/// Bounds the bytes that are copied to append to cells that are not the last text of the buffer.
const COPIED_MAX: usize = 64 * 1024 * 1024;
/// Cells that decide about the decimal separator.
const SEPARATOR_CELLS: usize = 200_000;

/// A column's names: group and name.
pub type Names = (String, String);

#[derive(Default)]
pub struct Builder {
    data: Data,
    pub warnings: Vec<Warning>,
    counts: Counts,
    unplaced: Vec<Unplaced>,
    /// The open table can take rows.
    table_open: bool,
    row_open: bool,
    /// The open table has no column names: it gets a column for each further cell.
    grows: bool,
    /// A limit was reached, and the warning about it is given.
    full: bool,
    repeated: u32,
    /// Bytes that wrapped cells copied.
    copied: usize,
}

/// What the builder made.
pub struct Built {
    pub data: Data,
    pub warnings: Vec<Warning>,
    pub counts: Counts,
    pub unplaced: Vec<Unplaced>,
    pub decimal_comma: bool,
}

impl Builder {
    pub fn new(bytes: usize) -> Self {
        let mut builder = Self::default();
        builder.data.text.reserve(bytes / 4);
        builder
    }

    fn push(&mut self, text: &str) -> Span {
        if text.is_empty() {
            return Span::default();
        }
        let start = self.data.text.len() as u32;
        self.data.text.push_str(text);
        Span { start, length: text.len() as u32 }
    }

    /// Appends a text on one line: runs of white space become a blank.
    fn push_line(&mut self, text: &str) -> Span {
        let start = self.data.text.len();
        for word in text.split_whitespace() {
            if self.data.text.len() > start {
                self.data.text.push(' ');
            }
            self.data.text.push_str(word);
        }
        Span { start: start as u32, length: (self.data.text.len() - start) as u32 }
    }

    pub fn warn(&mut self, line: u32, text: impl Into<String>) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(Warning { line, text: text.into() });
        }
    }

    /// Begins a section. Ends the open table.
    pub fn section(&mut self, heading: &str, anchor: &str, line: u32) {
        self.end_table();
        if self.data.sections.len() >= SECTIONS_MAX {
            return;
        }
        let section = SectionData {
            heading: self.push_line(heading),
            anchor: self.push_line(anchor),
            line,
            catalogued: headings::is_catalogued(heading),
            first_table: self.data.tables.len() as u32,
            first_note: self.data.notes.len() as u32,
        };
        self.data.sections.push(section);
    }

    /// Whether a section has begun, and its heading.
    pub fn heading(&self) -> Option<&str> {
        self.data.sections.last().map(|section| self.data.text(section.heading))
    }

    /// Adds a note to the section.
    pub fn note(&mut self, note: &str) {
        if self.data.sections.is_empty() || note.trim().is_empty() {
            return;
        }
        let span = self.push_line(note);
        self.data.notes.push(span);
    }

    /// Begins a table. A table without columns grows with its rows. Returns the handle for [`Self::resume_table`].
    pub fn table(&mut self, title: &str, summary: &str, line: u32, columns: &[Names]) -> usize {
        self.end_table();
        if self.data.tables.len() >= TABLES_MAX {
            if !self.full {
                self.full = true;
                self.warn(line, format!("the file has more than {TABLES_MAX} tables; the rest is not kept"));
            }
            return usize::MAX;
        }
        if self.data.sections.is_empty() {
            self.section("", "", line);
        }
        let first_column = self.data.columns.len() as u32;
        for (group, name) in columns.iter().take(COLUMNS_MAX) {
            let unit = match value::unit_of_name(name) {
                value::Unit::None if name.trim().is_empty() => value::unit_of_name(group),
                unit => unit,
            };
            let column = ColumnData { group: self.push_line(group), name: self.push_line(name), unit };
            self.data.columns.push(column);
        }
        let table = TableData {
            title: self.push_line(title),
            summary: self.push_line(summary),
            line,
            first_column,
            columns: self.data.columns.len() as u32 - first_column,
            first_row: self.data.rows.len() as u32,
            rows: 0,
        };
        self.data.tables.push(table);
        self.table_open = true;
        self.grows = columns.is_empty();
        self.data.tables.len() - 1
    }

    /// Begins a table with the columns of an earlier table.
    pub fn resume_table(&mut self, handle: usize, line: u32) {
        self.end_table();
        let Some(earlier) = self.data.tables.get(handle) else { return };
        if self.data.tables.len() >= TABLES_MAX {
            return;
        }
        let mut table = earlier.clone();
        (table.line, table.first_row, table.rows) = (line, self.data.rows.len() as u32, 0);
        self.data.tables.push(table);
        self.table_open = true;
        self.grows = false;
    }

    /// Sets the unit of a column of the open table.
    pub fn set_unit(&mut self, column: usize, unit: value::Unit) {
        let Some(table) = self.data.tables.last().filter(|_| self.table_open) else { return };
        if column < table.columns as usize {
            self.data.columns[table.first_column as usize + column].unit = unit;
        }
    }

    pub fn end_table(&mut self) {
        self.table_open = false;
        self.row_open = false;
    }

    pub fn row(&mut self, line: u32) {
        let is_full = self.data.rows.len() >= ROWS_MAX || self.data.cells.len() >= CELLS_MAX;
        if is_full && !std::mem::replace(&mut self.full, true) {
            self.warn(line, format!("the file has more than {ROWS_MAX} rows or cells; the rest is counted, not kept"));
        }
        self.row_open = self.table_open && !is_full;
        if !self.row_open {
            return;
        }
        self.data.rows.push(RowData { first_cell: self.data.cells.len() as u32, line, blanks: 0 });
        if let Some(table) = self.data.tables.last_mut() {
            table.rows += 1;
        }
    }

    /// Adds a cell to the open row. A cell that the table has no column for is unplaced.
    pub fn cell(&mut self, text: &str, line: u32) {
        self.counts.read += 1;
        let table = match self.data.tables.last() {
            Some(table) if self.row_open => table,
            _ => return self.unplace(text, line),
        };
        if self.row_cells() >= table.columns && !self.grow() {
            return self.unplace(text, line);
        }
        self.counts.placed += 1;
        self.counts.uncatalogued += u64::from(!self.data.sections.last().is_some_and(|section| section.catalogued));
        let span = self.push(text.trim());
        self.push_cell(span);
    }

    /// Number of cells of the last row.
    fn row_cells(&self) -> u32 {
        let row = self.data.rows.last();
        row.map_or(0, |row| self.data.cells.len() as u32 - row.first_cell + u32::from(row.blanks))
    }

    /// Appends a cell to the last row. Blanks are stored when a cell follows.
    fn push_cell(&mut self, span: Span) {
        let Some(row) = self.data.rows.last_mut() else { return };
        if span.length == 0 {
            row.blanks += 1;
            return;
        }
        let stored = self.data.cells.len() + usize::from(std::mem::take(&mut row.blanks));
        self.data.cells.resize(stored, Span::default());
        self.data.cells.push(span);
    }

    /// Sets a cell of the last row below a column that the report does not name, behind the named columns.
    pub fn further_cell(&mut self, column: usize, name: &str, text: &str, line: u32) {
        let cells = self.row_cells() as usize;
        if !self.table_open || self.data.tables.last().is_none_or(|table| table.rows == 0) || cells > column {
            return self.stray(text, line);
        }
        if self.columns() == column && column < COLUMNS_MAX {
            let name = self.push_line(name);
            self.data.columns.push(ColumnData { group: Span::default(), name, unit: value::Unit::None });
            if let Some(table) = self.data.tables.last_mut() {
                table.columns += 1;
            }
        }
        self.row_open = true;
        for _ in cells..column {
            self.push_cell(Span::default());
        }
        self.cell(text, line);
    }

    /// Lets the rows of the open table have more cells than the table has names.
    pub fn grow_rows(&mut self) {
        self.grows = true;
    }

    /// A text in a table that is no cell of a row.
    pub fn stray(&mut self, text: &str, line: u32) {
        self.counts.read += 1;
        self.unplace(text, line);
    }

    /// Adds a column to a table that grows.
    fn grow(&mut self) -> bool {
        let Some(table) = self.data.tables.last_mut() else { return false };
        let grows = self.grows && (table.columns as usize) < COLUMNS_MAX;
        if grows {
            table.columns += 1;
            self.data.columns.push(ColumnData {
                group: Span::default(),
                name: Span::default(),
                unit: value::Unit::None,
            });
        }
        grows
    }

    /// Adds a cell that the file does not contain: the rest of a cell that covers several columns or rows. `text` is the
    /// result of [`Self::last_span`], or the default for a blank.
    pub fn repeat(&mut self, text: Span) {
        let has_column = self.row_open && self.repeated < REPEATED_MAX;
        if has_column && (self.row_cells() < self.columns() as u32 || self.grow()) {
            self.repeated += 1;
            self.push_cell(text);
        }
    }

    /// The text of the last cell.
    pub fn last_span(&self) -> Span {
        let is_blank = self.data.rows.last().is_none_or(|row| row.blanks > 0);
        self.data.cells.last().copied().filter(|_| !is_blank).unwrap_or_default()
    }

    /// Number of columns of the open table.
    pub fn columns(&self) -> usize {
        self.data.tables.last().map_or(0, |table| table.columns as usize)
    }

    /// Appends a wrapped line to a cell of the last row.
    pub fn continue_cell(&mut self, column: usize, text: &str, separator: &str) {
        let Some(row) = self.data.rows.last_mut() else { return };
        let at = row.first_cell as usize + column;
        // Stores the blanks up to the cell.
        let further = (at + 1).saturating_sub(self.data.cells.len());
        if further > 0 {
            let Some(blanks) = usize::from(row.blanks).checked_sub(further) else { return };
            row.blanks = blanks as u16;
            self.data.cells.resize(at + 1, Span::default());
        }
        let Some(span) = self.data.cells.get(at).copied() else { return };
        // Usually the last text of the buffer; copied otherwise.
        let joined = if (span.start + span.length) as usize == self.data.text.len() && span.length > 0 {
            self.data.text.push_str(separator);
            self.data.text.push_str(text);
            Span { start: span.start, length: self.data.text.len() as u32 - span.start }
        } else if self.copied + span.length as usize > COPIED_MAX {
            return;
        } else {
            self.copied += span.length as usize;
            let start = self.data.text.len();
            let range = span.start as usize..(span.start + span.length) as usize;
            self.data.text.extend_from_within(range);
            if span.length > 0 {
                self.data.text.push_str(separator);
            }
            self.data.text.push_str(text);
            Span { start: start as u32, length: (self.data.text.len() - start) as u32 }
        };
        self.data.cells[at] = joined;
    }

    /// The last row's cell, as it is so far.
    pub fn last_cell(&self, column: usize) -> &str {
        let row = self.data.rows.last();
        let span = row.and_then(|row| self.data.cells.get(row.first_cell as usize + column));
        span.map_or("", |span| self.data.text(*span))
    }

    fn unplace(&mut self, text: &str, line: u32) {
        self.counts.unplaced += 1;
        if self.unplaced.len() < UNPLACED_MAX {
            self.unplaced.push(Unplaced { line, text: text.trim().chars().take(200).collect() });
        }
    }

    /// Warns that the report ends before its end.
    pub fn cut_off(&mut self, line: u32, is_in_table: bool) {
        let heading = self.heading().unwrap_or("");
        let place = if is_in_table { format!("in a table of \"{heading}\"") } else { format!("after \"{heading}\"") };
        self.warn(line, format!("the report is cut off {place}; figures behind this place are missing"));
    }

    pub fn finish(mut self) -> Built {
        self.data.text.shrink_to_fit();
        let mut votes = [0u32; 2];
        for span in self.data.cells.iter().take(SEPARATOR_CELLS) {
            let text = self.data.text(*span);
            if text.len() < 24
                && let Some(comma) = value::decimal_comma(text)
            {
                votes[usize::from(comma)] += 1;
            }
        }
        Built {
            data: self.data,
            warnings: self.warnings,
            counts: self.counts,
            unplaced: self.unplaced,
            decimal_comma: votes[1] > votes[0],
        }
    }
}
