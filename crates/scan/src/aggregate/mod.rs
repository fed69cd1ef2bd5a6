//! Aggregation in the cell: rows that qualify are folded into groups, and groups leave as partial states.
//!
//! What leaves is what Postgres's own partial aggregation would put out, so that its finalizing one takes both. Rows
//! whose keys or arguments cannot be computed here for certain (an error, NaN, a value outside the page) are handed
//! rejected to the caller, who sends them to Postgres as rows. Groups leave early when their memory passes
//! [`MEMORY_BYTES_MAX`]: several rows of one group are fine. [`argument`] and [`key`] turn rows into vectors, [`groups`]
//! numbers the groups, [`state`] folds vectors into groups, [`partial`] writes states as Postgres does. Only the first
//! two know where the rows come from.

mod argument;
mod functions;
mod groups;
mod key;
mod partial;
mod state;
mod total;

pub use functions::{groupable_type, offloadable_aggregate};

use crate::batch::{ColumnBuilder, ResultWriter};
use crate::heap::Slot;
use crate::predicate::{
    Column, Compiler, EncodedColumn, EvalCache, Kernel, LaneBuffers, Node, RowSet, UNCERTAIN, Unsupported,
};
use crate::value::{Value, ValueKind};
use crate::vectors::marked;
pub use argument::ColumnRequirement;
use argument::{Argument, Vector};
use cellar_format::stats::ScanStats;
use cellar_format::wire::{Aggregate, Aggregation, Expr};
use functions::{AggregateFunction, ArgumentUse, COUNT_ROWS, COUNT_VALUES, OutputKind, StateKind, find, groupable};
use groups::{DISCARD, GroupTable, KEYS_MAX, RowGroups};
use key::Key;
use state::State;
pub use total::{Total, TotalRequest};

/// Groups take about so much memory, then they leave.
pub const MEMORY_BYTES_MAX: usize = 16 << 20;
/// After so many rows the groups leave, so that sums of 128 bits cannot overflow.
pub const ROWS_MAX: u64 = 1 << 22;
/// Rows that go through all steps together: their vectors stay in the first-level cache.
pub const RUN_ROWS: usize = 1024;
/// Groups of a batch.
const BATCH_GROUPS: usize = 1024;
const AGGREGATES_MAX: usize = 1000;

/// What stands for one or more aggregates.
struct StateSpec {
    argument: usize,
    kind: StateKind,
}

/// What aggregates must agree in to share an argument's vectors.
#[derive(PartialEq)]
struct Source<'r> {
    argument: Option<&'r Expr>,
    filter: Option<&'r Expr>,
    argument_use: ArgumentUse,
}

/// An aggregation, compiled; part of a plan.
pub struct AggregationPlan {
    keys: Vec<Key>,
    arguments: Vec<Argument>,
    states: Vec<StateSpec>,
    /// For each aggregate: its state, and how that is put out.
    outputs: Vec<(usize, OutputKind)>,
    counts_rows: bool,
    /// What is asked of all rows, for each argument; None: totals do not do.
    total_requests: Option<Vec<TotalRequest>>,
}

impl AggregationPlan {
    /// Refuses what the cell would not aggregate exactly as Postgres does.
    pub fn compile(aggregation: &Aggregation, compiler: &mut Compiler<'_>) -> Result<Self, Unsupported> {
        if aggregation.keys.len() > KEYS_MAX || aggregation.aggregates.len() > AGGREGATES_MAX {
            return Err(Unsupported("too many group keys or aggregates".into()));
        }
        let mut keys = Vec::with_capacity(aggregation.keys.len());
        for expr in &aggregation.keys {
            let (node, kind) = compiler.typed(expr)?;
            let kind = kind.filter(|kind| groupable(*kind));
            let kind = kind.ok_or_else(|| Unsupported("a group key of this type".into()))?;
            keys.push(Key::new(node, kind, slots_of([expr], compiler), &compiler.columns));
        }
        let mut plan = Self {
            keys,
            arguments: Vec::new(),
            states: Vec::new(),
            outputs: Vec::new(),
            counts_rows: false,
            total_requests: None,
        };
        let mut sources: Vec<Source<'_>> = Vec::new();
        for aggregate in &aggregation.aggregates {
            let function =
                find(aggregate.function).filter(|_| offloadable_aggregate(aggregate.function, aggregate.collation));
            let function =
                function.ok_or_else(|| Unsupported(format!("aggregate {} is not offloaded", aggregate.function)))?;
            let source = Source {
                argument: aggregate.argument.as_ref(),
                filter: aggregate.filter.as_ref(),
                argument_use: function.state.argument_use(),
            };
            let argument = match sources.iter().position(|known| *known == source) {
                Some(argument) => argument,
                None => {
                    let mut argument = argument_of(function, aggregate, compiler)?;
                    argument.slots = slots_of(aggregate.argument.iter().chain(&aggregate.filter), compiler);
                    plan.arguments.push(argument);
                    sources.push(source);
                    sources.len() - 1
                }
            };
            let same = |spec: &StateSpec| spec.argument == argument && spec.kind == function.state;
            let state = plan.states.iter().position(same).unwrap_or(plan.states.len());
            if state == plan.states.len() {
                plan.states.push(StateSpec { argument, kind: function.state });
            }
            plan.outputs.push((state, function.output));
        }
        let all_rows = |source: &Source<'_>| source.argument.is_none() && source.filter.is_none();
        plan.counts_rows = plan.keys.is_empty() && !sources.is_empty() && sources.iter().all(all_rows);
        plan.total_requests = plan.compile_total_requests();
        Ok(plan)
    }

