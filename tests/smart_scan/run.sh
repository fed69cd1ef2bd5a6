#!/usr/bin/env bash
# Query results do not depend on Smart Scan. Compares results with Smart Scan on and off: for the 22 TPC-H queries, and for
# random queries over random tables, with and without a concurrent writer; in a cluster on the mount, and in a tablespace
# on the mount; and again with tables at random compression levels that are modified and recompressed meanwhile.
#
#   run.sh [--cases N] [--seed N] [--scale N]      N random queries (2500), seed (SEED, or random), TPC-H scale factor (0.1)
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
# shellcheck source=tests/smart_scan/index_scans.sh
. "$(dirname "$0")/index_scans.sh"
# shellcheck source=tests/smart_scan/subqueries.sh
. "$(dirname "$0")/subqueries.sh"
# shellcheck source=tests/smart_scan/joins.sh
. "$(dirname "$0")/joins.sh"

cases=2500 seed=(${SEED:+--seed "$SEED"}) scale=0.1
while [ $# -gt 0 ]; do
    case $1 in
    --cases) cases=$2; shift ;;
    --seed) seed=(--seed "$2"); shift ;;
    --scale) scale=$2; shift ;;
    *) die "unknown option $1" ;;
    esac
    shift
done
extension_installed || die "the extension is not installed: run scripts/build.sh extension"
work_begin smart-scan
RANDOM=${SEED:-$RANDOM}
harness() { "$HARNESS_BIN" --dsn "$(cluster_dsn "$@")" "${command[@]}"; }

# run_counted CLUSTER COMMAND ...: runs the harness and counts its checks. A harness that exits without a failed check counts
# as one failure.
run_counted() {
    local cluster=$1 output
    shift
    command=("$@")
    if output=$(harness "$cluster" postgres 2>&1); then
        count_lines <<<"$output"
    else
        count_lines <<<"$output"
        grep -q '^not ok - ' <<<"$output" || not_ok "$1 failed"
    fi
}

parallel=(--set max_parallel_workers_per_gather=2 --set min_parallel_table_scan_size=0 --set parallel_setup_cost=0 --set parallel_tuple_cost=0)

# Until $WORK/done exists: compresses TPC-H's tables in turn at random levels, and after each updates a part of lineitem
# without changing its values. Prints one line per compression.
recompress() {
    local table
    while [ ! -e "$WORK/done" ]; do
        for table in part customer lineitem partsupp orders; do
            [ ! -e "$WORK/done" ] || return 0
            sql whole postgres -c "SELECT count(*) FROM cellar.compress('$table', (ARRAY['query low', 'query high', 'archive low', 'archive high', 'none'])[1 + floor(random() * 5)])" || return 1
            sql whole postgres -c "UPDATE lineitem SET l_comment = l_comment WHERE l_orderkey % 256 = $((RANDOM % 256))" || return 1
        done
    done
}

# Repeats TPC-H and the scans until the tables were recompressed at least 5 times, at most 8 rounds.
recompressed() {
    local compressor round times=0
    rm -f "$WORK/done"
    (trap - EXIT; recompress) >"$WORK/recompressions.log" 2>&1 &
    compressor=$!
    remember_process $compressor
    for ((round = 0; round < 8 && times < 5; round++)); do
        run_counted whole compare --format checks --set cellar.min_scan_size=0 --require-smart-scans 15 "$ROOT/bench/tpch"
        run_counted whole compare --format checks --forced --require-smart-scans 10 "$ROOT/bench/scans"
        run_counted whole compare --format checks --set cellar.min_scan_size=0 "${parallel[@]}" "$ROOT/bench/tpch"
        times=$(wc -l <"$WORK/recompressions.log")
    done
    touch "$WORK/done"
    if wait $compressor && [ "$times" -ge 5 ]; then
        ok "the queries ran while tables were recompressed $times times"
    else
        not_ok "the queries ran while tables were recompressed at least 5 times: $times times; $(tail -n 1 "$WORK/recompressions.log")"
    fi
}

