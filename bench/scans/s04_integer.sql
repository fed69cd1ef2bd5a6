SELECT count(*) FROM lineitem WHERE l_suppkey BETWEEN 100 AND 110;
