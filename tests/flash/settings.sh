#!/usr/bin/env bash
# CELL_FLASH_CACHE of relations: arguments, inheritance, rewrites, pg_dump, and what the cell then caches. The columnar cache, on the
# same cell.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

extension_installed || die "the extension is not installed: run scripts/build.sh extension"
work_begin flash-settings
data=$WORK/cell1/pgdata

q() { sql flash "${DB:-postgres}" -c "$1"; }
error_of() { sqlstate_of flash postgres "$1"; }
cellcli() { as_pg env CELLAR_CELL="$WORK/cell1.toml" "$CELLAR_BIN" cellcli -e "$1"; }
# of RELATION: the setting that the cell has of the relation's files.
of() { q "SELECT cell_flash_cache FROM cellar.get_flash_cache('$1'::regclass)"; }
toast_of() { q "SELECT f.cell_flash_cache FROM pg_class c, cellar.get_flash_cache(c.reltoastrelid::regclass) f WHERE c.oid = '$1'::regclass"; }
of_all() { printf '%s %s %s\n' "$(of t)" "$(toast_of t)" "$(of t_pkey)"; }
# becomes DESCRIPTION COMMAND VALUE: passes when the command prints the value within half a minute.
becomes() {
    local tries now
    for ((tries = 0; tries < 100; tries++)); do
        now=$(eval "$2")
        if [ "$now" = "$3" ]; then ok "$1"; return; fi
        sleep 0.3
    done
    not_ok "$1: found \"$now\", expected \"$3\""
}

cell_configure cell1 16MiB "$WORK/disk"
sed -i "s|^log_level|flash_disks = [\"$WORK/flash\"]\nflash_cache_size = \"192MiB\"\nlog_level|" "$WORK/cell1.toml"
printf 'model = "hdd-7k2"\nmodel_time_scale = 0.001\n' >>"$WORK/cell1.toml"
cell_start cell1
cluster_create flash "$data" --data-checksums
cluster_set "$data" "shared_preload_libraries = 'cellar'" "shared_buffers = 1MB" "autovacuum = off" "cellar.compression_naptime = 1s"
cluster_start flash "$data"
q "CREATE EXTENSION cellar"
q "CREATE TABLE t (id int PRIMARY KEY, note text, filler text); ALTER TABLE t ALTER note SET STORAGE EXTERNAL;
   INSERT INTO t SELECT g, CASE WHEN g % 100 = 0 THEN repeat('x', 9000) END, repeat('f', 400) FROM generate_series(1, 20000) g;
   CREATE TABLE p (id int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
   CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20); CREATE INDEX pi ON p (id);
   CREATE ROLE stranger; GRANT SELECT ON t TO stranger; CREATE VIEW seen AS SELECT 1"
mkdir -p "$WORK/plain"
[ "$(id -u)" != 0 ] || chown "$OS_USER" "$WORK/plain"
q "CREATE TABLESPACE plain LOCATION '$WORK/plain'"
q "CREATE TABLE elsewhere (id int) TABLESPACE plain"

# ---------------------------------------------------------------- arguments
check_equal "an unknown value is rejected" "$(error_of "SELECT cellar.set_flash_cache('t', 'ALWAYS')")" 22023
check_equal "a table of another owner is rejected" "$(error_of "SET ROLE stranger; SELECT cellar.set_flash_cache('t', 'KEEP')")" 42501
check_equal "a tablespace of another owner is rejected" "$(error_of "SET ROLE stranger; SELECT cellar.set_tablespace_flash_cache('pg_default', 'KEEP')")" 42501
check_equal "a tablespace that does not exist is rejected" "$(error_of "SELECT cellar.set_tablespace_flash_cache('nowhere', 'KEEP')")" 42704
check_equal "only superusers write the settings directly" "$(error_of "SET ROLE stranger; DELETE FROM cellar.flash_cache_setting")" 42501
check_equal "only superusers give files a setting" "$(error_of "SET ROLE stranger; SELECT cellar.apply_flash_cache('t'::regclass, 'NONE')")" 42501
check_equal "a view is rejected" "$(error_of "SELECT cellar.set_flash_cache('seen', 'KEEP')")" 42809
check_equal "a system catalog is rejected" "$(error_of "SELECT cellar.set_flash_cache('pg_class', 'KEEP')")" 42809
check_equal "a table that is not on a cell is rejected" "$(error_of "SELECT cellar.set_flash_cache('elsewhere', 'KEEP')")" 55000
check_equal "NULL as the relation is rejected" "$(error_of "SELECT cellar.set_flash_cache(NULL, 'KEEP')")" 22004

