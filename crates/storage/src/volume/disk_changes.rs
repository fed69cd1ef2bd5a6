//! Disks that join the group and disks that leave.
//!
//! A disk that leaves is emptied by a rebalance first. New files are not striped over it; files that are striped over it
//! keep the stripe, which moves to other disks. With copies, the copy sets of the disk are emptied: the rebalance reads from
//! any of their disks, so a disk that is lost leaves in the same way, and its copies are rebuilt from the others.

use super::Volume;
use super::rebalance::{DROPPING, WANTED, home_of};
use crate::disk::Disk;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::group::Leaving;
use crate::group::mirror::DiskMode;
use crate::group::rebalance::Move;
use std::path::Path;
use std::sync::Arc;

/// Bytes that a new disk must have available beyond the reserve and an allocation unit.
const SPACE_MIN: u64 = 32 << 20;

/// Returns where a path is if it and another one are nested.
fn place_beside(path: &Path, other: &Path) -> Option<&'static str> {
    match (path.starts_with(other), other.starts_with(path)) {
        (true, false) => Some("below"),
        (false, true) => Some("above"),
        _ => None,
    }
}

impl Volume {
    /// Adds a blank disk to the group and begins a rebalance. New files are striped over the disk on return. `failure_group` is
    /// for groups with copies; without one, the disk forms its own.
    pub fn add_disk(&self, engine: Arc<dyn Disk>, failure_group: Option<String>) -> Result<()> {
        let _changes = self.rebalance.disk_changes.lock();
        self.check_not_known(engine.path(), None)?;
        self.join_disk(engine, failure_group)?;
        self.use_wanted_sets(self.group.avoided())?;
        self.rebalance.want();
        Ok(())
    }

    /// Adds a blank disk in place of another one, which is dropped, by force if it is offline. Both change in one rebalance. The
    /// new disk may have the path of an offline one, and belongs to the same failure group.
    pub fn replace_disk(&self, path: &Path, engine: Arc<dyn Disk>) -> Result<()> {
        let _changes = self.rebalance.disk_changes.lock();
        let number = self.number_for_drop(path, true)?;
        let is_offline = self.is_offline(number);
        self.check_not_known(engine.path(), Some(number).filter(|_| is_offline))?;
        let failure_group = self.group.mirror().map(|mirror| mirror.failure_group(number).to_owned());
        // Before the new disk joins: afterwards, an error would leave both in the group.
        self.check_drop(number, is_offline, Some(engine.as_ref()))?;
        let new = engine.path().display().to_string();
        self.join_disk(engine, failure_group)?;
        self.begin_drop(number, is_offline).context(|| format!("cell disk {new} joined the disk group"))?;
        self.rebalance.want();
        Ok(())
    }

    /// Adds the copy sets for all disks except those in `avoided`, and begins to use them. While one of these disks is offline,
    /// does nothing: a copy set of offline disks would keep the group from starting. The next rebalance adds them, too.
    pub(super) fn use_wanted_sets(&self, avoided: u64) -> Result<()> {
        let Some(mirror) = self.group.mirror() else { return Ok(()) };
        let is_ready = |disk: usize| avoided >> disk & 1 == 1 || mirror.member(disk).is_online();
        if (0..self.disks().len()).all(is_ready) {
            self.free_space.prepare_commit();
            self.group.add_sets(avoided, &self.group.copies().in_use())?;
        }
        Ok(())
    }

    fn is_offline(&self, number: usize) -> bool {
        self.group.mirror().is_some_and(|mirror| mirror.member(number).mode() == DiskMode::Offline)
    }

