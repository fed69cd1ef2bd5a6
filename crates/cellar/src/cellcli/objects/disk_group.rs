//! DISKGROUP: the disk group of the cell.

use super::super::ast::Operation;
use super::super::connection::Connection;
use super::super::error::Error;
use super::super::names::disk_group_name;
use super::super::value::Value;
use super::disk_group_changes::Change;
use super::{Object, ObjectType};
use cellar_format::wire::GroupAction;

const MIB: u64 = 1 << 20;
/// MiB per second that a scrub reads if the command says no rate, as with `cellar group scrub`.
const SCRUB_RATE_DEFAULT: u64 = 50;

pub struct DiskGroup;

impl ObjectType for DiskGroup {
    fn name(&self) -> &'static str {
        "DISKGROUP"
    }

    fn title(&self) -> &'static str {
        "DiskGroup"
    }

    fn attributes(&self) -> &'static [&'static str] {
        &[
            "name",
            "allocationUnitSize",
            "diskRepairTime",
            "fileRedundancy",
            "freeSpace",
            "id",
            "offlineDisks",
            "readsFromOtherCopy",
            "readsPastCap",
            "rebalancePower",
            "rebalanceStatus",
            "repairs",
            "resyncReadSize",
            "resyncWrittenSize",
            "scrubEnded",
            "scrubReadSize",
            "scrubRepaired",
            "scrubStarted",
            "scrubStatus",
            "scrubTotalSize",
            "scrubUnrepaired",
            "size",
            "status",
            "type",
            "usableFileSize",
            "writeIntents",
        ]
    }

    fn default_attributes(&self) -> &'static [&'static str] {
        &["name", "status"]
    }

    fn read(&self, cell: &Connection) -> Result<Vec<Object>, Error> {
        let (status, group) = (cell.status()?, cell.group()?);
        let count = |name: &str| Value::of_json(&group[name], Value::Count);
        let bytes = |name: &str| Value::of_json(&group[name], Value::Size);
        let mib = |name: &str| Value::of_json(&group[name], |mib| Value::Size(mib * MIB));
        let scrub = &group["scrub"];
        Ok(vec![vec![
            disk_group_name(&status.name).into(),
            bytes("allocation_unit_size"),
            count("disk_repair_time"),
            file_redundancy(&group["file_redundancy"]),
            mib("free_mb"),
            count("group_id"),
            count("offline_disks"),
            count("reads_from_other_copy"),
            count("reads_past_cap"),
            Value::of_json(&group["rebalance"]["power"], Value::Count),
            Value::of_json(&group["rebalance"]["state"], Value::Count),
            count("repairs"),
            bytes("resync_read_bytes"),
            bytes("resync_written_bytes"),
            Value::of_json(&scrub["ended"], Value::of_seconds),
            Value::of_json(&scrub["bytes_read"], Value::Size),
            Value::of_json(&scrub["repaired"], Value::Count),
            Value::of_json(&scrub["started"], Value::of_seconds),
            Value::of_json(&scrub["state"], Value::Count),
            Value::of_json(&scrub["bytes_total"], Value::Size),
            Value::of_json(&scrub["unrepaired"], Value::Count),
            mib("total_mb"),
            count("state"),
            count("type"),
            mib("usable_file_mb"),
            count("write_intents"),
        ]])
    }

    fn alterations(&self) -> &'static [&'static str] {
        &[
            "{ALL | name} SCRUB [RATE mib_per_second]",
            "{ALL | name} SCRUB STOP",
            "{ALL | name} ADD [FAILGROUP name] DISK path [, path]... [REBALANCE POWER power]",
            "{ALL | name} DROP DISK {disk | path} [, {disk | path}]... [FORCE] [REBALANCE POWER power]",
            "{ALL | name} UNDROP {DISKS | DISK {disk | path} [, {disk | path}]...}",
            "{ALL | name} REPLACE DISK {disk | path} WITH path [REBALANCE POWER power]",
            "{ALL | name} REBALANCE [POWER power]",
            "{ALL | name} SET DISK_REPAIR_TIME = time",
            "{ALL | name} MODIFY TEMPLATE file_type ATTRIBUTES ({MIRROR | HIGH | DEFAULT}) [REBALANCE POWER power]",
        ]
    }

    fn alter(&self, cell: &Connection, _object: &Object, operation: &Operation) -> Result<&'static str, Error> {
        let Operation::Words(words) = operation else { return Err(self.cannot(operation)) };
        if let Some(change) = Change::parse(words)? {
            return change.run(cell);
        }
        let upper: Vec<String> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
        let rate = match upper.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["SCRUB", "STOP"] => {
                cell.group_request(GroupAction::StopScrub, "", 0)?;
                return Ok("scrub stopped");
            }
            ["SCRUB"] => SCRUB_RATE_DEFAULT,
            ["SCRUB", "RATE", rate] => match rate.parse::<u64>().ok().filter(|rate| *rate < 1 << 30) {
                Some(rate) => rate,
                None => {
                    let message = format!("RATE {}: write MiB per second, or 0 for no limit", words[2]);
                    return Err(Error::invalid_value(message));
                }
            },
            _ => return Err(self.cannot(operation)),
        };
        cell.group_request(GroupAction::Scrub, "", rate * MIB)?;
        Ok("scrub started")
    }
}

/// Returns the file types that have another redundancy than the group.
fn file_redundancy(types: &serde_json::Value) -> Value {
    let own = types.as_array().into_iter().flatten().filter(|found| found["is_default"] == false);
    let text = |found: &serde_json::Value, name: &str| found[name].as_str().unwrap_or_default().to_owned();
    let own: Vec<String> =
        own.map(|found| format!("{}={}", text(found, "file_type"), text(found, "redundancy"))).collect();
    own.join(", ").into()
}
