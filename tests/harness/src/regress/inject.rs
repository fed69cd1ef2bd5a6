//! Compresses the tables of a Postgres test suite at random levels while its tests run.
//!
//! A copy of the suite's scripts gets lines `\! compress TABLE LEVEL` after statements that write to a table. The line waits
//! while a separate session compresses the table, also in the middle of a transaction, when rows are in progress. The
//! following statements then read compression units and write to them. Large tables that many tests share are compressed
//! repeatedly while other tests read them.
//!
//! The script's session does not compress, so its state does not change. psql echoes the lines; they are removed from the
//! outputs before the comparison.

use super::script::{Statement, statements};
use crate::connect::connect;
use crate::differ::rng::Rng;
use anyhow::{Context, Result, bail};
use clap::Args;
use postgres::Client;
use postgres::error::SqlState;
use std::collections::{BTreeMap, HashSet};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The prefix of every injected line.
pub const LINE: &str = "\\! compress ";
/// Level "none" decompresses.
const LEVELS: [&str; 6] = ["query low", "query low", "query high", "archive low", "archive high", "none"];
/// The tables that `test_setup` fills for all tests and that have some pages.
const SHARED: [&str; 8] = ["onek", "onek", "tenk1", "tenk1", "tenk1", "tenk2", "road", "person"];
/// The test that creates them.
const FIRST: &str = "test_setup";
/// Percentage of writing statements that are followed by a line: if the next statement writes to the same table, and if not.
const AMONG_WRITES: usize = 5;
const AFTER_WRITES: usize = 65;
const OF_SHARED: usize = 10;
/// Approximate maximum number of lines per script: scripts that insert hundreds of single rows get fewer.
const LINES_ABOUT: usize = 50;
/// Maximum number of scripts that cannot be parsed: another version may have new syntax.
const UNCUT_MAX: usize = 3;

#[derive(Args)]
pub struct Options {
    /// Directory of the scripts.
    #[arg(long)]
    scripts: PathBuf,
    /// Directory of the copies.
    #[arg(long)]
    to: PathBuf,
    /// Seed of the compression levels.
    #[arg(long)]
    seed: u64,
    /// Seed of the places of the lines, which affect what VACUUM changes in the output.
    #[arg(long)]
    places: u64,
    /// Percentage of the places that get a line.
    #[arg(long, default_value_t = 100)]
    share: usize,
    /// List of tables that are not compressed: lines with test, table (* for all), and reason.
    #[arg(long)]
    left_alone: PathBuf,
}

pub fn inject(options: &Options) -> Result<bool> {
    let list = std::fs::read_to_string(&options.left_alone)
        .with_context(|| format!("cannot read {}", options.left_alone.display()))?;
    let left_alone: HashSet<(&str, &str)> = list
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(test, rest)| Some((test, rest.split_whitespace().next()?)))
        .collect();
    let (mut scripts, mut lines, mut uncut) = (0, 0, Vec::new());
    for entry in
        std::fs::read_dir(&options.scripts).with_context(|| format!("cannot read {}", options.scripts.display()))?
    {
        let path = entry?.path();
        let (Some(name), Some(file)) = (path.file_stem().and_then(|name| name.to_str()), path.file_name()) else {
            continue;
        };
        // Some scripts contain bytes of other encodings.
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut text: String = bytes.iter().map(|&byte| byte as char).collect();
        if !left_alone.contains(&(name, "*")) {
            match injected(name, &text, options, |table| left_alone.contains(&(name, table))) {
                Some((with_lines, count)) => {
                    text = with_lines;
                    scripts += usize::from(count > 0);
                    lines += count;
                }
                None => uncut.push(name.to_owned()),
            }
        }
        let bytes: Vec<u8> = text.chars().map(|c| c as u8).collect();
        let to = options.to.join(file);
        std::fs::write(&to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
    }
    println!("seed {}, places {}: {lines} compressions in {scripts} scripts", options.seed, options.places);
    for name in &uncut {
        println!("note: {name} is unchanged: its statements could not be parsed");
    }
    Ok(lines > 0 && uncut.len() <= UNCUT_MAX)
}

