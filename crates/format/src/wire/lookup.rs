//! Lookup tables on the wire: the inner sides of joins that the cell evaluates while it scans the outer side.
//!
//! A row of the scan is joined with the row of the lookup table whose key equals a column of the scan. The columns of the lookup
//! tables follow the columns of the relation: expressions of the aggregation refer to them by the attribute numbers after the
//! relation's last one, in the order of the tables. The backend evaluates the same join over the rows that the cell returns.

use super::Attribute;
use crate::bytes::{Corrupt, Reader, Write};
use crate::postgres::{AttributeNumber, Width};

/// The inner side of an inner join. No key is NULL. If several rows have the same key, the cell returns the rows of the scan that
/// match the key.
#[derive(Debug, Clone, PartialEq)]
pub struct Lookup {
    /// The column of the relation that is equal to the key: an integer, a date or a timestamp.
    pub attribute: AttributeNumber,
    /// One per row.
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
        out.put_u16(self.attribute);
        out.put_u32(self.keys.len() as u32);
        self.keys.iter().for_each(|key| out.put_u64(*key as u64));
        out.put_u32(self.columns.len() as u32);
        for column in &self.columns {
            column.attribute.encode(out);
            out.put_blob(&column.nulls);
            out.put_blob(&column.values);
        }
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let attribute = reader.u16("lookup column")?;
        let count = reader.u32("number of lookup keys")? as usize;
        let (keys, _) = reader.take(count.saturating_mul(8), "lookup keys")?.as_chunks();
        let keys: Vec<i64> = keys.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
        let columns = reader.count(21, "columns of a lookup table")?;
        let columns = (0..columns).map(|_| LookupColumn::decode(reader, keys.len())).collect::<Result<_, _>>()?;
        Ok(Self { attribute, keys, columns })
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
        Lookup { attribute: 1, keys: vec![-1, i64::MAX], columns: vec![numbers, texts] }
    }

    #[test]
    fn a_lookup_table_decodes_to_its_equal_and_a_truncated_table_is_corrupt() {
        let lookup = lookup();
        let mut bytes = Vec::new();
        lookup.encode(&mut bytes);
        assert_eq!(Lookup::decode(&mut Reader::new(&bytes)).unwrap(), lookup);
        for length in 0..bytes.len() {
            Lookup::decode(&mut Reader::new(&bytes[..length])).unwrap_err();
        }
        let values: Vec<&[u8]> = lookup.columns[1].values().collect();
        assert_eq!(values, [b"ab".as_slice(), b""]);
        assert!(!lookup.columns[1].is_null(0) && lookup.columns[1].is_null(1));
    }

    #[test]
    fn values_that_do_not_match_the_number_of_rows_are_corrupt() {
        let broken: [fn(&mut Lookup); 5] = [
            |lookup| lookup.keys.push(7),
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
