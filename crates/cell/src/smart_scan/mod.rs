//! Smart Scan: evaluates a scan request on the stored bytes of disk objects.
//!
//! A [`SmartScan`] processes a range of blocks region by region. The storage index excludes regions without qualifying
//! rows. The scan pins every other region in the page cache and scans the region's pages there, or scans the
//! compression unit that stores them. Blocks that the cell cannot decide are passed through by number. Results and
//! queries for transaction states go to a [`ScanSink`].
//!
//! Invariants: no region is pinned during a call of the sink, so a backend that stops reading never blocks a write. The
//! scan acquires the memory of its buffers from the memory budget before it uses the memory ([`workspace`]); blocks for
//! which there is no memory are passed through.
//!
//! This module knows no sockets and no file names: callers resolve names to disk objects ([`crate::relation`]).

mod sink;
mod unit_pages;
mod workspace;

pub use sink::{ScanError, ScanSink};

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cellar_format::postgres::TransactionId;
use cellar_format::stats::ScanStats;
use cellar_format::units::{AuIndex, BLOCK_BYTES, REGION_BLOCKS, REGION_BYTES, RegionIndex, RegionVersion};
use cellar_format::wire::{PassthruReason, ScanRequest};
use cellar_scan::aggregate::{Aggregator, DistinctMerge, GroupMerge};
use cellar_scan::unit::Shape;
use cellar_scan::{Grant, Plan, Progress, ResultWriter};
use cellar_storage::IoCost;

use crate::relation::{DiskObject, SegmentObject, SegmentRange};
use crate::state::commit_cache::ScanXids;
use crate::state::storage_index::RowLayout;
use crate::state::{CellState, Heap, MemoryKind, Transactions};
use unit_pages::HeldUnit;
use workspace::Workspace;

/// Steps of 1 to 8 MiB of the table between two sends of incomplete batches. Bounds the delay of an error in an early
/// row, and of noticing a closed connection.
const STEPS_PER_SEND: u32 = 4;
/// Pending results are sent when they reach this size.
const SEND_BYTES: usize = 128 << 10;
/// Maximum blocks of a compression unit per step.
const UNIT_BLOCKS_MAX: u32 = 1024;
/// Maximum number of regions to prefetch ahead of the scan.
const PREFETCH_REGIONS: u32 = 24;

/// One thread's share of an open scan.
pub struct SmartScan {
    state: Arc<CellState>,
    plan: Arc<Plan>,
    /// Covers the lookup tables of the plan.
    _lookup_memory: Arc<Grant>,
    layout: RowLayout,
    heap: Arc<Heap>,
    /// The allocation unit whose raw pages the scan read last.
    raw_au: Option<(DiskObject, AuIndex)>,
    /// Whether the cluster has data checksums.
    checksums: bool,
    workspace: Workspace,
    /// The unit that the scan read last, for the next step in the same allocation unit.
    unit: Option<HeldUnit>,
    writer: ResultWriter,
    xids: ScanXids,
    read_ahead: ReadAhead,
    /// Counts since the last [`Self::take_stats`].
    stats: ScanStats,
    /// Counts since the scan was opened, up to the last [`Self::take_stats`].
    totals: ScanStats,
    /// The thread's CPU time at the last [`Self::take_stats`], in nanoseconds.
    cpu_before: u64,
    /// Regions that the storage index excluded, since the scan was opened.
    regions_excluded: u64,
}

/// The regions that a scan has prefetched.
struct ReadAhead {
    object: DiskObject,
    /// Every region of the object before this one was prefetched or excluded.
    requested_to: RegionIndex,
    /// Regions that the scan has read; a longer scan prefetches further ahead.
    regions_scanned: u32,
}

/// The result of an attempt to scan some pages.
enum Attempt<T> {
    Done(T),
    /// Nothing was emitted; the attempt can be repeated when the states of these transactions are known.
    NeedXids(Vec<TransactionId>),
}

