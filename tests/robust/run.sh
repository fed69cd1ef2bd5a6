#!/usr/bin/env bash
# Smart Scan beside everything else that a cluster does: DDL and DML during scans, a hot standby, SERIALIZABLE, damaged
# pages, a cell that dies or stands still under its readers, strangers at its socket, two cells, the simulation, cursors,
# own rows, what is counted of scans that stop early, everything as one ordinary user.
#
#   run.sh [--seconds N] [--compressed] [SCENARIO ...]      N seconds of load (20); the scenarios are the functions named
#   scenario_…; with --compressed their tables are at random compression levels, and under load they are recompressed all
#   the time
#
# Every scenario also checks that its scans were Smart Scans.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

seconds=20 compressed=0 scenarios=()
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) seconds=$2; shift ;;
    --compressed) compressed=1 ;;
    -*) die "unknown option $1" ;;
    *) scenarios+=("$1") ;;
    esac
    shift
done
# What the others do with a table's pages, or count of them, is about raw ones.
[ ${#scenarios[@]} -gt 0 ] || [ $compressed = 0 ] || scenarios=(changes standby serializable stopped cells one_user restart death lost_writes stale_files stale_pages)
[ ${#scenarios[@]} -gt 0 ] || scenarios=(changes standby serializable socket corrupt compare simulation abandoned stopped cells one_user restart death lost_writes stale_files stale_pages)
extension_installed || die "the extension is not installed: make build"
here=$(cd "$(dirname "$0")" && pwd)
work_begin robust
rows=40000
total=$((rows * 1000))
data=$WORK/cell1/pgdata

# ---------------------------------------------------------------- sessions that stay open

# session NAME CLUSTER: a psql that takes statements one at a time from `tell` and `run`.
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
# tell NAME STATEMENTS: does not wait for the answer.
tell() { printf '%s\n\\echo --answered--\n' "$2" >&"${session_in[$1]}"; }
# answer NAME [SECONDS]: what the last `tell` printed; fails when that takes longer.
answer() {
    local line deadline=$((SECONDS + ${2:-60}))
    while IFS= read -r -t "$((deadline > SECONDS ? deadline - SECONDS : 1))" -u "${session_out[$1]}" line; do
        if [ "$line" = "--answered--" ]; then return 0; fi
        printf '%s\n' "$line"
    done
    printf 'no answer in %s s\n' "${2:-60}"
    return 1
}
run() {
    tell "$1" "$2"
    answer "$1" "${3:-60}" || true
}

# check_equal DESCRIPTION FOUND WANTED
check_equal() {
    if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1: it is \"$2\", not \"$3\""; fi
}
check_matches() {
    if [[ $2 =~ $3 ]]; then ok "$1"; else not_ok "$1: \"$2\" does not match \"$3\""; fi
}

# right_or_error DESCRIPTION FOUND WANTED: the wanted rows or an error, but no others.
right_or_error() {
    local error=${2##*ERROR: }
    case $2 in
    *'ERROR: '*) ok "$1: an error,${error%%$'\n'*}" ;;
    "$3" | WARNING:*$'\n'"$3") ok "$1: right" ;;
    *) not_ok "$1: \"$2\" is neither an error nor \"$3\"" ;;
    esac
}

# statistic CLUSTER NAME: a figure of the system.
statistic() { sql "$1" postgres -c "SELECT value FROM cellar.sysstat WHERE name = '$2'"; }
eligible='cell physical IO bytes eligible for predicate offload'
# Of a compressed table, what is eligible is what is stored.
scanned=$eligible
[ $compressed = 0 ] || scanned='cell IO uncompressed bytes'
open_fail='cell num smart IO sessions in rdbms block IO due to open fail'
smart() { PGOPTIONS='-c cellar.min_scan_size=0 -c cellar.cost_factor=0' sql "$@"; }
off() { PGOPTIONS='-c cellar.cell_offload_processing=off' sql "$@"; }

# ---------------------------------------------------------------- compression

levels=("query low" "query high" "archive low" "archive high")
random_level() { printf '%s' "${levels[RANDOM % 4]}"; }
# compress CLUSTER TABLE ...: with --compressed, each at a random level; it has units then.
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
# compressing CLUSTER TABLE ...: with --compressed, a load that recompresses them, and at times decompresses.
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
                # It gives way to CREATE INDEX CONCURRENTLY.
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

# ---------------------------------------------------------------- clusters, one at a time

# A cluster that lies on its cell as a whole, with the accounts in it.
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

# A cluster on the ordinary file system with a tablespace on a cell.
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
    # The server looks for new tablespaces once a second.
    sleep 2
}
part_end() {
    if [ ! -e "$WORK/part.postmaster" ]; then return; fi
    check "Postgres with a tablespace on the mount stops" cluster_stop part
    check "its cell stops and unmounts" cell_stop cell2
}

# ---------------------------------------------------------------- load

# load CLUSTER NAME CLIENTS SCRIPT [option ...]: in the background for $seconds; loads_end says how each ended.
loads=()
load() {
    local cluster=$1 name=$2 clients=$3 script=$4
    shift 4
    "$PG_BIN/pgbench" -n -c "$clients" -j 1 -T "$seconds" -D "rows=$rows" -D "total=$total" -f "$here/load/$script" "$@" \
        -h "$WORK/run" -p "$(cluster_port "$cluster")" -U postgres postgres >"$WORK/load-$name.log" 2>&1 &
    remember_process $!
    loads+=("$! $name")
}
# loop CLUSTER NAME SCRIPT: a psql script over and over.
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
            ok "$name: $(processed "$name") without an error"
        else
            not_ok "$name"
            grep -vE '^(pgbench \(|transaction type|scaling|query mode|number of)' "$WORK/load-$name.log" | tail -n 15 | sed 's/^/    /'
        fi
    done
    loads=()
}

