//! Tests of one column against constants: the common predicates, in the form that is quick to apply to a page's bytes
//! and to a region's minimum and maximum.
//!
//! A test says whether a value that is not NULL passes; what a NULL does is the kernel's matter.

use super::column::Column;
use super::functions::{Comparison, Domain, date_against_timestamp};
use super::like::{LANDMARK_MIN, Pattern};
use super::numeric::{KEY_SCALE, Numeric};
use super::value::{Kind, Value, float_key, without_trailing_blanks};
use crate::storage_index::{Bounds, ColumnSummary};
use std::cmp::Ordering;

/// Integers, or floats through their keys: `lo..=hi`, or everything but that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntRange {
    pub lo: i64,
    pub hi: i64,
    pub inside: bool,
}

impl IntRange {
    const EMPTY: Self = Self { lo: 1, hi: 0, inside: true };

    pub fn new(comparison: Comparison, constant: i64) -> Self {
        let range = |lo: Option<i64>, hi: Option<i64>| match (lo, hi) {
            (Some(lo), Some(hi)) => Self { lo, hi, inside: true },
            _ => Self::EMPTY,
        };
        match comparison {
            Comparison::Equal => range(Some(constant), Some(constant)),
            Comparison::NotEqual => Self { lo: constant, hi: constant, inside: false },
            Comparison::Less => range(Some(i64::MIN), constant.checked_sub(1)),
            Comparison::LessOrEqual => range(Some(i64::MIN), Some(constant)),
            Comparison::Greater => range(constant.checked_add(1), Some(i64::MAX)),
            Comparison::GreaterOrEqual => range(Some(constant), Some(i64::MAX)),
        }
    }

    /// The values of a monotonous order against something: `order(v)` never falls as `v` rises over `min..=max`.
    fn of_monotonous(comparison: Comparison, min: i64, max: i64, order: impl Fn(i64) -> Ordering) -> Self {
        // The first value that is not less, and the first that is greater; one past `max` when there is none.
        let first = |reached: &dyn Fn(Ordering) -> bool| -> i128 {
            let (mut lo, mut hi) = (min as i128, max as i128 + 1);
            while lo < hi {
                let middle = lo + (hi - lo) / 2;
                if reached(order(middle as i64)) { hi = middle } else { lo = middle + 1 }
            }
            lo
        };
        let not_less = first(&|ordering| ordering.is_ge());
        let greater = first(&|ordering| ordering.is_gt());
        let (lo, hi, inside) = match comparison {
            Comparison::Equal => (not_less, greater - 1, true),
            Comparison::NotEqual => (not_less, greater - 1, false),
            Comparison::Less => (min as i128, not_less - 1, true),
            Comparison::LessOrEqual => (min as i128, greater - 1, true),
            Comparison::Greater => (greater, max as i128, true),
            Comparison::GreaterOrEqual => (not_less, max as i128, true),
        };
        if lo > hi {
            return Self { inside, ..Self::EMPTY };
        }
        Self { lo: lo as i64, hi: hi as i64, inside }
    }

    #[inline(always)]
    pub fn passes(&self, value: i64) -> bool {
        (self.lo <= value && value <= self.hi) == self.inside
    }

    /// The range of those values whose product with `10^decimals` lies in this one. An end at the type's own end is
    /// open.
    fn divided(&self, decimals: u32) -> Option<Self> {
        let factor = 10i64.checked_pow(decimals)?;
        let lo = match self.lo {
            i64::MIN => i64::MIN,
            lo => lo.div_euclid(factor) + i64::from(lo.rem_euclid(factor) != 0),
        };
        let hi = if self.hi == i64::MAX { i64::MAX } else { self.hi.div_euclid(factor) };
        Some(Self { lo, hi, inside: self.inside })
    }

    fn may_pass(&self, min: i64, max: i64) -> bool {
        match self.inside {
            true => self.lo <= self.hi && max >= self.lo && min <= self.hi,
            false => !(self.lo <= min && max <= self.hi),
        }
    }

    fn intersect(&self, other: &Self) -> Option<Self> {
        (self.inside && other.inside).then(|| Self {
            lo: self.lo.max(other.lo),
            hi: self.hi.min(other.hi),
            inside: true,
        })
    }
}

