//! Builds a region's summary from the rows that a scan decodes.

use super::{ColumnSummary, RegionSummary};
use crate::bounds::{Bounds, Prefix};
use crate::heap::{MISSING, NULL, PageRows, Slot};
use crate::predicate::Column;
use crate::value::{EvalResult, Numeric, Undecided, Value, ValueKind, float_key, numeric, without_trailing_blanks};
use cellar_format::postgres::{AttributeNumber, Oid, type_oid};

/// A column to summarise.
#[derive(Debug, Clone, Copy)]
pub struct SummaryColumn {
    pub number: AttributeNumber,
    pub type_oid: Oid,
    pub slot: Slot,
}

#[derive(Debug, Clone)]
struct Accumulator {
    column: SummaryColumn,
    has_null: bool,
    has_nonnull: bool,
    /// Some value could not be decoded, so there are no bounds.
    unknown: bool,
    ints: Extremes<i64>,
    /// Numerics that have a key, by their keys.
    keys: Extremes<i64>,
    /// Strings of at most eight bytes; joined with `prefixes` at the end.
    short: Extremes<ShortString>,
    numerics: Option<(Numeric, Numeric)>,
    prefixes: Option<(Prefix, Prefix)>,
}

/// Accumulates the summary of one region.
#[derive(Debug)]
pub struct SummaryBuilder {
    accumulators: Vec<Accumulator>,
}

impl SummaryBuilder {
    pub fn new(columns: &[SummaryColumn]) -> Self {
        let empty = |column: &SummaryColumn| Accumulator {
            column: *column,
            has_null: false,
            has_nonnull: false,
            unknown: false,
            ints: Extremes::<i64>::NONE,
            keys: Extremes::<i64>::NONE,
            short: Extremes::<ShortString>::NONE,
            numerics: None,
            prefixes: None,
        };
        Self { accumulators: columns.iter().map(empty).collect() }
    }

    /// Adds rows that were walked over the summary's columns.
    pub fn add(&mut self, pages: &[u8], rows: &PageRows, columns: &[Option<Column>]) {
        for accumulator in &mut self.accumulators {
            let slot = accumulator.column.slot;
            match columns.get(slot as usize).and_then(Option::as_ref) {
                Some(column) => accumulator.add(pages, &rows.locations(slot)[..rows.len()], column),
                None => accumulator.unknown = true,
            }
        }
    }

    pub fn finish(self) -> RegionSummary {
        RegionSummary::new(self.accumulators.into_iter().map(Accumulator::finish).collect())
    }
}

impl Accumulator {
    fn add(&mut self, pages: &[u8], locations: &[u32], column: &Column) {
        let (mut missing, mut nulls, mut values) = (false, false, 0);
        let present = locations.iter().copied().filter(|location| {
            missing |= *location == MISSING;
            nulls |= *location == NULL;
            values += usize::from(*location > MISSING);
            *location > MISSING
        });
        match column.kind {
            // Common types: the type is matched once per call, not per value.
            Some(ValueKind::Int4 | ValueKind::Date) => {
                self.add_ints(present, |at| ValueKind::Int4.decode_int(pages.get(at..at + 4)?))
            }
            Some(ValueKind::Int8 | ValueKind::Time | ValueKind::Timestamp | ValueKind::Timestamptz) => {
                self.add_ints(present, |at| ValueKind::Int8.decode_int(pages.get(at..at + 8)?));
            }
            Some(kind) if kind.is_int() => self.add_ints(present, |at| column.int(kind, pages, at)),
            Some(ValueKind::Numeric) => {
                let mut keys = Extremes::<i64>::NONE;
                for location in present {
                    match column.plain_bytes(pages, location as usize).and_then(numeric::key) {
                        Some(key) => keys.add(key),
                        None => self.add_value(column.value(pages, location)),
                    }
                }
                self.keys.join(keys);
            }
            Some(ValueKind::Text | ValueKind::Bytea | ValueKind::Name | ValueKind::Uuid) => {
                let mut short = self.short;
                for location in present {
                    match column.plain_bytes(pages, location as usize) {
                        Some(bytes) => match self.trimmed(bytes) {
                            bytes if bytes.len() <= ShortString::BYTES_MAX => short.add(ShortString::new(bytes)),
                            bytes => self.add_bytes(bytes),
                        },
                        None => self.add_value(column.value(pages, location)),
                    }
                }
                self.short = short;
            }
            Some(_) => present.for_each(|location| self.add_value(column.value(pages, location))),
            None => present.for_each(drop),
        }
        self.has_null |= nulls;
        self.has_nonnull |= values > 0;
        if missing {
            match &column.missing {
                Ok(Value::Null) => self.has_null = true,
                other => {
                    self.has_nonnull = true;
                    self.add_value(other.as_ref().map(Value::borrowed).map_err(|undecided| *undecided));
                }
            }
        }
    }

