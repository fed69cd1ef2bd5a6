//! Merges the groups of several aggregators, in partitions by the hash of the group keys.
//!
//! A partition has all groups whose keys have certain hash bits, of all aggregators, so partitions are merged independently: several
//! threads share one [`GroupMerge`], and the table of merged groups fits into a processor's cache. If the aggregators contain all
//! rows of the scan, a merged partition contains complete groups, and the merge omits the groups that the backend does not need.

use super::aggregator::Aggregator;
use super::partitions::Partitions;
use super::plan::AggregationPlan;
use super::{MAGNITUDE_SUM_MAX, ROWS_MAX};
use crate::batch::ResultWriter;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// With fewer groups, one thread merges faster than several threads start.
const GROUPS_MIN: usize = 16 << 10;
/// Groups of all aggregators in a partition: their keys and states fit into the second-level cache.
const PARTITION_GROUPS: usize = 8 << 10;
const PARTITIONS_MAX: usize = 512;
/// First groups of merged partitions are reduced to the needed number when there are this many times as many.
const SURVIVORS_FACTOR: usize = 4;
/// Bytes per group of [`Partitions`].
const PARTITIONED_GROUP_BYTES: usize = size_of::<u32>();

/// A merge that threads share. The aggregators keep their groups, which [`Aggregator::discard`] frees.
pub struct GroupMerge<'a> {
    plan: &'a AggregationPlan,
    sources: Vec<Source<'a>>,
    partitions: usize,
    /// Whether all rows of the scan are in the groups.
    complete: bool,
    next_source: AtomicUsize,
    next_partition: AtomicUsize,
}

struct Source<'a> {
    aggregator: &'a mut Aggregator,
    /// Set by the first thread that needs the partitions.
    partitions: OnceLock<Partitions>,
}

impl<'a> GroupMerge<'a> {
    /// Returns the aggregators if partitions do not pay: with few groups, groups in one aggregator only, aggregates with DISTINCT, sums
    /// that might overflow, or without memory for the partitions.
    pub fn new(
        plan: &'a AggregationPlan,
        aggregators: Vec<&'a mut Aggregator>,
        complete: bool,
    ) -> Result<Self, Vec<&'a mut Aggregator>> {
        Self::with_groups_min(plan, aggregators, complete, GROUPS_MIN)
    }

    /// As [`Self::new`], also with few groups if there are at least `groups_min`.
    pub fn with_groups_min(
        plan: &'a AggregationPlan,
        mut aggregators: Vec<&'a mut Aggregator>,
        complete: bool,
        groups_min: usize,
    ) -> Result<Self, Vec<&'a mut Aggregator>> {
        let groups: usize = aggregators.iter().map(|aggregator| aggregator.group_count()).sum();
        let rows: u64 = aggregators.iter().map(|aggregator| aggregator.rows()).sum();
        let magnitude = aggregators.iter().fold(0u128, |sum, aggregator| sum.saturating_add(aggregator.magnitude()));
        let filled = aggregators.iter().filter(|aggregator| aggregator.rows() > 0).count();
        let pays = groups >= groups_min
            && filled > 1
            && plan.distinct.is_none()
            && rows <= ROWS_MAX
            && magnitude <= MAGNITUDE_SUM_MAX
            && aggregators.iter_mut().all(|aggregator| aggregator.reserve(PARTITIONED_GROUP_BYTES));
        if !pays {
            return Err(aggregators);
        }
        let sources = aggregators.into_iter().map(|aggregator| Source { aggregator, partitions: OnceLock::new() });
        Ok(Self {
            plan,
            sources: sources.collect(),
            partitions: (groups / PARTITION_GROUPS.min(groups_min.max(1))).next_power_of_two().min(PARTITIONS_MAX),
            complete,
            next_source: AtomicUsize::new(0),
            next_partition: AtomicUsize::new(0),
        })
    }

    /// Merges partitions until none is left, and writes their groups to `out`. Calls `send` when `out` has many bytes. Returns the number
    /// of groups that were written. Several threads may call this method at the same time; an error ends the merge of all threads.
    pub fn run<E>(
        &self,
        out: &mut ResultWriter,
        send: &mut dyn FnMut(&mut ResultWriter) -> Result<(), E>,
    ) -> Result<u64, E> {
        let merged = self.run_partitions(out, send);
        if merged.is_err() {
            self.next_partition.store(self.partitions, Ordering::Relaxed);
        }
        merged
    }

    fn run_partitions<E>(
        &self,
        out: &mut ResultWriter,
        send: &mut dyn FnMut(&mut ResultWriter) -> Result<(), E>,
    ) -> Result<u64, E> {
        let plan = self.plan;
        while let Some(source) = self.sources.get(self.next_source.fetch_add(1, Ordering::Relaxed)) {
            source.partitions(plan, self.partitions);
        }
        let Some(first) = self.sources.first() else { return Ok(0) };
        let account = first.aggregator.account();
        let (mut merged, mut survivors) = (Aggregator::new(plan, account), Aggregator::new(plan, account));
        let top_groups = plan.pruning.as_ref().and_then(|pruning| pruning.top_groups());
        let mut written = 0;
        loop {
            let number = self.next_partition.fetch_add(1, Ordering::Relaxed);
            if number >= self.partitions {
                break;
            }
            let parts =
                self.sources.iter().map(|source| (&*source.aggregator, source.groups(plan, self.partitions, number)));
            let parts: Vec<_> = parts.filter(|(_, groups)| !groups.is_empty()).collect();
            let mut rest = Vec::new();
            merged.reserve_groups(parts.iter().map(|(_, groups)| groups.len()).sum());
            for (source, groups) in &parts {
                if !merged.absorb(plan, source, groups) {
                    rest.push((source, groups));
                }
            }
            let complete = self.complete && rest.is_empty();
            if let Some(top_groups) = top_groups.filter(|_| complete) {
                if !survivors.absorb(plan, &merged, &merged.needed(plan)) {
                    // The survivors may have groups without rows now, which must not replace first groups.
                    written += survivors.write(plan, false, out, send)?;
                    written += merged.write(plan, true, out, send)?;
                }
                merged.clear();
                if survivors.group_count() > (top_groups * SURVIVORS_FACTOR).max(PARTITION_GROUPS) {
                    let needed = survivors.needed(plan);
                    let mut fewer = Aggregator::new(plan, account);
                    if fewer.absorb(plan, &survivors, &needed) {
                        survivors = fewer;
                    }
                }
            }
            written += merged.write(plan, complete, out, send)?;
            for (source, groups) in rest {
                written += merged.write_groups_of(plan, source, groups, out, send)?;
            }
        }
        written += survivors.write(plan, true, out, send)?;
        Ok(written)
    }
}

impl Source<'_> {
    fn partitions(&self, plan: &AggregationPlan, count: usize) -> &Partitions {
        self.partitions.get_or_init(|| Partitions::new(&self.aggregator.partition_numbers(plan, count), count))
    }

    fn groups(&self, plan: &AggregationPlan, count: usize, number: usize) -> &[u32] {
        self.partitions(plan, count).get(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_have_each_group_once() {
        let numbers: Vec<u16> = (0..1000u16).map(|group| group * 7 % 13 % 8).collect();
        let partitions = Partitions::new(&numbers, 16);
        for number in 0..16 {
            let expected = (1..).zip(&numbers).filter(|(_, own)| **own == number).map(|(group, _)| group);
            assert_eq!(partitions.get(number.into()), expected.collect::<Vec<u32>>());
        }
        assert_eq!(Partitions::new(&[], 4).get(3), []);
    }
}
