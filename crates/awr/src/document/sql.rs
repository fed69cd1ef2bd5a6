//! Statements and their plans.

use super::{How, Measure, Text};
use serde::Deserialize;

records! {
    /// The statement of an SQL report.
    ReportedStatement {
        query_id: Option<i64>,
        text: Text,
    }

    Statement {
        query_id: Option<i64>,
        plan_id: Option<i64>,
        database: Text,
        #[serde(alias = "user")]
        role: Text,
        toplevel: Option<bool>,
        /// The type of the processes that executed the statement; empty in documents that do not tell it.
        backend_type: Text,
        text: Text,
        calls: Measure,
        plans: Measure,
        plan_us: Measure,
        parses: Measure,
        parse_us: Measure,
        elapsed_us: Measure,
        cpu_us: Measure,
        run_queue_us: Measure,
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
        /// Saved by the storage index, or read from the flash cache.
        optimized_bytes: Measure,
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
}
