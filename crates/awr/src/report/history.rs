//! The ASH report: the session samples of any interval.

use super::{Kind, Report, name};
use crate::document::{Document, Timestamp};
use crate::findings::Findings;
use crate::sections;
use crate::view::time_text;

pub fn history(document: &Document) -> Report {
    let name = name(document);
    let id = document.instance.id.known().unwrap_or("1");
    let end = Timestamp::parse(&document.end.time).map_or_else(|| document.end.time.to_string(), Timestamp::clock);
    let interval = format!("{} to {end}", time_text(&document.begin.time));
    Report {
        kind: Kind::History,
        title: format!("ASH Report for DB: {name}, Inst: {id}, {interval}"),
        subject: format!("DB/Inst: {name}/{id}  ({interval})"),
        sections: sections::history(document),
        findings: Findings::default(),
    }
}
