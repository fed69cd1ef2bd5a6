//! Which files are open, and which of them the kernel reads and writes itself (FUSE passthrough).
//!
//! Linux refuses an open with passthrough while the file is open without, and the other way round. The service therefore counts
//! the opens of every file: the first one decides, and later ones follow while the file is open. A file counts as open
//! from the answer to its open to its release, which Linux sends after it has ended the use of the file, so the counts never
//! miss an open file.
//!
//! Invariants:
//! - A file that was passed through stays so until the kernel forgets its inode, or a rebalance ends it. The kernel may then
//!   have pages that are older than the passthrough, so later opens drop them.
//! - Backing files are opened, and closed, under the lock `registration`, never under the lock of the counts: the threads that
//!   serve the requests of a CPU take the latter.

use super::ring::OpenOut;
use cellar_storage::{Ino, Volume};
use fuser::FopenFlags;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// `_IOW(229, 1, struct fuse_backing_map)` and `_IOW(229, 2, u32)`.
const BACKING_OPEN: libc::c_ulong = 0x4010_e501;
const BACKING_CLOSE: libc::c_ulong = 0x4004_e502;

/// `struct fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

#[derive(Debug)]
pub struct Opens {
    /// `/dev/fuse` of the mount.
    device: OwnedFd,
    files: Mutex<HashMap<Ino, OpenFile>>,
    registration: Mutex<()>,
    /// The kernel has refused a backing file for a reason that all others have, too.
    is_refused: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct OpenFile {
    /// Number of opens without release.
    count: u64,
    /// The number of the registered backing file; None if the kernel sends requests to the cell.
    backing_id: Option<i32>,
    /// The file was passed through before: the kernel may have pages that are older than the passthrough.
    drops_cache: bool,
}

impl OpenFile {
    fn answer(self) -> OpenOut {
        let (flags, backing_id) = match self.backing_id {
            Some(id) => (FopenFlags::FOPEN_PASSTHROUGH, id),
            None if self.drops_cache => (FopenFlags::empty(), 0),
            None => (FopenFlags::FOPEN_KEEP_CACHE, 0),
        };
        OpenOut { open_flags: (flags | FopenFlags::FOPEN_NOFLUSH).bits(), backing_id, ..OpenOut::default() }
    }
}

impl Opens {
    pub fn new(device: OwnedFd) -> Self {
        Self { device, files: Mutex::default(), registration: Mutex::default(), is_refused: AtomicBool::new(false) }
    }

    /// Answers an open without waiting for a disk; None if the file may be passed through and must be opened on a disk first.
    pub fn try_open(&self, ino: Ino, passes_through: impl FnOnce() -> bool) -> Option<OpenOut> {
        if let Some(file) = self.files.lock().get_mut(&ino) {
            file.count += 1;
            return Some(file.answer());
        }
        // Outside the lock: the class of a file depends on its path.
        if !self.is_refused.load(Ordering::Relaxed) && passes_through() {
            return None;
        }
        let mut files = self.files.lock();
        let file = files.entry(ino).or_insert(OpenFile { count: 0, backing_id: None, drops_cache: false });
        file.count += 1;
        Some(file.answer())
    }

    /// Answers an open, and passes the file through if possible.
    pub fn open(&self, ino: Ino, volume: &Volume, passes_through: bool) -> OpenOut {
        let _registration = self.registration.lock();
        if let Some(file) = self.files.lock().get_mut(&ino) {
            file.count += 1;
            return file.answer();
        }
        let backing_id = if passes_through { self.begin(ino, volume) } else { None };
        let mut files = self.files.lock();
        // A file that passes through is opened here only, so the file is not open yet.
        let file = files.entry(ino).or_insert(OpenFile { count: 0, backing_id, drops_cache: false });
        file.count += 1;
        file.answer()
    }

    fn begin(&self, ino: Ino, volume: &Volume) -> Option<i32> {
        let file = volume.begin_passthrough(ino).unwrap_or_else(|error| {
            log::warn!("the kernel cannot read and write inode {ino} itself: {error}");
            None
        })?;
        match self.register(&file) {
            Ok(id) => Some(id),
            Err(error) => {
                log::warn!("the kernel does not take over the backing file of inode {ino}: {error}");
                // The daemon may lack a capability, or the disk's filesystem may be stacked upon another one.
                if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ELOOP | libc::EOPNOTSUPP | libc::ENOTTY)) {
                    self.is_refused.store(true, Ordering::Relaxed);
                }
                end(ino, volume);
                None
            }
        }
    }

    /// Counts the open that is a part of the creation of a file.
    pub fn created(&self, ino: Ino) {
        let new = OpenFile { count: 0, backing_id: None, drops_cache: false };
        self.files.lock().entry(ino).or_insert(new).count += 1;
    }

    pub fn release(&self, ino: Ino) {
        let mut files = self.files.lock();
        let Some(file) = files.get_mut(&ino) else { return };
        file.count = file.count.saturating_sub(1);
        if file.count == 0 && file.backing_id.is_none() && !file.drops_cache {
            files.remove(&ino);
        }
    }

    /// Ends the passthrough of a file after the kernel has forgotten its inode.
    pub fn forget(&self, ino: Ino, volume: &Volume) {
        if !self.files.lock().contains_key(&ino) {
            return;
        }
        let _registration = self.registration.lock();
        if !volume.is_referenced(ino) {
            self.end_if_unused(ino, volume, false);
        }
    }

    /// Ends the passthrough of all files that are not open.
    pub fn end_unused(&self, volume: &Volume) {
        let _registration = self.registration.lock();
        let inodes: Vec<Ino> = self.files.lock().keys().copied().collect();
        inodes.into_iter().for_each(|ino| self.end_if_unused(ino, volume, true));
    }

    /// Ends the passthrough of a file that is not open; if not `is_known` to the kernel any more, forgets the file. The caller holds
    /// the lock `registration`.
    fn end_if_unused(&self, ino: Ino, volume: &Volume, is_known: bool) {
        let id = {
            let mut files = self.files.lock();
            let Some(file) = files.get_mut(&ino).filter(|file| file.count == 0) else { return };
            let id = file.backing_id.take();
            file.drops_cache |= id.is_some();
            // A lookup may have arrived since the kernel sent that it has forgotten the inode.
            if !is_known && !volume.is_referenced(ino) {
                files.remove(&ino);
            }
            id
        };
        let Some(id) = id else { return };
        if let Err(error) = self.unregister(id) {
            log::warn!("could not end the use of the backing file of inode {ino} by the kernel: {error}");
        }
        end(ino, volume);
    }

    fn register(&self, file: &File) -> io::Result<i32> {
        let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
        // SAFETY: the descriptors are open, and `map` is the kernel's structure, which the call reads.
        let id = unsafe { libc::ioctl(self.device.as_raw_fd(), BACKING_OPEN, &raw const map) };
        if id > 0 { Ok(id) } else { Err(io::Error::last_os_error()) }
    }

    fn unregister(&self, id: i32) -> io::Result<()> {
        // SAFETY: the descriptor is open, and the call reads one number.
        let result = unsafe { libc::ioctl(self.device.as_raw_fd(), BACKING_CLOSE, &raw const id) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

fn end(ino: Ino, volume: &Volume) {
    if let Err(error) = volume.end_passthrough(ino) {
        log::warn!("could not measure inode {ino} after the kernel has used it: {error}");
    }
}
