-- R5 Revenue of this year beside that of the year before: a join of a CTE with itself, as TPC-DS q04 and q11
WITH yearly AS (
    SELECT o_custkey AS custkey, extract(year FROM o_orderdate) AS year, sum(o_totalprice) AS total
    FROM orders
    GROUP BY o_custkey, extract(year FROM o_orderdate)
)
SELECT c_custkey, c_name, before.total AS total_before, after.total AS total_after
FROM yearly before, yearly after, customer
WHERE before.custkey = after.custkey AND c_custkey = before.custkey AND before.year = 1995 AND after.year = 1996
  AND after.total > before.total * 3 AND c_mktsegment = 'BUILDING'
ORDER BY c_custkey;
