//! Background threads of the volume. One commits metadata, removes backing files of removed inodes, runs post-commit
//! actions and closes surplus descriptors. Another populates the page cache's memory and exits. `checkpoints.rs` has the
//! threads that shorten redo logs.
//!
//! Invariants:
//! - No write waits for these threads. A failed commit is logged and retried, with increasing delays.
//! - A panic ends one round of maintenance, not the thread: the rounds are independent, and their work is safe to
//!   repeat. A panic that may have lost the list of changed metadata makes every later commit fail instead, because a
//!   commit without these changes would be a false promise (`Volume::metadata_lost`).

use super::checkpoints::{self, CheckpointRequests};
use super::rebalance::{self, PlacementChanges};
use super::{Volume, now};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::file::FileData;
use crate::meta::CommitSequence;
use cellar_format::units::RegionIndex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const COMMIT_INTERVAL: Duration = Duration::from_secs(1);
const TIMES_INTERVAL: Duration = Duration::from_secs(30);
const INTENTS_INTERVAL: Duration = Duration::from_secs(10);
/// Delay of the first retry of a failed commit; doubles up to the maximum.
const RETRY_DELAY_FIRST: Duration = Duration::from_secs(2);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(30);
/// Maximum number of times that one request shortens reserve files.
const RELEASES_MAX: usize = 8;
/// How often, and how many times, a request without space checks whether a removed file's last reference was released.
const RELEASE_POLL: Duration = Duration::from_millis(5);
const RELEASE_INTERVAL: Duration = Duration::from_secs(1);
const RELEASE_POLLS: usize = 5;

#[derive(Debug)]
pub struct Background {
    stop: Arc<AtomicBool>,
    checkpoint_requests: Arc<CheckpointRequests>,
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    pub fn start(volume: &Arc<Volume>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.into())
                .spawn(body)
                .context(|| format!("could not start thread {name}"))
        };
        let (weak, maintenance_stop) = (Arc::downgrade(volume), stop.clone());
        let maintenance = spawn("maintenance", Box::new(move || maintain(weak, &maintenance_stop)))?;
        let (cache, populate_stop) = (volume.cache.clone(), stop.clone());
        let populate = spawn("populate", Box::new(move || cache.populate(|| populate_stop.load(Ordering::Acquire))))?;
        let mut threads = vec![maintenance, populate];
        threads.extend(checkpoints::start(volume)?);
        if volume.options.rebalances {
            let (weak, rebalance_stop) = (Arc::downgrade(volume), stop.clone());
            let control = volume.rebalance.clone();
            threads.push(spawn("rebalance", Box::new(move || rebalance::serve(&weak, &control, &rebalance_stop)))?);
        }
        let is_degraded = volume.group_status().is_degraded();
        if is_degraded && volume.options.online_returned_disks {
            let weak = Arc::downgrade(volume);
            let online = move || weak.upgrade().into_iter().for_each(|volume| volume.online_returned_disks());
            threads.push(spawn("resync", Box::new(online))?);
        }
        Ok(Self { stop, checkpoint_requests: volume.checkpoint_requests.clone(), threads })
    }

    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.checkpoint_requests.stop();
        for thread in self.threads {
            thread.thread().unpark();
            if thread.join().is_err() {
                log::error!("a background thread of the volume panicked");
            }
        }
    }
}

/// Delays commits after a failed commit: a retry rewrites the metadata of the failed disk.
#[derive(Debug, Default)]
struct CommitRetry {
    failures: u32,
    due: Option<Instant>,
    /// What was committed when the last commit failed. If a client's sync commits more, the disk works again.
    committed: CommitSequence,
}

impl CommitRetry {
    fn is_due(&self, volume: &Volume) -> bool {
        self.due.is_none_or(|due| Instant::now() >= due) || volume.committed() > self.committed
    }

    /// Records the result of a commit. Logs the first failure of a series and its end.
    fn record(&mut self, volume: &Volume, result: Result<()>) {
        match result {
            Ok(()) if self.failures == 0 => {}
            Ok(()) => {
                log::warn!("committed names and attributes of files after {} failed attempts", self.failures);
                *self = Self::default();
            }
            Err(error) => {
                let delay = RETRY_DELAY_FIRST.saturating_mul(1 << self.failures.min(10)).min(RETRY_DELAY_MAX);
                match self.failures {
                    0 => {
                        log::error!("{error}; new names and attributes of files are not durable until a retry succeeds")
                    }
                    _ => log::debug!("{error}; retrying in {delay:?}"),
                }
                self.failures += 1;
                (self.due, self.committed) = (Some(Instant::now() + delay), volume.committed());
            }
        }
    }
}

