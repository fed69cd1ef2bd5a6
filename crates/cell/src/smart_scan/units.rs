//! Where a Smart Scan meets compression units: pages that are current in their unit are scanned there, in their encoded
//! form, the others as they lie, all in the order of their blocks.
//!
//! The unit that a scan holds does not change: its bytes are those of one moment after the scan began, and so are the
//! pages that count as current. What was written later adds nothing that the snapshot sees.

use super::{Outlet, ScanError, SmartScan};
use cellar_format::ByteSource;
use cellar_format::stats::ScanStats;
use cellar_format::units::{BLOCK_BYTES, REGION_BLOCKS};
use cellar_scan::Progress;
use cellar_scan::unit::Unit;
use cellar_storage::{Ino, UnitReader};
use std::ops::Range;
use std::sync::Arc;

/// Tries to read pages that are being written; then they pass through.
const RACES_MAX: usize = 3;

/// The compression unit under the scan.
pub(super) struct CurrentUnit {
    ino: Ino,
    au: u64,
    reader: UnitReader,
    /// None until its first pages are scanned.
    unit: Option<Arc<Unit>>,
    /// What was counted of the reader's disk reads.
    counted: (u64, u64),
    eligible: Share,
    saved: Share,
}

/// Counts pages of a unit as bytes of it, so that all of its pages make up all of its bytes.
#[derive(Default)]
struct Share {
    pages: u64,
}

impl Share {
    /// The bytes of so many more pages.
    fn take(&mut self, pages: u64, reader: &UnitReader) -> u64 {
        let bytes = |pages: u64| pages * reader.length() / u64::from(reader.superseded().page_count()).max(1);
        let before = bytes(self.pages);
        self.pages += pages;
        bytes(self.pages) - before
    }
}

impl CurrentUnit {
    /// The first of these pages, and those after it that are current in the unit as it is, or not.
    fn run(&self, pages: Range<u32>) -> (Range<u32>, bool) {
        let dead = self.reader.superseded();
        if pages.start >= dead.page_count() {
            return (pages, false);
        }
        (pages.start..dead.run_end(pages.start, pages.end), !dead.contains(pages.start))
    }
}

impl SmartScan {
    /// Blocks of the allocation unit that has this block; a region's where that is unknown.
    pub fn unit_blocks(&mut self, block: u32) -> u32 {
        self.segment(block / self.request.segment_blocks)
            .ok()
            .flatten()
            .map_or(REGION_BLOCKS, |segment| segment.au_blocks)
    }

    /// Holds the unit of an allocation unit, if it has one, until another one is asked for.
    pub(super) fn hold_unit(&mut self, ino: Ino, au: u64) -> Result<bool, ScanError> {
        if self.unit.as_ref().is_some_and(|held| (held.ino, held.au) == (ino, au)) {
            return Ok(true);
        }
        self.unit = None;
        let Some(reader) = self.state.volume.unit_reader(ino, au)? else { return Ok(false) };
        let (eligible, saved) = Default::default();
        self.unit = Some(CurrentUnit { ino, au, reader, unit: None, counted: (0, 0), eligible, saved });
        Ok(true)
    }

    /// Bytes that pages of the unit held take on disk.
    pub(super) fn stored_bytes(&mut self, pages: Range<u32>) -> u64 {
        let held = self.unit.as_mut().expect("held by the caller");
        let (mut current, mut left) = (0, pages.clone());
        while !left.is_empty() {
            let (run, is_current) = held.run(left.clone());
            current += if is_current { run.len() as u64 } else { 0 };
            left.start = run.end;
        }
        held.eligible.take(current, &held.reader) + (pages.len() as u64 - current) * BLOCK_BYTES as u64
    }

    /// Scans pages of the unit held, the first of which is block `first`.
    pub(super) fn unit_pages<O: Outlet>(
        &mut self,
        first: u32,
        pages: Range<u32>,
        outlet: &mut O,
    ) -> Result<(), O::Error> {
        let mut left = pages.clone();
        while !left.is_empty() {
            let held = self.unit.as_ref().expect("held by the caller");
            let (run, is_current) = held.run(left.clone());
            left.start = run.end;
            let block = first + (run.start - pages.start);
            match is_current {
                true => self.encoded_pages(block - run.start, run, outlet)?,
                false => self.raw_pages(block, run, outlet)?,
            }
        }
        self.count_unit_reads();
        Ok(())
    }

