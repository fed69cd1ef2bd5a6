//! Copies: a group with redundancy normal or high stores each allocation unit on two or three disks.
//!
//! A *copy set* is a disk with its partners (`../failure_groups.rs`). A [`MirrorDisk`] makes a copy set look like one
//! disk: the code above stripes files over copy sets as over disks, and knows no copies.
//!
//! Invariants:
//! - A change returns only after every online disk of the copy set has it. A disk that fails a change leaves the group
//!   first: the membership without the disk is durable on all others ([`Membership`]).
//! - Before any copy changes, the region's intent is durable on the disks of the copy set ([`Intents`]). After a crash the
//!   copies of these regions are made equal before anything reads them.
//! - Reads use online disks only. A disk that returns gets what changed meanwhile before it is online (`resync.rs`).

mod changes;
mod intents;
mod member;
mod member_file;
mod membership;
mod mirror_disk;
mod race;
mod repair;
mod resync;

pub use changes::live_sets;
pub use member::{AbsentDisk, DiskMode, Member};
pub use membership::Membership;
pub use mirror_disk::MirrorDisk;
pub use race::Patience;
pub use resync::{Copied, DamageCheck, Keep, Occasion};

use super::superblock::{Superblock, Uuid};
use crate::disk::pool::Pool;
use crate::disk::{Disk, FileStore, WatchedDisk, on_each};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::growing::Growing;
use crate::now;

use intents::{ChangeGuard, FileKey, Intents, LogDisk};
use parking_lot::{Mutex, RwLock};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Events of a group since it was opened.
#[derive(Debug, Default)]
pub struct Events {
    /// Reads that another copy answered because a disk failed the read.
    pub reads_from_other_copy: AtomicU64,
    /// Reads that went to another copy, too, because a disk was slow.
    pub reads_past_cap: AtomicU64,
    /// Ranges that were damaged or unreadable on a disk and were rewritten from another copy.
    pub repairs: AtomicU64,
    /// Bytes read from copies, and written to copies, to make them equal.
    pub resync_read_bytes: AtomicU64,
    pub resync_written_bytes: AtomicU64,
}

/// A disk of the group.
#[derive(Debug)]
struct MirroredDisk {
    member: Arc<Member>,
    /// The member, with counters.
    counted: Arc<dyn Disk>,
    failure_group: String,
    /// Held during a resync of the disk.
    resync: Mutex<()>,
    /// The threads of the disk; used with patience.
    pool: Arc<Pool>,
}

/// The disks that store the same allocation units.
#[derive(Debug)]
struct CopySet {
    /// Reads try the first one first.
    disks: Vec<u16>,
    /// Changes hold the lock shared; a copy between disks holds it exclusively.
    lock: RwLock<()>,
}

#[derive(Debug)]
pub struct Mirror {
    group_id: Uuid,
    /// In the order of disk numbers, also dropped ones.
    disks: Growing<Arc<MirroredDisk>>,
    /// In the order of their numbers. A copy set with a dropped disk stores nothing.
    sets: Growing<Arc<CopySet>>,
    /// Bit n is set if disk n was dropped: the disk never returns. Changes under the lock of `membership`.
    dropped: AtomicU64,
    /// The failure group whose disks are read if possible.
    preferred_read: Option<String>,
    membership: Mutex<Membership>,
    /// The volume stops, and resyncs end.
    is_stopping: AtomicBool,
    /// Disks that were left out by force when the group was opened. They may have changes that no member knows.
    forced_out: Vec<u16>,
    /// None if the group waits for its disks as long as they take.
    patience: Option<Patience>,
    /// None for a group that is only inspected: then writes stay in memory.
    intents: Option<Intents>,
    pub events: Events,
}

