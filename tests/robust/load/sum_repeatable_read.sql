-- TRUNCATE and table rewrites remove rows that older snapshots need, so lock the table before taking the snapshot.
BEGIN ISOLATION LEVEL REPEATABLE READ;
LOCK TABLE accounts IN ACCESS SHARE MODE;
SELECT sum(balance * id) AS weighted FROM accounts WHERE balance > -1000000000 \gset
SELECT 1 / (sum(balance) = :total AND count(*) = :rows AND sum(balance * id) = :weighted)::int FROM accounts WHERE filler <> '';
COMMIT;
