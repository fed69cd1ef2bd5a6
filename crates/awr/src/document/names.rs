//! Names of statistics that sections and figures look up in a document.
//!
//! Names are Oracle's where Oracle counts the same thing. Meanings of the cell's statistics: docs/reference/statistics.md.

/// Names of `time_model`.
pub mod time {
    pub const DB_TIME: &str = "DB time";
    pub const DB_CPU: &str = "DB CPU";
    /// Time that foreground sessions were runnable and waited for a core.
    pub const RUN_QUEUE: &str = "DB CPU run queue time";
    pub const BACKGROUND_CPU: &str = "background cpu time";
    pub const BACKGROUND_TIME: &str = "background elapsed time";
    pub const PARSE: &str = "parse time elapsed";
    pub const PLAN: &str = "plan elapsed time";
    pub const EXECUTE: &str = "sql execute elapsed time";
    pub const COMMIT: &str = "commit time elapsed";
}

pub const COMMITS: &str = "user commits";
pub const ROLLBACKS: &str = "user rollbacks";
pub const USER_CALLS: &str = "user calls";
pub const EXECUTIONS: &str = "execute count";
pub const PARSES: &str = "parse count (total)";
pub const HARD_PARSES: &str = "parse count (hard)";
pub const LOGONS: &str = "logons cumulative";

pub const LOGICAL_READS: &str = "session logical reads";
pub const BLOCK_CHANGES: &str = "db block changes";
pub const PHYSICAL_READS: &str = "physical reads";
pub const PHYSICAL_WRITES: &str = "physical writes";
pub const READ_REQUESTS: &str = "physical read total IO requests";
pub const READ_BYTES: &str = "physical read total bytes";
pub const READ_BYTES_OPTIMIZED: &str = "physical read total bytes optimized";
pub const WRITE_REQUESTS: &str = "physical write total IO requests";
pub const WRITE_BYTES: &str = "physical write total bytes";

pub const REDO_SIZE: &str = "redo size";
pub const REDO_ENTRIES: &str = "redo entries";
pub const REDO_WRITES: &str = "redo writes";
pub const REDO_SYNCS: &str = "redo synch writes";
pub const REDO_WRITE_TIME: &str = "redo write time";
pub const REDO_SYNC_TIME: &str = "redo synch time";
/// Full-page images, and their bytes.
pub const FULL_PAGES: &str = "redo full page images";
pub const FULL_PAGE_BYTES: &str = "redo full page image bytes";
/// WAL buffers written by a backend because the buffers were full.
pub const WAL_BUFFERS_FULL: &str = "redo log space requests";
pub const ARCHIVED: &str = "archived log files";
pub const ARCHIVE_FAILURES: &str = "archiver failures";

pub const CHECKPOINTS_TIMED: &str = "checkpoints timed";
pub const CHECKPOINTS_REQUESTED: &str = "checkpoints requested";
pub const CHECKPOINT_BUFFERS: &str = "DBWR checkpoint buffers written";
pub const CHECKPOINT_WRITE_TIME: &str = "checkpoint write time";
pub const CHECKPOINT_SYNC_TIME: &str = "checkpoint sync time";
/// Buffers written by the background writer.
pub const BGWRITER_BUFFERS: &str = "background writer buffers written";
pub const BGWRITER_STOPS: &str = "background writer maxwritten stops";
/// Buffers written by backends to free a buffer, the counterpart of Oracle's free buffer waits.
pub const BACKEND_BUFFERS: &str = "backend buffers written";
pub const BACKEND_FSYNCS: &str = "backend fsyncs";
pub const BUFFERS_ALLOCATED: &str = "free buffer requested";

pub const TEMP_BYTES: &str = "temp bytes";

