-- When a Smart Scan is planned, on a server without a cell: plans show what would be.
CREATE EXTENSION IF NOT EXISTS cellar;
SET cellar.cell_offload_plan_display = always;
SET cellar.min_scan_size = 0;
SET max_parallel_workers_per_gather = 0;
CREATE TABLE planned (part int8, supplier int8, order_number int8, comment text) WITH (autovacuum_enabled = off);
INSERT INTO planned SELECT i % 500, i % 500 % 10, i, repeat('wide ', 20) FROM generate_series(1, 50000) i;
CREATE INDEX planned_duplicates ON planned (part, supplier);
CREATE INDEX planned_unique ON planned (order_number, supplier);
VACUUM (FREEZE, ANALYZE) planned;

-- A selective index scan keeps its place, a filter goes to the cell.
EXPLAIN (COSTS OFF) SELECT * FROM planned WHERE order_number = 77;
EXPLAIN (COSTS OFF) SELECT count(comment) FROM planned WHERE comment LIKE '%narrow%';

-- A whole index of posting lists is read faster than the table, one of single entries is not.
EXPLAIN (COSTS OFF) SELECT count(*) FROM planned WHERE supplier = 77;
SELECT what, reason FROM cellar.why_not_offloaded WHERE reason LIKE '%index%';
DROP INDEX planned_duplicates;
EXPLAIN (COSTS OFF) SELECT count(*) FROM planned WHERE supplier = 77;

-- What its pages and rows cost is a setting.
SET cellar.cell_page_cost = 10;
EXPLAIN (COSTS OFF) SELECT order_number FROM planned WHERE comment LIKE '%narrow%';
RESET cellar.cell_page_cost;
EXPLAIN (COSTS OFF) SELECT order_number FROM planned WHERE comment LIKE '%wide%';
SET cellar.returned_page_cost = 1000;
EXPLAIN (COSTS OFF) SELECT order_number FROM planned WHERE comment LIKE '%wide%';
RESET cellar.returned_page_cost;
DROP TABLE planned;
