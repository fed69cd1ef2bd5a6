//! Dates and timestamps. Functions that need the session's time zone are offloaded only while that is UTC, which callers
//! ensure: then a timestamp with time zone has the fields of the timestamp that is the same number.
//!
//! Dates are days, timestamps microseconds since 2000-01-01; the extreme integers are the infinities.
//! Source: `utils/adt/date.c`, `timestamp.c`, `datetime.c` (`j2date`), `datatype/timestamp.h`.

use cellar_format::postgres::{Oid, type_oid};
use std::ops::Range;

use super::{Context, Function, Operator, arithmetic, fallible, functions, safe};
use crate::value::{DATE_AFTER_TIMESTAMPS, EvalResult, Numeric, Undecided, Value};

const USECS_PER_DAY: i64 = 86_400_000_000;
const EPOCH_JULIAN: i64 = 2_451_545;
const UNIX_EPOCH_JULIAN: i64 = 2_440_588;
/// The Julian day of January 1 of the year 1.
const YEAR_1: i64 = 1_721_426;
/// `DATETIME_MIN_JULIAN - POSTGRES_EPOCH_JDATE` and `DATE_END_JULIAN - POSTGRES_EPOCH_JDATE`.
pub const FINITE_DATES: Range<i64> = DATE_MIN..2_147_483_494 - EPOCH_JULIAN;
const DATE_MIN: i64 = -EPOCH_JULIAN;
const TIMESTAMP_MIN: i64 = DATE_MIN * USECS_PER_DAY;
const TIMESTAMP_END: i64 = DATE_AFTER_TIMESTAMPS * USECS_PER_DAY;

fn date_is_infinite(date: i64) -> bool {
    date == i32::MIN as i64 || date == i32::MAX as i64
}

fn timestamp_is_infinite(timestamp: i64) -> bool {
    timestamp == i64::MIN || timestamp == i64::MAX
}

fn int(args: &[Value<'_>]) -> Result<i64, Undecided> {
    match args {
        [Value::Int(value)] => Ok(*value),
        _ => Err(Undecided),
    }
}

fn ints(args: &[Value<'_>]) -> Result<(i64, i64), Undecided> {
    match args {
        [Value::Int(left), Value::Int(right)] => Ok((*left, *right)),
        _ => Err(Undecided),
    }
}

/// Adds days to a date or subtracts them; infinite dates stay infinite.
pub fn calculate<'a>(operator: Operator, date: i64, days: i64) -> EvalResult<'a> {
    if date_is_infinite(date) {
        return Ok(Value::Int(date));
    }
    let shifted = match operator {
        Operator::Add => date.checked_add(days),
        Operator::Subtract => date.checked_sub(days),
        _ => None,
    };
    shifted.filter(|date| FINITE_DATES.contains(date)).map(Value::Int).ok_or(Undecided)
}

pub fn days_between<'a>(left: i64, right: i64) -> EvalResult<'a> {
    if date_is_infinite(left) || date_is_infinite(right) {
        return Err(Undecided);
    }
    Ok(Value::Int(left - right))
}

fn date_is_finite<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Bool(!date_is_infinite(int(args)?)))
}

fn timestamp_is_finite<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Bool(!timestamp_is_infinite(int(args)?)))
}

fn date_as_timestamp(date: i64) -> Result<i64, Undecided> {
    match date {
        date if date == i32::MIN as i64 => Ok(i64::MIN),
        date if date == i32::MAX as i64 => Ok(i64::MAX),
        date if !(DATE_MIN..DATE_AFTER_TIMESTAMPS).contains(&date) => Err(Undecided),
        date => Ok(date * USECS_PER_DAY),
    }
}

fn date_to_timestamp<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Int(date_as_timestamp(int(args)?)?))
}

fn date_plus_time<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let (date, time) = ints(args)?;
    let timestamp = date_as_timestamp(date)?;
    if timestamp_is_infinite(timestamp) {
        return Ok(Value::Int(timestamp));
    }
    let sum = timestamp.checked_add(time).ok_or(Undecided)?;
    if (TIMESTAMP_MIN..TIMESTAMP_END).contains(&sum) { Ok(Value::Int(sum)) } else { Err(Undecided) }
}

