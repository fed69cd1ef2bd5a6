//! Compiles and evaluates expressions over vectors.
//!
//! All numbers are i64: integers themselves, floats by their keys, and numerics times a power of ten that is fixed per
//! operand. A row whose numbers do not fit, or for which PostgreSQL might raise an error, is flagged [`UNCERTAIN`] and left to
//! the interpreter. All branches of CASE are computed for all rows; the flags of a branch count only where it is taken.

use super::super::column::Column;
use super::super::column_test::ColumnTest;
use super::super::encoded::{CodeEncoding, EncodedColumn};
use super::super::functions::{FunctionBody, Operator};
use super::super::lanes::{IS_NULL, Lanes, UNCERTAIN};
use super::super::node::Node;
use super::super::rows::RowSet;
use super::columns::{display_scales, encoded_numbers, read};
use super::interpreted::Interpreted;
use super::operators::{Operand, apply, joined, mark_number, mark_numbers};
use super::truth::{self, FALSE, TRUE, UNDECIDED, UNKNOWN};
use crate::heap::{MISSING, NULL, Slot};
use crate::value::{Comparison, Domain, Value, ValueKind, float_key};
use cellar_format::wire::BooleanTest;
use std::rc::Rc;

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
    /// No encoded values suffice.
    Datums,
}

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

/// What the numbers of an expression stand for. The numbers of floats are their keys, which support only comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Int,
    Float,
    Numeric,
}

impl Family {
    fn accepts(self, kind: ValueKind) -> bool {
        match self {
            Self::Int => kind.is_int(),
            Self::Float => matches!(kind, ValueKind::Float4 | ValueKind::Float8),
            Self::Numeric => kind == ValueKind::Numeric,
        }
    }
}

/// What evaluates the expressions of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evaluation {
    Vectors,
    /// The interpreter, row by row. For tests.
    Interpreter,
}

/// How expressions are compiled.
#[derive(Clone, Copy)]
struct Compile<'c> {
    columns: &'c [Option<Column>],
    /// Whether subexpressions that vectors do not support are left to [`Interpreted`].
    interprets: bool,
}

/// An expression whose value is a number.
pub struct NumberExpr {
    root: Number,
    /// Decimals of a numeric; otherwise 0.
    scale: u32,
}

#[derive(PartialEq)]
pub enum Number {
    Column {
        slot: Slot,
        scale: u32,
    },
    Constant(i64),
    Null,
    Binary {
        operator: Operator,
        kind: ValueKind,
        left: Box<Number>,
        right: Box<Number>,
    },
    Case {
        whens: Vec<(Condition, Number)>,
        otherwise: Box<Number>,
    },
    Coalesce(Vec<Number>),
    /// A truth value as a number.
    Truth(Box<Condition>),
    /// The display scale of a column's numeric.
    DisplayScale(Slot),
    Interpreted(Box<Interpreted>),
}

/// An expression whose value is a truth value.
#[derive(PartialEq)]
pub enum Condition {
    Constant(u8),
    /// A boolean number.
    Number(Number),
    /// A test of a column's integers or strings.
    Test {
        slot: Slot,
        test: ColumnTest,
    },
    ColumnIsNull {
        slot: Slot,
        negated: bool,
    },
    IsNull {
        number: Number,
        negated: bool,
    },
    Compare {
        comparison: Comparison,
        left: Number,
        right: Number,
    },
    /// IS DISTINCT FROM
    Distinct {
        left: Number,
        right: Number,
    },
    And(Vec<Condition>),
    Or(Vec<Condition>),
    Not(Box<Condition>),
    Is {
        test: BooleanTest,
        arg: Box<Condition>,
    },
}

impl NumberExpr {
    /// Compiles an expression of this kind, which is an integer kind or numeric. Integer subexpressions that vectors do not
    /// support are interpreted. None: a numeric subexpression is not supported.
    pub fn number(node: &Node, kind: ValueKind, columns: &[Option<Column>]) -> Option<Self> {
        let compile = Compile { columns, interprets: true };
        match kind {
            ValueKind::Numeric => compile.number(node, Family::Numeric),
            kind if kind.is_int() => compile.number(node, Family::Int),
            _ => None,
        }
    }

    /// The display scale of a numeric expression in the rows where the expression is finite. None: not known.
    pub fn display_scale(node: &Node, columns: &[Option<Column>]) -> Option<Self> {
        Compile { columns, interprets: true }.display_scale(node).map(|root| Self { root, scale: 0 })
    }

