//! Top-N on encoded values: drops rows by their first sort key before datums are decoded.
//!
//! A row is dropped if its first key follows the first key of the last of the first N rows returned so far, or the first keys of N
//! other rows of the span. Rows are dropped only in spans whose predicates are all decided: then no dropped row could have raised an
//! error, and each of the N other rows is returned unless N returned rows precede or equal that row.

use super::encoded_predicates::{EncodedPredicates, has_numbers};
use super::{RowSpan, Scan, UnitScanner};
use crate::bounds::IntRange;
use crate::predicate::EncodedTest;
use crate::unit::{BLOCK_ROWS, BlockRef, GatherMode, UnitError};
use crate::value::Value;

/// How the first sort key decides about the rows of a span.
pub(super) enum FirstKeyTest {
    /// The first key alone cannot decide, or the scan has no top-N.
    None,
    /// No row of the span is among the first rows.
    NoRowPasses,
    Column(FirstKeyColumn),
}

/// The column of the first sort key in a span. NULLs, if the column has any, sort last.
pub(super) struct FirstKeyColumn {
    attribute: usize,
    descending: bool,
    has_nulls: bool,
    /// The encoded values that do not follow the last of the first rows. None: every value, NULLs included.
    range: Option<IntRange>,
}

impl UnitScanner {
    /// Returns the test of the first sort key in the span, and reads the bytes of the key's column.
    pub(super) fn first_key_test(
        &mut self,
        scan: Scan<'_>,
        predicates: &EncodedPredicates<'_>,
        span: &RowSpan,
    ) -> Result<FirstKeyTest, UnitError> {
        let (Some(wanted), Some(top_n)) = (scan.plan.top_n(), &self.top_n) else { return Ok(FirstKeyTest::None) };
        let Some(key) = wanted.first_key().filter(|_| predicates.decide_all_stages()) else {
            return Ok(FirstKeyTest::None);
        };
        let Some((column, attribute)) = scan.column(span.chunk, key.slot) else { return Ok(FirstKeyTest::None) };
        let has_nulls = attribute.nulls > 0;
        if attribute.exceptions() > 0 || !has_numbers(attribute, column.kind) || has_nulls && key.nulls_first {
            return Ok(FirstKeyTest::None);
        }
        let mut range = None;
        match top_n.last(wanted) {
            // Fewer than N rows were returned, or the last of them does not bound the values.
            None | Some(Value::Null) => {}
            Some(last) => {
                let test = key.test(last);
                match test.as_ref().map(|test| test.encoded(column, attribute.numeric_scale())) {
                    Some(EncodedTest::Int(found)) => range = Some(found),
                    _ => return Ok(FirstKeyTest::None),
                }
            }
        }
        if range.is_some_and(|range| attribute.all_pass(&range) == Some(false)) {
            return Ok(FirstKeyTest::NoRowPasses);
        }
        let attribute = column.attribute;
        self.columns[attribute].load(scan.chunk(span.chunk), attribute, span.rows.clone())?;
        Ok(FirstKeyTest::Column(FirstKeyColumn { attribute, descending: key.descending, has_nulls, range }))
    }

    /// Clears the marks of rows that follow the last of the first rows returned so far.
    pub(super) fn retain_first(
        &mut self,
        key: &FirstKeyColumn,
        at: BlockRef<'_>,
        marks: &mut [u8],
    ) -> Result<(), UnitError> {
        let Some(range) = &key.range else { return Ok(()) };
        let reader = &mut self.columns[key.attribute];
        if key.has_nulls {
            reader.retain_nulls(at, key.attribute, false, marks)?;
        }
        reader.retain(at, key.attribute, range, marks)
    }

    /// Drops the rows of `self.passed` whose first key follows those of N other rows of the span.
    pub(super) fn keep_first(&mut self, scan: Scan<'_>, key: &FirstKeyColumn, span: &RowSpan) -> Result<(), UnitError> {
        let Some(wanted) = scan.plan.top_n().map(|wanted| wanted.rows()) else { return Ok(()) };
        if self.passed.len() <= 2 * wanted || wanted == 0 {
            return Ok(());
        }
        // Numbers that order as the first key does; NULLs are last.
        let mut keys: Vec<i64> = Vec::with_capacity(self.passed.len());
        let mut rest = self.passed.as_slice();
        while let Some(first) = rest.first() {
            let block = *first as usize / BLOCK_ROWS;
            let (now, later) = rest.split_at(rest.partition_point(|row| *row as usize / BLOCK_ROWS == block));
            self.next.clear();
            self.next.extend(now.iter().map(|row| row % BLOCK_ROWS as u16));
            let at = scan.chunk(span.chunk).block(block);
            let reader = &mut self.columns[key.attribute];
            reader.gather(at, key.attribute, GatherMode::Numbers, &self.next)?;
            let values = reader.gathered(at.chunk, key.attribute, GatherMode::Numbers)?;
            keys.extend(values.codes.iter().enumerate().map(|(row, code)| match values.is_null(row) {
                true => i64::MAX,
                false if key.descending => !code,
                false => *code,
            }));
            rest = later;
        }
        let mut ordered = keys.clone();
        let (_, last, _) = ordered.select_nth_unstable(wanted - 1);
        let mut keys = keys.iter();
        self.passed.retain(|_| keys.next().is_some_and(|key| key <= last));
        Ok(())
    }
}
