//! The differential tester: random queries over random tables return the same with Smart Scan off and on.
//!
//! A case is one query under one snapshot. Its rows (as a multiset), or the SQLSTATE of its error, must be the same.
//! The tester also checks the plans: a minimum share of the cases must contain a Smart Scan.

mod members;
mod query;
pub mod rng;
mod table;
mod types;

use crate::compare::difference;
use crate::connect::{Offload, Row, configure, connect, has_extension, set_offload, text_rows};
use anyhow::{Context, Result};
use clap::Args;
use postgres::Client;
use query::Queries;
use rng::Rng;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use table::Table;

#[derive(Args)]
pub struct Options {
    /// Seed of the random generator; printed, and different in each run by default.
    #[arg(long)]
    seed: Option<u64>,
    /// Number of queries to compare.
    #[arg(long, default_value_t = 3000)]
    cases: u64,
    /// Number of queries on each table.
    #[arg(long, default_value_t = 40)]
    cases_per_table: u64,
    /// Run only the table with this number.
    #[arg(long)]
    table: Option<u64>,
    /// Modify the table continuously from another session while the queries run.
    #[arg(long)]
    writer: bool,
    /// Compress tables at random levels, initially and between the queries.
    #[arg(long)]
    compress: bool,
    /// Only queries that group and aggregate.
    #[arg(long)]
    aggregates: bool,
    /// Only queries with ORDER BY and LIMIT.
    #[arg(long)]
    first_rows: bool,
    /// Only queries with GROUP BY and HAVING, ORDER BY or LIMIT.
    #[arg(long)]
    top_groups: bool,
    /// Only queries that aggregate the rows of joins.
    #[arg(long)]
    lookups: bool,
    /// Only queries that aggregate the rows of partitions and of UNION ALL.
    #[arg(long)]
    members: bool,
    /// Minimum percentage of cases with a Smart Scan.
    #[arg(long, default_value_t = 50)]
    require_share: u64,
    /// Let PostgreSQL use two parallel workers, and the cell as many threads.
    #[arg(long)]
    parallel: bool,
    /// Tablespace of the tables.
    #[arg(long)]
    tablespace: Option<String>,
    /// Stop after this number of differences.
    #[arg(long, default_value_t = 5)]
    give_up_after: u64,
}

#[derive(Default)]
struct Totals {
    cases: u64,
    smart_scans: u64,
    storage_predicates: u64,
    /// Cases whose plan aggregates in the cell.
    aggregations: u64,
    /// Cases whose plan has a top-N in the cell.
    top_ns: u64,
    /// Cases whose plan omits groups in the cell.
    pruned_groups: u64,
    /// Cases whose plan joins rows in the cell.
    lookups: u64,
    /// Cases whose plan appends what the cell aggregates.
    members: u64,
    /// Cases whose plan filters a lookup table by keys.
    filtered_sides: u64,
    errors: u64,
    with_rows: u64,
    differences: u64,
    /// Cases whose errors may legitimately differ: a filter raised an error for rows that the storage predicate excludes,
    /// or several errors are possible and another one was raised first.
    excluded_errors: u64,
    tables: u64,
    /// Cases whose table had compression units.
    in_units: u64,
    /// Cases whose table had superseded blocks.
    partly_superseded: u64,
}

/// The result of a query.
#[derive(Debug)]
enum QueryResult {
    Rows(Vec<Row>),
    Error { sqlstate: String, message: String },
}

