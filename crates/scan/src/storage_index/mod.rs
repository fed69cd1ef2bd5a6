//! What a region's columns hold: minimum, maximum, and whether there are NULLs. Scans build it, later scans skip by it.
//!
//! Invariant: a summary covers every normal line pointer's tuple in the region, visible or not, so that it stays true
//! for every snapshot until a write arrives. Whoever keeps summaries drops them region by region on writes.

mod builder;
mod unit_bounds;

pub use builder::{SummaryBuilder, SummaryColumn};
pub use unit_bounds::unit_bounds;

use crate::predicate::{Numeric, Trim};
use cellar_format::postgres::{AttributeNumber, Oid, type_oid};

/// Bytes of a string that a summary keeps.
pub const PREFIX_BYTES: usize = 16;

/// The beginning of a byte string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    bytes: [u8; PREFIX_BYTES],
    length: u8,
    /// The string goes on.
    cut: bool,
}

impl Prefix {
    pub fn new(string: &[u8]) -> Self {
        let length = string.len().min(PREFIX_BYTES);
        let mut bytes = [0; PREFIX_BYTES];
        bytes[..length].copy_from_slice(&string[..length]);
        Self { bytes, length: length as u8, cut: string.len() > PREFIX_BYTES }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length as usize]
    }

    /// Every string with this beginning is less than `other`.
    pub fn is_below(&self, other: &[u8]) -> bool {
        match self.cut {
            true => self.bytes() < &other[..other.len().min(PREFIX_BYTES)],
            false => self.bytes() < other,
        }
    }

    /// Every string with this beginning is greater than `other`.
    pub fn is_above(&self, other: &[u8]) -> bool {
        self.bytes() > other || self.cut && self.bytes() == other
    }

    /// Every string with this beginning is greater than `other` and all that `other` begins.
    pub fn is_beyond(&self, other: &[u8]) -> bool {
        self.bytes() > other && !self.bytes().starts_with(other)
    }

    /// The lower one, as a bound from below.
    fn lower(self, other: Self) -> Self {
        match self.bytes().cmp(other.bytes()) {
            std::cmp::Ordering::Less => self,
            std::cmp::Ordering::Greater => other,
            // The shorter string is the lower one.
            std::cmp::Ordering::Equal => {
                if self.cut {
                    other
                } else {
                    self
                }
            }
        }
    }

    /// The upper one, as a bound from above.
    fn upper(self, other: Self) -> Self {
        match self.bytes().cmp(other.bytes()) {
            std::cmp::Ordering::Less => other,
            std::cmp::Ordering::Greater => self,
            std::cmp::Ordering::Equal => {
                if self.cut {
                    self
                } else {
                    other
                }
            }
        }
    }
}

/// The least and the greatest value that is not NULL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bounds {
    /// Nothing is known.
    Unknown,
    /// Integers, dates and times; floats by their keys.
    Int {
        min: i64,
        max: i64,
    },
    Numeric(Box<(Numeric, Numeric)>),
    /// Byte order; `bpchar` without trailing blanks.
    Bytes {
        min: Prefix,
        max: Prefix,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnSummary {
    pub number: AttributeNumber,
    /// The type under which the values were read; a summary made under another type says nothing.
    pub type_oid: Oid,
    pub has_null: bool,
    pub has_nonnull: bool,
    pub bounds: Bounds,
}

impl ColumnSummary {
    /// Whether the bounds are those of values trimmed like this.
    pub fn is_trimmed_as(&self, trim: Trim) -> bool {
        (self.type_oid == type_oid::BPCHAR) == (trim == Trim::Blanks)
    }
}

/// The summaries of some columns over one region.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegionSummary {
    /// Ascending by number.
    columns: Vec<ColumnSummary>,
}

impl RegionSummary {
    pub fn new(mut columns: Vec<ColumnSummary>) -> Self {
        columns.sort_by_key(|column| column.number);
        Self { columns }
    }

    pub fn columns(&self) -> &[ColumnSummary] {
        &self.columns
    }

    pub fn column(&self, number: AttributeNumber) -> Option<&ColumnSummary> {
        let index = self.columns.binary_search_by_key(&number, |column| column.number).ok()?;
        self.columns.get(index)
    }

    /// Takes over the columns of another summary of the same, unchanged region; for a column in both, the other's.
    pub fn merge(&mut self, other: Self) {
        for column in other.columns {
            match self.columns.binary_search_by_key(&column.number, |column| column.number) {
                Ok(index) => self.columns[index] = column,
                Err(index) => self.columns.insert(index, column),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_prefix_claims_nothing_about_what_follows() {
        let long = Prefix::new(b"abcdefghijklmnopqrstuvwxyz");
        assert!(!long.is_below(b"abcdefghijklmnopzzz"));
        assert!(!long.is_above(b"abcdefghijklmnopaaa"));
        assert!(long.is_below(b"abcdefghijklmnoq"));
        assert!(long.is_above(b"abcdefghijklmnop"));
        assert!(long.is_above(b"abcdefghijklmno"));
        let short = Prefix::new(b"abc");
        assert!(short.is_below(b"abca") && !short.is_below(b"abc") && !short.is_above(b"abc"));
    }

    #[test]
    fn merging_adds_and_replaces_columns() {
        let column = |number, max| ColumnSummary {
            number,
            type_oid: type_oid::INT4,
            has_null: false,
            has_nonnull: true,
            bounds: Bounds::Int { min: 0, max },
        };
        let mut summary = RegionSummary::new(vec![column(5, 1), column(2, 2)]);
        summary.merge(RegionSummary::new(vec![column(3, 3), column(5, 4)]));
        assert_eq!(summary, RegionSummary::new(vec![column(2, 2), column(3, 3), column(5, 4)]));
    }
}
