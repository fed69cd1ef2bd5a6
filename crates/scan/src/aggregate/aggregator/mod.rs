//! Folds rows into groups, a run of rows at a time, and writes the groups as partial states.
//!
//! Groups are written early when the account grants no more memory, or when a sum might overflow. The receiver combines the
//! states of a group that is written more than once. At the end of a range, the groups of several aggregators are merged.

mod absorb;
mod distinct_merge;
mod output;

pub use distinct_merge::DistinctMerge;

use super::argument::Vector;
use super::distinct::{DistinctPlan, DistinctValues};
use super::groups::{DISCARD, GroupTable, RowGroups, hash};
use super::key::RowCodes;
use super::plan::{AggregationPlan, LinearArgument, StateSpec};
use super::pruning::Groups;
use super::state::State;
use super::total::Total;
use super::{MAGNITUDE_SUM_MAX, ROWS_MAX, RUN_ROWS};
use crate::batch::{ColumnBuilder, ResultWriter};
use crate::memory::{Account, Grant};
use crate::predicate::{EncodedColumn, EvalCache, LaneBuffers, RowSet, UNCERTAIN};
use crate::vectors::marked;
use cellar_format::stats::ScanStats;
use std::sync::Arc;

/// Groups may use this much memory without a grant, so that an aggregation to few groups never writes them early.
const MEMORY_BYTES_FREE: usize = 64 << 10;
/// Memory beyond the bytes in use, as a fraction: pages of vectors that are used in part, and scratch memory.
const GRANT_MARGIN: usize = 8;

/// The groups of one scan, and scratch memory.
pub struct Aggregator {
    table: GroupTable,
    /// One per state of the plan. While groups are written in [`super::plan::GroupForm::States`], those of the aggregates with DISTINCT follow.
    states: Vec<State>,
    /// Empty without aggregates with DISTINCT.
    distinct: DistinctValues,
    /// Rows in all groups.
    rows: u64,
    /// An upper bound of the magnitude of all sums of 128 bits.
    magnitude: u128,
    /// The groups of the run's rows.
    groups: RowGroups,
    /// The key codes of the run's rows.
    codes: RowCodes,
    rejected: Vec<u16>,
    buffers: LaneBuffers,
    columns: Vec<ColumnBuilder>,
    memory: Grant,
}

/// Which rows of a run are added.
struct Selection<'a> {
    /// 1 for each row that is added. None: all rows are.
    marks: Option<&'a [u8]>,
    /// See [`Aggregator::add`].
    sources: Option<&'a [u16]>,
}

impl Aggregator {
    /// `memory` is the account of the groups' memory.
    pub fn new(plan: &AggregationPlan, memory: &Arc<Account>) -> Self {
        Self {
            table: new_table(plan),
            states: new_states(plan),
            distinct: DistinctValues::default(),
            rows: 0,
            magnitude: 0,
            groups: RowGroups::default(),
            codes: RowCodes::default(),
            rejected: Vec::new(),
            buffers: LaneBuffers::default(),
            columns: Vec::new(),
            memory: Grant::new(memory),
        }
    }

    /// Adds rows to an aggregation that only counts rows.
    pub fn count_rows(&mut self, plan: &AggregationPlan, rows: u64) {
        debug_assert!(plan.counts_rows());
        if rows > 0 {
            let group = self.only_group() as usize;
            let total = Total { values: rows as i64, ..Total::default() };
            self.states.iter_mut().for_each(|state| state.add_total(group, &total));
            self.rows += rows;
        }
    }

    /// Adds rows by their totals, one per argument. Returns the number of groups written to `out`.
    pub fn add_totals(&mut self, plan: &AggregationPlan, totals: &[Total], rows: u64, out: &mut ResultWriter) -> u64 {
        let states = plan.states.iter().zip(&self.states);
        let magnitude = states.map(|(spec, state)| state.total_magnitude(&totals[spec.argument])).max().unwrap_or(0);
        let full = self.rows + rows > ROWS_MAX || self.magnitude.saturating_add(magnitude) > MAGNITUDE_SUM_MAX;
        let flushed = if full { self.flush(plan, out) } else { 0 };
        self.magnitude = self.magnitude.saturating_add(magnitude);
        let group = self.only_group() as usize;
        for (spec, state) in plan.states.iter().zip(&mut self.states) {
            state.add_total(group, &totals[spec.argument]);
        }
        self.rows += rows;
        flushed
    }

