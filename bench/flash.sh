#!/usr/bin/env bash
# The flash cache on device models, measured through PostgreSQL: random 8 KiB reads of a working set that fits, from a hard disk
# and from flash, full scans of a table while KEEP fills the cache, updates of random rows with write-through and write-back, and commits
# with WAL on the cell disk, in the flash log and in the write-back log. Prints Markdown tables. Nothing else should run on the machine.
#
#   flash.sh [reads | updates | commits]   reads and updates without an argument
#
#   ROWS=20000        rows, one per page of 8 KiB
#   READS=2000        random reads of each pass; no page is read twice in a pass
#   UPDATED=8000      rows that are updated, one per page of 8 KiB
#   DURATION=20       seconds of each pass of updates and commits; ROUNDS=3 passes with each mode, one after the other
#   MODEL=hdd-7k2     model of the cell disk
#   FLASH=flash-slc   model of the flash disk
#   SCALE=1           real seconds per second of the models. Times are printed in seconds of the models: with 2, processor time and
#                     other load of the machine count half; so do the reads of catalogs take longer.
set -euo pipefail
part=${1:-all}
case $part in -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//p}' "$0"; exit ;; esac
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
UPDATED=${UPDATED:-8000} DURATION=${DURATION:-20} ROUNDS=${ROUNDS:-3}
ROWS=${ROWS:-20000} READS=${READS:-2000} MODEL=${MODEL:-hdd-7k2} FLASH=${FLASH:-flash-slc} SCALE=${SCALE:-1}

extension_installed || die "the extension is not installed: run scripts/build.sh extension"
work_begin bench-flash
data=$WORK/cell1/pgdata
q() { sql flash postgres "$@"; }
content() { q -c "SELECT $1 FROM cellar.get_flash_cache('pages')"; }
# Every pass reads the pages from the cell: PostgreSQL is started again, and the kernel drops its copies.
forget() {
    cluster_stop flash >/dev/null
    find "$data/base" -type f -exec dd if={} iflag=nocache count=0 status=none \;
    cluster_start flash "$data" >/dev/null
    q -c "SELECT count(*) FROM pg_class" >/dev/null
}
# milliseconds COMMAND ...: prints how long the command takes.
milliseconds() {
    local begin end
    begin=$(date +%s%N)
    "$@" >/dev/null
    end=$(date +%s%N)
    echo $(((end - begin) / 1000000))
}
# model START: reads that the device models of the disks whose paths begin so have completed, and the seconds of the models.
model() {
    "$CELLAR_BIN" cell status --json --config "$WORK/cell1.toml" | python3 -c '
import json, sys
reads = [disk["request_seconds"]["read"] for disk in json.load(sys.stdin)["disk_models"] if disk["path"].startswith(sys.argv[1])]
print(sum(read["count"] for read in reads), sum(read["sum"] for read in reads))' "$1"
}
# random_reads LABEL: one row of the table of random reads. The statements before the first time read what else a backend needs.
random_reads() {
    local hits misses times flash disk
    forget
    # The index is in memory: only pages of the table are read.
    q -c "SELECT count(*) FROM (SELECT id FROM pages ORDER BY id) ids" >/dev/null
    read -r hits misses <<<"$(content "hit_count || ' ' || miss_count")"
    flash=$(model "$WORK/flash") disk=$(model "$WORK/disk")
    times=$(q -f "$WORK/reads.sql" | awk '/^time/ { printf "%s ", $2 }')
    read -r now_hits now_misses <<<"$(content "hit_count || ' ' || miss_count")"
    awk -v label="$1" -v n="$READS" -v times="$times" -v scale="$SCALE" -v h=$((now_hits - hits)) -v m=$((now_misses - misses)) \
        -v flash="$flash $(model "$WORK/flash")" -v disk="$disk $(model "$WORK/disk")" '
        function device(text, part) {
            split(text, part, " ")
            return sprintf("%d, %.3f ms", part[3] - part[1], 1000 * (part[4] - part[2]) / (part[3] > part[1] ? part[3] - part[1] : 1))
        }
        BEGIN {
            split(times, part, " ")
            ms = 1000 * (part[2] - part[1]) / scale
            printf "| %s | %d | %.3f | %.1f %% | %s | %s |\n", label, n * 1000 / ms, ms / n, 100 * h / (h + m), device(flash), device(disk)
        }'
}
# statistics: time that sessions waited for writes of dirty pages in ms, and buffers that they wrote.
statistics() { q -c "SELECT blk_write_time::bigint || ' ' || buffers_backend FROM pg_stat_database, pg_stat_bgwriter WHERE datname = 'postgres'"; }
# updates MODE: one row of the table of updates.
updates() {
    local before after transactions checkpoint
    CELLAR_CELL="$WORK/cell1.toml" "$CELLAR_BIN" cellcli -e "alter cell flashCacheMode=$1" >/dev/null
    q -c CHECKPOINT >/dev/null
    before=$(statistics)
    transactions=$(as_pg "$PG_BIN/pgbench" -n -h "$WORK/run" -p "$(cluster_port flash)" -U postgres -c 8 -j 1 -T "$DURATION" -D rows="$UPDATED" \
        -f "$WORK/update.sql" postgres 2>/dev/null | awk '/actually processed/ { print $NF }')
    # Sessions report their statistics when they end.
    sleep 1
    after=$(statistics)
    checkpoint=$(milliseconds q -c CHECKPOINT)
    awk -v mode="$1" -v n="${transactions%%/*}" -v before="$before" -v after="$after" -v checkpoint="$checkpoint" -v s="$DURATION" -v scale="$SCALE" '
        BEGIN {
            split(before, b, " "); split(after, a, " ")
            printf "| %s | %d | %.2f | %d | %.1f |\n", mode, n / s * scale, (a[1] - b[1]) / n / scale, (a[2] - b[2]) / s * scale, checkpoint / 1000 / scale
        }'
}
scan() { PGOPTIONS='-c cellar.min_scan_size=0 -c cellar.cost_factor=0 -c max_parallel_workers_per_gather=0' q -c "SELECT count(*) FROM pages WHERE number % 7 = 3"; }
scanned() {
    forget
    printf '| %s | %.2f |\n' "$1" "$(milliseconds scan | awk -v s="$SCALE" '{ print $1 / 1000 / s }')"
}

