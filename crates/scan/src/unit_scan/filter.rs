//! Predicates on encoded values: which rows of a block pass, without a datum of any.
//!
//! What a chunk's directory and dictionaries say is settled once for all of its blocks. Only what cannot raise an error
//! runs here, so it may run before stages that stand in front of it, up to the first that can.

use super::{Segment, Stored, UnitScanner, any};
use crate::bounds::IntRange;
use crate::plan::Plan;
use crate::predicate::{ColumnTest, EncodedTest, Kernel};
use crate::unit::{AttributeChunk, Block, UnitError};
use crate::value::ValueKind;

/// A test of one attribute's encoded values. Rows that are NULL are told apart by [`Filter::Null`].
pub(super) enum Filter<'p> {
    Null {
        wanted: bool,
    },
    /// Numbers, or numbers of dictionary entries.
    Range(IntRange),
    /// Numbers of dictionary entries: of each, whether it passes.
    Table(Vec<bool>),
    Set {
        values: &'p [i64],
        negated: bool,
    },
    Strings {
        test: &'p ColumnTest,
        pieces: Vec<&'p [u8]>,
    },
}

impl Filter<'_> {
    /// The cheapest run first.
    fn cost(&self) -> u32 {
        match self {
            Self::Null { .. } | Self::Range(_) => 0,
            Self::Table(_) | Self::Set { .. } => 1,
            Self::Strings { .. } => 2,
        }
    }
}

/// The filters of a segment, by attribute.
pub(super) struct Filters<'p> {
    filters: Vec<(usize, Filter<'p>)>,
    /// Of each stage, whether the filters are all of it.
    pub decided: Vec<bool>,
}

impl Filters<'_> {
    pub fn all_stages(&self) -> bool {
        self.decided.iter().all(|decided| *decided)
    }
}

