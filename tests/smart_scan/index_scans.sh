# shellcheck shell=bash
# Smart Scans of indexes return what PostgreSQL returns: for indexes of several kinds, and beside writers that split pages, make
# VACUUM delete pages, and change visibility. run.sh sources this file.

INDEX_SETTINGS="SET cellar.min_scan_size = 0; SET cellar.index_scans = always; SET cellar.cost_factor = 0"
# PostgreSQL's answer: no cell, no index.
WITHOUT_CELL="SET cellar.cell_offload_processing = off; SET enable_indexonlyscan = off"

# Queries that an index of the table indexed covers.
INDEX_QUERIES=(
    "SELECT count(*), sum(k), min(k), max(k) FROM indexed"
    "SELECT count(*), sum(k), count(k) FROM indexed WHERE k BETWEEN 20000 AND 70000 AND k % 3 = 0"
    "SELECT kind, count(*), sum(k), max(note) FROM indexed GROUP BY kind"
    "SELECT note, count(*), min(k) FROM indexed WHERE kind < 4 AND note LIKE 'note 1%' GROUP BY note HAVING count(*) > 1"
    "SELECT count(DISTINCT kind), sum(DISTINCT kind) FROM indexed"
    "SELECT count(*), sum(amount), avg(amount) FROM indexed WHERE amount IS NULL OR amount > 100"
    "SELECT count(*), min(day), max(day) FROM indexed WHERE day > '2001-06-01' AND kind = 3"
    "SELECT day, count(*) AS c FROM indexed WHERE kind = 3 GROUP BY day ORDER BY c DESC, day LIMIT 5"
)

# index_answers CLUSTER SETTINGS: the answers of all queries, one line per query.
index_answers() {
    local query statements=(-c "$INDEX_SETTINGS; $2")
    for query in "${INDEX_QUERIES[@]}"; do
        statements+=(-c "SELECT coalesce(md5(string_agg(s::text, ' ' ORDER BY s::text)), '-') FROM ($query) s")
    done
    sql "$1" postgres "${statements[@]}"
}

index_table() {
    sql "$1" postgres -c "CREATE TABLE indexed (id int8 GENERATED ALWAYS AS IDENTITY, pad text, k int4, kind int4, note text COLLATE \"C\", amount numeric(12,2), day date)
            WITH (autovacuum_enabled = off, fillfactor = 90)" \
        -c "INSERT INTO indexed (pad, k, kind, note, amount, day) SELECT repeat('x', 300), (i * 7919) % 100000, CASE WHEN i % 17 > 0 THEN i % 7 END,
            'note ' || i % 300, CASE WHEN i % 5 > 0 THEN i % 20000 / 100.0 END, '2001-01-01'::date + i % 400 FROM generate_series(1, 60000) i" \
        -c "CREATE INDEX indexed_k ON indexed (k)" \
        -c "CREATE INDEX indexed_note ON indexed (kind, note) INCLUDE (k)" \
        -c "CREATE INDEX indexed_amount ON indexed (amount)" \
        -c "CREATE INDEX indexed_day ON indexed (day) INCLUDE (kind) WHERE kind = 3" \
        -c "CREATE INDEX indexed_name ON indexed ((note || 'x'))" \
        -c "VACUUM ANALYZE indexed" >/dev/null
}

