-- Wrong arguments of the compression functions are errors, also without a cell.
CREATE TABLE argument (id int);
CREATE TABLE argument_parts (id int) PARTITION BY RANGE (id);

SELECT * FROM cellar.compress(NULL);
SELECT * FROM cellar.compress('argument', NULL);
SELECT * FROM cellar.decompress(NULL);
CALL cellar.compress_table(NULL);
SELECT * FROM cellar.compress('argument', 'low');
SELECT * FROM cellar.compress('argument_parts');

-- Delays are compared as intervals are: a month counts 30 days.
SELECT cellar.set_compression('argument_parts', 'query low', after => '1000 years');
SELECT cellar.set_compression('argument_parts', 'query low', after => '360000 days');
SELECT cellar.set_compression('argument_parts', 'query low', after => '1000 years 1 us');
SELECT cellar.set_compression('argument_parts', 'query low', after => '1001 years');
SELECT cellar.set_compression('argument_parts', 'query low', after => '-1 us');

DROP TABLE argument, argument_parts;
