#!/usr/bin/env bash
# Figures of AWR reports beside independent counts: DB time with parallel workers and with statements in progress, row-lock
# waits, Smart Scan bytes and the storage of each relation.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
# shellcheck source=tests/awr/on_cell.sh
. "$(dirname "$0")/on_cell.sh"

# between DESCRIPTION LOWER VALUE UPPER
between() { check "$1: $3, between $2 and $4" awk -v l="$2" -v v="$3" -v u="$4" 'BEGIN { exit !(v + 0 >= l + 0 && v + 0 <= u + 0) }'; }
begin_on_cell figures "cellar.awr_sample_period = 200ms" "shared_buffers = 16MB" "max_worker_processes = 12" \
    "archive_mode = on" "archive_command = '/bin/true'"
q "CREATE DATABASE busy"
directory_for_tablespace "$WORK/outside"
q "CREATE TABLESPACE outside LOCATION '$WORK/outside'"
DB=busy q "CREATE EXTENSION cellar"
DB=busy q "CREATE TABLE wide AS SELECT i AS a, repeat('x', 100) AS b FROM generate_series(1, 200000) i"
DB=busy q "CREATE TABLE narrow AS SELECT i AS a FROM generate_series(1, 300000) i"
DB=busy q "CREATE TABLE away TABLESPACE outside AS SELECT i AS a FROM generate_series(1, 1000) i"
DB=busy q "VACUUM ANALYZE"

# ---- DB time of a parallel plan ----

begin=$(snapshot)
outside_us=$(($(date +%s%N) / 1000))
DB=busy PGAPPNAME=parallel q "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
    SET min_parallel_table_scan_size = 0; SET cellar.cell_offload_processing = off;
    EXPLAIN (ANALYZE, VERBOSE, FORMAT JSON) SELECT sum(length(md5(repeat(b, 50)))) FROM wide" >"$WORK/plan"
outside_us=$(($(date +%s%N) / 1000 - outside_us))
end=$(snapshot)
# The workers' time in the topmost node that they execute, by their own clocks.
workers=$(python3 - "$WORK/plan" <<'PYTHON'
import json, sys
def nodes(node):
    yield node
    for child in node.get("Plans", []):
        yield from nodes(child)
plan = json.load(open(sys.argv[1]))[0]["Plan"]
gather = next(node for node in nodes(plan) if "Workers Launched" in node)
timed = next((node for node in nodes(plan) if "Workers" in node), {"Workers": []})["Workers"]
print(gather["Workers Launched"], round(sum(w["Actual Total Time"] * 1000 for w in timed)))
PYTHON
)
read -r launched worker_us <<<"$workers"
check_equal "two workers were launched" "$launched" 2
model() { q "SELECT (e -> 'us')::bigint FROM jsonb_array_elements(awr.report_data($1, $2) -> 'time_model') e WHERE e ->> 'name' = '$3'"; }
elapsed=$(model "$begin" "$end" "parallel worker elapsed time")
between "elapsed time of parallel workers, by the clocks of their plan nodes and of the client (us)" "$worker_us" "${elapsed:-0}" $((2 * outside_us))
leader=$(q "SELECT elapsed_us FROM awr.plan_stat JOIN awr.query_text USING (query_id) WHERE snap_id = $end AND query ~ 'md5' ORDER BY elapsed_us DESC LIMIT 1")
busy() { q "SELECT (e -> 'active_us')::bigint FROM jsonb_array_elements(awr.report_data($1, $2) -> 'databases') e WHERE e ->> 'name' = 'busy'"; }
between "DB time of the database is that of leader and workers (us)" $((leader + worker_us)) "$(busy "$begin" "$end")" $((3 * outside_us))
# Waits are sampled: their error is that of the samples.
read -r db_time cpu waits error <<<"$(q "SELECT d -> 'db_time_us', (SELECT e -> 'us' FROM jsonb_array_elements(d -> 'time_model') e WHERE e ->> 'name' = 'DB CPU'),
    coalesce(sum((e -> 'time_us')::numeric) FILTER (WHERE (e -> 'foreground')::boolean AND e ->> 'class' <> 'Idle'), 0),
    coalesce(round(sqrt(sum((e ->> 'stderr_us')::numeric ^ 2))), 0)
    FROM awr.report_data($begin, $end) d, jsonb_array_elements(d -> 'events' || '[{}]') e GROUP BY d" | tr '|' ' ')"
check "DB time $db_time us covers DB CPU $cpu us and waits $waits us +- $error us" \
    test $((db_time - cpu - waits >= -3 * error - 200000)) = 1
check "the report prints the workers' time" grep -q 'parallel worker elapsed time' <<<"$(q "SELECT awr.report($begin, $end)")"

# ---- DB time of a statement in progress ----

age() { q "SELECT (extract(epoch FROM clock_timestamp() - state_change) * 1e6)::bigint FROM pg_stat_activity WHERE application_name = 'sleeper'"; }
begin=$(snapshot)
DB=busy PGAPPNAME=sleeper q "SELECT pg_sleep(600)" >/dev/null 2>&1 &
remember_process $!
wait_for "clock_timestamp() - query_start > interval '2 s' FROM pg_stat_activity WHERE application_name = 'sleeper' AND state = 'active'"
before=$(age)
middle=$(snapshot)
after=$(age)
between "DB time contains a statement in progress (us)" "$before" "$(busy "$begin" "$middle")" "$after"
last=$(age)
q "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'sleeper'" >/dev/null
wait_for "NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'sleeper')"
end=$(snapshot)
whole=$(busy "$begin" "$end")
check_equal "the parts of a statement that two snapshots divide add up" $(($(busy "$begin" "$middle") + $(busy "$middle" "$end"))) "$whole"
between "the whole statement counts once (us)" "$last" "$whole" $((last + 60000000))
check_equal "the DB time of the snapshots adds up to that of the report" \
    "$(q "SELECT abs(sum((e -> 'db_time_us')::numeric) - (d -> 'db_time_us')::numeric) < 1000 FROM awr.report_data($begin, $end) d, jsonb_array_elements(d -> 'snapshots') e GROUP BY d")" t

