SELECT count(*) FROM lineitem WHERE l_shipdate > l_commitdate AND l_receiptdate < l_commitdate + 3;
