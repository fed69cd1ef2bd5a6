//! Scans compression units: the rows that [`crate::Scanner`] would find in their pages, in the same order, from the
//! encoded columns.
//!
//! Chunks whose bounds exclude the predicate are not read. Visibility is settled first, from the header series. Then
//! each predicate reads its columns: simple tests run on the encoded numbers and dictionary entries, others on datums of
//! the surviving rows; projected columns are read for what is left. A page that is not kept as rows, and a request that
//! asks for more than columns, go through the page itself: rebuilt and scanned as any heap page. Rows that a plan wants
//! aggregated come out as rows here, which is allowed: Postgres aggregates them.

use crate::batch::ResultWriter;
use crate::heap::{Chunk, MISSING, NULL, Slot, TupleHeader};
use crate::plan::{Output, Plan};
use crate::predicate::{EncodedTest, Input, Kernel};
use crate::scanner::{Progress, Scanner, passthru};
use crate::storage_index::{ColumnSummary, RegionSummary, unit_bounds};
use crate::top_n::TopN;
use crate::unit::{self, ColumnReader, HeaderField, HeaderReader, PageKind, Unit, UnitError, UnitSource};
use crate::visibility::{Verdict, Visibility, XidLookup};
use cellar_format::postgres::TransactionId;
use cellar_format::stats::ScanStats;
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::PassthruReason;
use std::ops::Range;
use std::sync::Arc;

/// Rows that are evaluated together: some blocks of each column, within the second-level cache.
const RUN_ROWS_MAX: usize = 4096;
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

/// Scratch memory for scans of one plan over units; one per thread.
pub struct UnitScanner {
    plan: Arc<Plan>,
    pages: Scanner,
    rebuilder: unit::Rebuilder,
    states: Vec<PageState>,
    /// Rows that the snapshot sees, of pages where it does not see all.
    visible: Vec<u32>,
    headers: HeaderReader,
    top_n: Option<TopN>,
    chunk: Chunk,
    /// The datums of the run's rows; none starts at [`NULL`] or [`MISSING`].
    datums: Vec<u8>,
    located: Vec<Slot>,
    columns: Vec<ColumnReader>,
    selected: Vec<u16>,
    next: Vec<u16>,
    undecided: Vec<u16>,
    /// Rows in which a piece of text was found.
    found: Vec<u16>,
    candidates: Vec<u16>,
}

/// Rows of a chunk that are evaluated together.
struct Run {
    chunk: usize,
    pages: Range<usize>,
    /// As numbers in the unit.
    rows: Range<usize>,
}

/// A unit and what it is read from.
#[derive(Clone, Copy)]
struct Stored<'a> {
    unit: &'a Unit,
    source: &'a dyn UnitSource,
    first_block: u32,
}