    /// Whether it asks for nothing but the number of rows.
    pub fn counts_rows(&self) -> bool {
        self.counts_rows
    }

    /// The columns that must have datums; `has` tells what of a column there is without. The other columns that it
    /// reads go to `gathered`.
    pub fn datums(&self, has: impl Fn(Slot, ColumnRequirement) -> bool, gathered: &mut Vec<Slot>) -> Vec<Slot> {
        let mut datums = Vec::new();
        let keys = self.keys.iter().map(|key| (key.needs_no_datum(&has), &key.slots));
        let arguments = self.arguments.iter().map(|argument| (argument.needs_no_datum(&has), &argument.slots));
        for (none, slots) in keys.chain(arguments) {
            let list = if none { &mut *gathered } else { &mut datums };
            list.extend(slots);
        }
        datums.sort_unstable();
        datums.dedup();
        gathered.sort_unstable();
        gathered.dedup();
        gathered.retain(|slot| datums.binary_search(slot).is_err());
        datums
    }

    /// Whether anything is asked of the column but where it is NULL.
    pub fn wants_values(&self, slot: Slot) -> bool {
        let arguments = self.arguments.iter().filter(|argument| argument.wants_values());
        let slots = self.keys.iter().map(|key| &key.slots).chain(arguments.map(|argument| &argument.slots));
        slots.flatten().any(|known| *known == slot)
    }

    fn strides(&self) -> Vec<usize> {
        let keys = self.keys.iter().map(Key::stride);
        keys.chain(self.outputs.iter().map(|(_, output)| output.stride())).collect()
    }
}

fn slots_of<'e>(exprs: impl IntoIterator<Item = &'e Expr>, compiler: &mut Compiler<'_>) -> Vec<Slot> {
    let mut slots = Vec::new();
    for expr in exprs {
        expr.for_each_column(&mut |number| slots.push(compiler.layout.slot(number as usize - 1)));
    }
    slots
}

fn argument_of(
    function: &AggregateFunction,
    aggregate: &Aggregate,
    compiler: &mut Compiler<'_>,
) -> Result<Argument, Unsupported> {
    let typed = aggregate.argument.as_ref().map(|expr| compiler.typed(expr)).transpose()?;
    let filter = aggregate.filter.as_ref().map(|expr| compiler.condition(expr)).transpose()?;
    let columns: &[Option<Column>] = &compiler.columns;
    let filter = filter.map(|node| Kernel::new(node, columns));
    let fits = |kind: Option<ValueKind>, node: &Node| kind == function.argument || kind.is_none() && is_null(node);
    match (function.oid, function.argument, typed) {
        (COUNT_ROWS, _, None) => Ok(Argument::rows(filter)),
        (COUNT_VALUES, _, Some((node, _))) => Ok(Argument::null_of(node, filter)),
        (_, Some(kind), Some((node, found))) if fits(found, &node) => {
            Ok(Argument::of(node, kind, function.state.argument_use() == ArgumentUse::Values, columns, filter))
        }
        _ => Err(Unsupported(format!("the argument of aggregate {}", function.oid))),
    }
}

fn is_null(node: &Node) -> bool {
    matches!(node, Node::Const(Value::Null))
}

/// The groups of one scan.
pub struct Aggregator {
    table: GroupTable,
    states: Vec<State>,
    /// Rows in the groups.
    rows: u64,
    /// The groups of the run's rows, and their key codes.
    groups: RowGroups,
    codes: Vec<u64>,
    undecided: Vec<u32>,
    /// Rows that are not added.
    rejected: Vec<u16>,
    buffers: LaneBuffers,
    columns: Vec<ColumnBuilder>,
    strides: Vec<usize>,
}

