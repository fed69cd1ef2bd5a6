//! SQL values: the types that the evaluator knows, decoding of their datums, and their orders.
//!
//! This module does not depend on expressions, tuples or pages.

pub mod jsonb;
pub mod numeric;
pub mod numeric_text;
mod order;
pub mod text_array;

pub use numeric::Numeric;
pub use order::{Comparison, DATE_AFTER_TIMESTAMPS, Domain, Trim, compare, date_against_timestamp};

use cellar_format::postgres::{Oid, Width, type_oid};
use std::borrow::Cow;

/// A type, as far as the evaluator distinguishes types. `text`, `varchar` and `bpchar` are one kind: their values are byte strings,
/// and functions and orders handle trailing blanks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueKind {
    Bool,
    /// `"char"`, a byte.
    Char,
    Int2,
    Int4,
    Int8,
    Oid,
    Float4,
    Float8,
    Numeric,
    Text,
    Bytea,
    Name,
    Uuid,
    Date,
    Time,
    Timestamp,
    Timestamptz,
    Jsonb,
    /// `text[]`
    TextArray,
}

pub const NAME_BYTES: usize = 64;

impl ValueKind {
    /// The kind of a type; None for types that the evaluator does not know.
    pub fn of(oid: Oid) -> Option<Self> {
        Some(match oid {
            type_oid::BOOL => Self::Bool,
            type_oid::CHAR => Self::Char,
            type_oid::INT2 => Self::Int2,
            // Only equality of enums is offloaded, and equal enums are equal words.
            type_oid::INT4 | type_oid::ANYENUM => Self::Int4,
            type_oid::INT8 => Self::Int8,
            type_oid::OID => Self::Oid,
            type_oid::FLOAT4 => Self::Float4,
            type_oid::FLOAT8 => Self::Float8,
            type_oid::NUMERIC => Self::Numeric,
            // Functions that parse text take a C string, which the cell represents as text.
            type_oid::TEXT | type_oid::VARCHAR | type_oid::BPCHAR | type_oid::CSTRING => Self::Text,
            type_oid::BYTEA => Self::Bytea,
            type_oid::NAME => Self::Name,
            type_oid::UUID => Self::Uuid,
            type_oid::DATE => Self::Date,
            type_oid::TIME => Self::Time,
            type_oid::TIMESTAMP => Self::Timestamp,
            type_oid::TIMESTAMPTZ => Self::Timestamptz,
            type_oid::JSONB => Self::Jsonb,
            type_oid::TEXT_ARRAY => Self::TextArray,
            _ => return None,
        })
    }

    /// A type of this kind.
    pub fn type_oid(self) -> Oid {
        match self {
            Self::Bool => type_oid::BOOL,
            Self::Char => type_oid::CHAR,
            Self::Int2 => type_oid::INT2,
            Self::Int4 => type_oid::INT4,
            Self::Int8 => type_oid::INT8,
            Self::Oid => type_oid::OID,
            Self::Float4 => type_oid::FLOAT4,
            Self::Float8 => type_oid::FLOAT8,
            Self::Numeric => type_oid::NUMERIC,
            Self::Text => type_oid::TEXT,
            Self::Bytea => type_oid::BYTEA,
            Self::Name => type_oid::NAME,
            Self::Uuid => type_oid::UUID,
            Self::Date => type_oid::DATE,
            Self::Time => type_oid::TIME,
            Self::Timestamp => type_oid::TIMESTAMP,
            Self::Timestamptz => type_oid::TIMESTAMPTZ,
            Self::Jsonb => type_oid::JSONB,
            Self::TextArray => type_oid::TEXT_ARRAY,
        }
    }

    pub fn width(self) -> Width {
        match self {
            Self::Bool | Self::Char => Width::Fixed(1),
            Self::Int2 => Width::Fixed(2),
            Self::Int4 | Self::Oid | Self::Float4 | Self::Date => Width::Fixed(4),
            Self::Int8 | Self::Float8 | Self::Time | Self::Timestamp | Self::Timestamptz => Width::Fixed(8),
            Self::Uuid => Width::Fixed(16),
            Self::Name => Width::Fixed(NAME_BYTES as u16),
            Self::Numeric | Self::Text | Self::Bytea | Self::Jsonb | Self::TextArray => Width::Varlena,
        }
    }

