//! The disks of a group that a start found: which disk each of them is, and which list of disks counts.

use super::mirror::{AbsentDisk, Membership, Parts, Patience, live_sets};
use super::{GroupOptions, Redundancy, State, Superblock};
use crate::disk::Disk;
use crate::error::{Context, Error, ErrorKind, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// A disk whose joining was interrupted, with its failure group.
pub type Joining = (Arc<dyn Disk>, Option<String>);

/// The disks of a group by number.
pub struct Members {
    /// Describes the group.
    pub example: Superblock,
    pub engines: Vec<Option<Arc<dyn Disk>>>,
    pub superblocks: Vec<Option<Superblock>>,
    /// Disks without a superblock.
    pub unknown: Vec<Arc<dyn Disk>>,
    /// Disks that were to join the group, which has not recorded them.
    pub joining: Vec<Joining>,
    /// The last known path of each disk, if the group has copies.
    paths: Vec<PathBuf>,
}

impl Members {
    /// Returns the members of a group that is being formed.
    pub fn formed(disks: Vec<Arc<dyn Disk>>, superblocks: Vec<Option<Superblock>>) -> Self {
        let example = superblocks.iter().flatten().next().expect("a group has a disk").clone();
        let engines = disks.into_iter().map(Some).collect();
        Self { example, engines, superblocks, unknown: Vec::new(), joining: Vec::new(), paths: Vec::new() }
    }

    /// Finds out which disk of the group each one is.
    ///
    /// Without copies all disks are present, so the newest list of disks counts. With copies, the list counts that a disk of
    /// the chosen membership has: a disk that was absent while the disks changed may have another list.
    pub fn of(disks: &[Arc<dyn Disk>], found: &[Option<Superblock>], force: bool) -> Result<Self> {
        let newest = example_of(found);
        if newest.redundancy == Redundancy::External {
            return Self::with(newest, disks, found);
        }
        let mut candidates: Vec<&Superblock> = found.iter().flatten().collect();
        candidates.retain(|candidate| candidate.state == State::Ready || newest.state != State::Ready);
        candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.generation));
        candidates.dedup_by(|one, other| one.describes_same(other));
        let attempts = [false, true];
        for force in attempts.into_iter().take(1 + usize::from(force)) {
            for candidate in &candidates {
                let Ok(members) = Self::with(candidate, disks, found) else { continue };
                if members.are_described(force)? {
                    return Ok(members);
                }
            }
        }
        // Opening these fails, and says why.
        Self::with(newest, disks, found)
    }

    /// Returns whether a present disk of the membership that counts has the same list of disks as `example`.
    fn are_described(&self, force: bool) -> Result<bool> {
        let memberships = self.memberships();
        let sets = live_sets(&self.example.copy_sets()?, self.example.dropped);
        let Ok(chosen) = Membership::choose(&memberships, &sets, force) else { return Ok(false) };
        Ok(chosen.members().into_iter().any(|disk| {
            let is_there = memberships[disk].as_ref().is_some_and(|own| own.leads_to(chosen));
            is_there && self.superblocks[disk].as_ref().is_some_and(|own| own.describes_same(&self.example))
        }))
    }

    fn memberships(&self) -> Vec<Option<Membership>> {
        Membership::find(self.engines.iter().map(Option::as_ref), self.example.group_id)
    }

    fn with(example: &Superblock, disks: &[Arc<dyn Disk>], found: &[Option<Superblock>]) -> Result<Self> {
        let (example, count) = (example.clone(), example.disk_ids.len());
        let mut members = Self {
            engines: (0..count).map(|_| None).collect(),
            superblocks: (0..count).map(|_| None).collect(),
            unknown: Vec::new(),
            joining: Vec::new(),
            paths: Vec::new(),
            example,
        };
        for (disk, superblock) in disks.iter().zip(found) {
            members.assign(disk, superblock.as_ref())?;
        }
        if members.example.redundancy != Redundancy::External {
            let newest = members.memberships().into_iter().flatten().max_by_key(|found| found.number);
            members.paths = newest.map_or_else(Vec::new, |found| found.paths.into_iter().map(PathBuf::from).collect());
        }
        Ok(members)
    }

    fn assign(&mut self, disk: &Arc<dyn Disk>, superblock: Option<&Superblock>) -> Result<()> {
        let path = disk.path().display().to_string();
        let foreign = |message: String| Err(Error::new(ErrorKind::ForeignDisk, message));
        let Some(superblock) = superblock else {
            self.unknown.push(disk.clone());
            return Ok(());
        };
        if superblock.group_id != self.example.group_id {
            let (ours, its) = (self.example.group_id, superblock.group_id);
            return foreign(format!("{path} belongs to disk group {its}, not to {ours}; check the list of disks"));
        }
        let index = superblock.index as usize;
        let is_same = self.example.disk_ids.get(index) == superblock.disk_ids.get(index);
        if superblock.state == State::Dropped || is_same && self.example.is_dropped(index) {
            log::warn!("{path} was dropped from the disk group and is not used; remove it from the configuration");
            return Ok(());
        }
        if superblock.state == State::Forming && !is_same {
            let failure_group = superblock.failure_groups.get(index).cloned();
            self.joining.push((disk.clone(), failure_group));
            return Ok(());
        }
        if !is_same {
            return foreign(format!(
                "{path} has another identity than disk {index} of disk group {}; check the list of disks",
                superblock.group_id
            ));
        }
        if self.engines[index].is_some() {
            return foreign(format!(
                "{path} has the identity of another configured disk (disk {index}); list each disk once"
            ));
        }
        self.engines[index] = Some(disk.clone());
        self.superblocks[index] = Some(superblock.clone());
        Ok(())
    }

    /// Warns about configured blank disks that no disk of the group can be. Such a directory may be the mount point of a disk
    /// that was dropped, or is not mounted, so it never joins the group by itself. One with other content is an error.
    pub fn check_unused<'a>(&self, unused: impl Iterator<Item = &'a Arc<dyn Disk>>) -> Result<()> {
        for disk in unused {
            let (path, group) = (disk.path().display(), self.example.group_id);
            match disk.is_blank() {
                Ok(false) => check_blank(std::iter::once(disk.as_ref()), &[None])?,
                _ => log::warn!(
                    "{path} is not a disk of group {group} and is not used; add the disk with cellar group add, or remove it from \
                     the configuration"
                ),
            }
        }
        Ok(())
    }

    /// Returns the parts of a group with copies, and which disks are present. A configured directory that is empty or
    /// absent stands for a missing disk: the one that had this path, or any one.
    pub fn parts(&self, preferred_read: Option<String>, patience: Option<Patience>) -> Result<(Parts, Vec<bool>)> {
        let Superblock { group_id, failure_groups, dropped, .. } = &self.example;
        let present: Vec<bool> = self.engines.iter().map(Option::is_some).collect();
        let is_missing = |disk: &usize| !present[*disk] && !self.example.is_dropped(*disk);
        let known = |disk: usize| self.paths.get(disk).filter(|path| !path.as_os_str().is_empty());
        let mut unused: Vec<&Arc<dyn Disk>> = self.unknown.iter().collect();
        let mut paths: Vec<Option<PathBuf>> = (0..present.len()).map(|disk| known(disk).cloned()).collect();
        let unplaced = (0..present.len()).filter(is_missing).filter(|disk| {
            let found = unused.iter().position(|unused| known(*disk).is_some_and(|path| path == unused.path()));
            found.map(|at| unused.swap_remove(at)).is_none()
        });
        for disk in unplaced.collect::<Vec<_>>() {
            if let Some(unused) = unused.pop() {
                paths[disk] = Some(unused.path().to_owned());
            }
        }
        self.check_unused(unused.into_iter())?;
        let absent = |disk: usize| AbsentDisk::new(paths[disk].clone().unwrap_or_else(|| "an unknown path".into()));
        let engine =
            |(disk, engine): (usize, &Option<Arc<dyn Disk>>)| engine.clone().unwrap_or_else(|| Arc::new(absent(disk)));
        let engines = self.engines.iter().enumerate().map(engine).collect();
        let (group_id, failure_groups, dropped, sets) =
            (*group_id, failure_groups.clone(), *dropped, self.example.copy_sets()?);
        Ok((Parts { group_id, engines, failure_groups, sets, dropped, preferred_read, patience }, present))
    }
}

