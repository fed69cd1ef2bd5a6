-- R23 Trade between two regions: nine tables, two roles of nation and region, OR across tables
SELECT n1.n_name AS supplier_nation, n2.n_name AS customer_nation, p_mfgr, sum(l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity) AS profit
FROM lineitem, orders, customer, supplier, partsupp, part, nation n1, nation n2, region r1, region r2
WHERE l_orderkey = o_orderkey AND o_custkey = c_custkey AND l_suppkey = s_suppkey AND l_partkey = p_partkey
  AND ps_partkey = l_partkey AND ps_suppkey = l_suppkey AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey
  AND n1.n_regionkey = r1.r_regionkey AND n2.n_regionkey = r2.r_regionkey
  AND ((r1.r_name = 'ASIA' AND r2.r_name = 'AMERICA') OR (r1.r_name = 'AMERICA' AND r2.r_name = 'ASIA'))
  AND o_orderdate BETWEEN date '1995-01-01' AND date '1995-12-31' AND p_type LIKE '%STEEL'
GROUP BY n1.n_name, n2.n_name, p_mfgr
ORDER BY n1.n_name, n2.n_name, p_mfgr;
