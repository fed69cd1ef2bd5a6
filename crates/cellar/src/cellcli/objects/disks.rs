//! CELLDISK and GRIDDISK: a cell disk, and the part of it that belongs to the disk group, which is all of it.

use super::super::ast::Operation;
use super::super::connection::Connection;
use super::super::error::Error;
use super::super::names::{cell_disk_name, disk_group_name, grid_disk_name};
use super::super::value::Value;
use super::{Object, ObjectType};
use cellar_format::wire::GroupAction;
use cellar_storage::disk::FileMedium;
use serde_json::Value as Json;
use std::path::Path;

const MIB: u64 = 1 << 20;
/// The type of the disks of the group, whatever devices they are; flash disks are no disks of the group.
const DISK_TYPE: &str = "HardDisk";

/// What differs between the two types of disks.
pub struct Disks {
    name: &'static str,
    title: &'static str,
    attributes: &'static [&'static str],
    read: fn(&DiskView<'_>) -> Object,
}

pub static CELL_DISK: Disks = Disks {
    name: "CELLDISK",
    title: "CellDisk",
    attributes: &[
        "name",
        "deviceName",
        "diskType",
        "errorCount",
        "freeSpace",
        "medium",
        "reserveFreeSpace",
        "reserveSize",
        "size",
        "status",
    ],
    read: |disk| disk.cell_disk(),
};

pub static GRID_DISK: Disks = Disks {
    name: "GRIDDISK",
    title: "GridDisk",
    attributes: &[
        "name",
        "asmDeactivationOutcome",
        "asmDiskGroupName",
        "asmFailGroupName",
        "asmModeStatus",
        "cellDisk",
        "deviceName",
        "diskType",
        "errorCount",
        "offlineSince",
        "size",
        "status",
    ],
    read: |disk| disk.grid_disk(),
};

impl ObjectType for Disks {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> &'static str {
        self.title
    }

    fn attributes(&self) -> &'static [&'static str] {
        self.attributes
    }

    fn default_attributes(&self) -> &'static [&'static str] {
        &["name", "status"]
    }

    fn read(&self, cell: &Connection) -> Result<Vec<Object>, Error> {
        let (status, group) = (cell.status()?, cell.group()?);
        let disks = group["disks"].as_array().map(Vec::as_slice).unwrap_or_default();
        let object = |disk: &Json| {
            let space = status.disks.iter().find(|space| disk["path"] == *space.path);
            let (reserve, reserve_free) = space.map_or((0, 0), |space| (space.reserve_bytes, space.reserve_free_bytes));
            (self.read)(&DiskView { cell: &status.name, group: &group, disk, reserve, reserve_free })
        };
        Ok(disks.iter().map(object).collect())
    }

    fn alterations(&self) -> &'static [&'static str] {
        &["{ALL | name [, name]...} INACTIVE", "{ALL | name [, name]...} ACTIVE"]
    }

    /// INACTIVE takes the disk offline, ACTIVE brings it online. NOWAIT, after INACTIVE, changes nothing: the group waits for
    /// nothing when a disk goes offline.
    fn alter(&self, cell: &Connection, object: &Object, operation: &Operation) -> Result<&'static str, Error> {
        let Operation::Words(words) = operation else { return Err(self.cannot(operation)) };
        let words: Vec<String> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
        let action = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["INACTIVE"] | ["INACTIVE", "NOWAIT"] => GroupAction::Offline,
            ["ACTIVE"] => GroupAction::Online,
            _ => return Err(self.cannot(operation)),
        };
        let path = object[self.attribute("deviceName")?].plain();
        cell.group_request(action, &path, 0)?;
        Ok("successfully altered")
    }
}

/// One disk in the reports of the cell.
struct DiskView<'a> {
    cell: &'a str,
    group: &'a Json,
    disk: &'a Json,
    reserve: u64,
    reserve_free: u64,
}

impl DiskView<'_> {
    fn number(&self) -> u64 {
        self.disk["disk_number"].as_u64().unwrap_or(0)
    }

    fn mode(&self) -> &str {
        self.disk["mode_status"].as_str().unwrap_or_default()
    }

    /// The space of an offline disk is not known.
    fn space(&self, bytes: u64) -> Value {
        if self.mode() == "OFFLINE" { Value::Unset } else { Value::Size(bytes) }
    }

    fn mib(&self, name: &str) -> Value {
        self.space(self.disk[name].as_u64().unwrap_or(0) * MIB)
    }

    fn errors(&self) -> Value {
        let errors = ["read_errs", "write_errs", "sync_errs"].map(|name| self.disk[name].as_u64().unwrap_or(0));
        Value::Count(errors.iter().sum())
    }

    fn path(&self) -> &str {
        self.disk["path"].as_str().unwrap_or_default()
    }

    fn cell_disk(&self) -> Object {
        let is_offline = self.mode() == "OFFLINE";
        let medium = match FileMedium::is_device(Path::new(self.path())) {
            _ if is_offline => Value::Unset,
            true => "Device".into(),
            false => "Directory".into(),
        };
        vec![
            cell_disk_name(self.number(), self.cell).into(),
            self.path().into(),
            DISK_TYPE.into(),
            self.errors(),
            self.mib("free_mb"),
            medium,
            self.space(self.reserve_free),
            self.space(self.reserve),
            self.mib("total_mb"),
            if is_offline { "offline" } else { "normal" }.into(),
        ]
    }

    fn grid_disk(&self) -> Object {
        // With an offline disk, it depends on the partners of the other disks whether one more can be missed.
        let outcome = match (self.group["type"].as_str(), self.group["state"].as_str()) {
            (Some("EXTERN"), _) => "No".into(),
            (_, Some("MOUNTED")) => "Yes".into(),
            _ => Value::Unset,
        };
        vec![
            grid_disk_name(self.number(), self.cell).into(),
            outcome,
            disk_group_name(self.cell).into(),
            Value::of_json(&self.disk["failgroup"], Value::Count),
            self.mode().into(),
            cell_disk_name(self.number(), self.cell).into(),
            self.path().into(),
            DISK_TYPE.into(),
            self.errors(),
            Value::of_json(&self.disk["offline_since"], Value::of_seconds),
            self.mib("total_mb"),
            if self.mode() == "OFFLINE" { "inactive" } else { "active" }.into(),
        ]
    }
}
