//! Scans compression units: the rows that [`crate::Scanner`] would find in their pages, in the same order, from the
//! encoded columns.
//!
//! Chunks whose bounds exclude the predicate are not read. Visibility is settled first, from the header series. Then the
//! predicates that encoded values decide run block by block of each column ([`filter`]); what they leave is folded into
//! groups as it is encoded ([`fold`]; all rows of one group at once, [`totals`]), or becomes datums for the other predicates, for aggregates and for the batches
//! ([`rows`]). A page that is not kept as rows, and a request that asks for more than columns, go through the page
//! itself: rebuilt and scanned as any heap page, whose rows Postgres aggregates.

mod filter;
mod fold;
mod rows;
mod totals;

use crate::aggregate::Aggregator;
use crate::batch::{Output, ResultWriter};
use crate::heap::{PageRows, Slot, TupleHeader};
use crate::plan::Plan;
use crate::predicate::Column;
use crate::scanner::{Progress, Scanner, passthru};
use crate::storage_index::{ColumnSummary, RegionSummary, unit_bounds};
use crate::top_n::TopN;
use crate::unit::{
    self, AttributeChunk, BLOCK_ROWS, Block, ColumnReader, HeaderField, HeaderReader, PageKind, Unit, UnitError,
    UnitSource,
};
use crate::vectors::marked;
use crate::visibility::{TupleVisibility, Visibility, XidLookup};
use cellar_format::postgres::TransactionId;
use cellar_format::stats::ScanStats;
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::PassthruReason;
use std::ops::Range;
use std::sync::Arc;

const PD_ALL_VISIBLE: u16 = 0x0004;

/// What is known of a page before its columns are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageState {
    /// No row can qualify.
    Skipped,
    AllVisible,
    /// These of the visible rows, as a range of the list.
    Some {
        from: u32,
        to: u32,
    },
    /// The page itself is scanned.
    Rebuild,
    Passthru(PassthruReason),
}

/// Pages of one state: a chunk's where they are many.
struct Judged {
    pages: Range<usize>,
    /// The number of the chunk that they lie in; 0 if in none.
    chunk: usize,
    state: PageState,
}

impl Judged {
    fn is_rows(&self) -> bool {
        matches!(self.state, PageState::AllVisible | PageState::Some { .. })
    }

    /// How many rows the snapshot sees.
    fn visible(&self, unit: &Unit) -> usize {
        match self.state {
            PageState::Some { from, to } => (to - from) as usize,
            _ => rows(unit, &self.pages).len(),
        }
    }
}

/// The rows of some pages, as numbers in the unit.
fn rows(unit: &Unit, pages: &Range<usize>) -> Range<usize> {
    unit.page_rows(pages.start).start..unit.page_rows(pages.end - 1).end
}

/// Scratch memory for scans of one plan over units; one per thread.
pub struct UnitScanner {
    plan: Arc<Plan>,
    pages: Scanner,
    rebuilder: unit::Rebuilder,
    judged: Vec<Judged>,
    /// Rows that the snapshot sees, of pages where it does not see all.
    visible: Vec<u32>,
    headers: HeaderReader,
    top_n: Option<TopN>,
    chunk: PageRows,
    /// The datums of the run's rows; none starts at [`NULL`] or [`MISSING`].
    datums: Vec<u8>,
    located: Vec<Slot>,
    columns: Vec<ColumnReader>,
    /// Rows of the chunk that passed the filters.
    passed: Vec<u16>,
    selected: Vec<u16>,
    next: Vec<u16>,
    undecided: Vec<u16>,
    aggregator: Option<Aggregator>,
}

/// Pages one after the other in one chunk, of which some rows are to be looked at.
struct Segment {
    chunk: usize,
    /// Where they stand in the list of those judged.
    judged: Range<usize>,
    pages: Range<usize>,
    /// As numbers in the unit.
    rows: Range<usize>,
    /// The first row of the chunk.
    first_row: usize,
    all_visible: bool,
}

/// A unit and what it is read from.
#[derive(Clone, Copy)]
struct Stored<'a> {
    unit: &'a Unit,
    source: &'a dyn UnitSource,
    first_block: u32,
}

impl<'a> Stored<'a> {
    /// A column as the plan and a chunk know it; None: its type changed, or rows lack it.
    fn known<'p>(&self, plan: &'p Plan, chunk: usize, slot: Slot) -> Option<(&'p Column, &'a AttributeChunk)> {
        let column = plan.columns.get(slot as usize)?.as_ref()?;
        let attribute = self.unit.chunks()[chunk].attribute(column.attribute)?;
        let is_same = self.unit.shape().attributes[column.attribute].type_oid == column.type_oid;
        (is_same && attribute.missing == 0).then_some((column, attribute))
    }
}

