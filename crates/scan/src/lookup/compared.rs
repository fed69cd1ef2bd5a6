//! Semijoins and antijoins with a comparison beside the equalities.
//!
//! A row of the scan has a partner if the comparison holds for some row of the lookup table with the same key. To decide this, the least
//! and the greatest value among the rows with that key suffice.

use super::KeyPart;
use super::index::KeyIndex;
use cellar_format::wire::Comparison;

/// A part of a key that is compared with a column.
pub struct Compared {
    comparison: Comparison,
    pub part: KeyPart,
    /// The least and the greatest value of the rows with a key, at the first of these rows.
    bounds: Vec<(i64, i64)>,
}

impl Compared {
    /// `keys` has `parts` numbers per row, the last of which is compared. `index` has the rows by the other parts.
    pub fn new(comparison: Comparison, part: KeyPart, keys: &[i64], parts: usize, index: &KeyIndex) -> Self {
        let rows = keys.chunks_exact(parts);
        let mut bounds: Vec<(i64, i64)> = rows.clone().map(|key| (key[parts - 1], key[parts - 1])).collect();
        for key in rows {
            let (least, most) = &mut bounds[index.row_of_parts(&key[..parts - 1]) as usize];
            (*least, *most) = ((*least).min(key[parts - 1]), (*most).max(key[parts - 1]));
        }
        Self { comparison, part, bounds }
    }

    /// Whether the comparison of `value` holds for some row with the key whose first row is `row`.
    #[inline(always)]
    pub fn holds(&self, value: i64, row: u32) -> bool {
        let (least, most) = self.bounds[row as usize];
        match self.comparison {
            Comparison::NotEqual => value != least || value != most,
            Comparison::Less => value < most,
            Comparison::LessOrEqual => value <= most,
            Comparison::Greater => value > least,
            Comparison::GreaterOrEqual => value >= least,
        }
    }

    /// The bytes of the values of this many rows.
    pub fn bytes_for(rows: usize) -> usize {
        rows * size_of::<(i64, i64)>()
    }
}
