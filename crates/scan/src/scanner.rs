//! Scans runs of heap blocks: visibility first, then predicates over a few pages at a time, then the remaining rows.
//! [`index_pages`] scans the leaf pages of an index in the same way.
//!
//! If anything in a block is undecided, the whole block is passed through and none of its rows is written. Nothing is
//! written before all required transaction states are known, so the caller can repeat a scan with more states.

mod index_pages;

use crate::aggregate::Aggregator;
use crate::batch::{Output, ResultWriter};
use crate::heap::{PAGES_BYTES_MAX, Page, PageRows, Prefetch, page_checksum};
use crate::lookup::Partners;
use crate::memory::Account;
use crate::plan::{Plan, Walks};
use crate::predicate::RowSet;
use crate::storage_index::{RegionSummary, SummaryBuilder};
use crate::top_n::TopN;
use crate::visibility::{TupleVisibility, Visibility, XidLookup};
use cellar_format::postgres::TransactionId;
use cellar_format::stats::ScanStats;
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::{HeapTid, PassthruReason};
use std::ops::Range;
use std::sync::Arc;

/// Pages that are decoded together: the pages and their columns should fit in the second-level cache.
const RUN_PAGES: usize = 16;

/// A page's header is prefetched this many pages ahead.
const HEADERS_AHEAD: usize = 8;
/// Cache lines of the first run to prefetch with each all-visible page.
const LINES_PER_PAGE: usize = 16;
/// Cache lines of the next page to prefetch with each tuple whose visibility is checked.
const LINES_PER_TUPLE: usize = 3;

/// The result of scanning some blocks.
#[derive(Debug)]
pub enum Progress {
    Done {
        /// None: not requested, or some page could not be decoded.
        summary: Option<RegionSummary>,
        /// Only the counters that the scan itself knows: bytes, rows and blocks.
        stats: ScanStats,
    },
    /// The states of these transactions are required first; ascending, without duplicates. Nothing was written.
    NeedXids(Vec<TransactionId>),
}

/// What is known about a page before its columns are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageState {
    Empty,
    AllVisible,
    /// The visible tuples, as a range of [`Scanner::visible`].
    SomeVisible {
        from: u32,
        to: u32,
    },
    Passthru(PassthruReason),
}

/// Scans heap pages for one plan. Each thread needs a separate scanner.
pub struct Scanner {
    plan: Arc<Plan>,
    verify_checksums: bool,
    page_states: Vec<PageState>,
    /// Line pointer numbers of visible tuples, page by page.
    visible: Vec<u16>,
    rows: PageRows,
    /// The rows that no stage has dropped so far; ascending.
    selected: Vec<u16>,
    next: Vec<u16>,
    /// All rows of the run, for the summary.
    all: Vec<u16>,
    undecided: Vec<u16>,
    malformed: Vec<u16>,
    partners: Partners,
    aggregator: Option<Aggregator>,
    top_n: Option<TopN>,
    /// Of a scan of an index: the heap row of each row.
    tids: Vec<HeapTid>,
    /// Of a scan of an index: heap rows for the backend to check.
    unchecked: Vec<HeapTid>,
}

/// What one call of [`Scanner::scan`] scans.
#[derive(Clone, Copy)]
struct Blocks<'a> {
    plan: &'a Plan,
    first_block: u32,
    pages: &'a [u8],
}

/// What one call of [`Scanner::scan`] produces.
struct Results<'a> {
    out: &'a mut ResultWriter,
    /// None: not requested, or some page could not be decoded.
    summary: Option<SummaryBuilder>,
    stats: ScanStats,
}

impl Scanner {
    /// A scanner whose groups and top-N list have no limit besides their fixed ones.
    pub fn new(plan: Arc<Plan>) -> Self {
        Self::with_memory(plan, &Account::unlimited())
    }

    /// `memory` is the account of the memory of groups and of the top-N list.
    pub fn with_memory(plan: Arc<Plan>, memory: &Arc<Account>) -> Self {
        Self {
            aggregator: plan.aggregation().map(|aggregation| Aggregator::new(aggregation, memory)),
            top_n: plan.top_n().map(|_| TopN::new(memory)),
            plan,
            verify_checksums: false,
            page_states: Vec::new(),
            visible: Vec::new(),
            rows: PageRows::default(),
            selected: Vec::new(),
            next: Vec::new(),
            all: Vec::new(),
            undecided: Vec::new(),
            malformed: Vec::new(),
            partners: Partners::default(),
            tids: Vec::new(),
            unchecked: Vec::new(),
        }
    }

