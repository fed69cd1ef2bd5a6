//! Evaluates expressions over vectors.
//!
//! A row whose numbers do not fit, or for which PostgreSQL might raise an error, is flagged [`UNCERTAIN`] and left to the
//! interpreter. All branches of CASE are computed for all rows; the flags of a branch count only where the branch is taken.

use super::super::column_test::ColumnTest;
use super::super::encoded::{CodeEncoding, EncodedColumn};
use super::super::lanes::{IS_NULL, Lanes, UNCERTAIN};
use super::super::rows::RowSet;
use super::columns::{display_scales, encoded_numbers, read};
use super::expression::{Condition, Number, NumberExpr};
use super::operand::{Operand, joined};
use super::operators::{apply, date_parts, mark_number, mark_numbers};
use super::truth::{self, FALSE, TRUE, UNDECIDED, UNKNOWN};
use super::unary;
use crate::heap::{MISSING, NULL, Slot};
use crate::value::{Comparison, Value};
use std::rc::Rc;

/// Results of subexpressions over the same rows, so that each distinct subexpression is evaluated once.
#[derive(Default)]
pub struct EvalCache<'p> {
    numbers: Vec<(&'p Number, Rc<Lanes>)>,
    truths: Vec<(&'p Condition, Rc<Vec<u8>>)>,
    buffers: LaneBuffers,
}

/// Maximum number of unused buffers: enough for a large expression.
const BUFFERS_MAX: usize = 32;

/// Unused buffers for numbers.
#[derive(Debug, Default)]
pub struct LaneBuffers(Vec<Vec<i64>>);

impl EvalCache<'_> {
    pub fn with_buffers(buffers: LaneBuffers) -> Self {
        Self { buffers, ..Self::default() }
    }

    /// The buffers of all results that are not referenced any more, and the unused buffers.
    pub fn into_buffers(self) -> LaneBuffers {
        let Self { numbers, mut buffers, .. } = self;
        let lanes = numbers.into_iter().filter_map(|(_, lanes)| Rc::into_inner(lanes));
        buffers.0.extend(lanes.map(|lanes| lanes.values));
        buffers.0.truncate(BUFFERS_MAX);
        buffers
    }

    /// A zero in each row.
    pub fn zeroes(&mut self, rows: usize) -> Rc<Lanes> {
        static ZERO: Number = Number::Constant(0);
        if let Some((_, lanes)) = self.numbers.iter().find(|(number, _)| **number == ZERO) {
            return Rc::clone(lanes);
        }
        let lanes = Rc::new(self.constant(0, rows));
        self.numbers.push((&ZERO, Rc::clone(&lanes)));
        lanes
    }

    /// The same number in each row.
    fn constant(&mut self, value: i64, rows: usize) -> Lanes {
        let mut values = self.buffer();
        values.clear();
        values.resize(rows, value);
        Lanes::without_flags(values, (value, value))
    }

    fn buffer(&mut self) -> Vec<i64> {
        self.buffers.0.pop().unwrap_or_default()
    }
}

impl NumberExpr {
    pub fn eval<'p>(&'p self, rows: RowSet<'_>, selected: &[u16], cache: &mut EvalCache<'p>) -> Rc<Lanes> {
        self.root.eval(rows, selected, cache)
    }
}

