-- AWR snapshots, session samples and report data work without a cell.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cellar;
CREATE VIEW table_increases AS
  SELECT dense_rank() OVER (ORDER BY snap_id) AS snapshot, n_tup_ins, n_tup_upd, n_tup_del, size, size_growth
  FROM awr.table_stat WHERE relname = 'awr_t';

-- An interval contains the increase since the previous snapshot, and only objects that changed.
CREATE TABLE awr_t (a int) WITH (autovacuum_enabled = off);
INSERT INTO awr_t SELECT generate_series(1, 300);
SELECT pg_stat_force_next_flush();
SELECT awr.create_snapshot('test') > 0 AS taken;
SELECT min(snap_id) AS s1 FROM awr.snapshot \gset
INSERT INTO awr_t SELECT generate_series(1, 1000);
CHECKPOINT;
SELECT pg_stat_force_next_flush();
SELECT awr.create_snapshot('test') > 0 AS taken;
SELECT pg_stat_force_next_flush();
SELECT awr.create_snapshot('test') > 0 AS taken;
UPDATE awr_t SET a = 0 WHERE a = 1;
DELETE FROM awr_t WHERE a > 900;
SELECT pg_stat_force_next_flush();
SELECT awr.create_snapshot('test') > 0 AS taken;
SELECT * FROM table_increases;

-- Counters that restart from zero are recognized, and what they count since then is kept.
SELECT pg_stat_reset_single_table_counters('awr_t'::regclass);
INSERT INTO awr_t SELECT generate_series(1, 7);
SELECT pg_stat_force_next_flush();
SELECT awr.create_snapshot('test') > 0 AS taken;
SELECT n_tup_ins, n_tup_upd, n_tup_del FROM table_increases ORDER BY snapshot DESC LIMIT 1;
SELECT kind, object, regexp_replace(description, '\d+ rows', 'N rows') AS description
  FROM awr.note WHERE snap_id = (SELECT max(snap_id) FROM awr.snapshot) AND kind NOT LIKE 'source%';

-- Dropped tables and databases are reported, other databases are included.
DROP TABLE awr_t CASCADE;
CREATE DATABASE awr_other;
SELECT pg_stat_force_next_flush();
SELECT awr.create_snapshot('test') > 0 AS taken;
SELECT DISTINCT kind, object FROM awr.note WHERE snap_id = (SELECT max(snap_id) FROM awr.snapshot) AND kind NOT LIKE 'source%';
SELECT count(*) > 0 AS other_database_is_included FROM awr.last_value
  WHERE kind = 'table_stat' AND database = (SELECT oid FROM pg_database WHERE datname = 'awr_other');
DROP DATABASE awr_other;
SELECT pg_stat_force_next_flush();
SELECT awr.create_snapshot('test') > 0 AS taken;
SELECT DISTINCT kind, object FROM awr.note WHERE snap_id = (SELECT max(snap_id) FROM awr.snapshot) AND kind NOT LIKE 'source%';

-- A query in another database returns its rows or its error, and writes nothing.
SELECT awr.query_database((SELECT oid FROM pg_database WHERE datname = 'template1'), 'SELECT to_jsonb(current_database())');
SELECT awr.query_database((SELECT oid FROM pg_database WHERE datname = 'template1'), 'SELECT to_jsonb(1 / 0)');
SELECT awr.query_database((SELECT oid FROM pg_database WHERE datname = 'template1'), 'DELETE FROM pg_class RETURNING to_jsonb(1)');
SELECT count(*), sum(length(q::text)) FROM
  awr.query_database((SELECT oid FROM pg_database WHERE datname = 'template1'),
                     'SELECT to_jsonb(repeat(''x'', 1000)) FROM generate_series(1, 5000)') q;

-- The session that samples appear in is this one. It is active until the sampler has seen it.
DO $$
BEGIN
  FOR i IN 1 .. 600 LOOP
    EXIT WHEN EXISTS (SELECT FROM awr.get_samples(0) WHERE pid = pg_backend_pid() AND sample_time > (SELECT max(end_time) FROM awr.snapshot));
    PERFORM sum(n) FROM generate_series(1, 200000) n;
  END LOOP;
