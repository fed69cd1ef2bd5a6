//! Compiles expressions of the wire format: checks types, assigns slots to columns, and looks up functions.
//!
//! Invariant: a compiled expression has exactly PostgreSQL's meaning. Every other expression is [`Unsupported`], with
//! the reason.

use super::column::Column;
use super::functions::{self, Context, Function, FunctionBody, JsonPath, Operator, TextEncoding};
use super::like::Pattern;
use super::node::Node;
use crate::bounds::IntSet;
use crate::heap::{Slot, TupleLayout};
use crate::value::{Comparison, Domain, Value, ValueKind};
use cellar_format::postgres::{AttributeNumber, Collation, Oid};
use cellar_format::wire::{Attribute, Expr};
use std::sync::Arc;

/// The reason why the cell does not evaluate a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// An expression and its type. The type is None for a NULL, and for a column whose type expressions cannot use.
struct Typed {
    node: Node,
    kind: Option<ValueKind>,
}

impl Typed {
    fn bool(node: Node) -> Self {
        Self { node, kind: Some(ValueKind::Bool) }
    }

    fn is_null_constant(&self) -> bool {
        matches!(self.node, Node::Const(Value::Null))
    }
}

/// Compiles the expressions of one request.
pub struct Compiler<'r> {
    pub attributes: &'r [Attribute],
    pub encoding: TextEncoding,
    pub layout: TupleLayout,
    /// The slots of the columns of lookup tables, which follow those of the relation. They have entries in `columns`.
    pub looked_up: Vec<Slot>,
    /// Indexed by column slot.
    pub columns: Vec<Option<Column>>,
}