/// Returns whether an error says that the disk refuses a request although it works, or that the process lacks resources.
fn is_refusal(error: &io::Error) -> bool {
    const REFUSALS: [i32; 10] = [
        libc::ENOSPC,
        libc::EDQUOT,
        libc::EFBIG,
        libc::EINVAL,
        libc::EOPNOTSUPP,
        libc::EMFILE,
        libc::ENFILE,
        libc::ENOMEM,
        libc::EINTR,
        libc::EAGAIN,
    ];
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error().is_some_and(|errno| REFUSALS.contains(&errno))
}

/// Returns the engine, with a time limit for its operations if the group has one. The limit does not include the time in a queue
/// of the cell.
fn watched(engine: Arc<dyn Disk>, pool: &Arc<Pool>, patience: Option<Patience>) -> Arc<dyn Disk> {
    let Some(patience) = patience.filter(|_| !engine.is_watched()) else { return engine };
    let watch = |disk| Arc::new(WatchedDisk::new(disk, pool.clone(), patience.timeout)) as Arc<dyn Disk>;
    engine.wrapped_inside(&watch).unwrap_or_else(|| watch(engine))
}

/// By how much the number of the membership increases when disks are left out by force.
const FORCED_STEP: u64 = 1 << 20;

/// Where the members of a group come from.
pub struct Parts {
    pub group_id: Uuid,
    /// In the order of disk numbers; [`AbsentDisk`]s for the missing ones.
    pub engines: Vec<Arc<dyn Disk>>,
    pub failure_groups: Vec<String>,
    pub sets: Vec<Vec<u16>>,
    /// Bit n is set if disk n was dropped.
    pub dropped: u64,
    pub preferred_read: Option<String>,
    pub patience: Option<Patience>,
}

impl Mirror {
    /// Returns the mirror of a group that is being formed, and stores its membership and an empty record of intents.
    pub fn form(parts: Parts) -> Result<Arc<Self>> {
        let offline_since = vec![None; parts.engines.len()];
        let mirror =
            Self::assemble(parts, Membership { number: 1, offline_since, paths: Vec::new() }, Vec::new(), true);
        for disk in mirror.disks() {
            let failed = || format!("could not write to cell disk {}", disk.path().display());
            Intents::store(disk.as_ref(), std::iter::empty()).context(failed)?;
            mirror.membership.lock().write(disk.as_ref(), mirror.group_id).context(failed)?;
        }
        Ok(mirror)
    }

    /// Opens the mirror of an existing group: decides which disks are members and makes that durable. `present` tells
    /// which engines are disks of the group. Afterwards, [`Self::restore_intents`] must run before anything reads.
    pub fn open(parts: Parts, present: &[bool], force: bool) -> Result<Arc<Self>> {
        let found = Self::find(&parts, present)?;
        let chosen = Membership::choose(&found, &live_sets(&parts.sets, parts.dropped), force)?;
        let number = found.iter().flatten().map(|found| found.number).max().unwrap_or(0);
        let is_there = |disk: usize| found[disk].as_ref().is_some_and(|own| own.leads_to(chosen));
        let lost: Vec<usize> = chosen.members().into_iter().filter(|disk| !is_there(*disk)).collect();
        let is_majority = 2 * lost.len() < chosen.members().len();
        // A disk that was left out by force may have stored memberships since.
        let number = if is_majority { number } else { number + FORCED_STEP };
        let forced_out = if is_majority { Vec::new() } else { lost.iter().map(|disk| *disk as u16).collect() };
        let mirror = Self::assemble(parts, Membership { number, ..chosen.clone() }, forced_out, true);
        for disk in &lost {
            mirror.member(*disk).set_mode(DiskMode::Offline);
        }
        let is_lost = |disk: &usize| mirror.member(*disk).mode() == DiskMode::Offline && !mirror.is_dropped(*disk);
        for disk in (0..present.len()).filter(is_lost) {
            let path = mirror.member(disk).path().display();
            let what = if present[disk] { "lacks changes of the other disks" } else { "is missing" };
            log::error!("cell disk {path} {what}; the disk group is degraded");
        }
        // Every member stores that it is one, so that an older membership never competes.
        let change = |offline: &mut Vec<Option<i64>>| lost.iter().for_each(|disk| offline[*disk] = Some(now()));
        let changed = mirror.change_membership(&mut mirror.membership.lock(), change, force);
        changed.context(|| "could not store the membership of the disk group".into())?;
        Ok(mirror)
    }

