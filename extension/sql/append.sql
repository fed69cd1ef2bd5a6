-- Aggregation of partitions, inheriting tables and the members of UNION ALL, simulated without a cell.
SET cellar.min_scan_size = 0;
SET cellar.cost_factor = 0;
SET cellar.simulate_offload = on;
SET enable_sort = off;

CREATE FUNCTION show(query text) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
    CONTINUE WHEN line ~ '^ *Disabled: true$';
    RETURN NEXT line;
  END LOOP;
END $$;

-- Returns how many members aggregate in the cell, whether the answers with Smart Scan on and off are equal, and the number of rows.
CREATE FUNCTION members(query text, OUT aggregates int, OUT equal boolean, OUT rows int)
LANGUAGE plpgsql AS $$
DECLARE line text; answers text[];
BEGIN
  aggregates := 0;
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
    IF line ~ 'Smart Scan Aggregate' THEN aggregates := aggregates + 1; END IF;
  END LOOP;
  FOR mode IN 0 .. 1 LOOP
    SET LOCAL enable_sort = on;
    PERFORM set_config('cellar.cell_offload_processing', CASE mode WHEN 0 THEN 'off' ELSE 'on' END, true);
    EXECUTE 'SELECT string_agg(q::text, E''\n'' ORDER BY q::text), count(*) FROM (' || query || ') q' INTO line, rows;
    answers := answers || coalesce(line, '');
  END LOOP;
  SET LOCAL enable_sort = off;
  equal := answers[1] = answers[2];
END $$;

-- Partitions on two levels, with other orders of columns, and dropped columns
CREATE TABLE sold (id int4, shop int4, item text COLLATE "C", price numeric(10,2), day date) PARTITION BY LIST (shop);
CREATE TABLE sold_1 (item text COLLATE "C", gone int4, price numeric(10,2), shop int4, id int4, day date);
ALTER TABLE sold_1 DROP COLUMN gone;
ALTER TABLE sold ATTACH PARTITION sold_1 FOR VALUES IN (1, NULL);
CREATE TABLE sold_2 PARTITION OF sold FOR VALUES IN (2, 3) PARTITION BY RANGE (id);
CREATE TABLE sold_2a PARTITION OF sold_2 FOR VALUES FROM (0) TO (1500);
CREATE TABLE sold_2b (day date, price numeric(10,2), item text COLLATE "C", gone text, shop int4, id int4);
ALTER TABLE sold_2b DROP COLUMN gone;
ALTER TABLE sold_2 ATTACH PARTITION sold_2b FOR VALUES FROM (1500) TO (10000);
CREATE TABLE sold_empty PARTITION OF sold FOR VALUES IN (4);
INSERT INTO sold SELECT i, nullif(i % 4, 0), 'item ' || i % 9, i / 8.0, '2024-01-01'::date + i % 30 FROM generate_series(1, 3000) i;
CREATE TABLE kinds (id int4, kind int4, note text);
CREATE TABLE kinds_more (extra int4) INHERITS (kinds);
CREATE TABLE kinds_other (gone int4, note text, id int4, kind int4);
ALTER TABLE kinds_other INHERIT kinds;
INSERT INTO kinds SELECT i, i % 5, 'note ' || i % 3 FROM generate_series(1, 500) i;
INSERT INTO kinds_more SELECT i, i % 5, 'note ' || i % 4, i FROM generate_series(1, 700) i;
INSERT INTO kinds_other SELECT i, 'note ' || i % 2, i, i % 6 FROM generate_series(1, 900) i;
VACUUM ANALYZE;

SELECT show('SELECT item, sum(price), count(*) FROM sold WHERE id > 10 GROUP BY item HAVING count(*) > 5 ORDER BY 2 DESC LIMIT 3');
SELECT show('SELECT count(*), avg(id) FROM sold WHERE shop = 3');
SELECT show('SELECT source, sum(n) FROM (SELECT ''sold'' AS source, id AS n FROM sold WHERE shop = 1 UNION ALL SELECT note, kind + 1 FROM ONLY kinds WHERE id < 100) s GROUP BY source');
SELECT show('SELECT count(DISTINCT kind), max(note COLLATE "C") FROM kinds');
SELECT show('SELECT DISTINCT item FROM sold WHERE shop = 2');

