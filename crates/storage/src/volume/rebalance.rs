//! Rebalances: move allocation units until the disks are used in proportion to their sizes and disks that leave are empty.
//!
//! Invariants:
//! - One rebalance runs at a time. It is wanted until it is complete, also over restarts.
//! - A rebalance that cannot go on (a disk is offline or full, an I/O error) says why, waits, and tries again.
//! - A move that may be committed is never undone: its commit is repeated until it succeeds or the volume stops.

use super::Volume;
use crate::disk::{DiskFile, Stream, on_each};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::file::FileData;
use crate::group::Group;
use crate::group::mirror::DiskMode;
use crate::group::rebalance::{Chunk, FileKey, Inventory, Move, OPEN_END, PlacementRecord, REGION, plan, regions_of};
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
/// Allocation units that a thread moves between two commits.
const BATCH_PER_THREAD: usize = 8;
/// Bytes that a target disk must have beyond what a batch writes.
const MARGIN: u64 = 4 << 20;
/// Maximum number of times that a rebalance looks for what files that change have left to move.
const PASSES: usize = 16;
/// Bytes of the steps in which the space of a sparse file is measured.
const PROBE: u64 = 64 << 10;
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
        let value = |name: &str| contents.group.get(name).copied().unwrap_or(0);
        let dropped =
            (0..group.disks().len()).filter(|disk| group.is_dropped(*disk)).fold(0, |all, disk| all | 1 << disk);
        group.set_dropping(value(DROPPING) & !dropped);
        let power = contents.group.get(POWER).map_or(power, |power| *power as u32).min(POWER_MAX);
        let status = RebalanceStatus { power, ..RebalanceStatus::default() };
        let is_wanted = value(WANTED) != 0 || group.dropping() != 0;
        let control = Mutex::new(Control { is_wanted, status, started: None });
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
        self.control.lock().is_wanted = true;
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

/// Slows copies down: at power p, a thread pauses (11 - p) / p times 1.5 as long as it copies.
struct Pace<'a> {
    rebalance: &'a Rebalance,
    last: Instant,
}

