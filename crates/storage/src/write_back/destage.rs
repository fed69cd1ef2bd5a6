//! Writing dirty pages to the cell disks, in the order of their offsets.

use super::WriteBack;
use super::format::{PAGE, PAGE_BYTES, PIECES_MAX, Piece};
use super::log::{Log, Purpose, Refused};
use super::object::{Cleaned, DirtyObject};
use crate::error::{Context, Error, ErrorKind};
use crate::request::{Origin, within};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// Successive pages are written to the cell disks in requests of this size.
const RUN_PAGES: usize = 128;
/// A destage begins when the log has this part of its segments in use, in percent.
const USED_PERCENT: usize = 50;
/// After an error, a destage is repeated after this time.
const RETRY_DELAY: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct Waiting {
    is_due: bool,
    is_stopped: bool,
}

#[derive(Debug, Default)]
pub struct Destager {
    /// Held during a destage, and while a log ends.
    pub(super) destaging: Mutex<()>,
    waiting: Mutex<Waiting>,
    wake: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Destager {
    /// Starts the thread, unless it runs.
    pub fn start(&self, write_back: &Arc<WriteBack>) -> io::Result<()> {
        if self.thread.lock().is_some() {
            return Ok(());
        }
        let (write_back, builder) = (write_back.clone(), std::thread::Builder::new().name("destage".into()));
        *self.thread.lock() = Some(builder.spawn(move || within(Origin::CELL, || work(&write_back)))?);
        Ok(())
    }

    pub fn stop(&self) {
        self.waiting.lock().is_stopped = true;
        self.wake.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            ::log::error!("the thread that destages panicked");
        }
    }

    fn request(&self) {
        self.waiting.lock().is_due = true;
        self.wake.notify_one();
    }
}

fn work(write_back: &WriteBack) {
    let destager = &write_back.destager;
    loop {
        {
            let mut waiting = destager.waiting.lock();
            while !waiting.is_due && !waiting.is_stopped {
                destager.wake.wait(&mut waiting);
            }
            if waiting.is_stopped {
                return;
            }
            waiting.is_due = false;
        }
        if let Err(error) = write_back.destage() {
            ::log::error!("could not write pages of the write-back log to the cell disks: {error}");
            let mut waiting = destager.waiting.lock();
            waiting.is_due = write_back.log().is_some_and(Log::is_writable);
            if !waiting.is_stopped {
                destager.wake.wait_for(&mut waiting, RETRY_DELAY);
            }
        }
    }
}

impl WriteBack {
    /// Wakes the background thread if much of the log is in use, or if dirty pages have lost one of their two copies.
    pub(super) fn destage_if_due(&self, log: &Log) {
        let (used, max) = log.used_segments();
        let lacks_copies =
            || log.is_writable() && !log.takes_pages() && self.counters.dirty_pages.load(Ordering::Relaxed) > 0;
        if used * 100 >= max * USED_PERCENT || lacks_copies() {
            self.destager.request();
        }
    }

    /// Writes all dirty pages to the cell disks, and all other pages through from now on, until [`Self::cancel_flush`]. Without an
    /// error, no page is dirty on return.
    pub fn flush(&self) -> crate::error::Result<()> {
        let Some(log) = self.log() else { return Ok(()) };
        log.set_flushing(true);
        loop {
            self.destage().context(|| "could not write the pages of the write-back log to the cell disks".into())?;
            // Locks the state of each object: a writer that found the log without the flag has made its pages dirty.
            if log.is_ended() || !self.objects().iter().any(|object| object.is_dirty()) {
                return Ok(());
            }
            if !log.is_flushing() || self.destager.waiting.lock().is_stopped {
                return Err(Error::new(ErrorKind::Invalid, "the flush of the flash cache was cancelled"));
            }
        }
    }

    /// Lets pages become dirty again.
    pub fn cancel_flush(&self) {
        if let Some(log) = self.log() {
            log.set_flushing(false);
        }
    }

    /// Writes all pages that are dirty now to the cell disks, and frees their space in the log.
    pub(super) fn destage(&self) -> io::Result<()> {
        let _one_at_a_time = self.destager.destaging.lock();
        let Some(log) = self.log() else { return Ok(()) };
        let mut objects = self.objects();
        objects.retain(|object| object.is_dirty());
        objects.sort_by_key(|object| (object.object.stripe, object.object.ino));
        let mut result = Ok(());
        for batch in objects.chunks(PIECES_MAX) {
            let mut cleaned = Vec::new();
            for object in batch {
                let _cleaning = object.cleaning.lock();
                match self.write_down(object, 0..u32::MAX) {
                    Ok(pages) => cleaned.extend(pages),
                    Err(error) => result = Err(error),
                }
            }
            let finished = self.finish(log, Purpose::Destage, &cleaned, |cleaned| {
                // Another thread that writes these pages to the cell disks must have ended: from now on, a write may go to the cell
                // disks without the log.
                let _cleaning = cleaned.object.cleaning.lock();
                cleaned.finish()
            });
            // The segments of the batches before are free.
            if let Err(error) = finished {
                result = Err(error.into());
                break;
            }
        }
        self.forget_files(log);
        log.trim()?;
        result
    }

