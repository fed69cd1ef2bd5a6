//! Checked integer arithmetic and conversions between integer types.
//!
//! Source: `utils/adt/int.c`, `int8.c`, `char.c`.

use super::{Context, Operator, arithmetic, bitwise, fallible, functions, safe, widen};
use crate::value::{EvalResult, Undecided, Value, ValueKind};

fn int(args: &[Value<'_>]) -> Result<i64, Undecided> {
    match args {
        [Value::Int(value)] => Ok(*value),
        _ => Err(Undecided),
    }
}

/// Returns the value if it is in the range of the result type; undecided where PostgreSQL raises "out of range".
pub fn fit<'a>(value: Option<i64>, kind: ValueKind) -> EvalResult<'a> {
    let value = value.ok_or(Undecided)?;
    let fits = match kind {
        ValueKind::Int2 => i16::try_from(value).is_ok(),
        ValueKind::Int4 => i32::try_from(value).is_ok(),
        ValueKind::Oid => u32::try_from(value).is_ok(),
        ValueKind::Char => i8::try_from(value).is_ok(),
        _ => true,
    };
    // "char" is represented by an unsigned byte, as it compares.
    let value = if kind == ValueKind::Char { value & 0xff } else { value };
    if fits { Ok(Value::Int(value)) } else { Err(Undecided) }
}

/// Division truncates towards zero; division by zero, and of the minimum by -1, is an error. A remainder has the sign
/// of the dividend; any number modulo -1 is 0.
pub fn calculate<'a>(operator: Operator, left: i64, right: i64, result: ValueKind) -> EvalResult<'a> {
    let value = match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        Operator::Divide => left.checked_div(right),
        Operator::Modulo => (right != 0).then(|| left.wrapping_rem(right)),
        Operator::And => Some(left & right),
        Operator::Or => Some(left | right),
        Operator::Xor => Some(left ^ right),
        Operator::DaysBetween => None,
    };
    fit(value, result)
}

fn absolute<'a>(args: &mut [Value<'a>], context: &Context) -> EvalResult<'a> {
    fit(int(args)?.checked_abs(), context.result)
}

fn negate<'a>(args: &mut [Value<'a>], context: &Context) -> EvalResult<'a> {
    fit(int(args)?.checked_neg(), context.result)
}

fn same<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Int(int(args)?))
}

fn bit_not<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Int(!int(args)?))
}

fn char_to_int<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Int(int(args)? as u8 as i8 as i64))
}

fn narrow<'a>(args: &mut [Value<'a>], context: &Context) -> EvalResult<'a> {
    fit(Some(int(args)?), context.result)
}

fn is_nonzero<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Bool(int(args)? != 0))
}

