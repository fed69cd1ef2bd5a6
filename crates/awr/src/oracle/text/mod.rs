//! Reads text reports of SQL*Plus: AWR, RAC global and Statspack.
//!
//! A section begins with a line that names instance and snapshots behind the heading, or with a heading above tildes. The
//! ruler draws the columns of a table; lines above the ruler name them. Page breaks repeat heading, notes, names and ruler in
//! the middle of a table, which then continues. A section ends with a line of 54 or 61 hyphens.
//!
//! Lines are read once; decisions look at most [`AHEAD`] lines ahead, so that the time is linear.

mod columns;
mod line;

use super::builder::{Builder, Names};
use super::model::Kind;
use super::value;
use columns::Layout;
pub use line::without_page_heads;
use line::{Lines, heading, is_terminator, pairs, phrases, ruler, slice, tildes};

/// Lines that are looked at to find the ruler below a header.
const AHEAD: usize = 8;
const PENDING_MAX: usize = 12;
/// Characters of a line of SQL text in AWR reports, and of a piece of SQL text in Statspack reports. A shorter line ended with a
/// blank, which reports cut off.
const SQL_LINE: usize = 80;
const SQL_PIECE: usize = 64;
/// Bounds the text that wrapped lines add to a cell.
const WRAPPED_MAX: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    /// One line, or one line for each ruler.
    Lines,
    /// A line with the row's name above each row.
    LabelAbove,
    /// Lines of SQL text below each row. Contains the column of the statement's identifier, and whether it is an SQL_ID.
    SqlBelow { id: usize, is_sql_id: bool },
}

#[derive(Debug)]
struct Open {
    layout: Layout,
    rows: Rows,
    is_declared: bool,
    /// Cells of the first lines of the row that is being read.
    partial: Vec<String>,
    partial_line: u32,
    /// Lines of that row, of a table with several rulers.
    lines: usize,
    /// Columns whose cells continue on the next line.
    is_wrapped: Vec<bool>,
    /// Characters of the last line of each cell of the last row, if cells continue.
    lengths: Vec<usize>,
    /// The next line is the text of the last row.
    in_text: bool,
    /// The last line of the text continues without a blank.
    text_is_full: bool,
    /// The last row has no text yet.
    text_begins: bool,
    /// Lines of labels and values, without a ruler.
    is_pairs: bool,
}

impl Open {
    fn new(layout: Layout, rows: Rows) -> Self {
        Self {
            layout,
            rows,
            is_declared: false,
            partial: Vec::new(),
            partial_line: 0,
            lines: 0,
            is_wrapped: Vec::new(),
            lengths: Vec::new(),
            in_text: false,
            text_is_full: false,
            text_begins: false,
            is_pairs: false,
        }
    }
}

#[derive(Default)]
struct Reader {
    builder: Builder,
    /// Lines that may be the header of a table.
    pending: Vec<String>,
    open: Option<Box<Open>>,
    /// The table that continues if the same ruler follows.
    held: Option<Box<Open>>,
    /// The section has a heading above tildes: blank lines end its tables.
    is_underlined: bool,
    is_terminated: bool,
    note: String,
    has_ended: bool,
    /// Long cells continue on the next line. AWR reports cut them.
    wraps: bool,
    /// Characters of a line of SQL text that continues without a blank.
    sql_line: usize,
    /// The report is of Cellar.
    is_own: bool,
    /// The lines are findings of our own report.
    in_findings: bool,
}

/// Reads a report. The builder contains what the file contains, also if the file is cut off.
pub fn read(input: &str, kind: Kind) -> Builder {
    let mut reader = Reader {
        builder: Builder::new(input.len()),
        is_terminated: true,
        // Oracle cuts the cells of AWR reports.
        wraps: matches!(kind, Kind::Statspack | Kind::Cellar),
        sql_line: match kind {
            Kind::Statspack => SQL_PIECE,
            // Our own reports are wrapped at words.
            Kind::Cellar => usize::MAX,
            _ => SQL_LINE,
        },
        is_own: kind == Kind::Cellar,
        ..Reader::default()
    };
    let mut lines = Lines::new(input);
    while let Some(line) = lines.next() {
        reader.line(&line, lines.number, &lines);
    }
    reader.finish(lines.number)
}

