#!/usr/bin/env bash
# Compression policies: the policy worker compresses tables in the background, and compresses them again after writes.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

extension_installed || die "the extension is not installed: run scripts/build.sh extension"
work_begin policy
data=$WORK/cell1/pgdata
# AGE: a policy delay that is much longer than the launcher's naptime (1 s). WHILE: how long a check waits before it
# concludes that the policy worker does nothing.
AGE=8
WHILE=4

q() { PGOPTIONS='-c cellar.min_scan_size=0 -c cellar.cost_factor=0' sql whole "${DB:-postgres}" -c "$1"; }
off() { PGOPTIONS='-c cellar.cell_offload_processing=off' sql whole "${DB:-postgres}" -c "$1"; }
error_of() { sqlstate_of whole postgres "$1"; }
# becomes DESCRIPTION QUERY VALUE: passes when the query returns the value within a minute.
becomes() {
    local tries now
    for ((tries = 0; tries < 200; tries++)); do
        now=$(q "$2")
        if [ "$now" = "$3" ]; then ok "$1"; return; fi
        sleep 0.3
    done
    not_ok "$1: found \"$now\", expected \"$3\"; $(q "TABLE cellar.compression_policies" | tr '\n' ' ')"
}
policy() { q "SELECT cellar.set_compression($1)" >/dev/null; }
levels() { echo "SELECT string_agg(DISTINCT level, ', ') FROM cellar.compression('$1')"; }
outcome() { echo "SELECT last_outcome FROM cellar.compression_policies WHERE \"table\" = '$1'::regclass"; }
fill() { q "CREATE TABLE $1 AS SELECT g AS id, g % 1000 AS number, 'note ' || md5((g % 500)::text) AS note FROM generate_series(1, ${2:-50000}) g"; }
# same DESCRIPTION TABLE: with Smart Scan and without, the table has the same rows as the table twin, which has no policy.
same() {
    local all="SELECT count(*), sum(id), sum(number), md5(string_agg(t::text, '|' ORDER BY id)) FROM"
    local some="SELECT count(*), max(note) FROM @ t WHERE number BETWEEN 7 AND 99"
    check_equal "$1: a table scan returns all rows" "$(off "$all $2 t")" "$(off "$all twin t")"
    check_equal "$1: a Smart Scan returns all rows" "$(q "$all $2 t")" "$(off "$all twin t")"
    check_equal "$1: a filtered Smart Scan returns the right rows" "$(q "${some/@/$2}")" "$(off "${some/@/twin}")"
}
both() { q "${1//@/many}" >/dev/null && q "${1//@/twin}" >/dev/null; }
# hold SECONDS STATEMENT: starts a transaction that executes the statement and then stays open for SECONDS. Returns after
# the statement; $HOLDER is the process to wait for.
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

# ---------------------------------------------------------------- wrong arguments
fill many; fill twin
q "CREATE ROLE stranger; GRANT SELECT ON many TO stranger; CREATE VIEW seen AS SELECT 1"
mkdir -p "$WORK/plain"
[ "$(id -u)" != 0 ] || chown "$OS_USER" "$WORK/plain"
sql whole postgres -c "CREATE TABLESPACE plain LOCATION '$WORK/plain'"
q "CREATE TABLE elsewhere (id int) TABLESPACE plain"
check_equal "set_compression rejects an unknown level" "$(error_of "SELECT cellar.set_compression('many', 'quick')")" 22023
check_equal "set_compression rejects a negative delay" "$(error_of "SELECT cellar.set_compression('many', 'query low', '-1 day')")" 22023
check_equal "set_compression rejects NULL as the delay" "$(error_of "SELECT cellar.set_compression('many', 'query low', NULL)")" 22004
check_equal "set_compression rejects a table of another owner" "$(error_of "SET ROLE stranger; SELECT cellar.set_compression('many', 'query low')")" 42501
check_equal "only superusers can write cellar.compression_policy directly" "$(error_of "SET ROLE stranger; DELETE FROM cellar.compression_policy")" 42501
check_equal "set_compression rejects a view" "$(error_of "SELECT cellar.set_compression('seen', 'query low')")" 42809
check_equal "set_compression rejects a system catalog" "$(error_of "SELECT cellar.set_compression('pg_class', 'query low')")" 42809
check_equal "set_compression rejects a temporary table" "$(error_of "CREATE TEMP TABLE passing (id int); SELECT cellar.set_compression('passing', 'query low')")" 42809
check_equal "set_compression rejects a relation that does not exist" "$(error_of "SELECT cellar.set_compression(99999999::oid, 'query low')")" 42P01
check_equal "set_compression rejects a table that is not on a cell" "$(error_of "SELECT cellar.set_compression('elsewhere', 'query low')")" 55000
q "BEGIN; SELECT cellar.set_compression('many', 'query low'); ROLLBACK" >/dev/null
check_equal "ROLLBACK removes a policy set in the transaction" "$(q "SELECT count(*) FROM cellar.compression_policies")" 0

