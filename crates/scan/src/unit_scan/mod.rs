//! Scans compression units: evaluates the plan on encoded columns. The result has the same rows in the same order as a scan of the
//! unit's pages by [`crate::Scanner`].
//!
//! 1. [`pages`] classifies pages: chunks whose bounds exclude the predicate are skipped, and tuple headers decide visibility.
//! 2. [`encoded_predicates`] evaluates predicates on encoded values, column by column, a block at a time.
//! 3. The remaining rows are joined and aggregated in encoded form ([`fold`], [`look_up`]; all rows of a span at once: [`totals`]). Where other predicates,
//!    other aggregates or result batches need datums, [`rows`] decodes the values. Before that, a top-N drops rows by their encoded
//!    first key ([`first_rows`]).
//!
//! Pages that are not stored as rows, and requests for whole rows, go through rebuilt pages and the heap scanner.

mod encoded_predicates;
mod first_rows;
mod fold;
mod look_up;
mod marks;
mod pages;
mod rows;
mod totals;

use crate::aggregate::Aggregator;
use crate::batch::{Output, ResultWriter};
use crate::heap::{PageRows, Slot};
use crate::memory::Account;
use crate::plan::Plan;
use crate::predicate::Column;
use crate::scanner::{Progress, Scanner, passthru};
use crate::top_n::TopN;
use crate::unit::{AttributeChunk, BLOCK_ROWS, ChunkRef, ColumnReader, HeaderReader, Rebuilder, Unit, UnitError};
use crate::vectors::marked;
use crate::visibility::XidLookup;
use cellar_format::ByteSource;
use cellar_format::stats::ScanStats;
use cellar_format::units::BLOCK_BYTES;
use first_rows::FirstKeyTest;
use look_up::Joins;
use marks::append_selected;
pub use pages::unit_summary;
use pages::{PageRun, PageState, rows_of};
use std::ops::Range;
use std::sync::Arc;

/// Scans compression units for one plan. Each thread needs a separate scanner.
pub struct UnitScanner {
    plan: Arc<Plan>,
    /// Scans rebuilt pages.
    page_scanner: Scanner,
    rebuilder: Rebuilder,
    page_runs: Vec<PageRun>,
    /// The visible rows of pages in state `SomeVisible`, as numbers in the unit.
    visible: Vec<u32>,
    headers: HeaderReader,
    /// By attribute.
    columns: Vec<ColumnReader>,
    /// Rows of the chunk that passed the encoded predicates.
    passed: Vec<u16>,
    /// Datums of the current row run, and where each slot's datums are. No datum starts at [`NULL`](crate::heap::NULL) or
    /// [`MISSING`](crate::heap::MISSING).
    datums: Vec<u8>,
    rows: PageRows,
    /// Slots of the current row run whose datums are located.
    located: Vec<Slot>,
    /// Rows of the current row run: selected, selected by the next stage, and undecided.
    selected: Vec<u16>,
    next: Vec<u16>,
    undecided: Vec<u16>,
    joins: Joins,
    aggregator: Option<Aggregator>,
    top_n: Option<TopN>,
}

/// The parameters of one [`UnitScanner::scan`].
#[derive(Clone, Copy)]
struct Scan<'a> {
    plan: &'a Plan,
    unit: &'a Unit,
    source: &'a dyn ByteSource,
    /// The block number of the unit's first page.
    first_block: u32,
    xids: &'a dyn XidLookup,
}

impl<'a> Scan<'a> {
    fn chunk(&self, number: usize) -> ChunkRef<'a> {
        ChunkRef { unit: self.unit, source: self.source, number }
    }

    /// The position of the lookup table that has a column with this slot.
    fn lookup_table(&self, slot: Slot) -> Option<usize> {
        self.plan.lookups.iter().position(|lookup| lookup.column(slot).is_some())
    }

    fn block(&self, page: usize) -> u32 {
        self.first_block.wrapping_add(page as u32)
    }

    /// A slot's column and its entry in a chunk; None when the type changed, some rows lack the attribute, or the column is one of a
    /// lookup table.
    fn column(&self, chunk: usize, slot: Slot) -> Option<(&'a Column, &'a AttributeChunk)> {
        let column = self.plan.columns.get(slot as usize)?.as_ref().filter(|column| column.looked_up.is_none())?;
        let attribute = self.unit.chunks()[chunk].attribute(column.attribute)?;
        let is_same = self.unit.shape().attributes[column.attribute].is_of_type(column.type_oid);
        (is_same && attribute.missing == 0).then_some((column, attribute))
    }
}

