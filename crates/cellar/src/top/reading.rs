//! What one reading of the sources contains: state and cumulative counters at one moment.

use serde::Serialize;
use std::cmp::Ordering;
use std::time::Instant;

/// Number of wait classes; indices refer to `cellar_awr::figures::time::CLASSES`.
pub const CLASSES: usize = cellar_awr::figures::time::CLASSES.len();
/// Index of the class of sessions that wait for their clients.
pub const IDLE: usize = CLASSES - 1;

/// The name of objects of no database.
pub const NO_DATABASE: &str = "(none)";

#[derive(Debug, Clone)]
pub struct Reading {
    pub at: Instant,
    /// Time in seconds since 1970.
    pub time: f64,
    /// None while the server cannot be reached.
    pub server: Option<Server>,
    pub sessions: Vec<Session>,
    pub statements: Vec<StatementCounters>,
    pub databases: Vec<DatabaseCounters>,
    pub cell_io: Vec<CellIoCounters>,
    pub scans: Vec<ScanCounters>,
    pub cells: Vec<CellState>,
    /// What could not be read, with the way to enable it.
    pub missing: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Server {
    pub version: String,
    pub address: String,
    pub database: String,
    pub uptime_seconds: f64,
    pub is_standby: bool,
    /// Whether the role may read statistics and texts of all roles, as members of pg_monitor may.
    pub reads_all_statistics: bool,
    /// None if the number of CPUs of the server's machine is unknown.
    pub cpus: Option<usize>,
    /// None if the database contains no repository with AWR snapshots.
    pub awr: Option<AwrState>,
}

/// The state of the repository.
#[derive(Debug, Clone, Serialize)]
pub struct AwrState {
    pub last_snapshot: i64,
    /// Time of the last AWR snapshot, in seconds since 1970.
    pub last_snapshot_time: f64,
    /// `cellar.awr_snapshot_interval`; 0 if AWR snapshots are taken by hand only.
    pub interval_seconds: f64,
    /// Sources that the last AWR snapshot could not read because of an error.
    pub failed_sources: i64,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Session {
    pub pid: i32,
    pub leader_pid: Option<i32>,
    pub database: Option<String>,
    pub role: Option<String>,
    pub application: String,
    /// None for processes of the server, and for servers without consumer groups.
    pub consumer_group: Option<String>,
    pub client: Option<String>,
    pub backend_type: String,
    pub state: Option<String>,
    pub wait_event_type: Option<String>,
    pub wait_event: Option<String>,
    pub wait_class: String,
    pub is_active: bool,
    pub query_id: Option<i64>,
    pub query: Option<String>,
    pub query_age_seconds: Option<f64>,
    pub xact_age_seconds: Option<f64>,
    /// Processes that hold or wait for the lock that the session waits for.
    pub blockers: Vec<i32>,
}

impl Session {
    /// Returns the index of the wait class.
    pub fn class(&self) -> usize {
        class_index(&self.wait_class)
    }

    /// Whether the session is active, in a transaction, or blocked.
    pub fn is_busy(&self) -> bool {
        let in_transaction = self.state.as_deref().is_some_and(|state| state.starts_with("idle in transaction"));
        self.is_active || in_transaction || !self.blockers.is_empty()
    }

    /// The age of the transaction; without a transaction, the age of the statement.
    pub fn age_seconds(&self) -> f64 {
        self.xact_age_seconds.or(self.query_age_seconds).unwrap_or(0.0)
    }

    /// The order in lists: active sessions before the others, then the oldest first.
    pub fn list_order(&self, other: &Self) -> Ordering {
        other.is_active.cmp(&self.is_active).then(other.age_seconds().total_cmp(&self.age_seconds()))
    }
}

/// Returns the index of a wait class; unknown classes count as Other.
pub fn class_index(name: &str) -> usize {
    let classes = cellar_awr::figures::time::CLASSES;
    classes.iter().position(|class| *class == name).unwrap_or(CLASSES - 2)
}

/// Cumulative counters of the statements with one query identifier in one database.
#[derive(Debug, Clone, Default)]
pub struct StatementCounters {
    pub query_id: i64,
    pub database: u32,
    pub text: Option<String>,
    pub calls: i64,
    pub elapsed_us: i64,
    /// None if the source does not measure CPU time.
    pub cpu_us: Option<i64>,
    pub rows: i64,
    pub blocks_hit: i64,
    pub blocks_read: i64,
    pub temp_blocks: i64,
    pub wal_bytes: i64,
    pub eligible_bytes: i64,
    pub returned_bytes: i64,
}

#[derive(Debug, Clone, Default)]
pub struct DatabaseCounters {
    pub oid: u32,
    pub name: Option<String>,
    pub sessions: i64,
    pub commits: i64,
    pub rollbacks: i64,
    pub blocks_hit: i64,
    pub blocks_read: i64,
    pub rows_read: i64,
    pub rows_written: i64,
    pub temp_bytes: i64,
    pub deadlocks: i64,
}

/// Cumulative counters of the file I/O of one database through a cell: of all files of a type, or of one relation.
#[derive(Debug, Clone, Default)]
pub struct CellIoCounters {
    pub cell: String,
    /// None for files of no database.
    pub database: Option<u32>,
    /// The type of the files, or the class of the relation. None if the source counts all files together.
    pub class: Option<String>,
    /// Tablespace and number of the relation's files. The counters of the type [`RELATION`] include the counters of each relation.
    pub relation: Option<(u32, u32)>,
    pub kind: String,
    pub operations: u64,
    pub bytes: u64,
    pub seconds: f64,
    /// Log2 histogram of microseconds, as [`cellar_awr::figures::histogram`] describes.
    pub buckets: Vec<u64>,
}

/// The file type of relations.
pub const RELATION: &str = "relation";

/// Cumulative counters of the Smart Scans of one database.
#[derive(Debug, Clone, Default)]
pub struct ScanCounters {
    pub cell: String,
    pub database: u32,
    /// None if only completed statements were counted.
    pub scans: Option<u64>,
    pub eligible_bytes: u64,
    pub returned_bytes: u64,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct CellState {
    pub name: String,
    pub mount: String,
    pub version: String,
    pub uptime_seconds: f64,
    pub disks: Vec<DiskState>,
    pub cache_used_bytes: u64,
    pub cache_capacity_bytes: u64,
    pub memory_used_bytes: u64,
    pub memory_limit_bytes: u64,
    pub redo_log_bytes: u64,
    pub checkpoints_queued: u64,
    /// None without flash disks.
    pub flash_cache: Option<FlashCacheState>,
    /// Requests to the cell disks since the start of the cell, and the time that they waited in the queues.
    pub iorm_requests: u64,
    pub iorm_wait_seconds: f64,
    /// Average wait of a request between two readings.
    pub iorm_wait_per_request_seconds: Option<f64>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct FlashCacheState {
    pub is_online: bool,
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    /// Reads since the start of the cell.
    pub hits: u64,
    pub misses: u64,
    /// Share of the reads between two readings.
    pub hit_percent: Option<f64>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct DiskState {
    pub path: String,
    pub size_bytes: u64,
    pub available_bytes: u64,
    pub reserve_bytes: u64,
    pub reserve_free_bytes: u64,
    pub io_errors: u64,
}
