-- R15 Orders with more than the average price of their customer: a correlated scalar subquery over a large table
SELECT c_mktsegment, count(*) AS orders, sum(o_totalprice) AS total
FROM orders, customer
WHERE o_custkey = c_custkey AND c_nationkey = 3 AND o_orderdate >= date '1996-01-01'
  AND o_totalprice > (SELECT 1.5 * avg(i.o_totalprice) FROM orders i WHERE i.o_custkey = c_custkey)
GROUP BY c_mktsegment
ORDER BY c_mktsegment;
