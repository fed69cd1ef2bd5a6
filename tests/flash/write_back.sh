#!/usr/bin/env bash
# Write-back on two flash disks, with PostgreSQL: configurations that are refused, kill -9 of the cell and of PostgreSQL during updates
# and, with flash log write-back, commits; changes of the mode while the table is written, the loss of one flash disk, and starts without
# the flash disks.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

extension_installed || die "the extension is not installed: run scripts/build.sh extension"
work_begin write-back
data=$WORK/cell1/pgdata toml=$WORK/cell1.toml
# Rows, of which each change increases one in fifty.
ROWS=20000

q() { sql wb postgres -c "$1"; }
cellcli() { as_pg env CELLAR_CELL="$toml" "$CELLAR_BIN" cellcli -e "$1"; }
mode() { cellcli "list cell attributes flashCacheMode" | tr -d '\t '; }
# figure NAME: a counter of write-back, 0 without one.
figure() { "$CELLAR_BIN" cell status --json --config "$toml" | python3 -c 'import json, sys; print(int(json.load(sys.stdin)["write_back"][sys.argv[1]]))' "$1"; }
metric() { cellcli "list metriccurrent $1 attributes metricValue" | tr -dc '0-9.' | cut -d. -f1; }
# configure KEY VALUE: sets a key before the tables of the configuration; without VALUE, removes it.
configure() {
    sed -i "/^$1 = /d" "$toml"
    [ -z "${2:-}" ] || sed -i "s|^log_level|$1 = $2\nlog_level|" "$toml"
}
# becomes DESCRIPTION COMMAND VALUE: passes when the command prints the value within two minutes.
becomes() {
    local tries now
    for ((tries = 0; tries < 400; tries++)); do
        now=$(eval "$2")
        if [ "$now" = "$3" ]; then ok "$1"; return; fi
        sleep 0.3
    done
    not_ok "$1: found \"$now\", expected \"$3\""
}
start() { cell_start cell1 && cluster_start wb "$data"; }
kill_both() {
    cell_kill
    cluster_kill wb
}

# One transaction that adds a row and changes others, then a checkpoint, which writes their pages. The number of each acknowledged
# transaction is written to a file.
change() {
    sql wb postgres -c "INSERT INTO acknowledged VALUES ($1); UPDATE t SET v = v + 1 WHERE id % 50 = $(($1 % 50))" -c CHECKPOINT >/dev/null 2>&1 || return 1
    printf '%s\n' "$1" >>"$WORK/acknowledged"
}
change_next() {
    change "$(($(sort -n "$WORK/acknowledged" | tail -n 1) + 2))"
}
# dirty_after_change: prints "dirty" if pages are dirty after a change; the cell may have just written all of them to the cell disks.
dirty_after_change() {
    change_next
    [ "$(figure dirty_bytes)" = 0 ] || echo dirty
}
# begin_changes: changes rows in the background until a change fails or end_changes is called.
begin_changes() {
    rm -f "$WORK/enough"
    (
        number=$(($(sort -n "$WORK/acknowledged" | tail -n 1) + 2))
        while [ ! -e "$WORK/enough" ] && change "$number"; do number=$((number + 1)); done
    ) &
    writer=$!
}
# wait_for_changes COUNT: waits until this many more changes are acknowledged.
wait_for_changes() {
    local wanted=$(($(wc -l <"$WORK/acknowledged") + $1)) tries
    for ((tries = 0; tries < 2400; tries++)); do
        [ "$(wc -l <"$WORK/acknowledged")" -lt "$wanted" ] || return 0
        sleep 0.05
    done
    not_ok "$1 changes are acknowledged within two minutes"
}
end_changes() {
    touch "$WORK/enough"
    wait "$writer" || true
}
# begin_commits ROUND: commits one row after the other in the background until the connection is lost. psql prints a number when its
# transaction was acknowledged.
begin_commits() {
    for ((number = $1 * 100000; number < $1 * 100000 + 100000; number++)); do
        echo "INSERT INTO commits VALUES ($number) RETURNING number;"
    done >"$WORK/commits.sql"
    sql wb postgres -q -f "$WORK/commits.sql" >"$WORK/committed.$1" 2>/dev/null &
    committer=$!
}
# check_commits WHEN ROUND: no acknowledged commit is missing, and at most the last one was not acknowledged.
check_commits() {
    local missing
    wait "$committer" || true
    missing=$(comm -23 <(sort "$WORK/committed.$2") <(q "SELECT number FROM commits" | sort) | wc -l)
    check_equal "$1: no acknowledged commit is missing" "$missing" 0
    check "$1: there are commits" [ "$(q "SELECT count(*) FROM commits WHERE number / 100000 = $2")" -gt 0 ]
}
# check_rows WHEN: no acknowledged transaction is missing, none was done by half, and the index finds the same rows.
check_rows() {
    local missing
    missing=$(comm -23 <(grep -vx 0 "$WORK/acknowledged" | sort) <(q "SELECT number FROM acknowledged" | sort) | wc -l)
    check_equal "$1: no acknowledged transaction is missing" "$missing" 0
    check_equal "$1: all rows have all changes" "$(q "SELECT sum(v) = (SELECT count(*) FROM acknowledged) * $((ROWS / 50)), count(*) FROM t")" "t|$ROWS"
    check_equal "$1: the index finds them" \
        "$(q "SET enable_seqscan = off; SET cellar.cell_offload_processing = off; SELECT sum(v) FROM t WHERE id > 0")" "$(q "SELECT sum(v) FROM t")"
}

