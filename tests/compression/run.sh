#!/usr/bin/env bash
# Hybrid columnar compression: every level, DML, statistics, partitions, dump and base backup, concurrent load,
# cancellation, wrong arguments, deadlocks, damaged units.
#
#   run.sh [--seconds N]      seconds of concurrent load (default 15)
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

seconds=15
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) seconds=$2; shift ;;
    *) die "unknown option $1" ;;
    esac
    shift
done
extension_installed || die "the extension is not installed: run scripts/build.sh extension"
work_begin compression
data=$WORK/cell1/pgdata

q() { PGOPTIONS='-c cellar.min_scan_size=0 -c cellar.cost_factor=0' sql whole postgres -c "$1"; }
off() { PGOPTIONS='-c cellar.cell_offload_processing=off' sql whole postgres -c "$1"; }
warning_of() { sql whole postgres -v VERBOSITY=verbose -c "$1" 2>&1 >/dev/null | sed -n 's/^WARNING:  \([0-9A-Z]*\).*/\1/p' || true; }
error_of() { sqlstate_of whole postgres "$1"; }
# same DESCRIPTION TABLE: a Smart Scan, a table scan and an index scan return the same rows as from the uncompressed table
# twin.
same() {
    local all="SELECT count(*), sum(id), md5(string_agg(t::text, '|' ORDER BY id)) FROM"
    local some="SELECT count(*), sum(amount), max(note), min(day) FROM @ t WHERE amount > 500 AND day < '2021-01-01'"
    local expected
    expected=$(off "$all twin t")
    check_equal "$1: a table scan returns all rows" "$(off "$all $2 t")" "$expected"
    check_equal "$1: a Smart Scan returns all rows" "$(q "$all $2 t")" "$expected"
    check_equal "$1: a filtered Smart Scan returns the right rows" "$(q "${some/@/$2}")" "$(off "${some/@/twin}")"
    check_equal "$1: an index scan returns the right rows" "$(q "SET enable_seqscan = off; SELECT md5(string_agg(t::text, '|' ORDER BY id)) FROM $2 t WHERE id BETWEEN 900 AND 1900")" \
        "$(off "SELECT md5(string_agg(t::text, '|' ORDER BY id)) FROM twin t WHERE id BETWEEN 900 AND 1900")"
}
# both STATEMENTS: executes them twice, with @ replaced by many and by twin.
both() { q "${1//@/many}" >/dev/null && q "${1//@/twin}" >/dev/null; }
# sound DESCRIPTION QUERY EXPECTED: a check with amcheck.
sound() {
    if [ "$amcheck" = 0 ]; then skip "$1: amcheck is not installed"; else check_equal "$1" "$(q "$2" 2>&1)" "$3"; fi
}
report() { q "SELECT string_agg(level || ' ' || (units > 0) || ' ' || superseded_blocks, ', ') FROM cellar.compression('$1')"; }

cell_configure cell1 128MiB
cell_start cell1
cluster_create whole "$data" --data-checksums
cluster_set "$data" "shared_preload_libraries = 'cellar'" "shared_buffers = 32MB" "autovacuum = off" "max_wal_size = 1GB" \
    "max_worker_processes = 26"
cluster_start whole "$data"
q "CREATE EXTENSION cellar"
# Contrib modules may not be installed.
amcheck=$(q "SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'")
[ "$amcheck" = 0 ] || q "CREATE EXTENSION amcheck"
rows="SELECT g AS id, (g::bigint * 7919 % 100000)::numeric / 100 AS amount, date '2020-01-01' + g % 700 AS day,
        CASE g % 5 WHEN 0 THEN NULL ELSE 'note ' || md5(g::text) || repeat('x', g % 40) END AS note, g % 3 = 0 AS flag,
        (g % 1000)::real AS ratio, md5(g::text)::uuid AS key FROM generate_series"
for table in many twin; do
    q "CREATE TABLE $table AS $rows(1, 120000) g"
    q "ALTER TABLE $table ADD PRIMARY KEY (id); ALTER TABLE $table DROP COLUMN flag; ALTER TABLE $table ADD COLUMN late int DEFAULT 7"
done

