//! Replaces names of hosts, names of users and SQL text in reports. The same name gets the same replacement in all reports of
//! a run. Names of files are not replaced.

use super::model::{Report, Span};
use std::collections::BTreeMap;

/// Columns that contain names of users.
const USER_COLUMNS: [&str; 9] = [
    "Owner",
    "User",
    "User Name",
    "Username",
    "Schema",
    "Schema Name",
    "Parsing Schema",
    "Parsing Schema Name",
    "Object Owner",
];
const SQL_COLUMNS: [&str; 3] = ["SQL Text", "SQL Module", "Statement"];
const HOST_COLUMNS: [&str; 4] = ["Host Name", "Host", "Machine", "Client ID"];
/// Shorter names of hosts are only replaced where they are the whole cell.
const HOST_LENGTH_MIN: usize = 4;
/// Notes in which SQL text can stand.
const NOTE_LENGTH: usize = 120;

/// What is replaced, and the replacements so far.
#[derive(Clone, Debug, Default)]
pub struct Masking {
    hosts: bool,
    users: bool,
    sql: bool,
    known: BTreeMap<(&'static str, String), String>,
    count: BTreeMap<&'static str, usize>,
}

impl Masking {
    pub fn new(hosts: bool, users: bool, sql: bool) -> Self {
        Self { hosts, users, sql, ..Self::default() }
    }

    fn replacement(&mut self, kind: &'static str, name: &str) -> String {
        if name.is_empty() {
            return String::new();
        }
        if let Some(known) = self.known.get(&(kind, name.to_owned())) {
            return known.clone();
        }
        let count = self.count.entry(kind).or_insert(0);
        *count += 1;
        let replacement = format!("{kind}{count}");
        self.known.insert((kind, name.to_owned()), replacement.clone());
        replacement
    }

    /// Replaces the names in a report.
    pub fn apply(&mut self, report: &mut Report) {
        let mut hosts: Vec<(String, String)> = Vec::new();
        if self.hosts {
            for index in 0..report.header.instances.len() {
                let host = report.header.instances[index].host.clone();
                let replacement = self.replacement("host", &host);
                // A full name contains the short name.
                let short = host.split('.').next().unwrap_or("").to_owned();
                if short != host {
                    hosts.push((host.clone(), replacement.clone()));
                }
                hosts.push((short, replacement.clone()));
                report.header.instances[index].host = replacement;
            }
            hosts.retain(|(host, _)| host.len() >= HOST_LENGTH_MIN);
        }
        self.cells(report, &hosts);
        let data = &mut report.data;
        for section in 0..data.sections.len() {
            let heading = data.text(data.sections[section].heading).to_owned();
            let notes = data.sections.get(section + 1).map_or(data.notes.len(), |next| next.first_note as usize);
            for note in data.sections[section].first_note as usize..notes {
                let text = data.text(data.notes[note]).to_owned();
                let has_sql = self.sql
                    && (heading.starts_with("ADDM") || text.len() > NOTE_LENGTH || text.contains("SQL statement with"));
                if has_sql {
                    data.notes[note] = append(&mut data.text, "(masked)");
                } else if let Some(text) = without_hosts(&text, &hosts) {
                    data.notes[note] = append(&mut data.text, &text);
                }
            }
        }
        if self.sql || self.users || self.hosts {
            report.unplaced.iter_mut().for_each(|cell| "(masked)".clone_into(&mut cell.text));
        }
    }

    fn cells(&mut self, report: &mut Report, hosts: &[(String, String)]) {
        let kinds: Vec<Vec<Option<&'static str>>> = report
            .tables()
            .map(|table| {
                let kind = |name: &str| {
                    let is = |known: &[&str]| known.iter().any(|known| super::model::same_name(known, name));
                    match () {
                        () if self.hosts && is(&HOST_COLUMNS) => Some("host"),
                        () if self.users && is(&USER_COLUMNS) => Some("user"),
                        () if self.sql && is(&SQL_COLUMNS) => Some("sql"),
                        () => None,
                    }
                };
                table.columns().map(|column| kind(column.name())).collect()
            })
            .collect();
        let data = &mut report.data;
        for (table, kinds) in kinds.iter().enumerate() {
            let (first, rows) = (data.tables[table].first_row as usize, data.tables[table].rows as usize);
            for row in first..first + rows {
                let start = data.rows[row].first_cell as usize;
                let end = data.rows.get(row + 1).map_or(data.cells.len(), |next| next.first_cell as usize);
                for (cell, kind) in (start..end).zip(kinds) {
                    let text = data.text(data.cells[cell]);
                    let replaced = match kind {
                        Some(kind) => {
                            let text = text.to_owned();
                            Some(self.replacement(kind, &text))
                        }
                        None => without_hosts(text, hosts),
                    };
                    if let Some(replaced) = replaced {
                        data.cells[cell] = append(&mut data.text, &replaced);
                    }
                }
            }
        }
    }
}

fn append(buffer: &mut String, text: &str) -> Span {
    let start = buffer.len() as u32;
    buffer.push_str(text);
    Span { start, length: text.len() as u32 }
}

/// The text with the names of hosts replaced; None if it contains none.
fn without_hosts(text: &str, hosts: &[(String, String)]) -> Option<String> {
    let mut replaced: Option<String> = None;
    for (host, replacement) in hosts {
        let current = replaced.as_deref().unwrap_or(text);
        if current.contains(host.as_str()) {
            replaced = Some(current.replace(host.as_str(), replacement));
        }
    }
    replaced
}
