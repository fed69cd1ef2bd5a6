//! I/O of each AWR snapshot interval: rates and latencies, with their pictures.

use super::{Chart, Group, Line, LinePoint, Section};
use crate::document::{Measure, SnapshotInterval, Timestamp};
use crate::figures::time::average_wait_us;
use crate::figures::{MEGABYTE, per_second};
use crate::table::{Cell, Table};
use crate::view::{View, time_text};

/// A series of figures: its name, and the figure of an interval.
type Series = (&'static str, fn(&SnapshotInterval) -> Measure);

/// A picture: title, unit, series, and how a figure is printed.
struct Picture {
    title: &'static str,
    unit: &'static str,
    series: [Series; 2],
    cell: fn(Measure) -> Cell,
}

fn rate(total: Measure, interval: &SnapshotInterval) -> Measure {
    per_second(total, interval.elapsed_us)
}

fn megabytes(bytes: Measure, interval: &SnapshotInterval) -> Measure {
    rate(bytes.map(|bytes| bytes / MEGABYTE), interval)
}

fn milliseconds(time_us: Measure, operations: Measure) -> Measure {
    average_wait_us(time_us, operations).map(|us| us / 1000.0)
}

const PICTURES: [Picture; 3] = [
    Picture {
        title: "I/O volume",
        unit: "MB/s",
        series: [
            ("Read MB/s", |interval| megabytes(interval.read_bytes, interval)),
            ("Write MB/s", |interval| megabytes(interval.write_bytes, interval)),
        ],
        cell: |value| Cell::decimal(value, 2),
    },
    Picture {
        title: "I/O requests",
        unit: "requests/s",
        series: [
            ("Reads/s", |interval| rate(interval.reads, interval)),
            ("Writes/s", |interval| rate(interval.writes, interval)),
        ],
        cell: |value| Cell::decimal(value, 1),
    },
    Picture {
        title: "Average latency",
        unit: "ms",
        series: [
            ("Avg Read (ms)", |interval| milliseconds(interval.read_us, interval.reads)),
            ("Avg Write (ms)", |interval| milliseconds(interval.write_us, interval.writes)),
        ],
        cell: |value| Cell::decimal(value, 3),
    },
];

pub fn section(view: &View<'_>) -> Section {
    let section = Section::new("io-over-time", Group::Io, "IO over Time");
    let intervals: Vec<&SnapshotInterval> =
        view.document.snapshots.iter().filter(|interval| interval.reads.is_some()).collect();
    let Some(first) = intervals.first() else {
        return section.sentence("Not available: the repository contains no I/O by AWR snapshot");
    };
    let section = match &*first.io_counted_by {
        "cells" => section.note(
            "requests to the cells, counted and timed by the cells; Smart Scans, and files that are not on a cell, are absent",
        ),
        _ => section
            .note("blocks that PostgreSQL read, from the operating system's cache too; Avg Read needs track_io_timing"),
    };
    let series = || PICTURES.iter().flat_map(|picture| picture.series.iter().map(move |series| (picture, series)));
    let columns: Vec<&str> =
        ["Snap Id", "<Snap Time"].into_iter().chain(series().map(|(_, (name, _))| *name)).collect();
    let table = Table::new(&columns).with_rows(intervals.iter().map(|interval| {
        let mut row = vec![Cell::integer(interval.snap_id), Cell::text(time_text(&interval.time))];
        row.extend(series().map(|(picture, (_, figure))| (picture.cell)(figure(interval))));
        row
    }));
    let section = match intervals.len() {
        1 => section.note("one AWR snapshot interval: a report over several intervals shows charts"),
        _ => PICTURES.iter().fold(section, |section, picture| {
            let lines: Vec<Line> =
                picture.series.iter().filter_map(|series| line(picture, series, &intervals)).collect();
            if lines.is_empty() { section } else { section.chart(chart(picture, lines)) }
        }),
    };
    section.table(table.without_empty_columns())
}

fn chart(picture: &Picture, series: Vec<Line>) -> Chart {
    Chart::Lines { title: picture.title.to_owned(), unit: picture.unit.to_owned(), series }
}

/// The line of a series, with a point at the end of each interval. None without a figure.
fn line(picture: &Picture, (name, figure): &Series, intervals: &[&SnapshotInterval]) -> Option<Line> {
    let point = |(number, interval): (usize, &&SnapshotInterval)| {
        let value = figure(interval)?;
        let time = Timestamp::parse(&interval.time);
        Some(LinePoint {
            at: time.map_or(number as f64, Timestamp::seconds),
            label: time_text(&interval.time),
            value,
            description: format!("{}: {name} {}", time_text(&interval.time), (picture.cell)(Some(value)).print()),
        })
    };
    let points: Vec<LinePoint> = intervals.iter().enumerate().filter_map(point).collect();
    (!points.is_empty()).then(|| Line { name: (*name).to_owned(), points })
}