# sums_checked WHAT CLUSTER ELIGIBLE_BEFORE SUMS LEAST FAILED_OPENS_BEFORE: there were enough sums and each was a Smart
# Scan of at least as much as the accounts take when they are packed.
sums_checked() {
    local seen
    seen=$(($(statistic "$2" "$scanned") - $3))
    check "$1: $4 sums, at least $5" test "$4" -ge "$5"
    check "$1: all were Smart Scans ($((seen / 1048576)) MiB)" test "$seen" -ge "$(($4 * rows * 180))"
    check_equal "$1: no scan did without the cell" "$(statistic "$2" "$open_fail")" "$6"
}
number() { printf '%s' "$(($(processed "$1" || true) + 0))"; }

# ---------------------------------------------------------------- scenarios

scenario_changes() {
    local before failed
    whole_cluster
    check "changes: a wrong sum is noticed" bash -c "! '$PG_BIN/pgbench' -n -t 1 -D rows=$rows -D total=$((total + 1)) \
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
    load whole "sibling emptied and filled" 1 truncate_sibling.sql -R 5
    load whole "VACUUM" 1 vacuum.sql
    loop whole "DDL" ddl.sql
    loads_end
    sums_checked "changes" whole "$before" "$(($(number "sums, READ COMMITTED") + \
        $(number "sums, READ COMMITTED, prepared") + 2 * $(number "sums, REPEATABLE READ")))" $((5 * seconds)) "$failed"
    check_equal "changes: and in the end the sums are the same, off and on" \
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
    check_equal "standby: it is one" "$(sql standby postgres -c "SELECT pg_is_in_recovery()")" t
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
    sums_checked "its primary" whole "$primary_before" "$(number "sums on the primary")" $((seconds)) "$primary_failed"

    local position
    position=$(sql whole postgres -c "SELECT pg_current_wal_lsn()")
    for ((tries = 0; tries < 300; tries++)); do
        [ "$(sql standby postgres -c "SELECT pg_last_wal_replay_lsn() >= '$position'")" = t ] && break
        sleep 0.1
    done
    local query="SELECT sum(balance), count(*), sum(balance * id) FROM accounts WHERE filler <> ''" wanted
    wanted=$(off whole postgres -c "$query")
    check_equal "standby: it has what the primary has" "$(smart standby postgres -c "$query")" "$wanted"
    sql standby postgres -c "SELECT pg_promote()" >/dev/null
    before=$(statistic standby "$eligible")
    sql standby postgres -c "UPDATE accounts SET balance = balance + CASE id % 2 WHEN 0 THEN 1 ELSE -1 END WHERE id <= 1000"
    check_equal "standby: also once it is promoted and written to" "$(smart standby postgres -c "$query")" \
        "$(off standby postgres -c "$query")"
    check "standby: and that was a Smart Scan" test "$(statistic standby "$eligible")" -gt "$before"
    check_equal "standby: while the primary is as it was" "$(smart whole postgres -c "$query")" "$wanted"
    check "standby: it stops" cluster_stop standby
}

