/* extension/cellar--1.0--1.1.sql */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION cellar UPDATE TO '1.1'" to load this file. \quit

-- The server must have loaded the library of this version: functions below are not in an older one.
DO $$
BEGIN
  CREATE FUNCTION cellar.get_library_version()
  RETURNS text
  AS 'MODULE_PATHNAME', 'cellar_get_library_version'
  LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;
EXCEPTION WHEN undefined_function THEN
  RAISE EXCEPTION 'the server has loaded a library "cellar" that is older than version 1.1 of the extension'
    USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Restart the server, so that it loads the installed library.';
END
$$;

COMMENT ON FUNCTION cellar.get_library_version() IS 'version of the library that the server has loaded';

-- Disk groups: the names are those of Oracle's v$asm_diskgroup, v$asm_disk and v$asm_operation

CREATE FUNCTION cellar.get_disk_groups(OUT cell text, OUT report jsonb)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_disk_group_reports'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION cellar.get_disk_groups() IS
  'a report about the disk group of each cell that stores the data directory or a tablespace; see the view cellar.disk_groups';

CREATE VIEW cellar.disk_groups AS
  SELECT g.cell, dense_rank() OVER (ORDER BY g.cell)::integer AS group_number, r.group_id, r.allocation_unit_size, r.state,
         r.type, r.total_mb, r.free_mb, r.usable_file_mb, r.disk_repair_time, r.offline_disks, r.write_intents,
         r.reads_from_other_copy, r.reads_past_cap, r.repairs, r.resync_read_bytes, r.resync_written_bytes
  FROM cellar.get_disk_groups() g,
       LATERAL pg_catalog.jsonb_to_record(g.report) AS r(
         group_id uuid, allocation_unit_size bigint, state text, type text, total_mb bigint, free_mb bigint,
         usable_file_mb bigint, disk_repair_time bigint, offline_disks integer, write_intents bigint, reads_from_other_copy bigint,
         reads_past_cap bigint, repairs bigint, resync_read_bytes bigint, resync_written_bytes bigint);

COMMENT ON VIEW cellar.disk_groups IS
  'disk groups of the cells that store this cluster; a cell that does not answer is reported in a warning and missing';
COMMENT ON COLUMN cellar.disk_groups.cell IS 'path of the cell''s socket';
COMMENT ON COLUMN cellar.disk_groups.state IS 'MOUNTED, or DEGRADED if a disk is not online';
COMMENT ON COLUMN cellar.disk_groups.type IS 'redundancy: EXTERN, NORMAL or HIGH';
COMMENT ON COLUMN cellar.disk_groups.usable_file_mb IS 'by how many MB files may grow';

CREATE VIEW cellar.disks AS
  SELECT g.cell, g.group_number, d.disk_number, d.mode_status, d.state, d.path, d.failgroup,
         pg_catalog.to_timestamp(d.offline_since) AS offline_since, d.repair_timer, d.total_mb, d.free_mb, d.reads, d.writes, d.syncs,
         d.read_errs, d.write_errs, d.sync_errs, d.read_time, d.write_time, d.sync_time, d.bytes_read, d.bytes_written,
         d.read_histogram, d.write_histogram, d.sync_histogram
  FROM (SELECT cell, dense_rank() OVER (ORDER BY cell)::integer AS group_number, report
        FROM cellar.get_disk_groups()) g,
       LATERAL pg_catalog.jsonb_to_recordset(g.report -> 'disks') AS d(
         disk_number integer, mode_status text, state text, path text, failgroup text, offline_since double precision,
         repair_timer bigint,
         total_mb bigint, free_mb bigint, reads bigint, writes bigint, syncs bigint, read_errs bigint, write_errs bigint,
         sync_errs bigint, read_time double precision, write_time double precision, sync_time double precision,
         bytes_read bigint, bytes_written bigint, read_histogram bigint[], write_histogram bigint[], sync_histogram bigint[]);

COMMENT ON VIEW cellar.disks IS
  'cell disks of the cells that store this cluster, with the I/O since each cell''s start; times are in seconds';
COMMENT ON COLUMN cellar.disks.cell IS 'path of the cell''s socket';
COMMENT ON COLUMN cellar.disks.mode_status IS 'ONLINE, OFFLINE, or SYNCING while a disk that was offline gets what changed';
COMMENT ON COLUMN cellar.disks.repair_timer IS 'seconds until an offline disk is dropped by force; NULL if it never is';
COMMENT ON COLUMN cellar.disks.read_histogram IS
  'reads by duration: element i counts those shorter than 2^(i-1) microseconds that are in no lower element, the last one all longer reads';

CREATE VIEW cellar.rebalance_operations AS
  SELECT g.cell, g.group_number, o.operation, o.pass, o.state, o.power, o.actual, o.sofar, o.est_work, o.est_rate,
         o.est_minutes, o.error_code
  FROM (SELECT cell, dense_rank() OVER (ORDER BY cell)::integer AS group_number, report
        FROM cellar.get_disk_groups()) g,
       LATERAL pg_catalog.jsonb_to_recordset(g.report -> 'operations') AS o(
         operation text, pass text, state text, power integer, actual integer, sofar bigint, est_work bigint,
         est_rate bigint, est_minutes bigint, error_code text);

COMMENT ON VIEW cellar.rebalance_operations IS
  'operations on disk groups that are under way; work is counted in allocation units, est_rate in allocation units per minute';

CREATE VIEW cellar.file_redundancy AS
  SELECT g.cell, g.group_number, f.file_type, f.redundancy, f.is_default, f.usable_file_mb
  FROM (SELECT cell, dense_rank() OVER (ORDER BY cell)::integer AS group_number, report
        FROM cellar.get_disk_groups()) g,
       LATERAL pg_catalog.jsonb_to_recordset(g.report -> 'file_redundancy') AS f(
         file_type text, redundancy text, is_default boolean, usable_file_mb bigint);

COMMENT ON VIEW cellar.file_redundancy IS
  'redundancy of new files of each type in the disk groups of the cells that store this cluster';
COMMENT ON COLUMN cellar.file_redundancy.is_default IS 'the type has the redundancy of the group';

CREATE FUNCTION cellar.get_cell_metrics(OUT cell text, OUT roots text[], OUT metrics jsonb)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_cell_metrics'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION cellar.get_cell_metrics() IS
  'the metrics of each cell that stores the data directory or a tablespace, as its HTTP endpoint serves them as JSON';

-- A report contains paths of disks and, after a scrub, of damaged files; metrics contain names of databases of other clusters.
REVOKE ALL ON FUNCTION cellar.get_disk_groups(), cellar.get_cell_metrics() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cellar.get_disk_groups(), cellar.get_cell_metrics() TO pg_monitor;
GRANT SELECT ON cellar.disk_groups, cellar.disks, cellar.rebalance_operations, cellar.file_redundancy TO pg_monitor;

-- The Automatic Workload Repository (AWR)
--
-- An AWR snapshot collects the cumulative statistics of PostgreSQL, the host and the cells, and stores by how much each of
-- them increased since the previous AWR snapshot. A report over several snapshots is therefore a sum, and a reset, a
-- restart or a dropped object is recognized once, when the snapshot is taken. Each interval table below contains one row
-- per object that changed in the interval. The type of a column determines how a snapshot fills it:
--
--   NOT NULL columns      identify the object
--   awr.counter           increase of a cumulative count
--   awr.duration          increase of a cumulative time, in milliseconds
--   awr.growth            signed change of the column without the suffix _growth
--   other columns         value at the end of the interval
--
-- Interval tables are partitioned by day; the retention drops partitions.

CREATE SCHEMA awr;
COMMENT ON SCHEMA awr IS 'Automatic Workload Repository: AWR snapshots and reports';

CREATE DOMAIN awr.counter AS bigint;
COMMENT ON DOMAIN awr.counter IS 'increase of a cumulative count in the interval of an AWR snapshot';
CREATE DOMAIN awr.duration AS double precision;
COMMENT ON DOMAIN awr.duration IS 'increase of a cumulative time in the interval of an AWR snapshot, in milliseconds';
CREATE DOMAIN awr.growth AS bigint;
COMMENT ON DOMAIN awr.growth IS 'signed change of a size in the interval of an AWR snapshot';

-- ---- Instances, snapshots, baselines ----

CREATE TABLE awr.instance (
  instance_id integer PRIMARY KEY,
  name text NOT NULL UNIQUE,
  system_identifier bigint NOT NULL,
  is_local boolean NOT NULL
);
COMMENT ON TABLE awr.instance IS 'clusters and standbys whose AWR snapshots the repository contains; instance 1 is this server';

CREATE SEQUENCE awr.snap_id;
COMMENT ON SEQUENCE awr.snap_id IS 'numbers of AWR snapshots; the snapshots of one instance have ascending numbers';

