//! Statements of a document, summed over roles and plans.

use crate::document::{Document, Measure};
use crate::figures::{percent, sum};
use crate::sql_id;
use std::collections::{BTreeMap, BTreeSet};

/// A statement: one query identifier in one database, summed over roles and plans.
#[derive(Clone, Debug, Default)]
pub struct Sql<'a> {
    pub query_id: Option<i64>,
    pub database: &'a str,
    pub roles: BTreeSet<&'a str>,
    pub text: &'a str,
    pub plans: BTreeSet<i64>,
    pub calls: Measure,
    pub plan_calls: Measure,
    pub plan_us: Measure,
    pub elapsed_us: Measure,
    pub cpu_us: Measure,
    pub io_us: Measure,
    pub rows: Measure,
    pub gets: Measure,
    pub reads: Measure,
    pub writes: Measure,
    pub temp_blocks: Measure,
    pub temp_us: Measure,
    pub wal_records: Measure,
    pub wal_fpi: Measure,
    pub wal_bytes: Measure,
    pub jit_us: Measure,
    pub eligible_bytes: Measure,
    pub saved_bytes: Measure,
    pub returned_bytes: Measure,
    pub max_us: Measure,
}

impl Sql<'_> {
    /// Database and roles, in the place of Oracle's module.
    pub fn module(&self) -> String {
        let roles: Vec<&str> = self.roles.iter().copied().filter(|role| !role.is_empty()).collect();
        match (roles.is_empty(), self.database.is_empty()) {
            (true, _) => self.database.to_owned(),
            (_, true) => roles.join(","),
            _ => format!("{}@{}", roles.join(","), self.database),
        }
    }

    pub fn percent_cpu(&self) -> Measure {
        percent(self.cpu_us, self.elapsed_us)
    }

    pub fn percent_io(&self) -> Measure {
        percent(self.io_us, self.elapsed_us)
    }

    /// The statement's name: its SQL_ID, or what stands for statements without an identifier.
    pub fn name(&self) -> String {
        match self.query_id {
            Some(0) | None => "(evicted)".to_owned(),
            Some(query_id) => sql_id::format(query_id),
        }
    }
}

/// Sums the document's statements by database and query identifier.
pub fn aggregate(document: &Document) -> Vec<Sql<'_>> {
    let mut all: BTreeMap<(&str, Option<i64>), Sql<'_>> = BTreeMap::new();
    for statement in &document.statements {
        let sql = all.entry((&statement.database, statement.query_id)).or_default();
        let add = |total: &mut Measure, value: Measure| *total = sum([*total, value]);
        sql.query_id = statement.query_id;
        sql.database = &statement.database;
        sql.roles.insert(&statement.role);
        if sql.text.is_empty() {
            sql.text = &statement.text;
        }
        sql.plans.extend(statement.plan_id.filter(|plan_id| *plan_id != 0));
        add(&mut sql.calls, statement.calls);
        add(&mut sql.plan_calls, statement.plans);
        add(&mut sql.plan_us, statement.plan_us);
        add(&mut sql.elapsed_us, statement.elapsed_us);
        add(&mut sql.cpu_us, statement.cpu_us);
        add(&mut sql.rows, statement.rows);
        let (shared_hit, shared_read) = (statement.shared_blks_hit, statement.shared_blks_read);
        add(&mut sql.gets, sum([shared_hit, shared_read, statement.local_blks_hit, statement.local_blks_read]));
        add(&mut sql.reads, sum([shared_read, statement.local_blks_read]));
        add(&mut sql.writes, sum([statement.shared_blks_written, statement.local_blks_written]));
        add(&mut sql.temp_blocks, sum([statement.temp_blks_read, statement.temp_blks_written]));
        let temp_us = sum([statement.temp_blk_read_us, statement.temp_blk_write_us]);
        add(&mut sql.temp_us, temp_us);
        add(&mut sql.io_us, sum([statement.blk_read_us, statement.blk_write_us, temp_us]));
        add(&mut sql.wal_records, statement.wal_records);
        add(&mut sql.wal_fpi, statement.wal_fpi);
        add(&mut sql.wal_bytes, statement.wal_bytes);
        add(&mut sql.jit_us, statement.jit_us);
        add(&mut sql.eligible_bytes, statement.eligible_bytes);
        add(&mut sql.saved_bytes, statement.saved_bytes);
        add(&mut sql.returned_bytes, statement.returned_bytes);
        sql.max_us = match (sql.max_us, statement.max_us) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
    }
    all.into_values().collect()
}