pub fn run(dsn: &str, options: &Options) -> Result<bool> {
    let seed = options.seed.unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        since.as_nanos() as u64 % 1_000_000_007
    });
    println!("seed {seed}{}", if options.writer { ", with a writer" } else { "" });
    let mut sessions = Sessions::open(dsn, options)?;
    let extension = has_extension(&mut sessions.query)?;
    let (start, mut shown) = (Instant::now(), 0);
    let mut totals = Totals::default();
    let first = options.table.unwrap_or(0);
    for number in first.. {
        if totals.cases >= options.cases || options.table.is_some() && number > first {
            break;
        }
        if totals.differences >= options.give_up_after {
            println!("giving up after {} differences", totals.differences);
            break;
        }
        match run_table(dsn, &mut sessions, options, seed, number, &mut totals) {
            // Random columns without compression may not fit into a page: continue with the next table.
            Err(error) if row_too_big(&error) => sessions.roll_back()?,
            other => other.with_context(|| format!("table {number} of seed {seed}"))?,
        }
        if start.elapsed().as_secs() / 20 > shown {
            shown = start.elapsed().as_secs() / 20;
            println!(
                "{} of {} cases, {} tables, {} differences",
                totals.cases, options.cases, totals.tables, totals.differences
            );
        }
    }
    let share = |part: u64| 100 * part / totals.cases.max(1);
    println!(
        "{} cases on {} tables in {:.0} s: {} % with a Smart Scan, {} % with a storage predicate, {} % aggregated by the cell, {} % with a top-N, {} % with omitted groups, {} % raised an error, {} % returned rows; {} with an error that depends on the plan",
        totals.cases,
        totals.tables,
        start.elapsed().as_secs_f64(),
        share(totals.smart_scans),
        share(totals.storage_predicates),
        share(totals.aggregations),
        share(totals.top_ns),
        share(totals.pruned_groups),
        share(totals.errors),
        share(totals.with_rows),
        totals.excluded_errors,
    );
    let mut good = totals.differences == 0;
    let kind = if options.writer { "random queries with a writer" } else { "random queries" };
    if good {
        println!("ok - {kind}: {} cases give the same result with Smart Scan off and on, seed {seed}", totals.cases);
    } else {
        println!("not ok - {kind}: {} cases differ with Smart Scan off and on, seed {seed}", totals.differences);
    }
    if extension && options.table.is_none() {
        let enough = share(totals.smart_scans) >= options.require_share
            && share(totals.storage_predicates) >= options.require_share / 2;
        good &= enough;
        println!(
            "{} - {kind}: {} % of the plans have a Smart Scan, {} % a storage predicate (required {} % and {} %)",
            if enough { "ok" } else { "not ok" },
            share(totals.smart_scans),
            share(totals.storage_predicates),
            options.require_share,
            options.require_share / 2
        );
    }
    if options.top_groups && extension && options.table.is_none() {
        let enough = share(totals.pruned_groups) >= 12;
        good &= enough;
        println!(
            "{} - {kind}: {} % of the plans omit groups (required 12 %)",
            if enough { "ok" } else { "not ok" },
            share(totals.pruned_groups),
        );
    }
    if options.lookups && extension && options.table.is_none() {
        let enough = share(totals.lookups) >= 10 && totals.filtered_sides > 0;
        good &= enough;
        println!(
            "{} - {kind}: {} % of the plans join rows in the cell (required 10 %), {} filter a side by keys (required 1)",
            if enough { "ok" } else { "not ok" },
            share(totals.lookups),
            totals.filtered_sides,
        );
    }
    if options.members && extension && options.table.is_none() {
        let enough = share(totals.members) >= 10;
        good &= enough;
        println!(
            "{} - {kind}: {} % of the plans append what the cell aggregates (required 10 %)",
            if enough { "ok" } else { "not ok" },
            share(totals.members),
        );
    }
    if options.compress && options.table.is_none() {
        // The share is below 100 % because some tables are empty or decompressed.
        let enough = share(totals.in_units) >= 40 && share(totals.partly_superseded) >= 10;
        good &= enough;
        println!(
            "{} - {kind}: {} % of the cases read compression units, {} % superseded blocks (required 40 % and 10 %)",
            if enough { "ok" } else { "not ok" },
            share(totals.in_units),
            share(totals.partly_superseded),
        );
    }
    Ok(good)
}

