//! HTML: one file without references to other files. Every text from the document is escaped.

use super::escape::escape;
use super::{COLOURS, charts};
use crate::findings::Finding;
use crate::report::Report;
use crate::sections::{Block, Group, Section};
use crate::sql_id;
use crate::table::{Align, Cell, Layout, Table};
use std::collections::BTreeSet;
use std::fmt::Write;

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");
/// The section whose rows other sections' SQL_IDs link to.
const TEXTS: &str = "sql-texts";

pub fn html(report: &Report) -> String {
    let texts = statements_with_text(report);
    let mut out = String::with_capacity(1 << 18);
    let title = escape(&report.title);
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"generator\" content=\"cellar awr\">\n<title>{title}</title>\n<style>\n{COLOURS}{STYLE}</style>\n</head>\n<body>\n"
    );
    write_contents(&mut out, report);
    out.push_str("<main>\n");
    let mut group = None;
    for section in &report.sections {
        if group != Some(section.group) {
            let tag = if group.is_none() { "h1" } else { "h2" };
            let text = if group.is_none() { report.title.as_str() } else { section.group.title() };
            let _ = writeln!(out, "<{tag} class=\"awr\" id=\"{}\">{}</{tag}>", group_id(section.group), escape(text));
            group = Some(section.group);
        }
        write_section(&mut out, section, &texts);
    }
    let _ = write!(out, "<p class=\"end\">End of Report</p>\n</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n");
    out
}

fn group_id(group: Group) -> String {
    group.title().to_ascii_lowercase().replace(|character: char| !character.is_ascii_alphanumeric(), "-")
}

fn statements_with_text(report: &Report) -> BTreeSet<i64> {
    let sections = report.sections.iter().filter(|section| section.id == TEXTS);
    let rows = sections.flat_map(Section::tables).flat_map(|table| &table.rows);
    rows.filter_map(|row| match row.first() {
        Some(Cell::SqlId(query_id)) => Some(*query_id),
        _ => None,
    })
    .collect()
}

fn write_contents(out: &mut String, report: &Report) {
    out.push_str("<nav><details open><summary>Contents</summary>\n");
    let mut groups: Vec<Group> = Vec::new();
    for section in &report.sections {
        if !groups.contains(&section.group) {
            groups.push(section.group);
        }
    }
    for group in groups {
        let _ = write!(
            out,
            "<details class=\"group\"{}><summary><a href=\"#{}\">{}</a></summary><ul>",
            if group == Group::Summary { " open" } else { "" },
            group_id(group),
            group.title()
        );
        for section in report.sections.iter().filter(|section| section.group == group) {
            let _ = write!(out, "<li><a href=\"#{}\">{}</a></li>", section.id, escape(&section.title));
        }
        out.push_str("</ul></details>\n");
    }
    out.push_str("</details></nav>\n");
}

fn write_section(out: &mut String, section: &Section, texts: &BTreeSet<i64>) {
    let _ = writeln!(out, "<section id=\"{}\">\n<h3 class=\"awr\">{}</h3>", section.id, escape(&section.title));
    if !section.notes.is_empty() {
        out.push_str("<ul class=\"notes\">");
        for note in &section.notes {
            let _ = write!(out, "<li>{}</li>", escape(note));
        }
        out.push_str("</ul>\n");
    }
    // The pictures of histograms stand side by side.
    for block in &section.blocks {
        match block {
            Block::Table(table) => write_table(out, table, section, texts),
            Block::Finding(finding) => write_finding(out, finding),
            Block::Sentence(sentence) => {
                let _ = writeln!(out, "<p class=\"sentence\">{}</p>", escape(sentence));
            }
            Block::Chart(chart) => {
                let _ = writeln!(out, "<figure>{}</figure>", charts::svg(chart));
            }
        }
    }
    out.push_str("</section>\n");
}

fn write_table(out: &mut String, table: &Table, section: &Section, texts: &BTreeSet<i64>) {
    let labelled = if table.layout == Layout::Labelled { " labelled" } else { "" };
    let summary = escape(if table.title.is_empty() { &section.title } else { &table.title });
    let _ = writeln!(out, "<div class=\"scroll\"><table class=\"tdiff{labelled}\" summary=\"{summary}\">");
    // Tables of labels and values that were read from another report have no names.
    if table.columns.iter().any(|column| !column.name.is_empty()) {
        out.push_str("<thead><tr>");
        for column in &table.columns {
            let class = if column.align == Align::Right { " class=\"num\"" } else { "" };
            let _ = write!(out, "<th scope=\"col\"{class}>{}</th>", escape(&column.name));
        }
        out.push_str("</tr></thead>\n");
    }
    out.push_str("<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (cell, column) in row.iter().zip(&table.columns) {
            let class = match column.align {
                Align::Right => " class=\"num\"",
                Align::Below => " class=\"long\"",
                Align::Left => "",
            };
            // Rounded and scaled figures sort by their exact values.
            let value = match cell {
                Cell::Duration(value) | Cell::Bytes(value) | Cell::Printed(_, value) => format!(" data-v=\"{value}\""),
                _ => String::new(),
            };
            let content = match cell {
                Cell::SqlId(query_id) if section.id == TEXTS => {
                    let name = sql_id::format(*query_id);
                    format!("<code id=\"sql-{name}\">{name}</code>")
                }
                Cell::SqlId(query_id) if texts.contains(query_id) => {
                    let name = sql_id::format(*query_id);
                    format!("<a href=\"#sql-{name}\"><code>{name}</code></a>")
                }
                Cell::SqlId(query_id) => format!("<code>{}</code>", sql_id::format(*query_id)),
                cell => escape(&cell.print()),
            };
            let _ = write!(out, "<td{class}{value}>{content}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn write_finding(out: &mut String, finding: &Finding) {
    let kind = finding.kind.name().to_ascii_lowercase();
    let impact = finding.impact.map_or_else(String::new, |impact| {
        let sessions = impact
            .active_sessions
            .map_or_else(String::new, |sessions| format!("{sessions:.2} average active sessions"));
        let percent = impact.percent.map_or_else(String::new, |percent| {
            format!(
                "<meter min=\"0\" max=\"100\" value=\"{:.1}\"></meter> {percent:.1} % of DB time",
                percent.clamp(0.0, 100.0)
            )
        });
        format!("<p class=\"impact\">{percent}, {sessions}</p>")
    });
    let _ = write!(
        out,
        "<article class=\"finding {kind}\" id=\"finding-{}\"><h4><span class=\"kind\">{}</span> {}</h4>{impact}<ul class=\"evidence\">",
        escape(finding.id),
        finding.kind.name(),
        escape(&finding.title)
    );
    for evidence in &finding.evidence {
        let text = escape(&evidence.text);
        let _ = match evidence.section {
            "" => write!(out, "<li>{text}</li>"),
            section => write!(out, "<li>{text} <a class=\"ref\" href=\"#{section}\">{}</a></li>", escape(section)),
        };
    }
    out.push_str("</ul>");
    for recommendation in &finding.recommendations {
        let benefit = recommendation.benefit_percent.map_or_else(String::new, |percent| {
            format!(" <span class=\"benefit\">benefit up to {percent:.1} %</span>")
        });
        let _ = write!(out, "<p class=\"recommendation\">{}{benefit}</p>", escape(&recommendation.text));
    }
    let _ = writeln!(out, "<p class=\"id\">{}</p></article>", escape(finding.id));
}