impl UnitScanner {
    pub fn new(plan: Arc<Plan>) -> Self {
        Self {
            pages: Scanner::of_rows(Arc::clone(&plan)),
            top_n: plan.top_n().map(TopN::new),
            plan,
            rebuilder: unit::Rebuilder::new(),
            states: Vec::new(),
            visible: Vec::new(),
            headers: HeaderReader::default(),
            chunk: Chunk::default(),
            datums: Vec::new(),
            located: Vec::new(),
            columns: Vec::new(),
            selected: Vec::new(),
            next: Vec::new(),
            undecided: Vec::new(),
            found: Vec::new(),
            candidates: Vec::new(),
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
        let mut page = pages.start;
        while page < pages.end {
            match self.states[page - pages.start] {
                PageState::Skipped => page += 1,
                PageState::Passthru(reason) => {
                    passthru(out, first_block, page, reason, &mut stats);
                    page += 1;
                }
                PageState::Rebuild => {
                    self.scan_page(stored, page, xids, out, &mut stats)?;
                    page += 1;
                }
                PageState::AllVisible | PageState::Some { .. } => {
                    let run = self.run(unit, &pages, page);
                    page = run.pages.end;
                    self.scan_run(&plan, stored, &run, pages.start, out, &mut stats)?;
                }
            }
        }
        Ok(Progress::Done { summary: None, stats })
    }

    /// Fills `self.states` and `self.visible`; returns the transactions whose states are missing.
    fn judge(
        &mut self,
        stored: Stored<'_>,
        pages: Range<usize>,
        xids: &dyn XidLookup,
        stats: &mut ScanStats,
    ) -> Result<Vec<TransactionId>, UnitError> {
        self.states.clear();
        self.visible.clear();
        let plan = Arc::clone(&self.plan);
        let mut visibility = Visibility::new(&plan.snapshot, xids);
        let mut needed = Vec::new();
        let as_columns = !matches!(plan.output(), Output::Rows) && self.fits(stored.unit);
        let excluded: Vec<bool> =
            stored.unit.chunks().iter().map(|chunk| !plan.may_match(&summary(&plan, stored.unit, chunk))).collect();
        for page in pages {
            let entry = &stored.unit.pages()[page];
            let chunk = stored.unit.chunk_index(page);
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
            self.states.push(state);
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
                Verdict::Visible => self.visible.push(row as u32),
                Verdict::Invisible => {}
                Verdict::Undecided => {
                    self.visible.truncate(first_visible);
                    needed.truncate(first_needed);
                    return Ok(PageState::Passthru(PassthruReason::Visibility));
                }
                Verdict::Ask(xid) if needed[first_needed..].last() == Some(&xid) => {}
                Verdict::Ask(xid) => needed.push(xid),
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

    /// The pages from `first` on that are evaluated together; all of one chunk.
    fn run(&self, unit: &Unit, pages: &Range<usize>, first: usize) -> Run {
        let chunk = unit.chunk_index(first).unwrap_or(0);
        let rows = unit.page_rows(first);
        let (mut end, mut rows_end) = (first + 1, rows.end);
        while end < pages.end.min(unit.chunks()[chunk].pages().end) {
            let belongs = matches!(self.states[end - pages.start], PageState::AllVisible | PageState::Some { .. });
            let next = unit.page_rows(end);
            if !belongs || next.end - rows.start > RUN_ROWS_MAX {
                break;
            }
            (end, rows_end) = (end + 1, next.end);
        }
        Run { chunk, pages: first..end, rows: rows.start..rows_end }
    }

    fn scan_run(
        &mut self,
        plan: &Plan,
        stored: Stored<'_>,
        run: &Run,
        first_page: usize,
        out: &mut ResultWriter,
        stats: &mut ScanStats,
    ) -> Result<(), UnitError> {
        if plan.stages.is_empty() && matches!(plan.output(), Output::Count) {
            self.count(stored, run, first_page, out, stats);
            return Ok(());
        }
        self.chunk.clear();
        self.selected.clear();
        self.located.clear();
        self.datums.clear();
        self.datums.resize(8, 0);
        for page in run.pages.clone() {
            let rows = stored.unit.page_rows(page);
            let state = self.states[page - first_page];
            let first = rows.start - run.rows.start;
            self.chunk.push_located(page as u16, (rows.end - run.rows.start) as u32);
            match state {
                PageState::Some { from, to } => {
                    let visible = &self.visible[from as usize..to as usize];
                    self.selected.extend(visible.iter().map(|row| (*row as usize - run.rows.start) as u16));
                }
                _ => self.selected.extend(first as u16..(first + rows.len()) as u16),
            }
        }
        self.chunk.prepare(plan.layout.slots());
        self.columns.resize_with(plan.layout.attributes(), ColumnReader::default);
        stats.rows_scanned += self.selected.len() as u64;
        let mut passed: Vec<u16> = Vec::new();
        for stage in &plan.stages {
            if self.selected.is_empty() {
                break;
            }
            self.next.clear();
            if !self.test_encoded(plan, stored, run, &stage.kernel)? {
                for slot in &stage.slots {
                    let attribute = plan.columns.get(*slot as usize).and_then(Option::as_ref).map(|c| c.attribute);
                    if let Some(attribute) = attribute {
                        self.locate(stored, run, *slot, attribute)?;
                    }
                }
                let input = Input { pages: &self.datums, chunk: &self.chunk, columns: &plan.columns, in_pages: false };
                stage.kernel.run(input, &self.selected, &mut self.next, &mut self.undecided);
            }
            std::mem::swap(&mut self.selected, &mut self.next);
            if !self.undecided.is_empty() {
                passed.extend(self.undecided.drain(..).map(|row| self.chunk.page(row)));
                passed.sort_unstable();
                passed.dedup();
                let chunk = &self.chunk;
                self.selected.retain(|row| passed.binary_search(&chunk.page(*row)).is_err());
            }
        }
        if let Some(wanted) = plan.top_n() {
            for (slot, attribute) in wanted.columns(&plan.columns) {
                self.locate(stored, run, slot, attribute)?;
            }
            let input = Input { pages: &self.datums, chunk: &self.chunk, columns: &plan.columns, in_pages: false };
            if let Some(top_n) = &mut self.top_n {
                top_n.retain(wanted, input, &mut self.selected);
            }
        }
        if let Output::Columns(columns) = plan.output()
            && !self.selected.is_empty()
        {
            for ((slot, _), number) in columns.iter().zip(plan.projection()) {
                self.locate(stored, run, *slot, *number as usize - 1)?;
            }
        }
        // The passed-through blocks in their places among the rows.
        let mut rows = self.selected.as_slice();
        for page in passed {
            let before = rows.partition_point(|row| self.chunk.page(*row) < page);
            let (now, later) = rows.split_at(before);
            stats.rows_returned += now.len() as u64;
            out.append(plan, &self.datums, stored.first_block, &self.chunk, now);
            passthru(out, stored.first_block, page as usize, PassthruReason::Predicate, stats);
            rows = later;
        }
        stats.rows_returned += rows.len() as u64;
        out.append(plan, &self.datums, stored.first_block, &self.chunk, rows);
        Ok(())
    }

    /// Rows without columns and without predicates.
    fn count(&self, stored: Stored<'_>, run: &Run, first_page: usize, out: &mut ResultWriter, stats: &mut ScanStats) {
        let visible = |page: usize| match self.states[page - first_page] {
            PageState::Some { from, to } => (to - from) as usize,
            _ => stored.unit.page_rows(page).len(),
        };
        let rows = run.pages.clone().map(visible).sum::<usize>() as u64;
        stats.rows_scanned += rows;
        stats.rows_returned += rows;
        out.count(stored.first_block.wrapping_add(run.pages.start as u32), rows);
    }

    /// Evaluates the kernel on encoded values into `self.next`; false: it is none that can be.
    fn test_encoded(&mut self, plan: &Plan, stored: Stored<'_>, run: &Run, kernel: &Kernel) -> Result<bool, UnitError> {
        let Kernel::Column { slot, test } = kernel else { return Ok(false) };
        let Some(column) = plan.columns.get(*slot as usize).and_then(Option::as_ref) else { return Ok(false) };
        let Some(chunk) = stored.unit.chunks()[run.chunk].attribute(column.attribute) else { return Ok(false) };
        let is_same = stored.unit.shape().attributes[column.attribute].type_oid == column.type_oid;
        if !is_same || chunk.exceptions() > 0 || chunk.missing > 0 {
            return Ok(false);
        }
        let reader = &mut self.columns[column.attribute];
        let rows = self.selected.as_slice();
        match test.encoded(column, chunk.numeric_scale()) {
            EncodedTest::Int(range) if chunk.is_number() => {
                reader.read(stored.unit, stored.source, run.chunk, column.attribute, run.rows.clone())?;
                let ints = reader.ints();
                match chunk.nulls {
                    0 => select(rows, &mut self.next, |row| range.passes(ints[row])),
                    _ => select(rows, &mut self.next, |row| range.passes(ints[row]) && !reader.is_null(row)),
                }
            }
            EncodedTest::Bytes if chunk.is_payload() => {
                let unit = stored.unit;
                if let Some(table) = reader
                    .dictionary(unit, stored.source, run.chunk, column.attribute, |entry| test.passes_bytes(entry))?
                {
                    if table.contains(&None) {
                        return Ok(false);
                    }
                    reader.read_codes(unit, stored.source, run.chunk, column.attribute, run.rows.clone())?;
                    let codes = reader.ints();
                    let passes = |code: i64| table.get(code as usize) == Some(&Some(true));
                    select(rows, &mut self.next, |row| passes(codes[row]) && !reader.is_null(row));
                } else {
                    reader.read(unit, stored.source, run.chunk, column.attribute, run.rows.clone())?;
                    if let Some(finder) = test.landmark() {
                        // One search over all strings tells most of them apart.
                        reader.find(finder, &mut self.found);
                        let found = self.found.as_slice();
                        self.candidates.clear();
                        let mut at = 0;
                        for row in rows {
                            while found.get(at).is_some_and(|found| found < row) {
                                at += 1;
                            }
                            if found.get(at) == Some(row) {
                                self.candidates.push(*row);
                            }
                        }
                    }
                    let rows = if test.landmark().is_some() { self.candidates.as_slice() } else { rows };
                    let mut known = true;
                    select(rows, &mut self.next, |row| {
                        if reader.is_null(row) {
                            return false;
                        }
                        let passes = test.passes_bytes(reader.string(row));
                        known &= passes.is_some();
                        passes == Some(true)
                    });
                    if !known {
                        self.next.clear();
                        return Ok(false);
                    }
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Puts the datums of the selected rows where kernels and batches look for them.
    fn locate(&mut self, stored: Stored<'_>, run: &Run, slot: Slot, attribute: usize) -> Result<(), UnitError> {
        if self.located.contains(&slot) {
            return Ok(());
        }
        self.located.push(slot);
        let locations = self.chunk.locations_mut(slot);
        let Some(entry) = stored.unit.chunks()[run.chunk].attribute(attribute) else {
            self.selected.iter().for_each(|row| locations[*row as usize] = MISSING);
            return Ok(());
        };
        let reader = &mut self.columns[attribute];
        reader.read(stored.unit, stored.source, run.chunk, attribute, run.rows.clone())?;
        if entry.missing > 0 {
            reader.read_natts(stored.unit, stored.source, run.chunk, run.rows.clone())?;
        }
        let attribute_shape = &stored.unit.shape().attributes[attribute];
        if entry.missing == 0
            && entry.nulls == 0
            && reader.push_numbers(attribute_shape, &self.selected, locations, &mut self.datums)
        {
            return Ok(());
        }
        for row in &self.selected {
            let row = *row as usize;
            locations[row] = if entry.missing > 0 && reader.natts(row) <= attribute {
                MISSING
            } else if reader.is_null(row) {
                NULL
            } else {
                reader.push_datum(attribute_shape, row, &mut self.datums)?
            };
        }
        Ok(())
    }
}

#[inline(always)]
fn select(selected: &[u16], out: &mut Vec<u16>, mut passes: impl FnMut(usize) -> bool) {
    let start = out.len();
    out.resize(start + selected.len(), 0);
    let mut count = start;
    for &row in selected {
        out[count] = row;
        count += usize::from(passes(row as usize));
    }
    out.truncate(count);
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
