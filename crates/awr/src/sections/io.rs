//! I/O by function, by file type, by object type, by tablespace and by relation.

use super::files::{self, classes, file_class};
use super::{Bar, Chart, Group, Section};
use crate::document::{CellFile, CellIo, IoStatistics, Measure, TableStatistics, names};
use crate::figures::time::average_wait_us;
use crate::figures::{add_each, histogram, ratio, sum};
use crate::table::{Cell, Table, bytes, duration};
use crate::view::{View, qualified, top};
use std::collections::BTreeMap;

const ROWS: usize = 20;

pub fn sections(view: &View<'_>) -> Vec<Section> {
    vec![
        super::io_over_time::section(view),
        by_function(view),
        files::by_file_type(view),
        by_function_and_file_type(view),
        by_cell_operation(view),
        by_object_type(view),
        by_tablespace(view),
        by_relation(view),
        files::by_file(view),
        files::read_histogram(view),
    ]
}

/// Reads and writes of one function or file type.
#[derive(Default)]
struct Traffic {
    reads: Measure,
    read_bytes: Measure,
    read_us: Measure,
    writes: Measure,
    write_bytes: Measure,
    write_us: Measure,
}

impl Traffic {
    fn bytes(&self) -> Measure {
        sum([self.read_bytes, self.write_bytes])
    }

    fn add(&mut self, other: &Self) {
        let totals = [
            &mut self.reads,
            &mut self.read_bytes,
            &mut self.read_us,
            &mut self.writes,
            &mut self.write_bytes,
            &mut self.write_us,
        ];
        let figures = [other.reads, other.read_bytes, other.read_us, other.writes, other.write_bytes, other.write_us];
        add_each(totals, figures);
    }
}

/// Data volumes with a suffix, as Oracle prints them: 283M.
fn row(view: &View<'_>, name: &str, traffic: &Traffic) -> Vec<Cell> {
    vec![
        Cell::text(name),
        Cell::bytes(traffic.read_bytes),
        Cell::decimal(view.per_second(traffic.reads), 2),
        Cell::bytes(view.per_second(traffic.read_bytes)),
        Cell::bytes(traffic.write_bytes),
        Cell::decimal(view.per_second(traffic.writes), 2),
        Cell::bytes(view.per_second(traffic.write_bytes)),
        Cell::count(sum([traffic.reads, traffic.writes])),
        Cell::duration(average_wait_us(traffic.read_us, traffic.read_us.and(traffic.reads))),
        Cell::duration(average_wait_us(traffic.write_us, traffic.write_us.and(traffic.writes))),
    ]
}

fn columns(name: &'static str) -> [&'static str; 10] {
    [
        name,
        "Reads: Data",
        "Reqs per sec",
        "Data per sec",
        "Writes: Data",
        "Reqs per sec",
        "Data per sec",
        "Count",
        "Avg Read Time",
        "Avg Write Time",
    ]
}

/// The name of Oracle's function that does the I/O of a row of pg_stat_io.
fn function(io: &IoStatistics) -> &'static str {
    match (&*io.backend_type, &*io.object, &*io.context) {
        (_, "wal", _) => "LGWR",
        ("checkpointer" | "background writer", ..) => "DBWR",
        ("autovacuum worker" | "autovacuum launcher", ..) | (_, _, "vacuum") => "Vacuum",
        ("walsender" | "walreceiver" | "startup", ..) => "Recovery and Replication",
        (_, "temp relation", _) => "Temporary Tables",
        (_, _, "bulkread" | "bulkwrite") => "Direct Reads and Writes",
        ("client backend" | "background worker" | "io worker" | "standalone backend", ..) => "Buffer Cache Reads",
        _ => "Others",
    }
}

fn traffic(io: &IoStatistics, block: f64) -> Traffic {
    let size = |bytes: Measure, operations: Measure| bytes.or_else(|| operations.map(|count| count * block));
    Traffic {
        reads: io.reads,
        read_bytes: size(io.read_bytes, io.reads),
        read_us: io.read_us,
        writes: sum([io.writes, io.extends]),
        write_bytes: sum([size(io.write_bytes, io.writes), size(io.extend_bytes, io.extends)]),
        write_us: sum([io.write_us, io.extend_us]),
    }
}

