//! One figure over many reports: a statistic, an event, a time of the time model, a line of the load profile, or a statement.

use super::lookup::Lookup;
use super::model::{Report, same_name};
use crate::sql_id;

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

/// Adds the figures that follow from the others.
fn rates(mut point: Point) -> Point {
    let seconds = point.elapsed_us.map(|us| us / 1e6).filter(|seconds| *seconds > 0.0);
    point.per_second = point.per_second.or_else(|| Some(point.total? / seconds?));
    if matches!(point.source, Some(Source::Event | Source::Statement)) && point.average_us.is_none() {
        point.average_us = point.count.filter(|count| *count > 0.0).and_then(|count| Some(point.total? / count));
    }
    point
}

/// A time of a report as a sortable text: `12-Dec-23 17:00:31` becomes `2023-12-12 17:00:31`. Other forms stay.
pub fn sortable(time: &str) -> String {
    const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let parse = || {
        let (date, clock) = time.split_once(' ')?;
        let mut parts = date.split('-');
        let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
        let month = MONTHS.iter().position(|known| known.eq_ignore_ascii_case(month))? + 1;
        let year: u32 = year.parse().ok()?;
        Some(format!("{}-{month:02}-{day:0>2} {clock}", if year < 100 { 2000 + year } else { year }))
    };
    parse().unwrap_or_else(|| time.to_owned())
}