    pub fn scale(&self) -> u32 {
        self.scale
    }

    /// Compiles both sides of a comparison, with the same scale. None: some subexpression is not supported.
    pub fn pair(domain: Domain, left: &Node, right: &Node, columns: &[Option<Column>]) -> Option<(Self, Self)> {
        Compile { columns, interprets: false }.pair(domain, left, right)
    }

    /// The same value with more decimals.
    fn rescaled(self, scale: u32) -> Option<Self> {
        let factor = 10i64.checked_pow(scale - self.scale)?;
        let root = match self.root {
            root if factor == 1 => root,
            Number::Null => Number::Null,
            Number::Constant(value) => Number::Constant(value.checked_mul(factor)?),
            root => {
                let (left, right) = (Box::new(root), Box::new(Number::Constant(factor)));
                Number::Binary { operator: Operator::Multiply, kind: ValueKind::Numeric, left, right }
            }
        };
        Some(Self { root, scale })
    }

    /// The value of a constant.
    pub fn constant(&self) -> Option<i64> {
        match self.root {
            Number::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// The slot and the decimals of a plain column.
    pub fn column(&self) -> Option<(Slot, u32)> {
        match self.root {
            Number::Column { slot, scale } => Some((slot, scale)),
            _ => None,
        }
    }

    /// Calls `visit` with columns for which the expression is NULL wherever one of them is NULL.
    pub fn for_each_strict_column(&self, visit: &mut impl FnMut(Slot)) {
        self.root.for_each_strict_column(visit);
    }

    /// Calls `visit` with the requirements under which the expression needs no datums.
    pub fn for_each_requirement(&self, visit: &mut impl FnMut(Slot, ColumnRequirement)) {
        self.root.for_each_requirement(visit);
    }

    pub fn eval<'p>(&'p self, rows: RowSet<'_>, selected: &[u16], cache: &mut EvalCache<'p>) -> Rc<Lanes> {
        self.root.eval(rows, selected, cache)
    }
}

impl Compile<'_> {
    fn number(self, node: &Node, family: Family) -> Option<NumberExpr> {
        self.supported_number(node, family).or_else(|| {
            let root = self.interpreted(node).filter(|_| family == Family::Int)?;
            Some(NumberExpr { root, scale: 0 })
        })
    }

    fn supported_number(self, node: &Node, family: Family) -> Option<NumberExpr> {
        let constant = |value: i64| Some(NumberExpr { root: Number::Constant(value), scale: 0 });
        match node {
            Node::Const(Value::Null) => Some(NumberExpr { root: Number::Null, scale: 0 }),
            Node::Const(Value::Int(value)) => constant(*value),
            Node::Const(Value::Bool(value)) => constant(i64::from(*value)),
            Node::Const(Value::Float(value)) => constant(float_key(*value)),
            Node::Const(Value::Numeric(value)) => {
                let (value, scale) = (0..=8).find_map(|scale| Some((value.scaled_by_ten(scale)?, scale)))?;
                Some(NumberExpr { root: Number::Constant(value), scale })
            }
            Node::Column(slot) => {
                let column = self.columns.get(*slot as usize)?.as_ref()?;
                column.kind.filter(|kind| family.accepts(*kind))?;
                let scale = column.decimals_expected;
                Some(NumberExpr { root: Number::Column { slot: *slot, scale }, scale })
            }
            Node::Call { function, context, args } => match (function.body, args.as_slice()) {
                (FunctionBody::Widen, [arg]) if family.accepts(context.result) => self.number(arg, Family::Int),
                // The scale of a quotient differs between rows.
                (FunctionBody::Arithmetic(Operator::Divide), _) if context.result == ValueKind::Numeric => None,
                (FunctionBody::Arithmetic(operator), [left, right]) if family.accepts(context.result) => {
                    let (left, right) = (self.number(left, family)?, self.number(right, family)?);
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
                    let root = Number::Binary { operator, kind: context.result, left, right };
                    Some(NumberExpr { root, scale })
                }
                _ => None,
            },
            Node::Case { whens, otherwise } => {
                let conditions =
                    whens.iter().map(|(condition, _)| self.condition(condition)).collect::<Option<Vec<_>>>()?;
                let results = whens.iter().map(|(_, result)| result).chain([&**otherwise]);
                let (mut results, scale) = self.with_one_scale(results, family)?;
                let otherwise = Box::new(results.pop()?);
                let whens = conditions.into_iter().zip(results).collect();
                Some(NumberExpr { root: Number::Case { whens, otherwise }, scale })
            }
            Node::Coalesce(args) => {
                let (args, scale) = self.with_one_scale(args.iter(), family)?;
                Some(NumberExpr { root: Number::Coalesce(args), scale })
            }
            Node::Compare { .. }
            | Node::Like { .. }
            | Node::And(_)
            | Node::Or(_)
            | Node::Not(_)
            | Node::IsNull { .. }
            | Node::AnyAll { .. }
            | Node::Test { .. }
            | Node::Distinct { .. }
                if family == Family::Int =>
            {
                let condition = self.supported_condition(node)?;
                Some(NumberExpr { root: Number::Truth(Box::new(condition)), scale: 0 })
            }
            _ => None,
        }
    }

