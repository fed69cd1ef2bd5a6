#!/usr/bin/env bash
# A cluster on a cell with two copies. One cell disk fails under pgbench, which goes on; the disk returns while the cell runs;
# a scrub repairs a damaged page. The disk fails again, everything is killed; the disk returns and is resynced; then the other
# disk is lost, and all data are there.
#
#   mirrored.sh
#
# The disk that fails is a small file system whose journal is aborted, so that every later write is an error.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

work_begin mirrored
first=$WORK/first second=$WORK/second data=$WORK/cell1/pgdata
mkdir -p "$second"

mount_second() { mount -o loop "$WORK/image" "$second" 2>/dev/null; }

prepare_second() {
    [ "$(id -u)" = 0 ] || return 1
    truncate -s 700M "$WORK/image"
    mkfs.ext4 -q -m 0 "$WORK/image" 2>/dev/null && mount_second || return 1
    printf '%s\n' "$second" >>"$WORK/mounts"
}

status_of() { as_pg "$CELLAR_BIN" group status --config "$WORK/cell1.toml" --json | grep -o "\"$1\": *\"[A-Z]*\"" | tail -n 1 | cut -d'"' -f4; }
is_state() { [ "$(status_of state)" = "$1" ] && echo t; }

bench() { "$PG_BIN/pgbench" -n -h "$WORK/run" -p "$(cluster_port mirrored)" -U postgres "$@" postgres; }

# Prints the balances of pgbench's tables, which are equal, and the number of committed transactions.
balances() {
    sql mirrored postgres -c "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
        AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(tbalance) FROM pgbench_tellers)
        AND (SELECT sum(delta) FROM pgbench_history) = (SELECT sum(bbalance) FROM pgbench_branches)"
}
transactions() { sql mirrored postgres -c "SELECT count(*) FROM pgbench_history"; }

group() { as_pg "$CELLAR_BIN" group "$@" --config "$WORK/cell1.toml"; }

unmount_second() {
    local tries
    for ((tries = 0; tries < 50; tries++)); do
        umount "$second" 2>/dev/null && return
        sleep 0.2
    done
    return 1
}

# Changes bytes in block 12 of pgbench_accounts on the second disk only.
damage_page() {
    local inode file
    inode=$(stat -c %i "$data/$(sql mirrored postgres -c "SELECT pg_relation_filepath('pgbench_accounts')")")
    while read -r file; do
        [ -n "$(od -An -v -tx1 -j 98304 -N 8192 "$file" | tr -d ' 0\n')" ] || continue
        printf '\377\376\375' | dd of="$file" bs=1 seek=100000 conv=notrunc status=none && return
    done < <(find "$second/cell/data" -name "*$(printf '%012x' "$inode")")
    return 1
}

run() {
    CELL_RESERVE=16MiB cell_configure cell1 64MiB "$first" "$second/cell"
    sed -i 's/redundancy = "external"/redundancy = "normal"/; s/au_size = .*/au_size = "1MiB"/' "$WORK/cell1.toml"
    cell_start cell1
    cluster_create mirrored "$data" --data-checksums
    cluster_set "$data" "shared_preload_libraries = 'cellar'" "shared_buffers = 16MB" "max_wal_size = 64MB" "min_wal_size = 64MB" "checkpoint_timeout = 30s"
    cluster_start mirrored "$data"
    bench -i -q -s 3 >"$WORK/pgbench.log" 2>&1
    check "the group is complete" is_state MOUNTED

    bench -c 3 -T 5 >"$WORK/load.log" 2>&1 &
    local load=$! committed
    sleep 2
    check "the second disk fails under load" mount -o remount,abort "$second"
    local exited=0
    wait "$load" || exited=$?
    check "pgbench goes on" test "$exited" = 0
    check "no transaction failed" grep -q "^number of failed transactions: 0 " "$WORK/load.log"
    check "CHECKPOINT completes" sql mirrored postgres -c CHECKPOINT
    check "the group is degraded" is_state DEGRADED

    check "the file system of the failed disk unmounts while the cell runs" unmount_second
    check "the second disk is mounted again" mount_second
    check "the second disk is online without a restart" group online "$second/cell"
    check "the group is complete again" is_state MOUNTED
    sql mirrored postgres -c "CREATE EXTENSION cellar"
    check "a page is damaged on the second disk" damage_page
    check "the scrub repairs the page" group scrub --rate 0 --wait
    check_equal "the repair is counted" "$(sql mirrored postgres -c "SELECT state, type, repairs > 0, offline_disks FROM cellar.disk_groups")" "MOUNTED|NORMAL|t|0"
    check_equal "a second scrub repairs nothing" "$(group scrub --rate 0 --wait --json | grep -o '"\(un\)\?repaired": [0-9]*' | tr -d '\n')" '"repaired": 0"unrepaired": 0'
    check_equal "both disks have I/O and histograms" "$(sql mirrored postgres -c "SELECT count(*), bool_and(mode_status = 'ONLINE' AND writes > 0 AND bytes_written > 0
        AND (SELECT sum(n) FROM unnest(write_histogram) n) = writes) FROM cellar.disks")" "2|t"

    check "the second disk fails again" mount -o remount,abort "$second"
    check "CHECKPOINT completes again" sql mirrored postgres -c CHECKPOINT
    committed=$(transactions)

    bench -c 3 -T 20 >"$WORK/load2.log" 2>&1 &
    load=$!
    sleep 2
    cell_kill
    cluster_kill mirrored
    wait "$load" || true
    unmount_second || true
    check "the second disk returns" mount_second
    cell_start cell1
    check "the second disk is resynced" wait_for_true 120 is_state MOUNTED
    cluster_start mirrored "$data"
    check "the balances are equal after kill -9" test "$(balances)" = t
    check "no committed transaction is missing" test "$(transactions)" -ge "$committed"
    bench -c 3 -t 100 >>"$WORK/pgbench.log" 2>&1
    committed=$(transactions)
    check "Postgres stops" cluster_stop mirrored
    check "the cell stops and unmounts" cell_stop cell1

    mv "$first" "$WORK/lost"
    check "the second disk alone does not open the group without the operator" \
        bash -c "! '$CELLAR_BIN' cell --config '$WORK/cell1.toml' 2>'$WORK/refused.log'"
    check "the error says what is missing" grep -q "is missing and may have newer data" "$WORK/refused.log"
    cell_start cell1 --force-degraded
    cluster_start mirrored "$data"
    check "all transactions are on the second disk" test "$(transactions)" = "$committed"
    check "the balances are equal on the second disk" test "$(balances)" = t
    check "Postgres stops again" cluster_stop mirrored
    check "pg_checksums finds no wrong checksum" as_pg "$PG_BIN/pg_checksums" --check -D "$data"
    check "the cell stops again" cell_stop cell1
    check "the cell has logged no panic" bash -c "! grep -q panicked '$WORK/cell1.log'"
}

if prepare_second; then run; else skip "a failing disk of two copies: mounting a small file system needs root"; fi
checks_end
