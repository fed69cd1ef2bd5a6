//! Aggregates with DISTINCT: the set of distinct values of each group.
//!
//! All aggregates with DISTINCT of a request have the same argument and the same filter, so a group has one set. The sets of all
//! groups are one table of pairs of a value's code and a group number. Adding a pair twice changes nothing, so a row that is
//! rejected after its value was added does no harm.

use super::argument::{BooleanExpr, slots_of};
use super::functions::{Finish, OutputKind, StateKind, find};
use super::groups::{DISCARD, GroupTable, hash};
use super::key::{Key, RowCodes, encoded_codes};
use super::partial::stride;
use super::partitions::Partitions;
use super::seen::SeenEntries;
use super::state::State;
use super::value_set::{Pair, ValueSet};
use super::{RUN_ROWS, pruning};
use crate::batch::ColumnBuilder;
use crate::heap::Slot;
use crate::predicate::{ColumnRequirement, Compiler, EvalCache, Evaluation, RowSet, TRUE, UNDECIDED, Unsupported};
use crate::value::ValueKind;
use cellar_format::wire::DistinctAggregates;

/// The aggregates with DISTINCT of an aggregation, compiled.
pub struct DistinctPlan {
    argument: Key,
    filter: Option<BooleanExpr>,
    /// The columns that the filter reads.
    filter_slots: Vec<Slot>,
    functions: Vec<DistinctFunction>,
}

/// An aggregate with DISTINCT.
struct DistinctFunction {
    state: StateKind,
    output: OutputKind,
    finish: Finish,
}

impl DistinctPlan {
    /// Fails for aggregates that the cell would not compute exactly as PostgreSQL does.
    pub fn compile(
        wire: &DistinctAggregates,
        compiler: &mut Compiler<'_>,
        evaluation: Evaluation,
    ) -> Result<Self, Unsupported> {
        let (node, kind) = compiler.typed(&wire.argument)?;
        let unsupported = || Unsupported("an argument with DISTINCT has a type that is not offloaded".into());
        let kind = kind.filter(|kind| super::functions::groupable(*kind)).ok_or_else(unsupported)?;
        let slots = slots_of([&wire.argument], compiler);
        let filter = wire.filter.as_ref().map(|expr| compiler.condition(expr)).transpose()?;
        let filter_slots = slots_of(&wire.filter, compiler);
        let argument = Key::new(node, kind, slots, &compiler.columns, evaluation);
        let boolean = |node| BooleanExpr::new(node, &compiler.columns, evaluation).ok_or_else(unsupported);
        let filter = filter.map(boolean).transpose()?;
        let function = |oid: &u32| {
            let function = find(*oid).filter(|function| match function.state {
                StateKind::Count => function.argument.is_none(),
                StateKind::IntSum => function.argument == Some(kind),
                _ => false,
            });
            let function = function.and_then(|found| {
                Some(DistinctFunction { state: found.state, output: found.output, finish: found.finish()? })
            });
            function.ok_or_else(|| Unsupported(format!("aggregate {oid} is not offloaded with DISTINCT")))
        };
        let functions = wire.functions.iter().map(function).collect::<Result<_, _>>()?;
        Ok(Self { argument, filter, filter_slots, functions })
    }

    /// The results for a pruning, whose states are numbered from `first_state`.
    pub fn outputs(&self, first_state: usize) -> impl Iterator<Item = (pruning::Output, ValueKind)> {
        let numbered = self.functions.iter().enumerate();
        numbered.map(move |(number, function)| {
            (pruning::Output::Result(first_state + number, function.finish), function.finish.kind())
        })
    }

    /// Calls `visit` with the columns of the argument, then with those of the filter, and the requirements under which they can be
    /// read in encoded form.
    pub fn for_each_column(&self, mut visit: impl FnMut(&[Slot], &[(Slot, ColumnRequirement)])) {
        let mut requirements = Vec::new();
        self.argument.for_each_requirement(&mut |slot, requirement| requirements.push((slot, requirement)));
        visit(&self.argument.slots, &requirements);
        if let Some(filter) = &self.filter {
            requirements.clear();
            filter.for_each_requirement(&mut |slot, requirement| requirements.push((slot, requirement)));
            visit(&self.filter_slots, &requirements);
        }
    }