/// What a kernel comes to in a chunk.
enum Verdict<'p> {
    /// The encoded values do not tell.
    Unknown,
    Nothing,
    /// The rows that pass all of these.
    Filters(Vec<(usize, Filter<'p>)>),
}

impl UnitScanner {
    /// None: no row of the segment's chunk passes.
    pub(super) fn filters<'p>(
        &mut self,
        plan: &'p Plan,
        stored: Stored<'_>,
        segment: &Segment,
    ) -> Result<Option<Filters<'p>>, UnitError> {
        let mut found = Filters { filters: Vec::new(), decided: vec![false; plan.stages.len()] };
        for (stage, decided) in plan.stages.iter().zip(&mut found.decided).take_while(|(stage, _)| !stage.fallible) {
            match self.verdict(plan, stored, segment, &stage.kernel)? {
                Verdict::Unknown => {}
                Verdict::Nothing => return Ok(None),
                Verdict::Filters(filters) => {
                    *decided = true;
                    found.filters.extend(filters);
                }
            }
        }
        found.filters.sort_by_key(|(_, filter)| filter.cost());
        for (attribute, filter) in &found.filters {
            if !matches!(filter, Filter::Null { .. }) {
                let reader = &mut self.columns[*attribute];
                reader.load(stored.unit, stored.source, segment.chunk, *attribute, segment.rows.clone())?;
            }
        }
        Ok(Some(found))
    }

    /// Clears the marks of rows that do not pass; whether any mark is left.
    pub(super) fn filter(&mut self, filters: &Filters<'_>, at: Block<'_>, marks: &mut [u8]) -> Result<bool, UnitError> {
        for (attribute, filter) in &filters.filters {
            if !any(marks) {
                return Ok(false);
            }
            let reader = &mut self.columns[*attribute];
            match filter {
                Filter::Null { wanted } => reader.retain_nulls(at, *attribute, *wanted, marks)?,
                Filter::Range(range) => reader.retain(at, *attribute, range, marks)?,
                Filter::Table(table) => {
                    reader.retain_each(at, *attribute, |code| table.get(code as usize) == Some(&true), marks)?
                }
                Filter::Set { values, negated } => match values.len() {
                    ..=8 => reader.retain_each(at, *attribute, |value| values.contains(&value) != *negated, marks)?,
                    _ => {
                        let contains = |value| values.binary_search(&value).is_ok();
                        reader.retain_each(at, *attribute, |value| contains(value) != *negated, marks)?
                    }
                },
                Filter::Strings { test, pieces } => reader.retain_strings(at, *attribute, test, pieces, marks)?,
            }
        }
        Ok(any(marks))
    }

    fn verdict<'p>(
        &mut self,
        plan: &'p Plan,
        stored: Stored<'_>,
        segment: &Segment,
        kernel: &'p Kernel,
    ) -> Result<Verdict<'p>, UnitError> {
        let known = |slot: &u16| stored.known(plan, segment.chunk, *slot);
        match kernel {
            Kernel::Constant(true) => Ok(Verdict::Filters(Vec::new())),
            Kernel::Constant(false) => Ok(Verdict::Nothing),
            Kernel::Null { slot, wanted } => {
                let Some((column, attribute)) = known(slot) else { return Ok(Verdict::Unknown) };
                Ok(match (attribute.nulls as usize, wanted) {
                    (0, true) => Verdict::Nothing,
                    (0, false) => Verdict::Filters(Vec::new()),
                    _ => Verdict::Filters(vec![(column.attribute, Filter::Null { wanted: *wanted })]),
                })
            }
            Kernel::And(arms) => {
                let mut all = Vec::new();
                for arm in arms {
                    match self.verdict(plan, stored, segment, arm)? {
                        Verdict::Filters(filters) => all.extend(filters),
                        other => return Ok(other),
                    }
                }
                Ok(Verdict::Filters(all))
            }
            Kernel::Column { slot, test } => {
                let Some((column, attribute)) = known(slot).filter(|(_, attribute)| attribute.exceptions() == 0) else {
                    return Ok(Verdict::Unknown);
                };
                let filter = match test.encoded(column, attribute.numeric_scale()) {
                    EncodedTest::Int(range) if holds_numbers(attribute, column.kind) => {
                        match attribute.all_pass(&range) {
                            Some(false) => return Ok(Verdict::Nothing),
                            Some(true) => None,
                            None => Some(Filter::Range(range)),
                        }
                    }
                    EncodedTest::IntSet { values, negated } if holds_numbers(attribute, column.kind) => {
                        Some(Filter::Set { values, negated })
                    }
                    EncodedTest::Bytes if attribute.is_payload() && test.passes_bytes(b"").is_some() => {
                        let reader = &mut self.columns[column.attribute];
                        let at = Block { unit: stored.unit, source: stored.source, chunk: segment.chunk, block: 0 };
                        let passes = |entry: &[u8]| test.passes_bytes(entry) == Some(true);
                        match reader.dictionary(at, column.attribute, passes)? {
                            Some(table) => match in_a_row(&table) {
                                Some(range) if range.lo > range.hi => return Ok(Verdict::Nothing),
                                Some(range) if range.hi - range.lo + 1 == table.len() as i64 => None,
                                Some(range) => Some(Filter::Range(range)),
                                None => Some(Filter::Table(table)),
                            },
                            None => Some(Filter::Strings { test, pieces: test.pieces() }),
                        }
                    }
                    _ => return Ok(Verdict::Unknown),
                };
                let no_nulls = (attribute.nulls > 0).then_some(Filter::Null { wanted: false });
                let filters = no_nulls.into_iter().chain(filter);
                Ok(Verdict::Filters(filters.map(|filter| (column.attribute, filter)).collect()))
            }
            Kernel::Compare { .. } | Kernel::Or(_) | Kernel::Interpret(_) => Ok(Verdict::Unknown),
        }
    }
}

/// Whether the attribute's numbers are the column's values, or decide of them.
pub(super) fn holds_numbers(attribute: &AttributeChunk, kind: Option<ValueKind>) -> bool {
    let is_bool = || attribute.number_bounds().is_some_and(|(min, max)| min >= 0 && max <= 1);
    match kind {
        // Any byte but 0 is true.
        Some(ValueKind::Bool) => is_bool(),
        Some(ValueKind::Numeric) => attribute.numeric_scale().is_some(),
        Some(kind) => kind.is_int() && attribute.is_number(),
        None => false,
    }
}

/// The entries that pass, when they follow one another.
fn in_a_row(table: &[bool]) -> Option<IntRange> {
    let lo = table.iter().position(|passes| *passes).unwrap_or(1) as i64;
    let hi = table.iter().rposition(|passes| *passes).map_or(lo - 1, |last| last as i64);
    let count = table.iter().filter(|passes| **passes).count() as i64;
    (hi - lo + 1 == count).then_some(IntRange { lo, hi, inside: true })
}
