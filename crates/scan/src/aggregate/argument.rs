//! The arguments of aggregates, computed for a run of rows at a time.

use crate::heap::{NULL, Slot};
use crate::predicate::{Arithmetic, CodeEncoding, Column, EvalCache, IS_NULL, Kernel, Lanes, Node, RowSet, UNCERTAIN};
use crate::value::numeric::{self, BASE, Class, Numeric};
use crate::value::{Undecided, Value, ValueKind};
use std::rc::Rc;

/// Base-10000 fraction digits of sums of numerics, unless the scale of the lanes needs more.
const FRACTION_DIGITS: i32 = 4;
/// The most decimals that a lane is shifted by, so that the result stays below [`MAGNITUDE_MAX`].
const SHIFT_DECIMALS_MAX: u32 = 12;
/// Values below this can be added to a sum of 128 bits: [`ROWS_MAX`](super::ROWS_MAX) of them do not overflow the sum.
const MAGNITUDE_MAX: u128 = 1 << 104;

const _: () = assert!((1u128 << 63) * 10u128.pow(SHIFT_DECIMALS_MAX) < MAGNITUDE_MAX);
const _: () = assert!(MAGNITUDE_MAX * (super::ROWS_MAX as u128) < 1 << 127);

/// The compiled argument of one or more aggregates.
pub struct Argument {
    computation: Computation,
    /// The aggregate's FILTER; rows that fail count as NULL.
    filter: Option<Kernel>,
    /// The columns that the argument and the filter read.
    pub slots: Vec<Slot>,
}

/// How the argument is computed.
enum Computation {
    /// `count(*)`: every row has a value.
    Row,
    /// `count(x)`: only whether the argument is NULL.
    NullOf(Node),
    /// Integers and numerics as integers. `fast` computes a vector at a time; `node` decides the rows that `fast`
    /// cannot.
    Numbers { fast: Option<Arithmetic>, node: Node, kind: ValueKind, decimals: Decimals },
    /// Floats as their bits.
    Floats(Node),
    /// Values of other types.
    Values(Node),
}

/// The display scale of the argument.
enum Decimals {
    /// The argument is not a numeric.
    None,
    /// The same for every row.
    Fixed(u16),
    /// Values differ in their display scales. `column` is set if the argument is a plain column.
    PerValue { column: Option<Slot> },
}

/// An argument without an expression and a filter.
pub enum PlainArgument {
    /// `count(*)`.
    Row,
    /// The NULLs of a column.
    Nulls(Slot),
    /// The values of a column times `10^scale`.
    Numbers { slot: Slot, scale: u32 },
}

/// A number that does not fit in a lane.
pub struct WideNumber {
    pub row: u32,
    pub value: i128,
    pub scale: u16,
}

/// The values of a run of rows.
#[derive(Default)]
pub struct Vector<'a> {
    /// Integers, the bits of floats, or numerics times `BASE^fraction_digits / factor`.
    pub lanes: Rc<Lanes>,
    pub factor: i128,
    /// Display scales of numerics: `scales` has one per row, or is empty and `scale` applies to all rows.
    pub scale: u16,
    pub scales: Vec<u16>,
    /// Ascending by row; the lanes of these rows are flagged [`IS_WIDE`].
    pub wide: Vec<WideNumber>,
    pub values: Vec<Value<'a>>,
}

/// Flag: the row's number is in [`Vector::wide`].
pub const IS_WIDE: u8 = 4;

impl Argument {
    pub fn rows(filter: Option<Kernel>) -> Self {
        Self { computation: Computation::Row, filter, slots: Vec::new() }
    }

    pub fn null_of(node: Node, filter: Option<Kernel>) -> Self {
        Self { computation: Computation::NullOf(node), filter, slots: Vec::new() }
    }