impl Pace<'_> {
    /// Returns false if the copy must end.
    fn after(&mut self, bytes: u64) -> bool {
        let busy = self.last.elapsed();
        self.rebalance.update(|status| status.copied_bytes += bytes);
        let mut left = match self.rebalance.power() {
            0 => IDLE_WAIT,
            power if power < POWER_MAX && bytes > 0 => {
                busy.mul_f64(f64::from(POWER_MAX - power) / f64::from(power) * 1.5)
            }
            _ => Duration::ZERO,
        };
        while !left.is_zero() && !self.rebalance.is_stopping() {
            let pause = left.min(Duration::from_millis(50));
            std::thread::sleep(pause);
            left -= pause;
            if self.rebalance.power() == 0 {
                left = IDLE_WAIT;
            }
        }
        self.last = Instant::now();
        !self.rebalance.is_stopping()
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

    /// Makes the present records of files durable.
    fn commit_placements(&self, keys: &BTreeSet<FileKey>) -> Result<()> {
        let placement = self.group.placement();
        let outdated = std::mem::take(&mut *self.rebalance.outdated.lock());
        let keys: BTreeSet<FileKey> = keys.union(&outdated).copied().collect();
        {
            let records = keys.iter().map(|key| (stored_key(*key), placement.needed_record(*key)));
            let records: Vec<_> = records.map(|(key, record)| (key, record.map(|record| record.encode()))).collect();
            self.rebalance.changes.lock().placements.extend(records);
        }
        self.commit_everything().inspect_err(|_| self.rebalance.outdated.lock().extend(keys))
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
        let result = self.try_rebalance();
        let mut control = self.rebalance.control.lock();
        control.status.state = RebalanceState::Idle;
        if let Err(error) = &result {
            control.status.error = Some(error.to_string());
        }
        result
    }

    fn try_rebalance(&self) -> Result<()> {
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
            let moves = plan(&self.inventory()?, &chunks);
            let moves: Vec<Move> = moves
                .into_iter()
                .map(|(number, target)| {
                    let Chunk { key, regions, .. } = chunks[number].clone();
                    Move { key, regions, target }
                })
                .collect();
            self.rebalance.update(|status| status.estimated += moves.len() as u64);
            // While files grow, there is always something to move.
            let is_balanced = moves.is_empty() || pass > 0 && moves.len() * 100 <= chunks.len();
            self.run(&moves)?;
            let is_empty = self.empty_dropping_disks()?;
            if is_balanced && is_empty {
                self.commit_placements(&BTreeSet::new())?;
                self.rebalance.control.lock().is_wanted = false;
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

    fn inventory(&self) -> Result<Inventory> {
        let count = self.disks().len();
        let spaces = self.free_space.by_disk();
        let mut weights = vec![0; count];
        for disk in (0..count).filter(|disk| !self.group.is_dropped(*disk) && !self.group.is_dropping(*disk)) {
            weights[disk] = spaces[disk].total;
            if weights[disk] == 0 {
                let path = spaces[disk].path.display();
                return Err(Error::new(ErrorKind::Io, format!("could not determine the size of cell disk {path}")));
            }
        }
        let names: Vec<&str> = match self.group.mirror() {
            Some(mirror) => (0..count).map(|disk| mirror.failure_group(disk)).collect(),
            None => Vec::new(),
        };
        let group = |disk: usize| names.iter().position(|name| *name == names[disk]).unwrap_or(disk);
        let failure_groups = (0..count).map(|disk| if names.is_empty() { disk } else { group(disk) }).collect();
        let containers = 0..self.group.placement().containers().len() as u16;
        let containers = containers.map(|container| self.disks_of(container)).collect();
        Ok(Inventory { weights, failure_groups, containers })
    }

    /// Returns the allocation units of all files that occupy space.
    fn chunks(&self) -> Result<Vec<Chunk>> {
        let files: Vec<Arc<FileData>> =
            self.namespace.read().nodes().filter_map(|(_, node)| node.file.clone()).collect();
        let mut chunks = Vec::new();
        for file in files {
            if self.rebalance.is_stopping() {
                return Err(stopped());
            }
            self.chunks_of(&file, &mut chunks).context(|| format!("could not examine inode {}", file.ino))?;
        }
        chunks.sort_by_key(|chunk| (chunk.key.ino, chunk.regions.start));
        Ok(chunks)
    }

    fn chunks_of(&self, file: &FileData, chunks: &mut Vec<Chunk>) -> std::io::Result<()> {
        let (layout, au_bytes) = (&file.layout, file.layout.au_size.bytes());
        let count = layout.disks.len() as u64;
        let streams = if file.units().is_some() { &[Stream::Data, Stream::Units][..] } else { &[Stream::Data] };
        for (index, stripe) in layout.disks.iter().enumerate() {
            let disk = &self.group.stripes()[usize::from(*stripe)];
            // The first allocation unit of the stripe; the others follow after each turn of the stripes.
            let first = (index as u64 + count - u64::from(layout.start) % count) % count;
            for stream in streams {
                let key = FileKey { ino: file.ino, stripe: *stripe, stream: *stream };
                let (length, allocated) = disk.measure(file.ino, *stream)?;
                if allocated == 0 {
                    continue;
                }
                // Of a unit file: the slots of each allocation unit.
                let slots = if *stream == Stream::Units { u64::from(crate::meta::SLOTS_PER_AU) } else { 1 };
                let starts = (first..).step_by(count as usize).flat_map(|au| au * slots..(au + 1) * slots);
                let starts = starts.map(|number| number * au_bytes).take_while(|start| *start < length);
                let ranges = starts.map(|start| start..(start + au_bytes).min(length));
                let opened = disk.open(file.ino, *stream, false)?;
                let Some(opened) = opened else { continue };
                let runs = self.group.placement().runs(key);
                let mut own = Vec::new();
                for range in ranges {
                    let regions = regions_of(&(range.start..range.start + au_bytes));
                    let Some(container) = runs.container_of(&regions) else { continue };
                    if !opened.is_hole(range.start, range.end - range.start)? {
                        own.push(Chunk { key, regions, container, bytes: range.end - range.start });
                    }
                }
                // Units and raw pages beside them occupy parts of allocation units.
                if allocated < own.iter().map(|chunk| chunk.bytes).sum() {
                    for chunk in &mut own {
                        chunk.bytes = occupied(&*opened, chunk)?;
                    }
                }
                chunks.extend(own);
            }
        }
        Ok(())
    }

    /// Runs moves in batches. Returns an error if the rebalance cannot go on.
    pub(super) fn run(&self, moves: &[Move]) -> Result<()> {
        let mut next = 0;
        while next < moves.len() {
            if self.rebalance.is_stopping() {
                return Err(stopped());
            }
            let threads = match self.rebalance.power() {
                0..=3 => 1,
                4..=7 => 2,
                _ => 4,
            };
            let batch = &moves[next..moves.len().min(next + threads * BATCH_PER_THREAD)];
            self.run_batch(batch, threads)?;
            next += batch.len();
            self.rebalance.update(|status| status.moved += batch.len() as u64);
        }
        Ok(())
    }

    fn run_batch(&self, batch: &[Move], threads: usize) -> Result<()> {
        self.check_all_online()?;
        self.check_space(batch)?;
        let placement = self.group.placement();
        let begun: Vec<&Move> = batch.iter().filter(|step| placement.begin(step)).collect();
        let keys: BTreeSet<FileKey> = begun.iter().map(|step| step.key).collect();
        let mut result = self.commit_placements(&keys);
        let mut complete: Vec<bool> = vec![false; begun.len()];
        if result.is_ok() {
            let numbers: Vec<Vec<usize>> =
                (0..threads).map(|thread| (thread..begun.len()).step_by(threads).collect()).collect();
            let copied = on_each(&numbers, |own| {
                let mut pace = Pace { rebalance: &self.rebalance, last: Instant::now() };
                let copy = |number: &usize| placement.copy(begun[*number], &mut |bytes| pace.after(bytes));
                own.iter().map(copy).collect::<Vec<_>>()
            });
            for (number, copied) in numbers.into_iter().flatten().zip(copied.into_iter().flatten()) {
                match copied {
                    Ok(is_complete) => complete[number] = is_complete,
                    Err(error) => {
                        let (step, path) = (begun[number], placement.container(begun[number].target).path());
                        let context = format!("could not move inode {} to cell disk {}", step.key.ino, path.display());
                        result = Err(Error::io(context, error));
                    }
                }
            }
        }
        let (mut committing, mut failed) = (BTreeSet::new(), false);
        for (step, is_complete) in begun.iter().zip(complete) {
            match is_complete && placement.prepare(step) {
                true => drop(committing.insert(step.key)),
                false => {
                    failed = true;
                    self.rebalance.outdated.lock().insert(step.key);
                    if let Err(error) = placement.abort(step) {
                        log::warn!("could not free a copy of inode {}: {error}", step.key.ino);
                    }
                }
            }
        }
        self.rebalance.in_doubt.lock().extend(committing);
        self.commit_moves()?;
        if failed && result.is_ok() && self.rebalance.is_stopping() {
            result = Err(stopped());
        }
        result
    }

    /// Commits the moves that are copied, and frees the former places. After an error the moves remain in doubt: writes go to
    /// both places until a later commit succeeds.
    fn commit_moves(&self) -> Result<()> {
        let keys = std::mem::take(&mut *self.rebalance.in_doubt.lock());
        self.commit_placements(&keys).inspect_err(|_| self.rebalance.in_doubt.lock().extend(keys.iter().copied()))?;
        for key in &keys {
            if let Err(error) = self.group.placement().finish(*key) {
                log::warn!("could not free the former place of inode {}: {error}", key.ino);
            }
        }
        self.rebalance.outdated.lock().extend(keys);
        Ok(())
    }

    /// Checks that the targets of moves have space for them.
    fn check_space(&self, batch: &[Move]) -> Result<()> {
        let mut needed: BTreeMap<usize, u64> = BTreeMap::new();
        for step in batch.iter().filter(|step| step.regions.end != OPEN_END) {
            let bytes = u64::from(step.regions.end - step.regions.start) * REGION;
            self.disks_of(step.target).into_iter().for_each(|disk| *needed.entry(disk).or_default() += bytes);
        }
        let spaces = self.free_space.by_disk();
        for (disk, bytes) in needed {
            let available = spaces[disk].available;
            if available < bytes + MARGIN {
                let message = format!(
                    "the rebalance needs {} MiB on cell disk {}, which has {} MiB available; free space or add a disk",
                    (bytes + MARGIN) >> 20,
                    self.disks()[disk].path().display(),
                    available >> 20
                );
                return Err(Error::new(ErrorKind::NoSpace, message));
            }
        }
        Ok(())
    }
}

/// Returns the bytes that an allocation unit occupies, in steps of [`PROBE`].
fn occupied(file: &dyn DiskFile, chunk: &Chunk) -> std::io::Result<u64> {
    let start = u64::from(chunk.regions.start) * REGION;
    let (mut at, end, mut bytes) = (start, start + chunk.bytes, 0);
    while at < end {
        let length = PROBE.min(end - at);
        bytes += if file.is_hole(at, length)? { 0 } else { length };
        at += length;
    }
    Ok(bytes)
}

fn stopped() -> Error {
    Error::new(ErrorKind::Io, "the cell stops; the next start continues the rebalance")
}

/// Returns the name of the value with the home of a stripe.
pub(super) fn home_of(stripe: u16) -> String {
    format!("{HOME}{stripe}")
}
