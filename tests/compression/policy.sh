#!/usr/bin/env bash
# Compression policies: tables that are compressed, and compressed again, by themselves.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

extension_installed || die "the extension is not installed: make build"
work_begin policy
data=$WORK/cell1/pgdata
# An age that is long beside a nap of the launcher (1 s), and the time for which what must not happen does not.
AGE=8
WHILE=4

check_equal() {
    if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1: it is \"$2\", not \"$3\""; fi
}
q() { PGOPTIONS='-c cellar.min_scan_size=0 -c cellar.cost_factor=0' sql whole "${DB:-postgres}" -c "$1"; }
off() { PGOPTIONS='-c cellar.cell_offload_processing=off' sql whole "${DB:-postgres}" -c "$1"; }
error_of() { sql whole postgres -v VERBOSITY=verbose -c "$1" 2>&1 >/dev/null | sed -n 's/^ERROR:  \([0-9A-Z]*\).*/\1/p' || true; }
# becomes WHAT QUERY VALUE: within a minute.
becomes() {
    local tries now
    for ((tries = 0; tries < 200; tries++)); do
        now=$(q "$2")
        if [ "$now" = "$3" ]; then ok "$1"; return; fi
        sleep 0.3
    done
    not_ok "$1: it is \"$now\", not \"$3\"; $(q "TABLE cellar.compression_policies" | tr '\n' ' ')"
}
policy() { q "SELECT cellar.set_compression($1)" >/dev/null; }
levels() { echo "SELECT string_agg(DISTINCT level, ', ') FROM cellar.compression('$1')"; }
outcome() { echo "SELECT last_outcome FROM cellar.compression_policies WHERE \"table\" = '$1'::regclass"; }
fill() { q "CREATE TABLE $1 AS SELECT g AS id, g % 1000 AS number, 'note ' || md5((g % 500)::text) AS note FROM generate_series(1, ${2:-50000}) g"; }
# same WHAT TABLE: the table has the rows of its twin without a policy, with Smart Scan and without.
same() {
    local all="SELECT count(*), sum(id), sum(number), md5(string_agg(t::text, '|' ORDER BY id)) FROM"
    local some="SELECT count(*), max(note) FROM @ t WHERE number BETWEEN 7 AND 99"
    check_equal "$1: all rows" "$(off "$all $2 t")" "$(off "$all twin t")"
    check_equal "$1: all rows by a Smart Scan" "$(q "$all $2 t")" "$(off "$all twin t")"
    check_equal "$1: some rows by a Smart Scan" "$(q "${some/@/$2}")" "$(off "${some/@/twin}")"
}
both() { q "${1//@/many}" >/dev/null && q "${1//@/twin}" >/dev/null; }
# hold SECONDS STATEMENT: a transaction that has executed the statement when this returns; $HOLDER waits for its end.
hold() {
    PGOPTIONS='' sql whole postgres -c "BEGIN ISOLATION LEVEL REPEATABLE READ" -c "$2" -c "SELECT 'held'" -c "SELECT pg_sleep($1)" -c "COMMIT" >"$WORK/held.log" 2>&1 &
    HOLDER=$!
    remember_process $HOLDER
    while ! grep -q held "$WORK/held.log"; do sleep 0.1; done
}

cell_configure cell1 128MiB
cell_start cell1
cluster_create whole "$data" --data-checksums
cluster_set "$data" "shared_preload_libraries = 'cellar'" "shared_buffers = 32MB" "autovacuum = off" "max_wal_size = 1GB" \
    "cellar.compression_naptime = 1s" "deadlock_timeout = 100ms"
cluster_start whole "$data"
q "CREATE EXTENSION cellar"

