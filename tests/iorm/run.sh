#!/usr/bin/env bash
# I/O resource management with two databases on a cell, whose disk follows the model of a hard disk: names of databases and consumer
# groups reach the cell; the report of the history names the database with most of the I/O; a limit for its name acts on it.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
# shellcheck source=tests/awr/on_cell.sh
. "$(dirname "$0")/../awr/on_cell.sh"

cli() { "$CELLAR_BIN" cellcli --cell "$WORK/cell1.toml" --json -e "$1"; }
report() { "$CELLAR_BIN" iorm report --cell "$WORK/cell1.toml" "$@"; }
has_name() { cli "list database where name = $1 attributes name" | grep -q "\"$1\"" && echo t; }
has_report() { report --where "collectionTime > '$1'" | grep -q "Consumer Group: batch" && echo t; }
# milliseconds COMMAND ...: how long a command takes.
milliseconds() {
    local from
    from=$(date +%s%N)
    "$@" >/dev/null
    echo $((($(date +%s%N) - from) / 1000000))
}
scan() { PGOPTIONS="-c cellar.consumer_group=batch" DB=reports q "SELECT sum(a) FROM big"; }

extension_installed || die "the extension is not installed: run scripts/build.sh extension"
cluster=iorm
work_begin "$cluster"
data=$WORK/cell1/pgdata
# The cache does not hold the table, so each scan reads the disk.
cell_configure cell1 16MiB "$WORK/cell1-disk"
cat >>"$WORK/cell1.toml" <<TOML
model = "hdd-15k"
model_time_scale = 0.1

[metrics]
history_interval_seconds = 1
TOML
cell_start cell1
begin_cluster
q "CREATE DATABASE crdb"
q "CREATE DATABASE reports"
DB=crdb q "CREATE TABLE t AS SELECT n AS a FROM generate_series(1, 10000) n"
DB=reports q "CREATE EXTENSION cellar"
DB=reports q "CREATE TABLE big AS SELECT n AS a, repeat('x', 1000) AS b FROM generate_series(1, 60000) n"
DB=reports q "VACUUM big"
q "CHECKPOINT"

for name in crdb reports postgres; do
    check "the cell knows the name of the database $name" wait_for_true 20 has_name "$name"
done
q "ALTER DATABASE reports RENAME TO sold"
check "a new name reaches the cell" wait_for_true 20 has_name sold
q "ALTER DATABASE sold RENAME TO reports"
check "the old name again" wait_for_true 20 has_name reports

since=$(date -u +%Y-%m-%dT%H:%M:%S)
for _ in 1 2 3 4; do
    DB=crdb q "UPDATE t SET a = a + 1"
    q "CHECKPOINT"
    scan >/dev/null
    sleep 0.5
done
check "the report has the consumer group of the scans" wait_for_true 20 has_report "$since"
report --where "collectionTime > '$since'" --json >"$WORK/report.json"
report --where "collectionTime > '$since'" >"$WORK/report.txt"
# sum FILTER: the sum over all minutes.
sum() { DB=postgres q "SELECT coalesce(round(sum(v::numeric) * 1000), 0) FROM jsonb_path_query(\$json\$$(cat "$WORK/report.json")\$json\$, '$1') v"; }
noisy=$(sum '$[*].databases[*] ? (@.name == "reports").disk_mbps')
for other in crdb _OTHER_DATABASE_ postgres template1; do
    quiet=$(sum "\$[*].databases[*] ? (@.name == \"$other\").disk_mbps")
    check "reports has more I/O than $other ($noisy and $quiet)" test "$noisy" -gt "$quiet"
done
check "large I/O is that of the group batch" test "$(sum '$[*].databases[*] ? (@.name == "reports").consumer_groups[*] ? (@.name == "batch").large_iops')" -gt 0
check "the checkpointer writes for crdb" test "$(sum '$[*].databases[*] ? (@.name == "crdb").consumer_groups[*] ? (@.name == "_ORACLE_BACKGROUND_GROUP_").small_iops')" -gt 0
check "the text names the database" grep -qx "Database: reports" "$WORK/report.txt"
check "the text ends with the sums of the cell" grep -q "^Cell Total Disk Throughput: MBPS=" "$WORK/report.txt"
check "the history has the metrics of the database" grep -q DB_IO_RQ_LG < <(cli "list metrichistory where collectionTime > '$since' and metricObjectName = reports and name = DB_IO_RQ_LG")
check "a time that is none is an error" grep -q "is not a time; write one like" < <(report --where "collectionTime > soon" 2>&1 || true)

cli "alter iormplan objective = high_throughput" >/dev/null
scan >/dev/null
free=$(milliseconds scan)
cli "alter iormplan dbplan=((name=reports, share=1, limit=1))" >/dev/null
scan >/dev/null
limited=$(milliseconds scan)
say "scan: $free ms, with a limit of 1 %: $limited ms"
check "the log of the cell has the plan" grep -q "the IORM plan was altered: objective high_throughput, dbplan ((name=reports,share=1,limit=1))" "$WORK/cell1.log"
check "the limit for the name acts on the database" test "$limited" -gt $((3 * free))
check "the wait is that of the database" test "$(cli "list metriccurrent where name = DB_IO_WT_LG and metricObjectName = reports attributes metricValue" | tr -dc '0-9.\n' | sed '/^$/d' | cut -d. -f1)" -gt "$free"
check "a calibration without FORCE needs idle disks, or succeeds" grep -Eq "CALIBRATE FORCE|is_model" < <(cli "calibrate" 2>&1 || true)
check "a disk with a model has the rates of the model" grep -q '"is_model": true' < <(cli "calibrate force")

# ---------------------------------------------------------------- AWR
DB=reports q "SELECT awr.create_snapshot()" >/dev/null
scan >/dev/null
DB=reports q "SELECT awr.create_snapshot()" >/dev/null
read -r begin end < <(DB=reports q "SELECT min(snap_id), max(snap_id) FROM (SELECT snap_id FROM awr.snapshots ORDER BY snap_id DESC LIMIT 2) s" | tr '|' ' ')
class="jsonb_array_elements(awr.report_data($begin, $end) -> 'iorm') c WHERE c ->> 'database' = 'reports' AND c ->> 'consumer_group' = 'batch' AND c ->> 'size' = 'large'"
scanned=$(DB=reports q "SELECT sum((c ->> 'bytes')::numeric) FROM $class")
check "the AWR report has the bytes of the consumer group: $scanned" test "${scanned:-0}" -gt 10000000
check "and the time that its requests waited" test "$(DB=reports q "SELECT sum((c ->> 'wait_us')::numeric) FROM $class")" -gt 0
check "the text report has a section about resource management" grep -q "^IORM by Consumer Group" < <(DB=reports q "SELECT awr.report($begin, $end)")
q "ALTER DATABASE reports RENAME TO sold"
check "the second new name reaches the cell" wait_for_true 60 has_name sold
DB=sold q "SELECT awr.create_snapshot()" >/dev/null
renamed=$(DB=sold q "SELECT coalesce(sum((c ->> 'bytes')::numeric), 0) FROM jsonb_array_elements(awr.report_data($end, (SELECT max(snap_id) FROM awr.snapshots)) -> 'iorm') c WHERE c ->> 'consumer_group' = 'batch'")
check "a new name counts nothing again: $renamed" test "$renamed" -lt "$((scanned / 2))"
cluster_stop "$cluster"
check "the cell stops" cell_stop cell1
checks_end
