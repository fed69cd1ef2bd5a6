//! The source of the server's figures. It needs only PostgreSQL 15 or later. With the extension or with pg_stat_statements,
//! statements are counted exactly.
//!
//! Each source is queried in a separate statement: a source that fails is reported as missing, and the others are shown.

use super::reading::{
    AwrState, CellIoCounters, DatabaseCounters, Reading, ScanCounters, Server, Session, StatementCounters,
};
use crate::awr::{configuration, with_cause};
use postgres::types::Oid;
use postgres::{Client, NoTls, Row};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// The definition of `awr.wait_class`, so that a server without the extension shows the same classes.
const EXTENSION: &str = include_str!("../../../../extension/cellar--1.0--1.1.sql");
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of each statement.
const STATEMENT_TIMEOUT: &str = "5s";
/// Part of each statement of this source: the screen does not show its statements.
const OWN: &str = "/* cellar top */";
const TEXTS_MAX: usize = 200;
/// Seconds of the active session history that the chart begins with.
const HISTORY_SECONDS: f64 = 300.0;

pub struct Source {
    client: Client,
    extension: bool,
    /// The schema of pg_stat_statements.
    pg_stat_statements: Option<String>,
    facts: Facts,
    activity: String,
    /// Texts of statements; None for those that the server does not know.
    texts: HashMap<i64, Option<String>>,
    /// Executions at the previous reading, to find the statements whose texts are needed.
    calls: HashMap<i64, i64>,
}

struct Facts {
    version: String,
    address: String,
    database: String,
    reads_all_statistics: bool,
    cpus: Option<usize>,
    /// What every reading lacks.
    missing: Vec<String>,
}

impl Source {
    pub fn connect(dsn: Option<&str>) -> Result<Self, String> {
        let mut config = configuration(dsn).map_err(|failure| failure.to_string())?;
        config.application_name("cellar top").connect_timeout(CONNECT_TIMEOUT);
        let is_local = config.get_hosts().iter().all(|host| match host {
            postgres::config::Host::Unix(_) => true,
            postgres::config::Host::Tcp(name) => ["localhost", "127.0.0.1", "::1"].contains(&name.as_str()),
        });
        let connect = || -> Result<Self, postgres::Error> {
            let mut client = config.connect(NoTls)?;
            client.batch_execute(&format!(
                "SET statement_timeout = '{STATEMENT_TIMEOUT}'; SET lock_timeout = '{STATEMENT_TIMEOUT}';
                 SET search_path = pg_catalog; SET default_transaction_read_only = on; SET client_min_messages = error"
            ))?;
            let usable: Option<bool> = client
                .query_opt(
                    "SELECT has_schema_privilege(n.oid, 'USAGE') FROM pg_extension, pg_namespace n
                 WHERE extname = 'cellar' AND nspname = 'awr'",
                    &[],
                )?
                .map(|row| row.get(0));
            let extension = usable == Some(true);
            let pg_stat_statements = client
                .query_opt(
                    "SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace
                 WHERE extname = 'pg_stat_statements'",
                    &[],
                )?
                .map(|row| row.get(0));
            let facts = facts(&mut client, is_local, usable)?;
            let has_groups = extension && client.query_one(HAS_CONSUMER_GROUPS, &[])?.get(0);
            let activity = activity_query(has_groups);
            let (texts, calls) = Default::default();
            Ok(Self { client, extension, pg_stat_statements, facts, activity, texts, calls })
        };
        connect().map_err(|error| format!("could not connect to the server: {}", message(&error)))
    }