impl SmartScan {
    /// Opens a scan for `threads` threads, each of which scans its own ranges.
    pub fn open(
        state: &Arc<CellState>,
        transactions: &Arc<Transactions>,
        request: &ScanRequest,
        threads: usize,
    ) -> Result<Vec<Self>, ScanError> {
        let mut lookup_memory = Grant::new(state.memory.account(MemoryKind::Groups));
        let plan = if lookup_memory.cover(Plan::lookup_bytes(request) as u64) {
            Plan::compile(request)?
        } else {
            // Without memory for lookup tables, the backend joins and aggregates the rows.
            Plan::compile(&ScanRequest { lookups: Vec::new(), aggregation: None, ..request.clone() })?
        };
        let (plan, lookup_memory) = (Arc::new(plan), Arc::new(lookup_memory));
        let (shape, checksums) = (Shape::of(&request.relation), request.relation.checksums);
        let heap = Arc::new(Heap { shape, checksums });
        let new = || {
            let memory = lookup_memory.clone();
            Self::new(state.clone(), transactions.clone(), (request, heap.clone()), plan.clone(), memory)
        };
        Ok(std::iter::repeat_with(new).take(threads.max(1)).collect())
    }

    fn new(
        state: Arc<CellState>,
        transactions: Arc<Transactions>,
        (request, heap): (&ScanRequest, Arc<Heap>),
        plan: Arc<Plan>,
        lookup_memory: Arc<Grant>,
    ) -> Self {
        Self {
            layout: RowLayout::of(&request.relation.attributes),
            heap,
            raw_au: None,
            checksums: request.relation.checksums,
            workspace: Workspace::new(plan.clone(), &state.memory),
            plan,
            _lookup_memory: lookup_memory,
            unit: None,
            writer: ResultWriter::new(),
            xids: ScanXids::new(transactions, &request.snapshot),
            state,
            read_ahead: ReadAhead { object: 0, requested_to: RegionIndex(0), regions_scanned: 0 },
            stats: ScanStats::default(),
            totals: ScanStats::default(),
            cpu_before: 0,
            regions_excluded: 0,
        }
    }

    /// Scans consecutive parts of a range. Returns the first block of the current part that was not scanned if the sink is
    /// leaving; otherwise all parts were scanned. After the call, also after an error, [`Self::finish`] returns the frames
    /// that were not sent yet.
    pub fn range<S: ScanSink>(
        &mut self,
        parts: impl Iterator<Item = cellar_storage::Result<SegmentRange>>,
        sink: &mut S,
    ) -> Result<Option<u32>, S::Error> {
        self.cpu_before = thread_cpu_ns();
        self.writer.clear_frames();
        self.writer.start_range();
        let mut steps = 0;
        for part in parts {
            let SegmentRange { segment, base, blocks } = part.map_err(ScanError::from)?;
            let mut block = blocks.start;
            while block < blocks.end {
                if sink.is_leaving() {
                    self.writer.flush();
                    return Ok(Some(base + block));
                }
                if self.state.stopping.load(Ordering::Relaxed) {
                    return Err(ScanError::Stopping.into());
                }
                steps += 1;
                if steps % STEPS_PER_SEND == 0 {
                    self.writer.flush();
                    self.send(sink)?;
                    sink.check_connected()?;
                }
                block = match segment {
                    Some(segment) if self.reserve_step(sink)? => self.step(segment, base, block..blocks.end, sink)?,
                    _ => self.pass_region_through(base, block..blocks.end),
                };
                if self.writer.pending_bytes() >= SEND_BYTES {
                    self.send(sink)?;
                }
            }
        }
        self.writer.flush();
        Ok(None)
    }

