# shellcheck shell=bash
# Sourced after scripts/lib.sh by tests/crash/run.sh and tests/soak/run.sh: the cluster `crash` on the cell `cell1` under
# load, kills of its processes, recovery, and the checks after recovery.
#
# The callers count kills and full disks; the load adds up its operations in $WORK/counts.

records=$WORK/records
mkdir -p "$records"

# The cluster, its logs and the records of acknowledged commits need free space on the machine's disk, which other programs
# fill too. With less than MACHINE_MIB free at any moment, a failed check says nothing about Cellar.
MACHINE_MIB=256
machine_mib() { df -BM --output=avail "$WORK" | tail -n 1 | tr -dc 0-9; }
# machine_disk_watch: records moments with too little free space in $WORK/machine-disk-full, until this script exits.
machine_disk_watch() {
    (
        trap - EXIT
        while kill -0 "$$" 2>/dev/null; do
            [ "$(machine_mib)" -ge $MACHINE_MIB ] || date '+%F %T' >>"$WORK/machine-disk-full" || true
            sleep 0.5
        done
    ) &
    remember_process $!
}
# machine_disk_was_full: succeeds if the machine's disk had too little free space at any moment.
machine_disk_was_full() { [ -e "$WORK/machine-disk-full" ] || [ "$(machine_mib)" -lt $MACHINE_MIB ]; }

# limited_disk FOLDER MIB: mounts a small file system at FOLDER. Fails where mounting is not permitted. The image is
# allocated, so that a full disk of the machine is no I/O error of the small file system.
limited_disk() {
    local folder=$1 image=$1.img
    mkdir -p "$folder"
    if is_mounted "$folder"; then return 0; fi
    [ "$(id -u)" = 0 ] || return 1
    rm -f "$image"
    fallocate -l "${2}M" "$image" || { rm -f "$image"; return 1; }
    # Without reserved blocks: the daemon runs as root.
    if ! { mkfs.ext4 -q -m 0 -E nodiscard "$image" && mount -o loop "$image" "$folder"; } 2>/dev/null; then
        rm -f "$image"
        mount -t tmpfs -o "size=${2}m" tmpfs "$folder" 2>/dev/null || return 1
    fi
    grep -qxF "$folder" "$WORK/mounts" || printf '%s\n' "$folder" >>"$WORK/mounts"
}

