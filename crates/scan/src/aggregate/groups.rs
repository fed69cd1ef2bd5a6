//! The table of groups: maps rows of key codes to group numbers.
//!
//! The code of a key's value has 64 bits: an integer itself, a short string with its length, or the number of a longer
//! string in the table's list of strings. The last word of a row has a bit per key that is set if the key is NULL.
//! Group 0, [`DISCARD`], receives rows that are not aggregated here.

use super::strings::{StringTable, mix};
use super::zeroed::zeroed;
use crate::predicate::{CodeEncoding, EncodedColumn};
use crate::vectors::{InstructionSet, vectorized};
use smallvec::SmallVec;

/// Strings up to this length are stored in their code.
pub const INLINE_BYTES: usize = 7;
/// The top byte of a string's code is the string's length, or this value for a number in the list.
const LISTED: u64 = INLINE_BYTES as u64 + 1;
/// The most keys that a row may have: the word of NULLs has 64 bits.
pub const KEYS_MAX: usize = 64;

/// The group of rows that are not aggregated; its states are never returned.
pub const DISCARD: u32 = 0;
/// With at most this many groups, [`DISCARD`] included, the rows of a run are counted and summed by group, before the states change.
pub const FEW_GROUPS_MAX: usize = 64;
/// Keys with at most this many combinations of values get their groups from a [`CodeMap`].
const POSITIONS_MAX: usize = 1 << 14;
/// The same for a single key: the codes of a chunk's list of strings.
const SINGLE_POSITIONS_MAX: usize = 1 << 17;
/// The same for keys that are all numbers, if the table has at least one group per [`POSITIONS_PER_GROUP`] positions.
const NUMBER_POSITIONS_MAX: usize = 1 << 20;
const POSITIONS_PER_GROUP: usize = 8;
/// Rows whose slots and groups [`GroupTable::number_rows`] reads together: their cache lines fit into the first-level cache.
const BATCH_ROWS: usize = 256;

#[derive(Debug)]
pub struct GroupTable {
    /// Words of a row: a code for each key, and the NULLs.
    words: usize,
    /// The tag of a group's hash and the group's number, see [`slot`]; 0 is an empty slot. A power of two.
    slots: Vec<u64>,
    /// The words of each group, starting with the group [`DISCARD`].
    codes: Vec<u64>,
    groups: usize,
    strings: StringTable,
    /// If the only key is a string: the group of each string of the list, or [`DISCARD`]. Other groups are in `slots`.
    string_groups: Option<Vec<u32>>,
    code_map: CodeMap,
}

/// Group numbers by the combined position of a row's codes in the code ranges of the keys. Faster than hashing if the
/// keys of a unit's chunk have few values.
#[derive(Debug, Default)]
struct CodeMap {
    scope: Option<MapScope>,
    /// By position; 0 if the group is not known yet.
    groups: Vec<u32>,
    positions: Vec<u32>,
}

/// The rows that the positions of a [`CodeMap`] belong to.
#[derive(Debug, PartialEq)]
enum MapScope {
    /// Those of a unit's chunk: codes of strings have a meaning only there.
    Chunk(u64, usize),
    /// All rows whose numbers are in these ranges, each given by the least number and the count.
    Numbers(SmallVec<[(i64, usize); 4]>),
}

/// The groups of a run of rows.
#[derive(Debug, Default)]
pub struct RowGroups {
    pub numbers: Vec<u32>,
    /// Rows of each group; empty with more than [`FEW_GROUPS_MAX`] groups.
    pub counts: Vec<u32>,
}

impl RowGroups {
    /// Counts `rows` rows that all belong to group 1. Returns 0, the number of discarded rows, as [`Self::count`] does.
    pub fn count_only(&mut self, rows: usize) -> usize {
        self.counts.clear();
        self.counts.extend([0, rows as u32]);
        0
    }

    /// Counts the rows of each of `groups` groups, if there are few groups. Returns the number of discarded rows.
    pub fn count(&mut self, groups: usize) -> usize {
        self.counts.clear();
        if groups > FEW_GROUPS_MAX {
            return self.numbers.iter().filter(|group| **group == DISCARD).count();
        }
        let counts = counts(&self.numbers, groups);
        self.counts.extend(&counts[..groups]);
        self.counts[DISCARD as usize] as usize
    }

