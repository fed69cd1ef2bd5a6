#!/usr/bin/env bash
# A cluster on a cell whose disks change under pgbench: a disk joins, then the first one is dropped. The cell and the
# cluster are killed during both rebalances, which the next start continues.
#
#   rebalance.sh [--copies]      with --copies: of a group with two copies, whose first disk is lost, dropped by force, and
#                                replaced by an empty disk at the same path
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

copies=''
case ${1:-} in
--copies) copies=1 ;;
'') ;;
*) die "unknown option $1" ;;
esac
work_begin "rebalance${copies:+_copies}"
first=$WORK/first second=$WORK/second third=$WORK/third data=$WORK/cell1/pgdata

group() { "$CELLAR_BIN" group "$@" --config "$WORK/cell1.toml"; }
state_of() { group status --json | grep -A20 '"rebalance": {' | grep '"state"' | head -n 1 | cut -d'"' -f4; }
is_done() { [ "$(state_of)" = DONE ] && echo t; }
moved() { group status --json | grep -A20 '"rebalance": {' | grep '"sofar"' | head -n 1 | grep -o '[0-9]*'; }
is_moving() { [ "$(moved)" -gt 0 ] && echo t; }
has_left() {
    local status
    status=$(group status --json) && ! grep -qF "\"path\": \"$1\"" <<<"$status" && echo t
}
is_degraded() { [ "$(group status --json | grep -c '"DEGRADED"')" = 1 ] && echo t; }
# is_complete DISKS
is_complete() {
    local status
    status=$(group status --json) && [ "$(grep -c '"disk_number"' <<<"$status")" = "$1" ] && ! grep -q '"DEGRADED"' <<<"$status" && echo t
}
used_mib() { du -sm "$1/data" | cut -f1; }

bench() { "$PG_BIN/pgbench" -n -h "$WORK/run" -p "$(cluster_port rebalance)" -U postgres "$@" postgres; }
transactions() { sql rebalance postgres -c "SELECT count(*) FROM pgbench_history"; }
balances() {
    sql rebalance postgres -c "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
        AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(tbalance) FROM pgbench_tellers)
        AND (SELECT sum(delta) FROM pgbench_history) = (SELECT sum(bbalance) FROM pgbench_branches)"
}

# kill_under_load WHAT: kills the cell and the cluster while the rebalance moves allocation units under pgbench, and starts both.
kill_under_load() {
    local load committed
    committed=$(transactions)
    bench -c 3 -T 60 >"$WORK/load.log" 2>&1 &
    load=$!
    check "$1: the rebalance moves allocation units" wait_for_true 30 is_moving
    check "$1: the rebalance is not complete" test "$(state_of)" = RUN
    cell_kill
    cluster_kill rebalance
    wait "$load" || true
    cell_start cell1
    cluster_start rebalance "$data"
    check "$1: the balances are equal after kill -9" test "$(balances)" = t
    check "$1: no committed transaction is missing" test "$(transactions)" -ge "$committed"
    group rebalance --power 11 >/dev/null
    bench -c 3 -t 200 >>"$WORK/pgbench.log" 2>&1
}

if [ "$copies" ]; then
    CELL_RESERVE=16MiB cell_configure cell1 64MiB "$first" "$second"
    sed -i 's/redundancy = "external"/redundancy = "normal"/' "$WORK/cell1.toml"
    new=$third
else
    CELL_RESERVE=16MiB cell_configure cell1 64MiB "$first"
    new=$second
fi
sed -i 's/au_size = .*/au_size = "1MiB"/' "$WORK/cell1.toml"
cell_start cell1
cluster_create rebalance "$data" --data-checksums
cluster_set "$data" "shared_buffers = 16MB" "max_wal_size = 64MB" "min_wal_size = 64MB" "checkpoint_timeout = 30s"
cluster_start rebalance "$data"
bench -i -q -s 4 >"$WORK/pgbench.log" 2>&1
sql rebalance postgres -c "CREATE EXTENSION amcheck" >/dev/null

group rebalance --power 1 >/dev/null
mkdir "$new"
check "a disk joins the running group" group add "$new"
check "the configuration names the disk" grep -q "$new" "$WORK/cell1.toml"
kill_under_load "a disk joins"
check "the rebalance completes" wait_for_true 60 is_done
one=$(used_mib "$first") two=$(used_mib "$new")
check "the disks are used evenly ($one and $two MiB)" test "$(((one - two) * (one - two)))" -le "$(((one + two) * (one + two) / 400 + 16))"

group rebalance --power 1 >/dev/null
if [ "$copies" ]; then
    bench -c 3 -T 8 >"$WORK/load.log" 2>&1 &
    load=$!
    sleep 1
    group offline "$first" >/dev/null
    mv "$first" "$WORK/lost"
    check "the group is degraded" wait_for_true 30 is_degraded
    check "a lost disk is not dropped without force" bash -c "! '$CELLAR_BIN' group drop '$first' --config '$WORK/cell1.toml'"
    mkdir "$first"
    check "an empty disk replaces the lost one" group replace "$first" "$first"
    exited=0
    wait "$load" || exited=$?
    check "pgbench goes on" test "$exited" = 0
    check "no transaction failed" grep -q "^number of failed transactions: 0 " "$WORK/load.log"
    kill_under_load "a lost disk is replaced"
    check "the copies are complete" wait_for_true 60 is_complete 3
    committed=$(transactions)
    check "Postgres stops before the loss of a second disk" cluster_stop rebalance
    check "the cell stops before the loss of a second disk" cell_stop cell1
    # The lost disk comes back in place of another one: nothing of it may be read.
    mv "$second" "$WORK/second_lost"
    mv "$WORK/lost" "$second"
    cell_start cell1
    cluster_start rebalance "$data"
    check "no committed transaction is missing without the second disk" test "$(transactions)" = "$committed"
    check "the second disk is not used" wait_for_true 10 is_degraded
    first=$second
else
    check "the first disk is being dropped" group drop "$first"
    kill_under_load "a disk is dropped"
    check "the disk leaves the group" wait_for_true 60 has_left "$first"
    check "the disk is empty" test -z "$(find "$first/data" -type f)"
fi
check "the balances are equal" test "$(balances)" = t
check "amcheck finds no damage" sql rebalance postgres -c "SELECT bt_index_check(c.oid, true) FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid
    JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'btree' AND c.relpersistence = 'p'"
check "Postgres stops" cluster_stop rebalance
check "pg_checksums finds no wrong checksum" as_pg "$PG_BIN/pg_checksums" --check -D "$data"
check "the cell stops" cell_stop cell1
sed -i "s|\"$first\", *||" "$WORK/cell1.toml"
rm -r "$first"
cell_start cell1
cluster_start rebalance "$data"
check "all data are on the other disks" test "$(balances)" = t
check "Postgres stops again" cluster_stop rebalance
check "the cell stops again" cell_stop cell1
check "the cell has logged no panic" bash -c "! grep -q panicked '$WORK/cell1.log'"
checks_end
