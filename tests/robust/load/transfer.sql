-- Locks rows in the order of their ids, so that transfers do not deadlock.
\set from random(1, :rows / 2)
\set to random(:from + 1, :rows / 2 + 1)
\set amount random(1, 100)
BEGIN;
UPDATE accounts SET balance = balance - :amount WHERE id = :from;
SAVEPOINT half;
UPDATE accounts SET balance = balance + 1000000 WHERE id = :to;
ROLLBACK TO half;
UPDATE accounts SET balance = balance + :amount WHERE id = :to;
COMMIT;
