//! The flash log: a sync of redo (a WAL file) is written to a flash disk and to the cell disks at once, and acknowledged when the
//! first of the two is durable, so that a slow cell disk or a slow flash disk makes no commit wait.
//!
//! Invariants:
//! - A sync is acknowledged by flash if the records of the file that are durable in flash have all changes since the cell disks had
//!   everything.
//! - A sync is acknowledged by the cell disks only if no start will apply an older record of the file: older records are *retired*
//!   durably, in flash or on the cell disks. So the newest acknowledged redo wins.
//! - A record is *released* when a sync of the cell disks that began after it has succeeded. Only released records are retired, and
//!   only the space of retired records is written again.
//! - After a failed sync of the cell disks, the file's records stay in flash, and every later sync of redo fails until the cell is
//!   started again.
//!
//! The log knows files by their inodes, and does not know what they contain. It is above the flash cache, the stripes and the
//! copies. Records contain the bytes of writes: a start writes them to the files before it serves anything.
//! Lock order: the capture of a file, then the state of the log. Neither is held during I/O.

mod capture;
mod format;
mod notes;
mod opening;
mod ring;
mod scan;
mod state;
mod statistics;
mod sync;
mod writer;

pub use capture::Capture;
pub use opening::{Lost, Opening};
pub use statistics::FlashLogStats;
pub use sync::RedoFile;

use crate::disk::pool::Pool;
use crate::disk::{Disk, DiskFile};
use crate::error::{Context, Result};
use crate::flash::{CellDisks, FLASH_LOG_NOTE, Generation};
use format::{CellNote, DATA_BYTES_MAX, DiskNote, Mark};
use parking_lot::{Condvar, Mutex, MutexGuard};
use state::State;
use statistics::{Counters, increase};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The flash log of a volume.
#[derive(Debug, Clone)]
pub struct FlashLogOptions {
    /// The log is on the first one. The others are searched for the log of an earlier start.
    pub disks: Vec<Arc<dyn Disk>>,
    /// Bytes of the log. Zero only applies what an earlier start left.
    pub size: u64,
    /// A write of redo that takes longer is an outlier.
    pub outlier: Duration,
    /// While a write to the flash disk takes longer, syncs do not use the log.
    pub busy_after: Duration,
    /// The flash disk has failed if a write takes longer; None to wait as long as it takes.
    pub timeout: Option<Duration>,
    /// Without threads, for simulations: this number selects which of the two goes first.
    pub simulated: Option<u64>,
}

impl FlashLogOptions {
    pub const SIZE_MIN: u64 = 4 * DATA_BYTES_MAX as u64;
    /// A start reads all records that are not retired into memory.
    pub const SIZE_MAX: u64 = 2 << 30;
    /// Returns the options of a log of `size` on the first of some flash disks.
    pub fn new(disks: Vec<Arc<dyn Disk>>, size: u64) -> Self {
        Self {
            disks,
            size,
            outlier: Self::OUTLIER,
            busy_after: Self::BUSY_AFTER,
            timeout: Some(Self::TIMEOUT),
            simulated: None,
        }
    }

    /// As in Exadata.
    pub const OUTLIER: Duration = Duration::from_millis(500);
    pub const BUSY_AFTER: Duration = Duration::from_millis(100);
    pub const TIMEOUT: Duration = Duration::from_secs(10);
}

/// How often a stop checks whether the thread of the log has ended.
const STOP_POLL: Duration = Duration::from_millis(5);

/// While it exists, nothing changes the notes of the cell disks.
pub type NotesGuard<'a> = MutexGuard<'a, CellNote>;

/// A step of a simulation: a sync of the cell disks.
type Job = Box<dyn FnOnce(&Arc<FlashLog>) + Send>;

pub struct FlashLog {
    /// With a time limit for each operation.
    disk: Arc<dyn Disk>,
    ring: Arc<dyn DiskFile>,
    ring_bytes: u64,
    cell_disks: Arc<dyn CellDisks>,
    generation: Generation,
    options: FlashLogOptions,
    state: Mutex<State>,
    /// Something that a sync waits for has changed.
    progress: Condvar,
    /// The writer has something to do.
    work: Condvar,
    /// The note of the cell disks. Locked while it or the mark is written, and while a disk joins the group.
    notes: Mutex<CellNote>,
    counters: Counters,
    /// Runs syncs of the cell disks.
    pool: Arc<Pool>,
    writer: Mutex<Option<JoinHandle<()>>>,
    simulation: Mutex<Simulation>,
    applied: (u64, u64),
}

#[derive(Default)]
struct Simulation {
    random: u64,
    jobs: VecDeque<Job>,
}

impl std::fmt::Debug for FlashLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FlashLog({})", self.disk.path().display())
    }
}

impl FlashLog {
    /// Returns whether syncs use the log, so that writes are to be captured.
    pub fn is_on(&self) -> bool {
        !self.state.lock().has_failed
    }