# A scan below a selective hash join returns only rows with a join partner, serial and parallel, from raw and compressed tables.
join_filters() {
    local query="SELECT sum(l_quantity) FROM lineitem JOIN part ON l_partkey = p_partkey WHERE p_brand = 'Brand#12' AND p_size < 5" mode setting returned
    for mode in off on; do
        for setting in "max_parallel_workers_per_gather = 0" "parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0"; do
            returned=$(sql whole postgres -c "SET enable_nestloop = off; SET enable_mergejoin = off; SET cellar.min_scan_size = 0; SET cellar.lookup_joins = off; SET cellar.join_filters = $mode; SET $setting" \
                -c "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, FORMAT JSON) $query" | tr -d ' \n' |
                grep -o '"Alias":"lineitem".*' | grep -o '"CellRowsReturned":[0-9]*' | head -n 1 | cut -d: -f2)
            case $mode in
            off) check "without join filters all rows of lineitem are returned (${setting%%;*})" test "${returned:-0}" -gt 500000 ;;
            on) check "with join filters only rows with a join partner are returned (${setting%%;*})" test "${returned:-600000}" -lt 20000 ;;
            esac
        done
    done
}

# The cell completes aggregates with DISTINCT when it has scanned all rows, also when the scan is repeated with another parameter. If
# PostgreSQL evaluates some blocks, the cell returns the distinct values. Both answers are PostgreSQL's.
distinct_groups() {
    local groups="SELECT l_returnflag, l_shipmode, count(DISTINCT l_suppkey) AS c, sum(l_quantity), avg(DISTINCT l_suppkey) FROM lineitem GROUP BY 1, 2 ORDER BY c DESC, 1, 2 LIMIT 5"
    local repeated="SELECT x, s.* FROM generate_series(0, 3) x, LATERAL (SELECT count(DISTINCT l_suppkey), count(*), sum(DISTINCT l_linenumber) FILTER (WHERE l_tax > 0.04) FROM lineitem WHERE l_linenumber <= x) s"
    local setup="SET cellar.min_scan_size = 0; SET enable_material = off; BEGIN" update="UPDATE lineitem SET l_tax = l_tax WHERE l_orderkey = 1"
    local mode change expected answer plan
    expected=$(sql whole postgres -c "SET cellar.cell_offload_processing = off" -c "$groups" -c "$repeated")
    for mode in complete incomplete; do
        [ $mode = complete ] && change="SELECT" || change=$update
        answer=$(sql whole postgres -c "$setup" -c "$change" -c "$groups" -c "$repeated" -c ROLLBACK | grep '|')
        check "aggregates with DISTINCT, $mode groups: the answers are PostgreSQL's" test "$answer" = "$expected"
        plan=$(sql whole postgres -c "$setup" -c "$change" -c "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) $groups" -c ROLLBACK)
        check "aggregates with DISTINCT, $mode groups: the plan has Distinct States" grep -q 'Distinct States' <<<"$plan"
        if [ $mode = complete ]; then
            check "the cell completes aggregates with DISTINCT" grep -q 'Partial HashAggregate (never executed)' <<<"$plan"
        else
            check "PostgreSQL combines the values of incomplete groups" test "$(grep -c 'never executed' <<<"$plan")" = 0
        fi
    done
}

