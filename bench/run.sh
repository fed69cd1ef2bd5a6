#!/usr/bin/env bash
# The benchmarks of docs/benchmarks.md: interleaved runs, medians, one Markdown report on standard output and in
# bench/results/.
#
#   run.sh [part ...]     some of: scans cold files compression clickbench      (all)
#
# SF=1 scale factor, RUNS=5 runs of each, SECONDS_EACH=15 for pgbench, BENCH_DIR=bench/.work where cell disks and clusters lie (the
# same device for both), CACHE=4GiB of the cell (to hold the raw tables: 2GiB for each SF).
# compression: LEVELS="query low,query high,archive high", STEPS="churned scans pages points" to leave some out.
# clickbench: ROWS=1000000 to make, or HITS=file of ClickBench's rows; CLICKBENCH=a clone of it, or where to clone it from.
# Nothing else should run on the machine.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//p}' "$0"; exit ;; esac
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"

SF=${SF:-1} RUNS=${RUNS:-5} SECONDS_EACH=${SECONDS_EACH:-15}
parts=("$@")
[ $# -gt 0 ] || parts=(scans cold files compression clickbench)
BENCH_DIR=${BENCH_DIR:-$ROOT/bench/.work}
mkdir -p "$BENCH_DIR" "$ROOT/bench/results"
"$ROOT/scripts/build.sh" extension >&2
report=$ROOT/bench/results/$(date -u +%Y-%m-%dT%H%M%S).md
failed=0
exec > >(tee "$report")

export CELLAR_WORK_PARENT=$BENCH_DIR
work_begin bench
data=$WORK/cell1/pgdata plain=$WORK/plain-data

median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
harness() { "$HARNESS_BIN" --dsn "$(cluster_dsn "$1" "${2:-postgres}")" "${@:3}"; }

same_settings() {
    cluster_set "$1" "shared_buffers = 512MB" "max_wal_size = 16GB" "checkpoint_timeout = 30min" "track_io_timing = off" \
        "shared_preload_libraries = 'cellar'" "autovacuum = off"
}

say "# Benchmark of $(date -u '+%Y-%m-%d %H:%M') UTC"
say
say "- machine: $(nproc) CPUs ($(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1)), $(awk '/MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo), Linux $(uname -r)"
say "- $("$PG_CONFIG" --version), Cellar $(git -C "$ROOT" rev-parse --short HEAD 2>/dev/null || echo '?'), load before: $(cut -d' ' -f1-3 /proc/loadavg)"
say "- command: SF=$SF RUNS=$RUNS SECONDS_EACH=$SECONDS_EACH bench/run.sh ${parts[*]}"
say "- the cell's disks and the ordinary cluster lie in folders of $(df --output=source,fstype "$WORK" | tail -n 1)"

cell_configure cell1 "${CACHE:-4GiB}"
cell_start cell1
cluster_create mount "$data" --data-checksums
same_settings "$data"
cluster_start mount "$data"
sql mount postgres -c "CREATE EXTENSION cellar"

load() {
    [ -z "${loaded:-}" ] || return 0
    say "loading TPC-H $SF …" >&2
    harness mount postgres tpch-load --scale "$SF" --directory "$ROOT/bench/tpch" --no-indexes >&2
    loaded=1
}

part_scans() {
    load
    say
    say "## Scans through SQL, warm, medians of $RUNS interleaved runs"
    say
    say "### Serial"
    say
    harness mount postgres compare --runs "$RUNS" --format markdown --set max_parallel_workers_per_gather=0 "$ROOT/bench/scans"
    say
    say "### Two workers"
    say
    harness mount postgres compare --runs "$RUNS" --format markdown --set max_parallel_workers_per_gather=2 \
        --set parallel_leader_participation=off --set min_parallel_table_scan_size=0 "$ROOT/bench/scans"
    say
    say "### All rows of all columns (to be at most 10 % slower)"
    say
    mkdir -p "$WORK/all"
    printf "COPY (SELECT * FROM lineitem) TO '/dev/null';\n" >"$WORK/all/copy_all_columns.sql"
    printf "SELECT count(l) FROM lineitem l WHERE l_orderkey IS NOT NULL;\n" >"$WORK/all/whole_row.sql"
    harness mount postgres compare --runs "$RUNS" --format markdown --forced --set max_parallel_workers_per_gather=0 \
        "$WORK/all/copy_all_columns.sql" "$WORK/all/whole_row.sql"
}

# The device's sequential rate by fio on one cell disk's own files, against a scan after every cache was emptied.
part_cold() {
    load
    if [ "$(id -u)" != 0 ] || ! command -v fio >/dev/null; then
        say
        say "## Cold scan: not measured (needs root and fio)"
        return
    fi
    say
    say "## Cold scan of lineitem, $RUNS runs in turns"
    local bytes run rate device=() off=() on=() start end query
    bytes=$(sql mount postgres -c "SELECT pg_relation_size('lineitem')")
    query="SELECT count(*) FROM lineitem WHERE l_quantity < 0"
    sql mount postgres -c CHECKPOINT
    fio --name=make --filename="$WORK/fio.data" --size=1g --rw=write --bs=1m --direct=1 --output-format=terse >/dev/null 2>&1
    for ((run = 0; run < RUNS; run++)); do
        rate=$(fio --name=read --filename="$WORK/fio.data" --rw=read --bs=1m --direct=1 --ioengine=libaio --iodepth=8 --output-format=terse --terse-version=3 2>/dev/null | cut -d';' -f7)
        device+=("$(awk -v k="$rate" 'BEGIN { printf "%.0f", k * 1024 / 1e6 }')")
        for mode in off on; do
            cluster_stop mount
            cell_stop cell1
            sync
            echo 3 >/proc/sys/vm/drop_caches
            cell_start cell1
            cluster_start mount "$data"
            sql mount postgres -c "SELECT 1" >/dev/null
            start=$(date +%s%N)
            PGOPTIONS="-c cellar.cell_offload_processing=$mode -c max_parallel_workers_per_gather=0" sql mount postgres -c "$query" >/dev/null
            end=$(date +%s%N)
            rate=$(awk -v b="$bytes" -v t="$((end - start))" 'BEGIN { printf "%.0f", b / t * 1000 }')
            if [ "$mode" = off ]; then off+=("$rate"); else on+=("$rate"); fi
        done
    done
    rm -f "$WORK/fio.data"
    local d o n
    d=$(printf '%s\n' "${device[@]}" | median)
    o=$(printf '%s\n' "${off[@]}" | median)
    n=$(printf '%s\n' "${on[@]}" | median)
    say
    say "| | MB/s | of the device |"
    say "|---|---:|---:|"
    say "| fio, O_DIRECT, sequential, 1 MiB, depth 8 | $d | |"
    say "| Smart Scan off | $o | $(awk -v a="$o" -v b="$d" 'BEGIN { printf "%.0f %%", 100 * a / b }') |"
    say "| Smart Scan on | $n | $(awk -v a="$n" -v b="$d" 'BEGIN { printf "%.0f %%", 100 * a / b }') |"
}

# seconds CLUSTER SQL: how long one statement takes that Postgres does without the cell.
seconds() {
    local start end
    start=$(date +%s%N)
    PGOPTIONS="-c cellar.cell_offload_processing=off -c max_parallel_workers_per_gather=0 -c max_parallel_maintenance_workers=0" \
        sql "$1" bench -c "$2" >/dev/null
    end=$(date +%s%N)
    awk -v t="$((end - start))" 'BEGIN { printf "%.2f ", t / 1e9 }'
}

tps() { sed -n 's/^tps = \([0-9]*\).*/\1/p'; }

# The file service: the same settings on the mount and on the file system of the cell disks.
part_files() {
    cluster_create plain "$plain" --data-checksums
    same_settings "$plain"
    cluster_start plain "$plain"
    local cluster run kind
    for cluster in mount plain; do
        sql "$cluster" postgres -c "CREATE DATABASE bench"
        "$PG_BIN/pgbench" -i -q -s 50 -h "$WORK/run" -p "$(cluster_port "$cluster")" -U postgres bench >"$WORK/pgbench.log" 2>&1
        sql "$cluster" bench -c "CREATE TABLE copied (LIKE pgbench_accounts)" -c "CHECKPOINT"
    done
    sql plain bench -c "COPY pgbench_accounts TO '/dev/null'"
    local rows=$WORK/rows.txt
    sql plain bench -c "\\copy pgbench_accounts to '$rows'"
    declare -A results
    for ((run = 0; run < RUNS; run++)); do
        for cluster in mount plain; do
            for kind in select tpcb; do
                local options=(-S)
                [ "$kind" = select ] || options=()
                results[$cluster.$kind]+="$("$PG_BIN/pgbench" -n "${options[@]}" -c 4 -j 2 -T "$SECONDS_EACH" -h "$WORK/run" -p "$(cluster_port "$cluster")" -U postgres bench 2>/dev/null | tps) "
            done
            sql "$cluster" bench -c "TRUNCATE copied" -c "CHECKPOINT"
            results[$cluster.copy]+="$(awk -v b="$(stat -c %s "$rows")" -v t="$(seconds "$cluster" "\\copy copied from '$rows'")" 'BEGIN { printf "%.1f", b / t / 1e6 }') "
            results[$cluster.scan]+=$(seconds "$cluster" "SELECT count(*) FROM pgbench_accounts WHERE abalance > 1000000")
            results[$cluster.dump]+=$(seconds "$cluster" "COPY pgbench_accounts TO '/dev/null'")
            results[$cluster.index]+=$(seconds "$cluster" "CREATE INDEX made ON copied (aid)")
            results[$cluster.vacuum]+=$(seconds "$cluster" "VACUUM (DISABLE_PAGE_SKIPPING, FREEZE) copied")
            sql "$cluster" bench -c "DROP INDEX made"
        done
    done
    rm -f "$rows"
    say
    say "## The mount against the file system below it, medians of $RUNS interleaved runs"
    say
    say "| | on the mount | plain | ratio | wanted |"
    say "|---|---:|---:|---:|---:|"
    local m p kinds=(select tpcb copy scan dump index vacuum)
    local -A names=([select]="pgbench -S, 4 clients, tps" [tpcb]="pgbench TPC-B, 4 clients, tps" [copy]="COPY in, MB/s"
        [scan]="sequential scan without offload, s" [dump]="COPY out, s" [index]="CREATE INDEX, s" [vacuum]="VACUUM of all pages, s")
    local -A wanted=([select]=0.8 [tpcb]=0.9 [copy]=0.7)
    for kind in "${kinds[@]}"; do
        m=$(tr ' ' '\n' <<<"${results[mount.$kind]}" | sed '/^$/d' | median)
        p=$(tr ' ' '\n' <<<"${results[plain.$kind]}" | sed '/^$/d' | median)
        # The mount's speed as a part of the other's: rates one way, times the other way around.
        say "| ${names[$kind]} | $m | $p | $(awk -v m="$m" -v p="$p" -v name="${names[$kind]}" 'BEGIN { printf "%.2f", name ~ /, s$/ ? p / m : m / p }') | ${wanted[$kind]:-} |"
    done
    say
    for kind in "${kinds[@]}"; do
        say "$kind, each run: ${results[mount.$kind]}on the mount; ${results[plain.$kind]}plain"
    done
}

# What is written in Python adds its results to a file beside the report.
python() {
    [ -x "$ROOT/bench/.venv/bin/python" ] || die "there is no bench/.venv: run scripts/install-deps.sh bench"
    "$ROOT/bench/.venv/bin/python" "$ROOT/bench/$1" --dsn "$(cluster_dsn mount)" --runs "$RUNS" --json "${report%.md}.json" "${@:2}" || failed=1
}

# restart_mount [setting ...]: cell and cluster anew, with all of their caches empty.
restart_mount() {
    [ $# = 0 ] || cluster_set "$data" "$@"
    cluster_stop mount
    cell_stop cell1
    cell_start cell1
    cluster_start mount "$data"
}

# Pages at every level, what they cost to make and to read, and scans of them beside DuckDB's and Parquet's.
part_compression() {
    local levels=(--levels "${LEVELS:-query low,query high,archive high}") steps=" ${STEPS:-churned scans pages points} " churned=()
    [[ $steps = *" churned "* ]] || churned=(--no-churned)
    load
    restart_mount "wal_level = minimal" "max_wal_senders = 0" "max_wal_size = 4GB"
    mkdir -p "$WORK/duckdb" "$WORK/plain-tables"
    [ "$(id -u)" != 0 ] || chown "$OS_USER" "$WORK/plain-tables"
    say
    say "## Compression, TPC-H $SF"
    say
    python compression/tables.py "${levels[@]}" --cell-pid "$CELL_PID" --duckdb "$WORK/duckdb" --plain "$WORK/plain-tables" "${churned[@]}"
    if [[ $steps = *" scans "* ]]; then python compression/scans.py "${levels[@]}" --duckdb "$WORK/duckdb" --plain; fi
    if [[ $steps = *" pages "* ]]; then bench_pages "${levels[@]}"; fi
    if [[ $steps = *" points "* ]]; then
        restart_mount "shared_buffers = 32MB"
        python compression/points.py "${levels[@]}" --seconds "$SECONDS_EACH" --pgbench "$PG_BIN/pgbench" --work "$WORK"
        restart_mount "shared_buffers = 512MB"
    fi
}

# bench_pages --levels LEVELS: single blocks, warm, and cold where the caches may be emptied.
bench_pages() {
    python compression/pages.py "$@" --cell-pid "$CELL_PID"
    if [ "$(id -u)" = 0 ]; then
        restart_mount
        python compression/pages.py "$@" --cold
    fi
}

part_clickbench() {
    local hits=()
    [ -z "${HITS:-}" ] || hits=(--hits "$HITS")
    restart_mount "wal_level = minimal" "max_wal_senders = 0" "max_wal_size = 4GB"
    say
    say "## ClickBench"
    say
    python clickbench/run.py --rows "${ROWS:-1000000}" --clickbench "${CLICKBENCH:-https://github.com/ClickHouse/ClickBench}" --work "$BENCH_DIR" "${hits[@]}"
}

for part in "${parts[@]}"; do
    declare -F "part_$part" >/dev/null || die "there is no part $part"
    "part_$part"
done
say
say "written to ${report#"$ROOT"/}" >&2
[ "$failed" = 0 ]