impl Reader {
    fn line(&mut self, line: &str, number: u32, rest: &Lines<'_>) {
        if line.trim().is_empty() {
            return self.blank(rest);
        }
        if let Some(heading) = heading(line) {
            return self.begin_section(heading, number);
        }
        if line.starts_with("WORKLOAD REPOSITORY") || line.starts_with("STATSPACK ") {
            self.close();
            self.is_underlined = true;
            self.is_terminated = false;
            return self.builder.section(line, "", number);
        }
        if line.trim_start().starts_with("End of Report") {
            self.has_ended = true;
            return self.close();
        }
        if is_terminator(line) && (self.open.is_some() || self.held.is_some() || self.pending.is_empty()) {
            self.close();
            self.is_terminated = true;
            return;
        }
        if let Some(range) = tildes(line) {
            let groups = phrases(line, 1).iter().filter(|group| slice(line, **group).starts_with("~~~")).count();
            // Tildes above sums separate rows.
            if groups == 1 {
                self.underlined(line, range, number, rest);
            }
            return;
        }
        let is_note = line.trim_start().starts_with("->");
        let is_indented = line.starts_with("    ");
        if !is_note
            && !is_indented
            && rest.may_be_tildes()
            && rest.clone().next().is_some_and(|next| tildes(&next).is_some_and(|range| range.0 < 4))
        {
            self.close();
            self.pending.push(line.to_owned());
            return;
        }
        if self.is_own && (self.in_findings || is_finding(line)) {
            self.in_findings = true;
            self.close();
            return self.builder.note(line);
        }
        if let Some(columns) = ruler(line)
            && self.ruler(line, columns, rest)
        {
            return;
        }
        let is_text = self.open.as_ref().is_some_and(|open| open.in_text);
        let trimmed = line.trim_start();
        if trimmed.starts_with("->") && !is_text {
            self.end_note();
            trimmed[2..].trim().clone_into(&mut self.note);
        } else if !self.note.is_empty() && self.open.is_none() && self.continues_note(line) {
            self.note.push(' ');
            self.note.push_str(trimmed);
        } else if self.open.is_some() {
            self.data(line, number);
        } else {
            self.other(line, number, rest);
        }
    }

    /// Whether a line below a note is a part of it. Our own reports indent such lines by three blanks, headings of columns by more.
    fn continues_note(&self, line: &str) -> bool {
        line.starts_with("  ") && !(self.is_own && line.starts_with("    "))
    }

    /// Adds the note that is being read. A continued page repeats the notes.
    fn end_note(&mut self) {
        let note = std::mem::take(&mut self.note);
        if self.held.is_none() {
            self.builder.note(&note);
        }
    }

    /// Turns pending lines, which are no header of a table, into notes.
    fn end_pending(&mut self) {
        for line in std::mem::take(&mut self.pending) {
            if self.held.is_none() && ruler(&line).is_none() {
                self.builder.note(&line);
            }
        }
    }

    fn close(&mut self) {
        self.end_note();
        self.end_pending();
        if let Some(open) = self.open.take().or(self.held.take()) {
            self.end_partial(&open);
        }
        self.held = None;
        self.builder.end_table();
    }

    /// Keeps the cells of a row whose second line is missing.
    fn end_partial(&mut self, open: &Open) {
        for cell in &open.partial {
            self.builder.row(open.partial_line);
            self.builder.cell(cell, open.partial_line);
        }
    }

