//! Relations, and I/O of processes and cells.

use super::{List, Measure, Text};
use serde::Deserialize;

records! {
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

    /// A metric of a cell: of the flash cache, or the objective of I/O resource management.
    CellStatistic {
        cell: Text,
        name: Text,
        /// The increase of a counter.
        total: Measure,
        /// Another metric at the end.
        value: Measure,
    }

    /// Operations of a cell on one of its disks, of all clusters on the cell.
    CellDisk {
        cell: Text,
        /// `cell disk` or `flash disk`.
        disk_type: Text,
        disk: Text,
        /// `read`, `write`, `sync` or `allocate`.
        operation: Text,
        operations: Measure,
        bytes: Measure,
        time_us: Measure,
        io_errors: Measure,
        no_space_errors: Measure,
        histogram: List<f64>,
    }

    /// Requests of a consumer group of a database to the disks of a cell, as I/O resource management counts them, of all
    /// clusters on the cell.
    IormClass {
        cell: Text,
        database: Text,
        /// None for a database of another cluster.
        database_oid: Option<i64>,
        consumer_group: Text,
        /// `small` or `large`.
        size: Text,
        requests: Measure,
        bytes: Measure,
        /// In the queues of the cell disks.
        wait_us: Measure,
        request_us: Measure,
        device_us: Measure,
        flash_requests: Measure,
        flash_bytes: Measure,
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
}
