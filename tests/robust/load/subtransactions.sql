-- More subtransactions than fit in a snapshot, rows of an aborted transaction, and locked rows. Uses the upper half of the
-- ids; one client at a time runs this script.
DO $$
DECLARE base int := 20010 + (random() * 9000)::int;
BEGIN
  FOR i IN 0 .. 79 LOOP
    BEGIN
      UPDATE accounts SET balance = balance + CASE i % 2 WHEN 0 THEN 5 ELSE -5 END WHERE id = base + i;
      IF i % 8 >= 6 THEN
        UPDATE accounts SET balance = 0 WHERE id = base + i;
        RAISE division_by_zero;
      END IF;
    EXCEPTION WHEN division_by_zero THEN NULL;
    END;
  END LOOP;
END $$;
BEGIN;
INSERT INTO accounts SELECT -g, 999, 'aborted' FROM generate_series(1, 50) g;
ROLLBACK;
BEGIN;
SELECT count(*) FROM (SELECT 1 FROM accounts WHERE id BETWEEN 35000 AND 35050 FOR SHARE) locked;
COMMIT;
