//! Folds rows into groups, a run of rows at a time, and writes the groups as partial states.
//!
//! Groups are written early when the account grants no more memory, or when a sum might overflow. The receiver combines the
//! states of a group that is written more than once. At the end of a range, the groups of several aggregators are merged.

use super::argument::Vector;
use super::distinct::DistinctValues;
use super::groups::{DISCARD, GroupTable, RowGroups, hash};
use super::key::{RowCodes, put_linear};
use super::plan::{AggregationPlan, GroupForm, KeyOutput, LinearArgument, StateSpec};
use super::pruning::Groups;
use super::state::State;
use super::total::Total;
use super::{MAGNITUDE_SUM_MAX, ROWS_MAX, RUN_ROWS};
use crate::batch::{ColumnBuilder, ResultWriter};
use crate::memory::{Account, Grant};
use crate::predicate::{EncodedColumn, EvalCache, LaneBuffers, RowSet, UNCERTAIN};
use crate::vectors::marked;
use cellar_format::stats::ScanStats;
use cellar_format::wire::ScanMode;
use std::convert::Infallible;
use std::sync::Arc;

/// Groups may use this much memory without a grant, so that an aggregation to few groups never writes them early.
const MEMORY_BYTES_FREE: usize = 64 << 10;
/// Memory beyond the bytes in use, as a fraction: pages of vectors that are used in part, and scratch memory.
const GRANT_MARGIN: usize = 8;
/// Merged groups are sent when their frames reach this size.
const SEND_BYTES: usize = 128 << 10;
/// Groups of a batch.
const BATCH_GROUPS: usize = 1024;

