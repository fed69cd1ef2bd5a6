-- Views and functions of the extension on a server without a cell.
CREATE EXTENSION cellar;

SELECT name FROM cellar.sysstat ORDER BY name COLLATE "C";
SELECT event FROM cellar.system_event ORDER BY event COLLATE "C";
SELECT count(*) = (SELECT count(*) FROM cellar.get_sysstat()) AS as_many FROM cellar.mystat;

-- The "=" operator of each type that storage predicates support is offloadable.
SELECT t.typname
FROM (VALUES ('int4'), ('int8'), ('float8'), ('numeric'), ('text'), ('date'), ('timestamptz'), ('uuid')) t(typname)
WHERE NOT EXISTS (
  SELECT 1
  FROM cellar.offloadable_functions f
       JOIN pg_operator o ON o.oprcode = f.function::oid
  WHERE o.oprname = '=' AND o.oprleft = t.typname::regtype AND o.oprright = t.typname::regtype);

-- Every function, table and view has a comment.
SELECT oid::regprocedure AS uncommented FROM pg_proc
WHERE pronamespace = 'cellar'::regnamespace AND obj_description(oid, 'pg_proc') IS NULL
UNION ALL
SELECT NULL FROM pg_class
WHERE relnamespace = 'cellar'::regnamespace AND relkind IN ('r', 'v') AND obj_description(oid, 'pg_class') IS NULL;

-- A table that is not on a cell
CREATE TABLE plain (a int);
SELECT cellar.cell_of('plain');
SELECT count(*) FROM cellar.cells();

-- Without a cell there are no disk groups.
SELECT view, count(*)
FROM (VALUES ('disk_groups'), ('disks'), ('file_redundancy'), ('rebalance_operations')) v(view),
     pg_attribute
WHERE attrelid = ('cellar.' || view)::regclass AND attnum > 0
GROUP BY view ORDER BY view COLLATE "C";
SELECT (SELECT count(*) FROM cellar.disk_groups) AS groups, (SELECT count(*) FROM cellar.disks) AS disks,
       (SELECT count(*) FROM cellar.rebalance_operations) AS operations;

-- Ordinary users see neither sessions of other roles nor disks.
CREATE ROLE cellar_reader;
SET ROLE cellar_reader;
SELECT count(*) FROM cellar.sysstat WHERE value < 0;
SELECT count(DISTINCT pid) FROM cellar.sesstat;
SELECT count(*) FROM cellar.event_histogram WHERE wait_count < 0;
SELECT count(*) FROM cellar.disks;
SELECT count(*) FROM cellar.get_disk_groups();
RESET ROLE;
GRANT pg_monitor TO cellar_reader;
SET ROLE cellar_reader;
SELECT (SELECT count(*) FROM cellar.disk_groups) AS groups, (SELECT count(*) FROM cellar.disks) AS disks,
       (SELECT count(*) FROM cellar.rebalance_operations) AS operations;
RESET ROLE;

SET cellar.cost_factor = -1;
SET cellar.cell_offload_plan_display = 'sometimes';
SET cellar.no_such_setting = 1;

DROP ROLE cellar_reader;
DROP TABLE plain;
