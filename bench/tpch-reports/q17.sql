-- R17 Best and worst parts by profit: two ranks of one CTE joined, as TPC-DS q44
WITH profit AS (
    SELECT l_partkey AS partkey, avg(l_extendedprice * (1 - l_discount)) AS amount
    FROM lineitem
    WHERE l_shipdate BETWEEN date '1994-01-01' AND date '1994-12-31'
    GROUP BY l_partkey
    HAVING count(*) >= 5
), ranked AS (
    SELECT partkey, row_number() OVER (ORDER BY amount, partkey) AS up, row_number() OVER (ORDER BY amount DESC, partkey) AS down
    FROM profit
)
SELECT worst.up, best_part.p_name AS best, worst_part.p_name AS worst
FROM ranked worst, ranked best, part best_part, part worst_part
WHERE worst.up = best.down AND worst.up <= 10 AND best.partkey = best_part.p_partkey AND worst.partkey = worst_part.p_partkey
ORDER BY worst.up;
