//! The reserve file of a cell disk: allocated space without content, which no other program can use.
//!
//! The cell shortens the file when it needs the space, and extends the file when the disk has space again. The file is
//! an addition to the accounting of [`super::free_space`]: the cell works without it, for example on a filesystem that
//! cannot allocate space in advance.

use crate::disk::{Disk, DiskFile};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const FILE: &str = "reserve";
/// Minimum number of bytes by which the file is shortened.
const RELEASE_MIN: u64 = 1 << 20;
/// Bytes that an extension of the file leaves to others. It leaves half of the remaining space, too.
const OTHERS: u64 = 32 << 20;
/// Attempts to extend the file by space that other programs may have used up in part; each attempt takes half of the space of the
/// attempt before.
const EXTENSIONS_MAX: usize = 5;

#[derive(Debug)]
pub struct ReserveFile {
    disk: Arc<dyn Disk>,
    /// None if there is no reserve, or if the disk cannot allocate space for a file.
    file: Mutex<Option<Arc<dyn DiskFile>>>,
    /// Bytes allocated in the file.
    length: AtomicU64,
    /// The length that the file has on a disk with enough space. Becomes the present length if the filesystem cannot
    /// allocate space in advance.
    target: AtomicU64,
}

impl ReserveFile {
    /// Opens or creates the file; the file is extended by [`Self::grow`]. Removes the file if `target` is 0. An error
    /// is logged, and leaves the disk without the file.
    pub fn open(disk: &Arc<dyn Disk>, target: u64) -> Self {
        let path = disk.path().display();
        if target == 0 {
            if let Err(error) = disk.remove_named(FILE) {
                log::warn!("could not remove the reserve file of cell disk {path}: {error}");
            }
            return Self::absent(disk);
        }
        let opened = disk.open_named(FILE).and_then(|file| {
            if file.len()? > target {
                file.set_len(target)?;
            }
            Ok((file.len()?, file))
        });
        match opened {
            Ok((length, file)) => {
                let (file, length, target) = (Mutex::new(Some(file)), AtomicU64::new(length), AtomicU64::new(target));
                Self { disk: disk.clone(), file, length, target }
            }
            // A disk that is offline or was dropped opens its reserve when it returns.
            Err(_) if !disk.is_accessible() => Self::closed(disk, target),
            Err(error) => {
                log::warn!("could not open the reserve file of cell disk {path}: {error}");
                Self::closed(disk, target)
            }
        }
    }

    /// Returns the file of a disk that cannot be accessed now.
    pub fn closed(disk: &Arc<dyn Disk>, target: u64) -> Self {
        Self { target: AtomicU64::new(target), ..Self::absent(disk) }
    }

    /// Removes the file for good from a disk that has left.
    pub fn remove(&self, engine: &dyn Disk) {
        let mut file = self.file.lock();
        *file = None;
        self.length.store(0, Ordering::Release);
        self.target.store(0, Ordering::Relaxed);
        if let Err(error) = engine.remove_named(FILE) {
            log::warn!("could not remove the reserve file of cell disk {}: {error}", engine.path().display());
        }
    }

    /// Opens the file again after the disk was offline.
    pub fn reopen(&self) {
        let target = self.target.load(Ordering::Relaxed);
        let Self { file, length, target, .. } = Self::open(&self.disk, target);
        let mut current = self.file.lock();
        *current = file.into_inner();
        self.length.store(length.into_inner(), Ordering::Release);
        self.target.store(target.into_inner(), Ordering::Relaxed);
    }

    /// Returns a disk's reserve file that does not exist and is never created.
    pub fn absent(disk: &Arc<dyn Disk>) -> Self {
        Self { disk: disk.clone(), file: Mutex::new(None), length: AtomicU64::new(0), target: AtomicU64::new(0) }
    }

    /// Returns the bytes allocated in the file.
    pub fn length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    /// Extends the file to its target length, or as far as the disk has space.
    pub fn grow(&self) {
        let file = self.file.lock();
        let (length, target) = (self.length(), self.target.load(Ordering::Relaxed));
        let Some(opened) = file.as_ref().filter(|_| length < target) else { return };
        let available = self.disk.space().map_or(0, |space| space.available);
        let bytes = (available.saturating_sub(OTHERS) / 2).min(target - length);
        if bytes > 0 && !self.extend(opened.as_ref(), length, bytes) {
            log::warn!(
                "could not allocate {bytes} bytes in the reserve file of cell disk {}: another program uses the space",
                self.disk.path().display()
            );
        }
    }

    /// Extends the file by `bytes` that became available on the disk, at most to its target length; by less if other programs have
    /// used up a part of the space.
    pub fn grow_by(&self, bytes: u64) {
        let file = self.file.lock();
        let (length, target) = (self.length(), self.target.load(Ordering::Relaxed));
        let Some(opened) = file.as_ref() else { return };
        let mut bytes = bytes.min(target.saturating_sub(length));
        for _ in 0..EXTENSIONS_MAX {
            if bytes == 0 || self.extend(opened.as_ref(), length, bytes) {
                return;
            }
            bytes /= 2;
        }
    }

    /// Returns whether the file is shorter than its target length.
    pub fn is_short(&self) -> bool {
        self.length() < self.target.load(Ordering::Relaxed)
    }

    /// Allocates `bytes` at the end of the file. Returns false if the disk has too little space. The file does not grow any more if
    /// the filesystem cannot allocate space in advance.
    fn extend(&self, file: &dyn DiskFile, length: u64, bytes: u64) -> bool {
        let Err(error) = file.allocate(length, bytes, false) else {
            self.length.store(length + bytes, Ordering::Release);
            return true;
        };
        let path = self.disk.path().display();
        let is_full = matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT));
        if !is_full {
            log::warn!("could not allocate {bytes} bytes in the reserve file of cell disk {path}: {error}");
        }
        if let Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) = error.raw_os_error() {
            self.target.store(length, Ordering::Relaxed);
        }
        // The filesystem may have allocated a part.
        if let Err(error) = file.set_len(length) {
            log::warn!("could not shorten the reserve file of cell disk {path}: {error}");
        }
        !is_full
    }

    /// Shortens the file by at least `bytes`, or to nothing. Returns false if the file is empty.
    pub fn release(&self, bytes: u64) -> bool {
        let file = self.file.lock();
        let (length, path) = (self.length(), self.disk.path().display());
        let Some(opened) = file.as_ref().filter(|_| length > 0) else { return false };
        let shorter = length.saturating_sub(bytes.max(RELEASE_MIN));
        if let Err(error) = opened.set_len(shorter) {
            log::warn!("could not shorten the reserve file of cell disk {path}: {error}");
            return false;
        }
        log::debug!("shortened the reserve file of cell disk {path} from {length} to {shorter} bytes");
        self.length.store(shorter, Ordering::Release);
        true
    }
}
