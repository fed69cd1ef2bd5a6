-- R4 Customers with more returns than the average of their nation: an aggregation used twice, as TPC-DS q01
WITH returns AS (
    SELECT o_custkey AS custkey, c_nationkey AS nationkey, sum(l_extendedprice) AS total
    FROM lineitem, orders, customer
    WHERE l_orderkey = o_orderkey AND o_custkey = c_custkey AND l_returnflag = 'R' AND o_orderdate >= date '1995-04-01'
    GROUP BY o_custkey, c_nationkey
)
SELECT c_name, r1.total
FROM returns r1, customer, nation
WHERE r1.total > (SELECT avg(total) * 1.2 FROM returns r2 WHERE r1.nationkey = r2.nationkey)
  AND n_nationkey = r1.nationkey AND n_name = 'CANADA' AND c_custkey = r1.custkey
ORDER BY r1.total DESC, c_name
LIMIT 100;
