//! Appends decoded values as datums, with the headers and alignment of tuples.

use super::super::attribute::{Representation, SHORT_PAYLOAD_MAX};
use super::super::numeric;
use super::super::section::{Result, corrupt};
use super::super::shape::{Attribute, Number};
use super::ColumnReader;
use cellar_format::postgres::Width;

impl ColumnReader {
    /// Appends the datums of `rows`, none of which is NULL, and records their locations. Returns false, without a change,
    /// unless the attribute has four- or eight-byte integers.
    pub fn push_numbers(
        &self,
        attribute: &Attribute,
        rows: &[u16],
        locations: &mut [u32; 1 << 16],
        out: &mut Vec<u8>,
    ) -> bool {
        let bytes = match Number::of(attribute) {
            Some(Number::I32 | Number::U32) => 4,
            Some(Number::I64) => 8,
            _ => return false,
        };
        out.resize(attribute.align.up(out.len()), 0);
        let mut at = out.len();
        out.resize(at + rows.len() * bytes, 0);
        for row in rows {
            let value = self.decoded.ints[*row as usize].to_le_bytes();
            out[at..at + bytes].copy_from_slice(&value[..bytes]);
            locations[*row as usize] = at as u32;
            at += bytes;
        }
        true
    }

    /// Appends the whole datum of a row, aligned, and returns where the datum starts in `out`.
    #[inline(always)]
    pub fn push_datum(&self, attribute: &Attribute, row: usize, out: &mut Vec<u8>) -> Result<u32> {
        let decoded = &self.decoded;
        if let Some(datum) = decoded.exception(row) {
            return Ok(push_aligned(attribute, datum, out));
        }
        Ok(match decoded.representation {
            Representation::Number => {
                let Some(number) = Number::of(attribute) else { return corrupt("value", row, "not a number") };
                let bytes = number.encode(decoded.ints[row]);
                out.resize(attribute.align.up(out.len()), 0);
                let at = out.len() as u32;
                out.extend_from_slice(&bytes[..number.bytes()]);
                at
            }
            Representation::Numeric { scale } => {
                let Some((bytes, count)) = numeric::encode(decoded.ints[row], scale) else {
                    return corrupt("value", row, "not a numeric");
                };
                let at = out.len() as u32;
                out.extend_from_slice(&bytes[..count]);
                at
            }
            Representation::Payload => {
                let payload = decoded.strings.get(row).unwrap_or_default();
                let at;
                if payload.len() <= SHORT_PAYLOAD_MAX {
                    at = out.len() as u32;
                    out.push(((payload.len() + 1) << 1 | 1) as u8);
                } else {
                    out.resize(attribute.align.up(out.len()), 0);
                    at = out.len() as u32;
                    out.extend_from_slice(&((payload.len() as u32 + 4) << 2).to_le_bytes());
                }
                out.extend_from_slice(payload);
                at
            }
            Representation::Datum => push_aligned(attribute, decoded.strings.get(row).unwrap_or_default(), out),
        })
    }
}

/// Appends a whole datum, aligned unless it has a one-byte header. Returns where the datum starts in `out`.
fn push_aligned(attribute: &Attribute, datum: &[u8], out: &mut Vec<u8>) -> u32 {
    let short = attribute.width == Width::Varlena && datum.first().is_some_and(|first| first & 1 == 1);
    if !short {
        out.resize(attribute.align.up(out.len()), 0);
    }
    let at = out.len() as u32;
    out.extend_from_slice(datum);
    at
}