# skew LEVEL PREPARED: two transactions that each read what the other writes; prints how both commits ended.
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
    check_matches "serializable: without it the query has a Smart Scan" "$(smart whole postgres -c "EXPLAIN $query")" "Smart Scan"
    if smart whole postgres -c "BEGIN ISOLATION LEVEL SERIALIZABLE" -c "EXPLAIN $query" | grep -q "Smart Scan"; then
        not_ok "serializable: with it there is none"
    else
        ok "serializable: with it there is none"
    fi
    check_equal "serializable: under REPEATABLE READ the write skew happens" "$(skew "REPEATABLE READ" direct)" ""
    check_matches "serializable: of a write-skew pair one fails" "$(skew SERIALIZABLE direct)" "40001"
    before=$(statistic whole "$eligible")
    check_matches "serializable: also with plans from other transactions" "$(skew SERIALIZABLE prepared)" "40001"
    check "serializable: which had Smart Scans" test "$(statistic whole "$eligible")" -gt "$before"
}

# speak USER CASE: what a client of the cell's socket hears.
speak() {
    local as=(as_pg)
    [ "$1" != nobody ] || as=(setpriv --reuid nobody --regid "$(id -g nobody)" --clear-groups --)
    "${as[@]}" perl "$WORK/socket.pl" "$WORK/run/cell1.sock" "$2"
}
scenario_socket() {
    local case before wanted query="SELECT sum(balance) FROM accounts WHERE filler <> ''"
    if ! perl -MIO::Socket::UNIX -e 1 2>/dev/null; then skip "socket: there is no perl"; return; fi
    whole_cluster
    before=$(smart whole postgres -c "$query")
    cp "$here/socket.pl" "$WORK/"
    check_equal "socket: the cluster's user is welcome" "$(speak user hello)" "Welcome closed"
    if [ "$(id -u)" = 0 ] && id nobody >/dev/null 2>&1; then
        check_matches "socket: another user is not let in by the file's mode" "$(speak nobody hello)" "no connection: Permission denied"
        chmod 666 "$WORK/run/cell1.sock"
        check_equal "socket: nor by the cell when that is gone" "$(speak nobody hello)" "closed"
        chmod 600 "$WORK/run/cell1.sock"
    else
        skip "socket: another user's connection needs root and nobody"
    fi
    for case in garbage version length kind; do
        check_equal "socket: $case is answered with an error" "$(speak user "$case")" "Error closed"
    done
    for case in request early; do
        check_equal "socket: $case is answered with an error" "$(speak user "$case")" "Welcome Error closed"
    done
    check_equal "socket: a cut frame ends just the connection" "$(speak user cut)" "Welcome closed"
    wanted=$(statistic whole "$eligible")
    check_equal "socket: and the cell lives on" "$(smart whole postgres -c "$query")" "$before"
    check "socket: with Smart Scans" test "$(statistic whole "$eligible")" -gt "$wanted"
}

