//! Write-back: small writes of whole pages go to a log on flash disks, and to the cell disks later.
//!
//! A write-back disk is above the flash cache and the stripes, so a destage is an ordinary change for them. `README.md` beside
//! this file has the rules that keep every synced page after a crash.
//!
//! Lock order: destage, cleaning of an object, noted files, state of an object, log. None of the last two is held while a cell disk is written.

mod destage;
mod disk;
mod format;
mod log;
mod noted_files;
mod notes;
mod object;
mod recovery;
#[cfg(test)]
pub(crate) mod tests;

pub use disk::WriteBackDisk;
pub use notes::LackingFiles;
pub use recovery::Left;

use crate::disk::{Disk, FileStore};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::flash::{CellDisks, FlashCache, Generation, Object};
use crate::growing::Growing;
use ::log::info;
use destage::Destager;
use log::Log;
use object::DirtyObject;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Destages before a clean stop: more than one only if clients still write.
const CLOSING_DESTAGES: usize = 3;

/// The write-back log of a volume, on the first two disks of its flash cache.
#[derive(Debug, Clone, Copy)]
pub struct WriteBackOptions {
    /// Bytes of the log on each of its flash disks.
    pub size: u64,
    pub segment_bytes: u64,
    /// Allows a log on one flash disk, whose failure loses pages that the cell disks lack.
    pub allows_one_disk: bool,
    /// Redo goes to the log, too, and to the cell disks later.
    pub takes_redo: bool,
    /// Destages in a background thread. Without it, pages stay in flash until the log is full or the volume is closed.
    pub destages_in_background: bool,
}

impl WriteBackOptions {
    /// The smallest number of segments.
    const SEGMENTS_MIN: u64 = 6;

    fn segments(&self) -> u64 {
        self.size / self.segment_bytes
    }
}

/// What write-back did since the volume was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteBackStats {
    /// Bytes of pages that the cell disks do not have yet.
    pub dirty_bytes: u64,
    /// Bytes of pages that were written to flash, and those among them that were dirty before.
    pub written_bytes: u64,
    pub overwritten_bytes: u64,
    /// Bytes that were written from flash to the cell disks, and the requests for them.
    pub destaged_bytes: u64,
    pub destage_requests: u64,
    /// Bytes that the start found in flash and wrote to the cell disks.
    pub recovered_bytes: u64,
    /// Records of pages that were written to flash, and those among them of which all pages were dirty before.
    pub write_requests: u64,
    pub overwrite_requests: u64,
    /// What of `written_bytes` and `write_requests` is redo.
    pub redo_bytes: u64,
    pub redo_requests: u64,
    /// Writes of redo that went to the cell disks because the log was nearly full or not in use.
    pub redo_skips: u64,
    /// Bytes of the log on each flash disk, and those of its segments in use; 0 while everything is written through.
    pub log_bytes: u64,
    pub used_bytes: u64,
    /// The flash disks of the log, and those among them that have all dirty pages.
    pub disks: usize,
    pub disks_left: usize,
    /// Whether small writes go to the log.
    pub is_on: bool,
    /// Whether redo goes to the log while small writes do.
    pub takes_redo: bool,
    /// All pages are written to the cell disks, because a command says so.
    pub is_flushing: bool,
}

#[derive(Debug, Default)]
struct Counters {
    dirty_pages: AtomicU64,
    written_pages: AtomicU64,
    overwritten_pages: AtomicU64,
    destaged_pages: AtomicU64,
    destage_requests: AtomicU64,
    recovered_pages: AtomicU64,
    write_requests: AtomicU64,
    overwrite_requests: AtomicU64,
    redo_pages: AtomicU64,
    redo_requests: AtomicU64,
    redo_skips: AtomicU64,
}

#[derive(Debug)]
pub struct WriteBack {
    cache: Arc<FlashCache>,
    /// The last one is in use. Before the first, everything is written through. Each command that begins write-back adds one.
    logs: Growing<Arc<Log>>,
    /// The inodes of the files that the cell disks name: they may lack changes. Held while that changes.
    noted_files: Mutex<BTreeSet<u64>>,
    /// What is below, by number of the stripe.
    stripes: RwLock<HashMap<u16, Arc<dyn FileStore>>>,
    objects: Mutex<HashMap<Object, Arc<DirtyObject>>>,
    destager: Destager,
    counters: Counters,
}

impl WriteBack {
    pub fn new(cache: Arc<FlashCache>) -> Self {
        Self {
            cache,
            logs: Growing::new(Vec::new()),
            noted_files: Mutex::default(),
            stripes: RwLock::default(),
            objects: Mutex::default(),
            destager: Destager::default(),
            counters: Counters::default(),
        }
    }