    #[inline(always)]
    fn add_ints(&mut self, present: impl Iterator<Item = u32>, int: impl Fn(usize) -> Option<i64>) {
        let (mut ints, mut unknown) = (self.ints, false);
        for location in present {
            match int(location as usize) {
                Some(value) => ints.add(value),
                None => unknown = true,
            }
        }
        self.ints = ints;
        self.unknown |= unknown;
    }

    fn add_value(&mut self, value: EvalResult<'_>) {
        match value {
            Ok(Value::Int(value)) => self.ints.add(value),
            Ok(Value::Bool(value)) => self.ints.add(i64::from(value)),
            Ok(Value::Float(value)) => self.ints.add(float_key(value)),
            Ok(Value::Numeric(value)) => self.add_numeric(value),
            Ok(Value::Bytes(bytes)) => self.add_bytes(self.trimmed(&bytes)),
            Ok(Value::Null) | Err(Undecided) => self.unknown = true,
        }
    }

    #[inline(always)]
    fn trimmed<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        if self.column.type_oid == type_oid::BPCHAR { without_trailing_blanks(bytes) } else { bytes }
    }

    #[inline]
    fn add_bytes(&mut self, bytes: &[u8]) {
        match &self.prefixes {
            // Most values are neither a new minimum nor a new maximum.
            Some((min, max)) if min.is_below(bytes) && max.is_above(bytes) => {}
            Some((min, max)) => {
                let prefix = Prefix::new(bytes);
                self.prefixes = Some((min.lower(prefix), max.upper(prefix)));
            }
            None => self.prefixes = Some((Prefix::new(bytes), Prefix::new(bytes))),
        }
    }

    fn add_numeric(&mut self, value: Numeric) {
        match &mut self.numerics {
            None => self.numerics = Some((value.clone(), value)),
            Some((min, _)) if value.compare(min).is_lt() => *min = value,
            Some((_, max)) if value.compare(max).is_gt() => *max = value,
            Some(_) => {}
        }
    }

    fn finish(mut self) -> ColumnSummary {
        if let Some((min, max)) = self.keys.minmax() {
            self.add_numeric(Numeric::from_key(min));
            self.add_numeric(Numeric::from_key(max));
        }
        if let Some((min, max)) = self.short.minmax() {
            self.add_bytes(&min.bytes());
            self.add_bytes(&max.bytes());
        }
        let bounds = match (self.unknown, self.ints.minmax(), self.numerics, self.prefixes) {
            (false, Some((min, max)), None, None) => Bounds::Int { min, max },
            (false, None, Some(minmax), None) => Bounds::Numeric(Box::new(minmax)),
            (false, None, None, Some((min, max))) => Bounds::Bytes { min, max },
            _ => Bounds::Unknown,
        };
        let SummaryColumn { number, type_oid, .. } = self.column;
        ColumnSummary { number, type_oid, has_null: self.has_null, has_nonnull: self.has_nonnull, bounds }
    }
}