/// Returns the script with injected lines, and their number, or None if the script cannot be parsed.
fn injected(name: &str, script: &str, options: &Options, left_alone: impl Fn(&str) -> bool) -> Option<(String, usize)> {
    let statements = statements(script)?;
    let stream = u64::from_str_radix(&super::fnv(&[name]), 16).expect("a digest is hexadecimal");
    let (mut rng, mut levels) = (Rng::new(options.places, stream), Rng::new(options.seed, stream));
    let mut shares = Rng::new(!options.places, stream);
    let ends = |pair: &[Statement]| pair[0].table.is_some() && pair[0].table != pair[1].table;
    let expected = statements.windows(2).filter(|pair| ends(pair)).count() * AFTER_WRITES / 100;
    let kept = 100 * LINES_ABOUT / expected.max(LINES_ABOUT);
    let mut temporary = HashSet::new();
    let mut after: BTreeMap<usize, String> = BTreeMap::new();
    for (at, statement) in statements.iter().enumerate() {
        let Some(table) = &statement.table else { continue };
        if statement.temporary {
            temporary.insert(table);
        }
        if temporary.contains(table) || left_alone(table) || table.contains(['\'', '\\']) || !rng.chance(kept) {
            continue;
        }
        let goes_on = statements.get(at + 1).is_some_and(|next| next.table.as_ref() == Some(table));
        let line = if rng.chance(if goes_on { AMONG_WRITES } else { AFTER_WRITES }) {
            format!("{LINE}{name} '{table}' '{}'", levels.pick(&LEVELS))
        } else if name != FIRST && rng.chance(OF_SHARED) {
            format!("{LINE}{name} '{}' '{}'", levels.pick(&SHARED), levels.pick(&LEVELS))
        } else {
            continue;
        };
        if shares.chance(options.share) {
            after.insert(statement.line, line);
        }
    }
    let mut text = String::new();
    for (number, line) in script.split_inclusive('\n').enumerate() {
        text.push_str(line);
        if let Some(line) = after.get(&number) {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(line);
            text.push('\n');
        }
    }
    Some((text, after.len()))
}

#[derive(Args)]
pub struct CompressOptions {
    /// Name of the test, for the log.
    test: String,
    /// Name of the tables, in any schema.
    table: String,
    level: String,
    /// Log file; one line is appended per table.
    #[arg(long)]
    log: PathBuf,
}

/// The result of one compression, as the log shows it.
enum CompressResult {
    /// No such table: not committed yet, or a view, or without partitions.
    Missing,
    /// The script's transaction, or another test, has a lock that conflicts with VACUUM.
    Busy,
    Failed(String),
    Done {
        /// Number of superseded blocks before the compression.
        superseded: i64,
        units: i64,
        blocks: i64,
    },
}

/// Time limit of the connection. A new session waits for a VACUUM FULL of a catalog, which may wait for the transaction of
/// the script that runs this program. The server cannot detect this deadlock, and statement_timeout does not apply.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// Time limit of the wait until fewer compression commands run than the cluster allows.
const SLOT_LIMIT: Duration = Duration::from_secs(60);

/// Returns None if no session starts within the limit.
fn connect_in_time(dsn: &str) -> Result<Option<Client>> {
    let (sender, receiver) = mpsc::channel();
    let dsn = dsn.to_owned();
    std::thread::spawn(move || {
        // Fails after the limit, when nothing receives the session.
        let _ = sender.send(connect(&dsn));
    });
    match receiver.recv_timeout(CONNECT_LIMIT) {
        Ok(client) => client.map(Some),
        Err(_) => Ok(None),
    }
}

