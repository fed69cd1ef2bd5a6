/* extension/cellar--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION cellar" to load this file. \quit

-- Statistics of the system and of sessions

CREATE FUNCTION cellar.get_sysstat(OUT name text, OUT value bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_sysstat'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

CREATE FUNCTION cellar.get_sesstat(OUT pid integer, OUT name text, OUT value bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_sesstat'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

-- What the cells' file service counted for this cluster
CREATE FUNCTION cellar.get_file_io(
  OUT cell text, OUT database oid, OUT kind text, OUT operations bigint, OUT bytes bigint,
  OUT time_us bigint, OUT histogram bigint[])
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_file_io_counts'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE VIEW cellar.file_io AS
  SELECT f.cell, f.database, d.datname, f.kind, f.operations, f.bytes, f.time_us
  FROM cellar.get_file_io() f LEFT JOIN pg_catalog.pg_database d ON d.oid = f.database;

-- What came through the mount is counted by the cells, all else here.
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

CREATE VIEW cellar.sesstat AS
  SELECT pid, name, value FROM cellar.get_sesstat();

CREATE VIEW cellar.mystat AS
  SELECT name, value FROM cellar.get_sesstat() WHERE pid = pg_backend_pid();

-- Wait events

CREATE FUNCTION cellar.get_system_event(
  OUT event text, OUT total_waits bigint, OUT time_waited_us bigint,
  OUT average_wait_us double precision, OUT max_wait_us bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_system_event'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

CREATE FUNCTION cellar.get_session_event(
  OUT pid integer, OUT event text, OUT total_waits bigint, OUT time_waited_us bigint,
  OUT average_wait_us double precision, OUT max_wait_us bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_session_event'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION cellar.get_event_histogram(
  OUT event text, OUT wait_time_us_below bigint, OUT wait_count bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_event_histogram'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

-- The events of I/O through the mount, timed in the cells, which do not keep the longest one.
CREATE VIEW cellar.mount_event AS
  SELECT e.event, f.operations, f.time_us, f.histogram
  FROM (VALUES ('single block read', 'cell single block physical read'),
               ('multiblock read', 'cell multiblock physical read'),
               ('data file write', 'db file parallel write'),
               ('WAL write', 'log file parallel write')) e (kind, event)
       LEFT JOIN cellar.get_file_io() f ON f.kind = e.kind;

CREATE VIEW cellar.system_event AS
  SELECT event, total_waits, time_waited_us, average_wait_us, max_wait_us
  FROM cellar.get_system_event()
  WHERE event <> 'cell single block physical read'
  UNION ALL
  SELECT event, coalesce(sum(operations), 0)::bigint, coalesce(sum(time_us), 0)::bigint,
         (sum(time_us) / nullif(sum(operations), 0))::double precision, NULL
  FROM cellar.mount_event
  GROUP BY event;

CREATE VIEW cellar.session_event AS
  SELECT pid, event, total_waits, time_waited_us, average_wait_us, max_wait_us
  FROM cellar.get_session_event();

CREATE VIEW cellar.event_histogram AS
  SELECT event, wait_time_us_below, wait_count
  FROM cellar.get_event_histogram()
  WHERE wait_count > 0 AND event <> 'cell single block physical read'
  UNION ALL
  SELECT event, (1::bigint << (bucket - 1)::int), sum(waits)::bigint
  FROM cellar.mount_event, unnest(histogram) WITH ORDINALITY AS h (waits, bucket)
  WHERE waits > 0
  GROUP BY event, bucket;

-- Offloading

CREATE FUNCTION cellar.get_why_not_offloaded(
  OUT relation regclass, OUT what text, OUT expression text, OUT reason text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_why_not_offloaded'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE VIEW cellar.why_not_offloaded AS
  SELECT relation, what, expression, reason FROM cellar.get_why_not_offloaded();

CREATE FUNCTION cellar.get_offloadable_functions(OUT function oid)
RETURNS SETOF oid
AS 'MODULE_PATHNAME', 'cellar_offloadable_functions'
LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;

CREATE VIEW cellar.offloadable_functions AS
  SELECT p.oid::regprocedure AS function,
         p.prorettype::regtype AS result_type,
         (SELECT string_agg(o.oprname || '(' || o.oprleft::regtype || ',' || o.oprright::regtype || ')',
                            ', ' ORDER BY o.oprname)
          FROM pg_catalog.pg_operator o WHERE o.oprcode = p.oid) AS operators
  FROM cellar.get_offloadable_functions() f
       JOIN pg_catalog.pg_proc p ON p.oid = f.function;

-- Compression

CREATE FUNCTION cellar.compress_relation(relation regclass, level text)
RETURNS void
AS 'MODULE_PATHNAME', 'cellar_compress_relation'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION cellar.get_compression(
  relation regclass, estimate boolean, OUT "table" regclass, OUT level text, OUT units bigint,
  OUT dead_blocks bigint, OUT heap_bytes bigint, OUT stored_bytes bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_compression_units'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE TYPE cellar.compression_report AS (
  "table" regclass, level text, units bigint, dead_blocks bigint, heap_bytes bigint, stored_bytes bigint, ratio numeric);

-- How a table, or each of its partitions, lies in its cell
CREATE FUNCTION cellar.compression(relation regclass)
RETURNS SETOF cellar.compression_report
AS $$
  SELECT c."table", c.level, c.units, c.dead_blocks, c.heap_bytes, c.stored_bytes,
         round(c.heap_bytes::numeric / nullif(c.stored_bytes, 0), 2)
  FROM cellar.get_compression(relation, false) c
$$ LANGUAGE sql VOLATILE PARALLEL RESTRICTED STRICT;

-- What each level would make of it, estimated from a sample of its pages
CREATE FUNCTION cellar.compression_advisor(
  relation regclass, OUT "table" regclass, OUT level text, OUT sampled_bytes bigint,
  OUT estimated_bytes bigint, OUT ratio numeric)
RETURNS SETOF record
AS $$
  SELECT c."table", c.level, c.heap_bytes, c.stored_bytes,
         round(c.heap_bytes::numeric / nullif(c.stored_bytes, 0), 2)
  FROM cellar.get_compression(relation, true) c
$$ LANGUAGE sql VOLATILE PARALLEL RESTRICTED STRICT;

-- Freezes a table's rows and compresses all of it; others go on reading and writing it
CREATE FUNCTION cellar.compress(relation regclass, level text DEFAULT 'query low')
RETURNS SETOF cellar.compression_report
AS $$
  SELECT cellar.compress_relation(relation, level);
  SELECT * FROM cellar.compression(relation);
$$ LANGUAGE sql VOLATILE PARALLEL UNSAFE STRICT;

CREATE FUNCTION cellar.decompress(relation regclass)
RETURNS SETOF cellar.compression_report
AS $$
  SELECT cellar.compress_relation(relation, 'none');
  SELECT * FROM cellar.compression(relation);
$$ LANGUAGE sql VOLATILE PARALLEL UNSAFE STRICT;

CREATE FUNCTION cellar.get_compression_progress(
  OUT pid integer, OUT relation regclass, OUT level text, OUT phase text, OUT blocks_total bigint,
  OUT blocks_done bigint, OUT bytes_before bigint, OUT bytes_after bigint, OUT units_skipped bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_compression_tasks'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE VIEW cellar.compression_progress AS
  SELECT * FROM cellar.get_compression_progress();

-- Cells

CREATE FUNCTION cellar.cell_of(relation regclass, OUT socket_path text, OUT file text)
RETURNS record
AS 'MODULE_PATHNAME', 'cellar_cell_of'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION cellar.get_cells(OUT socket_path text)
RETURNS SETOF text
AS 'MODULE_PATHNAME', 'cellar_cells'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

-- The cells that the cluster lies on, and this database's tables there
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

GRANT USAGE ON SCHEMA cellar TO PUBLIC;
GRANT SELECT ON ALL TABLES IN SCHEMA cellar TO PUBLIC;
