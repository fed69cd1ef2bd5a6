#!/usr/bin/env bash
# I/O by file class and by relation, on a cell: reads of each class beside a count made by the test itself; sums over the
# classes; relations that are rewritten or dropped; a restart of the cell; a cell that cannot count by file.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
# shellcheck source=tests/awr/on_cell.sh
. "$(dirname "$0")/on_cell.sh"

# read_blocks FILE COUNT: reads single blocks without the kernel's page cache, so that each read reaches the cell.
read_blocks() { dd if="$1" of=/dev/null bs=8192 count="$2" iflag=direct status=none; }
# read_large FILE COUNT: the same with 64 KiB.
read_large() { dd if="$1" of=/dev/null bs=65536 count="$2" iflag=direct status=none; }
path() { echo "$data/$(DB=app q "SELECT pg_relation_filepath('$1')")"; }
# file BEGIN END NAME FIELD: a figure of a relation: SCHEMA.TABLE, or SCHEMA.TABLE: INDEX.
file() {
    q "SELECT sum((f ->> '$4')::numeric) FROM jsonb_array_elements(awr.report_data($1, $2) -> 'cell_files') f
       WHERE NOT (f -> 'is_class')::boolean AND concat(f ->> 'schema', '.', f ->> 'table', ': ' || (f ->> 'index')) = '$3'"
}
# class BEGIN END CLASS FIELD [DATABASE]: % means all databases.
class() {
    q "SELECT coalesce(sum((f ->> '$4')::numeric), 0) FROM jsonb_array_elements(awr.report_data($1, $2) -> 'cell_files') f
       WHERE (f -> 'is_class')::boolean AND coalesce(f ->> 'class', '') = '$3' AND f ->> 'database' LIKE '${5:-app}'"
}

begin_on_cell files "shared_buffers = 64MB" "checkpoint_timeout = 1d" "bgwriter_lru_maxpages = 0"
q "CREATE DATABASE app"
directory_for_tablespace "$WORK/cell1/space"
q "CREATE TABLESPACE space LOCATION '$WORK/cell1/space'"
DB=app q "CREATE TABLE t AS SELECT n AS a, repeat('x', 500) AS b FROM generate_series(1, 10000) n"
DB=app q "CREATE INDEX t_a ON t (a)"
DB=app q "CREATE TABLE wide (a text); ALTER TABLE wide ALTER a SET STORAGE EXTERNAL"
DB=app q "INSERT INTO wide SELECT repeat(n::text, 3000) FROM generate_series(1000, 1200) n"
DB=app q "CREATE TABLE moved TABLESPACE space AS SELECT n AS a, repeat('x', 500) AS b FROM generate_series(1, 2000) n"
DB=app q "CREATE TABLE rewritten AS SELECT n AS a, repeat('x', 500) AS b FROM generate_series(1, 2000) n"
DB=app q "CREATE TABLE dropped AS SELECT n AS a, repeat('x', 500) AS b FROM generate_series(1, 2000) n"
DB=app q "VACUUM"
q "CHECKPOINT"
toast=$(DB=app q "SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 'wide'")

# ---- reads by relation and class ----

begin=$(snapshot)
read_blocks "$(path t)" 300
read_large "$(path t)" 40
read_blocks "$(path t_a)" 20
read_blocks "$(path "$toast")" 50
read_blocks "$(path moved)" 60
read_blocks "$(path pg_proc)" 30
read_blocks "$(path t)_fsm" 3
read_blocks "$data/global/pg_control" 1
read_blocks "$(path rewritten)" 70
DB=app q "VACUUM FULL rewritten"
read_blocks "$(path dropped)" 80
DB=app q "DROP TABLE dropped"
DB=app q "SET work_mem = '64kB'; SELECT count(*) FROM (SELECT b || a FROM t ORDER BY 1 OFFSET 1) s" >/dev/null
q "CHECKPOINT"
end=$(snapshot)

check_equal "reads of a table" "$(file "$begin" "$end" public.t reads)" 340
check_equal "bytes of the reads" "$(file "$begin" "$end" public.t read_bytes)" $((300 * 8192 + 40 * 65536))
check_equal "reads of one block" "$(file "$begin" "$end" public.t small_reads)" 300
check_equal "reads in the histogram" \
    "$(q "SELECT sum(h::numeric) FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'cell_files') f, jsonb_array_elements_text(f -> 'histogram') h
          WHERE f ->> 'table' = 't' AND f ->> 'index' IS NULL")" 340
check "reads took time" test "$(file "$begin" "$end" public.t read_us)" -gt 0
check_equal "reads of an index" "$(file "$begin" "$end" "public.t: t_a" reads)" 20
check_equal "reads of an index in its class" "$(class "$begin" "$end" index reads)" 20
check_equal "a TOAST table has the name of its table" "$(file "$begin" "$end" public.wide reads)" 50
check_equal "reads of TOAST in their class" "$(class "$begin" "$end" toast reads)" 50
check_equal "reads of a table in another tablespace" "$(file "$begin" "$end" public.moved reads)" 60
check_equal "the tablespace is named" \
    "$(q "SELECT f ->> 'tablespace' FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'cell_files') f WHERE f ->> 'table' = 'moved'")" space
