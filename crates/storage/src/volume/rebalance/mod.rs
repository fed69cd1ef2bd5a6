//! Rebalances: move allocation units until the disks are used in proportion to their sizes and disks that leave are empty.
//!
//! Invariants:
//! - One rebalance runs at a time. It is wanted until it is complete, also over restarts.
//! - A rebalance that cannot go on (a disk is offline or full, an I/O error) says why, waits, and tries again.
//! - A move that may be committed is never undone: its commit is repeated until it succeeds or the volume stops.

mod chunks;
mod copying;

use super::Volume;
use crate::disk::Stream;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::group::mirror::DiskMode;
use crate::group::rebalance::{Chunk, FileKey, Move, PlacementRecord, plan};
use crate::group::{FileCopies, Group};
use crate::meta::{Contents, PlacementKey};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

pub const POWER_MAX: u32 = 11;
/// How long a rebalance waits after an error.
const RETRY_DELAY: Duration = Duration::from_secs(10);
const IDLE_WAIT: Duration = Duration::from_secs(1);
/// Maximum number of times that a rebalance looks for what files that change have left to move.
const PASSES: usize = 16;
/// Names of values in the metadata stores.
pub(super) const WANTED: &str = "rebalance";
pub(super) const DROPPING: &str = "dropping";
const POWER: &str = "power";
const HOME: &str = "home/";

/// What the rebalance of a group does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RebalanceState {
    #[default]
    Idle,
    Running,
    /// The power is 0, or something prevents the rebalance: see [`RebalanceStatus::error`].
    Waiting,
}

/// The rebalance of a group, as Oracle's `v$asm_operation` has it.
#[derive(Debug, Clone, Default)]
pub struct RebalanceStatus {
    pub state: RebalanceState,
    pub power: u32,
    /// Allocation units moved by the present or the last rebalance, and the estimate of all that it moves.
    pub moved: u64,
    pub estimated: u64,
    /// Bytes copied since the volume was opened.
    pub copied_bytes: u64,
    /// How long the present rebalance runs.
    pub running: Duration,
    /// Why the rebalance waits, and what to do.
    pub error: Option<String>,
    /// Runs of regions that the group keeps in memory, about 16 bytes each.
    pub runs: u64,
}

/// Changes for the next metadata transaction.
#[derive(Debug, Default)]
pub struct PlacementChanges {
    placements: BTreeMap<PlacementKey, Option<Vec<u8>>>,
    group: BTreeMap<String, Option<u64>>,
}

impl PlacementChanges {
    pub fn placements(&self) -> Vec<(PlacementKey, Option<Vec<u8>>)> {
        self.placements.iter().map(|(key, record)| (*key, record.clone())).collect()
    }

    pub fn group(&self) -> Vec<(String, Option<u64>)> {
        self.group.iter().map(|(name, value)| (name.clone(), *value)).collect()
    }
}

#[derive(Debug, Default)]
struct Control {
    is_wanted: bool,
    /// Number of requests for a rebalance: one that arrives during a rebalance is not fulfilled by it.
    requests: u64,
    status: RebalanceStatus,
    started: Option<Instant>,
}

#[derive(Debug, Default)]
pub struct Rebalance {
    control: Mutex<Control>,
    wake: Condvar,
    is_stopping: AtomicBool,
    changes: Mutex<PlacementChanges>,
    /// Files whose stored records are outdated.
    outdated: Mutex<BTreeSet<FileKey>>,
    /// Files with moves whose commit may have happened.
    in_doubt: Mutex<BTreeSet<FileKey>>,
    running: Mutex<()>,
    /// Held while the disks of the group change.
    pub(super) disk_changes: Mutex<()>,
}

fn stored_key(key: FileKey) -> PlacementKey {
    PlacementKey { ino: key.ino, stripe: key.stripe, stream: key.stream as u8 }
}

