-- R3 Grouping sets over one table
SELECT l_returnflag, l_shipmode, extract(year FROM l_shipdate) AS year, grouping(l_returnflag, l_shipmode) AS level,
       sum(l_quantity) AS quantity, avg(l_discount) AS discount, count(*) AS items
FROM lineitem
WHERE l_shipdate < date '1997-01-01'
GROUP BY GROUPING SETS ((l_returnflag, l_shipmode), (l_shipmode, extract(year FROM l_shipdate)), (l_returnflag), ())
ORDER BY level, l_returnflag, l_shipmode, year;