    /// Compiles expressions as numbers with the same scale, which is returned.
    fn with_one_scale<'n>(self, nodes: impl Iterator<Item = &'n Node>, family: Family) -> Option<(Vec<Number>, u32)> {
        let numbers = nodes.map(|node| self.number(node, family)).collect::<Option<Vec<_>>>()?;
        let scale = numbers.iter().map(|number| number.scale).max().unwrap_or(0);
        let rescaled = numbers.into_iter().map(|number| number.rescaled(scale).map(|number| number.root));
        Some((rescaled.collect::<Option<Vec<_>>>()?, scale))
    }

    fn pair(self, domain: Domain, left: &Node, right: &Node) -> Option<(NumberExpr, NumberExpr)> {
        let family = match domain {
            Domain::Int => Family::Int,
            Domain::Float => Family::Float,
            Domain::Numeric => Family::Numeric,
            _ => return None,
        };
        let (left, right) = (self.number(left, family)?, self.number(right, family)?);
        let scale = left.scale.max(right.scale);
        Some((left.rescaled(scale)?, right.rescaled(scale)?))
    }

    fn interpreted(self, node: &Node) -> Option<Number> {
        if !self.interprets {
            return None;
        }
        let mut slots = Vec::new();
        node.for_each_slot(&mut |slot| slots.push(slot));
        slots.sort_unstable();
        slots.dedup();
        let kind = match slots.as_slice() {
            [slot] => self.columns.get(*slot as usize)?.as_ref()?.kind,
            _ => None,
        };
        let only_column = kind.filter(|kind| kind.is_int() || matches!(kind, ValueKind::Text | ValueKind::Bytea));
        Some(Number::Interpreted(Box::new(Interpreted { node: node.clone(), slots, only_column })))
    }

    fn condition(self, node: &Node) -> Option<Condition> {
        self.supported_condition(node).or_else(|| self.interpreted(node).map(Condition::Number))
    }

    fn conditions(self, nodes: &[Node]) -> Option<Vec<Condition>> {
        nodes.iter().map(|node| self.condition(node)).collect()
    }

    fn supported_condition(self, node: &Node) -> Option<Condition> {
        Some(match node {
            Node::Const(Value::Null) => Condition::Constant(UNKNOWN),
            Node::Const(Value::Bool(value)) => Condition::Constant(u8::from(*value)),
            Node::Column(_) | Node::Case { .. } | Node::Coalesce(_) => {
                Condition::Number(self.supported_number(node, Family::Int)?.root)
            }
            Node::Not(arg) => Condition::Not(Box::new(self.condition(arg)?)),
            Node::And(args) => Condition::And(self.conditions(args)?),
            Node::Or(args) => Condition::Or(self.conditions(args)?),
            Node::Test { test, arg } => Condition::Is { test: *test, arg: Box::new(self.condition(arg)?) },
            Node::IsNull { arg, negated } => match &**arg {
                Node::Column(slot) => Condition::ColumnIsNull { slot: *slot, negated: *negated },
                arg => {
                    let exact = Compile { interprets: false, ..self };
                    let number = exact.number(arg, Family::Int).or_else(|| exact.number(arg, Family::Numeric))?;
                    Condition::IsNull { number: number.root, negated: *negated }
                }
            },
            Node::Compare { domain, comparison, left, right } => {
                let tested = match (&**left, &**right) {
                    (Node::Column(slot), Node::Const(constant)) => {
                        ColumnTest::compare(*domain, *comparison, constant).map(|test| (slot, test))
                    }
                    (Node::Const(constant), Node::Column(slot)) => {
                        ColumnTest::compare(domain.mirrored(), comparison.mirrored(), constant).map(|test| (slot, test))
                    }
                    _ => None,
                };
                match tested.filter(|(_, test)| requirement(test).is_some()) {
                    Some((slot, test)) => Condition::Test { slot: *slot, test },
                    None => {
                        let (left, right) = self.pair(*domain, left, right)?;
                        Condition::Compare { comparison: *comparison, left: left.root, right: right.root }
                    }
                }
            }
            Node::Like { value, pattern, negated } => match &**value {
                Node::Column(slot) => {
                    let test = ColumnTest::Like { pattern: pattern.clone(), negated: *negated };
                    Condition::Test { slot: *slot, test }
                }
                _ => return None,
            },
            Node::AnyAll { domain, comparison, any, scalar, elements } => {
                let constants = elements.iter().map(|element| match element {
                    Node::Const(value) if !value.is_null() => Some(value),
                    _ => None,
                });
                let constants = constants.collect::<Option<Vec<_>>>()?;
                let is_list = *comparison == if *any { Comparison::Equal } else { Comparison::NotEqual };
                match &**scalar {
                    // PostgreSQL evaluates the scalar, which may raise an error, even if the list is empty.
                    _ if elements.is_empty() && !scalar.fallible() => Condition::Constant(u8::from(!any)),
                    Node::Column(slot) if is_list && !elements.is_empty() => {
                        let test = ColumnTest::set(*domain, &constants, !any)?;
                        requirement(&test)?;
                        Condition::Test { slot: *slot, test }
                    }
                    _ => return None,
                }
            }
            Node::Distinct { domain, left, right } => {
                let (left, right) = self.pair(*domain, left, right)?;
                Condition::Distinct { left: left.root, right: right.root }
            }
            Node::Const(_) | Node::Call { .. } => return None,
        })
    }

    fn display_scale(self, node: &Node) -> Option<Number> {
        let constant = |scale: u16| Some(Number::Constant(scale.into()));
        match node {
            Node::Const(Value::Null) => constant(0),
            Node::Const(Value::Numeric(value)) => constant(u16::try_from(value.scale).ok()?),
            Node::Column(slot) => match self.columns.get(*slot as usize)?.as_ref()?.decimals {
                Some(decimals) => constant(decimals),
                None => Some(Number::DisplayScale(*slot)),
            },
            Node::Call { function, args, .. } => match (function.body, args.as_slice()) {
                (FunctionBody::Widen, [_]) => constant(0),
                (FunctionBody::Arithmetic(operator), [left, right]) => {
                    let (Number::Constant(left), Number::Constant(right)) =
                        (self.display_scale(left)?, self.display_scale(right)?)
                    else {
                        return None;
                    };
                    let scale = match operator {
                        Operator::Add | Operator::Subtract => left.max(right),
                        Operator::Multiply => left + right,
                        Operator::Divide | Operator::Modulo => return None,
                    };
                    constant(u16::try_from(scale).ok().filter(|scale| *scale <= DISPLAY_SCALE_MAX)?)
                }
                _ => None,
            },
            Node::Case { whens, otherwise } => {
                // The scale of a NULL is not used, so branches that are NULL have the scale of any other branch.
                let is_null = |node: &Node| matches!(node, Node::Const(Value::Null));
                let scales = whens
                    .iter()
                    .filter(|(_, result)| !is_null(result))
                    .map(|(condition, result)| Some((self.condition(condition)?, self.display_scale(result)?)));
                let mut scales = scales.collect::<Option<Vec<_>>>()?;
                let last = if is_null(otherwise) { scales.pop().map(|(_, scale)| scale) } else { None };
                match last {
                    Some(last) => one_of(scales, last),
                    None => one_of(scales, self.display_scale(otherwise)?),
                }
            }
            Node::Coalesce(args) => {
                let (last, args) = args.split_last()?;
                let scales = args.iter().map(|arg| {
                    let number = self.number(arg, Family::Numeric)?.root;
                    Some((Condition::IsNull { number, negated: true }, self.display_scale(arg)?))
                });
                one_of(scales.collect::<Option<Vec<_>>>()?, self.display_scale(last)?)
            }
            _ => None,
        }
    }
}

