-- R19 Correlated counts in the select list
SELECT s_name,
       (SELECT count(*) FROM partsupp WHERE ps_suppkey = s_suppkey AND ps_availqty > 9000) AS parts,
       (SELECT max(p_retailprice) FROM partsupp, part WHERE ps_suppkey = s_suppkey AND ps_partkey = p_partkey AND p_size = 3) AS highest
FROM supplier, nation
WHERE s_nationkey = n_nationkey AND n_name IN ('JAPAN', 'KENYA')
ORDER BY s_name;
