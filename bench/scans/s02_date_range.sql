SELECT count(*) FROM lineitem WHERE l_shipdate >= date '1995-03-01' AND l_shipdate < date '1995-04-01';