/// A test in the terms of encoded values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodedTest<'a> {
    None,
    /// On numbers, or on numerics as integers.
    Int(IntRange),
    /// On numbers: one of these, which ascend, or none of them.
    IntSet {
        values: &'a [i64],
        negated: bool,
    },
    /// On payloads: [`Test::passes_bytes`].
    Bytes,
}

/// One end of a range: the value, and whether it belongs to the range.
pub type End<T> = Option<(T, bool)>;

/// Between two ends in the order of the type, or everything but that.
#[derive(Debug, Clone)]
pub struct Range<T> {
    pub low: End<T>,
    pub high: End<T>,
    pub inside: bool,
}

impl<T: Clone> Range<T> {
    fn new(comparison: Comparison, constant: T) -> Self {
        let (low, high, inside) = match comparison {
            Comparison::Equal => (Some((constant.clone(), true)), Some((constant, true)), true),
            Comparison::NotEqual => (Some((constant.clone(), true)), Some((constant, true)), false),
            Comparison::Less => (None, Some((constant, false)), true),
            Comparison::LessOrEqual => (None, Some((constant, true)), true),
            Comparison::Greater => (Some((constant, false)), None, true),
            Comparison::GreaterOrEqual => (Some((constant, true)), None, true),
        };
        Self { low, high, inside }
    }

    #[inline(always)]
    pub fn passes(&self, order: impl Fn(&T) -> Ordering) -> bool {
        let above = self.low.as_ref().is_none_or(|(end, belongs)| reaches(order(end), *belongs));
        let below = || self.high.as_ref().is_none_or(|(end, belongs)| reaches(order(end).reverse(), *belongs));
        (above && below()) == self.inside
    }

    /// The overlap of two ranges that are each open at one end.
    fn intersect(&self, other: &Self) -> Option<Self> {
        match (self.inside && other.inside, self, other) {
            (true, Self { low, high: None, .. }, Self { low: None, high, .. })
            | (true, Self { low: None, high, .. }, Self { low, high: None, .. }) => {
                Some(Self { low: low.clone(), high: high.clone(), inside: true })
            }
            _ => None,
        }
    }
}

fn reaches(ordering: Ordering, belongs: bool) -> bool {
    ordering.is_gt() || (belongs && ordering.is_eq())
}

/// A numeric range with the keys of its ends, where both have one.
#[derive(Debug, Clone)]
pub struct NumericRange {
    pub range: Range<Numeric>,
    /// Decides every value that has a key itself.
    pub keys: Option<IntRange>,
}

impl NumericRange {
    fn new(range: Range<Numeric>) -> Self {
        let low = match &range.low {
            None => Some(i64::MIN),
            Some((end, belongs)) => end.key().map(|key| key + i64::from(!belongs)),
        };
        let high = match &range.high {
            None => Some(i64::MAX),
            Some((end, belongs)) => end.key().map(|key| key - i64::from(!belongs)),
        };
        let keys = low.zip(high).map(|(lo, hi)| IntRange { lo, hi, inside: range.inside });
        Self { range, keys }
    }

    fn passes(&self, value: &Numeric) -> bool {
        self.range.passes(|end| value.compare(end))
    }
}

/// How two byte strings compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trim {
    Nothing,
    /// `bpchar`: without trailing blanks.
    Blanks,
}

impl Trim {
    #[inline(always)]
    pub fn apply(self, bytes: &[u8]) -> &[u8] {
        match self {
            Self::Nothing => bytes,
            Self::Blanks => without_trailing_blanks(bytes),
        }
    }

    /// Whether `value` is equal to `constant`, which is trimmed. The first byte tells most values apart.
    #[inline(always)]
    fn equal(self, value: &[u8], constant: &[u8]) -> bool {
        if value.first() != constant.first() && !constant.is_empty() {
            return false;
        }
        match self {
            Self::Nothing => value == constant,
            Self::Blanks => match value.split_at_checked(constant.len()) {
                Some((start, rest)) => start == constant && rest.iter().all(|byte| *byte == b' '),
                None => false,
            },
        }
    }
}

