//! Tests of one column against constants. A test can be evaluated on the bytes of a page and on encoded values; minimum and
//! maximum of a region may show that no value passes.
//!
//! A test decides about values that are not NULL; the kernel drops NULLs.

use super::column::Column;
use super::like::{Pattern, SUBSTRING_BYTES_MIN};
use crate::bounds::{BytesSet, IntRange, IntSet, NumericRange, Range};
use crate::value::numeric::KEY_SCALE;
use crate::value::{Comparison, Domain, Trim, Value, ValueKind, date_against_timestamp, float_key};
use std::sync::Arc;

/// A test of encoded values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodedTest<'a> {
    /// The test needs datums.
    None,
    /// On numbers, or on numerics as integers.
    Int(IntRange),
    /// On numbers: membership in `values`.
    IntSet { values: &'a IntSet, negated: bool },
    /// On payloads: [`ColumnTest::passes_bytes`].
    Bytes,
}

/// A test of a column's values. With `negated` the test passes the other values.
#[derive(Debug, PartialEq)]
pub enum ColumnTest {
    Int(IntRange),
    Float(IntRange),
    Numeric(NumericRange),
    BytesEqual {
        constant: Vec<u8>,
        trim: Trim,
        negated: bool,
    },
    Bytes {
        range: Range<Vec<u8>>,
        trim: Trim,
    },
    IntSet {
        values: Arc<IntSet>,
        negated: bool,
    },
    /// Membership in `values`, which are trimmed.
    BytesSet {
        values: BytesSet,
        trim: Trim,
        negated: bool,
    },
    Like {
        pattern: Pattern,
        negated: bool,
    },
}

impl ColumnTest {
    /// The test `column comparison constant`. None: the constant is not of the domain.
    pub fn compare(domain: Domain, comparison: Comparison, constant: &Value<'_>) -> Option<Self> {
        Some(match (domain, constant) {
            (Domain::Int, Value::Int(value)) => Self::Int(IntRange::new(comparison, *value)),
            (Domain::Int, Value::Bool(value)) => Self::Int(IntRange::new(comparison, i64::from(*value))),
            (Domain::Float, Value::Float(value)) => Self::Float(IntRange::new(comparison, float_key(*value))),
            (Domain::Numeric, Value::Numeric(value)) => {
                Self::Numeric(NumericRange::new(Range::new(comparison, value.clone())))
            }
            (Domain::Bytes | Domain::BlankPadded, Value::Bytes(value)) => {
                let trim = domain.trim();
                let constant = trim.apply(value).to_vec();
                match comparison {
                    Comparison::Equal => Self::BytesEqual { constant, trim, negated: false },
                    Comparison::NotEqual => Self::BytesEqual { constant, trim, negated: true },
                    _ => Self::Bytes { range: Range::new(comparison, constant), trim },
                }
            }
            (Domain::DateTimestamp, Value::Int(timestamp)) => {
                Self::Int(IntRange::of_monotonic(comparison, i32::MIN as i64, i32::MAX as i64, |date| {
                    date_against_timestamp(date, *timestamp)
                }))
            }
            (Domain::TimestampDate, Value::Int(date)) => {
                Self::Int(IntRange::of_monotonic(comparison, i64::MIN, i64::MAX, |timestamp| {
                    date_against_timestamp(*date, timestamp).reverse()
                }))
            }
            _ => return None,
        })
    }

