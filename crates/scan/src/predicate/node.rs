//! Compiled expressions, interpreted row by row. The interpreter defines the meaning of expressions; kernels must
//! agree.
//!
//! Evaluation follows `executor/execExprInterp.c`: strict functions, three-valued logic, and short circuits from left
//! to right. [`Undecided`] is returned where PostgreSQL would raise an error, and for values that are not in the page.
//! Like an error, it ends the evaluation of the row.

use super::functions::{Context, Function, FunctionBody, JsonPath, Operator, calculate, takes_length, widened};
use super::like::Pattern;
use super::rows::Row;
use crate::bounds::IntSet;
use crate::heap::Slot;
use crate::value::{Comparison, Domain, EvalResult, Undecided, Value, compare};
use cellar_format::wire::BooleanTest;
use smallvec::SmallVec;
use std::sync::Arc;

/// A compiled expression.
#[derive(Clone, PartialEq)]
pub enum Node {
    Const(Value<'static>),
    Column(Slot),
    Compare {
        domain: Domain,
        comparison: Comparison,
        left: Box<Node>,
        right: Box<Node>,
    },
    /// LIKE with a constant, valid pattern.
    Like {
        value: Box<Node>,
        pattern: Pattern,
        negated: bool,
    },
    Call {
        function: &'static Function,
        context: Context,
        args: Vec<Node>,
    },
    JsonPath(JsonPath),
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    IsNull {
        arg: Box<Node>,
        negated: bool,
    },
    AnyAll {
        domain: Domain,
        comparison: Comparison,
        any: bool,
        scalar: Box<Node>,
        elements: Vec<Node>,
    },
    /// Whether an integer is in a set.
    AnyInteger {
        scalar: Box<Node>,
        values: Arc<IntSet>,
    },
    Test {
        test: BooleanTest,
        arg: Box<Node>,
    },
    Distinct {
        domain: Domain,
        left: Box<Node>,
        right: Box<Node>,
    },
    Coalesce(Vec<Node>),
    Case {
        whens: Vec<(Node, Node)>,
        otherwise: Box<Node>,
    },
}

/// A boolean value or NULL.
type Truth = Option<bool>;

fn truth(value: Value<'_>) -> Result<Truth, Undecided> {
    match value {
        Value::Null => Ok(None),
        Value::Bool(value) => Ok(Some(value)),
        _ => Err(Undecided),
    }
}

fn from_truth<'a>(truth: Truth) -> Value<'a> {
    truth.map_or(Value::Null, Value::Bool)
}

fn compared(domain: Domain, comparison: Comparison, left: &Value<'_>, right: &Value<'_>) -> Result<Truth, Undecided> {
    if left.is_null() || right.is_null() {
        return Ok(None);
    }
    compare(domain, left, right).map(|ordering| Some(comparison.holds(ordering))).ok_or(Undecided)
}

impl Node {
    /// Whether the expression is true; false and NULL do not qualify.
    pub fn qualifies(&self, row: &Row<'_>) -> Result<bool, Undecided> {
        Ok(truth(self.eval(row)?)? == Some(true))
    }

