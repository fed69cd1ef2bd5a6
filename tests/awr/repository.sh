#!/usr/bin/env bash
# The AWR repository: export, import and masking; snapshots of a standby in the repository of another server; texts of many
# statements, texts in other encodings, and their retention.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

extension_installed || die "the extension is not installed: run scripts/build.sh extension"
work_begin awr-repository
export CLUSTER=payroll
q() { sql "$CLUSTER" "${DB:-postgres}" -c "$1"; }
awr() { "$CELLAR_BIN" awr "$@"; }
# A separate statement before, so that the statistics of earlier statements are flushed.
snapshot() { sql "$CLUSTER" postgres -c "SELECT pg_stat_force_next_flush()" -c "SELECT awr.create_snapshot('test')" | tail -n 1; }
# fails_with DESCRIPTION PATTERN COMMAND ...
fails_with() {
    local what=$1 pattern=$2 output
    shift 2
    if output=$("$@" 2>&1); then
        not_ok "$what: the command succeeded"
    else
        check_matches "$what" "$output" "$pattern"
    fi
}

settings=("shared_preload_libraries = 'cellar'" "autovacuum = off" "cellar.awr_snapshot_interval = 0" "shared_buffers = 16MB"
    "max_connections = 20" "fsync = off")
cluster_create payroll "$WORK/payroll" --data-checksums
cluster_set "$WORK/payroll" "${settings[@]}" "cluster_name = 'paycluster'" "cellar.awr_max_statements = 6000" "wal_level = replica"
cluster_start payroll "$WORK/payroll"
cluster_create central "$WORK/central"
cluster_set "$WORK/central" "${settings[@]}" "cluster_name = 'hub'"
cluster_start central "$WORK/central"
payroll=$(cluster_dsn payroll)
central=$(cluster_dsn central)

# ---- texts of statements ----

q "CREATE EXTENSION cellar"
q "CREATE ROLE clerkrole LOGIN SUPERUSER"
q "CREATE DATABASE wagesdb"
q "CREATE DATABASE oldtown ENCODING 'LATIN1' TEMPLATE template0"
q "CREATE DATABASE rawbytes ENCODING 'SQL_ASCII' TEMPLATE template0"
mkdir "$WORK/wagespace" "$WORK/wagespace.standby" && chown "$OS_USER" "$WORK/wagespace" "$WORK/wagespace.standby"
q "CREATE TABLESPACE wagespace LOCATION '$WORK/wagespace'"
DB=wagesdb q "CREATE SCHEMA hrschema; CREATE TABLE hrschema.salaries (employee text, amount int) TABLESPACE wagespace;
              CREATE INDEX salaries_by_amount ON hrschema.salaries (amount);
              INSERT INTO hrschema.salaries SELECT 'employee' || n, n FROM generate_series(1, 20000) n; ANALYZE hrschema.salaries"
begin=$(snapshot)
# As many new statements between two snapshots, of a size that is usual.
# Names and constants do not distinguish statements; columns do.
awk 'BEGIN { for (i = 1; i <= 5000; i++) {
    list = ""
    for (bit = 1; bit < 8192; bit *= 2) list = list (int(i / bit) % 2 ? "a" : "b") ".amount, "
    printf "SELECT %s1 AS burst_%s FROM hrschema.salaries a JOIN hrschema.salaries b ON a.employee = b.employee WHERE false AND a.amount BETWEEN 10 AND 20;\n", list, i
} }' >"$WORK/burst.sql"
DB=wagesdb sql payroll wagesdb -f "$WORK/burst.sql" >/dev/null
# A byte that is a character in LATIN1, and bytes that are none in UTF8.
sql payroll oldtown -c "SET client_encoding = 'LATIN1'" -c "$(printf "SELECT 'caf\xe9' AS latin_text; CREATE TABLE \"na\xefve\" AS SELECT 1 AS a")" >/dev/null
sql payroll rawbytes -c "$(printf "SELECT 'raw\xff\xe9', 1 AS raw_text")" -c "$(printf "CREATE TABLE \"r\xe9sum\xe9\" AS SELECT 1 AS a")" >/dev/null
PGAPPNAME=payapp "$PG_BIN/psql" -X -q -At -h "$WORK/run" -p "$(cluster_port payroll)" -U clerkrole -d wagesdb \
    -c "SELECT count(*) FROM hrschema.salaries WHERE employee = 'topsecretliteral'" -c "SELECT pg_sleep(2.5)" >/dev/null
