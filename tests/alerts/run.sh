#!/usr/bin/env bash
# Alerts of a cell with two copies of its data: a disk that goes offline and returns, thresholds, the hook, restarts, wrong arguments.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

cli() { "$CELLAR_BIN" cellcli --cell "$WORK/cell1.toml" "$@"; }
# has PATTERN COMMAND: prints t if the output of a command of CellCLI has a line with the pattern.
has() { cli -e "$2" | grep -q "$1" && echo t; }
# has_not PATTERN COMMAND: prints t if no line has the pattern.
has_not() {
    local output
    output=$(cli -e "$2") && ! grep -q "$1" <<<"$output" && echo t
}
# fails MESSAGE COMMAND: the command fails with the message.
fails() {
    local output
    if output=$(cli -e "$2" 2>&1); then return 1; fi
    printf '%s\n' "$output"
    grep -qF "$1" <<<"$output"
}
# attribute NAME ALERT: an attribute of an alert, or null.
attribute() { cli --json -e "list alerthistory $2 attributes $1" | sed -n "s/.*\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p"; }
is_sent() { test "$(attribute notificationState "$1")" = 1 && echo t; }
# names CONDITION: the names of alerts, in one line.
names() { cli -e "list alerthistory where $1 attributes name" | xargs; }
events() { cli -e "list alerthistory where alertShortName = $1 and alertObjectName = $2 attributes severity" | xargs; }
has_events() { test "$(events "$1" "$2")" = "$3" && echo t; }

work_begin alerts
cell_configure cell1 64MiB
sed -i "s|^redundancy.*|redundancy = \"normal\"|; s|^log_level|alert_hook = \"$WORK/hook\"\nlog_level|" "$WORK/cell1.toml"
printf '\n[metrics]\nhistory_interval_seconds = 1\n' >>"$WORK/cell1.toml"
# The hook fails for the disk group.
cat >"$WORK/hook" <<HOOK
#!/bin/sh
document=\$(cat)
printf '%s\n' "\$document" >>"$WORK/hook.log"
case \$document in *'"alertShortName":"DiskGroup"'*) exit 7 ;; esac
HOOK
chmod 755 "$WORK/hook"
cell_start cell1

check "the definitions contain those of disks and of metrics" test \
    "$(cli -e "list alertdefinition where name like 'StatefulAlert_(CellDisk|CL_RUNQ)' attributes name" | xargs)" = "StatefulAlert_CellDisk StatefulAlert_CL_RUNQ"
check "a cell whose disks are online has no alert about them" test -z "$(names "alertShortName like 'CellDisk|DiskGroup'")"

cli -e "alter celldisk CD_01_cell1 inactive" >/dev/null
check "a disk that is offline raises an alert" wait_for_true 30 has_events CellDisk CD_01_cell1 critical
check "and the group another one" wait_for_true 30 has_events DiskGroup DG_cell1 critical
disk=$(names "alertShortName = CellDisk and severity = critical")
group=$(names "alertShortName = DiskGroup and severity = critical")
check "the alert is open" test "$(attribute endTime "$disk")" = null
check "and says what to do" has "alertAction:.*ALTER CELLDISK" "list alerthistory $disk detail"
check "the status of the cell counts the open alerts" grep -q "^alerts .*open: [2-9] critical" < <("$CELLAR_BIN" cell status --config "$WORK/cell1.toml")
check "the hook got the alert" wait_for_true 30 is_sent "$disk"
check "as JSON" grep -q "\"name\":\"$disk\"" "$WORK/hook.log"
failed() { test "$(attribute notificationState "$1")" = 3 && echo t; }
check "a failure of the hook is recorded" wait_for_true 30 failed "$group"
check "and logged" grep -q "alert_hook $WORK/hook failed for alert $group: .*exit status: 7" "$WORK/cell1.log"

cli -e "alter celldisk CD_01_cell1 active" >/dev/null
has_ended() { test "$(attribute endTime "$1")" != null && echo t; }
check "the alert ends when the disk is online" wait_for_true 30 has_ended "$disk"
check "and that of the group" wait_for_true 30 has_ended "$group"
check "the last event is clear" test "$(events CellDisk CD_01_cell1 | awk '{ print $NF }')" = clear

