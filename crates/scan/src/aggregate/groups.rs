//! The table of groups: rows of key codes to group numbers.
//!
//! A key's value is a code of 64 bits: an integer as it is, a short string with its length, a longer one by its number
//! in the table's list of strings. The last word of a row tells which of its keys are NULL. Group 0 is the bin for
//! rows that are aggregated elsewhere.

use std::collections::HashMap;

/// Strings up to this length are their own code.
const INLINE_BYTES: usize = 7;
/// The top byte of a string's code: its length, or this for a number in the list.
const LISTED: u64 = 0xff;
/// What a listed string takes besides its bytes, about.
const LISTED_OVERHEAD_BYTES: usize = 80;
/// Keys that a row may have: a bit each in the word of NULLs.
pub const KEYS_MAX: usize = 64;

/// Where rows go that the caller does not want to be counted.
pub const BIN: u32 = 0;

#[derive(Debug)]
pub struct GroupTable {
    /// Words of a row: a code for each key, and the NULLs.
    words: usize,
    /// Group numbers by hash; 0 where there is none.
    slots: Vec<u32>,
    /// The words of each group, the bin's first.
    codes: Vec<u64>,
    groups: usize,
    strings: Strings,
}

#[derive(Debug, Default)]
struct Strings {
    numbers: HashMap<Box<[u8]>, u64>,
    list: Vec<Box<[u8]>>,
    bytes: usize,
}

impl GroupTable {
    pub fn new(keys: usize) -> Self {
        let words = keys + 1;
        Self { words, slots: vec![0; 64], codes: vec![0; words], groups: 1, strings: Strings::default() }
    }

    /// Forgets all groups but the bin.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.slots.resize(64, 0);
        self.codes.truncate(self.words);
        self.groups = 1;
        self.strings = Strings::default();
    }

    pub fn words(&self) -> usize {
        self.words
    }

    /// Groups, the bin included.
    pub fn len(&self) -> usize {
        self.groups
    }

    pub fn bytes(&self) -> usize {
        self.slots.len() * 4 + self.codes.len() * 8 + self.strings.bytes
    }

    pub fn string_code(&mut self, bytes: &[u8]) -> u64 {
        if bytes.len() <= INLINE_BYTES {
            let mut code = [0; 8];
            code[..bytes.len()].copy_from_slice(bytes);
            return u64::from_le_bytes(code) | (bytes.len() as u64) << 56;
        }
        let strings = &mut self.strings;
        if let Some(number) = strings.numbers.get(bytes) {
            return *number | LISTED << 56;
        }
        let number = strings.list.len() as u64;
        strings.bytes += 2 * bytes.len() + LISTED_OVERHEAD_BYTES;
        strings.list.push(bytes.into());
        strings.numbers.insert(bytes.into(), number);
        number | LISTED << 56
    }

    /// Gives the string of a code.
    pub fn with_string<R>(&self, code: u64, take: impl FnOnce(&[u8]) -> R) -> R {
        if code >> 56 == LISTED {
            let listed = self.strings.list.get((code & !(LISTED << 56)) as usize);
            return take(listed.map_or(&[], |bytes| bytes));
        }
        take(&code.to_le_bytes()[..(code >> 56) as usize & 7])
    }

    /// The words of a group.
    pub fn codes(&self, group: usize) -> &[u64] {
        &self.codes[group * self.words..(group + 1) * self.words]
    }

    /// The group of a row, which is made when there is none.
    #[inline]
    pub fn group(&mut self, row: &[u64]) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = hash(row) as usize & mask;
        loop {
            let group = self.slots[at];
            if group == 0 {
                return self.add(row, at);
            }
            if self.codes(group as usize) == row {
                return group;
            }
            at = (at + 1) & mask;
        }
    }

    #[inline(never)]
    fn add(&mut self, row: &[u64], at: usize) -> u32 {
        let group = self.groups as u32;
        self.codes.extend_from_slice(row);
        self.groups += 1;
        self.slots[at] = group;
        if self.groups * 2 > self.slots.len() {
            self.grow();
        }
        group
    }

    fn grow(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        self.slots.clear();
        self.slots.resize(mask + 1, 0);
        for group in 1..self.groups {
            let mut at = hash(self.codes(group)) as usize & mask;
            while self.slots[at] != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = group as u32;
        }
    }
}

/// Multiplied and folded word by word; the codes of one table do not come from an adversary that gains by collisions
/// more than its own slow query.
#[inline(always)]
fn hash(row: &[u64]) -> u64 {
    let mut hash = 0u64;
    for word in row {
        let product = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15) as u128 * 0xa076_1d64_78bd_642f_u128;
        hash = product as u64 ^ (product >> 64) as u64;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rows_share_a_group_and_strings_come_back() {
        let mut table = GroupTable::new(2);
        let words = ["", "a", "seven77", "eight888", "a much longer string than fits"];
        for round in 0..2 {
            for number in 0..500u64 {
                for (index, word) in words.iter().enumerate() {
                    let code = table.string_code(word.as_bytes());
                    let group = table.group(&[number, code, 0]) as usize;
                    assert_eq!(group, 1 + number as usize * words.len() + index, "round {round}");
                    table.with_string(table.codes(group)[1], |bytes| assert_eq!(bytes, word.as_bytes()));
                }
            }
        }
        assert_eq!(table.len(), 2501);
        // A NULL is no zero.
        assert_eq!(table.group(&[0, 0, 1]), 2501);
        table.clear();
        assert_eq!(table.len(), 1);
    }
}
