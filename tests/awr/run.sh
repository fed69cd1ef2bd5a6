#!/usr/bin/env bash
# AWR snapshots of a cluster on a cell: the upgrade of the extension, figures compared with independent counts, and events
# between two snapshots that must not produce invented figures.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
# shellcheck source=tests/awr/on_cell.sh
. "$(dirname "$0")/on_cell.sh"

extension_installed || die "the extension is not installed: run scripts/build.sh extension"
work_begin awr
cluster=whole
data=$WORK/cell1/pgdata

# check_near DESCRIPTION VALUE EXPECTED PERCENT: prints both values.
check_near() {
    if awk -v a="$2" -v b="$3" -v p="$4" 'BEGIN { d = a - b; exit !(b != 0 && (d < 0 ? -d : d) <= b * p / 100) }'; then
        ok "$1: $2, independently $3"
    else
        not_ok "$1: found $2, independently $3, more than $4 % apart"
    fi
}
statistic() { q "SELECT e -> 'value' FROM jsonb_array_elements(awr.report_data($1, $2) -> 'statistics') e WHERE e ->> 'name' = '$3'"; }
cell_configure cell1 256MiB
directory_for_tablespace "$WORK/flash"
sed -i "s|^log_level|flash_disks = [\"$WORK/flash\"]\nflash_cache_size = \"192MiB\"\nlog_level|" "$WORK/cell1.toml"
cell_start cell1
cluster_create whole "$data" --data-checksums
cluster_set "$data" "shared_preload_libraries = 'cellar'" "shared_buffers = 16MB" "autovacuum = off" "max_wal_size = 1GB" \
    "cellar.awr_snapshot_interval = 0" "track_io_timing = on" "wal_keep_size = 1GB"
cluster_start whole "$data"

# ---- upgrade ----

q "CREATE EXTENSION cellar VERSION '1.0'"
q "ALTER EXTENSION cellar UPDATE"
check_equal "version 1.0 of the extension can be updated" "$(q "SELECT extversion FROM pg_extension WHERE extname = 'cellar'")" 1.1

# ---- figures beside independent counts ----

q "CREATE DATABASE bench"
as_pg "$PG_BIN/pgbench" -h "$WORK/run" -p "$(cluster_port whole)" -U postgres -i -s 10 -q bench >/dev/null 2>&1
DB=bench q "CREATE EXTENSION cellar"
DB=bench q "CREATE TABLE much_wal AS SELECT generate_series(1, 1000000) AS a"
q "CHECKPOINT"
trace=
if command -v strace >/dev/null; then
    # The postmaster's children, too: since PostgreSQL 18, I/O workers that already run read for the backends.
    postmaster=$(cat "$WORK/whole.postmaster")
    mapfile -t processes < <(printf -- '-p\n%s\n' "$postmaster"; ps -o pid= --ppid "$postmaster" | awk '{ print "-p"; print $1 }')
    strace -f -qq -y -ttt -e trace=pread64,preadv,pwrite64,pwritev,fallocate -o "$WORK/calls" "${processes[@]}" 2>/dev/null &
    trace=$!
    remember_process $trace
    sleep 1
fi
begin=$(snapshot)
# What the snapshots read and write themselves belongs to the interval in part.
since=$(date +%s.%N)
as_pg "$PG_BIN/pgbench" -h "$WORK/run" -p "$(cluster_port whole)" -U postgres -n -c 4 -t 250 bench >"$WORK/pgbench.log" 2>&1
DB=bench q "SELECT count(*), sum(abalance) FROM pgbench_accounts" >/dev/null
# Most WAL of the interval. PostgreSQL 15 counts new blocks of a table as reads, so the statement must not add any.
DB=bench q "DELETE FROM much_wal"
# Most reads of the interval, so that those of the snapshots do not matter.
for _ in 1 2 3; do
    DB=bench PGOPTIONS="-c cellar.cell_offload_processing=off" q "SELECT max(abalance) FROM pgbench_accounts" >/dev/null
