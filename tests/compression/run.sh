#!/usr/bin/env bash
# Hybrid columnar compression under real use: every level, DML, partitions, copies of the cluster, load, cancellation,
# mistakes, damage.
#
#   run.sh [--seconds N]      N seconds of load (15)
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
extension_installed || die "the extension is not installed: make build"
work_begin compression
data=$WORK/cell1/pgdata

check_equal() {
    if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1: it is \"$2\", not \"$3\""; fi
}
check_matches() {
    if [[ $2 =~ $3 ]]; then ok "$1"; else not_ok "$1: \"$2\" does not match \"$3\""; fi
}
q() { PGOPTIONS='-c cellar.min_scan_size=0 -c cellar.cost_factor=0' sql whole postgres -c "$1"; }
off() { PGOPTIONS='-c cellar.cell_offload_processing=off' sql whole postgres -c "$1"; }
error_of() { sql whole postgres -v VERBOSITY=verbose -c "$1" 2>&1 >/dev/null | sed -n 's/^ERROR:  \([0-9A-Z]*\).*/\1/p' || true; }
# same WHAT TABLE: the table has the rows of its uncompressed twin, with Smart Scan, without, and by its index.
same() {
    local all="SELECT count(*), sum(id), md5(string_agg(t::text, '|' ORDER BY id)) FROM"
    local some="SELECT count(*), sum(amount), max(note), min(day) FROM @ t WHERE amount > 500 AND day < '2021-01-01'"
    local wanted
    wanted=$(off "$all twin t")
    check_equal "$1: all rows" "$(off "$all $2 t")" "$wanted"
    check_equal "$1: all rows by a Smart Scan" "$(q "$all $2 t")" "$wanted"
    check_equal "$1: some rows by a Smart Scan" "$(q "${some/@/$2}")" "$(off "${some/@/twin}")"
    check_equal "$1: rows by the index" "$(q "SET enable_seqscan = off; SELECT md5(string_agg(t::text, '|' ORDER BY id)) FROM $2 t WHERE id BETWEEN 900 AND 1900")" \
        "$(off "SELECT md5(string_agg(t::text, '|' ORDER BY id)) FROM twin t WHERE id BETWEEN 900 AND 1900")"
}
# both STATEMENTS: on the table and on its twin, where they say @.
both() { q "${1//@/many}" >/dev/null && q "${1//@/twin}" >/dev/null; }
# sound WHAT QUERY WANTED: one of amcheck's checks.
sound() {
    if [ "$amcheck" = 0 ]; then skip "$1: amcheck is not installed"; else check_equal "$1" "$(q "$2" 2>&1)" "$3"; fi
}
report() { q "SELECT string_agg(level || ' ' || (units > 0) || ' ' || superseded_blocks, ', ') FROM cellar.compression('$1')"; }

cell_configure cell1 128MiB
cell_start cell1
cluster_create whole "$data" --data-checksums
cluster_set "$data" "shared_preload_libraries = 'cellar'" "shared_buffers = 32MB" "autovacuum = off" "max_wal_size = 1GB"
cluster_start whole "$data"
q "CREATE EXTENSION cellar"
# Not every installation has Postgres's contrib modules.
amcheck=$(q "SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'")
[ "$amcheck" = 0 ] || q "CREATE EXTENSION amcheck"
rows="SELECT g AS id, (g::bigint * 7919 % 100000)::numeric / 100 AS amount, date '2020-01-01' + g % 700 AS day,
        CASE g % 5 WHEN 0 THEN NULL ELSE 'note ' || md5(g::text) || repeat('x', g % 40) END AS note, g % 3 = 0 AS flag,
        (g % 1000)::real AS ratio, md5(g::text)::uuid AS key FROM generate_series"
for table in many twin; do
    q "CREATE TABLE $table AS $rows(1, 200000) g"
    q "ALTER TABLE $table ADD PRIMARY KEY (id); ALTER TABLE $table DROP COLUMN flag; ALTER TABLE $table ADD COLUMN late int DEFAULT 7"
