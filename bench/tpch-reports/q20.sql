-- R20 Customers by their number of open orders: an outer join aggregated twice, with a condition on the outer side
SELECT n_name, open_orders, count(*) AS customers
FROM (SELECT c_custkey, c_nationkey, count(o_orderkey) AS open_orders
      FROM customer LEFT JOIN orders ON o_custkey = c_custkey AND o_orderstatus = 'O' AND o_totalprice > 100000
      WHERE c_acctbal < 0
      GROUP BY c_custkey, c_nationkey) AS counted, nation
WHERE c_nationkey = n_nationkey
GROUP BY n_name, open_orders
ORDER BY n_name, open_orders;
