//! The bytes of a region summary in the saved storage index. Layout: `docs/format/storage-index.md`.
//!
//! A change of what [`Bounds`] mean for the same values needs a new version of the format, like a change of the bytes.

use super::{ColumnSummary, RegionSummary};
use crate::bounds::{Bounds, Prefix};
use crate::value::{Numeric, numeric};
use cellar_format::bytes::{Corrupt, Reader, Write};
use numeric::Class;

const HAS_NULL: u8 = 1;
const HAS_NONNULL: u8 = 2;
/// Bytes of a column with unknown bounds, the shortest.
const COLUMN_BYTES_MIN: usize = 8;

/// The byte before the bounds.
const UNKNOWN: u8 = 0;
const INT: u8 = 1;
const NUMERIC: u8 = 2;
const BYTES: u8 = 3;

impl RegionSummary {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.columns.len() as u32);
        for column in &self.columns {
            out.put_u16(column.number);
            out.put_u32(column.type_oid);
            let null = if column.has_null { HAS_NULL } else { 0 };
            out.put_u8(null | if column.has_nonnull { HAS_NONNULL } else { 0 });
            encode_bounds(&column.bounds, out);
        }
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let count = reader.count(COLUMN_BYTES_MIN, "columns of a region summary")?;
        let mut columns: Vec<ColumnSummary> = Vec::with_capacity(count);
        for _ in 0..count {
            let at = reader.position();
            let (number, type_oid) = (reader.u16("attribute number")?, reader.u32("type")?);
            if columns.last().is_some_and(|last| last.number >= number) {
                return Err(Corrupt::new("attribute number", at, format!("{number} is not ascending")));
            }
            let flags = reader.u8("flags of a column")?;
            if flags > HAS_NULL | HAS_NONNULL {
                return Err(Corrupt::new("flags of a column", at, flags.to_string()));
            }
            let (has_null, has_nonnull) = (flags & HAS_NULL != 0, flags & HAS_NONNULL != 0);
            columns.push(ColumnSummary { number, type_oid, has_null, has_nonnull, bounds: decode_bounds(reader)? });
        }
        Ok(Self { columns })
    }
}

fn encode_bounds(bounds: &Bounds, out: &mut Vec<u8>) {
    match bounds {
        Bounds::Unknown => out.put_u8(UNKNOWN),
        Bounds::Int { min, max } => {
            out.put_u8(INT);
            out.put_u64(*min as u64);
            out.put_u64(*max as u64);
        }
        Bounds::Numeric(bounds) => {
            out.put_u8(NUMERIC);
            encode_numeric(&bounds.0, out);
            encode_numeric(&bounds.1, out);
        }
        Bounds::Bytes { min, max } => {
            out.put_u8(BYTES);
            min.encode(out);
            max.encode(out);
        }
    }
}

fn decode_bounds(reader: &mut Reader<'_>) -> Result<Bounds, Corrupt> {
    let at = reader.position();
    Ok(match reader.u8("kind of bounds")? {
        UNKNOWN => Bounds::Unknown,
        INT => Bounds::Int { min: reader.u64("minimum")? as i64, max: reader.u64("maximum")? as i64 },
        NUMERIC => Bounds::Numeric(Box::new((decode_numeric(reader)?, decode_numeric(reader)?))),
        BYTES => Bounds::Bytes { min: Prefix::decode(reader)?, max: Prefix::decode(reader)? },
        other => return Err(Corrupt::new("kind of bounds", at, other.to_string())),
    })
}

fn encode_numeric(value: &Numeric, out: &mut Vec<u8>) {
    out.put_u8(value.class as u8);
    out.put_bool(value.negative);
    out.put_u32(value.weight as u32);
    out.put_u32(value.scale as u32);
    out.put_u32(value.digits.len() as u32);
    value.digits.iter().for_each(|digit| out.put_u16(*digit as u16));
}