    /// Merges the groups of all threads of a range and sends them to `sink`. Many groups are merged by the calling thread and up to
    /// `helpers` others. Call this after the threads have sent their frames. After the call, [`Self::finish`] of the first thread
    /// returns the frames that were not sent yet. When they are sent, call [`Self::discard_groups`] of each thread.
    pub fn finish_groups<S>(scans: &mut [Self], mut sink: S, helpers: usize) -> Result<(), S::Error>
    where
        S: ScanSink + Copy + Send,
        S::Error: Send,
    {
        let complete = scans.iter().all(|scan| !scan.writer.has_results());
        let Some(plan) = scans.first().map(|scan| scan.plan.clone()) else { return Ok(()) };
        let Some(aggregation) = plan.aggregation() else { return Ok(()) };
        let mut aggregators = Vec::new();
        let mut outputs = Vec::new();
        for scan in scans {
            scan.writer.clear_frames();
            scan.cpu_before = thread_cpu_ns();
            let Self { workspace, writer, totals, stats, .. } = scan;
            aggregators.extend(workspace.aggregators());
            outputs.push(GroupOutput { writer, totals, stats });
        }
        let Some((own, others)) = outputs.split_first_mut() else { return Ok(()) };
        let merge = match GroupMerge::new(aggregation, aggregators, complete) {
            Ok(merge) => merge,
            Err(mut aggregators) => {
                let mut merged = Ok(());
                if complete {
                    Aggregator::merge_distinct(aggregation, &mut aggregators, |merge| {
                        let helpers = others.iter_mut().take(helpers).map(|output| (output, sink));
                        let own = || {
                            merge.run();
                            Ok(())
                        };
                        merged = in_threads(helpers, |(output, sink)| output.merge_distinct(merge, sink), own);
                    });
                }
                merged?;
                let mut send = |writer: &mut ResultWriter| send_groups(&mut sink, own.totals, writer);
                own.stats.rows_returned +=
                    Aggregator::finish_all(aggregators, aggregation, complete, own.writer, &mut send)?;
                return Ok(());
            }
        };
        let helpers = others.iter_mut().take(helpers).map(|output| (output, sink));
        in_threads(helpers, |(output, sink)| output.merge(&merge, sink, true), || own.merge(&merge, sink, false))
    }

    /// Frees the groups of a range, after they were merged and sent. That takes long for many groups.
    pub fn discard_groups(&mut self) {
        if let Some(plan) = self.plan.aggregation() {
            self.workspace.aggregators().for_each(|aggregator| aggregator.discard(plan));
        }
    }

    /// Whether the scan returns groups.
    pub fn has_groups(&self) -> bool {
        self.plan.aggregation().is_some()
    }

    /// Acquires the memory for a step of one region. If there is none, frees the buffers of the previous steps, which
    /// may be larger than the buffers that this step needs, and tries again.
    fn reserve_step<S: ScanSink>(&mut self, sink: &mut S) -> Result<bool, S::Error> {
        if self.workspace.reserve_step(&self.writer) {
            return Ok(true);
        }
        if self.workspace.has_memory() {
            self.write_groups();
            self.send(sink)?;
            self.release_memory();
        }
        Ok(self.workspace.reserve_step(&self.writer))
    }

    /// Acquires the memory for the first step of a range. Returns false if there is none.
    pub fn reserve(&mut self) -> bool {
        self.workspace.reserve_step(&self.writer)
    }

    /// Whether [`Self::release_memory`] frees memory.
    pub fn has_memory(&self) -> bool {
        self.workspace.has_memory()
    }

    /// Frees all memory that the scan does not need between two ranges. The caller must have sent the last frames.
    pub fn release_memory(&mut self) {
        self.workspace.release();
        self.writer.release_memory();
        self.unit = None;
        self.xids.forget();
    }

    /// Writes the groups and the pending rows as frames, before the end of the range.
    fn write_groups(&mut self) {
        self.stats.rows_returned += self.workspace.scanner.finish_range(&mut self.writer);
        self.stats.rows_returned += self.workspace.unit_scanner.finish_range(&mut self.writer);
        self.writer.flush();
    }

    /// Returns the unsent frames of a range, and the counts since the last call of the sink.
    pub fn finish(&mut self) -> (ScanStats, &[u8]) {
        self.stats.returned_bytes += self.writer.frames().len() as u64;
        let counts = self.take_stats();
        (counts, self.writer.frames())
    }

    /// Returns the counts since the scan was opened, up to the last frames.
    pub fn totals(&self) -> &ScanStats {
        &self.totals
    }

    /// Returns the number of regions that the storage index excluded since the scan was opened.
    pub fn regions_excluded(&self) -> u64 {
        self.regions_excluded
    }

    /// Returns and resets the counts. The scanning thread must call this function, because it reads the thread's CPU
    /// time.
    fn take_stats(&mut self) -> ScanStats {
        let mut stats = std::mem::take(&mut self.stats);
        (stats.commit_cache_queries, stats.found_in_commit_cache) = self.xids.take_counts();
        let cpu_now = thread_cpu_ns();
        stats.cell_cpu_ns = cpu_now - std::mem::replace(&mut self.cpu_before, cpu_now);
        self.totals.add(&stats);
        stats
    }

