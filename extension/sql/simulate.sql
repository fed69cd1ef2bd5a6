-- Offload simulation: plans and results of tables that are not on a cell.
CREATE FUNCTION show(query text) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
    RETURN NEXT line;
  END LOOP;
END $$;

CREATE TABLE t (a int, b int, c text COLLATE "C", d numeric, e timestamptz);
INSERT INTO t SELECT i, i % 100, 'row ' || i, i / 4.0, '2020-01-01'::timestamptz + i * interval '1 hour'
FROM generate_series(1, 20000) i;
VACUUM ANALYZE t;

SET cellar.min_scan_size = 0;
SET cellar.cost_factor = 0;

-- Simulation is off by default.
SELECT show('SELECT a FROM t WHERE b = 3');
SELECT * FROM cellar.why_not_offloaded;

SET cellar.simulate_offload = on;
SELECT show('SELECT a FROM t WHERE b = 3');
SET cellar.cell_offload_plan_display = never;
SELECT show('SELECT a FROM t WHERE b = 3');
RESET cellar.cell_offload_plan_display;
SET cellar.cell_offload_processing = off;
SELECT show('SELECT a FROM t WHERE b = 3');
RESET cellar.cell_offload_processing;

-- Predicates of all kinds
SELECT show('SELECT 1 FROM t WHERE a BETWEEN 5 AND 7 OR c LIKE ''row 1%''');
SELECT show('SELECT 1 FROM t WHERE a IN (1, 2, NULL) AND b <> ALL (''{1,2}'')');
SELECT show('SELECT 1 FROM t WHERE c IS NULL AND (a > 5) IS NOT TRUE AND a IS DISTINCT FROM b');
SELECT show('SELECT 1 FROM t WHERE COALESCE(a, b, 0) = 5 AND NULLIF(a, b) = 3');
SELECT show('SELECT 1 FROM t WHERE CASE WHEN a > 5 THEN b ELSE a END = 3 AND CASE a WHEN 1 THEN 2 WHEN 2 THEN 3 END = 2');

-- IS NULL on columns of any type; a composite value whose fields are all NULL is NULL, too.
CREATE TYPE pair AS (x int, y int);
CREATE TABLE odd (a int, place point, document jsonb, p pair);
INSERT INTO odd SELECT i, CASE WHEN i % 3 = 0 THEN point(i, i) END, CASE WHEN i % 5 > 0 THEN '{"k": 1}'::jsonb END, ROW(NULL, NULL)::pair
FROM generate_series(1, 3000) i;
ALTER TABLE odd ADD COLUMN later point DEFAULT '(1,2)';
SELECT show('SELECT 1 FROM odd WHERE place IS NULL AND document IS NOT NULL AND later IS NOT NULL AND p IS NULL');
SELECT count(*), sum(a) FROM odd WHERE place IS NULL AND document IS NOT NULL AND later IS NOT NULL AND p IS NULL;
SELECT count(*), sum(a) FROM odd WHERE place IS NOT NULL OR later IS NULL;
DROP TABLE odd;
DROP TYPE pair;

