//! The comparison of two periods: changes ranked by their share of DB time, then the tables of both reports side by side.

use super::{Kind, Report, name, snapshots};
use crate::document::{Document, Measure};
use crate::figures::change::percent_change;
use crate::figures::time::{TimeModel, foreground_waits};
use crate::figures::{percent, sum};
use crate::findings::Findings;
use crate::rules;
use crate::sections::{self, Bar, Chart, Group, Section, TIMES_ARE_UTC};
use crate::sql_id;
use crate::table::{Cell, Table, grouped};
use crate::view::{View, one_line, time_text};
use std::collections::{BTreeMap, BTreeSet};

const ROWS: usize = 25;
/// The least change that is listed, in average active sessions: the table prints three decimals.
const CHANGE_MIN: f64 = 0.0005;

/// A table of both reports to compare: section, key column, compared columns.
struct Comparison {
    section: &'static str,
    key: &'static str,
    columns: &'static [&'static str],
}

const COMPARISONS: [Comparison; 14] = [
    Comparison { section: "load-profile", key: "", columns: &["Per Second", "Per Transaction"] },
    Comparison { section: "instance-efficiency", key: "", columns: &["%"] },
    Comparison {
        section: "wait-classes",
        key: "Wait Class",
        columns: &["Avg Active Sessions", "Avg Wait Time", "% DB time"],
    },
    Comparison { section: "time-model", key: "Statistic Name", columns: &["Time (s)", "% of DB Time"] },
    Comparison { section: "foreground-events", key: "Event", columns: &["Waits", "Total Wait Time (s)", "Avg wait"] },
    Comparison { section: "background-events", key: "Event", columns: &["Waits", "Total Wait Time (s)", "Avg wait"] },
    Comparison {
        section: "sql-elapsed-time",
        key: "SQL Id",
        columns: &["Elapsed Time (s)", "Executions", "Elapsed Time per Exec (s)"],
    },
    Comparison { section: "sql-reads", key: "SQL Id", columns: &["Physical Reads", "Reads per Exec"] },
    Comparison { section: "databases", key: "Database", columns: &["Active (s)", "Reads", "Read Time (s)"] },
    Comparison {
        section: "io-function",
        key: "Function Name",
        columns: &["Reads: Data", "Writes: Data", "Avg Read Time"],
    },
    Comparison { section: "segments-physical-reads", key: "Object Name", columns: &["Physical Reads"] },
    Comparison { section: "wal", key: "WAL Statistic", columns: &["Total", "per Second"] },
    Comparison { section: "smart-scan-volumes", key: "Statistic", columns: &["Total", "per Second"] },
    Comparison { section: "key-activity", key: "Statistic", columns: &["per Second", "per Trans"] },
];

pub fn difference(first: &Document, second: &Document) -> Report {
    let mut sections = vec![header(first, second), ranking(first, second), findings(first, second)];
    let (one, two) = (sections::all(first), sections::all(second));
    for comparison in &COMPARISONS {
        let find = |sections: &[Section]| {
            let section = sections.iter().find(|section| section.id == comparison.section);
            section.and_then(|section| section.tables().next().map(|table| (section.clone(), table.clone())))
        };
        if let (Some((section, a)), Some((_, b))) = (find(&one), find(&two)) {
            sections.push(compare(comparison, &section, &a, &b));
        }
    }
    sections.push(settings(first, second));
    // The comparisons are ordered by interest; the report keeps each group together.
    sections.sort_by_key(|section| section.group);
    let subject = format!("{} {} / {} {}", name(first), snapshots(first), name(second), snapshots(second));
    Report {
        kind: Kind::Difference,
        title: format!("AWR Compare Period Report: {subject}"),
        subject,
        sections,
        findings: Findings::default(),
    }
}

fn header(first: &Document, second: &Document) -> Section {
    let columns = [
        "<Period",
        "<Instance",
        "Begin Snap",
        "<Begin Time",
        "End Snap",
        "<End Time",
        "Elapsed Time (min)",
        "DB Time (min)",
        "Avg Active Sessions",
    ];
    let row = |label: &str, document: &Document| {
        let model = TimeModel::of(document);
        let minutes = |us: Measure| Cell::decimal(us.map(|us| us / 60e6), 2);
        vec![
            Cell::text(label),
            Cell::text(name(document)),
            Cell::integer(document.begin.snap_id),
            Cell::text(time_text(&document.begin.time)),
            Cell::integer(document.end.snap_id),
            Cell::text(time_text(&document.end.time)),
            minutes(document.elapsed_us),
            minutes(model.db_time_us),
            Cell::decimal(model.average_active_sessions(), 2),
        ]
    };
    let sessions = |document: &Document| TimeModel::of(document).average_active_sessions();
    let mut section = Section::new("header", Group::Summary, "WORKLOAD REPOSITORY COMPARE PERIOD REPORT")
        .note(TIMES_ARE_UTC)
        .table(Table::new(&columns).with_rows([row("First", first), row("Second", second)]));
    if let Some(change) = percent_change(sessions(first), sessions(second)) {
        section = section.note(format!("DB time per second of the second period: {}", change_text(change)));
    }
    section
}