check "reads of the catalog" test "$(class "$begin" "$end" catalog reads)" -ge 30
check_equal "reads of free space maps" "$(class "$begin" "$end" map reads)" 3
check "reads of the control file" test "$(class "$begin" "$end" control reads %)" -ge 1
check "writes of temporary files" test "$(class "$begin" "$end" temporary write_bytes %)" -gt 5000000
check "writes of WAL" test "$(class "$begin" "$end" wal write_bytes %)" -gt 0
# The file of a relation that was rewritten or dropped has no name any more.
check_equal "reads of relations that were rewritten and dropped" "$(class "$begin" "$end" '' reads)" 150
check_equal "tables are the rest" "$(class "$begin" "$end" table reads)" $((340 + 60))

# ---- sums ----

sums() {
    q "SELECT sum((f ->> 'reads')::numeric), sum((f ->> 'read_bytes')::numeric), sum((f ->> 'writes')::numeric), sum((f ->> 'write_bytes')::numeric)
       FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'cell_files') f WHERE (f -> 'is_class')::boolean"
}
totals() {
    q "SELECT sum(s.operations) FILTER (WHERE s.kind LIKE '%read'), sum(s.bytes) FILTER (WHERE s.kind LIKE '%read'),
              sum(s.operations) FILTER (WHERE s.kind LIKE '%write'), sum(s.bytes) FILTER (WHERE s.kind LIKE '%write')
       FROM awr.cell_file_stat s WHERE s.snap_id = $end AND s.bucket = -1 AND s.filenode = 0"
}
check_equal "the sum over the classes is the sum of all operations" "$(sums)" "$(totals)"
# The counts by kind are read at another moment: nothing but writes of the snapshot itself lies between.
check_equal "reads by class are reads by kind" \
    "$(q "SELECT sum((f ->> 'reads')::numeric) FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'cell_files') f WHERE (f -> 'is_class')::boolean AND f ->> 'database' = 'app'")" \
    "$(q "SELECT sum((f ->> 'operations')::numeric) FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'cell_io') f WHERE f ->> 'kind' LIKE '%read' AND f ->> 'database' = 'app'")"
check_equal "operations by type are operations by kind, in the cell" \
    "$(q "WITH a AS MATERIALIZED (SELECT sum(operations) FILTER (WHERE filenode IS NULL) AS n FROM cellar.get_file_type_io() WHERE database = (SELECT oid FROM pg_database WHERE datname = 'app')),
               b AS MATERIALIZED (SELECT sum(operations) AS n FROM cellar.get_file_io() WHERE database = (SELECT oid FROM pg_database WHERE datname = 'app'))
          SELECT a.n = b.n FROM a, b")" t

# ---- reports ----

text=$(q "SELECT awr.report($begin, $end)")
for title in "IOStat by Filetype summary" "IOStat by Function/Filetype summary" "File IO Stats" "File Read Histogram Stats"; do
    check "the report contains: $title" grep -q "^$title" <<<"$text"
done
check "File IO Stats lists the table" grep -q -E '^app +pg_default +public\.t +Data File +340 ' <<<"$text"
check "the histogram lists the table" grep -q -E '^app +public\.t +340 ' <<<"$text"
check "types of files are listed" grep -q -E '^TOAST +app +400K ' <<<"$text"
check_equal "no line exceeds 132 columns" "$(LC_ALL=C.UTF-8 grep -cE '.{133}' <<<"$text")" 0
html=$(q "SELECT awr.report($begin, $end, 'html')")
check "HTML contains the sections" grep -q 'File Read Histogram Stats' <<<"$html"
check_equal "JSON contains the figure" \
    "$(q "SELECT awr.report($begin, $end, 'json')" | jq '[.. | objects | select(.id? == "io-file") | .. | arrays | select(any(.[]; . == "public.t"))][0][4]')" 340
check_equal "the cell counts all types of files" "$(q "SELECT string_agg(DISTINCT file_type, ' ') FROM cellar.get_file_type_io()")" \
    "control map other relation temporary wal"

# ---- a restart of the cell ----

begin=$end
read_blocks "$(path t)" 5
cluster_stop files
cell_stop cell1
cell_start cell1
cluster_start files "$data"
read_blocks "$(path t)" 7
end=$(snapshot)
check "counts of a new daemon start from zero" test "$(file "$begin" "$end" public.t reads)" -ge 7
check "no count is negative" test "$(q "SELECT count(*) FROM awr.cell_file_stat WHERE operations < 0 OR bytes < 0 OR time_us < 0")" = 0

checks_end
