//! Predicates evaluated column by column over the selected rows.
//!
//! A kernel selects the rows in which its expression is true. A qual does not distinguish false from NULL, so NOT can
//! be pushed down to the tests. Where the order of evaluation matters, because an operand may raise an error, the
//! expression is left to the row-by-row interpreter.

use super::column::Column;
use super::column_test::ColumnTest;
use super::lanes::UNCERTAIN;
use super::node::Node;
use super::rows::{Row, RowSet};
use super::substring_bitmap::SubstringBitmap;
use super::vector::{Condition, EvalCache, NumberExpr, TRUE, UNDECIDED, compared};
use crate::heap::{MISSING, NULL, Slot};
use crate::value::{Comparison, Domain, Value, ValueKind, float_key, numeric};
use cellar_format::postgres::AttributeNumber;
use cellar_format::wire::BooleanTest;

/// A compiled qual.
pub enum Kernel {
    /// True: every row qualifies. False: no row qualifies.
    Constant(bool),
    Column {
        slot: Slot,
        test: ColumnTest,
    },
    /// `IS NULL` if `wanted`, otherwise `IS NOT NULL`.
    Null {
        slot: Slot,
        wanted: bool,
    },
    /// A comparison of two computed numbers. `node` is the same comparison for the interpreter, which decides rows
    /// whose numbers are uncertain.
    Compare {
        left: NumberExpr,
        right: NumberExpr,
        comparison: Comparison,
        node: Box<Node>,
    },
    /// A test of the value of an expression, which the interpreter computes once for each row.
    Expression {
        node: Node,
        test: ColumnTest,
    },
    /// Any other condition over vectors. The interpreter decides, by `node`, the rows that the condition leaves undecided.
    Condition {
        condition: Condition,
        node: Box<Node>,
    },
    And(Vec<Kernel>),
    Or(Vec<Kernel>),
    Interpret(Node),
}

/// What a kernel decides about a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Dropped,
    Selected,
    Undecided,
}

impl From<Option<bool>> for Decision {
    #[inline(always)]
    fn from(passes: Option<bool>) -> Self {
        match passes {
            Some(true) => Self::Selected,
            Some(false) => Self::Dropped,
            None => Self::Undecided,
        }
    }
}

impl Kernel {
    /// Compiles the qual `node`.
    pub fn new(node: Node, columns: &[Option<Column>]) -> Self {
        Self::of_rows_where(&node, true, columns)
    }

    /// The kernel for the rows where `node` is `truth`.
    fn of_rows_where(node: &Node, truth: bool, columns: &[Option<Column>]) -> Self {
        if let Some(kernel) = kernel_where(node, truth, columns) {
            return kernel;
        }
        let node = if truth { node.clone() } else { Node::Not(Box::new(node.clone())) };
        match Condition::over_vectors(&node, columns) {
            Some(condition) => Self::Condition { condition, node: Box::new(node) },
            None => Self::Interpret(node),
        }
    }

