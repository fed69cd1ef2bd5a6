#!/usr/bin/env bash
# Sources of AWR snapshots, on a cluster without a cell: relations that other sessions lock, their sizes, and the agreement of the
# collected figures with PostgreSQL's views; storage parameters and extensions that change; evicted statements and counters that
# decrease; the retention.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
# shellcheck source=tests/awr/on_cell.sh
. "$(dirname "$0")/on_cell.sh"

# The optional sources that are installed, in the order in which their libraries are loaded.
preload=cellar
declare -A installed
for extension in pg_stat_statements pg_stat_kcache pg_wait_sampling; do
    [ -e "$("$PG_CONFIG" --sharedir)/extension/$extension.control" ] || continue
    installed[$extension]=1
    preload+=,$extension
done
has_statements=${installed[pg_stat_statements]-}
begin_without_cell sources "shared_preload_libraries = '$preload'" ${has_statements:+"pg_stat_statements.max = 100"} "cellar.awr_max_statements = 100"
for extension in pg_stat_statements pg_stat_kcache pg_wait_sampling; do
    if [ -n "${installed[$extension]-}" ]; then q "CREATE EXTENSION $extension"; fi
done
q "CREATE DATABASE busy"

# ---- from the installation to a report, without a cell ----

# awr COMMAND [OPTION ...]: cellar awr with the cluster as repository.
awr() { "$CELLAR_BIN" awr "$1" --dsn "$(cluster_dsn sources)" "${@:2}"; }
periods=()
for rows in 2000 20000; do
    periods+=("$(q "SELECT awr.create_snapshot()")")
    DB=busy q "SELECT sum(i) FROM generate_series(1, $rows) i" >/dev/null
done
periods+=("$(q "SELECT awr.create_snapshot()")")
awr report --last 2 >"$WORK/plain.txt"
check "the first report of a cluster without a cell has a header" grep -q '^WORKLOAD REPOSITORY report for' "$WORK/plain.txt"
check "the report has the statement of the interval" grep -q 'SELECT sum(i) FROM generate_series' "$WORK/plain.txt"
check "the report has the time model" grep -q '^DB time ' "$WORK/plain.txt"
check "the report says that no file is on a cell" grep -q 'no file of the cluster is on a cell' "$WORK/plain.txt"
q "SELECT awr.create_baseline('earlier', ${periods[0]}, ${periods[1]}), awr.create_baseline('later', ${periods[1]}, ${periods[2]})" >/dev/null
check_equal "baselines name the periods of a comparison" "$(awr diff earlier later --format json | md5sum)" \
    "$(awr diff "${periods[0]}:${periods[1]}" "${periods[1]}:${periods[2]}" --format json | md5sum)"
check "a comparison of baselines has a report" grep -q "DB time" <<<"$(awr diff earlier later)"
check_equal "a comparison with an unknown baseline fails" "$(awr diff earlier lost >/dev/null 2>&1 && echo succeeds || echo fails)" fails
q "SELECT awr.drop_baseline('earlier'), awr.drop_baseline('later')" >/dev/null

# ---- relations that other sessions lock ----

# The relation in the database of the repository is read by the session that takes the snapshot, the other one by a worker.
for DB in postgres busy; do
    export DB
    q "CREATE TABLE locked AS SELECT i AS a, repeat('x', 500) AS b FROM generate_series(1, 2000) i"
    q "CREATE INDEX locked_index ON locked (a)"
    q "CREATE TABLE awaited AS SELECT 1 AS a"
    q "SELECT sum(a) FROM locked" >/dev/null
done
DB=postgres
snapshot >/dev/null
for DB in postgres busy; do
    export DB
    session "holder-$DB"
    exec {holder}>"$WORK/holder-$DB"
    echo "BEGIN; LOCK TABLE locked IN ACCESS EXCLUSIVE MODE; SELECT * FROM awaited;" >&"$holder"
    holders+=("$holder")
    wait_for "EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'holder-$DB' AND state = 'idle in transaction' AND query ~ 'awaited')"
    # A request that waits for a lock keeps later requests waiting, too.
    PGAPPNAME=waiter-$DB q "TRUNCATE awaited" >/dev/null 2>&1 &
    remember_process $!
    wait_for "EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'waiter-$DB' AND wait_event_type = 'Lock')"