impl UnitScanner {
    pub fn new(plan: Arc<Plan>) -> Self {
        let aggregator = plan.aggregation().map(Aggregator::new);
        Self {
            pages: Scanner::of_rows(Arc::clone(&plan)),
            top_n: plan.top_n().map(TopN::new),
            plan,
            rebuilder: unit::Rebuilder::new(),
            judged: Vec::new(),
            visible: Vec::new(),
            headers: HeaderReader::default(),
            chunk: PageRows::default(),
            datums: Vec::new(),
            located: Vec::new(),
            columns: Vec::new(),
            passed: Vec::new(),
            selected: Vec::new(),
            next: Vec::new(),
            undecided: Vec::new(),
            aggregator,
        }
    }

    /// Scans pages of a unit whose first page is block `first_block`. Pages that were overwritten since are left out by
    /// whoever calls this. An error says that the unit is damaged; what was emitted before it is right. What chunks'
    /// bounds saved is counted as bytes of whole pages.
    pub fn scan(
        &mut self,
        first_block: u32,
        unit: &Unit,
        source: &dyn UnitSource,
        pages: Range<usize>,
        xids: &dyn XidLookup,
        out: &mut ResultWriter,
    ) -> Result<Progress, UnitError> {
        let pages = pages.start.min(unit.pages().len())..pages.end.min(unit.pages().len());
        let stored = Stored { unit, source, first_block };
        let mut stats = ScanStats { uncompressed_bytes: (pages.len() * BLOCK_BYTES) as u64, ..ScanStats::default() };
        let needed = self.judge(stored, pages.clone(), xids, &mut stats)?;
        if !needed.is_empty() {
            return Ok(Progress::NeedXids(needed));
        }
        let plan = Arc::clone(&self.plan);
        let mut at = 0;
        while let Some(judged) = self.judged.get(at) {
            let page = judged.pages.start;
            at += 1;
            match judged.state {
                PageState::Skipped => {}
                PageState::Passthru(reason) => passthru(out, first_block, page, reason, &mut stats),
                PageState::Rebuild => self.scan_page(stored, page, xids, out, &mut stats)?,
                PageState::AllVisible | PageState::Some { .. } => {
                    let segment = self.segment(unit, at - 1);
                    at = segment.judged.end;
                    self.scan_segment(&plan, stored, &segment, xids, out, &mut stats)?;
                }
            }
        }
        Ok(Progress::Done { summary: None, stats })
    }

    /// Fills `self.judged` and `self.visible`; returns the transactions whose states are missing.
    fn judge(
        &mut self,
        stored: Stored<'_>,
        pages: Range<usize>,
        xids: &dyn XidLookup,
        stats: &mut ScanStats,
    ) -> Result<Vec<TransactionId>, UnitError> {
        self.judged.clear();
        self.visible.clear();
        let plan = Arc::clone(&self.plan);
        let mut visibility = Visibility::new(&plan.snapshot, xids);
        let mut needed = Vec::new();
        // Whole rows come from the page; without a predicate each page has to be made.
        let as_columns = !(matches!(plan.output(), Output::Rows) && plan.stages.is_empty()) && self.fits(stored.unit);
        let chunks = stored.unit.chunks();
        let is_excluded = |chunk| !plan.stages.is_empty() && !plan.may_match(&summary(&plan, stored.unit, chunk));
        let excluded: Vec<bool> = chunks.iter().map(is_excluded).collect();
        let mut number = chunks.partition_point(|chunk| chunk.pages().end <= pages.start);
        let mut next = pages.start;
        while next < pages.end {
            let page = next;
            next += 1;
            while chunks.get(number).is_some_and(|chunk| chunk.pages().end <= page) {
                number += 1;
            }
            let chunk = chunks.get(number).filter(|chunk| chunk.pages().contains(&page)).map(|_| number);
            if let Some(index) = chunk.filter(|chunk| as_columns && stored.unit.is_all_visible(*chunk))
                && (excluded[index] || !plan.snapshot.taken_during_recovery)
            {
                next = chunks[index].pages().end.min(pages.end);
                let bytes = ((next - page) * BLOCK_BYTES) as u64;
                if excluded[index] {
                    stats.uncompressed_bytes -= bytes;
                    stats.saved_by_storage_index_bytes += bytes;
                }
                let state = if excluded[index] { PageState::Skipped } else { PageState::AllVisible };
                self.judged.push(Judged { pages: page..next, chunk: index, state });
                continue;
            }
            let entry = &stored.unit.pages()[page];
            let state = match entry.kind {
                PageKind::Zero => PageState::Skipped,
                PageKind::Rows if entry.rows == 0 => PageState::Skipped,
                PageKind::Rows if as_columns && chunk.is_some_and(|chunk| excluded[chunk]) => {
                    stats.uncompressed_bytes -= BLOCK_BYTES as u64;
                    stats.saved_by_storage_index_bytes += BLOCK_BYTES as u64;
                    PageState::Skipped
                }
                PageKind::Rows if as_columns => {
                    if entry.flags & PD_ALL_VISIBLE != 0 && !plan.snapshot.taken_during_recovery {
                        PageState::AllVisible
                    } else {
                        self.judge_rows(stored, page, &mut visibility, &mut needed)?
                    }
                }
                _ => {
                    let mut bytes = [0; BLOCK_BYTES];
                    self.rebuilder.page(stored.unit, stored.source, page, &mut bytes)?;
                    let block = stored.first_block.wrapping_add(page as u32);
                    needed.extend(self.pages.needed_xids(block, &bytes, xids));
                    PageState::Rebuild
                }
            };
            if visibility.take_helped() && !matches!(state, PageState::Passthru(_)) {
                stats.blocks_helped_by_commit_cache += 1;
            }
            self.judged.push(Judged { pages: page..page + 1, chunk: chunk.unwrap_or(0), state });
        }
        needed.sort_unstable();
        needed.dedup();
        Ok(needed)
    }

