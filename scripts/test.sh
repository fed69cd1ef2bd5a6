#!/usr/bin/env bash
# Runs the stages of `make test`. All stages run, also after a failure; the last line is "N passed, N failed".
#
#   test.sh [STAGE[+STAGE] ...]   format lint docs unit extension smart_scan robust compression awr regress crash flash fuzz; stages
#                                 joined by + run side by side, the output of the second follows that of the first
#   test.sh check                 the stages of `make check`: format lint docs unit extension
#   test.sh pjdfstest             the POSIX test suite pjdfstest on a cell's mount; PJDFSTEST names its built tree
#
# SEED is the seed of the random tests. The default is a fixed seed, so that a failure can be repeated; with LONG=1, and for a
# test that is run on its own, the default is a random seed.
# LONG=1 gives the random and crash tests more time, adds the stage fuzz, and builds in the profile release instead of tests
# (CELLAR_PROFILE).
# TIME_FACTOR=4 multiplies the time limits of the stages, for a busy machine. After a failure, the folder of the logs is
# printed.
# PG_REGRESS names a pg_regress to use instead of that of PG_CONFIG's installation.
set -uo pipefail
profile=${CELLAR_PROFILE:-}
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
set +e
cd "$ROOT" || exit 1
[ -n "${LONG:-}" ] || export SEED=${SEED:-7}

