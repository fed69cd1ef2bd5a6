#!/usr/bin/env bash
# Builds the working tree, starts a cell and a Postgres on its mount, and opens psql. Stops both when psql exits.
# The data remain in the folder, so that the next start finds them.
#
#   dev.sh [start]     KEEP=1 leaves the cell and Postgres running when psql exits
#   dev.sh stop        stops what KEEP=1 or a killed dev.sh left running
#   dev.sh remove      stops them and deletes the data
#
#   DEV_DIR=.dev       folder of the cell disks, the mount and the logs
#   CACHE=128MiB       page cache of the cell
set -euo pipefail
CELLAR_PROFILE=${CELLAR_PROFILE:-release}
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
WORK=${DEV_DIR:-$ROOT/.dev}

case ${1:-start} in
start) ;;
stop) instance_stop dev; exit 0 ;;
remove) instance_remove dev; exit 0 ;;
*) die "usage: dev.sh [start|stop|remove]" ;;
esac

"$ROOT/scripts/build.sh" extension
instance_folder
stop_at_exit() {
    local status=$?
    if [ -z "${KEEP:-}" ] || [ "$status" != 0 ]; then instance_stop dev; fi
    exit "$status"
}
trap stop_at_exit EXIT
# psql handles Ctrl-C itself.
trap : INT
trap 'exit 143' TERM HUP

if ! instance_running dev; then
    instance_start dev "${CACHE:-128MiB}" "cellar.min_scan_size = 0"
    sql dev postgres -c "SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS cellar"
fi
say "logs: $WORK/cell1.log, $WORK/dev-postgres.log; cell status: $CELLAR_BIN cell status --config $WORK/cell1.toml"
"$PG_BIN/psql" -h "$WORK/run" -p "$(cluster_port dev)" -U postgres postgres || true
