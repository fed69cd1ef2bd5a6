//! The SQL report: one statement over time.

use super::{Kind, Report, name, snapshots};
use crate::document::Document;
use crate::findings::Findings;
use crate::{sections, sql_id};

pub fn statement(document: &Document) -> Report {
    let (name, snaps) = (name(document), snapshots(document));
    let id = document.instance.id.known().unwrap_or("1");
    let statement = document.statement.query_id.map_or_else(|| "(unknown)".to_owned(), sql_id::format);
    Report {
        kind: Kind::Statement,
        title: format!("AWR SQL Report for SQL ID: {statement}, DB: {name}, Inst: {id}, Snaps: {snaps}"),
        subject: format!("DB/Inst: {name}/{id}  Snaps: {snaps}  SQL ID: {statement}"),
        sections: sections::statement(document),
        findings: Findings::default(),
    }
}
