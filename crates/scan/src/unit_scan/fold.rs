//! Aggregation over encoded columns, a block at a time: keys by their codes, arguments by their numbers.
//!
//! Columns that the aggregation cannot use in encoded form are decoded to datums. If some row of a block needs datums of the other
//! columns, too, all columns of the block are decoded.

use super::encoded_predicates::has_numbers;
use super::marks::select;
use super::{Results, RowSpan, Scan, UnitScanner};
use crate::aggregate::AggregationPlan;
use crate::batch::ResultWriter;
use crate::heap::Slot;
use crate::predicate::{ColumnRequirement, EncodedColumn, EncodedColumns, RowSet, scale_factor};
use crate::unit::{BlockRef, GatherMode, UnitError};
use crate::vectors::marked;

/// How the columns of an aggregation are read in one chunk.
pub(super) struct FoldPlan {
    /// Slots and attributes that are read in encoded form.
    pub(super) gathered: Vec<(Slot, usize, GatherMode)>,
    /// Slots and attributes that are decoded to datums.
    pub(super) datums: Vec<(Slot, usize)>,
    /// Slots of columns of lookup tables that are read in encoded form, and the positions of the tables.
    pub(super) looked_up: Vec<(Slot, usize)>,
    /// Whether to read blocks whole if most of their rows are marked. Set to false when such a block had to be read again.
    whole_blocks: bool,
}

impl UnitScanner {
    /// Decides how the columns of the aggregation are read in the span's chunk, and reads the bytes of encoded columns.
    pub(super) fn fold_plan(
        &mut self,
        scan: Scan<'_>,
        aggregation: &AggregationPlan,
        span: &RowSpan,
    ) -> Result<FoldPlan, UnitError> {
        let has = |slot: Slot, need: ColumnRequirement| {
            if let Some(column) = scan.plan.lookups.iter().find_map(|lookup| lookup.column(slot)) {
                return column.meets(need);
            }
            let Some((column, attribute)) = scan.column(span.chunk, slot) else { return false };
            match need {
                ColumnRequirement::Nulls => true,
                _ if attribute.exceptions() > 0 => false,
                ColumnRequirement::Numbers { scale } => {
                    let fits = |bounds| scale_factor(attribute.numeric_scale(), bounds, scale).is_some();
                    has_numbers(attribute, column.kind) && attribute.number_bounds().is_some_and(fits)
                }
                ColumnRequirement::Scaled { scale, bounds } => {
                    let inside = |(min, max)| bounds.0 <= min && max <= bounds.1;
                    attribute.numeric_scale() == Some(scale) && attribute.number_bounds().is_some_and(inside)
                }
                ColumnRequirement::Strings => attribute.is_payload(),
                ColumnRequirement::Datums => false,
            }
        };
        let mut slots = Vec::new();
        let datums = aggregation.datums(has, &mut slots);
        let mut fold = FoldPlan {
            gathered: Vec::new(),
            whole_blocks: datums.is_empty(),
            datums: Vec::new(),
            looked_up: Vec::new(),
        };
        self.load_keys(scan, span)?;
        for slot in slots {
            if let Some(table) = scan.lookup_table(slot) {
                fold.looked_up.push((slot, table));
                continue;
            }
            let Some((column, attribute)) = scan.column(span.chunk, slot) else { continue };
            let mode = match () {
                () if !aggregation.needs_values(slot) || attribute.exceptions() > 0 => GatherMode::Nulls,
                () if attribute.is_number() => GatherMode::Numbers,
                () if attribute.has_list() => GatherMode::Codes,
                () if attribute.is_payload() => GatherMode::Strings,
                () => GatherMode::Nulls,
            };
            fold.gathered.push((slot, column.attribute, mode));
            // Strings without a dictionary are long: their bytes are read block by block.
            if !matches!(mode, GatherMode::Nulls | GatherMode::Strings) {
                let reader = &mut self.columns[column.attribute];
                reader.load(scan.chunk(span.chunk), column.attribute, span.rows.clone())?;
            }
        }
        for slot in datums {
            let column = scan.plan.columns.get(slot as usize).and_then(Option::as_ref);
            if let Some(column) = column.filter(|column| column.looked_up.is_none()) {
                fold.datums.push((slot, column.attribute));
            }
        }
        Ok(fold)
    }

    /// Aggregates the marked rows of a block.
    pub(super) fn fold_block(
        &mut self,
        scan: Scan<'_>,
        fold: &mut FoldPlan,
        span: &RowSpan,
        at: BlockRef<'_>,
        marks: &[u8],
        results: &mut Results<'_>,
    ) -> Result<(), UnitError> {
        let rows = marked(marks);
        let run = self.block_run(scan, span, at);
        let mut returned = None;
        // If most rows are marked, decoding the whole block is faster than decoding each row.
        if rows >= marks.len() - marks.len() / 8 && fold.whole_blocks {
            self.selected.clear();
            self.selected.extend(0..marks.len() as u16);
            let some = (rows < marks.len()).then_some(marks);
            returned = self.add_encoded(scan, fold, at, some, results.writer)?;
            fold.whole_blocks = returned.is_some();
        }
        if returned.is_none() {
            select(marks, &mut self.selected);
            self.start_run(scan.plan);
            for (slot, attribute) in &fold.datums {
                self.locate(scan, &run, *slot, *attribute)?;
            }
            returned = self.add_encoded(scan, fold, at, None, results.writer)?;
        }
        if let Some(returned) = returned {
            results.stats.rows_returned += returned;
            results.stats.rows_aggregated += rows as u64;
            return Ok(());
        }
        for (slot, attribute, _) in &fold.gathered {
            self.locate(scan, &run, *slot, *attribute)?;
        }
        self.aggregate_run(scan, &run, results)
    }

    /// Adds the selected rows, or with `marks` only the marked rows of the block. See
    /// [`crate::aggregate::Aggregator::add_encoded`].
    fn add_encoded(
        &mut self,
        scan: Scan<'_>,
        fold: &FoldPlan,
        at: BlockRef<'_>,
        marks: Option<&[u8]>,
        out: &mut ResultWriter,
    ) -> Result<Option<u64>, UnitError> {
        for (_, attribute, mode) in &fold.gathered {
            self.columns[*attribute].gather(at, *attribute, *mode, &self.selected)?;
        }
        let mut columns: Vec<Option<EncodedColumn<'_>>> = Vec::new();
        for (slot, attribute, mode) in &fold.gathered {
            columns.resize(columns.len().max(*slot as usize + 1), None);
            columns[*slot as usize] = Some(self.columns[*attribute].gathered(at.chunk, *attribute, *mode)?);
        }
        let encoded_columns = EncodedColumns { columns: &columns, chunk_id: (scan.unit.id(), at.chunk.number) };
        let input = RowSet {
            bytes: &self.datums,
            rows: &self.rows,
            columns: &scan.plan.columns,
            in_pages: false,
            encoded_columns,
        };
        let (Some(aggregation), Some(aggregator)) = (scan.plan.aggregation(), &mut self.aggregator) else {
            return Ok(None);
        };
        Ok(aggregator.add_encoded(aggregation, input, &self.selected, marks, out))
    }
}
