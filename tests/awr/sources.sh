#!/usr/bin/env bash
# Sources of AWR snapshots, on a cluster without a cell: relations that other sessions lock, their sizes, and the agreement of the
# collected figures with PostgreSQL's views.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
# shellcheck source=tests/awr/on_cell.sh
. "$(dirname "$0")/on_cell.sh"

begin_without_cell sources
q "CREATE DATABASE busy"
notes() { q "SELECT string_agg(DISTINCT kind, ', ') FROM awr.note WHERE snap_id = $1 AND kind NOT LIKE 'source%'"; }

# ---- relations that other sessions lock ----

# The relation in the database of the repository is read by the session that takes the snapshot, the other one by a worker.
for DB in postgres busy; do
    export DB
    q "CREATE TABLE locked AS SELECT i AS a, repeat('x', 500) AS b FROM generate_series(1, 2000) i"
    q "CREATE INDEX locked_index ON locked (a)"
    q "CREATE TABLE awaited AS SELECT 1 AS a"
    q "SELECT sum(a) FROM locked" >/dev/null
done
DB=postgres
snapshot >/dev/null
for DB in postgres busy; do
    export DB
    session "holder-$DB"
    exec {holder}>"$WORK/holder-$DB"
    echo "BEGIN; LOCK TABLE locked IN ACCESS EXCLUSIVE MODE; SELECT * FROM awaited;" >&"$holder"
    holders+=("$holder")
    wait_for "EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'holder-$DB' AND state = 'idle in transaction' AND query ~ 'awaited')"
    # A request that waits for a lock keeps later requests waiting, too.
    PGAPPNAME=waiter-$DB q "TRUNCATE awaited" >/dev/null 2>&1 &
    remember_process $!
    wait_for "EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'waiter-$DB' AND wait_event_type = 'Lock')"
done
DB=postgres
while_locked=$(snapshot)
check_equal "a locked relation is not noted as dropped" "$(notes "$while_locked")" ""
check_equal "no source fails because of a lock" "$(q "SELECT string_agg(object || ': ' || description, ', ') FROM awr.note WHERE snap_id = $while_locked AND kind = 'source failed'")" ""
for holder in "${holders[@]}"; do
    echo "COMMIT;" >&"$holder"
    exec {holder}>&-
done
wait_for "NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name ~ '^(holder|waiter)-')"
for DB in postgres busy; do
    export DB
    q "SELECT sum(a) FROM locked" >/dev/null
done
DB=postgres
after=$(snapshot)
check_equal "no object is noted as dropped after a lock" "$(notes "$after")" ""
for database in postgres busy; do
    of() { q "SELECT $2 FROM awr.$1 s JOIN pg_database d ON d.oid = s.dbid WHERE snap_id = $after AND relname = 'locked' AND datname = '$database'"; }
    check_equal "database $database: scans and growth of a table that was locked at the previous AWR snapshot" "$(of table_stat "seq_scan, size_growth")" "1|0"
    check_equal "database $database: scans and growth of its index, which planning reads" "$(of index_stat "idx_scan, size_growth")" "0|0"
    check_equal "database $database: size of the table" "$(of table_stat size)" "$(DB=$database q "SELECT pg_relation_size('locked')")"
done

# ---- collected figures beside PostgreSQL's views ----

DB=busy q "CREATE TABLE wide (a int PRIMARY KEY, b text); ALTER TABLE wide ALTER b SET STORAGE EXTERNAL; INSERT INTO wide SELECT i, repeat('y', 5000) FROM generate_series(1, 100) i"
DB=busy q "SELECT length(b) FROM wide WHERE a = 7" >/dev/null
snapshot >/dev/null
for kind in table index; do
    if [ $kind = table ]; then id=relid views=tables; else id=indexrelid views=indexes; fi
    difference=$(DB=busy q "SELECT string_agg(key || ' ' || relname || ' ' || value || ' ' || coalesce(c.row ->> key, 'NULL'), ', ')
        FROM (SELECT s.relname, key, value, s.$id FROM pg_statio_all_$views s, jsonb_each_text(to_jsonb(s)) WHERE key LIKE '%blks%' AND schemaname = 'public') v
             LEFT JOIN (SELECT (r ->> '$id')::oid AS $id, r AS row FROM jsonb_array_elements('$(q "SELECT jsonb_agg(r) FROM awr.last_value l, jsonb_array_elements(data) r
                WHERE kind = '${kind}_stat' AND database = (SELECT oid FROM pg_database WHERE datname = 'busy') AND r ->> 'schemaname' = 'public'")'::jsonb) r) c USING ($id)
        WHERE value IS DISTINCT FROM c.row ->> key")
    check_equal "blocks read and hit of $views are those of pg_statio_all_$views" "$difference" ""
    check_equal "sizes of $views are those of pg_relation_size()" "$(DB=busy q "SELECT count(*) FILTER (WHERE pg_relation_size(oid) <> size) || ' of ' || (count(*) > 0)
        FROM jsonb_to_recordset('$(q "SELECT jsonb_agg(jsonb_build_object('oid', r -> '$id', 'size', r -> 'size')) FROM awr.last_value l, jsonb_array_elements(data) r
            WHERE kind = '${kind}_stat' AND database = (SELECT oid FROM pg_database WHERE datname = 'busy')")'::jsonb) x (oid oid, size bigint)")" "0 of true"
done
# A segment that is full is followed by another one. The segments of this relation are sparse files.
DB=busy q "CREATE TABLE segments (a int); CHECKPOINT"
file=$data/$(DB=busy q "SELECT pg_relation_filepath('segments')")
as_pg truncate -s 1G "$file" "$file.1"
as_pg truncate -s 8192 "$file.2"
end=$(snapshot)
check_equal "the size of a table is that of all of its segments" "$(q "SELECT size FROM awr.table_stat WHERE snap_id = $end AND relname = 'segments'")" $((2 * 1073741824 + 8192))

checks_end