    /// Like [`Self::open`], for an inspection that changes nothing.
    pub fn open_read_only(parts: Parts, present: &[bool], force: bool) -> Result<Arc<Self>> {
        let found = Self::find(&parts, present)?;
        let chosen = Membership::choose(&found, &live_sets(&parts.sets, parts.dropped), force)?.clone();
        let since = |disk: usize| chosen.offline_since[disk].or((!present[disk]).then(now));
        let offline_since = (0..parts.engines.len()).map(since).collect();
        Ok(Self::assemble(parts, Membership { offline_since, ..chosen }, Vec::new(), false))
    }

    fn find(parts: &Parts, present: &[bool]) -> Result<Vec<Option<Membership>>> {
        let engines = parts.engines.iter().zip(present).map(|(engine, is_present)| is_present.then_some(engine));
        Ok(Membership::find(engines, parts.group_id))
    }

    fn assemble(parts: Parts, mut membership: Membership, forced_out: Vec<u16>, is_changed: bool) -> Arc<Self> {
        let Parts { group_id, engines, failure_groups, sets, dropped, preferred_read, patience } = parts;
        let count = engines.len();
        membership.paths = engines.iter().map(|disk| disk.path().display().to_string()).collect();
        let mode = |disk: usize| if membership.is_member(disk) { DiskMode::Online } else { DiskMode::Offline };
        let disks = engines.into_iter().zip(failure_groups).enumerate();
        let disks = disks.map(|(disk, (engine, group))| MirroredDisk::new(engine, mode(disk), group, patience));
        Arc::new(Self {
            group_id,
            disks: Growing::new(disks.collect()),
            sets: Growing::new(sets.into_iter().map(CopySet::new).collect()),
            dropped: AtomicU64::new(dropped),
            preferred_read,
            forced_out,
            membership: Mutex::new(membership),
            is_stopping: AtomicBool::new(false),
            patience,
            intents: is_changed.then(|| Intents::new(count)),
            events: Events::default(),
        })
    }

    /// Returns the disks in the order of their numbers, also dropped ones.
    pub fn disks(&self) -> impl ExactSizeIterator<Item = &Arc<dyn Disk>> {
        self.disks.all().iter().map(|disk| &disk.counted)
    }

    fn disk(&self, disk: usize) -> &Arc<dyn Disk> {
        &self.disks.all()[disk].counted
    }

    pub fn member(&self, disk: usize) -> &Arc<Member> {
        &self.disks.all()[disk].member
    }

    /// Returns the disks of a copy set.
    pub fn set(&self, set: u16) -> &[u16] {
        &self.sets.all()[usize::from(set)].disks
    }

    pub fn set_count(&self) -> u16 {
        self.sets.all().len() as u16
    }

    fn lock_of(&self, set: u16) -> &RwLock<()> {
        &self.sets.all()[usize::from(set)].lock
    }

    /// Returns the copy sets of a disk.
    fn sets_of(&self, disk: usize) -> Vec<u16> {
        (0..self.set_count()).filter(|set| self.set(*set).contains(&(disk as u16))).collect()
    }

    pub fn is_dropped(&self, disk: usize) -> bool {
        self.dropped.load(Ordering::Acquire) >> disk & 1 == 1
    }

    /// Returns whether a copy set may store files: none of its disks was dropped.
    fn is_live(&self, set: u16) -> bool {
        !self.set(set).iter().any(|disk| self.is_dropped(usize::from(*disk)))
    }

