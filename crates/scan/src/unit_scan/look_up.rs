//! Aggregation of rows that are joined with lookup tables, a block at a time: keys and looked-up columns in encoded form.
//!
//! If the aggregation needs datums of some joined row, the datums of all columns are decoded for the whole run of joined rows.

use super::encoded_predicates::has_numbers;
use super::fold::FoldPlan;
use super::marks::select;
use super::rows::RowRun;
use super::{Results, RowSpan, Scan, UnitScanner};
use crate::heap::{PageRows, Slot};
use crate::lookup::{EncodedBuffer, Lookup, Partners, Tested};
use crate::plan::Plan;
use crate::predicate::{EncodedColumn, EncodedColumns, RowSet};
use crate::unit::{BlockRef, ColumnReader, GatherMode, UnitError};

/// Buffers for the joins of a run of rows.
#[derive(Default)]
pub(super) struct Joins {
    pub partners: Partners,
    /// The rows of a block that are joined.
    rows: Vec<u16>,
    /// Rows that are not joined here.
    others: Vec<u16>,
    buffers: Vec<EncodedBuffer>,
}

/// Encoded columns in joined rows.
struct JoinedColumns<'a> {
    /// By slot.
    columns: Vec<Option<EncodedColumn<'a>>>,
    /// For the values of columns of lookup tables, and if rows have several partners, of the relation's columns.
    buffers: std::slice::IterMut<'a, EncodedBuffer>,
}

impl<'a> JoinedColumns<'a> {
    fn new(plan: &Plan, buffers: &'a mut Vec<EncodedBuffer>) -> Self {
        buffers.resize_with(plan.layout.slots(), EncodedBuffer::default);
        Self { columns: vec![None; plan.layout.slots()], buffers: buffers.iter_mut() }
    }

    /// Reads the columns of `fold` whose slots are `wanted`. `selected`: the rows of the scan that are joined, in the block.
    #[expect(clippy::too_many_arguments, reason = "parts of the scanner that are borrowed separately")]
    fn gather(
        &mut self,
        readers: &'a mut [ColumnReader],
        scan: Scan<'a>,
        fold: &FoldPlan,
        at: BlockRef<'a>,
        selected: &[u16],
        partners: &Partners,
        wanted: impl Fn(Slot) -> bool,
    ) -> Result<(), UnitError> {
        let gathered = || fold.gathered.iter().filter(|(slot, ..)| wanted(*slot));
        for (_, attribute, mode) in gathered() {
            readers[*attribute].gather(at, *attribute, *mode, selected)?;
        }
        let readers = &*readers;
        for (slot, attribute, mode) in gathered() {
            let column = readers[*attribute].gathered(at.chunk, *attribute, *mode)?;
            self.columns[*slot as usize] = match self.buffers.next() {
                Some(buffer) if !partners.are_single() => Some(buffer.repeat(&column, &partners.sources)),
                _ => Some(column),
            };
        }
        for (slot, number) in fold.looked_up.iter().filter(|(slot, _)| wanted(*slot)) {
            let column = scan.plan.lookups.get(*number).and_then(|lookup| lookup.column(*slot));
            if let (Some(column), Some(entries), Some(buffer)) =
                (column, partners.entries.get(*number), self.buffers.next())
            {
                self.columns[*slot as usize] = Some(column.gather(entries, buffer));
            }
        }
        Ok(())
    }

    /// The joined rows, with the columns that were read.
    fn rows(&self, scan: Scan<'a>, at: BlockRef<'_>, datums: &'a [u8], rows: &'a PageRows) -> RowSet<'_> {
        RowSet {
            bytes: datums,
            rows,
            columns: &scan.plan.columns,
            in_pages: false,
            encoded_columns: EncodedColumns { columns: &self.columns, chunk_id: (scan.unit.id(), at.chunk.number) },
        }
    }
}

