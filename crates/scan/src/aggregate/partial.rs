//! Encodes states as PostgreSQL's partial aggregation does (`AGGSPLIT_INITIAL_SERIAL`), byte for byte.
//!
//! Integers inside serialized states are big-endian, as `libpq/pqformat.c` writes them; datums have their in-memory
//! format. The formats are the same in PostgreSQL 15 to 18. Source: `numericvar_serialize`,
//! `numeric_avg_serialize`, `numeric_serialize`, `numeric_poly_serialize` and `int8_avg_serialize` in `utils/adt/numeric.c`, `utils/array.h`.

use super::squares::Squares;
use crate::batch::ColumnBuilder;
use crate::value::numeric::{Class, digits_of};
use crate::value::{Numeric, Value, ValueKind};
use cellar_format::postgres::type_oid;

/// `NUMERIC_POS` and `NUMERIC_NEG`.
const POSITIVE: i32 = 0x0000;
const NEGATIVE: i32 = 0x4000;
/// Payloads up to this length get a one-byte header (`VARATT_SHORT_MAX`).
const SHORT_PAYLOAD_MAX: usize = 0x7f - 1;

fn put_numeric_var(out: &mut Vec<u8>, digits: &[i16], weight: i32, negative: bool, scale: i32) {
    out.extend((digits.len() as i32).to_be_bytes());
    out.extend(weight.to_be_bytes());
    out.extend(if negative { NEGATIVE } else { POSITIVE }.to_be_bytes());
    out.extend(scale.to_be_bytes());
    for digit in digits {
        out.extend(digit.to_be_bytes());
    }
}

fn put_int128(out: &mut Vec<u8>, value: i128) {
    let digits = digits_of(value.unsigned_abs());
    put_numeric_var(out, &digits, (digits.len() as i32 - 1).max(0), value < 0, 0);
}

/// Appends `value` times `BASE^-fraction_digits` without trailing zeroes, as `strip_var` leaves it.
fn put_stripped(out: &mut Vec<u8>, value: i128, fraction_digits: i32, scale: i32) {
    let mut digits = digits_of(value.unsigned_abs());
    let weight = if digits.is_empty() { 0 } else { digits.len() as i32 - 1 - fraction_digits };
    while digits.last() == Some(&0) {
        digits.pop();
    }
    put_numeric_var(out, &digits, weight, value < 0, scale);
}

/// Appends `value` times `10^-decimals`.
fn put_decimal(out: &mut Vec<u8>, value: i128, decimals: u32, scale: i32) {
    let fraction_digits = decimals.div_ceil(4);
    put_stripped(out, value * 10i128.pow(fraction_digits * 4 - decimals), fraction_digits as i32, scale);
}

/// `int8_avg_serialize`: the digits are those of `int128_to_numericvar`, which keeps trailing zeroes.
pub fn wide_sum(count: i64, sum: i128) -> Vec<u8> {
    let mut out = Vec::with_capacity(48);
    out.extend(count.to_be_bytes());
    put_int128(&mut out, sum);
    out
}

/// `numeric_poly_serialize`.
pub fn int_squares(state: &Squares) -> Vec<u8> {
    let mut out = Vec::with_capacity(96);
    out.extend(state.count.to_be_bytes());
    put_int128(&mut out, state.sum);
    put_int128(&mut out, state.squares);
    out
}

/// `numeric_serialize` of finite values that were added up times `10^decimals`.
pub fn numeric_squares(state: &Squares, decimals: u32) -> Vec<u8> {
    let scale = i32::from(state.scale);
    let mut out = Vec::with_capacity(128);
    out.extend(state.count.to_be_bytes());
    put_decimal(&mut out, state.sum, decimals, scale);
    put_decimal(&mut out, state.squares, 2 * decimals, 2 * scale);
    put_scales(&mut out, scale, state.scale_count);
    out
}

/// Appends the greatest display scale, the number of values with this scale, and the numbers of NaNs, infinities and negative
/// infinities, which are 0.
fn put_scales(out: &mut Vec<u8>, scale: i32, scale_count: i64) {
    out.extend(scale.to_be_bytes());
    out.extend(scale_count.to_be_bytes());
    out.extend([0; 24]);
}

/// `numeric_avg_serialize` of a sum of finite values. `sum` is the sum times `BASE^fraction_digits`; `scale_count` of
/// the values have the greatest display scale, `scale`.
pub fn numeric_sum(count: i64, sum: i128, fraction_digits: i32, scale: i32, scale_count: i64) -> Vec<u8> {
    let mut out = Vec::with_capacity(96);
    out.extend(count.to_be_bytes());
    put_stripped(&mut out, sum, fraction_digits, scale);
    put_scales(&mut out, scale, scale_count);
    out
}

/// A one-dimensional array of eight-byte values with the array's alignment.
fn array(element: u32, values: &[[u8; 8]]) -> Vec<u8> {
    const HEADER_BYTES: usize = 24;
    let mut out = Vec::with_capacity(HEADER_BYTES + values.len() * 8);
    out.extend((((HEADER_BYTES + values.len() * 8) as u32) << 2).to_le_bytes());
    for word in [1, 0, element, values.len() as u32, 1] {
        out.extend(word.to_le_bytes());
    }
    values.iter().for_each(|value| out.extend(value));
    out
}

pub fn count_and_sum(count: i64, sum: i64) -> Vec<u8> {
    array(type_oid::INT8, &[count.to_le_bytes(), sum.to_le_bytes()])
}

pub fn moments(moments: [f64; 3]) -> Vec<u8> {
    array(type_oid::FLOAT8, &moments.map(f64::to_le_bytes))
}

