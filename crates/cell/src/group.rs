//! Reports about the disk group, and an operator's requests to change it: disks, redundancy of file types, rebalances and scrubs.

use crate::cell_request::{CellRequest, RequestError};
use crate::state::CellState;
use cellar_format::wire::{FileType, GroupAction, GroupRequest, Kind};
use cellar_storage::disk::{Disk, DiskIoCount, DiskOperation};
use cellar_storage::iorm::Iorm;
use cellar_storage::{
    DiskMode, Error, ErrorKind, FileRedundancy, FlashCacheMode, GroupDisk, RebalanceState, RebalanceStatus, Redundancy,
    Result, ScrubReport, ScrubState, Volume,
};
use nix::errno::Errno;
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Time limit of a request. Bringing a disk online copies what changed while the disk was offline.
const TIMEOUT: Duration = Duration::from_secs(24 * 3600);
const MIB: u64 = 1 << 20;

/// An operation on a group that takes long. The names are those of Oracle's `v$asm_operation`; work is counted in
/// allocation units.
#[derive(Debug, Clone, Default)]
pub struct GroupOperation {
    pub operation: &'static str,
    pub pass: &'static str,
    pub state: &'static str,
    /// The limit that the operator set, from 0 to 11; None for an operation without one.
    pub power: Option<u32>,
    /// The limit in effect.
    pub actual: Option<u32>,
    pub done: u64,
    pub estimated: u64,
    pub running: Duration,
    pub error: Option<String>,
}

impl GroupOperation {
    fn report(&self) -> Value {
        let minutes = self.running.as_secs_f64() / 60.0;
        let rate = if minutes > 0.0 { self.done as f64 / minutes } else { 0.0 };
        let left = self.estimated.saturating_sub(self.done) as f64;
        json!({
            "operation": self.operation,
            "pass": self.pass,
            "state": self.state,
            "power": self.power,
            "actual": self.actual,
            "sofar": self.done,
            "est_work": self.estimated.max(self.done),
            "est_rate": rate.round() as u64,
            "est_minutes": if rate > 0.0 { Some((left / rate).ceil() as u64) } else { None },
            "error_code": self.error,
        })
    }
}

/// Sends a request to the cell that listens on `socket`, and returns the state of the group after it.
pub fn request(socket: &Path, request: &GroupRequest) -> Result<Value, RequestError> {
    let mut sent = CellRequest::send(socket, TIMEOUT, Kind::GroupRequest, |out| request.encode(out))?;
    let text = sent.receive(Kind::GroupReport, |payload| Ok(payload.to_vec()))?;
    serde_json::from_slice(&text).map_err(|error| sent.no_answer(io::Error::other(error).into()))
}

/// Does what the request says, and returns the state of the group.
pub(crate) fn answer(state: &CellState, request: &GroupRequest) -> Result<Value> {
    apply(state, request).map_err(with_remedy)?;
    Ok(report(&state.volume))
}

/// Adds what to do to the error of a disk that cannot be written to.
fn with_remedy(error: Error) -> Error {
    if error.errno() != Errno::EROFS as i32 {
        return error;
    }
    let remedy = "repair its device if necessary, mount its file system for writing, and repeat the command";
    Error::new(error.kind(), format!("{error}; {remedy}"))
}

fn apply(state: &CellState, request: &GroupRequest) -> Result<()> {
    let (volume, disk) = (&state.volume, Path::new(&request.disk));
    let open_new = |disk| open_new(volume, disk, &state.iorm);
    match request.action {
        GroupAction::Status => {}
        GroupAction::Online => {
            let number = volume.disk_number(disk)?;
            let path = volume.disks()[number].path();
            check_exists(path)?;
            volume.online_disk(open(path, number, &state.iorm)?)?;
        }
        GroupAction::Offline => volume.offline_disk(disk)?,
        GroupAction::Scrub => volume.start_scrub(request.rate)?,
        GroupAction::StopScrub => volume.stop_scrub(),
        GroupAction::Add => volume.add_disk(open_new(disk)?, None)?,
        GroupAction::AddTo => volume.add_disk(open_new(disk)?, Some(request.argument.clone()))?,
        GroupAction::Replace => volume.replace_disk(disk, open_new(Path::new(&request.argument))?)?,
        GroupAction::Drop => volume.drop_disk(disk, false)?,
        GroupAction::DropForce => volume.drop_disk(disk, true)?,
        GroupAction::RepairTime => volume.set_disk_repair_time(Duration::from_secs(request.seconds))?,
        GroupAction::FileRedundancy => {
            let (file_type, redundancy) =
                parse_file_redundancy(&request.argument).map_err(|message| Error::new(ErrorKind::Invalid, message))?;
            volume.set_file_redundancy(file_type, redundancy)?;
        }
        GroupAction::DropFlashCache => volume.drop_flash_cache()?,
        GroupAction::FlashCacheMode => volume.set_flash_cache_mode(FlashCacheMode::parse(&request.argument)?)?,
        GroupAction::FlushFlashCache => volume.flush_flash_cache()?,
        GroupAction::CancelFlush => volume.cancel_flash_flush(),
        GroupAction::Undrop => volume.undrop_disk(disk)?,
        GroupAction::Power => volume.set_rebalance_power(request.power)?,
        GroupAction::Rebalance => volume.request_rebalance()?,
    }
    Ok(())
}

