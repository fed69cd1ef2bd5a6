-- R2 Sums by region, nation and year: ROLLUP above six tables
SELECT r_name, n_name, extract(year FROM o_orderdate) AS year, sum(l_extendedprice * (1 - l_discount)) AS revenue, count(*) AS items
FROM lineitem, orders, customer, nation, region
WHERE l_orderkey = o_orderkey AND o_custkey = c_custkey AND c_nationkey = n_nationkey AND n_regionkey = r_regionkey
  AND r_name IN ('ASIA', 'EUROPE') AND l_shipmode IN ('AIR', 'RAIL')
GROUP BY ROLLUP (r_name, n_name, extract(year FROM o_orderdate))
ORDER BY r_name, n_name, year;