    /// Begins a log, unless there is one. What an earlier one has was written to the cell disks, and they name none.
    pub fn start(
        self: &Arc<Self>,
        options: &WriteBackOptions,
        disks: &[Arc<dyn Disk>],
        cell_disks: &Arc<dyn CellDisks>,
    ) -> Result<()> {
        if self.log().is_some() {
            return Ok(());
        }
        let disks = disks[..disks.len().min(2)].to_vec();
        if disks.len() < 2 && !options.allows_one_disk {
            let message = "write-back needs two flash disks: if the only one fails, pages are lost that the cell disks lack; add a \
                           flash disk, or use write-through";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        if options.segments() < WriteBackOptions::SEGMENTS_MIN {
            let message = format!(
                "the write-back log of {} bytes is too small; the smallest size is {} bytes",
                options.size,
                WriteBackOptions::SEGMENTS_MIN * options.segment_bytes
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        // An earlier end may have failed to do this.
        notes::write(cell_disks.as_ref(), None)?;
        log::remove_segments(&disks);
        let generation = Generation::random().context(|| "could not read /dev/urandom".into())?;
        if let Err(error) = log::name_disks(&disks, generation) {
            ::log::error!(
                "could not write to the flash disks of the write-back log: {error}; writes go to the cell disks"
            );
            return Ok(());
        }
        // Locked until the log is in use: a sync that began in the former log may still write the names of that log's files, and
        // must not replace the note about redo of this one.
        let mut noted = self.noted_files.lock();
        if options.takes_redo {
            // Before the cell disks name the log: no sync of redo waits for this note.
            notes::write_files(
                cell_disks.as_ref(),
                &format::FilesNote { generation, has_redo: true, inodes: Vec::new() },
            )?;
        }
        let log = Log::begin(generation, disks, cell_disks.clone(), options, self.last_log())?;
        // The present note of files names the generation of the former log, so no file is noted for this one.
        noted.clear();
        self.objects.lock().values().for_each(|object| object.is_noted.store(false, Ordering::Release));
        self.logs.push(Arc::new(log));
        drop(noted);
        if options.destages_in_background {
            self.destager.start(self).context(|| "could not start the thread that destages".into())?;
        }
        let redo = if options.takes_redo { ", redo included" } else { "" };
        info!("write-back log of {} MiB{redo}", options.size >> 20);
        Ok(())
    }

    /// Returns the last log unless it has ended: the one that writes use.
    fn log(&self) -> Option<&Log> {
        self.last_log().filter(|log| !log.is_ended())
    }

    fn last_log(&self) -> Option<&Log> {
        self.logs.all().last().map(|log| &**log)
    }

    fn object(&self, object: Object) -> Arc<DirtyObject> {
        self.objects.lock().entry(object).or_insert_with(|| Arc::new(DirtyObject::new(object))).clone()
    }

    fn objects(&self) -> Vec<Arc<DirtyObject>> {
        self.objects.lock().values().cloned().collect()
    }

    /// Writes the notes about the log to a cell disk that joins the group or returns, so that they are equal to those of the other cell
    /// disks. The notes do not change while the caller keeps the result: until the disk is accessible, and changes reach it.
    pub fn give_notes_to(&self, disk: &dyn Disk) -> Result<Option<NotesGuard<'_>>> {
        let Some(log) = self.log() else { return notes::give_to(disk, None).map(|()| None) };
        let (files, note) = (self.noted_files.lock(), log.note());
        notes::give_files_to(disk, &log.files_note(&files))?;
        notes::give_to(disk, Some(&note))?;
        Ok(Some(NotesGuard { _files: files, _note: note }))
    }

    /// Makes a disk that joins the group, or returns, name no log, for a volume without write-back.
    pub fn clear_notes_of(disk: &dyn Disk) -> Result<()> {
        notes::give_to(disk, None)
    }

    /// Writes all dirty pages to the cell disks and ends the log, before a clean stop. Clients whose mount could not be removed may
    /// still write: their writes go to the cell disks, and an error leaves the log for the next start if pages stay dirty.
    pub fn close(&self) -> Result<()> {
        self.stop();
        let Some(log) = self.last_log() else { return Ok(()) };
        log.set_ending(true);
        let is_dirty = || self.objects().iter().any(|object| object.is_dirty());
        for _ in 0..CLOSING_DESTAGES {
            self.destage().context(|| "could not write the pages of the write-back log to the cell disks".into())?;
            if !is_dirty() {
                break;
            }
        }
        // A flush that still runs would remove segments, too.
        let _no_destage = self.destager.destaging.lock();
        if is_dirty() {
            let message = "files changed during the stop; the next start writes the pages of the write-back log to the cell disks";
            return Err(Error::new(ErrorKind::Io, message.to_owned()));
        }
        log.end()
    }

    /// Writes all dirty pages to the cell disks while the files are in use, and ends the log: everything is written through until
    /// [`Self::start`]. After an error, the log is in use as before, or everything is written through and the cell disks may still
    /// name the log.
    pub fn end(&self) -> Result<()> {
        let Some(log) = self.last_log() else { return Ok(()) };
        log.set_ending(true);
        self.flush().inspect_err(|_| {
            log.set_flushing(false);
            log.set_ending(false);
        })?;
        // Writers find no dirty page, and add none. A destage would remove segments, too.
        let _no_destage = self.destager.destaging.lock();
        log.end()?;
        info!("the write-back log was ended: writes go to the cell disks");
        Ok(())
    }

    /// Stops the background thread without changing anything, like a crash.
    pub fn stop(&self) {
        self.destager.stop();
    }

    pub fn stats(&self) -> WriteBackStats {
        let bytes = |pages: &AtomicU64| pages.load(Ordering::Relaxed) * format::PAGE;
        let counters = &self.counters;
        WriteBackStats {
            dirty_bytes: bytes(&counters.dirty_pages),
            written_bytes: bytes(&counters.written_pages),
            overwritten_bytes: bytes(&counters.overwritten_pages),
            destaged_bytes: bytes(&counters.destaged_pages),
            destage_requests: counters.destage_requests.load(Ordering::Relaxed),
            recovered_bytes: bytes(&counters.recovered_pages),
            write_requests: counters.write_requests.load(Ordering::Relaxed),
            overwrite_requests: counters.overwrite_requests.load(Ordering::Relaxed),
            redo_bytes: bytes(&counters.redo_pages),
            redo_requests: counters.redo_requests.load(Ordering::Relaxed),
            redo_skips: counters.redo_skips.load(Ordering::Relaxed),
            ..self.log().map(Log::state).unwrap_or_default()
        }
    }
}

/// Keeps the notes as they are.
#[derive(Debug)]
pub struct NotesGuard<'a> {
    _files: MutexGuard<'a, BTreeSet<u64>>,
    _note: MutexGuard<'a, format::Note>,
}
