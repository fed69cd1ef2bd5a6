-- R7 Ship modes by the days until delivery: CASE pivots, as TPC-DS q50 and q62
SELECT l_shipmode, n_name,
       sum(CASE WHEN l_receiptdate - l_shipdate <= 7 THEN 1 ELSE 0 END) AS week,
       sum(CASE WHEN l_receiptdate - l_shipdate > 7 AND l_receiptdate - l_shipdate <= 14 THEN 1 ELSE 0 END) AS two_weeks,
       sum(CASE WHEN l_receiptdate - l_shipdate > 14 AND l_receiptdate - l_shipdate <= 21 THEN 1 ELSE 0 END) AS three_weeks,
       sum(CASE WHEN l_receiptdate - l_shipdate > 21 THEN 1 ELSE 0 END) AS more
FROM lineitem, supplier, nation
WHERE l_suppkey = s_suppkey AND s_nationkey = n_nationkey AND l_shipdate BETWEEN date '1995-01-01' AND date '1996-06-30'
GROUP BY l_shipmode, n_name
ORDER BY l_shipmode, n_name;
