//! Generates the eight TPC-H tables and streams them through COPY, several parts in parallel.
//!
//! The database's comment records the scale factor after a complete load; loading the same scale factor again does nothing.

use crate::connect::connect;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::collections::VecDeque;
use std::fmt::{Display, Write as _};
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tpchgen::csv::*;
use tpchgen::generators::*;

#[derive(Args)]
pub struct Options {
    /// Scale factor: 1 is about 1 GB.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Number of parallel connections.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Directory of schema.sql and indexes.sql.
    #[arg(long, default_value = "bench/tpch")]
    directory: PathBuf,
    /// Create no primary keys and indexes.
    #[arg(long)]
    no_indexes: bool,
}

/// A part of a table, loaded by one COPY.
#[derive(Clone, Copy)]
struct Part {
    table: Table,
    number: i32,
    of: i32,
}

#[derive(Clone, Copy)]
enum Table {
    Region,
    Nation,
    Supplier,
    Part,
    PartSupp,
    Customer,
    Orders,
    LineItem,
}

/// Each table and its number of rows at scale factor 1, which determines the number of parts.
const TABLES: [(Table, f64); 8] = [
    (Table::LineItem, 6_000_000.0),
    (Table::Orders, 1_500_000.0),
    (Table::PartSupp, 800_000.0),
    (Table::Part, 200_000.0),
    (Table::Customer, 150_000.0),
    (Table::Supplier, 10_000.0),
    (Table::Nation, 1.0),
    (Table::Region, 1.0),
];
const ROWS_PER_PART: f64 = 500_000.0;
const COPY_CHUNK_BYTES: usize = 1 << 18;

impl Table {
    fn name(self) -> &'static str {
        match self {
            Table::Region => "region",
            Table::Nation => "nation",
            Table::Supplier => "supplier",
            Table::Part => "part",
            Table::PartSupp => "partsupp",
            Table::Customer => "customer",
            Table::Orders => "orders",
            Table::LineItem => "lineitem",
        }
    }
}

#[derive(Default)]
struct Progress {
    rows: AtomicU64,
    bytes: AtomicU64,
    parts: AtomicU64,
    stop: AtomicBool,
}

/// Starts the comment of a completely loaded database; the scale factor follows.
const MARKER: &str = "TPC-H scale factor ";

/// Returns the scale factor that the database was loaded with; None unless it was loaded completely.
pub fn scale(client: &mut postgres::Client) -> Result<Option<String>> {
    let comment: Option<String> = client
        .query_one(
            "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = current_database()",
            &[],
        )?
        .get(0);
    Ok(comment.and_then(|comment| comment.strip_prefix(MARKER).map(str::to_owned)))
}

pub fn run(dsn: &str, options: &Options) -> Result<bool> {
    let marker = format!("{MARKER}{}", options.scale);
    let mut client = connect(dsn)?;
    if scale(&mut client)? == Some(options.scale.to_string()) {
        println!("{marker} is already loaded");
        return Ok(true);
    }
    let start = Instant::now();
    for (table, _) in TABLES {
        client.batch_execute(&format!("DROP TABLE IF EXISTS {} CASCADE", table.name()))?;
    }
    client.batch_execute(&read(options, "schema.sql")?)?;

    let parts = parts(options.scale);
    let total = parts.len();
    let queue = Mutex::new(parts);
    let progress = Progress::default();
    let outcome = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.jobs.max(1))
            .map(|_| scope.spawn(|| copy_parts(dsn, options.scale, &queue, &progress)))
            .collect();
        scope.spawn(|| show_progress(&progress, total, start));
        let outcome =
            workers.into_iter().map(|worker| worker.join().expect("a loader panicked")).collect::<Result<Vec<()>>>();
        progress.stop.store(true, Ordering::Relaxed);
        outcome
    });
    outcome?;

    if !options.no_indexes {
        step("keys and indexes", || run_in_parallel(dsn, options.jobs, statements(&read(options, "indexes.sql")?)))?;
    }
    step("VACUUM (FREEZE, ANALYZE)", || {
        let statements = TABLES.iter().map(|(table, _)| format!("VACUUM (FREEZE, ANALYZE) {}", table.name())).collect();
        run_in_parallel(dsn, options.jobs, statements)
    })?;
    let database: String = client.query_one("SELECT quote_ident(current_database())", &[])?.get(0);
    client.batch_execute(&format!("COMMENT ON DATABASE {database} IS '{marker}'; CHECKPOINT"))?;
    let bytes: i64 = client.query_one("SELECT pg_database_size(current_database())", &[])?.get(0);
    println!("{marker} loaded in {:.0} s, database {:.2} GB", start.elapsed().as_secs_f64(), bytes as f64 / 1e9);
    Ok(true)
}

