//! Storage predicates on the wire: Postgres expressions over one relation's columns, in postfix order.
//!
//! A function or operator is identified by the OID of its `pg_proc` row, which is fixed for built-in functions. An
//! expression has exactly the result that Postgres's executor computes, NULLs and errors included. A cell refuses a
//! request with a function that it does not implement.

use crate::bytes::{Corrupt, Reader, Write};
use crate::postgres::{AttributeNumber, Collation, Oid};

/// Maximum nesting depth that the decoder accepts. Postgres evaluates deeper predicates itself.
pub const DEPTH_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BooleanTest {
    IsTrue = 0,
    IsNotTrue = 1,
    IsFalse = 2,
    IsNotFalse = 3,
    IsUnknown = 4,
    IsNotUnknown = 5,
}

impl BooleanTest {
    /// The numbering is that of `BoolTestType` in `nodes/primnodes.h`.
    pub fn from_u8(value: u8) -> Option<Self> {
        use BooleanTest::*;
        [IsTrue, IsNotTrue, IsFalse, IsNotFalse, IsUnknown, IsNotUnknown].into_iter().find(|test| *test as u8 == value)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    Column(AttributeNumber),
    /// `value` is None for NULL. Fixed-width types: `typlen` bytes as in a tuple. Varlena types: the detoasted payload
    /// without the header.
    Const {
        type_oid: Oid,
        value: Option<Vec<u8>>,
    },
    /// A function or operator; strict unless its definition says otherwise.
    Call {
        function: Oid,
        collation: Collation,
        args: Vec<Expr>,
    },
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    IsNull(Box<Expr>),
    IsNotNull(Box<Expr>),
    /// `scalar function ANY (array)` when `any`, else `scalar function ALL (array)`; the array's elements are
    /// expressions without columns.
    AnyAll {
        function: Oid,
        collation: Collation,
        any: bool,
        scalar: Box<Expr>,
        elements: Vec<Expr>,
    },
    /// `scalar function ANY (array)` for an equality operator of integers and an array of integers without NULLs.
    AnyInteger {
        function: Oid,
        scalar: Box<Expr>,
        integers: Integers,
    },
    BooleanTest {
        test: BooleanTest,
        arg: Box<Expr>,
    },
    /// `left IS DISTINCT FROM right`, where `equal` is the type's equality function.
    Distinct {
        equal: Oid,
        collation: Collation,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    Coalesce(Vec<Expr>),
    /// A searched CASE: pairs of condition and result, and the ELSE result.
    Case {
        whens: Vec<(Expr, Expr)>,
        otherwise: Box<Expr>,
    },
}

/// A set of integers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Integers {
    /// In any order, possibly with duplicates.
    List(Vec<i64>),
    /// Bit `i % 64` of word `i / 64` says whether the set contains `first + i`.
    Bitmap { first: i64, words: Vec<u64> },
}

impl Integers {
    /// Chooses the shorter form.
    pub fn new(mut values: Vec<i64>) -> Self {
        let (Some(&first), Some(&last)) = (values.iter().min(), values.iter().max()) else { return Self::List(values) };
        let span = last.wrapping_sub(first) as u64;
        if span / 64 < values.len() as u64 {
            let mut words = vec![0; (span / 64 + 1) as usize];
            for value in values {
                let at = value.wrapping_sub(first) as u64;
                words[(at / 64) as usize] |= 1 << (at % 64);
            }
            return Self::Bitmap { first, words };
        }
        values.sort_unstable();
        values.dedup();
        Self::List(values)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::List(values) => {
                out.put_u8(0);
                out.put_u32(values.len() as u32);
                values.iter().for_each(|value| out.put_u64(*value as u64));
            }
            Self::Bitmap { first, words } => {
                out.put_u8(1);
                out.put_u64(*first as u64);
                out.put_u32(words.len() as u32);
                words.iter().for_each(|word| out.put_u64(*word));
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let at = reader.position();
        let form = reader.u8("form of a set of integers")?;
        let first = match form {
            0 => None,
            1 => Some(reader.u64("first integer")? as i64),
            other => return Err(Corrupt::new("form of a set of integers", at, other.to_string())),
        };
        let count = reader.u32("number of integers")? as usize;
        let (numbers, _) = reader.take(count.saturating_mul(8), "integers")?.as_chunks();
        let words = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes));
        match first {
            None => Ok(Self::List(words.map(|word| word as i64).collect())),
            Some(first) if first.checked_add(64 * count as i64).is_none() => {
                Err(Corrupt::new("first integer", at, first.to_string()))
            }
            Some(first) => Ok(Self::Bitmap { first, words: words.collect() }),
        }
    }
}