impl Aggregator {
    pub fn new(plan: &AggregationPlan) -> Self {
        let state = |spec: &StateSpec| State::new(spec.kind, plan.arguments[spec.argument].fraction_digits());
        let strides = plan.strides();
        Self {
            table: GroupTable::new(plan.keys.len()),
            states: plan.states.iter().map(state).collect(),
            rows: 0,
            groups: RowGroups::default(),
            codes: Vec::new(),
            undecided: Vec::new(),
            rejected: Vec::new(),
            buffers: LaneBuffers::default(),
            columns: std::iter::repeat_with(ColumnBuilder::default).take(strides.len()).collect(),
            strides,
        }
    }

    /// Adds rows of which nothing but their number is wanted.
    pub fn count_rows(&mut self, plan: &AggregationPlan, rows: u64) {
        debug_assert!(plan.counts_rows);
        if rows > 0 {
            let group = self.only_group() as usize;
            let total = Total { values: rows as i64, ..Total::default() };
            self.states.iter_mut().for_each(|state| state.add_total(group, &total));
            self.rows += rows;
        }
    }

    /// Adds rows of which the totals were asked for. Returns how many groups left to `out`.
    pub fn add_totals(&mut self, plan: &AggregationPlan, totals: &[Total], rows: u64, out: &mut ResultWriter) -> u64 {
        let left = if self.rows + rows > ROWS_MAX { self.flush(plan, out) } else { 0 };
        let group = self.only_group() as usize;
        for (spec, state) in plan.states.iter().zip(&mut self.states) {
            state.add_total(group, &totals[spec.argument]);
        }
        self.rows += rows;
        left
    }

    /// Adds the selected rows; those that Postgres has to aggregate stay selected. Groups may leave to `out`, which are
    /// rows returned.
    pub fn add(
        &mut self,
        plan: &AggregationPlan,
        rows: RowSet<'_>,
        selected: &mut Vec<u16>,
        out: &mut ResultWriter,
        stats: &mut ScanStats,
    ) {
        let mut rejected = std::mem::take(&mut self.rejected);
        rejected.clear();
        for run in selected.chunks(RUN_ROWS) {
            self.add_run(plan, rows, run, None, Some(&mut rejected));
            stats.rows_returned += self.flush_if_full(plan, out);
        }
        stats.rows_aggregated += (selected.len() - rejected.len()) as u64;
        self.rejected = std::mem::replace(selected, rejected);
    }

    /// Adds at most [`RUN_ROWS`] rows, some of whose columns have no datums: all of `selected`, or those of them whose
    /// marks are 1 and not 0. Returns how many groups left to `out`; None, and nothing added: for some row all datums
    /// are needed, or there are too many groups for marks.
    pub fn add_encoded(
        &mut self,
        plan: &AggregationPlan,
        rows: RowSet<'_>,
        selected: &[u16],
        marks: Option<&[u8]>,
        out: &mut ResultWriter,
    ) -> Option<u64> {
        self.add_run(plan, rows, selected, marks, None).then(|| self.flush_if_full(plan, out))
    }

    /// Groups leave before there are too many of them, or too many rows in them. Returns how many did.
    fn flush_if_full(&mut self, plan: &AggregationPlan, out: &mut ResultWriter) -> u64 {
        let full = self.rows + RUN_ROWS as u64 > ROWS_MAX || self.bytes() > MEMORY_BYTES_MAX;
        if full { self.flush(plan, out) } else { 0 }
    }

