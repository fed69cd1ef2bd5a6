#!/usr/bin/env bash
# The demonstration: a cell with two cell disks, a stock Postgres on its mount, and TPC-H. Times the queries on heap
# tables with Smart Scan off and on, compresses the tables, and times the queries on the compressed tables.
# A second run reuses the cluster and the loaded database.
#
#   demo.sh [start]    starts the cell and Postgres, loads TPC-H, runs the queries; Postgres keeps running
#   demo.sh stop       stops Postgres and the cell; keeps the data
#   demo.sh remove     stops them and deletes the data
#
#   SF=1               scale factor
#   RUNS=3             timed runs of a query; a query that takes longer than half a second runs once
#   LEVEL='query low'  compression level: query low, query high, archive low or archive high
#   CACHE=2GiB         page cache of the cell
#   DEMO_DIR=.demo     folder of the cell disks, the mount and the logs
set -euo pipefail

SF=${SF:-1}
RUNS=${RUNS:-3}
LEVEL=${LEVEL:-query low}
refuse() { printf 'demo.sh: %s\n' "$*" >&2; exit 1; }
[[ $SF =~ ^[0-9]*\.?[0-9]+$ && $SF =~ [1-9] ]] || refuse "SF must be a scale factor such as 0.1, 1 or 10, not '$SF'"
[[ $RUNS =~ ^[1-9][0-9]*$ ]] || refuse "RUNS must be a number of runs, 1 or more, not '$RUNS'"
case $LEVEL in
'query low' | 'query high' | 'archive low' | 'archive high') ;;
*) refuse "LEVEL must be 'query low', 'query high', 'archive low' or 'archive high', not '$LEVEL'" ;;
esac
case ${1:-start} in
start) "$(dirname "$0")/install-deps.sh" ;;
stop | remove) ;;
*) refuse "usage: demo.sh [start|stop|remove]" ;;
esac

CELLAR_PROFILE=${CELLAR_PROFILE:-release}
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
WORK=${DEMO_DIR:-$ROOT/.demo}

case ${1:-start} in
stop) instance_stop demo; exit 0 ;;
remove) instance_remove demo; exit 0 ;;
esac

step() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }

step "building (release)"
"$ROOT/scripts/build.sh" extension

instance_folder

# A failed step stops what this run started; servers that ran before keep running.
started=0
give_up() {
    local status=$?
    if [ "$status" != 0 ] && [ "$started" = 1 ]; then
        say "stopping, because a step failed"
        instance_stop demo
    fi
    exit "$status"
}
trap give_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

if instance_running demo; then
    step "the cell and Postgres $PG_MAJOR are already running"
else
    step "starting cell1 with two cell disks, mounted on $WORK/cell1, and Postgres $PG_MAJOR on the mount"
    started=1
    # random_page_cost fits memory and flash: where an index serves a query well, the index wins against any scan.
    instance_start demo "${CACHE:-2GiB}" "random_page_cost = 1.1" "checkpoint_timeout = 15min" "track_io_timing = on"
fi

database=tpch_$(printf '%s' "$SF" | tr . _)
[ "$(sql demo postgres -c "SELECT count(*) FROM pg_database WHERE datname = '$database'")" = 1 ] ||
    sql demo postgres -c "CREATE DATABASE $database"
sql demo "$database" -c "SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS cellar"

step "TPC-H, scale factor $SF, database $database"
"$HARNESS_BIN" --dsn "$(cluster_dsn demo "$database")" tpch-load --scale "$SF" --directory "$ROOT/bench/tpch"

# The AWR repository is in the database postgres.
sql demo postgres -c "SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS cellar; SELECT awr.create_snapshot('demo')" >"$WORK/awr-begin"

failed=0
step "12 scans and the 22 TPC-H queries: heap tables, then compressed (warm data, serial plans, medians of $RUNS runs)"
"$HARNESS_BIN" --dsn "$(cluster_dsn demo "$database")" demo "$ROOT/bench/scans" "$ROOT/bench/tpch" \
    --runs "$RUNS" --level "$LEVEL" --set max_parallel_workers_per_gather=0 || failed=1
sql demo postgres -c "SELECT awr.create_snapshot('demo')" >"$WORK/awr-end"
for form in text html; do
    "$CELLAR_BIN" awr report --dsn "$(cluster_dsn demo)" --begin "$(cat "$WORK/awr-begin")" --end "$(cat "$WORK/awr-end")" \
        --format "$form" --output "$WORK/awr.${form/text/txt}" || failed=1
done
# After a difference the servers keep running, so that its cause can be examined.
started=0

cat <<END

Report:   $WORK/awr.html and awr.txt: the AWR report about these runs
Connect:  $PG_BIN/psql -h $WORK/run -p $(cluster_port demo) -U postgres $database
          SET cellar.cell_offload_processing = off;  EXPLAIN (ANALYZE) SELECT ...;  TABLE cellar.sysstat;
Stop:     make demo-stop      (keeps the data; make demo-remove deletes them)      total: $SECONDS s
END
[ "$failed" = 0 ]
