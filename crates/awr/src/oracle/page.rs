//! The page of `cellar awr html`: findings and charts, then every section of the report with all of its cells.

use super::findings;
use super::lookup::sections_of;
use super::model::{self, Kind, Report, same_name};
use crate::document::{Document, Event, Measure, names};
use crate::figures::time::{TimeModel, foreground_waits, wait_classes};
use crate::figures::{histogram, percent};
use crate::report;
use crate::sections::{self, Bar, Block, Chart, Group, Section};
use crate::sql_id;
use crate::table::{Align, Cell, Column, Layout, Table, bytes, duration, grouped};
use crate::view::{one_line, top};

/// Bars of a chart.
const BARS: usize = 10;
const HISTOGRAMS: usize = 4;
/// The section to which SQL_IDs link.
const TEXTS: &str = "sql-texts";

/// The report as a page. [`findings::judge`] returns the findings of Oracle's reports; reports of Cellar contain theirs.
pub fn page(report: &Report) -> report::Report {
    let mut all = vec![findings::head(report)];
    let mut found = crate::findings::Findings::default();
    if report.kind.without_figures().is_none() {
        let document = report.to_document();
        if report.kind != Kind::Cellar {
            found = findings::judge(report);
            all.push(sections::findings(&found));
            all.extend(findings::not_computable(report));
        }
        let charts = charts(report, &document);
        if !charts.is_empty() {
            let mut section = Section::new("charts", Group::Summary, "Charts");
            section.blocks = charts.into_iter().map(Block::Chart).collect();
            all.push(section);
        }
        if report.kind != Kind::Cellar {
            let own = sections::all(&document).into_iter();
            all.extend(own.filter(|section| section.id == "smart-scan" && section.tables().next().is_some()));
        }
    }
    let mut has_texts = false;
    for (index, section) in report.sections().enumerate() {
        all.extend(printed(index, section, &mut has_texts));
    }
    findings::about(report, "", all, found)
}

/// The group of a section, by the beginnings and words of its heading.
fn group(heading: &str) -> Group {
    let heading = heading.to_ascii_lowercase();
    let begins = |texts: &[&str]| texts.iter().any(|text| heading.starts_with(text));
    let contains = |texts: &[&str]| texts.iter().any(|text| heading.contains(text));
    match () {
        () if begins(&["workload repository", "statspack report", "report summary", "database", "load profile"])
            || begins(&[
                "instance efficiency",
                "top 5",
                "top 10",
                "top timed events",
                "wait classes by",
                "host cpu",
            ])
            || begins(&[
                "instance cpu",
                "io profile",
                "memory statistics",
                "cache sizes",
                "shared pool statistics",
            ])
            || begins(&["snapshot", "top addm", "rac report summary", "global cache", "open pluggable"]) =>
        {
            Group::Summary
        }
        () if begins(&["sql ", "complete list of sql", "execution plans"]) => Group::Sql,
        () if begins(&["segment"]) => Group::Segments,
        () if begins(&["exadata", "smart ", "flash", "cell ", "columnar cache", "passthru", "top databases by"])
            || begins(&["iorm", "asm ", "outlier", "performance summary", "top io reasons", "offload"])
            || contains(&["redo write histogram", "cancelled io", "internal io"]) =>
        {
            Group::SmartScan
        }
        () if begins(&["io", "i/o", "tablespace io", "file io", "file read", "file/", "relation io"]) => Group::Io,
        () if begins(&["buffer wait", "enqueue", "undo", "latch", "parent latch", "child latch", "mutex"]) => {
            Group::Further
        }
        () if contains(&["wait", "time model", "timed", "operating system", "os statistics", "service"])
            || begins(&["foreground", "background"]) =>
        {
            Group::Waits
        }
        () if contains(&["activity stat", "system statistics", "sysstat"]) => Group::Activity,
        () if begins(&["init.ora", "modified", "parameters", "multi-valued", "initialization"]) => Group::Settings,
        () if begins(&["active session", "activity over time", "top sql with", "top sessions", "top blocking"])
            || begins(&["top events", "top event p1", "top service", "top client", "top db objects", "top pl/sql"])
            || begins(&["top sql command", "top phases", "top row sources"]) =>
        {
            Group::History
        }
        () => Group::Further,
    }
}

