//! A set of pairs of a value's code and a group number.
//!
//! Pairs are stored in the slots of the hash table, so that a lookup usually waits for one cache line.

use super::strings::mix;
use super::zeroed::zeroed;

/// Slots of an empty set.
const SLOTS_MIN: usize = 64;
/// Pairs whose slots are read before the first comparison, so that the processor waits for several cache lines at a time.
const BATCH: usize = 128;
const HASH_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The code of a value, and a group number, which is not 0.
pub type Pair = [u64; 2];

#[derive(Debug)]
pub struct ValueSet {
    /// A power of two. A slot whose group is 0 is empty.
    slots: Vec<Pair>,
    len: usize,
}

impl Default for ValueSet {
    fn default() -> Self {
        Self { slots: vec![[0; 2]; SLOTS_MIN], len: 0 }
    }
}

impl ValueSet {
    /// The number of pairs.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes in use, plus the bytes that are allocated to add `pairs` pairs.
    /// While the slots grow, there are two tables.
    pub fn bytes_with(&self, pairs: usize) -> usize {
        let slots = self.slots_for(pairs);
        let old = if slots > self.slots.len() { self.slots.len() } else { 0 };
        (slots + old) * size_of::<Pair>()
    }

    /// Removes all pairs and prepares the slots for this many pairs.
    pub fn restart(&mut self, pairs: usize) {
        self.len = 0;
        if self.slots_for(pairs) > self.slots.len() {
            self.slots = zeroed(self.slots_for(pairs));
        } else {
            self.slots.fill([0; 2]);
        }
    }

    /// Adds slots for this many more pairs. Call this before pairs of another set are added in their order, by hash: in a table that grows
    /// meanwhile, all of them would compete for the first slots.
    pub fn reserve(&mut self, pairs: usize) {
        let slots = self.slots_for(pairs);
        if slots > self.slots.len() {
            self.grow(slots);
        }
    }

    /// The number of slots with this many more pairs: at most two thirds of them are in use.
    fn slots_for(&self, pairs: usize) -> usize {
        let mut slots = self.slots.len();
        while (self.len + pairs) * 3 > slots * 2 {
            slots *= 2;
        }
        slots
    }

    /// The pairs, nearly in the order of their hashes.
    pub fn iter(&self) -> impl Iterator<Item = Pair> {
        self.slots.iter().copied().filter(|pair| pair[1] != 0)
    }

    /// Adds the pairs that the set does not have yet.
    pub fn insert_all(&mut self, pairs: &[Pair]) {
        let mut starts = [0usize; BATCH];
        for batch in pairs.chunks(BATCH) {
            self.reserve(batch.len());
            let mut touched = 0;
            for (pair, start) in batch.iter().zip(&mut starts) {
                *start = self.first_slot(*pair);
                touched ^= self.slots[*start][0];
            }
            std::hint::black_box(touched);
            let mask = self.slots.len() - 1;
            for (pair, start) in batch.iter().zip(starts) {
                let mut at = start;
                loop {
                    let found = self.slots[at];
                    if found == *pair {
                        break;
                    }
                    if found[1] == 0 {
                        self.slots[at] = *pair;
                        self.len += 1;
                        break;
                    }
                    at = (at + 1) & mask;
                }
            }
        }
    }

    /// The slot at which the search for a pair starts: the upper bits of its hash.
    #[inline(always)]
    fn first_slot(&self, pair: Pair) -> usize {
        let hash = mix(pair[0], pair[1].wrapping_mul(HASH_SEED));
        (hash >> (64 - self.slots.len().trailing_zeros())) as usize
    }

    /// Pairs keep their order by hash, so slots are written nearly in sequence.
    #[cold]
    fn grow(&mut self, slots: usize) {
        let mask = slots - 1;
        let old = std::mem::replace(&mut self.slots, zeroed(slots));
        for pair in old.into_iter().filter(|pair| pair[1] != 0) {
            let mut at = self.first_slot(pair);
            while self.slots[at][1] != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = pair;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// In a set that grew from few slots while pairs arrived in the order of their hashes, the first slots were all in use, and each pair
    /// passed all of them: the merge of two sets of 120,000 pairs took longer than the scan.
    #[test]
    fn a_set_does_not_grow_while_as_many_pairs_are_added_as_were_reserved() {
        let mut source = ValueSet::default();
        let pairs: Vec<Pair> = (0..50_000).map(|number| [number * 7, 1]).collect();
        source.insert_all(&pairs);

        let (mut reserved, mut restarted) = (ValueSet::default(), ValueSet::default());
        reserved.insert_all(&[[1, 1], [2, 2]]);
        reserved.reserve(source.len());
        restarted.insert_all(&[[1, 1], [2, 2]]);
        restarted.restart(source.len());
        for set in [&mut reserved, &mut restarted] {
            let slots = set.slots.len();
            set.insert_all(&source.iter().collect::<Vec<_>>());
            assert_eq!(set.slots.len(), slots);
        }
        assert_eq!((reserved.len(), restarted.len()), (source.len() + 2, source.len()));
        let all: BTreeSet<Pair> = pairs.into_iter().collect();
        assert_eq!(restarted.iter().collect::<BTreeSet<_>>(), all);
        restarted.restart(10);
        assert_eq!((restarted.len(), restarted.iter().count()), (0, 0));
    }

    #[test]
    fn a_set_has_each_pair_once() {
        let (mut set, mut expected) = (ValueSet::default(), BTreeSet::new());
        for round in 0..3u64 {
            let pair = |number: u64| [number * number % 7001, 1 + number % (3 + round)];
            let pairs: Vec<Pair> = (0..20_000).map(pair).chain([[0, 1], [u64::MAX, u64::MAX], [0, 1]]).collect();
            expected.extend(pairs.iter().copied());
            pairs.chunks(1000).for_each(|run| set.insert_all(run));
            assert_eq!(set.len(), expected.len());
            assert_eq!(set.iter().collect::<BTreeSet<_>>(), expected);
            assert_eq!(set.iter().count(), expected.len());
        }
    }
}
