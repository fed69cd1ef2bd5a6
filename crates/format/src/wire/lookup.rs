//! Lookup tables on the wire: the inner sides of joins that the cell evaluates while it scans the outer side.
//!
//! A row of the scan is joined with the rows of a lookup table whose keys equal certain columns of the row. In a semijoin or antijoin,
//! the last part of the key may be compared by another operator. Expressions of the aggregation, and keys of later lookup tables, refer
//! to the columns of lookup tables by the attribute numbers after the last one of the relation, in the order of the tables. The backend
//! evaluates the same joins over the rows that the cell returns.

use super::Attribute;
use crate::bytes::{Corrupt, Reader, Write};
use crate::postgres::{AttributeNumber, Width};

/// Maximum number of parts of a key.
pub const KEY_PARTS_MAX: usize = 8;

/// What happens to rows of the scan with and without a row of the lookup table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum JoinKind {
    /// Rows with a row of the table are joined; the others are dropped.
    Inner = 0,
    /// Rows with any row of the table are kept. The table has no columns.
    Semi = 1,
    /// Rows without a row of the table are kept. The table has no columns.
    Anti = 2,
    /// As `Inner`, but rows without a row of the table are joined with NULLs.
    Left = 3,
}

impl JoinKind {
    pub fn from_u8(kind: u8) -> Option<Self> {
        [Self::Inner, Self::Semi, Self::Anti, Self::Left].into_iter().find(|known| *known as u8 == kind)
    }

    /// Whether joined rows have the columns of the table.
    pub fn has_columns(self) -> bool {
        matches!(self, Self::Inner | Self::Left)
    }
}

/// How a column of the scan, on the left, is compared with the last part of a key if they need not be equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Comparison {
    NotEqual = 1,
    Less = 2,
    LessOrEqual = 3,
    Greater = 4,
    GreaterOrEqual = 5,
}

impl Comparison {
    pub fn from_u8(comparison: u8) -> Option<Self> {
        use Comparison::*;
        [NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual].into_iter().find(|known| *known as u8 == comparison)
    }
}

/// The inner side of a join. No part of a key is NULL. A row of the scan is joined with all rows that have its key; the cell may return a
/// row of the scan instead.
#[derive(Debug, Clone, PartialEq)]
pub struct Lookup {
    pub kind: JoinKind,
    /// Of a semijoin or an antijoin with at least two parts: how the last part is compared, if not by equality.
    pub comparison: Option<Comparison>,
    /// The columns that are equal to the parts of the key, in order: integers, dates or timestamps of the relation or of an earlier
    /// lookup table. At least one.
    pub attributes: Vec<AttributeNumber>,
    /// The parts of the key of each row.
    pub keys: Vec<i64>,
    pub columns: Vec<LookupColumn>,
}

/// The values of one column of a lookup table.
#[derive(Debug, Clone, PartialEq)]
pub struct LookupColumn {
    pub attribute: Attribute,
    /// One byte per row, 1 for a NULL; empty if no row is NULL.
    pub nulls: Vec<u8>,
    /// Fixed-width types: `typlen` bytes per row as in a tuple, arbitrary for a NULL. Varlena types: for each row the length of the
    /// detoasted payload as a u32, and the payload; a NULL has length 0.
    pub values: Vec<u8>,
}

impl Lookup {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.kind as u8);
        out.put_u8(self.comparison.map_or(0, |comparison| comparison as u8));
        out.put_u8(self.attributes.len() as u8);
        self.attributes.iter().for_each(|attribute| out.put_u16(*attribute));
        out.put_u32(self.rows() as u32);
        self.keys.iter().for_each(|key| out.put_u64(*key as u64));
        out.put_u32(self.columns.len() as u32);
        for column in &self.columns {
            column.attribute.encode(out);
            out.put_blob(&column.nulls);
            out.put_blob(&column.values);
        }
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let at = reader.position();
        let kind = reader.u8("kind of join")?;
        let kind = JoinKind::from_u8(kind).ok_or_else(|| Corrupt::new("kind of join", at, kind.to_string()))?;
        let at = reader.position();
        let comparison = match reader.u8("comparison of a lookup key")? {
            0 => None,
            other => {
                let corrupt = || Corrupt::new("comparison of a lookup key", at, format!("{other} for {kind:?}"));
                Some(Comparison::from_u8(other).filter(|_| !kind.has_columns()).ok_or_else(corrupt)?)
            }
        };
        let at = reader.position();
        let parts = reader.u8("parts of a lookup key")? as usize;
        if !(1 + usize::from(comparison.is_some())..=KEY_PARTS_MAX).contains(&parts) {
            return Err(Corrupt::new("parts of a lookup key", at, parts.to_string()));
        }
        let attributes = (0..parts).map(|_| reader.u16("lookup column")).collect::<Result<_, _>>()?;
        let rows = reader.u32("number of lookup keys")? as usize;
        let (keys, _) = reader.take(rows.saturating_mul(parts).saturating_mul(8), "lookup keys")?.as_chunks();
        let keys: Vec<i64> = keys.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
        let columns = reader.count(21, "columns of a lookup table")?;
        let at = reader.position();
        if columns > 0 && !kind.has_columns() {
            return Err(Corrupt::new("columns of a lookup table", at, format!("{columns} for {kind:?}")));
        }
        let columns = (0..columns).map(|_| LookupColumn::decode(reader, rows)).collect::<Result<_, _>>()?;
        Ok(Self { kind, comparison, attributes, keys, columns })
    }

    /// The number of rows of the table.
    pub fn rows(&self) -> usize {
        self.keys.len() / self.attributes.len().max(1)
    }
}

