#!/usr/bin/env bash
# A full cell disk under a data directory with a compressed table. A statement may fail with SQLSTATE 53100; PostgreSQL
# completes its checkpoints, survives kill -9, starts again, and the table has exactly the committed rows.
#
#   full_disk.sh
#
# The disk is filled first by another program and then by INSERTs. A write to a page of a compression unit needs new
# space, so each statement modifies pages of units.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

# The table has about 55 MB of heap pages and its units a few MB. A checkpoint writes at most 16 MB of dirty buffers.
rows=400000 disk_mib=448
work_begin full-disk
disk=$WORK/small data=$WORK/cell1/pgdata
mkdir -p "$disk"

# Mounts a file system of $disk_mib MiB at $disk: ext4 on a loop device if possible, otherwise tmpfs.
mount_disk() {
    [ "$(id -u)" = 0 ] || return 1
    truncate -s "${disk_mib}M" "$WORK/image"
    if ! { mkfs.ext4 -q -m 0 "$WORK/image" && mount -o loop "$WORK/image" "$disk"; } 2>/dev/null; then
        mount -t tmpfs -o "size=${disk_mib}m" tmpfs "$disk" 2>/dev/null || return 1
    fi
    printf '%s\n' "$disk" >>"$WORK/mounts"
}

# Numbers of committed statements, which determine the expected rows.
updated_part=0 updated_all=0 deleted=0
expected() {
    sql full postgres -c "SET work_mem = '256MB'" -c "SELECT count(*), sum(id::bigint * value), sum(hashtext(filler)) FROM (
        SELECT id, id % 1000 + $updated_all + CASE WHEN id % 20 = 0 THEN $updated_part ELSE 0 END AS value,
            'row ' || id || repeat(' filler', 10) AS filler
        FROM generate_series(1, $rows) id WHERE NOT ($deleted > 0 AND id % 20 = 1)) r"
}
found() { sql full postgres -c "SET enable_indexscan = off" -c "SELECT count(*), sum(id::bigint * value), sum(hashtext(filler)) FROM compressed"; }

# statement COUNTER SQL: runs a statement that may fail only because the disk is full. Counts the statement if it
# committed.
statement() {
    local counter=$1 output
    if output=$(sql full postgres -v VERBOSITY=sqlstate -c "$2" 2>&1); then
        printf -v "$counter" '%d' "$((${!counter} + 1))"
        ok "$what: committed: $2"
    else
        check "$what: fails with 53100: $2" grep -q '53100' <<<"$output"
    fi
}

# retrying COMMAND ...: repeats a command for 10 seconds until it succeeds. A session fails to start while all buffers that
# it could use are dirty and cannot be written; the background writer then cleans buffers.
retrying() {
    local tries
    for ((tries = 0; tries < 20; tries++)); do
        "$@" && return 0
        sleep 0.5
    done
    return 1
}

# survives [cell]: checks checkpoint, recovery and content after the statements of this round. With `cell`, the cell is
# killed, too.
survives() {
    check "$what: CHECKPOINT completes" retrying sql full postgres -c CHECKPOINT
    if [ "${1:-}" = cell ]; then
        cell_kill
        cluster_kill full
        cell_start cell1 || return 1
    else
        cluster_kill full
    fi
    if ! cluster_start full "$data"; then
        not_ok "$what: Postgres starts again after kill -9"
        return 1
    fi
    local wanted
    wanted=$(expected)
    check "$what: the table has the committed rows after kill -9" test "$(found)" = "${wanted:-?}"
}

# round WHAT: modifies the compressed table on a full disk.
round() {
    what=$1
    statement updated_part "UPDATE compressed SET value = value + 1 WHERE id % 20 = 0"
    survives cell || return 1
    statement updated_all "UPDATE compressed SET value = value + 1"
    # Needs no new page of the table, and dirties every page.
    statement deleted "DELETE FROM compressed WHERE id % 20 = 1"
    survives
}

