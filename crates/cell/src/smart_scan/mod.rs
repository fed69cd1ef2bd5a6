//! Smart Scan: the one place where the storage code's bytes meet the scan code's batches.
//!
//! A [`SmartScan`] walks block ranges region by region: the storage index says which regions can hold no row that
//! qualifies, the others are pinned in the page cache and scanned there. Whatever cannot be decided goes back as a
//! block number. It knows no socket: what it finds goes to an [`Outlet`], and what it has to ask it asks there.
//!
//! Invariant: no region is pinned while the outlet is called, so a backend that stops reading never holds up a write.

pub mod commit_cache;
pub mod region_table;
mod units;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cellar_format::postgres::TransactionId;
use cellar_format::stats::ScanStats;
use cellar_format::units::{BLOCK_BYTES, REGION_BLOCKS};
use cellar_format::wire::{BlockRange, PassthruReason, ScanRequest, XidState};
use cellar_scan::{Plan, Progress, RegionSummary, ResultWriter, Scanner, UnitScanner, Unsupported};
use cellar_storage::{Ino, Volume};

use crate::compression::{UnitTable, Unpaid};
use commit_cache::{CommitCache, Incarnation, ScanXids};
use region_table::{RegionKey, RegionTable};
use units::CurrentUnit;

/// Steps of a scan, of 1 to 8 MiB of the table each, after which it sends what there is, and looks whether it is still wanted: an
/// error in the first row should end a query soon.
const STEPS_SILENT: u32 = 4;
/// Results are sent when this much has gathered.
const SEND_BYTES: usize = 128 << 10;
/// Blocks of a compression unit that are scanned before results are sent.
const UNIT_BLOCKS_MAX: u32 = 1024;
/// Regions asked of the disks ahead of the scan.
const PREFETCH_REGIONS: u32 = 24;

/// What all Smart Scans of a cell share.
pub struct SmartScanState {
    pub volume: Arc<Volume>,
    pub commit_cache: CommitCache,
    pub storage_index: RegionTable<Summary>,
    /// Regions whose page checksums were found right.
    pub verified: RegionTable<()>,
    /// Directories of compression units, which page reads share.
    pub units: Arc<UnitTable>,
    pub unpaid: Unpaid,
    /// Set when the cell shuts down: scans under way end with an error.
    pub stopping: AtomicBool,
    /// Threads that scans may use beside those of their sessions.
    pub helpers: Helpers,
}

impl SmartScanState {
    pub fn new(volume: Arc<Volume>, units: Arc<UnitTable>) -> Self {
        Self {
            volume,
            commit_cache: CommitCache::default(),
            storage_index: RegionTable::default(),
            verified: RegionTable::default(),
            units,
            unpaid: Unpaid::default(),
            stopping: AtomicBool::new(false),
            helpers: Helpers::default(),
        }
    }
}

/// Threads for all scans together: as many as there are processors.
pub struct Helpers {
    free: AtomicUsize,
    pub processors: usize,
}

impl Default for Helpers {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self { free: AtomicUsize::new(processors), processors }
    }
}

impl Helpers {
    /// Takes up to so many; give them back.
    pub fn take(&self, wanted: usize) -> usize {
        let take = |free: usize| Some(free - free.min(wanted));
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).unwrap_or(0).min(wanted)
    }

    pub fn give_back(&self, taken: usize) {
        self.free.fetch_add(taken, Ordering::Relaxed);
    }
}

/// What the storage index keeps of a region.
pub struct Summary {
    /// The row layout under which the summary was made; under another one it says nothing: a column that was added,
    /// rolled back and added again may stand for another missing value.
    layout: u64,
    columns: RegionSummary,
}

/// Where a scan's results go and its questions are answered.
pub trait Outlet {
    type Error: From<ScanError>;
    /// Whole frames, in order, and what was counted for them: a reader that stops before the range's end has counts
    /// for all that it got.
    fn frames(&mut self, counted: &ScanStats, frames: &[u8]) -> Result<(), Self::Error>;
    /// Fails when nobody wants the results any more; asked now and then.
    fn is_wanted(&mut self) -> Result<(), Self::Error>;
    /// The states of transactions, one for each id in the same order.
    fn ask(&mut self, xids: &[TransactionId]) -> Result<Vec<XidState>, Self::Error>;
}

