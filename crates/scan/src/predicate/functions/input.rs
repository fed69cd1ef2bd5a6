//! Casts of text to other types: their input functions, as far as the result depends on no setting.
//!
//! Only notations that all supported releases read alike are decided. All others are left to PostgreSQL, including those
//! that are errors. Source: `utils/adt/numutils.c`, `numeric.c`, `bool.c`, `float.c`, `datetime.c`.

use super::datetime::{day_number, timestamp_of};
use super::integer::fit;
use super::{Context, fallible, functions};
use crate::value::{EvalResult, Undecided, Value, numeric_text};

fn text<'v>(args: &'v [Value<'_>]) -> Result<&'v [u8], Undecided> {
    match args.first() {
        Some(Value::Bytes(text)) => Ok(text),
        _ => Err(Undecided),
    }
}

fn trimmed(mut text: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = text
        && numeric_text::is_space(*first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && numeric_text::is_space(*last)
    {
        text = rest;
    }
    text
}

/// Reads an integer in decimal notation.
fn int<'a>(args: &mut [Value<'a>], context: &Context) -> EvalResult<'a> {
    let text = trimmed(text(args)?);
    let value = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    fit(value, context.result)
}

/// Reads a number. The other arguments are the type and its modifier.
fn numeric<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    match args {
        [_, _, Value::Int(-1)] => numeric_text::parse(text(args)?).map(Value::Numeric).ok_or(Undecided),
        _ => Err(Undecided),
    }
}

/// Reads a word for true or false, which can be abbreviated (`parse_bool_with_len`).
fn bool<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let text = trimmed(text(args)?).to_ascii_lowercase();
    let abbreviates = |word: &[u8], least: usize| text.len() >= least && word.starts_with(&text);
    let value = match text.first() {
        Some(b't') if abbreviates(b"true", 1) => true,
        Some(b'f') if abbreviates(b"false", 1) => false,
        Some(b'y') if abbreviates(b"yes", 1) => true,
        Some(b'n') if abbreviates(b"no", 1) => false,
        Some(b'o') if abbreviates(b"on", 2) => true,
        Some(b'o') if abbreviates(b"off", 2) => false,
        Some(b'1') if text.len() == 1 => true,
        Some(b'0') if text.len() == 1 => false,
        _ => return Err(Undecided),
    };
    Ok(Value::Bool(value))
}

fn is_zero(number: &str) -> bool {
    let mantissa = number.split(['e', 'E']).next().unwrap_or_default();
    !mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'))
}

/// The value, unless it is out of range.
fn in_range<'a>(number: &str, value: f64) -> EvalResult<'a> {
    if value.is_infinite() || value == 0.0 && !is_zero(number) { Err(Undecided) } else { Ok(Value::Float(value)) }
}

fn float8<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let number = numeric_text::decimal(text(args)?).ok_or(Undecided)?;
    in_range(number, number.parse().map_err(|_| Undecided)?)
}

fn float4<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let number = numeric_text::decimal(text(args)?).ok_or(Undecided)?;
    let value: f32 = number.parse().map_err(|_| Undecided)?;
    in_range(number, value.into())
}

/// Reads digits and the separators between them. None: the text has another form.
fn digits<const N: usize>(text: &[u8], form: [(usize, Option<u8>); N]) -> Option<([i64; N], &[u8])> {
    let mut numbers = [0; N];
    let mut rest = text;
    for (number, (count, separator)) in numbers.iter_mut().zip(form) {
        let (digits, after) = rest.split_at_checked(count)?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        *number = digits.iter().fold(0, |all, digit| 10 * all + i64::from(digit - b'0'));
        rest = match separator {
            Some(separator) => after.strip_prefix(&[separator])?,
            None => after,
        };
    }
    Some((numbers, rest))
}

/// Reads a date of the form 2001-12-31, which does not depend on `DateStyle`. Returns it as days, and the text that follows.
fn read_date(text: &[u8]) -> Option<(i64, &[u8])> {
    let ([year, month, day], rest) = digits(text, [(4, Some(b'-')), (2, Some(b'-')), (2, None)])?;
    Some((day_number(year, month, day)?, rest))
}

fn date<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    match read_date(trimmed(text(args)?)) {
        Some((date, [])) => Ok(Value::Int(date)),
        _ => Err(Undecided),
    }
}