# ---------------------------------------------------------------- inheritance
q "SELECT cellar.set_flash_cache('t', 'keep')" >/dev/null
check_equal "a table has the setting" "$(of t)" KEEP
check_equal "so does its TOAST table" "$(toast_of t)" KEEP
check_equal "its index has its own" "$(of t_pkey)" DEFAULT
q "SELECT cellar.set_flash_cache('t_pkey', 'none')" >/dev/null
check_equal "an index has the setting" "$(of t_pkey)" NONE
q "SELECT cellar.set_flash_cache('p', 'none'), cellar.set_flash_cache('p2', 'keep'), cellar.set_flash_cache('pi', 'keep')" >/dev/null
check_equal "a partition inherits, unless it has its own; indexes inherit from the partitioned index" "$(of p1) $(of p2) $(of p1_id_idx)" "NONE KEEP KEEP"
q "SELECT cellar.set_flash_cache('p2', NULL)" >/dev/null
check_equal "without its own, it inherits again" "$(of p2)" NONE
q "SELECT cellar.set_tablespace_flash_cache('pg_default', 'keep')" >/dev/null
q "CREATE TABLE later (id int)"
becomes "a new table has the setting of its tablespace" "of later" KEEP
check_equal "that of a parent comes first" "$(of p1)" NONE
q "SELECT cellar.set_tablespace_flash_cache('pg_default', NULL)" >/dev/null
check_equal "the setting of a tablespace can be removed" "$(of later) $(of t)" "DEFAULT KEEP"

# ---------------------------------------------------------------- rewrites
for statement in "VACUUM FULL t" "CLUSTER t USING t_pkey" "REINDEX TABLE t" "REINDEX INDEX CONCURRENTLY t_pkey"; do
    q "$statement"
    becomes "the settings follow $statement" of_all "KEEP KEEP NONE"
done
q "CREATE TABLE emptied AS SELECT 1 AS id"
q "SELECT cellar.set_flash_cache('emptied', 'none')" >/dev/null
q "TRUNCATE emptied"
becomes "the setting follows TRUNCATE" "of emptied" NONE

# ---------------------------------------------------------------- contents
q "CHECKPOINT"
# in_flash TABLE QUERY: executes a query; prints "cached" if nearly the whole table is cached. The cache is filled after the reads
# were answered.
in_flash() { q "$2" >/dev/null; q "SELECT CASE WHEN cached_bytes > 0.95 * pg_relation_size('$1') THEN 'cached' ELSE cached_bytes::text END FROM cellar.get_flash_cache('$1')"; }
becomes "a table with KEEP is in flash" 'in_flash t "SELECT count(filler) FROM t"' cached
cached=$(q "SELECT cached_keep_bytes FROM cellar.flash_cache_content WHERE relation = 't'::regclass")
size=$(q "SELECT pg_relation_size('t')")
check "as a table with KEEP: $cached of $size bytes" [ "$cached" -gt $((size * 8 / 10)) ]
number=$(q "SELECT pg_relation_filenode('t')")
check_equal "cellcli lists it by its number" \
    "$(cellcli "list flashcachecontent attributes cellFlashCache where objectNumber = $number and cachedKeepSize > 0" | tr -d '\t ')" KEEP
q "SELECT cellar.set_flash_cache('t', 'none')" >/dev/null
check_equal "NONE removes it from flash" "$(q "SELECT cached_bytes FROM cellar.get_flash_cache('t')")" 0
q "SELECT sum(length(filler)) FROM t WHERE id % 7 = 0" >/dev/null
check_equal "and does not cache it again" "$(q "SELECT cached_bytes FROM cellar.get_flash_cache('t')")" 0

