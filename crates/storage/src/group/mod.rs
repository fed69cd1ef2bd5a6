//! The disk group: several cell disks used as one. It determines how the allocation units of a file are striped over
//! them.
//!
//! Invariants: while a [`Group`] lives, all disks of the group are present and locked by this process; a byte of a file
//! is stored at the same offset in exactly one disk's backing file (external redundancy). The group knows neither names
//! nor caching.

mod stripe_layout;
mod superblock;

pub use stripe_layout::{AuSize, Piece, StripeLayout};
pub use superblock::{Redundancy, State, Superblock, Uuid};

use crate::disk::Disk;
use crate::error::{Context, Error, ErrorKind, Result};
use std::sync::Arc;

#[derive(Debug)]
pub struct Group {
    disks: Vec<Arc<dyn Disk>>,
    superblocks: Vec<Superblock>,
    /// Allocation-unit size of new files. A file keeps the size that it was created with.
    au_size: AuSize,
}

impl Group {
    /// Locks the disks, then opens the group on them, or forms a new group if all are blank. The order of the disks
    /// does not matter. Returns also whether the group is new: then call [`Group::mark_ready`] once its metadata exist.
    pub fn open(disks: Vec<Arc<dyn Disk>>, au_size: AuSize, redundancy: Redundancy) -> Result<(Self, bool)> {
        if redundancy != Redundancy::External {
            let message = format!("redundancy \"{redundancy}\" is not supported yet; use \"external\"");
            return Err(Error::new(ErrorKind::NotSupported, message));
        }
        if disks.is_empty() || disks.len() > superblock::DISKS_MAX {
            let message =
                format!("a disk group has 1 to {} disks, but {} are configured", superblock::DISKS_MAX, disks.len());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let found = lock_and_read(disks.iter().map(AsRef::as_ref))?;
        if found.iter().flatten().all(|superblock| superblock.state == State::Forming) {
            Self::form(disks, &found, au_size)
        } else {
            let mut group = Self::assemble(disks, found, au_size)?;
            // A crash in `mark_ready` leaves some disks in state forming although the group is ready.
            group.mark_ready()?;
            Ok((group, false))
        }
    }

    /// Locks the disks and opens the group on them. Writes nothing. A group without data is an error.
    pub fn open_existing(disks: Vec<Arc<dyn Disk>>) -> Result<Self> {
        let found = lock_and_read(disks.iter().map(AsRef::as_ref))?;
        if !found.iter().flatten().any(|superblock| superblock.state == State::Ready) {
            let message = "no disk belongs to a disk group that contains data; check the list of disks";
            return Err(Error::new(ErrorKind::ForeignDisk, message));
        }
        Self::assemble(disks, found, AuSize::DEFAULT)
    }

    /// Locks the disks and returns whether [`Group::open`] would form a new group on them. Writes nothing.
    pub fn would_form<'a>(disks: impl Iterator<Item = &'a dyn Disk> + Clone) -> Result<bool> {
        let found = lock_and_read(disks.clone())?;
        let is_new = found.iter().flatten().all(|superblock| superblock.state == State::Forming);
        if is_new {
            check_blank(disks, &found)?;
        }
        Ok(is_new)
    }

    fn form(disks: Vec<Arc<dyn Disk>>, found: &[Option<Superblock>], au_size: AuSize) -> Result<(Self, bool)> {
        check_blank(disks.iter().map(AsRef::as_ref), found)?;
        let superblocks = Superblock::for_new_group(disks.len(), au_size)?;
        for (disk, superblock) in disks.iter().zip(&superblocks) {
            superblock.write(disk.as_ref())?;
        }
        Ok((Self { disks, superblocks, au_size }, true))
    }

    fn assemble(disks: Vec<Arc<dyn Disk>>, found: Vec<Option<Superblock>>, au_size: AuSize) -> Result<Self> {
        let example = found.iter().flatten().next().expect("one disk has a superblock").clone();
        let count = example.disk_ids.len();
        let mut members: Vec<Option<(Arc<dyn Disk>, Superblock)>> = (0..count).map(|_| None).collect();
        for (disk, superblock) in disks.into_iter().zip(found) {
            let path = disk.path().display().to_string();
            let foreign = |message: String| Err(Error::new(ErrorKind::ForeignDisk, message));
            let Some(superblock) = superblock else {
                return foreign(format!(
                    "{path} is not a disk of group {}: it has no superblock; adding a disk to a group is not \
                     supported, so remove it from the configuration",
                    example.group_id
                ));
            };
            if superblock.group_id != example.group_id {
                let (ours, its) = (example.group_id, superblock.group_id);
                return foreign(format!("{path} belongs to disk group {its}, not to {ours}; check the list of disks"));
            }
            let index = superblock.index as usize;
            if members[index].is_some() {
                return foreign(format!(
                    "{path} has the identity of another configured disk (disk {index}); list each disk once"
                ));
            }
            members[index] = Some((disk, superblock));
        }
        let missing: Vec<String> = (0..count)
            .filter(|index| members[*index].is_none())
            .map(|index| format!("disk {index} ({})", example.disk_ids[index]))
            .collect();
        if !missing.is_empty() {
            let message = format!(
                "disk group {} has {count} disks, but {} is not among the configured ones; add its directory or device",
                example.group_id,
                missing.join(", ")
            );
            return Err(Error::new(ErrorKind::ForeignDisk, message));
        }
        let (disks, superblocks): (Vec<_>, Vec<_>) = members.into_iter().flatten().unzip();
        Ok(Self { disks, superblocks, au_size })
    }

    /// Records on every disk that the group contains data and must never be formed again.
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

    /// Returns the layout of a new file. The inode number selects the disk of its first allocation unit.
    pub fn new_layout(&self, ino: u64) -> StripeLayout {
        let disks = (0..self.disks.len() as u16).collect::<Vec<_>>();
        let start = (ino % disks.len() as u64) as u16;
        StripeLayout { au_size: self.au_size, start, disks }
    }
}

/// Checks that every disk without a superblock is blank.
fn check_blank<'a>(disks: impl Iterator<Item = &'a dyn Disk>, found: &[Option<Superblock>]) -> Result<()> {
    for (disk, superblock) in disks.zip(found) {
        let path = disk.path().display();
        if superblock.is_none() && !disk.is_blank().context(|| format!("could not read cell disk {path}"))? {
            let message = format!("{path} is neither empty nor a cell disk; name an empty directory or a blank device");
            return Err(Error::new(ErrorKind::ForeignDisk, message));
        }
    }
    Ok(())
}

/// Locks each disk and reads its superblock.
fn lock_and_read<'a>(disks: impl Iterator<Item = &'a dyn Disk>) -> Result<Vec<Option<Superblock>>> {
    let read = |disk: &dyn Disk| {
        let path = disk.path().display();
        if !disk.lock().context(|| format!("could not lock cell disk {path}"))? {
            let message = format!("cell disk {path} is in use by another cell daemon; stop that daemon first");
            return Err(Error::new(ErrorKind::Locked, message));
        }
        Superblock::read(disk)
    };
    disks.map(read).collect()
}
