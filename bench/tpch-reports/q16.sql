-- R16 Items delivered late by a supplier while others were in time: EXISTS and NOT EXISTS with comparisons, with a window
SELECT n_name, late, sum(late) OVER (ORDER BY late DESC, n_name) AS running
FROM (SELECT n_name, count(*) AS late
      FROM supplier, lineitem l1, orders, nation
      WHERE s_suppkey = l1.l_suppkey AND o_orderkey = l1.l_orderkey AND o_orderstatus = 'F' AND s_nationkey = n_nationkey
        AND n_regionkey = 2 AND l1.l_receiptdate > l1.l_commitdate
        AND EXISTS (SELECT * FROM lineitem l2 WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey)
        AND NOT EXISTS (SELECT * FROM lineitem l3 WHERE l3.l_orderkey = l1.l_orderkey AND l3.l_suppkey <> l1.l_suppkey
                          AND l3.l_receiptdate > l3.l_commitdate)
      GROUP BY n_name) AS counted
ORDER BY late DESC, n_name;