fn read(options: &Options, file: &str) -> Result<String> {
    let path = options.directory.join(file);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

fn statements(sql: &str) -> Vec<String> {
    sql.split(';').map(str::trim).filter(|statement| !statement.is_empty()).map(str::to_owned).collect()
}

/// Returns the parts of all tables, largest table first, so that the connections finish at about the same time.
fn parts(scale: f64) -> VecDeque<Part> {
    TABLES
        .iter()
        .flat_map(|&(table, rows)| {
            let of = (rows * scale / ROWS_PER_PART).ceil().max(1.0) as i32;
            (1..=of).map(move |number| Part { table, number, of })
        })
        .collect()
}

fn copy_parts(dsn: &str, scale: f64, queue: &Mutex<VecDeque<Part>>, progress: &Progress) -> Result<()> {
    let mut client = connect(dsn)?;
    client.batch_execute("SET synchronous_commit = off")?;
    loop {
        let next = queue.lock().expect("no loader panics with the queue").pop_front();
        let Some(part) = next else { return Ok(()) };
        let (number, of) = (part.number, part.of);
        match part.table {
            Table::Region => {
                copy(&mut client, part, RegionGenerator::new(scale, 1, 1).iter().map(RegionCsv::new), progress)
            }
            Table::Nation => {
                copy(&mut client, part, NationGenerator::new(scale, 1, 1).iter().map(NationCsv::new), progress)
            }
            Table::Supplier => copy(
                &mut client,
                part,
                SupplierGenerator::new(scale, number, of).iter().map(SupplierCsv::new),
                progress,
            ),
            Table::Part => {
                copy(&mut client, part, PartGenerator::new(scale, number, of).iter().map(PartCsv::new), progress)
            }
            Table::PartSupp => copy(
                &mut client,
                part,
                PartSuppGenerator::new(scale, number, of).iter().map(PartSuppCsv::new),
                progress,
            ),
            Table::Customer => copy(
                &mut client,
                part,
                CustomerGenerator::new(scale, number, of).iter().map(CustomerCsv::new),
                progress,
            ),
            Table::Orders => {
                copy(&mut client, part, OrderGenerator::new(scale, number, of).iter().map(OrderCsv::new), progress)
            }
            Table::LineItem => copy(
                &mut client,
                part,
                LineItemGenerator::new(scale, number, of).iter().map(LineItemCsv::new),
                progress,
            ),
        }
        .with_context(|| format!("loading part {number} of {of} of {}", part.table.name()))?;
        progress.parts.fetch_add(1, Ordering::Relaxed);
    }
}

fn copy<R: Display>(
    client: &mut postgres::Client,
    part: Part,
    rows: impl Iterator<Item = R>,
    progress: &Progress,
) -> Result<()> {
    let mut writer = client.copy_in(&format!("COPY {} FROM STDIN (FORMAT csv)", part.table.name()))?;
    let mut chunk = String::with_capacity(COPY_CHUNK_BYTES + 4096);
    let mut rows_in_chunk = 0;
    for row in rows {
        writeln!(chunk, "{row}")?;
        rows_in_chunk += 1;
        if chunk.len() >= COPY_CHUNK_BYTES {
            writer.write_all(chunk.as_bytes())?;
            progress.rows.fetch_add(rows_in_chunk, Ordering::Relaxed);
            progress.bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            chunk.clear();
            rows_in_chunk = 0;
        }
    }
    writer.write_all(chunk.as_bytes())?;
    let copied = writer.finish()?;
    progress.rows.fetch_add(rows_in_chunk, Ordering::Relaxed);
    progress.bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
    if copied == 0 {
        bail!("COPY reported no rows");
    }
    Ok(())
}

fn show_progress(progress: &Progress, parts: usize, start: Instant) {
    let terminal = std::io::stdout().is_terminal();
    let (mut ticks, every) = (0u32, if terminal { 2 } else { 50 });
    loop {
        let stop = progress.stop.load(Ordering::Relaxed);
        if stop || ticks.is_multiple_of(every) && ticks > 0 {
            let seconds = start.elapsed().as_secs_f64();
            let bytes = progress.bytes.load(Ordering::Relaxed) as f64;
            let line = format!(
                "loading: {:>3} of {parts} parts, {:>11} rows, {:6.2} GB, {:5.0} MB/s, {seconds:4.0} s",
                progress.parts.load(Ordering::Relaxed),
                progress.rows.load(Ordering::Relaxed),
                bytes / 1e9,
                bytes / 1e6 / seconds,
            );
            if terminal && !stop {
                print!("\r{line}");
            } else {
                println!("{}{line}", if terminal { "\r" } else { "" });
            }
            let _ = std::io::stdout().flush();
        }
        if stop {
            return;
        }
        ticks += 1;
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    print!("{name} … ");
    std::io::stdout().flush()?;
    work()?;
    println!("{:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn run_in_parallel(dsn: &str, jobs: usize, statements: Vec<String>) -> Result<()> {
    let queue = Mutex::new(VecDeque::from(statements));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1))
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    let mut client = connect(dsn)?;
                    client.batch_execute("SET maintenance_work_mem = '256MB'")?;
                    loop {
                        let next = queue.lock().expect("no worker panics with the queue").pop_front();
                        let Some(statement) = next else { return Ok(()) };
                        client.batch_execute(&statement).with_context(|| statement.clone())?;
                    }
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker panicked"))
    })
}
