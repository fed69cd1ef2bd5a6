//! Smart Scan of allocation units that have a compression unit.
//!
//! Current pages are scanned in their encoded form, superseded pages in their raw form, all in block order.
//!
//! A scan holds one unit open. The unit and its set of current pages are a snapshot that was taken after the scan
//! began. Later writes add no row version that the scan's MVCC snapshot sees.

use super::{Attempt, ScanError, ScanSink, SmartScan, bytes_of, reads};
use crate::columnar::{BackedByHeap, Unreadable};
use crate::relation::DiskObject;
use cellar_format::ByteSource;
use cellar_format::stats::ScanStats;
use cellar_format::units::{AuIndex, BLOCK_BYTES, PageInAu, REGION_BLOCKS, RegionIndex};
use cellar_scan::unit::{Unit, UnitError};
use cellar_scan::{Progress, unit_summary};
use cellar_storage::{CachedColumns, Error, ErrorKind, IoCost, UnitReader};
use std::cell::OnceCell;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Attempts to read superseded pages while writers change the allocation unit; then the pages are passed through.
const READ_ATTEMPTS: usize = 3;

/// The compression unit that a scan holds open.
pub(super) struct HeldUnit {
    object: DiskObject,
    au: AuIndex,
    reader: UnitReader,
    /// None until the scan reads the unit's first pages.
    unit: Option<Arc<Unit>>,
    /// The part of the reader's reads that the statistics contain.
    counted_reads: IoCost,
    eligible: UnitShare,
    saved: UnitShare,
    /// The unit is from the columnar cache: the allocation unit is stored raw.
    is_cached: bool,
    /// Filled when a read of a unit of the columnar cache failed.
    unreadable: OnceCell<Unreadable>,
}

/// Attributes a unit's stored bytes to its pages: equal shares, which add up to exactly the unit's bytes.
#[derive(Default)]
struct UnitShare {
    pages: u64,
}

impl UnitShare {
    /// Returns the bytes of the next `pages` pages.
    fn take(&mut self, pages: u64, reader: &UnitReader) -> u64 {
        let bytes = |pages: u64| pages * reader.length() / u64::from(reader.superseded().page_count()).max(1);
        let before = bytes(self.pages);
        self.pages += pages;
        bytes(self.pages) - before
    }
}

impl HeldUnit {
    fn new(object: DiskObject, au: AuIndex, reader: UnitReader, is_cached: bool) -> Self {
        let (counted_reads, eligible, saved, unreadable) = Default::default();
        Self { object, au, reader, unit: None, counted_reads, eligible, saved, is_cached, unreadable }
    }

    /// Returns the longest prefix of `pages` whose pages are all current or all superseded, and whether they are
    /// current.
    fn run(&self, pages: Range<u32>) -> (Range<u32>, bool) {
        let superseded = self.reader.superseded();
        if pages.start >= superseded.page_count() {
            return (pages, false);
        }
        let is_current = !superseded.contains(PageInAu(pages.start));
        (pages.start..superseded.run_end(pages), is_current)
    }

    /// Returns the stored bytes of pages: shares of the unit for current pages, whole pages for superseded ones.
    pub(super) fn stored_bytes(&mut self, pages: Range<u32>) -> u64 {
        if self.is_cached {
            return bytes_of(pages);
        }
        let (mut current, mut left) = (0, pages.clone());
        while !left.is_empty() {
            let (run, is_current) = self.run(left.clone());
            current += if is_current { run.len() as u64 } else { 0 };
            left.start = run.end;
        }
        self.eligible.take(current, &self.reader) + (pages.len() as u64 - current) * BLOCK_BYTES as u64
    }

    /// Returns the reads since the last call.
    fn take_reads(&mut self) -> ScanStats {
        let cost = self.reader.cost();
        reads(&cost.since(&std::mem::replace(&mut self.counted_reads, cost)))
    }
}

