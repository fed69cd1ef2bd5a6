//! Pruning: chooses the groups that the backend can need, when all rows of the scan are in the groups.
//!
//! The results of the aggregates are those that PostgreSQL's finalizing aggregation computes from the states. A group whose
//! result cannot be computed here is kept.

use super::argument::wide;
use super::functions::Finish;
use super::groups::GroupTable;
use super::key::Key;
use super::state::State;
use crate::heap::TupleLayout;
use crate::predicate::{Compiler, Node, TextEncoding, Unsupported};
use crate::value::{Comparison, Domain, Undecided, Value, ValueKind, compare, float_key};
use cellar_format::postgres::Align;
use cellar_format::wire::{Attribute, Expr, GroupPruning, Missing};
use std::cell::Cell;
use std::cmp::Ordering;

/// The best groups are selected from this many more candidates at a time.
const CANDIDATES: usize = 128;

/// An output of an aggregation.
#[derive(Debug, Clone, Copy)]
pub enum Output {
    /// A group key's number.
    Key(usize),
    /// A state's number, and how the state becomes the result.
    Result(usize, Finish),
}

#[derive(Debug)]
struct Condition {
    output: Output,
    domain: Domain,
    comparison: Comparison,
    constant: Value<'static>,
}

#[derive(Debug)]
struct SortKey {
    output: Output,
    domain: Domain,
    descending: bool,
    nulls_first: bool,
}

#[derive(Debug)]
struct Top {
    groups: usize,
    with_ties: bool,
    keys: Vec<SortKey>,
}

/// A compiled pruning; part of an aggregation's plan.
#[derive(Debug)]
pub struct Pruning {
    conditions: Vec<Condition>,
    top: Option<Top>,
}

/// The groups to prune.
#[derive(Clone, Copy)]
pub struct Groups<'a> {
    pub keys: &'a [Key],
    pub table: &'a GroupTable,
    pub states: &'a [State],
}

impl Pruning {
    /// `outputs` and `kinds` describe the outputs of the aggregation: the group keys, then the results.
    pub fn compile(
        request: &GroupPruning,
        outputs: &[Option<Output>],
        kinds: &[ValueKind],
        encoding: TextEncoding,
    ) -> Result<Self, Unsupported> {
        let attributes: Vec<Attribute> = kinds.iter().map(|kind| attribute(*kind)).collect();
        let layout = TupleLayout::new(attributes.iter().map(|attribute| (attribute.width, attribute.align)));
        let mut compiler =
            Compiler { attributes: &attributes, encoding, layout, looked_up: Vec::new(), columns: Vec::new() };
        let unsupported = || Unsupported("groups are pruned by plain outputs only".into());
        let mut conditions = Vec::with_capacity(request.conditions.len());
        for condition in &request.conditions {
            let Node::Compare { domain, comparison, left, right } = compiler.condition(condition)? else {
                return Err(unsupported());
            };
            let (domain, comparison, column, constant) = match (*left, *right) {
                (column, Node::Const(constant)) => (domain, comparison, column, constant),
                (Node::Const(constant), column) => (domain.mirrored(), comparison.mirrored(), column, constant),
                _ => return Err(unsupported()),
            };
            if constant.is_null() {
                return Err(unsupported());
            }
            let output = output_of(&column, &compiler, outputs).ok_or_else(unsupported)?;
            conditions.push(Condition { output, domain, comparison, constant });
        }
        let mut top = None;
        if let Some(wanted) = &request.top {
            let mut keys = Vec::with_capacity(wanted.keys.len());
            for key in &wanted.keys {
                let Expr::Column(_) = key.expr else { return Err(unsupported()) };
                let (node, domain) = compiler.sort_key(&key.expr, key.less, key.collation)?;
                let output = output_of(&node, &compiler, outputs).ok_or_else(unsupported)?;
                keys.push(SortKey { output, domain, descending: key.descending, nulls_first: key.nulls_first });
            }
            top = Some(Top { groups: wanted.groups as usize, with_ties: wanted.with_ties, keys });
        }
        Ok(Self { conditions, top })
    }

    /// The number of first groups that the backend can need. None: no limit, or groups with the same keys as the last are needed, too.
    pub fn top_groups(&self) -> Option<usize> {
        self.top.as_ref().filter(|top| !top.with_ties).map(|top| top.groups)
    }

