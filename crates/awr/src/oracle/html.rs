//! Reads HTML reports: headings, paragraphs that stand before tables, notes, tables.
//!
//! html5gum tokenizes as the HTML standard demands, in linear time and without a tree. The tags are interpreted leniently:
//! a cell ends where another cell, row or table begins. Header rows are rows of `th` above the first row of data; cells that
//! cover several columns or rows are spread. A table inside a cell becomes a separate table; after it, the outer table continues
//! with the same columns.

use super::builder::{Builder, HEADING_MAX, Names};
use super::model::Span;
use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};
use html5gum::{Span as Place, Tokenizer};
use std::convert::Infallible;

const HEADER_ROWS_MAX: usize = 8;
const NESTED_MAX: usize = 16;
const SPREAD_MAX: usize = 200;
/// Bounds the cells of a header row.
const HEADER_CELLS_MAX: usize = 1_000;
/// Paragraphs before a table that are looked at for its heading. Earlier ones are notes.
const PARAGRAPHS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Tag {
    Table,
    Row,
    Data,
    Head,
    Heading,
    Item,
    List,
    Block,
    Break,
    Link,
    /// Contents are no text of the report.
    Hidden,
    Body,
    #[default]
    Other,
}

fn tag(name: &[u8]) -> Tag {
    match name {
        b"table" => Tag::Table,
        b"tr" => Tag::Row,
        b"td" => Tag::Data,
        b"th" => Tag::Head,
        b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => Tag::Heading,
        b"li" => Tag::Item,
        b"ul" | b"ol" => Tag::List,
        b"p" | b"div" | b"hr" | b"pre" | b"center" | b"section" | b"nav" | b"main" | b"header" | b"footer"
        | b"details" | b"summary" => Tag::Block,
        b"br" => Tag::Break,
        b"a" => Tag::Link,
        // Figures repeat the figures of tables.
        b"script" | b"style" | b"title" | b"svg" | b"figure" => Tag::Hidden,
        b"html" | b"body" => Tag::Body,
        _ => Tag::Other,
    }
}

/// A cell of the row that is being read.
#[derive(Clone, Copy, Debug)]
struct RowCell {
    /// End of the cell's text in the row's text.
    end: u32,
    line: u32,
    is_head: bool,
    columns: u8,
    rows: u8,
}

#[derive(Clone, Debug)]
struct HeaderCell {
    text: String,
    columns: usize,
    rows: usize,
}

#[derive(Debug, Default)]
struct OpenTable {
    line: u32,
    summary: String,
    header: Vec<Vec<HeaderCell>>,
    /// The builder's handle, from the first row of data on.
    handle: Option<usize>,
    /// A table inside of a cell ended the builder's table.
    interrupted: bool,
    /// Cells that cover further rows: remaining rows, text.
    covering: Vec<(usize, Span)>,
}

/// Attributes of the start tag that is being read.
#[derive(Debug, Default)]
struct Attributes {
    summary: String,
    name: String,
    links_inside: bool,
    columns: usize,
    rows: usize,
}

struct Reader<'a> {
    input: &'a [u8],
    builder: Builder,
    /// Newlines before `counted`.
    line: u32,
    counted: usize,
    tag: Tag,
    attribute: Vec<u8>,
    attributes: Attributes,
    tables: Vec<OpenTable>,
    deeper: usize,
    row: Vec<RowCell>,
    row_text: String,
    row_line: u32,
    in_cell: bool,
    /// Text outside of tables.
    text: String,
    text_line: u32,
    in_heading: bool,
    in_item: bool,
    lists: usize,
    in_link: bool,
    hidden: usize,
    anchor: String,
    /// Paragraphs since the last heading or table.
    paragraphs: Vec<(String, u32)>,
    ended: bool,
}

/// Reads a report. The builder contains what the file contains, also if the file is cut off.
pub fn read(input: &str) -> Builder {
    let mut reader = Reader::new(input.as_bytes());
    let callback = |event: CallbackEvent<'_>, place: Place<usize>| -> Option<Infallible> {
        reader.event(event, place.start);
        None
    };
    let mut emitter = CallbackEmitter::new(callback);
    emitter.naively_switch_states(true);
    // Reading from memory does not fail.
    let _ = Tokenizer::new_with_emitter(input, emitter).finish();
    reader.finish()
}

