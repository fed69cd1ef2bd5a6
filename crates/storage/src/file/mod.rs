//! One file's bytes: its size, its backing files, the write that is on its way to them.
//!
//! Invariants: size = the largest length of the backing files while no write is under way; at any moment the file's
//! bytes are the backing files, and the compression units where pages are current there (`units`), overlaid by the write
//! under way; there is at most one, its author holds `write`, and it
//! is acknowledged only after it ended; a backing file that may hold unsynced changes has its `unsynced` flag set. Lock
//! order: `write`, `under_way`, then the versions' lock.

mod backing;
mod change;
mod halves;
mod units;
mod versions;

pub use units::{
    BATCH_PAGES, CachedUnit, CountedBytes, Extent, OpenUnit, PAGE, PAGE_BYTES, PageSet, Place, PlaceImage, PlaceReader,
    Settling, UnitCodec, Units, not_rebuilt, stored_bytes,
};
pub use versions::{Versions, regions};

use crate::cache::{CachedFile, RegionSource};
use crate::disk::{Disk, Stream};
use crate::error::{Error, Result};
use crate::group::Layout;
use backing::Backing;
use halves::Halves;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

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
    /// The error of a sync that nobody had asked for; the next one that somebody asks for fails with it.
    owed: Mutex<Option<Error>>,
    under_way: RwLock<Option<UnderWay>>,
    backing: Box<[Backing]>,
    /// None while the file never had a compression unit.
    units: OnceLock<Box<Units>>,
    /// Grows when pages leave the backing file for a compression unit, before their room there is given back.
    installs: AtomicU64,
    pub versions: Versions,
    pub halves: Halves,
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
        let backing = |disk: &u16| Backing::new(ino, Stream::Data, disks[*disk as usize].clone());
        let backing = layout.disks.iter().map(backing).collect();
        Self {
            ino,
            layout,
            size: AtomicU64::new(if is_new { 0 } else { SIZE_UNKNOWN }),
            mtime: AtomicI64::new(mtime),
            ctime: AtomicI64::new(ctime),
            times_dirty: AtomicBool::new(false),
            write: Mutex::new(()),
            sync: Mutex::new(()),
            owed: Mutex::new(None),
            under_way: RwLock::new(None),
            backing,
            units: OnceLock::new(),
            installs: AtomicU64::new(0),
            versions: Versions::new(mtime),
            halves: Halves::default(),
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

    /// Fills `buffer` with what the file holds at `offset`, zeros where nothing was ever written; returns what it took.
    /// With `direct`, past the operating system's cache; buffer and offset are then aligned.
    ///
    /// The write under way is looked up before the disk is read: if it ends in between, the disk has the same bytes.
    /// One that begins in between is concurrent with this read and may be seen in part; whoever must not see that
    /// compares the regions' versions before and after. When a page moved to a compression unit meanwhile, its raw room
    /// may be gone already, so all is read again.
    pub fn load(&self, buffer: &mut [u8], offset: u64, direct: bool) -> Result<RegionSource> {
        let range = offset..offset + buffer.len() as u64;
        let mut cost = RegionSource::default();
        loop {
            let installs = self.installs.load(Ordering::Acquire);
            let under_way = self.under_way.read().clone();
            let overlay = under_way.as_ref().and_then(|write| write.part(&range));
            if overlay.is_none_or(|(_, data)| data.len() < buffer.len()) {
                match self.units() {
                    None => self.load_raw(buffer, offset, direct, &mut cost)?,
                    Some(units) => self.load_mixed(units, buffer, offset, direct, &mut cost)?,
                }
            }
            if let Some((start, data)) = overlay {
                let at = (start - offset) as usize;
                buffer[at..at + data.len()].copy_from_slice(data);
            }
            if installs == self.installs.load(Ordering::Acquire) {
                return Ok(cost);
            }
        }
    }

    /// Reads what the backing files hold, current or not.
    fn load_raw(&self, buffer: &mut [u8], offset: u64, direct: bool, cost: &mut RegionSource) -> Result<()> {
        for piece in self.layout.pieces(offset..offset + buffer.len() as u64) {
            let at = (piece.range.start - offset) as usize..(piece.range.end - offset) as usize;
            cost.disk_requests += 1;
            cost.disk_bytes += self.backing[piece.slot].read(&mut buffer[at], piece.range.start, direct)? as u64;
        }
        Ok(())
    }

    /// Says that pages left the backing file; called after the change can be seen and before their room is given back.
    pub fn note_install(&self) {
        self.installs.fetch_add(1, Ordering::AcqRel);
    }

    /// The pages of a write under way in a range; None when it touches none.
    pub fn pages_under_way(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let under_way = self.under_way.read();
        let (start, data) = under_way.as_ref()?.part(range)?;
        Some(start / PAGE..(start + data.len() as u64).div_ceil(PAGE))
    }

    /// Bytes that the file takes on disk, as far as units tell.
    pub fn stored_bytes(&self) -> Result<u64> {
        let size = self.size()?;
        Ok(self.units().map_or(size, |units| size.saturating_add_signed(units.extra_bytes())))
    }

    /// The lock of a sync.
    pub fn lock_sync(&self) -> MutexGuard<'_, ()> {
        self.sync.lock()
    }

    /// The locks of a change that ends with a sync when the file has units: the sync's, then `write`.
    pub fn lock_for_cut(&self) -> (Option<MutexGuard<'_, ()>>, MutexGuard<'_, ()>) {
        loop {
            let sync = self.units().map(|_| self.lock_sync());
            let write = self.write.lock();
            if sync.is_some() || self.units().is_none() {
                return (sync, write);
            }
        }
    }

    /// Frees descriptors of backing files that have nothing unsynced; returns how many.
    pub fn close_handles(&self) -> usize {
        let units = self.units().into_iter().flat_map(|units| units.backing());
        let closed = self.backing.iter().chain(units).filter(|backing| backing.close()).count();
        let log = self.units().and_then(|units| units.log.try_lock());
        closed + log.map_or(0, |log| log.segments().iter().filter(|segment| segment.close()).count())
    }

    /// Removes the backing files, for good.
    pub fn remove(&self) -> Result<()> {
        self.backing.iter().try_for_each(Backing::remove)?;
        let Some(units) = self.units() else { return Ok(()) };
        units.backing().try_for_each(Backing::remove)?;
        units.log.lock().segments().iter().try_for_each(Backing::remove)
    }
}

/// Backing files that the process has open.
pub fn open_handles() -> usize {
    backing::OPEN_HANDLES.load(Ordering::Relaxed)
}
