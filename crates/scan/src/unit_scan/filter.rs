//! Filters: predicates on encoded values, which select rows of a block without decoding datums.
//!
//! The chunk's bounds and dictionaries are evaluated once, when the filters of a span are made. Filters cannot raise an error,
//! so they run before other stages, up to the first stage that can.

use super::marks::any;
use super::{RowSpan, Scan, UnitScanner};
use crate::bounds::IntRange;
use crate::predicate::{ColumnTest, EncodedTest, Kernel};
use crate::unit::{AttributeChunk, BlockRef, UnitError};
use crate::value::ValueKind;

/// A test of one attribute's encoded values. NULLs are excluded by a separate [`Filter::Null`].
pub(super) enum Filter<'p> {
    Null {
        wanted: bool,
    },
    /// The numbers, or codes, of a range pass.
    Range(IntRange),
    /// For each code, whether its entry passes.
    Table(Vec<bool>),
    Set {
        values: &'p [i64],
        negated: bool,
    },
    Strings {
        test: &'p ColumnTest,
        pieces: Vec<&'p [u8]>,
    },
}

impl Filter<'_> {
    /// Relative cost; cheap filters run first.
    fn cost(&self) -> u32 {
        match self {
            Self::Null { .. } | Self::Range(_) => 0,
            Self::Table(_) | Self::Set { .. } => 1,
            Self::Strings { .. } => 2,
        }
    }
}

/// The filters of a span, with their attributes.
pub(super) struct Filters<'p> {
    filters: Vec<(usize, Filter<'p>)>,
    /// For each stage, whether the filters decide it completely.
    pub decided: Vec<bool>,
}

impl Filters<'_> {
    pub fn decide_all_stages(&self) -> bool {
        self.decided.iter().all(|decided| *decided)
    }
}

