//! One figure over many reports: a statistic, an event, a time of the time model, a line of the load profile, or a statement.

use super::lookup::Lookup;
use super::model::{Report, same_name};
use crate::document::Timestamp;
use crate::report::{self, Kind};
use crate::sections::{Chart, Group, Line, LinePoint, Section};
use crate::sql_id;
use crate::table::{Cell, Table, duration, grouped};
use std::collections::BTreeMap;

/// What a name was found as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Statistic,
    Event,
    TimeModel,
    LoadProfile,
    Statement,
}

impl Source {
    pub fn name(self) -> &'static str {
        match self {
            Self::Statistic => "statistic",
            Self::Event => "event",
            Self::TimeModel => "time model",
            Self::LoadProfile => "load profile",
            Self::Statement => "statement",
        }
    }
}

/// A report's figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub file: String,
    /// Database and instances: points of different ones are different series.
    pub subject: String,
    /// End of the interval, as printed.
    pub end: String,
    pub end_snap: Option<u64>,
    pub elapsed_us: Option<f64>,
    pub source: Option<Source>,
    /// Microseconds for times, or the statistic's unit.
    pub total: Option<f64>,
    pub per_second: Option<f64>,
    /// Waits of an event, or executions of a statement.
    pub count: Option<f64>,
    /// Microseconds of a wait or of an execution.
    pub average_us: Option<f64>,
    /// Why there is no figure: the printed name and the names for which it may stand.
    pub ambiguous: Option<String>,
}

/// The figure with a name. All figures are absent if the report does not contain the name.
pub fn point(report: &Report, name: &str) -> Point {
    let header = &report.header;
    let mut point = Point {
        file: report.name.clone(),
        subject: subject(report),
        end: header.end.time.clone(),
        end_snap: header.end.snap_id,
        elapsed_us: header.elapsed_us,
        source: None,
        total: None,
        per_second: None,
        count: None,
        average_us: None,
        ambiguous: None,
    };
    let found = |point: &mut Point, source, total: Option<f64>, count: Option<f64>| {
        point.source = Some(source);
        point.total = total;
        point.count = count;
    };
    // A time of the time model is also a statistic, in centiseconds.
    if let Some(us) = report.time(name) {
        found(&mut point, Source::TimeModel, Some(us), None);
        return rates(point);
    }
    match report.statistic(name) {
        Lookup::Found(value) => found(&mut point, Source::Statistic, Some(value), None),
        Lookup::Ambiguous(printed, others) => {
            point.ambiguous = Some(format!("\"{printed}\" may stand for {}", others.join(", ")));
        }
        Lookup::Absent => {
            let events = report.events();
            let exact = events.iter().find(|event| same_name(&event.name, name));
            if let Some(event) = exact {
                found(&mut point, Source::Event, event.time_us, event.waits);
                point.average_us = event.average_us;
            } else if let Some(cut) = report.cut_event(&events, name) {
                match cut {
                    Ok(event) => {
                        found(&mut point, Source::Event, event.time_us, event.waits);
                        point.average_us = event.average_us;
                    }
                    Err((printed, others)) => {
                        point.ambiguous = Some(format!("\"{printed}\" may stand for {}", others.join(", ")));
                    }
                }
            } else if let Some(id) = sql_id::parse(name) {
                let document = report.to_document();
                if let Some(sql) = document.statements.iter().find(|sql| sql.query_id == Some(id)) {
                    found(&mut point, Source::Statement, sql.elapsed_us, sql.calls);
                }
            } else if let Some(rate) = report.load(&[name]) {
                point.source = Some(Source::LoadProfile);
                point.per_second = Some(rate);
            }
        }
    }
    rates(point)
}

/// Database and instances of a report.
fn subject(report: &Report) -> String {
    let names: Vec<&str> = report.header.instances.iter().map(|instance| instance.name.as_str()).collect();
    let database = match report.header.container.as_str() {
        "" => report.header.db_name.clone(),
        container => format!("{} {container}", report.header.db_name),
    };
    if names.is_empty() { database } else { format!("{database}/{}", names.join(",")) }
}

/// Adds the figures that follow from the others.
fn rates(mut point: Point) -> Point {
    let seconds = point.elapsed_us.map(|us| us / 1e6).filter(|seconds| *seconds > 0.0);
    point.per_second = point.per_second.or_else(|| Some(point.total? / seconds?));
    if matches!(point.source, Some(Source::Event | Source::Statement)) && point.average_us.is_none() {
        point.average_us = point.count.filter(|count| *count > 0.0).and_then(|count| Some(point.total? / count));
    }
    point
}

/// Months by the first letters of their names in the languages of reports: English, German, Spanish, Italian, Portuguese.
const MONTHS: [&[&str]; 12] = [
    &["jan", "ene", "gen"],
    &["feb", "fev"],
    &["mar", "mrz", "m\u{e4}r"],
    &["apr", "abr"],
    &["may", "mai", "mag"],
    &["jun", "giu"],
    &["jul", "lug"],
    &["aug", "ago"],
    &["sep", "set"],
    &["oct", "okt", "ott", "out"],
    &["nov"],
    &["dec", "dez", "dic"],
];

