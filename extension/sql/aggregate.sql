-- Aggregation in the cell, simulated without a cell: Postgres reads and aggregates all rows, as in passthrough.
CREATE FUNCTION show(query text) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
    -- 18 shows disabled nodes, and omits constants among group keys. 19 names a subplan after its place in the query.
    CONTINUE WHEN line ~ '^ *Disabled: true$';
    line := regexp_replace(line, '(Group Key: .*), 1(,|$)', '\1\2');
    RETURN NEXT replace(line, 'SubPlan expr_1', 'SubPlan 1');
  END LOOP;
END $$;

CREATE TABLE sales (id int, region char(2), product text, day date, quantity int2, amount int8, price numeric(10,2),
                    rate numeric, weight float8, paid bool);
INSERT INTO sales
SELECT i, (ARRAY['NE', 'SW', 'SE'])[1 + i % 3], CASE WHEN i % 11 <> 0 THEN 'product ' || i % 5 END,
       date '2020-01-01' + i % 365, i % 50, i * 1000000007::bigint, i / 7.0, i / 3.0, i / 8.0, i % 4 = 0
FROM generate_series(1, 10000) i;
VACUUM ANALYZE sales;

SET cellar.min_scan_size = 0;
SET cellar.cost_factor = 0;
SET cellar.simulate_offload = on;
SET enable_sort = off;

-- Plans
SELECT show('SELECT count(*) FROM sales');
SELECT show('SELECT region, sum(price * (1 - rate)), avg(quantity), count(product), bool_and(paid) FROM sales WHERE day < ''2020-06-01'' GROUP BY region');
SELECT show('SELECT id % 10, product, max(day) FILTER (WHERE paid) FROM sales GROUP BY 1, 2 HAVING count(*) > 3');
SELECT show('SELECT region, product FROM sales GROUP BY region, product');
SELECT show('SELECT price, extract(month FROM day), count(*) FROM sales GROUP BY 1, 2');
SELECT show('SELECT round(rate, 1), price * 2 - 0.5, floor(rate), quantity::numeric, max(trunc(rate, 2)), count(*) FROM sales GROUP BY 1, 2, 3, 4');
SELECT show('SELECT (SELECT count(*) FROM sales WHERE id = x) FROM generate_series(1, 3) x');

-- Aggregations that are not offloaded, and the reasons
SELECT count(DISTINCT region), count(DISTINCT paid), count(*) FROM sales;
SELECT what, expression, reason FROM cellar.why_not_offloaded;
SELECT count(*) FROM (SELECT rate FROM sales GROUP BY rate) s;
SELECT what, expression, reason FROM cellar.why_not_offloaded;
SELECT count(*) FROM (SELECT price * rate FROM sales GROUP BY 1) s;
SELECT what, expression, reason FROM cellar.why_not_offloaded;
SELECT region, min(rate) FROM sales GROUP BY region ORDER BY region;
SELECT what, expression, reason FROM cellar.why_not_offloaded;
SELECT regr_count(quantity, id) FROM sales;
SELECT what, expression, reason FROM cellar.why_not_offloaded;
SELECT round(stddev(price / 7), 3) FROM sales;
SELECT what, expression, reason FROM cellar.why_not_offloaded;
SELECT count(*) FROM sales WHERE product ~ '\d$' AND product !~ '^[a-z]+ [0-3]$';
SELECT what, expression, reason FROM cellar.why_not_offloaded ORDER BY what;
SELECT region, count(DISTINCT paid) FROM sales GROUP BY ROLLUP (region) ORDER BY region;
SELECT what, expression, reason FROM cellar.why_not_offloaded;

-- Results
SELECT region, count(*), sum(quantity), avg(quantity), sum(amount), avg(amount), sum(price), avg(price), sum(rate),
       min(day), max(product COLLATE "C"), bool_or(paid)
FROM sales GROUP BY region ORDER BY region;
SELECT region, stddev(quantity), var_pop(amount), stddev_samp(price), variance(price * 2 - id), bit_and(quantity | 64), bit_or(id), bit_xor(amount)
FROM sales GROUP BY region ORDER BY region;
SELECT count(*), sum(amount), avg(price), max(day), bool_and(paid) FROM sales WHERE id < 0;
SELECT x, (SELECT count(*) FROM sales WHERE id % 3 = x) FROM generate_series(0, 2) x;
SELECT price, extract(quarter FROM day), count(*) FROM sales WHERE price < 1 GROUP BY 1, 2 ORDER BY 1, 2;
SELECT sum(quantity / (id - 5)) FROM sales;