done

# ---------------------------------------------------------------- levels and DML
heap=$(q "SELECT pg_relation_size('many')")
for level in "query low" "query high" "archive low" "archive high"; do
    q "SELECT * FROM cellar.compress('many', '$level')" >/dev/null
    check_equal "$level: all of the table" "$(report many)" "$level true 0"
    check "$level: is smaller than half" test "$(q "SELECT sum(stored_bytes) FROM cellar.compression('many')")" -lt $((heap / 2))
    same "$level" many
    both "UPDATE @ SET amount = amount + 1000 WHERE id % 5000 = 3; DELETE FROM @ WHERE id % 7000 = 5"
    both "INSERT INTO @ (id, amount, day, note) SELECT -g, g, '2020-02-02', 'new' FROM generate_series(1, 500) g; DELETE FROM @ WHERE id < 0 AND id % 2 = 0"
    both "BEGIN; SAVEPOINT a; UPDATE @ SET note = 'lost' WHERE id % 4000 = 1; ROLLBACK TO a; SELECT * FROM @ WHERE id < 50 FOR UPDATE; COMMIT"
    q "CHECKPOINT"
    same "$level, after DML" many
    check "$level: the changed blocks are counted as dead" test "$(q "SELECT sum(superseded_blocks) FROM cellar.compression('many')")" -gt 0
    both "DELETE FROM @ WHERE id < 0"
    both "VACUUM @"
done
sound "the heap is sound" "SELECT count(*) FROM verify_heapam('many')" 0
check_equal "the advisor tells every level" "$(q "SELECT string_agg(level, ', ') FROM cellar.compression_advisor('many') WHERE ratio > 1")" \
    "query low, query high, archive low, archive high"
q "SELECT * FROM cellar.decompress('many')" >/dev/null
check_equal "decompressed" "$(report many)" "none true 0"
same "decompressed" many

# ---------------------------------------------------------------- statistics
# counted STATISTIC QUERY: what a query counts.
counted() {
    PGOPTIONS='-c cellar.min_scan_size=0 -c cellar.cost_factor=0 -c max_parallel_workers_per_gather=0' \
        sql whole postgres -c "$2" -c "SELECT value FROM cellar.mystat WHERE name = '$1'" | tail -n 1
}
eligible='cell physical IO bytes eligible for predicate offload'
saved='cell physical IO bytes saved by storage index'
uncompressed='cell IO uncompressed bytes'
# A bulk load, such as CREATE TABLE AS, leaves pages of zeroes at the end since PostgreSQL 16; they have no chunk to exclude.
q "CREATE TABLE counted (id int); INSERT INTO counted SELECT generate_series(1, 500000)"
heap=$(q "SELECT pg_relation_size('counted')")
check_equal "statistics: raw, what is eligible" "$(counted "$eligible" "SELECT sum(id) FROM counted")" "$heap"
check_equal "statistics: raw, what is uncompressed" "$(counted "$uncompressed" "SELECT sum(id) FROM counted")" "$heap"
q "SELECT * FROM cellar.compress('counted', 'query low')" >/dev/null
stored=$(q "SELECT sum(stored_bytes) FROM cellar.compression('counted')")
check "statistics: compressed" test "$stored" -lt $((heap / 4))
check_equal "statistics: what is eligible is what is stored" "$(counted "$eligible" "SELECT sum(id) FROM counted")" "$stored"
check_equal "statistics: uncompressed it is the heap" "$(counted "$uncompressed" "SELECT sum(id) FROM counted")" "$heap"
check_equal "statistics: nothing is saved" "$(counted "$saved" "SELECT sum(id) FROM counted")" 0
check_equal "statistics: all is saved when no chunk can hold a row" "$(counted "$saved" "SELECT sum(id) FROM counted WHERE id < 0")" "$stored"
check_equal "statistics: then nothing is uncompressed" "$(counted "$uncompressed" "SELECT sum(id) FROM counted WHERE id < 0")" 0
# A chunk has the pages whose line pointers are at most 65,536.
chunk_pages=$((65536 / $(off "SELECT count(*) FROM counted WHERE ctid < '(1,0)'")))
check_equal "statistics: one chunk of a unit is uncompressed" "$(counted "$uncompressed" "SELECT sum(id) FROM counted WHERE id = 1")" $((chunk_pages * 8192))
rest=$(counted "$saved" "SELECT sum(id) FROM counted WHERE id = 1")
check "statistics: the others are saved" test "$rest" -gt $((stored / 2)) -a "$rest" -lt "$stored"
check_matches "statistics: EXPLAIN shows them" "$(q "SET max_parallel_workers_per_gather = 0; EXPLAIN (ANALYZE) SELECT sum(id) FROM counted WHERE id = 1" | grep 'Cell IO')" \
    "eligible=$(((stored + 1023) / 1024))kB saved by storage index=[0-9]+kB uncompressed=$((chunk_pages * 8))kB returned="