    /// A scanner that returns rows even if the plan has an aggregation; the receiver of the rows aggregates.
    pub(crate) fn returning_rows(plan: Arc<Plan>, memory: &Arc<Account>) -> Self {
        Self { aggregator: None, ..Self::with_memory(plan, memory) }
    }

    /// Returns the memory of the scanner's buffers in bytes, without groups and top-N list.
    pub fn memory_bytes(&self) -> usize {
        let rows = [&self.visible, &self.selected, &self.next, &self.all].map(Vec::capacity).iter().sum::<usize>();
        self.page_states.capacity() * size_of::<PageState>()
            + rows * 2
            + self.rows.memory_bytes()
            + (self.tids.capacity() + self.unchecked.capacity()) * size_of::<HeapTid>()
    }

    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Sets whether page checksums are verified, in a cluster that has checksums. The default is false.
    pub fn verify_checksums(&mut self, verify: bool) {
        self.verify_checksums = verify;
    }

    /// Scans the blocks in `pages`, the first of which has number `first_block`. An incomplete last block is passed
    /// through.
    pub fn scan(
        &mut self,
        first_block: u32,
        pages: &[u8],
        xids: &dyn XidLookup,
        out: &mut ResultWriter,
        want_summary: bool,
    ) -> Progress {
        let mut stats = ScanStats { uncompressed_bytes: pages.len() as u64, ..ScanStats::default() };
        if self.plan.index().is_some() {
            return Progress::Done { summary: None, stats: self.scan_index(first_block, pages, out, stats) };
        }
        let needed = self.check_visibility(first_block, pages, xids, &mut stats);
        if !needed.is_empty() {
            return Progress::NeedXids(needed);
        }
        let plan = Arc::clone(&self.plan);
        let blocks = Blocks { plan: &plan, first_block, pages };
        let want_summary = want_summary && !plan.summary.is_empty();
        let summary = want_summary.then(|| SummaryBuilder::new(&plan.summary));
        let mut results = Results { out, summary, stats };
        let only_counts = matches!(plan.output(), Output::Count)
            && plan.lookups.is_empty()
            && plan.aggregation().is_none_or(|aggregation| aggregation.counts_rows());
        if plan.stages.is_empty() && results.summary.is_none() && only_counts {
            self.count(blocks, &mut results);
        } else {
            for first in (0..self.page_states.len()).step_by(RUN_PAGES) {
                let last = (first + RUN_PAGES).min(self.page_states.len());
                self.scan_run(blocks, first..last, &mut results);
            }
        }
        Progress::Done { summary: results.summary.map(SummaryBuilder::finish), stats: results.stats }
    }

    /// Returns the transactions whose states a scan of these blocks requires. Writes nothing.
    pub(crate) fn needed_xids(&mut self, first_block: u32, pages: &[u8], xids: &dyn XidLookup) -> Vec<TransactionId> {
        self.check_visibility(first_block, pages, xids, &mut ScanStats::default())
    }

    /// Fills `self.page_states` and `self.visible`; returns the transactions whose states are unknown.
    fn check_visibility(
        &mut self,
        first_block: u32,
        pages: &[u8],
        xids: &dyn XidLookup,
        stats: &mut ScanStats,
    ) -> Vec<TransactionId> {
        self.page_states.clear();
        self.visible.clear();
        let plan = &*self.plan;
        let mut visibility = Visibility::new(&plan.snapshot, xids);
        let mut needed = Vec::new();
        let first_run = &pages[..pages.len().min(RUN_PAGES * BLOCK_BYTES)];
        let mut ahead = Prefetch::new(first_run);
        for (index, bytes) in pages.chunks(BLOCK_BYTES).enumerate() {
            Prefetch::new(pages.get((index + HEADERS_AHEAD) * BLOCK_BYTES..).unwrap_or(&[])).step();
            let state = match Page::new(bytes) {
                _ if pages.len() > PAGES_BYTES_MAX => PageState::Passthru(PassthruReason::Page),
                Err(_) => PageState::Passthru(PassthruReason::Page),
                Ok(None) => PageState::Empty,
                Ok(Some(page)) => {
                    let block = first_block.wrapping_add(index as u32);
                    if self.verify_checksums && plan.checksums && !has_valid_checksum(&page, bytes, block) {
                        PageState::Passthru(PassthruReason::Page)
                    } else if page.all_visible() && !plan.snapshot.taken_during_recovery {
                        (0..LINES_PER_PAGE).for_each(|_| ahead.step());
                        PageState::AllVisible
                    } else {
                        let next = pages.get((index + 1) * BLOCK_BYTES..).unwrap_or(&[]);
                        let ahead = Prefetch::new(&next[..next.len().min(BLOCK_BYTES)]);
                        check_tuples(&page, &mut visibility, &mut self.visible, &mut needed, ahead)
                    }
                }
            };
            if visibility.take_helped() && !matches!(state, PageState::Passthru(_)) {
                stats.blocks_helped_by_commit_cache += 1;
            }
            self.page_states.push(state);
        }
        needed.sort_unstable();
        needed.dedup();
        needed
    }

