#!/usr/bin/env bash
# What operators look at while a cluster runs: the screen of `cellar top` in a pseudo-terminal, its outputs without a
# terminal, the cell's HTTP endpoint, and the dashboard and alert rules of dist/, all beside a cluster under load.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

extension_installed || die "the extension is not installed: run scripts/build.sh extension"
work_begin live
data=$WORK/cell1/pgdata
metrics_port=$((20000 + $$ % 10000))

top() { as_pg "$CELLAR_BIN" top "$@"; }
# screen [ROWS COLUMNS] -- OPTION ...: runs `cellar top` in a terminal; the script is read from standard input.
screen() {
    local size=(--rows 40 --columns 130)
    if [ "$1" != -- ]; then
        size=(--rows "$1" --columns "$2")
        shift 2
    fi
    shift
    "$HARNESS_BIN" screen "${size[@]}" -- "$CELLAR_BIN" top "$@"
}
# json FILE PYTHON-EXPRESSION: evaluates an expression about the document d.
json() { python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2"; }
# fetch URL [BODY]: prints the response, or the status of an error. With BODY, a POST request.
fetch() {
    python3 - "$@" <<'PYTHON'
import sys, urllib.error, urllib.request
data = sys.argv[2].encode() if len(sys.argv) > 2 else None
try:
    sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1], data, timeout=20).read())
except urllib.error.HTTPError as error:
    print(error.code)
PYTHON
}
# get PATH [BODY]: as fetch, from the endpoint of the cell.
get() { fetch "http://127.0.0.1:$metrics_port$1" "${@:2}"; }

cell_configure cell1 256MiB
sed -i "s/^\[disk_group\]/[metrics]\nlisten = \"$metrics_port\"\n\n&/" "$WORK/cell1.toml"
cell_start cell1
cluster_create live "$data"
cluster_set "$data" "shared_preload_libraries = 'cellar'" "shared_buffers = 16MB" "autovacuum = off" \
    "cellar.awr_snapshot_interval = 0" "cellar.min_scan_size = 64kB"
cluster_start live "$data"
dsn=$(cluster_dsn live bench)
sql live postgres -c "CREATE EXTENSION cellar" -c "SELECT awr.create_snapshot()" -c "CREATE DATABASE bench" >/dev/null
sql live bench -c "CREATE EXTENSION cellar" -c "CREATE TABLE items AS SELECT i AS number, md5(i::text) AS text FROM generate_series(1, 100000) i" \
    -c "CREATE TABLE guarded (a int)" -c "CHECKPOINT"

# Load until the end of the script: a Smart Scan and a scan by PostgreSQL in turn, a lock and a session that waits for it.
{ while sleep 0.1; do
    printf '%s\n' "SELECT count(*) FROM items WHERE text LIKE '%abc%';" "SET cellar.cell_offload_processing = off;" \
        "SELECT max(number) FROM items;" "RESET cellar.cell_offload_processing;" || exit 0
done | PGAPPNAME=scanner sql live bench; } >/dev/null 2>&1 &
remember_process $!
table=$data/$(sql live bench -c "SELECT pg_relation_filepath('items')")
{ while sleep 0.1; do dd if="$table" of=/dev/null bs=8192 count=10 iflag=direct || exit 0; done; } >/dev/null 2>&1 &
remember_process $!
PGAPPNAME=holder sql live bench -c "BEGIN; LOCK TABLE guarded; SELECT 'lock holder', pg_sleep(3000)" >/dev/null 2>&1 &
remember_process $!
for ((i = 0; i < 300; i++)); do
    [ "$(sql live bench -c "SELECT count(*) FROM pg_locks WHERE relation = 'guarded'::regclass AND granted")" = 0 ] || break
    sleep 0.1
done
PGAPPNAME=waiter sql live bench -c "SELECT a FROM guarded" >/dev/null 2>&1 &
remember_process $!
for ((i = 0; i < 300; i++)); do
    [ "$(sql live bench -c "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")" = 0 ] || break
    sleep 0.1
done

# ---- the screen ----

