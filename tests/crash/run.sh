#!/usr/bin/env bash
# Durability: kill -9 of Postgres, of the cell and of both at random moments under load loses no acknowledged commit. A
# full disk or a failing write causes an error, and never a wrong row.
#
#   run.sh [--rounds N] [--seed N]      rounds of each kind of kill (default 2)
#
# rounds.sh contains the load, the kills and the checks after each kill. At the end pg_checksums verifies every page.
# tests/soak/run.sh runs the same load for hours, with more kinds of kills.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

rounds=2 seed=${SEED:-$RANDOM}
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2; shift ;;
    --seed) seed=$2; shift ;;
    *) die "unknown option $1" ;;
    esac
    shift
done
RANDOM=$seed
say "seed $seed (determines the moments of the kills; the load is not reproducible)"
extension_installed || die "the extension is not installed: run scripts/build.sh extension"
work_begin crash
# shellcheck source=tests/crash/rounds.sh
. "$(dirname "$0")/rounds.sh"

kills() {
    local round victim what before
    cell_configure cell1
    crash_cluster mount 5 || { not_ok "the cluster starts"; return; }
    for ((round = 1; round <= rounds; round++)); do
        for victim in postgres cell both; do
            what="round $round, kill -9 of $victim"
            before=$CHECKS_FAILED
            load_start "$RANDOM" "$victim"
            sleep "$((1 + RANDOM % 4)).$((RANDOM % 10))"
            if ! crash_kill "$victim" || ! crash_recover "$victim" "$what"; then
                not_ok "$what: Postgres starts again"
                return
            fi
            crash_verify "$what"
            [ "$CHECKS_FAILED" = "$before" ] || return 0
        done
    done
    crash_end "after $((3 * rounds)) kills"
}

# fill CLUSTER: inserts batches into a table in tablespace `cell` until an insert fails. Prints the number of batches and
# the SQLSTATE.
fill() {
    local i output
    for ((i = 0; i < 200; i++)); do
        if ! output=$(sql "$1" postgres -v VERBOSITY=sqlstate -c "INSERT INTO filled SELECT g, repeat('x', 500) FROM generate_series($((i * 4000 + 1)), $((i * 4000 + 4000))) g" 2>&1); then
            printf '%s %s\n' "$i" "$(grep -oE '[0-9A-Z]{5}$' <<<"$output" | head -n 1)"
            return 0
        fi
    done
    printf '%s none\n' "$i"
}

# A cluster on the plain file system with a tablespace on a small cell: the errors hit tables, not the WAL.
tablespace_cluster() {
    cluster_create "$1" "$WORK/$1-data" --data-checksums
    cluster_set "$WORK/$1-data" "shared_buffers = 16MB"
    cluster_set "$WORK/$1-data" "shared_preload_libraries = 'cellar'" "cellar.min_scan_size = 0"
    cluster_start "$1" "$WORK/$1-data"
    mkdir -p "$WORK/$2/space"
    [ "$(id -u)" != 0 ] || chown "$OS_USER" "$WORK/$2/space"
    sql "$1" postgres -c "CREATE TABLESPACE cell LOCATION '$WORK/$2/space'" \
        -c "CREATE TABLE filled (id int, filler text) TABLESPACE cell"
}

# after_error CLUSTER DESCRIPTION BATCHES SQLSTATE EXPECTED: checks the SQLSTATE, and that a query returns no wrong row. The
# query itself may fail, because Postgres may have to write a dirty buffer before it can read a page.
after_error() {
    local cluster=$1 what=$2 batches=$3 sqlstate=$4 wanted=$5 output
    check "$what: the insert fails with $wanted (found $sqlstate after $batches batches)" grep -qE "^($wanted)$" <<<"$sqlstate"
    if output=$(sql "$cluster" postgres -c "SELECT count(*), coalesce(sum(id), 0) FROM filled WHERE length(filler) = 500" 2>&1); then
        check "$what: a query returns exactly the committed rows" test "$output" = "$(expected "$batches")"
    else
        ok "$what: a query fails with an error: ${output%%$'\n'*}"
    fi
}
expected() { printf '%s|%s' "$(($1 * 4000))" "$(($1 * 4000 * ($1 * 4000 + 1) / 2))"; }