    /// The groups of the rows without flags, counted; the other rows get [`DISCARD`]. Call this only if `counts` is not empty.
    pub fn without_flagged(&self, flags: &[u8]) -> Self {
        let mut rest = Self { numbers: self.numbers.clone(), counts: Vec::new() };
        discard_flagged(flags, &mut rest.numbers);
        rest.count(self.counts.len());
        rest
    }

    /// Sums `values` by group; call this only if `counts` is not empty. `wide`: a sum may overflow 64 bits. The sum of
    /// [`DISCARD`] is unspecified.
    pub fn sums(&self, values: &[i64], wide: bool) -> impl Iterator<Item = i128> {
        let only_one = self.counts.len() == 2 && self.counts[DISCARD as usize] == 0;
        let groups = if only_one { 1 } else { self.counts.len() };
        let [high, low] = if wide {
            split_sums(values, &self.numbers, groups)
        } else {
            [[0; FEW_GROUPS_MAX], sums(values, &self.numbers, groups)]
        };
        let at = move |group: usize| if only_one { 0 } else { group };
        (0..self.counts.len()).map(move |group| ((high[at(group)] as i128) << 32) + low[at(group)] as i128)
    }
}

/// With at most this many groups, [`DISCARD`] included, each row is compared with every group, without a table lookup.
const COMPARED_MAX: usize = 9;

vectorized! {
    /// The number of rows of each group; `groups` is at most [`FEW_GROUPS_MAX`].
    fn counts(numbers: &[u32], groups: usize) -> [u32; FEW_GROUPS_MAX] {
        let mut counts = [0; FEW_GROUPS_MAX];
        if groups <= COMPARED_MAX {
            for (group, count) in counts[..groups].iter_mut().enumerate() {
                *count = numbers.iter().map(|number| u32::from(*number == group as u32)).sum();
            }
            return counts;
        }
        numbers.iter().for_each(|group| counts[*group as usize % FEW_GROUPS_MAX] += 1);
        counts
    }

    /// The sum of each group; `groups` is at most [`FEW_GROUPS_MAX`]. If `groups` is 1, the sum of all rows.
    fn sums(values: &[i64], numbers: &[u32], groups: usize) -> [i64; FEW_GROUPS_MAX] {
        sums_of(values, numbers, groups, |value| value)
    }

    /// As [`sums`], for the upper and the lower 32 bits of each value: these sums cannot overflow 64 bits.
    fn split_sums(values: &[i64], numbers: &[u32], groups: usize) -> [[i64; FEW_GROUPS_MAX]; 2] {
        let high = sums_of(values, numbers, groups, |value| value >> 32);
        let low = sums_of(values, numbers, groups, |value| value & 0xffff_ffff);
        [high, low]
    }
}

#[inline(always)]
fn sums_of(values: &[i64], numbers: &[u32], groups: usize, part: impl Fn(i64) -> i64) -> [i64; FEW_GROUPS_MAX] {
    let mut sums = [0; FEW_GROUPS_MAX];
    match groups {
        ..=1 => sums[0] = values.iter().map(|value| part(*value)).sum(),
        2..=5 if InstructionSet::best() == InstructionSet::Avx512 => {
            sums[1..5].copy_from_slice(&compared_sums::<4>(values, numbers, part))
        }
        6..=COMPARED_MAX if InstructionSet::best() == InstructionSet::Avx512 => {
            sums[1..9].copy_from_slice(&compared_sums::<8>(values, numbers, part));
        }
        _ => {
            // Four sums per group: an addition does not wait for the addition of the previous row.
            let mut parts = [[0i64; FEW_GROUPS_MAX]; 4];
            let (values, last_values) = values.as_chunks::<4>();
            let (numbers, last_numbers) = numbers.as_chunks::<4>();
            for (values, groups) in values.iter().zip(numbers) {
                for lane in 0..4 {
                    parts[lane][groups[lane] as usize % FEW_GROUPS_MAX] += part(values[lane]);
                }
            }
            for (value, group) in last_values.iter().zip(last_numbers) {
                parts[0][*group as usize % FEW_GROUPS_MAX] += part(*value);
            }
            sums = std::array::from_fn(|group| parts.iter().map(|sums| sums[group]).sum());
        }
    }
    sums
}