/// The greatest display scale that PostgreSQL gives a product (`NUMERIC_DSCALE_MAX`).
const DISPLAY_SCALE_MAX: u16 = 0x3fff;

/// A CASE over scales; a constant if all scales are equal.
fn one_of(whens: Vec<(Condition, Number)>, otherwise: Number) -> Option<Number> {
    if matches!(otherwise, Number::Constant(_)) && whens.iter().all(|(_, scale)| *scale == otherwise) {
        return Some(otherwise);
    }
    Some(Number::Case { whens, otherwise: Box::new(otherwise) })
}

/// What a test requires of its column. None: the test is not on integers or strings.
fn requirement(test: &ColumnTest) -> Option<ColumnRequirement> {
    match test {
        ColumnTest::Int(_) | ColumnTest::IntSet { .. } => Some(ColumnRequirement::Numbers { scale: 0 }),
        ColumnTest::Float(_) | ColumnTest::Numeric(_) => None,
        ColumnTest::BytesEqual { .. }
        | ColumnTest::Bytes { .. }
        | ColumnTest::BytesSet { .. }
        | ColumnTest::Like { .. } => Some(ColumnRequirement::Strings),
    }
}

impl Number {
    fn for_each_strict_column(&self, visit: &mut impl FnMut(Slot)) {
        match self {
            Self::Column { slot, .. } => visit(*slot),
            Self::Binary { left, right, .. } => {
                left.for_each_strict_column(visit);
                right.for_each_strict_column(visit);
            }
            _ => {}
        }
    }

