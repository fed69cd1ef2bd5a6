#!/usr/bin/env bash
# ASH reports of a cluster without cells: a lock wait and an idle wait of known length appear with their samples, filters
# and dimensions select, samples in shared memory and in the repository count once, the sums of AWR snapshots equal the
# samples, wrong arguments are refused.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
# shellcheck source=tests/awr/on_cell.sh
. "$(dirname "$0")/on_cell.sh"

extension_installed || die "the extension is not installed: run scripts/build.sh extension"
work_begin ash
data=$WORK/data
# A data directory may be a symbolic link.
directory_for_tablespace "$WORK/files"
chmod 700 "$WORK/files"
ln -s files "$data"
q() { sql ash postgres -c "$1"; }
ash() { "$CELLAR_BIN" awr ash --dsn "$(cluster_dsn ash)" "$@"; }
ticks() { q "SELECT ticks FROM awr.get_sampler_state()"; }
# wait_for CONDITION: waits until an SQL condition is true.
wait_for() { wait_for_true 60 q "SELECT $1" || die "not true: $1"; }
# samples FILTERS [BEGIN]: the number of samples that an ASH report counts.
samples() { q "SELECT awr.ash_data('${2:-$begin}', now(), filters => '$1') -> 'history' -> 'samples'"; }
check_within_two() {
    if [ "$2" -ge $(($3 - 2)) ] && [ "$2" -le $(($3 + 2)) ]; then ok "$1: $2 samples in $3 ticks"; else not_ok "$1: $2 samples in $3 ticks"; fi
}

cluster_create ash "$data"
# The worker that stores samples is the test itself.
cluster_set "$data" "shared_preload_libraries = 'cellar'" "cellar.awr_snapshot_interval = 0" "cellar.awr_sample_period = 200ms" \
    "cellar.awr_database = template1" "autovacuum = off"
cluster_start ash "$data"
q "CREATE EXTENSION cellar"
q "CREATE TABLE t AS SELECT 1 AS a"
begin_snap=$(q "SELECT awr.create_snapshot('test')")

# ---- a session that waits for a lock, and one that sleeps ----

begin=$(q "SELECT clock_timestamp()")
mkfifo "$WORK/holder"
PGAPPNAME=holder sql ash postgres <"$WORK/holder" >/dev/null &
remember_process $!
exec 3>"$WORK/holder"
echo "BEGIN; UPDATE t SET a = 2;" >&3
wait_for "EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'holder' AND state = 'idle in transaction')"
PGAPPNAME=waiter q "UPDATE t SET a = 3" &
waiter=$!
remember_process $waiter
wait_for "EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'waiter' AND wait_event = 'transactionid')"
PGAPPNAME=sleeper q "SELECT pg_sleep(600)" >/dev/null 2>&1 &
remember_process $!
wait_for "EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'sleeper' AND wait_event = 'PgSleep')"
# Time and ticks in one statement: starting psql can take several ticks.
IFS='|' read -r since first <<<"$(q "SELECT clock_timestamp(), ticks FROM awr.get_sampler_state()")"
wait_for "ticks >= $first + 20 FROM awr.get_sampler_state()"
holder=$(q "SELECT pid FROM pg_stat_activity WHERE application_name = 'holder'")
IFS='|' read -r until waited <<<"$(q "SELECT clock_timestamp(), ticks - $first FROM awr.get_sampler_state()")"
during() { q "SELECT awr.ash_data('$since', '$until', filters => '$1') -> 'history' -> 'samples'"; }
check_within_two "a lock wait appears under its event and blocker" "$(during "{\"event\": \"transactionid\", \"blocker\": $holder}")" "$waited"
check_within_two "a sleeping session appears as idle wait, if selected" "$(during '{"wait_class": "Idle", "application": "sleeper"}')" "$waited"
check_equal "idle waits and sessions idle in a transaction are no activity" \
    "$(during '{"application": ["sleeper", "holder"]}')" 0
