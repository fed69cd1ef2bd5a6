//! Totals: aggregates over many rows at once, computed without reading the rows one by one.

use crate::heap::Slot;

/// The totals that an aggregation needs of one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TotalRequest {
    /// The column that is the argument. None: `count(*)`.
    pub slot: Option<Slot>,
    /// The greatest scale that the numbers may have. None: only the number of values is needed.
    pub scale: Option<u32>,
    pub sum: bool,
    pub bounds: bool,
}

/// The totals of an argument over some rows. Fields that were not requested are unspecified.
#[derive(Debug, Clone, Copy, Default)]
pub struct Total {
    /// Values that are not NULL.
    pub values: i64,
    /// The sum of the values times `10^decimals`.
    pub sum: i128,
    pub decimals: u8,
    /// The minimum and the maximum; there is at least one value.
    pub bounds: (i64, i64),
}
