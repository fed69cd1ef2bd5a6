//! The lists "SQL ordered by": one line per list in [`LISTS`].

use super::{Group, Section};
use crate::document::{How, Measure, names};
use crate::figures::{GIGABYTE, MEGABYTE, percent, ratio, sum};
use crate::table::{Cell, Table};
use crate::view::{Sql, View, captured_us, one_line, top};

const ROWS: usize = 20;
const TEXT_CHARACTERS: usize = 400;
/// The least mean CPU time of a statement whose CPU time is read in each execution.
const CPU_COUNTED_US_MIN: f64 = 250.0;

/// Lists whose `%Total` refers to a time of sessions.
const SESSION_TIMES: [&str; 3] = ["sql-elapsed-time", "sql-cpu-time", "sql-mean-time"];

/// A list of statements ordered by one resource.
struct List {
    id: &'static str,
    title: &'static str,
    note: &'static str,
    /// Columns before those that all lists end with.
    columns: &'static [&'static str],
    key: fn(&Sql<'_>, &View<'_>) -> Measure,
    /// The total that `%Total` refers to.
    total: fn(&View<'_>) -> Measure,
    /// Cells of `columns`; `share` is `%Total`.
    cells: fn(&Sql<'_>, &View<'_>, share: Cell) -> Vec<Cell>,
    /// How the figures that the list is ordered by were obtained.
    how: fn(&Sql<'_>) -> How,
    /// Whether the columns Elapsed Time, %CPU and %IO follow.
    with_times: bool,
}

const LISTS: [List; 15] = [
    List {
        id: "sql-elapsed-time",
        title: "SQL ordered by Elapsed Time",
        note: "%Total - Elapsed Time as a percentage of Total DB time; %CPU, %IO - as a percentage of Elapsed Time",
        columns: &["Elapsed Time (s)", "Executions", "Elapsed Time per Exec (s)", "%Total", "%CPU", "%IO"],
        key: |sql, _| sql.elapsed_us,
        total: |view| view.model.db_time_us,
        cells: |sql, _, share| {
            let mut cells =
                per_execution(sql, Cell::seconds(sql.elapsed_us, 2), time_per_exec(sql, sql.elapsed_us), share);
            cells.extend(cpu_and_io(sql));
            cells
        },
        how: |_| How::Timed,
        with_times: false,
    },
    List {
        id: "sql-cpu-time",
        title: "SQL ordered by CPU Time",
        note: "%Total - CPU Time as a percentage of Total DB CPU. CPU Queue - time waiting for a core. Sampled, if the mean CPU Time is \
               below 250 us: both are read in one execution of 32; below 1 ms: CPU Queue in one of 4; else in each",
        columns: &["CPU Time (s)", "Executions", "CPU per Exec (s)", "%Total", "CPU Queue (s)"],
        key: |sql, _| sql.cpu_us,
        total: |view| view.model.db_cpu_us,
        cells: |sql, _, share| {
            let mut cells = per_execution(sql, Cell::seconds(sql.cpu_us, 2), time_per_exec(sql, sql.cpu_us), share);
            cells.push(Cell::seconds(sql.run_queue_us, 2));
            cells
        },
        how: how_cpu,
        with_times: true,
    },
    List {
        id: "sql-user-io-time",
        title: "SQL ordered by User I/O Wait Time",
        note: "%Total - User I/O Time as a percentage of the User I/O Time of all statements; needs track_io_timing",
        columns: &["User I/O Time (s)", "Executions", "UIO per Exec (s)", "%Total"],
        key: |sql, _| sql.io_us,
        total: |view| sum(view.sql.iter().map(|sql| sql.io_us)),
        cells: |sql, _, share| per_execution(sql, Cell::seconds(sql.io_us, 2), time_per_exec(sql, sql.io_us), share),
        how: |_| How::Timed,
        with_times: true,
    },
    List {
        id: "sql-gets",
        title: "SQL ordered by Gets",
        note: "%Total - Buffer Gets as a percentage of Total Buffer Gets",
        columns: &["Buffer Gets", "Executions", "Gets per Exec", "%Total"],
        key: |sql, _| sql.gets,
        total: |view| {
            view.document.statistic(names::LOGICAL_READS).or_else(|| sum(view.sql.iter().map(|sql| sql.gets)))
        },
        cells: |sql, _, share| per_execution(sql, Cell::count(sql.gets), count_per_exec(sql, sql.gets), share),
        how: |_| How::Counted,
        with_times: true,
    },
    List {
        id: "sql-reads",
        title: "SQL ordered by Reads",
        note: "%Total - Physical Reads as a percentage of Total Disk Reads",
        columns: &["Physical Reads", "Executions", "Reads per Exec", "%Total"],
        key: |sql, _| sql.reads,
        total: |view| {
            view.document.statistic(names::PHYSICAL_READS).or_else(|| sum(view.sql.iter().map(|sql| sql.reads)))
        },
        cells: |sql, _, share| per_execution(sql, Cell::count(sql.reads), count_per_exec(sql, sql.reads), share),
        how: |_| How::Counted,
        with_times: true,
    },
    List {
        id: "sql-unoptimized-reads",
        title: "SQL ordered by Physical Reads (UnOptimized)",
        note: "In blocks. UnOptimized Read Reqs = Physical Read Reqs - blocks that the storage index excluded and that Smart \
               Scans read from the flash cache; Smart Scans are included",
        columns: &[
            "UnOptimized Read Reqs",
            "Physical Read Reqs",
            "Executions",
            "UnOptimized Reqs per Exec",
            "%Opt",
            "%Total",
        ],
        key: unoptimized,
        total: |view| sum(view.sql.iter().map(|sql| unoptimized(sql, view))),
        cells: |sql, view, share| {
            let (unoptimized, all) = (unoptimized(sql, view), all_reads(sql, view));
            let optimized = all.zip(unoptimized).map(|(all, unoptimized)| all - unoptimized);
            vec![
                Cell::count(unoptimized),
                Cell::count(all),
                Cell::count(sql.calls),
                Cell::decimal(ratio(unoptimized, sql.calls), 1),
                Cell::percent(percent(optimized, all), 1),
                share,
            ]
        },
        how: |_| How::Counted,
        with_times: false,
    },
    List {
        id: "sql-executions",
        title: "SQL ordered by Executions",
        note: "",
        columns: &["Executions", "Rows Processed", "Rows per Exec"],
        key: |sql, _| sql.calls,
        total: |_| None,
        cells: |sql, _, _| vec![Cell::count(sql.calls), Cell::count(sql.rows), count_per_exec(sql, sql.rows)],
        how: |_| How::Counted,
        with_times: true,
    },
    List {
        id: "sql-parse-time",
        title: "SQL ordered by Parse Time",
        note: "Ordered by the sum of Parse Time (grammar and analysis) and Plan Time (rewriting and planning), which %Total \
               and per Exec refer to. Analysis also waits for locks of tables. Not contained: statements of functions, and \
               statements that were never planned",
        columns: &[
            "Parse Time (s)",
            "Plan Time (s)",
            "Parse Calls",
            "Plannings",
            "Executions",
            "per Exec (s)",
            "%Total",
        ],
        key: |sql, _| sql.preparation_us(),
        total: |view| sum(view.sql.iter().map(Sql::preparation_us)),
        cells: |sql, _, share| {
            vec![
                Cell::seconds(sql.parse_us, 2),
                Cell::seconds(sql.plan_us, 2),
                Cell::count(sql.parse_calls),
                Cell::count(sql.plan_calls),
                Cell::count(sql.calls),
                time_per_exec(sql, sql.preparation_us()),
                share,
            ]
        },
        how: |_| How::Timed,
        with_times: true,
    },
    List {
        id: "sql-mean-time",
        title: "SQL ordered by Mean Elapsed Time",
        note: "Statements with at least one complete execution",
        columns: &["Elapsed Time per Exec (s)", "Max Elapsed Time (s)", "Executions", "%Total"],
        key: |sql, _| ratio(sql.elapsed_us, sql.calls),
        total: |view| view.model.db_time_us,
        cells: |sql, view, _| {
            let share = Cell::percent(view.sql_percent(sql), 1);
            vec![time_per_exec(sql, sql.elapsed_us), Cell::seconds(sql.max_us, 2), Cell::count(sql.calls), share]
        },
        how: |_| How::Timed,
        with_times: true,
    },
    List {
        id: "sql-wal",
        title: "SQL ordered by WAL Size",
        note: "%Total - as a percentage of the redo size of the instance",
        columns: &["WAL (MB)", "Executions", "WAL per Exec (MB)", "%Total", "Records", "Full Pages"],
        key: |sql, _| sql.wal_bytes,
        total: |view| {
            view.document.statistic(names::REDO_SIZE).or_else(|| sum(view.sql.iter().map(|sql| sql.wal_bytes)))
        },
        cells: |sql, _, share| {
            vec![
                megabytes(sql.wal_bytes),
                Cell::count(sql.calls),
                megabytes(ratio(sql.wal_bytes, sql.calls)),
                share,
                Cell::count(sql.wal_records),
                Cell::count(sql.wal_fpi),
            ]
        },
        how: |_| How::Counted,
        with_times: false,
    },
    List {
        id: "sql-temp",
        title: "SQL ordered by Temporary Space",
        note: "Blocks of temporary files read and written; Temp Time needs track_io_timing",
        columns: &["Temp (MB)", "Executions", "Temp per Exec (MB)", "%Total", "Temp Time (s)"],
        key: |sql, _| sql.temp_blocks,
        total: |view| sum(view.sql.iter().map(|sql| sql.temp_blocks)),
        cells: |sql, view, share| {
            let bytes = sql.temp_blocks.map(|blocks| blocks * view.document.block_bytes());
            vec![
                megabytes(bytes),
                Cell::count(sql.calls),
                megabytes(ratio(bytes, sql.calls)),
                share,
                Cell::seconds(sql.temp_us, 2),
            ]
        },
        how: |_| How::Counted,
        with_times: true,
    },
    List {
        id: "sql-writes",
        title: "SQL ordered by Physical Writes",
        note: "Blocks that the statement's sessions wrote themselves to free buffers",
        columns: &["Physical Writes", "Executions", "Writes per Exec", "%Total"],
        key: |sql, _| sql.writes,
        total: |view| sum(view.sql.iter().map(|sql| sql.writes)),
        cells: |sql, _, share| per_execution(sql, Cell::count(sql.writes), count_per_exec(sql, sql.writes), share),
        how: |_| How::Counted,
        with_times: true,
    },
    List {
        id: "sql-jit-time",
        title: "SQL ordered by JIT Time",
        note: "Time of just-in-time compilation; jit_above_cost decides which statements are compiled",
        columns: &["JIT Time (s)", "Executions", "JIT per Exec (s)", "%Total"],
        key: |sql, _| sql.jit_us,
        total: |view| sum(view.sql.iter().map(|sql| sql.jit_us)),
        cells: |sql, _, share| per_execution(sql, Cell::seconds(sql.jit_us, 2), time_per_exec(sql, sql.jit_us), share),
        how: |_| How::Timed,
        with_times: true,
    },
    List {
        id: "sql-offload-eligible-bytes",
        title: "SQL ordered by Offload Eligible Bytes",
        note: "%Ret SS - returned by Smart Scan as a percentage of eligible bytes; both sizes as stored or returned, not \
               comparable for compressed tables. Inter connect: returned by Smart Scan, and blocks read",
        columns: &["Offload Elig (GB)", "Inter connect(GB)", "%Ret SS", "Executions", "%Total"],
        key: |sql, _| sql.eligible_bytes,
        total: |view| {
            view.document.statistic(names::ELIGIBLE).or_else(|| sum(view.sql.iter().map(|sql| sql.eligible_bytes)))
        },
        cells: |sql, view, share| {
            vec![
                Cell::decimal(sql.eligible_bytes.map(|bytes| bytes / GIGABYTE), 2),
                Cell::decimal(interconnect(sql, view).map(|bytes| bytes / GIGABYTE), 2),
                Cell::percent(percent(sql.returned_bytes, sql.eligible_bytes), 1),
                Cell::count(sql.calls),
                share,
            ]
        },
        how: |_| How::Counted,
        with_times: true,
    },
    List {
        id: "sql-interconnect-bytes",
        title: "SQL ordered by Cluster Bytes",
        note: "Bytes between database and cells for reads: returned by Smart Scan, and blocks read",
        columns: &["Inter connect(MB)", "Executions", "per Exec (MB)", "%Total"],
        key: |sql, view| sql.eligible_bytes.and(interconnect(sql, view)),
        total: |view| sum(view.sql.iter().map(|sql| sql.eligible_bytes.and(interconnect(sql, view)))),
        cells: |sql, view, share| {
            let bytes = interconnect(sql, view);
            vec![megabytes(bytes), Cell::count(sql.calls), megabytes(ratio(bytes, sql.calls)), share]
        },
        how: |_| How::Counted,
        with_times: true,
    },
];

/// The lists that have rows; the first list always.
pub fn sections(view: &View<'_>) -> Vec<Section> {
    let mut sections = Vec::new();
    for list in &LISTS {
        let table = table(list, view);
        if table.rows.is_empty() && !sections.is_empty() {
            continue;
        }
        let mut section = Section::new(list.id, Group::Sql, list.title);
        if sections.is_empty()
            && let Some(share) = view.model.percent_of_db_time(captured_us(view.document, &view.sql))
        {
            section = section.note(format!("Captured SQL account for {share:.1}% of Total DB Time"));
        }
        if SESSION_TIMES.contains(&list.id) && view.sql.iter().any(|sql| sql.is_background) {
            section =
                section.note("%Total is blank for statements of background workers: their time is no part of DB time");
        }
        if !list.note.is_empty() {
            section = section.note(list.note);
        }
        sections.push(section.table_or(table, "No statement ran between the snapshots."));
    }
    sections
}

fn table(list: &List, view: &View<'_>) -> Table {
    let mut columns = list.columns.to_vec();
    if list.with_times {
        columns.extend(["Elapsed Time (s)", "%CPU", "%IO"]);
    }
    columns.extend(["<SQL Id", "<SQL Module", "<How", "_SQL Text"]);
    let total = (list.total)(view);
    Table::new(&columns).with_rows(top(&view.sql, ROWS, |sql| (list.key)(sql, view)).into_iter().map(|sql| {
        let is_part = !(sql.is_background && SESSION_TIMES.contains(&list.id));
        let share = Cell::percent(percent((list.key)(sql, view), total.filter(|_| is_part)), 1);
        let mut row = (list.cells)(sql, view, share);
        if list.with_times {
            row.push(Cell::seconds(sql.elapsed_us, 2));
            row.extend(cpu_and_io(sql));
        }
        row.push(Cell::sql_id(sql.query_id.filter(|query_id| *query_id != 0)));
        row.push(Cell::text(sql.module()));
        row.push(Cell::How((list.how)(sql), None));
        row.push(Cell::text(if sql.text.is_empty() { sql.name() } else { one_line(sql.text, TEXT_CHARACTERS) }));
        row
    }))
}

fn per_execution(sql: &Sql<'_>, total: Cell, per_execution: Cell, share: Cell) -> Vec<Cell> {
    vec![total, Cell::count(sql.calls), per_execution, share]
}

fn time_per_exec(sql: &Sql<'_>, us: Measure) -> Cell {
    Cell::seconds(ratio(us, sql.calls), 4)
}

fn count_per_exec(sql: &Sql<'_>, count: Measure) -> Cell {
    Cell::decimal(ratio(count, sql.calls), 1)
}

fn cpu_and_io(sql: &Sql<'_>) -> [Cell; 2] {
    [Cell::percent(sql.percent_cpu(), 1), Cell::percent(sql.percent_io(), 1)]
}

/// The CPU time of short statements is read in some executions only.
fn how_cpu(sql: &Sql<'_>) -> How {
    let is_short = ratio(sql.cpu_us, sql.calls).is_some_and(|us| us < CPU_COUNTED_US_MIN);
    if is_short { How::Sampled } else { How::Counted }
}

fn megabytes(bytes: Measure) -> Cell {
    Cell::decimal(bytes.map(|bytes| bytes / MEGABYTE), 1)
}

/// Blocks read through shared buffers and scanned by the cell.
fn all_reads(sql: &Sql<'_>, view: &View<'_>) -> Measure {
    sum([sql.reads, sql.eligible_bytes.map(|bytes| bytes / view.document.block_bytes())])
}

/// Blocks read, without those that the storage index excluded or the flash cache had for a Smart Scan. None for statements without Smart Scan statistics.
fn unoptimized(sql: &Sql<'_>, view: &View<'_>) -> Measure {
    Some(all_reads(sql, view)? - sql.optimized_bytes? / view.document.block_bytes())
}

fn interconnect(sql: &Sql<'_>, view: &View<'_>) -> Measure {
    sum([sql.returned_bytes, sql.reads.map(|blocks| blocks * view.document.block_bytes())])
}
