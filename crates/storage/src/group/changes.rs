//! Disks that join and leave a group.
//!
//! A change of the disks is durable when one disk has a superblock of the next generation; the others are rewritten from it
//! by the next start. A new disk gets its superblock first, so no start finds a group that lacks one of its disks.

use super::superblock::DISKS_MAX;
use super::{Group, State, Superblock, newest};
use crate::disk::Disk;
use crate::error::{Context, Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Group {
    pub fn is_dropped(&self, disk: usize) -> bool {
        self.dropped.load(Ordering::Acquire) >> disk & 1 == 1
    }

    pub fn is_dropping(&self, disk: usize) -> bool {
        self.dropping.load(Ordering::Acquire) >> disk & 1 == 1
    }

    /// Returns the disks that are being dropped: bit n of disk n.
    pub fn dropping(&self) -> u64 {
        self.dropping.load(Ordering::Acquire)
    }

    /// Sets which disks are being dropped. New files are not striped over them.
    pub fn set_dropping(&self, disks: u64) {
        self.dropping.store(disks, Ordering::Release);
    }

    /// Takes the blank disks that were configured beside the group's.
    pub fn take_joining(&self) -> Vec<Arc<dyn Disk>> {
        std::mem::take(&mut *self.joining.lock())
    }

    /// Locks a disk that is to join the group, and checks that nothing on it can be lost.
    pub fn check_new(&self, disk: &dyn Disk) -> Result<()> {
        let path = disk.path().display();
        let refused = |kind, message: String| Err(Error::new(kind, message));
        if !disk.lock().context(|| format!("could not lock cell disk {path}"))? {
            let message = format!("cell disk {path} is in use by a cell daemon, of this group or another one");
            return refused(ErrorKind::Locked, message);
        }
        if self.disks().len() == DISKS_MAX {
            let message = format!("a disk group has at most {DISKS_MAX} disks, dropped ones included");
            return refused(ErrorKind::Invalid, message);
        }
        match Superblock::read(disk)? {
            None if disk.is_blank().context(|| format!("could not read cell disk {path}"))? => Ok(()),
            None => {
                let message =
                    format!("{path} is neither empty nor a cell disk; name an empty directory or a blank device");
                refused(ErrorKind::ForeignDisk, message)
            }
            // Its joining was interrupted, or it was dropped: nothing on it is needed.
            Some(found) if found.group_id == self.id && self.lacks(&found) => Ok(()),
            Some(found) if found.state == State::Dropped => Ok(()),
            Some(found) if found.group_id == self.id => {
                refused(ErrorKind::Exists, format!("cell disk {path} is in the disk group already"))
            }
            Some(found) => refused(
                ErrorKind::ForeignDisk,
                format!(
                    "{path} belongs to disk group {}; if its data are not needed, empty the directory or format the device \
                     (cellar disk format)",
                    found.group_id
                ),
            ),
        }
    }

    /// Returns whether the group does not have the disk of a superblock.
    fn lacks(&self, found: &Superblock) -> bool {
        let superblocks = self.superblocks.lock();
        let newest = newest(superblocks.iter().flatten()).expect("a group has a disk");
        let (index, id) = (usize::from(found.index), found.disk_ids.get(usize::from(found.index)));
        newest.disk_ids.get(index) != id || newest.is_dropped(index)
    }

    /// Checks that a disk can be read: an unmounted directory looks empty.
    pub fn check_present(&self, number: usize) -> Result<()> {
        let disk = self.disks()[number].as_ref();
        let is_own = |found: &Superblock| found.group_id == self.id && usize::from(found.index) == number;
        if let Ok(Some(found)) = Superblock::read(disk)
            && is_own(&found)
        {
            return Ok(());
        }
        let message = format!(
            "cell disk {} cannot be read, so its data cannot be moved; mount or repair its device; a lost disk of a group without \
             copies cannot be dropped: form a new group and restore a backup",
            disk.path().display()
        );
        Err(Error::new(ErrorKind::Io, message))
    }

    /// Gives a disk the superblock of a member that has not joined yet. Removes what an earlier membership left.
    pub fn prepare(&self, disk: &dyn Disk) -> Result<Superblock> {
        let failed = || format!("could not prepare cell disk {}", disk.path().display());
        let superblock = {
            let superblocks = self.superblocks.lock();
            newest(superblocks.iter().flatten()).expect("a group has a disk").for_new_disk(None)?
        };
        superblock.write(disk)?;
        for (number, stream) in disk.backing_files().context(failed)? {
            disk.remove(number, stream).context(failed)?;
        }
        disk.sync_everything().context(failed)?;
        Ok(superblock)
    }

    /// Makes a prepared disk a member.
    pub fn join(&self, disk: Arc<dyn Disk>, superblock: Superblock) -> Result<()> {
        let ready = Superblock { state: State::Ready, ..superblock };
        ready.write(disk.as_ref())?;
        self.superblocks.lock().push(Some(ready));
        self.disks.push(disk.clone());
        let container = self.placement.add(disk);
        self.stripes.push(self.placement.stripe(container));
        // The change is durable; a disk that fails here gets its superblock at the next start.
        if let Err(error) = self.mark_ready() {
            log::warn!("{error}; the next start repeats the write");
        }
        Ok(())
    }

    /// Lets releases that know no placement records refuse the group. Durable on return.
    pub fn note_moves(&self) -> Result<()> {
        let mut superblocks = self.superblocks.lock();
        let mut next = newest(superblocks.iter().flatten()).expect("a group has a disk").clone();
        if next.generation > 0 {
            return Ok(());
        }
        next.generation = 1;
        self.write_next(&mut superblocks, &next)
    }

    /// Writes a superblock of the next generation on all disks of the group.
    fn write_next(&self, superblocks: &mut [Option<Superblock>], next: &Superblock) -> Result<()> {
        let remaining = (0..superblocks.len()).filter(|other| !next.is_dropped(*other));
        for (done, other) in remaining.enumerate() {
            let superblock = Superblock { index: other as u16, state: State::Ready, ..next.clone() };
            match superblock.write(self.disks()[other].as_ref()) {
                // Durable on one disk: the change has happened.
                Err(error) if done > 0 => log::warn!("{error}; the next start repeats the write"),
                written => written?,
            }
            superblocks[other] = Some(superblock);
        }
        Ok(())
    }

    /// Ends the membership of a disk that stores nothing any more.
    pub fn leave(&self, number: usize) -> Result<()> {
        let disk = &self.disks()[number];
        let own = {
            let mut superblocks = self.superblocks.lock();
            let mut next = newest(superblocks.iter().flatten()).expect("a group has a disk").clone();
            next.generation += 1;
            next.dropped |= 1 << number;
            self.write_next(&mut superblocks, &next)?;
            self.dropped.fetch_or(1 << number, Ordering::AcqRel);
            self.dropping.fetch_and(!(1 << number), Ordering::AcqRel);
            superblocks[number] = None;
            Superblock { index: number as u16, state: State::Dropped, ..next }
        };
        if let Err(error) = own.write(disk.as_ref()) {
            log::warn!("{error}; the disk is not a member of the group any more");
        }
        disk.unlock();
        Ok(())
    }
}