# Join keys of each integer type, dense and sparse, more than any other type may have: the answers are those without filters.
join_keys() {
    local column compressed answers
    sql whole postgres -c "CREATE TABLE keyed AS SELECT i AS id, (i % 30000 - 15000)::int2 AS small, i - 200000 AS dense, i::int8 * 7919000003 AS sparse,
                '1999-01-01'::date + i AS day, '1999-01-01'::timestamp + i * '17 minutes'::interval AS moment,
                '1999-01-01'::timestamptz + i * '17 minutes'::interval AS zoned FROM generate_series(1, 450000) i" \
        -c "CREATE TABLE chosen AS SELECT * FROM keyed WHERE id % 3 = 0 UNION ALL SELECT * FROM keyed WHERE id % 9 = 0" -c "VACUUM ANALYZE keyed, chosen" >/dev/null
    for compressed in raw compressed; do
        [ $compressed = raw ] || sql whole postgres -c "SELECT cellar.compress('keyed', 'query low')" >/dev/null
        for column in small dense sparse day moment zoned; do
            answers=$(sql whole postgres -c "SET cellar.min_scan_size = 0; SET cellar.cost_factor = 0; SET cellar.lookup_joins = off; SET enable_nestloop = off; SET enable_mergejoin = off" \
                -c "SELECT count(*), sum(k.id) FROM keyed k WHERE k.$column IN (SELECT $column FROM chosen WHERE id < 440000 AND id > 70000)" \
                -c "SET cellar.join_filters = off" \
                -c "SELECT count(*), sum(k.id) FROM keyed k WHERE k.$column IN (SELECT $column FROM chosen WHERE id < 440000 AND id > 70000)" \
                -c "RESET cellar.join_filters" \
                -c "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT count(*) FROM keyed k JOIN (SELECT DISTINCT $column FROM chosen) c ON k.$column = c.$column" |
                grep -E '^[0-9]|Distinct Values: [0-9]|Distinct Values: too' | tr '\n' ' ')
            check "join keys, $compressed, column $column: ${answers#* }" test "$(wc -w <<<"$answers")" = 5 -a "${answers%% *}" = "$(cut -d' ' -f2 <<<"$answers")"
        done
    done
    sql whole postgres -c "DROP TABLE keyed, chosen"
}