/// Returns the date and the microseconds of the day. Undecided for values that PostgreSQL may find out of range.
fn split_timestamp(timestamp: i64) -> Result<(i64, i64), Undecided> {
    if !(TIMESTAMP_MIN..TIMESTAMP_END).contains(&timestamp) {
        return Err(Undecided);
    }
    Ok((timestamp.div_euclid(USECS_PER_DAY), timestamp.rem_euclid(USECS_PER_DAY)))
}

fn timestamp_to_date<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Int(match int(args)? {
        i64::MIN => i32::MIN as i64,
        i64::MAX => i32::MAX as i64,
        timestamp => split_timestamp(timestamp)?.0,
    }))
}

/// Returns the time of day; NULL for an infinite timestamp.
fn timestamp_to_time<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    match int(args)? {
        i64::MIN | i64::MAX => Ok(Value::Null),
        timestamp => Ok(Value::Int(split_timestamp(timestamp)?.1)),
    }
}

/// Returns the proleptic Gregorian year, month and day of a date (`j2date`).
fn civil(date: i64) -> (i64, i64, i64) {
    let mut julian = date + EPOCH_JULIAN + 32_044;
    let mut quad = julian / 146_097;
    let extra = (julian - quad * 146_097) * 4 + 3;
    julian += 60 + quad * 3 + extra / 146_097;
    quad = julian / 1461;
    julian -= quad * 1461;
    let mut year = julian * 4 / 1461;
    julian = if year != 0 { (julian + 305) % 365 } else { (julian + 306) % 366 } + 123;
    year += quad * 4;
    let month_quad = julian * 2141 / 65_536;
    (year - 4800, (month_quad + 10) % 12 + 1, julian - 7834 * month_quad / 256)
}

/// Returns the date of a year from 1 to 9999, a month and a day. None: there is no such day.
pub fn day_number(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // The days before the year, with leap years, then those of the year.
    let before = year - 1;
    let first = before * 365 + before / 4 - before / 100 + before / 400 + YEAR_1 - EPOCH_JULIAN;
    let date = first + day_of_year((year, month, day)) - 1;
    (civil(date) == (year, month, day)).then_some(date)
}

/// Returns the timestamp of a date that [`day_number`] returns, at a time of day.
pub fn timestamp_of(date: i64, time: i64) -> i64 {
    date * USECS_PER_DAY + time
}

fn day_of_year((year, month, day): (i64, i64, i64)) -> i64 {
    let leap = year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0);
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    BEFORE[(month - 1) as usize] + day + i64::from(leap && month > 2)
}

/// Returns a field that dates and timestamps share. None: the field is left to PostgreSQL.
fn date_field(field: &[u8], date: i64) -> Option<i64> {
    let ymd @ (year, month, day) = civil(date);
    let weekday = (date + EPOCH_JULIAN + 1).rem_euclid(7);
    Some(match field {
        // There is no year 0: 1 BC precedes 1 AD.
        b"year" => year - i64::from(year <= 0),
        b"month" => month,
        b"day" => day,
        b"quarter" => (month - 1) / 3 + 1,
        b"doy" => day_of_year(ymd),
        b"dow" => weekday,
        b"isodow" => (weekday + 6) % 7 + 1,
        // A week belongs to the year of its Thursday (`date2isoweek`).
        b"week" if year > 1 => (day_of_year(civil(date - (weekday + 6) % 7 + 3)) - 1) / 7 + 1,
        _ => return None,
    })
}

/// Returns a field of a time of day as [`timestamp_field`] does. None: not a field of a time.
fn time_field(field: &[u8], time: i64) -> Option<(i64, u32)> {
    Some(match field {
        b"hour" => (time / 3_600_000_000, 0),
        b"minute" => (time / 60_000_000 % 60, 0),
        b"second" => (time % 60_000_000, 6),
        b"milliseconds" => (time % 60_000_000, 3),
        b"microseconds" => (time % 60_000_000, 0),
        _ => return None,
    })
}

