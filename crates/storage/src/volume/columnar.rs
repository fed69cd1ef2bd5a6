//! The columnar cache of a volume: units of raw allocation units, for scans.

use super::{Ino, UnitReader, Volume};
use crate::columnar::{ColumnarStats, ColumnsStored, FoundColumns, NewColumns};
use crate::error::{Error, ErrorKind, Result};
use crate::flash::FlashSetting;
use cellar_format::units::AuIndex;
use std::io;

/// The columns that the columnar cache has of an allocation unit.
#[derive(Debug)]
pub enum CachedColumns {
    Unit(UnitReader),
    /// The cache had a unit, but the allocation unit has changed since.
    Changed,
    Missing,
}

impl Volume {
    /// Returns whether the volume has a columnar cache that is used.
    pub fn has_columnar_cache(&self) -> bool {
        self.columnar.as_ref().is_some_and(|columnar| columnar.is_on())
    }

    /// Returns a reader of the cached unit of a raw allocation unit. The unit has the pages of the allocation unit as they are at the
    /// time of the call; like that of a compression unit, the reader is not affected by later changes.
    pub fn cached_columns(&self, ino: Ino, au: AuIndex) -> Result<CachedColumns> {
        let Some(columnar) = self.columnar.as_ref().filter(|columnar| columnar.is_on()) else {
            return Ok(CachedColumns::Missing);
        };
        let file = self.file_with_au(ino, au)?;
        Ok(match columnar.find(&file, au) {
            FoundColumns::Unit(extent, version) => {
                let current = extent.superseded.clone();
                CachedColumns::Unit(UnitReader::new(file, (extent, current), version, &self.cache))
            }
            FoundColumns::Changed => CachedColumns::Changed,
            FoundColumns::Missing => CachedColumns::Missing,
        })
    }

    /// Stores a unit of a raw allocation unit in the columnar cache.
    pub fn store_columns(&self, ino: Ino, unit: NewColumns<'_>) -> Result<ColumnsStored> {
        let Some(columnar) = &self.columnar else { return Ok(ColumnsStored::Refused) };
        let file = self.file_with_au(ino, unit.au)?;
        if file.whole_pages(unit.au)? != unit.page_count {
            return Ok(ColumnsStored::Changed);
        }
        let stored = columnar.store(&file, unit, || self.columnar_setting(ino));
        if self.file(ino).is_err() {
            // Removed meanwhile, perhaps before the cache had something of it.
            columnar.remove_file(ino);
        }
        stored
    }

    /// Returns whether a unit of a file would find a place in the columnar cache, before it is encoded. `previous_use` is that of
    /// [`NewColumns`].
    pub fn has_space_for_columns(&self, ino: Ino, previous_use: Option<i64>) -> bool {
        self.columnar.as_ref().is_some_and(|columnar| columnar.has_space(ino, self.columnar_setting(ino), previous_use))
    }

    /// Returns whether units of a file are cached, and how long they stay.
    pub fn columnar_setting(&self, ino: Ino) -> FlashSetting {
        self.flash_setting(ino).unwrap_or_default()
    }

    /// Drops a unit that could not be read. An error other than damaged bytes switches the cache off.
    pub fn drop_columns(&self, ino: Ino, au: AuIndex, error: &io::Error) {
        let Some(columnar) = &self.columnar else { return };
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
        match cause.map(Error::kind) {
            Some(ErrorKind::Corrupt) => {
                log::warn!("{error}; the scan reads the cell disks, and the unit leaves the columnar cache");
                columnar.remove(ino, au);
            }
            _ => columnar.fail(error),
        }
    }

    /// Returns the counters of the columnar cache; None if none is configured. A cache whose disks cannot be used is off.
    pub fn columnar_stats(&self) -> Option<ColumnarStats> {
        let capacity_bytes = self.options.flash.as_ref().map_or(0, |flash| flash.columnar_bytes);
        let unusable = || (capacity_bytes > 0).then(|| ColumnarStats { capacity_bytes, ..ColumnarStats::default() });
        self.columnar.as_ref().map(|columnar| columnar.stats()).or_else(unusable)
    }

    /// Returns the bytes that the columnar cache has of a file.
    pub fn columnar_bytes(&self, ino: Ino) -> u64 {
        self.columnar.as_ref().map_or(0, |columnar| columnar.bytes_of(ino))
    }
}
