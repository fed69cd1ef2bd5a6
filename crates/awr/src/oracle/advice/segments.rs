//! The segments that scans read, as far as the report lists them.

use super::is_own;
use crate::oracle::lookup::sections_of;
use crate::oracle::model::{Report, Row, Table as Read};
use crate::sections::{Group, Section};
use crate::table::{Cell, Table, bytes, grouped};
use crate::view::top;
use std::collections::BTreeMap;

const ROWS: usize = 15;

/// A segment of a list.
#[derive(Clone, Debug, Default)]
struct Segment {
    name: String,
    kind: String,
    /// Blocks.
    reads: Option<f64>,
    scans: Option<f64>,
    rows: Option<f64>,
    /// Line of the list of reads.
    line: u32,
}

/// Reads of tables that were scanned sequentially.
#[derive(Default)]
pub struct Scanned {
    pub bytes: f64,
    pub texts: Vec<String>,
}

fn name(table: Read<'_>, row: Row<'_>) -> Option<String> {
    let text = |names: &[&str]| table.column(names).map_or("", |column| row.text(column));
    let object = text(&["Object Name"]);
    let parts = [text(&["Database", "PDB Name"]), text(&["Owner"]), object];
    let name = parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(".");
    (!object.is_empty()).then_some(name)
}

/// Adds the figures of the first list with a heading.
fn add(
    report: &Report,
    heading: &str,
    column: &str,
    segments: &mut BTreeMap<String, Segment>,
    mut set: impl FnMut(&mut Segment, f64, u32),
) {
    let Some(section) = sections_of(report, heading).find(|section| section.tables().len() > 0) else { return };
    for table in section.tables() {
        for row in table.rows() {
            let (Some(name), Some(value)) = (name(table, row), row.named(&[column])) else { continue };
            let segment = segments.entry(name.clone()).or_default();
            segment.name = name;
            if let Some(kind) = table.column(&["Obj. Type", "Type"]) {
                row.text(kind).clone_into(&mut segment.kind);
            }
            set(segment, value, row.line());
        }
    }
}

/// The segments of the lists of scans.
fn scans(report: &Report) -> BTreeMap<String, Segment> {
    let mut segments = BTreeMap::new();
    let (reads, column) = match is_own(report) {
        true => ("Segments by Physical Reads", "Physical Reads"),
        false => ("Segments by Direct Physical Reads", "Direct Reads"),
    };
    add(report, reads, column, &mut segments, |segment, value, line| {
        (segment.reads, segment.line) = (Some(value), line);
    });
    add(report, "Segments by Table Scans", "Table Scans", &mut segments, |segment, value, _| {
        segment.scans = Some(value);
    });
    add(report, "Segments by Rows of Sequential Scans", "Rows Scanned", &mut segments, |segment, value, _| {
        segment.rows = Some(value);
    });
    if is_own(report) {
        segments.retain(|_, segment| segment.scans.or(segment.rows).is_some_and(|count| count > 0.0));
    }
    segments
}

/// Reads of the tables that a report of Cellar lists as scanned sequentially.
pub fn scanned(report: &Report, block: f64) -> Scanned {
    let mut all = Scanned::default();
    for segment in top(scans(report).into_values(), ROWS, |segment| segment.reads) {
        let blocks = segment.reads.unwrap_or(0.0);
        all.bytes += blocks * block;
        if all.texts.len() < 3 {
            let size = bytes(blocks * block);
            let text = format!("{}: {} blocks read, {size}B (line {})", segment.name, grouped(blocks, 0), segment.line);
            all.texts.push(text);
        }
    }
    all
}

pub fn sections(report: &Report) -> Vec<Section> {
    let block = report.header.block_bytes.unwrap_or(8192.0);
    let segments = top(scans(report).into_values(), ROWS, |segment| segment.reads.or(segment.scans).or(segment.rows));
    let title = "Segments That Scans Read";
    let section = Section::new("scanned-segments", Group::Segments, title);
    if segments.is_empty() {
        return vec![section.sentence("The report has no list of segments by direct reads or by sequential scans.")];
    }
    let total: f64 = segments.iter().filter_map(|segment| segment.reads).sum();
    let columns = ["<Segment", "<Obj. Type", "Reads", "% of Listed", "Scans", "Rows Scanned", "Line"];
    let table = Table::new(&columns).with_rows(segments.iter().map(|segment| {
        vec![
            Cell::text(&segment.name),
            Cell::text(&segment.kind),
            Cell::bytes(segment.reads.map(|blocks| blocks * block)),
            Cell::percent(crate::figures::percent(segment.reads, Some(total)), 1),
            Cell::count(segment.scans),
            Cell::count(segment.rows),
            Cell::integer((segment.line > 0).then_some(i64::from(segment.line))),
        ]
    }));
    let source = match is_own(report) {
        true => {
            "Segments by Physical Reads, of tables that Segments by Table Scans or by Rows of Sequential Scans lists"
        }
        false => "Segments by Direct Physical Reads, and Segments by Table Scans",
    };
    let (unit, lists) = (format!("Reads in blocks of {}B", bytes(block)), format!("Lists of the report: {source}"));
    vec![section.note(lists).note(unit).table(table.without_empty_columns())]
}