    /// Adds the server's figures. An error means that the connection is lost or that sessions cannot be read.
    pub fn read(&mut self, reading: &mut Reading) -> Result<(), String> {
        let state = "SELECT /* cellar top */ extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8, pg_is_in_recovery()";
        let row = self.client.query_one(state, &[]).map_err(|error| message(&error))?;
        let Facts { version, address, database, reads_all_statistics, cpus, missing } = &self.facts;
        reading.missing.extend(missing.iter().cloned());
        reading.server = Some(Server {
            version: version.clone(),
            address: address.clone(),
            database: database.clone(),
            uptime_seconds: row.get(0),
            is_standby: row.get(1),
            reads_all_statistics: *reads_all_statistics,
            cpus: *cpus,
            awr: None,
        });
        let rows = self.client.query(&self.activity, &[]).map_err(|error| message(&error))?;
        reading.sessions = rows.iter().map(session).collect();
        match self.client.query(DATABASES, &[]) {
            Ok(rows) => reading.databases = rows.iter().map(database_counters).collect(),
            Err(error) => reading.missing.push(format!("databases: {}", message(&error))),
        }
        self.read_statements(reading);
        if self.extension {
            let mut rows = self.client.query(FILE_TYPE_IO, &[]);
            if rows.as_ref().is_ok_and(Vec::is_empty) {
                // Cells of an earlier release do not count by file type.
                rows = self.client.query(FILE_IO, &[]);
            }
            match rows {
                Ok(rows) => reading.cell_io = rows.iter().map(cell_io).collect(),
                Err(error) => reading.missing.push(format!("cell I/O: {}", message(&error))),
            }
        }
        Ok(())
    }

    /// Returns the state of the repository; None without AWR snapshots, or if the role may not read them.
    pub fn awr_state(&mut self) -> Option<AwrState> {
        if !self.extension {
            return None;
        }
        let row = self.client.query_opt(AWR_STATE, &[]).ok().flatten()?;
        Some(AwrState {
            last_snapshot: row.get(0),
            last_snapshot_time: row.get(1),
            interval_seconds: row.get(2),
            failed_sources: row.get(3),
        })
    }

    fn read_statements(&mut self, reading: &mut Reading) {
        let query = match (self.extension, &self.pg_stat_statements) {
            (true, _) => STATEMENTS.to_owned(),
            (false, Some(schema)) => PG_STAT_STATEMENTS.replace("@schema@", schema),
            (false, None) => return,
        };
        match self.client.query(&query, &[]) {
            Ok(rows) => reading.statements = rows.iter().map(statement).collect(),
            Err(error) => reading.missing.push(format!("statements: {}", message(&error))),
        }
        if self.extension {
            let mut scans: BTreeMap<u32, ScanCounters> = BTreeMap::new();
            for counters in reading.statements.iter().filter(|counters| counters.eligible_bytes > 0) {
                let sum = scans.entry(counters.database).or_default();
                sum.database = counters.database;
                sum.eligible_bytes += counters.eligible_bytes as u64;
                sum.returned_bytes += counters.returned_bytes as u64;
            }
            reading.scans = scans.into_values().collect();
        }
        self.read_texts(reading);
    }

    /// Adds the texts of statements that were executed since the previous reading.
    fn read_texts(&mut self, reading: &mut Reading) {
        let is_first = self.calls.is_empty();
        let mut unknown = Vec::new();
        for counters in &reading.statements {
            let before = self.calls.insert(counters.query_id, counters.calls);
            let was_executed = is_first || before != Some(counters.calls);
            if was_executed && !self.texts.contains_key(&counters.query_id) && unknown.len() < TEXTS_MAX {
                unknown.push(counters.query_id);
            }
        }
        if !unknown.is_empty() {
            let query = match (self.extension, &self.pg_stat_statements) {
                (true, _) => TEXTS.to_owned(),
                (false, schema) => PG_STAT_STATEMENTS_TEXTS.replace("@schema@", schema.as_deref().unwrap_or_default()),
            };
            match self.client.query(&query, &[&unknown]) {
                Ok(rows) => {
                    for query_id in unknown {
                        self.texts.entry(query_id).or_insert(None);
                    }
                    self.texts.extend(rows.iter().map(|row| (row.get::<_, i64>(0), row.get(1))));
                }
                Err(error) => reading.missing.push(format!("texts of statements: {}", message(&error))),
            }
        }
        let running: HashMap<i64, &String> =
            reading.sessions.iter().filter_map(|session| Some((session.query_id?, session.query.as_ref()?))).collect();
        for counters in &mut reading.statements {
            let text = self.texts.get(&counters.query_id).cloned().flatten();
            counters.text = text.or_else(|| running.get(&counters.query_id).map(|text| (*text).clone()));
        }
        let is_own = |counters: &StatementCounters| counters.text.as_ref().is_some_and(|text| text.contains(OWN));
        reading.statements.retain(|counters| !is_own(counters));
    }

