//! Builds report documents for tests: one hour of a small healthy OLTP cluster, which tests change.

#![allow(dead_code, reason = "each test file uses a part")]

use cellar_awr::document::{Document, parse};
use serde_json::{Value, json};

pub const HOUR_US: f64 = 3.6e9;
pub const SECOND_US: f64 = 1e6;

pub const SELECT: i64 = 1_234_567_890_123_456_789;
pub const UPDATE: i64 = -987_654_321_012_345_678;
pub const REPORT: i64 = 42;

/// A document as JSON, with helpers to change it.
pub struct Builder(pub Value);

impl Builder {
    /// One hour with 2 average active sessions on 8 CPUs: half on CPU, some reads, few commits; no rule finds anything.
    pub fn healthy() -> Self {
        let slot = |minute: usize| {
            json!({ "time": format!("2026-11-23T05:{minute:02}:00+00:00"), "ticks": 300,
                    "by_class": { "CPU": 270 + 3 * minute, "User I/O": 100, "Commit": 60 } })
        };
        Self(json!({
            "format": 1,
            "instance": { "id": 1, "name": "shop", "system_identifier": "7301234567890123456", "host": "db1.example",
                          "server_version": "17.2", "server_version_num": 170002, "in_recovery": false, "cpus": 8,
                          "memory_bytes": 68_719_476_736_u64, "cellar_version": "0.1.0",
                          "start_time": "2026-11-20T08:00:00+00:00" },
            "begin": { "snap_id": 101, "time": "2026-11-23T05:00:00.123456+00:00", "sessions": 37 },
            "end": { "snap_id": 102, "time": "2026-11-23T06:00:00.234567+00:00", "sessions": 38 },
            "snapshots": [{ "snap_id": 102, "time": "2026-11-23T06:00:00+00:00", "elapsed_us": HOUR_US, "db_time_us": 2.0 * HOUR_US }],
            "elapsed_us": HOUR_US,
            "db_time_us": 2.0 * HOUR_US,
            "sources": [{ "name": "pg_stat_statements", "available": true, "version": "1.11" },
                        { "name": "cell_io_stat", "available": false, "detail": "no file of the cluster is on a cell" }],
            "notes": null,
            "time_model": [
                { "name": "DB time", "us": 2.0 * HOUR_US, "how": "timed" },
                { "name": "DB CPU", "us": 0.9 * HOUR_US, "how": "counted" },
                { "name": "plan elapsed time", "us": 0.02 * HOUR_US, "how": "timed" },
                { "name": "sql execute elapsed time", "us": 1.9 * HOUR_US, "how": "timed" },
                { "name": "background cpu time", "us": 0.1 * HOUR_US, "how": "counted" }
            ],
            "statistics": [
                { "name": "user commits", "value": 720_000 }, { "name": "user rollbacks", "value": 360 },
                { "name": "execute count", "value": 3_600_000 }, { "name": "session logical reads", "value": 72_000_000 },
                { "name": "physical reads", "value": 360_000 }, { "name": "physical writes", "value": 180_000 },
                { "name": "redo size", "value": 720_000_000 }, { "name": "pg_stat_wal.wal_fpi", "value": 9_000 },
                { "name": "redo log space requests", "value": 30 },
                { "name": "pg_stat_checkpointer.num_timed", "value": 12 }, { "name": "pg_stat_checkpointer.num_requested", "value": 0 },
                { "name": "pg_stat_checkpointer.write_time", "value": 1_500_000 },
                { "name": "DBWR checkpoint buffers written", "value": 150_000 },
                { "name": "pg_stat_bgwriter.buffers_clean", "value": 25_000 }
            ],
            "events": [
                { "event": "DataFileRead", "class": "User I/O", "type": "IO", "foreground": true, "samples": 180, "time_us": 0.08 * HOUR_US,
                  "how": "sampled", "stderr_us": 1.3e7 },
                { "event": "WALSync", "class": "Commit", "type": "IO", "foreground": true, "samples": 180, "time_us": 0.08 * HOUR_US, "how": "sampled" },
                { "event": "transactionid", "class": "Application", "type": "Lock", "foreground": true, "samples": 100, "time_us": 0.08 * HOUR_US, "how": "sampled" },
                { "event": "WALWrite", "class": "Concurrency", "type": "LWLock", "foreground": true, "samples": 100, "time_us": 0.08 * HOUR_US, "how": "sampled" },
                { "event": "VacuumDelay", "class": "Other", "type": "Timeout", "foreground": true, "samples": 1500, "time_us": 0.7 * HOUR_US, "how": "sampled" },
                { "event": "ClientRead", "class": "Idle", "type": "Client", "foreground": true, "samples": 99_999, "time_us": 30.0 * HOUR_US, "how": "timed" },
                { "event": "CheckpointWriteDelay", "class": "Idle", "type": "Timeout", "foreground": false, "time_us": HOUR_US, "how": "sampled" },
                { "event": "DataFileWrite", "class": "System I/O", "type": "IO", "foreground": false, "time_us": 0.2 * HOUR_US, "how": "sampled" }
            ],
            "os": [
                { "name": "NUM_CPUS", "value": 8, "end": 8 }, { "name": "LOAD", "value": 1.4, "begin": 1.2, "end": 1.4 },
                { "name": "BUSY_TIME", "value": 1.1 * HOUR_US, "unit": "us" }, { "name": "IDLE_TIME", "value": 6.9 * HOUR_US, "unit": "us" },
                { "name": "USER_TIME", "value": 0.9 * HOUR_US, "unit": "us" }, { "name": "SYS_TIME", "value": 0.2 * HOUR_US, "unit": "us" },
                { "name": "IOWAIT_TIME", "value": 0.1 * HOUR_US, "unit": "us" }
            ],
            "databases": [
                { "oid": 16384, "name": "shop", "active_us": 1.8 * HOUR_US, "blk_read_us": 0.07 * HOUR_US, "blks_read": 300_000,
                  "blks_hit": 70_000_000, "xact_commit": 700_000, "xact_rollback": 300, "temp_bytes": 0, "frozen_age": 90_000_000,
                  "idle_in_transaction_us": 5e6, "run_queue_us": 2e6, "size_begin": 10_000_000_000_u64, "size_end": 10_050_000_000_u64 },
                { "oid": 16385, "name": "archive", "active_us": 0.2 * HOUR_US, "blk_read_us": 0.01 * HOUR_US, "blks_read": 60_000,
                  "blks_hit": 1_640_000, "xact_commit": 20_000, "xact_rollback": 60, "frozen_age": 80_000_000 }
            ],
            "services": [{ "database": "shop", "role": "web", "application": "shopd", "samples": 6400, "cpu_us": 0.85 * HOUR_US, "run_queue_us": 2e6 }],
            "statements": [
                { "query_id": SELECT, "plan_id": 11, "database": "shop", "role": "web", "toplevel": true, "calls": 2_000_000,
                  "text": "SELECT * FROM orders WHERE id = $1", "elapsed_us": 0.15 * HOUR_US, "cpu_us": 0.1 * HOUR_US,
                  "shared_blks_hit": 40_000_000, "shared_blks_read": 200_000, "blk_read_us": 0.03 * HOUR_US, "rows": 2_000_000,
                  "plan_us": 0.01 * HOUR_US, "plans": 2_000_000, "parse_us": 0.005 * HOUR_US, "parses": 1_900_000, "max_us": 150_000 },
                { "query_id": UPDATE, "plan_id": 12, "database": "shop", "role": "web", "toplevel": true, "calls": 700_000,
                  "text": "UPDATE stock SET amount = amount - $1 WHERE id = $2", "elapsed_us": 0.14 * HOUR_US, "cpu_us": 0.1 * HOUR_US,
                  "shared_blks_hit": 20_000_000, "shared_blks_read": 90_000, "blk_read_us": 0.02 * HOUR_US, "rows": 700_000,
                  "wal_bytes": 600_000_000, "wal_records": 1_500_000, "wal_fpi": 8000, "max_us": 250_000 },
                { "query_id": REPORT, "plan_id": 13, "database": "archive", "role": "analyst", "toplevel": true, "calls": 4,
                  "text": "SELECT day, sum(amount)\nFROM sales\nGROUP BY day", "elapsed_us": 0.12 * HOUR_US, "cpu_us": 0.05 * HOUR_US,
                  "shared_blks_hit": 500_000, "shared_blks_read": 60_000, "temp_blks_written": 4000, "temp_blks_read": 4000,
                  "temp_blk_write_us": 0.001 * HOUR_US, "rows": 1460 }
            ],
            "plans": [{ "query_id": SELECT, "plan_id": 11, "text": "Index Scan using orders_pkey on orders\n  Index Cond: (id = $1)" }],
            "plan_history": [
                { "snap_id": 101, "time": "2026-11-23T04:00:00+00:00", "query_id": SELECT, "plan_id": 11, "calls": 1_900_000,
                  "elapsed_us": 0.14 * HOUR_US, "logical_reads": 38_000_000, "physical_reads": 190_000 },
                { "snap_id": 102, "time": "2026-11-23T05:00:00+00:00", "query_id": SELECT, "plan_id": 11, "calls": 2_000_000,
                  "elapsed_us": 0.15 * HOUR_US, "logical_reads": 40_200_000, "physical_reads": 200_000 }
            ],
            "tables": [
                { "database": "shop", "schema": "public", "name": "orders", "oid": 16400, "toast": false, "heap_blks_read": 180_000,
                  "heap_blks_hit": 40_000_000, "idx_blks_read": 20_000, "idx_blks_hit": 8_000_000, "seq_scan": 4, "seq_tup_read": 4000,
                  "idx_scan": 2_000_000, "idx_tup_fetch": 2_000_000, "n_tup_ins": 50_000, "n_tup_upd": 10_000, "n_tup_hot_upd": 8_000,
                  "n_tup_newpage_upd": 1500, "n_live_tup": 5_000_000, "n_dead_tup": 2_000, "autovacuum_count": 1, "autoanalyze_count": 1,
                  "last_autovacuum": "2026-11-23T05:30:00+00:00", "last_autoanalyze": "2026-11-23T05:30:00+00:00", "frozen_age": 80_000_000,
                  "size_begin": 4_000_000_000_u64, "size_end": 4_040_000_000_u64 },
                { "database": "archive", "schema": "public", "name": "sales", "oid": 16500, "toast": false, "heap_blks_read": 60_000,
                  "heap_blks_hit": 400_000, "seq_scan": 4, "seq_tup_read": 40_000_000, "n_live_tup": 10_000_000, "n_dead_tup": 0,
                  "autoanalyze_count": 0, "last_analyze": "2026-11-01T00:00:00+00:00", "frozen_age": 79_000_000, "size_end": 2_000_000_000 }
            ],
            "indexes": [
                { "database": "shop", "schema": "public", "table": "orders", "name": "orders_pkey", "oid": 16405, "idx_scan": 2_000_000,
                  "idx_blks_read": 20_000, "idx_blks_hit": 8_000_000, "size_end": 200_000_000, "is_unique": true },
                { "database": "shop", "schema": "public", "table": "orders", "name": "orders_comment_idx", "oid": 16406, "idx_scan": 0,
                  "size_end": 300_000_000, "is_unique": false }
            ],
            "io": [
                { "backend_type": "client backend", "object": "relation", "context": "normal", "reads": 360_000, "read_bytes": 2_949_120_000_u64,
                  "read_us": 0.08 * HOUR_US, "writes": 3_000, "write_bytes": 24_576_000, "extends": 5_000, "extend_bytes": 40_960_000, "hits": 71_000_000 },
                { "backend_type": "checkpointer", "object": "relation", "context": "normal", "writes": 150_000, "write_bytes": 1_228_800_000,
                  "write_us": 0.01 * HOUR_US, "fsyncs": 700, "fsync_us": 3e6 }
            ],
            "cell_io": null,
            "slru": [{ "name": "transaction", "blks_hit": 900_000, "blks_read": 12, "blks_written": 90, "blks_zeroed": 22 }],
            "replication": [{ "application": "standby1", "state": "streaming", "sync_state": "async", "lag_bytes_end": 4096, "replay_lag_us_max": 30_000 }],
            "slots": [{ "name": "standby1", "retained_bytes": 16_777_216, "active": true }],
            "vacuum_horizon": [{ "holder": "session 4711", "kind": "xmin holder", "age_xids": 1200, "detail": "shopd, active" }],
            "sessions": {
                "idle_in_transaction": [{ "pid": 4711, "application": "shopd", "age_us": 2e6, "query_id": SELECT }],
                "longest_transactions": [{ "pid": 4712, "application": "shopd", "state": "active", "age_us": 4e6, "query_id": UPDATE }],
                "blocking": [{ "blocker_pid": 4711, "blocked_pid": 4713, "samples": 60, "locktype": "transactionid", "query_id": UPDATE }]
            },
            "settings": [
                { "name": "shared_buffers", "begin": "1048576", "end": "1048576", "unit": "8kB", "source": "configuration file" },
                { "name": "work_mem", "begin": "4096", "end": "65536", "unit": "kB", "source": "configuration file", "changed": true },
                { "name": "max_wal_size", "begin": "1024", "end": "1024", "unit": "MB", "source": "default" },
                { "name": "autovacuum_freeze_max_age", "begin": "-1", "end": "200000000", "source": "default" }
            ],
            "ash": {
                "period_us": 1e6, "ticks": 3600, "lost": 0,
                "slots": (0..12).map(|slot| slot * 5).map(slot).collect::<Vec<_>>(),
                "by_event": [{ "event": null, "class": "CPU", "foreground": true, "samples": 3400 },
                             { "event": "DataFileRead", "class": "User I/O", "foreground": true, "samples": 1200 }],
                "top_sql": [{ "query_id": SELECT, "plan_id": 11, "event": null, "samples": 1900 }],
                "top_sessions": [{ "pid": 4711, "role": "web", "application": "shopd", "database": "shop", "class": "User I/O",
                                   "consumer_group": "web", "samples": 800 }],
                "by_consumer_group": [{ "consumer_group": "web", "class": "CPU", "samples": 3000 },
                                      { "consumer_group": "web", "class": "User I/O", "samples": 800 },
                                      { "consumer_group": "web", "class": "Commit", "samples": 200 },
                                      { "consumer_group": "OTHER_GROUPS", "class": "User I/O", "samples": 400 }]
            }
        }))
    }