/// Where the results of a scan are collected.
struct Results<'a> {
    writer: &'a mut ResultWriter,
    stats: ScanStats,
}

/// Consecutive pages of one chunk that are scanned column by column.
struct RowSpan {
    chunk: usize,
    /// The pages' positions in `page_runs`.
    runs: Range<usize>,
    pages: Range<usize>,
    /// The pages' rows, as numbers in the unit.
    rows: Range<usize>,
    /// The first row of the chunk.
    chunk_start: usize,
    all_visible: bool,
}

impl RowSpan {
    /// The rows, as numbers in the chunk.
    fn chunk_rows(&self) -> Range<usize> {
        self.rows.start - self.chunk_start..self.rows.end - self.chunk_start
    }
}

impl UnitScanner {
    /// A scanner whose groups and top-N list have no limit besides their fixed ones.
    pub fn new(plan: Arc<Plan>) -> Self {
        Self::with_memory(plan, &Account::unlimited())
    }

    /// `memory` is the account of the memory of groups and of the top-N lists.
    pub fn with_memory(plan: Arc<Plan>, memory: &Arc<Account>) -> Self {
        let aggregator = plan.aggregation().map(|aggregation| Aggregator::new(aggregation, memory));
        Self {
            page_scanner: Scanner::returning_rows(Arc::clone(&plan), memory),
            top_n: plan.top_n().map(|_| TopN::new(memory)),
            plan,
            rebuilder: Rebuilder::new(),
            page_runs: Vec::new(),
            visible: Vec::new(),
            headers: HeaderReader::default(),
            columns: Vec::new(),
            passed: Vec::new(),
            datums: Vec::new(),
            rows: PageRows::default(),
            located: Vec::new(),
            selected: Vec::new(),
            next: Vec::new(),
            undecided: Vec::new(),
            joins: Joins::default(),
            aggregator,
        }
    }

    /// Returns the memory of the scanner's buffers in bytes, without groups and top-N lists.
    pub fn memory_bytes(&self) -> usize {
        let columns: usize = self.columns.iter().map(ColumnReader::memory_bytes).sum();
        let rows = self.visible.capacity() * 4 + self.passed.capacity() * 2 + self.datums.capacity();
        columns + rows + self.rows.memory_bytes() + self.page_scanner.memory_bytes() + self.rebuilder.memory_bytes()
    }

    /// Scans pages of a unit whose first page is block `first_block`. The caller excludes superseded pages.
    ///
    /// An error means that the unit is damaged or cannot be read; results written before the error are valid. Statistics count the
    /// pages that chunk bounds exclude as bytes saved by the storage index.
    pub fn scan(
        &mut self,
        first_block: u32,
        unit: &Unit,
        source: &dyn ByteSource,
        pages: Range<usize>,
        xids: &dyn XidLookup,
        out: &mut ResultWriter,
    ) -> Result<Progress, UnitError> {
        let plan = Arc::clone(&self.plan);
        let scan = Scan { plan: &plan, unit, source, first_block, xids };
        let pages = pages.start.min(unit.pages().len())..pages.end.min(unit.pages().len());
        let stats = ScanStats { uncompressed_bytes: (pages.len() * BLOCK_BYTES) as u64, ..ScanStats::default() };
        let mut results = Results { writer: out, stats };
        let needed = self.classify_pages(scan, pages, &mut results.stats)?;
        if !needed.is_empty() {
            return Ok(Progress::NeedXids(needed));
        }
        let mut at = 0;
        while let Some(run) = self.page_runs.get(at) {
            let page = run.pages.start;
            at += 1;
            match run.state {
                PageState::Skipped => {}
                PageState::Passthru(reason) => {
                    passthru(results.writer, first_block, page, reason, &mut results.stats);
                }
                PageState::Rebuild => self.scan_page(scan, page, &mut results)?,
                PageState::AllVisible | PageState::SomeVisible { .. } => {
                    let span = self.row_span(unit, at - 1);
                    at = span.runs.end;
                    self.scan_span(scan, &span, &mut results)?;
                }
            }
        }
        Ok(Progress::Done { summary: None, stats: results.stats })
    }

