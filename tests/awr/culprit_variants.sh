#!/usr/bin/env bash
# Known culprits in other sizes: each set-up of culprits.sh with other table sizes, numbers of clients and durations, without a
# cell, on a cell and on a cell with slow disks. Prints the first finding of each run and how many name the culprit. The load runs
# in real time, so that the result depends on the machine: not a stage of `make test`.
#
#   culprit_variants.sh [--storage plain,cell,slow] [--culprit hog,locks,plan,checkpoints,spill] [--seconds N]
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
# shellcheck source=tests/awr/on_cell.sh
. "$(dirname "$0")/on_cell.sh"

storages=plain,cell,slow
culprits=hog,locks,plan,checkpoints,spill
seconds=6
while [ $# -gt 0 ]; do
    case $1 in
    --storage) storages=$2 ;;
    --culprit) culprits=$2 ;;
    --seconds) seconds=$2 ;;
    *) die "unknown option $1" ;;
    esac
    shift 2
done
extension_installed || die "the extension is not installed: run scripts/build.sh extension"
work_begin variants

# bench DATABASE CLIENTS SECONDS SCRIPT [OPTION ...]: runs pgbench with a script.
bench() {
    "$PG_BIN/pgbench" -n -h "$WORK/run" -p "$(cluster_port "$cluster")" -U postgres -c "$2" -j 1 -T "$3" "${@:5}" -f <(printf '%s\n' "$4") "$1" \
        >>"$WORK/pgbench.log" 2>&1
}
# beside COMMAND ...: runs a command until `wait_beside`.
background=()
beside() {
    "$@" &
    background+=($!)
    remember_process $!
}
wait_beside() {
    [ ${#background[@]} = 0 ] || wait "${background[@]}" || true
    background=()
}
# evict TABLE ...: keeps the files of tables out of the kernel's page cache, as if memory were small.
evict() {
    local files=() table
    for table in "$@"; do files+=("$data/$(sql "$cluster" "${table%.*}" -c "SELECT pg_relation_filepath('${table#*.}')")"); done
    python3 - "${files[@]}" <<'PYTHON' &
import os, sys, time
files = [os.open(path, os.O_RDONLY) for path in sys.argv[1:]]
while True:
    for file in files:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    time.sleep(0.02)
PYTHON
    evictor=$!
    remember_process $evictor
}
end_evict() {
    kill "$evictor"
    wait "$evictor" 2>/dev/null || true
    evictor=
}

# variant CULPRIT PATTERN DESCRIPTION COMMAND ...: the first finding of the interval must match the pattern "id title".
variant() {
    local culprit=$1 pattern=$2 description=$3 begin end first
    shift 3
    begin=$(snapshot)
    "$@"
    wait_beside
    sleep 1.2
    end=$(snapshot)
    findings=$(q "SELECT concat_ws(' ', f ->> 'id', f ->> 'title', '(' || (f -> 'impact' ->> 'percent_of_db_time')::numeric(6, 1) || ' %)', f ->> 'kind')
        FROM jsonb_array_elements(awr.report($begin, $end, 'json')::jsonb -> 'findings') f LIMIT 4")
    first=${findings%%$'\n'*}
    runs=$((${runs:-0} + 1))
    if [[ $first =~ $pattern ]]; then
        ok "$storage, $culprit, $description: $first"
    else
        not_ok "$storage, $culprit, $description"
        printf '    %s\n' "${findings//$'\n'/$'\n'    }"
        q "SELECT awr.report($begin, $end, 'document')" >/dev/null 2>&1 || true
        q "SELECT awr.report_data($begin, $end)" >"$WORK/$storage-$runs.log"
    fi
}

start() {
    cluster=$1
    storage=$1
    case $storage in
    plain) data=$WORK/plain/pgdata ;;
    *)
        data=$WORK/$storage/pgdata
        cell_configure "$storage" 32MiB
        [ "$storage" != slow ] || sed -i 's/^\[disk_group\]/&\nmodel = "hdd-15k"\nmodel_time_scale = 0.05/' "$WORK/$storage.toml"
        cell_start "$storage"
        ;;
    esac
    cluster_create "$cluster" "$data" --wal-segsize=1
    cluster_set "$data" "shared_preload_libraries = 'cellar'" "shared_buffers = 4MB" "autovacuum = off" "max_wal_size = 1GB" \
        "cellar.awr_snapshot_interval = 0" "cellar.awr_sample_period = 100ms" "cellar.awr_database = template1"
    cluster_start "$cluster" "$data"
    sql "$cluster" postgres -c "CREATE EXTENSION cellar" -c "CREATE DATABASE shop" -c "CREATE DATABASE archive"
    DB=shop q "CREATE EXTENSION cellar; CREATE TABLE warm AS SELECT 1 AS a"
    DB=archive q "CREATE EXTENSION cellar"
    snapshot >/dev/null
}
stop() {
    cluster_stop "$cluster"
    [ "$storage" = plain ] || cell_stop "$storage"
}

# ---- an I/O hog in another database ----

# hog ROWS HOGS VICTIM_ROWS VICTIMS
hog() {
    beside bench archive "$2" "$seconds" "SELECT sum(amount) FROM sales$1;"
    beside bench shop "$4" "$seconds" "\\set id random(1, $3)
SELECT length(note) FROM orders$3 WHERE id = :id;"
}
run_hog() {
    local rows victim_rows
    for rows in 150000 600000; do
        DB=archive q "CREATE TABLE sales$rows AS SELECT i AS id, i % 1000 AS amount, repeat('x', 80) AS filler FROM generate_series(1, $rows) i"
        DB=archive q "VACUUM ANALYZE sales$rows"
    done
    for victim_rows in 60000 300000; do
        DB=shop q "CREATE TABLE orders$victim_rows AS SELECT i AS id, repeat('o', 200) AS note FROM generate_series(1, $victim_rows) i"
        DB=shop q "CREATE INDEX ON orders$victim_rows (id)"
        DB=shop q "VACUUM ANALYZE orders$victim_rows"
    done
    q "CHECKPOINT"
    while read -r rows hogs victim_rows victims; do
        evict "archive.sales$rows" "shop.orders$victim_rows"
        variant hog '^noisy-neighbour .* archive ' "$hogs scans of $rows rows, $victims readers of $victim_rows rows" hog "$rows" "$hogs" "$victim_rows" "$victims"
        end_evict
    done <<'LIST'
150000 1 60000 1
150000 4 300000 2
600000 1 60000 2
600000 4 300000 1
600000 2 60000 8
LIST
}

# ---- a lock chain ----

# locks WAITERS SECONDS: a session updates a row and stays; others wait for the row, some of them in a chain.
locks() {
    local i
    beside env PGAPPNAME=culprit "$PG_BIN/psql" -X -q -h "$WORK/run" -p "$(cluster_port "$cluster")" -U postgres -d shop -o /dev/null \
        -c "BEGIN; UPDATE stock SET amount = 1 WHERE id = 1; SELECT pg_sleep($2)"
    sleep 0.3
    for ((i = 1; i <= $1; i++)); do
        DB=shop beside q "BEGIN; UPDATE stock SET amount = amount + 1 WHERE id = $((1 + i)); UPDATE stock SET amount = amount + 1 WHERE id = 1; COMMIT"
    done
}
locks_and_load() {
    beside bench shop 2 "$2" "SELECT count(*) FROM generate_series(1, 20000);"
    locks "$@"
}
run_locks() {
    DB=shop q "CREATE TABLE stock AS SELECT i AS id, 0 AS amount FROM generate_series(1, 100) i"
    local waiters duration
    while read -r waiters duration; do
        variant locks '^lock-waits ' "$waiters waiters, $duration s" locks "$waiters" "$duration"
    done <<<$'1 3\n4 6\n20 3'
    variant locks '^lock-waits ' "8 waiters, 5 s, beside CPU load" locks_and_load 8 5
    variant locks '^lock-waits ' "16 clients change one row" bench shop 16 "$seconds" "UPDATE stock SET amount = amount + 1 WHERE id = 50;"
}

# ---- another plan after ANALYZE ----

# flip ROWS CLIENTS: the statistics say that all rows have the same number.
flip() {
    DB=shop q "ALTER TABLE events$1 ALTER number SET (n_distinct = 1)"
    DB=shop q "ANALYZE events$1"
    bench shop "$2" "$seconds" "\\set id random(1, $1)
SELECT kind FROM events$1 WHERE number = :id;"
}
flip_and_load() {
    beside bench shop 1 "$seconds" "SELECT count(*) FROM generate_series(1, 20000);"
    flip "$@"
}
run_plan() {
    local rows clients load
    while read -r rows clients load; do
        DB=shop q "DROP TABLE IF EXISTS events$rows"
        DB=shop q "CREATE TABLE events$rows AS SELECT i AS number, i % 7 AS kind FROM generate_series(1, $rows) i"
        DB=shop q "CREATE INDEX ON events$rows (number)"
        DB=shop q "ANALYZE events$rows"
        bench shop "$clients" 2 "\\set id random(1, $rows)
SELECT kind FROM events$rows WHERE number = :id;"
        sleep 1.2
        snapshot >/dev/null
        variant plan '^plan-regression ' "$rows rows, $clients clients, $load" "$load" "$rows" "$clients"
    done <<'LIST'
20000 1 flip
200000 4 flip
600000 2 flip
200000 8 flip_and_load
LIST
}

# ---- a checkpoint storm ----

# storm CLIENTS ROWS BYTES TRANSACTIONS
storm() {
    "$PG_BIN/pgbench" -n -h "$WORK/run" -p "$(cluster_port "$cluster")" -U postgres -c "$1" -j 1 -t $(($4 / $1)) -f <(printf '%s\n' "\\set id random(1, $2)
UPDATE accounts$2 SET amount = amount + 1 WHERE id = :id;
INSERT INTO history VALUES (:id, repeat('h', $3));") shop >>"$WORK/pgbench.log" 2>&1
}
run_checkpoints() {
    local clients rows bytes transactions
    DB=shop q "CREATE TABLE history (id bigint, filler text)"
    DB=shop q "ALTER TABLE history ALTER filler SET STORAGE EXTERNAL"
    for rows in 20000 200000; do
        DB=shop q "CREATE TABLE accounts$rows AS SELECT i AS id, 0 AS amount, repeat('a', 80) AS filler FROM generate_series(1, $rows) i"
        DB=shop q "CREATE INDEX ON accounts$rows (id)"
        DB=shop q "VACUUM ANALYZE accounts$rows"
    done
    q "ALTER SYSTEM SET max_wal_size = '8MB'"
    q "SELECT pg_reload_conf()" >/dev/null
    q "CHECKPOINT"
    while read -r clients rows bytes transactions; do
        variant checkpoints '^checkpoint-storm ' "$clients clients, $rows rows, $bytes bytes" storm "$clients" "$rows" "$bytes" "$transactions"
    done <<'LIST'
1 20000 20000 800
4 200000 10000 1200
16 200000 5000 1600
LIST
    q "ALTER SYSTEM RESET max_wal_size"
    q "SELECT pg_reload_conf()" >/dev/null
    q "CHECKPOINT"
}

# ---- a temporary spill ----

spill() { bench shop "$1" "$seconds" "$2"; }
spill_and_load() {
    beside bench shop 1 "$seconds" "SELECT count(*) FROM generate_series(1, 20000);"
    spill "$@"
}
run_spill() {
    local sort="SET work_mem = '%s'; SELECT count(*) FROM (SELECT i, repeat('t', 100) FROM generate_series(1, %d) i ORDER BY i %% 1000 OFFSET 0) s;"
    # shellcheck disable=SC2059
    variant spill '^temp-spills ' "sort of 100000 rows, 1 client" spill 1 "$(printf "$sort" 64kB 100000)"
    # shellcheck disable=SC2059
    variant spill '^temp-spills ' "sort of 500000 rows, 2 clients" spill 2 "$(printf "$sort" 1MB 500000)"
    # shellcheck disable=SC2059
    variant spill '^temp-spills ' "sort of 20000 rows, 4 clients, beside CPU load" spill_and_load 4 "$(printf "$sort" 64kB 20000)"
    variant spill '^temp-spills ' "hash of 300000 groups, 2 clients" spill 2 \
        "SET work_mem = '256kB'; SELECT count(*) FROM (SELECT i, count(*) FROM generate_series(1, 300000) i GROUP BY i OFFSET 0) s;"
}

for storage in ${storages//,/ }; do
    start "$storage"
    for culprit in ${culprits//,/ }; do "run_$culprit"; done
    stop
done
checks_end