    /// Writes the dirty pages of a range durably to the cell disks. The pages stay dirty until [`Self::finish`]. The caller
    /// holds the cleaning lock, so the log in which the pages are dirty does not end.
    fn write_down(&self, object: &Arc<DirtyObject>, pages: Range<u32>) -> io::Result<Option<Cleaned>> {
        let dirty = object.dirty(pages)?;
        if dirty.is_empty() {
            return Ok(None);
        }
        let Some(log) = self.log() else { return Ok(None) };
        let store = self.stripes.read().get(&object.object.stripe).cloned();
        let file = match store {
            Some(store) => store.open(object.object.ino, object.object.stream, false)?,
            None => None,
        };
        let file = file.ok_or_else(|| io::Error::other("a file with pages in the write-back log is missing"))?;
        for run in runs(&dirty) {
            let mut bytes = vec![0; run.len() * PAGE_BYTES];
            for ((_, place), page) in run.iter().zip(bytes.chunks_exact_mut(PAGE_BYTES)) {
                log.read(&place.segment, page, place.offset, false)?;
            }
            file.write_at(&bytes, u64::from(run[0].0) * PAGE)?;
            self.counters.destaged_pages.fetch_add(run.len() as u64, Ordering::Relaxed);
            self.counters.destage_requests.fetch_add(1, Ordering::Relaxed);
        }
        object.sync_internally(|| file.sync())?;
        Ok(Some(Cleaned::new(object.clone(), &dirty)))
    }

    /// Writes a durable record which says that pages are clean, then calls `forget` for each element of `cleaned`.
    fn finish(
        &self,
        log: &Log,
        purpose: Purpose,
        cleaned: &[Cleaned],
        forget: impl Fn(&Cleaned) -> u64,
    ) -> Result<(), Refused> {
        if cleaned.is_empty() {
            return Ok(());
        }
        let pieces: Vec<Piece> = cleaned.iter().map(Cleaned::piece).collect();
        self.record(log, purpose, &pieces)?;
        let removed = cleaned.iter().map(forget).sum();
        self.counters.dirty_pages.fetch_sub(removed, Ordering::Relaxed);
        Ok(())
    }

    /// Makes a record without pages durable.
    fn record(&self, log: &Log, purpose: Purpose, pieces: &[Piece]) -> Result<(), Refused> {
        let appended = log.append(purpose, pieces, &[])?;
        Ok(log.flush(appended.sequence)?)
    }

    /// Runs `change`, which needs space in the log for a record: after a destage if the log is full. The caller holds no lock of
    /// an object.
    ///
    /// The refusal alone decides, not how full the log is afterwards: a destage of another thread may end in between.
    pub(super) fn with_space(&self, mut change: impl FnMut() -> Result<(), Refused>) -> io::Result<()> {
        // The error of a destage may be that of another file: only a change that finds no space after it fails.
        let mut destaged = Ok(());
        loop {
            match change() {
                Ok(()) => return Ok(()),
                Err(Refused::Failed(error)) => return Err(error),
                Err(Refused::Full) => {
                    destaged?;
                    crate::flash::check_may_wait()?;
                    destaged = self.destage();
                }
            }
        }
    }

    /// Writes the dirty pages of a range to the cell disks. Afterwards they are not dirty. The caller holds the cleaning lock.
    pub(super) fn clean(&self, object: &Arc<DirtyObject>, pages: Range<u32>) -> Result<(), Refused> {
        let Some(cleaned) = self.write_down(object, pages)? else { return Ok(()) };
        let Some(log) = self.log() else { return Ok(()) };
        self.finish(log, Purpose::Removal, &[cleaned], Cleaned::finish)
    }

    /// Makes the pages from `first` on clean without writing them to the cell disks: the file became shorter, or is about to be
    /// removed. The caller holds the cleaning lock.
    pub(super) fn drop_from(&self, object: &DirtyObject, first: u32) -> Result<(), Refused> {
        let (is_dirty, up_to) = {
            let state = object.state.lock();
            (state.pages.range(first..).next().is_some(), state.last)
        };
        let Some(log) = self.log().filter(|_| is_dirty) else { return Ok(()) };
        // If all flash disks have failed, the notes of the cell disks already say that no record counts.
        if log.is_alive() {
            let piece = Piece::Clean { object: object.object, first, last: u32::MAX, up_to };
            self.record(log, Purpose::Removal, &[piece])?;
        }
        let removed = object.state.lock().remove_from(first);
        self.counters.dirty_pages.fetch_sub(removed, Ordering::Relaxed);
        Ok(())
    }
}

/// Splits pages, in the order of their numbers, into runs of successive ones.
pub fn runs<P>(pages: &[(u32, P)]) -> impl Iterator<Item = &[(u32, P)]> {
    let successive = pages.chunk_by(|(one, _), (next, _)| one + 1 == *next);
    successive.flat_map(|run| run.chunks(RUN_PAGES))
}
