# shellcheck shell=bash
# Sourced by the scripts that run cells and clusters. Defines the paths of all programs, a work folder with its cleanup,
# cells, clusters, instances that outlive a script, and counted checks.
#
# Each process that a script starts is recorded in $WORK/processes, each mount in $WORK/mounts. `cleanup` stops and
# unmounts exactly these. `cleanup` runs when the script exits; a watcher runs it after a kill -9 of the script.
#
# Settings from the environment: PG_CONFIG, CELLAR_PROFILE (Cargo profile of the programs, default that of the last
# build.sh), CELLAR_BIN, HARNESS_BIN, CELLAR_RESULTS (file for counted checks), CELLAR_KEEP=1 (keep the work folder),
# CELLAR_WORK_PARENT (parent folder of work folders, default /tmp).
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
# The installed extension and the programs must be of the same build.
CELLAR_PROFILE=${CELLAR_PROFILE:-$(cat "$TARGET/profile" 2>/dev/null || printf release)}
CELLAR_BIN=${CELLAR_BIN:-$TARGET/$CELLAR_PROFILE/cellar}
HARNESS_BIN=${HARNESS_BIN:-$TARGET/$CELLAR_PROFILE/cellar-harness}

say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# ---------------------------------------------------------------- Postgres's programs

find_pg_config() {
    if [ -n "${PG_CONFIG:-}" ]; then
        printf '%s\n' "$PG_CONFIG"
        return
    fi
    local candidate
    for candidate in /usr/lib/postgresql/*/bin/pg_config; do
        [ -e "$(dirname "$candidate")/postgres" ] && [ -e "$("$candidate" --pgxs 2>/dev/null)" ] &&
            [ -e "$("$candidate" --includedir-server)/postgres.h" ] && printf '%s\n' "$candidate"
    done | sort -V | tail -n 1
}

PG_CONFIG=$(find_pg_config)
[ -n "$PG_CONFIG" ] || die "no PostgreSQL server with its headers was found; run scripts/install-deps.sh or set PG_CONFIG"
PG_BIN=$("$PG_CONFIG" --bindir)
# shellcheck disable=SC2034
PG_MAJOR=$("$PG_CONFIG" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
export PG_CONFIG

# Postgres refuses to run as root: as root, the scripts run Postgres and its programs as OS_USER.
if [ "$(id -u)" = 0 ]; then
    OS_USER=${CELLAR_OS_USER:-postgres}
    id "$OS_USER" >/dev/null 2>&1 || die "there is no user $OS_USER"
    as_pg() { setpriv --reuid "$OS_USER" --regid "$(id -g "$OS_USER")" --init-groups -- env HOME=/tmp "$@"; }
else
    OS_USER=$(id -un)
    as_pg() { "$@"; }
fi

# ---------------------------------------------------------------- the work folder and its cleanup

# work_begin NAME [FOLDER]: sets $WORK to a new folder, or to FOLDER, which cleanup keeps. Registers cleanup.
work_begin() {
    if [ -n "${2:-}" ]; then
        WORK=$2
        WORK_KEPT=1
        mkdir -p "$WORK"
    else
        WORK=$(mktemp -d "${CELLAR_WORK_PARENT:-/tmp}/cellar-$1.XXXXXX")
        WORK_KEPT=${CELLAR_KEEP:-0}
    fi
    chmod 755 "$WORK"
    touch "$WORK/processes" "$WORK/mounts"
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    trap 'work_end' EXIT
    # shellcheck disable=SC2016
    # The watcher has its own session: a signal to the script's process group does not reach the watcher.
    setsid bash -c 'tail --pid="$1" -f /dev/null; sleep 1; [ -e "$2/processes" ] || exit 0; . "$0"; WORK=$2; WORK_KEPT=$3
        cleanup' "$ROOT/scripts/lib.sh" "$$" "$WORK" "$WORK_KEPT" >/dev/null 2>&1 </dev/null &
    WATCHER=$!
    disown "$WATCHER"
}

work_end() {
    local status=$?
    trap - EXIT
    if [ "$status" != 0 ] && [ "$WORK_KEPT" = 0 ]; then
        save_logs
    fi
    cleanup
    kill -- "-$WATCHER" 2>/dev/null || true
    exit "$status"
}

# Copies the logs of a failed run to CELLAR_LOG_DIR, or else to a folder beside the work folder.
save_logs() {
    local destination=${CELLAR_LOG_DIR:-$WORK-logs}
    mkdir -p "$destination"
    find "$WORK" -maxdepth 1 \( -name '*.log' -o -name '*.toml' -o -name 'regression.*' \) -exec cp -r {} "$destination/" \; 2>/dev/null || true
    say "logs are in $destination"
}

# A process is identified by its pid and its start time, so that no signal reaches a reused pid.
start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
remember_process() { printf '%s %s\n' "$1" "$(start_time "$1")" >>"$WORK/processes"; }

signal_remembered() {
    local pid started
    while read -r pid started; do
        [ -n "$started" ] && [ "$(start_time "$pid")" = "$started" ] && kill "-$1" "$pid" 2>/dev/null
    done < <(tac "$WORK/processes") || true
}

any_remembered() {
    local pid started
    while read -r pid started; do
        [ -n "$started" ] && [ "$(start_time "$pid")" = "$started" ] && [ "$(process_state "$pid")" != Z ] && return 0
    done <"$WORK/processes"
    return 1
}
process_state() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -c1; }

wait_remembered() {
    local tries
    for ((tries = 0; tries < $1 * 10; tries++)); do
        any_remembered || return 0
        sleep 0.1
    done
    return 1
}

is_mounted() { awk -v at="$1" '$5 == at { found = 1 } END { exit !found }' /proc/self/mountinfo; }

unmount() {
    local tries
    for ((tries = 0; tries < 20; tries++)); do
        is_mounted "$1" || return 0
        if [ "$(id -u)" = 0 ]; then umount "$1" 2>/dev/null; else fusermount3 -u "$1" 2>/dev/null; fi || sleep 0.1
    done
    if [ "$(id -u)" = 0 ]; then umount -l "$1" 2>/dev/null; else fusermount3 -u -z "$1" 2>/dev/null; fi || true
}

# Stops clusters, then cells; kills what does not stop within 15 s; then unmounts.
cleanup() {
    local data mount
    set +e
    for data in "$WORK"/*.postmaster; do
        [ -e "$data" ] && kill -QUIT "$(cat "$data")" 2>/dev/null
    done
    sleep 0.2
    signal_remembered TERM
    if ! wait_remembered 15; then
        signal_remembered KILL
        wait_remembered 5
    fi
    while read -r mount; do unmount "$mount"; done < <(tac "$WORK/mounts")
    rm -f "$WORK/processes" "$WORK/mounts" "$WORK"/*.postmaster
    if [ "$WORK_KEPT" = 0 ]; then rm -rf --one-file-system "$WORK"; fi
    set -e
}

# ---------------------------------------------------------------- cells

# cell_configure NAME [CACHE_SIZE] [DISK ...]: writes $WORK/NAME.toml. Without DISK, creates two folders as cell disks.
# CELL_RESERVE is the size of the reserve, CELL_WAL_PASSTHROUGH=true sets wal_passthrough.
cell_configure() {
    local name=$1 cache=${2:-512MiB} disk disks=()
    shift $(($# < 2 ? $# : 2))
    [ $# -gt 0 ] || set -- "$WORK/$name-disk1" "$WORK/$name-disk2"
    for disk in "$@"; do
        mkdir -p "$disk"
        [ "$(id -u)" != 0 ] || chown "$OS_USER" "$disk"
        disks+=("\"$disk\"")
    done
    mkdir -p "$WORK/$name" "$WORK/run"
    chmod 755 "$WORK/run"
    [ "$(id -u)" != 0 ] || chown "$OS_USER" "$WORK/run"
    cat >"$WORK/$name.toml" <<TOML
name = "$name"
mount = "$WORK/$name"
socket = "$WORK/run/$name.sock"
user = "$OS_USER"
cache_size = "$cache"
log_level = "${CELLAR_LOG_LEVEL:-info}"
wal_passthrough = ${CELL_WAL_PASSTHROUGH:-false}

[disk_group]
au_size = "4MiB"
redundancy = "external"
reserve_size = "${CELL_RESERVE:-64MiB}"
disks = [$(IFS=,; printf '%s' "${disks[*]}")]
TOML
}

# cell_start NAME [OPTION ...]: returns when the cell logs that it is ready. Sets $CELL_PID.
cell_start() {
    local name=$1 log=$WORK/$1.log from tries
    shift
    touch "$log"
    from=$(wc -l <"$log")
    grep -qxF "$WORK/$name" "$WORK/mounts" || printf '%s\n' "$WORK/$name" >>"$WORK/mounts"
    setsid "$CELLAR_BIN" cell --config "$WORK/$name.toml" "$@" >>"$log" 2>&1 </dev/null &
    CELL_PID=$!
    disown "$CELL_PID"
    remember_process "$CELL_PID"
    for ((tries = 0; tries < 600; tries++)); do
        if tail -n "+$((from + 1))" "$log" | grep -q "cell $name ready"; then return 0; fi
        if ! kill -0 "$CELL_PID" 2>/dev/null; then break; fi
        sleep 0.1
    done
    tail -n 20 "$log" >&2
    printf 'the cell %s did not become ready\n' "$name" >&2
    return 1
}

# wait_gone PID [SECONDS]: waits until a process and its threads have exited.
wait_gone() {
    local tries
    for ((tries = 0; tries < ${2:-30} * 10; tries++)); do
        # A zombie leader with running threads still has open files, so the threads count too.
        if ! kill -0 "$1" 2>/dev/null || { [ "$(process_state "$1")" = Z ] && [ "$(find "/proc/$1/task" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)" -le 1 ]; }; then
            return 0
        fi
        sleep 0.1
    done
    return 1
}

# wait_for_true SECONDS COMMAND ...: repeats a command until it prints t. Returns 1 if none did within SECONDS.
wait_for_true() {
    local tries
    for ((tries = 0; tries < $1 * 10; tries++)); do
        [ "$("${@:2}" 2>/dev/null || true)" = t ] && return 0
        sleep 0.1
    done
    return 1
}

# cell_stop NAME: a clean shutdown. Fails if the cell does not exit or does not unmount.
cell_stop() {
    kill -TERM "$CELL_PID" 2>/dev/null || return 1
    wait_gone "$CELL_PID" 30 || return 1
    ! is_mounted "$WORK/$1"
}

cell_kill() {
    kill -KILL "$CELL_PID" 2>/dev/null
    wait_gone "$CELL_PID" 10
}

# ---------------------------------------------------------------- clusters

# A cluster listens on a socket in $WORK/run only; its port number follows from its name.
cluster_port() { printf '%d' "$((5600 + $(printf '%s' "$1" | cksum | cut -d' ' -f1) % 300))"; }
cluster_dsn() { printf 'host=%s port=%s user=postgres dbname=%s' "$WORK/run" "$(cluster_port "$1")" "${2:-postgres}"; }

# cluster_create NAME FOLDER [initdb option ...]: runs initdb and writes settings for tests. cluster_set appends more.
cluster_create() {
    local name=$1 data=$2
    shift 2
    mkdir -p "$(dirname "$data")" "$WORK/run"
    if [ "$(id -u)" = 0 ]; then
        chown "$OS_USER" "$WORK/run"
        [ -e "$data" ] || install -d -m 700 -o "$OS_USER" "$data"
    fi
    as_pg "$PG_BIN/initdb" -D "$data" -U postgres -A trust --no-locale -E UTF8 "$@" >"$WORK/$name-initdb.log" 2>&1 || {
        tail -n 5 "$WORK/$name-initdb.log" >&2
        return 1
    }
    as_pg tee -a "$data/postgresql.conf" >/dev/null <<CONF
listen_addresses = ''
unix_socket_directories = '$WORK/run'
port = $(cluster_port "$name")
shared_buffers = 256MB
max_connections = 60
max_wal_size = 4GB
log_line_prefix = '%m [%p] %q%a '
include_if_exists = 'cellar.conf'
CONF
    as_pg touch "$data/cellar.conf"
}

# cluster_set FOLDER 'name = value' ...: appends settings to FOLDER/cellar.conf.
cluster_set() {
    local data=$1
    shift
    printf '%s\n' "$@" | as_pg tee -a "$data/cellar.conf" >/dev/null
}

# cluster_start NAME FOLDER: returns when the cluster accepts connections. The postmaster is a child of this shell: its
# pid stays known when the data directory becomes unreadable, for example after the cell's death.
cluster_start() {
    local name=$1 data=$2 tries pid
    local log=$WORK/$name-postgres.log
    touch "$log"
    if [ "$(id -u)" = 0 ]; then
        setsid setpriv --reuid "$OS_USER" --regid "$(id -g "$OS_USER")" --init-groups -- \
            "$PG_BIN/postgres" -D "$data" >>"$log" 2>&1 </dev/null &
    else
        setsid "$PG_BIN/postgres" -D "$data" >>"$log" 2>&1 </dev/null &
    fi
    pid=$!
    disown "$pid"
    remember_process "$pid"
    printf '%s\n' "$pid" >"$WORK/$name.postmaster"
    for ((tries = 0; tries < 1200; tries++)); do
        if "$PG_BIN/pg_isready" -q -U postgres -h "$WORK/run" -p "$(cluster_port "$name")"; then return 0; fi
        if ! kill -0 "$pid" 2>/dev/null; then break; fi
        sleep 0.1
    done
    tail -n 20 "$log" >&2
    printf 'the cluster %s did not start\n' "$name" >&2
    return 1
}

# cluster_stop NAME [INT|QUIT]: fast (default) or immediate.
cluster_stop() {
    local pid
    pid=$(cat "$WORK/$1.postmaster" 2>/dev/null) || return 0
    kill "-${2:-INT}" "$pid" 2>/dev/null || true
    wait_gone "$pid" 120 || return 1
    rm -f "$WORK/$1.postmaster"
}

# cluster_kill NAME: kill -9 of the postmaster and of all its children.
cluster_kill() {
    local pid children
    pid=$(cat "$WORK/$1.postmaster")
    kill -STOP "$pid" 2>/dev/null || true
    children=$(ps -o pid= --ppid "$pid" || true)
    # shellcheck disable=SC2086
    kill -KILL "$pid" $children 2>/dev/null || true
    wait_gone "$pid" 10 || return 1
    local child
    for child in $children; do wait_gone "$child" 20 || return 1; done
    rm -f "$WORK/$1.postmaster"
}

# sql NAME DATABASE [psql option ...]: runs psql, unaligned, tuples only; stops at the first error.
sql() {
    local name=$1 database=$2
    shift 2
    PGOPTIONS=${PGOPTIONS:-} "$PG_BIN/psql" -X -q -At -v ON_ERROR_STOP=1 -h "$WORK/run" -p "$(cluster_port "$name")" -U postgres -d "$database" "$@"
}

# sqlstate_of NAME DATABASE STATEMENT: prints the SQLSTATE of the statement's error, or nothing.
sqlstate_of() { sql "$1" "$2" -v VERBOSITY=verbose -c "$3" 2>&1 >/dev/null | sed -n 's/^ERROR:  \([0-9A-Z]*\).*/\1/p' || true; }

# Succeeds if the extension is installed in the server.
extension_installed() { [ -e "$("$PG_CONFIG" --sharedir)/extension/cellar.control" ]; }

# ---------------------------------------------------------------- instances that outlive the script

# An instance is the cell `cell1` and a cluster on its mount, in the kept folder $WORK. Used by demo.sh and dev.sh.

# instance_folder: creates $WORK and checks that Postgres can use it.
instance_folder() {
    mkdir -p "$WORK"
    chmod 755 "$WORK"
    as_pg test -x "$WORK" || die "user $OS_USER cannot enter $WORK; name a folder that $OS_USER can enter (make demo: DEMO_DIR, tests: TMPDIR)"
    ((${#WORK} <= 70)) || die "the path $WORK is too long for a socket; name a shorter one (make demo: DEMO_DIR, tests: TMPDIR)"
    touch "$WORK/processes" "$WORK/mounts"
}

# instance_running NAME: succeeds if the cell and the cluster NAME run with the present cell binary.
instance_running() {
    [ -e "$WORK/cell1.pid" ] && kill -0 "$(cat "$WORK/cell1.pid")" 2>/dev/null && is_mounted "$WORK/cell1" &&
        "$PG_BIN/pg_isready" -q -U postgres -h "$WORK/run" -p "$(cluster_port "$1")" && [ "$CELLAR_BIN" -ot "$WORK/cell1.pid" ]
}

# instance_start NAME CACHE_SIZE ['name = value' ...]: starts the cell and the cluster; the first start runs initdb.
instance_start() {
    local name=$1 cache=$2 data=$WORK/cell1/pgdata
    if [ -e "$WORK/cell1.pid" ]; then instance_stop "$name"; touch "$WORK/processes" "$WORK/mounts"; fi
    cell_configure cell1 "$cache"
    cell_start cell1
    printf '%s\n' "$CELL_PID" >"$WORK/cell1.pid"
    if [ ! -e "$data/PG_VERSION" ]; then
        cluster_create "$name" "$data" --data-checksums
        cluster_set "$data" "shared_preload_libraries = 'cellar'" "${@:3}"
    elif [ "$(cat "$data/PG_VERSION")" != "$PG_MAJOR" ]; then
        die "$WORK contains a cluster of Postgres $(cat "$data/PG_VERSION"), this is $PG_MAJOR: delete it first"
    fi
    cluster_start "$name" "$data"
}

# instance_stop NAME: stops the cluster and the cell; keeps the data.
instance_stop() {
    WORK_KEPT=1
    if [ ! -e "$WORK/processes" ]; then
        say "nothing is running in $WORK"
        return
    fi
    cluster_stop "$1" || true
    CELL_PID=$(cat "$WORK/cell1.pid" 2>/dev/null || true)
    [ -z "$CELL_PID" ] || cell_stop cell1 || true
    cleanup
    rm -f "$WORK/cell1.pid"
    say "Postgres and the cell are stopped, nothing is mounted; the data remain in $WORK"
}

# instance_remove NAME: stops the instance and deletes its folder.
instance_remove() {
    [ -e "$WORK/cell1.toml" ] || [ -e "$WORK/processes" ] || die "$WORK contains no instance; nothing is deleted"
    instance_stop "$1"
    # rm must never descend into a mount.
    ! is_mounted "$WORK/cell1" || die "$WORK/cell1 is still mounted"
    rm -rf --one-file-system "$WORK"
    say "$WORK is deleted"
}

# ---------------------------------------------------------------- checks

CHECKS_FAILED=0
# Precedes the description of each check, for example the name of a scenario.
CHECK_PREFIX=
# report_check WORD RESULT DESCRIPTION
report_check() {
    printf '%s - %s%s\n' "$1" "$CHECK_PREFIX" "$3"
    [ -z "${CELLAR_RESULTS:-}" ] || printf '%s\t%s%s\n' "$2" "$CHECK_PREFIX" "$3" >>"$CELLAR_RESULTS"
}
ok() { report_check ok pass "$*"; }
not_ok() {
    report_check 'not ok' fail "$*"
    CHECKS_FAILED=$((CHECKS_FAILED + 1))
}
skip() { report_check skipped skip "$*"; }

# check DESCRIPTION COMMAND ...: counts the command as passed or failed; prints the output of a failed command.
check() {
    local what=$1 output
    shift
    if output=$("$@" 2>&1); then ok "$what"; else
        not_ok "$what"
        printf '%s\n' "$output" | tail -n 30 | sed 's/^/    /'
    fi
}

# check_equal DESCRIPTION FOUND EXPECTED
check_equal() {
    if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1: found \"$2\", expected \"$3\""; fi
}

# check_matches DESCRIPTION FOUND REGULAR_EXPRESSION
check_matches() {
    if [[ $2 =~ $3 ]]; then ok "$1"; else not_ok "$1: \"$2\" does not match \"$3\""; fi
}

# count_lines: copies stdin to stdout and counts its `ok - …` and `not ok - …` lines.
count_lines() {
    local line
    while IFS= read -r line; do
        case $line in
        'ok - '*) ok "${line#ok - }" ;;
        'not ok - '*) not_ok "${line#not ok - }" ;;
        *) printf '%s\n' "$line" ;;
        esac
    done
}

checks_end() { [ "$CHECKS_FAILED" = 0 ]; }