done
DB=postgres
while_locked=$(snapshot)
check_equal "a locked relation is not noted as dropped" "$(notes "$while_locked")" ""
check_equal "no source fails because of a lock" "$(q "SELECT string_agg(object || ': ' || description, ', ') FROM awr.note WHERE snap_id = $while_locked AND kind = 'source failed'")" ""
for holder in "${holders[@]}"; do
    echo "COMMIT;" >&"$holder"
    exec {holder}>&-
done
wait_for "NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name ~ '^(holder|waiter)-')"
for DB in postgres busy; do
    export DB
    q "SELECT sum(a) FROM locked" >/dev/null
done
DB=postgres
after=$(snapshot)
check_equal "no object is noted as dropped after a lock" "$(notes "$after")" ""
for database in postgres busy; do
    of() { q "SELECT $2 FROM awr.$1 s JOIN pg_database d ON d.oid = s.dbid WHERE snap_id = $after AND relname = 'locked' AND datname = '$database'"; }
    check_equal "database $database: scans and growth of a table that was locked at the previous AWR snapshot" "$(of table_stat "seq_scan, size_growth")" "1|0"
    check_equal "database $database: scans and growth of its index, which planning reads" "$(of index_stat "idx_scan, size_growth")" "0|0"
    check_equal "database $database: size of the table" "$(of table_stat size)" "$(DB=$database q "SELECT pg_relation_size('locked')")"
done

# ---- collected figures beside PostgreSQL's views ----