check_equal "the rows of a dimension add up to the samples" \
    "$(q "SELECT sum((g -> 'samples')::int) = (d -> 'history' -> 'samples')::int FROM (SELECT awr.ash_data('$begin', '$until', ARRAY['application']) AS d) d, jsonb_array_elements(d -> 'history' -> 'groups') g GROUP BY d")" t
check_equal "the slots cover the interval, and their samples add up" \
    "$(q "SELECT sum((s -> 'duration_us')::bigint) = (d -> 'elapsed_us')::bigint AND sum((s -> 'samples')::int) = (d -> 'history' -> 'samples')::int FROM (SELECT awr.ash_data('$begin', '$until') AS d) d, jsonb_array_elements(d -> 'history' -> 'slots') s GROUP BY d")" t

echo "COMMIT;" >&3
wait $waiter
begin=$since
report=$(ash --begin "$since" --end "$until" --by event,blocker --application waiter)
for title in "ASH Report For" "Activity by event, blocker" "Top User Events" "Top Background Events" "Top Service/Module" \
    "Top SQL with Top Events" "Top Sessions" "Top Blocking Sessions" "Activity Over Time" "application = waiter" "End of Report"; do
    check "text contains: $title" grep -q -F "$title" <<<"$report"
done
check "the header names the server" grep -q -F "DB/Inst: local/1" <<<"$report"
check "the header names the release" grep -q -F "$(q "SHOW server_version")" <<<"$report"
check "a statement in shared memory has its text" grep -q -F "UPDATE t SET a =" <<<"$report"
check "the blocker is named" grep -q -E "^ *$holder +transactionid +Application .* holder +idle in transaction" <<<"$report"
check "the figures are marked sampled with their error" grep -q -E 'sampled ±[0-9.]+m?s' <<<"$report"
check_equal "no line exceeds 132 columns" "$(LC_ALL=C.UTF-8 grep -cE '.{133}' <<<"$report")" 0
ash --begin "$since" --end "$until" --output "$WORK/ash.html" --by wait_class
check "HTML contains the chart" grep -q 'Average active sessions by wait class' "$WORK/ash.html"
check_equal "HTML refers to no other file" "$(grep -c -E 'https?://|src=' "$WORK/ash.html" || true)" 0
ash --begin "$since" --end "$until" --format document --output "$WORK/ash.document"
check_equal "a saved document renders the same report" "$("$CELLAR_BIN" awr ash --from-json "$WORK/ash.document" | md5sum)" "$(ash --begin "$since" --end "$until" | md5sum)"

# ---- temporary files ----

mkfifo "$WORK/sorter"
PGAPPNAME=sorter sql ash postgres <"$WORK/sorter" >/dev/null &
remember_process $!
exec 4>"$WORK/sorter"
sort_began=$(q "SELECT clock_timestamp()")
echo "SET work_mem = '64kB'; BEGIN; DECLARE c CURSOR FOR SELECT i, repeat('t', 100) FROM generate_series(1, 50000) i ORDER BY i % 1000; FETCH 1 FROM c;" >&4
wait_for "EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'sorter' AND state = 'idle in transaction' AND query LIKE '%FETCH 1%')"
first=$(ticks)
wait_for "ticks >= $first + 2 FROM awr.get_sampler_state()"
size=$(q "SELECT sum(size) FROM pg_ls_tmpdir()")
check_equal "the samples of a session contain the size of its temporary files" \
    "$(q "SELECT max(temp_bytes) FROM awr.active_session_history WHERE application = 'sorter'")" "$size"
check_equal "a session without temporary files has none" "$(q "SELECT max(temp_bytes) FROM awr.active_session_history WHERE application = 'sleeper'")" 0
check "the report shows the size of a session's temporary files" \
    grep -q -E 'sorter .* [0-9.]+M' <<<"$(ash --begin "$sort_began" --application sorter --state 'idle in transaction')"
echo "COMMIT;" >&4
exec 4>&-

# ---- samples in shared memory and in the repository ----

