-- The compression advisor works without a cell.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cellar;
CREATE TABLE advised (id integer, day date, name text) PARTITION BY RANGE (id);
CREATE TABLE advised_1 PARTITION OF advised FOR VALUES FROM (0) TO (50000);
CREATE TABLE advised_2 PARTITION OF advised FOR VALUES FROM (50000) TO (60000);
CREATE TABLE advised_3 PARTITION OF advised FOR VALUES FROM (60000) TO (70000);
INSERT INTO advised SELECT i, date '2026-01-01' + i / 100, md5(i::text) FROM generate_series(0, 50000) i;
SELECT "table", level, sampled_bytes, ratio > 1 AS smaller FROM cellar.compression_advisor('advised') ORDER BY 1, 2;
-- Of the 73 bytes of a row, the 16 bytes of the digest are incompressible.
SELECT level, round(ratio) FROM cellar.compression_advisor('advised_1');
CREATE VIEW advised_view AS SELECT * FROM advised;
SELECT * FROM cellar.compression_advisor('advised_view');
CREATE INDEX advised_index ON advised_1 (id);
SELECT * FROM cellar.compression_advisor('advised_index');
SELECT * FROM cellar.compression_advisor('pg_class');
CREATE ROLE advised_nobody;
GRANT USAGE ON SCHEMA cellar TO advised_nobody;
SET ROLE advised_nobody;
SELECT * FROM cellar.compression_advisor('advised_1');
RESET ROLE;
GRANT SELECT ON advised_1 TO advised_nobody;
SET ROLE advised_nobody;
SELECT count(*) FROM cellar.compression_advisor('advised_1');
RESET ROLE;
DROP OWNED BY advised_nobody;
DROP ROLE advised_nobody;
DROP TABLE advised CASCADE;