done
# The writes of the interval are those of its checkpoint.
q "CHECKPOINT"
until=$(date +%s.%N)
# The checkpointer reports the end of the checkpoint before it adds its writes to the statistics.
sleep 1
end=$(snapshot)
if [ -n "$trace" ]; then
    kill "$trace" 2>/dev/null || true
    wait "$trace" 2>/dev/null || true
fi
lsn() { q "SELECT facts ->> 'wal_lsn' FROM awr.snapshot WHERE snap_id = $1"; }
redo=$(as_pg "$PG_BIN/pg_waldump" -z -p "$data/pg_wal" -s "$(lsn "$begin")" -e "$(lsn "$end")" | awk '/^Total/ { print $(NF - 1) }')
check_equal "a report counts each of 1000 transactions with 5 statements" \
    "$(q "SELECT sum((e -> 'calls')::int) FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'statements') e WHERE e ->> 'text' ~ 'pgbench_(accounts SET|tellers SET|branches SET|history)|^SELECT abalance'")" 5000
check_near "redo size" "$(statistic "$begin" "$end" "redo size")" "$redo" 1
of_pgbench() { q "SELECT sum($3) FROM awr.cpu_stat WHERE snap_id > $1 AND snap_id <= $2 AND application = 'pgbench'"; }
check_equal "commits are timed, one per transaction" "$(of_pgbench "$begin" "$end" commits)" 1000
check_equal "commit time and parse time are part of the time model" \
    "$(q "SELECT count(*) FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'time_model') e
          WHERE e ->> 'name' IN ('parse time elapsed', 'commit time elapsed') AND (e -> 'us')::bigint > 0")" 2
check_equal "each of 7 commands per transaction is parsed" "$(q "SELECT $(of_pgbench "$begin" "$end" parses) BETWEEN 7000 AND 7010")" t
if [ -n "$trace" ]; then
    # blocks CALL SINCE UNTIL: blocks of relation files in calls of all processes: the traced ones are those of PostgreSQL's buffer manager.
    # A call during which strace saw another process is split into two lines. PostgreSQL 16 and later extend files by fallocate, whose
    # last argument is the number of bytes, and count the new blocks as written.
    blocks() {
        awk -v call="^$1" -v since="$2" -v until="$3" '$3 ~ call && $2 >= since && $2 <= until && $0 ~ "/(base/[0-9]+|global)/[0-9]+(_fsm|_vm)?(\\.[0-9]+)?>" {
                if ($3 ~ /^fallocate/) total += substr($6, 1, index($6 ")", ")") - 1); else if (/unfinished/) waiting[$1] = 1; else total += $NF }
            /resumed/ && waiting[$1] { waiting[$1] = 0; total += $NF }
            END { printf "%d", total / 8192 }' "$WORK/calls"
    }
    # within DESCRIPTION VALUE LOWER UPPER: up to 1 % outside of both.
    within() { check "$1 (blocks): $2, independently $3 to $4" awk -v v="$2" -v l="$3" -v u="$4" 'BEGIN { exit !(v >= l * 0.99 && v <= u * 1.01) }'; }
    within "physical reads" "$(statistic "$begin" "$end" "physical reads")" "$(blocks pread "$since" "$until")" "$(blocks pread 0 9e9)"
    within "physical writes" "$(statistic "$begin" "$end" "physical writes")" "$(blocks "(pwrite|fallocate)" "$since" "$until")" "$(blocks "(pwrite|fallocate)" 0 9e9)"
else
    skip "physical reads and writes beside strace: strace is not installed"
fi
# The Smart Scan of pgbench_accounts read every byte of its files.
accounts=$data/$(DB=bench q "SELECT pg_relation_filepath('pgbench_accounts')")
check_near "scan bytes" "$(statistic "$begin" "$end" "cell physical IO bytes eligible for predicate offload")" \
    "$(stat -c %s "$accounts" "$accounts".[0-9]* 2>/dev/null | awk '{ s += $1 } END { printf "%.0f", s }')" 1
check_equal "Smart Scan bytes of the statement are its eligible bytes" \
    "$(q "SELECT sum((e -> 'eligible_bytes')::bigint) FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'statements') e")" \
    "$(statistic "$begin" "$end" "cell physical IO bytes eligible for predicate offload")"