/// A section as the report prints it. None if it has neither tables nor notes.
fn printed(index: usize, section: model::Section<'_>, has_texts: &mut bool) -> Option<Section> {
    if section.tables().len() == 0 && section.notes().len() == 0 {
        return None;
    }
    let heading = if section.heading().is_empty() { "(without heading)" } else { section.heading() };
    let texts = same_name(heading, "Complete List of SQL Text") && !std::mem::replace(has_texts, true);
    let id = if texts { TEXTS.to_owned() } else { format!("section-{index}") };
    let mut copy = Section::new(id, group(heading), heading);
    copy.notes = section.notes().map(str::to_owned).collect();
    copy.blocks = section.tables().map(|table| Block::Table(printed_table(table))).collect();
    Some(copy)
}

fn printed_table(table: model::Table<'_>) -> Table {
    let width = table.columns().len();
    let mut figures = vec![0usize; width];
    let mut texts = vec![0usize; width];
    let rows: Vec<Vec<Cell>> = table
        .rows()
        .map(|row| {
            // Not padded to the width: one wide heading above a million short rows would be a billion cells.
            let cells = (0..row.cells().len().min(width)).map(|column| {
                let text = row.text(column);
                match (row.number(column), sql_id::parse(text)) {
                    _ if text.is_empty() => Cell::Absent,
                    (Some(value), _) => {
                        figures[column] += 1;
                        Cell::Printed(text.to_owned(), value)
                    }
                    (None, Some(query_id)) => Cell::SqlId(query_id),
                    (None, None) => {
                        texts[column] += 1;
                        Cell::Text(text.to_owned())
                    }
                }
            });
            cells.collect()
        })
        .collect();
    let columns = table.columns().enumerate().map(|(index, column)| {
        let name = match (column.group(), column.name()) {
            ("", name) => name.to_owned(),
            (group, name) => format!("{group} {name}").trim_end().to_owned(),
        };
        let align = match () {
            () if column.name().ends_with("SQL Text") => Align::Below,
            () if figures[index] > texts[index] => Align::Right,
            () => Align::Left,
        };
        Column { name, align }
    });
    Table { title: table.title().to_owned(), columns: columns.collect(), rows, layout: Layout::Plain }
}

fn charts(report: &Report, document: &Document) -> Vec<Chart> {
    let model = TimeModel::of(document);
    let mut all = vec![time_by_class(document, &model), events(document, &model)];
    all.extend(histograms(document));
    all.extend([statements(document, &model), instances(report), segments(report)]);
    all.extend([io_profile(report), smart_scan(document)]);
    all.retain(|chart| !matches!(chart, Chart::Bars { bars, .. } if bars.is_empty()));
    all
}

fn bar(label: &str, us: Measure, model: &TimeModel) -> Option<Bar> {
    let us = us.filter(|us| *us > 0.0)?;
    let share = model.percent_of_db_time(Some(us)).map_or_else(String::new, |share| format!(", {share:.1} %"));
    Some(Bar { label: label.to_owned(), value: us / 1e6, text: format!("{}{share}", duration(us)), link: None })
}

fn bars(title: &str, unit: &'static str, mut bars: Vec<Bar>) -> Chart {
    bars.sort_by(|a, b| b.value.total_cmp(&a.value));
    bars.truncate(BARS);
    Chart::Bars { title: title.to_owned(), unit, bars }
}

fn time_by_class(document: &Document, model: &TimeModel) -> Chart {
    let waits: Vec<&Event> = foreground_waits(document).collect();
    let classes = wait_classes(waits.into_iter());
    let cpu = bar("DB CPU", model.db_cpu_us, model);
    let all = classes.iter().filter_map(|class| bar(&class.class, class.time_us, model)).chain(cpu);
    bars("Where foreground sessions spent DB time, by wait class", "s", all.collect())
}

fn events(document: &Document, model: &TimeModel) -> Chart {
    let all = foreground_waits(document).filter_map(|event| bar(&event.event, event.time_us, model));
    bars("Foreground events by wait time", "s", all.collect())
}

/// Distributions of the waits with the most time.
fn histograms(document: &Document) -> Vec<Chart> {
    let timed = foreground_waits(document).filter(|event| histogram::total(&event.histogram) > 0.0);
    top(timed, HISTOGRAMS, |event| event.time_us)
        .into_iter()
        .map(|event| Chart::Histogram { title: event.event.to_string(), buckets: event.histogram.to_vec() })
        .collect()
}

