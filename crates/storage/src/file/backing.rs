//! One file of an inode on one disk: opened at first use, created at first write, with a flag for unsynced changes.
//!
//! Invariant: a removed file is never created again, also not by a late write.

use crate::disk::{Check, Condition, DiskFile, Examined, FileStore, Stream};
use crate::error::{Context, Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Number of open backing files, over all inodes.
pub static OPEN_HANDLES: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug)]
pub struct Backing {
    ino: u64,
    stream: Stream,
    disk: Arc<dyn FileStore>,
    /// On a flash disk, for the columnar cache.
    is_in_flash: bool,
    handle: Mutex<Handle>,
    unsynced: AtomicBool,
    /// Set while the file's name is not durable because this process created the file.
    unsynced_name: AtomicBool,
    /// Set after a failed sync: the kernel may have dropped written bytes that readers have seen.
    sync_failed: AtomicBool,
}

/// A backing file that stays open while the value lives.
pub struct Opened<'a> {
    backing: &'a Backing,
    file: Option<Arc<dyn DiskFile>>,
}

#[derive(Debug)]
enum Handle {
    Closed,
    Open(Arc<dyn DiskFile>),
    /// The inode lost its last name and its last reference.
    Removed,
}

impl Backing {
    pub fn new(ino: u64, stream: Stream, disk: Arc<dyn FileStore>) -> Self {
        let [unsynced, unsynced_name, sync_failed] = [const { AtomicBool::new(false) }; 3];
        let (is_in_flash, handle) = (false, Mutex::new(Handle::Closed));
        Self { ino, stream, disk, is_in_flash, handle, unsynced, unsynced_name, sync_failed }
    }

    /// Marks the disk as a flash disk with the columnar cache.
    pub fn in_flash(mut self) -> Self {
        self.is_in_flash = true;
        self
    }

    pub fn is_in_flash(&self) -> bool {
        self.is_in_flash
    }

    /// Names the disk, for messages.
    pub fn disk_name(&self) -> String {
        let kind = if self.is_in_flash { "flash" } else { "cell" };
        format!("{kind} disk {}", self.disk.path().display())
    }

    pub fn disk(&self) -> &Arc<dyn FileStore> {
        &self.disk
    }

    fn describe(&self, verb: &str) -> String {
        let what = match self.stream {
            Stream::Data => "backing file",
            Stream::Units => "unit file",
            Stream::Redo0 | Stream::Redo1 => "redo log",
        };
        format!("could not {verb} the {what} of inode {} on {}", self.ino, self.disk_name())
    }

    fn existing(&self) -> Result<Option<Arc<dyn DiskFile>>> {
        let mut handle = self.handle.lock();
        if let Handle::Closed = *handle
            && let Some(file) = self.disk.open(self.ino, self.stream, false).context(|| self.describe("open"))?
        {
            *handle = Handle::Open(file);
            OPEN_HANDLES.fetch_add(1, Ordering::Relaxed);
        }
        match &*handle {
            Handle::Open(file) => Ok(Some(file.clone())),
            Handle::Closed | Handle::Removed => Ok(None),
        }
    }

    fn created(&self) -> Result<Arc<dyn DiskFile>> {
        if let Some(file) = self.existing()? {
            return Ok(file);
        }
        let mut handle = self.handle.lock();
        match &*handle {
            Handle::Open(file) => Ok(file.clone()),
            Handle::Removed => Err(Error::new(ErrorKind::Stale, format!("inode {} was removed", self.ino))),
            Handle::Closed => {
                let file = self.disk.open(self.ino, self.stream, true).context(|| self.describe("create"))?;
                let file = file.expect("a disk creates a missing file");
                *handle = Handle::Open(file.clone());
                self.unsynced_name.store(true, Ordering::Release);
                OPEN_HANDLES.fetch_add(1, Ordering::Relaxed);
                Ok(file)
            }
        }
    }

    /// Returns whether every sync of this process succeeded, so that the file contains the bytes that readers have seen.
    pub fn is_as_read(&self) -> bool {
        !self.sync_failed.load(Ordering::Acquire)
    }

    /// Returns the length and the allocated bytes.
    pub fn measure(&self) -> Result<(u64, u64)> {
        self.disk.measure(self.ino, self.stream).context(|| self.describe("measure"))
    }

