//! Disks that join and leave a group.
//!
//! The superblock of each disk contains the list of all disks and a generation, which each change of the list increments.
//!
//! - Without copies, a start needs all disks. A change is therefore durable when one disk has a superblock of the next generation;
//!   the next start rewrites the superblocks of the other disks. A new disk gets its superblock before the other disks name the
//!   new disk, so no start finds a group that lacks one of its disks.
//! - With copies, a change is complete when all members have a superblock of the next generation; a member that cannot store the
//!   superblock goes offline first. A start uses the list of a disk of the current membership (`members.rs`). This list is the
//!   newest complete list, or the list of a change that was begun, which the start completes.

use super::failure_groups;
use super::members::Joining;
use super::superblock::DISKS_MAX;
use super::{FileCopies, Group, State, Superblock};
use crate::disk::Disk;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::flash::FlashCache;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The list of disks, and which disks have it.
#[derive(Debug)]
pub struct Records {
    pub current: Superblock,
    /// By disk number: the disk has the current superblock, in state ready.
    is_stored: Vec<bool>,
    /// A change was interrupted: some disks may have a list that this process does not use.
    is_in_doubt: bool,
}

impl Records {
    pub fn new(current: Superblock, found: &[Option<Superblock>]) -> Self {
        let is_current = |found: &Option<Superblock>| {
            found.as_ref().is_some_and(|found| found.state == State::Ready && found.describes_same(&current))
        };
        Self { is_stored: found.iter().map(is_current).collect(), current, is_in_doubt: false }
    }

    fn check_certain(&self) -> Result<()> {
        let message = "an earlier change of the disks of the group could not be completed; restart the cell";
        if self.is_in_doubt { Err(Error::new(ErrorKind::Io, message)) } else { Ok(()) }
    }
}

impl Group {
    pub fn is_dropped(&self, disk: usize) -> bool {
        self.disks.dropped.load(Ordering::Acquire) >> disk & 1 == 1
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
        self.update_spread();
    }

    /// Sets how many copies new files have.
    pub fn set_copies(&self, copies: FileCopies) {
        *self.copies.write() = copies;
        self.update_spread();
    }

    pub fn copies(&self) -> FileCopies {
        *self.copies.read()
    }

    /// Returns the disks that new data avoid: bit n of disk n.
    pub fn avoided(&self) -> u64 {
        self.disks.dropped.load(Ordering::Acquire) | self.dropping()
    }

    /// Returns the copy set of another size that replaces a container for files with `copies` copies: if possible, with the same
    /// first disk, so that files stay spread. None if the container has that size, or there is no such copy set.
    pub fn converted(&self, container: u16, copies: usize) -> Option<u16> {
        let disks = self.disks_of(container);
        let spread = self.spread(copies);
        if disks.len() == copies || self.disks_of(spread[0]).len() != copies {
            return None;
        }
        let same = spread.iter().find(|other| self.disks_of(**other)[0] == disks[0]);
        Some(same.copied().unwrap_or(spread[usize::from(container) % spread.len()]))
    }

