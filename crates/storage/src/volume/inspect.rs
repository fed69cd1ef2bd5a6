//! Reading a disk group without changing it, and the facts about disks, files and units that an inspection reports.
//!
//! A [`ReadOnlyVolume`] is a volume on [`OverlayDisk`]s: nothing is recovered, repaired or removed on the disks. The
//! methods of [`Volume`] in this file read the state of a running volume or of a read-only one.

use super::free_space::FreeSpace;
use super::{Ino, Volume, VolumeOptions};
use crate::disk::{Disk, OverlayDisk, Space, Stream};
use crate::error::{Context, Result};
use crate::group::rebalance::FileKey;
use crate::group::{Group, Superblock};
use crate::meta::{Kind, Stores, generation_of};
use crate::page_set::PageSet;
use cellar_format::units::AuIndex;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files of one stream on a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamUsage {
    pub files: u64,
    /// Bytes that the files occupy, without their holes.
    pub allocated_bytes: u64,
}

/// What a directory contains, as a cell disk.
#[derive(Debug)]
pub struct DiskState {
    pub path: PathBuf,
    /// None if the directory has no superblock.
    pub superblock: Result<Option<Superblock>>,
    /// Generation of the metadata store; None if the directory has no store.
    pub generation: Result<Option<u64>>,
    pub space: Result<Space>,
    /// Files by stream, in the order of [`Stream::ALL`].
    pub usage: Result<[StreamUsage; Stream::ALL.len()]>,
}

/// Where the compression unit of an allocation unit is stored, and which of its pages are superseded.
#[derive(Debug, Clone)]
pub struct UnitExtent {
    /// Bytes of the unit.
    pub length: u32,
    /// Bytes of the unit with slot header and checksum table.
    pub stored_bytes: u64,
    pub slot: u8,
    /// Offset of the unit in the unit file.
    pub offset: u64,
    /// CRC-32C of the checksum table.
    pub checksum: u32,
    /// See [`Volume::store_unit`].
    pub tag: u32,
    pub log_sequence: u64,
    /// Pages whose current content is raw. The page count is the number of pages of the unit.
    pub superseded: PageSet,
    /// Superseded pages that the metadata on disk name superseded. The others are in the redo log.
    pub committed: PageSet,
}

/// A volume that is read and never changed.
#[derive(Debug)]
pub struct ReadOnlyVolume(Volume);

impl ReadOnlyVolume {
    /// Opens the disk group on `disks` for reading. Another process that has locked a disk is an error of kind `Locked`.
    pub fn open(disks: Vec<OverlayDisk>, options: VolumeOptions) -> Result<Self> {
        Self::open_group(disks, options, false)
    }

    /// Like [`Self::open`], and refuses a group that [`Volume::open`] would refuse with these disks and options.
    pub fn open_strictly(disks: Vec<OverlayDisk>, options: VolumeOptions) -> Result<Self> {
        Self::open_group(disks, options, true)
    }

    fn open_group(disks: Vec<OverlayDisk>, options: VolumeOptions, is_strict: bool) -> Result<Self> {
        let disks = disks.into_iter().map(|disk| Arc::new(disk) as Arc<dyn Disk>).collect();
        let group = Group::open_existing(disks, is_strict.then(|| options.of_group()).as_ref())?;
        let (stores, contents) = Stores::read_only(group.disks(), group.stripes().len())?;
        let free_space = FreeSpace::read_only(group.disks());
        let options = VolumeOptions { prefetch_threads: 0, ..options };
        Ok(Self(Volume::assemble(group, stores, contents, free_space, options)?))
    }

    /// Replays the redo log of a file in memory: the file then has the content and the superseded pages that it has
    /// after the next start of the cell.
    pub fn replay_redo_log(&self, ino: Ino) -> Result<()> {
        let file = self.file(ino)?;
        file.units().map_or(Ok(()), |units| file.replay_redo_log(units))
    }
}

impl Deref for ReadOnlyVolume {
    type Target = Volume;

    fn deref(&self) -> &Volume {
        &self.0
    }
}

/// Returns whether opening a volume on the disks would form a new disk group. Changes nothing. Disks that cannot form one, or
/// that another process has locked, are an error.
pub fn forms_new_group(disks: &[OverlayDisk]) -> Result<bool> {
    Group::would_form(disks.iter().map(|disk| disk as &dyn Disk))
}