impl Number {
    fn eval<'p>(&'p self, rows: RowSet<'_>, selected: &[u16], cache: &mut EvalCache<'p>) -> Rc<Lanes> {
        if let Some((_, lanes)) = cache.numbers.iter().find(|(number, _)| *number == self) {
            return Rc::clone(lanes);
        }
        let lanes = match self {
            Self::Constant(value) => cache.constant(*value, selected.len()),
            Self::Null => Lanes::of(0, IS_NULL, selected.len()),
            Self::Column { slot, scale } => match rows.column(*slot) {
                Some(column) => match rows.encoded(*slot) {
                    Some(encoded) => encoded_numbers(encoded, *scale, cache.buffer()),
                    None => read(rows, *slot, column, *scale, selected, cache.buffer()),
                },
                None => Lanes::of(0, UNCERTAIN, selected.len()),
            },
            Self::Binary { operator, kind, left, right } => {
                let left = left.eval(rows, selected, cache);
                match **right {
                    Self::Constant(value) => apply(*operator, *kind, &left, &Operand::Constant(value), cache.buffer()),
                    ref right => {
                        let right = right.eval(rows, selected, cache);
                        apply(*operator, *kind, &left, &Operand::Lanes(&right), cache.buffer())
                    }
                }
            }
            Self::Unary { function, kind, scale, arg } => {
                let arg = arg.eval(rows, selected, cache);
                unary::apply(*function, *kind, *scale, &arg, cache.buffer())
            }
            Self::Quotient { dividend, scale } => {
                let dividend = dividend.eval(rows, selected, cache);
                unary::exact_quotient(&dividend, *scale, cache.buffer())
            }
            Self::DatePart { part, arg } => {
                let arg = arg.eval(rows, selected, cache);
                date_parts(*part, &arg, cache.buffer())
            }
            Self::Case { whens, otherwise } => {
                let mut chosen = copied(&otherwise.eval(rows, selected, cache), cache);
                for (condition, result) in whens.iter().rev() {
                    let truths = condition.eval(rows, selected, cache);
                    truth::choose(&truths, &result.eval(rows, selected, cache), &mut chosen);
                }
                chosen
            }
            Self::Coalesce(args) => {
                let mut chosen = Lanes::of(0, IS_NULL, selected.len());
                for arg in args.iter().rev() {
                    let lanes = arg.eval(rows, selected, cache);
                    if lanes.has_flags() {
                        truth::choose(&truth::nulls(&lanes, true), &lanes, &mut chosen);
                    } else {
                        chosen = copied(&lanes, cache);
                    }
                }
                chosen
            }
            Self::Truth(condition) => truth::to_numbers(&condition.eval(rows, selected, cache)),
            Self::DisplayScale(slot) => display_scales(rows, *slot, selected),
            Self::Interpreted(interpreted) => interpreted.eval(rows, selected),
        };
        let lanes = Rc::new(lanes);
        cache.numbers.push((self, Rc::clone(&lanes)));
        lanes
    }
}

/// A copy of the lanes in an unused buffer.
fn copied(lanes: &Lanes, cache: &mut EvalCache<'_>) -> Lanes {
    let mut values = cache.buffer();
    values.clear();
    values.extend_from_slice(&lanes.values);
    Lanes { values, flags: lanes.flags.clone(), bounds: lanes.bounds }
}

impl Condition {
    /// Returns [`TRUE`], another truth value, or [`UNDECIDED`] for each selected row.
    pub fn eval<'p>(&'p self, rows: RowSet<'_>, selected: &[u16], cache: &mut EvalCache<'p>) -> Rc<Vec<u8>> {
        if let Some((_, truths)) = cache.truths.iter().find(|(condition, _)| *condition == self) {
            return Rc::clone(truths);
        }
        let truths = match self {
            Self::Constant(value) => vec![*value; selected.len()],
            Self::Number(number) => truth::of_numbers(&number.eval(rows, selected, cache)),
            Self::Test { slot, test } => match rows.encoded(*slot) {
                Some(encoded) => tested_codes(encoded, test),
                None => selected.iter().map(|row| tested_datum(rows, *slot, test, *row)).collect(),
            },
            Self::In { number, values, negated } => {
                let lanes = number.eval(rows, selected, cache);
                let mark = |value: &i64| u8::from(values.contains(*value) != *negated);
                let mut marks: Vec<u8> = lanes.values.iter().map(mark).collect();
                truth::flag(&mut marks, lanes.all_flags());
                marks
            }
            Self::ColumnIsNull { slot, negated } => match rows.encoded(*slot) {
                Some(EncodedColumn { validity: Some(validity), .. }) => {
                    validity.iter().map(|valid| u8::from((*valid == 0) != *negated)).collect()
                }
                Some(_) => vec![u8::from(*negated); selected.len()],
                None => {
                    let is_null = |row: &u16| rows.row(*row).is_null(*slot);
                    let truth = |row| is_null(row).map_or(UNDECIDED, |is_null| u8::from(is_null != *negated));
                    selected.iter().map(truth).collect()
                }
            },
            Self::IsNull { number, negated } => truth::nulls(&number.eval(rows, selected, cache), *negated),
            Self::Compare { comparison, left, right } => {
                let (mut marks, flags) = compared_numbers(*comparison, left, right, rows, selected, cache);
                truth::flag(&mut marks, &flags);
                marks
            }
            Self::Distinct { left, right } => {
                let (left, right) = (left.eval(rows, selected, cache), right.eval(rows, selected, cache));
                let truth = |row: usize| match (left.flags(row), right.flags(row)) {
                    (0, 0) => u8::from(left.values[row] != right.values[row]),
                    (left, right) if (left | right) & UNCERTAIN != 0 => UNDECIDED,
                    (left, right) => u8::from(left != right),
                };
                (0..selected.len()).map(truth).collect()
            }
            Self::And(args) | Self::Or(args) => {
                let is_and = matches!(self, Self::And(_));
                let mut result = vec![if is_and { TRUE } else { FALSE }; selected.len()];
                for arg in args {
                    let operand = arg.eval(rows, selected, cache);
                    if is_and { truth::and(&mut result, &operand) } else { truth::or(&mut result, &operand) }
                }
                result
            }
            Self::Not(arg) => {
                let mut result = arg.eval(rows, selected, cache).to_vec();
                truth::not(&mut result);
                result
            }
            Self::Is { test, arg } => {
                let mut result = arg.eval(rows, selected, cache).to_vec();
                truth::test(*test, &mut result);
                result
            }
        };
        let truths = Rc::new(truths);
        cache.truths.push((self, Rc::clone(&truths)));
        truths
    }
}