/// The state of the maintenance thread between rounds.
struct Maintenance {
    times_committed: Instant,
    intents_trimmed: Instant,
    retry: CommitRetry,
}

impl Maintenance {
    /// Commits changed names and attributes, and file times every [`TIMES_INTERVAL`], runs the due post-commit actions,
    /// and closes surplus descriptors.
    fn round(&mut self, volume: &Volume) {
        let times_due = self.times_committed.elapsed() >= TIMES_INTERVAL;
        if (times_due || volume.namespace.read().has_changes()) && self.retry.is_due(volume) {
            if times_due {
                self.times_committed = Instant::now();
            }
            let result = volume.commit_everything();
            self.retry.record(volume, result);
        }
        volume.run_post_commit_actions();
        volume.free_space.replenish();
        volume.close_surplus_handles();
        volume.fail_hanging_disks();
        volume.note_space();
        if let Some(columnar) = &volume.columnar {
            columnar.remove_unit_files();
        }
        if self.intents_trimmed.elapsed() >= INTENTS_INTERVAL {
            self.intents_trimmed = Instant::now();
            volume.trim_intents();
        }
    }
}

/// Runs a round of maintenance every [`COMMIT_INTERVAL`].
fn maintain(volume: Weak<Volume>, stop: &AtomicBool) {
    let mut maintenance =
        Maintenance { times_committed: Instant::now(), intents_trimmed: Instant::now(), retry: CommitRetry::default() };
    loop {
        // Returns at once after a commit on several disks: the end of a scoped thread unparks its creator.
        std::thread::park_timeout(COMMIT_INTERVAL);
        if stop.load(Ordering::Acquire) {
            return;
        }
        let Some(volume) = volume.upgrade() else { return };
        if catch_unwind(AssertUnwindSafe(|| maintenance.round(&volume))).is_err() {
            log::error!("a round of maintenance panicked; the next round follows in {COMMIT_INTERVAL:?}");
        }
    }
}

/// Records that changes were lost, when a panic drops the value: the changes between the namespace and the stores are
/// neither marked changed nor durable.
struct MetadataLost<'a>(&'a AtomicBool);

impl Drop for MetadataLost<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Volume {
    /// Makes all metadata changes up to `needed` durable.
    pub(super) fn commit(&self, needed: CommitSequence) -> Result<()> {
        if self.committed() >= needed {
            return Ok(());
        }
        {
            let mut stores = self.stores.lock();
            // Another caller's transaction may have included the change.
            if self.committed() >= needed {
                return Ok(());
            }
            self.commit_locked(&mut stores)?;
        }
        self.remove_backing_files();
        Ok(())
    }

    pub(super) fn commit_everything(&self) -> Result<()> {
        self.commit_locked(&mut self.stores.lock())?;
        self.remove_backing_files();
        Ok(())
    }

