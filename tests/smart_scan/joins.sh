# shellcheck shell=bash
# Joins by values that PostgreSQL stores compressed or outside of the row, and the estimates by which joins are planned. run.sh sources
# this file.

# toasted_keys CLUSTER: joins, groups and DISTINCT of wide values have the same answers with Smart Scan off and on, raw and compressed.
toasted_keys() {
    local cluster=$1 compressed column mode plan sizes answers queries
    local settings="SET cellar.min_scan_size = 0; SET cellar.cost_factor = 0; SET max_parallel_workers_per_gather = 0; SET enable_nestloop = off; SET enable_mergejoin = off"
    # `inline` is compressed in the row; `outside` and `bytes` are in the TOAST table, `both_of` is there and compressed.
    sql "$cluster" postgres -c "CREATE TABLE wide_keys (id int, item int, short text COLLATE \"C\", inline text COLLATE \"C\", outside text COLLATE \"C\", both_of text COLLATE \"C\", bytes bytea)" \
        -c "ALTER TABLE wide_keys ALTER outside SET STORAGE EXTERNAL, ALTER bytes SET STORAGE EXTERNAL" \
        -c "INSERT INTO wide_keys SELECT i, i % 400, md5((i % 400)::text), repeat(md5((i % 400)::text), 100), repeat(md5((i % 400)::text), 100),
                (SELECT string_agg(md5((i % 400 * 1000 + j)::text) || repeat('-', 32), '') FROM generate_series(1, 150) j), decode(repeat(md5((i % 400)::text), 200), 'hex')
            FROM generate_series(1, 1000) i" \
        -c "INSERT INTO wide_keys (id) SELECT i FROM generate_series(1001, 1020) i" \
        -c "CREATE TABLE wide_partners AS SELECT * FROM wide_keys WHERE id <= 150 UNION ALL SELECT * FROM wide_keys WHERE id <= 20 OR id > 1010" \
        -c "VACUUM (FREEZE, ANALYZE) wide_keys, wide_partners" >/dev/null
    sizes=$(sql "$cluster" postgres -c "SELECT max(pg_column_size(inline)) < 1000 AND min(pg_column_size(outside)) > 3000 AND max(pg_column_size(both_of)) < 8000
            AND min(pg_column_size(both_of)) > 3000 AND (SELECT relpages FROM pg_class WHERE oid = (SELECT reltoastrelid FROM pg_class WHERE relname = 'wide_keys')) > 1000 FROM wide_keys")
    check "wide keys are compressed in the row, or outside of it" test "$sizes" = t
    for compressed in raw compressed; do
        [ $compressed = raw ] || sql "$cluster" postgres -c "SELECT cellar.compress('wide_keys', 'query low')" >/dev/null
        for column in inline outside both_of bytes; do
            queries=("SELECT count(*), sum(k.id) FROM wide_keys k JOIN wide_partners p USING ($column)"
                "SELECT count(*), sum(k.id) FROM wide_keys k WHERE $column IN (SELECT $column FROM wide_partners)"
                "SELECT count(*), sum(k.id) FROM wide_keys k WHERE NOT EXISTS (SELECT 1 FROM wide_partners p WHERE p.$column = k.$column)"
                "SELECT count(*), sum(k.id), count(p.id) FROM wide_keys k LEFT JOIN wide_partners p USING ($column)"
                "SELECT md5(string_agg(g::text, ' ' ORDER BY g::text)) FROM (SELECT $column, count(*), min(id) FROM wide_keys GROUP BY 1) g"
                "SELECT md5(string_agg(g::text, ' ' ORDER BY g::text)) FROM (SELECT p.$column, count(*), sum(k.id) FROM wide_keys k JOIN wide_partners p ON k.item = p.item GROUP BY 1) g"
                "SELECT count(DISTINCT $column), count(DISTINCT md5(k.$column)) FROM wide_keys k"
                "SELECT count(*), sum(id) FROM wide_keys WHERE $column = (SELECT p.$column FROM wide_partners p ORDER BY p.$column DESC NULLS LAST LIMIT 1)")
            answers=$(for mode in off on; do
                printf '%s;\n' "$settings" "SET cellar.cell_offload_processing = $mode" "${queries[@]}" | sql "$cluster" postgres | md5sum
            done)
            check "joins and groups by wide keys, $compressed, column $column" test "$(sort -u <<<"$answers" | wc -l)" = 1
        done
        plan=$(sql "$cluster" postgres -c "$settings" -c "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT count(*), sum(length(k.short)) FROM wide_keys k JOIN wide_partners p USING (outside)")
        check "wide keys are a join filter, $compressed" grep -q 'Join Filter: (outside' <<<"$plan"
    done
    sql "$cluster" postgres -c "DROP TABLE wide_keys, wide_partners"
}

# first_cost CLUSTER SETTINGS QUERY: the total cost of the topmost node.
first_cost() { sql "$1" postgres -c "$2" -c "EXPLAIN $3" | sed -n '1s/.*\.\.\([0-9]*\)\..*/\1/p'; }

# join_estimates CLUSTER: estimates by which PostgreSQL chooses between index scans and Smart Scans.
join_estimates() {
    local cluster=$1 settings="SET cellar.min_scan_size = 0; SET max_parallel_workers_per_gather = 0; SET cellar.cached_fraction = 0" mode rows=() costs=() plan
    local query="SELECT l1.l_comment FROM lineitem l1 WHERE NOT EXISTS (SELECT * FROM lineitem l2 WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey)"
    for mode in off on; do
        rows+=("$(sql "$cluster" postgres -c "$settings; SET cellar.cell_offload_processing = $mode" -c "EXPLAIN $query" | sed -n '1s/.* rows=\([0-9]*\).*/\1/p')")
    done
    check "an antijoin with a comparison is estimated to keep a tenth of its rows: ${rows[*]}" test "${rows[0]:-0}" -lt 1000 -a "${rows[1]:-0}" -gt 50000

    # An index scan of a compressed table reads blocks that the cell rebuilds. The keys are in no order.
    sql "$cluster" postgres -c "CREATE TABLE shuffled AS SELECT (i::int8 * 7919 % 200003)::int4 AS id, repeat('x', 100) AS pad FROM generate_series(1, 200000) i" \
        -c "CREATE UNIQUE INDEX ON shuffled (id)" -c "VACUUM (FREEZE, ANALYZE) shuffled" >/dev/null
    query="SELECT * FROM shuffled WHERE id BETWEEN 1000 AND 1500"
    settings+="; SET enable_seqscan = off; SET random_page_cost = 1.1"
    for mode in raw compressed off; do
        [ $mode != compressed ] || sql "$cluster" postgres -c "SELECT cellar.compress('shuffled', 'query low')" >/dev/null
        for plan in bitmapscan indexscan; do
            costs+=("$(first_cost "$cluster" "$settings; SET enable_$plan = off; SET cellar.cell_offload_processing = $([ $mode = off ] && echo off || echo on)" "$query")")
        done
    done
    check "an index scan, and a bitmap scan, cost more on a compressed table: ${costs[*]}" \
        test "$((costs[0] * 2))" -lt "${costs[2]}" -a "$((costs[1] * 2))" -lt "${costs[3]}" -a "${costs[0]} ${costs[1]}" = "${costs[4]} ${costs[5]}"
    settings="SET cellar.min_scan_size = 0; SET random_page_cost = 4"
    for query in "SELECT * FROM shuffled WHERE id = 4711" "SELECT * FROM shuffled WHERE id IN (1, 22, 333, 4444)" "SELECT count(pad) FROM shuffled WHERE id BETWEEN 7 AND 12" \
        "SELECT * FROM shuffled s JOIN generate_series(1, 5) g ON s.id = g" "UPDATE shuffled SET pad = 'y' WHERE id = 99"; do
        plan=$(sql "$cluster" postgres -c "$settings" -c "EXPLAIN (COSTS OFF) $query")
        check "a query of few rows of a compressed table uses the index: $query" grep -Eq 'Index (Only )?Scan' <<<"$plan"
    done
    sql "$cluster" postgres -c "DROP TABLE shuffled"
}

# lookup_keys CLUSTER: sides of lookup joins that are filtered by keys, with shared keys, and with keys that remain after an antijoin with
# a filtered side; also if PostgreSQL joins the rows of blocks that it evaluates itself. The cluster has the tables of TPC-H.
lookup_keys() {
    local cluster=$1 compressed mode change plan answers query
    local settings="SET cellar.min_scan_size = 0; SET cellar.cost_factor = 0; SET max_parallel_workers_per_gather = 0; SET cellar.lookup_table_rows = 12000"
    local late="SELECT FROM parcels o WHERE o.id = p.id AND o.sender <> p.sender AND o.day > 5" other="SELECT FROM parcels o WHERE o.id = p.id AND o.sender <> p.sender"
    local queries=("SELECT r.day, count(*) FROM parcels p JOIN receipts r ON r.id = p.id WHERE p.sender = 3 AND p.day < 2 AND EXISTS ($other) GROUP BY 1 ORDER BY 1"
        "SELECT count(*), sum(p.id) FROM parcels p WHERE p.sender = 3 AND p.day < 2 AND EXISTS ($other) AND NOT EXISTS ($late)"
        "SELECT p.day, count(*) FROM parcels p WHERE p.sender < 3 AND p.day > 6 AND NOT EXISTS ($late) AND p.id IN (SELECT id FROM receipts WHERE day < 5) GROUP BY 1 ORDER BY 1"
        "SELECT s.k, c.* FROM generate_series(1, 4) s(k), LATERAL (SELECT count(*), sum(r.day) FROM parcels p JOIN receipts r ON r.id = p.id WHERE p.sender = s.k AND p.day < 2 AND EXISTS ($other)) c ORDER BY 1"
        "SELECT s.k, c.* FROM generate_series(1, 4) s(k), LATERAL (SELECT count(*), sum(p.id) FROM parcels p WHERE p.sender = s.k AND p.day < 2 AND EXISTS ($other) AND NOT EXISTS ($late)) c ORDER BY 1"
        "SELECT s.k, c.* FROM generate_series(0, 3) s(k), LATERAL (SELECT count(*), sum(r.day) FROM parcels p JOIN senders d ON d.id = p.sender JOIN receipts r ON r.id = p.id WHERE d.region = s.k AND p.day < 2 AND EXISTS ($other)) c ORDER BY 1"
        "SELECT s.k, c.* FROM generate_series(0, 3) s(k), LATERAL (SELECT count(*), sum(p.id) FROM parcels p JOIN senders d ON d.id = p.sender WHERE d.region = s.k AND p.day < 2 AND EXISTS ($other) AND NOT EXISTS ($late)) c ORDER BY 1"
        "SELECT s.k, c.* FROM generate_series(0, 3) s(k), LATERAL (SELECT count(*), sum(r.day) FROM parcels p JOIN senders d ON d.id = p.sender JOIN receipts r ON r.id = p.id WHERE d.region = s.k AND p.day < 2 AND NOT EXISTS ($late)) c ORDER BY 1")
    sql "$cluster" postgres -c "CREATE TABLE parcels AS SELECT i / 4 AS id, CASE WHEN i % 11 > 0 THEN i % 13 END AS sender, CASE WHEN i % 7 > 0 THEN i % 9 END AS day, repeat('x', 60) AS pad
                FROM generate_series(1, 80000) i" \
        -c "CREATE TABLE receipts AS SELECT i AS id, i % 9 AS day, repeat('x', 60) AS pad FROM generate_series(1, 40000) i" \
        -c "CREATE TABLE senders AS SELECT i AS id, i % 4 AS region FROM generate_series(0, 12) i" -c "VACUUM (FREEZE, ANALYZE) parcels, receipts, senders" >/dev/null
    for compressed in raw compressed; do
        [ $compressed = raw ] || sql "$cluster" postgres -c "SELECT cellar.compress('parcels', 'query low')" >/dev/null
        plan=$(sql "$cluster" postgres -c "$settings" -c "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) ${queries[0]}")
        # shellcheck disable=SC2016
        check "two sides are filtered by the same keys, $compressed" test "$(grep -c 'Join Filter: (id = ANY (\$0))' <<<"$plan") $(grep -c 'Distinct Values' <<<"$plan")" = "2 1"
        plan=$(sql "$cluster" postgres -c "$settings" -c "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) ${queries[1]}")
        check "keys are those that remain after an antijoin, $compressed" test "$(grep 'Distinct Values' <<<"$plan" | tr -dc '0-9\n' | sort -n | uniq | wc -l)" = 2
        for change in "SELECT 1" "UPDATE parcels SET day = day WHERE id % 50 = 0"; do
            for query in "${queries[@]}"; do
                answers=$(for mode in off on; do
                    printf '%s;\n' "$settings" BEGIN "$change" "SET cellar.cell_offload_processing = $mode" "$query" ROLLBACK | sql "$cluster" postgres | md5sum
                done)
                check "lookup joins with filtered sides, $compressed, after ${change%% *}: $query" test "$(sort -u <<<"$answers" | wc -l)" = 1
            done
        done
    done
    sql "$cluster" postgres -c "DROP TABLE parcels, receipts, senders"

    # The nations select customers, although the query joins them with suppliers.
    plan=$(sql "$cluster" postgres -c "SET cellar.min_scan_size = 0; SET max_parallel_workers_per_gather = 0; SET cellar.cached_fraction = 0" -c "EXPLAIN (COSTS OFF) $(sed '/^--/d' "$ROOT/bench/tpch/q05.sql")")
    check "a part of a side is joined with another side" grep -q 'customer.c_nationkey = nation.n_nationkey' <<<"$plan"
}
