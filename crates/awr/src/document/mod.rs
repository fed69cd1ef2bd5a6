//! The report document, format 1: sums over the snapshots of one instance, as `awr.report_data` returns them.
//!
//! Times are microseconds, sizes are bytes. An absent figure is None, never 0. Unknown fields are ignored, so that a newer
//! repository can add fields without a new format. [`parse`] is the only way from bytes to a document; a parsed document
//! satisfies the checks of [`validate`](mod@validate).

pub mod names;
mod normalize;
pub mod time;
mod validate;
mod value;

pub use time::Timestamp;
pub use validate::DocumentError;
pub use value::{List, Text};

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The document format that this release reads.
pub const FORMAT: u64 = 1;

/// A figure that may be unavailable. All figures are non-negative.
pub type Measure = Option<f64>;

/// How a figure was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    Counted,
    Timed,
    Sampled,
    #[serde(other)]
    Unknown,
}

macro_rules! records {
    ($( $(#[$meta:meta])* $name:ident { $( $(#[$field_meta:meta])* $field:ident: $kind:ty, )* } )*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Debug, Default, PartialEq, Deserialize)]
            #[serde(default)]
            pub struct $name { $( $(#[$field_meta])* pub $field: $kind, )* }
        )*
    };
}

records! {
    /// Everything that a report about one instance is computed from.
    Document {
        /// `ash` for a document of `awr.ash_data`, `sql` for one of `awr.sql_data`; empty for one of `awr.report_data`.
        kind: Text,
        instance: Instance,
        begin: Boundary,
        end: Boundary,
        snapshots: List<SnapshotInterval>,
        elapsed_us: Measure,
        db_time_us: Measure,
        sources: List<Source>,
        notes: List<Note>,
        time_model: List<TimeStatistic>,
        statistics: List<Statistic>,
        events: List<Event>,
        os: List<OsStatistic>,
        databases: List<Database>,
        services: List<Service>,
        statements: List<Statement>,
        plans: List<Plan>,
        plan_history: List<PlanHistory>,
        tables: List<TableStatistics>,
        indexes: List<IndexStatistics>,
        io: List<IoStatistics>,
        session_io: List<SessionIo>,
        cell_io: List<CellIo>,
        cell_files: List<CellFile>,
        slru: List<Slru>,
        replication: List<Standby>,
        slots: List<Slot>,
        archiver: Archiver,
        vacuum_horizon: List<HorizonHolder>,
        sessions: Sessions,
        settings: List<Setting>,
        ash: Ash,
        history: History,
        statement: ReportedStatement,
    }

    /// The statement of an SQL report.
    ReportedStatement {
        query_id: Option<i64>,
        text: Text,
    }

    Instance {
        id: Text,
        name: Text,
        system_identifier: Text,
        host: Text,
        server_version: Text,
        server_version_num: Measure,
        in_recovery: Option<bool>,
        cpus: Measure,
        memory_bytes: Measure,
        cellar_version: Text,
        #[serde(alias = "startup_time")]
        start_time: Text,
        platform: Text,
    }

    /// The first or the last snapshot of the report.
    Boundary {
        snap_id: Option<i64>,
        time: Text,
        sessions: Measure,
    }

    /// The interval that ends with a snapshot.
    SnapshotInterval {
        snap_id: Option<i64>,
        time: Text,
        elapsed_us: Measure,
        db_time_us: Measure,
    }

    /// A source of figures: an extension, a view, /proc, the cells.
    Source {
        name: Text,
        available: Option<bool>,
        version: Text,
        detail: Text,
    }

    /// An event that affects the report's figures: restart, statistics reset, dropped object, clock step.
    Note {
        snap_id: Option<i64>,
        time: Text,
        kind: Text,
        object: Text,
        text: Text,
    }

    TimeStatistic {
        name: Text,
        us: Measure,
        how: Option<How>,
        stderr_us: Measure,
    }

    Statistic {
        name: Text,
        value: Measure,
        unit: Text,
        how: Option<How>,
    }

    /// Waits for one event by foreground sessions (client backends and their parallel workers) or by background processes.
    /// Bucket `i` of the histogram counts waits shorter than 2^i microseconds and not shorter than 2^(i-1).
    Event {
        event: Text,
        class: Text,
        #[serde(rename = "type")]
        kind: Text,
        foreground: Option<bool>,
        waits: Measure,
        timeouts: Measure,
        time_us: Measure,
        max_us: Measure,
        samples: Measure,
        stderr_us: Measure,
        histogram: List<f64>,
        how: Option<How>,
    }

    OsStatistic {
        name: Text,
        value: Measure,
        begin: Measure,
        end: Measure,
        unit: Text,
    }

    Database {
        oid: Option<i64>,
        name: Text,
        sessions: Measure,
        xact_commit: Measure,
        xact_rollback: Measure,
        blks_hit: Measure,
        blks_read: Measure,
        blk_read_us: Measure,
        blk_write_us: Measure,
        tup_returned: Measure,
        tup_fetched: Measure,
        tup_inserted: Measure,
        tup_updated: Measure,
        tup_deleted: Measure,
        temp_files: Measure,
        temp_bytes: Measure,
        deadlocks: Measure,
        conflicts: Measure,
        session_us: Measure,
        active_us: Measure,
        idle_in_transaction_us: Measure,
        size_begin: Measure,
        size_end: Measure,
        frozen_age: Measure,
        cpu_us: Measure,
        run_queue_us: Measure,
    }

    /// Activity of one application of one role in one database.
    Service {
        database: Text,
        #[serde(alias = "user")]
        role: Text,
        application: Text,
        backend_type: Text,
        samples: Measure,
        cpu_us: Measure,
        run_queue_us: Measure,
    }

    Statement {
        query_id: Option<i64>,
        plan_id: Option<i64>,
        database: Text,
        #[serde(alias = "user")]
        role: Text,
        toplevel: Option<bool>,
        text: Text,
        calls: Measure,
        plans: Measure,
        plan_us: Measure,
        elapsed_us: Measure,
        cpu_us: Measure,
        rows: Measure,
        shared_blks_hit: Measure,
        shared_blks_read: Measure,
        shared_blks_dirtied: Measure,
        shared_blks_written: Measure,
        local_blks_hit: Measure,
        local_blks_read: Measure,
        local_blks_dirtied: Measure,
        local_blks_written: Measure,
        temp_blks_read: Measure,
        temp_blks_written: Measure,
        blk_read_us: Measure,
        blk_write_us: Measure,
        temp_blk_read_us: Measure,
        temp_blk_write_us: Measure,
        wal_records: Measure,
        wal_fpi: Measure,
        wal_bytes: Measure,
        jit_us: Measure,
        parallel_workers: Measure,
        eligible_bytes: Measure,
        saved_bytes: Measure,
        returned_bytes: Measure,
        samples: Measure,
        min_us: Measure,
        max_us: Measure,
        how: Option<How>,
    }

    Plan {
        query_id: Option<i64>,
        plan_id: Option<i64>,
        text: Text,
    }

    /// One statement's executions with one plan in one snapshot interval.
    PlanHistory {
        snap_id: Option<i64>,
        time: Text,
        query_id: Option<i64>,
        plan_id: Option<i64>,
        calls: Measure,
        elapsed_us: Measure,
        cpu_us: Measure,
        logical_reads: Measure,
        physical_reads: Measure,
    }

    TableStatistics {
        database: Text,
        schema: Text,
        name: Text,
        oid: Option<i64>,
        toast: Option<bool>,
        tablespace: Text,
        heap_blks_read: Measure,
        heap_blks_hit: Measure,
        idx_blks_read: Measure,
        idx_blks_hit: Measure,
        toast_blks_read: Measure,
        toast_blks_hit: Measure,
        tidx_blks_read: Measure,
        tidx_blks_hit: Measure,
        seq_scan: Measure,
        seq_tup_read: Measure,
        idx_scan: Measure,
        idx_tup_fetch: Measure,
        n_tup_ins: Measure,
        n_tup_upd: Measure,
        n_tup_del: Measure,
        n_tup_hot_upd: Measure,
        n_tup_newpage_upd: Measure,
        n_live_tup: Measure,
        n_dead_tup: Measure,
        n_mod_since_analyze: Measure,
        vacuum_count: Measure,
        autovacuum_count: Measure,
        analyze_count: Measure,
        autoanalyze_count: Measure,
        total_vacuum_us: Measure,
        total_autovacuum_us: Measure,
        total_analyze_us: Measure,
        total_autoanalyze_us: Measure,
        /// Waits for a row that the sampler saw, and their time.
        row_lock_waits: Measure,
        row_lock_us: Measure,
        size_begin: Measure,
        size_end: Measure,
        frozen_age: Measure,
        last_vacuum: Text,
        last_autovacuum: Text,
        last_analyze: Text,
        last_autoanalyze: Text,
        on_cell: Option<bool>,
        eligible_bytes: Measure,
        saved_bytes: Measure,
        returned_bytes: Measure,
    }

    IndexStatistics {
        database: Text,
        schema: Text,
        table: Text,
        name: Text,
        oid: Option<i64>,
        tablespace: Text,
        idx_scan: Measure,
        idx_tup_read: Measure,
        idx_tup_fetch: Measure,
        idx_blks_read: Measure,
        idx_blks_hit: Measure,
        size_begin: Measure,
        size_end: Measure,
        is_unique: Option<bool>,
    }

    /// One row of `pg_stat_io`.
    IoStatistics {
        backend_type: Text,
        object: Text,
        context: Text,
        reads: Measure,
        read_bytes: Measure,
        read_us: Measure,
        writes: Measure,
        write_bytes: Measure,
        write_us: Measure,
        writebacks: Measure,
        writeback_us: Measure,
        extends: Measure,
        extend_bytes: Measure,
        extend_us: Measure,
        hits: Measure,
        evictions: Measure,
        reuses: Measure,
        fsyncs: Measure,
        fsync_us: Measure,
    }

    /// I/O that one process requested, from `pg_stat_get_backend_io`.
    SessionIo {
        pid: Option<i64>,
        backend_type: Text,
        database: Text,
        #[serde(alias = "user")]
        role: Text,
        application: Text,
        reads: Measure,
        read_bytes: Measure,
        read_us: Measure,
        writes: Measure,
        write_bytes: Measure,
        write_us: Measure,
        extends: Measure,
        extend_bytes: Measure,
        extend_us: Measure,
        hits: Measure,
        wal_writes: Measure,
        wal_bytes: Measure,
        wal_fsyncs: Measure,
    }

    /// I/O that a cell served, by database and kind. Exact: every request passes through the cell.
    CellIo {
        cell: Text,
        database: Text,
        kind: Text,
        file_class: Text,
        operations: Measure,
        bytes: Measure,
        time_us: Measure,
        histogram: List<f64>,
    }

    /// I/O that cells served, by class of files and database, or of one relation. A class without a name contains
    /// relations that were dropped or rewritten, and those that the cells did not count separately.
    CellFile {
        /// Whether these are the sums of a class; otherwise of a relation, which its class contains.
        is_class: Option<bool>,
        database: Text,
        class: Text,
        tablespace: Text,
        schema: Text,
        table: Text,
        index: Text,
        /// The number in the names of the relation's files.
        filenode: Option<i64>,
        small_reads: Measure,
        small_read_us: Measure,
        reads: Measure,
        read_bytes: Measure,
        read_us: Measure,
        writes: Measure,
        write_bytes: Measure,
        write_us: Measure,
        syncs: Measure,
        sync_us: Measure,
        /// Service times of reads.
        histogram: List<f64>,
    }

    Slru {
        name: Text,
        blks_zeroed: Measure,
        blks_hit: Measure,
        blks_read: Measure,
        blks_written: Measure,
        flushes: Measure,
        truncates: Measure,
    }

    Standby {
        application: Text,
        client: Text,
        state: Text,
        sync_state: Text,
        lag_bytes_begin: Measure,
        lag_bytes_end: Measure,
        /// At the snapshots of the interval.
        lag_bytes_max: Measure,
        replay_lag_us_max: Measure,
    }

    /// State of the archiver at the end of the interval.
    Archiver {
        state: Text,
        /// WAL files that wait for the archiver.
        backlog_bytes: Measure,
        /// Since the last file was archived.
        since_us: Measure,
        last_failed: Text,
    }

    Slot {
        name: Text,
        retained_bytes: Measure,
        active: Option<bool>,
    }

    /// What prevents VACUUM from removing dead rows.
    HorizonHolder {
        holder: Text,
        kind: Text,
        age_xids: Measure,
        detail: Text,
    }

    Sessions {
        idle_in_transaction: List<SessionState>,
        longest_transactions: List<SessionState>,
        blocking: List<Blocking>,
    }

    SessionState {
        pid: Option<i64>,
        database: Text,
        #[serde(alias = "user")]
        role: Text,
        application: Text,
        client: Text,
        state: Text,
        query_id: Option<i64>,
        samples: Measure,
        /// The longest time seen in the state, or the greatest age of the transaction.
        #[serde(alias = "xact_age_us", alias = "age_us")]
        max_us: Measure,
    }

    Blocking {
        blocker_pid: Option<i64>,
        blocked_pid: Option<i64>,
        samples: Measure,
        locktype: Text,
        /// The statement that waited.
        query_id: Option<i64>,
        /// The last statement of the blocker, if known.
        blocker_query_id: Option<i64>,
        blocker_state: Text,
        blocker_application: Text,
        relation: Text,
    }

    Setting {
        name: Text,
        begin: Text,
        end: Text,
        unit: Text,
        source: Text,
        changed: Option<bool>,
    }

    /// Session samples.
    Ash {
        period_us: Measure,
        ticks: Measure,
        lost: Measure,
        slots: List<AshSlot>,
        by_event: List<AshActivity>,
        top_sql: List<AshActivity>,
        top_sessions: List<AshActivity>,
        by_service: List<Service>,
        /// Samples of foreground sessions by database and wait class.
        by_database: List<AshActivity>,
        blocking: List<Blocking>,
        idle_in_transaction: List<SessionState>,
    }

    AshSlot {
        time: Text,
        ticks: Measure,
        by_class: BTreeMap<String, f64>,
    }

    /// Samples of one combination of event, statement and session; absent dimensions are summed over.
    AshActivity {
        query_id: Option<i64>,
        plan_id: Option<i64>,
        event: Text,
        class: Text,
        foreground: Option<bool>,
        pid: Option<i64>,
        backend_type: Text,
        database: Text,
        #[serde(alias = "user")]
        role: Text,
        application: Text,
        client: Text,
        state: Text,
        blocker_pid: Option<i64>,
        /// Number of different sessions.
        sessions: Measure,
        samples: Measure,
        time_us: Measure,
        stderr_us: Measure,
        /// The greatest size of the session's temporary files.
        temp_bytes: Measure,
    }

    /// Session samples of any interval, as `awr.ash_data` returns them; in a document of `awr.sql_data`, those of one statement, with
    /// `groups` by plan and event. Lists are ordered by samples, most first.
    History {
        samples: Measure,
        time_us: Measure,
        stderr_us: Measure,
        /// Time of the samples of foreground sessions.
        foreground_us: Measure,
        period_us: Measure,
        lost: Measure,
        dimensions: List<Text>,
        filters: List<Filter>,
        /// Samples by the requested dimensions.
        groups: List<AshActivity>,
        events: List<AshActivity>,
        background_events: List<AshActivity>,
        services: List<AshActivity>,
        clients: List<AshActivity>,
        databases: List<AshActivity>,
        top_sql: List<AshActivity>,
        top_sessions: List<AshActivity>,
        blockers: List<AshActivity>,
        slots: List<HistorySlot>,
    }

    Filter {
        dimension: Text,
        value: Text,
    }

    /// A part of the interval. The slots cover the interval without gaps; the first and the last can be shorter.
    HistorySlot {
        time: Text,
        duration_us: Measure,
        samples: Measure,
        /// Microseconds by wait class.
        by_class: BTreeMap<String, f64>,
        /// The events with the most samples.
        events: List<AshActivity>,
    }
}

impl Document {
    /// Returns a statistic by name, or from the columns of PostgreSQL's views that stand for the statistic.
    pub fn statistic(&self, name: &str) -> Measure {
        let find = |name: &str| self.statistics.iter().find(|statistic| &*statistic.name == name)?.value;
        find(name).or_else(|| {
            let columns = names::COLUMNS.iter().filter(|(statistic, ..)| *statistic == name);
            columns.filter_map(|(_, column, factor)| find(column).map(|value| value * factor)).next()
        })
    }

    /// Returns a statistic; 0 if only another statistic of the same source is present, because a repository stores the
    /// statistics that increased.
    pub fn statistic_beside(&self, name: &str, same_source: &str) -> Measure {
        self.statistic(name).or_else(|| self.statistic(same_source).map(|_| 0.0))
    }

    /// Returns a time of the time model by name, in microseconds.
    pub fn time(&self, name: &str) -> Measure {
        self.time_model.iter().find(|statistic| &*statistic.name == name)?.us
    }

    /// Returns a statistic of the operating system by name.
    pub fn os_statistic(&self, name: &str) -> Option<&OsStatistic> {
        self.os.iter().find(|statistic| &*statistic.name == name)
    }

    pub fn setting(&self, name: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| &*setting.name == name)
    }

    /// Returns the value of a setting in its base unit: bytes, microseconds, or a number without unit. A document contains
    /// the settings that differ from their defaults, so that `default` stands for an absent setting; None if the document
    /// contains no settings.
    pub fn setting_value(&self, name: &str, default: f64) -> Measure {
        let Some(setting) = self.setting(name) else { return (!self.settings.is_empty()).then_some(default) };
        let number = setting.end.known().or_else(|| setting.begin.known())?.parse::<f64>().ok()?;
        let digits = setting.unit.len() - setting.unit.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (count, unit) = setting.unit.split_at(digits);
        let factor = match unit {
            "" | "B" | "us" => 1.0,
            "kB" => 1024.0,
            "MB" => 1_048_576.0,
            "GB" => 1_073_741_824.0,
            "ms" => 1e3,
            "s" => 1e6,
            "min" => 60e6,
            _ => return None,
        };
        Some(number * factor * count.parse::<f64>().unwrap_or(1.0))
    }

    /// Returns a source by name.
    pub fn source(&self, name: &str) -> Option<&Source> {
        self.sources.iter().find(|source| &*source.name == name)
    }

    /// Bytes of a block, from the setting `block_size`; 8192 if the setting is absent.
    pub fn block_bytes(&self) -> f64 {
        self.setting("block_size").and_then(|setting| setting.end.known()?.parse().ok()).unwrap_or(8192.0)
    }

    /// Number of CPUs, from the instance or the operating system's statistics.
    pub fn cpus(&self) -> Measure {
        self.instance
            .cpus
            .or_else(|| self.os_statistic("NUM_CPUS").and_then(|cpus| cpus.end.or(cpus.value).or(cpus.begin)))
    }
}

/// Parses and checks one document, or an array of documents (one per instance).
pub fn parse(json: &[u8]) -> Result<Vec<Document>, DocumentError> {
    let value: Value = serde_json::from_slice(json)?;
    let values = match value {
        Value::Array(values) => values,
        value => vec![value],
    };
    if values.is_empty() {
        return Err(DocumentError::Empty);
    }
    values
        .into_iter()
        .map(|value| {
            validate::check_values(&value)?;
            let mut document: Document = serde_json::from_value(value)?;
            validate::check_times(&document)?;
            normalize::normalize(&mut document);
            Ok(document)
        })
        .collect()
}