    /// Whether the unit's tuples lie as the request says; columns may have been added since.
    fn fits(&self, unit: &Unit) -> bool {
        let attributes = &unit.shape().attributes;
        let lies = |(index, attribute): (usize, &unit::Attribute)| {
            self.plan.layout.attribute(index) == Some((attribute.width, attribute.align))
        };
        attributes.iter().enumerate().all(lies)
    }

    /// As the scanner's own rule for a page: all of its tuples, or those that the snapshot sees, or none of it.
    fn judge_rows(
        &mut self,
        stored: Stored<'_>,
        page: usize,
        visibility: &mut Visibility<'_>,
        needed: &mut Vec<TransactionId>,
    ) -> Result<PageState, UnitError> {
        let rows = stored.unit.page_rows(page);
        let (first_visible, first_needed) = (self.visible.len(), needed.len());
        self.headers.read(stored.unit, stored.source, page)?;
        for row in rows.clone() {
            let field = |field: HeaderField| self.headers.field(field)[row - rows.start];
            let tuple = TupleHeader {
                offset: 0,
                length: 0,
                xmin: field(HeaderField::Xmin) as u32,
                xmax: field(HeaderField::Xmax) as u32,
                infomask2: field(HeaderField::Infomask2) as u16,
                infomask: field(HeaderField::Infomask) as u16,
                data: 0,
            };
            match visibility.check(&tuple) {
                TupleVisibility::Visible => self.visible.push(row as u32),
                TupleVisibility::Invisible => {}
                TupleVisibility::Undecided => {
                    self.visible.truncate(first_visible);
                    needed.truncate(first_needed);
                    return Ok(PageState::Passthru(PassthruReason::Visibility));
                }
                TupleVisibility::NeedsXid(xid) if needed[first_needed..].last() == Some(&xid) => {}
                TupleVisibility::NeedsXid(xid) => needed.push(xid),
            }
        }
        if self.visible.len() - first_visible == rows.len() {
            self.visible.truncate(first_visible);
            return Ok(PageState::AllVisible);
        }
        Ok(PageState::Some { from: first_visible as u32, to: self.visible.len() as u32 })
    }

    fn scan_page(
        &mut self,
        stored: Stored<'_>,
        page: usize,
        xids: &dyn XidLookup,
        out: &mut ResultWriter,
        stats: &mut ScanStats,
    ) -> Result<(), UnitError> {
        let mut bytes = [0; BLOCK_BYTES];
        self.rebuilder.page(stored.unit, stored.source, page, &mut bytes)?;
        let block = stored.first_block.wrapping_add(page as u32);
        if let Progress::Done { stats: more, .. } = self.pages.scan(block, &bytes, xids, out, false) {
            stats.rows_scanned += more.rows_scanned;
            stats.rows_returned += more.rows_returned;
            stats.passthru_bytes += more.passthru_bytes;
            stats.passthru_blocks_visibility += more.passthru_blocks_visibility;
            stats.passthru_blocks_predicate += more.passthru_blocks_predicate;
            stats.passthru_blocks_page += more.passthru_blocks_page;
        }
        Ok(())
    }

