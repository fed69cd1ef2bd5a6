//! The total orders of values, and comparison operators.
//!
//! Each comparison works in a domain: a set of values with one total order. All types that the evaluator represents as
//! integers share a domain, so cross-type operators are exact.

use super::{Value, float_key, without_trailing_blanks};
use std::cmp::Ordering;

/// A set of values with one total order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    Int,
    Float,
    Numeric,
    /// Byte order; a string precedes every longer string that starts with it.
    Bytes,
    /// `bpchar`: byte order, ignoring trailing blanks.
    BlankPadded,
    /// A date on the left, a timestamp without time zone on the right.
    DateTimestamp,
    TimestampDate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    #[cfg(test)]
    pub const ALL: [Self; 6] =
        [Self::Equal, Self::NotEqual, Self::Less, Self::LessOrEqual, Self::Greater, Self::GreaterOrEqual];

    #[inline(always)]
    pub fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::NotEqual => ordering.is_ne(),
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }

    /// The comparison that holds exactly where this one does not.
    pub fn negated(self) -> Self {
        match self {
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::Less => Self::GreaterOrEqual,
            Self::LessOrEqual => Self::Greater,
            Self::Greater => Self::LessOrEqual,
            Self::GreaterOrEqual => Self::Less,
        }
    }

    /// The same comparison with its operands exchanged.
    pub fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            same => same,
        }
    }
}

impl Domain {
    /// The domain with the operands exchanged.
    pub fn mirrored(self) -> Self {
        match self {
            Self::DateTimestamp => Self::TimestampDate,
            Self::TimestampDate => Self::DateTimestamp,
            same => same,
        }
    }
}

const USECS_PER_DAY: i64 = 86_400_000_000;
/// `TIMESTAMP_END_JULIAN - POSTGRES_EPOCH_JDATE`: the first date after the last timestamp.
pub const DATE_AFTER_TIMESTAMPS: i64 = 109_203_528 - 2_451_545;

/// Compares a date with a timestamp as `date_cmp_timestamp_internal` does.
pub fn date_against_timestamp(date: i64, timestamp: i64) -> Ordering {
    if date == i32::MIN as i64 {
        return i64::MIN.cmp(&timestamp);
    }
    if date == i32::MAX as i64 {
        return i64::MAX.cmp(&timestamp);
    }
    if date >= DATE_AFTER_TIMESTAMPS {
        // Greater than every finite timestamp, less than infinity.
        return if timestamp == i64::MAX { Ordering::Less } else { Ordering::Greater };
    }
    // Only a corrupt page has a date that overflows here.
    date.saturating_mul(USECS_PER_DAY).cmp(&timestamp)
}

/// The order of two values. None: one of them is NULL or not of the domain.
#[inline]
pub fn compare(domain: Domain, left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    Some(match (domain, left, right) {
        (Domain::Int, Value::Int(left), Value::Int(right)) => left.cmp(right),
        (Domain::Int, Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Domain::Float, Value::Float(left), Value::Float(right)) => float_key(*left).cmp(&float_key(*right)),
        (Domain::Numeric, Value::Numeric(left), Value::Numeric(right)) => left.compare(right),
        (Domain::Bytes, Value::Bytes(left), Value::Bytes(right)) => left.cmp(right),
        (Domain::BlankPadded, Value::Bytes(left), Value::Bytes(right)) => {
            without_trailing_blanks(left).cmp(without_trailing_blanks(right))
        }
        (Domain::DateTimestamp, Value::Int(date), Value::Int(timestamp)) => date_against_timestamp(*date, *timestamp),
        (Domain::TimestampDate, Value::Int(timestamp), Value::Int(date)) => {
            date_against_timestamp(*date, *timestamp).reverse()
        }
        _ => return None,
    })
}

impl Domain {
    /// What is removed from strings of the domain before they are compared.
    pub fn trim(self) -> Trim {
        if self == Self::BlankPadded { Trim::Blanks } else { Trim::Nothing }
    }
}

/// What is removed from the end of a byte string before it is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trim {
    Nothing,
    /// `bpchar`: trailing blanks.
    Blanks,
}

impl Trim {
    /// The bytes that are compared.
    #[inline(always)]
    pub fn apply(self, bytes: &[u8]) -> &[u8] {
        match self {
            Self::Nothing => bytes,
            Self::Blanks => without_trailing_blanks(bytes),
        }
    }

    /// Whether `value` equals `constant`, which is already trimmed. The first bytes of most unequal values differ.
    ///
    /// An empty constant is not compared by `memcmp`: the pointer of an empty vector is not mapped, and a masked vector load
    /// from such an address takes hundreds of cycles.
    #[inline(always)]
    pub fn equal(self, value: &[u8], constant: &[u8]) -> bool {
        if constant.is_empty() {
            return self.apply(value).is_empty();
        }
        if value.first() != constant.first() {
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
