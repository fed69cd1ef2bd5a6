-- Subqueries in conditions: IN, and correlated subqueries with aggregates, which become joins with groups. Without a cell, PostgreSQL
-- evaluates the plans.
CREATE EXTENSION IF NOT EXISTS cellar;
SET cellar.cell_offload_plan_display = always;
SET cellar.min_scan_size = 0;
SET cellar.cost_factor = 0;
SET max_parallel_workers_per_gather = 0;
CREATE TABLE sold (id int4, item int4, place int8, word text, price numeric(9,2), free numeric) WITH (autovacuum_enabled = off);
INSERT INTO sold SELECT i, i % 300, CASE WHEN i % 3 > 0 THEN i % 100 END, 'word ' || i % 50, i * 7 % 700 / 4.0, i
  FROM generate_series(1, 1500) i;
CREATE TABLE goods (id int4, kind int8, low numeric(9,2)) WITH (autovacuum_enabled = off);
INSERT INTO goods SELECT i, CASE WHEN i % 7 > 0 THEN i % 10 END, i FROM generate_series(0, 399) i;
VACUUM (FREEZE, ANALYZE) sold, goods;

-- Which form a statement has, whether a Smart Scan evaluates IN, and that the result does not depend on it.
CREATE FUNCTION subqueries(query text, OUT filtered bool, OUT joined bool, OUT same bool) LANGUAGE plpgsql AS $$
DECLARE line text; new text; old text;
BEGIN
  filtered := false;
  joined := true;
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
    filtered := filtered OR line ~ '^ *Storage Predicate: .*SubPlan';
    joined := joined AND line !~ 'SubPlan';
  END LOOP;
  EXECUTE 'SELECT string_agg(s::text, '' '' ORDER BY s::text) FROM (' || query || ') s' INTO new;
  PERFORM set_config('cellar.cell_offload_processing', 'off', true);
  EXECUTE 'SELECT string_agg(s::text, '' '' ORDER BY s::text) FROM (' || query || ') s' INTO old;
  PERFORM set_config('cellar.cell_offload_processing', 'on', true);
  same := new IS NOT DISTINCT FROM old;
END $$;

SELECT q.query, s.filtered, s.same FROM (VALUES
  ('SELECT count(*), sum(id) FROM sold WHERE item NOT IN (SELECT id FROM goods WHERE kind = 3)'),
  ('SELECT count(*) FROM sold WHERE place NOT IN (SELECT id FROM goods WHERE id < 50)'),
  ('SELECT count(*) FROM sold WHERE item NOT IN (SELECT kind FROM goods)'),
  ('SELECT count(*) FROM sold WHERE place NOT IN (SELECT kind FROM goods WHERE id % 7 = 0)'),
  ('SELECT count(*) FROM sold WHERE place NOT IN (SELECT kind FROM goods WHERE id < 0)'),
  ('SELECT word, count(*) FROM sold WHERE word < ''word 2'' OR item IN (SELECT kind FROM goods) GROUP BY 1'),
  ('SELECT count(*) FROM sold WHERE (place IN (SELECT kind FROM goods)) IS UNKNOWN'),
  ('SELECT count(*) FROM sold WHERE item + 1 NOT IN (SELECT id FROM goods WHERE id < 50)'),
  -- Not in the cell: other types, correlated, several columns, volatile functions.
  ('SELECT count(*) FROM sold WHERE word NOT IN (SELECT ''word '' || id FROM goods)'),
  ('SELECT count(*) FROM sold s WHERE item NOT IN (SELECT id FROM goods g WHERE g.kind = s.place)'),
  ('SELECT count(*) FROM sold WHERE (item, place) NOT IN (SELECT id, kind FROM goods WHERE kind IS NOT NULL)'),
  ('SELECT count(*) FROM sold WHERE item NOT IN (SELECT id FROM goods WHERE kind = 3 AND random() >= 0)'),
  -- PostgreSQL executes the subquery for the first row, and raises no error without rows.
  ('SELECT count(*) FROM sold WHERE id < 0 AND item NOT IN (SELECT 1 / (id - id) FROM goods)'),
  ('SELECT count(*) FROM sold WHERE item NOT IN (SELECT s.item FROM sold s JOIN goods g ON g.id = s.id WHERE s.word LIKE ''%7'')')
) q(query), subqueries(q.query) s;
-- With other parameters; the second subquery is in the filter.
SELECT k, (SELECT count(*) FROM sold WHERE id > 0 AND word NOT IN (SELECT 'word ' || id FROM goods WHERE goods.kind = k)) FROM generate_series(1, 3) k;
SELECT k, (SELECT count(*) FROM sold WHERE item NOT IN (SELECT id FROM goods WHERE goods.kind = k)) FROM generate_series(1, 3) k;

