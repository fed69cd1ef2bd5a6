VACUUM (TRUNCATE false) accounts;
VACUUM (FREEZE, TRUNCATE false) accounts;
VACUUM ANALYZE sibling;
SELECT pg_sleep(0.2);