# flip FILE OFFSET: one byte of a file of the whole cluster, in the backing file of the cell disk that holds it.
flip() {
    local disk backing byte found=0
    for disk in "$WORK"/cell1-disk*; do
        backing=$(printf '%s/data/%02x/%016x' "$disk" "$(($1 & 255))" "$1")
        [ -e "$backing" ] || continue
        # Where the allocation unit lies on another disk there is a hole.
        [ "$(od -An -tx1 -j "$(($2 / 8192 * 8192))" -N 8192 "$backing" | tr -d ' 0\n*' | wc -c)" -gt 0 ] || continue
        byte=$(od -An -tu1 -j "$2" -N 1 "$backing")
        printf '%b' "\\0$(printf '%03o' "$((byte ^ 255))")" | dd of="$backing" bs=1 seek="$2" conv=notrunc status=none
        found=$((found + 1))
    done
    [ "$found" = 1 ] || die "byte $2 of inode $1 was found on $found disks"
}
# error_of NAME off|on STATEMENT: its rows and error, without what differs from run to run.
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
            check_matches "corrupt: $query has a Smart Scan" "$(smart whole postgres -c "EXPLAIN $query")" "Smart Scan"
            off=$(error_of whole off "$query")
            on=$(error_of whole on "$query")
            check_matches "corrupt: $query" "$on" "ERROR: +XX001: invalid page in block ${table#*:} of relation"
            check_equal "corrupt: and the same with Smart Scan off" "$off" "$on"
        done
    done
    before=$(statistic whole "$eligible")
    check_equal "corrupt: another table is as it was" "$(smart whole postgres -c "SELECT count(*), sum(id) FROM sound WHERE grp = 3")" "${sound[0]}"
    check "corrupt: by a Smart Scan" test "$(statistic whole "$eligible")" -gt "$before"
    query="SELECT count(*), sum(id), max(note) FROM damaged_row WHERE note > 'a'"
    check_equal "corrupt: with ignore_checksum_failure the rows are the same, off and on" \
        "$(error_of whole on "SET ignore_checksum_failure = on; $query")" "$(error_of whole off "SET ignore_checksum_failure = on; $query")"
}

scenario_compare() {
    local mode
    part_cluster
    for mode in off on; do
        sql part postgres -c "CREATE DATABASE compare_$mode"
        sql part "compare_$mode" -v space=cell -f "$here/compare/setup.sql"
        if sql part "compare_$mode" -v space=cell -v mode=$mode -f "$here/compare/run.sql" >"$WORK/compare-$mode.log" 2>&1; then
            ok "compare: runs with Smart Scan $mode"
        else
            not_ok "compare: runs with Smart Scan $mode"
            tail -n 5 "$WORK/compare-$mode.log" | sed 's/^/    /'
        fi
        check "compare: with Smart Scan $mode rows came from where they should" bash -c "! grep -B 12 WRONG '$WORK/compare-$mode.log'"
    done
    check "compare: the same rows, off and on" diff "$WORK/compare-off.log" "$WORK/compare-on.log"
    check "compare: there were as many checks of the source as expected" test "$(grep -c 'as wanted$' "$WORK/compare-on.log")" -ge 14
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
    check_equal "simulation: the answer is the same" "${on%%$'\n'*}" "${off%%$'\n'*}"
    check_matches "simulation: the whole table counts as eligible" "$on" "cell simulated physical IO bytes eligible for predicate offload=$bytes"
    returned=$(sed -n 's/^cell simulated physical IO bytes returned.*=//p' <<<"$on")
    check "simulation: returned are some bytes ($returned) and fewer" test "$returned" -gt 0 -a "$returned" -lt "$((bytes / 2))"
    check_matches "simulation: which no cell counts" "$on" "$eligible=0"
    check_matches "simulation: without it nothing is counted" "$off" "cell simulated physical IO bytes eligible for predicate offload=0"
}