# A start of the cell brings the disk online.
cli -e "alter celldisk CD_01_cell1 inactive" >/dev/null
has_open() { test "$(names "alertShortName = CellDisk and endTime = NULL" | wc -w)" = 1 && echo t; }
check "the disk raises another alert" wait_for_true 30 has_open
second=$(names "alertShortName = CellDisk and endTime = NULL")
check "the cell stops with an open alert" cell_stop cell1
cell_start cell1
check "the alert survives the restart, and ends" wait_for_true 30 has_ended "$second"
check "no alert began again" test "$(events CellDisk CD_01_cell1 | grep -o critical | wc -l)" = 2

cli -e "alter alerthistory $disk examinedBy = 'ann'" >/dev/null
check "an alert that was examined is not without examiner" test -z "$(names "name = $disk and examinedBy = ''")"
check "an operator has examined the alert" test "$(names "examinedBy = ann")" = "$disk"
cli -e "alter alerthistory all examinedBy = 'bob'" >/dev/null
check "and all alerts" test -z "$(names "examinedBy != bob")"
check "an alert is not dropped without its sequence" fails "drop all alerts of a sequence at once" "drop alerthistory $disk"
sequence=${disk%_*}
cli -e "drop alerthistory all where alertSequenceID = $sequence" >/dev/null
check "a sequence is dropped" test -z "$(names "alertSequenceID = $sequence")"

# A limit that the values are always beyond, and one that they never are.
cli -e "create threshold CL_MEMUT.cell1 comparison = '>', warning = 0, critical = 1000" >/dev/null
check "a metric beyond a threshold raises an alert" wait_for_true 30 has_events CL_MEMUT cell1 warning
check "with the name and the value of the metric" has "metricValue:.*%" "list alerthistory where metricName = CL_MEMUT detail"
check "a threshold is shown" test "$(cli -e "list threshold attributes name, comparison, warning, critical, occurrences" | xargs)" = "CL_MEMUT.cell1 > 0 1000 1"
cli -e "alter threshold CL_MEMUT.cell1 warning = 1000" >/dev/null
check "a metric within the threshold ends the alert" wait_for_true 30 has_events CL_MEMUT cell1 "warning clear"
cli -e "create threshold CD_IO_ERRS.CD_00_cell1 comparison = '=', critical = 0, occurrences = 2" >/dev/null
check "the alert begins after some violations" wait_for_true 30 has_events CD_IO_ERRS CD_00_cell1 critical
check "the cell stops with a threshold" cell_stop cell1
cell_start cell1
check "thresholds survive a restart" test "$(cli -e "list threshold attributes name" | xargs)" = "CD_IO_ERRS.CD_00_cell1 CL_MEMUT.cell1"
cli -e "drop threshold CD_IO_ERRS.CD_00_cell1" >/dev/null
check "the end of a threshold ends its alert" wait_for_true 30 has_events CD_IO_ERRS CD_00_cell1 "critical clear"

check "an unknown metric is refused" fails 'metric "CL_NOTHING" does not exist' "create threshold CL_NOTHING.cell1 comparison = '>', warning = 1"
check "an unknown object is refused" fails 'metric CL_RUNQ has no object "cell7"; its objects are cell1' "create threshold CL_RUNQ.cell7 comparison = '>', warning = 1"
check "a wrong number is refused" fails 'warning = "much" is not a number' "create threshold CL_RUNQ.cell1 comparison = '>', warning = much"
check "a critical limit before the warning limit is refused" fails "write a critical limit that is above the warning limit" "create threshold CL_RUNQ.cell1 comparison = '>', warning = 5, critical = 2"
check "the log says that a request was refused" grep -q "INFO .*refused a request of an operator: critical = 2 is violated" "$WORK/cell1.log"
check "a threshold that exists is refused" fails 'threshold CL_MEMUT.cell1 exists already' "create threshold CL_MEMUT.cell1 comparison = '>', warning = 1"
check "an unknown threshold is refused" fails 'CELL-90002: THRESHOLD "CL_RUNQ.cell1" does not exist' "drop threshold CL_RUNQ.cell1"
check "an unknown alert is refused" fails 'CELL-90002: ALERTHISTORY "9999_1" does not exist' "alter alerthistory 9999_1 examinedBy = 'ann'"
check "other attributes are not altered" fails "ALTER ALERTHISTORY cannot assign severity" "alter alerthistory all severity = clear"
cli -e "drop alerthistory all" >/dev/null
check "all alerts about the disk and the metrics are gone" wait_for_true 1 has_not "CL_MEMUT" "list alerthistory"
check "the cell stops" cell_stop cell1
checks_end