fn statements(document: &Document, model: &TimeModel) -> Chart {
    let all = top(&document.statements, BARS, |sql| sql.elapsed_us).into_iter().filter_map(|sql| {
        let id = sql_id::format(sql.query_id?);
        let label = format!("{id} {}", one_line(&sql.text, 30));
        Some(Bar { link: Some(format!("sql-{id}")), ..bar(label.trim_end(), sql.elapsed_us, model)? })
    });
    bars("Statements by elapsed time", "s", all.collect())
}

fn instances(report: &Report) -> Chart {
    let all = &report.header.instances;
    let total = all.iter().filter_map(|instance| instance.db_time_us).sum::<f64>();
    let model = TimeModel { db_time_us: Some(total), ..TimeModel::default() };
    let all = all.iter().filter(|_| all.len() > 1);
    bars("DB time by instance", "s", all.filter_map(|i| bar(&i.name, i.db_time_us, &model)).collect())
}

fn segments(report: &Report) -> Chart {
    let mut all = Vec::new();
    for table in sections_of(report, "Segments by Physical Reads").take(1).flat_map(model::Section::tables) {
        let Some(reads) = table.column(&["Physical Reads"]) else { continue };
        let Some(object) = table.column(&["Object Name"]) else { continue };
        for row in table.rows() {
            let owner = table.column(&["Owner"]).map_or("", |column| row.text(column));
            let Some(value) = row.number(reads).filter(|value| *value > 0.0) else { continue };
            let label = format!("{owner}.{}", row.text(object));
            all.push(Bar { label, value, text: grouped(value, 0), link: None });
        }
    }
    bars("Segments by physical reads", "blocks", all)
}

/// Megabytes per second by kind of I/O.
fn io_profile(report: &Report) -> Chart {
    let mut all = Vec::new();
    for table in sections_of(report, "IO Profile").take(1).flat_map(model::Section::tables) {
        let Some(rate) = table.column(&["Read+Write Per Second", "Read+Write/Second"]) else { continue };
        for row in table.rows().filter(|row| row.text(0).contains("(MB)")) {
            let megabytes = row.number(rate).map(|bytes| bytes / 1_048_576.0).filter(|value| *value > 0.0);
            let Some(value) = megabytes else { continue };
            let label = row.text(0).trim_end_matches(':').replace(" (MB)", "");
            all.push(Bar { label, value, text: format!("{} MB/s", grouped(value, 1)), link: None });
        }
    }
    bars("I/O profile, reads and writes", "MB/s", all)
}

fn smart_scan(document: &Document) -> Chart {
    let eligible = document.statistic(names::ELIGIBLE).filter(|bytes| *bytes > 0.0);
    let all = [
        ("eligible for offload", names::ELIGIBLE),
        ("saved by storage index", names::SAVED),
        ("returned by Smart Scan", names::RETURNED),
        ("passed through", names::PASSTHRU),
        ("uncompressed", names::UNCOMPRESSED),
    ];
    let all = all.iter().filter(|_| eligible.is_some()).filter_map(|(label, name)| {
        let value = document.statistic(name).filter(|value| *value > 0.0)?;
        let share = percent(Some(value), eligible).map_or_else(String::new, |share| format!(", {share:.1} %"));
        let text = format!("{}B{share}", bytes(value));
        Some(Bar { label: (*label).to_owned(), value: value / 1_073_741_824.0, text, link: None })
    });
    bars("Bytes of Smart Scans, in per cent of the eligible bytes", "GB", all.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_have_the_group_of_their_heading() {
        for (heading, expected) in [
            ("SQL ordered by Elapsed Time (Global)", Group::Sql),
            ("Segments by Physical Reads", Group::Segments),
            ("IOStat by Function summary", Group::Io),
            ("Foreground Wait Events", Group::Waits),
            ("Buffer Wait Statistics", Group::Further),
            ("init.ora Parameters", Group::Settings),
            ("Exadata Smart Statistics", Group::SmartScan),
            ("Top SQL with Top Events", Group::History),
            ("Instance Activity Stats - Absolute Values", Group::Activity),
            ("A Section of a Later Release", Group::Further),
        ] {
            assert_eq!(group(heading), expected, "{heading}");
        }
    }
}