    /// An argument of the given kind. Evaluation fills [`Vector::values`] if `values`, otherwise the lanes.
    pub fn of(node: Node, kind: ValueKind, values: bool, columns: &[Option<Column>], filter: Option<Kernel>) -> Self {
        let computation = match kind {
            _ if values => Computation::Values(node),
            ValueKind::Float4 | ValueKind::Float8 => Computation::Floats(node),
            ValueKind::Numeric => {
                let column = match node {
                    Node::Column(slot) => Some(slot),
                    _ => None,
                };
                let fixed = fixed_scale(&node, columns);
                let decimals = match fixed {
                    Some(scale) => Decimals::Fixed(scale),
                    None => Decimals::PerValue { column },
                };
                let has_scale = fixed.is_some() || column.is_some();
                let fast = has_scale.then(|| Arithmetic::number(&node, kind, columns)).flatten();
                Computation::Numbers { fast, node, kind, decimals }
            }
            _ => {
                let fast = Arithmetic::number(&node, kind, columns);
                Computation::Numbers { fast, node, kind, decimals: Decimals::None }
            }
        };
        Self { computation, filter, slots: Vec::new() }
    }

    /// Base-10000 fraction digits of numeric sums.
    pub fn fraction_digits(&self) -> i32 {
        match &self.computation {
            Computation::Numbers { fast: Some(fast), kind: ValueKind::Numeric, .. } => {
                let most = (fast.scale() + SHIFT_DECIMALS_MAX) / 4;
                FRACTION_DIGITS.clamp(fast.scale().div_ceil(4) as i32, most as i32)
            }
            _ => FRACTION_DIGITS,
        }
    }

    /// Whether the argument can be computed from encoded values. `has` says whether a column meets a requirement.
    pub fn needs_no_datum(&self, has: &impl Fn(Slot, ColumnRequirement) -> bool) -> bool {
        if self.filter.is_some() {
            return false;
        }
        match &self.computation {
            Computation::Row => true,
            Computation::NullOf(Node::Column(slot)) => has(*slot, ColumnRequirement::Nulls),
            Computation::Numbers { fast: Some(fast), .. } => {
                let mut all = true;
                fast.for_each_column(&mut |slot, scale| all &= has(slot, ColumnRequirement::Numbers { scale }));
                all
            }
            _ => false,
        }
    }

    /// The argument as `count(*)` or a plain column. None: the argument is an expression or has a filter.
    pub fn plain(&self) -> Option<PlainArgument> {
        match &self.computation {
            _ if self.filter.is_some() => None,
            Computation::Row => Some(PlainArgument::Row),
            Computation::NullOf(Node::Column(slot)) => Some(PlainArgument::Nulls(*slot)),
            Computation::Numbers { fast: Some(fast), .. } => {
                fast.column().map(|(slot, scale)| PlainArgument::Numbers { slot, scale })
            }
            _ => None,
        }
    }

    /// Whether the values of the argument's columns are needed, not only their NULLs.
    pub fn needs_values(&self) -> bool {
        self.filter.is_some() || !matches!(self.computation, Computation::Row | Computation::NullOf(Node::Column(_)))
    }