# ---------------------------------------------------------------- statistics
# The table is larger than the page cache.
q "CREATE TABLE wide AS SELECT g AS id, repeat('f', 1000) AS filler FROM generate_series(1, 60000) g"
q "VACUUM wide"
q "CHECKPOINT"
scan="SELECT sum(length(filler)) FROM wide WHERE id > 0"
wide_in_flash() { in_flash wide "$scan"; }
becomes "a table that is scanned is in flash" wide_in_flash cached
q "SELECT awr.create_snapshot()" >/dev/null
read -r hits optimized eligible requests < <(q "$scan;
  SELECT string_agg(value::text, ' ' ORDER BY name) FROM cellar.mystat
  WHERE name IN ('cell flash cache read hits', 'physical read total bytes optimized', 'physical read total bytes', 'physical read requests optimized')" |
    tail -n 1 | awk '{ print $1, $4, $3, $2 }')
check "a Smart Scan counts reads from flash: $hits requests, $optimized of $eligible bytes" [ "$hits" -gt 10 ]
check "they are optimized reads" [ "$optimized" -gt $((eligible / 2)) ]
check "of at least one request" [ "$requests" -gt 10 ]
check_matches "EXPLAIN shows them" "$(q "EXPLAIN (ANALYZE) $scan" | grep 'Cell IO')" "flash cache=[0-9]+kB"
q "SELECT awr.create_snapshot()" >/dev/null
read -r begin end < <(q "SELECT min(snap_id), max(snap_id) FROM awr.snapshots" | tr '|' ' ')
counted() { q "SELECT coalesce(sum(coalesce(c ->> 'total', c ->> 'value')::numeric), 0)::bigint FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'cell_statistics') c WHERE c ->> 'name' = '$1'"; }
check "the AWR report has the hits of the cell" [ "$(counted flash_cache_hits_total)" -ge "$hits" ]
check "and the size of its flash cache" [ "$(counted flash_cache_capacity_bytes)" -gt 0 ]
check "and its sections" grep -q "^Flash Cache User Reads Efficiency" < <(q "SELECT awr.report($begin, $end)")
check "reads from flash are no unoptimized reads of the statement" \
    [ "$(q "SELECT max((s ->> 'optimized_bytes')::numeric) FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'statements') s")" -gt $((eligible / 2)) ]
check "cellcli has the metric" [ "$(cellcli "list metriccurrent SIO_IO_RD_FC attributes metricValue" | tr -dc '0-9.' | cut -d. -f1)" -gt 0 ]
check_equal "a cached relation has the name of its database" \
    "$(cellcli "list flashcachecontent attributes dbUniqueName where objectNumber = $(q "SELECT pg_relation_filenode('wide')")" | tr -d '\t ')" postgres

# ---------------------------------------------------------------- limits of databases
cellcli "alter iormplan dbplan=((name=postgres, flashcache=off))" >/dev/null
q "CREATE TABLE limited AS SELECT g AS id, repeat('f', 1000) AS filler FROM generate_series(1, 20000) g"
q "VACUUM limited"
q "CHECKPOINT"
scan_limited="SELECT sum(length(filler)) FROM limited WHERE id > 0"
cached_of_limited() { q "$scan_limited" >/dev/null; q "SELECT cached_bytes FROM cellar.get_flash_cache('limited')"; }
check_equal "a database without flash fills nothing" "$(cached_of_limited) $(cached_of_limited)" "0 0"
check_equal "the plan is kept" "$(cellcli "list iormplan attributes dbPlan" | tr -d '\t ')" "((name=postgres,share=1,flashcache=off))"
check_matches "an unknown size is rejected" "$(cellcli "alter iormplan dbplan=((name=postgres, flashcachelimit=much))" 2>&1 || true)" "write a size"
cellcli "alter iormplan dbplan=((name=postgres, flashcachelimit=1G))" >/dev/null
# Reads of pages in the page cache do not fill the flash cache.
limited_in_flash() { q "$scan_limited" >/dev/null; q "SELECT cached_bytes > pg_relation_size('limited') / 2 FROM cellar.get_flash_cache('limited')"; }
becomes "a database below its limit fills the cache" limited_in_flash t
cellcli 'alter iormplan dbplan=""' >/dev/null

