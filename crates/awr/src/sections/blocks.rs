//! The blocks that a section consists of: tables, notes and charts.

use crate::findings::Finding;
use crate::table::Table;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A heading of the contents list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Summary,
    Waits,
    Sql,
    Activity,
    Io,
    Memory,
    Segments,
    SmartScan,
    Cells,
    Vacuum,
    Sessions,
    History,
    /// Sections of a report that was read, which belong to no other group.
    Further,
    Settings,
}

impl Group {
    pub fn title(self) -> &'static str {
        match self {
            Self::Summary => "Report Summary",
            Self::Waits => "Wait Events Statistics",
            Self::Sql => "SQL Statistics",
            Self::Activity => "Instance Activity Statistics",
            Self::Io => "IO Stats",
            Self::Memory => "Buffer Pool, Checkpoint and WAL Statistics",
            Self::Segments => "Segment Statistics",
            Self::SmartScan => "Smart Scan Statistics",
            Self::Cells => "Cell Disks, Flash Cache and I/O Resource Management",
            Self::Vacuum => "Vacuum Statistics",
            Self::Sessions => "Session and Lock Statistics",
            Self::History => "Active Session History (ASH) Report",
            Self::Further => "Further Sections",
            Self::Settings => "Settings and Sources",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Stable identifier: anchor in HTML, key in JSON.
    pub id: Cow<'static, str>,
    pub group: Group,
    pub title: String,
    pub notes: Vec<String>,
    pub blocks: Vec<Block>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    Table(Table),
    Chart(Chart),
    Finding(Box<Finding>),
    /// A sentence in place of a table.
    Sentence(String),
}

/// A picture of figures that the section's tables contain too. Text and JSON omit charts.
#[derive(Clone, Debug, PartialEq)]
pub enum Chart {
    /// Average active sessions by wait class over time, stacked, with a line at the number of CPUs.
    ActiveSessions { slots: Vec<(String, BTreeMap<String, f64>)>, cpus: Option<f64> },
    /// Horizontal bars. `unit` describes the values.
    Bars { title: String, unit: &'static str, bars: Vec<Bar> },
    /// Times by slot, one column for each series in the slot. A slot has a label.
    Columns { title: String, series: Vec<String>, slots: Vec<(String, Vec<Column>)> },
    /// Counts by log2 bucket of microseconds.
    Histogram { title: String, buckets: Vec<f64> },
    /// Values over time, a line for each series.
    Lines { title: String, unit: String, series: Vec<Line> },
}

/// A series of a chart of lines. Points are in order of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub name: String,
    pub points: Vec<LinePoint>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LinePoint {
    /// Seconds, or the number of the point if times are unknown.
    pub at: f64,
    /// The time as text.
    pub label: String,
    pub value: f64,
    /// What the point shows.
    pub description: String,
}

/// A time in a chart of columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Index in the chart's series.
    pub series: usize,
    pub us: f64,
    pub description: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    pub label: String,
    /// A bar of a negative value is as long as its amount, and pale.
    pub value: f64,
    /// The value as text.
    pub text: String,
    /// Anchor of the HTML report that the bar links to.
    pub link: Option<String>,
}

impl Section {
    pub fn new(id: impl Into<Cow<'static, str>>, group: Group, title: impl Into<String>) -> Self {
        Self { id: id.into(), group, title: title.into(), notes: Vec::new(), blocks: Vec::new() }
    }

    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    pub fn table(mut self, table: Table) -> Self {
        self.blocks.push(Block::Table(table));
        self
    }

    /// Adds a table, or the sentence if the table has no rows.
    pub fn table_or(mut self, table: Table, sentence: impl Into<String>) -> Self {
        let block = if table.rows.is_empty() { Block::Sentence(sentence.into()) } else { Block::Table(table) };
        self.blocks.push(block);
        self
    }

    pub fn chart(mut self, chart: Chart) -> Self {
        self.blocks.push(Block::Chart(chart));
        self
    }

    pub fn sentence(mut self, sentence: impl Into<String>) -> Self {
        self.blocks.push(Block::Sentence(sentence.into()));
        self
    }

    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Table(table) => Some(table),
            _ => None,
        })
    }
}