mod op {
    pub const COLUMN: u8 = 1;
    pub const CONST: u8 = 2;
    pub const CALL: u8 = 3;
    pub const AND: u8 = 4;
    pub const OR: u8 = 5;
    pub const NOT: u8 = 6;
    pub const IS_NULL: u8 = 7;
    pub const IS_NOT_NULL: u8 = 8;
    pub const ANY_ALL: u8 = 9;
    pub const BOOLEAN_TEST: u8 = 10;
    pub const DISTINCT: u8 = 11;
    pub const COALESCE: u8 = 12;
    pub const CASE: u8 = 13;
    pub const ANY_INTEGER: u8 = 14;
}

impl Expr {
    /// Calls `visit` for each column reference; a column that occurs twice is visited twice.
    pub fn for_each_column(&self, visit: &mut impl FnMut(AttributeNumber)) {
        match self {
            Self::Column(number) => visit(*number),
            _ => self.for_each_child(&mut |child| child.for_each_column(visit)),
        }
    }

    fn for_each_child(&self, visit: &mut impl FnMut(&Expr)) {
        match self {
            Self::Column(_) | Self::Const { .. } => {}
            Self::Call { args, .. } | Self::And(args) | Self::Or(args) | Self::Coalesce(args) => {
                args.iter().for_each(visit)
            }
            Self::Not(arg)
            | Self::IsNull(arg)
            | Self::IsNotNull(arg)
            | Self::BooleanTest { arg, .. }
            | Self::AnyInteger { scalar: arg, .. } => visit(arg),
            Self::AnyAll { scalar, elements, .. } => {
                visit(scalar);
                elements.iter().for_each(visit);
            }
            Self::Distinct { left, right, .. } => {
                visit(left);
                visit(right);
            }
            Self::Case { whens, otherwise } => {
                for (condition, result) in whens {
                    visit(condition);
                    visit(result);
                }
                visit(otherwise);
            }
        }
    }

    /// Appends the expression's operations in postfix order.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.for_each_child(&mut |child| child.encode(out));
        match self {
            Self::Column(number) => encode_column(out, *number),
            Self::Const { type_oid, value } => encode_const(out, *type_oid, value.as_deref()),
            Self::Call { function, collation, args } => encode_call(out, *function, *collation, args.len() as u16),
            Self::And(args) => encode_and(out, args.len() as u16),
            Self::Or(args) => encode_or(out, args.len() as u16),
            Self::Not(_) => encode_not(out),
            Self::IsNull(_) => encode_is_null(out, true),
            Self::IsNotNull(_) => encode_is_null(out, false),
            Self::AnyAll { function, collation, any, elements, .. } => {
                encode_any_all(out, *function, *collation, *any, elements.len() as u32)
            }
            Self::AnyInteger { function, integers, .. } => encode_any_integer(out, *function, integers),
            Self::BooleanTest { test, .. } => encode_boolean_test(out, *test),
            Self::Distinct { equal, collation, .. } => encode_distinct(out, *equal, *collation),
            Self::Coalesce(args) => encode_coalesce(out, args.len() as u16),
            Self::Case { whens, .. } => encode_case(out, whens.len() as u16),
        }
    }

    /// Decodes a postfix program. The program must leave exactly one expression on the stack.
    pub fn decode(program: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(program);
        let mut stack = Stack::default();
        while reader.remaining() > 0 {
            stack.step(&mut reader)?;
        }
        match (stack.items.pop(), stack.items.len()) {
            (Some((expr, _)), 0) => Ok(expr),
            (last, below) => {
                let depth = below + usize::from(last.is_some());
                Err(Corrupt::new("expression", program.len(), format!("{depth} results on the stack")))
            }
        }
    }
}

/// The decoder's stack: expressions with their nesting depths.
#[derive(Default)]
struct Stack {
    items: Vec<(Expr, usize)>,
}