    /// Counts rows from line pointers alone; for plans without columns and without predicates.
    fn count(&mut self, blocks: Blocks<'_>, results: &mut Results<'_>) {
        let mut rows = 0u64;
        for (index, (state, bytes)) in self.page_states.iter().zip(blocks.pages.chunks(BLOCK_BYTES)).enumerate() {
            match state {
                PageState::Empty => {}
                PageState::AllVisible => {
                    rows += Page::new(bytes).ok().flatten().map_or(0, |page| page.normal_count() as u64);
                }
                PageState::SomeVisible { from, to } => rows += (to - from) as u64,
                PageState::Passthru(reason) => {
                    passthru(results.out, blocks.first_block, index, *reason, &mut results.stats);
                }
            }
        }
        results.stats.rows_scanned += rows;
        match (blocks.plan.aggregation(), &mut self.aggregator) {
            (Some(plan), Some(aggregator)) => {
                aggregator.count_rows(plan, rows);
                results.stats.rows_aggregated += rows;
            }
            _ => {
                results.stats.rows_returned += rows;
                results.out.count(blocks.first_block, rows);
            }
        }
    }

    /// Writes the groups of a range that are not written yet. Returns their number; groups count as rows returned.
    pub fn finish_range(&mut self, out: &mut ResultWriter) -> u64 {
        match (self.plan.aggregation(), &mut self.aggregator) {
            (Some(plan), Some(aggregator)) => aggregator.finish(plan, out),
            _ => 0,
        }
    }

    /// The groups of the range so far. None: the plan has no aggregation.
    pub fn aggregator(&mut self) -> Option<&mut Aggregator> {
        self.aggregator.as_mut()
    }

    /// Scans the pages `range`, given as indexes into `blocks.pages`.
    fn scan_run(&mut self, blocks: Blocks<'_>, range: Range<usize>, results: &mut Results<'_>) {
        let Blocks { plan, pages, .. } = blocks;
        let next = range.end * BLOCK_BYTES..(range.end + RUN_PAGES) * BLOCK_BYTES;
        let mut ahead = Prefetch::new(pages.get(next.start..next.end.min(pages.len())).unwrap_or(&[]));
        match plan.index() {
            Some(_) => self.load_entries(blocks, range.clone(), &mut ahead),
            None => self.load(blocks, range.clone(), &mut results.summary, &mut ahead),
        }
        results.stats.rows_scanned += self.selected.len() as u64;
        let walks = if results.summary.is_some() { &plan.walks_with_summary } else { &plan.walks };
        self.summarise(blocks, walks, &mut results.summary, &mut ahead);
        for (stage, run) in plan.stages.iter().zip(&walks.stages) {
            if self.selected.is_empty() {
                break;
            }
            self.rows.walk(pages, run, &self.selected, &mut self.malformed, &mut ahead);
            self.drop_malformed();
            self.next.clear();
            let rows = RowSet::of_datums(pages, &self.rows, &plan.columns, true);
            stage.kernel.run(rows, &self.selected, &mut self.next, &mut self.undecided);
            std::mem::swap(&mut self.selected, &mut self.next);
            if !self.undecided.is_empty() {
                let undecided = std::mem::take(&mut self.undecided);
                self.pass_pages_through(&undecided, PassthruReason::Predicate);
                self.undecided = undecided;
                self.undecided.clear();
            }
        }
        if let Some(top_n_plan) = plan.top_n() {
            self.rows.walk(pages, &walks.top_n, &self.selected, &mut self.malformed, &mut ahead);
            self.drop_malformed();
            let rows = RowSet::of_datums(pages, &self.rows, &plan.columns, true);
            if let Some(top_n) = &mut self.top_n {
                top_n.retain(top_n_plan, rows, &mut self.selected);
            }
        }
        self.rows.walk(pages, &walks.output, &self.selected, &mut self.malformed, &mut ahead);
        self.drop_malformed();
        if let Some(index) = plan.index() {
            self.set_unchecked_apart(index, results);
        }
        self.aggregate(blocks, results);
        self.write_rows(blocks, range, results);
    }

