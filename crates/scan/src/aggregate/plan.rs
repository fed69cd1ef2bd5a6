//! A compiled aggregation: keys, arguments, and the states that aggregates share.

use super::argument::{Argument, BooleanExpr, PlainArgument, slots_of};
use super::distinct::DistinctPlan;
use super::functions::{
    AggregateFunction, ArgumentUse, COUNT_ROWS, COUNT_VALUES, Finish, OutputKind, StateKind, find, groupable,
    offloadable_aggregate,
};
use super::groups::KEYS_MAX;
use super::key::Key;
use super::linear::Linear;
use super::partial;
use super::pruning::{self, Pruning};
use super::total::{Total, TotalRequest};
use crate::heap::Slot;
use crate::predicate::{
    Column, ColumnRequirement, Compiler, EvalCache, Evaluation, FALSE, LaneBuffers, Node, RowSet, TRUE, UNDECIDED,
    Unsupported,
};
use crate::value::{Value, ValueKind};
use cellar_format::wire::{Aggregate, Aggregation, Expr};

/// Maximum number of aggregates in a request.
const AGGREGATES_MAX: usize = 1000;

/// A state, which one or more aggregates share.
pub struct StateSpec {
    /// Index of the argument.
    pub argument: usize,
    pub kind: StateKind,
}

/// The result of an aggregate.
pub struct Output {
    /// Index of the state.
    pub state: usize,
    pub format: OutputKind,
    /// Index of the function of the state's values that the aggregate sums up. None: the values themselves.
    pub linear: Option<usize>,
}

/// A group key of the request.
pub struct KeyOutput {
    /// Index of a key that rows are grouped by.
    pub key: usize,
    /// The kind of the output, and the function of the key that the output is. None: the output is the key.
    pub linear: Option<(ValueKind, Linear)>,
}

/// A linear function of an argument.
pub struct LinearArgument {
    /// Index of the argument.
    pub argument: usize,
    pub linear: Linear,
}

/// Aggregates whose argument, filter and use are equal share the vectors of one argument.
#[derive(PartialEq)]
struct ArgumentKey<'r> {
    argument: Option<&'r Expr>,
    filter: Option<&'r Expr>,
    argument_use: ArgumentUse,
}

/// The form of groups with aggregates with DISTINCT; see [`cellar_format::wire::Aggregation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupForm {
    /// A row for each value of a group. The form of all aggregations without DISTINCT, too.
    Values,
    /// With the states of the aggregates with DISTINCT.
    States,
}

/// An aggregation, compiled; part of a plan.
pub struct AggregationPlan {
    /// The conditions on joined rows, with the columns that each reads.
    conditions: Vec<(BooleanExpr, Vec<Slot>)>,
    /// The keys that rows are grouped by: without linear functions of other keys.
    pub(super) keys: Vec<Key>,
    /// One per key of the request.
    pub(super) key_outputs: Vec<KeyOutput>,
    pub(super) arguments: Vec<Argument>,
    pub(super) states: Vec<StateSpec>,
    /// One per aggregate.
    pub(super) outputs: Vec<Output>,
    /// The functions that sums are derived for.
    pub(super) linears: Vec<LinearArgument>,
    /// None: there are no aggregates with DISTINCT.
    pub(super) distinct: Option<DistinctPlan>,
    counts_rows: bool,
    /// None: the backend needs all groups.
    pub(super) pruning: Option<Pruning>,
    /// One per argument. None: the aggregation cannot be computed from totals.
    pub(super) total_requests: Option<Vec<TotalRequest>>,
}

