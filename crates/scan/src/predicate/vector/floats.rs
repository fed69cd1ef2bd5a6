//! Arithmetic on floats, over vectors of their bits.

use super::super::functions::{Operator, double, single};
use super::super::lanes::{IS_NULL, Lanes, UNCERTAIN};
use super::operand::{Operand, joined};
use crate::vectors::vectorized;

/// Applies an operator to all rows, in single precision if `is_single`. Rows for which PostgreSQL raises an error become uncertain.
/// The results are stored in `buffer`.
pub fn apply(operator: Operator, is_single: bool, left: &Lanes, right: &Operand<'_>, mut buffer: Vec<i64>) -> Lanes {
    buffer.clear();
    let rights = match right {
        Operand::Constant(value) => vec![*value; left.values.len()],
        Operand::Lanes(_) => Vec::new(),
    };
    let rights = match right {
        Operand::Lanes(lanes) => lanes.values.as_slice(),
        Operand::Constant(_) => rights.as_slice(),
    };
    let has_errors = match is_single {
        true => all_single(operator, &left.values, rights, &mut buffer),
        false => all_double(operator, &left.values, rights, &mut buffer),
    };
    let mut lanes = Lanes { values: buffer, flags: joined(&left.flags, right.flags()), bounds: Lanes::ANY };
    if has_errors {
        let operation = if is_single { single } else { double };
        let pairs = left.values.iter().zip(rights);
        for (flags, (left, right)) in lanes.flags_mut().iter_mut().zip(pairs) {
            let (left, right) = (f64::from_bits(*left as u64), f64::from_bits(*right as u64));
            if *flags & IS_NULL == 0 && operation(operator, left, right).1 {
                *flags |= UNCERTAIN;
            }
        }
    }
    lanes
}

/// Appends the results of an operation, and returns whether some row has an error.
macro_rules! operation {
    ($operation:path, $operator:expr, $left:ident, $right:ident, $out:ident) => {{
        let mut any = false;
        $out.extend($left.iter().zip($right).map(|(left, right)| {
            let (left, right) = (f64::from_bits(*left as u64), f64::from_bits(*right as u64));
            let (result, is_error) = $operation($operator, left, right);
            any |= is_error;
            result.to_bits() as i64
        }));
        any
    }};
}

/// Compiles one loop per operator.
macro_rules! by_operator {
    ($operation:path, $operator:ident, $left:ident, $right:ident, $out:ident) => {
        match $operator {
            Operator::Add => operation!($operation, Operator::Add, $left, $right, $out),
            Operator::Subtract => operation!($operation, Operator::Subtract, $left, $right, $out),
            Operator::Multiply => operation!($operation, Operator::Multiply, $left, $right, $out),
            Operator::Divide => operation!($operation, Operator::Divide, $left, $right, $out),
            _ => operation!($operation, $operator, $left, $right, $out),
        }
    };
}

vectorized! {
    fn all_double(operator: Operator, left: &[i64], right: &[i64], out: &mut Vec<i64>) -> bool {
        by_operator!(double, operator, left, right, out)
    }

    fn all_single(operator: Operator, left: &[i64], right: &[i64], out: &mut Vec<i64>) -> bool {
        by_operator!(single, operator, left, right, out)
    }
}