/// The sums of the groups after [`DISCARD`]; compares each row with every group.
#[inline(always)]
fn compared_sums<const GROUPS: usize>(values: &[i64], numbers: &[u32], part: impl Fn(i64) -> i64) -> [i64; GROUPS] {
    let mut sums = [0i64; GROUPS];
    for (value, number) in values.iter().zip(numbers) {
        let value = part(*value);
        for (group, sum) in sums.iter_mut().enumerate() {
            *sum += if *number == group as u32 + 1 { value } else { 0 };
        }
    }
    sums
}

impl GroupTable {
    /// `only_string`: the only key is a string.
    pub fn new(keys: usize, only_string: bool) -> Self {
        let words = keys + 1;
        Self {
            words,
            slots: vec![0; SLOTS_MIN],
            codes: vec![0; words],
            groups: 1,
            strings: StringTable::default(),
            string_groups: only_string.then(Vec::new),
            code_map: CodeMap::default(),
        }
    }

    /// Removes all groups except [`DISCARD`].
    pub fn clear(&mut self) {
        self.slots.clear();
        self.slots.resize(SLOTS_MIN, 0);
        self.codes.truncate(self.words);
        self.groups = 1;
        self.strings = StringTable::default();
        self.string_groups = self.string_groups.as_ref().map(|_| Vec::new());
        self.code_map = CodeMap::default();
    }

    /// Words per row.
    pub fn words(&self) -> usize {
        self.words
    }

    /// The number of groups, [`DISCARD`] included.
    pub fn len(&self) -> usize {
        self.groups
    }

    /// The bytes in use, plus the bytes that are allocated to add `groups` groups.
    /// While a table of slots grows, there are two tables.
    pub fn bytes_with(&self, groups: usize) -> usize {
        let slots = slots_for(self.groups + groups);
        let slots = if slots > self.slots.len() && groups > 0 { slots + self.slots.len() } else { self.slots.len() };
        slots * 8
            + (self.codes.len() + groups * self.words) * 8
            + self.code_map.groups.len().saturating_sub(POSITIONS_MAX) * 4
            + self.strings.bytes_with(if self.strings.bytes_with(0) > 0 { groups } else { 0 })
            + self.string_groups.as_ref().map_or(0, |groups| groups.len() * 4)
    }

    /// The memory of strings in use, in bytes.
    pub fn string_bytes(&self) -> usize {
        self.strings.bytes_with(0)
    }

    /// A number that equal strings of different tables share. `code` is the code of a string in the list.
    pub fn string_hash(&self, code: u64) -> u64 {
        self.strings.hash(code & !(LISTED << 56))
    }

    /// Prepares the slots for this many groups, if the table has no groups.
    pub fn reserve(&mut self, groups: usize) {
        let slots = slots_for(groups);
        if self.groups == 1 && slots > self.slots.len() {
            if slots > self.slots.capacity() {
                self.slots = zeroed(slots);
            } else {
                self.slots.clear();
                self.slots.resize(slots, 0);
            }
        }
    }

    /// The code of a string; adds a long string to the list.
    pub fn string_code(&mut self, bytes: &[u8]) -> u64 {
        if bytes.len() <= INLINE_BYTES {
            // Most keys have one or two bytes, so a loop is faster than a call of memcpy.
            let code = bytes.iter().rev().fold(0, |code, byte| code << 8 | u64::from(*byte));
            return code | (bytes.len() as u64) << 56;
        }
        self.strings.number(bytes) | LISTED << 56
    }

    /// Calls `visit` with the index and the code of each string. The strings must be longer than [`INLINE_BYTES`].
    pub fn listed_codes(&mut self, strings: &[&[u8]], mut visit: impl FnMut(usize, u64)) {
        self.strings.numbers(strings, |index, number| visit(index, number | LISTED << 56));
    }