    /// Scans the pages that have one of the rows in `self.passed`; the rows were counted.
    fn scan_passed_pages(
        &mut self,
        stored: Stored<'_>,
        segment: &Segment,
        xids: &dyn XidLookup,
        out: &mut ResultWriter,
        stats: &mut ScanStats,
    ) -> Result<(), UnitError> {
        let passed = std::mem::take(&mut self.passed);
        let (mut rest, rows_scanned) = (passed.as_slice(), stats.rows_scanned);
        for page in segment.pages.clone() {
            let end = stored.unit.page_rows(page).end - segment.first_row;
            let count = rest.partition_point(|row| (*row as usize) < end);
            rest = &rest[count..];
            if count > 0 {
                self.scan_page(stored, page, xids, out, stats)?;
            }
        }
        stats.rows_scanned = rows_scanned;
        self.passed = passed;
        Ok(())
    }

    /// What was judged from `first` on, as far as one chunk goes and no page is anything but rows.
    fn segment(&self, unit: &Unit, first: usize) -> Segment {
        let first_page = self.judged[first].pages.start;
        let chunk = self.judged[first].chunk;
        let most = unit.chunks()[chunk].pages().end;
        let is_of_it = |judged: &&Judged| judged.pages.start < most && judged.is_rows();
        let judged = first..first + self.judged[first..].iter().take_while(is_of_it).count();
        let parts = &self.judged[judged.clone()];
        let end = parts.last().map_or(first_page, |last| last.pages.end);
        let all_visible = parts.iter().all(|judged| judged.state == PageState::AllVisible);
        let (pages, whole) = (first_page..end, &unit.chunks()[chunk]);
        let rows = if pages == whole.pages() { whole.row_range() } else { rows(unit, &pages) };
        Segment { chunk, judged, pages, rows, first_row: whole.row_range().start, all_visible }
    }

    fn scan_segment(
        &mut self,
        plan: &Plan,
        stored: Stored<'_>,
        segment: &Segment,
        xids: &dyn XidLookup,
        out: &mut ResultWriter,
        stats: &mut ScanStats,
    ) -> Result<(), UnitError> {
        let visible = match segment.all_visible {
            true => segment.rows.len(),
            false => self.judged[segment.judged.clone()].iter().map(|judged| judged.visible(stored.unit)).sum(),
        };
        stats.rows_scanned += visible as u64;
        let counts = plan.aggregation().map_or(matches!(plan.output(), Output::Count), |wanted| wanted.counts_rows());
        if plan.stages.is_empty() && counts {
            self.count(plan, stored, segment, visible, out, stats);
            return Ok(());
        }
        self.columns.resize_with(plan.layout.attributes(), ColumnReader::default);
        if plan.stages.is_empty() && segment.all_visible && self.add_totals(plan, stored, segment, out, stats)? {
            return Ok(());
        }
        let Some(filters) = self.filters(plan, stored, segment)? else { return Ok(()) };
        let decided = filters.all_stages();
        let mut folding = match plan.aggregation() {
            Some(aggregation) if decided => Some(self.folding(plan, aggregation, stored, segment)?),
            _ => None,
        };
        self.passed.clear();
        let mut passed = 0;
        let mut marks = [0; BLOCK_ROWS];
        let local = segment.rows.start - segment.first_row..segment.rows.end - segment.first_row;
        let mut next = segment.judged.start;
        for block in local.start / BLOCK_ROWS..local.end.div_ceil(BLOCK_ROWS) {
            let at = Block { unit: stored.unit, source: stored.source, chunk: segment.chunk, block };
            let first = block * BLOCK_ROWS;
            let chunk_rows = stored.unit.chunks()[segment.chunk].row_range().len();
            let marks = &mut marks[..chunk_rows.saturating_sub(first).min(BLOCK_ROWS)];
            self.mark_visible(stored, segment, first, &mut next, marks);
            if !self.filter(&filters, at, marks)? {
                continue;
            }
            if counts && decided {
                passed += marked(marks);
            } else if let Some(folding) = &mut folding {
                self.fold_block(plan, folding, stored, segment, at, marks, out, stats)?;
            } else {
                let mut rows = std::mem::take(&mut self.passed);
                append_selected(marks, first as u16, &mut rows);
                self.passed = rows;
            }
        }
        if counts && decided {
            self.count(plan, stored, segment, passed, out, stats);
            return Ok(());
        }
        match folding {
            Some(_) => Ok(()),
            None if matches!(plan.output(), Output::Rows) => self.scan_passed_pages(stored, segment, xids, out, stats),
            None => self.scan_rows(plan, &filters, stored, segment, out, stats),
        }
    }

