//! Folds rows into groups, a run of rows at a time, and writes the groups as partial states.
//!
//! Groups are written early when their memory reaches [`MEMORY_BYTES_MAX`], or when the account grants no more memory.
//! The receiver combines the states of a group that is written more than once.

use super::argument::Vector;
use super::groups::{DISCARD, GroupTable, RowGroups};
use super::key::RowCodes;
use super::plan::{AggregationPlan, LinearArgument, StateSpec};
use super::state::State;
use super::total::Total;
use super::{ROWS_MAX, RUN_ROWS};
use crate::batch::{ColumnBuilder, ResultWriter};
use crate::memory::{Account, Grant};
use crate::predicate::{EncodedColumn, EvalCache, LaneBuffers, RowSet, UNCERTAIN};
use crate::vectors::marked;
use cellar_format::stats::ScanStats;
use std::sync::Arc;

/// Groups are written once they use about this much memory.
const MEMORY_BYTES_MAX: usize = 32 << 20;
/// Groups may use this much memory without a grant, so that an aggregation to few groups never writes them early.
const MEMORY_BYTES_FREE: usize = 64 << 10;
/// Bytes to grant per byte in use: vectors may have twice the capacity in use, and the frames to which the groups are
/// written take about as much memory as the groups.
const GRANT_FACTOR: usize = 3;
/// Groups of a batch.
const BATCH_GROUPS: usize = 1024;

/// The groups of one scan, and scratch memory.
pub struct Aggregator {
    table: GroupTable,
    states: Vec<State>,
    /// Rows in all groups.
    rows: u64,
    /// The groups of the run's rows.
    groups: RowGroups,
    /// The key codes of the run's rows.
    codes: RowCodes,
    rejected: Vec<u16>,
    buffers: LaneBuffers,
    columns: Vec<ColumnBuilder>,
    strides: Vec<usize>,
    memory: Grant,
}

impl Aggregator {
    /// `memory` is the account of the groups' memory.
    pub fn new(plan: &AggregationPlan, memory: &Arc<Account>) -> Self {
        let strides = plan.strides();
        Self {
            table: GroupTable::new(plan.keys.len()),
            states: new_states(plan),
            rows: 0,
            groups: RowGroups::default(),
            codes: RowCodes::default(),
            rejected: Vec::new(),
            buffers: LaneBuffers::default(),
            columns: std::iter::repeat_with(ColumnBuilder::default).take(strides.len()).collect(),
            strides,
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
        let flushed = if self.rows + rows > ROWS_MAX { self.flush(plan, out) } else { 0 };
        let group = self.only_group() as usize;
        for (spec, state) in plan.states.iter().zip(&mut self.states) {
            state.add_total(group, &totals[spec.argument]);
        }
        self.rows += rows;
        flushed
    }

    /// Adds the selected rows; rejected rows stay selected. Groups may be written to `out`; they count as rows
    /// returned.
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
        self.add_run(plan, rows, selected, marks, None).then(|| self.flush_if_full(plan, out))
    }

    /// Writes all groups to `out` if another run might exceed a limit. Returns the number of groups written.
    fn flush_if_full(&mut self, plan: &AggregationPlan, out: &mut ResultWriter) -> u64 {
        let full = self.rows + RUN_ROWS as u64 > ROWS_MAX || !self.is_memory_granted();
        if full { self.flush(plan, out) } else { 0 }
    }

    fn is_memory_granted(&mut self) -> bool {
        match self.bytes() {
            ..=MEMORY_BYTES_FREE => true,
            bytes @ ..=MEMORY_BYTES_MAX => self.memory.cover((bytes * GRANT_FACTOR) as u64),
            _ => false,
        }
    }

    /// Writes all groups to `out` and frees their memory. Returns their number.
    pub fn finish(&mut self, plan: &AggregationPlan, out: &mut ResultWriter) -> u64 {
        let groups = self.flush(plan, out);
        if self.memory.bytes() > 0 {
            self.table = GroupTable::new(plan.keys.len());
            self.states = new_states(plan);
            self.columns.iter_mut().for_each(|column| *column = ColumnBuilder::default());
            self.memory.release();
        }
        groups
    }

    /// Adds a run of rows and appends rejected rows to `rejected`. False: nothing was added, because a row would be
    /// rejected and `rejected` is None, or because there are too many groups for marks.
    fn add_run<'a>(
        &mut self,
        plan: &'a AggregationPlan,
        rows: RowSet<'a>,
        run: &[u16],
        marks: Option<&[u8]>,
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
            state.discard_overflow(&vectors[spec.argument], numbers);
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
        if let Some(rejected) = rejected.filter(|_| discarded > 0) {
            rejected.extend(
                run.iter().zip(&self.groups.numbers).filter(|(_, group)| **group == DISCARD).map(|(row, _)| *row),
            );
        }
        self.rows += added as u64;
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
        if let Some(keys) = encoded
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
        if self.codes.undecided.is_empty() {
            for row in self.codes.words.chunks_exact(words) {
                numbers.push(self.table.group(row));
            }
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
        self.table.bytes() + self.states.iter().map(State::bytes).sum::<usize>()
    }

    /// Writes all groups to `out` and clears them. Returns their number.
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
                for (output, column) in plan.outputs.iter().zip(states) {
                    let linear = output.linear.map(|linear| &plan.linears[linear].linear);
                    self.states[output.state].put(group, output.format, linear, row, column);
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

fn new_states(plan: &AggregationPlan) -> Vec<State> {
    let state = |spec: &StateSpec| State::new(spec.kind, plan.arguments[spec.argument].fraction_digits());
    plan.states.iter().map(state).collect()
}
