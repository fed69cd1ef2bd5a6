//! An attribute's values before they are encoded: numbers, or the positions of datums in the pages.

use super::super::shape::{Attribute, Number};
use cellar_format::postgres::{Width, type_oid};

/// Where a datum is in the unit's pages; `bytes` is 0 for a row without one.
#[derive(Debug, Clone, Copy, Default)]
pub struct DatumSpan {
    pub at: u32,
    pub bytes: u32,
}

impl DatumSpan {
    pub fn datum(self, pages: &[u8]) -> &[u8] {
        &pages[self.at as usize..(self.at + self.bytes) as usize]
    }
}

/// The values of an attribute, one per row. A row without a value repeats the number of the previous row, or has an empty span.
#[derive(Debug)]
pub enum Values {
    Numbers(Number, Vec<i64>),
    Numerics(Numerics),
    Datums(Vec<DatumSpan>),
}

/// Numerics, converted to integers while their page is in the processor's cache.
#[derive(Debug, Default)]
pub struct Numerics {
    /// The value times `10^scale`.
    pub values: Vec<i64>,
    /// The display scale; [`NO_SCALE`] if [`numeric::decode`](super::super::numeric::decode) does not accept the datum.
    pub scales: Vec<u8>,
    pub spans: Vec<DatumSpan>,
}

/// Not a display scale: a short numeric header has at most 63.
pub const NO_SCALE: u8 = u8::MAX;

impl Numerics {
    #[inline(always)]
    pub fn push(&mut self, value_and_scale: Option<(i64, u8)>, span: DatumSpan) {
        let (value, scale) = value_and_scale.unwrap_or((0, NO_SCALE));
        self.values.push(value);
        self.scales.push(scale);
        self.spans.push(span);
    }
}

impl Values {
    pub fn new(attribute: &Attribute) -> Self {
        match Number::of(attribute) {
            Some(number) => Self::Numbers(number, Vec::new()),
            None if attribute.type_oid == type_oid::NUMERIC && attribute.width == Width::Varlena => {
                Self::Numerics(Numerics::default())
            }
            None => Self::Datums(Vec::new()),
        }
    }

    /// Appends a row without a value.
    #[inline(always)]
    pub fn push_missing(&mut self) {
        match self {
            Self::Numbers(_, values) => values.push(values.last().copied().unwrap_or(0)),
            Self::Numerics(numerics) => numerics.push(None, DatumSpan::default()),
            Self::Datums(spans) => spans.push(DatumSpan::default()),
        }
    }

    pub fn truncate(&mut self, rows: usize) {
        match self {
            Self::Numbers(_, values) => values.truncate(rows),
            Self::Numerics(numerics) => {
                numerics.values.truncate(rows);
                numerics.scales.truncate(rows);
                numerics.spans.truncate(rows);
            }
            Self::Datums(spans) => spans.truncate(rows),
        }
    }
}
