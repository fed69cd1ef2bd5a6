//! Functions of one number, over vectors of numbers.

use super::super::functions::{Unary, to_integer, to_single, truncated};
use super::super::lanes::{IS_NULL, Lanes, UNCERTAIN};
use crate::value::numeric::Rounding;
use crate::value::{ValueKind, float_key};

/// Applies a function to all rows. The argument is a numeric times `10^scale`, an integer, or the bits of a float; `kind` is the
/// kind of the result. The results are stored in `buffer`.
pub fn apply(function: Unary, kind: ValueKind, scale: u32, arg: &Lanes, buffer: Vec<i64>) -> Lanes {
    let float = |bits: i64| f64::from_bits(bits as u64);
    let bits = |value: f64| value.to_bits() as i64;
    let fits = range_of(kind);
    match function {
        Unary::Same => all(arg, buffer, arg.bounds, |value| value),
        Unary::Narrow if fits.0 <= arg.bounds.0 && arg.bounds.1 <= fits.1 => {
            all(arg, buffer, arg.bounds, |value| value)
        }
        Unary::Narrow => some(arg, buffer, |value| (fits.0..=fits.1).contains(&value).then_some(value)),
        Unary::Absolute | Unary::Negative if fits.0 < arg.bounds.0 => {
            let (least, most) = arg.bounds;
            match function {
                Unary::Absolute => all(arg, buffer, (0, most.max(-least)), i64::wrapping_abs),
                _ => all(arg, buffer, (-most, -least), i64::wrapping_neg),
            }
        }
        Unary::Absolute => some(arg, buffer, |value| value.checked_abs().filter(|value| *value <= fits.1)),
        Unary::Negative => some(arg, buffer, |value| value.checked_neg().filter(|value| *value <= fits.1)),
        Unary::Complement => all(arg, buffer, fits, |value| !value),
        Unary::Round { rounding, scale: wanted } => {
            round(rounding, scale as i32 - wanted, (-wanted).max(0), arg, buffer)
        }
        Unary::NumericToInteger => {
            let rounded = round(Rounding::HalfAwayFromZero, scale as i32, 0, arg, buffer);
            some(&rounded, Vec::new(), |value| (fits.0..=fits.1).contains(&value).then_some(value))
        }
        Unary::FloatAbsolute => all(arg, buffer, Lanes::ANY, |value| bits(float(value).abs())),
        Unary::FloatNegative => all(arg, buffer, Lanes::ANY, |value| bits(-float(value))),
        Unary::FloatRound => all(arg, buffer, Lanes::ANY, |value| bits(float(value).round_ties_even())),
        Unary::FloatTruncate => all(arg, buffer, Lanes::ANY, |value| bits(truncated(float(value)))),
        Unary::FloatCeiling => all(arg, buffer, Lanes::ANY, |value| bits(float(value).ceil())),
        Unary::FloatFloor => all(arg, buffer, Lanes::ANY, |value| bits(float(value).floor())),
        Unary::SquareRoot => {
            let root = |value: f64| if value < 0.0 { None } else { Some(bits(value.sqrt())) };
            some(arg, buffer, |value| root(float(value)))
        }
        Unary::Single => some(arg, buffer, |value| match to_single(float(value)) {
            (value, false) => Some(bits(value)),
            (_, true) => None,
        }),
        Unary::IntegerToDouble => all(arg, buffer, Lanes::ANY, |value| bits(value as f64)),
        Unary::IntegerToSingle => all(arg, buffer, Lanes::ANY, |value| bits(value as f32 as f64)),
        Unary::NumericToDouble => to_double(scale, arg, buffer),
        Unary::FloatToInteger => {
            let fitting = |value: i64| (fits.0..=fits.1).contains(&value).then_some(value);
            some(arg, buffer, |value| to_integer(float(value)).and_then(fitting))
        }
        Unary::FloatKey => all(arg, buffer, Lanes::ANY, |value| float_key(float(value))),
    }
}

/// The least and the greatest integer of a kind.
pub fn range_of(kind: ValueKind) -> (i64, i64) {
    match kind {
        ValueKind::Int2 => (i16::MIN.into(), i16::MAX.into()),
        ValueKind::Int4 => (i32::MIN.into(), i32::MAX.into()),
        _ => Lanes::ANY,
    }
}

/// Applies a function without errors, whose results are within `bounds`.
#[inline(always)]
fn all(arg: &Lanes, mut buffer: Vec<i64>, bounds: (i64, i64), function: impl Fn(i64) -> i64) -> Lanes {
    buffer.clear();
    buffer.extend(arg.values.iter().map(|value| function(*value)));
    Lanes { values: buffer, flags: arg.flags.clone(), bounds }
}

/// Applies a function that returns None where PostgreSQL may raise an error.
#[inline(always)]
fn some(arg: &Lanes, mut buffer: Vec<i64>, function: impl Fn(i64) -> Option<i64>) -> Lanes {
    buffer.clear();
    let (mut least, mut most, mut any) = (0, 0, false);
    buffer.extend(arg.values.iter().map(|value| {
        let result = function(*value);
        any |= result.is_none();
        let result = result.unwrap_or(0);
        (least, most) = (result.min(least), result.max(most));
        result
    }));
    let mut lanes = Lanes { values: buffer, flags: arg.flags.clone(), bounds: (least, most) };
    if any {
        for (flags, value) in lanes.flags_mut().iter_mut().zip(&arg.values) {
            // The number of a NULL is arbitrary, so its error means nothing.
            if *flags & IS_NULL == 0 && function(*value).is_none() {
                *flags |= UNCERTAIN;
            }
        }
    }
    lanes
}

