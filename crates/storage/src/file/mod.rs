//! One file's bytes: its size, its backing files, what was written but not yet sent to disk.
//!
//! Invariants: size = the largest length of the backing files once everything is flushed; at any moment the file's
//! bytes are the backing files, overlaid by `flushing`, overlaid by `active`; a backing file that may hold unsynced
//! changes has its `unsynced` flag set. Lock order: `write`, `flush`, then `pending`; nothing is locked inside `pending`.

mod backing;
mod extents;
mod flush;
mod versions;

pub use extents::Extents;
pub use versions::{Versions, regions};

use crate::cache::CachedFile;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::group::Layout;
use backing::Backing;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// The end of the largest possible file: regions are numbered in 32 bits.
pub const SIZE_MAX: u64 = (u32::MAX as u64) << 20;
const SIZE_UNKNOWN: u64 = u64::MAX;

#[derive(Debug)]
pub struct FileData {
    pub ino: u64,
    pub layout: Layout,
    size: AtomicU64,
    pub mtime: AtomicI64,
    pub ctime: AtomicI64,
    /// True when mtime differs from what the metadata store has.
    pub times_dirty: AtomicBool,
    /// Serialises changes of the content.
    pub write: Mutex<()>,
    flush: Mutex<()>,
    sync: Mutex<()>,
    pending: RwLock<Pending>,
    /// True while the file is in the flusher's list.
    pub listed: AtomicBool,
    /// True once every name and every use is gone: nothing needs to be written any more.
    pub dead: AtomicBool,
    backing: Box<[Backing]>,
    pub versions: Versions,
    pub cached: Arc<CachedFile>,
}

#[derive(Debug, Default)]
struct Pending {
    active: Extents,
    /// Being written by a flush just now.
    flushing: Arc<Extents>,
    /// A background write's failure that no sync has reported yet.
    error: Option<Error>,
}

impl FileData {
    pub fn new(ino: u64, layout: Layout, disks: &[Arc<dyn Disk>], mtime: i64, ctime: i64, is_new: bool) -> Self {
        let backing = layout.disks.iter().map(|disk| Backing::new(ino, disks[*disk as usize].clone())).collect();
        Self {
            ino,
            layout,
            size: AtomicU64::new(if is_new { 0 } else { SIZE_UNKNOWN }),
            mtime: AtomicI64::new(mtime),
            ctime: AtomicI64::new(ctime),
            times_dirty: AtomicBool::new(false),
            write: Mutex::new(()),
            flush: Mutex::new(()),
            sync: Mutex::new(()),
            pending: RwLock::default(),
            listed: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            backing,
            versions: Versions::default(),
            cached: Arc::default(),
        }
    }

    /// The size in bytes; the first call asks the disks, later ones touch no disk.
    pub fn size(&self) -> Result<u64> {
        match self.size.load(Ordering::Acquire) {
            SIZE_UNKNOWN => {
                let mut size = 0;
                for backing in &self.backing {
                    size = backing.measure()?.0.max(size);
                }
                match self.size.compare_exchange(SIZE_UNKNOWN, size, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => Ok(size),
                    Err(known) => Ok(known),
                }
            }
            size => Ok(size),
        }
    }

    /// Grows the size in memory to at least `end`; the caller holds `write`.
    pub fn grow(&self, end: u64) {
        self.size.fetch_max(end, Ordering::AcqRel);
    }

    pub fn pending_bytes(&self) -> usize {
        let pending = self.pending.read();
        pending.active.bytes() + pending.flushing.bytes()
    }

    /// Reads at most `buffer.len()` bytes at `offset`, short only at the end of the file.
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let size = self.size()?;
        let length = size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        self.load(&mut buffer[..length], offset, false)?;
        Ok(length)
    }

    /// Fills `buffer` with what the file holds at `offset`, zeros where nothing was ever written. With `direct`, past
    /// the operating system's cache; buffer and offset are then aligned.
    ///
    /// What waits in memory is copied out before the disk is read: a flush that ends in between has put the same
    /// bytes on disk, and a later write is concurrent with this read.
    pub fn load(&self, buffer: &mut [u8], offset: u64, direct: bool) -> Result<()> {
        let range = offset..offset + buffer.len() as u64;
        let overlay: Vec<(u64, Vec<u8>)> = {
            let pending = self.pending.read();
            let flushing = pending.flushing.overlapping(range.clone());
            let active = pending.active.overlapping(range.clone());
            flushing.chain(active).map(|(start, data)| (start, data.to_vec())).collect()
        };
        let covered = matches!(&overlay[..], [(start, data)] if *start == offset && data.len() == buffer.len());
        if !covered {
            for piece in self.layout.pieces(range) {
                let at = (piece.range.start - offset) as usize..(piece.range.end - offset) as usize;
                self.backing[piece.slot].read(&mut buffer[at], piece.range.start, direct)?;
            }
        }
        for (start, data) in overlay {
            let at = (start - offset) as usize;
            buffer[at..at + data.len()].copy_from_slice(&data);
        }
        Ok(())
    }

    /// Frees descriptors of backing files that have nothing unsynced; returns how many.
    pub fn close_handles(&self) -> usize {
        self.backing.iter().filter(|backing| backing.close()).count()
    }

    /// Removes the backing files.
    pub fn remove(&self) -> Result<()> {
        let _flush = self.flush.lock();
        self.backing.iter().try_for_each(Backing::remove)
    }
}

/// Backing files that the process has open.
pub fn open_handles() -> usize {
    backing::OPEN_HANDLES.load(Ordering::Relaxed)
}
