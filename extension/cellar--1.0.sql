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
  relation regclass, OUT "table" regclass, OUT level text, OUT units bigint, OUT dead_blocks bigint,
  OUT heap_bytes bigint, OUT stored_bytes bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_compression_units'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

-- What is compressed by itself; cellar.set_compression writes it
CREATE TABLE cellar.compression_policy (
  relation regclass PRIMARY KEY,
  level text NOT NULL CHECK (level IN ('query low', 'query high', 'archive low', 'archive high')),
  after interval NOT NULL CHECK (after >= interval '0')
);
SELECT pg_catalog.pg_extension_config_dump('cellar.compression_policy', '');

-- What the background worker last did to a table
CREATE TABLE cellar.compression_run (
  relation oid PRIMARY KEY,
  last_run timestamptz NOT NULL,
  outcome text NOT NULL,
  retries integer NOT NULL,
  next_run timestamptz,
  last_freeze timestamptz
);

-- Every table, partition and child that a policy applies to: its own, else that of its nearest parent
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

CREATE FUNCTION cellar.set_compression(relation regclass, level text, after interval DEFAULT '1 day')
RETURNS void
AS 'MODULE_PATHNAME', 'cellar_set_compression'
LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;

-- For the background worker: a run that left something waiting is repeated after naps that double, of an hour at most
CREATE FUNCTION cellar.note_compression_run(relation oid, outcome text, waits boolean, froze boolean, naptime integer)
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

CREATE FUNCTION cellar.forget_dropped_tables()
RETURNS event_trigger
AS $$
BEGIN
  DELETE FROM cellar.compression_policy p USING pg_event_trigger_dropped_objects() d
    WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0 AND p.relation = d.objid;
END
$$ LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp;

CREATE EVENT TRIGGER cellar_forget_dropped_tables ON sql_drop
  EXECUTE FUNCTION cellar.forget_dropped_tables();

CREATE TYPE cellar.compression_report AS (
  "table" regclass, level text, units bigint, dead_blocks bigint, heap_bytes bigint, stored_bytes bigint, ratio numeric,
  policy text, last_run timestamptz, last_outcome text);

-- How a table, or each of its partitions, lies in its cell
CREATE FUNCTION cellar.compression(relation regclass)
RETURNS SETOF cellar.compression_report
AS $$
  SELECT c."table", c.level, c.units, c.dead_blocks, c.heap_bytes, c.stored_bytes,
         round(c.heap_bytes::numeric / nullif(c.stored_bytes, 0), 2),
         p.level || ' after ' || p.after, p.last_run, p.last_outcome
  FROM cellar.get_compression(relation) c LEFT JOIN cellar.compression_policies p ON p."table" = c."table"
$$ LANGUAGE sql VOLATILE PARALLEL RESTRICTED STRICT;

CREATE FUNCTION cellar.estimate_compression(
  relation regclass, OUT "table" regclass, OUT level text, OUT sampled_bytes bigint, OUT estimated_bytes bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'cellar_estimate_compression'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

-- What each level would make of it, wherever it lies, estimated from a sample of its pages
CREATE FUNCTION cellar.compression_advisor(
  relation regclass, OUT "table" regclass, OUT level text, OUT sampled_bytes bigint,
  OUT estimated_bytes bigint, OUT ratio numeric)
RETURNS SETOF record
AS $$
  SELECT e."table", e.level, e.sampled_bytes, e.estimated_bytes,
         round(e.sampled_bytes::numeric / nullif(e.estimated_bytes, 0), 2)
  FROM cellar.estimate_compression(relation) e
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
