//! Runs queries alternately with Smart Scan off and on, and compares rows and times.
//!
//! The first run of a query in each mode is not timed: it warms the caches and returns the rows to compare. Rows are
//! compared as multisets, because an ORDER BY with ties permits different orders under different plans.

use crate::connect::{Offload, Row, configure, connect, has_extension, set_offload, smart_scans, text_rows};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use postgres::Client;
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Args)]
pub struct Options {
    /// Files with one query each, or directories with such files (q*.sql and s*.sql).
    #[arg(required = true)]
    queries: Vec<PathBuf>,
    /// Number of timed runs of each query with Smart Scan off and on; 0 only compares rows.
    #[arg(long, default_value_t = 0)]
    runs: usize,
    /// Prefer Smart Scan for every scan: minimum size and cost are zero.
    #[arg(long)]
    forced: bool,
    /// Minimum number of queries with a Smart Scan in their plan.
    #[arg(long, default_value_t = 0)]
    require_smart_scans: usize,
    /// Setting of the session, "name=value"; may be repeated.
    #[arg(long = "set")]
    settings: Vec<String>,
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum, PartialEq, Eq)]
enum Format {
    /// Aligned columns.
    Table,
    /// A Markdown table.
    Markdown,
    /// `ok - …` and `not ok - …` lines.
    Checks,
}

struct Comparison {
    name: String,
    rows: usize,
    smart_scans: usize,
    difference: Option<String>,
    off_ms: Vec<f64>,
    on_ms: Vec<f64>,
}

pub fn run(dsn: &str, options: &Options) -> Result<bool> {
    let mut client = connect(dsn)?;
    configure(&mut client, &options.settings, options.forced)?;
    let extension = has_extension(&mut client)?;
    print_head(options);
    let mut comparisons = Vec::new();
    for query in queries(&options.queries)? {
        let comparison = compare(&mut client, query, options)?;
        print_line(&comparison, options);
        comparisons.push(comparison);
    }
    let different = comparisons.iter().filter(|comparison| comparison.difference.is_some()).count();
    let offloaded = comparisons.iter().filter(|comparison| comparison.smart_scans > 0).count();
    if options.format != Format::Checks {
        println!(
            "\n{} queries, {}; {offloaded} with a Smart Scan in their plan",
            comparisons.len(),
            if different == 0 { "all answers equal".to_owned() } else { format!("{different} WITH DIFFERENT ANSWERS") }
        );
    }
    if offloaded < options.require_smart_scans {
        let reason = if extension { "" } else { " (the extension is not created in this database)" };
        println!(
            "not ok - at least {} queries have a Smart Scan in their plan: found {offloaded}{reason}",
            options.require_smart_scans
        );
        return Ok(false);
    }
    Ok(different == 0)
}

/// One query and the file that it was read from.
pub struct Query {
    /// The file's name without `.sql`.
    pub name: String,
    /// The name of the folder that contains the file.
    pub folder: String,
    pub sql: String,
}

/// Reads the queries of files, and of folders' files named q*.sql or s*.sql, in the order of their names.
pub fn queries(paths: &[PathBuf]) -> Result<Vec<Query>> {
    let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let read = |path: PathBuf| {
        let sql = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Query { name: text(path.file_stem()), folder: text(path.parent().and_then(Path::file_name)), sql })
    };
    files(paths)?.into_iter().map(read).collect()
}

fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut found: Vec<PathBuf> = std::fs::read_dir(path)
            .with_context(|| format!("cannot read {}", path.display()))?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|file| {
                let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                name.ends_with(".sql") && (name.starts_with('q') || name.starts_with('s')) && name != "schema.sql"
            })
            .collect();
        found.sort();
        files.append(&mut found);
    }
    if files.is_empty() {
        bail!("no queries found in {paths:?}");
    }
    Ok(files)
}

