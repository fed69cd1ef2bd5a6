-- Runs with Smart Scan off and on (:mode). Both outputs must be equal; a line with "WRONG" is an error.
\set ON_ERROR_STOP on
SET cellar.min_scan_size = 0;
SET cellar.cost_factor = 0;
SET cellar.cell_offload_processing = :mode;
SET max_parallel_workers_per_gather = 0;

\echo == cursors
BEGIN;
SELECT plan_source('SELECT id, note FROM facts WHERE grp = 3', :'mode'::bool);
DECLARE c SCROLL CURSOR FOR SELECT id, note FROM facts WHERE grp = 3;
FETCH 3 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH 5 FROM c;
FETCH LAST FROM c;
FETCH PRIOR FROM c;
FETCH FIRST FROM c;
FETCH ABSOLUTE 700 FROM c;
FETCH RELATIVE -600 FROM c;
MOVE FORWARD ALL IN c;
FETCH BACKWARD 3 FROM c;
MOVE BACKWARD ALL IN c;
FETCH 2 FROM c;
-- A cursor does not see changes made after it was opened.
DELETE FROM facts WHERE grp = 3 AND id > 400;
FETCH 6 FROM c;
FETCH LAST FROM c;
ROLLBACK;

BEGIN;
DECLARE h CURSOR WITH HOLD FOR SELECT id FROM facts WHERE grp = 5 AND amount > 100;
FETCH 2 FROM h;
COMMIT;
FETCH 2 FROM h;
CLOSE h;

\echo == WHERE CURRENT OF
BEGIN;
DECLARE w CURSOR FOR SELECT id FROM facts WHERE grp = 7;
FETCH 3 FROM w;
UPDATE facts SET amount = -1 WHERE CURRENT OF w;
FETCH 2 FROM w;
DELETE FROM facts WHERE CURRENT OF w;
SELECT id, amount FROM facts WHERE grp = 7 AND (amount = -1 OR id < 700) ORDER BY id;
ROLLBACK;
BEGIN;
DECLARE p CURSOR FOR SELECT id FROM parts WHERE grp = 2;
FETCH 80 FROM p \g /dev/null
UPDATE parts SET note = 'current' WHERE CURRENT OF p;
SELECT tableoid::regclass, id, note FROM parts WHERE note = 'current';
ROLLBACK;

\echo == prepared statements over changes of settings and places
SET plan_cache_mode = force_generic_plan;
PREPARE q (int) AS SELECT count(*), sum(amount), min(note) FROM facts WHERE grp < $1 AND note IS NOT NULL;
SELECT eligible() AS before \gset
EXECUTE q(10);
SELECT source(:before, :'mode'::bool);
SET cellar.cell_offload_processing = off;
SELECT eligible() AS before \gset
EXECUTE q(10);
SELECT source(:before, false);
SET cellar.cell_offload_processing = :mode;
SELECT eligible() AS before \gset
EXECUTE q(10);
SELECT source(:before, :'mode'::bool);
ALTER TABLE facts SET TABLESPACE pg_default;
SELECT eligible() AS before \gset
EXECUTE q(10);
SELECT source(:before, false);
ALTER TABLE facts SET TABLESPACE :space;
SELECT eligible() AS before \gset
EXECUTE q(10);
SELECT source(:before, :'mode'::bool);
-- Moves the table off the cell in a transaction, and executes a plan made while it was on the cell.
BEGIN;
ALTER TABLE facts SET TABLESPACE pg_default;
EXECUTE q(10);
INSERT INTO facts VALUES (-1, 1, 5, 'own');
EXECUTE q(10);
ROLLBACK;
SELECT eligible() AS before \gset
EXECUTE q(10);
SELECT source(:before, :'mode'::bool);
EXECUTE q(NULL);
ALTER TABLE facts ADD COLUMN extra int DEFAULT 11;
EXECUTE q(20);
SELECT sum(extra) FROM facts WHERE extra = 11;
ALTER TABLE facts DROP COLUMN extra;
EXECUTE q(20);
DEALLOCATE q;
RESET plan_cache_mode;