/// What a change in per cent makes of the first period.
fn change_text(percent: f64) -> String {
    match percent {
        more if more >= 100.0 => format!("{} times the first", grouped(1.0 + more / 100.0, usize::from(more < 900.0))),
        more if more >= 0.0 => format!("{more:.1} % more than the first"),
        less => format!("{:.1} % less than the first", -less),
    }
}

/// Where sessions spent time, as average active sessions: DB CPU, events, statements.
fn components(document: &Document) -> BTreeMap<(&'static str, String), (f64, String)> {
    let view = View::new(document);
    let mut all = BTreeMap::new();
    let mut add = |kind: &'static str, name: String, us: Measure, text: String| {
        if let Some(sessions) = view.model.active_sessions(us) {
            let entry = all.entry((kind, name)).or_insert((0.0, text));
            entry.0 += sessions;
        }
    };
    add("Time", "DB CPU".to_owned(), view.model.db_cpu_us, String::new());
    add("Time", "CPU run queue".to_owned(), view.model.run_queue_outside_waits_us(), String::new());
    for event in foreground_waits(document) {
        add("Event", event.event.to_string(), event.time_us, event.class.to_string());
    }
    for sql in view.sql.iter().filter(|sql| !sql.is_background) {
        add("SQL", sql.name(), sql.elapsed_us, one_line(sql.text, 60));
    }
    all
}

fn ranking(first: &Document, second: &Document) -> Section {
    let (one, two) = (components(first), components(second));
    let sessions = |document: &Document| TimeModel::of(document).average_active_sessions();
    let greater = match (sessions(first), sessions(second)) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    };
    let keys: BTreeSet<&(&str, String)> = one.keys().chain(two.keys()).collect();
    let mut rows: Vec<(f64, String, Vec<Cell>)> = Vec::new();
    for key in keys {
        let value =
            |side: &BTreeMap<(&'static str, String), (f64, String)>| side.get(key).map(|(sessions, _)| *sessions);
        let (a, b) = (value(&one), value(&two));
        let change = b.unwrap_or(0.0) - a.unwrap_or(0.0);
        let text = two.get(key).or(one.get(key)).map_or("", |(_, text)| text.as_str());
        let row = vec![
            Cell::text(key.0),
            Cell::text(&key.1),
            Cell::decimal(a, 3),
            Cell::decimal(b, 3),
            Cell::Decimal(change, 3),
            Cell::percent(percent(Some(change), greater), 1),
            Cell::percent(percent_change(a, b), 1),
            Cell::text(text),
        ];
        rows.push((change, key.1.clone(), row));
    }
    rows.retain(|(change, ..)| change.abs() >= CHANGE_MIN);
    rows.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    rows.truncate(ROWS);
    let bars = rows.iter().take(10).map(|(change, name, _)| Bar {
        label: name.clone(),
        value: *change,
        text: format!("{change:+.3} sessions"),
        link: None,
    });
    let chart = Chart::Bars {
        title: "Greatest changes; pale: decreases".to_owned(),
        unit: "average active sessions",
        bars: bars.collect(),
    };
    let columns = [
        "<Kind",
        "<Name",
        "1st Avg Active Sessions",
        "2nd Avg Active Sessions",
        "Change",
        "% DB time",
        "%Diff",
        "<Detail",
    ];
    let table = Table::new(&columns).with_rows(rows.into_iter().map(|(_, _, row)| row));
    Section::new("changes", Group::Summary, "Changes Ranked by Share of DB Time")
        .note(
            "in average active sessions, so that periods of different length compare; % DB time: of the busier period",
        )
        .note("a statement's time contains the events in which the statement waited")
        .table_or(table, "The periods do not differ, or their documents contain no times.")
        .chart(chart)
}