/// Parses the name of a file type, `=`, and a redundancy; `default` is the redundancy of the group.
pub fn parse_file_redundancy(text: &str) -> Result<(FileType, Option<Redundancy>), String> {
    let names = FileType::ALL.map(FileType::name).join(", ");
    let (file_type, redundancy) = text.split_once('=').unwrap_or((text, ""));
    let (file_type, redundancy) = (file_type.trim(), redundancy.trim());
    let Some(file_type) = FileType::from_name(file_type) else {
        return Err(format!("\"{file_type}\" is not a file type; the types are {names}"));
    };
    match (Redundancy::from_name(redundancy), redundancy.eq_ignore_ascii_case("default")) {
        (Some(found), _) => Ok((file_type, Some(found))),
        (None, true) => Ok((file_type, None)),
        (None, false) => {
            let name = file_type.name();
            Err(format!(
                "\"{redundancy}\" is not a redundancy of files; write {name}=normal (2 copies), {name}=high (3 copies), or \
                 {name}=default (as the group)"
            ))
        }
    }
}

/// Checks that the directory of a new disk exists: an engine would create a missing directory, but on the file system of its parent
/// if the disk is not mounted.
fn check_exists(disk: &Path) -> Result<()> {
    if disk.exists() {
        return Ok(());
    }
    let message =
        format!("cell disk {} does not exist; mount its device, and create a directory there first", disk.display());
    Err(Error::new(ErrorKind::NotFound, message))
}

/// Opens a disk that is to join the group.
fn open_new(volume: &Volume, disk: &Path, iorm: &Iorm) -> Result<Arc<dyn Disk>> {
    check_exists(disk)?;
    open(disk, volume.disks().len(), iorm)
}

/// Opens a cell disk of the group, or one that is to join.
fn open(disk: &Path, number: usize, iorm: &Iorm) -> Result<Arc<dyn Disk>> {
    crate::disks::open(disk, number, None, iorm)
        .map_err(|error| Error::io(format!("could not open cell disk {}", disk.display()), error))
}

/// Returns the operations on the group that are under way.
fn operations(volume: &Volume) -> Vec<GroupOperation> {
    let scrub = volume.scrub_report().filter(|scrub| scrub.state == ScrubState::Running);
    let au_bytes = volume.group_status().au_bytes;
    let of_scrub = |scrub: ScrubReport| GroupOperation {
        operation: "SCRUB",
        pass: "SCRUB",
        state: "RUN",
        done: scrub.bytes_read / au_bytes,
        estimated: scrub.bytes_total.div_ceil(au_bytes),
        running: Duration::from_nanos((now() - scrub.started).max(0) as u64),
        ..GroupOperation::default()
    };
    let rebalance = volume.rebalance_status();
    let rebalance = (rebalance.state != RebalanceState::Idle).then(|| rebalance_operation(&rebalance));
    rebalance.into_iter().chain(scrub.map(of_scrub)).collect()
}

fn rebalance_operation(status: &RebalanceStatus) -> GroupOperation {
    GroupOperation {
        operation: "REBAL",
        pass: "REBALANCE",
        state: match (status.state, &status.error) {
            (RebalanceState::Idle, _) => "DONE",
            (RebalanceState::Running, _) => "RUN",
            (RebalanceState::Waiting, Some(_)) => "ERRS",
            (RebalanceState::Waiting, None) => "WAIT",
        },
        power: Some(status.power),
        actual: Some(if status.state == RebalanceState::Running { status.power } else { 0 }),
        done: status.moved,
        estimated: status.estimated,
        running: status.running,
        error: status.error.clone(),
    }
}

/// Returns the state of the rebalance that runs, waits, or was the last one.
fn rebalance_report(status: &RebalanceStatus) -> Value {
    let mut report = rebalance_operation(status).report();
    report["copied_bytes"] = status.copied_bytes.into();
    report["placement_runs"] = status.runs.into();
    report
}

/// Returns the time in nanoseconds since 1970.
fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |elapsed| elapsed.as_nanos() as i64)
}

