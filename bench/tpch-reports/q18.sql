-- R18 Suppliers of two periods, and of one only: INTERSECT and EXCEPT, as TPC-DS q38 and q87
SELECT count(*) AS suppliers, sum(partkey) AS parts
FROM (SELECT DISTINCT l_suppkey AS suppkey, l_partkey AS partkey FROM lineitem, orders
      WHERE l_orderkey = o_orderkey AND o_orderdate BETWEEN date '1993-01-01' AND date '1993-06-30'
      INTERSECT
      SELECT DISTINCT l_suppkey, l_partkey FROM lineitem WHERE l_shipdate BETWEEN date '1995-01-01' AND date '1996-12-31'
      EXCEPT
      SELECT ps_suppkey, ps_partkey FROM partsupp WHERE ps_availqty < 5000) AS pairs;
