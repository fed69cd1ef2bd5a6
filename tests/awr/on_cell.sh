# Sourced by the AWR tests of a cluster on a cell.
# shellcheck shell=bash

# begin_on_cell NAME [SETTING ...]: starts a cell and, with its data directory on the cell, the cluster NAME, whose AWR snapshots
# only the test takes. Sets data, and the functions q and snapshot use the cluster.
begin_on_cell() {
    extension_installed || die "the extension is not installed: run scripts/build.sh extension"
    cluster=$1
    work_begin "$cluster"
    data=$WORK/cell1/pgdata
    cell_configure cell1 256MiB
    cell_start cell1
    cluster_create "$cluster" "$data"
    cluster_set "$data" "shared_preload_libraries = 'cellar'" "cellar.awr_snapshot_interval = 0" "cellar.awr_database = template1" \
        "autovacuum = off" "${@:2}"
    cluster_start "$cluster" "$data"
    q "CREATE EXTENSION cellar"
}

# q STATEMENT: the rows of a statement in database $DB, by default postgres.
q() { sql "$cluster" "${DB:-postgres}" -c "$1"; }

# snapshot: takes an AWR snapshot and prints its number. A separate statement before, so that the statistics of earlier statements
# are flushed.
snapshot() { sql "$cluster" postgres -c "SELECT pg_stat_force_next_flush()" -c "SELECT awr.create_snapshot('test')" | tail -n 1; }

# directory_for_tablespace PATH: creates a directory that the server may use.
directory_for_tablespace() {
    install -d "$1"
    [ "$(id -u)" != 0 ] || chown "$OS_USER" "$1"
}
