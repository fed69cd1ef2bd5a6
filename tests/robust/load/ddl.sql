-- One session executes all DDL: two sessions that alter the same table could deadlock.
VACUUM FULL accounts;
CREATE INDEX CONCURRENTLY accounts_balance ON accounts (balance);
DROP INDEX CONCURRENTLY accounts_balance;
ALTER TABLE accounts ADD COLUMN constant int DEFAULT 7;
SELECT 1 / (sum(constant) = 7 * :rows AND count(*) = :rows)::int FROM accounts WHERE constant = 7;
ALTER TABLE accounts ADD COLUMN rewritten text DEFAULT clock_timestamp()::text;
SELECT 1 / (count(*) = :rows)::int FROM accounts WHERE rewritten <> '';
ALTER TABLE accounts DROP COLUMN constant, DROP COLUMN rewritten;
CLUSTER accounts USING accounts_pkey;
BEGIN;
LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE;
CREATE TEMP TABLE kept ON COMMIT DROP AS SELECT id, balance, filler FROM accounts;
TRUNCATE accounts;
SELECT 1 / (count(*) = 0)::int FROM accounts WHERE filler <> '';
INSERT INTO accounts SELECT * FROM kept;
SELECT 1 / (sum(balance) = :total AND count(*) = :rows)::int FROM accounts WHERE filler <> '';
COMMIT;