impl SmartScan {
    /// Returns the held unit if it belongs to the allocation unit; otherwise opens the allocation unit's unit. Returns
    /// None if the allocation unit is raw, and the columnar cache has no unit of it.
    pub(super) fn take_unit(&mut self, object: DiskObject, au: AuIndex) -> Result<Option<HeldUnit>, ScanError> {
        // `filter` drops the unit of another allocation unit, which releases its slot, before the next unit is opened.
        let held = self.unit.take().filter(|held| (held.object, held.au) == (object, au));
        if held.is_some() {
            return Ok(held);
        }
        let volume = &self.state.volume;
        if let Some(reader) = volume.unit_reader(object, au)? {
            return Ok(Some(HeldUnit::new(object, au, reader, false)));
        }
        if self.plan.index().is_some() {
            return Ok(None);
        }
        Ok(match volume.cached_columns(object, au)? {
            CachedColumns::Unit(reader) => Some(HeldUnit::new(object, au, reader, true)),
            CachedColumns::Changed => {
                self.state.columnar_candidates.note_change(object, au);
                None
            }
            CachedColumns::Missing => None,
        })
    }

    /// Opens a unit of the columnar cache before its first pages are scanned. Returns None if flash cannot be read: the scan then
    /// reads the raw pages. Returns a unit of the table as it is.
    pub(super) fn with_cached_unit(&self, mut held: HeldUnit) -> Option<HeldUnit> {
        if !held.is_cached || held.unit.is_some() {
            return Some(held);
        }
        match self.state.unit_directories.open(held.reader.id(), &held.reader) {
            Ok(unit) => {
                held.unit = Some(unit);
                Some(held)
            }
            Err(error) => {
                self.state.volume.drop_columns(held.object, held.au, &io_error(error));
                None
            }
        }
    }

    /// Scans pages of a unit. `first_block` is the relation's number of the first page's block.
    pub(super) fn unit_pages<S: ScanSink>(
        &mut self,
        held: &mut HeldUnit,
        first_block: u32,
        pages: Range<u32>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let read =
            |stats: &ScanStats| stats.disk_read_bytes + stats.cache_hit_bytes + stats.saved_by_storage_index_bytes;
        let (mut left, read_before) = (pages.clone(), read(&self.stats));
        while !left.is_empty() {
            let (run, is_current) = held.run(left.clone());
            left.start = run.end;
            let block = first_block + (run.start - pages.start);
            match is_current {
                true => self.current_pages(held, block - run.start, run, sink)?,
                false => self.superseded_pages(held, block, run, sink)?,
            }
        }
        self.stats.add(&held.take_reads());
        if held.is_cached {
            let read = read(&self.stats) - read_before;
            self.stats.saved_by_columnar_cache_bytes += bytes_of(pages).saturating_sub(read);
        }
        Ok(())
    }

    /// Records the summaries of regions of the held unit's allocation unit, whose first region is `first`, from the bounds in
    /// the unit's directory: the next scan then excludes the regions without opening the unit. The bounds describe a region
    /// if the unit contains all of its pages and none was superseded.
    pub(super) fn record_unit_summaries(&self, held: &HeldUnit, first: RegionIndex, regions: Range<RegionIndex>) {
        let HeldUnit { object, au, reader, unit: Some(unit), .. } = held else { return };
        if !reader.superseded().is_empty() {
            return;
        }
        let volume = &self.state.volume;
        let unit_pages = reader.superseded().page_count();
        for region in RegionIndex::iter(regions) {
            let version = volume.region_version(*object, region);
            if !self.wants_summary(*object, region, version) {
                continue;
            }
            let start = (region.0 - first.0) * REGION_BLOCKS;
            let end = (start + REGION_BLOCKS).min(unit_pages);
            let end_of_unit = first.start() + bytes_of(0..end);
            let is_whole = end == start + REGION_BLOCKS || volume.size(*object).is_ok_and(|size| size <= end_of_unit);
            let summary = unit_summary(&self.plan, unit, start as usize..end as usize).filter(|_| is_whole);
            // The versions did not change since the reader was opened, so `version` is that of the unit's pages.
            let is_unchanged = volume.au_version(*object, *au).is_ok_and(|version| version == reader.version());
            if let Some(summary) = summary.filter(|_| is_unchanged) {
                self.state.storage_index.record((*object, region), version, self.layout, summary);
            }
        }
    }

