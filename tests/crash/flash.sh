#!/usr/bin/env bash
# A cluster on a cell with a flash cache, first also with a flash log: kill -9 of the cell and of Postgres under pgbench, with a flash disk that stays, that is
# an older copy, and that is lost. Cell disks that follow a device model are slow, so pages are read from flash.
#
#   flash.sh
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

work_begin flash
data=$WORK/cell1/pgdata flash=$WORK/flash

bench() { "$PG_BIN/pgbench" -n -h "$WORK/run" -p "$(cluster_port flash)" -U postgres "$@" postgres; }
# Prints t if the balances of pgbench's tables are equal.
balances() {
    sql flash postgres -c "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
        AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM pgbench_history)"
}
transactions() { sql flash postgres -c "SELECT count(*) FROM pgbench_history"; }
flash_cache() { as_pg env CELLAR_CELL="$WORK/cell1.toml" "$CELLAR_BIN" cellcli -e "list $*"; }
hits() { flash_cache "metriccurrent where name = FC_IO_RQ_R" | grep -oE '[0-9,.]+ IO requests' | tr -dc '0-9\n'; }

# check_after WHAT: checks after a kill and a start that no transaction is missing and no page is stale.
check_after() {
    check "$1: the balances are equal" test "$(balances)" = t
    check "$1: no committed transaction is missing" test "$(transactions)" -ge "$committed"
}

# Copies the flash disk while it has pages of a table in regions without an intent, which change afterwards: each of these
# changes relies on an intent that the copy lacks.
copy_flash() {
    sql flash postgres -c "SELECT count(*) FROM aside" >/dev/null
    # Pages are written to flash after the reads were answered.
    sleep 1
    cp -a "$flash" "$WORK/copy"
    sql flash postgres -c "UPDATE aside SET filler = 'changed' WHERE id % 50 = 0" -c CHECKPOINT
}

# Checks that commits go to the flash log.
log_is_used() {
    check "LIST FLASHLOG shows the flash log" grep -q normal <(flash_cache flashlog)
    local writes
    writes=$(flash_cache "metriccurrent where name = FL_IO_W" | grep -oE '[0-9,.]+ IO requests' | tr -dc '0-9')
    check "commits use the flash log" test "$writes" -gt 0
}

# kill_under_load [COMMAND ...]: runs pgbench, COMMAND in the middle, and kills the cell and Postgres.
kill_under_load() {
    bench -c 3 -T 20 >"$WORK/load.log" 2>&1 &
    local load=$!
    sleep 1.5
    "$@"
    sleep 1.5
    committed=$(transactions)
    cell_kill
    cluster_kill flash
    wait "$load" || true
}

run() {
    cell_configure cell1 16MiB "$WORK/disk"
    sed -i "s|^log_level|flash_disks = [\"$flash\"]\nflash_cache_size = \"192MiB\"\nflash_log_size = \"16MiB\"\nlog_level|" "$WORK/cell1.toml"
    printf 'model = "hdd-7k2"\nmodel_time_scale = 0.01\n' >>"$WORK/cell1.toml"
    cell_start cell1
    cluster_create flash "$data" --data-checksums
    cluster_set "$data" "shared_buffers = 1MB" "max_wal_size = 64MB" "min_wal_size = 64MB" "checkpoint_timeout = 30s"
    cluster_start flash "$data"
    bench -i -q -s 3 >"$WORK/pgbench.log" 2>&1
    # Not read before the first kill, so that no memory has its pages after it.
    sql flash postgres -c "CREATE TABLE aside AS SELECT id, repeat('x', 500) AS filler FROM generate_series(1, 8000) id" \
        -c "VACUUM (FREEZE) aside" -c CHECKPOINT

    kill_under_load log_is_used
    # The redo that only flash has is written to its files, and the flash log removed.
    sed -i '/^flash_log_size/d' "$WORK/cell1.toml"
    cell_start cell1
    cluster_start flash "$data"
    check_after "the flash disk stays"
    check "the flash log is removed" test ! -e "$flash/flash_log_ring"

    # The copy is made while the cell runs, and lacks later changes.
    kill_under_load copy_flash
    rm -rf "$flash"
    mv "$WORK/copy" "$flash"
    cell_start cell1
    cluster_start flash "$data"
    check "the copy of the flash disk is recognized" grep -q "lack what the cell disks say" "$WORK/cell1.log"
    check_after "the flash disk is an older copy"
    check_equal "the changed rows are those of before the kill" "$(sql flash postgres -c "SELECT count(*), count(*) FILTER (WHERE filler = 'changed') FROM aside")" "8000|160"
    check "reads are answered by flash" test "$(hits)" -gt 0

    kill_under_load true
    rm -rf "$flash"
    cell_start cell1
    cluster_start flash "$data"
    check_after "the flash disk is lost"
    check "LIST FLASHCACHE says that the flash disk is missing" grep -q critical <(flash_cache flashcache)
    check "Postgres stops" cluster_stop flash
    check "pg_checksums finds no wrong checksum" as_pg "$PG_BIN/pg_checksums" --check -D "$data"
    check "the cell stops and unmounts" cell_stop cell1
    check "the cell has logged no panic" bash -c "! grep -q panicked '$WORK/cell1.log'"
}

run
checks_end
