//! Merges the groups of several aggregators, in partitions by the hash of the group keys.
//!
//! A partition has all groups whose keys have certain hash bits, of all aggregators, so partitions are merged independently: several
//! threads share one [`GroupMerge`], and the table of merged groups fits into a processor's cache. Only groups that several aggregators
//! may have are merged: the others are written from their aggregator, so that their keys are not copied. If the aggregators contain all
//! rows of the scan, a merged partition contains complete groups, and the merge omits the groups that the backend does not need.
//!
//! With DISTINCT, a partition has the distinct values of its groups, too, and all of its groups are merged. The merge then returns complete
//! groups only, so all memory is acquired before.

use super::aggregator::Aggregator;
use super::distinct::DistinctPlan;
use super::partitions::Partitions;
use super::plan::AggregationPlan;
use super::value_set::Pair;
use super::{MAGNITUDE_SUM_MAX, ROWS_MAX};
use crate::batch::ResultWriter;
use crate::memory::{Account, Grant};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// With fewer groups, one thread merges faster than several threads start.
const GROUPS_MIN: usize = 16 << 10;
/// Groups of all aggregators in a partition: their keys and states fit into the second-level cache.
const PARTITION_GROUPS: usize = 8 << 10;
/// The same for their distinct values.
const PARTITION_VALUES: usize = 16 << 10;
const PARTITIONS_MAX: usize = 512;
/// First groups of merged partitions are reduced to the needed number when there are this many times as many.
const SURVIVORS_FACTOR: usize = 4;
/// Bytes per group of [`PartitionedGroups`].
const PARTITIONED_GROUP_BYTES: usize = 2 * size_of::<u32>();
/// The same with DISTINCT.
const DISTINCT_GROUP_BYTES: usize = PARTITIONED_GROUP_BYTES + size_of::<u32>() + size_of::<u16>();
/// Bytes per distinct value of [`PartitionedGroups`].
const PARTITIONED_VALUE_BYTES: usize = size_of::<Pair>() + size_of::<u16>();
/// Entries of [`SharedHashes`] per group of a partition: one group in eight is merged although no other aggregator has the group.
const ENTRIES_PER_GROUP: usize = 8;

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
    groups: OnceLock<PartitionedGroups>,
}

/// The groups of a source, by partition.
struct PartitionedGroups {
    /// Groups are numbered from 1.
    partitions: Partitions<u32>,
    /// The upper half of the hash of each group's keys.
    hashes: Vec<u32>,
    /// With DISTINCT: the codes of the values of each partition's groups, with the position of the group in the partition.
    values: Option<Partitions<Pair>>,
}

/// Which key hashes of a partition several sources have. An entry stands for all hashes with the same lower bits.
struct SharedHashes {
    /// The number of the source that has such a hash, or [`SEVERAL`]; 0 for none. A power of two.
    entries: Vec<u16>,
    memory: Grant,
}

const SEVERAL: u16 = u16::MAX;

