-- R22 Inventory and sales of the same parts: two aggregations joined, as TPC-DS q39 and q21
SELECT stock.partkey, stock.available, sales.sold, round(sales.sold / stock.available, 6) AS ratio
FROM (SELECT ps_partkey AS partkey, sum(ps_availqty) AS available FROM partsupp GROUP BY ps_partkey) AS stock,
     (SELECT l_partkey AS partkey, sum(l_quantity) AS sold, count(*) AS items FROM lineitem
      WHERE l_shipdate BETWEEN date '1996-01-01' AND date '1997-12-31' GROUP BY l_partkey) AS sales
WHERE stock.partkey = sales.partkey AND sales.sold * 10 > stock.available AND sales.items > 8
ORDER BY ratio DESC, stock.partkey
LIMIT 50;
