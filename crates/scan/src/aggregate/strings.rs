//! A list of distinct strings: maps each string to its number in the list, and back.
//!
//! All strings are stored one after another, so that a list of many strings needs few allocations.

use super::zeroed::zeroed;

/// Slots of an empty table.
const SLOTS_MIN: usize = 64;
/// Bytes of a string's length, which precedes the string.
const LENGTH_BYTES: usize = 4;
/// Bytes per string beside the slots and the string.
const STRING_BYTES: usize = size_of::<u64>() + size_of::<u32>();

/// A place of the hash table.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// The upper half of the string's hash.
    tag: u32,
    /// The string's number plus 1; 0 is an empty slot.
    next: u32,
    /// Where the string is stored, so that a comparison needs no other lookup.
    start: u64,
}

#[derive(Debug, Default)]
pub struct StringTable {
    /// Empty, or a power of two.
    slots: Vec<Slot>,
    /// The length and the bytes of each string.
    bytes: Vec<u8>,
    /// Where each string is stored in `bytes`.
    starts: Vec<u64>,
    /// The tag of each string, so that a merge of tables does not hash the strings again.
    tags: Vec<u32>,
    /// Scratch memory of [`Self::numbers`]: the tag of each string, and the slot at which its search starts.
    found: Vec<(u32, Slot)>,
}

impl StringTable {
    /// Returns the memory in use, and of what is allocated to add `count` strings, without their bytes. While a table of slots
    /// grows, there are two.
    pub fn bytes_with(&self, count: usize) -> usize {
        let slots = slots_for(self.starts.len() + count);
        let slots = if slots > self.slots.len() && count > 0 { slots + self.slots.len() } else { self.slots.len() };
        slots * size_of::<Slot>() + self.bytes.len() + (self.starts.len() + count) * STRING_BYTES
    }

    /// Returns a string; an empty string for a number that is not in the list.
    pub fn get(&self, number: u64) -> &[u8] {
        self.starts.get(number as usize).map_or(&[], |start| self.stored(*start))
    }

    /// Returns a number that equal strings of different tables share, for a string of the list.
    pub fn hash(&self, number: u64) -> u64 {
        self.tags.get(number as usize).copied().unwrap_or(0).into()
    }

    /// Returns the string that is stored at `start`.
    #[inline(always)]
    fn stored(&self, start: u64) -> &[u8] {
        let Some((length, rest)) = self.bytes.get(start as usize..).and_then(<[u8]>::split_first_chunk) else {
            return &[];
        };
        rest.get(..u32::from_le_bytes(*length) as usize).unwrap_or_default()
    }

    /// Returns the number of a string; appends a string that is not in the list.
    pub fn number(&mut self, string: &[u8]) -> u64 {
        self.reserve(1);
        self.number_of_tag(string, tag(string))
    }

    /// As [`Self::number`], for a string with this tag. There must be an empty slot.
    fn number_of_tag(&mut self, string: &[u8], tag: u32) -> u64 {
        let mask = self.slots.len() - 1;
        let mut at = self.first_slot(tag);
        loop {
            let found = self.slots[at];
            if found.next == 0 {
                let start = self.bytes.len() as u64;
                self.bytes.extend_from_slice(&(string.len() as u32).to_le_bytes());
                self.bytes.extend_from_slice(string);
                self.starts.push(start);
                self.tags.push(tag);
                self.slots[at] = Slot { tag, next: self.starts.len() as u32, start };
                return self.starts.len() as u64 - 1;
            }
            if found.tag == tag && is_equal(self.stored(found.start), string) {
                return u64::from(found.next) - 1;
            }
            at = (at + 1) & mask;
        }
    }

    /// Calls `visit` with the index and the number of each string; appends strings that are not in the list.
    pub fn numbers(&mut self, strings: &[&[u8]], visit: impl FnMut(usize, u64)) {
        self.found.clear();
        self.found.extend(strings.iter().map(|string| (tag(string), Slot::default())));
        self.find(strings, visit);
    }

    /// As [`Self::numbers`], for strings of another list, given by their numbers.
    pub fn moved_numbers(&mut self, other: &Self, numbers: &[u64], visit: impl FnMut(usize, u64)) {
        let strings: Vec<&[u8]> = numbers.iter().map(|number| other.get(*number)).collect();
        self.found.clear();
        self.found.extend(numbers.iter().map(|number| (other.hash(*number) as u32, Slot::default())));
        self.find(&strings, visit);
    }