check "the screen shows classes, statements and sessions, sorts, drills down, pauses, resizes and restores the terminal" \
    screen -- --dsn "$dsn" --cell "$WORK/cell1.toml" --interval 500ms <<'SCRIPT'
see Active sessions by wait class
see Application
see SELECT count(*) FROM items
see Lock:relation
see waiter
key 3
see blocked by
key i
see Sessions: all
see checkpointer
key i
key S
key S
key \r
see wait class
see SELECT a FROM guarded
see Sessions that this one waits for:
see lock holder
key \e
gone Sessions that this one waits for:
key 0
key 2
see Top SQL
see FROM items WHERE
key s
key r
key r
key 0
key END
key 4
see commits/s
see bench
key 5
see class
see smart scan
see small read
see p99
key 6
see cell cell1, version
see cell1-disk1
key ?
see choose a screen
key \e
gone choose a screen
key p
see PAUSED
key SPACE
gone PAUSED
key +
see every 1.00s
key 1
resize 20 70
see Top SQL
gone application
resize 8 40
see The terminal is smaller than
resize 40 130
see Sessions: active
key q
exit 0
restored
SCRIPT

for signal in TERM INT; do
    check "SIG$signal restores the terminal" screen -- --dsn "$dsn" <<SCRIPT
see Active sessions by wait class
kill $signal
exit 0
restored
SCRIPT
done
check "Ctrl-C restores the terminal" screen -- --dsn "$dsn" <<'SCRIPT'
see Active sessions by wait class
key \x03
exit 0
restored
SCRIPT
check "a closed terminal ends the program" screen -- --dsn "$dsn" <<'SCRIPT'
see Active sessions by wait class
close
exit 129
SCRIPT
check "without the extension in the database, the screen says what is missing" \
    screen -- --dsn "$(cluster_dsn live template1)" <<'SCRIPT'
see extension cellar is not created in database template1
see Lock:relation
key q
exit 0
SCRIPT
check "without colours, letters show the wait classes" env NO_COLOR=1 "$HARNESS_BIN" screen -- "$CELLAR_BIN" top --dsn "$dsn" <<'SCRIPT'
see A Application
see AA
key q
exit 0
SCRIPT
check "while no server answers, the screen shows the error and the cell" \
    screen -- --dsn "host=$WORK/run port=1 user=postgres" --cell "$WORK/run/cell1.sock" <<'SCRIPT'
see no server
see could not connect to the server
key 6
see cell cell1, version
key q
exit 0
SCRIPT

# ---- without a terminal ----

top --dsn "$dsn" --json --interval 3s >"$WORK/top.json"
check_equal "JSON: the blocked session names its blocker" \
    "$(json "$WORK/top.json" "[s['wait_class'] for s in d['sessions'] if s['application'] == 'waiter' and s['blockers'] == [h['pid'] for h in d['sessions'] if h['application'] == 'holder']]")" \
    "['Application']"
check_equal "JSON: the scan is a statement with executions, and with offloaded bytes per second" \
    "$(json "$WORK/top.json" "any(s['calls_per_second'] > 0 and s['eligible_bytes_per_second'] > 0 for s in d['statements'] if 'LIKE' in (s['text'] or ''))")" True
check_equal "JSON: cell I/O has Smart Scans of the database" \
    "$(json "$WORK/top.json" "[r['database'] for r in d['cell_io'] if r['kind'] == 'smart scan' and r['bytes_per_second'] > 0]")" "['bench']"
check_equal "JSON: cell I/O has classes of files" \
    "$(json "$WORK/top.json" "[r['class'] for r in d['cell_io'] if r['kind'] == 'single block read' and (r['operations_per_second'] or 0) > 5], [r['class'] for r in d['cell_io'] if r['kind'] == 'smart scan']")" "(['table'], [None])"