before=$(during '{"application": "waiter"}')
middle_snap=$(q "SELECT awr.create_snapshot('test')")
check_equal "stored samples count once" "$(during '{"application": "waiter"}')" "$before"

# ---- SQL_IDs ----

check_equal "an SQL_ID leads back to its query identifier" \
    "$(q "SELECT bool_and(awr.query_id(awr.sql_id(n)) = n) FROM (VALUES (0), (-1), (-9223372036854775808), (9223372036854775807), (1234567890123456789)) v (n)")" t
check_equal "SQL and the command print the same SQL_ID" "$(q "SELECT awr.sql_id(-1), awr.sql_id(0)")" "gzzzzzzzzzzzz|0000000000000"
id=$(q "SELECT awr.sql_id(query_id) FROM awr.active_session_history WHERE application = 'waiter' AND query_id IS NOT NULL LIMIT 1")
check_equal "a statement is selected by its SQL_ID" "$(during "{\"sql_id\": \"$id\"}")" "$(during '{"application": "waiter", "wait_class": "Application"}')"

# ---- sums of AWR snapshots ----

# The interval of the second AWR snapshot contains a restart.
q "SELECT awr.store_samples()" >/dev/null
cluster_stop ash
cluster_start ash "$data"
first=$(ticks)
wait_for "ticks >= $first + 5 FROM (SELECT awr.get_sampler_state() AS s, sum(n) FROM generate_series(1, 500000) n) s, LATERAL (SELECT (s.s).ticks) t"
end_snap=$(q "SELECT awr.create_snapshot('test')")
# sampled BEGIN END: what a report shows of session samples.
sampled() { q "SELECT jsonb_pretty(d -> 'ash'), jsonb_pretty(d -> 'events') FROM awr.report_data($1, $2) d"; }
# of_report LIST COLUMNS: a list of the report's session samples, with nulls as empty texts.
of_report() { q "SELECT string_agg(concat_ws('/', $2, e ->> 'samples'), ' ' ORDER BY concat_ws('/', $2, e ->> 'samples')) FROM jsonb_array_elements(awr.report_data($begin_snap, $end_snap) -> 'ash' -> '$1') e"; }
# of_samples CONDITION COLUMNS: the same from the session samples.
of_samples() {
    q "SELECT string_agg(concat_ws('/', k, n), ' ' ORDER BY concat_ws('/', k, n))
       FROM (SELECT concat_ws('/', $2) AS k, count(*) AS n FROM awr.active_session_history a
             WHERE chunk_begin IN (SELECT begin_time FROM awr.sample_chunk WHERE snap_id IN ($middle_snap, $end_snap)) AND $1 GROUP BY 1) s"
}
activity="wait_class <> 'Idle' AND state NOT LIKE 'idle in transaction%'"
equal_to_samples() {
    check_equal "$1: samples by event" "$(of_report by_event "e ->> 'event', e ->> 'type', e ->> 'class', e ->> 'foreground'")" \
        "$(of_samples "$activity" "coalesce(wait_event, 'CPU'), wait_event_type, wait_class, CASE WHEN a.backend_type IN ('client backend', 'parallel worker') THEN 'true' ELSE 'false' END")"
    check_equal "$1: samples by statement" "$(of_report top_sql "e ->> 'query_id', e ->> 'plan_id', e ->> 'event', e ->> 'class'")" \
        "$(of_samples "$activity AND a.query_id IS NOT NULL" "a.query_id, a.plan_hash, coalesce(wait_event, 'CPU'), wait_class")"
    check_equal "$1: samples by session" "$(of_report top_sessions "e ->> 'pid', e ->> 'application', e ->> 'user', e ->> 'backend_type'")" \
        "$(of_samples "$activity" "a.pid, a.application, a.role::regrole, a.backend_type")"
    check_equal "$1: the class of the most samples of a session" "$(q "SELECT string_agg(DISTINCT e ->> 'class', ',') FROM jsonb_array_elements(awr.report_data($begin_snap, $end_snap) -> 'ash' -> 'top_sessions') e WHERE e ->> 'application' = 'waiter'")" Application
    check_equal "$1: samples of lock waits" "$(of_report blocking "e ->> 'blocker_pid', e ->> 'blocked_pid', e ->> 'locktype', e ->> 'query_id', e ->> 'blocker_application', e ->> 'blocker_state'")" \
        "$(of_samples "a.blocker_pid IS NOT NULL" "a.blocker_pid, a.pid, wait_event, a.query_id, 'holder', 'idle in transaction'")"
    check_equal "$1: samples of sessions idle in a transaction" "$(of_report idle_in_transaction "e ->> 'pid', e ->> 'application'")" \
        "$(of_samples "state LIKE 'idle in transaction%'" "a.pid, a.application")"
    check_equal "$1: ticks" "$(q "SELECT awr.report_data($begin_snap, $end_snap) -> 'ash' -> 'ticks'")" "$(q "SELECT sum(ticks) FROM awr.sample_chunk WHERE snap_id IN ($middle_snap, $end_snap)")"
}
check_equal "the slots add up to the samples of sessions" "$(q "SELECT sum(n::int) = (SELECT sum((e -> 'samples')::int) FROM jsonb_array_elements(h -> 'by_event') e WHERE (e -> 'foreground')::boolean)
    FROM (SELECT awr.report_data($begin_snap, $end_snap) -> 'ash' AS h) d, jsonb_array_elements(h -> 'slots') s, jsonb_each_text(s -> 'by_class') c (class, n) GROUP BY h")" t
