//! Aggregation of rows that are joined with lookup tables, a block at a time: keys and looked-up columns in encoded form.
//!
//! If the aggregation needs datums of some row, all columns of the block are decoded. Rows that several rows of a table match are
//! returned.

use super::encoded_predicates::has_numbers;
use super::fold::FoldPlan;
use super::marks::select;
use super::rows::RowRun;
use super::{Results, RowSpan, Scan, UnitScanner};
use crate::aggregate::AggregationPlan;
use crate::heap::Slot;
use crate::lookup::{LookedUpCodes, Lookup, Partners};
use crate::predicate::{EncodedColumn, EncodedColumns, RowSet};
use crate::unit::{BlockRef, GatherMode, UnitError};

/// Buffers for the joins of a run of rows.
#[derive(Default)]
pub(super) struct Joins {
    pub partners: Partners,
    /// Rows that are not joined here.
    pub others: Vec<u16>,
    codes: Vec<LookedUpCodes>,
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
        select(marks, &mut self.selected);
        let mut keys: Vec<(Slot, Vec<i64>, Option<Vec<i64>>)> = Vec::with_capacity(plan.lookups.len());
        for key in plan.lookups.iter().flat_map(Lookup::key_slots) {
            if keys.iter().any(|(known, ..)| *known == key) {
                continue;
            }
            let Some((column, _)) = scan.column(at.chunk.number, key) else { continue };
            self.columns[column.attribute].gather(at, column.attribute, GatherMode::Numbers, &self.selected)?;
            let gathered = self.columns[column.attribute].gathered(at.chunk, column.attribute, GatherMode::Numbers)?;
            let nulls = gathered.validity.map(<[i64]>::to_vec);
            keys.push((key, gathered.codes.to_vec(), nulls));
        }
        let mut joins = std::mem::take(&mut self.joins);
        joins.others.clear();
        joins.partners.find(&plan.lookups, &mut self.selected, &mut joins.others, |slot, index, _| {
            let (_, codes, validity) = keys.iter().find(|(key, ..)| *key == slot)?;
            let is_null = validity.as_ref().is_some_and(|validity| validity.get(index) == Some(&0));
            Some((!is_null).then_some(*codes.get(index)?))
        });
        let joined = self.selected.len();
        self.start_run(plan);
        for (slot, attribute) in &fold.datums {
            self.locate(scan, &run, *slot, *attribute)?;
        }
        joins.partners.locate(&plan.lookups, &self.selected, &mut self.rows);
        let returned = self.add_joined(scan, fold, at, &mut joins, results)?;
        let others = std::mem::take(&mut joins.others);
        self.joins = joins;
        match returned {
            Some(returned) => {
                results.stats.rows_returned += returned;
                results.stats.rows_aggregated += joined as u64;
                self.selected.clear();
            }
            None => {
                for (slot, attribute, _) in &fold.gathered {
                    self.locate(scan, &run, *slot, *attribute)?;
                }
                self.aggregate_run(scan, &run, results)?;
            }
        }
        if !others.is_empty() {
            self.start_run(plan);
            self.selected.clear();
            self.selected.extend_from_slice(&others);
            self.number_pages(scan, &run);
            self.write_rows(scan, &run, &[], results)?;
        }
        self.joins.others = others;
        Ok(())
    }

    /// Adds the selected rows with their partners. Returns the number of groups written, or None if nothing was added because some
    /// row needs datums.
    fn add_joined(
        &mut self,
        scan: Scan<'_>,
        fold: &FoldPlan,
        at: BlockRef<'_>,
        joins: &mut Joins,
        results: &mut Results<'_>,
    ) -> Result<Option<u64>, UnitError> {
        for (_, attribute, mode) in &fold.gathered {
            self.columns[*attribute].gather(at, *attribute, *mode, &self.selected)?;
        }
        joins.codes.resize_with(fold.looked_up.len(), LookedUpCodes::default);
        let mut columns: Vec<Option<EncodedColumn<'_>>> = vec![None; scan.plan.layout.slots()];
        for (slot, attribute, mode) in &fold.gathered {
            columns[*slot as usize] = Some(self.columns[*attribute].gathered(at.chunk, *attribute, *mode)?);
        }
        for ((slot, number), codes) in fold.looked_up.iter().zip(&mut joins.codes) {
            let column = scan.plan.lookups.get(*number).and_then(|lookup| lookup.column(*slot));
            if let (Some(column), Some(entries)) = (column, joins.partners.entries.get(*number)) {
                columns[*slot as usize] = Some(column.gather(entries, codes));
            }
        }
        let input = RowSet {
            bytes: &self.datums,
            rows: &self.rows,
            columns: &scan.plan.columns,
            in_pages: false,
            encoded_columns: EncodedColumns { columns: &columns, chunk_id: (scan.unit.id(), at.chunk.number) },
        };
        let (Some(aggregation), Some(aggregator)) = (scan.plan.aggregation(), &mut self.aggregator) else {
            return Ok(None);
        };
        Ok(aggregator.add_encoded(aggregation, input, &self.selected, None, results.writer))
    }

    /// Locates the datums of the selected rows that the aggregation and the joins read, and joins the rows. Rows that are not joined
    /// here are moved to `others`.
    pub(super) fn join_run(
        &mut self,
        scan: Scan<'_>,
        run: &RowRun,
        aggregation: &AggregationPlan,
        others: &mut Vec<u16>,
    ) -> Result<(), UnitError> {
        let plan = scan.plan;
        let mut slots = aggregation.datums(|_, _| false, &mut Vec::new());
        slots.extend(plan.lookups.iter().flat_map(Lookup::key_slots));
        self.locate_slots(scan, run, &slots)?;
        if !plan.lookups.is_empty() {
            let (datums, partners) = (&self.datums, &mut self.joins.partners);
            partners.join(&plan.lookups, datums, &plan.columns, &mut self.rows, &mut self.selected, others);
        }
        Ok(())
    }
}
