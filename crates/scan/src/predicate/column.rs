//! How a predicate reads one column of one row.

use crate::heap::{MISSING, NULL, varlena};
use crate::value::{EvalResult, NAME_BYTES, Undecided, Value, ValueKind};
use cellar_format::postgres::{Oid, Width};
use cellar_format::wire::{Attribute, Missing};
use std::borrow::Cow;

/// Decimals of numerics whose type does not tell, and the most that numbers in lanes have.
const DECIMALS_USUAL: u32 = 4;
const DECIMALS_MAX: u32 = 8;

/// A column that some predicate reads.
#[derive(Debug)]
pub struct Column {
    /// 0-based.
    pub attribute: usize,
    pub type_oid: Oid,
    pub width: Width,
    /// None: a type that can only be tested for NULL.
    pub kind: Option<ValueKind>,
    /// For a numeric, how many decimals its values mostly have at most; else 0.
    pub decimals_expected: u32,
    /// The display scale of a numeric's finite values, when its type has one.
    pub decimals: Option<u16>,
    /// What tuples have that were written before the column was added.
    pub missing: Result<Value<'static>, Undecided>,
}

impl Column {
    pub fn new(number: usize, attribute: &Attribute) -> Self {
        let kind = ValueKind::of(attribute.type_oid).filter(|kind| kind.width() == attribute.width);
        let missing = match &attribute.missing {
            Missing::Null => Ok(Value::Null),
            Missing::Value(datum) => decode(kind, attribute.width, datum).map(Value::into_owned),
        };
        let decimals = match kind {
            // `numeric_typmod_scale`: eleven bits with a sign.
            Some(ValueKind::Numeric) if attribute.typmod >= 4 => {
                Some(((((attribute.typmod - 4) & 0x7ff) ^ 0x400) - 0x400).max(0) as u16)
            }
            _ => None,
        };
        let decimals_expected = match (kind, decimals) {
            (Some(ValueKind::Numeric), Some(decimals)) => u32::from(decimals).min(DECIMALS_MAX),
            (Some(ValueKind::Numeric), None) => DECIMALS_USUAL,
            _ => 0,
        };
        Self {
            attribute: number,
            type_oid: attribute.type_oid,
            width: attribute.width,
            kind,
            decimals_expected,
            decimals,
            missing,
        }
    }

    /// The value of the column whose datum starts at `location`.
    pub fn value<'a>(&'a self, pages: &'a [u8], location: u32) -> EvalResult<'a> {
        match location {
            NULL => Ok(Value::Null),
            MISSING => self.missing.as_ref().map(Value::borrowed).map_err(|undecided| *undecided),
            _ => decode(self.kind, self.width, pages.get(location as usize..).ok_or(Undecided)?),
        }
    }

    /// As [`Self::value`], for a kind that is an integer.
    #[inline(always)]
    pub fn int(&self, kind: ValueKind, pages: &[u8], location: usize) -> Option<i64> {
        match self.width {
            Width::Fixed(width) => kind.decode_int(pages.get(location..location + width as usize)?),
            _ => None,
        }
    }

    /// As [`Self::value`], for a datum that is a string: its bytes when they lie in the page as they are.
    #[inline(always)]
    pub fn plain_bytes<'a>(&self, pages: &'a [u8], location: usize) -> Option<&'a [u8]> {
        match self.width {
            Width::Varlena => varlena::plain_payload(pages.get(location..)?),
            Width::Fixed(bytes) => {
                let bytes = pages.get(location..location + bytes as usize)?;
                let end = if bytes.len() == NAME_BYTES { memchr::memchr(0, bytes) } else { None };
                Some(&bytes[..end.unwrap_or(bytes.len())])
            }
            Width::Cstring => None,
        }
    }
}

/// The value of a datum that starts `bytes`.
fn decode<'a>(kind: Option<ValueKind>, width: Width, bytes: &'a [u8]) -> EvalResult<'a> {
    let Some(kind) = kind else {
        // Never looked at but for not being NULL.
        return Ok(Value::Bool(true));
    };
    match width {
        Width::Fixed(width) => kind.decode(bytes.get(..width as usize).ok_or(Undecided)?).ok_or(Undecided),
        Width::Varlena => match varlena::payload(bytes).ok_or(Undecided)? {
            Cow::Borrowed(payload) => kind.decode(payload).ok_or(Undecided),
            Cow::Owned(payload) => kind.decode(&payload).map(Value::into_owned).ok_or(Undecided),
        },
        Width::Cstring => Err(Undecided),
    }
}
