#!/usr/bin/env bash
# SQL reports and the plans of session samples, on a cluster without a cell: a statement whose index is created and dropped
# has two plans with the executions, rows and blocks that pg_stat_statements counted; samples of a prepared statement, a
# function, parallel workers and utility statements contain the plan of the top-level statement, or none; each statement has its
# parse time; reports in all forms; wrong arguments are refused.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

extension_installed || die "the extension is not installed: run scripts/build.sh extension"
work_begin sql
data=$WORK/data
q() { sql sql postgres -c "$1"; }
report() { "$CELLAR_BIN" awr sql --dsn "$(cluster_dsn sql)" "$@"; }
wait_for() { wait_for_true 60 q "SELECT $1" || die "not true: $1"; }
# session NAME COMMAND...: runs SQL commands in a session in the background.
session() {
    local name=$1
    shift
    PGAPPNAME=$name sql sql postgres "${@/#/-c}" >"$WORK/$name.out" 2>&1 &
    remember_process $!
}
# executed NAME: waits until the sessions of that name have exited. A session that exits has added its statistics.
executed() { wait_for "NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = '$1')"; }
# run NAME COMMAND...: runs SQL commands in a session, and waits until it has exited.
run() {
    session "$@"
    wait $!
    executed "$1"
}

cluster_create sql "$data"
preload=cellar
has_statements=
if [ -e "$("$PG_CONFIG" --sharedir)/extension/pg_stat_statements.control" ]; then
    has_statements=1
    preload=cellar,pg_stat_statements
fi
# The worker that stores samples is the test itself.
cluster_set "$data" "shared_preload_libraries = '$preload'" "cellar.awr_snapshot_interval = 0" "cellar.awr_sample_period = 100ms" \
    "cellar.awr_database = template1" "autovacuum = off" "track_io_timing = on" "max_parallel_workers_per_gather = 0"
cluster_start sql "$data"
q "CREATE EXTENSION cellar"
if [ -n "$has_statements" ]; then q "CREATE EXTENSION pg_stat_statements"; fi
q "CREATE TABLE t AS SELECT n AS a, repeat('x', 100) AS b FROM generate_series(1, 20000) n"
q "VACUUM ANALYZE t"
check_equal "a period needs two AWR snapshots" "$(q "SELECT awr.create_snapshot()" >/dev/null; sqlstate_of sql postgres "SELECT awr.sql_report(1)")" 55000

# ---- a statement that changes its plan ----

run scan "SELECT b FROM t WHERE a = 1" "SELECT b FROM t WHERE a = 2" "SELECT b FROM t WHERE a = 3"
s2=$(q "SELECT awr.create_snapshot()")
q "CREATE INDEX t_a ON t (a)"
run index "SELECT b FROM t WHERE a = 4" "SELECT b FROM t WHERE a = 5"
s3=$(q "SELECT awr.create_snapshot()")
q "DROP INDEX t_a"
run scan "SELECT b FROM t WHERE a = 6"
s4=$(q "SELECT awr.create_snapshot()")
s1=$((s2 - 1))
id=$(q "SELECT query_id FROM awr.query_text WHERE query LIKE 'SELECT b FROM t WHERE a = %'")
sql_id=$(q "SELECT awr.sql_id($id)")
index=$(q "SELECT plan_id FROM awr.plan_text WHERE query_id = $id AND plan LIKE '%Index Scan%'")
scan=$(q "SELECT plan_id FROM awr.plan_text WHERE query_id = $id AND plan LIKE '%Seq Scan%'")
per_plan="FROM jsonb_array_elements(awr.sql_data($id) -> 'statements') s WHERE (s -> 'plan_id')::bigint ="
check_equal "executions with the sequential scan" "$(q "SELECT s -> 'calls' $per_plan $scan")" 4
check_equal "executions with the index" "$(q "SELECT s -> 'calls' $per_plan $index")" 2
check_equal "each AWR snapshot has the plan of its interval" \
    "$(q "SELECT string_agg(concat_ws(' ', h -> 'snap_id', h -> 'plan_id', h -> 'calls'), ',' ORDER BY h -> 'snap_id') FROM jsonb_array_elements(awr.sql_data($id) -> 'plan_history') h")" \
    "$s2 $scan 3,$s3 $index 2,$s4 $scan 1"