    fn encoded_pages<O: Outlet>(&mut self, unit_block: u32, pages: Range<u32>, outlet: &mut O) -> Result<(), O::Error> {
        let held = self.unit.as_mut().expect("held by the caller");
        let blocks = unit_block..unit_block + held.reader.superseded().page_count();
        let damaged = |error| ScanError::Unit { blocks: blocks.clone(), error };
        if held.unit.is_none() {
            let opened = self.state.units.open(held.reader.id(), &held.reader);
            held.unit = Some(opened.map_err(damaged)?);
        }
        loop {
            let held = self.unit.as_mut().expect("held by the caller");
            let cached = held.reader.in_cache();
            let source = cached.as_ref().map_or(&held.reader as &dyn ByteSource, |cached| cached);
            let unit = held.unit.as_ref().expect("just opened");
            let pages = pages.start as usize..pages.end as usize;
            let scanned = self.unit_scanner.scan(unit_block, unit, source, pages, &self.xids, &mut self.writer);
            self.stats.cache_hit_bytes += cached.map_or(0, |cached| cached.hit_bytes());
            match scanned.map_err(damaged)? {
                Progress::Done { mut stats, .. } => {
                    let pages = stats.saved_by_storage_index_bytes / BLOCK_BYTES as u64;
                    stats.saved_by_storage_index_bytes = held.saved.take(pages, &held.reader);
                    self.stats.add(&stats);
                    return Ok(());
                }
                Progress::NeedXids(xids) => {
                    let states = outlet.ask(&xids)?;
                    self.xids.learn(&xids, &states);
                }
            }
        }
    }

    /// Pages that were written since their unit was made.
    fn raw_pages<O: Outlet>(&mut self, block: u32, pages: Range<u32>, outlet: &mut O) -> Result<(), O::Error> {
        let held = self.unit.as_ref().expect("held by the caller");
        let (ino, au) = (held.ino, held.au);
        let Some(bytes) = self.read_raw(ino, au, pages.clone()).map_err(O::Error::from)? else {
            self.pass_through(block, block + (pages.end - pages.start));
            return Ok(());
        };
        self.scanner.verify_checksums(self.request.checksums);
        loop {
            match self.scanner.scan(block, &bytes, &self.xids, &mut self.writer, false) {
                Progress::Done { stats, .. } => {
                    self.stats.add(&stats);
                    self.stats.cache_hit_bytes += bytes.len() as u64;
                    let read = (bytes.len() / BLOCK_BYTES) as u32;
                    self.pass_through(block + read, block + (pages.end - pages.start));
                    return Ok(());
                }
                Progress::NeedXids(xids) => {
                    let states = outlet.ask(&xids)?;
                    self.xids.learn(&xids, &states);
                }
            }
        }
    }

    /// None when writers were always in the way, or a block has not arrived whole. What begins to be written while it
    /// is read may be seen in part, so it is read until nothing did.
    fn read_raw(&self, ino: Ino, au: u64, pages: Range<u32>) -> Result<Option<Vec<u8>>, ScanError> {
        let volume = &self.state.volume;
        let offset = au * volume.au_bytes(ino)? + u64::from(pages.start) * BLOCK_BYTES as u64;
        let mut bytes = vec![0; (pages.end - pages.start) as usize * BLOCK_BYTES];
        for _ in 0..RACES_MAX {
            let version = volume.au_version(ino, au)?;
            let read = volume.read(ino, offset, &mut bytes)?;
            if volume.has_torn_block(ino, offset..offset + bytes.len() as u64)? {
                return Ok(None);
            }
            if volume.au_version(ino, au)? == version {
                bytes.truncate(read / BLOCK_BYTES * BLOCK_BYTES);
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    fn count_unit_reads(&mut self) {
        if let Some(held) = &mut self.unit {
            let (bytes, requests) = held.reader.disk_read();
            let reads = ScanStats {
                disk_read_bytes: bytes - held.counted.0,
                disk_read_requests: requests - held.counted.1,
                ..ScanStats::default()
            };
            held.counted = (bytes, requests);
            self.stats.add(&reads);
        }
    }
}
