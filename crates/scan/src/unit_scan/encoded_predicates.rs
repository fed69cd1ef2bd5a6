//! Predicates on encoded values, which select rows of a block without decoding datums.
//!
//! The encoded predicates of a span are built from the plan's stages; building them evaluates the chunk's bounds and dictionaries
//! once. Encoded predicates cannot raise an error. They run before all other stages, so only stages before the first fallible
//! stage are translated.

use super::marks::any;
use super::{RowSpan, Scan, UnitScanner};
use crate::bounds::{IntRange, IntSet};
use crate::predicate::{Column, ColumnTest, EncodedTest, Kernel};
use crate::unit::{AttributeChunk, BlockRef, UnitError};
use crate::value::{Value, ValueKind};
use std::borrow::Cow;

/// A test of one attribute's encoded values. A separate [`EncodedPredicate::Null`] excludes NULLs.
pub(super) enum EncodedPredicate<'p> {
    Null {
        wanted: bool,
    },
    /// Numbers, or codes of a dictionary, in the range pass.
    Range(IntRange),
    /// For each code, whether its entry passes.
    Table(Vec<bool>),
    Set {
        values: &'p IntSet,
        negated: bool,
    },
    Strings {
        test: &'p ColumnTest,
        pieces: Vec<&'p [u8]>,
    },
}

impl EncodedPredicate<'_> {
    /// Relative cost; cheap predicates run first.
    fn cost(&self) -> u32 {
        match self {
            Self::Null { .. } | Self::Range(_) => 0,
            Self::Table(_) | Self::Set { .. } => 1,
            Self::Strings { .. } => 2,
        }
    }
}

/// The encoded predicates of a span.
pub(super) struct EncodedPredicates<'p> {
    /// With the attribute that each predicate tests; cheap predicates first.
    predicates: Vec<(usize, EncodedPredicate<'p>)>,
    /// For each stage: whether encoded predicates replace the stage.
    pub decided: Vec<bool>,
}

impl EncodedPredicates<'_> {
    pub fn decide_all_stages(&self) -> bool {
        self.decided.iter().all(|decided| *decided)
    }
}

