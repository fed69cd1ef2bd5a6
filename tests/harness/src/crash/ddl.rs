//! Random DDL on a few tables whose contents are predictable.
//!
//! `ddl_state` has a row per table: whether the table exists, the number and the sum of its `id`s, and a version. Every
//! transaction that changes a table's rows or existence also changes the table's row in `ddl_state` and increments the
//! version. After a crash, tables and states must therefore agree, and no version may precede an acknowledged one.

use super::Check;
use crate::differ::rng::Rng;
use anyhow::{Context, Result};
use postgres::{Client, Error};
use std::collections::BTreeMap;
use std::path::Path;

/// Number of tables.
const TABLES: usize = 6;
/// Maximum rows that one statement inserts: some allocation units.
const ROWS_MAX: i64 = 30_000;

fn table(number: usize) -> String {
    format!("ddl_{number}")
}

pub fn random_table(rng: &mut Rng) -> String {
    table(rng.below(TABLES))
}

/// Returns the statements that create `ddl_state`.
pub fn setup() -> String {
    format!(
        "CREATE TABLE ddl_state (name text PRIMARY KEY, version bigint, present bool, ids bigint, total numeric);
         INSERT INTO ddl_state SELECT 'ddl_' || g, 0, false, 0, 0 FROM generate_series(0, {}) g",
        TABLES - 1
    )
}

/// Returns the rows with the given ids, as a query.
fn rows(first: i64, last: i64) -> String {
    format!(
        "SELECT g AS id, g % 97 AS value, repeat(md5(g::text), 1 + (g % 5)::int) AS filler
         FROM generate_series({first}::bigint, {last}::bigint) g"
    )
}

/// A change of one table.
pub struct Change {
    pub kind: &'static str,
    pub table: String,
    /// Version of the table's state once the change has committed; None if the change is not recorded.
    pub version: Option<i64>,
}

/// Executes a random change of a random table.
///
/// Each change is one transaction, sent as one query string.
pub fn change(client: &mut Client, rng: &mut Rng) -> std::result::Result<Change, Error> {
    let table = random_table(rng);
    let row = client.query_one("SELECT version, present, ids FROM ddl_state WHERE name = $1", &[&table])?;
    let (version, present, ids): (i64, bool, i64) = (row.get(0), row.get(1), row.get(2));
    let count = rng.between(1, ROWS_MAX);
    let digit = rng.below(10);
    let set = |fields: &str| {
        format!("UPDATE ddl_state SET version = {version} + 1, {fields} WHERE name = '{table}' AND version = {version}")
    };
    let whole = format!("ids = {count}, total = trunc({count}::numeric * ({count} + 1) / 2)");
    let (kind, is_recorded, statements) = match rng.below(13) {
        _ if !present => (
            "CREATE TABLE",
            true,
            format!("CREATE TABLE {table} AS {}; {}", rows(1, count), set(&format!("present = true, {whole}"))),
        ),
        0 => ("DROP TABLE", true, format!("DROP TABLE {table}; {}", set("present = false, ids = 0, total = 0"))),
        1 => ("TRUNCATE", true, format!("TRUNCATE {table}; INSERT INTO {table} {}; {}", rows(1, count), set(&whole))),
        2 | 3 => {
            // Ids are unique: new ids are larger than all ids that the table ever had.
            let first = (version + 1) * 10 * ROWS_MAX;
            let last = first + count / 4;
            let added = last - first + 1;
            let state =
                set(&format!("ids = ids + {added}, total = total + trunc({added}::numeric * ({first} + {last}) / 2)"));
            ("INSERT", true, format!("INSERT INTO {table} {}; {state}", rows(first, last)))
        }
        4 => {
            let state =
                set("ids = ids - (SELECT count(*) FROM d), total = total - (SELECT coalesce(sum(id), 0) FROM d)");
            ("DELETE", true, format!("WITH d AS (DELETE FROM {table} WHERE id % 10 = {digit} RETURNING id) {state}"))
        }
        5 | 6 => ("UPDATE", false, format!("UPDATE {table} SET value = value + 1 WHERE id % 10 = {digit}")),
        7 => ("VACUUM FULL", false, format!("VACUUM FULL {table}")),
        8 => ("VACUUM", false, format!("VACUUM (FREEZE) {table}")),
        9 => ("CREATE INDEX", false, format!("CREATE INDEX IF NOT EXISTS {table}_id ON {table} (id)")),
        10 => ("DROP INDEX", false, format!("DROP INDEX IF EXISTS {table}_id")),
        11 => ("REINDEX", false, format!("REINDEX TABLE {table}")),
        _ => {
            let data_type = if ids % 2 == 0 { "bigint" } else { "numeric" };
            ("ALTER TABLE", false, format!("ALTER TABLE {table} ALTER COLUMN value TYPE {data_type}"))
        }
    };
    client.batch_execute(&statements)?;
    Ok(Change { kind, table, version: is_recorded.then_some(version + 1) })
}

/// Returns the names of the tables that exist.
pub fn existing_tables(client: &mut Client) -> Result<Vec<String>> {
    let rows =
        client.query("SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relname ~ '^ddl_[0-9]+$'", &[])?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Checks that every table has the contents that its state describes, and that no state precedes an acknowledged one.
pub fn verify(client: &mut Client, record: &Path) -> Result<Check> {
    let acknowledged = acknowledged_versions(record)?;
    let existing = existing_tables(client)?;
    let mut wrong = Vec::new();
    for row in client.query("SELECT name, version, present, ids, total::text FROM ddl_state ORDER BY name", &[])? {
        let (name, version, present): (String, i64, bool) = (row.get(0), row.get(1), row.get(2));
        let expected: (i64, String, i64) = (row.get(3), row.get(4), 0);
        if acknowledged.get(&name).is_some_and(|acknowledged| *acknowledged > version) {
            wrong.push(format!("{name} has version {version}, {} was acknowledged", acknowledged[&name]));
        }
        if existing.contains(&name) != present {
            wrong.push(format!("{name} {}", if present { "is missing" } else { "exists after DROP TABLE" }));
            continue;
        }
        if present {
            let damaged = "count(*) FILTER (WHERE filler IS DISTINCT FROM repeat(md5(id::text), 1 + (id % 5)::int))";
            let query = format!("SELECT count(*), coalesce(sum(id), 0)::text, {damaged} FROM {name}");
            let row = client.query_one(&query, &[])?;
            let found: (i64, String, i64) = (row.get(0), row.get(1), row.get(2));
            if found != expected {
                wrong.push(format!("{name} has (rows, sum, damaged rows) {found:?} instead of {expected:?}"));
            }
        }
    }
    let text = match wrong.is_empty() {
        true => format!("{} tables changed by DDL have the rows of their last change", existing.len()),
        false => wrong.join("; "),
    };
    Ok(Check { passed: wrong.is_empty(), text })
}

/// Returns the last acknowledged version of each table.
fn acknowledged_versions(record: &Path) -> Result<BTreeMap<String, i64>> {
    let mut versions = BTreeMap::new();
    if record.exists() {
        let text = std::fs::read_to_string(record).with_context(|| format!("cannot read {}", record.display()))?;
        for line in text.lines() {
            let (name, version) = line.split_once(' ').with_context(|| format!("\"{line}\" is not a record"))?;
            versions.insert(name.to_owned(), version.parse()?);
        }
    }
    Ok(versions)
}