# ---------------------------------------------------------------- compression in the background
policy "'many', 'Query Low', after => interval '0'"
becomes "the worker compresses a new table" "$(levels many)" "query low"
becomes "cellar.compression shows the policy and the outcome" "SELECT DISTINCT policy, last_outcome LIKE 'compressed % allocation units' FROM cellar.compression('many')" \
    "query low after 00:00:00|t"
same "after compression" many
both "UPDATE @ SET number = 5 WHERE id IN (100, 200)"
q "CHECKPOINT"
sleep "$WHILE"
check "a unit with few superseded blocks is not due" test "$(q "SELECT sum(superseded_blocks) FROM cellar.compression('many')")" -gt 0
before=$(q "SELECT last_run FROM cellar.compression_policies WHERE \"table\" = 'many'::regclass")
both "UPDATE @ SET number = number + 1 WHERE id % 100 = 3; DELETE FROM @ WHERE id % 1000 = 7"
q "CHECKPOINT"
becomes "a unit with many superseded blocks is compressed again" "SELECT level, last_run > '$before' AND last_outcome ~ '^compressed' AND superseded_blocks * 10 < heap_bytes / 8192 FROM cellar.compression('many')" "query low|t"
same "after the second compression" many
both "INSERT INTO @ SELECT g, g, 'new' FROM generate_series(100001, 160000) g"
q "CHECKPOINT"
becomes "blocks added to the table are compressed" "$(levels many)" "query low"
becomes "fewer than a tenth of the blocks of each level are superseded" "SELECT sum(superseded_blocks * 10 / (heap_bytes / 8192)) FROM cellar.compression('many')" 0
same "after growth" many
policy "'many', 'archive low', after => '0'"
becomes "a policy with another level recompresses the table" "$(levels many)" "archive low"
same "after a change of the level" many

# ---------------------------------------------------------------- the delay of a policy
fill waits
loaded=$(q "CHECKPOINT; SELECT clock_timestamp()" | tail -n 1)
policy "'waits', 'query high', after => interval '$AGE s'"
fill fresh
policy "'fresh', 'query high'"
becomes "a table is compressed after the delay" "SELECT last_outcome ~ '^compressed' FROM cellar.compression_policies WHERE \"table\" = 'waits'::regclass" t
check_equal "the table was not compressed before the delay had passed" "$(q "SELECT last_run - '$loaded' >= interval '$AGE s' FROM cellar.compression_policies WHERE \"table\" = 'waits'::regclass")" t
check_equal "the table is at the level of its policy" "$(q "$(levels waits)")" "query high"
check_equal "a table with a longer delay is still raw" "$(q "$(levels fresh)")" none
check_equal "the default delay is one day" "$(q "SELECT after FROM cellar.compression_policies WHERE \"table\" = 'fresh'::regclass")" "1 day"

# ---------------------------------------------------------------- yielding to other sessions
hold 6 "SELECT count(*) FROM twin"
fill old; q "DELETE FROM old WHERE id % 3 = 0" # The holder's snapshot sees the deleted rows.
policy "'old', 'query low', after => '0'"
becomes "units that cannot be frozen are postponed" "SELECT last_outcome LIKE '%not frozen yet' AND next_run > last_run FROM cellar.compression_policies WHERE \"table\" = 'old'::regclass" t
check_equal "the table stays raw meanwhile" "$(q "$(levels old)")" none
wait $HOLDER
becomes "the table is compressed after the old transaction has ended" "$(levels old)" "query low"

