//! Decodes rows of a unit to datums, for predicates that encoded values do not decide, for aggregates, and for rows that are
//! returned.

use super::encoded_predicates::EncodedPredicates;
use super::{Results, RowSpan, Scan, UnitScanner};
use crate::batch::Output;
use crate::heap::{MISSING, NULL, Slot};
use crate::plan::Plan;
use crate::predicate::RowSet;
use crate::scanner::passthru;
use crate::unit::{BLOCK_ROWS, BlockRef, ColumnReader, UnitError};
use cellar_format::wire::PassthruReason;
use std::ops::Range;

/// Rows evaluated together: a few blocks of each column fit the second-level cache.
const RUN_ROWS_MAX: usize = 4096;
/// If at most one row in 64 is selected, rows are read one by one.
const SPARSE_SHARE: usize = 64;

/// Consecutive rows of a chunk that are evaluated together.
pub(super) struct RowRun {
    chunk: usize,
    /// The pages that contain the rows.
    pages: Range<usize>,
    /// As numbers in the unit.
    rows: Range<usize>,
}

impl UnitScanner {
    /// Evaluates the stages that encoded predicates do not decide, on the rows of `self.passed`. Aggregates or returns the remaining
    /// rows.
    pub(super) fn scan_rows(
        &mut self,
        scan: Scan<'_>,
        predicates: &EncodedPredicates<'_>,
        span: &RowSpan,
        results: &mut Results<'_>,
    ) -> Result<(), UnitError> {
        let passed = std::mem::take(&mut self.passed);
        let mut rest = passed.as_slice();
        let mut page = span.pages.start;
        while let Some(first) = rest.first() {
            // Runs are whole pages, because a page may have to be passed through.
            let first = span.chunk_start + *first as usize;
            while scan.unit.page_rows(page).end <= first {
                page += 1;
            }
            let (start, mut end) = (page, page + 1);
            let rows_start = scan.unit.page_rows(page).start;
            while end < span.pages.end && scan.unit.page_rows(end).end - rows_start <= RUN_ROWS_MAX {
                end += 1;
            }
            let rows = rows_start..scan.unit.page_rows(end - 1).end;
            let count = rest.partition_point(|row| span.chunk_start + (*row as usize) < rows.end);
            let (now, later) = rest.split_at(count);
            let base = rows.start - span.chunk_start;
            self.selected.clear();
            self.selected.extend(now.iter().map(|row| (*row as usize - base) as u16));
            let run = RowRun { chunk: span.chunk, pages: start..end, rows };
            self.scan_run(scan, predicates, &run, results)?;
            (rest, page) = (later, end);
        }
        self.passed = passed;
        Ok(())
    }

    /// The rows of a block.
    pub(super) fn block_run(&self, scan: Scan<'_>, span: &RowSpan, at: BlockRef<'_>) -> RowRun {
        let start = span.chunk_start + at.block * BLOCK_ROWS;
        let end = (start + BLOCK_ROWS).min(scan.unit.chunks()[span.chunk].row_range().end);
        RowRun { chunk: span.chunk, pages: span.pages.clone(), rows: start..end }
    }

    /// Clears the datums of the previous run.
    pub(super) fn start_run(&mut self, plan: &Plan) {
        self.rows.clear();
        self.located.clear();
        self.datums.clear();
        self.datums.resize(8, 0);
        self.rows.prepare(plan.layout.slots());
    }

    /// Evaluates the remaining stages, the top-N and the aggregation on the selected rows of a run, and returns the result.
    fn scan_run(
        &mut self,
        scan: Scan<'_>,
        predicates: &EncodedPredicates<'_>,
        run: &RowRun,
        results: &mut Results<'_>,
    ) -> Result<(), UnitError> {
        let plan = scan.plan;
        self.start_run(plan);
        self.number_pages(scan, run);
        // Pages with a row that no stage can decide.
        let mut undecided_pages: Vec<u16> = Vec::new();
        for (stage, _) in plan.stages.iter().zip(&predicates.decided).filter(|(_, decided)| !**decided) {
            if self.selected.is_empty() {
                break;
            }
            self.next.clear();
            self.locate_slots(scan, run, &stage.slots)?;
            let input = RowSet::of_datums(&self.datums, &self.rows, &plan.columns, false);
            stage.kernel.run(input, &self.selected, &mut self.next, &mut self.undecided);
            std::mem::swap(&mut self.selected, &mut self.next);
            if !self.undecided.is_empty() {
                undecided_pages.extend(self.undecided.drain(..).map(|row| self.rows.page(row)));
                undecided_pages.sort_unstable();
                undecided_pages.dedup();
                let rows = &self.rows;
                self.selected.retain(|row| undecided_pages.binary_search(&rows.page(*row)).is_err());
            }
        }
        if let Some(wanted) = plan.top_n()
            && !self.selected.is_empty()
        {
            for (slot, attribute) in wanted.columns(&plan.columns) {
                self.locate(scan, run, slot, attribute)?;
            }
            let input = RowSet::of_datums(&self.datums, &self.rows, &plan.columns, false);
            if let Some(top_n) = &mut self.top_n {
                top_n.retain(wanted, input, &mut self.selected);
            }
        }
        if let Some(aggregation) = plan.aggregation()
            && !self.selected.is_empty()
        {
            if plan.lookups.is_empty() {
                self.locate_slots(scan, run, &aggregation.datums(|_, _| false, &mut Vec::new()))?;
                self.aggregate(plan, results);
            } else {
                self.join_run(scan, run, results)?;
            }
        }
        self.write_rows(scan, run, &undecided_pages, results)
    }