    /// Returns the active sessions by wait class of the last minutes: seconds before now, class, number. Empty if the
    /// server does not sample sessions.
    pub fn history(&mut self) -> Vec<(f64, String, f64)> {
        if !self.extension {
            return Vec::new();
        }
        let rows = self.client.query(HISTORY, &[&HISTORY_SECONDS]).unwrap_or_default();
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
    }
}

/// Reads what does not change while the connection exists.
/// `usable`: whether the role may use the schema awr; None without the extension.
fn facts(client: &mut Client, is_local: bool, usable: Option<bool>) -> Result<Facts, postgres::Error> {
    let row = client.query_one(
        "SELECT current_setting('server_version'), current_database()::text,
                coalesce(host(inet_server_addr()), 'local') || ':' || current_setting('port'),
                pg_has_role('pg_read_all_stats', 'USAGE'),
                has_function_privilege('pg_read_file(text)', 'EXECUTE')",
        &[],
    )?;
    let (database, sees_all, reads_files): (String, bool, bool) = (row.get(1), row.get(3), row.get(4));
    let mut missing = Vec::new();
    if usable.is_none() {
        missing.push(format!(
            "extension cellar is not created in database {database}, or older than 1.1: no cell I/O; statements need pg_stat_statements"
        ));
    }
    if !sees_all {
        missing.push("sessions and statements of other roles are hidden: connect as a member of pg_monitor".to_owned());
    }
    if sees_all && usable == Some(false) {
        missing.push(
            "the role may not use schema awr: no cell I/O and no consumer groups; connect as a member of pg_monitor"
                .to_owned(),
        );
    }
    let cpus = match (is_local, reads_files) {
        (true, _) => std::thread::available_parallelism().ok().map(usize::from),
        (false, true) => {
            let count = "SELECT count(*) FROM regexp_matches(pg_read_file('/proc/stat'), '^cpu\\d+', 'gn')";
            client.query_one(count, &[])?.get::<_, i64>(0).try_into().ok().filter(|cpus| *cpus > 0)
        }
        (false, false) => None,
    };
    Ok(Facts { version: row.get(0), address: row.get(2), database, reads_all_statistics: sees_all, cpus, missing })
}

/// The expression `CASE … END` of the function `awr.wait_class`.
fn wait_class_expression() -> Option<&'static str> {
    let (_, function) = EXTENSION.split_once("CREATE FUNCTION awr.wait_class(")?;
    let (_, body) = function.split_once("\nRETURN ")?;
    body.split_once(";\n").map(|(expression, _)| expression)
}

fn activity_query(has_groups: bool) -> String {
    let group = match has_groups {
        true => {
            "CASE WHEN backend_type IN ('client backend', 'parallel worker') THEN awr.get_consumer_group(pid, application_name) END"
        }
        false => "NULL",
    };
    let class = wait_class_expression().unwrap_or("'Other'");
    format!(
        "SELECT /* cellar top */ pid, leader_pid, datname::text, usename::text, application_name,
                CASE WHEN client_addr IS NOT NULL THEN host(client_addr) WHEN client_port = -1 THEN 'local' END,
                backend_type, state, wait_event_type, wait_event, {class},
                CASE WHEN state IS NULL THEN wait_event_type NOT IN ('Activity', 'Extension')
                     ELSE state IN ('active', 'fastpath function call') END,
                query_id, left(query, 4000),
                extract(epoch FROM clock_timestamp() - query_start)::float8,
                extract(epoch FROM clock_timestamp() - xact_start)::float8,
                CASE WHEN wait_event_type = 'Lock' THEN pg_blocking_pids(pid) END,
                {group}
         FROM (SELECT a.*, a.backend_type IN ('client backend', 'parallel worker') AS foreground
               FROM pg_stat_activity a WHERE pid <> pg_backend_pid() AND backend_type IS NOT NULL) a"
    )
}