    /// Scans current pages in the unit. `unit_block` is the relation's number of the unit's first block.
    fn current_pages<S: ScanSink>(
        &mut self,
        held: &mut HeldUnit,
        unit_block: u32,
        pages: Range<u32>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let HeldUnit { object, au, reader, unit, saved, is_cached, unreadable, .. } = held;
        let (object, au, is_cached, reader, unreadable) = (*object, *au, *is_cached, &*reader, &*unreadable);
        let state = self.state.clone();
        let blocks = unit_block..unit_block + reader.superseded().page_count();
        let damaged = |error| match is_cached {
            true => ScanError::FlashFailed { blocks: blocks.clone(), error },
            false => ScanError::DamagedUnit { blocks: blocks.clone(), error },
        };
        let unit = match unit {
            Some(unit) => unit,
            None => unit.insert(state.unit_directories.open(reader.id(), reader).map_err(damaged)?),
        };
        let pages = pages.start as usize..pages.end as usize;
        let (was_readable, mut is_damaged) = (unreadable.get().is_none(), false);
        let result = self.with_xids(sink, |scan| {
            let cached = reader.in_cache();
            let bytes = cached.as_ref().map_or(reader as &dyn ByteSource, |cached| cached);
            let backed = || BackedByHeap::new((bytes, reader), &state, (object, au), unit.shape(), unreadable);
            let backed = is_cached.then(backed);
            let bytes = backed.as_ref().map_or(bytes, |backed| backed);
            let scanner = &mut scan.workspace.unit_scanner;
            let scanned = scanner.scan(unit_block, unit, bytes, pages.clone(), &scan.xids, &mut scan.writer);
            scan.stats.cache_hit_bytes += cached.map_or(0, |cached| cached.hit_bytes());
            is_damaged |= scanned.is_err() && unreadable.get().is_none();
            match scanned.map_err(damaged)? {
                Progress::Done { mut stats, .. } => {
                    let saved_pages = stats.saved_by_storage_index_bytes / BLOCK_BYTES as u64;
                    if !is_cached {
                        stats.saved_by_storage_index_bytes = saved.take(saved_pages, reader);
                    }
                    scan.stats.add(&stats);
                    Ok(Attempt::Done(()))
                }
                Progress::NeedXids(xids) => Ok(Attempt::NeedXids(xids)),
            }
        });
        // Not while the scan has pinned parts of the unit in the page cache, from which they are dropped, too.
        if let Some(unreadable) = unreadable.get().filter(|_| was_readable) {
            state.volume.drop_columns(object, au, &unreadable.error);
        } else if is_cached && is_damaged {
            let error = Error::new(ErrorKind::Corrupt, format!("the cached unit of allocation unit {au} is damaged"));
            state.volume.drop_columns(object, au, &error.into());
        }
        result
    }

    /// Scans pages that were written after their unit was created. `block` is the relation's number of the first page.
    fn superseded_pages<S: ScanSink>(
        &mut self,
        held: &HeldUnit,
        block: u32,
        pages: Range<u32>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let end = block + (pages.end - pages.start);
        let Some(bytes) = self.read_superseded(held.object, held.au, pages).map_err(S::Error::from)? else {
            self.pass_through(block..end);
            return Ok(());
        };
        self.workspace.scanner.verify_checksums(self.checksums);
        self.with_xids(sink, |scan| {
            match scan.workspace.scanner.scan(block, &bytes, &scan.xids, &mut scan.writer, false) {
                Progress::Done { stats, .. } => {
                    scan.stats.add(&stats);
                    scan.stats.cache_hit_bytes += bytes.len() as u64;
                    scan.pass_through(block + (bytes.len() / BLOCK_BYTES) as u32..end);
                    Ok(Attempt::Done(()))
                }
                Progress::NeedXids(xids) => Ok(Attempt::NeedXids(xids)),
            }
        })
    }

