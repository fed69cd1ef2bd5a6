//! Finds the row of a lookup table by its key.

/// No row has the key.
pub const NO_ROW: u32 = u32::MAX;
/// Several rows have the key.
pub const SEVERAL_ROWS: u32 = u32::MAX - 1;

/// A table with a place per integer is used if it has at most this many places per key.
const DENSE_PLACES: u64 = 16;
/// Fibonacci hashing: the upper bits of a product depend on all bits of the number.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Rows by key.
#[derive(Debug)]
pub enum KeyIndex {
    /// The row of key `first + i` is at place `i`.
    Dense { first: i64, rows: Vec<u32> },
    /// Open addressing. The number of places is `1 << (64 - shift)`; at least half of them are [`NO_ROW`].
    Hashed { shift: u32, places: Vec<(i64, u32)> },
    /// As `Hashed`, for keys of `parts` numbers, which are in `keys` row by row.
    Composite { parts: usize, keys: Vec<i64>, shift: u32, places: Vec<u32>, several: Vec<bool> },
}

impl KeyIndex {
    /// The rows are numbered in the order of `keys`, each of which has `parts` numbers; there are fewer than [`SEVERAL_ROWS`] rows.
    pub fn new(keys: &[i64], parts: usize) -> Self {
        if parts > 1 {
            return Self::composite(keys, parts);
        }
        let (first, last) = (keys.iter().min().copied().unwrap_or(0), keys.iter().max().copied().unwrap_or(0));
        let span = last.wrapping_sub(first) as u64;
        if span / DENSE_PLACES < keys.len() as u64 {
            let mut rows = vec![NO_ROW; span as usize + 1];
            for (row, key) in keys.iter().enumerate() {
                let place = &mut rows[key.wrapping_sub(first) as usize];
                *place = if *place == NO_ROW { row as u32 } else { SEVERAL_ROWS };
            }
            return Self::Dense { first, rows };
        }
        let bits = (keys.len() * 2).next_power_of_two().max(2).ilog2();
        let shift = 64 - bits;
        let mut places = vec![(0, NO_ROW); 1 << bits];
        for (row, key) in keys.iter().enumerate() {
            let mut at = hash(*key, shift);
            while places[at].1 != NO_ROW && places[at].0 != *key {
                at = (at + 1) & (places.len() - 1);
            }
            places[at] = (*key, if places[at].1 == NO_ROW { row as u32 } else { SEVERAL_ROWS });
        }
        Self::Hashed { shift, places }
    }

    fn composite(keys: &[i64], parts: usize) -> Self {
        let rows = keys.len() / parts;
        let bits = (rows * 2).next_power_of_two().max(2).ilog2();
        let shift = 64 - bits;
        let mut places = vec![NO_ROW; 1 << bits];
        let mut several = vec![false; rows];
        for (row, key) in keys.chunks_exact(parts).enumerate() {
            let mut at = hash_parts(key, shift);
            while places[at] != NO_ROW && keys[places[at] as usize * parts..][..parts] != *key {
                at = (at + 1) & (places.len() - 1);
            }
            match places[at] {
                NO_ROW => places[at] = row as u32,
                first => several[first as usize] = true,
            }
        }
        Self::Composite { parts, keys: keys.to_vec(), shift, places, several }
    }

    /// The most bytes that an index of this many rows with keys of `parts` numbers occupies.
    pub fn bytes_for(rows: usize, parts: usize) -> usize {
        match parts {
            1 => rows * DENSE_PLACES as usize * size_of::<u32>() + 64,
            parts => rows * (parts * size_of::<i64>() + 4 * size_of::<u32>() + 1) + 64,
        }
    }

    /// The row with this key of several parts, [`NO_ROW`] or [`SEVERAL_ROWS`].
    pub fn row_of_parts(&self, key: &[i64]) -> u32 {
        let Self::Composite { parts, keys, shift, places, several } = self else {
            return key.first().map_or(NO_ROW, |key| self.row(*key));
        };
        let mut at = hash_parts(key, *shift);
        loop {
            let row = places[at];
            if row == NO_ROW {
                return NO_ROW;
            }
            if keys[row as usize * parts..][..*parts] == *key {
                return if several[row as usize] { SEVERAL_ROWS } else { row };
            }
            at = (at + 1) & (places.len() - 1);
        }
    }

