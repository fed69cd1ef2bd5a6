#!/usr/bin/env bash
# Runs the benchmarks of docs/benchmarks.md: interleaved runs, medians. Writes a Markdown report to standard output and to
# bench/results/, and adds its tables to bench/history/. Nothing else should run on the machine.
#
#   run.sh [PART ...]     scans cold files compression tpch clickbench awr models      (default: all)
#
#   SF=1              TPC-H scale factor
#   RUNS=5            timed runs
#   SECONDS_EACH=15   seconds of each pgbench run
#   BENCH_DIR=bench/.work   folder of the cell disks and of the ordinary clusters: both on the same device
#   CACHE=4GiB        page cache of the cell; 2GiB per scale factor contain the raw tables
#   LEVELS="query low,query high,archive high"   levels that the part compression measures
#   STEPS="churned scans pages points"           steps of the part compression
#   ROWS=1000000      rows generated for clickbench; HITS=FILE reads ClickBench's own rows instead
#   CLICKBENCH=URL    a clone of ClickBench, or the URL to clone
#   MODEL=hdd-15k     model of the part models; MODEL_MIB=512 its file, MODEL_SCALE=3 real seconds per model second
#   HISTORY=no        does not add the results to bench/history
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//p}' "$0"; exit ;; esac
CELLAR_PROFILE=${CELLAR_PROFILE:-release}
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"

SF=${SF:-1} RUNS=${RUNS:-5} SECONDS_EACH=${SECONDS_EACH:-15}
parts=("$@")
[ $# -gt 0 ] || parts=(scans cold files compression tpch clickbench awr models)
BENCH_DIR=${BENCH_DIR:-$ROOT/bench/.work}
mkdir -p "$BENCH_DIR" "$ROOT/bench/results"
"$ROOT/scripts/build.sh" extension >&2
report=$ROOT/bench/results/$(date -u +%Y-%m-%dT%H%M%S).md
failed=0
exec > >(tee "$report")
tee_pid=$!
load_before=$(cut -d' ' -f1-3 /proc/loadavg)
commit=$(git -C "$ROOT" describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)
command="SF=$SF RUNS=$RUNS SECONDS_EACH=$SECONDS_EACH${CACHE:+ CACHE=$CACHE}${LEVELS:+ LEVELS=\"$LEVELS\"}${STEPS:+ STEPS=\"$STEPS\"} bench/run.sh ${parts[*]}"

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
say "- $("$PG_CONFIG" --version), Cellar $commit, load before: $load_before"
say "- command: $command"
say "- medians of $RUNS interleaved runs"
say "- the cell disks and the ordinary clusters are folders on $(df --output=source,fstype "$WORK" | tail -n 1)"

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
    say "## Scans through SQL, warm"
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
    say "### All rows of all columns (goal: at most 10 % slower)"
    say
    mkdir -p "$WORK/all"
    printf "COPY (SELECT * FROM lineitem) TO '/dev/null';\n" >"$WORK/all/copy_all_columns.sql"
    printf "SELECT count(l) FROM lineitem l WHERE l_orderkey IS NOT NULL;\n" >"$WORK/all/whole_row.sql"
    harness mount postgres compare --runs "$RUNS" --format markdown --forced --set max_parallel_workers_per_gather=0 \
        "$WORK/all/copy_all_columns.sql" "$WORK/all/whole_row.sql"
}

