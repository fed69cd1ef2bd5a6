//! Minimum and maximum of a column's values, and the ranges of values that predicates accept.
//!
//! Bounds describe stored values ([`Bounds`], [`Prefix`]); ranges describe the values that a predicate accepts
//! ([`IntRange`], [`Range`], [`NumericRange`], [`IntSet`], [`BytesSet`]). This module does not depend on predicates, regions or units.

mod prefix;
mod range;
mod sets;

pub use prefix::Prefix;
pub use range::{IntRange, NumericRange, Range};
pub use sets::{BytesSet, IntSet};

use crate::value::Numeric;

/// The minimum and the maximum of some values; NULLs are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bounds {
    /// Minimum and maximum are unknown.
    Unknown,
    /// Integers, dates and times; floats by their keys.
    Int { min: i64, max: i64 },
    /// Minimum and maximum, boxed because a [`Numeric`] is large.
    Numeric(Box<(Numeric, Numeric)>),
    /// Byte order; `bpchar` without trailing blanks.
    Bytes { min: Prefix, max: Prefix },
}

impl Bounds {
    /// Returns the bounds of the values of both.
    pub fn join(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Int { min, max }, Self::Int { min: other_min, max: other_max }) => {
                Self::Int { min: *min.min(other_min), max: *max.max(other_max) }
            }
            (Self::Numeric(one), Self::Numeric(other)) => {
                let min = if other.0.compare(&one.0).is_lt() { &other.0 } else { &one.0 };
                let max = if other.1.compare(&one.1).is_gt() { &other.1 } else { &one.1 };
                Self::Numeric(Box::new((min.clone(), max.clone())))
            }
            (Self::Bytes { min, max }, Self::Bytes { min: other_min, max: other_max }) => {
                Self::Bytes { min: min.lower(*other_min), max: max.upper(*other_max) }
            }
            _ => Self::Unknown,
        }
    }

    /// Returns the memory besides the value itself in bytes.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Numeric(bounds) => size_of_val(&**bounds) + (bounds.0.digits.len() + bounds.1.digits.len()) * 2,
            Self::Unknown | Self::Int { .. } | Self::Bytes { .. } => 0,
        }
    }
}
