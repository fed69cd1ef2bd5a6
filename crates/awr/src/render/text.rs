//! Text, 132 columns wide, in the look of Oracle's reports.

use crate::findings::Finding;
use crate::report::{Kind, Report};
use crate::sections::{Block, Group, Section};
use crate::table::{Align, Cell, Layout, Table};
use std::collections::BTreeSet;

/// The most characters of a line.
pub const WIDTH: usize = 132;
/// The least width to which a text column is cut. A table of wider columns is continued below.
const TEXT_WIDTH_MIN: usize = 20;
/// The least width of a last column whose texts are wrapped.
const WRAPPED_WIDTH_MIN: usize = 30;
/// Lines of the headings, and the widest table for which they are used.
const HEADING_LINES: [(usize, usize); 3] = [(1, 100), (2, WIDTH), (3, WIDTH)];
/// Oracle ends a section with 54 hyphens.
const END: &str = "                          ------------------------------------------------------\n";

pub fn text(report: &Report) -> String {
    let mut out = String::new();
    if report.kind == Kind::Global {
        out.push_str("\nWORKLOAD REPOSITORY REPORT (RAC)\n");
    }
    for section in &report.sections {
        write_section(&mut out, section, &report.subject);
    }
    out.push_str("\nEnd of Report\n");
    out
}

/// Writes one table.
pub fn table(table: &Table) -> String {
    let mut out = String::new();
    write_table(&mut out, table);
    out
}

fn write_section(out: &mut String, section: &Section, subject: &str) {
    out.push('\n');
    let is_summary = section.group == Group::Summary;
    // A labelled table prints its title itself.
    let titled =
        |block: &Block| matches!(block, Block::Table(t) if t.layout == Layout::Labelled && t.title == section.title);
    if !section.blocks.first().is_some_and(titled) {
        heading(out, &section.title, if is_summary { "" } else { subject });
        if is_summary {
            line(out, &"~".repeat(section.title.chars().count().min(WIDTH)));
        }
    }
    for note in &section.notes {
        wrapped(out, "-> ", "   ", note);
    }
    // Without a blank line, the first line of a heading would read as a part of the note.
    if !section.notes.is_empty() {
        out.push('\n');
    }
    let printed = section.blocks.iter().filter(|block| !matches!(block, Block::Chart(_)));
    for (index, block) in printed.enumerate() {
        if index > 0 {
            out.push('\n');
        }
        match block {
            Block::Table(table) => write_table(out, table),
            Block::Finding(finding) => write_finding(out, finding),
            Block::Sentence(sentence) => wrapped(out, "", "", sentence),
            Block::Chart(_) => {}
        }
    }
    if !is_summary {
        out.push_str(END);
    }
}

/// The title, with the subject at the right margin if both fit.
fn heading(out: &mut String, title: &str, subject: &str) {
    let used = title.chars().count() + subject.chars().count();
    if subject.is_empty() || used + 2 > WIDTH {
        line(out, &cut(title, WIDTH));
    } else {
        line(out, &format!("{title}{}{subject}", " ".repeat((80_usize.max(used + 2) - used).min(WIDTH - used))));
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

/// Writes a text, wrapped at words.
fn wrapped(out: &mut String, first: &str, indent: &str, text: &str) {
    for (index, part) in wrap(text, WIDTH - indent.chars().count().max(first.chars().count())).iter().enumerate() {
        line(out, &format!("{}{part}", if index == 0 { first } else { indent }));
    }
}

/// Splits a text into lines of at most `width` characters, at spaces where possible.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let indent: String = line.chars().take_while(|character| *character == ' ').take(width / 2).collect();
        let mut current = indent.clone();
        for word in line.split_whitespace() {
            let mut word = word;
            let is_empty = current.trim().is_empty();
            if !is_empty && current.chars().count() + 1 + word.chars().count() > width {
                lines.push(std::mem::replace(&mut current, indent.clone()));
            } else if !is_empty {
                current.push(' ');
            }
            while current.chars().count() + word.chars().count() > width {
                let free = width - current.chars().count();
                let split = word.char_indices().nth(free).map_or(word.len(), |(index, _)| index);
                current.push_str(&word[..split]);
                word = &word[split..];
                lines.push(std::mem::replace(&mut current, indent.clone()));
            }
            current.push_str(word);
        }
        lines.push(current);
    }
    lines
}

fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

