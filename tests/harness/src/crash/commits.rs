//! Acknowledged commits: writes numbered rows, records each row after the server acknowledged its commit, and later checks
//! that no recorded row is missing.
//!
//! The record file has one line per row, and is on another file system than the cluster. The lines of a commit are
//! appended by one write. Commits without acknowledgement are not checked.

use super::{Check, ErrorClass, PAUSE_AFTER_ERROR, classify};
use crate::connect::connect;
use anyhow::{Context, Result};
use postgres::Client;
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

pub const TABLE: &str =
    "CREATE TABLE acknowledged (writer bigint, sequence bigint, filler text, PRIMARY KEY (writer, sequence))";

/// Commits rows until the session is lost. Returns the number of acknowledged commits.
pub fn write(dsn: &str, writer: i64, record: &Path) -> Result<u64> {
    let mut client = connect(dsn)?;
    let file = OpenOptions::new().create(true).append(true).open(record);
    let mut file = file.with_context(|| format!("cannot open {}", record.display()))?;
    let last = "SELECT coalesce(max(sequence), 0) FROM acknowledged WHERE writer = $1";
    let mut sequence: i64 = client.query_one(last, &[&writer])?.get(0);
    let insert = client.prepare(
        "INSERT INTO acknowledged VALUES ($1, $2, repeat(md5(($2::bigint)::text), (1 + $2::bigint % 40)::int))",
    )?;
    let mut committed = 0;
    loop {
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
            Ok(()) => {
                file.write_all(lines(writer, first, sequence).as_bytes())?;
                committed += 1;
            }
            Err(error) => match classify(&error) {
                ErrorClass::Lost => return Ok(committed),
                ErrorClass::Damage(_) => return Err(error.into()),
                ErrorClass::Expected(_) => std::thread::sleep(PAUSE_AFTER_ERROR),
            },
        }
    }
}

fn lines(writer: i64, first: i64, last: i64) -> String {
    (first..=last).map(|sequence| format!("{writer} {sequence}\n")).collect()
}

/// Checks that the table contains every recorded row, and that every row has the filler of its number.
pub fn verify(client: &mut Client, records: &[PathBuf]) -> Result<Check> {
    let rows = client.query("SELECT writer, sequence FROM acknowledged", &[])?;
    let present: BTreeSet<(i64, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let damaged: i64 = client
        .query_one(
            "SELECT count(*) FROM acknowledged WHERE filler <> repeat(md5(sequence::text), 1 + sequence::int % 40)",
            &[],
        )?
        .get(0);
    let (mut recorded, mut missing) = (0, Vec::new());
    for path in records {
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
    let text = format!(
        "{recorded} acknowledged rows, {} missing, {damaged} damaged rows{}",
        missing.len(),
        missing.first().map_or(String::new(), |first| format!(", first missing (writer, sequence) {first:?}"))
    );
    Ok(Check { passed: missing.is_empty() && damaged == 0, text })
}
