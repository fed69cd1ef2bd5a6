//! Reads the numbers of a column, from datums or from encoded values.

use super::super::column::Column;
use super::super::encoded::{CodeEncoding, EncodedColumn};
use super::super::lanes::{IS_NULL, Lanes, UNCERTAIN};
use super::super::rows::RowSet;
use crate::heap::{MISSING, NULL, Slot};
use crate::value::{Value, ValueKind, numeric};
use cellar_format::postgres::Width;

/// Reads the numbers of a column from its datums; of floats, their bits. Fills and returns `buffer`.
pub fn read(rows: RowSet<'_>, slot: Slot, column: &Column, scale: u32, selected: &[u16], buffer: Vec<i64>) -> Lanes {
    let pages = column.bytes(rows.bytes);
    macro_rules! fixed {
        ($type:ty, $number:expr) => {
            read_with(rows, slot, column, selected, buffer, |at| {
                let bytes = pages.get(at..at + size_of::<$type>())?.try_into().ok()?;
                Some($number(<$type>::from_le_bytes(bytes)))
            })
        };
    }
    match (column.kind, column.width) {
        (Some(ValueKind::Int4 | ValueKind::Date), _) => fixed!(i32, i64::from),
        (Some(ValueKind::Int8 | ValueKind::Time | ValueKind::Timestamp | ValueKind::Timestamptz), _) => {
            fixed!(i64, i64::from)
        }
        (Some(ValueKind::Float4), _) => fixed!(f32, |value| f64::from(value).to_bits() as i64),
        (Some(ValueKind::Float8), _) => fixed!(f64, |value: f64| value.to_bits() as i64),
        (Some(ValueKind::Numeric), _) => read_with(rows, slot, column, selected, buffer, |at| {
            numeric::scaled_by_ten(column.plain_bytes(pages, at)?, scale)
        }),
        (Some(kind), Width::Fixed(_)) => {
            read_with(rows, slot, column, selected, buffer, |at| column.int(kind, pages, at))
        }
        _ => read_with(rows, slot, column, selected, buffer, |_| None),
    }
}

#[inline(always)]
fn read_with(
    rows: RowSet<'_>,
    slot: Slot,
    column: &Column,
    selected: &[u16],
    mut values: Vec<i64>,
    number: impl Fn(usize) -> Option<i64>,
) -> Lanes {
    let locations = rows.locations(slot);
    // A missing value other than NULL is rare, so it is left to the interpreter.
    let missing = if matches!(column.missing, Ok(Value::Null)) { IS_NULL } else { UNCERTAIN };
    values.clear();
    values.resize(selected.len(), 0);
    let mut flags = vec![0; selected.len()];
    let (mut all, mut min, mut max) = (0, 0, 0);
    let outs = values.iter_mut().zip(&mut flags);
    for (&row, (value, flag)) in selected.iter().zip(outs) {
        match locations[row as usize] {
            NULL => *flag = IS_NULL,
            MISSING => *flag = missing,
            at => match number(at as usize) {
                Some(number) => *value = number,
                None => *flag = UNCERTAIN,
            },
        }
        all |= *flag;
        (min, max) = (min.min(*value), max.max(*value));
    }
    if all == 0 {
        flags.clear();
    }
    Lanes { values, flags, bounds: (min, max) }
}

/// The numbers of a column from its encoded values, times `10^scale`.
pub fn encoded_numbers(encoded: &EncodedColumn<'_>, scale: u32, mut values: Vec<i64>) -> Lanes {
    let Some((factor, bounds)) = encoded.scale_factor(scale) else {
        return Lanes::of(0, UNCERTAIN, encoded.codes.len());
    };
    values.clear();
    match factor {
        1 => values.extend_from_slice(encoded.codes),
        _ => values.extend(encoded.codes.iter().map(|value| value.wrapping_mul(factor))),
    }
    let flags = encoded.validity.map(|valid| valid.iter().map(|valid| if *valid == 0 { IS_NULL } else { 0 }).collect());
    Lanes { values, flags: flags.unwrap_or_default(), bounds }
}

/// The display scales of a column's numerics. NULLs have the scale 0.
pub fn display_scales(rows: RowSet<'_>, slot: Slot, selected: &[u16]) -> Lanes {
    if let Some(encoded) = rows.encoded(slot) {
        return match encoded.encoding {
            CodeEncoding::Numbers { scale: Some(scale), .. } => Lanes::of(scale.into(), 0, selected.len()),
            _ => Lanes::of(0, UNCERTAIN, selected.len()),
        };
    }
    let Some(column) = rows.column(slot) else { return Lanes::of(0, UNCERTAIN, selected.len()) };
    let mut lanes = read_with(rows, slot, column, selected, Vec::new(), |at| {
        column.plain_bytes(rows.bytes, at).and_then(numeric::display_scale).map(i64::from)
    });
    lanes.flags.iter_mut().for_each(|flags| *flags &= UNCERTAIN);
    lanes
}
