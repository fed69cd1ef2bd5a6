//! One file's bytes: its size, its backing files, the write that is on its way to them.
//!
//! Invariants: size = the largest length of the backing files while no write is under way; at any moment the file's
//! bytes are the backing files, overlaid by the write under way; there is at most one, its author holds `write`, and it
//! is acknowledged only after it ended; a backing file that may hold unsynced changes has its `unsynced` flag set. Lock
//! order: `write`, `under_way`, then the versions' lock.

mod backing;
mod change;
mod versions;

pub use versions::{Versions, regions};

use crate::cache::CachedFile;
use crate::disk::Disk;
use crate::error::Result;
use crate::group::Layout;
use backing::Backing;
use parking_lot::{Mutex, RwLock};
use std::ops::Range;
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
    sync: Mutex<()>,
    under_way: RwLock<Option<UnderWay>>,
    backing: Box<[Backing]>,
    pub versions: Versions,
    pub cached: Arc<CachedFile>,
}

/// A write between its first and its last byte on disk.
#[derive(Debug, Clone)]
struct UnderWay {
    offset: u64,
    data: Arc<[u8]>,
}

impl UnderWay {
    /// What the write puts into `range`, and where; None when that is nothing.
    fn part(&self, range: &Range<u64>) -> Option<(u64, &[u8])> {
        let start = self.offset.max(range.start);
        let end = (self.offset + self.data.len() as u64).min(range.end);
        let inside = |at: u64| (at - self.offset) as usize;
        (start < end).then(|| (start, &self.data[inside(start)..inside(end)]))
    }
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
            sync: Mutex::new(()),
            under_way: RwLock::new(None),
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
    /// The write under way is looked up before the disk is read: if it ends in between, the disk has the same bytes.
    /// One that begins in between is concurrent with this read and may be seen in part; whoever must not see that
    /// compares the regions' versions before and after.
    pub fn load(&self, buffer: &mut [u8], offset: u64, direct: bool) -> Result<()> {
        let range = offset..offset + buffer.len() as u64;
        let under_way = self.under_way.read().clone();
        let overlay = under_way.as_ref().and_then(|write| write.part(&range));
        if overlay.is_none_or(|(_, data)| data.len() < buffer.len()) {
            for piece in self.layout.pieces(range) {
                let at = (piece.range.start - offset) as usize..(piece.range.end - offset) as usize;
                self.backing[piece.slot].read(&mut buffer[at], piece.range.start, direct)?;
            }
        }
        if let Some((start, data)) = overlay {
            let at = (start - offset) as usize;
            buffer[at..at + data.len()].copy_from_slice(data);
        }
        Ok(())
    }

    /// Frees descriptors of backing files that have nothing unsynced; returns how many.
    pub fn close_handles(&self) -> usize {
        self.backing.iter().filter(|backing| backing.close()).count()
    }

    /// Removes the backing files, for good.
    pub fn remove(&self) -> Result<()> {
        self.backing.iter().try_for_each(Backing::remove)
    }
}

/// Backing files that the process has open.
pub fn open_handles() -> usize {
    backing::OPEN_HANDLES.load(Ordering::Relaxed)
}
