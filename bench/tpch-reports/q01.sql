-- R1 Rank of the suppliers within their nation by returned volume: a window function above an aggregation of a join, top 3
SELECT n_name, s_name, returned, place
FROM (SELECT n_name, s_name, sum(l_extendedprice * (1 - l_discount)) AS returned,
             rank() OVER (PARTITION BY n_name ORDER BY sum(l_extendedprice * (1 - l_discount)) DESC) AS place
      FROM lineitem, supplier, nation
      WHERE l_suppkey = s_suppkey AND s_nationkey = n_nationkey AND l_returnflag = 'R'
        AND l_shipdate >= date '1994-01-01'
      GROUP BY n_name, s_name) AS ranked
WHERE place <= 3
ORDER BY n_name, place, s_name;