-- DISTINCT
SELECT show('SELECT DISTINCT region, paid FROM sales');
SELECT DISTINCT region, paid FROM sales ORDER BY region, paid;

-- Group keys that equal constants: no row for an empty input
SELECT show('SELECT product, count(*), sum(price) FROM sales WHERE product = ''product 3'' GROUP BY product');
SELECT show('SELECT product, quantity, max(day) FROM sales WHERE product = ''product 3'' AND quantity = 8 GROUP BY 1, 2 HAVING count(*) > 1');
SELECT show('SELECT product, quantity, count(DISTINCT region), sum(price) FROM sales WHERE product = ''product 3'' AND quantity = 8 GROUP BY 1, 2');
SELECT show('SELECT id % 10, count(*) FROM sales WHERE id % 10 = 3 GROUP BY 1');
CREATE FUNCTION answer(query text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE answer text;
BEGIN
  EXECUTE 'SELECT coalesce(string_agg(s::text, '' '' ORDER BY s::text), ''no rows'') FROM (' || query || ') s' INTO answer;
  RETURN answer;
END $$;
SELECT query, answer(query) FROM (VALUES
  ('SELECT product, count(*), sum(price) FROM sales WHERE product = ''product 3'' GROUP BY product'),
  ('SELECT product, count(*), sum(price) FROM sales WHERE product = ''product 7'' GROUP BY product'),
  ('SELECT count(*) + 1 FROM sales WHERE product = ''product 7'' GROUP BY product'),
  ('SELECT count(*) FROM sales WHERE product = ''product 3'' AND product = ''product 4'' GROUP BY product'),
  ('SELECT product || ''!'', quantity FROM sales WHERE product = ''product 3'' AND quantity = 8 GROUP BY product, 2'),
  ('SELECT product, quantity, max(day) FROM sales WHERE product = ''product 3'' AND quantity = 8 GROUP BY 1, 2 HAVING count(*) > 1'),
  ('SELECT product, quantity, max(day) FROM sales WHERE product = ''product 3'' AND quantity = 8 GROUP BY 1, 2 HAVING count(*) > 1000'),
  -- An expression that equals a constant is a key, too: groups by its column are finer.
  ('SELECT id % 10, region, count(*) FROM sales WHERE id % 10 = 3 GROUP BY 1, 2 HAVING count(*) > 5'),
  ('SELECT id % 10, region, count(DISTINCT quantity), sum(price) FROM sales WHERE id % 10 = 3 GROUP BY 1, 2'),
  ('SELECT id % 10, region, count(*), count(DISTINCT quantity) FROM sales WHERE id % 10 = 3 GROUP BY 1, 2 ORDER BY count(*) DESC, region LIMIT 2'),
  ('SELECT id % 10 + 1, region, count(*) FROM sales WHERE id % 10 = 3 GROUP BY id % 10, 2'),
  -- Window functions
  ('SELECT product, count(*), rank() OVER (ORDER BY count(*)) FROM sales WHERE product = ''product 3'' GROUP BY product'),
  ('SELECT product, count(DISTINCT region), count(DISTINCT quantity), row_number() OVER () FROM sales WHERE product = ''product 3'' GROUP BY product'),
  ('SELECT id % 10, count(DISTINCT region), sum(price), row_number() OVER () FROM sales WHERE id % 10 = 3 GROUP BY 1'),
  ('SELECT id % 10, region, count(*), rank() OVER (ORDER BY region) FROM sales WHERE id % 10 = 3 GROUP BY 1, 2'),
  ('SELECT product, region, count(*), rank() OVER (ORDER BY region) FROM sales WHERE product = ''product 3'' GROUP BY 1, 2'),
  ('SELECT product, paid, count(DISTINCT region), sum(price) FROM sales WHERE product = ''product 3'' AND paid GROUP BY 1, 2'),
  ('SELECT product, count(DISTINCT region), sum(price) FROM sales WHERE product = ''product 7'' GROUP BY 1'),
  ('SELECT product, count(DISTINCT region), count(DISTINCT quantity) FROM sales WHERE product = ''product 3'' GROUP BY 1'),
  ('SELECT product, count(DISTINCT region), count(DISTINCT quantity) FROM sales WHERE product = ''product 7'' GROUP BY 1'),
  ('SELECT product, region, count(*) FROM sales WHERE product = ''product 3'' GROUP BY 1, 2'),
  ('SELECT product, grouping(product), count(*) FROM sales WHERE product = ''product 3'' GROUP BY ROLLUP (1)'),
  ('SELECT id % 10, count(*) FROM sales WHERE id % 10 = 3 GROUP BY 1'),
  ('SELECT id % 10, count(*) FROM sales WHERE id % 10 = 13 GROUP BY 1'),
  ('SELECT md5(product), count(*) FROM sales WHERE md5(product) = md5(''product 3'') GROUP BY 1'),
  ('SELECT DISTINCT product, quantity FROM sales WHERE product = ''product 3'' AND quantity = 8'),
  ('SELECT DISTINCT product FROM sales WHERE product = ''product 7''')
) q(query);
CREATE TABLE parts (a int, b int, c text) PARTITION BY LIST (a);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2, 3);
INSERT INTO parts SELECT 1 + i % 3, i % 10, 'c' || i % 4 FROM generate_series(1, 6000) i;
VACUUM ANALYZE parts;
SET enable_partitionwise_aggregate = on;
SELECT show('SELECT a, count(*) FROM parts WHERE a = 3 GROUP BY a');
SELECT query, answer(query) FROM (VALUES
  ('SELECT a, b, count(*) FROM parts WHERE b = 3 GROUP BY a, b'),
  ('SELECT a, count(*), max(c COLLATE "C") FROM parts WHERE a = 3 GROUP BY a HAVING count(*) > 5'),
  ('SELECT a, c, count(*) FROM parts WHERE a = 1 AND c = ''c3'' GROUP BY a, c'),
  ('SELECT b, count(*) FROM parts WHERE b = 3 GROUP BY b'),
  ('SELECT a, b, sum(b) FROM parts WHERE b = 11 GROUP BY a, b'),
  ('SELECT DISTINCT a, b FROM parts WHERE b = 3 AND a = 1')
) q(query);
RESET enable_partitionwise_aggregate;
DROP TABLE parts;
DROP FUNCTION answer;

