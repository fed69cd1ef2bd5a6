//! Aggregates over encoded columns: keys by their codes, arguments by their numbers, a block at a time. What needs a
//! datum, in a column or only in a row of the block, gets one.

use super::filter::holds_numbers;
use super::{Segment, Stored, UnitScanner, select};
use crate::aggregate::{AggregationPlan, ColumnRequirement};
use crate::batch::ResultWriter;
use crate::heap::Slot;
use crate::plan::Plan;
use crate::predicate::{EncodedColumn, EncodedColumns, RowSet, scale_factor};
use crate::unit::{Block, Gathering, UnitError};
use crate::vectors::marked;
use cellar_format::stats::ScanStats;

/// How the columns of an aggregation are read in one chunk.
pub(super) struct Folding {
    gathered: Vec<(Slot, usize, Gathering)>,
    /// Slots and attributes of what needs datums.
    datums: Vec<(Slot, usize)>,
    /// Blocks of which most rows are wanted are tried as a whole: no block had to be read again so far.
    as_whole: bool,
}

impl UnitScanner {
    pub(super) fn folding(
        &mut self,
        plan: &Plan,
        aggregation: &AggregationPlan,
        stored: Stored<'_>,
        segment: &Segment,
    ) -> Result<Folding, UnitError> {
        let known = |slot: Slot| stored.known(plan, segment.chunk, slot);
        let has = |slot: Slot, need: ColumnRequirement| {
            let Some((column, attribute)) = known(slot) else { return false };
            match need {
                ColumnRequirement::Nulls => true,
                _ if attribute.exceptions() > 0 => false,
                ColumnRequirement::Numbers { scale } => {
                    let fits = |bounds| scale_factor(attribute.numeric_scale(), bounds, scale).is_some();
                    holds_numbers(attribute, column.kind) && attribute.number_bounds().is_some_and(fits)
                }
                ColumnRequirement::Scaled { scale, bounds } => {
                    let inside = |(min, max)| bounds.0 <= min && max <= bounds.1;
                    attribute.numeric_scale() == Some(scale) && attribute.number_bounds().is_some_and(inside)
                }
                ColumnRequirement::Strings => attribute.has_list(),
            }
        };
        let mut slots = Vec::new();
        let datums = aggregation.datums(has, &mut slots);
        let mut folding = Folding { gathered: Vec::new(), as_whole: datums.is_empty(), datums: Vec::new() };
        for slot in slots {
            let Some((column, attribute)) = known(slot) else { continue };
            let how = match () {
                () if !aggregation.wants_values(slot) || attribute.exceptions() > 0 => Gathering::Nulls,
                () if attribute.is_number() => Gathering::Numbers,
                () if attribute.has_list() => Gathering::Codes,
                () => Gathering::Nulls,
            };
            folding.gathered.push((slot, column.attribute, how));
            if how != Gathering::Nulls {
                let reader = &mut self.columns[column.attribute];
                reader.load(stored.unit, stored.source, segment.chunk, column.attribute, segment.rows.clone())?;
            }
        }
        for slot in datums {
            if let Some(column) = plan.columns.get(slot as usize).and_then(Option::as_ref) {
                folding.datums.push((slot, column.attribute));
            }
        }
        Ok(folding)
    }

    /// Adds the marked rows of a block.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn fold_block(
        &mut self,
        plan: &Plan,
        folding: &mut Folding,
        stored: Stored<'_>,
        segment: &Segment,
        at: Block<'_>,
        marks: &[u8],
        out: &mut ResultWriter,
        stats: &mut ScanStats,
    ) -> Result<(), UnitError> {
        let rows = marked(marks);
        let run = self.block_run(stored, segment, at);
        let mut left = None;
        // Of most rows, the block as a whole is read sooner than they are picked.
        if rows >= marks.len() - marks.len() / 8 && folding.as_whole {
            self.selected.clear();
            self.selected.extend(0..marks.len() as u16);
            let some = (rows < marks.len()).then_some(marks);
            left = self.add_gathered(plan, folding, stored, at, some, out)?;
            folding.as_whole = left.is_some();
        }
        if left.is_none() {
            select(marks, 0, &mut self.selected);
            self.start_run(plan);
            for (slot, attribute) in &folding.datums {
                self.locate(stored, &run, *slot, *attribute)?;
            }
            left = self.add_gathered(plan, folding, stored, at, None, out)?;
        }
        if let Some(left) = left {
            stats.rows_returned += left;
            stats.rows_aggregated += rows as u64;
            return Ok(());
        }
        for (slot, attribute, _) in &folding.gathered {
            self.locate(stored, &run, *slot, *attribute)?;
        }
        self.aggregate_run(plan, stored, &run, out, stats)
    }

    /// Adds the selected rows, or of these the marked ones; as [`crate::aggregate::Aggregator::add_encoded`].
    fn add_gathered(
        &mut self,
        plan: &Plan,
        folding: &Folding,
        stored: Stored<'_>,
        at: Block<'_>,
        marks: Option<&[u8]>,
        out: &mut ResultWriter,
    ) -> Result<Option<u64>, UnitError> {
        for (_, attribute, how) in &folding.gathered {
            self.columns[*attribute].gather(at, *attribute, *how, &self.selected)?;
        }
        let mut columns: Vec<Option<EncodedColumn<'_>>> = Vec::new();
        for (slot, attribute, how) in &folding.gathered {
            columns.resize(columns.len().max(*slot as usize + 1), None);
            columns[*slot as usize] = Some(self.columns[*attribute].gathered(at, *attribute, *how)?);
        }
        let gathered = EncodedColumns { columns: &columns, chunk_id: (stored.unit.id(), at.chunk) };
        let input = RowSet {
            pages: &self.datums,
            rows: &self.chunk,
            columns: &plan.columns,
            in_pages: false,
            encoded_columns: gathered,
        };
        let (Some(aggregation), Some(aggregator)) = (plan.aggregation(), &mut self.aggregator) else { return Ok(None) };
        Ok(aggregator.add_encoded(aggregation, input, &self.selected, marks, out))
    }
}