check_equal "a period contains its executions only" "$(q "SELECT jsonb_array_length(d -> 'statements') || ' ' || (d #> '{statements,0,calls}') FROM awr.sql_data($id, $s3, $s4) d")" "1 1"
if [ -n "$has_statements" ]; then
    sums="sum((s -> 'calls')::int), sum((s -> 'rows')::int), sum((s -> 'shared_blks_hit')::int + (s -> 'shared_blks_read')::int)"
    check_equal "executions, rows and blocks are those of pg_stat_statements" \
        "$(q "SELECT $sums FROM jsonb_array_elements(awr.sql_data($id) -> 'statements') s")" \
        "$(q "SELECT calls, rows, shared_blks_hit + shared_blks_read FROM pg_stat_statements WHERE queryid = $id AND toplevel")"
else
    skip "pg_stat_statements is not installed"
fi

text=$(report --sql-id "$sql_id")
for title in "WORKLOAD REPOSITORY SQL Report" "SQL Summary" "Full SQL Text" "SQL ID: $sql_id" "Plan Statistics" "Plan Statistics per Execution" \
    "SQL Statistics by Snapshot" "Top Events by Plan" "Execution Plans" "SELECT b FROM t WHERE a" "Index Scan using t_a on t" "Seq Scan on t" "End of Report"; do
    check "text contains: $title" grep -q -F "$title" <<<"$text"
done
check "the change of the plan is named" grep -q -E "^ *$s3 +1 .* $sql_id +$index +2 .* plan changed" <<<"$text"
check "the change back is named" grep -q -E "^ *$s4 +1 .* $sql_id +$scan +1 .* plan changed" <<<"$text"
check "the summary names the AWR snapshots" grep -q -F "Plan changed. AWR snapshots: $s3, $s4." <<<"$text"
check_equal "no line exceeds 132 columns" "$(LC_ALL=C.UTF-8 grep -cE '.{133}' <<<"$text")" 0
check_equal "SQL and the command return the same report" "$(q "SELECT awr.sql_report($id)")" "$text"
check_equal "a query identifier selects the same statement" "$(report --query-id "$id")" "$text"
report --query-id "$id" --last 3 --format json >"$WORK/report.json"
check_equal "JSON is valid, and names its kind" "$(jq -r .kind "$WORK/report.json")" sql
check_equal "--last selects AWR snapshots" "$(report --query-id "$id" --last 3 --format json | md5sum)" "$(report --query-id "$id" --begin "$s2" --end "$s4" --format json | md5sum)"
report --query-id "$id" --format document --output "$WORK/document"
check_equal "a saved document renders the same report" "$("$CELLAR_BIN" awr sql --from-json "$WORK/document")" "$text"

# ---- an index that is created again with its name ----

q "CREATE TABLE again AS SELECT n AS a, repeat('x', 100) AS b FROM generate_series(1, 20000) n"
q "CREATE INDEX again_a ON again (a)"
q "VACUUM ANALYZE again"
# The plans of the statement in the order of their first execution, with their numbers of executions
plans() {
    q "SELECT count(DISTINCT plan_id), sum(calls) FROM awr.get_statements() s
       WHERE query_id IN (SELECT query_id FROM awr.get_plans() WHERE query LIKE 'SELECT b FROM again WHERE%') AND calls > 0"
}
run again "SELECT b FROM again WHERE a = 1"
oid=$(q "SELECT 'again_a'::regclass::oid")
q "DROP INDEX again_a"
q "CREATE INDEX again_a ON again (a)"
run again "SELECT b FROM again WHERE a = 2"
check "the index has another object identifier" test "$oid" != "$(q "SELECT 'again_a'::regclass::oid")"
check_equal "an index that is created again with its name does not change the plan" "$(plans)" "1|2"
# One session executes both: the name of an index that this session has used changes.
run again "SELECT b FROM again WHERE a = 3" "ALTER INDEX again_a RENAME TO again_b" "SELECT b FROM again WHERE a = 4"
check_equal "an index of another name is another plan" "$(plans)" "2|4"
run again "SET plan_cache_mode = force_generic_plan" "PREPARE p (int) AS SELECT b FROM again WHERE a = \$1" "EXECUTE p (1)" "EXECUTE p (2)" "EXECUTE p (3)" \
    "ALTER INDEX again_b RENAME TO again_c" "EXECUTE p (4)" "EXECUTE p (5)" "EXECUTE p (6)"
prepared_plans() {
    q "SELECT string_agg(calls::text, ',' ORDER BY calls) FROM (SELECT sum(s.calls) AS calls FROM awr.get_statements() s
       WHERE query_id IN (SELECT query_id FROM awr.get_plans() WHERE query LIKE '%SELECT b FROM again WHERE a = \$%') AND calls > 0 GROUP BY plan_id) p"
}
check_equal "the plan of a prepared statement has another index name after the index was renamed" "$(prepared_plans)" "3,3"
# Plans at the addresses of earlier ones: each pair of statements has two plans.
prepared=("SET plan_cache_mode = force_generic_plan")
for i in $(seq 40); do
    where="a = 1"
    [ $((i % 2)) = 0 ] || where="b = 'x'"
    prepared+=("PREPARE p AS SELECT a, a + $i AS reuse FROM again WHERE $where" "EXECUTE p" "EXECUTE p" "DEALLOCATE p")
