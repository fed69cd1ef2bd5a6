SELECT count(*) FROM orders WHERE o_comment NOT LIKE '%special%requests%' AND o_orderpriority = '1-URGENT';
