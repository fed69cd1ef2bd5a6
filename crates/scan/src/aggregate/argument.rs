//! The arguments of aggregates, computed for a run of rows at a time.

use super::groups::RowGroups;
use super::linear::Linear;
use crate::heap::Slot;
use crate::predicate::{
    CodeEncoding, Column, ColumnRequirement, Compiler, Condition, EvalCache, Evaluation, FALSE, IS_NULL, Lanes, Node,
    NumberExpr, RowSet, TRUE, UNCERTAIN, UNDECIDED,
};
use crate::value::numeric::{BASE, Class, Numeric};
use crate::value::{Undecided, Value, ValueKind};
use cellar_format::wire::Expr;
use std::borrow::Cow;
use std::rc::Rc;

/// Base-10000 fraction digits of sums of numerics, unless the scale of the lanes needs more.
const FRACTION_DIGITS: i32 = 4;
/// Base-10000 fraction digits of sums of quotients: a quotient from 0.00000001 to 0.0001 has at least 24 decimals.
const FRACTION_DIGITS_QUOTIENT: i32 = 6;
/// The most decimals that a lane is shifted by, so that the result stays below [`MAGNITUDE_MAX`].
const SHIFT_DECIMALS_MAX: u32 = 12;
/// Numbers that are added to a sum of 128 bits are less than this.
pub const MAGNITUDE_MAX: u128 = 1 << 112;

const _: () = assert!((1u128 << 63) * 10u128.pow(SHIFT_DECIMALS_MAX) < MAGNITUDE_MAX);

/// The compiled argument of one or more aggregates.
pub struct Argument {
    computation: Computation,
    /// The aggregate's FILTER; rows that fail count as NULL.
    filter: Option<BooleanExpr>,
    /// The columns that the argument and the filter read.
    pub slots: Vec<Slot>,
}

/// A boolean expression over vectors. The interpreter decides, by `node`, the rows that `condition` leaves undecided.
pub struct BooleanExpr {
    condition: Condition,
    node: Node,
}

/// How the argument is computed.
enum Computation {
    /// `count(*)`: every row has a value.
    Row,
    /// `count(x)`: only whether the argument is NULL.
    NullOf(BooleanExpr),
    /// Integers and numerics as integers, floats as their bits. `fast` computes a vector at a time; `node` decides the rows that `fast`
    /// cannot.
    Numbers { fast: Option<NumberExpr>, node: Node, kind: ValueKind, decimals: Decimals },
    /// Values of other types.
    Values { node: Node, kind: ValueKind },
}

/// The display scale of the argument.
enum Decimals {
    /// The argument is not a numeric.
    None,
    /// The same for every row.
    Fixed(u16),
    /// Values differ in their display scales.
    PerValue(NumberExpr),
    Unknown,
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

impl Vector<'_> {
    /// Flags the rows for which a linear function of the number overflows as [`UNCERTAIN`].
    pub fn flag_undefined(&mut self, linear: &Linear) {
        if linear.is_defined_within(self.lanes.bounds()) {
            return;
        }
        let undefined = |(value, flags): (i64, u8)| flags == 0 && !linear.is_defined(value);
        if self.lanes.iter().any(undefined) {
            let lanes = Rc::make_mut(&mut self.lanes);
            for row in 0..lanes.values.len() {
                if undefined((lanes.values[row], lanes.flags(row))) {
                    lanes.flags_mut()[row] = UNCERTAIN;
                }
            }
        }
    }

    /// The groups of the rows whose values are numbers in lanes, if some rows have flags and there are few groups. None: no row
    /// has a flag, or rows must be added one by one.
    pub fn rows_with_values(&self, groups: &RowGroups) -> Option<RowGroups> {
        let by_group = self.lanes.has_flags() && self.wide.is_empty() && !groups.counts.is_empty();
        by_group.then(|| groups.without_flagged(self.lanes.all_flags()))
    }
}

/// Flag: the row's number is in [`Vector::wide`].
pub const IS_WIDE: u8 = 4;

impl Argument {
    pub fn rows(filter: Option<BooleanExpr>) -> Self {
        Self { computation: Computation::Row, filter, slots: Vec::new() }
    }

    /// The argument of `count`. `is_null` is whether the argument is NULL.
    pub fn null_of(is_null: BooleanExpr, filter: Option<BooleanExpr>) -> Self {
        Self { computation: Computation::NullOf(is_null), filter, slots: Vec::new() }
    }