    /// Marks the visible rows of the segment in the block that begins with row `first` of the chunk. `next` is the
    /// first of those judged with a row in it, and becomes that of the next block.
    fn mark_visible(&self, stored: Stored<'_>, segment: &Segment, first: usize, next: &mut usize, marks: &mut [u8]) {
        let (start, end) = (segment.first_row + first, segment.first_row + first + marks.len());
        if segment.all_visible && segment.rows.start <= start && end <= segment.rows.end {
            marks.fill(1);
            return;
        }
        marks.fill(0);
        if segment.all_visible {
            marks[segment.rows.start.max(start) - start..segment.rows.end.min(end) - start].fill(1);
            return;
        }
        while let Some(judged) = self.judged[..segment.judged.end].get(*next) {
            let rows = rows(stored.unit, &judged.pages);
            if rows.start >= end {
                return;
            }
            match judged.state {
                PageState::Some { from, to } => {
                    for row in &self.visible[from as usize..to as usize] {
                        if let Some(mark) = (*row as usize).checked_sub(start).and_then(|row| marks.get_mut(row)) {
                            *mark = 1;
                        }
                    }
                }
                _ => marks[rows.start.max(start) - start..rows.end.clamp(start, end) - start].fill(1),
            }
            if rows.end > end {
                return;
            }
            *next += 1;
        }
    }

    /// Rows of which nothing but their number is wanted.
    fn count(
        &mut self,
        plan: &Plan,
        stored: Stored<'_>,
        segment: &Segment,
        rows: usize,
        out: &mut ResultWriter,
        stats: &mut ScanStats,
    ) {
        match (plan.aggregation(), &mut self.aggregator) {
            (Some(aggregation), Some(aggregator)) => {
                aggregator.count_rows(aggregation, rows as u64);
                stats.rows_aggregated += rows as u64;
            }
            _ => {
                stats.rows_returned += rows as u64;
                out.count(stored.first_block.wrapping_add(segment.pages.start as u32), rows as u64);
            }
        }
    }

    /// What of a range is still in groups leaves. Returns the number of groups, which count as rows returned.
    pub fn finish_range(&mut self, out: &mut ResultWriter) -> u64 {
        match (self.plan.aggregation(), &mut self.aggregator) {
            (Some(aggregation), Some(aggregator)) => aggregator.flush(aggregation, out),
            _ => 0,
        }
    }
}

/// Replaces `out` by the marked rows.
fn select(marks: &[u8], first: u16, out: &mut Vec<u16>) {
    out.clear();
    append_selected(marks, first, out);
}

/// Appends the marked rows; that of the first mark is `first`.
fn append_selected(marks: &[u8], first: u16, out: &mut Vec<u16>) {
    let start = out.len();
    out.resize(start + marks.len(), 0);
    let mut count = start;
    let mut append = |row: usize, mark: u8| {
        out[count] = first + row as u16;
        count += mark as usize;
    };
    let (eights, rest) = marks.as_chunks::<8>();
    for (index, eight) in eights.iter().enumerate() {
        // Mostly none of them, or one.
        match u64::from_le_bytes(*eight) {
            0 => {}
            word if word.is_power_of_two() => append(index * 8 + word.trailing_zeros() as usize / 8, 1),
            _ => eight.iter().enumerate().for_each(|(row, mark)| append(index * 8 + row, *mark)),
        }
    }
    rest.iter().enumerate().for_each(|(row, mark)| append(eights.len() * 8 + row, *mark));
    out.truncate(count);
}

/// Whether any row is marked.
fn any(marks: &[u8]) -> bool {
    marks.iter().fold(0, |any, mark| any | mark) != 0
}

/// What the directory knows of the columns that the plan would prune by.
fn summary(plan: &Plan, unit: &Unit, chunk: &unit::Chunk) -> RegionSummary {
    let columns = plan.summary.iter().filter_map(|column| {
        let index = column.number as usize - 1;
        let entry = chunk.attribute(index)?;
        let is_same = unit.shape().attributes[index].type_oid == column.type_oid;
        if !is_same || entry.missing > 0 || entry.rows() == 0 {
            return None;
        }
        Some(ColumnSummary {
            number: column.number,
            type_oid: column.type_oid,
            has_null: entry.nulls > 0,
            has_nonnull: (entry.nulls as usize) < entry.rows(),
            bounds: unit_bounds(entry, column.type_oid),
        })
    });
    RegionSummary::new(columns.collect())
}