    /// The test for membership in constants that are not NULL. None: not supported for the domain.
    pub fn set(domain: Domain, constants: &[&Value<'_>], negated: bool) -> Option<Self> {
        match domain {
            Domain::Int => {
                let int = |value: &&Value<'_>| match value {
                    Value::Int(value) => Some(*value),
                    Value::Bool(value) => Some(i64::from(*value)),
                    _ => None,
                };
                let values = Arc::new(IntSet::new(constants.iter().map(int).collect::<Option<Vec<_>>>()?));
                Some(Self::IntSet { values, negated })
            }
            Domain::Bytes | Domain::BlankPadded => {
                let trim = domain.trim();
                let bytes = |value: &&Value<'_>| match value {
                    Value::Bytes(value) => Some(trim.apply(value).to_vec()),
                    _ => None,
                };
                let values = BytesSet::new(constants.iter().map(bytes).collect::<Option<Vec<_>>>()?);
                Some(Self::BytesSet { values, trim, negated })
            }
            _ => None,
        }
    }

    /// A test that passes exactly the values that both tests pass. None: no single test is equivalent.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Int(left), Self::Int(right)) => left.intersect(right).map(Self::Int),
            (Self::Float(left), Self::Float(right)) => left.intersect(right).map(Self::Float),
            (Self::Numeric(left), Self::Numeric(right)) => {
                left.range.intersect(&right.range).map(|range| Self::Numeric(NumericRange::new(range)))
            }
            (Self::Bytes { range: left, trim }, Self::Bytes { range: right, trim: other }) if trim == other => {
                left.intersect(right).map(|range| Self::Bytes { range, trim: *trim })
            }
            _ => None,
        }
    }

    /// Whether a value passes. None: the value has another type than the test.
    pub fn passes(&self, value: &Value<'_>) -> Option<bool> {
        Some(match (self, value) {
            (Self::Int(range), Value::Int(value)) => range.passes(*value),
            (Self::Int(range), Value::Bool(value)) => range.passes(i64::from(*value)),
            (Self::Float(range), Value::Float(value)) => range.passes(float_key(*value)),
            (Self::Numeric(range), Value::Numeric(value)) => range.passes(value),
            (Self::IntSet { values, negated }, Value::Int(value)) => values.contains(*value) != *negated,
            (Self::IntSet { values, negated }, Value::Bool(value)) => values.contains(i64::from(*value)) != *negated,
            (_, Value::Bytes(value)) => self.passes_bytes(value)?,
            _ => return None,
        })
    }

    /// Whether a string passes. None: the test is not on strings.
    #[inline(always)]
    pub fn passes_bytes(&self, value: &[u8]) -> Option<bool> {
        Some(match self {
            Self::BytesEqual { constant, trim, negated } => trim.equal(value, constant) != *negated,
            Self::Bytes { range, trim } => {
                let value = trim.apply(value);
                // `memcmp` is slow for an empty constant; see [`Trim::equal`].
                range.passes(|end| if end.is_empty() { value.len().cmp(&0) } else { value.cmp(end.as_slice()) })
            }
            Self::BytesSet { values, trim, negated } => values.contains(trim.apply(value)) != *negated,
            Self::Like { pattern, negated } => pattern.matches(value) != *negated,
            _ => return None,
        })
    }

    /// If the test only distinguishes the empty string from other strings: whether the empty string passes.
    pub fn passes_empty_only(&self) -> Option<bool> {
        match self {
            Self::BytesEqual { constant, trim: Trim::Nothing, negated } if constant.is_empty() => Some(!*negated),
            _ => None,
        }
    }

    /// A searcher for a substring that every passing value contains.
    pub fn required_substring(&self) -> Option<&memchr::memmem::Finder<'static>> {
        match self {
            Self::Like { pattern, negated: false } => pattern.required_substring(),
            _ => None,
        }
    }

    /// Strings that every value accepted by the test, before negation, contains in this order and without overlap.
    /// Empty: unknown, or too short to be worth a search.
    pub fn pieces(&self) -> Vec<&[u8]> {
        let pieces = match self {
            Self::Like { pattern, .. } => pattern.pieces(),
            Self::BytesEqual { constant, .. } => vec![constant.as_slice()],
            _ => Vec::new(),
        };
        match pieces.iter().map(|piece| piece.len()).sum() {
            ..SUBSTRING_BYTES_MIN => Vec::new(),
            _ => pieces,
        }
    }

    /// Whether values without the [`Self::pieces`] pass.
    pub fn is_negated(&self) -> bool {
        matches!(self, Self::Like { negated: true, .. } | Self::BytesEqual { negated: true, .. })
    }

    /// The test of a unit's encoded values. With `scale`, numerics are encoded as integers times `10^scale`.
    pub fn encoded(&self, column: &Column, scale: Option<u8>) -> EncodedTest<'_> {
        match (self, column.kind, scale) {
            (Self::Int(range), Some(kind), None) if kind.is_int() && kind != ValueKind::Bool => {
                EncodedTest::Int(*range)
            }
            (Self::Numeric(range), Some(ValueKind::Numeric), Some(scale)) => {
                match range.keys.and_then(|keys| keys.divided(KEY_SCALE.checked_sub(scale as u32)?)) {
                    Some(range) => EncodedTest::Int(range),
                    None => EncodedTest::None,
                }
            }
            (Self::IntSet { values, negated }, Some(kind), None) if kind.is_int() && kind != ValueKind::Bool => {
                EncodedTest::IntSet { values, negated: *negated }
            }
            (_, Some(ValueKind::Text | ValueKind::Bytea), None) => EncodedTest::Bytes,
            _ => EncodedTest::None,
        }
    }

    /// Whether minimum and maximum can show that no value passes.
    pub fn is_prunable(&self) -> bool {
        match self {
            Self::Int(_) | Self::Float(_) | Self::Numeric(_) => true,
            Self::Bytes { range, .. } => range.inside,
            Self::BytesEqual { negated, .. } | Self::IntSet { negated, .. } | Self::BytesSet { negated, .. } => {
                !negated
            }
            Self::Like { pattern, negated } => !negated && pattern.prefix().is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{Numeric, compare};

    #[track_caller]
    fn check(domain: Domain, values: &[Value<'_>], constants: &[Value<'_>]) {
        for comparison in Comparison::ALL {
            for constant in constants {
                let test = ColumnTest::compare(domain, comparison, constant).unwrap();
                for value in values {
                    let expected = comparison.holds(compare(domain, value, constant).unwrap());
                    assert_eq!(test.passes(value), Some(expected), "{value:?} {comparison:?} {constant:?}");
                }
            }
        }
    }

    #[test]
    fn a_range_means_what_the_comparison_means() {
        let ints = [i64::MIN, -1, 0, 1, i64::MAX].map(Value::Int);
        check(Domain::Int, &ints, &ints);
        let floats = [f64::NEG_INFINITY, -1.0, -0.0, 0.0, 1e-300, f64::INFINITY, f64::NAN].map(Value::Float);
        check(Domain::Float, &floats, &floats);
        let numerics = ["-1e9", "0", "0.00000001", "0.000000001", "1", "99999999.99999999", "1e20"];
        let numerics = numerics.map(|text| Value::Numeric(Numeric::parse(text).unwrap()));
        check(Domain::Numeric, &numerics, &numerics);
    }

    #[test]
    fn strings_compare_with_empty_and_blank_constants() {
        let strings = ["", " ", "  ", "a", "a ", " a", "b", "\u{1}"].map(|text| Value::Bytes(text.as_bytes().into()));
        check(Domain::Bytes, &strings, &strings);
        check(Domain::BlankPadded, &strings, &strings);
    }

    #[test]
    fn a_date_against_a_timestamp_becomes_a_range_of_dates() {
        const DAY: i64 = 86_400_000_000;
        let end = 109_203_528 - 2_451_545;
        let dates = [i32::MIN as i64, -2_451_545, -1, 0, 1, end - 1, end, i32::MAX as i64 - 1, i32::MAX as i64];
        let timestamps = [i64::MIN, -DAY - 1, -DAY, -1, 0, 1, DAY - 1, DAY, end * DAY - 1, i64::MAX];
        check(Domain::DateTimestamp, &dates.map(Value::Int), &timestamps.map(Value::Int));
        check(Domain::TimestampDate, &timestamps.map(Value::Int), &dates.map(Value::Int));
    }
}