cell_configure cell1 16MiB "$WORK/disk"
sed -i "s|^log_level|flash_disks = [\"$WORK/flash\", \"$WORK/flash2\"]\nflash_cache_size = \"1GiB\"\nflash_write_back_size = \"256MiB\"\nflash_model = \"$FLASH\"\nlog_level|" "$WORK/cell1.toml"
# The table is written without waiting for the models.
printf 'model = "%s"\nmodel_time_scale = 0.0001\n' "$MODEL" >>"$WORK/cell1.toml"
cell_start cell1 >/dev/null
cluster_create flash "$data" --data-checksums >/dev/null
cluster_set "$data" "shared_preload_libraries = 'cellar'" "shared_buffers = 4MB" "autovacuum = off" "fsync = off" "max_wal_size = 4GB" \
    "cellar.compression_naptime = 3600s" "track_io_timing = on" "synchronous_commit = off" "bgwriter_lru_maxpages = 0"
cluster_start flash "$data" >/dev/null
q -c "CREATE EXTENSION cellar" \
    -c "CREATE TABLE pages (id int, number int, filler text)" -c "ALTER TABLE pages ALTER filler SET STORAGE PLAIN" \
    -c "INSERT INTO pages SELECT g, g % 1000, repeat('x', 5000) FROM generate_series(1, $ROWS) g" \
    -c "CREATE INDEX ON pages (id)" -c "VACUUM (FREEZE, ANALYZE) pages" -c CHECKPOINT >/dev/null
printf '%s\n' '\set id random(1, :rows)' 'UPDATE updated SET number = number + 1 WHERE id = :id;' >"$WORK/update.sql"
q -c "CREATE TABLE updated (id int PRIMARY KEY, number int, filler text) WITH (fillfactor = 45)" \
    -c "ALTER TABLE updated ALTER filler SET STORAGE PLAIN" \
    -c "INSERT INTO updated SELECT g, 0, repeat('x', 2500) FROM generate_series(1, $UPDATED) g" -c "VACUUM (FREEZE, ANALYZE) updated" -c CHECKPOINT >/dev/null
q -c "SELECT cellar.set_flash_cache('pages', 'none')" >/dev/null
{
    time="SELECT 'time ' || extract(epoch FROM clock_timestamp());"
    printf '%s\n' "SELECT number, length(filler) FROM pages WHERE id = 0;" "$time"
    q -c "SELECT 'SELECT number, length(filler) FROM pages WHERE id = ' || id || ';' FROM (SELECT id FROM pages ORDER BY md5(id::text) LIMIT $READS) ids"
    printf '%s\n' "$time"
} >"$WORK/reads.sql"
cluster_stop flash >/dev/null
cell_stop cell1 >/dev/null
sed -i "s|^model_time_scale.*|model_time_scale = $SCALE|" "$WORK/cell1.toml"
cell_start cell1 >/dev/null
cluster_start flash "$data" >/dev/null

