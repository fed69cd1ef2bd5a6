-- A wrong sum causes a division by zero, which ends the run.
SELECT 1 / (sum(balance) = :total AND count(*) = :rows)::int FROM accounts WHERE balance > -1000000000 AND filler <> '';