SELECT query, m.* FROM (VALUES
  ('SELECT item, shop, sum(price), avg(id), min(day), max(item), count(*) FROM sold GROUP BY item, shop'),
  ('SELECT shop + 1, price > 100, count(*) FILTER (WHERE day > ''2024-01-10''), sum(id * 2) FROM sold GROUP BY 1, 2'),
  ('SELECT item, sum(price) AS total FROM sold GROUP BY item HAVING count(*) > 300 ORDER BY total DESC, item LIMIT 4'),
  ('SELECT md5(item), count(*), max(price) FROM sold GROUP BY 1'),
  ('SELECT sum(price), count(*) FROM sold WHERE shop IN (2, 3) AND id >= 1500'),
  ('SELECT sum(price), count(*) FROM sold WHERE shop = 9'),
  ('SELECT shop, item, grouping(shop), sum(price) FROM sold GROUP BY ROLLUP (shop, item)'),
  ('SELECT shop, count(DISTINCT item), sum(price) FROM sold GROUP BY shop'),
  ('SELECT DISTINCT shop, item FROM sold WHERE id > 50'),
  ('SELECT item, count(*), rank() OVER (ORDER BY count(*), item) FROM sold GROUP BY item'),
  ('SELECT x, (SELECT sum(price) FROM sold WHERE shop = x) FROM generate_series(0, 5) x'),
  ('SELECT count(*), sum(price) FROM sold WHERE shop = (SELECT 3)'),
  ('SELECT count(*) FROM sold_2'),
  -- Not by the cell
  ('SELECT tableoid::regclass, count(*) FROM sold GROUP BY 1'),
  ('SELECT count(*) FROM sold WHERE random() >= 0'),
  ('SELECT shop, string_agg(item, '','' ORDER BY id) FROM sold GROUP BY shop'),
  ('SELECT sold IS NULL, count(*) FROM sold GROUP BY 1')
) q(query), members(q.query) m;
SELECT query, m.* FROM (VALUES
  ('SELECT kind, count(*), max(note COLLATE "C") FROM kinds GROUP BY kind'),
  ('SELECT kind, count(*), max(note COLLATE "C") FROM ONLY kinds GROUP BY kind'),
  ('SELECT count(*), sum(id) FROM kinds WHERE note = ''note 1''')
) q(query), members(q.query) m;
SELECT query, m.* FROM (VALUES
  ('SELECT k, sum(n), count(*) FROM (SELECT shop AS k, price AS n FROM sold UNION ALL SELECT kind, id::numeric(10,2) FROM kinds) s GROUP BY k'),
  ('SELECT source, k, sum(n) FROM (SELECT ''a'' AS source, shop AS k, price * 2 AS n FROM sold UNION ALL SELECT ''b'', kind + 1, id / 4.0 FROM kinds) s GROUP BY source, k'),
  ('SELECT k, count(*) FROM (SELECT shop AS k FROM sold WHERE id < 100 UNION ALL SELECT kind FROM kinds WHERE note = ''note 1'' UNION ALL SELECT g FROM generate_series(1, 9) g) s WHERE k > 1 GROUP BY k'),
  ('SELECT source, count(*), count(DISTINCT k) FROM (SELECT 1 AS source, shop AS k FROM sold WHERE id < 100 UNION ALL SELECT 2, kind FROM kinds) s GROUP BY source'),
  ('SELECT k, md5(t), min(md5(t)), count(*) FROM (SELECT shop AS k, item AS t FROM sold WHERE id < 100 UNION ALL SELECT kind, upper(note COLLATE "C") FROM kinds WHERE id > 3) s GROUP BY k, md5(t)'),
  ('SELECT a, b, count(*) FROM (SELECT shop AS a, shop AS b FROM sold UNION ALL SELECT kind, 7 FROM kinds) s GROUP BY a, b'),
  ('SELECT a, count(*) FROM (SELECT ''x'' AS a FROM sold WHERE id < 0 UNION ALL SELECT ''y'' FROM kinds WHERE id < 0) s GROUP BY a'),
  ('SELECT count(*), sum(k) FROM (SELECT shop AS k FROM sold WHERE id < 0 UNION ALL SELECT kind FROM kinds WHERE id < 0) s'),
  ('SELECT DISTINCT k, t FROM (SELECT shop AS k, item AS t FROM sold WHERE id < 100 UNION ALL SELECT kind, note COLLATE "C" FROM kinds) s'),
  ('SELECT k, sum(n) FILTER (WHERE n > (SELECT avg(id) FROM kinds)) FROM (SELECT shop AS k, id AS n FROM sold WHERE id > 6 UNION ALL SELECT kind, id FROM kinds) s GROUP BY k'),
  ('SELECT k, count(*) FROM (SELECT shop AS k FROM sold WHERE id < (SELECT avg(id) FROM kinds) UNION ALL SELECT kind FROM kinds WHERE id > 3) s GROUP BY k'),
  ('SELECT k, count(*) FROM (SELECT shop AS k FROM sold WHERE id > 7 ORDER BY shop LIMIT 50) s GROUP BY k'),
  ('SELECT k, count(*) FROM (SELECT shop AS k FROM sold WHERE id > 7 UNION ALL (SELECT kind FROM kinds ORDER BY kind LIMIT 50)) s GROUP BY k'),
  ('SELECT k, count(*) FROM (SELECT DISTINCT shop AS k FROM sold WHERE id > 7 UNION ALL SELECT count(*)::int4 FROM kinds) s GROUP BY k'),
  ('SELECT k, count(*) FROM (SELECT k FROM (SELECT shop AS k, id FROM sold WHERE id < 100 UNION ALL SELECT kind, id FROM kinds WHERE id > 3 ORDER BY id) u WHERE k > 1 UNION ALL SELECT shop FROM sold_1 WHERE id > 5) s GROUP BY k'),
  ('SELECT k, sum(j) FROM (SELECT s.shop AS k, d.kind AS j FROM sold s JOIN kinds d USING (id) UNION ALL SELECT kind, id FROM kinds) s GROUP BY k')
) q(query), members(q.query) m;
-- An error in one member
SELECT k, sum(100 / k) FROM (SELECT shop AS k FROM sold WHERE shop > 0 UNION ALL SELECT kind FROM kinds WHERE id > 3) s GROUP BY k;