    pub fn length(&self) -> Result<u64> {
        match self.existing()? {
            Some(file) => file.len().context(|| self.describe("measure")),
            None => Ok(0),
        }
    }

    /// Returns whether no space is allocated in a range.
    pub fn is_hole(&self, offset: u64, length: u64) -> Result<bool> {
        match self.existing()? {
            Some(file) => file.is_hole(offset, length).context(|| self.describe("measure")),
            None => Ok(true),
        }
    }

    /// Fills the buffer, with zeros beyond the end of the file. Returns the bytes read from the file.
    pub fn read(&self, buffer: &mut [u8], offset: u64, direct: bool) -> Result<usize> {
        let count = match self.existing()? {
            None => 0,
            Some(file) if direct => file.read_direct(buffer, offset).context(|| self.describe("read"))?,
            Some(file) => file.read_at(buffer, offset).context(|| self.describe("read"))?,
        };
        buffer[count..].fill(0);
        Ok(count)
    }

    /// Fills the buffer; the end of the file within the range is an error.
    pub fn read_exact(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.opened()?.read_exact(buffer, offset)
    }

    /// Returns the opened file, which a caller with several reads uses for all of them.
    pub fn opened(&self) -> Result<Opened<'_>> {
        Ok(Opened { backing: self, file: self.existing()? })
    }

    /// Reads all copies of a range, see [`DiskFile::examine`]. A file that does not exist is sound.
    pub fn examine(&self, range: &Range<u64>, check: &Check<'_>) -> Result<Examined> {
        let sound = Ok(Examined { is_sound: true, read_bytes: 0 });
        self.existing()?
            .map_or(sound, |file| file.examine(range, check))
            .context(|| self.describe("read all copies of"))
    }

    /// Rewrites damaged copies of a range, see [`DiskFile::repair`].
    pub fn repair(&self, range: &Range<u64>, check: &Check<'_>) -> Result<Condition> {
        let file = self.existing()?;
        file.map_or(Ok(Condition::Sound), |file| file.repair(range, check)).context(|| self.describe("repair"))
    }

    /// Returns whether a write would first make a record of the write durable.
    pub fn write_waits(&self, range: &Range<u64>) -> bool {
        self.disk.write_waits(self.ino, self.stream, range)
    }

    pub fn write(&self, data: &[u8], offset: u64) -> Result<()> {
        let file = self.created()?;
        // Set the flag after an error too: a prefix may have arrived.
        let result = file.write_at(data, offset).context(|| self.describe("write"));
        self.unsynced.store(true, Ordering::Release);
        result
    }

    /// Truncates the backing file to at most `length` bytes, or sets its length to exactly that if `exact`.
    pub fn set_length(&self, length: u64, exact: bool) -> Result<()> {
        let (shortest, longest) = match self.existing()? {
            Some(file) => file.lengths().context(|| self.describe("measure"))?,
            None => (0, 0),
        };
        if (shortest, longest) == (length, length) || !exact && longest <= length {
            return Ok(());
        }
        let file = self.created()?;
        file.set_len(length).context(|| self.describe("truncate"))?;
        self.unsynced.store(true, Ordering::Release);
        Ok(())
    }

    /// Truncates the file to zero and clears the unsynced flag: neither the bytes nor the truncate need to be durable.
    pub fn clear(&self) -> Result<()> {
        if let Some(file) = self.existing()? {
            file.set_len(0).context(|| self.describe("truncate"))?;
            self.unsynced.store(false, Ordering::Release);
        }
        Ok(())
    }

    pub fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> Result<()> {
        let file = self.created()?;
        let result = file.allocate(offset, length, keep_size).context(|| self.describe("allocate space in"));
        self.unsynced.store(true, Ordering::Release);
        result
    }

    pub fn punch(&self, offset: u64, length: u64) -> Result<()> {
        if let Some(file) = self.existing()? {
            file.punch(offset, length).context(|| self.describe("punch a hole in"))?;
            self.unsynced.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Punches a range that is never read again; the punch need not be durable.
    pub fn discard(&self, offset: u64, length: u64) -> Result<()> {
        match self.existing()? {
            Some(file) => file.punch(offset, length).context(|| self.describe("punch a hole in")),
            None => Ok(()),
        }
    }

    /// Opens the backing file for the kernel, see [`FileStore::kernel_file`].
    pub fn kernel_file(&self) -> Result<Option<File>> {
        self.disk.kernel_file(self.ino).context(|| self.describe("open"))
    }

    /// Lets the next sync reach the disk, also if no byte has changed.
    pub fn require_sync(&self) {
        self.unsynced.store(true, Ordering::Release);
    }

    /// Makes every change before the call durable. Syncs of one file must not overlap: the second call would see the
    /// flags cleared and return before the first one has finished.
    pub fn sync(&self) -> Result<()> {
        if self.unsynced.load(Ordering::Acquire) {
            let synced = self.existing().and_then(|file| {
                // Only now: with the flag cleared and the file not in use, `close` could drop it and what it notes of unsynced parts.
                self.unsynced.store(false, Ordering::Release);
                file.map_or(Ok(()), |file| file.sync().context(|| self.describe("sync")))
            });
            if synced.is_err() {
                self.sync_failed.store(true, Ordering::Release);
                self.unsynced.store(true, Ordering::Release);
                return synced;
            }
        }
        if self.unsynced_name.swap(false, Ordering::AcqRel)
            && let Err(error) = self.disk.sync_name(self.ino)
        {
            self.unsynced_name.store(true, Ordering::Release);
            return Err(error).context(|| self.describe("sync the name of"));
        }
        Ok(())
    }

    /// Closes the descriptor unless there are unsynced changes: Linux may not report a write-back error to a descriptor
    /// opened later. A descriptor in use is not closed either: a write sets the flag of unsynced changes at its end. Returns whether
    /// the descriptor was closed.
    pub fn close(&self) -> bool {
        let mut handle = self.handle.lock();
        // Requests that begin now wait for the handle. The flag is read last: a request sets it before it drops the file.
        let is_idle = matches!(&*handle, Handle::Open(file) if Arc::strong_count(file) == 1)
            && !self.unsynced.load(Ordering::Acquire);
        if is_idle {
            *handle = Handle::Closed;
            OPEN_HANDLES.fetch_sub(1, Ordering::Relaxed);
        }
        is_idle
    }

    pub fn remove(&self) -> Result<()> {
        let last = std::mem::replace(&mut *self.handle.lock(), Handle::Removed);
        OPEN_HANDLES.fetch_sub(matches!(last, Handle::Open(_)) as usize, Ordering::Relaxed);
        self.unsynced.store(false, Ordering::Release);
        self.unsynced_name.store(false, Ordering::Release);
        self.disk.remove(self.ino, self.stream).context(|| self.describe("remove"))
    }
}

impl Opened<'_> {
    /// Fills the buffer; the end of the file within the range is an error.
    pub fn read_exact(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let describe = || self.backing.describe("read");
        let count = self.file.as_ref().map_or(Ok(0), |file| file.read_at(buffer, offset)).context(describe)?;
        if count < buffer.len() {
            let message = format!("{}: end of file before byte {}", describe(), offset + buffer.len() as u64);
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        Ok(())
    }

    /// Announces reads, in ascending order.
    pub fn prefetch(&self, ranges: &[Range<u64>]) {
        if let Some(file) = &self.file {
            file.prefetch(ranges);
        }
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        OPEN_HANDLES.fetch_sub(matches!(*self.handle.get_mut(), Handle::Open(_)) as usize, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{DirectoryDisk, Disk};

    #[test]
    fn a_late_write_does_not_recreate_a_removed_file() {
        let folder = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(DirectoryDisk::new(folder.path().join("disk")).unwrap());
        let backing = Backing::new(16, Stream::Data, Arc::new(disk.clone()));
        backing.write(b"early", 0).unwrap();
        backing.remove().unwrap();
        assert_eq!(backing.write(b"late", 0).unwrap_err().kind(), ErrorKind::Stale);
        assert_eq!(backing.length().unwrap(), 0);
        backing.sync().unwrap();
        assert!(disk.backing_files().unwrap().is_empty());
    }

    #[test]
    fn a_descriptor_in_use_is_not_closed() {
        let folder = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(DirectoryDisk::new(folder.path().join("disk")).unwrap());
        let backing = Backing::new(16, Stream::Data, Arc::new(disk));
        backing.write(b"content", 0).unwrap();
        assert!(!backing.close(), "a write is not synced");
        backing.sync().unwrap();
        // A write that has not ended yet.
        let file = backing.created().unwrap();
        assert!(!backing.close(), "a request uses the file");
        drop(file);
        assert!(backing.close());
        assert!(!backing.close(), "the file is closed");
    }
}