end=$(snapshot)
check_equal "the texts of 5000 new statements between two snapshots are stored" \
    "$(q "SELECT count(*) FROM awr.query_text WHERE query LIKE '%AS burst_%'")" 5000
check_equal "no text was lost" "$(q "SELECT count(*) FROM awr.note WHERE kind = 'texts lost'")" 0
check_equal "a text in LATIN1 is converted" "$(q "SELECT query FROM awr.query_text WHERE query LIKE '%latin_text'")" "SELECT 'café' AS latin_text"
check_equal "invalid bytes of a text are escaped" "$(q "SELECT query FROM awr.query_text WHERE query LIKE '%raw_text'")" "SELECT 'raw\\xFF\\xE9', 1 AS raw_text"
check_equal "tables of databases with other encodings are included" \
    "$(q "SELECT string_agg(relname, ', ' ORDER BY relname) FROM awr.table_stat WHERE snap_id = $end AND schemaname = 'public' AND relname ~ '^(na|r)'")" 'naïve, r\xE9sum\xE9'
check_equal "no source failed" "$(q "SELECT string_agg(description, '; ') FROM awr.note WHERE kind = 'source failed' AND object LIKE 'database%'")" ""

# The longest time of a statement is that of the period.
DB=wagesdb q "SELECT pg_sleep(0.3), 'slow once'" >/dev/null
snapshot >/dev/null
DB=wagesdb q "SELECT pg_sleep(0.001), 'slow once'" >/dev/null
quick=$(snapshot)
check_equal "the longest execution of a period is not that of an earlier one" \
    "$(q "SELECT bool_and((e -> 'max_us')::bigint < 200000) FROM jsonb_array_elements(awr.report_data($((quick - 1)), $quick) -> 'statements') e WHERE e ->> 'text' LIKE '%slow once%'")" t
check_equal "the longest execution of two periods is the longer one" \
    "$(q "SELECT bool_or((e -> 'max_us')::bigint >= 300000) FROM jsonb_array_elements(awr.report_data($end, $quick) -> 'statements') e WHERE e ->> 'text' LIKE '%slow once%'")" t
check_equal "tables are listed with the name of their tablespace" \
    "$(q "SELECT e ->> 'tablespace' FROM jsonb_array_elements(awr.report_data($begin, $end) -> 'tables') e WHERE e ->> 'name' = 'salaries'")" wagespace

# ---- export and import ----

# The imported reports below are computed from imported sums of session samples.
q "SELECT awr.sum_samples()" >/dev/null
check "session samples of AWR snapshots are summed" test "$(q "SELECT count(*) FROM awr.sample_interval")" -ge 1
check_matches "a repository is exported" "$(awr export --dsn "$payroll" "$WORK/all.awr")" "^4 AWR snapshots, [0-9]+ bytes"
CLUSTER=central q "CREATE EXTENSION cellar"
# The number of the own instance is taken before the import.
CLUSTER=central snapshot >/dev/null
check_matches "the export is imported" "$(awr import --dsn "$central" "$WORK/all.awr")" "instance 2 \(paycluster\): 4 AWR snapshots added, $begin to $quick"
contents() {
    CLUSTER=central q "SELECT count(*), (SELECT count(*) FROM awr.table_stat), (SELECT sum(cardinality(pid)) FROM awr.sample_chunk WHERE instance_id = 2), (SELECT count(*) FROM awr.query_text WHERE instance_id = 2) FROM awr.snapshot"
}
before=$(contents)
check_matches "an export imported twice adds nothing" "$(awr import --dsn "$central" "$WORK/all.awr")" "0 AWR snapshots added"
check_equal "the result of an import is JSON, too" \
    "$(awr import --dsn "$central" --json "$WORK/all.awr" | jq -c '.[] | [.instance_id, .instance, .snapshots, .first]')" '[2,"paycluster",0,null]'
