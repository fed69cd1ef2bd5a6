-- TRUNCATE and rewrites do not keep the rows of older snapshots, so the lock comes before the snapshot.
BEGIN ISOLATION LEVEL REPEATABLE READ;
LOCK TABLE accounts IN ACCESS SHARE MODE;
SELECT sum(balance * id) AS weighted FROM accounts WHERE balance > -1000000000 \gset
SELECT 1 / (sum(balance) = :total AND count(*) = :rows AND sum(balance * id) = :weighted)::int FROM accounts WHERE filler <> '';
COMMIT;