impl Rebalance {
    /// Takes the placements and the state of an unfinished rebalance from the metadata.
    pub(super) fn restore(group: &Group, contents: &Contents, power: u32) -> Result<Arc<Self>> {
        let corrupt = |what: String| Error::new(ErrorKind::Corrupt, format!("metadata: {what}"));
        let containers = group.placement().containers().len();
        let mut homes = Vec::new();
        for (name, home) in &contents.group {
            let Some(stripe) = name.strip_prefix(HOME) else { continue };
            let stripe = stripe.parse::<u16>().ok().filter(|stripe| usize::from(*stripe) < containers);
            match (stripe, *home < containers as u64) {
                (Some(stripe), true) => homes.push((stripe, *home as u16)),
                _ => return Err(corrupt(format!("{name} is {home}, in a group of {containers} disks"))),
            }
        }
        let (mut records, mut unused) = (Vec::new(), PlacementChanges::default());
        for (row, bytes) in &contents.placements {
            let record = PlacementRecord::decode(bytes, containers)
                .map_err(|error| corrupt(format!("placement of inode {}: {error}", row.ino)))?;
            let stream = Stream::ALL.into_iter().find(|stream| *stream as u8 == row.stream);
            match stream.filter(|_| contents.inodes.contains_key(&row.ino)) {
                Some(stream) => records.push((FileKey { ino: row.ino, stripe: row.stripe, stream }, record)),
                None => drop(unused.placements.insert(*row, None)),
            }
        }
        group.placement().restore(&homes, records);
        let has_left = |container: &u16| group.disks_of(*container).iter().any(|disk| group.is_dropped(*disk));
        (0..containers as u16).filter(has_left).for_each(|container| group.placement().retire(container));
        group.set_copies(FileCopies::restore(group.redundancy(), &contents.group));
        let value = |name: &str| contents.group.get(name).copied().unwrap_or(0);
        let dropped =
            (0..group.disks().len()).filter(|disk| group.is_dropped(*disk)).fold(0, |all, disk| all | 1 << disk);
        group.set_dropping(value(DROPPING) & !dropped);
        let power = contents.group.get(POWER).map_or(power, |power| *power as u32).min(POWER_MAX);
        let status = RebalanceStatus { power, ..RebalanceStatus::default() };
        let is_wanted = value(WANTED) != 0 || group.dropping() != 0;
        let control = Mutex::new(Control { is_wanted, requests: 0, status, started: None });
        Ok(Arc::new(Self { control, changes: Mutex::new(unused), ..Self::default() }))
    }

    /// Takes the changes for a transaction; None if there are none.
    pub(super) fn take_changes(&self) -> Option<PlacementChanges> {
        let changes = std::mem::take(&mut *self.changes.lock());
        (!changes.placements.is_empty() || !changes.group.is_empty()).then_some(changes)
    }

    /// Returns changes whose transaction failed. Later changes of the same records stay.
    pub(super) fn restore_changes(&self, failed: Option<PlacementChanges>) {
        let Some(failed) = failed else { return };
        let mut changes = self.changes.lock();
        for (key, record) in failed.placements {
            changes.placements.entry(key).or_insert(record);
        }
        for (name, value) in failed.group {
            changes.group.entry(name).or_insert(value);
        }
    }