# The sequential rate of the device of the cell disks (fio), against a scan with all caches empty.
part_cold() {
    load
    if [ "$(id -u)" != 0 ] || ! command -v fio >/dev/null; then
        say
        say "## Cold scan: not measured (needs root and fio)"
        return
    fi
    say
    say "## Cold scan of lineitem"
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

# seconds CLUSTER SQL: elapsed time of a statement without Smart Scan and without parallel workers.
seconds() {
    local start end
    start=$(date +%s%N)
    PGOPTIONS="-c cellar.cell_offload_processing=off -c max_parallel_workers_per_gather=0 -c max_parallel_maintenance_workers=0" \
        sql "$1" bench -c "$2" >/dev/null
    end=$(date +%s%N)
    awk -v t="$((end - start))" 'BEGIN { printf "%.2f ", t / 1e9 }'
}

tps() { sed -n 's/^tps = \([0-9]*\).*/\1/p'; }

# The file service: the same cluster settings on the mount and on the file system of the cell disks.
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
    say "## The mount against the file system below it"
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
        # The mount's speed divided by the plain file system's: for times, the inverse ratio.
        say "| ${names[$kind]} | $m | $p | $(awk -v m="$m" -v p="$p" -v name="${names[$kind]}" 'BEGIN { printf "%.2f", name ~ /, s$/ ? p / m : m / p }') | ${wanted[$kind]:-} |"
    done
    say
    for kind in "${kinds[@]}"; do
        say "$kind, each run: ${results[mount.$kind]}on the mount; ${results[plain.$kind]}plain"
    done
    bench_neighbours
}

# Latencies of other files while a mass UPDATE runs: of a raw table, and of a compressed table.
bench_neighbours() {
    local update="SET abalance = abalance + 1"
    sql mount bench -c "CREATE EXTENSION IF NOT EXISTS cellar" -c "CREATE TABLE updated_raw AS SELECT * FROM pgbench_accounts" \
        -c "CREATE TABLE updated_unit AS SELECT * FROM pgbench_accounts" \
        -c "VACUUM (FREEZE) updated_raw, updated_unit" -c "SELECT cellar.compress('updated_unit', 'query low')" -c "CHECKPOINT" >/dev/null
    say
    say "### Other files during a mass UPDATE (goal: p99 of reads and WAL writes at most 2 times the idle p99)"
    say
    mkdir -p "$WORK/control"
    python3 "$ROOT/bench/files/neighbours.py" --folder "$WORK/cell1" --control-folder "$WORK/control" --dsn "$(cluster_dsn mount bench)" --psql "$PG_BIN/psql" \
        "UPDATE of a raw table=UPDATE updated_raw $update; CHECKPOINT" \
        "UPDATE of a compressed table=UPDATE updated_unit $update; CHECKPOINT"
    sql mount bench -c "DROP TABLE updated_raw, updated_unit"
}

# python SCRIPT [OPTION ...]: runs a part written in Python; its results with plans go to a JSON file beside the report.
python() {
    [ -x "$ROOT/bench/.venv/bin/python" ] || die "there is no bench/.venv: run scripts/install-deps.sh bench"
    "$ROOT/bench/.venv/bin/python" "$ROOT/bench/$1" --dsn "$(cluster_dsn mount)" --runs "$RUNS" --json "${report%.md}.json" "${@:2}" || failed=1
}

