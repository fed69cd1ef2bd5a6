//! One backing file of a file: opened at first use, created at first write, and whether it needs a sync.

use crate::disk::{Disk, DiskFile};
use crate::error::{Context, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Backing files that are open now, over all files.
pub static OPEN_HANDLES: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug)]
pub struct Backing {
    ino: u64,
    disk: Arc<dyn Disk>,
    handle: Mutex<Option<Arc<dyn DiskFile>>>,
    unsynced: AtomicBool,
    /// Set when this process created the file and its name is not yet durable.
    unsynced_name: AtomicBool,
}

impl Backing {
    pub fn new(ino: u64, disk: Arc<dyn Disk>) -> Self {
        let (unsynced, unsynced_name) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { ino, disk, handle: Mutex::new(None), unsynced, unsynced_name }
    }

    fn describe(&self, verb: &str) -> String {
        format!("{verb} the backing file of inode {} on cell disk {}", self.ino, self.disk.path().display())
    }

    fn existing(&self) -> Result<Option<Arc<dyn DiskFile>>> {
        let mut handle = self.handle.lock();
        if handle.is_none() {
            *handle = self.disk.open(self.ino, false).context(|| self.describe("opening"))?;
            OPEN_HANDLES.fetch_add(handle.is_some() as usize, Ordering::Relaxed);
        }
        Ok(handle.clone())
    }

    fn created(&self) -> Result<Arc<dyn DiskFile>> {
        if let Some(file) = self.existing()? {
            return Ok(file);
        }
        let mut handle = self.handle.lock();
        if handle.is_none() {
            *handle = self.disk.open(self.ino, true).context(|| self.describe("creating"))?;
            self.unsynced_name.store(true, Ordering::Release);
            OPEN_HANDLES.fetch_add(1, Ordering::Relaxed);
        }
        Ok(handle.clone().expect("just created"))
    }

    /// Length and allocated bytes.
    pub fn measure(&self) -> Result<(u64, u64)> {
        self.disk.measure(self.ino).context(|| self.describe("measuring"))
    }

    pub fn length(&self) -> Result<u64> {
        match self.existing()? {
            Some(file) => file.len().context(|| self.describe("measuring")),
            None => Ok(0),
        }
    }

    /// Fills the buffer; what lies past the end reads as zeros.
    pub fn read(&self, buffer: &mut [u8], offset: u64, direct: bool) -> Result<()> {
        let count = match self.existing()? {
            None => 0,
            Some(file) if direct => file.read_direct(buffer, offset).context(|| self.describe("reading"))?,
            Some(file) => file.read_at(buffer, offset).context(|| self.describe("reading"))?,
        };
        buffer[count..].fill(0);
        Ok(())
    }

    pub fn write(&self, pieces: &[&[u8]], offset: u64) -> Result<()> {
        let file = self.created()?;
        // Set also when the write fails: a prefix may have arrived.
        let result = file.write_pieces(pieces, offset).context(|| self.describe("writing"));
        self.unsynced.store(true, Ordering::Release);
        result
    }

    /// Cuts the backing file to at most `length`, or sets it to exactly that when `exact`.
    pub fn set_length(&self, length: u64, exact: bool) -> Result<()> {
        let current = self.length()?;
        if current == length || !exact && current < length {
            return Ok(());
        }
        let file = self.created()?;
        file.set_len(length).context(|| self.describe("truncating"))?;
        self.unsynced.store(true, Ordering::Release);
        Ok(())
    }

    pub fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> Result<()> {
        let file = self.created()?;
        let result = file.allocate(offset, length, keep_size).context(|| self.describe("allocating room in"));
        self.unsynced.store(true, Ordering::Release);
        result
    }

    pub fn punch(&self, offset: u64, length: u64) -> Result<()> {
        if let Some(file) = self.existing()? {
            file.punch(offset, length).context(|| self.describe("punching a hole in"))?;
            self.unsynced.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Makes everything that was written before the call durable. The caller holds the file's sync lock.
    pub fn sync(&self) -> Result<()> {
        if self.unsynced.swap(false, Ordering::AcqRel) {
            let synced = self.existing().and_then(|file| match file {
                Some(file) => file.sync().context(|| self.describe("syncing")),
                None => Ok(()),
            });
            if synced.is_err() {
                self.unsynced.store(true, Ordering::Release);
                return synced;
            }
        }
        if self.unsynced_name.swap(false, Ordering::AcqRel)
            && let Err(error) = self.disk.sync_name(self.ino)
        {
            self.unsynced_name.store(true, Ordering::Release);
            return Err(error).context(|| self.describe("syncing the name of"));
        }
        Ok(())
    }

    /// Closes the descriptor unless something is unsynced: an error of the kernel's write-back must meet our sync.
    pub fn close(&self) -> bool {
        if self.unsynced.load(Ordering::Acquire) {
            return false;
        }
        let closed = self.handle.lock().take().is_some();
        OPEN_HANDLES.fetch_sub(closed as usize, Ordering::Relaxed);
        closed
    }

    pub fn remove(&self) -> Result<()> {
        self.unsynced.store(false, Ordering::Release);
        self.close();
        self.disk.remove(self.ino).context(|| self.describe("removing"))
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        OPEN_HANDLES.fetch_sub(self.handle.lock().is_some() as usize, Ordering::Relaxed);
    }
}
