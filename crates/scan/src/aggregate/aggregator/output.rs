//! Writes groups as partial states.

use super::{Aggregator, new_states};
use crate::aggregate::groups::GroupTable;
use crate::aggregate::key::put_linear;
use crate::aggregate::plan::{AggregationPlan, GroupForm, KeyOutput};
use crate::aggregate::state::State;
use crate::batch::{ColumnBuilder, ResultWriter};
use cellar_format::wire::ScanMode;
use std::convert::Infallible;

/// Merged groups are sent when their frames reach this size.
const SEND_BYTES: usize = 128 << 10;
/// Groups of a batch.
const BATCH_GROUPS: usize = 1024;

impl Aggregator {
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
    pub(in crate::aggregate) fn write<E>(
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
    pub(in crate::aggregate) fn write_groups_of<E>(
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

    /// Appends the states of the aggregates with DISTINCT to the states, unless a merge has done so. False: no memory is granted.
    fn finish_distinct(&mut self, plan: &AggregationPlan) -> bool {
        let Some(distinct) = &plan.distinct else { return false };
        if self.states.len() > plan.states.len() {
            return true;
        }
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
}

/// Prepares the columns of a form and returns their strides.
fn start_columns(plan: &AggregationPlan, form: GroupForm, columns: &mut Vec<ColumnBuilder>) -> Vec<usize> {
    let strides = plan.strides(form);
    columns.resize_with(strides.len(), ColumnBuilder::default);
    columns.iter_mut().for_each(ColumnBuilder::clear);
    strides
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