    fn send<S: ScanSink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        let frame_bytes = self.writer.frames().len();
        if frame_bytes > 0 {
            self.stats.returned_bytes += frame_bytes as u64;
            let counts = self.take_stats();
            let sent = sink.frames(&counts, self.writer.frames());
            self.writer.clear_frames();
            sent?;
        }
        Ok(())
    }

    /// Scans the start of `blocks`: up to the end of the region, or several regions of one compression unit. Returns
    /// the first block that was not scanned. `base` is the relation's number of the segment's block 0.
    fn step<S: ScanSink>(
        &mut self,
        segment: SegmentObject,
        base: u32,
        blocks: Range<u32>,
        sink: &mut S,
    ) -> Result<u32, S::Error> {
        let SegmentObject { object, au_blocks, .. } = segment;
        let (first, mut end) = (blocks.start, region_end(blocks.start).min(blocks.end));
        let region = region_of(first);
        let page = first % au_blocks;
        let au = AuIndex(u64::from(first / au_blocks));
        let mut held = self.take_unit(object, au).map_err(S::Error::from)?;
        if self.plan.index().is_some() && held.is_some() {
            return Ok(self.pass_region_through(base, blocks));
        }
        let stored_bytes = match &mut held {
            Some(held) => held.stored_bytes(page..page + (end - first)),
            None => bytes_of(first..end),
        };
        self.stats.eligible_bytes += stored_bytes;
        let may_match = self.may_match(object, region);
        if may_match {
            held = held.and_then(|held| self.with_cached_unit(held));
        }
        if !may_match {
            self.stats.saved_by_storage_index_bytes += stored_bytes;
            self.regions_excluded += 1;
        } else if let Some(held) = &mut held {
            let blocks_max = match self.workspace.reserve_unit_step(&self.writer) {
                true => UNIT_BLOCKS_MAX,
                false => REGION_BLOCKS,
            };
            let step_end = first.saturating_add((au_blocks - page).min(blocks_max)).min(blocks.end);
            while end < step_end && self.may_match(object, region_of(end)) {
                let next = region_end(end).min(blocks.end);
                self.stats.eligible_bytes += held.stored_bytes(page + (end - first)..page + (next - first));
                end = next;
            }
            self.unit_pages(held, base + first, page..page + (end - first), sink)?;
            self.record_unit_summaries(held, region_of(first - page), region..region_of(end - 1).next());
        } else {
            self.note_raw(object, au, base + first - page)?;
            self.read_ahead(segment, region);
            self.region_pages(object, base, first..end, sink)?;
        }
        self.unit = held;
        Ok(end)
    }

    /// Records once for each allocation unit that the scan reads its raw pages. `first_block` is the relation's number of the
    /// allocation unit's first block.
    fn note_raw(&mut self, object: DiskObject, au: AuIndex, first_block: u32) -> Result<(), ScanError> {
        if self.raw_au.replace((object, au)) == Some((object, au)) || self.plan.index().is_some() {
            return Ok(());
        }
        let state = &self.state;
        Ok(state.columnar_candidates.note_scan(&state.volume, (object, au), first_block, &self.heap)?)
    }

    /// Scans blocks of one region in the page cache.
    fn region_pages<S: ScanSink>(
        &mut self,
        object: DiskObject,
        base: u32,
        blocks: Range<u32>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let region = region_of(blocks.start);
        let offset = (blocks.start % REGION_BLOCKS) as usize * BLOCK_BYTES;
        let wanted_bytes = bytes_of(blocks.clone()) as usize;
        let key = (object, region);
        self.with_xids(sink, |scan| {
            let guard = scan.state.volume.region(object, region).map_err(ScanError::from)?;
            if !guard.is_whole() {
                drop(guard);
                scan.pass_through(base + blocks.start..base + blocks.end);
                return Ok(Attempt::Done(()));
            }
            let usable = guard.len().saturating_sub(offset).min(wanted_bytes) / BLOCK_BYTES * BLOCK_BYTES;
            let pages = guard.get(offset..offset + usable).unwrap_or_default();
            // Facts describe whole regions; record them only after a scan of the whole region.
            let whole = offset == 0 && usable == guard.len();
            let version = guard.version();
            let verify = scan.checksums && scan.state.verified_checksums.look_up(key, version, |_| ()).is_none();
            scan.workspace.scanner.verify_checksums(verify);
            let want_summary = whole && scan.wants_summary(object, region, version);
            match scan.workspace.scanner.scan(base + blocks.start, pages, &scan.xids, &mut scan.writer, want_summary) {
                Progress::Done { summary, stats: counts } => {
                    let cost = guard.cost();
                    scan.stats.add(&reads(&cost));
                    scan.stats.cache_hit_bytes += (usable as u64).saturating_sub(cost.disk_bytes + cost.flash_bytes);
                    drop(guard);
                    if verify && counts.passthru_blocks_page > 0 {
                        scan.repair_pages(object, region);
                    }
                    scan.stats.add(&counts);
                    if verify && whole && counts.passthru_blocks_page == 0 {
                        scan.state.verified_checksums.record(key, version, (), |_, _| ());
                    }
                    if let Some(summary) = summary {
                        scan.state.storage_index.record(key, version, scan.layout, summary);
                    }
                    scan.pass_through(base + blocks.start + (usable / BLOCK_BYTES) as u32..base + blocks.end);
                    Ok(Attempt::Done(()))
                }
                Progress::NeedXids(xids) => Ok(Attempt::NeedXids(xids)),
            }
        })
    }

    /// Repairs pages of a region that fail their checksums, for later scans: the backend reads the blocks itself.
    fn repair_pages(&self, object: DiskObject, region: RegionIndex) {
        let start = region.start();
        if let Err(error) = self.state.volume.verify_pages(object, start..start + REGION_BYTES as u64) {
            log::warn!("{error}");
        }
    }

    /// Repeats `attempt` until the states of all transactions that it needs are known. The sink is called between two
    /// attempts only, and an attempt must release its pins before it returns.
    fn with_xids<T, S: ScanSink>(
        &mut self,
        sink: &mut S,
        mut attempt: impl FnMut(&mut Self) -> Result<Attempt<T>, ScanError>,
    ) -> Result<T, S::Error> {
        self.xids.trim();
        loop {
            match attempt(self)? {
                Attempt::Done(value) => return Ok(value),
                Attempt::NeedXids(xids) => {
                    let states = sink.xid_states(&xids)?;
                    self.xids.record(&xids, &states);
                }
            }
        }
    }

    /// Passes through the start of `blocks`, up to the end of the region: the cell does not store the segment, or has no
    /// memory to scan the blocks. Returns the first block after them.
    fn pass_region_through(&mut self, base: u32, blocks: Range<u32>) -> u32 {
        let end = region_end(blocks.start).min(blocks.end);
        self.stats.eligible_bytes += bytes_of(blocks.start..end);
        self.pass_through(base + blocks.start..base + end);
        end
    }

    /// Passes blocks of the relation through because the cell has no readable page for them, or no memory. Postgres reads
    /// the blocks and reports any error. Blocks of an index are not counted.
    fn pass_through(&mut self, blocks: Range<u32>) {
        for block in blocks {
            match self.plan.index() {
                Some(_) => self.writer.set_incomplete(),
                None => self.writer.passthru(block, PassthruReason::Page),
            }
            self.stats.passthru_blocks_page += 1;
            self.stats.passthru_bytes += BLOCK_BYTES as u64;
        }
    }

    fn may_match(&self, object: DiskObject, region: RegionIndex) -> bool {
        if self.plan.summary_columns().is_empty() {
            return true;
        }
        let version = self.state.volume.region_version(object, region);
        self.state.storage_index.may_match((object, region), version, self.layout, &self.plan)
    }

    fn wants_summary(&self, object: DiskObject, region: RegionIndex, version: RegionVersion) -> bool {
        !self.plan.summary_columns().is_empty()
            && !self.state.storage_index.covers((object, region), version, self.layout, &self.plan)
    }

    /// Prefetches the next regions that the storage index does not exclude. The number of regions grows as the scan
    /// proceeds. Prefetching does not stop at the end of the range, because backends usually request the next range.
    fn read_ahead(&mut self, segment: SegmentObject, region: RegionIndex) {
        let SegmentObject { object, blocks_max, .. } = segment;
        let read_ahead = &mut self.read_ahead;
        if read_ahead.object != object {
            (read_ahead.object, read_ahead.requested_to) = (object, RegionIndex(0));
        }
        let ahead = PREFETCH_REGIONS.min(2 * read_ahead.regions_scanned);
        read_ahead.regions_scanned += 1;
        let to = RegionIndex((region.0 + 1 + ahead).min(blocks_max.div_ceil(REGION_BLOCKS)));
        let from = read_ahead.requested_to.max(region.next());
        if to.0.saturating_sub(from.0) < ahead / 4 {
            return;
        }
        let mut run = from;
        for excluded in RegionIndex::iter(from..to).filter(|ahead| !self.may_match(object, *ahead)) {
            self.state.volume.prefetch(object, run..excluded);
            run = excluded.next();
        }
        self.state.volume.prefetch(object, run..to);
        self.read_ahead.requested_to = to.max(from);
    }
}

