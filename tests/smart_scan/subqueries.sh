# shellcheck shell=bash
# Subqueries in conditions: a statement has PostgreSQL's answer or PostgreSQL's error, whether the cell needs the value of a subquery when
# a scan starts, and whether a correlated subquery becomes a join with groups. run.sh sources this file.

SUBQUERY_SETTINGS="SET cellar.min_scan_size = 0; SET cellar.cost_factor = 0; SET max_parallel_workers_per_gather = 0"

# nested_nullif N: the expression id in N calls of NULLIF.
nested_nullif() { printf '%s' "$(printf 'NULLIF(%.0s' $(seq "$1"))id$(printf ', -%s)' $(seq "$1"))"; }

# Statements whose subquery PostgreSQL executes only if a row or a group needs its value; with errors that it raises, or never raises.
SUBQUERY_STATEMENTS=(
    # No groups, or none that reaches the condition.
    "SELECT item, sum(price) FROM sold WHERE id < 0 GROUP BY item HAVING sum(price) > (SELECT 1 / (min(g.id) - min(g.id)) FROM goods g)"
    "SELECT item, sum(price) FROM sold GROUP BY item HAVING sum(price) > (SELECT 1 / (min(g.id) - min(g.id)) FROM goods g)"
    "SELECT item, sum(price) FROM sold WHERE id < 0 GROUP BY item HAVING max(id) > (SELECT 2147483647 + max(kind)::int4 FROM goods)"
    "SELECT item, count(*) FROM sold GROUP BY item HAVING count(*) < 0 AND max(id) > (SELECT 2147483647 + max(kind)::int4 FROM goods)"
    "SELECT item, count(*) FROM sold GROUP BY item HAVING sum(price) > (SELECT 0.01 * sum(price) FROM sold) ORDER BY 1"
    "SELECT item, count(*) FROM sold WHERE id < 0 GROUP BY item HAVING count(*) > (SELECT count(*) FROM goods WHERE id = nextval('executed'))"
    "SELECT item, count(*) FROM sold GROUP BY item HAVING count(*) > (SELECT max(c) FROM (SELECT kind, count(*) AS c FROM goods GROUP BY kind) g) ORDER BY 1"
    # No rows, or none that reaches the condition.
    "SELECT count(*) FROM emptied WHERE id > (SELECT 1 / (min(id) - min(id)) FROM goods)"
    "SELECT count(*) FROM sold WHERE id > (SELECT 1 / (min(id) - min(id)) FROM goods)"
    "SELECT count(*) FROM sold WHERE id < 0 AND item > (SELECT 1 / (min(id) - min(id)) FROM goods)"
    "SELECT count(*) FROM sold WHERE id > 5000 AND item > (SELECT max(id) - 390 FROM goods)"
    "SELECT id FROM sold WHERE id < 0 AND item > (SELECT 1 / (min(id) - min(id)) FROM goods)"
    "SELECT id FROM sold WHERE item < 250 AND item > (SELECT max(id) - 160 FROM goods) ORDER BY id LIMIT 5"
    "SELECT count(*), min(price) FROM sold WHERE item > 4 AND id > (SELECT 2 * max(id) FROM goods) AND price > 10"
    "SELECT count(*) FROM sold WHERE id < 0 AND item > (SELECT max(id) FROM goods WHERE id = nextval('executed'))"
    "SELECT sum(item * (SELECT 1 / (min(id) - min(id)) FROM goods)) FROM sold WHERE id < 0"
    "SELECT sum(item * (SELECT max(id) - 390 FROM goods)) FROM sold"
    "SELECT count(*) FILTER (WHERE id < (SELECT 1 / (min(id) - min(id)) FROM goods)) FROM sold WHERE id < 0"
    "SELECT item / (SELECT min(id) FROM goods) AS k, count(*) FROM sold WHERE id < 0 GROUP BY 1"
    # Correlated subqueries; columns of views that raise errors.
    "SELECT count(*) FROM quotients q JOIN goods g ON g.id = q.item AND g.kind = 3 WHERE q.low > (SELECT max(o.id) FROM sold o WHERE o.item = q.quotient)"
    "SELECT count(*) FROM quotients q WHERE q.item <> 299 AND q.quotient > (SELECT max(o.id) FROM sold o WHERE o.item = q.item)"
    "SELECT count(*) FROM quotients q, goods g WHERE g.id = q.id AND g.id < 290 AND q.low > (SELECT 0.01 * sum(o.price) FROM sold o WHERE o.item = q.quotient)"
    "SELECT count(*) FROM (SELECT id, 100 / (id - 299) AS q FROM goods OFFSET 0) g WHERE g.id < 10 AND g.q < (SELECT max(o.id) FROM sold o WHERE o.item = g.q)"
    "WITH q AS (SELECT id, 100 / (id - 299) AS q FROM goods) SELECT count(*) FROM q WHERE id < 10 AND 3 < (SELECT max(o.id) FROM sold o WHERE o.item = q.q)"
    "SELECT count(*) FROM plain_view v WHERE v.low > (SELECT 0.1 * avg(o.price) FROM sold o WHERE o.item = v.number)"
    # Correlated subqueries of queries of WITH: joined with groups, or left because the query is not read otherwise, or only in part.
    "WITH items AS (SELECT item, place, sum(price) AS total FROM sold GROUP BY item, place) SELECT count(*), sum(a.total) FROM items a WHERE a.total > (SELECT 1.01 * avg(b.total) FROM items b WHERE b.place = a.place)"
    "WITH items AS (SELECT item, sum(price) AS total FROM sold GROUP BY item) SELECT count(*) FROM goods g, items a WHERE a.item = g.id AND a.total > (SELECT max(b.total) - 5 FROM items b, goods h WHERE h.id = b.item AND h.kind = g.kind)"
    "WITH none AS (SELECT id, 1 / (id - id) AS q FROM goods) SELECT count(*) FROM goods g WHERE g.id < 0 AND g.low > (SELECT max(n.q) FROM none n WHERE n.id = g.id)"
    "WITH shares AS (SELECT id, 100 / (id - 299) AS q FROM goods) SELECT count(*) FROM goods g WHERE g.id < 10 AND g.low > (SELECT max(s.q) FROM shares s WHERE s.id = g.id)"
    "WITH shares AS (SELECT id, 100 / (id - 299) AS q FROM goods GROUP BY id, 100 / (id - 299)) SELECT count(*) FROM goods g WHERE g.id < 10 AND g.low > (SELECT max(s.q) FROM shares s WHERE s.id = g.id)"
    "WITH shares AS (SELECT id, 100 / (id - 299) AS q FROM (SELECT id FROM goods GROUP BY id) g) SELECT count(*) FROM goods g WHERE g.id < 10 AND g.low > (SELECT max(s.q) FROM shares s WHERE s.id = g.id)"
    "WITH counted AS (SELECT nextval('executed') AS n, id FROM goods) SELECT count(*) FROM goods g WHERE g.id < 0 AND g.low > (SELECT max(c.n) FROM counted c WHERE c.id = g.id)"
    "WITH RECURSIVE steps AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM steps WHERE n < 9) SELECT count(*) FROM goods g WHERE g.low > (SELECT max(s.n) FROM steps s WHERE s.n = g.kind)"
    "WITH items AS (SELECT item, place FROM sold) SELECT count(*) FROM goods g WHERE EXISTS (SELECT 1 FROM sold o WHERE o.item = g.id AND o.place > (SELECT avg(i.place) FROM items i WHERE i.item = o.item))"
    # Rows without a group: count is 0, other aggregates are NULL; a left join keeps such rows.
    "SELECT g.id, (SELECT count(*) FROM sold o WHERE o.item = g.id), (SELECT sum(o.price) FROM sold o WHERE o.item = g.id AND o.place > 40) FROM goods g ORDER BY 1"
    "SELECT g.id, g.kind, (SELECT coalesce(max(o.id), -1) FROM sold o WHERE o.place = g.kind) AS last FROM goods g ORDER BY last, 1"
    "SELECT count(*) FROM goods g WHERE (SELECT count(*) FROM sold o WHERE o.item = g.id) = 0"
    "SELECT count(*) FROM goods g WHERE (SELECT count(o.place) FROM sold o WHERE g.id = o.item) > 5"
    "SELECT count(*) FROM goods g WHERE g.kind > (SELECT count(*) FILTER (WHERE o.place > 90) FROM sold o WHERE o.item = g.id)"
    "SELECT count(*) FROM goods g WHERE g.low > (SELECT coalesce(sum(o.price), 350) FROM sold o WHERE o.item = g.id)"
    "SELECT count(*) FROM goods g WHERE (SELECT sum(o.price) FROM sold o WHERE o.item = g.id) IS NULL"
    "SELECT count(*) FROM goods g WHERE NOT (g.low < (SELECT sum(o.price) FROM sold o WHERE o.item = g.id) AND g.kind < 8) OR g.id = 7"
    "SELECT count(*) FROM goods g WHERE (SELECT sum(o.price) FROM sold o WHERE o.item = g.id) > (SELECT count(*) FROM sold o WHERE o.place = g.kind)"
    "SELECT count(*) FROM goods g WHERE CASE WHEN g.kind = 3 THEN 6000 < (SELECT max(o.id) FROM sold o WHERE o.item = g.id) ELSE g.low > 100 END"
    "SELECT g.kind, sum((SELECT count(*) FROM sold o WHERE o.item = g.id)), max(g.id) FROM goods g GROUP BY 1 ORDER BY 1"
    "SELECT g.kind, (SELECT count(*) FROM sold o WHERE o.place = g.kind) FROM goods g GROUP BY 1 HAVING g.kind < (SELECT max(o.place) FROM sold o WHERE o.item = g.kind) ORDER BY 1"
    "SELECT DISTINCT (SELECT max(o.place) FROM sold o WHERE o.item = g.id) AS m, g.kind FROM goods g ORDER BY 1, 2"
    "SELECT g.id, rank() OVER (ORDER BY (SELECT sum(o.price) FROM sold o WHERE o.item = g.id), g.id) FROM goods g ORDER BY 2 LIMIT 20"
    "SELECT g.id, generate_series(1, 2), (SELECT count(*) FROM sold o WHERE o.item = g.id) FROM goods g ORDER BY 1, 2"
    "SELECT count(*) FROM (SELECT g.id, (SELECT count(*) FROM sold o WHERE o.item = g.id) AS n FROM goods g) s WHERE s.n = 0 OR s.id = 3"
    "SELECT count(*), sum(n) FROM (SELECT (SELECT count(*) FROM sold o WHERE o.item = g.id) AS n FROM goods g UNION ALL SELECT (SELECT max(o.place) FROM sold o WHERE o.item = e.id) FROM emptied e) s"
    "SELECT count(*), sum(h.id) FROM goods g FULL JOIN goods h ON h.id = g.id + 300 WHERE 30 > (SELECT count(*) FROM sold o WHERE o.item = h.id) OR g.low > (SELECT 2 * sum(o.price) FROM sold o WHERE o.item = g.id)"
    "SELECT count(*) FROM goods g JOIN goods h USING (id) WHERE id = (SELECT min(o.item) + g.low - h.low FROM sold o WHERE o.item = id)"
    "SELECT count(*), sum(l.n) FROM goods g, LATERAL (SELECT g.id + 1 AS n OFFSET 0) l WHERE 25 < (SELECT count(*) FROM sold o WHERE o.item = l.n)"
    "SELECT count(*) FROM goods g WHERE EXISTS (SELECT 1 FROM goods h WHERE h.kind = g.kind AND h.low > (SELECT 2 * count(*) FROM sold o WHERE o.item = h.id))"
    "SELECT count(*) FROM goods g WHERE g.id NOT IN (SELECT h.id FROM goods h WHERE 20 > (SELECT count(*) FROM sold o WHERE o.item = h.id))"
    "WITH counted AS MATERIALIZED (SELECT g.id, (SELECT count(*) FROM sold o WHERE o.item = g.id) AS n FROM goods g) SELECT n, count(*) FROM counted GROUP BY 1 ORDER BY 1"
    "PREPARE parted(int) AS SELECT count(*), sum((SELECT count(*) FROM sold o WHERE o.item = g.id AND o.id > \$1)) FROM goods g WHERE g.id > \$1 / 100; EXECUTE parted(4000); SET plan_cache_mode = force_generic_plan; EXECUTE parted(10); DEALLOCATE parted; RESET plan_cache_mode"
    "SELECT count(*), sum(h.id) FROM goods g, goods h, goods i WHERE g.id = h.id + 1 AND i.id = h.id AND (i.kind = 2 OR g.kind > (SELECT count(*) FROM sold o WHERE o.item = g.id))"
    "SELECT j.id, (SELECT count(*) FROM sold o WHERE o.item = j.id) FROM (goods FULL JOIN (SELECT 200 + id AS id FROM goods) h USING (id)) j ORDER BY 1"
    "SELECT count(*), sum(n) FROM (SELECT v.n > 0, (SELECT count(*) FROM sold o WHERE o.item = v.id) AS n FROM (SELECT nextval('executed') AS n, g.id FROM goods g) v) s"
    # Joins in the subquery, columns of the outer query beside aggregates.
    "SELECT count(*) FROM goods g WHERE g.low > (SELECT 2 * avg(o.price) FROM sold o JOIN goods h ON h.id = o.item AND h.kind = 3 WHERE o.place = g.kind)"
    "SELECT count(*) FROM goods g WHERE g.low > (SELECT avg(o.price) FROM sold o JOIN goods h ON h.id = o.item AND h.kind = g.kind)"
    "SELECT g.id, (SELECT count(h.id) FROM sold o LEFT JOIN goods h ON h.id = o.place AND h.kind < 5 WHERE o.item = g.id) FROM goods g ORDER BY 1"
    "SELECT g.id, (SELECT count(*) FROM sold o LEFT JOIN goods h ON h.id = o.place AND h.kind < g.kind WHERE o.item = g.id) FROM goods g ORDER BY 1"
    "SELECT g.id, (SELECT count(*) FROM (SELECT id FROM sold) a JOIN sold o USING (id) WHERE o.item = g.id) FROM goods g ORDER BY 1"
    "SELECT g.id, (SELECT sum(h.low) FROM goods h LEFT JOIN sold o ON o.item = h.id AND o.id < 30 WHERE o.place = g.kind) FROM goods g ORDER BY 1"
    "SELECT g.id, (SELECT max(a.id) FROM sold a JOIN sold b USING (item, place) WHERE item = g.id AND place = g.kind) FROM goods g ORDER BY 1"
    "SELECT count(*) FROM goods g, goods h WHERE g.id = h.id + 1 AND g.low > (SELECT h.low * min(o.id) FROM sold o WHERE o.item = g.id)"
    # Keys of other types, whose equal values differ; keys that are NULL.
    "SELECT count(*), sum(n), max(n) FROM (SELECT (SELECT count(*) FROM keyed o WHERE o.word = k.word) AS n FROM keyed k) s"
    "SELECT count(*), sum(n), max(n) FROM (SELECT (SELECT count(*) FROM keyed o WHERE o.short = k.short) AS n FROM keyed k) s"
    "SELECT count(*), sum(n), max(n) FROM (SELECT (SELECT count(*) FROM keyed o WHERE o.fixed = k.fixed) AS n FROM keyed k) s"
    "SELECT count(*), sum(n), max(n) FROM (SELECT (SELECT count(*) FROM keyed o WHERE o.fixed = k.word) AS n FROM keyed k) s"
    "SELECT count(*), sum(n), max(n) FROM (SELECT (SELECT count(*) FROM keyed o WHERE o.amount = k.amount) AS n FROM keyed k) s"
    "SELECT count(*), sum(n), max(n) FROM (SELECT (SELECT count(*) FROM keyed o WHERE o.ratio = k.ratio) AS n FROM keyed k) s"
    "SELECT count(*), sum(n), max(n) FROM (SELECT (SELECT count(*) FROM keyed o WHERE o.ratio = k.id) AS n FROM keyed k) s"
    "SELECT count(*), sum(n), max(n) FROM (SELECT (SELECT count(*) FROM keyed o WHERE o.day = k.moment AND o.id > 5) AS n FROM keyed k) s"
    "SELECT count(*), sum(n), max(n) FROM (SELECT (SELECT count(*) FROM keyed o WHERE o.word = k.word COLLATE \"C\") AS n FROM keyed k) s"
    "SELECT count(*), sum(n), max(n) FROM (SELECT (SELECT count(*) FROM keyed o WHERE o.loose = k.loose) AS n FROM keyed k) s"
    "SELECT count(*), sum(n), max(n) FROM (SELECT (SELECT count(*) FROM keyed o WHERE o.word COLLATE loose = k.word) AS n FROM keyed k) s"
    "SELECT count(*), sum(n), max(n) FROM (SELECT (SELECT count(*) FROM keyed o WHERE o.flags = k.flags AND o.span = k.span) AS n FROM keyed k) s"
    "SELECT count(*), sum(n), max(n) FROM (SELECT (SELECT min(o.word) || max(o.fixed) FROM keyed o WHERE o.amount = k.amount) AS t, (SELECT count(*) FROM keyed o WHERE o.amount = k.id) AS n FROM keyed k) s"
    "SELECT count(*) FROM keyed k WHERE k.amount = (SELECT min(o.amount) FROM keyed o WHERE o.word = k.word AND o.id <> 7)"
    # EXISTS that is not a condition of WHERE by itself; keys that are NULL.
    "SELECT count(*), sum(g.id) FROM goods g WHERE g.kind = 3 OR EXISTS (SELECT 1 FROM sold o WHERE o.item = g.id AND o.price > 170)"
    "SELECT count(*), sum(g.id) FROM goods g WHERE g.kind = 3 OR NOT EXISTS (SELECT 1 FROM sold o WHERE g.id = o.item AND o.price > 170)"
    "SELECT count(*) FROM goods g WHERE EXISTS (SELECT * FROM sold o WHERE o.place = g.kind) AND (EXISTS (SELECT * FROM sold o WHERE o.item = g.id AND o.id < 90) OR EXISTS (SELECT * FROM sold o, goods h WHERE o.item = g.id AND h.id = o.place AND h.kind = 8))"
    "SELECT k.id, EXISTS (SELECT 1 FROM keyed o WHERE o.word = k.word AND o.id % 3 = 1) AS e, NOT EXISTS (SELECT 1 FROM keyed o WHERE o.amount = k.amount AND k.ratio = o.ratio AND o.id < 200) AS n FROM keyed k ORDER BY 1"
    "SELECT count(*), count(*) FILTER (WHERE EXISTS (SELECT 1 FROM keyed o WHERE o.word = k.word AND o.day = k.day AND o.id <> 4)) FROM keyed k"
    "SELECT k.id FROM keyed k WHERE CASE WHEN k.id > 300 THEN NOT EXISTS (SELECT 1 FROM keyed o WHERE o.word = k.fixed AND o.id < 400) ELSE EXISTS (SELECT 1 FROM keyed o WHERE o.ratio = k.id) END ORDER BY 1"
    "SELECT count(*) FROM keyed k WHERE k.id < 4 OR EXISTS (SELECT 1 FROM keyed o WHERE o.loose = k.loose AND o.id < 9) OR EXISTS (SELECT 1 FROM keyed o WHERE o.day = k.moment AND o.id < 9)"
    "SELECT g.kind, count(*), bool_or(EXISTS (SELECT 1 FROM sold o WHERE o.item = g.id AND o.id > 7990)) FROM goods g GROUP BY 1 ORDER BY 1"
    "SELECT EXISTS (SELECT 1 FROM sold o WHERE o.place = g.kind * 10) AS e, count(*) FROM goods g GROUP BY 1 ORDER BY 1"
    "SELECT g.kind FROM goods g GROUP BY 1 HAVING EXISTS (SELECT 1 FROM sold o WHERE o.place = g.kind) OR max(g.id) > 398 ORDER BY 1"
    "SELECT count(*) FROM goods g WHERE g.id = 1 OR EXISTS (SELECT 1 FROM emptied o WHERE o.id = g.id)"
    "SELECT count(*) FROM goods g WHERE g.id = 1 OR EXISTS (SELECT 1 FROM sold o WHERE o.item = g.id AND o.place > g.low)"
    "SELECT count(*) FROM goods g WHERE g.id = 1 OR EXISTS (SELECT 1 FROM sold o WHERE o.item = g.id LIMIT 1) OR EXISTS (SELECT max(o.id) FROM sold o WHERE o.item = g.id) OR EXISTS (SELECT DISTINCT o.id FROM sold o WHERE o.item = g.id)"
    "SELECT count(*) FROM goods g WHERE g.low > (SELECT max(o.price) FROM sold o WHERE o.item = g.id) OR EXISTS (SELECT 1 FROM sold o WHERE o.item = g.id AND o.id > 7000)"
    "SELECT count(*) FROM goods g LEFT JOIN goods h ON h.id = g.id + 200 AND (h.kind = 1 OR EXISTS (SELECT 1 FROM sold o WHERE o.item = h.id)) WHERE h.id IS NULL OR EXISTS (SELECT 1 FROM sold o WHERE o.place = h.id)"
    "SELECT count(*) FROM goods g WHERE g.kind = 3 OR EXISTS (SELECT 1 FROM sold o LEFT JOIN goods h ON h.id = o.place AND h.kind < 5 WHERE h.low = g.low)"
    "WITH items AS (SELECT item, sum(price) AS total FROM sold GROUP BY item) SELECT count(*) FROM goods g WHERE g.kind = 3 OR EXISTS (SELECT 1 FROM items i WHERE i.item = g.id AND i.total > 2000)"
    "SELECT count(*) FROM quotients q WHERE q.id < 290 AND (q.id = 1 OR EXISTS (SELECT 1 FROM sold o WHERE o.item = q.quotient))"
    "SELECT count(*) FROM goods g WHERE g.id < 299 AND (g.id = 1 OR EXISTS (SELECT 1 FROM sold o WHERE o.item = 100 / (g.id - 299)))"
    # Members of UNION ALL with different collations, whose equal strings are different groups.
    "SELECT s, count(*) FROM (SELECT loose AS s FROM keyed UNION ALL SELECT word COLLATE \"C\" FROM keyed WHERE id > 9) u GROUP BY s ORDER BY s"
    "SELECT count(DISTINCT s) FROM (SELECT loose AS s FROM keyed WHERE id > 9 UNION ALL SELECT word COLLATE \"C\" FROM keyed) u"
    # Errors that PostgreSQL raises for some rows, or never; volatile functions.
    "SELECT g.id, (SELECT 100 / count(*) FROM sold o WHERE o.item = g.id) FROM goods g WHERE g.id < 300 ORDER BY 1"
    "SELECT g.id, (SELECT 100 / count(*) FROM sold o WHERE o.item = g.id) FROM goods g ORDER BY 1"
    "SELECT g.id, (SELECT sum(100 / (o.item - 299)) FROM sold o WHERE o.item = g.id) FROM goods g WHERE g.id < 299 ORDER BY 1"
    "SELECT g.id, CASE WHEN g.id <> 299 THEN (SELECT sum(100 / (o.item - 299)) FROM sold o WHERE o.item = g.id) END FROM goods g ORDER BY 1"
    "SELECT g.id, CASE WHEN g.id < 300 THEN (SELECT 100 / count(*) FROM sold o WHERE o.item = g.id) END FROM goods g ORDER BY 1"
    "SELECT q.id, (SELECT count(*) FROM sold o WHERE o.item = q.quotient) FROM quotients q WHERE q.id < 299 ORDER BY 1"
    "SELECT count(*) FROM goods g WHERE g.kind = 3 AND (100 / (g.id - 300) > 0 OR 20 < (SELECT count(*) FROM sold o WHERE o.item = g.id))"
    "SELECT nextval('executed') > 0, (SELECT count(*) FROM sold o WHERE o.item = g.id) FROM goods g WHERE g.id < 5 ORDER BY 2"
    "SELECT g.id, (SELECT count(*) FROM sold o WHERE o.item = g.id AND o.id < nextval('executed') + 10000) FROM goods g WHERE g.id BETWEEN 298 AND 303 ORDER BY 1"
    "SELECT g.id, (SELECT sum(o.id) FROM sold o WHERE o.item = g.id HAVING count(*) > 26) FROM goods g ORDER BY 1"
    "SELECT g.id, (SELECT sum(o.id) FROM sold o WHERE o.item = g.id GROUP BY o.item) FROM goods g ORDER BY 1"
    "SELECT g.id, (SELECT sum(o.id) FROM sold o WHERE o.item = g.id GROUP BY o.place) FROM goods g WHERE g.id < 300 ORDER BY 1"
    "SELECT g.id, (SELECT sum(g.id) FROM sold o WHERE o.item = g.id) FROM goods g GROUP BY g.id ORDER BY 1"
    "SELECT h.id, (SELECT sum((SELECT count(*) FROM sold o WHERE o.item = g.id)) FROM goods g WHERE g.kind = h.kind) FROM goods h WHERE h.id < 20 ORDER BY 1"
    "SELECT count(*) FROM (SELECT g.id, g.low FROM goods g WHERE g.low > (SELECT 0.1 * avg(o.price) FROM sold o WHERE o.item = g.id)) v WHERE nextval('executed') > 0 AND v.id > 290"
    # Collations that comparisons and LIKE reject, of rows that no row of the outer query needs.
    "SELECT count(*) FROM goods g WHERE g.id > 300 AND g.low > (SELECT count(*) FROM keyed o WHERE o.amount = g.low AND (coalesce(o.loose, o.loose) LIKE 'w%' OR coalesce(o.loose, o.loose) LIKE 'x%'))"
    "SELECT count(*) FROM goods g WHERE g.id > 300 AND g.low > (SELECT count(*) FROM keyed o WHERE o.amount = g.low AND (o.plain < o.loose OR o.loose < o.plain))"
    "SELECT max(coalesce(o.plain, o.loose)) FROM keyed o WHERE o.id < 0"
    # Values that PostgreSQL may never compute: unknown settings, functions of users that a domain calls, expressions that grow.
    "SELECT count(*) FROM sold WHERE id > 0 OR starts_with(pad, current_setting('app.unknown'))"
    "SELECT count(*) FROM sold WHERE starts_with(pad, current_setting('app.unknown')) OR id < 0"
    "PREPARE setting(text) AS SELECT count(*) FROM sold WHERE id > 0 OR pad = current_setting(\$1); SET plan_cache_mode = force_generic_plan; EXECUTE setting('app.unknown'); DEALLOCATE setting"
    "PREPARE schema(text) AS SELECT count(*) FROM sold WHERE id > 0 OR pad = (\$1::regclass)::text; EXECUTE schema('nowhere.nothing'); DEALLOCATE schema"
    "PREPARE domain(text) AS SELECT count(*) FROM sold WHERE id > 0 OR item = ANY (\$1::text::positive[]); EXECUTE domain('{1,-5}'); EXECUTE domain('{1,5}'); DEALLOCATE domain; RESET plan_cache_mode"
    "SELECT count(*) FROM sold WHERE $(nested_nullif 24) > 5"
    "SELECT count(*) FROM sold WHERE pad ~ ('(' || repeat('x?|', 230) || '[ab]......)') OR id < 10"
    "SELECT count(*) FROM goods g LEFT JOIN quotients q USING (id) WHERE g.low > (SELECT max(o.id) FROM sold o WHERE o.item = q.quotient) AND g.id < 200"
)