impl Stack {
    fn step(&mut self, reader: &mut Reader<'_>) -> Result<(), Corrupt> {
        let at = reader.position();
        match reader.u8("operation")? {
            op::COLUMN => {
                let number = reader.u16("column")?;
                self.items.push((Expr::Column(number), 1));
            }
            op::CONST => {
                let type_oid = reader.u32("constant type")?;
                let is_null = reader.bool("constant null flag")?;
                let bytes = reader.blob("constant")?;
                let value = (!is_null).then(|| bytes.to_vec());
                self.items.push((Expr::Const { type_oid, value }, 1));
            }
            op::CALL => {
                let function = reader.u32("function")?;
                let collation = collation(reader)?;
                let count = reader.u16("argument count")?;
                self.combine(at, count as usize, |args| Expr::Call { function, collation, args })?;
            }
            op::AND => {
                let count = reader.u16("operand count")?;
                self.combine(at, count as usize, Expr::And)?;
            }
            op::OR => {
                let count = reader.u16("operand count")?;
                self.combine(at, count as usize, Expr::Or)?;
            }
            op::COALESCE => {
                let count = reader.u16("operand count")?;
                self.combine(at, count as usize, Expr::Coalesce)?;
            }
            op::NOT => self.unary(at, Expr::Not)?,
            op::IS_NULL => self.unary(at, Expr::IsNull)?,
            op::IS_NOT_NULL => self.unary(at, Expr::IsNotNull)?,
            op::BOOLEAN_TEST => {
                let value = reader.u8("boolean test")?;
                let test =
                    BooleanTest::from_u8(value).ok_or_else(|| Corrupt::new("boolean test", at, value.to_string()))?;
                self.unary(at, |arg| Expr::BooleanTest { test, arg })?;
            }
            op::ANY_ALL => {
                let function = reader.u32("function")?;
                let collation = collation(reader)?;
                let any = reader.bool("any flag")?;
                let count = reader.u32("element count")? as usize;
                self.combine(at, count.saturating_add(1), |mut args| {
                    let elements = args.split_off(1);
                    let scalar = Box::new(args.remove(0));
                    Expr::AnyAll { function, collation, any, scalar, elements }
                })?;
            }
            op::ANY_INTEGER => {
                let function = reader.u32("function")?;
                let integers = Integers::decode(reader)?;
                self.unary(at, |scalar| Expr::AnyInteger { function, scalar, integers })?;
            }
            op::DISTINCT => {
                let equal = reader.u32("function")?;
                let collation = collation(reader)?;
                self.combine(at, 2, |mut args| {
                    let right = Box::new(args.remove(1));
                    let left = Box::new(args.remove(0));
                    Expr::Distinct { equal, collation, left, right }
                })?;
            }
            op::CASE => {
                let count = reader.u16("branch count")? as usize;
                self.combine(at, 2 * count + 1, |mut args| {
                    let otherwise = Box::new(args.remove(2 * count));
                    let mut args = args.into_iter();
                    let mut whens = Vec::with_capacity(count);
                    while let (Some(condition), Some(result)) = (args.next(), args.next()) {
                        whens.push((condition, result));
                    }
                    Expr::Case { whens, otherwise }
                })?;
            }
            other => return Err(Corrupt::new("operation", at, other.to_string())),
        }
        Ok(())
    }

    fn combine(&mut self, at: usize, count: usize, build: impl FnOnce(Vec<Expr>) -> Expr) -> Result<(), Corrupt> {
        let Some(first) = self.items.len().checked_sub(count) else {
            let found = format!("{count} operands needed, {} on the stack", self.items.len());
            return Err(Corrupt::new("expression", at, found));
        };
        let operands = self.items.split_off(first);
        let depth = operands.iter().map(|(_, depth)| *depth).max().unwrap_or(0) + 1;
        if depth > DEPTH_MAX {
            return Err(Corrupt::new("expression", at, format!("nested deeper than {DEPTH_MAX}")));
        }
        self.items.push((build(operands.into_iter().map(|(expr, _)| expr).collect()), depth));
        Ok(())
    }

    fn unary(&mut self, at: usize, build: impl FnOnce(Box<Expr>) -> Expr) -> Result<(), Corrupt> {
        self.combine(at, 1, |mut args| build(Box::new(args.remove(0))))
    }
}

