SELECT sum(l_extendedprice * l_discount) FROM lineitem WHERE l_shipdate >= date '1998-11-01';