/// The groups of one scan, and scratch memory.
pub struct Aggregator {
    table: GroupTable,
    /// One per state of the plan. While groups are written in [`GroupForm::States`], those of the aggregates with DISTINCT follow.
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
        let full =
            self.rows + RUN_ROWS as u64 > ROWS_MAX || self.magnitude > MAGNITUDE_SUM_MAX || !self.is_memory_granted();
        if full { self.flush(plan, out) } else { 0 }
    }

    /// Acquires memory for what another run may add, and returns what is no longer needed since a table has grown.
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
        bytes <= MEMORY_BYTES_FREE || self.memory.cover((bytes + bytes / GRANT_MARGIN) as u64)
    }

    /// The memory in use and what is allocated to add `groups` groups or distinct values, in bytes.
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

    /// Merges the groups of several aggregators, writes the merged groups to `out`, and frees their memory. Calls `send` when
    /// `out` has many bytes. `complete`: all rows of the scan are in these groups, so groups that the backend does not need
    /// are not written. Returns the number of groups that were written.
    pub fn finish_all<E>(
        mut aggregators: Vec<&mut Self>,
        plan: &AggregationPlan,
        complete: bool,
        out: &mut ResultWriter,
        send: &mut dyn FnMut(&mut ResultWriter) -> Result<(), E>,
    ) -> Result<u64, E> {
        // The largest table receives the groups of the others.
        aggregators.sort_by_key(|aggregator| std::cmp::Reverse(aggregator.table.len() + aggregator.distinct.len()));
        let mut merged = true;
        let mut written = 0;
        if let Some((first, others)) = aggregators.split_first_mut() {
            for other in others.iter_mut().filter(|other| other.rows > 0) {
                if first.absorb_all(plan, other) {
                    other.clear();
                } else {
                    merged = false;
                }
                other.release_if_empty(plan);
            }
        }
        for aggregator in aggregators {
            written += aggregator.write(plan, complete && merged, out, send)?;
            aggregator.release(plan);
        }
        Ok(written)
    }

    /// Adds the groups of another aggregator. False: the states of no group were added, because a state might overflow or no memory is
    /// granted.
    fn absorb_all(&mut self, plan: &AggregationPlan, other: &Self) -> bool {
        let magnitude = self.magnitude.saturating_add(other.magnitude);
        if self.rows + other.rows > ROWS_MAX || magnitude > MAGNITUDE_SUM_MAX {
            return false;
        }
        let rows = self.rows + other.rows;
        let groups: Vec<u32> = (1..other.table.len() as u32).collect();
        let values = self.distinct.bytes_with(other.distinct.len()) + other.distinct.bytes_with(0);
        if !self.is_granted(self.bytes_with(groups.len()) + values) || !self.absorb(plan, other, &groups) {
            return false;
        }
        self.rows = rows;
        self.magnitude = magnitude;
        true
    }

    /// Adds some groups of another aggregator, each as one row. False: the states of no group were added, because a state might overflow
    /// or no memory is granted; groups may have been added. The sums of both must fit together. With DISTINCT, `groups` must be all groups.
    pub(super) fn absorb(&mut self, plan: &AggregationPlan, other: &Self, groups: &[u32]) -> bool {
        let strings = if other.table.len() == 1 { 0 } else { other.table.string_bytes() / (other.table.len() - 1) };
        // Merged states contain copies of the values.
        let values =
            other.states.iter().map(|state| state.bytes().saturating_sub(state.group_bytes() * other.table.len()));
        let values = values.sum::<usize>() / other.group_count().max(1) * groups.len();
        if !self.is_granted(self.bytes_with(groups.len()) + groups.len() * strings + values) {
            return false;
        }
        let words = self.table.words();
        let mut rows = vec![0; RUN_ROWS * words];
        let mut own = Vec::with_capacity(groups.len());
        for groups in groups.chunks(RUN_ROWS) {
            let rows = &mut rows[..groups.len() * words];
            for (group, row) in groups.iter().zip(rows.chunks_exact_mut(words)) {
                row.copy_from_slice(other.table.codes(*group as usize));
                let nulls = row[words - 1];
                for (number, key) in plan.keys.iter().enumerate().filter(|(number, _)| nulls >> number & 1 == 0) {
                    row[number] = key.moved_code(row[number], &other.table, &mut self.table);
                }
            }
            self.table.number_rows(rows, &mut own);
        }
        self.states.iter_mut().for_each(|state| state.resize(self.table.len()));
        if !self.states.iter().zip(&other.states).all(|(state, other)| state.can_merge(other, groups, &own)) {
            return false;
        }
        for (state, other) in self.states.iter_mut().zip(&other.states) {
            state.merge(other, groups, &own);
        }
        if let Some(distinct) = &plan.distinct {
            own.insert(0, DISCARD);
            self.distinct.absorb(distinct, &other.distinct, &own);
        }
        self.rows += groups.len() as u64;
        true
    }

    /// The number of groups.
    pub(super) fn group_count(&self) -> usize {
        self.table.len() - 1
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn magnitude(&self) -> u128 {
        self.magnitude
    }

    pub(super) fn account(&self) -> &Arc<Account> {
        self.memory.account()
    }

    /// Acquires memory beyond that of the groups, `bytes` for each of them.
    pub(super) fn reserve(&mut self, bytes: usize) -> bool {
        let bytes = self.bytes() + self.group_count() * bytes;
        self.is_granted(bytes)
    }

    /// Prepares the table for this many groups.
    pub(super) fn reserve_groups(&mut self, groups: usize) {
        self.table.reserve(groups);
    }

    /// The partition of each group among `count` partitions, a power of two of at most 65,536. Equal keys of different aggregators have
    /// the same partition.
    pub(super) fn partition_numbers(&self, plan: &AggregationPlan, count: usize) -> Vec<u16> {
        let number = |group: usize| {
            let codes = self.table.codes(group);
            let nulls = codes[codes.len() - 1];
            let words =
                plan.keys.iter().zip(codes).enumerate().map(|(number, (key, code))| match nulls >> number & 1 {
                    0 => key.table_independent(*code, &self.table),
                    _ => 0,
                });
            // The upper half of a row's hash decides about slots of the table of merged groups.
            (hash(words.chain([nulls])) as usize & (count - 1)) as u16
        };
        (1..self.table.len()).map(number).collect()
    }

    /// The groups that the backend needs if all rows of the scan are in the groups.
    pub(super) fn needed(&self, plan: &AggregationPlan) -> Vec<u32> {
        let groups = Groups { keys: &plan.keys, table: &self.table, states: &self.states };
        plan.pruning.as_ref().map_or_else(|| (1..self.table.len() as u32).collect(), |pruning| pruning.select(groups))
    }

    fn release_if_empty(&mut self, plan: &AggregationPlan) {
        if self.rows == 0 {
            self.release(plan);
        }
    }

    /// Frees the memory of groups that were written.
    pub(super) fn release(&mut self, plan: &AggregationPlan) {
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

    /// Writes all groups to `out` and clears them. Returns their number.
    pub fn flush(&mut self, plan: &AggregationPlan, out: &mut ResultWriter) -> u64 {
        let sent = &mut |_: &mut ResultWriter| Ok::<(), Infallible>(());
        match self.write(plan, false, out, sent) {
            Ok(groups) => groups,
            Err(never) => match never {},
        }
    }

    /// Writes the groups to `out` and clears them. `complete`: all rows of the scan are in these groups, so only those that the backend
    /// needs are written. Calls `send` when `out` has many bytes. Returns the number of rows that were written.
    pub(super) fn write<E>(
        &mut self,
        plan: &AggregationPlan,
        complete: bool,
        out: &mut ResultWriter,
        send: &mut dyn FnMut(&mut ResultWriter) -> Result<(), E>,
    ) -> Result<u64, E> {
        if self.rows == 0 {
            self.clear();
            return Ok(0);
        }
        if plan.distinct.is_some() && !(complete && self.finish_distinct(plan)) {
            return self.write_values(plan, out, send);
        }
        let needed = (complete && plan.pruning.is_some()).then(|| self.needed(plan));
        let mut columns = std::mem::take(&mut self.columns);
        let written = match needed {
            Some(needed) => self.put_groups(plan, needed.iter().map(|group| *group as usize), &mut columns, out, send),
            None => self.put_groups(plan, 1..self.table.len(), &mut columns, out, send),
        };
        self.columns = columns;
        self.states.truncate(plan.states.len());
        self.clear();
        written
    }

    /// Writes some groups of another aggregator without aggregates with DISTINCT, as [`Self::write`] does.
    pub(super) fn write_groups_of<E>(
        &mut self,
        plan: &AggregationPlan,
        other: &Self,
        groups: &[u32],
        out: &mut ResultWriter,
        send: &mut dyn FnMut(&mut ResultWriter) -> Result<(), E>,
    ) -> Result<u64, E> {
        other.put_groups(plan, groups.iter().map(|group| *group as usize), &mut self.columns, out, send)
    }

    /// Appends groups to `out`. Returns their number.
    fn put_groups<E>(
        &self,
        plan: &AggregationPlan,
        mut groups: impl ExactSizeIterator<Item = usize>,
        columns: &mut Vec<ColumnBuilder>,
        out: &mut ResultWriter,
        send: &mut dyn FnMut(&mut ResultWriter) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mode = if plan.distinct.is_some() { ScanMode::DistinctGroups } else { ScanMode::Groups };
        let strides = start_columns(plan, GroupForm::States, columns);
        let count = groups.len() as u64;
        while groups.len() > 0 {
            let rows = groups.len().min(BATCH_GROUPS);
            for (row, group) in groups.by_ref().take(rows).enumerate() {
                let (keys, states) = columns.split_at_mut(plan.key_outputs.len());
                let (states, distinct_states) = states.split_at_mut(plan.outputs.len());
                put_keys(plan, &self.table, group, row, keys);
                put_states(plan, &self.states, group, row, states);
                if let Some(distinct) = &plan.distinct {
                    distinct.put_states(&self.states[plan.states.len()..], group, row, distinct_states);
                }
            }
            put_batch(mode, columns, &strides, rows, out);
            if out.pending_bytes() >= SEND_BYTES {
                send(out)?;
            }
        }
        Ok(count)
    }

    /// Appends the states of the aggregates with DISTINCT to the states. False: no memory is granted.
    fn finish_distinct(&mut self, plan: &AggregationPlan) -> bool {
        let Some(distinct) = &plan.distinct else { return false };
        let bytes = self.bytes() + distinct.state_bytes(self.table.len());
        if !self.is_granted(bytes) {
            return false;
        }
        self.states.extend(self.distinct.states(distinct, self.table.len()));
        true
    }

    /// Writes a row for each value of a group, and for each group without values, and clears the groups. Returns the number of rows.
    fn write_values<E>(
        &mut self,
        plan: &AggregationPlan,
        out: &mut ResultWriter,
        send: &mut dyn FnMut(&mut ResultWriter) -> Result<(), E>,
    ) -> Result<u64, E> {
        let Some(distinct) = &plan.distinct else { return Ok(0) };
        let strides = start_columns(plan, GroupForm::Values, &mut self.columns);
        let mut empty = new_states(plan);
        empty.iter_mut().for_each(|state| state.resize(1));
        // Whether a group's states were written.
        let mut written = vec![false; self.table.len()];
        let (mut row, mut rows) = (0, 0);
        let values = self.distinct.values().map(|(group, code)| (group, Some(code)));
        for (group, code) in values.chain((1..self.table.len()).map(|group| (group, None))) {
            let is_first = !std::mem::replace(&mut written[group], true);
            if code.is_none() && !is_first {
                continue;
            }
            let (keys, rest) = self.columns.split_at_mut(plan.key_outputs.len());
            let (value_columns, states) = rest.split_at_mut(rest.len() - plan.outputs.len());
            put_keys(plan, &self.table, group, row, keys);
            self.distinct.put(distinct, code, row, value_columns);
            match is_first {
                true => put_states(plan, &self.states, group, row, states),
                false => put_states(plan, &empty, 0, row, states),
            }
            row += 1;
            if row == BATCH_GROUPS {
                put_batch(ScanMode::Groups, &mut self.columns, &strides, row, out);
                rows += std::mem::take(&mut row) as u64;
                if out.pending_bytes() >= SEND_BYTES {
                    send(out)?;
                }
            }
        }
        if row > 0 {
            put_batch(ScanMode::Groups, &mut self.columns, &strides, row, out);
            rows += row as u64;
        }
        self.clear();
        Ok(rows)
    }

    /// Removes all groups.
    pub(super) fn clear(&mut self) {
        self.table.clear();
        self.distinct.clear();
        self.states.iter_mut().for_each(|state| state.resize(0));
        self.rows = 0;
        self.magnitude = 0;
    }
}

/// Prepares the columns of a form and returns their strides.
fn start_columns(plan: &AggregationPlan, form: GroupForm, columns: &mut Vec<ColumnBuilder>) -> Vec<usize> {
    let strides = plan.strides(form);
    columns.resize_with(strides.len(), ColumnBuilder::default);
    columns.iter_mut().for_each(ColumnBuilder::clear);
    strides
}

fn new_table(plan: &AggregationPlan) -> GroupTable {
    let only_string = matches!(plan.keys.as_slice(), [key] if key.is_string());
    GroupTable::new(plan.keys.len(), only_string)
}

/// Writes the rows of the columns as a batch and clears the columns.
fn put_batch(mode: ScanMode, columns: &mut [ColumnBuilder], strides: &[usize], rows: usize, out: &mut ResultWriter) {
    columns.iter_mut().for_each(|column| column.finish_nulls(rows));
    out.groups(mode, columns, strides, rows as u32);
    columns.iter_mut().for_each(ColumnBuilder::clear);
}

/// Appends the keys of a group to their columns.
fn put_keys(plan: &AggregationPlan, table: &GroupTable, group: usize, row: usize, columns: &mut [ColumnBuilder]) {
    for (KeyOutput { key, linear }, column) in plan.key_outputs.iter().zip(columns) {
        match linear {
            None => plan.keys[*key].put(*key, table, group, row, column),
            Some((kind, linear)) => put_linear(*key, *kind, linear, table.codes(group), row, column),
        }
    }
}

/// Appends the states of a group to their columns.
fn put_states(plan: &AggregationPlan, states: &[State], group: usize, row: usize, columns: &mut [ColumnBuilder]) {
    for (output, column) in plan.outputs.iter().zip(columns) {
        let linear = output.linear.map(|linear| &plan.linears[linear].linear);
        states[output.state].put(group, output.format, linear, row, column);
    }
}

fn new_states(plan: &AggregationPlan) -> Vec<State> {
    let state = |spec: &StateSpec| State::new(spec.kind, plan.arguments[spec.argument].fraction_digits());
    plan.states.iter().map(state).collect()
}
