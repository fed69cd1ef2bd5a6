//! Inspection of cell disks without a running cell.
//!
//! The disks are locked in shared mode: several inspections may run at a time, and no daemon starts meanwhile. Nothing is
//! written: the metadata are repaired and the redo log is replayed in memory only.

use super::report::{Inspection, ReportBody};
use super::{InspectError, disks, resolve};
use crate::access::Credentials;
use crate::unit_codec::Codec;
use cellar_format::wire::{InspectQuery, Report};
use cellar_storage::disk::{Disk, OverlayDisk};
use cellar_storage::{Error, ErrorKind, ReadOnlyVolume, VolumeOptions, disk_states};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Page cache of an inspection.
const CACHE_BYTES: u64 = 16 << 20;

/// Builds a report from the disks. A daemon that has locked a disk is a storage error of kind `Locked`.
pub fn report(paths: &[PathBuf], query: &InspectQuery) -> Result<Inspection, InspectError> {
    let report = match query.report {
        Report::Disks => disks_report(paths)?,
        _ => volume_report(paths, query)?,
    };
    Ok(Inspection { cell_pid: None, report })
}

fn open(path: &Path) -> Result<OverlayDisk, InspectError> {
    OverlayDisk::new(path).map_err(|source| InspectError::Disk { path: path.display().to_string(), source })
}

/// Reports on every directory, also on those that do not form a group.
fn disks_report(paths: &[PathBuf]) -> Result<ReportBody, InspectError> {
    let (mut opened, mut problems) = (Vec::new(), Vec::new());
    for path in paths {
        let disk = match open(path) {
            Ok(disk) => disk,
            Err(error) => {
                problems.push(error.to_string());
                continue;
            }
        };
        let locked = disk.lock().map_err(|source| InspectError::Disk { path: path.display().to_string(), source })?;
        if !locked {
            let message = format!("cell disk {} is in use by a running cell", path.display());
            return Err(Error::new(ErrorKind::Locked, message).into());
        }
        opened.push(Arc::new(disk) as Arc<dyn Disk>);
    }
    Ok(ReportBody::Disks(disks::report(disk_states(&opened), problems)))
}

fn volume_report(paths: &[PathBuf], query: &InspectQuery) -> Result<ReportBody, InspectError> {
    let disks = paths.iter().map(|path| open(path)).collect::<Result<Vec<_>, _>>()?;
    let unit_codec = Some(Arc::new(Codec::new(Arc::default())) as _);
    let options = VolumeOptions { cache_bytes: CACHE_BYTES, unit_codec, ..VolumeOptions::default() };
    let volume = ReadOnlyVolume::open(disks, options)?;
    // The permissions of the disks decide about this process.
    let reader = Credentials::root();
    if query.report != Report::Files {
        volume.replay_redo_log(resolve(&volume, &reader, &query.path)?)?;
    }
    super::report(&volume, &reader, query)
}
