//! The model as JSON, schema version [`SCHEMA_VERSION`], described in docs/reading-oracle-reports.md.

use super::model::{Boundary, Header, Report, SCHEMA_VERSION, Section, Table};
use serde_json::{Value, json};
use std::fmt::Write;

/// The name of the schema.
pub const SCHEMA: &str = "cellar.oracle-report";

fn known(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { json!(text) }
}

fn boundary(boundary: &Boundary) -> Value {
    json!({ "snap_id": boundary.snap_id, "time": known(&boundary.time), "sessions": boundary.sessions })
}

fn header(header: &Header) -> Value {
    let instances: Vec<Value> = header
        .instances
        .iter()
        .map(|instance| {
            json!({
                "name": known(&instance.name),
                "number": instance.number,
                "host": known(&instance.host),
                "startup": known(&instance.startup),
                "release": known(&instance.release),
                "platform": known(&instance.platform),
                "elapsed_us": instance.elapsed_us,
                "db_time_us": instance.db_time_us,
            })
        })
        .collect();
    json!({
        "db_name": known(&header.db_name),
        "db_id": header.db_id,
        "unique_name": known(&header.unique_name),
        "role": known(&header.role),
        "edition": known(&header.edition),
        "release": known(&header.release),
        "rac": header.rac,
        "cdb": header.cdb,
        "container": known(&header.container),
        "instances": instances,
        "cpus": header.cpus,
        "cores": header.cores,
        "sockets": header.sockets,
        "memory_bytes": header.memory_bytes,
        "block_bytes": header.block_bytes,
        "begin": boundary(&header.begin),
        "end": boundary(&header.end),
        "elapsed_us": header.elapsed_us,
        "db_time_us": header.db_time_us,
    })
}

fn table(table: Table<'_>) -> Value {
    let columns: Vec<Value> = table
        .columns()
        .map(|column| json!({ "group": known(column.group()), "name": column.name(), "unit": known(column.unit().base()) }))
        .collect();
    let rows: Vec<Value> = table
        .rows()
        .map(|row| {
            let texts: Vec<&str> = row.cells().collect();
            let values: Vec<Value> = (0..texts.len())
                .map(|column| match row.value(column) {
                    None => Value::Null,
                    Some(value) if value.unit.base().is_empty() => json!(value.number),
                    Some(value) => json!({ "value": value.number, "unit": value.unit.base() }),
                })
                .collect();
            json!({ "line": row.line(), "cells": texts, "values": values })
        })
        .collect();
    json!({
        "index": table.index(),
        "title": known(table.title()),
        "summary": known(table.summary()),
        "line": table.line(),
        "columns": columns,
        "rows": rows,
    })
}

fn section(section: Section<'_>) -> Value {
    json!({
        "heading": section.heading(),
        "anchor": known(section.anchor()),
        "line": section.line(),
        "catalogued": section.catalogued(),
        "notes": section.notes().collect::<Vec<_>>(),
        "tables": section.tables().map(table).collect::<Vec<_>>(),
    })
}

/// The report as one JSON object, on one line. Sections are converted one by one, so that memory stays small.
pub fn json(report: &Report) -> String {
    let warnings: Vec<Value> =
        report.warnings.iter().map(|warning| json!({ "line": warning.line, "text": warning.text })).collect();
    let unplaced: Vec<Value> =
        report.unplaced.iter().map(|cell| json!({ "line": cell.line, "text": cell.text })).collect();
    let head = json!({
        "schema": SCHEMA,
        "version": SCHEMA_VERSION,
        "name": report.name,
        "form": report.form.name(),
        "kind": report.kind.name(),
        "encoding": report.encoding,
        "bytes": report.bytes,
        "decimal_comma": report.decimal_comma,
        "header": header(&report.header),
        "warnings": warnings,
        "counts": {
            "cells": report.counts.read,
            "placed": report.counts.placed,
            "unplaced": report.counts.unplaced,
            "uncatalogued": report.counts.uncatalogued,
        },
        "unplaced": unplaced,
        "uncatalogued": report.uncatalogued().map(|section| section.heading()).collect::<Vec<_>>(),
    })
    .to_string();
    let mut out = String::with_capacity(report.bytes as usize);
    // The object of the head stays open for the sections.
    out.push_str(&head[..head.len() - 1]);
    out.push_str(",\"sections\":[");
    for (index, part) in report.sections().enumerate() {
        if index > 0 {
            out.push(',');
        }
        let _ = write!(out, "{}", section(part));
    }
    out.push_str("]}");
    out
}
