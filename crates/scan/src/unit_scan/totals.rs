//! Aggregates of all rows, without keys: from a chunk's directory, and from sums of its packed numbers.

use super::filter::holds_numbers;
use super::{Segment, Stored, UnitScanner};
use crate::aggregate::{Total, TotalRequest};
use crate::batch::ResultWriter;
use crate::plan::Plan;
use crate::predicate::scale_factor;
use crate::unit::{Block, UnitError};
use cellar_format::stats::ScanStats;

impl UnitScanner {
    /// Adds all rows of the segment. False, and nothing was added: they have to be looked at one by one.
    pub(super) fn add_totals(
        &mut self,
        plan: &Plan,
        stored: Stored<'_>,
        segment: &Segment,
        out: &mut ResultWriter,
        stats: &mut ScanStats,
    ) -> Result<bool, UnitError> {
        let Some(aggregation) = plan.aggregation() else { return Ok(false) };
        let Some(asked) = aggregation.total_requests() else { return Ok(false) };
        let mut totals = Vec::with_capacity(asked.len());
        for asked in asked {
            let Some(total) = self.total(plan, stored, segment, asked)? else { return Ok(false) };
            totals.push(total);
        }
        let rows = segment.rows.len() as u64;
        if let Some(aggregator) = &mut self.aggregator {
            stats.rows_returned += aggregator.add_totals(aggregation, &totals, rows, out);
            stats.rows_aggregated += rows;
        }
        Ok(true)
    }

    /// None: the chunk does not tell.
    fn total(
        &mut self,
        plan: &Plan,
        stored: Stored<'_>,
        segment: &Segment,
        asked: &TotalRequest,
    ) -> Result<Option<Total>, UnitError> {
        let rows = segment.rows.len() as i64;
        let Some(slot) = asked.slot else { return Ok(Some(Total { values: rows, ..Total::default() })) };
        let Some((column, attribute)) = stored.known(plan, segment.chunk, slot) else { return Ok(None) };
        let is_whole = segment.rows == stored.unit.chunks()[segment.chunk].row_range();
        let Some(scale) = asked.scale else {
            let values = rows - i64::from(attribute.nulls);
            return Ok((is_whole || attribute.nulls == 0).then_some(Total { values, ..Total::default() }));
        };
        let decimals = attribute.numeric_scale();
        let Some(bounds) = attribute.number_bounds().filter(|bounds| {
            let has_all = attribute.nulls == 0 && attribute.exceptions() == 0 && (is_whole || !asked.bounds);
            has_all && holds_numbers(attribute, column.kind) && scale_factor(decimals, *bounds, scale).is_some()
        }) else {
            return Ok(None);
        };
        let mut total = Total { values: rows, sum: 0, decimals: decimals.unwrap_or(0), bounds };
        if asked.sum {
            let reader = &mut self.columns[column.attribute];
            reader.load(stored.unit, stored.source, segment.chunk, column.attribute, segment.rows.clone())?;
            let at = Block { unit: stored.unit, source: stored.source, chunk: segment.chunk, block: 0 };
            let local = segment.rows.start - segment.first_row..segment.rows.end - segment.first_row;
            total.sum = reader.sum(at, column.attribute, local)?;
        }
        Ok(Some(total))
    }
}
