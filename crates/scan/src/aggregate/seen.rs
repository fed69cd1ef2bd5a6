//! Which strings of a chunk's dictionary are already in the set of a group, so that other rows with the same string need no lookup.
//!
//! A bit per group and dictionary entry, for one chunk at a time. A bit is set only after the string was added to the set.

use super::groups::DISCARD;
use crate::predicate::{CodeEncoding, EncodedColumn};

/// The most bits of the table. Entries of longer dictionaries recur too seldom in a chunk: with 5000 of them, the table saved no processor
/// time; with 7 or 500, it saved half of it.
const BITS_MAX: usize = 1 << 12;

#[derive(Debug, Default)]
pub struct SeenEntries {
    /// The chunk to which the bits belong, and its number of dictionary entries.
    chunk: Option<((u64, usize), usize)>,
    /// Bit `group * entries + code`.
    bits: Vec<u64>,
    /// Whether the bits belong to the run's chunk, and include all groups.
    is_used: bool,
    /// The run's rows whose string must be looked up, and the positions of their bits.
    unseen: Vec<u32>,
    positions: Vec<u32>,
}

impl SeenEntries {
    /// The memory of the bits.
    pub fn bytes(&self) -> usize {
        self.bits.len() * size_of::<u64>()
    }

    /// Whether [`Self::unseen`] may be called for the run.
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// Prepares the bits for a run of rows of a chunk, whose groups are less than `groups`. Without a dictionary, or if `grant`
    /// refuses the memory of more bits, the table is not used.
    pub fn start_run(
        &mut self,
        encoded: Option<&EncodedColumn<'_>>,
        chunk: (u64, usize),
        groups: usize,
        grant: impl FnOnce(usize) -> bool,
    ) {
        self.is_used = false;
        self.unseen.clear();
        self.positions.clear();
        let Some(CodeEncoding::Strings(strings)) = encoded.map(|encoded| encoded.encoding) else { return };
        let entries = strings.count();
        let words = groups.saturating_mul(entries).div_ceil(64);
        if entries == 0 || words > BITS_MAX / 64 || words > self.bits.len() && !grant((words - self.bits.len()) * 8) {
            return;
        }
        if self.chunk != Some((chunk, entries)) {
            self.chunk = Some((chunk, entries));
            self.bits.clear();
        }
        self.bits.resize(words.max(self.bits.len()), 0);
        self.is_used = true;
    }

    /// The rows of a group whose string may not be in the group's set yet, and rows that are NULL.
    pub fn unseen(&mut self, encoded: &EncodedColumn<'_>, groups: &[u32]) -> &[u32] {
        let entries = self.chunk.map_or(0, |(_, entries)| entries);
        for (row, (code, group)) in encoded.codes.iter().zip(groups).enumerate() {
            // The codes of NULLs, and those of a damaged unit, are arbitrary.
            let is_entry = (*code as u64) < entries as u64;
            let position = if is_entry { *group as usize * entries + *code as usize } else { usize::MAX };
            let is_seen = self.bits.get(position / 64).is_some_and(|word| word >> (position % 64) & 1 == 1);
            if *group != DISCARD && (!is_seen || encoded.is_null(row)) {
                self.unseen.push(row as u32);
                self.positions.push(position as u32);
            }
        }
        &self.unseen
    }

    /// Notes that the strings of the run's rows were added to the sets of their groups, except rows for which `is_added` is false.
    pub fn note(&mut self, groups: &[u32], is_added: impl Fn(usize) -> bool) {
        for (row, position) in self.unseen.iter().zip(&self.positions) {
            if groups[*row as usize] != DISCARD
                && is_added(*row as usize)
                && let Some(word) = self.bits.get_mut(*position as usize / 64)
            {
                *word |= 1 << (position % 64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predicate::StringList;

    /// Returns the rows that must be looked up, and notes all of them as added.
    fn looked_up(seen: &mut SeenEntries, chunk: usize, codes: &[i64], groups: &[u32]) -> Option<Vec<u32>> {
        let strings = StringList { bytes: b"abc", ends: &[1, 2, 3] };
        let validity: Vec<i64> = codes.iter().map(|code| i64::from(*code != 7)).collect();
        let encoded = EncodedColumn { codes, validity: Some(&validity), encoding: CodeEncoding::Strings(strings) };
        let groups_end = *groups.iter().max()? as usize + 1;
        seen.start_run(Some(&encoded), (1, chunk), groups_end, |_| true);
        let rows = seen.is_used().then(|| seen.unseen(&encoded, groups).to_vec());
        seen.note(groups, |row| validity[row] == 1);
        rows
    }

    #[test]
    fn a_string_is_looked_up_once_per_group_and_chunk() {
        let mut seen = SeenEntries::default();
        assert_eq!(looked_up(&mut seen, 0, &[0, 1, 2], &[1, 1, 2]), Some(vec![0, 1, 2]));
        assert_eq!(looked_up(&mut seen, 0, &[0, 2, 2, 1], &[1, 1, 2, 2]), Some(vec![1, 3]));
        // Another group; a discarded row, whose string stays unknown; NULLs, whose code is no entry.
        assert_eq!(looked_up(&mut seen, 0, &[0, 0, 7, 7], &[3, DISCARD, 1, 2]), Some(vec![0, 2, 3]));
        assert_eq!(looked_up(&mut seen, 0, &[0, 7, 1], &[3, 3, 1]), Some(vec![1]));
        assert_eq!(looked_up(&mut seen, 1, &[0, 1, 1], &[1, 1, 3]), Some(vec![0, 1, 2]));
        // Too many groups, and then few of them again.
        assert_eq!(looked_up(&mut seen, 1, &[0], &[BITS_MAX as u32]), None);
        assert_eq!(looked_up(&mut seen, 1, &[0, 2], &[1, 1]), Some(vec![1]));
    }

    #[test]
    fn without_memory_no_bits_are_allocated() {
        let strings = StringList { bytes: b"ab", ends: &[1, 2] };
        let encoded = EncodedColumn { codes: &[0], validity: None, encoding: CodeEncoding::Strings(strings) };
        let mut seen = SeenEntries::default();
        seen.start_run(Some(&encoded), (1, 0), 2, |_| false);
        assert_eq!((seen.is_used(), seen.bytes()), (false, 0));
    }
}