done
run again "${prepared[@]}"
check_equal "a plan at the address of another one has its own identifier" \
    "$(q "SELECT count(*), sum(calls), min(calls) FROM
          (SELECT query_id, plan_id, sum(calls) AS calls FROM awr.get_statements() WHERE calls > 0
           AND query_id IN (SELECT query_id FROM awr.get_plans() WHERE query LIKE '%AS reuse FROM%') GROUP BY 1, 2) p")" "2|80|40"

# ---- CPU time of parallel workers ----

# of_cpu CONDITION: CPU time of processes of the application "workers", in ms
of_cpu() { q "SELECT round(coalesce(sum(cpu_us), 0) / 1000) FROM awr.get_cpu() WHERE application = 'workers' AND $1"; }
# check_workers DESCRIPTION TEXT COMMAND: the CPU time of a statement is that of the session and of its parallel workers.
check_workers() {
    local before_all before_workers all workers statement
    before_all=$(of_cpu true)
    before_workers=$(of_cpu "backend_type = 'parallel worker'")
    run workers "SET max_parallel_workers_per_gather = 2; SET max_parallel_maintenance_workers = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
        SET min_parallel_table_scan_size = 0" "$3"
    all=$(($(of_cpu true) - before_all))
    workers=$(($(of_cpu "backend_type = 'parallel worker'") - before_workers))
    statement=$(q "SELECT round(sum(cpu_us) / 1000) FROM awr.get_statements() WHERE query_id IN (SELECT query_id FROM awr.get_plans() WHERE query LIKE '$2%')")
    # On a busy machine, the workers start late and the session does nearly all of the work.
    check "$1: workers used CPU time ($workers of $all ms)" test "$workers" -gt 0
    # The rest is the start and the end of the session.
    check "$1: the CPU time of the statement ($statement ms) is that of session and workers ($all ms)" \
        test "$statement" -le $((all + 20)) -a "$statement" -ge $((all * 85 / 100 - 40))
}
q "CREATE TABLE wide AS SELECT n AS a, md5(n::text) AS b FROM generate_series(1, 300000) n"
check_workers "a parallel query" "SELECT count(*) AS hashed" "SELECT count(*) AS hashed FROM wide WHERE md5(md5(md5(md5(b)))) > '8'"
check_workers "a parallel CREATE INDEX" "CREATE INDEX wide_b" "CREATE INDEX wide_b ON wide (b)"

