//! What the volume does by itself: writing what waits in memory, committing metadata, removing dead backing files.
//!
//! Invariants: `pending` is the sum of all files' waiting bytes; a file with waiting bytes is in the list. Background
//! failures are kept for the next sync of the file and logged.

use super::Volume;
use crate::disk::Disk;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::file::FileData;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(100);
/// A write waits this long at most before it is sent to disk.
const WAIT_MAX: Duration = Duration::from_millis(500);
/// A file with this much waiting is written early. More than the ring buffer of a bulk load (16 MiB), so that a block
/// that is extended with zeros and filled soon after reaches the disk once.
const FILE_WAITING_MAX: usize = 32 << 20;
/// Nothing waits in memory unless every disk keeps this much room: then a full disk fails the write, not a later sync.
const ROOM_MIN: u64 = 256 << 20;
/// Data leave this much room on every disk, or a sixteenth of a small one, to the metadata: without it nothing could
/// be removed from a full disk.
const METADATA_ROOM: u64 = 16 << 20;
const ROOM_AGE_MAX: Duration = Duration::from_millis(50);
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);
const TIMES_INTERVAL: Duration = Duration::from_secs(30);

/// How a write reaches the disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It may wait in memory.
    Memory,
    /// It goes to disk at once.
    Through,
}

/// Files with waiting writes.
#[derive(Debug)]
pub struct FlushList {
    files: Mutex<Vec<(Instant, Arc<FileData>)>>,
    wake: Condvar,
    pending: AtomicIsize,
    limit: usize,
    /// Bytes that data may still take on the fullest disk, as of `room_checked` (milliseconds since `started`).
    room: AtomicU64,
    room_checked: AtomicU64,
    started: Instant,
}

impl FlushList {
    pub fn new(limit: usize) -> Self {
        Self {
            files: Mutex::default(),
            wake: Condvar::new(),
            pending: AtomicIsize::new(0),
            limit,
            room: AtomicU64::new(0),
            room_checked: AtomicU64::new(u64::MAX),
            started: Instant::now(),
        }
    }

    pub fn pending_bytes(&self) -> usize {
        self.pending.load(Ordering::Relaxed).max(0) as usize
    }

    pub fn is_over_limit(&self) -> bool {
        self.pending_bytes() > self.limit
    }

    /// Where `length` more bytes may go; an error when the disks are full.
    pub fn way(&self, length: u64, disks: &[Arc<dyn Disk>]) -> Result<Way> {
        let now = self.started.elapsed().as_millis() as u64;
        let checked = self.room_checked.load(Ordering::Relaxed);
        let is_current = checked != u64::MAX && now.saturating_sub(checked) <= ROOM_AGE_MAX.as_millis() as u64;
        let enough = self.pending_bytes() as u64 + length + ROOM_MIN;
        if !is_current || self.room.load(Ordering::Relaxed) <= enough {
            let mut least = u64::MAX;
            for disk in disks {
                let path = disk.path().display();
                let space = disk.space().context(|| format!("statvfs of cell disk {path}"))?;
                least = least.min(space.available.saturating_sub(METADATA_ROOM.min(space.total / 16)));
            }
            self.room.store(least, Ordering::Relaxed);
            self.room_checked.store(now, Ordering::Relaxed);
        }
        match self.room.load(Ordering::Relaxed) {
            room if room > enough && self.limit > 0 => Ok(Way::Memory),
            room if room >= length => Ok(Way::Through),
            room => {
                let message = format!("no room for {length} more bytes: a cell disk has {room} left for data");
                Err(Error::new(ErrorKind::NoSpace, message))
            }
        }
    }

    /// Counts a file's newly waiting bytes.
    pub fn add(&self, file: &Arc<FileData>, change: isize) {
        let pending = self.pending.fetch_add(change, Ordering::Relaxed) + change;
        if !file.listed.swap(true, Ordering::AcqRel) {
            self.files.lock().push((Instant::now(), file.clone()));
        }
        if pending > FILE_WAITING_MAX as isize && pending / (1 << 20) != (pending - change) / (1 << 20) {
            self.wake.notify_one();
        }
    }

    /// Counts bytes that no longer wait.
    pub fn flushed(&self, bytes: usize) {
        self.adjust(-(bytes as isize));
    }

    /// Counts a change of the bytes that wait.
    pub fn adjust(&self, change: isize) {
        if change != 0 {
            self.pending.fetch_add(change, Ordering::Relaxed);
        }
    }

    /// Waits for the next tick or for a file that must be written early.
    fn wait(&self) {
        let mut files = self.files.lock();
        self.wake.wait_for(&mut files, TICK);
    }

