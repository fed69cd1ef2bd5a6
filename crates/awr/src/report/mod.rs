//! Reports: sections put together for one instance, several instances, two periods, the session samples of an interval, or one
//! statement.

mod difference;
mod global;
mod history;
mod instance;
mod statement;

pub use difference::difference;
pub use global::global;
pub use history::history;
pub use instance::instance;
pub use statement::statement;

use crate::document::Document;
use crate::findings::Findings;
use crate::sections::{Block, Section};
use std::borrow::Cow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Instance,
    Global,
    Difference,
    /// Session samples of any interval.
    History,
    /// One statement over time.
    Statement,
    /// One figure over several reports.
    Trend,
    /// What a workload would gain from a cell.
    Advice,
}

impl Kind {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Instance => "instance",
            Self::Global => "global",
            Self::Difference => "difference",
            Self::History => "ash",
            Self::Statement => "sql",
            Self::Trend => "trend",
            Self::Advice => "advice",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub kind: Kind,
    /// Title of the HTML page.
    pub title: String,
    /// Database, instance and AWR snapshots; text reports repeat the subject beside each heading.
    pub subject: String,
    pub sections: Vec<Section>,
    pub findings: Findings,
}

/// The report about parsed documents: an instance report, an ASH report or an SQL report about one document, a global report
/// about several.
pub fn of(documents: &[Document]) -> Report {
    match documents {
        [document] if &*document.kind == "ash" => history(document),
        [document] if &*document.kind == "sql" => statement(document),
        [document] => instance(document),
        documents => global(documents),
    }
}

fn name(document: &Document) -> &str {
    document.instance.name.known().unwrap_or("(unnamed)")
}

fn snapshots(document: &Document) -> String {
    let number = |id: Option<i64>| id.map_or_else(|| "?".to_owned(), |id| id.to_string());
    format!("{}-{}", number(document.begin.snap_id), number(document.end.snap_id))
}

/// Removes evidence that names a section which the report lacks, so that no reference leads nowhere.
fn check_references(report: &mut Report) {
    let ids: Vec<Cow<'static, str>> = report.sections.iter().map(|section| section.id.clone()).collect();
    let is_known = |id: &str| ids.iter().any(|known| known == id);
    for section in &mut report.sections {
        for block in &mut section.blocks {
            if let Block::Finding(finding) = block {
                finding.evidence.iter_mut().filter(|evidence| !is_known(evidence.section)).for_each(|evidence| {
                    evidence.section = "";
                });
            }
        }
    }
}
