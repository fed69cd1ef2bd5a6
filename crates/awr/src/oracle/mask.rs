//! Replaces names of hosts, names of users and SQL text in reports. The same name gets the same replacement in all reports of
//! a run. Names of files are not replaced.

use super::model::{Kind, Report, Span};
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
const SQL_COLUMNS: [&str; 7] = ["SQL Text", "SQL Module", "Module", "Action", "Statement", "Plan", "Waiting SQL Text"];
const HOST_COLUMNS: [&str; 7] = ["Host Name", "Host", "Machine", "Client ID", "Client", "Cell Name", "IP Address"];
/// The name of a host in values of parameters: `(ADDRESS=(PROTOCOL=TCP)(HOST=node1)(PORT=1521))`.
const HOST_KEY: &str = "HOST";
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
        // Reports print names in either case.
        let key = (kind, name.to_lowercase());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let count = self.count.entry(kind).or_insert(0);
        *count += 1;
        let replacement = format!("{kind}{count}");
        self.known.insert(key, replacement.clone());
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
                if short != host && !short.is_empty() {
                    self.known.entry(("host", short.to_lowercase())).or_insert_with(|| replacement.clone());
                    hosts.push((host.clone(), replacement.clone()));
                }
                hosts.push((short, replacement.clone()));
                report.header.instances[index].host = replacement;
            }
            hosts.retain(|(host, _)| host.len() >= HOST_LENGTH_MIN);
        }
        self.cells(report, &hosts);
        // The findings of our own reports quote statements.
        let is_own = report.kind == Kind::Cellar;
        let quotes = ["ADDM", "PROBLEM", "SYMPTOM", "INFORMATION", "active sessions", "SQL Summary", "Full SQL Text"];
        let data = &mut report.data;
        for section in 0..data.sections.len() {
            let heading = data.text(data.sections[section].heading).to_owned();
            let notes = data.sections.get(section + 1).map_or(data.notes.len(), |next| next.first_note as usize);
            for note in data.sections[section].first_note as usize..notes {
                let text = data.text(data.notes[note]).to_owned();
                let has_sql = self.sql
                    && (heading.starts_with("ADDM")
                        || (is_own && quotes.iter().any(|quote| heading.contains(quote)))
                        || text.len() > NOTE_LENGTH
                        || text.contains("SQL statement with"));
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

    /// The text with the hosts of its addresses replaced; None if it contains none.
    fn without_addresses(&mut self, text: &str) -> Option<String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = find(rest, HOST_KEY) {
            let behind = &rest[at + HOST_KEY.len()..];
            let value = behind.trim_start().strip_prefix('=').map(str::trim_start);
            let name = value.map_or("", |value| value.split([')', '(', ' ', ',', ';']).next().unwrap_or(""));
            let start = match value {
                Some(value) if !name.is_empty() => rest.len() - value.len(),
                _ => at + HOST_KEY.len(),
            };
            out.push_str(&rest[..start]);
            out.push_str(&self.replacement("host", name));
            rest = &rest[start + name.len()..];
        }
        (!out.is_empty()).then(|| out + rest)
    }

    /// A program with its host replaced: `sqlplus@node1 (TNS V1-V3)`. None if the text names none.
    fn without_program_host(&mut self, text: &str) -> Option<String> {
        let (program, behind) = text.split_once('@')?;
        let end = behind.find([' ', '(']).unwrap_or(behind.len());
        let host = self.replacement("host", &behind[..end]);
        Some(format!("{program}@{host}{}", &behind[end..]))
    }

    fn cells(&mut self, report: &mut Report, hosts: &[(String, String)]) {
        let kinds: Vec<Vec<Option<&'static str>>> = report
            .tables()
            .map(|table| {
                // In our reports, as a role of the database; beside a host, as the role of a server in replication.
                let has_users = report.kind == Kind::Cellar && table.column(&["Host Name"]).is_none();
                let kind = |name: &str| {
                    let is = |known: &[&str]| known.iter().any(|known| super::model::same_name(known, name));
                    match () {
                        () if self.hosts && is(&HOST_COLUMNS) => Some("host"),
                        () if self.hosts && is(&["Program"]) => Some("program"),
                        () if self.users && is(&USER_COLUMNS) => Some("user"),
                        () if self.users && has_users && is(&["Role"]) => Some("user"),
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
                        // A row of sums names no host.
                        Some("host") if text.starts_with("Total") || text.eq_ignore_ascii_case("All") => None,
                        Some("program") => {
                            let text = text.to_owned();
                            self.without_program_host(&text)
                        }
                        Some(kind) => {
                            let text = text.to_owned();
                            Some(self.replacement(kind, &text))
                        }
                        None if self.hosts && text.contains('=') => {
                            let text = text.to_owned();
                            let with_addresses = self.without_addresses(&text);
                            let replaced = without_hosts(with_addresses.as_deref().unwrap_or(&text), hosts);
                            replaced.or(with_addresses)
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

/// The place of an ASCII text, without regard to case.
fn find(text: &str, name: &str) -> Option<usize> {
    text.as_bytes().windows(name.len()).position(|bytes| bytes.eq_ignore_ascii_case(name.as_bytes()))
}

/// The place of a name that is not a part of a longer word, without regard to case.
fn find_word(text: &str, name: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_word = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphanumeric);
    let mut windows = bytes.windows(name.len()).enumerate();
    let is_name = |(at, window): &(usize, &[u8])| {
        window.eq_ignore_ascii_case(name.as_bytes()) && !(*at > 0 && is_word(at - 1)) && !is_word(at + name.len())
    };
    windows.find(is_name).map(|(at, _)| at)
}

/// The text with the names of hosts replaced, without regard to case; None if it contains none.
fn without_hosts(text: &str, hosts: &[(String, String)]) -> Option<String> {
    let mut replaced: Option<String> = None;
    for (host, replacement) in hosts {
        let current = replaced.as_deref().unwrap_or(text);
        let Some(mut at) = find_word(current, host) else { continue };
        let (mut out, mut rest) = (String::new(), current);
        loop {
            out.push_str(&rest[..at]);
            out.push_str(replacement);
            rest = &rest[at + host.len()..];
            match find_word(rest, host) {
                Some(next) => at = next,
                None => break,
            }
        }
        out.push_str(rest);
        replaced = Some(out);
    }
    replaced
}