/// Tests the codes of a column.
fn tested_codes(encoded: &EncodedColumn<'_>, test: &ColumnTest) -> Vec<u8> {
    let codes = encoded.codes.iter();
    let mut truths: Vec<u8> = match (encoded.encoding, test) {
        (CodeEncoding::Numbers { scale: None, .. }, ColumnTest::Int(range)) => {
            codes.map(|code| u8::from(range.passes(*code))).collect()
        }
        (CodeEncoding::Numbers { scale: None, .. }, ColumnTest::IntSet { values, negated }) => {
            codes.map(|code| u8::from(values.contains(*code) != *negated)).collect()
        }
        (CodeEncoding::Strings(strings) | CodeEncoding::RowStrings(strings), test) => {
            let passes = |code: usize| strings.get(code).and_then(|entry| test.passes_bytes(entry));
            let truth = |code: usize| passes(code).map_or(UNDECIDED, u8::from);
            if strings.count() <= encoded.codes.len() {
                let entries: Vec<u8> = (0..strings.count()).map(truth).collect();
                codes.map(|code| entries.get(*code as usize).copied().unwrap_or(UNDECIDED)).collect()
            } else {
                codes.map(|code| truth(*code as usize)).collect()
            }
        }
        _ => vec![UNDECIDED; encoded.codes.len()],
    };
    if let Some(validity) = encoded.validity {
        truths.iter_mut().zip(validity).filter(|(_, valid)| **valid == 0).for_each(|(truth, _)| *truth = UNKNOWN);
    }
    truths
}

/// Tests the datum of a column in a row.
#[inline(always)]
fn tested_datum(rows: RowSet<'_>, slot: Slot, test: &ColumnTest, row: u16) -> u8 {
    let Some(column) = rows.column(slot) else { return UNDECIDED };
    let location = rows.locations(slot)[row as usize];
    let passes = match (location, test, column.kind) {
        (NULL, ..) => return UNKNOWN,
        (MISSING, ..) => None,
        (at, ColumnTest::Int(range), Some(kind)) => {
            column.int(kind, rows.bytes, at as usize).map(|value| range.passes(value))
        }
        (at, ColumnTest::IntSet { values, negated }, Some(kind)) => {
            let value = column.int(kind, rows.bytes, at as usize);
            value.map(|value| values.contains(value) != *negated)
        }
        (at, ..) => column.plain_bytes(rows.bytes, at as usize).and_then(|bytes| test.passes_bytes(bytes)),
    };
    match passes {
        Some(passes) => u8::from(passes),
        None => match column.value(rows.bytes, location) {
            Ok(Value::Null) => UNKNOWN,
            Ok(value) => test.passes(&value).map_or(UNDECIDED, u8::from),
            Err(_) => UNDECIDED,
        },
    }
}

/// Compares two numbers of each row. Returns a mark per selected row, 1 if the comparison is true and otherwise 0, and the flags,
/// which are empty if no row has a flag. The mark of a flagged row is arbitrary.
fn compared_numbers<'p>(
    comparison: Comparison,
    left: &'p Number,
    right: &'p Number,
    rows: RowSet<'_>,
    selected: &[u16],
    cache: &mut EvalCache<'p>,
) -> (Vec<u8>, Vec<u8>) {
    let left = left.eval(rows, selected, cache);
    let mut marks = Vec::new();
    if let Number::Constant(right) = right {
        mark_number(comparison, &left.values, *right, &mut marks);
        return (marks, left.flags.clone());
    }
    let right = right.eval(rows, selected, cache);
    mark_numbers(comparison, &left.values, &right.values, &mut marks);
    (marks, joined(&left.flags, &right.flags))
}

/// Compares two expressions, as [`compared_numbers`].
pub fn compared(
    comparison: Comparison,
    left: &NumberExpr,
    right: &NumberExpr,
    rows: RowSet<'_>,
    selected: &[u16],
) -> (Vec<u8>, Vec<u8>) {
    compared_numbers(comparison, &left.root, &right.root, rows, selected, &mut EvalCache::default())
}