    pub fn stop(&self) {
        {
            // Under the lock: the thread must not miss the notification between its check and its wait.
            let _control = self.control.lock();
            self.is_stopping.store(true, Ordering::Release);
        }
        self.wake.notify_all();
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    fn power(&self) -> u32 {
        self.control.lock().status.power
    }

    pub(super) fn want(&self) {
        let mut control = self.control.lock();
        control.is_wanted = true;
        control.requests += 1;
        self.wake.notify_all();
    }

    fn update(&self, change: impl FnOnce(&mut RebalanceStatus)) {
        change(&mut self.control.lock().status);
    }
}

/// Runs rebalances of a volume in a thread.
pub fn serve(volume: &Weak<Volume>, rebalance: &Rebalance, stop: &AtomicBool) {
    let mut delay = IDLE_WAIT;
    loop {
        {
            let mut control = rebalance.control.lock();
            if stop.load(Ordering::Acquire) || rebalance.is_stopping() {
                return;
            }
            let is_due = control.is_wanted && control.status.power > 0 && control.status.error.is_none();
            if !is_due && rebalance.wake.wait_for(&mut control, delay).timed_out() {
                control.status.error = None;
                delay = IDLE_WAIT;
            }
        }
        let Some(volume) = volume.upgrade() else { return };
        let dropped = catch_unwind(AssertUnwindSafe(|| volume.drop_expired_disks()));
        {
            let control = rebalance.control.lock();
            if !control.is_wanted || control.status.power == 0 || control.status.error.is_some() {
                continue;
            }
        }
        match catch_unwind(AssertUnwindSafe(|| dropped.map(|()| volume.rebalance()))) {
            Ok(Ok(Err(error))) if !rebalance.is_stopping() => {
                log::error!("the rebalance of the disk group waits: {error}");
                delay = RETRY_DELAY;
            }
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => {
                let message = "a rebalance panicked; restart the cell";
                log::error!("{message}");
                rebalance.update(|status| status.error = Some(message.into()));
                delay = RETRY_DELAY;
            }
        }
    }
}

impl Volume {
    /// Frees what an interrupted rebalance left.
    pub(super) fn restore_rebalance(&self) {
        for file in self.group.placement().recorded() {
            let key = file.key;
            if !file.state.read().leftovers.is_empty() {
                self.rebalance.outdated.lock().insert(key);
                if let Err(error) = self.group.placement().free_leftovers(file) {
                    log::warn!("could not free what a rebalance left of inode {}: {error}", key.ino);
                }
            }
        }
    }

    pub fn rebalance_status(&self) -> RebalanceStatus {
        let control = self.rebalance.control.lock();
        let mut status = control.status.clone();
        status.runs = self.group.placement().run_count() as u64;
        if let (RebalanceState::Running, Some(started)) = (status.state, control.started) {
            status.running = started.elapsed();
        } else if control.is_wanted {
            status.state = RebalanceState::Waiting;
        }
        status
    }

