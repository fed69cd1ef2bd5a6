//! The load: writers that record acknowledged commits, DDL, compressions, and scans that compare Smart Scan on with off.
//!
//! Each session is a thread that stops when its connection breaks. The counts of all sessions are appended to a file as
//! lines `NAME COUNT`; the scripts add them up.

use super::{
    BALANCES, ErrorClass, LEVELS, PAUSE_AFTER_ERROR, TABLES, WRITERS, classify, commits, ddl, ddl_record, writer_record,
};
use crate::connect::{Offload, configure, connect, set_offload, text_rows};
use crate::differ::rng::Rng;
use anyhow::{Context, Result};
use clap::Args;
use postgres::{Client, Error};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

#[derive(Args)]
pub struct Options {
    /// Directory of the records of acknowledged commits.
    #[arg(long)]
    records: PathBuf,
    /// File that the counts of operations are appended to.
    #[arg(long)]
    counts: PathBuf,
    /// The cell dies: then a read of a block that the kernel has cached in part returns only this part.
    #[arg(long)]
    cell_dies: bool,
    /// Seed of the operations. The order of operations of different sessions is not reproducible.
    #[arg(long)]
    seed: u64,
}

/// Returns whether a message is PostgreSQL's error about an incomplete read of blocks. Since version 17, one read has
/// several blocks.
fn is_short_read(message: &str) -> bool {
    message.contains("could not read block") && message.contains(": read only ")
}

/// Counts of operations by name, and what was wrong.
#[derive(Default)]
struct Outcome {
    counts: BTreeMap<String, u64>,
    wrong: Vec<String>,
}

impl Outcome {
    fn count(&mut self, name: impl Into<String>, amount: u64) {
        *self.counts.entry(name.into()).or_default() += amount;
    }
}

type Operation<'a> = Box<dyn FnMut(&mut Client, &mut Rng) -> Result<Option<String>, Error> + Send + 'a>;

/// Runs the load until all sessions are lost. Returns false if a result was wrong.
pub fn run(dsn: &str, options: &Options) -> Result<bool> {
    let outcome = Mutex::new(Outcome::default());
    let mut ddl_record = append_to(&ddl_record(&options.records))?;
    let operations: [Operation<'_>; 3] = [
        Box::new(compress),
        Box::new(|client, rng| compare_scans(client, rng, &outcome)),
        Box::new(|client, rng| change(client, rng, &mut ddl_record)),
    ];
    std::thread::scope(|scope| {
        for writer in 1..=WRITERS {
            let (record, outcome) = (writer_record(&options.records, writer), &outcome);
            scope.spawn(move || write(dsn, writer, &record, outcome));
        }
        for (stream, mut operation) in (1..).zip(operations) {
            let (rng, outcome) = (Rng::new(options.seed, stream), &outcome);
            scope.spawn(move || repeat(dsn, rng, outcome, &mut operation));
        }
    });
    let mut outcome = outcome.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    if options.cell_dies {
        let (short, wrong) = outcome.wrong.drain(..).partition::<Vec<_>, _>(|message| is_short_read(message));
        outcome.wrong = wrong;
        outcome.count("short_reads", short.len() as u64);
    }
    let lines: String = outcome.counts.iter().map(|(name, count)| format!("{name} {count}\n")).collect();
    append_to(&options.counts)?.write_all(lines.as_bytes())?;
    for wrong in &outcome.wrong {
        println!("{wrong}");
    }
    Ok(outcome.wrong.is_empty())
}

fn append_to(path: &Path) -> Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.with_context(|| format!("cannot open {}", path.display()))
}

/// Runs a writer until its session is lost.
fn write(dsn: &str, writer: i64, record: &Path, outcome: &Mutex<Outcome>) {
    let result = commits::write(dsn, writer, record);
    let Ok(mut outcome) = outcome.lock() else { return };
    match result {
        Ok(committed) => outcome.count("acknowledged", committed),
        Err(error) => match error.downcast_ref::<Error>().map(classify) {
            // The session was lost, or the disk was full, before the first commit.
            Some(ErrorClass::Lost | ErrorClass::Expected(_)) => {}
            Some(ErrorClass::Damage(message)) => outcome.wrong.push(format!("writer {writer}: {message}")),
            None => outcome.wrong.push(format!("writer {writer}: {error:#}")),
        },
    }
}

