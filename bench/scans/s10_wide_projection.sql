SELECT * FROM lineitem WHERE l_receiptdate = date '1996-02-29';