    /// As [`Self::listed_codes`], for strings in the list of another table, given by their codes.
    pub fn moved_codes(&mut self, other: &Self, codes: &[u64], mut visit: impl FnMut(usize, u64)) {
        let numbers: Vec<u64> = codes.iter().map(|code| code & !(LISTED << 56)).collect();
        self.strings.moved_numbers(&other.strings, &numbers, |index, number| visit(index, number | LISTED << 56));
    }

    /// Whether a string's code is the number of a string in the list.
    pub fn is_listed(code: u64) -> bool {
        code >> 56 == LISTED
    }

    /// Calls `visit` with the string of a code.
    pub fn with_string<R>(&self, code: u64, visit: impl FnOnce(&[u8]) -> R) -> R {
        if code >> 56 == LISTED {
            return visit(self.strings.get(code & !(LISTED << 56)));
        }
        visit(&code.to_le_bytes()[..(code >> 56) as usize & 7])
    }

    /// The words of a group.
    pub fn codes(&self, group: usize) -> &[u64] {
        &self.codes[group * self.words..(group + 1) * self.words]
    }

    /// The group of a row of codes; creates the group if there is none.
    #[inline]
    pub fn group(&mut self, row: &[u64]) -> u32 {
        self.group_of_string(row).unwrap_or_else(|| self.group_of_tag(row, tag(row)))
    }

    /// The group of a row whose only key is a string of the list; creates the group if there is none. None: there are other
    /// keys, or the key is NULL or a short string.
    #[inline(always)]
    fn group_of_string(&mut self, row: &[u64]) -> Option<u32> {
        let groups = self.string_groups.as_mut()?;
        let [code, 0] = *row else { return None };
        if !Self::is_listed(code) {
            return None;
        }
        let number = (code & !(LISTED << 56)) as usize;
        if number >= groups.len() {
            groups.resize(number + 1, DISCARD);
        }
        if groups[number] == DISCARD {
            groups[number] = self.groups as u32;
            self.codes.extend_from_slice(row);
            self.groups += 1;
        }
        Some(groups[number])
    }