/// A kernel as filters of a chunk.
enum Translation<'p> {
    /// The encoded values do not decide the kernel.
    None,
    NoRowPasses,
    /// The rows pass that pass all of these.
    Filters(Vec<(usize, Filter<'p>)>),
}

impl UnitScanner {
    /// Makes the filters of a span; None when no row passes.
    pub(super) fn filters<'p>(&mut self, scan: Scan<'p>, span: &RowSpan) -> Result<Option<Filters<'p>>, UnitError> {
        let stages = &scan.plan.stages;
        let mut found = Filters { filters: Vec::new(), decided: vec![false; stages.len()] };
        for (stage, decided) in stages.iter().zip(&mut found.decided).take_while(|(stage, _)| !stage.fallible) {
            match self.translate(scan, span, &stage.kernel)? {
                Translation::None => {}
                Translation::NoRowPasses => return Ok(None),
                Translation::Filters(filters) => {
                    *decided = true;
                    found.filters.extend(filters);
                }
            }
        }
        found.filters.sort_by_key(|(_, filter)| filter.cost());
        for (attribute, filter) in &found.filters {
            if !matches!(filter, Filter::Null { .. }) {
                let reader = &mut self.columns[*attribute];
                reader.load(scan.chunk(span.chunk), *attribute, span.rows.clone())?;
            }
        }
        Ok(Some(found))
    }

    /// Clears the marks of rows that do not pass; returns whether a mark remains.
    pub(super) fn filter(
        &mut self,
        filters: &Filters<'_>,
        at: BlockRef<'_>,
        marks: &mut [u8],
    ) -> Result<bool, UnitError> {
        for (attribute, filter) in &filters.filters {
            if !any(marks) {
                return Ok(false);
            }
            let reader = &mut self.columns[*attribute];
            match filter {
                Filter::Null { wanted } => reader.retain_nulls(at, *attribute, *wanted, marks)?,
                Filter::Range(range) => reader.retain(at, *attribute, range, marks)?,
                Filter::Table(table) => {
                    reader.retain_each(at, *attribute, |code| table.get(code as usize) == Some(&true), marks)?
                }
                Filter::Set { values, negated } => match values.len() {
                    ..=8 => reader.retain_each(at, *attribute, |value| values.contains(&value) != *negated, marks)?,
                    _ => {
                        let contains = |value| values.binary_search(&value).is_ok();
                        reader.retain_each(at, *attribute, |value| contains(value) != *negated, marks)?
                    }
                },
                Filter::Strings { test, pieces } => reader.retain_strings(at, *attribute, test, pieces, marks)?,
            }
        }
        Ok(any(marks))
    }

    fn translate<'p>(
        &mut self,
        scan: Scan<'p>,
        span: &RowSpan,
        kernel: &'p Kernel,
    ) -> Result<Translation<'p>, UnitError> {
        match kernel {
            Kernel::Constant(true) => Ok(Translation::Filters(Vec::new())),
            Kernel::Constant(false) => Ok(Translation::NoRowPasses),
            Kernel::Null { slot, wanted } => {
                let Some((column, attribute)) = scan.column(span.chunk, *slot) else { return Ok(Translation::None) };
                Ok(match (attribute.nulls as usize, wanted) {
                    (0, true) => Translation::NoRowPasses,
                    (0, false) => Translation::Filters(Vec::new()),
                    _ => Translation::Filters(vec![(column.attribute, Filter::Null { wanted: *wanted })]),
                })
            }
            Kernel::And(arms) => {
                let mut all = Vec::new();
                for arm in arms {
                    match self.translate(scan, span, arm)? {
                        Translation::Filters(filters) => all.extend(filters),
                        other => return Ok(other),
                    }
                }
                Ok(Translation::Filters(all))
            }
            Kernel::Column { slot, test } => {
                let column = scan.column(span.chunk, *slot);
                let Some((column, attribute)) = column.filter(|(_, attribute)| attribute.exceptions() == 0) else {
                    return Ok(Translation::None);
                };
                let filter = match test.encoded(column, attribute.numeric_scale()) {
                    EncodedTest::Int(range) if holds_numbers(attribute, column.kind) => {
                        match attribute.all_pass(&range) {
                            Some(false) => return Ok(Translation::NoRowPasses),
                            Some(true) => None,
                            None => Some(Filter::Range(range)),
                        }
                    }
                    EncodedTest::IntSet { values, negated } if holds_numbers(attribute, column.kind) => {
                        Some(Filter::Set { values, negated })
                    }
                    EncodedTest::Bytes if attribute.is_payload() && test.passes_bytes(b"").is_some() => {
                        let reader = &mut self.columns[column.attribute];
                        let passes = |entry: &[u8]| test.passes_bytes(entry) == Some(true);
                        match reader.test_list(scan.chunk(span.chunk), column.attribute, passes)? {
                            Some(table) => match consecutive(&table) {
                                Some(range) if range.lo > range.hi => return Ok(Translation::NoRowPasses),
                                Some(range) if range.hi - range.lo + 1 == table.len() as i64 => None,
                                Some(range) => Some(Filter::Range(range)),
                                None => Some(Filter::Table(table)),
                            },
                            None => Some(Filter::Strings { test, pieces: test.pieces() }),
                        }
                    }
                    _ => return Ok(Translation::None),
                };
                let no_nulls = (attribute.nulls > 0).then_some(Filter::Null { wanted: false });
                let filters = no_nulls.into_iter().chain(filter);
                Ok(Translation::Filters(filters.map(|filter| (column.attribute, filter)).collect()))
            }
            Kernel::Compare { .. } | Kernel::Or(_) | Kernel::Interpret(_) => Ok(Translation::None),
        }
    }
}

/// Whether the attribute's integers are the values of a column of this kind, possibly scaled.
pub(super) fn holds_numbers(attribute: &AttributeChunk, kind: Option<ValueKind>) -> bool {
    // Any byte except 0 is true, so other bytes than 0 and 1 cannot be compared as numbers.
    let is_bool = || attribute.number_bounds().is_some_and(|(min, max)| min >= 0 && max <= 1);
    match kind {
        Some(ValueKind::Bool) => is_bool(),
        Some(ValueKind::Numeric) => attribute.numeric_scale().is_some(),
        Some(kind) => kind.is_int() && attribute.is_number(),
        None => false,
    }
}

/// The positions of passing entries as a range, if they are consecutive; an empty range if none passes.
fn consecutive(table: &[bool]) -> Option<IntRange> {
    let lo = table.iter().position(|passes| *passes).unwrap_or(1) as i64;
    let hi = table.iter().rposition(|passes| *passes).map_or(lo - 1, |last| last as i64);
    let count = table.iter().filter(|passes| **passes).count() as i64;
    (hi - lo + 1 == count).then_some(IntRange { lo, hi, inside: true })
}
