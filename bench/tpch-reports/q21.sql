-- R21 Brands by distinct suppliers and orders: several DISTINCT aggregates above a join
SELECT p_brand, count(DISTINCT l_suppkey) AS suppliers, count(DISTINCT l_orderkey) AS orders, sum(l_quantity) AS quantity
FROM lineitem, part
WHERE l_partkey = p_partkey AND p_container LIKE 'SM%' AND l_shipdate >= date '1996-01-01'
GROUP BY p_brand
HAVING count(DISTINCT l_suppkey) > 10
ORDER BY p_brand;