/// The session that runs the queries, the one that creates tables, and two that keep transactions open.
struct Sessions {
    query: Client,
    prepare: Client,
    open: [Client; 2],
}

/// Returns whether Postgres rejected a row that does not fit into a page.
fn row_too_big(error: &anyhow::Error) -> bool {
    let code = |cause: &postgres::Error| cause.code() == Some(&postgres::error::SqlState::PROGRAM_LIMIT_EXCEEDED);
    error.chain().filter_map(|cause| cause.downcast_ref()).any(code)
}

impl Sessions {
    fn roll_back(&mut self) -> Result<()> {
        let mut clients = self.open.iter_mut().chain([&mut self.prepare, &mut self.query]);
        clients.try_for_each(|client| Ok(client.batch_execute("ROLLBACK")?))
    }

    fn open(dsn: &str, options: &Options) -> Result<Self> {
        let session = || -> Result<Client> {
            let mut client = connect(dsn)?;
            let settings = [
                "statement_timeout=60s",
                "lock_timeout=200ms",
                "max_parallel_workers_per_gather=0",
                "client_min_messages=error",
                // An index scan reads fewer rows, and so may raise fewer errors.
                "enable_indexscan=off",
                "enable_indexonlyscan=off",
                "enable_bitmapscan=off",
            ];
            configure(&mut client, &settings.map(str::to_owned), true)?;
            if options.parallel {
                client.batch_execute(
                    "SET max_parallel_workers_per_gather = 2; SET min_parallel_table_scan_size = 0;
                     SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0",
                )?;
            }
            client.batch_execute("SET TimeZone = 'Europe/Berlin'; SET search_path = differ, public")?;
            if let Some(tablespace) = &options.tablespace {
                client.execute("SELECT set_config('default_tablespace', $1, false)", &[tablespace])?;
            }
            Ok(client)
        };
        let mut prepare = session()?;
        let moods: Vec<String> = types::MOODS.iter().map(|mood| types::quoted(mood)).collect();
        prepare.batch_execute(&format!(
            "DROP SCHEMA IF EXISTS differ CASCADE; CREATE SCHEMA differ; CREATE TYPE differ.mood AS ENUM ({})",
            moods.join(", ")
        ))?;
        Ok(Self { query: session()?, prepare, open: [session()?, session()?] })
    }
}

