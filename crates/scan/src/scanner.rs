//! Scans runs of blocks: visibility first, then predicates over chunks of pages, then the rows that are left.
//!
//! A block of which anything stays undecided goes back whole, and none of its rows is emitted. Nothing is emitted
//! before all transaction states that the blocks need are known, so a scan can simply be repeated with more answers.

use crate::aggregate::Aggregator;
use crate::batch::{Output, ResultWriter};
use crate::heap::{PAGES_BYTES_MAX, Page, PageRows, Prefetch, page_checksum};
use crate::plan::{Plan, Walks};
use crate::predicate::RowSet;
use crate::storage_index::{RegionSummary, SummaryBuilder};
use crate::top_n::TopN;
use crate::visibility::{TupleVisibility, Visibility, XidLookup};
use cellar_format::postgres::TransactionId;
use cellar_format::stats::ScanStats;
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::PassthruReason;
use std::sync::Arc;

/// Pages that are decoded together: they and their columns should stay in the second-level cache.
const CHUNK_PAGES: usize = 16;

/// How many pages before its turn a page's header is fetched.
const HEADERS_AHEAD: usize = 8;
/// Lines of the first chunk to be fetched with each header.
const LINES_PER_PAGE: usize = 16;
/// Lines of the next page to be fetched with each tuple that is judged.
const LINES_PER_TUPLE: usize = 3;

/// What became of a scan of some blocks.
#[derive(Debug)]
pub enum Progress {
    Done {
        /// When it was wanted, and every page could be decoded.
        summary: Option<RegionSummary>,
        /// Only the counts that the scan itself knows: bytes, rows and blocks.
        stats: ScanStats,
    },
    /// The states of these transactions are needed first; ascending, each once. Nothing was emitted.
    NeedXids(Vec<TransactionId>),
}

/// What is known of a page before its columns are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageState {
    Empty,
    /// Every tuple counts.
    AllVisible,
    /// These of the visible line pointers, as a range of the list.
    Some {
        from: u32,
        to: u32,
    },
    Passthru(PassthruReason),
}

/// Scratch memory for scans of one plan; one per thread.
pub struct Scanner {
    plan: Arc<Plan>,
    verify_checksums: bool,
    pages: Vec<PageState>,
    /// Line pointer numbers of visible tuples, page by page.
    visible: Vec<u16>,
    chunk: PageRows,
    selected: Vec<u16>,
    next: Vec<u16>,
    all: Vec<u16>,
    undecided: Vec<u16>,
    malformed: Vec<u16>,
    aggregator: Option<Aggregator>,
    top_n: Option<TopN>,
}

impl Scanner {
    pub fn new(plan: Arc<Plan>) -> Self {
        Self {
            aggregator: plan.aggregation().map(Aggregator::new),
            top_n: plan.top_n().map(TopN::new),
            plan,
            verify_checksums: false,
            pages: Vec::new(),
            visible: Vec::new(),
            chunk: PageRows::default(),
            selected: Vec::new(),
            next: Vec::new(),
            all: Vec::new(),
            undecided: Vec::new(),
            malformed: Vec::new(),
        }
    }

    /// Puts out rows, of a plan with an aggregation too: whoever gets them aggregates.
    pub(crate) fn of_rows(plan: Arc<Plan>) -> Self {
        Self { aggregator: None, ..Self::new(plan) }
    }

    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Whether each page's checksum is computed again, in a cluster that has them. Off at first.
    pub fn verify_checksums(&mut self, verify: bool) {
        self.verify_checksums = verify;
    }

    /// Scans whole blocks, `pages`, of which the first has number `first_block`. A trailing piece of a block is
    /// passed through.
    pub fn scan(
        &mut self,
        first_block: u32,
        pages: &[u8],
        xids: &dyn XidLookup,
        out: &mut ResultWriter,
        want_summary: bool,
    ) -> Progress {
        let mut stats = ScanStats { uncompressed_bytes: pages.len() as u64, ..ScanStats::default() };
        let needed = self.judge_pages(first_block, pages, xids, &mut stats);
        if !needed.is_empty() {
            return Progress::NeedXids(needed);
        }
        let plan = Arc::clone(&self.plan);
        let want_summary = want_summary && !plan.summary.is_empty();
        let mut summary = want_summary.then(|| SummaryBuilder::new(&plan.summary));
        let only_counts =
            matches!(plan.output(), Output::Count) && plan.aggregation().is_none_or(|it| it.counts_rows());
        if plan.stages.is_empty() && summary.is_none() && only_counts {
            self.count(first_block, pages, out, &mut stats);
        } else {
            for first in (0..self.pages.len()).step_by(CHUNK_PAGES) {
                let last = (first + CHUNK_PAGES).min(self.pages.len());
                self.scan_chunk(&plan, first_block, pages, first..last, out, &mut summary, &mut stats);
            }
        }
        Progress::Done { summary: summary.map(SummaryBuilder::finish), stats }
    }