# big_table: larger than what a connection's buffers hold; nothing of it is dirty.
big='SELECT count(*), sum(id), sum(length(note)) FROM big WHERE grp < 9'
big_table() {
    part_cluster
    if [ -n "$(sql part postgres -c "SELECT to_regclass('big')")" ]; then return; fi
    sql part postgres -c "CREATE TABLE big TABLESPACE cell AS SELECT g AS id, g % 10 AS grp, repeat('b', 300) AS note FROM generate_series(1, 120000) g" \
        -c "VACUUM (FREEZE, ANALYZE) big" -c "CHECKPOINT"
    compress part big
}
# A scan that stops before its end counts what it took, and no more.
scenario_abandoned() {
    local size counted passthru='cell num smart IO sessions using passthru mode due to cellsrv'
    big_table
    size=$(sql part postgres -c "SELECT pg_relation_size('big')")
    # counted_by NAME STATEMENTS: how much they add to a statistic of a new session.
    counted_by() {
        session reader part
        run reader "$2" >"$WORK/abandoned.log"
        run reader "SELECT value FROM cellar.mystat WHERE name = '$1';"
        session_end reader
    }
    check_equal "abandoned: a whole scan counts the table" "$(counted_by "$eligible" "$big;")" "$size"
    for counted in "SELECT * FROM big WHERE grp < 9 LIMIT 10;" \
        "BEGIN; DECLARE c CURSOR FOR SELECT * FROM big WHERE grp < 9; FETCH 10 FROM c; COMMIT;" \
        "SELECT sum(1 / (id - 1000)) FROM big WHERE note <> '';"; do
        check_matches "abandoned: a part is counted of ${counted:0:33}…" "$(counted_by "$eligible" "$counted")" '^[1-9][0-9]*$'
        check "abandoned: that is no more than half" test "$(counted_by "$eligible" "$counted")" -lt $((size / 2))
    done
    check_matches "abandoned: EXPLAIN shows it" "$(smart part postgres -c "EXPLAIN ANALYZE SELECT * FROM big WHERE grp < 9 LIMIT 10")" \
        'Cell IO: eligible=[1-9][0-9]*kB returned=[1-9]'
    check_equal "abandoned: no block was passed through" "$(counted_by "$passthru" "$big;")" 0
    check_equal "abandoned: a scan that had some counts once" \
        "$(counted_by "$passthru" "BEGIN; UPDATE big SET note = 'x' WHERE id % 1000 = 0; $big; ROLLBACK;")" 1
}

# A daemon that stands still: queries wait, but can be ended; a backend that gets no connection does without the cell.
scenario_stopped() {
    local wanted pid answer started reason in out crowd
    big_table
    wanted=$(off part postgres -c "$big")
    session reader part
    check_equal "stopped: before it" "$(run reader "$big;")" "$wanted"
    pid=$(run reader "SELECT pg_backend_pid();")
    kill -STOP "$CELL_PID"
    started=$SECONDS
    check_matches "stopped: statement_timeout ends a query" "$(run reader "SET statement_timeout = '1s'; $big;" 30)" 'ERROR: +57014'
    check_matches "stopped: and the next one, which has to connect" "$(run reader "$big;" 30)" 'ERROR: +57014'
    tell reader "RESET statement_timeout; $big;"
    sleep 1
    check_equal "stopped: a query waits for the cell" \
        "$(sql part postgres -c "SELECT state FROM pg_stat_activity WHERE pid = $pid")" active
    sql part postgres -c "SELECT pg_cancel_backend($pid)" >/dev/null
    answer=$(answer reader 30) || true
    check_matches "stopped: until it is cancelled" "$answer" 'ERROR: +57014'
    check "stopped: all that took $((SECONDS - started)) s" test "$((SECONDS - started))" -le 15

    if reason=$(perl -MSocket -e 1 2>&1); then
        mkfifo "$WORK/crowd.in" "$WORK/crowd.out"
        perl "$here/crowd.pl" "$WORK/run/cell2.sock" <"$WORK/crowd.in" >"$WORK/crowd.out" 2>&1 &
        crowd=$!
        remember_process $crowd
        exec {in}>"$WORK/crowd.in" {out}<"$WORK/crowd.out"
        IFS= read -r -t 30 -u "$out" reason || true
        check_matches "stopped: the queue of connections is full" "$reason" '^[1-9][0-9]*$'
        check_matches "stopped: statement_timeout ends a query that gets no connection" \
            "$(run reader "SET statement_timeout = '500ms'; $big;" 30)" 'ERROR: +57014'
        tell reader "RESET statement_timeout; $big;"
        answer=$(answer reader 6) || true
        check_matches "stopped: a query that gets none goes on without the cell" "$answer" 'WARNING: +08001: could not use the cell'
        kill -CONT "$CELL_PID"
        # Unless all of the file was cached, it had to wait for the file service.
        [[ $answer != *"no answer in"* ]] || answer=$(answer reader)
        check_equal "stopped: to the right end" "${answer##*$'\n'}" "$wanted"
        exec {in}>&- {out}<&-
        wait_gone "$crowd" 10
    else
        skip "stopped: a full queue needs perl: $reason"
        kill -CONT "$CELL_PID"
    fi
    check_equal "stopped: when the cell goes on, the session is right" "$(run reader "$big;")" "$wanted"
    check_equal "stopped: and every other one" "$(smart part postgres -c "$big")" "$wanted"
    session_end reader
}