    fn group_of_tag(&mut self, row: &[u64], tag: u32) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = self.first_slot(tag);
        loop {
            let found = self.slots[at];
            if found == 0 {
                return self.add(row, tag, at);
            }
            if (found >> 32) as u32 == tag && is_equal(self.codes(found as u32 as usize), row) {
                return found as u32;
            }
            at = (at + 1) & mask;
        }
    }

    /// Appends the groups of rows of codes to `numbers`; creates missing groups. For some rows at a time, all slots are read before the
    /// first group, and all groups before the first comparison, in short loops, so that the processor waits for many cache lines at a time.
    pub fn number_rows(&mut self, rows: &[u64], numbers: &mut Vec<u32>) {
        if self.string_groups.is_some() {
            return numbers.extend(rows.chunks_exact(self.words).map(|row| self.group(row)));
        }
        let (mut tags, mut found) = ([0u32; BATCH_ROWS], [0u64; BATCH_ROWS]);
        for batch in rows.chunks(BATCH_ROWS * self.words) {
            let count = batch.len() / self.words;
            for (tag_of_row, row) in tags.iter_mut().zip(batch.chunks_exact(self.words)) {
                *tag_of_row = tag(row);
            }
            let (tags, found) = (&tags[..count], &mut found[..count]);
            for (tag, found) in tags.iter().zip(found.iter_mut()) {
                *found = self.slots[self.first_slot(*tag)];
            }
            for (tag, found) in tags.iter().zip(found.iter_mut()) {
                if (*found >> 32) as u32 != *tag {
                    *found = self.slot_of_tag(*tag);
                }
            }
            let touch = |found: &u64| self.codes[*found as u32 as usize * self.words];
            std::hint::black_box(found.iter().map(touch).fold(0, |all, word| all ^ word));
            for ((row, tag), found) in batch.chunks_exact(self.words).zip(tags).zip(found.iter()) {
                let group = *found as u32;
                let is_found = group != DISCARD && is_equal(self.codes(group as usize), row);
                numbers.push(if is_found { group } else { self.group_of_tag(row, *tag) });
            }
        }
    }

    /// The first slot with a tag, or 0 if there is none.
    #[inline(always)]
    fn slot_of_tag(&self, tag: u32) -> u64 {
        let mask = self.slots.len() - 1;
        let mut at = self.first_slot(tag);
        loop {
            let found = self.slots[at];
            if found == 0 || (found >> 32) as u32 == tag {
                return found;
            }
            at = (at + 1) & mask;
        }
    }

    /// The slot at which the search for a tag starts: the tag's upper bits.
    #[inline(always)]
    fn first_slot(&self, tag: u32) -> usize {
        (u64::from(tag) >> (32 - self.slots.len().trailing_zeros())) as usize
    }

    /// Assigns a group to each row by the encoded values of its keys and appends the groups to `numbers`, which is
    /// empty. Rows without a mark get [`DISCARD`]. False: the keys have too many possible values.
    pub fn number_by_code(
        &mut self,
        keys: &[&EncodedColumn<'_>],
        chunk_id: (u64, usize),
        rows: usize,
        marks: Option<&[u8]>,
        numbers: &mut Vec<u32>,
    ) -> bool {
        let mut size = 1usize;
        let mut code_ranges: SmallVec<[(i64, usize, usize); 8]> = SmallVec::new();
        let only_numbers = keys.iter().all(|key| matches!(key.encoding, CodeEncoding::Numbers { .. }));
        for key in keys {
            let Some((least, count)) = key.code_range() else { return false };
            let (least, count) = if only_numbers { aligned(least, count) } else { (least, count) };
            code_ranges.push((least, count, size));
            // NULL has a position, too.
            size = size.saturating_mul(count.saturating_add(1));
        }
        let is_filled = only_numbers && size <= NUMBER_POSITIONS_MAX.min(self.groups * POSITIONS_PER_GROUP);
        let positions_max = if keys.len() == 1 { SINGLE_POSITIONS_MAX } else { POSITIONS_MAX };
        if size > positions_max && !is_filled {
            return false;
        }
        let scope = match only_numbers {
            true => MapScope::Numbers(code_ranges.iter().map(|(least, count, _)| (*least, *count)).collect()),
            false => MapScope::Chunk(chunk_id.0, chunk_id.1),
        };
        let mut code_map = std::mem::take(&mut self.code_map);
        if code_map.scope.as_ref() != Some(&scope) {
            code_map.scope = Some(scope);
            code_map.groups.clear();
            code_map.groups.resize(size, 0);
        }
        code_map.positions.clear();
        code_map.positions.resize(rows, 0);
        for (key, (least, count, stride)) in keys.iter().zip(&code_ranges) {
            match key.validity {
                None => add_positions(key.codes, *least, *stride as u32, &mut code_map.positions),
                Some(validity) => {
                    for ((at, code), valid) in code_map.positions.iter_mut().zip(key.codes).zip(validity) {
                        let code = if *valid == 0 { *count as i64 } else { code.wrapping_sub(*least) };
                        *at = position(*at, code, *stride as u32);
                    }
                }
            }
        }
        let is_marked = |row: usize| marks.is_none_or(|marks| marks[row] != 0);
        numbers
            .extend(code_map.positions.iter().map(|at| code_map.groups.get(*at as usize).copied().unwrap_or(DISCARD)));
        let missing = match marks {
            None => numbers.contains(&DISCARD),
            Some(marks) => drop_unmarked(marks, numbers),
        };
        let mut words = vec![0u64; self.words];
        for (row, at) in code_map.positions.iter().enumerate().filter(|_| missing) {
            if numbers[row] != DISCARD || !is_marked(row) {
                continue;
            }
            if let Some(known) = code_map.groups.get(*at as usize).filter(|known| **known != DISCARD) {
                numbers[row] = *known;
                continue;
            }
            words.fill(0);
            for (number, key) in keys.iter().enumerate() {
                match key.encoding {
                    _ if key.is_null(row) => words[keys.len()] |= 1 << number,
                    CodeEncoding::Numbers { .. } | CodeEncoding::Nulls => words[number] = key.codes[row] as u64,
                    CodeEncoding::Strings(strings) | CodeEncoding::RowStrings(strings) => {
                        words[number] = self.string_code(strings.get(key.codes[row] as usize).unwrap_or_default());
                    }
                }
            }
            numbers[row] = self.group(&words);
            if let Some(known) = code_map.groups.get_mut(*at as usize) {
                *known = numbers[row];
            }
        }
        self.code_map = code_map;
        true
    }

    #[inline(never)]
    fn add(&mut self, row: &[u64], tag: u32, at: usize) -> u32 {
        let group = self.groups as u32;
        self.codes.extend_from_slice(row);
        self.groups += 1;
        self.slots[at] = slot(tag, group);
        if self.groups * 2 > self.slots.len() {
            self.grow();
        }
        group
    }

    /// Doubles the number of slots. Groups keep their order by tag, so slots are written nearly in sequence.
    fn grow(&mut self) {
        let slots = zeroed(self.slots.len() * 2);
        let mask = slots.len() - 1;
        let old = std::mem::replace(&mut self.slots, slots);
        for found in old.into_iter().filter(|found| *found != 0) {
            let mut at = self.first_slot((found >> 32) as u32);
            while self.slots[at] != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = found;
        }
    }
}

