/* extension/cellar--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION cellar" to load this file. \quit

-- Statistics of the system and of sessions

CREATE FUNCTION cellar.get_sysstat(OUT name text, OUT value bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_sysstat'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION cellar.get_sysstat() IS
  'statistics of the whole server, without I/O through the mounts; see the view cellar.sysstat';

CREATE FUNCTION cellar.get_sesstat(OUT pid integer, OUT name text, OUT value bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_sesstat'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION cellar.get_sesstat() IS
  'statistics of each session that the user may see; see the views cellar.sesstat and cellar.mystat';

-- File I/O through the mounts, counted by the cells
CREATE FUNCTION cellar.get_file_io(
  OUT cell text, OUT database oid, OUT kind text, OUT operations bigint, OUT bytes bigint,
  OUT time_us bigint, OUT histogram bigint[])
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_file_io_counts'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION cellar.get_file_io() IS
  'file I/O through the mounts, with histograms of service times; see the view cellar.file_io';

CREATE VIEW cellar.file_io AS
  SELECT f.cell, f.database, d.datname, f.kind, f.operations, f.bytes, f.time_us
  FROM cellar.get_file_io() f LEFT JOIN pg_catalog.pg_database d ON d.oid = f.database;

COMMENT ON VIEW cellar.file_io IS
  'reads, writes and syncs that the cells served for this cluster, per cell, database and kind; reads that the kernel answered from its page cache are not included';
COMMENT ON COLUMN cellar.file_io.cell IS 'path of the cell''s socket';
COMMENT ON COLUMN cellar.file_io.database IS 'OID of the database, or NULL for files that belong to no database';
COMMENT ON COLUMN cellar.file_io.kind IS 'single block read, multiblock read, data file write, WAL write, or sync';
COMMENT ON COLUMN cellar.file_io.time_us IS 'total service time in microseconds';

-- The cells count I/O through the mounts; this server counts the rest.
CREATE VIEW cellar.sysstat AS
  WITH mount AS MATERIALIZED (
    SELECT coalesce(sum(bytes) FILTER (WHERE kind LIKE '% read'), 0) AS bytes_read,
           coalesce(sum(operations) FILTER (WHERE kind LIKE '% read'), 0) AS reads,
           coalesce(sum(bytes) FILTER (WHERE kind LIKE '% write'), 0) AS bytes_written,
           coalesce(sum(operations) FILTER (WHERE kind LIKE '% write'), 0) AS writes
    FROM cellar.get_file_io()
  )
  SELECT s.name,
         (s.value + CASE s.name
                      WHEN 'physical read total bytes' THEN mount.bytes_read
                      WHEN 'physical read total IO requests' THEN mount.reads
                      WHEN 'cell physical IO interconnect bytes' THEN mount.bytes_read + mount.bytes_written
                      ELSE 0
                    END)::bigint AS value
  FROM cellar.get_sysstat() s CROSS JOIN mount
  UNION ALL
  SELECT 'physical write total bytes', bytes_written::bigint FROM mount
  UNION ALL
  SELECT 'physical write total IO requests', writes::bigint FROM mount;

COMMENT ON VIEW cellar.sysstat IS
  'statistics of the whole server since it started, under Oracle''s names';

CREATE VIEW cellar.sesstat AS
  SELECT pid, name, value FROM cellar.get_sesstat();

COMMENT ON VIEW cellar.sesstat IS
  'statistics of each session, under Oracle''s names; without pg_read_all_stats, only sessions of one''s own roles';

CREATE VIEW cellar.mystat AS
  SELECT name, value FROM cellar.get_sesstat() WHERE pid = pg_backend_pid();

COMMENT ON VIEW cellar.mystat IS
  'statistics of the current session, under Oracle''s names';

-- Wait events

CREATE FUNCTION cellar.get_system_event(
  OUT event text, OUT total_waits bigint, OUT time_waited_us bigint,
  OUT average_wait_us double precision, OUT max_wait_us bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_system_event'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION cellar.get_system_event() IS
  'wait events of the whole server, without I/O through the mounts; see the view cellar.system_event';

CREATE FUNCTION cellar.get_session_event(
  OUT pid integer, OUT event text, OUT total_waits bigint, OUT time_waited_us bigint,
  OUT average_wait_us double precision, OUT max_wait_us bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_session_event'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION cellar.get_session_event() IS
  'wait events of each session that the user may see; see the view cellar.session_event';

CREATE FUNCTION cellar.get_event_histogram(
  OUT event text, OUT wait_time_us_below bigint, OUT wait_count bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_event_histogram'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION cellar.get_event_histogram() IS
  'histograms of wait times, without I/O through the mounts; see the view cellar.event_histogram';

-- Waits for I/O through the mounts, timed by the cells, which do not record the maximum
CREATE VIEW cellar.mount_event AS
  SELECT e.event, f.operations, f.time_us, f.histogram
  FROM (VALUES ('single block read', 'cell single block physical read'),
               ('multiblock read', 'cell multiblock physical read'),
               ('data file write', 'db file parallel write'),
               ('WAL write', 'log file parallel write')) e (kind, event)
       LEFT JOIN cellar.get_file_io() f ON f.kind = e.kind;

COMMENT ON VIEW cellar.mount_event IS
  'wait events of I/O through the mounts, with histograms; see the views cellar.system_event and cellar.event_histogram';

CREATE VIEW cellar.system_event AS
  SELECT event, total_waits, time_waited_us, average_wait_us, max_wait_us
  FROM cellar.get_system_event()
  WHERE event <> 'cell single block physical read'
  UNION ALL
  SELECT event, coalesce(sum(operations), 0)::bigint, coalesce(sum(time_us), 0)::bigint,
         (sum(time_us) / nullif(sum(operations), 0))::double precision, NULL
  FROM cellar.mount_event
  GROUP BY event;

COMMENT ON VIEW cellar.system_event IS
  'number and duration of waits of the whole server, under Oracle''s names; times are in microseconds';
COMMENT ON COLUMN cellar.system_event.max_wait_us IS
  'longest wait, or NULL for I/O through the mounts, whose maximum is not recorded';

CREATE VIEW cellar.session_event AS
  SELECT pid, event, total_waits, time_waited_us, average_wait_us, max_wait_us
  FROM cellar.get_session_event();

COMMENT ON VIEW cellar.session_event IS
  'number and duration of waits of each session; without pg_read_all_stats, only sessions of one''s own roles';

CREATE VIEW cellar.event_histogram AS
  SELECT event, wait_time_us_below, wait_count
  FROM cellar.get_event_histogram()
  WHERE wait_count > 0 AND event <> 'cell single block physical read'
  UNION ALL
  SELECT event, (1::bigint << (bucket - 1)::int), sum(waits)::bigint
  FROM cellar.mount_event, unnest(histogram) WITH ORDINALITY AS h (waits, bucket)
  WHERE waits > 0
  GROUP BY event, bucket;

COMMENT ON VIEW cellar.event_histogram IS
  'waits of the whole server by duration: each row counts waits below wait_time_us_below and not below half of it';

-- Offloading

CREATE FUNCTION cellar.get_why_not_offloaded(
  OUT relation regclass, OUT what text, OUT expression text, OUT reason text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_why_not_offloaded'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION cellar.get_why_not_offloaded() IS
  'see the view cellar.why_not_offloaded';

CREATE VIEW cellar.why_not_offloaded AS
  SELECT relation, what, expression, reason FROM cellar.get_why_not_offloaded();

COMMENT ON VIEW cellar.why_not_offloaded IS
  'parts of this session''s last statement that PostgreSQL evaluated instead of a cell, and the reason for each';
COMMENT ON COLUMN cellar.why_not_offloaded.expression IS
  'the condition or group key, or NULL if the reason concerns the scan, the aggregation or an aggregate';

CREATE FUNCTION cellar.get_offloadable_functions(OUT function oid)
RETURNS SETOF oid
AS 'MODULE_PATHNAME', 'cellar_offloadable_functions'
LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;

COMMENT ON FUNCTION cellar.get_offloadable_functions() IS
  'see the view cellar.offloadable_functions';

CREATE VIEW cellar.offloadable_functions AS
  SELECT p.oid::regprocedure AS function,
         p.prorettype::regtype AS result_type,
         (SELECT string_agg(o.oprname || '(' || o.oprleft::regtype || ',' || o.oprright::regtype || ')',
                            ', ' ORDER BY o.oprname)
          FROM pg_catalog.pg_operator o WHERE o.oprcode = p.oid) AS operators
  FROM cellar.get_offloadable_functions() f
       JOIN pg_catalog.pg_proc p ON p.oid = f.function;

COMMENT ON VIEW cellar.offloadable_functions IS
  'functions that a cell can evaluate, with the operators that they implement';

-- Compression

CREATE FUNCTION cellar.compress_relation(relation regclass, level text)
RETURNS void
AS 'MODULE_PATHNAME', 'cellar_compress_relation'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION cellar.compress_relation(regclass, text) IS
  'compresses a table and returns nothing; see cellar.compress';

CREATE FUNCTION cellar.get_compression(
  relation regclass, OUT "table" regclass, OUT level text, OUT units bigint, OUT superseded_blocks bigint,
  OUT heap_bytes bigint, OUT stored_bytes bigint, OUT dead_blocks bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_compression_units'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION cellar.get_compression(regclass) IS
  'allocation units and their size, per table and level; see cellar.compression';

-- Compression policies, written by cellar.set_compression
CREATE TABLE cellar.compression_policy (
  relation regclass PRIMARY KEY,
  level text NOT NULL CHECK (level IN ('query low', 'query high', 'archive low', 'archive high')),
  after interval NOT NULL CHECK (after >= interval '0')
);
COMMENT ON TABLE cellar.compression_policy IS
  'compression policies as set by cellar.set_compression; the view cellar.compression_policies also lists partitions that inherit one';
SELECT pg_catalog.pg_extension_config_dump('cellar.compression_policy', '');

-- The last run of the policy worker on each table
CREATE TABLE cellar.compression_run (
  relation oid PRIMARY KEY,
  last_run timestamptz NOT NULL,
  outcome text NOT NULL,
  retries integer NOT NULL,
  next_run timestamptz,
  last_freeze timestamptz
);
COMMENT ON TABLE cellar.compression_run IS
  'last run of the policy worker on each table; shown by the view cellar.compression_policies';

-- The policy of every table, partition and child table: its own, or else that of its nearest parent
CREATE VIEW cellar.compression_policies AS
  WITH RECURSIVE member (relation, set_for, level, after, distance) AS (
    SELECT relation::oid, relation, level, after, 0 FROM cellar.compression_policy
    UNION ALL
    SELECT i.inhrelid, m.set_for, m.level, m.after, m.distance + 1
    FROM member m JOIN pg_catalog.pg_inherits i ON i.inhparent = m.relation
  )
  SELECT DISTINCT ON (m.relation)
         m.relation::regclass AS "table", m.set_for, m.level, m.after,
         r.last_run, r.outcome AS last_outcome, r.retries, r.next_run, r.last_freeze
  FROM member m
       JOIN pg_catalog.pg_class c ON c.oid = m.relation
       LEFT JOIN cellar.compression_run r ON r.relation = m.relation
  WHERE c.relkind IN ('r', 'm', 'p') AND c.relpersistence <> 't'
  ORDER BY m.relation, m.distance;

COMMENT ON VIEW cellar.compression_policies IS
  'the compression policy of every table, partition and child table, and the outcome of its last run';
COMMENT ON COLUMN cellar.compression_policies.set_for IS 'the table or parent table that the policy was set for';
COMMENT ON COLUMN cellar.compression_policies.after IS 'an allocation unit is due after this time without writes';
COMMENT ON COLUMN cellar.compression_policies.last_run IS 'the last run that had work to do';
COMMENT ON COLUMN cellar.compression_policies.retries IS 'number of successive runs that were postponed';
COMMENT ON COLUMN cellar.compression_policies.next_run IS 'earliest time of the next run, or NULL for the next round';
COMMENT ON COLUMN cellar.compression_policies.last_freeze IS 'the last VACUUM (FREEZE) by the policy worker';

CREATE FUNCTION cellar.set_compression(relation regclass, level text, after interval DEFAULT '1 day')
RETURNS void
AS 'MODULE_PATHNAME', 'cellar_set_compression'
LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION cellar.set_compression(regclass, text, interval) IS
  'sets the compression policy of a table and its partitions; level none or NULL removes the policy';

-- Called by the policy worker after each run. A postponed run is repeated after a delay that doubles with every
-- postponement, up to one hour.
CREATE FUNCTION cellar.record_compression_run(relation oid, outcome text, postpone boolean, froze boolean, naptime integer)
RETURNS void
AS $$
  INSERT INTO cellar.compression_run
    SELECT c.oid, now(), $2, n.retries,
           CASE WHEN $3 THEN now() + least(interval '1 hour', $5 * power(2, n.retries) * interval '1 second') END,
           CASE WHEN $4 THEN now() ELSE r.last_freeze END
    FROM pg_class c
         LEFT JOIN cellar.compression_run r ON r.relation = c.oid
         CROSS JOIN LATERAL (SELECT CASE WHEN $3 THEN least(coalesce(r.retries, 0), 20) + 1 ELSE 0 END) n (retries)
    WHERE c.oid = $1
  ON CONFLICT (relation) DO UPDATE
    SET (last_run, outcome, retries, next_run, last_freeze)
      = (excluded.last_run, excluded.outcome, excluded.retries, excluded.next_run, excluded.last_freeze)
$$ LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION cellar.record_compression_run(oid, text, boolean, boolean, integer) IS
  'for internal use by the policy worker';

CREATE FUNCTION cellar.forget_dropped_tables()
RETURNS event_trigger
AS $$
BEGIN
  DELETE FROM cellar.compression_policy p USING pg_event_trigger_dropped_objects() d
    WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0 AND p.relation = d.objid;
END
$$ LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION cellar.forget_dropped_tables() IS
  'event trigger that removes the compression policies of dropped tables';

CREATE EVENT TRIGGER cellar_forget_dropped_tables ON sql_drop
  EXECUTE FUNCTION cellar.forget_dropped_tables();

CREATE TYPE cellar.compression_report AS (
  "table" regclass, level text, units bigint, superseded_blocks bigint, heap_bytes bigint, stored_bytes bigint, ratio numeric,
  policy text, last_run timestamptz, last_outcome text, dead_blocks bigint);

COMMENT ON TYPE cellar.compression_report IS
  'result of cellar.compression, cellar.compress and cellar.decompress: one row per table or partition, and level';
COMMENT ON COLUMN cellar.compression_report.level IS 'compression level, or none for allocation units of raw blocks';
COMMENT ON COLUMN cellar.compression_report.units IS 'number of allocation units at this level';
COMMENT ON COLUMN cellar.compression_report.superseded_blocks IS
  'blocks that were written or added after their unit was created, and are stored raw';
COMMENT ON COLUMN cellar.compression_report.heap_bytes IS 'size of the blocks as PostgreSQL sees them';
COMMENT ON COLUMN cellar.compression_report.stored_bytes IS 'bytes on the cell disks';
COMMENT ON COLUMN cellar.compression_report.ratio IS 'heap_bytes / stored_bytes';
COMMENT ON COLUMN cellar.compression_report.policy IS 'level and delay of the policy that applies to the table';
COMMENT ON COLUMN cellar.compression_report.dead_blocks IS 'deprecated name of superseded_blocks; will be removed';

CREATE FUNCTION cellar.compression(relation regclass)
RETURNS SETOF cellar.compression_report
AS $$
  SELECT c."table", c.level, c.units, c.superseded_blocks, c.heap_bytes, c.stored_bytes,
         round(c.heap_bytes::numeric / nullif(c.stored_bytes, 0), 2),
         p.level || ' after ' || p.after, p.last_run, p.last_outcome, c.dead_blocks
  FROM cellar.get_compression(relation) c LEFT JOIN cellar.compression_policies p ON p."table" = c."table"
$$ LANGUAGE sql VOLATILE PARALLEL RESTRICTED STRICT;

COMMENT ON FUNCTION cellar.compression(regclass) IS
  'how a table, or each of its partitions, is stored in its cell, per compression level';

CREATE FUNCTION cellar.estimate_compression(
  relation regclass, OUT "table" regclass, OUT level text, OUT sampled_bytes bigint, OUT estimated_bytes bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_estimate_compression'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION cellar.estimate_compression(regclass) IS
  'sampled and estimated bytes at each compression level; see cellar.compression_advisor';

CREATE FUNCTION cellar.compression_advisor(
  relation regclass, OUT "table" regclass, OUT level text, OUT sampled_bytes bigint,
  OUT estimated_bytes bigint, OUT ratio numeric)
RETURNS SETOF record
AS $$
  SELECT e."table", e.level, e.sampled_bytes, e.estimated_bytes,
         round(e.sampled_bytes::numeric / nullif(e.estimated_bytes, 0), 2)
  FROM cellar.estimate_compression(relation) e
$$ LANGUAGE sql VOLATILE PARALLEL RESTRICTED STRICT;

COMMENT ON FUNCTION cellar.compression_advisor(regclass) IS
  'estimates the compressed size of a table at each level from a sample of its pages; works for tables that are not on a cell';

CREATE FUNCTION cellar.compress(relation regclass, level text DEFAULT 'query low')
RETURNS SETOF cellar.compression_report
AS $$
  SELECT cellar.compress_relation(relation, level);
  SELECT * FROM cellar.compression(relation);
$$ LANGUAGE sql VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION cellar.compress(regclass, text) IS
  'freezes and compresses a table and its partitions while other sessions read and write them';

CREATE FUNCTION cellar.decompress(relation regclass)
RETURNS SETOF cellar.compression_report
AS $$
  SELECT cellar.compress_relation(relation, 'none');
  SELECT * FROM cellar.compression(relation);
$$ LANGUAGE sql VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION cellar.decompress(regclass) IS
  'stores all blocks of a table and its partitions raw again';

CREATE PROCEDURE cellar.compress_table(relation regclass, level text DEFAULT 'query low')
AS 'MODULE_PATHNAME', 'cellar_compress_table'
LANGUAGE C;

COMMENT ON PROCEDURE cellar.compress_table(regclass, text) IS
  'like the function cellar.compress, but holds neither a snapshot nor locks while it waits';

CREATE PROCEDURE cellar.decompress_table(relation regclass)
AS 'MODULE_PATHNAME', 'cellar_compress_table'
LANGUAGE C;

COMMENT ON PROCEDURE cellar.decompress_table(regclass) IS
  'like the function cellar.decompress, but holds neither a snapshot nor locks while it waits';

CREATE FUNCTION cellar.get_compression_progress(
  OUT pid integer, OUT relation regclass, OUT level text, OUT phase text, OUT blocks_total bigint,
  OUT blocks_done bigint, OUT bytes_before bigint, OUT bytes_after bigint, OUT units_skipped bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_compression_tasks'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION cellar.get_compression_progress() IS
  'see the view cellar.compression_progress';

CREATE VIEW cellar.compression_progress AS
  SELECT * FROM cellar.get_compression_progress();

COMMENT ON VIEW cellar.compression_progress IS
  'compression commands that are running in this database, and the table that the policy worker is compressing';
COMMENT ON COLUMN cellar.compression_progress.pid IS 'process of the worker, or NULL before it has started';
COMMENT ON COLUMN cellar.compression_progress.relation IS 'the table or partition being compressed';
COMMENT ON COLUMN cellar.compression_progress.phase IS 'starting, vacuuming, compressing, or decompressing';
COMMENT ON COLUMN cellar.compression_progress.bytes_before IS 'size of the blocks encoded so far';
COMMENT ON COLUMN cellar.compression_progress.bytes_after IS 'size of their compression units';
COMMENT ON COLUMN cellar.compression_progress.units_skipped IS 'allocation units left unchanged: modified while they were encoded, not smaller, or damaged';

-- Cells

CREATE FUNCTION cellar.cell_of(relation regclass, OUT socket_path text, OUT file text)
RETURNS record
AS 'MODULE_PATHNAME', 'cellar_cell_of'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION cellar.cell_of(regclass) IS
  'socket path of the cell that stores a relation, and path of the relation''s file in the cell; NULL if it is not on a cell';

CREATE FUNCTION cellar.get_cells(OUT socket_path text)
RETURNS SETOF text
AS 'MODULE_PATHNAME', 'cellar_cells'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION cellar.get_cells() IS
  'socket paths of the cells that store the data directory or a tablespace; see cellar.cells';

CREATE FUNCTION cellar.cells(OUT socket_path text, OUT relations bigint, OUT bytes bigint)
RETURNS SETOF record
AS $$
  SELECT s.socket_path, count(p.oid), coalesce(sum(pg_catalog.pg_table_size(p.oid)), 0)::bigint
  FROM cellar.get_cells() s
       LEFT JOIN (SELECT c.oid, (cellar.cell_of(c.oid::pg_catalog.regclass)).socket_path
                  FROM pg_catalog.pg_class c
                  WHERE c.relkind IN ('r', 'm') AND c.relpersistence <> 't') p
       ON p.socket_path = s.socket_path
  GROUP BY s.socket_path
$$ LANGUAGE sql VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION cellar.cells() IS
  'the cells that store this cluster''s data directory or tablespaces, with number and size of this database''s tables on each';

GRANT USAGE ON SCHEMA cellar TO PUBLIC;
GRANT SELECT ON
  cellar.file_io, cellar.sysstat, cellar.sesstat, cellar.mystat, cellar.mount_event, cellar.system_event, cellar.session_event,
  cellar.event_histogram, cellar.why_not_offloaded, cellar.offloadable_functions, cellar.compression_policy, cellar.compression_run,
  cellar.compression_policies, cellar.compression_progress
TO PUBLIC;
