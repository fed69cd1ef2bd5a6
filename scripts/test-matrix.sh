#!/usr/bin/env bash
# Runs stages of `make test` on several major versions of PostgreSQL, and prints one table of the results.
#
#   test-matrix.sh [VERSION ...]      default: 15 16 17 18 19
#
# STAGES="extension smart_scan" selects stages; default: extension smart_scan compression robust regress.
# LONG=1 as for test.sh. scripts/postgres-install.sh describes where each version comes from; PG_CONFIG_16=/path/to/pg_config
# names an installation instead. PG_SOURCE_16=/path names the source tree of the tests of a version that Debian's archives
# have no source package of.
#
# A version that is not to be had, and a stage or a check whose programs do not run, are printed as skipped, each with its
# reason. The previous version in the list is the old version of the test of pg_upgrade.
set -uo pipefail
ROOT=$(cd "$(dirname "$0")/.." && pwd)
cd "$ROOT" || exit 1

say() { printf '%s\n' "$*"; }
versions=("$@")
[ $# -gt 0 ] || versions=(15 16 17 18 19)
read -ra stages <<<"${STAGES:-extension smart_scan compression robust regress}"
logs=$(mktemp -d "${TMPDIR:-/tmp}/cellar-matrix.XXXXXX")
chmod 755 "$logs"
passed_all=0 failed_all=0 skipped_all=0
old=

# row VERSION STAGE PASSED FAILED SKIPPED SECONDS [REASON]
row() {
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" "$5" "$6" "${7:-}" >>"$logs/table"
    passed_all=$((passed_all + $3)) failed_all=$((failed_all + $4)) skipped_all=$((skipped_all + $5))
}

# unusable STAGE: prints why a stage cannot run with the programs of PG_CONFIG; prints nothing if it can.
unusable() {
    local pgxs program
    pgxs=$(dirname "$("$PG_CONFIG" --pgxs)")/..
    case $1 in
    extension) set -- "$pgxs/test/regress/pg_regress" ;;
    regress) set -- "$pgxs/test/regress/pg_regress" "$pgxs/test/isolation/pg_isolation_regress" ;;
    *) return ;;
    esac
    for program; do
        "$program" --version >/dev/null 2>&1 || { printf '%s of this version does not run' "${program##*/}"; return; }
    done
}

for version in "${versions[@]}"; do
    if ! PG_CONFIG=$(scripts/postgres-install.sh "$version" 2>"$logs/$version-install.log"); then
        reason=$(tail -n 1 "$logs/$version-install.log")
        say "skipped - PostgreSQL $version: $reason"
        row "$version" all 0 0 1 0 "$reason"
        continue
    fi
    export PG_CONFIG
    server=$("$PG_CONFIG" --version | sed 's/^PostgreSQL \([^ ]*\).*/\1/')
    say "=== PostgreSQL $server, $PG_CONFIG"
    if ! scripts/build.sh extension >"$logs/$version-build.log" 2>&1; then
        say "not ok - the extension builds for PostgreSQL $server: see $logs/$version-build.log"
        row "$server" build 0 1 0 0 "the extension does not build"
        continue
    fi
    warnings=$(grep -c 'warning:' "$logs/$version-build.log")
    if [ "$warnings" = 0 ]; then row "$server" build 1 0 0 0; else
        say "not ok - the extension builds without warnings for PostgreSQL $server: see $logs/$version-build.log"
        row "$server" build 0 1 0 0 "$warnings warnings"
    fi
    source_of=PG_SOURCE_$version
    for stage in "${stages[@]}"; do
        reason=$(unusable "$stage")
        if [ -z "$reason" ] && [ "$stage" = regress ]; then
            # Without sources of the version's tests the stage has nothing to run.
            CELLAR_PG_SOURCE=${!source_of:-} scripts/postgres-source.sh >/dev/null 2>"$logs/$version-source.log" ||
                reason=$(tail -n 1 "$logs/$version-source.log")
        fi
        if [ -n "$reason" ]; then
            say "skipped - PostgreSQL $server, $stage: $reason"
            row "$server" "$stage" 0 0 1 0 "$reason"
            continue
        fi
        log=$logs/$version-$stage.log began=$SECONDS
        CELLAR_OLD_PG_CONFIG=$old CELLAR_PG_SOURCE=${!source_of:-} TMPDIR=$logs scripts/test.sh "$stage" >"$log" 2>&1
        status=$?
        grep -E '^(not ok|skipped) - ' "$log"
        summary=$(tail -n 1 "$log")
        if [[ $summary =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed(,\ ([0-9]+)\ skipped)?$ ]]; then
            row "$server" "$stage" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[4]:-0}" $((SECONDS - began))
        else
            row "$server" "$stage" 0 1 0 $((SECONDS - began)) "exited with status $status"
        fi
        tail -n 1 "$logs/table" | awk -F'\t' '{ printf "# %s, %s: %d passed, %d failed, %d skipped, %d s %s\n", $1, $2, $3, $4, $5, $6, $7 }'
    done
    old=$PG_CONFIG
done

say
printf '| PostgreSQL | stage | passed | failed | skipped | seconds | |\n|---|---|---|---|---|---|---|\n'
awk -F'\t' '{ printf "| %s | %s | %s | %s | %s | %s | %s |\n", $1, $2, $3, $4, $5, $6, $7 }' "$logs/table"
say
if [ "$failed_all" = 0 ]; then rm -rf "$logs"; else say "logs are in $logs"; fi
say "$passed_all passed, $failed_all failed$([ "$skipped_all" = 0 ] || printf ', %d skipped' "$skipped_all")"
[ "$failed_all" = 0 ] && [ "$passed_all" -gt 0 ]