-- Aggregates that ignore duplicates
SELECT substring(line FROM 'Smart Scan Aggregate|Cell Group Key: .*') AS plan FROM show('SELECT count(DISTINCT region) FROM sales') line WHERE line ~ 'Smart Scan Aggregate|Cell Group';
SELECT substring(line FROM 'Smart Scan Aggregate|Cell Group Key: .*') AS plan FROM show('SELECT paid, count(DISTINCT product), max(region) FILTER (WHERE quantity > 5) FROM sales GROUP BY paid HAVING sum(DISTINCT quantity) > 0') line WHERE line ~ 'Smart Scan Aggregate|Cell Group';
SELECT count(DISTINCT region), sum(DISTINCT quantity), avg(DISTINCT price), min(day), string_agg(DISTINCT region::text, ',' ORDER BY region::text) FROM sales;
SELECT paid, count(DISTINCT product), max(region) FILTER (WHERE quantity > 5), count(DISTINCT nullif(quantity, 2))
FROM sales GROUP BY paid HAVING sum(DISTINCT quantity) > 0 ORDER BY paid;
-- Arguments of rows that fail the filter are not evaluated.
SELECT count(DISTINCT quantity / (id - 5)) FILTER (WHERE id > 5), count(DISTINCT region) FROM sales;
SELECT count(DISTINCT rate) FROM sales;
SELECT what, expression, reason FROM cellar.why_not_offloaded;
SET cellar.cost_factor = 0.1;
-- Few duplicates: the cell counts the values.
SELECT substring(line FROM 'Smart Scan Aggregate|Cell Group Key: .*') AS plan FROM show('SELECT count(DISTINCT id) FROM sales') line WHERE line ~ 'Smart Scan Aggregate|Cell Group';
-- Removing duplicates of several arguments saves nothing here.
SELECT substring(line FROM 'Smart Scan Aggregate|Cell Group Key: .*') AS plan FROM show('SELECT count(DISTINCT id), count(DISTINCT region) FROM sales') line WHERE line ~ 'Smart Scan Aggregate|Cell Group';
SELECT what, expression, reason FROM cellar.why_not_offloaded;
SET cellar.cost_factor = 0;

