# shellcheck shell=bash
# Sourced by run.sh. A cluster with tablespaces on three cells whose daemons are killed and started again while sessions
# read and write. Sessions that opened files on a previous mount must never read a page that is older than a commit.
#
# The counters of cell N are some rows of counters_N, with the same value, which only grows. A writer raises the counters,
# commits, and then raises the value of cell N in the table floors, which is not on a cell. A reader reads the floor first:
# a counter below the floor comes from a stale page. shared_buffers is smaller than the tables, so most pages come from the
# kernel's page cache.

dead_mounts_cells=(cell5 cell6 cell7)
declare -A dead_mounts_pid

dead_mounts_sql() { sql mounts postgres "$@"; }

# dead_mounts_start CELL: starts a cell, and records its process. The last cell runs in a PID namespace, where it does not
# see the server's processes.
dead_mounts_start() {
    local CELLAR_BIN=$CELLAR_BIN inner
    if [ "$1" = "${dead_mounts_cells[-1]}" ] && [ -e "$WORK/in-namespace" ]; then CELLAR_BIN=$WORK/in-namespace; fi
    cell_start "$1" || return 1
    if [ "$CELLAR_BIN" = "$WORK/in-namespace" ]; then
        inner=$(cat "/proc/$CELL_PID/task/$CELL_PID/children")
        CELL_PID=${inner%% *}
        remember_process "$CELL_PID"
    fi
    dead_mounts_pid[$1]=$CELL_PID
}

# dead_mounts_readers ROUND: starts a session for each cell that reads until the server's crash terminates the session.
dead_mounts_readers() {
    local number
    for number in 1 2 3; do
        (
            trap - EXIT
            for ((n = 0; n < 100000; n++)); do printf 'SELECT check_counters(%s), pg_sleep(0.03);\n' "$number"; done |
                "$PG_BIN/psql" -X -q -At -h "$WORK/run" -p "$(cluster_port mounts)" -U postgres -d postgres
        ) >"$WORK/mounts-reader-$1-$number.out" 2>&1 &
        remember_process $!
    done
}
# dead_mounts_writers: starts a writer for each cell. A writer connects for each commit, so its files are of the new mount.
dead_mounts_writers() {
    local number
    rm -f "$WORK/mounts-stop"
    writers=()
    for number in 1 2 3; do
        (
            trap - EXIT
            while [ ! -e "$WORK/mounts-stop" ]; do
                # The second statement sets hint bits, the third writes the dirty pages with its object checkpoint, the
                # fourth evicts all pages from shared_buffers.
                sql mounts postgres -c "UPDATE counters_$number SET value = value + 1 WHERE id % 400 = 1" \
                    -c "SELECT count(*) FROM counters_$number" \
                    -c "SET cellar.min_scan_size = 0" -c "SET cellar.cost_factor = 0" \
                    -c "SELECT count(value) FROM counters_$number WHERE value > 0" -c "SELECT count(filler) FROM evicting" \
                    -c "UPDATE floors SET value = value + 1 WHERE cell = $number" || sleep 0.02
            done
        ) >"$WORK/mounts-writer-$number.out" 2>&1 &
        remember_process $!
        writers+=($!)
    done
}

# dead_mounts_wait CONDITION: repeats an SQL condition until it is true, for up to 30 s.
dead_mounts_wait() { wait_for_true 30 dead_mounts_sql -c "SELECT $1"; }

# dead_mounts_round NAME fast|slow CELL ...: kills the cells while sessions read, starts writers and the cells, and checks
# the counters. The kernel caches every page and no page is dirty, so the readers need no daemon. With "slow", the cell
# monitor is stopped for a second after the start of the cells: only the cells protect the readers meanwhile.
dead_mounts_round() {
    local round=$1 speed=$2 process monitor before started raised writers log=$WORK/mounts-postgres.log
    shift 2
    dead_mounts_sql -c "VACUUM (FREEZE) counters_1, counters_2, counters_3" -c "CHECKPOINT"
    started=$(dead_mounts_floors)
    dead_mounts_readers "$round"
    sleep 0.7
    before=$(grep -c "has restarted" "$log" || true)
    monitor=$(dead_mounts_monitor)
    if [ "$speed" = slow ]; then kill -STOP "$monitor"; fi
    for process in "$@"; do kill -KILL "${dead_mounts_pid[$process]}"; done
    # Writers that start earlier also dirty pages that they read from the dead mount.
    if [ "$speed" = fast ]; then dead_mounts_writers; fi
    for process in "$@"; do wait_gone "${dead_mounts_pid[$process]}" 10; done
    for process in "$@"; do dead_mounts_start "$process"; done
    if [ "$speed" = slow ]; then
        dead_mounts_writers
        sleep 1.5
        # A new session fails if it has to evict a dirty page from shared_buffers.
        raised=$(dead_mounts_floors)
        check_equal "dead mounts: no write reaches a cell before the sessions are terminated ($round)" "${raised:-$started}" "$started"
        kill -CONT "$monitor"
    fi
    check "dead mounts: the server recovers ($round)" dead_mounts_recovered "$before"
    check "dead mounts: every cell accepts writes ($round)" \
        dead_mounts_wait "(SELECT sum(value) FROM floors) > $started + 5"
    touch "$WORK/mounts-stop"
    for process in "${writers[@]}"; do wait_gone "$process" 30; done
    check_equal "dead mounts: every counter has its value ($round)" \
        "$(dead_mounts_sql -c "SELECT check_counters(1) AND check_counters(2) AND check_counters(3)")" t
    check "dead mounts: the readers have read ($round)" dead_mounts_read "$round"
}
dead_mounts_monitor() {
    ps -o pid=,args= --ppid "$(cat "$WORK/mounts.postmaster")" | awk '/cellar monitor/ { print $1 }'
}
dead_mounts_floors() { dead_mounts_sql -c "SELECT sum(value) FROM floors" 2>/dev/null || true; }
dead_mounts_recovered() {
    local tries
    for ((tries = 0; tries < 300; tries++)); do
        if [ "$(grep -c "has restarted" "$WORK/mounts-postgres.log")" -gt "$1" ] && dead_mounts_floors | grep -q .; then return 0; fi
        sleep 0.1
    done
    return 1
}
dead_mounts_read() {
    local number
    for number in 1 2 3; do
        [ "$(grep -c '^t|' "$WORK/mounts-reader-$1-$number.out")" -ge 5 ] || return 1
    done
}

