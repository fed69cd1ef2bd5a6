//! Rows of a unit as datums: for predicates that encoded values do not decide, and for what leaves the cell.

use super::filter::Filters;
use super::{Segment, Stored, UnitScanner};
use crate::batch::{Output, ResultWriter};
use crate::heap::{MISSING, NULL, Slot};
use crate::plan::Plan;
use crate::predicate::RowSet;
use crate::scanner::passthru;
use crate::unit::{BLOCK_ROWS, Block, ColumnReader, UnitError};
use cellar_format::stats::ScanStats;
use cellar_format::wire::PassthruReason;
use std::ops::Range;

/// Rows that are evaluated together: some blocks of each column, within the second-level cache.
const RUN_ROWS_MAX: usize = 4096;
/// Of fewer rows than one in so many, each is read by itself.
const SPARSE_SHARE: usize = 64;

/// Rows of a chunk that are evaluated together.
pub(super) struct Run {
    chunk: usize,
    /// Those that the rows lie in.
    pages: Range<usize>,
    /// As numbers in the unit.
    rows: Range<usize>,
}

impl UnitScanner {
    /// Evaluates what the filters left open on `self.passed`, and puts the rest out.
    pub(super) fn scan_rows(
        &mut self,
        plan: &Plan,
        filters: &Filters<'_>,
        stored: Stored<'_>,
        segment: &Segment,
        out: &mut ResultWriter,
        stats: &mut ScanStats,
    ) -> Result<(), UnitError> {
        let passed = std::mem::take(&mut self.passed);
        let mut rest = passed.as_slice();
        let mut page = segment.pages.start;
        while let Some(first) = rest.first() {
            // Whole pages, since a page may have to be passed through.
            let first = segment.first_row + *first as usize;
            while stored.unit.page_rows(page).end <= first {
                page += 1;
            }
            let (start, mut end) = (page, page + 1);
            let rows_start = stored.unit.page_rows(page).start;
            while end < segment.pages.end && stored.unit.page_rows(end).end - rows_start <= RUN_ROWS_MAX {
                end += 1;
            }
            let rows = rows_start..stored.unit.page_rows(end - 1).end;
            let count = rest.partition_point(|row| segment.first_row + (*row as usize) < rows.end);
            let (now, later) = rest.split_at(count);
            let base = rows.start - segment.first_row;
            self.selected.clear();
            self.selected.extend(now.iter().map(|row| (*row as usize - base) as u16));
            let run = Run { chunk: segment.chunk, pages: start..end, rows };
            self.scan_run(plan, filters, stored, &run, out, stats)?;
            (rest, page) = (later, end);
        }
        self.passed = passed;
        Ok(())
    }

    /// The rows of a block, as far as its segment has them.
    pub(super) fn block_run(&self, stored: Stored<'_>, segment: &Segment, at: Block<'_>) -> Run {
        let start = segment.first_row + at.block * BLOCK_ROWS;
        let end = (start + BLOCK_ROWS).min(stored.unit.chunks()[segment.chunk].row_range().end);
        Run { chunk: segment.chunk, pages: segment.pages.clone(), rows: start..end }
    }

    /// Forgets the datums of the run before.
    pub(super) fn start_run(&mut self, plan: &Plan) {
        self.chunk.clear();
        self.located.clear();
        self.datums.clear();
        self.datums.resize(8, 0);
        self.chunk.prepare(plan.layout.slots());
    }

    fn scan_run(
        &mut self,
        plan: &Plan,
        filters: &Filters<'_>,
        stored: Stored<'_>,
        run: &Run,
        out: &mut ResultWriter,
        stats: &mut ScanStats,
    ) -> Result<(), UnitError> {
        self.start_run(plan);
        self.number_pages(stored, run);
        let mut passed: Vec<u16> = Vec::new();
        for (stage, _) in plan.stages.iter().zip(&filters.decided).filter(|(_, decided)| !**decided) {
            if self.selected.is_empty() {
                break;
            }
            self.next.clear();
            self.locate_slots(plan, stored, run, &stage.slots)?;
            let input = RowSet::of_datums(&self.datums, &self.chunk, &plan.columns, false);
            stage.kernel.run(input, &self.selected, &mut self.next, &mut self.undecided);
            std::mem::swap(&mut self.selected, &mut self.next);
            if !self.undecided.is_empty() {
                passed.extend(self.undecided.drain(..).map(|row| self.chunk.page(row)));
                passed.sort_unstable();
                passed.dedup();
                let chunk = &self.chunk;
                self.selected.retain(|row| passed.binary_search(&chunk.page(*row)).is_err());
            }
        }
        if let Some(wanted) = plan.top_n()
            && !self.selected.is_empty()
        {
            for (slot, attribute) in wanted.columns(&plan.columns) {
                self.locate(stored, run, slot, attribute)?;
            }
            let input = RowSet::of_datums(&self.datums, &self.chunk, &plan.columns, false);
            if let Some(top_n) = &mut self.top_n {
                top_n.retain(wanted, input, &mut self.selected);
            }
        }
        if let Some(aggregation) = plan.aggregation()
            && !self.selected.is_empty()
        {
            let slots = aggregation.datums(|_, _| false, &mut Vec::new());
            self.locate_slots(plan, stored, run, &slots)?;
            self.aggregate(plan, out, stats);
        }
        self.emit(plan, stored, run, &passed, out, stats)
    }

