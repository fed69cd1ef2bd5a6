//! The right operand of an operator on vectors.

use super::super::lanes::Lanes;

pub enum Operand<'a> {
    Constant(i64),
    Lanes(&'a Lanes),
}

impl Operand<'_> {
    pub fn bounds(&self) -> (i64, i64) {
        match self {
            Self::Constant(value) => (*value, *value),
            Self::Lanes(lanes) => lanes.bounds,
        }
    }

    pub fn flags(&self) -> &[u8] {
        match self {
            Self::Constant(_) => &[],
            Self::Lanes(lanes) => &lanes.flags,
        }
    }
}

/// The flags of the results of an operator: those of both operands. No flags: all are 0.
pub fn joined(left: &[u8], right: &[u8]) -> Vec<u8> {
    match (left, right) {
        (flags, []) | ([], flags) => flags.to_vec(),
        _ => left.iter().zip(right).map(|(left, right)| left | right).collect(),
    }
}
