//! Floating-point arithmetic, with the overflow and underflow errors of `utils/float.h`, and conversions.
//!
//! A `float4` is represented by the double with the same value; its arithmetic is done in single precision.

use super::integer::fit;
use super::{Context, Operator, arithmetic, fallible, functions, safe};
use crate::value::{EvalResult, Undecided, Value, ValueKind};

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

/// Evaluates an operation in the precision of the result.
pub fn calculate<'a>(operator: Operator, left: f64, right: f64, result: ValueKind) -> EvalResult<'a> {
    let (value, is_error) = match result {
        ValueKind::Float4 => single(operator, left, right),
        _ => double(operator, left, right),
    };
    if is_error { Err(Undecided) } else { Ok(Value::Float(value)) }
}

/// An operation in the precision `$float`: the result, and whether PostgreSQL raises an error instead.
macro_rules! operation {
    ($name:ident, $float:ty) => {
        #[inline(always)]
        pub fn $name(operator: Operator, left: f64, right: f64) -> (f64, bool) {
            let (left, right) = (left as $float, right as $float);
            let are_finite = !left.is_infinite() & !right.is_infinite();
            let (result, is_error) = match operator {
                Operator::Add => (left + right, (left + right).is_infinite() & are_finite),
                Operator::Subtract => (left - right, (left - right).is_infinite() & are_finite),
                Operator::Multiply => {
                    let result = left * right;
                    let underflow = (result == 0.0) & (left != 0.0) & (right != 0.0);
                    (result, result.is_infinite() & are_finite | underflow)
                }
                Operator::Divide => {
                    let by_zero = (right == 0.0) & !left.is_nan();
                    let result = left / right;
                    let overflow = result.is_infinite() & !left.is_infinite();
                    let underflow = (result == 0.0) & (left != 0.0) & !right.is_infinite();
                    (result, by_zero | overflow | underflow)
                }
                _ => (0.0, true),
            };
            (result as f64, is_error)
        }
    };
}

operation!(single, f32);
operation!(double, f64);

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

/// The value in single precision, and whether PostgreSQL raises an error instead.
#[inline(always)]
pub fn to_single(value: f64) -> (f64, bool) {
    let result = value as f32;
    let overflow = result.is_infinite() & !value.is_infinite();
    let underflow = (result == 0.0) & (value != 0.0);
    (result as f64, overflow | underflow)
}

fn float8_to_float4<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let (value, is_error) = to_single(float(args)?);
    if is_error { Err(Undecided) } else { Ok(Value::Float(value)) }
}

/// Rounds half to even (`rint`). None: out of range.
#[inline(always)]
pub fn to_integer(value: f64) -> Option<i64> {
    const LIMIT: f64 = -(i64::MIN as f64);
    let value = value.round_ties_even();
    (-LIMIT..LIMIT).contains(&value).then_some(value as i64)
}

fn float_to_int<'a>(args: &mut [Value<'a>], context: &Context) -> EvalResult<'a> {
    fit(to_integer(float(args)?), context.result)
}

/// Rounds half to even (`rint`).
fn round<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Float(float(args)?.round_ties_even()))
}

/// Negative values round to -0.
#[inline(always)]
pub fn truncated(value: f64) -> f64 {
    if value >= 0.0 { value.floor() } else { -(-value).floor() }
}

fn truncate<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Float(truncated(float(args)?)))
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
    204 float4pl (FLOAT4, FLOAT4) -> FLOAT4, Any, arithmetic(Operator::Add);
    205 float4mi (FLOAT4, FLOAT4) -> FLOAT4, Any, arithmetic(Operator::Subtract);
    202 float4mul (FLOAT4, FLOAT4) -> FLOAT4, Any, arithmetic(Operator::Multiply);
    203 float4div (FLOAT4, FLOAT4) -> FLOAT4, Any, arithmetic(Operator::Divide);
    218 float8pl (FLOAT8, FLOAT8) -> FLOAT8, Any, arithmetic(Operator::Add);
    219 float8mi (FLOAT8, FLOAT8) -> FLOAT8, Any, arithmetic(Operator::Subtract);
    216 float8mul (FLOAT8, FLOAT8) -> FLOAT8, Any, arithmetic(Operator::Multiply);
    217 float8div (FLOAT8, FLOAT8) -> FLOAT8, Any, arithmetic(Operator::Divide);
    281 float48pl (FLOAT4, FLOAT8) -> FLOAT8, Any, arithmetic(Operator::Add);
    282 float48mi (FLOAT4, FLOAT8) -> FLOAT8, Any, arithmetic(Operator::Subtract);
    279 float48mul (FLOAT4, FLOAT8) -> FLOAT8, Any, arithmetic(Operator::Multiply);
    280 float48div (FLOAT4, FLOAT8) -> FLOAT8, Any, arithmetic(Operator::Divide);
    285 float84pl (FLOAT8, FLOAT4) -> FLOAT8, Any, arithmetic(Operator::Add);
    286 float84mi (FLOAT8, FLOAT4) -> FLOAT8, Any, arithmetic(Operator::Subtract);
    283 float84mul (FLOAT8, FLOAT4) -> FLOAT8, Any, arithmetic(Operator::Multiply);
    284 float84div (FLOAT8, FLOAT4) -> FLOAT8, Any, arithmetic(Operator::Divide);
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
