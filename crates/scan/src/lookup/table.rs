//! The columns of a lookup table, as datums and as encoded values.

use crate::heap::{NULL, Slot};
use crate::predicate::{CodeEncoding, Column, ColumnRequirement, EncodedColumn, StringList, scale_factor};
use crate::value::{ValueKind, numeric};
use cellar_format::postgres::Width;
use cellar_format::wire::LookupColumn;
use std::collections::HashMap;

/// The greatest number of decimals of encoded numerics.
const DECIMALS_MAX: u16 = 8;
/// No datum starts before this offset, because smaller locations have other meanings.
const FIRST_DATUM: usize = 8;

/// The encoded values of a column, by row.
enum Encoding {
    Numbers {
        scale: Option<u8>,
        bounds: (i64, i64),
    },
    Strings {
        bytes: Vec<u8>,
        ends: Vec<u32>,
    },
    /// The values are only available as datums.
    None,
}

/// A column of a lookup table.
pub struct TableColumn {
    pub slot: Slot,
    /// Where each row's datum is in [`Column::looked_up`].
    pub locations: Vec<u32>,
    codes: Vec<i64>,
    /// 0 where the row is NULL. None: no row is NULL.
    validity: Option<Vec<i64>>,
    encoding: Encoding,
}

/// The encoded values of a column in joined rows.
#[derive(Debug, Default)]
pub struct EncodedBuffer {
    codes: Vec<i64>,
    validity: Vec<i64>,
}

impl EncodedBuffer {
    /// The values of a column in the rows `positions`.
    pub fn repeat<'a>(&'a mut self, column: &EncodedColumn<'a>, positions: &[u16]) -> EncodedColumn<'a> {
        let Self { codes, validity } = self;
        codes.clear();
        validity.clear();
        if !matches!(column.encoding, CodeEncoding::Nulls) {
            codes.extend(positions.iter().map(|position| column.codes[*position as usize]));
        }
        if let Some(known) = column.validity {
            validity.extend(positions.iter().map(|position| known[*position as usize]));
        }
        EncodedColumn { codes, validity: column.validity.map(|_| validity.as_slice()), encoding: column.encoding }
    }
}

impl TableColumn {
    /// Reads the values. `column` receives the datums. `null_row`: a row of NULL follows.
    pub fn new(slot: Slot, wire: &LookupColumn, column: &mut Column, null_row: bool) -> Self {
        let mut datums = vec![0; FIRST_DATUM];
        let mut locations = Vec::new();
        for (row, value) in wire.values().enumerate() {
            if wire.is_null(row) {
                locations.push(NULL);
                continue;
            }
            locations.push(datums.len() as u32);
            if wire.attribute.width == Width::Varlena {
                // The header of an uncompressed datum of four bytes and more; see varatt.h.
                datums.extend_from_slice(&((value.len() as u32 + 4) << 2).to_le_bytes());
            }
            datums.extend_from_slice(value);
        }
        let mut codes = Vec::new();
        let mut encoding = match column.kind {
            Some(kind) if kind.is_int() => numbers(wire, &mut codes, None, |value| kind.decode_int(value)),
            Some(ValueKind::Numeric) => match column.decimals.filter(|decimals| *decimals <= DECIMALS_MAX) {
                Some(decimals) => numbers(wire, &mut codes, Some(decimals as u8), |value| {
                    numeric::scaled_by_ten(value, decimals.into())
                }),
                None => Encoding::None,
            },
            Some(ValueKind::Text | ValueKind::Bytea) => strings(wire, &mut codes),
            _ => Encoding::None,
        };
        if null_row {
            locations.push(NULL);
            match &mut encoding {
                Encoding::Numbers { bounds, .. } => codes.push(bounds.0),
                Encoding::Strings { ends, .. } => {
                    codes.push(0);
                    if ends.is_empty() {
                        ends.push(0);
                    }
                }
                Encoding::None => {}
            }
        }
        let has_nulls = locations.contains(&NULL);
        let validity = has_nulls.then(|| locations.iter().map(|at| i64::from(*at != NULL)).collect());
        column.looked_up = Some(datums.into());
        Self { slot, locations, codes, validity, encoding }
    }

