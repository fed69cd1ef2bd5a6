//! Measures the same queries on heap tables without Smart Scan, on heap tables with it, and on compressed tables with it.
//!
//! Steps: decompress what an earlier run compressed, time the queries on the heap, compress every table, time the queries
//! again, print sizes and geometric means. Each line is printed as soon as its figures are known. Each answer is compared
//! with PostgreSQL's own (Smart Scan off), and at scale factor 1 with the published one; a difference fails the command.
//!
//! The first run of a query warms the caches and provides the answer. A query whose first run is slow is not run again:
//! that run is its figure. The data are warm by then: every table is read once before the first measurement, and again
//! after compression.

use crate::compare::{Query, difference, median, queries};
use crate::connect::{Offload, Row, configure, connect, has_extension, rows_of, set_offload};
use crate::efficiency::{Statistics, report};
use crate::tpch::{answers, load};
use anyhow::{Context, Result, bail};
use clap::Args;
use postgres::Client;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct Options {
    /// Files with one query each, or folders of such files (those named q*.sql or s*.sql).
    #[arg(required = true)]
    queries: Vec<PathBuf>,
    /// Timed runs of each query; the figure is their median.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// A query whose first run takes this long, in milliseconds, is not run again.
    #[arg(long, default_value_t = 500.0)]
    slow_ms: f64,
    /// Compression level of all tables.
    #[arg(long, default_value = "query low")]
    level: String,
    /// Settings for the session, "name=value".
    #[arg(long = "set")]
    settings: Vec<String>,
}

/// A table's bytes on the cell before and after compression.
struct TableSize {
    name: String,
    heap_bytes: i64,
    stored_bytes: i64,
}

/// Milliseconds of one query.
struct Times {
    heap_off: f64,
    heap_on: f64,
    compressed_on: f64,
}

/// Result of one query in one mode.
struct Measurement {
    answer: Vec<Row>,
    ms: f64,
}

/// A table smaller than this share of all tables is summed up with the others in the list of sizes.
const SHARE_LISTED: f64 = 0.01;

pub fn run(dsn: &str, options: &Options) -> Result<bool> {
    let mut client = connect(dsn)?;
    configure(&mut client, &options.settings, false)?;
    if !has_extension(&mut client)? {
        bail!("the extension cellar is not created in this database");
    }
    let queries = queries(&options.queries)?;
    let published = load::scale(&mut client)?.as_deref() == Some("1");
    let tables = tables(&mut client)?;

    decompress(&mut client, &tables)?;
    read_once(&mut client, &tables)?;
    let (mut failures, mut as_published) = (Vec::new(), 0);
    let mut heap_statistics = Statistics::default();
    let mut heap = Vec::new();
    println!("\n{:<24}{:>8}{:>14}{:>13}{:>9}  answers", "heap tables", "rows", "off, ms", "on, ms", "off/on");
    for query in &queries {
        let off = measure(&mut client, query, Offload::Off, options)?;
        let before = Statistics::read(&mut client)?;
        let on = measure(&mut client, query, Offload::On, options)?;
        heap_statistics.add(&Statistics::read(&mut client)?.since(&before));
        let mut verdict = "equal".to_owned();
        if let Some(difference) = difference(off.answer.clone(), on.answer) {
            verdict = format!("DIFFERENT: {difference}");
            failures.push(format!("{}, heap: {difference}", query.name));
        }
        if let Some(number) = published.then(|| tpch_number(query)).flatten() {
            match answers::difference_from_published(number, &off.answer)? {
                None => {
                    as_published += 1;
                    verdict.push_str(", as published");
                }
                Some(difference) => {
                    verdict.push_str(", NOT AS PUBLISHED");
                    failures.push(format!("{}, against the published answer: {difference}", query.name));
                }
            }
        }
        let rows = off.answer.len();
        println!(
            "{:<24}{rows:>8}{:>14}{:>13}{:>9}  {verdict}",
            query.name,
            digits(off.ms),
            digits(on.ms),
            ratio(off.ms, on.ms)
        );
        heap.push((off, on.ms));
    }

    let sizes = compress(dsn, &mut client, &tables, &options.level)?;
    read_once(&mut client, &tables)?;

    let mut compressed_statistics = Statistics::default();
    let mut times = Vec::new();
    println!(
        "\n{:<24}{:>14}{:>13}{:>16}{:>9}{:>16}  answers",
        "compressed tables", "heap off, ms", "heap on, ms", "compressed, ms", "off/on", "off/compressed"
    );
    for (query, (off, heap_on)) in queries.iter().zip(heap) {
        let before = Statistics::read(&mut client)?;
        let on = measure(&mut client, query, Offload::On, options)?;
        compressed_statistics.add(&Statistics::read(&mut client)?.since(&before));
        let mut verdict = "equal".to_owned();
        if let Some(difference) = difference(off.answer, on.answer) {
            verdict = format!("DIFFERENT: {difference}");
            failures.push(format!("{}, compressed: {difference}", query.name));
        }
        println!(
            "{:<24}{:>14}{:>13}{:>16}{:>9}{:>16}  {verdict}",
            query.name,
            digits(off.ms),
            digits(heap_on),
            digits(on.ms),
            ratio(off.ms, heap_on),
            ratio(off.ms, on.ms)
        );
        times.push(Times { heap_off: off.ms, heap_on, compressed_on: on.ms });
    }

    println!("\n{}\n", report(&[("heap", &heap_statistics), ("compressed", &compressed_statistics)]));
    print_sizes(&sizes, &options.level);
    print_summary(&queries, &times);
    print_verdict(&failures, queries.len(), published.then_some(as_published));
    Ok(failures.is_empty())
}