impl AggregationPlan {
    /// Fails for an aggregation that the cell would not compute exactly as PostgreSQL does.
    pub fn compile(
        aggregation: &Aggregation,
        compiler: &mut Compiler<'_>,
        evaluation: Evaluation,
    ) -> Result<Self, Unsupported> {
        if aggregation.keys.len() > KEYS_MAX || aggregation.aggregates.len() > AGGREGATES_MAX {
            return Err(Unsupported("too many group keys or aggregates".into()));
        }
        let mut conditions = Vec::with_capacity(aggregation.conditions.len());
        for expr in &aggregation.conditions {
            let node = compiler.condition(expr)?;
            let slots = slots_of([expr], compiler);
            let condition = BooleanExpr::new(node, &compiler.columns, evaluation);
            let unsupported = || Unsupported("a condition reads a column that is not offloaded".into());
            conditions.push((condition.ok_or_else(unsupported)?, slots));
        }
        let mut keys = Vec::with_capacity(aggregation.keys.len());
        let mut key_outputs = Vec::with_capacity(aggregation.keys.len());
        for (number, expr) in aggregation.keys.iter().enumerate() {
            let (node, kind) = compiler.typed(expr)?;
            let kind = kind.filter(|kind| groupable(*kind));
            let kind = kind.ok_or_else(|| Unsupported("a group key has a type that is not offloaded".into()))?;
            if let Some((linear, operand)) = Linear::split(expr)
                && let Some(base) = aggregation.keys.iter().position(|key| key == operand)
            {
                // The index among all keys, until the keys to group by are numbered.
                key_outputs.push(KeyOutput { key: base, linear: Some((kind, linear)) });
                continue;
            }
            key_outputs.push(KeyOutput { key: number, linear: None });
            let slots = slots_of([expr], compiler);
            keys.push(Key::new(node, kind, slots, &compiler.columns, evaluation));
        }
        let grouped: Vec<usize> =
            key_outputs.iter().filter(|output| output.linear.is_none()).map(|output| output.key).collect();
        for output in &mut key_outputs {
            output.key = grouped.partition_point(|key| *key < output.key);
        }
        let mut plan = Self {
            conditions,
            keys,
            key_outputs,
            arguments: Vec::new(),
            states: Vec::new(),
            outputs: Vec::new(),
            linears: Vec::new(),
            distinct: None,
            counts_rows: false,
            pruning: None,
            total_requests: None,
        };
        // None for a sum that is derived from another sum, and for a result that only PostgreSQL computes: groups are not pruned by it.
        let mut outputs: Vec<Option<pruning::Output>> = plan
            .key_outputs
            .iter()
            .map(|output| output.linear.is_none().then_some(pruning::Output::Key(output.key)))
            .collect();
        let mut kinds: Vec<ValueKind> = plan.key_outputs.iter().map(|output| plan.output_kind(output)).collect();
        let mut argument_keys: Vec<ArgumentKey<'_>> = Vec::new();
        for aggregate in &aggregation.aggregates {
            let function =
                find(aggregate.function).filter(|_| offloadable_aggregate(aggregate.function, aggregate.collation));
            let function =
                function.ok_or_else(|| Unsupported(format!("aggregate {} is not offloaded", aggregate.function)))?;
            let linear =
                aggregate.argument.as_ref().filter(|_| function.state.is_integer_sum()).and_then(Linear::split);
            let argument_key = ArgumentKey {
                argument: linear.as_ref().map(|(_, operand)| *operand).or(aggregate.argument.as_ref()),
                filter: aggregate.filter.as_ref(),
                argument_use: function.state.argument_use(),
            };
            let argument = match argument_keys.iter().position(|known| *known == argument_key) {
                Some(argument) => argument,
                None => {
                    let operand = linear.as_ref().map(|(_, operand)| *operand);
                    let mut argument = argument_of(function, aggregate, operand, compiler, evaluation)?;
                    argument.slots = slots_of(argument_key.argument.into_iter().chain(&aggregate.filter), compiler);
                    plan.arguments.push(argument);
                    argument_keys.push(argument_key);
                    argument_keys.len() - 1
                }
            };
            let same = |spec: &StateSpec| spec.argument == argument && spec.kind == function.state;
            let state = plan.states.iter().position(same).unwrap_or(plan.states.len());
            if state == plan.states.len() {
                plan.states.push(StateSpec { argument, kind: function.state });
            }
            let linear = linear.map(|(linear, _)| plan.linear(argument, linear));
            let finish = function.finish();
            outputs.push(finish.filter(|_| linear.is_none()).map(|finish| pruning::Output::Result(state, finish)));
            kinds.push(finish.map_or(ValueKind::Float8, Finish::kind));
            plan.outputs.push(Output { state, format: function.output, linear });
        }
        if let Some(distinct) = &aggregation.distinct {
            let distinct = DistinctPlan::compile(distinct, compiler, evaluation)?;
            for (output, kind) in distinct.outputs(plan.states.len()) {
                outputs.push(Some(output));
                kinds.push(kind);
            }
            plan.distinct = Some(distinct);
        }
        // Without a pruning, all groups are returned.
        let pruning = aggregation.pruning.as_ref();
        plan.pruning = pruning.and_then(|wanted| Pruning::compile(wanted, &outputs, &kinds, compiler.encoding).ok());
        let is_row = |key: &ArgumentKey<'_>| key.argument.is_none() && key.filter.is_none();
        plan.counts_rows = plan.keys.is_empty()
            && plan.distinct.is_none()
            && !argument_keys.is_empty()
            && argument_keys.iter().all(is_row);
        plan.total_requests = plan.compile_total_requests();
        Ok(plan)
    }