    /// Aggregates `self.selected`, whose datums are located, and returns rejected rows.
    pub(super) fn aggregate_run(
        &mut self,
        scan: Scan<'_>,
        run: &RowRun,
        results: &mut Results<'_>,
    ) -> Result<(), UnitError> {
        self.aggregate(scan.plan, results);
        self.number_pages(scan, run);
        self.write_rows(scan, run, &[], results)
    }

    /// Adds the selected rows to groups. Rejected rows stay selected.
    fn aggregate(&mut self, plan: &Plan, results: &mut Results<'_>) {
        let (Some(aggregation), Some(aggregator)) = (plan.aggregation(), &mut self.aggregator) else { return };
        let input = RowSet::of_datums(&self.datums, &self.rows, &plan.columns, false);
        aggregator.add(aggregation, input, &mut self.selected, None, results.writer, &mut results.stats);
    }

    /// Writes the selected rows and the passed-through pages, in page order.
    pub(super) fn write_rows(
        &mut self,
        scan: Scan<'_>,
        run: &RowRun,
        passthru_pages: &[u16],
        results: &mut Results<'_>,
    ) -> Result<(), UnitError> {
        let plan = scan.plan;
        if let Output::Columns(columns) = plan.output()
            && !self.selected.is_empty()
        {
            for ((slot, _), number) in columns.iter().zip(plan.projection()) {
                self.locate(scan, run, *slot, *number as usize - 1)?;
            }
        }
        let Results { writer, stats } = results;
        let mut rows = self.selected.as_slice();
        for page in passthru_pages {
            let before = rows.partition_point(|row| self.rows.page(*row) < *page);
            let (now, later) = rows.split_at(before);
            stats.rows_returned += now.len() as u64;
            writer.append(plan.output(), &self.datums, scan.first_block, &self.rows, now);
            passthru(writer, scan.first_block, *page as usize, PassthruReason::Predicate, stats);
            rows = later;
        }
        stats.rows_returned += rows.len() as u64;
        writer.append(plan.output(), &self.datums, scan.first_block, &self.rows, rows);
        Ok(())
    }

    /// Records the page of each row of the run.
    pub(super) fn number_pages(&mut self, scan: Scan<'_>, run: &RowRun) {
        for page in run.pages.clone() {
            let end = scan.unit.page_rows(page).end;
            if end > run.rows.start {
                self.rows.push_located(page as u16, (end.min(run.rows.end) - run.rows.start) as u32);
            }
            if end >= run.rows.end {
                break;
            }
        }
    }

    pub(super) fn locate_slots(&mut self, scan: Scan<'_>, run: &RowRun, slots: &[Slot]) -> Result<(), UnitError> {
        for slot in slots {
            let column = scan.plan.columns.get(*slot as usize).and_then(Option::as_ref);
            if let Some(attribute) = column.filter(|column| column.looked_up.is_none()).map(|column| column.attribute) {
                self.locate(scan, run, *slot, attribute)?;
            }
        }
        Ok(())
    }

    /// Decodes a column's datums in the selected rows and records their locations. Does nothing if the column is already located in
    /// this run.
    pub(super) fn locate(
        &mut self,
        scan: Scan<'_>,
        run: &RowRun,
        slot: Slot,
        attribute: usize,
    ) -> Result<(), UnitError> {
        if self.located.contains(&slot) {
            return Ok(());
        }
        self.located.push(slot);
        let locations = self.rows.locations_mut(slot);
        let Some(entry) = scan.unit.chunks()[run.chunk].attribute(attribute) else {
            self.selected.iter().for_each(|row| locations[*row as usize] = MISSING);
            return Ok(());
        };
        let reader = &mut self.columns[attribute];
        let shape = &scan.unit.shape().attributes[attribute];
        let sparse = self.selected.len() * SPARSE_SHARE <= run.rows.len();
        reader.set_sparse(sparse);
        let read = |reader: &mut ColumnReader, rows: Range<usize>| {
            reader.read(scan.chunk(run.chunk), attribute, rows.clone())?;
            if entry.missing > 0 {
                reader.read_natts(scan.chunk(run.chunk), rows)?;
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
