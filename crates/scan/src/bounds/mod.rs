//! Minimum and maximum of a column's values, and the ranges of values that predicates accept.
//!
//! Bounds describe stored values ([`Bounds`], [`Prefix`]); ranges describe the values that a predicate accepts
//! ([`IntRange`], [`Range`], [`NumericRange`]). This module does not depend on predicates, regions or units.

mod prefix;
mod range;

pub use prefix::Prefix;
pub use range::{IntRange, NumericRange, Range};

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
    /// Returns the memory besides the value itself in bytes.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Numeric(bounds) => size_of_val(&**bounds) + (bounds.0.digits.len() + bounds.1.digits.len()) * 2,
            Self::Unknown | Self::Int { .. } | Self::Bytes { .. } => 0,
        }
    }
}