    /// Returns the index of a function of an argument in [`Self::linears`]; adds the function if it is new.
    fn linear(&mut self, argument: usize, linear: Linear) -> usize {
        let known = self.linears.iter().position(|known| known.argument == argument && known.linear == linear);
        known.unwrap_or_else(|| {
            self.linears.push(LinearArgument { argument, linear });
            self.linears.len() - 1
        })
    }

    /// Whether sums that are derived from these totals, one per argument, are defined for all rows.
    pub fn defines_sums(&self, totals: &[Total]) -> bool {
        self.linears.iter().all(|known| known.linear.is_defined_within(totals[known.argument].bounds))
    }

    fn output_kind(&self, output: &KeyOutput) -> ValueKind {
        output.linear.as_ref().map_or(self.keys[output.key].kind, |(kind, _)| *kind)
    }

    /// The functions of keys, each with the index of the key.
    pub(super) fn key_functions(&self) -> impl Iterator<Item = (usize, &Linear)> {
        self.key_outputs.iter().filter_map(|output| Some((output.key, &output.linear.as_ref()?.1)))
    }

    /// Whether every aggregate is `count(*)`, without keys and filters.
    pub fn counts_rows(&self) -> bool {
        self.counts_rows
    }

    /// The totals that the aggregation needs, one request per argument. None: totals do not suffice, or there are keys.
    pub fn total_requests(&self) -> Option<&[TotalRequest]> {
        self.total_requests.as_deref()
    }

    /// Computes [`Self::total_requests`] from the other fields.
    fn compile_total_requests(&self) -> Option<Vec<TotalRequest>> {
        if !self.keys.is_empty() || self.distinct.is_some() {
            return None;
        }
        let requests = self.arguments.iter().map(|argument| {
            let (slot, scale) = match argument.plain()? {
                PlainArgument::Row => (None, None),
                PlainArgument::Nulls(slot) => (Some(slot), None),
                PlainArgument::Numbers { slot, scale } => (Some(slot), Some(scale)),
            };
            Some(TotalRequest { slot, scale, sum: false, bounds: false })
        });
        let mut requests = requests.collect::<Option<Vec<_>>>()?;
        for state in &self.states {
            let request = &mut requests[state.argument];
            match state.kind {
                StateKind::Count => {}
                StateKind::IntSum | StateKind::WideSum | StateKind::NumericSum => request.sum = true,
                StateKind::Extreme { kind, .. } if kind.is_int() => request.bounds = true,
                _ => return None,
            }
        }
        Some(requests)
    }

