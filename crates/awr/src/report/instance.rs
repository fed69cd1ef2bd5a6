//! The report about one instance.

use super::{Kind, Report, check_references, name, snapshots};
use crate::document::Document;
use crate::{rules, sections};

/// Sections before the findings: header and notes.
const BEFORE_FINDINGS: usize = 2;

pub fn instance(document: &Document) -> Report {
    let findings = rules::judge(document);
    let mut sections = sections::all(document);
    sections.insert(BEFORE_FINDINGS, sections::findings(&findings));
    let (name, snaps) = (name(document), snapshots(document));
    let id = document.instance.id.known().unwrap_or("1");
    let mut report = Report {
        kind: Kind::Instance,
        title: format!("AWR Report for DB: {name}, Inst: {id}, Snaps: {snaps}"),
        subject: format!("DB/Inst: {name}/{id}  Snaps: {snaps}"),
        sections,
        findings,
    };
    check_references(&mut report);
    report
}