# ---- DB time of services ----

q "CREATE DATABASE serving"
echo "SELECT count(*) FROM generate_series(1, 1000);" >"$WORK/serving.sql"
# serve NAME OPTION...: executes statements as a service for 3 s.
serve() {
    local name=$1
    shift
    (cd "$WORK" && PGAPPNAME=$name as_pg "$PG_BIN/pgbench" -h "$WORK/run" -p "$(cluster_port sql)" -U postgres -n -c 2 -T 3 -f serving.sql "$@" serving) >/dev/null 2>&1 &
    remember_process $!
    serving+=($!)
}
serving=()
serve simple
serve prepared -M prepared
PGAPPNAME=long sql sql serving -c "SELECT pg_sleep(2.5)" -c "SELECT 1" -c "SELECT pg_sleep(0.3)" >/dev/null &
serving+=($!)
PGAPPNAME=open sql sql serving -c "SELECT pg_sleep(30)" >/dev/null 2>&1 &
open=$!
remember_process $open
of_service() { q "SELECT round(coalesce(sum(elapsed_us), 0) / 1000) FROM awr.get_cpu() WHERE backend_type = 'client backend' AND application $1"; }
wait_for "sum(elapsed_us) > 2e6 FROM awr.get_cpu() WHERE application = 'open'"
ok "the time of a command in progress counts for its service"
wait "${serving[@]}"
for name in simple prepared long; do executed $name; done
q "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'open'" >/dev/null
wait $open || true
executed open
long=$(of_service "= 'long'")
check "DB time of a service is that of its statements ($long ms, slept 2800 ms)" test "$long" -ge 2800 -a "$long" -le 4000
simple=$(of_service "= 'simple'")
check "a service of short statements has DB time ($simple ms)" test "$simple" -ge 300
services=$(of_service "IN ('simple', 'prepared', 'long', 'open')")
database=$(q "SELECT round(active_time) FROM pg_stat_database WHERE datname = 'serving'")
check "DB time of all services ($services ms) is that of the database ($database ms)" \
    test $((services * 100)) -ge $((database * 97)) -a $((services * 100)) -le $((database * 103))

# ---- parse time ----

q "CREATE DATABASE parsing"
q "ALTER DATABASE parsing SET plan_cache_mode = force_generic_plan"
parsing_begin=$(q "SELECT awr.create_snapshot()")
list=$(seq -s, 1 5000)
# parse COMMAND...: each command is one message.
parse() { PGAPPNAME=parsing sql sql parsing "${@/#/-c}" >/dev/null && executed parsing; }
parse_twice="SELECT 1 AS twice WHERE 1 IN ($list)"
# Names of columns do not belong to a query identifier: the statements have different functions.
parse "$parse_twice" "$parse_twice" "SELECT abs(2) AS first; SELECT sign(3) AS second WHERE 3 IN ($list); SET work_mem = '1MB'; SELECT sqrt(4) AS fourth" \
    "PREPARE p AS SELECT exp(5) AS prepared WHERE 5 IN ($list)" "EXECUTE p" "EXECUTE p" \
    "DO 'BEGIN EXECUTE ''SELECT ln(6) AS nested''; END'" "EXPLAIN SELECT floor(7)" "EXECUTE p; SELECT ceil(8) AS after_execute"
echo "SELECT sin(9) AS in_messages;" >"$WORK/extended.sql"
echo "SELECT cos(9) AS by_client;" >"$WORK/prepared.sql"
for mode in extended prepared; do
    (cd "$WORK" && PGAPPNAME=parsing as_pg "$PG_BIN/pgbench" -h "$WORK/run" -p "$(cluster_port sql)" -U postgres -n -M $mode -t 5 -f "$WORK/$mode.sql" parsing) >/dev/null 2>&1