\echo == own uncommitted rows and savepoints
BEGIN;
INSERT INTO facts SELECT g, 500, 1, 'own' FROM generate_series(1, 2000) g;
SELECT eligible() AS before \gset
SELECT count(*), sum(amount) FROM facts WHERE grp = 500;
SELECT source(:before, :'mode'::bool);
SAVEPOINT a;
UPDATE facts SET amount = 2 WHERE grp = 500 AND id % 2 = 0;
SELECT count(*), sum(amount) FROM facts WHERE grp = 500;
SAVEPOINT b;
DELETE FROM facts WHERE grp = 500 AND id <= 500;
SELECT count(*), sum(amount) FROM facts WHERE grp = 500;
ROLLBACK TO b;
SELECT count(*), sum(amount) FROM facts WHERE grp = 500;
RELEASE b;
-- A statement does not see the rows that it writes.
INSERT INTO facts SELECT id, 501, amount, note FROM facts WHERE grp = 500;
WITH changed AS (UPDATE facts SET grp = 502 WHERE grp = 501 RETURNING id)
SELECT (SELECT count(*) FROM changed), (SELECT count(*) FROM facts WHERE grp = 501), (SELECT count(*) FROM facts WHERE grp = 502);
SELECT count(*) FILTER (WHERE grp = 501), count(*) FILTER (WHERE grp = 502), sum(amount) FROM facts WHERE grp > 500;
ROLLBACK TO a;
SELECT count(*), sum(amount) FROM facts WHERE grp >= 500;
ROLLBACK;
SELECT count(*) FROM facts WHERE grp >= 500;

\echo == partitions and inheritance
SELECT plan_source('SELECT sum(late) FROM parts WHERE grp = 2', :'mode'::bool);
SELECT eligible() AS before \gset
SELECT count(*), sum(id), sum(late), min(note), max(note) FROM parts WHERE grp = 2;
SELECT source(:before, :'mode'::bool);
SELECT tableoid::regclass::text AS part, count(*), sum(late) FROM parts WHERE late > 0 GROUP BY 1 ORDER BY 1;
SELECT * FROM parts WHERE id IN (5, 25000, 45000, 65000) ORDER BY id;
SELECT eligible() AS before \gset
SELECT tableoid::regclass::text AS part, count(*), sum(id) FROM parent WHERE id < 4000 GROUP BY 1 ORDER BY 1;
SELECT source(:before, :'mode'::bool);
SELECT count(*) FROM ONLY parent WHERE note = 'parent';
SELECT parent FROM parent WHERE id = 17 ORDER BY note;
SELECT f.grp, count(*) FROM facts f JOIN parts p USING (id) WHERE f.amount < 3 AND p.grp = 1 GROUP BY 1 ORDER BY 1 LIMIT 5;
SELECT o.id, i.n FROM (VALUES (1), (5), (12)) o(id), LATERAL (SELECT count(*) AS n FROM parts WHERE grp = o.id AND id > o.id * 1000) i ORDER BY 1;

\echo == parallel plans
SET max_parallel_workers_per_gather = 2;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET cellar.cost_factor = 0.000001;
SELECT plan_source('SELECT count(*), sum(amount) FROM facts WHERE grp < 50', :'mode'::bool);
CREATE FUNCTION pg_temp.gathered(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text; found bool := false;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP found := found OR line LIKE '%Gather%'; END LOOP;
  RETURN CASE WHEN found THEN 'parallel: as expected' ELSE 'WRONG PLAN: not parallel' END;
END $$;
-- An aggregate that cells do not evaluate; otherwise a plan with one process could be cheaper.
SELECT pg_temp.gathered('SELECT count(*), regr_count(id, grp) FROM facts WHERE grp < 50');
SELECT eligible() AS before \gset
SELECT count(*), regr_count(id, grp), sum(length(note)) FROM facts WHERE grp < 50;
SELECT source(:before, :'mode'::bool);
SELECT count(*), sum(late), min(note) FROM parts WHERE grp BETWEEN 1 AND 5;
SELECT p.grp, count(*), sum(f.amount) FROM facts f JOIN parts p USING (id) WHERE f.grp < 30 GROUP BY 1 ORDER BY 1;
BEGIN;
UPDATE facts SET amount = amount + 1 WHERE grp = 4;
SELECT count(*), sum(amount) FROM facts WHERE grp < 10;
ROLLBACK;