# Each query uses the cell's scan of an index, and the answers are PostgreSQL's: all pages visible, then with half of the pages changed.
index_kinds() {
    local cluster=$1 query plan expected answer state
    for state in "all pages visible" "changed pages"; do
        [ "$state" = "all pages visible" ] || sql "$cluster" postgres -c "UPDATE indexed SET k = k + 1, amount = amount + 1 WHERE id % 900 < 50" \
            -c "DELETE FROM indexed WHERE k BETWEEN 40000 AND 43000" >/dev/null
        expected=$(index_answers "$cluster" "$WITHOUT_CELL")
        answer=$(index_answers "$cluster" "")
        check "scans of indexes return PostgreSQL's rows, $state" test "$(wc -l <<<"$expected")" = ${#INDEX_QUERIES[@]} -a "$answer" = "$expected"
    done
    for query in "${INDEX_QUERIES[@]}"; do
        plan=$(sql "$cluster" postgres -c "$INDEX_SETTINGS" -c "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) $query")
        check "the cell scans an index: ${query:0:60}" grep -q 'Cell Index: indexed_' <<<"$plan"
        check "the index is not left for the table: ${query:0:60}" test "$(grep -c 'Cell Index Not Scanned' <<<"$plan")" = 0
    done
    plan=$(sql "$cluster" postgres -c "$INDEX_SETTINGS" -c "BEGIN ISOLATION LEVEL REPEATABLE READ" -c "SELECT 1" -c "EXPLAIN (ANALYZE, COSTS OFF) ${INDEX_QUERIES[0]}" -c COMMIT)
    check "entries of changed heap pages are checked by PostgreSQL" grep -q 'heap fetches=[1-9]' <<<"$plan"
}

# index_writer CLUSTER KIND: changes the table until $WORK/index_done exists.
index_writer() {
    local first
    while [ ! -e "$WORK/index_done" ]; do
        first=$((RANDOM * 3 % 98000))
        case $2 in
        insert) sql "$1" postgres -c "INSERT INTO indexed (pad, k, kind, note, amount, day) SELECT repeat('y', 300), $first + i % 400, i % 7, 'note ' || i % 300, i, '2001-01-01'::date + i % 400
                FROM generate_series(1, 1500) i" ;;
        delete) sql "$1" postgres -c "DELETE FROM indexed WHERE k BETWEEN $first AND $first + 4000" -c "VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) indexed" ;;
        update) sql "$1" postgres -c "UPDATE indexed SET k = (k + 50000) % 100000, amount = amount + 0.01 WHERE k BETWEEN $first AND $first + 300" ;;
        # Pages reach the file while the cell scans it.
        flush) sql "$1" postgres -c CHECKPOINT && sleep 0.02 ;;
        abort) sql "$1" postgres -c BEGIN -c "INSERT INTO indexed (pad, k, kind, note) SELECT repeat('z', 300), $first + i, i % 7, 'note' FROM generate_series(1, 500) i" -c ROLLBACK ;;
        esac >/dev/null 2>>"$WORK/index_writers.log" || return 1
    done
}

# Transactions of one snapshot see the same rows with and without the cell, while writers change all pages.
index_beside_writers() {
    local cluster=$1 seconds=$2 writer failed=0 pids=() script=() query end rounds=0 different=0 read=0 scans answers
    rm -f "$WORK/index_done"
    for writer in insert insert delete update abort flush; do
        (trap - EXIT; index_writer "$cluster" "$writer") &
        pids+=($!)
        remember_process $!
    done
    scans=$(sql "$cluster" postgres -c "SELECT value FROM cellar.sysstat WHERE name = 'cell index scans'")
    end=$((SECONDS + seconds))
    # On a busy machine, a transaction can take several seconds.
    while [ $SECONDS -lt $end ] || { [ $rounds -lt 5 ] && [ $SECONDS -lt $((end + 10 * seconds)) ]; }; do
        query=${INDEX_QUERIES[rounds % ${#INDEX_QUERIES[@]}]}
        query="SELECT 'answer ' || coalesce(md5(string_agg(s::text, ' ' ORDER BY s::text)), '-') FROM ($query) s"
        script=(-c "$INDEX_SETTINGS; BEGIN ISOLATION LEVEL REPEATABLE READ" -c "$query" -c "SELECT pg_sleep(0.0$((RANDOM % 10)))" -c "$query" -c "$query"
            -c "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) $query" -c "SELECT pg_sleep(0.1)" -c "$query" -c "$WITHOUT_CELL" -c "$query" -c COMMIT)
        answers=$(sql "$cluster" postgres "${script[@]}") || different=$((different + 1))
        if [ "$(grep -c '^answer' <<<"$answers")" != 5 ] || [ "$(grep '^answer' <<<"$answers" | sort -u | wc -l)" != 1 ]; then
            different=$((different + 1))
            printf '%s\n%s\n' "$query" "$answers" >>"$WORK/index_different.log"
        fi
        ! grep -q 'index pages=[1-9]' <<<"$answers" || read=$((read + 1))
        rounds=$((rounds + 1))
    done
    touch "$WORK/index_done"
    for writer in "${pids[@]}"; do
        wait "$writer" || failed=$((failed + 1))
    done
    scans=$(($(sql "$cluster" postgres -c "SELECT value FROM cellar.sysstat WHERE name = 'cell index scans'") - scans))
    check "all writers beside scans of indexes succeed: $failed failed" test $failed = 0
    check "scans of indexes beside writers return the rows of the snapshot: $different of $rounds transactions differ" test $different = 0 -a $rounds -gt 4
    check "the cell has scanned indexes beside writers: $scans scans, changed pages in $read of $rounds" test "$scans" -ge $((rounds * 3)) -a $read -gt 0
}

# index_scans CLUSTER [SECONDS]
index_scans() {
    index_table "$1"
    index_kinds "$1"
    index_beside_writers "$1" "${2:-5}"
    sql "$1" postgres -c "DROP TABLE indexed"
}