    /// Adds the selected rows; rejected rows stay selected. Groups may be written to `out`; they count as rows
    /// returned. `sources`: the row of the scan that each selected row is made of. Consecutive rows with the same source are added
    /// together or rejected together; all rows are one run.
    pub fn add(
        &mut self,
        plan: &AggregationPlan,
        rows: RowSet<'_>,
        selected: &mut Vec<u16>,
        sources: Option<&[u16]>,
        out: &mut ResultWriter,
        stats: &mut ScanStats,
    ) {
        let mut rejected = std::mem::take(&mut self.rejected);
        rejected.clear();
        debug_assert!(sources.is_none_or(|sources| sources.len() == selected.len() && sources.len() <= RUN_ROWS));
        for run in selected.chunks(RUN_ROWS) {
            self.add_run(plan, rows, run, Selection { marks: None, sources }, Some(&mut rejected));
            stats.rows_returned += self.flush_if_full(plan, out);
        }
        stats.rows_aggregated += (selected.len() - rejected.len()) as u64;
        self.rejected = std::mem::replace(selected, rejected);
    }

    /// Adds at most [`RUN_ROWS`] rows that have encoded values instead of datums in some columns: all rows of `selected`, or
    /// with `marks` the rows whose mark is 1. Returns the number of groups written to `out`. None: nothing was added, because some row
    /// needs datums or because there are too many groups for marks.
    pub fn add_encoded(
        &mut self,
        plan: &AggregationPlan,
        rows: RowSet<'_>,
        selected: &[u16],
        marks: Option<&[u8]>,
        out: &mut ResultWriter,
    ) -> Option<u64> {
        self.add_run(plan, rows, selected, Selection { marks, sources: None }, None)
            .then(|| self.flush_if_full(plan, out))
    }

    /// Writes all groups to `out` if another run might exceed a limit. Returns the number of groups written.
    fn flush_if_full(&mut self, plan: &AggregationPlan, out: &mut ResultWriter) -> u64 {
        let full =
            self.rows + RUN_ROWS as u64 > ROWS_MAX || self.magnitude > MAGNITUDE_SUM_MAX || !self.is_memory_granted();
        if full { self.flush(plan, out) } else { 0 }
    }

    /// Acquires memory for what another run may add. Returns memory that was only needed while a table grew.
    fn is_memory_granted(&mut self) -> bool {
        if self.bytes() <= MEMORY_BYTES_FREE {
            return true;
        }
        let bytes = self.bytes_with(RUN_ROWS);
        let granted = self.is_granted(bytes);
        if granted && self.memory.bytes() / 2 > bytes as u64 {
            self.memory.shrink((bytes + bytes / GRANT_MARGIN) as u64);
        }
        granted
    }

    /// Whether the account grants these bytes.
    fn is_granted(&mut self, bytes: usize) -> bool {
        is_granted(&mut self.memory, bytes)
    }

    /// The bytes in use, plus the bytes that are allocated to add `groups` groups or distinct values.
    fn bytes_with(&self, groups: usize) -> usize {
        let states: usize = self.states.iter().map(|state| state.bytes() + groups * state.group_bytes()).sum();
        let values = if self.distinct.len() == 0 { 0 } else { groups };
        self.table.bytes_with(groups) + self.distinct.bytes_with(values) + states
    }

    /// Writes all groups to `out` and frees their memory. Returns their number.
    pub fn finish(&mut self, plan: &AggregationPlan, out: &mut ResultWriter) -> u64 {
        let groups = self.flush(plan, out);
        self.release(plan);
        groups
    }

    /// The number of groups.
    pub(in crate::aggregate) fn group_count(&self) -> usize {
        self.table.len() - 1
    }

    pub(in crate::aggregate) fn rows(&self) -> u64 {
        self.rows
    }

    pub(in crate::aggregate) fn magnitude(&self) -> u128 {
        self.magnitude
    }

    pub(in crate::aggregate) fn account(&self) -> &Arc<Account> {
        self.memory.account()
    }

    /// Acquires `bytes` of memory for each group, in addition to the memory of the groups.
    pub(in crate::aggregate) fn reserve(&mut self, bytes: usize) -> bool {
        let bytes = self.bytes() + self.group_count() * bytes;
        self.is_granted(bytes)
    }

    /// Acquires memory for a copy of the groups with their distinct values and the states of the aggregates with DISTINCT, and `bytes`.
    pub(in crate::aggregate) fn reserve_copy(&mut self, distinct: &DistinctPlan, bytes: usize) -> bool {
        let bytes = 2 * self.bytes() + distinct.state_bytes(self.table.len()) + bytes;
        self.is_granted(bytes)
    }

    /// Prepares an empty aggregator for this many groups and distinct values.
    pub(in crate::aggregate) fn reserve_groups(&mut self, groups: usize, values: usize) {
        self.table.reserve(groups);
        self.distinct.restart(values);
    }

