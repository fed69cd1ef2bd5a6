-- R12 Share of a part type in the revenue of its manufacturer: a window over groups, as TPC-DS q12 and q98
SELECT p_mfgr, p_type, sum(l_extendedprice) AS revenue,
       round(sum(l_extendedprice) * 100 / sum(sum(l_extendedprice)) OVER (PARTITION BY p_mfgr), 4) AS share
FROM lineitem, part
WHERE l_partkey = p_partkey AND p_size IN (5, 15, 25) AND l_shipdate BETWEEN date '1995-05-01' AND date '1995-05-01' + 90
GROUP BY p_mfgr, p_type
ORDER BY p_mfgr, p_type;