#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    #[error("the storage predicate cannot be evaluated here: {0}")]
    Unsupported(#[from] Unsupported),
    #[error(transparent)]
    Storage(#[from] cellar_storage::Error),
    #[error("the compression unit of blocks {} to {} is damaged: {error}", .blocks.start, .blocks.end - 1)]
    Unit { blocks: Range<u32>, error: cellar_scan::unit::UnitError },
    #[error("the cell is shutting down")]
    Stopping,
}

/// A segment file of the relation.
#[derive(Clone, Copy)]
struct Segment {
    number: u32,
    ino: Ino,
    /// Blocks of an allocation unit.
    au_blocks: u32,
}

/// One open scan of one connection.
pub struct SmartScan {
    state: Arc<SmartScanState>,
    request: Arc<ScanRequest>,
    plan: Arc<Plan>,
    scanner: Scanner,
    unit_scanner: UnitScanner,
    unit: Option<CurrentUnit>,
    writer: ResultWriter,
    xids: ScanXids,
    layout: u64,
    /// What was counted since it was last taken.
    stats: ScanStats,
    /// The thread's CPU time then.
    cpu_before: u64,
    /// The last segment file looked up.
    segment: Option<Segment>,
    /// Regions before this one of the current segment have been asked of the disks.
    prefetched_to: u32,
    /// Regions that this scan has read; the further it gets, the further ahead it reads.
    regions_scanned: u32,
}

impl SmartScan {
    /// Opens a scan for so many threads, each of which scans ranges of its own.
    pub fn open(
        state: &Arc<SmartScanState>,
        incarnation: Incarnation,
        request: ScanRequest,
        threads: usize,
    ) -> Result<Vec<Self>, ScanError> {
        let plan = Arc::new(Plan::compile(&request)?);
        let request = Arc::new(request);
        Ok((0..threads.max(1)).map(|_| Self::new(state.clone(), incarnation, request.clone(), plan.clone())).collect())
    }

    fn new(state: Arc<SmartScanState>, incarnation: Incarnation, request: Arc<ScanRequest>, plan: Arc<Plan>) -> Self {
        let scanner = Scanner::new(plan.clone());
        let unit_scanner = UnitScanner::new(plan.clone());
        let writer = ResultWriter::new();
        let xids = ScanXids::new(state.commit_cache.incarnation(incarnation), &request.snapshot);
        let layout = layout(&request);
        Self {
            state,
            request,
            plan,
            scanner,
            unit_scanner,
            unit: None,
            writer,
            xids,
            layout,
            stats: ScanStats::default(),
            cpu_before: 0,
            segment: None,
            prefetched_to: 0,
            regions_scanned: 0,
        }
    }

    /// Scans the parts of a block range. What has not gone to the outlet when this returns is left to [`Self::finish`], also after
    /// an error.
    pub fn range<O: Outlet>(
        &mut self,
        parts: impl Iterator<Item = BlockRange>,
        outlet: &mut O,
    ) -> Result<(), O::Error> {
        self.cpu_before = thread_cpu_ns();
        self.writer.clear_frames();
        let mut steps = 0;
        for part in parts {
            let mut block = part.first;
            while block < part.end {
                if self.state.stopping.load(Ordering::Relaxed) {
                    return Err(ScanError::Stopping.into());
                }
                steps += 1;
                if steps % STEPS_SILENT == 0 {
                    self.writer.flush();
                    self.send(outlet)?;
                    outlet.is_wanted()?;
                }
                block = self.region(block, part.end, outlet)?;
                if self.writer.pending_bytes() >= SEND_BYTES {
                    self.send(outlet)?;
                }
            }
        }
        self.stats.rows_returned += self.scanner.finish_range(&mut self.writer);
        self.stats.rows_returned += self.unit_scanner.finish_range(&mut self.writer);
        self.writer.flush();
        Ok(())
    }

    /// The last frames of a range, and what was counted since the outlet was called last.
    pub fn finish(&mut self) -> (ScanStats, &[u8]) {
        self.stats.returned_bytes += self.writer.frames().len() as u64;
        let counted = self.take_stats();
        (counted, self.writer.frames())
    }

    /// What was counted since this was last asked, by the thread that scans.
    fn take_stats(&mut self) -> ScanStats {
        let mut stats = std::mem::take(&mut self.stats);
        (stats.commit_cache_queries, stats.found_in_commit_cache) = self.xids.take_counts();
        let cpu_now = thread_cpu_ns();
        stats.cell_cpu_ns = cpu_now - std::mem::replace(&mut self.cpu_before, cpu_now);
        stats
    }

    fn send<O: Outlet>(&mut self, outlet: &mut O) -> Result<(), O::Error> {
        let frame_bytes = self.writer.frames().len();
        if frame_bytes > 0 {
            self.stats.returned_bytes += frame_bytes as u64;
            let counted = self.take_stats();
            let sent = outlet.frames(&counted, self.writer.frames());
            self.writer.clear_frames();
            sent?;
        }
        Ok(())
    }

    /// The first block past the region that holds `block`; a region never spans two segment files.
    fn region_end(&self, block: u32) -> u32 {
        let in_segment = block % self.request.segment_blocks;
        let segment_start = block - in_segment;
        let end = (in_segment / REGION_BLOCKS + 1) * REGION_BLOCKS;
        segment_start.saturating_add(end.min(self.request.segment_blocks))
    }

    /// Scans blocks from `first` on, up to the end of the region or as much more as one compression unit has, and tells
    /// where it stopped.
    fn region<O: Outlet>(&mut self, first: u32, last: u32, outlet: &mut O) -> Result<u32, O::Error> {
        let mut end = self.region_end(first).min(last);
        let wanted_bytes = (end - first) as usize * BLOCK_BYTES;
        let in_segment = first % self.request.segment_blocks;
        let segment = self.segment(first / self.request.segment_blocks).map_err(O::Error::from)?;
        let Some(Segment { ino, au_blocks, .. }) = segment else {
            self.stats.eligible_bytes += wanted_bytes as u64;
            self.pass_through(first, end);
            return Ok(end);
        };
        let region = in_segment / REGION_BLOCKS;
        let page = in_segment % au_blocks;
        let pages = page..page + (end - first);
        let held = self.hold_unit(ino, u64::from(in_segment / au_blocks)).map_err(O::Error::from)?;
        let stored_bytes = if held { self.stored_bytes(pages.clone()) } else { wanted_bytes as u64 };
        self.stats.eligible_bytes += stored_bytes;
        if !self.may_match(ino, region) {
            self.stats.saved_by_storage_index_bytes += stored_bytes;
            return Ok(end);
        }
        if held {
            let unit_blocks = (au_blocks - page).min(self.request.segment_blocks - in_segment).min(UNIT_BLOCKS_MAX);
            let unit_end = first.saturating_add(unit_blocks);
            while end < unit_end.min(last) && self.may_match(ino, (in_segment + (end - first)) / REGION_BLOCKS) {
                let next = self.region_end(end).min(last);
                let more = page + (end - first)..page + (next - first);
                self.stats.eligible_bytes += self.stored_bytes(more);
                end = next;
            }
            self.unit_pages(first, page..page + (end - first), outlet)?;
            return Ok(end);
        }
        self.prefetch(ino, region);
        let offset = (in_segment % REGION_BLOCKS) as usize * BLOCK_BYTES;
        loop {
            let guard = self.state.volume.region(ino, region).map_err(ScanError::from)?;
            if !guard.is_whole() {
                drop(guard);
                self.pass_through(first, end);
                return Ok(end);
            }
            let usable = guard.len().saturating_sub(offset).min(wanted_bytes) / BLOCK_BYTES * BLOCK_BYTES;
            let pages = guard.get(offset..offset + usable).unwrap_or_default();
            // What is learnt speaks for the whole region, so only a scan of all of it teaches.
            let whole = offset == 0 && usable == guard.len();
            let (key, version) = ((ino, region), guard.version());
            let verify = self.request.checksums && self.state.verified.look_up(key, version, |_| ()).is_none();
            self.scanner.verify_checksums(verify);
            let want_summary = whole && self.wants_summary(key, version);
            match self.scanner.scan(first, pages, &self.xids, &mut self.writer, want_summary) {
                Progress::Done { summary, stats: counts } => {
                    self.stats.disk_read_requests += guard.disk_read_requests();
                    self.stats.disk_read_bytes += guard.disk_read_bytes();
                    self.stats.cache_hit_bytes += (usable as u64).saturating_sub(guard.disk_read_bytes());
                    drop(guard);
                    self.stats.add(&counts);
                    if verify && whole && counts.passthru_blocks_page == 0 {
                        self.state.verified.learn(key, version, (), |_, _| ());
                    }
                    if let Some(columns) = summary {
                        let summary = Summary { layout: self.layout, columns };
                        self.state.storage_index.learn(key, version, summary, Summary::join);
                    }
                    self.pass_through(first + (usable / BLOCK_BYTES) as u32, end);
                    return Ok(end);
                }
                Progress::NeedXids(xids) => {
                    drop(guard);
                    let states = outlet.ask(&xids)?;
                    self.xids.learn(&xids, &states);
                }
            }
        }
    }

    /// Blocks that the cell does not have: Postgres reads them and says what it thinks of that.
    fn pass_through(&mut self, first: u32, end: u32) {
        for block in first..end {
            self.writer.passthru(block, PassthruReason::Page);
            self.stats.passthru_blocks_page += 1;
            self.stats.passthru_bytes += BLOCK_BYTES as u64;
        }
    }

    fn segment(&mut self, number: u32) -> Result<Option<Segment>, ScanError> {
        if self.segment.is_some_and(|known| known.number == number) {
            return Ok(self.segment);
        }
        let found = match number {
            0 => self.state.volume.resolve(&self.request.file),
            _ => self.state.volume.resolve(&format!("{}.{number}", self.request.file)),
        };
        let Some(ino) = found else { return Ok(None) };
        let au_blocks = (self.state.volume.au_bytes(ino)? / BLOCK_BYTES as u64) as u32;
        self.segment = Some(Segment { number, ino, au_blocks });
        self.prefetched_to = 0;
        Ok(self.segment)
    }

    fn may_match(&self, ino: Ino, region: u32) -> bool {
        if self.plan.summary_columns().is_empty() {
            return true;
        }
        let version = self.state.volume.region_version(ino, region);
        let ask = |summary: &Summary| summary.layout != self.layout || self.plan.may_match(&summary.columns);
        self.state.storage_index.look_up((ino, region), version, ask).unwrap_or(true)
    }

    fn wants_summary(&self, key: RegionKey, version: u64) -> bool {
        let wanted = self.plan.summary_columns();
        let covers = |summary: &Summary| {
            summary.layout == self.layout && wanted.iter().all(|column| summary.columns.column(*column).is_some())
        };
        !wanted.is_empty() && !self.state.storage_index.look_up(key, version, covers).unwrap_or(false)
    }

    /// Asks the disks for the regions ahead that the storage index does not exclude: more of them the longer the scan
    /// goes on, and past the range too, since what follows is most often asked for next.
    fn prefetch(&mut self, ino: Ino, region: u32) {
        let ahead = PREFETCH_REGIONS.min(2 * self.regions_scanned);
        self.regions_scanned += 1;
        let to = (region + 1 + ahead).min(self.request.segment_blocks.div_ceil(REGION_BLOCKS));
        let from = self.prefetched_to.max(region + 1);
        if to.saturating_sub(from) < ahead / 4 {
            return;
        }
        let mut run = from;
        for excluded in (from..to).filter(|ahead| !self.may_match(ino, *ahead)) {
            self.state.volume.prefetch(ino, run..excluded);
            run = excluded + 1;
        }
        self.state.volume.prefetch(ino, run..to);
        self.prefetched_to = to.max(self.prefetched_to);
    }
}

impl Summary {
    fn join(&mut self, other: Self) {
        if self.layout == other.layout {
            self.columns.merge(other.columns);
        } else {
            *self = other;
        }
    }
}

/// Tells one row layout from another.
fn layout(request: &ScanRequest) -> u64 {
    let mut hasher = DefaultHasher::new();
    request.attributes.hash(&mut hasher);
    hasher.finish()
}

/// CPU time that the calling thread has used, nanoseconds.
fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
