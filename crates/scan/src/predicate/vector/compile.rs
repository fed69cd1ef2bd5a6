//! Compiles expression trees to expressions over vectors.

use super::super::column::Column;
use super::super::column_test::ColumnTest;
use super::super::functions::{DatePart, Function, FunctionBody, Operator, Unary};
use super::super::node::Node;
use super::expression::{Condition, Number, NumberExpr, requirement};
use super::interpreted::Interpreted;
use super::truth::UNKNOWN;
use crate::bounds::IntSet;
use crate::value::{Comparison, Domain, Value, ValueKind, float_key};
use std::sync::Arc;

/// What evaluates the expressions of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evaluation {
    Vectors,
    /// The interpreter, row by row. For tests.
    Interpreter,
}

/// What the numbers of an expression stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Int,
    Float,
    Numeric,
}

impl Family {
    fn of(kind: ValueKind) -> Option<Self> {
        [Self::Int, Self::Float, Self::Numeric].into_iter().find(|family| family.accepts(kind))
    }

    fn accepts(self, kind: ValueKind) -> bool {
        match self {
            Self::Int => kind.is_int(),
            Self::Float => matches!(kind, ValueKind::Float4 | ValueKind::Float8),
            Self::Numeric => kind == ValueKind::Numeric,
        }
    }
}

/// How expressions are compiled.
#[derive(Clone, Copy)]
struct Compile<'c> {
    columns: &'c [Option<Column>],
    /// Whether subexpressions that vectors do not support are left to [`Interpreted`].
    interprets: bool,
}

impl NumberExpr {
    /// Compiles an expression of this kind, which is an integer kind, a float or numeric. Integer subexpressions that vectors do not
    /// support are interpreted. None: a float or numeric subexpression is not supported.
    pub fn number(node: &Node, kind: ValueKind, columns: &[Option<Column>]) -> Option<Self> {
        let compile = Compile { columns, interprets: true };
        compile.number(node, Family::of(kind)?)
    }

    /// Compiles a CASE whose results are constant strings: to a number, which is the position of the result in the returned list.
    /// None: not such a CASE, or some condition is not supported.
    pub fn choice(node: &Node, columns: &[Option<Column>]) -> Option<(Self, Vec<Vec<u8>>)> {
        let Node::Case { whens, otherwise } = node else { return None };
        let compile = Compile { columns, interprets: true };
        let mut strings: Vec<Vec<u8>> = Vec::new();
        let mut position = |result: &Node| match result {
            Node::Const(Value::Null) => Some(Number::Null),
            Node::Const(Value::Bytes(bytes)) => {
                let known = strings.iter().position(|string| **string == **bytes);
                let position = known.unwrap_or_else(|| {
                    strings.push(bytes.to_vec());
                    strings.len() - 1
                });
                Some(Number::Constant(position as i64))
            }
            _ => None,
        };
        let whens = whens.iter().map(|(condition, result)| Some((compile.condition(condition)?, position(result)?)));
        let whens = whens.collect::<Option<_>>()?;
        let otherwise = Box::new(position(otherwise)?);
        Some((Self { root: Number::Case { whens, otherwise }, scale: 0 }, strings))
    }

    /// The display scale of a numeric expression in the rows where the expression is finite. None: not known.
    pub fn display_scale(node: &Node, columns: &[Option<Column>]) -> Option<Self> {
        Compile { columns, interprets: true }.display_scale(node).map(|root| Self { root, scale: 0 })
    }

    /// Compiles both sides of a comparison, with the same scale. None: some subexpression is not supported.
    pub fn pair(domain: Domain, left: &Node, right: &Node, columns: &[Option<Column>]) -> Option<(Self, Self)> {
        Compile { columns, interprets: false }.pair(domain, left, right)
    }