check_equal "JSON: the cell of the cluster is found without --cell" "$(json "$WORK/top.json" "d['schema_version'], [c['name'] for c in d['cells']]")" "(1, ['cell1'])"
check_equal "JSON: nothing is missing" "$(json "$WORK/top.json" "d['missing']")" "[]"
check_matches "text contains the blocked session" "$(top --dsn "$dsn" --once)" "waiter.*Lock:relation"
classes=$(json "$WORK/top.json" "','.join(sorted({repr((s['wait_event_type'], s['wait_event'], s['backend_type'] in ('client backend', 'parallel worker'), s['wait_class'])) for s in d['sessions'] if s['wait_event']}))")
check_equal "the wait classes are those of awr.wait_class" \
    "$(sql live bench -c "SELECT count(*) > 3 AND bool_and(awr.wait_class(t, e, f) = c) FROM (VALUES $classes) v (t, e, f, c)")" t
check_equal "wrong arguments exit with status 2" "$(top --interval 1h >/dev/null 2>&1; echo $?) $(top --cell /nowhere >/dev/null 2>&1; echo $?)" "2 2"
check_equal "a server that does not answer is an error" "$(top --dsn "host=$WORK/run port=1 user=postgres" --once >/dev/null 2>&1; echo $?)" 1

# The page: its address contains a secret, it is served on the loopback address only, and texts need pg_monitor.
# served USER: starts cellar top --serve, and sets $page to the printed address and $serve_pid.
served() {
    "$CELLAR_BIN" top --serve 127.0.0.1:0 --interval 200ms --dsn "${dsn/user=postgres/user=$1}" >"$WORK/served" &
    serve_pid=$!
    remember_process $serve_pid
    for ((i = 0; i < 100; i++)); do
        page=$(head -n 1 "$WORK/served")
        [ -z "$page" ] || [ "$(fetch "$page"json/top)" = 503 ] || break
        sleep 0.1
    done
}
sql live postgres -c "CREATE ROLE watcher LOGIN" -c "CREATE ROLE outsider LOGIN" -c "GRANT pg_monitor TO watcher"
served watcher
check_matches "the address of the page is that of this machine, with a secret" "$page" '^http://127.0.0.1:[0-9]+/[0-9a-f]{32}/$'
sleep 2
fetch "${page}json/top" >"$WORK/served.json"
check_equal "the page's JSON has texts, blocked sessions, and the sessions over time"     "$(json "$WORK/served.json" "any('LIKE' in (s['text'] or '') for s in d['statements']), [s['wait_class'] for s in d['sessions'] if s['application'] == 'waiter'], d['wait_classes'][0], d['activity'][-1][d['wait_classes'].index('Application')] >= 1")" "(True, ['Application'], 'CPU', True)"
check_equal "the page is served below the secret only" "$(fetch "$page" | grep -c '<script src="page.js">') $(fetch "${page%/*/}/json/top") $(fetch "${page%/*/}/")" "1 404 404"
check_equal "metrics need no secret" "$(fetch "${page%/*/}/metrics" | grep -c '^cellar_server_up 1$')" 1
if command -v chromium >/dev/null; then
    drawn=$(chromium --headless --no-sandbox --disable-gpu --user-data-dir="$WORK/chromium" --virtual-time-budget=3000 --dump-dom "$page" 2>/dev/null || true)
    check_matches "a browser draws the chart and the tables" "$(printf '%s' "$drawn" | tr '\n' ' ')" 'id="chart-activity"><svg.*class="class-5".*<table id="statements".*FROM items.*<table id="sessions".*Lock:relation.*smart scan'
else
    skip "chromium is not installed: the page of cellar top was not drawn"
fi
kill $serve_pid
served_status=0
wait $serve_pid || served_status=$?
check_equal "SIGTERM ends the server" "$served_status" 0
served outsider
fetch "${page}json/top" >"$WORK/served.json"
check_equal "a role outside of pg_monitor serves no texts"     "$(json "$WORK/served.json" "len(d['databases']) > 2, len(d['missing']) > 0, [s for s in d['sessions'] if s['query']] + [s for s in d['statements'] if s['text']]")" "(True, True, [])"
kill $serve_pid
check_matches "an address that is in use is an error" "$(top --serve "$metrics_port" 2>&1 || true)" "could not listen on 127.0.0.1:$metrics_port"
echo short >"$WORK/token"
check_matches "a short secret is refused" "$(top --serve 0 --token-file "$WORK/token" 2>&1 || true)" 'is not a token'

# A server without the library: PostgreSQL only.
plain=$WORK/plain
cluster_create plain "$plain"
has_statements=
if [ -e "$("$PG_CONFIG" --sharedir)/extension/pg_stat_statements.control" ]; then
    has_statements=1
    cluster_set "$plain" "shared_preload_libraries = 'pg_stat_statements'"
fi
cluster_start plain "$plain"
check_equal "PostgreSQL without extension and cell: sessions and databases are shown" \
    "$(top --dsn "$(cluster_dsn plain)" --json --interval 100ms >"$WORK/plain.json"; json "$WORK/plain.json" "len(d['databases']) > 2, len(d['sessions']) > 2, d['cell_io'], len(d['missing'])")" "(True, True, [], 1)"
if [ -n "$has_statements" ]; then
    sql plain postgres -c "CREATE EXTENSION pg_stat_statements"
    { while sleep 0.1; do printf 'SELECT 4711 + 1;\n' || exit 0; done | sql plain postgres; } >/dev/null 2>&1 &
    remember_process $!
    top --dsn "$(cluster_dsn plain)" --json --interval 2s >"$WORK/plain.json"
    check_equal "pg_stat_statements counts statements where the extension does not" \
        "$(json "$WORK/plain.json" "[s['calls_per_second'] > 0 for s in d['statements'] if s['text'] == 'SELECT \$1 + \$2']")" "[True]"
else
    skip "pg_stat_statements is not installed"
fi
cluster_stop plain

# ---- the endpoint, the dashboard, the alert rules ----

get /metrics >"$WORK/cell.prom"
top --prometheus --dsn "$(cluster_dsn live)" >"$WORK/server.prom"
"$HARNESS_BIN" monitoring --metrics "$WORK/cell.prom" --metrics "$WORK/server.prom" \
    --dashboard "$ROOT/dist/grafana-dashboard.json" --alerts "$ROOT/dist/prometheus-alerts.yml" >"$WORK/monitoring.log" || true
count_lines <"$WORK/monitoring.log"
check_equal "the AWR snapshot has a metric" "$(grep -c '^cellar_awr_last_snapshot_time_seconds [0-9.]*$' "$WORK/server.prom")" 1
get /json/metrics >"$WORK/metrics.json"
check_equal "JSON and text contain the same metrics" "$(json "$WORK/metrics.json" "sorted(m['name'] for m in d['metrics'])")" \
    "$(sed -n 's/^# TYPE \([a-z_]*\) .*/\1/p' "$WORK/cell.prom" | python3 -c 'import sys; print(sorted(sys.stdin.read().split()))')"
get /json/status >"$WORK/status.json"
check_equal "/json/status is the status of the cell" "$(json "$WORK/status.json" "d['schema_version'], d['name'], len(d['disks'])")" "(1, 'cell1', 2)"
check_equal "I/O of both disks is counted" \
    "$(json "$WORK/metrics.json" "sum(s['value'] > 0 for m in d['metrics'] if m['name'] == 'cellar_disk_bytes_total' for s in m['samples'] if s['labels']['operation'] == 'write')")" 2
check_equal "the page is served" "$(get / | grep -c '<script src="page.js">')" 1
check_equal "other methods are refused" "$(get /metrics body)" 405
check_equal "the endpoint listens on the loopback address only" \
    "$(awk -v port="$(printf '%04X' "$metrics_port")" '$4 == "0A" && $2 ~ ":" port "$" { print $2 }' /proc/net/tcp /proc/net/tcp6)" "$(printf '0100007F:%04X' "$metrics_port")"
exec 3<>"/dev/tcp/127.0.0.1/$metrics_port"
cluster_stop live
check "the cell stops cleanly while a client of the endpoint is connected" cell_stop cell1
exec 3>&-

checks_end
