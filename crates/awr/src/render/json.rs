//! JSON: sections with typed rows, and the findings. Figures are in base units: microseconds, bytes.

use crate::findings::Finding;
use crate::report::Report;
use crate::sections::{Block, Section};
use crate::table::{Cell, Table};
use serde_json::{Value, json};

/// Version of the JSON form.
const FORMAT: u32 = 1;

pub fn json(report: &Report) -> String {
    let findings: Vec<Value> = report.findings.findings.iter().map(finding).collect();
    let sections: Vec<Value> = report.sections.iter().map(section).collect();
    let value = json!({
        "format": FORMAT,
        "kind": report.kind.name(),
        "title": report.title,
        "findings": findings,
        "areas_without_impact": report.findings.without_impact,
        "areas_not_judged": report.findings.not_judged,
        "sections": sections,
    });
    format!("{value:#}\n")
}

fn section(section: &Section) -> Value {
    let tables: Vec<Value> = section.tables().map(table).collect();
    let sentences: Vec<&str> = section
        .blocks
        .iter()
        .filter_map(|block| match block {
            Block::Sentence(sentence) => Some(sentence.as_str()),
            _ => None,
        })
        .collect();
    json!({
        "id": section.id,
        "group": section.group.title(),
        "title": section.title,
        "notes": section.notes,
        "tables": tables,
        "sentences": sentences,
    })
}

fn table(table: &Table) -> Value {
    let unit =
        |index: usize| table.rows.iter().map(|row| row[index].unit()).find(|unit| !unit.is_empty()).unwrap_or("");
    let units: Vec<&str> = (0..table.columns.len()).map(unit).collect();
    let columns = table.columns.iter().zip(&units).map(|(column, unit)| json!({ "name": column.name, "unit": unit }));
    // A cell of another unit than the column's first figure states its unit.
    let cell = |(cell, unit): (&Cell, &&str)| match cell.unit() {
        own if own.is_empty() || own == *unit => cell.json(),
        own => json!({ "value": cell.json(), "unit": own }),
    };
    let rows = table.rows.iter().map(|row| row.iter().zip(&units).map(cell).collect::<Value>());
    json!({ "title": table.title, "columns": columns.collect::<Value>(), "rows": rows.collect::<Value>() })
}

fn finding(finding: &Finding) -> Value {
    let impact = finding.impact.map(|impact| {
        json!({ "us": impact.us, "active_sessions": impact.active_sessions, "percent_of_db_time": impact.percent })
    });
    let evidence =
        finding.evidence.iter().map(|evidence| json!({ "section": evidence.section, "text": evidence.text }));
    let recommendations = finding.recommendations.iter().map(
        |recommendation| json!({ "text": recommendation.text, "benefit_percent": recommendation.benefit_percent }),
    );
    json!({
        "id": finding.id,
        "kind": finding.kind.name(),
        "title": finding.title,
        "impact": impact,
        "evidence": evidence.collect::<Value>(),
        "recommendations": recommendations.collect::<Value>(),
    })
}
