//! DATABASE: the databases whose files the cell serves, with the operations on these files. A database has the name that its server
//! has told the cell; until then, its OID after the root of its files.

use super::super::connection::Connection;
use super::super::error::Error;
use super::super::value::Value;
use super::{Object, ObjectType};
use crate::cell_source::{Metrics, label};
use std::collections::BTreeMap;

pub struct Database;

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
        let names: BTreeMap<(String, String), String> = metrics
            .samples("cellar_database_info")
            .map(|sample| ((label(sample, "root"), label(sample, "database")), label(sample, "name")))
            .collect();
        let object = |((root, oid), io): ((String, u64), Io)| {
            let unnamed = || if root.is_empty() { oid.to_string() } else { format!("{root}/{oid}") };
            let name = names.get(&(root.clone(), oid.to_string())).cloned().unwrap_or_else(unnamed);
            vec![
                name.into(),
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