/// Returns what each directory contains. The disks need not form a group.
pub fn disk_states(disks: &[Arc<dyn Disk>]) -> Vec<DiskState> {
    disks.iter().map(|disk| disk_state(disk, generation_of(disk))).collect()
}

fn disk_state(disk: &Arc<dyn Disk>, generation: Result<Option<u64>>) -> DiskState {
    let path = disk.path().to_owned();
    let place = path.display();
    DiskState {
        superblock: Superblock::read(disk.as_ref()),
        generation,
        space: disk.space().context(|| format!("could not determine the free space of cell disk {place}")),
        usage: usage(disk.as_ref()).context(|| format!("could not list cell disk {place}")),
        path,
    }
}

fn usage(disk: &dyn Disk) -> std::io::Result<[StreamUsage; Stream::ALL.len()]> {
    let mut usage = [StreamUsage::default(); Stream::ALL.len()];
    for (ino, stream) in disk.backing_files()? {
        let of_stream = &mut usage[stream as usize];
        of_stream.files += 1;
        of_stream.allocated_bytes += disk.measure(ino, stream)?.1;
    }
    Ok(usage)
}

impl Volume {
    /// Returns what each disk of the group contains.
    pub fn disk_states(&self) -> Vec<DiskState> {
        let generation = self.stores.lock().generation();
        self.group.accessible_disks().iter().map(|disk| disk_state(disk, Ok(Some(generation)))).collect()
    }

    /// Returns the inode numbers of all files, ascending.
    pub fn files(&self) -> Vec<Ino> {
        let namespace = self.namespace.read();
        let files = namespace.nodes().filter(|(_, node)| node.inode.kind == Kind::File).map(|(ino, _)| ino);
        let mut files: Vec<Ino> = files.collect();
        files.sort_unstable();
        files
    }

    /// Returns the disks that store a file, in the order of its stripes.
    pub fn file_disks(&self, ino: Ino) -> Result<Vec<&Path>> {
        let file = self.file(ino)?;
        let mut disks: Vec<&Path> = Vec::new();
        for stripe in &file.layout.disks {
            let runs = self.group.placement().runs(FileKey { ino, stripe: *stripe, stream: Stream::Data });
            for path in runs.containers().into_iter().flat_map(|container| self.paths_of(container)) {
                if !disks.contains(&path) {
                    disks.push(path);
                }
            }
        }
        Ok(disks)
    }

    fn paths_of(&self, container: u16) -> impl Iterator<Item = &Path> {
        self.group.disks_of(container).into_iter().map(|disk| self.disks()[disk].path())
    }

    /// Returns the disks with the copies of an allocation unit of a file, the first copy first.
    pub fn au_disks(&self, ino: Ino, au: AuIndex) -> Result<Vec<&Path>> {
        let file = self.file_with_au(ino, au)?;
        let range = file.layout.au_range(au);
        let stripe = file.layout.disks[file.layout.disk_index(range.start)];
        let runs = self.group.placement().runs(FileKey { ino, stripe, stream: Stream::Data });
        let (_, container) = runs.pieces(range).next().expect("an allocation unit is not empty");
        Ok(self.paths_of(container).collect())
    }

    /// Returns where the compression unit of an allocation unit is stored; None if the allocation unit is raw.
    pub fn unit_extent(&self, ino: Ino, au: AuIndex) -> Result<Option<UnitExtent>> {
        let file = self.file_with_au(ino, au)?;
        let extent = file.units().and_then(|units| units.extent(au));
        Ok(extent.map(|extent| UnitExtent {
            length: extent.stored.length,
            stored_bytes: extent.stored.slot_bytes(),
            slot: extent.stored.slot,
            offset: extent.stored.offset(),
            checksum: extent.stored.checksum,
            tag: extent.tag,
            log_sequence: extent.log_sequence.0,
            superseded: extent.superseded.clone(),
            committed: extent.committed.clone(),
        }))
    }

    /// Returns whether the backing file has no space allocated for a range within one allocation unit: the range was never
    /// written, was punched, or is current in a compression unit.
    pub fn is_hole(&self, ino: Ino, offset: u64, length: u64) -> Result<bool> {
        self.file(ino)?.is_hole(offset, length)
    }
}
