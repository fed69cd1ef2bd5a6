//! The copies of a group with redundancy normal or high: its disks' states, and disks that return.

use super::Volume;
use crate::disk::Disk;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::flash::FlashCache;
use crate::group::Redundancy;
use crate::group::mirror::{Copied, DiskMode};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The name under which a stop saves the storage index. The saved index of a disk that was offline is outdated.
const SAVED_FACTS: &str = "storage-index";
/// How long a disk that returns waits for the lock that threads of its former engine hold.
const LOCK_LIMIT: Duration = Duration::from_secs(2);
const LOCK_POLL: Duration = Duration::from_millis(20);
const NO_OFFLINE_DISK: &str = "so none of its disks can be offline";

/// The state of a disk group.
#[derive(Debug, Clone)]
pub struct GroupStatus {
    pub id: String,
    pub redundancy: Redundancy,
    /// Allocation-unit size of new files in bytes.
    pub au_bytes: u64,
    pub disks: Vec<GroupDisk>,
    /// How long a disk may be offline before it is dropped by force; zero for no limit. None with external redundancy.
    pub disk_repair_time: Option<Duration>,
    /// Regions of 1 MiB whose copies may differ, or that an offline disk may lack.
    pub intents: u64,
    /// Reads that another copy answered because a disk failed the read.
    pub reads_from_other_copy: u64,
    /// Reads that went to another copy, too, because a disk was slow.
    pub reads_past_cap: u64,
    /// Damaged ranges that were rewritten from another copy.
    pub repairs: u64,
    /// Bytes that resyncs have read and written since the volume was opened.
    pub resync_read_bytes: u64,
    pub resync_written_bytes: u64,
}

/// A disk of a group.
#[derive(Debug, Clone)]
pub struct GroupDisk {
    pub number: usize,
    pub path: PathBuf,
    /// None with external redundancy.
    pub failure_group: Option<String>,
    pub mode: DiskMode,
    /// Since when the disk is not online, in nanoseconds since 1970.
    pub offline_since: Option<i64>,
    /// The disk is being emptied, and then leaves the group.
    pub is_dropping: bool,
    /// Of an offline disk: how long until it is dropped by force; None if it never is, or is being dropped already.
    pub repair_left: Option<Duration>,
}

impl GroupStatus {
    /// Returns whether a disk is not online.
    pub fn is_degraded(&self) -> bool {
        self.disks.iter().any(|disk| disk.mode != DiskMode::Online)
    }
}

impl Volume {
    pub fn group_status(&self) -> GroupStatus {
        let mirror = self.group.mirror();
        let membership = mirror.map(|mirror| mirror.membership());
        let disk = |(number, disk): (usize, &Arc<dyn Disk>)| GroupDisk {
            number,
            path: disk.path().to_owned(),
            failure_group: mirror.map(|mirror| mirror.failure_group(number).to_owned()),
            mode: mirror.map_or(DiskMode::Online, |mirror| mirror.member(number).mode()),
            offline_since: membership.as_ref().and_then(|found| found.offline_since.get(number).copied().flatten()),
            is_dropping: self.group.is_dropping(number),
            repair_left: membership
                .as_ref()
                .and_then(|found| self.repair_left(number, found.offline_since.get(number).copied().flatten())),
        };
        let is_member = |(number, _): &(usize, &Arc<dyn Disk>)| !self.group.is_dropped(*number);
        let count = |counter: fn(&crate::group::mirror::Events) -> &std::sync::atomic::AtomicU64| {
            mirror.map_or(0, |mirror| counter(&mirror.events).load(Ordering::Relaxed))
        };
        GroupStatus {
            id: self.group.id().to_string(),
            redundancy: self.group.redundancy(),
            au_bytes: self.options.au_size.bytes(),
            disks: self.disks().iter().enumerate().filter(is_member).map(disk).collect(),
            disk_repair_time: mirror.map(|_| self.disk_repair_time()),
            intents: mirror.map_or(0, |mirror| mirror.intent_count() as u64),
            reads_from_other_copy: count(|events| &events.reads_from_other_copy),
            reads_past_cap: count(|events| &events.reads_past_cap),
            repairs: count(|events| &events.repairs),
            resync_read_bytes: count(|events| &events.resync_read_bytes),
            resync_written_bytes: count(|events| &events.resync_written_bytes),
        }
    }