q "UPDATE counted SET id = id WHERE id = 1; CHECKPOINT"
more=$(counted "$eligible" "SELECT sum(id) FROM counted")
check "statistics: a page that was written counts raw" test "$more" -gt $((stored + 8192)) -a "$more" -le $((stored + 2 * 8192))
q "DROP TABLE counted"

# ---------------------------------------------------------------- DDL, partitions, what stays elsewhere
q "SELECT * FROM cellar.compress('many')" >/dev/null
both "CREATE INDEX ON @ (day); ALTER TABLE @ ALTER COLUMN late TYPE bigint"
same "after a rewrite" many
check_equal "a rewritten table is raw" "$(report many)" "none true 0"
q "SELECT * FROM cellar.compress('many', 'query high')" >/dev/null
q "CREATE TABLE parted (id int, note text) PARTITION BY RANGE (id); CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (50000);
   CREATE TABLE parted_2 PARTITION OF parted DEFAULT; INSERT INTO parted SELECT g, 'note ' || g % 100 FROM generate_series(1, 100000) g"
wanted=$(off "SELECT count(*), sum(id), min(note) FROM parted")
check_equal "partitions: each is compressed" "$(q "SELECT string_agg(\"table\" || ' ' || level, ', ' ORDER BY 1) FROM cellar.compress('parted')" | tail -n 1)" \
    "parted_1 query low, parted_2 query low"
check_equal "partitions: the rows" "$(q "SELECT count(*), sum(id), min(note) FROM parted")" "$wanted"
q "TRUNCATE parted_2; INSERT INTO parted SELECT g, 'new' FROM generate_series(60000, 70000) g; CHECKPOINT"
check_equal "partitions: truncated and filled anew" "$(q "SELECT count(*), sum(id), max(note) FROM parted")" "$(off "SELECT count(*), sum(id), max(note) FROM parted")"

# ---------------------------------------------------------------- copies
dump() {
    "$PG_BIN/pg_dump" -h "$WORK/run" -p "$(cluster_port whole)" -U postgres -t "$1" -a postgres | sed -n '/^COPY/,/^\\\./p' | sed 's/^COPY [^ ]*//' | sort | md5sum
}
check_equal "pg_dump writes what it writes of an uncompressed table" "$(dump many)" "$(dump twin)"
check "a base backup is taken" as_pg "$PG_BIN/pg_basebackup" -D "$WORK/cell1/copy" -h "$WORK/run" -p "$(cluster_port whole)" -U postgres --checkpoint=fast
check "every page of it has the right checksum" as_pg "$PG_BIN/pg_verifybackup" -n "$WORK/cell1/copy"
rm -rf "$WORK/cell1/copy"