impl<'a> GroupMerge<'a> {
    /// Returns the aggregators if partitions do not pay or are not possible: with few groups, groups in one aggregator only, sums that might
    /// overflow, or without memory for the partitions. With DISTINCT also if groups have many values, for which
    /// [`Aggregator::merge_distinct`] is better, or if rows of the scan are missing.
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
            && rows <= ROWS_MAX
            && magnitude <= MAGNITUDE_SUM_MAX
            && match &plan.distinct {
                Some(distinct) => complete && can_merge_values(distinct, &mut aggregators),
                None => aggregators.iter_mut().all(|aggregator| aggregator.reserve(PARTITIONED_GROUP_BYTES)),
            };
        if !pays {
            return Err(aggregators);
        }
        let values: usize = aggregators.iter().map(|aggregator| aggregator.distinct_count()).sum();
        let sources = aggregators.into_iter().map(|aggregator| Source { aggregator, groups: OnceLock::new() });
        let partitions = (groups / PARTITION_GROUPS.min(groups_min.max(1))).max(values / PARTITION_VALUES);
        Ok(Self {
            plan,
            sources: sources.collect(),
            partitions: partitions.next_power_of_two().min(PARTITIONS_MAX),
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
        while let Some(source) = self.sources.get(self.next_source.fetch_add(1, Ordering::Relaxed)) {
            source.groups(self.plan, self.partitions);
        }
        let Some(first) = self.sources.first() else { return Ok(0) };
        // With DISTINCT, the memory was acquired for the sources.
        let account = match &self.plan.distinct {
            Some(_) => &Account::unlimited(),
            None => first.aggregator.account(),
        };
        let mut merger = PartitionMerger {
            merge: self,
            top_groups: self.plan.pruning.as_ref().and_then(|pruning| pruning.top_groups()).filter(|_| self.complete),
            merged: Aggregator::new(self.plan, account),
            survivors: Aggregator::new(self.plan, account),
            shared: SharedHashes { entries: Vec::new(), memory: Grant::new(account) },
            written: 0,
        };
        loop {
            let number = self.next_partition.fetch_add(1, Ordering::Relaxed);
            if number >= self.partitions {
                break;
            }
            match &self.plan.distinct {
                Some(distinct) => merger.merge_values(distinct, number, out, send)?,
                None => merger.merge_partition(number, out, send)?,
            }
        }
        merger.written += merger.survivors.write(self.plan, true, out, send)?;
        Ok(merger.written)
    }
}

/// Merges the partitions of one thread.
struct PartitionMerger<'a> {
    merge: &'a GroupMerge<'a>,
    /// The number of first groups that the backend needs, if partitions contain complete groups.
    top_groups: Option<usize>,
    /// The groups of a partition that several sources may have.
    merged: Aggregator,
    /// The first groups of the partitions so far.
    survivors: Aggregator,
    shared: SharedHashes,
    /// The number of groups that were written.
    written: u64,
}

/// Acquires the memory for a merge of groups with their distinct values. False: there is not enough, or the merge is not possible or does
/// not pay.
fn can_merge_values(distinct: &DistinctPlan, aggregators: &mut [&mut Aggregator]) -> bool {
    !Aggregator::has_many_values(aggregators)
        && !aggregators.iter().any(|aggregator| aggregator.may_discard())
        && aggregators.iter_mut().all(|aggregator| {
            let bytes =
                aggregator.group_count() * DISTINCT_GROUP_BYTES + aggregator.distinct_count() * PARTITIONED_VALUE_BYTES;
            aggregator.reserve_copy(distinct, bytes)
        })
}

