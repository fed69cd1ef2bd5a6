//! Statements of a document, summed over roles and plans.

use crate::document::{Document, Measure, Statement, is_foreground_type};
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
    /// Whether a session executed the statement; None if the document does not tell it.
    pub in_sessions: Option<bool>,
    pub plans: BTreeSet<i64>,
    pub calls: Measure,
    pub plan_calls: Measure,
    pub plan_us: Measure,
    pub parse_calls: Measure,
    pub parse_us: Measure,
    pub elapsed_us: Measure,
    pub cpu_us: Measure,
    /// Time that sessions were ready to run, but waited for a CPU.
    pub run_queue_us: Measure,
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
    pub optimized_bytes: Measure,
    pub returned_bytes: Measure,
    pub max_us: Measure,
    /// Whether background workers executed the statement: its time is no part of DB time.
    pub is_background: bool,
}

impl<'a> Sql<'a> {
    /// Adds the figures of one role and plan.
    fn add(&mut self, statement: &'a Statement) {
        let add = |total: &mut Measure, value: Measure| *total = sum([*total, value]);
        self.query_id = statement.query_id;
        self.database = &statement.database;
        self.roles.insert(&statement.role);
        if self.text.is_empty() {
            self.text = &statement.text;
        }
        if let Some(name) = statement.backend_type.known() {
            self.in_sessions = Some(self.in_sessions.unwrap_or(false) || is_foreground_type(name));
        }
        self.plans.extend(statement.plan_id.filter(|plan_id| *plan_id != 0));
        add(&mut self.calls, statement.calls);
        add(&mut self.plan_calls, statement.plans);
        add(&mut self.plan_us, statement.plan_us);
        add(&mut self.parse_calls, statement.parses);
        add(&mut self.parse_us, statement.parse_us);
        add(&mut self.elapsed_us, statement.elapsed_us);
        add(&mut self.cpu_us, statement.cpu_us);
        add(&mut self.run_queue_us, statement.run_queue_us);
        add(&mut self.rows, statement.rows);
        let (shared_hit, shared_read) = (statement.shared_blks_hit, statement.shared_blks_read);
        add(&mut self.gets, sum([shared_hit, shared_read, statement.local_blks_hit, statement.local_blks_read]));
        add(&mut self.reads, sum([shared_read, statement.local_blks_read]));
        add(&mut self.writes, sum([statement.shared_blks_written, statement.local_blks_written]));
        add(&mut self.temp_blocks, sum([statement.temp_blks_read, statement.temp_blks_written]));
        let temp_us = sum([statement.temp_blk_read_us, statement.temp_blk_write_us]);
        add(&mut self.temp_us, temp_us);
        add(&mut self.io_us, sum([statement.blk_read_us, statement.blk_write_us, temp_us]));
        add(&mut self.wal_records, statement.wal_records);
        add(&mut self.wal_fpi, statement.wal_fpi);
        add(&mut self.wal_bytes, statement.wal_bytes);
        add(&mut self.jit_us, statement.jit_us);
        add(&mut self.eligible_bytes, statement.eligible_bytes);
        add(&mut self.saved_bytes, statement.saved_bytes);
        // A snapshot of an earlier release has no reads from the flash cache.
        add(&mut self.optimized_bytes, statement.optimized_bytes.or(statement.saved_bytes));
        add(&mut self.returned_bytes, statement.returned_bytes);
        self.max_us = match (self.max_us, statement.max_us) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
    }

    /// Database and roles, in the place of Oracle's module.
    pub fn module(&self) -> String {
        let roles: Vec<&str> = self.roles.iter().copied().filter(|role| !role.is_empty()).collect();
        match (roles.is_empty(), self.database.is_empty()) {
            (true, _) => self.database.to_owned(),
            (_, true) => roles.join(","),
            _ => format!("{}@{}", roles.join(","), self.database),
        }
    }

    /// Time of parsing and planning.
    pub fn preparation_us(&self) -> Measure {
        sum([self.parse_us, self.plan_us])
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
        all.entry((&statement.database, statement.query_id)).or_default().add(statement);
    }
    let executed = document.executed_us();
    let executed_us = |database: &str| executed.as_ref().map(|all| all.get(database).copied().unwrap_or(0.0));
    let mut all: Vec<Sql<'_>> = all.into_values().collect();
    for sql in &mut all {
        sql.is_background = is_background(sql, executed_us(sql.database));
    }
    all
}

/// Sessions count the execution of statements and that of commands at different moments, at most a second apart.
const COUNTING_DISTANCE_US: f64 = 1e6;

/// Whether background workers executed a statement. If the document does not tell who did: whether the statement took longer than
/// all sessions of the database executed statements.
fn is_background(sql: &Sql<'_>, executed_us: Measure) -> bool {
    if let Some(in_sessions) = sql.in_sessions {
        return !in_sessions;
    }
    let most_us = executed_us.map(|us| 1.05 * us + COUNTING_DISTANCE_US);
    sql.elapsed_us.zip(most_us).is_some_and(|(us, most_us)| us > most_us)
}

/// Execution time of the captured statements of sessions: of each database at most the time in which sessions executed statements.
pub fn captured_us(document: &Document, all: &[Sql<'_>]) -> Measure {
    let mut by_database: BTreeMap<&str, f64> = BTreeMap::new();
    for sql in all.iter().filter(|sql| !sql.is_background) {
        *by_database.entry(sql.database).or_default() += sql.elapsed_us.unwrap_or(0.0);
    }
    let executed = document.executed_us();
    let limit =
        |database: &str| executed.as_ref().map_or(f64::INFINITY, |all| all.get(database).copied().unwrap_or(0.0));
    (!by_database.is_empty()).then(|| by_database.iter().map(|(database, us)| us.min(limit(database))).sum())
}

/// Sums the document's statements by plan; None contains executions without a plan.
pub fn by_plan(document: &Document) -> BTreeMap<Option<i64>, Sql<'_>> {
    let mut all: BTreeMap<Option<i64>, Sql<'_>> = BTreeMap::new();
    for statement in &document.statements {
        all.entry(statement.plan_id.filter(|plan_id| *plan_id != 0)).or_default().add(statement);
    }
    all
}