/// Returns the superblock that describes the group: the newest of a disk that is ready, if there is one.
pub fn example_of(found: &[Option<Superblock>]) -> &Superblock {
    let ready = newest(found.iter().flatten().filter(|superblock| superblock.state == State::Ready));
    ready.or(found.iter().flatten().next()).expect("one disk has a superblock")
}

fn newest<'a>(superblocks: impl Iterator<Item = &'a Superblock>) -> Option<&'a Superblock> {
    // The first one of equal generations.
    superblocks.min_by_key(|superblock| std::cmp::Reverse(superblock.generation))
}

/// Checks that the configuration agrees with what the group was formed with.
pub fn check_options(
    disks: &[Arc<dyn Disk>],
    found: &[Option<Superblock>],
    example: &Superblock,
    options: &GroupOptions,
) -> Result<()> {
    let refused = |message: String| Err(Error::new(ErrorKind::Invalid, message));
    if example.redundancy != options.redundancy {
        return refused(format!(
            "disk group {} has redundancy \"{}\", but \"{}\" is configured; the redundancy of a group cannot be changed, \
             so write redundancy = \"{}\"",
            example.group_id, example.redundancy, options.redundancy, example.redundancy
        ));
    }
    let configured = options.failure_groups.iter().map(Option::as_ref).chain(std::iter::repeat(None));
    for ((disk, superblock), configured) in disks.iter().zip(found).zip(configured) {
        let stored = superblock.as_ref().and_then(|found| found.failure_groups.get(usize::from(found.index)));
        if let (Some(stored), Some(configured)) = (stored, configured)
            && stored != configured
        {
            return refused(format!(
                "cell disk {} is in failure group \"{stored}\", but \"{configured}\" is configured; the failure group of a \
                 disk cannot be changed",
                disk.path().display()
            ));
        }
    }
    Ok(())
}