    /// The row with this key of one part, [`NO_ROW`] or [`SEVERAL_ROWS`].
    #[inline(always)]
    pub fn row(&self, key: i64) -> u32 {
        match self {
            Self::Composite { .. } => NO_ROW,
            Self::Dense { first, rows } => {
                let place = usize::try_from(key.wrapping_sub(*first) as u64).ok();
                place.and_then(|place| rows.get(place)).copied().unwrap_or(NO_ROW)
            }
            Self::Hashed { shift, places } => {
                let mut at = hash(key, *shift);
                loop {
                    let (known, row) = places[at];
                    if known == key || row == NO_ROW {
                        return row;
                    }
                    at = (at + 1) & (places.len() - 1);
                }
            }
        }
    }
}

fn hash(key: i64, shift: u32) -> usize {
    ((key as u64).wrapping_mul(FACTOR) >> shift) as usize
}

fn hash_parts(key: &[i64], shift: u32) -> usize {
    let mixed = key.iter().fold(0u64, |hash, part| (hash ^ *part as u64).wrapping_mul(FACTOR).rotate_left(29));
    (mixed.wrapping_mul(FACTOR) >> shift) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[track_caller]
    fn check(keys: &[i64]) {
        let mut expected = BTreeMap::new();
        for (row, key) in keys.iter().enumerate() {
            expected.entry(*key).and_modify(|row| *row = SEVERAL_ROWS).or_insert(row as u32);
        }
        let index = KeyIndex::new(keys, 1);
        let bytes = match &index {
            KeyIndex::Dense { rows, .. } => rows.len() * size_of::<u32>(),
            KeyIndex::Hashed { places, .. } => places.len() * size_of::<(i64, u32)>(),
            KeyIndex::Composite { .. } => unreachable!("keys have one part"),
        };
        assert!(bytes <= KeyIndex::bytes_for(keys.len(), 1), "{bytes} bytes for {} keys", keys.len());
        let near = keys.iter().flat_map(|key| [key.wrapping_sub(1), *key, key.wrapping_add(1)]);
        for key in near.chain([i64::MIN, -1, 0, 1, i64::MAX]) {
            assert_eq!(index.row(key), expected.get(&key).copied().unwrap_or(NO_ROW), "{key}");
        }
    }

    #[test]
    fn keys_of_several_parts_are_found_and_duplicates_are_reported() {
        for rows in [0, 1, 7, 3000i64] {
            let parts = |row: i64| [row % 50, row * 7 % 61 - 30, i64::MIN + row % 2];
            let keys: Vec<i64> = (0..rows).flat_map(parts).collect();
            let mut expected = BTreeMap::new();
            for row in 0..rows {
                expected.entry(parts(row)).and_modify(|row| *row = SEVERAL_ROWS).or_insert(row as u32);
            }
            let index = KeyIndex::new(&keys, 3);
            for (first, second) in (-1..52).flat_map(|first| (-32..33).map(move |second| (first, second))) {
                for third in [i64::MIN, i64::MIN + 1, 0] {
                    let key = [first, second, third];
                    assert_eq!(index.row_of_parts(&key), expected.get(&key).copied().unwrap_or(NO_ROW), "{key:?}");
                }
            }
        }
        assert_eq!(KeyIndex::new(&[5, 6], 1).row_of_parts(&[6]), 1);
    }

    #[test]
    fn keys_are_found_and_duplicates_are_reported() {
        check(&[]);
        check(&[0]);
        check(&[5, 7, 5, -3]);
        check(&(0..1000).map(|i| i * 7 % 640).collect::<Vec<_>>());
        check(&(0..1000).map(|i: i64| i.wrapping_mul(0x1234_5678_9abc_def1)).collect::<Vec<_>>());
        check(&[i64::MIN, i64::MAX, 0, i64::MIN, i64::MAX - 1]);
    }
}