# crash_cluster LAYOUT SCALE ['name = value' ...]: starts cell1, which is configured, and creates the cluster with its
# tables. LAYOUT: `mount`, the data directory is on the mount; `tablespace`, only a tablespace is.
crash_cluster() {
    layout=$1
    local scale=$2
    shift 2
    [ "$layout" = mount ] && data=$WORK/cell1/pgdata || data=$WORK/pgdata
    cell_start cell1 && cluster_create crash "$data" --data-checksums || return 1
    cluster_set "$data" "shared_preload_libraries = 'cellar'" "checkpoint_timeout = 30s" "max_wal_size = 128MB" \
        "min_wal_size = 32MB" "shared_buffers = 64MB" "max_worker_processes = 16" "cellar.min_scan_size = 0" \
        "cellar.compression_naptime = 1s" "autovacuum_naptime = 2s" "$@"
    cluster_start crash "$data" || return 1
    if [ "$layout" = tablespace ]; then
        mkdir -p "$WORK/cell1/space"
        [ "$(id -u)" != 0 ] || chown "$OS_USER" "$WORK/cell1/space"
        sql crash postgres -c "CREATE TABLESPACE cell LOCATION '$WORK/cell1/space'" \
            -c "ALTER SYSTEM SET default_tablespace = 'cell'" -c "SELECT pg_reload_conf()" >/dev/null
        # The cell monitor searches for new tablespaces once a second.
        sleep 2
    fi
    "$PG_BIN/pgbench" -i -q -s "$scale" -h "$WORK/run" -p "$(cluster_port crash)" -U postgres postgres >"$WORK/pgbench.log" 2>&1 || return 1
    sql crash postgres -c "CREATE EXTENSION cellar" -c "CREATE EXTENSION amcheck" -c "CREATE EXTENSION pg_visibility" || return 1
    rm -f "$records"/*
    "$HARNESS_BIN" --dsn "$(cluster_dsn crash)" crash-setup || return 1
    sql crash postgres -c "SELECT cellar.compress_relation('pgbench_accounts', 'query low')" \
        -c "SELECT cellar.set_compression('pgbench_history', 'query high', '1 second')" >/dev/null
}

# ---------------------------------------------------------------- load

# load_start SEED VICTIM: starts a load that runs until its connections break: pgbench, and the harness's load. VICTIM is the
# one that will be killed.
load_start() {
    touch "$WORK/load-goes-on"
    (
        trap - EXIT
        # pgbench stops when a transaction fails, for example on a full disk.
        while [ -e "$WORK/load-goes-on" ]; do
            "$PG_BIN/pgbench" -n -c 3 -T 60 -h "$WORK/run" -p "$(cluster_port crash)" -U postgres postgres >>"$WORK/pgbench.log" 2>&1 || true
            sleep 0.1
        done
    ) &
    load=($!)
    remember_process $!
    local cell_dies=()
    [ "$2" != cell ] && [ "$2" != both ] || cell_dies=(--cell-dies)
    "$HARNESS_BIN" --dsn "$(cluster_dsn crash)" crash-load --records "$records" --counts "$WORK/counts" --seed "$1" \
        "${cell_dies[@]}" >"$WORK/load.log" 2>&1 &
    load+=($!)
    remember_process $!
}

# load_end DESCRIPTION: waits for the load; its scans must have returned the right rows.
load_end() {
    local pid status=0
    for pid in "${load[@]}"; do
        # A client normally exits when its server dies; a client that hangs in a dead connection is killed.
        # shellcheck disable=SC2046
        wait_gone "$pid" 20 || kill "$pid" $(ps -o pid= --ppid "$pid") 2>/dev/null || true
        wait "$pid" 2>/dev/null && status=0 || status=$?
    done
    load=()
    # The last process is the harness, which exits with 1 after a wrong result.
    if [ "$status" = 1 ]; then not_ok "$1: a session of the load found wrong data: $(tail -n 5 "$WORK/load.log")"; fi
}

# ---------------------------------------------------------------- kills and recovery

postmaster() { cat "$WORK/crash.postmaster" 2>/dev/null; }
# server_processes PATTERN: the pids of the server processes whose titles match.
server_processes() { ps -o pid=,args= --ppid "$(postmaster)" | awk -v pattern="$1" '$0 ~ pattern { print $1 }'; }
# log_count PATTERN: the number of lines in the server's log that match.
log_count() { grep -cE "$1" "$WORK/crash-postgres.log" || true; }

# kill_process PATTERN: kills a random server process. On a busy machine, the sessions of the load connect late, and a process
# may exit before its kill: tries again for 10 s while the postmaster runs.
kill_process() {
    local pids tries
    for ((tries = 0; tries < 100; tries++)); do
        mapfile -t pids < <(server_processes "$1")
        if [ ${#pids[@]} -gt 0 ] && kill -KILL "${pids[RANDOM % ${#pids[@]}]}" 2>/dev/null; then return 0; fi
        kill -0 "$(postmaster)" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

# kill_postmaster: kills the postmaster; its children exit.
kill_postmaster() {
    local pid children child
    pid=$(postmaster)
    children=$(ps -o pid= --ppid "$pid" || true)
    kill -KILL "$pid"
    wait_gone "$pid" 10 || return 1
    for child in $children; do wait_gone "$child" 60 || return 1; done
    rm -f "$WORK/crash.postmaster"
}

# crash_kill VICTIM: kill -9 of one server process (backend, checkpointer, worker), the postmaster, all of Postgres, the
# cell, or both. Fails if there is no such process.
crash_kill() {
    rm -f "$WORK/load-goes-on"
    restarts_before=$(log_count 'all server processes terminated; reinitializing')
    case $1 in
    backend) kill_process '\[local\]' ;;
    checkpointer) kill_process 'postgres: checkpointer' ;;
    worker) kill_process 'postgres: (background writer|walwriter|autovacuum|io worker|cellar)' ;;
    postmaster) kill_postmaster ;;
    postgres) cluster_kill crash ;;
    cell) cell_kill ;;
    both)
        cell_kill &
        cluster_kill crash
        wait $! || true
        ;;
    esac
}

# restarted: succeeds once the cluster has terminated all processes since the kill and accepts connections again.
restarted() {
    [ "$(log_count 'all server processes terminated; reinitializing')" -gt "$restarts_before" ] &&
        sql crash postgres -c "SELECT 1" >/dev/null 2>&1
}

# crash_recover VICTIM: ends the load, starts what was killed, and waits until the cluster has recovered.
crash_recover() {
    local tries
    case $1 in
    cell)
        if [ "$layout" = mount ]; then
            # Postgres lost its files and may exit; kill the rest.
            sleep "0.$((RANDOM % 6))"
            [ ! -e "$WORK/crash.postmaster" ] || cluster_kill crash || return 1
        fi
        # With a tablespace on the cell, Postgres and the load keep running without the cell for a moment.
        [ "$layout" = mount ] || sleep "0.$((RANDOM % 10))"
        wait_gone "$CELL_PID" 10 && cell_start cell1 || return 1
        ;;
    both) wait_gone "$CELL_PID" 10 && cell_start cell1 || return 1 ;;
    esac
    # Without a postmaster, the load's sessions are lost; start the cluster at once.
    for ((tries = 0; tries < 1200; tries++)); do
        if [ -z "$(postmaster)" ] || ! kill -0 "$(postmaster)" 2>/dev/null; then
            # A full or a missing disk can also end the postmaster.
            rm -f "$WORK/crash.postmaster"
            cluster_start crash "$data" || return 1
            break
        fi
        if restarted; then break; fi
        sleep 0.05
    done
    load_end "$2"
    [ "$tries" -lt 1200 ] && sql crash postgres -c "SELECT 1" >/dev/null
}

# ---------------------------------------------------------------- checks

# crash_verify DESCRIPTION [pg_amcheck option ...]: checks after recovery.
crash_verify() {
    local what=$1
    shift
    timeout 300 "$HARNESS_BIN" --dsn "$(cluster_dsn crash)" crash-verify --records "$records" --label "$what" >"$WORK/verify.log" 2>&1 ||
        grep -q '^not ok - ' "$WORK/verify.log" || not_ok "$what: the checks run: $(tail -n 3 "$WORK/verify.log")"
    count_lines <"$WORK/verify.log"
    check "$what: pg_amcheck finds no error" timeout 300 "$PG_BIN/pg_amcheck" -h "$WORK/run" -p "$(cluster_port crash)" -U postgres \
        -d postgres --heapallindexed "$@"
    check "$what: visibility maps agree with their tables" test "$(sql crash postgres -c "SELECT count(*) FROM pg_class c,
        LATERAL (SELECT * FROM pg_check_frozen(c.oid) UNION ALL SELECT * FROM pg_check_visible(c.oid)) wrong
        WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace" 2>&1)" = 0
    check "$what: the cell logs no panic" bash -c '! grep -n "panicked at" "$1"' bash "$WORK/cell1.log"
}

# crash_end DESCRIPTION: a clean stop, and checks of everything on disk.
crash_end() {
    check "$1: Postgres stops" cluster_stop crash
    check "$1: pg_checksums finds no wrong checksum" as_pg "$PG_BIN/pg_checksums" --check -D "$data"
    check "$1: the cell stops and unmounts" cell_stop cell1
    check "$1: cellar inspect finds no problem on the cell disks" "$CELLAR_BIN" inspect disks --config "$WORK/cell1.toml"
}