impl UnitScanner {
    /// Whether the keys of all joins are read in encoded form in the span's chunk.
    pub(super) fn has_encoded_keys(&self, scan: Scan<'_>, span: &RowSpan) -> bool {
        scan.plan.lookups.iter().flat_map(Lookup::key_slots).all(|key| {
            let column = scan.column(span.chunk, key);
            column.is_some_and(|(column, attribute)| attribute.exceptions() == 0 && has_numbers(attribute, column.kind))
        })
    }

    /// Reads the bytes of the key columns of all joins.
    pub(super) fn load_keys(&mut self, scan: Scan<'_>, span: &RowSpan) -> Result<(), UnitError> {
        for key in scan.plan.lookups.iter().flat_map(Lookup::key_slots) {
            if let Some((column, _)) = scan.column(span.chunk, key) {
                let reader = &mut self.columns[column.attribute];
                reader.load(scan.chunk(span.chunk), column.attribute, span.rows.clone())?;
            }
        }
        Ok(())
    }

    /// Joins and aggregates the marked rows of a block.
    pub(super) fn fold_joined_block(
        &mut self,
        scan: Scan<'_>,
        fold: &FoldPlan,
        span: &RowSpan,
        at: BlockRef<'_>,
        marks: &[u8],
        results: &mut Results<'_>,
    ) -> Result<(), UnitError> {
        let plan = scan.plan;
        let run = self.block_run(scan, span, at);
        let mut joins = std::mem::take(&mut self.joins);
        select(marks, &mut joins.rows);
        let mut keys: Vec<(Slot, Vec<i64>, Option<Vec<i64>>)> = Vec::with_capacity(plan.lookups.len());
        for key in plan.lookups.iter().flat_map(Lookup::key_slots) {
            if keys.iter().any(|(known, ..)| *known == key) {
                continue;
            }
            let Some((column, _)) = scan.column(at.chunk.number, key) else { continue };
            self.columns[column.attribute].gather(at, column.attribute, GatherMode::Numbers, &joins.rows)?;
            let gathered = self.columns[column.attribute].gathered(at.chunk, column.attribute, GatherMode::Numbers)?;
            let nulls = gathered.validity.map(<[i64]>::to_vec);
            keys.push((key, gathered.codes.to_vec(), nulls));
        }
        joins.others.clear();
        let mut from = 0;
        while from < joins.rows.len() {
            from = joins.partners.find(&plan.lookups, &joins.rows, from, &mut joins.others, |slot, index, _| {
                let (_, codes, validity) = keys.iter().find(|(key, ..)| *key == slot)?;
                let is_null = validity.as_ref().is_some_and(|validity| validity.get(index) == Some(&0));
                Some((!is_null).then_some(*codes.get(index)?))
            });
            self.add_joined(scan, fold, &run, at, &mut joins, results)?;
        }
        if !joins.others.is_empty() {
            self.start_run(plan);
            joins.others.sort_unstable();
            self.selected.clear();
            self.selected.extend_from_slice(&joins.others);
            self.number_pages(scan, &run);
            self.write_rows(scan, &run, &[], results)?;
        }
        self.joins = joins;
        Ok(())
    }