    /// Loads the tuples of a run into `self.rows` and selects the visible tuples. Invisible tuples are loaded only for
    /// a summary, which is discarded if a page is malformed.
    fn load(
        &mut self,
        blocks: Blocks<'_>,
        range: Range<usize>,
        summary: &mut Option<SummaryBuilder>,
        ahead: &mut Prefetch<'_>,
    ) {
        let Blocks { plan, pages, .. } = blocks;
        self.rows.clear();
        self.selected.clear();
        for index in range {
            let state = self.page_states[index];
            let base = index * BLOCK_BYTES;
            let page = match state {
                PageState::Empty => continue,
                PageState::Passthru(PassthruReason::Page) => {
                    *summary = None;
                    continue;
                }
                PageState::Passthru(_) if summary.is_none() => continue,
                _ => pages.get(base..base + BLOCK_BYTES).and_then(|bytes| Page::new(bytes).ok().flatten()),
            };
            let Some(page) = page else { continue };
            let first_row = self.rows.len();
            let visible = match state {
                PageState::SomeVisible { from, to } => &self.visible[from as usize..to as usize],
                _ => &[],
            };
            let mut visible = visible.iter().copied().peekable();
            let (rows, selected) = (&mut self.rows, &mut self.selected);
            let loaded = if state == PageState::AllVisible {
                let loaded = page.for_each_tuple(|line, tuple| {
                    rows.push(&plan.layout, base, index as u16, line, &tuple);
                    ahead.step();
                });
                selected.extend(first_row as u16..rows.len() as u16);
                loaded
            } else {
                page.for_each_tuple(|line, tuple| {
                    let is_visible = visible.next_if_eq(&line).is_some();
                    if is_visible || summary.is_some() {
                        if is_visible {
                            selected.push(rows.len() as u16);
                        }
                        rows.push(&plan.layout, base, index as u16, line, &tuple);
                    }
                })
            };
            if loaded.is_err() {
                self.page_states[index] = PageState::Passthru(PassthruReason::Page);
                self.rows.truncate(first_row);
                while self.selected.last().is_some_and(|row| *row as usize >= first_row) {
                    self.selected.pop();
                }
                *summary = None;
            }
        }
        self.rows.prepare(plan.layout.slots());
    }

    /// Adds the loaded rows to the region's summary. Discards the summary if a tuple is malformed.
    fn summarise(
        &mut self,
        blocks: Blocks<'_>,
        walks: &Walks,
        summary: &mut Option<SummaryBuilder>,
        ahead: &mut Prefetch<'_>,
    ) {
        let (Some(builder), Some(run)) = (summary.as_mut(), &walks.summary) else { return };
        self.all.clear();
        self.all.extend(0..self.rows.len() as u16);
        self.rows.walk(blocks.pages, run, &self.all, &mut self.malformed, ahead);
        if self.malformed.is_empty() {
            builder.add(blocks.pages, &self.rows, &blocks.plan.columns);
        } else {
            *summary = None;
        }
    }

    /// Passes the pages of malformed selected rows through, and clears `self.malformed`.
    fn drop_malformed(&mut self) {
        if self.malformed.is_empty() {
            return;
        }
        let mut malformed = std::mem::take(&mut self.malformed);
        malformed.sort_unstable();
        // An invisible tuple may have been written under a table definition that was rolled back. Such a tuple does not
        // make its page malformed.
        let selected: Vec<u16> =
            self.selected.iter().copied().filter(|row| malformed.binary_search(row).is_ok()).collect();
        self.pass_pages_through(&selected, PassthruReason::Page);
        malformed.clear();
        self.malformed = malformed;
    }

    /// Passes the pages of `rows` through and deselects all rows of these pages.
    fn pass_pages_through(&mut self, rows: &[u16], reason: PassthruReason) {
        for row in rows {
            let state = &mut self.page_states[self.rows.row(*row).page as usize];
            if !matches!(state, PageState::Passthru(_)) {
                *state = PageState::Passthru(reason);
            }
        }
        let (states, rows) = (&self.page_states, &self.rows);
        self.selected.retain(|row| !matches!(states[rows.row(*row).page as usize], PageState::Passthru(_)));
    }