-- A cursor for WHERE CURRENT OF scans one table.
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM goods g WHERE g.low > (SELECT sum(price) FROM sold o WHERE o.item = g.id);
FETCH 1 FROM c;
UPDATE goods SET low = low WHERE CURRENT OF c;
ROLLBACK;

EXPLAIN (COSTS OFF) SELECT sum(s.price) FROM sold s JOIN goods g ON g.id = s.item WHERE g.kind = 3
  AND s.price < (SELECT 0.5 * avg(price) FROM sold o WHERE o.item = g.id);
SELECT q.query, s.joined, s.same FROM (VALUES
  ('SELECT count(*), sum(s.id) FROM sold s WHERE s.price < (SELECT 0.5 * avg(price) FROM sold o WHERE o.item = s.item)'),
  ('SELECT count(*), sum(s.id) FROM sold s WHERE (SELECT max(o.id) FROM sold o WHERE s.place = o.place AND o.id < 1000) = s.id'),
  ('SELECT count(*) FROM goods g WHERE g.low > (SELECT sum(price) - min(price) FROM sold o WHERE o.item = g.id AND o.place = g.kind)'),
  ('SELECT count(*) FROM goods g WHERE g.id IN (SELECT item FROM sold s WHERE s.price = (SELECT min(price) FROM sold o WHERE o.item = s.item))'),
  ('SELECT g.kind, count(*) FROM goods g LEFT JOIN sold s ON s.item = g.id WHERE s.price > (SELECT avg(price) FROM sold o, goods h WHERE o.item = h.id AND h.kind = g.kind) GROUP BY 1'),
  ('SELECT count(*) FROM goods g WHERE g.low < (SELECT max(id) FROM sold o WHERE o.item = g.id) OR g.id = 7'),
  ('SELECT count(*) FROM goods g WHERE g.id > (SELECT 0.5 * sum(price) FROM sold o WHERE o.item = g.id)'),
  -- True or unknown without rows: a left join. Also in the select list, in aggregates, and of several subqueries.
  ('SELECT count(*) FROM goods g WHERE g.kind > (SELECT count(*) FROM sold o WHERE o.item = g.id)'),
  ('SELECT count(*) FROM goods g WHERE g.kind < (SELECT count(*) FILTER (WHERE o.place > 40) FROM sold o WHERE o.item = g.id)'),
  ('SELECT count(*) FROM goods g WHERE (SELECT count(place) FROM sold o WHERE o.item = g.id) = 0'),
  ('SELECT count(*) FROM goods g WHERE (SELECT count(*) FROM sold o WHERE o.item = g.id) >= 5'),
  ('SELECT count(*) FROM goods g WHERE g.low > (SELECT coalesce(sum(price), 0) FROM sold o WHERE o.item = g.id)'),
  ('SELECT count(*) FROM goods g WHERE (SELECT sum(price) FROM sold o WHERE o.item = g.id) IS NULL'),
  ('SELECT count(*) FROM goods g WHERE NOT (g.low < (SELECT sum(price) FROM sold o WHERE o.item = g.id))'),
  ('SELECT count(*) FROM goods g WHERE (SELECT sum(price) FROM sold o WHERE o.item = g.id) > (SELECT count(*) FROM sold o WHERE o.place = g.kind)'),
  ('SELECT g.id, (SELECT count(*) FROM sold o WHERE o.item = g.id), (SELECT sum(g.low - o.price) FROM sold o WHERE o.item = g.id) FROM goods g'),
  ('SELECT g.id, (SELECT count(*) FROM sold o WHERE o.item = g.id), (SELECT 2 * max(price) - g.low FROM sold o WHERE o.place = g.kind) FROM goods g'),
  ('SELECT g.kind, sum((SELECT count(*) FROM sold o WHERE o.item = g.id)) FROM goods g GROUP BY 1'),
  ('SELECT g.kind, (SELECT count(*) FROM sold o WHERE o.item = g.kind) FROM goods g GROUP BY 1'),
  ('SELECT count(*) FROM goods g FULL JOIN goods h ON h.id = g.id + 300 WHERE 9 > (SELECT count(*) FROM sold o WHERE o.item = h.id)'),
  -- Joins, and keys of other types.
  ('SELECT count(*) FROM goods g WHERE g.low > (SELECT avg(o.price) FROM sold o JOIN goods h ON h.id = o.item AND h.kind = g.kind WHERE o.id > 20)'),
  ('SELECT count(*) FROM goods g WHERE g.low > (SELECT count(h.id) FROM sold o LEFT JOIN goods h ON h.id = o.place AND h.kind < 5 WHERE o.item = g.id)'),
  ('SELECT count(*) FROM goods g WHERE g.low > (SELECT count(h.id) FROM sold o LEFT JOIN goods h ON h.kind = g.kind WHERE o.item = g.id)'),
  ('SELECT count(*), sum(s.id) FROM sold s WHERE s.price < (SELECT 0.5 * avg(price) FROM sold o WHERE o.word = s.word)'),
  ('SELECT count(*), sum(s.id) FROM sold s WHERE s.id > (SELECT count(*) FROM sold o WHERE o.price = s.free)'),
  ('SELECT count(*) FROM goods g WHERE g.id > (SELECT count(*) FROM sold o WHERE o.item::int8 = g.kind)'),
  -- Other conditions, errors of rows that are not needed, outer levels, volatile functions.
  ('SELECT random() < 2, (SELECT count(*) FROM sold o WHERE o.item = g.id) FROM goods g'),
  ('SELECT g.id, (SELECT 1000 / count(*) FROM sold o WHERE o.item = g.id) FROM goods g WHERE g.id < 300'),
  ('SELECT g.id, (SELECT sum(1000 / (o.item - 299)) FROM sold o WHERE o.item = g.id) FROM goods g WHERE g.id < 299'),
  ('SELECT count(*) FROM goods g WHERE g.low IS DISTINCT FROM (SELECT sum(price) FROM sold o WHERE o.item = g.id)'),
  ('SELECT count(*) FROM goods g WHERE g.low > (SELECT sum(price) FROM sold o WHERE o.item < g.id)'),
  ('SELECT count(*) FROM goods g WHERE g.low > (SELECT sum(free * free) FROM sold o WHERE o.item = g.id)'),
  ('SELECT count(*) FROM goods g WHERE g.low > (SELECT sum(1000 / (o.item - 299)) FROM sold o WHERE o.item = g.id AND g.id < 299)'),
  ('SELECT count(*) FROM goods g WHERE g.low > (SELECT sum(price) FROM sold o WHERE o.item = g.id AND 1000 / (o.item - 299) > 0) AND g.id < 299'),
  ('SELECT count(*) FROM goods g WHERE g.low > (SELECT sum(price) FROM sold o WHERE o.item = g.id LIMIT 1)'),
  ('SELECT count(*) FROM goods g WHERE g.low > (SELECT sum(price) FROM sold o WHERE o.item = g.id AND random() >= 0)'),
  ('SELECT h.id, (SELECT count(*) FROM goods g WHERE g.low > (SELECT sum(o.price) + h.low FROM sold o WHERE o.item = g.id)) FROM goods h WHERE h.id < 5'),
  ('SELECT h.id, (SELECT count(*) FROM goods g WHERE g.low > (SELECT sum(o.price) FROM sold o WHERE o.item = g.id AND o.id > h.id)) FROM goods h WHERE h.id < 5'),
  ('SELECT count(*) FROM goods g WHERE random() < (SELECT max(o.id) FROM sold o WHERE o.item = g.id)'),
  ('SELECT count(*) FROM goods g, goods h WHERE h.id = g.kind AND random() >= 0 AND g.low > (SELECT sum(price) FROM sold o WHERE o.item = g.id)'),
  ('SELECT count(*) FROM (SELECT * FROM goods g WHERE g.low > (SELECT sum(price) FROM sold o WHERE o.item = g.id)) v WHERE random() >= 0'),
  ('SELECT count(*) FROM (SELECT * FROM goods FOR UPDATE) g WHERE g.low > (SELECT sum(price) FROM sold o WHERE o.item = g.id)'),
  ('WITH g AS MATERIALIZED (SELECT * FROM goods FOR SHARE) SELECT count(*) FROM g WHERE g.low > (SELECT sum(price) FROM sold o WHERE o.item = g.id)'),
  -- Direct arguments of an aggregate, which are evaluated for a group.
  ('SELECT g.kind, rank((SELECT count(*) FROM sold o WHERE o.item = g.kind)) WITHIN GROUP (ORDER BY g.id) FROM goods g GROUP BY GROUPING SETS ((g.kind), ())'),
  ('SELECT g.kind, rank(3) WITHIN GROUP (ORDER BY (SELECT count(*) FROM sold o WHERE o.item = g.kind)) FROM goods g GROUP BY GROUPING SETS ((g.kind), ())'),
  ('SELECT count(*) FROM goods g WHERE g.id > 0 AND 5 < (SELECT 1000 / (max(o.id) - 1500) FROM sold o WHERE o.item = g.id)'),
  ('SELECT count(*) FROM goods g WHERE 1000 / (g.id - 399) < (SELECT max(o.id) FROM sold o WHERE o.item = g.id) AND g.id < 399'),
  ('SELECT count(*) FROM goods g WHERE g.low < (SELECT min(free) * min(free) FROM sold o WHERE o.item = g.id)')
) q(query), subqueries(q.query) s;