# The clients' clocks: long statements, so that the way between client and server does not count.
begin=$end
echo "SELECT sum(a + b) FROM generate_series(1, 400) a, generate_series(1, 500) b;" >"$WORK/long.sql"
(cd "$WORK" && "$PG_BIN/pgbench" -h "$WORK/run" -p "$(cluster_port whole)" -U postgres -n -c 2 -T 8 -l --log-prefix="$WORK/latency" -f "$WORK/long.sql" bench) >"$WORK/pgbench.log" 2>&1
end=$(snapshot)
clients=$(cat "$WORK"/latency* | awk '{ s += $3 } END { printf "%d", s }')
db_time=$(q "SELECT (e -> 'active_us')::bigint FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'databases') e WHERE e ->> 'name' = 'bench'")
queued=$(q "SELECT sum((e -> 'run_queue_us')::bigint) FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'services') e WHERE e ->> 'application' = 'pgbench'")
# A session that has received a statement but waits for a CPU is not active yet, so its DB time may lack run-queue time.
check "DB time of two clients: $db_time us; by the clients' clocks $clients us, of which up to $queued us in the run queue" \
    awk -v d="$db_time" -v c="$clients" -v r="$queued" 'BEGIN { exit !(d <= c * 1.03 && d >= (c - r) * 0.97) }'
# Transactions with commits. Between two commands of a transaction, a client computes and a message travels: PostgreSQL counts this
# time as idle in transaction. DB time and idle time together are the transactions' times by the clients' clocks, except for
# one way to the server and back for each transaction (at most 0.3 ms).
before_tpcb=$end
(cd "$WORK" && "$PG_BIN/pgbench" -h "$WORK/run" -p "$(cluster_port whole)" -U postgres -n -c 2 -j 2 -T 6 -l --log-prefix="$WORK/tpcb" bench) >"$WORK/pgbench.log" 2>&1
end=$(snapshot)
read -r tpcb ways <<<"$(cat "$WORK"/tpcb* | awk '{ s += $3 } END { printf "%d %d", s, NR * 300 }')"
read -r tpcb_time idle <<<"$(q "SELECT (e -> 'active_us')::bigint, (e -> 'idle_in_transaction_us')::bigint FROM jsonb_array_elements(awr.report_data($before_tpcb, $end) -> 'databases') e WHERE e ->> 'name' = 'bench'" | tr '|' ' ')"
tpcb_queued=$(q "SELECT sum((e -> 'run_queue_us')::bigint) FROM jsonb_array_elements(awr.report_data($before_tpcb, $end) -> 'services') e WHERE e ->> 'application' = 'pgbench'")
check "DB time of TPC-B transactions: $tpcb_time us, with $idle us idle in transaction: $((tpcb_time + idle)) us; by the clients' clocks $tpcb us, of which up to $tpcb_queued us in the run queue" \
    awk -v d="$((tpcb_time + idle))" -v c="$tpcb" -v r="$tpcb_queued" -v w="$ways" 'BEGIN { exit !(d <= c * 1.03 && d >= (c - r - w) * 0.97) }'
# The statements of the first clients only use the CPU: CPU and run-queue time make up their DB time. A session that waits for a CPU before it is
# active adds run-queue time; a client that waits for a CPU adds to its own clock only.
used=$(q "SELECT sum((e -> 'cpu_us')::bigint + (e -> 'run_queue_us')::bigint) FROM jsonb_array_elements(awr.report_data($begin, $before_tpcb) -> 'services') e WHERE e ->> 'application' = 'pgbench'")
check "CPU and run-queue time of two clients: $used us; DB time $db_time us, by the clients' clocks $clients us" \
    awk -v u="$used" -v d="$db_time" -v c="$clients" 'BEGIN { exit !(u >= d * 0.95 && u <= c * 1.05) }'
check_equal "no figure is negative" "$(negative 1 "$end")" ""
check_equal "a statistic of the host that is no increase has its value" \
    "$(q "SELECT e -> 'value' FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'os') e WHERE e ->> 'name' = 'NUM_CPUS'")" \
    "$(grep -c '^cpu[0-9]' /proc/stat)"

