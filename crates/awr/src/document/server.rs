//! The server, its state and its counters.

use super::{How, List, Measure, Text};
use serde::Deserialize;

records! {
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
        /// `cells` or `PostgreSQL`, which counts reads only.
        io_counted_by: Text,
        reads: Measure,
        read_bytes: Measure,
        read_us: Measure,
        writes: Measure,
        write_bytes: Measure,
        write_us: Measure,
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
        parse_us: Measure,
        commit_us: Measure,
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
        parse_us: Measure,
        plan_us: Measure,
        execute_us: Measure,
        commit_us: Measure,
        /// Elapsed time of parallel workers.
        parallel_us: Measure,
        /// Time in which sessions of the application executed commands, without parallel workers.
        active_us: Measure,
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

    Setting {
        name: Text,
        begin: Text,
        end: Text,
        unit: Text,
        source: Text,
        changed: Option<bool>,
    }
}