    fn commit_locked(&self, stores: &mut crate::meta::Stores) -> Result<()> {
        self.commit_stores(stores).inspect_err(|_| {
            self.commit_failures.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn commit_stores(&self, stores: &mut crate::meta::Stores) -> Result<()> {
        if self.metadata_lost.load(Ordering::Acquire) {
            let message =
                "cannot commit metadata: a panic during an earlier transaction lost changes; restart the cell";
            return Err(Error::new(ErrorKind::Io, message));
        }
        let lost_on_panic = MetadataLost(&self.metadata_lost);
        let committed = self.commit_changes(stores);
        std::mem::forget(lost_on_panic);
        committed
    }

    fn commit_changes(&self, stores: &mut crate::meta::Stores) -> Result<()> {
        let times_dirty = std::mem::take(&mut *self.times_dirty.lock());
        let changes = self.rebalance.take_changes();
        let batch = {
            let mut namespace = self.namespace.write();
            times_dirty.into_iter().for_each(|ino| namespace.mark_times_dirty(ino));
            (namespace.has_changes() || changes.is_some()).then(|| namespace.take_batch())
        };
        let batch = batch.map(|batch| crate::meta::Batch {
            placements: changes.as_ref().map(PlacementChanges::placements).unwrap_or_default(),
            group: changes.as_ref().map(PlacementChanges::group).unwrap_or_default(),
            ..batch
        });
        if let Some(batch) = batch {
            let sequence = batch.sequence;
            self.free_space.prepare_commit();
            if let Err(error) = self.with_reserve(|| stores.apply(&batch)) {
                self.namespace.write().restore_batch(batch);
                self.rebalance.restore_changes(changes);
                return Err(error);
            }
            self.committed.fetch_max(sequence.0, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Removes the backing files of removed inodes whose removal is committed. If another thread removes backing files now, that
    /// thread removes these, too, and the call does not wait.
    ///
    /// The caller does not hold the lock of the stores: the removal of a file with pages in the write-back log waits for a destage, and
    /// other commits must not.
    fn remove_backing_files(&self) {
        let is_removable = |(sequence, _): &(CommitSequence, _)| *sequence <= self.committed();
        // The condition is checked again after the lock is released: another thread may have left files to this one.
        while self.removed_files.lock().iter().any(is_removable) {
            let Some(_removing) = self.removing.try_lock() else { return };
            let removable: Vec<_> = self.removed_files.lock().extract_if(.., |removed| is_removable(removed)).collect();
            removable.into_iter().for_each(|(_, file)| self.remove_backing_files_of(&file));
        }
    }

    fn remove_backing_files_of(&self, file: &FileData) {
        if let Some(log) = self.flash_log.get().filter(|_| file.is_redo()) {
            log.forget(file.ino);
        }
        self.cache.forget(&file.cached, RegionIndex(0)..RegionIndex::MAX);
        for extent in file.units().map(|units| units.extents()).unwrap_or_default() {
            self.cache.forget(&extent.stored.cached, RegionIndex(0)..RegionIndex::MAX);
        }
        if let Some(columnar) = &self.columnar {
            columnar.remove_file(file.ino);
        }
        match file.remove() {
            Ok(()) => self.group.placement().forget(file.ino, &file.layout.disks),
            Err(error) => log::warn!("{error}; the next restart removes the file"),
        }
    }

    /// Frees the space of removed files and unused units now. Returns false if there are none or the commit failed.
    /// Acquires write locks of files, so the calling thread must not hold one.
    fn complete_pending_frees(&self) -> bool {
        let is_removing = || self.removing.is_locked();
        let has_pending =
            || !self.removed_files.lock().is_empty() || !self.post_commit_actions.lock().is_empty() || is_removing();
        if !has_pending() {
            self.wait_for_release(has_pending);
        }
        if !has_pending() || self.commit_everything().is_err() {
            return false;
        }
        // Another thread may remove the files of this commit.
        drop(self.removing.lock());
        self.remove_backing_files();
        self.run_post_commit_actions();
        true
    }

    /// Waits a moment if removed files still have references: a client's kernel releases them shortly after the
    /// removal. Waits at most once per [`RELEASE_INTERVAL`], because a client may have such a file open.
    fn wait_for_release(&self, is_released: impl Fn() -> bool) {
        let (time, waited) = (now(), self.waited_for_release.load(Ordering::Relaxed));
        let has_unlinked = self.unlinked_in_use.load(Ordering::Relaxed) > 0;
        if !has_unlinked || time.saturating_sub(waited) < RELEASE_INTERVAL.as_nanos() as i64 {
            return;
        }
        self.waited_for_release.store(time, Ordering::Relaxed);
        for _ in 0..RELEASE_POLLS {
            std::thread::sleep(RELEASE_POLL);
            if is_released() {
                return;
            }
        }
    }

    /// Calls `attempt`. After an error of kind `NoSpace`, completes pending frees, then uses the reserve files, and calls
    /// `attempt` again. Acquires write locks of files, so the calling thread must not hold one.
    pub(super) fn with_space<T>(&self, attempt: impl Fn() -> Result<T>) -> Result<T> {
        match self.with_reserve(&attempt) {
            Err(error) if error.kind() == ErrorKind::NoSpace && self.complete_pending_frees() => {
                self.with_reserve(attempt)
            }
            result => result,
        }
    }

    /// Calls `attempt`, and again while the filesystem of a disk is full and its reserve file can be shortened: other
    /// programs, or a reserve file that grew, may have used up the space that an earlier check found.
    pub(super) fn with_reserve<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 0..RELEASES_MAX {
            match attempt() {
                Err(error)
                    if error.kind() == ErrorKind::NoSpace && error.is_of_system() && self.free_space.release() => {}
                result => return result,
            }
        }
        attempt()
    }

    /// Closes descriptors of synced files down to half of the maximum if there are more than the maximum.
    fn close_surplus_handles(&self) {
        if crate::file::open_handles() <= self.options.handles_max {
            return;
        }
        for file in self.regular_files() {
            if crate::file::open_handles() <= self.options.handles_max / 2 {
                break;
            }
            file.close_handles();
        }
    }
}

#[cfg(test)]
mod tests;
