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

CREATE VIEW cellar.sysstat AS
  SELECT name, value FROM cellar.get_sysstat();

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

CREATE VIEW cellar.system_event AS
  SELECT event, total_waits, time_waited_us, average_wait_us, max_wait_us
  FROM cellar.get_system_event();

CREATE VIEW cellar.session_event AS
  SELECT pid, event, total_waits, time_waited_us, average_wait_us, max_wait_us
  FROM cellar.get_session_event();

CREATE VIEW cellar.event_histogram AS
  SELECT event, wait_time_us_below, wait_count
  FROM cellar.get_event_histogram()
  WHERE wait_count > 0;

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

-- Cells

CREATE FUNCTION cellar.cell_of(relation regclass, OUT socket_path text, OUT file text)
RETURNS record
AS 'MODULE_PATHNAME', 'cellar_cell_of'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION cellar.cells(OUT socket_path text, OUT relations bigint, OUT bytes bigint)
RETURNS SETOF record
AS $$
  SELECT p.socket_path, count(*), sum(pg_catalog.pg_table_size(p.oid))::bigint
  FROM (SELECT c.oid, (cellar.cell_of(c.oid::pg_catalog.regclass)).socket_path
        FROM pg_catalog.pg_class c
        WHERE c.relkind IN ('r', 'm') AND c.relpersistence <> 't') p
  WHERE p.socket_path IS NOT NULL
  GROUP BY p.socket_path
$$ LANGUAGE sql VOLATILE PARALLEL RESTRICTED;

GRANT USAGE ON SCHEMA cellar TO PUBLIC;
GRANT SELECT ON ALL TABLES IN SCHEMA cellar TO PUBLIC;