    /// An argument of the given kind. Evaluation fills [`Vector::values`] if `values`, otherwise the lanes.
    pub fn of(
        node: Node,
        kind: ValueKind,
        values: bool,
        columns: &[Option<Column>],
        evaluation: Evaluation,
        filter: Option<BooleanExpr>,
    ) -> Self {
        let number = || NumberExpr::number(&node, kind, columns).filter(|_| evaluation == Evaluation::Vectors);
        let computation = match kind {
            _ if values => Computation::Values { node, kind },
            ValueKind::Numeric => {
                let decimals = match NumberExpr::display_scale(&node, columns) {
                    Some(scale) => match scale.constant().map(u16::try_from) {
                        Some(Ok(scale)) => Decimals::Fixed(scale),
                        Some(Err(_)) => Decimals::Unknown,
                        None => Decimals::PerValue(scale),
                    },
                    None => Decimals::Unknown,
                };
                let has_scale = !matches!(decimals, Decimals::Unknown);
                let fast = has_scale.then(number).flatten();
                Computation::Numbers { fast, node, kind, decimals }
            }
            _ => {
                let fast = number();
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
            Computation::Numbers { fast: None, node, kind: ValueKind::Numeric, .. } if node.has_quotient() => {
                FRACTION_DIGITS_QUOTIENT
            }
            _ => FRACTION_DIGITS,
        }
    }

    /// Decimals of the lanes of a numeric, or of the numbers that lanes would have; otherwise 0.
    pub fn decimals(&self) -> u32 {
        match &self.computation {
            Computation::Numbers { fast: Some(fast), .. } => fast.scale(),
            Computation::Numbers { decimals: Decimals::Fixed(decimals), .. } => {
                u32::from(*decimals).min(4 * self.fraction_digits() as u32)
            }
            _ => 0,
        }
    }

    /// Calls `visit` with the requirements under which the argument needs no datums.
    pub fn for_each_requirement(&self, visit: &mut impl FnMut(Slot, ColumnRequirement)) {
        if let Some(filter) = &self.filter {
            filter.condition.for_each_requirement(visit);
        }
        match &self.computation {
            Computation::Row => {}
            Computation::NullOf(is_null) => is_null.condition.for_each_requirement(visit),
            Computation::Numbers { fast: Some(fast), .. } => fast.for_each_requirement(visit),
            Computation::Values { node: Node::Column(slot), kind: ValueKind::Text } => {
                visit(*slot, ColumnRequirement::Strings);
            }
            Computation::Numbers { node, .. } | Computation::Values { node, .. } => {
                node.for_each_slot(&mut |slot| visit(slot, ColumnRequirement::Datums))
            }
        }
    }

    /// The argument as `count(*)` or a plain column. None: the argument is an expression or has a filter.
    pub fn plain(&self) -> Option<PlainArgument> {
        match &self.computation {
            _ if self.filter.is_some() => None,
            Computation::Row => Some(PlainArgument::Row),
            Computation::NullOf(BooleanExpr { condition: Condition::ColumnIsNull { slot, .. }, .. }) => {
                Some(PlainArgument::Nulls(*slot))
            }
            Computation::Numbers { fast: Some(fast), .. } => {
                fast.column().map(|(slot, scale)| PlainArgument::Numbers { slot, scale })
            }
            _ => None,
        }
    }

    /// Computes the argument for the selected rows. Rows flagged [`UNCERTAIN`] must be rejected.
    pub fn eval<'a>(&'a self, rows: RowSet<'a>, selected: &[u16], cache: &mut EvalCache<'a>) -> Vector<'a> {
        let mut vector = Vector { factor: 1, ..Vector::default() };
        let Some(filter) = &self.filter else {
            self.compute(rows, selected, cache, None, &mut vector);
            return vector;
        };
        let truths = filter.eval(rows, selected, cache);
        self.compute(rows, selected, cache, Some(&truths), &mut vector);
        if truths.iter().any(|truth| *truth != TRUE) {
            let flags = Rc::make_mut(&mut vector.lanes).flags_mut();
            for (flags, truth) in flags.iter_mut().zip(truths.iter()) {
                let failed = if *truth == UNDECIDED { UNCERTAIN } else { IS_NULL };
                *flags = if *truth == TRUE { *flags } else { failed };
            }
        }
        vector
    }

    /// Computes the argument where the filter is true; elsewhere the numbers and flags are unspecified.
    fn compute<'a>(
        &'a self,
        rows: RowSet<'a>,
        selected: &[u16],
        cache: &mut EvalCache<'a>,
        filter: Option<&[u8]>,
        vector: &mut Vector<'a>,
    ) {
        let passes = |index: usize| filter.is_none_or(|truths| truths[index] == TRUE);
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
                    vector.factor = 10i128.pow(4 * fraction_digits as u32 - self.decimals());
                    if fast.is_some() {
                        read_scales(decimals, rows, selected, cache, vector);
                    }
                }
                if vector.lanes.has_flags() && rows.encoded_columns.columns.is_empty() {
                    for (index, at) in selected.iter().enumerate() {
                        if vector.lanes.flags(index) & UNCERTAIN != 0 && passes(index) {
                            replace_uncertain(node.eval(&rows.row(*at)), index, fraction_digits, vector);
                        }
                    }
                }
                return;
            }
            Computation::NullOf(is_null) => {
                let truths = is_null.eval(rows, selected, cache);
                let mut lanes = zeroes();
                if truths.iter().any(|truth| *truth != FALSE) {
                    for (flags, truth) in lanes.flags_mut().iter_mut().zip(truths.iter()) {
                        *flags = match *truth {
                            FALSE => 0,
                            TRUE => IS_NULL,
                            _ => UNCERTAIN,
                        };
                    }
                }
                lanes
            }
            Computation::Values { node: Node::Column(slot), .. } if rows.encoded(*slot).is_some() => {
                let mut lanes = zeroes();
                let flags = lanes.flags_mut();
                let encoded = rows.encoded(*slot);
                for (index, flags) in flags.iter_mut().enumerate() {
                    let value = encoded.and_then(|column| match column.encoding {
                        _ if column.is_null(index) => Some(Value::Null),
                        CodeEncoding::Strings(strings) | CodeEncoding::RowStrings(strings) => {
                            let bytes = strings.get(*column.codes.get(index)? as usize)?;
                            Some(Value::Bytes(Cow::Borrowed(bytes)))
                        }
                        _ => None,
                    });
                    *flags = match value {
                        None => UNCERTAIN,
                        Some(Value::Null) => IS_NULL,
                        Some(_) => 0,
                    };
                    vector.values.push(value.unwrap_or(Value::Null));
                }
                lanes
            }
            Computation::Values { node, .. } => {
                let mut lanes = zeroes();
                vector.values.reserve(selected.len());
                let (_, flags) = lanes.parts_mut();
                for (index, (at, flags)) in selected.iter().zip(flags).enumerate() {
                    if !passes(index) {
                        vector.values.push(Value::Null);
                        continue;
                    }
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

impl BooleanExpr {
    pub fn new(node: Node, columns: &[Option<Column>], evaluation: Evaluation) -> Option<Self> {
        Some(Self { condition: Condition::new(&node, columns, evaluation)?, node })
    }

    /// Calls `visit` with the requirements under which the expression needs no datums.
    pub fn for_each_requirement(&self, visit: &mut impl FnMut(Slot, ColumnRequirement)) {
        self.condition.for_each_requirement(visit);
    }

    /// The truth value in each selected row.
    pub fn eval<'a>(&'a self, rows: RowSet<'a>, selected: &[u16], cache: &mut EvalCache<'a>) -> Rc<Vec<u8>> {
        let mut truths = self.condition.eval(rows, selected, cache);
        if truths.contains(&UNDECIDED) && rows.encoded_columns.columns.is_empty() {
            for (truth, at) in Rc::make_mut(&mut truths).iter_mut().zip(selected) {
                if *truth == UNDECIDED {
                    *truth = self.node.qualifies(&rows.row(*at)).map_or(UNDECIDED, u8::from);
                }
            }
        }
        truths
    }
}

/// The slots of all columns that the expressions read.
pub fn slots_of<'e>(exprs: impl IntoIterator<Item = &'e Expr>, compiler: &mut Compiler<'_>) -> Vec<Slot> {
    let mut slots = Vec::new();
    for expr in exprs {
        expr.for_each_column(&mut |number| slots.extend(compiler.slot(number)));
    }
    slots
}

/// Fills in the display scales of a numeric argument. Rows whose scale is unknown become uncertain.
fn read_scales<'a>(
    decimals: &'a Decimals,
    rows: RowSet<'a>,
    selected: &[u16],
    cache: &mut EvalCache<'a>,
    vector: &mut Vector<'_>,
) {
    let scales = match decimals {
        Decimals::None | Decimals::Unknown => return,
        Decimals::Fixed(scale) => {
            vector.scale = *scale;
            return;
        }
        Decimals::PerValue(scale) => scale.eval(rows, selected, cache),
    };
    let (least, greatest) = scales.bounds();
    if !scales.has_flags() && least == greatest {
        vector.scale = least as u16;
        return;
    }
    vector.scales = scales.values.iter().map(|scale| *scale as u16).collect();
    if scales.has_flags() {
        let flags = Rc::make_mut(&mut vector.lanes).flags_mut();
        for (index, flags) in flags.iter_mut().enumerate() {
            if *flags == 0 && scales.flags(index) != 0 {
                *flags = UNCERTAIN;
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
        Ok(Value::Float(value)) => {
            *lane = value.to_bits() as i64;
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
pub fn wide(value: &Numeric, fraction_digits: i32) -> Option<(i128, u16)> {
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
