//! A set of pairs of a value's code and a group number.
//!
//! Pairs are stored in the slots of the hash table, so that a lookup usually waits for one cache line.

use super::strings::mix;

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
        let mut slots = self.slots.len();
        while (self.len + pairs) * 3 > slots * 2 {
            slots *= 2;
        }
        let old = if slots > self.slots.len() { self.slots.len() } else { 0 };
        (slots + old) * size_of::<Pair>()
    }

    /// The pairs, in unspecified order.
    pub fn iter(&self) -> impl Iterator<Item = Pair> {
        self.slots.iter().copied().filter(|pair| pair[1] != 0)
    }

    /// Adds the pairs that the set does not have yet.
    pub fn insert_all(&mut self, pairs: &[Pair]) {
        let mut starts = [0usize; BATCH];
        for batch in pairs.chunks(BATCH) {
            while (self.len + batch.len()) * 3 > self.slots.len() * 2 {
                self.grow();
            }
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

    /// Doubles the number of slots. Pairs keep their order by hash, so slots are written nearly in sequence.
    #[cold]
    fn grow(&mut self) {
        let slots = vec![[0; 2]; self.slots.len() * 2];
        let mask = slots.len() - 1;
        let old = std::mem::replace(&mut self.slots, slots);
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
