//! A list of distinct strings: maps each string to its number in the list, and back.
//!
//! All strings are stored one after another, so that a list of many strings needs few allocations.

/// Slots of an empty table.
const SLOTS_MIN: usize = 64;

#[derive(Debug, Default)]
pub struct StringTable {
    /// The upper half of a string's hash, and the string's number plus 1; 0 is an empty slot. Empty, or a power of two.
    slots: Vec<u64>,
    bytes: Vec<u8>,
    /// The end of each string in `bytes`.
    ends: Vec<usize>,
    /// Scratch memory of [`Self::numbers`].
    found: Vec<u32>,
}

impl StringTable {
    /// Returns the memory in use, in bytes.
    pub fn bytes(&self) -> usize {
        self.slots.len() * 8 + self.bytes.len() + self.ends.len() * 8
    }

    /// Returns a string; an empty string for a number that is not in the list.
    pub fn get(&self, number: u64) -> &[u8] {
        let number = number as usize;
        let Some(end) = self.ends.get(number) else { return &[] };
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..*end]
    }

    /// Returns the number of a string; appends a string that is not in the list.
    pub fn number(&mut self, string: &[u8]) -> u64 {
        if self.ends.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let (tag, mask) = (tag(string), self.slots.len() - 1);
        let mut at = self.first_slot(tag);
        loop {
            let found = self.slots[at];
            if found == 0 {
                let number = self.ends.len() as u64;
                self.bytes.extend_from_slice(string);
                self.ends.push(self.bytes.len());
                self.slots[at] = tag << 32 | (number + 1);
                return number;
            }
            let number = (found & u64::from(u32::MAX)) - 1;
            if found >> 32 == tag && self.get(number) == string {
                return number;
            }
            at = (at + 1) & mask;
        }
    }

    /// Calls `visit` with the index and the number of each string; appends strings that are not in the list. The slots, and the
    /// strings in them, are read before the first comparison, so that the processor waits for several cache lines at a time.
    pub fn numbers(&mut self, strings: &[&[u8]], mut visit: impl FnMut(usize, u64)) {
        while (self.ends.len() + strings.len()) * 2 >= self.slots.len() {
            self.grow();
        }
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        found.extend(strings.iter().map(|string| {
            let tag = tag(string);
            let slot = self.slots[self.first_slot(tag)];
            // Number 0 is usually cached.
            let number = if slot >> 32 == tag { (slot & u64::from(u32::MAX)).saturating_sub(1) } else { 0 };
            number as u32
        }));
        let touch = |number: &u32| self.get(u64::from(*number)).first().copied().unwrap_or(0);
        std::hint::black_box(found.iter().map(touch).fold(0, |all, byte| all ^ byte));
        for (index, (string, number)) in strings.iter().zip(&found).enumerate() {
            let number = u64::from(*number);
            let is_found = !self.ends.is_empty() && self.get(number) == *string;
            visit(index, if is_found { number } else { self.number(string) });
        }
        self.found = found;
    }

    /// The slot at which the search for a tag starts: the tag's upper bits.
    fn first_slot(&self, tag: u64) -> usize {
        (tag >> (32 - self.slots.len().trailing_zeros())) as usize
    }

    fn grow(&mut self) {
        let slots = vec![0; (self.slots.len() * 2).max(SLOTS_MIN)];
        let mask = slots.len() - 1;
        let old = std::mem::replace(&mut self.slots, slots);
        for found in old.into_iter().filter(|found| *found != 0) {
            let mut at = self.first_slot(found >> 32);
            while self.slots[at] != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = found;
        }
    }
}

/// Adds a word to a hash.
#[inline(always)]
pub fn mix(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15) as u128 * 0xa076_1d64_78bd_642f_u128;
    product as u64 ^ (product >> 64) as u64
}

/// The upper half of a string's hash.
fn tag(string: &[u8]) -> u64 {
    let (words, rest) = string.as_chunks::<8>();
    let hash = words.iter().fold(string.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let last = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    mix(hash, last) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_keep_their_numbers_while_the_table_grows() {
        let mut table = StringTable::default();
        let string = |number: u64| "x".repeat(number as usize % 40) + &number.to_string();
        for round in 0..2 {
            for number in 0..5000 {
                assert_eq!(table.number(string(number).as_bytes()), number, "round {round}");
            }
        }
        let mut batched = StringTable::default();
        let strings: Vec<String> = (0..10_000).map(|number| string(number % 5000)).collect();
        for run in strings.chunks(700) {
            let run: Vec<&[u8]> = run.iter().map(String::as_bytes).collect();
            batched.numbers(&run, |index, number| assert_eq!(table.number(run[index]), number));
        }
        for number in 0..5000 {
            assert_eq!(table.get(number), string(number).as_bytes());
        }
        assert_eq!(table.get(5000), b"");
    }
}