/// Repeats an operation until the connection is lost. Counts each success under the name that the operation returns.
fn repeat(dsn: &str, mut rng: Rng, outcome: &Mutex<Outcome>, operation: &mut Operation<'_>) {
    let Ok(mut client) = connect(dsn) else { return };
    if configure(&mut client, &[], true).is_err() {
        return;
    }
    loop {
        let result = operation(&mut client, &mut rng);
        let Ok(mut outcome) = outcome.lock() else { return };
        match result {
            Ok(Some(name)) => outcome.count(name, 1),
            Ok(None) => {}
            Err(error) => match classify(&error) {
                ErrorClass::Lost => return,
                ErrorClass::Damage(message) => outcome.wrong.push(message),
                ErrorClass::Expected(sqlstate) => {
                    outcome.count(format!("error_{sqlstate}"), 1);
                    drop(outcome);
                    if client.batch_execute("ROLLBACK").is_err() {
                        return;
                    }
                    std::thread::sleep(PAUSE_AFTER_ERROR);
                }
            },
        }
    }
}

/// Compresses a random table at a random level, with the function or with the procedure.
fn compress(client: &mut Client, rng: &mut Rng) -> Result<Option<String>, Error> {
    let table = match rng.chance(50) {
        true => (*rng.pick(&TABLES)).to_owned(),
        false => ddl::random_table(rng),
    };
    let level = *rng.pick(&LEVELS);
    if rng.chance(50) {
        client.batch_execute(&format!("CALL cellar.compress_table('{table}', '{level}')"))?;
    } else {
        client.batch_execute(&format!("SELECT cellar.compress_relation('{table}', '{level}')"))?;
    }
    Ok(Some(if level == "none" { "decompressions" } else { "compressions" }.to_owned()))
}

/// Executes a random change and records its version after the commit was acknowledged.
fn change(client: &mut Client, rng: &mut Rng, record: &mut File) -> Result<Option<String>, Error> {
    let change = ddl::change(client, rng)?;
    if let Some(version) = change.version {
        // The record is on another file system than the cluster.
        if let Err(error) = record.write_all(format!("{} {version}\n", change.table).as_bytes()) {
            eprintln!("could not record a change: {error}");
        }
    }
    Ok(Some(format!("ddl_{}", change.kind.to_lowercase().replace(' ', "_"))))
}

/// Compares the rows of a random query with Smart Scan on and off under one snapshot.
fn compare_scans(client: &mut Client, rng: &mut Rng, outcome: &Mutex<Outcome>) -> Result<Option<String>, Error> {
    let query = match rng.below(4) {
        0 => BALANCES.to_owned(),
        1 => format!(
            "SELECT count(*), sum(aid), sum(abalance), min(filler) FROM pgbench_accounts WHERE aid % 10 <> {}",
            rng.below(10)
        ),
        2 => "SELECT writer, count(*), sum(sequence), max(filler) FROM acknowledged GROUP BY writer ORDER BY writer"
            .into(),
        _ => format!(
            "SELECT count(*), sum(id), sum(value), max(filler) FROM {} WHERE value < {}",
            ddl::random_table(rng),
            rng.below(110)
        ),
    };
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
    set_offload(client, Offload::On)?;
    let on = text_rows(client, &query)?;
    set_offload(client, Offload::Off)?;
    let off = text_rows(client, &query)?;
    client.batch_execute("COMMIT")?;
    let is_balanced = query != BALANCES || on.iter().all(|row| row.iter().all(|sum| *sum == row[0]));
    if (on != off || !is_balanced)
        && let Ok(mut outcome) = outcome.lock()
    {
        outcome.wrong.push(format!("{query}: {on:?} with Smart Scan on, {off:?} with off"));
    }
    Ok(Some("scans".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::is_short_read;

    #[test]
    fn short_reads_of_one_and_of_several_blocks_are_recognized() {
        for message in [
            "could not read block 33 in file \"base/5/16403\": read only 0 of 8192 bytes",
            "could not read blocks 33..35 in file \"pg_tblspc/16384/PG_19_202610061/5/16403\": read only 8192 of 24576 bytes",
        ] {
            assert!(is_short_read(message), "{message}");
        }
        for message in [
            "invalid page in block 33 of relation \"base/5/16403\"",
            "could not read blocks 33..35 in file \"base/5/16403\": Input/output error",
        ] {
            assert!(!is_short_read(message), "{message}");
        }
    }
}