#[derive(Debug)]
pub enum Test {
    Int(IntRange),
    Float(IntRange),
    Numeric(NumericRange),
    /// Equal to it, or not.
    BytesEqual {
        constant: Vec<u8>,
        trim: Trim,
        negated: bool,
    },
    Bytes {
        range: Range<Vec<u8>>,
        trim: Trim,
    },
    /// Sorted; one of them, or none of them.
    IntSet {
        values: Vec<i64>,
        negated: bool,
    },
    BytesSet {
        values: Vec<Vec<u8>>,
        trim: Trim,
        negated: bool,
    },
    Like {
        pattern: Pattern,
        negated: bool,
    },
}

impl Test {
    /// `column comparison constant`; None: the constant is not of the domain.
    pub fn compare(domain: Domain, comparison: Comparison, constant: &Value<'_>) -> Option<Self> {
        Some(match (domain, constant) {
            (Domain::Int, Value::Int(value)) => Self::Int(IntRange::new(comparison, *value)),
            (Domain::Int, Value::Bool(value)) => Self::Int(IntRange::new(comparison, i64::from(*value))),
            (Domain::Float, Value::Float(value)) => Self::Float(IntRange::new(comparison, float_key(*value))),
            (Domain::Numeric, Value::Numeric(value)) => {
                Self::Numeric(NumericRange::new(Range::new(comparison, value.clone())))
            }
            (Domain::Bytes | Domain::Blanks, Value::Bytes(value)) => {
                let trim = trim_of(domain);
                let constant = trim.apply(value).to_vec();
                match comparison {
                    Comparison::Equal => Self::BytesEqual { constant, trim, negated: false },
                    Comparison::NotEqual => Self::BytesEqual { constant, trim, negated: true },
                    _ => Self::Bytes { range: Range::new(comparison, constant), trim },
                }
            }
            (Domain::DateTimestamp, Value::Int(timestamp)) => {
                Self::Int(IntRange::of_monotonous(comparison, i32::MIN as i64, i32::MAX as i64, |date| {
                    date_against_timestamp(date, *timestamp)
                }))
            }
            (Domain::TimestampDate, Value::Int(date)) => {
                Self::Int(IntRange::of_monotonous(comparison, i64::MIN, i64::MAX, |timestamp| {
                    date_against_timestamp(*date, timestamp).reverse()
                }))
            }
            _ => return None,
        })
    }