fn collation(reader: &mut Reader<'_>) -> Result<Collation, Corrupt> {
    let at = reader.position();
    let value = reader.u8("collation")?;
    Collation::from_u8(value).ok_or_else(|| Corrupt::new("collation", at, value.to_string()))
}

pub fn encode_column(out: &mut Vec<u8>, number: AttributeNumber) {
    out.put_u8(op::COLUMN);
    out.put_u16(number);
}

pub fn encode_const(out: &mut Vec<u8>, type_oid: Oid, value: Option<&[u8]>) {
    out.put_u8(op::CONST);
    out.put_u32(type_oid);
    out.put_bool(value.is_none());
    out.put_blob(value.unwrap_or_default());
}

pub fn encode_call(out: &mut Vec<u8>, function: Oid, collation: Collation, args: u16) {
    out.put_u8(op::CALL);
    out.put_u32(function);
    out.put_u8(collation as u8);
    out.put_u16(args);
}

pub fn encode_and(out: &mut Vec<u8>, operands: u16) {
    out.put_u8(op::AND);
    out.put_u16(operands);
}

pub fn encode_or(out: &mut Vec<u8>, operands: u16) {
    out.put_u8(op::OR);
    out.put_u16(operands);
}

pub fn encode_not(out: &mut Vec<u8>) {
    out.put_u8(op::NOT);
}

pub fn encode_is_null(out: &mut Vec<u8>, is_null: bool) {
    out.put_u8(if is_null { op::IS_NULL } else { op::IS_NOT_NULL });
}

pub fn encode_any_all(out: &mut Vec<u8>, function: Oid, collation: Collation, any: bool, elements: u32) {
    out.put_u8(op::ANY_ALL);
    out.put_u32(function);
    out.put_u8(collation as u8);
    out.put_bool(any);
    out.put_u32(elements);
}

pub fn encode_any_integer(out: &mut Vec<u8>, function: Oid, integers: &Integers) {
    out.put_u8(op::ANY_INTEGER);
    out.put_u32(function);
    integers.encode(out);
}

pub fn encode_boolean_test(out: &mut Vec<u8>, test: BooleanTest) {
    out.put_u8(op::BOOLEAN_TEST);
    out.put_u8(test as u8);
}

pub fn encode_distinct(out: &mut Vec<u8>, equal: Oid, collation: Collation) {
    out.put_u8(op::DISTINCT);
    out.put_u32(equal);
    out.put_u8(collation as u8);
}

pub fn encode_coalesce(out: &mut Vec<u8>, operands: u16) {
    out.put_u8(op::COALESCE);
    out.put_u16(operands);
}

pub fn encode_case(out: &mut Vec<u8>, branches: u16) {
    out.put_u8(op::CASE);
    out.put_u16(branches);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_decodes_to_its_equal() {
        let column = || Expr::Column(3);
        let constant = |value: i32| Expr::Const { type_oid: 23, value: Some(value.to_le_bytes().to_vec()) };
        let call = |args| Expr::Call { function: 66, collation: Collation::None, args };
        let expr = Expr::And(vec![
            Expr::Or(vec![call(vec![column(), constant(5)]), Expr::IsNull(Box::new(column()))]),
            Expr::Not(Box::new(Expr::AnyAll {
                function: 65,
                collation: Collation::None,
                any: true,
                scalar: Box::new(column()),
                elements: vec![constant(1), Expr::Const { type_oid: 23, value: None }],
            })),
            Expr::Case {
                whens: vec![(call(vec![column(), constant(1)]), call(vec![column(), constant(2)]))],
                otherwise: Box::new(column()),
            },
        ]);
        let mut program = Vec::new();
        expr.encode(&mut program);
        assert_eq!(Expr::decode(&program).unwrap(), expr);
    }

    #[test]
    fn a_truncated_program_is_corrupt_and_never_panics() {
        let expr = Expr::Not(Box::new(Expr::Const { type_oid: 16, value: Some(vec![1]) }));
        let mut program = Vec::new();
        expr.encode(&mut program);
        for length in 0..program.len() - 1 {
            Expr::decode(&program[..length]).unwrap_err();
        }
    }
}
