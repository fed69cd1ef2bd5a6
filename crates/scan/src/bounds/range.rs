//! Ranges of values: what a comparison with a constant accepts.

use crate::value::{Comparison, Numeric};
use std::cmp::Ordering;

/// A range of integers, or of floats by their keys: `lo..=hi`, or with `inside` false every value outside `lo..=hi`.
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

    /// The values of `min..=max` for which `comparison` holds. `order(v)` compares `v` with the constant; it must not
    /// decrease as `v` increases.
    pub fn of_monotonic(comparison: Comparison, min: i64, max: i64, order: impl Fn(i64) -> Ordering) -> Self {
        // The first value that is not less, and the first that is greater; `max + 1` if there is none.
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

    /// The range of values whose product with `10^decimals` lies in this range. `i64::MIN` and `i64::MAX` are open
    /// ends. None: `10^decimals` overflows.
    pub fn divided(&self, decimals: u32) -> Option<Self> {
        let factor = 10i64.checked_pow(decimals)?;
        let lo = match self.lo {
            i64::MIN => i64::MIN,
            lo => lo.div_euclid(factor) + i64::from(lo.rem_euclid(factor) != 0),
        };
        let hi = if self.hi == i64::MAX { i64::MAX } else { self.hi.div_euclid(factor) };
        Some(Self { lo, hi, inside: self.inside })
    }

    /// Whether some value of `min..=max` may pass.
    pub fn may_pass(&self, min: i64, max: i64) -> bool {
        match self.inside {
            true => self.lo <= self.hi && max >= self.lo && min <= self.hi,
            false => !(self.lo <= min && max <= self.hi),
        }
    }

    /// The values of both ranges. None: the intersection is not one range.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        (self.inside && other.inside).then(|| Self {
            lo: self.lo.max(other.lo),
            hi: self.hi.min(other.hi),
            inside: true,
        })
    }
}

/// One end of a range: the value, and whether it belongs to the range. None: the range is open.
pub type Endpoint<T> = Option<(T, bool)>;

/// The values between two endpoints in the order of their type, or with `inside` false all other values.
#[derive(Debug, Clone, PartialEq)]
pub struct Range<T> {
    pub low: Endpoint<T>,
    pub high: Endpoint<T>,
    pub inside: bool,
}

impl<T: Clone> Range<T> {
    pub fn new(comparison: Comparison, constant: T) -> Self {
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

    /// Whether a value passes; `order` compares the value with an endpoint.
    #[inline(always)]
    pub fn passes(&self, order: impl Fn(&T) -> Ordering) -> bool {
        let above = self.low.as_ref().is_none_or(|(end, belongs)| reaches(order(end), *belongs));
        let below = || self.high.as_ref().is_none_or(|(end, belongs)| reaches(order(end).reverse(), *belongs));
        (above && below()) == self.inside
    }

    /// The intersection of two ranges of which one is open above and the other below; None for other ranges.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        match (self.inside && other.inside, self, other) {
            (true, Self { low, high: None, .. }, Self { low: None, high, .. })
            | (true, Self { low: None, high, .. }, Self { low, high: None, .. }) => {
                Some(Self { low: low.clone(), high: high.clone(), inside: true })
            }
            _ => None,
        }
    }
}

/// Whether a value is in the range, by its comparison with the lower endpoint. `belongs`: the endpoint is in the range.
fn reaches(ordering: Ordering, belongs: bool) -> bool {
    ordering.is_gt() || (belongs && ordering.is_eq())
}

/// A range of numerics, with its keys if both endpoints have one.
#[derive(Debug, Clone, PartialEq)]
pub struct NumericRange {
    pub range: Range<Numeric>,
    /// Decides for every value that has a key.
    pub keys: Option<IntRange>,
}

impl NumericRange {
    pub fn new(range: Range<Numeric>) -> Self {
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

    pub fn passes(&self, value: &Numeric) -> bool {
        self.range.passes(|end| value.compare(end))
    }

    /// Whether some value between `min` and `max` may pass.
    pub fn may_pass(&self, min: &Numeric, max: &Numeric) -> bool {
        let Range { low, high, inside } = &self.range;
        let overlaps = low.as_ref().is_none_or(|(end, belongs)| reaches(max.compare(end), *belongs))
            && high.as_ref().is_none_or(|(end, belongs)| reaches(min.compare(end).reverse(), *belongs));
        match inside {
            true => overlaps,
            false => !(self.is_between_endpoints(min) && self.is_between_endpoints(max)),
        }
    }

    fn is_between_endpoints(&self, value: &Numeric) -> bool {
        self.passes(value) == self.range.inside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_divided_range_accepts_the_same_values() {
        let range = IntRange { lo: -1_500_000, hi: 2_499_999, inside: true };
        assert_eq!(range.divided(6), Some(IntRange { lo: -1, hi: 2, inside: true }));
        assert_eq!(IntRange { inside: false, ..range }.divided(6), Some(IntRange { lo: -1, hi: 2, inside: false }));
        let open = IntRange { lo: i64::MIN, hi: i64::MAX, inside: true };
        assert_eq!(open.divided(6), Some(open));
        // The range lies between two neighbouring values of the scale.
        let between = IntRange { lo: 1, hi: 999_999, inside: true }.divided(6).unwrap();
        assert!((-3..3).all(|value| !between.passes(value)));
    }
}
