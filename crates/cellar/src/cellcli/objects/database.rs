//! DATABASE: the databases whose files the cell serves, with the operations on these files. A database has the name that its server
//! has told the cell; until then, its OID after the root of its files.

use super::super::connection::Connection;
use super::super::error::Error;
use super::super::value::Value;
use super::{Object, ObjectType};
use crate::cell_source::{Metrics, label};
use std::collections::BTreeMap;

pub struct Database;

/// The names of databases that their servers have told the cell, by root and OID.
pub struct DatabaseNames(BTreeMap<(String, String), String>);

impl DatabaseNames {
    pub fn of(metrics: &Metrics<'_>) -> Self {
        let samples = metrics.samples("cellar_database_info");
        let name = |sample| ((label(sample, "root"), label(sample, "database")), label(sample, "name"));
        Self(samples.map(name).collect())
    }

    /// Returns the name of a database; its OID after the root of its files if the cell does not know the name.
    pub fn name(&self, root: &str, oid: impl ToString) -> String {
        let oid = oid.to_string();
        match self.0.get(&(root.to_owned(), oid.clone())) {
            Some(name) => name.clone(),
            None if root.is_empty() => oid,
            None => format!("{root}/{oid}"),
        }
    }
}

/// Operations and bytes of each kind.
#[derive(Default)]
struct Io {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    written_bytes: u64,
    syncs: u64,
}

impl ObjectType for Database {
    fn name(&self) -> &'static str {
        "DATABASE"
    }

    fn title(&self) -> &'static str {
        "Database"
    }

    fn attributes(&self) -> &'static [&'static str] {
        &["name", "clusterRoot", "databaseID", "readRequests", "readSize", "syncRequests", "writeRequests", "writeSize"]
    }

    fn default_attributes(&self) -> &'static [&'static str] {
        &["name"]
    }

    fn read(&self, cell: &Connection) -> Result<Vec<Object>, Error> {
        let document = cell.metrics()?;
        let metrics = Metrics(&document);
        let mut databases: BTreeMap<(String, u64), Io> = BTreeMap::new();
        let operations = metrics.samples("cellar_file_operations_total");
        for (operations, bytes) in operations.zip(metrics.samples("cellar_file_bytes_total")) {
            // Files without a database have another label.
            let Ok(oid) = label(operations, "database").parse() else { continue };
            let io = databases.entry((label(operations, "root"), oid)).or_default();
            let [operations_count, bytes_count] =
                [operations, bytes].map(|sample| sample["value"].as_u64().unwrap_or(0));
            match label(operations, "kind").as_str() {
                "sync" => io.syncs += operations_count,
                kind if kind.ends_with("read") => {
                    io.reads += operations_count;
                    io.read_bytes += bytes_count;
                }
                _ => {
                    io.writes += operations_count;
                    io.written_bytes += bytes_count;
                }
            }
        }
        let names = DatabaseNames::of(&metrics);
        let object = |((root, oid), io): ((String, u64), Io)| {
            vec![
                names.name(&root, oid).into(),
                root.into(),
                Value::Count(oid),
                Value::Count(io.reads),
                Value::Size(io.read_bytes),
                Value::Count(io.syncs),
                Value::Count(io.writes),
                Value::Size(io.written_bytes),
            ]
        };
        Ok(databases.into_iter().map(object).collect())
    }
}
