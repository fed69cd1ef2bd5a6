-- Lookup joins: a Smart Scan Aggregate above joins. Without a cell, the plans have lookup tables, and PostgreSQL joins and
-- aggregates all rows.
CREATE EXTENSION IF NOT EXISTS cellar;
SET cellar.cell_offload_plan_display = always;
SET cellar.min_scan_size = 0;
SET cellar.lookup_joins = on;
SET cellar.cost_factor = 0;
SET max_parallel_workers_per_gather = 0;
-- 19 can aggregate below a join.
SELECT count(set_config('enable_eager_aggregate', 'off', false)) < 2 AS set FROM pg_settings WHERE name = 'enable_eager_aggregate';
CREATE TABLE facts (id int4, item int4, place int8, word text, price numeric(9,2)) WITH (autovacuum_enabled = off);
INSERT INTO facts SELECT i, i % 500, CASE WHEN i % 3 > 0 THEN i % 100 END, 'word ' || i % 50, i % 700 / 4.0
  FROM generate_series(1, 20000) i;
CREATE TABLE items (id int4, kind int4, name text COLLATE "C") WITH (autovacuum_enabled = off);
INSERT INTO items SELECT i, i % 10, 'item ' || i % 30 FROM generate_series(0, 399) i;
INSERT INTO items SELECT i, 3, NULL FROM generate_series(390, 399) i;
CREATE TABLE places (id int8, region int4) WITH (autovacuum_enabled = off);
INSERT INTO places SELECT i, i % 5 FROM generate_series(0, 99) i;
INSERT INTO places VALUES (NULL, 3);
CREATE TABLE pairs (a int4, b int8, n int4) WITH (autovacuum_enabled = off);
INSERT INTO pairs SELECT i % 500, CASE WHEN i % 3 > 0 THEN i % 100 END, i % 7 FROM generate_series(1, 600) i;
INSERT INTO pairs SELECT 1, 1, n FROM generate_series(1, 3) n UNION ALL VALUES (NULL::int4, 2::int8, 5), (NULL, NULL, 6);
VACUUM (FREEZE, ANALYZE) facts, items, places, pairs;
CREATE FUNCTION failing(bool) RETURNS int4 STABLE LANGUAGE plpgsql AS $$
  BEGIN IF $1 THEN RAISE EXCEPTION 'evaluated'; END IF; RETURN 0; END $$;

EXPLAIN (COSTS OFF) SELECT i.kind, count(*), sum(f.price) FROM facts f JOIN items i ON f.item = i.id GROUP BY i.kind;
-- Relations that are not joined with the outer table belong to a component, or are joined with one in the cell.
EXPLAIN (COSTS OFF) SELECT p.region, max(i.name) FROM facts f JOIN items i ON f.item = i.id JOIN places p ON i.kind = p.id
  WHERE f.word LIKE '%1' GROUP BY p.region;

-- Which joins are evaluated in the cell, and that the result does not depend on it.
CREATE FUNCTION lookup_joins(query text, OUT tables int, OUT same bool) LANGUAGE plpgsql AS $$
DECLARE line text; joined text; plain text;
BEGIN
  tables := 0;
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
    IF line LIKE '%(Lookup Table)%' THEN tables := tables + 1; END IF;
  END LOOP;
  EXECUTE 'SELECT string_agg(s::text, '' '' ORDER BY s::text) FROM (' || query || ') s' INTO joined;
  PERFORM set_config('cellar.lookup_joins', 'off', true);
  EXECUTE 'SELECT string_agg(s::text, '' '' ORDER BY s::text) FROM (' || query || ') s' INTO plain;
  PERFORM set_config('cellar.lookup_joins', 'on', true);
  same := joined IS NOT DISTINCT FROM plain;
