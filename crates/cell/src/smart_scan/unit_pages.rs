//! Smart Scan of allocation units that have a compression unit.
//!
//! Current pages are scanned in their encoded form, superseded pages in their raw form, all in block order.
//!
//! A scan holds one unit open. The unit and its set of current pages are a snapshot that was taken after the scan
//! began. Later writes add no row version that the scan's MVCC snapshot sees.

use super::{Attempt, ScanError, ScanSink, SmartScan, bytes_of};
use crate::relation::DiskObject;
use cellar_format::ByteSource;
use cellar_format::stats::ScanStats;
use cellar_format::units::{AuIndex, BLOCK_BYTES, PageInAu};
use cellar_scan::Progress;
use cellar_scan::unit::Unit;
use cellar_storage::UnitReader;
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
    /// The part of the reader's disk reads that the statistics contain: bytes and requests.
    counted_reads: (u64, u64),
    eligible: UnitShare,
    saved: UnitShare,
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
    fn new(object: DiskObject, au: AuIndex, reader: UnitReader) -> Self {
        let (eligible, saved) = Default::default();
        Self { object, au, reader, unit: None, counted_reads: (0, 0), eligible, saved }
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
        let (mut current, mut left) = (0, pages.clone());
        while !left.is_empty() {
            let (run, is_current) = self.run(left.clone());
            current += if is_current { run.len() as u64 } else { 0 };
            left.start = run.end;
        }
        self.eligible.take(current, &self.reader) + (pages.len() as u64 - current) * BLOCK_BYTES as u64
    }

    /// Returns the disk reads since the last call.
    fn take_reads(&mut self) -> ScanStats {
        let (bytes, requests) = self.reader.disk_read();
        let reads = ScanStats {
            disk_read_bytes: bytes - self.counted_reads.0,
            disk_read_requests: requests - self.counted_reads.1,
            ..ScanStats::default()
        };
        self.counted_reads = (bytes, requests);
        reads
    }
}

impl SmartScan {
    /// Returns the held unit if it belongs to the allocation unit; otherwise opens the allocation unit's unit. Returns
    /// None if the allocation unit is raw.
    pub(super) fn take_unit(&mut self, object: DiskObject, au: AuIndex) -> Result<Option<HeldUnit>, ScanError> {
        // `filter` drops the unit of another allocation unit, which releases its slot, before the next unit is opened.
        let held = self.unit.take().filter(|held| (held.object, held.au) == (object, au));
        if held.is_some() {
            return Ok(held);
        }
        let reader = self.state.volume.unit_reader(object, au)?;
        Ok(reader.map(|reader| HeldUnit::new(object, au, reader)))
    }

    /// Scans pages of a unit. `first_block` is the relation's number of the first page's block.
    pub(super) fn unit_pages<S: ScanSink>(
        &mut self,
        held: &mut HeldUnit,
        first_block: u32,
        pages: Range<u32>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let mut left = pages.clone();
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
        Ok(())
    }

    /// Scans current pages in the unit. `unit_block` is the relation's number of the unit's first block.
    fn current_pages<S: ScanSink>(
        &mut self,
        held: &mut HeldUnit,
        unit_block: u32,
        pages: Range<u32>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let HeldUnit { reader, unit, saved, .. } = held;
        let blocks = unit_block..unit_block + reader.superseded().page_count();
        let damaged = |error| ScanError::DamagedUnit { blocks: blocks.clone(), error };
        let unit = match unit {
            Some(unit) => unit,
            None => {
                let opened = self.state.unit_directories.open(reader.id(), reader);
                unit.insert(opened.map_err(damaged)?)
            }
        };
        let pages = pages.start as usize..pages.end as usize;
        self.with_xids(sink, |scan| {
            let cached = reader.in_cache();
            let bytes = cached.as_ref().map_or(reader as &dyn ByteSource, |cached| cached);
            let scanner = &mut scan.workspace.unit_scanner;
            let scanned = scanner.scan(unit_block, unit, bytes, pages.clone(), &scan.xids, &mut scan.writer);
            scan.stats.cache_hit_bytes += cached.map_or(0, |cached| cached.hit_bytes());
            match scanned.map_err(damaged)? {
                Progress::Done { mut stats, .. } => {
                    let saved_pages = stats.saved_by_storage_index_bytes / BLOCK_BYTES as u64;
                    stats.saved_by_storage_index_bytes = saved.take(saved_pages, reader);
                    scan.stats.add(&stats);
                    Ok(Attempt::Done(()))
                }
                Progress::NeedXids(xids) => Ok(Attempt::NeedXids(xids)),
            }
        })
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
