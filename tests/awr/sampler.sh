#!/usr/bin/env bash
# What must not disturb the collecting of statistics: a system clock that is set back or forward, and a cell that does not
# answer, which stores a tablespace behind a symbolic link.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
# shellcheck source=tests/awr/on_cell.sh
. "$(dirname "$0")/on_cell.sh"

if ! command -v cc >/dev/null; then
    skip "clock and sampler: there is no C compiler"
    exit 0
fi
extension_installed || die "the extension is not installed: run scripts/build.sh extension"
cluster=sampler
work_begin "$cluster"
cell_configure cell1 64MiB
cell_start cell1
data=$WORK/data
set_clock() { python3 -c 'import struct, sys; open(sys.argv[1], "r+b").write(struct.pack("q", int(sys.argv[2])))' "$WORK/offset" "$1"; }
head -c 4096 /dev/zero >"$WORK/offset"
chmod 644 "$WORK/offset"
cc -shared -fPIC -O1 -o "$WORK/clock.so" "$ROOT/tests/awr/clock.c"
export CLOCK_OFFSET=$WORK/offset
LD_PRELOAD=$WORK/clock.so begin_cluster "cellar.awr_sample_period = 100ms" "cellar.awr_sample_buffer = 64kB" "max_worker_processes = 12"
ticks() { q "SELECT ticks FROM awr.get_sampler_state()"; }

# ---- the clock ----

q "CREATE TABLE wide AS SELECT i AS a, repeat('x', 100) AS b FROM generate_series(1, 200000) i"
session busy
exec 3>"$WORK/busy"
{ while sleep 0.05; do echo "SELECT 4711 + 1;" >&3 || exit 0; done; } 2>/dev/null &
remember_process $!
counted="coalesce(sum(calls), 0) FROM awr.get_statements() JOIN awr.get_plans() USING (query_id, plan_id) WHERE query LIKE 'SELECT 4711 + 1%'"
parsed="coalesce(sum(parses), 0) FROM awr.get_cpu() WHERE application = 'busy'"
wait_for "$(printf '%s' "$counted" | sed 's/ FROM/ > 0 FROM/')"
begin=$(snapshot)
for step in -7200 3600; do
    now=$(q "SELECT date_trunc('second', clock_timestamp())")
    set_clock $step
    check_equal "the clock of the server is set to another time" \
        "$(q "SELECT clock_timestamp() - '$now' NOT BETWEEN '-1 hour' AND '1 hour'")" t
    calls=$(q "SELECT $counted")
    parses=$(q "SELECT $parsed")
    first=$(ticks)
    started=$SECONDS
    wait_for "(SELECT $counted) > $calls + 5 AND (SELECT $parsed) > $parses + 5 AND (SELECT ticks FROM awr.get_sampler_state()) > $first + 5"
    check "a session adds its statistics, and the sampler samples, within 20 s after a step to $step s" test $((SECONDS - started)) -le 20
done
end=$(snapshot)
check_equal "a step of the clock is noted" "$(notes "$end" | tr ',' '\n' | grep -c 'clock step')" 1
check_equal "no figure is negative after steps of the clock" "$(negative "$begin" "$end")" ""
elapsed=$(q "SELECT elapsed_us / 1000000 FROM awr.snapshot WHERE snap_id = $end")
check "the interval has its real length: $elapsed s" test "$elapsed" -lt 600
exec 3>&-

# Workers that run while the clock is set forward.
session leader
exec 3>"$WORK/leader"
echo "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
    SELECT sum(length(md5(repeat(b, 2000)))) FROM wide;" >&3
workers="count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'parallel worker'"
wait_for "$workers"
first=$(ticks)
wait_for "ticks > $first + 2 FROM awr.get_sampler_state()"
set_clock 10800
first=$(ticks)
wait_for "ticks > $first + 2 FROM awr.get_sampler_state()"
check_equal "the workers run before and after the step" "$(q "SELECT $workers")" t
worked="FROM awr.get_cpu() WHERE backend_type = 'parallel worker'"
check_equal "the elapsed time of parallel workers does not contain the step" \
    "$(q "SELECT sum(elapsed_us) BETWEEN 100000 AND 600000000 $worked")" t
q "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leader'" >/dev/null
exec 3>&-
wait_for "NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'leader')"

