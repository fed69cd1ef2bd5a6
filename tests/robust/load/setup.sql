-- Accounts between which money moves, and a sibling that is emptied and filled; what they add up to never changes.
CREATE EXTENSION IF NOT EXISTS cellar;
CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL, filler text NOT NULL);
INSERT INTO accounts SELECT g, 1000, repeat(chr(97 + g % 26), 150) FROM generate_series(1, :rows) g;
CREATE TABLE sibling (id int, amount int, filler text);
INSERT INTO sibling SELECT g, 3, repeat('s', 100) FROM generate_series(1, 5000) g;
VACUUM ANALYZE accounts, sibling;
CHECKPOINT;
