-- When the planner chooses a Smart Scan; on a server without a cell, plans show what it would choose.
CREATE EXTENSION IF NOT EXISTS cellar;
SET cellar.cell_offload_plan_display = always;
SET cellar.min_scan_size = 0;
SET max_parallel_workers_per_gather = 0;
CREATE TABLE planned (part int8, supplier int8, order_number int8, comment text) WITH (autovacuum_enabled = off);
INSERT INTO planned SELECT i % 500, i % 500 % 10, i, repeat('wide ', 20) FROM generate_series(1, 50000) i;
CREATE INDEX planned_duplicates ON planned (part, supplier);
CREATE INDEX planned_unique ON planned (order_number, supplier);
VACUUM (FREEZE, ANALYZE) planned;

-- A selective condition on an indexed column uses the index; a condition without an index uses a Smart Scan.
EXPLAIN (COSTS OFF) SELECT * FROM planned WHERE order_number = 77;
EXPLAIN (COSTS OFF) SELECT count(comment) FROM planned WHERE comment LIKE '%narrow%';

-- Fetching several hundred rows through an index is cheaper than a Smart Scan only if their pages are in memory. Without the
-- setting, the planner takes a sample of the pages, which are in shared buffers.
SET cellar.cached_fraction = 0;
EXPLAIN (COSTS OFF) SELECT count(comment) FROM planned WHERE part IN (7, 107, 207, 307);
SET cellar.cached_fraction = 1;
EXPLAIN (COSTS OFF) SELECT count(comment) FROM planned WHERE part IN (7, 107, 207, 307);
-- Index scans can be disabled.
SET enable_indexscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT count(comment) FROM planned WHERE part IN (7, 107, 207, 307);
RESET enable_indexscan;
RESET enable_bitmapscan;
RESET cellar.cached_fraction;
EXPLAIN (COSTS OFF) SELECT count(comment) FROM planned WHERE part IN (7, 107, 207, 307);

-- A full scan of an index with posting lists is cheaper than a Smart Scan; of an index with single entries it is not.
EXPLAIN (COSTS OFF) SELECT count(*) FROM planned WHERE supplier = 77;
SELECT what, reason FROM cellar.why_not_offloaded WHERE reason LIKE '%index%';
DROP INDEX planned_duplicates;
EXPLAIN (COSTS OFF) SELECT count(*) FROM planned WHERE supplier = 77;

-- Expressions over columns of many values may have few values: their groups fit into the cell.
CREATE FUNCTION estimated_groups(keys text, source text DEFAULT 'instants') RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE format('EXPLAIN SELECT %s, count(*) FROM %s GROUP BY %1$s', keys, source) LOOP
    IF line LIKE '%Smart Scan Aggregate%' THEN RETURN substring(line FROM 'rows=([0-9]+)'); END IF;
  END LOOP;
  RETURN 'not in the cell';
END $$;
CREATE TABLE instants (id int, at timestamp, day date, amount numeric(8,2), weight float8, note text) WITH (autovacuum_enabled = off);
INSERT INTO instants
SELECT i, timestamp '2024-01-01' + i * interval '20 minutes', date '2020-01-01' + i, i / 100.0, i / 50.0, repeat('note ', 20)
FROM generate_series(1, 50000) i;
SET default_statistics_target = 300;
VACUUM (FREEZE, ANALYZE) instants;
RESET default_statistics_target;
SELECT keys, estimated_groups(keys) FROM (VALUES
  ('date_trunc(''month'', at)'),
  ('date_trunc(''day'', at)'),
  ('at::date'),
  ('extract(dow FROM at)'),
  ('extract(year FROM day)'),
  ('extract(hour FROM at)::int * 100 + extract(minute FROM at)::int'),
  ('extract(month FROM at), extract(dow FROM day)'),
  ('id % 10'),
  ('(id - 100) % 10'),
  ('id / 1000'),
  ('(id + 7) * 2'),
  ('floor(weight / 10)::int'),
  ('floor(amount)'),
  ('round(amount)::int'),
  ('id > 100'),
  ('CASE WHEN id < 10 THEN 1 WHEN id < 20 THEN 2 ELSE id % 3 END'),
  ('coalesce(id % 5, -1)'),
  ('id % 10, id % 3, at'),
  ('random() < 0.5')
) q(keys);
-- The cell computes products over vectors, but would interpret quotients of numerics: PostgreSQL aggregates them.
EXPLAIN (COSTS OFF) SELECT sum(amount * 7.5) FROM instants;
EXPLAIN (COSTS OFF) SELECT sum(amount / 7.5) FROM instants;