/// Runs `helper` with each of `items` in a thread, and `own` in the calling thread. Returns the first error. Items whose thread cannot
/// be started are left out, so the threads must share the work.
fn in_threads<T: Send, E: Send>(
    items: impl Iterator<Item = T>,
    helper: impl Fn(T) -> Result<(), E> + Sync,
    own: impl FnOnce() -> Result<(), E>,
) -> Result<(), E> {
    std::thread::scope(|scope| {
        let (helper, name) = (&helper, std::thread::current().name().unwrap_or("scan").to_owned());
        let start = || std::thread::Builder::new().name(name.clone());
        let started = items.filter_map(|item| start().spawn_scoped(scope, move || helper(item)).ok());
        let started: Vec<_> = started.collect();
        let done = own();
        let joined: Vec<_> = started.into_iter().map(|thread| thread.join()).collect();
        joined.into_iter().fold(done, |done, helper| {
            let helper = helper.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            done.and(helper)
        })
    })
}

/// Where a thread writes merged groups.
struct GroupOutput<'a> {
    writer: &'a mut ResultWriter,
    totals: &'a mut ScanStats,
    stats: &'a mut ScanStats,
}

impl GroupOutput<'_> {
    /// Merges partitions until none is left. `is_helper`: sends all frames, too.
    fn merge<S: ScanSink>(&mut self, merge: &GroupMerge<'_>, mut sink: S, is_helper: bool) -> Result<(), S::Error> {
        let Self { writer, totals, stats } = self;
        let cpu_before = thread_cpu_ns();
        let mut send = |writer: &mut ResultWriter| send_groups(&mut sink, totals, writer);
        stats.rows_returned += merge.run(writer, &mut send)?;
        if is_helper {
            writer.flush();
            let counts = ScanStats { cell_cpu_ns: thread_cpu_ns() - cpu_before, ..std::mem::take(*stats) };
            totals.add(&counts);
            sink.frames(&counts, &[])?;
            send_groups(&mut sink, totals, writer)?;
        }
        Ok(())
    }

    /// Merges partitions of distinct values until none is left, and sends the counts.
    fn merge_distinct<S: ScanSink>(&mut self, merge: &DistinctMerge<'_>, mut sink: S) -> Result<(), S::Error> {
        let cpu_before = thread_cpu_ns();
        merge.run();
        let counts = ScanStats { cell_cpu_ns: thread_cpu_ns() - cpu_before, ..ScanStats::default() };
        self.totals.add(&counts);
        sink.frames(&counts, &[])
    }
}