/// A kernel, translated to encoded predicates of a chunk.
enum Translation<'p> {
    /// The encoded values do not decide the kernel.
    None,
    NoRowPasses,
    /// A row passes if it passes all of these.
    Predicates(Vec<(usize, EncodedPredicate<'p>)>),
}

impl<'p> Translation<'p> {
    /// The rows pass whose value passes the predicate, if any, and is not NULL.
    fn of_column(column: &Column, attribute: &AttributeChunk, predicate: Option<EncodedPredicate<'p>>) -> Self {
        let no_nulls = (attribute.nulls > 0).then_some(EncodedPredicate::Null { wanted: false });
        let predicates = no_nulls.into_iter().chain(predicate);
        Self::Predicates(predicates.map(|predicate| (column.attribute, predicate)).collect())
    }
}

impl UnitScanner {
    /// Builds the encoded predicates of a span, and reads the bytes of the tested columns. Returns None if no row passes.
    pub(super) fn encoded_predicates<'p>(
        &mut self,
        scan: Scan<'p>,
        span: &RowSpan,
    ) -> Result<Option<EncodedPredicates<'p>>, UnitError> {
        let stages = &scan.plan.stages;
        let entries_max = if stages.len() == 1 { span.rows.len() } else { INTERPRETED_ENTRIES_MAX };
        let mut found = EncodedPredicates { predicates: Vec::new(), decided: vec![false; stages.len()] };
        for (stage, decided) in stages.iter().zip(&mut found.decided).take_while(|(stage, _)| !stage.fallible) {
            match self.translate(scan, span, &stage.kernel, entries_max)? {
                Translation::None => {}
                Translation::NoRowPasses => return Ok(None),
                Translation::Predicates(predicates) => {
                    *decided = true;
                    found.predicates.extend(predicates);
                }
            }
        }
        found.predicates.sort_by_key(|(_, predicate)| predicate.cost());
        for (attribute, predicate) in &found.predicates {
            if !matches!(predicate, EncodedPredicate::Null { .. }) {
                let reader = &mut self.columns[*attribute];
                reader.load(scan.chunk(span.chunk), *attribute, span.rows.clone())?;
            }
        }
        Ok(Some(found))
    }

    /// Clears the marks of rows that do not pass; returns whether a mark remains.
    pub(super) fn apply_predicates(
        &mut self,
        predicates: &EncodedPredicates<'_>,
        at: BlockRef<'_>,
        marks: &mut [u8],
    ) -> Result<bool, UnitError> {
        for (attribute, predicate) in &predicates.predicates {
            if !any(marks) {
                return Ok(false);
            }
            let reader = &mut self.columns[*attribute];
            match predicate {
                EncodedPredicate::Null { wanted } => reader.retain_nulls(at, *attribute, *wanted, marks)?,
                EncodedPredicate::Range(range) => reader.retain(at, *attribute, range, marks)?,
                EncodedPredicate::Table(table) => {
                    reader.retain_each(at, *attribute, |code| table.get(code as usize) == Some(&true), marks)?
                }
                EncodedPredicate::Set { values, negated } => {
                    reader.retain_each(at, *attribute, |value| values.contains(value) != *negated, marks)?
                }
                EncodedPredicate::Strings { test, pieces } => {
                    reader.retain_strings(at, *attribute, test, pieces, marks)?
                }
            }
        }
        Ok(any(marks))
    }

    /// Translates a kernel to encoded predicates of the span's chunk. Interprets it for at most `entries_max` entries of a dictionary.
    fn translate<'p>(
        &mut self,
        scan: Scan<'p>,
        span: &RowSpan,
        kernel: &'p Kernel,
        entries_max: usize,
    ) -> Result<Translation<'p>, UnitError> {
        match kernel {
            Kernel::Constant(true) => Ok(Translation::Predicates(Vec::new())),
            Kernel::Constant(false) => Ok(Translation::NoRowPasses),
            Kernel::Null { slot, wanted } => {
                let Some((column, attribute)) = scan.column(span.chunk, *slot) else { return Ok(Translation::None) };
                Ok(match (attribute.nulls as usize, wanted) {
                    (0, true) => Translation::NoRowPasses,
                    (0, false) => Translation::Predicates(Vec::new()),
                    _ => Translation::Predicates(vec![(column.attribute, EncodedPredicate::Null { wanted: *wanted })]),
                })
            }
            Kernel::And(arms) => {
                let mut all = Vec::new();
                for arm in arms {
                    match self.translate(scan, span, arm, entries_max)? {
                        Translation::Predicates(predicates) => all.extend(predicates),
                        other => return Ok(other),
                    }
                }
                Ok(Translation::Predicates(all))
            }
            Kernel::Column { slot, test } => {
                let column = scan.column(span.chunk, *slot);
                let Some((column, attribute)) = column.filter(|(_, attribute)| attribute.exceptions() == 0) else {
                    return Ok(Translation::None);
                };
                let predicate = match test.encoded(column, attribute.numeric_scale()) {
                    EncodedTest::Int(range) if has_numbers(attribute, column.kind) => {
                        match attribute.all_pass(&range) {
                            Some(false) => return Ok(Translation::NoRowPasses),
                            Some(true) => None,
                            None => Some(EncodedPredicate::Range(range)),
                        }
                    }
                    EncodedTest::IntSet { values, negated } if has_numbers(attribute, column.kind) => {
                        match attribute.number_bounds() {
                            Some((min, max)) if !negated && !values.overlaps(min, max) => {
                                return Ok(Translation::NoRowPasses);
                            }
                            _ => Some(EncodedPredicate::Set { values, negated }),
                        }
                    }
                    EncodedTest::Bytes if attribute.is_payload() && test.passes_bytes(b"").is_some() => {
                        let reader = &mut self.columns[column.attribute];
                        let passes = |entry: &[u8]| test.passes_bytes(entry) == Some(true);
                        match reader.test_list(scan.chunk(span.chunk), column.attribute, passes)? {
                            Some(table) => match of_table(table) {
                                Ok(predicate) => predicate,
                                Err(NoEntryPasses) => return Ok(Translation::NoRowPasses),
                            },
                            None => Some(EncodedPredicate::Strings { test, pieces: test.pieces() }),
                        }
                    }
                    _ => return Ok(Translation::None),
                };
                Ok(Translation::of_column(column, attribute, predicate))
            }
            Kernel::Condition { .. } | Kernel::Expression { .. } | Kernel::Interpret(_) => {
                self.translate_interpreted(scan, span, kernel, entries_max)
            }
            Kernel::Compare { .. } | Kernel::Or(_) => Ok(Translation::None),
        }
    }

    /// Translates an interpreted kernel of one column of strings: interprets it once for each entry of the chunk's dictionary,
    /// unless the dictionary has more than `entries_max`.
    fn translate_interpreted<'p>(
        &mut self,
        scan: Scan<'p>,
        span: &RowSpan,
        kernel: &'p Kernel,
        entries_max: usize,
    ) -> Result<Translation<'p>, UnitError> {
        let column = kernel.interpreted_column().and_then(|slot| scan.column(span.chunk, slot));
        let is_suitable = |(column, attribute): &(&Column, &AttributeChunk)| {
            let is_string = column.kind.is_some_and(ValueKind::is_payload);
            is_string && attribute.is_payload() && attribute.exceptions() == 0
        };
        let Some((column, attribute)) = column.filter(is_suitable) else { return Ok(Translation::None) };
        // Rows with NULL are dropped below.
        if attribute.nulls > 0 && kernel.passes_value(&Value::Null) != Some(false) {
            return Ok(Translation::None);
        }
        let mut is_decided = true;
        let mut entries = 0;
        let passes = |entry: &[u8]| {
            entries += 1;
            let is_enough = !is_decided || entries > entries_max;
            let passes = if is_enough { None } else { kernel.passes_value(&Value::Bytes(Cow::Borrowed(entry))) };
            is_decided &= passes.is_some();
            passes == Some(true)
        };
        let reader = &mut self.columns[column.attribute];
        let table = reader.test_list(scan.chunk(span.chunk), column.attribute, passes)?;
        let Some(table) = table.filter(|_| is_decided) else { return Ok(Translation::None) };
        let Ok(predicate) = of_table(table) else { return Ok(Translation::NoRowPasses) };
        Ok(Translation::of_column(column, attribute, predicate))
    }
}