impl Compiler<'_> {
    /// Compiles a boolean expression.
    pub fn condition(&mut self, expr: &Expr) -> Result<Node, Unsupported> {
        let typed = self.expr(expr)?;
        if typed.kind == Some(ValueKind::Bool) || typed.is_null_constant() {
            return Ok(typed.node);
        }
        Err(Unsupported("a condition is not boolean".into()))
    }

    /// Compiles an expression. The type is None for a NULL or a column whose type expressions cannot use.
    pub fn typed(&mut self, expr: &Expr) -> Result<(Node, Option<ValueKind>), Unsupported> {
        self.expr(expr).map(|typed| (typed.node, typed.kind))
    }

    /// Compiles a sort key and determines the order of its values; `less` is the `<` operator of the order.
    pub fn sort_key(&mut self, expr: &Expr, less: Oid, collation: Collation) -> Result<(Node, Domain), Unsupported> {
        let function = lookup(less, collation)?;
        match function.body {
            FunctionBody::Compare(domain, Comparison::Less)
                if function.args.iter().all(|arg| *arg == function.args[0]) =>
            {
                Ok((self.argument(expr, function, 0)?, domain))
            }
            _ => Err(Unsupported(format!("{} is not a less-than operator", function.name))),
        }
    }

    fn conditions(&mut self, exprs: &[Expr]) -> Result<Vec<Node>, Unsupported> {
        exprs.iter().map(|expr| self.condition(expr)).collect()
    }

    fn expr(&mut self, expr: &Expr) -> Result<Typed, Unsupported> {
        match expr {
            Expr::Column(number) => self.column(*number),
            Expr::Const { type_oid, value } => constant(*type_oid, value.as_deref()),
            Expr::Call { function, collation, args } => self.call(*function, *collation, args),
            Expr::And(args) => Ok(Typed::bool(Node::And(self.conditions(args)?))),
            Expr::Or(args) => Ok(Typed::bool(Node::Or(self.conditions(args)?))),
            Expr::Not(arg) => Ok(Typed::bool(Node::Not(Box::new(self.condition(arg)?)))),
            Expr::IsNull(arg) => self.null_test(arg, false),
            Expr::IsNotNull(arg) => self.null_test(arg, true),
            Expr::AnyAll { function, collation, any, scalar, elements } => {
                self.any_all(*function, *collation, *any, scalar, elements)
            }
            Expr::AnyInteger { function, scalar, integers } => {
                let function = lookup(*function, Collation::None)?;
                let FunctionBody::Compare(Domain::Int, Comparison::Equal) = function.body else {
                    return Err(Unsupported(format!("{} is not an equality operator of integers", function.name)));
                };
                let scalar = Box::new(self.argument(scalar, function, 0)?);
                Ok(Typed::bool(Node::AnyInteger { scalar, values: Arc::new(IntSet::from(integers)) }))
            }
            Expr::BooleanTest { test, arg } => {
                Ok(Typed::bool(Node::Test { test: *test, arg: Box::new(self.condition(arg)?) }))
            }
            Expr::Distinct { equal, collation, left, right } => {
                let function = lookup(*equal, *collation)?;
                let FunctionBody::Compare(domain, Comparison::Equal) = function.body else {
                    return Err(Unsupported(format!("{} is not an equality operator", function.name)));
                };
                let left = Box::new(self.argument(left, function, 0)?);
                let right = Box::new(self.argument(right, function, 1)?);
                Ok(Typed::bool(Node::Distinct { domain, left, right }))
            }
            Expr::Coalesce(args) => {
                let mut kind = None;
                let nodes = args.iter().map(|arg| self.unified(arg, &mut kind)).collect::<Result<_, _>>()?;
                Ok(Typed { node: Node::Coalesce(nodes), kind })
            }
            Expr::Case { whens, otherwise } => {
                let mut kind = None;
                let mut branches = Vec::with_capacity(whens.len());
                for (condition, result) in whens {
                    branches.push((self.condition(condition)?, self.unified(result, &mut kind)?));
                }
                let otherwise = Box::new(self.unified(otherwise, &mut kind)?);
                Ok(Typed { node: Node::Case { whens: branches, otherwise }, kind })
            }
        }
    }

    /// The slot of a column.
    pub fn slot(&mut self, number: AttributeNumber) -> Result<Slot, Unsupported> {
        let index = (number as usize).wrapping_sub(1);
        if index < self.attributes.len() {
            return Ok(self.layout.slot(index));
        }
        let slot = self.looked_up.get(index.wrapping_sub(self.attributes.len()));
        slot.copied().ok_or_else(|| Unsupported(format!("column {number} does not exist")))
    }

    fn column(&mut self, number: AttributeNumber) -> Result<Typed, Unsupported> {
        let slot = self.slot(number)?;
        if let Some(Some(column)) = self.columns.get(slot as usize) {
            return Ok(Typed { node: Node::Column(slot), kind: column.kind });
        }
        let index = number as usize - 1;
        let attribute =
            self.attributes.get(index).ok_or_else(|| Unsupported(format!("column {number} does not exist")))?;
        if self.columns.len() <= slot as usize {
            self.columns.resize_with(slot as usize + 1, || None);
        }
        let column = self.columns[slot as usize].get_or_insert_with(|| Column::new(index, attribute));
        Ok(Typed { node: Node::Column(slot), kind: column.kind })
    }

    fn null_test(&mut self, arg: &Expr, negated: bool) -> Result<Typed, Unsupported> {
        let arg = Box::new(self.expr(arg)?.node);
        Ok(Typed::bool(Node::IsNull { arg, negated }))
    }

    /// Compiles an operand of COALESCE or CASE, and checks that all operands have one type.
    fn unified(&mut self, expr: &Expr, kind: &mut Option<ValueKind>) -> Result<Node, Unsupported> {
        let typed = self.expr(expr)?;
        if typed.is_null_constant() {
            *kind = kind.or(typed.kind);
            return Ok(typed.node);
        }
        match (typed.kind, &kind) {
            (None, _) => Err(Unsupported("COALESCE or CASE has a type that is not offloaded".into())),
            (Some(found), Some(expected)) if found != *expected => {
                Err(Unsupported(format!("COALESCE or CASE has operands of types {expected:?} and {found:?}")))
            }
            (found, _) => {
                *kind = found;
                Ok(typed.node)
            }
        }
    }

    /// Compiles an expression as argument `index` of `function`.
    fn argument(&mut self, expr: &Expr, function: &Function, index: usize) -> Result<Node, Unsupported> {
        let typed = self.expr(expr)?;
        let expected = function.args.get(index).and_then(|oid| ValueKind::of(*oid));
        if typed.kind == expected && expected.is_some() || typed.is_null_constant() {
            return Ok(typed.node);
        }
        let found = typed.kind.map_or("a type that is not offloaded".into(), |kind| format!("{kind:?}"));
        Err(Unsupported(format!("argument {} of {} is {found}", index + 1, function.name)))
    }

    fn call(&mut self, oid: Oid, collation: Collation, args: &[Expr]) -> Result<Typed, Unsupported> {
        let function = lookup(oid, collation)?;
        if args.len() != function.args.len() {
            return Err(Unsupported(format!("{} is called with {} arguments", function.name, args.len())));
        }
        if function.characters && self.encoding == TextEncoding::Opaque {
            return Err(Unsupported(format!("{} is not offloaded in this multibyte encoding", function.name)));
        }
        let mut nodes = Vec::with_capacity(args.len());
        for (index, arg) in args.iter().enumerate() {
            nodes.push(self.argument(arg, function, index)?);
        }
        let result = ValueKind::of(function.result)
            .ok_or_else(|| Unsupported(format!("the result type of {} is not offloaded", function.name)))?;
        let encoding = match function.body {
            FunctionBody::Like { characters: false, .. } => TextEncoding::SingleByte,
            _ => self.encoding,
        };
        check_field(function, &nodes)?;
        check_regular_expression(function, &nodes)?;
        match function.body {
            FunctionBody::Like { ignores_case, .. } => {
                if ignores_case {
                    nodes = nodes.into_iter().map(|node| lowered(node, encoding)).collect();
                }
                // Without `_`, because changing the case of a non-ASCII letter may produce two characters.
                if is_ascii(&nodes[1]) && !matches!(&nodes[1], Node::Const(Value::Bytes(text)) if text.contains(&b'_'))
                {
                    self.keep_non_ascii(&mut nodes[0]);
                }
            }
            FunctionBody::Compare(_, Comparison::Equal | Comparison::NotEqual) => {
                let [left, right] = nodes.as_mut_slice() else {
                    return Err(Unsupported(format!("{} does not have two arguments", function.name)));
                };
                match (is_ascii(left), is_ascii(right)) {
                    (_, true) => self.keep_non_ascii(left),
                    (true, _) => self.keep_non_ascii(right),
                    _ => {}
                }
            }
            _ => {}
        }
        let node = match function.body {
            FunctionBody::Compare(domain, comparison) => {
                let right = Box::new(nodes.remove(1));
                let left = Box::new(nodes.remove(0));
                Node::Compare { domain, comparison, left, right }
            }
            FunctionBody::Scalar(_) if functions::is_prefix_test(function) => match prefix_pattern(&nodes[1]) {
                Some(pattern) => Node::Like { value: Box::new(nodes.remove(0)), pattern, negated: false },
                None => Node::Call { function, context: Context { encoding, result }, args: nodes },
            },
            FunctionBody::Like { negated, .. } => match constant_pattern(&nodes[1], encoding) {
                Some(pattern) => Node::Like { value: Box::new(nodes.remove(0)), pattern, negated },
                None => Node::Call { function, context: Context { encoding, result }, args: nodes },
            },
            _ => {
                let context = Context { encoding, result };
                match JsonPath::new(function, context, nodes) {
                    Ok(path) => Node::JsonPath(path),
                    Err(args) => Node::Call { function, context, args },
                }
            }
        };
        Ok(Typed { node, kind: Some(result) })
    }

    fn any_all(
        &mut self,
        oid: Oid,
        collation: Collation,
        any: bool,
        scalar: &Expr,
        elements: &[Expr],
    ) -> Result<Typed, Unsupported> {
        let function = lookup(oid, collation)?;
        let FunctionBody::Compare(domain, comparison) = function.body else {
            return Err(Unsupported(format!("{} is not offloaded with an array", function.name)));
        };
        let mut scalar = Box::new(self.argument(scalar, function, 0)?);
        let elements =
            elements.iter().map(|element| self.argument(element, function, 1)).collect::<Result<Vec<_>, _>>()?;
        if matches!(comparison, Comparison::Equal | Comparison::NotEqual) && elements.iter().all(is_ascii) {
            self.keep_non_ascii(&mut scalar);
        }
        Ok(Typed::bool(Node::AnyAll { domain, comparison, any, scalar, elements }))
    }

    /// Replaces `lower` or `upper` in a comparison with ASCII text by the variant that keeps non-ASCII letters.
    fn keep_non_ascii(&self, node: &mut Node) {
        if let Node::Call { function, .. } = node
            && self.encoding == TextEncoding::Utf8
            && let Some(other) = functions::keeping_non_ascii(function.oid)
        {
            *function = other;
        }
    }
}

