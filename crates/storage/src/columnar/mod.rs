//! The columnar cache: compression units of allocation units that are stored raw, in files on the flash disks.
//!
//! The caller encodes units. This module stores them, finds them, and decides which ones stay ([`table`]).
//!
//! Invariants:
//! - A unit is found only while its allocation unit has the version that was read before the unit's pages. Every change of a byte
//!   changes the version before the change is visible, so writers need not know of the cache.
//! - Versions and inode numbers belong to one process. [`ColumnarCache::open`] removes all files of an earlier process, so nothing
//!   is synced, and a crash brings no unit back.
//! - An error of a flash disk switches the cache off. The cell disks have every byte.

mod table;

use crate::cache::Cache;
use crate::disk::{Disk, FileStore, Stream};
use crate::error::{Error, ErrorKind, Result};
use crate::file::{Extent, FileData, StoredUnit, UnitSlots, stored_bytes};
use crate::flash::FlashSetting;
use crate::group::{StripeLayout, StripeOrder};
use cellar_format::units::{AuIndex, RegionIndex, RegionVersion};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use table::{Class, Entry, Limits, Table, Wanted};

/// A compression unit for the cache, and the allocation unit whose raw pages it contains.
#[derive(Debug, Clone, Copy)]
pub struct NewColumns<'a> {
    pub au: AuIndex,
    /// The version of the allocation unit that was read before its pages.
    pub version: RegionVersion,
    /// Pages of the unit: all whole pages of the allocation unit.
    pub page_count: u32,
    /// Opaque to the storage, see [`crate::Volume::store_unit`].
    pub tag: u32,
    pub bytes: &'a [u8],
    /// When the allocation unit was scanned the last time but one, in nanoseconds since 1970. Units that were used since then are
    /// not evicted for this one. None evicts no unit, except for a file with KEEP.
    pub previous_use: Option<i64>,
}

/// The result of storing a unit in the columnar cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnsStored {
    Stored,
    /// The allocation unit changed after its pages were read.
    Changed,
    /// The cache is full of units that are used more often, or of units that are still being read.
    Full,
    /// The cache is off, or does not cache the file.
    Refused,
}

/// What the columnar cache has and did since the volume was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ColumnarStats {
    /// False after a flash disk failed.
    pub is_on: bool,
    pub capacity_bytes: u64,
    /// Bytes of all units, those of files with KEEP included.
    pub used_bytes: u64,
    pub keep_bytes: u64,
    pub units: u64,
    /// Units that scans have opened.
    pub hits: u64,
    pub populated_units: u64,
    pub populated_bytes: u64,
    /// Units that were dropped because their allocation units had changed.
    pub invalidated_units: u64,
    pub evicted_units: u64,
    /// Units that were encoded and found no place.
    pub rejected_units: u64,
}

#[derive(Debug, Default)]
struct Counters {
    hits: AtomicU64,
    populated_units: AtomicU64,
    populated_bytes: AtomicU64,
    invalidated_units: AtomicU64,
    evicted_units: AtomicU64,
    rejected_units: AtomicU64,
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// The unit of an allocation unit.
#[derive(Debug)]
pub enum FoundColumns {
    /// With the version of its pages.
    Unit(Arc<Extent>, RegionVersion),
    /// The allocation unit has changed since its unit was stored.
    Changed,
    Missing,
}

#[derive(Debug)]
pub struct ColumnarCache {
    disks: Vec<Arc<dyn FileStore>>,
    limits: Limits,
    /// Contains parts of units that scans have read.
    page_cache: Arc<Cache>,
    is_on: AtomicBool,
    table: Mutex<Table>,
    counters: Counters,
}

impl ColumnarCache {
    /// Opens an empty cache on the flash disks. An error of a flash disk leaves the cache switched off.
    pub fn open(disks: &[Arc<dyn Disk>], capacity_bytes: u64, files_max: usize, page_cache: &Arc<Cache>) -> Self {
        let stores = disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn FileStore>).collect();
        let cache = Self {
            disks: stores,
            limits: Limits { bytes: capacity_bytes, files: files_max },
            page_cache: page_cache.clone(),
            is_on: AtomicBool::new(true),
            table: Mutex::default(),
            counters: Counters::default(),
        };
        match remove_files(disks) {
            Ok(()) => log::info!("columnar cache of {} MiB on {} flash disks", capacity_bytes >> 20, disks.len()),
            Err(error) => cache.fail(&error),
        }
        cache
    }