# Two cells serve one cluster.
scenario_cells() {
    local first wanted query before signal
    big_table
    first=$CELL_PID
    cell_configure cell3 128MiB
    cell_start cell3
    mkdir -p "$WORK/cell3/space"
    [ "$(id -u)" != 0 ] || chown "$OS_USER" "$WORK/cell3/space"
    sql part postgres -c "CREATE TABLESPACE third LOCATION '$WORK/cell3/space'"
    check_equal "cells: both are shown at once" "$(sql part postgres -c "SELECT regexp_replace(socket_path, '.*/', ''), relations FROM cellar.cells() ORDER BY 1")" \
        $'cell2.sock|1\ncell3.sock|0'
    sql part postgres -c "CREATE TABLE third TABLESPACE third AS SELECT id, grp, repeat('c', 200) AS note FROM big WHERE id % 2 = 0" \
        -c "CREATE TABLE split (id int, grp int, note text) PARTITION BY LIST (grp)" \
        -c "CREATE TABLE split_2 PARTITION OF split FOR VALUES IN (0, 1, 2, 3, 4) TABLESPACE cell" \
        -c "CREATE TABLE split_3 PARTITION OF split DEFAULT TABLESPACE third" -c "INSERT INTO split SELECT * FROM big" \
        -c "VACUUM (FREEZE, ANALYZE) third, split"
    compress part third split
    check_equal "cells: each with its tables" "$(sql part postgres -c "SELECT regexp_replace(socket_path, '.*/', ''), relations, bytes > 0 FROM cellar.cells() ORDER BY 1")" \
        $'cell2.sock|2|t\ncell3.sock|2|t'
    for query in "SELECT count(*), sum(b.id), sum(length(t.note)) FROM big b JOIN third t USING (id) WHERE b.grp < 9 AND t.grp > 2" \
        "SELECT count(*), sum(id), sum(length(note)) FROM split WHERE note LIKE '%b%'"; do
        before=$(statistic part "$scanned")
        wanted=$(off part postgres -c "$query")
        check_equal "cells: one query over both" "$(smart part postgres -c "$query")" "$wanted"
        check "cells: scans on both" test $(($(statistic part "$scanned") - before)) -ge \
            "$(sql part postgres -c "SELECT min(pg_relation_size(c)) FROM unnest('{third,split_2,split_3}'::regclass[]) c")"
    done
    check_equal "cells: both file services count" \
        "$(sql part postgres -c "SELECT count(DISTINCT cell) FROM cellar.file_io WHERE operations > 0")" 2
    for signal in TERM KILL; do
        kill -$signal "$CELL_PID"
        wait_gone "$CELL_PID" 30
        check_equal "cells: while one is down, the other serves" "$(smart part postgres -c "$big" 2>&1)" "$(off part postgres -c "$big")"
        cell_back cell3
        check_equal "cells: then both again" "$(smart part postgres -c "$query")" "$wanted"
    done
    sql part postgres -c "DROP TABLE third, split" -c "DROP TABLESPACE third"
    check "cells: the second one stops and unmounts" cell_stop cell3
    CELL_PID=$first
}

# Cell, initdb and Postgres as one ordinary user, who mounts through fusermount3.
scenario_one_user() {
    if [ "$(id -u)" = 0 ]; then one_user_from_root; else one_user; fi
}