# subquery_answers CLUSTER SETTINGS: the answers and the SQLSTATEs of all statements, and how often nextval was called.
subquery_answers() {
    local statement script="\\set VERBOSITY sqlstate
$SUBQUERY_SETTINGS; $2; SELECT setval('executed', 1);"
    for statement in "${SUBQUERY_STATEMENTS[@]}"; do
        script+="
\\echo $((++number)): ${statement//\'/}
$statement;"
    done
    script+=" SELECT 'executed', last_value FROM executed;"
    printf '%s\n' "$script" | "$PG_BIN/psql" -X -q -A -t -h "$WORK/run" -p "$(cluster_port "$1")" -U postgres postgres 2>&1
}

subquery_tables() {
    sql "$1" postgres -c "CREATE TABLE sold AS SELECT i AS id, i % 300 AS item, (i % 100)::int8 AS place, (i * 7 % 700 / 4.0)::numeric(9,2) AS price, repeat('x', 200) AS pad
            FROM generate_series(1, 8000) i" \
        -c "CREATE TABLE goods AS SELECT i AS id, (i % 10)::int8 AS kind, i::numeric(9,2) AS low FROM generate_series(0, 399) i" \
        -c "CREATE TABLE emptied AS SELECT * FROM goods" -c "DELETE FROM emptied" \
        -c "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)" \
        -c "CREATE TABLE keyed (id int4, word text, short varchar(8), fixed char(8), amount numeric, ratio float8, day date, moment timestamp, flags bool, span interval, loose text COLLATE loose, plain text COLLATE \"C\")" \
        -c "INSERT INTO keyed SELECT i, w, w, w || repeat(' ', i % 3), CASE WHEN i % 2 = 0 THEN i % 40 ELSE ((i % 40) || '.00')::numeric END,
                CASE i % 60 WHEN 0 THEN '-0'::float8 WHEN 1 THEN '0'::float8 WHEN 2 THEN 'NaN'::float8 ELSE i % 60 END, '2020-01-01'::date + i % 30,
                '2020-01-01'::timestamp + (i % 60) * interval '12 hours', i % 3 > 0, CASE WHEN i % 2 = 0 THEN interval '1 month' ELSE interval '30 days' END * (i % 5), w, w
            FROM (SELECT i, CASE WHEN i % 17 > 0 THEN (CASE WHEN i % 100 < 50 THEN 'w' ELSE 'W' END) || i % 50 END AS w FROM generate_series(1, 900) i) s" \
        -c "CREATE SEQUENCE executed" \
        -c "CREATE FUNCTION is_positive(int) RETURNS boolean LANGUAGE plpgsql AS \$\$
            BEGIN IF \$1 > 0 THEN RETURN true; END IF; RAISE EXCEPTION USING ERRCODE = '22012'; END \$\$" \
        -c "CREATE DOMAIN positive AS int CHECK (is_positive(VALUE))" \
        -c "CREATE VIEW quotients AS SELECT id, id AS item, low, 100 / (id - 299) AS quotient FROM goods" \
        -c "CREATE VIEW plain_view AS SELECT id AS number, low FROM goods WHERE kind = 3" -c "VACUUM ANALYZE sold, goods, keyed" >/dev/null
}

# WHERE CURRENT OF works on portals that a driver, or a function, opens.
current_of() {
    local cluster=$1 query="SELECT * FROM goods g WHERE g.low > (SELECT 0.1 * avg(price) FROM sold o WHERE o.item = g.id) AND g.kind = 3" mode answers=()
    local update="UPDATE goods SET low = low WHERE CURRENT OF"
    for mode in off on; do
        answers+=("$("$ROOT/tests/smart_scan/named_portal.pl" "$WORK/run/.s.PGSQL.$(cluster_port "$cluster")" postgres postgres \
            "$SUBQUERY_SETTINGS; SET cellar.cell_offload_processing = $mode" "$query" "$update named" 2>&1 || true)")
        answers+=("$(sql "$cluster" postgres -c "$SUBQUERY_SETTINGS; SET cellar.cell_offload_processing = $mode" -c "DO \$\$
            DECLARE r record; updated int := 0;
            BEGIN
                FOR r IN $query LOOP
                    EXECUTE format('$update %I', (SELECT name FROM pg_cursors WHERE statement LIKE '%0.1 * avg%' AND name LIKE '<unnamed portal%' LIMIT 1));
                    updated := updated + 1;
                END LOOP;
                RAISE EXCEPTION 'updated %', updated;
            END \$\$" 2>&1 | grep -o 'updated.*\|cursor.*' | head -n 1 || true)")
    done
    check "WHERE CURRENT OF a portal that a driver has named: ${answers[2]//$'\n'/, }" test "${answers[0]}" = "${answers[2]}" -a "${answers[0]%%$'\n'*}" = "UPDATE 1"
    check "WHERE CURRENT OF a portal of a function: ${answers[3]}" test "${answers[1]}" = "${answers[3]}" -a "${answers[1]%% *}" = updated
}

# The notes of the last statement do not contain those of the plan that is rejected, here that with a subquery in a condition.
notes_of_plans() {
    local cluster=$1 notes mode query="SELECT count(*) FROM goods g WHERE g.low > (SELECT avg(price) FROM sold o WHERE o.item = g.id)"
    notes=$(for mode in off on; do
        sql "$cluster" postgres -c "$SUBQUERY_SETTINGS; SET cellar.unnest_subqueries = $mode" -c "EXPLAIN $query" \
            -c "SELECT count(*) FROM cellar.why_not_offloaded WHERE what = 'aggregation' AND relation = 'goods'::regclass" | tail -n 1
    done)
    check "the notes are those of the plan that is executed: ${notes//$'\n'/ }" test "$notes" = $'1\n0'
}

# A subquery over a small table becomes a join with groups, too, unless the statement is cheap.
small_tables() {
    local cluster=$1 plans rows condition="WHERE g.low > (SELECT avg(h.low) FROM goods h WHERE h.kind = g.kind)"
    plans=$(for rows in 400 5; do
        sql "$cluster" postgres -c "EXPLAIN (COSTS OFF) SELECT count(*) FROM (SELECT * FROM goods LIMIT $rows) g $condition" | grep -o 'Hash Join\|SubPlan 1$'
    done)
    check "a subquery over a small table becomes a join, unless the statement is cheap: ${plans//$'\n'/ }" test "$plans" = $'Hash Join\nSubPlan 1'
}

# EXISTS beside OR becomes IN over groups.
hashed_exists() {
    local cluster=$1 plan
    plan=$(sql "$cluster" postgres -c "$SUBQUERY_SETTINGS" -c "EXPLAIN (COSTS OFF) SELECT count(*) FROM goods g WHERE g.kind = 3 OR EXISTS (SELECT 1 FROM sold o, goods h WHERE o.item = g.id AND h.id = o.place AND h.kind < 5)")
    check "EXISTS beside OR is a hash table of groups" grep -q 'hashed SubPlan.*Group Key: o.item' <<<"${plan//$'\n'/ }"
}

# Conditions with more values than fit into a request are left to PostgreSQL: two arrays of 10 MiB.
large_requests() {
    local cluster=$1 answers plan query="SELECT count(*), sum(id) FROM sold WHERE id % 7 = 2 OR"
    local last mode array="pad = ANY (ARRAY(SELECT repeat(md5(i::text), 3200) FROM generate_series(1, 100) i WHERE i <"
    for last in 7 101; do
        answers=$(for mode in off on; do
            sql "$cluster" postgres -c "$SUBQUERY_SETTINGS; SET cellar.cell_offload_processing = $mode" -c "$query $array 101)) OR 'a' || $array $last))" 2>&1 | tail -n 1
        done)
        check "conditions with arrays of 10 MiB: ${answers//$'\n'/ }" test "$(sort -u <<<"$answers" | wc -l)" = 1
    done
    plan=$(sql "$cluster" postgres -c "$SUBQUERY_SETTINGS" -c "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) $query $array 101))")
    check "a request with one array is sent" test "$(grep -c 'Not Offloaded' <<<"$plan")" = 0
    plan=$(sql "$cluster" postgres -c "$SUBQUERY_SETTINGS" -c "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) $query $array 101)) OR 'a' || $array 101))")
    check "a request that is too large is not sent" grep -q 'Not Offloaded: the request to the cell is too large' <<<"$plan"
}

# subqueries CLUSTER
subqueries() {
    local cluster=$1 expected setting answers number=0
    subquery_tables "$cluster"
    expected=$(subquery_answers "$cluster" "SET cellar.cell_offload_processing = off")
    check "some statements with subqueries raise errors" test "$(grep -c '^ERROR' <<<"$expected")" -gt 2
    for setting in on off; do
        answers=$(subquery_answers "$cluster" "SET cellar.unnest_subqueries = $setting")
        check "statements with subqueries have PostgreSQL's answer or error, unnesting $setting" test "$answers" = "$expected"
        [ "$answers" = "$expected" ] || diff -U3 <(printf '%s\n' "$expected") <(printf '%s\n' "$answers") | head -n 40 || true
    done
    check "a correlated subquery of a query of WITH becomes a join with groups" test 1 = "$(
        sql "$cluster" postgres -c "$SUBQUERY_SETTINGS" -c "EXPLAIN (COSTS OFF) $(printf '%s\n' "${SUBQUERY_STATEMENTS[@]}" | grep 'avg(b.total)')" |
            grep -c 'Subquery Scan on groups'
    )"
    check "the cell has the value of a subquery that might raise an error" grep -q 'scanned=8000 aggregated=[1-9]' \
        <<<"$(sql "$cluster" postgres -c "$SUBQUERY_SETTINGS" -c "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) ${SUBQUERY_STATEMENTS[13]}")"
    current_of "$cluster"
    notes_of_plans "$cluster"
    small_tables "$cluster"
    hashed_exists "$cluster"
    large_requests "$cluster"
    sql "$cluster" postgres -c "DROP VIEW quotients, plain_view" -c "DROP TABLE sold, goods, emptied, keyed" -c "DROP COLLATION loose" -c "DROP SEQUENCE executed" \
        -c "DROP DOMAIN positive" -c "DROP FUNCTION is_positive" >/dev/null
}