# Workers whose times are first read when they exit: the clock is set forward, then back, after their start.
q "ALTER SYSTEM SET cellar.awr_sample_period = 0"
q "SELECT pg_reload_conf()" >/dev/null
first=$(ticks)
until sleep 0.5 && [ "$(ticks)" = "$first" ]; do first=$(ticks); done
for offset in 21600 3600; do
    session "leader$offset"
    exec 3>"$WORK/leader$offset"
    echo "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
        SELECT sum(length(md5(repeat(b, 2000)))) FROM wide;" >&3
    wait_for "$workers"
    counted=$(q "SELECT coalesce(sum(elapsed_us), 0) $worked")
    sleep 0.3
    set_clock $offset
    q "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leader$offset'" >/dev/null
    wait_for "NOT ($(printf '%s' "$workers" | sed 's/count/SELECT count/'))"
    check_equal "the elapsed time of workers that start before a step of the clock to $offset s does not contain the step" \
        "$(q "SELECT sum(elapsed_us) - $counted BETWEEN 300000 AND 600000000 $worked")" t
    exec 3>&-
done
q "ALTER SYSTEM RESET cellar.awr_sample_period"
q "SELECT pg_reload_conf()" >/dev/null
wait_for "ticks > $first FROM awr.get_sampler_state()"

# ---- more consumer groups than the table of names holds ----

# Sixteen sessions have 70 groups each, one after the other; the ring holds the samples of a second.
q "ALTER SYSTEM SET cellar.awr_sample_period = '10ms'"
q "SELECT pg_reload_conf()" >/dev/null
changing=()
for ((n = 0; n < 16; n++)); do
    q "DO \$\$ DECLARE seen bigint; BEGIN
        FOR i IN 1..70 LOOP
            PERFORM set_config('cellar.consumer_group', 'group-$n-' || i, false);
            seen := (SELECT ticks FROM awr.get_sampler_state());
            WHILE (SELECT ticks FROM awr.get_sampler_state()) < seen + 2 LOOP PERFORM pg_sleep(0.004); END LOOP;
        END LOOP;
        PERFORM set_config('cellar.consumer_group', 'last-$n', false);
        PERFORM pg_sleep(0.3);
    END \$\$" &
    changing+=($!)
done
wait "${changing[@]}"
check_equal "names of groups that no sample has are removed: the last ones of 1136 are not (other)" \
    "$(q "SELECT count(DISTINCT consumer_group) FILTER (WHERE consumer_group LIKE 'last-%') > 0, count(*) FILTER (WHERE consumer_group = '(other)') FROM awr.get_samples(0)")" "t|0"
q "ALTER SYSTEM RESET cellar.awr_sample_period"
q "SELECT pg_reload_conf()" >/dev/null

# ---- a cell that does not answer ----

directory_for_tablespace "$WORK/cell1/space"
ln -s "$WORK/cell1/space" "$WORK/link"
q "CREATE TABLESPACE linked LOCATION '$WORK/link'"
session sorter
exec 3>"$WORK/sorter"
echo "SET temp_tablespaces = linked; SET work_mem = '64kB'; BEGIN;
    DECLARE c CURSOR FOR SELECT i, repeat('t', 100) FROM generate_series(1, 20000) i ORDER BY i % 1000; FETCH 1 FROM c;" >&3
wait_for "EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'sorter' AND state = 'idle in transaction' AND query LIKE '%FETCH 1%')"
check "the session has a temporary file on the cell" test -n "$(find "$WORK/cell1/space" -name 'pgsql_tmp*.*' -print -quit)"
kill -STOP "$CELL_PID"
first=$(ticks)
for ((i = 0; i < 100; i++)); do
    [ "$(ticks)" -le $((first + 5)) ] || break
    sleep 0.1
done
sampled=$(($(ticks) - first))
kill -CONT "$CELL_PID"
check "the sampler takes samples while the cell is stopped" test "$sampled" -gt 5
check_equal "the size of the session's temporary files is unknown" \
    "$(q "SELECT count(*) > 0, count(temp_bytes) FROM awr.active_session_history WHERE application = 'sorter' AND state = 'idle in transaction'")" "t|0"
exec 3>&-
cluster_stop sampler
check "the cell stops cleanly" cell_stop cell1

checks_end
