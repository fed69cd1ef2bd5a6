#!/usr/bin/env bash
# PostgreSQL's own regression and isolation suites, on a cluster whose data directory is on a cell's mount.
#
# Each suite runs three times. Run 1, with Smart Scan off, must pass as shipped, which tests the file service. Run 2 prefers
# Smart Scan for every scan, and its output is compared with that of run 1. Run 3 also compresses tables at random levels,
# and its output is compared with that of run 2. README.md describes which differences are allowed and excused.txt lists them.
# The suites run side by side, each on its own cluster: the isolation suite mostly waits. The regression suite is reported first.
#
#   run.sh [--plain] [--suite regress|isolation|both] [--seed N] [--rounds N] [--share PERCENT] [--update] [--keep-results FOLDER]
#     --plain                 run 1 only, on an ordinary cluster without a cell (tests the harness)
#     --suite                 run only this suite
#     --seed                  seed of the compression levels
#     --rounds                repetitions of run 3, each with other levels and other compressed places (default 1)
#     --share                 percentage of the places of run 3 at which tables are compressed (default 25)
#     --update                write the differences to excused.txt instead of failing
#     --keep-results FOLDER   copy all outputs and logs to FOLDER
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

# excused.txt was written with this major version.
LISTED_MAJOR=15
plain=0 rounds=1 share=25 seed=${SEED:-$((RANDOM * 32768 + RANDOM))} suites=(regress isolation) update=() results=
while [ $# -gt 0 ]; do
    case $1 in
    --plain) plain=1 ;;
    --suite) [ "$2" = both ] || suites=("$2"); shift ;;
    --seed) seed=$2; shift ;;
    --rounds) rounds=$2; shift ;;
    --share) share=$2; shift ;;
    --update) update=(--update) ;;
    --keep-results) results=$2; shift ;;
    *) die "unknown option $1" ;;
    esac
    shift
done

unlisted=()
[ "$PG_MAJOR" = $LISTED_MAJOR ] || unlisted=(--unlisted)

PGXS_TEST=$(dirname "$("$PG_CONFIG" --pgxs)")/../test
source_tree=$("$ROOT/scripts/postgres-source.sh")
work_begin regress

# Prepares the suites' sources, regress.so, and links to two contrib libraries of the server.
prepare() {
    cp -r "$source_tree/src/test/regress" "$source_tree/src/test/isolation" "$WORK/"
    mkdir -p "$WORK/lib" "$WORK/isolation/specs" "$WORK/isolation/expected"
    cc -O2 -shared -fPIC -I"$("$PG_CONFIG" --includedir-server)" -I"$WORK/regress" \
        -o "$WORK/lib/regress.so" "$WORK/regress/regress.c"
    ln -sf "$("$PG_CONFIG" --pkglibdir)"/{autoinc,refint}.so "$WORK/lib/"
    chmod -R a+rX "$WORK/lib"
    [ "$(id -u)" != 0 ] || chown -R "$OS_USER" "$WORK/regress" "$WORK/isolation"
}

# suite NAME RUN [SCRIPTS]: runs one suite, as shipped or with modified scripts, and writes its outputs to $WORK/NAME-RUN. The
# cluster has the name of the suite, and for the reference run that of the run.
suite() {
    local name=$1 run=$2 input=${3:-$WORK/$1} output=$WORK/$1-$2 cluster=$1 program options=()
    [ "$run" != reference ] || cluster=$name-reference
    case $name in
    regress) program=$PGXS_TEST/regress/pg_regress
        options=(--schedule="$WORK/regress/parallel_schedule" --dbname=regression --max-concurrent-tests=20) ;;
    isolation) program=$PGXS_TEST/isolation/pg_isolation_regress
        options=(--schedule="$WORK/isolation/isolation_schedule" --dbname=isolation_regression) ;;
    esac
    mkdir -p "$output"
    [ "$(id -u)" != 0 ] || chown "$OS_USER" "$output"
    (cd "$output" && as_pg env PATH="$WORK/lib:$PG_BIN:$PATH" "$program" --bindir="$PG_BIN" --inputdir="$input" \
        --outputdir="$output" --dlpath="$WORK/lib" --host="$WORK/run" --port="$(cluster_port "$cluster")" \
        --user=postgres "${options[@]}") >"$WORK/$name-$run.log" 2>&1
}