# Aggregates above inner joins: the cell returns groups in place of rows, from raw and compressed tables. A lookup table that is larger
# than estimated and too large for the cell leaves the join to PostgreSQL.
lookup_joins() {
    local settings="SET cellar.min_scan_size = 0; SET cellar.cached_fraction = 0; SET max_parallel_workers_per_gather = 0; SET cellar.lookup_joins = on" mode answers plan returned rows
    local query="SELECT s_nationkey, p_brand, count(*), sum(l_extendedprice), max(o_orderdate) FROM lineitem, supplier, part, orders
        WHERE l_suppkey = s_suppkey AND l_partkey = p_partkey AND l_orderkey = o_orderkey AND o_orderdate < '1994-01-01' GROUP BY 1, 2"
    returned=$(sql whole postgres -c "$settings" -c "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, FORMAT JSON) SELECT p_brand, count(*) FROM lineitem JOIN part ON l_partkey = p_partkey GROUP BY 1" |
        tr -d ' \n' | grep -o '"Alias":"lineitem".*' | grep -o '"CellRowsReturned":[0-9]*' | head -n 1 | cut -d: -f2)
    check "the cell returns groups of a join, not rows: ${returned:-unknown} returned" test "${returned:-600000}" -lt 10000
    answers=$(for mode in off on; do
        sql whole postgres -c "$settings; SET cellar.lookup_joins = $mode" -c "SELECT md5(string_agg(s::text, ' ' ORDER BY s::text)) FROM ($query) s" | tail -n 1
    done)
    check "lookup joins do not change the groups of a join" test "$(sort -u <<<"$answers" | wc -l)" = 1
    # Composite keys, conditions on two sides, a side filtered by keys, sides of larger tables, DISTINCT, semijoins with a comparison.
    for query in q07 q09 q10 q12 q14 q16 q21; do
        plan=$(sql whole postgres -c "$settings; SET cellar.cost_factor = 0" -c "EXPLAIN (COSTS OFF) $(grep -v '^--' "$ROOT/bench/tpch/$query.sql")")
        check "the joins of TPC-H $query run in the cell" grep -q '(Lookup Table)' <<<"$plan"
    done
    # For each (partkey, suppkey), an index scan of lineitem has seven rows on seven pages; PostgreSQL estimates one. A fifth of the parts of q09
    # are enough for a Smart Scan of lineitem.
    plan=$(sql whole postgres -c "$settings; SET cellar.cached_fraction = 0" -c "EXPLAIN (COSTS OFF) $(grep -v '^--' "$ROOT/bench/tpch/q09.sql" | sed "s/p_name LIKE '%green%'/& AND p_size <= 10/")")
    check "the cost of an index scan contains the rows that PostgreSQL underestimates" test "$(grep -c 'Index Scan using lineitem' <<<"$plan")" = 0
    # PostgreSQL estimates 240 rows of this join, which has 80,000, one for each row of partsupp.
    rows=$(sql whole postgres -c "$settings" -c "EXPLAIN SELECT ps_comment, quantity FROM partsupp, (SELECT l_partkey, l_suppkey, sum(l_quantity) AS quantity
        FROM lineitem GROUP BY 1, 2) s WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey" | sed -n 's/^[^ ].* rows=\([0-9]*\).*/\1/p')
    check "a join with groups by two keys is estimated by one partner for each group: $rows" test "${rows:-0}" -gt 10000
    # Correlated subqueries with aggregates become joins with groups.
    for query in q02 q17 q20; do
        plan=$(sql whole postgres -c "$settings; SET cellar.cost_factor = 0" -c "EXPLAIN (COSTS OFF) $(grep -v '^--' "$ROOT/bench/tpch/$query.sql")")
        check "TPC-H $query has no correlated subquery" test "$(grep -c SubPlan <<<"$plan")" = 0
    done
    sql whole postgres -c "CREATE TABLE wide (id int4, note text COLLATE \"C\", kind int4) WITH (autovacuum_enabled = off)" \
        -c "INSERT INTO wide SELECT i, repeat('x', 90) || i, i % 7 FROM generate_series(1, 150000) i" -c "ANALYZE wide" >/dev/null
    query="SELECT kind, count(*), max(note) FROM lineitem JOIN wide ON l_suppkey = id WHERE id % 1 = 0 GROUP BY 1"
    plan=$(sql whole postgres -c "$settings; SET cellar.cost_factor = 0" -c "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) $query")
    check "a lookup table can be too large" grep -q 'the lookup table is too large' <<<"$plan"
    answers=$(for mode in off on; do
        sql whole postgres -c "$settings; SET cellar.cost_factor = 0; SET cellar.lookup_joins = $mode" \
            -c "SELECT md5(string_agg(s::text, ' ' ORDER BY s::text)) FROM ($query) s" | tail -n 1
    done)
    check "a lookup table that is too large does not change the groups" test "$(sort -u <<<"$answers" | wc -l)" = 1
    sql whole postgres -c "DROP TABLE wide"
}