    /// Membership in a list of constants that are not NULL.
    pub fn set(domain: Domain, constants: &[&Value<'_>], negated: bool) -> Option<Self> {
        match domain {
            Domain::Int => {
                let int = |value: &&Value<'_>| match value {
                    Value::Int(value) => Some(*value),
                    Value::Bool(value) => Some(i64::from(*value)),
                    _ => None,
                };
                let mut values = constants.iter().map(int).collect::<Option<Vec<_>>>()?;
                values.sort_unstable();
                values.dedup();
                Some(Self::IntSet { values, negated })
            }
            Domain::Bytes | Domain::Blanks => {
                let trim = trim_of(domain);
                let bytes = |value: &&Value<'_>| match value {
                    Value::Bytes(value) => Some(trim.apply(value).to_vec()),
                    _ => None,
                };
                let mut values = constants.iter().map(bytes).collect::<Option<Vec<_>>>()?;
                values.sort_unstable();
                values.dedup();
                Some(Self::BytesSet { values, trim, negated })
            }
            _ => None,
        }
    }

    /// One test for two on the same column, where there is a simple one.
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

    /// None: not a value that the test knows.
    pub fn passes(&self, value: &Value<'_>) -> Option<bool> {
        Some(match (self, value) {
            (Self::Int(range), Value::Int(value)) => range.passes(*value),
            (Self::Int(range), Value::Bool(value)) => range.passes(i64::from(*value)),
            (Self::Float(range), Value::Float(value)) => range.passes(float_key(*value)),
            (Self::Numeric(range), Value::Numeric(value)) => range.passes(value),
            (Self::IntSet { values, negated }, Value::Int(value)) => values.binary_search(value).is_ok() != *negated,
            (Self::IntSet { values, negated }, Value::Bool(value)) => values.contains(&i64::from(*value)) != *negated,
            (_, Value::Bytes(value)) => self.passes_bytes(value)?,
            _ => return None,
        })
    }

    #[inline(always)]
    pub fn passes_bytes(&self, value: &[u8]) -> Option<bool> {
        Some(match self {
            Self::BytesEqual { constant, trim, negated } => trim.equal(value, constant) != *negated,
            Self::Bytes { range, trim } => {
                let value = trim.apply(value);
                range.passes(|end| value.cmp(end.as_slice()))
            }
            Self::BytesSet { values, trim, negated } => {
                let found = match values.len() {
                    0..=8 => values.iter().any(|known| trim.equal(value, known)),
                    _ => values.binary_search_by(|known| known.as_slice().cmp(trim.apply(value))).is_ok(),
                };
                found != *negated
            }
            Self::Like { pattern, negated } => pattern.matches(value) != *negated,
            _ => return None,
        })
    }

    /// Something that every value that passes contains.
    pub fn landmark(&self) -> Option<&memchr::memmem::Finder<'static>> {
        match self {
            Self::Like { pattern, negated: false } => pattern.landmark(),
            _ => None,
        }
    }

    /// What every value that passes, or when negated every one that does not, contains in this order, one after the
    /// other, if that is worth searching for.
    pub fn pieces(&self) -> Vec<&[u8]> {
        let pieces = match self {
            Self::Like { pattern, .. } => pattern.pieces(),
            Self::BytesEqual { constant, .. } => vec![constant.as_slice()],
            _ => Vec::new(),
        };
        match pieces.iter().map(|piece| piece.len()).sum() {
            ..LANDMARK_MIN => Vec::new(),
            _ => pieces,
        }
    }

    /// Whether what does not contain its [`Self::pieces`] passes.
    pub fn is_negated(&self) -> bool {
        matches!(self, Self::Like { negated: true, .. } | Self::BytesEqual { negated: true, .. })
    }

    /// How the test is done on a compression unit's values: on numbers as they are and numerics times `10^scale`.
    pub fn encoded(&self, column: &Column, scale: Option<u8>) -> EncodedTest<'_> {
        match (self, column.kind, scale) {
            (Self::Int(range), Some(kind), None) if kind.is_int() && kind != Kind::Bool => EncodedTest::Int(*range),
            (Self::Numeric(range), Some(Kind::Numeric), Some(scale)) => {
                match range.keys.and_then(|keys| keys.divided(KEY_SCALE.checked_sub(scale as u32)?)) {
                    Some(range) => EncodedTest::Int(range),
                    None => EncodedTest::None,
                }
            }
            (Self::IntSet { values, negated }, Some(kind), None) if kind.is_int() && kind != Kind::Bool => {
                EncodedTest::IntSet { values, negated: *negated }
            }
            (_, Some(Kind::Text | Kind::Bytea), None) => EncodedTest::Bytes,
            _ => EncodedTest::None,
        }
    }

    /// Whether a region's minimum and maximum can tell that no value passes.
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

    /// Whether some value in a region may pass.
    pub fn may_pass(&self, summary: &ColumnSummary) -> bool {
        if !summary.has_nonnull {
            return false;
        }
        match (self, &summary.bounds) {
            (Self::Int(range) | Self::Float(range), Bounds::Int { min, max }) => range.may_pass(*min, *max),
            (Self::Numeric(range), Bounds::Numeric(ends)) => range.may_pass(&ends.0, &ends.1),
            (Self::IntSet { values, negated: false }, Bounds::Int { min, max }) => {
                let first = values.partition_point(|value| value < min);
                values.get(first).is_some_and(|value| value <= max)
            }
            (Self::BytesEqual { constant, trim, negated: false }, Bounds::Bytes { min, max, .. })
                if summary.is_trimmed_as(*trim) =>
            {
                !max.is_below(constant) && !min.is_above(constant)
            }
            (Self::BytesSet { values, trim, negated: false }, Bounds::Bytes { min, max, .. })
                if summary.is_trimmed_as(*trim) =>
            {
                values.iter().any(|value| !max.is_below(value) && !min.is_above(value))
            }
            // A blank-padded value's bounds are trimmed, but the pattern sees the padding.
            (Self::Like { pattern, negated: false }, Bounds::Bytes { min, max })
                if summary.is_trimmed_as(Trim::Nothing) =>
            {
                pattern.prefix().is_none_or(|prefix| !max.is_below(prefix) && !min.is_beyond(prefix))
            }
            (Self::Bytes { range: Range { low, high, inside: true }, trim }, Bounds::Bytes { min, max, .. })
                if summary.is_trimmed_as(*trim) =>
            {
                let all_below = low.as_ref().is_some_and(|(low, _)| max.is_below(low));
                let all_above = high.as_ref().is_some_and(|(high, _)| min.is_above(high));
                !all_below && !all_above
            }
            _ => true,
        }
    }
}

