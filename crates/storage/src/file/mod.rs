//! One file's bytes: its size, its backing files, its compression units and the write in flight.
//!
//! Invariants:
//! - While no write is in flight, the size is the largest length of the backing files.
//! - The content is the write in flight over the compression units over the backing files: a page is read from its
//!   compression unit where the page is current there (`units`), otherwise from the backing file.
//! - At most one write is in flight. Its thread holds the write lock, and acknowledges the write only after
//!   `end_write`.
//! - A backing file that may have unsynced changes has its `unsynced` flag set.
//! - Content changes only through the guards in [`locks`], which also documents the lock order.

mod backing;
mod kernel_file;
mod locks;
mod read;
mod recovery;
mod redo;
mod sync;
mod torn_blocks;
mod unit_pages;
mod units;
mod versions;
mod write;

pub use locks::{ConversionGuard, SyncGuard, WriteGuard};
pub use units::{
    BATCH_PAGES, CachedUnit, Checkpoint, CountedBytes, Extent, LogSequence, NewUnit, OpenUnit, PAGE, PAGE_BYTES,
    StoredUnit, StoredUnitReader, UnitCodec, UnitImage, UnitSlots, Units, cannot_rebuild, stored_bytes,
};
pub use versions::{Versions, regions};

use crate::cache::{Cache, CachedFile};
use crate::disk::{Check, Condition, Examined, FileStamp, FileStore, Stream};
use crate::error::{Context, Error, Result};
use crate::flash_log::Capture;
use crate::group::StripeLayout;
use crate::meta::{ExtentRecord, FileContent};
use backing::Backing;
use cellar_format::bytes::Write;
use cellar_format::units::{AuIndex, RegionIndex, RegionVersion};
use kernel_file::KernelFile;
use locks::Locks;
use parking_lot::{Mutex, RwLock};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use torn_blocks::TornBlocks;
use units::RedoLog;

/// Maximum file size in bytes: region numbers are 32 bits.
pub const SIZE_MAX: u64 = (u32::MAX as u64) << 20;
const SIZE_UNKNOWN: u64 = u64::MAX;

#[derive(Debug)]
pub struct FileData {
    pub ino: u64,
    pub layout: StripeLayout,
    /// [`SIZE_UNKNOWN`] until the first call of [`FileData::size`] after the volume was opened.
    size: AtomicU64,
    pub mtime: AtomicI64,
    pub ctime: AtomicI64,
    /// True when mtime or ctime differ from the metadata store's.
    pub times_dirty: AtomicBool,
    locks: Locks,
    /// The error of an internal sync, returned by the next sync that a client requests.
    deferred_sync_error: Mutex<Option<Error>>,
    in_flight: RwLock<Option<InFlightWrite>>,
    kernel_file: KernelFile,
    /// The writes since the last sync, of a file whose syncs use the flash log. None inside: other code stored the file's bytes
    /// before the log was used.
    redo: OnceLock<Option<Mutex<Capture>>>,
    /// A write has failed, and the backing files may be longer than the file. Changes under the write lock.
    is_overlong: AtomicBool,
    backing: Box<[Backing]>,
    /// None until the file gets its first compression unit.
    units: OnceLock<Box<Units>>,
    /// Number of compression units published so far. A unit is published before the raw pages under it are punched, so
    /// a reader that finds the number changed may have read a hole and reads again.
    published_units: AtomicU64,
    pub versions: Versions,
    pub torn_blocks: TornBlocks,
    pub cached: Arc<CachedFile>,
}

/// A write that readers already see but that the backing files do not yet contain completely.
#[derive(Debug, Clone)]
struct InFlightWrite {
    offset: u64,
    data: Arc<[u8]>,
}

impl InFlightWrite {
    /// Returns the bytes of the write that fall into `range`, and their offset in the file; None if there are none.
    fn part(&self, range: &Range<u64>) -> Option<(u64, &[u8])> {
        let start = self.offset.max(range.start);
        let end = (self.offset + self.data.len() as u64).min(range.end);
        let inside = |at: u64| (at - self.offset) as usize;
        (start < end).then(|| (start, &self.data[inside(start)..inside(end)]))
    }
}

impl FileData {
    /// Returns the state of a new file (size 0).
    pub fn new(ino: u64, layout: StripeLayout, disks: &[Arc<dyn FileStore>], time: i64) -> Self {
        Self { size: AtomicU64::new(0), ..Self::existing(ino, layout, disks, (time, time)) }
    }

    /// Returns whether an allocation unit starts below the maximum file size.
    pub fn may_contain(&self, au: AuIndex) -> bool {
        au.index().checked_mul(self.layout.au_size.bytes()).is_some_and(|start| start < SIZE_MAX)
    }

    /// Returns the state of a file that an earlier process created. `times` are mtime and ctime, in nanoseconds since
    /// 1970.
    pub fn existing(ino: u64, layout: StripeLayout, disks: &[Arc<dyn FileStore>], times: (i64, i64)) -> Self {
        let backing = |disk: &u16| Backing::new(ino, Stream::Data, disks[*disk as usize].clone());
        let backing = layout.disks.iter().map(backing).collect();
        let (mtime, ctime) = times;
        Self {
            ino,
            layout,
            size: AtomicU64::new(SIZE_UNKNOWN),
            mtime: AtomicI64::new(mtime),
            ctime: AtomicI64::new(ctime),
            times_dirty: AtomicBool::new(false),
            locks: Locks::default(),
            deferred_sync_error: Mutex::new(None),
            in_flight: RwLock::new(None),
            kernel_file: KernelFile::default(),
            redo: OnceLock::new(),
            is_overlong: AtomicBool::new(false),
            backing,
            units: OnceLock::new(),
            published_units: AtomicU64::new(0),
            versions: Versions::new(mtime),
            torn_blocks: TornBlocks::default(),
            cached: Arc::default(),
        }
    }

