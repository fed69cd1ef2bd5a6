//! Reports about files: the list of all files, and the extent map of one.

use super::report::{AuReport, FileReport, FileSummary, FilesReport, UnitPlace};
use super::{InspectError, name};
use crate::access::{Credentials, Permission};
use cellar_format::units::{AuIndex, BLOCK_BYTES};
use cellar_scan::unit::Level;
use cellar_storage::{ErrorKind, Ino, UnitExtent, Volume};
use std::collections::HashMap;
use std::path::Path;

/// Lists the files whose path starts with `prefix`, by path: those in directories that `peer` may list.
pub fn list(volume: &Volume, peer: &Credentials, prefix: &str) -> Result<FilesReport, InspectError> {
    let prefix = prefix.trim_start_matches('/');
    let mut files = Vec::new();
    let mut is_listed_folder: HashMap<String, bool> = HashMap::new();
    for ino in volume.files() {
        let path = volume.path_of(ino);
        if !path.as_deref().unwrap_or_default().starts_with(prefix) {
            continue;
        }
        let is_listed = match &path {
            None => peer.uid == 0,
            Some(path) => {
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                let may_list = || peer.resolve(volume, folder, Permission::List).is_ok();
                *is_listed_folder.entry(folder.to_owned()).or_insert_with(may_list)
            }
        };
        if !is_listed {
            continue;
        }
        match summary(volume, ino, path) {
            Ok(file) => files.push(file),
            // The file was removed meanwhile.
            Err(error) if matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(FilesReport { prefix: prefix.into(), files })
}

fn summary(volume: &Volume, ino: Ino, path: Option<String>) -> cellar_storage::Result<FileSummary> {
    let (attr, au_bytes) = (volume.getattr(ino)?, volume.au_bytes(ino)?);
    let aus = attr.size.div_ceil(au_bytes);
    let mut compressed_aus = 0;
    if attr.stored_bytes != attr.size {
        for au in 0..aus {
            compressed_aus += u64::from(volume.unit_extent(ino, AuIndex(au))?.is_some());
        }
    }
    Ok(FileSummary {
        path,
        inode: ino,
        size: attr.size,
        au_bytes,
        disks: volume.file_disks(ino)?.len(),
        aus,
        compressed_aus,
        stored_bytes: attr.stored_bytes,
    })
}

/// Reports where each allocation unit of a file is stored.
pub fn file(volume: &Volume, ino: Ino) -> Result<FileReport, InspectError> {
    let file = summary(volume, ino, Some(name(volume, ino)))?;
    let au_blocks = file.au_bytes / BLOCK_BYTES as u64;
    let mut allocation_units = Vec::new();
    for au in 0..file.aus {
        let unit = volume.unit_extent(ino, AuIndex(au))?.map(|extent| place(&extent));
        let start = au * file.au_bytes;
        let length = (file.size - start).min(file.au_bytes);
        allocation_units.push(AuReport {
            au,
            first_block: au * au_blocks,
            end_block: au * au_blocks + length.div_ceil(BLOCK_BYTES as u64),
            disk: names_of(&volume.au_disks(ino, AuIndex(au))?),
            is_hole: unit.is_none() && volume.is_hole(ino, start, length)?,
            unit,
        });
    }
    let units = || allocation_units.iter().filter_map(|au| au.unit.as_ref());
    Ok(FileReport {
        file: FileSummary { compressed_aus: units().count() as u64, ..file },
        disks: volume.file_disks(ino)?.iter().map(|disk| disk.display().to_string()).collect(),
        unit_bytes: units().map(|unit| unit.stored_bytes).sum(),
        superseded_blocks: units().map(|unit| u64::from(unit.superseded_pages)).sum(),
        logged_blocks: units().map(|unit| u64::from(unit.logged_pages)).sum(),
        allocation_units,
    })
}

/// Returns the paths of disks as a list.
pub(super) fn names_of(disks: &[&Path]) -> String {
    disks.iter().map(|disk| disk.display().to_string()).collect::<Vec<_>>().join(", ")
}

pub(super) fn place(extent: &UnitExtent) -> UnitPlace {
    let level = u8::try_from(extent.tag).ok().and_then(Level::from_u8);
    UnitPlace {
        level: level.map_or_else(|| format!("unknown ({})", extent.tag), |level| level.name().into()),
        slot: extent.slot,
        offset: extent.offset,
        bytes: u64::from(extent.length),
        stored_bytes: extent.stored_bytes,
        pages: extent.superseded.page_count(),
        superseded_pages: extent.superseded.len(),
        logged_pages: extent.superseded.len() - extent.committed.len(),
        log_sequence: extent.log_sequence,
    }
}
