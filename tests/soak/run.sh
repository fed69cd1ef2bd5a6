#!/usr/bin/env bash
# Soak test: random kills of all processes, full disks, DDL and compressions under load, until the time is over.
#
#   run.sh [--hours N] [--minutes N] [--rounds N] [--seed N] [--json]
#
#   --hours, --minutes    how long to start rounds (together; default 10 minutes)
#   --rounds N            stop after this number of kills
#   --seed N              seed of layouts, victims and moments; the order of operations within a round is not reproducible
#   --json                the last line is a JSON object
#
# A round starts the load of tests/crash/rounds.sh, may fill the cell disks, kills something, and checks the recovered
# cluster. After some rounds a clean stop ends the epoch, and the next epoch begins with new cell disks in another layout.
# The first failure ends the test with exit status 1; its directory remains, and its name is printed. When the disk of the
# machine is full, the test ends with exit status 2 and without a verdict about the last round.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

minutes=0 rounds_max=1000000 seed=$RANDOM json=0
while [ $# -gt 0 ]; do
    case $1 in
    --hours) minutes=$((minutes + 60 * $2)); shift ;;
    --minutes) minutes=$((minutes + $2)); shift ;;
    --rounds) rounds_max=$2; shift ;;
    --seed) seed=$2; shift ;;
    --json) json=1 ;;
    *) die "unknown option $1" ;;
    esac
    shift
done
[ "$minutes" -gt 0 ] || minutes=10
RANDOM=$seed
extension_installed || die "the extension is not installed: run scripts/build.sh extension"
started=$SECONDS
deadline=$((SECONDS + 60 * minutes))
work_begin soak
export CELLAR_RESULTS=$WORK/results
# shellcheck source=tests/crash/rounds.sh
. "$(dirname "$0")/../crash/rounds.sh"

EPOCH_ROUNDS=20
DISK_MIB=512
victims=(backend checkpointer worker postmaster postgres cell cell both)
declare -A kills
rounds=0 full_disks=0
machine_disk_watch

# pick WORD ...: prints a random word.
pick() { printf '%s' "${@:1 + RANDOM % $#:1}"; }

# disks_fill: leaves the limited disks with at most some MiB free; the cell itself refuses to use the last 16 MiB.
disks_fill() {
    local disk available
    for disk in "${disks[@]}"; do
        available=$(df -B1 --output=avail "$disk" | tail -n 1)
        fallocate -l "$((available - (RANDOM % 24) * 1048576 - 65536))" "$disk/filler" 2>/dev/null || true
    done
}
disks_free() { rm -f "${disks[@]/%//filler}"; }

# epoch_begin: creates cell disks, a cell and a cluster in a random layout.
epoch_begin() {
    local disk au redundancy settings=("wal_level = replica")
    disks=("$WORK/disk1" "$WORK/disk2")
    [ $((RANDOM % 3)) -gt 0 ] || disks+=("$WORK/disk3")
    are_limited=1
    for disk in "${disks[@]}"; do
        limited_disk "$disk" "$DISK_MIB" || { are_limited=0; mkdir -p "$disk"; }
        rm -rf --one-file-system "$disk/cell"
    done
    rm -rf --one-file-system "$WORK/pgdata"
    layout=$(pick mount mount tablespace)
    au=$(pick 1MiB 4MiB)
    redundancy=$(pick external normal)
    # Without WAL, a transaction that creates or truncates a table syncs the table at its commit.
    [ $((RANDOM % 3)) -gt 0 ] || settings=("wal_level = minimal" "max_wal_senders = 0")
    cell_configure cell1 "$(pick 32MiB 256MiB)" "${disks[@]/%//cell}"
    sed -i "s/^au_size = .*/au_size = \"$au\"/; s/^redundancy = .*/redundancy = \"$redundancy\"/" "$WORK/cell1.toml"
    machine_disk_was_full && return 1
    what="epoch of $layout, ${#disks[@]} disks, redundancy $redundancy, allocation units of $au, ${settings[0]}"
    crash_cluster "$layout" 2 "${settings[@]}" || { not_ok "$what: the cluster starts"; return 1; }
}