fn by_function(view: &View<'_>) -> Section {
    let mut functions: BTreeMap<&str, Traffic> = BTreeMap::new();
    for io in &view.document.io {
        functions.entry(function(io)).or_default().add(&traffic(io, view.document.block_bytes()));
    }
    let functions: Vec<(&str, Traffic)> = functions.into_iter().collect();
    let chart = Chart::Bars {
        title: "I/O by function: data per second, average read time".to_owned(),
        unit: "MB/s",
        bars: top(&functions, ROWS, |(_, traffic)| traffic.bytes())
            .into_iter()
            .filter_map(|(name, traffic)| {
                let rate = view.per_second(traffic.bytes())?;
                let latency = average_wait_us(traffic.read_us, traffic.reads).filter(|us| *us > 0.0);
                let latency = latency.map_or_else(String::new, |us| format!(", {} a read", duration(us)));
                Some(Bar {
                    label: (*name).to_owned(),
                    value: rate / 1_048_576.0,
                    text: format!("{}B/s{latency}", bytes(rate)),
                    link: None,
                })
            })
            .collect(),
    };
    let table = Table::new(&columns("<Function Name")).with_rows(
        top(&functions, ROWS, |(_, traffic)| traffic.bytes()).into_iter().map(|(name, t)| row(view, name, t)),
    );
    let missing = view.missing("io_stat", "pg_stat_io needs PostgreSQL 16 or newer; times need track_io_timing");
    let is_empty = table.rows.is_empty();
    let section = Section::new("io-function", Group::Io, "IOStat by Function summary")
        .note("'Data' columns suffixed with K,M,G,T are in multiples of 1024; ordered by (Data Read + Write) desc")
        .note(
            "counted by pg_stat_io in the process that requests the I/O; the operating system's cache may serve a read",
        )
        .table_or(table, missing);
    if is_empty { section } else { section.chart(chart) }
}

/// The file type of the I/O of a row of pg_stat_io.
fn io_file_type(io: &IoStatistics) -> &'static str {
    match &*io.object {
        "wal" => "Log File",
        "temp relation" => "Temp File",
        _ => "Data File",
    }
}

fn cell_traffic(file: &CellFile) -> Traffic {
    Traffic {
        reads: file.reads,
        read_bytes: file.read_bytes,
        read_us: file.read_us,
        writes: file.writes,
        write_bytes: file.write_bytes,
        write_us: file.write_us,
    }
}

fn by_function_and_file_type(view: &View<'_>) -> Section {
    const CELLS: &str = "Cell File Service";
    let mut functions: BTreeMap<&str, BTreeMap<&str, Traffic>> = BTreeMap::new();
    let rows = view.document.io.iter();
    let of_server = rows.map(|io| (function(io), io_file_type(io), traffic(io, view.document.block_bytes())));
    let of_cells = classes(view).map(|file| (CELLS, file_class(&file.class), cell_traffic(file)));
    for (function, file_type, traffic) in of_server.chain(of_cells) {
        functions.entry(function).or_default().entry(file_type).or_default().add(&traffic);
    }
    type Types<'a> = Vec<(&'a str, Traffic)>;
    let functions: Vec<(&str, Traffic, Types<'_>)> = functions
        .into_iter()
        .map(|(name, types)| {
            let mut total = Traffic::default();
            types.values().for_each(|traffic| total.add(traffic));
            (name, total, types.into_iter().collect())
        })
        .collect();
    let columns = [
        "<Function/File Name",
        "Reads: Data",
        "Reqs per sec",
        "Data per sec",
        "Writes: Data",
        "Reqs per sec",
        "Data per sec",
        "Waits: Count",
        "Avg Time",
    ];
    let line = |name: String, traffic: &Traffic| {
        let (reads, writes) = (traffic.read_us.and(traffic.reads), traffic.write_us.and(traffic.writes));
        let mut cells = row(view, &name, traffic);
        cells.truncate(columns.len() - 1);
        cells.push(Cell::duration(average_wait_us(sum([traffic.read_us, traffic.write_us]), sum([reads, writes]))));
        cells
    };
    let mut table = Table::new(&columns);
    for (name, total, types) in top(&functions, ROWS, |(_, total, _)| total.bytes()) {
        let types = top(types, ROWS, |(_, traffic)| traffic.bytes());
        table = table
            .with_rows([line((*name).to_owned(), total)])
            .with_rows(types.into_iter().map(|(file_type, traffic)| line(format!("{name} ({file_type})"), traffic)));
    }
    Section::new("io-function-file-type", Group::Io, "IOStat by Function/Filetype summary")
        .note("'Data' columns suffixed with K,M,G,T are in multiples of 1024; ordered by (Data Read + Write) desc for each function")
        .note("Cell File Service: I/O of all functions through the mounts of cells, counted by the cells; the other functions are those of pg_stat_io, which count the same I/O in the server")
        .table_or(table, "Not available: pg_stat_io needs PostgreSQL 16 or newer, and no cell counts I/O by file.")
}