fill locked
hold 5 "LOCK TABLE locked IN SHARE MODE"
policy "'locked', 'query low', after => '0'"
becomes "the worker skips a locked table" "$(outcome locked)" "yielded to a conflicting lock"
wait $HOLDER
becomes "the worker compresses the table after the lock is released" "$(levels locked)" "query low"

# Sessions request a lock while the worker examines the table. The worker keeps its lock until VACUUM has locked the table, so
# last_freeze never names a VACUUM that was skipped.
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
check_equal "last_freeze is set only by a VACUUM that ran" "$(q "SELECT last_freeze IS NULL OR relallvisible > 0 FROM cellar.compression_policies, pg_class WHERE \"table\" = 'queued'::regclass AND oid = 'queued'::regclass")" t
becomes "the table is compressed in a later round" "$(levels queued)" "query low"
q "DROP TABLE queued"

fill long 2000000
policy "'long', 'archive high', after => '0'"
becomes "a long compression is running" "SELECT phase FROM cellar.compression_progress WHERE relation = 'long'::regclass" compressing
with_xmin=0
for ((tries = 0; tries < 4; tries++)); do
    with_xmin=$((with_xmin + $(q "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'cellar policy worker' AND backend_xmin IS NOT NULL")))
done
check_equal "the compression is still running" "$(q "SELECT phase FROM cellar.compression_progress WHERE relation = 'long'::regclass")" compressing
check "the policy worker has no backend_xmin meanwhile" test "$with_xmin" -le 1
check "a session that requests a conflicting lock gets it" q "SET lock_timeout = '20s'; BEGIN; LOCK TABLE long; SELECT cellar.set_compression('long', 'archive high', after => '1 hour'); COMMIT"
becomes "the outcome says that the worker yielded" "$(outcome long)" "yielded to a conflicting lock"
check_equal "no rows are lost" "$(q "SELECT count(*), sum(id) FROM long")" "2000000|2000001000000"
q "DROP TABLE long"

# ---------------------------------------------------------------- removed policies and dropped tables
removed=$(q "SELECT cellar.set_compression('many', 'NONE')" 2>&1)
check_equal "removing a policy reports that units remain compressed" "$(grep -c "Units already compressed remain compressed" <<<"$removed")" 1
check_equal "units remain compressed after the policy is removed" "$(q "$(levels many)")" "archive low"
q "SELECT cellar.decompress('many')" >/dev/null
sleep "$WHILE"
check_equal "a decompressed table without a policy stays raw" "$(q "$(levels many)")" none
q "CREATE SCHEMA away; CREATE TABLE away.gone AS SELECT 1 AS id"
policy "'away.gone', 'query low', after => '0'"
becomes "a table with a single block is compressed" "$(levels away.gone)" "query low"
q "ALTER TABLE away.gone ADD COLUMN more int; ALTER TABLE away.gone DROP COLUMN more"
check_equal "dropping a column does not remove the policy" "$(q "SELECT count(*) FROM cellar.compression_policy WHERE relation = 'away.gone'::regclass")" 1
q "DROP SCHEMA away CASCADE" 2>/dev/null
check_equal "dropping a table removes its policy" "$(q "SELECT count(*) FROM cellar.compression_policy WHERE relation::text ~ 'gone|^[0-9]'")" 0
becomes "the runs of dropped tables are removed" "SELECT count(*) FROM cellar.compression_run r WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = r.relation)" 0
q "CREATE TABLE held AS SELECT 1 AS id"
policy "'held', 'query low', after => '0'"
becomes "the worker compresses the table held" "$(levels held)" "query low"
q "BEGIN; UPDATE cellar.compression_run SET retries = 0 WHERE relation = 'held'::regclass; UPDATE held SET id = 2; SELECT pg_sleep(8); COMMIT" >/dev/null &
holder=$!
q "CREATE TABLE beside AS SELECT 1 AS id"
policy "'beside', 'query low', after => '0'"
becomes "a locked row of cellar.compression_run does not delay other tables" "$(levels beside)" "query low"
wait "$holder" || true
q "DROP TABLE held, beside"

