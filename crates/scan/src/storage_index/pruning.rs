//! Pruning: whether a region may contain a row that a predicate accepts, decided by the region's summary.

use super::{ColumnSummary, RegionSummary};
use crate::bounds::{Bounds, Range};
use crate::heap::Slot;
use crate::predicate::{Column, ColumnTest, Kernel, number_of};
use crate::value::Trim;

impl Kernel {
    /// Whether some row of a region may qualify. Call this only for kernels that cannot raise an error.
    pub fn may_match(&self, summary: &RegionSummary, columns: &[Option<Column>]) -> bool {
        let column = |slot: &Slot| {
            let number = number_of(*slot, columns)?;
            summary.column(number).filter(|found| {
                columns.get(*slot as usize).and_then(Option::as_ref).is_some_and(|c| c.type_oid == found.type_oid)
            })
        };
        match self {
            Self::Constant(value) => *value,
            Self::Column { slot, test } => column(slot).is_none_or(|summary| test.may_pass(summary)),
            Self::Null { slot, wanted: true } => column(slot).is_none_or(|summary| summary.has_null),
            Self::Null { slot, wanted: false } => column(slot).is_none_or(|summary| summary.has_nonnull),
            Self::Compare { left, right, .. } => {
                let mut all = true;
                let mut visit = |slot| all &= column(&slot).is_none_or(|summary| summary.has_nonnull);
                left.for_each_strict_column(&mut visit);
                right.for_each_strict_column(&mut visit);
                all
            }
            Self::And(arms) => arms.iter().all(|arm| arm.may_match(summary, columns)),
            Self::Or(arms) => arms.iter().any(|arm| arm.may_match(summary, columns)),
            Self::Condition { .. } | Self::Expression { .. } | Self::Interpret(_) => true,
        }
    }
}

impl ColumnTest {
    /// Whether some value of the summarised column may pass.
    pub fn may_pass(&self, summary: &ColumnSummary) -> bool {
        if !summary.has_nonnull {
            return false;
        }
        match (self, &summary.bounds) {
            (Self::Int(range) | Self::Float(range), Bounds::Int { min, max }) => range.may_pass(*min, *max),
            (Self::Numeric(range), Bounds::Numeric(ends)) => range.may_pass(&ends.0, &ends.1),
            (Self::IntSet { values, negated: false }, Bounds::Int { min, max }) => values.overlaps(*min, *max),
            (Self::BytesEqual { constant, trim, negated: false }, Bounds::Bytes { min, max, .. })
                if summary.is_trimmed_as(*trim) =>
            {
                !max.is_below(constant) && !min.is_above(constant)
            }
            (Self::BytesSet { values, trim, negated: false }, Bounds::Bytes { min, max, .. })
                if summary.is_trimmed_as(*trim) =>
            {
                values.first_not(|value| min.is_above(value)).is_some_and(|value| !max.is_below(value))
            }
            // The bounds of blank-padded values are trimmed, but a pattern is matched against the padded value.
            (Self::Like { pattern, negated: false }, Bounds::Bytes { min, max })
                if summary.is_trimmed_as(Trim::Nothing) =>
            {
                pattern.prefix().is_none_or(|prefix| !max.is_below(prefix) && !min.is_above_all_with(prefix))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Prefix;
    use crate::predicate::{Pattern, TextEncoding};
    use cellar_format::postgres::type_oid;

    #[test]
    fn a_pattern_that_starts_with_a_literal_prunes_regions() {
        let may_pass = |pattern: &str, min: &str, max: &str| {
            let pattern = Pattern::new(pattern.as_bytes(), TextEncoding::Utf8).unwrap();
            let (min, max) = (Prefix::new(min.as_bytes()), Prefix::new(max.as_bytes()));
            let bounds = Bounds::Bytes { min, max };
            let summary =
                ColumnSummary { number: 1, type_oid: type_oid::TEXT, has_null: false, has_nonnull: true, bounds };
            ColumnTest::Like { pattern, negated: false }.may_pass(&summary)
        };
        assert!(!may_pass("b%", "c", "d") && !may_pass("b%", "a", "az"));
        assert!(may_pass("b%", "a", "b") && may_pass("b%", "bz", "c") && may_pass("b%", "ba", "bb"));
        assert!(may_pass("%b", "c", "d") && may_pass("_b", "c", "d"));
        // A prefix has at most sixteen bytes.
        let (common, cut) = ("abcdefghijklmnop", "abcdefghijklmnopz");
        assert!(may_pass("abcdefghijklmnopq%", cut, cut) && may_pass("abcdefghijklmnopzz%", common, cut));
        assert!(!may_pass("abcdefghijklmnoo%", cut, cut) && !may_pass("abcdefghijklmnoq%", cut, cut));
    }
}