done
executed parsing
in_parsing="database = (SELECT oid FROM pg_database WHERE datname = 'parsing')"
# parses TEXT: parses and executions of a statement, and whether its parses took time.
parses() {
    q "SELECT sum(s.parses), sum(s.calls), bool_and(s.parse_us > 0) FROM awr.get_statements() s
       JOIN (SELECT DISTINCT query_id FROM awr.get_plans() WHERE query LIKE '%$1%' AND query NOT LIKE '%get_plans%') p USING (query_id) WHERE $in_parsing"
}
check_equal "each execution of a command is parsed" "$(parses "AS twice")" "2|2|t"
check_equal "the first statement of a string is parsed" "$(parses "AS first")" "1|1|t"
check_equal "the second statement of a string is parsed" "$(parses "AS second")" "1|1|t"
check_equal "a statement after SET in a string is parsed" "$(parses "AS fourth")" "1|1|t"
check_equal "PREPARE and each EXECUTE parse the prepared statement" "$(parses "AS prepared")" "4|3|t"
check_equal "a DO block is parsed" "$(parses "AS nested''")" "1|1|t"
check_equal "a statement of a function is not counted" "$(q "SELECT count(*) FROM awr.get_plans() WHERE query LIKE 'SELECT ln(6)%'")" 0
check_equal "EXPLAIN is parsed" "$(parses "EXPLAIN SELECT floor")" "1|1|t"
check_equal "after rows of EXECUTE, which the client can receive slowly, a parse is not timed" "$(parses "AS after_execute")" "0|1|f"
check_equal "with the extended protocol, each execution is parsed" "$(parses "AS in_messages")" "5|5|t"
check_equal "a statement that the client prepares is parsed once" "$(parses "AS by_client")" "1|5|t"
check_equal "the parses of statements add up to those of the sessions, and their times, too" \
    "$(q "SELECT sum(parses), sum(parse_us) BETWEEN min(c.us) - 50 AND min(c.us) + 50 FROM awr.get_statements(),
             LATERAL (SELECT sum(parse_us) AS us FROM awr.get_cpu() WHERE $in_parsing AND application IN ('parsing', 'pgbench')) c WHERE $in_parsing")" \
    "$(q "SELECT sum(parses) FROM awr.get_cpu() WHERE $in_parsing AND application IN ('parsing', 'pgbench')")|t"
check "the grammar of a long list takes longer than that of a short statement" \
    test "$(q "SELECT max(parse_us) FILTER (WHERE query LIKE '%AS twice%') > 5 * max(parse_us) FILTER (WHERE query LIKE '%AS fourth%')
               FROM awr.get_statements() JOIN awr.get_plans() USING (query_id, plan_id) WHERE $in_parsing")" = t
parsing_end=$(q "SELECT awr.create_snapshot()")
twice=$(q "SELECT awr.sql_id(query_id) FROM awr.get_plans() WHERE query LIKE '%AS twice%' LIMIT 1")
check_matches "a report orders statements by parse and plan time" \
    "$(q "SELECT awr.report($parsing_begin, $parsing_end)" | sed -n '/^SQL ordered by Parse Time/,/------------------------------------------------------$/p')" "0\.[0-9]+ .* $twice"
check_equal "JSON contains parses" \
    "$(q "SELECT sum((s -> 'parses')::int) FROM jsonb_array_elements(awr.report_data($parsing_begin, $parsing_end) -> 'statements') s WHERE s ->> 'query_id' = awr.query_id('$twice')::text")" 2

# ---- plans of session samples ----

