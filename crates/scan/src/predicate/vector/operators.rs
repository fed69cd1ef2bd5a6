//! Operators on vectors of numbers. If the bounds of the operands show that no result overflows its type, results are
//! not checked row by row.

use super::super::functions::{DatePart, FINITE_DATES, Operator};
use super::super::lanes::{IS_NULL, Lanes, UNCERTAIN};
use super::floats;
use super::operand::{Operand, joined};
use super::unary::range_of;
use crate::value::{Comparison, ValueKind};
use crate::vectors::vectorized;

/// Applies an operator to all rows. The results are stored in `buffer` unless they must be checked.
pub fn apply(operator: Operator, kind: ValueKind, left: &Lanes, right: &Operand<'_>, buffer: Vec<i64>) -> Lanes {
    if matches!(kind, ValueKind::Float4 | ValueKind::Float8) {
        return floats::apply(operator, kind == ValueKind::Float4, left, right, buffer);
    }
    if let Some(bounds) = result_bounds(operator, kind, left.bounds, right.bounds()) {
        let values = combine(operator, left, right, buffer);
        return Lanes { values, flags: joined(&left.flags, right.flags()), bounds };
    }
    let mut lanes = match operator {
        Operator::Add => checked(left, right, i64::overflowing_add),
        Operator::Subtract => checked(left, right, i64::overflowing_sub),
        Operator::Multiply => checked(left, right, i64::overflowing_mul),
        Operator::Divide => checked(left, right, |left, right| match left.checked_div(right) {
            Some(quotient) => (quotient, false),
            None => (0, true),
        }),
        Operator::Modulo => checked(left, right, |left, right| match right {
            0 => (0, true),
            right => (left.wrapping_rem(right), false),
        }),
        // The bounds of the results of operations on bits are always known.
        Operator::And | Operator::Or | Operator::Xor => unreachable!("operations on bits have no errors"),
        // The interpreter handles infinite dates.
        Operator::DaysBetween => checked(left, right, |left, right| {
            (left.wrapping_sub(right), !FINITE_DATES.contains(&left) || !FINITE_DATES.contains(&right))
        }),
    };
    match kind {
        ValueKind::Int2 => limit(&mut lanes, |_, value| i64::from(value as i16) == value),
        ValueKind::Int4 => limit(&mut lanes, |_, value| i64::from(value as i32) == value),
        // The interpreter handles infinite dates.
        ValueKind::Date => {
            limit(&mut lanes, |row, value| FINITE_DATES.contains(&left.values[row]) && FINITE_DATES.contains(&value))
        }
        _ => {}
    }
    lanes
}

/// Applies a function of dates or timestamps to all rows. The results are stored in `buffer`.
pub fn date_parts(part: DatePart, arg: &Lanes, mut buffer: Vec<i64>) -> Lanes {
    buffer.clear();
    let mut uncertain = Vec::new();
    let (mut least, mut most) = (0, 0);
    part.apply(&arg.values, |row, result| {
        if result.is_none() && arg.flags(row) == 0 {
            uncertain.push(row);
        }
        let result = result.unwrap_or(0);
        (least, most) = (result.min(least), result.max(most));
        buffer.push(result);
    });
    let mut lanes = Lanes { values: buffer, flags: arg.flags.clone(), bounds: (least, most) };
    for row in uncertain {
        lanes.flags_mut()[row] = UNCERTAIN;
    }
    lanes
}

/// The bounds of the results. None: some result may overflow its type.
fn result_bounds(operator: Operator, kind: ValueKind, left: (i64, i64), right: (i64, i64)) -> Option<(i64, i64)> {
    if matches!(operator, Operator::And | Operator::Or | Operator::Xor) {
        return Some(range_of(kind));
    }
    let is_finite = |(least, most): (i64, i64)| FINITE_DATES.contains(&least) && FINITE_DATES.contains(&most);
    if operator == Operator::DaysBetween && !(is_finite(left) && is_finite(right)) {
        return None;
    }
    let ((a, b), (c, d)) = ((left.0 as i128, left.1 as i128), (right.0 as i128, right.1 as i128));
    let (min, max) = match operator {
        Operator::Add => (a + c, b + d),
        Operator::Subtract | Operator::DaysBetween => (a - d, b - c),
        Operator::Multiply => {
            let corners = [a * c, a * d, b * c, b * d];
            (*corners.iter().min()?, *corners.iter().max()?)
        }
        _ => return None,
    };
    let (least, most) = match kind {
        ValueKind::Int2 => (i16::MIN as i128, i16::MAX as i128),
        ValueKind::Int4 => (i32::MIN as i128, i32::MAX as i128),
        ValueKind::Date if !is_finite(left) => return None,
        ValueKind::Date => (FINITE_DATES.start as i128, FINITE_DATES.end as i128 - 1),
        _ => (i64::MIN as i128, i64::MAX as i128),
    };
    (min >= least && max <= most).then_some((min as i64, max as i64))
}