# ---------------------------------------------------------------- levels and DML
heap=$(q "SELECT pg_relation_size('many')")
for level in "query low" "query high" "archive low" "archive high"; do
    q "SELECT * FROM cellar.compress('many', '$level')" >/dev/null
    check_equal "$level: the whole table is compressed" "$(report many)" "$level true 0"
    check "$level: the table takes less than half of its size" test "$(q "SELECT sum(stored_bytes) FROM cellar.compression('many')")" -lt $((heap / 2))
    same "$level" many
    both "UPDATE @ SET amount = amount + 1000 WHERE id % 5000 = 3; DELETE FROM @ WHERE id % 7000 = 5"
    both "INSERT INTO @ (id, amount, day, note) SELECT -g, g, '2020-02-02', 'new' FROM generate_series(1, 500) g; DELETE FROM @ WHERE id < 0 AND id % 2 = 0"
    both "BEGIN; SAVEPOINT a; UPDATE @ SET note = 'lost' WHERE id % 4000 = 1; ROLLBACK TO a; SELECT * FROM @ WHERE id < 50 FOR UPDATE; COMMIT"
    q "CHECKPOINT"
    same "$level, after DML" many
    check "$level: changed blocks count as superseded" test "$(q "SELECT sum(superseded_blocks) FROM cellar.compression('many')")" -gt 0
    both "DELETE FROM @ WHERE id < 0"
    both "VACUUM @"
done
sound "amcheck finds no error in the heap" "SELECT count(*) FROM verify_heapam('many')" 0
check_equal "the advisor estimates every level" "$(q "SELECT string_agg(level, ', ') FROM cellar.compression_advisor('many') WHERE ratio > 1")" \
    "query low, query high, archive low, archive high"
q "SELECT * FROM cellar.decompress('many')" >/dev/null
check_equal "decompress makes the whole table raw" "$(report many)" "none true 0"
same "after decompression" many

# ---------------------------------------------------------------- statistics
# counted STATISTIC QUERY: the value that the query adds to the statistic.
counted() {
    PGOPTIONS='-c cellar.min_scan_size=0 -c cellar.cost_factor=0 -c max_parallel_workers_per_gather=0' \
        sql whole postgres -c "$2" -c "SELECT value FROM cellar.mystat WHERE name = '$1'" | tail -n 1
}
eligible='cell physical IO bytes eligible for predicate offload'
saved='cell physical IO bytes saved by storage index'
uncompressed='cell IO uncompressed bytes'
# INSERT, not CREATE TABLE AS: since PostgreSQL 16 a bulk load leaves zeroed pages at the end, which belong to no chunk.
q "CREATE TABLE counted (id int); INSERT INTO counted SELECT generate_series(1, 500000)"
heap=$(q "SELECT pg_relation_size('counted')")
check_equal "statistics: eligible bytes of a raw table are its size" "$(counted "$eligible" "SELECT sum(id) FROM counted")" "$heap"
check_equal "statistics: uncompressed bytes of a raw table are its size" "$(counted "$uncompressed" "SELECT sum(id) FROM counted")" "$heap"
q "SELECT * FROM cellar.compress('counted', 'query low')" >/dev/null
stored=$(q "SELECT sum(stored_bytes) FROM cellar.compression('counted')")
check "statistics: the compressed table takes less than a quarter" test "$stored" -lt $((heap / 4))
check_equal "statistics: eligible bytes of a compressed table are its stored bytes" "$(counted "$eligible" "SELECT sum(id) FROM counted")" "$stored"
check_equal "statistics: uncompressed bytes of a compressed table are its size" "$(counted "$uncompressed" "SELECT sum(id) FROM counted")" "$heap"
check_equal "statistics: a scan without a predicate saves nothing" "$(counted "$saved" "SELECT sum(id) FROM counted")" 0
check_equal "statistics: a predicate that excludes all chunks saves all bytes" "$(counted "$saved" "SELECT sum(id) FROM counted WHERE id < 0")" "$stored"
check_equal "statistics: a predicate that excludes all chunks decompresses nothing" "$(counted "$uncompressed" "SELECT sum(id) FROM counted WHERE id < 0")" 0
# A chunk consists of pages with together at most 65,536 line pointers.
chunk_pages=$((65536 / $(off "SELECT count(*) FROM counted WHERE ctid < '(1,0)'")))
check_equal "statistics: a predicate that matches one chunk decompresses that chunk" "$(counted "$uncompressed" "SELECT sum(id) FROM counted WHERE id = 1")" $((chunk_pages * 8192))
rest=$(counted "$saved" "SELECT sum(id) FROM counted WHERE id = 1")
check "statistics: a predicate that matches one chunk saves the other chunks" test "$rest" -gt $((stored / 2)) -a "$rest" -lt "$stored"
check_matches "statistics: EXPLAIN (ANALYZE) shows the same figures" "$(q "SET max_parallel_workers_per_gather = 0; EXPLAIN (ANALYZE) SELECT sum(id) FROM counted WHERE id = 1" | grep 'Cell IO')" \
    "eligible=$(((stored + 1023) / 1024))kB saved by storage index=[0-9]+kB uncompressed=$((chunk_pages * 8))kB returned="