    /// Refuses a disk with the path of a disk of the group other than `replaced`, and a disk below or above one of the group.
    fn check_not_known(&self, path: &Path, replaced: Option<usize>) -> Result<()> {
        let known = self.disks().iter().enumerate().filter(|(number, _)| !self.group.is_dropped(*number));
        for (number, disk) in known {
            let (shown, other) = (path.display(), disk.path().display());
            if disk.path() == path && replaced != Some(number) {
                let message = format!(
                    "cell disk {shown} is in the disk group already; name another path, or bring the disk online with cellar group \
                     online if it is offline"
                );
                return Err(Error::new(ErrorKind::Exists, message));
            }
            if let Some(place) = place_beside(path, disk.path()) {
                let message =
                    format!("cell disk {shown} is {place} cell disk {other} of the disk group; name another path");
                return Err(Error::new(ErrorKind::Invalid, message));
            }
        }
        Ok(())
    }

    /// Makes a blank disk a member of the group. With copies, no copy set has the disk yet.
    fn join_disk(&self, engine: Arc<dyn Disk>, failure_group: Option<String>) -> Result<()> {
        let (path, number) = (engine.path().to_owned(), self.disks().len());
        self.group.check_new(engine.as_ref())?;
        self.check_space_of(engine.as_ref())?;
        let Some(mirror) = self.group.mirror() else {
            if failure_group.is_some() {
                let message = "only groups with copies have failure groups; add the disk without one";
                return Err(Error::new(ErrorKind::Invalid, message));
            }
            let superblock = self.group.prepare(engine.as_ref(), None)?;
            self.stores.lock().add(number, &engine, self.group.stripes().len())?;
            let wanted = self.commit_group_values([(WANTED.to_owned(), Some(1))]);
            let joined = wanted.and_then(|()| {
                // Before the disk is a member: a start without the other disks must know which flash log and write-back log it needs.
                let _notes = self.give_flash_log_notes_to(engine.as_ref())?;
                let _write_back_notes = self.give_write_back_notes_to(engine.as_ref())?;
                self.group.join(&engine, superblock, |disk| {
                    self.free_space.add(disk);
                    // Before files are striped over the disk: its size determines its weight.
                    self.note_space();
                })
            });
            if let Err(error) = joined {
                self.stores.lock().remove(number);
                return Err(error);
            }
            log::info!("cell disk {} joined the disk group; its rebalance begins", path.display());
            return Ok(());
        };
        let failure_group = mirror.new_failure_group(failure_group, number)?;
        let superblock = self.group.prepare(engine.as_ref(), Some(failure_group))?;
        self.commit_group_values([(WANTED.to_owned(), Some(1))])?;
        self.free_space.prepare_commit();
        self.group.join(&engine, superblock, |disk| self.free_space.add(disk))?;
        self.online_disk(engine).context(|| {
            format!(
                "cell disk {} joined the disk group, but could not be brought online; repeat with cellar group online, or drop \
                 the disk",
                path.display()
            )
        })?;
        log::info!("cell disk {} joined the disk group; its rebalance begins", path.display());
        Ok(())
    }

    /// Refuses a disk that would be full at once.
    fn check_space_of(&self, disk: &dyn Disk) -> Result<()> {
        let path = disk.path().display();
        let space = disk.space().context(|| format!("could not determine the free space of cell disk {path}"))?;
        let needed = self.options.reserve_bytes + self.options.au_size.bytes() + SPACE_MIN.min(space.total / 8);
        if space.available < needed {
            let message = format!(
                "cell disk {path} has {} MiB available, and a disk of this group needs at least {} MiB: its reserve and an \
                 allocation unit",
                space.available >> 20,
                needed.div_ceil(1 << 20)
            );
            return Err(Error::new(ErrorKind::NoSpace, message));
        }
        Ok(())
    }

    /// Continues to add disks whose joining was interrupted.
    pub(super) fn join_configured_disks(&self) -> Result<()> {
        for (disk, failure_group) in self.group.take_joining() {
            let path = disk.path().display().to_string();
            if let Err(error) = self.add_disk(disk, failure_group) {
                log::error!("cell disk {path}, whose joining was interrupted, is not used: {error}");
            }
        }
        Ok(())
    }

