//! The functions and operators that the cell evaluates: the only list of what can be offloaded.
//!
//! A function is identified by the OID of its `pg_proc` row, which is the same in PostgreSQL 15 to 18. All functions
//! are strict: the caller returns NULL if an argument is NULL. A cast of text is a call of the type's input function. A function
//! returns [`Undecided`] where PostgreSQL would raise an error or where PostgreSQL's result is not certain. Source: `catalog/pg_proc.dat`.

mod compare;
mod datetime;
mod float;
mod input;
mod integer;
mod json_path;
mod jsonb;
mod numeric;
mod text;
mod unary;

pub use datetime::{DatePart, FINITE_DATES, knows_field, takes_field};
pub use json_path::JsonPath;
#[cfg(test)]
pub use text::SUBSTR;
pub use text::{
    LOWER, TextEncoding, is_prefix_test, keeping_non_ascii, knows_regular_expression, takes_length,
    takes_regular_expression,
};

pub use float::{double, single, to_integer, to_single, truncated};
pub use unary::Unary;

use crate::value::{Comparison, Domain, EvalResult, Numeric, Undecided, Value, ValueKind};
use cellar_format::postgres::{Collation, Oid};

/// Requirement of a function on its collation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollationNeed {
    /// The result does not depend on the collation.
    Any,
    /// Only equal bytes are equal.
    Deterministic,
    /// The order is byte order.
    Bytewise,
    /// As [`Self::Deterministic`]; also, changing the case of an ASCII letter gives an ASCII letter, which the caller
    /// must ensure.
    Cased,
}

impl CollationNeed {
    pub fn met_by(self, collation: Collation) -> bool {
        match self {
            Self::Any => true,
            Self::Deterministic | Self::Cased => matches!(collation, Collation::Bytewise | Collation::Deterministic),
            Self::Bytewise => collation == Collation::Bytewise,
        }
    }
}

/// Context of a function call, besides the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    pub encoding: TextEncoding,
    pub result: ValueKind,
}

pub type Scalar = for<'a> fn(&mut [Value<'a>], &Context) -> EvalResult<'a>;

/// Evaluation of a function.
#[derive(Clone, Copy)]
pub enum FunctionBody {
    Compare(Domain, Comparison),
    /// A btree support function that returns -1, 0 or 1. Functions that return other differences are not offloadable.
    ThreeWay(Domain),
    Like {
        /// Whether `_` stands for a character rather than a byte.
        characters: bool,
        negated: bool,
        ignores_case: bool,
    },
    /// On two integers, two floats, two numerics, two dates, or a date and a number of days.
    Arithmetic(Operator),
    /// Conversion of a number to a type that can represent it.
    Widen,
    Scalar(Scalar),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    /// Integers only.
    Modulo,
    /// The bits of integers.
    And,
    Or,
    Xor,
    /// The days between two dates.
    DaysBetween,
}

impl Operator {
    /// Whether the operation is one of the four basic operations or the remainder.
    pub fn is_arithmetic(self) -> bool {
        matches!(self, Self::Add | Self::Subtract | Self::Multiply | Self::Divide | Self::Modulo)
    }
}

pub struct Function {
    pub oid: Oid,
    pub name: &'static str,
    pub args: &'static [Oid],
    pub result: Oid,
    pub collation: CollationNeed,
    pub body: FunctionBody,
    /// Whether PostgreSQL may raise an error for some arguments.
    pub fallible: bool,
    /// Whether the function counts characters, which requires an encoding that the cell knows.
    pub characters: bool,
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        // Variants for UTF-8 text that is compared with ASCII text have the identifier 0.
        self.oid == other.oid && self.name == other.name
    }
}

impl Function {
    const fn new(
        oid: Oid,
        name: &'static str,
        args: &'static [Oid],
        result: Oid,
        collation: CollationNeed,
        (body, fallible, characters): (FunctionBody, bool, bool),
    ) -> Self {
        Self { oid, name, args, result, collation, body, fallible, characters }
    }
}

