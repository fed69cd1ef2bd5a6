//! Sums of `factor * x + offset`, derived from the sum and the count of `x`.
//!
//! An aggregation with many sums over one column (`sum(x)`, `sum(x + 1)`, …) adds up the column once. The derivation is exact,
//! because a row for which PostgreSQL would raise an error in a step is rejected from all states.

use crate::predicate::{IntegerCall, Operator, integer_call};
use crate::value::ValueKind;
use cellar_format::wire::Expr;
use smallvec::SmallVec;

/// An operation of an integer with a constant, whose result has type `kind`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Step {
    operator: Operator,
    constant: i64,
    kind: ValueKind,
}

/// A linear function of an integer.
#[derive(Debug, Clone, PartialEq)]
pub struct Linear {
    /// In the order of evaluation.
    steps: SmallVec<[Step; 2]>,
    factor: i128,
    offset: i128,
}

impl Linear {
    /// Splits an expression into a linear function and its operand. None: the expression is not an operation of an integer with a
    /// constant.
    pub fn split(expr: &Expr) -> Option<(Self, &Expr)> {
        let mut steps: SmallVec<[Step; 2]> = SmallVec::new();
        let mut operand = expr;
        while let Some(call) = integer_call(operand) {
            operand = match call {
                IntegerCall::WithConstant { operator: Operator::Divide | Operator::Modulo, .. } => break,
                IntegerCall::WithConstant { operator, constant, kind, operand } => {
                    steps.push(Step { operator, constant, kind });
                    operand
                }
                IntegerCall::Widened(operand) => operand,
            };
        }
        steps.reverse();
        let (mut factor, mut offset) = (1i128, 0i128);
        for step in &steps {
            let constant = i128::from(step.constant);
            match step.operator {
                Operator::Add => offset = offset.checked_add(constant)?,
                Operator::Subtract => offset = offset.checked_sub(constant)?,
                Operator::Multiply => {
                    (factor, offset) = (factor.checked_mul(constant)?, offset.checked_mul(constant)?);
                }
                _ => return None,
            }
        }
        (!steps.is_empty()).then_some((Self { steps, factor, offset }, operand))
    }

    /// Whether no step overflows its type for the value.
    pub fn is_defined(&self, value: i64) -> bool {
        let mut value = i128::from(value);
        self.steps.iter().all(|step| {
            let constant = i128::from(step.constant);
            value = match step.operator {
                Operator::Add => value + constant,
                Operator::Subtract => value - constant,
                _ => value * constant,
            };
            let (least, most) = match step.kind {
                ValueKind::Int2 => (i16::MIN.into(), i16::MAX.into()),
                ValueKind::Int4 => (i32::MIN.into(), i32::MAX.into()),
                _ => (i64::MIN.into(), i64::MAX.into()),
            };
            (least..=most).contains(&value)
        })
    }

    /// Whether no step overflows its type for the values within the bounds. Each step is monotonic, so both bounds decide.
    pub fn is_defined_within(&self, (least, most): (i64, i64)) -> bool {
        self.is_defined(least) && self.is_defined(most)
    }

    /// The sum of the function over `count` values with the sum `sum`. Wraps only if the result does not fit 128 bits.
    pub fn sum(&self, sum: i128, count: i64) -> i128 {
        self.factor.wrapping_mul(sum).wrapping_add(self.offset.wrapping_mul(count.into()))
    }
}
