-- R8 Customers who ordered in one period and not in another: IN and NOT EXISTS with joins below, as TPC-DS q69
SELECT c_mktsegment, n_name, count(*) AS customers, avg(c_acctbal) AS balance
FROM customer, nation
WHERE c_nationkey = n_nationkey
  AND c_custkey IN (SELECT o_custkey FROM orders, lineitem
                    WHERE o_orderkey = l_orderkey AND l_shipmode = 'AIR' AND o_orderdate BETWEEN date '1996-01-01' AND date '1996-06-30')
  AND NOT EXISTS (SELECT * FROM orders, lineitem
                  WHERE o_custkey = c_custkey AND o_orderkey = l_orderkey AND l_returnflag = 'R' AND o_orderdate >= date '1993-01-01')
GROUP BY c_mktsegment, n_name
ORDER BY c_mktsegment, n_name;