    fn for_each_requirement(&self, visit: &mut impl FnMut(Slot, ColumnRequirement)) {
        match self {
            Self::Column { slot, scale } => visit(*slot, ColumnRequirement::Numbers { scale: *scale }),
            Self::Constant(_) | Self::Null => {}
            Self::Binary { left, right, .. } => {
                left.for_each_requirement(visit);
                right.for_each_requirement(visit);
            }
            Self::Case { whens, otherwise } => {
                for (condition, result) in whens {
                    condition.for_each_requirement(visit);
                    result.for_each_requirement(visit);
                }
                otherwise.for_each_requirement(visit);
            }
            Self::Coalesce(args) => args.iter().for_each(|arg| arg.for_each_requirement(visit)),
            Self::Truth(condition) => condition.for_each_requirement(visit),
            // The expression itself requires the numbers of the column.
            Self::DisplayScale(_) => {}
            Self::Interpreted(interpreted) => {
                let requirement = match interpreted.only_column {
                    Some(kind) if kind.is_int() => ColumnRequirement::Numbers { scale: 0 },
                    Some(_) => ColumnRequirement::Strings,
                    None => ColumnRequirement::Datums,
                };
                interpreted.slots.iter().for_each(|slot| visit(*slot, requirement));
            }
        }
    }

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
    /// Compiles a boolean expression. Subexpressions that vectors do not support are interpreted.
    pub fn new(node: &Node, columns: &[Option<Column>], evaluation: Evaluation) -> Option<Self> {
        let compile = Compile { columns, interprets: true };
        match evaluation {
            Evaluation::Vectors => compile.condition(node),
            Evaluation::Interpreter => compile.interpreted(node).map(Self::Number),
        }
    }

    /// As [`NumberExpr::for_each_requirement`].
    pub fn for_each_requirement(&self, visit: &mut impl FnMut(Slot, ColumnRequirement)) {
        match self {
            Self::Constant(_) => {}
            Self::Number(number) | Self::IsNull { number, .. } => number.for_each_requirement(visit),
            Self::Test { slot, test } => visit(*slot, requirement(test).unwrap_or(ColumnRequirement::Datums)),
            Self::ColumnIsNull { slot, .. } => visit(*slot, ColumnRequirement::Nulls),
            Self::Compare { left, right, .. } | Self::Distinct { left, right } => {
                left.for_each_requirement(visit);
                right.for_each_requirement(visit);
            }
            Self::And(args) | Self::Or(args) => args.iter().for_each(|arg| arg.for_each_requirement(visit)),
            Self::Not(arg) | Self::Is { arg, .. } => arg.for_each_requirement(visit),
        }
    }

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
        (CodeEncoding::Strings(strings), test) => {
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