-- A join filter reaches the scan below an aggregation, unless something could raise an error for other groups.
SET enable_mergejoin = off;
SET enable_nestloop = off;
EXPLAIN (COSTS OFF) SELECT g.id, s.q FROM goods g JOIN (SELECT item, sum(price) AS q FROM sold GROUP BY item HAVING max(id) > 10) s ON s.item = g.id
  WHERE g.kind = 3 AND g.id < 50;
SELECT q.query, s.same FROM (VALUES
  ('SELECT g.id, s.q FROM goods g JOIN (SELECT item, sum(price) AS q FROM sold GROUP BY item HAVING max(id) > 10) s ON s.item = g.id WHERE g.kind = 3'),
  ('SELECT g.id, s.n FROM goods g JOIN (SELECT item, word, count(*) AS n FROM sold GROUP BY item, word) s ON s.item = g.kind WHERE g.kind = 3'),
  ('SELECT g.id, s.q FROM goods g JOIN (SELECT item, sum(price) AS q FROM sold GROUP BY item ORDER BY 2, 1 LIMIT 20) s ON s.item = g.id WHERE g.id > 30'),
  ('SELECT g.id, s.q FROM goods g JOIN (SELECT item, count(DISTINCT place) AS q FROM sold GROUP BY item) s ON s.item = g.id WHERE g.kind = 3')
) q(query), subqueries(q.query) s;
EXPLAIN (COSTS OFF) SELECT g.id, s.q FROM goods g JOIN (SELECT item, sum(1000 / (item - 299)) AS q FROM sold GROUP BY item) s ON s.item = g.id
  WHERE g.kind = 3 AND g.id < 50;
DROP FUNCTION subqueries;
DROP TABLE sold, goods;
