#!/usr/bin/env bash
# PostgreSQL's methods of asynchronous I/O (18 and later: worker, io_uring, sync) on a cell's mount: reads of raw and
# compressed tables, a crash of the server and a crash of the cell under load. Skipped on older versions.
#
#   io_methods.sh [METHOD ...]      default: all that the server has
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

methods=("$@")
if [ "$PG_MAJOR" -lt 18 ]; then
    skip "I/O methods: io_method exists since PostgreSQL 18"
    exit 0
fi
extension_installed || die "the extension is not installed: run scripts/build.sh extension"
work_begin io
data=$WORK/cell1/pgdata
rows=60000

q() { PGOPTIONS='-c cellar.min_scan_size=0 -c cellar.cost_factor=0' sql io postgres -c "$1"; }
off() { PGOPTIONS='-c cellar.cell_offload_processing=off' sql io postgres -c "$1"; }
everything="SELECT count(*), sum(id), md5(string_agg(t::text, '|' ORDER BY id)) FROM @ t"
# balanced DESCRIPTION: each transfer keeps the sum of the balances and the number of its rows.
balanced() {
    check_equal "$1: a table scan returns the right sum" "$(off "SELECT sum(balance), count(*) FROM accounts")" "$((rows * 100))|$rows"
    check_equal "$1: a Smart Scan returns the right sum" "$(q "SELECT sum(balance), count(*) FROM accounts")" "$((rows * 100))|$rows"
    check_equal "$1: VACUUM (DISABLE_PAGE_SKIPPING) and an index scan find every row" \
        "$(off "VACUUM (DISABLE_PAGE_SKIPPING) accounts" && off "SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT sum(balance), count(*) FROM accounts WHERE id > 0")" "$((rows * 100))|$rows"
}
load() {
    "$PG_BIN/pgbench" -n -c 3 -j 1 -T 30 -h "$WORK/run" -p "$(cluster_port io)" -U postgres postgres >"$WORK/load.log" 2>&1 \
        -f <(printf '%s\n' "\\set one random(1, $rows)" "\\set two random(1, $rows)" 'BEGIN;' \
            'UPDATE accounts SET balance = balance - 1 WHERE id = :one;' 'UPDATE accounts SET balance = balance + 1 WHERE id = :two;' 'COMMIT;' \
            'SELECT sum(balance) FROM accounts;') &
    LOAD=$!
    remember_process $LOAD
    sleep 3
}

cell_configure cell1 128MiB
cell_start cell1
cluster_create io "$data" --data-checksums
cluster_set "$data" "shared_preload_libraries = 'cellar'" "shared_buffers = 16MB" "autovacuum = off" "max_wal_size = 1GB"
cluster_start io "$data"
if [ ${#methods[@]} = 0 ]; then
    mapfile -t methods < <(q "SELECT unnest(enumvals) FROM pg_settings WHERE name = 'io_method'")
    [[ " ${methods[*]} " == *" io_uring "* ]] || skip "I/O methods: this server was built without io_uring"
fi
q "CREATE EXTENSION cellar; CREATE TABLE accounts (id int PRIMARY KEY, balance int, filler text) WITH (fillfactor = 90);
   INSERT INTO accounts SELECT g, 100, repeat('x', 100 + g % 50) FROM generate_series(1, $rows) g;
   CREATE TABLE raw AS SELECT g AS id, md5((g % 3000)::text) AS note FROM generate_series(1, 200000) g; CREATE TABLE units AS TABLE raw"
q "SELECT * FROM cellar.compress('units')" >/dev/null
q "VACUUM (FREEZE) raw"
expected=$(off "${everything//@/raw}")
cluster_stop io
for method in "${methods[@]}"; do
    say "# $method ($SECONDS s)"
    cluster_set "$data" "io_method = $method"
    if ! cluster_start io "$data" 2>"$WORK/start.log"; then
        # A kernel or a container may forbid io_uring.
        if [ "$method" = io_uring ] && grep -q 'could not setup io_uring' "$WORK/start.log"; then
            skip "I/O methods: $method: $(grep -m1 'could not setup io_uring' "$WORK/start.log" | sed 's/.*FATAL: *//')"
        else
            not_ok "$method: the server starts: $(tail -n 3 "$WORK/start.log")"
        fi
        rm -f "$WORK/io.postmaster"
        continue
    fi
    check_equal "$method: the server uses it" "$(q "SHOW io_method")" "$method"
    for table in raw units; do
        check_equal "$method: a table scan of $table returns all rows" "$(off "${everything//@/$table}")" "$expected"
        check_equal "$method: a parallel table scan of $table returns all rows" \
            "$(off "SET max_parallel_workers_per_gather = 2; SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; ${everything//@/$table}")" "$expected"
        check_equal "$method: a Smart Scan of $table returns all rows" "$(q "${everything//@/$table}")" "$expected"
    done
    # A bitmap heap scan, CREATE INDEX and ANALYZE also read through streams of asynchronous reads.
    check_equal "$method: a bitmap heap scan of a compressed table returns the right rows" \
        "$(off "SET client_min_messages = warning; DROP INDEX IF EXISTS units_id; CREATE INDEX units_id ON units (id); ANALYZE units; SET enable_seqscan = off; SET enable_indexscan = off; SELECT count(*), sum(id) FROM units WHERE id % 7 = 0 AND id BETWEEN 1000 AND 150000")" \
        "$(off "SELECT count(*), sum(id) FROM raw WHERE id % 7 = 0 AND id BETWEEN 1000 AND 150000")"
    check "$method: reads of the server were counted" test "$(q "SELECT pg_stat_force_next_flush(); SELECT sum(reads) FROM pg_stat_io WHERE object = 'relation'" | tail -n 1)" -gt 100

    q "SELECT * FROM cellar.compress('accounts')" >/dev/null
    load
    check "$method: kill -9 of the server under load" cluster_kill io
    wait $LOAD || true
    cluster_start io "$data"
    balanced "$method, after kill -9 of the server"
    q "SELECT * FROM cellar.compress('accounts', 'query high')" >/dev/null
    load
    check "$method: kill -9 of the cell under load" cell_kill
    cluster_stop io QUIT || cluster_kill io || true
    wait $LOAD || true
    cell_start cell1
    cluster_start io "$data"
    balanced "$method, after kill -9 of the cell"
    check "$method: Postgres stops" cluster_stop io
done
check "the cell stops and unmounts" cell_stop cell1
# A server on a cell that was killed panics when it cannot sync its WAL.
if grep -n 'terminated by signal 11' "$WORK/io-postgres.log"; then
    not_ok "no server process crashed"
else
    ok "no server process crashed"
fi
checks_end