    /// The value of a row of an integer column; Some(None) for NULL. None: the column does not have integers.
    pub fn int(&self, row: u32) -> Option<Option<i64>> {
        let Encoding::Numbers { scale: None, .. } = self.encoding else { return None };
        let is_null = self.validity.as_ref().is_some_and(|validity| validity.get(row as usize) == Some(&0));
        if is_null { Some(None) } else { self.codes.get(row as usize).map(|code| Some(*code)) }
    }

    /// Whether the encoded values meet a requirement.
    pub fn meets(&self, requirement: ColumnRequirement) -> bool {
        match (requirement, &self.encoding) {
            (ColumnRequirement::Nulls, _) => true,
            (ColumnRequirement::Numbers { scale: wanted }, Encoding::Numbers { scale, bounds }) => {
                scale_factor(*scale, *bounds, wanted).is_some()
            }
            (
                ColumnRequirement::Scaled { scale: wanted, bounds: (least, most) },
                Encoding::Numbers { scale, bounds },
            ) => *scale == Some(wanted) && least <= bounds.0 && bounds.1 <= most,
            (ColumnRequirement::Strings, Encoding::Strings { .. }) => true,
            _ => false,
        }
    }

    /// Reads the encoded values of the rows `entries` of the table.
    pub fn gather<'a>(&'a self, entries: &[u32], buffer: &'a mut EncodedBuffer) -> EncodedColumn<'a> {
        let EncodedBuffer { codes, validity } = buffer;
        codes.clear();
        validity.clear();
        let encoding = match &self.encoding {
            Encoding::Numbers { scale, bounds } => CodeEncoding::Numbers { scale: *scale, bounds: *bounds },
            Encoding::Strings { bytes, ends } => CodeEncoding::Strings(StringList { bytes, ends }),
            Encoding::None => CodeEncoding::Nulls,
        };
        if !matches!(encoding, CodeEncoding::Nulls) {
            codes.extend(entries.iter().map(|entry| self.codes[*entry as usize]));
        }
        if let Some(known) = &self.validity {
            validity.extend(entries.iter().map(|entry| known[*entry as usize]));
        }
        EncodedColumn { codes, validity: self.validity.as_ref().map(|_| validity.as_slice()), encoding }
    }
}

/// The bytes that the columns of a lookup table occupy at most.
pub fn bytes_for(wire: &LookupColumn) -> usize {
    let rows = wire.values().count() + 1;
    let per_row = size_of::<u32>() * 2 + size_of::<i64>() * 2 + 4 * size_of::<usize>();
    3 * wire.values.len() + rows * per_row
}

/// Encodes numbers. A NULL gets the code of some other value.
fn numbers(
    wire: &LookupColumn,
    codes: &mut Vec<i64>,
    scale: Option<u8>,
    decode: impl Fn(&[u8]) -> Option<i64>,
) -> Encoding {
    let mut bounds: Option<(i64, i64)> = None;
    for (row, value) in wire.values().enumerate() {
        if wire.is_null(row) {
            codes.push(bounds.map_or(0, |(least, _)| least));
            continue;
        }
        let Some(value) = decode(value) else {
            codes.clear();
            return Encoding::None;
        };
        codes.push(value);
        bounds = Some(bounds.map_or((value, value), |(least, most)| (least.min(value), most.max(value))));
    }
    let bounds = bounds.unwrap_or((0, 0));
    codes.iter_mut().for_each(|code| *code = (*code).clamp(bounds.0, bounds.1));
    Encoding::Numbers { scale, bounds }
}

/// Encodes strings as positions in a list of different strings.
fn strings(wire: &LookupColumn, codes: &mut Vec<i64>) -> Encoding {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    let mut known: HashMap<&[u8], i64> = HashMap::new();
    for (row, value) in wire.values().enumerate() {
        let value = if wire.is_null(row) { b"" } else { value };
        codes.push(*known.entry(value).or_insert_with(|| {
            bytes.extend_from_slice(value);
            ends.push(bytes.len() as u32);
            ends.len() as i64 - 1
        }));
    }
    Encoding::Strings { bytes, ends }
}