-- Functions of numbers, texts and times: the storage predicate selects the rows that PostgreSQL selects, or raises the same error.
CREATE FUNCTION selected(condition text, offload text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE result text;
BEGIN
  PERFORM set_config('cellar.cell_offload_processing', offload, true);
  EXECUTE 'SELECT count(*) || '' rows, '' || coalesce(sum(id), 0) FROM v WHERE ' || condition INTO result;
  RETURN result;
EXCEPTION WHEN data_exception THEN
  RETURN SQLERRM;
END $$;
CREATE FUNCTION compared(condition text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  expected text := selected(condition, 'off');
  found text := selected(condition, 'on');
BEGIN
  RETURN CASE WHEN found <> expected THEN 'differs, ' || found || ': '
              WHEN NOT EXISTS (SELECT FROM show('SELECT id FROM v WHERE ' || condition) line WHERE line LIKE '%Storage Predicate%')
              THEN 'not offloaded: ' ELSE '' END || expected;
END $$;
CREATE TABLE v (id int, i int, j int, n numeric, f float8, c text COLLATE "C", s timestamp, z timestamptz, o time);
INSERT INTO v
SELECT id, CASE WHEN id % 7 > 0 THEN id % 40 - 20 END, CASE WHEN id % 5 > 0 THEN id % 30 - 10 END,
       CASE WHEN id % 11 > 0 THEN (id - 1500) / 40.0 END, CASE WHEN id % 13 > 0 THEN (id - 1500) / 8.0 END,
       CASE WHEN id % 6 > 0 THEN 'a,' || id % 100 || ',é,' || id END,
       timestamp '1999-12-01' + id * interval '7 hours 11 minutes 7.5 seconds',
       timestamptz '1969-12-01 00:00+00' + id * interval '1 hour 0.25 seconds', time '00:00' + id * interval '28.125 seconds'
FROM generate_series(1, 3000) id;
INSERT INTO v VALUES (3001, 2147483647, 0, 'NaN', 'NaN', '', 'infinity', '-infinity', '24:00'),
  (3002, -2147483648, 1, 'infinity', '-infinity', ',', '4714-11-24 BC', '4714-11-24 00:00+00 BC', '00:00'),
  (3003, 0, 0, 1e30, -0.0, 'x', '0001-01-01 BC', 'infinity', '12:00'), (3004, 0, 0, -1e-30, 1e300, 'y,', NULL, NULL, NULL);
VACUUM ANALYZE v;
SELECT condition, compared(condition)
FROM unnest(ARRAY[
  'greatest(i, j) > 5', 'least(i, j, 3) = 3', 'greatest(n, i, j) < 0', 'least(c, ''a,5'') = ''a,5''', 'greatest(f, i) = 0',
  'greatest(i, 100 / j) = 20', 'greatest(i / 7, j, id % 4, 2) = 3', 'greatest(s, timestamp ''2000-05-05'') = s',
  'round(n, 1) = 3.5', 'round(n) = -3', 'round(n, -1) = 20', 'trunc(n, 1) = -3.5', 'trunc(n) = 0', 'ceil(n) = -2',
  'floor(n) = -2', 'ceiling(n) = 1', 'round(f) = 2', 'round(f) = -2', 'trunc(f) = -2', 'ceil(f) = -2', 'floor(f) = -3',
  'sqrt(abs(f)) = 5', 'sqrt(f) > 5', 'f > 7 AND sqrt(f) > 5', 'floor(f) = ''-infinity''',
  'replace(c, '','', '''') = ''a7é7''', 'replace(c, ''é'', ''e'') LIKE ''a,3,e%''', 'replace(c, '''', ''x'') = c',
  'split_part(c, '','', 2) = ''42''', 'split_part(c, '','', -2) = ''é''', 'split_part(c, ''é'', 3) = ''''',
  'split_part(c, '','', j) = ''a''', 'split_part(c, '''', 1) = c', 'extract(year FROM s) = 2001',
  'extract(second FROM s) = 30', 'extract(minute FROM s) IN (3, 4)', 'extract(epoch FROM s) < 0',
  'date_trunc(''hour'', s) = timestamp ''2000-01-01 17:00''', 's::date = ''2000-02-03''',
  'extract(hour FROM o) = 7 AND extract(second FROM o) > 30.5', 'extract(milliseconds FROM o) = 28125',
  'extract(hour FROM z) = 7'
]) condition;
DROP FUNCTION selected;
DROP FUNCTION compared;
DROP TABLE v;

-- Case conversion, division
SELECT show('SELECT a FROM t WHERE lower(c) = ''row 7'' OR c ILIKE ''ROW 1234%'' OR upper(c) LIKE ''%9999''');
SELECT a FROM t WHERE lower(c) = 'row 7' OR c ILIKE 'ROW 1234%' OR upper(c) LIKE '%9999' ORDER BY a LIMIT 3;
SELECT show('SELECT a FROM t WHERE c ILIKE ''%É%''');
SELECT what, reason FROM cellar.why_not_offloaded;
SELECT show('SELECT a FROM t WHERE c ILIKE ANY (ARRAY[''row 7'', ''x'']) AND coalesce(lower(c), c) = ''x'' AND extract(week FROM e::timestamp) = 3 AND extract(isoyear FROM e AT TIME ZONE ''UTC'') = 2020');
SELECT expression, reason FROM cellar.why_not_offloaded ORDER BY expression COLLATE "C";
SELECT show('SELECT a FROM t WHERE a / 7.0 = 3.0000000000000000');
SELECT a FROM t WHERE a / 7.0 = 3.0000000000000000 OR 1.0 / a = 0.01 ORDER BY a;

-- Conditions that are not offloaded, and the reasons
SELECT count(*) FROM t WHERE a > random() - 1 AND c ~ '^row \d' AND b = (SELECT min(b) FROM t x WHERE x.a = t.a) AND t.a = 3;
SELECT * FROM cellar.why_not_offloaded WHERE what = 'qual' ORDER BY expression COLLATE "C";

-- Parameters of generic plans; errors are raised only if Postgres evaluates the expression.
SET plan_cache_mode = force_generic_plan;
PREPARE division (int, int) AS SELECT count(*) FROM t WHERE a < $2 AND b > 100 / $1;
EXECUTE division(50, 1000);
EXECUTE division(0, -1);
EXECUTE division(0, 1000);
PREPARE elements (int[]) AS SELECT count(*) FROM t WHERE a = ANY ($1);
EXECUTE elements('{1,2,NULL,2}');
EXECUTE elements('{}');
EXECUTE elements(NULL);
PREPARE recent (interval) AS SELECT count(*) FROM t WHERE e < now() - $1;
EXECUTE recent('1 day');
RESET plan_cache_mode;

-- Cursors scroll backward, and WHERE CURRENT OF works, as with a sequential scan.
BEGIN;
DECLARE c CURSOR FOR SELECT a, c FROM t WHERE a < 6;
FETCH 3 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH 2 FROM c;
UPDATE t SET b = -1 WHERE CURRENT OF c;
FETCH ALL FROM c;
FETCH BACKWARD 1 FROM c;
MOVE BACKWARD ALL IN c;
FETCH BACKWARD 1 FROM c;
FETCH 1 FROM c;
SELECT a, b FROM t WHERE b = -1;
ROLLBACK;

-- Changes by the same transaction, by a rolled back subtransaction, and by the statement itself
BEGIN;
SAVEPOINT s;
DELETE FROM t WHERE a <= 10;
SELECT count(*) FROM t WHERE a <= 20;
ROLLBACK TO s;
UPDATE t SET c = 'new' WHERE a = 3;
SELECT count(*), min(c) FROM t WHERE a <= 3;
INSERT INTO t (a) SELECT a FROM t WHERE a <= 3;
SELECT count(*) FROM t WHERE a <= 3;
ROLLBACK;

-- Scans that are not offloaded
SELECT show('SELECT * FROM t WHERE a = 3 FOR UPDATE');
SELECT show('SELECT a FROM t TABLESAMPLE SYSTEM (10) WHERE a = 3');
SELECT show('SELECT xmin FROM t WHERE a = 3');
SELECT show('UPDATE t SET b = 0 WHERE a = 3');
SELECT show('SELECT relname FROM pg_class WHERE oid = 1259');
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT show('SELECT a FROM t WHERE b = 3');
ROLLBACK;

-- Row security: only leakproof conditions are evaluated before the policy.
CREATE FUNCTION mine(int) RETURNS bool LANGUAGE plpgsql STABLE COST 10000 AS 'BEGIN RETURN $1 < 100; END';
CREATE ROLE cellar_user;
GRANT SELECT ON t TO cellar_user;
ALTER TABLE t ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON t USING (mine(a));
SET ROLE cellar_user;
SELECT show('SELECT a FROM t WHERE a / 2 = 1 AND b = 3');
RESET ROLE;
ALTER TABLE t DISABLE ROW LEVEL SECURITY;
DROP POLICY p ON t;

-- Partitions, inheritance, subqueries, joins
CREATE TABLE parts (a int, b text) PARTITION BY RANGE (a);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (100);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (100) TO (1000);
INSERT INTO parts SELECT i, 'p' || i FROM generate_series(0, 999) i;
ANALYZE parts;
SELECT show('SELECT count(*) FROM parts WHERE a > 50 AND b <> ''x''');
SELECT count(*) FROM parts WHERE a > 50 AND b <> 'x';
SELECT count(*) FROM parts p WHERE EXISTS (SELECT 1 FROM t WHERE t.a = p.a AND t.b = 7);
SELECT p.a, x.n FROM parts p, LATERAL (SELECT count(*) AS n FROM t WHERE t.b = p.a) x WHERE p.a IN (5, 500) ORDER BY 1;
WITH w AS MATERIALIZED (SELECT a FROM t WHERE a < 100) SELECT count(*) FROM w JOIN parts USING (a);

-- Parallel plans
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET cellar.cost_factor = 0.01;
SELECT show('SELECT a FROM t WHERE b < 50');
SELECT count(*), sum(a) FROM (SELECT a FROM t WHERE b < 50 OFFSET 0) x;
SELECT show('SELECT count(*) FROM t WHERE b < 50');
SELECT count(*), sum(a) FROM t WHERE b < 50;

-- Statistics
SELECT name, value > 0 AS counted FROM cellar.mystat WHERE name LIKE 'cell simulated%';

DROP TABLE t, parts;
DROP ROLE cellar_user;
DROP FUNCTION mine, show;
