//! The places of records in the ring.

use super::format::BLOCK;
use std::collections::VecDeque;

/// Free space that only records without writes use, so that records can always be retired.
const SPARE: u64 = 2 * BLOCK as u64;

#[derive(Debug)]
pub struct Ring {
    bytes: u64,
    /// Where the next record begins.
    head: u64,
    /// Sequence and place of each record that a start could apply, from the oldest.
    occupied: VecDeque<(u64, u64)>,
}

impl Ring {
    pub fn new(bytes: u64) -> Self {
        Self { bytes, head: 0, occupied: VecDeque::new() }
    }

    /// Returns a place for a record; None if there is no space for it. `is_empty` is true of a record without writes.
    pub fn place(&mut self, sequence: u64, length: u64, is_empty: bool) -> Option<u64> {
        let needed = length + if is_empty { 0 } else { SPARE };
        let place = match self.occupied.front() {
            None if self.head + needed <= self.bytes => Some(self.head),
            None => (needed <= self.bytes).then_some(0),
            // The oldest record is before the head, so the space goes to the end of the ring and on to the oldest record.
            Some((_, tail)) if *tail < self.head => match self.head + needed <= self.bytes {
                true => Some(self.head),
                false => (needed < *tail).then_some(0),
            },
            Some((_, tail)) => (self.head + needed < *tail).then_some(self.head),
        }?;
        self.head = place + length;
        self.occupied.push_back((sequence, place));
        Some(place)
    }

    /// Frees the places of records up to a sequence.
    pub fn retire(&mut self, through: u64) {
        while self.occupied.front().is_some_and(|(sequence, _)| *sequence <= through) {
            self.occupied.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_place_overlaps_one_that_is_in_use() {
        let block = BLOCK as u64;
        let mut random = 7_u64;
        for blocks in [5, 8, 13] {
            let mut ring = Ring::new(blocks * block);
            let mut used: Vec<(u64, u64, u64)> = Vec::new();
            let mut placed = 0;
            for sequence in 1..2000 {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let length = (1 + (random >> 33) % 3) * block;
                let is_empty = length == block && (random >> 40).is_multiple_of(2);
                match ring.place(sequence, length, is_empty) {
                    Some(place) => {
                        assert!(place + length <= blocks * block);
                        assert!(used.iter().all(|(_, start, end)| place + length <= *start || *end <= place));
                        used.push((sequence, place, place + length));
                        placed += 1;
                    }
                    None => {
                        let through = used[used.len() / 2].0;
                        ring.retire(through);
                        used.retain(|(sequence, ..)| *sequence > through);
                    }
                }
            }
            assert!(placed > 500, "{placed} of {blocks}");
            ring.retire(u64::MAX);
            assert!(ring.place(1, blocks * block - SPARE, false).is_some());
        }
    }

    #[test]
    fn a_record_without_writes_has_space_when_others_do_not() {
        let block = BLOCK as u64;
        let mut ring = Ring::new(8 * block);
        assert!(ring.place(1, 6 * block, false).is_some());
        assert!(ring.place(2, block, false).is_none());
        assert!(ring.place(2, block, true).is_some());
    }
}