/// Reads a time of day of the form 23:59:59, with up to six decimals. Returns microseconds.
fn read_time(text: &[u8]) -> Option<i64> {
    let ([hour, minute, second], rest) = digits(text, [(2, Some(b':')), (2, Some(b':')), (2, None)])?;
    let decimals = match rest.split_first() {
        None => &[][..],
        Some((b'.', decimals)) if matches!(decimals.len(), 1..=6) => decimals,
        Some(_) => return None,
    };
    if hour > 23 || minute > 59 || second > 59 || !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let fraction = decimals.iter().fold(0, |all, digit| 10 * all + i64::from(digit - b'0'));
    let fraction = fraction * 10i64.pow(6 - decimals.len() as u32);
    Some(((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction)
}

/// Reads a date and a time, as in 2001-12-31 23:59:59.5 or 2001-12-31T23:59:59Z; the zone is ignored. The other arguments
/// are the type and its modifier.
fn timestamp<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let [_, _, Value::Int(-1)] = args else { return Err(Undecided) };
    let (date, rest) = read_date(trimmed(text(args)?)).ok_or(Undecided)?;
    let time = match rest {
        [] => 0,
        [b' ', time @ ..] => read_time(time).ok_or(Undecided)?,
        [b'T', time @ ..] => read_time(time.strip_suffix(b"Z").unwrap_or(time)).ok_or(Undecided)?,
        _ => return Err(Undecided),
    };
    Ok(Value::Int(timestamp_of(date, time)))
}

functions! {
    38 int2in (CSTRING) -> INT2, Any, fallible(int);
    42 int4in (CSTRING) -> INT4, Any, fallible(int);
    460 int8in (CSTRING) -> INT8, Any, fallible(int);
    1701 numeric_in (CSTRING, OID, INT4) -> NUMERIC, Any, fallible(numeric);
    1242 boolin (CSTRING) -> BOOL, Any, fallible(bool);
    200 float4in (CSTRING) -> FLOAT4, Any, fallible(float4);
    214 float8in (CSTRING) -> FLOAT8, Any, fallible(float8);
    1084 date_in (CSTRING) -> DATE, Any, fallible(date);
    1312 timestamp_in (CSTRING, OID, INT4) -> TIMESTAMP, Any, fallible(timestamp);
}

#[cfg(test)]
mod tests {
    use super::super::TextEncoding;
    use super::*;
    use crate::value::ValueKind;

    fn call(function: super::super::Scalar, result: ValueKind, text: &str) -> Option<Value<'static>> {
        let modifiers = [Value::Int(0), Value::Int(-1)];
        let mut args = vec![Value::Bytes(text.as_bytes().to_vec().into())];
        args.extend(modifiers);
        function(&mut args, &Context { encoding: TextEncoding::Utf8, result }).ok()
    }

    /// The expected values are PostgreSQL's. None: PostgreSQL must decide.
    #[test]
    fn text_is_cast_as_in_postgresql() {
        let int4 = |text| call(int, ValueKind::Int4, text);
        assert_eq!(int4(" 007\n"), Some(Value::Int(7)));
        assert_eq!(int4("-2147483648"), Some(Value::Int(-2147483648)));
        assert_eq!(int4("+5"), Some(Value::Int(5)));
        for text in ["2147483648", "", "1.0", "1e3", "0x1", "1_0", "- 1", "--1"] {
            assert_eq!(int4(text), None, "{text}");
        }
        for (text, expected) in [
            ("TRUE", Some(true)),
            (" ye ", Some(true)),
            ("of", Some(false)),
            ("o", None),
            ("", None),
            ("trues", None),
            ("0", Some(false)),
            ("00", None),
        ] {
            assert_eq!(call(bool, ValueKind::Bool, text), expected.map(Value::Bool), "{text}");
        }
        for (text, expected) in [
            ("1e-310", Some(1e-310)),
            ("1e400", None),
            ("1e-400", None),
            ("0e5", Some(0.0)),
            ("nan", None),
            (" .5 ", Some(0.5)),
        ] {
            assert_eq!(call(float8, ValueKind::Float8, text), expected.map(Value::Float), "{text}");
        }
        assert_eq!(call(float4, ValueKind::Float4, "0.1"), Some(Value::Float(0.1f32.into())));
    }

    #[test]
    fn dates_and_timestamps_are_read_only_in_one_form() {
        let date = |text| call(date, ValueKind::Date, text);
        assert_eq!(date("2000-03-01"), Some(Value::Int(60)));
        assert_eq!(date("1999-12-31 "), Some(Value::Int(-1)));
        for text in ["2000-02-30", "0000-01-01", "2000-13-01", "2000-3-01", "01-03-2000", "2000-03-01 x", "2000-00-01"]
        {
            assert_eq!(date(text), None, "{text}");
        }
        let timestamp = |text| call(timestamp, ValueKind::Timestamp, text);
        assert_eq!(timestamp("2000-01-02"), Some(Value::Int(86_400_000_000)));
        assert_eq!(timestamp("2000-01-01T00:00:01.5Z"), Some(Value::Int(1_500_000)));
        assert_eq!(timestamp("2000-01-01 01:00:00"), Some(Value::Int(3_600_000_000)));
        for text in ["2000-01-01 24:00:00", "2000-01-01 00:00:60", "2000-01-01 0:00:00", "2000-01-01T00:00:00+01"] {
            assert_eq!(timestamp(text), None, "{text}");
        }
    }
}
