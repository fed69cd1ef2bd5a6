//! Finds the rows of a lookup table by their key.

/// No row has the key.
pub const NO_ROW: u32 = u32::MAX;

/// A table with a place per integer is used if it has at most this many places per key.
const DENSE_PLACES: u64 = 16;
/// Fibonacci hashing: the upper bits of a product depend on all bits of the number.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Rows by key. Rows with equal keys form a list, in ascending order.
#[derive(Debug)]
pub struct KeyIndex {
    places: Places,
    /// For each row, the next row with an equal key. Empty if no list has two rows.
    next: Vec<u32>,
}

/// The first row of each key.
#[derive(Debug)]
enum Places {
    /// The row of key `first + i` is at place `i`.
    Dense { first: i64, rows: Vec<u32> },
    /// Open addressing. The number of places is `1 << (64 - shift)`; at least half of them are [`NO_ROW`].
    Hashed { shift: u32, places: Vec<(i64, u32)> },
    /// As `Hashed`, for keys of `parts` numbers, which are in `keys` row by row.
    Composite { parts: usize, keys: Vec<i64>, shift: u32, places: Vec<u32> },
}

impl KeyIndex {
    /// The rows are numbered in the order of `keys`, each of which has `parts` numbers; there are fewer than [`NO_ROW`] rows. With
    /// `lists` false, the index only tells whether there is a row.
    pub fn new(keys: &[i64], parts: usize, lists: bool) -> Self {
        let rows = keys.len() / parts.max(1);
        let mut next = Vec::new();
        // Rows are added from the last to the first, so that lists ascend.
        let mut add = |place: &mut u32, row: usize| {
            if lists && *place != NO_ROW {
                next.resize(rows, NO_ROW);
                next[row] = *place;
            }
            *place = row as u32;
        };
        if parts > 1 {
            let (mask, shift, mut places) = empty_places(rows, NO_ROW);
            for (row, key) in keys.chunks_exact(parts).enumerate().rev() {
                let mut at = hash_parts(key, shift);
                while places[at] != NO_ROW && keys[places[at] as usize * parts..][..parts] != *key {
                    at = (at + 1) & mask;
                }
                add(&mut places[at], row);
            }
            let places = Places::Composite { parts, keys: keys.to_vec(), shift, places };
            return Self { places, next };
        }
        let (first, last) = (keys.iter().min().copied().unwrap_or(0), keys.iter().max().copied().unwrap_or(0));
        let span = last.wrapping_sub(first) as u64;
        if span / DENSE_PLACES < rows as u64 {
            let mut places = vec![NO_ROW; span as usize + 1];
            for (row, key) in keys.iter().enumerate().rev() {
                add(&mut places[key.wrapping_sub(first) as usize], row);
            }
            return Self { places: Places::Dense { first, rows: places }, next };
        }
        let (mask, shift, mut places) = empty_places(rows, (0, NO_ROW));
        for (row, key) in keys.iter().enumerate().rev() {
            let mut at = hash(*key, shift);
            while places[at].1 != NO_ROW && places[at].0 != *key {
                at = (at + 1) & mask;
            }
            places[at].0 = *key;
            add(&mut places[at].1, row);
        }
        Self { places: Places::Hashed { shift, places }, next }
    }

    /// The most bytes that an index of this many rows with keys of `parts` numbers occupies.
    pub fn bytes_for(rows: usize, parts: usize) -> usize {
        let places = match parts {
            1 => rows * DENSE_PLACES as usize * size_of::<u32>(),
            parts => rows * (parts * size_of::<i64>() + 4 * size_of::<u32>()),
        };
        places + rows * size_of::<u32>() + 64
    }

    /// The first row with this key of several parts, or [`NO_ROW`].
    pub fn row_of_parts(&self, key: &[i64]) -> u32 {
        let Places::Composite { parts, keys, shift, places } = &self.places else {
            return key.first().map_or(NO_ROW, |key| self.row(*key));
        };
        let mut at = hash_parts(key, *shift);
        loop {
            let row = places[at];
            if row == NO_ROW || keys[row as usize * parts..][..*parts] == *key {
                return row;
            }
            at = (at + 1) & (places.len() - 1);
        }
    }