# Several threads of the cell share a scan of a serial plan. Parallel workers do not execute a scan that several threads share: each worker
# would start it.
scan_threads() {
    local settings="SET cellar.min_scan_size = 0; SET cellar.cached_fraction = 0; SET cellar.lookup_joins = off; SET max_parallel_workers_per_gather = 4; SET parallel_leader_participation = off"
    local scan="SELECT l_comment FROM lineitem WHERE l_orderkey % 1000 = 0 AND l_quantity < 3"
    local join="SELECT count(*), sum(q) FROM partsupp JOIN (SELECT l_partkey, sum(l_quantity) q FROM lineitem GROUP BY 1) s ON ps_partkey = l_partkey"
    # Many groups with few and with many distinct values, and few groups.
    local few="SELECT l_partkey, count(DISTINCT l_suppkey) c, sum(l_quantity) FROM lineitem GROUP BY 1 ORDER BY 2 DESC, 3, 1 LIMIT 40"
    local many="SELECT l_orderkey, l_linenumber, count(DISTINCT l_comment), max(l_shipmode) FROM lineitem GROUP BY 1, 2"
    local modes="SELECT l_shipmode, count(DISTINCT l_orderkey), sum(l_tax) FROM lineitem GROUP BY 1"
    local plan mode answers query
    plan=$(sql whole postgres -c "$settings" -c "EXPLAIN (COSTS OFF) $scan")
    check "threads of the cell replace parallel workers" test "$(grep -c 'Cell Threads: 4' <<<"$plan") $(grep -c Gather <<<"$plan")" = "1 0"
    plan=$(sql whole postgres -c "$settings; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET enable_mergejoin = off" \
        -c "EXPLAIN (COSTS OFF) $join")
    check "no parallel worker executes a scan that threads share" test "$(awk '
        { match($0, /^ */) }
        gather != "" && RLENGTH <= gather { gather = "" }
        gather != "" && /Cell Threads/ { found++ }
        /Gather/ { gather = RLENGTH }
        END { print found + 0 }' <<<"$plan")" = 0
    for query in "$scan" "$join" "$few" "$many" "$modes"; do
        answers=$(for mode in off on; do
            sql whole postgres -c "$settings; SET cellar.cell_offload_processing = $mode" -c "SELECT md5(string_agg(s::text, ' ' ORDER BY s::text)) FROM ($query) s" | tail -n 1
        done)
        check "a scan that threads share returns PostgreSQL's rows: ${query:0:30}" test "$(sort -u <<<"$answers" | wc -l)" = 1
    done
}

# A scan with a filter in PostgreSQL gets no join filter, and its cost must not assume one: the filter may be expensive.
join_filter_costs() {
    local setting costs=()
    sql whole postgres -c "CREATE TABLE part_of AS SELECT i AS id, i % 1000 AS part FROM generate_series(1, 200000) i" \
        -c "CREATE TABLE parts AS SELECT i AS part, i % 100 AS kind FROM generate_series(1, 1000) i" -c "VACUUM ANALYZE part_of, parts" >/dev/null
    for setting in on off; do
        costs+=("$(sql whole postgres -c "SET cellar.min_scan_size = 0; SET cellar.join_filters = $setting; SET enable_nestloop = off; SET seq_page_cost = 1000" \
            -c "EXPLAIN SELECT count(*) FROM part_of JOIN parts USING (part) WHERE kind = 1 AND id > (SELECT max(p.part) FROM parts p WHERE p.kind = part_of.id % 7)" |
            sed -n 's/.*->  \(.* on part_of  (cost=[^ ]*\) .*/\1/p')")
    done
    check "a scan with a filter in PostgreSQL is planned without join filters: ${costs[*]}" test -n "${costs[0]}" -a "${costs[0]}" = "${costs[1]}"
    sql whole postgres -c "DROP TABLE part_of, parts"
}

