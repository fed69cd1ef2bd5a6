#!/usr/bin/env bash
# Shares and limits of I/O resource management with Smart Scans: sessions of several databases and consumer groups scan tables on one
# cell disk with the model of a hard disk, again and again. Prints a Markdown table: for each plan, the parts of the device time and of the
# bytes that each source gets, beside what the plan says. Nothing else should run on the machine.
#
#   iorm.sh [shares | groups | limit | alone]     all parts without an argument
#
#   ROWS=60000        rows of each table, each a block of 8 KiB
#   DURATION=20       real seconds of each measurement; ROUNDS=2 measurements of each plan
#   MODEL=hdd-15k     model of the cell disk
#   SCALE=4           real seconds per second of the model: with 1, scans that wait for a processor leave a part of the disk to others
#   OBJECTIVE=high_throughput
set -euo pipefail
part=${1:-all}
case $part in -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//p}' "$0"; exit ;; esac
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
ROWS=${ROWS:-60000} DURATION=${DURATION:-20} ROUNDS=${ROUNDS:-2} MODEL=${MODEL:-hdd-15k} SCALE=${SCALE:-4}
OBJECTIVE=${OBJECTIVE:-high_throughput}

extension_installed || die "the extension is not installed: run scripts/build.sh extension"
work_begin bench-iorm
data=$WORK/cell1/pgdata
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
q() { sql iorm "${DB:-postgres}" -c "$1"; }
cli() { "$CELLAR_BIN" cellcli --cell "$WORK/cell1.toml" -e "$1"; }

# The cache holds a part of a table only, so each scan reads the disk.
# The disk follows the model once the tables are filled.
cell_configure cell1 256MiB "$WORK/disk"
cell_start cell1
cluster_create iorm "$data"
cluster_set "$data" "shared_preload_libraries = 'cellar'" "autovacuum = off" "max_parallel_workers_per_gather = 0" \
    "max_wal_size = 4GB" "wal_level = minimal" "max_wal_senders = 0"
cluster_start iorm "$data"
# Rows of 5 KB, one per block.
q "CREATE DATABASE a"
DB=a q "CREATE EXTENSION cellar"
DB=a q "CREATE TABLE big AS SELECT n AS id, repeat(md5(n::text), 160) AS filler FROM generate_series(1, 10) n"
DB=a q "ALTER TABLE big ALTER filler SET STORAGE plain"
DB=a q "INSERT INTO big SELECT n, repeat(md5(n::text), 160) FROM generate_series(11, $ROWS) n"
DB=a q "VACUUM (FREEZE) big"
for name in b c; do q "CREATE DATABASE $name TEMPLATE a"; done
cluster_stop iorm >/dev/null
cell_stop cell1
cat >>"$WORK/cell1.toml" <<TOML
model = "$MODEL"
model_time_scale = $SCALE

[metrics]
listen = "$port"
TOML
cell_start cell1
cluster_start iorm "$data" >/dev/null

# scan DATABASE GROUP: scans a table again and again in one session, so that the source has requests at any time. The storage index
# does not know the condition.
scan() {
    yes "SELECT count(*) FROM big WHERE id + 0 < 0;" | head -n 1000 |
        PGOPTIONS="-c cellar.consumer_group=$2" sql iorm "$1" >/dev/null 2>&1 || true
}
# counters: the device seconds, bytes and waits of large requests by database and consumer group.
counters() { curl -sf "http://127.0.0.1:$port/metrics" | grep '^cellar_iorm_.*size="large"'; }
# measure LABEL EXPECTED SOURCE ...: one row of the table. EXPECTED are the parts that the plan says, as 2:1.
measure() {
    local label=$1 expected=$2 source scans=()
    shift 2
    for source in "$@"; do
        scan "${source%/*}" "${source#*/}" &
        scans+=($!)
    done
    sleep 2
    counters >"$WORK/before"
    sleep "$DURATION"
    counters >"$WORK/after"
    q "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT count(\*) FROM big%'" >/dev/null
    wait "${scans[@]}"
    python3 - "$WORK/before" "$WORK/after" "$label" "$expected" "$DURATION" "$SCALE" "$@" <<'PYTHON'
import re, sys
before, after, label, expected, seconds, scale, *sources = sys.argv[1:]
def read(path, family):
    sums = {}
    for line in open(path):
        name, labels, value = re.match(r"(\w+)\{(.*)\} (\S+)", line).groups()
        labels = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if name == f"cellar_iorm_{family}_total":
            key = labels["database"], labels["consumer_group"]
            sums[key] = sums.get(key, 0) + float(value)
    return sums
def of_sources(family):
    first, last = read(before, family), read(after, family)
    return [last.get(key, 0) - first.get(key, 0) for key in (tuple(source.split("/")) for source in sources)]
device, moved = of_sources("device_seconds"), of_sources("bytes")
parts = lambda values: ":".join(f"{100 * value / (sum(values) or 1):.1f}" for value in values)
used = ":".join(f"{100 * value / float(seconds):.0f}" for value in device)
wanted = parts([float(part) for part in expected.split(":")])
rate = sum(moved) / float(seconds) * float(scale) / 1e6
print(f"| {label} | {' '.join(sources)} | {wanted} | {parts(device)} | {parts(moved)} | {used} | {rate:.0f} |", flush=True)
PYTHON
}
plan() { cli "alter iormplan objective=$OBJECTIVE, dbplan='$1'" >/dev/null; }
rounds() { for _ in $(seq "$ROUNDS"); do measure "$@"; done; }
is_part() { [ "$part" = all ] || [ "$part" = "$1" ]; }

say "| plan | sources | parts by the plan, % | device time, % | bytes, % | of the disk, % | MB/s of the model |"
say "|---|---|---:|---:|---:|---:|---:|"
if is_part shares; then
    for shares in 1:1 2:1 1:4; do
        plan "((name=a,share=${shares%:*}),(name=b,share=${shares#*:}))"
        rounds "shares $shares" "$shares" a/x b/x
    done
    plan "((name=a,share=3),(name=b,share=2),(name=c,share=1))"
    rounds "shares 3:2:1" 3:2:1 a/x b/x c/x
fi
if is_part groups; then
    plan "((name=a,share=2),(name=b,share=1))"
    rounds "shares 2:1, two groups of a" 1:1:1 a/x a/y b/x
fi
if is_part limit; then
    plan "((name=a,share=1,limit=10),(name=b,share=1))"
    rounds "limit of 10 % for a" 10:90 a/x b/x
fi
if is_part alone; then
    plan "((name=a,share=1),(name=b,share=4))"
    rounds "shares 1:4, a alone" 1 a/x
    plan ""
    rounds "no plan, a alone" 1 a/x
fi
cluster_stop iorm >/dev/null
cell_stop cell1