equal_to_samples "a report without sums"
before=$(sampled "$begin_snap" "$end_snap")$(sampled "$begin_snap" "$middle_snap")$(sampled "$middle_snap" "$end_snap")
check_equal "the samples of two AWR snapshots are summed" "$(q "SELECT awr.sum_samples()"),$(q "SELECT awr.sum_samples()")" 2,0
check_equal "the sums contain the greatest size of temporary files" "$(q "SELECT max(temp_bytes) FROM awr.sample_session WHERE application = 'sorter'")" "$size"
check_equal "a report from sums equals the report from samples" \
    "$(sampled "$begin_snap" "$end_snap")$(sampled "$begin_snap" "$middle_snap")$(sampled "$middle_snap" "$end_snap")" "$before"
equal_to_samples "a report from sums"
# The sums of a day that is over; the day of these AWR snapshots is declared to be over.
summed=$(sampled "$begin_snap" "$end_snap")
q "SELECT awr.sum_day(snap_day, instance_id) FROM (SELECT DISTINCT snap_day, instance_id FROM awr.sample_interval) d" >/dev/null
check_equal "a report from sums of days equals the report from sums of AWR snapshots" "$(sampled "$begin_snap" "$end_snap")" "$summed"
check_equal "a report over a part of a day does not read the sums of the day" "$(sampled "$middle_snap" "$end_snap")" "$(q "UPDATE awr.sample_day_event SET samples = samples + 1" && sampled "$middle_snap" "$end_snap")"
check "a report over a day reads the sums of the day" test "$(sampled "$begin_snap" "$end_snap")" != "$summed"
q "UPDATE awr.sample_day SET intervals = intervals - 1"
check_equal "a report does not read sums of a day that lack AWR snapshots" "$(sampled "$begin_snap" "$end_snap")" "$summed"
q "SELECT awr.sum_day(snap_day, instance_id) FROM awr.sample_day" >/dev/null
check_equal "the sums of a day are replaced" "$(sampled "$begin_snap" "$end_snap"),$(q "SELECT bool_and(intervals > 0) FROM awr.sample_day")" "$summed,t"
# An export does not contain the sums of days: the import can be a part of a day.
"$CELLAR_BIN" awr export --dsn "$(cluster_dsn ash)" "$WORK/export.awr" >/dev/null
q "CREATE DATABASE desk"
sql ash desk -c "CREATE EXTENSION cellar"
"$CELLAR_BIN" awr import --dsn "$(cluster_dsn ash desk)" "$WORK/export.awr" >/dev/null
of_desk="SELECT jsonb_pretty(awr.report_data($begin_snap, $end_snap, instance_id) -> 'ash') FROM awr.instance WHERE NOT is_local"
ash_of_desk=$(sql ash desk -c "$of_desk")
check_equal "an import contains no sums of days" "$(sql ash desk -c "SELECT count(*) FROM awr.sample_day")" 0
check_equal "an import shows the same session samples" "$ash_of_desk" "$(q "SELECT jsonb_pretty(awr.report_data($begin_snap, $end_snap) -> 'ash')")"
sql ash desk -c "SELECT awr.sum_day(snap_day, instance_id) FROM (SELECT DISTINCT snap_day, instance_id FROM awr.sample_interval) d" >/dev/null
# AWR snapshots that are missing are imported again: the sums of their day are not valid any more.
for table in snapshot sample_interval sample_event sample_session sample_slot sample_blocking sample_blocker; do
    sql ash desk -c "DELETE FROM awr.$table WHERE snap_id = $middle_snap" >/dev/null