/// Rounds to units of `10^decimals`, counted in the units of the argument, and multiplies by `10^zeroes`.
fn round(rounding: Rounding, decimals: i32, zeroes: i32, arg: &Lanes, buffer: Vec<i64>) -> Lanes {
    let power = |exponent: i32| 10i64.checked_pow(exponent.max(0) as u32);
    let (Some(divisor), Some(factor)) = (power(decimals), power(zeroes)) else {
        return Lanes::of(0, UNCERTAIN, arg.values.len());
    };
    let (least, most) = arg.bounds;
    let one = |value: i64| rounded(value, divisor, rounding);
    match (one(least).checked_mul(factor), one(most).checked_mul(factor)) {
        // Rounding is monotonic.
        (Some(least), Some(most)) => all(arg, buffer, (least, most), |value| one(value).wrapping_mul(factor)),
        _ => some(arg, buffer, |value| one(value).checked_mul(factor)),
    }
}

/// The quotient, rounded to an integer. The divisor is a power of ten.
#[inline(always)]
fn rounded(value: i64, divisor: i64, rounding: Rounding) -> i64 {
    let (quotient, rest) = (value / divisor, value % divisor);
    match rounding {
        Rounding::TowardZero => quotient,
        Rounding::HalfAwayFromZero => {
            quotient + if 2 * rest.unsigned_abs() >= divisor as u64 && divisor > 1 { value.signum() } else { 0 }
        }
        Rounding::Up => quotient + i64::from(rest > 0),
        Rounding::Down => quotient - i64::from(rest < 0),
    }
}

/// The numbers that PostgreSQL does not round when it divides them by a power of ten, so that they have `scale` decimals.
///
/// A quotient has at least `16 - 4 * weight` decimals, where `weight` is that of the dividend's first base-10000 digit
/// (`select_div_scale`). The dividend is the number times `10^-decimals`, and `scale` is at least `decimals`.
pub fn exact_quotient(arg: &Lanes, scale: u32, buffer: Vec<i64>) -> Lanes {
    let weight = (16 - scale) / 4;
    // At least one decimal was added, so a number below this limit, which ignores decimals, has at most this weight.
    let limit = 10u64.pow((4 * (weight + 1)).min(19));
    let is_exact = |value: i64| value.unsigned_abs() < limit;
    match is_exact(arg.bounds.0) && is_exact(arg.bounds.1) {
        true => all(arg, buffer, arg.bounds, |value| value),
        false => some(arg, buffer, |value| is_exact(value).then_some(value)),
    }
}

/// Converts numerics to float8. The quotient of two numbers that float8 represents is rounded as PostgreSQL's conversion of the
/// decimal text is.
fn to_double(scale: u32, arg: &Lanes, buffer: Vec<i64>) -> Lanes {
    const EXACT_DECIMALS_MAX: u32 = 22;
    const EXACT_MAX: u64 = 1 << 53;
    if scale > EXACT_DECIMALS_MAX {
        return Lanes::of(0, UNCERTAIN, arg.values.len());
    }
    let power = 10f64.powi(scale as i32);
    let quotient = |value: i64| (value as f64 / power).to_bits() as i64;
    match arg.bounds.0.unsigned_abs().max(arg.bounds.1.unsigned_abs()) <= EXACT_MAX {
        true => all(arg, buffer, Lanes::ANY, quotient),
        false => some(arg, buffer, |value| (value.unsigned_abs() <= EXACT_MAX).then(|| quotient(value))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaled_numbers_round_as_numerics_do() {
        use crate::value::Numeric;
        let roundings = [Rounding::HalfAwayFromZero, Rounding::TowardZero, Rounding::Up, Rounding::Down];
        let values: Vec<i64> = (-2100..2100).chain([0, 99_999_999, -99_995_000, 1 << 50, i64::MAX, i64::MIN]).collect();
        let arg = Lanes::without_flags(values.clone(), Lanes::ANY);
        for (rounding, wanted) in roundings.iter().flat_map(|rounding| (-3..5).map(move |wanted| (*rounding, wanted))) {
            let function = Unary::Round { rounding, scale: wanted };
            let lanes = apply(function, ValueKind::Numeric, 2, &arg, Vec::new());
            for (row, value) in values.iter().enumerate().filter(|(row, _)| lanes.flags(*row) == 0) {
                let expected = Numeric::from_decimal(*value, 2).rounded(wanted, rounding).unwrap();
                let found = Numeric::from_decimal(lanes.values[row], wanted.clamp(0, 2) as u32);
                assert!(found.compare(&expected).is_eq(), "{value} at {wanted}, {rounding:?}: {found:?}");
            }
        }
    }

    #[test]
    fn numerics_become_the_floats_of_their_text() {
        let values: Vec<i64> = (0..2000).map(|at: i64| (at * 7_654_321_987) % (1 << 53) - (1 << 52)).collect();
        let arg = Lanes::without_flags(values.clone(), (-(1 << 53), 1 << 53));
        for scale in 0..10u32 {
            let lanes = apply(Unary::NumericToDouble, ValueKind::Float8, scale, &arg, Vec::new());
            for (value, found) in values.iter().zip(&lanes.values) {
                let expected: f64 = format!("{value}e-{scale}").parse().unwrap();
                assert_eq!(f64::from_bits(*found as u64).to_bits(), expected.to_bits(), "{value}e-{scale}");
            }
        }
    }
}