    /// Empty states of the aggregates, for groups up to `groups`.
    pub fn new_states(&self, groups: usize) -> Vec<State> {
        let new = |function: &DistinctFunction| {
            let mut state = State::new(function.state, 0, 0);
            state.resize(groups);
            state
        };
        self.functions.iter().map(new).collect()
    }

    /// Bytes per value of the columns of a pair: the value, and the filter if there is one.
    pub fn value_strides(&self) -> impl Iterator<Item = usize> {
        std::iter::once(stride(self.argument.kind)).chain(self.filter.as_ref().map(|_| 1))
    }

    /// Bytes per value of the columns of the results' states; 0 for a varlena.
    pub fn state_strides(&self) -> impl Iterator<Item = usize> {
        self.functions.iter().map(|function| function.output.stride())
    }

    /// The memory of the states of `groups` groups, in bytes.
    pub fn state_bytes(&self, groups: usize) -> usize {
        self.functions.len() * groups * 16
    }

    /// Appends the states of a group, which [`DistinctValues::states`] returned, to their columns.
    pub fn put_states(&self, states: &[State], group: usize, row: usize, columns: &mut [ColumnBuilder]) {
        for ((function, state), column) in self.functions.iter().zip(states).zip(columns) {
            state.put(group, function.output, None, row, column);
        }
    }
}

/// The sets of distinct values of all groups, and scratch memory.
pub struct DistinctValues {
    /// The strings that codes stand for. There are no groups.
    strings: GroupTable,
    /// Codes of values, with group numbers.
    set: ValueSet,
    seen: SeenEntries,
    /// The codes of the run's rows. A row whose value is already in the set of its group counts as NULL.
    codes: RowCodes,
    pairs: Vec<Pair>,
}

/// Words of a row of codes: the value, and the bit of NULL.
const WORDS: usize = 2;

impl Default for DistinctValues {
    fn default() -> Self {
        Self {
            strings: GroupTable::new(WORDS - 1, false),
            set: ValueSet::default(),
            seen: SeenEntries::default(),
            codes: RowCodes::default(),
            pairs: Vec::new(),
        }
    }
}

impl DistinctValues {
    /// Removes all values.
    pub fn clear(&mut self) {
        self.strings.clear();
        self.set = ValueSet::default();
        self.seen = SeenEntries::default();
    }

    /// Removes all values and prepares the table for this many values.
    pub fn restart(&mut self, values: usize) {
        if self.strings.string_bytes() > 0 {
            self.strings.clear();
        }
        self.set.restart(values);
    }

    /// The number of values in all sets.
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// Returns the bytes in use, plus the bytes that are allocated to add `values` values.
    pub fn bytes_with(&self, values: usize) -> usize {
        self.strings.bytes_with(0) + self.set.bytes_with(values) + self.seen.bytes()
    }

    /// Prepares [`Self::eval`] for a run whose groups are less than `groups`. `grant` says whether more bytes of memory are granted.
    pub fn start_run(
        &mut self,
        plan: &DistinctPlan,
        rows: RowSet<'_>,
        groups: usize,
        grant: impl FnOnce(usize) -> bool,
    ) {
        self.seen.start_run(plan.argument.encoded(rows), rows.encoded_columns.chunk_id, groups, grant);
    }