# restart_mount ['name = value' ...]: restarts the cell and its cluster with empty caches.
restart_mount() {
    [ $# = 0 ] || cluster_set "$data" "$@"
    cluster_stop mount
    cell_stop cell1
    cell_start cell1
    cluster_start mount "$data"
}

# Each level: encoding speed, sizes, block reads, and scans beside DuckDB and Parquet.
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

# bench_pages --levels LEVELS: reads of single blocks, warm, and as root also cold.
bench_pages() {
    python compression/pages.py "$@" --cell-pid "$CELL_PID"
    if [ "$(id -u)" = 0 ]; then
        restart_mount
        python compression/pages.py "$@" --cold
    fi
}

# Device models in model time; the file system below stores the bytes, and its speed does not matter.
part_models() {
    cargo build --release --quiet --manifest-path "$ROOT/Cargo.toml" -p cellar-storage --example device_models >&2
    say
    say "## Disk groups of modelled disks"
    say
    "$ROOT/target/release/examples/device_models" "$WORK/models" "${MODEL:-hdd-15k}" "${MODEL_MIB:-512}" "${MODEL_SCALE:-3}"
    rm -rf "$WORK/models"
}

# The cost of AWR on a plain cluster, and the time of AWR snapshots and reports of a large one.
part_awr() {
    local i
    [ -e "$plain" ] || cluster_create plain "$plain" --data-checksums
    [ -e "$WORK/plain.postmaster" ] || { same_settings "$plain"; cluster_set "$plain" "max_connections = 100"; cluster_start plain "$plain"; }
    sql plain postgres -c "SET client_min_messages = warning" -c "CREATE EXTENSION IF NOT EXISTS cellar" \
        -c "DROP DATABASE IF EXISTS awr_bench" -c "CREATE DATABASE awr_bench"
    "$PG_BIN/pgbench" -i -q -s 50 -h "$WORK/run" -p "$(cluster_port plain)" -U postgres awr_bench >"$WORK/pgbench.log" 2>&1
    say
    say "## Overhead of AWR"
    say
    say "| 64 clients, one-second samples and statistics of statements | off, tps | on, tps | on / off, median of pairs | mean ± standard error | CPU off, µs | CPU on, µs | on / off, mean ± standard error |"
    say "|---|---:|---:|---:|---:|---:|---:|---:|"
    PGHOST=$WORK/run PGPORT=$(cluster_port plain) PGUSER=postgres PGDATABASE=awr_bench \
        "$ROOT/bench/awr/overhead.py" --pgbench "$PG_BIN/pgbench" --psql "$PG_BIN/psql" --pairs "$((4 * RUNS))"
    sql plain postgres -c "ALTER SYSTEM SET cellar.awr_track_statements = on" \
        -c "ALTER SYSTEM SET cellar.awr_sample_period = 1000" -c "SELECT pg_reload_conf()" >/dev/null

    # 10,000 relations and 5,000 statements; then 192 snapshots, as in eight days of one each hour.
    sql plain awr_bench -c "SET client_min_messages = warning" -c "DO \$\$ BEGIN FOR i IN 1 .. 5000 LOOP
          EXECUTE format('CREATE TABLE t%s (a int PRIMARY KEY)', i); IF i % 500 = 0 THEN COMMIT; END IF; END LOOP; END \$\$"
    sql plain postgres -c "SELECT awr.create_snapshot('bench')" >/dev/null
    for ((i = 1; i <= 5000; i++)); do echo "SELECT count(*) FROM t$i;"; done | sql plain awr_bench >/dev/null
    sql plain postgres -c "SELECT awr.create_snapshot('bench')" >/dev/null
    say
    say "## AWR of a large cluster"
    say
    say "| 10,000 relations, 5,000 statements | ms |"
    say "|---|---:|"
    say "| AWR snapshot in which all changed | $(sql plain postgres -c "SELECT duration_us / 1000 FROM awr.snapshots ORDER BY snap_id DESC LIMIT 1") |"
    sql plain postgres -c "SELECT awr.create_snapshot('bench')" >/dev/null
    say "| AWR snapshot in which few changed | $(sql plain postgres -c "SELECT duration_us / 1000 FROM awr.snapshots ORDER BY snap_id DESC LIMIT 1") |"
    sql plain postgres -c "DO \$\$
      DECLARE source bigint := (SELECT max(snap_id) - 1 FROM awr.snapshot); first bigint; columns text;
      BEGIN
        SELECT max(snap_id) INTO first FROM awr.snapshot;
        PERFORM setval('awr.snap_id', first + 192);
        FOR i IN 1 .. 192 LOOP
          PERFORM awr.create_partitions(((end_time + i * interval '1 hour') AT TIME ZONE 'UTC')::date) FROM awr.snapshot WHERE snap_id = first;
          INSERT INTO awr.snapshot SELECT ((end_time + i * interval '1 hour') AT TIME ZONE 'UTC')::date, first + i, instance_id, end_time + (i - 1) * interval '1 hour',
            end_time + i * interval '1 hour', 3600000000, 'bench', 0, startup_time, facts FROM awr.snapshot WHERE snap_id = first;
        END LOOP;
        SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) INTO columns FROM pg_attribute WHERE attrelid = 'awr.plan_stat'::regclass AND attnum > 3;
        EXECUTE format('INSERT INTO awr.plan_stat SELECT s.snap_day, s.snap_id, 1, %s FROM (SELECT * FROM awr.plan_stat WHERE snap_id = \$2) p, (SELECT snap_day, snap_id FROM awr.snapshot WHERE snap_id > \$1) s',
                       columns) USING first, source;
        ANALYZE awr.plan_stat;
      END \$\$"
    local last start end
    last=$(sql plain postgres -c "SELECT max(snap_id) FROM awr.snapshot")
    start=$(date +%s%N)
    sql plain postgres -c "SELECT length(awr.report($((last - 192)), $last, 'html'))" >/dev/null
    end=$(date +%s%N)
    say "| HTML report over 192 AWR snapshots | $(((end - start) / 1000000)) |"
    sql plain postgres -v first=$((last - 192)) -f "$ROOT/bench/awr/samples.sql" >/dev/null
    start=$(date +%s%N)
    while [ "$(sql plain postgres -c "SELECT awr.sum_samples()")" != 0 ]; do :; done
    end=$(date +%s%N)
    # The AWR worker does this once a minute, for one day that is over.
    sql plain postgres -c "SELECT awr.sum_samples() FROM generate_series(1, 10)" >/dev/null
    say "| sums of the 180,000 session samples of one AWR snapshot | $(((end - start) / 192 / 1000000)) |"
    start=$(date +%s%N)
    sql plain postgres -c "SELECT length(awr.report($((last - 192)), $last, 'html'))" >/dev/null
    end=$(date +%s%N)
    say "| HTML report over 192 AWR snapshots with 34,560,000 session samples | $(((end - start) / 1000000)) |"
    say
    say "Disk space of the session samples of one day: $(sql plain postgres -c "SELECT pg_size_pretty(sum(pg_total_relation_size(inhrelid)) / 8)
        FROM pg_inherits WHERE inhparent = 'awr.sample_chunk'::regclass")."
    cluster_stop plain
}

