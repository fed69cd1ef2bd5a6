SELECT count(*) FROM lineitem WHERE l_quantity < 3 AND l_discount >= 0.09;
