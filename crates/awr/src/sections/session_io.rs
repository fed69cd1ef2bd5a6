//! I/O of each session and background process, and of those that ended before the last snapshot.

use super::{Group, Section};
use crate::document::{IoStatistics, Measure, SessionIo};
use crate::figures::time::average_wait_us;
use crate::figures::{percent, sum};
use crate::table::{Cell, Table};
use crate::view::{View, top};
use std::collections::BTreeMap;

const ROWS: usize = 20;

/// What the processes of one type did, or one process.
#[derive(Clone, Copy, Default)]
struct Usage {
    reads: Measure,
    read_bytes: Measure,
    read_us: Measure,
    write_bytes: Measure,
    wal_bytes: Measure,
}

impl Usage {
    fn of_process(io: &SessionIo) -> Self {
        Self {
            reads: io.reads,
            read_bytes: io.read_bytes,
            read_us: io.read_us,
            write_bytes: sum([io.write_bytes, io.extend_bytes]),
            wal_bytes: io.wal_bytes,
        }
    }

    /// A row of pg_stat_io, which counts each process type as a whole.
    fn of_type(io: &IoStatistics) -> Self {
        match &*io.object {
            "wal" => Self { wal_bytes: io.write_bytes, ..Self::default() },
            _ => Self {
                reads: io.reads,
                read_bytes: io.read_bytes,
                read_us: io.read_us,
                write_bytes: sum([io.write_bytes, io.extend_bytes]),
                wal_bytes: None,
            },
        }
    }

    fn combine(self, other: Self, with: impl Fn(Measure, Measure) -> Measure) -> Self {
        Self {
            reads: with(self.reads, other.reads),
            read_bytes: with(self.read_bytes, other.read_bytes),
            read_us: with(self.read_us, other.read_us),
            write_bytes: with(self.write_bytes, other.write_bytes),
            wal_bytes: with(self.wal_bytes, other.wal_bytes),
        }
    }

    fn add(self, other: Self) -> Self {
        self.combine(other, |a, b| sum([a, b]))
    }

    /// The remainder of a total. The views are read one after the other, so that a part can exceed its total.
    fn without(self, part: Self) -> Self {
        self.combine(part, |total, part| total.map(|total| (total - part.unwrap_or(0.0)).max(0.0)))
    }

    fn bytes(&self) -> Measure {
        sum([self.read_bytes, self.write_bytes, self.wal_bytes])
    }
}

pub fn sections(view: &View<'_>) -> Vec<Section> {
    let mut types: BTreeMap<&str, Usage> = BTreeMap::new();
    for io in &view.document.io {
        let usage = types.entry(&io.backend_type).or_default();
        *usage = usage.add(Usage::of_type(io));
    }
    let total_bytes = sum(types.values().map(Usage::bytes));
    let row = |process: Vec<Cell>, usage: &Usage| {
        let figures = [
            Cell::count(usage.reads),
            Cell::bytes(usage.read_bytes),
            Cell::duration(average_wait_us(usage.read_us.filter(|us| *us > 0.0), usage.reads)),
            Cell::bytes(usage.write_bytes),
            Cell::bytes(usage.wal_bytes),
            Cell::percent(percent(usage.bytes(), total_bytes), 1),
        ];
        process.into_iter().chain(figures).collect()
    };
    let processes: Vec<(&SessionIo, Usage)> =
        view.document.session_io.iter().map(|io| (io, Usage::of_process(io))).collect();
    for (io, usage) in &processes {
        if let Some(rest) = types.get_mut(&*io.backend_type) {
            *rest = rest.without(*usage);
        }
    }
    let columns = [
        "Pid",
        "<Process",
        "<Database",
        "<Role",
        "<Application",
        "Reads",
        "Reads: Data",
        "Avg Read Time",
        "Writes: Data",
        "WAL: Data",
        "% Data",
    ];
    let mut table = Table::new(&columns).with_rows(top(&processes, ROWS, |(_, usage)| usage.bytes()).into_iter().map(
        |(io, usage)| {
            let names = [&io.backend_type, &io.database, &io.role, &io.application];
            let process = std::iter::once(Cell::integer(io.pid)).chain(names.map(|name| Cell::text(&**name)));
            row(process.collect(), usage)
        },
    ));
    if !processes.is_empty() {
        table = table.with_rows(top(types, ROWS, |(_, usage)| usage.bytes()).into_iter().map(|(name, usage)| {
            let process = vec![Cell::integer(None), Cell::text(format!("{name} (ended, or not listed)"))];
            let empty = std::iter::repeat_with(|| Cell::text("")).take(3);
            row(process.into_iter().chain(empty).collect(), &usage)
        }));
    }
    let missing = view.missing("session_io_stat", "pg_stat_get_backend_io needs PostgreSQL 18 or newer");
    vec![
        Section::new("io-session", Group::Io, "Session IO Stats")
            .note(
                "by process: counted by pg_stat_get_backend_io in the process that requests the I/O, also if an I/O worker reads. \
                 PostgreSQL adds the counts when a transaction ends",
            )
            .note(
                "processes that ended before the last snapshot are the rest of their type in pg_stat_io; \
                 % Data: of all data of pg_stat_io",
            )
            .table_or(table.without_empty_columns(), missing),
    ]
}
