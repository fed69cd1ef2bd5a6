-- Groups that ORDER BY ... LIMIT and HAVING cannot need, simulated without a cell.
CREATE TABLE visits (id int, url text COLLATE "C", place text COLLATE "C", size int4, price numeric(10,2), weight float8,
                     day date);
INSERT INTO visits
SELECT i, CASE WHEN i % 13 <> 0 THEN 'page ' || i % 500 END, 'place ' || i % 7, i * 3, i / 7.0, i / 8.0,
       date '2020-01-01' + i % 365
FROM generate_series(1, 5000) i;
VACUUM ANALYZE visits;

SET cellar.min_scan_size = 0;
SET cellar.cost_factor = 0;
SET cellar.simulate_offload = on;
SET enable_sort = off;

CREATE FUNCTION pruning(query text) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
    IF line ~ 'Smart Scan Aggregate|Cell Group' THEN
      RETURN NEXT btrim(line, ' ->');
    END IF;
  END LOOP;
END $$;

-- The whole plan; 18 also shows that a node is disabled.
CREATE FUNCTION show(query text) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
    CONTINUE WHEN line ~ '^ *Disabled: true$';
    RETURN NEXT line;
  END LOOP;
END $$;
SELECT show('SELECT url, count(*) FROM visits GROUP BY url HAVING sum(size) > 100 ORDER BY count(*) DESC, url LIMIT 10 OFFSET 3');

-- The cell does not know the results of these aggregates, whose states also contain sums.
SELECT pruning('SELECT place, count(*) FROM visits GROUP BY place HAVING stddev(weight) < 200 ORDER BY variance(size) LIMIT 3');
SELECT count(*) FROM (SELECT place FROM visits GROUP BY place HAVING stddev(weight) < 200 AND stddev(size) < 5000) s;
SELECT place FROM visits GROUP BY place HAVING var_pop(weight) > 1000 ORDER BY round(stddev(weight)::numeric, 3), place LIMIT 3;

-- Pruned
SELECT pruning('SELECT url, max(day) FROM visits GROUP BY url ORDER BY max(day) NULLS FIRST LIMIT 3');
SELECT pruning('SELECT url, place, count(*) FROM visits GROUP BY url, place LIMIT 10');
SELECT pruning('SELECT url, avg(price) FROM visits GROUP BY url HAVING count(*) > 5 AND avg(price) < 100.5');
SELECT pruning('SELECT 1, url, count(*) AS c FROM visits GROUP BY 1, url ORDER BY c DESC LIMIT 10');
SELECT pruning('SELECT id, id - 1, count(*) AS c FROM visits GROUP BY id, id - 1 ORDER BY c DESC, id - 1 LIMIT 10');
SELECT pruning('SELECT place, count(*), rank() OVER (ORDER BY count(*)) FROM visits GROUP BY place HAVING min(id) = 1 LIMIT 3');

-- Not pruned
SELECT pruning('SELECT url, count(*) FROM visits GROUP BY url ORDER BY length(url) LIMIT 10');
SELECT pruning('SELECT url, count(*) FROM visits GROUP BY url ORDER BY 2 DESC FETCH FIRST 10 ROWS WITH TIES');
SELECT pruning('SELECT url, count(*) FROM visits GROUP BY url HAVING count(*) > 5 AND avg(price) IS NOT NULL ORDER BY 2 DESC LIMIT 10');
SELECT pruning('SELECT DISTINCT count(*) FROM visits GROUP BY url ORDER BY 1 LIMIT 10');
-- An omitted group could raise an error.
SELECT pruning('SELECT url, count(*) AS c FROM visits GROUP BY url ORDER BY c DESC, length(url) LIMIT 10');
SELECT pruning('SELECT url, 1 / (count(*) - 5) FROM visits GROUP BY url ORDER BY url LIMIT 1');
SELECT pruning('SELECT sum(size) FROM visits HAVING count(*) > 5');

-- Results
SELECT url, count(*) FROM visits GROUP BY url HAVING sum(size) > 100 ORDER BY count(*) DESC, url LIMIT 3 OFFSET 1;
SELECT 1, 'x', place, count(*) AS c FROM visits GROUP BY 1, 2, place ORDER BY c DESC, place LIMIT 3;
SELECT 7, count(*) FROM visits WHERE id > 4990 GROUP BY 1;
SELECT 7, count(*) FROM visits WHERE id < 0 GROUP BY 1;

-- A partition has only some rows of a group.
CREATE TABLE parts (a int, b int) PARTITION BY RANGE (a);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (500);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (500) TO (1000);
INSERT INTO parts SELECT i, i % 10 FROM generate_series(0, 999) i;
VACUUM ANALYZE parts;
SET enable_partitionwise_aggregate = on;
SELECT pruning('SELECT b, count(*) FROM parts GROUP BY b HAVING count(*) > 60 ORDER BY 2 DESC LIMIT 5');
SELECT b, count(*) FROM parts GROUP BY b HAVING count(*) > 60 ORDER BY 2 DESC, 1 LIMIT 2;

DROP TABLE visits, parts;
DROP FUNCTION pruning, show;
