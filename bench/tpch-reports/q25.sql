-- R25 A week of sales beside the same week a year later: a CTE of UNION ALL used twice, as TPC-DS q02
WITH sales AS (
    SELECT l_shipdate AS day, l_extendedprice AS price FROM lineitem WHERE l_shipmode = 'AIR'
    UNION ALL
    SELECT l_commitdate, l_extendedprice FROM lineitem WHERE l_shipmode = 'SHIP'
), weeks AS (
    SELECT (day - date '1992-01-01') - (day - date '1992-01-01') % 7 AS week, sum(price) AS total, sum(CASE WHEN day >= date '1995-01-01' THEN price END) AS late
    FROM sales GROUP BY day
)
SELECT a.week, sum(a.total) AS total, sum(b.total) AS later
FROM (SELECT week, sum(total) AS total FROM weeks GROUP BY week) a, (SELECT week, sum(total) AS total FROM weeks GROUP BY week) b
WHERE b.week = a.week + 364
GROUP BY a.week
ORDER BY a.week;
