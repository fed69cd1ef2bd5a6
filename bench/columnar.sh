#!/usr/bin/env bash
# The columnar cache: TPC-H's queries Q6 and Q1 over raw heap, without and with the cache, and over a table that is compressed at
# QUERY LOW. All is in the memory of the cell, so that the work is compared, not the disks. Prints a Markdown table of medians that
# include the start of psql, and fails if results differ. Nothing else should run on the machine.
#
#   columnar.sh
#
#   SF=1              TPC-H scale factor
#   RUNS=5            timed runs of each query
#   BENCH_DIR=/tmp    folder of the cell and flash disks
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//p}' "$0"; exit ;; esac
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
SF=${SF:-1} RUNS=${RUNS:-5}

extension_installed || die "the extension is not installed: run scripts/build.sh extension"
export CELLAR_WORK_PARENT=${BENCH_DIR:-/tmp}
work_begin bench-columnar
data=$WORK/cell1/pgdata
queries=(q06 q01)
q() { PGOPTIONS='-c max_parallel_workers_per_gather=0 -c jit=off' sql columnar postgres "$@"; }
# milliseconds QUERY: the median of the runs. The result must be that of the first state.
milliseconds() {
    local run begin
    for ((run = 0; run < RUNS; run++)); do
        begin=$(date +%s%N)
        q -f "$ROOT/bench/tpch/$1.sql" >"$WORK/$1.now"
        echo $((($(date +%s%N) - begin) / 1000))
        [ -e "$WORK/$1.first" ] || cp "$WORK/$1.now" "$WORK/$1.first"
        cmp -s "$WORK/$1.now" "$WORK/$1.first" || die "the result of $1 differs"
    done | sort -n | awk '{ us[NR] = $1 } END { printf "%.1f", us[int((NR + 1) / 2)] / 1000 }'
}
# state LABEL: one row of the table.
state() {
    local query time row="| $1 |"
    # An assignment: the script ends if the function fails.
    for query in "${queries[@]}"; do
        time=$(milliseconds "$query")
        row+=" $time |"
    done
    echo "$row"
}
cached() { "$CELLAR_BIN" cellcli --cell "$WORK/cell1.toml" -e "list flashcachecontent attributes columnarCacheSize where objectNumber = $(q -c "SELECT pg_relation_filenode('lineitem')")" | tr -dc '0-9.KMGT'; }

cell_configure cell1 "$((2 * SF + 1))GiB"
sed -i "s|^log_level|flash_disks = [\"$WORK/flash\"]\nflash_cache_size = \"256MiB\"\ncolumnar_cache_size = \"${SF}GiB\"\nlog_level|" "$WORK/cell1.toml"
cell_start cell1 >/dev/null
cluster_create columnar "$data" --data-checksums >/dev/null
cluster_set "$data" "shared_preload_libraries = 'cellar'" "shared_buffers = 128MB" "autovacuum = off" "max_wal_size = 8GB"
cluster_start columnar "$data" >/dev/null
q -c "CREATE EXTENSION cellar" >/dev/null
"$HARNESS_BIN" --dsn "$(cluster_dsn columnar postgres)" tpch-load --scale "$SF" --directory "$ROOT/bench/tpch" --no-indexes >&2
q -c "VACUUM (FREEZE, ANALYZE) lineitem" -c CHECKPOINT -c "SELECT cellar.set_flash_cache('lineitem', 'none')" >/dev/null

printf '| lineitem of %s, ms | Q6 | Q1 |\n|---|---:|---:|\n' "$(q -c "SELECT pg_size_pretty(pg_relation_size('lineitem'))")"
q -c "ALTER SYSTEM SET cellar.cell_offload_processing = off" -c "SELECT pg_reload_conf()" >/dev/null
state "raw heap, PostgreSQL"
q -c "ALTER SYSTEM RESET cellar.cell_offload_processing" -c "SELECT pg_reload_conf()" >/dev/null
state "raw heap, Smart Scan"
q -c "SELECT cellar.set_flash_cache('lineitem', 'default')" >/dev/null
# Scans fill the cache until it does not grow any more.
before=none
for ((tries = 0; tries < 60; tries++)); do
    for query in "${queries[@]}"; do q -f "$ROOT/bench/tpch/$query.sql" >/dev/null; done
    sleep 3
    now=$(cached)
    [ "$now" != "$before" ] || [ -z "${now//[0.KMGT]/}" ] || break
    before=$now
done
state "raw heap, columnar cache of ${now%%.*} MiB"
q -c "SELECT cellar.compress('lineitem', 'query low')" >/dev/null
state "QUERY LOW, $(q -c "SELECT pg_size_pretty(sum(stored_bytes)) FROM cellar.compression('lineitem')")"
cluster_stop columnar >/dev/null
cell_stop cell1