    /// Aggregates `self.selected` by datums, which are there; those that Postgres has to aggregate are put out.
    pub(super) fn aggregate_run(
        &mut self,
        plan: &Plan,
        stored: Stored<'_>,
        run: &Run,
        out: &mut ResultWriter,
        stats: &mut ScanStats,
    ) -> Result<(), UnitError> {
        self.aggregate(plan, out, stats);
        self.number_pages(stored, run);
        self.emit(plan, stored, run, &[], out, stats)
    }

    /// Folds the selected rows into groups; those that cannot be stay selected.
    fn aggregate(&mut self, plan: &Plan, out: &mut ResultWriter, stats: &mut ScanStats) {
        let (Some(aggregation), Some(aggregator)) = (plan.aggregation(), &mut self.aggregator) else { return };
        let input = RowSet::of_datums(&self.datums, &self.chunk, &plan.columns, false);
        aggregator.add(aggregation, input, &mut self.selected, out, stats);
    }

    /// Puts the selected rows out, with the passed-through blocks in their places.
    fn emit(
        &mut self,
        plan: &Plan,
        stored: Stored<'_>,
        run: &Run,
        passed: &[u16],
        out: &mut ResultWriter,
        stats: &mut ScanStats,
    ) -> Result<(), UnitError> {
        if let Output::Columns(columns) = plan.output()
            && !self.selected.is_empty()
        {
            for ((slot, _), number) in columns.iter().zip(plan.projection()) {
                self.locate(stored, run, *slot, *number as usize - 1)?;
            }
        }
        let mut rows = self.selected.as_slice();
        for page in passed {
            let before = rows.partition_point(|row| self.chunk.page(*row) < *page);
            let (now, later) = rows.split_at(before);
            stats.rows_returned += now.len() as u64;
            out.append(plan.output(), &self.datums, stored.first_block, &self.chunk, now);
            passthru(out, stored.first_block, *page as usize, PassthruReason::Predicate, stats);
            rows = later;
        }
        stats.rows_returned += rows.len() as u64;
        out.append(plan.output(), &self.datums, stored.first_block, &self.chunk, rows);
        Ok(())
    }

    /// Tells the pages of the run's rows.
    fn number_pages(&mut self, stored: Stored<'_>, run: &Run) {
        for page in run.pages.clone() {
            let end = stored.unit.page_rows(page).end;
            if end > run.rows.start {
                self.chunk.push_located(page as u16, (end.min(run.rows.end) - run.rows.start) as u32);
            }
            if end >= run.rows.end {
                break;
            }
        }
    }

    fn locate_slots(&mut self, plan: &Plan, stored: Stored<'_>, run: &Run, slots: &[Slot]) -> Result<(), UnitError> {
        for slot in slots {
            let column = plan.columns.get(*slot as usize).and_then(Option::as_ref);
            if let Some(attribute) = column.map(|column| column.attribute) {
                self.locate(stored, run, *slot, attribute)?;
            }
        }
        Ok(())
    }

    /// Puts the datums of the selected rows where kernels and batches look for them.
    pub(super) fn locate(
        &mut self,
        stored: Stored<'_>,
        run: &Run,
        slot: Slot,
        attribute: usize,
    ) -> Result<(), UnitError> {
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
        let shape = &stored.unit.shape().attributes[attribute];
        let sparse = self.selected.len() * SPARSE_SHARE <= run.rows.len();
        reader.set_sparse(sparse);
        let read = |reader: &mut ColumnReader, rows: Range<usize>| {
            reader.read(stored.unit, stored.source, run.chunk, attribute, rows.clone())?;
            if entry.missing > 0 {
                reader.read_natts(stored.unit, stored.source, run.chunk, rows)?;
            }
            Ok::<_, UnitError>(())
        };
        if !sparse {
            read(reader, run.rows.clone())?;
            let all = entry.missing == 0 && entry.nulls == 0;
            if all && reader.push_numbers(shape, &self.selected, locations, &mut self.datums) {
                return Ok(());
            }
        }
        for row in &self.selected {
            let mut at = *row as usize;
            if sparse {
                read(reader, run.rows.start + at..run.rows.start + at + 1)?;
                at = 0;
            }
            locations[*row as usize] = if entry.missing > 0 && reader.natts(at) <= attribute {
                MISSING
            } else if reader.is_null(at) {
                NULL
            } else {
                reader.push_datum(shape, at, &mut self.datums)?
            };
        }
        Ok(())
    }
}
