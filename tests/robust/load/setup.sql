-- Transfers move money between accounts, and the sibling is truncated and refilled. The sums of both stay constant.
CREATE EXTENSION IF NOT EXISTS cellar;
CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL, filler text NOT NULL);
INSERT INTO accounts SELECT g, 1000, repeat(chr(97 + g % 26), 150) FROM generate_series(1, :rows) g;
CREATE TABLE sibling (id int, amount int, filler text);
INSERT INTO sibling SELECT g, 3, repeat('s', 100) FROM generate_series(1, 5000) g;
VACUUM ANALYZE accounts, sibling;
CHECKPOINT;