q "UPDATE counted SET id = id WHERE id = 1; CHECKPOINT"
more=$(counted "$eligible" "SELECT sum(id) FROM counted")
check "statistics: a superseded page counts as raw" test "$more" -gt $((stored + 8192)) -a "$more" -le $((stored + 2 * 8192))
q "DROP TABLE counted"

# ---------------------------------------------------------------- DDL and partitions
q "SELECT * FROM cellar.compress('many')" >/dev/null
both "CREATE INDEX ON @ (day); ALTER TABLE @ ALTER COLUMN late TYPE bigint"
same "after a table rewrite" many
check_equal "a rewritten table is raw" "$(report many)" "none true 0"
q "SELECT * FROM cellar.compress('many', 'query high')" >/dev/null
q "CREATE TABLE parted (id int, note text) PARTITION BY RANGE (id); CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (50000);
   CREATE TABLE parted_2 PARTITION OF parted DEFAULT; INSERT INTO parted SELECT g, 'note ' || g % 100 FROM generate_series(1, 100000) g"
expected=$(off "SELECT count(*), sum(id), min(note) FROM parted")
check_equal "partitions: each partition is compressed" "$(q "SELECT string_agg(\"table\" || ' ' || level, ', ' ORDER BY 1) FROM cellar.compress('parted')" | tail -n 1)" \
    "parted_1 query low, parted_2 query low"
check_equal "partitions: a scan returns the right rows" "$(q "SELECT count(*), sum(id), min(note) FROM parted")" "$expected"
q "TRUNCATE parted_2; INSERT INTO parted SELECT g, 'new' FROM generate_series(60000, 70000) g; CHECKPOINT"
check_equal "partitions: a truncated and refilled partition has the right rows" "$(q "SELECT count(*), sum(id), max(note) FROM parted")" "$(off "SELECT count(*), sum(id), max(note) FROM parted")"

# Numerics with too many decimals for integers: the same values in compressed pages and in later ones, scanned by one and by two threads.
ninths="SELECT v, count(*) FROM ninths GROUP BY v HAVING count(*) > 1500 ORDER BY v"
distinct="SELECT count(DISTINCT v), count(DISTINCT w) FROM ninths"
fill="INSERT INTO ninths SELECT i % 50 / 9.0, 123456.5 + i % 500 FROM generate_series(1, 50000) i"
q "CREATE TABLE ninths (v numeric(38,30), w numeric(38,18)); $fill"
q "VACUUM ANALYZE ninths"
q "SELECT * FROM cellar.compress('ninths')" >/dev/null
q "$fill"
q "VACUUM ANALYZE ninths"
for threads in 0 1; do
    set_threads="SET max_parallel_workers_per_gather = $threads; SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0"
    check_equal "numerics with many decimals are grouped, $threads workers" "$(q "$set_threads; $ninths")" "$(off "$ninths")"
    check_equal "numerics with many decimals are counted, $threads workers" "$(q "$set_threads; $distinct")" "$(off "$distinct")"
done
check_equal "each numeric with many decimals is one group" "$(q "$ninths" | wc -l)" 50
q "DROP TABLE ninths"