DB=busy q "CREATE TABLE wide (a int PRIMARY KEY, b text); ALTER TABLE wide ALTER b SET STORAGE EXTERNAL; INSERT INTO wide SELECT i, repeat('y', 5000) FROM generate_series(1, 100) i"
DB=busy q "SELECT length(b) FROM wide WHERE a = 7" >/dev/null
snapshot >/dev/null
# objects DATA: packed rows as an array of objects.
objects() {
    printf "(SELECT jsonb_agg(jsonb_object(string_to_array(lines[2], E'\\\\t'), string_to_array(line, E'\\\\t', E'\\\\\\\\N'))) FROM string_to_array(%s #>> '{}', E'\\\\n') lines, unnest(lines[3:]) line)" "$1"
}
for kind in table index; do
    if [ $kind = table ]; then id=relid views=tables; else id=indexrelid views=indexes; fi
    difference=$(DB=busy q "SELECT string_agg(key || ' ' || relname || ' ' || value || ' ' || coalesce(c.row ->> key, 'NULL'), ', ')
        FROM (SELECT s.relname, key, value, s.$id FROM pg_statio_all_$views s, jsonb_each_text(to_jsonb(s)) WHERE key LIKE '%blks%' AND schemaname = 'public') v
             LEFT JOIN (SELECT (r ->> '$id')::oid AS $id, r AS row FROM jsonb_array_elements('$(q "SELECT jsonb_agg(r) FROM awr.last_value l, jsonb_array_elements($(objects l.data)) r
                WHERE kind = '${kind}_stat' AND database = (SELECT oid FROM pg_database WHERE datname = 'busy') AND r ->> 'schemaname' = 'public'")'::jsonb) r) c USING ($id)
        WHERE value IS DISTINCT FROM c.row ->> key")
    check_equal "blocks read and hit of $views are those of pg_statio_all_$views" "$difference" ""
    check_equal "sizes of $views are those of pg_relation_size()" "$(DB=busy q "SELECT count(*) FILTER (WHERE pg_relation_size(oid) <> size) || ' of ' || (count(*) > 0)
        FROM jsonb_to_recordset('$(q "SELECT jsonb_agg(jsonb_build_object('oid', r -> '$id', 'size', r -> 'size')) FROM awr.last_value l, jsonb_array_elements($(objects l.data)) r
            WHERE kind = '${kind}_stat' AND database = (SELECT oid FROM pg_database WHERE datname = 'busy')")'::jsonb) x (oid oid, size bigint)")" "0 of true"
done
# A segment that is full is followed by another one. The segments of this relation are sparse files.
DB=busy q "CREATE TABLE segments (a int); CHECKPOINT"
file=$data/$(DB=busy q "SELECT pg_relation_filepath('segments')")
as_pg truncate -s 1G "$file" "$file.1"
as_pg truncate -s 8192 "$file.2"
end=$(snapshot)
check_equal "the size of a table is that of all of its segments" "$(q "SELECT size FROM awr.table_stat WHERE snap_id = $end AND relname = 'segments'")" $((2 * 1073741824 + 8192))

# ---- storage parameters and extensions that change ----

# setting BEGIN END NAME: values of a setting, as in the document of the report.
setting() { q "SELECT concat_ws(' -> ', coalesce(e ->> 'begin', 'none'), coalesce(e ->> 'end', 'none')) FROM jsonb_array_elements(awr.report_data($1, $2) -> 'settings') e WHERE e ->> 'name' = '$3'"; }
begin=$(snapshot)
DB=busy q "ALTER TABLE wide SET (fillfactor = 70, autovacuum_enabled = off, toast.autovacuum_enabled = off)"
DB=busy q "CREATE EXTENSION cellar VERSION '1.0'"
middle=$(snapshot)
DB=busy q "ALTER TABLE wide RESET (fillfactor, autovacuum_enabled, toast.autovacuum_enabled)"
DB=busy q "ALTER EXTENSION cellar UPDATE"
end=$(snapshot)
check_equal "storage parameters that were set" "$(setting "$begin" "$middle" "storage parameters of public.wide in busy")" "none -> fillfactor=70, autovacuum_enabled=off"
check_equal "storage parameters of a TOAST table" "$(setting "$begin" "$middle" "storage parameters of TOAST of public.wide in busy")" "none -> autovacuum_enabled=off"
check_equal "storage parameters that were reset" "$(setting "$middle" "$end" "storage parameters of public.wide in busy")" "fillfactor=70, autovacuum_enabled=off -> none"
check_equal "storage parameters that were set and reset in the period" "$(setting "$begin" "$end" "storage parameters of public.wide in busy")" ""
check_equal "an extension that was created" "$(setting "$begin" "$middle" "extension cellar in busy")" "none -> 1.0"
check_equal "an extension that was updated" "$(setting "$middle" "$end" "extension cellar in busy")" "1.0 -> 1.1"
check "the report shows what was reset" grep -q 'storage parameters of public.wide.*(removed)' <<<"$(q "SELECT awr.report($middle, $end)")"
begin=$end
DB=busy q "DROP EXTENSION cellar"
end=$(snapshot)
check_equal "an extension that was dropped" "$(setting "$begin" "$end" "extension cellar in busy")" "1.1 -> none"
last=$(snapshot)
check_equal "a later period does not contain the extension" "$(setting "$end" "$last" "extension cellar in busy")" ""

# ---- optional sources ----

# figure SINCE UNTIL NAME: the value of a statistic of the report.
figure() { q "SELECT e -> 'value' FROM jsonb_array_elements(awr.report_data($1, $2) -> 'statistics') e WHERE e ->> 'name' = '$3'"; }
# available SNAPSHOT NAME: whether the report about the interval that ends with the snapshot says that the source is available.
available() { q "SELECT e ->> 'available' FROM jsonb_array_elements(awr.report_data($1, $2) -> 'sources') e WHERE e ->> 'name' = '$3'"; }
begin=$last
q "SELECT pg_sleep(0.5)" >/dev/null
end=$(snapshot)
if [ -n "${installed[pg_wait_sampling]-}" ]; then
    check "waits that pg_wait_sampling sampled are part of the report: $(figure "$begin" "$end" pg_wait_sampling.Timeout.PgSleep)" \
        test "$(figure "$begin" "$end" pg_wait_sampling.Timeout.PgSleep)" -gt 10
else
    skip "waits that pg_wait_sampling samples: it is not installed"
fi
if [ -n "${installed[pg_stat_kcache]-}" ]; then
    DB=busy q "CREATE TABLE written AS SELECT repeat('w', 1000) AS a FROM generate_series(1, 3000)"
    since=$end
    DB=busy q "SELECT sum(length(a)) FROM written, generate_series(1, 50)" >/dev/null
    end=$(snapshot)
    us=$(figure "$since" "$end" "pg_stat_kcache.user time us")
    check "CPU time that pg_stat_kcache counted is part of the report: $us us" test "$us" -gt 10000
else
    skip "what pg_stat_kcache counts: it is not installed"
fi
for extension in pg_stat_statements pg_stat_kcache pg_wait_sampling; do
    check_equal "the report says whether $extension is available" "$(available "$begin" "$end" $extension)" "$([ -n "${installed[$extension]-}" ] && echo true || echo false)"
done
version_of() { [ "$PG_MAJOR" -ge "$1" ] && echo true || echo false; }
check_equal "the report says whether the server has pg_stat_io" "$(available "$begin" "$end" io_stat)" "$(version_of 16)"
check_equal "the report says whether the server counts I/O of sessions" "$(available "$begin" "$end" session_io_stat)" "$(version_of 18)"
if [ "$PG_MAJOR" -ge 18 ]; then
    DB=busy session writer
    exec {writer}>"$WORK/writer"
    begin=$(snapshot)
    echo "CREATE TABLE written_once AS SELECT repeat('r', 500) AS a FROM generate_series(1, 20000); SELECT pg_stat_force_next_flush();" >&"$writer"
    echo "CREATE TABLE written_again AS SELECT * FROM written_once; SELECT 'last', pg_stat_force_next_flush();" >&"$writer"
    wait_for "EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'writer' AND state = 'idle' AND query LIKE 'SELECT ''last''%')"
    end=$(snapshot)
    written=$(q "SELECT e ->> 'extend_bytes' FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'session_io') e WHERE e ->> 'application' = 'writer' AND e ->> 'database' = 'busy'")
    size=$(DB=busy q "SELECT pg_relation_size('written_once') + pg_relation_size('written_again')")
    check "the report attributes what a session wrote: $written bytes, the tables have $size" test "${written:-0}" -ge "$size"
    exec {writer}>&-
    wait_for "NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'writer')"
    # The session adds its last statements when it ends.
    end=$(snapshot)
else
    skip "I/O of sessions: PostgreSQL 18 and later count it"
fi
last=$end

# ---- evicted statements ----

begin=$last
# Statements with different numbers of columns have different query identifiers.
for ((i = 1; i <= 300; i++)); do echo "SELECT 1$(printf "%$((i - 1))s" "" | sed "s/ /, 1/g");"; done >"$WORK/statements.sql"
DB=busy PGAPPNAME=many sql sources busy -f "$WORK/statements.sql" >/dev/null
wait_for "NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'many')"
end=$(snapshot)
# The worker that collects the statistics of the database executes a statement there, too.
check_equal "each of 300 statements is counted once, although the table holds 100" \
    "$(q "SELECT sum((e -> 'calls')::int) BETWEEN 300 AND 301 FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'statements') e WHERE e ->> 'database' = 'busy'")" t
if [ -n "$has_statements" ]; then
    check_equal "statements that pg_stat_statements removed are noted" "$(notes "$end")" "statements evicted"
else
    skip "statements that pg_stat_statements removes: it is not installed"
fi
check_equal "no figure is negative after an eviction" "$(negative "$begin" "$end")" ""

# ---- a cell that was not asked before ----

cell_row() { printf '{"cell": "%s", "name": "flash_cache_hits", "total": %s, "value": null, "stats_reset": "1"}' "$1" "$2"; }
check_equal "what a cell counted before the first AWR snapshot that asked it is not counted" "$(sql sources postgres -c "BEGIN" \
    -c "SELECT awr.store_kind('cell_stat', current_date, 999999, 1, '[$(cell_row old 7), $(cell_row new 1000)]', '[$(cell_row old 5)]')" \
    -c "SELECT string_agg(cell || ' ' || total, ', ') FROM awr.cell_stat WHERE snap_id = 999999" -c "ROLLBACK" | grep .)" "old 2"

# ---- statements that pg_stat_statements counts ----

if [ -n "$has_statements" ]; then
    statement() { q "SELECT e ->> '$3' FROM jsonb_array_elements(awr.report_data($1, $2) -> 'statements') e WHERE e ->> 'text' ~ 'sum\(jitted'"; }
    begin=$end
    jitted="SELECT sum(jitted * 2) FROM generate_series(1, 1000) jitted"
    DB=busy q "SET jit = on; SET jit_above_cost = 0; $jitted" >/dev/null
    end=$(snapshot)
    if [ "$(q "SELECT pg_jit_available()")" = t ]; then
        check "the report has the JIT time of a statement" test "$(statement "$begin" "$end" jit_us)" -gt 0
        # Beyond 10,000 statements, the report lists the leading ones.
        check_equal "the report has it among thousands of statements, too" "$(sql sources postgres -c "BEGIN" \
            -c "INSERT INTO awr.plan_stat SELECT (jsonb_populate_record(p, jsonb_build_object('query_id', n, 'plan_id', n))).*
                FROM (SELECT p FROM awr.plan_stat p WHERE snap_id = $end LIMIT 1) x, generate_series(1, 10001) n" \
            -c "SELECT e -> 'jit_us' FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'statements') e WHERE e ->> 'text' ~ 'sum\(jitted'" \
            -c "ROLLBACK")" "$(statement "$begin" "$end" jit_us)"
    else
        skip "JIT times: PostgreSQL cannot compile"
    fi
    check "the report has its CPU time" test -n "$(statement "$begin" "$end" cpu_us)"
    q "ALTER SYSTEM SET cellar.awr_track_statements = off"
    q "SELECT pg_reload_conf()" >/dev/null
    wait_for "current_setting('cellar.awr_track_statements') = 'off'"
    begin=$(snapshot)
    for _ in 1 2 3; do DB=busy q "$jitted" >/dev/null; done
    end=$(snapshot)
    check_equal "pg_stat_statements counts statements that the extension does not" "$(statement "$begin" "$end" calls)" 3
    check_equal "it has no CPU time" "$(statement "$begin" "$end" cpu_us)" ""
    check_equal "its maximum since the reset is no maximum of the period" "$(statement "$begin" "$end" max_us)" ""
    check_equal "without track_planning, nothing says how many plans were made" \
        "$(q "SELECT e ->> 'name' FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'statistics') e WHERE e ->> 'name' = 'parse count (hard)'")" ""
    q "ALTER SYSTEM RESET cellar.awr_track_statements"
    q "SELECT pg_reload_conf()" >/dev/null
    wait_for "current_setting('cellar.awr_track_statements') = 'on'"
    last=$end
    end=$(snapshot)
    check_equal "a period in which only a part of the statements was counted has a note" \
        "$(q "SELECT string_agg(snap_id || substring(description FROM ' from [^;]*'), ', ' ORDER BY snap_id) FROM awr.note WHERE kind = 'statement tracking changed'")" "$begin from on to off, $end from off to on"
    check_equal "a period without any does not" "$(q "SELECT coalesce(awr.report_data($begin, $last) -> 'notes', '[]') @> '[{\"kind\": \"statement tracking changed\"}]'")" f
