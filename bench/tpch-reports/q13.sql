-- R13 Moving sums of months: window frames over an aggregation of a join, as TPC-DS q51
SELECT n_name, month, total, sum(total) OVER (PARTITION BY n_name ORDER BY month) AS so_far,
       lag(total) OVER (PARTITION BY n_name ORDER BY month) AS before,
       max(total) OVER (PARTITION BY n_name ORDER BY month ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING) AS most
FROM (SELECT n_name, extract(year FROM o_orderdate) * 12 + extract(month FROM o_orderdate) AS month, sum(o_totalprice) AS total
      FROM orders, customer, nation
      WHERE o_custkey = c_custkey AND c_nationkey = n_nationkey AND o_orderstatus = 'F'
      GROUP BY n_name, extract(year FROM o_orderdate) * 12 + extract(month FROM o_orderdate)) AS months
ORDER BY n_name, month;