-- Conditions of a security barrier, and policies, are evaluated before others.
CREATE VIEW few WITH (security_barrier) AS SELECT kind AS k, id FROM kinds_more WHERE kind < 3;
SELECT query, m.* FROM (VALUES
  ('SELECT k, count(*) FROM (SELECT k FROM few UNION ALL SELECT shop FROM sold_1 WHERE id > 3) s GROUP BY k')
) q(query), members(q.query) m;
DROP VIEW few;

-- Parallel workers execute other members.
SET cellar.cost_factor = 0.1;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET seq_page_cost = 10;
SELECT show('SELECT item, sum(price) FROM sold GROUP BY item');
SELECT query, m.* FROM (VALUES
  ('SELECT item, sum(price), avg(id) FROM sold GROUP BY item'),
  ('SELECT note, count(*) FROM (SELECT note FROM kinds_more WHERE id > 4 UNION ALL SELECT upper(note) FROM kinds_other WHERE id > 5) s GROUP BY note')
) q(query), members(q.query) m;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET seq_page_cost;

-- An aggregation in the cell that is too expensive
SET cellar.cost_factor = 100;
EXPLAIN (COSTS OFF) SELECT kind, count(*) FROM kinds_other GROUP BY kind;
SELECT * FROM cellar.why_not_offloaded;
SET cellar.cost_factor = 0;
EXPLAIN (COSTS OFF) SELECT kind, count(*) FROM kinds_other GROUP BY kind;
SELECT * FROM cellar.why_not_offloaded;

DROP FUNCTION show, members;
DROP TABLE sold, kinds CASCADE;