# ---------------------------------------------------------------- mistakes
fill many; fill twin
q "CREATE ROLE stranger; GRANT SELECT ON many TO stranger; CREATE VIEW seen AS SELECT 1"
mkdir -p "$WORK/plain"
[ "$(id -u)" != 0 ] || chown "$OS_USER" "$WORK/plain"
sql whole postgres -c "CREATE TABLESPACE plain LOCATION '$WORK/plain'"
q "CREATE TABLE elsewhere (id int) TABLESPACE plain"
check_equal "an unknown level" "$(error_of "SELECT cellar.set_compression('many', 'quick')")" 22023
check_equal "a negative time" "$(error_of "SELECT cellar.set_compression('many', 'query low', '-1 day')")" 22023
check_equal "no time" "$(error_of "SELECT cellar.set_compression('many', 'query low', NULL)")" 22004
check_equal "a table of somebody else" "$(error_of "SET ROLE stranger; SELECT cellar.set_compression('many', 'query low')")" 42501
check_equal "whose policy cannot be written past the function" "$(error_of "SET ROLE stranger; DELETE FROM cellar.compression_policy")" 42501
check_equal "a view" "$(error_of "SELECT cellar.set_compression('seen', 'query low')")" 42809
check_equal "a system catalog" "$(error_of "SELECT cellar.set_compression('pg_class', 'query low')")" 42809
check_equal "a temporary table" "$(error_of "CREATE TEMP TABLE passing (id int); SELECT cellar.set_compression('passing', 'query low')")" 42809
check_equal "no table" "$(error_of "SELECT cellar.set_compression(99999999::oid, 'query low')")" 42P01
check_equal "a table on no cell" "$(error_of "SELECT cellar.set_compression('elsewhere', 'query low')")" 55000
q "BEGIN; SELECT cellar.set_compression('many', 'query low'); ROLLBACK" >/dev/null
check_equal "a policy that was rolled back is none" "$(q "SELECT count(*) FROM cellar.compression_policies")" 0

# ---------------------------------------------------------------- compressed by itself, and again
policy "'many', 'Query Low', after => interval '0'"
becomes "a fresh table is compressed" "$(levels many)" "query low"
becomes "policy and outcome are shown" "SELECT DISTINCT policy, last_outcome LIKE 'compressed % allocation units' FROM cellar.compression('many')" \
    "query low after 00:00:00|t"
same "compressed" many
both "UPDATE @ SET number = 5 WHERE id IN (100, 200)"
q "CHECKPOINT"
sleep "$WHILE"
check "few dead blocks stay" test "$(q "SELECT sum(superseded_blocks) FROM cellar.compression('many')")" -gt 0
before=$(q "SELECT last_run FROM cellar.compression_policies WHERE \"table\" = 'many'::regclass")
both "UPDATE @ SET number = number + 1 WHERE id % 100 = 3; DELETE FROM @ WHERE id % 1000 = 7"
q "CHECKPOINT"
becomes "many are merged" "SELECT level, last_run > '$before' AND last_outcome ~ '^compressed' AND superseded_blocks * 10 < heap_bytes / 8192 FROM cellar.compression('many')" "query low|t"
same "merged" many
both "INSERT INTO @ SELECT g, g, 'new' FROM generate_series(100001, 160000) g"
q "CHECKPOINT"
becomes "blocks that were added are compressed" "$(levels many)" "query low"
becomes "none of them is raw" "SELECT sum(superseded_blocks * 10 / (heap_bytes / 8192)) FROM cellar.compression('many')" 0
same "grown" many
policy "'many', 'archive low', after => '0'"
becomes "another level is brought about" "$(levels many)" "archive low"
same "at another level" many

# ---------------------------------------------------------------- only what has been left alone
fill waits
loaded=$(q "CHECKPOINT; SELECT clock_timestamp()" | tail -n 1)
policy "'waits', 'query high', after => interval '$AGE s'"
fill fresh
policy "'fresh', 'query high'"
becomes "a table is compressed after its time" "SELECT last_outcome ~ '^compressed' FROM cellar.compression_policies WHERE \"table\" = 'waits'::regclass" t
check_equal "not before" "$(q "SELECT last_run - '$loaded' >= interval '$AGE s' FROM cellar.compression_policies WHERE \"table\" = 'waits'::regclass")" t
check_equal "as it was told" "$(q "$(levels waits)")" "query high"
check_equal "another one still waits" "$(q "$(levels fresh)")" none
check_equal "the default is a day" "$(q "SELECT after FROM cellar.compression_policies WHERE \"table\" = 'fresh'::regclass")" "1 day"