    /// The groups and the codes of their distinct values.
    pub(in crate::aggregate) fn distinct_values(&self) -> impl Iterator<Item = (usize, u64)> {
        self.distinct.values()
    }

    /// The number of distinct values of all groups.
    pub(in crate::aggregate) fn distinct_count(&self) -> usize {
        self.distinct.len()
    }

    /// Whether rows or merged groups may be discarded, because a state might overflow.
    pub(in crate::aggregate) fn may_discard(&self) -> bool {
        self.states.iter().any(State::may_discard)
    }

    /// A hash of each group's keys, which equal keys of different aggregators share. The slots of a [`GroupTable`] do not depend on its
    /// lower half.
    pub(in crate::aggregate) fn key_hashes(&self, plan: &AggregationPlan) -> impl Iterator<Item = u64> {
        let number = |group: usize| {
            let codes = self.table.codes(group);
            let nulls = codes[codes.len() - 1];
            let words =
                plan.keys.iter().zip(codes).enumerate().map(|(number, (key, code))| match nulls >> number & 1 {
                    0 => key.table_independent(*code, &self.table),
                    _ => 0,
                });
            hash(words.chain([nulls]))
        };
        (1..self.table.len()).map(number)
    }

    /// The groups that the backend needs if all rows of the scan are in the groups.
    pub(in crate::aggregate) fn needed(&self, plan: &AggregationPlan) -> Vec<u32> {
        self.needed_among(plan, 1..self.table.len() as u32)
    }

    /// Those of some groups that the backend needs if all rows of these groups are in them.
    pub(in crate::aggregate) fn needed_among(
        &self,
        plan: &AggregationPlan,
        among: impl Iterator<Item = u32> + Clone,
    ) -> Vec<u32> {
        let groups = Groups { keys: &plan.keys, table: &self.table, states: &self.states };
        match &plan.pruning {
            Some(pruning) => pruning.select(groups, among),
            None => among.collect(),
        }
    }

    /// Frees the groups, which were merged.
    pub fn discard(&mut self, plan: &AggregationPlan) {
        self.clear();
        self.release(plan);
    }

    /// Frees the memory of groups that were written.
    pub(in crate::aggregate) fn release(&mut self, plan: &AggregationPlan) {
        if self.memory.bytes() > 0 {
            self.table = new_table(plan);
            self.states = new_states(plan);
            self.distinct = DistinctValues::default();
            self.columns = Vec::new();
            self.memory.release();
        }
    }