cell_configure cell1 16MiB "$WORK/disk"
configure flash_disks "[\"$WORK/flash1\", \"$WORK/flash2\"]"
configure flash_cache_size '"192MiB"'
configure flash_write_back_size '"128MiB"'
configure flash_cache_mode '"WriteBack"'

# ---------------------------------------------------------------- configurations
cp "$toml" "$WORK/valid"
check "the configuration is valid" "$CELLAR_BIN" cell --check --config "$toml"
# refused DESCRIPTION TEXT [KEY VALUE]...: the check ends with exit status 2 and a message with the text.
refused() {
    local what=$1 text=$2 output status=0
    shift 2
    while [ $# -gt 0 ]; do
        configure "$1" "$2"
        shift 2
    done
    output=$("$CELLAR_BIN" cell --check --config "$toml" 2>&1) || status=$?
    check_equal "$what is refused" "$status" 2
    check_matches "with the reason" "$output" "$text"
    cp "$WORK/valid" "$toml"
}
refused "write-back without flash disks" "need flash_disks; name two" flash_disks '' flash_cache_size ''
refused "write-back on one flash disk" "needs two flash disks.*flash_write_back_unmirrored = true" flash_disks "[\"$WORK/flash1\"]"
refused "a small log" "flash_write_back_size is less than 128 MiB" flash_write_back_size '"64MiB"'
refused "a mode that does not exist" 'write "writethrough" or "writeback"' flash_cache_mode '"back"'
refused "write-back without a flash cache" "needs a flash cache" flash_cache_size '"0"' flash_log_size '"16MiB"'
redo="flash_log_write_back true"
# shellcheck disable=SC2086
refused "flash log write-back beside a flash log" "flash_log_write_back and flash_log_size exclude each other" $redo flash_log_size '"16MiB"'
# shellcheck disable=SC2086
refused "flash log write-back beside wal_passthrough" "flash_log_write_back and wal_passthrough exclude each other" $redo wal_passthrough true
# shellcheck disable=SC2086
refused "flash log write-back with write-through" 'needs flash_cache_mode = "writeback"' $redo flash_cache_mode '"writethrough"'
truncate -s 200M "$WORK/small"
refused "a flash disk that is smaller than log and cache" "small has [0-9]+ MiB, but the write-back log needs 128 MiB" \
    flash_disks "[\"$WORK/small\", \"$WORK/flash2\"]"
configure flash_disks "[\"$WORK/flash1\"]"
configure flash_write_back_unmirrored true
check "one flash disk is enough if the configuration says so" "$CELLAR_BIN" cell --check --config "$toml"
cp "$WORK/valid" "$toml"

# ---------------------------------------------------------------- writes
cell_start cell1
cluster_create wb "$data" --data-checksums
cluster_set "$data" "shared_preload_libraries = 'cellar'" "shared_buffers = 4MB" "autovacuum = off" "checkpoint_completion_target = 0" "max_wal_size = 4GB"
cluster_start wb "$data"
q "CREATE EXTENSION cellar; CREATE TABLE acknowledged (number int); CREATE TABLE commits (number int);
   CREATE TABLE t (id int PRIMARY KEY, v int, filler text) WITH (fillfactor = 50);
   INSERT INTO t SELECT g, 0, repeat('f', 400) FROM generate_series(1, $ROWS) g"
q CHECKPOINT
echo 0 >"$WORK/acknowledged"
check_equal "the mode is that of the configuration" "$(mode)" WriteBack
check_matches "the status shows write-back" "$("$CELLAR_BIN" cell status --config "$toml")" "write-back  .* dirty, log of 128 MiB on 2 of 2 flash disks"
megabytes=$(metric FC_IO_BY_W) requests=$(metric FC_IO_RQ_W)
for number in 1 2 3; do change "$number"; done
check "FC_IO_BY_W counts changed pages" [ "$(metric FC_IO_BY_W)" -gt "$megabytes" ]
check "so does FC_IO_RQ_W" [ "$(metric FC_IO_RQ_W)" -gt $((requests + 100)) ]
becomes "changed pages are in flash first" dirty_after_change dirty
becomes "FC_BY_DIRTY has their size" "change_next; metric FC_BY_DIRTY | grep -qx 0 || echo dirty" dirty
check_rows "while pages are dirty"

# ---------------------------------------------------------------- kill -9
for round in 1 2; do
    begin_changes
    wait_for_changes 3
    kill_both
    end_changes
    start
    check_rows "after kill $round"
done
check_equal "WAL does not go to the write-back log" "$(figure redo_requests)" 0
cluster_stop wb
cell_stop cell1
configure flash_log_write_back true
start
for round in 3 4 5; do
    begin_commits $round
    begin_changes
    wait_for_changes 2
    check "WAL goes to the write-back log" [ "$(figure redo_requests)" -gt 10 ]
    kill_both
    end_changes
    start
    check_rows "after kill $round"
    check_commits "after kill $round" $round
done
check_matches "the status shows redo" "$("$CELLAR_BIN" cell status --config "$toml")" "2 of 2 flash disks; .* of redo written"
check "the starts wrote pages of the log to the cell disks" grep -q "KiB of the write-back log to the cell disks" "$WORK/cell1.log"

# ---------------------------------------------------------------- changes of the mode
begin_changes
wait_for_changes 1
cellcli "alter cell flashCacheMode=WriteThrough" >"$WORK/altered"
check "a change to write-through succeeds while the table is written" grep -q "successfully altered" "$WORK/altered"
check_equal "afterwards no page is dirty" "$(mode) $(figure dirty_bytes)" "WriteThrough 0"
wait_for_changes 1
check_equal "nor becomes dirty" "$(figure dirty_bytes)" 0
cellcli "alter cell flashcachemode = writeback" >/dev/null
wait_for_changes 2
check_equal "the mode changes back" "$(mode) $(figure online)" "WriteBack 1"
cellcli "alter cell flashCacheMode=WriteThrough" >/dev/null
cellcli "alter cell flashCacheMode=WriteBack" >/dev/null
wait_for_changes 2
check_equal "also if it changes twice" "$(mode) $(figure online)" "WriteBack 1"
kill_both
end_changes
start
check_rows "after changes of the mode and a kill"
check_matches "another mode is rejected" "$(cellcli "alter cell flashCacheMode=Back" 2>&1 || true)" "is not a flash cache mode"
check_matches "so is another attribute" "$(cellcli "alter cell name=other" 2>&1 || true)" "flashCacheMode = "

# ---------------------------------------------------------------- flush
change_next
check_matches "a flush" "$(cellcli "alter flashcache all flush")" "altered successfully"
check_equal "writes all pages to the cell disks" "$(figure dirty_bytes)" 0
check_equal "the log of the cell says so" "$(grep -c "the flush of the flash cache is complete" "$WORK/cell1.log")" 1
check_equal "and says so" "$(cellcli "list flashcache attributes flushStatus" | tr -d '\t ')" completed
change_next
check_equal "no page becomes dirty" "$(figure dirty_bytes)" 0
cellcli "alter flashcache all cancel flush" >/dev/null
becomes "until the flush is cancelled" dirty_after_change dirty
check "FC_IO_RQ_DISK_WRITE counts writes to the cell disks" [ "$(metric FC_IO_RQ_DISK_WRITE)" -ge 1 ]

# ---------------------------------------------------------------- restarts
cellcli "alter cell flashCacheMode=WriteThrough" >/dev/null
cluster_stop wb
cell_stop cell1
start
check_equal "the mode of a command survives a restart" "$(mode)" WriteThrough
cellcli "alter cell flashCacheMode=WriteBack" >/dev/null
change_next
kill_both
configure flash_cache_mode '"writethrough"'
configure flash_log_write_back
start
check_equal "a start with writethrough in the configuration writes all pages to the cell disks" "$(mode) $(figure dirty_bytes)" "WriteThrough 0"
check_rows "after that start"
configure flash_cache_mode '"writeback"'
configure flash_log_write_back true
cluster_stop wb
cell_stop cell1
start
check_equal "the configuration counts after it was changed" "$(mode) $(figure online)" "WriteBack 1"

# ---------------------------------------------------------------- loss of a flash disk
change_next
# The next segment cannot be created on the second flash disk.
mv "$WORK/flash2" "$WORK/away"
touch "$WORK/flash2"
begin_changes
becomes "the loss of a flash disk is noticed" "figure flash_disks_left" 1
wait_for_changes 2
end_changes
becomes "all pages are written to the cell disks" "figure dirty_bytes" 0
change_next
check_equal "and none becomes dirty on one flash disk" "$(figure dirty_bytes)" 0
check_matches "the status tells it" "$("$CELLAR_BIN" cell status --config "$toml")" "on 1 of 2 flash disks; not in use"
becomes "an alert tells it" "cellcli \"list alerthistory attributes severity where alertShortName = WriteBack\" | tail -n 1 | tr -d '\t '" warning
check_rows "with one flash disk"
kill_both
start
check_matches "a start without it works" "$(mode) $(figure online)" "WriteBack 0"
check_rows "after that start"
cluster_stop wb
cell_stop cell1
rm -rf "$WORK/flash2"
mv "$WORK/away" "$WORK/flash2"
start
check_equal "when it returns, write-back is in use" "$(figure online)" 1
change_next
check_rows "with both flash disks again"

# ---------------------------------------------------------------- loss of all flash disks
kill_both
mkdir "$WORK/away"
mv "$WORK/flash1" "$WORK/flash2" "$WORK/away"
check "a start without the flash disks is refused" eval '! cell_start cell1'
check "and says what to do" grep -q "connect its flash disks.*--force-degraded" "$WORK/cell1.log"
rm -rf "$WORK/flash1" "$WORK/flash2"
mv "$WORK/away/flash1" "$WORK/away/flash2" "$WORK"
start
check_rows "when they are connected again"
change_next
kill_both
rm -rf "$WORK/flash1" "$WORK/flash2"
if cell_start cell1 --force-degraded; then ok "--force-degraded starts without them"; else not_ok "--force-degraded starts without them"; fi
check "and logs the loss" grep -q "changes of files that were synced are lost" "$WORK/cell1.log"
check "with the files that may lack changes" grep -q "changes that were synced may be missing in .*pgdata/" "$WORK/cell1.log"
check "WAL files among them" grep -q "changes that were synced may be missing in .*pgdata/pg_wal/" "$WORK/cell1.log"
check "the status has their number" [ "$(figure lacking_files)" -gt 0 ]
cell_stop cell1

checks_end