/// An operation on one integer expression.
pub enum IntegerCall<'e> {
    /// `operand operator constant`, of type `kind`.
    WithConstant { operator: Operator, constant: i64, kind: ValueKind, operand: &'e Expr },
    /// Conversion of the operand to a wider integer type.
    Widened(&'e Expr),
}

/// Recognizes operations on one integer expression. The expression must be valid.
pub fn integer_call(expr: &Expr) -> Option<IntegerCall<'_>> {
    let is_integer = |kind: &ValueKind| matches!(kind, ValueKind::Int2 | ValueKind::Int4 | ValueKind::Int8);
    let Expr::Call { function, args, .. } = expr else { return None };
    let function = functions::find(*function)?;
    let kind = ValueKind::of(function.result).filter(is_integer)?;
    if !function.args.iter().all(|arg| ValueKind::of(*arg).as_ref().is_some_and(is_integer)) {
        return None;
    }
    let constant_of = |expr: &Expr| match expr {
        Expr::Const { type_oid, value } => match constant(*type_oid, value.as_deref()).ok()?.node {
            Node::Const(Value::Int(value)) => Some(value),
            _ => None,
        },
        _ => None,
    };
    match (function.body, args.as_slice()) {
        (FunctionBody::Widen, [operand]) => Some(IntegerCall::Widened(operand)),
        (FunctionBody::Arithmetic(operator), [left, right]) if operator.is_arithmetic() => {
            let commutes = matches!(operator, Operator::Add | Operator::Multiply);
            let (operand, constant) = match (constant_of(left).filter(|_| commutes), constant_of(right)) {
                (_, Some(constant)) => (left, constant),
                (Some(constant), None) => (right, constant),
                (None, None) => return None,
            };
            Some(IntegerCall::WithConstant { operator, constant, kind, operand })
        }
        _ => None,
    }
}