# ---------------------------------------------------------------- dump and base backup
dump() {
    "$PG_BIN/pg_dump" -h "$WORK/run" -p "$(cluster_port whole)" -U postgres -t "$1" -a postgres | sed -n '/^COPY/,/^\\\./p' | sed 's/^COPY [^ ]*//' | sort | md5sum
}
check_equal "pg_dump of a compressed table equals that of its uncompressed twin" "$(dump many)" "$(dump twin)"
check "pg_basebackup succeeds" as_pg "$PG_BIN/pg_basebackup" -D "$WORK/cell1/copy" -h "$WORK/run" -p "$(cluster_port whole)" -U postgres --checkpoint=fast
if "$PG_BIN/pg_verifybackup" --version >/dev/null 2>&1; then
    check "pg_verifybackup finds no error" as_pg "$PG_BIN/pg_verifybackup" -n "$WORK/cell1/copy"
else
    skip "pg_verifybackup of this server does not run"
fi
rm -rf "$WORK/cell1/copy"

# ---------------------------------------------------------------- concurrent load
"$PG_BIN/pgbench" -i -q -s 5 -h "$WORK/run" -p "$(cluster_port whole)" -U postgres postgres >"$WORK/pgbench.log" 2>&1
"$PG_BIN/pgbench" -n -c 3 -T "$seconds" -h "$WORK/run" -p "$(cluster_port whole)" -U postgres postgres >"$WORK/load.log" 2>&1 &
load=$!
remember_process $load
cycles=0
while kill -0 "$load" 2>/dev/null; do
    for level in "query low" "archive low" "none" "query high"; do
        q "SELECT * FROM cellar.compress('pgbench_accounts', '$level')" >/dev/null || { not_ok "load: the table is compressed at $level"; break 2; }
        sums=$(q "SELECT count(*) FROM (SELECT sum(abalance) FROM pgbench_accounts UNION SELECT sum(bbalance) FROM pgbench_branches) s")
        [ "$sums" = 1 ] || { not_ok "load: the balances agree at $level"; break 2; }
        cycles=$((cycles + 1))
    done
done
if wait "$load"; then
    ok "load: pgbench gets no error during $cycles compressions"
else
    not_ok "load: pgbench gets no error: $(tail -n 3 "$WORK/load.log")"
fi
sound "load: amcheck finds no error in the heap" "SELECT count(*) FROM verify_heapam('pgbench_accounts')" 0
sound "load: amcheck finds no error in the index" "SELECT bt_index_check('pgbench_accounts_pkey', true)" ""