    /// Adds a run of rows and appends rejected rows to `rejected`. False: nothing was added, because a row would be
    /// rejected and `rejected` is None, or because there are too many groups for marks.
    fn add_run<'a>(
        &mut self,
        plan: &'a AggregationPlan,
        rows: RowSet<'a>,
        run: &[u16],
        Selection { marks, sources }: Selection<'_>,
        rejected: Option<&mut Vec<u16>>,
    ) -> bool {
        let mut cache = EvalCache::with_buffers(std::mem::take(&mut self.buffers));
        let mut vectors: Vec<_> = plan.arguments.iter().map(|argument| argument.eval(rows, run, &mut cache)).collect();
        for LinearArgument { argument, linear } in &plan.linears {
            vectors[*argument].flag_undefined(linear);
        }
        let is_uncertain = |vector: &Vector<'_>| {
            vector.lanes.has_flags() && vector.lanes.iter().any(|(_, flags)| flags & UNCERTAIN != 0)
        };
        let uncertain = vectors.iter().any(is_uncertain);
        if uncertain && rejected.is_none() {
            return false;
        }
        if !self.assign_groups(plan, rows, run, marks, &mut cache) {
            return false;
        }
        if let Some(distinct) = &plan.distinct {
            let bytes = self.bytes_with(RUN_ROWS);
            let memory = &mut self.memory;
            self.distinct.start_run(distinct, rows, self.table.len(), |more| is_granted(memory, bytes + more));
        }
        let numbers = &mut self.groups.numbers;
        let mut uncertain = uncertain;
        if let Some(distinct) = &plan.distinct
            && self.distinct.eval(distinct, rows, run, &mut cache, numbers)
        {
            uncertain = true;
            if rejected.is_none() {
                return false;
            }
        }
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
            state.discard_overflow(&vectors[spec.argument], numbers);
        }
        if let Some(sources) = sources {
            discard_together(sources, numbers);
        }
        let only_one = plan.keys.is_empty() && !uncertain && marks.is_none();
        let discarded = match only_one && !self.states.iter().any(State::may_discard) {
            true => self.groups.count_only(run.len()),
            false => self.groups.count(self.table.len()),
        };
        let added = run.len() - discarded;
        let marked = marks.map_or(run.len(), marked);
        if rejected.is_none() && added != marked {
            return false;
        }
        let with_values: Vec<_> = vectors.iter().map(|vector| vector.rows_with_values(&self.groups)).collect();
        for (spec, state) in plan.states.iter().zip(&mut self.states) {
            state.add(&vectors[spec.argument], &self.groups, with_values[spec.argument].as_ref());
        }
        if plan.distinct.is_some() {
            self.distinct.add(&self.groups.numbers);
        }
        if let Some(rejected) = rejected.filter(|_| discarded > 0) {
            rejected.extend(
                run.iter().zip(&self.groups.numbers).filter(|(_, group)| **group == DISCARD).map(|(row, _)| *row),
            );
        }
        self.rows += added as u64;
        let states = plan.states.iter().zip(&self.states);
        let magnitude = states.map(|(spec, state)| state.magnitude(&vectors[spec.argument], run.len()));
        self.magnitude = self.magnitude.saturating_add(magnitude.max().unwrap_or(0));
        drop(vectors);
        self.buffers = cache.into_buffers();
        true
    }

    /// Assigns a group to each row of the run; rows without a mark get [`DISCARD`]. False: there are too many groups
    /// for marks.
    fn assign_groups<'a>(
        &mut self,
        plan: &'a AggregationPlan,
        rows: RowSet<'a>,
        run: &[u16],
        marks: Option<&[u8]>,
        cache: &mut EvalCache<'a>,
    ) -> bool {
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
        let encoded: Option<Vec<&EncodedColumn<'_>>> = plan.keys.iter().map(|key| key.encoded(rows)).collect();
        let is_defined = |keys: &Vec<&EncodedColumn<'_>>| {
            plan.key_functions().all(|(key, linear)| {
                let bounds =
                    keys[key].code_range().map(|(least, codes)| (least, least.saturating_add_unsigned(codes as u64)));
                bounds.is_some_and(|bounds| linear.is_defined_within(bounds))
            })
        };
        if let Some(keys) = encoded
            && is_defined(&keys)
            && self.table.number_by_code(&keys, rows.encoded_columns.chunk_id, run.len(), marks, numbers)
        {
            return true;
        }
        if marks.is_some() {
            return false;
        }
        let words = self.table.words();
        self.codes.clear(run.len() * words);
        for (number, key) in plan.keys.iter().enumerate() {
            key.codes(number, rows, run, cache, &mut self.table, &mut self.codes);
        }
        for (key, linear) in plan.key_functions() {
            self.codes.flag_undefined(key, linear, words);
        }
        if self.codes.undecided.is_empty() {
            self.table.number_rows(&self.codes.words, numbers);
            return true;
        }
        self.codes.undecided.sort_unstable();
        for (index, row) in self.codes.words.chunks_exact(words).enumerate() {
            let undecided = self.codes.undecided.binary_search(&(index as u32)).is_ok();
            numbers.push(if undecided { DISCARD } else { self.table.group(row) });
        }
        true
    }

    /// The one group of an aggregation without keys; creates the group.
    fn only_group(&mut self) -> u32 {
        let group = self.table.group(&[0]);
        self.states.iter_mut().for_each(|state| state.resize(self.table.len()));
        group
    }

    fn bytes(&self) -> usize {
        self.bytes_with(0)
    }

    /// Removes all groups.
    pub(in crate::aggregate) fn clear(&mut self) {
        self.table.clear();
        self.distinct.clear();
        self.states.iter_mut().for_each(|state| state.resize(0));
        self.rows = 0;
        self.magnitude = 0;
    }
}

/// Whether the account of `memory` grants these bytes.
fn is_granted(memory: &mut Grant, bytes: usize) -> bool {
    bytes <= MEMORY_BYTES_FREE || memory.cover((bytes + bytes / GRANT_MARGIN) as u64)
}

/// Discards all rows of a source if one of them is discarded.
fn discard_together(sources: &[u16], numbers: &mut [u32]) {
    let mut rest = numbers;
    for same in sources.chunk_by(|one, other| one == other) {
        let (rows, later) = rest.split_at_mut(same.len());
        if rows.contains(&DISCARD) {
            rows.fill(DISCARD);
        }
        rest = later;
    }
}

fn new_table(plan: &AggregationPlan) -> GroupTable {
    let only_string = matches!(plan.keys.as_slice(), [key] if key.is_string());
    GroupTable::new(plan.keys.len(), only_string)
}

fn new_states(plan: &AggregationPlan) -> Vec<State> {
    let state = |spec: &StateSpec| {
        let argument = &plan.arguments[spec.argument];
        State::new(spec.kind, argument.fraction_digits(), argument.decimals())
    };
    plan.states.iter().map(state).collect()
}