/// Sends the frames of groups.
fn send_groups<S: ScanSink>(sink: &mut S, totals: &mut ScanStats, writer: &mut ResultWriter) -> Result<(), S::Error> {
    let counts = ScanStats { returned_bytes: writer.frames().len() as u64, ..ScanStats::default() };
    totals.add(&counts);
    let sent = sink.frames(&counts, writer.frames());
    writer.clear_frames();
    sent
}

/// Returns the counts of what was read.
fn reads(cost: &IoCost) -> ScanStats {
    ScanStats {
        disk_read_requests: cost.disk_requests,
        disk_read_bytes: cost.disk_bytes,
        flash_read_requests: cost.flash_requests,
        flash_read_bytes: cost.flash_bytes,
        ..ScanStats::default()
    }
}

/// Returns the region that contains a block of a segment.
fn region_of(block: u32) -> RegionIndex {
    RegionIndex(block / REGION_BLOCKS)
}

/// Returns the first block after the region that contains a block of a segment.
fn region_end(block: u32) -> u32 {
    (block / REGION_BLOCKS + 1).saturating_mul(REGION_BLOCKS)
}

fn bytes_of(blocks: Range<u32>) -> u64 {
    u64::from(blocks.end - blocks.start) * BLOCK_BYTES as u64
}

/// Returns the CPU time of the calling thread in nanoseconds.
fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
