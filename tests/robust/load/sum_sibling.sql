SELECT 1 / (sum(amount) = 15000 AND count(*) = 5000)::int FROM sibling WHERE amount = 3 OR filler IS NULL;
