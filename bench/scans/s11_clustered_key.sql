SELECT sum(l_linenumber) FROM lineitem WHERE l_orderkey BETWEEN 600000 AND 1800000;