/// A time of a report as a sortable text: `12-Dec-23 17:00:31` becomes `2023-12-12 17:00:31`. Other forms stay.
pub fn sortable(time: &str) -> String {
    let parse = || {
        let (date, clock) = time.split_once(' ')?;
        let mut parts = date.split('-');
        let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
        let month: String = month.chars().take(3).flat_map(char::to_lowercase).collect();
        let month = MONTHS.iter().position(|names| names.contains(&month.as_str()))? + 1;
        let year: u32 = year.parse().ok()?;
        Some(format!("{}-{month:02}-{day:0>2} {clock}", if year < 100 { 2000 + year } else { year }))
    };
    parse().unwrap_or_else(|| time.to_owned())
}

/// The points as a table.
pub fn table(points: &[Point]) -> Table {
    let is_time = |point: &Point| point.average_us.is_some() || point.source == Some(Source::TimeModel);
    let columns = ["End", "End Snap", "Elapsed (min)", "Total", "per Second", "Count", "Average", "<Database", "<File"];
    Table::new(&columns)
        .with_rows(points.iter().map(|point| {
            vec![
                Cell::text(&point.end),
                Cell::integer(point.end_snap.and_then(|id| i64::try_from(id).ok())),
                Cell::decimal(point.elapsed_us.map(|us| us / 60e6), 2),
                if is_time(point) { Cell::duration(point.total) } else { Cell::count(point.total) },
                if is_time(point) { Cell::duration(point.per_second) } else { Cell::decimal(point.per_second, 2) },
                Cell::count(point.count),
                Cell::duration(point.average_us),
                Cell::text(&point.subject),
                Cell::text(&point.file),
            ]
        }))
        .without_empty_columns()
}

/// The charts of a name: the figure per second, and the average of a wait or an execution. `points` are in order of time.
pub fn charts(points: &[Point], name: &str) -> Vec<Chart> {
    let is_size = name.split_whitespace().any(|word| word.eq_ignore_ascii_case("bytes"))
        || name.to_ascii_lowercase().starts_with("redo size");
    let is_time = |source| matches!(source, Some(Source::TimeModel | Source::Event | Source::Statement));
    let per_second = match points.iter().find_map(|point| point.source) {
        source if is_time(source) => chart(points, name, &[("average active sessions", 1e6)], |point| point.per_second),
        _ if is_size => {
            let units = [("B/s", 1.0), ("KB/s", 1024.0), ("MB/s", 1_048_576.0), ("GB/s", 1_073_741_824.0)];
            chart(points, name, &units, |point| point.per_second)
        }
        _ => {
            let units = [("per second", 1.0), ("thousand per second", 1e3), ("million per second", 1e6)];
            chart(points, name, &units, |point| point.per_second)
        }
    };
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    let average = chart(points, &format!("{name}, average"), &units, |point| point.average_us);
    per_second.into_iter().chain(average).collect()
}

/// A chart of a figure, in the largest unit in which the greatest value is at least 1. None without a figure.
fn chart(points: &[Point], title: &str, units: &[(&str, f64)], figure: fn(&Point) -> Option<f64>) -> Option<Chart> {
    let greatest = points.iter().filter_map(figure).fold(None, |a: Option<f64>, b| Some(a.map_or(b, |a| a.max(b))))?;
    let (unit, factor) = units.iter().rev().find(|(_, factor)| greatest >= *factor).or(units.first())?;
    let seconds: Option<Vec<f64>> =
        points.iter().map(|point| Timestamp::parse(&sortable(&point.end)).map(Timestamp::seconds)).collect();
    let mut series: BTreeMap<&str, Vec<LinePoint>> = BTreeMap::new();
    for (index, point) in points.iter().enumerate() {
        let Some(value) = figure(point).map(|value| value / factor) else { continue };
        let text = match *unit {
            "us" | "ms" | "s" => duration(value * factor),
            unit => format!("{} {unit}", grouped(value, if value < 100.0 { 3 } else { 0 })),
        };
        series.entry(&point.subject).or_default().push(LinePoint {
            at: seconds.as_ref().map_or(index as f64, |seconds| seconds[index]),
            label: point.end.clone(),
            value,
            description: format!("{}: {text} ({})", point.end, point.file),
        });
    }
    let line = |(name, points): (&str, Vec<LinePoint>)| Line { name: name.to_owned(), points };
    Some(Chart::Lines {
        title: title.to_owned(),
        unit: (*unit).to_owned(),
        series: series.into_iter().map(line).collect(),
    })
}

/// The points as a report with charts and table.
pub fn report(points: &[Point], name: &str) -> report::Report {
    let mut section = Section::new("trend", Group::Summary, name);
    for chart in charts(points, name) {
        section = section.chart(chart);
    }
    report::Report {
        kind: Kind::Trend,
        title: format!("Trend of {name}"),
        subject: String::new(),
        sections: vec![section.table(table(points))],
        findings: crate::findings::Findings::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_sort_in_several_languages() {
        for (time, expected) in [
            ("12-Dec-23 17:00:31", "2023-12-12 17:00:31"),
            ("1-Okt-24 00:00:00", "2024-10-01 00:00:00"),
            ("07-MRZ-2025 08:30:00", "2025-03-07 08:30:00"),
            ("03-Ago-22 10:00:00", "2022-08-03 10:00:00"),
            ("2026-11-26 10:00:00", "2026-11-26 10:00:00"),
        ] {
            assert_eq!(sortable(time), expected);
        }
    }
}