    /// Returns the groups that the backend can need, ascending.
    pub fn select(&self, groups: Groups<'_>, among: impl Iterator<Item = u32> + Clone) -> Vec<u32> {
        let tests: Vec<Test<'_>> = self.conditions.iter().map(|condition| Test::new(condition, groups)).collect();
        let passed = || among.clone().filter(|group| tests.iter().all(|test| test.may_hold(*group as usize, groups)));
        let Some(top) = &self.top else { return passed().collect() };
        if top.keys.is_empty() {
            return passed().take(top.groups).collect();
        }
        let order = Order::new(&top.keys, groups);
        let mut first = order.first(passed(), top.groups);
        if top.with_ties
            && first.len() == top.groups
            && let Some(last) = first.iter().copied().max_by(|left, right| order.compare(*left, *right))
        {
            first = passed().filter(|group| order.compare(*group, last).is_le()).collect();
        }
        if order.undecided.get() {
            return passed().collect();
        }
        first.sort_unstable();
        first
    }
}

/// A column of this kind, to which the expressions of a pruning refer.
fn attribute(kind: ValueKind) -> Attribute {
    Attribute {
        type_oid: kind.type_oid(),
        typmod: -1,
        width: kind.width(),
        align: Align::Double,
        by_value: false,
        missing: Missing::Null,
    }
}

fn output_of(node: &Node, compiler: &Compiler<'_>, outputs: &[Option<Output>]) -> Option<Output> {
    let Node::Column(slot) = node else { return None };
    let column = compiler.columns.get(*slot as usize)?.as_ref()?;
    outputs.get(column.attribute).copied().flatten()
}

impl<'a> Groups<'a> {
    /// Whether the output has ranks: numbers that order as its values do in the domain.
    fn has_ranks(&self, output: Output, domain: Domain) -> bool {
        match output {
            Output::Key(key) => self.keys[key].kind.is_int() && domain == Domain::Int,
            Output::Result(state, finish) => {
                self.states[state].has_ranks(finish) && matches!(domain, Domain::Int | Domain::Numeric | Domain::Float)
            }
        }
    }

    /// The rank of an output; None for NULL.
    #[inline(always)]
    fn rank(&self, output: Output, group: usize) -> Option<i128> {
        match output {
            Output::Key(key) => {
                let codes = self.table.codes(group);
                (codes[codes.len() - 1] >> key & 1 == 0).then(|| (codes[key] as i64).into())
            }
            Output::Result(state, _) => self.states[state].rank(group),
        }
    }

    /// The rank of a constant among the values of an output.
    /// None if no value of the output equals the constant, or if this is unknown.
    fn constant_rank(&self, output: Output, constant: &Value<'_>) -> Option<i128> {
        let digits = match output {
            Output::Key(_) => Some(0),
            Output::Result(state, _) => self.states[state].rank_fraction_digits(),
        };
        match (constant, digits) {
            (Value::Int(value), Some(0)) => Some((*value).into()),
            (Value::Bool(value), Some(0)) => Some((*value).into()),
            (Value::Numeric(value), Some(digits)) => wide(value, digits).map(|(value, _)| value),
            (Value::Float(value), None) => Some(float_key(*value).into()),
            _ => None,
        }
    }

    fn with_value<R>(&self, output: Output, group: usize, visit: impl FnOnce(&Value<'_>) -> R) -> Result<R, Undecided> {
        match output {
            Output::Key(key) => Ok(self.keys[key].with_value(key, self.table, group, visit)),
            Output::Result(state, finish) => self.states[state].result(group, finish).map(|value| visit(&value)),
        }
    }
}

/// A condition, prepared for groups.
struct Test<'a> {
    condition: &'a Condition,
    /// The rank of the constant, if ranks decide the condition.
    rank: Option<i128>,
}

impl<'a> Test<'a> {
    fn new(condition: &'a Condition, groups: Groups<'_>) -> Self {
        let has_ranks = groups.has_ranks(condition.output, condition.domain);
        let rank = if has_ranks { groups.constant_rank(condition.output, &condition.constant) } else { None };
        Self { condition, rank }
    }

    /// Whether the condition is true or cannot be decided.
    fn may_hold(&self, group: usize, groups: Groups<'_>) -> bool {
        let Condition { output, domain, comparison, constant } = self.condition;
        if let Some(constant) = self.rank {
            return groups.rank(*output, group).is_some_and(|rank| comparison.holds(rank.cmp(&constant)));
        }
        let holds = groups.with_value(*output, group, |value| {
            !value.is_null() && compare(*domain, value, constant).is_none_or(|ordering| comparison.holds(ordering))
        });
        holds.unwrap_or(true)
    }
}

