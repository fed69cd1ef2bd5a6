-- R24 Customers whose every late order was a large one: NOT IN, IN below OR, and a subquery in HAVING
SELECT c_nationkey, count(*) AS customers, sum(c_acctbal) AS balance
FROM customer
WHERE (c_mktsegment = 'MACHINERY' OR c_custkey IN (SELECT o_custkey FROM orders WHERE o_totalprice > 400000))
  AND c_custkey NOT IN (SELECT o_custkey FROM orders WHERE o_totalprice < 50000 AND o_orderdate >= date '1997-01-01')
GROUP BY c_nationkey
HAVING sum(c_acctbal) > (SELECT avg(c_acctbal) FROM customer)
ORDER BY c_nationkey;
