//! Columns of a compression unit as expressions read them: encoded values, without datums.

/// What the codes of a column mean.
#[derive(Debug, Clone, Copy)]
pub enum CodeEncoding<'a> {
    /// Integers, or with `scale` numerics times `10^scale`. All codes are within `bounds`.
    Numbers { scale: Option<u8>, bounds: (i64, i64) },
    /// Positions in a list of strings, which is the same for all rows of a chunk.
    Strings(StringList<'a>),
    /// Positions in a list of strings that belongs to the selected rows: a position has no meaning in other rows, and most strings are
    /// in the list once.
    RowStrings(StringList<'a>),
    /// There are no codes; only `validity` is known.
    Nulls,
}

/// A list of strings, stored one after the other.
#[derive(Debug, Clone, Copy)]
pub struct StringList<'a> {
    pub bytes: &'a [u8],
    /// The end of each string in `bytes`.
    pub ends: &'a [u32],
}

impl<'a> StringList<'a> {
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// None: there is no such string, or the ends of a damaged unit do not ascend.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let start = if index == 0 { 0 } else { *self.ends.get(index - 1)? as usize };
        self.bytes.get(start..*self.ends.get(index)? as usize)
    }
}

/// The values of one column in the selected rows, which belong to one chunk.
#[derive(Debug, Clone, Copy)]
pub struct EncodedColumn<'a> {
    /// One code per selected row, in the order of the selection. The code of a NULL is arbitrary.
    pub codes: &'a [i64],
    /// 0 where the row is NULL. None: no row is NULL.
    pub validity: Option<&'a [i64]>,
    pub encoding: CodeEncoding<'a>,
}

/// The columns of the selected rows that have no datums.
#[derive(Debug, Clone, Copy, Default)]
pub struct EncodedColumns<'a> {
    /// By slot.
    pub columns: &'a [Option<EncodedColumn<'a>>],
    /// The unit and the chunk: within them, equal codes of a column mean equal values, except [`CodeEncoding::RowStrings`].
    pub chunk_id: (u64, usize),
}

impl EncodedColumn<'_> {
    /// The least possible code, and the number of possible codes. None: unknown, more than a usize counts, or not the same for all rows
    /// of a chunk.
    pub fn code_range(&self) -> Option<(i64, usize)> {
        match self.encoding {
            CodeEncoding::Numbers { bounds: (min, max), .. } => {
                Some((min, usize::try_from(max as i128 - min as i128).ok()?.checked_add(1)?))
            }
            CodeEncoding::Strings(strings) => Some((0, strings.count())),
            CodeEncoding::RowStrings(_) | CodeEncoding::Nulls => None,
        }
    }

    #[inline(always)]
    pub fn is_null(&self, row: usize) -> bool {
        self.validity.is_some_and(|validity| validity.get(row) == Some(&0))
    }

    /// [`scale_factor`] of the codes.
    pub fn scale_factor(&self, scale: u32) -> Option<(i64, (i64, i64))> {
        let CodeEncoding::Numbers { scale: decimals, bounds } = self.encoding else { return None };
        scale_factor(decimals, bounds, scale)
    }
}

/// The factor by which codes, numbers times `10^decimals` within `bounds`, become numbers times `10^scale`, and the
/// bounds of the products. None: `scale` is less than `decimals`, or a product may overflow.
pub fn scale_factor(decimals: Option<u8>, bounds: (i64, i64), scale: u32) -> Option<(i64, (i64, i64))> {
    let factor = match decimals {
        None => 1,
        Some(decimals) => 10i64.checked_pow(scale.checked_sub(decimals as u32)?)?,
    };
    Some((factor, (bounds.0.checked_mul(factor)?, bounds.1.checked_mul(factor)?)))
}
