//! Vectors of numbers: what arithmetic computes for the selected rows.

/// Flag: the number is NULL.
pub const IS_NULL: u8 = 1;
/// Flag: the interpreter must compute the number.
pub const UNCERTAIN: u8 = 2;

/// A number and flags per selected row.
#[derive(Debug, Default, Clone)]
pub struct Lanes {
    pub values: Vec<i64>,
    /// [`IS_NULL`] and [`UNCERTAIN`]; empty if no row has a flag.
    pub(super) flags: Vec<u8>,
    /// All numbers, including the numbers of flagged rows, are within these bounds.
    pub(super) bounds: (i64, i64),
}

impl Lanes {
    pub(super) const ANY: (i64, i64) = (i64::MIN, i64::MAX);

    /// `rows` rows with the same number and flags.
    pub fn of(value: i64, flags: u8, rows: usize) -> Self {
        let flags = if flags == 0 { Vec::new() } else { vec![flags; rows] };
        Self { values: vec![value; rows], flags, bounds: (value, value) }
    }

    /// Numbers without flags, within `bounds`.
    pub fn without_flags(values: Vec<i64>, bounds: (i64, i64)) -> Self {
        Self { values, flags: Vec::new(), bounds }
    }

    /// Whether some row may have a flag.
    pub fn has_flags(&self) -> bool {
        !self.flags.is_empty()
    }

    pub fn bounds(&self) -> (i64, i64) {
        self.bounds
    }

    /// The flags of all rows; empty if no row has a flag.
    pub fn all_flags(&self) -> &[u8] {
        &self.flags
    }

    /// The flags of a row.
    #[inline(always)]
    pub fn flags(&self, row: usize) -> u8 {
        self.flags.get(row).copied().unwrap_or(0)
    }

    /// The number and the flags of each row.
    pub fn iter(&self) -> impl Iterator<Item = (i64, u8)> {
        self.values.iter().enumerate().map(|(row, value)| (*value, self.flags(row)))
    }

    /// Mutable flags, one per row.
    pub fn flags_mut(&mut self) -> &mut [u8] {
        self.flags.resize(self.values.len(), 0);
        &mut self.flags
    }

    /// Mutable numbers and flags. Discards the bounds.
    pub fn parts_mut(&mut self) -> (&mut [i64], &mut [u8]) {
        self.flags.resize(self.values.len(), 0);
        self.bounds = Self::ANY;
        (&mut self.values, &mut self.flags)
    }
}