    /// [`Self::numbers`], for strings whose tags are in `found`. The slots, and then the strings in them, are read before the first
    /// comparison, so that the processor waits for several cache lines at a time.
    fn find(&mut self, strings: &[&[u8]], mut visit: impl FnMut(usize, u64)) {
        // Keys without such strings need no memory for them.
        if strings.is_empty() {
            return;
        }
        self.reserve(strings.len());
        let mut found = std::mem::take(&mut self.found);
        for (tag, slot) in &mut found {
            *slot = self.slots[self.first_slot(*tag)];
        }
        let touch = |(tag, slot): &(u32, Slot)| {
            let start = if slot.tag == *tag { slot.start as usize } else { 0 };
            self.bytes.get(start + LENGTH_BYTES).copied().unwrap_or(0)
        };
        std::hint::black_box(found.iter().map(touch).fold(0, |all, byte| all ^ byte));
        for (index, (string, (tag, slot))) in strings.iter().zip(&found).enumerate() {
            let is_found = slot.tag == *tag && slot.next > 0 && is_equal(self.stored(slot.start), string);
            visit(index, if is_found { u64::from(slot.next) - 1 } else { self.number_of_tag(string, *tag) });
        }
        self.found = found;
    }

    /// The slot at which the search for a tag starts: the tag's upper bits.
    #[inline(always)]
    fn first_slot(&self, tag: u32) -> usize {
        (u64::from(tag) >> (32 - self.slots.len().trailing_zeros())) as usize
    }

    /// Adds slots until at most half of them are in use with `count` more strings.
    fn reserve(&mut self, count: usize) {
        let wanted = slots_for(self.starts.len() + count);
        if wanted <= self.slots.len() {
            return;
        }
        let old = std::mem::replace(&mut self.slots, zeroed(wanted));
        let mask = wanted - 1;
        for found in old.into_iter().filter(|found| found.next != 0) {
            let mut at = self.first_slot(found.tag);
            while self.slots[at].next != 0 {
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

/// Compares strings a word at a time: most are too short for a call of memcmp.
#[inline(always)]
fn is_equal(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    let (Some(last), Some(other)) = (left.last_chunk::<8>(), right.last_chunk::<8>()) else { return left == right };
    let words = left.as_chunks::<8>().0.iter().zip(right.as_chunks::<8>().0);
    last == other && words.fold(0, |all, (left, right)| all | (word(*left) ^ word(*right))) == 0
}

#[inline(always)]
fn word(bytes: [u8; 8]) -> u64 {
    u64::from_le_bytes(bytes)
}

/// Slots of a table with this many strings: at most half of them are in use.
fn slots_for(strings: usize) -> usize {
    (strings * 2).next_power_of_two().max(SLOTS_MIN)
}

/// The upper half of a string's hash. The last eight bytes may overlap those before.
#[inline(always)]
fn tag(string: &[u8]) -> u32 {
    let seed = string.len() as u64;
    let Some(last) = string.last_chunk::<8>() else {
        let last = string.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        return (mix(seed, last) >> 32) as u32;
    };
    // Two independent halves, because each multiplication waits for the one before.
    let (pairs, rest) = string[..(seed as usize - 1) & !7].as_chunks::<16>();
    let (mut first, mut second) = (seed, word(*last));
    for pair in pairs {
        let (left, right) = pair.split_at(8);
        first = mix(first, left.try_into().map_or(0, word));
        second = mix(second, right.try_into().map_or(0, word));
    }
    if let Some(rest) = rest.first_chunk::<8>() {
        first = mix(first, word(*rest));
    }
    (mix(first, second) >> 32) as u32
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

        // A list with some of the strings, in another order.
        let mut other = StringTable::default();
        (0..5000).rev().step_by(3).for_each(|number| assert!(other.number(string(number).as_bytes()) < 1667));
        let numbers: Vec<u64> = (0..5000).collect();
        let mut moved = Vec::new();
        numbers.chunks(700).for_each(|run| other.moved_numbers(&table, run, |_, number| moved.push(number)));
        for (number, moved) in numbers.iter().zip(moved) {
            assert_eq!(other.get(moved), table.get(*number));
            assert_eq!(other.hash(moved), table.hash(*number));
        }
        assert_eq!(other.starts.len(), 5000);

        // A string that occurs twice in a run, and a run without strings.
        let mut fresh = StringTable::default();
        fresh.moved_numbers(&table, &[], |_, _| unreachable!());
        assert_eq!(fresh.bytes_with(0), 0);
        let mut moved = Vec::new();
        fresh.moved_numbers(&table, &[5, 5, 9, 5], |_, number| moved.push(number));
        assert_eq!(moved, [0, 0, 1, 0]);
    }
}