pub const ELIGIBLE: &str = "cell physical IO bytes eligible for predicate offload";
pub const SAVED: &str = "cell physical IO bytes saved by storage index";
pub const RETURNED: &str = "cell physical IO interconnect bytes returned by smart scan";
pub const INTERCONNECT: &str = "cell physical IO interconnect bytes";
pub const UNCOMPRESSED: &str = "cell IO uncompressed bytes";
pub const BALANCE_CPU: &str = "cell physical IO bytes sent directly to DB node to balance CPU";
pub const PASSTHRU: &str = "cell num bytes in passthru during predicate offload";
pub const FLASH_HITS: &str = "cell flash cache read hits";
pub const SIMULATED_ELIGIBLE: &str = "cell simulated physical IO bytes eligible for predicate offload";
pub const SIMULATED_RETURNED: &str = "cell simulated physical IO bytes returned by predicate offload";

/// Columns of PostgreSQL's views that stand for a statistic: its name, the column, and the factor to microseconds.
pub(super) const COLUMNS: [(&str, &str, f64); 25] = [
    (FULL_PAGES, "pg_stat_wal.wal_fpi", 1.0),
    (REDO_SIZE, "pg_stat_wal.wal_bytes", 1.0),
    (REDO_ENTRIES, "pg_stat_wal.wal_records", 1.0),
    (REDO_WRITES, "pg_stat_wal.wal_write", 1.0),
    (REDO_SYNCS, "pg_stat_wal.wal_sync", 1.0),
    (REDO_WRITE_TIME, "pg_stat_wal.wal_write_time", 1e3),
    (REDO_SYNC_TIME, "pg_stat_wal.wal_sync_time", 1e3),
    (WAL_BUFFERS_FULL, "pg_stat_wal.wal_buffers_full", 1.0),
    (ARCHIVED, "pg_stat_archiver.archived_count", 1.0),
    (ARCHIVE_FAILURES, "pg_stat_archiver.failed_count", 1.0),
    (CHECKPOINTS_TIMED, "pg_stat_bgwriter.checkpoints_timed", 1.0),
    (CHECKPOINTS_TIMED, "pg_stat_checkpointer.num_timed", 1.0),
    (CHECKPOINTS_REQUESTED, "pg_stat_bgwriter.checkpoints_req", 1.0),
    (CHECKPOINTS_REQUESTED, "pg_stat_checkpointer.num_requested", 1.0),
    (CHECKPOINT_BUFFERS, "pg_stat_bgwriter.buffers_checkpoint", 1.0),
    (CHECKPOINT_BUFFERS, "pg_stat_checkpointer.buffers_written", 1.0),
    (CHECKPOINT_WRITE_TIME, "pg_stat_bgwriter.checkpoint_write_time", 1e3),
    (CHECKPOINT_WRITE_TIME, "pg_stat_checkpointer.write_time", 1e3),
    (CHECKPOINT_SYNC_TIME, "pg_stat_bgwriter.checkpoint_sync_time", 1e3),
    (CHECKPOINT_SYNC_TIME, "pg_stat_checkpointer.sync_time", 1e3),
    (BGWRITER_BUFFERS, "pg_stat_bgwriter.buffers_clean", 1.0),
    (BGWRITER_STOPS, "pg_stat_bgwriter.maxwritten_clean", 1.0),
    (BACKEND_BUFFERS, "pg_stat_bgwriter.buffers_backend", 1.0),
    (BACKEND_FSYNCS, "pg_stat_bgwriter.buffers_backend_fsync", 1.0),
    (BUFFERS_ALLOCATED, "pg_stat_bgwriter.buffers_alloc", 1.0),
];

/// The views that count writes of data files; a repository reads them together.
pub(super) const WRITERS: [&str; 2] = ["pg_stat_bgwriter", "pg_stat_checkpointer"];
/// The columns that PostgreSQL 17 left in pg_stat_bgwriter, and PostgreSQL 18 in pg_stat_wal.
pub(super) const BGWRITER_COLUMNS: [&str; 3] =
    ["pg_stat_bgwriter.buffers_clean", "pg_stat_bgwriter.maxwritten_clean", "pg_stat_bgwriter.buffers_alloc"];
pub(super) const WAL_COLUMNS: [&str; 4] =
    ["pg_stat_wal.wal_fpi", "pg_stat_wal.wal_bytes", "pg_stat_wal.wal_records", "pg_stat_wal.wal_buffers_full"];

/// The application of the sums of further applications and databases.
pub const OTHER_APPLICATIONS: &str = "(other)";