const HAS_CONSUMER_GROUPS: &str = "SELECT /* cellar top */
    coalesce(has_function_privilege(to_regprocedure('awr.get_consumer_group(integer,text)'), 'EXECUTE'), false)";
const DATABASES: &str = "SELECT /* cellar top */ datid, datname::text, coalesce(numbackends, 0)::int8, xact_commit, xact_rollback, blks_hit, blks_read,
    tup_returned, tup_inserted + tup_updated + tup_deleted, temp_bytes, deadlocks FROM pg_stat_database";
const STATEMENTS: &str = "SELECT /* cellar top */ query_id, database, sum(calls)::int8, sum(elapsed_us)::int8, sum(cpu_us)::int8, sum(rows)::int8,
    sum(shared_blks_hit)::int8, sum(shared_blks_read)::int8, sum(temp_blks_read + temp_blks_written)::int8, sum(wal_bytes)::int8,
    sum(eligible_bytes)::int8, sum(returned_bytes)::int8 FROM awr.get_statements() GROUP BY 1, 2";
const PG_STAT_STATEMENTS: &str = "SELECT /* cellar top */ queryid, dbid, sum(calls)::int8, (sum(total_exec_time) * 1000)::int8, NULL::int8, sum(rows)::int8,
    sum(shared_blks_hit)::int8, sum(shared_blks_read)::int8, sum(temp_blks_read + temp_blks_written)::int8, sum(wal_bytes)::int8,
    0::int8, 0::int8 FROM @schema@.pg_stat_statements(false) WHERE queryid IS NOT NULL AND toplevel GROUP BY 1, 2";
const TEXTS: &str = "SELECT /* cellar top */ query_id, left(query, 4000) FROM awr.get_plans() WHERE query_id = ANY ($1) AND query IS NOT NULL
    UNION ALL SELECT query_id, left(query, 4000) FROM awr.query_text WHERE instance_id = 1 AND query_id = ANY ($1)";
const PG_STAT_STATEMENTS_TEXTS: &str = "SELECT /* cellar top */ DISTINCT ON (queryid) queryid, left(query, 4000) FROM @schema@.pg_stat_statements(true) WHERE queryid = ANY ($1)";
const FILE_IO: &str = "SELECT /* cellar top */ cell, database, kind, operations, bytes, time_us, histogram, NULL::text, NULL::oid, NULL::oid
    FROM cellar.get_file_io()";
/// The classes are those of awr.get_file_names(). Only the relations of this database, and those that all databases share, have a class.
const FILE_TYPE_IO: &str = "WITH /* cellar top */ io AS MATERIALIZED (SELECT * FROM cellar.get_file_type_io())
    SELECT cell, database, kind, operations, bytes, time_us, histogram, file_type, NULL::oid, NULL::oid FROM io WHERE filenode IS NULL
    UNION ALL
    SELECT io.cell, io.database, io.kind, io.operations, io.bytes, io.time_us, io.histogram,
           CASE WHEN c.oid < 16384 THEN 'catalog' WHEN 't' IN (c.relkind, t.relkind) THEN 'toast' WHEN i.indexrelid IS NOT NULL THEN 'index'
                WHEN c.relkind = 'S' THEN 'sequence' ELSE 'table' END,
           coalesce(io.tablespace, 0::oid), io.filenode
    FROM io JOIN pg_class c ON c.oid = pg_filenode_relation(io.tablespace, io.filenode)
         LEFT JOIN pg_index i ON i.indexrelid = c.oid LEFT JOIN pg_class t ON t.oid = i.indrelid
    WHERE io.filenode IS NOT NULL AND coalesce(io.database, 0::oid) IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))";
const AWR_STATE: &str = "SELECT /* cellar top */ s.snap_id, extract(epoch FROM s.end_time)::float8,
      extract(epoch FROM current_setting('cellar.awr_snapshot_interval')::interval)::float8,
      (SELECT count(*) FROM awr.note n WHERE n.snap_day = s.snap_day AND n.instance_id = s.instance_id AND n.snap_id = s.snap_id
         AND n.kind = 'source failed')
    FROM awr.snapshot s WHERE s.instance_id = 1 ORDER BY s.snap_id DESC LIMIT 1";
