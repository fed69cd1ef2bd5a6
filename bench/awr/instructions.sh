#!/usr/bin/env bash
# Instructions of a session per transaction of pgbench, with AWR's statistics of statements off and on. valgrind counts them, so
# that the load of the machine does not matter; the kernel's instructions are not included. Each count is the difference of two
# runs of different length on the same data, without the start and the end of the session.
#
# Executions are so slow under valgrind that the CPU time of each is read; otherwise it is read in one execution of 32. The last column
# therefore counts one of 32 readings.
#
#   instructions.sh [--short N] [--long N] [--kind KIND]    transactions of both runs; one kind of transaction: TPC-B, or options
#                                                           of pgbench such as '-S -M prepared'
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

short=100
long=400
kinds=(TPC-B -S '-S -M prepared')
while [ $# -gt 0 ]; do
    case $1 in
    --short) short=$2 ;;
    --long) long=$2 ;;
    --kind) kinds=("$2") ;;
    *) die "unknown option $1" ;;
    esac
    shift 2
done
command -v valgrind >/dev/null || die "valgrind is not installed"
extension_installed || die "the extension is not installed: run scripts/build.sh extension"
work_begin instructions
install -d -m 777 "$WORK/counts"
data=$WORK/data
cluster_create instructions "$data"
cluster_set "$data" "shared_preload_libraries = 'cellar'" "cellar.awr_snapshot_interval = 0" "autovacuum = off" "fsync = off" "jit = off" \
    "checkpoint_timeout = 1d" "bgwriter_lru_maxpages = 0" "max_parallel_workers_per_gather = 0"
cluster_start instructions "$data"
pgbench() { as_pg "$PG_BIN/pgbench" -h "$WORK/run" -p "$(cluster_port instructions)" -U postgres "$@" postgres >"$WORK/pgbench.log" 2>&1; }
pgbench -i -q -s 1
cluster_stop instructions

# count SETTING TRANSACTIONS OPTION...: sets $instructions of the session that executed the transactions, and $readings: those that
# read CPU times.
count() {
    local setting=$1 transactions=$2 longest pid
    shift 2
    rm -rf "$WORK/counts"/* "$WORK/copy"
    cp -a "$data" "$WORK/copy"
    as_pg valgrind -q --tool=callgrind --trace-children=yes --callgrind-out-file="$WORK/counts/%p" "$PG_BIN/postgres" -D "$WORK/copy" \
        -c "unix_socket_directories=$WORK/run" -c "port=$(cluster_port instructions)" -c "cellar.awr_track_statements=$setting" >"$WORK/valgrind.log" 2>&1 &
    remember_process $!
    wait_for_true 120 sql instructions postgres -c "SELECT true" || die "the server did not start under valgrind"
    pid=$(head -n 1 "$WORK/copy/postmaster.pid")
    rm -f "$WORK/counts"/*
    pgbench -n -c 1 -t "$transactions" --random-seed=7 "$@"
    kill -INT "$pid"
    wait_gone "$pid" 120 || die "the server did not stop"
    # The session of pgbench executed the most instructions.
    longest=$(awk '$1 == "totals:" && $2 > most { most = $2; file = FILENAME } END { print file }' "$WORK/counts"/*)
    instructions=$(awk '$1 == "totals:" { print $2 }' "$longest")
    readings=$(callgrind_annotate --inclusive=yes --threshold=100 "$longest" |
        awk '/:cellar_read_kernel_times / && !n { n = $1; gsub(",", "", n) } END { print n + 0 }')
}

printf '| transactions | off | on | difference | with few readings |\n|---|--:|--:|--:|--:|\n'
for kind in "${kinds[@]}"; do
    options=()
    [ "$kind" = TPC-B ] || read -ra options <<<"$kind"
    for setting in off on; do
        count "$setting" "$short" "${options[@]}"
        few=$instructions
        few_readings=$readings
        count "$setting" "$long" "${options[@]}"
        declare "$setting=$(((instructions - few) / (long - short)))"
    done
    # shellcheck disable=SC2154
    printf '| pgbench %s | %d | %d | %s |\n' "$kind" "$off" "$on" "$(awk -v a="$off" -v b="$on" -v r="$(((readings - few_readings) / (long - short)))" \
        'BEGIN { printf "%.1f %% | %.1f %%", 100 * (b - a) / a, 100 * (b - a - r * 31 / 32) / a }')"
done