    /// Writes the groups that are still in memory at the end of a range. Returns their number; groups count as rows returned.
    pub fn finish_range(&mut self, out: &mut ResultWriter) -> u64 {
        match (self.plan.aggregation(), &mut self.aggregator) {
            (Some(aggregation), Some(aggregator)) => aggregator.finish(aggregation, out),
            _ => 0,
        }
    }

    /// The groups of the range so far. None: the plan has no aggregation.
    pub fn aggregator(&mut self) -> Option<&mut Aggregator> {
        self.aggregator.as_mut()
    }

    /// Rebuilds a page and scans the page as a heap page.
    fn scan_page(&mut self, scan: Scan<'_>, page: usize, results: &mut Results<'_>) -> Result<(), UnitError> {
        let mut bytes = [0; BLOCK_BYTES];
        self.rebuilder.page(scan.unit, scan.source, page, &mut bytes)?;
        let scanned = self.page_scanner.scan(scan.block(page), &bytes, scan.xids, results.writer, false);
        if let Progress::Done { stats: more, .. } = scanned {
            let stats = &mut results.stats;
            stats.rows_scanned += more.rows_scanned;
            stats.rows_returned += more.rows_returned;
            stats.passthru_bytes += more.passthru_bytes;
            stats.passthru_blocks_visibility += more.passthru_blocks_visibility;
            stats.passthru_blocks_predicate += more.passthru_blocks_predicate;
            stats.passthru_blocks_page += more.passthru_blocks_page;
        }
        Ok(())
    }

    /// Scans the pages that contain a row of `self.passed`. The span's rows are already counted.
    fn scan_passed_pages(
        &mut self,
        scan: Scan<'_>,
        span: &RowSpan,
        results: &mut Results<'_>,
    ) -> Result<(), UnitError> {
        let passed = std::mem::take(&mut self.passed);
        let (mut rest, rows_scanned) = (passed.as_slice(), results.stats.rows_scanned);
        for page in span.pages.clone() {
            let end = scan.unit.page_rows(page).end - span.chunk_start;
            let count = rest.partition_point(|row| (*row as usize) < end);
            rest = &rest[count..];
            if count > 0 {
                self.scan_page(scan, page, results)?;
            }
        }
        results.stats.rows_scanned = rows_scanned;
        self.passed = passed;
        Ok(())
    }

    /// The longest span of one chunk's pages that starts with page run `first`.
    fn row_span(&self, unit: &Unit, first: usize) -> RowSpan {
        let first_page = self.page_runs[first].pages.start;
        let chunk = self.page_runs[first].chunk;
        let entry = &unit.chunks()[chunk];
        let is_in_span = |run: &&PageRun| run.pages.start < entry.pages().end && run.is_columnar();
        let runs = first..first + self.page_runs[first..].iter().take_while(is_in_span).count();
        let page_runs = &self.page_runs[runs.clone()];
        let pages = first_page..page_runs.last().map_or(first_page, |last| last.pages.end);
        let all_visible = page_runs.iter().all(|run| run.state == PageState::AllVisible);
        let rows = if pages == entry.pages() { entry.row_range() } else { rows_of(unit, &pages) };
        RowSpan { chunk, runs, pages, rows, chunk_start: entry.row_range().start, all_visible }
    }