done
"$CELLAR_BIN" awr import --dsn "$(cluster_dsn ash desk)" "$WORK/export.awr" >/dev/null
check_equal "an import into a day whose samples are summed removes the sums of the day" "$(sql ash desk -c "SELECT count(*) FROM awr.sample_day")" 0
check_equal "the session samples of the day are then those of all AWR snapshots" "$(sql ash desk -c "$of_desk")" "$ash_of_desk"
q "DELETE FROM awr.sample_day"
changed() { sql ash postgres -c "BEGIN" -c "$1" -c "SELECT jsonb_pretty(awr.report_data($begin_snap, $end_snap) -> 'ash')" -c "ROLLBACK"; }
for table in sample_event sample_session sample_blocking sample_slot; do
    check "a report reads awr.$table" test "$(changed "UPDATE awr.$table SET samples = samples + 1")" != "$(changed "SELECT")"
done
check "a report reads awr.sample_blocker" test "$(changed "UPDATE awr.sample_blocker SET state = 'active'")" != "$(changed "SELECT")"
check_equal "a report from sums reads no samples" "$(changed "DELETE FROM awr.sample_chunk")" "$(changed "SELECT")"
# Two ticks. In the first, 2 waits for 1, and 3 and 4 wait for 2; 7 and 8 are in a deadlock. In the second, 9 waits for 3, and 3 for 4.
chains="INSERT INTO awr.sample_chunk SELECT c.snap_day, 1, c.begin_time, c.end_time, 1000, 2, 0, t.ms, t.pid, zero, none, t.blocker, oid, oid, none, none, none, none,
        none, none, zero, zero, zero, zero, zero, none, $middle_snap
    FROM (SELECT * FROM awr.sample_chunk WHERE snap_id = $middle_snap LIMIT 1) c,
        (SELECT array_agg(ms) AS ms, array_agg(100000000 + pid) AS pid, array_agg(100000000 + blocker) AS blocker, array_agg(0) AS none, array_agg(0::bigint) AS zero, array_agg(0::oid) AS oid
         FROM (VALUES (0, 2, 1), (0, 3, 2), (0, 4, 2), (0, 7, 8), (0, 8, 7), (1000, 3, 4), (1000, 9, 3)) v (ms, pid, blocker)) t;
    DELETE FROM awr.sample_interval WHERE snap_id = $middle_snap"
check_equal "the sessions of a chain are counted at each tick, up to its head" \
    "$(sql ash postgres -c "BEGIN" -c "$chains" -c "SELECT string_agg(format('%s:%s/%s', (c -> 'head_pid')::int - 100000000, c -> 'sessions', c -> 'samples'), ' ' ORDER BY c -> 'head_pid')
        FROM jsonb_array_elements(awr.report_data($begin_snap, $end_snap) -> 'ash' -> 'chains') c WHERE (c -> 'head_pid')::int > 100000000" -c "ROLLBACK")" "1:3/3 4:2/2 7:1/1 8:1/1"