    /// Appends the rows of `selected` that qualify to `out`, and the rows that cannot be decided to `undecided`.
    pub fn run(&self, rows: RowSet<'_>, selected: &[u16], out: &mut Vec<u16>, undecided: &mut Vec<u16>) {
        match self {
            Self::Constant(true) => out.extend_from_slice(selected),
            Self::Constant(false) => {}
            Self::Column { slot, test } => run_test(rows, *slot, test, selected, out, undecided),
            Self::Null { slot, wanted } => {
                let decision =
                    |row: u16| Decision::from(rows.row(row).is_null(*slot).ok().map(|is_null| is_null == *wanted));
                select(selected, out, undecided, decision);
            }
            Self::Compare { left, right, comparison, node } => {
                let (marks, flags) = compared(*comparison, left, right, rows, selected);
                let mut marks = marks.into_iter();
                let mut flags = flags.into_iter();
                select(selected, out, undecided, |row| match (marks.next(), flags.next()) {
                    (Some(mark), None | Some(0)) => Decision::from(Some(mark == 1)),
                    (_, Some(flags)) if flags & UNCERTAIN != 0 => interpret(node, rows, row),
                    _ => Decision::Dropped,
                });
            }
            Self::Condition { condition, node } => {
                let truths = condition.eval(rows, selected, &mut EvalCache::default());
                let mut truths = truths.iter();
                select(selected, out, undecided, |row| match truths.next() {
                    Some(&UNDECIDED) | None => interpret(node, rows, row),
                    Some(truth) => Decision::from(Some(*truth == TRUE)),
                });
            }
            Self::Expression { node, test } => {
                select(selected, out, undecided, |row| match node.eval(&rows.row(row)) {
                    Ok(Value::Null) => Decision::Dropped,
                    Ok(value) => Decision::from(test.passes(&value)),
                    Err(_) => Decision::Undecided,
                });
            }
            Self::And(arms) => {
                let mut current = selected.to_vec();
                let mut next = Vec::new();
                for arm in arms {
                    next.clear();
                    arm.run(rows, &current, &mut next, undecided);
                    std::mem::swap(&mut current, &mut next);
                }
                out.extend_from_slice(&current);
            }
            Self::Or(arms) => run_or(arms, rows, selected, out, undecided),
            Self::Interpret(node) => select(selected, out, undecided, |row| interpret(node, rows, row)),
        }
    }

    /// The column, if the kernel interprets an expression of only one column.
    pub fn interpreted_column(&self) -> Option<Slot> {
        let node = match self {
            Self::Condition { node, .. } => node,
            Self::Expression { node, .. } | Self::Interpret(node) => node,
            _ => return None,
        };
        let mut slots = Vec::new();
        node.for_each_slot(&mut |slot| slots.push(slot));
        slots.dedup();
        if let [slot] = slots.as_slice() { Some(*slot) } else { None }
    }

    /// Whether a row passes in which the [`Self::interpreted_column`] has this value. None: undecided.
    pub fn passes_value(&self, value: &Value<'_>) -> Option<bool> {
        let row = Row::of(value);
        match self {
            Self::Expression { node, test } => match node.eval(&row).ok()? {
                Value::Null => Some(false),
                value => test.passes(&value),
            },
            Self::Condition { node, .. } => node.qualifies(&row).ok(),
            Self::Interpret(node) => node.qualifies(&row).ok(),
            _ => None,
        }
    }

    /// The columns whose summary may prune regions.
    pub fn for_each_prunable(&self, visit: &mut impl FnMut(Slot)) {
        match self {
            Self::Column { slot, test } if test.is_prunable() => visit(*slot),
            Self::Null { slot, .. } => visit(*slot),
            Self::And(arms) | Self::Or(arms) => arms.iter().for_each(|arm| arm.for_each_prunable(visit)),
            Self::Constant(_)
            | Self::Column { .. }
            | Self::Compare { .. }
            | Self::Condition { .. }
            | Self::Expression { .. }
            | Self::Interpret(_) => {}
        }
    }

    /// Whether the interpreter evaluates an expression of the kernel for each row.
    pub fn is_interpreted(&self) -> bool {
        match self {
            Self::Expression { .. } | Self::Interpret(_) => true,
            Self::And(arms) | Self::Or(arms) => arms.iter().any(Self::is_interpreted),
            _ => false,
        }
    }

    /// A kernel for the conjunction of two kernels, if both test the same column and one test can replace both tests.
    pub fn fuse(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Column { slot, test }, Self::Column { slot: same, test: other }) if slot == same => {
                Some(Self::Column { slot: *slot, test: test.intersect(other)? })
            }
            _ => None,
        }
    }
}

/// The attribute number of a slot's column.
pub fn number_of(slot: Slot, columns: &[Option<Column>]) -> Option<AttributeNumber> {
    let column = columns.get(slot as usize)?.as_ref()?;
    AttributeNumber::try_from(column.attribute + 1).ok()
}

/// Applies `decision` to each selected row. The loop has no branch on whether a row is selected.
#[inline(always)]
fn select(selected: &[u16], out: &mut Vec<u16>, undecided: &mut Vec<u16>, mut decision: impl FnMut(u16) -> Decision) {
    let start = out.len();
    out.resize(start + selected.len(), 0);
    let mut count = start;
    for &row in selected {
        let decision = decision(row);
        out[count] = row;
        count += usize::from(decision == Decision::Selected);
        if decision == Decision::Undecided {
            undecided.push(row);
        }
    }
    out.truncate(count);
}

