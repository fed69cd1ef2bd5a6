#!/usr/bin/env bash
# The demonstration: a cell with two cell disks, a stock Postgres on its mount, TPC-H, and the same queries with Smart
# Scan off and on. Running it again takes up what is there already.
#
#   demo.sh [start]    SF=1 scale factor, RUNS=3 timed runs a query, DEMO_DIR=.demo, CACHE=… the cell's page cache
#   demo.sh stop       stops Postgres and the cell; the data stay
#   demo.sh remove     stops them and deletes the data
set -euo pipefail
[ "${1:-start}" != start ] || "$(dirname "$0")/install-deps.sh"
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

SF=${SF:-1}
RUNS=${RUNS:-3}
WORK=${DEMO_DIR:-$ROOT/.demo}
# shellcheck disable=SC2034  # read by cleanup
WORK_KEPT=1
DATA=$WORK/cell1/pgdata

stop() {
    if [ -e "$WORK/processes" ]; then
        cluster_stop demo || true
        CELL_PID=$(cat "$WORK/cell1.pid" 2>/dev/null || true)
        [ -z "$CELL_PID" ] || cell_stop cell1 || true
        cleanup
        rm -f "$WORK/cell1.pid"
        say "Postgres and the cell are stopped, nothing is mounted; the data are kept in $WORK"
    else
        say "nothing is running in $WORK"
    fi
}

case ${1:-start} in
start) ;;
stop) stop; exit 0 ;;
remove)
    stop
    # A mount must never be entered by a deletion.
    ! is_mounted "$WORK/cell1" || die "$WORK/cell1 is still mounted"
    rm -rf --one-file-system "$WORK"
    say "$WORK is deleted"
    exit 0
    ;;
*) die "use: demo.sh [start|stop|remove]" ;;
esac

[[ $SF =~ ^[0-9]*\.?[0-9]+$ && $SF =~ [1-9] ]] || die "SF is a scale factor such as 0.1, 1 or 10, not '$SF'"

step() { printf '\n== %s\n' "$*"; }

step "building (release)"
"$ROOT/scripts/build.sh" extension

mkdir -p "$WORK"
chmod 755 "$WORK"
as_pg test -x "$WORK" || die "user $OS_USER cannot enter $WORK; set DEMO_DIR to a folder that it can reach"
((${#WORK} <= 70)) || die "$WORK is too long for a socket's path; set DEMO_DIR to a shorter one"
touch "$WORK/processes" "$WORK/mounts"

# What does not finish is stopped again; what finishes, or was up before, stays up.
started=0
give_up() {
    local status=$?
    if [ "$status" != 0 ] && [ "$started" = 1 ]; then
        say "stopping, because a step failed"
        stop
    fi
    exit "$status"
}
trap give_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

running() {
    [ -e "$WORK/cell1.pid" ] && kill -0 "$(cat "$WORK/cell1.pid")" 2>/dev/null && is_mounted "$WORK/cell1" &&
        "$PG_BIN/pg_isready" -q -U postgres -h "$WORK/run" -p "$(cluster_port demo)"
}

if running && [ "$CELLAR_BIN" -ot "$WORK/cell1.pid" ]; then
    step "the cell and Postgres are running already"
else
    started=1
    if [ -e "$WORK/cell1.pid" ]; then stop; touch "$WORK/processes" "$WORK/mounts"; fi
    step "starting cell1 with two cell disks, mounted on $WORK/cell1"
    cell_configure cell1 "${CACHE:-2GiB}"
    cell_start cell1
    printf '%s\n' "$CELL_PID" >"$WORK/cell1.pid"
    if [ ! -e "$DATA/PG_VERSION" ]; then
        step "initdb on the mount"
        cluster_create demo "$DATA" --data-checksums
        # What is read here is in memory or on flash: an index that serves a query well shall win against any scan.
        cluster_set "$DATA" "shared_preload_libraries = 'cellar'" "random_page_cost = 1.1" \
            "checkpoint_timeout = 15min" "track_io_timing = on"
    elif [ "$(cat "$DATA/PG_VERSION")" != "$PG_MAJOR" ]; then
        die "$WORK holds a cluster of Postgres $(cat "$DATA/PG_VERSION"), this is $PG_MAJOR: run 'scripts/demo.sh remove' first"
    fi
    step "starting Postgres $PG_MAJOR on the mount"
    cluster_start demo "$DATA"
fi

database=tpch_$(printf '%s' "$SF" | tr . _)
[ "$(sql demo postgres -c "SELECT count(*) FROM pg_database WHERE datname = '$database'")" = 1 ] ||
    sql demo postgres -c "CREATE DATABASE $database"
sql demo "$database" -c "SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS cellar"

step "TPC-H, scale factor $SF, database $database"
"$HARNESS_BIN" --dsn "$(cluster_dsn demo "$database")" tpch-load --scale "$SF" --directory "$ROOT/bench/tpch"

if [ "$SF" = 1 ]; then
    step "the 22 answers against those published by the TPC"
    "$HARNESS_BIN" --dsn "$(cluster_dsn demo "$database")" tpch-answers --directory "$ROOT/bench/tpch" |
        awk '/^ok/ { n++ } /^not ok/ { print } END { print n + 0 " of 22 as published" }'
fi

step "queries with Smart Scan off and on (warm, in turns, medians of $RUNS; serial plans)"
"$HARNESS_BIN" --dsn "$(cluster_dsn demo "$database")" compare "$ROOT/bench/scans" "$ROOT/bench/tpch" \
    --runs "$RUNS" --efficiency --set max_parallel_workers_per_gather=0

cat <<END

Connect:  $PG_BIN/psql -h $WORK/run -p $(cluster_port demo) -U postgres $database
          try  SET cellar.cell_offload_processing = off;  EXPLAIN (ANALYZE) …;  TABLE cellar.sysstat;
Stop:     make demo-stop           (keeps the data)
Delete:   scripts/demo.sh remove
END
