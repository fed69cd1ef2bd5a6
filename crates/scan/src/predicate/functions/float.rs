//! Floating-point arithmetic, with the overflow and underflow errors of `utils/float.h`, and conversions.
//!
//! A `float4` is represented by the double with the same value; its arithmetic is done in single precision.

use super::integer::fit;
use super::{Context, fallible, functions, safe};
use crate::value::{EvalResult, Undecided, Value};

fn floats(args: &[Value<'_>]) -> Result<(f64, f64), Undecided> {
    match args {
        [Value::Float(left), Value::Float(right)] => Ok((*left, *right)),
        _ => Err(Undecided),
    }
}

fn float(args: &[Value<'_>]) -> Result<f64, Undecided> {
    match args {
        [Value::Float(value)] => Ok(*value),
        _ => Err(Undecided),
    }
}

fn int(args: &[Value<'_>]) -> Result<i64, Undecided> {
    match args {
        [Value::Int(value)] => Ok(*value),
        _ => Err(Undecided),
    }
}

/// The four operations in the precision `$float`.
macro_rules! arithmetic {
    ($float:ty, $add:ident, $subtract:ident, $multiply:ident, $divide:ident) => {
        fn $add<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
            let (left, right) = floats(args)?;
            let (left, right) = (left as $float, right as $float);
            let result = left + right;
            let overflow = result.is_infinite() && !left.is_infinite() && !right.is_infinite();
            if overflow { Err(Undecided) } else { Ok(Value::Float(result as f64)) }
        }

        fn $subtract<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
            let (left, right) = floats(args)?;
            let (left, right) = (left as $float, right as $float);
            let result = left - right;
            let overflow = result.is_infinite() && !left.is_infinite() && !right.is_infinite();
            if overflow { Err(Undecided) } else { Ok(Value::Float(result as f64)) }
        }

        fn $multiply<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
            let (left, right) = floats(args)?;
            let (left, right) = (left as $float, right as $float);
            let result = left * right;
            let overflow = result.is_infinite() && !left.is_infinite() && !right.is_infinite();
            let underflow = result == 0.0 && left != 0.0 && right != 0.0;
            if overflow || underflow { Err(Undecided) } else { Ok(Value::Float(result as f64)) }
        }

        fn $divide<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
            let (left, right) = floats(args)?;
            let (left, right) = (left as $float, right as $float);
            let by_zero = right == 0.0 && !left.is_nan();
            let result = left / right;
            let overflow = result.is_infinite() && !left.is_infinite();
            let underflow = result == 0.0 && left != 0.0 && !right.is_infinite();
            if by_zero || overflow || underflow { Err(Undecided) } else { Ok(Value::Float(result as f64)) }
        }
    };
}

arithmetic!(f32, add4, subtract4, multiply4, divide4);
arithmetic!(f64, add8, subtract8, multiply8, divide8);

fn absolute<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Float(float(args)?.abs()))
}

fn negate<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Float(-float(args)?))
}

fn same<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Float(float(args)?))
}

fn int_to_float8<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Float(int(args)? as f64))
}

fn int_to_float4<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Float(int(args)? as f32 as f64))
}

fn float8_to_float4<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let value = float(args)?;
    let result = value as f32;
    let overflow = result.is_infinite() && !value.is_infinite();
    let underflow = result == 0.0 && value != 0.0;
    if overflow || underflow { Err(Undecided) } else { Ok(Value::Float(result as f64)) }
}

/// Rounds half to even (`rint`), then checks the range of the result type.
fn float_to_int<'a>(args: &mut [Value<'a>], context: &Context) -> EvalResult<'a> {
    const LIMIT: f64 = -(i64::MIN as f64);
    let value = float(args)?.round_ties_even();
    let fits = (-LIMIT..LIMIT).contains(&value);
    fit(fits.then_some(value as i64), context.result)
}

/// Rounds half to even (`rint`).
fn round<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Float(float(args)?.round_ties_even()))
}

/// Negative values round to -0.
fn truncate<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let value = float(args)?;
    Ok(Value::Float(if value >= 0.0 { value.floor() } else { -(-value).floor() }))
}

fn ceiling<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Float(float(args)?.ceil()))
}

fn floor<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Float(float(args)?.floor()))
}

/// IEEE 754 defines every bit of a square root.
fn square_root<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let value = float(args)?;
    if value < 0.0 { Err(Undecided) } else { Ok(Value::Float(value.sqrt())) }
}

