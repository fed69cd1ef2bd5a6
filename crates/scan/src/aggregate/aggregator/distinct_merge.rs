//! Merges the sets of distinct values of several aggregators, in partitions by the hash of value and group.
//!
//! A partition has all pairs of a value and a group that have certain hash bits, of all aggregators, so partitions are merged
//! independently, by several threads. Each thread adds the values of its partitions to separate states, which are merged at the end.

use super::Aggregator;
use crate::aggregate::distinct::{DistinctPlan, DistinctValues};
use crate::aggregate::groups::DISCARD;
use crate::aggregate::partitions::Partitions;
use crate::aggregate::plan::AggregationPlan;
use crate::aggregate::state::State;
use crate::aggregate::value_set::Pair;
use crate::aggregate::{MAGNITUDE_SUM_MAX, ROWS_MAX};
use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// With fewer values in all sets, one thread merges faster than several threads start.
const VALUES_MIN: usize = 32 << 10;
/// Minimum values for each group and thread. Each thread has states of all groups; this many values have acquired more memory
/// ([`VALUE_BYTES`]) than they need by the size of the states.
const VALUES_PER_STATE_MIN: usize = 4;
/// Values of all sets in a partition, which fits into the second-level cache.
const PARTITION_VALUES: usize = 16 << 10;
const PARTITIONS_MAX: usize = 512;
/// Bytes of a value in its partition, and in the set of the partition.
const VALUE_BYTES: usize = 3 * size_of::<Pair>() + size_of::<u16>();

/// A merge that threads share.
pub struct DistinctMerge<'a> {
    plan: &'a DistinctPlan,
    sources: Vec<Source<'a>>,
    partitions: usize,
    /// Merged groups, [`DISCARD`] included.
    groups: usize,
    next_source: AtomicUsize,
    next_partition: AtomicUsize,
    /// The states of merged groups.
    states: Mutex<Vec<State>>,
}

struct Source<'a> {
    values: &'a DistinctValues,
    /// The merged group of each group.
    groups: Vec<u32>,
    /// The values, with merged groups. Set by the first thread that needs the partitions.
    partitioned: OnceLock<Partitions<Pair>>,
}

