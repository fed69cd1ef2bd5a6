//! Disks that join and leave a group with copies.
//!
//! A disk that joins is offline at first: the group knows the disk, and a resync brings the disk online. A disk that leaves goes
//! offline after its copy sets were emptied. The rules of the membership therefore apply to both: a membership with the new
//! disk, or without the old disk, is durable on all members before anything depends on the change.

use super::{AbsentDisk, CopySet, DiskMode, Intents, Member, Mirror, MirroredDisk, Patience, watched};
use crate::disk::{CountedDisk, Disk};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::group::failure_groups;
use crate::now;
use parking_lot::{Mutex, RwLock};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl MirroredDisk {
    pub(super) fn new(
        engine: Arc<dyn Disk>,
        mode: DiskMode,
        failure_group: String,
        patience: Option<Patience>,
    ) -> Arc<Self> {
        let pool = Arc::default();
        let member = Arc::new(Member::new(watched(engine, &pool, patience), mode));
        let counted = Arc::new(CountedDisk::new(member.clone()));
        Arc::new(Self { member, counted, failure_group, resync: Mutex::default(), pool })
    }
}

impl CopySet {
    pub(super) fn new(disks: Vec<u16>) -> Arc<Self> {
        Arc::new(Self { disks, lock: RwLock::new(()) })
    }
}

/// Returns the copy sets without dropped disks: bit n of disk n.
pub fn live_sets(sets: &[Vec<u16>], dropped: u64) -> Vec<Vec<u16>> {
    sets.iter().filter(|set| set.iter().all(|disk| dropped >> disk & 1 == 0)).cloned().collect()
}

impl Mirror {
    /// Makes a disk look like one of the group that is offline and lacks nothing that was written so far: it has no copy sets
    /// yet.
    pub fn prepare(&self, engine: &dyn Disk, number: usize) -> io::Result<()> {
        let mut offline = self.membership.lock().resized(number + 1).ok_or(io::ErrorKind::InvalidInput)?;
        offline.offline_since[number] = Some(now());
        Intents::store(engine, std::iter::empty())?;
        offline.write(engine, self.group_id)
    }

    /// Adds a disk, which is offline until [`Self::bring_online`]. Returns the disk.
    pub fn add_disk(&self, path: &Path, failure_group: String) -> Arc<dyn Disk> {
        // Before the membership is locked: a thread that writes intents may take a disk out of the group.
        self.intents.iter().for_each(|intents| intents.add_disk());
        let mut membership = self.membership.lock();
        let absent = Arc::new(AbsentDisk::new(path));
        let disk = MirroredDisk::new(absent, DiskMode::Offline, failure_group, self.patience);
        let counted = disk.counted.clone();
        self.disks.push(disk);
        membership.offline_since.push(Some(now()));
        membership.paths.push(path.display().to_string());
        counted
    }

    /// Returns the failure group of a new disk: as named, or one that no other disk belongs to.
    pub fn new_failure_group(&self, name: Option<String>, number: usize) -> Result<String> {
        let is_used = |name: &String| self.disks.all().iter().any(|disk| disk.failure_group == *name);
        let own = (number..).map(|number| format!("disk{number}")).find(|name| !is_used(name));
        let mut names = failure_groups::names(&[name.or(own)], 1)?;
        Ok(names.remove(0))
    }

    /// Adds a copy set, and returns its number.
    pub fn add_set(&self, disks: Vec<u16>) -> u16 {
        self.sets.push(CopySet::new(disks));
        self.set_count() - 1
    }

    /// Ends the membership of a disk whose copy sets are empty. `commit` makes durable that the disk was dropped; it is called
    /// when the disk is offline, and until it succeeds the disk's copy sets count as others do. Returns false, and changes
    /// nothing, while a resync of the disk runs.
    pub fn leave(&self, disk: usize, commit: impl FnOnce() -> Result<()>) -> Result<bool> {
        let Some(_no_resync) = self.disks.all()[disk].resync.try_lock() else { return Ok(false) };
        if self.member(disk).mode() == DiskMode::Online {
            self.offline(disk)?;
        }
        commit()?;
        {
            let _membership = self.membership.lock();
            self.dropped.fetch_or(1 << disk, Ordering::AcqRel);
        }
        if let Some(intents) = &self.intents {
            self.sets_of(disk).into_iter().for_each(|set| intents.forget_set(set));
        }
        Ok(true)
    }

    /// Begins the time again since when an offline disk is offline. Durable on return.
    pub fn restart_offline_time(&self, disk: usize) -> Result<()> {
        let mut membership = self.membership.lock();
        if membership.is_member(disk) {
            return Ok(());
        }
        let restart = |offline: &mut Vec<Option<i64>>| offline[disk] = Some(now());
        let changed = self.change_membership(&mut membership, restart, false);
        changed.context(|| "could not store the membership of the disk group".into())
    }

    /// Returns an error if a copy set would have no online disk without `disk`.
    pub fn check_copies_without(&self, disk: usize) -> Result<()> {
        let has_copy = |set: u16| {
            let others = self.set(set).iter().filter(|other| usize::from(**other) != disk);
            others.into_iter().any(|other| self.member(usize::from(*other)).mode() == DiskMode::Online)
        };
        if self.live_sets().filter(|set| self.set(*set).contains(&(disk as u16))).all(has_copy) {
            return Ok(());
        }
        let message = format!(
            "some data have their last copy on cell disk {}; bring the disks online that have other copies",
            self.member(disk).path().display()
        );
        Err(Error::new(ErrorKind::Invalid, message))
    }
}