/// Findings of one period only, and of both.
fn findings(first: &Document, second: &Document) -> Section {
    let (one, two) = (rules::judge(first), rules::judge(second));
    let mut table = Table::new(&["<Id", "<Finding Name", "1st % DB time", "2nd % DB time", "<Verdict"]);
    let ids: BTreeSet<&str> = one.findings.iter().chain(&two.findings).map(|finding| finding.id).collect();
    let mut rows = Vec::new();
    for id in ids {
        let of = |findings: &Findings| {
            let all: Vec<_> = findings.findings.iter().filter(|finding| finding.id == id).cloned().collect();
            let impact = sum(all.iter().map(|finding| finding.impact.and_then(|impact| impact.percent)));
            (all.into_iter().next(), impact)
        };
        let ((a, impact_a), (b, impact_b)) = (of(&one), of(&two));
        let verdict = match (&a, &b) {
            (None, Some(_)) => "new",
            (Some(_), None) => "gone",
            _ => "in both periods",
        };
        let row = vec![
            Cell::text(id),
            Cell::text(b.or(a).map_or_else(String::new, |finding| finding.title)),
            Cell::percent(impact_a, 1),
            Cell::percent(impact_b, 1),
            Cell::text(verdict),
        ];
        rows.push((impact_a.unwrap_or(0.0).max(impact_b.unwrap_or(0.0)), row));
    }
    rows.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    table.rows.extend(rows.into_iter().map(|(_, row)| row));
    Section::new("findings", Group::Summary, "Findings of Both Periods").table_or(table, "No finding in either period.")
}

/// Both tables joined by the key column: first, second and difference of each compared column.
fn compare(comparison: &Comparison, section: &Section, one: &Table, two: &Table) -> Section {
    let key_of = |cell: &Cell| match cell {
        Cell::SqlId(query_id) => sql_id::format(*query_id),
        cell => cell.print(),
    };
    let rows = |table: &Table| -> BTreeMap<String, Vec<Cell>> {
        let Some(key) = table.column(comparison.key) else { return BTreeMap::new() };
        table.rows.iter().map(|row| (key_of(&row[key]), row.clone())).collect()
    };
    let (a, b) = (rows(one), rows(two));
    let present: Vec<&str> = comparison
        .columns
        .iter()
        .copied()
        .filter(|column| one.column(column).is_some() || two.column(column).is_some())
        .collect();
    let mut names = vec![format!("<{}", comparison.key)];
    for column in &present {
        names.extend([format!("1st {column}"), format!("2nd {column}"), "%Diff".to_owned()]);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut table = Table::new(&names);
    // The order of the second period, then what only the first period has.
    let order = |table: &Table| {
        table.column(comparison.key).map_or(Vec::new(), |key| table.rows.iter().map(|row| key_of(&row[key])).collect())
    };
    let mut keys: Vec<String> = order(two);
    keys.extend(order(one).into_iter().filter(|key| !b.contains_key(key)));
    for key in keys {
        let mut row = vec![Cell::text(&key)];
        for column in &present {
            let cell = |table: &Table, rows: &BTreeMap<String, Vec<Cell>>| {
                table.column(column).and_then(|index| Some(rows.get(&key)?[index].clone())).unwrap_or(Cell::Absent)
            };
            let (first, second) = (cell(one, &a), cell(two, &b));
            let change = Cell::percent(percent_change(first.number(), second.number()), 1);
            row.extend([first, second, change]);
        }
        table.push(row);
    }
    Section::new(section.id.clone(), section.group, section.title.clone())
        .table_or(table, "Neither period has figures.")
}

/// Settings whose end values differ.
fn settings(first: &Document, second: &Document) -> Section {
    let values = |document: &Document| -> BTreeMap<String, String> {
        document.settings.iter().map(|setting| (setting.name.to_string(), setting.end.to_string())).collect()
    };
    let (one, two) = (values(first), values(second));
    let keys: BTreeSet<&String> = one.keys().chain(two.keys()).collect();
    let differing = keys.into_iter().filter(|key| one.get(*key) != two.get(*key));
    let table = Table::new(&["<Parameter Name", "<1st Value", "<2nd Value"]).with_rows(differing.map(|key| {
        let value = |side: &BTreeMap<String, String>| Cell::text(side.get(key).map_or("(default)", String::as_str));
        vec![Cell::text(key), value(&one), value(&two)]
    }));
    Section::new("settings", Group::Settings, "Modified Parameters")
        .table_or(table, "The settings of both periods are equal.")
}
