//! The figures that claims are computed from, with their places in the report.

use super::is_own;
use crate::document::names;
use crate::oracle::lookup::{EventRow, sections_of};
use crate::oracle::model::{Report, Row, Section, Table, same_name};
use crate::table::{bytes, duration, grouped};
use std::cmp::Reverse;

/// Bytes of a block if the report does not say: the default of Oracle and of PostgreSQL.
const BLOCK_BYTES: f64 = 8192.0;
/// Event of PostgreSQL's reads of data files.
const DATA_FILE_READ: &str = "DataFileRead";

/// A figure and the text that names figure and place.
#[derive(Clone, Debug, PartialEq)]
pub struct Sourced {
    pub value: f64,
    pub text: String,
}

/// Reads by one function of pg_stat_io.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    pub bytes: f64,
    pub requests_per_second: Option<f64>,
    pub average_us: Option<f64>,
    pub text: String,
}

pub struct Figures<'a> {
    pub report: &'a Report,
    pub block: f64,
    /// Set if the block size is assumed.
    pub block_assumption: Option<String>,
    pub events: Vec<EventRow>,
    pub db_time: Option<Sourced>,
}

impl<'a> Figures<'a> {
    pub fn new(report: &'a Report) -> Self {
        let block_assumption = report.header.block_bytes.is_none().then(|| "blocks of 8 KB".to_owned());
        let of_model = report.time(names::time::DB_TIME).map(|us| (us, "time model"));
        let db_time = of_model.or_else(|| Some((report.header.db_time_us?, "head of the report")));
        Self {
            report,
            block: report.header.block_bytes.unwrap_or(BLOCK_BYTES),
            block_assumption,
            events: report.events(),
            db_time: db_time
                .filter(|(us, _)| *us > 0.0)
                .map(|(us, place)| Sourced { value: us, text: format!("DB time: {} ({place})", duration(us)) }),
        }
    }

    pub fn is_own(&self) -> bool {
        is_own(self.report)
    }

    /// A statistic by name, in its own unit.
    pub fn statistic(&self, name: &str) -> Option<Sourced> {
        let value = self.report.statistic(name).value()?;
        let text = match name.split(' ').any(|word| word == "bytes") {
            true => format!("{name}: {}B", bytes(value)),
            false => format!("{name}: {}", grouped(value, 0)),
        };
        Some(Sourced { value, text: format!("{text}{}", self.place_of_statistic(name)) })
    }

    /// A statistic of blocks, in bytes.
    pub fn blocks(&self, name: &str) -> Option<Sourced> {
        let blocks = self.report.statistic(name).value()?;
        let value = blocks * self.block;
        let place = self.place_of_statistic(name);
        Some(Sourced { value, text: format!("{name}: {} blocks, {}B{place}", grouped(blocks, 0), bytes(value)) })
    }

    /// The section and line of a statistic, which may be cut.
    fn place_of_statistic(&self, name: &str) -> String {
        let is_list = |table: &Table<'_>| {
            table.column(&["Total"]).is_some()
                && table.columns().next().is_some_and(|column| column.name().starts_with("Statistic"))
        };
        let rows = self.report.sections().flat_map(|section| {
            section.tables().filter(is_list).flat_map(|table| table.rows()).map(move |row| (section, row))
        });
        let printed = |row: &Row<'_>| row.text(0).len();
        let is_name = |row: &Row<'_>| row.text(0) == name || (printed(row) >= 16 && name.starts_with(row.text(0)));
        // Names of other statistics can be the beginning of this name: the longest is the statistic's own. Of equal ones, the first.
        let own = rows.filter(|(_, row)| is_name(row)).min_by_key(|(_, row)| Reverse(printed(row)));
        own.map(|(section, row)| place(section, row)).unwrap_or_default()
    }

    /// The events with the names, foreground only.
    pub fn named<'b>(&'b self, names: &'b [&str]) -> impl Iterator<Item = &'b EventRow> + 'b {
        let is_named = |event: &&EventRow| !event.is_background && names.iter().any(|name| event.name == *name);
        self.events.iter().filter(is_named)
    }

    /// The time of the events with the names, with the text of each.
    pub fn wait_time(&self, names: &[&str]) -> (f64, Vec<String>) {
        let us = self.named(names).filter_map(|event| event.time_us).sum();
        (us, self.named(names).map(event_text).collect())
    }

    /// PostgreSQL's reads of data files.
    pub fn data_file_reads(&self) -> Option<&EventRow> {
        self.named(&[DATA_FILE_READ]).next()
    }

    /// Reads of a function in the table of pg_stat_io.
    pub fn function(&self, name: &str) -> Option<Function> {
        sections_of(self.report, "IOStat by Function summary").find_map(|section| {
            section.tables().find_map(|table| {
                let row = table.rows().find(|row| same_name(row.text(0), name))?;
                let bytes = row.named(&["Reads: Data"]).filter(|bytes| *bytes > 0.0)?;
                let requests_per_second = row.named(&["Reqs per sec"]);
                let average_us = row.named(&["Avg Read Time"]);
                let average = average_us.map_or_else(String::new, |us| format!(", average {}", duration(us)));
                let size = crate::table::bytes(bytes);
                let text = format!("{name}: {size}B read{average}{}", place(section, row));
                Some(Function { bytes, requests_per_second, average_us, text })
            })
        })
    }
}

/// The section and the line of a row.
pub fn place(section: Section<'_>, row: Row<'_>) -> String {
    format!(" ({}, line {})", section.heading(), row.line())
}

pub fn event_text(event: &EventRow) -> String {
    let waits = event.waits.map_or_else(String::new, |waits| format!("{} waits, ", grouped(waits, 0)));
    let average = event.average_us.map_or_else(String::new, |us| format!(", average {}", duration(us)));
    format!("{}: {waits}{}{average} (line {})", event.name, duration(event.time_us.unwrap_or(0.0)), event.line)
}