fn lookup(oid: Oid, collation: Collation) -> Result<&'static Function, Unsupported> {
    let function = functions::find(oid).ok_or_else(|| Unsupported(format!("function {oid} is not offloaded")))?;
    if !function.collation.met_by(collation) {
        let found = match collation {
            Collation::None => "no collation",
            Collation::Bytewise | Collation::Deterministic => "a collation other than C",
            Collation::Nondeterministic => "a nondeterministic collation",
        };
        return Err(Unsupported(format!("{} is not offloaded under {found}", function.name)));
    }
    Ok(function)
}

fn constant(oid: Oid, value: Option<&[u8]>) -> Result<Typed, Unsupported> {
    let kind = ValueKind::of(oid);
    let value = match (value, kind) {
        (None, _) => Value::Null,
        (Some(bytes), Some(kind)) => {
            let value =
                kind.decode(bytes).ok_or_else(|| Unsupported(format!("a constant of type {oid} is malformed")))?;
            value.into_owned()
        }
        (Some(_), None) => return Err(Unsupported(format!("constants of type {oid} are not offloaded"))),
    };
    Ok(Typed { node: Node::Const(value), kind })
}

fn constant_pattern(node: &Node, encoding: TextEncoding) -> Option<Pattern> {
    match node {
        Node::Const(Value::Bytes(pattern)) => Pattern::new(pattern, encoding),
        _ => None,
    }
}

/// The pattern of the texts that start with a constant.
fn prefix_pattern(node: &Node) -> Option<Pattern> {
    let Node::Const(Value::Bytes(prefix)) = node else { return None };
    let mut pattern = Vec::with_capacity(prefix.len() + 1);
    for byte in prefix.iter() {
        if matches!(byte, b'%' | b'_' | b'\\') {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern.push(b'%');
    Pattern::new(&pattern, TextEncoding::SingleByte)
}

fn is_ascii(node: &Node) -> bool {
    matches!(node, Node::Const(Value::Bytes(text)) if text.is_ascii())
}

/// Returns an expression for the text in lower case.
fn lowered(node: Node, encoding: TextEncoding) -> Node {
    match node {
        Node::Const(Value::Bytes(text)) if text.is_ascii() => {
            Node::Const(Value::Bytes(text.to_ascii_lowercase().into()))
        }
        node => {
            let function = functions::find(functions::LOWER).expect("lower is in the table of functions");
            Node::Call { function, context: Context { encoding, result: ValueKind::Text }, args: vec![node] }
        }
    }
}

/// Checks that `~` and `regexp_replace` have a constant regular expression that the cell knows.
fn check_regular_expression(function: &Function, args: &[Node]) -> Result<(), Unsupported> {
    if !functions::takes_regular_expression(function) {
        return Ok(());
    }
    let known = match &args[1] {
        Node::Const(Value::Bytes(pattern)) => functions::knows_regular_expression(function, pattern),
        Node::Const(Value::Null) => true,
        _ => false,
    };
    if known { Ok(()) } else { Err(Unsupported(format!("{} is not offloaded for this pattern", function.name))) }
}

/// Checks that `extract`, `date_part` and `date_trunc` have a constant field that the cell knows.
fn check_field(function: &Function, args: &[Node]) -> Result<(), Unsupported> {
    if !functions::takes_field(function) {
        return Ok(());
    }
    let known = match &args[0] {
        Node::Const(Value::Bytes(field)) => functions::knows_field(function, field),
        Node::Const(Value::Null) => true,
        _ => false,
    };
    if known { Ok(()) } else { Err(Unsupported(format!("{} is not offloaded for this field", function.name))) }
}