    /// Returns the size in bytes. The first call measures the backing files; later calls do no I/O.
    pub fn size(&self) -> Result<u64> {
        if self.is_passed_through() {
            return self.size_of_kernel_file();
        }
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

    /// Returns the encoded stamps of the files that contain the inode's blocks, on each disk of the stripe layout; None
    /// if a failed sync may have changed bytes that readers have seen.
    pub fn stamps(&self) -> Result<Option<Vec<u8>>> {
        if !self.backing.iter().all(Backing::is_as_read) {
            return Ok(None);
        }
        let mut stamps = Vec::new();
        for disk in self.backing.iter().map(Backing::disk) {
            for stream in [Stream::Data, Stream::Units] {
                let stamp = disk.stamp(self.ino, stream).context(|| {
                    format!(
                        "could not read the attributes of inode {} on cell disk {}",
                        self.ino,
                        disk.path().display()
                    )
                })?;
                stamps.put_bool(stamp.is_some());
                if let Some(FileStamp { number, length, modified, changed }) = stamp {
                    [number, length, modified as u64, changed as u64].iter().for_each(|value| stamps.put_u64(*value));
                }
            }
        }
        Ok(Some(stamps))
    }

    /// Returns whether [`Self::size`] does no I/O.
    pub fn is_measured(&self) -> bool {
        self.size.load(Ordering::Acquire) != SIZE_UNKNOWN
    }

    /// Returns the bytes that the file occupies on disk: its size, holes included, corrected for its compression units.
    pub fn stored_bytes(&self) -> Result<u64> {
        let size = self.size()?;
        Ok(self.units().map_or(size, |units| size.saturating_add_signed(units.extra_bytes())))
    }

    /// Returns the file's compression units; None while the file never had one.
    pub fn units(&self) -> Option<&Units> {
        self.units.get().map(|units| &**units)
    }

    pub fn units_or_new(&self, codec: Option<&Arc<dyn UnitCodec>>, cache: &Arc<Cache>) -> &Units {
        self.units.get_or_init(|| {
            let disks: Vec<Arc<dyn FileStore>> = self.backing.iter().map(|backing| backing.disk().clone()).collect();
            let unit_files = disks.iter().map(|disk| Backing::new(self.ino, Stream::Units, disk.clone())).collect();
            let segment = |stream| Backing::new(self.ino, stream, disks[0].clone());
            let redo_log = RedoLog::new(self.ino, [segment(Stream::Redo0), segment(Stream::Redo1)]);
            let slots = UnitSlots::new(self.ino, self.layout.clone(), unit_files);
            Box::new(Units::new(codec.cloned(), cache.clone(), slots, redo_log))
        })
    }

    /// Returns whether no space is allocated in the backing file for a range within one allocation unit.
    pub fn is_hole(&self, offset: u64, length: u64) -> Result<bool> {
        self.backing[self.layout.disk_index(offset)].is_hole(offset, length)
    }

    /// Reads all copies of a range of the backing file, within one allocation unit.
    pub fn examine(&self, range: &Range<u64>, check: &Check<'_>) -> Result<Examined> {
        self.backing[self.layout.disk_index(range.start)].examine(range, check)
    }

    /// Repairs the copies of a range of the backing file, within one allocation unit.
    pub fn repair(&self, range: &Range<u64>, check: &Check<'_>) -> Result<Condition> {
        self.backing[self.layout.disk_index(range.start)].repair(range, check)
    }

    /// Returns the number of whole pages that the file has in an allocation unit.
    pub fn whole_pages(&self, au: AuIndex) -> Result<u32> {
        let au_bytes = self.layout.au_size.bytes();
        let start = au.index().saturating_mul(au_bytes);
        Ok((self.size()?.saturating_sub(start).min(au_bytes) / PAGE) as u32)
    }

    /// Returns the regions that an allocation unit consists of.
    pub fn au_regions(&self, au: AuIndex) -> Range<RegionIndex> {
        regions(self.layout.au_range(au))
    }

    /// Returns the highest version of the regions in an allocation unit, which changes with every change of one of
    /// them.
    pub fn au_version(&self, au: AuIndex) -> RegionVersion {
        self.versions.latest(self.au_regions(au)).0
    }

    /// Returns when the allocation unit last changed, in nanoseconds since 1970.
    pub fn au_changed(&self, au: AuIndex) -> i64 {
        self.versions.latest(self.au_regions(au)).1
    }

    /// Closes the descriptors of backing files that have nothing unsynced; returns how many.
    pub fn close_handles(&self) -> usize {
        let unit_files = self.units().into_iter().flat_map(|units| units.unit_files());
        let closed = self.backing.iter().chain(unit_files).filter(|backing| backing.close()).count();
        closed + self.units().map_or(0, |units| units.close_redo_log())
    }

    /// Removes the file's backing files, unit files and redo log from the disks.
    pub fn remove(&self) -> Result<()> {
        self.backing.iter().try_for_each(Backing::remove)?;
        self.units().map_or(Ok(()), Units::remove)
    }
}

impl FileContent for FileData {
    fn take_times(&self) -> (i64, i64) {
        let times = (self.mtime.load(Ordering::Relaxed), self.ctime.load(Ordering::Relaxed));
        self.times_dirty.store(false, Ordering::Relaxed);
        times
    }

    fn extent_record(&self, au: AuIndex) -> Option<ExtentRecord> {
        self.units()?.record(au)
    }
}

/// Returns the number of backing files that the process has open.
pub fn open_handles() -> usize {
    backing::OPEN_HANDLES.load(Ordering::Relaxed)
}