    /// Returns the number of the group's disk at a path, or with the number that is given in place of a path.
    pub fn disk_number(&self, path: &Path) -> Result<usize> {
        let number = path.to_str().and_then(|text| text.parse::<usize>().ok());
        if let Some(number) = number.filter(|number| *number < self.disks().len() && !self.group.is_dropped(*number)) {
            return Ok(number);
        }
        let members = self.disks().iter().enumerate().filter(|(number, _)| !self.group.is_dropped(*number));
        // A disk may have the path of one that it replaces.
        let found = members.clone().filter(|(_, disk)| disk.path() == path);
        let found = found.max_by_key(|(number, disk)| (disk.is_accessible(), *number)).map(|(number, _)| number);
        found.ok_or_else(|| {
            let paths: Vec<String> = members.map(|(_, disk)| disk.path().display().to_string()).collect();
            let message = format!("{} is not a disk of the group; its disks are {}", path.display(), paths.join(", "));
            Error::new(ErrorKind::NotFound, message)
        })
    }

    /// Takes a disk offline: the group does not use the disk until [`Self::online_disk`].
    pub fn offline_disk(&self, path: &Path) -> Result<()> {
        let number = self.disk_number(path)?;
        match self.group.mirror() {
            Some(mirror) => mirror.offline(number),
            None => Err(no_copies(NO_OFFLINE_DISK)),
        }
    }

    /// Brings an offline disk online: copies to the disk what changed while it was offline. Returns when the disk is
    /// online. Reads and writes go on meanwhile.
    pub fn online_disk(&self, engine: Arc<dyn Disk>) -> Result<Copied> {
        let Some(mirror) = self.group.mirror() else { return Err(no_copies(NO_OFFLINE_DISK)) };
        let path = engine.path().to_owned();
        self.group.check_returning(engine.as_ref())?;
        let number = mirror.identify(engine.as_ref())?;
        mirror.release_engine(number, &engine);
        // A thread that uses the former engine of the disk holds its lock for a moment.
        let deadline = Instant::now() + LOCK_LIMIT;
        let lock = || engine.lock().context(|| format!("could not lock cell disk {}", path.display()));
        let mut is_locked = lock()?;
        while !is_locked && Instant::now() < deadline {
            std::thread::sleep(LOCK_POLL);
            is_locked = lock()?;
        }
        if !is_locked {
            let message =
                format!("cell disk {} is in use by another cell daemon; stop that daemon first", path.display());
            return Err(Error::new(ErrorKind::Locked, message));
        }
        let disk = &self.disks()[number];
        // Kept until the disk is online: the note must not change before.
        let mut write_back_notes = None;
        let finish = || {
            disk.remove_named(SAVED_FACTS).context(|| format!("could not use cell disk {}", path.display()))?;
            self.group.store_superblock(number)?;
            // Before the disk is online: from then on a start may use the disk without the others.
            FlashCache::disown_on(disk.as_ref())?;
            self.give_flash_log_notes_to(disk.as_ref())?;
            // Before the notes: a commit locks the stores, and may then change the notes.
            self.stores.lock().add(number, disk, self.group.stripes().len())?;
            let notes = self.give_write_back_notes_to(disk.as_ref());
            write_back_notes = Some(notes.inspect_err(|_| self.stores.lock().remove(number))?);
            Ok(())
        };
        let copied = mirror.bring_online(number, engine, self, finish)?;
        drop(write_back_notes);
        self.free_space.reopen(number);
        // Before copy sets and weights are computed for the disk.
        self.free_space.replenish();
        self.note_space();
        log::info!(
            "cell disk {} is online; resynced {} files: read {} bytes, wrote {} bytes",
            path.display(),
            copied.files,
            copied.read_bytes,
            copied.written_bytes
        );
        Ok(copied)
    }

    /// Removes write intents of regions that are equal on all copies and were not written for a while.
    pub fn trim_intents(&self) {
        if let Some(mirror) = self.group.mirror() {
            mirror.trim_intents(self.options.intent_idle);
        }
    }

    /// Takes disks offline that do not answer within the time limit.
    pub(super) fn fail_hanging_disks(&self) {
        if let Some(mirror) = self.group.mirror() {
            mirror.fail_hanging_disks();
        }
    }

    /// Brings the disks online that were offline when the volume was opened and that are present.
    pub(super) fn online_returned_disks(&self) {
        let Some(mirror) = self.group.mirror() else { return };
        let has_returned = |number: &usize| {
            let member = mirror.member(*number);
            member.mode() == DiskMode::Offline
                && member.engine().read_note("superblock").is_ok_and(|note| note.is_some())
        };
        let returned: Vec<usize> = (0..self.disks().len()).filter(has_returned).collect();
        returned.iter().for_each(|number| self.repair_time.set_returning(*number, true));
        for number in returned {
            let (path, engine) = (self.disks()[number].path().display(), mirror.member(number).engine());
            log::info!("cell disk {path} returned; its resync begins");
            if let Err(error) = self.online_disk(engine) {
                log::error!("could not bring cell disk {path} online: {error}");
            }
            self.repair_time.set_returning(number, false);
        }
    }
}

pub(super) fn no_copies(consequence: &str) -> Error {
    let message = format!("the disk group has redundancy \"external\", {consequence}");
    Error::new(ErrorKind::Invalid, message)
}