    /// Decodes the bytes of a fixed-width type or the payload of a varlena. None: not a value of the type.
    #[inline]
    pub fn decode<'a>(self, bytes: &'a [u8]) -> Option<Value<'a>> {
        Some(match self {
            Self::Float4 => Value::Float(f32::from_le_bytes(bytes.try_into().ok()?) as f64),
            Self::Float8 => Value::Float(f64::from_le_bytes(bytes.try_into().ok()?)),
            Self::Numeric => Value::Numeric(Numeric::decode(bytes)?),
            Self::Text | Self::Bytea | Self::Jsonb | Self::TextArray => Value::Bytes(Cow::Borrowed(bytes)),
            Self::Uuid => Value::Bytes(Cow::Borrowed(bytes.get(..16)?)),
            Self::Name => {
                let bytes = bytes.get(..NAME_BYTES)?;
                Value::Bytes(Cow::Borrowed(&bytes[..memchr::memchr(0, bytes).unwrap_or(NAME_BYTES)]))
            }
            Self::Bool => Value::Bool(*bytes.first()? != 0),
            _ => Value::Int(self.decode_int(bytes)?),
        })
    }

    /// [`Self::decode`] for kinds that the evaluator represents as integers, bool included.
    #[inline(always)]
    pub fn decode_int(self, bytes: &[u8]) -> Option<i64> {
        Some(match self {
            Self::Bool => i64::from(*bytes.first()? != 0),
            // "char" compares as an unsigned byte.
            Self::Char => *bytes.first()? as i64,
            Self::Int2 => i16::from_le_bytes(bytes.try_into().ok()?) as i64,
            Self::Int4 | Self::Date => i32::from_le_bytes(bytes.try_into().ok()?) as i64,
            Self::Oid => u32::from_le_bytes(bytes.try_into().ok()?) as i64,
            Self::Int8 | Self::Time | Self::Timestamp | Self::Timestamptz => i64::from_le_bytes(bytes.try_into().ok()?),
            _ => return None,
        })
    }

    /// Whether values are the payloads of variable-length datums.
    pub fn is_payload(self) -> bool {
        matches!(self, Self::Text | Self::Bytea | Self::Jsonb | Self::TextArray)
    }

    /// Whether [`Self::decode_int`] decodes the kind.
    pub fn is_int(self) -> bool {
        use ValueKind::*;
        matches!(self, Bool | Char | Int2 | Int4 | Int8 | Oid | Date | Time | Timestamp | Timestamptz)
    }
}

/// A value or NULL.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    /// Integers, oid, "char", and date and time types in their own units.
    Int(i64),
    /// float8, or float4 converted to double.
    Float(f64),
    Numeric(Numeric),
    /// Text types, bytea, uuid, and name up to the NUL; the payloads of jsonb and arrays.
    Bytes(Cow<'a, [u8]>),
}

impl Value<'_> {
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::Null => Value::Null,
            Value::Bool(value) => Value::Bool(value),
            Value::Int(value) => Value::Int(value),
            Value::Float(value) => Value::Float(value),
            Value::Numeric(value) => Value::Numeric(value),
            Value::Bytes(value) => Value::Bytes(Cow::Owned(value.into_owned())),
        }
    }

    pub fn borrowed(&self) -> Value<'_> {
        match self {
            Value::Null => Value::Null,
            Value::Bool(value) => Value::Bool(*value),
            Value::Int(value) => Value::Int(*value),
            Value::Float(value) => Value::Float(*value),
            Value::Numeric(value) => Value::Numeric(value.clone()),
            Value::Bytes(value) => Value::Bytes(Cow::Borrowed(value)),
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }
}

/// The cell cannot determine PostgreSQL's result: evaluation would raise an error, or a value is stored out of line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Undecided;

/// The result of evaluating an expression.
pub type EvalResult<'a> = Result<Value<'a>, Undecided>;

/// The bytes of a blank-padded string without the padding (`bcTruelen`).
#[inline]
pub fn without_trailing_blanks(bytes: &[u8]) -> &[u8] {
    let blanks = bytes.iter().rev().take_while(|byte| **byte == b' ').count();
    &bytes[..bytes.len() - blanks]
}

/// The key of a float: an integer that orders as `float8_cmp_internal` does. NaNs are equal and greatest; zeroes are
/// equal.
#[inline]
pub fn float_key(value: f64) -> i64 {
    if value.is_nan() {
        return i64::MAX;
    }
    let bits = (value + 0.0).to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float_keys_order_as_postgresql_orders_floats() {
        let ascending = [f64::NEG_INFINITY, -1e300, -1.5, -1e-310, 0.0, 1e-310, 1.5, f64::INFINITY, f64::NAN];
        for pair in ascending.windows(2) {
            assert!(float_key(pair[0]) < float_key(pair[1]), "{pair:?}");
        }
        assert_eq!(float_key(-0.0), float_key(0.0));
        assert_eq!(float_key(-f64::NAN), float_key(f64::NAN));
    }
}
