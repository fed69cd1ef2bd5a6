//! The report about cell disks: their identity, their metadata stores, their free space, and problems that keep the cell
//! from starting or that the next start repairs.

use super::report::{DiskReport, DisksReport, FilesOfKind, SuperblockReport};
use cellar_storage::{DiskState, GroupState, StreamUsage, Superblock};

/// Builds the report. `problems` are the errors of directories that could not be opened.
pub fn report(states: Vec<DiskState>, problems: Vec<String>) -> DisksReport {
    let newest_generation = states.iter().filter_map(|state| *state.generation.as_ref().ok()?).max();
    let mut report = DisksReport { newest_generation, disks: Vec::new(), problems };
    let superblocks: Vec<(String, Superblock)> = states
        .iter()
        .filter_map(|state| Some((state.path.display().to_string(), state.superblock.as_ref().ok()?.clone()?)))
        .collect();
    compare_superblocks(&superblocks, &mut report.problems);
    let is_ready = superblocks.iter().any(|(_, superblock)| superblock.state == GroupState::Ready);
    for state in states {
        let disk = disk(state, is_ready, newest_generation, &mut report.problems);
        report.disks.push(disk);
    }
    report
}

fn disk(state: DiskState, is_ready: bool, newest: Option<u64>, problems: &mut Vec<String>) -> DiskReport {
    let path = state.path.display().to_string();
    let mut disk = DiskReport { path: path.clone(), ..DiskReport::default() };
    match state.superblock {
        Ok(Some(superblock)) => disk.superblock = Some(superblock_report(&superblock)),
        Ok(None) => problems.push(format!("{path} has no superblock: the directory is not a cell disk")),
        Err(error) => problems.push(error.to_string()),
    }
    match state.generation {
        Ok(Some(generation)) => {
            disk.generation = Some(generation);
            disk.is_newest = Some(generation) == newest;
            if let Some(newest) = newest.filter(|newest| generation < *newest) {
                problems.push(format!(
                    "metadata of {path} have generation {generation}, the newest is {newest}; the next start of the cell \
                     rewrites them"
                ));
            }
        }
        Ok(None) if is_ready && disk.superblock.is_some() => {
            problems.push(format!("{path} has no metadata; the next start of the cell writes them"));
        }
        Ok(None) => {}
        Err(error) => {
            problems.push(format!("{error}; the next start of the cell rewrites the metadata from another disk"))
        }
    }
    match state.space {
        Ok(space) => (disk.total_bytes, disk.available_bytes) = (space.total, space.available),
        Err(error) => problems.push(error.to_string()),
    }
    match state.usage {
        Ok([data, units, redo0, redo1]) => {
            disk.backing_files = files_of_kind(&[data]);
            disk.unit_files = files_of_kind(&[units]);
            disk.redo_logs = files_of_kind(&[redo0, redo1]);
        }
        Err(error) => problems.push(error.to_string()),
    }
    disk
}

fn files_of_kind(usage: &[StreamUsage]) -> FilesOfKind {
    FilesOfKind {
        files: usage.iter().map(|usage| usage.files).sum(),
        allocated_bytes: usage.iter().map(|usage| usage.allocated_bytes).sum(),
    }
}

fn superblock_report(superblock: &Superblock) -> SuperblockReport {
    let state = match superblock.state {
        GroupState::Forming => "forming",
        GroupState::Ready => "ready",
        GroupState::Dropped => "dropped",
    };
    SuperblockReport {
        group_id: superblock.group_id.to_string(),
        disk_id: superblock.disk_ids[superblock.index as usize].to_string(),
        number: superblock.index,
        disks: superblock.disk_ids.len(),
        state: state.into(),
        au_bytes: superblock.au_size.bytes(),
        redundancy: superblock.redundancy.to_string(),
    }
}

/// Finds foreign, repeated and missing disks, compared with the group of the first disk.
fn compare_superblocks(superblocks: &[(String, Superblock)], problems: &mut Vec<String>) {
    let newest = superblocks.iter().min_by_key(|(_, superblock)| std::cmp::Reverse(superblock.generation));
    let Some((_, example)) = newest else { return };
    let mut members: Vec<Option<&str>> = vec![None; example.disk_ids.len()];
    for (path, superblock) in superblocks {
        if superblock.group_id != example.group_id {
            let (ours, its) = (example.group_id, superblock.group_id);
            problems.push(format!("{path} belongs to disk group {its}, not to {ours}; check the list of disks"));
            continue;
        }
        if superblock.state == GroupState::Dropped {
            problems.push(format!("{path} was dropped from the disk group; remove it from the list of disks"));
            continue;
        }
        match members.get_mut(superblock.index as usize) {
            Some(member @ None) => *member = Some(path),
            _ => problems.push(format!("{path} has the identity of another disk (disk {})", superblock.index)),
        }
    }
    for (index, _) in
        members.iter().enumerate().filter(|(number, member)| member.is_none() && !example.is_dropped(*number))
    {
        let (group, id) = (example.group_id, example.disk_ids[index]);
        problems.push(format!(
            "disk {index} ({id}) of disk group {group} is missing; mount its device, or name its directory"
        ));
    }
}
