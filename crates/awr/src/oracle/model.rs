//! The model of an Oracle report: sections, tables, columns, rows and cells, with provenance.
//!
//! All readers (HTML, text) build this model, and all commands read it. The model keeps every cell of the report as it is
//! printed; numbers are interpreted on request ([`Row::value`]), with the unit of the value, of the column or of
//! the row's label.
//!
//! Invariants:
//! - All text is in one buffer. Names, notes and cells are ranges of the buffer: a cell takes 8 bytes besides its text.
//! - The rows of a table, and the cells of a row, are contiguous and in the order of the report.
//! - A row has at most as many cells as its table has columns. Blank cells at the end of a row are counted, not stored. Text that fits
//!   no column is kept in [`Report::unplaced`].
//! - Nothing is guessed: an absent or ambiguous figure is None, never 0.
//!
//! ```text
//! Report ─ header, warnings, counts, unplaced cells
//!   └─ Section   heading, anchor, line, notes, catalogued?
//!        └─ Table   title, summary, line
//!             ├─ Column   group, name, unit
//!             └─ Row      line, cells (text as printed, value on request)
//! ```

use super::value::{self, Unit, Value};

/// Version of the model's JSON form (docs/reading-oracle-reports.md). A field that is added keeps the version.
pub const SCHEMA_VERSION: u32 = 1;

/// The form of a report's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Html,
    Text,
    /// Our own reports only.
    Json,
}

impl Form {
    /// The form in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// What a report is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `awrrpt`: one instance.
    Instance,
    /// `awrgrpt`: all instances of a RAC database.
    Global,
    /// `awrrpt` of a pluggable database.
    Pdb,
    /// `awrddrpt`, `awrgdrpt`: two periods.
    Compare,
    /// `awrsqrpt`: one statement.
    Sql,
    /// `spreport`.
    Statspack,
    /// A report of `cellar awr report` or `cellar awr global`.
    Cellar,
}

impl Kind {
    /// The kind in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Instance => "awr-instance",
            Self::Global => "awr-global",
            Self::Pdb => "awr-pdb",
            Self::Compare => "awr-compare",
            Self::Sql => "awr-sql",
            Self::Statspack => "statspack",
            Self::Cellar => "cellar",
        }
    }

    /// Why the figures of a report are not those of one interval of a database: what the report is about. None for others.
    pub fn without_figures(self) -> Option<&'static str> {
        match self {
            Self::Compare => Some("a comparison of two periods"),
            Self::Sql => Some("a report about one statement"),
            _ => None,
        }
    }
}

/// The first or the last snapshot of a report. Texts are as printed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Boundary {
    pub snap_id: Option<u64>,
    /// For example `12-Dec-23 17:00:31`.
    pub time: String,
    pub sessions: Option<f64>,
}

/// One instance of a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Instance {
    pub name: String,
    pub number: Option<u64>,
    pub host: String,
    pub startup: String,
    pub release: String,
    pub platform: String,
    pub elapsed_us: Option<f64>,
    pub db_time_us: Option<f64>,
}

/// What the head of a report says. Empty texts and None: the report does not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    pub db_name: String,
    pub db_id: Option<u64>,
    pub unique_name: String,
    pub role: String,
    pub edition: String,
    /// For example `19.0.0.0.0`.
    pub release: String,
    pub rac: Option<bool>,
    pub cdb: Option<bool>,
    /// Name of the pluggable database of a PDB report.
    pub container: String,
    /// The instance; all instances in a global report.
    pub instances: Vec<Instance>,
    pub cpus: Option<f64>,
    pub cores: Option<f64>,
    pub sockets: Option<f64>,
    pub memory_bytes: Option<f64>,
    pub block_bytes: Option<f64>,
    pub begin: Boundary,
    pub end: Boundary,
    pub elapsed_us: Option<f64>,
    pub db_time_us: Option<f64>,
}

impl Header {
    /// The major release, such as 11, 12, 19 or 23.
    pub fn major_release(&self) -> Option<u32> {
        self.release.split('.').next()?.trim().parse().ok()
    }
}

/// Something that a reader of the figures must know, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Line of the file, from 1.
    pub line: u32,
    pub text: String,
}

/// Cells of the file, and where they are. `read == placed + unplaced`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Cells of the file, without column names.
    pub read: u64,
    /// Cells of a table with a heading, below a named column or a row of labels.
    pub placed: u64,
    /// Cells that are kept in [`Report::unplaced`].
    pub unplaced: u64,
    /// Placed cells of sections that the catalogue does not contain.
    pub uncatalogued: u64,
}