# ---------------------------------------------------------------- partitions
q "CREATE TABLE parted (id int, note text) PARTITION BY RANGE (id); CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (50000);
   CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (50000) TO (100000); INSERT INTO parted SELECT g, 'note ' || g % 100 FROM generate_series(1, 99999) g"
policy "'parted', 'query low', after => '0'"
policy "'parted_2', 'archive low', after => '0'"
becomes "a partition without its own policy follows its parent's" "SELECT string_agg(\"table\" || ' ' || level, ', ' ORDER BY 1) FROM cellar.compression('parted')" "parted_1 query low, parted_2 archive low"
q "CREATE TABLE parted_3 PARTITION OF parted DEFAULT; INSERT INTO parted SELECT g, 'note ' || g % 100 FROM generate_series(100000, 150000) g"
becomes "a new partition follows its parent's policy" "$(levels parted_3)" "query low"
check_equal "the partitioned table has the same rows with Smart Scan and without" "$(q "SELECT count(*), sum(id), max(note) FROM parted")" "$(off "SELECT count(*), sum(id), max(note) FROM parted")"
check_equal "removing a partition's policy reports that its parent's applies" "$(q "SELECT cellar.set_compression('parted_2', NULL)" 2>&1 | grep -c 'policy of "parted" applies')" 1

# ---------------------------------------------------------------- cellar.auto_compression
cluster_set "$data" "cellar.auto_compression = off"
q "SELECT pg_reload_conf()" >/dev/null
fill paused
policy "'paused', 'query low', after => '0'"
sleep "$WHILE"
check_equal "no table is compressed while auto_compression is off" "$(q "$(levels paused)")" none
cluster_set "$data" "cellar.auto_compression = on"
q "SELECT pg_reload_conf()" >/dev/null
becomes "the table is compressed after auto_compression is on again" "$(levels paused)" "query low"

# ---------------------------------------------------------------- dump and restore, a second database
sql whole postgres -c "CREATE DATABASE other"
"$PG_BIN/pg_dump" -h "$WORK/run" -p "$(cluster_port whole)" -U postgres postgres >"$WORK/dump.sql"
check "pg_dump's output can be restored" sql whole other -f "$WORK/dump.sql"
policies="SELECT string_agg(p::text, ', ' ORDER BY relation::text) FROM cellar.compression_policy p"
check_equal "the restored database has the same policies" "$(DB=other q "$policies")" "$(q "$policies")"
DB=other becomes "the worker carries out policies of the second database" "$(levels parted_1)" "query low"
check "DROP DATABASE succeeds while policies exist" q "DROP DATABASE other"

# ---------------------------------------------------------------- restart and failures
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
becomes "tables are compressed after a restart" "$(levels after_restart)" "query low"
becomes "a table with blocks that were never initialized is compressed" "$(levels padded)" "query low"
check_equal "policies survive a restart" "$(q "SELECT level FROM cellar.compression_policies WHERE \"table\" = 'waits'::regclass")" "query high"
becomes "cellar.compression_policies shows a failure" "SELECT last_outcome LIKE 'failed with XX001: invalid page%' AND retries > 1 FROM cellar.compression_policies WHERE \"table\" = 'broken'::regclass" t
failures() { grep -c "automatic compression of table public.broken" "$WORK/whole-postgres.log"; }
before=$(failures)
check "the server log contains the failure" test "$before" -gt 1
sleep $((2 * WHILE))
check "a failed compression is retried at growing intervals" test "$(($(failures) - before))" -le 2
q "ALTER TABLE paused SET TABLESPACE plain"
becomes "the outcome says that a table has left its cell" "$(outcome paused)" "not stored on a cell"
check "the extension can be dropped" q "DROP EXTENSION cellar"
check "Postgres stops again" cluster_stop whole
check "the cell stops and unmounts again" cell_stop cell1
checks_end