functions! {
    204 float4pl (FLOAT4, FLOAT4) -> FLOAT4, Any, fallible(add4);
    205 float4mi (FLOAT4, FLOAT4) -> FLOAT4, Any, fallible(subtract4);
    202 float4mul (FLOAT4, FLOAT4) -> FLOAT4, Any, fallible(multiply4);
    203 float4div (FLOAT4, FLOAT4) -> FLOAT4, Any, fallible(divide4);
    218 float8pl (FLOAT8, FLOAT8) -> FLOAT8, Any, fallible(add8);
    219 float8mi (FLOAT8, FLOAT8) -> FLOAT8, Any, fallible(subtract8);
    216 float8mul (FLOAT8, FLOAT8) -> FLOAT8, Any, fallible(multiply8);
    217 float8div (FLOAT8, FLOAT8) -> FLOAT8, Any, fallible(divide8);
    281 float48pl (FLOAT4, FLOAT8) -> FLOAT8, Any, fallible(add8);
    282 float48mi (FLOAT4, FLOAT8) -> FLOAT8, Any, fallible(subtract8);
    279 float48mul (FLOAT4, FLOAT8) -> FLOAT8, Any, fallible(multiply8);
    280 float48div (FLOAT4, FLOAT8) -> FLOAT8, Any, fallible(divide8);
    285 float84pl (FLOAT8, FLOAT4) -> FLOAT8, Any, fallible(add8);
    286 float84mi (FLOAT8, FLOAT4) -> FLOAT8, Any, fallible(subtract8);
    283 float84mul (FLOAT8, FLOAT4) -> FLOAT8, Any, fallible(multiply8);
    284 float84div (FLOAT8, FLOAT4) -> FLOAT8, Any, fallible(divide8);
    207 float4abs (FLOAT4) -> FLOAT4, Any, safe(absolute);
    1394 float4abs (FLOAT4) -> FLOAT4, Any, safe(absolute);
    206 float4um (FLOAT4) -> FLOAT4, Any, safe(negate);
    1913 float4up (FLOAT4) -> FLOAT4, Any, safe(same);
    221 float8abs (FLOAT8) -> FLOAT8, Any, safe(absolute);
    1395 float8abs (FLOAT8) -> FLOAT8, Any, safe(absolute);
    220 float8um (FLOAT8) -> FLOAT8, Any, safe(negate);
    1914 float8up (FLOAT8) -> FLOAT8, Any, safe(same);
    228 dround (FLOAT8) -> FLOAT8, Any, safe(round);
    1342 dround (FLOAT8) -> FLOAT8, Any, safe(round);
    229 dtrunc (FLOAT8) -> FLOAT8, Any, safe(truncate);
    1343 dtrunc (FLOAT8) -> FLOAT8, Any, safe(truncate);
    2308 dceil (FLOAT8) -> FLOAT8, Any, safe(ceiling);
    2320 dceil (FLOAT8) -> FLOAT8, Any, safe(ceiling);
    2309 dfloor (FLOAT8) -> FLOAT8, Any, safe(floor);
    230 dsqrt (FLOAT8) -> FLOAT8, Any, fallible(square_root);
    1344 dsqrt (FLOAT8) -> FLOAT8, Any, fallible(square_root);
    235 i2tod (INT2) -> FLOAT8, Any, safe(int_to_float8);
    316 i4tod (INT4) -> FLOAT8, Any, safe(int_to_float8);
    482 i8tod (INT8) -> FLOAT8, Any, safe(int_to_float8);
    236 i2tof (INT2) -> FLOAT4, Any, safe(int_to_float4);
    318 i4tof (INT4) -> FLOAT4, Any, safe(int_to_float4);
    652 i8tof (INT8) -> FLOAT4, Any, safe(int_to_float4);
    311 ftod (FLOAT4) -> FLOAT8, Any, safe(same);
    312 dtof (FLOAT8) -> FLOAT4, Any, fallible(float8_to_float4);
    237 dtoi2 (FLOAT8) -> INT2, Any, fallible(float_to_int);
    317 dtoi4 (FLOAT8) -> INT4, Any, fallible(float_to_int);
    483 dtoi8 (FLOAT8) -> INT8, Any, fallible(float_to_int);
    238 ftoi2 (FLOAT4) -> INT2, Any, fallible(float_to_int);
    319 ftoi4 (FLOAT4) -> INT4, Any, fallible(float_to_int);
    653 ftoi8 (FLOAT4) -> INT8, Any, fallible(float_to_int);
}
