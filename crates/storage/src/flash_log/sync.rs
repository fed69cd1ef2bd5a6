//! A sync of redo: flash and the cell disks at once.

use super::capture::{Capture, Captured};
use super::format::Mark;
use super::state::{Durable, State, Wait};
use super::statistics::increase;
use super::{FlashLog, notes};
use crate::error::{Error, ErrorKind, Result};
use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a sync that waits checks whether the flash disk still answers.
const TIMEOUT_CHECK: Duration = Duration::from_secs(1);

/// A file whose syncs use the log.
pub trait RedoFile: Send + Sync + 'static {
    fn ino(&self) -> u64;
    /// The writes since the last sync.
    fn capture(&self) -> &Mutex<Capture>;
    /// Makes durable on the cell disks what the file contains. Calls may not overlap.
    fn sync_to_disks(&self) -> Result<()>;
}

impl FlashLog {
    /// Makes durable every write to the file that was acknowledged before the call: in flash or on the cell disks, whichever is
    /// first. With `only_disks`, on the cell disks.
    pub fn sync(self: &Arc<Self>, file: &Arc<impl RedoFile>, only_disks: bool) -> Result<()> {
        self.check_timeout();
        let (begun, started) = (Instant::now(), self.begin(file, only_disks)?);
        let Some((wait, is_to_run)) = started else { return Ok(()) };
        self.work.notify_one();
        if is_to_run {
            self.start_disk_syncs(file);
        }
        let result = self.wait(&wait);
        while self.options.simulated.is_some() && self.simulation.lock().next() & 3 == 0 && self.simulation_step() {}
        let took = begun.elapsed();
        increase(&self.counters.syncs, 1);
        increase(&self.counters.sync_nanoseconds, took.as_nanos() as u64);
        match (wait.skip, &result) {
            (Some(_), _) if took > self.options.outlier => increase(&self.counters.skip_outliers, 1),
            (Some(_), _) | (None, Err(_)) => {}
            (None, Ok(first)) => {
                increase(&self.counters.writes, 1);
                let first =
                    if *first == Durable::InFlash { &self.counters.flash_first } else { &self.counters.disk_first };
                increase(first, 1);
            }
        }
        result.map(drop)
    }

    /// Returns what the sync waits for, and whether syncs of the cell disks are to be started. None if nothing has changed.
    fn begin(&self, file: &Arc<impl RedoFile>, only_disks: bool) -> Result<Option<(Wait, bool)>> {
        // The order of records is the order of writes: a sync takes the writes and gets its sequence under the same lock.
        let mut capture = file.capture().lock();
        let mut state = self.state.lock();
        // Writes are not captured after the flash disk has failed.
        let captured = match (capture.take(), only_disks || state.has_failed) {
            (_, true) => Captured::OnlyDisks,
            (captured, false) => captured,
        };
        let Some(wait) = state.begin(file.ino(), captured, self.options.busy_after)? else { return Ok(None) };
        if let Some(skip) = wait.skip.filter(|_| !state.has_failed) {
            self.counters.skipped(skip);
        }
        let syncs = state.files.get_mut(&file.ino()).expect("the sync has begun");
        let is_to_run = !std::mem::replace(&mut syncs.is_running, true);
        Ok(Some((wait, is_to_run)))
    }

    fn wait(self: &Arc<Self>, wait: &Wait) -> Result<Durable> {
        let mut state = self.state.lock();
        let result = loop {
            match state.check(wait) {
                Ok(None) if state.is_stopped => {
                    break Err(Error::new(ErrorKind::Io, "the cell stopped during a sync of WAL"));
                }
                Ok(None) => self.wait_for_progress(&mut state),
                Ok(Some(first)) => break Ok(first),
                Err(error) => break Err(error),
            }
        };
        state.end(wait);
        result
    }

    fn wait_for_progress(self: &Arc<Self>, state: &mut MutexGuard<'_, State>) {
        if self.options.simulated.is_none() {
            if self.progress.wait_for(state, TIMEOUT_CHECK).timed_out() {
                MutexGuard::unlocked(state, || self.check_timeout());
            }
            return;
        }
        MutexGuard::unlocked(state, || {
            if !self.simulation_step() {
                self.retire_if_due();
                self.revoke_if_due();
            }
        });
    }

    /// Switches the log off if the flash disk does not answer.
    fn check_timeout(self: &Arc<Self>) {
        let since = self.state.lock().writing_since;
        if let (Some(since), Some(timeout)) = (since, self.options.timeout)
            && since.elapsed() > timeout
        {
            self.fail(&io::Error::new(io::ErrorKind::TimedOut, format!("the disk did not answer within {timeout:?}")));
        }
    }