    /// Reads superseded pages. Returns None if the unit changed during every attempt, or if a block is torn. A read may
    /// see a part of a concurrent write, so a read is valid only if the version is the same before and after.
    fn read_superseded(
        &self,
        object: DiskObject,
        au: AuIndex,
        pages: Range<u32>,
    ) -> Result<Option<Vec<u8>>, ScanError> {
        let volume = &self.state.volume;
        let offset = au.index() * volume.au_bytes(object)? + u64::from(pages.start) * BLOCK_BYTES as u64;
        let mut bytes = vec![0; bytes_of(pages) as usize];
        for _ in 0..READ_ATTEMPTS {
            let version = volume.au_version(object, au)?;
            let read = volume.read(object, offset, &mut bytes)?;
            if volume.has_torn_block(object, offset..offset + bytes.len() as u64)? {
                return Ok(None);
            }
            if volume.au_version(object, au)? == version {
                bytes.truncate(read / BLOCK_BYTES * BLOCK_BYTES);
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

/// Returns the storage's error, which says whether the bytes are damaged or the disk failed.
fn io_error(error: UnitError) -> io::Error {
    match error {
        UnitError::Source(error) => error,
        UnitError::Corrupt(error) => {
            Error::new(ErrorKind::Corrupt, format!("unit of the columnar cache: {error}")).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Credentials, Permission};
    use crate::columnar::fill;
    use crate::compression::{CompressionError, compress};
    use crate::fixtures;
    use crate::relation::Segments;
    use crate::state::{CellState, ColumnarCandidates, MemoryKind, Times};
    use cellar_format::bytes::Write;
    use cellar_format::postgres::{Align, Collation, TransactionId, Width, type_oid};
    use cellar_format::units::REGION_BYTES;
    use cellar_format::wire::{Attribute, BlockRange, Expr, Missing, Relation, ScanRequest, XidState};
    use cellar_scan::unit::{Level, Shape};
    use cellar_storage::disk::{DirectoryDisk, Disk};
    use cellar_storage::{AuSize, FlashOptions, Volume, VolumeOptions};
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::time::Duration;

    const REGIONS: u32 = 4;
    const FROZEN: u16 = 0x0300 | 0x0800;

    /// Counts results.
    #[derive(Default)]
    struct Counts(ScanStats);

    impl ScanSink for Counts {
        type Error = ScanError;

        fn frames(&mut self, counts: &ScanStats, _: &[u8]) -> Result<(), ScanError> {
            self.0.add(counts);
            Ok(())
        }

        fn check_connected(&mut self) -> Result<(), ScanError> {
            Ok(())
        }

        fn xid_states(&mut self, _: &[TransactionId]) -> Result<Vec<XidState>, ScanError> {
            unreachable!("all rows are frozen")
        }
    }

    /// Returns a heap page with one frozen row of one int4 column.
    fn page(value: i32) -> Vec<u8> {
        let at = BLOCK_BYTES as u16 - 32;
        let mut page = vec![0; 12];
        [28, at, BLOCK_BYTES as u16, BLOCK_BYTES as u16 | 4].iter().for_each(|field| page.put_u16(*field));
        page.put_u32(0);
        page.put_u32(u32::from(at) | 1 << 15 | 28 << 17);
        page.resize(usize::from(at), 0);
        [2, 0, 0].iter().for_each(|field| page.put_u32(*field));
        // The rest of ctid, then the numbers of attributes, flags, and the length of the header.
        [0, 0, 1, 1, FROZEN, 24].iter().for_each(|field| page.put_u16(*field));
        page.put_u32(value as u32);
        page.resize(BLOCK_BYTES, 0);
        page
    }

    fn relation() -> Relation {
        let column = Attribute {
            type_oid: type_oid::INT4,
            typmod: -1,
            width: Width::Fixed(4),
            align: Align::Int,
            by_value: true,
            missing: Missing::Null,
        };
        Relation { attributes: vec![column], ..fixtures::relation("table") }
    }

    /// Scans the table for rows with a value. Returns the number of rows, and of regions that the storage index excluded.
    fn scan(state: &Arc<CellState>, value: i32) -> (u64, u64) {
        let (counts, excluded) = counted_scan(state, value);
        (counts.rows_returned, excluded)
    }

    /// Returns the counts of such a scan, and the number of regions that the storage index excluded.
    fn counted_scan(state: &Arc<CellState>, value: i32) -> (ScanStats, u64) {
        let constant = Expr::Const { type_oid: type_oid::INT4, value: Some(value.to_le_bytes().to_vec()) };
        let equal = Expr::Call { function: 65, collation: Collation::Bytewise, args: vec![Expr::Column(1), constant] };
        let request = ScanRequest { quals: vec![equal], projection: vec![1], ..fixtures::scan_request(relation(), 1) };
        let mut scans = SmartScan::open(state, &state.commit_cache.incarnation((1, 1)), &request, 1).unwrap();
        let segments = Segments::new(state.volume.clone(), &relation(), Credentials::root(), Permission::Read);
        let mut counts = Counts::default();
        let range = BlockRange { first: 0, end: REGIONS * REGION_BLOCKS };
        scans[0].range(segments.split(range), &mut counts).unwrap();
        let (last, _) = scans[0].finish();
        counts.0.add(&last);
        assert_eq!(counts.0.passthru_bytes, 0);
        (counts.0, scans[0].regions_excluded())
    }

    /// Returns the state of a cell with a columnar cache whose thread does not run.
    fn state_with_columnar_cache(folder: &Path) -> Arc<CellState> {
        let directory = |name| Arc::new(DirectoryDisk::new(folder.join(name)).unwrap()) as Arc<dyn Disk>;
        let flash = FlashOptions {
            disks: vec![directory("flash")],
            size: Some(12 << 20),
            columnar_bytes: 64 << 20,
            segment_bytes: 1 << 20,
            fills_in_background: false,
            timeout: None,
        };
        let au_size = AuSize::from_bytes(2 << 20).unwrap();
        // The page cache is too small for units, so that every scan reads flash.
        let cache_bytes = REGION_BYTES as u64;
        let options = VolumeOptions { au_size, cache_bytes, flash: Some(flash), ..VolumeOptions::default() };
        let volume = Volume::open(vec![directory("disk")], options).unwrap();
        let state = CellState::new(volume, Arc::default(), Arc::default());
        let account = state.memory.account(MemoryKind::StorageIndex);
        let times = Times { idle_min: Duration::ZERO, between_scans: Duration::ZERO };
        let columnar_candidates = ColumnarCandidates::new(account, 1 << 20, times);
        Arc::new(CellState { columnar_candidates, ..state })
    }

    /// Overwrites the units in flash.
    fn damage_units(folder: &Path) {
        for path in unit_files(&folder.join("flash")) {
            let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            let length = file.metadata().unwrap().len();
            let zeros = vec![0; 64 << 10];
            (0..length).step_by(zeros.len()).for_each(|at| file.write_all_at(&zeros, at).unwrap());
        }
    }

    fn fill_columnar_cache(state: &CellState) -> usize {
        std::iter::from_fn(|| state.columnar_candidates.try_next()).filter(|next| fill(state, next).unwrap()).count()
    }

    fn unit_files(folder: &Path) -> Vec<std::path::PathBuf> {
        let entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        let is_unit_file = |path: &&std::path::PathBuf| path.extension().is_some_and(|extension| extension == "units");
        let below = entries.iter().filter(|path| path.is_dir()).flat_map(|path| unit_files(path));
        entries.iter().filter(is_unit_file).cloned().chain(below).collect()
    }

    #[test]
    fn units_of_the_columnar_cache_return_the_rows_of_the_pages() {
        let folder = tempfile::tempdir().unwrap();
        let state = state_with_columnar_cache(folder.path());
        let volume = &state.volume;
        let object = fixtures::create(volume, "table");
        // Each region has all values, so that no summary excludes a region.
        let pages: Vec<u8> = (0..REGIONS * REGION_BLOCKS).flat_map(|block| page((block % 4) as i32)).collect();
        volume.write(object, 0, &pages).unwrap();
        let rows = u64::from(REGIONS * REGION_BLOCKS) / 4;
        let hits = || volume.columnar_stats().unwrap().hits;

        assert_eq!((scan(&state, 2), fill_columnar_cache(&state)), ((rows, 0), 0), "one scan is not enough");
        assert_eq!((scan(&state, 2), fill_columnar_cache(&state)), ((rows, 0), 2));
        for scans in 1..4 {
            assert_eq!((scan(&state, 2), hits()), ((rows, 0), 2 * scans));
        }
        let (counts, _) = counted_scan(&state, 2);
        assert_eq!(counts.eligible_bytes, pages.len() as u64);
        assert!(counts.saved_by_columnar_cache_bytes > pages.len() as u64 / 2, "{counts:?}");

        // A write voids the unit of its allocation unit only, until two scans have read its pages.
        volume.write(object, 7 * BLOCK_BYTES as u64, &page(2)).unwrap();
        assert_eq!(scan(&state, 2), (rows + 1, 0));
        assert_eq!(scan(&state, 2), (rows + 1, 0));
        assert_eq!((fill_columnar_cache(&state), scan(&state, 2)), (1, (rows + 1, 0)));

        // Damaged flash after the units were opened: the scan encodes the pages again.
        let before = hits();
        damage_units(folder.path());
        assert_eq!(scan(&state, 2), (rows + 1, 0));
        assert_eq!((hits(), volume.columnar_stats().unwrap().units), (before + 2, 0), "the damaged units are gone");

        // Damaged flash before the units are opened: the scan reads the raw pages.
        assert_eq!((scan(&state, 2), scan(&state, 2), fill_columnar_cache(&state)), ((rows + 1, 0), (rows + 1, 0), 2));
        let before = hits();
        damage_units(folder.path());
        // As if the opened units had been evicted.
        let state = Arc::new(CellState::new(volume.clone(), Arc::default(), Arc::default()));
        assert_eq!(scan(&state, 2), (rows + 1, 0));
        assert_eq!((hits(), volume.columnar_stats().unwrap().units), (before + 2, 0), "the damaged units are gone");
        assert_eq!(scan(&state, 2), (rows + 1, 0));
        volume.close().unwrap();
    }

    /// Returns a scan that has opened the cached unit of the first allocation unit, which then cannot be read from flash.
    fn scan_with_unreadable_unit(state: &Arc<CellState>, folder: &Path, relation: Relation) -> SmartScan {
        let object = fixtures::create(&state.volume, "table");
        state.volume.write(object, 0, &page(1).repeat((REGIONS * REGION_BLOCKS) as usize)).unwrap();
        assert_eq!([scan(state, 1).0, scan(state, 1).0], [u64::from(REGIONS * REGION_BLOCKS); 2]);
        assert_eq!(fill_columnar_cache(state), 2);
        let request = ScanRequest { projection: vec![1], ..fixtures::scan_request(relation, 1) };
        let incarnation = state.commit_cache.incarnation((1, 1));
        let mut scan = SmartScan::open(state, &incarnation, &request, 1).unwrap().remove(0);
        let held = scan.take_unit(object, AuIndex(0)).unwrap().unwrap();
        scan.unit = scan.with_cached_unit(held);
        assert!(scan.unit.is_some());
        damage_units(folder);
        scan
    }

    fn scan_all(state: &Arc<CellState>, scan: &mut SmartScan) -> Result<u64, ScanError> {
        let segments = Segments::new(state.volume.clone(), &relation(), Credentials::root(), Permission::Read);
        let mut counts = Counts::default();
        scan.range(segments.split(BlockRange { first: 0, end: REGIONS * REGION_BLOCKS }), &mut counts)?;
        counts.0.add(&scan.finish().0);
        assert_eq!(counts.0.passthru_bytes, 0);
        Ok(counts.0.rows_returned)
    }

    /// The unit was encoded before ALTER TABLE ADD COLUMN.
    #[test]
    fn an_unreadable_unit_is_encoded_again_with_its_own_shape() {
        let folder = tempfile::tempdir().unwrap();
        let state = state_with_columnar_cache(folder.path());
        let mut wider = relation();
        wider.attributes.push(wider.attributes[0].clone());
        let mut scan = scan_with_unreadable_unit(&state, folder.path(), wider);
        assert_eq!(scan_all(&state, &mut scan).unwrap(), u64::from(REGIONS * REGION_BLOCKS));
        state.volume.close().unwrap();
    }

    #[test]
    fn the_parts_of_one_scan_count_as_one_scan() {
        let folder = tempfile::tempdir().unwrap();
        let state = state_with_columnar_cache(folder.path());
        let account = state.memory.account(MemoryKind::StorageIndex);
        let times = Times { idle_min: Duration::ZERO, between_scans: Duration::from_secs(3600) };
        let columnar_candidates = ColumnarCandidates::new(account, 1 << 20, times);
        let state = CellState::new(state.volume.clone(), Arc::default(), Arc::default());
        let state = Arc::new(CellState { columnar_candidates, ..state });
        let object = fixtures::create(&state.volume, "table");
        state.volume.write(object, 0, &page(1).repeat((REGIONS * REGION_BLOCKS) as usize)).unwrap();
        (0..3).for_each(|_| assert_eq!(scan(&state, 1).0, u64::from(REGIONS * REGION_BLOCKS)));
        assert_eq!(fill_columnar_cache(&state), 0);
        state.volume.close().unwrap();
    }

    /// The filler reads the pages while a write is under way: the unit must not be used after the write.
    #[test]
    fn a_write_after_the_scan_voids_the_candidate() {
        let folder = tempfile::tempdir().unwrap();
        let state = state_with_columnar_cache(folder.path());
        let object = fixtures::create(&state.volume, "table");
        state.volume.write(object, 0, &page(1).repeat((REGIONS * REGION_BLOCKS) as usize)).unwrap();
        let rows = u64::from(REGIONS * REGION_BLOCKS);
        assert_eq!([scan(&state, 1).0, scan(&state, 1).0], [rows, rows]);
        state.volume.write(object, 0, &page(2)).unwrap();
        assert_eq!(fill_columnar_cache(&state), 1, "only the allocation unit without the write");
        assert_eq!(scan(&state, 1).0, rows - 1);
        state.volume.close().unwrap();
    }

    fn state(folder: &Path) -> Arc<CellState> {
        Arc::new(CellState::new(fixtures::volume(folder, 1 << 20), Arc::default(), Arc::default()))
    }

    #[test]
    fn the_bounds_of_units_exclude_their_regions_until_a_page_is_superseded_and_after_a_clean_restart() {
        let folder = tempfile::tempdir().unwrap();
        let first = state(folder.path());
        let object = fixtures::create(&first.volume, "table");
        for region in 0..REGIONS {
            let pages = page(region as i32).repeat(REGION_BLOCKS as usize);
            first.volume.write(object, u64::from(region) * pages.len() as u64, &pages).unwrap();
        }
        let segments = Segments::new(first.volume.clone(), &relation(), Credentials::root(), Permission::Read);
        let units = segments.allocation_units(BlockRange { first: 0, end: REGIONS * REGION_BLOCKS }).unwrap();
        let attribute = cellar_scan::unit::Attribute {
            type_oid: type_oid::INT4,
            width: Width::Fixed(4),
            align: Align::Int,
            by_value: true,
            dropped: false,
        };
        let shape = Shape { attributes: vec![attribute] };
        let report = |_| Ok::<_, CompressionError>(());
        let done = compress(&first, &units, &shape, Some(Level::QueryLow), report).unwrap();
        assert_eq!(done.units_written, u64::from(REGIONS));

        let rows = u64::from(REGION_BLOCKS);
        assert_eq!(scan(&first, 2), (rows, 0), "the units' own bounds exclude chunks");
        assert_eq!(scan(&first, 2), (rows, 3));
        first.close().unwrap();
        drop((first, segments));

        let second = state(folder.path());
        assert_eq!(second.storage_index.loaded_regions(), u64::from(REGIONS));
        assert_eq!(scan(&second, 2), (rows, 3), "the first scan after the restart");
        second.volume.write(object, 7 * BLOCK_BYTES as u64, &page(2)).unwrap();
        assert_eq!(scan(&second, 2), (rows + 1, 2));
        assert_eq!(scan(&second, 2), (rows + 1, 2), "no bounds of a unit with a superseded page");
        assert_eq!(scan(&second, 0), (rows - 1, 3));
        second.volume.close().unwrap();
    }
}