/// The order of groups by sort keys.
struct Order<'a> {
    keys: Vec<(&'a SortKey, bool)>,
    groups: Groups<'a>,
    /// Whether two groups could not be compared.
    undecided: Cell<bool>,
}

impl<'a> Order<'a> {
    fn new(keys: &'a [SortKey], groups: Groups<'a>) -> Self {
        let keys = keys.iter().map(|key| (key, groups.has_ranks(key.output, key.domain))).collect();
        Self { keys, groups, undecided: Cell::new(false) }
    }

    /// A number that does not decrease in the order of the first key. Equal for groups whose first keys tie, and for all groups
    /// if the first key has no ranks.
    #[inline(always)]
    fn first_rank(&self, group: u32) -> i128 {
        match self.keys.first() {
            Some((key, true)) => key.position(self.groups.rank(key.output, group as usize)),
            _ => 0,
        }
    }

    fn compare(&self, left: u32, right: u32) -> Ordering {
        let (left, right) = (left as usize, right as usize);
        for (key, has_ranks) in &self.keys {
            let ordering = if *has_ranks {
                let position = |group| key.position(self.groups.rank(key.output, group));
                position(left).cmp(&position(right))
            } else {
                self.compare_values(key, left, right)
            };
            if ordering.is_ne() {
                return ordering;
            }
        }
        Ordering::Equal
    }

    /// Compares two groups by a key without ranks. A value that cannot be computed sorts last.
    fn compare_values(&self, key: &SortKey, left: usize, right: usize) -> Ordering {
        let with = |group, visit: &mut dyn FnMut(&Value<'_>)| {
            let found = self.groups.with_value(key.output, group, visit).is_ok();
            if !found {
                self.undecided.set(true);
            }
            found
        };
        let mut ordering = Ordering::Equal;
        let mut right_found = true;
        let left_found = with(left, &mut |left| {
            right_found = with(right, &mut |right| ordering = key.compare(left, right));
        });
        match (left_found, right_found) {
            (true, true) => ordering,
            (true, false) => Ordering::Less,
            (false, _) if with(right, &mut |_| ()) => Ordering::Greater,
            (false, _) => Ordering::Equal,
        }
    }

    /// Returns the first `count` groups in unspecified order.
    fn first(&self, groups: impl Iterator<Item = u32>, count: usize) -> Vec<u32> {
        let mut best: Vec<u32> = Vec::new();
        // The last of the first groups so far.
        let mut last: Option<(i128, u32)> = None;
        let only_rank = matches!(self.keys.as_slice(), [(_, true)]);
        for group in groups {
            if let Some((last_rank, last)) = last {
                let rank = self.first_rank(group);
                if rank > last_rank || rank == last_rank && (only_rank || self.compare(group, last).is_ge()) {
                    continue;
                }
            }
            best.push(group);
            if best.len() >= 2 * count + CANDIDATES {
                last = self.keep_first(&mut best, count);
            }
        }
        self.keep_first(&mut best, count);
        best
    }

    /// Keeps the first `count` groups. Returns the last of them, with its rank.
    fn keep_first(&self, groups: &mut Vec<u32>, count: usize) -> Option<(i128, u32)> {
        if groups.len() <= count {
            return None;
        }
        groups.select_nth_unstable_by(count - 1, |left, right| self.compare(*left, *right));
        groups.truncate(count);
        groups.last().map(|last| (self.first_rank(*last), *last))
    }
}

impl SortKey {
    /// A number that orders as the rank does under this key.
    #[inline(always)]
    fn position(&self, rank: Option<i128>) -> i128 {
        match rank {
            None if self.nulls_first => i128::MIN,
            None => i128::MAX,
            Some(rank) if self.descending => -rank,
            Some(rank) => rank,
        }
    }

    /// Compares two values of the key's domain.
    fn compare(&self, left: &Value<'_>, right: &Value<'_>) -> Ordering {
        let nulls = |null_left: bool| if null_left == self.nulls_first { Ordering::Less } else { Ordering::Greater };
        match (left.is_null(), right.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) => nulls(true),
            (false, true) => nulls(false),
            (false, false) => {
                let ordering = compare(self.domain, left, right).unwrap_or(Ordering::Equal);
                if self.descending { ordering.reverse() } else { ordering }
            }
        }
    }
}
