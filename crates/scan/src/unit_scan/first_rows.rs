//! Top-N on encoded values: drops rows by their first sort key before datums are decoded.
//!
//! A row is dropped in two cases:
//! - At least N rows have been returned. The row's first key follows the first key of the Nth of the returned rows in the sort order,
//!   or equals that key and is the only key.
//! - The row's first key follows the first keys of N other rows of the span.
//!
//! Rows are dropped only in spans whose predicates are all decided: then no dropped row could have raised an error, and each of the N
//! other rows is returned unless N returned rows precede or equal that row.

use super::encoded_predicates::{EncodedPredicates, consecutive, has_numbers};
use super::{RowSpan, Scan, UnitScanner};
use crate::bounds::IntRange;
use crate::predicate::{CodeEncoding, ColumnTest, EncodedTest, StringList};
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
    bound: Bound,
}

/// The values that may be in one of the first rows.
enum Bound {
    /// Every value, NULLs included.
    None,
    /// Encoded values.
    Range(IntRange),
    /// For each code, whether its entry is within the bound.
    Table(Vec<bool>),
    Strings(ColumnTest),
}

impl FirstKeyColumn {
    /// Whether the test of a row is cheaper than most predicates.
    pub fn is_cheap(&self) -> bool {
        !matches!(self.bound, Bound::Strings(_))
    }
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
        let is_string = attribute.is_payload() && key.is_string();
        let is_encoded = is_string || has_numbers(attribute, column.kind);
        if attribute.exceptions() > 0 || !is_encoded || has_nulls && key.nulls_first {
            return Ok(FirstKeyTest::None);
        }
        let test = match top_n.last(wanted) {
            // Fewer than N rows were returned, or the last of them does not bound the values.
            None | Some(Value::Null) => None,
            Some(last) => match key.test(last) {
                None => return Ok(FirstKeyTest::None),
                test => test,
            },
        };
        let number = column.attribute;
        let bound = match test {
            None => Bound::None,
            Some(test) if is_string => {
                let passes = |entry: &[u8]| test.passes_bytes(entry) == Some(true);
                match self.columns[number].test_list(scan.chunk(span.chunk), number, passes)? {
                    Some(table) => match consecutive(&table) {
                        Some(range) if range.lo > range.hi => return Ok(FirstKeyTest::NoRowPasses),
                        Some(range) if range.hi - range.lo + 1 == table.len() as i64 => Bound::None,
                        Some(range) => Bound::Range(range),
                        None => Bound::Table(table),
                    },
                    None => Bound::Strings(test),
                }
            }
            Some(test) => match test.encoded(column, attribute.numeric_scale()) {
                EncodedTest::Int(range) if attribute.all_pass(&range) == Some(false) => {
                    return Ok(FirstKeyTest::NoRowPasses);
                }
                EncodedTest::Int(range) => Bound::Range(range),
                _ => return Ok(FirstKeyTest::None),
            },
        };
        self.columns[number].load(scan.chunk(span.chunk), number, span.rows.clone())?;
        Ok(FirstKeyTest::Column(FirstKeyColumn { attribute: number, descending: key.descending, has_nulls, bound }))
    }

    /// Clears the marks of rows that cannot be among the first rows, given the last of the first rows returned so far.
    pub(super) fn retain_first(
        &mut self,
        key: &FirstKeyColumn,
        at: BlockRef<'_>,
        marks: &mut [u8],
    ) -> Result<(), UnitError> {
        let reader = &mut self.columns[key.attribute];
        if key.has_nulls && !matches!(key.bound, Bound::None) {
            reader.retain_nulls(at, key.attribute, false, marks)?;
        }
        match &key.bound {
            Bound::None => Ok(()),
            Bound::Range(range) => reader.retain(at, key.attribute, range, marks),
            Bound::Table(table) => {
                reader.retain_each(at, key.attribute, |code| table.get(code as usize) == Some(&true), marks)
            }
            Bound::Strings(test) => reader.retain_strings(at, key.attribute, test, &[], marks),
        }
    }

    /// Drops the rows of `self.passed` whose first key follows the first keys of N other rows of the span.
    pub(super) fn keep_first(&mut self, scan: Scan<'_>, key: &FirstKeyColumn, span: &RowSpan) -> Result<(), UnitError> {
        let Some(wanted) = scan.plan.top_n().map(|wanted| wanted.rows()) else { return Ok(()) };
        if self.passed.len() <= 2 * wanted || wanted == 0 {
            return Ok(());
        }
        let entry = scan.chunk(span.chunk).attribute(key.attribute)?;
        let mode = match () {
            () if !entry.is_payload() => GatherMode::Numbers,
            () if entry.has_list() => GatherMode::Codes,
            () => return Ok(()),
        };
        let mut keys: Vec<i64> = Vec::with_capacity(self.passed.len());
        let mut nulls: Vec<u32> = Vec::new();
        let mut rest = self.passed.as_slice();
        while let Some(first) = rest.first() {
            let block = *first as usize / BLOCK_ROWS;
            let (now, later) = rest.split_at(rest.partition_point(|row| *row as usize / BLOCK_ROWS == block));
            self.next.clear();
            self.next.extend(now.iter().map(|row| row % BLOCK_ROWS as u16));
            let at = scan.chunk(span.chunk).block(block);
            let reader = &mut self.columns[key.attribute];
            reader.gather(at, key.attribute, mode, &self.next)?;
            let values = reader.gathered(at.chunk, key.attribute, mode)?;
            nulls.extend(
                (0..values.codes.len()).filter(|row| values.is_null(*row)).map(|row| (keys.len() + row) as u32),
            );
            keys.extend_from_slice(values.codes);
            if later.is_empty()
                && let CodeEncoding::Strings(strings) = values.encoding
            {
                rank(&mut keys, strings);
            }
            rest = later;
        }
        // Numbers that order as the first key does; NULLs are last.
        if key.descending {
            keys.iter_mut().for_each(|key| *key = !*key);
        }
        nulls.iter().for_each(|row| keys[*row as usize] = i64::MAX);
        let mut ordered = keys.clone();
        let (_, last, _) = ordered.select_nth_unstable(wanted - 1);
        let mut keys = keys.iter();
        self.passed.retain(|_| keys.next().is_some_and(|key| key <= last));
        Ok(())
    }
}

/// Replaces codes of strings by numbers that order as the strings do.
fn rank(codes: &mut [i64], strings: StringList<'_>) {
    let mut used: Vec<i64> = codes.to_vec();
    used.sort_unstable();
    used.dedup();
    let mut order: Vec<(&[u8], usize)> =
        used.iter().enumerate().map(|(at, code)| (strings.get(*code as usize).unwrap_or_default(), at)).collect();
    order.sort_unstable();
    let mut ranks = vec![0; used.len()];
    order.iter().enumerate().for_each(|(rank, (_, at))| ranks[*at] = rank as i64);
    for code in codes {
        *code = used.binary_search(code).map_or(0, |at| ranks[at]);
    }
}