impl Aggregator {
    /// Merges aggregators into the largest of them, whose states then contain those of the aggregates with DISTINCT. `run` calls
    /// [`DistinctMerge::run`], usually in several threads. All rows of the scan must be in the groups. Does nothing if partitions do not
    /// pay, or without memory for them; [`Self::finish_all`] merges the aggregators that still have rows.
    pub fn merge_distinct(
        plan: &AggregationPlan,
        aggregators: &mut Vec<&mut Self>,
        run: impl FnOnce(&DistinctMerge<'_>),
    ) {
        Self::merge_distinct_from(plan, aggregators, VALUES_MIN, run);
    }

    /// As [`Self::merge_distinct`], also with few values if there are at least `values_min`.
    pub fn merge_distinct_from(
        plan: &AggregationPlan,
        aggregators: &mut Vec<&mut Self>,
        values_min: usize,
        run: impl FnOnce(&DistinctMerge<'_>),
    ) {
        let Some(distinct) = &plan.distinct else { return };
        aggregators.sort_by_key(|aggregator| Reverse(aggregator.distinct.len()));
        let values: usize = aggregators.iter().map(|aggregator| aggregator.distinct.len()).sum();
        let rows: u64 = aggregators.iter().map(|aggregator| aggregator.rows).sum();
        let magnitude = aggregators.iter().fold(0u128, |sum, aggregator| sum.saturating_add(aggregator.magnitude));
        let pays = values >= values_min
            && Self::has_many_values(aggregators)
            && aggregators.iter().filter(|aggregator| aggregator.rows > 0).count() > 1
            && rows <= ROWS_MAX
            && magnitude <= MAGNITUDE_SUM_MAX
            && aggregators.iter_mut().all(|aggregator| aggregator.reserve_values());
        let Some((first, others)) = aggregators.split_first_mut().filter(|_| pays) else { return };

        let rows_before = first.rows;
        let mut merged_groups: Vec<Vec<u32>> = vec![(0..first.table.len() as u32).collect()];
        for other in others.iter() {
            let groups: Vec<u32> = (1..other.table.len() as u32).collect();
            let Some(mut own) = first.absorb_states(plan, other, &groups, 0) else { break };
            own.insert(0, DISCARD);
            merged_groups.push(own);
        }
        if merged_groups.len() <= others.len() {
            // The values follow the states that were merged.
            first.rows = rows_before;
            for (other, groups) in others.iter_mut().zip(&merged_groups[1..]) {
                first.distinct.absorb(distinct, &other.distinct, groups);
                first.rows += other.rows;
                first.magnitude = first.magnitude.saturating_add(other.magnitude);
                other.discard(plan);
            }
            return;
        }
        (first.rows, first.magnitude) = (rows, magnitude);

        let groups = first.table.len();
        let sets = std::iter::once(&first.distinct).chain(others.iter().map(|other| &other.distinct));
        let source = |(values, groups)| Source { values, groups, partitioned: OnceLock::new() };
        let merge = DistinctMerge {
            plan: distinct,
            sources: sets.zip(merged_groups).map(source).collect(),
            partitions: (values / PARTITION_VALUES.min(values_min.max(1))).next_power_of_two().min(PARTITIONS_MAX),
            groups,
            next_source: AtomicUsize::new(0),
            next_partition: AtomicUsize::new(0),
            states: Mutex::new(distinct.new_states(groups)),
        };
        run(&merge);
        let states = merge.states.into_inner().unwrap_or_else(PoisonError::into_inner);
        first.states.extend(states);
        others.iter_mut().for_each(|other| other.discard(plan));
    }

    /// Whether there are enough distinct values per group for each thread to have states of all groups.
    pub(in crate::aggregate) fn has_many_values(aggregators: &[&mut Self]) -> bool {
        let values: usize = aggregators.iter().map(|aggregator| aggregator.distinct.len()).sum();
        let groups = aggregators.iter().map(|aggregator| aggregator.group_count()).max().unwrap_or(0);
        values / VALUES_PER_STATE_MIN / aggregators.len().max(1) >= groups
    }

    /// Acquires memory to copy the values.
    fn reserve_values(&mut self) -> bool {
        let bytes = self.bytes() + self.distinct.len() * VALUE_BYTES;
        self.is_granted(bytes)
    }
}

impl DistinctMerge<'_> {
    /// Merges partitions until none is left. Several threads may call this method at the same time.
    pub fn run(&self) {
        let next = |counter: &AtomicUsize| counter.fetch_add(1, Ordering::Relaxed);
        while let Some(source) = self.sources.get(next(&self.next_source)) {
            source.partitioned(self.plan, self.partitions);
        }
        let mut states = self.plan.new_states(self.groups);
        let mut merged = DistinctValues::default();
        loop {
            let number = next(&self.next_partition);
            if number >= self.partitions {
                break;
            }
            let parts = self.sources.iter().map(|source| source.partitioned(self.plan, self.partitions).get(number));
            merged.restart(parts.clone().map(<[Pair]>::len).sum());
            for (source, pairs) in self.sources.iter().zip(parts) {
                merged.absorb_pairs(self.plan, source.values, pairs.iter().copied());
            }
            merged.add_to(&mut states);
        }
        let groups: Vec<u32> = (1..self.groups as u32).collect();
        let mut merged = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        merged.iter_mut().zip(&states).for_each(|(merged, states)| merged.merge(states, &groups, &groups));
    }
}

impl Source<'_> {
    fn partitioned(&self, plan: &DistinctPlan, count: usize) -> &Partitions<Pair> {
        self.partitioned.get_or_init(|| self.values.partition(plan, &self.groups, count))
    }
}