# Disks of the cell. Readings of its metrics around both snapshots bound what the interval counts.
metrics() { q "SELECT sum((s ->> 'value')::bigint) FROM cellar.get_cell_metrics() m, jsonb_array_elements(m.metrics -> 'metrics') f, jsonb_array_elements(f -> 'samples') s
               WHERE f ->> 'name' IN ('cellar_disk_bytes_total', 'cellar_flash_disk_operations_total') GROUP BY f ->> 'name' ORDER BY f ->> 'name'" | tr '\n' ' '; }
read -r disk_before_begin flash_before_begin <<<"$(metrics)"
begin=$(snapshot)
read -r disk_after_begin flash_after_begin <<<"$(metrics)"
DB=bench q "CREATE TABLE disk_bytes AS SELECT repeat('d', 1000) AS a FROM generate_series(1, 20000)"
q "CHECKPOINT"
# Reads that miss the cell's page cache fill the flash cache.
DB=bench q "SELECT count(*) FROM disk_bytes" >/dev/null
read -r disk_before_end flash_before_end <<<"$(metrics)"
end=$(snapshot)
read -r disk_after_end flash_after_end <<<"$(metrics)"
disk() { q "SELECT coalesce(sum((e ->> '$2')::bigint), 0) FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'cell_disks') e WHERE e ->> 'disk_type' = '$1'"; }
bytes=$(disk "cell disk" bytes)
check "bytes of the cell disks: $bytes; by the cell's metrics, between $((disk_before_end - disk_after_begin)) and $((disk_after_end - disk_before_begin))" \
    test $((bytes >= disk_before_end - disk_after_begin && bytes <= disk_after_end - disk_before_begin && bytes > 20000000)) = 1
operations=$(disk "flash disk" operations)
check "operations on the flash disk: $operations; by the cell's metrics, between $((flash_before_end - flash_after_begin)) and $((flash_after_end - flash_before_begin))" \
    test $((operations >= flash_before_end - flash_after_begin && operations <= flash_after_end - flash_before_begin && flash_after_end > 0)) = 1
# The cell counts while it answers.
check "histograms of the disks contain the operations" test "$(q "SELECT bool_and(abs(n - (e ->> 'operations')::bigint) <= 10) FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'cell_disks') e,
    LATERAL (SELECT sum(h::bigint) AS n FROM jsonb_array_elements_text(e -> 'histogram') h) h")" = t

if [ -r /proc/diskstats ]; then
    # Readings around both snapshots bound what the interval counts.
    busiest=$(awk '$10 >= most { most = $10; name = $3 } END { print name }' /proc/diskstats)
    written() { awk -v n="$busiest" '$3 == n { printf "%.0f", $10 * 512 }' /proc/diskstats; }
    before_begin=$(written)
    begin=$(snapshot)
    after_begin=$(written)
    dd if=/dev/zero of="$WORK/written" bs=1M count=64 conv=fsync 2>/dev/null
    before_end=$(written)
    end=$(snapshot)
    counted=$(q "SELECT coalesce(sum(total), 0) FROM awr.os_stat WHERE snap_id = $end AND name = 'DISK_${busiest}_WRITE_BYTES'")
    after_end=$(written)
    check "bytes written to disk $busiest: $counted; by readings, between $((before_end - after_begin)) and $((after_end - before_begin))" \
        test $((counted >= before_end - after_begin && counted <= after_end - before_begin)) = 1
else
    skip "writes of disks: /proc/diskstats is not readable"
fi