/// A cell that fits no column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unplaced {
    pub line: u32,
    pub text: String,
}

/// A range of the text buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub start: u32,
    pub length: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SectionData {
    pub heading: Span,
    pub anchor: Span,
    pub line: u32,
    pub catalogued: bool,
    pub first_table: u32,
    pub first_note: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct TableData {
    pub title: Span,
    pub summary: Span,
    pub line: u32,
    pub first_column: u32,
    pub columns: u32,
    pub first_row: u32,
    pub rows: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnData {
    pub group: Span,
    pub name: Span,
    pub unit: Unit,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RowData {
    pub first_cell: u32,
    pub line: u32,
    /// Blank cells behind the last cell that is kept.
    pub blanks: u16,
}

/// The tables of a report. Only the builder changes them.
#[derive(Clone, Debug, Default)]
pub(super) struct Data {
    pub text: String,
    pub sections: Vec<SectionData>,
    pub tables: Vec<TableData>,
    pub columns: Vec<ColumnData>,
    pub rows: Vec<RowData>,
    pub cells: Vec<Span>,
    pub notes: Vec<Span>,
}

impl Data {
    pub fn text(&self, span: Span) -> &str {
        &self.text[span.start as usize..(span.start + span.length) as usize]
    }
}

/// A report that was read.
#[derive(Clone, Debug)]
pub struct Report {
    /// The name of the file, and of the member of an archive.
    pub name: String,
    pub form: Form,
    pub kind: Kind,
    /// `UTF-8`, `UTF-16LE`, `UTF-16BE` or `windows-1252`.
    pub encoding: &'static str,
    /// Bytes of the file, decompressed.
    pub bytes: u64,
    /// Whether `,` is the decimal separator.
    pub decimal_comma: bool,
    pub header: Header,
    pub warnings: Vec<Warning>,
    pub counts: Counts,
    /// Cells that fit no column; at most [`UNPLACED_MAX`] are kept.
    pub unplaced: Vec<Unplaced>,
    pub(super) data: Data,
}

/// Bounds the unplaced cells that are kept. All of them are counted.
pub const UNPLACED_MAX: usize = 10_000;

impl Report {
    /// Sections in the order of the report.
    pub fn sections(&self) -> impl ExactSizeIterator<Item = Section<'_>> + DoubleEndedIterator {
        (0..self.data.sections.len()).map(|index| Section { report: self, index })
    }

    /// The first section that has the heading and a table. Compares as [`same_name`].
    pub fn section(&self, heading: &str) -> Option<Section<'_>> {
        self.sections().find(|section| same_name(section.heading(), heading) && section.tables().len() > 0)
    }

    /// All tables, in the order of the report.
    pub fn tables(&self) -> impl ExactSizeIterator<Item = Table<'_>> {
        (0..self.data.tables.len()).map(|index| Table { report: self, index })
    }

    /// Sections that the catalogue of headings does not contain.
    pub fn uncatalogued(&self) -> impl Iterator<Item = Section<'_>> {
        self.sections().filter(|section| !section.catalogued() && section.tables().len() > 0)
    }
}

/// A heading with its notes and tables.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    report: &'a Report,
    index: usize,
}

impl<'a> Section<'a> {
    fn data(self) -> &'a SectionData {
        &self.report.data.sections[self.index]
    }

    /// The heading on one line, without instance and snapshots.
    pub fn heading(self) -> &'a str {
        self.report.data.text(self.data().heading)
    }

    /// The name of the HTML anchor; empty without one.
    pub fn anchor(self) -> &'a str {
        self.report.data.text(self.data().anchor)
    }

    pub fn line(self) -> u32 {
        self.data().line
    }

    /// Whether the catalogue of headings contains the heading.
    pub fn catalogued(self) -> bool {
        self.data().catalogued
    }

    /// Notes between heading and table (`->` lines, list items), and sentences in place of a table.
    pub fn notes(self) -> impl ExactSizeIterator<Item = &'a str> {
        let next = self.report.data.sections.get(self.index + 1);
        let end = next.map_or(self.report.data.notes.len(), |next| next.first_note as usize);
        let data = &self.report.data;
        data.notes[self.data().first_note as usize..end].iter().map(|span| data.text(*span))
    }

    pub fn tables(self) -> impl ExactSizeIterator<Item = Table<'a>> {
        let next = self.report.data.sections.get(self.index + 1);
        let end = next.map_or(self.report.data.tables.len(), |next| next.first_table as usize);
        (self.data().first_table as usize..end).map(move |index| Table { report: self.report, index })
    }
}

/// A table: columns and rows.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    report: &'a Report,
    index: usize,
}