    /// Whether there are conditions on joined rows.
    pub fn has_conditions(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// The columns that the conditions read.
    pub fn condition_slots(&self) -> impl Iterator<Item = Slot> {
        self.conditions.iter().flat_map(|(_, slots)| slots).copied()
    }

    /// Whether the conditions hold in each selected row: [`TRUE`], [`FALSE`] also for NULL, or [`UNDECIDED`] if the interpreter has to decide by datums, or
    /// PostgreSQL.
    pub fn test_conditions(&self, rows: RowSet<'_>, selected: &[u16]) -> Vec<u8> {
        let mut truths = vec![TRUE; selected.len()];
        let mut cache = EvalCache::with_buffers(LaneBuffers::default());
        for (condition, _) in &self.conditions {
            for (truth, new) in truths.iter_mut().zip(condition.eval(rows, selected, &mut cache).iter()) {
                // A later condition is evaluated only where the earlier ones are true.
                *truth = match (*truth, *new) {
                    (TRUE, TRUE) => TRUE,
                    (UNDECIDED, _) | (TRUE, UNDECIDED) => UNDECIDED,
                    _ => FALSE,
                };
            }
        }
        truths
    }

    /// Returns the columns whose datums are needed and appends the other columns to `encoded`. `has` says whether the
    /// encoded values of a column meet a requirement.
    pub fn datums(&self, has: impl Fn(Slot, ColumnRequirement) -> bool, encoded: &mut Vec<Slot>) -> Vec<Slot> {
        let mut datums = Vec::new();
        let mut sort = |slots: &[Slot], requirements: &[(Slot, ColumnRequirement)]| {
            let is_encoded = requirements.iter().all(|(slot, requirement)| has(*slot, *requirement));
            let list = if is_encoded { &mut *encoded } else { &mut datums };
            list.extend(slots);
        };
        let mut requirements = Vec::new();
        for (condition, slots) in &self.conditions {
            requirements.clear();
            condition.for_each_requirement(&mut |slot, requirement| requirements.push((slot, requirement)));
            sort(slots, &requirements);
        }
        for key in &self.keys {
            requirements.clear();
            key.for_each_requirement(&mut |slot, requirement| requirements.push((slot, requirement)));
            sort(&key.slots, &requirements);
        }
        for argument in &self.arguments {
            requirements.clear();
            argument.for_each_requirement(&mut |slot, requirement| requirements.push((slot, requirement)));
            sort(&argument.slots, &requirements);
        }
        if let Some(distinct) = &self.distinct {
            distinct.for_each_column(sort);
        }
        datums.sort_unstable();
        datums.dedup();
        encoded.sort_unstable();
        encoded.dedup();
        encoded.retain(|slot| datums.binary_search(slot).is_err());
        datums
    }

    /// Whether the values of the column are needed, not only its NULLs.
    pub fn needs_values(&self, slot: Slot) -> bool {
        let mut needs = false;
        let mut visit = |known, requirement| needs |= known == slot && requirement != ColumnRequirement::Nulls;
        self.conditions.iter().for_each(|(condition, _)| condition.for_each_requirement(&mut visit));
        self.keys.iter().for_each(|key| key.for_each_requirement(&mut visit));
        self.arguments.iter().for_each(|argument| argument.for_each_requirement(&mut visit));
        if let Some(distinct) = &self.distinct {
            distinct.for_each_column(|_, requirements| {
                requirements.iter().for_each(|(slot, requirement)| visit(*slot, *requirement));
            });
        }
        needs
    }

    /// Bytes per value of each result column; 0 for a varlena.
    pub(super) fn strides(&self, form: GroupForm) -> Vec<usize> {
        let mut strides: Vec<usize> =
            self.key_outputs.iter().map(|output| partial::stride(self.output_kind(output))).collect();
        let distinct = self.distinct.as_ref();
        if form == GroupForm::Values {
            strides.extend(distinct.into_iter().flat_map(DistinctPlan::value_strides));
        }
        strides.extend(self.outputs.iter().map(|output| output.format.stride()));
        if form == GroupForm::States {
            strides.extend(distinct.into_iter().flat_map(DistinctPlan::state_strides));
        }
        strides
    }
}

/// Compiles the argument and the filter of an aggregate. `operand`: the part of the argument that a linear function leaves.
fn argument_of(
    function: &AggregateFunction,
    aggregate: &Aggregate,
    operand: Option<&Expr>,
    compiler: &mut Compiler<'_>,
    evaluation: Evaluation,
) -> Result<Argument, Unsupported> {
    let typed = aggregate.argument.as_ref().map(|expr| compiler.typed(expr)).transpose()?;
    let operand = operand.map(|expr| compiler.typed(expr)).transpose()?;
    let filter = aggregate.filter.as_ref().map(|expr| compiler.condition(expr)).transpose()?;
    let columns: &[Option<Column>] = &compiler.columns;
    let boolean = |node: Node| {
        let unsupported = || Unsupported("an aggregate reads a column that is not offloaded".into());
        BooleanExpr::new(node, columns, evaluation).ok_or_else(unsupported)
    };
    let filter = filter.map(boolean).transpose()?;
    let fits = |kind: Option<ValueKind>, node: &Node| kind == function.argument || kind.is_none() && is_null(node);
    match (function.oid, function.argument, typed) {
        (COUNT_ROWS, _, None) => Ok(Argument::rows(filter)),
        (COUNT_VALUES, _, Some((node, _))) => {
            let is_null = Node::IsNull { arg: Box::new(node), negated: false };
            Ok(Argument::null_of(boolean(is_null)?, filter))
        }
        (_, Some(kind), Some((node, found))) if fits(found, &node) => {
            let values = function.state.argument_use() == ArgumentUse::Values;
            let (node, kind) = match operand {
                Some((operand, found)) => (operand, found.unwrap_or(kind)),
                None => (node, kind),
            };
            Ok(Argument::of(node, kind, values, columns, evaluation, filter))
        }
        _ => Err(Unsupported(format!("aggregate {} has an argument that is not offloaded", function.oid))),
    }
}

fn is_null(node: &Node) -> bool {
    matches!(node, Node::Const(Value::Null))
}