    fn begin_section(&mut self, heading: &str, number: u32) {
        let continues =
            !self.is_terminated && self.builder.heading().is_some_and(|last| super::model::same_name(last, heading));
        if continues && (self.open.is_some() || self.held.is_some()) {
            self.pending.clear();
            self.note.clear();
            self.held = self.open.take().or(self.held.take());
            return;
        }
        self.close();
        self.in_findings = false;
        self.is_terminated = false;
        self.is_underlined = false;
        self.builder.section(heading, "", number);
    }

    /// Begins a section whose heading stands above tildes. Names of columns may stand behind the heading and the tildes.
    fn underlined(&mut self, line: &str, range: line::Range, number: u32, rest: &Lines<'_>) {
        let above = self.pending.pop().unwrap_or_default();
        if above.is_empty() && range.1 == line.chars().count() {
            // Below the title of the report.
            return;
        }
        // Notes may stand between heading and tildes.
        let note = std::mem::take(&mut self.note);
        self.close();
        self.in_findings = false;
        self.is_terminated = false;
        self.is_underlined = true;
        let parts = phrases(&above, 2);
        let length = above.chars().count();
        let whole = range.1 >= length || parts.len() < 2;
        let end = if whole { length } else { parts[0].1 };
        // Reports that compare periods lack the heading above the first tildes.
        if !above.trim().is_empty() {
            self.builder.section(slice(&above, (0, end)), "", number.saturating_sub(1));
        }
        self.builder.note(&note);
        let behind = slice(&above, (end, length));
        if behind.trim_start().starts_with('(') {
            self.builder.note(behind);
        } else if !behind.trim().is_empty() {
            self.pending.push(format!("{}{behind}", " ".repeat(end)));
        }
        let behind = format!("{}{}", " ".repeat(range.1), slice(line, (range.1, usize::MAX)));
        match ruler(&behind) {
            Some(columns) => {
                self.ruler(&behind, columns, rest);
            }
            None if behind.trim().is_empty() => {}
            None => self.pending.push(behind),
        }
    }

    fn blank(&mut self, rest: &Lines<'_>) {
        self.end_note();
        if self.held.is_none() || !self.pending.is_empty() {
            self.end_pending();
        }
        let Some(open) = &mut self.open else { return };
        open.in_text = false;
        let ruler = ruler_ahead(rest.clone());
        let is_sql = matches!(open.rows, Rows::SqlBelow { .. });
        let same = ruler.as_ref().is_some_and(|ruler| open.layout.rulers.contains(ruler));
        if ruler.is_some() && (!is_sql || same) {
            self.held = self.open.take();
        } else if self.is_underlined && !open.layout.labelled && !open.is_pairs && !is_sql {
            self.close();
        }
    }

    /// Begins or continues a table. Returns false if the line is none of the table's rulers.
    fn ruler(&mut self, line: &str, columns: Vec<line::Range>, rest: &Lines<'_>) -> bool {
        if let Some(open) = &self.open {
            let is_sum = columns.iter().all(|column| open.layout.rulers.iter().any(|ruler| ruler.contains(column)));
            if open.in_text && !open.layout.rulers.contains(&columns) {
                return false;
            }
            if is_sum && self.pending.is_empty() {
                // A line above a sum.
                return true;
            }
        }
        // A ruler above names and another ruler belongs to the header.
        let below = ruler_ahead(rest.clone());
        let is_sum = |below: &Vec<line::Range>| {
            below.len() < columns.len() && below.iter().all(|column| columns.contains(column))
        };
        if below.is_some_and(|below| !is_sum(&below)) && self.pending.len() < PENDING_MAX {
            self.pending.push(line.to_owned());
            return true;
        }
        self.end_note();
        let layout = Layout::new(&std::mem::take(&mut self.pending), columns);
        if let Some(held) = self.held.take() {
            if held.layout.same_rulers(&layout) {
                self.open = Some(held);
                return true;
            }
            self.end_partial(&held);
        }
        self.close();
        let position = |known: &[&str]| layout.names.iter().position(|(_, name)| known.contains(&name.as_str()));
        let has_text = layout.names.iter().any(|(_, name)| name.ends_with("SQL Text") || name.ends_with("Statement"));
        let rows = match (position(&["SQL Id", "SQL ID"]), position(&["Hash Value", "Old Hash Value"])) {
            _ if layout.rulers.len() > 1 || layout.labelled || has_text => Rows::Lines,
            (Some(id), _) => Rows::SqlBelow { id, is_sql_id: true },
            (_, Some(id)) => Rows::SqlBelow { id, is_sql_id: false },
            _ => Rows::Lines,
        };
        let is_wrapped: Vec<bool> = layout.names.iter().map(|(_, name)| self.wraps || name.ends_with("Text")).collect();
        self.open = Some(Box::new(Open { is_wrapped, ..Open::new(layout, rows) }));
        true
    }

