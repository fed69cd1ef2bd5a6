//! Counts, sums and sums of squares of integers and numerics: the states of `variance` and `stddev`.
//!
//! All sums are exact, in units of the numbers of the lanes. Rows with larger numbers than [`NUMBER_MAX`] are left to PostgreSQL.
//! Source: `do_numeric_accum` and `do_int128_accum` in `utils/adt/numeric.c`.

use super::ROWS_MAX;
use super::argument::{IS_WIDE, Vector};
use super::groups::DISCARD;
use crate::predicate::IS_NULL;
use std::cmp::Ordering;

/// The greatest magnitude of a number.
const NUMBER_MAX: u64 = (1 << 44) - 1;

// The serialized sum of squares is multiplied by up to 100.
const _: () = assert!(
    (NUMBER_MAX as i128 * NUMBER_MAX as i128).checked_mul(ROWS_MAX as i128).is_some()
        && (1i128 << 88).checked_mul(ROWS_MAX as i128 * 100).is_some()
);

/// The state of a group.
#[derive(Debug, Clone, Copy, Default)]
pub struct Squares {
    pub count: i64,
    pub sum: i128,
    pub squares: i128,
    /// The greatest display scale, and the number of values with this scale.
    pub scale: u16,
    pub scale_count: i64,
}

impl Squares {
    /// Adds a value. The state of [`DISCARD`] may wrap; it is never returned.
    #[inline(always)]
    fn add(&mut self, value: i64, scale: u16) {
        let value = i128::from(value);
        self.count += 1;
        self.sum = self.sum.wrapping_add(value);
        self.squares = self.squares.wrapping_add(value.wrapping_mul(value));
        self.add_scale(scale, 1);
    }

    #[inline(always)]
    fn add_scale(&mut self, scale: u16, count: i64) {
        match scale.cmp(&self.scale) {
            Ordering::Less => {}
            Ordering::Equal => self.scale_count += count,
            Ordering::Greater => (self.scale, self.scale_count) = (scale, count),
        }
    }

    /// Adds the values of another state.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
        self.add_scale(other.scale, other.scale_count);
    }
}

/// Adds the rows of a run to their groups.
pub fn add(states: &mut [Squares], vector: &Vector<'_>, groups: &[u32]) {
    let mut wide = vector.wide.iter();
    for (index, (group, (value, flags))) in groups.iter().zip(vector.lanes.iter()).enumerate() {
        if flags & IS_NULL == 0 {
            let scale = vector.scales.get(index).copied().unwrap_or(vector.scale);
            let found = if flags & IS_WIDE != 0 { wide.find(|wide| wide.row as usize == index) } else { None };
            let (value, scale) = match found {
                Some(wide) => (in_lane(wide.value, vector.factor).unwrap_or(0), wide.scale),
                None => (value, scale),
            };
            states[*group as usize].add(value, scale);
        }
    }
}

/// Discards the rows whose number is too large.
pub fn discard_large(vector: &Vector<'_>, groups: &mut [u32]) {
    let (least, most) = vector.lanes.bounds();
    if vector.wide.is_empty() && least.unsigned_abs().max(most.unsigned_abs()) <= NUMBER_MAX {
        return;
    }
    for ((value, flags), group) in vector.lanes.iter().zip(groups.iter_mut()) {
        if flags & (IS_NULL | IS_WIDE) == 0 && value.unsigned_abs() > NUMBER_MAX {
            *group = DISCARD;
        }
    }
    for wide in &vector.wide {
        if in_lane(wide.value, vector.factor).is_none() {
            groups[wide.row as usize] = DISCARD;
        }
    }
}

/// A wide number in units of the lanes. None: it is too large or not an integer.
fn in_lane(value: i128, factor: i128) -> Option<i64> {
    let quotient = i64::try_from(value / factor).ok()?;
    (value % factor == 0 && quotient.unsigned_abs() <= NUMBER_MAX).then_some(quotient)
}
