//! Reading a compression unit for a scan.

use super::{Ino, Volume};
use crate::cache::{Cache, IoCost};
use crate::error::Result;
use crate::file::{CachedUnit, CountedBytes, Extent, FileData, PAGE, StoredUnitReader};
use crate::page_set::PageSet;
use cellar_format::ByteSource;
use cellar_format::units::{AuIndex, PageInAu, RegionVersion};
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A snapshot of a compression unit. Its bytes stay readable after the unit was replaced.
#[derive(Debug)]
pub struct UnitReader {
    /// Keeps the file's backing files from being removed.
    _file: Arc<FileData>,
    extent: Arc<Extent>,
    superseded: PageSet,
    version: RegionVersion,
    cost: Mutex<IoCost>,
    cache: Arc<Cache>,
    /// Slots that the page cache evicted since the previous reader of this unit; None for the first reader.
    evictions_since_use: Option<u64>,
}

impl UnitReader {
    /// Returns the version of the allocation unit that the bytes and the superseded pages belong to; compare it with
    /// [`Volume::au_version`].
    pub fn version(&self) -> RegionVersion {
        self.version
    }

    /// Returns the tag that the unit was stored with, see [`Volume::store_unit`].
    pub fn tag(&self) -> u32 {
        self.extent.tag
    }

    /// Returns the identity of the unit in [`crate::UnitCodec::open`].
    pub fn id(&self) -> u64 {
        self.extent.stored.id
    }

    /// Returns the pages of the unit that are superseded. Its page count is the number of pages of the unit; later
    /// pages of the allocation unit are raw.
    pub fn superseded(&self) -> &PageSet {
        &self.superseded
    }

    /// Returns what was read through this reader so far.
    pub fn cost(&self) -> IoCost {
        *self.cost.lock()
    }

    /// Returns the unit's bytes in the page cache, loaded on demand. None for the first reader of a unit: a single scan
    /// reads only the columns that it needs and evicts nothing. No bytes are loaded if the cache evicted at least half
    /// of its slots since the previous reader: the cache would evict the unit before its next use.
    pub fn in_cache(&self) -> Option<CachedUnit<'_>> {
        let cached =
            |evictions| CachedUnit::new(self, &self.extent.stored, &self.cache, evictions < self.cache.slots() / 2);
        self.evictions_since_use.map(cached)
    }

    /// Returns whether the unit consists of these bytes.
    pub fn has_bytes(&self, bytes: &[u8]) -> bool {
        self.extent.stored.has_bytes(bytes)
    }

    /// Returns a reader of a unit with its superseded pages, as of `version` of the allocation unit.
    pub(super) fn new(
        file: Arc<FileData>,
        (extent, superseded): (Arc<Extent>, PageSet),
        version: RegionVersion,
        cache: &Arc<Cache>,
    ) -> Self {
        let evictions_since_use = extent.stored.note_use(cache.evictions());
        let cache = cache.clone();
        Self { _file: file, extent, superseded, version, cost: Mutex::default(), cache, evictions_since_use }
    }

    fn counted(&self, read: impl FnOnce(&StoredUnitReader<'_>) -> io::Result<()>) -> io::Result<()> {
        let reader = StoredUnitReader::new(&self.extent.stored);
        let result = read(&reader);
        self.count(reader.cost());
        result
    }
}

impl CountedBytes for UnitReader {
    fn count(&self, cost: IoCost) {
        self.cost.lock().add(cost);
    }
}

impl ByteSource for UnitReader {
    fn length(&self) -> u64 {
        u64::from(self.extent.stored.length)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.counted(|reader| reader.read_at(buffer, offset))
    }

    fn read_unverified_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.counted(|reader| reader.read_unverified_at(buffer, offset))
    }
}

impl Volume {
    /// Returns a reader of the compression unit of an allocation unit; None if the allocation unit is raw.
    pub fn unit_reader(&self, ino: Ino, au: AuIndex) -> Result<Option<UnitReader>> {
        let file = self.file_with_au(ino, au)?;
        let Some(units) = file.units().filter(|units| units.extent(au).is_some()) else { return Ok(None) };
        let snapshot = file.versions.stable(file.au_regions(au), |version| -> Result<_> {
            let in_flight = file.pages_in_flight(&file.layout.au_range(au));
            let extent = units.extent(au);
            Ok(extent.map(|extent| (version, superseded_with(&file, &extent, in_flight), extent)))
        })?;
        let Some((version, superseded, extent)) = snapshot else { return Ok(None) };
        Ok(Some(UnitReader::new(file.clone(), (extent, superseded), version, &self.cache)))
    }
}

/// Returns the superseded pages of an extent plus those of the write in flight, which has changed the version but not
/// yet marked its pages.
fn superseded_with(file: &FileData, extent: &Extent, in_flight: Option<Range<u64>>) -> PageSet {
    let first_page = file.layout.au_range(extent.stored.au).start / PAGE;
    let mut superseded = extent.superseded.clone();
    for page in in_flight.into_iter().flatten().map(|page| (page - first_page) as u32) {
        if page < superseded.page_count() {
            superseded.insert(PageInAu(page));
        }
    }
    superseded
}