/// Applies `test` to the locations of values. Drops NULLs. `missing` is the decision for tuples without the attribute.
#[inline(always)]
fn select_values(
    locations: &[u32; 1 << 16],
    missing: Decision,
    selected: &[u16],
    out: &mut Vec<u16>,
    undecided: &mut Vec<u16>,
    mut test: impl FnMut(usize) -> Decision,
) {
    select(selected, out, undecided, |row| match locations[row as usize] {
        NULL => Decision::Dropped,
        MISSING => missing,
        location => test(location as usize),
    });
}

/// Runs [`Kernel::Column`].
fn run_test(
    rows: RowSet<'_>,
    slot: Slot,
    test: &ColumnTest,
    selected: &[u16],
    out: &mut Vec<u16>,
    undecided: &mut Vec<u16>,
) {
    let Some(column) = rows.column(slot) else {
        return undecided.extend_from_slice(selected);
    };
    let pages = rows.bytes;
    let locations = rows.locations(slot);
    let missing = match &column.missing {
        Ok(Value::Null) => Decision::Dropped,
        Ok(value) => Decision::from(test.passes(value)),
        Err(_) => Decision::Undecided,
    };
    /// A number of four or eight bytes in the page.
    macro_rules! fixed {
        ($type:ty, $location:expr) => {
            pages
                .get($location..$location + size_of::<$type>())
                .and_then(|b| b.try_into().ok())
                .map(<$type>::from_le_bytes)
        };
    }
    macro_rules! values {
        ($test:expr) => {
            select_values(locations, missing, selected, out, undecided, $test)
        };
    }
    match (test, column.kind) {
        (ColumnTest::Int(range), Some(ValueKind::Int4 | ValueKind::Date)) => {
            values!(|at| Decision::from(fixed!(i32, at).map(|value| range.passes(value as i64))))
        }
        (
            ColumnTest::Int(range),
            Some(ValueKind::Int8 | ValueKind::Timestamp | ValueKind::Timestamptz | ValueKind::Time),
        ) => {
            values!(|at| Decision::from(fixed!(i64, at).map(|value| range.passes(value))))
        }
        (ColumnTest::Int(range), Some(kind)) => {
            values!(|at| Decision::from(column.int(kind, pages, at).map(|value| range.passes(value))))
        }
        (ColumnTest::Float(range), Some(ValueKind::Float8)) => {
            values!(|at| Decision::from(fixed!(f64, at).map(|value| range.passes(float_key(value)))))
        }
        (ColumnTest::Float(range), Some(ValueKind::Float4)) => {
            values!(|at| Decision::from(fixed!(f32, at).map(|value| range.passes(float_key(value as f64)))))
        }
        (ColumnTest::IntSet { values, negated }, Some(kind)) => {
            values!(|at| Decision::from(column.int(kind, pages, at).map(|value| values.contains(value) != *negated)))
        }
        (ColumnTest::Numeric(range), _) => {
            // Keys decide only if the value and both endpoints have one.
            let keys = range.keys;
            values!(|at| {
                let fast = keys.zip(column.plain_bytes(pages, at).and_then(numeric::key));
                match fast {
                    Some((keys, key)) => Decision::from(Some(keys.passes(key))),
                    None => general(column, test, pages, at),
                }
            })
        }
        (ColumnTest::Like { pattern, negated }, _) => {
            let substring_bitmap =
                pattern.required_substring().and_then(|finder| SubstringBitmap::search(finder, rows, selected));
            let excluded =
                |at, bytes: &[u8]| substring_bitmap.as_ref().is_some_and(|found| !found.may_contain(at, bytes));
            values!(|at| match column.plain_bytes(pages, at) {
                Some(bytes) if excluded(at, bytes) => Decision::from(Some(*negated)),
                Some(bytes) => Decision::from(test.passes_bytes(bytes)),
                None => general(column, test, pages, at),
            })
        }
        (ColumnTest::BytesEqual { .. } | ColumnTest::Bytes { .. } | ColumnTest::BytesSet { .. }, _) => {
            values!(|at| match column.plain_bytes(pages, at) {
                Some(bytes) => Decision::from(test.passes_bytes(bytes)),
                None => general(column, test, pages, at),
            })
        }
        _ => values!(|at| general(column, test, pages, at)),
    }
}

