//! The load of the crash and soak tests, and the checks after a crash.
//!
//! [`setup()`] creates the tables. [`load::run`] writes, scans, compresses and changes tables until its sessions break.
//! [`verify::run`] checks the database after recovery: no acknowledged commit is missing, and all tables have consistent
//! contents, with Smart Scan on and off.
//!
//! The scripts run pgbench beside this load; its tables are scanned, compressed and checked, too.

mod commits;
mod ddl;
pub mod load;
pub mod verify;

use crate::connect::connect;
use anyhow::Result;
use postgres::error::SqlState;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Tables that are scanned and compressed, in addition to those of [`ddl`].
const TABLES: [&str; 3] = ["pgbench_accounts", "pgbench_history", "acknowledged"];
/// Compression levels; "none" decompresses.
const LEVELS: [&str; 6] = ["query low", "query low", "query high", "archive low", "archive high", "none"];
/// Number of sessions that record acknowledged commits.
const WRITERS: i64 = 2;
/// A session waits this long after an error: on a full disk, every statement fails.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(20);
/// The four sums that pgbench keeps equal.
const BALANCES: &str =
    "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(bbalance) FROM pgbench_branches),
    (SELECT sum(tbalance) FROM pgbench_tellers), (SELECT coalesce(sum(delta), 0) FROM pgbench_history)";

/// Returns the record of a writer's acknowledged commits.
fn writer_record(records: &Path, writer: i64) -> PathBuf {
    records.join(format!("writer{writer}"))
}

/// Returns the record of acknowledged DDL.
fn ddl_record(records: &Path) -> PathBuf {
    records.join("ddl")
}

/// Creates the tables of the load, except those of pgbench.
pub fn setup(dsn: &str) -> Result<bool> {
    let mut client = connect(dsn)?;
    client.batch_execute(commits::TABLE)?;
    client.batch_execute(&ddl::setup())?;
    Ok(true)
}

/// The outcome of one check.
struct Check {
    passed: bool,
    /// What was checked and found.
    text: String,
}

/// The effect of an error on a session of the load.
enum ErrorClass {
    /// The session is lost, because the test killed a server process.
    Lost,
    /// PostgreSQL found damaged data.
    Damage(String),
    /// An error that the load expects, such as a full disk or a deadlock; with its SQLSTATE.
    Expected(String),
}

fn classify(error: &postgres::Error) -> ErrorClass {
    let Some(db_error) = error.as_db_error() else { return ErrorClass::Lost };
    let code = db_error.code();
    if [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW].contains(code) {
        ErrorClass::Lost
    } else if [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED].contains(code) {
        ErrorClass::Damage(format!("{}: {}", code.code(), db_error.message()))
    } else {
        ErrorClass::Expected(code.code().to_owned())
    }
}