scenario_dead_mounts() {
    local cell number=0 round rounds=1 single=("${dead_mounts_cells[-1]}")
    if [ "$seconds" -gt 20 ]; then rounds=10 single=("${dead_mounts_cells[@]}"); fi
    part_end
    whole_end
    if unshare --pid --fork true 2>/dev/null; then
        printf '#!/bin/sh\nexec unshare --pid --fork "%s" "$@"\n' "$CELLAR_BIN" >"$WORK/in-namespace"
        chmod 755 "$WORK/in-namespace"
    else
        skip "dead mounts: a cell in a PID namespace: unshare is not permitted"
    fi
    cluster_create mounts "$WORK/mounts-data" --data-checksums
    cluster_set "$WORK/mounts-data" "shared_preload_libraries = 'cellar'" "shared_buffers = 1MB" "autovacuum = off" \
        "max_wal_size = 2GB" "checkpoint_timeout = 1h" "max_parallel_workers_per_gather = 0" \
        "cellar.min_scan_size = 1GB"
    for cell in "${dead_mounts_cells[@]}"; do
        cell_configure "$cell" 64MiB
        dead_mounts_start "$cell"
        mkdir -p "$WORK/$cell/space"
        [ "$(id -u)" != 0 ] || chown "$OS_USER" "$WORK/$cell/space"
    done
    cluster_start mounts "$WORK/mounts-data"
    dead_mounts_sql -c "CREATE TABLE floors (cell int PRIMARY KEY, value bigint)" \
        -c "CREATE FUNCTION check_counters(number int) RETURNS bool LANGUAGE plpgsql AS \$\$
            DECLARE floor bigint; least bigint; rows bigint;
            BEGIN
                SELECT value INTO floor FROM floors WHERE cell = number;
                EXECUTE format('SELECT min(value) FILTER (WHERE id %% 400 = 1), count(*) FROM counters_%s', number) INTO least, rows;
                IF least < floor OR rows <> 2000 THEN
                    RAISE LOG 'stale page: counter % of cell % is below %, % rows', least, number, floor, rows;
                END IF;
                RETURN least >= floor AND rows = 2000;
            END \$\$" \
        -c "CREATE TABLE evicting (part int, filler text) PARTITION BY LIST (part)" \
        -c "DO \$\$ BEGIN
                FOR g IN 1..12 LOOP
                    EXECUTE format('CREATE TABLE evicting_%s PARTITION OF evicting FOR VALUES IN (%s)', g, g);
                END LOOP;
            END \$\$" \
        -c "INSERT INTO evicting SELECT g % 12 + 1, repeat('e', 900) FROM generate_series(1, 2400) g" -c "VACUUM (FREEZE) evicting"
    # The monitor notices the tablespaces only after the first restart of the cells.
    kill -STOP "$(dead_mounts_monitor)"
    for cell in "${dead_mounts_cells[@]}"; do
        number=$((number + 1))
        dead_mounts_sql -c "CREATE TABLESPACE space_$number LOCATION '$WORK/$cell/space'" \
            -c "CREATE TABLE counters_$number (id int, value bigint, filler text) WITH (fillfactor = 40) TABLESPACE space_$number" \
            -c "INSERT INTO counters_$number SELECT g, 0, repeat('f', 500) FROM generate_series(1, 2000) g" \
            -c "INSERT INTO floors VALUES ($number, 0)" -c "CHECKPOINT"
    done
    dead_mounts_round "all cells, not yet watched" slow "${dead_mounts_cells[@]}"
    for ((round = 1; round <= rounds; round++)); do
        for cell in "${single[@]}"; do dead_mounts_round "$cell, round $round" fast "$cell"; done
        dead_mounts_round "all cells, round $round" fast "${dead_mounts_cells[@]}"
        dead_mounts_round "all cells, slow monitor, round $round" slow "${dead_mounts_cells[@]}"
    done
    check_equal "dead mounts: no session read a stale page" "$(grep -c 'stale page: ' "$WORK/mounts-postgres.log" || true)" 0
    check "dead mounts: Postgres stops" cluster_stop mounts
    for cell in "${dead_mounts_cells[@]}"; do
        CELL_PID=${dead_mounts_pid[$cell]}
        check "dead mounts: the cell $cell stops and unmounts" cell_stop "$cell"
    done
}