END $$;
SELECT DISTINCT database = (SELECT oid FROM pg_database WHERE datname = current_database()) AS database, role::regrole, state, backend_type
  FROM awr.active_session_history WHERE pid = pg_backend_pid();
SELECT pg_stat_force_next_flush();
SELECT awr.create_snapshot('test') > 0 AS taken;
SELECT max(snap_id) AS s2 FROM awr.snapshot \gset
SELECT count(*) > 0 AS stored FROM awr.sample_chunk WHERE pg_backend_pid() = ANY (pid);
SELECT sum(cpu_us) > 0 AS counted FROM awr.cpu_stat
  WHERE backend_type = 'client backend'
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database());

-- Executions are counted per plan, and each plan has a text.
CREATE TABLE awr_p (a int PRIMARY KEY);
INSERT INTO awr_p SELECT generate_series(1, 10);
ANALYZE awr_p;
SET enable_indexscan = off;
SET enable_bitmapscan = off;
SET enable_indexonlyscan = off;
SELECT a FROM awr_p WHERE a = 1;
SELECT a FROM awr_p WHERE a = 2;
SET enable_seqscan = off;
SET enable_indexscan = on;
SELECT a FROM awr_p WHERE a = 3;
RESET ALL;
SELECT s.calls, s.rows, s.plans, p.query, p.plan FROM awr.get_statements() s JOIN awr.get_plans() p USING (query_id, plan_id)
  WHERE p.query LIKE 'SELECT a FROM awr_p%' AND s.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  ORDER BY s.calls DESC;
-- A query that fails is not counted, and leaves nothing behind.
CREATE FUNCTION awr_one() RETURNS int AS 'BEGIN RETURN (SELECT count(*) FROM awr_p); END' LANGUAGE plpgsql;
BEGIN;
SAVEPOINT s;
SELECT 1 / (a - 1) FROM awr_p;
ROLLBACK TO s;
SELECT awr_one();
COMMIT;
SELECT awr_one();
DO $$ BEGIN PERFORM 1 / (a - 1) FROM awr_p; EXCEPTION WHEN division_by_zero THEN NULL; END $$;
SELECT awr_one();
SELECT sum(s.calls) FROM awr.get_statements() s JOIN awr.get_plans() p USING (query_id, plan_id)
  WHERE p.query LIKE 'SELECT 1 / (a - 1)%' AND s.database = (SELECT oid FROM pg_database WHERE datname = current_database());
DROP FUNCTION awr_one();
ALTER ROLE CURRENT_USER PASSWORD NULL;
SELECT count(*) FROM awr.get_plans() WHERE query LIKE 'ALTER ROLE%';
-- Functions that run while a statement starts or ends belong to the statement, with their time.
CREATE FUNCTION awr_burn() RETURNS trigger AS 'BEGIN PERFORM sum(n) FROM generate_series(1, 500000) n; RETURN NULL; END' LANGUAGE plpgsql;
CREATE TRIGGER awr_burn AFTER INSERT ON awr_p FOR EACH ROW EXECUTE FUNCTION awr_burn();
INSERT INTO awr_p VALUES (11);
CREATE TABLE awr_parts (a int) PARTITION BY LIST (a);
CREATE TABLE awr_parts_1 PARTITION OF awr_parts FOR VALUES IN (1);
CREATE TABLE awr_parts_2 PARTITION OF awr_parts FOR VALUES IN (2);
CREATE FUNCTION awr_key() RETURNS int AS 'BEGIN RETURN (SELECT sum(n) * 0 + 1 AS key FROM generate_series(1, 500000) n); END' LANGUAGE plpgsql STABLE;
SET plan_cache_mode = force_generic_plan;
PREPARE awr_pruned AS SELECT a FROM awr_parts WHERE a = awr_key();
EXECUTE awr_pruned;
EXECUTE awr_pruned;
RESET plan_cache_mode;
SELECT regexp_replace(p.query, '.*(INSERT|SELECT)', '\1') AS query, s.calls, s.elapsed_us > 10000 AS elapsed, s.cpu_us > 10000 AS cpu
  FROM awr.get_statements() s JOIN awr.get_plans() p USING (query_id, plan_id)
  WHERE p.query ~ '^(INSERT INTO awr_p VALUES|PREPARE awr_pruned|\(?SELECT sum\(n\))'
    AND s.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  ORDER BY 1;
