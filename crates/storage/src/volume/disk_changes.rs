//! Disks that join the group and disks that leave.
//!
//! A disk that leaves is emptied by a rebalance first. New files are not striped over it; files that are striped over it
//! keep the stripe, which moves to other disks.

use super::Volume;
use super::rebalance::{DROPPING, WANTED, home_of};
use crate::disk::Disk;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::group::rebalance::Move;
use std::path::Path;
use std::sync::Arc;

impl Volume {
    /// Adds a blank disk to the group and begins a rebalance. New files are striped over the disk on return.
    pub fn add_disk(&self, engine: Arc<dyn Disk>) -> Result<()> {
        let _changes = self.rebalance.disk_changes.lock();
        let path = engine.path().to_owned();
        if self.group.mirror().is_some() {
            let message = "disks cannot be added to a group with redundancy normal or high yet";
            return Err(Error::new(ErrorKind::NotSupported, message));
        }
        let known = self.disks().iter().enumerate();
        if known.into_iter().any(|(number, disk)| disk.path() == path && !self.group.is_dropped(number)) {
            let message = format!("cell disk {} is in the disk group already", path.display());
            return Err(Error::new(ErrorKind::Exists, message));
        }
        self.group.check_new(engine.as_ref())?;
        let superblock = self.group.prepare(engine.as_ref())?;
        let number = self.disks().len();
        self.stores.lock().add(number, &engine, self.group.stripes().len())?;
        let joined = self.commit_group_values([(WANTED.to_owned(), Some(1))]).and_then(|()| {
            self.free_space.add(&engine);
            self.group.join(engine, superblock)
        });
        if let Err(error) = joined {
            self.stores.lock().remove(number);
            return Err(error);
        }
        log::info!("cell disk {} joined the disk group; its rebalance begins", path.display());
        self.rebalance.want();
        Ok(())
    }

    /// Adds the blank disks that were configured beside the group's.
    pub(super) fn join_configured_disks(&self) -> Result<()> {
        self.group.take_joining().into_iter().try_for_each(|disk| self.add_disk(disk))
    }

    /// Begins to drop a disk: a rebalance moves everything to the other disks, then the disk leaves the group.
    pub fn drop_disk(&self, path: &Path) -> Result<()> {
        let _changes = self.rebalance.disk_changes.lock();
        let refused = |kind, message: String| Err(Error::new(kind, message));
        if self.group.mirror().is_some() {
            let message = "disks cannot be dropped from a group with redundancy normal or high yet";
            return refused(ErrorKind::NotSupported, message.into());
        }
        let number = self.disk_number(path)?;
        if self.group.is_dropping(number) {
            return refused(ErrorKind::Exists, format!("cell disk {} is being dropped already", path.display()));
        }
        let dropping = self.group.dropping() | 1 << number;
        let stays = |disk: &usize| !self.group.is_dropped(*disk) && dropping >> disk & 1 == 0;
        let others: Vec<usize> = (0..self.disks().len()).filter(stays).collect();
        if others.is_empty() {
            let message = format!(
                "cell disk {} is the last disk of the group; add another disk before dropping this one",
                path.display()
            );
            return refused(ErrorKind::Invalid, message);
        }
        self.group.check_present(number)?;
        let used = self.bytes_on_disks(dropping)?;
        let spaces = self.free_space.by_disk();
        let available: u64 = others.iter().map(|disk| spaces[*disk].available).sum();
        if used > available {
            let message = format!(
                "cell disk {} cannot be dropped: {} MiB must move, but the other disks have {} MiB available; add a disk or \
                 free space first",
                path.display(),
                used >> 20,
                available >> 20
            );
            return refused(ErrorKind::NoSpace, message);
        }
        self.commit_group_values([(DROPPING.to_owned(), Some(dropping)), (WANTED.to_owned(), Some(1))])?;
        self.group.set_dropping(dropping);
        log::info!("cell disk {} is being dropped", path.display());
        self.rebalance.want();
        Ok(())
    }