check_equal "the result of an export is JSON, too" \
    "$(awr export --dsn "$payroll" --json "$WORK/again.awr" | jq -c '[.snapshots, .bytes]')" "[4,$(stat -c %s "$WORK/again.awr")]"
check_equal "the list of AWR snapshots is JSON, too" \
    "$(awr snapshots --dsn "$payroll" --json | jq -c 'map(select(.instance == "paycluster" and (.end_time | test("^20[0-9-]+T[0-9:]+[+-][0-9:]+$"))).snap_id)')" \
    "$(q "SELECT '[' || string_agg(snap_id::text, ',' ORDER BY snap_id) || ']' FROM awr.snapshot WHERE instance_id = 1")"
check_equal "the repository did not change" "$(contents)" "$before"
for period in "$begin $end" "$end $quick"; do
    read -r first last <<<"$period"
    awr report --dsn "$payroll" --begin "$first" --end "$last" --format document >"$WORK/original.json"
    awr report --dsn "$central" --instance paycluster --begin "$first" --end "$last" --format document >"$WORK/imported.json"
    # Only the number of the instance differs.
    same='import json, sys
documents = [json.load(open(name)) for name in sys.argv[1:]]
for d in documents:
    d["instance"].pop("id")
    d.pop("sources", None)
def order(v):
    if isinstance(v, dict): return {k: order(x) for k, x in v.items()}
    if isinstance(v, list): return sorted((order(x) for x in v), key=lambda x: json.dumps(x, sort_keys=True))
    return v
a, b = map(order, documents)
wrong = [k for k in a.keys() | b.keys() if a.get(k) != b.get(k)]
sys.exit("different: " + ", ".join(wrong) if wrong else 0)'
    check "the document of the import equals the original ($first to $last)" python3 -c "$same" "$WORK/original.json" "$WORK/imported.json"
done
check "a comparison of imported periods succeeds" awr diff --dsn "$central" --instance paycluster "$begin:$end" "$end:$quick"
CLUSTER=central snapshot >/dev/null
check_matches "a global report contains both instances" "$(awr global --dsn "$central" --last 2)" "paycluster"
check_matches "session samples of an imported instance are reported" \
    "$(awr ash --dsn "$central" --instance paycluster --last '1 day' --event PgSleep --format json)" clerkrole
fails_with "an unknown instance is refused with those that exist" "Instances in the repository: 1 \(hub\), 2 \(paycluster\)" \
    awr report --dsn "$central" --instance nowhere
fails_with "an unknown number, too" "Instances in the repository: 1 \(hub\), 2 \(paycluster\)" \
    awr global --dsn "$central" --instance 9
# A part continues what was imported before.
CLUSTER=central q "DELETE FROM awr.snapshot WHERE instance_id = 2 AND snap_id > $begin" >/dev/null
awr export --dsn "$payroll" --begin "$end" --end "$quick" "$WORK/part.awr" >/dev/null
check_matches "a part is imported after the rest" "$(awr import --dsn "$central" "$WORK/part.awr")" "3 AWR snapshots added, $end to $quick"
check_equal "a part contains settings and names of its first snapshot" \
    "$(CLUSTER=central q "SELECT count(*) > 0 FROM awr.setting WHERE instance_id = 2 AND snap_id = $end AND name = 'work_mem'")" t
fails_with "a period that does not exist is refused" "AWR snapshots 99 and 100 do not exist" awr export --dsn "$payroll" --begin 99 --end 100 "$WORK/none.awr"

# Files that cannot be imported
head -c 5000 "$WORK/all.awr" >"$WORK/truncated.awr"
fails_with "a truncated file is refused" 'damaged or truncated.*repeat' awr import --dsn "$central" "$WORK/truncated.awr"
cp "$WORK/all.awr" "$WORK/garbled.awr"
printf 'garbled' | dd of="$WORK/garbled.awr" bs=1 seek=20000 conv=notrunc 2>/dev/null
fails_with "a garbled file is refused" 'damaged or truncated.*Nothing was imported' awr import --dsn "$central" "$WORK/garbled.awr"
fails_with "another file is refused" 'not an export' awr import --dsn "$central" "$WORK/burst.sql"
check_equal "refused files changed nothing" "$(CLUSTER=central q "SELECT count(*) FROM awr.snapshot WHERE instance_id = 2")" 4
CLUSTER=central q "UPDATE awr.snapshot SET end_time = end_time + interval '1 second' WHERE instance_id = 2 AND snap_id = $end"
fails_with "a snapshot that differs from the repository's is refused" 'contradicts the snapshots' awr import --dsn "$central" "$WORK/all.awr"
CLUSTER=central q "UPDATE awr.snapshot SET end_time = end_time - interval '1 second' WHERE instance_id = 2 AND snap_id = $end"