/// Decodes a datum of any kind, then applies the test.
#[cold]
#[inline(never)]
fn general(column: &Column, test: &ColumnTest, pages: &[u8], location: usize) -> Decision {
    Decision::from(column.value(pages, location as u32).ok().and_then(|value| test.passes(&value)))
}

fn interpret(node: &Node, rows: RowSet<'_>, row: u16) -> Decision {
    Decision::from(node.qualifies(&rows.row(row)).ok())
}

/// Runs each arm over the rows that no earlier arm decided. A row that an arm cannot decide stays undecided, because
/// PostgreSQL would evaluate that arm before the later arms.
fn run_or(arms: &[Kernel], rows: RowSet<'_>, selected: &[u16], out: &mut Vec<u16>, undecided: &mut Vec<u16>) {
    let mut rest = selected.to_vec();
    let mut hits: Vec<u16> = Vec::new();
    let (mut selected_now, mut undecided_now) = (Vec::new(), Vec::new());
    for arm in arms {
        selected_now.clear();
        undecided_now.clear();
        arm.run(rows, &rest, &mut selected_now, &mut undecided_now);
        undecided_now.sort_unstable();
        rest.retain(|row| selected_now.binary_search(row).is_err() && undecided_now.binary_search(row).is_err());
        hits.extend_from_slice(&selected_now);
        undecided.extend_from_slice(&undecided_now);
    }
    hits.sort_unstable();
    out.extend_from_slice(&hits);
}

/// A kernel for the rows where `node` is `truth`. None: there is no kernel for `node`, or the order of evaluation matters more
/// than [`Kernel::And`] and [`Kernel::Or`] preserve.
fn kernel_where(node: &Node, truth: bool, columns: &[Option<Column>]) -> Option<Kernel> {
    match node {
        Node::Const(Value::Null) => Some(Kernel::Constant(false)),
        Node::Const(Value::Bool(value)) => Some(Kernel::Constant(*value == truth)),
        Node::Column(slot) => {
            let test = ColumnTest::compare(Domain::Int, Comparison::Equal, &Value::Bool(truth))?;
            Some(Kernel::Column { slot: *slot, test })
        }
        Node::Not(arg) => kernel_where(arg, !truth, columns),
        Node::IsNull { arg, negated } => match &**arg {
            Node::Column(slot) => Some(Kernel::Null { slot: *slot, wanted: truth != *negated }),
            _ => None,
        },
        Node::Test { test: BooleanTest::IsTrue, arg } if truth => kernel_where(arg, true, columns),
        Node::Test { test: BooleanTest::IsFalse, arg } if truth => kernel_where(arg, false, columns),
        Node::Compare { domain, comparison, left, right } => {
            let comparison = if truth { *comparison } else { comparison.negated() };
            compare_kernel(*domain, comparison, left, right, columns)
        }
        Node::Like { value, pattern, negated } => {
            Some(test_kernel(value, ColumnTest::Like { pattern: pattern.clone(), negated: *negated == truth }))
        }
        Node::AnyAll { domain, comparison, any, scalar, elements } => {
            match list_kernel(*domain, *comparison, *any == truth, *any, scalar, elements)? {
                Kernel::Expression { test, .. } => Some(computed_or_test(node, truth, scalar, test, columns)),
                kernel => Some(kernel),
            }
        }
        Node::AnyInteger { scalar, values } => {
            let test = ColumnTest::IntSet { values: values.clone(), negated: !truth };
            Some(computed_or_test(node, truth, scalar, test, columns))
        }
        Node::And(args) | Node::Or(args) => {
            // AND is true, and OR is false, where all arms are. PostgreSQL may evaluate a later arm for a row that an
            // earlier arm drops as NULL, so later arms must not raise errors.
            let conjunction = matches!(node, Node::And(_)) == truth;
            if conjunction && args.iter().skip(1).any(Node::fallible) {
                return None;
            }
            let arms = args.iter().map(|arg| Kernel::of_rows_where(arg, truth, columns)).collect();
            Some(if conjunction { Kernel::And(fused(arms)) } else { Kernel::Or(arms) })
        }
        _ => None,
    }
}