# ---------------------------------------------------------------- under load
"$PG_BIN/pgbench" -i -q -s 5 -h "$WORK/run" -p "$(cluster_port whole)" -U postgres postgres >"$WORK/pgbench.log" 2>&1
"$PG_BIN/pgbench" -n -c 3 -T "$seconds" -h "$WORK/run" -p "$(cluster_port whole)" -U postgres postgres >"$WORK/load.log" 2>&1 &
load=$!
remember_process $load
cycles=0
while kill -0 "$load" 2>/dev/null; do
    for level in "query low" "archive low" "none" "query high"; do
        q "SELECT * FROM cellar.compress('pgbench_accounts', '$level')" >/dev/null || { not_ok "load: compressing at $level"; break 2; }
        sums=$(q "SELECT count(*) FROM (SELECT sum(abalance) FROM pgbench_accounts UNION SELECT sum(bbalance) FROM pgbench_branches) s")
        [ "$sums" = 1 ] || { not_ok "load: the balances agree while $level"; break 2; }
        cycles=$((cycles + 1))
    done
done
if wait "$load"; then
    ok "load: pgbench met no error beside $cycles compressions"
else
    not_ok "load: $(tail -n 3 "$WORK/load.log")"
fi
sound "load: the heap is sound" "SELECT count(*) FROM verify_heapam('pgbench_accounts')" 0
sound "load: so is the index" "SELECT bt_index_check('pgbench_accounts_pkey', true)" ""