# ---------------------------------------------------------------- columnar cache
cluster_stop flash
cell_stop cell1
sed -i 's|^log_level|columnar_cache_size = "64MiB"\nlog_level|' "$WORK/cell1.toml"
cell_start cell1
cluster_start flash "$data"
# "on" scans raw pages or units of the columnar cache, "off" is PostgreSQL alone, both with the same snapshot.
scanning="SET cellar.min_scan_size = 0; SET cellar.cost_factor = 0; SET max_parallel_workers_per_gather = 0;"
columnar_query="SELECT g, count(*), sum(v), max(note) FROM c WHERE v > 500 AND note LIKE '%a%' GROUP BY g ORDER BY g LIMIT 20;
    SELECT id, v FROM c WHERE g < 900 ORDER BY v DESC LIMIT 10; SELECT sum(v), count(note), sum(w) FROM c JOIN dim USING (g);"
columnar() { cellcli "list flashcachecontent attributes columnarCacheSize where objectNumber = $(q "SELECT pg_relation_filenode('c')")" | tr -dc '0-9.KMG'; }
scan_columns() { q "$scanning $columnar_query" >/dev/null; columnar; }
filled() { [ -z "$(scan_columns | tr -d 0)" ] || echo filled; }
# same: prints "same" if the results with and without the cell are equal.
same() {
    q "$scanning BEGIN ISOLATION LEVEL REPEATABLE READ; $columnar_query COMMIT" >"$WORK/on" || return 0
    q "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL cellar.cell_offload_processing = off; $columnar_query COMMIT" >"$WORK/off"
    ! cmp -s "$WORK/on" "$WORK/off" || echo same
}
# Both results in one snapshot, while others write.
same_while_written() {
    q "$scanning BEGIN ISOLATION LEVEL REPEATABLE READ; $columnar_query SELECT 'half'; SET LOCAL cellar.cell_offload_processing = off; $columnar_query COMMIT" >"$WORK/both"
    awk '$0 == "half" { half = 1; next } !half { on[n++] = $0 } half && on[m++] != $0 { bad = 1 } END { exit bad || n != m || !n }' "$WORK/both"
}
q "CREATE TABLE c (id int, g int, v numeric, note text); CREATE TABLE dim AS SELECT g, g * 3 AS w FROM generate_series(0, 999) g;
   INSERT INTO c SELECT i, i % 1000, i * 1.01, repeat(md5(i::text), 6) FROM generate_series(1, 90000) i; CREATE INDEX ON c (id)"
q "VACUUM (FREEZE, ANALYZE) c, dim"
q "CHECKPOINT"
becomes "a raw table that is scanned gets into the columnar cache" filled filled
sleep 1
check_equal "its scans return what PostgreSQL returns" "$(same)" same
check_matches "EXPLAIN shows what the columnar cache saved" \
    "$(q "$scanning EXPLAIN (ANALYZE, COSTS off, TIMING off) SELECT sum(v) FROM c WHERE g = 5")" "saved by columnar cache=[0-9]+kB"
check "so does the statistic" [ "$(q "SELECT value FROM cellar.sysstat WHERE name = 'cell physical IO bytes saved by columnar cache'")" -gt 1000000 ]
# Writers change one part of the table after the other, so that units are filled and become void all the time, until the results
# were compared four times.
(
    for part in {1..200}; do
        [ "$part" -le 8 ] || [ ! -e "$WORK/enough" ] || break
        at=$(((part - 1) % 8 * 10000 + 10000))
        q "UPDATE c SET v = v + 1 WHERE id BETWEEN $at AND $at + 50; DELETE FROM c WHERE id BETWEEN $at + 60 AND $at + 70;
           INSERT INTO c SELECT i, i % 1000, i, 'added' FROM generate_series($at, $at + 20) i"
        sleep 0.4
        [ $((part % 3)) != 0 ] || q "VACUUM c"
        [ "$part" != 4 ] || { q "DELETE FROM c WHERE id > 85000"; q "VACUUM (TRUNCATE) c"; }
    done
) >"$WORK/writer.log" 2>&1 &
writer=$!
compared=0 wrong=0
while kill -0 "$writer" 2>/dev/null; do
    same_while_written || wrong=$((wrong + 1))
    compared=$((compared + 1))
    [ "$compared" -lt 4 ] || touch "$WORK/enough"
