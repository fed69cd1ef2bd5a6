-- R6 Orders that were shipped from several nations and never returned: EXISTS and NOT EXISTS of one table, as TPC-DS q16
SELECT o_orderpriority, count(*) AS orders, sum(o_totalprice) AS total
FROM orders
WHERE o_orderdate BETWEEN date '1995-02-01' AND date '1995-02-01' + interval '60 days'
  AND EXISTS (SELECT * FROM lineitem a, lineitem b
              WHERE a.l_orderkey = o_orderkey AND b.l_orderkey = o_orderkey AND a.l_suppkey <> b.l_suppkey
                AND a.l_shipmode = b.l_shipmode)
  AND NOT EXISTS (SELECT * FROM lineitem c WHERE c.l_orderkey = o_orderkey AND c.l_returnflag = 'R')
GROUP BY o_orderpriority
ORDER BY o_orderpriority;