# ---------------------------------------------------------------- in nobody's way
hold 6 "SELECT count(*) FROM twin"
fill old; q "DELETE FROM old WHERE id % 3 = 0" # The holder's snapshot sees what was deleted.
policy "'old', 'query low', after => '0'"
becomes "what is not frozen waits" "SELECT last_outcome LIKE '%not frozen yet' AND next_run > last_run FROM cellar.compression_policies WHERE \"table\" = 'old'::regclass" t
check_equal "as it is" "$(q "$(levels old)")" none
wait $HOLDER
becomes "until its transaction has ended" "$(levels old)" "query low"

fill locked
hold 5 "LOCK TABLE locked IN SHARE MODE"
policy "'locked', 'query low', after => '0'"
becomes "a locked table is left alone" "$(outcome locked)" "yielded to a conflicting lock"
wait $HOLDER
becomes "as long as it is locked" "$(levels locked)" "query low"

# Asked for while the worker looks at the table: without a lock held until VACUUM has its own, VACUUM would skip the table.
fill queued 400000
policy "'queued', 'query low', after => interval '16 s'"
q "DO \$\$ BEGIN
     FOR round IN 1..10 LOOP
       LOOP
         EXIT WHEN EXISTS (SELECT FROM pg_locks WHERE relation = 'queued'::regclass AND mode = 'ShareUpdateExclusiveLock' AND granted);
       END LOOP;
       LOCK TABLE queued IN SHARE MODE;
       PERFORM pg_sleep(0.2);
       COMMIT;
     END LOOP;
   END \$\$" >/dev/null
check_equal "a VACUUM that did not happen is not noted" "$(q "SELECT last_freeze IS NULL OR relallvisible > 0 FROM cellar.compression_policies, pg_class WHERE \"table\" = 'queued'::regclass AND oid = 'queued'::regclass")" t
becomes "it is made up for" "$(levels queued)" "query low"
q "DROP TABLE queued"

fill long 1200000
policy "'long', 'archive high', after => '0'"
becomes "a long compression is under way" "SELECT phase FROM cellar.compression_progress WHERE relation = 'long'::regclass" compressing
check "who wants a lock gets it" q "SET lock_timeout = '20s'; BEGIN; LOCK TABLE long; SELECT cellar.set_compression('long', 'archive high', after => '1 hour'); COMMIT"
becomes "the worker has given way" "$(outcome long)" "yielded to a conflicting lock"
check_equal "the rows are all there" "$(q "SELECT count(*), sum(id) FROM long")" "1200000|720000600000"
q "DROP TABLE long"

# ---------------------------------------------------------------- removal, drop
removed=$(q "SELECT cellar.set_compression('many', 'NONE')" 2>&1)
check_equal "the removal is told" "$(grep -c "Units already compressed remain compressed" <<<"$removed")" 1
check_equal "the units stay" "$(q "$(levels many)")" "archive low"
q "SELECT cellar.decompress('many')" >/dev/null
sleep "$WHILE"
check_equal "and are not made again" "$(q "$(levels many)")" none
q "CREATE SCHEMA away; CREATE TABLE away.gone AS SELECT 1 AS id"
policy "'away.gone', 'query low', after => '0'"
becomes "a small table is compressed, too" "$(levels away.gone)" "query low"
q "ALTER TABLE away.gone ADD COLUMN more int; ALTER TABLE away.gone DROP COLUMN more"
check_equal "a dropped column takes no policy with it" "$(q "SELECT count(*) FROM cellar.compression_policy WHERE relation = 'away.gone'::regclass")" 1
q "DROP SCHEMA away CASCADE" 2>/dev/null
check_equal "a dropped table takes its policy with it" "$(q "SELECT count(*) FROM cellar.compression_policy WHERE relation::text ~ 'gone|^[0-9]'")" 0
becomes "and its runs are forgotten" "SELECT count(*) FROM cellar.compression_run r WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = r.relation)" 0
q "CREATE TABLE held AS SELECT 1 AS id"
policy "'held', 'query low', after => '0'"
becomes "a table is compressed" "$(levels held)" "query low"
q "BEGIN; UPDATE cellar.compression_run SET retries = 0 WHERE relation = 'held'::regclass; UPDATE held SET id = 2; SELECT pg_sleep(8); COMMIT" >/dev/null &
holder=$!
q "CREATE TABLE beside AS SELECT 1 AS id"
policy "'beside', 'query low', after => '0'"
becomes "a session that holds a run's row does not hold up other tables" "$(levels beside)" "query low"
wait "$holder" || true
q "DROP TABLE held, beside"