impl NumericRange {
    fn may_pass(&self, min: &Numeric, max: &Numeric) -> bool {
        let Range { low, high, inside } = &self.range;
        let overlaps = low.as_ref().is_none_or(|(end, belongs)| reaches(max.compare(end), *belongs))
            && high.as_ref().is_none_or(|(end, belongs)| reaches(min.compare(end).reverse(), *belongs));
        match inside {
            true => overlaps,
            false => !(self.range_holds(min) && self.range_holds(max)),
        }
    }

    fn range_holds(&self, value: &Numeric) -> bool {
        self.passes(value) == self.range.inside
    }
}

fn trim_of(domain: Domain) -> Trim {
    if domain == Domain::Blanks { Trim::Blanks } else { Trim::Nothing }
}

#[cfg(test)]
mod tests {
    use super::super::functions::{Encoding, compare};
    use super::*;
    use crate::storage_index::Prefix;
    use cellar_format::postgres::type_oid;

    #[track_caller]
    fn check(domain: Domain, values: &[Value<'_>], constants: &[Value<'_>]) {
        for comparison in Comparison::ALL {
            for constant in constants {
                let test = Test::compare(domain, comparison, constant).unwrap();
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
    fn a_pattern_that_starts_with_a_literal_prunes() {
        let may_pass = |pattern: &str, min: &str, max: &str| {
            let pattern = Pattern::new(pattern.as_bytes(), Encoding::Utf8).unwrap();
            let (min, max) = (Prefix::new(min.as_bytes()), Prefix::new(max.as_bytes()));
            let bounds = Bounds::Bytes { min, max };
            let summary =
                ColumnSummary { number: 1, type_oid: type_oid::TEXT, has_null: false, has_nonnull: true, bounds };
            Test::Like { pattern, negated: false }.may_pass(&summary)
        };
        assert!(!may_pass("b%", "c", "d") && !may_pass("b%", "a", "az"));
        assert!(may_pass("b%", "a", "b") && may_pass("b%", "bz", "c") && may_pass("b%", "ba", "bb"));
        assert!(may_pass("%b", "c", "d") && may_pass("_b", "c", "d"));
        // Bounds are cut after sixteen bytes.
        let (common, cut) = ("abcdefghijklmnop", "abcdefghijklmnopz");
        assert!(may_pass("abcdefghijklmnopq%", cut, cut) && may_pass("abcdefghijklmnopzz%", common, cut));
        assert!(!may_pass("abcdefghijklmnoo%", cut, cut) && !may_pass("abcdefghijklmnoq%", cut, cut));
    }

    #[test]
    fn a_numeric_range_means_the_same_on_scaled_integers() {
        let range = IntRange { lo: -1_500_000, hi: 2_499_999, inside: true };
        assert_eq!(range.divided(6), Some(IntRange { lo: -1, hi: 2, inside: true }));
        assert_eq!(IntRange { inside: false, ..range }.divided(6), Some(IntRange { lo: -1, hi: 2, inside: false }));
        let open = IntRange { lo: i64::MIN, hi: i64::MAX, inside: true };
        assert_eq!(open.divided(6), Some(open));
        // Between two values of the scale lies none.
        let between = IntRange { lo: 1, hi: 999_999, inside: true }.divided(6).unwrap();
        assert!((-3..3).all(|value| !between.passes(value)));
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