/// Slots of an empty table.
const SLOTS_MIN: usize = 64;

/// Slots of a table with this many groups: at most half of them are in use.
fn slots_for(groups: usize) -> usize {
    (groups * 2).next_power_of_two().max(SLOTS_MIN)
}

/// A slot: the tag in the upper 32 bits, the group's number in the lower ones.
#[inline(always)]
fn slot(tag: u32, group: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(group)
}

/// The upper half of a row's hash.
#[inline(always)]
fn tag(row: &[u64]) -> u32 {
    (hash(row.iter().copied()) >> 32) as u32
}

vectorized! {
    fn add_positions(codes: &[i64], least: i64, stride: u32, positions: &mut [u32]) {
        for (at, code) in positions.iter_mut().zip(codes) {
            *at = position(*at, code.wrapping_sub(least), stride);
        }
    }

    /// Assigns [`DISCARD`] to rows with a flag.
    fn discard_flagged(flags: &[u8], numbers: &mut [u32]) {
        for (group, flags) in numbers.iter_mut().zip(flags) {
            *group = if *flags == 0 { *group } else { DISCARD };
        }
    }

    /// Assigns [`DISCARD`] to rows without a mark. Returns whether a marked row has no group yet.
    fn drop_unmarked(marks: &[u8], numbers: &mut [u32]) -> bool {
        let mut missing = 0;
        for (group, mark) in numbers.iter_mut().zip(marks) {
            missing |= u32::from(*group == DISCARD) & u32::from(*mark);
            *group *= u32::from(*mark);
        }
        missing != 0
    }
}

/// Widens a range of numbers to multiples of about an eighth of its length, so that chunks with similar ranges have the same.
/// Returns ranges that are too long for a [`CodeMap`] unchanged.
fn aligned(least: i64, count: usize) -> (i64, usize) {
    if count > NUMBER_POSITIONS_MAX {
        return (least, count);
    }
    let step = (count.next_power_of_two() / 8).max(1);
    let start = least & !(step as i64 - 1);
    (start, ((least - start) as usize + count).next_multiple_of(step))
}

/// Compares two rows of words, which are too short for a call of memcmp.
#[inline(always)]
fn is_equal(left: &[u64], right: &[u64]) -> bool {
    left.iter().zip(right).fold(0, |difference, (left, right)| difference | (left ^ right)) == 0
}

#[inline(always)]
fn position(at: u32, code: i64, stride: u32) -> u32 {
    at.wrapping_add((code as u32).wrapping_mul(stride))
}