fn run_table(
    dsn: &str,
    sessions: &mut Sessions,
    options: &Options,
    seed: u64,
    number: u64,
    totals: &mut Totals,
) -> Result<()> {
    let mut rng = Rng::new(seed, number);
    let rng = &mut rng;
    let mut table = Table::create(format!("differ.t{number}"), &mut sessions.prepare, rng)?;
    totals.tables += 1;
    if options.compress {
        table.compress(&mut sessions.prepare, rng)?;
    }
    if options.members {
        members::create_partitioned(&table, &mut sessions.prepare, rng, options.compress)?;
    }
    // By default, several threads of the cell share only scans of larger tables.
    if options.parallel && rng.chance(50) {
        sessions.prepare.batch_execute(&format!("ALTER TABLE {} SET (parallel_workers = 2)", table.name))?;
    }
    // The cell evaluates functions of the time zone in UTC only.
    let zone = *rng.pick(&["UTC", "UTC", "Europe/Berlin"]);
    sessions.query.batch_execute(&format!("SET TimeZone = '{zone}'"))?;
    let mut is_in_use = false;
    for client in &mut sessions.open {
        client.batch_execute("BEGIN")?;
        if rng.chance(60) {
            table.work_in_transaction(client, rng)?;
            is_in_use = true;
        }
    }
    // VACUUM waits up to five seconds for the lock that it needs to truncate a table, while the open sessions hold theirs. The
    // TOAST table has its own setting.
    if is_in_use {
        sessions.prepare.batch_execute(&format!(
            "ALTER TABLE {} SET (vacuum_truncate = off, toast.vacuum_truncate = off)",
            table.name
        ))?;
    }
    let before = totals.differences;
    if options.writer {
        let (stop, writes) = (AtomicBool::new(false), AtomicU64::new(0));
        let mut writers_rng = rng.clone();
        let mut writers_table = table.clone();
        std::thread::scope(|scope| -> Result<()> {
            let writer = scope.spawn(|| -> Result<()> {
                let mut client = connect(dsn)?;
                client.batch_execute(
                    "SET lock_timeout = '200ms'; SET search_path = differ, public; SET synchronous_commit = off",
                )?;
                while !stop.load(Ordering::Relaxed) {
                    client.batch_execute("BEGIN")?;
                    writers_table.work_in_transaction(&mut client, &mut writers_rng)?;
                    client.batch_execute(if writers_rng.chance(70) { "COMMIT" } else { "ROLLBACK" })?;
                    if writers_rng.chance(5) {
                        // SKIP_LOCKED, because a running compression holds a lock that conflicts with VACUUM.
                        client.batch_execute(&format!("VACUUM (SKIP_LOCKED) {}", writers_table.name))?;
                    }
                    writes.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
            let result = run_cases(sessions, options, &mut table, rng, number, totals);
            stop.store(true, Ordering::Relaxed);
            writer.join().expect("the writer panicked").context("the writer")?;
            result
        })?;
    } else {
        run_cases(sessions, options, &mut table, rng, number, totals)?;
    }
    for client in &mut sessions.open {
        client.batch_execute(if rng.chance(50) { "COMMIT" } else { "ROLLBACK" })?;
    }
    // Keep a table with a difference for inspection.
    if totals.differences == before {
        if options.members {
            members::drop_partitioned(&table, &mut sessions.prepare)?;
        }
        sessions.prepare.batch_execute(&format!("DROP TABLE {}", table.name))?;
    }
    Ok(())
}

fn run_cases(
    sessions: &mut Sessions,
    options: &Options,
    table: &mut Table,
    rng: &mut Rng,
    number: u64,
    totals: &mut Totals,
) -> Result<()> {
    let client = &mut sessions.query;
    let wanted = options.cases_per_table.min(options.cases.saturating_sub(totals.cases)).max(1);
    let mut done = 0;
    while done < wanted {
        if options.compress && rng.chance(25) {
            table.compress(&mut sessions.prepare, rng)?;
        }
        // A concurrent writer requires one snapshot for both runs; otherwise READ COMMITTED works, too.
        let repeatable = options.writer || rng.chance(40);
        let isolation = if repeatable { "REPEATABLE READ" } else { "READ COMMITTED" };
        client.batch_execute(&format!("BEGIN ISOLATION LEVEL {isolation}"))?;
        if rng.chance(50) {
            // With a writer, a row may have changed since the snapshot, which raises a serialization failure: try again.
            if let Err(error) = table.work_in_transaction(client, rng) {
                let changed = error
                    .downcast_ref::<postgres::Error>()
                    .and_then(|e| e.code())
                    .is_some_and(|code| code.code() == "40001");
                client.batch_execute("ROLLBACK")?;
                if changed { continue } else { return Err(error) }
            }
        }
        // Sides of lookup joins with more rows are filtered by the keys of other sides.
        let rows_max = *rng.pick(&[1 << 20, 1 << 20, 500, 50]);
        client.batch_execute(&format!("SET LOCAL cellar.lookup_table_rows = {rows_max}"))?;
        // At a cost factor of 0, a scan with several threads of the cell costs as much as one with a single thread, which is chosen.
        if options.parallel && rng.chance(50) {
            client.batch_execute("SET LOCAL cellar.cost_factor = 0.0001")?;
        }
        let together = 5.min(wanted - done);
        for _ in 0..together {
            let mut queries = Queries {
                table,
                rng,
                only_aggregates: options.aggregates || options.top_groups,
                only_first_rows: options.first_rows,
                only_top_groups: options.top_groups,
                only_lookups: options.lookups,
                only_members: options.members,
            };
            let sql = queries.query();
            let execution = Execution::random(rng);
            compare_case(client, &sql, execution, number, totals)?;
            done += 1;
        }
        if options.compress {
            // The object checkpoints of the scans have written all dirty blocks to the cell.
            let (units, superseded) = table.units(client)?;
            totals.in_units += if units > 0 { together } else { 0 };
            totals.partly_superseded += if superseded > 0 { together } else { 0 };
        }
        client.batch_execute(if rng.chance(50) { "COMMIT" } else { "ROLLBACK" })?;
    }
    Ok(())
}

/// How a query is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Execution {
    Plain,
    Cursor,
    Prepared,
}

impl Execution {
    fn random(rng: &mut Rng) -> Self {
        match rng.below(10) {
            0 => Execution::Cursor,
            1 => Execution::Prepared,
            _ => Execution::Plain,
        }
    }
}

fn compare_case(client: &mut Client, sql: &str, execution: Execution, number: u64, totals: &mut Totals) -> Result<()> {
    set_offload(client, Offload::Off)?;
    let off = execute(client, sql, execution).with_context(|| sql.to_owned())?;
    set_offload(client, Offload::On)?;
    let plan = plan(client, sql).with_context(|| sql.to_owned())?;
    let on = execute(client, sql, execution).with_context(|| sql.to_owned())?;
    totals.cases += 1;
    totals.smart_scans += u64::from(plan.contains("(Smart Scan)"));
    totals.storage_predicates += u64::from(plan.contains("Storage Predicate:"));
    totals.lookups += u64::from(plan.contains("(Lookup Table)"));
    totals.filtered_sides += u64::from(plan.contains("(Lookup Table)") && plan.contains("(Join Keys)"));
    totals.aggregations += u64::from(plan.contains("(Smart Scan Aggregate)"));
    totals.members += u64::from(plan.contains("(Smart Scan Aggregate)") && plan.contains("Append"));
    totals.top_ns += u64::from(plan.contains("Storage Top-N:"));
    totals.pruned_groups += u64::from(plan.contains("Cell Group Limit:") || plan.contains("Cell Group Filter:"));
    totals.errors += u64::from(matches!(off, QueryResult::Error { .. }));
    totals.with_rows += u64::from(matches!(&off, QueryResult::Rows(rows) if !rows.is_empty()));
    let off_stops_early = match (&off, &on) {
        (QueryResult::Rows(_), QueryResult::Error { .. }) | (QueryResult::Error { .. }, QueryResult::Rows(_)) => {
            set_offload(client, Offload::Off)?;
            stops_early(&self::plan(client, sql).with_context(|| sql.to_owned())?)
        }
        _ => false,
    };
    let different = match (off, on) {
        (QueryResult::Rows(off), QueryResult::Rows(on)) => difference(off, on),
        (QueryResult::Error { sqlstate: off, .. }, QueryResult::Error { sqlstate: on, .. }) if off == on => None,
        // The plan determines whether aggregates evaluate their arguments before or after the end of the scan.
        (QueryResult::Error { .. }, QueryResult::Error { .. }) if plan.contains("Aggregate") => {
            totals.excluded_errors += 1;
            None
        }
        // Postgres does not define the order of conditions; Smart Scan evaluates a filter after the storage predicate.
        (QueryResult::Error { .. }, QueryResult::Rows(_))
            if plan.contains("Filter:") && plan.contains("Storage Predicate:") =>
        {
            totals.excluded_errors += 1;
            None
        }
        // A scan that stops early may have evaluated more or fewer rows than a Smart Scan.
        (QueryResult::Error { .. }, QueryResult::Rows(_)) | (QueryResult::Rows(_), QueryResult::Error { .. })
            if off_stops_early || stops_early(&plan) =>
        {
            totals.excluded_errors += 1;
            None
        }
        // PostgreSQL does not evaluate one side of a join if the other side, which the plan determines, is empty.
        (QueryResult::Error { .. }, QueryResult::Rows(_)) | (QueryResult::Rows(_), QueryResult::Error { .. })
            if plan.contains("Join") =>
        {
            totals.excluded_errors += 1;
            None
        }
        (off, on) => Some(format!("off: {}; on: {}", off.summary(), on.summary())),
    };
    if let Some(difference) = different {
        totals.differences += 1;
        let difference: String = difference.chars().take(2000).collect();
        println!("DIFFERENCE on table {number} ({execution:?})\n  query: {sql}\n  {difference}\n  plan:\n{plan}");
    }
    Ok(())
}

/// Returns whether a LIMIT without a sort stops the scan: the query's, or the one that Postgres plans for a minimum.
fn stops_early(plan: &str) -> bool {
    plan.contains("Limit") && !plan.contains("Sort") && !plan.contains("Aggregate")
}

impl QueryResult {
    fn summary(&self) -> String {
        match self {
            QueryResult::Rows(rows) => format!("{} rows", rows.len()),
            QueryResult::Error { sqlstate, message } => format!("ERROR {sqlstate} {message}"),
        }
    }
}

/// Executes the query inside a savepoint, so that the transaction survives an error. A lost connection is returned as an
/// error of this function.
fn execute(client: &mut Client, sql: &str, execution: Execution) -> Result<QueryResult> {
    client.batch_execute("SAVEPOINT case_")?;
    let result = match execution {
        Execution::Plain => text_rows(client, sql),
        Execution::Cursor => cursor_rows(client, sql),
        Execution::Prepared => prepared_rows(client, sql),
    };
    let result = match result {
        Ok(rows) => {
            client.batch_execute("RELEASE SAVEPOINT case_")?;
            QueryResult::Rows(rows)
        }
        Err(error) => {
            let Some(db) = error.as_db_error() else { return Err(error.into()) };
            let (sqlstate, message) = (db.code().code().to_owned(), db.message().to_owned());
            client.batch_execute("ROLLBACK TO SAVEPOINT case_")?;
            QueryResult::Error { sqlstate, message }
        }
    };
    if execution == Execution::Prepared {
        client.batch_execute("DEALLOCATE ALL")?;
    }
    Ok(result)
}

fn cursor_rows(client: &mut Client, sql: &str) -> Result<Vec<Row>, postgres::Error> {
    client.batch_execute(&format!("DECLARE c NO SCROLL CURSOR FOR {sql}"))?;
    let mut rows = text_rows(client, "FETCH 3 FROM c")?;
    rows.extend(text_rows(client, "FETCH 100 FROM c")?);
    rows.extend(text_rows(client, "FETCH ALL FROM c")?);
    client.batch_execute("CLOSE c")?;
    Ok(rows)
}

fn prepared_rows(client: &mut Client, sql: &str) -> Result<Vec<Row>, postgres::Error> {
    client.batch_execute(&format!("SET LOCAL plan_cache_mode = force_generic_plan; PREPARE p AS {sql}"))?;
    text_rows(client, "EXECUTE p")
}

/// Returns the plan, or an empty string if planning raises an error, as constant folding may.
fn plan(client: &mut Client, sql: &str) -> Result<String> {
    client.batch_execute("SAVEPOINT plan_")?;
    match text_rows(client, &format!("EXPLAIN (COSTS OFF) {sql}")) {
        Ok(rows) => {
            client.batch_execute("RELEASE SAVEPOINT plan_")?;
            Ok(rows.into_iter().flatten().flatten().collect::<Vec<_>>().join("\n"))
        }
        Err(error) if error.as_db_error().is_some() => {
            client.batch_execute("ROLLBACK TO SAVEPOINT plan_")?;
            Ok(String::new())
        }
        Err(error) => Err(error.into()),
    }
}