    /// Computes the argument for the selected rows. Rows flagged [`UNCERTAIN`] must be rejected.
    pub fn eval<'a>(&'a self, rows: RowSet<'a>, selected: &[u16], cache: &mut EvalCache<'a>) -> Vector<'a> {
        let mut vector = Vector { factor: 1, ..Vector::default() };
        self.compute(rows, selected, cache, &mut vector);
        if let Some(filter) = &self.filter {
            let (mut passed, mut undecided) = (Vec::new(), Vec::new());
            filter.run(rows, selected, &mut passed, &mut undecided);
            undecided.sort_unstable();
            let mut passed = passed.into_iter().peekable();
            let (_, flags) = Rc::make_mut(&mut vector.lanes).parts_mut();
            for (row, flags) in selected.iter().zip(flags) {
                if passed.next_if_eq(row).is_none() {
                    *flags = IS_NULL;
                }
                if undecided.binary_search(row).is_ok() {
                    *flags = UNCERTAIN;
                }
            }
        }
        vector
    }

    fn compute<'a>(&'a self, rows: RowSet<'a>, selected: &[u16], cache: &mut EvalCache<'a>, vector: &mut Vector<'a>) {
        let zeroes = || Lanes::of(0, 0, selected.len());
        let lanes = match &self.computation {
            Computation::Row => {
                vector.lanes = cache.zeroes(selected.len());
                return;
            }
            Computation::Numbers { fast, node, kind, decimals } => {
                let fraction_digits = self.fraction_digits();
                vector.lanes = match fast {
                    Some(fast) => fast.eval(rows, selected, cache),
                    None => Rc::new(Lanes::of(0, UNCERTAIN, selected.len())),
                };
                if *kind == ValueKind::Numeric {
                    let lanes_decimals = fast.as_ref().map_or(0, |fast| fast.scale());
                    vector.factor = 10i128.pow(4 * fraction_digits as u32 - lanes_decimals);
                    read_scales(decimals, fast.is_some(), rows, selected, vector);
                }
                if vector.lanes.has_flags() && rows.encoded_columns.columns.is_empty() {
                    for (index, at) in selected.iter().enumerate() {
                        if vector.lanes.flags(index) & UNCERTAIN != 0 {
                            replace_uncertain(node.eval(&rows.row(*at)), index, fraction_digits, vector);
                        }
                    }
                }
                return;
            }
            Computation::NullOf(Node::Column(slot)) if rows.encoded(*slot).is_some() => {
                let mut lanes = zeroes();
                if let Some(validity) = rows.encoded(*slot).and_then(|column| column.validity) {
                    let (_, flags) = lanes.parts_mut();
                    validity
                        .iter()
                        .zip(flags)
                        .for_each(|(valid, flags)| *flags = if *valid == 0 { IS_NULL } else { 0 });
                }
                lanes
            }
            Computation::NullOf(node) => {
                let mut lanes = zeroes();
                let (_, flags) = lanes.parts_mut();
                for (at, flags) in selected.iter().zip(flags) {
                    let is_null = match node {
                        Node::Column(slot) => rows.row(*at).is_null(*slot),
                        node => node.eval(&rows.row(*at)).map(|value| value.is_null()),
                    };
                    *flags = match is_null {
                        Ok(false) => 0,
                        Ok(true) => IS_NULL,
                        Err(Undecided) => UNCERTAIN,
                    };
                }
                lanes
            }
            Computation::Floats(node) => {
                let mut lanes = zeroes();
                let (values, flags) = lanes.parts_mut();
                for (at, (out, flags)) in selected.iter().zip(values.iter_mut().zip(flags)) {
                    match node.eval(&rows.row(*at)) {
                        Ok(Value::Float(value)) => *out = value.to_bits() as i64,
                        Ok(Value::Null) => *flags = IS_NULL,
                        _ => *flags = UNCERTAIN,
                    }
                }
                lanes
            }
            Computation::Values(node) => {
                let mut lanes = zeroes();
                vector.values.reserve(selected.len());
                let (_, flags) = lanes.parts_mut();
                for (at, flags) in selected.iter().zip(flags) {
                    let value = node.eval(&rows.row(*at)).unwrap_or_else(|Undecided| {
                        *flags = UNCERTAIN;
                        Value::Null
                    });
                    if value.is_null() && *flags == 0 {
                        *flags = IS_NULL;
                    }
                    vector.values.push(value);
                }
                lanes
            }
        };
        vector.lanes = Rc::new(lanes);
    }
}

/// A requirement on the encoded values of a column. Datums of a column that meets the requirement are not needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnRequirement {
    /// Which rows are NULL.
    Nulls,
    /// Numbers times `10^scale`.
    Numbers { scale: u32 },
    /// Numerics encoded as integers times `10^scale`, all within `bounds`.
    Scaled { scale: u8, bounds: (i64, i64) },
    /// Positions in a list of strings.
    Strings,
}