-- Aggregates with DISTINCT beside other aggregates: two levels
SELECT show('SELECT paid, count(DISTINCT product), sum(price) FROM sales GROUP BY paid HAVING count(DISTINCT product) > 1');
SELECT show('SELECT count(DISTINCT quantity) FILTER (WHERE paid), count(*) FROM sales');
SELECT show('SELECT region, paid, 1, count(DISTINCT product), count(*) FROM sales GROUP BY 1, 2, 3 HAVING count(DISTINCT product) > 1 ORDER BY 4 DESC, 5 LIMIT 3');
SELECT show('SELECT paid, sum(DISTINCT quantity) FILTER (WHERE paid) FROM sales GROUP BY paid ORDER BY 2 DESC LIMIT 1');
CREATE FUNCTION show_output(query text) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) ' || query LOOP
    RETURN QUERY SELECT line WHERE line ~ 'Output|Filter|->';
  END LOOP;
END $$;
SELECT show_output('SELECT paid, sum(DISTINCT quantity), avg(price) FROM sales GROUP BY paid HAVING sum(DISTINCT quantity) > 0 ORDER BY avg(price)');
SELECT paid, count(DISTINCT product), sum(price), avg(amount), min(day) FROM sales GROUP BY paid HAVING count(DISTINCT product) > 1 ORDER BY paid;
SELECT region, count(DISTINCT nullif(quantity, 2)), sum(DISTINCT nullif(quantity, 2)), avg(DISTINCT nullif(quantity, 2)), max(DISTINCT day), count(*) + 1
FROM sales GROUP BY region ORDER BY 2, 1;
SELECT count(DISTINCT quantity) FILTER (WHERE id % 100 < 7), sum(DISTINCT quantity) FILTER (WHERE id % 100 < 7), count(*) FILTER (WHERE paid) FROM sales;
SELECT count(DISTINCT id), sum(DISTINCT id), avg(DISTINCT id), count(*), sum(amount), max(product COLLATE "C") FROM sales WHERE id < 0;
SELECT product, paid, count(DISTINCT product), count(*), rank() OVER (ORDER BY count(DISTINCT product), count(*) DESC, product)
FROM sales GROUP BY product, paid ORDER BY 5, 2;
SELECT x, (SELECT count(DISTINCT quantity) * 1000 + max(quantity) FROM sales WHERE id % 7 < x) FROM generate_series(0, 3) x;
-- Different arguments or filters
SELECT count(DISTINCT quantity) FILTER (WHERE paid), count(DISTINCT quantity), sum(amount) FROM sales;
SELECT what, expression, reason FROM cellar.why_not_offloaded;
-- The sum of distinct int8 values, and numerics of no fixed scale
SELECT sum(DISTINCT amount), count(*) FROM sales;
SELECT what, expression, reason FROM cellar.why_not_offloaded;
SELECT count(DISTINCT rate), count(*) FROM sales;
SELECT what, expression, reason FROM cellar.why_not_offloaded;

-- Group keys, and arguments of min and max, that the cell does not compute
SELECT show_output('SELECT md5(product), paid, sum(quantity) + 1, min(initcap(product)), max(product COLLATE "C") FROM sales GROUP BY 1, 2 HAVING count(*) > 3');
SELECT md5(product), paid, sum(quantity) + 1, min(initcap(product)), max(product COLLATE "C"), count(*) FROM sales GROUP BY 1, 2 HAVING count(*) > 3 ORDER BY 1, 2 LIMIT 3;
SELECT show('SELECT region, bool_or(md5(product) < ''5''), min(md5(product) COLLATE "C") FROM sales GROUP BY region');
SELECT region, bool_or(md5(product) < '5'), bool_and(product IS NULL), min(md5(product) COLLATE "C") FROM sales GROUP BY region ORDER BY region;
SELECT show('SELECT product, max(product COLLATE "C"), min(to_hex(quantity::int4) COLLATE "C") FROM sales WHERE id > 10 GROUP BY product');
SELECT product, max(product COLLATE "C"), min(to_hex(quantity::int4) COLLATE "C") FROM sales WHERE id > 9000 GROUP BY product ORDER BY product;
SELECT min(md5(product) COLLATE "C"), count(*), sum(quantity), avg(amount) FROM sales WHERE id < 0;
SELECT min(md5(product) COLLATE "C"), count(*), sum(quantity) FROM sales;
-- In PostgreSQL: equal results with different bytes, functions of the stored form or with other results for equal arguments
SELECT count(*) FROM (SELECT FROM sales GROUP BY price / 3) s;
SELECT what, expression, reason FROM cellar.why_not_offloaded;
SELECT count(*) > 0 AS found FROM (SELECT FROM sales GROUP BY pg_column_size(product)) s;
SELECT what, expression, reason FROM cellar.why_not_offloaded;
SELECT count(*) > 10 AS found FROM (SELECT FROM sales GROUP BY product || random()) s;
SELECT what, expression, reason FROM cellar.why_not_offloaded;
SELECT sum(length(md5(product))) FROM sales;
SELECT what, expression, reason FROM cellar.why_not_offloaded;

