-- R10 Items of several channels: UNION ALL below an aggregation, as TPC-DS q33 and q60
SELECT p_brand, sum(total) AS total, count(*) AS parts
FROM (SELECT l_partkey AS partkey, sum(l_extendedprice) AS total
      FROM lineitem, orders
      WHERE l_orderkey = o_orderkey AND l_shipmode = 'MAIL' AND o_orderdate BETWEEN date '1995-01-01' AND date '1995-03-31'
      GROUP BY l_partkey
      UNION ALL
      SELECT l_partkey, sum(l_extendedprice)
      FROM lineitem, supplier
      WHERE l_suppkey = s_suppkey AND s_nationkey IN (3, 7) AND l_shipdate BETWEEN date '1996-01-01' AND date '1996-03-31'
      GROUP BY l_partkey
      UNION ALL
      SELECT ps_partkey, sum(ps_supplycost * ps_availqty)
      FROM partsupp
      WHERE ps_availqty < 500
      GROUP BY ps_partkey) AS channels, part
WHERE p_partkey = partkey AND p_size < 20
GROUP BY p_brand
ORDER BY p_brand;
