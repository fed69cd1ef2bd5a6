-- R11 Parts that were never sold by a supplier of a nation: an outer join with a test for NULL, as TPC-DS q93 and q78
SELECT p_mfgr, p_size, count(*) AS parts, count(sold.partkey) AS sold, sum(coalesce(sold.quantity, 0)) AS quantity
FROM part LEFT JOIN (SELECT l_partkey AS partkey, sum(l_quantity) AS quantity
                     FROM lineitem, supplier
                     WHERE l_suppkey = s_suppkey AND s_nationkey = 6
                     GROUP BY l_partkey) AS sold ON sold.partkey = p_partkey
WHERE p_size BETWEEN 10 AND 15
GROUP BY p_mfgr, p_size
ORDER BY p_mfgr, p_size;