done
wait "$writer" || not_ok "the writer ends without an error: $(tail -n 2 "$WORK/writer.log" | tr '\n' ' ')"
check "results are compared while the table is written ($compared times)" [ "$compared" -gt 3 ]
check_equal "none differs" "$wrong" 0
check_equal "and afterwards" "$(same)" same
q "UPDATE c SET v = v + 7 WHERE id % 20000 = 3"
cell_kill
cluster_kill flash
cell_start cell1
cluster_start flash "$data"
check_equal "after kill -9 the columnar cache is empty" "$(columnar | tr -d 0)" ""
check_equal "and results are those of PostgreSQL" "$(same)" same
becomes "it fills again" filled filled
q "SELECT cellar.set_flash_cache('c', 'none')" >/dev/null
check_equal "NONE removes a table from it" "$(scan_columns | tr -d 0)" ""
q "TRUNCATE c"
check_equal "after TRUNCATE, too, results are those of PostgreSQL" "$(same)" same
q "DROP TABLE c, dim"

# ---------------------------------------------------------------- pg_dump
q "SELECT cellar.set_tablespace_flash_cache('plain', 'none')" >/dev/null
as_pg "$PG_BIN/pg_dump" -h "$WORK/run" -p "$(cluster_port flash)" -U postgres postgres >"$WORK/dump.sql"
q "CREATE DATABASE copied"
as_pg "$PG_BIN/psql" -X -q -v ON_ERROR_STOP=1 -h "$WORK/run" -p "$(cluster_port flash)" -U postgres -d copied -f "$WORK/dump.sql" >"$WORK/restore.log" 2>&1 || not_ok "the dump is restored: $(tail -n 3 "$WORK/restore.log" | tr '\n' ' ')"
settings="SELECT string_agg(concat(relation, ' ', setting), ', ' ORDER BY relation::text) FROM cellar.flash_cache_settings WHERE relation::text !~ 'pg_toast'"
check_equal "pg_dump keeps the settings" "$(DB=copied q "$settings")" "$(q "$settings")"
becomes "and the cell gets those of the copy" 'DB=copied of t_pkey' NONE

# ---------------------------------------------------------------- removal
q "DROP TABLE t; DROP INDEX pi; DROP TABLE p"
check_equal "settings of dropped relations are removed" "$(q "SELECT string_agg(relation::text, ',') FROM cellar.flash_cache_setting")" emptied
cellcli "drop flashcache" >/dev/null
check_equal "a dropped flash cache is not listed" "$(cellcli "list flashcache")" ""
check "and cannot be dropped again" grep -q "has no flash cache" < <(cellcli "drop flashcache" 2>&1 || true)
check_equal "tables are read from the cell disks" "$(q "$scan")" 60000000
cluster_stop flash
cell_stop cell1
cell_start cell1
check_matches "the next start uses the flash disks again, empty" "$(cellcli "list flashcache attributes usedSize, status")" "^[[:space:]]*[0-9]+[KM]?[[:space:]]+normal$"
cell_stop cell1
sed -i '/^flash_/d; /^columnar_/d' "$WORK/cell1.toml"
cell_start cell1
cluster_start flash "$data"
check_equal "a cell without flash cache is an error" "$(error_of "SELECT cellar.set_flash_cache('emptied', 'keep')")" 55000
check_equal "a setting can be removed without flash cache" "$(error_of "SELECT cellar.set_flash_cache('emptied', NULL)")" ""
checks_end
