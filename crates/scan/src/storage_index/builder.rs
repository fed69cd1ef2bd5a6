//! Builds a region's summary from the rows that a scan decodes anyway.

use super::{Bounds, ColumnSummary, Prefix, RegionSummary};
use crate::heap::{Chunk, MISSING, NULL, Slot};
use crate::predicate::without_trailing_blanks;
use crate::predicate::{Column, Kind, Numeric, Outcome, Undecided, Value, float_key, numeric_key};
use cellar_format::postgres::{AttributeNumber, Oid, type_oid};

/// A column to be summarised.
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
    /// A value could not be read: no bounds.
    unknown: bool,
    ints: Option<(i64, i64)>,
    /// The keys of numerics that have one.
    keys: Option<(i64, i64)>,
    numerics: Option<(Numeric, Numeric)>,
    prefixes: Option<(Prefix, Prefix)>,
}

/// Accumulates over the chunks of one region.
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
            ints: None,
            keys: None,
            numerics: None,
            prefixes: None,
        };
        Self { accumulators: columns.iter().map(empty).collect() }
    }

    /// Adds all rows of a chunk that was walked over the summary's columns.
    pub fn add(&mut self, pages: &[u8], chunk: &Chunk, columns: &[Option<Column>]) {
        for accumulator in &mut self.accumulators {
            let slot = accumulator.column.slot;
            match columns.get(slot as usize).and_then(Option::as_ref) {
                Some(column) => accumulator.add(pages, &chunk.locations(slot)[..chunk.len()], column),
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
        let mut missing = false;
        let mut nulls = false;
        let mut values = 0;
        let kind = column.kind;
        for &location in locations {
            match location {
                NULL => nulls = true,
                MISSING => missing = true,
                _ => {
                    values += 1;
                    match kind {
                        Some(kind) if kind.is_int() => match column.int(kind, pages, location as usize) {
                            Some(value) => extend(&mut self.ints, value),
                            None => self.unknown = true,
                        },
                        Some(Kind::Numeric) => {
                            match column.plain_bytes(pages, location as usize).and_then(numeric_key) {
                                Some(key) => extend(&mut self.keys, key),
                                None => self.add_value(column.value(pages, location)),
                            }
                        }
                        Some(Kind::Text | Kind::Bytea | Kind::Name | Kind::Uuid) => {
                            match column.plain_bytes(pages, location as usize) {
                                Some(bytes) => self.add_bytes(bytes),
                                None => self.add_value(column.value(pages, location)),
                            }
                        }
                        Some(_) => self.add_value(column.value(pages, location)),
                        None => {}
                    }
                }
            }
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

    fn add_value(&mut self, value: Outcome<'_>) {
        match value {
            Ok(Value::Int(value)) => extend(&mut self.ints, value),
            Ok(Value::Bool(value)) => extend(&mut self.ints, i64::from(value)),
            Ok(Value::Float(value)) => extend(&mut self.ints, float_key(value)),
            Ok(Value::Numeric(value)) => self.add_numeric(value),
            Ok(Value::Bytes(bytes)) => self.add_bytes(&bytes),
            Ok(Value::Null) | Err(Undecided) => self.unknown = true,
        }
    }

    #[inline]
    fn add_bytes(&mut self, bytes: &[u8]) {
        let blank_padded = self.column.type_oid == type_oid::BPCHAR;
        let bytes = if blank_padded { without_trailing_blanks(bytes) } else { bytes };
        match &self.prefixes {
            // Most values are neither.
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
        if let Some((min, max)) = self.keys {
            self.add_numeric(Numeric::from_key(min));
            self.add_numeric(Numeric::from_key(max));
        }
        let bounds = match (self.unknown, self.ints, self.numerics, self.prefixes) {
            (false, Some((min, max)), None, None) => Bounds::Int { min, max },
            (false, None, Some(ends), None) => Bounds::Numeric(Box::new(ends)),
            (false, None, None, Some((min, max))) => Bounds::Bytes { min, max },
            _ => Bounds::Unknown,
        };
        let SummaryColumn { number, type_oid, .. } = self.column;
        ColumnSummary { number, type_oid, has_null: self.has_null, has_nonnull: self.has_nonnull, bounds }
    }
}

fn extend(range: &mut Option<(i64, i64)>, value: i64) {
    *range = Some(match *range {
        Some((min, max)) => (min.min(value), max.max(value)),
        None => (value, value),
    });
}