# ---------------------------------------------------------------- partitions
q "CREATE TABLE parted (id int, note text) PARTITION BY RANGE (id); CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (50000);
   CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (50000) TO (100000); INSERT INTO parted SELECT g, 'note ' || g % 100 FROM generate_series(1, 99999) g"
policy "'parted', 'query low', after => '0'"
policy "'parted_2', 'archive low', after => '0'"
becomes "a partition follows its own policy, else its parent's" "SELECT string_agg(\"table\" || ' ' || level, ', ' ORDER BY 1) FROM cellar.compression('parted')" "parted_1 query low, parted_2 archive low"
q "CREATE TABLE parted_3 PARTITION OF parted DEFAULT; INSERT INTO parted SELECT g, 'note ' || g % 100 FROM generate_series(100000, 150000) g"
becomes "so does a new one" "$(levels parted_3)" "query low"
check_equal "the rows of all" "$(q "SELECT count(*), sum(id), max(note) FROM parted")" "$(off "SELECT count(*), sum(id), max(note) FROM parted")"
check_equal "a parent's policy is told" "$(q "SELECT cellar.set_compression('parted_2', NULL)" 2>&1 | grep -c 'policy of "parted" applies')" 1

# ---------------------------------------------------------------- off and on
cluster_set "$data" "cellar.auto_compression = off"
q "SELECT pg_reload_conf()" >/dev/null
fill paused
policy "'paused', 'query low', after => '0'"
sleep "$WHILE"
check_equal "nothing happens while it is switched off" "$(q "$(levels paused)")" none
cluster_set "$data" "cellar.auto_compression = on"
q "SELECT pg_reload_conf()" >/dev/null
becomes "it is done later" "$(levels paused)" "query low"

# ---------------------------------------------------------------- a dump, another database
sql whole postgres -c "CREATE DATABASE other"
"$PG_BIN/pg_dump" -h "$WORK/run" -p "$(cluster_port whole)" -U postgres postgres >"$WORK/dump.sql"
check "a dump is restored" sql whole other -f "$WORK/dump.sql"
policies="SELECT string_agg(p::text, ', ' ORDER BY relation::text) FROM cellar.compression_policy p"
check_equal "with its policies" "$(DB=other q "$policies")" "$(q "$policies")"
DB=other becomes "which are carried out" "$(levels parted_1)" "query low"
check "a worker does not hold up DROP DATABASE" q "DROP DATABASE other"

# ---------------------------------------------------------------- restart, failure
fill broken; fill padded
q "CHECKPOINT"
broken=$(q "SELECT pg_relation_filepath('broken')")
padded=$(q "SELECT pg_relation_filepath('padded')")
check "Postgres stops" cluster_stop whole
as_pg truncate -s +800k "$data/$padded"
as_pg dd if=/dev/zero of="$data/$broken" bs=1 seek=20000 count=100 conv=notrunc status=none
check "the cell stops and unmounts" cell_stop cell1
cell_start cell1
cluster_start whole "$data"
fill after_restart
for table in after_restart broken padded; do policy "'$table', 'query low', after => '0'"; done
becomes "after a restart tables are compressed" "$(levels after_restart)" "query low"
becomes "blocks that were never used are no obstacle" "$(levels padded)" "query low"
check_equal "policies are still there" "$(q "SELECT level FROM cellar.compression_policies WHERE \"table\" = 'waits'::regclass")" "query high"
becomes "a failure is shown" "SELECT last_outcome LIKE 'failed with XX001: invalid page%' AND retries > 1 FROM cellar.compression_policies WHERE \"table\" = 'broken'::regclass" t
failures() { grep -c "automatic compression of table public.broken" "$WORK/whole-postgres.log"; }
before=$(failures)
check "and in the server's log" test "$before" -gt 1
sleep $((2 * WHILE))
check "it is tried again, more and more seldom" test "$(($(failures) - before))" -le 2
q "ALTER TABLE paused SET TABLESPACE plain"
becomes "a table that left its cell says so" "$(outcome paused)" "not stored on a cell"
check "the extension can be dropped" q "DROP EXTENSION cellar"
check "Postgres stops again" cluster_stop whole
check "the cell stops and unmounts again" cell_stop cell1
checks_end