# As root the scenario runs this script again as the cluster's user, in a mount namespace where that user may open
# /dev/fuse, with copies of what it needs.
one_user_from_root() {
    local tree=$WORK/one-user child
    if ! [ -u "$(command -v fusermount3)" ]; then skip "one user: fusermount3 is not there, or not setuid root"; return; fi
    if ! unshare --mount true 2>/dev/null; then skip "one user: no mount namespace can be made here"; return; fi
    mkdir -p "$tree/scripts" "$tree/tests/robust"
    cp "$ROOT"/scripts/*.sh "$tree/scripts/"
    cp "$here/run.sh" "$tree/tests/robust/"
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
        skip "one user: no mounts of its own are allowed here: $(tail -n 1 "$WORK/one-user.log")"
    else
        count_lines <"$WORK/one-user.log"
        not_ok "one user: the scenario ends well"
    fi
}

one_user() {
    local wanted own=$WORK/own/pgdata query="SELECT count(*), sum(id), sum(length(note)) FROM big WHERE grp < 9"
    if ! [ -r /dev/fuse ] || ! [ -w /dev/fuse ]; then skip "one user: $(id -un) may not open /dev/fuse"; return; fi
    if ! command -v fusermount3 >/dev/null; then skip "one user: there is no fusermount3"; return; fi
    part_end
    whole_end
    cell_configure own 128MiB
    cell_start own
    ok "one user: $(id -un) starts a cell"
    check "one user: runs initdb on it" cluster_create own "$own" --data-checksums
    cluster_set "$own" "shared_preload_libraries = 'cellar'" "cellar.min_scan_size = 0" "cellar.cost_factor = 0" "shared_buffers = 32MB"
    cluster_start own "$own"
    sql own postgres -c "CREATE EXTENSION cellar" -c "CREATE TABLE big AS SELECT g AS id, g % 10 AS grp, repeat('u', 300) AS note FROM generate_series(1, 60000) g" \
        -c "VACUUM (FREEZE, ANALYZE) big"
    compress own big
    wanted=$(off own postgres -c "$query")
    one_user_query() {
        local before
        before=$(statistic own "$eligible")
        check_equal "one user: $1, with Smart Scan" "$(smart own postgres -c "$query")" "$wanted"
        check "one user: $1, it was one" test "$(statistic own "$eligible")" -gt "$before"
        check_equal "one user: $1, without" "$(off own postgres -c "$query")" "$wanted"
    }
    one_user_query "at first"
    check "one user: Postgres stops" cluster_stop own
    check "one user: the cell stops and unmounts" cell_stop own
    cell_start own
    cluster_start own "$own"
    one_user_query "started again"
    sql own postgres -c "INSERT INTO big SELECT g, 1, 'late' FROM generate_series(1, 1000) g"
    wanted=$(off own postgres -c "$query")
    cell_kill
    cluster_stop own QUIT
    cell_start own
    cluster_start own "$own"
    one_user_query "after kill -9 of the cell"
    check "one user: Postgres stops again" cluster_stop own
    check "one user: and the cell" cell_stop own
}

cell_restart() {
    if [ "$1" = KILL ]; then cell_kill; else kill -TERM "$CELL_PID" && wait_gone "$CELL_PID" 30; fi
    cell_back
}

# cell_back [NAME]: starts the second cell, or the named one, again; the server then ends its sessions, whose open files belong to the mount before,
# and recovers.
cell_back() {
    local log=$WORK/part-postgres.log before tries
    before=$(grep -c "has restarted" "$log" || true)
    cell_start "${1:-cell2}"
    for ((tries = 0; tries < 300; tries++)); do
        [ "$(grep -c "has restarted" "$log" || true)" = "$before" ] || break
        sleep 0.1
    done
    check "the server notices that the cell was started anew" test "$tries" -lt 300
    for ((tries = 0; tries < 300; tries++)); do
        if sql part postgres -c "SELECT 1" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    not_ok "the server is there again"
}

# ended DESCRIPTION SESSION: the session's server process is gone.
ended() {
    check_matches "$1" "$(run "$2" "SELECT 'still here';" 10)" 'terminating connection|server closed the connection|no connection to the server'
    session_end "$2"
}

scenario_restart() {
    local wanted before signal
    big_table
    wanted=$(off part postgres -c "$big")
    session steady part
    check_equal "restart: a session's first query" "$(run steady "$big;")" "$wanted"
    for signal in TERM KILL; do
        cell_restart $signal
        ended "restart: SIG$signal ends the sessions of before" steady
        session steady part
        before=$(statistic part "$eligible")
        check_equal "restart: the next query" "$(run steady "$big;")" "$wanted"
        check "restart: is a Smart Scan" test "$(statistic part "$eligible")" -gt "$before"
        check_equal "restart: a new session without Smart Scan" "$(off part postgres -c "$big")" "$wanted"
    done
    session_end steady
}

scenario_death() {
    local wanted before started answer
    big_table
    wanted=$(off part postgres -c "$big")
    session reader part
    session other part
    check_equal "death: before it" "$(run reader "$big;")" "$wanted"
    check_equal "death: before it, another session" "$(run other "$big;")" "$wanted"

    run reader "BEGIN; DECLARE c CURSOR FOR SELECT * FROM big WHERE grp < 9 AND note <> ''; EXPLAIN SELECT * FROM big WHERE grp < 9 AND note <> '';" >"$WORK/death-plan.log"
    check "death: the cursor is a Smart Scan" grep -q "Smart Scan" "$WORK/death-plan.log"
    run reader "FETCH 10 FROM c \\g /dev/null"
    cell_kill
    started=$SECONDS
    answer=$(run reader "FETCH ALL FROM c \\g /dev/null" 30)
    check_matches "death: a cursor over it ends with a clear error" "$answer" 'ERROR: +[0-9A-Z]{5}: could not complete the Smart Scan of table "big"'
    check "death: after $((SECONDS - started)) s" test "$((SECONDS - started))" -le 10
    answer=$(run other "$big;" 30)
    right_or_error "death: while the cell is down" "$answer" "$wanted"
    cell_back
    ended "death: the session has ended" reader
    ended "death: and the other one" other
    session reader part
    before=$(statistic part "$eligible")
    check_equal "death: the next query" "$(run reader "$big;")" "$wanted"
    check_equal "death: and one more" "$(run reader "$big;")" "$wanted"
    check "death: are Smart Scans" test "$(statistic part "$eligible")" -gt "$before"

    tell reader "SELECT count(*), count(pg_sleep(0.0005)), sum(length(note)) FROM big WHERE grp < 9;"
    sleep 2
    cell_kill
    answer=$(answer reader 30) || true
    check_matches "death: a query in the middle of it ends with a clear error" "$answer" 'ERROR: +[0-9A-Z]{5}: could not complete the Smart Scan of table "big"'
    cell_back
    ended "death: the session has ended again" reader
    check_equal "death: the next query is right" "$(smart part postgres -c "$big")" "$wanted"
}

# changed WHAT TABLE WANTED: the session "old" has ended, and everyone sees the table's wanted rows.
changed() {
    local query="SELECT count(*), sum(id), count(*) FILTER (WHERE note LIKE 'new%') FROM $2 WHERE note <> ''"
    ended "$1: a session from before has ended" old
    check_equal "$1: with Smart Scan" "$(smart part postgres -c "$query" 2>&1 || true)" "$3"
    check_equal "$1: without" "$(off part postgres -c "$query" 2>&1 || true)" "$3"
}

# What the end of its cell must not take from a Postgres that lives on.
scenario_lost_writes() {
    part_cluster
    sql part postgres -c "CREATE TABLE written TABLESPACE cell AS SELECT g AS id, repeat('x', 100) AS note FROM generate_series(1, 20000) g" \
        -c "VACUUM written" -c "CHECKPOINT"
    compress part written
    sql part postgres -c "UPDATE written SET note = 'new' || note WHERE id <= 10000" \
        -c "INSERT INTO written SELECT g, 'more' FROM generate_series(20001, 30000) g"
    check_equal "lost writes: before" "$(smart part postgres -c "SELECT count(*) FROM written WHERE note <> ''")" 30000
    session old part
    cell_restart KILL
    changed "lost writes" written "30000|450015000|10000"
    # A checkpoint that succeeds has to have made durable what the first daemon had been given.
    sql part postgres -c "CHECKPOINT" || true
    cluster_stop part
    cluster_start part "$WORK/part-data"
    check_equal "lost writes: after a restart of Postgres" "$(off part postgres -c "SELECT count(*), sum(id), count(*) FILTER (WHERE note LIKE 'new%') FROM written WHERE note <> ''" 2>&1)" "30000|450015000|10000"
}
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
# A session from before must not read pages of the dead mount into the buffers that all share.
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

for scenario in "${scenarios[@]}"; do
    declare -F "scenario_$scenario" >/dev/null || die "there is no scenario $scenario"
    say "# $scenario ($SECONDS s)"
    "scenario_$scenario"
done
whole_end
part_end
if grep -hsE 'PANIC|server process .* was terminated by signal' "$WORK"/*-postgres.log; then
    not_ok "no backend crashed"
else
    ok "no backend crashed"
fi
checks_end
