//! Top-N on the wire: the backend needs only the first `rows` rows of an order.
//!
//! The cell may omit a row once it has returned `rows` rows for the same request that do not sort after that row. The
//! cell may return rows that are not among the first; the backend sorts.

use super::Expr;
use crate::bytes::{Corrupt, Reader, Write};
use crate::postgres::{AttributeNumber, Collation, Oid};

/// Maximum of [`TopN::rows`]. A cell keeps the keys of the first rows in memory, and a larger limit saves little.
pub const TOP_ROWS_MAX: u32 = 10_000;
const KEYS_MAX: usize = 64;

const DESCENDING: u8 = 1;
const NULLS_FIRST: u8 = 2;

#[derive(Debug, Clone, PartialEq)]
pub struct SortKey {
    pub expr: Expr,
    /// `pg_proc` OID of the ascending order's `<` operator.
    pub less: Oid,
    pub collation: Collation,
    pub descending: bool,
    pub nulls_first: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TopN {
    /// 1 to [`TOP_ROWS_MAX`].
    pub rows: u32,
    /// At least one.
    pub keys: Vec<SortKey>,
}

impl TopN {
    pub fn for_each_column(&self, visit: &mut impl FnMut(AttributeNumber)) {
        self.keys.iter().for_each(|key| key.expr.for_each_column(visit));
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.rows);
        encode_sort_keys(&self.keys, out);
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let at = reader.position();
        let rows = reader.u32("top rows")?;
        if rows == 0 || rows > TOP_ROWS_MAX {
            return Err(Corrupt::new("top rows", at, rows.to_string()));
        }
        let at = reader.position();
        let keys = decode_sort_keys(reader)?;
        if keys.is_empty() {
            return Err(Corrupt::new("sort keys", at, "0"));
        }
        Ok(Self { rows, keys })
    }
}

pub(super) fn encode_sort_keys(keys: &[SortKey], out: &mut Vec<u8>) {
    out.put_u32(keys.len() as u32);
    let mut program = Vec::new();
    for key in keys {
        program.clear();
        key.expr.encode(&mut program);
        out.put_blob(&program);
        out.put_u32(key.less);
        out.put_u8(key.collation as u8);
        let descending = if key.descending { DESCENDING } else { 0 };
        out.put_u8(descending | if key.nulls_first { NULLS_FIRST } else { 0 });
    }
}

pub(super) fn decode_sort_keys(reader: &mut Reader<'_>) -> Result<Vec<SortKey>, Corrupt> {
    let at = reader.position();
    let count = reader.count(10, "sort keys")?;
    if count > KEYS_MAX {
        return Err(Corrupt::new("sort keys", at, count.to_string()));
    }
    let mut keys = Vec::with_capacity(count);
    for _ in 0..count {
        let expr = Expr::decode(reader.blob("sort key")?)?;
        let less = reader.u32("ordering function")?;
        let at = reader.position();
        let byte = reader.u8("collation")?;
        let collation = Collation::from_u8(byte).ok_or_else(|| Corrupt::new("collation", at, byte.to_string()))?;
        let flags = reader.u8("direction")?;
        if flags & !(DESCENDING | NULLS_FIRST) != 0 {
            return Err(Corrupt::new("direction", at + 1, flags.to_string()));
        }
        let (descending, nulls_first) = (flags & DESCENDING != 0, flags & NULLS_FIRST != 0);
        keys.push(SortKey { expr, less, collation, descending, nulls_first });
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_top_n_decodes_to_its_equal_and_a_truncated_top_n_is_corrupt() {
        let key = SortKey {
            expr: Expr::Column(2),
            less: 66,
            collation: Collation::None,
            descending: true,
            nulls_first: false,
        };
        let top = TopN { rows: 10, keys: vec![key.clone(), SortKey { nulls_first: true, ..key }] };
        let mut bytes = Vec::new();
        top.encode(&mut bytes);
        assert_eq!(TopN::decode(&mut Reader::new(&bytes)).unwrap(), top);
        for length in 0..bytes.len() {
            TopN::decode(&mut Reader::new(&bytes[..length])).unwrap_err();
        }
        for rows in [0, TOP_ROWS_MAX + 1] {
            bytes[..4].copy_from_slice(&rows.to_le_bytes());
            TopN::decode(&mut Reader::new(&bytes)).unwrap_err();
        }
    }
}