functions! {
    176 int2pl (INT2, INT2) -> INT2, Any, arithmetic(Operator::Add);
    180 int2mi (INT2, INT2) -> INT2, Any, arithmetic(Operator::Subtract);
    152 int2mul (INT2, INT2) -> INT2, Any, arithmetic(Operator::Multiply);
    153 int2div (INT2, INT2) -> INT2, Any, arithmetic(Operator::Divide);
    177 int4pl (INT4, INT4) -> INT4, Any, arithmetic(Operator::Add);
    181 int4mi (INT4, INT4) -> INT4, Any, arithmetic(Operator::Subtract);
    141 int4mul (INT4, INT4) -> INT4, Any, arithmetic(Operator::Multiply);
    154 int4div (INT4, INT4) -> INT4, Any, arithmetic(Operator::Divide);
    463 int8pl (INT8, INT8) -> INT8, Any, arithmetic(Operator::Add);
    464 int8mi (INT8, INT8) -> INT8, Any, arithmetic(Operator::Subtract);
    465 int8mul (INT8, INT8) -> INT8, Any, arithmetic(Operator::Multiply);
    466 int8div (INT8, INT8) -> INT8, Any, arithmetic(Operator::Divide);
    178 int24pl (INT2, INT4) -> INT4, Any, arithmetic(Operator::Add);
    182 int24mi (INT2, INT4) -> INT4, Any, arithmetic(Operator::Subtract);
    170 int24mul (INT2, INT4) -> INT4, Any, arithmetic(Operator::Multiply);
    172 int24div (INT2, INT4) -> INT4, Any, arithmetic(Operator::Divide);
    841 int28pl (INT2, INT8) -> INT8, Any, arithmetic(Operator::Add);
    942 int28mi (INT2, INT8) -> INT8, Any, arithmetic(Operator::Subtract);
    943 int28mul (INT2, INT8) -> INT8, Any, arithmetic(Operator::Multiply);
    948 int28div (INT2, INT8) -> INT8, Any, arithmetic(Operator::Divide);
    179 int42pl (INT4, INT2) -> INT4, Any, arithmetic(Operator::Add);
    183 int42mi (INT4, INT2) -> INT4, Any, arithmetic(Operator::Subtract);
    171 int42mul (INT4, INT2) -> INT4, Any, arithmetic(Operator::Multiply);
    173 int42div (INT4, INT2) -> INT4, Any, arithmetic(Operator::Divide);
    1278 int48pl (INT4, INT8) -> INT8, Any, arithmetic(Operator::Add);
    1279 int48mi (INT4, INT8) -> INT8, Any, arithmetic(Operator::Subtract);
    1280 int48mul (INT4, INT8) -> INT8, Any, arithmetic(Operator::Multiply);
    1281 int48div (INT4, INT8) -> INT8, Any, arithmetic(Operator::Divide);
    837 int82pl (INT8, INT2) -> INT8, Any, arithmetic(Operator::Add);
    838 int82mi (INT8, INT2) -> INT8, Any, arithmetic(Operator::Subtract);
    839 int82mul (INT8, INT2) -> INT8, Any, arithmetic(Operator::Multiply);
    840 int82div (INT8, INT2) -> INT8, Any, arithmetic(Operator::Divide);
    1274 int84pl (INT8, INT4) -> INT8, Any, arithmetic(Operator::Add);
    1275 int84mi (INT8, INT4) -> INT8, Any, arithmetic(Operator::Subtract);
    1276 int84mul (INT8, INT4) -> INT8, Any, arithmetic(Operator::Multiply);
    1277 int84div (INT8, INT4) -> INT8, Any, arithmetic(Operator::Divide);
    155 int2mod (INT2, INT2) -> INT2, Any, arithmetic(Operator::Modulo);
    940 int2mod (INT2, INT2) -> INT2, Any, arithmetic(Operator::Modulo);
    1253 int2abs (INT2) -> INT2, Any, fallible(absolute);
    1398 int2abs (INT2) -> INT2, Any, fallible(absolute);
    213 int2um (INT2) -> INT2, Any, fallible(negate);
    1911 int2up (INT2) -> INT2, Any, safe(same);
    1892 int2and (INT2, INT2) -> INT2, Any, bitwise(Operator::And);
    1893 int2or (INT2, INT2) -> INT2, Any, bitwise(Operator::Or);
    1894 int2xor (INT2, INT2) -> INT2, Any, bitwise(Operator::Xor);
    1895 int2not (INT2) -> INT2, Any, safe(bit_not);
    156 int4mod (INT4, INT4) -> INT4, Any, arithmetic(Operator::Modulo);
    941 int4mod (INT4, INT4) -> INT4, Any, arithmetic(Operator::Modulo);
    1251 int4abs (INT4) -> INT4, Any, fallible(absolute);
    1397 int4abs (INT4) -> INT4, Any, fallible(absolute);
    212 int4um (INT4) -> INT4, Any, fallible(negate);
    1912 int4up (INT4) -> INT4, Any, safe(same);
    1898 int4and (INT4, INT4) -> INT4, Any, bitwise(Operator::And);
    1899 int4or (INT4, INT4) -> INT4, Any, bitwise(Operator::Or);
    1900 int4xor (INT4, INT4) -> INT4, Any, bitwise(Operator::Xor);
    1901 int4not (INT4) -> INT4, Any, safe(bit_not);
    945 int8mod (INT8, INT8) -> INT8, Any, arithmetic(Operator::Modulo);
    947 int8mod (INT8, INT8) -> INT8, Any, arithmetic(Operator::Modulo);
    1230 int8abs (INT8) -> INT8, Any, fallible(absolute);
    1396 int8abs (INT8) -> INT8, Any, fallible(absolute);
    462 int8um (INT8) -> INT8, Any, fallible(negate);
    1910 int8up (INT8) -> INT8, Any, safe(same);
    1904 int8and (INT8, INT8) -> INT8, Any, bitwise(Operator::And);
    1905 int8or (INT8, INT8) -> INT8, Any, bitwise(Operator::Or);
    1906 int8xor (INT8, INT8) -> INT8, Any, bitwise(Operator::Xor);
    1907 int8not (INT8) -> INT8, Any, safe(bit_not);
    313 i2toi4 (INT2) -> INT4, Any, widen();
    754 int28 (INT2) -> INT8, Any, widen();
    481 int48 (INT4) -> INT8, Any, widen();
    2558 bool_int4 (BOOL) -> INT4, Any, widen();
    77 chartoi4 (CHAR) -> INT4, Any, safe(char_to_int);
    1288 oidtoi8 (OID) -> INT8, Any, widen();
    314 i4toi2 (INT4) -> INT2, Any, fallible(narrow);
    714 int82 (INT8) -> INT2, Any, fallible(narrow);
    480 int84 (INT8) -> INT4, Any, fallible(narrow);
    78 i4tochar (INT4) -> CHAR, Any, fallible(narrow);
    1287 i8tooid (INT8) -> OID, Any, fallible(narrow);
    2557 int4_bool (INT4) -> BOOL, Any, safe(is_nonzero);
}