# ---------------------------------------------------------------- cancellation
q "CREATE TABLE long AS $rows(1, 600000) g"
(PGOPTIONS='-c statement_timeout=4s' sql whole postgres -v VERBOSITY=verbose -c "SELECT * FROM cellar.compress('long', 'archive high')" >"$WORK/cancel.log" 2>&1 || true)
check_matches "cancel: a timeout cancels the command" "$(cat "$WORK/cancel.log")" "57014"
for ((tries = 0; tries < 100; tries++)); do [ "$(q "SELECT count(*) FROM cellar.compression_progress")" != 0 ] || break; sleep 0.1; done
check_equal "cancel: the compression worker exits" "$(q "SELECT count(*) FROM cellar.compression_progress")" 0
# The worker also exits when the session is terminated.
q "SELECT cellar.decompress('long')" >/dev/null
(sql whole postgres -c "SELECT * FROM cellar.compress('long', 'archive high')" >"$WORK/end.log" 2>&1 || true) &
for ((tries = 0; tries < 300; tries++)); do [ "$(q "SELECT phase FROM cellar.compression_progress")" != compressing ] || break; sleep 0.1; done
check_equal "terminate: the session is terminated" \
    "$(q "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT * FROM cellar.compress(%' AND backend_type = 'client backend'")" t
for ((tries = 0; tries < 100; tries++)); do [ "$(q "SELECT count(*) FROM cellar.compression_progress")" != 0 ] || break; sleep 0.1; done
check_equal "terminate: the compression worker exits" "$(q "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'cellar compression worker'")" 0
check_equal "cancel: no rows are lost" "$(q "SELECT count(*), sum(id) FROM long")" "600000|180000300000"

# ---------------------------------------------------------------- snapshots
# During a long compression, neither the session nor the worker has a snapshot: VACUUM of other tables removes rows that were
# deleted meanwhile.
q "SELECT cellar.decompress('long'); CREATE TABLE purged AS SELECT g AS id FROM generate_series(1, 10000) g" >/dev/null
(PGOPTIONS='' sql whole postgres -v VERBOSITY=sqlstate -c "CALL cellar.compress_table('long', 'archive high')" >"$WORK/call.log" 2>&1 || true) &
caller=$!
remember_process $caller
for ((tries = 0; tries < 300; tries++)); do [ "$(q "SELECT phase FROM cellar.compression_progress")" != compressing ] || break; sleep 0.1; done
with_xmin=''
for ((tries = 0; tries < 8; tries++)); do
    with_xmin+=$(q "SELECT backend_type FROM pg_stat_activity WHERE backend_xmin IS NOT NULL
        AND (backend_type = 'cellar compression worker' OR query LIKE 'CALL cellar.compress%')")$'\n'
    sleep 0.1
done
check_equal "snapshots: the compression is running" "$(q "SELECT phase FROM cellar.compression_progress")" compressing
check "snapshots: the compression worker has no backend_xmin" test "$(grep -c worker <<<"$with_xmin")" -le 1
check "snapshots: the session has no backend_xmin" test "$(grep -c client <<<"$with_xmin")" -le 1
q "DELETE FROM purged"
sql whole postgres -c "VACUUM purged"
check_equal "snapshots: VACUUM of another table removes deleted rows" "$(q "SELECT pg_relation_size('purged')")" 0
check_equal "snapshots: the compression is still running" "$(q "SELECT phase FROM cellar.compression_progress")" compressing
q "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CALL cellar.compress%' AND backend_type = 'client backend'" >/dev/null
wait $caller || true
check_matches "snapshots: CALL can be canceled" "$(cat "$WORK/call.log")" "57014"
for ((tries = 0; tries < 100; tries++)); do [ "$(q "SELECT count(*) FROM cellar.compression_progress")" != 0 ] || break; sleep 0.1; done
check_equal "snapshots: no slot is in use" "$(q "SELECT count(*) FROM cellar.compression_progress")" 0
check "CALL compresses a table" q "CALL cellar.compress_table('purged', 'query high')"
q "CREATE TABLE called AS $rows(1, 1000) g"
q "CALL cellar.compress_table('called')"
check_equal "CALL: the table is compressed at the default level" "$(report called)" "query low true 0"
q "DO \$\$ BEGIN CALL cellar.decompress_table('called'); END \$\$"
check_equal "CALL in a DO block decompresses the table" "$(report called)" "none true 0"
check_equal "CALL in a transaction block fails" "$(error_of "BEGIN; CALL cellar.compress_table('called')")" 25001
check_equal "CALL with NULL fails" "$(error_of "CALL cellar.compress_table(NULL)")" 22004

# ---------------------------------------------------------------- task slots
# A stopped postmaster starts no worker. Commands that are canceled before their worker has started free their task slots, and
# so does a terminated session. The commands request more workers than max_worker_processes.
q "CREATE TABLE waiting AS $rows(1, 1000) g"
abandon() {
    local postmaster attempt
    postmaster=$(cat "$WORK/whole.postmaster")
    {
        echo "SELECT pg_backend_pid() AS pid \\gset"
        echo "\\setenv BACKEND :pid"
        echo "\\! kill -STOP $postmaster"
        echo "SET statement_timeout = '100ms';"
        for ((attempt = 0; attempt < $1; attempt++)); do echo "SELECT cellar.compress('waiting');"; done
        echo "RESET statement_timeout;"
        echo "\\! (sleep 0.5; kill -TERM \$BACKEND) &"
        echo "SELECT cellar.compress('waiting');"
    } | sql whole postgres -v ON_ERROR_STOP=0 -v VERBOSITY=sqlstate 2>&1 || true
    kill -CONT "$postmaster"
}
check_equal "task slots: 20 commands whose worker does not start are canceled, and one is terminated" \
    "$(abandon 20 | grep -oE '[0-9A-Z]{5}$' | sort | uniq -c | tr -s ' \n' ' ')" " 20 57014 1 57P01 "
check_equal "task slots: a command succeeds afterwards" "$(q "SELECT level FROM cellar.compress('waiting')" 2>&1)" "query low"
check_matches "task slots: without a free worker a command fails" "$(abandon 30 | grep -c 53000)" '^[1-9]'
check_equal "task slots: a command succeeds after that" "$(q "SELECT level FROM cellar.compress('waiting')" 2>&1)" "query low"
check_equal "task slots: no slot is in use" "$(q "SELECT count(*) FROM cellar.compression_progress")" 0

# ---------------------------------------------------------------- a standby
[ "$(id -u)" != 0 ] || install -d -m 700 -o "$OS_USER" "$WORK/cell1/standby"
as_pg "$PG_BIN/pg_basebackup" -D "$WORK/cell1/standby" -R -X stream -c fast -h "$WORK/run" -p "$(cluster_port whole)" -U postgres
cluster_set "$WORK/cell1/standby" "port = $(cluster_port standby)"
cluster_start standby "$WORK/cell1/standby"
for command in "SELECT cellar.compress('many')" "SELECT cellar.decompress('many')" "SELECT cellar.set_compression('many', 'query low')" \
    "CALL cellar.compress_table('many')" "CALL cellar.decompress_table('many')"; do
    message=$(PGOPTIONS='-c statement_timeout=10s' sql standby postgres -v VERBOSITY=verbose -c "$command" 2>&1 || true)
    name=${command#* }
    check_matches "standby: ${name%%(*} fails" "$message" "25006: cannot execute ${name%%(*} during recovery"
    check_matches "standby: the hint of ${name%%(*} names the primary" "$message" "HINT:  .*primary"
done
check_equal "standby: compressed tables can be read" "$(sql standby postgres -c "SELECT count(*), sum(id) FROM long")" "600000|180000300000"
check "standby: it stops" cluster_stop standby
rm -rf "$WORK/cell1/standby"

# ---------------------------------------------------------------- wrong arguments
q "CREATE ROLE stranger; GRANT SELECT ON many TO stranger; CREATE VIEW seen AS SELECT 1"
check_equal "compress rejects an unknown level" "$(error_of "SELECT cellar.compress('many', 'quick')")" 22023
check_equal "compress rejects a table of another owner" "$(error_of "SET ROLE stranger; SELECT cellar.compress('many')")" 42501
check_equal "compress rejects a view" "$(error_of "SELECT cellar.compress('seen')")" 42809
check_equal "compress rejects a system catalog" "$(error_of "SELECT cellar.compress('pg_class')")" 42809
check_equal "compress rejects a temporary table" "$(error_of "CREATE TEMP TABLE passing (id int); SELECT cellar.compress('passing')")" 42809
mkdir -p "$WORK/plain"
[ "$(id -u)" != 0 ] || chown "$OS_USER" "$WORK/plain"
sql whole postgres -c "CREATE TABLESPACE plain LOCATION '$WORK/plain'"
q "CREATE TABLE elsewhere (id int) TABLESPACE plain"
check_equal "compress rejects a table that is not on a cell" "$(error_of "SELECT cellar.compress('elsewhere')")" 55000

# ---------------------------------------------------------------- deadlocks
# A command whose worker would wait for the command's own transaction fails.
check_equal "compress fails if its own transaction locks the table" "$(error_of "BEGIN; LOCK TABLE many; SELECT cellar.compress('many')")" 40P01
check_equal "compress fails if a cursor of its session reads the table" \
    "$(error_of "BEGIN; DECLARE c CURSOR FOR SELECT * FROM many; FETCH c; SELECT cellar.compress('many')")" 55006
q "CREATE TABLE across AS SELECT g AS id FROM generate_series(1, 1000) g"
crossed() { error_of "BEGIN; LOCK TABLE $1; SELECT pg_sleep(1); SELECT cellar.compress('$2')" >"$WORK/crossed-$1"; }
crossed many across &
crossing=$!
remember_process $crossing
crossed across many
wait $crossing || true
check "of two sessions that compress tables locked by each other, one fails" grep -q 40P01 "$WORK/crossed-many" "$WORK/crossed-across"
waits_on() {
    local tries
    for ((tries = 0; tries < 100; tries++)); do [ "$(q "SELECT count(*) FROM pg_stat_activity WHERE wait_event = '$1'")" = 0 ] || return 0; sleep 0.1; done
    return 1
}
sql whole postgres -c "BEGIN; UPDATE many SET note = note WHERE id = 1; SELECT pg_sleep(4); COMMIT" >/dev/null &
writer=$!
remember_process $writer
check "CREATE INDEX CONCURRENTLY: a transaction writes to the table" waits_on PgSleep
sql whole postgres -c "CREATE INDEX CONCURRENTLY beside ON many (amount)" >"$WORK/beside.log" 2>&1 &
builder=$!
remember_process $builder
check "CREATE INDEX CONCURRENTLY: the index build waits for the transaction" waits_on virtualxid
check_equal "CREATE INDEX CONCURRENTLY: compress fails with a deadlock error" "$(error_of "SELECT cellar.compress('many')")" 40P01
if wait $builder && wait $writer; then ok "CREATE INDEX CONCURRENTLY: the index build succeeds"; else not_ok "CREATE INDEX CONCURRENTLY: the index build succeeds: $(cat "$WORK/beside.log")"; fi

# ---------------------------------------------------------------- restart and damaged units
check_equal "the table is compressed again" "$(q "SELECT level FROM cellar.compress('many')")" "query low"
q "CREATE TABLE other AS $rows(1, 100000) g"
q "CREATE TABLE moved AS SELECT * FROM other"
for table in other moved; do q "SELECT * FROM cellar.compress('$table')" >/dev/null; done
unit_files() { printf '%016x.units' "$(as_pg stat -c %i "$data/$(q "SELECT pg_relation_filepath('$1')")")"; }
other=$(unit_files other)
moved=$(unit_files moved)
check "Postgres stops" cluster_stop whole
check "the cell stops and unmounts" cell_stop cell1
unit=("$WORK"/cell1-disk*/data/*/"$other")
check "the compression units are in a unit file on a cell disk" test -s "${unit[0]}"
for file in "${unit[@]}"; do
    # Overwrites a part of each unit file with zeros.
    dd if=/dev/zero of="$file" bs=4096 seek=20 count=4 conv=notrunc status=none
done
# Copies the unit slot of allocation unit 1 to that of allocation unit 0, as a misdirected write does.
slot_of() { for file in "$WORK"/cell1-disk*/data/*/"$moved"; do if cmp -s -n 8 -i "$1":0 "$file" <(printf CELLSLOT); then echo "$file"; fi; done; }
check "a unit is copied to the slot of another allocation unit" \
    dd if="$(slot_of 8388608)" of="$(slot_of 0)" bs=4M skip=2 count=1 conv=notrunc status=none
cell_start cell1
cluster_start whole "$data"
same "after a restart" many
check_equal "a Smart Scan of a misplaced unit fails" "$(error_of "SELECT count(*), max(note), sum(amount) FROM moved")" 58030
check_equal "a warning says that the data of a misplaced unit are damaged" "$(warning_of "SELECT count(*), max(note), sum(amount) FROM moved")" XX001
check_equal "a read of one block of a misplaced unit fails" "$(off "SELECT 1 FROM moved WHERE ctid = '(1,1)'" 2>&1 | grep -c 'Input/output error')" 1
check_matches "the error names the unit in the slot" "$(sql whole postgres -c "SELECT count(*), max(note), sum(amount) FROM moved" 2>&1 || true)" 'slot 0 contains the unit of another allocation unit: found inode [0-9]+, allocation unit 1,'
check_equal "a Smart Scan of a damaged unit fails" "$(error_of "SELECT count(*), max(note), sum(amount) FROM other")" 58030
check_equal "a warning says that the data are damaged" "$(warning_of "SELECT count(*), max(note), sum(amount) FROM other")" XX001
check_equal "a table scan of a damaged unit fails" "$(PGOPTIONS='-c cellar.cell_offload_processing=off' error_of "SELECT count(*), max(note), sum(amount) FROM other")" 58030
message=$(sql whole postgres -c "SELECT count(*), max(note), sum(amount) FROM other" 2>&1 || true)
check_matches "the error names the table" "$message" 'table "other"'
check_matches "the error names the blocks" "$message" 'blocks [0-9]+ to [0-9]+'
check_matches "the hint mentions a backup" "$message" "HINT: .*backup"
check_equal "decompressing a damaged unit fails" "$(error_of "SELECT cellar.decompress('other')")" XX001
check_matches "decompress stores all undamaged units raw" "$(q "SELECT sum(units) FILTER (WHERE level = 'none'), sum(units) FILTER (WHERE level <> 'none') FROM cellar.compression('other')")" '^[1-9][0-9]*\|[12]$'
check_matches "the cell's log names the damaged blocks" "$(cat "$WORK/cell1.log")" "blocks"
check "Postgres stops again" cluster_stop whole
check "the cell stops and unmounts again" cell_stop cell1
checks_end