# ---- retention ----

days() { CLUSTER=central q "SELECT count(*) FROM awr.snapshot WHERE instance_id = 2"; }
old() { CLUSTER=central q "SELECT awr.drop_expired_snapshots('-2 days')"; }
old >/dev/null
check_equal "the retention keeps what was imported" "$(days)" 4
CLUSTER=central q "SELECT awr.drop_baseline('import of paycluster')" >/dev/null
old >/dev/null
check_equal "without its baseline, the retention drops the import" "$(days)" 0
check_equal "the retention drops texts that no snapshot refers to" \
    "$(CLUSTER=central q "SELECT (SELECT count(*) FROM awr.query_text WHERE instance_id = 2), (SELECT count(*) FROM awr.plan_text WHERE instance_id = 2), (SELECT count(*) FROM awr.word WHERE word = 'payapp')")" "0|0|0"
snapshot >/dev/null
q "SELECT awr.drop_expired_snapshots('-2 days')" >/dev/null
check_equal "texts of statements that shared memory contains stay" "$(q "SELECT count(*) > 4000 FROM awr.query_text WHERE query LIKE '%AS burst_%'")" t
awr import --dsn "$payroll" "$WORK/all.awr" >/dev/null
check_equal "a server can import AWR snapshots that it has dropped" "$(q "SELECT string_agg(snap_id::text, ' ' ORDER BY snap_id) FROM awr.snapshot WHERE instance_id = 1 AND snap_id <= $quick")" "$begin $end $((quick - 1)) $quick"

# ---- masking ----

awr export --dsn "$payroll" --begin "$begin" --end "$end" --mask texts,names "$WORK/masked.awr" >/dev/null
awr import --dsn "$central" "$WORK/masked.awr" >"$WORK/import.txt"
awr export --dsn "$payroll" --begin "$end" --end "$quick" --mask names "$WORK/masked2.awr" >/dev/null
fails_with "masked names of two exports do not mix" 'already has AWR snapshots of another export.*Nothing was imported' awr import --dsn "$central" "$WORK/masked2.awr"
check_matches "a masked export imported twice adds nothing" "$(awr import --dsn "$central" "$WORK/masked.awr")" "0 AWR snapshots added"
masked=$(sed -n 's/^instance \([0-9]*\) .*/\1/p' "$WORK/import.txt")
for form in text html json document; do
    awr report --dsn "$central" --instance "$masked" --begin "$begin" --end "$end" --format $form
done >"$WORK/masked.reports"
# Everything that was imported, as text
for table in $(CLUSTER=central q "SELECT relname FROM pg_class WHERE relnamespace = 'awr'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition AND relname NOT IN ('collector', 'last_value', 'word', 'instance', 'baseline')"); do
    CLUSTER=central q "SELECT to_jsonb(t) FROM awr.$table t WHERE instance_id = $masked"
done >"$WORK/masked.tables"
CLUSTER=central q "SELECT name FROM awr.instance WHERE instance_id = $masked UNION ALL SELECT application || ' ' || coalesce(client, '') FROM awr.active_session_history WHERE instance_id = $masked" >>"$WORK/masked.tables"
if command -v zstd >/dev/null; then tail -c +17 "$WORK/masked.awr" | zstd -dcq >>"$WORK/masked.tables"; fi
check "the masked import contains samples and statements" grep -q 'application_' "$WORK/masked.tables"
names=(paycluster clerkrole wagesdb oldtown rawbytes wagespace hrschema salaries salaries_by_amount payapp topsecretliteral burst_ latin_text
    "$WORK" employee)