fn compare(client: &mut Client, query: Query, options: &Options) -> Result<Comparison> {
    let Query { name, sql, .. } = query;
    let context = || format!("query {name}");
    let mut comparison = Comparison {
        rows: 0,
        smart_scans: 0,
        difference: None,
        off_ms: Vec::new(),
        on_ms: Vec::new(),
        name: name.clone(),
    };
    set_offload(client, Offload::Off)?;
    let off = text_rows(client, &sql).with_context(context)?;
    set_offload(client, Offload::On)?;
    comparison.smart_scans = if sql.trim_start().to_lowercase().starts_with("copy") {
        0
    } else {
        smart_scans(client, &sql).with_context(context)?
    };
    let on = text_rows(client, &sql).with_context(context)?;
    comparison.rows = off.len();
    comparison.difference = difference(off, on);
    for _ in 0..options.runs {
        comparison.off_ms.push(time(client, Offload::Off, &sql).with_context(context)?);
        comparison.on_ms.push(time(client, Offload::On, &sql).with_context(context)?);
    }
    Ok(comparison)
}

fn time(client: &mut Client, offload: Offload, sql: &str) -> Result<f64> {
    set_offload(client, offload)?;
    let start = Instant::now();
    client.simple_query(sql)?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

/// Describes the first difference between two multisets of rows, or returns None if they are equal.
pub fn difference(mut off: Vec<Row>, mut on: Vec<Row>) -> Option<String> {
    off.sort_unstable();
    on.sort_unstable();
    if off == on {
        return None;
    }
    let only = |these: &[Row], those: &[Row]| {
        let mut rest = those.to_vec();
        these
            .iter()
            .find(|row| match rest.iter().position(|other| other == *row) {
                Some(at) => {
                    rest.swap_remove(at);
                    false
                }
                None => true,
            })
            .cloned()
    };
    // The search is quadratic, so large results only show the first unequal pair of sorted rows.
    if off.len().max(on.len()) <= 2_000 {
        return Some(format!(
            "{} rows off, {} on; only off: {:?}; only on: {:?}",
            off.len(),
            on.len(),
            only(&off, &on),
            only(&on, &off)
        ));
    }
    let at = off.iter().zip(&on).position(|(a, b)| a != b).unwrap_or(off.len().min(on.len()));
    Some(format!(
        "{} rows off, {} on; sorted row {at}: {:?} off, {:?} on",
        off.len(),
        on.len(),
        off.get(at),
        on.get(at)
    ))
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

fn print_head(options: &Options) {
    match options.format {
        Format::Checks => {}
        Format::Table => {
            println!("{:<28}{:>10}{:>12}{:>12}{:>10}  answers", "query", "rows", "off ms", "on ms", "speedup")
        }
        Format::Markdown => {
            println!("| query | rows | off, ms | on, ms | speedup | Smart Scans | answers |");
            println!("|---|---:|---:|---:|---:|---:|---|");
        }
    }
}

fn print_line(comparison: &Comparison, options: &Options) {
    let equal = match &comparison.difference {
        None => "equal".to_owned(),
        Some(difference) => format!("DIFFERENT: {difference}"),
    };
    let timed = !comparison.off_ms.is_empty();
    let (off, on) = if timed { (median(&comparison.off_ms), median(&comparison.on_ms)) } else { (0.0, 0.0) };
    let number = |value: f64| if timed { format!("{value:.1}") } else { "-".to_owned() };
    let speedup = if timed { format!("{:.2}x", off / on) } else { "-".to_owned() };
    let Comparison { name, rows, smart_scans, .. } = comparison;
    match options.format {
        Format::Checks => match &comparison.difference {
            None => {
                println!("ok - {name}: {rows} rows are the same with Smart Scan off and on; {smart_scans} Smart Scans")
            }
            Some(difference) => println!("not ok - {name}: rows are the same with Smart Scan off and on: {difference}"),
        },
        Format::Table => println!("{name:<28}{rows:>10}{:>12}{:>12}{speedup:>10}  {equal}", number(off), number(on)),
        Format::Markdown => {
            println!("| {name} | {rows} | {} | {} | {speedup} | {smart_scans} | {equal} |", number(off), number(on))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str) -> Row {
        vec![Some(text.to_owned())]
    }

    #[test]
    fn rows_are_compared_as_multisets() {
        assert_eq!(difference(vec![row("a"), row("b")], vec![row("b"), row("a")]), None);
        assert!(difference(vec![row("a"), row("a")], vec![row("a")]).is_some());
        assert!(difference(vec![row("a")], vec![vec![None]]).is_some());
    }

    #[test]
    fn the_median_of_an_even_number_of_values_is_the_mean_of_the_middle_two() {
        assert_eq!(median(&[3.0, 1.0]), 2.0);
        assert_eq!(median(&[9.0, 1.0, 5.0]), 5.0);
    }
}
