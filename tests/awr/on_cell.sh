# Sourced by the AWR tests: a cluster on a cell or without one, whose AWR snapshots only the test takes.
# shellcheck shell=bash

# begin_on_cell NAME [SETTING ...]: starts a cell and, with its data directory on the cell, the cluster NAME. Sets data, and the
# functions q and snapshot use the cluster.
begin_on_cell() {
    extension_installed || die "the extension is not installed: run scripts/build.sh extension"
    cluster=$1
    work_begin "$cluster"
    data=$WORK/cell1/pgdata
    cell_configure cell1 256MiB
    cell_start cell1
    begin_cluster "${@:2}"
}

# begin_without_cell NAME [SETTING ...]: the same without a cell.
begin_without_cell() {
    extension_installed || die "the extension is not installed: run scripts/build.sh extension"
    cluster=$1
    work_begin "$cluster"
    data=$WORK/data
    begin_cluster "${@:2}"
}

begin_cluster() {
    cluster_create "$cluster" "$data"
    cluster_set "$data" "shared_preload_libraries = 'cellar'" "cellar.awr_snapshot_interval = 0" "cellar.awr_database = template1" \
        "autovacuum = off" "$@"
    cluster_start "$cluster" "$data"
    q "CREATE EXTENSION cellar"
}

# q STATEMENT: the rows of a statement in database $DB, by default postgres.
q() { sql "$cluster" "${DB:-postgres}" -c "$1"; }

# snapshot: takes an AWR snapshot and prints its number. A separate statement before, so that the statistics of earlier statements
# are flushed.
snapshot() { sql "$cluster" postgres -c "SELECT pg_stat_force_next_flush()" -c "SELECT awr.create_snapshot('test')" | tail -n 1; }

# notes SNAPSHOT: the kinds of its notes about the interval.
notes() { q "SELECT string_agg(DISTINCT kind, ', ') FROM awr.note WHERE snap_id = $1 AND kind NOT LIKE 'source%'"; }
# Negative figures of a report, except those that may be negative.
negative() {
    q "WITH RECURSIVE node (path, value) AS (
         SELECT '', awr.report_data($1, $2)
         UNION ALL
         SELECT c.path, c.value FROM node, LATERAL (
           SELECT path || '.' || key AS path, e.value FROM jsonb_each(CASE jsonb_typeof(node.value) WHEN 'object' THEN node.value ELSE '{}' END) e
           UNION ALL
           SELECT path || '[]', e.value FROM jsonb_array_elements(CASE jsonb_typeof(node.value) WHEN 'array' THEN node.value ELSE '[]' END) e) c)
       SELECT string_agg(path || ' ' || value, ', ') FROM node
       WHERE jsonb_typeof(value) = 'number' AND (value #>> '{}')::numeric < 0 AND path !~ '(growth|query_id|plan_id|age_xids)\$'"
}

# wait_for CONDITION: waits until an SQL condition is true.
wait_for() { wait_for_true 120 q "SELECT $1" || die "not true: $1"; }

# session NAME: starts a session that reads statements from the pipe $WORK/NAME.
session() {
    mkfifo "$WORK/$1"
    PGAPPNAME=$1 sql "$cluster" "${DB:-postgres}" <"$WORK/$1" >/dev/null 2>&1 &
    remember_process $!
}

# directory_for_tablespace PATH: creates a directory that the server may use.
directory_for_tablespace() {
    install -d "$1"
    [ "$(id -u)" != 0 ] || chown "$OS_USER" "$1"
}