    /// Returns the bytes of files on disks: bit n of disk n.
    fn bytes_on_disks(&self, disks: u64) -> Result<u64> {
        let mut sum = 0;
        for disk in self.disks().iter().enumerate().filter(|(number, _)| disks >> number & 1 == 1).map(|(_, disk)| disk)
        {
            let measured: std::io::Result<u64> = disk
                .backing_files()
                .and_then(|files| files.into_iter().map(|(number, stream)| Ok(disk.measure(number, stream)?.1)).sum());
            sum +=
                measured.context(|| format!("could not measure the files on cell disk {}", disk.path().display()))?;
        }
        Ok(sum)
    }

    /// Cancels the drop of a disk that has not left yet.
    pub fn undrop_disk(&self, path: &Path) -> Result<()> {
        let _changes = self.rebalance.disk_changes.lock();
        let number = self.disk_number(path)?;
        if !self.group.is_dropping(number) {
            let message = format!("cell disk {} is not being dropped", path.display());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let dropping = self.group.dropping() & !(1 << number);
        self.commit_group_values([(DROPPING.to_owned(), Some(dropping)), (WANTED.to_owned(), Some(1))])?;
        self.group.set_dropping(dropping);
        self.rebalance.want();
        Ok(())
    }

    /// Moves what allocation units do not cover from the disks that leave, and lets empty disks leave. Returns whether no
    /// disk is being dropped any more.
    pub(super) fn empty_dropping_disks(&self) -> Result<bool> {
        let dropping = self.group.dropping();
        for number in (0..self.disks().len()).filter(|number| dropping >> number & 1 == 1) {
            let Some(_changes) = self.rebalance.disk_changes.try_lock() else { return Ok(false) };
            self.empty_disk(number)?;
            if self.group.is_dropping(number) && !self.leave_if_empty(number)? {
                return Ok(false);
            }
        }
        Ok(self.group.dropping() == 0)
    }

    /// Moves the rest of a disk: parts of files that occupy no space, and redo logs.
    fn empty_disk(&self, number: usize) -> Result<()> {
        let (placement, container) = (self.group.placement(), number as u16);
        let path = self.disks()[number].path().display();
        let keys = placement.files_on(container).context(|| format!("could not list cell disk {path}"))?;
        let others = self.remaining_containers();
        let target = |ino: u64| others[(ino % others.len() as u64) as usize];
        let moves: Vec<Move> = keys
            .into_iter()
            .flat_map(|key| {
                let runs = placement.runs(key).on(container).into_iter();
                runs.map(move |regions| Move { key, regions, target: target(key.ino) })
            })
            .collect();
        self.run(&moves)
    }

    fn remaining_containers(&self) -> Vec<u16> {
        let stays = |container: &u16| {
            self.disks_of(*container).iter().all(|disk| !self.group.is_dropped(*disk) && !self.group.is_dropping(*disk))
        };
        (0..self.group.placement().containers().len() as u16).filter(stays).collect()
    }

    /// Ends the membership of a disk that is being dropped, unless files were created there meanwhile. Returns whether the
    /// disk has left.
    fn leave_if_empty(&self, number: usize) -> Result<bool> {
        let (placement, container) = (self.group.placement(), number as u16);
        let path = self.disks()[number].path().display();
        {
            let _no_creation = placement.creation.write();
            self.group.check_present(number)?;
            let left = placement.files_on(container).context(|| format!("could not list cell disk {path}"))?;
            if !left.is_empty() {
                return Ok(false);
            }
            // A file that reappears after a crash would be found when the disk joins again.
            if let Err(error) = self.disks()[number].sync_everything() {
                log::warn!("could not sync cell disk {path}, which is being dropped: {error}");
            }
            let others = self.remaining_containers();
            let stripes = placement.stripes_at(container);
            let homes: Vec<(u16, u16)> =
                stripes.iter().map(|stripe| (*stripe, others[usize::from(*stripe) % others.len()])).collect();
            // Durable first: a file that is created at the new home must be found there.
            self.commit_group_values(homes.iter().map(|(stripe, home)| (home_of(*stripe), Some(u64::from(*home)))))?;
            homes.into_iter().for_each(|(stripe, home)| placement.set_home(stripe, home));
        }
        self.stores.lock().remove(number);
        self.group.leave(number)?;
        placement.retire(container);
        self.free_space.remove(number);
        self.commit_group_values([(DROPPING.to_owned(), Some(self.group.dropping()))])?;
        log::info!("cell disk {path} was dropped from the disk group");
        Ok(true)
    }
}