/// The most entries of a dictionary for which an interpreted kernel is computed if other conditions may leave only a few rows.
const INTERPRETED_ENTRIES_MAX: usize = 1024;

/// No entry of a dictionary passes a test.
struct NoEntryPasses;

/// The predicate that a test of each entry of a dictionary amounts to. None: all entries pass.
fn of_table<'p>(table: Vec<bool>) -> Result<Option<EncodedPredicate<'p>>, NoEntryPasses> {
    Ok(match consecutive(&table) {
        Some(range) if range.lo > range.hi => return Err(NoEntryPasses),
        Some(range) if range.hi - range.lo + 1 == table.len() as i64 => None,
        Some(range) => Some(EncodedPredicate::Range(range)),
        None => Some(EncodedPredicate::Table(table)),
    })
}

/// Whether the attribute's integers are the values of a column of this kind, possibly scaled.
pub(super) fn has_numbers(attribute: &AttributeChunk, kind: Option<ValueKind>) -> bool {
    // Any byte except 0 is true, so other bytes than 0 and 1 cannot be compared as numbers.
    let is_bool = || attribute.number_bounds().is_some_and(|(min, max)| min >= 0 && max <= 1);
    match kind {
        Some(ValueKind::Bool) => is_bool(),
        Some(ValueKind::Numeric) => attribute.numeric_scale().is_some(),
        Some(kind) => kind.is_int() && attribute.is_number(),
        None => false,
    }
}

/// The positions of passing entries as a range, if they are consecutive; an empty range if none passes.
pub(super) fn consecutive(table: &[bool]) -> Option<IntRange> {
    let lo = table.iter().position(|passes| *passes).unwrap_or(1) as i64;
    let hi = table.iter().rposition(|passes| *passes).map_or(lo - 1, |last| last as i64);
    let count = table.iter().filter(|passes| **passes).count() as i64;
    (hi - lo + 1 == count).then_some(IntRange { lo, hi, inside: true })
}