    /// Returns whether syncs must consider the log: it is on, or the cell disks may still need it.
    pub fn is_needed(&self) -> bool {
        !self.state.lock().is_revoked
    }

    pub fn stats(&self) -> FlashLogStats {
        let state = self.state.lock();
        FlashLogStats {
            is_on: !state.has_failed,
            size_bytes: self.ring_bytes,
            unreleased_records: state.unreleased_records() as u64,
            applied_records: self.applied.0,
            applied_bytes: self.applied.1,
            ..self.counters.read()
        }
    }

    /// Ends the use of the flash disk after an error.
    fn fail(self: &Arc<Self>, error: &io::Error) {
        {
            let mut state = self.state.lock();
            if state.has_failed || state.is_stopped {
                return;
            }
            state.fail();
        }
        increase(&self.counters.flash_errors, 1);
        log::error!(
            "the flash log on {} is switched off: {error}; no redo is lost, syncs of WAL wait for the cell disks; replace the \
             flash disk and restart the cell",
            self.disk.path().display()
        );
        self.progress.notify_all();
        if self.options.simulated.is_none() {
            let log = self.clone();
            if let Err(error) = self.pool.spawn(move || log.revoke_if_due()) {
                log::warn!("could not start a thread of the flash log: {error}");
            }
        }
    }

    /// Lets the cell disks record that they do not need the log, once they have everything that a failed one has.
    fn revoke_if_due(&self) {
        {
            let mut state = self.state.lock();
            let is_due = state.has_failed && state.unreleased_records() == 0 && !state.is_revoked;
            if !is_due || state.is_revoking || state.is_stopped {
                return;
            }
            state.is_revoking = true;
        }
        let written = self.write_not_needed();
        let mut state = self.state.lock();
        state.is_revoking = false;
        match written {
            Ok(()) => state.is_revoked = true,
            Err(error) => {
                log::error!("{error}; syncs of WAL fail until the cell disks record that the flash log is not needed");
                state.mark_error = Some(error);
            }
        }
        drop(state);
        self.progress.notify_all();
    }

    /// Waits until the cell disks have everything, records that they do not need the log, and stops. Nothing changes the files any
    /// more.
    pub fn close(self: &Arc<Self>) -> Result<()> {
        while self.simulation_step() {}
        {
            let mut state = self.state.lock();
            while state.files.values().any(|file| file.is_running) && !state.is_stopped {
                self.progress.wait(&mut state);
            }
            if let Some(error) = &state.disk_error {
                return Err(error.clone());
            }
        }
        self.stop();
        self.write_not_needed().context(|| "could not close the flash log".into())?;
        self.release_disk();
        Ok(())
    }

    /// Makes the cell disks name a log that they do not need.
    fn write_not_needed(&self) -> Result<()> {
        let mut note = self.notes.lock();
        let next = CellNote::after(Some(&note), self.generation);
        notes::write(self.cell_disks.as_ref(), &next)?;
        *note = next;
        Ok(())
    }

    /// Makes a disk that joins the group, or returns, say about the log what the other cell disks say. The caller must keep the
    /// result until the disk is accessible: what is retired meanwhile would be missing on the disk.
    pub fn give_notes_to(&self, disk: &dyn Disk) -> Result<NotesGuard<'_>> {
        let note = self.notes.lock();
        let mark = Mark { generation: self.generation, retired: self.state.lock().retired };
        notes::give(disk, &note, &mark)?;
        Ok(note)
    }

    /// Makes a disk that joins a group without flash log, or returns, name none: while the disk was absent, the other disks may
    /// have stopped to need the log that the disk names.
    pub fn clear_notes_of(disk: &dyn Disk) -> Result<()> {
        notes::clear(disk)
    }

    /// Records on the flash disk that no cell needs it, so that another cell may use it.
    fn release_disk(&self) {
        if self.state.lock().has_failed {
            return;
        }
        let note = DiskNote { generation: opening::NO_GENERATION, ring_bytes: self.ring_bytes };
        if let Err(error) = self.disk.write_note(FLASH_LOG_NOTE, &note.encode()) {
            log::warn!("could not write the note of flash disk {}: {error}", self.disk.path().display());
        }
    }

    /// Stops the threads without changing anything, like a crash.
    pub fn stop(&self) {
        let is_hanging = {
            let mut state = self.state.lock();
            state.is_stopped = true;
            state.has_failed
        };
        self.work.notify_all();
        self.progress.notify_all();
        // The thread of a flash disk that hangs ends when the disk answers.
        let Some(writer) = self.writer.lock().take().filter(|_| !is_hanging) else { return };
        let stopped = Instant::now();
        while !writer.is_finished() && self.options.timeout.is_none_or(|timeout| stopped.elapsed() < timeout) {
            std::thread::sleep(STOP_POLL);
        }
        if !writer.is_finished() {
            log::error!("flash disk {} did not answer until the stop of the flash log", self.disk.path().display());
        } else if writer.join().is_err() {
            log::error!("the thread of the flash log panicked");
        }
    }
}