    /// Begins to drop a disk: a rebalance moves everything to the other disks, then the disk leaves the group. With `force`, in a
    /// group with copies, the disk is not used any more: what it stores is rebuilt from other copies.
    pub fn drop_disk(&self, path: &Path, force: bool) -> Result<()> {
        let _changes = self.rebalance.disk_changes.lock();
        let number = self.number_for_drop(path, force)?;
        self.begin_drop(number, force)?;
        self.rebalance.want();
        Ok(())
    }

    /// Begins to drop a disk by force whose repair time is over.
    pub(super) fn drop_offline_disk(&self, number: usize) -> Result<()> {
        let _changes = self.rebalance.disk_changes.lock();
        if self.is_offline(number) && !self.group.is_dropping(number) {
            self.begin_drop(number, true)?;
            self.rebalance.want();
        }
        Ok(())
    }

    /// Returns the number of a disk to drop. Of two disks with the same path, one replaces the other: by force, the offline one is
    /// meant.
    fn number_for_drop(&self, path: &Path, force: bool) -> Result<usize> {
        let is_meant = |number: &usize| !self.group.is_dropped(*number) && self.disks()[*number].path() == path;
        let offline = (0..self.disks().len()).filter(is_meant).find(|number| self.is_offline(*number));
        offline.filter(|_| force).map_or_else(|| self.disk_number(path), Ok)
    }

    /// Checks whether a disk can be dropped, after `new` has joined if there is a new disk.
    fn check_drop(&self, number: usize, force: bool, new: Option<&dyn Disk>) -> Result<()> {
        let path = self.disks()[number].path().display();
        let refused = |kind, message: String| Err(Error::new(kind, message));
        let is_offline = self.is_offline(number);
        if self.group.is_dropping(number) && (!force || is_offline) {
            return refused(
                ErrorKind::Exists,
                format!(
                    "cell disk {path} is being dropped already; cellar group status shows the progress, and cellar group undrop cancels the drop"
                ),
            );
        }
        let dropping = self.group.dropping() | 1 << number;
        let avoided = self.group.avoided() | dropping;
        let others: Vec<usize> = (0..self.disks().len()).filter(|disk| avoided >> disk & 1 == 0).collect();
        if others.is_empty() && new.is_none() {
            let message =
                format!("cell disk {path} is the last disk of the group; add another disk before dropping this one");
            return refused(ErrorKind::Invalid, message);
        }
        match self.group.mirror() {
            None if force => {
                let message = format!(
                    "cell disk {path} cannot be dropped by force: without copies no other disk has its data; drop the disk \
                     without force, or, if it is lost, form a new group and restore a backup"
                );
                return refused(ErrorKind::Invalid, message);
            }
            None => self.group.check_present(number)?,
            Some(_) if is_offline && !force => {
                let message = format!(
                    "cell disk {path} is offline; bring the disk online first, or drop it by force: then its copies are rebuilt \
                     from the other disks"
                );
                return refused(ErrorKind::Invalid, message);
            }
            Some(mirror) if force => mirror.check_copies_without(number)?,
            Some(_) => {}
        }
        let used = self.bytes_on_disks(dropping)?;
        let spaces = self.free_space.by_disk();
        let of_new = new.and_then(|disk| disk.space().ok()).map_or(0, |space| space.available);
        let available = others.iter().map(|disk| spaces[*disk].available).sum::<u64>() + of_new;
        if used > available {
            let message = format!(
                "cell disk {path} cannot be dropped: {} MiB must move, but the other disks have {} MiB available; add a disk or \
                 free space first",
                used >> 20,
                available >> 20
            );
            return refused(ErrorKind::NoSpace, message);
        }
        if let Some(mirror) = self.group.mirror() {
            let joins = new.map(|_| mirror.failure_group(number));
            self.group.check_failure_groups(avoided, joins, &self.group.copies().in_use()).context(|| {
                let fewer = match self.group.copies().is_uniform() {
                    true => "",
                    false => ", or set the redundancy of file types lower (cellar group set --redundancy)",
                };
                format!(
                    "cell disk {path} cannot be dropped; add a disk in another failure group first, or replace the disk{fewer}"
                )
            })?;
        }
        Ok(())
    }