impl LookupColumn {
    fn decode(reader: &mut Reader<'_>, rows: usize) -> Result<Self, Corrupt> {
        let attribute = Attribute::decode(reader)?;
        let at = reader.position();
        let nulls = reader.blob("NULLs of a lookup column")?.to_vec();
        if !nulls.is_empty() && nulls.len() != rows {
            return Err(Corrupt::new("NULLs of a lookup column", at, format!("{} for {rows} rows", nulls.len())));
        }
        let at = reader.position();
        let values = reader.blob("values of a lookup column")?.to_vec();
        let column = Self { attribute, nulls, values };
        let mut values = column.values();
        let found = values.by_ref().take(rows).count();
        if found != rows || !values.rest.is_empty() {
            let found = format!("{found} values and {} bytes for {rows} rows", values.rest.len());
            return Err(Corrupt::new("values of a lookup column", at, found));
        }
        Ok(column)
    }

    /// The bytes of each value. The bytes of a NULL are arbitrary.
    pub fn values(&self) -> LookupValues<'_> {
        LookupValues { width: self.attribute.width, rest: &self.values }
    }

    /// Whether the value of a row is NULL.
    pub fn is_null(&self, row: usize) -> bool {
        self.nulls.get(row).is_some_and(|null| *null != 0)
    }
}

/// Iterates over the values of a column. Ends early if the bytes are not valid.
pub struct LookupValues<'a> {
    width: Width,
    rest: &'a [u8],
}

impl<'a> Iterator for LookupValues<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (skipped, bytes) = match self.width {
            Width::Fixed(bytes) => (0, bytes as usize),
            Width::Varlena => (4, u32::from_le_bytes(*self.rest.first_chunk()?) as usize),
            Width::Cstring => return None,
        };
        let value = self.rest.get(skipped..)?.get(..bytes)?;
        self.rest = &self.rest[skipped + bytes..];
        (skipped + bytes > 0).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Missing;
    use super::*;
    use crate::postgres::Align;

    fn attribute(type_oid: u32, width: Width) -> Attribute {
        Attribute { type_oid, typmod: -1, width, align: Align::Int, by_value: false, missing: Missing::Null }
    }

    fn lookup() -> Lookup {
        let numbers = LookupColumn {
            attribute: attribute(23, Width::Fixed(4)),
            nulls: Vec::new(),
            values: vec![1, 0, 0, 0, 2, 0, 0, 0],
        };
        let texts = LookupColumn {
            attribute: attribute(25, Width::Varlena),
            nulls: vec![0, 1],
            values: vec![2, 0, 0, 0, b'a', b'b', 0, 0, 0, 0],
        };
        let keys = vec![-1, 5, i64::MAX, i64::MIN];
        Lookup { kind: JoinKind::Left, comparison: None, attributes: vec![1, 3], keys, columns: vec![numbers, texts] }
    }

    fn compared() -> Lookup {
        Lookup { kind: JoinKind::Anti, comparison: Some(Comparison::GreaterOrEqual), columns: Vec::new(), ..lookup() }
    }

    #[test]
    fn a_kind_of_join_without_columns_and_a_key_without_parts_are_checked() {
        let broken: [fn(&mut Lookup); 5] = [
            |lookup| lookup.kind = JoinKind::Semi,
            |lookup| lookup.comparison = Some(Comparison::Less),
            |lookup| *lookup = Lookup { attributes: vec![1], ..compared() },
            |lookup| lookup.attributes = vec![1; KEY_PARTS_MAX + 1],
            |lookup| lookup.attributes.clear(),
        ];
        for change in broken {
            let (mut lookup, mut bytes) = (lookup(), Vec::new());
            change(&mut lookup);
            lookup.encode(&mut bytes);
            Lookup::decode(&mut Reader::new(&bytes)).unwrap_err();
        }
        assert_eq!(JoinKind::from_u8(4), None);
        assert_eq!((Comparison::from_u8(0), Comparison::from_u8(6)), (None, None));
    }

    #[test]
    fn a_lookup_table_decodes_to_its_equal_and_a_truncated_table_is_corrupt() {
        let lookup = lookup();
        for lookup in [&compared(), &lookup] {
            let mut bytes = Vec::new();
            lookup.encode(&mut bytes);
            assert_eq!(Lookup::decode(&mut Reader::new(&bytes)).unwrap(), *lookup);
            for length in 0..bytes.len() {
                Lookup::decode(&mut Reader::new(&bytes[..length])).unwrap_err();
            }
        }
        let values: Vec<&[u8]> = lookup.columns[1].values().collect();
        assert_eq!(values, [b"ab".as_slice(), b""]);
        assert!(!lookup.columns[1].is_null(0) && lookup.columns[1].is_null(1));
    }

    #[test]
    fn values_that_do_not_match_the_number_of_rows_are_corrupt() {
        let broken: [fn(&mut Lookup); 5] = [
            |lookup| lookup.keys.extend([7, 7]),
            |lookup| lookup.columns[1].nulls.push(0),
            |lookup| lookup.columns[0].values.push(0),
            |lookup| lookup.columns[1].values[0] = 3,
            |lookup| lookup.columns[1].attribute.width = Width::Cstring,
        ];
        for change in broken {
            let mut lookup = lookup();
            change(&mut lookup);
            let mut bytes = Vec::new();
            lookup.encode(&mut bytes);
            Lookup::decode(&mut Reader::new(&bytes)).unwrap_err();
        }
    }
}
