# shellcheck shell=bash
# Sourced by run.sh. A cell refuses changes while a process that is no session has a file of the previous mount open, so the
# postmaster waits before recovery. A shutdown request ends the wait, after a crash and at server start.

startup_wait_sql() { sql waiting postgres "$@"; }
startup_wait_count() { grep -c "$1" "$WORK/waiting-postgres.log" || true; }

# startup_wait_stop SIGNAL NUMBER: waits until the postmaster has begun its wait NUMBER, and requests a shutdown.
startup_wait_stop() {
    local tries
    for ((tries = 0; tries < 600; tries++)); do
        if [ "$(startup_wait_count "LOG:  waiting until the cell at")" -ge "$2" ]; then break; fi
        sleep 0.1
    done
    check "startup wait: the postmaster waits for the cell ($1)" test "$tries" -lt 600
    check "startup wait: the server stops ($1)" cluster_stop waiting "$1"
    check_equal "startup wait: the request ended the wait ($1)" \
        "$(startup_wait_count "FATAL:  server startup was canceled by a shutdown request")" "$2"
    check_equal "startup wait: no recovery was tried ($1)" "$(startup_wait_count "WARNING:  the cell at .* refuses changes")" 0
    check "startup wait: the lock file is removed ($1)" test ! -e "$WORK/waiting-data/postmaster.pid"
}

scenario_startup_wait() {
    local holder signal number=1 space=$WORK/cell8/space
    part_end
    whole_end
    cell_configure cell8 64MiB
    cell_start cell8
    mkdir -p "$space"
    printf 'held\n' >"$WORK/cell8/held"
    [ "$(id -u)" != 0 ] || chown "$OS_USER" "$space" "$WORK/cell8/held"
    cluster_create waiting "$WORK/waiting-data"
    cluster_set "$WORK/waiting-data" "shared_preload_libraries = 'cellar'"
    cluster_start waiting "$WORK/waiting-data"
    startup_wait_sql -c "CREATE TABLESPACE space_8 LOCATION '$space'" -c "CREATE TABLE kept (id int) TABLESPACE space_8" \
        -c "INSERT INTO kept SELECT generate_series(1, 1000)" -c "SELECT pg_sleep(2)" >/dev/null
    # shellcheck disable=SC2016
    holder=$(as_pg sh -c 'sleep 600 <"$1" >/dev/null 2>&1 & echo $!' sh "$WORK/cell8/held")
    remember_process "$holder"
    sync "$WORK/cell8/held" "$WORK/cell8"
    cell_kill
    cell_start cell8
    # The cell monitor lets the server recover.
    startup_wait_stop INT $number
    for signal in TERM QUIT; do
        number=$((number + 1))
        cluster_start waiting "$WORK/waiting-data" >/dev/null 2>&1 &
        startup_wait_stop "$signal" $number
        wait $! || true
    done
    kill "$holder"
    check "startup wait: the server starts when no process uses the previous mount" cluster_start waiting "$WORK/waiting-data"
    check_equal "startup wait: the rows are kept" "$(startup_wait_sql -c "SELECT count(*), sum(id) FROM kept")" "1000|500500"
    check "startup wait: Postgres stops" cluster_stop waiting
    check "startup wait: the cell stops and unmounts" cell_stop cell8
}