# commits LABEL [KEY]: one row of the table of commits for each size, with a key of cell.toml.
commits() {
    local bytes before after transactions
    cluster_stop flash >/dev/null
    cell_stop cell1 >/dev/null
    sed -i '/^flash_log/d' "$WORK/cell1.toml"
    [ -z "${2:-}" ] || sed -i "s|^log_level|$2\nlog_level|" "$WORK/cell1.toml"
    cell_start cell1 >/dev/null
    cluster_start flash "$data" >/dev/null
    for bytes in 100 8000; do
        # Later files are recycled: no pass waits for new ones.
        q -c CHECKPOINT >/dev/null
        before=$(q -c "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")
        transactions=$(as_pg "$PG_BIN/pgbench" -n -h "$WORK/run" -p "$(cluster_port flash)" -U postgres -c 8 -j 1 -T "$DURATION" -D bytes="$bytes" \
            -f "$WORK/commit.sql" postgres 2>/dev/null | awk '/actually processed/ { print $NF }')
        after=$(q -c "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")
        awk -v label="$1" -v bytes="$bytes" -v n="${transactions%%/*}" -v wal=$((after - before)) -v s="$DURATION" -v scale="$SCALE" \
            'BEGIN { printf "| %s | %d | %d | %.1f |\n", label, bytes, n / s * scale, wal / s * scale / 1048576 }'
    done
}
if [ "$part" = commits ]; then
    printf '8 sessions commit; each commit writes one message to WAL. Cell disk %s, two flash disks %s, %s real seconds per second of the models.\n\n' \
        "$MODEL" "$FLASH" "$SCALE"
    printf "SELECT pg_logical_emit_message(true, 'bench', repeat('x', :bytes));\n" >"$WORK/commit.sql"
    sed -i 's|^flash_model|flash_cache_mode = "writeback"\nflash_model|' "$WORK/cell1.toml"
    cluster_set "$data" "fsync = on" "synchronous_commit = on" "min_wal_size = 1GB"
    printf '| WAL | message, bytes | commits/s | WAL, MiB/s |\n|---|---:|---:|---:|\n'
    for ((round = 0; round < ROUNDS; round++)); do
        commits "cell disk"
        commits "flash log" 'flash_log_size = "128MiB"'
        commits "flash log write-back" "flash_log_write_back = true"
    done
    cluster_stop flash >/dev/null
    cell_stop cell1 >/dev/null
    exit 0
fi

size=$(q -c "SELECT pg_size_pretty(pg_relation_size('pages'))")
printf 'Table of %s, cell disk %s, flash disk %s, %s real seconds per second of the models; times in seconds of the models.\n\n' "$size" "$MODEL" "$FLASH" "$SCALE"
if [ "$part" != reads ]; then
    # Both passes read the pages from flash.
    q -c "SELECT cellar.set_flash_cache('updated', 'keep'), cellar.set_flash_cache('updated_pkey', 'keep')" -c "SELECT sum(number) FROM updated" >/dev/null
    sleep 5
    printf '%s rows updated at random by 8 sessions, write-back log of 256 MiB on two flash disks.\n\n' "$UPDATED"
    printf '| mode | updates/s | wait for writes of sessions per update, ms | pages written by sessions/s | checkpoint afterwards, s |\n|---|---|---|---|---|\n'
    for ((round = 0; round < ROUNDS; round++)); do
        updates WriteThrough
        updates WriteBack
    done
    printf '\n'
fi
[ "$part" != updates ] || exit 0
printf '| full scan | s |\n|---|---|\n'
scanned "NONE"
scanned "NONE, again"
q -c "SELECT cellar.set_flash_cache('pages', 'keep')" >/dev/null
scanned "KEEP, the first scan, which fills the cache"
sleep 5
scanned "KEEP, the second scan"
printf '\n%s of %s are in the cache.\n\n' "$(content "pg_size_pretty(cached_bytes)")" "$size"
printf '| random reads of 8 KiB, one session | reads/s | ms | hit ratio | reads of the flash disk | reads of the cell disk |\n|---|---|---|---|---|---|\n'
random_reads "flash (KEEP, warm)"
q -c "SELECT cellar.set_flash_cache('pages', 'none')" >/dev/null
random_reads "hard disk (NONE)"
q -c "SELECT cellar.set_flash_cache('pages', NULL)" >/dev/null
random_reads "DEFAULT, cold"
sleep 2
random_reads "DEFAULT, warm"
cluster_stop flash >/dev/null
cell_stop cell1 >/dev/null