/// A multiply-and-fold hash, word by word. It does not resist deliberate collisions, which would only slow down the
/// query of the user who causes them.
#[inline(always)]
pub fn hash(row: impl Iterator<Item = u64>) -> u64 {
    row.fold(0, mix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::tests::with_each;

    #[test]
    fn sums_and_counts_by_group_are_the_same_with_all_instruction_sets() {
        for groups in [1, 2, 3, 5, 6, 9, 10, FEW_GROUPS_MAX] {
            for rows in [0usize, 1, 7, 1000, 1024] {
                let number = |row: usize| (row * 7 + row / 5) % groups;
                let mut counts = vec![0u32; groups];
                (0..rows).for_each(|row| counts[number(row)] += 1);
                with_each(|set| {
                    let mut found =
                        RowGroups { numbers: (0..rows).map(|row| number(row) as u32).collect(), counts: Vec::new() };
                    assert_eq!(found.count(groups), counts[0] as usize);
                    assert_eq!(found.counts, counts, "{set:?}");
                    for (wide, unit) in [(false, 0x7f_1234_5678), (true, 0x7f_1234_5678), (true, i64::MAX / 600)] {
                        let values: Vec<i64> = (0..rows as i64).map(|row| (row - 500) * unit).collect();
                        let mut sums = vec![0i128; groups];
                        (0..rows).for_each(|row| sums[number(row)] += values[row] as i128);
                        let found: Vec<i128> = found.sums(&values, wide).collect();
                        assert_eq!(found[1..], sums[1..], "{set:?}, {groups} groups, {rows} rows");
                    }
                });
            }
        }
    }

    #[test]
    fn an_aligned_range_contains_the_range() {
        for least in [i64::MIN, i64::MIN + 5, -1000, -1, 0, 1, 77, i64::MAX - 60_000] {
            for count in [1usize, 2, 7, 100, 4096, 60_000] {
                let (start, aligned) = aligned(least, count);
                assert!(start <= least && least as i128 + count as i128 <= start as i128 + aligned as i128);
                assert!(aligned <= count + count.next_power_of_two() / 4 + 1, "{least} {count}");
            }
        }
        assert_eq!(aligned(1, 60_000), aligned(3, 59_997));
    }

    #[test]
    fn number_rows_agrees_with_group() {
        let mut rows = Vec::new();
        for number in 0..20_000u64 {
            rows.extend([number * number % 7001, number % 3, 0]);
        }
        let (mut single, mut batched) = (GroupTable::new(2, false), GroupTable::new(2, false));
        let mut numbers = Vec::new();
        rows.chunks(3 * 1024).for_each(|run| batched.number_rows(run, &mut numbers));
        let expected: Vec<u32> = rows.chunks_exact(3).map(|row| single.group(row)).collect();
        assert_eq!(numbers, expected);
        assert_eq!(batched.len(), single.len());
    }

    #[test]
    fn strings_as_the_only_key_have_groups_beside_short_strings_and_null() {
        let mut table = GroupTable::new(1, true);
        let strings: Vec<String> = (0..3000).map(|number| "x".repeat(number % 20) + &number.to_string()).collect();
        let mut first = Vec::new();
        for round in 0..2 {
            let mut rows: Vec<u64> = Vec::new();
            for string in &strings {
                rows.extend([table.string_code(string.as_bytes()), 0]);
            }
            rows.extend([0, 1]);
            let mut numbers = Vec::new();
            table.number_rows(&rows, &mut numbers);
            assert_eq!(numbers, (1..=3001).collect::<Vec<u32>>(), "round {round}");
            first = numbers;
        }
        assert_eq!(table.len(), 3002);
        for (group, string) in first.iter().zip(&strings) {
            table.with_string(table.codes(*group as usize)[0], |bytes| assert_eq!(bytes, string.as_bytes()));
        }
        table.clear();
        let code = table.string_code(b"another string");
        assert_eq!(table.group(&[code, 0]), 1);
    }

    #[test]
    fn equal_rows_share_a_group_and_codes_return_their_strings() {
        let mut table = GroupTable::new(2, false);
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
        // A NULL is not a zero.
        assert_eq!(table.group(&[0, 0, 1]), 2501);
        table.clear();
        assert_eq!(table.len(), 1);
    }
}
