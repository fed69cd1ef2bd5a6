-- Join filters: a hash join sends the keys of its inner side to the Smart Scan of its outer side. Without a cell, the plans have
-- join filters, and scans read all rows themselves.
CREATE EXTENSION IF NOT EXISTS cellar;
SET cellar.cell_offload_plan_display = always;
SET cellar.min_scan_size = 0;
SET cellar.cost_factor = 0;
SET cellar.lookup_joins = off;
SET max_parallel_workers_per_gather = 0;
SET enable_mergejoin = off;
SET enable_nestloop = off;
CREATE TABLE facts (id int4, item int4, place int8, word text, day date, price numeric) WITH (autovacuum_enabled = off);
INSERT INTO facts SELECT i, i % 5000, CASE WHEN i % 3 > 0 THEN i % 100 END, 'word ' || i % 50, '2020-01-01'::date + i % 1000, i % 7
  FROM generate_series(1, 50000) i;
CREATE TABLE items (id int4, kind int4, weight float8) WITH (autovacuum_enabled = off);
INSERT INTO items SELECT i, i % 100, i FROM generate_series(0, 4999) i;
CREATE TABLE places (id int8, region int4, word varchar, day date) WITH (autovacuum_enabled = off);
INSERT INTO places SELECT i, i % 20, 'word ' || i, '2020-01-01'::date + i FROM generate_series(0, 99) i;
INSERT INTO places VALUES (NULL, 3, NULL, NULL);
ALTER TABLE facts SET (parallel_workers = 2);
ALTER TABLE items SET (parallel_workers = 2);
VACUUM (FREEZE, ANALYZE) facts, items, places;

EXPLAIN (COSTS OFF) SELECT sum(f.id) FROM facts f JOIN items i ON f.item = i.id WHERE i.kind = 5;
-- Both filters reach the scan below two joins.
EXPLAIN (COSTS OFF) SELECT sum(f.id) FROM facts f JOIN items i ON f.item = i.id JOIN places p ON f.place = p.id
  WHERE i.kind < 5 AND p.region = 3;
-- Each partition has its own scan and filter.
CREATE TABLE parts (id int4, item int4, note text) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10000);
CREATE TABLE parts_2 (note text, item int4, id int4);
ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (10000) TO (20000);
INSERT INTO parts SELECT i, i % 5000, 'n' FROM generate_series(0, 19999) i;
VACUUM (FREEZE, ANALYZE) parts;
EXPLAIN (COSTS OFF) SELECT sum(f.id) FROM parts f JOIN items i ON f.item = i.id WHERE i.kind = 5;
SELECT sum(f.id) FROM parts f JOIN items i ON f.item = i.id WHERE i.kind = 5;
SET cellar.join_filters = off;
SELECT sum(f.id) FROM parts f JOIN items i ON f.item = i.id WHERE i.kind = 5;
RESET cellar.join_filters;

-- Below a Parallel Hash, the keys are those of all processes.
SET max_parallel_workers_per_gather = 2;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
EXPLAIN (COSTS OFF) SELECT sum(f.id) FROM facts f JOIN items i ON f.item = i.id WHERE i.kind = 5;
SELECT sum(f.id) FROM facts f JOIN items i ON f.item = i.id WHERE i.kind = 5;
SET max_parallel_workers_per_gather = 0;

-- Which joins have a filter, and that the result does not depend on the filter.
CREATE FUNCTION join_filters(query text, OUT filters int, OUT same bool) LANGUAGE plpgsql AS $$
DECLARE line text; filtered text; plain text;
BEGIN
  filters := 0;
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
    IF line LIKE '%Join Filter: (%ANY%' THEN filters := filters + 1; END IF;
  END LOOP;
  EXECUTE 'SELECT (s.*)::text FROM (' || query || ') s' INTO filtered;
  PERFORM set_config('cellar.join_filters', 'off', true);
  EXECUTE 'SELECT (s.*)::text FROM (' || query || ') s' INTO plain;
  PERFORM set_config('cellar.join_filters', 'on', true);
  same := filtered = plain;
END $$;
SELECT q.query, j.* FROM (VALUES
  ('SELECT count(*), sum(f.id) FROM facts f JOIN items i ON f.item = i.id WHERE i.kind = 5'),
  ('SELECT count(*), sum(f.id) FROM facts f JOIN places p ON f.place = p.id AND f.day = p.day WHERE p.region = 3'),
  ('SELECT count(*), sum(f.id) FROM facts f JOIN places p ON f.word = p.word WHERE p.region = 3'),
  ('SELECT count(*), sum(f.id) FROM facts f WHERE f.item IN (SELECT id FROM items WHERE kind = 5)'),
  ('SELECT count(*), count(f.id) FROM facts f RIGHT JOIN (SELECT * FROM items WHERE kind = 5) i ON f.item = i.id'),
  -- The join returns rows without partner.
  ('SELECT count(*), count(i.id) FROM facts f LEFT JOIN (SELECT * FROM items WHERE kind = 5) i ON f.item = i.id'),
  ('SELECT count(*), count(i.id) FROM facts f FULL JOIN (SELECT * FROM items WHERE kind = 5) i ON f.item = i.id'),
  ('SELECT count(*), sum(f.id) FROM facts f WHERE NOT EXISTS (SELECT FROM items i WHERE i.kind = 5 AND i.id = f.item)'),
  -- A filter or an expression of the scan might raise an error for a dropped row.
  ('SELECT count(*), sum(f.id) FROM facts f JOIN items i ON f.item = i.id WHERE i.kind = 5 AND quote_literal(f.word) > ''a'''),
  -- The cell has no sets of this type.
  ('SELECT count(*), sum(f.id) FROM facts f JOIN (SELECT DISTINCT price FROM facts WHERE id < 3) d ON f.price = d.price'),
  -- The key is not a column, or the join drops few rows.
  ('SELECT count(*), sum(f.id) FROM facts f JOIN items i ON f.item + 1 = i.id WHERE i.kind = 5'),
  ('SELECT count(*), sum(f.id) FROM facts f JOIN items i ON f.item = i.id'),
  -- The scan's duplicates are removed first.
  ('SELECT count(*), sum(i.id) FROM items i WHERE i.kind = 5 AND EXISTS (SELECT FROM facts f WHERE f.item = i.id)'),
  -- All columns
  ('SELECT count(*), max(f::text) FROM (SELECT f.* FROM facts f JOIN items i ON f.item = i.id WHERE i.kind = 5) f'),
  -- A rescan builds another hash table.
  ('SELECT sum(s.n) FROM generate_series(1, 3) k, LATERAL (SELECT count(*) AS n FROM facts f JOIN items i ON f.item = i.id WHERE i.kind = k OFFSET 0) s')
  ) q(query), join_filters(q.query) j;
-- 18 can join the rescanned side first, with a filter.
SELECT same FROM join_filters('SELECT sum(s.n) FROM generate_series(1, 3) k, LATERAL (SELECT count(*) AS n FROM items i WHERE i.kind = k AND EXISTS (SELECT FROM facts f WHERE f.item = i.id) OFFSET 0) s');

DROP FUNCTION join_filters;
DROP TABLE facts, items, places, parts;