part_clickbench() {
    local hits=()
    [ -z "${HITS:-}" ] || hits=(--hits "$HITS")
    restart_mount "wal_level = minimal" "max_wal_senders = 0" "max_wal_size = 4GB"
    say
    say "## ClickBench"
    say
    local clone=(--clickbench "${CLICKBENCH:-https://github.com/ClickHouse/ClickBench}" --work "$BENCH_DIR")
    python clickbench/run.py --rows "${ROWS:-1000000}" "${clone[@]}" "${hits[@]}"
    python analytics.py clickbench --duckdb "$WORK/hits.duckdb" "${clone[@]}"
}

# The 22 queries of TPC-H, all tables raw and compressed, beside DuckDB.
part_tpch() {
    load
    say
    say "## TPC-H $SF"
    say
    python analytics.py tpch --duckdb "$WORK/tpch.duckdb"
}

for part in "${parts[@]}"; do
    declare -F "part_$part" >/dev/null || die "there is no part $part"
    printf '<!-- part: %s -->\n' "$part"
    "part_$part"
done
say
say "written to ${report#"$ROOT"/}" >&2
# tee has written the whole report when it exits.
exec >&2
wait "$tee_pid" || true
if [ "$failed" = 0 ] && [ "${HISTORY:-yes}" != no ]; then
    python3 "$ROOT/bench/history.py" append "$report" --commit "$commit" --postgres "$("$PG_CONFIG" --version)" \
        --command "$command" --load "$load_before" --size "scans=sf=$SF" --size "cold=sf=$SF" --size "tpch=sf=$SF" --size "compression=sf=$SF" \
        --size "clickbench=rows=$([ -n "${HITS:-}" ] && echo hits || echo "${ROWS:-1000000}")"
fi
[ "$failed" = 0 ]