else
    skip "JIT times and statements that pg_stat_statements counts: it is not installed"
fi

# ---- counters that decrease ----

begin=$end
DB=busy q "SELECT sum(a) FROM locked" >/dev/null
# As if the counters had been greater: a wrapped counter of a device, a reset of a table's statistics.
q "UPDATE awr.last_value SET data = (SELECT jsonb_agg(CASE WHEN r ->> 'name' ~ '^(DISK|NETWORK)_.*_BYTES' THEN r || '{\"total\": 9223372036854775807}' ELSE r END) FROM jsonb_array_elements(data) r) WHERE kind = 'os_stat'"
q "UPDATE awr.last_value SET data = (SELECT jsonb_agg(CASE WHEN r ->> 'relname' = 'locked' THEN r || '{\"seq_scan\": 9000000000}' ELSE r END) FROM jsonb_array_elements($(objects data)) r) WHERE kind = 'table_stat'"
end=$(snapshot)
check_equal "counters that decrease are noted" "$(q "SELECT string_agg(DISTINCT kind || ' ' || object, ', ') FROM awr.note WHERE snap_id = $end AND kind = 'statistics reset'")" \
    "$([ -r /proc/diskstats ] && echo "statistics reset os_stat, ")statistics reset table_stat"
check_equal "no figure is negative after a counter decreased" "$(negative "$begin" "$end")" ""
check_equal "a device whose counter has wrapped has no increase" "$(q "SELECT coalesce(max(total), 0) FROM awr.os_stat WHERE snap_id = $end AND name ~ '^(DISK|NETWORK)_.*_BYTES'")" 0
check "the increase of a table whose statistics restarted is at most the new count" \
    test "$(q "SELECT seq_scan FROM awr.table_stat t JOIN pg_database d ON d.oid = t.dbid WHERE snap_id = $end AND relname = 'locked' AND datname = 'busy'")" -le 10