    /// Joins the selected rows and folds them into groups if the plan has an aggregation. Rows that are not joined or rejected stay
    /// selected.
    fn aggregate(&mut self, blocks: Blocks<'_>, results: &mut Results<'_>) {
        let (Some(aggregation), Some(aggregator)) = (blocks.plan.aggregation(), &mut self.aggregator) else { return };
        let Blocks { plan, pages, .. } = blocks;
        let (rows, selected) = (&mut self.rows, &mut self.selected);
        if let Some(joins) = plan.joins() {
            let Results { out, stats, .. } = results;
            self.partners.aggregate(joins, aggregator, pages, true, rows, selected, out, stats);
            return;
        }
        let rows = RowSet::of_datums(pages, rows, &plan.columns, true);
        aggregator.add(aggregation, rows, selected, None, results.out, &mut results.stats);
    }

    /// Writes the selected rows and the passed-through blocks, in the order of the blocks.
    fn write_rows(&mut self, blocks: Blocks<'_>, range: Range<usize>, results: &mut Results<'_>) {
        let Blocks { plan, first_block, pages } = blocks;
        let Results { out, stats, .. } = results;
        let mut rest = self.selected.as_slice();
        // The backend finds the index pages that are not counted by their links.
        let passed_through = if plan.index().is_some() { range.end..range.end } else { range };
        for index in passed_through {
            let PageState::Passthru(reason) = self.page_states[index] else { continue };
            let before = rest.partition_point(|row| (self.rows.row(*row).page as usize) < index);
            let (now, later) = rest.split_at(before);
            stats.rows_returned += now.len() as u64;
            out.append(plan.output(), pages, first_block, &self.rows, now);
            passthru(out, first_block, index, reason, stats);
            rest = later;
        }
        stats.rows_returned += rest.len() as u64;
        out.append(plan.output(), pages, first_block, &self.rows, rest);
    }
}

fn has_valid_checksum(page: &Page<'_>, bytes: &[u8], block: u32) -> bool {
    let bytes: Result<&[u8; BLOCK_BYTES], _> = bytes.try_into();
    bytes.is_ok_and(|bytes| page_checksum(bytes, block) == page.stored_checksum())
}

/// Writes a passed-through block, the one at `index` from `first_block`, and counts it.
pub(crate) fn passthru(
    out: &mut ResultWriter,
    first_block: u32,
    index: usize,
    reason: PassthruReason,
    stats: &mut ScanStats,
) {
    out.passthru(first_block.wrapping_add(index as u32), reason);
    count_passthru(reason, stats);
}

/// Counts a block that the cell does not evaluate.
fn count_passthru(reason: PassthruReason, stats: &mut ScanStats) {
    stats.passthru_bytes += BLOCK_BYTES as u64;
    match reason {
        PassthruReason::Visibility => stats.passthru_blocks_visibility += 1,
        PassthruReason::Predicate => stats.passthru_blocks_predicate += 1,
        PassthruReason::Page => stats.passthru_blocks_page += 1,
    }
}

/// Determines which tuples of a page the snapshot sees, and appends their line pointer numbers to `visible`. Appends
/// the transactions whose states are unknown to `needed`, except those of a page that must be passed through anyway.
fn check_tuples(
    page: &Page<'_>,
    visibility: &mut Visibility<'_>,
    visible: &mut Vec<u16>,
    needed: &mut Vec<TransactionId>,
    mut ahead: Prefetch<'_>,
) -> PageState {
    let (first_visible, first_needed) = (visible.len(), needed.len());
    let mut undecided = false;
    let mut all = true;
    let walked = page.for_each_tuple(|line, tuple| {
        (0..LINES_PER_TUPLE).for_each(|_| ahead.step());
        match visibility.check(&tuple) {
            TupleVisibility::Visible => return visible.push(line),
            TupleVisibility::Invisible => {}
            TupleVisibility::Undecided => undecided = true,
            TupleVisibility::NeedsXid(xid) if needed[first_needed..].last() == Some(&xid) => {}
            TupleVisibility::NeedsXid(xid) => needed.push(xid),
        }
        all = false;
    });
    if walked.is_err() || undecided {
        visible.truncate(first_visible);
        needed.truncate(first_needed);
        let reason = if walked.is_err() { PassthruReason::Page } else { PassthruReason::Visibility };
        return PageState::Passthru(reason);
    }
    if all {
        visible.truncate(first_visible);
        return PageState::AllVisible;
    }
    PageState::SomeVisible { from: first_visible as u32, to: visible.len() as u32 }
}