    /// A line outside of tables: a pair of label and value, or a line of a header.
    fn other(&mut self, line: &str, number: u32, rest: &Lines<'_>) {
        let has_value = pairs(line).iter().any(|(_, value)| !value.is_empty());
        if self.is_underlined && has_value && self.pending.is_empty() && ruler_ahead(rest.clone()).is_none() {
            let layout = Layout { rulers: Vec::new(), labelled: false, names: Vec::new() };
            self.builder.table("", "", number, &[]);
            let open = Open { is_declared: true, is_pairs: true, ..Open::new(layout, Rows::Lines) };
            self.open = Some(Box::new(open));
            return self.data(line, number);
        }
        if self.pending.len() >= PENDING_MAX || line.contains("No data exists for this section") {
            self.end_pending();
            self.builder.note(line);
        } else {
            self.pending.push(line.to_owned());
        }
    }

    fn data(&mut self, line: &str, number: u32) {
        let Some(mut open) = self.open.take() else { return };
        let container = container(line)
            .filter(|_| open.is_declared && !open.is_pairs && open.partial.is_empty() && open.lines == 0);
        if let Some(name) = container {
            let columns = open.layout.names.len() + if matches!(open.rows, Rows::SqlBelow { .. }) { 2 } else { 0 };
            self.builder.further_cell(columns, "PDB Name", name, number);
        } else if open.is_pairs {
            self.pairs(line, number);
        } else if open.layout.labelled {
            self.labelled(&mut open, line, number);
        } else if open.layout.rulers.len() > 1 {
            self.stacked(&mut open, line, number);
        } else {
            match open.rows {
                Rows::SqlBelow { id, is_sql_id } => self.statement(&mut open, id, is_sql_id, line, number),
                Rows::LabelAbove => self.label_above(&mut open, line, number),
                Rows::Lines => self.plain(&mut open, line, number),
            }
        }
        self.open = Some(open);
    }

    /// A row of labels and values, in one table without names.
    fn pairs(&mut self, line: &str, number: u32) {
        let pairs = pairs(line);
        if pairs.is_empty() {
            return self.builder.note(line);
        }
        self.builder.row(number);
        for (label, value) in pairs {
            self.builder.cell(label, number);
            self.builder.cell(value, number);
        }
    }

    fn declare(&mut self, open: &mut Open, number: u32, further: &[&str]) {
        if !open.is_declared {
            open.is_declared = true;
            let mut names: Vec<Names> = open.layout.names.clone();
            names.extend(further.iter().map(|name| (String::new(), (*name).to_owned())));
            self.builder.table("", "", number, &names);
        }
    }