fn scrub_report(scrub: &ScrubReport) -> Value {
    let finding = |finding: &cellar_storage::ScrubFinding| json!({ "path": finding.path, "place": finding.place, "problem": finding.problem });
    json!({
        "state": scrub.state.name(),
        "started": scrub.started / 1_000_000_000,
        "ended": scrub.ended.map(|ended| ended / 1_000_000_000),
        "rate": scrub.rate,
        "files_total": scrub.files_total,
        "files_done": scrub.files_done,
        "bytes_total": scrub.bytes_total.max(scrub.bytes_read),
        "bytes_read": scrub.bytes_read,
        "repaired": scrub.repaired,
        "unrepaired": scrub.unrepaired,
        "findings": scrub.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

/// Returns the state of the group. The names are those of Oracle's `v$asm_diskgroup` and `v$asm_disk`.
pub fn report(volume: &Volume) -> Value {
    let status = volume.group_status();
    let spaces = volume.disk_spaces();
    let disk = |disk: &GroupDisk| {
        // Another disk may replace an offline one at its path.
        let space = spaces.iter().find(|space| space.path == disk.path && disk.mode != DiskMode::Offline);
        let (total, available) = space.map_or((0, 0), |space| (space.total, space.available));
        disk_report(disk, (total, available), volume.disks()[disk.number].as_ref())
    };
    let (total, free): (u64, u64) =
        spaces.iter().fold((0, 0), |(total, free), space| (total + space.total, free + space.available));
    let of_type = |found: &FileRedundancy| {
        json!({
            "file_type": found.file_type.name(),
            "redundancy": found.redundancy.oracle_name(),
            "is_default": found.is_of_group,
            "usable_file_mb": volume.usable_bytes(found.redundancy.copies()) / MIB,
        })
    };
    let offline = status.disks.iter().filter(|disk| disk.mode != DiskMode::Online).count();
    json!({
        "group_id": status.id,
        "state": if status.is_degraded() { "DEGRADED" } else { "MOUNTED" },
        "type": status.redundancy.oracle_name(),
        "allocation_unit_size": status.au_bytes,
        "total_mb": total / MIB,
        "free_mb": free / MIB,
        "usable_file_mb": volume.usable_bytes(status.redundancy.copies()) / MIB,
        "file_redundancy": volume.file_redundancy().iter().map(of_type).collect::<Vec<_>>(),
        "offline_disks": offline,
        "disk_repair_time": status.disk_repair_time.map(|time| time.as_secs()),
        "write_intents": status.intents,
        "reads_from_other_copy": status.reads_from_other_copy,
        "reads_past_cap": status.reads_past_cap,
        "repairs": status.repairs,
        "resync_read_bytes": status.resync_read_bytes,
        "resync_written_bytes": status.resync_written_bytes,
        "scrub": volume.scrub_report().as_ref().map(scrub_report),
        "rebalance": rebalance_report(&volume.rebalance_status()),
        "warnings": crate::shared_devices::warnings(volume),
        "operations": operations(volume).iter().map(GroupOperation::report).collect::<Vec<_>>(),
        "disks": status.disks.iter().map(disk).collect::<Vec<_>>(),
    })
}

fn disk_report(disk: &GroupDisk, (total, available): (u64, u64), engine: &dyn Disk) -> Value {
    let counts = engine.io_stats().map(|stats| stats.counts());
    let of = |operation: DiskOperation| counts.as_ref().map(|counts| &counts[operation as usize]);
    let number = |operation, value: fn(&DiskIoCount) -> u64| of(operation).map_or(0, value);
    let errors = |count: &DiskIoCount| count.io_errors + count.no_space_errors;
    let seconds = |operation| of(operation).map_or(0.0, |count| count.nanoseconds as f64 / 1e9);
    let histogram = |operation| of(operation).map(|count| count.histogram.to_vec());
    json!({
        "disk_number": disk.number,
        "path": disk.path.display().to_string(),
        "failgroup": disk.failure_group,
        "mode_status": disk.mode.name(),
        "state": match (disk.is_dropping, disk.mode) {
            (true, DiskMode::Offline) => "FORCING",
            (true, _) => "DROPPING",
            (false, _) => "NORMAL",
        },
        "repair_timer": disk.repair_left.map(|left| left.as_secs()),
        "offline_since": disk.offline_since.map(|since| since / 1_000_000_000),
        "total_mb": total / MIB,
        "free_mb": available / MIB,
        "reads": number(DiskOperation::Read, |count| count.operations),
        "writes": number(DiskOperation::Write, |count| count.operations),
        "read_errs": number(DiskOperation::Read, errors),
        "write_errs": number(DiskOperation::Write, errors),
        "read_time": seconds(DiskOperation::Read),
        "write_time": seconds(DiskOperation::Write),
        "bytes_read": number(DiskOperation::Read, |count| count.bytes),
        "bytes_written": number(DiskOperation::Write, |count| count.bytes),
        "syncs": number(DiskOperation::Sync, |count| count.operations),
        "sync_errs": number(DiskOperation::Sync, errors),
        "sync_time": seconds(DiskOperation::Sync),
        "read_histogram": histogram(DiskOperation::Read),
        "write_histogram": histogram(DiskOperation::Write),
        "sync_histogram": histogram(DiskOperation::Sync),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_read_only_disk_says_what_to_do() {
        let failed = |errno: Errno| Error::io("could not lock cell disk /disk2", errno.into());
        let read_only = with_remedy(failed(Errno::EROFS)).to_string();
        assert!(read_only.starts_with("could not lock cell disk /disk2: Read-only file system"), "{read_only}");
        assert!(read_only.ends_with("mount its file system for writing, and repeat the command"), "{read_only}");
        let other = failed(Errno::EIO);
        assert_eq!(with_remedy(other.clone()).to_string(), other.to_string());
    }
}