CREATE TABLE awr.snapshot (
  snap_day date NOT NULL,
  snap_id bigint NOT NULL,
  instance_id integer NOT NULL,
  begin_time timestamptz,
  end_time timestamptz NOT NULL,
  elapsed_us bigint,
  requested_by text NOT NULL,
  duration_us bigint,
  startup_time timestamptz,
  facts jsonb NOT NULL
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.snapshot IS 'AWR snapshots; see the view awr.snapshots';

CREATE TABLE awr.note (
  snap_day date NOT NULL,
  snap_id bigint NOT NULL,
  instance_id integer NOT NULL,
  kind text NOT NULL,
  object text,
  description text NOT NULL
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.note IS
  'events that limit what the statistics of an interval mean: restarts, statistics resets, dropped objects, sources that could not be read';

CREATE TABLE awr.baseline (
  name text PRIMARY KEY,
  instance_id integer NOT NULL REFERENCES awr.instance,
  begin_snap bigint NOT NULL,
  end_snap bigint NOT NULL CHECK (end_snap >= begin_snap),
  first_day date NOT NULL,
  last_day date NOT NULL
);
COMMENT ON TABLE awr.baseline IS 'named periods that the retention does not delete; see awr.create_baseline';
SELECT pg_catalog.pg_extension_config_dump('awr.instance', '');
SELECT pg_catalog.pg_extension_config_dump('awr.snap_id', '');
SELECT pg_catalog.pg_extension_config_dump('awr.baseline', '');

-- The values of the latest collection of each instance, from which the next snapshot computes increases
CREATE TABLE awr.last_value (
  instance_id integer NOT NULL,
  kind text NOT NULL,
  database oid NOT NULL,
  data jsonb NOT NULL,
  PRIMARY KEY (instance_id, kind, database)
);
-- Compressing some MB takes longer than writing them.
ALTER TABLE awr.last_value ALTER data SET STORAGE EXTERNAL;
COMMENT ON TABLE awr.last_value IS 'cumulative values at the latest AWR snapshot; for internal use by awr.store_snapshot';

CREATE TABLE awr.query_text (
  instance_id integer NOT NULL,
  query_id bigint NOT NULL,
  query text NOT NULL,
  is_normalized boolean NOT NULL,
  last_day date NOT NULL,
  PRIMARY KEY (instance_id, query_id)
);
COMMENT ON TABLE awr.query_text IS 'texts of statements, by query identifier; without constants if pg_stat_statements provided them';
COMMENT ON COLUMN awr.query_text.last_day IS 'last day whose statistics or session samples refer to the text; the retention deletes texts by this day';

CREATE TABLE awr.plan_text (
  instance_id integer NOT NULL,
  plan_id bigint NOT NULL,
  query_id bigint NOT NULL,
  plan text NOT NULL,
  last_day date NOT NULL,
  PRIMARY KEY (instance_id, plan_id, query_id)
);
COMMENT ON TABLE awr.plan_text IS 'texts of the plans in awr.plan_stat';
COMMENT ON COLUMN awr.plan_text.last_day IS 'as in awr.query_text';
SELECT pg_catalog.pg_extension_config_dump('awr.query_text', '');
SELECT pg_catalog.pg_extension_config_dump('awr.plan_text', '');

-- ---- Interval tables ----

CREATE TABLE awr.statistic (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  name text NOT NULL,
  value awr.counter,
  stats_reset text
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.statistic IS
  'statistics of the instance: those of cellar.sysstat under Oracle''s names, and columns of pg_stat_wal, pg_stat_bgwriter, pg_stat_checkpointer and pg_stat_archiver as view.column';

CREATE TABLE awr.database_stat (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  datid oid NOT NULL,
  datname text,
  numbackends integer,
  xact_commit awr.counter, xact_rollback awr.counter,
  blks_read awr.counter, blks_hit awr.counter,
  tup_returned awr.counter, tup_fetched awr.counter, tup_inserted awr.counter, tup_updated awr.counter, tup_deleted awr.counter,
  conflicts awr.counter, deadlocks awr.counter, checksum_failures awr.counter,
  temp_files awr.counter, temp_bytes awr.counter,
  blk_read_time awr.duration, blk_write_time awr.duration,
  session_time awr.duration, active_time awr.duration, idle_in_transaction_time awr.duration,
  sessions awr.counter, sessions_abandoned awr.counter, sessions_fatal awr.counter, sessions_killed awr.counter,
  size bigint, size_growth awr.growth,
  frozen_age bigint, mxid_age bigint,
  stats_reset text
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.database_stat IS 'pg_stat_database per interval, with sizes and the age of datfrozenxid';

CREATE TABLE awr.statement_stat (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  dbid oid NOT NULL, userid oid NOT NULL, queryid bigint NOT NULL, toplevel boolean NOT NULL,
  rolname text,
  plans awr.counter, total_plan_time awr.duration,
  calls awr.counter, total_exec_time awr.duration, rows awr.counter,
  shared_blks_hit awr.counter, shared_blks_read awr.counter, shared_blks_dirtied awr.counter, shared_blks_written awr.counter,
  local_blks_hit awr.counter, local_blks_read awr.counter, local_blks_dirtied awr.counter, local_blks_written awr.counter,
  temp_blks_read awr.counter, temp_blks_written awr.counter,
  shared_blk_read_time awr.duration, shared_blk_write_time awr.duration,
  temp_blk_read_time awr.duration, temp_blk_write_time awr.duration,
  wal_records awr.counter, wal_fpi awr.counter, wal_bytes awr.counter,
  jit_functions awr.counter, jit_generation_time awr.duration, jit_inlining_time awr.duration,
  jit_optimization_time awr.duration, jit_emission_time awr.duration,
  max_exec_time double precision, mean_exec_time double precision, stddev_exec_time double precision,
  stats_reset text
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.statement_stat IS 'pg_stat_statements per interval';

CREATE TABLE awr.kcache_stat (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  dbid oid NOT NULL, userid oid NOT NULL, queryid bigint NOT NULL,
  read_bytes awr.counter, write_bytes awr.counter, user_time awr.duration, system_time awr.duration
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.kcache_stat IS 'pg_stat_kcache per interval: what the kernel read, wrote and computed for top-level statements';

CREATE TABLE awr.plan_stat (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  database oid NOT NULL, role oid NOT NULL, query_id bigint NOT NULL, plan_id bigint NOT NULL,
  calls awr.counter, elapsed_us awr.counter, cpu_us awr.counter, run_queue_us awr.counter, plans awr.counter, plan_us awr.counter,
  parses awr.counter, parse_us awr.counter, rows awr.counter,
  shared_blks_hit awr.counter, shared_blks_read awr.counter, shared_blks_dirtied awr.counter, shared_blks_written awr.counter,
  temp_blks_read awr.counter, temp_blks_written awr.counter, blk_read_us awr.counter, blk_write_us awr.counter,
  wal_records awr.counter, wal_fpi awr.counter, wal_bytes awr.counter,
  eligible_bytes awr.counter, saved_bytes awr.counter, returned_bytes awr.counter, optimized_bytes awr.counter,
  max_us bigint,
  rolname text,
  stats_reset text
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.plan_stat IS 'statistics of top-level statements per plan and interval; plan_id is 0 for utility statements';

CREATE TABLE awr.table_stat (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  dbid oid NOT NULL, relid oid NOT NULL,
  schemaname text, relname text, relkind "char", tablespace oid, toast_of oid, storage_options text,
  seq_scan awr.counter, seq_tup_read awr.counter, idx_scan awr.counter, idx_tup_fetch awr.counter,
  n_tup_ins awr.counter, n_tup_upd awr.counter, n_tup_del awr.counter, n_tup_hot_upd awr.counter, n_tup_newpage_upd awr.counter,
  n_live_tup bigint, n_dead_tup bigint, n_mod_since_analyze bigint, n_ins_since_vacuum bigint,
  vacuum_count awr.counter, autovacuum_count awr.counter, analyze_count awr.counter, autoanalyze_count awr.counter,
  total_vacuum_time awr.duration, total_autovacuum_time awr.duration, total_analyze_time awr.duration, total_autoanalyze_time awr.duration,
  last_vacuum timestamptz, last_autovacuum timestamptz, last_analyze timestamptz, last_autoanalyze timestamptz,
  heap_blks_read awr.counter, heap_blks_hit awr.counter, idx_blks_read awr.counter, idx_blks_hit awr.counter,
  toast_blks_read awr.counter, toast_blks_hit awr.counter, tidx_blks_read awr.counter, tidx_blks_hit awr.counter,
  size bigint, size_growth awr.growth, frozen_age bigint,
  stats_reset text
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.table_stat IS 'pg_stat_all_tables and pg_statio_all_tables per interval, for tables with activity';

CREATE TABLE awr.index_stat (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  dbid oid NOT NULL, indexrelid oid NOT NULL,
  relid oid, schemaname text, relname text, indexrelname text, tablespace oid, is_unique boolean,
  idx_scan awr.counter, idx_tup_read awr.counter, idx_tup_fetch awr.counter, idx_blks_read awr.counter, idx_blks_hit awr.counter,
  size bigint, size_growth awr.growth,
  stats_reset text
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.index_stat IS 'pg_stat_all_indexes and pg_statio_all_indexes per interval, for indexes with activity';

CREATE TABLE awr.io_stat (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  backend_type text NOT NULL, object text NOT NULL, context text NOT NULL,
  reads awr.counter, read_bytes awr.counter, read_time awr.duration,
  writes awr.counter, write_bytes awr.counter, write_time awr.duration,
  writebacks awr.counter, writeback_time awr.duration,
  extends awr.counter, extend_bytes awr.counter, extend_time awr.duration,
  hits awr.counter, evictions awr.counter, reuses awr.counter, fsyncs awr.counter, fsync_time awr.duration,
  stats_reset text
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.io_stat IS 'pg_stat_io per interval (PostgreSQL 16 and later)';

CREATE TABLE awr.session_io_stat (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  pid integer NOT NULL, backend_start timestamptz NOT NULL,
  backend_type text, database oid, rolname text, application text,
  reads awr.counter, read_bytes awr.counter, read_time awr.duration,
  writes awr.counter, write_bytes awr.counter, write_time awr.duration,
  extends awr.counter, extend_bytes awr.counter, extend_time awr.duration,
  hits awr.counter, wal_writes awr.counter, wal_bytes awr.counter, wal_fsyncs awr.counter,
  stats_reset text
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.session_io_stat IS
  'pg_stat_get_backend_io per interval, of the sessions and processes that existed at its end (PostgreSQL 18 and later)';

CREATE TABLE awr.slru_stat (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  name text NOT NULL,
  blks_zeroed awr.counter, blks_hit awr.counter, blks_read awr.counter, blks_written awr.counter, blks_exists awr.counter,
  flushes awr.counter, truncates awr.counter,
  stats_reset text
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.slru_stat IS 'pg_stat_slru per interval';

CREATE TABLE awr.event_stat (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  event text NOT NULL, bucket integer NOT NULL,
  waits awr.counter, time_us awr.counter,
  max_us bigint,
  stats_reset text
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.event_stat IS
  'timed wait events per interval. Bucket -1 contains the totals; bucket i counts waits shorter than 2^i microseconds and not shorter than half of that';

CREATE TABLE awr.cell_io_stat (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  cell text NOT NULL, database oid NOT NULL, kind text NOT NULL, bucket integer NOT NULL,
  operations awr.counter, bytes awr.counter, time_us awr.counter
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.cell_io_stat IS
  'I/O that cells served for this cluster, per interval, cell, database (0: none) and kind. Bucket -1 contains the totals; bucket i counts operations shorter than 2^i microseconds';

CREATE TABLE awr.cell_file_stat (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  cell text NOT NULL, database oid NOT NULL, tablespace oid NOT NULL, file_type text NOT NULL, filenode oid NOT NULL,
  kind text NOT NULL, bucket integer NOT NULL,
  operations awr.counter, bytes awr.counter, time_us awr.counter,
  relation oid, schemaname text, relname text, indexrelname text, class text,
  stats_reset text
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.cell_file_stat IS
  'I/O that cells served for this cluster, per interval, cell, database, tablespace, file type and kind (filenode 0), and of relations, whose I/O the rows with filenode 0 contain. Buckets are those of awr.cell_io_stat, of reads only';

CREATE TABLE awr.cell_stat (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  cell text NOT NULL, name text NOT NULL,
  total awr.counter,
  value double precision,
  stats_reset text
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.cell_stat IS
  'metrics of the flash cache and the objective of I/O resource management of the cells, without the prefix cellar_: total is an increase, value is the value at the end of the interval';

CREATE TABLE awr.cell_disk_stat (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  cell text NOT NULL, disk_type text NOT NULL, disk text NOT NULL, operation text NOT NULL, bucket integer NOT NULL,
  operations awr.counter, bytes awr.counter, time_us awr.counter, io_errors awr.counter, no_space_errors awr.counter,
  stats_reset text
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.cell_disk_stat IS
  'operations of the cells on their disks per interval, cell, type of disk (cell disk, flash disk), disk and operation, of all clusters on the cells. Buckets are those of awr.cell_io_stat';

CREATE TABLE awr.iorm_stat (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  cell text NOT NULL, database_id text NOT NULL, consumer_group text NOT NULL, size text NOT NULL,
  database text, database_oid bigint,
  requests awr.counter, bytes awr.counter, wait_us awr.counter, request_us awr.counter, device_us awr.counter,
  flash_requests awr.counter, flash_bytes awr.counter,
  stats_reset text
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.iorm_stat IS
  'requests to the disks of the cells per interval, cell, database, consumer group and size (small, large), as I/O resource management counts them, of all clusters on the cells. database_id is the same as long as a cell runs, database the name, database_oid is NULL for databases of other clusters';

CREATE TABLE awr.os_stat (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  name text NOT NULL,
  total awr.counter,
  value double precision
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.os_stat IS
  'statistics of the host, under Oracle''s names where Oracle has them: total is an increase, value is the value at the end of the interval. Times are in microseconds';

-- Returns the value of a setting without passwords and other secrets. Commands and connection strings can contain them.
CREATE FUNCTION awr.redact_setting(name text, setting text, vartype text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
         WHEN vartype <> 'string' OR setting = '' THEN setting
         WHEN name ~* '(passw|passphrase|secret|token|credential)' AND name !~* 'file' THEN '***'
         ELSE regexp_replace(
                regexp_replace(
                  regexp_replace(setting,
                    '(\w*(?:passw|pwd|passphrase|secret|token|credential|access_?key|api_?key)[\w-]*(?:\s*[=:]\s*|\s+))(?:''(?:[^''\\]|\\.|'''')*''|"[^"]*"|[^\s,;&''"]+)',
                    '\1***', 'gi'),
                  '(://[^/\s:@]*:)[^@\s]+@', '\1***@', 'g'),
                '((?:^|\s)(?:-u|--user)(?:\s+|=)[^\s:]+:)\S+', '\1***', 'g')
       END;

COMMENT ON FUNCTION awr.redact_setting(text, text, text) IS 'for internal use by awr.collect';

CREATE TABLE awr.setting (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  name text NOT NULL,
  setting text, unit text, source text
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.setting IS
  'configuration parameters, extension versions (extension NAME) and the server version, in each snapshot in which they changed';

CREATE TABLE awr.object_name (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  class text NOT NULL, object oid NOT NULL,
  name text
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.object_name IS
  'names of roles and tablespaces (class role or tablespace), in each snapshot in which they changed';

CREATE TABLE awr.cpu_stat (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  database oid NOT NULL, backend_type text NOT NULL, application text NOT NULL,
  cpu_us awr.counter, run_queue_us awr.counter,
  parses awr.counter, parse_us awr.counter, commits awr.counter, commit_us awr.counter, plan_us awr.counter, execute_us awr.counter,
  elapsed_us awr.counter,
  stats_reset text
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.cpu_stat IS
  'CPU time of the server''s processes per interval, the time that they were ready to run but waited for a CPU, elapsed time of parallel workers, and active time and parse, plan, execution and commit times of sessions; database 0: none';

CREATE TABLE awr.relation_stat (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  database oid NOT NULL, relation oid NOT NULL,
  row_lock_waits awr.counter, row_lock_us awr.counter,
  eligible_bytes awr.counter, saved_bytes awr.counter, returned_bytes awr.counter,
  stats_reset text
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.relation_stat IS
  'row-lock waits (sampled) and Smart Scan bytes of relations per interval; relation 0: sums of relations for which there was no space';

-- ---- Session samples ----

CREATE TABLE awr.word (
  id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  word text NOT NULL UNIQUE,
  last_day date NOT NULL
);
COMMENT ON TABLE awr.word IS 'texts of session samples, by the numbers that awr.sample_chunk contains';
COMMENT ON COLUMN awr.word.last_day IS 'last day whose session samples contain the text; the retention deletes texts by this day';
SELECT pg_catalog.pg_extension_config_dump('awr.word', '');
SELECT pg_catalog.pg_extension_config_dump('awr.word_id_seq', '');

-- The samples of about one minute. Element i of every array belongs to sample i. Arrays of similar values compress well:
-- a sample takes a few bytes.
CREATE TABLE awr.sample_chunk (
  snap_day date NOT NULL,
  instance_id integer NOT NULL,
  begin_time timestamptz NOT NULL,
  end_time timestamptz NOT NULL,
  period_ms integer NOT NULL,
  ticks integer NOT NULL,
  lost bigint NOT NULL,
  sample_ms integer[] NOT NULL,
  pid integer[] NOT NULL,
  session_ms bigint[] NOT NULL,
  leader_pid integer[] NOT NULL,
  blocker_pid integer[] NOT NULL,
  database oid[] NOT NULL,
  role oid[] NOT NULL,
  application integer[] NOT NULL,
  client integer[] NOT NULL,
  backend_type integer[] NOT NULL,
  state integer[] NOT NULL,
  wait_event_type integer[] NOT NULL,
  wait_event integer[] NOT NULL,
  query_id bigint[] NOT NULL,
  plan_hash bigint[] NOT NULL,
  xact_age_us bigint[] NOT NULL,
  query_age_us bigint[] NOT NULL,
  temp_bytes bigint[] NOT NULL,
  consumer_group integer[],
  snap_id bigint
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.sample_chunk IS 'session samples, one row per minute; see the view awr.active_session_history';
COMMENT ON COLUMN awr.sample_chunk.consumer_group IS 'NULL if an earlier release exported the samples';
COMMENT ON COLUMN awr.sample_chunk.snap_id IS
  'AWR snapshot whose interval contains the samples; NULL until it is taken, 0 if only the times of the samples tell';

-- Sums of the session samples of an AWR snapshot's interval. Reports between AWR snapshots read sums, because samples of days
-- are too many. Samples of idle waits are in no sum. The number of rows is bounded by the number of samples, and usually by
-- that of sessions, of statements with their plans and events, and of slots.
CREATE TABLE awr.sample_interval (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  ticks awr.counter, lost awr.counter,
  period_ms integer
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.sample_interval IS 'AWR snapshots whose session samples are summed: ticks of the sampler, lost samples, longest period';

CREATE TABLE awr.sample_event (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  query_id bigint NOT NULL, plan_id bigint NOT NULL,
  event text COLLATE "C" NOT NULL, wait_event_type text COLLATE "C" NOT NULL, class text COLLATE "C" NOT NULL, foreground boolean NOT NULL,
  period_ms integer NOT NULL,
  samples awr.counter
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.sample_event IS
  'session samples of active sessions by statement, plan and wait event; event CPU has no wait_event_type';

-- Of a day that is over, the rows of awr.sample_event of all its AWR snapshots become one per statement, plan and event: there
-- are millions of the former in a week.
CREATE TABLE awr.sample_day (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  first_snap bigint NOT NULL,
  intervals awr.counter
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.sample_day IS
  'days whose rows of awr.sample_event are summed in awr.sample_day_event: first and last AWR snapshot, and their number';

CREATE TABLE awr.sample_day_event (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  query_id bigint NOT NULL, plan_id bigint NOT NULL,
  event text COLLATE "C" NOT NULL, wait_event_type text COLLATE "C" NOT NULL, class text COLLATE "C" NOT NULL, foreground boolean NOT NULL,
  period_ms integer NOT NULL,
  samples awr.counter
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.sample_day_event IS 'sums of awr.sample_event over a day; snap_id is the last AWR snapshot of the day';

CREATE TABLE awr.sample_session (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  pid integer NOT NULL, backend_start timestamptz NOT NULL, backend_type text COLLATE "C" NOT NULL,
  application text COLLATE "C" NOT NULL, client text COLLATE "C" NOT NULL, database oid NOT NULL, role oid NOT NULL,
  state text COLLATE "C" NOT NULL, class text COLLATE "C" NOT NULL,
  samples awr.counter,
  xact_age_us bigint,
  temp_bytes bigint,
  consumer_group text COLLATE "C"
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.sample_session IS
  'session samples by session and wait class (state active), and of sessions idle in a transaction with the greatest age of the transaction and the greatest size of the temporary files';

CREATE TABLE awr.sample_blocking (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  blocker_pid integer NOT NULL, pid integer NOT NULL, event text COLLATE "C" NOT NULL, query_id bigint NOT NULL,
  samples awr.counter,
  head_pid integer
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.sample_blocking IS
  'session samples that waited for a lock, by blocker, waiting session and head of the chain of blockers';
COMMENT ON COLUMN awr.sample_blocking.head_pid IS 'the blocker if it did not wait itself; NULL if an earlier release exported the samples';

CREATE TABLE awr.sample_blocker (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  pid integer NOT NULL, state text COLLATE "C" NOT NULL, application text COLLATE "C" NOT NULL, query_id bigint NOT NULL,
  samples awr.counter
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.sample_blocker IS 'the samples of awr.sample_blocking by what the blocker did at that moment';

CREATE TABLE awr.sample_slot (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  slot timestamptz NOT NULL, class text COLLATE "C" NOT NULL, period_ms integer NOT NULL,
  samples awr.counter
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.sample_slot IS 'session samples of active client sessions and parallel workers over time, by wait class; see awr.slot_seconds';

CREATE TABLE awr.activity (
  snap_day date NOT NULL, snap_id bigint NOT NULL, instance_id integer NOT NULL,
  kind text NOT NULL, object text NOT NULL,
  database oid, pid integer, application text, state text, query_id bigint,
  age_xids bigint, age_us bigint, bytes bigint, detail text
) PARTITION BY LIST (snap_day);
COMMENT ON TABLE awr.activity IS
  'state at the end of the interval. Kinds: longest transaction, idle in transaction, xmin holder, replication, replication slot, replay (of a standby), archiver, prepared transaction';

-- Which statistics a snapshot collects. "source" is a query over the views of one server version; its columns are those
-- of the interval table that "kind" names. Sources of scope database run in every database.
CREATE TABLE awr.collector (
  kind text NOT NULL,
  scope text NOT NULL CHECK (scope IN ('instance', 'database')),
  min_version integer NOT NULL,
  max_version integer NOT NULL,
  requires text,
  source text NOT NULL
);
COMMENT ON TABLE awr.collector IS 'sources of AWR snapshots, by server version and required object';

INSERT INTO awr.collector VALUES
('statistic', 'instance', 0, 999999, NULL,
 $$SELECT 'pg_stat_wal.' || key AS name, value::numeric::bigint AS value, w.stats_reset::text AS stats_reset
   FROM pg_stat_wal w, jsonb_each_text(to_jsonb(w)) WHERE key <> 'stats_reset' AND value IS NOT NULL$$),
('statistic', 'instance', 0, 999999, NULL,
 $$SELECT 'pg_stat_bgwriter.' || key AS name, value::numeric::bigint AS value, w.stats_reset::text AS stats_reset
   FROM pg_stat_bgwriter w, jsonb_each_text(to_jsonb(w)) WHERE key <> 'stats_reset' AND value IS NOT NULL$$),
('statistic', 'instance', 170000, 999999, NULL,
 $$SELECT 'pg_stat_checkpointer.' || key AS name, value::numeric::bigint AS value, w.stats_reset::text AS stats_reset
   FROM pg_stat_checkpointer w, jsonb_each_text(to_jsonb(w)) WHERE key <> 'stats_reset' AND value IS NOT NULL$$),
('statistic', 'instance', 0, 999999, NULL,
 $$SELECT 'pg_stat_archiver.' || key AS name, value::numeric::bigint AS value, w.stats_reset::text AS stats_reset
   FROM pg_stat_archiver w, jsonb_each_text(to_jsonb(w)) WHERE key LIKE '%\_count' AND value IS NOT NULL$$),
('statistic', 'instance', 0, 999999, NULL,
 $$SELECT name, value, awr.get_incarnation()::text AS stats_reset FROM cellar.get_sysstat()$$),
('database_stat', 'instance', 0, 999999, NULL,
 $$SELECT to_jsonb(s) || jsonb_build_object('size', CASE WHEN d.datallowconn THEN pg_database_size(d.oid) END,
            'frozen_age', age(d.datfrozenxid), 'mxid_age', mxid_age(d.datminmxid)) AS row
   FROM pg_stat_database s LEFT JOIN pg_database d ON d.oid = s.datid$$),
('statistic', 'instance', 0, 999999, 'pg_stat_statements',
 $$SELECT 'pg_stat_statements_info.dealloc' AS name, dealloc AS value, stats_reset::text AS stats_reset FROM @pg_stat_statements@.pg_stat_statements_info$$),
('statistic', 'instance', 0, 999999, 'pg_wait_sampling',
 $$SELECT 'pg_wait_sampling.' || event_type || '.' || event AS name, sum(count)::bigint AS value
   FROM @pg_wait_sampling@.pg_wait_sampling_profile WHERE event IS NOT NULL GROUP BY event_type, event$$),
-- What the kernel read and wrote for statements: reads that its page cache answered are not included.
('kcache_stat', 'instance', 0, 999999, 'pg_stat_kcache',
 $$SELECT dbid, userid, queryid, sum(exec_reads)::bigint AS read_bytes, sum(exec_writes)::bigint AS write_bytes,
          sum(exec_user_time) * 1000 AS user_time, sum(exec_system_time) * 1000 AS system_time
   FROM @pg_stat_kcache@.pg_stat_kcache() WHERE top AND queryid IS NOT NULL GROUP BY 1, 2, 3$$),
('statement_stat', 'instance', 0, 169999, 'pg_stat_statements',
 $$SELECT to_jsonb(s) - 'query' || jsonb_build_object('rolname', r.rolname, 'shared_blk_read_time', s.blk_read_time,
            'shared_blk_write_time', s.blk_write_time, 'stats_reset', i.stats_reset) AS row
   FROM @pg_stat_statements@.pg_stat_statements(false) s CROSS JOIN @pg_stat_statements@.pg_stat_statements_info i
        LEFT JOIN pg_roles r ON r.oid = s.userid WHERE s.queryid IS NOT NULL$$),
('statement_stat', 'instance', 170000, 999999, 'pg_stat_statements',
 $$SELECT to_jsonb(s) - 'query' || jsonb_build_object('rolname', r.rolname, 'stats_reset', s.stats_since) AS row
   FROM @pg_stat_statements@.pg_stat_statements(false) s LEFT JOIN pg_roles r ON r.oid = s.userid
   WHERE s.queryid IS NOT NULL$$),
('plan_stat', 'instance', 0, 999999, NULL,
 $$SELECT s.*, pg_get_userbyid(s.role) AS rolname, awr.get_incarnation() || '/' || s.generation AS stats_reset
   FROM awr.take_statements() s$$),
('table_stat', 'database', 0, 999999, NULL,
 $$WITH d AS MATERIALIZED (
     SELECT oid AS dbid, dattablespace, pg_stat_get_db_stat_reset_time(oid) AS stats_reset FROM pg_database WHERE datname = current_database()),
   i AS MATERIALIZED (
     SELECT indrelid, sum(pg_stat_get_blocks_fetched(indexrelid) - pg_stat_get_blocks_hit(indexrelid))::bigint AS blks_read,
            sum(pg_stat_get_blocks_hit(indexrelid))::bigint AS blks_hit
     FROM pg_index GROUP BY 1)
   SELECT s.*, d.dbid, c.relkind, coalesce(nullif(c.reltablespace, 0), d.dattablespace) AS tablespace, t.oid AS toast_of,
          array_to_string(c.reloptions, ', ') AS storage_options, @size of c@ AS size,
          CASE WHEN c.relfrozenxid <> 0 THEN age(c.relfrozenxid) END AS frozen_age, d.stats_reset,
          pg_stat_get_blocks_fetched(c.oid) - pg_stat_get_blocks_hit(c.oid) AS heap_blks_read, pg_stat_get_blocks_hit(c.oid) AS heap_blks_hit,
          i.blks_read AS idx_blks_read, i.blks_hit AS idx_blks_hit,
          CASE WHEN c.reltoastrelid <> 0 THEN pg_stat_get_blocks_fetched(c.reltoastrelid) - pg_stat_get_blocks_hit(c.reltoastrelid) END AS toast_blks_read,
          CASE WHEN c.reltoastrelid <> 0 THEN pg_stat_get_blocks_hit(c.reltoastrelid) END AS toast_blks_hit,
          x.blks_read AS tidx_blks_read, x.blks_hit AS tidx_blks_hit
   FROM d CROSS JOIN pg_stat_all_tables s JOIN pg_class c ON c.oid = s.relid
        LEFT JOIN i ON i.indrelid = c.oid LEFT JOIN i x ON x.indrelid = c.reltoastrelid
        LEFT JOIN pg_class t ON c.relkind = 't' AND t.reltoastrelid = c.oid
   WHERE c.relpersistence <> 't' AND c.relkind <> 'p'$$),
('index_stat', 'database', 0, 999999, NULL,
 $$SELECT s.*, d.oid AS dbid, x.indisunique AS is_unique, coalesce(nullif(c.reltablespace, 0), d.dattablespace) AS tablespace,
          @size of c@ AS size, pg_stat_get_db_stat_reset_time(d.oid) AS stats_reset,
          pg_stat_get_blocks_fetched(c.oid) - pg_stat_get_blocks_hit(c.oid) AS idx_blks_read, pg_stat_get_blocks_hit(c.oid) AS idx_blks_hit
   FROM pg_stat_all_indexes s JOIN pg_class c ON c.oid = s.indexrelid JOIN pg_index x USING (indexrelid)
        JOIN pg_database d ON d.datname = current_database()
   WHERE c.relpersistence <> 't'$$),
('setting', 'database', 0, 999999, NULL,
 $$SELECT 'extension ' || extname || ' in ' || current_database() AS name, extversion AS setting FROM pg_extension$$),
('setting', 'database', 0, 999999, NULL,
 $$SELECT format('storage parameters of %s%I.%I in %s', CASE WHEN t.oid IS NOT NULL THEN 'TOAST of ' END, coalesce(t.relnamespace, c.relnamespace)::regnamespace,
                 coalesce(t.relname, c.relname), current_database()) AS name,
          array_to_string(c.reloptions, ', ') AS setting, NULL AS unit, 'relation' AS source
   FROM pg_class c LEFT JOIN pg_class t ON c.relkind = 't' AND t.reltoastrelid = c.oid
   WHERE c.reloptions IS NOT NULL AND c.relpersistence <> 't' AND c.relkind IN ('r', 'm', 't', 'i', 'p', 'I')$$),
('io_stat', 'instance', 160000, 179999, NULL,
 $$SELECT to_jsonb(s) || jsonb_build_object('read_bytes', reads * op_bytes, 'write_bytes', writes * op_bytes,
            'extend_bytes', extends * op_bytes) AS row FROM pg_stat_io s$$),
('io_stat', 'instance', 180000, 999999, NULL, $$SELECT to_jsonb(s) AS row FROM pg_stat_io s$$),
-- PostgreSQL counts a read in the process that requests the read, also if an I/O worker executes it.
('session_io_stat', 'instance', 180000, 999999, NULL,
 $$SELECT a.pid, a.backend_start, a.backend_type, a.datid AS database, a.usename AS rolname, a.application_name AS application, i.*
   FROM pg_stat_activity a,
        LATERAL (SELECT sum(reads) FILTER (WHERE object <> 'wal') AS reads, sum(read_bytes) FILTER (WHERE object <> 'wal') AS read_bytes,
                        sum(read_time) FILTER (WHERE object <> 'wal') AS read_time,
                        sum(writes) FILTER (WHERE object <> 'wal') AS writes, sum(write_bytes) FILTER (WHERE object <> 'wal') AS write_bytes,
                        sum(write_time) FILTER (WHERE object <> 'wal') AS write_time,
                        sum(extends) AS extends, sum(extend_bytes) AS extend_bytes, sum(extend_time) AS extend_time, sum(hits) AS hits,
                        sum(writes) FILTER (WHERE object = 'wal') AS wal_writes, sum(write_bytes) FILTER (WHERE object = 'wal') AS wal_bytes,
                        sum(fsyncs) FILTER (WHERE object = 'wal') AS wal_fsyncs, max(stats_reset)::text AS stats_reset
                 FROM pg_stat_get_backend_io(a.pid)) i
   WHERE a.backend_start IS NOT NULL AND i.reads IS NOT NULL$$),
('slru_stat', 'instance', 0, 999999, NULL, $$SELECT to_jsonb(s) AS row FROM pg_stat_slru s$$),
('event_stat', 'instance', 0, 999999, NULL,
 $$SELECT event, -1 AS bucket, total_waits AS waits, time_waited_us AS time_us, max_wait_us AS max_us, awr.get_incarnation()::text AS stats_reset
   FROM cellar.get_system_event()
   UNION ALL
   SELECT event, round(log(2, wait_time_us_below))::int, wait_count, NULL, NULL, awr.get_incarnation()::text
   FROM cellar.get_event_histogram() WHERE wait_count > 0$$),
('cell_io_stat', 'instance', 0, 999999, NULL,
 $$SELECT cell, coalesce(database, 0::oid) AS database, kind, -1 AS bucket, sum(operations)::bigint AS operations,
          sum(bytes)::bigint AS bytes, sum(time_us)::bigint AS time_us
   FROM cellar.get_file_io() GROUP BY 1, 2, 3
   UNION ALL
   SELECT cell, coalesce(database, 0::oid), kind, bucket::int - 1, sum(n)::bigint, NULL, NULL
   FROM cellar.get_file_io(), unnest(histogram) WITH ORDINALITY h (n, bucket) WHERE n > 0 GROUP BY 1, 2, 3, 4$$),
('cell_file_stat', 'instance', 0, 999999, NULL,
 $$WITH io AS MATERIALIZED (
     SELECT cell, coalesce(database, 0::oid) AS database, coalesce(tablespace, 0::oid) AS tablespace, file_type,
            coalesce(filenode, 0::oid) AS filenode, kind, operations, bytes, time_us, histogram, generation AS stats_reset
     FROM cellar.get_file_type_io())
   SELECT cell, database, tablespace, file_type, filenode, kind, -1 AS bucket, operations, bytes, time_us, stats_reset FROM io
   UNION ALL
   SELECT cell, database, tablespace, file_type, filenode, kind, bucket::int - 1, n, NULL, NULL, stats_reset
   FROM io, unnest(histogram) WITH ORDINALITY h (n, bucket) WHERE n > 0 AND kind LIKE '% read'$$),
('cell_stat', 'instance', 0, 999999, NULL,
 $$SELECT m.cell, substr(f.name, 8) AS name, CASE f.type WHEN 'counter' THEN (f.samples -> 0 ->> 'value')::bigint END AS total,
          CASE f.type WHEN 'gauge' THEN (f.samples -> 0 ->> 'value')::double precision END AS value,
          jsonb_path_query_first(m.metrics, '$.metrics[*] ? (@.name == "cellar_start_time_seconds").samples[0].value')::text AS stats_reset
   FROM cellar.get_cell_metrics() m, jsonb_to_recordset(m.metrics -> 'metrics') f (name text, type text, samples jsonb)
   WHERE (f.name LIKE 'cellar\_flash\_%' OR f.name LIKE 'cellar\_write\_back\_%' OR f.name = 'cellar_iorm_mode_number')
     AND jsonb_array_length(f.samples) = 1 AND f.samples -> 0 -> 'labels' = '{}' AND f.samples -> 0 ? 'value'$$),
('cell_disk_stat', 'instance', 0, 999999, NULL,
 $$WITH m AS MATERIALIZED (
     SELECT cell, metrics -> 'metrics' AS metrics,
            jsonb_path_query_first(metrics, '$.metrics[*] ? (@.name == "cellar_start_time_seconds").samples[0].value')::text AS stats_reset
     FROM cellar.get_cell_metrics()),
   s AS MATERIALIZED (
     SELECT m.cell, CASE WHEN f.name LIKE 'cellar\_flash\_%' THEN 'flash disk' ELSE 'cell disk' END AS disk_type, m.stats_reset,
            s -> 'labels' ->> 'disk' AS disk, s -> 'labels' ->> 'operation' AS operation, s -> 'labels' ->> 'error' AS error,
            regexp_replace(f.name, '^cellar_(flash_)?disk_', '') AS name, (s ->> 'value')::numeric AS value, (s ->> 'sum')::numeric AS seconds,
            s -> 'buckets' || jsonb_build_array(jsonb_build_array(NULL, s -> 'count')) AS cumulative
     FROM m, jsonb_to_recordset(m.metrics) f (name text, samples jsonb), jsonb_array_elements(f.samples) s
     WHERE f.name ~ '^cellar_(flash_)?disk_(operations_total|bytes_total|operation_seconds|errors_total)$')
   SELECT cell, disk_type, disk, operation, -1 AS bucket, sum(value) FILTER (WHERE name = 'operations_total')::bigint AS operations,
          sum(value) FILTER (WHERE name = 'bytes_total')::bigint AS bytes, (sum(seconds) * 1000000)::bigint AS time_us,
          sum(value) FILTER (WHERE error = 'io')::bigint AS io_errors, sum(value) FILTER (WHERE error = 'no space')::bigint AS no_space_errors, stats_reset
   FROM s GROUP BY cell, disk_type, disk, operation, stats_reset
   UNION ALL
   SELECT * FROM (
     SELECT cell, disk_type, disk, operation, bucket::int - 1,
            (b ->> 1)::bigint - lag((b ->> 1)::bigint, 1, 0::bigint) OVER (PARTITION BY cell, disk_type, disk, operation ORDER BY bucket) AS n,
            NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, stats_reset
     FROM s, jsonb_array_elements(cumulative) WITH ORDINALITY h (b, bucket) WHERE name = 'operation_seconds') h
   WHERE n > 0$$),
('iorm_stat', 'instance', 0, 999999, NULL,
 $$WITH m AS MATERIALIZED (
     SELECT cell, roots, metrics -> 'metrics' AS metrics,
            jsonb_path_query_first(metrics, '$.metrics[*] ? (@.name == "cellar_start_time_seconds").samples[0].value')::text AS stats_reset
     FROM cellar.get_cell_metrics()),
   c AS MATERIALIZED (
     SELECT m.cell, m.roots, m.stats_reset, f.name, s -> 'labels' ->> 'database_id' AS database_id, s -> 'labels' ->> 'consumer_group' AS consumer_group,
            s -> 'labels' ->> 'size' AS size, s -> 'labels' ->> 'database' AS database, (s ->> 'value')::numeric AS value
     FROM m, jsonb_to_recordset(m.metrics) f (name text, samples jsonb), jsonb_array_elements(f.samples) s
     WHERE f.name LIKE 'cellar\_iorm\_%\_total')
   SELECT cell, database_id, consumer_group, size, max(database) AS database,
          CASE WHEN regexp_replace(database_id, '/?[0-9]+$', '') = ANY (roots) THEN substring(database_id FROM '[0-9]+$')::bigint END AS database_oid,
          sum(value) FILTER (WHERE name = 'cellar_iorm_requests_total')::bigint AS requests,
          sum(value) FILTER (WHERE name = 'cellar_iorm_bytes_total')::bigint AS bytes,
          (sum(value) FILTER (WHERE name = 'cellar_iorm_wait_seconds_total') * 1000000)::bigint AS wait_us,
          (sum(value) FILTER (WHERE name = 'cellar_iorm_request_seconds_total') * 1000000)::bigint AS request_us,
          (sum(value) FILTER (WHERE name = 'cellar_iorm_device_seconds_total') * 1000000)::bigint AS device_us,
          sum(value) FILTER (WHERE name = 'cellar_iorm_flash_requests_total')::bigint AS flash_requests,
          sum(value) FILTER (WHERE name = 'cellar_iorm_flash_bytes_total')::bigint AS flash_bytes, stats_reset
   FROM c
   WHERE database_id IS NOT NULL
   GROUP BY cell, roots, stats_reset, database_id, consumer_group, size
   HAVING sum(value) > 0$$),
('cpu_stat', 'instance', 0, 999999, NULL,
 $$SELECT c.*, awr.get_incarnation()::text AS stats_reset FROM awr.get_cpu() c$$),
('relation_stat', 'instance', 0, 999999, NULL,
 $$SELECT r.*, awr.get_incarnation() || '/' || r.generation AS stats_reset FROM awr.take_relations() r$$),
('os_stat', 'instance', 0, 999999, NULL,
 $$WITH cpu AS (SELECT regexp_split_to_array(trim(substring(pg_read_file('/proc/stat') FROM 'cpu +([0-9 ]+)')), ' +')::bigint[] AS t),
        vm AS (SELECT m[1] AS name, m[2]::bigint AS value
               FROM regexp_matches(pg_read_file('/proc/vmstat'), '^(pswpin|pswpout|pgpgin|pgpgout) (\d+)$', 'gn') m),
        memory AS (SELECT m[1] AS name, m[2]::bigint * 1024 AS value
                   FROM regexp_matches(pg_read_file('/proc/meminfo'), '^(MemTotal|MemAvailable|SwapTotal|SwapFree|Dirty): +(\d+) kB$', 'gn') m)
   -- As in Oracle, BUSY_TIME and IDLE_TIME are all time, and IOWAIT_TIME is a part of IDLE_TIME.
   SELECT n.name, n.ticks * 10000 AS total, NULL::double precision AS value
   FROM cpu, LATERAL (VALUES ('USER_TIME', t[1]), ('NICE_TIME', t[2]), ('SYS_TIME', t[3]), ('IDLE_TIME', t[4] + t[5]),
                             ('IOWAIT_TIME', t[5]), ('IRQ_TIME', t[6] + t[7]), ('STEAL_TIME', t[8]),
                             ('BUSY_TIME', t[1] + t[2] + t[3] + t[6] + t[7] + t[8])) n (name, ticks)
   UNION ALL
   SELECT 'NUM_CPUS', NULL, count(*) FROM regexp_matches(pg_read_file('/proc/stat'), '^cpu\d+ ', 'gn')
   UNION ALL
   SELECT v.name, NULL, (regexp_match(pg_read_file('/proc/stat'), v.field || ' (\d+)'))[1]::double precision
   FROM (VALUES ('RUNNABLE_PROCESSES', 'procs_running'), ('BLOCKED_PROCESSES', 'procs_blocked')) v (name, field)
   UNION ALL
   SELECT 'LOAD', NULL, split_part(pg_read_file('/proc/loadavg'), ' ', 1)::double precision
   UNION ALL
   SELECT 'UPTIME', (split_part(pg_read_file('/proc/uptime'), ' ', 1)::numeric * 1e6)::bigint, NULL
   UNION ALL
   SELECT CASE name WHEN 'pswpin' THEN 'VM_IN_BYTES' WHEN 'pswpout' THEN 'VM_OUT_BYTES'
                    WHEN 'pgpgin' THEN 'DISK_READ_BYTES' ELSE 'DISK_WRITE_BYTES' END,
          value * CASE WHEN name LIKE 'pswp%' THEN 4096 ELSE 1024 END, NULL FROM vm
   UNION ALL
   SELECT CASE name WHEN 'MemTotal' THEN 'PHYSICAL_MEMORY_BYTES' WHEN 'MemAvailable' THEN 'FREE_MEMORY_BYTES'
                    WHEN 'SwapTotal' THEN 'SWAP_BYTES' WHEN 'SwapFree' THEN 'SWAP_FREE_BYTES' ELSE 'DIRTY_PAGE_BYTES' END,
          NULL, value FROM memory
   UNION ALL
   SELECT 'NETWORK_' || d.name || '_BYTES', sum(f[d.field])::bigint, NULL
   FROM regexp_matches(pg_read_file('/proc/net/dev'), '^ *(?!lo:)[^ :]+: *([0-9 ]+)$', 'gn') m,
        LATERAL (SELECT regexp_split_to_array(trim(m[1]), ' +')::numeric[] AS f) s, (VALUES ('RECEIVED', 1), ('SENT', 9)) d (name, field)
   GROUP BY d.name$$),
('os_stat', 'instance', 0, 999999, NULL,
 $$SELECT upper('pressure_' || r.name || '_' || m[1]) || '_TIME' AS name, m[2]::bigint AS total
   FROM (VALUES ('cpu'), ('io'), ('memory')) r (name),
        regexp_matches(pg_read_file('/proc/pressure/' || r.name), '^(some|full) .*total=(\d+)$', 'gn') m$$),
-- Columns of diskstats: major, minor, name, reads, merged, sectors of 512 bytes, ms; the same of writes; in flight, busy ms,
-- ms weighted by the requests in flight
('os_stat', 'instance', 0, 999999, NULL,
 $$SELECT 'DISK_' || f[3] || '_' || v.name AS name, (f[v.field]::numeric * v.factor)::bigint AS total
   FROM regexp_split_to_table(pg_read_file('/proc/diskstats', 0, 1048576, true), '\n') line,
        LATERAL (SELECT regexp_split_to_array(trim(line), ' +') AS f) s,
        (VALUES ('READ_REQUESTS', 4, 1), ('READ_BYTES', 6, 512), ('READ_TIME', 7, 1000), ('WRITE_REQUESTS', 8, 1),
                ('WRITE_BYTES', 10, 512), ('WRITE_TIME', 11, 1000), ('BUSY_TIME', 13, 1000), ('QUEUE_TIME', 14, 1000)) v (name, field, factor)
   WHERE cardinality(f) >= 14 AND f[4]::numeric + f[8]::numeric > 0$$),
('setting', 'instance', 0, 999999, NULL,
 $$SELECT name, awr.redact_setting(name, CASE source WHEN 'session' THEN reset_val ELSE setting END, vartype) AS setting, unit,
          -- What this function sets for itself is no setting of the server.
          CASE WHEN source <> 'session' THEN source WHEN reset_val IS NOT DISTINCT FROM boot_val THEN 'default' ELSE 'configuration file' END AS source
   FROM pg_settings WHERE context <> 'internal' OR name IN ('server_version', 'data_checksums', 'wal_segment_size')$$),
('object_name', 'instance', 0, 999999, NULL,
 $$SELECT 'role' AS class, oid AS object, rolname AS name FROM pg_roles
   UNION ALL
   SELECT 'tablespace', oid, spcname FROM pg_tablespace$$),
('activity', 'instance', 0, 999999, NULL,
 $$(SELECT 'longest transaction' AS kind, pid::text AS object, datid AS database, pid, application_name AS application, state,
           query_id, age(backend_xmin) AS age_xids, (extract(epoch FROM clock_timestamp() - xact_start) * 1e6)::bigint AS age_us, NULL::bigint AS bytes,
           backend_type AS detail
    FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 20)
   UNION ALL
   (SELECT 'idle in transaction', pid::text, datid, pid, application_name, state, query_id, age(backend_xmin),
           (extract(epoch FROM clock_timestamp() - state_change) * 1e6)::bigint, NULL, NULL
    FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' ORDER BY state_change LIMIT 20)
   UNION ALL
   (SELECT 'xmin holder', 'session ' || pid, datid, pid, application_name, state, query_id,
           greatest(age(backend_xmin), age(backend_xid)), (extract(epoch FROM clock_timestamp() - xact_start) * 1e6)::bigint, NULL, backend_type
    FROM pg_stat_activity WHERE coalesce(backend_xmin, backend_xid) IS NOT NULL AND pid <> pg_backend_pid()
    ORDER BY greatest(age(backend_xmin), age(backend_xid)) DESC LIMIT 5)
   UNION ALL
   SELECT 'xmin holder', 'replication slot ' || slot_name, datoid, active_pid, NULL, CASE WHEN active THEN 'active' ELSE 'inactive' END,
          NULL, greatest(age(xmin), age(catalog_xmin)), NULL, NULL, NULL
   FROM pg_replication_slots WHERE coalesce(xmin, catalog_xmin) IS NOT NULL
   UNION ALL
   SELECT 'prepared transaction', gid, (SELECT oid FROM pg_database WHERE datname = database), NULL, owner, NULL, NULL, age(transaction),
          (extract(epoch FROM clock_timestamp() - prepared) * 1e6)::bigint, NULL, NULL
   FROM pg_prepared_xacts
   UNION ALL
   SELECT 'replication slot', slot_name, datoid, active_pid, NULL, CASE WHEN active THEN 'active' ELSE 'inactive' END, NULL, NULL, NULL,
          CASE WHEN NOT pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint END, slot_type
   FROM pg_replication_slots
   UNION ALL
   SELECT 'replication', pid::text, NULL, pid, application_name, state, NULL, NULL, (extract(epoch FROM replay_lag) * 1e6)::bigint,
          CASE WHEN NOT pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint END, sync_state
   FROM pg_stat_replication
   UNION ALL
   -- Without new WAL, the time of the last replayed transaction says nothing about the lag.
   SELECT 'replay', 'this standby', NULL, pid, NULL, coalesce(status, 'not streaming'), NULL, NULL,
          CASE WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() THEN 0
               ELSE (extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()) * 1e6)::bigint END,
          pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())::bigint, NULL
   FROM (SELECT) one LEFT JOIN pg_stat_wal_receiver ON true WHERE pg_is_in_recovery()
   UNION ALL
   -- WAL files that are complete and wait for the archiver
   SELECT 'archiver', 'archiver', NULL, NULL, NULL, CASE WHEN last_failed_time > coalesce(last_archived_time, '-infinity') THEN 'failing' ELSE 'archiving' END,
          NULL, NULL, (extract(epoch FROM clock_timestamp() - last_archived_time) * 1e6)::bigint,
          (SELECT count(*) FROM pg_ls_archive_statusdir() WHERE name LIKE '%.ready') * pg_size_bytes(current_setting('wal_segment_size')), last_failed_wal
   FROM pg_stat_archiver WHERE current_setting('archive_mode') <> 'off'$$);

-- The size of a relation's main fork, from the lengths of its segments. pg_relation_size() waits for every session that
-- locks the relation exclusively, and builds the relation's cache entry. NULL if the file is deleted meanwhile.
UPDATE awr.collector SET source = replace(source, '@size of c@',
 $$(SELECT CASE WHEN f.size < pg_size_bytes(current_setting('segment_size')) THEN f.size
                ELSE (WITH RECURSIVE segment AS (
                        SELECT 0 AS number, f.size
                        UNION ALL
                        SELECT number + 1, (pg_stat_file(pg_relation_filepath(c.oid) || '.' || number + 1, true)).size
                        FROM segment WHERE size = pg_size_bytes(current_setting('segment_size')))
                      SELECT sum(size)::bigint FROM segment) END
    FROM pg_stat_file(pg_relation_filepath(c.oid), true) f)$$);

CREATE FUNCTION awr.query_database(database oid, query text)
RETURNS SETOF jsonb
AS 'MODULE_PATHNAME', 'cellar_query_database'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION awr.query_database(oid, text) IS
  'runs a read-only query of one jsonb column in another database, in a background worker with superuser rights; a query in this database is run by the session itself';

-- Packed rows are a jsonb string in place of an array of objects; see packed_rows.c. A query of three columns (kind, record,
-- jsonb) returns one jsonb value of packed rows for each kind.
CREATE FUNCTION awr.unpack_rows(data jsonb)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_unpack_rows'
LANGUAGE C STRICT STABLE PARALLEL SAFE;

COMMENT ON FUNCTION awr.unpack_rows(jsonb) IS
  'rows of awr.last_value.data, whether they are packed or an array of objects; the caller names the columns and their types';

-- Returns whether the rows of a kind are packed, because there are thousands of them.
CREATE FUNCTION awr.is_packed(kind text)
RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN kind IN ('table_stat', 'index_stat', 'plan_stat');

COMMENT ON FUNCTION awr.is_packed(text) IS 'for internal use by awr.collect';

CREATE FUNCTION awr.get_incarnation()
RETURNS bigint
AS 'MODULE_PATHNAME', 'cellar_get_incarnation'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION awr.get_incarnation() IS
  'random number that changes when shared memory is initialized: at each start of the server and after each crash';

-- ---- Session samples ----

CREATE FUNCTION awr.get_samples(
  after_sequence bigint, OUT sequence bigint, OUT sample_time timestamptz, OUT pid integer, OUT backend_start timestamptz,
  OUT leader_pid integer, OUT database oid, OUT role oid, OUT application text, OUT client text, OUT backend_type text,
  OUT state text, OUT wait_event_type text, OUT wait_event text, OUT query_id bigint, OUT plan_hash bigint, OUT xact_age_us bigint,
  OUT query_age_us bigint, OUT blocker_pid integer, OUT temp_bytes bigint, OUT consumer_group text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_get_samples'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION awr.get_samples(bigint) IS
  'session samples in shared memory with a sequence number above the given one; see awr.active_session_history';

CREATE FUNCTION awr.get_consumer_group(pid integer, application text)
RETURNS text
AS 'MODULE_PATHNAME', 'cellar_get_consumer_group'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION awr.get_consumer_group(integer, text) IS
  'consumer group of a session with this process and application name, or NULL if the process does not exist';

CREATE FUNCTION awr.get_sampler_state(
  OUT next_sequence bigint, OUT ticks bigint, OUT late_ticks bigint, OUT capacity bigint, OUT period_ms integer)
RETURNS record
AS 'MODULE_PATHNAME', 'cellar_get_sampler_state'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION awr.get_sampler_state() IS
  'state of the sampler: number of its next sample, ticks, ticks that began late, samples that fit the shared memory, period';

CREATE FUNCTION awr.get_cpu(
  OUT database oid, OUT backend_type text, OUT application text, OUT cpu_us bigint, OUT run_queue_us bigint,
  OUT parses bigint, OUT parse_us bigint, OUT commits bigint, OUT commit_us bigint, OUT plan_us bigint, OUT execute_us bigint,
  OUT elapsed_us bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_get_cpu'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION awr.get_cpu() IS
  'cumulative CPU and run-queue times of the server''s processes, active time and parse, plan, execution and commit times of sessions, and elapsed time of parallel workers, by database, type and application';

CREATE TYPE awr.relation_counters AS (
  database oid, relation oid, row_lock_waits bigint, row_lock_us bigint, eligible_bytes bigint, saved_bytes bigint,
  returned_bytes bigint, generation bigint);
COMMENT ON TYPE awr.relation_counters IS 'a row of awr.get_relations()';

CREATE FUNCTION awr.get_relations()
RETURNS SETOF awr.relation_counters
AS 'MODULE_PATHNAME', 'cellar_get_relations'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION awr.get_relations() IS
  'cumulative row-lock waits (sampled) and Smart Scan bytes of relations; relation 0: sums of relations for which there was no space';

CREATE FUNCTION awr.take_relations()
RETURNS SETOF awr.relation_counters
AS 'MODULE_PATHNAME', 'cellar_take_relations'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION awr.take_relations() IS
  'like awr.get_relations(), and starts the sums of removed relations of the next AWR snapshot; for internal use by awr.collect';

-- I/O through the mounts by file type and relation, counted by the cells
CREATE FUNCTION cellar.get_file_type_io(
  OUT cell text, OUT database oid, OUT tablespace oid, OUT file_type text, OUT filenode oid, OUT generation text, OUT kind text,
  OUT operations bigint, OUT bytes bigint, OUT time_us bigint, OUT histogram bigint[])
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_file_type_io_counts'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION cellar.get_file_type_io() IS
  'file I/O through the mounts by file type, and by relation (filenode is not NULL; the counts of the file type include relations)';
REVOKE ALL ON FUNCTION cellar.get_file_type_io() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cellar.get_file_type_io() TO pg_monitor;

CREATE FUNCTION awr.get_directories(OUT database oid, OUT tablespace oid, OUT cell text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_get_directories'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION awr.get_directories() IS
  'databases whose files in a tablespace are on a cell; database 0: relations that all databases share';

-- Oracle's wait class of a wait event. scripts/wait-classes.py writes the expression from tests/awr/wait_events.tsv. Waits of
-- parallel query for its own workers are of class Other.
CREATE FUNCTION awr.wait_class(wait_event_type text, wait_event text, foreground boolean)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN wait_event IS NULL THEN 'CPU'
    WHEN wait_event LIKE 'cell %' THEN 'User I/O'
    WHEN wait_event LIKE 'enq: KO%' THEN 'Application'
    WHEN wait_event_type = 'Activity' AND wait_event IN (
      'ArchiverMain', 'AutoVacuumMain', 'AutovacuumMain', 'BgWriterHibernate', 'BgwriterHibernate', 'BgWriterMain',
      'BgwriterMain', 'CheckpointerMain', 'CheckpointerShutdown', 'IoWorkerMain', 'LogicalApplyMain', 'LogicalLauncherMain',
      'LogicalParallelApplyMain', 'RecoveryWalStream', 'ReplicationSlotsyncMain', 'ReplicationSlotsyncShutdown', 'SysLoggerMain',
      'SysloggerMain', 'WalReceiverMain', 'WalSenderMain', 'WalSummarizerWal', 'WalWriterMain')
      THEN 'Idle'
    WHEN wait_event_type = 'Buffer' AND wait_event IN (
      'BufferCleanup', 'BufferExclusive', 'BufferShared', 'BufferShareExclusive')
      THEN 'Concurrency'
    WHEN wait_event_type = 'BufferPin' AND wait_event IN (
      'BufferPin')
      THEN 'Concurrency'
    WHEN wait_event_type = 'Client' AND wait_event IN (
      'ClientRead')
      THEN 'Idle'
    WHEN wait_event_type = 'Client' AND wait_event IN (
      'ClientWrite', 'GSSOpenServer', 'GssOpenServer', 'LibPQWalReceiverConnect', 'LibpqwalreceiverConnect',
      'LibPQWalReceiverReceive', 'LibpqwalreceiverReceive', 'SSLOpenServer', 'SslOpenServer', 'WaitForStandbyConfirmation',
      'WalSenderWaitForWAL', 'WalSenderWaitForWal', 'WalSenderWriteData')
      THEN 'Network'
    WHEN wait_event_type = 'Extension' AND wait_event IN (
      'Extension')
      THEN 'Other'
    WHEN wait_event_type = 'IO' AND wait_event IN (
      'WALSync', 'WalSync', 'WALSyncMethodAssign', 'WalSyncMethodAssign', 'WALWrite', 'WalWrite')
      THEN CASE WHEN foreground THEN 'Commit' ELSE 'System I/O' END
    WHEN wait_event_type = 'IO' AND wait_event IN (
      'AioIoCompletion', 'AioIoUringExecution', 'AioIoUringSubmit', 'BaseBackupRead', 'BasebackupRead', 'BaseBackupSync',
      'BasebackupSync', 'BaseBackupWrite', 'BasebackupWrite', 'BufFileRead', 'BuffileRead', 'BufFileTruncate', 'BuffileTruncate',
      'BufFileWrite', 'BuffileWrite', 'ControlFileRead', 'ControlFileSync', 'ControlFileSyncUpdate', 'ControlFileWrite',
      'ControlFileWriteUpdate', 'CopyFileCopy', 'CopyFileRead', 'CopyFileWrite', 'CopyFromRead', 'CopyToWrite', 'DataFileExtend',
      'DataFileFlush', 'DataFileImmediateSync', 'DataFilePrefetch', 'DataFileRead', 'DataFileSync', 'DataFileTruncate',
      'DataFileWrite', 'DSMAllocate', 'DsmAllocate', 'DSMFillZeroWrite', 'DsmFillZeroWrite', 'LockFileAddToDataDirRead',
      'LockFileAddtodatadirRead', 'LockFileAddToDataDirSync', 'LockFileAddtodatadirSync', 'LockFileAddToDataDirWrite',
      'LockFileAddtodatadirWrite', 'LockFileCreateRead', 'LockFileCreateSync', 'LockFileCreateWrite',
      'LockFileReCheckDataDirRead', 'LockFileRecheckdatadirRead', 'LogicalRewriteCheckpointSync', 'LogicalRewriteMappingSync',
      'LogicalRewriteMappingWrite', 'LogicalRewriteSync', 'LogicalRewriteTruncate', 'LogicalRewriteWrite', 'RelationMapRead',
      'RelationMapReplace', 'RelationMapSync', 'RelationMapWrite', 'ReorderBufferRead', 'ReorderBufferWrite',
      'ReorderLogicalMappingRead', 'ReplicationSlotRead', 'ReplicationSlotRestoreSync', 'ReplicationSlotSync',
      'ReplicationSlotWrite', 'SLRUFlushSync', 'SlruFlushSync', 'SLRURead', 'SlruRead', 'SLRUSync', 'SlruSync', 'SLRUWrite',
      'SlruWrite', 'SnapbuildRead', 'SnapbuildSync', 'SnapbuildWrite', 'TimelineHistoryFileSync', 'TimelineHistoryFileWrite',
      'TimelineHistoryRead', 'TimelineHistorySync', 'TimelineHistoryWrite', 'TwophaseFileRead', 'TwophaseFileSync',
      'TwophaseFileWrite', 'VersionFileSync', 'VersionFileWrite', 'WALBootstrapSync', 'WalBootstrapSync', 'WALBootstrapWrite',
      'WalBootstrapWrite', 'WALCopyRead', 'WalCopyRead', 'WALCopySync', 'WalCopySync', 'WALCopyWrite', 'WalCopyWrite',
      'WALInitSync', 'WalInitSync', 'WALInitWrite', 'WalInitWrite', 'WALRead', 'WalRead', 'WALSenderTimelineHistoryRead',
      'WalsenderTimelineHistoryRead', 'WalSummaryRead', 'WalSummaryWrite')
      THEN CASE WHEN foreground THEN 'User I/O' ELSE 'System I/O' END
    WHEN wait_event_type = 'IPC' AND wait_event IN (
      'BackendTermination', 'BackupWaitWalArchive', 'CheckpointDone', 'CheckpointStart', 'Promote', 'RecoveryConflictSnapshot',
      'RecoveryConflictTablespace', 'RecoveryPause', 'ReplicationOriginDrop', 'ReplicationSlotDrop')
      THEN 'Administrative'
    WHEN wait_event_type = 'IPC' AND wait_event IN (
      'WaitForWalFlush', 'WaitForWalReplay', 'WaitForWalWrite')
      THEN 'Application'
    WHEN wait_event_type = 'IPC' AND wait_event IN (
      'SyncRep')
      THEN 'Commit'
    WHEN wait_event_type = 'IPC' AND wait_event IN (
      'MultixactCreation', 'ProcArrayGroupUpdate', 'ProcarrayGroupUpdate', 'SafeSnapshot', 'XactGroupUpdate')
      THEN 'Concurrency'
    WHEN wait_event_type = 'IPC' AND wait_event IN (
      'LogicalSyncData')
      THEN 'Network'
    WHEN wait_event_type = 'IPC' AND wait_event IN (
      'AppendReady', 'ArchiveCleanupCommand', 'ArchiveCommand', 'BgWorkerShutdown', 'BgworkerShutdown', 'BgWorkerStartup',
      'BgworkerStartup', 'BtreePage', 'CheckpointDelayComplete', 'CheckpointDelayStart', 'ExecuteGather', 'HashBatchAllocate',
      'HashBatchElect', 'HashBatchLoad', 'HashBuildAllocate', 'HashBuildElect', 'HashBuildHashInner', 'HashBuildHashOuter',
      'HashGrowBatchesAllocate', 'HashGrowBatchesDecide', 'HashGrowBatchesElect', 'HashGrowBatchesFinish',
      'HashGrowBatchesReallocate', 'HashGrowBatchesRepartition', 'HashGrowBucketsAllocate', 'HashGrowBucketsElect',
      'HashGrowBucketsReallocate', 'HashGrowBucketsReinsert', 'LogicalApplySendData', 'LogicalParallelApplyStateChange',
      'LogicalSyncStateChange', 'MessageQueueInternal', 'MessageQueuePutMessage', 'MessageQueueReceive', 'MessageQueueSend',
      'ParallelBitmapScan', 'ParallelCreateIndexScan', 'ParallelFinish', 'ProcSignalBarrier', 'RecoveryEndCommand',
      'RepackWorkerExport', 'RestoreCommand', 'WalReceiverExit', 'WalReceiverUpstreamCatchup', 'WalReceiverWaitStart',
      'WalSummaryReady')
      THEN 'Other'
    WHEN wait_event_type = 'IPC' AND wait_event IN (
      'BufferIO', 'BufferIo')
      THEN 'User I/O'
    WHEN wait_event_type = 'LWLock' AND wait_event IN (
      'WALWrite')
      THEN 'Commit'
    WHEN wait_event_type = 'LWLock' AND wait_event IN (
      'AddinShmemInit', 'AioWorkerControl', 'AioWorkerSubmissionQueue', 'AutoFile', 'Autovacuum', 'AutovacuumSchedule',
      'BackgroundWorker', 'BtreeVacuum', 'BufferContent', 'BufferMapping', 'CheckpointerComm', 'CommitTs', 'CommitTsBuffer',
      'CommitTsSLRU', 'ControlFile', 'DSMRegistry', 'DSMRegistryDSA', 'DSMRegistryHash', 'DynamicSharedMemoryControl',
      'InjectionPoint', 'LockFastPath', 'LockManager', 'LogicalDecodingControl', 'LogicalRepLauncherDSA',
      'LogicalRepLauncherHash', 'LogicalRepWorker', 'MultiXactGen', 'MultiXactMemberBuffer', 'MultiXactMemberSLRU',
      'MultiXactOffsetBuffer', 'MultiXactOffsetSLRU', 'MultiXactTruncation', 'NotifyBuffer', 'NotifyChannelHash', 'NotifyQueue',
      'NotifyQueueTail', 'NotifySLRU', 'OidGen', 'OldSnapshotTimeMap', 'ParallelAppend', 'ParallelBtreeScan', 'ParallelHashJoin',
      'ParallelQueryDSA', 'ParallelVacuumDSA', 'PerSessionDSA', 'PerSessionRecordType', 'PerSessionRecordTypmod',
      'PerXactPredicateList', 'PgStatsData', 'PgStatsDSA', 'PgStatsHash', 'PredicateLockManager', 'ProcArray', 'RelationMapping',
      'RelCacheInit', 'ReplicationOrigin', 'ReplicationOriginState', 'ReplicationSlotAllocation', 'ReplicationSlotControl',
      'ReplicationSlotIO', 'SerialBuffer', 'SerialControl', 'SerializableFinishedList', 'SerializablePredicateList',
      'SerializableXactHash', 'SerialSLRU', 'SharedTidBitmap', 'SharedTupleStore', 'ShmemIndex', 'SInvalRead', 'SInvalWrite',
      'SubtransBuffer', 'SubtransSLRU', 'SyncRep', 'SyncScan', 'TablespaceCreate', 'TwoPhaseState', 'WaitEventCustom', 'WaitLSN',
      'WALSummarizer', 'WrapLimitsVacuum', 'XactBuffer', 'XactSLRU', 'XactTruncation', 'XidGen')
      THEN 'Concurrency'
    WHEN wait_event_type = 'LWLock' AND wait_event IN (
      'WALBufMapping', 'WALInsert')
      THEN 'Configuration'
    WHEN wait_event_type = 'LWLock' AND wait_event IN (
      'AioUringCompletion')
      THEN CASE WHEN foreground THEN 'User I/O' ELSE 'System I/O' END
    WHEN wait_event_type = 'Lock' AND wait_event IN (
      'advisory', 'applytransaction', 'frozenid', 'object', 'page', 'relation', 'spectoken', 'transactionid', 'tuple',
      'userlock', 'virtualxid')
      THEN 'Application'
    WHEN wait_event_type = 'Lock' AND wait_event IN (
      'extend')
      THEN 'Configuration'
    WHEN wait_event_type = 'Timeout' AND wait_event IN (
      'CommitDelay')
      THEN 'Commit'
    WHEN wait_event_type = 'Timeout' AND wait_event IN (
      'SpinDelay')
      THEN 'Concurrency'
    WHEN wait_event_type = 'Timeout' AND wait_event IN (
      'RegisterSyncRequest')
      THEN 'Configuration'
    WHEN wait_event_type = 'Timeout' AND wait_event IN (
      'BaseBackupThrottle', 'CheckpointWriteDelay', 'PgSleep', 'RecoveryApplyDelay', 'RecoveryRetrieveRetryInterval',
      'WalSummarizerError')
      THEN 'Idle'
    WHEN wait_event_type = 'Timeout' AND wait_event IN (
      'VacuumDelay', 'VacuumTruncate')
      THEN 'Scheduler'
    -- Other LWLocks belong to extensions.
    WHEN wait_event_type = 'LWLock' THEN 'Concurrency'
    ELSE 'Other' END;

COMMENT ON FUNCTION awr.wait_class(text, text, boolean) IS
  'wait class, under Oracle''s names, of a wait event of pg_stat_activity; CPU if there is no wait event';

-- Stores the samples of an instance after the last stored one, and returns their number. "source" is the FROM item that
-- returns them: a call of awr.get_samples(), or a table with its output of another server. "sampler" is the output of
-- awr.get_sampler_state() there. The state is stored in awr.last_value, for this server under instance 0.
CREATE FUNCTION awr.store_sample_rows(instance integer, source text, incarnation text, sampler jsonb)
RETURNS bigint
AS $$
DECLARE
  state_id int := CASE WHEN instance = 1 THEN 0 ELSE instance END;
  previous jsonb;
  after bigint;
  last bigint;
  stored bigint;
  queries bigint[];
  plans bigint[];
  day date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
BEGIN
  -- One session at a time; readers are not blocked.
  LOCK TABLE awr.word IN SHARE UPDATE EXCLUSIVE MODE;
  SELECT data INTO previous FROM awr.last_value l WHERE l.instance_id = state_id AND l.kind = 'samples';
  IF previous ->> 'incarnation' IS DISTINCT FROM incarnation THEN
    previous := jsonb_build_object('sequence', 0, 'ticks', 0);
  END IF;
  after := (previous ->> 'sequence')::bigint;
  PERFORM awr.create_partitions(day);

  EXECUTE format(
    'WITH s AS MATERIALIZED (
       SELECT p.*, min(p.sample_time) OVER () AS first_time FROM %s p WHERE p.sequence > $1 AND p.sequence < $2),
     words AS MATERIALIZED (
       SELECT DISTINCT w FROM s, LATERAL (VALUES (s.application), (s.client), (s.backend_type), (s.state), (s.wait_event_type), (s.wait_event), (s.consumer_group)) v (w)
       WHERE w IS NOT NULL),
     used AS (UPDATE awr.word SET last_day = $3 FROM words WHERE word = w AND last_day < $3),
     new AS (
       INSERT INTO awr.word (word, last_day) SELECT w, $3 FROM words WHERE NOT EXISTS (SELECT FROM awr.word x WHERE x.word = w) RETURNING id, word),
     d AS MATERIALIZED (SELECT id, word FROM awr.word JOIN words ON w = word UNION ALL SELECT id, word FROM new),
     chunk AS (
       INSERT INTO awr.sample_chunk
         SELECT $3, $4, min(s.sample_time), max(s.sample_time), $5, $6, min(s.sequence) - $1 - 1,
                array_agg((extract(epoch FROM s.sample_time - s.first_time) * 1000)::int ORDER BY s.pid, s.sequence),
                array_agg(s.pid ORDER BY s.pid, s.sequence),
                array_agg((extract(epoch FROM s.backend_start) * 1000)::bigint ORDER BY s.pid, s.sequence),
                array_agg(coalesce(s.leader_pid, 0) ORDER BY s.pid, s.sequence),
                array_agg(coalesce(s.blocker_pid, 0) ORDER BY s.pid, s.sequence),
                array_agg(coalesce(s.database, 0::oid) ORDER BY s.pid, s.sequence),
                array_agg(coalesce(s.role, 0::oid) ORDER BY s.pid, s.sequence),
                array_agg(a.id ORDER BY s.pid, s.sequence),
                array_agg(c.id ORDER BY s.pid, s.sequence),
                array_agg(b.id ORDER BY s.pid, s.sequence),
                array_agg(t.id ORDER BY s.pid, s.sequence),
                array_agg(y.id ORDER BY s.pid, s.sequence),
                array_agg(e.id ORDER BY s.pid, s.sequence),
                array_agg(coalesce(s.query_id, 0) ORDER BY s.pid, s.sequence),
                array_agg(coalesce(s.plan_hash, 0) ORDER BY s.pid, s.sequence),
                array_agg(coalesce(s.xact_age_us, -1) ORDER BY s.pid, s.sequence),
                array_agg(coalesce(s.query_age_us, -1) ORDER BY s.pid, s.sequence),
                array_agg(coalesce(s.temp_bytes, -1) ORDER BY s.pid, s.sequence),
                array_agg(g.id ORDER BY s.pid, s.sequence)
         FROM s LEFT JOIN d a ON a.word = s.application LEFT JOIN d c ON c.word = s.client
              LEFT JOIN d b ON b.word = s.backend_type LEFT JOIN d t ON t.word = s.state
              LEFT JOIN d y ON y.word = s.wait_event_type LEFT JOIN d e ON e.word = s.wait_event
              LEFT JOIN d g ON g.word = s.consumer_group
         HAVING count(*) > 0)
     SELECT max(s.sequence), count(*), array_agg(DISTINCT s.query_id), array_agg(DISTINCT s.plan_hash) FROM s', source)
    INTO last, stored, queries, plans
    USING after, (sampler ->> 'next_sequence')::bigint, day, instance, (sampler ->> 'period_ms')::int,
          (sampler ->> 'ticks')::bigint - (previous ->> 'ticks')::bigint;
  UPDATE awr.query_text t SET last_day = day WHERE t.instance_id = instance AND t.query_id = ANY (queries) AND t.last_day < day;
  UPDATE awr.plan_text t SET last_day = day
    WHERE t.instance_id = instance AND t.query_id = ANY (queries) AND t.plan_id = ANY (plans) AND t.last_day < day;

  INSERT INTO awr.last_value
    VALUES (state_id, 'samples', 0, jsonb_build_object('incarnation', incarnation, 'sequence', coalesce(last, after),
              -- Without a sample, the ticks count for the next chunk, unless an AWR snapshot precedes it.
              'ticks', CASE WHEN stored > 0 THEN sampler -> 'ticks' ELSE previous -> 'ticks' END, 'seen', sampler -> 'ticks',
              'period_ms', sampler -> 'period_ms'))
    ON CONFLICT (instance_id, kind, database) DO UPDATE SET data = excluded.data;
  RETURN stored;
END
$$ LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.store_sample_rows(integer, text, text, jsonb) IS 'for internal use by awr.store_samples';

-- Returns the sequence number of the last sample or text of an instance that is stored, for an incarnation of its server.
CREATE FUNCTION awr.last_sequence(instance integer, kind text, incarnation text)
RETURNS bigint
LANGUAGE sql STABLE
RETURN coalesce((SELECT (l.data ->> 'sequence')::bigint FROM awr.last_value l
                 WHERE l.instance_id = instance AND l.kind = last_sequence.kind AND l.data ->> 'incarnation' = last_sequence.incarnation), 0);

COMMENT ON FUNCTION awr.last_sequence(integer, text, text) IS 'for internal use by awr.store_samples and awr.store_plans';

-- Moves the samples that the repository does not contain yet from shared memory into it. Returns their number.
CREATE FUNCTION awr.store_samples()
RETURNS bigint
AS $$
BEGIN
  LOCK TABLE awr.word IN SHARE UPDATE EXCLUSIVE MODE;
  RETURN awr.store_sample_rows(1, format('awr.get_samples(%s)', awr.last_sequence(0, 'samples', awr.get_incarnation()::text)),
                               awr.get_incarnation()::text, (SELECT to_jsonb(s) FROM awr.get_sampler_state() s));
END
$$ LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.store_samples() IS
  'moves session samples from shared memory to the repository; the AWR worker calls it every minute';

-- The stored samples, and those of this server that are still in shared memory
CREATE VIEW awr.active_session_history AS
  SELECT h.instance_id, c.begin_time + s.ms * interval '1 millisecond' AS sample_time, s.pid,
         to_timestamp(s.session_ms / 1000.0) AS backend_start, nullif(s.leader_pid, 0) AS leader_pid,
         nullif(s.database, 0::oid) AS database, nullif(s.role, 0::oid) AS role, a.word AS application, cl.word AS client,
         b.word AS backend_type, st.word AS state, et.word AS wait_event_type, e.word AS wait_event,
         awr.wait_class(et.word, e.word, b.word IN ('client backend', 'parallel worker')) AS wait_class,
         nullif(s.query_id, 0) AS query_id, nullif(s.plan_hash, 0) AS plan_hash, nullif(s.xact_age_us, -1) AS xact_age_us, nullif(s.query_age_us, -1) AS query_age_us,
         nullif(s.blocker_pid, 0) AS blocker_pid, c.period_ms, c.begin_time AS chunk_begin, c.end_time AS chunk_end,
         nullif(s.temp_bytes, -1) AS temp_bytes, g.word AS consumer_group
  FROM awr.sample_chunk c
       CROSS JOIN LATERAL (SELECT c.instance_id) h
       CROSS JOIN LATERAL unnest(c.sample_ms, c.pid, c.session_ms, c.leader_pid, c.blocker_pid, c.database, c.role, c.application,
                                 c.client, c.backend_type, c.state, c.wait_event_type, c.wait_event, c.query_id, c.plan_hash, c.xact_age_us, c.query_age_us,
                                 c.temp_bytes, c.consumer_group)
         AS s (ms, pid, session_ms, leader_pid, blocker_pid, database, role, application, client, backend_type, state,
               wait_event_type, wait_event, query_id, plan_hash, xact_age_us, query_age_us, temp_bytes, consumer_group)
       LEFT JOIN awr.word a ON a.id = s.application LEFT JOIN awr.word cl ON cl.id = s.client
       LEFT JOIN awr.word b ON b.id = s.backend_type LEFT JOIN awr.word st ON st.id = s.state
       LEFT JOIN awr.word et ON et.id = s.wait_event_type LEFT JOIN awr.word e ON e.id = s.wait_event
       LEFT JOIN awr.word g ON g.id = s.consumer_group
  UNION ALL
  SELECT 1, s.sample_time, s.pid, s.backend_start, s.leader_pid, s.database, s.role, s.application, s.client, s.backend_type, s.state,
         s.wait_event_type, s.wait_event, awr.wait_class(s.wait_event_type, s.wait_event, s.backend_type IN ('client backend', 'parallel worker')),
         s.query_id, s.plan_hash, s.xact_age_us, s.query_age_us, s.blocker_pid, (SELECT period_ms FROM awr.get_sampler_state()),
         s.sample_time, s.sample_time, s.temp_bytes, s.consumer_group
  FROM awr.get_samples((SELECT coalesce(max((data ->> 'sequence')::bigint), 0) FROM awr.last_value
                        WHERE kind = 'samples' AND data ->> 'incarnation' = awr.get_incarnation()::text)) s;

COMMENT ON VIEW awr.active_session_history IS
  'samples of active sessions: N samples of a state mean about N times period_ms in that state';
COMMENT ON COLUMN awr.active_session_history.wait_event IS 'what the session waited for, or NULL if it was on a CPU or ready to run';
COMMENT ON COLUMN awr.active_session_history.wait_class IS 'wait class under Oracle''s names; see awr.wait_class';
COMMENT ON COLUMN awr.active_session_history.plan_hash IS
  'plan_id, in awr.plan_stat, of the top-level statement that the session executed; NULL while no plan was executed';
COMMENT ON COLUMN awr.active_session_history.chunk_begin IS
  'first sample of the stored minute; conditions on chunk_begin and chunk_end keep a query from reading all samples';
COMMENT ON COLUMN awr.active_session_history.temp_bytes IS
  'size of the temporary files that the process had created; those of a parallel query belong to its leader. NULL if temporary files may be on a cell';
COMMENT ON COLUMN awr.active_session_history.consumer_group IS
  'consumer group of the session; NULL for processes of the server, and in samples that an earlier release exported';
COMMENT ON COLUMN awr.active_session_history.leader_pid IS 'the session that a parallel worker works for';
COMMENT ON COLUMN awr.active_session_history.blocker_pid IS 'a process that holds the lock that the session waited for';

-- ---- Sums of session samples ----

-- Returns the length of the slots of an interval: 150 slots at most. Slots begin at multiples of their length since 2000, and
-- each length divides the next one, so the slots of a long interval are unions of those of its parts.
CREATE FUNCTION awr.slot_seconds(begin_time timestamptz, end_time timestamptz)
RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce((SELECT min(w) FROM unnest(ARRAY[1, 2, 10, 30, 60, 120, 600, 1800, 3600, 7200, 14400, 28800]) w
                 WHERE extract(epoch FROM end_time - begin_time) <= 150 * w), 86400);

COMMENT ON FUNCTION awr.slot_seconds(timestamptz, timestamptz) IS 'for internal use by awr.report_data';

-- Rows of all tables of sums, without the AWR snapshot; kind is the name of the table without sample_
CREATE TYPE awr.sample_sum AS (
  kind text, samples bigint, period_ms integer, slot timestamptz, query_id bigint, plan_id bigint, event text, wait_event_type text,
  class text, foreground boolean, pid integer, backend_start timestamptz, backend_type text, application text, client text,
  database oid, role oid, state text, xact_age_us bigint, blocker_pid integer, ticks bigint, lost bigint, temp_bytes bigint,
  consumer_group text, head_pid integer);

-- Returns the sums of the samples of an AWR snapshot's interval.
CREATE FUNCTION awr.sum_chunks(instance integer, snap bigint)
RETURNS SETOF awr.sample_sum
AS $$
DECLARE
  interval_end awr.snapshot;
  first_day date;
  last_day date;
  width interval;
  idle int[] := ARRAY(SELECT id FROM awr.word WHERE word LIKE 'idle in transaction%');
BEGIN
  SELECT * INTO interval_end FROM awr.snapshot s WHERE s.instance_id = instance AND s.snap_id = snap;
  width := awr.slot_seconds(interval_end.begin_time, interval_end.end_time) * interval '1 second';
  -- A day more on each side: samples are stored under the day of their storing.
  first_day := (least(interval_end.begin_time, interval_end.end_time) AT TIME ZONE 'UTC')::date - 1;
  last_day := (greatest(interval_end.begin_time, interval_end.end_time) AT TIME ZONE 'UTC')::date + 1;
  RETURN QUERY
  WITH RECURSIVE chunk AS NOT MATERIALIZED (
    SELECT c.* FROM awr.sample_chunk c
    WHERE c.instance_id = instance AND c.snap_day BETWEEN first_day AND last_day
      AND (c.snap_id = snap OR (c.snap_id = 0 AND c.end_time > interval_end.begin_time AND c.begin_time <= interval_end.end_time))),
  s AS MATERIALIZED (
    SELECT c.period_ms, c.begin_time + u.ms * interval '1 millisecond' AS at, u.pid, u.session_ms, u.blocker_pid, u.database, u.role, u.application,
           u.client, u.backend_type, u.state, coalesce(u.state = ANY (idle), false) AS is_idle, u.type, u.event, u.query_id, u.plan_id, u.xact_age_us,
           u.temp_bytes, u.consumer_group
    FROM chunk c
         CROSS JOIN LATERAL unnest(c.sample_ms, c.pid, c.session_ms, c.blocker_pid, c.database, c.role, c.application, c.client, c.backend_type,
                                   c.state, c.wait_event_type, c.wait_event, c.query_id, c.plan_hash, c.xact_age_us, c.temp_bytes,
                                   c.consumer_group)
           AS u (ms, pid, session_ms, blocker_pid, database, role, application, client, backend_type, state, type, event, query_id, plan_id, xact_age_us, temp_bytes,
                 consumer_group)
    WHERE c.snap_id = snap
       OR (c.begin_time + u.ms * interval '1 millisecond' > interval_end.begin_time AND c.begin_time + u.ms * interval '1 millisecond' <= interval_end.end_time)),
  blocked AS MATERIALIZED (
    SELECT s.at, s.blocker_pid, s.pid, s.event, s.query_id FROM s WHERE s.blocker_pid <> 0),
  -- Chains of waiting sessions at each tick, from their heads on. The sessions of a deadlock have no head.
  chain AS (
    SELECT b.at, b.pid, b.blocker_pid AS head_pid FROM blocked b
    WHERE NOT EXISTS (SELECT FROM blocked o WHERE o.at = b.at AND o.pid = b.blocker_pid)
    UNION ALL
    SELECT b.at, b.pid, c.head_pid FROM chain c JOIN blocked b ON b.at = c.at AND b.blocker_pid = c.pid),
  -- One pass over the samples. Numbers of texts become texts afterwards.
  g AS MATERIALIZED (
    SELECT CASE grouping(x.query_id, x.pid, x.slot) WHEN 3 THEN 'event' WHEN 5 THEN 'session' ELSE 'slot' END AS kind,
           x.period_ms, x.slot, x.pid, x.session_ms, x.backend_type, x.application, x.client, x.database, x.role, x.is_idle, x.type, x.event,
           x.query_id, x.plan_id, x.consumer_group, count(*) AS n, max(x.xact_age_us) AS xact_age_us, max(x.temp_bytes) AS temp_bytes
    FROM (SELECT *, date_bin(width, s.at, '2000-01-01 00:00:00+00') AS slot FROM s) x
    GROUP BY GROUPING SETS (
      (x.period_ms, x.backend_type, x.is_idle, x.type, x.event, x.query_id, x.plan_id),
      (x.pid, x.session_ms, x.backend_type, x.application, x.client, x.database, x.role, x.consumer_group, x.is_idle, x.type, x.event),
      (x.period_ms, x.slot, x.backend_type, x.is_idle, x.type, x.event))),
  meaning AS MATERIALIZED (
    SELECT coalesce(d.backend_type, 0) AS b, coalesce(d.type, 0) AS t, coalesce(d.event, 0) AS e, coalesce(e.word, 'CPU') AS event,
           coalesce(t.word, '') AS wait_event_type, coalesce(b.word, '') AS backend_type, coalesce(b.word IN ('client backend', 'parallel worker'), false) AS foreground,
           awr.wait_class(t.word, e.word, b.word IN ('client backend', 'parallel worker')) AS class
    FROM (SELECT DISTINCT g.backend_type, g.type, g.event FROM g) d
         LEFT JOIN awr.word b ON b.id = d.backend_type LEFT JOIN awr.word t ON t.id = d.type LEFT JOIN awr.word e ON e.id = d.event),
  named AS MATERIALIZED (
    SELECT g.kind, g.period_ms, g.slot, g.pid, g.session_ms, g.application, g.client, g.database, g.role, g.is_idle, g.query_id, g.plan_id, g.n,
           g.consumer_group, g.xact_age_us, g.temp_bytes, m.event, m.wait_event_type, m.backend_type, m.foreground, m.class
    FROM g JOIN meaning m ON m.b = coalesce(g.backend_type, 0) AND m.t = coalesce(g.type, 0) AND m.e = coalesce(g.event, 0)
    -- Idle waits inside of a statement, such as pg_sleep() or COPY that waits for the client, are part of DB time, but are no activity.
    WHERE g.is_idle OR m.class <> 'Idle' OR (g.kind = 'event' AND m.foreground))
  SELECT 'interval', NULL::bigint, max(c.period_ms) FILTER (WHERE cardinality(c.pid) > 0), NULL::timestamptz, NULL::bigint, NULL::bigint, NULL, NULL, NULL, NULL::boolean,
         NULL::int, NULL::timestamptz, NULL, NULL, NULL, NULL::oid, NULL::oid, NULL, NULL::bigint, NULL::int, sum(c.ticks)::bigint, sum(c.lost)::bigint, NULL::bigint, NULL, NULL::int
  FROM chunk c
  UNION ALL
  SELECT 'event', sum(n)::bigint, d.period_ms, NULL, d.query_id, d.plan_id, d.event, d.wait_event_type, d.class, d.foreground,
         NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM named d WHERE d.kind = 'event' AND NOT d.is_idle
  GROUP BY d.period_ms, d.query_id, d.plan_id, d.event, d.wait_event_type, d.class, d.foreground
  UNION ALL
  SELECT 'slot', sum(n)::bigint, d.period_ms, d.slot, NULL, NULL, NULL, NULL, d.class, NULL,
         NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM named d WHERE d.kind = 'slot' AND NOT d.is_idle AND d.foreground
  GROUP BY d.period_ms, d.slot, d.class
  UNION ALL
  SELECT 'session', sum(d.n)::bigint, NULL, NULL, NULL, NULL, NULL, NULL, CASE WHEN d.is_idle THEN '' ELSE d.class END, NULL,
         d.pid, to_timestamp(d.session_ms / 1000.0), d.backend_type, coalesce(a.word, ''), coalesce(c.word, ''), d.database, d.role,
         CASE WHEN d.is_idle THEN 'idle in transaction' ELSE 'active' END, max(d.xact_age_us) FILTER (WHERE d.is_idle), NULL, NULL, NULL,
         nullif(max(d.temp_bytes), -1), cg.word, NULL
  FROM named d LEFT JOIN awr.word a ON a.id = d.application LEFT JOIN awr.word c ON c.id = d.client LEFT JOIN awr.word cg ON cg.id = d.consumer_group
  WHERE d.kind = 'session'
  GROUP BY d.pid, d.session_ms, d.backend_type, a.word, c.word, d.database, d.role, cg.word, d.is_idle, CASE WHEN d.is_idle THEN '' ELSE d.class END
  UNION ALL
  SELECT 'blocking', w.n, NULL, NULL, w.query_id, NULL, coalesce(e.word, ''), NULL, NULL, NULL,
         w.pid, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, w.blocker_pid, NULL, NULL, NULL, NULL, w.head_pid
  FROM (SELECT b.blocker_pid, b.pid, b.event, b.query_id, coalesce(c.head_pid, b.blocker_pid) AS head_pid, count(*) AS n
        FROM blocked b LEFT JOIN chain c ON c.at = b.at AND c.pid = b.pid GROUP BY 1, 2, 3, 4, 5) w LEFT JOIN awr.word e ON e.id = w.event
  UNION ALL
  SELECT 'blocker', w.n, NULL, NULL, w.query_id, NULL, NULL, NULL, NULL, NULL,
         w.pid, NULL, NULL, coalesce(a.word, ''), NULL, NULL, NULL, coalesce(st.word, ''), NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM (SELECT s.pid, s.state, s.application, s.query_id, sum(b.n)::bigint AS n
        FROM (SELECT at, blocker_pid, count(*) AS n FROM blocked GROUP BY 1, 2) b JOIN s ON s.at = b.at AND s.pid = b.blocker_pid
        GROUP BY 1, 2, 3, 4) w
       LEFT JOIN awr.word st ON st.id = w.state LEFT JOIN awr.word a ON a.id = w.application;
END
$$ LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
-- The planner takes an array for ten elements. For the many rows that it does not expect, hash tables are faster than sorts and
-- nested loops.
SET enable_sort = off
SET enable_nestloop = off
SET jit = off
SET work_mem = '64MB';

COMMENT ON FUNCTION awr.sum_chunks(integer, bigint) IS 'for internal use by awr.sum_samples and awr.report_data';

-- Returns the days whose sums are complete and lie in a period.
CREATE FUNCTION awr.summed_days(begin_snap bigint, end_snap bigint, instance integer)
RETURNS date[]
LANGUAGE sql STABLE
RETURN ARRAY(SELECT d.snap_day FROM awr.sample_day d
             WHERE d.instance_id = instance AND d.first_snap > begin_snap AND d.snap_id <= end_snap
               AND d.intervals = (SELECT count(*) FROM awr.sample_interval i WHERE i.instance_id = d.instance_id AND i.snap_day = d.snap_day));

COMMENT ON FUNCTION awr.summed_days(bigint, bigint, integer) IS 'for internal use by awr.sample_data';

-- Stores the sums of a day, in place of earlier ones.
CREATE FUNCTION awr.sum_day(day date, instance integer)
RETURNS void
AS $$
BEGIN
  PERFORM awr.create_partitions(day);
  DELETE FROM awr.sample_day_event e WHERE e.snap_day = day AND e.instance_id = instance;
  DELETE FROM awr.sample_day d WHERE d.snap_day = day AND d.instance_id = instance;
  -- With the day as a constant, only its partitions are locked and read.
  EXECUTE format(
    'WITH range AS (
       INSERT INTO awr.sample_day
         SELECT %1$L, max(i.snap_id), %2$s, min(i.snap_id), count(*) FROM awr.sample_interval i WHERE i.snap_day = %1$L AND i.instance_id = %2$s
         HAVING count(*) > 0
         RETURNING snap_id)
     INSERT INTO awr.sample_day_event
       SELECT %1$L, r.snap_id, %2$s, e.query_id, e.plan_id, e.event, e.wait_event_type, e.class, e.foreground, e.period_ms, sum(e.samples)
       FROM range r, awr.sample_event e
       WHERE e.snap_day = %1$L AND e.instance_id = %2$s
       GROUP BY r.snap_id, e.query_id, e.plan_id, e.event, e.wait_event_type, e.class, e.foreground, e.period_ms', day, instance);
END
$$ LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET enable_sort = off
SET jit = off
SET work_mem = '64MB';

COMMENT ON FUNCTION awr.sum_day(date, integer) IS 'for internal use by awr.sum_samples';

-- Stores the sums of the samples of AWR snapshots that have none yet, of ten at most, the latest first. Returns how many. A
-- report adds up the samples of a snapshot without sums.
CREATE FUNCTION awr.sum_samples()
RETURNS integer
AS $$
DECLARE
  s record;
  summed int := 0;
BEGIN
  -- One session at a time; readers are not blocked.
  LOCK TABLE awr.sample_interval IN SHARE UPDATE EXCLUSIVE MODE;
  FOR s IN
    SELECT p.snap_day, p.snap_id, p.instance_id FROM awr.snapshot p
    WHERE p.begin_time IS NOT NULL
      AND NOT EXISTS (SELECT FROM awr.sample_interval i WHERE i.instance_id = p.instance_id AND i.snap_id = p.snap_id AND i.snap_day = p.snap_day)
      AND EXISTS (SELECT FROM awr.sample_chunk c
                  WHERE c.instance_id = p.instance_id AND (c.snap_id = p.snap_id OR (c.snap_id = 0 AND c.end_time > p.begin_time AND c.begin_time <= p.end_time)))
    ORDER BY p.end_time DESC LIMIT 10
  LOOP
    PERFORM awr.create_partitions(s.snap_day);
    WITH sums AS MATERIALIZED (
      SELECT * FROM awr.sum_chunks(s.instance_id, s.snap_id)),
    event AS (
      INSERT INTO awr.sample_event
        SELECT s.snap_day, s.snap_id, s.instance_id, query_id, plan_id, event, wait_event_type, class, foreground, period_ms, samples
        FROM sums WHERE kind = 'event'),
    session AS (
      INSERT INTO awr.sample_session
        SELECT s.snap_day, s.snap_id, s.instance_id, pid, backend_start, backend_type, application, client, database, role, state, class, samples, xact_age_us, temp_bytes, consumer_group
        FROM sums WHERE kind = 'session'),
    blocking AS (
      INSERT INTO awr.sample_blocking
        SELECT s.snap_day, s.snap_id, s.instance_id, blocker_pid, pid, event, query_id, samples, head_pid FROM sums WHERE kind = 'blocking'),
    blocker AS (
      INSERT INTO awr.sample_blocker
        SELECT s.snap_day, s.snap_id, s.instance_id, pid, state, application, query_id, samples FROM sums WHERE kind = 'blocker'),
    slot AS (
      INSERT INTO awr.sample_slot
        SELECT s.snap_day, s.snap_id, s.instance_id, slot, class, period_ms, samples FROM sums WHERE kind = 'slot')
    INSERT INTO awr.sample_interval
      SELECT s.snap_day, s.snap_id, s.instance_id, ticks, lost, period_ms FROM sums WHERE kind = 'interval';
    summed := summed + 1;
  END LOOP;
  IF summed < 10 THEN
    -- One day, so that the transaction is short
    PERFORM awr.sum_day(n.snap_day, n.instance_id) FROM (SELECT i.snap_day, i.instance_id
      FROM (SELECT i.snap_day, i.instance_id, count(*) AS intervals FROM awr.sample_interval i GROUP BY 1, 2) i
      WHERE i.snap_day < (SELECT max(p.snap_day) FROM awr.snapshot p WHERE p.instance_id = i.instance_id)
        AND NOT EXISTS (SELECT FROM awr.sample_day d WHERE d.snap_day = i.snap_day AND d.instance_id = i.instance_id AND d.intervals = i.intervals)
      ORDER BY i.snap_day DESC, i.instance_id LIMIT 1) n;
  END IF;
  RETURN summed;
END
$$ LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.sum_samples() IS 'adds up session samples of AWR snapshots; the AWR worker calls it every minute';

-- Assigns the samples that were stored since the previous AWR snapshot of an instance to an AWR snapshot. Ticks without samples
-- become a minute without samples.
CREATE FUNCTION awr.assign_samples(instance integer, snap bigint)
RETURNS void
AS $$
DECLARE
  day date;
BEGIN
  SELECT least(s.snap_day, (s.begin_time AT TIME ZONE 'UTC')::date) - 1 INTO day FROM awr.snapshot s WHERE s.instance_id = instance AND s.snap_id = snap;
  WITH idle AS (
    UPDATE awr.last_value l SET data = l.data || jsonb_build_object('ticks', l.data -> 'seen')
    FROM awr.last_value o
    WHERE l.instance_id = CASE WHEN instance = 1 THEN 0 ELSE instance END AND l.kind = 'samples' AND l.data -> 'seen' <> l.data -> 'ticks'
      AND o.instance_id = l.instance_id AND o.kind = l.kind
    RETURNING (o.data ->> 'seen')::bigint - (o.data ->> 'ticks')::bigint AS ticks, (o.data ->> 'period_ms')::int AS period_ms)
  INSERT INTO awr.sample_chunk
    SELECT s.snap_day, instance, s.end_time, s.end_time, period_ms, ticks, 0, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'
    FROM idle, awr.snapshot s WHERE s.instance_id = instance AND s.snap_id = snap;
  UPDATE awr.sample_chunk c SET snap_id = snap WHERE c.instance_id = instance AND c.snap_id IS NULL AND (day IS NULL OR c.snap_day >= day);
END
$$ LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.assign_samples(integer, bigint) IS 'for internal use by awr.create_snapshot';

-- ---- Statements and plans ----

CREATE TYPE awr.statement_counters AS (
  database oid, role oid, query_id bigint, plan_id bigint, calls bigint, elapsed_us bigint, cpu_us bigint, run_queue_us bigint,
  plans bigint, plan_us bigint, parses bigint, parse_us bigint, rows bigint, shared_blks_hit bigint, shared_blks_read bigint,
  shared_blks_dirtied bigint, shared_blks_written bigint, temp_blks_read bigint, temp_blks_written bigint,
  blk_read_us bigint, blk_write_us bigint, wal_records bigint, wal_fpi bigint, wal_bytes bigint,
  eligible_bytes bigint, saved_bytes bigint, returned_bytes bigint, optimized_bytes bigint, max_us bigint, generation bigint);
COMMENT ON TYPE awr.statement_counters IS 'a row of awr.get_statements()';

CREATE FUNCTION awr.get_statements()
RETURNS SETOF awr.statement_counters
AS 'MODULE_PATHNAME', 'cellar_get_statements'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION awr.get_statements() IS
  'cumulative statistics of top-level statements, per database, role, query and plan; query_id 0 contains evicted entries';

CREATE FUNCTION awr.take_statements()
RETURNS SETOF awr.statement_counters
AS 'MODULE_PATHNAME', 'cellar_take_statements'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION awr.take_statements() IS
  'like awr.get_statements(), and starts the longest times and the sums of evicted entries of the next AWR snapshot; for internal use by awr.collect';

CREATE FUNCTION awr.get_plans(
  after_sequence bigint DEFAULT 0, OUT sequence bigint, OUT query_id bigint, OUT plan_id bigint, OUT query text, OUT plan text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_get_plans'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION awr.get_plans(bigint) IS
  'texts of statements and plans in shared memory with a sequence number above the given one; the AWR worker stores them';

-- ---- Collecting ----

-- Facts that identify the server and its present run
CREATE FUNCTION awr.get_facts()
RETURNS jsonb
AS $$
  SELECT jsonb_build_object(
    'system_identifier', (SELECT system_identifier FROM pg_control_system()),
    'startup_time', pg_postmaster_start_time(),
    'incarnation', awr.get_incarnation(),
    'in_recovery', pg_is_in_recovery(),
    'host', trim(E' \n' FROM pg_read_file('/proc/sys/kernel/hostname', 0, 256, true)),
    'platform', substring(version() FROM ' on ([^,]+)'),
    'wal_lsn', CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_insert_lsn() END,
    'server_version', current_setting('server_version'),
    'server_version_num', current_setting('server_version_num')::int,
    'block_size', current_setting('block_size')::int,
    'cluster_name', current_setting('cluster_name'),
    'cellar_version', (SELECT extversion FROM pg_extension WHERE extname = 'cellar'),
    'sessions', (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
    -- PostgreSQL adds the time of a statement to active_time when the statement ends.
    'open_us', (SELECT jsonb_object_agg(o.datid, o.us)
                FROM (SELECT a.datid, sum((extract(epoch FROM clock_timestamp() - a.state_change) * 1e6)::bigint) AS us
                      FROM pg_stat_activity a
                      WHERE a.backend_type = 'client backend' AND a.state IN ('active', 'fastpath function call') AND a.datid IS NOT NULL
                      GROUP BY 1) o),
    'on_cell', (SELECT jsonb_agg(format('%s/%s', d.database, d.tablespace)) FROM awr.get_directories() d),
    'uptime_us', (split_part(pg_read_file('/proc/uptime', 0, 64, true), ' ', 1)::numeric * 1e6)::bigint,
    'time', clock_timestamp())
$$ LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC'
SET datestyle = 'ISO, YMD';

COMMENT ON FUNCTION awr.get_facts() IS 'server version, start time and other facts that an AWR snapshot records';

-- Returns the query of a collector with the schemas of extensions filled in, or NULL if a required extension is missing.
CREATE FUNCTION awr.get_source(source text, requires text)
RETURNS text
AS $$
  SELECT CASE
           WHEN requires IS NULL THEN source
           ELSE (SELECT replace(source, '@' || extname || '@', quote_ident(nspname))
                 FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = requires)
         END
$$ LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.get_source(text, text) IS 'for internal use by awr.collect';

-- Returns the expression of a row of a source: its column "row", or all of its columns.
CREATE FUNCTION awr.get_row(source text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN source ~ '\mAS row\M' THEN 's.row' ELSE 'to_jsonb(s)' END;

COMMENT ON FUNCTION awr.get_row(text) IS 'for internal use by awr.collect';

-- Returns the query, to be run in a database, of the names and classes of its relations whose files "files" lists; NULL if there
-- are none. "shared" adds the relations that all databases share.
CREATE FUNCTION awr.get_file_names(files jsonb, database oid, shared boolean)
RETURNS text
AS $$
  SELECT format(
    'SELECT ''file_name'', jsonb_build_object(''database'', f.database, ''tablespace'', f.tablespace, ''filenode'', f.filenode, ''relation'', c.oid,
              ''schemaname'', n.nspname, ''relname'', coalesce(o.relname, t.relname, c.relname), ''indexrelname'', CASE WHEN i.indexrelid IS NOT NULL THEN c.relname END,
              ''class'', CASE WHEN c.oid < 16384 THEN ''catalog'' WHEN o.oid IS NOT NULL OR c.relkind = ''t'' THEN ''toast''
                            WHEN i.indexrelid IS NOT NULL THEN ''index'' WHEN c.relkind = ''S'' THEN ''sequence'' ELSE ''table'' END)
     FROM unnest(%L::oid[], %L::oid[], %L::oid[]) f (database, tablespace, filenode)
          JOIN pg_class c ON c.oid = pg_filenode_relation(f.tablespace, f.filenode)
          LEFT JOIN pg_index i ON i.indexrelid = c.oid LEFT JOIN pg_class t ON t.oid = i.indrelid
          LEFT JOIN pg_class o ON o.reltoastrelid = coalesce(i.indrelid, c.oid) AND o.reltoastrelid <> 0
          JOIN pg_namespace n ON n.oid = coalesce(o.relnamespace, c.relnamespace)',
    array_agg(r.database), array_agg(r.tablespace), array_agg(r.filenode))
  FROM (SELECT DISTINCT f.database, f.tablespace, f.filenode
        FROM jsonb_to_recordset(files) f (database oid, tablespace oid, filenode oid, bucket int)
        WHERE f.filenode <> 0 AND f.bucket = -1 AND (f.database = get_file_names.database OR f.database = 0 AND shared)) r
  HAVING count(*) > 0
$$ LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.get_file_names(jsonb, oid, boolean) IS 'for internal use by awr.collect';

CREATE TYPE awr.collected AS (kind text, database oid, data jsonb);
COMMENT ON TYPE awr.collected IS 'a row of awr.collect()';

-- Returns the current cumulative values: one row per kind and database, whose data are an array of rows, or packed rows. A source that
-- fails or that is not available returns a row of kind "note". Writes nothing, so it also runs on a standby.
CREATE FUNCTION awr.collect(OUT kind text, OUT database oid, OUT data jsonb)
RETURNS SETOF record
AS $$
DECLARE
  c record;
  d record;
  version int := current_setting('server_version_num')::int;
  statement text;
  others text;
  files jsonb;
  names jsonb := '[]';
BEGIN
  FOR c IN SELECT * FROM awr.collector WHERE scope = 'instance' AND version BETWEEN min_version AND max_version LOOP
    kind := c.kind;
    database := 0;
    BEGIN
      statement := awr.get_source(c.source, c.requires);
      IF statement IS NULL THEN
        kind := 'note';
        data := jsonb_build_object('kind', 'source missing', 'object', c.requires,
                                   'description', format('%s is not installed', c.requires));
      ELSIF awr.is_packed(c.kind) THEN
        SELECT r INTO data FROM pg_database o, awr.query_database(o.oid, format('SELECT %L::text, s, NULL::jsonb FROM (%s) s', c.kind, statement)) r
          WHERE o.datname = current_database();
      ELSE
        EXECUTE 'SELECT jsonb_agg(' || awr.get_row(c.source) || ') FROM (' || statement || ') s' INTO data;
      END IF;
    EXCEPTION
      WHEN query_canceled THEN RAISE;
      WHEN OTHERS THEN
        kind := 'note';
        data := jsonb_build_object('kind', 'source failed', 'object', coalesce(c.requires, c.kind), 'description', SQLERRM);
    END;
    CONTINUE WHEN data IS NULL;
    IF kind = 'cell_file_stat' THEN
      files := data;
    ELSE
      RETURN NEXT;
    END IF;
  END LOOP;

  -- Statistics that this version of the server does not provide
  FOR kind, data IN
    SELECT 'note', jsonb_build_object('kind', 'source missing', 'object', m.kind,
                                      'description', format('%s needs PostgreSQL %s or later', CASE m.kind WHEN 'io_stat' THEN 'pg_stat_io' WHEN 'session_io_stat' THEN 'pg_stat_get_backend_io' ELSE m.kind END,
                                                            min(m.min_version) / 10000))
    FROM awr.collector m GROUP BY m.kind HAVING min(m.min_version) > version
  LOOP
    database := 0;
    RETURN NEXT;
  END LOOP;

  SELECT string_agg(format('SELECT %L::text AS kind, s AS row, NULL::jsonb AS json FROM (%s) s', s.kind, s.source), ' UNION ALL ')
           FILTER (WHERE awr.is_packed(s.kind)),
         string_agg(format('SELECT %L::text AS kind, %s AS row FROM (%s) s', s.kind, awr.get_row(s.source), s.source), ' UNION ALL ')
           FILTER (WHERE NOT awr.is_packed(s.kind))
    INTO statement, others
    FROM awr.collector s WHERE scope = 'database' AND version BETWEEN min_version AND max_version;
  FOR d IN SELECT oid, datname FROM pg_database WHERE datallowconn AND datconnlimit <> -2 AND NOT datistemplate LOOP
    BEGIN
      FOR kind, data IN
        SELECT CASE jsonb_typeof(r) WHEN 'string' THEN split_part(left(r #>> '{}', 64), E'\n', 1) ELSE r ->> 'kind' END,
               CASE jsonb_typeof(r) WHEN 'string' THEN r ELSE r -> 'rows' END
        FROM awr.query_database(d.oid, format('%s UNION ALL SELECT NULL, NULL::record, jsonb_build_object(''kind'', kind, ''rows'', jsonb_agg(row)) FROM (%s) s GROUP BY kind',
               statement, concat_ws(' UNION ALL ', others, awr.get_file_names(files, d.oid, d.datname = current_database())))) r
      LOOP
        IF kind = 'file_name' THEN
          names := names || data;
          CONTINUE;
        END IF;
        database := d.oid;
        RETURN NEXT;
      END LOOP;
    EXCEPTION
      WHEN query_canceled THEN RAISE;
      WHEN OTHERS THEN
        kind := 'note';
        database := d.oid;
        data := jsonb_build_object('kind', 'source failed', 'object', format('database %s', d.datname), 'description', SQLERRM);
        RETURN NEXT;
    END;
  END LOOP;

  IF files IS NOT NULL THEN
    kind := 'cell_file_stat';
    database := 0;
    SELECT jsonb_agg(f || coalesce(n, '{}')) INTO data
      FROM jsonb_array_elements(files) f
           LEFT JOIN jsonb_array_elements(names) n
             ON n ->> 'database' = f ->> 'database' AND n ->> 'tablespace' = f ->> 'tablespace' AND n ->> 'filenode' = f ->> 'filenode';
    RETURN NEXT;
  END IF;
END
$$ LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC'
SET datestyle = 'ISO, YMD';

COMMENT ON FUNCTION awr.collect() IS
  'current values of all statistics that an AWR snapshot contains; writes nothing';

-- ---- Storing ----

-- The interval tables and the roles of their columns
CREATE VIEW awr.interval_column AS
  SELECT c.relname AS kind, a.attname AS name, a.attnum AS position, format_type(coalesce(nullif(t.typbasetype, 0), t.oid), NULL) AS type,
         CASE WHEN a.attnotnull THEN 'key'
              WHEN t.typname = 'counter' AND t.typnamespace = 'awr'::regnamespace THEN 'counter'
              WHEN t.typname = 'duration' AND t.typnamespace = 'awr'::regnamespace THEN 'counter'
              WHEN t.typname = 'growth' AND t.typnamespace = 'awr'::regnamespace THEN 'growth'
              WHEN a.attname = 'stats_reset' THEN 'reset'
              ELSE 'gauge' END AS role
  FROM pg_catalog.pg_class c
       JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
       JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
  WHERE c.relnamespace = 'awr'::regnamespace AND c.relkind = 'p' AND c.relname NOT IN ('snapshot', 'note') AND c.relname NOT LIKE 'sample\_%'
    AND a.attname NOT IN ('snap_day', 'snap_id', 'instance_id');

COMMENT ON VIEW awr.interval_column IS 'columns of the interval tables, and how awr.store_snapshot fills each';

-- Creates the partitions of a day, unless they exist.
CREATE FUNCTION awr.create_partitions(day date)
RETURNS void
AS $$
DECLARE
  parent name;
  partition name;
BEGIN
  FOR parent IN SELECT relname FROM pg_class WHERE relnamespace = 'awr'::regnamespace AND relkind = 'p' LOOP
    partition := parent || to_char(day, '_YYYYMMDD');
    IF to_regclass(format('awr.%I', partition)) IS NULL THEN
      EXECUTE format('CREATE TABLE awr.%I PARTITION OF awr.%I FOR VALUES IN (%L)', partition, parent, day);
      EXECUTE format('CREATE INDEX ON awr.%I (%s)', partition, CASE parent WHEN 'sample_chunk' THEN 'end_time' ELSE 'snap_id' END);
    END IF;
  END LOOP;
END
$$ LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.create_partitions(date) IS 'for internal use by awr.store_snapshot';

-- Stores the increases of one kind. "previous" is NULL if the kind was not collected in the previous snapshot; then only
-- kinds without counters are stored. "changed" stores a row only if something changed.
CREATE FUNCTION awr.store_kind(kind text, day date, snap bigint, instance integer, present jsonb, previous jsonb)
RETURNS void
AS $$
DECLARE
  keys text[];
  counters text[];
  growths text[];
  gauges text[];
  has_reset boolean;
  reset text;
  increase text := 'c.%1$I - p.%1$I';
  first text := 'c.%1$I';
  outputs text;
  changed text;
  c_columns text;
  p_columns text;
BEGIN
  SELECT array_agg(name::text ORDER BY position) FILTER (WHERE role = 'key'),
         coalesce(array_agg(name::text ORDER BY position) FILTER (WHERE role = 'counter'), '{}'),
         coalesce(array_agg(name::text ORDER BY position) FILTER (WHERE role = 'growth'), '{}'),
         coalesce(array_agg(name::text ORDER BY position) FILTER (WHERE role IN ('gauge', 'reset')), '{}'),
         bool_or(role = 'reset')
    INTO keys, counters, growths, gauges, has_reset
    FROM awr.interval_column c WHERE c.kind = $1;
  IF cardinality(counters) > 0 AND previous IS NULL THEN
    RETURN;
  END IF;
  -- Of the previous values, only those are read from which increases are computed. Without increases, rows are compared.
  SELECT string_agg(format('%I %s', name, type), ', ' ORDER BY position),
         string_agg(format('%I %s', name, type), ', ' ORDER BY position)
           FILTER (WHERE cardinality(counters || growths) = 0 OR role IN ('key', 'counter', 'reset')
                      OR name::text IN (SELECT regexp_replace(g, '_growth$', '') FROM unnest(growths) g))
    INTO c_columns, p_columns
    FROM awr.interval_column c WHERE c.kind = $1 AND role <> 'growth';

  -- The counts idx_* of a table are sums over its indexes: they decrease when an index is dropped, and stay when the counts of
  -- the table are reset.
  reset := (SELECT string_agg(format('c.%1$I < p.%1$I', n), ' OR ') FROM unnest(counters) n WHERE kind <> 'table_stat' OR n NOT LIKE 'idx\_%');
  -- pg_stat_reset_single_table_counters() also sets stats_reset of the database, so that the time of a database's reset says
  -- nothing about its other rows: there only a decrease shows a reset.
  IF has_reset AND kind NOT IN ('database_stat', 'table_stat', 'index_stat') THEN
    reset := concat_ws(' OR ', reset, 'c.stats_reset <> p.stats_reset');
  END IF;
  -- Some counts of the host may decrease (a network interface is removed); only a restart of the host resets all of them.
  IF kind = 'os_stat' THEN
    increase := 'greatest(c.%1$I - p.%1$I, 0)';
    reset := '(SELECT y.total < x.total FROM p x JOIN c y USING (name) WHERE name = ''UPTIME'')';
  END IF;
  -- A cell that was not asked before, or did not answer, has counted since its start.
  IF kind IN ('cell_stat', 'cell_disk_stat', 'iorm_stat') THEN
    first := 'CASE WHEN EXISTS (SELECT FROM p k WHERE k.cell = c.cell) THEN c.%1$I END';
  END IF;
  outputs := concat_ws(', ',
    (SELECT string_agg(format('c.%I', n), ', ') FROM unnest(keys) n),
    (SELECT string_agg(format('CASE WHEN p.%2$I IS NULL THEN ' || first ||
                              CASE WHEN kind = 'table_stat' AND n LIKE 'idx\_%' THEN ' WHEN c.%1$I >= coalesce(p.%1$I, 0) THEN c.%1$I - coalesce(p.%1$I, 0) WHEN NOT reset AND c.%1$I IS NOT NULL THEN 0' ELSE '' END ||
                              ' WHEN reset THEN c.%1$I ELSE ' || increase || ' END AS %1$I', n, keys[1]), ', ') FROM unnest(counters) n),
    (SELECT string_agg(format('c.%I - coalesce(p.%1$I, 0) AS %I', regexp_replace(n, '_growth$', ''), n), ', ') FROM unnest(growths) n),
    (SELECT string_agg(format('c.%I', n), ', ') FROM unnest(gauges) n));
  changed := CASE
    WHEN kind = 'activity' THEN 'true'
    WHEN cardinality(counters) + cardinality(growths) > 0 THEN
      (SELECT string_agg(format('%I <> 0', n), ' OR ') FROM unnest(counters || growths) n)
      || CASE WHEN kind IN ('os_stat', 'cell_stat') THEN ' OR value IS NOT NULL' WHEN kind = 'database_stat' THEN ' OR true' ELSE '' END
    ELSE 'row_changed' END;

  EXECUTE format(
    'WITH c AS MATERIALIZED (SELECT * FROM awr.unpack_rows($1) x (%7$s)),
          p AS MATERIALIZED (SELECT * FROM awr.unpack_rows($2) x (%8$s)),
          i AS MATERIALIZED (
            SELECT %2$s, r.reset, p.%11$I IS NOT NULL AS known, %9$s AS row_changed
            FROM c LEFT JOIN p ON (%3$s) CROSS JOIN LATERAL (SELECT coalesce(%4$s, false) AS reset) r),
          stored AS (
            INSERT INTO awr.%1$I (snap_day, snap_id, instance_id, %5$s)
            SELECT $3, $4, $5, %5$s FROM i WHERE %6$s)
     INSERT INTO awr.note (snap_day, snap_id, instance_id, kind, object, description)
     SELECT $3, $4, $5,
            -- A reset concerns all statements.
            CASE WHEN %1$L IN (''statement_stat'', ''plan_stat'', ''kcache_stat'') AND bool_or(NOT reset) THEN ''statements evicted'' ELSE ''statistics reset'' END, %1$L,
            count(*) FILTER (WHERE reset) || '' of '' || (SELECT count(*) FROM c) || '' rows restarted from zero''
     FROM i WHERE known HAVING bool_or(reset) %10$s
     UNION ALL
     SELECT $3, $4, $5, CASE WHEN %1$L IN (''statement_stat'', ''kcache_stat'') THEN ''statements evicted'' ELSE ''objects dropped'' END, %1$L,
            count(*) || CASE WHEN count(*) = 1 THEN '' object of the previous AWR snapshot no longer exists; its'' ELSE '' objects of the previous AWR snapshot no longer exist; their'' END
              || '' activity since then is not included''
     FROM p WHERE %1$L IN (''database_stat'', ''table_stat'', ''index_stat'', ''statement_stat'', ''kcache_stat'') AND NOT EXISTS (SELECT FROM c WHERE %3$s)
     HAVING count(*) > 0',
    kind, outputs, (SELECT string_agg(format('c.%1$I = p.%1$I', n), ' AND ') FROM unnest(keys) n), coalesce(reset, 'false'),
    (SELECT string_agg(format('%I', n), ', ') FROM unnest(keys || counters || growths || gauges) n), changed, c_columns, p_columns,
    CASE WHEN cardinality(counters || growths) = 0 THEN 'c IS DISTINCT FROM p' ELSE 'true' END,
    -- A device was removed, or the kernel''s count has wrapped. Other counts of the host are not monotonic.
    CASE kind WHEN 'os_stat' THEN
      'UNION ALL
       SELECT $3, $4, $5, ''statistics reset'', ''os_stat'',
              ''counts of the host decreased, their increase is not included: '' || string_agg(c.name, '', '' ORDER BY c.name)
       FROM c JOIN p USING (name) WHERE c.total < p.total AND name ~ ''^(DISK|NETWORK)_'' AND NOT (SELECT bool_or(reset) FROM i) HAVING count(*) > 0'
    END, keys[1])
  USING present, previous, day, snap, instance;
END
$$ LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.store_kind(text, date, bigint, integer, jsonb, jsonb) IS 'for internal use by awr.store_snapshot';

CREATE FUNCTION awr.add_note(day date, snap bigint, instance integer, kind text, object text, description text)
RETURNS void
AS $$
  INSERT INTO awr.note VALUES (day, snap, instance, kind, object, description)
$$ LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.add_note(date, bigint, integer, text, text, text) IS 'for internal use by awr.store_snapshot';

-- Stores an AWR snapshot from facts and collected values, and returns its number. The values come from awr.collect() on
-- this server or, for a standby or another cluster, from awr.collect() there.
CREATE FUNCTION awr.store_snapshot(instance_name text, is_local boolean, facts jsonb, "values" awr.collected[], requested_by text)
RETURNS bigint
AS $$
DECLARE
  instance awr.instance;
  snap bigint;
  next_snap bigint;
  now_time timestamptz := (facts ->> 'time')::timestamptz;
  day date := (now_time AT TIME ZONE 'UTC')::date;
  last_facts jsonb;
  elapsed_us bigint;
  clock_us bigint;
  uptime_us bigint;
  last_uptime_us bigint;
  collected text[] := '{}';
  cell_kinds constant text[] := '{cell_io_stat,cell_file_stat,cell_stat,cell_disk_stat,iorm_stat}';
  v record;
BEGIN
  -- One snapshot at a time; readers are not blocked.
  LOCK TABLE awr.instance IN SHARE UPDATE EXCLUSIVE MODE;
  SELECT * INTO instance FROM awr.instance i
    WHERE i.is_local = store_snapshot.is_local AND (i.is_local OR i.name = instance_name);
  IF NOT FOUND THEN
    IF EXISTS (SELECT FROM awr.instance i WHERE i.name = instance_name) THEN
      RAISE EXCEPTION 'another AWR instance has the name "%"', instance_name
        USING ERRCODE = 'duplicate_object',
              HINT = 'Set cluster_name of the server to another name, or store the snapshot under another name: cellar awr snapshot --name NAME.';
    END IF;
    INSERT INTO awr.instance
      SELECT CASE WHEN store_snapshot.is_local THEN 1 ELSE greatest(1, (SELECT max(instance_id) FROM awr.instance)) + 1 END,
             instance_name, (facts ->> 'system_identifier')::bigint, store_snapshot.is_local
      RETURNING * INTO instance;
  ELSIF instance.system_identifier <> (facts ->> 'system_identifier')::bigint THEN
    IF NOT store_snapshot.is_local THEN
      RAISE EXCEPTION 'AWR instance "%" belongs to another cluster', instance.name
        USING ERRCODE = 'object_not_in_prerequisite_state',
              DETAIL = format('The repository contains system identifier %s, the server has %s.', instance.system_identifier, facts ->> 'system_identifier'),
              HINT = 'Store the snapshots of this cluster under another name.';
    END IF;
    UPDATE awr.instance i SET system_identifier = (facts ->> 'system_identifier')::bigint WHERE i.instance_id = instance.instance_id;
    DELETE FROM awr.last_value l WHERE l.instance_id = instance.instance_id;
  END IF;

  PERFORM awr.create_partitions(day);
  snap := nextval('awr.snap_id');
  -- Imported snapshots of the instance can have higher numbers.
  SELECT max(s.snap_id) + 1 INTO next_snap FROM awr.snapshot s WHERE s.instance_id = instance.instance_id;
  IF next_snap > snap THEN
    snap := setval('awr.snap_id', next_snap);
  END IF;
  SELECT data INTO last_facts FROM awr.last_value l WHERE l.instance_id = instance.instance_id AND l.kind = 'facts';

  -- The host's uptime tells how much time passed even if the clock was set.
  uptime_us := (facts ->> 'uptime_us')::bigint;
  facts := facts || jsonb_build_object('day', day);
  last_uptime_us := (last_facts ->> 'uptime_us')::bigint;
  clock_us := (extract(epoch FROM now_time - (last_facts ->> 'time')::timestamptz) * 1e6)::bigint;
  elapsed_us := clock_us;
  IF uptime_us >= last_uptime_us THEN
    IF abs(uptime_us - last_uptime_us - clock_us) > 1000000 THEN
      elapsed_us := uptime_us - last_uptime_us;
      PERFORM awr.add_note(day, snap, instance.instance_id, 'clock step', NULL,
        format('the clock was set by %s seconds; rates are computed from the uptime of the host; PostgreSQL times statements that ran at that moment by the clock', round((clock_us - elapsed_us) / 1e6, 1)));
    END IF;
  ELSIF last_uptime_us IS NOT NULL THEN
    PERFORM awr.add_note(day, snap, instance.instance_id, 'host restart', NULL, 'the host was started in the interval');
  END IF;
  IF elapsed_us <= 0 THEN
    RAISE EXCEPTION 'the clock is behind the previous AWR snapshot'
      USING ERRCODE = 'object_not_in_prerequisite_state',
            DETAIL = format('The previous AWR snapshot was taken at %s, the clock shows %s.', last_facts ->> 'time', now_time),
            HINT = 'Correct the clock, or wait until it has passed the previous AWR snapshot.';
  END IF;

  IF facts ->> 'startup_time' <> last_facts ->> 'startup_time' THEN
    PERFORM awr.add_note(day, snap, instance.instance_id, 'server restart', NULL,
      format('the server was started at %s', to_char((facts ->> 'startup_time')::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS UTC')));
  ELSIF facts ->> 'incarnation' <> last_facts ->> 'incarnation' THEN
    PERFORM awr.add_note(day, snap, instance.instance_id, 'crash', NULL,
      'the server terminated all sessions and recovered; cumulative statistics were lost');
  END IF;
  IF facts ->> 'server_version' <> last_facts ->> 'server_version' OR facts ->> 'cellar_version' <> last_facts ->> 'cellar_version' THEN
    PERFORM awr.add_note(day, snap, instance.instance_id, 'upgrade', NULL,
      format('PostgreSQL %s with cellar %s became PostgreSQL %s with cellar %s', last_facts ->> 'server_version', last_facts ->> 'cellar_version',
             facts ->> 'server_version', facts ->> 'cellar_version'));
  END IF;
  INSERT INTO awr.note
    SELECT day, snap, instance.instance_id, 'statement tracking changed', NULL,
           format('cellar.awr_track_statements was set from %s to %s; statements and their times are counted only while it is on', p.setting, c.setting)
    FROM awr.last_value l, jsonb_to_recordset(l.data) p (name text, setting text), unnest("values") e, jsonb_to_recordset(e.data) c (name text, setting text)
    WHERE l.instance_id = instance.instance_id AND l.kind = 'setting' AND l.database = 0 AND p.name = 'cellar.awr_track_statements'
      AND e.kind = 'setting' AND e.database = 0 AND c.name = p.name AND c.setting <> p.setting;

  INSERT INTO awr.snapshot
    VALUES (day, snap, instance.instance_id, (last_facts ->> 'time')::timestamptz, now_time, elapsed_us, requested_by, NULL,
            (facts ->> 'startup_time')::timestamptz, facts - 'time');

  -- Sources of one kind form one array.
  FOR v IN
    SELECT e.kind, coalesce(e.database, 0::oid) AS database,
           CASE WHEN count(*) = 1 THEN (array_agg(e.data))[1]
                ELSE (SELECT jsonb_agg(r) FROM unnest(array_agg(e.data)) d, jsonb_array_elements(d) r) END AS data
    FROM unnest("values") e
    WHERE e.kind <> 'note'
    GROUP BY 1, 2
  LOOP
    collected := collected || format('%s %s', v.kind, v.database);
    IF v.kind = 'setting' THEN
      -- A setting without a value: an extension was dropped, or storage parameters were reset.
      INSERT INTO awr.setting (snap_day, snap_id, instance_id, name)
        SELECT day, snap, instance.instance_id, p.name
        FROM awr.last_value l, jsonb_to_recordset(l.data) p (name text)
        WHERE l.instance_id = instance.instance_id AND l.kind = v.kind AND l.database = v.database
          AND NOT EXISTS (SELECT FROM jsonb_to_recordset(v.data) c (name text) WHERE c.name = p.name);
    END IF;
    -- The first snapshot of a day stores all settings and names, because the retention may drop the days before.
    PERFORM awr.store_kind(v.kind, day, snap, instance.instance_id, v.data,
                           (SELECT data FROM awr.last_value l
                            WHERE l.instance_id = instance.instance_id AND l.kind = v.kind AND l.database = v.database
                              AND (v.kind NOT IN ('setting', 'object_name') OR last_facts ->> 'day' = day::text)));
    -- A cell that did not answer keeps its values for the next snapshot.
    INSERT INTO awr.last_value AS l VALUES (instance.instance_id, v.kind, v.database, v.data)
      ON CONFLICT (instance_id, kind, database) DO UPDATE SET data =
        CASE WHEN v.kind = ANY (cell_kinds) THEN
               excluded.data || coalesce((SELECT jsonb_agg(o) FROM jsonb_array_elements(l.data) o
                                          WHERE NOT EXISTS (SELECT FROM jsonb_array_elements(v.data) n WHERE n -> 'cell' = o -> 'cell')), '[]')
             ELSE excluded.data END;
  END LOOP;
  DELETE FROM awr.last_value l
    WHERE l.instance_id = instance.instance_id AND l.kind NOT IN ('facts', 'samples', 'texts')
      AND format('%s %s', l.kind, l.database) <> ALL (collected)
      -- No cell answered.
      AND NOT (l.kind = ANY (cell_kinds) AND 'array' IN (jsonb_typeof(facts -> 'on_cell'), jsonb_typeof(last_facts -> 'on_cell')));
  INSERT INTO awr.last_value VALUES (instance.instance_id, 'facts', 0, facts)
    ON CONFLICT (instance_id, kind, database) DO UPDATE SET data = excluded.data;
  INSERT INTO awr.note
    SELECT DISTINCT day, snap, instance.instance_id, e.data ->> 'kind', e.data ->> 'object', e.data ->> 'description'
    FROM unnest("values") e WHERE e.kind = 'note';
  -- The restart explains why counts restarted.
  IF EXISTS (SELECT FROM awr.note n WHERE n.snap_day = day AND n.snap_id = snap AND n.instance_id = instance.instance_id AND n.kind IN ('server restart', 'crash')) THEN
    WITH restarted AS (
      DELETE FROM awr.note n
        WHERE n.snap_day = day AND n.snap_id = snap AND n.instance_id = instance.instance_id AND n.kind = 'statistics reset'
          AND n.object <> 'os_stat'
        RETURNING n.object)
    INSERT INTO awr.note
      SELECT day, snap, instance.instance_id, 'statistics reset', NULL,
             format('activity between the previous AWR snapshot and the restart is not included in %s', string_agg(DISTINCT object, ', ' ORDER BY object))
      FROM restarted HAVING count(*) > 0;
  END IF;
  -- A statement that was evicted and executed again is not missing, but its earlier executions are.
  INSERT INTO awr.note
    SELECT day, snap, instance.instance_id, 'statements evicted', 'statement_stat',
           format('pg_stat_statements removed statements %s times; increase pg_stat_statements.max', s.value)
    FROM awr.statistic s
    WHERE s.snap_day = day AND s.snap_id = snap AND s.instance_id = instance.instance_id AND s.name = 'pg_stat_statements_info.dealloc' AND s.value > 0;

  WITH lost AS (
    UPDATE awr.last_value l SET data = l.data || '{"lost": 0}'
    FROM awr.last_value o
    WHERE l.instance_id = instance.instance_id AND l.kind = 'texts' AND l.data ->> 'lost' <> '0'
      AND o.instance_id = l.instance_id AND o.kind = l.kind
    RETURNING o.data ->> 'lost' AS n)
  INSERT INTO awr.note
    SELECT day, snap, instance.instance_id, 'texts lost', NULL,
           lost.n || ' texts of new statements were overwritten before they were stored; increase cellar.awr_text_buffer' FROM lost;
  -- Few rows after the first snapshot of a day.
  UPDATE awr.query_text t SET last_day = day
    WHERE t.instance_id = instance.instance_id AND t.last_day < day
      AND t.query_id IN (SELECT p.query_id FROM awr.plan_stat p WHERE p.instance_id = instance.instance_id AND p.snap_day = day AND p.snap_id = snap
                         UNION ALL SELECT p.queryid FROM awr.statement_stat p WHERE p.instance_id = instance.instance_id AND p.snap_day = day AND p.snap_id = snap
                         UNION ALL SELECT a.query_id FROM awr.activity a WHERE a.instance_id = instance.instance_id AND a.snap_day = day AND a.snap_id = snap);
  UPDATE awr.plan_text t SET last_day = day
    WHERE t.instance_id = instance.instance_id AND t.last_day < day
      AND (t.query_id, t.plan_id) IN (SELECT p.query_id, p.plan_id FROM awr.plan_stat p
                                      WHERE p.instance_id = instance.instance_id AND p.snap_day = day AND p.snap_id = snap);

  RETURN snap;
END
$$ LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.store_snapshot(text, boolean, jsonb, awr.collected[], text) IS
  'stores an AWR snapshot from the output of awr.get_facts() and awr.collect() of this or another server';

CREATE FUNCTION awr.create_snapshot(requested_by text DEFAULT 'user')
RETURNS bigint
AS $$
DECLARE
  began timestamptz := clock_timestamp();
  facts jsonb;
  collected awr.collected[];
  snap bigint;
BEGIN
  IF pg_is_in_recovery() THEN
    RAISE EXCEPTION 'cannot store an AWR snapshot during recovery'
      USING ERRCODE = 'read_only_sql_transaction',
            HINT = 'Store the snapshots of a standby in the repository of another server: cellar awr snapshot --source STANDBY --repository SERVER.';
  END IF;
  -- Snapshots that are requested at the same time follow each other: the time of each is later than that of the one before.
  PERFORM pg_advisory_xact_lock(hashtext('awr.create_snapshot'));
  facts := awr.get_facts();
  -- After the time of the snapshot is fixed, so that the repository contains all samples before it.
  PERFORM awr.store_samples();
  PERFORM awr.store_plans();
  SELECT array_agg(ROW(c.kind, c.database, c.data)::awr.collected) INTO collected FROM awr.collect() c;
  snap := awr.store_snapshot(coalesce(nullif(facts ->> 'cluster_name', ''), 'local'), true, facts, collected, requested_by);
  PERFORM awr.assign_samples(1, snap);
  PERFORM awr.store_query_texts(1, 'awr.get_query_texts(awr.known_query_texts(1))');
  UPDATE awr.snapshot s SET duration_us = (extract(epoch FROM clock_timestamp() - began) * 1e6)::bigint
    WHERE s.instance_id = 1 AND s.snap_id = snap;
  RETURN snap;
END
$$ LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET default_tablespace = ''
SET default_table_access_method = heap
SET standard_conforming_strings = on
SET transform_null_equals = off;

COMMENT ON FUNCTION awr.create_snapshot(text) IS 'takes an AWR snapshot of all databases of this server, and returns its number';

-- Takes an AWR snapshot unless one was taken on this server since a time. Called by the AWR worker.
CREATE FUNCTION awr.create_due_snapshot(since timestamptz)
RETURNS bigint
AS $$
  SELECT awr.create_snapshot('schedule')
  WHERE NOT EXISTS (SELECT FROM awr.snapshot s
                    WHERE s.instance_id = 1 AND s.snap_day >= (since AT TIME ZONE 'UTC')::date AND s.end_time >= since AND s.end_time <= clock_timestamp())
$$ LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.create_due_snapshot(timestamptz) IS 'for internal use by the AWR worker';

-- Stores the texts of statements and plans of an instance that appeared since the last call. "source" is the FROM item that
-- returns them: a call of awr.get_plans(), or a table with its output of another server.
CREATE FUNCTION awr.store_plan_rows(instance integer, source text, incarnation text)
RETURNS void
AS $$
DECLARE
  after bigint := awr.last_sequence(instance, 'texts', incarnation);
  lost bigint;
  last bigint;
BEGIN
  EXECUTE format(
    'WITH t AS MATERIALIZED (SELECT * FROM %s t WHERE t.sequence > $1),
     q AS (
       INSERT INTO awr.query_text
         SELECT DISTINCT ON (query_id) $2, query_id, query, false, $3 FROM t ORDER BY query_id, sequence
         ON CONFLICT DO NOTHING),
     p AS (
       INSERT INTO awr.plan_text
         SELECT DISTINCT ON (plan_id, query_id) $2, plan_id, query_id, plan, $3 FROM t WHERE plan IS NOT NULL ORDER BY plan_id, query_id, sequence
         ON CONFLICT DO NOTHING)
     SELECT min(sequence) - $1 - 1, max(sequence) FROM t', source)
    INTO lost, last USING after, instance, (clock_timestamp() AT TIME ZONE 'UTC')::date;
  IF last IS NOT NULL THEN
    -- Texts that were overwritten leave a gap in the sequence. The next snapshot notes their number.
    INSERT INTO awr.last_value AS l
      VALUES (instance, 'texts', 0, jsonb_build_object('incarnation', incarnation, 'sequence', last, 'lost', lost))
      ON CONFLICT (instance_id, kind, database) DO UPDATE
        SET data = excluded.data || jsonb_build_object('lost', lost + (l.data ->> 'lost')::bigint);
  END IF;
END
$$ LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.store_plan_rows(integer, text, text) IS 'for internal use by awr.store_plans';

CREATE FUNCTION awr.store_plans()
RETURNS void
AS $$
BEGIN
  -- One session at a time; readers are not blocked.
  LOCK TABLE awr.plan_text IN SHARE UPDATE EXCLUSIVE MODE;
  PERFORM awr.store_plan_rows(1, format('awr.get_plans(%s)', awr.last_sequence(1, 'texts', awr.get_incarnation()::text)),
                              awr.get_incarnation()::text);
END
$$ LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.store_plans() IS 'stores the texts of statements and plans that appeared recently; for internal use by the AWR worker';

-- Returns the texts of pg_stat_statements that "known" does not contain, or nothing without pg_stat_statements. Reading all
-- texts is expensive, so they are read only if there is a new statement.
CREATE FUNCTION awr.get_query_texts(known bigint[], OUT query_id bigint, OUT query text)
RETURNS SETOF record
AS $$
DECLARE
  source text := awr.get_source('@pg_stat_statements@.pg_stat_statements', 'pg_stat_statements');
  new bigint[];
BEGIN
  IF source IS NULL THEN
    RETURN;
  END IF;
  EXECUTE format('SELECT array_agg(q) FROM (SELECT queryid AS q FROM %s(false) WHERE queryid IS NOT NULL EXCEPT SELECT unnest($1)) n', source)
    INTO new USING known;
  IF new IS NOT NULL THEN
    RETURN QUERY EXECUTE format('SELECT DISTINCT ON (s.queryid) s.queryid, s.query FROM %s(true) s JOIN unnest($1) n ON n = s.queryid
                                 WHERE s.query IS NOT NULL
                                   -- Utility statements contain their constants, passwords among them.
                                   AND (s.query ~* ''^(\s|/\*.*?\*/|--[^\n]*\n|\()*(select|insert|update|delete|merge|with|values|table)\M''
                                        OR s.query !~* ''passw|secret|connection|options|program|^\s*(set|alter\s+(system|role|user|database))\M'')', source)
      USING new;
  END IF;
EXCEPTION
  -- pg_stat_statements is created but its library is not loaded.
  WHEN object_not_in_prerequisite_state THEN
    RETURN;
  -- The encoding of this database lacks a character of another database's statement. The texts of awr.get_plans() remain.
  WHEN character_not_in_repertoire OR untranslatable_character THEN
    RETURN;
END
$$ LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.get_query_texts(bigint[]) IS 'for internal use by awr.store_query_texts';

-- Returns the statements of an instance whose text without constants is stored.
CREATE FUNCTION awr.known_query_texts(instance integer)
RETURNS bigint[]
LANGUAGE sql STABLE
RETURN (SELECT coalesce(array_agg(t.query_id), '{}') FROM awr.query_text t WHERE t.instance_id = instance AND t.is_normalized);

COMMENT ON FUNCTION awr.known_query_texts(integer) IS 'for internal use by awr.store_query_texts';

-- Stores the texts of pg_stat_statements that the repository does not contain yet. "source" is as in awr.store_plan_rows.
CREATE FUNCTION awr.store_query_texts(instance integer, source text)
RETURNS void
AS $$
BEGIN
  EXECUTE format(
    'INSERT INTO awr.query_text SELECT $1, query_id, query, true, (clock_timestamp() AT TIME ZONE ''UTC'')::date FROM %s
       ON CONFLICT (instance_id, query_id) DO UPDATE SET query = excluded.query, is_normalized = true, last_day = excluded.last_day', source)
    USING instance;
END
$$ LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.store_query_texts(integer, text) IS 'for internal use by awr.create_snapshot';

-- ---- Retention and baselines ----

CREATE VIEW awr.snapshots AS
  SELECT s.instance_id, i.name AS instance, s.snap_id, s.begin_time, s.end_time, s.elapsed_us, s.startup_time, s.requested_by,
         s.duration_us, (SELECT string_agg(DISTINCT n.kind, ', ') FROM awr.note n
                         WHERE n.snap_day = s.snap_day AND n.snap_id = s.snap_id AND n.instance_id = s.instance_id AND n.kind NOT LIKE 'source%') AS notes
  FROM awr.snapshot s JOIN awr.instance i USING (instance_id);

COMMENT ON VIEW awr.snapshots IS 'AWR snapshots of all instances in the repository';
COMMENT ON COLUMN awr.snapshots.begin_time IS 'time of the previous AWR snapshot, or NULL for the first of an instance';
COMMENT ON COLUMN awr.snapshots.elapsed_us IS 'length of the interval in microseconds, also correct if the clock was set';
COMMENT ON COLUMN awr.snapshots.startup_time IS 'when the server was started';
COMMENT ON COLUMN awr.snapshots.duration_us IS 'time that taking the AWR snapshot took, in microseconds';
COMMENT ON COLUMN awr.snapshots.notes IS 'kinds of events in the interval that limit what its statistics mean; see awr.note';

CREATE FUNCTION awr.create_baseline(name text, begin_snap bigint, end_snap bigint, instance integer DEFAULT 1)
RETURNS void
AS $$
BEGIN
  PERFORM awr.check_period(begin_snap, end_snap, instance);
  INSERT INTO awr.baseline
    SELECT create_baseline.name, instance, create_baseline.begin_snap, create_baseline.end_snap, min(snap_day), max(snap_day)
    FROM awr.snapshot s
    WHERE instance_id = instance AND snap_id BETWEEN create_baseline.begin_snap AND create_baseline.end_snap;
END
$$ LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET default_tablespace = ''
SET default_table_access_method = heap
SET standard_conforming_strings = on
SET transform_null_equals = off;

COMMENT ON FUNCTION awr.create_baseline(text, bigint, bigint, integer) IS
  'names a period between two AWR snapshots; the retention keeps all AWR snapshots of its days';

CREATE FUNCTION awr.drop_baseline(name text)
RETURNS void
AS $$
BEGIN
  DELETE FROM awr.baseline b WHERE b.name = drop_baseline.name;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'AWR baseline "%" does not exist', drop_baseline.name USING ERRCODE = 'undefined_object';
  END IF;
END
$$ LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET default_tablespace = ''
SET default_table_access_method = heap
SET standard_conforming_strings = on
SET transform_null_equals = off;

COMMENT ON FUNCTION awr.drop_baseline(text) IS 'removes a baseline; the retention then deletes its AWR snapshots';

-- Deletes the texts that no day from "first_day" on refers to, and no baseline. A day before "first_day" is present only if
-- it belongs to a baseline, and a text whose last day precedes all baselines is in none. A server stores the text of a
-- statement once, so the texts of statements in its shared memory stay.
CREATE FUNCTION awr.drop_expired_texts(first_day date)
RETURNS void
AS $$
DECLARE
  first date := least(first_day, (SELECT min(b.first_day) FROM awr.baseline b));
BEGIN
  LOCK TABLE awr.word IN SHARE UPDATE EXCLUSIVE MODE;
  LOCK TABLE awr.plan_text IN SHARE UPDATE EXCLUSIVE MODE;
  DELETE FROM awr.word w WHERE w.last_day < first;
  WITH present AS MATERIALIZED (
    SELECT l.instance_id, r.query_id FROM awr.last_value l, awr.unpack_rows(l.data) r (query_id bigint) WHERE l.kind = 'plan_stat'),
  plans AS (
    DELETE FROM awr.plan_text t WHERE t.last_day < first AND (t.instance_id, t.query_id) NOT IN (SELECT p.instance_id, p.query_id FROM present p))
  DELETE FROM awr.query_text t WHERE t.last_day < first AND (t.instance_id, t.query_id) NOT IN (SELECT p.instance_id, p.query_id FROM present p);
END
$$ LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.drop_expired_texts(date) IS 'for internal use by awr.drop_expired_snapshots';

CREATE FUNCTION awr.drop_expired_snapshots(retention interval)
RETURNS integer
AS $$
DECLARE
  day date;
  parent name;
  dropped int := 0;
BEGIN
  -- An array: a table that an open query reads cannot be dropped.
  FOREACH day IN ARRAY ARRAY(
    SELECT snap_day FROM (SELECT DISTINCT to_date(right(relname, 8), 'YYYYMMDD') AS snap_day
                          FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE inhparent = 'awr.snapshot'::regclass) s
    WHERE snap_day < ((now() - retention) AT TIME ZONE 'UTC')::date
      AND NOT EXISTS (SELECT FROM awr.baseline b WHERE s.snap_day BETWEEN b.first_day AND b.last_day))
  LOOP
    FOR parent IN SELECT relname FROM pg_class WHERE relnamespace = 'awr'::regnamespace AND relkind = 'p' LOOP
      EXECUTE format('DROP TABLE IF EXISTS awr.%I', parent || to_char(day, '_YYYYMMDD'));
    END LOOP;
    dropped := dropped + 1;
  END LOOP;
  IF dropped > 0 THEN
    PERFORM awr.drop_expired_texts(((now() - retention) AT TIME ZONE 'UTC')::date);
  END IF;
  RETURN dropped;
END
$$ LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET default_tablespace = ''
SET default_table_access_method = heap
SET standard_conforming_strings = on
SET transform_null_equals = off;

COMMENT ON FUNCTION awr.drop_expired_snapshots(interval) IS
  'drops the days whose AWR snapshots are all older than the retention, except those of baselines; returns the number of days';

-- Raises an error that names the existing snapshots, unless both exist and begin precedes end.
CREATE FUNCTION awr.check_period(begin_snap bigint, end_snap bigint, instance integer)
RETURNS void
AS $$
DECLARE
  existing text;
  wrong text;
BEGIN
  IF NOT EXISTS (SELECT FROM awr.instance i WHERE i.instance_id = instance) THEN
    RAISE EXCEPTION 'AWR instance % does not exist', instance
      USING ERRCODE = 'undefined_object',
            HINT = coalesce('Instances in the repository: ' || (SELECT string_agg(i.instance_id || ' (' || i.name || ')', ', ' ORDER BY i.instance_id) FROM awr.instance i) || '.',
                            'The repository is empty. SELECT awr.create_snapshot() takes an AWR snapshot.');
  END IF;
  SELECT CASE count(*) WHEN 1 THEN format('AWR snapshot %s does not exist', min(n)) WHEN 2 THEN format('AWR snapshots %s and %s do not exist', min(n), max(n)) END
  INTO wrong FROM (SELECT begin_snap AS n UNION SELECT end_snap) v
    WHERE NOT EXISTS (SELECT FROM awr.snapshot s WHERE s.instance_id = instance AND s.snap_id = n);
  IF wrong IS NULL AND begin_snap < end_snap THEN
    RETURN;
  END IF;
  SELECT format('AWR snapshots of instance %s: %s.', instance, string_agg(r, ', ')) INTO existing
  FROM (SELECT CASE WHEN count(*) > 1 THEN min(snap_id) || '-' || max(snap_id) ELSE min(snap_id)::text END
               || ' (' || to_char(min(end_time), 'YYYY-MM-DD HH24:MI') || CASE WHEN count(*) > 1 THEN ' to ' || to_char(max(end_time), 'YYYY-MM-DD HH24:MI') ELSE '' END || ')' AS r
        FROM (SELECT snap_id, end_time, snap_id - row_number() OVER (ORDER BY snap_id) AS run
              FROM awr.snapshot WHERE instance_id = instance) s
        GROUP BY run ORDER BY run) s;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION '%', wrong
      USING ERRCODE = 'undefined_object', DETAIL = existing, HINT = 'Choose two AWR snapshots of the list.';
  END IF;
  RAISE EXCEPTION 'begin snapshot % does not precede end snapshot %', begin_snap, end_snap
    USING ERRCODE = 'invalid_parameter_value', DETAIL = existing, HINT = 'Begin with the lower number of two AWR snapshots.';
END
$$ LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.check_period(bigint, bigint, integer) IS 'for internal use by awr.report_data';

-- Raises an error if statistics of the period have no common begin.
CREATE FUNCTION awr.check_increases(begin_snap bigint, end_snap bigint, instance integer)
RETURNS void
AS $$
DECLARE
  -- An AWR snapshot without a begin has no previous values.
  without_begin bigint := (SELECT max(s.snap_id) FROM awr.snapshot s
                           WHERE s.instance_id = instance AND s.snap_id > begin_snap AND s.snap_id <= end_snap AND s.begin_time IS NULL);
BEGIN
  IF without_begin IS NOT NULL THEN
    RAISE EXCEPTION 'AWR snapshot % does not continue the previous one', without_begin
      USING ERRCODE = 'object_not_in_prerequisite_state',
            DETAIL = 'It is the first after the repository was restored, or moved to another cluster, for example by pg_upgrade.',
            HINT = format('Choose a period that begins with AWR snapshot %s or later, or that ends before it.', without_begin);
  END IF;
END
$$ LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.check_increases(bigint, bigint, integer) IS 'for internal use by awr.report_data';

-- ---- Report data ----

-- Returns the sums of one interval table over the snapshots after "begin_snap" up to "end_snap": one jsonb object per key,
-- with the sums of counters, durations and growths, the maximum of max_us, and the latest values of the other columns.
CREATE FUNCTION awr.sum_intervals(kind text, begin_snap bigint, end_snap bigint, instance integer)
RETURNS SETOF jsonb
AS $$
DECLARE
  keys text[];
  sums text[];
  gauges text[];
  first_day date := (SELECT min(s.snap_day) FROM awr.snapshot s WHERE s.instance_id = instance AND s.snap_id = begin_snap);
  last_day date := (SELECT max(s.snap_day) FROM awr.snapshot s WHERE s.instance_id = instance AND s.snap_id = end_snap);
BEGIN
  SELECT array_agg(quote_ident(name) ORDER BY position) FILTER (WHERE role = 'key'),
         array_agg(quote_ident(name) ORDER BY position) FILTER (WHERE role IN ('counter', 'growth') OR name = 'max_us'),
         array_agg(quote_ident(name) ORDER BY position) FILTER (WHERE role = 'gauge' AND name <> 'max_us')
    INTO keys, sums, gauges
    FROM awr.interval_column c WHERE c.kind = $1;
  -- With days as parameters, the planner considers only their partitions.
  RETURN QUERY EXECUTE format(
    'WITH rows AS NOT MATERIALIZED (
       SELECT * FROM awr.%1$I
       WHERE instance_id = $3 AND snap_id > $1 AND snap_id <= $2
         AND snap_day BETWEEN $4 AND $5),
     sums AS (SELECT %2$s, max(snap_id) AS last_snap, %3$s FROM rows GROUP BY %2$s)
     SELECT jsonb_strip_nulls(to_jsonb(s) - ''last_snap'') %4$s FROM sums s %5$s',
    kind, array_to_string(keys, ', '),
    (SELECT string_agg(format('%3$s(%1$s)::%2$s AS %1$s', n, CASE WHEN n LIKE '%\_time' THEN 'double precision' ELSE 'numeric' END,
                                     CASE n WHEN 'max_us' THEN 'max' ELSE 'sum' END), ', ') FROM unnest(sums) n),
    CASE WHEN gauges IS NOT NULL THEN '|| jsonb_strip_nulls(jsonb_build_object(' || (SELECT string_agg(format('%L, r.%s', trim(both '"' FROM n), n), ', ') FROM unnest(gauges) n) || '))' END,
    -- Most objects have their latest row in one of the last AWR snapshots: an index leads to these rows.
    CASE WHEN gauges IS NOT NULL THEN 'JOIN rows r ON r.snap_id = ANY (ARRAY(SELECT DISTINCT last_snap FROM sums)) AND r.snap_id = s.last_snap AND '
                                      || (SELECT string_agg(format('r.%1$s = s.%1$s', n), ' AND ') FROM unnest(keys) n) END)
  USING begin_snap, end_snap, instance, first_day, last_day;
END
$$ LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
-- The partition of the present day may have no statistics yet; a nested loop over thousands of rows takes seconds. The planner
-- expects many more groups than there are, and would sort all rows.
SET enable_nestloop = off
SET enable_sort = off
SET work_mem = '64MB';

COMMENT ON FUNCTION awr.sum_intervals(text, bigint, bigint, integer) IS
  'sums of an interval table between two AWR snapshots, one object per key';

-- The names of times in milliseconds, and their names in microseconds in the report document
CREATE FUNCTION awr.to_document(data jsonb)
RETURNS jsonb
AS $$
  SELECT coalesce(jsonb_object_agg(
           CASE WHEN key LIKE '%\_time' AND jsonb_typeof(value) = 'number'
                THEN CASE key WHEN 'total_exec_time' THEN 'elapsed_us' WHEN 'total_plan_time' THEN 'plan_us'
                              WHEN 'shared_blk_read_time' THEN 'blk_read_us' WHEN 'shared_blk_write_time' THEN 'blk_write_us'
                              WHEN 'max_exec_time' THEN 'max_us' WHEN 'mean_exec_time' THEN 'mean_us' WHEN 'stddev_exec_time' THEN 'stddev_us'
                              ELSE regexp_replace(key, '_time$', '_us') END
                ELSE CASE key WHEN 'queryid' THEN 'query_id' WHEN 'relname' THEN 'name' WHEN 'schemaname' THEN 'schema'
                              WHEN 'size' THEN 'size_end' ELSE key END END,
           CASE WHEN key LIKE '%\_time' AND jsonb_typeof(value) = 'number' THEN to_jsonb(round((value #>> '{}')::numeric * 1000)) ELSE value END), '{}')
  FROM jsonb_each(data)
$$ LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.to_document(jsonb) IS 'for internal use by awr.report_data';

-- Without track_io_timing, PostgreSQL counts times of I/O as zero. Removes them, unless the session of a statement had set it.
CREATE FUNCTION awr.without_untimed_io(data jsonb, tracks_io_timing boolean)
RETURNS jsonb
AS $$
  SELECT CASE WHEN tracks_io_timing OR data ->> 'blk_read_us' <> '0' OR data ->> 'blk_write_us' <> '0' OR data ->> 'read_us' <> '0' OR data ->> 'write_us' <> '0'
              THEN data
              ELSE data - '{blk_read_us,blk_write_us,temp_blk_read_us,temp_blk_write_us,read_us,write_us,writeback_us,extend_us,fsync_us}'::text[] END
$$ LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.without_untimed_io(jsonb, boolean) IS 'for internal use by awr.report_data';

-- Of more statements than a document can contain: the leading ones in every order of a report, and the sums of the others per
-- database.
CREATE FUNCTION awr.leading_statements(statement_rows jsonb[])
RETURNS jsonb[]
AS $$
  WITH s AS MATERIALIZED (
    SELECT row_number() OVER () AS n, s AS row FROM unnest(statement_rows) s),
  ranked AS (
    SELECT s.n, row_number() OVER (PARTITION BY v.key ORDER BY v.value::numeric DESC) AS place
    FROM s, jsonb_each_text(s.row) v
    WHERE v.key NOT IN ('database', 'role', 'query_id', 'plan_id', 'rolname') AND v.value <> '0'),
  listed AS MATERIALIZED (
    SELECT DISTINCT r.n FROM ranked r WHERE r.place <= 300)
  SELECT array_agg(row)
  FROM (SELECT s.row FROM s JOIN listed USING (n)
        UNION ALL
        SELECT jsonb_object_agg(key, value) || jsonb_build_object('database', database, 'query_id', 0, 'plan_id', 0, 'text', '(other statements)')
        FROM (SELECT s.row -> 'database' AS database, v.key,
                     CASE v.key WHEN 'max_us' THEN max(v.value::numeric) ELSE sum(v.value::numeric) END AS value
              FROM s, jsonb_each_text(s.row) v
              WHERE NOT EXISTS (SELECT FROM listed l WHERE l.n = s.n) AND v.key NOT IN ('database', 'role', 'query_id', 'plan_id', 'rolname')
              GROUP BY 1, 2) o
        GROUP BY database) r
$$ LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.leading_statements(jsonb[]) IS 'for internal use by awr.report_data';

-- Returns the name of a table that has no row in the interval: a session can wait for a row for hours before PostgreSQL counts
-- anything.
CREATE FUNCTION awr.known_table(instance integer, database jsonb, relation jsonb)
RETURNS jsonb
LANGUAGE sql STABLE
RETURN jsonb_build_object('dbid', database, 'relid', relation, 'relname', CASE relation WHEN '0' THEN '(other relations)' ELSE relation::text END)
       || coalesce((SELECT to_jsonb(e) - 'relid'
                    FROM awr.last_value l, awr.unpack_rows(l.data) e (relid oid, schemaname text, relname text, relkind text, tablespace oid)
                    WHERE l.instance_id = instance AND l.kind = 'table_stat' AND l.database = (known_table.database #>> '{}')::oid
                      AND e.relid = (relation #>> '{}')::oid LIMIT 1), '{}');

COMMENT ON FUNCTION awr.known_table(integer, jsonb, jsonb) IS 'for internal use by awr.report_data';

-- Returns I/O of cells by file class and database, and of the relations with the most I/O time. The sum over the classes is the
-- sum over all files: a class without a name contains relations that were dropped or rewritten, and those for which the
-- cells had no space.
CREATE FUNCTION awr.cell_files(begin_snap bigint, end_snap bigint, instance integer, relations integer DEFAULT 200)
RETURNS jsonb
AS $$
  WITH r AS MATERIALIZED (
    SELECT * FROM awr.cell_file_stat s
    WHERE s.instance_id = instance AND s.snap_id > begin_snap AND s.snap_id <= end_snap
      AND s.snap_day BETWEEN (SELECT min(snap_day) FROM awr.snapshot WHERE instance_id = instance AND snap_id = begin_snap)
                         AND (SELECT max(snap_day) FROM awr.snapshot WHERE instance_id = instance AND snap_id = end_snap)),
  name AS MATERIALIZED (
    SELECT DISTINCT ON (database, tablespace, filenode) database, tablespace, filenode, class, schemaname, relname, indexrelname
    FROM r WHERE class IS NOT NULL ORDER BY database, tablespace, filenode, snap_id DESC),
  file AS MATERIALIZED (
    SELECT database, tablespace, file_type, filenode, kind, bucket, sum(operations) AS operations, sum(bytes) AS bytes, sum(time_us) AS time_us
    FROM r GROUP BY 1, 2, 3, 4, 5, 6),
  -- Relations of a known class; the rest of the relations' file type; the other file types
  class AS (
    SELECT f.database, n.class, f.kind, f.bucket, f.operations, f.bytes, f.time_us FROM file f JOIN name n USING (database, tablespace, filenode)
    UNION ALL
    SELECT f.database, nullif(f.file_type, 'relation'), f.kind, f.bucket, f.operations, f.bytes, f.time_us FROM file f WHERE f.filenode = 0
    UNION ALL
    SELECT f.database, NULL, f.kind, f.bucket, -f.operations, -f.bytes, -f.time_us FROM file f JOIN name n USING (database, tablespace, filenode)),
  class_sum AS (
    -- The cells count while they answer: a rest can be below zero by the operations of that moment.
    SELECT database, class, kind, bucket, greatest(sum(operations), 0) AS operations, greatest(sum(bytes), 0) AS bytes, greatest(sum(time_us), 0) AS time_us
    FROM class GROUP BY 1, 2, 3, 4),
  item AS (
    SELECT true AS is_class, database, NULL::oid AS tablespace, NULL::oid AS filenode, class, kind, bucket, operations, bytes, time_us FROM class_sum
    UNION ALL
    SELECT false, f.database, f.tablespace, f.filenode, NULL, f.kind, f.bucket, f.operations, f.bytes, f.time_us
    FROM file f JOIN (SELECT database, tablespace, filenode FROM file WHERE filenode <> 0 AND bucket = -1
                      GROUP BY 1, 2, 3 ORDER BY sum(time_us) DESC, 3 LIMIT relations) t USING (database, tablespace, filenode)),
  total AS (
    SELECT is_class, database, tablespace, filenode, class,
           sum(operations) FILTER (WHERE bucket = -1 AND kind = 'single block read') AS small_reads,
           sum(time_us) FILTER (WHERE bucket = -1 AND kind = 'single block read') AS small_read_us,
           sum(operations) FILTER (WHERE bucket = -1 AND kind LIKE '% read') AS reads,
           sum(bytes) FILTER (WHERE bucket = -1 AND kind LIKE '% read') AS read_bytes,
           sum(time_us) FILTER (WHERE bucket = -1 AND kind LIKE '% read') AS read_us,
           sum(operations) FILTER (WHERE bucket = -1 AND kind LIKE '% write') AS writes,
           sum(bytes) FILTER (WHERE bucket = -1 AND kind LIKE '% write') AS write_bytes,
           sum(time_us) FILTER (WHERE bucket = -1 AND kind LIKE '% write') AS write_us,
           sum(operations) FILTER (WHERE bucket = -1 AND kind = 'sync') AS syncs,
           sum(time_us) FILTER (WHERE bucket = -1 AND kind = 'sync') AS sync_us,
           array_agg(operations ORDER BY bucket) FILTER (WHERE bucket >= 0) AS counts,
           array_agg(bucket ORDER BY bucket) FILTER (WHERE bucket >= 0) AS buckets
    FROM item GROUP BY 1, 2, 3, 4, 5)
  SELECT jsonb_agg(jsonb_build_object(
           'is_class', t.is_class, 'database', t.database, 'tablespace', t.tablespace, 'filenode', t.filenode::bigint, 'class', coalesce(t.class, n.class),
           'schema', n.schemaname, 'table', n.relname, 'index', n.indexrelname,
           'small_reads', coalesce(t.small_reads, 0), 'small_read_us', coalesce(t.small_read_us, 0), 'reads', coalesce(t.reads, 0),
           'read_bytes', coalesce(t.read_bytes, 0), 'read_us', coalesce(t.read_us, 0), 'writes', coalesce(t.writes, 0),
           'write_bytes', coalesce(t.write_bytes, 0), 'write_us', coalesce(t.write_us, 0), 'syncs', coalesce(t.syncs, 0),
           'sync_us', coalesce(t.sync_us, 0),
           'histogram', (SELECT jsonb_agg(coalesce(h.n, 0) ORDER BY b) FROM generate_series(0, 31) b
                         LEFT JOIN (SELECT u.bucket, sum(u.n) AS n FROM unnest(t.buckets, t.counts) u (bucket, n) GROUP BY 1) h ON h.bucket = b))
           ORDER BY t.read_us DESC NULLS LAST)
  FROM total t LEFT JOIN name n ON NOT t.is_class AND n.database = t.database AND n.tablespace = t.tablespace AND n.filenode = t.filenode
$$ LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.cell_files(bigint, bigint, integer, integer) IS 'for internal use by awr.report_data';

-- Returns what a report between two AWR snapshots shows of session samples: the object ash of the document, and the wait events that
-- are not in "events", which lists timed events.
CREATE FUNCTION awr.sample_data(
  begin_snap bigint, end_snap bigint, instance integer, databases jsonb, names jsonb, events jsonb, OUT ash jsonb, OUT sampled jsonb)
AS $$
DECLARE
  first awr.snapshot;
  last awr.snapshot;
  days date[] := awr.summed_days(begin_snap, end_snap, instance);
BEGIN
  SELECT * INTO first FROM awr.snapshot s WHERE s.instance_id = instance AND s.snap_id = begin_snap;
  SELECT * INTO last FROM awr.snapshot s WHERE s.instance_id = instance AND s.snap_id = end_snap;
  -- Sums of session samples: those of the repository, and of AWR snapshots whose samples are not summed yet
  WITH summed AS MATERIALIZED (
    SELECT i.snap_day, i.snap_id, i.instance_id, i.ticks, i.lost, i.period_ms FROM awr.sample_interval i
    WHERE i.instance_id = instance AND i.snap_id > begin_snap AND i.snap_id <= end_snap AND i.snap_day BETWEEN first.snap_day AND last.snap_day),
  live AS MATERIALIZED (
    SELECT x.* FROM awr.snapshot p, LATERAL awr.sum_chunks(instance, p.snap_id) x
    WHERE p.instance_id = instance AND p.snap_id > begin_snap AND p.snap_id <= end_snap AND NOT EXISTS (SELECT FROM summed u WHERE u.snap_id = p.snap_id)),
  event AS MATERIALIZED (
    SELECT query_id, plan_id, event, wait_event_type, class, foreground, period_ms, sum(samples)::bigint AS samples
    FROM (SELECT query_id, plan_id, event, wait_event_type, class, foreground, period_ms, samples FROM awr.sample_event e
          WHERE e.instance_id = instance AND e.snap_id > begin_snap AND e.snap_id <= end_snap AND e.snap_day BETWEEN first.snap_day AND last.snap_day
            AND e.snap_day <> ALL (days)
          UNION ALL
          SELECT query_id, plan_id, event, wait_event_type, class, foreground, period_ms, samples FROM awr.sample_day_event e
          WHERE e.instance_id = instance AND e.snap_day = ANY (days)
          UNION ALL
          SELECT query_id, plan_id, event, wait_event_type, class, foreground, period_ms, samples FROM live WHERE kind = 'event') e
    GROUP BY 1, 2, 3, 4, 5, 6, 7),
  session AS MATERIALIZED (
    SELECT pid, backend_start, backend_type, application, client, database, role, state, class, consumer_group, sum(samples)::bigint AS samples,
           max(xact_age_us) AS xact_age_us, max(temp_bytes) AS temp_bytes, backend_type IN ('client backend', 'parallel worker') AS foreground
    FROM (SELECT pid, backend_start, backend_type, application, client, database, role, state, class, samples, xact_age_us, temp_bytes, consumer_group FROM awr.sample_session e
          WHERE e.instance_id = instance AND e.snap_id > begin_snap AND e.snap_id <= end_snap AND e.snap_day BETWEEN first.snap_day AND last.snap_day
          UNION ALL
          SELECT pid, backend_start, backend_type, application, client, database, role, state, class, samples, xact_age_us, temp_bytes, consumer_group FROM live WHERE kind = 'session') e
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
  active AS (
    SELECT pid, backend_start, backend_type, application, client, database, role, class, consumer_group, samples, temp_bytes, foreground FROM session WHERE state = 'active'),
  blocking AS MATERIALIZED (
    SELECT blocker_pid, pid, event, query_id, head_pid, sum(samples)::bigint AS samples
    FROM (SELECT blocker_pid, pid, event, query_id, samples, coalesce(head_pid, blocker_pid) AS head_pid FROM awr.sample_blocking e
          WHERE e.instance_id = instance AND e.snap_id > begin_snap AND e.snap_id <= end_snap AND e.snap_day BETWEEN first.snap_day AND last.snap_day
          UNION ALL
          SELECT blocker_pid, pid, event, query_id, samples, head_pid FROM live WHERE kind = 'blocking') e
    GROUP BY 1, 2, 3, 4, 5),
  -- Reports contain the pairs with the most samples, those that link a chain to its head, and sums of the others by blocker.
  blocking_pair AS (
    SELECT p.*, p.number <= 50 OR (p.is_link AND row_number() OVER (PARTITION BY p.is_link ORDER BY p.number) <= 200) AS is_shown
    FROM (SELECT g.*, row_number() OVER (ORDER BY samples DESC, blocker_pid, blocked_pid, locktype, query_id) AS number,
                 blocked_pid IN (SELECT blocker_pid FROM blocking) AS is_link
          FROM (SELECT blocker_pid, pid AS blocked_pid, event AS locktype, nullif(query_id, 0) AS query_id, sum(samples) AS samples
                FROM blocking GROUP BY 1, 2, 3, 4) g) p),
  -- What a blocker did in most samples in which it blocked a session. A blocker that was idle outside of a transaction, with a lock of
  -- its session, has no sample.
  blocker AS (
    SELECT DISTINCT ON (pid) pid AS blocker_pid, state AS blocker_state, application AS blocker_application, nullif(query_id, 0) AS blocker_query_id
    FROM (SELECT pid, state, application, query_id, sum(samples) AS n
          FROM (SELECT pid, state, application, query_id, samples FROM awr.sample_blocker e
                WHERE e.instance_id = instance AND e.snap_id > begin_snap AND e.snap_id <= end_snap AND e.snap_day BETWEEN first.snap_day AND last.snap_day
                UNION ALL
                SELECT pid, state, application, query_id, samples FROM live WHERE kind = 'blocker') e
          GROUP BY 1, 2, 3, 4) b
    ORDER BY pid, n DESC, state, application, query_id),
  -- After a clock step, the slots of an AWR snapshot can be longer than those of the report.
  width AS MATERIALIZED (
    SELECT greatest(awr.slot_seconds(first.end_time, last.end_time), max(awr.slot_seconds(p.begin_time, p.end_time))) * interval '1 second' AS width
    FROM awr.snapshot p WHERE p.instance_id = instance AND p.snap_id > begin_snap AND p.snap_id <= end_snap),
  slot AS (
    SELECT date_bin(width, slot, '2000-01-01 00:00:00+00') AS t, class, max(period_ms) AS period_ms, sum(samples) AS samples
    FROM width, (SELECT slot, class, period_ms, samples FROM awr.sample_slot e
                 WHERE e.instance_id = instance AND e.snap_id > begin_snap AND e.snap_id <= end_snap AND e.snap_day BETWEEN first.snap_day AND last.snap_day
                 UNION ALL
                 SELECT slot, class, period_ms, samples FROM live WHERE kind = 'slot') e
    GROUP BY 1, 2)
  SELECT jsonb_build_object(
           'period_us', (SELECT max(period_ms) * 1000 FROM (SELECT period_ms FROM summed UNION ALL SELECT period_ms FROM live WHERE kind = 'interval') x),
           'ticks', (SELECT sum(ticks) FROM (SELECT ticks FROM summed UNION ALL SELECT ticks FROM live WHERE kind = 'interval') x),
           'lost', (SELECT sum(lost) FROM (SELECT lost FROM summed UNION ALL SELECT lost FROM live WHERE kind = 'interval') x),
           -- The first and the last slot lie partly outside of the period.
           'slots', (SELECT jsonb_agg(jsonb_build_object('time', t, 'by_class', by_class, 'ticks',
                              greatest(1, round(extract(epoch FROM least(t + width, last.end_time) - greatest(t, first.end_time)) * 1000 / period_ms, 3))) ORDER BY t)
                     FROM (SELECT t, max(period_ms) AS period_ms, jsonb_object_agg(class, samples) AS by_class FROM slot GROUP BY t) y, width),
           'background', (SELECT jsonb_agg(x.query_id) FROM (SELECT query_id FROM event WHERE query_id <> 0 GROUP BY 1 HAVING NOT bool_or(foreground)) x),
           'by_event', (SELECT jsonb_agg(x ORDER BY x.samples DESC, x.event, x.type, x.foreground)
                        FROM (SELECT event, nullif(wait_event_type, '') AS type, class, foreground, sum(samples) AS samples FROM event WHERE class <> 'Idle' GROUP BY 1, 2, 3, 4) x),
           'top_sql', (SELECT jsonb_agg(x ORDER BY x.samples DESC, x.query_id, x.plan_id, x.event, x.class)
                       FROM (SELECT query_id, nullif(plan_id, 0) AS plan_id, event, class, sum(samples) AS samples
                             FROM event WHERE query_id <> 0 AND class <> 'Idle' GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC, 1, 2, 3, 4 LIMIT 100) x),
           'top_sessions', (SELECT jsonb_agg(x ORDER BY x.samples DESC, x.pid, x.backend_start)
                            FROM (SELECT pid, backend_start, backend_type, application, nullif(client, '') AS client,
                                         (SELECT d.datname FROM awr.database_stat d WHERE d.instance_id = instance AND d.snap_day = last.snap_day AND d.snap_id = end_snap AND d.datid = database) AS database,
                                         coalesce(names -> 'role' ->> role::text, nullif(role, 0)::text) AS "user", sum(samples) AS samples, coalesce(sum(samples) FILTER (WHERE class = 'CPU'), 0) AS cpu_samples, max(temp_bytes) AS temp_bytes,
                                         (array_agg(class ORDER BY samples DESC, class))[1] AS class, (array_agg(consumer_group ORDER BY samples DESC, consumer_group))[1] AS consumer_group
                                  FROM active GROUP BY pid, backend_start, backend_type, application, active.client, database, role
                                  ORDER BY sum(samples) DESC, pid, backend_start, application, database, role LIMIT 50) x),
           'by_service', (SELECT jsonb_agg(x ORDER BY x.samples DESC, x.application, x."user")
                          FROM (SELECT (SELECT d.datname FROM awr.database_stat d WHERE d.instance_id = instance AND d.snap_day = last.snap_day AND d.snap_id = end_snap AND d.datid = database) AS database,
                                       coalesce(names -> 'role' ->> role::text, nullif(role, 0)::text) AS "user", application, sum(samples) AS samples
                                FROM active WHERE foreground GROUP BY database, role, application ORDER BY sum(samples) DESC, application, database, role LIMIT 50) x),
           'by_database', (SELECT jsonb_agg(x ORDER BY x.samples DESC, x.database, x.class)
                           FROM (SELECT (SELECT e ->> 'name' FROM jsonb_array_elements(databases) e WHERE e ->> 'oid' = database::text) AS database, class, sum(samples) AS samples
                                 FROM active WHERE foreground AND database <> 0 GROUP BY active.database, class) x),
           'by_consumer_group', (SELECT jsonb_agg(x ORDER BY x.samples DESC, x.consumer_group, x.class)
                                 FROM (SELECT consumer_group, class, sum(samples) AS samples
                                       FROM active WHERE consumer_group IS NOT NULL GROUP BY 1, 2) x),
           'blocking', (SELECT jsonb_agg(to_jsonb(x) ORDER BY x.samples DESC, x.blocker_pid, x.blocked_pid, x.locktype, x.query_id)
                        FROM (SELECT s.*, b.blocker_state, b.blocker_application, b.blocker_query_id
                              FROM (SELECT blocker_pid, blocked_pid, locktype, query_id, samples, NULL::bigint AS sessions
                                    FROM blocking_pair WHERE is_shown
                                    UNION ALL
                                    (SELECT blocker_pid, NULL, NULL, NULL, sum(samples), count(DISTINCT blocked_pid)
                                     FROM blocking_pair WHERE NOT is_shown GROUP BY 1 ORDER BY 5 DESC, 1 LIMIT 200)) s
                                   LEFT JOIN blocker b USING (blocker_pid)) x),
           'chains', (SELECT jsonb_agg(x ORDER BY x.samples DESC, x.head_pid)
                      FROM (SELECT head_pid, count(DISTINCT pid) AS sessions, sum(samples) AS samples
                            FROM blocking GROUP BY 1 ORDER BY 3 DESC, 1 LIMIT 200) x),
           'idle_in_transaction', (SELECT jsonb_agg(x ORDER BY x.samples DESC, x.pid, x.application)
                                   FROM (SELECT pid, application, max(xact_age_us) AS xact_age_us, sum(samples) AS samples
                                         FROM session WHERE state <> 'active' GROUP BY 1, 2 ORDER BY 4 DESC, 1, 2 LIMIT 50) x)),
         (SELECT jsonb_agg(jsonb_build_object('event', event, 'type', wait_event_type, 'class', class, 'foreground', foreground, 'samples', n,
                             'time_us', us, 'stderr_us', round(sqrt(square_us)), 'how', 'sampled') ORDER BY n DESC, event, wait_event_type, foreground)
          FROM (SELECT event, wait_event_type, class, foreground, sum(samples) AS n, sum(samples * period_ms * 1000) AS us,
                       sum(samples * (period_ms * 1000)::numeric ^ 2) AS square_us
                FROM event WHERE wait_event_type <> '' AND event NOT IN (SELECT e ->> 'event' FROM jsonb_array_elements(events) e)
                GROUP BY 1, 2, 3, 4) x)
    INTO ash, sampled;
END
$$ LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
-- Millions of sums become few rows: a hash table is faster than a sort.
SET enable_sort = off
SET jit = off
SET work_mem = '64MB';

COMMENT ON FUNCTION awr.sample_data(bigint, bigint, integer, jsonb, jsonb, jsonb) IS 'for internal use by awr.report_data';

CREATE FUNCTION awr.report_data(begin_snap bigint, end_snap bigint, instance integer DEFAULT 1)
RETURNS jsonb
AS $$
DECLARE
  first awr.snapshot;
  last awr.snapshot;
  databases jsonb;
  statistics jsonb;
  statements jsonb;
  events jsonb;
  document jsonb;
  elapsed bigint;
  ash jsonb;
  sampled jsonb;
  cpu jsonb;
  cell_io jsonb;
  names jsonb;
  jit jsonb;
  statement_rows jsonb[];
  leading_ids bigint[];
  block_bytes int;
  tracks_io_timing boolean;
BEGIN
  PERFORM awr.check_period(begin_snap, end_snap, instance);
  PERFORM awr.check_increases(begin_snap, end_snap, instance);
  SELECT * INTO first FROM awr.snapshot WHERE instance_id = instance AND snap_id = begin_snap;
  SELECT * INTO last FROM awr.snapshot WHERE instance_id = instance AND snap_id = end_snap;
  -- The last value before the period, and the changes within.
  tracks_io_timing := (
    SELECT coalesce(bool_or(e.setting = 'on'), true)
    FROM ((SELECT p.setting FROM awr.setting p
           WHERE p.instance_id = instance AND p.name = 'track_io_timing' AND p.snap_day = first.snap_day AND p.snap_id <= begin_snap
           ORDER BY p.snap_id DESC LIMIT 1)
          UNION ALL
          SELECT p.setting FROM awr.setting p
          WHERE p.instance_id = instance AND p.name = 'track_io_timing' AND p.snap_day BETWEEN first.snap_day AND last.snap_day
            AND p.snap_id > begin_snap AND p.snap_id <= end_snap) e);
  SELECT sum(elapsed_us) INTO elapsed FROM awr.snapshot
    WHERE instance_id = instance AND snap_id > begin_snap AND snap_id <= end_snap;
  block_bytes := coalesce((last.facts ->> 'block_size')::int, 8192);

  SELECT jsonb_agg(s) INTO cpu FROM awr.sum_intervals('cpu_stat', begin_snap, end_snap, instance) s;
  -- Statements in progress at the end count up to the end, and those in progress at the begin from there. A server that was
  -- started meanwhile has not counted the latter.
  SELECT jsonb_agg((awr.without_untimed_io(awr.to_document(s), tracks_io_timing) - 'datid' - 'datname') || jsonb_build_object('oid', (s ->> 'datid')::bigint, 'name', coalesce(s ->> 'datname', '(shared objects)'),
                     'cpu_us', w.cpu_us, 'run_queue_us', w.run_queue_us, 'parse_us', w.parse_us, 'commit_us', w.commit_us,
                     'active_us', greatest(0, round((s ->> 'active_time')::numeric * 1000) + coalesce((last.facts -> 'open_us' ->> (s ->> 'datid'))::numeric, 0)
                                                - coalesce((open_at_begin ->> (s ->> 'datid'))::numeric, 0)) + coalesce(w.us, 0),
                     'size_begin', (s ->> 'size')::bigint - (s ->> 'size_growth')::bigint) ORDER BY (s ->> 'active_time')::float8 DESC NULLS LAST)
    INTO databases
    FROM awr.sum_intervals('database_stat', begin_snap, end_snap, instance) s
         CROSS JOIN (SELECT CASE WHEN first.facts -> 'incarnation' = last.facts -> 'incarnation' THEN first.facts -> 'open_us' END AS open_at_begin) o
         LEFT JOIN (SELECT e ->> 'database' AS datid, sum((e ->> 'elapsed_us')::numeric) FILTER (WHERE e ->> 'backend_type' = 'parallel worker') AS us,
                           sum((e ->> 'cpu_us')::numeric) FILTER (WHERE e ->> 'backend_type' IN ('client backend', 'parallel worker')) AS cpu_us,
                           sum((e ->> 'run_queue_us')::numeric) FILTER (WHERE e ->> 'backend_type' IN ('client backend', 'parallel worker')) AS run_queue_us,
                           sum((e ->> 'parse_us')::numeric) AS parse_us, sum((e ->> 'commit_us')::numeric) AS commit_us
                    FROM jsonb_array_elements(cpu) e GROUP BY 1) w ON w.datid = s ->> 'datid';

  -- Names of roles and tablespaces by object identifier
  SELECT coalesce(jsonb_object_agg(class, by_oid), '{}') INTO names
    FROM (SELECT class, jsonb_object_agg(object::text, name) AS by_oid
          FROM (SELECT DISTINCT ON (class, object) class, object, name FROM awr.object_name n
                WHERE n.instance_id = instance AND n.snap_id <= end_snap AND n.snap_day >= first.snap_day ORDER BY class, object, n.snap_id DESC) n
          GROUP BY class) n;

  SELECT array_agg(s) INTO statement_rows FROM awr.sum_intervals('plan_stat', begin_snap, end_snap, instance) s;
  IF statement_rows IS NULL THEN
    -- cellar.awr_track_statements is off: pg_stat_statements counts, without CPU time and plans. Its maximum, mean and deviation concern
    -- the time since its reset; without pg_stat_statements.track_planning, its counts and times of planning are zero.
    SELECT array_agg(awr.to_document(s - ARRAY['dbid', 'userid', 'toplevel', 'max_exec_time', 'mean_exec_time', 'stddev_exec_time']
                                       - CASE WHEN tracks_planning THEN '{}'::text[] ELSE ARRAY['plans', 'total_plan_time'] END)
                     || jsonb_build_object('database', s -> 'dbid', 'role', s -> 'userid', 'plan_id', 0))
      INTO statement_rows
      FROM (SELECT s, bool_or((s ->> 'plans')::numeric > 0) OVER () AS tracks_planning
            FROM awr.sum_intervals('statement_stat', begin_snap, end_snap, instance) s WHERE (s ->> 'toplevel')::boolean) s;
  END IF;
  -- pg_stat_statements counts JIT by statement; the sum is shown with the plan that took most time.
  SELECT jsonb_object_agg(concat_ws(' ', dbid, userid, queryid), us)
    INTO jit
    FROM (SELECT dbid, userid, queryid,
                 round(sum(coalesce(jit_generation_time, 0) + coalesce(jit_inlining_time, 0) + coalesce(jit_optimization_time, 0)
                           + coalesce(jit_emission_time, 0))::numeric * 1000) AS us
          FROM awr.statement_stat c
          WHERE c.instance_id = instance AND c.snap_day BETWEEN first.snap_day AND last.snap_day
            AND c.snap_id > begin_snap AND c.snap_id <= end_snap AND c.toplevel AND c.jit_functions > 0
          GROUP BY 1, 2, 3) j;
  IF jit IS NOT NULL THEN
    SELECT array_agg(CASE WHEN place = 1 AND jit ? statement THEN s || jsonb_build_object('jit_us', jit -> statement) ELSE s END)
      INTO statement_rows
      FROM (SELECT s, statement, row_number() OVER (PARTITION BY statement ORDER BY s -> 'elapsed_us' DESC) AS place
            FROM unnest(statement_rows) s, concat_ws(' ', s ->> 'database', s ->> 'role', s ->> 'query_id') statement) r;
  END IF;
  IF cardinality(statement_rows) > 10000 THEN
    statement_rows := awr.leading_statements(statement_rows);
  END IF;
  leading_ids := ARRAY(SELECT (s ->> 'query_id')::bigint FROM unnest(statement_rows) s
                   WHERE s ->> 'plan_id' <> '0' GROUP BY 1 HAVING sum((s ->> 'elapsed_us')::numeric) > 0
                   ORDER BY sum((s ->> 'elapsed_us')::numeric) DESC, 1 LIMIT 50);
  SELECT jsonb_agg(awr.without_untimed_io(s, tracks_io_timing) - 'role' - 'rolname' || jsonb_build_object(
                     'database', (SELECT e ->> 'name' FROM jsonb_array_elements(databases) e WHERE e ->> 'oid' = s ->> 'database'),
                     'user', s -> 'rolname', 'toplevel', true, 'how', 'timed',
                     'text', CASE WHEN (s ->> 'query_id')::bigint = 0 THEN coalesce(s ->> 'text', '(evicted statements)') ELSE t.query END))
    INTO statements
    FROM unnest(statement_rows) s
         LEFT JOIN awr.query_text t ON t.instance_id = instance AND t.query_id = (s ->> 'query_id')::bigint;

  WITH mount AS (
    SELECT s ->> 'kind' AS kind, sum((s ->> 'operations')::numeric) AS operations, sum((s ->> 'bytes')::numeric) AS bytes
    FROM awr.sum_intervals('cell_io_stat', begin_snap, end_snap, instance) s WHERE (s ->> 'bucket')::int = -1 GROUP BY 1),
  raw AS (
    SELECT s ->> 'name' AS name, (s ->> 'value')::numeric AS value FROM awr.sum_intervals('statistic', begin_snap, end_snap, instance) s
    UNION ALL
    SELECT 'pg_stat_kcache.' || v.name, round(sum(v.value))
    FROM awr.sum_intervals('kcache_stat', begin_snap, end_snap, instance) s,
         LATERAL (VALUES ('read bytes', (s ->> 'read_bytes')::numeric), ('write bytes', (s ->> 'write_bytes')::numeric),
                         ('user time us', (s ->> 'user_time')::numeric * 1000), ('system time us', (s ->> 'system_time')::numeric * 1000)) v (name, value)
    GROUP BY v.name),
  d AS (
    SELECT sum((e ->> 'xact_commit')::numeric) AS commits, sum((e ->> 'xact_rollback')::numeric) AS rollbacks,
           sum((e ->> 'blks_hit')::numeric) AS hits, sum((e ->> 'blks_read')::numeric) AS reads,
           sum((e ->> 'sessions')::numeric) AS logons, sum((e ->> 'temp_bytes')::numeric) AS temp_bytes,
           sum((e ->> 'deadlocks')::numeric) AS deadlocks
    FROM jsonb_array_elements(databases) e),
  on_cell AS (
    SELECT coalesce((SELECT sum(bytes) FROM mount WHERE kind LIKE '%read'), 0) AS bytes_read,
           coalesce((SELECT sum(operations) FROM mount WHERE kind LIKE '%read'), 0) AS reads,
           coalesce((SELECT sum(bytes) FROM mount WHERE kind LIKE '%write'), 0) AS bytes_written,
           coalesce((SELECT sum(operations) FROM mount WHERE kind LIKE '%write'), 0) AS writes),
  -- Version 16 counts writes by type of process; 17 and 18 removed counts of other views in favour of these.
  written AS (
    SELECT s ->> 'object' AS object, s ->> 'backend_type' AS backend_type, s ->> 'context' AS context, (s ->> 'writes')::numeric AS writes,
           (coalesce((s ->> 'write_bytes')::numeric, 0) + coalesce((s ->> 'extend_bytes')::numeric, 0)) / block AS blocks,
           (s ->> 'write_time')::numeric * 1000 AS write_us, (s ->> 'fsyncs')::numeric AS fsyncs, (s ->> 'fsync_time')::numeric * 1000 AS fsync_us
    FROM awr.sum_intervals('io_stat', begin_snap, end_snap, instance) s, (SELECT coalesce((last.facts ->> 'block_size')::numeric, 8192) AS block) b),
  named (name, value, unit) AS (
    SELECT 'user commits', commits, 'transactions' FROM d
    UNION ALL SELECT 'user rollbacks', rollbacks, 'transactions' FROM d
    UNION ALL SELECT 'session logical reads', hits + reads, 'blocks' FROM d
    UNION ALL SELECT 'physical reads', reads, 'blocks' FROM d
    UNION ALL SELECT 'logons cumulative', logons, 'sessions' FROM d
    UNION ALL SELECT 'temp bytes', temp_bytes, 'bytes' FROM d
    UNION ALL SELECT 'enqueue deadlocks', deadlocks, 'deadlocks' FROM d
    UNION ALL SELECT 'execute count', sum((e ->> 'calls')::numeric), 'executions' FROM jsonb_array_elements(statements) e
    UNION ALL SELECT 'parse count (total)', nullif(sum((s ->> 'parses')::numeric), 0), 'parses' FROM awr.sum_intervals('cpu_stat', begin_snap, end_snap, instance) s
    UNION ALL SELECT 'parse count (hard)', sum((e ->> 'plans')::numeric), 'plans' FROM jsonb_array_elements(statements) e
    UNION ALL SELECT v.name, raw.value, v.unit
      FROM (VALUES ('redo size', 'pg_stat_wal.wal_bytes', 'bytes'), ('redo entries', 'pg_stat_wal.wal_records', 'records'),
                   ('redo writes', 'pg_stat_wal.wal_write', 'writes'), ('redo synch writes', 'pg_stat_wal.wal_sync', 'syncs'),
                   ('redo log space requests', 'pg_stat_wal.wal_buffers_full', 'requests')) v (name, source, unit)
           JOIN raw ON raw.name = v.source
    UNION ALL SELECT v.name, v.value, v.unit
      FROM (SELECT sum(writes) AS writes, sum(fsyncs) AS fsyncs, sum(write_us) AS write_us, sum(fsync_us) AS fsync_us FROM written WHERE object = 'wal') w,
           LATERAL (VALUES ('redo writes', w.writes, 'writes'), ('redo synch writes', w.fsyncs, 'syncs'), ('redo write time', nullif(w.write_us, 0), 'us'),
                           ('redo synch time', nullif(w.fsync_us, 0), 'us')) v (name, value, unit)
    UNION ALL SELECT 'physical writes', coalesce((SELECT round(sum(blocks)) FROM written WHERE object = 'relation'),
                                                 (SELECT sum(value) FROM raw WHERE name IN ('pg_stat_bgwriter.buffers_checkpoint', 'pg_stat_bgwriter.buffers_clean', 'pg_stat_bgwriter.buffers_backend'))), 'blocks'
    UNION ALL SELECT 'backend buffers written', sum(writes), 'blocks' FROM written
      WHERE object = 'relation' AND context = 'normal' AND backend_type NOT IN ('checkpointer', 'background writer')
    UNION ALL SELECT 'backend fsyncs', sum(fsyncs), 'syncs' FROM written WHERE object = 'relation' AND backend_type <> 'checkpointer'
    UNION ALL SELECT 'DBWR checkpoints', sum(value), 'checkpoints' FROM raw
      WHERE name IN ('pg_stat_bgwriter.checkpoints_timed', 'pg_stat_bgwriter.checkpoints_req', 'pg_stat_checkpointer.num_timed', 'pg_stat_checkpointer.num_requested')
    UNION ALL SELECT 'DBWR checkpoint buffers written', sum(value), 'blocks' FROM raw
      WHERE name IN ('pg_stat_bgwriter.buffers_checkpoint', 'pg_stat_checkpointer.buffers_written')
    UNION ALL SELECT raw.name,
                     raw.value + CASE raw.name WHEN 'physical read total bytes' THEN bytes_read
                                               WHEN 'physical read total IO requests' THEN on_cell.reads
                                               WHEN 'cell physical IO interconnect bytes' THEN bytes_read + bytes_written
                                               ELSE 0 END,
                     CASE WHEN raw.name LIKE '%bytes%' THEN 'bytes' WHEN raw.name LIKE '% us' THEN 'us' ELSE 'count' END
      FROM raw CROSS JOIN on_cell
    UNION ALL SELECT 'physical write total bytes', bytes_written, 'bytes' FROM on_cell WHERE EXISTS (SELECT FROM mount)
    UNION ALL SELECT 'physical write total IO requests', writes, 'requests' FROM on_cell WHERE EXISTS (SELECT FROM mount))
  SELECT jsonb_agg(jsonb_build_object('name', name, 'value', value, 'unit', unit, 'how', 'counted') ORDER BY name)
    INTO statistics FROM named WHERE value IS NOT NULL;

  -- Timed events: those of the extension, and I/O through the mounts, timed by the cells
  WITH e AS (
    SELECT s ->> 'event' AS event, (s ->> 'bucket')::int AS bucket, (s ->> 'waits')::numeric AS waits, (s ->> 'time_us')::numeric AS time_us
    FROM awr.sum_intervals('event_stat', begin_snap, end_snap, instance) s
    WHERE s ->> 'event' <> 'cell single block physical read'
    UNION ALL
    SELECT m.event, (s ->> 'bucket')::int, sum((s ->> 'operations')::numeric), sum((s ->> 'time_us')::numeric)
    FROM awr.sum_intervals('cell_io_stat', begin_snap, end_snap, instance) s
         JOIN (VALUES ('single block read', 'cell single block physical read'), ('multiblock read', 'cell multiblock physical read'),
                      ('data file write', 'db file parallel write'), ('WAL write', 'log file parallel write')) m (kind, event) ON m.kind = s ->> 'kind'
    GROUP BY 1, 2)
  SELECT jsonb_agg(jsonb_build_object(
           'event', event, 'waits', waits, 'time_us', time_us, 'how', 'timed',
           'class', CASE WHEN event LIKE 'enq: KO%' THEN 'Application' WHEN event LIKE '%write' THEN 'System I/O' ELSE 'User I/O' END,
           'foreground', event NOT LIKE '%write',
           'histogram', (SELECT jsonb_agg(coalesce(h.waits, 0) ORDER BY b) FROM generate_series(0, 31) b
                         LEFT JOIN (SELECT LEAST(bucket, 31) AS bucket, sum(e.waits) AS waits FROM e WHERE e.event = t.event AND bucket >= 0 GROUP BY 1) h ON h.bucket = b))
           ORDER BY time_us DESC)
    INTO events FROM e t WHERE bucket = -1 AND waits > 0;

  SELECT h.ash, h.sampled INTO ash, sampled FROM awr.sample_data(begin_snap, end_snap, instance, databases, names, events) h;
  -- Statistics of statements do not tell which processes executed a statement, but samples do.
  IF jsonb_typeof(ash -> 'background') = 'array' THEN
    SELECT jsonb_agg(CASE WHEN ash -> 'background' @> (e -> 'query_id') THEN e || '{"backend_type": "background worker"}' ELSE e END) INTO statements
      FROM jsonb_array_elements(statements) e;
  END IF;
  ash := ash - 'background';
  -- A statement that did not end in the period has no statistics, but samples and sessions refer to its text.
  SELECT nullif(coalesce(statements, '[]') || coalesce(jsonb_agg(jsonb_build_object('query_id', t.query_id, 'text', t.query)), '[]'), '[]')
    INTO statements
    FROM awr.query_text t
    WHERE t.instance_id = instance
      AND t.query_id IN (SELECT q::bigint FROM jsonb_path_query(ash, '$.**.query_id') q WHERE jsonb_typeof(q) = 'number'
                         UNION ALL
                         SELECT q::bigint FROM jsonb_path_query(ash, '$.**.blocker_query_id') q WHERE jsonb_typeof(q) = 'number'
                         UNION ALL
                         SELECT a.query_id FROM awr.activity a WHERE a.instance_id = instance AND a.snap_id > begin_snap AND a.snap_id <= end_snap)
      AND t.query_id NOT IN (SELECT (e ->> 'query_id')::bigint FROM jsonb_array_elements(coalesce(statements, '[]')) e);
  SELECT jsonb_agg(total - 'bucket' || jsonb_build_object(
           'database', (SELECT e ->> 'name' FROM jsonb_array_elements(databases) e WHERE e ->> 'oid' = total ->> 'database'),
           'histogram', (SELECT jsonb_agg(coalesce((counts ->> b::text)::numeric, 0) ORDER BY b) FROM generate_series(0, 31) b)))
    INTO cell_io
    FROM (SELECT (jsonb_agg(s) FILTER (WHERE s ->> 'bucket' = '-1')) -> 0 AS total, jsonb_object_agg(s ->> 'bucket', s -> 'operations') AS counts
          FROM awr.sum_intervals('cell_io_stat', begin_snap, end_snap, instance) s
          GROUP BY s -> 'cell', s -> 'database', s -> 'kind') i
    WHERE total IS NOT NULL;

  document := jsonb_build_object(
    'format', 1,
    'instance', (SELECT jsonb_build_object('id', i.instance_id, 'name', i.name, 'system_identifier', i.system_identifier::text) FROM awr.instance i WHERE i.instance_id = instance)
                || (last.facts - ARRAY['system_identifier', 'incarnation', 'uptime_us', 'day', 'sessions', 'startup_time', 'wal_lsn', 'open_us', 'on_cell'])
                || jsonb_build_object('startup_time', last.startup_time,
                     'cpus', (SELECT value::int FROM awr.os_stat o WHERE o.instance_id = instance AND o.snap_day = last.snap_day AND o.snap_id = end_snap AND name = 'NUM_CPUS'),
                     'memory_bytes', (SELECT value::bigint FROM awr.os_stat o WHERE o.instance_id = instance AND o.snap_day = last.snap_day AND o.snap_id = end_snap AND name = 'PHYSICAL_MEMORY_BYTES')),
    'begin', jsonb_build_object('snap_id', begin_snap, 'time', first.end_time, 'sessions', first.facts -> 'sessions'),
    'end', jsonb_build_object('snap_id', end_snap, 'time', last.end_time, 'sessions', last.facts -> 'sessions'),
    'snapshots', (SELECT jsonb_agg(jsonb_build_object('snap_id', s.snap_id, 'time', s.end_time, 'elapsed_us', s.elapsed_us,
                           'db_time_us', (SELECT greatest(0, round(sum(active_time)::numeric * 1000) + s.open_us - s.open_at_begin) FROM awr.database_stat d
                                          WHERE d.instance_id = instance AND d.snap_day = s.snap_day AND d.snap_id = s.snap_id)
                                         + (SELECT coalesce(sum(elapsed_us), 0) FROM awr.cpu_stat c
                                            WHERE c.backend_type = 'parallel worker' AND c.instance_id = instance AND c.snap_day = s.snap_day AND c.snap_id = s.snap_id))
                                  || CASE WHEN cell_io IS NOT NULL THEN
                                       (SELECT jsonb_build_object('io_counted_by', 'cells',
                                                 'reads', sum(operations * (kind LIKE '% read')::int), 'read_bytes', sum(bytes * (kind LIKE '% read')::int),
                                                 'read_us', sum(time_us * (kind LIKE '% read')::int), 'writes', sum(operations * (kind LIKE '% write')::int),
                                                 'write_bytes', sum(bytes * (kind LIKE '% write')::int), 'write_us', sum(time_us * (kind LIKE '% write')::int))
                                        FROM awr.cell_io_stat c WHERE c.bucket = -1 AND c.instance_id = instance AND c.snap_day = s.snap_day AND c.snap_id = s.snap_id)
                                     ELSE
                                       (SELECT jsonb_build_object('io_counted_by', 'PostgreSQL', 'reads', sum(blks_read), 'read_bytes', sum(blks_read) * block_bytes,
                                                                  'read_us', nullif(round(sum(blk_read_time)::numeric * 1000), 0))
                                        FROM awr.database_stat d WHERE d.instance_id = instance AND d.snap_day = s.snap_day AND d.snap_id = s.snap_id)
                                     END ORDER BY s.snap_id)
                  FROM (SELECT o.*, CASE WHEN o.facts -> 'incarnation' = lag(o.facts -> 'incarnation') OVER w THEN lag(o.open_us) OVER w ELSE 0 END AS open_at_begin
                        FROM (SELECT *, (SELECT coalesce(sum(value::numeric), 0) FROM jsonb_each_text(facts -> 'open_us')) AS open_us
                              FROM awr.snapshot WHERE instance_id = instance AND snap_id >= begin_snap AND snap_id <= end_snap) o
                        WINDOW w AS (ORDER BY o.snap_id)) s
                  WHERE s.snap_id > begin_snap),
    'elapsed_us', elapsed,
    'db_time_us', (SELECT sum((e ->> 'active_us')::numeric) FROM jsonb_array_elements(databases) e),
    'notes', (SELECT jsonb_agg(jsonb_build_object('snap_id', n.snap_id, 'time', s.end_time, 'kind', n.kind, 'object', n.object, 'text', n.description) ORDER BY n.snap_id)
              FROM awr.note n JOIN awr.snapshot s USING (snap_day, snap_id, instance_id)
              WHERE n.instance_id = instance AND n.snap_id > begin_snap AND n.snap_id <= end_snap AND n.kind NOT LIKE 'source%'),
    'sources', (SELECT jsonb_agg(jsonb_build_object('name', source, 'available', not_available IS NULL, 'detail', not_available) ORDER BY source)
                FROM (SELECT c.source,
                             (SELECT max(n.description) FROM awr.note n WHERE n.instance_id = instance AND n.snap_day = last.snap_day AND n.snap_id = end_snap
                                AND n.object = c.source AND n.kind LIKE 'source%') AS not_available
                      FROM (SELECT DISTINCT coalesce(requires, kind) AS source FROM awr.collector) c
                      UNION ALL
                      SELECT 'track_io_timing', 'track_io_timing is off, so that PostgreSQL does not time reads and writes; set it to on' WHERE NOT tracks_io_timing) x),
    'time_model', (SELECT jsonb_agg(jsonb_build_object('name', name, 'us', us, 'how', 'timed'))
                   FROM (SELECT 'DB time', (SELECT sum((e ->> 'active_us')::numeric) FROM jsonb_array_elements(databases) e)
                         UNION ALL SELECT 'sql execute elapsed time', (SELECT sum((e ->> 'elapsed_us')::numeric) FROM jsonb_array_elements(statements) e WHERE (e ->> 'toplevel')::boolean)
                         UNION ALL SELECT 'DB CPU', (SELECT sum((e ->> 'cpu_us')::numeric) FROM jsonb_array_elements(cpu) e WHERE e ->> 'backend_type' IN ('client backend', 'parallel worker'))
                         UNION ALL SELECT 'DB CPU run queue time', (SELECT sum((e ->> 'run_queue_us')::numeric) FROM jsonb_array_elements(cpu) e WHERE e ->> 'backend_type' IN ('client backend', 'parallel worker'))
                         UNION ALL SELECT 'parallel worker elapsed time', (SELECT nullif(sum((e ->> 'elapsed_us')::numeric), 0) FROM jsonb_array_elements(cpu) e WHERE e ->> 'backend_type' = 'parallel worker')
                         UNION ALL SELECT 'parallel worker cpu time', (SELECT sum((e ->> 'cpu_us')::numeric) FROM jsonb_array_elements(cpu) e WHERE e ->> 'backend_type' = 'parallel worker')
                         UNION ALL SELECT 'background cpu time', (SELECT sum((e ->> 'cpu_us')::numeric) FROM jsonb_array_elements(cpu) e WHERE e ->> 'backend_type' NOT IN ('client backend', 'parallel worker'))
                         UNION ALL SELECT 'parse time elapsed', (SELECT sum((e ->> 'parse_us')::numeric) FROM jsonb_array_elements(cpu) e)
                         UNION ALL SELECT 'commit time elapsed', (SELECT sum((e ->> 'commit_us')::numeric) FROM jsonb_array_elements(cpu) e)
                         UNION ALL SELECT 'plan elapsed time', (SELECT sum((e ->> 'plan_us')::numeric) FROM jsonb_array_elements(statements) e)) t (name, us)
                   WHERE us IS NOT NULL),
    'statistics', statistics,
    'events', coalesce(events, '[]') || coalesce(sampled, '[]'),
    'ash', ash,
    'services', (SELECT jsonb_agg(jsonb_build_object('database', (SELECT e ->> 'name' FROM jsonb_array_elements(databases) e WHERE e ->> 'oid' = s ->> 'database'),
                          'backend_type', s -> 'backend_type', 'application', s -> 'application', 'cpu_us', s -> 'cpu_us', 'run_queue_us', s -> 'run_queue_us',
                          'parse_us', s -> 'parse_us', 'plan_us', s -> 'plan_us', 'execute_us', s -> 'execute_us', 'commit_us', s -> 'commit_us',
                          'active_us', CASE WHEN s ->> 'backend_type' = 'client backend' THEN nullif((s ->> 'elapsed_us')::numeric, 0) END,
                          'parallel_us', CASE WHEN s ->> 'backend_type' = 'parallel worker' THEN s -> 'elapsed_us' END))
                 FROM jsonb_array_elements(cpu) s),
    'os', (SELECT jsonb_agg(CASE WHEN NOT s ? 'value' THEN jsonb_build_object('name', s -> 'name', 'value', s -> 'total', 'unit', CASE WHEN s ->> 'name' LIKE '%TIME' THEN 'us' WHEN s ->> 'name' LIKE '%REQUESTS' THEN 'requests' ELSE 'bytes' END)
                                 ELSE jsonb_build_object('name', s -> 'name', 'end', s -> 'value', 'value', s -> 'value',
                                        'begin', (SELECT o.value FROM awr.os_stat o WHERE o.instance_id = instance AND o.snap_day = first.snap_day AND o.snap_id = begin_snap AND o.name = s ->> 'name')) END)
           FROM awr.sum_intervals('os_stat', begin_snap, end_snap, instance) s),
    'databases', databases,
    'statements', statements,
    'plans', (SELECT jsonb_agg(jsonb_build_object('query_id', p.query_id, 'plan_id', p.plan_id, 'text', p.plan))
              FROM awr.plan_text p
              WHERE p.instance_id = instance
                AND p.query_id IN (SELECT (e ->> 'query_id')::bigint FROM jsonb_array_elements(statements) e)),
    'plan_history', (SELECT jsonb_agg(jsonb_build_object('snap_id', h.snap_id, 'time', s.begin_time, 'query_id', h.query_id, 'plan_id', h.plan_id,
                                        'calls', h.calls, 'elapsed_us', h.elapsed_us, 'cpu_us', h.cpu_us, 'logical_reads', h.logical_reads, 'physical_reads', h.physical_reads)
                                      ORDER BY h.query_id, h.snap_id, h.plan_id)
                     FROM (SELECT p.snap_id, p.query_id, p.plan_id, sum(p.calls) AS calls, sum(p.elapsed_us) AS elapsed_us, sum(p.cpu_us) AS cpu_us,
                                  sum(p.shared_blks_hit + p.shared_blks_read + coalesce(p.eligible_bytes, 0) / block_bytes) AS logical_reads,
                                  sum(p.shared_blks_read + coalesce(p.eligible_bytes, 0) / block_bytes) AS physical_reads
                           FROM awr.plan_stat p
                           WHERE p.instance_id = instance AND p.snap_id <= end_snap AND p.calls > 0
                             AND p.query_id = ANY (leading_ids)
                           GROUP BY 1, 2, 3) h
                          JOIN awr.snapshot s ON s.instance_id = instance AND s.snap_id = h.snap_id),
    'tables', (SELECT jsonb_agg(awr.to_document(s - 'dbid' - 'relid') || jsonb_build_object('oid', (s ->> 'relid')::bigint,
                                  'database', (SELECT e ->> 'name' FROM jsonb_array_elements(databases) e WHERE e ->> 'oid' = s ->> 'dbid'),
                                  'toast', s ->> 'relkind' = 't',
                                  'on_cell', (last.facts -> 'on_cell') ? format('%s/%s', CASE s ->> 'tablespace' WHEN '1664' THEN '0' ELSE s ->> 'dbid' END, s ->> 'tablespace'),
                                  'tablespace', coalesce(names -> 'tablespace' -> (s ->> 'tablespace'), s -> 'tablespace'), 'size_begin', (s ->> 'size')::numeric - (s ->> 'size_growth')::numeric))
               FROM (SELECT coalesce(t, awr.known_table(instance, r -> 'database', r -> 'relation')) || coalesce(r - 'database' - 'relation', '{}') AS s
                     FROM awr.sum_intervals('table_stat', begin_snap, end_snap, instance) t
                          FULL JOIN awr.sum_intervals('relation_stat', begin_snap, end_snap, instance) r
                            ON r -> 'database' = t -> 'dbid' AND r -> 'relation' = t -> 'relid') x),
    'indexes', (SELECT jsonb_agg((awr.to_document(s - 'dbid' - 'indexrelid' - 'relname' - 'indexrelname')) || jsonb_build_object('oid', (s ->> 'indexrelid')::bigint, 'table', s -> 'relname', 'name', s -> 'indexrelname',
                                  'tablespace', coalesce(names -> 'tablespace' -> (s ->> 'tablespace'), s -> 'tablespace'),
                                  'database', (SELECT e ->> 'name' FROM jsonb_array_elements(databases) e WHERE e ->> 'oid' = s ->> 'dbid')))
                FROM awr.sum_intervals('index_stat', begin_snap, end_snap, instance) s),
    'io', (SELECT jsonb_agg(awr.without_untimed_io(awr.to_document(s), tracks_io_timing)) FROM awr.sum_intervals('io_stat', begin_snap, end_snap, instance) s),
    'session_io', (SELECT jsonb_agg((awr.without_untimed_io(awr.to_document(s), tracks_io_timing) - 'rolname') || jsonb_build_object('user', s -> 'rolname',
                             'database', (SELECT e ->> 'name' FROM jsonb_array_elements(databases) e WHERE e ->> 'oid' = s ->> 'database'))
                             ORDER BY (s ->> 'pid')::int, s ->> 'backend_start')
                   FROM (SELECT s FROM awr.sum_intervals('session_io_stat', begin_snap, end_snap, instance) s
                         ORDER BY coalesce((s ->> 'read_bytes')::numeric, 0) + coalesce((s ->> 'write_bytes')::numeric, 0)
                                  + coalesce((s ->> 'extend_bytes')::numeric, 0) + coalesce((s ->> 'wal_bytes')::numeric, 0) DESC,
                                  (s ->> 'pid')::int, s ->> 'backend_start' LIMIT 100) o),
    'cell_io', cell_io,
    'cell_files', (SELECT jsonb_agg(f - 'tablespace' || jsonb_build_object(
                            'database', coalesce((SELECT e ->> 'name' FROM jsonb_array_elements(databases) e WHERE e ->> 'oid' = f ->> 'database'), f ->> 'database'),
                            'tablespace', coalesce(names -> 'tablespace' -> (f ->> 'tablespace'), f -> 'tablespace')))
                   FROM jsonb_array_elements(awr.cell_files(begin_snap, end_snap, instance)) f),
    'cell_statistics', (SELECT jsonb_agg(s - 'stats_reset') FROM awr.sum_intervals('cell_stat', begin_snap, end_snap, instance) s),
    'cell_disks', (SELECT jsonb_agg(total - 'bucket' - 'stats_reset' || jsonb_build_object(
                            'histogram', (SELECT jsonb_agg(coalesce((counts ->> b::text)::numeric, 0) ORDER BY b) FROM generate_series(0, 31) b)))
                   FROM (SELECT (jsonb_agg(s) FILTER (WHERE s ->> 'bucket' = '-1')) -> 0 AS total, jsonb_object_agg(s ->> 'bucket', s -> 'operations') AS counts
                         FROM awr.sum_intervals('cell_disk_stat', begin_snap, end_snap, instance) s
                         GROUP BY s -> 'cell', s -> 'disk_type', s -> 'disk', s -> 'operation') d
                   WHERE total IS NOT NULL),
    'iorm', (SELECT jsonb_agg(s - 'stats_reset' - 'database_id') FROM awr.sum_intervals('iorm_stat', begin_snap, end_snap, instance) s),
    'slru', (SELECT jsonb_agg(s) FROM awr.sum_intervals('slru_stat', begin_snap, end_snap, instance) s),
    'replication', (SELECT jsonb_agg(r ORDER BY r.application, r.pid)
                    FROM (SELECT coalesce(max(a.application), a.object) AS application, a.pid, (array_agg(a.detail ORDER BY a.snap_id DESC))[1] AS sync_state,
                                 CASE WHEN max(a.snap_id) < end_snap THEN 'disconnected' ELSE (array_agg(a.state ORDER BY a.snap_id DESC))[1] END AS state,
                                 max(a.bytes) FILTER (WHERE a.snap_id = begin_snap) AS lag_bytes_begin, max(a.bytes) FILTER (WHERE a.snap_id = end_snap) AS lag_bytes_end,
                                 max(a.bytes) AS lag_bytes_max, max(a.age_us) AS replay_lag_us_max
                          FROM awr.activity a
                          WHERE a.instance_id = instance AND a.snap_day BETWEEN first.snap_day AND last.snap_day AND a.snap_id BETWEEN begin_snap AND end_snap
                            AND a.kind IN ('replication', 'replay')
                          GROUP BY a.object, a.pid) r),
    'archiver', (SELECT jsonb_build_object('state', a.state, 'backlog_bytes', a.bytes, 'since_us', a.age_us, 'last_failed', a.detail)
                 FROM awr.activity a WHERE a.instance_id = instance AND a.snap_day = last.snap_day AND a.snap_id = end_snap AND a.kind = 'archiver'),
    'slots', (SELECT jsonb_agg(jsonb_build_object('name', a.object, 'retained_bytes', a.bytes, 'active', a.state = 'active'))
              FROM awr.activity a WHERE a.instance_id = instance AND a.snap_day = last.snap_day AND a.snap_id = end_snap AND a.kind = 'replication slot'),
    'vacuum_horizon', (SELECT jsonb_agg(jsonb_build_object('holder', a.object, 'kind', a.kind, 'age_xids', a.age_xids, 'detail', coalesce(a.application || ', ', '') || a.state) ORDER BY a.age_xids DESC)
                       FROM awr.activity a WHERE a.instance_id = instance AND a.snap_day = last.snap_day AND a.snap_id = end_snap AND a.kind IN ('xmin holder', 'prepared transaction')),
    'sessions', jsonb_build_object(
      'idle_in_transaction', (SELECT jsonb_agg(jsonb_build_object('pid', a.pid, 'application', a.application, 'age_us', a.age_us, 'query_id', a.query_id, 'snap_id', a.snap_id) ORDER BY a.age_us DESC)
                              FROM awr.activity a WHERE a.instance_id = instance AND a.snap_id > begin_snap AND a.snap_id <= end_snap AND a.kind = 'idle in transaction'),
      'longest_transactions', (SELECT jsonb_agg(jsonb_build_object('pid', a.pid, 'application', a.application, 'state', a.state, 'age_us', a.age_us, 'query_id', a.query_id, 'snap_id', a.snap_id) ORDER BY a.age_us DESC)
                               FROM awr.activity a WHERE a.instance_id = instance AND a.snap_id > begin_snap AND a.snap_id <= end_snap AND a.kind = 'longest transaction')),
    'settings', (SELECT jsonb_agg(jsonb_build_object('name', e.name, 'begin', b.setting, 'end', e.setting, 'unit', e.unit, 'source', e.source, 'changed', b.setting IS DISTINCT FROM e.setting) ORDER BY e.name)
                 FROM (SELECT DISTINCT ON (name) * FROM awr.setting s WHERE s.instance_id = instance AND s.snap_id <= end_snap AND s.snap_day >= first.snap_day ORDER BY name, snap_id DESC) e
                      LEFT JOIN (SELECT DISTINCT ON (name) * FROM awr.setting s WHERE s.instance_id = instance AND s.snap_id <= begin_snap AND s.snap_day = first.snap_day ORDER BY name, snap_id DESC) b USING (name)
                 -- Storage parameters and settings without a value only if they changed
                 WHERE b.setting IS DISTINCT FROM e.setting OR (coalesce(e.source, '') NOT IN ('default', 'relation') AND e.setting IS NOT NULL))
  );
  RETURN jsonb_strip_nulls(document);
EXCEPTION
  WHEN program_limit_exceeded THEN
    RAISE EXCEPTION 'the report about AWR snapshots % to % exceeds the maximal size of a document', begin_snap, end_snap
      USING ERRCODE = 'program_limit_exceeded', DETAIL = SQLERRM, HINT = 'Report about fewer AWR snapshots.';
END
$$ LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET default_tablespace = ''
SET default_table_access_method = heap
SET standard_conforming_strings = on
SET transform_null_equals = off
-- Each query runs once: compiling it takes longer.
SET jit = off;

COMMENT ON FUNCTION awr.report_data(bigint, bigint, integer) IS
  'everything that a report between two AWR snapshots shows, as one document; docs/reference/awr.md describes its format';

CREATE FUNCTION awr.render(document jsonb, compared jsonb, format text)
RETURNS text
AS 'MODULE_PATHNAME', 'cellar_render_report'
LANGUAGE C IMMUTABLE PARALLEL SAFE;

COMMENT ON FUNCTION awr.render(jsonb, jsonb, text) IS
  'a report about a document of awr.report_data, or the comparison of two documents; format text, html or json';

CREATE FUNCTION awr.report(begin_snap bigint, end_snap bigint, format text DEFAULT 'text', instance integer DEFAULT 1)
RETURNS text
AS $$
  SELECT awr.render(awr.report_data(begin_snap, end_snap, instance), NULL, format)
$$ LANGUAGE sql STABLE STRICT SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET default_tablespace = ''
SET default_table_access_method = heap
SET standard_conforming_strings = on
SET transform_null_equals = off;

COMMENT ON FUNCTION awr.report(bigint, bigint, text, integer) IS
  'the report about the period between two AWR snapshots; format text, html or json';

CREATE FUNCTION awr.diff_report(
  first_begin bigint, first_end bigint, second_begin bigint, second_end bigint, format text DEFAULT 'text',
  instance integer DEFAULT 1)
RETURNS text
AS $$
  SELECT awr.render(awr.report_data(first_begin, first_end, instance), awr.report_data(second_begin, second_end, instance), format)
$$ LANGUAGE sql STABLE STRICT SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET default_tablespace = ''
SET default_table_access_method = heap
SET standard_conforming_strings = on
SET transform_null_equals = off;

COMMENT ON FUNCTION awr.diff_report(bigint, bigint, bigint, bigint, text, integer) IS
  'the comparison of two periods between AWR snapshots; format text, html or json';

-- ---- Reports about session samples ----

CREATE FUNCTION awr.sql_id(query_id bigint)
RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (SELECT string_agg(substr('0123456789abcdfghjkmnpqrstuvwxyz', ((query_id >> (5 * d)) & CASE WHEN d = 12 THEN 15 ELSE 31 END)::int + 1, 1), '' ORDER BY d DESC)
        FROM generate_series(0, 12) d);

COMMENT ON FUNCTION awr.sql_id(bigint) IS 'the SQL_ID of a query identifier: Oracle''s form of 13 characters';

CREATE FUNCTION awr.query_id(sql_id text)
RETURNS bigint
AS $$
BEGIN
  IF sql_id !~ '^[0-9abcdfg][0-9abcdfghjkmnpqrstuvwxyz]{12}$' THEN
    RAISE EXCEPTION 'invalid SQL_ID "%"', sql_id
      USING ERRCODE = 'invalid_parameter_value',
            DETAIL = 'An SQL_ID has 13 characters: digits and lower-case letters without e, i, l and o.';
  END IF;
  RETURN (SELECT bit_or((strpos('0123456789abcdfghjkmnpqrstuvwxyz', substr(sql_id, i, 1)) - 1)::bigint << (5 * (13 - i)))
          FROM generate_series(1, 13) i);
END
$$ LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.query_id(text) IS 'the query identifier of an SQL_ID';

-- The columns that a dimension of ASH reports groups by
CREATE FUNCTION awr.ash_columns(dimension text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE dimension
    WHEN 'event' THEN 'event, class'
    WHEN 'wait_class' THEN 'class'
    WHEN 'query_id' THEN 'query_id'
    WHEN 'sql_id' THEN 'query_id'
    WHEN 'plan' THEN 'plan_id'
    WHEN 'database' THEN 'database'
    WHEN 'user' THEN 'role'
    WHEN 'application' THEN 'application'
    WHEN 'consumer_group' THEN 'consumer_group'
    WHEN 'client' THEN 'client'
    WHEN 'backend_type' THEN 'backend_type'
    WHEN 'state' THEN 'state'
    WHEN 'session' THEN 'pid'
    WHEN 'blocker' THEN 'blocker_pid' END;

COMMENT ON FUNCTION awr.ash_columns(text) IS 'for internal use by awr.ash_data';

-- Raises an error unless the interval is valid and the samples of the instance reach into it.
CREATE FUNCTION awr.check_interval(begin_time timestamptz, end_time timestamptz, instance integer)
RETURNS void
AS $$
DECLARE
  oldest timestamptz;
  newest timestamptz;
BEGIN
  IF begin_time IS NULL OR end_time IS NULL OR NOT isfinite(begin_time) OR NOT isfinite(end_time) OR begin_time >= end_time THEN
    RAISE EXCEPTION 'begin time % does not precede end time %', coalesce(begin_time::text, 'NULL'), coalesce(end_time::text, 'NULL')
      USING ERRCODE = 'invalid_parameter_value',
            DETAIL = (SELECT format('Session samples of instance %s exist from %s to %s.', instance, min(c.begin_time), max(c.end_time))
                      FROM awr.sample_chunk c WHERE c.instance_id = instance HAVING count(*) > 0),
            HINT = 'Choose a begin before the end; without an end, the interval ends now.';
  END IF;
  IF instance <> 1 AND NOT EXISTS (SELECT FROM awr.instance i WHERE i.instance_id = instance) THEN
    RAISE EXCEPTION 'AWR instance % does not exist', instance
      USING ERRCODE = 'undefined_object',
            HINT = coalesce('Instances in the repository: ' || (SELECT string_agg(i.instance_id || ' (' || i.name || ')', ', ' ORDER BY i.instance_id) FROM awr.instance i) || '.',
                            'The repository contains no AWR snapshot.');
  END IF;
  SELECT min(c.begin_time), max(c.end_time) INTO oldest, newest FROM awr.sample_chunk c WHERE c.instance_id = instance;
  IF instance = 1 THEN
    oldest := least(oldest, (SELECT min(sample_time) FROM awr.get_samples(0)));
    newest := clock_timestamp();
  END IF;
  IF oldest IS NULL THEN
    RAISE EXCEPTION 'AWR instance % has no session samples', instance
      USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Set "cellar.awr_sample_period" above 0 to sample active sessions.';
  END IF;
  IF end_time <= oldest OR begin_time > newest THEN
    RAISE EXCEPTION 'no session samples between % and %', begin_time, end_time
      USING ERRCODE = 'invalid_parameter_value',
            DETAIL = format('Session samples of instance %s exist from %s to %s.', instance, oldest, newest);
  END IF;
END
$$ LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.check_interval(timestamptz, timestamptz, integer) IS 'for internal use by awr.ash_data';

CREATE FUNCTION awr.ash_data(
  begin_time timestamptz, end_time timestamptz, dimensions text[] DEFAULT '{}', filters jsonb DEFAULT '{}',
  instance integer DEFAULT 1)
RETURNS jsonb
AS $$
DECLARE
  covered_begin timestamptz;
  covered_end timestamptz;
  names CONSTANT text := 'event, wait_class, sql_id, query_id, plan, database, user, application, consumer_group, client, backend_type, state, session, blocker';
  dimension text;
  name text;
  value jsonb;
  conditions text := '';
  listed text;
  lists text;
  seconds int;
  result jsonb;
BEGIN
  PERFORM awr.check_interval(begin_time, end_time, instance);
  FOREACH dimension IN ARRAY dimensions || ARRAY(SELECT jsonb_object_keys(filters)) LOOP
    IF awr.ash_columns(dimension) IS NULL THEN
      RAISE EXCEPTION 'unrecognized dimension "%"', coalesce(dimension, 'NULL')
        USING ERRCODE = 'invalid_parameter_value', HINT = 'Dimensions: ' || names || '.';
    END IF;
  END LOOP;
  FOR name, value IN SELECT * FROM jsonb_each(filters) LOOP
    IF jsonb_typeof(value) <> 'array' THEN
      value := jsonb_build_array(value);
    END IF;
    IF name = 'sql_id' THEN
      value := (SELECT jsonb_agg(awr.query_id(v)) FROM jsonb_array_elements_text(value) v);
    END IF;
    -- The first column of a dimension is the one that filters compare.
    conditions := conditions || format(' AND %I::text IN (SELECT jsonb_array_elements_text(%L))', split_part(awr.ash_columns(name), ',', 1), value);
  END LOOP;
  -- Idle waits and sessions idle in a transaction are no activity, unless a filter selects them.
  IF NOT filters ?| ARRAY['event', 'wait_class', 'state'] THEN
    conditions := conditions || ' AND class <> ''Idle'' AND state NOT LIKE ''idle in transaction%''';
  END IF;
  listed := (SELECT string_agg(DISTINCT c, ', ') FROM unnest(dimensions) d, regexp_split_to_table(awr.ash_columns(d), ', ') c);

  SELECT string_agg(format(
           '%1$L, (SELECT jsonb_agg(to_jsonb(x) %2$s ORDER BY x.samples DESC)
                 FROM (SELECT %3$s, count(*) AS samples, sum(us) AS time_us, round(sqrt(sum(us * us))) AS stderr_us, count(DISTINCT pid) AS sessions
                       FROM h WHERE %4$s GROUP BY %3$s ORDER BY count(*) DESC, %3$s LIMIT %5$s) x)', l.name, l.detail, l.columns, l.condition, l.rows), ', ')
    INTO lists
    FROM (VALUES ('events', 'event, class', 'foreground', 30, ''),
                 ('background_events', 'event, class', 'NOT foreground', 30, ''),
                 ('services', 'application, role, database', 'foreground', 20, ''),
                 ('clients', 'client, role, database', 'client IS NOT NULL', 20, ''),
                 ('databases', 'database', 'database IS NOT NULL', 20, ''),
                 ('consumer_groups', 'consumer_group, class', 'consumer_group IS NOT NULL', 40, ''),
                 ('top_sql', 'query_id, plan_id, event, class', 'query_id IS NOT NULL', 40, ''),
                 ('top_sessions', 'pid, session_start, backend_type, application, consumer_group, role, database, event, class', 'true', 40,
                  '|| jsonb_build_object(''temp_bytes'', (SELECT max(h.temp_bytes) FROM h WHERE h.pid = x.pid AND h.session_start = x.session_start AND h.event = x.event))'),
                 ('blockers', 'blocker_pid, event, class', 'blocker_pid IS NOT NULL', 30,
                  '|| (SELECT jsonb_build_object(''application'', max(s.application), ''role'', max(s.role), ''state'', max(s.state)) FROM s WHERE s.pid = x.blocker_pid)'),
                 ('groups', listed, 'true', 50, '')) l (name, columns, condition, rows, detail)
    WHERE l.columns IS NOT NULL;

  seconds := coalesce((SELECT min(w) FROM unnest(ARRAY[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800]) w
                       WHERE extract(epoch FROM end_time - begin_time) / w <= 60), 86400);
  EXECUTE format(
    'WITH known AS MATERIALIZED (
       SELECT oid AS datid, datname::text FROM pg_database WHERE $3 = 1
       UNION ALL
       SELECT DISTINCT ON (datid) datid, datname FROM awr.database_stat
       WHERE instance_id = $3 AND datname IS NOT NULL AND ($3 <> 1 OR datid NOT IN (SELECT oid FROM pg_database))),
     role_name AS MATERIALIZED (
       SELECT oid, rolname::text FROM pg_roles WHERE $3 = 1
       UNION ALL
       (SELECT DISTINCT ON (object) object, name FROM awr.object_name
        WHERE instance_id = $3 AND class = ''role'' AND ($3 <> 1 OR object NOT IN (SELECT oid FROM pg_roles)) ORDER BY object, snap_id DESC)),
     s AS MATERIALIZED (
       SELECT coalesce(a.wait_event, ''CPU'') AS event, a.wait_class AS class, a.query_id, a.plan_hash AS plan_id, coalesce(k.datname, a.database::text) AS database,
              coalesce(r.rolname, a.role::text) AS role, a.application, a.consumer_group, a.client, a.backend_type, a.state, a.blocker_pid, a.pid, a.temp_bytes,
              a.backend_start AS session_start, a.sample_time, a.period_ms * 1000::numeric AS us,
              a.backend_type IN (''client backend'', ''parallel worker'') AS foreground
       FROM awr.active_session_history a LEFT JOIN known k ON k.datid = a.database LEFT JOIN role_name r ON r.oid = a.role
       WHERE a.instance_id = $3 AND a.chunk_end >= $1 AND a.chunk_begin < $2 AND a.sample_time >= $1 AND a.sample_time < $2),
     h AS MATERIALIZED (SELECT * FROM s WHERE true %1$s),
     slot_event AS MATERIALIZED (
       SELECT date_bin(%2$s * interval ''1 second'', sample_time, ''2000-01-01 00:00:00+00'') AS t, event, class, count(*) AS samples, sum(us) AS time_us,
              round(sqrt(sum(us * us))) AS stderr_us, row_number() OVER (PARTITION BY date_bin(%2$s * interval ''1 second'', sample_time, ''2000-01-01 00:00:00+00'') ORDER BY count(*) DESC, event) AS place
       FROM h GROUP BY 1, 2, 3)
     SELECT jsonb_build_object(
       ''samples'', (SELECT count(*) FROM h),
       ''time_us'', (SELECT coalesce(sum(us), 0) FROM h),
       ''stderr_us'', (SELECT round(sqrt(coalesce(sum(us * us), 0))) FROM h),
       ''foreground_us'', (SELECT coalesce(sum(us), 0) FROM h WHERE foreground),
       ''period_us'', (SELECT max(us) FROM s),
       ''slots'', (SELECT jsonb_agg(jsonb_build_object(
                     ''time'', greatest(t, $1), ''duration_us'', (extract(epoch FROM least(t + %2$s * interval ''1 second'', $2) - greatest(t, $1)) * 1e6)::bigint,
                     ''samples'', (SELECT coalesce(sum(e.samples), 0) FROM slot_event e WHERE e.t = g.t),
                     ''by_class'', (SELECT coalesce(jsonb_object_agg(class, us), ''{}'') FROM (SELECT class, sum(time_us) AS us FROM slot_event e WHERE e.t = g.t GROUP BY 1) c),
                     ''events'', (SELECT jsonb_agg(to_jsonb(e) - ''t'' - ''place'' ORDER BY place) FROM slot_event e WHERE e.t = g.t AND place <= 3)) ORDER BY t)
                   FROM generate_series(date_bin(%2$s * interval ''1 second'', $1, ''2000-01-01 00:00:00+00''), $2 - interval ''1 microsecond'', %2$s * interval ''1 second'') g (t)),
       %3$s)',
    conditions, seconds, lists)
    INTO result USING begin_time, end_time, instance;

  -- The server takes samples from the creation of the extension on; the retention drops them.
  covered_begin := greatest(begin_time, least((SELECT min(c.begin_time) FROM awr.sample_chunk c WHERE c.instance_id = instance),
                                              (SELECT min(p.end_time) FROM awr.snapshot p WHERE p.instance_id = instance)));
  covered_end := least(end_time, CASE WHEN instance = 1 THEN clock_timestamp()
                                      ELSE (SELECT max(p.end_time) FROM awr.snapshot p WHERE p.instance_id = instance) END);

  RETURN jsonb_strip_nulls(jsonb_build_object(
    'format', 1,
    'kind', 'ash',
    'instance', coalesce((SELECT jsonb_build_object('id', i.instance_id, 'name', i.name, 'system_identifier', i.system_identifier::text)
                          FROM awr.instance i WHERE i.instance_id = instance),
                         jsonb_build_object('id', instance, 'name', coalesce(nullif(current_setting('cluster_name'), ''), 'local')))
                || coalesce(CASE WHEN instance = 1 THEN awr.get_facts()
                                 ELSE (SELECT s.facts FROM awr.snapshot s WHERE s.instance_id = instance ORDER BY s.snap_id DESC LIMIT 1) END
                            - ARRAY['system_identifier', 'incarnation', 'uptime_us', 'day', 'sessions', 'startup_time', 'wal_lsn', 'open_us', 'on_cell', 'time'], '{}')
                || jsonb_build_object('cpus', (SELECT o.value::int FROM awr.os_stat o
                                               WHERE o.instance_id = instance AND o.name = 'NUM_CPUS' ORDER BY o.snap_id DESC LIMIT 1)),
    'begin', jsonb_build_object('time', begin_time),
    'end', jsonb_build_object('time', end_time),
    'elapsed_us', (extract(epoch FROM end_time - begin_time) * 1e6)::bigint,
    'notes', (SELECT jsonb_agg(jsonb_build_object('snap_id', n.snap_id, 'time', p.end_time, 'kind', n.kind, 'object', n.object, 'text', n.description) ORDER BY n.snap_id)
              FROM awr.note n JOIN awr.snapshot p USING (snap_day, snap_id, instance_id)
              WHERE n.instance_id = instance AND p.begin_time < ash_data.end_time AND p.end_time > ash_data.begin_time
                AND n.kind IN ('server restart', 'host restart', 'crash', 'clock step', 'upgrade')),
    'history', result || jsonb_build_object(
      'dimensions', to_jsonb(dimensions),
      'covered_us', CASE WHEN covered_end > covered_begin THEN (extract(epoch FROM covered_end - covered_begin) * 1e6)::bigint END,
      'covered_begin', covered_begin, 'covered_end', covered_end,
      'lost', (SELECT sum(c.lost) FROM awr.sample_chunk c
               WHERE c.instance_id = instance AND c.end_time >= ash_data.begin_time AND c.begin_time < ash_data.end_time),
      'filters', (SELECT jsonb_agg(jsonb_build_object('dimension', f.key, 'value', f.value #>> '{}')) FROM jsonb_each(filters) f)),
    -- Texts that the AWR worker has not stored yet are in shared memory.
    'statements', (SELECT jsonb_agg(jsonb_build_object('query_id', t.query_id, 'text', t.query))
                   FROM (SELECT DISTINCT ON (q.query_id) q.query_id, q.query
                         FROM (SELECT t.query_id, t.query, true AS stored FROM awr.query_text t WHERE t.instance_id = instance
                               UNION ALL
                               SELECT g.query_id, g.query, false FROM awr.get_plans() g WHERE instance = 1) q
                         ORDER BY q.query_id, q.stored DESC) t
                   WHERE t.query_id IN (SELECT (e ->> 'query_id')::bigint FROM jsonb_array_elements(coalesce(result -> 'top_sql', '[]') || coalesce(result -> 'groups', '[]')) e))));
END
$$ LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET default_tablespace = ''
SET default_table_access_method = heap
SET standard_conforming_strings = on
SET transform_null_equals = off;

COMMENT ON FUNCTION awr.ash_data(timestamptz, timestamptz, text[], jsonb, integer) IS
  'everything that an ASH report about an interval shows, as one document';

CREATE FUNCTION awr.ash_report(
  begin_time timestamptz DEFAULT now() - interval '15 minutes', end_time timestamptz DEFAULT now(), format text DEFAULT 'text',
  dimensions text[] DEFAULT '{}', filters jsonb DEFAULT '{}', instance integer DEFAULT 1)
RETURNS text
AS $$
  SELECT awr.render(awr.ash_data(begin_time, end_time, dimensions, filters, instance), NULL, format)
$$ LANGUAGE sql STABLE STRICT SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET default_tablespace = ''
SET default_table_access_method = heap
SET standard_conforming_strings = on
SET transform_null_equals = off;

COMMENT ON FUNCTION awr.ash_report(timestamptz, timestamptz, text, text[], jsonb, integer) IS
  'the report about the session samples of an interval; format text, html or json';

-- ---- Reports about one statement ----

-- Whether two identifiers differ in at most two consecutive characters
CREATE FUNCTION awr.is_similar(a text, b text)
RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (SELECT coalesce(min(i) FILTER (WHERE substr(a, i, 1) <> substr(b, i, 1)), count(*) + 1)
               + coalesce(min(i) FILTER (WHERE substr(reverse(a), i, 1) <> substr(reverse(b), i, 1)), count(*) + 1)
        FROM generate_series(1, least(length(a), length(b))) i) >= greatest(length(a), length(b));

COMMENT ON FUNCTION awr.is_similar(text, text) IS 'for internal use by awr.refuse_statement';

-- Raises the error for a statement without executions and samples in a period.
CREATE FUNCTION awr.refuse_statement(query_id bigint, begin_snap bigint, end_snap bigint, instance integer)
RETURNS void
AS $$
DECLARE
  existing text;
  other text;
BEGIN
  SELECT 'Statistics of the statement exist in AWR snapshots '
         || string_agg(CASE WHEN first_snap < last_snap THEN first_snap || '-' || last_snap ELSE first_snap::text END, ', ' ORDER BY first_snap) || '.'
    INTO existing
    FROM (SELECT min(s.snap_id) AS first_snap, max(s.snap_id) AS last_snap
          FROM (SELECT s.snap_id, p.found, row_number() OVER (ORDER BY s.snap_id) - row_number() OVER (PARTITION BY p.found ORDER BY s.snap_id) AS run
                FROM awr.snapshot s
                     CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM awr.plan_stat t
                                                        WHERE t.instance_id = instance AND t.snap_day = s.snap_day AND t.snap_id = s.snap_id
                                                          AND t.query_id = refuse_statement.query_id) AS found) p
                WHERE s.instance_id = instance) s
          WHERE s.found GROUP BY s.run) r;
  IF existing IS NULL THEN
    WITH s AS MATERIALIZED (
      SELECT p.query_id, sum(p.elapsed_us) AS elapsed_us FROM awr.plan_stat p
      WHERE p.instance_id = instance AND p.snap_id > begin_snap AND p.snap_id <= end_snap AND p.query_id <> 0 AND p.calls > 0 GROUP BY 1)
    SELECT coalesce(
             (SELECT 'Similar identifiers: ' || string_agg(c.sql_id || ' (' || c.query_id || ')', ', ' ORDER BY c.elapsed_us DESC) || '.'
              FROM (SELECT awr.sql_id(s.query_id) AS sql_id, s.query_id, s.elapsed_us FROM s
                    WHERE awr.is_similar(s.query_id::text, refuse_statement.query_id::text)
                       OR awr.is_similar(awr.sql_id(s.query_id), awr.sql_id(refuse_statement.query_id))
                    ORDER BY s.elapsed_us DESC LIMIT 5) c),
             (SELECT 'Statements with the most elapsed time in the period: ' || string_agg(c.sql_id || ' (' || c.query_id || ')', ', ' ORDER BY c.elapsed_us DESC) || '.'
              FROM (SELECT awr.sql_id(s.query_id) AS sql_id, s.query_id, s.elapsed_us FROM s ORDER BY s.elapsed_us DESC LIMIT 5) c),
             'The extension counted no statement in the period. Set "cellar.awr_track_statements" to on: pg_stat_statements has no plans.')
      INTO other;
  END IF;
  RAISE EXCEPTION 'statement % (query identifier %) has no executions and no session samples between AWR snapshots % and %',
      awr.sql_id(query_id), query_id, begin_snap, end_snap
    USING ERRCODE = 'undefined_object', DETAIL = coalesce(existing, other);
END
$$ LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.refuse_statement(bigint, bigint, bigint, integer) IS 'for internal use by awr.sql_data';

CREATE FUNCTION awr.sql_data(query_id bigint, begin_snap bigint DEFAULT NULL, end_snap bigint DEFAULT NULL, instance integer DEFAULT 1)
RETURNS jsonb
AS $$
DECLARE
  first awr.snapshot;
  last awr.snapshot;
  first_snap bigint := begin_snap;
  last_snap bigint := end_snap;
  statements jsonb;
  samples jsonb;
BEGIN
  IF query_id IS NULL OR instance IS NULL THEN
    RETURN NULL;
  END IF;
  IF first_snap IS NULL OR last_snap IS NULL THEN
    SELECT coalesce(end_snap, max(s.snap_id)) INTO last_snap FROM awr.snapshot s WHERE s.instance_id = instance;
    SELECT coalesce(begin_snap, max(s.snap_id) FILTER (WHERE s.begin_time IS NULL AND s.snap_id < last_snap), min(s.snap_id)) INTO first_snap
      FROM awr.snapshot s WHERE s.instance_id = instance;
    IF first_snap IS NULL OR first_snap = last_snap AND begin_snap IS NULL AND end_snap IS NULL THEN
      RAISE EXCEPTION 'not enough AWR snapshots'
        USING ERRCODE = 'object_not_in_prerequisite_state',
              DETAIL = format('A period begins and ends with an AWR snapshot; instance %s has %s.', instance, CASE WHEN first_snap IS NULL THEN 'none' ELSE 'one' END),
              HINT = 'SELECT awr.create_snapshot() takes an AWR snapshot.';
    END IF;
  END IF;
  PERFORM awr.check_period(first_snap, last_snap, instance);
  PERFORM awr.check_increases(first_snap, last_snap, instance);
  SELECT * INTO first FROM awr.snapshot s WHERE s.instance_id = instance AND s.snap_id = first_snap;
  SELECT * INTO last FROM awr.snapshot s WHERE s.instance_id = instance AND s.snap_id = last_snap;

  SELECT jsonb_agg(to_jsonb(p) - 'dbid' || jsonb_build_object('how', 'timed',
           'database', (SELECT d.datname FROM awr.database_stat d
                        WHERE d.instance_id = instance AND d.datid = p.dbid AND d.snap_day <= last.snap_day AND d.snap_id <= last_snap AND d.datname IS NOT NULL
                        ORDER BY d.snap_day DESC, d.snap_id DESC LIMIT 1),
           'text', (SELECT t.query FROM awr.query_text t WHERE t.instance_id = instance AND t.query_id = sql_data.query_id)))
    INTO statements
    FROM (SELECT p.database AS dbid, max(p.rolname) AS "user", p.query_id, p.plan_id, sum(p.calls) AS calls, sum(p.elapsed_us) AS elapsed_us,
                 sum(p.cpu_us) AS cpu_us, sum(p.run_queue_us) AS run_queue_us, sum(p.plans) AS plans, sum(p.plan_us) AS plan_us, sum(p.parses) AS parses,
                 sum(p.parse_us) AS parse_us, sum(p.rows) AS rows,
                 sum(p.shared_blks_hit) AS shared_blks_hit, sum(p.shared_blks_read) AS shared_blks_read,
                 sum(p.shared_blks_dirtied) AS shared_blks_dirtied, sum(p.shared_blks_written) AS shared_blks_written,
                 sum(p.temp_blks_read) AS temp_blks_read, sum(p.temp_blks_written) AS temp_blks_written,
                 sum(p.blk_read_us) AS blk_read_us, sum(p.blk_write_us) AS blk_write_us,
                 sum(p.wal_records) AS wal_records, sum(p.wal_fpi) AS wal_fpi, sum(p.wal_bytes) AS wal_bytes,
                 sum(p.eligible_bytes) AS eligible_bytes, sum(p.saved_bytes) AS saved_bytes, sum(p.returned_bytes) AS returned_bytes,
                 sum(p.optimized_bytes) AS optimized_bytes, max(p.max_us) AS max_us
          FROM awr.plan_stat p
          WHERE p.instance_id = instance AND p.query_id = sql_data.query_id AND p.query_id <> 0
            AND p.snap_day BETWEEN first.snap_day AND last.snap_day AND p.snap_id > first_snap AND p.snap_id <= last_snap
          GROUP BY p.database, p.role, p.query_id, p.plan_id) p;

  -- The statement's time also contains waits that count as idle, such as pg_sleep(). Only the columns of sample_chunk that
  -- are necessary are read, and only of the minutes in which the statement was sampled.
  WITH s AS MATERIALIZED (
    SELECT nullif(s.plan_hash, 0) AS plan_id, coalesce(e.word, 'CPU') AS event,
           awr.wait_class(et.word, e.word, b.word IN ('client backend', 'parallel worker')) AS class, s.pid, c.period_ms * 1000::numeric AS us
    FROM awr.sample_chunk c
         CROSS JOIN LATERAL unnest(c.sample_ms, c.pid, c.backend_type, c.state, c.wait_event_type, c.wait_event, c.query_id, c.plan_hash)
           AS s (ms, pid, backend_type, state, wait_event_type, wait_event, query_id, plan_hash)
         LEFT JOIN awr.word b ON b.id = s.backend_type LEFT JOIN awr.word st ON st.id = s.state
         LEFT JOIN awr.word et ON et.id = s.wait_event_type LEFT JOIN awr.word e ON e.id = s.wait_event
    WHERE c.instance_id = instance AND c.end_time > first.end_time AND c.begin_time <= last.end_time
      AND c.query_id @> ARRAY[sql_data.query_id] AND s.query_id = sql_data.query_id AND s.query_id <> 0
      AND c.begin_time + s.ms * interval '1 millisecond' > first.end_time AND c.begin_time + s.ms * interval '1 millisecond' <= last.end_time
      AND st.word NOT LIKE 'idle in transaction%')
  SELECT jsonb_build_object(
           'samples', (SELECT count(*) FROM s),
           'time_us', (SELECT sum(us) FROM s),
           'stderr_us', (SELECT round(sqrt(sum(us * us))) FROM s),
           'period_us', (SELECT max(us) FROM s),
           'lost', (SELECT sum(c.lost) FROM awr.sample_chunk c
                    WHERE c.instance_id = instance AND c.end_time > first.end_time AND c.begin_time <= last.end_time),
           'groups', (SELECT jsonb_agg(x ORDER BY x.samples DESC, x.plan_id, x.event)
                      FROM (SELECT plan_id, event, class, count(*) AS samples, sum(us) AS time_us, round(sqrt(sum(us * us))) AS stderr_us,
                                   count(DISTINCT pid) AS sessions
                            FROM s GROUP BY 1, 2, 3) x))
    INTO samples;
  IF statements IS NULL AND samples ->> 'samples' = '0' THEN
    PERFORM awr.refuse_statement(query_id, first_snap, last_snap, instance);
  END IF;

  RETURN jsonb_strip_nulls(jsonb_build_object(
    'format', 1,
    'kind', 'sql',
    'instance', (SELECT jsonb_build_object('id', i.instance_id, 'name', i.name, 'system_identifier', i.system_identifier::text) FROM awr.instance i WHERE i.instance_id = instance)
                || (last.facts - ARRAY['system_identifier', 'incarnation', 'uptime_us', 'day', 'sessions', 'startup_time', 'wal_lsn'])
                || jsonb_build_object('startup_time', last.startup_time,
                     'cpus', (SELECT o.value::int FROM awr.os_stat o WHERE o.instance_id = instance AND o.snap_day = last.snap_day AND o.snap_id = last_snap AND o.name = 'NUM_CPUS'),
                     'memory_bytes', (SELECT o.value::bigint FROM awr.os_stat o WHERE o.instance_id = instance AND o.snap_day = last.snap_day AND o.snap_id = last_snap AND o.name = 'PHYSICAL_MEMORY_BYTES')),
    'begin', jsonb_build_object('snap_id', first_snap, 'time', first.end_time, 'sessions', first.facts -> 'sessions'),
    'end', jsonb_build_object('snap_id', last_snap, 'time', last.end_time, 'sessions', last.facts -> 'sessions'),
    'snapshots', (SELECT jsonb_agg(jsonb_build_object('snap_id', s.snap_id, 'time', s.end_time, 'elapsed_us', s.elapsed_us) ORDER BY s.snap_id)
                  FROM awr.snapshot s WHERE s.instance_id = instance AND s.snap_id > first_snap AND s.snap_id <= last_snap),
    'elapsed_us', (SELECT sum(s.elapsed_us) FROM awr.snapshot s WHERE s.instance_id = instance AND s.snap_id > first_snap AND s.snap_id <= last_snap),
    'db_time_us', (SELECT round(sum(d.active_time) * 1000) FROM awr.database_stat d
                   WHERE d.instance_id = instance AND d.snap_day BETWEEN first.snap_day AND last.snap_day AND d.snap_id > first_snap AND d.snap_id <= last_snap),
    'notes', (SELECT jsonb_agg(jsonb_build_object('snap_id', n.snap_id, 'time', s.end_time, 'kind', n.kind, 'object', n.object, 'text', n.description) ORDER BY n.snap_id)
              FROM awr.note n JOIN awr.snapshot s USING (snap_day, snap_id, instance_id)
              WHERE n.instance_id = instance AND n.snap_id > first_snap AND n.snap_id <= last_snap
                AND (n.kind IN ('server restart', 'host restart', 'crash', 'clock step', 'upgrade', 'texts lost') OR n.object = 'plan_stat')),
    'statement', jsonb_build_object('query_id', query_id,
                   'text', (SELECT t.query FROM awr.query_text t WHERE t.instance_id = instance AND t.query_id = sql_data.query_id)),
    'statements', statements,
    'plans', (SELECT jsonb_agg(jsonb_build_object('query_id', t.query_id, 'plan_id', t.plan_id, 'text', t.plan))
              FROM awr.plan_text t WHERE t.instance_id = instance AND t.query_id = sql_data.query_id),
    -- Earlier intervals, too: they show whether the plan or the time changed in the first interval of the period.
    'plan_history', (SELECT jsonb_agg(jsonb_build_object('snap_id', h.snap_id, 'time', s.begin_time, 'query_id', query_id, 'plan_id', h.plan_id,
                                        'calls', h.calls, 'elapsed_us', h.elapsed_us, 'cpu_us', h.cpu_us, 'logical_reads', h.logical_reads, 'physical_reads', h.physical_reads)
                                      ORDER BY h.snap_id, h.plan_id)
                     FROM (SELECT p.snap_id, p.plan_id, sum(p.calls) AS calls, sum(p.elapsed_us) AS elapsed_us, sum(p.cpu_us) AS cpu_us,
                                  sum(p.shared_blks_hit + p.shared_blks_read + coalesce(p.eligible_bytes, 0) / coalesce((last.facts ->> 'block_size')::int, 8192)) AS logical_reads,
                                  sum(p.shared_blks_read + coalesce(p.eligible_bytes, 0) / coalesce((last.facts ->> 'block_size')::int, 8192)) AS physical_reads
                           FROM awr.plan_stat p
                           WHERE p.instance_id = instance AND p.query_id = sql_data.query_id AND p.query_id <> 0
                             AND p.snap_day <= last.snap_day AND p.snap_id <= last_snap AND p.calls > 0
                           GROUP BY 1, 2) h
                          JOIN awr.snapshot s ON s.instance_id = instance AND s.snap_id = h.snap_id),
    'history', samples));
END
$$ LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET default_tablespace = ''
SET default_table_access_method = heap
SET standard_conforming_strings = on
SET transform_null_equals = off;

COMMENT ON FUNCTION awr.sql_data(bigint, bigint, bigint, integer) IS
  'everything that an SQL report about a statement shows, as one document; by default about all AWR snapshots';

CREATE FUNCTION awr.sql_report(
  query_id bigint, begin_snap bigint DEFAULT NULL, end_snap bigint DEFAULT NULL, format text DEFAULT 'text', instance integer DEFAULT 1)
RETURNS text
AS $$
  SELECT awr.render(awr.sql_data(query_id, begin_snap, end_snap, instance), NULL, format)
$$ LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET default_tablespace = ''
SET default_table_access_method = heap
SET standard_conforming_strings = on
SET transform_null_equals = off;

COMMENT ON FUNCTION awr.sql_report(bigint, bigint, bigint, text, integer) IS
  'the report about one statement over AWR snapshots, by default all of them; format text, html or json';

-- ---- Import ----

-- Merges the contents of an export file into the repository. The command "cellar awr import" has copied each table X of the
-- file to a temporary table awr_import_X. An instance is identified by system identifier and name; a snapshot by instance and
-- number. Snapshots that the repository contains are left unchanged. Returns one row per instance of the file.
CREATE FUNCTION awr.merge_import(
  OUT instance_id integer, OUT instance text, OUT snapshots bigint, OUT first_snap bigint, OUT last_snap bigint)
RETURNS SETOF record
AS $$
#variable_conflict use_column
DECLARE
  i record;
  wrong record;
  t name;
  columns text;
  words int[];
  today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
BEGIN
  LOCK TABLE awr.word IN SHARE UPDATE EXCLUSIVE MODE;
  LOCK TABLE awr.plan_text IN SHARE UPDATE EXCLUSIVE MODE;
  LOCK TABLE awr.instance IN SHARE UPDATE EXCLUSIVE MODE;

  CREATE TEMP TABLE awr_import_target (file_instance int PRIMARY KEY, instance_id int, name text) ON COMMIT DROP;
  FOR i IN SELECT * FROM pg_temp.awr_import_instance f ORDER BY f.instance_id LOOP
    -- A name that another cluster has got the system identifier as suffix.
    INSERT INTO pg_temp.awr_import_target
      SELECT i.instance_id, k.instance_id, k.name FROM awr.instance k
      WHERE k.system_identifier = i.system_identifier AND k.name IN (i.name, format('%s (%s)', i.name, i.system_identifier));
    IF NOT FOUND THEN
      WITH added AS (
        INSERT INTO awr.instance
          SELECT greatest(1, (SELECT max(k.instance_id) FROM awr.instance k)) + 1,
                 CASE WHEN EXISTS (SELECT FROM awr.instance k WHERE k.name = i.name) THEN format('%s (%s)', i.name, i.system_identifier) ELSE i.name END,
                 i.system_identifier, false
          RETURNING *)
      INSERT INTO pg_temp.awr_import_target SELECT i.instance_id, a.instance_id, a.name FROM added a;
    END IF;
  END LOOP;

  SELECT g.name, s.snap_id INTO wrong
    FROM pg_temp.awr_import_snapshot s JOIN pg_temp.awr_import_target g ON g.file_instance = s.instance_id
         JOIN awr.snapshot k ON k.instance_id = g.instance_id
    WHERE CASE WHEN k.snap_id = s.snap_id THEN k.end_time <> s.end_time ELSE (k.snap_id < s.snap_id) <> (k.end_time < s.end_time) END
    LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'AWR snapshot % of instance "%" contradicts the snapshots in the repository', wrong.snap_id, wrong.name
      USING ERRCODE = 'object_not_in_prerequisite_state',
            DETAIL = 'Two repositories have numbered the AWR snapshots of this instance independently.',
            HINT = 'Import the file into another database with the extension cellar.';
  END IF;

  CREATE TEMP TABLE awr_import_new ON COMMIT DROP AS
    SELECT s.instance_id AS file_instance, g.instance_id, s.snap_id, s.snap_day
    FROM pg_temp.awr_import_snapshot s JOIN pg_temp.awr_import_target g ON g.file_instance = s.instance_id
    WHERE NOT EXISTS (SELECT FROM awr.snapshot k WHERE k.instance_id = g.instance_id AND k.snap_id = s.snap_id);
  PERFORM awr.create_partitions(d.snap_day)
    FROM (SELECT n.snap_day FROM pg_temp.awr_import_new n UNION SELECT c.snap_day FROM pg_temp.awr_import_sample_chunk c) d;

  FOR t IN SELECT relname FROM pg_class WHERE relnamespace = 'awr'::regnamespace AND relkind = 'p' AND relname NOT IN ('sample_chunk', 'sample_day', 'sample_day_event') LOOP
    CONTINUE WHEN to_regclass('pg_temp.awr_import_' || t) IS NULL;
    SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) INTO columns
      FROM pg_attribute
      WHERE attrelid = ('awr.' || t)::regclass AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('snap_day', 'snap_id', 'instance_id');
    EXECUTE format('INSERT INTO awr.%1$I (snap_day, snap_id, instance_id, %2$s)
                    SELECT n.snap_day, n.snap_id, n.instance_id, %3$s
                    FROM pg_temp.%4$I f JOIN pg_temp.awr_import_new n ON n.file_instance = f.instance_id AND n.snap_id = f.snap_id',
                   t, columns, (SELECT string_agg('f.' || c, ', ' ORDER BY o) FROM regexp_split_to_table(columns, ', ') WITH ORDINALITY x (c, o)), 'awr_import_' || t);
  END LOOP;

  -- The sums of a day that gets AWR snapshots are not valid any more; awr.sum_samples() computes them again.
  DELETE FROM awr.sample_day d USING pg_temp.awr_import_new n WHERE d.snap_day = n.snap_day AND d.instance_id = n.instance_id;
  DELETE FROM awr.sample_day_event e USING (SELECT DISTINCT snap_day, instance_id FROM pg_temp.awr_import_new) n
    WHERE e.snap_day = n.snap_day AND e.instance_id = n.instance_id;

  -- Texts of session samples get the numbers of this repository: element i is the number of the file's word i.
  INSERT INTO awr.word (word, last_day) SELECT w.word, today FROM pg_temp.awr_import_word w
    ON CONFLICT (word) DO UPDATE SET last_day = excluded.last_day;
  SELECT array_agg(k.id ORDER BY w.id) INTO words FROM pg_temp.awr_import_word w JOIN awr.word k USING (word);
  INSERT INTO awr.sample_chunk
    SELECT c.snap_day, g.instance_id, c.begin_time, c.end_time, c.period_ms, c.ticks, c.lost, c.sample_ms, c.pid, c.session_ms, c.leader_pid,
           c.blocker_pid, c.database, c.role,
           ARRAY(SELECT words[w] FROM unnest(c.application) WITH ORDINALITY u (w, o) ORDER BY o),
           ARRAY(SELECT words[w] FROM unnest(c.client) WITH ORDINALITY u (w, o) ORDER BY o),
           ARRAY(SELECT words[w] FROM unnest(c.backend_type) WITH ORDINALITY u (w, o) ORDER BY o),
           ARRAY(SELECT words[w] FROM unnest(c.state) WITH ORDINALITY u (w, o) ORDER BY o),
           ARRAY(SELECT words[w] FROM unnest(c.wait_event_type) WITH ORDINALITY u (w, o) ORDER BY o),
           ARRAY(SELECT words[w] FROM unnest(c.wait_event) WITH ORDINALITY u (w, o) ORDER BY o),
           c.query_id, coalesce(c.plan_hash, array_fill(0::bigint, ARRAY[cardinality(c.pid)])), c.xact_age_us, c.query_age_us,
           coalesce(c.temp_bytes, array_fill(-1::bigint, ARRAY[cardinality(c.pid)])),
           CASE WHEN c.consumer_group IS NOT NULL THEN ARRAY(SELECT words[w] FROM unnest(c.consumer_group) WITH ORDINALITY u (w, o) ORDER BY o) END,
           coalesce(c.snap_id, 0)
    FROM pg_temp.awr_import_sample_chunk c JOIN pg_temp.awr_import_target g ON g.file_instance = c.instance_id
    WHERE NOT EXISTS (SELECT FROM awr.sample_chunk k WHERE k.instance_id = g.instance_id AND k.snap_day = c.snap_day AND k.begin_time = c.begin_time);

  INSERT INTO awr.query_text AS k
    SELECT g.instance_id, f.query_id, f.query, f.is_normalized, f.last_day
    FROM pg_temp.awr_import_query_text f JOIN pg_temp.awr_import_target g ON g.file_instance = f.instance_id
    ON CONFLICT ON CONSTRAINT query_text_pkey DO UPDATE
      SET query = CASE WHEN k.is_normalized THEN k.query ELSE excluded.query END,
          is_normalized = k.is_normalized OR excluded.is_normalized, last_day = greatest(k.last_day, excluded.last_day);
  INSERT INTO awr.plan_text AS k
    SELECT g.instance_id, f.plan_id, f.query_id, f.plan, f.last_day
    FROM pg_temp.awr_import_plan_text f JOIN pg_temp.awr_import_target g ON g.file_instance = f.instance_id
    ON CONFLICT ON CONSTRAINT plan_text_pkey DO UPDATE SET last_day = greatest(k.last_day, excluded.last_day);

  -- Baselines of the file keep their names unless a baseline here has the name.
  INSERT INTO awr.baseline
    SELECT b.name, g.instance_id, b.begin_snap, b.end_snap, b.first_day, b.last_day
    FROM pg_temp.awr_import_baseline b JOIN pg_temp.awr_import_target g ON g.file_instance = b.instance_id
    ON CONFLICT (name) DO NOTHING;
  -- One more baseline per instance keeps what was imported from the retention until the baseline is dropped.
  INSERT INTO awr.baseline AS b
    SELECT 'import of ' || g.name, g.instance_id, min(n.snap_id), max(n.snap_id), min(n.snap_day), max(n.snap_day)
    FROM pg_temp.awr_import_new n JOIN pg_temp.awr_import_target g USING (instance_id)
    GROUP BY g.name, g.instance_id
    ON CONFLICT (name) DO UPDATE
      SET begin_snap = least(b.begin_snap, excluded.begin_snap), end_snap = greatest(b.end_snap, excluded.end_snap),
          first_day = least(b.first_day, excluded.first_day), last_day = greatest(b.last_day, excluded.last_day);

  RETURN QUERY
    SELECT g.instance_id, g.name, count(n), min(n.snap_id), max(n.snap_id)
    FROM pg_temp.awr_import_target g LEFT JOIN pg_temp.awr_import_new n USING (instance_id)
    GROUP BY g.instance_id, g.name ORDER BY g.instance_id;
END
$$ LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION awr.merge_import() IS 'for internal use by the command cellar awr import';

-- ---- CELL_FLASH_CACHE ----

-- Settings of relations, written by cellar.set_flash_cache. An index is named by its table and its name: when pg_dump restores the
-- rows, the indexes do not exist yet.
CREATE TABLE cellar.flash_cache_setting (
  relation regclass NOT NULL,
  index name NOT NULL DEFAULT '',
  setting text NOT NULL CHECK (setting IN ('DEFAULT', 'KEEP', 'NONE')),
  PRIMARY KEY (relation, index)
);
COMMENT ON TABLE cellar.flash_cache_setting IS
  'settings of the flash cache as set by cellar.set_flash_cache; the view cellar.flash_cache_settings also has those that are inherited';
COMMENT ON COLUMN cellar.flash_cache_setting.index IS 'name of an index of the relation, or empty for the relation itself';
SELECT pg_catalog.pg_extension_config_dump('cellar.flash_cache_setting', '');

CREATE TABLE cellar.flash_cache_tablespace_setting (
  tablespace name PRIMARY KEY,
  setting text NOT NULL CHECK (setting IN ('DEFAULT', 'KEEP', 'NONE'))
);
COMMENT ON TABLE cellar.flash_cache_tablespace_setting IS
  'settings of the flash cache for the relations of this database in a tablespace, as set by cellar.set_tablespace_flash_cache';
SELECT pg_catalog.pg_extension_config_dump('cellar.flash_cache_tablespace_setting', '');

-- The setting of every relation that has one: its own, or else that of its nearest parent, or of its tablespace. A TOAST table and
-- its index have that of the table.
CREATE VIEW cellar.flash_cache_settings AS
  WITH RECURSIVE own (relation, setting) AS (
    SELECT s.relation::oid, s.setting FROM cellar.flash_cache_setting s WHERE s.index = ''
    UNION ALL
    SELECT c.oid, s.setting
    FROM cellar.flash_cache_setting s
         JOIN pg_catalog.pg_index i ON i.indrelid = s.relation
         JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid AND c.relname = s.index
  ), member (relation, set_for, setting, distance) AS (
    SELECT relation, relation, setting, 0 FROM own
    UNION ALL
    SELECT i.inhrelid, m.set_for, m.setting, m.distance + 1
    FROM member m JOIN pg_catalog.pg_inherits i ON i.inhparent = m.relation
  ), nearest AS (
    SELECT DISTINCT ON (relation) relation, set_for, setting FROM member ORDER BY relation, distance, set_for
  ), by_relation AS (
    SELECT relation, set_for, setting FROM nearest
    UNION ALL
    SELECT t.oid, n.set_for, n.setting
    FROM nearest n
         JOIN pg_catalog.pg_class c ON c.oid = n.relation AND c.reltoastrelid <> 0,
         LATERAL (SELECT c.reltoastrelid UNION ALL
                  SELECT indexrelid FROM pg_catalog.pg_index WHERE indrelid = c.reltoastrelid) t (oid)
  ), by_tablespace AS (
    SELECT t.oid, s.tablespace, s.setting
    FROM cellar.flash_cache_tablespace_setting s JOIN pg_catalog.pg_tablespace t ON t.spcname = s.tablespace
  )
  SELECT c.oid::regclass AS relation, coalesce(r.setting, t.setting) AS setting, r.set_for::regclass AS set_for,
         CASE WHEN r.relation IS NULL THEN t.tablespace END AS tablespace
  FROM pg_catalog.pg_class c
       LEFT JOIN by_relation r ON r.relation = c.oid
       LEFT JOIN by_tablespace t ON t.oid = CASE WHEN c.reltablespace <> 0 THEN c.reltablespace ELSE
         (SELECT dattablespace FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) END
  WHERE c.relkind IN ('r', 'm', 'p', 'i', 'I', 't') AND c.relpersistence <> 't' AND c.oid >= 16384
        AND coalesce(r.setting, t.setting) IS NOT NULL;

COMMENT ON VIEW cellar.flash_cache_settings IS
  'CELL_FLASH_CACHE of every relation for which it was set: by itself, a parent table, its table or its tablespace';
COMMENT ON COLUMN cellar.flash_cache_settings.set_for IS 'the relation that the setting was set for; NULL if it is that of the tablespace';

CREATE FUNCTION cellar.apply_flash_cache(relation oid, setting text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'cellar_apply_flash_cache'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cellar.apply_flash_cache(oid, text) IS
  'for internal use: gives the files of a relation a setting of the flash cache';

CREATE FUNCTION cellar.store_flash_cache(relation oid, setting text)
RETURNS void
AS $$
DECLARE
  place record;
BEGIN
  SELECT coalesce(i.indrelid, c.oid)::regclass AS relation, CASE WHEN i.indrelid IS NULL THEN '' ELSE c.relname END::name AS index
    INTO place FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid WHERE c.oid = store_flash_cache.relation;
  IF store_flash_cache.setting IS NULL THEN
    DELETE FROM cellar.flash_cache_setting s WHERE s.relation = place.relation AND s.index = place.index;
  ELSE
    INSERT INTO cellar.flash_cache_setting VALUES (place.relation, place.index, store_flash_cache.setting)
      ON CONFLICT ON CONSTRAINT flash_cache_setting_pkey DO UPDATE SET setting = excluded.setting;
  END IF;
  PERFORM cellar.apply_flash_cache(x.oid, coalesce(s.setting, 'DEFAULT'))
    FROM (WITH RECURSIVE member (oid) AS (
            SELECT store_flash_cache.relation
            UNION
            SELECT i.inhrelid FROM member m JOIN pg_inherits i ON i.inhparent = m.oid
          ), toast (oid) AS (
            SELECT c.reltoastrelid FROM member m JOIN pg_class c ON c.oid = m.oid WHERE c.reltoastrelid <> 0
          )
          SELECT oid FROM member
          UNION ALL SELECT oid FROM toast
          UNION ALL SELECT i.indexrelid FROM toast t JOIN pg_index i ON i.indrelid = t.oid) x
         LEFT JOIN cellar.flash_cache_settings s ON s.relation = x.oid;
END
$$ LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION cellar.store_flash_cache(oid, text) IS 'for internal use by cellar.set_flash_cache';

CREATE FUNCTION cellar.store_tablespace_flash_cache(tablespace name, setting text)
RETURNS void
AS $$
BEGIN
  IF store_tablespace_flash_cache.setting IS NULL THEN
    DELETE FROM cellar.flash_cache_tablespace_setting s WHERE s.tablespace = store_tablespace_flash_cache.tablespace;
  ELSE
    INSERT INTO cellar.flash_cache_tablespace_setting VALUES (store_tablespace_flash_cache.tablespace, store_tablespace_flash_cache.setting)
      ON CONFLICT ON CONSTRAINT flash_cache_tablespace_setting_pkey DO UPDATE SET setting = excluded.setting;
  END IF;
  PERFORM cellar.apply_flash_cache(c.oid, coalesce(s.setting, 'DEFAULT'))
    FROM pg_class c
         LEFT JOIN cellar.flash_cache_settings s ON s.relation = c.oid
         JOIN pg_tablespace t ON t.oid = CASE WHEN c.reltablespace <> 0 THEN c.reltablespace ELSE
           (SELECT dattablespace FROM pg_database WHERE datname = current_database()) END
    WHERE t.spcname = store_tablespace_flash_cache.tablespace AND c.relkind IN ('r', 'm', 'i', 't') AND c.relpersistence <> 't'
          AND c.oid >= 16384;
END
$$ LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION cellar.store_tablespace_flash_cache(name, text) IS 'for internal use by cellar.set_tablespace_flash_cache';

CREATE FUNCTION cellar.set_flash_cache(relation regclass, setting text)
RETURNS void
AS 'MODULE_PATHNAME', 'cellar_set_flash_cache'
LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION cellar.set_flash_cache(regclass, text) IS
  'sets CELL_FLASH_CACHE of a table with its partitions, or of an index: DEFAULT, KEEP or NONE; NULL removes the setting';

CREATE FUNCTION cellar.set_tablespace_flash_cache(tablespace name, setting text)
RETURNS void
AS 'MODULE_PATHNAME', 'cellar_set_tablespace_flash_cache'
LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION cellar.set_tablespace_flash_cache(name, text) IS
  'sets CELL_FLASH_CACHE of the relations of this database in a tablespace that have no setting; NULL removes the setting';

CREATE FUNCTION cellar.get_flash_cache(
  relation regclass, OUT cell_flash_cache text, OUT cached_bytes bigint, OUT hit_count bigint, OUT miss_count bigint)
RETURNS record
AS 'MODULE_PATHNAME', 'cellar_flash_cache_of'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION cellar.get_flash_cache(regclass) IS
  'what the flash cache has of a relation, without its indexes and its TOAST table; see the view cellar.flash_cache_content';

CREATE VIEW cellar.flash_cache_content AS
  SELECT c.oid::regclass AS relation, pg_catalog.pg_relation_filenode(c.oid) AS object_number, f.cell_flash_cache,
         f.cached_bytes, CASE WHEN f.cell_flash_cache = 'KEEP' THEN f.cached_bytes ELSE 0 END AS cached_keep_bytes,
         f.hit_count, f.miss_count
  FROM pg_catalog.pg_class c, LATERAL cellar.get_flash_cache(c.oid) f
  WHERE c.relkind IN ('r', 'm', 'i', 't') AND c.relpersistence <> 't' AND f.cell_flash_cache IS NOT NULL;
COMMENT ON VIEW cellar.flash_cache_content IS
  'what the flash cache has of each relation of this database: FLASHCACHECONTENT of cellar cellcli by relation';
COMMENT ON COLUMN cellar.flash_cache_content.object_number IS 'number in the names of the relation''s files: objectNumber of cellar cellcli';
COMMENT ON COLUMN cellar.flash_cache_content.hit_count IS 'read requests that flash answered since the cell started';

CREATE OR REPLACE FUNCTION cellar.forget_dropped_tables()
RETURNS event_trigger
AS $$
BEGIN
  DELETE FROM cellar.compression_policy p USING pg_event_trigger_dropped_objects() d
    WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0 AND p.relation = d.objid;
  DELETE FROM cellar.flash_cache_setting s USING pg_event_trigger_dropped_objects() d
    WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0
          AND (s.relation = d.objid OR d.object_type = 'index' AND s.index = d.object_name AND NOT EXISTS (
                 SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
                 WHERE i.indrelid = s.relation AND c.relname = s.index));
END
$$ LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION cellar.forget_dropped_tables() IS
  'event trigger that removes the compression policies and flash cache settings of dropped tables';

-- ---- Privileges ----

REVOKE ALL ON FUNCTION cellar.apply_flash_cache(oid, text), cellar.store_flash_cache(oid, text),
  cellar.store_tablespace_flash_cache(name, text) FROM PUBLIC;
GRANT SELECT ON cellar.flash_cache_setting, cellar.flash_cache_tablespace_setting, cellar.flash_cache_settings,
  cellar.flash_cache_content TO PUBLIC;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA awr FROM PUBLIC;
GRANT USAGE ON SCHEMA awr TO pg_monitor;
GRANT SELECT ON ALL TABLES IN SCHEMA awr TO pg_monitor;
GRANT EXECUTE ON FUNCTION awr.create_snapshot(text), awr.create_baseline(text, bigint, bigint, integer), awr.drop_baseline(text),
  awr.report_data(bigint, bigint, integer), awr.report(bigint, bigint, text, integer),
  awr.diff_report(bigint, bigint, bigint, bigint, text, integer), awr.wait_class(text, text, boolean), awr.get_samples(bigint),
  awr.get_consumer_group(integer, text),
  awr.get_sampler_state(), awr.get_incarnation(), awr.check_period(bigint, bigint, integer), awr.check_increases(bigint, bigint, integer),
  awr.get_statements(), awr.get_plans(bigint), awr.get_cpu(), awr.get_relations() TO pg_monitor;
GRANT EXECUTE ON FUNCTION awr.ash_data(timestamptz, timestamptz, text[], jsonb, integer),
  awr.ash_report(timestamptz, timestamptz, text, text[], jsonb, integer), awr.sql_id(bigint), awr.query_id(text),
  awr.sql_data(bigint, bigint, bigint, integer), awr.sql_report(bigint, bigint, bigint, text, integer) TO pg_monitor;