# Waits until the cluster accepts connections: a failed fsync is a PANIC, after which Postgres restarts and recovers.
wait_ready() {
    local tries
    for ((tries = 0; tries < 600; tries++)); do
        if sql "$1" postgres -c "SELECT 1" >/dev/null 2>&1; then return 0; fi
        sleep 0.1
    done
    return 1
}

disk_full() {
    local small=$WORK/small filled
    mkdir -p "$small"
    if [ "$(id -u)" != 0 ] || ! mount -t tmpfs -o size=160m tmpfs "$small" 2>/dev/null; then
        skip "full disk: mounting a small file system needs root"
        return
    fi
    printf '%s\n' "$small" >>"$WORK/mounts"
    cell_configure cell2 64MiB "$small/disk"
    cell_start cell2
    tablespace_cluster full cell2
    filled=$(fill full)
    after_error full "full disk" "${filled% *}" "${filled#* }" 53100
    # Not TRUNCATE: it allocates a block for the new index of the TOAST table before it frees any space.
    check "full disk: DROP TABLE frees space for new rows" sql full postgres -c "DROP TABLE filled" \
        -c "CREATE TABLE filled (id int, filler text) TABLESPACE cell" \
        -c "INSERT INTO filled SELECT g, repeat('x', 500) FROM generate_series(1, 20000) g" -c "CHECKPOINT"
    check "full disk: a query returns the new rows" test "$(sql full postgres -c "SELECT count(*), sum(id) FROM filled")" = "20000|200010000"
    check "full disk: Postgres stops" cluster_stop full
    check "full disk: the cell stops and unmounts" cell_stop cell2
    unmount "$small"
}

write_error() {
    local filled
    cell_configure cell3 64MiB "$WORK/cell3-disk"
    # With SIGXFSZ ignored, writes beyond the file-size limit fail with an error, like writes to a defective disk.
    trap '' XFSZ
    cell_start cell3
    trap - XFSZ
    tablespace_cluster failing cell3
    sql failing postgres -c "INSERT INTO filled SELECT g, repeat('x', 500) FROM generate_series(-20000, -1) g" -c "CHECKPOINT" -c "DELETE FROM filled" -c "VACUUM filled" -c "CHECKPOINT"
    prlimit --pid "$CELL_PID" --fsize=33554432:
    filled=$(fill failing)
    after_error failing "write error" "${filled% *}" "${filled#* }" '53100|58030|XX000|54000|42602'
    prlimit --pid "$CELL_PID" --fsize=unlimited:
    # The failed write also makes the next checkpoint's fsync fail; Postgres then restarts and replays its WAL.
    sql failing postgres -c CHECKPOINT >/dev/null 2>&1 || true
    sleep 1
    check "write error: Postgres accepts connections after the disk works again" wait_ready failing
    check "write error: a query returns exactly the committed rows" test \
        "$(sql failing postgres -c "SELECT count(*), coalesce(sum(id), 0) FROM filled WHERE length(filler) = 500")" = "$(expected "${filled% *}")"
    check "write error: new rows can be written" sql failing postgres -c "TRUNCATE filled" \
        -c "INSERT INTO filled SELECT g, repeat('x', 500) FROM generate_series(1, 100000) g" -c "CHECKPOINT"
    check "write error: a query returns the new rows" test "$(sql failing postgres -c "SELECT count(*), sum(id) FROM filled")" = "100000|5000050000"
    check "write error: Postgres stops" cluster_stop failing
    check "write error: the cell stops and unmounts" cell_stop cell3
}

[ "$rounds" = 0 ] || kills
disk_full
write_error
checks_end
