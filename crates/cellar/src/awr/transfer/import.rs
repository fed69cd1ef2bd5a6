//! `cellar awr import`: copies the tables of an export file to temporary tables, which awr.merge_import() merges.
//!
//! The file is verified before the first statement, and one transaction imports all of it.

use super::super::repository::{Repository, failure};
use super::super::source::Failure;
use super::file::{Line, Reader, TableHeader};
use postgres::Transaction;
use std::io::{BufWriter, Write};
use std::path::Path;

/// What the import has added to an instance.
#[derive(serde::Serialize)]
pub struct Imported {
    pub instance_id: i32,
    pub instance: String,
    pub snapshots: i64,
    /// The first and the last added AWR snapshot; None if none was added.
    pub first: Option<i64>,
    pub last: Option<i64>,
}

pub fn import(repository: &mut Repository, file: &Path) -> Result<Vec<Imported>, Failure> {
    Reader::verify(file)?;
    let mut transaction = repository.client().transaction().map_err(|error| failure(&error))?;
    transaction
        .batch_execute("SET LOCAL timezone = 'UTC'; SET LOCAL datestyle = 'ISO, YMD'")
        .map_err(|error| failure(&error))?;
    let mut reader = Reader::open(file)?;
    let has_masked_names = reader.has_masked_names();
    loop {
        match reader.next()? {
            Line::Table(table) => stage(&mut transaction, &mut reader, &table)?,
            Line::End => break,
            Line::Row | Line::EndOfTable => {
                return Err(Failure::error(format!("\"{}\" contains a row outside of a table", file.display())));
            }
        }
    }
    let sql = "SELECT instance_id, instance, snapshots, first_snap, last_snap FROM awr.merge_import()";
    let rows = transaction.query(sql, &[]).map_err(|error| failure(&error))?;
    let imported: Vec<Imported> = rows
        .iter()
        .map(|row| Imported {
            instance_id: row.get(0),
            instance: row.get(1),
            snapshots: row.get(2),
            first: row.get(3),
            last: row.get(4),
        })
        .collect();
    if has_masked_names {
        check_masked_names(&mut transaction, &imported)?;
    }
    transaction.commit().map_err(|error| failure(&error))?;
    Ok(imported)
}

/// Each export numbers its masked names from 1, so that `table_1` of one export is not `table_1` of another. Refuses AWR snapshots
/// for an instance that has AWR snapshots of another export.
fn check_masked_names(transaction: &mut Transaction<'_>, imported: &[Imported]) -> Result<(), Failure> {
    for added in imported.iter().filter(|added| added.snapshots > 0) {
        let sql = "SELECT count(*) FROM awr.snapshot WHERE instance_id = $1";
        let row = transaction.query_one(sql, &[&added.instance_id]).map_err(|error| failure(&error))?;
        if row.get::<_, i64>(0) > added.snapshots {
            return Err(Failure::error(format!(
                "AWR instance \"{}\" already has AWR snapshots of another export",
                added.instance
            ))
            .detail("Each export numbers its masked names from 1: the names of two exports contradict each other. Nothing was imported.")
            .hint("Export all AWR snapshots to one file, or import each file into another database."));
        }
    }
    Ok(())
}

/// Copies a table of the file to a temporary table.
fn stage(transaction: &mut Transaction<'_>, reader: &mut Reader, table: &TableHeader) -> Result<(), Failure> {
    let known = "SELECT array_agg(a.attname::text) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid \
                 WHERE c.relnamespace = 'awr'::regnamespace AND c.relname = $1 AND c.relkind IN ('p', 'r') AND NOT c.relispartition \
                 AND a.attnum > 0 AND NOT a.attisdropped";
    let known: Option<Vec<String>> =
        transaction.query_one(known, &[&table.name]).map_err(|error| failure(&error))?.get(0);
    let unknown = match &known {
        None => Some(format!("Table awr.{} does not exist in this repository.", table.name)),
        Some(known) => {
            let missing = table.columns.iter().find(|column| !known.contains(column));
            missing.map(|column| format!("Table awr.{} has no column {column} in this repository.", table.name))
        }
    };
    if let Some(detail) = unknown {
        return Err(Failure::error("the file was written by a newer release")
            .detail(detail)
            .hint("Update the extension: ALTER EXTENSION cellar UPDATE."));
    }
    // The names are those of the catalog.
    let columns: Vec<String> = table.columns.iter().map(|column| format!("\"{column}\"")).collect();
    let (name, columns) = (&table.name, columns.join(", "));
    let create =
        format!("CREATE TEMP TABLE \"awr_import_{name}\" ON COMMIT DROP AS SELECT * FROM awr.\"{name}\" WITH NO DATA");
    transaction.batch_execute(&create).map_err(|error| failure(&error))?;
    let copy = format!("COPY pg_temp.\"awr_import_{name}\" ({columns}) FROM STDIN");
    let mut rows = BufWriter::with_capacity(1 << 16, transaction.copy_in(&copy).map_err(|error| failure(&error))?);
    while let Line::Row = reader.next()? {
        let mut write = || {
            rows.write_all(reader.line.as_bytes())?;
            rows.write_all(b"\n")
        };
        write().map_err(|error| super::export::copy_failure(&error))?;
    }
    let rows = rows.into_inner().map_err(|error| super::export::copy_failure(error.error()))?;
    rows.finish().map_err(|error| failure(&error))?;
    // The planner needs the number of rows.
    transaction.batch_execute(&format!("ANALYZE pg_temp.\"awr_import_{name}\"")).map_err(|error| failure(&error))
}
