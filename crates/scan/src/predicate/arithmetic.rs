//! Comparisons of arithmetic over columns, an operation at a time over all selected rows.
//!
//! All numbers are i64: integers themselves, floats by their keys, numerics times a power of 10000 that is fixed for
//! each operand. A row whose numbers do not fit, or in which Postgres might raise an error, is left to the interpreter.

use super::column::Column;
use super::functions::{Body, Comparison, Domain, Operator};
use super::kernel::Input;
use super::node::Node;
use super::numeric;
use super::value::{Kind, Value, float_key};
use crate::heap::{MISSING, NULL, Slot};
use cellar_format::postgres::Width;

/// A row's number is NULL.
pub const IS_NULL: u8 = 1;
/// The interpreter must say what the row's number is, or that there is none.
pub const UNCERTAIN: u8 = 2;

/// Numbers and flags of the selected rows.
#[derive(Debug, Default)]
pub struct Lanes {
    pub values: Vec<i64>,
    /// 0, or [`IS_NULL`] and [`UNCERTAIN`].
    pub flags: Vec<u8>,
}

/// An expression whose value is a number.
pub struct Arithmetic {
    root: Tree,
    /// Base-10000 digits after the point; 0 for what is no numeric.
    scale: u32,
}

enum Tree {
    Column { slot: Slot, scale: u32 },
    Constant(i64),
    Binary { operator: Operator, kind: Kind, left: Box<Tree>, right: Box<Tree> },
}

impl Arithmetic {
    /// A number of this kind; none of the float kinds, whose lanes are only good for comparing.
    pub fn number(node: &Node, kind: Kind, columns: &[Option<Column>]) -> Option<Self> {
        match kind {
            Kind::Numeric => Self::new(node, |kind| kind == Kind::Numeric, columns),
            kind if kind.is_int() => Self::new(node, Kind::is_int, columns),
            _ => None,
        }
    }

    pub fn scale(&self) -> u32 {
        self.scale
    }

    /// Both sides of a comparison, with one scale.
    pub fn pair(domain: Domain, left: &Node, right: &Node, columns: &[Option<Column>]) -> Option<(Self, Self)> {
        let wanted = match domain {
            Domain::Int => Kind::is_int,
            Domain::Float => |kind: Kind| matches!(kind, Kind::Float4 | Kind::Float8),
            Domain::Numeric => |kind: Kind| kind == Kind::Numeric,
            _ => return None,
        };
        let (left, right) = (Self::new(left, wanted, columns)?, Self::new(right, wanted, columns)?);
        let scale = left.scale.max(right.scale);
        Some((left.rescaled(scale)?, right.rescaled(scale)?))
    }