/// As [`test_kernel`], for a test that is equivalent to the condition `node`, or to its negation if not `truth`: over vectors if
/// these support the tested expression.
fn computed_or_test(node: &Node, truth: bool, tested: &Node, test: ColumnTest, columns: &[Option<Column>]) -> Kernel {
    let node = if truth { node.clone() } else { Node::Not(Box::new(node.clone())) };
    match Condition::over_vectors(&node, columns) {
        Some(condition) if !matches!(tested, Node::Column(_)) => Kernel::Condition { condition, node: Box::new(node) },
        _ => test_kernel(tested, test),
    }
}

/// Fuses adjacent arms of a conjunction.
fn fused(arms: Vec<Kernel>) -> Vec<Kernel> {
    let mut out: Vec<Kernel> = Vec::with_capacity(arms.len());
    for arm in arms {
        match out.last().and_then(|last| last.fuse(&arm)) {
            Some(fused) => *out.last_mut().expect("the last arm was just fused") = fused,
            None => out.push(arm),
        }
    }
    out
}

/// A kernel for a test of a column or of another expression.
fn test_kernel(node: &Node, test: ColumnTest) -> Kernel {
    match node {
        Node::Column(slot) => Kernel::Column { slot: *slot, test },
        _ => Kernel::Expression { node: node.clone(), test },
    }
}

fn compare_kernel(
    domain: Domain,
    comparison: Comparison,
    left: &Node,
    right: &Node,
    columns: &[Option<Column>],
) -> Option<Kernel> {
    match (left, right) {
        (Node::Column(_), Node::Const(Value::Null)) | (Node::Const(Value::Null), Node::Column(_)) => {
            Some(Kernel::Constant(false))
        }
        (Node::Column(slot), Node::Const(constant)) => {
            Some(Kernel::Column { slot: *slot, test: ColumnTest::compare(domain, comparison, constant)? })
        }
        (Node::Const(constant), Node::Column(slot)) => {
            let test = ColumnTest::compare(domain.mirrored(), comparison.mirrored(), constant)?;
            Some(Kernel::Column { slot: *slot, test })
        }
        _ => {
            let Some((left_side, right_side)) = NumberExpr::pair(domain, left, right, columns) else {
                return compare_with_constant(domain, comparison, left, right);
            };
            let node =
                Node::Compare { domain, comparison, left: Box::new(left.clone()), right: Box::new(right.clone()) };
            Some(Kernel::Compare { left: left_side, right: right_side, comparison, node: Box::new(node) })
        }
    }
}

/// A kernel for a comparison of an expression with a constant that is not NULL.
fn compare_with_constant(domain: Domain, comparison: Comparison, left: &Node, right: &Node) -> Option<Kernel> {
    let (node, test) = match (left, right) {
        (node, Node::Const(constant)) => (node, ColumnTest::compare(domain, comparison, constant)?),
        (Node::Const(constant), node) => {
            (node, ColumnTest::compare(domain.mirrored(), comparison.mirrored(), constant)?)
        }
        _ => return None,
    };
    Some(test_kernel(node, test))
}

