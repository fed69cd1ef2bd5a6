//! Aggregates all rows of a span at once, for aggregations without keys: from the chunk's directory entries, and from sums of packed
//! numbers.

use super::encoded_predicates::has_numbers;
use super::{Results, RowSpan, Scan, UnitScanner};
use crate::aggregate::{Total, TotalRequest};
use crate::predicate::scale_factor;
use crate::unit::UnitError;

impl UnitScanner {
    /// Adds all rows of the span. Returns false, and adds nothing, if totals do not suffice.
    pub(super) fn add_totals(
        &mut self,
        scan: Scan<'_>,
        span: &RowSpan,
        results: &mut Results<'_>,
    ) -> Result<bool, UnitError> {
        let Some(aggregation) = scan.plan.aggregation() else { return Ok(false) };
        let Some(requests) = aggregation.total_requests() else { return Ok(false) };
        let mut totals = Vec::with_capacity(requests.len());
        for request in requests {
            let Some(total) = self.total(scan, span, request)? else { return Ok(false) };
            totals.push(total);
        }
        if !aggregation.defines_sums(&totals) {
            return Ok(false);
        }
        let rows = span.rows.len() as u64;
        if let Some(aggregator) = &mut self.aggregator {
            results.stats.rows_returned += aggregator.add_totals(aggregation, &totals, rows, results.writer);
            results.stats.rows_aggregated += rows;
        }
        Ok(true)
    }

    /// The totals of one argument over all rows of the span. None if the chunk does not provide them.
    fn total(&mut self, scan: Scan<'_>, span: &RowSpan, request: &TotalRequest) -> Result<Option<Total>, UnitError> {
        let rows = span.rows.len() as i64;
        let Some(slot) = request.slot else { return Ok(Some(Total { values: rows, ..Total::default() })) };
        let Some((column, attribute)) = scan.column(span.chunk, slot) else { return Ok(None) };
        let is_whole = span.rows == scan.unit.chunks()[span.chunk].row_range();
        let Some(scale) = request.scale else {
            let values = rows - i64::from(attribute.nulls);
            return Ok((is_whole || attribute.nulls == 0).then_some(Total { values, ..Total::default() }));
        };
        let decimals = attribute.numeric_scale();
        let Some(bounds) = attribute.number_bounds().filter(|bounds| {
            let has_all = attribute.nulls == 0 && attribute.exceptions() == 0 && (is_whole || !request.bounds);
            has_all && has_numbers(attribute, column.kind) && scale_factor(decimals, *bounds, scale).is_some()
        }) else {
            return Ok(None);
        };
        let mut total = Total { values: rows, sum: 0, decimals: decimals.unwrap_or(0), bounds };
        if request.sum {
            let reader = &mut self.columns[column.attribute];
            let chunk = scan.chunk(span.chunk);
            reader.load(chunk, column.attribute, span.rows.clone())?;
            total.sum = reader.sum(chunk, column.attribute, span.chunk_rows())?;
        }
        Ok(Some(total))
    }
}