vectorized! {
    fn with_number(operator: Operator, left: &[i64], right: i64, out: &mut Vec<i64>) {
        match operator {
            Operator::Add => out.extend(left.iter().map(|left| left.wrapping_add(right))),
            Operator::Subtract | Operator::DaysBetween => {
                out.extend(left.iter().map(|left| left.wrapping_sub(right)));
            }
            Operator::And => out.extend(left.iter().map(|left| left & right)),
            Operator::Or => out.extend(left.iter().map(|left| left | right)),
            Operator::Xor => out.extend(left.iter().map(|left| left ^ right)),
            _ => out.extend(left.iter().map(|left| left.wrapping_mul(right))),
        }
    }

    fn with_numbers(operator: Operator, left: &[i64], right: &[i64], out: &mut Vec<i64>) {
        let pairs = left.iter().zip(right);
        match operator {
            Operator::Add => out.extend(pairs.map(|(left, right)| left.wrapping_add(*right))),
            Operator::Subtract | Operator::DaysBetween => {
                out.extend(pairs.map(|(left, right)| left.wrapping_sub(*right)));
            }
            Operator::And => out.extend(pairs.map(|(left, right)| left & right)),
            Operator::Or => out.extend(pairs.map(|(left, right)| left | right)),
            Operator::Xor => out.extend(pairs.map(|(left, right)| left ^ right)),
            _ => out.extend(pairs.map(|(left, right)| left.wrapping_mul(*right))),
        }
    }
}

/// Computes results that cannot overflow: of [`result_bounds`].
fn combine(operator: Operator, left: &Lanes, right: &Operand<'_>, mut out: Vec<i64>) -> Vec<i64> {
    out.clear();
    match right {
        Operand::Constant(right) => with_number(operator, &left.values, *right, &mut out),
        Operand::Lanes(right) => with_numbers(operator, &left.values, &right.values, &mut out),
    }
    out
}

/// Applies `operation`, which returns a result and whether PostgreSQL might raise an error instead.
#[inline(always)]
fn checked(left: &Lanes, right: &Operand<'_>, operation: impl Fn(i64, i64) -> (i64, bool)) -> Lanes {
    let mut flags = joined(&left.flags, right.flags());
    flags.resize(left.values.len(), 0);
    let mut all = 0;
    let mut one = |left: i64, right: i64, flags: &mut u8| {
        let (result, uncertain) = operation(left, right);
        // The number of a NULL is arbitrary, so an overflow means nothing.
        *flags |= if uncertain && *flags & IS_NULL == 0 { UNCERTAIN } else { 0 };
        all |= *flags;
        result
    };
    let lefts = left.values.iter().zip(&mut flags);
    let values = match right {
        Operand::Constant(right) => lefts.map(|(left, flags)| one(*left, *right, flags)).collect(),
        Operand::Lanes(rights) => {
            lefts.zip(&rights.values).map(|((left, flags), right)| one(*left, *right, flags)).collect()
        }
    };
    if all == 0 {
        flags.clear();
    }
    Lanes { values, flags, bounds: Lanes::ANY }
}

/// Flags results that are out of range of their type as uncertain. `fits` is called with a row and the row's result.
#[inline(always)]
fn limit(lanes: &mut Lanes, fits: impl Fn(usize, i64) -> bool) {
    if lanes.values.iter().enumerate().all(|(row, value)| fits(row, *value)) {
        return;
    }
    let (values, flags) = lanes.parts_mut();
    for (row, (value, flag)) in values.iter().zip(flags).enumerate() {
        if !fits(row, *value) && *flag & IS_NULL == 0 {
            *flag |= UNCERTAIN;
        }
    }
}

vectorized! {
    pub fn mark_number(comparison: Comparison, left: &[i64], right: i64, marks: &mut Vec<u8>) {
        mark(comparison, left.iter().map(|left| (*left, right)), marks);
    }

    pub fn mark_numbers(comparison: Comparison, left: &[i64], right: &[i64], marks: &mut Vec<u8>) {
        mark(comparison, left.iter().zip(right).map(|(left, right)| (*left, *right)), marks);
    }
}

#[inline(always)]
fn mark(comparison: Comparison, pairs: impl Iterator<Item = (i64, i64)>, marks: &mut Vec<u8>) {
    match comparison {
        Comparison::Equal => marks.extend(pairs.map(|(left, right)| u8::from(left == right))),
        Comparison::NotEqual => marks.extend(pairs.map(|(left, right)| u8::from(left != right))),
        Comparison::Less => marks.extend(pairs.map(|(left, right)| u8::from(left < right))),
        Comparison::LessOrEqual => marks.extend(pairs.map(|(left, right)| u8::from(left <= right))),
        Comparison::Greater => marks.extend(pairs.map(|(left, right)| u8::from(left > right))),
        Comparison::GreaterOrEqual => marks.extend(pairs.map(|(left, right)| u8::from(left >= right))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::tests::with_each;

    #[test]
    fn numbers_compare_the_same_with_all_instruction_sets() {
        let left: Vec<i64> = (0..67).map(|at| (at * 37) % 11 - 5).chain([i64::MIN, i64::MAX, 0]).collect();
        let right: Vec<i64> = (0..67).map(|at| (at * 23) % 7 - 3).chain([i64::MAX, i64::MAX, i64::MIN]).collect();
        with_each(|_| {
            for comparison in Comparison::ALL {
                let holds = |(left, right): (&i64, &i64)| u8::from(comparison.holds(left.cmp(right)));
                let mut marks = Vec::new();
                mark_numbers(comparison, &left, &right, &mut marks);
                assert_eq!(marks, left.iter().zip(&right).map(holds).collect::<Vec<_>>());
                marks.clear();
                mark_number(comparison, &left, -1, &mut marks);
                assert_eq!(marks, left.iter().map(|left| holds((left, &-1))).collect::<Vec<_>>());
            }
        });
    }
}
