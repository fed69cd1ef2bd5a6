-- R9 Scalar subqueries over ranges of one table, as TPC-DS q09
SELECT CASE WHEN (SELECT count(*) FROM lineitem WHERE l_quantity BETWEEN 1 AND 10) > 100000
            THEN (SELECT avg(l_discount) FROM lineitem WHERE l_quantity BETWEEN 1 AND 10)
            ELSE (SELECT avg(l_tax) FROM lineitem WHERE l_quantity BETWEEN 1 AND 10) END AS low,
       CASE WHEN (SELECT count(*) FROM lineitem WHERE l_quantity BETWEEN 11 AND 30) > 10000000
            THEN (SELECT avg(l_discount) FROM lineitem WHERE l_quantity BETWEEN 11 AND 30)
            ELSE (SELECT avg(l_tax) FROM lineitem WHERE l_quantity BETWEEN 11 AND 30) END AS middle,
       (SELECT max(l_shipdate) FROM lineitem WHERE l_quantity > 45) AS last
FROM region
WHERE r_regionkey = 1;