fn padded(text: &str, width: usize, align: Align) -> String {
    let text = cut(text, width);
    let space = " ".repeat(width - text.chars().count());
    if align == Align::Right { space + &text } else { text + &space }
}

/// Writes a table. A table that is too wide is written as several tables, which repeat the first column.
fn write_table(out: &mut String, table: &Table) {
    let cells: Vec<Vec<String>> =
        table.rows.iter().map(|row| row.iter().map(|cell| cell.print().replace('\t', " ")).collect()).collect();
    let beside: Vec<usize> =
        (0..table.columns.len()).filter(|column| table.columns[*column].align != Align::Below).collect();
    let below: Vec<usize> =
        (0..table.columns.len()).filter(|column| table.columns[*column].align == Align::Below).collect();
    let longest: Vec<usize> = (0..table.columns.len())
        .map(|column| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let total = |widths: &[usize]| beside.iter().map(|column| widths[*column] + 1).sum::<usize>();
    // Headings on one line in a narrow table, on more lines in a wide one.
    let mut widths = HEADING_LINES
        .iter()
        .map(|(lines, limit)| (column_widths(table, &longest, *lines), *limit))
        .find_map(|(widths, limit)| (total(&widths) <= limit + 1).then_some(widths))
        .unwrap_or_else(|| column_widths(table, &longest, usize::MAX));
    let least: Vec<usize> = (0..table.columns.len()).map(|column| least_width(table, &cells, column)).collect();
    shrink(&mut widths, &least, &beside);
    let cells = with_short_paths(cells, &widths);
    for (band, columns) in bands(&widths, &beside).into_iter().enumerate() {
        if band > 0 {
            out.push('\n');
        }
        write_headings(out, table, &widths, &columns);
        for row in &cells {
            let text: Vec<String> = columns
                .iter()
                .map(|column| {
                    let label = table.layout == Layout::Labelled && *column == 0;
                    let align = if label { Align::Right } else { table.columns[*column].align };
                    let is_last = columns.last() == Some(column);
                    let cell = match is_last && is_wrapped(table, *column, &widths) {
                        true => wrap_cell(&row[*column], widths[*column]).first().cloned().unwrap_or_default(),
                        false => row[*column].replace('\n', " "),
                    };
                    padded(&cell, widths[*column], align)
                })
                .collect();
            line(out, &text.join(" "));
            if let Some(column) = columns.last().filter(|column| is_wrapped(table, **column, &widths)) {
                let indent: usize = columns.iter().rev().skip(1).map(|column| widths[*column] + 1).sum();
                for rest in wrap_cell(&row[*column], widths[*column]).iter().skip(1) {
                    line(out, &format!("{}{rest}", " ".repeat(indent)));
                }
            }
            if band == 0 {
                for column in &below {
                    wrapped(out, "  ", "  ", &row[*column]);
                }
            }
        }
    }
}

/// Whether the cells of a last column continue on further lines instead of being cut: texts that are not too narrow.
fn is_wrapped(table: &Table, column: usize, widths: &[usize]) -> bool {
    table.columns[column].align == Align::Left && widths[column] >= WRAPPED_WIDTH_MIN
}

fn wrap_cell(text: &str, width: usize) -> Vec<String> {
    wrap(&text.replace('\n', " "), width)
}

/// Width of each column: wide enough for the widest cell, and for the heading on at most `lines` lines.
fn column_widths(table: &Table, longest: &[usize], lines: usize) -> Vec<usize> {
    let mut widths: Vec<usize> = table
        .columns
        .iter()
        .zip(longest)
        .map(|(column, longest)| (*longest).max(heading_width(&column.name, lines)).clamp(1, WIDTH))
        .collect();
    if let (Layout::Labelled, Some(first)) = (table.layout, widths.first_mut()) {
        *first = (*first).max(table.title.chars().count()).min(WIDTH);
    }
    widths
}

/// The least width in which a heading takes at most `lines` lines.
fn heading_width(name: &str, lines: usize) -> usize {
    let word = name.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(1);
    let whole = name.chars().count().max(1);
    (word..whole).find(|width| wrap(name, *width).len() <= lines).unwrap_or(whole)
}

/// The least width of a column: that of its figures and identifiers, which are never cut, of short texts, and of the longest word
/// of its heading.
fn least_width(table: &Table, cells: &[Vec<String>], column: usize) -> usize {
    let width = |text: &str| text.chars().count();
    let longest = cells.iter().map(|row| width(&row[column])).max().unwrap_or(0);
    let figures = table.rows.iter().zip(cells).filter(|(row, _)| !matches!(row[column], Cell::Text(_)));
    let figure = figures.map(|(_, texts)| width(&texts[column])).max().unwrap_or(0);
    let word = table.columns[column].name.split_whitespace().map(width).max().unwrap_or(0);
    let is_text = table.columns[column].align == Align::Left && !is_identifier(&table.columns[column].name);
    let text = if is_text { longest.min(TEXT_WIDTH_MIN).max(path_width(cells, column)) } else { longest };
    figure.max(word).max(text)
}

/// Cuts the widest text columns until the table fits, or no column can be cut any more.
fn shrink(widths: &mut [usize], least: &[usize], columns: &[usize]) {
    let total = |widths: &[usize]| columns.iter().map(|column| widths[*column] + 1).sum::<usize>().saturating_sub(1);
    while total(widths) > WIDTH {
        let can_shrink = columns.iter().filter(|column| widths[**column] > least[**column]);
        let Some(widest) = can_shrink.max_by_key(|column| widths[**column]).copied() else { return };
        let excess = total(widths) - WIDTH;
        // Cut in steps, so that several long columns share the loss.
        widths[widest] -= excess.min(4).min(widths[widest] - least[widest]);
    }
}

/// A path without its middle: the begin and the end tell paths apart.
fn short_path(path: &str, width: usize) -> String {
    let length = path.chars().count();
    if length <= width {
        return path.to_owned();
    }
    let head = width / 3;
    path.chars().take(head).chain(['…']).chain(path.chars().skip(length + head + 1 - width)).collect()
}

fn is_path(text: &str) -> bool {
    text.starts_with('/') && !text.starts_with("/*")
}

/// Whether a column contains paths, and beside them only texts that are never cut, such as the name of a total.
fn is_paths(cells: &[Vec<String>], column: usize) -> bool {
    let mut texts = cells.iter().map(|row| &row[column]);
    texts.clone().any(|text| is_path(text)) && texts.all(|text| is_path(text) || text.chars().count() <= TEXT_WIDTH_MIN)
}

/// The least width in which the paths of a column differ; 0 for other texts.
fn path_width(cells: &[Vec<String>], column: usize) -> usize {
    if !is_paths(cells, column) {
        return 0;
    }
    let paths: BTreeSet<&str> = cells.iter().map(|row| row[column].as_str()).filter(|text| is_path(text)).collect();
    let longest = paths.iter().map(|path| path.chars().count()).max().unwrap_or(0);
    let differ =
        |width: &usize| paths.iter().map(|path| short_path(path, *width)).collect::<BTreeSet<_>>().len() == paths.len();
    (TEXT_WIDTH_MIN.min(longest)..longest).find(differ).unwrap_or(longest)
}

/// Shortens the paths that are wider than their column.
fn with_short_paths(mut cells: Vec<Vec<String>>, widths: &[usize]) -> Vec<Vec<String>> {
    for (column, width) in widths.iter().enumerate() {
        if is_paths(&cells, column) {
            for row in cells.iter_mut().filter(|row| is_path(&row[column])) {
                row[column] = short_path(&row[column], *width);
            }
        }
    }
    cells
}

/// Columns whose text is useless when cut.
fn is_identifier(name: &str) -> bool {
    name.to_ascii_lowercase().replace('_', " ") == "sql id"
}

/// Groups of columns that fit a line; each group starts with the first column.
fn bands(widths: &[usize], columns: &[usize]) -> Vec<Vec<usize>> {
    let Some((first, others)) = columns.split_first() else { return Vec::new() };
    let mut bands = vec![vec![*first]];
    let mut used = widths[*first];
    for column in others {
        if used + 1 + widths[*column] > WIDTH && bands.last().is_some_and(|band| band.len() > 1) {
            bands.push(vec![*first]);
            used = widths[*first];
        }
        used += 1 + widths[*column];
        if let Some(band) = bands.last_mut() {
            band.push(*column);
        }
    }
    bands
}

/// Headings, wrapped at words and bottom-aligned, above a rule.
fn write_headings(out: &mut String, table: &Table, widths: &[usize], columns: &[usize]) {
    let headings: Vec<Vec<String>> =
        columns.iter().map(|column| wrap(&table.columns[*column].name, widths[*column])).collect();
    let height = headings.iter().map(Vec::len).max().unwrap_or(0);
    let is_label = |column: usize| table.layout == Layout::Labelled && column == 0;
    for level in 0..height {
        let text: Vec<String> = columns
            .iter()
            .zip(&headings)
            .map(|(column, heading)| {
                let missing = height - heading.len();
                let is_title = is_label(*column) && level + 1 == height;
                let word = if is_title {
                    &table.title
                } else {
                    heading.get(level.wrapping_sub(missing)).map_or("", |word| word)
                };
                padded(word, widths[*column], if is_title { Align::Left } else { table.columns[*column].align })
            })
            .collect();
        line(out, &text.join(" "));
    }
    let rules: Vec<String> = columns
        .iter()
        .map(|column| match is_label(*column) {
            true => padded(&"~".repeat(table.title.chars().count()), widths[*column], Align::Left),
            false => "-".repeat(widths[*column]),
        })
        .collect();
    line(out, &rules.join(" "));
}

fn write_finding(out: &mut String, finding: &Finding) {
    let impact = finding.impact.map_or_else(String::new, |impact| {
        let sessions =
            impact.active_sessions.map_or_else(String::new, |sessions| format!("{sessions:.2} active sessions"));
        let percent = impact.percent.map_or_else(String::new, |percent| format!(", {percent:.1} % of DB time"));
        format!(" - impact {sessions}{percent}")
    });
    wrapped(out, "", "   ", &format!("{} [{}]: {}{impact}", finding.kind.name(), finding.id, finding.title));
    for evidence in &finding.evidence {
        wrapped(out, "   * ", "     ", &evidence.text);
    }
    for recommendation in &finding.recommendations {
        let benefit = recommendation
            .benefit_percent
            .map_or_else(String::new, |percent| format!(" (benefit up to {percent:.1} %)"));
        wrapped(out, "   => ", "      ", &format!("{}{benefit}", recommendation.text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_too_wide_is_continued_below_with_its_first_column() {
        let names: Vec<String> = (0..30).map(|column| format!("Number{column:03}")).collect();
        let mut columns = vec!["<Name"];
        columns.extend(names.iter().map(String::as_str));
        let mut row = vec![Cell::text("a")];
        row.extend((0..30).map(|column| Cell::Count(f64::from(column))));
        let mut out = String::new();
        write_table(&mut out, &Table::new(&columns).with_rows([row]));
        assert!(out.lines().all(|line| line.chars().count() <= WIDTH), "{out}");
        assert_eq!(out.lines().filter(|line| line.starts_with("Name")).count(), 3, "{out}");
        assert!(names.iter().all(|name| out.contains(name)), "{out}");
    }

    #[test]
    fn a_long_text_in_the_last_column_continues_on_further_lines() {
        let text = "why ".repeat(60);
        let mut out = String::new();
        write_table(
            &mut out,
            &Table::new(&["<Name", "<Reason"]).with_rows([vec![Cell::text("a"), Cell::text(&*text)]]),
        );
        assert!(out.lines().all(|line| line.chars().count() <= WIDTH), "{out}");
        assert_eq!(out.matches("why").count(), 60, "{out}");
        assert!(out.lines().skip(3).all(|line| line.starts_with("     why")), "{out}");
    }

    #[test]
    fn long_words_and_lines_are_split() {
        let lines = wrap(&format!("a {} b\n  c", "x".repeat(25)), 10);
        assert_eq!(lines, ["a", "xxxxxxxxxx", "xxxxxxxxxx", "xxxxx b", "  c"]);
    }

    #[test]
    fn cut_paths_stay_distinct() {
        let disks = |names: [&str; 2]| {
            let rows = names.map(|name| vec![Cell::text(name), Cell::text("t".repeat(150)), Cell::Count(1.0)]);
            table(&Table::new(&["<Disk", "<Text", "Reads/s"]).with_rows(rows))
        };
        let folder = format!("/{}", "folder/".repeat(30));
        // The end differs, or only the beginning.
        let out = disks([&format!("{folder}disk1"), &format!("{folder}disk2")]);
        assert!(out.contains("/disk1 ") && out.contains("/disk2 ") && out.contains('…'), "{out}");
        let out = disks([&format!("/one{folder}"), &format!("/two{folder}")]);
        assert!(out.contains("/one/") && out.contains("/two/"), "{out}");
        // The name of a total stands below the paths.
        let out = disks([&format!("{folder}disk1"), "Total (2)"]);
        assert!(out.contains("/disk1 ") && out.contains("Total (2) ") && out.contains('…'), "{out}");
    }
}
