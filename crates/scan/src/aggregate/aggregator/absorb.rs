//! Merges the groups of several aggregators.

use super::Aggregator;
use crate::aggregate::distinct::DistinctPlan;
use crate::aggregate::groups::DISCARD;
use crate::aggregate::plan::AggregationPlan;
use crate::aggregate::state::State;
use crate::aggregate::value_set::Pair;
use crate::aggregate::{MAGNITUDE_SUM_MAX, ROWS_MAX, RUN_ROWS};
use crate::batch::ResultWriter;

impl Aggregator {
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
        if !self.absorb(plan, other, &groups) {
            return false;
        }
        self.rows = rows;
        self.magnitude = magnitude;
        true
    }

    /// Adds some groups of another aggregator, each as one row. False: the states of no group were added, because a state might overflow
    /// or no memory is granted; groups may have been added. The sums of both must fit together. With DISTINCT, `groups` must be all groups.
    pub(in crate::aggregate) fn absorb(&mut self, plan: &AggregationPlan, other: &Self, groups: &[u32]) -> bool {
        let value_bytes = match &plan.distinct {
            Some(_) => self.distinct.bytes_with(other.distinct.len()) + other.distinct.bytes_with(0),
            None => 0,
        };
        let Some(mut own) = self.absorb_states(plan, other, groups, value_bytes) else { return false };
        if let Some(distinct) = &plan.distinct {
            own.insert(0, DISCARD);
            self.distinct.absorb(distinct, &other.distinct, &own);
        }
        true
    }

    /// As [`Self::absorb`], for some groups of an aggregator with DISTINCT. `values` are pairs of a code and the position of a group in
    /// `groups`.
    pub(in crate::aggregate) fn absorb_with_values(
        &mut self,
        plan: &AggregationPlan,
        (other, groups): (&Self, &[u32]),
        (distinct, values): (&DistinctPlan, &[Pair]),
    ) -> bool {
        let copied = other.distinct.bytes_with(0) / other.distinct.len().max(1) * values.len();
        let value_bytes = self.distinct.bytes_with(values.len()) + copied;
        let Some(own) = self.absorb_states(plan, other, groups, value_bytes) else { return false };
        let values = values.iter().map(|[code, position]| [*code, own[*position as usize].into()]);
        self.distinct.absorb_pairs(distinct, &other.distinct, values);
        true
    }

    /// As [`Self::absorb`], without the values of aggregates with DISTINCT, for which `value_bytes` are acquired. Returns the merged group
    /// of each group.
    pub(super) fn absorb_states(
        &mut self,
        plan: &AggregationPlan,
        other: &Self,
        groups: &[u32],
        value_bytes: usize,
    ) -> Option<Vec<u32>> {
        // The merged groups contain copies of strings, values and distinct values.
        let copied = other.table.string_bytes() + other.states.iter().map(State::value_bytes).sum::<usize>();
        let bytes = self.bytes_with(groups.len()) + copied / other.group_count().max(1) * groups.len() + value_bytes;
        if !self.is_granted(bytes) {
            return None;
        }
        let words = self.table.words();
        let mut rows = vec![0; RUN_ROWS * words];
        let mut own = Vec::with_capacity(groups.len());
        for groups in groups.chunks(RUN_ROWS) {
            let rows = &mut rows[..groups.len() * words];
            for (group, row) in groups.iter().zip(rows.chunks_exact_mut(words)) {
                row.copy_from_slice(other.table.codes(*group as usize));
            }
            for (number, key) in plan.keys.iter().enumerate() {
                let is_null = |row: &[u64]| row[words - 1] >> number & 1 == 1;
                key.move_codes(rows, (words, number), is_null, &other.table, &mut self.table);
            }
            self.table.number_rows(rows, &mut own);
        }
        self.states.iter_mut().for_each(|state| state.resize(self.table.len()));
        if !self.states.iter().zip(&other.states).all(|(state, other)| state.can_merge(other, groups, &own)) {
            return None;
        }
        for (state, other) in self.states.iter_mut().zip(&other.states) {
            state.merge(other, groups, &own);
        }
        self.rows += groups.len() as u64;
        Some(own)
    }

    fn release_if_empty(&mut self, plan: &AggregationPlan) {
        if self.rows == 0 {
            self.release(plan);
        }
    }
}