impl PartitionMerger<'_> {
    /// Merges the groups of a partition with their distinct values, and writes those that the backend needs.
    fn merge_values<E>(
        &mut self,
        distinct: &DistinctPlan,
        number: usize,
        out: &mut ResultWriter,
        send: &mut dyn FnMut(&mut ResultWriter) -> Result<(), E>,
    ) -> Result<(), E> {
        let GroupMerge { plan, sources, partitions, .. } = self.merge;
        let parts = sources.iter().map(|source| (source, source.groups(plan, *partitions).get(number)));
        let parts: Vec<_> = parts.collect();
        let count = |count: fn((&[u32], &[Pair])) -> usize| parts.iter().map(|(_, part)| count(*part)).sum();
        self.merged.reserve_groups(count(|(groups, _)| groups.len()), count(|(_, values)| values.len()));
        for (source, (groups, values)) in parts {
            let merged = self.merged.absorb_with_values(plan, (source.aggregator, groups), (distinct, values));
            assert!(merged, "the sums of all sources fit together, and memory was acquired for them");
        }
        self.written += self.merged.write(plan, true, out, send)?;
        Ok(())
    }

    fn merge_partition<E>(
        &mut self,
        number: usize,
        out: &mut ResultWriter,
        send: &mut dyn FnMut(&mut ResultWriter) -> Result<(), E>,
    ) -> Result<(), E> {
        let GroupMerge { plan, sources, partitions, complete, .. } = self.merge;
        let parts: Vec<_> = sources.iter().map(|source| (source, source.groups(plan, *partitions))).collect();
        self.shared.start(parts.iter().map(|(_, groups)| groups.partitions.get(number).len()).sum());
        for (part, (_, groups)) in parts.iter().enumerate() {
            self.shared.note(part, groups.hashes_of(number));
        }
        let is_shared = |(_, hash): &(u32, u32)| self.shared.has(*hash);
        let split = parts.iter().map(|(source, groups)| {
            let with_hashes = groups.partitions.get(number).iter().copied().zip(groups.hashes_of(number));
            let (shared, single): (Vec<_>, Vec<_>) = with_hashes.partition(is_shared);
            let numbers = |groups: Vec<(u32, u32)>| groups.into_iter().map(|(group, _)| group).collect::<Vec<u32>>();
            (&*source.aggregator, numbers(shared), numbers(single))
        });
        let split: Vec<_> = split.collect();

        self.merged.reserve_groups(split.iter().map(|(_, shared, _)| shared.len()).sum(), 0);
        let mut rest = Vec::new();
        for (source, shared, single) in &split {
            if !shared.is_empty() && !self.merged.absorb(plan, source, shared) {
                rest.push((source, shared));
            }
            self.write_single(source, single, out, send)?;
        }
        let complete = *complete && rest.is_empty();
        if self.top_groups.is_some() && complete {
            let needed = self.merged.needed(plan);
            if !self.survivors.absorb(plan, &self.merged, &needed) {
                self.write_survivors(out, send)?;
                self.written += self.merged.write(plan, true, out, send)?;
            }
            self.merged.clear();
        }
        self.written += self.merged.write(plan, complete, out, send)?;
        for (source, groups) in rest {
            self.written += self.merged.write_groups_of(plan, source, groups, out, send)?;
        }
        self.reduce_survivors();
        Ok(())
    }

    /// Writes groups of a source that no other source has, or adds the first of them to the survivors.
    fn write_single<E>(
        &mut self,
        source: &Aggregator,
        groups: &[u32],
        out: &mut ResultWriter,
        send: &mut dyn FnMut(&mut ResultWriter) -> Result<(), E>,
    ) -> Result<(), E> {
        let plan = self.merge.plan;
        if groups.is_empty() {
            return Ok(());
        }
        if !self.merge.complete {
            self.written += self.merged.write_groups_of(plan, source, groups, out, send)?;
            return Ok(());
        }
        let needed = source.needed_among(plan, groups.iter().copied());
        if self.top_groups.is_some() {
            if self.survivors.absorb(plan, source, &needed) {
                return Ok(());
            }
            self.write_survivors(out, send)?;
        }
        self.written += self.merged.write_groups_of(plan, source, &needed, out, send)?;
        Ok(())
    }

    /// Writes the survivors after an absorption failed: they may have groups without rows, which must not replace first groups.
    fn write_survivors<E>(
        &mut self,
        out: &mut ResultWriter,
        send: &mut dyn FnMut(&mut ResultWriter) -> Result<(), E>,
    ) -> Result<(), E> {
        self.written += self.survivors.write(self.merge.plan, false, out, send)?;
        Ok(())
    }

    /// Drops survivors that are not among the first groups, if there are many.
    fn reduce_survivors(&mut self) {
        let Some(top_groups) = self.top_groups else { return };
        if self.survivors.group_count() <= (top_groups * SURVIVORS_FACTOR).max(PARTITION_GROUPS) {
            return;
        }
        let plan = self.merge.plan;
        let needed = self.survivors.needed(plan);
        let mut fewer = Aggregator::new(plan, self.survivors.account());
        if fewer.absorb(plan, &self.survivors, &needed) {
            self.survivors = fewer;
        }
    }
}