# These parse both report formats of pg_regress: its own until PostgreSQL 15, TAP since 16.
failed_tests() { sed -nE 's/^(test|    | \+)? *([a-z0-9_.-]+) +\.\.\. FAILED.*/\2/p; s/^not ok [0-9]+ +[-+] ([a-z0-9_.-]+).*/\1/p' "$1"; }
passed_tests() { sed -nE 's/^(test|    | \+)? *([a-z0-9_.-]+) +\.\.\. ok .*/\2/p; s/^ok [0-9]+ +[-+] ([a-z0-9_.-]+).*/\1/p' "$1"; }

# The run on an ordinary cluster without Cellar.
reference() {
    local cluster=$1-reference
    suite_cluster "$cluster" "$WORK/$cluster-data"
    cluster_start "$cluster" "$WORK/$cluster-data"
    suite "$1" reference || true
    cluster_stop "$cluster"
}

# Checks run 1. The suite's source may be of another minor version than the server, since archives keep few versions. A test
# that fails as shipped must then give the same output, byte for byte, as on an ordinary cluster.
shipped_green() {
    local name=$1 test wrong=() version=() passed reported
    suite "$name" off || true
    passed=$(passed_tests "$WORK/$name-off.log" | wc -l)
    # The number of failures that the report states must match the number of failed tests parsed from it.
    reported=$(sed -nE 's/^[# ]*([0-9]+) of [0-9]+ tests failed.*/\1/p' "$WORK/$name-off.log")
    grep -qE "All [0-9]+ tests passed|of [0-9]+ tests failed" "$WORK/$name-off.log" || wrong+=("the run did not finish")
    if [ "${reported:-0}" != "$(failed_tests "$WORK/$name-off.log" | wc -l)" ]; then wrong+=("${reported:-0} according to the report"); fi
    if [ "${reported:-0}" != 0 ] && [ "$source_version" != "$server_version" ]; then
        say "the tests are from version ${source_version:-unknown}, the server is $server_version: running them on an ordinary cluster, too"
        reference "$name"
    fi
    for test in $(failed_tests "$WORK/$name-off.log"); do
        if cmp -s "$WORK/$name-reference/results/$test.out" "$WORK/$name-off/results/$test.out"; then
            version+=("$test")
        else
            wrong+=("$test")
        fi
    done
    if [ "$passed" -gt 0 ] && [ ${#wrong[@]} = 0 ]; then
        ok "PostgreSQL's $name suite: $passed tests pass as shipped${version:+, ${#version[@]} give the same output as on an ordinary cluster of this minor version (${version[*]})}"
    else
        not_ok "PostgreSQL's $name suite passes as shipped: failed: ${wrong[*]:-all, see $name-off.log}"
        cp "$WORK/$name-off/regression.diffs" "$WORK/regression.$name.diffs" 2>/dev/null || true
        head -n 60 "$WORK/$name-off/regression.diffs" 2>/dev/null || tail -n 20 "$WORK/$name-off.log"
    fi
}

# compared SUITE RUN RUN [OPTION...]: compares the outputs of two runs. SUITE is the name in excused.txt.
compared() {
    local suite=$1 off=$2 on=$3 log=$WORK/$1-compared.log
    shift 3
    "$HARNESS_BIN" regress-compare --suite "$suite" --off "$WORK/$off/results" --on "$WORK/$on/results" \
        --excused "$ROOT/tests/regress/excused.txt" "$@" >"$log" || true
    count_lines <"$log"
    [ -s "$log" ] || not_ok "$suite suite: the comparison produced a result"
}

# Run 3 of the regression suite: injects lines into its scripts that compress tables.
regress_compressed() {
    local compressed=$WORK/regress-scripts log=$WORK/compressions.log decoded
    say "# compressed, seed $seed ($SECONDS s)"
    rm -rf "$compressed" "$log" "$WORK/regress-compressed"
    decoded=$(decoded_bytes regress)
    mkdir "$compressed" "$compressed/sql"
    ln -s "$WORK"/regress/{data,expected,parallel_schedule} "$compressed/"
    "$HARNESS_BIN" regress-inject --scripts "$WORK/regress/sql" --to "$compressed/sql" --seed "$seed" --places "$places" --share "$share" \
        --left-alone "$ROOT/tests/regress/left-alone.txt" || { not_ok "regress suite, compressed: lines can be injected into its scripts"; return 0; }
    # The injected lines execute the program "compress".
    cp "$HARNESS_BIN" "$WORK/lib/"
    printf '#!/bin/sh\nexec "%s" --dsn "%s" regress-compress --log "%s" "$@" >>"%s" 2>&1 </dev/null\n' \
        "$WORK/lib/$(basename "$HARNESS_BIN")" "$(cluster_dsn regress regression)" "$log" "$log" >"$WORK/lib/compress"
    chmod 755 "$WORK/lib/compress" "$WORK/lib/$(basename "$HARNESS_BIN")"
    : >"$log"
    chmod 666 "$log"
    suite regress compressed "$compressed" || true
    compared compressed regress-on regress-compressed --compressed
    "$HARNESS_BIN" regress-compressed --log "$log" --require-compressed $((3 * share)) >"$WORK/compressed.log" || true
    count_lines <"$WORK/compressed.log"
    [ -s "$WORK/compressed.log" ] || not_ok "regress suite, compressed: the summary produced a result"
    decoded=$(($(decoded_bytes regress) - decoded))
    check "Smart Scans read compression units in the suite, $((decoded >> 20)) MiB less than the heap" test "$decoded" -gt $((64 << 20))
}

# Run 3 of the isolation suite: adds a setup to each of its tests that compresses tables.
isolation_compressed() {
    local compressed=$WORK/isolation-scripts spec test made decoded
    say "# isolation, compressed, seed $seed ($SECONDS s)"
    decoded=$(decoded_bytes isolation)
    rm -rf "$compressed" "$WORK/isolation-compressed"
    mkdir -p "$compressed/specs"
    ln -s "$WORK"/isolation/{expected,isolation_schedule} "$compressed/"
    for spec in "$WORK"/isolation/specs/*.spec; do
        test=$(basename "$spec" .spec)
        if grep -q "^$test \* " "$ROOT/tests/regress/left-alone.txt"; then
            cp "$spec" "$compressed/specs/"
            continue
        fi
        awk -v folder="$ROOT/tests/regress" -v seed="$seed" -v test="$test" -v share="$share" '
            function put(file, line) {
                while ((getline line <file) > 0) {
                    gsub("@SEED@", seed, line)
                    gsub("@TEST@", test, line)
                    gsub("@SHARE@", share, line)
                    if (line ~ /@FUNCTIONS@/) put(folder "/functions.sql"); else print line
                }
            }
            !done && /^(teardown|session)/ { put(folder "/compressed.spec"); done = 1 }
            { print }' "$spec" >"$compressed/specs/${spec##*/}"
    done
    suite isolation compressed "$compressed" || true
    compared isolation-compressed isolation-on isolation-compressed --compressed
    made=$(sql isolation isolation_regression -c "SELECT count(*) FILTER (WHERE units > 0) FROM cellar_test.log" || true)
    check "the isolation suite's tables were compressed at least $((10 * share)) times (${made:-0})" test "${made:-0}" -ge $((10 * share))
    decoded=$(($(decoded_bytes isolation) - decoded))
    check "Smart Scans read compression units in the isolation suite, $((decoded >> 10)) KiB less than the heap" test "$decoded" -gt $((share * 20 << 10))
}

# decoded_bytes CLUSTER: the bytes that Smart Scans did not have to read because blocks were in compression units.
decoded_bytes() {
    sql "$1" postgres -c "CREATE EXTENSION IF NOT EXISTS cellar" -c "
        SELECT sum(value * CASE name WHEN 'cell physical IO bytes eligible for predicate offload' THEN -1 ELSE 1 END)
        FROM cellar.sysstat WHERE name IN ('cell IO uncompressed bytes', 'cell physical IO bytes saved by storage index',
                                           'cell physical IO bytes eligible for predicate offload')" 2>/dev/null
}

suite_cluster() {
    cluster_create "$1" "$2" --data-checksums
    # Each compression needs a background worker.
    cluster_set "$2" "max_worker_processes = 40" "max_prepared_transactions = 10" "autovacuum_naptime = 1d" "fsync = off" "max_wal_size = 8GB"
}

# runs NAME FOLDER: all runs of one suite, on a new cluster in the folder.
runs() {
    local name=$1 data=$2 places
    suite_cluster "$name" "$data"
    # compute_query_id = regress: statistics of statements need query identifiers, which EXPLAIN must not show here.
    [ "$plain" = 1 ] || cluster_set "$data" "compute_query_id = regress" "shared_preload_libraries = 'cellar'" "cellar.cell_offload_processing = off" "cellar.auto_compression = off"
    cluster_start "$name" "$data"
    shipped_green "$name"
    [ "$plain" = 0 ] || return 0
    cluster_set "$data" "cellar.cell_offload_processing = on" "cellar.min_scan_size = 0" "cellar.cost_factor = 0"
    sql "$name" postgres -c 'SELECT pg_reload_conf()' >/dev/null
    # Ignore the suite's own result: the comparison below is stricter on rows.
    suite "$name" on || true
    compared "$name" "$name-off" "$name-on" "${update[@]}" "${unlisted[@]}"
    for ((places = 1; places <= rounds; places++, seed++)); do "${name}_compressed"; done
    check "Smart Scans ran in the $name suite" test "$(sql "$name" postgres -c "CREATE EXTENSION IF NOT EXISTS cellar" -c "SELECT value FROM cellar.sysstat WHERE name = 'cell physical IO bytes eligible for predicate offload'")" -gt 0
    if grep -nE 'PANIC|server process .* was terminated by signal' "$WORK/$name-postgres.log" >"$WORK/$name-panics.log"; then
        not_ok "no backend crashed in the $name suite: $(head -n 3 "$WORK/$name-panics.log")"
    else
        ok "no backend crashed in the $name suite"
    fi
    check "Postgres stops after the $name suite" cluster_stop "$name"
}

prepare
server_version=$("$PG_CONFIG" --version | sed 's/^PostgreSQL \([0-9.]*\).*/\1/')
source_version=$(cat "$source_tree/VERSION" 2>/dev/null || true)
folder=$WORK/data
if [ "$plain" = 0 ]; then
    extension_installed || die "the extension is not installed: run scripts/build.sh extension"
    cell_configure cell1
    cell_start cell1
    folder=$WORK/cell1
fi
# With --update, each suite rewrites excused.txt.
if [ ${#suites[@]} = 2 ] && [ ${#update[@]} = 0 ]; then
    (
        trap - EXIT
        runs isolation "$folder/isolation"
        checks_end
    ) >"$WORK/isolation-suite.log" 2>&1 &
    other=$!
    remember_process $other
    runs regress "$folder/regress"
    wait $other || CHECKS_FAILED=$((CHECKS_FAILED + 1))
    cat "$WORK/isolation-suite.log"
else
    for name in "${suites[@]}"; do runs "$name" "$folder/$name"; done
fi
[ "$plain" = 1 ] || check "the cell stops and unmounts" cell_stop cell1
if [ -n "$results" ]; then
    mkdir -p "$results"
    cp -r "$WORK"/*-{off,on,compressed} "$WORK"/*.log "$results/" 2>/dev/null || true
fi
checks_end