/// Returns the tables of TPC-H, largest first.
fn tables(client: &mut Client) -> Result<Vec<String>> {
    let sql = "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace \
               AND relname IN ('lineitem', 'orders', 'partsupp', 'part', 'customer', 'supplier', 'nation', 'region') \
               ORDER BY pg_relation_size(oid) DESC";
    Ok(client.query(sql, &[])?.iter().map(|row| row.get(0)).collect())
}

/// Returns the number of a TPC-H query from its file's name, `q01` to `q22`.
fn tpch_number(query: &Query) -> Option<i32> {
    query.name.strip_prefix('q')?.parse().ok().filter(|number| (1..=22).contains(number))
}

fn decompress(client: &mut Client, tables: &[String]) -> Result<()> {
    for table in tables {
        let units: i64 = client
            .query_one("SELECT coalesce(sum(units), 0)::bigint FROM cellar.compression($1::text::regclass) WHERE level <> 'none'", &[table])?
            .get(0);
        if units > 0 {
            let start = Instant::now();
            client.execute("SELECT FROM cellar.decompress($1::text::regclass)", &[table])?;
            println!("decompressed {table} in {:.1} s", start.elapsed().as_secs_f64());
        }
    }
    Ok(())
}

/// Brings every table into the caches.
fn read_once(client: &mut Client, tables: &[String]) -> Result<()> {
    for offload in [Offload::Off, Offload::On] {
        set_offload(client, offload)?;
        for table in tables {
            client.batch_execute(&format!("SELECT count(*) FROM {table}"))?;
        }
    }
    Ok(())
}

fn measure(client: &mut Client, query: &Query, offload: Offload, options: &Options) -> Result<Measurement> {
    set_offload(client, offload)?;
    let mut timed = || -> Result<_> {
        let start = Instant::now();
        let messages = client.simple_query(&query.sql).with_context(|| format!("query {}", query.name))?;
        Ok((messages, start.elapsed().as_secs_f64() * 1e3))
    };
    let (messages, first_ms) = timed()?;
    let runs = if first_ms < options.slow_ms { options.runs } else { 0 };
    let ms = (0..runs).map(|_| Ok(timed()?.1)).collect::<Result<Vec<_>>>()?;
    Ok(Measurement { answer: rows_of(messages), ms: if ms.is_empty() { first_ms } else { median(&ms) } })
}

/// Compresses the tables one after the other; a second connection shows the progress.
fn compress(dsn: &str, client: &mut Client, tables: &[String], level: &str) -> Result<Vec<TableSize>> {
    println!("\nSELECT * FROM cellar.compress(table, '{level}');   -- progress: TABLE cellar.compression_progress");
    let mut observer = connect(dsn)?;
    let mut sizes = Vec::new();
    for table in tables {
        let start = Instant::now();
        let stop = AtomicBool::new(false);
        let size = std::thread::scope(|scope| {
            scope.spawn(|| show_progress(&mut observer, &stop));
            let size = client.query_one(
                "SELECT coalesce(sum(heap_bytes), 0)::bigint, coalesce(sum(stored_bytes), 0)::bigint FROM cellar.compress($1::text::regclass, $2)",
                &[table, &level],
            );
            stop.store(true, Ordering::Relaxed);
            size
        })
        .with_context(|| format!("compressing {table}"))?;
        let (heap_bytes, stored_bytes): (i64, i64) = (size.get(0), size.get(1));
        println!(
            "{table}: {:.1} MB -> {:.1} MB in {:.1} s",
            heap_bytes as f64 / 1e6,
            stored_bytes as f64 / 1e6,
            start.elapsed().as_secs_f64()
        );
        sizes.push(TableSize { name: table.clone(), heap_bytes, stored_bytes });
    }
    Ok(sizes)
}