/// Fills in the display scales of a numeric argument. Rows whose scale is unknown become uncertain.
fn read_scales(decimals: &Decimals, fast: bool, rows: RowSet<'_>, selected: &[u16], vector: &mut Vector<'_>) {
    match decimals {
        Decimals::None => {}
        Decimals::Fixed(scale) => vector.scale = *scale,
        Decimals::PerValue { column } => {
            if let Some(CodeEncoding::Numbers { scale: Some(scale), .. }) =
                column.and_then(|slot| rows.encoded(slot)).map(|encoded| encoded.encoding)
            {
                vector.scale = scale.into();
                return;
            }
            vector.scales.resize(selected.len(), 0);
            let Some((slot, column)) = column.filter(|_| fast).and_then(|slot| Some((slot, rows.column(slot)?))) else {
                return;
            };
            let locations = rows.locations(slot);
            for (index, at) in selected.iter().enumerate() {
                if vector.lanes.flags(index) != 0 {
                    continue;
                }
                let location = locations[*at as usize];
                let payload = if location == NULL { None } else { column.plain_bytes(rows.bytes, location as usize) };
                match payload.and_then(numeric::display_scale) {
                    Some(scale) => vector.scales[index] = scale,
                    None => Rc::make_mut(&mut vector.lanes).parts_mut().1[index] = UNCERTAIN,
                }
            }
        }
    }
}

/// Replaces an uncertain lane by the value that the interpreter computed. The lane stays uncertain if the value is undecided, not
/// finite or too wide.
#[cold]
fn replace_uncertain(value: Result<Value<'_>, Undecided>, index: usize, fraction_digits: i32, vector: &mut Vector<'_>) {
    let (values, flags) = Rc::make_mut(&mut vector.lanes).parts_mut();
    let (lane, flags) = (&mut values[index], &mut flags[index]);
    match value {
        Ok(Value::Null) => *flags = IS_NULL,
        Ok(Value::Bool(value)) => {
            *lane = i64::from(value);
            *flags = 0;
        }
        Ok(Value::Int(value)) => {
            *lane = value;
            *flags = 0;
        }
        Ok(Value::Numeric(value)) => match wide(&value, fraction_digits) {
            Some((value, scale)) => {
                vector.wide.push(WideNumber { row: index as u32, value, scale });
                *flags = IS_WIDE;
            }
            None => *flags = UNCERTAIN,
        },
        _ => *flags = UNCERTAIN,
    }
}

/// The value times `BASE^fraction_digits`, and its display scale. None: not finite, not an integer, or not below
/// [`MAGNITUDE_MAX`].
fn wide(value: &Numeric, fraction_digits: i32) -> Option<(i128, u16)> {
    if value.class != Class::Finite {
        return None;
    }
    let scale = u16::try_from(value.scale).ok()?;
    let mut magnitude = 0u128;
    for digit in &value.digits {
        magnitude = magnitude.checked_mul(BASE as u128)?.checked_add(*digit as u128)?;
    }
    if magnitude != 0 {
        let trailing = value.weight - (value.digits.len() as i32 - 1) + fraction_digits;
        if !(0..=9).contains(&trailing) {
            return None;
        }
        magnitude = magnitude.checked_mul(numeric_power(trailing) as u128)?;
    }
    let value = if value.negative { -(magnitude as i128) } else { magnitude as i128 };
    (magnitude < MAGNITUDE_MAX).then_some((value, scale))
}

fn numeric_power(digits: i32) -> i128 {
    (BASE as i128).pow(digits.max(0) as u32)
}

/// The display scale of the expression in all rows where it is finite; None: the scale differs between rows.
fn fixed_scale(node: &Node, columns: &[Option<Column>]) -> Option<u16> {
    use crate::predicate::{FunctionBody, Operator};
    match node {
        Node::Const(Value::Numeric(value)) => u16::try_from(value.scale).ok(),
        Node::Column(slot) => columns.get(*slot as usize)?.as_ref()?.decimals,
        Node::Call { function, args, .. } => match (function.body, args.as_slice()) {
            (FunctionBody::Widen, [_]) => Some(0),
            (FunctionBody::Arithmetic(operator), [left, right]) => {
                let (left, right) = (fixed_scale(left, columns)?, fixed_scale(right, columns)?);
                match operator {
                    Operator::Add | Operator::Subtract => Some(left.max(right)),
                    Operator::Multiply => left.checked_add(right),
                    Operator::Divide | Operator::Modulo => None,
                }
            }
            _ => None,
        },
        _ => None,
    }
}