/// Returns a field of a finite timestamp as a number and its decimals: the field is the number divided by `10^decimals`.
fn timestamp_field(field: &[u8], timestamp: i64) -> Result<(i64, u32), Undecided> {
    const UNIX_EPOCH: i64 = (UNIX_EPOCH_JULIAN - EPOCH_JULIAN) * USECS_PER_DAY;
    let (date, time) = split_timestamp(timestamp)?;
    Ok(match (field, time_field(field, time)) {
        (_, Some(found)) => found,
        (b"epoch", _) => (timestamp.checked_sub(UNIX_EPOCH).ok_or(Undecided)?, 6),
        (field, None) => (date_field(field, date).ok_or(Undecided)?, 0),
    })
}

/// Truncates a finite timestamp to a field (`timestamp_trunc`).
fn truncated(field: &[u8], timestamp: i64) -> Result<i64, Undecided> {
    let (date, time) = split_timestamp(timestamp)?;
    let unit = match field {
        b"microseconds" => 1,
        b"milliseconds" => 1000,
        b"second" => 1_000_000,
        b"minute" => 60_000_000,
        b"hour" => 3_600_000_000,
        _ => USECS_PER_DAY,
    };
    if unit != USECS_PER_DAY {
        return Ok(timestamp - time % unit);
    }
    let ymd @ (year, month, day) = civil(date);
    let first_day = match field {
        b"day" => date,
        // Weeks at the start of year 1 and before are left to PostgreSQL.
        b"week" if year > 1 => date - (date + EPOCH_JULIAN).rem_euclid(7),
        b"month" => date - (day - 1),
        b"quarter" => date - (day_of_year(ymd) - day_of_year((year, (month - 1) / 3 * 3 + 1, 1))),
        b"year" => date - (day_of_year(ymd) - 1),
        _ => return Err(Undecided),
    };
    let first = first_day * USECS_PER_DAY;
    if first < TIMESTAMP_MIN { Err(Undecided) } else { Ok(first) }
}

/// Returns whether the function is `extract`, `date_part` or `date_trunc`.
pub fn takes_field(function: &Function) -> bool {
    let of_time = matches!(
        function.args,
        [type_oid::TEXT, type_oid::DATE | type_oid::TIMESTAMP | type_oid::TIMESTAMPTZ | type_oid::TIME]
    );
    of_time && function.oid != AT_TIME_ZONE
}

/// Returns whether `extract`, `date_part` or `date_trunc` supports this field. An unsupported field would be undecided in
/// every row.
pub fn knows_field(function: &Function, field: &[u8]) -> bool {
    match (function.args, function.result) {
        ([_, type_oid::DATE], _) => field == b"epoch" || date_field(field, 0).is_some(),
        ([_, type_oid::TIME], _) => field == b"epoch" || time_field(field, 0).is_some(),
        (_, type_oid::TIMESTAMP | type_oid::TIMESTAMPTZ) => truncated(field, 0).is_ok(),
        _ => match timestamp_field(field, 0) {
            Ok((_, decimals)) => decimals == 0 || function.result == type_oid::NUMERIC,
            Err(Undecided) => false,
        },
    }
}

