//! Columns of a compression unit as expressions see them: numbers as they are encoded, without a datum.

use crate::unit::Strings;

/// What a column's codes are.
#[derive(Debug, Clone, Copy)]
pub enum Form<'a> {
    /// Integers, or with a scale numerics times `10^scale`; none is outside of the bounds.
    Numbers { scale: Option<u8>, bounds: (i64, i64) },
    /// Positions in a list of strings.
    Strings(&'a Strings),
    /// There are none: it is known which rows are NULL.
    Nulls,
}

/// The selected rows' values of one column, all of one chunk of rows.
#[derive(Debug, Clone, Copy)]
pub struct Gathered<'a> {
    /// One for each selected row, in the order of the selection; any where the row is NULL.
    pub codes: &'a [i64],
    /// 0 where the row is NULL; None: no row is.
    pub validity: Option<&'a [i64]>,
    pub form: Form<'a>,
}

/// Columns of the selected rows that have no datums.
#[derive(Debug, Clone, Copy, Default)]
pub struct GatheredColumns<'a> {
    /// By slot.
    pub columns: &'a [Option<Gathered<'a>>],
    /// Tells the unit and its chunk from others: there, codes mean the same.
    pub place: (u64, usize),
}

impl Gathered<'_> {
    /// The least code and how many there may be from it on.
    pub fn domain(&self) -> Option<(i64, usize)> {
        match self.form {
            Form::Numbers { bounds: (min, max), .. } => {
                Some((min, usize::try_from(max as i128 - min as i128).ok()?.checked_add(1)?))
            }
            Form::Strings(strings) => Some((0, strings.len())),
            Form::Nulls => None,
        }
    }

    #[inline(always)]
    pub fn is_null(&self, row: usize) -> bool {
        self.validity.is_some_and(|validity| validity.get(row) == Some(&0))
    }

    /// What turns codes into numbers times `10^scale`, and the bounds of these; None: they might not fit.
    pub fn factor(&self, scale: u32) -> Option<(i64, (i64, i64))> {
        let Form::Numbers { scale: decimals, bounds } = self.form else { return None };
        factor(decimals, bounds, scale)
    }
}

/// As [`Gathered::factor`].
pub fn factor(decimals: Option<u8>, bounds: (i64, i64), scale: u32) -> Option<(i64, (i64, i64))> {
    let factor = match decimals {
        None => 1,
        Some(decimals) => 10i64.checked_pow(scale.checked_sub(decimals as u32)?)?,
    };
    Some((factor, (bounds.0.checked_mul(factor)?, bounds.1.checked_mul(factor)?)))
}
