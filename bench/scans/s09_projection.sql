SELECT l_orderkey, l_linenumber, l_extendedprice, l_shipdate FROM lineitem WHERE l_quantity = 50 AND l_discount = 0.10 AND l_tax = 0.08;