/// A function of a date or a timestamp that vectors evaluate: a field, a truncation to a field, or a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatePart {
    FieldOfDate(&'static [u8]),
    FieldOfTimestamp(&'static [u8]),
    Truncation(&'static [u8]),
    DateOfTimestamp,
    TimestampOfDate,
    /// A timestamp with time zone as one without, or the reverse, in UTC.
    SameTimestamp,
}

impl DatePart {
    /// The function that a call evaluates, given the field of `extract` and `date_trunc`. None: not a function of one date or
    /// timestamp, or the result is a float.
    pub fn of(function: &Function, field: Option<&[u8]>) -> Option<Self> {
        const FIELDS: [&[u8]; 14] = [
            b"year",
            b"month",
            b"day",
            b"quarter",
            b"doy",
            b"dow",
            b"isodow",
            b"week",
            b"hour",
            b"minute",
            b"second",
            b"milliseconds",
            b"microseconds",
            b"epoch",
        ];
        match (function.args, function.result) {
            ([type_oid::TIMESTAMP | type_oid::TIMESTAMPTZ], type_oid::DATE) => return Some(Self::DateOfTimestamp),
            ([type_oid::TIMESTAMP], type_oid::TIMESTAMPTZ) | ([type_oid::TIMESTAMPTZ], type_oid::TIMESTAMP) => {
                return Some(Self::SameTimestamp);
            }
            _ if function.oid == AT_TIME_ZONE => {
                return Some(Self::SameTimestamp).filter(|_| field.is_some_and(is_utc));
            }
            ([type_oid::DATE], type_oid::TIMESTAMP) => return Some(Self::TimestampOfDate),
            _ => {}
        }
        let field = field.filter(|field| takes_field(function) && knows_field(function, field))?;
        let field = FIELDS.into_iter().find(|known| *known == field)?;
        match (function.args, function.result) {
            ([_, type_oid::DATE], type_oid::NUMERIC) => Some(Self::FieldOfDate(field)),
            ([_, type_oid::TIME], _) => None,
            (_, type_oid::NUMERIC) => Some(Self::FieldOfTimestamp(field)),
            (_, type_oid::TIMESTAMP | type_oid::TIMESTAMPTZ) => Some(Self::Truncation(field)),
            _ => None,
        }
    }

    /// Decimals of the result, if the result is a numeric: the result is a number divided by `10^decimals`.
    pub fn decimals(self) -> u32 {
        match self {
            Self::FieldOfTimestamp(field) => timestamp_field(field, 0).map_or(0, |(_, decimals)| decimals),
            _ => 0,
        }
    }

    /// Calls `put` with the position and the result of each value. None: the interpreter must compute the result.
    #[inline]
    pub fn apply(self, values: &[i64], mut put: impl FnMut(usize, Option<i64>)) {
        let mut all = |function: &dyn Fn(i64) -> Option<i64>| {
            values.iter().enumerate().for_each(|(row, value)| put(row, function(*value)));
        };
        macro_rules! time_field {
            ($number:expr) => {{
                let number: fn(i64) -> i64 = $number;
                for (row, value) in values.iter().enumerate() {
                    put(row, split_timestamp(*value).ok().map(|(_, time)| number(time)));
                }
            }};
        }
        macro_rules! time_trunc {
            ($unit:expr) => {
                for (row, value) in values.iter().enumerate() {
                    put(row, split_timestamp(*value).ok().map(|_| value - value.rem_euclid($unit)));
                }
            };
        }
        match self {
            Self::FieldOfTimestamp(b"hour") => time_field!(|time| time / 3_600_000_000),
            Self::FieldOfTimestamp(b"minute") => time_field!(|time| time / 60_000_000 % 60),
            Self::FieldOfTimestamp(b"second") => time_field!(|time| time % 60_000_000),
            Self::FieldOfTimestamp(field) => all(&|value| Some(timestamp_field(field, value).ok()?.0)),
            Self::FieldOfDate(b"year") => all(&|date| {
                let year = civil(FINITE_DATES.contains(&date).then_some(date)?).0;
                Some(year - i64::from(year <= 0))
            }),
            Self::FieldOfDate(field) => all(&|date| field_of_date(field, date).ok()),
            Self::Truncation(b"second") => time_trunc!(1_000_000),
            Self::Truncation(b"minute") => time_trunc!(60_000_000),
            Self::Truncation(b"hour") => time_trunc!(3_600_000_000),
            Self::Truncation(b"day") => time_trunc!(USECS_PER_DAY),
            Self::Truncation(field) => all(&|value| truncated(field, value).ok()),
            Self::SameTimestamp => all(&Some),
            Self::DateOfTimestamp => all(&|value| split_timestamp(value).ok().map(|(date, _)| date)),
            Self::TimestampOfDate => {
                all(&|date| date_as_timestamp(date).ok().filter(|timestamp| !timestamp_is_infinite(*timestamp)))
            }
        }
    }
}

fn field_and_int<'v>(args: &'v [Value<'_>]) -> Result<(&'v [u8], i64), Undecided> {
    match args {
        [Value::Bytes(field), Value::Int(value)] => Ok((field, *value)),
        _ => Err(Undecided),
    }
}

/// Returns a field of a finite date.
fn field_of_date(field: &[u8], date: i64) -> Result<i64, Undecided> {
    if !FINITE_DATES.contains(&date) {
        return Err(Undecided);
    }
    match field {
        b"epoch" => Ok((date + EPOCH_JULIAN - UNIX_EPOCH_JULIAN) * 86_400),
        field => date_field(field, date).ok_or(Undecided),
    }
}

fn extract_date<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let (field, date) = field_and_int(args)?;
    Ok(Value::Numeric(Numeric::from_i64(field_of_date(field, date)?)))
}

fn extract_timestamp<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let (field, timestamp) = field_and_int(args)?;
    let (value, decimals) = timestamp_field(field, timestamp)?;
    Ok(Value::Numeric(Numeric::from_decimal(value, decimals)))
}