# All statements wait at once: for an advisory lock, or in pg_sleep().
mkfifo "$WORK/holder"
PGAPPNAME=holder sql sql postgres <"$WORK/holder" >/dev/null &
remember_process $!
exec 3>"$WORK/holder"
echo "SELECT pg_advisory_lock(7);" >&3
wait_for "EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted)"
q "CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(7) FROM t WHERE a = 1; RETURN 1; END'"
q "CREATE FUNCTION check_lock() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END'"
q "CREATE TABLE u (a int)"
q "CREATE TRIGGER u AFTER INSERT ON u FOR EACH ROW EXECUTE FUNCTION check_lock()"
q "CREATE FUNCTION slow(a int) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN PERFORM pg_sleep(600); RETURN true; END'"
session plain "SELECT pg_advisory_xact_lock(7) FROM t WHERE a = 1"
session prepared "PREPARE p (int) AS SELECT b, pg_advisory_xact_lock(7) FROM t WHERE a = \$1" "EXECUTE p (1)"
session function "SELECT f() FROM t WHERE a = 1"
session trigger "INSERT INTO u SELECT 1"
session utility "CREATE TABLE v AS SELECT pg_advisory_xact_lock(7)::text FROM t WHERE a = 1"
session parallel "SET max_parallel_workers_per_gather = 1" "SET parallel_setup_cost = 0" "SET parallel_tuple_cost = 0" \
    "SET min_parallel_table_scan_size = 0" "SELECT count(*) FROM t WHERE slow(a)"
session killed "SELECT pg_sleep(600)"
wait_for "count(DISTINCT application) = 7 FROM awr.get_samples(0) WHERE application IN ('plain', 'prepared', 'function', 'trigger', 'utility', 'parallel', 'killed')"
wait_for "EXISTS (SELECT FROM awr.get_samples(0) WHERE leader_pid IS NOT NULL AND wait_event = 'PgSleep')"
# One of the next sessions gets the PGPROC of the terminated one.
q "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'killed'" >/dev/null
executed killed
for _ in 1 2 3 4; do session successor "DO 'BEGIN PERFORM pg_sleep(600); END'"; done
wait_for "count(DISTINCT pid) = 4 FROM awr.get_samples(0) WHERE application = 'successor' AND wait_event = 'PgSleep'"
# A canceled leader executes no plan any more while its workers still exit.
before_cancel=$(q "SELECT clock_timestamp()")
q "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name IN ('parallel', 'successor') AND backend_type = 'client backend'" >/dev/null
echo "SELECT pg_advisory_unlock(7);" >&3
for name in plain prepared function trigger utility parallel successor; do executed $name; done
exec 3>&-

# plan_of NAME: whether the samples of a session that waited have a plan, and which statement it belongs to.
plan_of() {
    q "SELECT string_agg(DISTINCT coalesce(split_part(p.query, ' FROM', 1), 'none'), ', ')
       FROM awr.get_samples(0) s LEFT JOIN awr.get_plans() p ON p.query_id = s.query_id AND p.plan_id = s.plan_hash
       WHERE s.application = '$1' AND s.wait_event IN ('advisory', 'PgSleep') $2"
}
check_equal "a waiting statement has its plan" "$(plan_of plain "")" "SELECT pg_advisory_xact_lock(7)"
check_equal "EXECUTE has query and plan of the prepared statement" "$(plan_of prepared "")" 'PREPARE p (int) AS SELECT b, pg_advisory_xact_lock(7)'
check_equal "a statement in a function has the plan of the top-level statement" "$(plan_of function "")" "SELECT f()"
check_equal "a trigger has the plan of the top-level statement" "$(plan_of trigger "")" "INSERT INTO u SELECT 1"
check_equal "a utility statement has no plan" "$(plan_of utility "")" none
check_equal "parallel workers have the plan of their leader" "$(plan_of parallel "AND leader_pid IS NOT NULL AND sample_time < '$before_cancel'")" "SELECT count(*)"
check_equal "the leader has the same plan" "$(plan_of parallel "AND leader_pid IS NULL")" "SELECT count(*)"
check_equal "a session has no plan of the session before it" "$(plan_of successor "")" none
check_equal "sessions that are idle in a transaction or waiting idly have no plan" \
    "$(q "SELECT count(*) FROM awr.get_samples(0) WHERE plan_hash IS NOT NULL AND state <> 'active'")" 0
stored="SELECT count(*), count(plan_hash), sum(plan_hash) FROM awr.active_session_history WHERE application IN ('plain', 'prepared', 'function', 'trigger', 'utility', 'parallel', 'successor')"
before=$(q "$stored")
s5=$(q "SELECT awr.create_snapshot()")
check_equal "stored samples keep their plans" "$(q "$stored")" "$before"