    pub fn eval<'a>(&'a self, row: &Row<'a>) -> EvalResult<'a> {
        match self {
            Self::Const(value) => Ok(value.borrowed()),
            Self::Column(slot) => row.value(*slot),
            Self::Compare { domain, comparison, left, right } => {
                let (left, right) = (left.eval(row)?, right.eval(row)?);
                compared(*domain, *comparison, &left, &right).map(from_truth)
            }
            Self::Like { value, pattern, negated } => match value.eval(row)? {
                Value::Null => Ok(Value::Null),
                Value::Bytes(text) => Ok(Value::Bool(pattern.matches(&text) != *negated)),
                _ => Err(Undecided),
            },
            Self::Call { function, context, args } => {
                let mut values: SmallVec<[Value<'a>; 3]> = SmallVec::new();
                for arg in args {
                    values.push(arg.eval(row)?);
                }
                // As PostgreSQL does, evaluate all arguments before checking for NULL.
                if values.iter().any(Value::is_null) {
                    return Ok(Value::Null);
                }
                call(function, context, &mut values)
            }
            Self::JsonPath(path) => path.of(path.document().eval(row)?),
            Self::And(args) => {
                let mut result = Some(true);
                for arg in args {
                    match truth(arg.eval(row)?)? {
                        Some(false) => return Ok(Value::Bool(false)),
                        Some(true) => {}
                        None => result = None,
                    }
                }
                Ok(from_truth(result))
            }
            Self::Or(args) => {
                let mut result = Some(false);
                for arg in args {
                    match truth(arg.eval(row)?)? {
                        Some(true) => return Ok(Value::Bool(true)),
                        Some(false) => {}
                        None => result = None,
                    }
                }
                Ok(from_truth(result))
            }
            Self::Not(arg) => Ok(from_truth(truth(arg.eval(row)?)?.map(|value| !value))),
            Self::IsNull { arg, negated } => {
                let is_null = match &**arg {
                    Self::Column(slot) => row.is_null(*slot)?,
                    arg => arg.eval(row)?.is_null(),
                };
                Ok(Value::Bool(is_null != *negated))
            }
            Self::AnyAll { domain, comparison, any, scalar, elements } => {
                let scalar = scalar.eval(row)?;
                any_all(*domain, *comparison, *any, &scalar, elements, row)
            }
            Self::AnyInteger { scalar, values } => match scalar.eval(row)? {
                Value::Null => Ok(Value::Null),
                Value::Int(value) => Ok(Value::Bool(values.contains(value))),
                _ => Err(Undecided),
            },
            Self::Test { test, arg } => {
                let value = truth(arg.eval(row)?)?;
                Ok(Value::Bool(match test {
                    BooleanTest::IsTrue => value == Some(true),
                    BooleanTest::IsNotTrue => value != Some(true),
                    BooleanTest::IsFalse => value == Some(false),
                    BooleanTest::IsNotFalse => value != Some(false),
                    BooleanTest::IsUnknown => value.is_none(),
                    BooleanTest::IsNotUnknown => value.is_some(),
                }))
            }
            Self::Distinct { domain, left, right } => {
                let (left, right) = (left.eval(row)?, right.eval(row)?);
                Ok(Value::Bool(match (left.is_null(), right.is_null()) {
                    (true, true) => false,
                    (false, false) => compare(*domain, &left, &right).ok_or(Undecided)?.is_ne(),
                    _ => true,
                }))
            }
            Self::Coalesce(args) => {
                for arg in args {
                    let value = arg.eval(row)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Ok(Value::Null)
            }
            Self::Case { whens, otherwise } => {
                for (condition, result) in whens {
                    if truth(condition.eval(row)?)? == Some(true) {
                        return result.eval(row);
                    }
                }
                otherwise.eval(row)
            }
        }
    }

    /// Calls `visit` with the slots of the columns that the expression reads; some of them may be visited several times.
    pub fn for_each_slot(&self, visit: &mut impl FnMut(Slot)) {
        match self {
            Self::Const(_) => {}
            Self::Column(slot) => visit(*slot),
            Self::Compare { left, right, .. } | Self::Distinct { left, right, .. } => {
                left.for_each_slot(visit);
                right.for_each_slot(visit);
            }
            Self::Like { value: arg, .. }
            | Self::Not(arg)
            | Self::IsNull { arg, .. }
            | Self::Test { arg, .. }
            | Self::AnyInteger { scalar: arg, .. } => {
                arg.for_each_slot(visit);
            }
            Self::JsonPath(path) => path.document().for_each_slot(visit),
            Self::Call { args, .. } | Self::And(args) | Self::Or(args) | Self::Coalesce(args) => {
                args.iter().for_each(|arg| arg.for_each_slot(visit));
            }
            Self::AnyAll { scalar, elements, .. } => {
                scalar.for_each_slot(visit);
                elements.iter().for_each(|element| element.for_each_slot(visit));
            }
            Self::Case { whens, otherwise } => {
                for (condition, result) in whens {
                    condition.for_each_slot(visit);
                    result.for_each_slot(visit);
                }
                otherwise.for_each_slot(visit);
            }
        }
    }

    /// Whether the expression is a quotient, or arithmetic with one.
    pub fn has_quotient(&self) -> bool {
        match self {
            Self::Call { function, args, .. } => match function.body {
                FunctionBody::Arithmetic(Operator::Divide) => true,
                FunctionBody::Arithmetic(_) => args.iter().any(Self::has_quotient),
                _ => false,
            },
            _ => false,
        }
    }

    /// Whether PostgreSQL may raise an error when it evaluates the expression.
    pub fn fallible(&self) -> bool {
        match self {
            Self::Const(_) | Self::Column(_) => false,
            Self::Call { function, args, .. } => {
                function.fallible && !never_fails(function, args) || args.iter().any(Self::fallible)
            }
            Self::JsonPath(path) => path.fallible(),
            Self::Compare { left, right, .. } | Self::Distinct { left, right, .. } => {
                left.fallible() || right.fallible()
            }
            Self::Like { value: arg, .. }
            | Self::Not(arg)
            | Self::IsNull { arg, .. }
            | Self::Test { arg, .. }
            | Self::AnyInteger { scalar: arg, .. } => arg.fallible(),
            Self::And(args) | Self::Or(args) | Self::Coalesce(args) => args.iter().any(Self::fallible),
            Self::AnyAll { scalar, elements, .. } => scalar.fallible() || elements.iter().any(Self::fallible),
            Self::Case { whens, otherwise } => {
                otherwise.fallible()
                    || whens.iter().any(|(condition, result)| condition.fallible() || result.fallible())
            }
        }
    }
}

/// Whether a fallible function raises no error, because of the constants among its arguments.
fn never_fails(function: &Function, args: &[Node]) -> bool {
    match args {
        // Only a negative length is an error. A NULL is not evaluated.
        [_, _, length] if takes_length(function) => match length {
            Node::Const(Value::Int(length)) => *length >= 0,
            Node::Const(Value::Null) => true,
            _ => false,
        },
        _ => false,
    }
}

/// Evaluates `scalar op ANY/ALL (elements)` as `ExecEvalScalarArrayOp` does: a comparison with a NULL element is
/// unknown, and an empty array decides even if the scalar is NULL.
fn any_all<'a>(
    domain: Domain,
    comparison: Comparison,
    any: bool,
    scalar: &Value<'a>,
    elements: &'a [Node],
    row: &Row<'a>,
) -> EvalResult<'a> {
    // The array is built before the operator is applied to any element.
    let values = elements.iter().map(|element| element.eval(row)).collect::<Result<SmallVec<[Value<'a>; 8]>, _>>()?;
    if values.is_empty() {
        return Ok(Value::Bool(!any));
    }
    let mut result = Some(!any);
    for value in &values {
        match compared(domain, comparison, scalar, value)? {
            Some(holds) if holds == any => return Ok(Value::Bool(any)),
            Some(_) => {}
            None => result = None,
        }
    }
    Ok(from_truth(result))
}

/// Calls a function with arguments that are not NULL.
fn call<'a>(function: &Function, context: &Context, args: &mut [Value<'a>]) -> EvalResult<'a> {
    match (function.body, &*args) {
        (FunctionBody::Scalar(scalar), _) => scalar(args, context),
        (FunctionBody::Arithmetic(operator), [left, right]) => calculate(operator, left, right, context.result),
        (FunctionBody::Widen, [value]) => widened(value, context.result),
        (FunctionBody::Compare(domain, comparison), [left, right]) => {
            compared(domain, comparison, left, right).map(from_truth)
        }
        (FunctionBody::ThreeWay(domain), [left, right]) => {
            compare(domain, left, right).map(|ordering| Value::Int(ordering as i64)).ok_or(Undecided)
        }
        (FunctionBody::Like { negated, .. }, [Value::Bytes(text), Value::Bytes(pattern)]) => {
            let pattern = Pattern::new(pattern, context.encoding).ok_or(Undecided)?;
            Ok(Value::Bool(pattern.matches(text) != negated))
        }
        _ => Err(Undecided),
    }
}

#[cfg(test)]
mod tests {
    use super::super::functions::{self, SUBSTR};
    use super::*;

    #[test]
    fn substring_fails_only_for_a_length_that_may_be_negative() {
        let int = |value| Node::Const(Value::Int(value));
        let substr = functions::find(SUBSTR).unwrap();
        let fails = |length| !never_fails(substr, &[Node::Column(0), int(-3), length]);
        assert!(!fails(int(0)) && !fails(int(2)) && !fails(Node::Const(Value::Null)));
        assert!(fails(int(-1)) && fails(Node::Column(1)));
    }
}
