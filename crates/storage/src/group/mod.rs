//! The disk group: several cell disks that act as one, and how a file's allocation units lie on them.
//!
//! Invariants: all disks of the group are present, ours and locked while a [`Group`] lives; a byte of a file lies at
//! the same offset in exactly one disk's backing file (external redundancy). The group knows no names and no caching.

mod layout;
mod superblock;

pub use layout::{AuSize, Layout, Piece};
pub use superblock::{Redundancy, Uuid};

use crate::disk::{Disk, Space};
use crate::error::{Context, Error, ErrorKind, Result};
use std::sync::Arc;
use superblock::{State, Superblock};

#[derive(Debug)]
pub struct Group {
    disks: Vec<Arc<dyn Disk>>,
    superblocks: Vec<Superblock>,
    /// Of new files; a file keeps the size it was created with.
    au_size: AuSize,
}

impl Group {
    /// Locks the disks, then opens the group on them, or forms a new one when all are blank. Disks may come in any
    /// order. The flag tells whether the group is new; call [`Group::mark_ready`] once its metadata exist.
    pub fn open(disks: Vec<Arc<dyn Disk>>, au_size: AuSize, redundancy: Redundancy) -> Result<(Self, bool)> {
        if redundancy != Redundancy::External {
            let message = format!("redundancy \"{redundancy}\" is not supported yet; use \"external\"");
            return Err(Error::new(ErrorKind::NotSupported, message));
        }
        if disks.is_empty() || disks.len() > superblock::DISKS_MAX {
            let message = format!("a disk group has 1 to {} disks, not {}", superblock::DISKS_MAX, disks.len());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let mut found = Vec::new();
        for disk in &disks {
            let path = disk.path().display();
            if !disk.lock().context(|| format!("locking cell disk {path}"))? {
                let message = format!("cell disk {path} is in use by another cell daemon; stop that one first");
                return Err(Error::new(ErrorKind::Locked, message));
            }
            found.push(Superblock::read(disk.as_ref())?);
        }
        if found.iter().flatten().all(|superblock| superblock.state == State::Forming) {
            Self::form(disks, &found, au_size)
        } else {
            Ok((Self::assemble(disks, found, au_size)?, false))
        }
    }

    fn form(disks: Vec<Arc<dyn Disk>>, found: &[Option<Superblock>], au_size: AuSize) -> Result<(Self, bool)> {
        for (disk, superblock) in disks.iter().zip(found) {
            let path = disk.path().display();
            if superblock.is_none() && !disk.is_blank().context(|| format!("reading cell disk {path}"))? {
                let message = format!("{path} is neither empty nor a cell disk; name an empty directory");
                return Err(Error::new(ErrorKind::ForeignDisk, message));
            }
        }
        let superblocks = Superblock::for_new_group(disks.len(), au_size)?;
        for (disk, superblock) in disks.iter().zip(&superblocks) {
            superblock.write(disk.as_ref())?;
        }
        Ok((Self { disks, superblocks, au_size }, true))
    }

    fn assemble(disks: Vec<Arc<dyn Disk>>, found: Vec<Option<Superblock>>, au_size: AuSize) -> Result<Self> {
        let example = found.iter().flatten().next().expect("one disk has a superblock").clone();
        let count = example.disk_ids.len();
        let mut slots: Vec<Option<(Arc<dyn Disk>, Superblock)>> = (0..count).map(|_| None).collect();
        for (disk, superblock) in disks.into_iter().zip(found) {
            let path = disk.path().display().to_string();
            let foreign = |message: String| Err(Error::new(ErrorKind::ForeignDisk, message));
            let Some(superblock) = superblock else {
                return foreign(format!(
                    "{path} is not a disk of group {}: it holds no superblock (adding a disk to a group is not \
                     supported yet; remove it from the configuration)",
                    example.group_id
                ));
            };
            if superblock.group_id != example.group_id {
                let (ours, its) = (example.group_id, superblock.group_id);
                return foreign(format!("{path} belongs to disk group {its}, not to {ours}; check the list of disks"));
            }
            let index = superblock.index as usize;
            if slots[index].is_some() {
                return foreign(format!("{path} is a copy of another configured disk (disk {index}); name each once"));
            }
            slots[index] = Some((disk, superblock));
        }
        let missing: Vec<String> = (0..count)
            .filter(|index| slots[*index].is_none())
            .map(|index| format!("disk {index} ({})", example.disk_ids[index]))
            .collect();
        if !missing.is_empty() {
            let message = format!(
                "disk group {} has {count} disks, but {} is not among the configured ones; add its directory",
                example.group_id,
                missing.join(", ")
            );
            return Err(Error::new(ErrorKind::ForeignDisk, message));
        }
        let (disks, superblocks): (Vec<_>, Vec<_>) = slots.into_iter().flatten().unzip();
        let mut group = Self { disks, superblocks, au_size };
        // A crash between the markings leaves some disks forming; the group as such is ready.
        group.mark_ready()?;
        Ok(group)
    }

    /// Records on every disk that the group holds data: from now on it is never formed anew.
    pub fn mark_ready(&mut self) -> Result<()> {
        for (disk, superblock) in self.disks.iter().zip(&mut self.superblocks) {
            if superblock.state != State::Ready {
                superblock.state = State::Ready;
                superblock.write(disk.as_ref())?;
            }
        }
        Ok(())
    }

    pub fn id(&self) -> Uuid {
        self.superblocks[0].group_id
    }

    pub fn disks(&self) -> &[Arc<dyn Disk>] {
        &self.disks
    }

    /// The layout of a new file: its first allocation unit goes to a disk chosen by the inode number.
    pub fn new_layout(&self, ino: u64) -> Layout {
        let disks = (0..self.disks.len() as u16).collect::<Vec<_>>();
        let start = (ino % disks.len() as u64) as u16;
        Layout { au_size: self.au_size, start, disks }
    }

    pub fn space(&self) -> Result<Space> {
        let mut sum = Space::default();
        for disk in &self.disks {
            let space = disk.space().context(|| format!("statvfs of cell disk {}", disk.path().display()))?;
            sum.total += space.total;
            sum.free += space.free;
            sum.available += space.available;
            sum.files += space.files;
            sum.files_free += space.files_free;
        }
        Ok(sum)
    }
}