    /// False, and nothing was added: some row would have to go rejected, and there is no `rejected`.
    fn add_run(
        &mut self,
        plan: &AggregationPlan,
        rows: RowSet<'_>,
        run: &[u16],
        marks: Option<&[u8]>,
        rejected: Option<&mut Vec<u16>>,
    ) -> bool {
        let mut cache = EvalCache::with_buffers(std::mem::take(&mut self.buffers));
        let vectors: Vec<_> = plan.arguments.iter().map(|argument| argument.eval(rows, run, &mut cache)).collect();
        let is_uncertain = |vector: &Vector<'_>| {
            !vector.lanes.is_clear() && vector.lanes.iter().any(|(_, flags)| flags & UNCERTAIN != 0)
        };
        let uncertain = vectors.iter().any(is_uncertain);
        if uncertain && rejected.is_none() {
            return false;
        }
        if !self.number_rows(plan, rows, run, marks) {
            return false;
        }
        let numbers = &mut self.groups.numbers;
        if uncertain {
            for vector in &vectors {
                for (group, (_, flags)) in numbers.iter_mut().zip(vector.lanes.iter()) {
                    if flags & UNCERTAIN != 0 {
                        *group = DISCARD;
                    }
                }
            }
        }
        for state in &mut self.states {
            state.resize(self.table.len());
        }
        for (spec, state) in plan.states.iter().zip(&self.states) {
            state.check(&vectors[spec.argument], numbers);
        }
        let only_one = plan.keys.is_empty() && !uncertain && marks.is_none();
        let left_out = match only_one && !self.states.iter().any(State::refuses) {
            true => self.groups.count_only(run.len()),
            false => self.groups.count(self.table.len()),
        };
        let added = run.len() - left_out;
        let marked = marks.map_or(run.len(), marked);
        if rejected.is_none() && added != marked {
            return false;
        }
        for (spec, state) in plan.states.iter().zip(&mut self.states) {
            state.add(&vectors[spec.argument], &self.groups);
        }
        if let Some(rejected) = rejected.filter(|_| left_out > 0) {
            rejected.extend(
                run.iter().zip(&self.groups.numbers).filter(|(_, group)| **group == DISCARD).map(|(row, _)| *row),
            );
        }
        self.rows += added as u64;
        drop(vectors);
        self.buffers = cache.into_buffers();
        true
    }

    /// Finds the group of each row of the run; that of rows without a mark is the bin. False: there are too many groups
    /// for marks.
    fn number_rows(&mut self, plan: &AggregationPlan, rows: RowSet<'_>, run: &[u16], marks: Option<&[u8]>) -> bool {
        let numbers = &mut self.groups.numbers;
        numbers.clear();
        if plan.keys.is_empty() {
            let group = self.only_group();
            match marks {
                None => self.groups.numbers.resize(run.len(), group),
                Some(marks) => self.groups.numbers.extend(marks.iter().map(|mark| group * u32::from(*mark))),
            }
            return true;
        }
        let gathered: Option<Vec<&EncodedColumn<'_>>> = plan.keys.iter().map(|key| key.gathered(rows)).collect();
        if let Some(keys) = gathered
            && self.table.number_directly(&keys, rows.encoded_columns.chunk_id, run.len(), marks, numbers)
        {
            return true;
        }
        if marks.is_some() {
            return false;
        }
        let words = self.table.words();
        self.codes.clear();
        self.codes.resize(run.len() * words, 0);
        self.undecided.clear();
        for (number, key) in plan.keys.iter().enumerate() {
            key.codes(number, rows, run, &mut self.table, &mut self.codes, &mut self.undecided);
        }
        if self.undecided.is_empty() {
            for row in self.codes.chunks_exact(words) {
                numbers.push(self.table.group(row));
            }
            return true;
        }
        self.undecided.sort_unstable();
        for (index, row) in self.codes.chunks_exact(words).enumerate() {
            let undecided = self.undecided.binary_search(&(index as u32)).is_ok();
            numbers.push(if undecided { DISCARD } else { self.table.group(row) });
        }
        true
    }

    /// The group of an aggregation without keys.
    fn only_group(&mut self) -> u32 {
        let group = self.table.group(&[0]);
        self.states.iter_mut().for_each(|state| state.resize(self.table.len()));
        group
    }

    fn bytes(&self) -> usize {
        self.table.bytes() + self.states.iter().map(State::bytes).sum::<usize>()
    }

    /// All groups leave; returns their number.
    pub fn flush(&mut self, plan: &AggregationPlan, out: &mut ResultWriter) -> u64 {
        let groups = self.table.len();
        if self.rows == 0 {
            self.clear();
            return 0;
        }
        for first in (1..groups).step_by(BATCH_GROUPS) {
            let last = groups.min(first + BATCH_GROUPS);
            self.columns.iter_mut().for_each(ColumnBuilder::clear);
            for (row, group) in (first..last).enumerate() {
                let (keys, states) = self.columns.split_at_mut(plan.keys.len());
                for (number, (key, column)) in plan.keys.iter().zip(keys).enumerate() {
                    key.put(number, &self.table, group, row, column);
                }
                for ((state, output), column) in plan.outputs.iter().zip(states) {
                    self.states[*state].put(group, *output, row, column);
                }
            }
            self.columns.iter_mut().for_each(|column| column.finish_nulls(last - first));
            out.groups(&self.columns, &self.strides, (last - first) as u32);
        }
        self.clear();
        groups as u64 - 1
    }

    fn clear(&mut self) {
        self.table.clear();
        self.states.iter_mut().for_each(|state| state.resize(0));
        self.rows = 0;
    }
}