    /// The first row with this key of one part, or [`NO_ROW`].
    #[inline(always)]
    pub fn row(&self, key: i64) -> u32 {
        match &self.places {
            Places::Composite { .. } => NO_ROW,
            Places::Dense { first, rows } => {
                let place = usize::try_from(key.wrapping_sub(*first) as u64).ok();
                place.and_then(|place| rows.get(place)).copied().unwrap_or(NO_ROW)
            }
            Places::Hashed { shift, places } => {
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

    /// The next row with the key of `row`, or [`NO_ROW`].
    #[inline(always)]
    pub fn next(&self, row: u32) -> u32 {
        self.next.get(row as usize).copied().unwrap_or(NO_ROW)
    }
}

/// Places for this many rows, at least half of which stay empty: the mask of positions, the shift of hashes, and the places.
fn empty_places<P: Clone>(rows: usize, empty: P) -> (usize, u32, Vec<P>) {
    let count = (rows * 2).next_power_of_two().max(2);
    (count - 1, 64 - count.ilog2(), vec![empty; count])
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

    /// All rows of the list that begins with `first`.
    fn list(index: &KeyIndex, first: u32) -> Vec<u32> {
        std::iter::successors(Some(first), |row| Some(index.next(*row))).take_while(|row| *row != NO_ROW).collect()
    }

    #[track_caller]
    fn check(keys: &[i64]) {
        let mut expected: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
        for (row, key) in keys.iter().enumerate() {
            expected.entry(*key).or_default().push(row as u32);
        }
        let index = KeyIndex::new(keys, 1, true);
        let places = match &index.places {
            Places::Dense { rows, .. } => rows.len() * size_of::<u32>(),
            Places::Hashed { places, .. } => places.len() * size_of::<(i64, u32)>(),
            Places::Composite { .. } => unreachable!("keys have one part"),
        };
        let bytes = places + index.next.len() * size_of::<u32>();
        assert!(bytes <= KeyIndex::bytes_for(keys.len(), 1), "{bytes} bytes for {} keys", keys.len());
        assert_eq!(index.next.is_empty(), expected.len() == keys.len(), "lists are only stored for duplicate keys");
        let without_lists = KeyIndex::new(keys, 1, false);
        assert!(without_lists.next.is_empty());
        let near = keys.iter().flat_map(|key| [key.wrapping_sub(1), *key, key.wrapping_add(1)]);
        for key in near.chain([i64::MIN, -1, 0, 1, i64::MAX]) {
            assert_eq!(list(&index, index.row(key)), expected.get(&key).cloned().unwrap_or_default(), "{key}");
            assert_eq!(without_lists.row(key), index.row(key));
        }
    }

    #[test]
    fn keys_of_several_parts_are_found_with_all_their_rows() {
        for rows in [0, 1, 7, 3000i64] {
            let parts = |row: i64| [row % 50, row * 7 % 61 - 30, i64::MIN + row % 2];
            let keys: Vec<i64> = (0..rows).flat_map(parts).collect();
            let mut expected: BTreeMap<[i64; 3], Vec<u32>> = BTreeMap::new();
            for row in 0..rows {
                expected.entry(parts(row)).or_default().push(row as u32);
            }
            let index = KeyIndex::new(&keys, 3, true);
            for (first, second) in (-1..52).flat_map(|first| (-32..33).map(move |second| (first, second))) {
                for third in [i64::MIN, i64::MIN + 1, 0] {
                    let key = [first, second, third];
                    let found = list(&index, index.row_of_parts(&key));
                    assert_eq!(found, expected.get(&key).cloned().unwrap_or_default(), "{key:?}");
                }
            }
        }
        assert_eq!(KeyIndex::new(&[5, 6], 1, true).row_of_parts(&[6]), 1);
    }

    #[test]
    fn keys_are_found_with_all_their_rows() {
        check(&[]);
        check(&[0]);
        check(&[5, 7, 5, -3]);
        check(&(0..1000).map(|i| i * 7 % 640).collect::<Vec<_>>());
        check(&(0..1000).map(|i: i64| i.wrapping_mul(0x1234_5678_9abc_def1)).collect::<Vec<_>>());
        check(&[i64::MIN, i64::MAX, 0, i64::MIN, i64::MAX - 1]);
        check(&[i64::MIN, i64::MAX, 0, i64::MIN, i64::MAX - 1, i64::MIN]);
    }
}