/// The minimum and the maximum of some values. The minimum exceeds the maximum while there are no values.
#[derive(Debug, Clone, Copy)]
struct Extremes<T>(T, T);

impl<T: Ord + Copy> Extremes<T> {
    #[inline(always)]
    fn add(&mut self, value: T) {
        *self = Self(self.0.min(value), self.1.max(value));
    }

    fn join(&mut self, other: Self) {
        *self = Self(self.0.min(other.0), self.1.max(other.1));
    }

    fn minmax(self) -> Option<(T, T)> {
        (self.0 <= self.1).then_some((self.0, self.1))
    }
}

impl Extremes<i64> {
    const NONE: Self = Self(i64::MAX, i64::MIN);
}

/// A string of at most eight bytes that compares like the string: its bytes as a big-endian number, then its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ShortString {
    word: u64,
    length: u8,
}

impl ShortString {
    const BYTES_MAX: usize = 8;

    #[inline(always)]
    fn new(bytes: &[u8]) -> Self {
        let mut word = 0;
        for byte in bytes.iter().take(Self::BYTES_MAX) {
            word = word << 8 | u64::from(*byte);
        }
        let missing = Self::BYTES_MAX.saturating_sub(bytes.len()) as u32;
        Self { word: word.checked_shl(missing * 8).unwrap_or(0), length: bytes.len().min(Self::BYTES_MAX) as u8 }
    }

    fn bytes(&self) -> Vec<u8> {
        self.word.to_be_bytes()[..self.length as usize].to_vec()
    }
}

impl Extremes<ShortString> {
    const NONE: Self = Self(ShortString { word: u64::MAX, length: u8::MAX }, ShortString { word: 0, length: 0 });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A saved storage index contains bounds. If the bounds of the same values change, the format needs a new version
    /// (`docs/format/storage-index.md`).
    #[test]
    fn the_bounds_of_the_same_values_never_change() {
        let bounds = |type_oid, values: &[Value<'_>]| {
            let column = SummaryColumn { number: 1, type_oid, slot: 0 };
            let mut accumulator = SummaryBuilder::new(&[column]).accumulators.remove(0);
            values.iter().for_each(|value| accumulator.add_value(Ok(value.borrowed())));
            accumulator.finish().bounds
        };
        let strings = |min: &[u8], max: &[u8]| Bounds::Bytes { min: Prefix::new(min), max: Prefix::new(max) };
        let (padded, other) = (Value::Bytes(b"ab  "[..].into()), Value::Bytes(b"a"[..].into()));
        assert_eq!(bounds(type_oid::BPCHAR, &[padded.borrowed(), other.borrowed()]), strings(b"a", b"ab"));
        assert_eq!(bounds(type_oid::TEXT, &[padded, other]), strings(b"a", b"ab  "));
        let floats = [Value::Float(1.5), Value::Float(-1.5)];
        let expected = Bounds::Int { min: 0xc007_ffff_ffff_ffff_u64 as i64, max: 0x3ff8_0000_0000_0000 };
        assert_eq!(bounds(type_oid::FLOAT8, &floats), expected);
        assert_eq!(bounds(type_oid::FLOAT4, &[Value::Float(f64::NAN)]), Bounds::Int { min: i64::MAX, max: i64::MAX });
        assert_eq!(bounds(type_oid::BOOL, &[Value::Bool(true), Value::Bool(false)]), Bounds::Int { min: 0, max: 1 });
        assert_eq!(bounds(type_oid::INT4, &[Value::Int(-3)]), Bounds::Int { min: -3, max: -3 });
        let numeric = |text| Numeric::parse(text).unwrap();
        let numbers = [Value::Numeric(numeric("1.50")), Value::Numeric(numeric("-20000"))];
        let expected = Bounds::Numeric(Box::new((numeric("-20000"), numeric("1.50"))));
        assert_eq!(bounds(type_oid::NUMERIC, &numbers), expected);
    }
}