# ---------------------------------------------------------------- cancel
q "CREATE TABLE long AS $rows(1, 600000) g"
(PGOPTIONS='-c statement_timeout=4s' sql whole postgres -v VERBOSITY=verbose -c "SELECT * FROM cellar.compress('long', 'archive high')" >"$WORK/cancel.log" 2>&1 || true)
check_matches "cancel: the command ends" "$(cat "$WORK/cancel.log")" "57014"
for ((tries = 0; tries < 100; tries++)); do [ "$(q "SELECT count(*) FROM cellar.compression_progress")" != 0 ] || break; sleep 0.1; done
check_equal "cancel: so does its worker" "$(q "SELECT count(*) FROM cellar.compression_progress")" 0
# The same where the session itself ends.
q "SELECT cellar.decompress('long')" >/dev/null
(sql whole postgres -c "SELECT * FROM cellar.compress('long', 'archive high')" >"$WORK/end.log" 2>&1 || true) &
for ((tries = 0; tries < 300; tries++)); do [ "$(q "SELECT phase FROM cellar.compression_progress")" != compressing ] || break; sleep 0.1; done
check_equal "end of a session: it is terminated" \
    "$(q "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT * FROM cellar.compress(%' AND backend_type = 'client backend'")" t
for ((tries = 0; tries < 100; tries++)); do [ "$(q "SELECT count(*) FROM cellar.compression_progress")" != 0 ] || break; sleep 0.1; done
check_equal "end of a session: so does its worker" "$(q "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'cellar compression worker'")" 0
check_equal "cancel: the rows are all there" "$(q "SELECT count(*), sum(id) FROM long")" "600000|180000300000"

# ---------------------------------------------------------------- mistakes
q "CREATE ROLE stranger; GRANT SELECT ON many TO stranger; CREATE VIEW seen AS SELECT 1"
check_equal "an unknown level" "$(error_of "SELECT cellar.compress('many', 'quick')")" 22023
check_equal "a table of somebody else" "$(error_of "SET ROLE stranger; SELECT cellar.compress('many')")" 42501
check_equal "a view" "$(error_of "SELECT cellar.compress('seen')")" 42809
check_equal "a system catalog" "$(error_of "SELECT cellar.compress('pg_class')")" 42809
check_equal "a temporary table" "$(error_of "CREATE TEMP TABLE passing (id int); SELECT cellar.compress('passing')")" 42809
mkdir -p "$WORK/plain"
[ "$(id -u)" != 0 ] || chown "$OS_USER" "$WORK/plain"
sql whole postgres -c "CREATE TABLESPACE plain LOCATION '$WORK/plain'"
q "CREATE TABLE elsewhere (id int) TABLESPACE plain"
check_equal "a table on no cell" "$(error_of "SELECT cellar.compress('elsewhere')")" 55000

# ---------------------------------------------------------------- waiting in a circle
# Nobody waits for ever: neither for a lock of the own transaction, nor for who waits for the own snapshot.
check_equal "a lock of one's own" "$(error_of "BEGIN; LOCK TABLE many; SELECT cellar.compress('many')")" 40P01
check_equal "a cursor of one's own" \
    "$(error_of "BEGIN; DECLARE c CURSOR FOR SELECT * FROM many; FETCH c; SELECT cellar.compress('many')")" 55006
q "CREATE TABLE across AS SELECT g AS id FROM generate_series(1, 1000) g"
crossed() { error_of "BEGIN; LOCK TABLE $1; SELECT pg_sleep(1); SELECT cellar.compress('$2')" >"$WORK/crossed-$1"; }
crossed many across &
crossing=$!
remember_process $crossing
crossed across many
wait $crossing || true
check "two sessions that compress what the other one locks: one gives way" grep -q 40P01 "$WORK/crossed-many" "$WORK/crossed-across"
waits_on() {
    local tries
    for ((tries = 0; tries < 100; tries++)); do [ "$(q "SELECT count(*) FROM pg_stat_activity WHERE wait_event = '$1'")" = 0 ] || return 0; sleep 0.1; done
    return 1
}
sql whole postgres -c "BEGIN; UPDATE many SET note = note WHERE id = 1; SELECT pg_sleep(4); COMMIT" >/dev/null &
writer=$!
remember_process $writer
check "an index is built: a transaction writes" waits_on PgSleep
sql whole postgres -c "CREATE INDEX CONCURRENTLY beside ON many (amount)" >"$WORK/beside.log" 2>&1 &
builder=$!
remember_process $builder
check "an index is built: and is waited for" waits_on virtualxid
check_equal "an index is built: compression gives way" "$(error_of "SELECT cellar.compress('many')")" 40P01
if wait $builder && wait $writer; then ok "an index is built: to its end"; else not_ok "an index is built: $(cat "$WORK/beside.log")"; fi

# ---------------------------------------------------------------- restart, damage
check_equal "compressed once more" "$(q "SELECT level FROM cellar.compress('many')")" "query low"
q "CREATE TABLE other AS $rows(1, 100000) g"
q "SELECT * FROM cellar.compress('other')" >/dev/null
file=$(q "SELECT pg_relation_filepath('other')")
inode=$(as_pg stat -c %i "$data/$file")
check "Postgres stops" cluster_stop whole
check "the cell stops and unmounts" cell_stop cell1
unit=("$WORK"/cell1-disk*/data/*/"$(printf '%016x' "$inode")".units)
check "the units are files of the disks" test -s "${unit[0]}"
for file in "${unit[@]}"; do
    # Zeros over a stretch of each unit's data.
    dd if=/dev/zero of="$file" bs=4096 seek=20 count=4 conv=notrunc status=none
done
cell_start cell1
cluster_start whole "$data"
same "after a restart" many
check_equal "a damaged unit is an error" "$(error_of "SELECT count(*), max(note), sum(amount) FROM other")" 58030
check_equal "also without Smart Scan" "$(PGOPTIONS='-c cellar.cell_offload_processing=off' error_of "SELECT count(*), max(note), sum(amount) FROM other")" 58030
told=$(sql whole postgres -c "SELECT count(*), max(note), sum(amount) FROM other" 2>&1 || true)
check_matches "it names the table" "$told" 'table "other"'
check_matches "it names the blocks" "$told" 'blocks [0-9]+ to [0-9]+'
check_matches "it tells what to do" "$told" "HINT: .*backup"
check_equal "decompression of it is an error, too" "$(error_of "SELECT cellar.decompress('other')")" 58030
check_matches "and leaves nothing compressed but what is damaged" "$(q "SELECT sum(units) FILTER (WHERE level = 'none'), sum(units) FILTER (WHERE level <> 'none') FROM cellar.compression('other')")" '^[1-9][0-9]*\|[12]$'
check_matches "the cell's log names the blocks" "$(cat "$WORK/cell1.log")" "blocks"
check "Postgres stops again" cluster_stop whole
check "the cell stops and unmounts again" cell_stop cell1
checks_end