END $$;
SELECT q.query, j.* FROM (VALUES
  ('SELECT count(*), sum(f.price) FROM facts f JOIN items i ON f.item = i.id'),
  ('SELECT i.name, count(*) FROM facts f JOIN items i ON f.item = i.id GROUP BY i.name'),
  ('SELECT i.name, p.region, sum(f.price) FROM facts f, items i, places p WHERE f.item = i.id AND f.place = p.id GROUP BY 1, 2'),
  ('SELECT i.kind + f.id % 2, avg(f.id + i.id) FROM facts f JOIN items i ON f.item = i.id WHERE f.id > 100 GROUP BY 1'),
  ('SELECT i.name, count(*) FROM facts f JOIN items i ON f.item = i.id WHERE i.kind < 0 GROUP BY i.name'),
  ('SELECT i.name, count(*) FROM facts f JOIN items i ON f.item = i.id GROUP BY i.name HAVING count(*) > 500'),
  -- All keys equal constants: no row without joined rows.
  ('SELECT i.name, count(*), sum(f.price) FROM facts f JOIN items i ON f.item = i.id WHERE i.name = ''item 3'' GROUP BY i.name'),
  ('SELECT i.name, count(*) FROM facts f JOIN items i ON f.item = i.id WHERE i.name = ''no item'' GROUP BY i.name'),
  ('SELECT i.kind, f.word, max(f.id) FROM facts f JOIN items i ON f.item = i.id WHERE i.kind = 3 AND f.word = ''word 3'' GROUP BY 1, 2 HAVING count(*) > 3'),
  ('SELECT i.kind, count(DISTINCT f.place), count(*) FROM facts f JOIN items i ON f.item = i.id WHERE i.kind = 3 GROUP BY 1'),
  ('SELECT i.kind, count(DISTINCT f.place), count(*) FROM facts f JOIN items i ON f.item = i.id WHERE i.kind = 30 GROUP BY 1'),
  ('SELECT DISTINCT i.kind, f.word FROM facts f JOIN items i ON f.item = i.id WHERE i.kind = 3'),
  -- A side may be a subquery, also one that groups rows.
  ('SELECT s.region, count(*) FROM facts f JOIN (SELECT i.id, p.region FROM items i, places p WHERE i.kind = p.id OFFSET 0) s ON f.item = s.id GROUP BY 1'),
  ('SELECT s.n, count(*), sum(f.price) FROM facts f JOIN (SELECT kind, count(*) AS n FROM items GROUP BY kind) s ON f.item = s.kind GROUP BY 1'),
  ('WITH s AS MATERIALIZED (SELECT id, kind FROM items) SELECT s.kind, count(*) FROM facts f JOIN s ON f.item = s.id GROUP BY 1'),
  ('SELECT v.name, count(*) FROM facts f JOIN (VALUES (1, ''one''), (2, ''two''), (2, ''deux'')) v(id, name) ON f.item = v.id GROUP BY 1'),
  -- Several partners: keys that are not unique, in one table and in two.
  ('SELECT i.name, count(*), sum(f.price) FROM facts f JOIN items i ON f.place = i.kind GROUP BY 1'),
  ('SELECT i.kind, p.id, count(*), max(f.id) FROM facts f JOIN items i ON f.place = i.kind JOIN places p ON p.region = f.place GROUP BY 1, 2'),
  ('SELECT f.item, count(*) FROM facts f LEFT JOIN items i ON f.place = i.kind GROUP BY 1'),
  -- Conditions on joined rows.
  ('SELECT count(*) FROM facts f JOIN items i ON f.item = i.id AND f.id % 10 = i.kind'),
  ('SELECT i.kind, count(*) FROM facts f JOIN items i ON f.item = i.id AND f.id % 10 > i.kind GROUP BY 1'),
  ('SELECT i.name, p.region, count(*) FROM facts f, items i, places p WHERE f.item = i.id AND f.place = p.id
    AND (i.kind = 3 AND p.region = 1 OR i.kind = 4 AND p.region = 2) GROUP BY 1, 2'),
  ('SELECT i.kind, count(*) FROM facts f JOIN items i ON f.item = i.id AND 100 / (i.kind + 1) > f.id % 50 AND f.word < i.name GROUP BY 1'),
  -- Errors are raised by PostgreSQL: no row with a partner raises one.
  ('SELECT count(*), sum(1000 / (400 - f.item)) FROM facts f JOIN items i ON f.item = i.id'),
  -- Left joins, semijoins and antijoins; the order of groups, keys of several parts and of columns of another table.
  ('SELECT i.name, count(*) FROM facts f LEFT JOIN items i ON f.item = i.id GROUP BY i.name'),
  ('SELECT i.name, p.region, count(i.id), count(*) FROM facts f LEFT JOIN items i ON f.item = i.id LEFT JOIN places p ON f.place = p.id GROUP BY 1, 2'),
  ('SELECT count(*) FROM facts f WHERE f.item IN (SELECT id FROM items)'),
  ('SELECT f.item, count(*) FROM facts f WHERE EXISTS (SELECT FROM items i WHERE i.id = f.item AND i.kind = 3) GROUP BY 1'),
  ('SELECT f.place, count(*) FROM facts f WHERE NOT EXISTS (SELECT FROM items i WHERE i.id = f.place AND i.kind < 5) GROUP BY 1'),
  -- The sides return distinct keys.
  ('SELECT f.item, count(*) FROM facts f WHERE f.place IN (SELECT kind FROM items) GROUP BY 1'),
  ('SELECT count(*), sum(f.id) FROM facts f WHERE NOT EXISTS (SELECT FROM items i WHERE i.kind = f.place AND i.id > 100)'),
  ('SELECT i.kind, count(*) FROM items i WHERE EXISTS (SELECT FROM facts f WHERE f.place = i.kind AND f.item = i.id) GROUP BY 1'),
  ('SELECT p.region, count(*) FROM facts f JOIN places p ON f.place = p.id WHERE f.item NOT IN (SELECT 7) AND NOT EXISTS (SELECT FROM items i WHERE i.id = f.item) GROUP BY 1'),
  ('SELECT i.name, sum(f.price) FROM facts f JOIN items i ON f.item = i.id GROUP BY 1 HAVING sum(f.price) > 1000 ORDER BY 2 DESC, 1 LIMIT 3'),
  ('SELECT i.kind, count(*) FROM facts f JOIN items i ON f.item = i.id AND f.place = i.kind GROUP BY 1'),
  ('SELECT p.region, count(*) FROM facts f JOIN items i ON f.item = i.id JOIN places p ON f.place = p.id AND p.region = i.kind GROUP BY 1'),
  -- PostgreSQL joins with columns of a semijoin's or antijoin's side.
  ('SELECT count(*) FROM facts f, places p WHERE EXISTS (SELECT FROM items i WHERE i.id = f.item) AND p.id = f.item AND p.region = f.place'),
  ('SELECT count(*), count(i.kind) FROM facts f LEFT JOIN items i ON f.item = i.id WHERE i.id IS NULL'),
  -- The outer table is the right side of a left join: only if all aggregates ignore its NULLs.
  ('SELECT i.id, count(f.id), sum(f.price) FROM items i LEFT JOIN facts f ON f.item = i.id AND f.price > 100 GROUP BY i.id'),
  ('SELECT p.region, count(f.id) FROM places p LEFT JOIN facts f ON f.place = p.id GROUP BY 1 HAVING count(f.id) < 2700'),
  ('SELECT i.id, count(*) FROM items i LEFT JOIN facts f ON f.item = i.id AND f.price > 100 GROUP BY i.id'),
  ('SELECT f.place, count(f.id) FROM items i LEFT JOIN facts f ON f.item = i.id GROUP BY f.place'),
  -- Not supported: full joins, conditions above an outer join or of a join other than an inner join, joins without an equality of columns,
  -- two comparisons, other types, system columns.
  ('SELECT i.name, count(f.id) FROM facts f FULL JOIN items i ON f.item = i.id GROUP BY i.name'),
  ('SELECT i.name, count(*) FROM facts f LEFT JOIN items i ON f.item = i.id WHERE i.kind IS NULL OR i.kind > f.id GROUP BY i.name'),
  ('SELECT i.name, count(*) FROM facts f LEFT JOIN items i ON f.item = i.id AND f.id > 100 GROUP BY i.name'),
  ('SELECT count(*) FROM facts f WHERE EXISTS (SELECT FROM items i WHERE i.id = f.item AND i.kind <> f.id % 7)'),
  ('SELECT count(*) FROM facts f WHERE EXISTS (SELECT FROM items i WHERE i.id = f.item AND i.kind <> f.place AND i.kind < f.id)'),
  ('SELECT count(*) FROM facts f JOIN places p ON f.item + 1 = p.id'),
  ('SELECT count(*) FROM facts f JOIN items i ON f.word = i.name'),
  ('SELECT i.tableoid::regclass::text, count(*) FROM facts f JOIN items i ON f.item = i.id GROUP BY 1'),
  -- Composite keys with NULLs and duplicates, of the outer table and of other sides; chains of sides.
  ('SELECT r.n, count(*), sum(f.price) FROM facts f JOIN pairs r ON f.item = r.a AND f.place = r.b GROUP BY 1'),
  ('SELECT r.n, count(r.a), count(*) FROM facts f LEFT JOIN pairs r ON f.item = r.a AND f.place = r.b GROUP BY 1'),
  ('SELECT f.place, count(*) FROM facts f WHERE NOT EXISTS (SELECT FROM pairs r WHERE f.item = r.a AND f.place = r.b) GROUP BY 1'),
  ('SELECT count(*), sum(f.id) FROM facts f WHERE EXISTS (SELECT FROM pairs r WHERE f.item = r.a AND f.place = r.b AND r.n < 4)'),
  ('SELECT p.region, count(*), max(r.n) FROM facts f JOIN items i ON f.item = i.id JOIN pairs r ON r.a = i.kind AND r.b = f.place JOIN places p ON p.id = r.n GROUP BY 1'),
  ('SELECT i.name, count(*) FROM facts f JOIN pairs r ON f.item = r.a JOIN places p ON p.id = r.b JOIN items i ON i.id = p.region AND i.kind = r.n GROUP BY 1'),
  -- A condition on columns of two sides does not put them into one component.
  ('SELECT i.kind, p.region, count(*) FROM facts f, items i, places p, pairs r WHERE f.item = i.id AND f.place = p.id AND r.a = i.kind
    AND (i.kind = 1 AND r.n = 2 OR i.kind = 2 AND r.n = 1 OR p.region = r.n) GROUP BY 1, 2'),
  -- Semijoins and antijoins with a comparison; NULLs on both sides, several rows per key.
  ('SELECT f.word, count(*) FROM facts f WHERE EXISTS (SELECT FROM pairs r WHERE r.a = f.item AND r.b <> f.place) GROUP BY 1'),
  ('SELECT f.word, count(*) FROM facts f WHERE NOT EXISTS (SELECT FROM pairs r WHERE r.a = f.item AND r.b <> f.place) GROUP BY 1'),
  ('SELECT count(*), sum(f.id) FROM facts f WHERE EXISTS (SELECT FROM items i WHERE i.kind = f.place AND i.id < f.item)'),
  ('SELECT count(*), sum(f.id) FROM facts f WHERE NOT EXISTS (SELECT FROM items i WHERE f.place = i.kind AND f.item >= i.id)'),
  ('SELECT count(*), sum(f.id) FROM facts f WHERE NOT EXISTS (SELECT FROM items i WHERE i.kind = f.place AND f.item > i.id)'),
  ('SELECT i.kind, count(*) FROM facts f JOIN items i ON f.item = i.id WHERE EXISTS (SELECT FROM facts o WHERE o.item = f.item AND o.place <> f.place)
    AND NOT EXISTS (SELECT FROM facts o WHERE o.item = f.item AND o.place <> f.place AND o.price > 100) GROUP BY 1'),
  -- Aggregates with DISTINCT, and SELECT DISTINCT.
  ('SELECT count(DISTINCT i.name) FROM facts f JOIN items i ON f.item = i.id'),
  ('SELECT i.kind, count(DISTINCT f.place), sum(f.price), max(f.word) FROM facts f JOIN items i ON f.item = i.id GROUP BY 1 HAVING count(DISTINCT f.place) > 5'),
  ('SELECT f.place, sum(DISTINCT i.kind) FILTER (WHERE f.id > 900), count(*) FROM facts f LEFT JOIN items i ON f.item = i.id GROUP BY 1'),
  ('SELECT i.kind, count(DISTINCT f.place) FROM facts f JOIN items i ON f.item = i.id GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3'),
  ('SELECT i.kind, count(DISTINCT f.place), count(DISTINCT f.word), min(i.name) FROM facts f JOIN items i ON f.item = i.id GROUP BY 1'),
  ('SELECT i.id, count(DISTINCT f.place) FROM items i LEFT JOIN facts f ON f.item = i.id GROUP BY 1'),
  ('SELECT DISTINCT i.kind, f.word FROM facts f JOIN items i ON f.item = i.id'),
  ('SELECT DISTINCT i.kind + 1, p.region FROM facts f, items i, places p WHERE f.item = i.id AND f.place = p.id ORDER BY 1, 2 LIMIT 5'),
  ('SELECT DISTINCT ON (i.kind) i.kind, f.word FROM facts f JOIN items i ON f.item = i.id ORDER BY 1, 2'),
  -- Grouping sets: with GROUPING and HAVING, with NULLs in the keys, of no rows, with another row per row of the right side.
  ('SELECT i.name, i.kind, count(*) FROM facts f JOIN items i ON f.item = i.id GROUP BY ROLLUP (1, 2)'),
  ('SELECT p.region, i.kind, f.word, grouping(p.region, i.kind), sum(f.price), avg(f.id) FROM facts f, items i, places p WHERE f.item = i.id AND f.place = p.id
    GROUP BY p.region, CUBE (i.kind, f.word) HAVING grouping(f.word) = 1 OR count(*) > 40'),
  ('SELECT i.kind, count(*), count(i.id) FROM facts f LEFT JOIN items i ON f.item = i.id GROUP BY GROUPING SETS ((i.kind), (), ())'),
  ('SELECT i.id, i.kind, count(f.id) FROM items i LEFT JOIN facts f ON f.item = i.id GROUP BY ROLLUP (2, 1)'),
  ('SELECT i.kind, count(*), sum(f.price) FROM facts f JOIN items i ON f.item = i.id WHERE i.kind > 100 GROUP BY ROLLUP (1)'),
  ('SELECT i.kind, count(DISTINCT f.place) FROM facts f JOIN items i ON f.item = i.id GROUP BY ROLLUP (1)'),
  -- HAVING with a subquery.
  ('SELECT i.name, sum(f.price) FROM facts f JOIN items i ON f.item = i.id GROUP BY 1 HAVING sum(f.price) > (SELECT max(id) FROM items)'),
  -- An error of a part without columns that is not raised without joined rows.
  ('SELECT count(*) FROM facts f JOIN items i ON f.item = i.id AND f.id > i.id + failing(i.id > 1000) WHERE i.kind > 100'),
  ('SELECT count(*) FROM facts f JOIN items i ON f.item = i.id AND f.id > i.id + failing(true) WHERE i.kind > 100'),
  ('SELECT sum(f.id + failing(true)) FROM facts f JOIN items i ON f.item = i.id WHERE i.kind > 100'),
  -- A volatile expression is evaluated by PostgreSQL.
  ('SELECT count(*) FROM facts f JOIN items i ON f.item = i.id WHERE random() >= 0'),
  ('SELECT count(*) FILTER (WHERE random() >= 0) FROM facts f JOIN items i ON f.item = i.id')
) q(query), lookup_joins(q.query) j;

-- A join is executed again with other parameters, and with the same.
EXPLAIN (COSTS OFF) SELECT k, s.* FROM generate_series(1, 3) k,
  LATERAL (SELECT count(*) AS n, sum(f.id) FROM facts f JOIN items i ON f.item = i.id AND i.kind = k) s;
SELECT k, s.* FROM generate_series(1, 3) k,
  LATERAL (SELECT count(*) AS n, sum(f.id) FROM facts f JOIN items i ON f.item = i.id AND i.kind = k) s;
SELECT k, s.* FROM generate_series(1, 3) k,
  LATERAL (SELECT count(*) AS n, sum(f.id) FROM facts f JOIN items i ON f.item = i.id WHERE f.id > k * 5000) s;

-- A side that is too large is filtered by the keys of the outer table, or of another side; also when it is executed again.
SET cellar.lookup_table_rows = 150;
EXPLAIN (COSTS OFF) SELECT i.kind, count(*) FROM facts f JOIN items i ON f.item = i.id WHERE f.id < 160 GROUP BY 1;
SELECT q.query, j.* FROM (VALUES
  ('SELECT i.kind, count(*) FROM facts f JOIN items i ON f.item = i.id WHERE f.id < 160 GROUP BY 1'),
  ('SELECT i.kind, count(*), count(i.id) FROM facts f LEFT JOIN items i ON f.item = i.id WHERE f.id < 160 GROUP BY 1'),
  ('SELECT count(*) FROM facts f WHERE f.id < 160 AND NOT EXISTS (SELECT FROM items i WHERE i.id = f.item AND i.kind < 5)'),
  ('SELECT count(*) FROM facts f WHERE f.id < 160 AND f.item IN (SELECT id FROM items WHERE kind < 7)'),
  ('SELECT i.name, count(*) FROM facts f JOIN items i ON f.item = i.id GROUP BY 1')
) q(query), lookup_joins(q.query) j;
SELECT k, s.* FROM generate_series(1, 3) k,
  LATERAL (SELECT count(*) AS n, sum(f.id), max(i.kind) FROM facts f JOIN items i ON f.item = i.id AND i.id <> k WHERE f.id < 160) s;
SELECT k, s.* FROM generate_series(1, 3) k,
  LATERAL (SELECT count(*) AS n, sum(f.id), max(i.kind) FROM facts f JOIN items i ON f.item = i.id WHERE f.id < 160 AND f.place <> k) s;
-- The hash table of the rows that the cell does not join is built before the scan starts again.
BEGIN;
UPDATE facts SET price = price WHERE id <= 10;
SELECT k, s.* FROM generate_series(1, 3) k,
  LATERAL (SELECT count(*) AS n, sum(f.id), max(i.kind) FROM facts f JOIN items i ON f.item = i.id WHERE f.id < 160 AND f.place <> k) s;
ROLLBACK;
SET cellar.lookup_joins = off;
SELECT k, s.* FROM generate_series(1, 3) k,
  LATERAL (SELECT count(*) AS n, sum(f.id), max(i.kind) FROM facts f JOIN items i ON f.item = i.id AND i.id <> k WHERE f.id < 160) s;
SELECT k, s.* FROM generate_series(1, 3) k,
  LATERAL (SELECT count(*) AS n, sum(f.id), max(i.kind) FROM facts f JOIN items i ON f.item = i.id WHERE f.id < 160 AND f.place <> k) s;
SET cellar.lookup_joins = on;
SET cellar.lookup_table_rows = 300;
EXPLAIN (COSTS OFF) SELECT r.n, count(*) FROM facts f JOIN pairs r ON f.place = r.b AND f.item = r.a WHERE f.id < 320 GROUP BY 1;
EXPLAIN (COSTS OFF) SELECT i.name, count(*) FROM facts f JOIN places p ON f.place = p.id JOIN items i ON i.kind = p.region GROUP BY 1;
EXPLAIN (COSTS OFF) SELECT i.kind, count(*) FROM items i WHERE i.id < 100 AND EXISTS (SELECT FROM facts f WHERE f.item = i.id) GROUP BY 1;
SELECT q.query, j.* FROM (VALUES
  ('SELECT i.kind, count(*) FROM items i WHERE i.id < 100 AND EXISTS (SELECT FROM facts f WHERE f.item = i.id AND f.price > 10) GROUP BY 1'),
  ('SELECT i.kind, count(*) FROM items i WHERE i.id < 100 AND NOT EXISTS (SELECT FROM facts f WHERE f.item = i.id AND f.place > 50) GROUP BY 1'),
  ('SELECT r.n, count(*), sum(f.price) FROM facts f JOIN pairs r ON f.place = r.b AND f.item = r.a WHERE f.id < 320 GROUP BY 1'),
  ('SELECT r.n, count(*), count(r.a) FROM facts f LEFT JOIN pairs r ON f.place = r.b AND f.item = r.a WHERE f.id < 320 GROUP BY 1'),
  ('SELECT i.name, count(*) FROM facts f JOIN places p ON f.place = p.id JOIN items i ON i.kind = p.region GROUP BY 1'),
  ('SELECT i.name, count(*), max(f.id) FROM facts f JOIN places p ON f.place = p.id JOIN items i ON i.kind = p.region AND i.id <> f.item GROUP BY 1')
) q(query), lookup_joins(q.query) j;
SELECT k, s.* FROM generate_series(1, 3) k,
  LATERAL (SELECT count(*) AS n, sum(i.id) FROM items i WHERE i.id < 100 AND EXISTS (SELECT FROM facts f WHERE f.item = i.id AND f.id < k * 30)) s;
SET cellar.lookup_joins = off;
SELECT k, s.* FROM generate_series(1, 3) k,
  LATERAL (SELECT count(*) AS n, sum(i.id) FROM items i WHERE i.id < 100 AND EXISTS (SELECT FROM facts f WHERE f.item = i.id AND f.id < k * 30)) s;
SET cellar.lookup_joins = on;
RESET cellar.lookup_table_rows;

-- A join by all columns of a unique index is not underestimated, although PostgreSQL takes the columns as independent: it estimates 200 rows.
SET cellar.cost_factor = 0.001;
CREATE TABLE prices (a int4, b int4, price int4, PRIMARY KEY (a, b)) WITH (autovacuum_enabled = off);
INSERT INTO prices SELECT i / 10, i * 37 % 1000, i FROM generate_series(0, 1999) i;
CREATE TABLE sold (a int4, b int4, id int4) WITH (autovacuum_enabled = off);
INSERT INTO sold SELECT a, b, s FROM prices, generate_series(1, 10) s;
VACUUM (FREEZE, ANALYZE) prices, sold;
CREATE FUNCTION planned_groups(query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN ' || query LOOP
    IF line LIKE '%(Smart Scan Aggregate)%' THEN RETURN (regexp_match(line, 'rows=(\d+)'))[1]; END IF;
  END LOOP;
END $$;
SELECT planned_groups('SELECT p.price, count(*), sum(s.id) FROM sold s JOIN prices p USING (a, b) GROUP BY 1') > 1000;
SELECT count(*), sum(n) FROM (SELECT p.price, count(*) AS n FROM sold s JOIN prices p USING (a, b) GROUP BY 1) g;
DROP FUNCTION planned_groups;
DROP TABLE prices, sold;
SET cellar.cost_factor = 0;

-- Sides that are filtered by the same column share the keys, or the keys of a later side are those that the filtered sides before it keep.
SET cellar.lookup_table_rows = 2000;
CREATE TABLE parcels (id int4, sender int4, day int4) WITH (autovacuum_enabled = off);
INSERT INTO parcels SELECT i / 4, CASE WHEN i % 11 > 0 THEN i % 13 END, CASE WHEN i % 7 > 0 THEN i % 9 END FROM generate_series(1, 12000) i;
CREATE TABLE receipts (id int4, day int4) WITH (autovacuum_enabled = off);
INSERT INTO receipts SELECT i, i % 9 FROM generate_series(1, 8000) i;
VACUUM (FREEZE, ANALYZE) parcels, receipts;
EXPLAIN (COSTS OFF) SELECT r.day, count(*) FROM parcels p JOIN receipts r ON r.id = p.id WHERE p.sender = 3 AND p.day < 2
  AND EXISTS (SELECT FROM parcels o WHERE o.id = p.id AND o.sender <> p.sender) GROUP BY 1;
EXPLAIN (COSTS OFF) SELECT count(*) FROM parcels p WHERE p.sender = 3 AND p.day < 2
  AND EXISTS (SELECT FROM parcels o WHERE o.id = p.id AND o.sender <> p.sender)
  AND NOT EXISTS (SELECT FROM parcels o WHERE o.id = p.id AND o.sender <> p.sender AND o.day > 5);
SELECT q.query, j.* FROM (VALUES
  ('SELECT count(*), sum(p.id) FROM parcels p WHERE p.sender = 3 AND p.day < 2 AND EXISTS (SELECT FROM parcels o WHERE o.id = p.id AND o.sender <> p.sender)
    AND NOT EXISTS (SELECT FROM parcels o WHERE o.id = p.id AND o.sender <> p.sender AND o.day > 5)'),
  ('SELECT r.day, count(*) FROM parcels p JOIN receipts r ON r.id = p.id WHERE p.sender = 3 AND EXISTS (SELECT FROM parcels o WHERE o.id = p.id AND o.day <> p.day) GROUP BY 1'),
  ('SELECT p.day, count(*) FROM parcels p WHERE p.sender = 3 AND NOT EXISTS (SELECT FROM parcels o WHERE o.id = p.id AND o.day > p.day)
    AND EXISTS (SELECT FROM receipts r WHERE r.id = p.id AND r.day >= p.day) GROUP BY 1'),
  ('SELECT p.day, count(*), count(r.id), max(r.day) FROM parcels p LEFT JOIN receipts r ON r.id = p.id WHERE p.sender = 3
    AND NOT EXISTS (SELECT FROM parcels o WHERE o.id = p.id AND o.sender <> p.sender) GROUP BY 1'),
  ('SELECT i.kind, r.day, count(*) FROM parcels p, items i, receipts r WHERE p.sender = i.id AND i.kind = 3 AND r.id = p.id
    AND NOT EXISTS (SELECT FROM parcels o WHERE o.id = p.id AND o.sender <> p.sender AND o.day > 5) GROUP BY 1, 2'),
  ('SELECT count(*), max(r.day) FROM parcels p JOIN receipts r ON r.id = p.id WHERE p.sender = 3 AND NOT EXISTS (SELECT FROM parcels o WHERE o.id = p.id AND o.sender = 4)
    AND p.id NOT IN (SELECT id FROM receipts WHERE day = 8)')
) q(query), lookup_joins(q.query) j;
-- The tables are filled again with other parameters, also if PostgreSQL's hash tables come first.
CREATE FUNCTION parcels_of(joined bool) RETURNS TABLE (k int, n int8, total int8) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('cellar.lookup_joins', joined::text, true);
  RETURN QUERY SELECT s.k, c.* FROM generate_series(1, 6) s(k), LATERAL (SELECT count(*), sum(r.day) FROM parcels p JOIN receipts r ON r.id = p.id WHERE p.sender = s.k AND p.day < 3
    AND EXISTS (SELECT FROM parcels o WHERE o.id = p.id AND o.sender <> p.sender)) c
    UNION ALL
    SELECT s.k, c.* FROM generate_series(1, 6) s(k), LATERAL (SELECT count(*), sum(p.id) FROM parcels p WHERE p.sender = s.k AND p.day < 3
    AND EXISTS (SELECT FROM parcels o WHERE o.id = p.id AND o.sender <> p.sender)
    AND NOT EXISTS (SELECT FROM parcels o WHERE o.id = p.id AND o.sender <> p.sender AND o.day > 5)) c;
  PERFORM set_config('cellar.lookup_joins', 'on', true);
END $$;
SELECT * FROM parcels_of(true);
SELECT count(*) FROM (SELECT * FROM parcels_of(true) EXCEPT SELECT * FROM parcels_of(false)) d;
BEGIN;
UPDATE parcels SET day = day WHERE id <= 10;
SELECT count(*) FROM (SELECT * FROM parcels_of(true) EXCEPT SELECT * FROM parcels_of(false)) d;
ROLLBACK;
DROP FUNCTION parcels_of;
DROP TABLE parcels, receipts;
RESET cellar.lookup_table_rows;

-- A part of a side is joined with another side, which PostgreSQL derives from equalities: the kinds select places instead of items.
SET cellar.cost_factor = 0.001;
CREATE TABLE kinds (id int4, name text COLLATE "C") WITH (autovacuum_enabled = off);
INSERT INTO kinds SELECT i, 'kind ' || i FROM generate_series(0, 9) i;
CREATE TABLE shops (id int8, kind int4) WITH (autovacuum_enabled = off);
INSERT INTO shops SELECT i % 100, i % 10 FROM generate_series(1, 5000) i UNION ALL VALUES (7, NULL::int4);
VACUUM (FREEZE, ANALYZE) kinds, shops;
EXPLAIN (COSTS OFF) SELECT k.name, count(*) FROM facts f, items i, shops s, kinds k
  WHERE f.item = i.id AND f.place = s.id AND i.kind = s.kind AND i.kind = k.id AND k.name IN ('kind 3', 'kind 4') GROUP BY 1;
EXPLAIN (COSTS OFF) SELECT k.name, count(*) FROM facts f, items i, shops s, kinds k
  WHERE f.item = i.id AND f.place = s.id AND i.kind = s.kind AND i.kind = k.id AND k.name = 'kind 3' GROUP BY 1;
SELECT q.query, j.* FROM (VALUES
  ('SELECT k.name, count(*), sum(f.price) FROM facts f, items i, shops s, kinds k WHERE f.item = i.id AND f.place = s.id AND i.kind = s.kind AND i.kind = k.id AND k.name IN (''kind 3'', ''kind 4'') GROUP BY 1'),
  ('SELECT k.name, count(*), max(s.id) FROM facts f, items i, shops s, kinds k WHERE f.item = i.id AND f.place = s.id AND i.kind = s.kind AND s.kind = k.id AND k.id > 7 GROUP BY 1'),
  ('SELECT i.name, count(*) FROM facts f JOIN items i ON f.item = i.id JOIN shops s ON f.place = s.id AND s.kind = i.kind LEFT JOIN kinds k ON k.id = i.kind AND k.id < 5
    WHERE k.name IS NULL GROUP BY 1')
) q(query), lookup_joins(q.query) j;
DROP TABLE kinds, shops;
SET cellar.cost_factor = 0;

-- A prepared statement keeps a generic plan.
SET plan_cache_mode = force_generic_plan;
PREPARE by_kind (int4) AS SELECT i.name, count(*) FROM facts f JOIN items i ON f.item = i.id AND i.kind = $1 GROUP BY 1 ORDER BY 1;
EXPLAIN (COSTS OFF) EXECUTE by_kind (3);
EXECUTE by_kind (3);
EXECUTE by_kind (11);
SET cellar.lookup_joins = off;
EXPLAIN (COSTS OFF) SELECT i.kind, count(*) FROM facts f JOIN items i ON f.item = i.id GROUP BY i.kind;
DROP FUNCTION lookup_joins;
DROP FUNCTION failing;
DROP TABLE facts, items, places, pairs;
