BEGIN;
TRUNCATE sibling;
INSERT INTO sibling SELECT g, 3, repeat('s', 100) FROM generate_series(1, 5000) g;
SELECT 1 / (sum(amount) = 15000)::int FROM sibling WHERE amount = 3;
COMMIT;
