//! Reports about the disk group, and requests of an operator to bring disks online or take them offline.

use crate::cell_request::{CellRequest, RequestError};
use cellar_format::wire::{GroupAction, GroupRequest, Kind};
use cellar_storage::disk::{Disk, DiskIoCount, DiskOperation};
use cellar_storage::{DiskMode, DiskSpace, Error, ErrorKind, GroupDisk, Redundancy, Result, Volume};
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Time limit of a request. Bringing a disk online copies what changed while the disk was offline.
const TIMEOUT: Duration = Duration::from_secs(24 * 3600);
const MIB: u64 = 1 << 20;

/// Sends a request to the cell that listens on `socket`, and returns the state of the group after it.
pub fn request(socket: &Path, action: GroupAction, disk: &str) -> Result<Value, RequestError> {
    let request = GroupRequest { action, disk: disk.to_owned() };
    let mut sent = CellRequest::send(socket, TIMEOUT, Kind::GroupRequest, |out| request.encode(out))?;
    let text = sent.receive(Kind::GroupReport, |payload| Ok(payload.to_vec()))?;
    serde_json::from_slice(&text).map_err(|error| sent.no_answer(io::Error::other(error).into()))
}

/// Does what the request says, and returns the state of the group.
pub(crate) fn answer(volume: &Volume, request: &GroupRequest) -> Result<Value> {
    let disk = Path::new(&request.disk);
    match request.action {
        GroupAction::Status => {}
        GroupAction::Online => {
            // An engine creates a missing directory, which would look like an empty disk.
            if !disk.exists() {
                let message = format!("cell disk {} does not exist; mount its device first", disk.display());
                return Err(Error::new(ErrorKind::NotFound, message));
            }
            let number = volume.disk_number(disk)?;
            let engine = crate::disks::open(disk, number, None)
                .map_err(|error| Error::io(format!("could not open cell disk {}", disk.display()), error))?;
            volume.online_disk(engine)?;
        }
        GroupAction::Offline => volume.offline_disk(disk)?,
    }
    Ok(report(volume))
}

/// Returns the state of the group. The names are those of Oracle's `v$asm_diskgroup` and `v$asm_disk`.
pub fn report(volume: &Volume) -> Value {
    let status = volume.group_status();
    let spaces = volume.disk_spaces();
    let disk = |disk: &GroupDisk| disk_report(disk, &spaces[disk.number], volume.disks()[disk.number].as_ref());
    let (total, free): (u64, u64) =
        spaces.iter().fold((0, 0), |(total, free), space| (total + space.total, free + space.available));
    let offline = status.disks.iter().filter(|disk| disk.mode != DiskMode::Online).count();
    json!({
        "group_id": status.id,
        "state": if status.is_degraded() { "DEGRADED" } else { "MOUNTED" },
        "type": match status.redundancy {
            Redundancy::External => "EXTERN",
            Redundancy::Normal => "NORMAL",
            Redundancy::High => "HIGH",
        },
        "allocation_unit_size": status.au_bytes,
        "total_mb": total / MIB,
        "free_mb": free / MIB,
        "usable_file_mb": usable_bytes(status.redundancy, &spaces) / MIB,
        "offline_disks": offline,
        "write_intents": status.intents,
        "reads_from_other_copy": status.reads_from_other_copy,
        "repairs": status.repairs,
        "resync_read_bytes": status.resync_read_bytes,
        "resync_written_bytes": status.resync_written_bytes,
        "disks": status.disks.iter().map(disk).collect::<Vec<_>>(),
    })
}

/// Returns the bytes by which files may grow. Files are striped evenly, so the fullest disk sets the limit.
fn usable_bytes(redundancy: Redundancy, spaces: &[DiskSpace]) -> u64 {
    let fullest = spaces.iter().filter(|space| space.total > 0).map(|space| space.available).min();
    fullest.unwrap_or(0) * spaces.len() as u64 / redundancy.copies() as u64
}

fn disk_report(disk: &GroupDisk, space: &DiskSpace, engine: &dyn Disk) -> Value {
    let counts = engine.io_stats().map(|stats| stats.counts());
    let of = |operation: DiskOperation| counts.as_ref().map(|counts| &counts[operation as usize]);
    let number = |operation, value: fn(&DiskIoCount) -> u64| of(operation).map_or(0, value);
    let errors = |count: &DiskIoCount| count.io_errors + count.no_space_errors;
    let seconds = |operation| of(operation).map_or(0.0, |count| count.nanoseconds as f64 / 1e9);
    json!({
        "disk_number": disk.number,
        "path": disk.path.display().to_string(),
        "failgroup": disk.failure_group,
        "mode_status": disk.mode.name(),
        "offline_since": disk.offline_since.map(|since| since / 1_000_000_000),
        "total_mb": space.total / MIB,
        "free_mb": space.available / MIB,
        "reads": number(DiskOperation::Read, |count| count.operations),
        "writes": number(DiskOperation::Write, |count| count.operations),
        "read_errs": number(DiskOperation::Read, errors),
        "write_errs": number(DiskOperation::Write, errors),
        "read_time": seconds(DiskOperation::Read),
        "write_time": seconds(DiskOperation::Write),
        "bytes_read": number(DiskOperation::Read, |count| count.bytes),
        "bytes_written": number(DiskOperation::Write, |count| count.bytes),
    })
}
