#!/usr/bin/env bash
# PostgreSQL's features on compressed tables, one short scenario each. docs/compatibility.md describes what happens, and names
# the scenarios.
#
#   corners.sh [CORNER ...]      the names of functions corner_CORNER; default: all
#
# A scenario modifies a compressed table and an uncompressed twin in the same way. A table scan, an index scan and a Smart
# Scan of the compressed table must then return the rows of the twin.
#
# CELLAR_OLD_PG_CONFIG names the pg_config of an older major version for the scenario pg_upgrade.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

corners=(vacuum_full repack unique_column on_conflict triggers foreign_keys index_builds truncate alter_table tablespaces
    prepared_transactions unlogged_tables savepoints copy cursors snapshots row_locks partitions materialized_views
    logical_replication databases incremental_backup standby_promotion canceled_compression roles damaged_unit pg_checksums
    pg_upgrade)
all=$(($# == 0))
[ $all = 1 ] || corners=("$@")
extension_installed || die "the extension is not installed: run scripts/build.sh extension"
work_begin corners
data=$WORK/cell1/pgdata

# q SQL and off SQL: execute it preferring Smart Scans, and without Smart Scans. CLUSTER and DB select where.
q() { PGOPTIONS='-c cellar.min_scan_size=0 -c cellar.cost_factor=0' sql "${CLUSTER:-corners}" "${DB:-postgres}" -c "$1"; }
off() { PGOPTIONS='-c cellar.cell_offload_processing=off' sql "${CLUSTER:-corners}" "${DB:-postgres}" -c "$1"; }
error_of() { sqlstate_of "${CLUSTER:-corners}" "${DB:-postgres}" "$1"; }
# both SQL: executes it for a table and for its twin; @ stands for the name, and the twin of @ is twin_@.
both() { q "${1//@/$pair}" >/dev/null && q "${1//@/twin_$pair}" >/dev/null; }
units() { q "SELECT coalesce(sum(units) FILTER (WHERE level <> 'none'), 0) FROM cellar.compression('$1')"; }
compress() { q "SELECT * FROM cellar.compress('$1', '${2:-query low}')" >/dev/null; }
is_compressed() { check "$1" test "$(units "$2")" -gt 0; }
is_raw() { check_equal "$1" "$(units "$2")" 0; }
# create_pair NAME [ROWS]: creates NAME, compressed, and twin_NAME. `both` refers to NAME from then on.
create_pair() {
    pair=$1
    both "CREATE TABLE @ (id int PRIMARY KEY, grp int, note text);
          INSERT INTO @ SELECT g, g % 100, 'note ' || md5((g % 5000)::text) FROM generate_series(1, ${2:-20000}) g"
    compress "$1"
    is_compressed "$1 is compressed" "$1"
}
# same DESCRIPTION [TABLE]: all kinds of scans return the rows of the twin.
same() {
    local table=${2:-$pair} found
    local rows="SELECT count(*), coalesce(sum(id), 0), md5(string_agg(t::text, '|' ORDER BY id)) FROM"
    found=$(sql "${CLUSTER:-corners}" "${DB:-postgres}" 2>&1 <<SQL | uniq -c | tr -s ' ' | cut -d' ' -f2
SET cellar.cell_offload_processing = off;
$rows twin_$table t;
$rows $table t;
SET enable_seqscan = off; SET enable_bitmapscan = off;
$rows $table t WHERE id > -2000000000;
RESET ALL;
SET cellar.min_scan_size = 0; SET cellar.cost_factor = 0;
$rows $table t;
SET max_parallel_workers_per_gather = 0;
$rows $table t WHERE id > -2000000000;
SQL
    )
    # One line five times: all queries returned the same.
    check_equal "$1" "$found" 5
}
# wait_until DESCRIPTION COMMAND ...: passes when the command succeeds within 20 s.
wait_until() {
    local tries
    for ((tries = 0; tries < 200; tries++)); do
        if "${@:2}" >/dev/null 2>&1; then ok "$1"; return; fi
        sleep 0.1
    done
    not_ok "$1 within 20 s"
}
# finished DESCRIPTION PID: waits for a child of this script, and records whether it succeeded. `check` would wait in a subshell, which has
# no children.
finished() { if wait "$2"; then ok "$1"; else not_ok "$1"; fi; }
returns() { [ "$(q "$1")" = "$2" ]; }
# copied, caught_up LSN, replayed LSN: conditions of wait_until.
copied() { [ "$(DB=subscriber q "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate = 'r'")" = 1 ]; }
caught_up() { [ "$(q "SELECT confirmed_flush_lsn >= '$1' FROM pg_replication_slots WHERE slot_name = 'changes'")" = t ]; }
replayed() { [ "$(CLUSTER=standby q "SELECT pg_last_wal_replay_lsn() >= '$1'")" = t ]; }
crash() { cluster_stop corners QUIT && cluster_start corners "$data"; }
has_extension() { [ "$(q "SELECT count(*) FROM pg_available_extensions WHERE name = '$1'")" = 1 ]; }

# ---------------------------------------------------------------- rewriting

corner_vacuum_full() {
    create_pair rewritten
    both "DELETE FROM @ WHERE id % 3 = 0; UPDATE @ SET note = 'new' WHERE id % 50 = 1"
    both "VACUUM FULL @"
    same "VACUUM FULL keeps the rows"
    is_raw "VACUUM FULL stores the table raw" rewritten
    compress rewritten
    both "CLUSTER @ USING @_pkey"
    same "CLUSTER keeps the rows"
    is_raw "CLUSTER stores the table raw" rewritten
    compress rewritten
    same "the table is compressed again"
}

corner_repack() {
    if [ "$PG_MAJOR" -lt 19 ]; then skip "REPACK exists since PostgreSQL 19"; return; fi
    create_pair repacked 60000
    both "DELETE FROM @ WHERE id % 3 = 0"
    both "REPACK @ USING INDEX @_pkey"
    same "REPACK keeps the rows"
    compress repacked
    # Another session modifies the table meanwhile.
    "$PG_BIN/pgbench" -n -T 4 -c 1 -R 200 -h "$WORK/run" -p "$(cluster_port corners)" -U postgres postgres >"$WORK/repack.log" 2>&1 \
        -f <(printf '%s\n' '\set id random(1, 60000)' 'BEGIN;' "UPDATE repacked SET note = note || 'r', grp = grp + 1 WHERE id = :id;" \
            "UPDATE twin_repacked SET note = note || 'r', grp = grp + 1 WHERE id = :id;" 'COMMIT;') &
    local load=$!
    remember_process $load
    check "REPACK (CONCURRENTLY) succeeds" q "REPACK (CONCURRENTLY) repacked"
    compress repacked "query high"
    check "REPACK (CONCURRENTLY) succeeds a second time" q "REPACK (CONCURRENTLY) repacked"
    finished "the session that modifies the table gets no error" $load
    same "REPACK (CONCURRENTLY) keeps the rows"
}

corner_truncate() {
    create_pair emptied
    q "BEGIN; TRUNCATE emptied; INSERT INTO emptied VALUES (1, 1, 'lost'); ROLLBACK"
    same "a rolled back TRUNCATE keeps the rows"
    is_compressed "a rolled back TRUNCATE keeps the compression" emptied
    both "TRUNCATE @; INSERT INTO @ SELECT g, g, 'new' FROM generate_series(1, 3000) g"
    same "after TRUNCATE the table has the new rows"
    is_raw "after TRUNCATE the table is raw" emptied
    compress emptied
    both "BEGIN; SAVEPOINT a; TRUNCATE @; ROLLBACK TO a; DELETE FROM @ WHERE id % 2 = 0; COMMIT"
    same "a TRUNCATE that a savepoint undoes keeps the rows"
    q "DROP TABLE emptied, twin_emptied"
}

corner_alter_table() {
    create_pair altered
    both "ALTER TABLE @ ADD COLUMN late int DEFAULT 7, DROP COLUMN grp"
    same "ADD COLUMN with a default and DROP COLUMN keep the rows"
    is_compressed "ADD COLUMN with a default and DROP COLUMN keep the compression" altered
    q "BEGIN; ALTER TABLE altered ALTER COLUMN late TYPE bigint; INSERT INTO altered VALUES (0, 'x', 1); ROLLBACK"
    same "a rewrite that is rolled back keeps the rows"
    is_compressed "a rewrite that is rolled back keeps the compression" altered
    both "ALTER TABLE @ ALTER COLUMN late TYPE bigint, ALTER COLUMN late SET NOT NULL, ADD CHECK (late > 0)"
    same "a rewrite keeps the rows"
    is_raw "a rewrite stores the table raw" altered
    compress altered
    both "ALTER TABLE @ SET UNLOGGED"
    both "ALTER TABLE @ SET LOGGED"
    same "SET UNLOGGED and SET LOGGED keep the rows"
    compress altered
    check_equal "a CHECK constraint that compressed rows violate is refused" "$(error_of "ALTER TABLE altered ADD CHECK (id < 10000)")" 23514
    both "ALTER TABLE @ RENAME TO @_renamed"
    pair=altered_renamed
    q "ALTER TABLE twin_altered_renamed RENAME TO old; ALTER TABLE old RENAME TO twin_altered_renamed"
    same "RENAME keeps the rows" altered_renamed
    is_compressed "RENAME keeps the compression" altered_renamed
}

corner_tablespaces() {
    mkdir -p "$WORK/plain" "$WORK/cell1/space"
    [ "$(id -u)" != 0 ] || chown "$OS_USER" "$WORK/plain" "$WORK/cell1/space"
    q "CREATE TABLESPACE plain LOCATION '$WORK/plain'"
    q "CREATE TABLESPACE on_cell LOCATION '$WORK/cell1/space'"
    create_pair moved
    q "ALTER TABLE moved SET TABLESPACE plain"
    same "a table moved off the cell keeps its rows"
    check_equal "a table off the cell cannot be compressed" "$(error_of "SELECT cellar.compress('moved')")" 55000
    q "ALTER TABLE moved SET TABLESPACE on_cell"
    is_raw "a table moved to a cell is raw" moved
    compress moved
    same "a table moved to a cell can be compressed"
    q "BEGIN; ALTER TABLE moved SET TABLESPACE plain; ROLLBACK"
    is_compressed "a move that is rolled back keeps the compression" moved
    q "ALTER TABLE ALL IN TABLESPACE on_cell SET TABLESPACE pg_default"
    same "a table moved within the cell keeps its rows"
    is_raw "a table moved within the cell is raw" moved
    q "DROP TABLE moved, twin_moved" && q "DROP TABLESPACE plain" && q "DROP TABLESPACE on_cell"
}

# ---------------------------------------------------------------- DML

corner_unique_column() {
    create_pair keyed
    check_equal "an UPDATE that collides with a compressed row fails" "$(error_of "UPDATE keyed SET id = id + 1")" 23505
    check_equal "an INSERT that collides with a compressed row fails" "$(error_of "INSERT INTO keyed VALUES (777, 0, 'x')")" 23505
    same "failed statements change nothing"
    both "UPDATE @ SET id = -id"
    same "all values of a unique column are updated"
    compress keyed
    both "ALTER TABLE @ DROP CONSTRAINT @_pkey, ADD CONSTRAINT @_pkey PRIMARY KEY (id) DEFERRABLE INITIALLY DEFERRED"
    both "UPDATE @ SET id = id + 1"
    same "values of a deferrable unique column move by one"
    check_equal "a deferred collision fails at COMMIT" "$(error_of "BEGIN; UPDATE keyed SET id = -7 WHERE id = -8; COMMIT")" 23505
    same "a deferred collision changes nothing"
}

corner_on_conflict() {
    create_pair upserted
    both "INSERT INTO @ AS t SELECT g, 1, 'more' FROM generate_series(19000, 20500) g ON CONFLICT (id) DO UPDATE SET note = t.note || excluded.note WHERE t.id % 2 = 0"
    same "ON CONFLICT DO UPDATE modifies compressed rows"
    both "INSERT INTO @ SELECT g, 1, 'none' FROM generate_series(1, 30) g ON CONFLICT DO NOTHING"
    same "ON CONFLICT DO NOTHING detects compressed rows"
    compress upserted
    both "MERGE INTO @ t USING (SELECT g AS id FROM generate_series(1, 30000, 500) g) s ON t.id = s.id
          WHEN MATCHED AND t.id % 1000 = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET note = 'merged' WHEN NOT MATCHED THEN INSERT VALUES (s.id, 0, 'merged')"
    same "MERGE deletes, updates and inserts"
}

corner_triggers() {
    create_pair triggered
    both "CREATE TABLE @_seen (operation text, old_row text, new_row text);
          CREATE FUNCTION @_row() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN
              INSERT INTO @_seen VALUES (TG_OP, OLD::text, NEW::text);
              IF TG_OP = 'UPDATE' THEN NEW.note := upper(OLD.note); RETURN NEW; END IF;
              RETURN OLD; END \$\$;
          CREATE FUNCTION @_statement() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN
              INSERT INTO @_seen SELECT 'transition', o.note, n.note FROM old_rows o JOIN new_rows n USING (id); RETURN NULL; END \$\$;
          CREATE TRIGGER rows BEFORE UPDATE OR DELETE ON @ FOR EACH ROW EXECUTE FUNCTION @_row();
          CREATE TRIGGER statements AFTER UPDATE ON @ REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION @_statement()"
    both "UPDATE @ SET grp = grp + 1 WHERE id % 200 = 3; DELETE FROM @ WHERE id % 200 = 4"
    same "a BEFORE trigger sees and replaces compressed rows"
    local seen="SELECT count(*), md5(string_agg(s::text, '|' ORDER BY s::text)) FROM"
    check_equal "row triggers and transition tables see the old values" "$(off "$seen triggered_seen s")" "$(off "$seen twin_triggered_seen s")"
    check_equal "the triggers ran" "$(off "SELECT count(*) FROM triggered_seen")" 300
}

corner_foreign_keys() {
    create_pair parent
    create_pair parent_child
    pair=parent
    local add="ALTER TABLE @_child ADD FOREIGN KEY (grp) REFERENCES @ ON DELETE CASCADE"
    check_equal "a foreign key that compressed rows violate is refused" "$(error_of "${add//@/parent}")" 23503
    both "DELETE FROM @_child WHERE grp = 0"
    both "$add"
    check_equal "a row without a referenced row is refused" "$(error_of "INSERT INTO parent_child VALUES (0, 30000, 'x')")" 23503
    check_equal "a referenced compressed row cannot change its key" "$(error_of "UPDATE parent SET id = -5 WHERE id = 5")" 23503
    both "DELETE FROM @ WHERE id IN (7, 8)"
    same "ON DELETE CASCADE deletes the referenced rows"
    same "ON DELETE CASCADE deletes the referencing rows" parent_child
    check_equal "ON DELETE CASCADE deleted rows" "$(q "SELECT count(*) FROM parent_child WHERE grp IN (7, 8)")" 0
}

corner_savepoints() {
    create_pair saved
    both "BEGIN; SAVEPOINT a; UPDATE @ SET note = 'kept' WHERE id % 100 = 1; SAVEPOINT b; DELETE FROM @ WHERE id % 100 < 50; ROLLBACK TO b;
          RELEASE a; INSERT INTO @ VALUES (0, 0, 'kept'); SAVEPOINT c; TRUNCATE @; ROLLBACK TO c; COMMIT"
    same "savepoints undo what was rolled back only"
    compress saved
    both "DO \$\$ BEGIN FOR i IN 1..300 LOOP BEGIN UPDATE @ SET note = note || i WHERE id = i; IF i % 3 = 0 THEN RAISE EXCEPTION 'undo'; END IF;
          EXCEPTION WHEN raise_exception THEN NULL; END; END LOOP; END \$\$"
    same "300 subtransactions, a third of them aborted"
    compress saved "archive low"
    same "rows of aborted subtransactions are compressed"
}

corner_row_locks() {
    create_pair locked
    both "BEGIN; SELECT count(*) FROM (SELECT 1 FROM @ WHERE id % 10 = 1 FOR KEY SHARE) s; SAVEPOINT a; UPDATE @ SET note = 'x' WHERE id % 20 = 1; ROLLBACK TO a;
          SELECT count(*) FROM (SELECT 1 FROM @ WHERE id % 10 = 2 FOR UPDATE) s; COMMIT"
    same "row locks of an aborted update keep the rows"
    compress locked
    # While a transaction has locked rows, the table is compressed; the locks stay.
    sql corners postgres -c "BEGIN; SELECT id FROM locked WHERE id BETWEEN 1 AND 50 FOR UPDATE; SELECT pg_sleep(60)" >"$WORK/locks.log" 2>&1 &
    local holder=$!
    remember_process $holder
    wait_until "a transaction locks rows" returns "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'" 1
    compress locked "query high"
    check_equal "compression keeps row locks" "$(error_of "SELECT * FROM locked WHERE id = 10 FOR UPDATE NOWAIT")" 55P03
    check_equal "SKIP LOCKED skips locked rows only" "$(q "SELECT count(*) FROM (SELECT 1 FROM locked WHERE id <= 60 FOR UPDATE SKIP LOCKED) s")" 10
    q "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'" >/dev/null
    wait $holder || true
    same "the table compressed with locked rows keeps its rows"
}

corner_copy() {
    create_pair copied
    local query="COPY (SELECT * FROM @ ORDER BY id) TO STDOUT"
    check_equal "COPY TO returns the rows" "$(q "${query//@/copied}" | md5sum)" "$(q "${query//@/twin_copied}" | md5sum)"
    check_equal "COPY TO in binary format returns the rows" "$(q "${query//@/copied} (FORMAT binary)" | md5sum)" "$(q "${query//@/twin_copied} (FORMAT binary)" | md5sum)"
    q "COPY twin_copied TO STDOUT" | awk -F'\t' -v OFS='\t' '{ $1 += 20000; print }' >"$WORK/copied.txt"
    for table in copied twin_copied; do sql corners postgres -c "COPY $table FROM STDIN" <"$WORK/copied.txt"; done
    same "COPY FROM appends to a compressed table"
    compress copied
    for table in copied twin_copied; do
        { printf '%s\n' 'BEGIN;' "TRUNCATE $table;" "COPY $table FROM STDIN (FREEZE);"; cat "$WORK/copied.txt"; printf '%s\n' '\.' 'COMMIT;'; } | sql corners postgres
    done
    same "COPY FREEZE after TRUNCATE replaces the rows"
    compress copied
    same "rows of COPY FREEZE are compressed"
}

# ---------------------------------------------------------------- indexes

corner_index_builds() {
    create_pair indexed 60000
    "$PG_BIN/pgbench" -n -T 4 -c 1 -R 200 -h "$WORK/run" -p "$(cluster_port corners)" -U postgres postgres >"$WORK/indexes.log" 2>&1 \
        -f <(printf '%s\n' '\set id random(1, 60000)' 'BEGIN;' "UPDATE indexed SET grp = grp + 100 WHERE id = :id;" \
            "UPDATE twin_indexed SET grp = grp + 100 WHERE id = :id;" 'COMMIT;') &
    local load=$! kind
    remember_process $load
    check "CREATE INDEX CONCURRENTLY succeeds during writes" q "CREATE INDEX CONCURRENTLY indexed_grp ON indexed (grp, id)"
    compress indexed "query high"
    check "REINDEX CONCURRENTLY succeeds during writes" q "REINDEX TABLE CONCURRENTLY indexed"
    finished "the session that modifies the table gets no error" $load
    compress indexed
    q "CREATE INDEX ON indexed USING hash (note); CREATE INDEX indexed_part ON indexed (grp) WHERE id % 2 = 0; REINDEX INDEX indexed_part"
    same "the table has the right rows"
    local query="SELECT count(*), sum(id) FROM @ WHERE"
    for kind in "grp = 107" "note = 'note ' || md5('42')" "grp BETWEEN 3 AND 5 AND id % 2 = 0"; do
        check_equal "an index scan returns the rows with $kind" "$(off "SET enable_seqscan = off; ${query//@/indexed} $kind")" "$(off "SET enable_indexscan = off; SET enable_bitmapscan = off; ${query//@/twin_indexed} $kind")"
    done
    q "CREATE INDEX indexed_brin ON indexed USING brin (id) WITH (pages_per_range = 4)"
    check_equal "a BRIN index returns the rows" "$(off "SET enable_seqscan = off; SET enable_indexscan = off; DROP INDEX indexed_grp; ALTER TABLE indexed DROP CONSTRAINT indexed_pkey; ${query//@/indexed} id BETWEEN 3000 AND 9000")" \
        "$(off "${query//@/twin_indexed} id BETWEEN 3000 AND 9000")"
    if has_extension amcheck; then
        q "CREATE EXTENSION IF NOT EXISTS amcheck; ALTER TABLE indexed ADD PRIMARY KEY (id)"
        check_equal "amcheck finds every row in the index" "$(q "SELECT bt_index_check('indexed_pkey', true)")" ""
    else
        skip "amcheck is not installed"
    fi
}

# ---------------------------------------------------------------- transactions

corner_prepared_transactions() {
    create_pair prepared
    q "BEGIN; UPDATE prepared SET note = 'committed' WHERE id % 10 = 1; DELETE FROM prepared WHERE id % 10 = 2; PREPARE TRANSACTION 'kept'"
    q "BEGIN; UPDATE prepared SET note = 'lost' WHERE id % 10 = 3; INSERT INTO prepared SELECT g, 1, 'lost' FROM generate_series(30000, 31000) g; PREPARE TRANSACTION 'lost'"
    same "prepared transactions are invisible"
    compress prepared
    same "compressed with prepared transactions, they stay invisible"
    check "the server recovers from an immediate shutdown" crash
    same "after recovery, prepared transactions are invisible"
    check_equal "after recovery, prepared transactions lock rows" "$(error_of "SET lock_timeout = '100ms'; UPDATE prepared SET grp = 0 WHERE id = 11")" 55P03
    q "COMMIT PREPARED 'kept'" && q "ROLLBACK PREPARED 'lost'"
    q "UPDATE twin_prepared SET note = 'committed' WHERE id % 10 = 1; DELETE FROM twin_prepared WHERE id % 10 = 2"
    same "COMMIT PREPARED and ROLLBACK PREPARED take effect"
    compress prepared
    same "afterwards the table can be compressed again"
}

corner_unlogged_tables() {
    q "CREATE UNLOGGED TABLE unlogged AS SELECT g AS id, 'note ' || g % 100 AS note FROM generate_series(1, 20000) g"
    compress unlogged
    is_compressed "an unlogged table is compressed" unlogged
    check "the server stops" cluster_stop corners
    cluster_start corners "$data"
    check_equal "an unlogged table keeps its rows over a restart" "$(q "SELECT count(*), sum(id) FROM unlogged")" "20000|200010000"
    check "the server recovers from an immediate shutdown" crash
    check_equal "an unlogged table is empty after a crash" "$(q "SELECT count(*) FROM unlogged")" 0
    q "INSERT INTO unlogged SELECT g, 'new' FROM generate_series(1, 5000) g"
    compress unlogged
    check_equal "it can be filled and compressed again" "$(q "SELECT count(*), max(note) FROM unlogged WHERE id > 0")" "5000|new"
}

corner_cursors() {
    create_pair fetched
    local found
    found=$(sql corners postgres <<'SQL'
BEGIN;
DECLARE held SCROLL CURSOR WITH HOLD FOR SELECT id FROM fetched WHERE grp >= 0 ORDER BY id;
MOVE 10 IN held;
COMMIT;
SELECT count(*) > 0 AS compressed FROM cellar.compress('fetched', 'query high') \g /dev/null
DELETE FROM fetched WHERE id % 2 = 0;
\t
FETCH 2 FROM held;
MOVE 5000 IN held;
FETCH BACKWARD 2 FROM held;
MOVE FORWARD ALL IN held;
FETCH PRIOR FROM held;
SQL
    )
    check_equal "a cursor WITH HOLD returns the rows of its snapshot" "$(grep -E '^[0-9]+$' <<<"$found" | tr '\n' ' ')" "11 12 5011 5010 20000 "
    q "DELETE FROM twin_fetched WHERE id % 2 = 0"
    same "rows are deleted while the cursor is open"
}

corner_snapshots() {
    create_pair aged
    local other rows="SELECT count(*), sum(id), md5(string_agg(t::text, '|' ORDER BY id)) FROM aged t;"
    other="\\! '$PG_BIN/psql' -X -q -o /dev/null -h '$WORK/run' -p $(cluster_port corners) -U postgres postgres"
    PGOPTIONS='-c cellar.min_scan_size=0 -c cellar.cost_factor=0' sql corners postgres <<SQL >"$WORK/aged.log"
BEGIN ISOLATION LEVEL REPEATABLE READ;
$rows
$other -c "DELETE FROM aged WHERE id % 2 = 0" -c "UPDATE aged SET note = 'newer' WHERE id % 5 = 0" -c "SELECT cellar.compress('aged', 'query high')"
$rows
SET cellar.cell_offload_processing = off;
$rows
SQL
    check_equal "an old snapshot sees the old rows of a table compressed since" "$(uniq "$WORK/aged.log" | wc -l)/$(wc -l <"$WORK/aged.log")" 1/3
    q "DELETE FROM twin_aged WHERE id % 2 = 0; UPDATE twin_aged SET note = 'newer' WHERE id % 5 = 0"
    same "a new snapshot sees the new rows"
    compress aged
    same "the old versions are removed by the next compression"
}

# ---------------------------------------------------------------- tables of tables

corner_partitions() {
    q "CREATE TABLE parted (id int, grp int, note text, PRIMARY KEY (id, grp)) PARTITION BY RANGE (grp);
       CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (50); CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (50) TO (100);
       CREATE TABLE twin_parted (id int PRIMARY KEY, grp int, note text)"
    pair=parted
    both "INSERT INTO @ SELECT g, g % 100, 'note ' || g % 1000 FROM generate_series(1, 20000) g"
    compress parted
    both "UPDATE @ SET grp = 99 - grp WHERE id % 10 = 1"
    same "an UPDATE moves rows between compressed partitions"
    compress parted
    q "ALTER TABLE parted DETACH PARTITION parted_2 CONCURRENTLY"
    is_compressed "a detached partition stays compressed" parted_2
    q "ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES FROM (50) TO (100)"
    same "a compressed table is attached as a partition"
    q "CREATE TABLE parted_3 PARTITION OF parted FOR VALUES FROM (100) TO (200)"
    both "INSERT INTO @ SELECT 20000 + g, 100 + g % 100, 'more' FROM generate_series(1, 5000) g"
    compress parted
    both "DELETE FROM @ WHERE grp = 150"
    same "rows of a new partition"
    q "TRUNCATE parted_1; DROP TABLE parted_3; DELETE FROM twin_parted WHERE grp < 50 OR grp >= 100"
    same "TRUNCATE and DROP TABLE of partitions"
}

corner_materialized_views() {
    create_pair viewed
    both "CREATE MATERIALIZED VIEW @_kept AS SELECT id, grp, note FROM @ WHERE grp < 90; CREATE UNIQUE INDEX ON @_kept (id)"
    compress viewed_kept
    is_compressed "a materialized view is compressed" viewed_kept
    both "UPDATE @ SET note = 'changed' WHERE id % 100 = 5; DELETE FROM @ WHERE id % 100 = 6; REFRESH MATERIALIZED VIEW CONCURRENTLY @_kept"
    same "REFRESH CONCURRENTLY modifies the compressed view" viewed_kept
    is_compressed "REFRESH CONCURRENTLY keeps the compression" viewed_kept
    both "DELETE FROM @ WHERE id % 100 = 7; REFRESH MATERIALIZED VIEW @_kept"
    same "REFRESH replaces the rows" viewed_kept
    is_raw "REFRESH stores the view raw" viewed_kept
}

# ---------------------------------------------------------------- replication and copies

corner_logical_replication() {
    create_pair published
    both "ALTER TABLE @ REPLICA IDENTITY FULL"
    q "CREATE PUBLICATION changes FOR TABLE published" && q "CREATE DATABASE subscriber"
    DB=subscriber q "CREATE EXTENSION cellar; CREATE TABLE published (id int PRIMARY KEY, grp int, note text)"
    q "SELECT pg_create_logical_replication_slot('changes', 'pgoutput')" >/dev/null
    DB=subscriber q "CREATE SUBSCRIPTION changes CONNECTION '$(cluster_dsn corners)' PUBLICATION changes WITH (create_slot = false, slot_name = 'changes')" 2>/dev/null
    wait_until "the initial copy of a compressed table ends" copied
    DB=subscriber compress published
    both "UPDATE @ SET note = 'new ' || note WHERE id % 40 = 1; DELETE FROM @ WHERE id % 40 = 2; INSERT INTO @ SELECT g, 0, 'added' FROM generate_series(20001, 20500) g"
    compress published "query high"
    both "UPDATE @ SET id = -id WHERE id % 500 = 3; BEGIN; DELETE FROM @ WHERE id % 3 = 0; ROLLBACK"
    wait_until "changes of compressed rows are decoded" caught_up "$(q "SELECT pg_current_wal_lsn()")"
    same "the publishing table has the right rows"
    local rows="SELECT count(*), sum(id), md5(string_agg(t::text, '|' ORDER BY id)) FROM published t" expected
    expected=$(off "$rows")
    check_equal "the subscriber's compressed table has the same rows" "$(DB=subscriber q "$rows")" "$expected"
    check_equal "the subscriber's table scan returns the same rows" "$(DB=subscriber off "$rows")" "$expected"
    check "the subscriber's table is compressed" test "$(DB=subscriber units published)" -gt 0
    DB=subscriber q "DROP SUBSCRIPTION changes"
    q "DROP DATABASE subscriber" && q "DROP PUBLICATION changes"
}

corner_databases() {
    local rows="SELECT count(*), sum(id), md5(string_agg(t::text, '|' ORDER BY id)) FROM cloned t" expected strategy method
    q "CREATE DATABASE template_db"
    DB=template_db q "CREATE EXTENSION cellar; CREATE TABLE cloned AS SELECT g AS id, 'note ' || g % 100 AS note FROM generate_series(1, 30000) g"
    DB=template_db compress cloned
    DB=template_db q "UPDATE cloned SET note = 'new' WHERE id % 1000 = 1"
    expected=$(DB=template_db off "$rows")
    for strategy in wal_log file_copy; do
        for method in copy clone; do
            if [ "$PG_MAJOR" -lt 18 ] || [ $strategy = wal_log ]; then
                [ $method = copy ] || continue
            else
                q "ALTER SYSTEM SET file_copy_method = $method" && q "SELECT pg_reload_conf()" >/dev/null
                # The server may have been built without cloning, and the file system may lack it.
                if [ "$(q "SHOW file_copy_method")" != $method ]; then skip "this server cannot clone files"; continue; fi
            fi
            if ! q "CREATE DATABASE copy TEMPLATE template_db STRATEGY $strategy" 2>"$WORK/databases.log"; then
                not_ok "CREATE DATABASE STRATEGY $strategy, method $method: $(head -n 1 "$WORK/databases.log")"
                continue
            fi
            check_equal "the copy of a database by $strategy, method $method, has the rows" "$(DB=copy off "$rows")/$(DB=copy q "$rows")" "$expected/$expected"
            DB=copy compress cloned
            check_equal "a table in the copy can be compressed" "$(DB=copy q "$rows")" "$expected"
            check_equal "the original database is unchanged" "$(DB=template_db q "$rows")" "$expected"
            q "DROP DATABASE copy"
        done
    done
    q "DROP DATABASE template_db"
}

corner_incremental_backup() {
    if [ "$PG_MAJOR" -lt 17 ]; then skip "incremental backup exists since PostgreSQL 17"; return; fi
    q "ALTER SYSTEM SET summarize_wal = on" && q "SELECT pg_reload_conf()" >/dev/null
    wait_until "WAL is summarized" returns "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsummarizer'" 1
    create_pair backed
    local backup=("$PG_BIN/pg_basebackup" -c fast --no-sync -h "$WORK/run" -p "$(cluster_port corners)" -U postgres)
    check "a full backup succeeds" as_pg "${backup[@]}" -D "$WORK/cell1/full"
    both "UPDATE @ SET note = 'since the backup' WHERE id % 300 = 1"
    compress backed "query high"
    both "DELETE FROM @ WHERE id % 300 = 2"
    check "an incremental backup succeeds" as_pg "${backup[@]}" -D "$WORK/cell1/increment" --incremental="$WORK/cell1/full/backup_manifest"
    check "pg_combinebackup succeeds" as_pg "$PG_BIN/pg_combinebackup" --no-sync -o "$WORK/cell1/combined" "$WORK/cell1/full" "$WORK/cell1/increment"
    cluster_set "$WORK/cell1/combined" "port = $(cluster_port combined)"
    cluster_start combined "$WORK/cell1/combined"
    CLUSTER=combined same "the restored table has the right rows"
    check "the restored table is raw" test "$(CLUSTER=combined units backed)" = 0
    CLUSTER=combined compress backed
    CLUSTER=combined same "the restored table can be compressed"
    check "the restored server stops" cluster_stop combined
    rm -rf "$WORK"/cell1/{full,increment,combined}
    q "ALTER SYSTEM RESET summarize_wal" && q "SELECT pg_reload_conf()" >/dev/null
}

corner_standby_promotion() {
    local standby=$WORK/cell1/standby
    create_pair streamed
    as_pg "$PG_BIN/pg_basebackup" -D "$standby" -R -X stream -c fast --no-sync -h "$WORK/run" -p "$(cluster_port corners)" -U postgres
    cluster_set "$standby" "port = $(cluster_port standby)"
    cluster_start standby "$standby"
    both "UPDATE @ SET note = 'streamed' WHERE id % 70 = 1"
    compress streamed "query high"
    both "DELETE FROM @ WHERE id % 70 = 2; INSERT INTO @ SELECT g, 0, 'added' FROM generate_series(20001, 21000) g"
    wait_until "the standby replays changes of compressed rows" replayed "$(q "SELECT pg_current_wal_lsn()")"
    CLUSTER=standby same "the standby has the right rows"
    check_equal "the standby's table is raw" "$(CLUSTER=standby units streamed)" 0
    check_equal "the standby is promoted" "$(CLUSTER=standby q "SELECT pg_promote()")" t
    CLUSTER=standby compress streamed
    CLUSTER=standby both "UPDATE @ SET note = 'after' WHERE id % 90 = 1"
    CLUSTER=standby same "the promoted standby can compress and modify the table"
    check "the promoted standby's table is compressed" test "$(CLUSTER=standby units streamed)" -gt 0
    same "the former primary is unchanged"
    check "the promoted standby stops" cluster_stop standby
    rm -rf "$standby"
}

# ---------------------------------------------------------------- interruption, damage, offline programs

corner_canceled_compression() {
    create_pair interrupted 80000
    local reached
    check_equal "a compression is canceled" "$(error_of "SET statement_timeout = '20ms'; SELECT cellar.compress('interrupted', 'archive high')")" 57014
    wait_until "its worker exits" returns "SELECT count(*) FROM cellar.compression_progress" 0
    same "a canceled compression keeps the rows"
    both "UPDATE @ SET note = 'between' WHERE id % 500 = 1"
    same "afterwards the rows can be modified"
    compress interrupted "query high"
    reached=$(q "SELECT string_agg(DISTINCT level, ', ') FROM cellar.compression('interrupted') WHERE level <> 'query high' AND level <> 'none'")
    check_equal "the next compression completes the command" "$reached" ""
    same "the completed compression keeps the rows"
}

# compresses PREFIX LEVEL: executes cellar.compress of the table owned, after PREFIX. Prints the level that the table then has.
compresses() { q "$1; SELECT level FROM cellar.compress('owned', '$2')" | tail -n 1; }

corner_roles() {
    q "CREATE ROLE owner_without_login NOLOGIN; CREATE ROLE other_role LOGIN; CREATE TABLE owned AS
           SELECT g AS id, md5((g % 1000)::text) AS note FROM generate_series(1, 20000) g;
       ALTER TABLE owned OWNER TO owner_without_login;
       GRANT CREATE ON SCHEMA public TO owner_without_login;
       SET ROLE owner_without_login;
       CREATE FUNCTION compress_owned() RETURNS text LANGUAGE sql SECURITY DEFINER
           AS \$\$ SELECT level FROM cellar.compress('owned', 'query high') \$\$" >/dev/null
    check_equal "a role that cannot log in compresses its table after SET ROLE" \
        "$(compresses 'SET ROLE owner_without_login' 'query low')" 'query low'
    check_equal "another role compresses it with a security definer function of its owner" \
        "$(q 'SET ROLE other_role; SELECT compress_owned()' | tail -n 1)" 'query high'
    check_equal "another role does not compress it itself" \
        "$(error_of "SET ROLE other_role; SELECT cellar.compress('owned')")" 42501
}

corner_damaged_unit() {
    local inode path unit at bytes disk first last message rows beside id
    create_pair damaged 60000
    create_pair intact
    pair=damaged
    path=$(q "SELECT pg_relation_filepath('damaged')")
    inode=$(as_pg stat -c %i "$data/$path")
    cluster_stop corners
    cell_stop cell1
    unit=$("$CELLAR_BIN" inspect unit --config "$WORK/cell1.toml" "pgdata/$path" 1)
    read -r first last disk < <(sed -nE 's/.*AU 1, blocks ([0-9]+) to ([0-9]+), on (.*)/\1 \2 \3/p' <<<"$unit")
    read -r at bytes < <(sed -nE 's/^unit at byte ([0-9]+) of the unit file, ([0-9]+) bytes.*/\1 \2/p' <<<"$unit")
    check "cellar inspect locates the unit of blocks $first to $last" test "${bytes:-0}" -gt 16384
    dd if=/dev/zero of="$(echo "$disk"/data/*/"$(printf '%016x' "$inode")".units)" bs=4096 seek=$(((at + bytes / 2) / 4096)) count=2 \
        conv=notrunc status=none
    cell_start cell1
    cluster_start corners "$data"
    check_equal "a table scan fails" "$(PGOPTIONS='-c cellar.cell_offload_processing=off' error_of "SELECT count(*), max(note), sum(grp) FROM damaged")" 58030
    message=$(q "SELECT count(*), max(note), sum(grp) FROM damaged" 2>&1 || true)
    check "a Smart Scan fails with the table's name and the unit's blocks" grep -qE "blocks $first to $last.*\"damaged\"|\"damaged\".*blocks $first to $last" <<<"$(tr '\n' ' ' <<<"$message")"
    rows="SELECT count(*), sum(id), md5(string_agg(t::text, '|' ORDER BY id)) FROM @ t WHERE ctid"
    beside="$rows < '($first,0)' UNION ALL $rows >= '($((last + 1)),0)' ORDER BY 2"
    check_equal "all blocks of other units can be read" "$(off "${beside//@/damaged}" 2>&1)" "$(off "${beside//@/twin_damaged}")"
    id=$(off "SELECT max(id) FROM twin_damaged")
    check_equal "an index scan of another unit's row succeeds" "$(off "SET enable_seqscan = off; SELECT grp FROM damaged WHERE id = $id" 2>&1)" $((id % 100))
    check "another unit's row can be modified" q "UPDATE damaged SET note = 'modified' WHERE id = $id"
    check "rows can be inserted" q "INSERT INTO damaged VALUES (-1, 0, 'inserted')"
    same "other tables have their rows" intact
    check "another table can be compressed" compress intact "query high"
    check "the damaged table can be dropped" q "DROP TABLE damaged"
    check "a checkpoint succeeds" q "CHECKPOINT"
}

corner_pg_checksums() {
    create_pair summed
    both "UPDATE @ SET note = 'new' WHERE id % 90 = 1"
    cluster_stop corners
    check "pg_checksums reads all pages and finds no error" as_pg "$PG_BIN/pg_checksums" --check -D "$data"
    check "pg_checksums disables checksums" as_pg "$PG_BIN/pg_checksums" --disable -D "$data"
    cluster_start corners "$data"
    both "UPDATE @ SET note = 'newer' WHERE id % 80 = 1"
    same "without checksums the rows are the same"
    compress summed
    same "a table is compressed without checksums"
    cluster_stop corners
    check "pg_checksums rewrites all pages with checksums" as_pg "$PG_BIN/pg_checksums" --enable -D "$data"
    cluster_start corners "$data"
    same "with checksums again the rows are the same"
    compress summed
    same "a table is compressed with checksums again"
}

# upgrade MODE: pg_upgrades a cluster of the old version on the mount by --copy or --link.
upgrade() {
    local mode=$1 was=$PG_BIN rows="SELECT count(*), sum(id), md5(string_agg(t::text, '|' ORDER BY id)) FROM kept t" expected
    rm -rf "$WORK"/cell1/{old,new} "$WORK/upgrade-work"
    PG_BIN=$("$CELLAR_OLD_PG_CONFIG" --bindir)
    cluster_create old "$WORK/cell1/old" --data-checksums
    cluster_set "$WORK/cell1/old" "shared_preload_libraries = 'cellar'" "shared_buffers = 32MB"
    cluster_start old "$WORK/cell1/old"
    CLUSTER=old q "CREATE EXTENSION cellar; CREATE TABLE kept (id int PRIMARY KEY, note text); INSERT INTO kept SELECT g, 'note ' || g % 100 FROM generate_series(1, 30000) g"
    CLUSTER=old compress kept
    CLUSTER=old q "UPDATE kept SET note = 'new' WHERE id % 1000 = 1; DELETE FROM kept WHERE id % 1000 = 2; SELECT cellar.set_compression('kept', 'query high', after => '1 day')" >/dev/null
    expected=$(CLUSTER=old off "$rows")
    cluster_stop old
    PG_BIN=$was
    cluster_create new "$WORK/cell1/new" --data-checksums
    cluster_set "$WORK/cell1/new" "shared_preload_libraries = 'cellar'" "shared_buffers = 32MB"
    install -d "$WORK/upgrade-work"
    [ "$(id -u)" != 0 ] || chown "$OS_USER" "$WORK/upgrade-work"
    check "pg_upgrade $mode succeeds" bash -c "cd '$WORK/upgrade-work' && $(declare -f as_pg); OS_USER='$OS_USER'; as_pg '$PG_BIN/pg_upgrade' $mode -U postgres \
        -b '$("$CELLAR_OLD_PG_CONFIG" --bindir)' -B '$PG_BIN' -d '$WORK/cell1/old' -D '$WORK/cell1/new' -s '$WORK/run'"
    cluster_start new "$WORK/cell1/new"
    check_equal "after pg_upgrade $mode, all scans return the rows" "$(CLUSTER=new off "$rows")/$(CLUSTER=new q "$rows")/$(CLUSTER=new off "SET enable_seqscan = off; ${rows//kept t/kept t WHERE id > 0}")" "$expected/$expected/$expected"
    check_equal "after pg_upgrade $mode, the policy exists" "$(CLUSTER=new q "SELECT level FROM cellar.compression_policies")" "query high"
    if [ "$mode" = --link ]; then
        check "after pg_upgrade --link, the table is compressed" test "$(CLUSTER=new units kept)" -gt 0
    else
        check_equal "after pg_upgrade $mode, the table is raw" "$(CLUSTER=new units kept)" 0
    fi
    CLUSTER=new compress kept "query high"
    CLUSTER=new q "UPDATE kept SET note = 'upgraded' WHERE id % 500 = 3"
    check_equal "after pg_upgrade $mode, the table can be compressed and modified" "$(CLUSTER=new q "SELECT count(*) FROM kept WHERE note = 'upgraded'")" 60
    cluster_stop new
}

corner_pg_upgrade() {
    local old
    if [ -z "${CELLAR_OLD_PG_CONFIG:-}" ]; then skip "CELLAR_OLD_PG_CONFIG names no older version"; return; fi
    old=$("$CELLAR_OLD_PG_CONFIG" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
    if [ "$old" -ge "$PG_MAJOR" ]; then skip "PostgreSQL $old is not older than $PG_MAJOR"; return; fi
    if [ ! -e "$("$CELLAR_OLD_PG_CONFIG" --pkglibdir)/cellar.so" ]; then skip "the extension is not installed in PostgreSQL $old"; return; fi
    # The minor releases of November 2026 record this option for every column; older ones reject a dump with the option.
    if grep -q pg_attver "$("$CELLAR_OLD_PG_CONFIG" --bindir)/postgres" && ! grep -q pg_attver "$PG_BIN/postgres"; then
        skip "$("$CELLAR_OLD_PG_CONFIG" --version) records the column option pg_attver, which $("$PG_CONFIG" --version) does not know"
        return
    fi
    upgrade --copy
    upgrade --link
}

# ---------------------------------------------------------------- the run

CHECK_PREFIX='start: '
cell_configure cell1 128MiB
sed -i 's/^au_size = .*/au_size = "1MiB"/' "$WORK/cell1.toml"
cell_start cell1
cluster_create corners "$data" --data-checksums
cluster_set "$data" "shared_preload_libraries = 'cellar'" "shared_buffers = 32MB" "autovacuum = off" "max_wal_size = 1GB" \
    "wal_level = logical" "max_prepared_transactions = 10" "max_worker_processes = 30"
cluster_start corners "$data"
q "CREATE EXTENSION cellar"
for corner in "${corners[@]}"; do
    declare -F "corner_$corner" >/dev/null || die "there is no corner $corner"
    say "# $corner ($SECONDS s)"
    CHECK_PREFIX="$corner: "
    "corner_$corner"
done
CHECK_PREFIX='end: '
[ $all = 0 ] || check "Smart Scans read compression units" test "$(q "SELECT sum(value) FROM cellar.sysstat WHERE name = 'cell IO uncompressed bytes'")" -gt 0
check "Postgres stops" cluster_stop corners
check "the cell stops and unmounts" cell_stop cell1
if grep -hsE 'PANIC|server process .* was terminated by signal' "$WORK"/*-postgres.log; then
    not_ok "no server process crashed"
else
    ok "no server process crashed"
fi
checks_end
