//! Arithmetic over columns, one operation at a time over all selected rows.
//!
//! All numbers are i64: integers themselves, floats by their keys, and numerics times a power of ten that is fixed per
//! operand. A row whose numbers do not fit, or for which PostgreSQL might raise an error, is left to the interpreter.
//! Each vector of numbers has bounds. If the bounds of the operands show that no result overflows its type, results are
//! not checked row by row.

use super::column::Column;
use super::encoded::EncodedColumn;
use super::functions::{FINITE_DATES, FunctionBody, Operator};
use super::lanes::{IS_NULL, Lanes, UNCERTAIN};
use super::node::Node;
use super::rows::RowSet;
use crate::heap::{MISSING, NULL, Slot};
use crate::value::{Comparison, Domain, Value, ValueKind, float_key, numeric};
use crate::vectors::vectorized;
use cellar_format::postgres::Width;
use std::rc::Rc;

/// Results of subexpressions over the same rows, so that each distinct subexpression is evaluated once.
#[derive(Default)]
pub struct EvalCache<'p> {
    results: Vec<(&'p Tree, Rc<Lanes>)>,
    buffers: LaneBuffers,
}

/// Maximum number of unused buffers: enough for a large expression.
const BUFFERS_MAX: usize = 32;

/// Unused buffers for numbers.
#[derive(Debug, Default)]
pub struct LaneBuffers(Vec<Vec<i64>>);

impl EvalCache<'_> {
    pub fn with_buffers(buffers: LaneBuffers) -> Self {
        Self { results: Vec::new(), buffers }
    }

    /// The buffers of all results that are not referenced any more, and the unused buffers.
    pub fn into_buffers(self) -> LaneBuffers {
        let Self { results, mut buffers } = self;
        let lanes = results.into_iter().filter_map(|(_, lanes)| Rc::into_inner(lanes));
        buffers.0.extend(lanes.map(|lanes| lanes.values));
        buffers.0.truncate(BUFFERS_MAX);
        buffers
    }

    /// A zero in each row.
    pub fn zeroes(&mut self, rows: usize) -> Rc<Lanes> {
        static ZERO: Tree = Tree::Constant(0);
        if let Some((_, lanes)) = self.results.iter().find(|(tree, _)| **tree == ZERO) {
            return Rc::clone(lanes);
        }
        let mut values = self.buffer();
        values.clear();
        values.resize(rows, 0);
        let lanes = Rc::new(Lanes::without_flags(values, (0, 0)));
        self.results.push((&ZERO, Rc::clone(&lanes)));
        lanes
    }

    fn buffer(&mut self) -> Vec<i64> {
        self.buffers.0.pop().unwrap_or_default()
    }
}

/// An expression whose value is a number.
pub struct Arithmetic {
    root: Tree,
    /// Decimals of a numeric; otherwise 0.
    scale: u32,
}

#[derive(PartialEq)]
pub enum Tree {
    Column { slot: Slot, scale: u32 },
    Constant(i64),
    Binary { operator: Operator, kind: ValueKind, left: Box<Tree>, right: Box<Tree> },
}

impl Arithmetic {
    /// Compiles an expression of this kind. None: not an integer or numeric expression of columns and constants. Floats
    /// are excluded because their keys only support comparisons.
    pub fn number(node: &Node, kind: ValueKind, columns: &[Option<Column>]) -> Option<Self> {
        match kind {
            ValueKind::Numeric => Self::new(node, |kind| kind == ValueKind::Numeric, columns),
            kind if kind.is_int() => Self::new(node, ValueKind::is_int, columns),
            _ => None,
        }
    }

    pub fn scale(&self) -> u32 {
        self.scale
    }

    /// Compiles both sides of a comparison, with the same scale.
    pub fn pair(domain: Domain, left: &Node, right: &Node, columns: &[Option<Column>]) -> Option<(Self, Self)> {
        let accepts = match domain {
            Domain::Int => ValueKind::is_int,
            Domain::Float => |kind: ValueKind| matches!(kind, ValueKind::Float4 | ValueKind::Float8),
            Domain::Numeric => |kind: ValueKind| kind == ValueKind::Numeric,
            _ => return None,
        };
        let (left, right) = (Self::new(left, accepts, columns)?, Self::new(right, accepts, columns)?);
        let scale = left.scale.max(right.scale);
        Some((left.rescaled(scale)?, right.rescaled(scale)?))
    }