# An imported file can contain samples without the numbers of AWR snapshots: their times count. Samples at the moment of an AWR
# snapshot can belong to the other side.
old=$(changed "UPDATE awr.sample_chunk SET snap_id = 0; DELETE FROM awr.sample_interval; DELETE FROM awr.sample_event; DELETE FROM awr.sample_session;
    DELETE FROM awr.sample_blocking; DELETE FROM awr.sample_blocker; DELETE FROM awr.sample_slot")
count='import json, sys; print(sum(e["samples"] for e in json.load(sys.stdin)["by_event"]))'
difference=$(($(python3 -c "$count" <<<"$old") - $(python3 -c "$count" <<<"$(changed SELECT)")))
check "samples without the number of an AWR snapshot count by time" test $((difference * difference)) -le 25

# ---- consumer groups ----

q "CREATE ROLE analyst LOGIN SUPERUSER" && q "ALTER ROLE analyst SET cellar.consumer_group = 'reporting'"
q "CREATE DATABASE warehouse" && q "ALTER DATABASE warehouse SET cellar.consumer_group = 'batch'"
q "ALTER SYSTEM SET cellar.consumer_group_mappings = 'etl*load=batch , \"a, b = \"\"c\"\"*\"=quoted,app=first,app=second'"
q "SELECT pg_reload_conf()" >/dev/null
next_ticks() {
    local first
    first=$(ticks)
    wait_for "ticks > $first + 2 FROM awr.get_sampler_state()"
}
next_ticks
# grouped APPLICATION DATABASE [SETUP [ROLE]]: a session that sleeps.
grouped() {
    PGAPPNAME=$1 "$PG_BIN/psql" -h "$WORK/run" -p "$(cluster_port ash)" -U "${4:-postgres}" -XAtq ${3:+-c "$3"} -c "SELECT pg_sleep(600)" "$2" >/dev/null 2>&1 &
    remember_process $!
}
grouped "etl night load" postgres
grouped "etl night" postgres
grouped 'a, b = "c" and more' postgres
grouped app postgres
grouped role postgres "" analyst
grouped database warehouse
grouped set postgres "SET cellar.consumer_group = 'own-1'"
grouped "etl reset load" postgres "SET cellar.consumer_group = 'own-1'; RESET cellar.consumer_group"
grouped rolled postgres "BEGIN; SET LOCAL cellar.consumer_group = 'own-1'; ROLLBACK"
sleeping="query = 'SELECT pg_sleep(600)' AND wait_event = 'PgSleep' AND application_name <> 'sleeper'"
wait_for "count(*) = 9 FROM pg_stat_activity WHERE $sleeping"
next_ticks
expected='a, b = "c" and more|quoted
app|first
database|batch
etl night|OTHER_GROUPS
etl night load|batch
etl reset load|batch
role|reporting
rolled|OTHER_GROUPS
set|own-1'
check_equal "samples contain the consumer groups of sessions" \
    "$(q "SELECT application, consumer_group FROM awr.get_samples(0) WHERE wait_event = 'PgSleep' AND application <> 'sleeper' GROUP BY 1, 2 ORDER BY application COLLATE \"C\"")" "$expected"
check_equal "the group of a process can be read" \
    "$(q "SELECT application_name, awr.get_consumer_group(pid, application_name) FROM pg_stat_activity WHERE $sleeping ORDER BY application_name COLLATE \"C\"")" "$expected"
q "CREATE TABLE wide AS SELECT n AS a, repeat('x', 100) AS b FROM generate_series(1, 100000) n"
grouped parallel postgres "SET cellar.consumer_group = 'workers'; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
    SELECT sum(length(md5(repeat(b, 5000)))) FROM wide"
