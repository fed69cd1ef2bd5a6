SELECT count(*) FROM lineitem WHERE l_shipmode IN ('AIR', 'REG AIR') AND l_shipinstruct = 'NONE' AND l_returnflag = 'R' AND l_linenumber = 7;