# Case conversion beyond ASCII: some non-ASCII letters convert to ASCII letters, and Turkish converts i and I differently.
letters() {
    local mode collation answers=()
    sql whole postgres -c "CREATE TABLE letters AS SELECT chr(c) AS letter FROM generate_series(33, 700) c UNION ALL SELECT chr(8490)" \
        -c "CREATE TABLE ascii_letters AS SELECT chr(c) AS letter FROM generate_series(33, 126) c"
    check_equal "the results of lower and upper in aggregates are told apart" \
        "$(PGOPTIONS="-c cellar.min_scan_size=0 -c cellar.cost_factor=0" sql whole postgres -c "
            SELECT count(*) FILTER (WHERE lower(letter) = 'i'), count(*) FILTER (WHERE upper(letter) = 'i') FROM ascii_letters")" "2|0"
    for collation in en-x-icu tr-x-icu; do
        if [ -z "$(sql whole postgres -c "SELECT 1 FROM pg_collation WHERE collname = '$collation'")" ]; then
            say "# no collation $collation in this installation"
            continue
        fi
        answers=()
        for mode in off on; do
            answers+=("$(PGOPTIONS="-c cellar.cell_offload_processing=$mode -c cellar.min_scan_size=0 -c cellar.cost_factor=0" sql whole postgres -c "
                SELECT string_agg(letter, '' ORDER BY ascii(letter)) FROM letters WHERE lower(letter COLLATE \"$collation\") IN ('i', 'k')" -c "
                SELECT string_agg(letter, '' ORDER BY ascii(letter)) FROM letters WHERE upper(letter COLLATE \"$collation\") IN ('I', 'K')" -c "
                SELECT string_agg(letter, '' ORDER BY ascii(letter)) FROM letters WHERE letter COLLATE \"$collation\" ILIKE 'I' OR letter COLLATE \"$collation\" ILIKE 'k%'")")
        done
        check "case conversion under $collation equals Postgres's: ${answers[1]//$'\n'/ }" \
            test -n "${answers[0]}" -a "${answers[0]}" = "${answers[1]}"
    done
}

# The cell evaluates functions of the time zone in UTC only, also if a prepared statement was planned in UTC.
time_zones() {
    local mode zone answers plan query="SELECT date_trunc('day', t) AS day, extract(hour FROM t), t::date, t::timestamp, extract(week FROM t),
        t AT TIME ZONE 'UTC', count(*) FROM zoned GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6"
    sql whole postgres -c "CREATE TABLE zoned AS SELECT '1899-12-30 UTC'::timestamptz + i * '47 days 5 hours 11 minutes'::interval AS t FROM generate_series(1, 3000) i" \
        -c "INSERT INTO zoned VALUES (NULL), ('0044-03-15 BC')" -c "VACUUM ANALYZE zoned"
    for zone in UTC Europe/Berlin; do
        answers=()
        for mode in off on; do
            answers+=("$(PGOPTIONS="-c cellar.cell_offload_processing=$mode -c cellar.min_scan_size=0 -c cellar.cost_factor=0 -c plan_cache_mode=force_generic_plan" \
                sql whole postgres -c "SET TimeZone = 'UTC'" -c "PREPARE zones AS $query" -c "EXECUTE zones" -c "SET TimeZone = '$zone'" -c "EXECUTE zones" -c "$query")")
        done
        check "times in $zone, planned in UTC and there: the answers are PostgreSQL's" test -n "${answers[0]}" -a "${answers[0]}" = "${answers[1]}"
        plan=$(PGOPTIONS="-c cellar.min_scan_size=0 -c cellar.cost_factor=0 -c TimeZone=$zone" sql whole postgres \
            -c "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT extract(dow FROM t), count(*) FROM zoned WHERE t < '2100-01-01' GROUP BY 1")
        check_equal "the cell groups by a part of a time in UTC only ($zone)" "$(grep -c 'Cell Group Key: EXTRACT' <<<"$plan" || true)" "$([ $zone = UTC ] && printf 1 || printf 0)"
    done
    sql whole postgres -c "DROP TABLE zoned"
}

cell_configure cell1
cell_start cell1
cluster_create whole "$WORK/cell1/pgdata" --data-checksums
cluster_set "$WORK/cell1/pgdata" "shared_preload_libraries = 'cellar'" "fsync = off" "max_prepared_transactions = 10"
cluster_start whole "$WORK/cell1/pgdata"
sql whole postgres -c "CREATE EXTENSION cellar"

run_counted whole tpch-load --scale "$scale" --directory "$ROOT/bench/tpch"
run_counted whole compare --format checks --set cellar.min_scan_size=0 --require-smart-scans 15 "$ROOT/bench/tpch"
run_counted whole compare --format checks --forced --require-smart-scans 10 "$ROOT/bench/scans"
run_counted whole compare --format checks --set cellar.min_scan_size=0 "${parallel[@]}" "$ROOT/bench/tpch"
letters
time_zones
join_filters
join_keys
lookup_joins
join_filter_costs
scan_threads
distinct_groups
index_scans whole "${LONG:+60}"
subqueries whole
toasted_keys whole
join_estimates whole
lookup_keys whole
run_counted whole differ --cases "$cases" "${seed[@]}"
run_counted whole differ --compress --cases "$((cases / 2))" "${seed[@]}"
run_counted whole differ --aggregates --require-share 20 --cases "$((cases / 4))" "${seed[@]}"
run_counted whole differ --first-rows --require-share 30 --cases "$((cases / 10))" "${seed[@]}"
run_counted whole differ --top-groups --require-share 20 --cases "$((cases / 20))" "${seed[@]}"
run_counted whole differ --lookups --cases "$((cases * 2 / 25))" "${seed[@]}"
run_counted whole differ --members --require-share 20 --cases "$((cases * 3 / 25))" "${seed[@]}"
run_counted whole differ --cases "$((cases / 20))" --writer "${seed[@]}"
run_counted whole differ --compress --aggregates --require-share 20 --cases "$((cases / 8))" "${seed[@]}"
run_counted whole differ --compress --first-rows --require-share 30 --cases "$((cases / 20))" "${seed[@]}"
run_counted whole differ --compress --lookups --cases "$((cases * 2 / 25))" "${seed[@]}"
run_counted whole differ --compress --members --require-share 20 --cases "$((cases * 2 / 25))" "${seed[@]}"
run_counted whole differ --compress --cases "$((cases / 40))" --writer "${seed[@]}"
run_counted whole differ --parallel --compress --aggregates --require-share 20 --cases "$((cases / 40))" "${seed[@]}"
run_counted whole differ --parallel --compress --members --require-share 20 --cases-per-table 20 --cases "$((cases / 20))" "${seed[@]}"
run_counted whole differ --parallel --compress --top-groups --require-share 20 --cases "$((cases / 40))" "${seed[@]}"
run_counted whole differ --parallel --compress --first-rows --require-share 30 --cases "$((cases / 40))" "${seed[@]}"

# TPC-H again, with each table at a random level and half of lineitem's pages modified since; then during recompression.
check "the TPC-H tables can be compressed" sql whole postgres -c "
    SELECT relname, cellar.compress(oid::regclass, (ARRAY['query low', 'query high', 'archive low', 'archive high'])[1 + floor(random() * 4)])
    FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relpages > 512" \
    -c "UPDATE lineitem SET l_comment = l_comment WHERE l_orderkey % 64 = 0 AND l_orderkey < (SELECT max(l_orderkey) / 2 FROM lineitem)"
run_counted whole compare --format checks --set cellar.min_scan_size=0 --require-smart-scans 15 "$ROOT/bench/tpch"
run_counted whole compare --format checks --forced --require-smart-scans 10 "$ROOT/bench/scans"
run_counted whole compare --format checks --set cellar.min_scan_size=0 --require-smart-scans 15 "$ROOT/bench/tpch-reports"
join_filters
lookup_joins
scan_threads
recompressed

cluster_create part "$WORK/part-data" --data-checksums
cluster_set "$WORK/part-data" "shared_preload_libraries = 'cellar'" "fsync = off"
cluster_start part "$WORK/part-data"
mkdir -p "$WORK/cell1/space"
[ "$(id -u)" != 0 ] || chown "$OS_USER" "$WORK/cell1/space"
sql part postgres -c "CREATE EXTENSION cellar" -c "CREATE TABLESPACE cell LOCATION '$WORK/cell1/space'"
run_counted part differ --cases "$((cases / 10))" --tablespace cell "${seed[@]}"
run_counted part differ --compress --cases "$((cases / 20))" --tablespace cell "${seed[@]}"

check "Postgres stops" cluster_stop whole
check "Postgres with a tablespace on the mount stops" cluster_stop part
if grep -hE 'PANIC|server process .* was terminated by signal' "$WORK"/*-postgres.log; then
    not_ok "no backend crashed"
else
    ok "no backend crashed"
fi
check "the cell stops and unmounts" cell_stop cell1
checks_end