    fn begin_drop(&self, number: usize, force: bool) -> Result<()> {
        self.check_drop(number, force, None)?;
        let path = self.disks()[number].path().display();
        let dropping = self.group.dropping() | 1 << number;
        self.use_wanted_sets(self.group.avoided() | dropping)?;
        if let Some(mirror) = self.group.mirror().filter(|_| force && !self.is_offline(number)) {
            mirror.offline(number)?;
        }
        self.commit_group_values([(DROPPING.to_owned(), Some(dropping)), (WANTED.to_owned(), Some(1))])?;
        self.group.set_dropping(dropping);
        log::info!("cell disk {path} is being dropped{}", if force { " by force" } else { "" });
        Ok(())
    }

    /// Returns the bytes that must move if disks are dropped: bit n of disk n.
    fn bytes_on_disks(&self, disks: u64) -> Result<u64> {
        let mut sum = 0;
        for number in self.used_containers() {
            let copies = self.disks_of(number).into_iter().filter(|disk| disks >> disk & 1 == 1).count() as u64;
            if copies == 0 {
                continue;
            }
            let container = self.group.placement().container(number);
            let measured: std::io::Result<u64> = container.backing_files().and_then(|files| {
                files.into_iter().map(|(number, stream)| Ok(container.measure(number, stream)?.1)).sum()
            });
            let failed = || format!("could not measure the files on cell disk {}", container.path().display());
            sum += copies * measured.context(failed)?;
        }
        Ok(sum)
    }