    fn scan_span(&mut self, scan: Scan<'_>, span: &RowSpan, results: &mut Results<'_>) -> Result<(), UnitError> {
        let plan = scan.plan;
        let visible = match span.all_visible {
            true => span.rows.len(),
            false => self.page_runs[span.runs.clone()].iter().map(|run| run.visible_rows(scan.unit)).sum(),
        };
        results.stats.rows_scanned += visible as u64;
        let counts = plan.aggregation().map_or(matches!(plan.output(), Output::Count), |wanted| wanted.counts_rows())
            && plan.lookups.is_empty();
        if plan.stages.is_empty() && counts {
            self.count(scan, span, visible, results);
            return Ok(());
        }
        self.columns.resize_with(plan.layout.attributes(), ColumnReader::default);
        let all_rows = plan.stages.is_empty() && plan.lookups.is_empty();
        if all_rows && span.all_visible && self.add_totals(scan, span, results)? {
            return Ok(());
        }
        let Some(predicates) = self.encoded_predicates(scan, span)? else { return Ok(()) };
        let is_decided = predicates.decide_all_stages();
        let first_key = match self.first_key_test(scan, &predicates, span)? {
            FirstKeyTest::None => None,
            FirstKeyTest::NoRowPasses => return Ok(()),
            FirstKeyTest::Column(column) => Some(column),
        };
        // Rejected rows are returned as tuples, which a unit does not have: the rows of rebuilt pages are returned.
        let returns_tuples = matches!(plan.output(), Output::Rows);
        let mut fold = match plan.aggregation() {
            Some(aggregation) if is_decided && !returns_tuples && self.has_encoded_keys(scan, span) => {
                Some(self.fold_plan(scan, aggregation, span)?)
            }
            _ => None,
        };
        self.passed.clear();
        let mut passed = 0;
        let mut marks = [0; BLOCK_ROWS];
        let rows = span.chunk_rows();
        let chunk_rows = scan.unit.chunks()[span.chunk].row_range().len();
        let mut next = span.runs.start;
        for block in rows.start / BLOCK_ROWS..rows.end.div_ceil(BLOCK_ROWS) {
            let at = scan.chunk(span.chunk).block(block);
            let first = block * BLOCK_ROWS;
            let marks = &mut marks[..chunk_rows.saturating_sub(first).min(BLOCK_ROWS)];
            self.mark_visible(scan, span, first, &mut next, marks);
            let (cheap_key, late_key) = match &first_key {
                Some(key) if key.is_cheap() => (Some(key), None),
                key => (None, key.as_ref()),
            };
            if let Some(key) = cheap_key {
                self.retain_first(key, at, marks)?;
            }
            if !self.apply_predicates(&predicates, at, marks)? {
                continue;
            }
            if counts && is_decided {
                passed += marked(marks);
            } else if let Some(fold) = &mut fold {
                if plan.lookups.is_empty() {
                    self.fold_block(scan, fold, span, at, marks, results)?;
                } else {
                    self.fold_joined_block(scan, fold, span, at, marks, results)?;
                }
            } else {
                if let Some(key) = late_key {
                    self.retain_first(key, at, marks)?;
                }
                append_selected(marks, first as u16, &mut self.passed);
            }
        }
        if let Some(key) = &first_key {
            self.keep_first(scan, key, span)?;
        }
        if counts && is_decided {
            self.count(scan, span, passed, results);
            return Ok(());
        }
        match fold {
            Some(_) => Ok(()),
            None if returns_tuples => self.scan_passed_pages(scan, span, results),
            None => self.scan_rows(scan, &predicates, span, results),
        }
    }

    /// Marks the visible rows of the span in the block that begins with row `first` of the chunk. `next` is the first page run
    /// with a row in this block; it advances to that of the next block.
    fn mark_visible(&self, scan: Scan<'_>, span: &RowSpan, first: usize, next: &mut usize, marks: &mut [u8]) {
        let (start, end) = (span.chunk_start + first, span.chunk_start + first + marks.len());
        if span.all_visible && span.rows.start <= start && end <= span.rows.end {
            marks.fill(1);
            return;
        }
        marks.fill(0);
        if span.all_visible {
            marks[span.rows.start.max(start) - start..span.rows.end.min(end) - start].fill(1);
            return;
        }
        while let Some(run) = self.page_runs[..span.runs.end].get(*next) {
            let rows = rows_of(scan.unit, &run.pages);
            if rows.start >= end {
                return;
            }
            match run.state {
                PageState::SomeVisible { from, to } => {
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

    /// Adds `rows` rows to a result that is only their number.
    fn count(&mut self, scan: Scan<'_>, span: &RowSpan, rows: usize, results: &mut Results<'_>) {
        match (scan.plan.aggregation(), &mut self.aggregator) {
            (Some(aggregation), Some(aggregator)) => {
                aggregator.count_rows(aggregation, rows as u64);
                results.stats.rows_aggregated += rows as u64;
            }
            _ => {
                results.stats.rows_returned += rows as u64;
                results.writer.count(scan.block(span.pages.start), rows as u64);
            }
        }
    }
}