leaks=
{
    awr report --dsn "$payroll" --begin "$begin" --end "$end" --format document
    q "SELECT setting FROM awr.setting"
} >"$WORK/original"
for name in "${names[@]}"; do
    check "the original contains \"$name\"" grep -q -a -F -- "$name" "$WORK/original"
    if grep -q -a -F -- "$name" "$WORK/masked.reports" "$WORK/masked.tables"; then leaks+=" $name"; fi
done
check_equal "the host is masked" "$(CLUSTER=central q "SELECT DISTINCT facts ->> 'host' FROM awr.snapshot WHERE instance_id = $masked")" host_1
check_equal "no original name or literal is in the masked import and its reports" "$leaks" ""
statements() { jq -s "[.[0].statements[] | {query_id, calls, elapsed_us}] | sort_by(.query_id)"; }
if command -v jq >/dev/null; then
    check_equal "statements of the masked export keep identifiers and figures" \
        "$(tail -n 1 "$WORK/masked.reports" | statements | md5sum)" "$(head -n 1 "$WORK/original" | statements | md5sum)"
fi

# ---- a standby ----

install -d -m 700 -o "$OS_USER" "$WORK/standby"
as_pg "$PG_BIN/pg_basebackup" -D "$WORK/standby" -R -X stream -c fast --no-sync --tablespace-mapping="$WORK/wagespace=$WORK/wagespace.standby" -h "$WORK/run" -p "$(cluster_port payroll)" -U postgres
cluster_set "$WORK/standby" "port = $(cluster_port standby)"
cluster_start standby "$WORK/standby"
standby=$(cluster_dsn standby)
check_equal "the standby is in recovery" "$(CLUSTER=standby q "SELECT pg_is_in_recovery()")" t
fails_with "a standby refuses to store an AWR snapshot" 'cellar awr snapshot --source STANDBY --repository' awr snapshot --dsn "$standby"
fails_with "a standby needs another name than its primary" 'another AWR instance has the name "paycluster"' \
    awr snapshot --source "$standby" --repository "$payroll"
first=$(awr snapshot --source "$standby" --repository "$payroll" --name reader)
for i in 1 2 3; do
    CLUSTER=standby DB=wagesdb q "SELECT /* on the standby $i */ sum(amount) FROM hrschema.salaries" >/dev/null
done
# Active until the sampler has seen the session
CLUSTER=standby PGAPPNAME=standbyapp q "DO \$\$ BEGIN
    FOR i IN 1 .. 600 LOOP
      EXIT WHEN EXISTS (SELECT FROM awr.get_samples(0) WHERE pid = pg_backend_pid() AND wait_event IS NULL);
      PERFORM sum(n) FROM generate_series(1, 200000) n;
    END LOOP;
  END \$\$"
second=$(awr snapshot --source "$standby" --repository "$payroll" --name reader)
awr report --dsn "$payroll" --instance reader --begin "$first" --end "$second" --format document >"$WORK/standby.json"
check_equal "the report of a standby contains its statements" \
    "$(jq '[.statements[] | select(.text // "" | test("on the standby")) | .calls] | add' "$WORK/standby.json")" 3
check_equal "the report of a standby names its state" "$(jq .instance.in_recovery "$WORK/standby.json")" true
check_equal "the report of a standby names the roles of its samples" "$(jq -r '[.ash.top_sessions[] | select(.application == "standbyapp") | .user] | unique | join(",")' "$WORK/standby.json")" postgres
check "the report of a standby can be rendered" awr report --dsn "$payroll" --instance reader
third=$(awr snapshot --source "$standby" --repository "$payroll" --name reader)
check_equal "samples of a standby are stored once" \
    "$(q "SELECT count(*) - count(DISTINCT (sample_time, pid)) FROM awr.active_session_history WHERE instance_id = (SELECT instance_id FROM awr.instance WHERE name = 'reader')")" 0
check "AWR snapshots of a standby have ascending numbers: $first, $second, $third" test "$first" -lt "$second" -a "$second" -lt "$third"
check "a central repository stores AWR snapshots of any server" awr snapshot --source "$payroll" --repository "$central" --name fed
check_equal "no figure of a standby's interval is negative" \
    "$(q "SELECT count(*) FROM awr.database_stat WHERE instance_id = (SELECT instance_id FROM awr.instance WHERE name = 'reader') AND (xact_commit < 0 OR blks_read < 0)")" 0