pub fn compress(dsn: &str, options: &CompressOptions) -> Result<bool> {
    let outcome = match connect_in_time(dsn)? {
        None => CompressResult::Busy,
        Some(client) => compress_in(client, options)?,
    };
    let what = match &outcome {
        CompressResult::Missing => "missing".to_owned(),
        CompressResult::Busy => "busy".to_owned(),
        CompressResult::Failed(error) => format!("failed {error}"),
        CompressResult::Done { superseded, units, blocks } => {
            format!("done superseded={superseded} units={units} blocks={blocks}")
        }
    };
    let line = format!("{}\t{}\t{}\t{what}\n", options.test, options.table, options.level);
    let mut log = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(&options.log)
        .with_context(|| format!("cannot open {}", options.log.display()))?;
    // A single write, because other processes append lines at the same time.
    log.write_all(line.as_bytes())?;
    Ok(true)
}

fn compress_in(mut client: Client, options: &CompressOptions) -> Result<CompressResult> {
    client.batch_execute("SET statement_timeout = '60s'")?;
    prepare(&mut client)?;
    let tables = tables(&mut client, &options.table)?;
    Ok(match tables.first() {
        None => CompressResult::Missing,
        Some((_, true)) => CompressResult::Busy,
        Some((table, false)) => one(&mut client, *table, &options.level).unwrap_or_else(|error| {
            let code = error.downcast_ref::<postgres::Error>().and_then(postgres::Error::code);
            match code {
                // Another test has dropped its table of the same name.
                Some(&SqlState::UNDEFINED_TABLE) => CompressResult::Missing,
                _ => CompressResult::Failed(format!("{error:#}").replace('\n', " ")),
            }
        }),
    })
}

fn prepare(client: &mut Client) -> Result<()> {
    let there = "SELECT to_regprocedure('cellar_test.get_compression(oid)') IS NOT NULL";
    if client.query_one(there, &[])?.get(0) {
        return Ok(());
    }
    client.batch_execute(include_str!("../../../regress/functions.sql"))?;
    Ok(())
}