impl<'a> Reader<'a> {
    fn new(input: &'a [u8]) -> Self {
        Self {
            input,
            builder: Builder::new(input.len()),
            line: 0,
            counted: 0,
            tag: Tag::Other,
            attribute: Vec::new(),
            attributes: Attributes::default(),
            tables: Vec::new(),
            deeper: 0,
            row: Vec::new(),
            row_text: String::new(),
            row_line: 0,
            in_cell: false,
            text: String::new(),
            text_line: 0,
            in_heading: false,
            in_item: false,
            lists: 0,
            in_link: false,
            hidden: 0,
            anchor: String::new(),
            paragraphs: Vec::new(),
            ended: false,
        }
    }

    /// The line of an offset, from 1. Offsets grow.
    fn line_at(&mut self, offset: usize) -> u32 {
        let offset = offset.min(self.input.len());
        if offset > self.counted {
            let newlines = self.input[self.counted..offset].iter().filter(|byte| **byte == b'\n').count();
            self.line += newlines as u32;
            self.counted = offset;
        }
        self.line + 1
    }

    fn event(&mut self, event: CallbackEvent<'_>, offset: usize) {
        match event {
            CallbackEvent::OpenStartTag { name } => {
                self.tag = tag(name);
                self.attributes = Attributes { columns: 1, rows: 1, ..Attributes::default() };
            }
            CallbackEvent::AttributeName { name } => {
                self.attribute.clear();
                self.attribute.extend_from_slice(&name[..name.len().min(16)]);
            }
            CallbackEvent::AttributeValue { value } => self.attribute_value(value),
            CallbackEvent::CloseStartTag { .. } => {
                let line = self.line_at(offset);
                self.open(line);
            }
            CallbackEvent::EndTag { name } => {
                self.close(tag(name));
            }
            CallbackEvent::String { value } => {
                let line = self.line_at(offset);
                self.string(value, line);
            }
            CallbackEvent::Comment { .. } | CallbackEvent::Doctype { .. } | CallbackEvent::Error(_) => {}
        }
    }

    fn attribute_value(&mut self, value: &[u8]) {
        let text = || String::from_utf8_lossy(&value[..value.len().min(2000)]).into_owned();
        let number = || text().trim().parse::<usize>().unwrap_or(1).clamp(1, SPREAD_MAX);
        match (self.tag, self.attribute.as_slice()) {
            (Tag::Table, b"summary") => self.attributes.summary = text(),
            (Tag::Link, b"name") | (Tag::Heading | Tag::Block, b"id") => self.attributes.name = text(),
            (Tag::Link, b"href") => self.attributes.links_inside = value.starts_with(b"#"),
            (Tag::Data | Tag::Head, b"colspan") => self.attributes.columns = number(),
            (Tag::Data | Tag::Head, b"rowspan") => self.attributes.rows = number(),
            _ => {}
        }
    }

    fn open(&mut self, line: u32) {
        let attributes = std::mem::take(&mut self.attributes);
        match self.tag {
            Tag::Table => {
                self.end_row();
                self.end_text();
                if self.tables.len() >= NESTED_MAX {
                    self.deeper += 1;
                    return;
                }
                if let Some(outer) = self.tables.last_mut() {
                    outer.interrupted = outer.handle.is_some();
                }
                self.title();
                // A fragment with its own end may stand inside of a report.
                self.ended = false;
                self.tables.push(OpenTable { line, summary: attributes.summary, ..OpenTable::default() });
            }
            Tag::Row => {
                self.end_row();
                self.row_line = line;
            }
            Tag::Data | Tag::Head => {
                self.end_cell();
                if self.tables.is_empty() {
                    return;
                }
                if self.row.is_empty() {
                    self.row_line = line;
                }
                let is_head = self.tag == Tag::Head;
                let end = self.row_text.len() as u32;
                let (columns, rows) = (attributes.columns as u8, attributes.rows as u8);
                self.row.push(RowCell { end, line, is_head, columns, rows });
                self.in_cell = true;
            }
            Tag::Heading => {
                // A heading inside of a layout table ends its row.
                self.end_row();
                self.end_text();
                self.in_heading = true;
                self.text_line = line;
                if !attributes.name.is_empty() {
                    self.anchor = attributes.name;
                }
            }
            Tag::Link => {
                self.in_link = attributes.links_inside && !self.in_cell;
                if !attributes.name.is_empty() {
                    self.anchor = attributes.name;
                }
            }
            Tag::Item => {
                self.end_text();
                self.in_item = true;
            }
            Tag::List => {
                self.end_text();
                self.lists += 1;
            }
            Tag::Block | Tag::Break if self.in_cell => self.row_text.push(' '),
            Tag::Block => {
                self.end_text();
                if !attributes.name.is_empty() {
                    self.anchor = attributes.name;
                }
            }
            Tag::Break => self.text.push(' '),
            Tag::Hidden => self.hidden += 1,
            Tag::Body | Tag::Other => {}
        }
    }