fn by_cell_operation(view: &View<'_>) -> Section {
    let mut kinds: BTreeMap<(&str, &str), Vec<&CellIo>> = BTreeMap::new();
    for io in &view.document.cell_io {
        kinds.entry((&io.database, &io.kind)).or_default().push(io);
    }
    let kinds: Vec<_> = kinds.into_iter().collect();
    let size = |rows: &[&CellIo]| sum(rows.iter().map(|io| io.bytes));
    let columns =
        ["<Operation", "<Database", "Requests", "Data", "Reqs per sec", "Data per sec", "Avg Time", "p99 below"];
    let table =
        Table::new(&columns).with_rows(top(&kinds, 2 * ROWS, |(_, rows)| size(rows)).into_iter().map(|(key, rows)| {
            let (database, kind) = key;
            let operations = sum(rows.iter().map(|io| io.operations));
            let time_us = sum(rows.iter().map(|io| io.time_us));
            let buckets = rows.iter().fold(Vec::new(), |mut sum: Vec<f64>, io| {
                sum.resize(sum.len().max(io.histogram.len()), 0.0);
                sum.iter_mut().zip(&io.histogram).for_each(|(sum, count)| *sum += count);
                sum
            });
            vec![
                Cell::text(*kind),
                Cell::text(*database),
                Cell::count(operations),
                Cell::bytes(size(rows)),
                Cell::decimal(view.per_second(operations), 2),
                Cell::bytes(view.per_second(size(rows))),
                Cell::duration(average_wait_us(time_us, operations)),
                Cell::duration(histogram::quantile_us(&buckets, 0.99)),
            ]
        }));
    Section::new("io-cell-operation", Group::Io, "IOStat by Cell Operation")
        .note("counted and timed by the cells; data file write: every file but WAL, temporary files included")
        .table_or(table.without_empty_columns(), view.missing("cell_io_stat", "no file of the cluster is on a cell"))
}

/// Tables. The counts of a table include those of its TOAST table, so that TOAST tables are left out.
fn tables<'a>(view: &View<'a>) -> impl Iterator<Item = &'a TableStatistics> {
    view.document.tables.iter().filter(|table| table.toast != Some(true))
}

