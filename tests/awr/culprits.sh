#!/usr/bin/env bash
# Known culprits: five set-ups on a cell, each with a neighbour that lacks the culprit. The first finding of the report names
# the culprit; the report about the neighbour has no such finding. No check depends on the speed of the machine: the cell is
# stopped, locks are held and checkpoints are awaited until the sampler has seen them.
#
#   culprits.sh [--rounds N] [--ticks N]    rounds over all set-ups, and ticks of the sampler for which waits last
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

rounds=1
ticks=10
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2 ;;
    --ticks) ticks=$2 ;;
    *) die "unknown option $1" ;;
    esac
    shift 2
done

extension_installed || die "the extension is not installed: run scripts/build.sh extension"
work_begin culprits
data=$WORK/cell1/pgdata

declare -A session_in session_out
# session NAME DATABASE: a psql that stays connected; its application name is NAME.
session() {
    local in out
    mkfifo "$WORK/$1.in" "$WORK/$1.out"
    PGAPPNAME=$1 stdbuf -oL "$PG_BIN/psql" -X -q -At -h "$WORK/run" -p "$(cluster_port culprits)" -U postgres -d "$2" \
        <"$WORK/$1.in" >"$WORK/$1.out" 2>&1 &
    remember_process $!
    exec {in}>"$WORK/$1.in" {out}<"$WORK/$1.out"
    session_in[$1]=$in session_out[$1]=$out
}
# send NAME STATEMENTS: sends statements without waiting for their result.
send() { printf '%s\n\\echo --answered--\n' "$2" >&"${session_in[$1]}"; }
# receive NAME: prints the output of the last `send`.
receive() {
    local line
    while IFS= read -r -t 30 -u "${session_out[$1]}" line; do
        [ "$line" != "--answered--" ] || return 0
        printf '%s\n' "$line"
    done
    die "session $1 did not answer"
}
# ask NAME STATEMENTS: prints the result.
ask() { send "$1" "$2" && receive "$1"; }
# The monitor is connected, and its queries read no table: they need no file while the cell is stopped.
q() { ask monitor "$1;"; }
# wait_for CONDITION: waits until an SQL condition is true. A stopped cell continues before the test fails.
wait_for() {
    local tries answer
    for ((tries = 0; tries < 600; tries++)); do
        answer=$(q "SELECT $1") || break
        [ "$answer" != t ] || return 0
        sleep 0.1
    done
    kill -CONT "$CELL_PID"
    die "not true: $1"
}
# wait_for_ticks: lets the waits of the moment last for some samples.
wait_for_ticks() {
    local first
    first=$(q "SELECT ticks FROM awr.get_sampler_state()")
    wait_for "ticks >= $first + $ticks FROM awr.get_sampler_state()"
}
# SQL conditions about N sessions, named by a regular expression. A session without a wait event may be on a CPU, or wait for a
# request that PostgreSQL does not report, for example the size of a file.
active() { printf "count(*) = %d FROM pg_stat_get_activity(NULL) WHERE application_name ~ '^(%s)\$' AND state = 'active'" "$1" "$2"; }
waiting() { printf "count(*) >= %d FROM pg_stat_get_activity(NULL) WHERE application_name ~ '^(%s)\$' AND state = 'active' AND wait_event IS NOT NULL" "$1" "$2"; }
# The monitor has the catalog entries of its queries in its caches when the cell stops.
stop_cell() {
    q "SELECT $(active 1 nothing) UNION ALL SELECT $(waiting 1 nothing) UNION ALL SELECT ticks >= 0 FROM awr.get_sampler_state()" >/dev/null
    kill -STOP "$CELL_PID"
    local tries
    for ((tries = 0; tries < 600; tries++)); do
        # A thread that runs serves requests until the signal reaches the thread.
        grep -qhE '^State:[[:space:]]+[^T]' /proc/"$CELL_PID"/task/*/status || return 0
        sleep 0.1
    done
    kill -CONT "$CELL_PID"
    die "the cell did not stop"
}
snapshot() { q "SELECT pg_stat_force_next_flush()" >/dev/null && q "SELECT awr.create_snapshot('test')"; }

# interval SCENARIO [ARGUMENT ...]: runs the function between two AWR snapshots. $findings receives id|kind|title|evidence and
# recommendation of each finding.
interval() {
    local begin end name
    begin=$(snapshot)
    "$@"
    # Sessions report their statistics once a second, or when a statement requests the report and has read a table.
    for name in "${!session_in[@]}"; do ask "$name" "SELECT pg_stat_force_next_flush(), (SELECT count(*) FROM awr.get_statements()), (SELECT count(*) FROM pg_database);" >/dev/null; done
    end=$(snapshot)
    findings=$(q "SELECT f ->> 'id', f ->> 'kind', f ->> 'title', replace((SELECT string_agg(e ->> 'text', '; ') FROM jsonb_array_elements(f -> 'evidence') e)
                           || ' => ' || (SELECT string_agg(r ->> 'text', '; ') FROM jsonb_array_elements(f -> 'recommendations') r), E'\\n', ' ')
                  FROM jsonb_array_elements(awr.report($begin, $end, 'json')::jsonb -> 'findings') f")
}
# check_first ID TEXT ...: the first finding is a problem of the rule; its title, evidence and recommendation contain the texts.
check_first() {
    local first=${findings%%$'\n'*} id=$1 text missing=
    shift
    for text in "$@"; do
        case $first in *"$text"*) ;; *) missing+=" \"$text\"" ;; esac
    done
    if [[ $first == "$id|PROBLEM|"* ]] && [ -z "$missing" ]; then
        ok "first finding: $(cut -d'|' -f3 <<<"$first")"
    else
        not_ok "first finding: $id${missing:+ without$missing}"
        printf '    %s\n' "${findings//$'\n'/$'\n'    }"
    fi
}
# check_none ID DESCRIPTION
check_none() {
    if grep -q "^$1|" <<<"$findings"; then
        not_ok "no finding $1 of $2"
        printf '    %s\n' "${findings//$'\n'/$'\n'    }"
    else
        ok "no finding $1 of $2"
    fi
}

cell_configure cell1 64MiB
cell_start cell1
cluster_create culprits "$data" --data-checksums --wal-segsize=1
# The test itself stores the samples.
cluster_set "$data" "shared_preload_libraries = 'cellar'" "shared_buffers = 2MB" "autovacuum = off" "max_wal_size = 1GB" \
    "cellar.awr_snapshot_interval = 0" "cellar.awr_sample_period = 100ms" "cellar.awr_database = template1"
cluster_start culprits "$data"
sql culprits postgres -c "CREATE EXTENSION cellar" -c "CREATE DATABASE shop" -c "CREATE DATABASE archive" \
    -c "ALTER DATABASE archive SET cellar.min_scan_size = '1MB'" -c "ALTER DATABASE archive SET cellar.cost_factor = 0" \
    -c "ALTER DATABASE shop SET cellar.cell_offload_processing = off"
sql culprits archive -c "CREATE EXTENSION cellar" \
    -c "CREATE TABLE sales AS SELECT i AS id, i % 1000 AS amount, repeat('x', 80) AS filler FROM generate_series(1, 150000) i" -c "VACUUM ANALYZE sales"
sql culprits shop -c "CREATE EXTENSION cellar" \
    -c "CREATE TABLE orders AS SELECT i AS id, repeat('o', 200) AS note FROM generate_series(1, 60000) i" \
    -c "CREATE TABLE stock AS SELECT i AS id, 0 AS amount FROM generate_series(1, 10) i" \
    -c "CREATE TABLE entries (id bigint, filler text)" -c "CREATE TABLE events AS SELECT i AS number, i % 7 AS kind FROM generate_series(1, 200000) i" \
    -c "CREATE INDEX ON orders (id)" -c "CREATE INDEX ON events (number)" -c "VACUUM ANALYZE" -c "CHECKPOINT"
session monitor postgres
for name in hog1 hog2 hog3 hog4; do session $name archive; done
for name in shop1 shop2 shop3 shop4; do session $name shop; done
q "SET client_min_messages = warning" >/dev/null

# ---- an I/O hog in another database ----

orders=$(sql culprits shop -c "SELECT pg_relation_filepath('orders')")
# random_reads FIRST: reads 20 blocks of orders, one by one, from row FIRST on. The generic plan needs no size of the table.
prepare_reads="SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off;
    PREPARE read_orders (int) AS SELECT count(note) FROM orders WHERE id = ANY (ARRAY(SELECT generate_series(\$1, 60000, 3000)));"
random_reads() { printf 'EXECUTE read_orders (%d);' "$1"; }
# storage_stall VICTIM ...: the cell stops while four sessions scan a table of archive, and sessions of shop read single blocks
# that are neither in shared buffers nor in the kernel's page cache. The checkpoint leaves no dirty buffer: a session that
# needed its buffer would wait for a write instead of its read.
storage_stall() {
    local name
    q "CHECKPOINT" >/dev/null
    dd of="$data/$orders" oflag=nocache conv=notrunc,fdatasync count=0 status=none
    stop_cell
    for name in hog1 hog2 hog3 hog4; do send $name "SELECT sum(amount) FROM sales;"; done
    for name in "$@"; do send "$name" "$(random_reads $((1000 + 100 * round)))"; done
    wait_for "$(active $((4 + $#)) 'hog.|shop.')"
    wait_for "$(waiting $# 'shop.')"
    wait_for_ticks
    kill -CONT "$CELL_PID"
    for name in hog1 hog2 hog3 hog4 "$@"; do receive "$name" >/dev/null; done
}

# ---- a lock chain ----

update() { printf 'UPDATE stock SET amount = amount + 1 WHERE id = %d;' "$1"; }
lock_chain() {
    ask shop1 "BEGIN; $(update 1)" >/dev/null
    ask shop2 "BEGIN; $(update 2)" >/dev/null
    send shop2 "$(update 1) COMMIT;"
    wait_for "$(waiting 1 shop2)"
    send shop3 "$(update 2)"
    send shop4 "$(update 2)"
    wait_for "$(waiting 3 'shop[234]')"
    wait_for_ticks
    ask shop1 "COMMIT;" >/dev/null
    for name in shop2 shop3 shop4; do receive $name >/dev/null; done
}
# As many statements of as many sessions, one after the other, and a transaction that stays open.
locks_in_turn() {
    for name in shop1 shop2 shop3 shop4; do ask $name "BEGIN; $(update 1) $(update 2) COMMIT;" >/dev/null; done
    ask shop1 "BEGIN; $(update 3)" >/dev/null
    wait_for_ticks
    ask shop1 "COMMIT;" >/dev/null
}

# ---- another plan after ANALYZE ----

lookups() {
    local statements='' i
    for ((i = 1; i <= 200; i++)); do statements+="SELECT kind FROM events WHERE number = $((i * 37));"; done
    ask shop1 "$statements" >/dev/null
}
# The statistics say that all rows have the same number.
wrong_statistics() {
    ask shop1 "ALTER TABLE events ALTER number SET (n_distinct = 1); ANALYZE events;" >/dev/null
    lookups
}
right_statistics() { ask shop1 "ALTER TABLE events ALTER number RESET (n_distinct); ANALYZE events;" >/dev/null; }

# ---- a checkpoint storm ----

checkpoints() { q "SELECT coalesce((to_jsonb(c) -> 'checkpoints_req')::int, 0) FROM pg_stat_bgwriter c"; }
[ "$PG_MAJOR" -lt 17 ] || checkpoints() { q "SELECT num_requested FROM pg_stat_checkpointer"; }
# max_wal_size SIZE: changes the setting, and waits until the sessions have the new value.
max_wal_size() {
    q "ALTER SYSTEM SET max_wal_size = '$1'" >/dev/null
    q "SELECT pg_reload_conf()" >/dev/null
    wait_for "current_setting('max_wal_size') = '$1'"
    ask shop1 "SELECT 1;" >/dev/null
    q "CHECKPOINT" >/dev/null
}
# Four sessions commit changes while the cell is stopped, and wait for the WAL.
slow_commits() {
    local name
    for name in shop1 shop2 shop3 shop4; do ask $name "INSERT INTO entries VALUES (1, 'one');" >/dev/null; done
    stop_cell
    for name in shop1 shop2 shop3 shop4; do send $name "INSERT INTO entries VALUES (2, 'two');"; done
    wait_for "$(active 4 'shop.')"
    wait_for "$(waiting 1 'shop.')"
    wait_for_ticks
    kill -CONT "$CELL_PID"
    for name in shop1 shop2 shop3 shop4; do receive $name >/dev/null; done
}
# checkpoint_storm wal|command: requests checkpoints by WAL or by a command.
checkpoint_storm() {
    local first
    first=$(checkpoints)
    while [ "$(checkpoints)" -lt $((first + 4)) ]; do
        case $1 in
        wal) ask shop1 "SELECT pg_logical_emit_message(false, 'culprits', repeat('w', 1200000));" >/dev/null ;;
        command) q "CHECKPOINT" >/dev/null ;;
        esac
    done
    slow_commits
}

# ---- a temporary spill ----

# sort_rows WORK_MEM: sorts so often that the AWR snapshots do not matter.
sort_rows() {
    local statements='' i
    for ((i = 0; i < 15; i++)); do statements+="SELECT count(*) FROM (SELECT i, repeat('t', 100) FROM generate_series(1, 100000) i ORDER BY i % 1000 OFFSET 0) s;"; done
    ask shop1 "SET work_mem = '$1'; $statements RESET work_mem;" >/dev/null
}

# Sessions and catalogs are warm, and the repository has its partitions.
interval sort_rows 4MB
for name in hog1 hog2 hog3 hog4; do ask $name "SELECT sum(amount) FROM sales;" >/dev/null; done
for name in shop1 shop2 shop3 shop4; do ask $name "$prepare_reads $(random_reads 1) RESET enable_seqscan; RESET enable_bitmapscan; SELECT count(*) FROM stock;" >/dev/null; done
check_equal "the scans of the hog are Smart Scans" "$(ask hog1 "EXPLAIN (COSTS OFF) SELECT sum(amount) FROM sales;" | grep -c 'Smart Scan' | awk '{ print ($1 > 0) }')" 1

for ((round = 1; round <= rounds; round++)); do
    interval storage_stall shop1 shop2
    check_first noisy-neighbour archive "statement $(q "SELECT awr.sql_id(query_id) FROM awr.query_text WHERE query LIKE 'SELECT sum(amount)%'")"
    check "samples name the waits for Smart Scans" test "$(q "SELECT count(*) FROM awr.active_session_history
        WHERE application LIKE 'hog%' AND wait_event = 'cell smart table scan' AND wait_class = 'User I/O'")" -gt 0
    interval storage_stall
    check_none noisy-neighbour "a database that is busy alone"

    blocker=$(q "SELECT pid FROM pg_stat_activity WHERE application_name = 'shop1'")
    interval lock_chain
    check_first lock-waits "most of all for session $blocker" "session $blocker (shop1, idle in transaction) blocked 3 sessions" \
        "last statement of session $blocker: UPDATE stock"
    interval locks_in_turn
    check_none lock-waits "sessions that lock one after the other"
    check_none idle-in-transaction "a transaction that is open for less than a minute"

    lookups
    interval lookups
    check_none plan-regression "a statement that keeps its plan"
    lookup=$(q "SELECT query_id FROM awr.query_text WHERE query LIKE 'SELECT kind FROM events%'")
    interval wrong_statistics
    mapfile -t plans < <(q "SELECT format('plan %s:', plan_id) FROM awr.plan_text WHERE query_id = $lookup")
    check_first plan-regression "Statement $(q "SELECT awr.sql_id($lookup)")" "${plans[@]}" "Index Scan using events_number_idx on events" \
        "public.events was analyzed"
    check_equal "the statement had two plans" "${#plans[@]}" 2
    right_statistics

    max_wal_size 2MB
    interval checkpoint_storm wal
    check_first checkpoint-storm "WAL forced" "Raise max_wal_size from 2.0MB to"
    max_wal_size 1GB
    interval checkpoint_storm command
    check_first checkpoint-storm "Commands requested" "Run CHECKPOINT"
    interval slow_commits
    check_none checkpoint-storm "commits without checkpoints"

    interval sort_rows 64kB
    sort=$(q "SELECT awr.sql_id(query_id) FROM awr.query_text WHERE query LIKE 'SELECT count(*) FROM (SELECT i, repeat%'")
    check_first temp-spills "Statement $sort spilled" "Raise work_mem above 4.0MB for statement $sort"
    interval sort_rows 64MB
    check_none temp-spills "a sort in memory"
done

checks_end