fn extract_time<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let (field, time) = field_and_int(args)?;
    let (value, decimals) = match field {
        b"epoch" => (time, 6),
        field => time_field(field, time).ok_or(Undecided)?,
    };
    if !(0..=USECS_PER_DAY).contains(&time) {
        return Err(Undecided);
    }
    Ok(Value::Numeric(Numeric::from_decimal(value, decimals)))
}

/// Evaluates `date_part`, which returns float8. Fields with a fraction are undecided, because their last bit is not
/// certain.
fn part_of_timestamp<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let (field, timestamp) = field_and_int(args)?;
    match timestamp_field(field, timestamp)? {
        (value, 0) => Ok(Value::Float(value as f64)),
        _ => Err(Undecided),
    }
}

fn truncate_timestamp<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let (field, timestamp) = field_and_int(args)?;
    match timestamp_is_infinite(timestamp) {
        true => Ok(Value::Int(timestamp)),
        false => truncated(field, timestamp).map(Value::Int),
    }
}

/// The function of `timestamptz AT TIME ZONE zone`.
const AT_TIME_ZONE: Oid = 1159;

fn is_utc(zone: &[u8]) -> bool {
    zone.eq_ignore_ascii_case(b"utc") || zone.eq_ignore_ascii_case(b"etc/utc")
}

fn same_timestamp<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Int(int(args)?))
}

fn at_time_zone<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    match field_and_int(args)? {
        (zone, timestamp) if is_utc(zone) => Ok(Value::Int(timestamp)),
        _ => Err(Undecided),
    }
}

functions! {
    1141 date_pli (DATE, INT4) -> DATE, Any, arithmetic(Operator::Add);
    1142 date_mii (DATE, INT4) -> DATE, Any, arithmetic(Operator::Subtract);
    1140 date_mi (DATE, DATE) -> INT4, Any, arithmetic(Operator::DaysBetween);
    1373 date_finite (DATE) -> BOOL, Any, safe(date_is_finite);
    1389 timestamp_finite (TIMESTAMPTZ) -> BOOL, Any, safe(timestamp_is_finite);
    2048 timestamp_finite (TIMESTAMP) -> BOOL, Any, safe(timestamp_is_finite);
    2024 date_timestamp (DATE) -> TIMESTAMP, Any, fallible(date_to_timestamp);
    2029 timestamp_date (TIMESTAMP) -> DATE, Any, fallible(timestamp_to_date);
    1316 timestamp_time (TIMESTAMP) -> TIME, Any, fallible(timestamp_to_time);
    6199 extract_date (TEXT, DATE) -> NUMERIC, Any, fallible(extract_date);
    6200 extract_time (TEXT, TIME) -> NUMERIC, Any, fallible(extract_time);
    6202 extract_timestamp (TEXT, TIMESTAMP) -> NUMERIC, Any, fallible(extract_timestamp);
    2021 timestamp_part (TEXT, TIMESTAMP) -> FLOAT8, Any, fallible(part_of_timestamp);
    1159 timestamptz_zone (TEXT, TIMESTAMPTZ) -> TIMESTAMP, Any, fallible(at_time_zone);
    1171 timestamptz_part (TEXT, TIMESTAMPTZ) -> FLOAT8, Any, fallible(part_of_timestamp);
    1178 timestamptz_date (TIMESTAMPTZ) -> DATE, Any, fallible(timestamp_to_date);
    1217 timestamptz_trunc (TEXT, TIMESTAMPTZ) -> TIMESTAMPTZ, Any, fallible(truncate_timestamp);
    2027 timestamptz_timestamp (TIMESTAMPTZ) -> TIMESTAMP, Any, fallible(same_timestamp);
    2028 timestamp_timestamptz (TIMESTAMP) -> TIMESTAMPTZ, Any, fallible(same_timestamp);
    6203 extract_timestamptz (TEXT, TIMESTAMPTZ) -> NUMERIC, Any, fallible(extract_timestamp);
    2020 timestamp_trunc (TEXT, TIMESTAMP) -> TIMESTAMP, Any, fallible(truncate_timestamp);
    1272 datetime_timestamp (DATE, TIME) -> TIMESTAMP, Any, fallible(date_plus_time);
    2025 datetime_timestamp (DATE, TIME) -> TIMESTAMP, Any, fallible(date_plus_time);
}