    /// Adds the joined rows to groups, by encoded values if these suffice.
    fn add_joined(
        &mut self,
        scan: Scan<'_>,
        fold: &FoldPlan,
        run: &RowRun,
        at: BlockRef<'_>,
        joins: &mut Joins,
        results: &mut Results<'_>,
    ) -> Result<(), UnitError> {
        let Some(wanted) = scan.plan.joins().filter(|_| !joins.partners.rows.is_empty()) else { return Ok(()) };
        self.selected.clear();
        self.selected.extend_from_slice(&joins.partners.rows);
        self.start_run(scan.plan);
        for (slot, attribute) in &fold.datums {
            self.locate(scan, run, *slot, *attribute)?;
        }
        joins.partners.locate(wanted, &mut self.rows);
        let tested = self.test_encoded(scan, fold, at, joins)?;
        if tested == Tested::Dropped {
            if joins.partners.rows.is_empty() {
                return Ok(());
            }
            self.selected.clear();
            self.selected.extend_from_slice(&joins.partners.rows);
            joins.partners.locate(wanted, &mut self.rows);
        }
        let returned = match tested {
            Tested::Undecided => None,
            _ => self.add_joined_encoded(scan, fold, at, joins, results)?,
        };
        if let Some(returned) = returned {
            results.stats.rows_returned += returned;
            results.stats.rows_aggregated += joins.partners.numbers.len() as u64;
            return Ok(());
        }
        for (slot, attribute, _) in &fold.gathered {
            self.locate(scan, run, *slot, *attribute)?;
        }
        joins.partners.locate(wanted, &mut self.rows);
        let Some(aggregator) = &mut self.aggregator else { return Ok(()) };
        let rows = RowSet::of_datums(&self.datums, &self.rows, wanted.columns, false);
        if joins.partners.test(wanted, rows, Some(&mut joins.others)) == Tested::Dropped {
            joins.partners.locate(wanted, &mut self.rows);
        }
        let rows = RowSet::of_datums(&self.datums, &self.rows, wanted.columns, false);
        joins.partners.add_to(wanted, aggregator, rows, &mut joins.others, results.writer, &mut results.stats);
        Ok(())
    }

    /// Drops joined rows for which encoded values show that a condition of the aggregation does not hold.
    fn test_encoded(
        &mut self,
        scan: Scan<'_>,
        fold: &FoldPlan,
        at: BlockRef<'_>,
        joins: &mut Joins,
    ) -> Result<Tested, UnitError> {
        let Some(wanted) = scan.plan.joins().filter(|joins| joins.aggregation.has_conditions()) else {
            return Ok(Tested::Unchanged);
        };
        let slots: Vec<Slot> = wanted.aggregation.condition_slots().collect();
        let (partners, mut columns) = (&mut joins.partners, JoinedColumns::new(scan.plan, &mut joins.buffers));
        columns.gather(&mut self.columns, scan, fold, at, &self.selected, partners, |slot| slots.contains(&slot))?;
        let input = columns.rows(scan, at, &self.datums, &self.rows);
        Ok(partners.test(wanted, input, None))
    }

    /// Adds the joined rows by encoded values. Returns the number of groups written, or None if nothing was added because some row needs
    /// datums.
    fn add_joined_encoded(
        &mut self,
        scan: Scan<'_>,
        fold: &FoldPlan,
        at: BlockRef<'_>,
        joins: &mut Joins,
        results: &mut Results<'_>,
    ) -> Result<Option<u64>, UnitError> {
        let (partners, mut columns) = (&joins.partners, JoinedColumns::new(scan.plan, &mut joins.buffers));
        columns.gather(&mut self.columns, scan, fold, at, &self.selected, partners, |_| true)?;
        let input = columns.rows(scan, at, &self.datums, &self.rows);
        let (Some(aggregation), Some(aggregator)) = (scan.plan.aggregation(), &mut self.aggregator) else {
            return Ok(None);
        };
        Ok(aggregator.add_encoded(aggregation, input, &partners.numbers, None, results.writer))
    }

    /// Joins and aggregates the selected rows of a run by their datums. The rows that are not aggregated stay selected.
    pub(super) fn join_run(
        &mut self,
        scan: Scan<'_>,
        run: &RowRun,
        results: &mut Results<'_>,
    ) -> Result<(), UnitError> {
        let Some(wanted) = scan.plan.joins() else { return Ok(()) };
        self.locate_slots(scan, run, wanted.slots)?;
        let keys: Vec<Slot> = wanted.lookups.iter().flat_map(Lookup::key_slots).collect();
        self.locate_slots(scan, run, &keys)?;
        let Some(aggregator) = &mut self.aggregator else { return Ok(()) };
        let Results { writer, stats } = results;
        let (datums, rows, selected) = (&self.datums, &mut self.rows, &mut self.selected);
        self.joins.partners.aggregate(wanted, aggregator, datums, false, rows, selected, writer, stats);
        Ok(())
    }
}