    /// The transactions whose states a scan of these blocks would ask for. Puts nothing out.
    pub(crate) fn needed_xids(&mut self, first_block: u32, pages: &[u8], xids: &dyn XidLookup) -> Vec<TransactionId> {
        self.judge_pages(first_block, pages, xids, &mut ScanStats::default())
    }

    /// Fills `self.pages` and `self.visible`; returns the transactions whose states are missing.
    fn judge_pages(
        &mut self,
        first_block: u32,
        pages: &[u8],
        xids: &dyn XidLookup,
        stats: &mut ScanStats,
    ) -> Vec<TransactionId> {
        self.pages.clear();
        self.visible.clear();
        let plan = &*self.plan;
        let mut visibility = Visibility::new(&plan.snapshot, xids);
        let mut needed = Vec::new();
        let first_chunk = &pages[..pages.len().min(CHUNK_PAGES * BLOCK_BYTES)];
        let mut ahead = Prefetch::new(first_chunk);
        for (index, bytes) in pages.chunks(BLOCK_BYTES).enumerate() {
            Prefetch::new(pages.get((index + HEADERS_AHEAD) * BLOCK_BYTES..).unwrap_or(&[])).step();
            let state = match Page::new(bytes) {
                _ if pages.len() > PAGES_BYTES_MAX => PageState::Passthru(PassthruReason::Page),
                Err(_) => PageState::Passthru(PassthruReason::Page),
                Ok(None) => PageState::Empty,
                Ok(Some(page)) => {
                    let block = first_block.wrapping_add(index as u32);
                    if self.verify_checksums && plan.checksums && !checksum_holds(&page, bytes, block) {
                        PageState::Passthru(PassthruReason::Page)
                    } else if page.all_visible() && !plan.snapshot.taken_during_recovery {
                        (0..LINES_PER_PAGE).for_each(|_| ahead.step());
                        PageState::AllVisible
                    } else {
                        let next = pages.get((index + 1) * BLOCK_BYTES..).unwrap_or(&[]);
                        let ahead = Prefetch::new(&next[..next.len().min(BLOCK_BYTES)]);
                        judge_tuples(&page, &mut visibility, &mut self.visible, &mut needed, ahead)
                    }
                }
            };
            if visibility.take_helped() && !matches!(state, PageState::Passthru(_)) {
                stats.blocks_helped_by_commit_cache += 1;
            }
            self.pages.push(state);
        }
        needed.sort_unstable();
        needed.dedup();
        needed
    }

    /// Rows without columns and without predicates: only line pointers are counted.
    fn count(&mut self, first_block: u32, pages: &[u8], out: &mut ResultWriter, stats: &mut ScanStats) {
        let mut rows = 0u64;
        for (index, (state, bytes)) in self.pages.iter().zip(pages.chunks(BLOCK_BYTES)).enumerate() {
            match state {
                PageState::Empty => {}
                PageState::AllVisible => {
                    rows += Page::new(bytes).ok().flatten().map_or(0, |page| page.normal_count() as u64);
                }
                PageState::Some { from, to } => rows += (to - from) as u64,
                PageState::Passthru(reason) => passthru(out, first_block, index, *reason, stats),
            }
        }
        stats.rows_scanned += rows;
        match (self.plan.aggregation(), &mut self.aggregator) {
            (Some(plan), Some(aggregator)) => {
                aggregator.count_rows(plan, rows);
                stats.rows_aggregated += rows;
            }
            _ => {
                stats.rows_returned += rows;
                out.count(first_block, rows);
            }
        }
    }