# ---- an index that is dropped ----

DB=busy q "CREATE TABLE indexed AS SELECT n AS a, n % 100 AS b FROM generate_series(1, 10000) n; CREATE INDEX indexed_a ON indexed (a); CREATE INDEX indexed_b ON indexed (b);
    ANALYZE indexed; SELECT count(*) FROM (SELECT (SELECT count(*) FROM indexed WHERE a = n) FROM generate_series(1, 100) n) x" >/dev/null
begin=$(snapshot)
DB=busy q "DROP INDEX indexed_a; SELECT sum(b) FROM indexed" >/dev/null
end=$(snapshot)
check_equal "a dropped index is no reset of the statistics of its table" \
    "$(q "SELECT count(*) FROM awr.note WHERE snap_id = $end AND kind = 'statistics reset'")" 0
check_equal "the increases of the table are those of the interval" \
    "$(q "SELECT n_tup_ins, analyze_count, seq_scan BETWEEN 1 AND 2, idx_scan FROM awr.table_stat WHERE snap_id = $end AND relname = 'indexed'")" "0|0|t|0"

# ---- a statement that has not ended ----

begin=$end
DB=busy q "BEGIN; LOCK TABLE indexed; SELECT pg_sleep(60)" >/dev/null 2>&1 &
wait_for "EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep')"
sleep 3
end=$(snapshot)
check_equal "the report has the text of a statement that has not ended" \
    "$(q "SELECT e ->> 'text' FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'statements') e WHERE e ->> 'text' LIKE '%pg_sleep(%' AND NOT e ? 'calls'" | sed 's/^ *//; s/(.*//')" "SELECT pg_sleep"
