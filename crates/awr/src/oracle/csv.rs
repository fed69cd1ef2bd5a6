//! Tables as CSV (RFC 4180): one file per table, cells as printed.

use super::model::{Report, Section, Table};

/// Appends a record.
pub fn record<'a>(out: &mut String, fields: impl IntoIterator<Item = &'a str>) {
    for (index, field) in fields.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        if field.contains(['"', ',', '\n', '\r']) {
            out.push('"');
            out.push_str(&field.replace('"', "\"\""));
            out.push('"');
        } else {
            out.push_str(field);
        }
    }
    out.push_str("\r\n");
}

/// A table with the names of its columns. A row with fewer cells than columns gets blank fields.
pub fn table(table: Table<'_>) -> String {
    let mut out = String::new();
    let names: Vec<String> = table
        .columns()
        .map(|column| match column.group() {
            "" => column.name().to_owned(),
            group => format!("{group} {}", column.name()).trim_end().to_owned(),
        })
        .collect();
    record(&mut out, names.iter().map(String::as_str));
    for row in table.rows() {
        record(&mut out, (0..names.len()).map(|column| row.text(column)));
    }
    out
}

/// Name of a table's file: number and heading, in letters, digits and hyphens.
pub fn file_name(section: Section<'_>, table: Table<'_>) -> String {
    let mut name = format!("{:03}-", table.index());
    for c in section.heading().chars().take(60) {
        if c.is_ascii_alphanumeric() {
            name.push(c.to_ascii_lowercase());
        } else if !name.ends_with('-') {
            name.push('-');
        }
    }
    format!("{}.csv", name.trim_end_matches('-'))
}

/// The list of a report's tables: file, section, line, rows.
pub fn index(report: &Report) -> String {
    let mut out = String::new();
    record(&mut out, ["file", "section", "table line", "rows"]);
    for section in report.sections() {
        for table in section.tables() {
            let (line, rows) = (table.line().to_string(), table.rows().len().to_string());
            record(&mut out, [file_name(section, table).as_str(), section.heading(), &line, &rows]);
        }
    }
    out
}