-- Grouping sets
SELECT show('SELECT region, paid, grouping(region, paid), sum(price) FROM sales GROUP BY ROLLUP (region, paid) HAVING grouping(paid) = 1 OR count(*) > 3');
SELECT show('SELECT md5(product), count(*) FROM sales GROUP BY GROUPING SETS ((1), ())');
SET enable_hashagg = off;
SET enable_sort = on;
SELECT show('SELECT region, paid, count(*) FROM sales GROUP BY ROLLUP (region, paid)');
SELECT show('SELECT region, paid, count(*) FROM sales GROUP BY CUBE (region, paid)');
SELECT region, paid, grouping(region, paid), count(*), avg(price), sum(price), min(product COLLATE "C") FROM sales GROUP BY CUBE (region, paid) ORDER BY 3, 1, 2;
RESET enable_hashagg;
SET enable_sort = off;
SELECT region, paid, grouping(region, paid), count(*), avg(price), sum(price), min(product COLLATE "C") FROM sales GROUP BY CUBE (region, paid) ORDER BY 3, 1, 2;
SELECT product, extract(month FROM day) % 3, grouping(product), count(*) + 1, sum(amount) FILTER (WHERE paid)
FROM sales GROUP BY GROUPING SETS ((product), (extract(month FROM day) % 3), (), (product)) HAVING sum(quantity) > 40000 ORDER BY 1, 2, 4, 5;
SELECT region, count(*), sum(price), bool_and(paid) FROM sales WHERE id < 0 GROUP BY GROUPING SETS ((region), (), ());
SELECT region, rank() OVER (ORDER BY sum(price) DESC), sum(price) + 1 FROM sales GROUP BY ROLLUP (region) ORDER BY 2;
SELECT x, s.* FROM generate_series(0, 2) x, LATERAL (SELECT paid, count(*) FROM sales WHERE quantity < x GROUP BY ROLLUP (paid)) s ORDER BY 1, 2, 3;
SELECT DISTINCT grouping(region), min(rate) FROM sales GROUP BY ROLLUP (region) ORDER BY 1, 2 LIMIT 1;
SELECT 'x' AS x, region, count(*), count(*) FROM sales GROUP BY ROLLUP (region) ORDER BY region;
SELECT count(*) FROM (SELECT region, sum(price) FROM sales GROUP BY ROLLUP (region)) s;
SELECT x, y, count(*) FROM (SELECT region x, region y FROM sales) s GROUP BY ROLLUP (x, y) ORDER BY grouping(y), x;
SELECT k, count(*) FROM (SELECT md5(product) AS k FROM sales) s GROUP BY ROLLUP (k) ORDER BY k LIMIT 1;
SELECT what, expression, reason FROM cellar.why_not_offloaded;
PREPARE sets(int) AS SELECT region, $1 + 1, count(*) FROM sales WHERE id < $1 GROUP BY ROLLUP (region) ORDER BY 1;
SET plan_cache_mode = force_generic_plan;
EXECUTE sets(3000);
EXECUTE sets(0);
RESET plan_cache_mode;

-- Keys that the cell would interpret for each row are computed for each value of their columns, unless there are many.
CREATE FUNCTION size(number int) RETURNS text IMMUTABLE LANGUAGE sql
    RETURN CASE WHEN number < 10 THEN CASE WHEN number < 3 THEN 'very low' ELSE 'low' END ELSE 'high' END;
SELECT show('SELECT size(quantity), paid, count(*) FROM sales GROUP BY 1, 2');
SELECT size(quantity), paid, count(*), min(product COLLATE "C"), sum(price) FROM sales GROUP BY 1, 2 HAVING count(*) > 500 ORDER BY 1, 2;
SELECT show('SELECT size(id), count(*) FROM sales GROUP BY 1');
SELECT show('SELECT size(quantity), day, count(*) FROM sales GROUP BY 1, 2');
-- The cell does not interpret a CASE among constants.
SELECT show('SELECT CASE WHEN quantity < 10 THEN ''low'' ELSE ''high'' END, paid, count(*) FROM sales GROUP BY 1, 2');
SELECT CASE WHEN quantity < 10 THEN 'low' ELSE 'high' END, paid, count(*), min(product COLLATE "C"), sum(price) FROM sales GROUP BY 1, 2 HAVING count(*) > 500 ORDER BY 1, 2;

