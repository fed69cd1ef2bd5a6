#!/usr/bin/env bash
# Runs stages of `make test` on several major versions of PostgreSQL, and prints one table of the results.
#
#   test-matrix.sh [VERSION ...]      default: 15 16 17 18 19
#
# STAGES="extension smart_scan" selects stages; default: awr robust regress extension smart_scan compression.
# LONG=1 as for test.sh. scripts/postgres-install.sh describes where each version comes from; PG_CONFIG_16=/path/to/pg_config
# names an installation instead. PG_SOURCE_16=/path names the source tree of the tests of a version that Debian's archives
# have no source package of.
#
# A version that is not to be had, and a stage or a check whose programs do not run, are printed as skipped, each with its
# reason. The pg_regress of another version in the list replaces one that does not run; a note says so. The previous version
# in the list is the old version of the test of pg_upgrade.
set -uo pipefail
export CELLAR_PROFILE=${CELLAR_PROFILE:-release}
ROOT=$(cd "$(dirname "$0")/.." && pwd)
cd "$ROOT" || exit 1

say() { printf '%s\n' "$*"; }
versions=("$@")
[ $# -gt 0 ] || versions=(15 16 17 18 19)
read -ra stages <<<"${STAGES:-awr robust regress extension smart_scan compression}"
logs=$(mktemp -d "${TMPDIR:-/tmp}/cellar-matrix.XXXXXX")
chmod 755 "$logs"
passed_all=0 failed_all=0 skipped_all=0
old=

# row VERSION STAGE PASSED FAILED SKIPPED SECONDS [REASON]
row() {
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" "$5" "$6" "${7:-}" >>"$logs/table"
    passed_all=$((passed_all + $3)) failed_all=$((failed_all + $4)) skipped_all=$((skipped_all + $5))
}

# The programs of the server that a stage runs, besides postgres, initdb and psql. A stage without one of them is skipped.
declare -A programs=(
    [awr]='bin/pgbench bin/pg_basebackup bin/pg_waldump'
    [robust]='bin/pgbench bin/pg_basebackup'
    [regress]='pgxs/src/test/regress/pg_regress pgxs/src/test/isolation/pg_isolation_regress'
    [extension]='pgxs/src/test/regress/pg_regress'
    [smart_scan]=''
    [compression]='bin/pgbench bin/pg_basebackup bin/pg_checksums bin/pg_dump'
    [crash]='bin/pgbench bin/pg_amcheck bin/pg_checksums'
)

# program_path PG_CONFIG PROGRAM: the path of a program of the table above.
program_path() {
    case $2 in
    bin/*) printf '%s/%s' "$("$1" --bindir)" "${2#bin/}" ;;
    pgxs/*) printf '%s/%s' "$(dirname "$("$1" --pgxs)")/../.." "${2#pgxs/}" ;;
    esac
}
runs() { "$1" --version >/dev/null 2>&1; }

# unusable STAGE: prints why a stage cannot run with the programs of PG_CONFIG; prints nothing if it can.
unusable() {
    local program
    for program in ${programs[$1]:-}; do
        runs "$(program_path "$PG_CONFIG" "$program")" || {
            [ "$1" = extension ] && [ -n "$PG_REGRESS" ] && continue
            printf '%s of this version does not run' "${program##*/}"
            return
        }
    done
}

# replacement: prints a pg_regress that runs, of another version in the list.
replacement() {
    local version config program
    for version in "${versions[@]}"; do
        config=$(scripts/postgres-install.sh "$version" 2>/dev/null) || continue
        program=$(program_path "$config" pgxs/src/test/regress/pg_regress)
        if runs "$program"; then printf '%s' "$program"; return; fi
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
    export PG_REGRESS=
    if ! runs "$(program_path "$PG_CONFIG" pgxs/src/test/regress/pg_regress)"; then
        PG_REGRESS=$(replacement)
        [ -z "$PG_REGRESS" ] || say "# PostgreSQL $server: its pg_regress does not run; the stage extension uses $PG_REGRESS"
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
