//! Sections of a report: titled tables of typed cells, with notes and charts.
//!
//! One file per group of sections. Titles and columns are Oracle's where Oracle has the section, so that programs that read
//! AWR reports read these. A section whose source is unavailable states, in one line, what is missing and how to enable
//! the source; a section is never empty.

mod activity;
mod ash;
mod blocks;
mod cell_disks;
mod files;
mod flash_cache;
mod history;
mod host;
mod io;
mod io_over_time;
mod segments;
mod session_io;
mod sessions;
mod settings;
mod smart_scan;
mod sql;
mod sql_lists;
mod statement;
mod summary;
mod vacuum;
mod waits;
mod wal;

pub use blocks::{Bar, Block, Chart, Column, Group, Line, LinePoint, Section};
pub use history::sections as history;
pub use statement::sections as statement;
pub use summary::{PREFERRED_ROWS, findings};

use crate::document::Document;
use crate::view::View;

/// A note in the head of each report.
pub const TIMES_ARE_UTC: &str = "Times are UTC";

/// All sections of a report about one instance, in the order of the report, except the findings.
pub fn all(document: &Document) -> Vec<Section> {
    let view = View::new(document);
    let groups: [fn(&View<'_>) -> Vec<Section>; 16] = [
        summary::sections,
        waits::sections,
        host::sections,
        sql::sections,
        activity::sections,
        io::sections,
        session_io::sections,
        wal::sections,
        segments::sections,
        smart_scan::sections,
        cell_disks::sections,
        flash_cache::sections,
        vacuum::sections,
        sessions::sections,
        ash::sections,
        settings::sections,
    ];
    groups.iter().flat_map(|group| group(&view)).collect()
}