    /// What of a range is still in groups leaves. Returns the number of groups, which count as rows returned.
    pub fn finish_range(&mut self, out: &mut ResultWriter) -> u64 {
        match (self.plan.aggregation(), &mut self.aggregator) {
            (Some(plan), Some(aggregator)) => aggregator.flush(plan, out),
            _ => 0,
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn scan_chunk(
        &mut self,
        plan: &Plan,
        first_block: u32,
        pages: &[u8],
        range: std::ops::Range<usize>,
        out: &mut ResultWriter,
        summary: &mut Option<SummaryBuilder>,
        stats: &mut ScanStats,
    ) {
        let next = range.end * BLOCK_BYTES..(range.end + CHUNK_PAGES) * BLOCK_BYTES;
        let mut ahead = Prefetch::new(pages.get(next.start..next.end.min(pages.len())).unwrap_or(&[]));
        self.load(plan, pages, range.clone(), summary, &mut ahead);
        stats.rows_scanned += self.selected.len() as u64;
        let walks = if summary.is_some() { &plan.walks_with_summary } else { &plan.walks };
        self.summarise(plan, pages, walks, summary, &mut ahead);
        for (stage, segment) in plan.stages.iter().zip(&walks.stages) {
            if self.selected.is_empty() {
                break;
            }
            self.chunk.walk(pages, &plan.layout, segment, &self.selected, &mut self.malformed, &mut ahead);
            self.drop_malformed();
            self.next.clear();
            let rows = RowSet::of_datums(pages, &self.chunk, &plan.columns, true);
            stage.kernel.run(rows, &self.selected, &mut self.next, &mut self.undecided);
            std::mem::swap(&mut self.selected, &mut self.next);
            if !self.undecided.is_empty() {
                let undecided = std::mem::take(&mut self.undecided);
                self.pass_pages_through(&undecided, PassthruReason::Predicate);
                self.undecided = undecided;
                self.undecided.clear();
            }
        }
        if let Some(wanted) = plan.top_n() {
            self.chunk.walk(pages, &plan.layout, &walks.top_n, &self.selected, &mut self.malformed, &mut ahead);
            self.drop_malformed();
            let rows = RowSet::of_datums(pages, &self.chunk, &plan.columns, true);
            if let Some(top_n) = &mut self.top_n {
                top_n.retain(wanted, rows, &mut self.selected);
            }
        }
        self.chunk.walk(pages, &plan.layout, &walks.output, &self.selected, &mut self.malformed, &mut ahead);
        self.drop_malformed();
        self.aggregate(plan, pages, out, stats);
        self.emit(plan, first_block, pages, range, out, stats);
    }

    /// Puts the chunk's tuples into `self.chunk` and selects the visible ones.
    fn load(
        &mut self,
        plan: &Plan,
        pages: &[u8],
        range: std::ops::Range<usize>,
        summary: &mut Option<SummaryBuilder>,
        ahead: &mut Prefetch<'_>,
    ) {
        self.chunk.clear();
        self.selected.clear();
        for index in range {
            let state = self.pages[index];
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
            let first_row = self.chunk.len();
            let visible = match state {
                PageState::Some { from, to } => &self.visible[from as usize..to as usize],
                _ => &[],
            };
            let mut visible = visible.iter().copied().peekable();
            let (chunk, selected) = (&mut self.chunk, &mut self.selected);
            let loaded = if state == PageState::AllVisible {
                let loaded = page.for_each_tuple(|line, tuple| {
                    chunk.push(&plan.layout, base, index as u16, line, &tuple);
                    ahead.step();
                });
                selected.extend(first_row as u16..chunk.len() as u16);
                loaded
            } else {
                page.for_each_tuple(|line, tuple| {
                    let is_visible = visible.next_if_eq(&line).is_some();
                    if is_visible || summary.is_some() {
                        if is_visible {
                            selected.push(chunk.len() as u16);
                        }
                        chunk.push(&plan.layout, base, index as u16, line, &tuple);
                    }
                })
            };
            if loaded.is_err() {
                self.pages[index] = PageState::Passthru(PassthruReason::Page);
                self.chunk.truncate(first_row);
                while self.selected.last().is_some_and(|row| *row as usize >= first_row) {
                    self.selected.pop();
                }
                *summary = None;
            }
        }
        self.chunk.prepare(plan.layout.slots());
    }

    /// Adds the chunk to the region's summary, and gives that up when a tuple cannot be walked.
    fn summarise(
        &mut self,
        plan: &Plan,
        pages: &[u8],
        walks: &Walks,
        summary: &mut Option<SummaryBuilder>,
        ahead: &mut Prefetch<'_>,
    ) {
        let (Some(builder), Some(segment)) = (summary.as_mut(), &walks.summary) else { return };
        self.all.clear();
        self.all.extend(0..self.chunk.len() as u16);
        self.chunk.walk(pages, &plan.layout, segment, &self.all, &mut self.malformed, ahead);
        if self.malformed.is_empty() {
            builder.add(pages, &self.chunk, &plan.columns);
        } else {
            *summary = None;
        }
    }

    /// Passes the pages of selected malformed rows through and drops their rows.
    fn drop_malformed(&mut self) {
        if self.malformed.is_empty() {
            return;
        }
        let mut malformed = std::mem::take(&mut self.malformed);
        malformed.sort_unstable();
        // An invisible tuple may come from a table definition that was rolled back: it proves nothing.
        let selected: Vec<u16> =
            self.selected.iter().copied().filter(|row| malformed.binary_search(row).is_ok()).collect();
        self.pass_pages_through(&selected, PassthruReason::Page);
        malformed.clear();
        self.malformed = malformed;
    }

    fn pass_pages_through(&mut self, rows: &[u16], reason: PassthruReason) {
        for row in rows {
            let state = &mut self.pages[self.chunk.row(*row).page as usize];
            if !matches!(state, PageState::Passthru(_)) {
                *state = PageState::Passthru(reason);
            }
        }
        let (pages, chunk) = (&self.pages, &self.chunk);
        self.selected.retain(|row| !matches!(pages[chunk.row(*row).page as usize], PageState::Passthru(_)));
    }

    /// Folds the selected rows into groups, if that is asked for; those that cannot be stay selected.
    fn aggregate(&mut self, plan: &Plan, pages: &[u8], out: &mut ResultWriter, stats: &mut ScanStats) {
        let (Some(aggregation), Some(aggregator)) = (plan.aggregation(), &mut self.aggregator) else { return };
        let rows = RowSet::of_datums(pages, &self.chunk, &plan.columns, true);
        aggregator.add(aggregation, rows, &mut self.selected, out, stats);
    }

    /// Emits the selected rows with the passed-through blocks in their places.
    fn emit(
        &mut self,
        plan: &Plan,
        first_block: u32,
        pages: &[u8],
        range: std::ops::Range<usize>,
        out: &mut ResultWriter,
        stats: &mut ScanStats,
    ) {
        let mut rows = self.selected.as_slice();
        for index in range {
            let PageState::Passthru(reason) = self.pages[index] else { continue };
            let before = rows.partition_point(|row| (self.chunk.row(*row).page as usize) < index);
            let (now, later) = rows.split_at(before);
            stats.rows_returned += now.len() as u64;
            out.append(plan.output(), pages, first_block, &self.chunk, now);
            passthru(out, first_block, index, reason, stats);
            rows = later;
        }
        stats.rows_returned += rows.len() as u64;
        out.append(plan.output(), pages, first_block, &self.chunk, rows);
    }
}

fn checksum_holds(page: &Page<'_>, bytes: &[u8], block: u32) -> bool {
    let bytes: Result<&[u8; BLOCK_BYTES], _> = bytes.try_into();
    bytes.is_ok_and(|bytes| page_checksum(bytes, block) == page.stored_checksum())
}

pub(crate) fn passthru(
    out: &mut ResultWriter,
    first_block: u32,
    index: usize,
    reason: PassthruReason,
    stats: &mut ScanStats,
) {
    out.passthru(first_block.wrapping_add(index as u32), reason);
    stats.passthru_bytes += BLOCK_BYTES as u64;
    match reason {
        PassthruReason::Visibility => stats.passthru_blocks_visibility += 1,
        PassthruReason::Predicate => stats.passthru_blocks_predicate += 1,
        PassthruReason::Page => stats.passthru_blocks_page += 1,
    }
}

/// Which tuples of a page the snapshot sees. Transactions to be asked for are added to `needed`; but none of a page
/// that is undecided anyway.
fn judge_tuples(
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
    PageState::Some { from: first_visible as u32, to: visible.len() as u32 }
}