    fn flush_due(&self) {
        let due: Vec<(Instant, Arc<FileData>)> = {
            let mut files = self.files.lock();
            let crowded = self.pending_bytes() > self.limit / 2;
            let is_due = |(since, file): &mut (Instant, Arc<FileData>)| {
                crowded || since.elapsed() >= WAIT_MAX || file.pending_bytes() >= FILE_WAITING_MAX
            };
            files.extract_if(.., is_due).collect()
        };
        for (_, file) in due {
            file.listed.store(false, Ordering::Release);
            match file.flush_in_background() {
                Ok(bytes) => self.flushed(bytes),
                Err(error) => {
                    log::error!("{error}; the next sync of the file will fail");
                    if !file.listed.swap(true, Ordering::AcqRel) {
                        self.files.lock().push((Instant::now(), file));
                    }
                }
            }
        }
    }
}

#[derive(Debug)]
pub struct Background {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    pub fn start(volume: &Arc<Volume>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(body).context(|| format!("starting thread {name}"))
        };
        let (list, flusher_stop) = (volume.flush_list.clone(), stop.clone());
        let flusher = spawn(
            "flusher",
            Box::new(move || {
                while !flusher_stop.load(Ordering::Acquire) {
                    list.wait();
                    list.flush_due();
                }
            }),
        )?;
        let (weak, keeper_stop) = (Arc::downgrade(volume), stop.clone());
        let keeper = spawn("keeper", Box::new(move || keep(weak, &keeper_stop)))?;
        let (cache, populate_stop) = (volume.cache.clone(), stop.clone());
        let populate = spawn("populate", Box::new(move || cache.populate(|| populate_stop.load(Ordering::Acquire))))?;
        Ok(Self { stop, threads: vec![flusher, keeper, populate] })
    }

    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads {
            thread.thread().unpark();
            if thread.join().is_err() {
                log::error!("a background thread of the volume panicked");
            }
        }
    }
}

/// Commits metadata once a second, times of files now and then, and closes descriptors when there are too many.
fn keep(volume: Weak<Volume>, stop: &AtomicBool) {
    let mut times_committed = Instant::now();
    loop {
        std::thread::park_timeout(COMMIT_INTERVAL);
        if stop.load(Ordering::Acquire) {
            return;
        }
        let Some(volume) = volume.upgrade() else { return };
        let times_due = times_committed.elapsed() >= TIMES_INTERVAL;
        if times_due {
            times_committed = Instant::now();
        }
        if (times_due || volume.namespace.read().has_changes())
            && let Err(error) = volume.commit_everything()
        {
            log::error!("{error}; trying again in a second");
        }
        volume.close_surplus_handles();
    }
}

impl Volume {
    /// Makes the metadata durable up to a change.
    pub(super) fn commit(&self, needed: u64) -> Result<()> {
        if self.committed.load(Ordering::Acquire) >= needed {
            return Ok(());
        }
        let mut stores = self.stores.lock();
        // Another caller's transaction may have brought the change along.
        if self.committed.load(Ordering::Acquire) >= needed {
            return Ok(());
        }
        self.commit_locked(&mut stores)
    }

    pub(super) fn commit_everything(&self) -> Result<()> {
        self.commit_locked(&mut self.stores.lock())
    }

    fn commit_locked(&self, stores: &mut crate::meta::Stores) -> Result<()> {
        let times_dirty = std::mem::take(&mut *self.times_dirty.lock());
        let batch = {
            let mut namespace = self.namespace.write();
            times_dirty.into_iter().for_each(|ino| namespace.mark_times_dirty(ino));
            namespace.has_changes().then(|| namespace.take_batch())
        };
        if let Some(batch) = batch {
            let sequence = batch.sequence;
            if let Err(error) = stores.apply(&batch) {
                self.namespace.write().return_batch(batch);
                return Err(error);
            }
            self.committed.fetch_max(sequence, Ordering::AcqRel);
        }
        self.remove_doomed();
        Ok(())
    }

    /// Removes the backing files of inodes that the stores no longer know.
    fn remove_doomed(&self) {
        let committed = self.committed.load(Ordering::Acquire);
        let dead: Vec<_> = self.doomed.lock().extract_if(.., |(sequence, _)| *sequence <= committed).collect();
        for (_, file) in dead {
            self.flush_list.flushed(file.forget_pending());
            self.cache.forget(&file.cached, 0, u32::MAX);
            if let Err(error) = file.remove() {
                log::warn!("{error}; it will be removed at the next start");
            }
        }
    }

    /// Frees the room of unlinked files now; false when there was none to free.
    pub(super) fn reclaim(&self) -> bool {
        if self.doomed.lock().is_empty() {
            return false;
        }
        self.commit_everything().is_ok()
    }

    fn close_surplus_handles(&self) {
        if crate::file::open_handles() <= self.options.handles_max {
            return;
        }
        let files: Vec<Arc<FileData>> =
            self.namespace.read().nodes().filter_map(|(_, node)| node.file.clone()).collect();
        for file in files {
            if crate::file::open_handles() <= self.options.handles_max / 2 {
                break;
            }
            file.close_handles();
        }
    }
}