    /// The number by which a float is compared.
    fn compared_float(self) -> Self {
        let root = match self.root {
            Number::Null => Number::Null,
            Number::Constant(bits) => Number::Constant(float_key(f64::from_bits(bits as u64))),
            root => {
                let (function, kind) = (Unary::FloatKey, ValueKind::Int8);
                Number::Unary { function, kind, scale: 0, arg: Box::new(root) }
            }
        };
        Self { root, scale: 0 }
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

    /// Compiles a boolean expression that vectors support, with all subexpressions.
    pub fn over_vectors(node: &Node, columns: &[Option<Column>]) -> Option<Self> {
        Compile { columns, interprets: false }.supported_condition(node)
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
            Node::Const(Value::Float(value)) => constant(value.to_bits() as i64),
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
                (FunctionBody::Arithmetic(Operator::Divide), [dividend, divisor])
                    if context.result == ValueKind::Numeric =>
                {
                    self.shifted(dividend, divisor)
                }
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
                (_, [arg, ..]) if family.accepts(context.result) && unary(function, args).is_some() => {
                    self.unary(unary(function, args)?, function, context.result, arg)
                }
                _ if family.accepts(context.result) => {
                    let (part, arg) = date_part(function, args)?;
                    let arg = Box::new(self.number(arg, Family::Int)?.root);
                    Some(NumberExpr { root: Number::DatePart { part, arg }, scale: part.decimals() })
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
            | Node::AnyInteger { .. }
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

    /// Compiles the quotient of a numeric and a constant power of ten. The display scales of other quotients differ between rows,
    /// and so do the values, which are rounded to these scales.
    fn shifted(self, dividend: &Node, divisor: &Node) -> Option<NumberExpr> {
        const DECIMALS_MAX: u32 = 7;
        let Node::Const(Value::Numeric(divisor)) = divisor else { return None };
        let zeroes = (1..=3).find(|zeroes| divisor.scaled_by_ten(0) == Some(10i64.pow(*zeroes)))?;
        let NumberExpr { root, scale } = self.number(dividend, Family::Numeric)?;
        let scale = Some(scale + zeroes).filter(|scale| *scale <= DECIMALS_MAX)?;
        Some(NumberExpr { root: Number::Quotient { dividend: Box::new(root), scale }, scale })
    }

    fn unary(self, unary: Unary, function: &Function, kind: ValueKind, arg: &Node) -> Option<NumberExpr> {
        let NumberExpr { root, scale } = self.number(arg, Family::of(Unary::argument_kind(function)?)?)?;
        let result_scale = match unary {
            Unary::Round { scale: wanted, .. } if wanted >= scale as i32 => return Some(NumberExpr { root, scale }),
            Unary::Round { scale: wanted, .. } => wanted.max(0) as u32,
            Unary::Absolute | Unary::Negative => scale,
            Unary::Same => return Some(NumberExpr { root, scale }),
            _ => 0,
        };
        let root = Number::Unary { function: unary, kind, scale, arg: Box::new(root) };
        Some(NumberExpr { root, scale: result_scale })
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
        if family == Family::Float {
            return Some((left.compared_float(), right.compared_float()));
        }
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
        let only_column = kind.filter(|kind| kind.is_int() || kind.is_payload());
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
                    let families = [Family::Int, Family::Numeric, Family::Float];
                    let number = families.into_iter().find_map(|family| exact.number(arg, family))?;
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
                    scalar if is_list && !elements.is_empty() => match ColumnTest::set(*domain, &constants, !any)? {
                        ColumnTest::IntSet { values, negated } => self.member(scalar, values, negated)?,
                        _ => return None,
                    },
                    _ => return None,
                }
            }
            Node::AnyInteger { scalar, values } => match **scalar {
                Node::Column(slot) => {
                    let test = ColumnTest::IntSet { values: values.clone(), negated: false };
                    Condition::Test { slot, test }
                }
                ref scalar => self.member(scalar, values.clone(), false)?,
            },
            Node::Distinct { domain, left, right } => {
                let (left, right) = self.pair(*domain, left, right)?;
                Condition::Distinct { left: left.root, right: right.root }
            }
            Node::Const(_) | Node::Call { .. } | Node::JsonPath(_) => return None,
        })
    }

    fn member(self, scalar: &Node, values: Arc<IntSet>, negated: bool) -> Option<Condition> {
        let exact = Compile { interprets: false, ..self };
        Some(Condition::In { number: exact.number(scalar, Family::Int)?.root, values, negated })
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
                        _ => return None,
                    };
                    constant(u16::try_from(scale).ok().filter(|scale| *scale <= DISPLAY_SCALE_MAX)?)
                }
                _ => match (unary(function, args), args.as_slice()) {
                    (Some(Unary::Round { scale, .. }), _) => constant(scale.max(0) as u16),
                    (Some(Unary::Same | Unary::Absolute | Unary::Negative), [arg]) => self.display_scale(arg),
                    _ => constant(date_part(function, args)?.0.decimals() as u16),
                },
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

/// Whether calls of the function are evaluated over vectors of numbers, given arguments that are.
pub fn is_vectorized(function: &Function) -> bool {
    match function.body {
        FunctionBody::Arithmetic(Operator::Divide) => ValueKind::of(function.result) != Some(ValueKind::Numeric),
        FunctionBody::Arithmetic(_) | FunctionBody::Widen => true,
        _ if Unary::of(function, Some(&Value::Int(0))).or_else(|| Unary::of(function, None)).is_some() => true,
        _ => DatePart::of(function, None).or_else(|| DatePart::of(function, Some(b"year"))).is_some(),
    }
}

/// The function of its first argument that a call evaluates.
fn unary(function: &Function, args: &[Node]) -> Option<Unary> {
    match args {
        [_] => Unary::of(function, None),
        [_, Node::Const(scale)] => Unary::of(function, Some(scale)),
        _ => None,
    }
}

/// The function of a date or timestamp that a call evaluates, and its argument.
fn date_part<'n>(function: &Function, args: &'n [Node]) -> Option<(DatePart, &'n Node)> {
    match args {
        [arg] => Some((DatePart::of(function, None)?, arg)),
        [Node::Const(Value::Bytes(field)), arg] => Some((DatePart::of(function, Some(field))?, arg)),
        _ => None,
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