DEALLOCATE awr_pruned;
DROP TABLE awr_parts;
DROP FUNCTION awr_key();
DROP TABLE awr_p;
DROP FUNCTION awr_burn();

-- The report's document: no negative figure, sums equal the intervals.
CREATE TEMP TABLE document AS SELECT awr.report_data(:s1, :s2) AS d;
SELECT d -> 'format' AS format, (d -> 'elapsed_us')::bigint > 0 AS elapsed, (d -> 'db_time_us')::bigint > 0 AS db_time,
       jsonb_array_length(d -> 'snapshots') FROM document;
WITH RECURSIVE node (path, value) AS (
  SELECT '', d FROM document
  UNION ALL
  SELECT c.path, c.value FROM node, LATERAL (
    SELECT path || '.' || key AS path, e.value FROM jsonb_each(CASE jsonb_typeof(node.value) WHEN 'object' THEN node.value ELSE '{}' END) e
    UNION ALL
    SELECT path || '[]', e.value FROM jsonb_array_elements(CASE jsonb_typeof(node.value) WHEN 'array' THEN node.value ELSE '[]' END) e) c)
SELECT path, value FROM node WHERE jsonb_typeof(value) = 'number' AND (value #>> '{}')::numeric < 0
  AND path !~ '(growth|query_id|plan_id|age_xids)$';
SELECT (e -> 'n_tup_ins')::int AS inserted FROM document, jsonb_array_elements(d -> 'tables') e WHERE e ->> 'name' = 'awr_t';

-- These statistics come from different views in different versions.
SELECT e ->> 'name' AS name, (e -> 'value')::numeric > 0 AS counted FROM document, jsonb_array_elements(d -> 'statistics') e
  WHERE e ->> 'name' IN ('physical writes', 'redo size', 'redo synch writes', 'redo writes', 'DBWR checkpoint buffers written') ORDER BY 1;

-- Reports
SELECT awr.report(:s1, :s2) LIKE '%WORKLOAD REPOSITORY report for%' AS text_report;
SELECT awr.report(:s1, :s2, 'HTML') ILIKE '<!doctype html>%' AS html_report;
SELECT awr.report(:s1, :s2, 'json')::jsonb IS NOT NULL AS json_report;
SELECT awr.diff_report(:s1, :s2, :s1, :s2) IS NOT NULL AS diff_report;
SELECT awr.report(:s1, :s2, 'pdf');
SELECT awr.render('{"format": 99}', NULL, 'text');
SELECT awr.render('[]', NULL, 'text');

-- Wrong periods are refused with the snapshots that exist.
CREATE FUNCTION refused(b bigint, e bigint, i int DEFAULT 1) RETURNS text AS $$
DECLARE message text; detail text; hint text;
BEGIN
  PERFORM awr.report_data(b, e, i);
  RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
  GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
  RETURN concat_ws(' / ', SQLSTATE, message, regexp_replace(detail, '\d+-\d\d-\d\d \d\d:\d\d', 'TIME', 'g'), hint);
END $$ LANGUAGE plpgsql;
SELECT regexp_replace(refused(:s2, :s1), '\d+', 'N', 'g');
SELECT regexp_replace(refused(:s1, 1000000), ': \d+-\d+', ': N-N');
SELECT refused(:s1, :s2, 99);

-- Baselines survive the retention; nothing younger than the retention is dropped.
SELECT awr.create_baseline('test', :s1, :s2);
SELECT awr.drop_expired_snapshots('1 day');
UPDATE awr.baseline SET first_day = first_day - 30;
SELECT awr.create_partitions(current_date - 20);
INSERT INTO awr.snapshot SELECT current_date - 20, 0, 1, NULL, now() - interval '20 days', NULL, 'test', NULL, NULL, '{}';
SELECT awr.drop_expired_snapshots('8 days');
SELECT awr.drop_baseline('test');
SELECT awr.drop_expired_snapshots('8 days');
SELECT awr.drop_baseline('test');

-- Settings are stored without passwords, and statements that may contain one without their texts.
SELECT setting, awr.redact_setting(name, setting, 'string') AS redacted
FROM (VALUES ('primary_conninfo', 'host=primary user=standby password=hidden port=5433'),
             ('primary_conninfo', 'user=standby password = ''two \'' hidden words'' sslmode=require'),
             ('primary_conninfo', 'postgres://standby:hidden@primary:5432/postgres?sslpassword=hidden&sslmode=require'),
             ('archive_command', 'PGPASSWORD="hidden words" copy %p && curl -u backup:hidden https://host/%f'),
             ('restore_command', 'AWS_SECRET_ACCESS_KEY=hidden aws s3 cp s3://wal/%f %p --token hidden'),
             ('ssl_passphrase_command', 'echo hidden'), ('vault.token', 'hidden'), ('vault.token_file', '/etc/token'), ('search_path', '"$user", public'),
             ('log_line_prefix', '%m [%p] '), ('archive_command', 'test ! -f /archive/%f && cp %p /archive/%f')) v (name, setting);
SELECT awr.redact_setting('password_encryption', 'scram-sha-256', 'enum');
CREATE ROLE awr_secret;
ALTER ROLE awr_secret SET application_name = 'hidden4711';
SET application_name = 'hidden4711';
DO $$ BEGIN PERFORM 'password', 'hidden4711'; END $$;
DO $$ BEGIN PERFORM 'shown4711'; END $$;
RESET application_name;
DROP ROLE awr_secret;
SELECT count(*) FILTER (WHERE query LIKE '%hidden' || '4711%') AS hidden, count(*) FILTER (WHERE query LIKE '%shown' || '4711%') > 0 AS shown FROM awr.get_plans();
-- Settings of the caller do not affect what functions do with the rights of their owner.
SELECT proname FROM pg_proc WHERE pronamespace = 'awr'::regnamespace AND prosecdef
  AND NOT proconfig @> ARRAY['search_path=pg_catalog, pg_temp', 'default_tablespace=', 'default_table_access_method=heap', 'standard_conforming_strings=on'];

-- SQL objects of another version than the library are refused, with what to do.
SELECT cellar.get_library_version() = extversion AS same FROM pg_extension WHERE extname = 'cellar';
CREATE SCHEMA other_version;
CREATE FUNCTION other_version.get_cpu(OUT database oid, OUT backend_type text) RETURNS SETOF record
  AS '$libdir/cellar', 'cellar_get_cpu' LANGUAGE C;
CREATE FUNCTION other_version.get_sampler_state(OUT next_sequence bigint, OUT ticks bigint, OUT late_ticks bigint, OUT capacity bigint, OUT period_ms integer, OUT more integer) RETURNS record
  AS '$libdir/cellar', 'cellar_get_sampler_state' LANGUAGE C;
SELECT * FROM other_version.get_cpu();
BEGIN;
UPDATE pg_extension SET extversion = '1.0.9' WHERE extname = 'cellar';
SELECT * FROM other_version.get_cpu();
ROLLBACK;
BEGIN;
UPDATE pg_extension SET extversion = '1.10' WHERE extname = 'cellar';
SELECT * FROM other_version.get_sampler_state();
ROLLBACK;
DROP FUNCTION other_version.get_cpu(), other_version.get_sampler_state();
DROP SCHEMA other_version;

-- Only members of pg_monitor use the repository.
CREATE ROLE awr_nobody;
CREATE ROLE awr_monitor;
GRANT pg_monitor TO awr_monitor;
SET ROLE awr_nobody;
SELECT count(*) FROM awr.snapshots;
SELECT awr.create_snapshot();
RESET ROLE;
SET ROLE awr_monitor;
SELECT count(*) > 5 AS snapshots FROM awr.snapshots;
SELECT awr.create_snapshot() > 0 AS taken;
SELECT awr.query_database(1, 'SELECT to_jsonb(1)');
RESET ROLE;
DROP ROLE awr_nobody, awr_monitor;
DROP FUNCTION refused(bigint, bigint, int);
DROP VIEW IF EXISTS table_increases;