const fn compares(domain: Domain, comparison: Comparison) -> (FunctionBody, bool, bool) {
    (FunctionBody::Compare(domain, comparison), false, false)
}
const fn three_way(domain: Domain) -> (FunctionBody, bool, bool) {
    (FunctionBody::ThreeWay(domain), false, false)
}
const fn like(characters: bool, negated: bool) -> (FunctionBody, bool, bool) {
    (FunctionBody::Like { characters, negated, ignores_case: false }, true, characters)
}
const fn ilike(negated: bool) -> (FunctionBody, bool, bool) {
    (FunctionBody::Like { characters: true, negated, ignores_case: true }, true, true)
}
const fn arithmetic(operator: Operator) -> (FunctionBody, bool, bool) {
    (FunctionBody::Arithmetic(operator), true, false)
}
/// An operation without errors.
const fn bitwise(operator: Operator) -> (FunctionBody, bool, bool) {
    (FunctionBody::Arithmetic(operator), false, false)
}
const fn widen() -> (FunctionBody, bool, bool) {
    (FunctionBody::Widen, false, false)
}
const fn safe(scalar: Scalar) -> (FunctionBody, bool, bool) {
    (FunctionBody::Scalar(scalar), false, false)
}
const fn fallible(scalar: Scalar) -> (FunctionBody, bool, bool) {
    (FunctionBody::Scalar(scalar), true, false)
}
const fn characters(scalar: Scalar) -> (FunctionBody, bool, bool) {
    (FunctionBody::Scalar(scalar), false, true)
}
const fn characters_fallible(scalar: Scalar) -> (FunctionBody, bool, bool) {
    (FunctionBody::Scalar(scalar), true, true)
}

/// A table of functions: OID, C function (`prosrc`), argument types, result type, collation requirement, body.
macro_rules! functions {
    ($($oid:literal $name:ident ($($arg:ident),+) -> $result:ident, $need:ident, $body:expr;)*) => {
        pub(super) static TABLE: &[super::Function] = &[$(super::Function::new(
            $oid,
            stringify!($name),
            &[$(cellar_format::postgres::type_oid::$arg),+],
            cellar_format::postgres::type_oid::$result,
            super::CollationNeed::$need,
            $body,
        )),*];
    };
}
use functions;

pub fn all() -> impl Iterator<Item = &'static Function> {
    let tables = [compare::TABLE, integer::TABLE, float::TABLE, numeric::TABLE, text::TABLE, datetime::TABLE];
    tables.into_iter().chain([jsonb::TABLE, input::TABLE]).flatten()
}

pub fn find(oid: Oid) -> Option<&'static Function> {
    use std::collections::HashMap;
    use std::sync::LazyLock;
    static BY_OID: LazyLock<HashMap<Oid, &'static Function>> =
        LazyLock::new(|| all().map(|function| (function.oid, function)).collect());
    BY_OID.get(&oid).copied()
}

/// Evaluates [`FunctionBody::Arithmetic`].
pub fn calculate<'a>(operator: Operator, left: &Value<'_>, right: &Value<'_>, result: ValueKind) -> EvalResult<'a> {
    match (left, right) {
        (Value::Int(date), Value::Int(days)) if result == ValueKind::Date => {
            datetime::calculate(operator, *date, *days)
        }
        (Value::Int(left), Value::Int(right)) if operator == Operator::DaysBetween => {
            datetime::days_between(*left, *right)
        }
        (Value::Float(left), Value::Float(right)) => float::calculate(operator, *left, *right, result),
        (Value::Int(left), Value::Int(right)) => integer::calculate(operator, *left, *right, result),
        (Value::Numeric(left), Value::Numeric(right)) => numeric::calculate(operator, left, right),
        _ => Err(Undecided),
    }
}

/// Evaluates [`FunctionBody::Widen`].
pub fn widened<'a>(value: &Value<'_>, result: ValueKind) -> EvalResult<'a> {
    match value {
        Value::Bool(value) => Ok(Value::Int(i64::from(*value))),
        Value::Int(value) if result == ValueKind::Numeric => Ok(Value::Numeric(Numeric::from_i64(*value))),
        Value::Int(value) => Ok(Value::Int(*value)),
        _ => Err(Undecided),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_listed_once_and_has_known_types() {
        let mut seen = std::collections::HashSet::new();
        for function in all() {
            assert!(seen.insert(function.oid), "{} twice", function.oid);
            for oid in function.args.iter().chain([&function.result]) {
                assert!(ValueKind::of(*oid).is_some(), "{} with type {oid}", function.name);
            }
        }
    }
}