    /// Takes the disks whose joining was interrupted.
    pub fn take_joining(&self) -> Vec<Joining> {
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
            Some(found) if found.state == State::Dropped => Ok(()),
            Some(found) if found.group_id == self.id && self.lacks(&found) => {
                match found.state == State::Forming || self.has_dropped(&found) {
                    true => Ok(()),
                    false => refused(
                        ErrorKind::ForeignDisk,
                        format!(
                            "{path} was a disk of this group in a list of disks that is not used; if its data are not needed, empty the \
                             directory or format the device (cellar disk format)"
                        ),
                    ),
                }
            }
            Some(found) if found.group_id == self.id => {
                refused(ErrorKind::Exists, format!("cell disk {path} is in the disk group already; name another one"))
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
        let current = &self.records.lock().current;
        let (index, id) = (usize::from(found.index), found.disk_ids.get(usize::from(found.index)));
        current.disk_ids.get(index) != id || current.is_dropped(index)
    }

    /// Returns whether the group has dropped the disk of a superblock.
    fn has_dropped(&self, found: &Superblock) -> bool {
        let current = &self.records.lock().current;
        let index = usize::from(found.index);
        current.disk_ids.get(index) == found.disk_ids.get(index) && current.is_dropped(index)
    }

    /// Checks that a disk which returns is one of the group, and was not dropped.
    pub fn check_returning(&self, disk: &dyn Disk) -> Result<()> {
        match Superblock::read(disk)? {
            Some(found) if found.group_id == self.id && self.lacks(&found) => {
                let path = disk.path().display();
                let message = format!("{path} was dropped from the disk group; add the disk with cellar group add");
                Err(Error::new(ErrorKind::ForeignDisk, message))
            }
            _ => Ok(()),
        }
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
        let lost = match self.mirror {
            Some(_) => "if the disk is lost, take it offline",
            None => "a lost disk of a group without copies cannot be dropped: form a new group and restore a backup",
        };
        let message = format!(
            "cell disk {} cannot be read, so its data cannot be moved; mount or repair its device; {lost}",
            disk.path().display()
        );
        Err(Error::new(ErrorKind::Io, message))
    }

    /// Gives a disk the superblock of a member that has not joined yet, and removes what an earlier membership left.
    pub fn prepare(&self, disk: &dyn Disk, failure_group: Option<String>) -> Result<Superblock> {
        let failed = || format!("could not prepare cell disk {}", disk.path().display());
        let superblock = {
            let records = self.records.lock();
            records.check_certain()?;
            records.current.for_new_disk(failure_group)?
        };
        superblock.write(disk)?;
        for (number, stream) in disk.backing_files().context(failed)? {
            disk.remove(number, stream).context(failed)?;
        }
        if let Some(mirror) = &self.mirror {
            mirror.prepare(disk, usize::from(superblock.index)).context(failed)?;
        }
        FlashCache::disown_on(disk)?;
        disk.sync_everything().context(failed)?;
        Ok(superblock)
    }

    /// Makes a prepared disk a member, with copies one that is offline. `before_use` gets the disk when the change is durable.
    pub fn join(
        &self,
        engine: &Arc<dyn Disk>,
        superblock: Superblock,
        before_use: impl FnOnce(&Arc<dyn Disk>),
    ) -> Result<()> {
        let Some(mirror) = &self.mirror else {
            let ready = Superblock { state: State::Ready, ..superblock };
            ready.write(engine.as_ref())?;
            before_use(engine);
            {
                let mut records = self.records.lock();
                let mut is_stored = vec![false; records.is_stored.len()];
                is_stored.push(true);
                *records = Records { current: ready, is_stored, is_in_doubt: false };
            }
            self.disks.all.push(engine.clone());
            let container = self.placement.add(Arc::new(engine.clone()));
            self.stripes.push(self.stripe(container));
            self.update_spread();
            // The change is durable; a disk that fails here gets its superblock at the next start.
            if let Err(error) = self.mark_ready() {
                log::warn!("{error}; the next start repeats the write");
            }
            return Ok(());
        };
        let failure_group = superblock.failure_groups[usize::from(superblock.index)].clone();
        let mut records = self.records.lock();
        self.write_next(&mut records, &superblock)?;
        records.is_stored.push(false);
        let disk = mirror.add_disk(engine.path(), failure_group);
        before_use(&disk);
        self.disks.all.push(disk);
        Ok(())
    }

    /// With copies: checks that the disks except those in `avoided`, and one in failure group `joins`, are in enough failure
    /// groups for the given numbers of copies.
    pub fn check_failure_groups(&self, avoided: u64, joins: Option<&str>, copies: &[usize]) -> Result<()> {
        let current = &self.records.lock().current;
        let stay = current.failure_groups.iter().enumerate().filter(|(disk, _)| avoided >> disk & 1 == 0);
        let names: Vec<String> = stay.map(|(_, name)| name.clone()).chain(joins.map(str::to_owned)).collect();
        copies.iter().try_for_each(|copies| failure_groups::copy_sets(&names, *copies).map(drop))
    }

    /// With copies: makes copy sets durable for all disks except those in `avoided`, of each of the given numbers of copies, and
    /// begins to use them. These are the copy sets of the ring, and, if disks of different size need them, others.
    pub fn add_sets(&self, avoided: u64, copies: &[usize]) -> Result<()> {
        {
            // The numbers of copy sets are their places in the superblock: two threads must not add them at the same time.
            let _no_other = self.sets_changing.lock();
            self.store_sets(avoided, copies)?;
            self.use_stored_sets();
        }
        self.update_spread();
        Ok(())
    }

    fn store_sets(&self, avoided: u64, copies: &[usize]) -> Result<()> {
        let extra: Vec<Vec<u16>> = copies.iter().flat_map(|copies| self.sets_for_sizes(avoided, *copies)).collect();
        let mut records = self.records.lock();
        records.check_certain()?;
        match records.current.with_sets(avoided, copies, extra)? {
            Some(next) => self.write_next(&mut records, &next),
            None => Ok(()),
        }
    }

    fn use_stored_sets(&self) {
        let Some(mirror) = &self.mirror else { return };
        let sets = self.records.lock().current.sets.clone();
        for set in sets.into_iter().skip(usize::from(mirror.set_count())) {
            let number = mirror.add_set(set);
            let container = self.placement.add(mirror.copy_set(number));
            self.stripes.push(self.stripe(container));
        }
    }

    /// Records on every accessible disk that the group contains data and must never be formed again, and which disks it has.
    pub fn mark_ready(&self) -> Result<()> {
        let mut records = self.records.lock();
        for number in 0..self.disks().len() {
            if !records.is_stored[number] && self.disks()[number].is_accessible() && !self.is_dropped(number) {
                self.store(&mut records, number)?;
            }
        }
        Ok(())
    }

    /// Gives a disk that returns the present list of disks.
    pub fn store_superblock(&self, number: usize) -> Result<()> {
        let mut records = self.records.lock();
        let superblock = Superblock { index: number as u16, state: State::Ready, ..records.current.clone() };
        superblock.write(self.disks()[number].as_ref())?;
        records.is_stored[number] = true;
        Ok(())
    }

    /// Writes the current superblock on a disk. With copies, a disk that fails leaves the group.
    fn store(&self, records: &mut Records, number: usize) -> Result<()> {
        let stored = self.write_current(records, number);
        match (stored, &self.mirror) {
            (Err(error), Some(mirror)) if error.kind() != ErrorKind::NoSpace => {
                mirror.fail_disk(number, &std::io::Error::other(error.to_string())).map_err(|_| error)
            }
            (stored, _) => stored,
        }
    }

    fn write_current(&self, records: &mut Records, number: usize) -> Result<()> {
        let superblock = Superblock { index: number as u16, state: State::Ready, ..records.current.clone() };
        let stored = superblock.write(self.disks()[number].as_ref());
        records.is_stored[number] = stored.is_ok();
        stored
    }

    /// Lets releases that know no placement records refuse the group. Durable on return.
    pub fn note_moves(&self) -> Result<()> {
        let mut records = self.records.lock();
        if records.current.generation > 0 {
            return Ok(());
        }
        let mut next = Superblock { generation: 1, ..records.current.clone() };
        if self.mirror.is_some() {
            next.sets = next.copy_sets()?;
        }
        self.write_next(&mut records, &next)
    }

    /// Writes a superblock of the next generation on all accessible disks of the group. With copies, disks that fail leave the
    /// group when the others have the superblock; a disk that refuses, because it is full, ends the change.
    fn write_next(&self, records: &mut Records, next: &Superblock) -> Result<()> {
        records.check_certain()?;
        let former = std::mem::replace(&mut records.current, next.clone());
        let remaining =
            (0..self.disks().len()).filter(|other| !next.is_dropped(*other) && self.disks()[*other].is_accessible());
        let (mut done, mut failed) = (0, Vec::new());
        for other in remaining {
            match self.write_current(records, other) {
                Ok(()) => done += 1,
                // Durable on one disk: the change has happened.
                Err(error) if done > 0 && self.mirror.is_none() => {
                    log::warn!("{error}; the next start repeats the write");
                }
                Err(error) if self.mirror.is_none() || error.kind() == ErrorKind::NoSpace => {
                    records.current = former;
                    records.is_in_doubt = done > 0;
                    return Err(error);
                }
                Err(error) => failed.push((other, error)),
            }
        }
        for (other, error) in failed {
            let failed = self
                .mirror
                .as_ref()
                .filter(|_| done > 0)
                .map(|mirror| mirror.fail_disk(other, &std::io::Error::other(error.to_string())));
            if !matches!(failed, Some(Ok(()))) {
                records.current = former;
                records.is_in_doubt = true;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends the membership of a disk that stores nothing any more. Returns the disk, still locked, or None if it cannot be accessed.
    /// Changes nothing, and returns [`Leaving::Later`], while a resync of the disk runs.
    pub fn leave(&self, number: usize) -> Result<Leaving> {
        self.records.lock().check_certain()?;
        let mut own = None;
        let mut commit = || {
            let mut records = self.records.lock();
            let current = &records.current;
            let (generation, dropped) = (current.generation + 1, current.dropped | 1 << number);
            let sets = if self.mirror.is_some() { current.copy_sets()? } else { Vec::new() };
            let next = Superblock { generation, dropped, sets, ..current.clone() };
            self.write_next(&mut records, &next)?;
            records.is_stored[number] = false;
            own = Some(Superblock { index: number as u16, state: State::Dropped, ..next });
            Ok(())
        };
        let engine = match &self.mirror {
            None => {
                commit()?;
                Some(self.disks()[number].clone())
            }
            Some(mirror) => {
                let engine = mirror.member(number).is_online().then(|| mirror.member(number).engine());
                if !mirror.leave(number, commit)? {
                    return Ok(Leaving::Later);
                }
                engine
            }
        };
        self.disks.dropped.fetch_or(1 << number, Ordering::AcqRel);
        self.set_dropping(self.dropping() & !(1 << number));
        if let (Some(disk), Some(own)) = (&engine, own)
            && let Err(error) = own.write(disk.as_ref())
        {
            log::warn!("{error}; the disk is not a member of the group any more");
        }
        Ok(Leaving::Done(engine))
    }
}

/// The result of [`Group::leave`].
pub enum Leaving {
    Done(Option<Arc<dyn Disk>>),
    Later,
}

#[cfg(test)]
mod tests {
    use super::super::{AuSize, GroupOptions, Redundancy};
    use super::*;
    use crate::disk::DirectoryDisk;

    #[test]
    fn copy_sets_that_several_threads_add_have_the_numbers_of_the_superblock() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let disk = |number: u16| DirectoryDisk::new(folder.path().join(number.to_string())).unwrap();
            let disks = (0..8).map(|number| Arc::new(disk(number)) as Arc<dyn Disk>).collect();
            let options = GroupOptions {
                au_size: AuSize::DEFAULT,
                redundancy: Redundancy::Normal,
                file_copies: Vec::new(),
                failure_groups: Vec::new(),
                preferred_read: None,
                force_degraded: false,
                patience: None,
            };
            let group = Group::open(disks, &options).unwrap().0;
            let start = std::sync::Barrier::new(4);
            let add = |copies: usize| {
                start.wait();
                group.add_sets(0, &[copies]).unwrap();
            };
            std::thread::scope(|scope| (0..4).for_each(|number| drop(scope.spawn(move || add(2 + number % 2)))));
            let stored = group.records.lock().current.copy_sets().unwrap();
            let mirror = group.mirror().unwrap();
            let used: Vec<Vec<u16>> = (0..mirror.set_count()).map(|set| mirror.set(set).to_vec()).collect();
            assert_eq!(used, stored);
            assert_eq!(group.stripes().len(), stored.len());
        }
    }
}