fn by_object_type(view: &View<'_>) -> Section {
    let block = view.document.block_bytes();
    // Blocks read and blocks found in shared buffers
    let mut types: BTreeMap<&str, (Measure, Measure)> = BTreeMap::new();
    for table in tables(view) {
        let catalog = matches!(&*table.schema, "pg_catalog" | "information_schema");
        let kind = |name: &'static str| if catalog { "Catalog" } else { name };
        for (name, reads, hits) in [
            (kind("Table"), table.heap_blks_read, table.heap_blks_hit),
            (kind("Index"), table.idx_blks_read, table.idx_blks_hit),
            (kind("TOAST"), table.toast_blks_read, table.toast_blks_hit),
            (kind("TOAST"), table.tidx_blks_read, table.tidx_blks_hit),
        ] {
            let (total_reads, total_hits) = types.entry(name).or_default();
            *total_reads = sum([*total_reads, reads]);
            *total_hits = sum([*total_hits, hits]);
        }
    }
    let mut rows: Vec<(&str, Measure, Measure, Measure)> = types
        .into_iter()
        .map(|(name, (reads, hits))| (name, reads.map(|n| n * block), None, sum([reads, hits])))
        .collect();
    let statements = |field: fn(&crate::document::Statement) -> Measure| {
        sum(view.document.statements.iter().map(field)).map(|blocks| blocks * block)
    };
    let temp_written = sum(view.document.databases.iter().map(|database| database.temp_bytes));
    rows.push(("Temp File", statements(|statement| statement.temp_blks_read), temp_written, None));
    rows.push(("Log File", None, view.document.statistic(names::REDO_SIZE), None));
    rows.retain(|(_, read, written, gets)| sum([*read, *written, *gets]).is_some_and(|total| total > 0.0));
    rows.sort_by(|a, b| sum([b.1, b.2]).partial_cmp(&sum([a.1, a.2])).unwrap_or(std::cmp::Ordering::Equal));
    let columns = ["<Object Type", "Reads: Data", "Data per sec", "Writes: Data", "Data per sec", "Gets", "%Hit"];
    let table = Table::new(&columns).with_rows(rows.into_iter().map(|(name, read, written, gets)| {
        let hit = ratio(read.map(|bytes| bytes / block), gets).map(|misses| 100.0 * (1.0 - misses));
        vec![
            Cell::text(name),
            Cell::bytes(read),
            Cell::bytes(view.per_second(read)),
            Cell::bytes(written),
            Cell::bytes(view.per_second(written)),
            Cell::count(gets),
            Cell::percent(hit, 2),
        ]
    }));
    Section::new("io-object-type", Group::Io, "IOStat by Object Type")
        .note("counted by PostgreSQL: blocks read into shared buffers, temporary files, WAL. Smart Scans are not included")
        .note("PostgreSQL does not count writes by relation; temporary files are read as the statements count them")
        .table_or(table.without_empty_columns(), "No block was read, and neither WAL nor temporary files were written.")
}

fn by_tablespace(view: &View<'_>) -> Section {
    let mut spaces: BTreeMap<&str, (Measure, Measure)> = BTreeMap::new();
    for table in tables(view) {
        let space = spaces.entry(table.tablespace.known().unwrap_or("pg_default")).or_default();
        space.0 = sum([space.0, super::segments::table_reads(table)]);
        space.1 = sum([space.1, super::segments::table_gets(table)]);
    }
    let spaces: Vec<_> = spaces.into_iter().collect();
    let table = Table::new(&["<Tablespace", "Reads", "Av Rds/s", "Gets", "%Hit"]).with_rows(
        top(&spaces, ROWS, |(_, (_, gets))| *gets).into_iter().map(|(name, (reads, gets))| {
            vec![
                Cell::text(*name),
                Cell::count(*reads),
                Cell::decimal(view.per_second(*reads), 2),
                Cell::count(*gets),
                Cell::percent(ratio(*reads, *gets).map(|ratio| 100.0 * (1.0 - ratio)), 2),
            ]
        }),
    );
    Section::new("io-tablespace", Group::Io, "Tablespace IO Stats")
        .note("in blocks, counted by pg_statio_all_tables; index blocks are those of the table's indexes")
        .table_or(table, "Not available: the snapshots contain no tables, or no block was accessed")
}

fn by_relation(view: &View<'_>) -> Section {
    let block = view.document.block_bytes();
    let columns = ["<Database", "<Relation", "Heap Reads", "Index Reads", "Toast Reads", "Av Rds/s", "Data", "%Hit"];
    let tables = top(tables(view), ROWS, |table| super::segments::table_reads(table));
    let table = Table::new(&columns).with_rows(tables.into_iter().map(|table| {
        let (reads, gets) = (super::segments::table_reads(table), super::segments::table_gets(table));
        vec![
            Cell::text(&*table.database),
            Cell::text(qualified(&table.schema, &table.name)),
            Cell::count(table.heap_blks_read),
            Cell::count(table.idx_blks_read),
            Cell::count(sum([table.toast_blks_read, table.tidx_blks_read])),
            Cell::decimal(view.per_second(reads), 2),
            Cell::bytes(reads.map(|blocks| blocks * block)),
            Cell::percent(ratio(reads, gets).map(|ratio| 100.0 * (1.0 - ratio)), 2),
        ]
    }));
    Section::new("io-relation", Group::Io, "Relation IO Stats")
        .note("by relation, in blocks; counted by pg_statio_all_tables")
        .table_or(table.without_empty_columns(), "No relation was read from disk between the snapshots.")
}