/// The payload of a numeric datum, as `make_result` builds it: with the short header if scale and weight fit.
pub fn numeric_payload(value: &Numeric) -> Vec<u8> {
    let special = match value.class {
        Class::NaN => Some(0xc000u16),
        Class::PositiveInfinity => Some(0xd000),
        Class::NegativeInfinity => Some(0xf000),
        Class::Finite => None,
    };
    if let Some(header) = special {
        return header.to_le_bytes().to_vec();
    }
    let mut out = Vec::with_capacity(4 + value.digits.len() * 2);
    if (0..=0x3f).contains(&value.scale) && (-64..=63).contains(&value.weight) {
        let sign = if value.negative { 0x2000 } else { 0 };
        let header = 0x8000 | sign | (value.scale as u16) << 7 | (value.weight as u16 & 0x7f);
        out.extend(header.to_le_bytes());
    } else {
        let sign = if value.negative { 0x4000 } else { 0 };
        out.extend((sign | value.scale as u16 & 0x3fff).to_le_bytes());
        out.extend((value.weight as i16).to_le_bytes());
    }
    value.digits.iter().for_each(|digit| out.extend(digit.to_le_bytes()));
    out
}

/// Appending values to the result columns of groups.
impl ColumnBuilder {
    /// Appends a NULL as row `row`; `stride` is the column's.
    pub(super) fn push_null(&mut self, row: usize, stride: usize) {
        self.nulls.resize(row + 1, 0);
        self.nulls[row] = 1;
        self.values.resize(self.values.len() + if stride == 0 { 4 } else { stride }, 0);
    }

    pub(super) fn push_fixed(&mut self, bytes: &[u8]) {
        self.values.extend_from_slice(bytes);
    }

    /// Appends a varlena with this payload and the header that it would have in a tuple.
    pub(super) fn push_payload(&mut self, payload: &[u8]) {
        if payload.len() <= SHORT_PAYLOAD_MAX {
            self.values.extend((self.data.len() as u32).to_le_bytes());
            self.data.push(((payload.len() as u8 + 1) << 1) | 1);
        } else {
            self.data.resize(self.data.len().next_multiple_of(8), 0);
            self.values.extend((self.data.len() as u32).to_le_bytes());
            self.data.extend((((payload.len() + 4) as u32) << 2).to_le_bytes());
        }
        self.data.extend_from_slice(payload);
    }

    /// Appends a whole datum with a four-byte header.
    pub(super) fn push_datum(&mut self, datum: &[u8]) {
        self.data.resize(self.data.len().next_multiple_of(8), 0);
        self.values.extend((self.data.len() as u32).to_le_bytes());
        self.data.extend_from_slice(datum);
    }

    pub(super) fn push_int(&mut self, kind: ValueKind, value: i64) {
        match kind {
            ValueKind::Bool | ValueKind::Char => self.push_fixed(&[value as u8]),
            ValueKind::Int2 => self.push_fixed(&(value as i16).to_le_bytes()),
            ValueKind::Int4 | ValueKind::Date | ValueKind::Oid => self.push_fixed(&(value as u32).to_le_bytes()),
            _ => self.push_fixed(&value.to_le_bytes()),
        }
    }

    pub(super) fn push_value(&mut self, row: usize, kind: ValueKind, value: &Value<'_>) {
        match value {
            Value::Null => self.push_null(row, stride(kind)),
            Value::Bool(value) => self.push_int(kind, i64::from(*value)),
            Value::Int(value) => self.push_int(kind, *value),
            Value::Float(value) if kind == ValueKind::Float4 => self.push_fixed(&(*value as f32).to_le_bytes()),
            Value::Float(value) => self.push_fixed(&value.to_le_bytes()),
            Value::Numeric(value) => self.push_payload(&numeric_payload(value)),
            Value::Bytes(bytes) => match stride(kind) {
                0 => self.push_payload(bytes),
                width => {
                    let start = self.values.len();
                    self.values.resize(start + width, 0);
                    let bytes = &bytes[..bytes.len().min(width)];
                    self.values[start..start + bytes.len()].copy_from_slice(bytes);
                }
            },
        }
    }

    /// Marks the rows up to `rows` as not NULL, if any row is NULL.
    pub(super) fn finish_nulls(&mut self, rows: usize) {
        if !self.nulls.is_empty() {
            self.nulls.resize(rows, 0);
        }
    }
}

/// Bytes per value of this kind in a column; 0 for a varlena.
pub fn stride(kind: ValueKind) -> usize {
    match kind.width() {
        cellar_format::postgres::Width::Fixed(bytes) => bytes as usize,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_numeric_decodes_to_the_same_value() {
        for text in ["0", "-1.50", "123456789.000001", "1e100", "-1e-100", "99999999.99"] {
            let value = Numeric::parse(text).unwrap();
            let decoded = Numeric::decode(&numeric_payload(&value)).unwrap();
            assert_eq!(decoded, value, "{text}");
        }
    }

    #[test]
    fn numeric_sums_lose_trailing_zeroes_and_integer_sums_keep_them() {
        // 1.50 + 8.50 with one fraction digit: 100000 is 10.0000.
        let sum = numeric_sum(2, 100_000, 1, 2, 2);
        let mut expected = Vec::new();
        expected.extend(2i64.to_be_bytes());
        [1i32, 0, 0, 2].iter().for_each(|word| expected.extend(word.to_be_bytes()));
        expected.extend(10i16.to_be_bytes());
        expected.extend(2i32.to_be_bytes());
        expected.extend(2i64.to_be_bytes());
        expected.extend([0; 24]);
        assert_eq!(sum, expected);
        assert_eq!(wide_sum(1, -10_000)[8..24], [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0x40, 0, 0, 0, 0, 0]);
    }
}