of_workers="awr.get_samples(0) WHERE application = 'parallel' AND backend_type = 'parallel worker'"
wait_for "count(*) > 0 FROM $of_workers"
check_equal "a parallel worker belongs to the group of its leader" "$(q "SELECT DISTINCT consumer_group FROM $of_workers")" workers
next_ticks
check_equal "processes of the server have no group" \
    "$(q "SELECT count(consumer_group) FROM awr.active_session_history WHERE backend_type NOT IN ('client backend', 'parallel worker')")" 0
group_of() { q "SELECT awr.get_consumer_group(pid, application_name) FROM pg_stat_activity WHERE application_name = '$1' AND backend_type = 'client backend'"; }
check_equal "the setting of the reader does not matter" "$(PGOPTIONS="-c cellar.consumer_group=reader" group_of "etl night")" OTHER_GROUPS
q "ALTER SYSTEM SET cellar.consumer_group = 'configured'"
q "SELECT pg_reload_conf()" >/dev/null
wait_for "awr.get_consumer_group(pid, application_name) = 'configured' FROM pg_stat_activity WHERE application_name = 'etl night'"
check_equal "the setting of a session precedes that of the configuration" "$(group_of "etl night") $(group_of set) $(group_of role)" "configured own-1 reporting"
q "ALTER SYSTEM RESET cellar.consumer_group"
q "SELECT pg_reload_conf()" >/dev/null
wait_for "awr.get_consumer_group(pid, application_name) = 'OTHER_GROUPS' FROM pg_stat_activity WHERE application_name = 'etl night'"
of_group() { q "SELECT awr.ash_data(now() - interval '1 min', now(), filters => '{\"wait_class\": \"Idle\", \"consumer_group\": \"$1\"}') -> 'history' -> 'samples'"; }
check "a filter selects a consumer group" test "$(of_group batch)" -gt 0
check_equal "a filter of an unknown consumer group selects nothing" "$(of_group unknown)" 0
check_matches "an ASH report has the dimension consumer group" "$(ash --last '1 minute' --by consumer_group,event --wait-class Idle --consumer-group reporting)" 'reporting +PgSleep .* sampled'
of_section() { sed -n '/^Top Consumer Groups/,/^ *-----* *$/p'; }
check_matches "an ASH report lists consumer groups" "$(ash --last '1 minute' | of_section)" 'workers +CPU'
check_matches "cellar top shows the consumer group" "$("$CELLAR_BIN" top --json --dsn "$(cluster_dsn ash)")" '"consumer_group": ?"reporting"'
q "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'parallel' AND backend_type = 'client backend'" >/dev/null
group_snap=$(q "SELECT awr.create_snapshot('test')")
by_group() { q "SELECT sum((e -> 'samples')::int) FROM jsonb_array_elements(awr.report_data($end_snap, $group_snap) -> 'ash' -> 'by_consumer_group') e WHERE e ->> 'consumer_group' = 'workers'"; }
in_group=$(q "SELECT count(*) FROM awr.active_session_history WHERE consumer_group = 'workers' AND wait_class <> 'Idle' AND chunk_begin IN (SELECT begin_time FROM awr.sample_chunk WHERE snap_id = $group_snap)")
check_equal "a report without sums contains consumer groups" "$(by_group)" "$in_group"
q "SELECT awr.sum_samples()" >/dev/null
check_equal "a report from sums contains consumer groups" "$(by_group)" "$in_group"
check_matches "the text report lists consumer groups" "$(q "SELECT awr.report($end_snap, $group_snap)" | of_section)" 'workers +[0-9.]+'
for wrong in "etl" "=batch" "etl=" "etl=a b" "etl=batch," "etl=batch,,x=y" '"etl=batch' "etl=$(printf 'x%.0s' {1..64})" "$(printf 'x%.0s' {1..64}) =batch" "etl=bätch"; do
    check_equal "wrong mappings are refused: $wrong" "$(sqlstate_of ash postgres "ALTER SYSTEM SET cellar.consumer_group_mappings = '$wrong'")" 22023