    fn close(&mut self, tag: Tag) {
        match tag {
            Tag::Table if self.deeper > 0 => {
                self.end_row();
                self.deeper -= 1;
            }
            Tag::Table => {
                self.end_row();
                if let Some(table) = self.tables.pop()
                    && table.handle.is_none()
                {
                    self.header_only(&table);
                }
                self.builder.end_table();
            }
            Tag::Row => self.end_row(),
            Tag::Data | Tag::Head => self.end_cell(),
            Tag::Heading => {
                self.end_text();
                self.in_heading = false;
            }
            Tag::Item => {
                self.end_text();
                self.in_item = false;
            }
            Tag::List => {
                self.end_text();
                self.lists = self.lists.saturating_sub(1);
            }
            Tag::Block if !self.in_cell => self.end_text(),
            Tag::Link => self.in_link = false,
            Tag::Hidden => self.hidden = self.hidden.saturating_sub(1),
            Tag::Body => self.ended = true,
            Tag::Block | Tag::Break | Tag::Other => {}
        }
    }

    fn string(&mut self, value: &[u8], line: u32) {
        if self.hidden > 0 || (self.in_link && !self.in_cell && !self.in_heading) {
            return;
        }
        let text = String::from_utf8_lossy(value);
        if self.in_cell {
            self.row_text.push_str(&text);
        } else if !text.trim().is_empty() {
            if self.text.trim().is_empty() {
                self.text_line = line;
            }
            self.text.push_str(&text);
        } else if !self.text.is_empty() {
            self.text.push(' ');
        }
    }

    /// Ends a text outside of tables: a heading, a note, or a paragraph.
    fn end_text(&mut self) {
        let text = std::mem::take(&mut self.text);
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        if self.in_heading {
            self.notes();
            let anchor = std::mem::take(&mut self.anchor);
            self.builder.section(text, &anchor, self.text_line);
        } else if self.in_item || self.lists > 0 {
            // A list stands between a heading and its table: the paragraph before it is the heading.
            self.title();
            self.builder.note(text);
        } else {
            if self.paragraphs.len() >= PARAGRAPHS_MAX {
                self.notes();
            }
            self.paragraphs.push((text.to_owned(), self.text_line));
        }
    }

    /// Turns the last paragraph into a heading if it can be one; the others are notes.
    fn title(&mut self) {
        let paragraphs = std::mem::take(&mut self.paragraphs);
        let is_title = |text: &str| text.len() <= HEADING_MAX && !text.ends_with(['.', ';', ',']);
        let title = paragraphs.iter().rposition(|(text, _)| is_title(text));
        for (index, (text, line)) in paragraphs.iter().enumerate() {
            if Some(index) == title {
                let anchor = std::mem::take(&mut self.anchor);
                self.builder.section(text, &anchor, *line);
            } else {
                self.builder.note(text);
            }
        }
    }

    fn notes(&mut self) {
        for (text, _) in std::mem::take(&mut self.paragraphs) {
            self.builder.note(&text);
        }
    }

    fn end_cell(&mut self) {
        if self.in_cell {
            self.in_cell = false;
            if let Some(cell) = self.row.last_mut() {
                cell.end = self.row_text.len() as u32;
            }
        }
    }

    fn end_row(&mut self) {
        self.end_cell();
        let row = std::mem::take(&mut self.row);
        if !row.is_empty() && !self.tables.is_empty() {
            self.add_row(&row);
        }
        self.row = row;
        self.row.clear();
        self.row_text.clear();
    }

