//! `numeric` arithmetic, rounding and conversions. Modulo is not offloaded.
//!
//! Source: `utils/adt/numeric.c`.

use super::integer::fit;
use super::{Context, Operator, arithmetic, fallible, functions, safe, widen};
use crate::value::numeric::{Class, Rounding};
use crate::value::{EvalResult, Numeric, Undecided, Value};

fn numeric<'v>(args: &'v [Value<'_>]) -> Result<&'v Numeric, Undecided> {
    match args {
        [Value::Numeric(value)] => Ok(value),
        _ => Err(Undecided),
    }
}

pub fn calculate<'a>(operator: Operator, left: &Numeric, right: &Numeric) -> EvalResult<'a> {
    let value = match operator {
        Operator::Add => left.add(right),
        Operator::Subtract => left.add(&right.clone().negate()),
        Operator::Multiply => left.multiply(right),
        Operator::Divide => left.divide(right),
        _ => None,
    };
    value.map(Value::Numeric).ok_or(Undecided)
}

fn absolute<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Numeric(numeric(args)?.clone().abs()))
}

fn negate<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Numeric(numeric(args)?.clone().negate()))
}

fn same<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Numeric(numeric(args)?.clone()))
}

fn to_int<'a>(args: &mut [Value<'a>], context: &Context) -> EvalResult<'a> {
    fit(numeric(args)?.to_i64(), context.result)
}

fn to_float8<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    numeric(args)?.to_f64().map(Value::Float).ok_or(Undecided)
}

fn to_float4<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    numeric(args)?.to_f32().map(|value| Value::Float(value as f64)).ok_or(Undecided)
}

/// Converts with `FLT_DIG` significant digits.
fn from_float4<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    from_float(args, 6)
}

/// Converts with `DBL_DIG` significant digits.
fn from_float8<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    from_float(args, 15)
}

fn from_float<'a>(args: &[Value<'a>], digits: usize) -> EvalResult<'a> {
    let [Value::Float(value)] = args else { return Err(Undecided) };
    let numeric = match value {
        value if value.is_nan() => Some(Numeric::special(Class::NaN)),
        value if value.is_infinite() && *value > 0.0 => Some(Numeric::special(Class::PositiveInfinity)),
        value if value.is_infinite() => Some(Numeric::special(Class::NegativeInfinity)),
        // As `%g`, without trailing zeroes.
        value => Numeric::parse(&format!("{value:.*e}", digits - 1)).map(Numeric::trimmed),
    };
    numeric.map(Value::Numeric).ok_or(Undecided)
}

fn rounded<'a>(value: &Value<'a>, scale: i64, rounding: Rounding) -> EvalResult<'a> {
    match (value, i32::try_from(scale)) {
        (Value::Numeric(value), Ok(scale)) => value.rounded(scale, rounding).map(Value::Numeric).ok_or(Undecided),
        _ => Err(Undecided),
    }
}

fn round<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    match args {
        [value, Value::Int(scale)] => rounded(value, *scale, Rounding::HalfAwayFromZero),
        _ => Err(Undecided),
    }
}

fn truncate<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    match args {
        [value, Value::Int(scale)] => rounded(value, *scale, Rounding::TowardZero),
        _ => Err(Undecided),
    }
}

fn ceiling<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    rounded(&args[0], 0, Rounding::Up)
}

fn floor<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    rounded(&args[0], 0, Rounding::Down)
}

functions! {
    1724 numeric_add (NUMERIC, NUMERIC) -> NUMERIC, Any, arithmetic(Operator::Add);
    1725 numeric_sub (NUMERIC, NUMERIC) -> NUMERIC, Any, arithmetic(Operator::Subtract);
    1726 numeric_mul (NUMERIC, NUMERIC) -> NUMERIC, Any, arithmetic(Operator::Multiply);
    1727 numeric_div (NUMERIC, NUMERIC) -> NUMERIC, Any, arithmetic(Operator::Divide);
    1704 numeric_abs (NUMERIC) -> NUMERIC, Any, safe(absolute);
    1705 numeric_abs (NUMERIC) -> NUMERIC, Any, safe(absolute);
    1771 numeric_uminus (NUMERIC) -> NUMERIC, Any, safe(negate);
    1915 numeric_uplus (NUMERIC) -> NUMERIC, Any, safe(same);
    1707 numeric_round (NUMERIC, INT4) -> NUMERIC, Any, fallible(round);
    1709 numeric_trunc (NUMERIC, INT4) -> NUMERIC, Any, fallible(truncate);
    1711 numeric_ceil (NUMERIC) -> NUMERIC, Any, fallible(ceiling);
    2167 numeric_ceil (NUMERIC) -> NUMERIC, Any, fallible(ceiling);
    1712 numeric_floor (NUMERIC) -> NUMERIC, Any, fallible(floor);
    1782 int2_numeric (INT2) -> NUMERIC, Any, widen();
    1740 int4_numeric (INT4) -> NUMERIC, Any, widen();
    1781 int8_numeric (INT8) -> NUMERIC, Any, widen();
    1783 numeric_int2 (NUMERIC) -> INT2, Any, fallible(to_int);
    1744 numeric_int4 (NUMERIC) -> INT4, Any, fallible(to_int);
    1779 numeric_int8 (NUMERIC) -> INT8, Any, fallible(to_int);
    1745 numeric_float4 (NUMERIC) -> FLOAT4, Any, fallible(to_float4);
    1746 numeric_float8 (NUMERIC) -> FLOAT8, Any, fallible(to_float8);
    1742 float4_numeric (FLOAT4) -> NUMERIC, Any, safe(from_float4);
    1743 float8_numeric (FLOAT8) -> NUMERIC, Any, safe(from_float8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_gives_the_scale_and_the_direction() {
        let check = |text: &str, scale: i32, expected: [&str; 4]| {
            let value = Numeric::parse(text).unwrap();
            let all = [Rounding::HalfAwayFromZero, Rounding::TowardZero, Rounding::Up, Rounding::Down];
            for (rounding, expected) in all.into_iter().zip(expected) {
                let found = value.rounded(scale, rounding).unwrap();
                assert_eq!(found, Numeric::parse(expected).unwrap(), "{text} at {scale}, {rounding:?}");
            }
        };
        check("2.5", 0, ["3", "2", "3", "2"]);
        check("-2.5", 0, ["-3", "-2", "-2", "-3"]);
        check("-0.4", 0, ["0", "0", "0", "-1"]);
        check("1234.5678", 2, ["1234.57", "1234.56", "1234.57", "1234.56"]);
        check("5.5", 5, ["5.50000", "5.50000", "5.50000", "5.50000"]);
        check("149", -2, ["100", "100", "200", "100"]);
        check("0.00", 1, ["0.0", "0.0", "0.0", "0.0"]);
        assert!(Numeric::special(Class::NaN).rounded(0, Rounding::Up).is_none());
        assert!(Numeric::parse("1e40").unwrap().rounded(0, Rounding::Up).is_none());
    }
}