    fn start_disk_syncs(self: &Arc<Self>, file: &Arc<impl RedoFile>) {
        let (log, file) = (self.clone(), file.clone());
        if self.options.simulated.is_some() {
            let job = move |log: &Arc<Self>| log.run_disk_syncs(&*file);
            return self.simulation.lock().jobs.push_back(Box::new(job));
        }
        let ino = file.ino();
        if let Err(error) = self.pool.spawn(move || log.run_disk_syncs(&*file)) {
            let error = Error::io("could not start a thread for the sync of a WAL file", error);
            let mut state = self.state.lock();
            if let Some(syncs) = state.files.get_mut(&ino) {
                (syncs.is_running, syncs.error) = (false, Some(error.clone()));
            }
            state.disk_error.get_or_insert(error);
        }
    }

    /// Syncs a file on the cell disks until no sync is requested.
    fn run_disk_syncs(self: &Arc<Self>, file: &impl RedoFile) {
        let ino = file.ino();
        loop {
            let (number, covered) = {
                let mut state = self.state.lock();
                let is_stopped = state.is_stopped;
                let Some(syncs) = state.files.get_mut(&ino) else { return };
                if syncs.begun >= syncs.requested || syncs.error.is_some() || is_stopped {
                    syncs.is_running = false;
                    break;
                }
                syncs.begun = syncs.requested;
                (syncs.begun, syncs.last_sequence)
            };
            let panicked = || Error::new(ErrorKind::Io, format!("a sync of inode {ino} panicked"));
            let synced = catch_unwind(AssertUnwindSafe(|| file.sync_to_disks())).unwrap_or_else(|_| Err(panicked()));
            {
                let mut state = self.state.lock();
                let is_removed = state.files.get(&ino).is_some_and(|syncs| syncs.is_removed);
                match synced {
                    Ok(()) => state.synced(ino, (number, covered), &self.counters, self.options.outlier),
                    Err(error) if is_removed => {
                        log::debug!("{error}; the file was removed");
                        state.synced(ino, (number, covered), &self.counters, self.options.outlier);
                    }
                    Err(error) => {
                        increase(&self.counters.disk_errors, 1);
                        log::error!(
                            "{error}; later syncs of WAL fail; the redo stays in the flash log: restart the cell, which writes the \
                             redo to the file again"
                        );
                        let syncs = state.files.get_mut(&ino).expect("syncs of the file run");
                        syncs.error = Some(error.clone());
                        state.disk_error.get_or_insert(error);
                    }
                }
            }
            self.progress.notify_all();
            // The writer waits for a time without redo, which may begin now.
            self.work.notify_one();
            self.retire_if_due();
            self.revoke_if_due();
        }
        self.progress.notify_all();
    }

    /// Forgets the records of a file whose removal is durable: no start applies them.
    pub fn forget(self: &Arc<Self>, ino: u64) {
        if !self.state.lock().forget(ino) {
            return;
        }
        self.progress.notify_all();
        self.work.notify_one();
        if self.options.simulated.is_none() {
            let log = self.clone();
            let retire = move || {
                log.retire_if_due();
                log.revoke_if_due();
            };
            if let Err(error) = self.pool.spawn(retire) {
                log::warn!("could not start a thread of the flash log: {error}");
            }
        }
    }

    /// Lets the cell disks, and flash, record what is retired if a sync waits for nothing else.
    fn retire_if_due(&self) {
        // One after the other: the mark never decreases.
        let _only_one = self.notes.lock();
        let Some(retired) = self.state.lock().needed_mark() else { return };
        self.work.notify_one();
        let marked = notes::mark(self.cell_disks.as_ref(), &Mark { generation: self.generation, retired });
        let mut state = self.state.lock();
        match marked {
            Ok(()) => {
                state.retire(retired);
                state.mark_error = None;
            }
            Err(error) => {
                log::error!("{error}; syncs of WAL that flash does not have fail");
                state.mark_error = Some(error);
            }
        }
        drop(state);
        self.progress.notify_all();
    }

    /// Runs one step of a simulation: a write to flash or a sync of the cell disks. Returns false if there is none.
    pub(super) fn simulation_step(self: &Arc<Self>) -> bool {
        if self.options.simulated.is_none() {
            return false;
        }
        let (flash_is_first, job) = {
            let mut simulation = self.simulation.lock();
            let random = simulation.next();
            let flash_is_first = random & 1 == 0;
            (flash_is_first, if flash_is_first { None } else { simulation.jobs.pop_front() })
        };
        if flash_is_first && self.write_batch() {
            return true;
        }
        let job = job.or_else(|| self.simulation.lock().jobs.pop_front());
        match job {
            Some(job) => {
                job(self);
                true
            }
            None => !flash_is_first && self.write_batch(),
        }
    }
}

impl super::Simulation {
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 20
    }
}
