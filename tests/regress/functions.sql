-- The compressed runs call these functions. The extension itself is not created, because tests would see its objects.
CREATE SCHEMA cellar_test;
CREATE FUNCTION cellar_test.compress_relation(oid, text) RETURNS void
    AS 'cellar', 'cellar_compress_relation' LANGUAGE C STRICT;
CREATE FUNCTION cellar_test.get_compression(oid, OUT "table" oid, OUT level text, OUT units bigint,
    OUT superseded_blocks bigint, OUT heap_bytes bigint, OUT stored_bytes bigint, OUT dead_blocks bigint) RETURNS SETOF record
    AS 'cellar', 'cellar_compression_units' LANGUAGE C STRICT;