/// Decodes a numeric, and checks the invariant of [`Numeric`].
fn decode_numeric(reader: &mut Reader<'_>) -> Result<Numeric, Corrupt> {
    let at = reader.position();
    let corrupt = |found: String| Corrupt::new("numeric", at, found);
    let class = match reader.u8("class of a numeric")? {
        0 => Class::NegativeInfinity,
        1 => Class::Finite,
        2 => Class::PositiveInfinity,
        3 => Class::NaN,
        other => return Err(corrupt(format!("class {other}"))),
    };
    let negative = reader.bool("sign of a numeric")?;
    let (weight, scale) = (reader.u32("weight of a numeric")? as i32, reader.u32("scale of a numeric")? as i32);
    let count = reader.count(2, "digits of a numeric")?;
    let mut digits = numeric::Digits::with_capacity(count);
    for _ in 0..count {
        match reader.u16("digit of a numeric")? {
            digit if i64::from(digit) < numeric::BASE => digits.push(digit as i16),
            digit => return Err(corrupt(format!("digit {digit}"))),
        }
    }
    let has_outer_zero = digits.first() == Some(&0) || digits.last() == Some(&0);
    if has_outer_zero || class != Class::Finite && count > 0 {
        return Err(corrupt(format!("{count} digits")));
    }
    Ok(Numeric { class, negative, weight, scale, digits })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cellar_format::postgres::type_oid;

    /// One column of each kind of bounds. The bytes are part of the format.
    fn summary() -> RegionSummary {
        let column = |number, type_oid, bounds| ColumnSummary {
            number,
            type_oid,
            has_null: number == 2,
            has_nonnull: number != 7,
            bounds,
        };
        let numerics = Box::new((Numeric::parse("-12345.678").unwrap(), Numeric::special(Class::NaN)));
        let strings = Bounds::Bytes { min: Prefix::new(b"abc"), max: Prefix::new(b"a string beyond the prefix") };
        RegionSummary::new(vec![
            column(1, type_oid::INT4, Bounds::Int { min: -5, max: i64::MAX }),
            column(2, type_oid::NUMERIC, Bounds::Numeric(numerics)),
            column(5, type_oid::BPCHAR, strings),
            column(7, type_oid::UUID, Bounds::Unknown),
        ])
    }

    #[test]
    fn a_summary_reads_back_as_written_and_its_bytes_never_change() {
        let mut bytes = Vec::new();
        summary().encode(&mut bytes);
        assert_eq!(RegionSummary::decode(&mut Reader::new(&bytes)).unwrap(), summary());
        let hexadecimal: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = concat!(
            "04000000",
            "0100",
            "17000000",
            "02",
            "01",
            "fbffffffffffffff",
            "ffffffffffffff7f",
            "0200",
            "a4060000",
            "03",
            "02",
            "01",
            "01",
            "01000000",
            "03000000",
            "03000000",
            "0100",
            "2909",
            "7c1a",
            "03",
            "00",
            "00000000",
            "00000000",
            "00000000",
            "0500",
            "12040000",
            "02",
            "03",
            "03",
            "00",
            "616263",
            "10",
            "01",
            "6120737472696e67206265796f6e6420",
            "0700",
            "860b0000",
            "00",
            "00",
        );
        assert_eq!(hexadecimal, expected);
    }

    #[test]
    fn damaged_bytes_are_errors_or_valid_summaries_and_never_panic() {
        let mut bytes = Vec::new();
        summary().encode(&mut bytes);
        for at in 0..bytes.len() {
            RegionSummary::decode(&mut Reader::new(&bytes[..at])).unwrap_err();
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                let _ = RegionSummary::decode(&mut Reader::new(&damaged));
            }
        }
        let invalid = |at: usize, value: u8| {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            RegionSummary::decode(&mut Reader::new(&damaged)).unwrap_err();
        };
        invalid(10, 4);
        invalid(11, 4);
        invalid(28, 0);
    }
}