# ---- replication lag ----

begin=$(snapshot)
CLUSTER=standby q "SELECT pg_wal_replay_pause()" >/dev/null
q "CREATE TABLE shipped AS SELECT generate_series(1, 20000) AS a"
sent=$(q "SELECT pg_current_wal_lsn()")
wait_for_true 60 sql standby postgres -c "SELECT pg_last_wal_receive_lsn() >= '$sent'" || die "the standby does not receive WAL"
replayed=$(CLUSTER=standby q "SELECT pg_last_wal_replay_lsn()")
lag() { q "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '$replayed')::bigint"; }
before=$(lag)
middle=$(snapshot)
after=$(lag)
standby_middle=$(awr snapshot --source "$standby" --repository "$payroll" --name reader)
received=$(CLUSTER=standby q "SELECT pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())::bigint")
CLUSTER=standby q "SELECT pg_wal_replay_resume()" >/dev/null
wait_for_true 60 q "SELECT replay_lsn >= '$sent' FROM pg_stat_replication" || die "the standby does not replay WAL"
end=$(snapshot)
lag_of() { q "SELECT e -> '$3' FROM jsonb_array_elements(awr.report_data($1, $2) -> 'replication') e"; }
check "replication lag in bytes: $(lag_of "$begin" "$middle" lag_bytes_end), by positions of the WAL between $before and $after" \
    test "$(lag_of "$begin" "$middle" lag_bytes_end)" -ge "$before" -a "$(lag_of "$begin" "$middle" lag_bytes_end)" -le "$after"
check_equal "the greatest lag at the AWR snapshots of a period" "$(lag_of "$begin" "$end" lag_bytes_max)" "$(lag_of "$begin" "$middle" lag_bytes_end)"
check "the lag at the end is smaller" test "$(lag_of "$begin" "$end" lag_bytes_end)" -lt "$before"
replay_lag=$(q "SELECT e -> 'lag_bytes_end' FROM awr.instance i, jsonb_array_elements(awr.report_data($third, $standby_middle, i.instance_id) -> 'replication') e WHERE i.name = 'reader'")
check "the standby's own lag: $replay_lag bytes received and not replayed" test "$replay_lag" -ge $((before - 200000)) -a "$replay_lag" -le "$received"

# ---- a document about very many statements ----

first=$(CLUSTER=central snapshot)
last=$(CLUSTER=central snapshot)
CLUSTER=central q "INSERT INTO awr.plan_stat (snap_day, snap_id, instance_id, database, role, query_id, plan_id, calls, elapsed_us, max_us)
                   SELECT snap_day, snap_id, 1, 5, 10, n, 1, 1, n, n FROM awr.snapshot, generate_series(1, 12000) n WHERE instance_id = 1 AND snap_id = $last"
check_equal "a document contains the leading statements, and the sums of the others" \
    "$(CLUSTER=central q "SELECT count(*) < 3000, sum((e -> 'calls')::bigint) = (SELECT sum(calls) FROM awr.plan_stat WHERE instance_id = 1 AND snap_id = $last),
                                 sum((e -> 'elapsed_us')::bigint) = (SELECT sum(elapsed_us) FROM awr.plan_stat WHERE instance_id = 1 AND snap_id = $last),
                                 bool_or(e ->> 'query_id' = '12000'), bool_or(e ->> 'text' = '(other statements)')
                          FROM jsonb_array_elements(awr.report_data($first, $last) -> 'statements') e")" "t|t|t|t|t"

# ---- lost texts ----

cluster_set "$WORK/central" "cellar.awr_text_buffer = 64kB"
cluster_stop central
cluster_start central "$WORK/central"
CLUSTER=central snapshot >/dev/null
sed -n '1,1000s/ FROM .*/ FROM (VALUES (1)) a (amount), (VALUES (1)) b (amount);/p' "$WORK/burst.sql" | sql central postgres >/dev/null
last=$(CLUSTER=central snapshot)
check_matches "texts that were overwritten are counted" "$(CLUSTER=central q "SELECT description FROM awr.note WHERE snap_id = $last AND kind = 'texts lost'")" \
    "^[0-9]+ texts .*cellar.awr_text_buffer"

checks_end