    fn add_row<'a>(&mut self, cells: impl IntoIterator<Item = &'a str>, number: u32) {
        self.builder.row(number);
        for cell in cells {
            self.builder.cell(cell, number);
        }
    }

    /// A row whose label stands left of the columns. Further pairs may stand behind the last column.
    fn labelled(&mut self, open: &mut Open, line: &str, number: u32) {
        let cells = open.layout.cells(line, 0);
        let further = pairs(line);
        if cells.is_none() && further.is_empty() {
            return self.builder.note(line);
        }
        self.declare(open, number, &[]);
        self.builder.grow_rows();
        match cells {
            Some(cells) => {
                let last = cells.len() - 1;
                // The last column took the rest of the line, with pairs of label and value.
                let end = open.layout.rulers[0].last().map_or(0, |column| column.1);
                let pairs = pairs(slice(line, (end, usize::MAX)));
                let start = open.layout.rulers[0].last().map_or(0, |column| column.0);
                let value = if pairs.is_empty() { cells[last] } else { slice(line, (start, end)).trim() };
                self.add_row(cells[..last].iter().copied().chain([value]), number);
                for (label, value) in pairs {
                    self.builder.cell(label, number);
                    self.builder.cell(value, number);
                }
            }
            None => self.add_row(further.iter().flat_map(|(label, value)| [*label, *value]), number),
        }
    }

    /// A line of a row with as many lines as the table has rulers.
    fn stacked(&mut self, open: &mut Open, line: &str, number: u32) {
        let ruler = open.lines;
        let cells = open.layout.cells(line, ruler);
        if ruler == 0 {
            open.partial_line = number;
        }
        match cells {
            Some(cells) => open.partial.extend(cells.into_iter().map(str::to_owned)),
            None if ruler == 0 => {
                open.partial = vec![String::new(); open.layout.rulers[0].len()];
                line.trim().clone_into(&mut open.partial[0]);
            }
            None => {
                // The line before was wrapped, if its last cell is a text.
                if open.partial.last().is_some_and(|text| is_number(text)) {
                    return self.builder.stray(line, number);
                }
                if let Some(text) = open.partial.last_mut().filter(|text| text.len() < WRAPPED_MAX) {
                    text.push_str(line.trim());
                }
                return;
            }
        }
        open.lines += 1;
        if open.lines == open.layout.rulers.len() {
            open.lines = 0;
            self.declare(open, open.partial_line, &[]);
            let cells = std::mem::take(&mut open.partial);
            self.add_row(cells.iter().map(String::as_str), open.partial_line);
        }
    }

    fn label_above(&mut self, open: &mut Open, line: &str, number: u32) {
        let cells = if open.partial.is_empty() { None } else { open.layout.cells(line, 0) };
        match cells {
            Some(cells) => {
                self.declare(open, open.partial_line, &[]);
                let label = std::mem::take(&mut open.partial);
                self.add_row(label.iter().map(String::as_str).chain(cells), open.partial_line);
            }
            None => match open.partial.first_mut() {
                Some(label) if label.len() < WRAPPED_MAX => {
                    label.push(' ');
                    label.push_str(line.trim());
                }
                Some(_) => {}
                None => {
                    open.partial = vec![line.trim().to_owned()];
                    open.partial_line = number;
                }
            },
        }
    }

    /// A line of a list of statements: figures, module, or SQL text.
    fn statement(&mut self, open: &mut Open, id: usize, is_sql_id: bool, line: &str, number: u32) {
        let is_id = |text: &str| match is_sql_id {
            true => text.len() == 13 && text.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase()),
            false => text.len() >= 4 && text.bytes().all(|byte| byte.is_ascii_digit()),
        };
        let is_figure =
            |cell: &str| cell.bytes().next().is_none_or(|byte| !byte.is_ascii_alphabetic()) || cell.starts_with("N/A");
        let row = open.layout.cells(line, 0).filter(|cells| {
            let is_text = |column: usize| column == id || (is_sql_id && column > id);
            is_id(cells[id]) && cells.iter().enumerate().all(|(column, cell)| is_text(column) || is_figure(cell))
        });
        if let Some(cells) = row {
            self.declare(open, number, &["SQL Module", "SQL Text"]);
            self.add_row(cells, number);
            self.builder.repeat(super::model::Span::default());
            self.builder.repeat(super::model::Span::default());
            open.in_text = true;
            open.text_begins = true;
            open.text_is_full = false;
        } else if open.is_declared {
            let (module, text) = (open.layout.names.len(), open.layout.names.len() + 1);
            if let Some(name) = line.trim_start().strip_prefix("Module:").filter(|_| open.text_begins) {
                self.builder.continue_cell(module, name.trim(), "");
            } else {
                let separator = if open.text_is_full { "" } else { " " };
                open.text_is_full = line.chars().count() >= self.sql_line;
                // Our own reports indent texts.
                let line = if self.is_own { line.trim_start() } else { line };
                self.builder.continue_cell(text, line, separator);
            }
            open.text_begins = false;
            open.in_text = true;
        } else {
            self.builder.stray(line, number);
        }
    }

    fn plain(&mut self, open: &mut Open, line: &str, number: u32) {
        if !open.layout.fits(line, 0) {
            if open.is_declared {
                return self.builder.stray(line, number);
            }
            open.rows = Rows::LabelAbove;
            open.layout.names.insert(0, (String::new(), "Name".to_owned()));
            return self.label_above(open, line, number);
        }
        if open.is_wrapped.contains(&true) {
            if open.is_declared && self.continued(open, line) {
                return;
            }
            open.lengths.clear();
            open.lengths.extend(open.layout.split(line, 0).map(|cell| cell.chars().count()));
        }
        self.declare(open, number, &[]);
        self.add_row(open.layout.split(line, 0), number);
    }

    /// Appends the line to a cell of the last row if the line is the rest of a wrapped cell.
    fn continued(&mut self, open: &mut Open, line: &str) -> bool {
        let mut filled = open.layout.split(line, 0).enumerate().filter(|(_, cell)| !cell.is_empty());
        let (Some((column, text)), None) = (filled.next(), filled.next()) else { return false };
        if open.layout.rulers[0].len() < 2 || !open.is_wrapped[column] {
            return false;
        }
        // The line before is full, or has no space for the next word.
        let (start, end) = open.layout.rulers[0][column];
        let before = open.lengths.get(column).copied().unwrap_or(0);
        let word = text.split(' ').next().unwrap_or("").chars().count();
        let is_full = before >= end - start;
        let continues = before > 0 && (is_full || before + word >= end - start);
        if !continues || self.builder.last_cell(column).len() >= WRAPPED_MAX {
            return false;
        }
        self.builder.continue_cell(column, text, if is_full { "" } else { " " });
        open.lengths[column] = text.chars().count();
        true
    }

    fn finish(mut self, line: u32) -> Builder {
        let inside = self.open.is_some() || self.held.is_some();
        self.close();
        if !self.has_ended {
            self.builder.cut_off(line, inside);
        }
        self.builder
    }
}

/// Whether a line of our own report begins a finding: `PROBLEM [lock-waits]: …`.
fn is_finding(line: &str) -> bool {
    let kind = line.split_once(" [").map_or("", |(kind, _)| kind);
    matches!(kind, "PROBLEM" | "SYMPTOM" | "INFORMATION")
}

/// The name in a line below a row of a report about a container database: `   PDB: PDB1`.
fn container(line: &str) -> Option<&str> {
    let name = line.strip_prefix("   ")?.trim_start().strip_prefix("PDB: ")?.trim();
    (!name.is_empty() && !name.contains(' ')).then_some(name)
}

/// Whether a cell is a number.
fn is_number(cell: &str) -> bool {
    value::parse(cell, value::Unit::None, false).is_some()
}

/// The next ruler within a few lines that are not blank.
fn ruler_ahead(rest: Lines<'_>) -> Option<Vec<line::Range>> {
    for line in rest.take(AHEAD) {
        if line.trim().is_empty()
            || is_terminator(&line)
            || heading(&line).is_some()
            || tildes(&line).is_some()
            || line.trim_start().starts_with("->")
        {
            return None;
        }
        if let Some(columns) = ruler(&line) {
            return Some(columns);
        }
    }
    None
}
