#!/usr/bin/env bash
# Smart Scan together with other features and failures: concurrent DDL and DML, a hot standby, SERIALIZABLE, damaged
# pages, a cell that dies or is stopped, sessions with files of a dead mount, invalid clients on its socket, an unsafe
# sync method, several cells, offload simulation, cursors, a transaction's own rows, statistics of scans that stop early,
# a cell run by an ordinary user, the cell's memory, and the storage index after restarts.
#
#   run.sh [--seconds N] [--compressed] [SCENARIO ...]
#
#   --seconds N     seconds of concurrent load (default 12)
#   --compressed    compress the tables at random levels, and recompress them continuously under load
#   SCENARIO        the name of a function scenario_SCENARIO; default: all, or with --compressed those that apply
#
# Every scenario also checks that its scans were Smart Scans.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

seconds=12 compressed=0 scenarios=()
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) seconds=$2; shift ;;
    --compressed) compressed=1 ;;
    -*) die "unknown option $1" ;;
    *) scenarios+=("$1") ;;
    esac
    shift
done
# The scenarios that are missing here depend on raw pages: they damage them, or count their bytes. The last three need long, and compression
# changes little for them.
[ ${#scenarios[@]} -gt 0 ] || [ $compressed = 0 ] || scenarios=(changes standby serializable stopped restart death lost_writes stale_files stale_pages${LONG:+ cells one_user memory})
[ ${#scenarios[@]} -gt 0 ] || scenarios=(changes standby sync_method serializable socket corrupt compare simulation partitions abandoned stopped cells one_user memory restart index death lost_writes stale_files stale_pages dead_mounts startup_wait)
extension_installed || die "the extension is not installed: run scripts/build.sh extension"
here=$(cd "$(dirname "$0")" && pwd)
work_begin robust
RANDOM=${SEED:-$RANDOM}
rows=40000
total=$((rows * 1000))
data=$WORK/cell1/pgdata

# ---------------------------------------------------------------- persistent sessions

# session NAME CLUSTER: starts a psql that executes the statements of `send` and `run`.
declare -A session_in session_out
session() {
    local in out
    mkfifo "$WORK/$1.in" "$WORK/$1.out"
    PGOPTIONS='-c cellar.min_scan_size=0 -c cellar.cost_factor=0' stdbuf -oL "$PG_BIN/psql" -X -q -At -v VERBOSITY=verbose \
        -h "$WORK/run" -p "$(cluster_port "$2")" -U postgres -d postgres <"$WORK/$1.in" >"$WORK/$1.out" 2>&1 &
    remember_process $!
    exec {in}>"$WORK/$1.in" {out}<"$WORK/$1.out"
    session_in[$1]=$in session_out[$1]=$out
    rm "$WORK/$1.in" "$WORK/$1.out"
}
session_end() {
    local in=${session_in[$1]} out=${session_out[$1]}
    exec {in}>&- {out}<&-
}
# send NAME STATEMENTS: sends statements without waiting for their result.
send() { printf '%s\n\\echo --answered--\n' "$2" >&"${session_in[$1]}"; }
# receive NAME [SECONDS]: prints the output of the last `send`; fails after SECONDS.
receive() {
    local line deadline=$((SECONDS + ${2:-60}))
    while IFS= read -r -t "$((deadline > SECONDS ? deadline - SECONDS : 1))" -u "${session_out[$1]}" line; do
        if [ "$line" = "--answered--" ]; then return 0; fi
        printf '%s\n' "$line"
    done
    printf 'no answer in %s s\n' "${2:-60}"
    return 1
}
run() {
    send "$1" "$2"
    receive "$1" "${3:-60}" || true
}

# check_equal DESCRIPTION FOUND EXPECTED

# right_or_error DESCRIPTION FOUND EXPECTED: accepts the expected rows or an error, but no other rows.
right_or_error() {
    local error=${2##*ERROR: }
    case $2 in
    *'ERROR: '*) ok "$1 fails with an error:${error%%$'\n'*}" ;;
    "$3" | WARNING:*$'\n'"$3") ok "$1 returns the right rows" ;;
    *) not_ok "$1 returns the right rows or an error: found \"$2\", expected \"$3\"" ;;
    esac
}

# statistic CLUSTER NAME: the value of a statistic of the server.
statistic() { sql "$1" postgres -c "SELECT value FROM cellar.sysstat WHERE name = '$2'"; }
eligible='cell physical IO bytes eligible for predicate offload'
# Eligible bytes of a compressed table are its stored bytes; only uncompressed bytes measure its size.
scanned=$eligible
[ $compressed = 0 ] || scanned='cell IO uncompressed bytes'
open_fail='cell num smart IO sessions in rdbms block IO due to open fail'
smart() { PGOPTIONS='-c cellar.min_scan_size=0 -c cellar.cost_factor=0' sql "$@"; }
off() { PGOPTIONS='-c cellar.cell_offload_processing=off' sql "$@"; }

# ---------------------------------------------------------------- compression

levels=("query low" "query high" "archive low" "archive high")
random_level() { printf '%s' "${levels[RANDOM % 4]}"; }
# compress CLUSTER TABLE ...: with --compressed, compresses each table at a random level and checks that it has units.
compress() {
    local cluster=$1 table level units
    [ $compressed = 1 ] || return 0
    shift
    for table in "$@"; do
        level=$(random_level)
        units=$(sql "$cluster" postgres -c "SELECT coalesce(sum(units) FILTER (WHERE level <> 'none'), 0) FROM cellar.compress('$table', '$level')")
        check "$table is compressed at $level" test "$units" -gt 0
    done
}
# compressing CLUSTER TABLE ...: with --compressed, a background load that recompresses and sometimes decompresses the tables.
compressing() {
    local cluster=$1 table
    [ $compressed = 1 ] || return 0
    shift
    (
        trap - EXIT
        deadline=$((SECONDS + seconds)) cycles=0
        while [ "$SECONDS" -lt "$deadline" ]; do
            for table in "$@"; do
                [ $((RANDOM % 8)) = 0 ] && level=none || level=$(random_level)
                # A compression that meets CREATE INDEX CONCURRENTLY fails with a deadlock error.
                if error=$(sql "$cluster" postgres -v VERBOSITY=sqlstate -c "SELECT cellar.compress('$table', '$level')" 2>&1 >/dev/null); then
                    cycles=$((cycles + 1))
                elif [ "$error" != "ERROR:  40P01" ]; then
                    printf '%s\n' "$error"
                    exit 1
                fi
            done
        done
        printf 'number of transactions actually processed: %s\n' "$cycles"
    ) >"$WORK/load-compressions of $cluster.log" 2>&1 &
    remember_process $!
    loads+=("$! compressions of $cluster")
}

# ---------------------------------------------------------------- clusters, one running at a time

# A cluster whose data directory is on a cell, with the accounts table.
whole_cluster() {
    if [ -e "$WORK/whole.postmaster" ]; then return; fi
    part_end
    cell_configure cell1 128MiB
    cell_start cell1
    if [ -e "$data" ]; then cluster_start whole "$data"; return; fi
    cluster_create whole "$data" --data-checksums
    cluster_set "$data" "shared_preload_libraries = 'cellar'" "cellar.min_scan_size = 0" "cellar.cost_factor = 0" \
        "shared_buffers = 32MB" "max_standby_streaming_delay = -1" "autovacuum_naptime = 5s" "max_wal_size = 1GB"
    cluster_start whole "$data"
    sql whole postgres -v rows=$rows -f "$here/load/setup.sql"
    compress whole accounts sibling
}
whole_end() {
    if [ ! -e "$WORK/whole.postmaster" ]; then return; fi
    check "Postgres stops" cluster_stop whole
    check "the cell stops and unmounts" cell_stop cell1
}

# A cluster on an ordinary file system with a tablespace on a cell.
part_cluster() {
    if [ -e "$WORK/part.postmaster" ]; then return; fi
    whole_end
    cell_configure cell2 128MiB
    cell_start cell2
    if [ -e "$WORK/part-data" ]; then cluster_start part "$WORK/part-data"; return; fi
    cluster_create part "$WORK/part-data" --data-checksums
    cluster_set "$WORK/part-data" "shared_preload_libraries = 'cellar'" "cellar.min_scan_size = 0" "cellar.cost_factor = 0" \
        "shared_buffers = 32MB" "checkpoint_timeout = 1h" "max_wal_size = 2GB" "autovacuum = off"
    cluster_start part "$WORK/part-data"
    mkdir -p "$WORK/cell2/space"
    [ "$(id -u)" != 0 ] || chown "$OS_USER" "$WORK/cell2/space"
    sql part postgres -c "CREATE EXTENSION cellar" -c "CREATE TABLESPACE cell LOCATION '$WORK/cell2/space'"
    # The cell monitor looks for new tablespaces once a second.
    sleep 2
}
part_end() {
    if [ ! -e "$WORK/part.postmaster" ]; then return; fi
    check "Postgres with a tablespace on the mount stops" cluster_stop part
    check "the cell of the tablespace stops and unmounts" cell_stop cell2
}

# ---------------------------------------------------------------- load

# load CLUSTER NAME CLIENTS SCRIPT [option ...]: runs pgbench in the background for $seconds; loads_end checks its exit status.
loads=()
load() {
    local cluster=$1 name=$2 clients=$3 script=$4
    shift 4
    "$PG_BIN/pgbench" -n -c "$clients" -j 1 -T "$seconds" -D "rows=$rows" -D "total=$total" -f "$here/load/$script" "$@" \
        -h "$WORK/run" -p "$(cluster_port "$cluster")" -U postgres postgres >"$WORK/load-$name.log" 2>&1 &
    remember_process $!
    loads+=("$! $name")
}
# loop CLUSTER NAME SCRIPT: runs a psql script repeatedly in the background for $seconds.
loop() {
    (
        trap - EXIT
        deadline=$((SECONDS + seconds)) cycles=0
        while [ "$SECONDS" -lt "$deadline" ]; do
            sql "$1" postgres -v rows=$rows -v total=$total -f "$here/load/$3" >/dev/null || exit 1
            cycles=$((cycles + 1))
        done
        printf 'number of transactions actually processed: %s\n' "$cycles"
    ) >"$WORK/load-$2.log" 2>&1 &
    remember_process $!
    loads+=("$! $2")
}
processed() { sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' "$WORK/load-$1.log"; }
loads_end() {
    local entry pid name
    for entry in "${loads[@]}"; do
        read -r pid name <<<"$entry"
        if wait "$pid" && [ "$(processed "$name")" -gt 0 ]; then
            ok "$name: $(processed "$name") transactions without an error"
        else
            not_ok "$name: all transactions succeed"
            grep -vE '^(pgbench \(|transaction type|scaling|query mode|number of)' "$WORK/load-$name.log" | tail -n 15 | sed 's/^/    /'
        fi
    done
    loads=()
}

# sums_checked DESCRIPTION CLUSTER SCANNED_BEFORE SUMS MINIMUM FAILED_OPENS_BEFORE: checks that at least MINIMUM sums ran,
# and that each was a Smart Scan of at least the packed size of the accounts.
sums_checked() {
    local seen
    seen=$(($(statistic "$2" "$scanned") - $3))
    check "$1: at least $5 sums ran ($4)" test "$4" -ge "$5"
    check "$1: all sums were Smart Scans ($((seen / 1048576)) MiB)" test "$seen" -ge "$(($4 * rows * 180))"
    check_equal "$1: no scan failed to use the cell" "$(statistic "$2" "$open_fail")" "$6"
}
number() { printf '%s' "$(($(processed "$1" || true) + 0))"; }

# ---------------------------------------------------------------- scenarios

scenario_changes() {
    local before failed
    whole_cluster
    check "changes: the load detects a wrong sum" bash -c "! '$PG_BIN/pgbench' -n -t 1 -D rows=$rows -D total=$((total + 1)) \
        -f '$here/load/sum_read_committed.sql' -h '$WORK/run' -p $(cluster_port whole) -U postgres postgres"
    before=$(statistic whole "$scanned")
    failed=$(statistic whole "$open_fail")
    compressing whole accounts sibling
    load whole "transfers" 2 transfer.sql
    load whole "subtransactions" 1 subtransactions.sql -R 10
    load whole "sums, READ COMMITTED" 2 sum_read_committed.sql
    load whole "sums, READ COMMITTED, prepared" 1 sum_read_committed.sql -M prepared
    load whole "sums, REPEATABLE READ" 2 sum_repeatable_read.sql
    load whole "sums of the sibling" 1 sum_sibling.sql -R 40
    load whole "TRUNCATE and INSERT of the sibling" 1 truncate_sibling.sql -R 5
    load whole "VACUUM" 1 vacuum.sql
    loop whole "DDL" ddl.sql
    loads_end
    sums_checked "changes" whole "$before" "$(($(number "sums, READ COMMITTED") + \
        $(number "sums, READ COMMITTED, prepared") + 2 * $(number "sums, REPEATABLE READ")))" $((5 * seconds)) "$failed"
    check_equal "changes: afterwards the sums are the same with Smart Scan on and off" \
        "$(smart whole postgres -c "SELECT sum(balance), count(*), sum(balance * id) FROM accounts WHERE filler <> ''")" \
        "$(off whole postgres -c "SELECT sum(balance), count(*), sum(balance * id) FROM accounts WHERE filler <> ''")"
}

scenario_standby() {
    local copy=$WORK/cell1/standby before failed primary_before primary_failed tries
    whole_cluster
    [ "$(id -u)" != 0 ] || install -d -m 700 -o "$OS_USER" "$copy"
    as_pg "$PG_BIN/pg_basebackup" -D "$copy" -R -X stream -c fast -h "$WORK/run" -p "$(cluster_port whole)" -U postgres
    cluster_set "$copy" "port = $(cluster_port standby)"
    cluster_start standby "$copy"
    check_equal "standby: it is in recovery" "$(sql standby postgres -c "SELECT pg_is_in_recovery()")" t
    before=$(statistic standby "$scanned")
    failed=$(statistic standby "$open_fail")
    primary_before=$(statistic whole "$scanned")
    primary_failed=$(statistic whole "$open_fail")
    compressing whole accounts
    load whole "transfers on the primary" 2 transfer.sql -R 300
    load whole "subtransactions on the primary" 1 subtransactions.sql -R 10
    load whole "VACUUM on the primary" 1 vacuum.sql
    load whole "sums on the primary" 1 sum_read_committed.sql
    load standby "sums on the standby" 2 sum_read_committed.sql
    load standby "sums on the standby, REPEATABLE READ" 1 sum_repeatable_read.sql
    loads_end
    sums_checked "standby" standby "$before" "$(($(number "sums on the standby") + \
        2 * $(number "sums on the standby, REPEATABLE READ")))" $((2 * seconds)) "$failed"
    sums_checked "primary" whole "$primary_before" "$(number "sums on the primary")" $((seconds)) "$primary_failed"

    local position
    position=$(sql whole postgres -c "SELECT pg_current_wal_lsn()")
    for ((tries = 0; tries < 300; tries++)); do
        [ "$(sql standby postgres -c "SELECT pg_last_wal_replay_lsn() >= '$position'")" = t ] && break
        sleep 0.1
    done
    local query="SELECT sum(balance), count(*), sum(balance * id) FROM accounts WHERE filler <> ''" expected
    expected=$(off whole postgres -c "$query")
    check_equal "standby: it has the same rows as the primary" "$(smart standby postgres -c "$query")" "$expected"
    sql standby postgres -c "SELECT pg_promote()" >/dev/null
    before=$(statistic standby "$eligible")
    sql standby postgres -c "UPDATE accounts SET balance = balance + CASE id % 2 WHEN 0 THEN 1 ELSE -1 END WHERE id <= 1000"
    check_equal "standby: after promotion and writes the sums are the same with Smart Scan on and off" "$(smart standby postgres -c "$query")" \
        "$(off standby postgres -c "$query")"
    check "standby: the query after promotion was a Smart Scan" test "$(statistic standby "$eligible")" -gt "$before"
    check_equal "standby: the primary is unchanged" "$(smart whole postgres -c "$query")" "$expected"
    check "standby: Postgres stops" cluster_stop standby
}

# refused CLUSTER FOLDER: succeeds if the cluster does not start because of recovery_init_sync_method.
refused() {
    local log=$WORK/$1-postgres.log from
    from=$(wc -l <"$log")
    ! cluster_start "$1" "$2" && rm -f "$WORK/$1.postmaster" &&
        tail -n "+$((from + 1))" "$log" | grep -q 'FATAL: .*"recovery_init_sync_method" must not be "syncfs"'
}
# warned LOG LINES: waits for a warning about recovery_init_sync_method after the first LINES of the log.
warned() {
    local tries
    for ((tries = 0; tries < 100; tries++)); do
        if tail -n "+$(($2 + 1))" "$1" | grep -q 'WARNING: .*"recovery_init_sync_method" must not be "syncfs"'; then return 0; fi
        sleep 0.1
    done
    return 1
}

# syncfs() on a FUSE mount returns success without reaching the cell, so recovery must not rely on it.
scenario_sync_method() {
    local lines victim plain=$WORK/plain-data
    whole_cluster
    lines=$(wc -l <"$WORK/whole-postgres.log")
    cluster_set "$data" "recovery_init_sync_method = syncfs"
    sql whole postgres -c "SELECT pg_reload_conf()" >/dev/null
    check "sync method: a reload with syncfs logs a warning" warned "$WORK/whole-postgres.log" "$lines"
    # The postmaster restarts all processes after a crash, and recovers.
    victim=$(sql whole postgres -c "SELECT pid FROM pg_stat_activity WHERE backend_type = 'background writer'")
    kill -KILL "$victim"
    check "sync method: with syncfs the server exits after a crash" wait_gone "$(cat "$WORK/whole.postmaster")" 60
    check "sync method: the log of the crash contains the reason" grep -q 'FATAL: .*"recovery_init_sync_method" must not be "syncfs"' "$WORK/whole-postgres.log"
    check "sync method: with syncfs a cluster on the mount does not start" refused whole "$data"
    cluster_set "$data" "recovery_init_sync_method = fsync"
    check "sync method: with fsync it recovers and starts" cluster_start whole "$data"
    check_equal "sync method: the rows are unchanged" "$(sql whole postgres -c "SELECT count(*) FROM accounts")" "$rows"

    cluster_create plain "$plain"
    cluster_set "$plain" "shared_preload_libraries = 'cellar'" "recovery_init_sync_method = syncfs"
    check "sync method: with syncfs a cluster on another file system starts" cluster_start plain "$plain"
    lines=$(wc -l <"$WORK/plain-postgres.log")
    [ "$(id -u)" != 0 ] || install -d -m 700 -o "$OS_USER" "$WORK/cell1/space"
    mkdir -p "$WORK/cell1/space"
    sql plain postgres -c "CREATE TABLESPACE cell LOCATION '$WORK/cell1/space'"
    check "sync method: a new tablespace on the mount logs a warning" warned "$WORK/plain-postgres.log" "$lines"
    check "sync method: the cluster with the tablespace stops" cluster_stop plain
    check "sync method: with syncfs it does not start" refused plain "$plain"
    cluster_set "$plain" "recovery_init_sync_method = fsync"
    check "sync method: with fsync it starts" cluster_start plain "$plain"
    check "sync method: it stops" cluster_stop plain
    as_pg mv "$plain/pg_wal" "$WORK/cell1/wal"
    as_pg ln -s "$WORK/cell1/wal" "$plain/pg_wal"
    sed -i "s/^recovery_init_sync_method.*//" "$plain/cellar.conf"
    rm -f "$plain"/pg_tblspc/*
    cluster_set "$plain" "recovery_init_sync_method = syncfs"
    check "sync method: with syncfs and only pg_wal on the mount it does not start" refused plain "$plain"
    rm -rf "$WORK/cell1/wal" "$WORK/cell1/space" "$plain"
}

# skew LEVEL direct|prepared: runs two transactions that each read what the other writes; prints the errors of their commits.
skew() {
    local one two query="SELECT count(*) FROM doctors WHERE on_call AND filler <> ''"
    sql whole postgres -c "UPDATE doctors SET on_call = true"
    session one whole
    session two whole
    for one in one two; do
        if [ "$2" = prepared ]; then
            run $one "SET plan_cache_mode = force_generic_plan; PREPARE q AS $query; EXECUTE q;" >/dev/null
            run $one "BEGIN ISOLATION LEVEL $1; EXECUTE q;" >/dev/null
        else
            run $one "BEGIN ISOLATION LEVEL $1; $query;" >/dev/null
        fi
    done
    run one "UPDATE doctors SET on_call = false WHERE id = 1; COMMIT;"
    two=$(run two "UPDATE doctors SET on_call = false WHERE id = 2; COMMIT;")
    printf '%s\n' "$two"
    session_end one
    session_end two
}
scenario_serializable() {
    local query="SELECT count(*) FROM doctors WHERE on_call AND filler <> ''" before
    whole_cluster
    sql whole postgres -c "CREATE TABLE doctors (id int PRIMARY KEY, on_call bool, filler text)" \
        -c "INSERT INTO doctors SELECT g, true, repeat('d', 500) FROM generate_series(1, 5000) g" -c "VACUUM ANALYZE doctors"
    compress whole doctors
    check_matches "serializable: READ COMMITTED plans a Smart Scan" "$(smart whole postgres -c "EXPLAIN $query")" "Smart Scan"
    if smart whole postgres -c "BEGIN ISOLATION LEVEL SERIALIZABLE" -c "EXPLAIN $query" | grep -q "Smart Scan"; then
        not_ok "serializable: SERIALIZABLE plans no Smart Scan"
    else
        ok "serializable: SERIALIZABLE plans no Smart Scan"
    fi
    check_equal "serializable: REPEATABLE READ allows the write skew" "$(skew "REPEATABLE READ" direct)" ""
    check_matches "serializable: one transaction of a write-skew pair fails" "$(skew SERIALIZABLE direct)" "40001"
    before=$(statistic whole "$eligible")
    check_matches "serializable: one fails also with plans prepared in other transactions" "$(skew SERIALIZABLE prepared)" "40001"
    check "serializable: the prepared plans were Smart Scans" test "$(statistic whole "$eligible")" -gt "$before"
}

# speak USER CASE: prints the frames that a client of the cell's socket receives.
speak() {
    local as=(as_pg)
    [ "$1" != nobody ] || as=(setpriv --reuid nobody --regid "$(id -g nobody)" --clear-groups --)
    "${as[@]}" perl "$WORK/socket.pl" "$WORK/run/cell1.sock" "$protocol" "$2"
}
scenario_socket() {
    local case before expected protocol query="SELECT sum(balance) FROM accounts WHERE filler <> ''"
    protocol=$(sed -n 's/^pub const PROTOCOL_VERSION: u16 = \([0-9]*\);/\1/p' "$ROOT/crates/format/src/wire/frame.rs")
    if ! perl -MIO::Socket::UNIX -e 1 2>/dev/null; then skip "socket: perl is not installed"; return; fi
    whole_cluster
    before=$(smart whole postgres -c "$query")
    cp "$here/socket.pl" "$WORK/"
    check_equal "socket: the cluster's user can connect" "$(speak user hello)" "Welcome closed"
    if [ "$(id -u)" = 0 ] && id nobody >/dev/null 2>&1; then
        check_matches "socket: the file mode keeps another user from connecting" "$(speak nobody hello)" "no connection: Permission denied"
        chmod 666 "$WORK/run/cell1.sock"
        check_equal "socket: the cell refuses another user when the file mode allows the connection" "$(speak nobody hello)" "closed"
        chmod 600 "$WORK/run/cell1.sock"
        # The lock files on the cell disks are readable by root only.
        cp "$CELLAR_BIN" "$WORK/cellar"
        check "socket: the cluster's user can inspect the running cell" as_pg "$WORK/cellar" inspect disks --config "$WORK/cell1.toml"
    else
        skip "socket: the check with another user needs root and the user nobody"
    fi
    for case in garbage version length kind; do
        check_equal "socket: the cell replies with an error (case $case)" "$(speak user "$case")" "Error closed"
    done
    for case in request early; do
        check_equal "socket: the cell replies with an error (case $case)" "$(speak user "$case")" "Welcome Error closed"
    done
    check_equal "socket: an incomplete frame closes the connection" "$(speak user cut)" "Welcome closed"
    # The session has opened the table's file before the file belongs to root: PostgreSQL can read it, the cell must not.
    local file table="SELECT count(*), sum(id) FROM forbidden WHERE note <> ''"
    if [ "$(id -u)" = 0 ]; then
        sql whole postgres -c "CREATE TABLE forbidden AS SELECT g AS id, repeat('f', 300) AS note FROM generate_series(1, 20000) g" -c "VACUUM (FREEZE, ANALYZE) forbidden"
        file=$data/$(sql whole postgres -c "SELECT pg_relation_filepath('forbidden')")
        session reader whole
        run reader "SELECT set_config('cellar.cell_offload_processing', 'off', false) \\g /dev/null
            $table; RESET cellar.cell_offload_processing; $table;" >/dev/null
        chown root "$file"
        case=$(run reader "$table;")
        check_matches "socket: the cell does not scan a file that the server's user may not read" "$case" \
            'WARNING: +42501: .*permission denied for a file on the cell.*User id [0-9]+ is not permitted to read [^ ]*\.'
        check_equal "socket: the scan returns the right rows without the cell" "${case##*$'\n'}" "20000|200010000"
        check_matches "socket: the cell does not report on compression units of that file" \
            "$(run reader "SELECT * FROM cellar.compression('forbidden');")" 'ERROR: +42501: permission denied for a file on the cell'
        case=$(as_pg "$CELLAR_BIN" inspect file "$file" --config "$WORK/cell1.toml" 2>&1 || true)
        check_matches "socket: cellar inspect does not report on that file" "$case" 'permission denied for a file on the cell: user id [0-9]+ is not permitted to read'
        chown "$OS_USER" "$file"
        check_matches "socket: cellar inspect reports on a file of its user" \
            "$(as_pg "$CELLAR_BIN" inspect file "$file" --config "$WORK/cell1.toml" 2>&1 || true)" 'bytes'
        expected=$(statistic whole "$eligible")
        check_equal "socket: the scan returns the right rows with the cell" "$(smart whole postgres -c "$table")" "20000|200010000"
        check "socket: that scan was a Smart Scan" test "$(statistic whole "$eligible")" -gt "$expected"
        session_end reader
    fi
    expected=$(statistic whole "$eligible")
    check_equal "socket: the cell still answers queries" "$(smart whole postgres -c "$query")" "$before"
    check "socket: that query was a Smart Scan" test "$(statistic whole "$eligible")" -gt "$expected"
}

# flip INODE OFFSET: inverts one byte of a file of cell1, in the backing file on the cell disk that stores it.
flip() {
    local disk backing byte found=0
    for disk in "$WORK"/cell1-disk*; do
        backing=$(printf '%s/data/%02x/%016x' "$disk" "$(($1 & 255))" "$1")
        [ -e "$backing" ] || continue
        # The backing file has a hole for allocation units that are on another disk.
        [ "$(od -An -tx1 -j "$(($2 / 8192 * 8192))" -N 8192 "$backing" | tr -d ' 0\n*' | wc -c)" -gt 0 ] || continue
        byte=$(od -An -tu1 -j "$2" -N 1 "$backing")
        printf '%b' "\\0$(printf '%03o' "$((byte ^ 255))")" | dd of="$backing" bs=1 seek="$2" conv=notrunc status=none
        found=$((found + 1))
    done
    [ "$found" = 1 ] || die "byte $2 of inode $1 was found on $found disks"
}
# error_of CLUSTER off|on STATEMENT: prints rows and errors, without lines that differ between runs.
error_of() {
    PGOPTIONS="-c cellar.cell_offload_processing=$2 -c max_parallel_workers_per_gather=0" \
        sql "$1" postgres -v VERBOSITY=verbose -c "$3" 2>&1 | grep -vE '^(LOCATION|CONTEXT|WARNING)' || true
}
scenario_corrupt() {
    local table query before on off sound=() inode=()
    whole_cluster
    for table in damaged_row damaged_header damaged_lines sound; do
        sql whole postgres -c "CREATE TABLE $table AS SELECT g AS id, g % 10 AS grp, repeat(chr(97 + g % 26), 100) AS note FROM generate_series(1, 40000) g" \
            -c "VACUUM (FREEZE, ANALYZE) $table"
    done
    sql whole postgres -c "CHECKPOINT"
    for table in damaged_row damaged_header damaged_lines; do
        inode+=("$(as_pg stat -c %i "$data/$(sql whole postgres -c "SELECT pg_relation_filepath('$table')")")")
    done
    query="SELECT count(*), sum(id) FROM sound WHERE grp = 3"
    sound=("$(off whole postgres -c "$query")")
    check "corrupt: Postgres stops" cluster_stop whole
    check "corrupt: the cell stops and unmounts" cell_stop cell1
    flip "${inode[0]}" $((5 * 8192 + 8100)) # in a row
    flip "${inode[1]}" $((300 * 8192 + 14)) # pd_upper
    flip "${inode[2]}" $((90 * 8192 + 24)) # the first line pointer
    cell_start cell1
    cluster_start whole "$data"

    for table in damaged_row:5 damaged_header:300 damaged_lines:90; do
        for query in "count(*) FROM TABLE" "sum(id) FROM TABLE WHERE grp = 3" "count(note) FROM TABLE WHERE note LIKE '%z'" "1 FROM TABLE WHERE id = -1"; do
            query="SELECT ${query/TABLE/${table%:*}}"
            check_matches "corrupt: the plan is a Smart Scan: $query" "$(smart whole postgres -c "EXPLAIN $query")" "Smart Scan"
            off=$(error_of whole off "$query")
            on=$(error_of whole on "$query")
            check_matches "corrupt: Smart Scan reports the damaged block: $query" "$on" "ERROR: +XX001: invalid page in block ${table#*:} of relation"
            check_equal "corrupt: the error is the same with Smart Scan off: $query" "$off" "$on"
        done
    done
    before=$(statistic whole "$eligible")
    check_equal "corrupt: an undamaged table returns the right rows" "$(smart whole postgres -c "SELECT count(*), sum(id) FROM sound WHERE grp = 3")" "${sound[0]}"
    check "corrupt: that query was a Smart Scan" test "$(statistic whole "$eligible")" -gt "$before"
    query="SELECT count(*), sum(id), max(note) FROM damaged_row WHERE note > 'a'"
    check_equal "corrupt: with ignore_checksum_failure the rows are the same with Smart Scan on and off" \
        "$(error_of whole on "SET ignore_checksum_failure = on; $query")" "$(error_of whole off "SET ignore_checksum_failure = on; $query")"
}

scenario_compare() {
    local mode
    part_cluster
    for mode in off on; do
        sql part postgres -c "CREATE DATABASE compare_$mode"
        sql part "compare_$mode" -v space=cell -f "$here/compare/setup.sql"
        if sql part "compare_$mode" -v space=cell -v mode=$mode -f "$here/compare/run.sql" >"$WORK/compare-$mode.log" 2>&1; then
            ok "compare: the script runs with Smart Scan $mode"
        else
            not_ok "compare: the script runs with Smart Scan $mode"
            tail -n 5 "$WORK/compare-$mode.log" | sed 's/^/    /'
        fi
        check "compare: with Smart Scan $mode all rows came from the expected source" bash -c "! grep -B 12 WRONG '$WORK/compare-$mode.log'"
    done
    check "compare: the output is the same with Smart Scan on and off" diff "$WORK/compare-off.log" "$WORK/compare-on.log"
    check "compare: the script checked the source of rows at least 14 times" test "$(grep -c 'as expected$' "$WORK/compare-on.log")" -ge 14
}

simulated() {
    PGOPTIONS="-c cellar.simulate_offload=$1" sql part postgres -c "$2" \
        -c "SELECT name || '=' || value FROM cellar.mystat WHERE name LIKE 'cell simulated%' OR name = '$eligible' ORDER BY name"
}
scenario_simulation() {
    local query="SELECT count(*), sum(id) FROM nowhere WHERE grp = 3 AND note LIKE '%7%'" on off bytes returned
    part_cluster
    sql part postgres -c "CREATE TABLE nowhere TABLESPACE pg_default AS SELECT g AS id, g % 10 AS grp, 'note ' || g AS note FROM generate_series(1, 200000) g" \
        -c "VACUUM ANALYZE nowhere"
    bytes=$(sql part postgres -c "SELECT pg_relation_size('nowhere')")
    on=$(simulated on "$query")
    off=$(simulated off "$query")
    check_equal "simulation: the query returns the same rows" "${on%%$'\n'*}" "${off%%$'\n'*}"
    check_matches "simulation: the whole table counts as eligible" "$on" "cell simulated physical IO bytes eligible for predicate offload=$bytes"
    returned=$(sed -n 's/^cell simulated physical IO bytes returned.*=//p' <<<"$on")
    check "simulation: less than half of the table counts as returned ($returned bytes)" test "$returned" -gt 0 -a "$returned" -lt "$((bytes / 2))"
    check_matches "simulation: no cell counts eligible bytes" "$on" "$eligible=0"
    check_matches "simulation: nothing is counted while it is off" "$off" "cell simulated physical IO bytes eligible for predicate offload=0"
}

# big_table: creates a table that is larger than the buffers of a connection, and writes its dirty buffers. For a table with an index, the
# planner estimates which pages are in memory.
big='SELECT count(*), sum(id), sum(length(note)) FROM big WHERE grp < 9'
big_table() {
    part_cluster
    if [ -n "$(sql part postgres -c "SELECT to_regclass('big')")" ]; then return; fi
    sql part postgres -c "CREATE TABLE big TABLESPACE cell AS SELECT g AS id, g % 10 AS grp, repeat('b', 300) AS note FROM generate_series(1, 120000) g" \
        -c "CREATE INDEX ON big (id)" -c "VACUUM (FREEZE, ANALYZE) big" -c "CHECKPOINT"
    compress part big
}
# A query over many partitions searches the shared buffers once, sees every change before its snapshot, and uses few
# connections. A partition that is pruned while the query runs is not written.
scenario_partitions() {
    local count=400 ko='enq: KO - fast object checkpoint' query='SELECT count(*), sum(v) FROM parts WHERE v >= 0'
    part_cluster
    sql part postgres -c "DROP TABLE IF EXISTS parts" \
        -c "CREATE TABLE parts (id int, v int) PARTITION BY RANGE (id) TABLESPACE cell"
    sql part postgres <<<"SELECT format('CREATE TABLE part%s PARTITION OF parts FOR VALUES FROM (%s) TO (%s) TABLESPACE cell', i, i * 50, i * 50 + 50) FROM generate_series(0, $count - 1) i \\gexec"
    sql part postgres -c "INSERT INTO parts SELECT g, 1 FROM generate_series(0, $count * 50 - 1) g" -c "ANALYZE parts" -c "CHECKPOINT"
    session reader part
    session writer part
    # waits: the object checkpoints of the reader's session so far.
    waits() { run reader "SELECT coalesce(sum(total_waits), 0) FROM cellar.session_event WHERE event = '$ko' AND pid = pg_backend_pid();"; }
    check_equal "partitions: each one is scanned by a Smart Scan" "$(run reader "EXPLAIN $query;" | grep -c '(Smart Scan) on')" $count
    local before
    before=$(waits)
    check_equal "partitions: $count Smart Scans in one query" "$(run reader "$query;")" "$((count * 50))|$((count * 50))"
    check_equal "partitions: one search for dirty buffers" "$(($(waits) - before))" 1
    run writer "UPDATE parts SET v = 2 WHERE id % 50 = 7;" >/dev/null
    check_equal "partitions: committed changes of all partitions are seen" "$(run reader "$query;")" "$((count * 50))|$((count * 51))"
    run reader "BEGIN; UPDATE parts SET v = 3 WHERE id % 50 = 7;" >/dev/null
    check_equal "partitions: own changes are seen" "$(run reader "$query;")" "$((count * 50))|$((count * 52))"
    run reader "ROLLBACK;" >/dev/null
    # Changes of a running transaction, and changes after a cursor's snapshot, are not seen.
    run writer "BEGIN; UPDATE parts SET v = 100 WHERE id % 50 = 8;" >/dev/null
    run reader "BEGIN; DECLARE c CURSOR FOR $query;" >/dev/null
    run writer "COMMIT;" >/dev/null
    check_equal "partitions: a cursor has the snapshot of its declaration" "$(run reader "FETCH c;")" "$((count * 50))|$((count * 51))"
    run reader "COMMIT;" >/dev/null
    check_equal "partitions: a later query sees the changes" "$(run reader "$query;")" "$((count * 50))|$((count * 150))"
    # A function of the query changes the table: its own queries see the change, the calling query does not.
    run reader "CREATE FUNCTION bump() RETURNS bigint LANGUAGE plpgsql AS 'DECLARE n bigint; BEGIN UPDATE parts SET v = v + 1 WHERE id = 399 * 50; SELECT sum(v) INTO n FROM parts WHERE v >= 0; RETURN n; END';" >/dev/null
    check_equal "partitions: a query that changes a partition while it runs" \
        "$(run reader "SELECT (SELECT bump()), count(*), sum(v) FROM parts WHERE v >= 0;")" "$((count * 150 + 1))|$((count * 50))|$((count * 150))"
    # Pruned while the query runs: only one partition is scanned and written.
    run writer "UPDATE parts SET v = v;" >/dev/null
    before=$(waits)
    check_equal "partitions: a partition chosen while the query runs" \
        "$(run reader "SELECT count(*) FROM parts WHERE v >= 0 AND id >= (SELECT 50) AND id < (SELECT 100);")" 50
    check_equal "partitions: only that partition is written" "$(($(waits) - before))" 1
    run reader "DROP FUNCTION bump();" >/dev/null
    session_end reader
    session_end writer
    sql part postgres -c "DROP TABLE parts"
}

# A scan that stops early counts only the part that it scanned.
scenario_abandoned() {
    local size counted passthru='cell num smart IO sessions using passthru mode due to cellsrv'
    big_table
    size=$(sql part postgres -c "SELECT pg_relation_size('big')")
    # counted_by NAME STATEMENTS: the value of a statistic in a new session that has executed the statements.
    counted_by() {
        session reader part
        run reader "$2" >"$WORK/abandoned.log"
        run reader "SELECT value FROM cellar.mystat WHERE name = '$1';"
        session_end reader
    }
    check_equal "abandoned: a complete scan counts the whole table" "$(counted_by "$eligible" "$big;")" "$size"
    for counted in "SELECT * FROM big WHERE grp < 9 LIMIT 10;" \
        "BEGIN; DECLARE c CURSOR FOR SELECT * FROM big WHERE grp < 9; FETCH 10 FROM c; COMMIT;" \
        "SELECT sum(1 / (id - 1000)) FROM big WHERE note <> '';"; do
        check_matches "abandoned: a scan that stops early counts a part: ${counted:0:33}…" "$(counted_by "$eligible" "$counted")" '^[1-9][0-9]*$'
        check "abandoned: it counts less than half of the table: ${counted:0:33}…" test "$(counted_by "$eligible" "$counted")" -lt $((size / 2))
    done
    check_matches "abandoned: EXPLAIN (ANALYZE) shows the part" "$(smart part postgres -c "EXPLAIN ANALYZE SELECT * FROM big WHERE grp < 9 LIMIT 10")" \
        'Cell IO: eligible=[1-9][0-9]*kB returned=[1-9]'
    check_equal "abandoned: no session used passthrough" "$(counted_by "$passthru" "$big;")" 0
    check_equal "abandoned: a scan with passthrough counts one session" \
        "$(counted_by "$passthru" "BEGIN; UPDATE big SET note = 'x' WHERE id % 1000 = 0; $big; ROLLBACK;")" 1
}

# A stopped daemon: queries wait but can be canceled; a backend that cannot connect scans without the cell.
scenario_stopped() {
    local expected pid answer started reason in out crowd
    big_table
    expected=$(off part postgres -c "$big")
    session reader part
    check_equal "stopped: the query returns the right rows before the stop" "$(run reader "$big;")" "$expected"
    pid=$(run reader "SELECT pg_backend_pid();")
    kill -STOP "$CELL_PID"
    started=$SECONDS
    check_matches "stopped: statement_timeout cancels a query" "$(run reader "SET statement_timeout = '1s'; $big;" 30)" 'ERROR: +57014'
    check_matches "stopped: statement_timeout cancels the next query, which has to connect" "$(run reader "$big;" 30)" 'ERROR: +57014'
    send reader "RESET statement_timeout; $big;"
    sleep 1
    check_equal "stopped: a query waits for the cell" \
        "$(sql part postgres -c "SELECT state FROM pg_stat_activity WHERE pid = $pid")" active
    sql part postgres -c "SELECT pg_cancel_backend($pid)" >/dev/null
    answer=$(receive reader 30) || true
    check_matches "stopped: canceling ends the waiting query" "$answer" 'ERROR: +57014'
    check "stopped: the cancellations took at most 15 s ($((SECONDS - started)) s)" test "$((SECONDS - started))" -le 15

    if reason=$(perl -MSocket -e 1 2>&1); then
        mkfifo "$WORK/crowd.in" "$WORK/crowd.out"
        perl "$here/crowd.pl" "$WORK/run/cell2.sock" <"$WORK/crowd.in" >"$WORK/crowd.out" 2>&1 &
        crowd=$!
        remember_process $crowd
        exec {in}>"$WORK/crowd.in" {out}<"$WORK/crowd.out"
        IFS= read -r -t 30 -u "$out" reason || true
        check_matches "stopped: the connection queue of the cell is full" "$reason" '^[1-9][0-9]*$'
        check_matches "stopped: statement_timeout cancels a query that cannot connect" \
            "$(run reader "SET statement_timeout = '500ms'; $big;" 30)" 'ERROR: +57014'
        send reader "RESET statement_timeout; $big;"
        answer=$(receive reader 6) || true
        check_matches "stopped: a query that cannot connect scans without the cell" "$answer" 'WARNING: +08001: could not use the cell'
        kill -CONT "$CELL_PID"
        # The query also had to wait for the file service, unless the kernel had cached the whole file.
        [[ $answer != *"no answer in"* ]] || answer=$(receive reader)
        check_equal "stopped: the query without the cell returns the right rows" "${answer##*$'\n'}" "$expected"
        exec {in}>&- {out}<&-
        wait_gone "$crowd" 10
    else
        skip "stopped: filling the connection queue needs perl: $reason"
        kill -CONT "$CELL_PID"
    fi
    check_equal "stopped: after the cell continues, the session gets the right rows" "$(run reader "$big;")" "$expected"
    check_equal "stopped: after the cell continues, other sessions get the right rows" "$(smart part postgres -c "$big")" "$expected"
    session_end reader
}

# Two cells serve one cluster.
scenario_cells() {
    local first expected query before signal
    big_table
    first=$CELL_PID
    cell_configure cell3 128MiB
    cell_start cell3
    mkdir -p "$WORK/cell3/space"
    [ "$(id -u)" != 0 ] || chown "$OS_USER" "$WORK/cell3/space"
    sql part postgres -c "CREATE TABLESPACE third LOCATION '$WORK/cell3/space'"
    check_equal "cells: cellar.cells shows both cells" "$(sql part postgres -c "SELECT regexp_replace(socket_path, '.*/', ''), relations FROM cellar.cells() ORDER BY 1")" \
        $'cell2.sock|1\ncell3.sock|0'
    sql part postgres -c "CREATE TABLE third TABLESPACE third AS SELECT id, grp, repeat('c', 200) AS note FROM big WHERE id % 2 = 0" \
        -c "CREATE TABLE split (id int, grp int, note text) PARTITION BY LIST (grp)" \
        -c "CREATE TABLE split_2 PARTITION OF split FOR VALUES IN (0, 1, 2, 3, 4) TABLESPACE cell" \
        -c "CREATE TABLE split_3 PARTITION OF split DEFAULT TABLESPACE third" -c "INSERT INTO split SELECT * FROM big" \
        -c "VACUUM (FREEZE, ANALYZE) third, split"
    compress part third split
    check_equal "cells: cellar.cells shows the tables of each cell" "$(sql part postgres -c "SELECT regexp_replace(socket_path, '.*/', ''), relations, bytes > 0 FROM cellar.cells() ORDER BY 1")" \
        $'cell2.sock|2|t\ncell3.sock|2|t'
    for query in "SELECT count(*), sum(b.id), sum(length(t.note)) FROM big b JOIN third t USING (id) WHERE b.grp < 9 AND t.grp > 2" \
        "SELECT count(*), sum(id), sum(length(note)) FROM split WHERE note LIKE '%b%'"; do
        before=$(statistic part "$scanned")
        expected=$(off part postgres -c "$query")
        check_equal "cells: a query over both cells returns the right rows" "$(smart part postgres -c "$query")" "$expected"
        check "cells: the query scanned on both cells" test $(($(statistic part "$scanned") - before)) -ge \
            "$(sql part postgres -c "SELECT min(pg_relation_size(c)) FROM unnest('{third,split_2,split_3}'::regclass[]) c")"
    done
    check_equal "cells: both file services count I/O" \
        "$(sql part postgres -c "SELECT count(DISTINCT cell) FROM cellar.file_io WHERE operations > 0")" 2
    for signal in TERM KILL; do
        kill -$signal "$CELL_PID"
        wait_gone "$CELL_PID" 30
        check_equal "cells: one cell serves while the other is down" "$(smart part postgres -c "$big" 2>&1)" "$(off part postgres -c "$big")"
        for query in "SELECT count(*) FROM cellar.cells()" "SELECT count(DISTINCT cell) FROM cellar.file_io"; do
            check_matches "cells: after SIG$signal, a warning names the tablespace: $query" "$(sql part postgres -c "$query" 2>&1)" \
                "could not access tablespace \"third\".*The location \"$WORK/cell3/space\" cannot be accessed: .*"$'\n1$'
        done
        query="SELECT count(*), sum(id), sum(length(note)) FROM split WHERE note LIKE '%b%'"
        cell_back cell3
        check_equal "cells: the query returns the right rows after the cell restarts" "$(smart part postgres -c "$query")" "$expected"
    done
    sql part postgres -c "DROP TABLE third, split" -c "DROP TABLESPACE third"
    check "cells: the second cell stops and unmounts" cell_stop cell3
    CELL_PID=$first
}

# One ordinary user runs cell, initdb and Postgres, and mounts through fusermount3.
scenario_one_user() {
    if [ "$(id -u)" = 0 ]; then one_user_from_root; else one_user; fi
}

# Run by root, the scenario executes a copy of this script as the cluster's user, in a mount namespace in which that user
# can open /dev/fuse.
one_user_from_root() {
    local tree=$WORK/one-user child
    if ! [ -u "$(command -v fusermount3)" ]; then skip "one user: fusermount3 is not installed setuid root"; return; fi
    if ! unshare --mount true 2>/dev/null; then skip "one user: mount namespaces are not available"; return; fi
    mkdir -p "$tree/scripts" "$tree/tests/robust"
    cp "$ROOT"/scripts/*.sh "$tree/scripts/"
    cp "$here"/*.sh "$tree/tests/robust/"
    cp "$CELLAR_BIN" "$tree/cellar"
    chown -R "$OS_USER" "$tree"
    # shellcheck disable=SC2016
    unshare --mount bash -c '
        mkdir "$1/dev" && mount -t tmpfs -o mode=755 cellar-test "$1/dev" || exit 77
        mknod -m 666 "$1/dev/fuse" c 10 229 && mount --bind "$1/dev/fuse" /dev/fuse || exit 77
        exec setpriv --reuid "$2" --regid "$(id -g "$2")" --init-groups -- env -u CELLAR_RESULTS HOME=/tmp \
            CELLAR_BIN="$1/cellar" CELLAR_WORK_PARENT="$1" CELLAR_LOG_DIR="$1/logs" PATH="$PATH" "$1/tests/robust/run.sh" $3 one_user' \
        bash "$tree" "$OS_USER" "$([ $compressed = 0 ] || printf %s --compressed)" >"$WORK/one-user.log" 2>&1 </dev/null &
    child=$!
    remember_process "$child"
    if wait "$child"; then
        count_lines <"$WORK/one-user.log"
    elif [ $? = 77 ]; then
        skip "one user: mounting is not allowed in a mount namespace: $(tail -n 1 "$WORK/one-user.log")"
    else
        count_lines <"$WORK/one-user.log"
        not_ok "one user: the scenario succeeds"
    fi
}

one_user() {
    local expected message own=$WORK/own/pgdata query="SELECT count(*), sum(id), sum(length(note)) FROM big WHERE grp < 9"
    if ! [ -r /dev/fuse ] || ! [ -w /dev/fuse ]; then skip "one user: $(id -un) cannot open /dev/fuse"; return; fi
    if ! command -v fusermount3 >/dev/null; then skip "one user: fusermount3 is not installed"; return; fi
    part_end
    whole_end
    cell_configure own 128MiB
    message=$(FUSERMOUNT_PATH=$WORK/missing timeout 30 "$CELLAR_BIN" cell --config "$WORK/own.toml" 2>&1 || true)
    check_matches "one user: without fusermount3, the error names its package" "$message" 'fusermount3 is not installed; install the package fuse3'
    cell_start own
    ok "one user: $(id -un) starts a cell"
    check "one user: initdb succeeds on the mount" cluster_create own "$own" --data-checksums
    cluster_set "$own" "shared_preload_libraries = 'cellar'" "cellar.min_scan_size = 0" "cellar.cost_factor = 0" "shared_buffers = 32MB"
    cluster_start own "$own"
    sql own postgres -c "CREATE EXTENSION cellar" -c "CREATE TABLE big AS SELECT g AS id, g % 10 AS grp, repeat('u', 300) AS note FROM generate_series(1, 60000) g" \
        -c "VACUUM (FREEZE, ANALYZE) big"
    compress own big
    expected=$(off own postgres -c "$query")
    one_user_query() {
        local before
        before=$(statistic own "$eligible")
        check_equal "one user: a Smart Scan returns the right rows $1" "$(smart own postgres -c "$query")" "$expected"
        check "one user: the query was a Smart Scan $1" test "$(statistic own "$eligible")" -gt "$before"
        check_equal "one user: a table scan returns the right rows $1" "$(off own postgres -c "$query")" "$expected"
    }
    one_user_query "at the first start"
    check "one user: Postgres stops" cluster_stop own
    check "one user: the cell stops and unmounts" cell_stop own
    cell_start own
    cluster_start own "$own"
    one_user_query "after a restart"
    sql own postgres -c "INSERT INTO big SELECT g, 1, 'late' FROM generate_series(1, 1000) g"
    expected=$(off own postgres -c "$query")
    cell_kill
    cluster_stop own QUIT
    cell_start own
    cluster_start own "$own"
    one_user_query "after kill -9 of the cell"
    check "one user: Postgres stops again" cluster_stop own
    check "one user: the cell stops again" cell_stop own
}

# The cell's memory: the daemon's resident size stays below its budget, and idle sessions need little memory. The scenario
# starts another cell and another cluster, because 200 sessions need a larger max_connections.
memory_overhead_kb=$((40960 + $(nproc) * 69632))	# program, stacks, buffers of the file service; see docs/operations.md
idle_session_kb=1024
# resident FIELD: VmRSS or VmHWM of the cell in kB.
resident() { sed -n "s/^$1:[[:space:]]*\([0-9]*\) kB$/\1/p" "/proc/$CELL_PID/status"; }
# memory_cell MEMORY: starts the cell with a page cache of 64 MiB and a budget of MEMORY MiB.
memory_cell() {
    cell_configure cell4 64MiB
    sed -i "s/^cache_size.*/&\nmemory_size = \"$1MiB\"/" "$WORK/cell4.toml"
    cell_start cell4
    cluster_start many "$WORK/many-data"
}
memory_cell_end() {
    check "memory: Postgres stops" cluster_stop many
    check "memory: the cell stops and unmounts" cell_stop cell4
}
# settled: the resident size when two measurements 2 s apart differ by less than 1 %, or after 20 s.
settled() {
    local size previous=0 tries
    for ((tries = 0; tries < 10; tries++)); do
        sleep 2
        size=$(resident VmRSS)
        if ((size < previous + size / 100 && previous < size + size / 100)); then break; fi
        previous=$size
    done
    printf '%s' "$size"
}
# groups COUNT: a query that aggregates the table to COUNT groups.
groups() {
    printf 'SELECT count(*), sum(n), sum(s), min(t) FROM (SELECT id %% %d, count(*) n, sum(id) s, min(note) t FROM wide GROUP BY 1) g' "$1"
}
scenario_memory() {
    local idle before after size number count expected client clients=() passthru='cell num bytes in passthru during predicate offload'
    part_end
    whole_end
    cell_configure cell4 64MiB
    cell_start cell4
    cluster_create many "$WORK/many-data" --data-checksums
    cluster_set "$WORK/many-data" "shared_preload_libraries = 'cellar'" "cellar.min_scan_size = 0" "cellar.cost_factor = 0" \
        "max_connections = 260" "shared_buffers = 64MB" "autovacuum = off" "work_mem = 16MB" "max_parallel_workers_per_gather = 0"
    cluster_start many "$WORK/many-data"
    mkdir -p "$WORK/cell4/space"
    [ "$(id -u)" != 0 ] || chown "$OS_USER" "$WORK/cell4/space"
    sql many postgres -c "CREATE EXTENSION cellar" -c "CREATE TABLESPACE cell LOCATION '$WORK/cell4/space'" \
        -c "CREATE TABLE wide TABLESPACE cell AS SELECT g AS id, md5(g::text) AS note FROM generate_series(1, 200000) g" \
        -c "VACUUM (FREEZE, ANALYZE) wide" -c "CHECKPOINT"
    compress many wide
    expected=$(for count in 7 60000 200000; do off many postgres -c "$(groups $count)"; done)
    check_equal "memory: with enough memory the groups are right" \
        "$(for count in 7 60000 200000; do smart many postgres -c "$(groups $count)"; done)" "$expected"

    # 200 sessions aggregate and stay open.
    before=$(settled)
    printf '%s;\n\\sleep 600 s\n' "$(groups 60000)" >"$WORK/idle.sql"
    PGOPTIONS='-c cellar.min_scan_size=0 -c cellar.cost_factor=0' "$PG_BIN/pgbench" -n -c 200 -j 1 -t 1 -R 20 -f "$WORK/idle.sql" \
        -h "$WORK/run" -p "$(cluster_port many)" -U postgres postgres >"$WORK/memory-idle.log" 2>&1 &
    client=$!
    remember_process $client
    for ((number = 0; number < 120; number++)); do
        sleep 1
        idle=$(sql many postgres -c "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle' AND query LIKE '%GROUP BY%' AND application_name = 'pgbench'")
        [ "$idle" != 200 ] || break
    done
    check_equal "memory: 200 sessions have aggregated and are idle" "$idle" 200
    # The cell returns memory once sessions have been idle for some time.
    for ((number = 0; number < 15; number++)); do
        after=$((($(settled) - before) / 200))
        [ "$after" -ge $idle_session_kb ] || break
    done
    check "memory: an idle session needs less than $idle_session_kb kB in the cell ($after kB)" test "$after" -lt $idle_session_kb
    kill $client
    wait $client 2>/dev/null || true
    memory_cell_end

    # 50 sessions aggregate at the same time with a small budget.
    size=192
    memory_cell $size
    before=$(statistic many "$passthru")
    for ((number = 0; number < 50; number++)); do
        (for count in 7 60000 200000; do smart many postgres -c "$(groups $count)"; done) >"$WORK/memory-$number.txt" 2>&1 &
        clients+=($!)
    done
    wait "${clients[@]}"
    for ((number = 0; number < 50; number++)); do
        [ "$(cat "$WORK/memory-$number.txt")" = "$expected" ] || { not_ok "memory: all 50 sessions get the right groups"; tail -n 5 "$WORK/memory-$number.txt"; break; }
    done
    [ "$number" != 50 ] || ok "memory: all 50 sessions get the right groups"
    check "memory: some blocks were passed through for lack of memory" test "$(statistic many "$passthru")" -gt "$before"
    check "memory: the daemon's size stayed below $size MiB and its overhead ($(resident VmHWM) kB)" \
        test "$(resident VmHWM)" -lt $((size * 1024 + memory_overhead_kb))
    "$CELLAR_BIN" cell status --config "$WORK/cell4.toml" | sed -n '/^memory/,/^scans/p' | sed 's/^/    /'
    check_equal "memory: afterwards a scan has memory again" "$(smart many postgres -c "$(groups 200000)")" "${expected##*$'\n'}"
    memory_cell_end
}

cell_restart() {
    if [ "$1" = KILL ]; then cell_kill; else kill -TERM "$CELL_PID" && wait_gone "$CELL_PID" 30; fi
    cell_back
}

# cell_back [NAME]: starts cell2, or the named cell, again. Returns when the server has terminated its sessions, whose open
# files belong to the previous mount, and has recovered.
cell_back() {
    local log=$WORK/part-postgres.log before tries
    before=$(grep -c "has restarted" "$log" || true)
    cell_start "${1:-cell2}"
    for ((tries = 0; tries < 300; tries++)); do
        [ "$(grep -c "has restarted" "$log" || true)" = "$before" ] || break
        sleep 0.1
    done
    check "the server detects that the cell has restarted" test "$tries" -lt 300
    for ((tries = 0; tries < 300; tries++)); do
        if sql part postgres -c "SELECT 1" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    not_ok "the server accepts connections after recovery"
}

# ended DESCRIPTION SESSION: checks that the session's server process has exited.
ended() {
    check_matches "$1" "$(run "$2" "SELECT 'still here';" 10)" 'terminating connection|server closed the connection|no connection to the server'
    session_end "$2"
}

scenario_restart() {
    local expected before signal
    big_table
    expected=$(off part postgres -c "$big")
    session steady part
    check_equal "restart: a query before the restart returns the right rows" "$(run steady "$big;")" "$expected"
    for signal in TERM KILL; do
        cell_restart $signal
        ended "restart: a restart by SIG$signal terminates existing sessions" steady
        session steady part
        before=$(statistic part "$eligible")
        check_equal "restart: a new session gets the right rows after SIG$signal" "$(run steady "$big;")" "$expected"
        check "restart: that query was a Smart Scan" test "$(statistic part "$eligible")" -gt "$before"
        check_equal "restart: a table scan returns the right rows after SIG$signal" "$(off part postgres -c "$big")" "$expected"
    done
    session_end steady
}

# The storage index after clean and unclean ends of the cell. No sum depends on the index; the first query after a clean
# restart skips regions, and a query after a crash reads them.
scenario_index() {
    local expected before postmaster tries query="SELECT count(*), sum(id), min(note) FROM ordered WHERE id BETWEEN 1000 AND 1100" mib=1048576
    local file=$WORK/cell1-disk1/storage-index saved='cell physical IO bytes saved by storage index'
    whole_cluster
    sql whole postgres -c "DROP TABLE IF EXISTS ordered" \
        -c "CREATE TABLE ordered AS SELECT g AS id, repeat('o', 300) AS note FROM generate_series(1, 120000) g" \
        -c "VACUUM (FREEZE, ANALYZE) ordered" -c "CHECKPOINT"
    expected=$(off whole postgres -c "$query")
    # saves DESCRIPTION AT_LEAST AT_MOST: runs the query, and compares its rows and the MiB that the storage index saved.
    saves() {
        local mibs
        before=$(statistic whole "$saved")
        check_equal "index: $1 returns the right rows" "$(smart whole postgres -c "$query")" "$expected"
        mibs=$((($(statistic whole "$saved") - before) / mib))
        check "index: $1 saves $2 to $3 MiB by the storage index: $mibs MiB" test "$mibs" -ge "$2" -a "$mibs" -le "$3"
    }
    loaded() { "$CELLAR_BIN" cell status --json --config "$WORK/cell1.toml" | sed -n 's/.*"loaded_regions": \([0-9]*\).*/\1/p'; }
    # start: starts the cell and the cluster.
    start() {
        cell_start cell1
        check "index: Postgres starts after $1" cluster_start whole "$data"
    }
    saves "the first query" 0 0
    saves "the second query" 30 60

    cluster_stop whole
    check "index: the cell stops and unmounts" cell_stop cell1
    "$CELLAR_BIN" inspect disks --config "$WORK/cell1.toml" >/dev/null
    "$CELLAR_BIN" cell --check --config "$WORK/cell1.toml" >/dev/null
    check "index: the stop saves the index, and an inspection leaves it" test -s "$file"
    start "a clean restart"
    check "index: the start removes the saved index" test ! -e "$file"
    check "index: the start loads the saved index: $(loaded) regions" test "$(loaded)" -ge 30
    saves "the first query after a clean restart" 30 60

    sql whole postgres -c "UPDATE ordered SET id = 1050 WHERE id = 110000" -c "INSERT INTO ordered VALUES (1051, 'late')"
    expected=$(off whole postgres -c "$query")
    check_matches "index: the changed rows qualify" "$expected" "^103\|"
    saves "a query after changes" 25 60

    check "index: the cell is killed" cell_kill
    postmaster=$(cat "$WORK/whole.postmaster")
    cluster_stop whole QUIT || cluster_kill whole
    # A postmaster does not start while the process of postmaster.pid exists, even as a zombie.
    for ((tries = 0; tries < 300; tries++)); do
        [ -e "/proc/$postmaster" ] || break
        sleep 0.1
    done
    check "index: a killed cell leaves no index" test ! -e "$file"
    start "kill -9"
    check_equal "index: after kill -9 it starts empty" "$(loaded)" 0
    saves "the first query after kill -9" 0 0
    saves "the second query after kill -9" 25 60
}

scenario_death() {
    local expected before started answer
    big_table
    expected=$(off part postgres -c "$big")
    session reader part
    session other part
    check_equal "death: a query before the kill returns the right rows" "$(run reader "$big;")" "$expected"
    check_equal "death: another session's query before the kill returns the right rows" "$(run other "$big;")" "$expected"

    run reader "BEGIN; DECLARE c CURSOR FOR SELECT * FROM big WHERE grp < 9 AND note <> ''; EXPLAIN SELECT * FROM big WHERE grp < 9 AND note <> '';" >"$WORK/death-plan.log"
    check "death: the cursor is a Smart Scan" grep -q "Smart Scan" "$WORK/death-plan.log"
    run reader "FETCH 10 FROM c \\g /dev/null"
    cell_kill
    started=$SECONDS
    answer=$(run reader "FETCH ALL FROM c \\g /dev/null" 30)
    check_matches "death: an open cursor fails with a clear error" "$answer" 'ERROR: +[0-9A-Z]{5}: could not complete the Smart Scan of table "big"'
    check "death: the cursor failed within 10 s ($((SECONDS - started)) s)" test "$((SECONDS - started))" -le 10
    answer=$(run other "$big;" 30)
    right_or_error "death: a query while the cell is down" "$answer" "$expected"
    cell_back
    ended "death: the session has been terminated" reader
    ended "death: the other session has been terminated" other
    session reader part
    before=$(statistic part "$eligible")
    check_equal "death: a query after the restart returns the right rows" "$(run reader "$big;")" "$expected"
    check_equal "death: a second query returns the right rows" "$(run reader "$big;")" "$expected"
    check "death: the queries were Smart Scans" test "$(statistic part "$eligible")" -gt "$before"

    send reader "SELECT count(*), count(pg_sleep(0.0005)), sum(length(note)) FROM big WHERE grp < 9;"
    sleep 2
    cell_kill
    answer=$(receive reader 30) || true
    check_matches "death: a running query fails with a clear error" "$answer" 'ERROR: +[0-9A-Z]{5}: could not complete the Smart Scan of table "big"'
    cell_back
    ended "death: the session has been terminated again" reader
    check_equal "death: a query after the second restart returns the right rows" "$(smart part postgres -c "$big")" "$expected"
}

# changed DESCRIPTION TABLE EXPECTED: checks that the session "old" has been terminated, and that new sessions see the
# expected rows.
changed() {
    local query="SELECT count(*), sum(id), count(*) FILTER (WHERE note LIKE 'new%') FROM $2 WHERE note <> ''"
    ended "$1: an existing session has been terminated" old
    check_equal "$1: a Smart Scan returns the right rows" "$(smart part postgres -c "$query" 2>&1 || true)" "$3"
    check_equal "$1: a table scan returns the right rows" "$(off part postgres -c "$query" 2>&1 || true)" "$3"
}

# Acknowledged writes survive a kill of the cell while Postgres keeps running.
scenario_lost_writes() {
    part_cluster
    sql part postgres -c "CREATE TABLE written TABLESPACE cell AS SELECT g AS id, repeat('x', 100) AS note FROM generate_series(1, 20000) g" \
        -c "VACUUM written" -c "CHECKPOINT"
    compress part written
    sql part postgres -c "UPDATE written SET note = 'new' || note WHERE id <= 10000" \
        -c "INSERT INTO written SELECT g, 'more' FROM generate_series(20001, 30000) g"
    check_equal "lost writes: a query before the kill returns the right rows" "$(smart part postgres -c "SELECT count(*) FROM written WHERE note <> ''")" 30000
    session old part
    cell_restart KILL
    changed "lost writes" written "30000|450015000|10000"
    # If this checkpoint succeeds, the writes to the first daemon must be durable.
    sql part postgres -c "CHECKPOINT" || true
    cluster_stop part
    cluster_start part "$WORK/part-data"
    check_equal "lost writes: no write is lost after a restart of Postgres" "$(off part postgres -c "SELECT count(*), sum(id), count(*) FILTER (WHERE note LIKE 'new%') FROM written WHERE note <> ''" 2>&1)" "30000|450015000|10000"
}
# After a restart of the cell, no session reads a file through the previous mount.
scenario_stale_files() {
    local signal
    part_cluster
    for signal in TERM KILL; do
        sql part postgres -c "CREATE TABLE grown_$signal TABLESPACE cell AS SELECT g AS id, repeat('x', 100) AS note FROM generate_series(1, 20000) g" \
            -c "VACUUM (FREEZE) grown_$signal" -c "CHECKPOINT"
        compress part "grown_$signal"
        session old part
        run old "SET cellar.cell_offload_processing = off; SELECT count(*) FROM grown_$signal WHERE note <> ''; RESET cellar.cell_offload_processing;" >/dev/null
        cell_restart $signal
        sql part postgres -c "INSERT INTO grown_$signal SELECT g, 'more' FROM generate_series(20001, 30000) g" -c "CHECKPOINT"
        changed "stale files, SIG$signal" "grown_$signal" "30000|450015000|0"
    done
}
# An existing session must not read pages of the stale mount into shared buffers.
scenario_stale_pages() {
    part_cluster
    sql part postgres -c "CREATE TABLE paged TABLESPACE cell AS SELECT g AS id, repeat('x', 100) AS note FROM generate_series(1, 20000) g" \
        -c "VACUUM (FREEZE) paged"
    compress part paged
    cluster_stop part
    cluster_start part "$WORK/part-data"
    session old part
    run old "SET cellar.cell_offload_processing = off; SELECT count(*) FROM paged WHERE note <> ''; RESET cellar.cell_offload_processing;" >/dev/null
    cell_restart TERM
    sql part postgres -c "UPDATE paged SET note = 'new' WHERE id % 2 = 0" -c "CHECKPOINT" \
        -c "CREATE TABLE evicting AS SELECT g AS id, repeat('x', 1000) AS note FROM generate_series(1, 60000) g" -c "CREATE INDEX ON evicting (note)" \
        -c "SET enable_seqscan = off" -c "UPDATE evicting SET id = id + 1 WHERE note > ''"
    changed "stale pages" paged "20000|200010000|10000"
}

# shellcheck source=tests/robust/dead_mounts.sh
. "$here/dead_mounts.sh"
# shellcheck source=tests/robust/startup_wait.sh
. "$here/startup_wait.sh"

for scenario in "${scenarios[@]}"; do
    declare -F "scenario_$scenario" >/dev/null || die "there is no scenario $scenario"
    say "# $scenario ($SECONDS s)"
    "scenario_$scenario"
done
whole_end
part_end
# A process that writes WAL when the cell is killed panics: the data directory may be on the cell's mount.
if grep -hsE 'PANIC|server process .* was terminated by signal' "$WORK"/*-postgres.log |
    grep -vE 'PANIC: .*(Transport endpoint is not connected|Software caused connection abort|Operation canceled)'; then
    not_ok "no backend crashed"
else
    ok "no backend crashed"
fi
checks_end