done
q "CREATE ROLE ordinary LOGIN"
check_equal "an ordinary role may not choose its group" "$(sqlstate_of ash postgres "SET ROLE ordinary; SET cellar.consumer_group = 'reporting'") $(sqlstate_of ash postgres "SET ROLE ordinary; ALTER ROLE ordinary SET cellar.consumer_group = 'reporting'")" "42501 42501"
q "GRANT SET ON PARAMETER cellar.consumer_group TO ordinary"
check_equal "a role with the privilege SET may choose its group" "$(q "SET ROLE ordinary; SET cellar.consumer_group = 'reporting'; SHOW cellar.consumer_group")" reporting
check_equal "a wrong name of a group is refused" "$(sqlstate_of ash postgres "SET cellar.consumer_group = 'a b'")" 22023
check_matches "the error says what is wrong" \
    "$(sql ash postgres -c "ALTER SYSTEM SET cellar.consumer_group_mappings = 'etl'" 2>&1 || true)" 'No "=" and consumer group after the pattern in "etl"'

# ---- wrong arguments ----

check_equal "begin after end" "$(sqlstate_of ash postgres "SELECT awr.ash_report('2026-01-02', '2026-01-01')")" 22023
check_equal "an interval before the first sample" "$(sqlstate_of ash postgres "SELECT awr.ash_report('2001-01-01', '2001-01-02')")" 22023
check_matches "the error names the samples that exist" "$(ash --begin 2001-01-01 --end 2001-01-02 2>&1 || true)" 'Session samples of instance 1 exist from'
check_equal "an unknown dimension" "$(sqlstate_of ash postgres "SELECT awr.ash_data(now() - interval '1 min', now(), '{colour}')")" 22023
check_equal "an unknown filter" "$(sqlstate_of ash postgres "SELECT awr.ash_data(now() - interval '1 min', now(), filters => '{\"pid; DROP TABLE t\": 1}')")" 22023
check_equal "an invalid SQL_ID" "$(sqlstate_of ash postgres "SELECT awr.query_id('zzzzzzzzzzzzz')")" 22023
check_equal "an unknown instance" "$(sqlstate_of ash postgres "SELECT awr.ash_report(instance => 7)")" 42704
check_equal "a filter is data, not SQL" "$(during "{\"application\": \"x'' OR true --\"}")" 0
q "CREATE ROLE plain LOGIN" && q "CREATE ROLE monitor LOGIN" && q "GRANT pg_monitor TO monitor"
check_equal "only members of pg_monitor see samples" "$(sqlstate_of ash postgres "SET ROLE plain; SELECT awr.ash_report()")" 42501
check_matches "a member of pg_monitor sees the report" "$(q "SET ROLE monitor; SELECT awr.ash_report()")" 'ASH Report For'
# The repository was copied to another cluster.
q "UPDATE awr.instance SET system_identifier = 42 WHERE instance_id = 1"
other_snap=$(q "SELECT awr.create_snapshot('test')")
check_equal "a period of two clusters is refused" "$(sqlstate_of ash postgres "SELECT awr.report($end_snap, $other_snap)")" 55000
check_equal "a baseline of two clusters can be kept" "$(q "SELECT awr.create_baseline('moved', $end_snap, $other_snap)")" ""
check_equal "the repository belongs to the cluster then" "$(q "SELECT system_identifier <> 42 FROM awr.instance WHERE instance_id = 1")" t
# missing_for ROLE: what cellar top does not show this role.
missing_for() { "$CELLAR_BIN" top --json --dsn "$(cluster_dsn ash | sed "s/user=[^ ]*/user=$1/")" | python3 -c 'import json, sys; print(*json.load(sys.stdin)["missing"], sep="; ")'; }
check_equal "cellar top shows everything to a member of pg_monitor" "$(missing_for monitor)" ""
check_matches "cellar top tells other roles what they do not see" "$(missing_for plain)" '^sessions and statements of other roles are hidden'
q "GRANT pg_read_all_stats TO plain"
check_matches "cellar top tells a role without rights on schema awr what is missing" "$(missing_for plain)" '^the role may not use schema awr'

checks_end
