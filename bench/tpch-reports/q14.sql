-- R14 The latest orders of each customer of a nation: LATERAL with LIMIT
SELECT c_custkey, c_name, latest.o_orderkey, latest.o_totalprice
FROM customer, nation,
     LATERAL (SELECT o_orderkey, o_totalprice FROM orders WHERE o_custkey = c_custkey
              ORDER BY o_orderdate DESC, o_orderkey LIMIT 2) AS latest
WHERE c_nationkey = n_nationkey AND n_name = 'PERU' AND c_acctbal > 7000
ORDER BY c_custkey, latest.o_orderkey;