    fn new(node: &Node, wanted: fn(Kind) -> bool, columns: &[Option<Column>]) -> Option<Self> {
        match node {
            Node::Const(Value::Int(value)) => Some(Self { root: Tree::Constant(*value), scale: 0 }),
            Node::Const(Value::Bool(value)) => Some(Self { root: Tree::Constant(i64::from(*value)), scale: 0 }),
            Node::Const(Value::Float(value)) => Some(Self { root: Tree::Constant(float_key(*value)), scale: 0 }),
            Node::Const(Value::Numeric(value)) => {
                let (value, scale) = (0..=2).find_map(|scale| Some((value.scaled(scale)?, scale)))?;
                Some(Self { root: Tree::Constant(value), scale })
            }
            Node::Column(slot) => {
                let column = columns.get(*slot as usize)?.as_ref()?;
                column.kind.filter(|kind| wanted(*kind))?;
                let scale = column.fraction_digits;
                Some(Self { root: Tree::Column { slot: *slot, scale }, scale })
            }
            Node::Call { function, context, args } => match (function.body, args.as_slice()) {
                (Body::Widen, [arg]) if wanted(context.result) => Self::new(arg, Kind::is_int, columns),
                (Body::Arithmetic(operator), [left, right]) if wanted(context.result) => {
                    let (left, right) = (Self::new(left, wanted, columns)?, Self::new(right, wanted, columns)?);
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

    /// The same value with more digits after the point.
    fn rescaled(self, scale: u32) -> Option<Self> {
        let factor = numeric::BASE.checked_pow(scale - self.scale)?;
        let root = match self.root {
            root if factor == 1 => root,
            Tree::Constant(value) => Tree::Constant(value.checked_mul(factor)?),
            root => {
                let (left, right) = (Box::new(root), Box::new(Tree::Constant(factor)));
                Tree::Binary { operator: Operator::Multiply, kind: Kind::Numeric, left, right }
            }
        };
        Some(Self { root, scale })
    }

    /// Its value, when that is the same for all rows.
    pub fn constant(&self) -> Option<i64> {
        match self.root {
            Tree::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// Columns without whose value the expression is NULL.
    pub fn for_each_column(&self, visit: &mut impl FnMut(Slot)) {
        self.root.for_each_column(visit);
    }

    pub fn eval(&self, input: Input<'_>, selected: &[u16]) -> Lanes {
        self.root.eval(input, selected)
    }
}

impl Tree {
    fn for_each_column(&self, visit: &mut impl FnMut(Slot)) {
        match self {
            Self::Column { slot, .. } => visit(*slot),
            Self::Constant(_) => {}
            Self::Binary { left, right, .. } => {
                left.for_each_column(visit);
                right.for_each_column(visit);
            }
        }
    }

    fn eval(&self, input: Input<'_>, selected: &[u16]) -> Lanes {
        match self {
            Self::Constant(value) => Lanes { values: vec![*value; selected.len()], flags: vec![0; selected.len()] },
            Self::Column { slot, scale } => {
                let mut lanes = Lanes::default();
                match input.columns.get(*slot as usize).and_then(Option::as_ref) {
                    Some(column) => read(input, *slot, column, *scale, selected, &mut lanes),
                    None => lanes = Lanes { values: vec![0; selected.len()], flags: vec![UNCERTAIN; selected.len()] },
                }
                lanes
            }
            Self::Binary { operator, kind, left, right } => {
                let mut lanes = left.eval(input, selected);
                match **right {
                    Self::Constant(value) => apply(*operator, &mut lanes, std::iter::repeat((value, 0))),
                    ref right => {
                        let right = right.eval(input, selected);
                        apply(*operator, &mut lanes, right.values.into_iter().zip(right.flags));
                    }
                }
                match kind {
                    Kind::Int2 => limit(&mut lanes, |value| value as i16 as i64),
                    Kind::Int4 => limit(&mut lanes, |value| value as i32 as i64),
                    _ => {}
                }
                lanes
            }
        }
    }
}

/// Reads a column's numbers.
fn read(input: Input<'_>, slot: Slot, column: &Column, scale: u32, selected: &[u16], lanes: &mut Lanes) {
    let pages = input.pages;
    macro_rules! fixed {
        ($type:ty, $number:expr) => {
            read_with(input, slot, column, selected, lanes, |at| {
                let bytes = pages.get(at..at + size_of::<$type>())?.try_into().ok()?;
                Some($number(<$type>::from_le_bytes(bytes)))
            })
        };
    }
    match (column.kind, column.width) {
        (Some(Kind::Int4 | Kind::Date), _) => fixed!(i32, i64::from),
        (Some(Kind::Int8 | Kind::Time | Kind::Timestamp | Kind::Timestamptz), _) => fixed!(i64, i64::from),
        (Some(Kind::Float4), _) => fixed!(f32, |value| float_key(f64::from(value))),
        (Some(Kind::Float8), _) => fixed!(f64, float_key),
        (Some(Kind::Numeric), _) => {
            read_with(input, slot, column, selected, lanes, |at| numeric::scaled(column.plain_bytes(pages, at)?, scale))
        }
        (Some(kind), Width::Fixed(_)) => {
            read_with(input, slot, column, selected, lanes, |at| column.int(kind, pages, at))
        }
        _ => read_with(input, slot, column, selected, lanes, |_| None),
    }
}

#[inline(always)]
fn read_with(
    input: Input<'_>,
    slot: Slot,
    column: &Column,
    selected: &[u16],
    lanes: &mut Lanes,
    number: impl Fn(usize) -> Option<i64>,
) {
    let locations = input.chunk.locations(slot);
    // Rare enough for the interpreter, unless it is NULL.
    let missing = if matches!(column.missing, Ok(Value::Null)) { IS_NULL } else { UNCERTAIN };
    lanes.values.resize(selected.len(), 0);
    lanes.flags.resize(selected.len(), 0);
    let outs = lanes.values.iter_mut().zip(&mut lanes.flags);
    for (&row, (value, flag)) in selected.iter().zip(outs) {
        match locations[row as usize] {
            NULL => *flag = IS_NULL,
            MISSING => *flag = missing,
            at => match number(at as usize) {
                Some(number) => *value = number,
                None => *flag = UNCERTAIN,
            },
        }
    }
}

fn apply(operator: Operator, left: &mut Lanes, right: impl Iterator<Item = (i64, u8)>) {
    match operator {
        Operator::Add => apply_with(left, right, i64::overflowing_add),
        Operator::Subtract => apply_with(left, right, i64::overflowing_sub),
        Operator::Multiply => apply_with(left, right, i64::overflowing_mul),
        Operator::Divide => apply_with(left, right, |left, right| match left.checked_div(right) {
            Some(quotient) => (quotient, false),
            None => (0, true),
        }),
        Operator::Modulo => apply_with(left, right, |left, right| match right {
            0 => (0, true),
            right => (left.wrapping_rem(right), false),
        }),
    }
}

/// `operation` tells the result and whether Postgres may not have it.
#[inline(always)]
fn apply_with(left: &mut Lanes, right: impl Iterator<Item = (i64, u8)>, operation: impl Fn(i64, i64) -> (i64, bool)) {
    for ((value, flag), (right, right_flag)) in left.values.iter_mut().zip(&mut left.flags).zip(right) {
        let (result, uncertain) = operation(*value, right);
        *value = result;
        // The number behind a NULL is any, and so is what comes of it.
        let uncertain = uncertain && (*flag | right_flag) & IS_NULL == 0;
        *flag |= right_flag | if uncertain { UNCERTAIN } else { 0 };
    }
}

/// Results that a narrower type does not have are errors.
#[inline(always)]
fn limit(lanes: &mut Lanes, narrowed: impl Fn(i64) -> i64) {
    for (value, flag) in lanes.values.iter().zip(&mut lanes.flags) {
        if narrowed(*value) != *value && *flag & IS_NULL == 0 {
            *flag |= UNCERTAIN;
        }
    }
}

/// Which rows pass: `fate` gets the row, whether it passes (never when a side is NULL), and whether that is uncertain.
#[inline(always)]
pub fn for_each_compared(
    comparison: Comparison,
    left: &Arithmetic,
    right: &Arithmetic,
    input: Input<'_>,
    selected: &[u16],
    mut fate: impl FnMut(u16, bool, bool),
) {
    let lanes = left.eval(input, selected);
    let mut each = |row: u16, left: i64, right: i64, flags: u8| {
        let passes = comparison.holds(left.cmp(&right)) && flags == 0;
        fate(row, passes, flags & UNCERTAIN != 0);
    };
    let lefts = selected.iter().zip(lanes.values.iter().zip(&lanes.flags));
    match right.constant() {
        Some(right) => lefts.for_each(|(row, (left, flags))| each(*row, *left, right, *flags)),
        None => {
            let rights = right.eval(input, selected);
            let rights = rights.values.into_iter().zip(rights.flags);
            lefts
                .zip(rights)
                .for_each(|((row, (left, flags)), (right, right_flags))| each(*row, *left, right, flags | right_flags));
        }
    }
}