-- Without statistics, a range is not known.
CREATE TABLE unknown (LIKE instants) WITH (autovacuum_enabled = off);
INSERT INTO unknown SELECT * FROM instants;
SELECT keys, estimated_groups(keys, 'unknown') FROM (VALUES ('date_trunc(''month'', at)'), ('extract(dow FROM at)')) q(keys);
DROP TABLE instants, unknown;
DROP FUNCTION estimated_groups;

-- Settings determine the cost of pages and rows.
SET cellar.cell_page_cost = 10;
EXPLAIN (COSTS OFF) SELECT order_number FROM planned WHERE comment LIKE '%narrow%';
RESET cellar.cell_page_cost;
EXPLAIN (COSTS OFF) SELECT order_number FROM planned WHERE comment LIKE '%wide%';
SET cellar.returned_page_cost = 1000;
EXPLAIN (COSTS OFF) SELECT order_number FROM planned WHERE comment LIKE '%wide%';
RESET cellar.returned_page_cost;

-- Conditions that the cell interprets row by row cost about as much as in PostgreSQL; kernels cost less.
EXPLAIN (COSTS OFF) SELECT count(comment) FROM planned WHERE supplier <> part;
EXPLAIN (COSTS OFF) SELECT count(comment) FROM planned WHERE supplier IS DISTINCT FROM part;
EXPLAIN (COSTS OFF) SELECT count(comment) FROM planned WHERE substring(comment FROM 1 FOR 2) IN ('na', 'ar');

-- For ORDER BY with LIMIT, the cell returns only candidates for the first rows.
EXPLAIN (COSTS OFF) SELECT order_number, comment FROM planned WHERE comment LIKE '%wide%' ORDER BY part DESC, supplier + 1 NULLS FIRST LIMIT 10 OFFSET 5;
EXPLAIN (COSTS OFF) SELECT * FROM (SELECT part, 1 AS one FROM planned ORDER BY part DESC NULLS LAST LIMIT 3) s;

-- No top-N in the cell if the number of rows may change, ties count, or an omitted row might raise an error.
CREATE FUNCTION first_rows(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text; result text := 'all rows';
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
    IF line LIKE '%Storage Top-N%' THEN result := 'first rows'; END IF;
  END LOOP;
  RETURN result;
END $$;
SELECT first_rows('SELECT part FROM planned ORDER BY part LIMIT 3');
SELECT first_rows('SELECT part FROM planned ORDER BY part LIMIT (SELECT 3)');
SELECT first_rows('SELECT part FROM planned ORDER BY part FETCH FIRST 3 ROWS WITH TIES');
SELECT first_rows('SELECT part FROM planned ORDER BY part LIMIT 3 OFFSET 9998');
SELECT first_rows('SELECT part, 1 / supplier FROM planned ORDER BY part LIMIT 3');
SELECT first_rows('SELECT part, 1 / supplier AS quotient FROM planned ORDER BY quotient LIMIT 3');
SELECT first_rows('SELECT part FROM planned WHERE md5(comment) > ''a'' ORDER BY part LIMIT 3');
SELECT first_rows('SELECT DISTINCT part FROM planned ORDER BY part LIMIT 3');
SELECT first_rows('SELECT part, rank() OVER (ORDER BY part) FROM planned ORDER BY part LIMIT 3');
SELECT first_rows('SELECT part, generate_series(1, 2) FROM planned ORDER BY part LIMIT 3');
SELECT first_rows('SELECT comment FROM planned ORDER BY md5(comment) LIMIT 3');
SELECT first_rows('SELECT a.part FROM planned a JOIN planned b USING (order_number) ORDER BY a.part LIMIT 3');
DROP FUNCTION first_rows;
DROP TABLE planned;