# repeated: locks all rows of the table, one tenth of the table after the other, with a checkpoint after each. This makes every page
# of the table raw, which needs more space than the reserve has: the cell must free the raw pages of earlier tenths meanwhile.
repeated() {
    what="statements without new blocks"
    local pages part
    pages=$(sql full postgres -c "SELECT pg_relation_size('compressed') / 8192")
    for ((part = 0; part < 10; part++)); do
        retrying sql full postgres -c "SELECT count(*) FROM (SELECT FROM compressed WHERE ctid >= '($((part * pages / 10)),0)'
            AND ctid < '($(((part + 1) * pages / 10)),0)' FOR UPDATE) locked" >/dev/null 2>&1 || break
        retrying sql full postgres -c CHECKPOINT >/dev/null 2>&1 || break
    done
    check "$what: all succeed, with $part of 10 checkpoints" test "$part" = 10
    survives cell
}

available() { df --output=avail -B1 "$1" | tail -n 1; }

run() {
    CELL_RESERVE=128MiB cell_configure cell1 64MiB "$disk/cell"
    cell_start cell1
    cluster_create full "$data" --data-checksums
    cluster_set "$data" "shared_buffers = 16MB" "max_wal_size = 64MB" "min_wal_size = 64MB" "autovacuum = off" \
        "shared_preload_libraries = 'cellar'"
    cluster_start full "$data"
    sql full postgres -c "CREATE EXTENSION cellar" -c "CREATE TABLE compressed (id int, value int, filler text)" \
        -c "INSERT INTO compressed SELECT id, id % 1000, 'row ' || id || repeat(' filler', 10) FROM generate_series(1, $rows) id" \
        -c "SELECT cellar.compress('compressed')" -c CHECKPOINT >/dev/null
    what=before
    check "df on the mount leaves out the reserve" test "$(available "$WORK/cell1")" -le "$(available "$disk")"

    dd if=/dev/zero of="$disk/other" bs=1M status=none 2>/dev/null || true
    check "another program has filled the disk" test "$(available "$disk")" -lt 1048576
    round "disk filled by another program" || return 0
    rm "$disk/other"

    sql full postgres -c "CREATE TABLE filled (id int, filler text)" >/dev/null
    local batch
    for ((batch = 0; batch < 400; batch++)); do
        sql full postgres -c "INSERT INTO filled SELECT g, repeat('x', 500) FROM generate_series(1, 4000) g" >/dev/null 2>&1 || break
    done
    check "INSERTs have filled the disk after $batch batches" test "$batch" -lt 400
    round "disk filled by INSERTs" || return 0

    what="after DROP TABLE"
    check "$what: the space is free at once" sql full postgres -c "DROP TABLE filled" \
        -c "CREATE TABLE filled AS SELECT repeat('x', 500) FROM generate_series(1, 40000)"
    local before=$updated_part
    sql full postgres -c "DROP TABLE filled"
    statement updated_part "UPDATE compressed SET value = value + 1 WHERE id % 20 = 0"
    check "$what: the UPDATE committed" test "$updated_part" -gt "$before"
    survives || return 0

    sql full postgres -c "SELECT cellar.compress('compressed')" >/dev/null
    cluster_stop full
    cell_stop cell1
    sed -i 's/^reserve_size = .*/reserve_size = "48MiB"/' "$WORK/cell1.toml"
    cell_start cell1
    cluster_start full "$data"
    dd if=/dev/zero of="$disk/other" bs=1M status=none 2>/dev/null || true
    repeated || return 0
    check "Postgres stops" cluster_stop full
    check "pg_checksums finds no wrong checksum" as_pg "$PG_BIN/pg_checksums" --check -D "$data"
    check "the cell stops and unmounts" cell_stop cell1
}

if ! extension_installed; then
    skip "full disk with a compressed table: the extension is not installed"
elif mount_disk; then run; else skip "full disk with a compressed table: mounting a small file system needs root"; fi
checks_end
