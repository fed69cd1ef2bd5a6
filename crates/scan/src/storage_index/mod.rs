//! The storage index: minimum, maximum and NULLs of columns, per region. Scans build summaries; later scans skip
//! regions that cannot match.
//!
//! Invariant: a summary covers the tuples of all normal line pointers of its region, visible or not. A summary is
//! therefore valid for every snapshot until the region is written. The owner of the summaries drops them on writes.
//! [`builder`] builds summaries from scanned rows, [`encoding`] saves and reads them, [`mod@unit_bounds`] reads bounds from a compression unit's directory, and
//! [`pruning`] decides whether a region can match.

mod builder;
mod encoding;
mod pruning;
mod unit_bounds;

pub use builder::{SummaryBuilder, SummaryColumn};
pub use unit_bounds::unit_bounds;

use crate::bounds::Bounds;
use crate::value::Trim;
use cellar_format::postgres::{AttributeNumber, Oid, type_oid};

/// The summary of one column over one region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnSummary {
    pub number: AttributeNumber,
    /// The type that the values were decoded as. A summary of another type must not be used.
    pub type_oid: Oid,
    pub has_null: bool,
    pub has_nonnull: bool,
    pub bounds: Bounds,
}

impl ColumnSummary {
    /// Returns the summary of the tuples of both, which are summaries of the same column.
    fn join(&self, other: &Self) -> Self {
        let bounds = match (self.has_nonnull, other.has_nonnull) {
            (true, true) => self.bounds.join(&other.bounds),
            (true, false) => self.bounds.clone(),
            (false, _) => other.bounds.clone(),
        };
        let (has_null, has_nonnull) = (self.has_null || other.has_null, self.has_nonnull || other.has_nonnull);
        Self { has_null, has_nonnull, bounds, ..*self }
    }

    /// Whether the bounds describe values trimmed by `trim`.
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

    /// Returns the memory of the columns in bytes.
    pub fn heap_bytes(&self) -> usize {
        let boxed = self.columns.iter().map(|column| column.bounds.heap_bytes()).sum::<usize>();
        self.columns.capacity() * size_of::<ColumnSummary>() + boxed
    }

    pub fn columns(&self) -> &[ColumnSummary] {
        &self.columns
    }

    pub fn column(&self, number: AttributeNumber) -> Option<&ColumnSummary> {
        let index = self.columns.binary_search_by_key(&number, |column| column.number).ok()?;
        self.columns.get(index)
    }

    /// Returns the summary of the tuples of both: the columns that both summaries have.
    pub fn join(&self, other: &Self) -> Self {
        let joined = self.columns.iter().filter_map(|column| {
            let same = other.column(column.number).filter(|same| same.type_oid == column.type_oid)?;
            Some(column.join(same))
        });
        Self { columns: joined.collect() }
    }

    /// Adds the columns of another summary of the same, unchanged region; they replace columns that are in both.
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