# round: load, perhaps full disks, a kill, recovery, checks.
round() {
    local panics filled=0
    load_start "$RANDOM" "$victim"
    sleep "$((RANDOM % 3)).$((RANDOM % 10))"
    panics=$(log_count ' PANIC: ')
    if [ "$are_limited" = 1 ] && [ $((RANDOM % 5)) = 0 ]; then
        filled=1
        full_disks=$((full_disks + 1))
        disks_fill
        sleep "$((RANDOM % 3)).$((RANDOM % 10))"
        # The kill comes while the disks are full, or after the load has continued on free disks.
        [ $((RANDOM % 2)) = 0 ] || { disks_free; sleep "0.$((RANDOM % 10))"; }
    fi
    if ! crash_kill "$victim"; then
        # A full disk may have stopped Postgres before the kill.
        [ "$filled" = 1 ] || { not_ok "$what: the kill finds its victim"; return 1; }
    else
        kills[$victim]=$((${kills[$victim]:-0} + 1))
    fi
    disks_free
    crash_recover "$victim" "$what" || { not_ok "$what: Postgres recovers"; return 1; }
    # A cell that dies, or a full disk for the WAL, is a PANIC.
    [ "$filled" = 1 ] || [ "$victim" = cell ] || [ "$victim" = both ] ||
        check "$what: Postgres logs no PANIC" test "$(log_count ' PANIC: ')" = "$panics"
    if [ $((rounds % 10)) = 0 ]; then crash_verify "$what"; else crash_verify "$what" --schema public; fi
    checks_end
}

# count NAME: the sum of a count of the load over all rounds.
count() { awk -v name="$1" '$1 == name { sum += $2 } END { print sum + 0 }' "$WORK/counts" 2>/dev/null || printf 0; }
# sums PREFIX: a JSON object of the counts whose names start with a prefix, without the prefix.
sums() {
    awk -v prefix="$1" 'index($1, prefix) == 1 { sum[substr($1, length(prefix) + 1)] += $2 }
        END { for (name in sum) { printf "%s\"%s\": %d", separator, name, sum[name]; separator = ", " } }' "$WORK/counts" 2>/dev/null || true
}
kills_total() {
    local kind total=0
    for kind in "${!kills[@]}"; do total=$((total + kills[$kind])); done
    printf '%s' "$total"
}
kills_by_kind() {
    local kind separator=''
    for kind in "${!kills[@]}"; do
        printf '%s"%s": %s' "$separator" "$kind" "${kills[$kind]}"
        separator=', '
    done
}
summary() {
    local ddl checks passed=true
    ddl=$(awk '/^ddl_/ { sum += $2 } END { print sum + 0 }' "$WORK/counts" 2>/dev/null || printf 0)
    checks=$(grep -c '^pass' "$CELLAR_RESULTS" || true)
    checks_end && ! machine_disk_was_full || passed=false
    if [ "$json" = 1 ]; then
        printf '{"passed": %s, "seed": %s, "seconds": %s, "rounds": %s, "kills": {"total": %s, %s}, "full_disks": %s, "checks": %s, ' \
            "$passed" "$seed" "$((SECONDS - started))" "$rounds" "$(kills_total)" "$(kills_by_kind)" "$full_disks" "$checks"
        printf '"acknowledged_commits": %s, "compared_scans": %s, "compressions": %s, "decompressions": %s, "ddl": {%s}, "errors": {%s}, "directory": "%s"}\n' \
            "$(count acknowledged)" "$(count scans)" "$(count compressions)" "$(count decompressions)" "$(sums ddl_)" "$(sums error_)" \
            "$([ "$passed" = true ] || printf '%s' "$WORK")"
    else
        say "$(kills_total) kills ($(kills_by_kind | tr -d '"')), $full_disks full disks, $(count compressions) compressions, $ddl DDL statements," \
            "$(count scans) compared scans, $(count acknowledged) acknowledged commits, $checks checks passed, $CHECKS_FAILED failed," \
            "$(((SECONDS - started) / 60)) min, seed $seed"
    fi
}

say "seed $seed, $minutes minutes, logs in $WORK"
[ "$(id -u)" = 0 ] || say "disks are not filled: mounting small file systems needs root"
while [ "$SECONDS" -lt "$deadline" ] && [ "$rounds" -lt "$rounds_max" ]; do
    epoch_begin >>"$WORK/rounds.log" 2>&1 || break
    say "$what"
    for ((i = 0; i < EPOCH_ROUNDS && SECONDS < deadline && rounds < rounds_max; i++)); do
        rounds=$((rounds + 1))
        victim=$(pick "${victims[@]}")
        what="round $rounds, $layout, kill -9 of $victim"
        begun=$SECONDS
        round >>"$WORK/rounds.log" 2>&1 || break 2
        ! machine_disk_was_full || break 2
        say "$what: passed in $((SECONDS - begun)) s; $(kills_total) kills, $full_disks full disks, $(count compressions) compressions, $(count scans) scans"
    done
    crash_end "end of the epoch after round $rounds" >>"$WORK/rounds.log" 2>&1
    checks_end || break
done
summary
if machine_disk_was_full; then
    WORK_KEPT=1
    say "the disk of the machine had less than $MACHINE_MIB MiB free: the last round is no verdict, its $CHECKS_FAILED failed checks" \
        "do not count; the directory remains: $WORK" >&2
    exit 2
fi
if ! checks_end; then
    WORK_KEPT=1
    tail -n 40 "$WORK/rounds.log" | grep -A 30 '^not ok' >&2 || true
    say "seed $seed failed; its directory remains: $WORK" >&2
    exit 1
fi