    /// Cancels the drop of a disk that has not left yet.
    pub fn undrop_disk(&self, path: &Path) -> Result<()> {
        let _changes = self.rebalance.disk_changes.lock();
        let is_meant = |number: &usize| self.group.is_dropping(*number) && self.disks()[*number].path() == path;
        let number = (0..self.disks().len()).find(is_meant).map_or_else(|| self.disk_number(path), Ok)?;
        if !self.group.is_dropping(number) {
            let message =
                format!("cell disk {} is not being dropped; cellar group status shows which disks are", path.display());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let dropping = self.group.dropping() & !(1 << number);
        if let Some(mirror) = self.group.mirror() {
            self.use_wanted_sets(self.group.avoided() & !(1 << number))?;
            // Otherwise a disk whose repair time is over would be dropped again at once.
            mirror.restart_offline_time(number)?;
        }
        self.commit_group_values([(DROPPING.to_owned(), Some(dropping)), (WANTED.to_owned(), Some(1))])?;
        self.group.set_dropping(dropping);
        self.rebalance.want();
        Ok(())
    }

    /// Moves what allocation units do not cover from the disks that leave, and lets empty disks leave. Returns whether no
    /// disk is being dropped any more.
    pub(super) fn empty_dropping_disks(&self) -> Result<bool> {
        let dropping = self.group.dropping();
        let mut numbers: Vec<usize> = (0..self.disks().len()).filter(|number| dropping >> number & 1 == 1).collect();
        // An offline disk first: the others have the copies of its copy sets, so they cannot leave before.
        numbers.sort_by_key(|number| !self.is_offline(*number));
        let mut result = Ok(());
        for number in numbers {
            let rest = self.rest_of(&self.containers_with(number))?;
            self.expect_moves(self.count_rest_of_dropping_disks());
            self.run(&rest)?;
            let Some(_changes) = self.rebalance.disk_changes.try_lock() else { return Ok(false) };
            if self.group.is_dropping(number)
                && let Err(error) = self.leave_if_empty(number)
            {
                result = Err(error);
            }
        }
        result.map(|()| self.group.dropping() == 0)
    }

    /// Estimates how many moves are left for disks that are being dropped after their allocation units have moved: at least
    /// one for each file. A disk that cannot be listed counts as empty; the moves themselves report the error.
    pub(super) fn count_rest_of_dropping_disks(&self) -> usize {
        let dropping = self.group.dropping();
        let is_dropping = |container: &u16| self.disks_of(*container).into_iter().any(|disk| dropping >> disk & 1 == 1);
        let mut containers = self.used_containers();
        containers.retain(is_dropping);
        // One after the other, so that a container that cannot be listed does not hide the others.
        containers.into_iter().map(|container| self.rest_of(&[container]).map_or(0, |rest| rest.len())).sum()
    }

    /// Returns the moves of the rest of containers: parts of files that occupy no space, and redo logs.
    fn rest_of(&self, containers: &[u16]) -> Result<Vec<Move>> {
        let placement = self.group.placement();
        let mut moves: Vec<Move> = Vec::new();
        for container in containers.iter().copied() {
            let others = self.group.spread(self.disks_of(container).len());
            let target = |ino: u64| others[(ino % others.len() as u64) as usize];
            let path = placement.container(container).path().display();
            let keys = placement.files_on(container).context(|| format!("could not list cell disk {path}"))?;
            moves.extend(keys.into_iter().flat_map(|key| {
                let runs = placement.runs(key).on(container).into_iter();
                let target = target(key.ino);
                runs.map(move |regions| Move { key, regions, target })
            }));
        }
        Ok(moves)
    }

    /// Returns the containers that a disk has a part of.
    fn containers_with(&self, number: usize) -> Vec<u16> {
        let mut used = self.used_containers();
        used.retain(|container| self.disks_of(*container).contains(&number));
        used
    }

    /// Checks that the disks of containers can be read, and returns whether no file is there.
    fn are_empty(&self, containers: &[u16]) -> Result<bool> {
        let placement = self.group.placement();
        let mut is_empty = true;
        for container in containers {
            let path = placement.container(*container).path().display();
            let left = placement.files_on(*container).context(|| format!("could not list cell disk {path}"))?;
            is_empty &= left.is_empty();
        }
        // An unmounted directory looks empty.
        for container in containers {
            for disk in self.disks_of(*container).into_iter().filter(|disk| self.disks()[*disk].is_accessible()) {
                self.group.check_present(disk)?;
            }
        }
        Ok(is_empty)
    }

    /// Ends the membership of a disk that is being dropped, unless files were created there meanwhile. Returns whether the
    /// disk has left.
    fn leave_if_empty(&self, number: usize) -> Result<bool> {
        let (placement, containers) = (self.group.placement(), self.containers_with(number));
        let disk = &self.disks()[number];
        let path = disk.path().display();
        if !self.are_empty(&containers)? {
            return Ok(false);
        }
        // A file that reappears after a crash would be found when the disk joins again.
        if disk.is_accessible()
            && let Err(error) = disk.sync_everything()
        {
            log::warn!("could not sync cell disk {path}, which is being dropped: {error}");
        }
        {
            let _no_creation = placement.creation.write();
            if !self.are_empty(&containers)? {
                return Ok(false);
            }
            let homes_of = |container: &u16| {
                let others = self.group.spread(self.disks_of(*container).len());
                let stripes = placement.stripes_at(*container).into_iter();
                stripes.map(move |stripe| (stripe, others[usize::from(stripe) % others.len()]))
            };
            let homes: Vec<(u16, u16)> = containers.iter().flat_map(homes_of).collect();
            // Durable first: a file that is created at the new home must be found there.
            self.commit_group_values(homes.iter().map(|(stripe, home)| (home_of(*stripe), Some(u64::from(*home)))))?;
            homes.into_iter().for_each(|(stripe, home)| placement.set_home(stripe, home));
        }
        self.free_space.prepare_commit();
        let Leaving::Done(engine) = self.group.leave(number)? else { return Ok(false) };
        self.stores.lock().remove(number);
        if let Some(engine) = engine {
            self.free_space.remove_reserve(number, engine.as_ref());
            engine.unlock();
        }
        containers.into_iter().for_each(|container| placement.retire(container));
        self.free_space.remove(number);
        self.commit_group_values([(DROPPING.to_owned(), Some(self.group.dropping()))])?;
        log::info!("cell disk {path} was dropped from the disk group");
        Ok(true)
    }
}