    /// Computes the values and the filter of a run's rows, and assigns [`DISCARD`] to rows for which they could not be computed.
    /// Returns whether there are such rows.
    pub fn eval<'a>(
        &mut self,
        plan: &'a DistinctPlan,
        rows: RowSet<'a>,
        run: &[u16],
        cache: &mut EvalCache<'a>,
        groups: &mut [u32],
    ) -> bool {
        let mut discards = false;
        self.codes.clear(run.len() * WORDS);
        match plan.argument.encoded(rows).filter(|_| self.seen.is_used()) {
            Some(encoded) => {
                self.codes.words.as_chunks_mut::<WORDS>().0.iter_mut().for_each(|row| row[1] = 1);
                let unseen = self.seen.unseen(encoded, groups);
                unseen.iter().for_each(|row| self.codes.words[*row as usize * WORDS + 1] = 0);
                let unseen = unseen.iter().map(|row| *row as usize);
                encoded_codes(encoded, 0, unseen, &mut self.strings, &mut self.codes.words);
            }
            None => plan.argument.codes(0, rows, run, cache, &mut self.strings, &mut self.codes),
        }
        if let Some(filter) = &plan.filter {
            let truths = filter.eval(rows, run, cache);
            let words = self.codes.words.as_chunks_mut::<WORDS>().0;
            for ((group, truth), row) in groups.iter_mut().zip(truths.iter()).zip(words) {
                // A row that fails the filter counts as NULL.
                row[1] |= u64::from(*truth != TRUE);
                if *truth == UNDECIDED {
                    *group = DISCARD;
                    discards = true;
                }
            }
        }
        for row in &self.codes.undecided {
            groups[*row as usize] = DISCARD;
            discards = true;
        }
        discards
    }

    /// Adds the values that [`Self::eval`] computed to the sets of their rows' groups.
    pub fn add(&mut self, groups: &[u32]) {
        self.pairs.clear();
        self.pairs.resize(groups.len(), [0; 2]);
        let mut count = 0;
        // No pair is in the group DISCARD.
        let mut last = [0; 2];
        for (row, group) in self.codes.words.as_chunks::<WORDS>().0.iter().zip(groups) {
            let pair = [row[0], u64::from(*group)];
            self.pairs[count] = pair;
            // A NULL has a bit in the last word. Equal values often follow each other.
            let is_new = row[1] == 0 && *group != DISCARD && pair != last;
            last = if is_new { pair } else { last };
            count += usize::from(is_new);
        }
        self.set.insert_all(&self.pairs[..count]);
        self.seen.note(groups, |row| self.codes.words[row * WORDS + 1] == 0);
    }

    /// Adds the sets of another table: `groups[i]` is the group of the other table's group `i`.
    pub fn absorb(&mut self, plan: &DistinctPlan, other: &Self, groups: &[u32]) {
        self.set.reserve(other.len());
        self.absorb_pairs(plan, other, other.set.iter().map(|[code, group]| [code, groups[group as usize].into()]));
    }

    /// Adds pairs of the codes of another table and of groups of this table.
    pub fn absorb_pairs(&mut self, plan: &DistinctPlan, other: &Self, mut pairs: impl Iterator<Item = Pair>) {
        loop {
            self.pairs.clear();
            self.pairs.extend(pairs.by_ref().take(RUN_ROWS));
            if self.pairs.is_empty() {
                return;
            }
            let codes = self.pairs.as_flattened_mut();
            plan.argument.move_codes(codes, (WORDS, 0), |_| false, &other.strings, &mut self.strings);
            self.set.insert_all(&self.pairs);
        }
    }

    /// The pairs of codes and `groups[i]` in place of group `i`, in `count` partitions, a power of two of at most 65,536. Equal pairs of
    /// different tables have the same partition.
    pub fn partition(&self, plan: &DistinctPlan, groups: &[u32], count: usize) -> Partitions<Pair> {
        let pairs = || self.set.iter().map(|[code, group]| [code, u64::from(groups[group as usize])]);
        let mut numbers = Vec::with_capacity(self.len());
        numbers.extend(pairs().map(|[code, group]| {
            let value = plan.argument.table_independent(code, &self.strings);
            (hash([value, group].into_iter()) as usize & (count - 1)) as u16
        }));
        Partitions::new(pairs(), &numbers, count)
    }

    /// The groups and the codes of their values.
    pub fn values(&self) -> impl Iterator<Item = (usize, u64)> {
        self.set.iter().map(|[code, group]| (group as usize, code))
    }

    /// Appends the value of a code, or NULL, and the filter to their columns.
    pub fn put(&self, plan: &DistinctPlan, code: Option<u64>, row: usize, columns: &mut [ColumnBuilder]) {
        let Some((value, filter)) = columns.split_first_mut() else { return };
        if let Some(code) = code {
            plan.argument.put_code(code, &self.strings, row, value);
            filter.iter_mut().for_each(|filter| filter.push_int(ValueKind::Bool, 1));
        } else {
            value.push_null(row, stride(plan.argument.kind));
            filter.iter_mut().for_each(|filter| filter.push_null(row, 1));
        }
    }

    /// Computes the states of the aggregates for groups up to `groups`.
    pub fn states(&self, plan: &DistinctPlan, groups: usize) -> Vec<State> {
        let mut states = plan.new_states(groups);
        self.add_to(&mut states);
        states
    }

    /// Adds all values to the states of the aggregates.
    pub fn add_to(&self, states: &mut [State]) {
        for state in states {
            state.add_pairs(self.values().map(|(group, code)| (group, code as i64)));
        }
    }
}