-- Regular expressions
SELECT show('SELECT product ~ ''[34]$'', day, count(*) FROM sales GROUP BY 1, 2');
SELECT show('SELECT regexp_replace(product, ''^pro(?:duct)? ([0-3]+)$'', ''<\1>''), product ~ ''[34]$'', count(*) FROM sales GROUP BY 1, 2');
SELECT regexp_replace(product, '^pro(?:duct)? ([0-3]+)$', '<\1>'), product ~ '[34]$', count(*) FROM sales GROUP BY 1, 2 ORDER BY 1, 2;

-- Enums: the cell groups by them and tests them for equality; their order is known to PostgreSQL only.
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE DOMAIN feeling AS mood CHECK (VALUE <> 'ok');
CREATE TABLE moods (id int, m mood, f feeling);
INSERT INTO moods SELECT i, (ARRAY['happy', 'sad', NULL, 'ok'])[1 + i % 4]::mood, (ARRAY['happy', 'sad'])[1 + i % 2]::mood FROM generate_series(1, 1000) i;
ALTER TYPE mood ADD VALUE 'calm' BEFORE 'ok';
INSERT INTO moods VALUES (1001, 'calm', NULL);
ALTER TABLE moods ADD later mood DEFAULT 'calm';
VACUUM ANALYZE moods;
SELECT show('SELECT m, f, count(*) FILTER (WHERE m = ''ok''), sum(CASE m WHEN ''sad'' THEN id END) FROM moods WHERE f::mood <> ''sad'' OR m IN (''ok'', ''calm'') GROUP BY 1, 2');
SELECT m, f, count(*) FILTER (WHERE m = 'ok'), sum(CASE m WHEN 'sad' THEN id END) FROM moods WHERE f::mood <> 'sad' OR m IN ('ok', 'calm') GROUP BY 1, 2 ORDER BY 1, 2;
SELECT line FROM show('SELECT m, count(*) FROM moods GROUP BY m ORDER BY m DESC LIMIT 2') line WHERE line ~ 'Cell';
SELECT m, count(*) FROM moods GROUP BY m ORDER BY m DESC LIMIT 2;
SELECT coalesce(m, 'ok'), nullif(m, 'sad'), later, count(DISTINCT f) FROM moods GROUP BY 1, 2, 3 HAVING coalesce(m, 'ok') <> 'happy' ORDER BY 1, 2, 3;
SELECT m, f, count(*), grouping(m) FROM moods GROUP BY CUBE (m, f) ORDER BY 4, 1, 2;
SELECT show('SELECT m::text, min(id) FROM moods GROUP BY 1');
SELECT count(*) FROM moods WHERE m > 'sad';
SELECT what, expression, reason FROM cellar.why_not_offloaded ORDER BY what;
SELECT f, min(m), max(m) FROM moods GROUP BY f ORDER BY f;
SELECT what, expression, reason FROM cellar.why_not_offloaded;

-- Aggregation by several threads of the cell
SET max_parallel_workers_per_gather = 2;
SET min_parallel_table_scan_size = 0;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET cellar.cost_factor = 0.1;
CREATE TABLE sparse WITH (fillfactor = 10) AS
SELECT i AS id, i % 3 AS region, repeat('x', 800) AS filler FROM generate_series(1, 1200) i;
VACUUM ANALYZE sparse;
SELECT show('SELECT region, count(*) FROM sparse GROUP BY region');
SELECT region, count(*), sum(id) FROM sparse GROUP BY region ORDER BY region;
SELECT show('SELECT region, count(*) FROM sales GROUP BY region');
SELECT region, count(*), sum(price) FROM sales GROUP BY region ORDER BY region;

-- GROUPING with one grouping set
SELECT count(*) > 1 AS several FROM (SELECT paid, grouping(paid) FROM sales GROUP BY GROUPING SETS (paid) HAVING grouping(paid) >= 0) g;
DROP TABLE sales, sparse, moods;
DROP DOMAIN feeling;
DROP TYPE mood;
DROP FUNCTION show(text), size;
