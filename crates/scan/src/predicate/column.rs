//! How expressions read a column: its type, and the decoding of its datums.

use crate::heap::{MISSING, NULL, varlena};
use crate::value::{EvalResult, NAME_BYTES, Undecided, Value, ValueKind};
use cellar_format::postgres::{Oid, Width};
use cellar_format::wire::{Attribute, Missing};
use std::borrow::Cow;
use std::sync::Arc;

/// The decimals assumed for a numeric column without a declared scale, and the most decimals of numbers in lanes.
const DECIMALS_USUAL: u32 = 4;
const DECIMALS_MAX: u32 = 8;

/// A column that some expression reads.
#[derive(Debug)]
pub struct Column {
    /// The 0-based attribute number.
    pub attribute: usize,
    pub type_oid: Oid,
    pub width: Width,
    /// None: values of the type can only be tested for NULL.
    pub kind: Option<ValueKind>,
    /// For a numeric, the number of decimals that most values do not exceed; otherwise 0.
    pub decimals_expected: u32,
    /// The display scale of all finite values, if the type is numeric with a declared scale.
    pub decimals: Option<u16>,
    /// The value in tuples that were written before the column was added.
    pub missing: Result<Value<'static>, Undecided>,
    /// The datums of a column of a lookup table. None: the column is one of the relation's.
    pub looked_up: Option<Arc<[u8]>>,
}

impl Column {
    pub fn new(number: usize, attribute: &Attribute) -> Self {
        let kind = ValueKind::of(attribute.type_oid).filter(|kind| kind.width() == attribute.width);
        let missing = match &attribute.missing {
            Missing::Null => Ok(Value::Null),
            Missing::Value(datum) => decode(kind, attribute.width, datum).map(Value::into_owned),
        };
        let decimals = match kind {
            // `numeric_typmod_scale`: a signed eleven-bit number.
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
            looked_up: None,
        }
    }

    /// The bytes that contain the column's datums: `pages`, unless the column is one of a lookup table.
    #[inline(always)]
    pub fn bytes<'a>(&'a self, pages: &'a [u8]) -> &'a [u8] {
        self.looked_up.as_deref().unwrap_or(pages)
    }

    /// The value of the datum at `location`.
    pub fn value<'a>(&'a self, pages: &'a [u8], location: u32) -> EvalResult<'a> {
        match location {
            NULL => Ok(Value::Null),
            MISSING => self.missing.as_ref().map(Value::borrowed).map_err(|undecided| *undecided),
            _ => decode(self.kind, self.width, self.bytes(pages).get(location as usize..).ok_or(Undecided)?),
        }
    }

    /// [`Self::value`] of an integer kind.
    #[inline(always)]
    pub fn int(&self, kind: ValueKind, pages: &[u8], location: usize) -> Option<i64> {
        match self.width {
            Width::Fixed(width) => kind.decode_int(self.bytes(pages).get(location..location + width as usize)?),
            _ => None,
        }
    }

    /// The bytes of a string or numeric datum. None: the datum is compressed or stored out of line.
    #[inline(always)]
    pub fn plain_bytes<'a>(&'a self, pages: &'a [u8], location: usize) -> Option<&'a [u8]> {
        let pages = self.bytes(pages);
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

/// The value of the datum at the start of `bytes`.
fn decode<'a>(kind: Option<ValueKind>, width: Width, bytes: &'a [u8]) -> EvalResult<'a> {
    let Some(kind) = kind else {
        // The value is only tested for NULL, so any value that is not NULL is correct.
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