    fn new(node: &Node, accepts: fn(ValueKind) -> bool, columns: &[Option<Column>]) -> Option<Self> {
        match node {
            Node::Const(Value::Int(value)) => Some(Self { root: Tree::Constant(*value), scale: 0 }),
            Node::Const(Value::Bool(value)) => Some(Self { root: Tree::Constant(i64::from(*value)), scale: 0 }),
            Node::Const(Value::Float(value)) => Some(Self { root: Tree::Constant(float_key(*value)), scale: 0 }),
            Node::Const(Value::Numeric(value)) => {
                let (value, scale) = (0..=8).find_map(|scale| Some((value.scaled_by_ten(scale)?, scale)))?;
                Some(Self { root: Tree::Constant(value), scale })
            }
            Node::Column(slot) => {
                let column = columns.get(*slot as usize)?.as_ref()?;
                column.kind.filter(|kind| accepts(*kind))?;
                let scale = column.decimals_expected;
                Some(Self { root: Tree::Column { slot: *slot, scale }, scale })
            }
            Node::Call { function, context, args } => match (function.body, args.as_slice()) {
                (FunctionBody::Widen, [arg]) if accepts(context.result) => Self::new(arg, ValueKind::is_int, columns),
                // The scale of a quotient differs between rows.
                (FunctionBody::Arithmetic(Operator::Divide), _) if context.result == ValueKind::Numeric => None,
                (FunctionBody::Arithmetic(operator), [left, right]) if accepts(context.result) => {
                    let (left, right) = (Self::new(left, accepts, columns)?, Self::new(right, accepts, columns)?);
                    let (left, right, scale) = match operator {
                        Operator::Multiply => {
                            let scale = left.scale + right.scale;
                            (left, right, scale)
                        }
                        _ => {
                            let scale = left.scale.max(right.scale);
                            (left.rescaled(scale)?, right.rescaled(scale)?, scale)
                        }
                    };
                    let (left, right) = (Box::new(left.root), Box::new(right.root));
                    let root = Tree::Binary { operator, kind: context.result, left, right };
                    Some(Self { root, scale })
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The same value with more decimals.
    fn rescaled(self, scale: u32) -> Option<Self> {
        let factor = 10i64.checked_pow(scale - self.scale)?;
        let root = match self.root {
            root if factor == 1 => root,
            Tree::Constant(value) => Tree::Constant(value.checked_mul(factor)?),
            root => {
                let (left, right) = (Box::new(root), Box::new(Tree::Constant(factor)));
                Tree::Binary { operator: Operator::Multiply, kind: ValueKind::Numeric, left, right }
            }
        };
        Some(Self { root, scale })
    }

    /// The value of a constant.
    pub fn constant(&self) -> Option<i64> {
        match self.root {
            Tree::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// The slot and the decimals of a plain column.
    pub fn column(&self) -> Option<(Slot, u32)> {
        match self.root {
            Tree::Column { slot, scale } => Some((slot, scale)),
            _ => None,
        }
    }

    /// Calls `visit` with the slot and the decimals of every column. The expression is NULL if any of them is NULL.
    pub fn for_each_column(&self, visit: &mut impl FnMut(Slot, u32)) {
        self.root.for_each_column(visit);
    }

    pub fn eval<'p>(&'p self, rows: RowSet<'_>, selected: &[u16], cache: &mut EvalCache<'p>) -> Rc<Lanes> {
        self.root.eval(rows, selected, cache)
    }
}

impl Tree {
    fn for_each_column(&self, visit: &mut impl FnMut(Slot, u32)) {
        match self {
            Self::Column { slot, scale } => visit(*slot, *scale),
            Self::Constant(_) => {}
            Self::Binary { left, right, .. } => {
                left.for_each_column(visit);
                right.for_each_column(visit);
            }
        }
    }

    fn eval<'p>(&'p self, rows: RowSet<'_>, selected: &[u16], cache: &mut EvalCache<'p>) -> Rc<Lanes> {
        if let Some((_, lanes)) = cache.results.iter().find(|(tree, _)| *tree == self) {
            return Rc::clone(lanes);
        }
        let lanes = match self {
            Self::Constant(value) => Lanes::of(*value, 0, selected.len()),
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
        };
        let lanes = Rc::new(lanes);
        cache.results.push((self, Rc::clone(&lanes)));
        lanes
    }
}

/// Reads the numbers of a column from its datums. Fills and returns `buffer`.
fn read(rows: RowSet<'_>, slot: Slot, column: &Column, scale: u32, selected: &[u16], buffer: Vec<i64>) -> Lanes {
    let pages = rows.bytes;
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
        (Some(ValueKind::Float4), _) => fixed!(f32, |value| float_key(f64::from(value))),
        (Some(ValueKind::Float8), _) => fixed!(f64, float_key),
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
fn encoded_numbers(encoded: &EncodedColumn<'_>, scale: u32, mut values: Vec<i64>) -> Lanes {
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

enum Operand<'a> {
    Constant(i64),
    Lanes(&'a Lanes),
}

impl Operand<'_> {
    fn bounds(&self) -> (i64, i64) {
        match self {
            Self::Constant(value) => (*value, *value),
            Self::Lanes(lanes) => lanes.bounds,
        }
    }

    fn flags(&self) -> &[u8] {
        match self {
            Self::Constant(_) => &[],
            Self::Lanes(lanes) => &lanes.flags,
        }
    }
}

/// Applies an operator to all rows. The results are stored in `buffer` unless they must be checked.
fn apply(operator: Operator, kind: ValueKind, left: &Lanes, right: &Operand<'_>, buffer: Vec<i64>) -> Lanes {
    if let Some(bounds) = result_bounds(operator, kind, left.bounds, right.bounds()) {
        let values = combine(operator, left, right, buffer);
        return Lanes { values, flags: joined(&left.flags, right.flags()), bounds };
    }
    let mut lanes = match operator {
        Operator::Add => checked(left, right, i64::overflowing_add),
        Operator::Subtract => checked(left, right, i64::overflowing_sub),
        Operator::Multiply => checked(left, right, i64::overflowing_mul),
        Operator::Divide => checked(left, right, |left, right| match left.checked_div(right) {
            Some(quotient) => (quotient, false),
            None => (0, true),
        }),
        Operator::Modulo => checked(left, right, |left, right| match right {
            0 => (0, true),
            right => (left.wrapping_rem(right), false),
        }),
    };
    match kind {
        ValueKind::Int2 => limit(&mut lanes, |_, value| i64::from(value as i16) == value),
        ValueKind::Int4 => limit(&mut lanes, |_, value| i64::from(value as i32) == value),
        // The interpreter handles infinite dates.
        ValueKind::Date => {
            limit(&mut lanes, |row, value| FINITE_DATES.contains(&left.values[row]) && FINITE_DATES.contains(&value))
        }
        _ => {}
    }
    lanes
}

/// The bounds of the results. None: some result may overflow its type.
fn result_bounds(operator: Operator, kind: ValueKind, left: (i64, i64), right: (i64, i64)) -> Option<(i64, i64)> {
    let ((a, b), (c, d)) = ((left.0 as i128, left.1 as i128), (right.0 as i128, right.1 as i128));
    let (min, max) = match operator {
        Operator::Add => (a + c, b + d),
        Operator::Subtract => (a - d, b - c),
        Operator::Multiply => {
            let corners = [a * c, a * d, b * c, b * d];
            (*corners.iter().min()?, *corners.iter().max()?)
        }
        Operator::Divide | Operator::Modulo => return None,
    };
    let (least, most) = match kind {
        ValueKind::Int2 => (i16::MIN as i128, i16::MAX as i128),
        ValueKind::Int4 => (i32::MIN as i128, i32::MAX as i128),
        ValueKind::Date if !FINITE_DATES.contains(&left.0) || !FINITE_DATES.contains(&left.1) => return None,
        ValueKind::Date => (FINITE_DATES.start as i128, FINITE_DATES.end as i128 - 1),
        _ => (i64::MIN as i128, i64::MAX as i128),
    };
    (min >= least && max <= most).then_some((min as i64, max as i64))
}

vectorized! {
    fn with_number(operator: Operator, left: &[i64], right: i64, out: &mut Vec<i64>) {
        match operator {
            Operator::Add => out.extend(left.iter().map(|left| left.wrapping_add(right))),
            Operator::Subtract => out.extend(left.iter().map(|left| left.wrapping_sub(right))),
            _ => out.extend(left.iter().map(|left| left.wrapping_mul(right))),
        }
    }

    fn with_numbers(operator: Operator, left: &[i64], right: &[i64], out: &mut Vec<i64>) {
        let pairs = left.iter().zip(right);
        match operator {
            Operator::Add => out.extend(pairs.map(|(left, right)| left.wrapping_add(*right))),
            Operator::Subtract => out.extend(pairs.map(|(left, right)| left.wrapping_sub(*right))),
            _ => out.extend(pairs.map(|(left, right)| left.wrapping_mul(*right))),
        }
    }
}

/// Computes sums, differences or products that cannot overflow.
fn combine(operator: Operator, left: &Lanes, right: &Operand<'_>, mut out: Vec<i64>) -> Vec<i64> {
    out.clear();
    match right {
        Operand::Constant(right) => with_number(operator, &left.values, *right, &mut out),
        Operand::Lanes(right) => with_numbers(operator, &left.values, &right.values, &mut out),
    }
    out
}

fn joined(left: &[u8], right: &[u8]) -> Vec<u8> {
    match (left, right) {
        (flags, []) | ([], flags) => flags.to_vec(),
        _ => left.iter().zip(right).map(|(left, right)| left | right).collect(),
    }
}

/// Applies `operation`, which returns a result and whether PostgreSQL might raise an error instead.
#[inline(always)]
fn checked(left: &Lanes, right: &Operand<'_>, operation: impl Fn(i64, i64) -> (i64, bool)) -> Lanes {
    let mut flags = joined(&left.flags, right.flags());
    flags.resize(left.values.len(), 0);
    let mut all = 0;
    let mut one = |left: i64, right: i64, flags: &mut u8| {
        let (result, uncertain) = operation(left, right);
        // The number of a NULL is arbitrary, so an overflow means nothing.
        *flags |= if uncertain && *flags & IS_NULL == 0 { UNCERTAIN } else { 0 };
        all |= *flags;
        result
    };
    let lefts = left.values.iter().zip(&mut flags);
    let values = match right {
        Operand::Constant(right) => lefts.map(|(left, flags)| one(*left, *right, flags)).collect(),
        Operand::Lanes(rights) => {
            lefts.zip(&rights.values).map(|((left, flags), right)| one(*left, *right, flags)).collect()
        }
    };
    if all == 0 {
        flags.clear();
    }
    Lanes { values, flags, bounds: Lanes::ANY }
}

/// Flags results that are out of range of their type as uncertain. `fits` is called with a row and the row's result.
#[inline(always)]
fn limit(lanes: &mut Lanes, fits: impl Fn(usize, i64) -> bool) {
    if lanes.values.iter().enumerate().all(|(row, value)| fits(row, *value)) {
        return;
    }
    let (values, flags) = lanes.parts_mut();
    for (row, (value, flag)) in values.iter().zip(flags).enumerate() {
        if !fits(row, *value) && *flag & IS_NULL == 0 {
            *flag |= UNCERTAIN;
        }
    }
}

vectorized! {
    fn mark_number(comparison: Comparison, left: &[i64], right: i64, marks: &mut Vec<u8>) {
        mark(comparison, left.iter().map(|left| (*left, right)), marks);
    }

    fn mark_numbers(comparison: Comparison, left: &[i64], right: &[i64], marks: &mut Vec<u8>) {
        mark(comparison, left.iter().zip(right).map(|(left, right)| (*left, *right)), marks);
    }
}

#[inline(always)]
fn mark(comparison: Comparison, pairs: impl Iterator<Item = (i64, i64)>, marks: &mut Vec<u8>) {
    match comparison {
        Comparison::Equal => marks.extend(pairs.map(|(left, right)| u8::from(left == right))),
        Comparison::NotEqual => marks.extend(pairs.map(|(left, right)| u8::from(left != right))),
        Comparison::Less => marks.extend(pairs.map(|(left, right)| u8::from(left < right))),
        Comparison::LessOrEqual => marks.extend(pairs.map(|(left, right)| u8::from(left <= right))),
        Comparison::Greater => marks.extend(pairs.map(|(left, right)| u8::from(left > right))),
        Comparison::GreaterOrEqual => marks.extend(pairs.map(|(left, right)| u8::from(left >= right))),
    }
}

/// Compares two expressions. Returns a mark per selected row, 1 if the comparison is true and otherwise 0, and the flags, which are
/// empty if no row has a flag. The mark of a flagged row is arbitrary.
pub fn compared(
    comparison: Comparison,
    left: &Arithmetic,
    right: &Arithmetic,
    rows: RowSet<'_>,
    selected: &[u16],
) -> (Vec<u8>, Vec<u8>) {
    let mut cache = EvalCache::default();
    let left = left.eval(rows, selected, &mut cache);
    let mut marks = Vec::new();
    match right.constant() {
        Some(right) => {
            mark_number(comparison, &left.values, right, &mut marks);
            (marks, left.flags.clone())
        }
        None => {
            let right = right.eval(rows, selected, &mut cache);
            mark_numbers(comparison, &left.values, &right.values, &mut marks);
            (marks, joined(&left.flags, &right.flags))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::tests::with_each;

    #[test]
    fn numbers_compare_the_same_with_all_instruction_sets() {
        let left: Vec<i64> = (0..67).map(|at| (at * 37) % 11 - 5).chain([i64::MIN, i64::MAX, 0]).collect();
        let right: Vec<i64> = (0..67).map(|at| (at * 23) % 7 - 3).chain([i64::MAX, i64::MAX, i64::MIN]).collect();
        with_each(|_| {
            for comparison in Comparison::ALL {
                let holds = |(left, right): (&i64, &i64)| u8::from(comparison.holds(left.cmp(right)));
                let mut marks = Vec::new();
                mark_numbers(comparison, &left, &right, &mut marks);
                assert_eq!(marks, left.iter().zip(&right).map(holds).collect::<Vec<_>>());
                marks.clear();
                mark_number(comparison, &left, -1, &mut marks);
                assert_eq!(marks, left.iter().map(|left| holds((left, &-1))).collect::<Vec<_>>());
            }
        });
    }
}