waited=$(q "SELECT query_id FROM awr.query_text WHERE query LIKE 'SELECT pg_advisory_xact_lock(7) FROM t%' OR query LIKE 'SELECT pg_advisory_xact_lock(\$1) FROM t%'")
check_equal "the SQL report contains the waits of each plan" \
    "$(q "SELECT string_agg(concat_ws(' ', g ->> 'event', g -> 'samples', (g -> 'plan_id') IN (SELECT s -> 'plan_id' FROM jsonb_array_elements(d -> 'statements') s)), ',')
          FROM awr.sql_data($waited) d, jsonb_array_elements(d #> '{history,groups}') g WHERE g ->> 'class' <> 'CPU'")" \
    "advisory $(q "SELECT count(*) FROM awr.active_session_history WHERE application = 'plain' AND wait_event = 'advisory'") t"
check "the wait has its share, time and standard error" grep -q -E '^ *[0-9]+ advisory +Application +[0-9.]+ +[0-9.]+ .* sampled ±' <<<"$(report --query-id "$waited")"
killed=$(q "SELECT query_id FROM awr.query_text WHERE query LIKE 'SELECT count(*) FROM t WHERE slow%'")
check_matches "a statement whose execution did not end is reported from its samples" "$(report --query-id "$killed")" 'executions that failed or had not ended.*PgSleep'
plan=$(q "SELECT DISTINCT plan_hash FROM awr.active_session_history WHERE application = 'plain' AND wait_event = 'advisory'")
check_equal "ASH reports select a plan" \
    "$(q "SELECT awr.ash_data(now() - interval '1 hour', now(), filters => '{\"plan\": $plan, \"query_id\": $waited, \"event\": \"advisory\"}') #> '{history,samples}'")" \
    "$(q "SELECT count(*) FROM awr.active_session_history WHERE application = 'plain' AND wait_event = 'advisory'")"
ash=$("$CELLAR_BIN" awr ash --dsn "$(cluster_dsn sql)" --last '1 hour' --by plan,event --application plain)
check "ASH reports show plans" grep -q -E "^ *$plan transactionid|^ *$plan advisory" <<<"$ash"
check "Top SQL shows the plan" grep -q -E "^ *$(q "SELECT awr.sql_id($waited)") +$plan advisory" <<<"$ash"

# ---- an imported repository ----

q "CREATE DATABASE central"
sql sql central -c "CREATE EXTENSION cellar"
"$CELLAR_BIN" awr export --dsn "$(cluster_dsn sql)" "$WORK/repository.awr" >/dev/null
"$CELLAR_BIN" awr import --dsn "$(cluster_dsn sql central)" "$WORK/repository.awr" >/dev/null
parts="jsonb_build_array(d -> 'statements', d -> 'plans', d -> 'plan_history', d -> 'history')"
check_equal "an imported repository has plans, statistics and waits of the statement" \
    "$(sql sql central -c "SELECT $parts FROM awr.sql_data($waited, instance => (SELECT instance_id FROM awr.instance WHERE NOT is_local)) d")" \
    "$(q "SELECT $parts FROM awr.sql_data($waited) d")"

# ---- HTML ----

report --query-id "$id" --output "$WORK/sql.html"
check "HTML contains the chart" grep -q 'Mean elapsed time of an execution by AWR snapshot and plan' "$WORK/sql.html"
check_equal "the chart has a column for each execution" "$(grep -o 'AWR snapshot [0-9]*, plan [0-9]*:' "$WORK/sql.html" | wc -l)" 3
report --query-id "$waited" --output "$WORK/waits.html"
check "HTML contains the chart of waits" grep -q 'Session samples by plan and event' "$WORK/waits.html"
check_equal "HTML refers to no other file" "$(cat "$WORK/sql.html" "$WORK/waits.html" | grep -c -E 'https?://|src=' || true)" 0
if command -v chromium >/dev/null; then
    # A page with the report in frames of two widths writes how far each overflows, and its number of charts.
    python3 - "$WORK/waits.html" "$WORK/frames.html" <<'PYTHON'
import html, sys
report = html.escape(open(sys.argv[1]).read(), quote=True)
frames = "".join(f'<iframe width="{width}" height="900" srcdoc="{report}"></iframe>' for width in (1400, 390))
script = """addEventListener("load", () => {
  document.title = [...document.querySelectorAll("iframe")].map((frame) => {
    const page = frame.contentDocument.documentElement;
    return page.scrollWidth - page.clientWidth + " " + page.querySelectorAll("svg").length;
  }).join(", ");
});"""
open(sys.argv[2], "w").write(f"<!DOCTYPE html><title>not loaded</title>{frames}<script>{script}</script>")
PYTHON
    check_equal "HTML is drawn without horizontal overflow, wide and narrow" \
        "$(chromium --headless --no-sandbox --disable-gpu --user-data-dir="$WORK/chromium" --dump-dom "file://$WORK/frames.html" 2>/dev/null | grep -o '<title>[^<]*' | head -n 1)" \
        "<title>0 2, 0 2"
else
    skip "chromium is not installed: HTML was not drawn"
fi

# ---- wrong arguments ----

near=$(q "SELECT CASE WHEN $id % 10 = 5 THEN $id / 10 * 10 + 4 ELSE $id / 10 * 10 + 5 * sign($id)::int END")
error=$(report --query-id "$near" 2>&1 || true)
check_matches "an unknown statement is named" "$error" "has no executions and no session samples between AWR snapshots $s1 and $s5"
check_matches "a similar identifier is named" "$error" "Similar identifiers: $sql_id"
check_matches "without a similar one, statements of the period are named" "$(report --query-id 1 2>&1 || true)" 'Statements with the most elapsed time in the period: '
check_matches "a period before the statement names the AWR snapshots with it" "$(report --query-id "$waited" --begin "$s1" --end "$s3" 2>&1 || true)" "exist in AWR snapshots $s5\."
check_equal "an unknown statement" "$(sqlstate_of sql postgres "SELECT awr.sql_report($near)")" 42704
check_equal "the query identifier of evicted statements" "$(sqlstate_of sql postgres "SELECT awr.sql_report(0)")" 42704
check_equal "an AWR snapshot that does not exist" "$(sqlstate_of sql postgres "SELECT awr.sql_report($id, $s1, 999)")" 42704
check_equal "reversed AWR snapshots" "$(sqlstate_of sql postgres "SELECT awr.sql_report($id, $s3, $s2)")" 22023
check_equal "an unknown instance" "$(sqlstate_of sql postgres "SELECT awr.sql_report($id, instance => 7)")" 55000
check_equal "an unknown format" "$(sqlstate_of sql postgres "SELECT awr.sql_report($id, format => 'pdf')")" 22023
check_equal "no statement" "$(q "SELECT awr.sql_report(NULL) IS NULL")" t
for arguments in "--sql-id zzzzzzzzzzzzz" "" "--query-id 1 --sql-id $sql_id" "--query-id 1 --begin 1"; do
    status=0
    # shellcheck disable=SC2086
    report $arguments >/dev/null 2>&1 || status=$?
    check_equal "wrong arguments: $arguments" "$status" 2
done
q "CREATE ROLE plain LOGIN" && q "CREATE ROLE monitor LOGIN" && q "GRANT pg_monitor TO monitor"
check_equal "only members of pg_monitor see statements" "$(sqlstate_of sql postgres "SET ROLE plain; SELECT awr.sql_report($id)")" 42501
check_equal "nor do others see the document" "$(sqlstate_of sql postgres "SET ROLE plain; SELECT awr.sql_data($id)")" 42501
check_matches "a member of pg_monitor sees the report" "$(q "SET ROLE monitor; SELECT awr.sql_report($id)")" 'WORKLOAD REPOSITORY SQL Report'

checks_end