    fn live_sets(&self) -> impl Iterator<Item = u16> + '_ {
        (0..self.set_count()).filter(|set| self.is_live(*set))
    }

    pub fn failure_group(&self, disk: usize) -> &str {
        &self.disks.all()[disk].failure_group
    }

    pub fn membership(&self) -> Membership {
        self.membership.lock().clone()
    }

    /// Returns the number of regions whose copies may differ.
    pub fn intent_count(&self) -> usize {
        self.intents.as_ref().map_or(0, Intents::len)
    }

    /// Returns one disk per copy set, for the code that stripes files.
    pub fn copy_sets(self: &Arc<Self>) -> Vec<Arc<dyn FileStore>> {
        (0..self.set_count()).map(|set| self.copy_set(set)).collect()
    }

    pub fn copy_set(self: &Arc<Self>, set: u16) -> Arc<dyn FileStore> {
        Arc::new(MirrorDisk::new(self.clone(), set))
    }

    /// Takes a disk that failed out of the group. Durable on return: a start without the other disks does not use the
    /// failed disk's copies. Returns `error` if the group cannot continue without the disk.
    pub fn fail_disk(&self, disk: usize, error: &io::Error) -> io::Result<()> {
        let path = self.member(disk).path().display();
        let mut membership = self.membership.lock();
        match self.member(disk).mode() {
            DiskMode::Offline => return Ok(()),
            DiskMode::Syncing => {
                self.member(disk).leave();
                log::error!("cell disk {path} failed during its resync: {error}; the disk is offline again");
                return Ok(());
            }
            DiskMode::Online => {}
        }
        let change = |offline: &mut Vec<Option<i64>>| {
            offline[disk].get_or_insert_with(now);
        };
        let changed = self.change_membership(&mut membership, change, false);
        match changed {
            Ok(()) => {
                log::error!(
                    "cell disk {path} failed: {error}; the disk is offline and its disk group is degraded; repair the \
                     disk, then run: cellar group online --config FILE {path}"
                );
                Ok(())
            }
            Err(cause) => {
                log::error!("cell disk {path} failed: {error}; the disk group cannot continue without it: {cause}");
                Err(io::Error::new(error.kind(), error.to_string()))
            }
        }
    }

    /// Changes which disks are offline, and makes the new membership durable on all its members. A member that cannot
    /// store the membership is taken out, too. Unless `force`, at least half of the former members must remain.
    fn change_membership(
        &self,
        current: &mut Membership,
        change: impl Fn(&mut Vec<Option<i64>>),
        force: bool,
    ) -> io::Result<()> {
        let (mut next, mut attempted) = (current.clone(), vec![current.members()]);
        change(&mut next.offline_since);
        loop {
            // Each attempt may be stored on some disks, so it has a number that no other attempt has, and half of its members
            // must be among those of the next one.
            next.number += 1;
            let after = next.members();
            let is_followed =
                |before: &Vec<usize>| 2 * before.iter().filter(|disk| after.contains(disk)).count() >= before.len();
            let is_complete = |set: u16| self.set(set).iter().any(|disk| after.contains(&usize::from(*disk)));
            if !force && !attempted.iter().all(is_followed) || !self.live_sets().all(is_complete) {
                current.number = next.number;
                return Err(io::Error::other("too many of its disks are lost"));
            }
            // A disk that joins is not accessible through its member yet. It gets the membership last: with it, and without the
            // others, it could open the group.
            let write = |disk: &usize| next.write(self.member(*disk).engine().as_ref(), self.group_id);
            let (former, joining): (Vec<usize>, Vec<usize>) = after.iter().partition(|disk| current.is_member(**disk));
            let mut failed = Vec::new();
            for disks in [former, joining].iter().filter(|disks| !disks.is_empty()) {
                if failed.is_empty() {
                    let written = disks.iter().zip(on_each(disks, write));
                    failed.extend(written.filter_map(|(disk, written)| Some((*disk, written.err()?))));
                }
            }
            if failed.is_empty() {
                break;
            }
            for (disk, error) in failed {
                log::error!("cell disk {} failed: {error}", self.member(disk).path().display());
                next.offline_since[disk] = Some(now());
            }
            attempted.push(after);
        }
        for disk in 0..next.offline_since.len() {
            let member = self.member(disk);
            match (next.is_member(disk), member.mode()) {
                (true, DiskMode::Syncing) => member.set_mode(DiskMode::Online),
                (false, DiskMode::Online) => member.leave(),
                _ => {}
            }
        }
        *current = next;
        Ok(())
    }

    /// Takes a disk offline at the operator's request.
    pub fn offline(&self, disk: usize) -> Result<()> {
        let path = self.member(disk).path().display();
        let mut membership = self.membership.lock();
        if self.member(disk).mode() != DiskMode::Online {
            let message = format!("cell disk {path} is not online; cellar group status shows its state");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let change = |offline: &mut Vec<Option<i64>>| {
            offline[disk].get_or_insert_with(now);
        };
        self.change_membership(&mut membership, change, false)
            .context(|| format!("could not take cell disk {path} offline"))
    }

    /// Returns whether the disk is still the member that it should be: its superblock can be read.
    fn probe(&self, disk: usize) -> io::Result<()> {
        let engine = self.member(disk).engine();
        match Superblock::read(engine.as_ref()) {
            Ok(Some(superblock)) if superblock.group_id == self.group_id && usize::from(superblock.index) == disk => {
                Ok(())
            }
            Ok(_) => Err(io::Error::new(io::ErrorKind::NotFound, "the superblock is missing or another disk's")),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Returns the accessible disks, for writes to their records of intents.
    fn log_disks(&self) -> Vec<LogDisk<'_>> {
        let of = |number: usize| LogDisk {
            number,
            disk: self.disk(number).as_ref(),
            epoch: self.member(number).epoch(),
            sets: self.sets_of(number),
        };
        (0..self.disks().len()).filter(|disk| self.disk(*disk).is_accessible()).map(of).collect()
    }

    /// Begins a change of regions of a file, after their intents are durable. None for a group that is only inspected.
    fn begin(&self, key: FileKey, regions: Range<u32>, is_whole: bool) -> io::Result<Option<ChangeGuard<'_>>> {
        let Some(intents) = &self.intents else { return Ok(None) };
        loop {
            if let Some(guard) = intents.begin(key, regions.clone(), is_whole) {
                return Ok(Some(guard));
            }
            intents.announce(key, &regions, is_whole);
            intents.write_pending(|| self.log_disks(), |disk, error| self.fail_disk(disk, error))?;
        }
    }

    /// Removes intents of regions that are equal on all copies and that were not written for `idle`.
    pub fn trim_intents(&self, idle: Duration) {
        self.trim(idle, false);
    }

    fn trim(&self, idle: Duration, always: bool) {
        if let Err(error) = self.try_trim(idle, always) {
            log::warn!("could not shorten the record of write intents: {error}");
        }
    }

    fn try_trim(&self, idle: Duration, always: bool) -> io::Result<()> {
        let Some(intents) = &self.intents else { return Ok(()) };
        let is_online = |disk: &u16| self.member(usize::from(*disk)).mode() == DiskMode::Online;
        let is_complete = |set: u16| !self.is_live(set) || self.set(set).iter().all(is_online);
        let fail = |disk: usize, error: &io::Error| self.fail_disk(disk, error);
        intents.trim(|| self.log_disks(), is_complete, idle, always, fail)
    }

    /// Makes all copies durable and empties the record of intents, except of regions that an offline disk lacks. Nothing
    /// may change files meanwhile.
    pub fn close(&self) {
        let Some(intents) = &self.intents else { return };
        let accessible: Vec<_> = self.disks().filter(|disk| disk.is_accessible()).collect();
        let synced: io::Result<()> = on_each(&accessible, |disk| disk.sync_everything()).into_iter().collect();
        match synced {
            Ok(()) => {
                intents.note_all_synced();
                self.trim(Duration::ZERO, true);
            }
            Err(error) => log::warn!("could not sync the cell disks: {error}; the next start compares their copies"),
        }
    }

    fn count(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}