# ---- row-lock waits ----

DB=busy q "CREATE TABLE contended (id int PRIMARY KEY, a int)"
DB=busy q "INSERT INTO contended SELECT i, 0 FROM generate_series(1, 10) i"
begin=$(snapshot)
since=$(q "SELECT clock_timestamp()")
DB=busy session holder
exec 3>"$WORK/holder"
echo "BEGIN; UPDATE contended SET a = 1 WHERE id = 5;" >&3
wait_for "EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'holder' AND state = 'idle in transaction')"
for name in first second; do
    DB=busy PGAPPNAME=$name q "UPDATE contended SET a = 2 WHERE id = 5" &
    remember_process $!
    wait_for "EXISTS (SELECT FROM pg_stat_activity WHERE application_name = '$name' AND wait_event_type = 'Lock')"
done
ticks=$(q "SELECT ticks FROM awr.get_sampler_state()")
wait_for "ticks >= $ticks + 10 FROM awr.get_sampler_state()"
# Both sessions still wait: their statistics are not flushed, and the table has no other activity.
middle=$(snapshot)
table() { q "SELECT e -> '$3' FROM jsonb_array_elements(awr.report_data($1, $2) -> 'tables') e WHERE e ->> 'database' = 'busy' AND e ->> 'name' = '$4'"; }
check_equal "two waits for a row of the table" "$(table "$begin" "$middle" row_lock_waits contended)" 2
echo "COMMIT;" >&3
exec 3>&-
wait_for "NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name IN ('first', 'second'))"
end=$(snapshot)
# The second session waits for the lock of the row, and then for the first session's transaction: that is one wait.
check_equal "a wait that two snapshots divide counts once" "$(table "$begin" "$end" row_lock_waits contended)" 2
samples=$(q "SELECT count(*) FROM awr.active_session_history WHERE sample_time > '$since' AND application IN ('first', 'second') AND wait_event IN ('transactionid', 'tuple')")
# The sampler reads the lock table after the sessions: a wait may begin or end between both.
between "time of row-lock waits (us), by the session samples" $((200000 * (samples - 4))) "$(table "$begin" "$end" row_lock_us contended)" $((200000 * (samples + 4)))
check_equal "no other table has row-lock waits" "$(q "SELECT count(*) FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'tables') e WHERE (e -> 'row_lock_waits')::int > 0")" 1
check "the report lists the table by its row-lock waits" \
    grep -q -E '^ *public .*contended +busy +TABLE +[0-9]+ +2 +100\.00' <<<"$(q "SELECT awr.report($begin, $end)")"

# ---- Smart Scan bytes and storage of relations ----

begin=$end
for table in wide wide narrow; do
    DB=busy q "SET cellar.cost_factor = 0; SELECT count(*) FROM $table WHERE a < 0" >/dev/null
done
DB=busy q "SELECT count(*) FROM away WHERE a < 0" >/dev/null
end=$(snapshot)
size() { DB=busy q "SELECT pg_relation_size('$1')"; }
check_equal "eligible bytes of a table are its size per Smart Scan" "$(table "$begin" "$end" eligible_bytes wide)" $((2 * $(size wide)))
check_equal "eligible bytes of another table" "$(table "$begin" "$end" eligible_bytes narrow)" "$(size narrow)"
check_equal "the eligible bytes of the statements are those of the tables" \
    "$(q "SELECT sum((e -> 'eligible_bytes')::bigint) FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'statements') e")" \
    $((2 * $(size wide) + $(size narrow)))
for table in wide away; do
    path=$data/$(DB=busy q "SELECT pg_relation_filepath('$table')")
    if [ "$(stat -f -c %T "$path")" = fuseblk ] || df --output=fstype "$path" | grep -q fuse; then on_cell=true; else on_cell=false; fi
    check_equal "on_cell of table $table, by the file system of its file" "$(table "$begin" "$end" on_cell $table)" "$on_cell"
done
check_equal "one of the tables is on the cell" "$(table "$begin" "$end" on_cell wide) $(table "$begin" "$end" on_cell away)" "true false"

# ---- the archiver ----

cluster_set "$data" "archive_command = '/bin/false'"
q "SELECT pg_reload_conf()" >/dev/null
wait_for "current_setting('archive_command') = '/bin/false'"
for _ in 1 2; do q "SELECT pg_logical_emit_message(false, 'test', 'x'), pg_switch_wal()" >/dev/null; done
wait_for "last_failed_time > coalesce(last_archived_time, '-infinity') FROM pg_stat_archiver"
ready() { find "$data/pg_wal/archive_status" -name '*.ready' | wc -l; }
before=$(ready)
end=$(snapshot)
after=$(ready)
archiver() { q "SELECT awr.report_data($begin, $end) -> 'archiver' ->> '$1'"; }
between "WAL that waits for the archiver (bytes), by the status files" $((before * 16777216)) "$(archiver backlog_bytes)" $((after * 16777216))
check "at least one file waits" test "$before" -ge 1
check_equal "the archiver fails" "$(archiver state)" failing

checks_end