#[cfg(test)]
mod tests {
    use super::super::FunctionBody;
    use super::*;
    use crate::predicate::TextEncoding;
    use crate::value::ValueKind;

    #[test]
    fn a_week_belongs_to_the_year_of_its_thursday() {
        // 1999-12-31 to 2000-01-03, 2004-12-31, 2005-01-01 to 03, 2020-12-31, 2021-01-03 and 04
        let weeks = [
            (-1, 52),
            (0, 52),
            (1, 52),
            (2, 1),
            (1826, 53),
            (1827, 53),
            (1828, 53),
            (1829, 1),
            (7670, 53),
            (7673, 53),
            (7674, 1),
        ];
        for (date, week) in weeks {
            assert_eq!(date_field(b"week", date), Some(week), "{date}");
        }
    }

    /// Vectors compute the same results as the interpreter, or leave the value to the interpreter.
    #[test]
    fn vectors_agree_with_the_interpreter() {
        const FIELDS: [&str; 14] = [
            "year",
            "month",
            "day",
            "quarter",
            "doy",
            "dow",
            "isodow",
            "hour",
            "minute",
            "second",
            "milliseconds",
            "microseconds",
            "epoch",
            "week",
        ];
        let days = [
            i32::MIN as i64,
            DATE_MIN,
            -730_500,
            -366,
            -1,
            0,
            59,
            60,
            366,
            8000,
            FINITE_DATES.end - 1,
            i32::MAX as i64,
        ];
        let times = [0, 1, 59_999_999, 3_599_999_999, 43_200_000_000, USECS_PER_DAY - 1];
        let timestamps =
            days.iter().flat_map(|day| times.map(|time| day.saturating_mul(USECS_PER_DAY).saturating_add(time)));
        let timestamps: Vec<i64> = timestamps.chain([i64::MIN, i64::MAX, TIMESTAMP_MIN, TIMESTAMP_END - 1]).collect();
        let mut decided = 0;
        for function in TABLE {
            let FunctionBody::Scalar(scalar) = function.body else { continue };
            let context = Context { encoding: TextEncoding::Utf8, result: ValueKind::of(function.result).unwrap() };
            let values = match function.args.last() {
                Some(&type_oid::DATE) => days.to_vec(),
                _ => timestamps.clone(),
            };
            let fields = FIELDS.iter().filter(|_| function.args.len() == 2).map(|field| Some(*field));
            for field in fields.chain([None]) {
                let field = if function.oid == AT_TIME_ZONE { Some("utc") } else { field };
                let Some(part) = DatePart::of(function, field.map(str::as_bytes)) else { continue };
                part.apply(&values, |row, found| {
                    let Some(found) = found else { return };
                    let field = field.map(|field| Value::Bytes(field.as_bytes().into()));
                    let mut args: Vec<Value<'_>> = field.into_iter().chain([Value::Int(values[row])]).collect();
                    let expected = match context.result {
                        ValueKind::Numeric => Value::Numeric(Numeric::from_decimal(found, part.decimals())),
                        _ => Value::Int(found),
                    };
                    assert_eq!(scalar(&mut args, &context).ok(), Some(expected), "{part:?} of {}", values[row]);
                    decided += 1;
                });
            }
        }
        assert!(decided > 1000);
    }
}