/// A kernel for `scalar = ANY (constants)` or `scalar <> ALL (constants)` or for the negation of one of them.
/// `positive`: select the rows whose value is one of the constants.
fn list_kernel(
    domain: Domain,
    comparison: Comparison,
    positive: bool,
    any: bool,
    scalar: &Node,
    elements: &[Node],
) -> Option<Kernel> {
    let list_comparison = if any { Comparison::Equal } else { Comparison::NotEqual };
    if comparison != list_comparison {
        return None;
    }
    let mut constants = Vec::with_capacity(elements.len());
    let mut has_null = false;
    for element in elements {
        match element {
            Node::Const(Value::Null) => has_null = true,
            Node::Const(value) => constants.push(value),
            _ => return None,
        }
    }
    // The constant would hide an error of the scalar.
    if (elements.is_empty() || !positive && has_null) && scalar.fallible() {
        return None;
    }
    if elements.is_empty() {
        // With an empty array ANY is false and ALL is true, even if the scalar is NULL.
        return Some(Kernel::Constant(!positive));
    }
    if !positive && has_null {
        // A value that equals no constant compares unknown with the NULL element.
        return Some(Kernel::Constant(false));
    }
    match (ColumnTest::set(domain, &constants, !positive), scalar) {
        (Some(test), _) => Some(test_kernel(scalar, test)),
        (None, Node::Column(slot)) => column_list_kernel(domain, positive, *slot, &constants),
        (None, _) => None,
    }
}

/// A kernel for a list without a set: one test of the column for each constant.
fn column_list_kernel(domain: Domain, positive: bool, slot: Slot, constants: &[&Value<'_>]) -> Option<Kernel> {
    let comparison = if positive { Comparison::Equal } else { Comparison::NotEqual };
    let test =
        |constant: &&Value<'_>| Some(Kernel::Column { slot, test: ColumnTest::compare(domain, comparison, constant)? });
    let tests = constants.iter().map(test).collect::<Option<Vec<_>>>()?;
    Some(if positive { Kernel::Or(tests) } else { Kernel::And(tests) })
}

#[cfg(test)]
mod tests {
    use super::super::functions::{self, Context, SUBSTR, TextEncoding};
    use super::*;
    use crate::value::Numeric;

    fn text(text: &'static str) -> Node {
        Node::Const(Value::Bytes(text.as_bytes().into()))
    }

    /// `substr(column, 1, length) = ANY (elements)`, or `<> ALL` if not `any`.
    fn in_list(length: i64, any: bool, elements: Vec<Node>) -> Kernel {
        let args = vec![Node::Column(0), Node::Const(Value::Int(1)), Node::Const(Value::Int(length))];
        let context = Context { encoding: TextEncoding::Utf8, result: ValueKind::Text };
        let scalar = Box::new(Node::Call { function: functions::find(SUBSTR).unwrap(), context, args });
        let comparison = if any { Comparison::Equal } else { Comparison::NotEqual };
        Kernel::new(Node::AnyAll { domain: Domain::Bytes, comparison, any, scalar, elements }, &[])
    }

    #[test]
    fn membership_of_an_expression_has_a_kernel() {
        assert!(matches!(in_list(2, true, vec![text("13"), text("31")]), Kernel::Expression { .. }));
        assert!(matches!(in_list(2, false, vec![text("13")]), Kernel::Expression { .. }));
        assert!(matches!(in_list(-1, true, vec![text("13")]), Kernel::Expression { .. }));
    }

    #[test]
    fn membership_in_numerics_has_a_kernel() {
        let numbers = |any| {
            let comparison = if any { Comparison::Equal } else { Comparison::NotEqual };
            let elements = vec![Node::Const(Value::Null), Node::Const(Value::Numeric(Numeric::from_i64(7)))];
            let scalar = Box::new(Node::Column(0));
            Kernel::new(Node::AnyAll { domain: Domain::Numeric, comparison, any, scalar, elements }, &[])
        };
        assert!(matches!(numbers(true), Kernel::Or(tests) if tests.len() == 1));
        assert!(matches!(numbers(false), Kernel::Constant(false)));
    }

    #[test]
    fn a_constant_result_hides_no_error_of_the_scalar() {
        let null = || Node::Const(Value::Null);
        assert!(matches!(in_list(2, false, vec![null()]), Kernel::Constant(false)));
        assert!(matches!(in_list(-1, false, vec![null()]), Kernel::Interpret(_)));
        assert!(matches!(in_list(2, true, vec![]), Kernel::Constant(false)));
        assert!(matches!(in_list(-1, true, vec![]), Kernel::Interpret(_)));
    }
}