/// Checks that every disk without a superblock is blank.
pub fn check_blank<'a>(disks: impl Iterator<Item = &'a dyn Disk>, found: &[Option<Superblock>]) -> Result<()> {
    for (disk, superblock) in disks.zip(found) {
        let path = disk.path().display();
        if superblock.is_none() && !disk.is_blank().context(|| format!("could not read cell disk {path}"))? {
            let message = format!("{path} is neither empty nor a cell disk; name an empty directory or a blank device");
            return Err(Error::new(ErrorKind::ForeignDisk, message));
        }
    }
    Ok(())
}

/// Locks each disk and reads its superblock. A disk that cannot be read counts as one without a superblock if another
/// disk belongs to a group with copies.
pub fn lock_and_read<'a>(disks: impl Iterator<Item = &'a dyn Disk>) -> Result<Vec<Option<Superblock>>> {
    let read = |disk: &dyn Disk| {
        let path = disk.path().display();
        if !disk.lock().context(|| format!("could not lock cell disk {path}"))? {
            let message = format!("cell disk {path} is in use by another cell daemon; stop that daemon first");
            return Err(Error::new(ErrorKind::Locked, message));
        }
        Superblock::read(disk)
    };
    let results: Vec<Result<Option<Superblock>>> = disks.map(read).collect();
    let has_copies = results
        .iter()
        .any(|result| matches!(result, Ok(Some(superblock)) if superblock.redundancy != Redundancy::External));
    let tolerate = |result: Result<Option<Superblock>>| match result {
        Err(error) if has_copies && error.kind() != ErrorKind::Locked => {
            log::error!("{error}; the disk counts as missing");
            Ok(None)
        }
        result => result,
    };
    results.into_iter().map(tolerate).collect()
}