    /// Removes the units of an earlier process from flash disks that are used without a columnar cache.
    pub fn remove_leftovers(disks: &[Arc<dyn Disk>]) {
        if let Err(error) = remove_files(disks) {
            log::warn!("could not remove the files of an earlier columnar cache: {error}");
        }
    }

    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Returns the unit of an allocation unit.
    pub fn find(&self, file: &FileData, au: AuIndex) -> FoundColumns {
        let mut table = self.table.lock();
        let Some(entry) = table.entry(file.ino, au) else { return FoundColumns::Missing };
        // Read under the lock: compared with an earlier version, a unit that was stored since would be dropped.
        if entry.version == file.au_version(au) {
            let (extent, version) = (entry.extent.clone(), entry.version);
            table.touch(file.ino, au, crate::now());
            count(&self.counters.hits, 1);
            return FoundColumns::Unit(extent, version);
        }
        let dropped = table.remove(file.ino, au);
        drop(table);
        self.drop_units(dropped);
        count(&self.counters.invalidated_units, 1);
        FoundColumns::Changed
    }

    /// Stores a unit. `setting` returns the current setting of the file.
    pub fn store(
        &self,
        file: &FileData,
        unit: NewColumns<'_>,
        setting: impl Fn() -> FlashSetting,
    ) -> Result<ColumnsStored> {
        let NewColumns { au, version, page_count, tag, bytes, previous_use } = unit;
        let Some(class) = Class::of(setting()).filter(|_| self.is_on()) else { return Ok(ColumnsStored::Refused) };
        let au_bytes = file.layout.au_size.bytes();
        if bytes.is_empty() || bytes.len() as u64 > au_bytes || stored_bytes(bytes.len() as u32) > au_bytes {
            let message = format!("invalid unit of {} bytes for inode {}", bytes.len(), file.ino);
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let wanted = Wanted { bytes: stored_bytes(bytes.len() as u32).next_multiple_of(4096), class, previous_use };
        let Some(slots) = self.make_space(file, au, &wanted) else {
            count(&self.counters.rejected_units, 1);
            return Ok(ColumnsStored::Full);
        };
        let Some(stored) = StoredUnit::reserve(&slots, au, bytes).map(Arc::new) else {
            let mut table = self.table.lock();
            table.reserved_bytes = table.reserved_bytes.saturating_sub(wanted.bytes);
            drop(table);
            count(&self.counters.rejected_units, 1);
            return Ok(ColumnsStored::Full);
        };
        // The slot is punched when the last reader drops the unit, also if the unit does not get into the table.
        stored.mark_unused();
        let written = stored.write(bytes);
        let extent = Arc::new(Extent::unlogged(stored, tag, page_count));
        let (mut replaced, used) = (None, crate::now());
        let result = {
            let mut table = self.table.lock();
            table.reserved_bytes = table.reserved_bytes.saturating_sub(wanted.bytes);
            // The file may have been removed, and the setting may have changed, since the space was reserved.
            match Class::of(setting()).filter(|_| written.is_ok() && table.has(file.ino, &slots)) {
                None => ColumnsStored::Refused,
                Some(_) if file.au_version(au) != version => ColumnsStored::Changed,
                Some(class) => {
                    let entry = Entry { extent: extent.clone(), version, bytes: wanted.bytes, used };
                    replaced = table.insert((file.ino, au), class, entry);
                    ColumnsStored::Stored
                }
            }
        };
        if let Err(error) = written
            && error.kind() != ErrorKind::Stale
        {
            self.fail(&error.into());
        }
        drop(extent);
        self.drop_units(replaced);
        match result {
            ColumnsStored::Stored => {
                count(&self.counters.populated_units, 1);
                count(&self.counters.populated_bytes, wanted.bytes);
            }
            _ => count(&self.counters.rejected_units, 1),
        }
        Ok(result)
    }

    /// Returns whether a unit of the usual size would find a place, see [`NewColumns::previous_use`].
    pub fn has_space(&self, ino: u64, setting: FlashSetting, previous_use: Option<i64>) -> bool {
        let Some(class) = Class::of(setting).filter(|_| self.is_on()) else { return false };
        let table = self.table.lock();
        table.has_space(ino, &Wanted { bytes: table.usual_bytes(), class, previous_use }, self.limits)
    }

    /// Reserves space for a unit, and returns the slots of its file. None if there is no space for it.
    fn make_space(&self, file: &FileData, au: AuIndex, wanted: &Wanted) -> Option<Arc<UnitSlots>> {
        let mut table = self.table.lock();
        if !self.is_on() {
            return None;
        }
        let replaced = table.remove(file.ino, au);
        let space = table.make_space(file.ino, wanted, self.limits, || self.new_slots(file));
        drop(table);
        let (slots, evicted) = space.map_or((None, Vec::new()), |(slots, evicted)| (Some(slots), evicted));
        count(&self.counters.evicted_units, evicted.len() as u64);
        self.drop_units(replaced.into_iter().chain(evicted));
        slots
    }

    /// Drops units that left the table, without the table's lock: that punches their slots, unless the slots are abandoned.
    fn drop_units(&self, units: impl IntoIterator<Item = Arc<Extent>>) {
        for unit in units {
            self.page_cache.forget(&unit.stored.cached, RegionIndex(0)..RegionIndex::MAX);
        }
    }

    fn new_slots(&self, file: &FileData) -> Arc<UnitSlots> {
        let numbers: Vec<u16> = (0..self.disks.len() as u16).collect();
        let start = (file.ino % self.disks.len() as u64) as u16;
        let layout = StripeLayout { au_size: file.layout.au_size, start, disks: numbers, order: StripeOrder::Equal };
        UnitSlots::in_flash(file.ino, layout, &self.disks)
    }

    /// Drops the unit of an allocation unit.
    pub fn remove(&self, ino: u64, au: AuIndex) {
        let removed = self.table.lock().remove(ino, au);
        self.drop_units(removed);
    }

    /// Drops the units of a file that was removed. Uses no flash disk: [`Self::remove_unit_files`] follows.
    pub fn remove_file(&self, ino: u64) {
        let removed = self.table.lock().remove_file(ino);
        self.drop_units(removed);
    }

    /// Removes the unit files of files that left the cache, when no scan reads them any more. The caller must hold no lock: a flash
    /// disk that hangs delays it.
    pub fn remove_unit_files(&self) {
        let removable = self.table.lock().removable();
        for slots in removable {
            match self.is_on().then(|| slots.remove()) {
                Some(Ok(())) => self.table.lock().set_removed(slots.ino),
                Some(Err(error)) => self.fail(&error.into()),
                None => return,
            }
        }
    }

    /// Applies the setting of a file to the units that it has.
    pub fn set_setting(&self, ino: u64, setting: FlashSetting) {
        let dropped = self.table.lock().set_class(ino, Class::of(setting));
        self.drop_units(dropped);
    }

    /// Returns the bytes of a file's units.
    pub fn bytes_of(&self, ino: u64) -> u64 {
        self.table.lock().bytes_of(ino)
    }

    /// Switches the cache off after an operation of a flash disk failed.
    pub fn fail(&self, error: &io::Error) {
        if !self.switch_off() {
            return;
        }
        let disks: Vec<String> = self.disks.iter().map(|disk| disk.path().display().to_string()).collect();
        let advice = match error.kind() {
            io::ErrorKind::StorageFull => "free space on the flash disks, or lower columnar_cache_size",
            _ => "replace the flash disk",
        };
        log::error!(
            "the columnar cache on {} is switched off: {error}; scans read the cell disks; {advice} and restart the cell",
            disks.join(", ")
        );
    }

    /// Drops all units, without an operation on the flash disks. Returns false if the cache was off.
    pub fn switch_off(&self) -> bool {
        let was_on = self.is_on.swap(false, Ordering::AcqRel);
        if was_on {
            std::mem::take(&mut *self.table.lock()).abandon();
        }
        was_on
    }

    pub fn stats(&self) -> ColumnarStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let table = self.table.lock();
        ColumnarStats {
            is_on: self.is_on(),
            capacity_bytes: self.limits.bytes,
            used_bytes: table.bytes(),
            keep_bytes: table.bytes_in(Class::Keep),
            units: table.len() as u64,
            hits: get(&counters.hits),
            populated_units: get(&counters.populated_units),
            populated_bytes: get(&counters.populated_bytes),
            invalidated_units: get(&counters.invalidated_units),
            evicted_units: get(&counters.evicted_units),
            rejected_units: get(&counters.rejected_units),
        }
    }
}

impl Drop for ColumnarCache {
    /// The next start removes the unit files, so no slot is punched.
    fn drop(&mut self) {
        self.table.get_mut().abandon();
    }
}

/// Removes the units of an earlier process.
fn remove_files(disks: &[Arc<dyn Disk>]) -> io::Result<()> {
    for disk in disks {
        for (ino, stream) in disk.backing_files()? {
            if stream == Stream::Units {
                disk.remove(ino, stream)?;
            }
        }
    }
    Ok(())
}
