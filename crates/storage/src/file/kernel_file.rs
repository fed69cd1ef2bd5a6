//! A backing file that the kernel reads and writes itself, without requests to the cell (FUSE passthrough).
//!
//! Invariants:
//! - Meanwhile the size is the length of the backing file: writes of the kernel may extend the file.
//! - Disks do not know which bytes the kernel has written. A sync of the file therefore syncs the backing file itself, and the end of
//!   the passthrough does so, too.
//! - Every region changes its version when the passthrough begins and ends. No region is read for a scan meanwhile, and no
//!   compression unit is stored.

use super::FileData;
use crate::error::{Context, Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const NANOSECONDS: i64 = 1_000_000_000;

#[derive(Debug, Default)]
pub struct KernelFile {
    is_in_use: AtomicBool,
    /// Open while in use, so that measuring the file does no I/O.
    file: Mutex<Option<Arc<File>>>,
}

impl FileData {
    pub fn is_passed_through(&self) -> bool {
        self.kernel_file.is_in_use.load(Ordering::Acquire)
    }

    /// Returns an error while the kernel may change the file without the cell.
    pub fn check_not_passed_through(&self) -> Result<()> {
        match self.is_passed_through() {
            true => {
                Err(Error::new(ErrorKind::Invalid, format!("the kernel writes inode {} without the cell", self.ino)))
            }
            false => Ok(()),
        }
    }

    /// Begins the passthrough. Returns the file for the kernel; None unless one backing file contains all bytes of the file,
    /// and its disk has space for all of them, so that no overwrite needs new space. The caller excludes other requests that
    /// change the file.
    pub fn begin_passthrough(&self) -> Result<Option<File>> {
        let [backing] = &self.backing[..] else { return Ok(None) };
        let size = self.size()?;
        if size == 0 || self.units().is_some() {
            return Ok(None);
        }
        let Some(file) = backing.kernel_file()? else { return Ok(None) };
        let describe = || format!("could not measure the backing file of inode {}", self.ino);
        let metadata = file.metadata().context(describe)?;
        if metadata.len() != size || metadata.blocks() * 512 < size {
            return Ok(None);
        }
        let own =
            file.try_clone().context(|| format!("could not open the backing file of inode {} again", self.ino))?;
        *self.kernel_file.file.lock() = Some(Arc::new(own));
        self.kernel_file.is_in_use.store(true, Ordering::Release);
        Ok(Some(file))
    }

    /// Ends the passthrough, after the last access of the kernel.
    pub fn end_passthrough(&self) -> Result<()> {
        let measured = self.size_of_kernel_file();
        // The disk does not know of the writes of the kernel, so a later sync would not wait for them.
        if let Err(error) = self.sync_kernel_file() {
            self.defer_sync_error(error);
        }
        self.kernel_file.is_in_use.store(false, Ordering::Release);
        *self.kernel_file.file.lock() = None;
        measured.map(drop)
    }

    /// Syncs the bytes that the kernel has written. Does nothing for a file that is not passed through.
    pub(super) fn sync_kernel_file(&self) -> Result<()> {
        let file = self.kernel_file.file.lock().clone();
        let synced = file.map_or(Ok(()), |file| file.sync_data());
        synced.context(|| format!("could not sync the backing file of inode {}", self.ino))
    }

    /// Measures the backing file, and takes over its size and its time of modification.
    pub(super) fn size_of_kernel_file(&self) -> Result<u64> {
        let file = self.kernel_file.file.lock();
        let Some(file) = &*file else { return Ok(self.size.load(Ordering::Acquire)) };
        let metadata =
            file.metadata().context(|| format!("could not measure the backing file of inode {}", self.ino))?;
        self.size.store(metadata.len(), Ordering::Release);
        let modified = metadata.mtime() * NANOSECONDS + metadata.mtime_nsec();
        self.mtime.fetch_max(modified, Ordering::Relaxed);
        self.ctime.fetch_max(modified, Ordering::Relaxed);
        Ok(metadata.len())
    }
}
