//! Expressions over vectors, and what they require of the columns that they read.
//!
//! All numbers are i64: integers themselves, the bits of floats as doubles, and numerics times a power of ten that is fixed per
//! operand. Floats are compared by their keys.

use super::super::column_test::ColumnTest;
use super::super::functions::{DatePart, Operator, Unary};
use super::interpreted::Interpreted;
use crate::bounds::IntSet;
use crate::heap::Slot;
use crate::value::{Comparison, ValueKind};
use cellar_format::wire::BooleanTest;
use std::sync::Arc;

/// A requirement on the encoded values of a column. Datums of a column that meets the requirement are not needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnRequirement {
    /// Which rows are NULL.
    Nulls,
    /// Numbers times `10^scale`.
    Numbers { scale: u32 },
    /// Numerics encoded as integers times `10^scale`, all within `bounds`.
    Scaled { scale: u8, bounds: (i64, i64) },
    /// Positions in a list of strings, of the chunk or of the rows.
    Strings,
    /// No encoded values suffice.
    Datums,
}

/// An expression whose value is a number.
pub struct NumberExpr {
    pub(super) root: Number,
    /// Decimals of a numeric; otherwise 0.
    pub(super) scale: u32,
}

#[derive(PartialEq)]
pub enum Number {
    Column {
        slot: Slot,
        scale: u32,
    },
    Constant(i64),
    Null,
    Binary {
        operator: Operator,
        kind: ValueKind,
        left: Box<Number>,
        right: Box<Number>,
    },
    Unary {
        function: Unary,
        /// The kind of the result.
        kind: ValueKind,
        /// Decimals of the argument.
        scale: u32,
        arg: Box<Number>,
    },
    /// A numeric divided by a power of ten: the same number, which has `scale` decimals.
    Quotient {
        dividend: Box<Number>,
        scale: u32,
    },
    /// A function of a date or timestamp.
    DatePart {
        part: DatePart,
        arg: Box<Number>,
    },
    Case {
        whens: Vec<(Condition, Number)>,
        otherwise: Box<Number>,
    },
    Coalesce(Vec<Number>),
    /// A truth value as a number.
    Truth(Box<Condition>),
    /// The display scale of a column's numeric.
    DisplayScale(Slot),
    Interpreted(Box<Interpreted>),
}

/// An expression whose value is a truth value.
#[derive(PartialEq)]
pub enum Condition {
    Constant(u8),
    /// A boolean number.
    Number(Number),
    /// A test of a column's integers or strings.
    Test {
        slot: Slot,
        test: ColumnTest,
    },
    /// Whether an integer is in a set, or not if `negated`.
    In {
        number: Number,
        values: Arc<IntSet>,
        negated: bool,
    },
    ColumnIsNull {
        slot: Slot,
        negated: bool,
    },
    IsNull {
        number: Number,
        negated: bool,
    },
    Compare {
        comparison: Comparison,
        left: Number,
        right: Number,
    },
    /// IS DISTINCT FROM
    Distinct {
        left: Number,
        right: Number,
    },
    And(Vec<Condition>),
    Or(Vec<Condition>),
    Not(Box<Condition>),
    Is {
        test: BooleanTest,
        arg: Box<Condition>,
    },
}

impl NumberExpr {
    pub fn scale(&self) -> u32 {
        self.scale
    }

    /// The value of a constant.
    pub fn constant(&self) -> Option<i64> {
        match self.root {
            Number::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// The slot and the decimals of a plain column.
    pub fn column(&self) -> Option<(Slot, u32)> {
        match self.root {
            Number::Column { slot, scale } => Some((slot, scale)),
            _ => None,
        }
    }

    /// Calls `visit` with columns for which the expression is NULL wherever one of them is NULL.
    pub fn for_each_strict_column(&self, visit: &mut impl FnMut(Slot)) {
        self.root.for_each_strict_column(visit);
    }

    /// Calls `visit` with the requirements under which the expression needs no datums.
    pub fn for_each_requirement(&self, visit: &mut impl FnMut(Slot, ColumnRequirement)) {
        self.root.for_each_requirement(visit);
    }
}

impl Number {
    fn for_each_strict_column(&self, visit: &mut impl FnMut(Slot)) {
        match self {
            Self::Column { slot, .. } => visit(*slot),
            Self::Binary { left, right, .. } => {
                left.for_each_strict_column(visit);
                right.for_each_strict_column(visit);
            }
            Self::Unary { arg, .. } | Self::DatePart { arg, .. } | Self::Quotient { dividend: arg, .. } => {
                arg.for_each_strict_column(visit)
            }
            _ => {}
        }
    }

    fn for_each_requirement(&self, visit: &mut impl FnMut(Slot, ColumnRequirement)) {
        match self {
            Self::Column { slot, scale } => visit(*slot, ColumnRequirement::Numbers { scale: *scale }),
            Self::Constant(_) | Self::Null => {}
            Self::Binary { left, right, .. } => {
                left.for_each_requirement(visit);
                right.for_each_requirement(visit);
            }
            Self::Unary { arg, .. } | Self::DatePart { arg, .. } | Self::Quotient { dividend: arg, .. } => {
                arg.for_each_requirement(visit)
            }
            Self::Case { whens, otherwise } => {
                for (condition, result) in whens {
                    condition.for_each_requirement(visit);
                    result.for_each_requirement(visit);
                }
                otherwise.for_each_requirement(visit);
            }
            Self::Coalesce(args) => args.iter().for_each(|arg| arg.for_each_requirement(visit)),
            Self::Truth(condition) => condition.for_each_requirement(visit),
            // The expression itself requires the numbers of the column.
            Self::DisplayScale(_) => {}
            Self::Interpreted(interpreted) => {
                let requirement = match interpreted.only_column {
                    Some(kind) if kind.is_int() => ColumnRequirement::Numbers { scale: 0 },
                    Some(_) => ColumnRequirement::Strings,
                    None => ColumnRequirement::Datums,
                };
                interpreted.slots.iter().for_each(|slot| visit(*slot, requirement));
            }
        }
    }
}

impl Condition {
    /// As [`NumberExpr::for_each_requirement`].
    pub fn for_each_requirement(&self, visit: &mut impl FnMut(Slot, ColumnRequirement)) {
        match self {
            Self::Constant(_) => {}
            Self::Number(number) | Self::IsNull { number, .. } | Self::In { number, .. } => {
                number.for_each_requirement(visit)
            }
            Self::Test { slot, test } => visit(*slot, requirement(test).unwrap_or(ColumnRequirement::Datums)),
            Self::ColumnIsNull { slot, .. } => visit(*slot, ColumnRequirement::Nulls),
            Self::Compare { left, right, .. } | Self::Distinct { left, right } => {
                left.for_each_requirement(visit);
                right.for_each_requirement(visit);
            }
            Self::And(args) | Self::Or(args) => args.iter().for_each(|arg| arg.for_each_requirement(visit)),
            Self::Not(arg) | Self::Is { arg, .. } => arg.for_each_requirement(visit),
        }
    }
}

/// What a test requires of its column. None: the test is not on integers or strings.
pub fn requirement(test: &ColumnTest) -> Option<ColumnRequirement> {
    match test {
        ColumnTest::Int(_) | ColumnTest::IntSet { .. } => Some(ColumnRequirement::Numbers { scale: 0 }),
        ColumnTest::Float(_) | ColumnTest::Numeric(_) => None,
        ColumnTest::BytesEqual { .. }
        | ColumnTest::Bytes { .. }
        | ColumnTest::BytesSet { .. }
        | ColumnTest::Like { .. } => Some(ColumnRequirement::Strings),
    }
}