/// Returns the committed tables of a name, and whether a lock on each, or on its children, conflicts with VACUUM.
fn tables(client: &mut Client, name: &str) -> Result<Vec<(u32, bool)>> {
    let rows = client.query(
        "WITH RECURSIVE member (root, relation) AS (
             SELECT c.oid, c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
             WHERE c.relname = $1 AND c.relkind IN ('r', 'p', 'm') AND c.relpersistence <> 't'
                   AND n.nspname NOT IN ('pg_catalog', 'information_schema')
             UNION ALL
             SELECT m.root, i.inhrelid FROM member m JOIN pg_catalog.pg_inherits i ON i.inhparent = m.relation
         )
         SELECT m.root, bool_or(l.mode IS NOT NULL)
         FROM member m JOIN pg_catalog.pg_class c ON c.oid = m.relation LEFT JOIN pg_catalog.pg_locks l
              ON l.relation = m.relation AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
                 AND l.mode IN ('ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
         GROUP BY m.root HAVING bool_or(c.relkind IN ('r', 'm')) ORDER BY m.root DESC",
        &[&name],
    )?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

fn one(client: &mut Client, table: u32, level: &str) -> Result<CompressResult> {
    let superseded: i64 = client
        .query_one("SELECT coalesce(sum(superseded_blocks), 0)::int8 FROM cellar_test.get_compression($1)", &[&table])?
        .get(0);
    let started = Instant::now();
    while let Err(error) = client.query("SELECT cellar_test.compress_relation($1, $2)", &[&table, &level]) {
        // The scripts of a parallel group can be more than the compression commands that may run at once.
        if error.code() != Some(&SqlState::CONFIGURATION_LIMIT_EXCEEDED) || started.elapsed() > SLOT_LIMIT {
            return Err(error.into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let row = client.query_one(
        "SELECT coalesce(sum(units), 0)::int8, coalesce(sum(heap_bytes / 8192), 0)::int8
         FROM cellar_test.get_compression($1) WHERE level <> 'none'",
        &[&table],
    )?;
    Ok(CompressResult::Done { superseded, units: row.get(0), blocks: row.get(1) })
}

#[derive(Args)]
pub struct SumOptions {
    #[arg(long)]
    log: PathBuf,
    /// Minimum number of compressions that produced compression units.
    #[arg(long)]
    require_compressed: usize,
}

/// Prints a summary of the compressions. Passes if none failed and enough of them produced units.
pub fn sum_up(options: &SumOptions) -> Result<bool> {
    let log =
        std::fs::read_to_string(&options.log).with_context(|| format!("cannot read {}", options.log.display()))?;
    let (mut missing, mut busy, mut compressed, mut decompressed, mut small) = (0, 0, 0, 0, 0);
    let (mut rewritten, mut units, mut blocks) = (0, 0, 0);
    let mut tables = HashSet::new();
    let mut failed = Vec::new();
    for line in log.lines() {
        let fields: Vec<&str> = line.splitn(4, '\t').collect();
        let [_, table, level, what] = fields[..] else { bail!("unexpected line in the log: {line:?}") };
        match what.split_once(' ').map_or((what, ""), |parts| parts) {
            ("missing", _) => missing += 1,
            ("busy", _) => busy += 1,
            ("done", counts) => {
                let count = |name: &str| -> Result<u64> {
                    let value = counts.split(' ').find_map(|field| field.strip_prefix(name)).context("a count")?;
                    Ok(value.parse()?)
                };
                rewritten += u64::from(count("superseded=")? > 0);
                match (level, count("units=")?) {
                    ("none", _) => decompressed += 1,
                    (_, 0) => small += 1,
                    (_, of_it) => {
                        compressed += 1;
                        units += of_it;
                        blocks += count("blocks=")?;
                        tables.insert(table.to_owned());
                    }
                }
            }
            _ => failed.push(line),
        }
    }
    println!(
        "{compressed} compressions of {} tables produced {units} units of {blocks} blocks, {rewritten} of them replaced superseded blocks; {decompressed} decompressions; {small} tables were empty or not smaller, {missing} did not exist, {busy} were locked",
        tables.len()
    );
    for line in failed.iter().take(20) {
        println!("    {}", line.replace('\t', " "));
    }
    let enough = compressed >= options.require_compressed && rewritten > 0 && decompressed > 0;
    let verdict = |good: bool| if good { "ok" } else { "not ok" };
    println!(
        "{} - the suite's tables were compressed {compressed} times (required {}), some with superseded blocks, and decompressed",
        verdict(enough),
        options.require_compressed
    );
    println!(
        "{} - no compression failed in the suite ({} of {} failed)",
        verdict(failed.is_empty()),
        failed.len(),
        log.lines().count()
    );
    Ok(enough && failed.is_empty())
}

/// Returns an output without the injected lines.
pub fn without_lines(output: &str) -> String {
    output.split_inclusive('\n').filter(|line| !line.starts_with(LINE)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_injected_after_writing_statements_and_removed_from_outputs() {
        let script =
            "CREATE TEMP TABLE p AS SELECT 1;\nINSERT INTO p VALUES (2);\nINSERT INTO t\n VALUES (1);\nDELETE FROM a;\nSELECT 1;\n"
                .repeat(50);
        let folder = PathBuf::new();
        let options =
            Options { scripts: folder.clone(), to: folder.clone(), seed: 1, places: 1, share: 100, left_alone: folder };
        let (text, count) = injected("any", &script, &options, |table| table == "a").unwrap();
        assert!((10..50).contains(&count), "{count}");
        assert_eq!(without_lines(&text), script);
        assert!(!text.contains("'p'") && !text.contains("'a'"));
        for pair in text.lines().collect::<Vec<_>>().windows(2).filter(|pair| pair[1].starts_with(LINE)) {
            assert!([" VALUES (1);", "INSERT INTO p VALUES (2);"].contains(&pair[0]), "{pair:?}");
        }
        assert_eq!(
            injected("any", &script, &options, |table| table == "a").unwrap().0,
            text,
            "a seed gives the same lines"
        );
        assert!(injected("any", "SELECT 'open", &options, |_| false).is_none());
    }
}