stages=("$@")
[ "$*" != check ] || stages=(format lint docs unit extension)
# Stages that often wait run side by side: the tests of unit wait and use one CPU, while extension and lint compile. awr measures
# times.
if [ $# = 0 ]; then
    stages=(format docs unit+extension+lint smart_scan+robust awr regress+compression+crash+flash)
    # The fuzz targets take minutes to build.
    [ -z "${LONG:-}" ] || stages+=(fuzz)
fi
# The stage extension builds the programs. Without it, the stages use those of the last build.
if [[ +$(IFS=+; printf '%s' "${stages[*]}")+ == *+extension+* ]]; then
    [ -n "$profile" ] || profile=$([ -n "${LONG:-}" ] && printf release || printf tests)
    export CELLAR_PROFILE=$profile
fi
CELLAR_LOGS=$(mktemp -d "${TMPDIR:-/tmp}/cellar-test-logs.XXXXXX")
chmod 755 "$CELLAR_LOGS"
export CELLAR_LOGS CELLAR_LOG_LEVEL=${CELLAR_LOG_LEVEL:-info}

stage_format() {
    if cargo fmt --version >/dev/null 2>&1; then
        check "the Rust code is formatted" cargo fmt --all --check
    else
        skip "rustfmt is not installed"
    fi
    if "$ROOT/scripts/pgindent.sh" --ready; then
        check "the C code is formatted" "$ROOT/scripts/pgindent.sh" --check
    else
        skip "pgindent is not built (scripts/pgindent.sh builds it)"
    fi
}

stage_lint() {
    # Clippy waits until the stage unit has built its programs, and uses the same build scripts and procedural macros.
    if cargo clippy --version >/dev/null 2>&1; then
        check "clippy has no warning" cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
    else
        skip "clippy is not installed"
    fi
    # Private items are part of the documentation: its readers work on this code.
    check "rustdoc has no warning" env RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" \
        cargo doc --workspace --no-deps --document-private-items --locked --quiet
    if command -v shellcheck >/dev/null; then
        mapfile -t scripts < <(grep -rlE '^#!/(usr/bin/env (ba)?sh|bin/(ba)?sh)' .ci bench fuzz scripts tests --include='*.sh' --include=run)
        check "shellcheck has no warning" shellcheck -x -P "$ROOT" "${scripts[@]}"
    else
        skip "shellcheck is not installed"
    fi
    if command -v python3 >/dev/null; then
        check "no sibling modules depend on each other in a cycle" python3 scripts/module-cycles.py
    else
        skip "module cycles: python3 is not installed"
    fi
    if cargo deny --version >/dev/null 2>&1; then
        check "licences, sources and bans of dependencies pass cargo-deny" cargo deny --offline check bans licenses sources
    else
        skip "cargo-deny is not installed"
    fi
}

# tests/docs/check.* take no arguments, print what is wrong and fail then.
stage_docs() {
    local script
    for script in "$ROOT"/tests/docs/check.*; do
        [ -x "$script" ] || continue
        check "the documentation passes ${script#"$ROOT"/}" "$script"
    done
    return 0
}

# Counts each test of `cargo test`; a crate that does not build counts as one failure. The test programs mostly wait, above all that
# of the storage layer, so half of them run beside the other half.
stage_unit() {
    local output=$CELLAR_LOGS/cargo-test.txt status=0 other test
    local -a cargo_test=(cargo test --workspace --locked --no-fail-fast)
    [ -z "${LONG:-}" ] || export AGGREGATE_CASES=${AGGREGATE_CASES:-200}
    if "${cargo_test[@]}" --no-run >"$output" 2>&1; then
        (
            RUST_TEST_THREADS=$((3 * $(nproc))) "${cargo_test[@]}" --test storage --test waiting || status=$?
            "${cargo_test[@]}" --doc || status=$?
            exit "$status"
        ) >"$output.other" 2>&1 &
        other=$!
        "${cargo_test[@]}" --lib --bins --test '[a-r]*' --test scan >"$output" 2>&1 || status=$?
        wait $other || status=$?
        cat "$output.other" >>"$output"
    else
        status=$?
    fi
    while read -r test; do printf 'pass\t%s\n' "$test" >>"$CELLAR_RESULTS"; done < <(sed -n 's/^test \(.*\) \.\.\. ok$/\1/p' "$output")
    while read -r test; do not_ok "$test"; done < <(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$output")
    say "$(grep -c '^test .* \.\.\. ok$' "$output") tests passed"
    if [ $status != 0 ]; then
        grep -q '^test .* \.\.\. FAILED$' "$output" || not_ok "cargo test: a crate does not build, or a test program crashed"
        grep -E '^(error|failures:|---- )' -A 12 "$output" | tail -n 60
    fi
}

# The extension's regression tests, on a cluster without a cell.
stage_extension() {
    if ! "$ROOT/scripts/build.sh" extension; then not_ok "the extension builds and installs"; return; fi
    ok "the extension builds and installs for $("$PG_CONFIG" --version)"
    (
        trap - EXIT
        work_begin extension
        cluster_create extension "$WORK/data"
        cluster_set "$WORK/data" "shared_preload_libraries = 'cellar'"
        cluster_start extension "$WORK/data"
        check "the extension is created" sql extension postgres -c "CREATE EXTENSION cellar" -c "TABLE cellar.sysstat" -c "DROP EXTENSION cellar"
        cp -r "$ROOT/extension/sql" "$ROOT/extension/expected" "$ROOT/tests/awr/wait_events.tsv" "$WORK/" 2>/dev/null
        [ "$(id -u)" != 0 ] || chown -R "$OS_USER" "$WORK/sql" "$WORK/expected"
        install -d "$WORK/output"
        [ "$(id -u)" != 0 ] || chown "$OS_USER" "$WORK/output"
        tests=$(sed -n 's/^REGRESS *= *//p' "$ROOT/extension/Makefile")
        regress=${PG_REGRESS:-$(dirname "$("$PG_CONFIG" --pgxs)")/../test/regress/pg_regress}
        # One pg_regress run for all tests: later tests use what the first test creates.
        # shellcheck disable=SC2086
        (cd "$WORK/output" && as_pg env PATH="$PG_BIN:$PATH" "$regress" --bindir="$PG_BIN" --inputdir="$WORK" \
            --outputdir="$WORK/output" --host="$WORK/run" --port="$(cluster_port extension)" --user=postgres \
            --dbname=contrib_regression $tests) >"$WORK/regress.log" 2>&1
        for test in $tests; do
            if grep -qE "(^test|^ok [0-9]+ +-) +$test +(\.\.\. ok|[0-9]+ ms)" "$WORK/regress.log"; then
                ok "extension: $test"
            else
                not_ok "extension: $test"
                cp "$WORK/output/regression.diffs" "$WORK/regression.extension.diffs" 2>/dev/null
            fi
        done
        head -n 60 "$WORK/output/regression.diffs" 2>/dev/null
        checks_end
    )
}

stage_smart_scan() { "$ROOT/tests/smart_scan/run.sh" ${LONG:+--cases 200000}; }
stage_compression() {
    local status=0 policy
    # The test of the policies mostly waits for the policy worker.
    "$ROOT/tests/compression/policy.sh" >"$CELLAR_LOG_DIR/policy.txt" 2>&1 &
    policy=$!
    "$ROOT/tests/compression/run.sh" ${LONG:+--seconds 120} || status=$?
    "$ROOT/tests/compression/corners.sh" || status=$?
    wait $policy || status=$?
    cat "$CELLAR_LOG_DIR/policy.txt"
    return "$status"
}
stage_robust() {
    local status=0 alerts
    # The test of alerts mostly waits.
    "$ROOT/tests/alerts/run.sh" >"$CELLAR_LOG_DIR/alerts.txt" 2>&1 &
    alerts=$!
    "$ROOT/tests/robust/run.sh" ${LONG:+--seconds 120} || status=$?
    "$ROOT/tests/robust/io_methods.sh" || status=$?
    "$ROOT/tests/iorm/run.sh" || status=$?
    "$ROOT/tests/robust/run.sh" --compressed ${LONG:+--seconds 120} || status=$?
    wait $alerts || status=$?
    cat "$CELLAR_LOG_DIR/alerts.txt"
    return "$status"
}
stage_awr() {
    local status=0 other
    # These mostly wait: for the sampler, for locks, and for a stopped cell.
    (
        status=0
        "$ROOT/tests/awr/sampler.sh" || status=$?
        "$ROOT/tests/awr/ash.sh" || status=$?
        "$ROOT/tests/awr/sql.sh" || status=$?
        "$ROOT/tests/awr/culprits.sh" ${LONG:+--rounds 5 --ticks 100} || status=$?
        exit "$status"
    ) >"$CELLAR_LOG_DIR/sessions.txt" 2>&1 &
    other=$!
    "$ROOT/tests/awr/run.sh" || status=$?
    "$ROOT/tests/awr/files.sh" || status=$?
    "$ROOT/tests/awr/figures.sh" || status=$?
    "$ROOT/tests/awr/sources.sh" || status=$?
    "$ROOT/tests/awr/repository.sh" || status=$?
    "$ROOT/tests/awr/live.sh" || status=$?
    wait $other || status=$?
    cat "$CELLAR_LOG_DIR/sessions.txt"
    return "$status"
}
stage_flash() {
    local status=0
    "$ROOT/tests/flash/settings.sh" || status=$?
    "$ROOT/tests/flash/write_back.sh" || status=$?
    return "$status"
}
stage_regress() { "$ROOT/tests/regress/run.sh" ${LONG:+--rounds 5 --share 100}; }
stage_crash() {
    local status=0
    "$ROOT/tests/crash/run.sh" ${LONG:+--rounds 20} || status=$?
    "$ROOT/tests/crash/mirrored.sh" || status=$?
    "$ROOT/tests/crash/flash.sh" || status=$?
    "$ROOT/tests/crash/rebalance.sh" || status=$?
    [ -z "${LONG:-}" ] || "$ROOT/tests/crash/rebalance.sh" --copies || status=$?
    "$ROOT/tests/crash/full_disk.sh" && return "$status"
}

# The fuzz targets, each for a minute, or with LONG=1 for five, with the stable compiler.
stage_fuzz() {
    local target seconds=60
    [ -z "${LONG:-}" ] || seconds=300
    if ! command -v c++ >/dev/null; then skip "fuzz: there is no C++ compiler"; return; fi
    check "the fuzz targets build" "$ROOT/fuzz/run.sh" build || return
    for target in "$ROOT"/fuzz/targets/*.rs; do
        target=$(basename "$target" .rs)
        check "fuzz: $target, $seconds s" "$ROOT/fuzz/run.sh" "$target" "$seconds"
    done
}

# Not a default stage: pjdfstest is not part of this repository.
stage_pjdfstest() {
    if [ ! -x "${PJDFSTEST:-}/pjdfstest" ]; then skip "pjdfstest: PJDFSTEST does not name a built tree"; return; fi
    if [ "$(id -u)" != 0 ]; then skip "pjdfstest: the suite runs as root only"; return; fi
    if ! command -v prove >/dev/null; then skip "pjdfstest: prove is not installed"; return; fi
    (
        trap - EXIT
        PJDFSTEST=$(cd "$PJDFSTEST" && pwd)
        work_begin pjdfstest
        cell_configure cell1
        cell_start cell1 || exit 1
        mkdir "$WORK/cell1/pjdfstest"
        (cd "$WORK/cell1/pjdfstest" && prove -r "$PJDFSTEST/tests") >"$WORK/pjdfstest.log" 2>&1
        count_lines < <(sed -nE "s,^$PJDFSTEST/tests/([^ ]*\.t) \.+ (.*),\1 \2,p" "$WORK/pjdfstest.log" |
            sed -E 's/^([^ ]*) (ok|skipped.*)$/ok - pjdfstest: \1/; t; s/^([^ ]*) .*/not ok - pjdfstest: \1/')
        sed -n '/^Test Summary Report/,$p' "$WORK/pjdfstest.log"
        check "pjdfstest: the cell stops cleanly" cell_stop cell1
        checks_end
    )
}

declare -A limit=([format]=300 [lint]=3000 [docs]=120 [unit]=3600 [extension]=3000 [smart_scan]=1200 [robust]=1200 [compression]=1800 [awr]=900 [regress]=2400 [crash]=1800 [flash]=1200 [fuzz]=1800 [pjdfstest]=900)
factor=${TIME_FACTOR:-1}
[ -z "${LONG:-}" ] || factor=$((factor * 8))
started=$SECONDS
trap 'kill $(jobs -p) 2>/dev/null' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# run_stage STAGE: runs a stage with its time limit. Its output goes to STAGE.txt, its checks to STAGE.results.
run_stage() {
    local stage=$1 log=$CELLAR_LOGS/$1.txt status reason process
    mkdir -p "$CELLAR_LOGS/$stage"
    export CELLAR_LOG_DIR=$CELLAR_LOGS/$stage CELLAR_RESULTS=$CELLAR_LOGS/$stage.results
    : >"$CELLAR_RESULTS"
    # A stage runs in its own process group: the time limit stops the whole group, and lib.sh's watcher cleans up.
    export -f "stage_$stage"
    # shellcheck disable=SC2016
    timeout --kill-after=60 "$((limit[$stage] * factor))" bash -c '. "$1"; set +e; cd "$ROOT"; "stage_$2"' \
        bash "$ROOT/scripts/lib.sh" "$stage" >"$log" 2>&1 </dev/null &
    process=$!
    # shellcheck disable=SC2064
    trap "kill $process 2>/dev/null" EXIT
    wait $process
    status=$?
    trap - EXIT
    if [ "$status" != 0 ] && ! grep -q '^fail' "$CELLAR_RESULTS"; then
        # The stage failed without a failed check.
        [ "$status" = 124 ] && reason="took more than $((limit[$stage] * factor)) s" || reason="exited with status $status"
        not_ok "stage $stage $reason" >>"$log"
    fi
}

all=()
for step in "${stages[@]}"; do
    IFS=+ read -ra together <<<"$step"
    processes=()
    for stage in "${together[@]}"; do
        declare -F "stage_$stage" >/dev/null || die "there is no stage $stage"
        : >"$CELLAR_LOGS/$stage.txt"
        (run_stage "$stage") &
        processes+=($!)
    done
    for index in "${!together[@]}"; do
        printf '\n=== %s (%d s)%s\n' "${together[index]}" "$((SECONDS - started))" "$([ "$index" = 0 ] || printf ', beside %s' "${together[0]}")"
        # Prints the log until the stage has ended. Unlike a command in the foreground, `wait` ends at a signal.
        tail -n +1 -s 0.2 -q -f --pid="${processes[index]}" "$CELLAR_LOGS/${together[index]}.txt" &
        wait $!
        wait "${processes[index]}"
    done
    all+=("${together[@]}")
done

results=$CELLAR_LOGS/results
(cd "$CELLAR_LOGS" && cat "${all[@]/%/.results}") >"$results"
passed=$(grep -c '^pass' "$results")
failed=$(grep -c '^fail' "$results")
skipped=$(grep -c '^skip' "$results")
printf '\n=== %d s\n' "$((SECONDS - started))"
if [ "$failed" -gt 0 ]; then
    sed -n 's/^fail\t/failed: /p' "$results"
    say "logs are in $CELLAR_LOGS"
else
    rm -rf "$CELLAR_LOGS"
fi
say "$passed passed, $failed failed$([ "$skipped" = 0 ] || printf ', %d skipped' "$skipped")"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