    fn add_row(&mut self, row: &[RowCell]) {
        let Some(table) = self.tables.last_mut() else { return };
        let blank = |index: usize| {
            let start = if index == 0 { 0 } else { row[index - 1].end as usize };
            self.row_text[start..row[index].end as usize].trim().is_empty()
        };
        // Names of groups stand above the first columns' blank cells.
        let above = !row[0].is_head && row.iter().any(|cell| cell.is_head);
        let is_header = match above {
            true => (0..row.len()).all(|index| row[index].is_head || blank(index)),
            false => row.iter().all(|cell| cell.is_head),
        };
        if is_header && (table.handle.is_none() || row.len() > 1) {
            if table.handle.take().is_some() {
                // A header below rows of data: another table.
                table.header.clear();
                table.covering.clear();
                table.line = self.row_line;
            }
            if table.header.len() < HEADER_ROWS_MAX {
                let mut start = 0;
                let cells = row.iter().take(HEADER_CELLS_MAX).map(|cell| {
                    let end = cell.end as usize;
                    let text = self.row_text[start..end].trim().to_owned();
                    start = end;
                    HeaderCell { text, columns: usize::from(cell.columns), rows: usize::from(cell.rows) }
                });
                table.header.push(cells.collect());
            }
            return;
        }
        match (table.handle, table.interrupted) {
            (None, _) => {
                let columns = columns(&table.header);
                table.handle = Some(self.builder.table("", &table.summary, table.line, &columns));
            }
            (Some(handle), true) => self.builder.resume_table(handle, self.row_line),
            (Some(_), false) => {}
        }
        table.interrupted = false;
        self.builder.row(self.row_line);
        let mut start = 0;
        let mut column = 0;
        let covered = |covering: &mut Vec<(usize, Span)>, builder: &mut Builder, column: &mut usize| {
            while let Some((rows, text)) = covering.get_mut(*column).filter(|(rows, _)| *rows > 0) {
                *rows -= 1;
                builder.repeat(*text);
                *column += 1;
            }
        };
        for cell in row {
            covered(&mut table.covering, &mut self.builder, &mut column);
            let (end, columns, rows) = (cell.end as usize, usize::from(cell.columns), usize::from(cell.rows));
            self.builder.cell(&self.row_text[start..end], cell.line);
            start = end;
            if rows > 1 && column + columns <= SPREAD_MAX {
                table.covering.resize(table.covering.len().max(column + columns), (0, Span::default()));
                table.covering[column] = (rows - 1, self.builder.last_span());
                table.covering[column + 1..column + columns].fill((rows - 1, Span::default()));
            }
            for _ in 1..columns {
                self.builder.repeat(Span::default());
            }
            column += columns;
        }
        covered(&mut table.covering, &mut self.builder, &mut column);
    }

    /// Keeps a table that has column names only.
    fn header_only(&mut self, table: &OpenTable) {
        if !table.header.is_empty() {
            self.builder.table("", &table.summary, table.line, &columns(&table.header));
        }
    }

    fn finish(mut self) -> Builder {
        let line = self.line_at(self.input.len());
        let inside = !self.tables.is_empty();
        self.end_row();
        self.end_text();
        self.notes();
        if !self.ended {
            self.builder.cut_off(line, inside);
        }
        self.builder
    }
}

/// The columns of header rows: the last name, and the names above it as group.
fn columns(header: &[Vec<HeaderCell>]) -> Vec<Names> {
    let mut columns: Vec<Vec<&str>> = Vec::new();
    // Rows that a cell of an earlier row still covers, by column.
    let mut covered: Vec<usize> = Vec::new();
    for (index, row) in header.iter().enumerate() {
        let mut column = 0;
        for cell in row {
            while covered.get(column).is_some_and(|rows| *rows > index) {
                column += 1;
            }
            for _ in 0..cell.columns {
                if column >= columns.len() {
                    columns.push(Vec::new());
                    covered.push(0);
                }
                columns[column].push(&cell.text);
                covered[column] = index + cell.rows;
                column += 1;
            }
            if column > 1_000 {
                break;
            }
        }
    }
    let names = columns.iter().map(|names| {
        let name = names.iter().rev().find(|name| !name.is_empty()).copied().unwrap_or("");
        let last = names.iter().rposition(|name| !name.is_empty()).unwrap_or(0);
        let group = names[..last].iter().filter(|name| !name.is_empty()).copied().collect::<Vec<_>>().join(" ");
        (group, name.to_owned())
    });
    names.collect()
}