    /// Sets how fast rebalances copy, from 0 (not at all) to 11 (as fast as the disks). Durable on return.
    pub fn set_rebalance_power(&self, power: u32) -> Result<()> {
        if power > POWER_MAX {
            let message = format!("rebalance power {power} is not between 0 and {POWER_MAX}");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        self.commit_group_values([(POWER.to_owned(), Some(u64::from(power)))])?;
        self.rebalance.update(|status| (status.power, status.error) = (power, None));
        self.rebalance.wake.notify_all();
        Ok(())
    }

    /// Requests a rebalance. Durable on return.
    pub fn request_rebalance(&self) -> Result<()> {
        self.commit_group_values([(WANTED.to_owned(), Some(1))])?;
        self.rebalance.update(|status| status.error = None);
        self.rebalance.want();
        Ok(())
    }

    pub(super) fn commit_group_values(&self, values: impl IntoIterator<Item = (String, Option<u64>)>) -> Result<()> {
        self.rebalance.changes.lock().group.extend(values);
        self.commit_everything()
    }

    /// Moves allocation units until the group is balanced and disks that leave have left. An error says why that is not
    /// possible now.
    pub fn rebalance(&self) -> Result<()> {
        let _running = self.rebalance.running.lock();
        {
            let mut control = self.rebalance.control.lock();
            control.started = Some(Instant::now());
            let status = &mut control.status;
            (status.state, status.moved, status.estimated, status.error) = (RebalanceState::Running, 0, 0, None);
        }
        let result = self.forbid_passthrough().and_then(|()| self.try_rebalance());
        if result.is_ok() {
            self.permit_passthrough();
        }
        let mut control = self.rebalance.control.lock();
        control.status.state = RebalanceState::Idle;
        if let Err(error) = &result {
            control.status.error = Some(error.to_string());
        }
        result
    }

    fn try_rebalance(&self) -> Result<()> {
        let requests = self.rebalance.control.lock().requests;
        self.commit_moves()?;
        // A disk may have joined without its copy sets before a crash.
        self.check_all_online()?;
        self.use_wanted_sets(self.group.avoided())?;
        for container in self.used_containers() {
            let path = self.group.placement().container(container).path().display();
            let removed = self.group.placement().remove_strays(container);
            removed.context(|| format!("could not free what a crash left on cell disk {path}"))?;
        }
        // Files that grow meanwhile are balanced by the next pass. Each pass moves much less than the one before.
        self.group.note_moves()?;
        for pass in 0..PASSES {
            self.check_all_online()?;
            let chunks = self.chunks()?;
            let moves = self.planned_moves(&chunks)?;
            self.expect_moves(moves.len() + self.unconverted().len() + self.count_rest_of_dropping_disks());
            // While files grow, there is always something to move.
            let is_balanced = moves.is_empty() || pass > 0 && moves.len() * 100 <= chunks.len();
            self.run(&moves)?;
            let unconverted = self.unconverted();
            self.expect_moves(unconverted.len() + self.count_rest_of_dropping_disks());
            self.run(&unconverted)?;
            let is_empty = self.empty_dropping_disks()?;
            if is_balanced && unconverted.is_empty() && is_empty {
                self.commit_placements(&BTreeSet::new())?;
                {
                    let mut control = self.rebalance.control.lock();
                    if control.requests != requests {
                        return Ok(());
                    }
                    control.is_wanted = false;
                }
                return self.commit_group_values([(WANTED.to_owned(), None)]);
            }
        }
        // The rebalance is still wanted, and is tried again later.
        let dropping = self.group.dropping();
        let left: Vec<String> = (0..self.disks().len())
            .filter(|disk| dropping >> disk & 1 == 1)
            .map(|disk| self.disks()[disk].path().display().to_string())
            .collect();
        let what = if left.is_empty() {
            "files grow faster than they are moved".into()
        } else {
            left.join(", ") + " still has files"
        };
        Err(Error::new(ErrorKind::Io, format!("the group is not balanced after {PASSES} passes: {what}")))
    }

    /// Records how many moves are left, for the progress that a report shows.
    pub(super) fn expect_moves(&self, left: usize) {
        self.rebalance.update(|status| status.estimated = status.moved + left as u64);
    }

    /// Returns the moves to the copy sets of the wanted size, and those among copy sets of the same size.
    fn planned_moves(&self, chunks: &[Chunk]) -> Result<Vec<Move>> {
        let mut placed = chunks.to_vec();
        let mut copies = (0, 0);
        for chunk in &mut placed {
            if copies.0 != chunk.key.ino {
                copies = (chunk.key.ino, self.copies_of(chunk.key.ino));
            }
            chunk.container = self.group.converted(chunk.container, copies.1).unwrap_or(chunk.container);
        }
        for (number, target) in plan(&self.inventory()?, &placed) {
            placed[number].container = target;
        }
        let moved = chunks.iter().zip(placed).filter(|(before, after)| before.container != after.container);
        Ok(moved.map(|(_, Chunk { key, regions, container, .. })| Move { key, regions, target: container }).collect())
    }

    /// Returns the containers whose disks are in the group.
    pub(super) fn used_containers(&self) -> Vec<u16> {
        let is_used = |container: &u16| self.disks_of(*container).iter().all(|disk| !self.group.is_dropped(*disk));
        (0..self.group.placement().containers().len() as u16).filter(is_used).collect()
    }

    fn check_all_online(&self) -> Result<()> {
        let Some(mirror) = self.group.mirror() else { return Ok(()) };
        for (number, disk) in self.disks().iter().enumerate() {
            let is_leaving = self.group.is_dropped(number) || self.group.is_dropping(number);
            if mirror.member(number).mode() != DiskMode::Online && !is_leaving {
                let path = disk.path().display();
                let message = format!("cell disk {path} is not online; bring the disk online, or drop it by force");
                return Err(Error::new(ErrorKind::Io, message));
            }
        }
        Ok(())
    }

    /// Returns the disks with the copies of a container.
    pub(super) fn disks_of(&self, container: u16) -> Vec<usize> {
        self.group.disks_of(container)
    }
}

fn stopped() -> Error {
    Error::new(ErrorKind::Io, "the cell stops; the next start continues the rebalance")
}

/// Returns the name of the value with the home of a stripe.
pub(super) fn home_of(stripe: u16) -> String {
    format!("{HOME}{stripe}")
}