impl<'a> Table<'a> {
    fn data(self) -> &'a TableData {
        &self.report.data.tables[self.index]
    }

    /// Number of the table in the report, from 0.
    pub fn index(self) -> usize {
        self.index
    }

    /// A title besides the section's heading; empty without one.
    pub fn title(self) -> &'a str {
        self.report.data.text(self.data().title)
    }

    /// The attribute `summary` of an HTML table; empty in text reports. Not unique, and with typographical errors.
    pub fn summary(self) -> &'a str {
        self.report.data.text(self.data().summary)
    }

    pub fn line(self) -> u32 {
        self.data().line
    }

    pub fn columns(self) -> impl ExactSizeIterator<Item = Column<'a>> {
        let data = self.data();
        let columns = &self.report.data.columns[data.first_column as usize..][..data.columns as usize];
        columns.iter().map(|column| Column { report: self.report, data: column })
    }

    pub fn rows(self) -> impl ExactSizeIterator<Item = Row<'a>> {
        let data = self.data();
        (data.first_row as usize..(data.first_row + data.rows) as usize).map(move |index| Row { table: self, index })
    }

    /// Index of the first column that has one of the names. Names are tried in order; with or without the group
    /// (`Wait Time Total(s)`, `Total(s)`). Compares as [`same_name`].
    pub fn column(self, names: &[&str]) -> Option<usize> {
        names.iter().find_map(|name| {
            self.columns().position(|column| same_name(column.name(), name)).or_else(|| {
                let full = |column: &Column<'a>| format!("{} {}", column.group(), column.name());
                self.columns().position(|column| !column.group().is_empty() && same_name(&full(&column), name))
            })
        })
    }
}

/// A column's names.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    report: &'a Report,
    data: &'a ColumnData,
}

impl<'a> Column<'a> {
    /// The name in the last header row, on one line.
    pub fn name(self) -> &'a str {
        self.report.data.text(self.data.name)
    }

    /// The names in the header rows above, joined by a blank; empty without them.
    pub fn group(self) -> &'a str {
        self.report.data.text(self.data.group)
    }

    /// The unit in the column's name; [`Unit::None`] without one.
    pub fn unit(self) -> Unit {
        self.data.unit
    }
}

/// A row of cells.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    table: Table<'a>,
    index: usize,
}

impl<'a> Row<'a> {
    /// The line of the file in which the row begins, from 1.
    pub fn line(self) -> u32 {
        self.table.report.data.rows[self.index].line
    }

    fn spans(self) -> &'a [Span] {
        let data = &self.table.report.data;
        let end = data.rows.get(self.index + 1).map_or(data.cells.len(), |next| next.first_cell as usize);
        &data.cells[data.rows[self.index].first_cell as usize..end]
    }

    /// The cells as printed, without surrounding blanks.
    pub fn cells(self) -> impl ExactSizeIterator<Item = &'a str> {
        let blanks = usize::from(self.table.report.data.rows[self.index].blanks);
        (0..self.spans().len() + blanks).map(move |column| self.text(column))
    }

    /// A cell as printed; empty if the row has fewer cells.
    pub fn text(self, column: usize) -> &'a str {
        self.spans().get(column).map_or("", |span| self.table.report.data.text(*span))
    }

    /// The cell's value in its base unit: microseconds, bytes, per cent, or a number. None for blanks, texts, `N/A` and
    /// overflow (`#####`). The unit is that of the value (`12.3ms`), or else of the column (`Time (s)`), or else of the
    /// row's label (`Redo size (bytes):`).
    pub fn value(self, column: usize) -> Option<Value> {
        let data = self.table.data();
        let unit = match column < data.columns as usize {
            true => self.table.report.data.columns[data.first_column as usize + column].unit,
            false => Unit::None,
        };
        let unit = if unit == Unit::None && column > 0 { value::unit_of_name(self.text(0)) } else { unit };
        value::parse(self.text(column), unit, self.table.report.decimal_comma)
    }

    /// The number of [`Self::value`].
    pub fn number(self, column: usize) -> Option<f64> {
        self.value(column).map(|value| value.number)
    }

    /// The value below the first column that has one of the names.
    pub fn named(self, names: &[&str]) -> Option<f64> {
        self.number(self.table.column(names)?)
    }
}

/// Whether two names of sections, columns or statistics are the same: without regard to case, blanks, and colons at the end.
pub fn same_name(a: &str, b: &str) -> bool {
    fn letters(name: &str) -> impl Iterator<Item = char> + '_ {
        let name = name.trim_end().trim_end_matches(':');
        name.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase)
    }
    letters(a).eq(letters(b))
}