    /// The healthy hour on a cell, with scans, slow reads, lock waits, requested checkpoints, a restart and a changed plan.
    pub fn busy() -> Self {
        Self::healthy()
            .event("DataFileRead", "User I/O", 0.5 * HOUR_US)
            .event("transactionid", "Application", 0.2 * HOUR_US)
            .event("VacuumDelay", "Other", 0.1 * HOUR_US)
            .push(
                "/events",
                json!({ "event": "cell smart table scan", "class": "User I/O", "type": "Extension", "foreground": true,
                "waits": 12_000, "time_us": 9e7, "max_us": 90_000, "how": "timed",
                "histogram": [0, 0, 0, 0, 0, 0, 10, 90, 400, 1500, 3000, 4000, 2500, 400, 80, 15, 5] }),
            )
            .statistic("cell physical IO bytes eligible for predicate offload", 2_591_843_581_952.0)
            .statistic("cell physical IO bytes saved by storage index", 85_480_210_432.0)
            .statistic("cell physical IO interconnect bytes returned by smart scan", 966_839_837_864.0)
            .statistic("cell IO uncompressed bytes", 5_845_255_073_982.0)
            .statistic("cell physical IO interconnect bytes", 3_449_516_534_952.0)
            .statistic("physical read total bytes", 3_515_568_717_824.0)
            .statistic("physical write total bytes", 779_330_323_456.0)
            .statistic("pg_stat_checkpointer.num_requested", 40.0)
            .set(
                "/notes",
                json!([{ "snap_id": 102, "time": "2026-11-23T06:00:00+00:00", "kind": "server restart",
                "text": "the server was started at 2026-11-23 05:10:00+00" }]),
            )
            .push(
                "/plan_history",
                json!({ "snap_id": 102, "time": "2026-11-23T05:00:00+00:00", "query_id": SELECT, "plan_id": 99,
                "calls": 100, "elapsed_us": 0.3 * HOUR_US, "logical_reads": 90_000_000, "physical_reads": 9_000_000 }),
            )
            .set(
                "/cell_io",
                json!([{ "cell": "cell1", "database": "shop", "kind": "single block read", "operations": 9000,
                "bytes": 73_728_000, "time_us": 1.8e6, "histogram": [0, 0, 0, 0, 0, 0, 0, 6000, 2900, 100] }]),
            )
            .set(
                "/cell_disks",
                json!([
                    { "cell": "cell1", "disk_type": "cell disk", "disk": "/disks/a", "operation": "read", "operations": 36_000,
                      "bytes": 3_774_873_600_u64, "time_us": 1.44e8, "histogram": [0, 0, 0, 0, 0, 0, 0, 1000, 5000, 20_000, 9000, 1000] },
                    { "cell": "cell1", "disk_type": "cell disk", "disk": "/disks/a", "operation": "write", "operations": 7200,
                      "bytes": 58_982_400, "time_us": 7.2e6, "io_errors": 2, "histogram": [0, 0, 0, 0, 0, 0, 0, 0, 7200] },
                    { "cell": "cell2", "disk_type": "cell disk", "disk": "/disks/b", "operation": "sync", "operations": 720,
                      "time_us": 3.6e6, "histogram": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 720] },
                    { "cell": "cell1", "disk_type": "flash disk", "disk": "/flash/a", "operation": "read", "operations": 360_000,
                      "bytes": 2_949_120_000_u64, "time_us": 3.6e7, "histogram": [0, 0, 0, 0, 0, 0, 0, 360_000] }
                ]),
            )
            .set("/statements/2/eligible_bytes", 2_591_843_581_952_u64)
            .set("/statements/2/saved_bytes", 85_480_210_432_u64)
            .set("/statements/2/returned_bytes", 966_839_837_864_u64)
            .set("/tables/1/eligible_bytes", 2_591_843_581_952_u64)
            .set("/tables/1/on_cell", true)
    }

    /// Sets a value by JSON pointer. Objects and lists on the way must exist.
    pub fn set(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        let (parent, name) = pointer.rsplit_once('/').expect("a pointer starts with a slash");
        match self.0.pointer_mut(parent).unwrap_or_else(|| panic!("no {parent}")) {
            Value::Array(items) => items[name.parse::<usize>().expect("an index")] = value.into(),
            object => object[name] = value.into(),
        }
        self
    }

    /// Appends to a list.
    pub fn push(mut self, pointer: &str, value: Value) -> Self {
        self.0
            .pointer_mut(pointer)
            .and_then(Value::as_array_mut)
            .unwrap_or_else(|| panic!("no list {pointer}"))
            .push(value);
        self
    }

    /// Sets a statistic, or adds it.
    pub fn statistic(mut self, name: &str, value: f64) -> Self {
        let statistics = self.0["statistics"].as_array_mut().expect("statistics");
        statistics.retain(|statistic| statistic["name"] != name);
        statistics.push(json!({ "name": name, "value": value, "how": "counted" }));
        self
    }

    /// Sets the time of an event of a class, or adds the event.
    pub fn event(mut self, event: &str, class: &str, time_us: f64) -> Self {
        let events = self.0["events"].as_array_mut().expect("events");
        events.retain(|found| found["event"] != event || found["class"] != class);
        events
            .push(json!({ "event": event, "class": class, "foreground": true, "time_us": time_us, "how": "sampled" }));
        self
    }

    /// Removes a field of the document.
    pub fn without(mut self, name: &str) -> Self {
        self.0.as_object_mut().expect("an object").remove(name);
        self
    }

    pub fn json(&self) -> Vec<u8> {
        self.0.to_string().into_bytes()
    }

    pub fn build(&self) -> Document {
        parse(&self.json()).unwrap_or_else(|error| panic!("{error}")).remove(0)
    }
}
