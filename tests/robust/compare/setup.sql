CREATE EXTENSION IF NOT EXISTS cellar;
CREATE FUNCTION eligible() RETURNS numeric LANGUAGE sql AS
  $$ SELECT value FROM cellar.mystat WHERE name = 'cell physical IO bytes eligible for predicate offload' $$;
-- Reports whether the rows since "before" came from a cell or not, as expected.
CREATE FUNCTION source(before numeric, expected bool) RETURNS text LANGUAGE sql AS
  $$ SELECT CASE WHEN (eligible() > before) = expected THEN 'source: as expected'
       ELSE 'WRONG SOURCE: expected from a cell: ' || expected || ', eligible bytes: ' || eligible() - before END $$;
CREATE FUNCTION plan_source(query text, expected bool) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text; found bool := false;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
    found := found OR line LIKE '%Smart Scan%';
  END LOOP;
  RETURN CASE WHEN found = expected THEN 'plan: as expected' ELSE 'WRONG PLAN: expected a Smart Scan: ' || expected END;
END $$;

CREATE TABLE facts (id int, grp int, amount numeric(12,2), note text) TABLESPACE :space;
INSERT INTO facts SELECT g, g % 97, (g % 1000) * 1.25, CASE WHEN g % 11 = 0 THEN NULL ELSE 'note ' || g || repeat('.', g % 90) END
FROM generate_series(1, 100000) g;
CREATE TABLE parts (id int, grp int, note text) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (20000) TABLESPACE :space;
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (20000) TO (40000) TABLESPACE :space;
CREATE TABLE parts_3 PARTITION OF parts FOR VALUES FROM (40000) TO (60000) TABLESPACE pg_default;
ALTER TABLE parts ADD COLUMN late int DEFAULT 3;
INSERT INTO parts SELECT g, g % 13, 'p' || g FROM generate_series(0, 59999) g;
-- A partition whose attribute numbers differ from its parent's
CREATE TABLE parts_4 (gone int, note text, late int, id int NOT NULL, grp int) TABLESPACE :space;
INSERT INTO parts_4 SELECT 1, 'q' || g, 4, g, g % 7 FROM generate_series(60000, 69999) g;
ALTER TABLE parts_4 DROP COLUMN gone;
ALTER TABLE parts ATTACH PARTITION parts_4 FOR VALUES FROM (60000) TO (70000);
CREATE TABLE parent (id int, note text) TABLESPACE :space;
CREATE TABLE child (more int) INHERITS (parent) TABLESPACE :space;
INSERT INTO parent SELECT g, 'parent' FROM generate_series(1, 5000) g;
INSERT INTO child SELECT g, 'child', g % 5 FROM generate_series(1, 20000) g;
VACUUM ANALYZE;
