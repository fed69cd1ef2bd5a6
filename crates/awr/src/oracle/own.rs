//! Reads the JSON form of our own reports, and report documents.

use super::builder::{Builder, Names};
use super::value::Unit;
use crate::document;
use crate::render;
use crate::report;
use serde_json::Value;

/// Whether a text begins as a JSON object, or as an array of objects. A bracket alone may be the prompt of a shell.
pub fn is_json(text: &str) -> bool {
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    text.starts_with('{') || text.strip_prefix('[').is_some_and(|rest| rest.trim_start().starts_with('{'))
}

/// Reads a report of `--format json`, or the documents of `--format document`. Err: why the file is neither.
pub fn read(text: &str) -> Result<Builder, String> {
    let text = text.trim_start_matches('\u{feff}');
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if value.get("sections").is_some_and(Value::is_array) && value.get("kind").is_some_and(Value::is_string) {
        return Ok(sections(&value, text));
    }
    // A document contains figures only: its report has them in tables.
    let documents = document::parse(text.as_bytes()).map_err(|error| error.to_string())?;
    let written = render::json(&report::of(&documents));
    let value: Value = serde_json::from_str(&written).map_err(|error| error.to_string())?;
    Ok(sections(&value, &written))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or("")
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn sections(value: &Value, input: &str) -> Builder {
    let mut builder = Builder::new(input.len());
    let mut lines = Lines { input, at: 0, line: 1 };
    lines.skip_to("\"sections\"");
    for section in list(value, "sections") {
        let line = lines.of(text(section, "id"));
        builder.section(text(section, "title"), text(section, "id"), line);
        list(section, "notes").iter().filter_map(Value::as_str).for_each(|note| builder.note(note));
        for table in list(section, "tables") {
            add_table(&mut builder, table, line);
        }
        list(section, "sentences").iter().filter_map(Value::as_str).for_each(|sentence| builder.note(sentence));
    }
    builder
}

fn add_table(builder: &mut Builder, table: &Value, line: u32) {
    let columns = list(table, "columns");
    let names: Vec<Names> = columns.iter().map(|column| (String::new(), text(column, "name").to_owned())).collect();
    builder.table(text(table, "title"), "", line, &names);
    for (index, column) in columns.iter().enumerate() {
        match text(column, "unit") {
            "us" => builder.set_unit(index, Unit::Microseconds),
            "bytes" => builder.set_unit(index, Unit::Bytes),
            "percent" => builder.set_unit(index, Unit::Percent),
            _ => {}
        }
    }
    for row in list(table, "rows") {
        builder.row(line);
        for cell in row.as_array().map_or(&[][..], Vec::as_slice) {
            builder.cell(&printed(cell), line);
        }
    }
}

/// A cell as text.
fn printed(cell: &Value) -> String {
    match cell {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let field = |name: &str| fields.get(name).and_then(Value::as_str);
            if let Some(value) = fields.get("value") {
                // The suffix is the unit of the value.
                let suffix = match field("unit") {
                    Some("us") => "us",
                    Some("bytes") => "b",
                    Some("percent") => "%",
                    _ => "",
                };
                return format!("{value}{suffix}");
            }
            field("sql_id").or_else(|| field("how")).unwrap_or("").to_owned()
        }
        Value::Array(counts) => counts.iter().map(printed).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// The lines of the sections, which are in the order of the file.
struct Lines<'a> {
    input: &'a str,
    at: usize,
    line: u32,
}

impl Lines<'_> {
    fn skip_to(&mut self, text: &str) {
        if let Some(at) = self.input.find(text) {
            self.line += self.input[..at].bytes().filter(|byte| *byte == b'\n').count() as u32;
            self.at = at;
        }
    }

    /// The line of the next section with an identifier.
    fn of(&mut self, id: &str) -> u32 {
        let rest = &self.input[self.at..];
        let key = format!("\"{id}\"");
        // Tables can contain the same text.
        let is_id = |at: &usize| rest[..*at].trim_end().strip_suffix(':').is_some_and(|key| key.ends_with("\"id\""));
        match rest.match_indices(&key).map(|(at, _)| at).find(is_id) {
            Some(found) => {
                self.line += rest[..found].bytes().filter(|byte| *byte == b'\n').count() as u32;
                self.at += found + key.len();
            }
            // Such a section does not come from our report: the rest is not searched again for each of its sections.
            None => self.at = self.input.len(),
        }
        self.line
    }
}