impl Source<'_> {
    fn groups(&self, plan: &AggregationPlan, count: usize) -> &PartitionedGroups {
        self.groups.get_or_init(|| {
            // The upper half of a hash decides about the entries of [`SharedHashes`].
            let hashes = self.aggregator.key_hashes(plan);
            let (numbers, hashes): (Vec<u16>, Vec<u32>) =
                hashes.map(|hash| ((hash as usize & (count - 1)) as u16, (hash >> 32) as u32)).unzip();
            let partitions = Partitions::new(1.., &numbers, count);
            let values = plan.distinct.is_some().then(|| self.values(&partitions, &numbers, count));
            PartitionedGroups { partitions, hashes, values }
        })
    }

    /// The distinct values by the partition of their group. `numbers` has the partition of each group.
    fn values(&self, partitions: &Partitions<u32>, numbers: &[u16], count: usize) -> Partitions<Pair> {
        let mut positions = vec![0u32; numbers.len() + 1];
        for number in 0..count {
            for (position, group) in (0..).zip(partitions.get(number)) {
                positions[*group as usize] = position;
            }
        }
        let values = || self.aggregator.distinct_values();
        let mut value_numbers = Vec::with_capacity(self.aggregator.distinct_count());
        value_numbers.extend(values().map(|(group, _)| numbers[group - 1]));
        Partitions::new(values().map(|(group, code)| [code, positions[group].into()]), &value_numbers, count)
    }
}

impl PartitionedGroups {
    /// The groups of a partition, and their distinct values.
    fn get(&self, number: usize) -> (&[u32], &[Pair]) {
        let values = self.values.as_ref().map_or(&[][..], |values| values.get(number));
        (self.partitions.get(number), values)
    }

    /// The hashes of the groups of a partition.
    fn hashes_of(&self, number: usize) -> impl Iterator<Item = u32> {
        self.partitions.get(number).iter().map(|group| self.hashes[*group as usize - 1])
    }
}

impl SharedHashes {
    /// Prepares the entries for the groups of a partition. Without memory for them, all hashes count as those of several sources.
    fn start(&mut self, groups: usize) {
        let entries = (groups * ENTRIES_PER_GROUP).next_power_of_two();
        let (entries, entry) = match self.memory.cover((entries * size_of::<u16>()) as u64) {
            true => (entries, 0),
            false => (1, SEVERAL),
        };
        self.entries.clear();
        self.entries.resize(entries, entry);
    }

    /// Notes that a source has these hashes. Sources with high numbers count as several.
    fn note(&mut self, source: usize, hashes: impl Iterator<Item = u32>) {
        let own = u16::try_from(source + 1).unwrap_or(SEVERAL);
        let mask = self.entries.len() - 1;
        for hash in hashes {
            let entry = &mut self.entries[hash as usize & mask];
            *entry = if *entry == 0 || *entry == own { own } else { SEVERAL };
        }
    }

    /// Whether several sources may have a hash.
    fn has(&self, hash: u32) -> bool {
        self.entries[hash as usize & (self.entries.len() - 1)] == SEVERAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Account;

    #[test]
    fn hashes_of_several_sources_are_shared() {
        let mut shared = SharedHashes { entries: Vec::new(), memory: Grant::new(&Account::unlimited()) };
        shared.start(6);
        shared.note(0, [1, 2, 2].into_iter());
        shared.note(1, [2, 3].into_iter());
        shared.note(2, [4].into_iter());
        assert_eq!([1, 2, 3, 4, 5].map(|hash| shared.has(hash)), [false, true, false, false, false]);
        shared.start(6);
        shared.note(usize::from(SEVERAL), [1].into_iter());
        assert_eq!([1, 2].map(|hash| shared.has(hash)), [true, false]);

        // Without memory, all groups are merged.
        let mut shared = SharedHashes { entries: Vec::new(), memory: Grant::new(&Account::new(0)) };
        shared.start(6);
        shared.note(0, [1].into_iter());
        assert!(shared.has(1) && shared.has(2));
    }

    #[test]
    fn partitions_have_each_group_once() {
        let numbers: Vec<u16> = (0..1000u16).map(|group| group * 7 % 13 % 8).collect();
        let partitions = Partitions::new(1.., &numbers, 16);
        for number in 0..16 {
            let expected = (1..).zip(&numbers).filter(|(_, own)| **own == number).map(|(group, _)| group);
            assert_eq!(partitions.get(number.into()), expected.collect::<Vec<u32>>());
        }
        assert_eq!(Partitions::<u32>::new(1.., &[], 4).get(3), []);
    }
}