# A generic plan is a copy of the plan that the planner returned, and keeps its identifier. Without the index, it is replanned.
prepared() { DB=bench q "SET plan_cache_mode = $1; PREPARE p (int) AS SELECT bbalance AS prepared_balance FROM pgbench_branches WHERE bid = \$1;
    SET enable_seqscan = off; EXECUTE p (1); EXECUTE p (2); $2" >/dev/null; }
begin=$end
prepared force_custom_plan ""
prepared force_generic_plan "ALTER TABLE pgbench_branches DROP CONSTRAINT pgbench_branches_pkey; EXECUTE p (3)"
end=$(snapshot)
check_equal "a statement has one plan identifier per plan, whether the plan is custom or generic" \
    "$(q "SELECT string_agg(calls::text, ', ' ORDER BY calls) FROM
            (SELECT plan_id, sum(calls) AS calls FROM awr.plan_stat p JOIN awr.query_text USING (query_id)
             WHERE snap_id > $begin AND snap_id <= $end AND plan_id > 0 AND query ~ 'prepared_balance' GROUP BY 1) s")" "1, 4"

# ---- events between two snapshots ----

begin=$end
cluster_stop whole
cluster_start whole "$data"
end=$(snapshot)
check_equal "a restart is noted" "$(notes "$end")" "server restart, statistics reset"
check_equal "no figure is negative after a restart" "$(negative "$begin" "$end")" ""
before=$(q "SELECT sum(xact_commit) FROM awr.database_stat WHERE snap_id = $end")
check_equal "transactions before the restart are not counted again" "$([ "$before" -lt 200 ] && echo few)" few

begin=$end
DB=bench q "SELECT sum(abalance) FROM pgbench_accounts" >/dev/null
cluster_kill whole
cluster_start whole "$data"
end=$(snapshot)
check_equal "a crash is noted" "$(notes "$end" | tr ',' '\n' | grep -c 'crash\|server restart')" 1
check_equal "no figure is negative after a crash" "$(negative "$begin" "$end")" ""

# The postmaster restarts the other processes after a crash of one.
begin=$end
backend=$(q "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")
kill -KILL "$backend"
for ((i = 0; i < 100; i++)); do
    if [ "$(q "SELECT pid <> $backend FROM pg_stat_activity WHERE backend_type = 'walwriter'" 2>/dev/null)" = t ]; then break; fi
    sleep 0.2
done
end=$(snapshot)
check_equal "a crash of one process is noted" "$(notes "$end" | tr ',' '\n' | grep -c crash)" 1
check_equal "no figure is negative after a crash of one process" "$(negative "$begin" "$end")" ""

# As if another version of the extension had been installed during the interval.
begin=$end
q "UPDATE pg_extension SET extversion = '1.1.1' WHERE extname = 'cellar'"
end=$(snapshot)
check "the report tells that the extension was upgraded" \
    grep -q 'with cellar 1\.1 became .*with cellar 1\.1\.1' <<<"$(q "SELECT awr.report($begin, $end, 'json')")"
q "UPDATE pg_extension SET extversion = '1.1' WHERE extname = 'cellar'"
end=$(snapshot)

begin=$end
q "CREATE DATABASE lost" && DB=lost q "CREATE TABLE t AS SELECT 1 AS a" && end=$(snapshot)
q "DROP DATABASE lost"
q "SELECT pg_stat_reset_shared('wal')" >/dev/null
end=$(snapshot)
check_equal "a dropped database and a reset are noted" "$(notes "$end")" "objects dropped, statistics reset"
check_equal "no figure is negative after a dropped database" "$(negative "$begin" "$end")" ""

q "SELECT awr.create_snapshot()" >/dev/null &
first=$!
remember_process $first
q "SELECT awr.create_snapshot()" >/dev/null
wait $first
check_equal "snapshots taken at the same time have different numbers" "$(q "SELECT count(*) - count(DISTINCT snap_id) FROM awr.snapshots")" 0

# ---- the launcher ----

cluster_set "$data" "cellar.awr_snapshot_interval = 1min"
q "SELECT pg_reload_conf()" >/dev/null
for ((i = 0; i < 80; i++)); do
    [ "$(q "SELECT count(*) FROM awr.snapshots WHERE requested_by = 'schedule'")" = 0 ] || break
    sleep 1
done
check_equal "the launcher takes AWR snapshots" "$(q "SELECT count(*) > 0 FROM awr.snapshots WHERE requested_by = 'schedule'")" t
check_equal "the AWR worker stored samples of pgbench" \
    "$(q "SELECT count(*) > 5 FROM awr.active_session_history WHERE application = 'pgbench' AND wait_class = 'CPU'")" t

checks_end