/// Seconds in which no session was active have no samples, and count as zero.
const HISTORY: &str = "SELECT /* cellar top */ floor(extract(epoch FROM clock_timestamp() - sample_time))::float8, wait_class, count(*)::float8
    FROM awr.active_session_history
    WHERE instance_id = 1 AND chunk_end > clock_timestamp() - make_interval(secs => $1)
      AND sample_time > clock_timestamp() - make_interval(secs => $1)
      AND wait_class <> 'Idle' AND (state IS NULL OR state NOT LIKE 'idle%') AND period_ms = 1000
      AND application IS DISTINCT FROM 'cellar top'
    GROUP BY 1, 2";

fn session(row: &Row) -> Session {
    let wait_class: String = row.get(10);
    let state: Option<bool> = row.get(11);
    Session {
        pid: row.get(0),
        leader_pid: row.get(1),
        database: row.get(2),
        role: row.get(3),
        application: row.get::<_, Option<String>>(4).unwrap_or_default(),
        consumer_group: row.get(17),
        client: row.get(5),
        backend_type: row.get(6),
        state: row.get(7),
        wait_event_type: row.get(8),
        wait_event: row.get(9),
        is_active: state == Some(true) && wait_class != "Idle",
        wait_class,
        query_id: row.get::<_, Option<i64>>(12).filter(|query_id| *query_id != 0),
        query: row.get::<_, Option<String>>(13).filter(|query| !query.is_empty()),
        query_age_seconds: row.get(14),
        xact_age_seconds: row.get(15),
        blockers: row.get::<_, Option<Vec<i32>>>(16).unwrap_or_default(),
    }
}

fn database_counters(row: &Row) -> DatabaseCounters {
    let number = |column: usize| row.get::<_, Option<i64>>(column).unwrap_or(0);
    DatabaseCounters {
        oid: row.get::<_, Option<Oid>>(0).unwrap_or(0),
        name: row.get(1),
        sessions: number(2),
        commits: number(3),
        rollbacks: number(4),
        blocks_hit: number(5),
        blocks_read: number(6),
        rows_read: number(7),
        rows_written: number(8),
        temp_bytes: number(9),
        deadlocks: number(10),
    }
}

fn statement(row: &Row) -> StatementCounters {
    let number = |column: usize| row.get::<_, Option<i64>>(column).unwrap_or(0);
    StatementCounters {
        query_id: row.get(0),
        database: row.get(1),
        text: None,
        calls: number(2),
        elapsed_us: number(3),
        cpu_us: row.get(4),
        rows: number(5),
        blocks_hit: number(6),
        blocks_read: number(7),
        temp_blocks: number(8),
        wal_bytes: number(9),
        eligible_bytes: number(10),
        returned_bytes: number(11),
    }
}

fn cell_io(row: &Row) -> CellIoCounters {
    let number = |column: usize| row.get::<_, Option<i64>>(column).unwrap_or(0).max(0) as u64;
    let histogram: Option<Vec<i64>> = row.get(6);
    CellIoCounters {
        cell: row.get(0),
        database: row.get::<_, Option<Oid>>(1).filter(|oid| *oid != 0),
        class: row.get(7),
        relation: row.get::<_, Option<Oid>>(8).zip(row.get::<_, Option<Oid>>(9)),
        kind: row.get(2),
        operations: number(3),
        bytes: number(4),
        seconds: number(5) as f64 / 1e6,
        buckets: histogram.unwrap_or_default().into_iter().map(|count| count.max(0) as u64).collect(),
    }
}

/// The server's message, or the error of the connection with its cause.
fn message(error: &postgres::Error) -> String {
    error.as_db_error().map_or_else(|| with_cause(error), |error| error.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_classes_are_those_of_the_extension() {
        let expression = wait_class_expression().expect("the extension defines awr.wait_class");
        assert!(expression.starts_with("CASE") && expression.trim_end().ends_with("END"), "{expression}");
        for class in ["'CPU'", "'User I/O'", "'Idle'", "foreground"] {
            assert!(expression.contains(class), "{class}");
        }
    }
}