check_equal "idle waits inside of a statement are an event without being activity" \
    "$(q "SELECT e ->> 'class', (e ->> 'time_us')::bigint BETWEEN 1000000 AND 6000000, coalesce(d -> 'ash' -> 'by_event', '[]') @> '[{\"event\": \"PgSleep\"}]'
          FROM awr.report_data($begin, $end) d, jsonb_array_elements(d -> 'events') e WHERE e ->> 'event' = 'PgSleep'")" "Idle|t|f"
check_equal "times of I/O that are not measured are no zeros" \
    "$(q "SELECT d -> 'databases' @? '\$[*].blk_read_us', d -> 'statements' @? '\$[*].blk_read_us', d -> 'sources' @> '[{\"name\": \"track_io_timing\", \"available\": false}]' FROM awr.report_data($begin, $end) d")" "f|f|t"
check_equal "settings are those of the server, not of the session that collects them" \
    "$(q "SELECT setting, source FROM awr.setting WHERE name = 'search_path' ORDER BY snap_id DESC LIMIT 1")" "\"\$user\", public|default"
q "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'" >/dev/null

# ---- a query of another database that is canceled ----

check_equal "a canceled query of another database ends with an error" \
    "$(sqlstate_of "$cluster" postgres "SET statement_timeout = '200ms'; SELECT awr.query_database(oid, 'SELECT to_jsonb(1) FROM pg_sleep(600)') FROM pg_database WHERE datname = 'template1'")" 57014
wait_for "NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'cellar awr query')"

# ---- the retention ----

q "SELECT awr.create_partitions('2020-02-02')" >/dev/null
q "INSERT INTO awr.plan_stat (snap_day, snap_id, instance_id, database, role, query_id, plan_id) SELECT '2020-02-02', -1, 1, 1, 1, i, i FROM generate_series(1, 1000) i"
check_equal "the retention drops the tables of a day, and deletes no row of statistics" \
    "$(q "BEGIN; SELECT awr.drop_expired_snapshots('8 days');
          SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = 'awr'::regnamespace AND relname LIKE '%\_20200202'),
                 (SELECT coalesce(sum(n_tup_del), 0) FROM pg_stat_xact_all_tables t
                  WHERE schemaname = 'awr' AND EXISTS (SELECT FROM pg_inherits WHERE inhrelid = t.relid)); COMMIT" | tr '\n' ' ')" "1 0|0 "
check_equal "no partition of the day is left" "$(q "SELECT count(*) FROM pg_class WHERE relname LIKE '%\_20200202'")" 0

checks_end
