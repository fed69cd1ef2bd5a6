//! Durability check: commits numbered rows, records each row after the server acknowledged its commit, and later checks
//! that no recorded row is missing.
//!
//! The record file has one line per row, and is on another file system than the cluster. The lines of a commit are
//! appended by one write. Commits without acknowledgement are not checked.

use crate::connect::connect;
use anyhow::{Context, Result};
use clap::Args;
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;

#[derive(Args)]
pub struct WriteOptions {
    /// Record file to append to.
    #[arg(long)]
    record: PathBuf,
    /// Number that identifies the rows of this writer.
    #[arg(long)]
    writer: i64,
    /// Stop after this number of commits; 0 continues until the server disappears.
    #[arg(long, default_value_t = 0)]
    commits: u64,
}

#[derive(Args)]
pub struct VerifyOptions {
    /// Record files to check.
    #[arg(required = true)]
    records: Vec<PathBuf>,
}

pub fn write(dsn: &str, options: &WriteOptions) -> Result<bool> {
    let mut client = connect(dsn)?;
    let writer = options.writer;
    let record = OpenOptions::new().create(true).append(true).open(&options.record);
    let mut record = record.with_context(|| format!("cannot open {}", options.record.display()))?;
    let last = "SELECT coalesce(max(sequence), 0) FROM acknowledged WHERE writer = $1";
    let mut sequence: i64 = client.query_one(last, &[&writer])?.get(0);
    let insert = client.prepare(
        "INSERT INTO acknowledged VALUES ($1, $2, repeat(md5(($2::bigint)::text), (1 + $2::bigint % 40)::int))",
    )?;
    let mut committed = 0;
    while options.commits == 0 || committed < options.commits {
        sequence += 1;
        let first = sequence;
        // Every third sequence number starts a transaction of two rows; the others are single-row commits.
        let outcome = if sequence % 3 == 0 {
            sequence += 1;
            client.transaction().and_then(|mut transaction| {
                transaction.execute(&insert, &[&writer, &first])?;
                transaction.execute(&insert, &[&writer, &sequence])?;
                transaction.commit()
            })
        } else {
            client.execute(&insert, &[&writer, &sequence]).map(|_| ())
        };
        match outcome {
            Ok(()) => record.write_all(lines(writer, first, sequence).as_bytes())?,
            // The test killed the server.
            Err(error) if error.is_closed() || error.code().is_none() => break,
            Err(error) => {
                eprintln!("writer {writer}: {error}: {}", error.as_db_error().map_or("", |e| e.message()));
                break;
            }
        }
        committed += 1;
    }
    println!("writer {writer}: {committed} commits acknowledged");
    Ok(true)
}

fn lines(writer: i64, first: i64, last: i64) -> String {
    (first..=last).map(|sequence| format!("{writer} {sequence}\n")).collect()
}

pub fn verify(dsn: &str, options: &VerifyOptions) -> Result<bool> {
    let mut client = connect(dsn)?;
    let rows = client.query("SELECT writer, sequence FROM acknowledged", &[])?;
    let present: BTreeSet<(i64, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let damaged: i64 = client
        .query_one(
            "SELECT count(*) FROM acknowledged WHERE filler <> repeat(md5(sequence::text), 1 + sequence::int % 40)",
            &[],
        )?
        .get(0);
    let (mut recorded, mut missing) = (0, Vec::new());
    for path in &options.records {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        for line in text.lines() {
            let (writer, sequence) = line.split_once(' ').with_context(|| format!("\"{line}\" is not a record"))?;
            recorded += 1;
            let key = (writer.parse()?, sequence.parse()?);
            if !present.contains(&key) {
                missing.push(key);
            }
        }
    }
    println!(
        "{recorded} acknowledged rows, {} missing, {damaged} damaged rows{}",
        missing.len(),
        missing.first().map_or(String::new(), |first| format!(", first missing (writer, sequence) {first:?}"))
    );
    Ok(missing.is_empty() && damaged == 0)
}