/// Prints the rows of `cellar.compression_progress` until `stop`. An error ends the display only.
fn show_progress(observer: &mut Client, stop: &AtomicBool) {
    let sql = "SELECT relation::text, phase, blocks_done, blocks_total, bytes_before, bytes_after FROM cellar.compression_progress";
    let terminal = std::io::stdout().is_terminal();
    let mut ticks = 0u32;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
        ticks += 1;
        if !ticks.is_multiple_of(if terminal { 4 } else { 40 }) {
            continue;
        }
        let Ok(rows) = observer.query(sql, &[]) else { return };
        for row in rows {
            let (relation, phase): (String, String) = (row.get(0), row.get(1));
            let number = |column: usize| row.get::<_, Option<i64>>(column).unwrap_or(0);
            let line = format!(
                "{relation}: {phase}, {} of {} blocks, {:.1} MB -> {:.1} MB",
                number(2),
                number(3),
                number(4) as f64 / 1e6,
                number(5) as f64 / 1e6
            );
            if terminal {
                print!("\r\x1b[K{line}");
            } else {
                println!("{line}");
            }
        }
        let _ = std::io::stdout().flush();
    }
    if terminal {
        print!("\r\x1b[K");
        let _ = std::io::stdout().flush();
    }
}

fn print_sizes(sizes: &[TableSize], level: &str) {
    let total = TableSize {
        name: "all tables".to_owned(),
        heap_bytes: sizes.iter().map(|size| size.heap_bytes).sum(),
        stored_bytes: sizes.iter().map(|size| size.stored_bytes).sum(),
    };
    let listed = |size: &&TableSize| size.heap_bytes as f64 >= SHARE_LISTED * total.heap_bytes as f64;
    println!("{:<24}{:>12}{:>16}{:>9}", "Sizes", "heap, MB", format!("{level}, MB"), "ratio");
    for size in sizes.iter().filter(listed).chain([&total]) {
        println!(
            "{:<24}{:>12.1}{:>16.1}{:>9.2}",
            size.name,
            size.heap_bytes as f64 / 1e6,
            size.stored_bytes as f64 / 1e6,
            size.heap_bytes as f64 / size.stored_bytes.max(1) as f64
        );
    }
}

fn print_summary(queries: &[Query], times: &[Times]) {
    let mut groups: BTreeMap<&str, Vec<&Times>> = BTreeMap::new();
    for (query, times) in queries.iter().zip(times) {
        groups.entry(&query.folder).or_default().push(times);
    }
    let mut lines: Vec<(String, Vec<&Times>)> =
        groups.into_iter().map(|(folder, times)| (format!("{folder}, {} queries", times.len()), times)).collect();
    lines.push((format!("all {} queries", times.len()), times.iter().collect()));
    println!(
        "\n{:<24}{:>12}{:>13}{:>16}{:>9}{:>16}",
        "Geometric means", "heap off, ms", "heap on, ms", "compressed, ms", "off/on", "off/compressed"
    );
    for (name, times) in lines {
        let mean = |value: fn(&Times) -> f64| {
            (times.iter().map(|times| value(times).max(1e-3).ln()).sum::<f64>() / times.len() as f64).exp()
        };
        let (off, on, compressed) = (mean(|t| t.heap_off), mean(|t| t.heap_on), mean(|t| t.compressed_on));
        println!(
            "{name:<24}{:>12}{:>13}{:>16}{:>9}{:>16}",
            digits(off),
            digits(on),
            digits(compressed),
            ratio(off, on),
            ratio(off, compressed)
        );
    }
}

fn print_verdict(failures: &[String], queries: usize, as_published: Option<usize>) {
    if failures.is_empty() {
        let published = as_published.map_or(String::new(), |count| format!("; {count} TPC-H answers as published"));
        println!("All {queries} answers are equal: heap off, heap on, compressed{published}.");
        return;
    }
    println!("\nFAILED: {} answers differ", failures.len());
    for failure in failures {
        println!("not ok - {failure}");
    }
    println!("If the tables were changed after loading, `make demo-remove` and `make demo` load them again.");
}

fn ratio(slow: f64, fast: f64) -> String {
    format!("{:.1}x", slow / fast.max(1e-3))
}

fn digits(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.2}") } else { format!("{ms:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tpch_query_has_the_number_in_its_file_name() {
        let number =
            |name: &str| tpch_number(&Query { name: name.to_owned(), folder: "tpch".to_owned(), sql: String::new() });
        assert_eq!(number("q07"), Some(7));
        assert_eq!(number("q23"), None);
        assert_eq!(number("s01_count"), None);
    }

    #[test]
    fn milliseconds_below_ten_have_two_decimals() {
        assert_eq!(digits(0.024), "0.02");
        assert_eq!(digits(123.45), "123.5");
    }
}
