//! Sets with a fast membership test: the constants of `column = ANY (...)`, up to a million.

use cellar_format::wire::Integers;

/// Bits of a bitmap per value, at most, if the bitmap has one bit per integer between the smallest and the largest value.
const DENSE_BITS: u64 = 256;
/// Sets of at most this size are searched one by one.
const FEW: usize = 8;
/// Bits of a bitmap per value, at least, if the bitmap has a bit per hash.
const SPARSE_BITS: usize = 16;
/// Fibonacci hashing: the upper bits of a product depend on all bits of the number.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Debug, PartialEq, Eq)]
pub enum IntSet {
    Few(Vec<i64>),
    /// Bit `i % 64` of word `i / 64` says whether the set contains `first + i`.
    Dense {
        first: i64,
        words: Vec<u64>,
    },
    Sparse {
        /// In ascending order, without duplicates.
        values: Vec<i64>,
        hashes: HashFilter,
    },
}

/// Byte strings.
#[derive(Debug, PartialEq, Eq)]
pub struct BytesSet {
    /// The values in ascending order, without duplicates.
    values: Vec<Vec<u8>>,
    /// None for few values.
    hashes: Option<HashFilter>,
}

/// A bit per hash, of which only the upper bits are used. A bit that is 0 says that no value has this hash.
#[derive(Debug, PartialEq, Eq)]
pub struct HashFilter {
    /// The number of bits is `1 << (64 - shift)`.
    shift: u32,
    bits: Vec<u64>,
}

impl IntSet {
    pub fn new(mut values: Vec<i64>) -> Self {
        values.sort_unstable();
        values.dedup();
        let (Some(&first), Some(&last)) = (values.first(), values.last()) else { return Self::Few(values) };
        if values.len() <= FEW {
            return Self::Few(values);
        }
        let span = last.wrapping_sub(first) as u64;
        if span / DENSE_BITS >= values.len() as u64 {
            let hashes = HashFilter::new(values.iter().map(|value| hash_int(*value)));
            return Self::Sparse { values, hashes };
        }
        let mut words = vec![0; (span / 64 + 1) as usize];
        values.iter().for_each(|value| set_bit(&mut words, value.wrapping_sub(first) as u64));
        Self::Dense { first, words }
    }

    #[inline(always)]
    pub fn contains(&self, value: i64) -> bool {
        match self {
            Self::Few(values) => values.contains(&value),
            Self::Dense { first, words } => bit(words, value.wrapping_sub(*first) as u64),
            Self::Sparse { values, hashes } => {
                hashes.may_contain(hash_int(value)) && values.binary_search(&value).is_ok()
            }
        }
    }

    /// Whether the set contains a value from `min` to `max`.
    pub fn overlaps(&self, min: i64, max: i64) -> bool {
        match self {
            Self::Few(values) | Self::Sparse { values, .. } => {
                let first = values.partition_point(|value| *value < min);
                values.get(first).is_some_and(|value| *value <= max)
            }
            Self::Dense { first, words } => {
                let bits = 64 * words.len() as u64;
                if max < *first || max < min {
                    return false;
                }
                let from = if min < *first { 0 } else { min.wrapping_sub(*first) as u64 };
                let to = (max.wrapping_sub(*first) as u64).min(bits.saturating_sub(1));
                let (from_word, to_word) = ((from / 64) as usize, (to / 64) as usize);
                from < bits
                    && words[from_word..=to_word].iter().enumerate().any(|(number, word)| {
                        let above = if number == 0 { u64::MAX << (from % 64) } else { u64::MAX };
                        let below = if from_word + number == to_word { u64::MAX >> (63 - to % 64) } else { u64::MAX };
                        word & above & below != 0
                    })
            }
        }
    }
}

impl From<&Integers> for IntSet {
    fn from(integers: &Integers) -> Self {
        match integers {
            Integers::List(values) => Self::new(values.clone()),
            Integers::Bitmap { first, words } => Self::Dense { first: *first, words: words.clone() },
        }
    }
}

impl BytesSet {
    pub fn new(mut values: Vec<Vec<u8>>) -> Self {
        values.sort_unstable();
        values.dedup();
        let hashes = (values.len() > FEW).then(|| HashFilter::new(values.iter().map(|value| hash_bytes(value))));
        Self { values, hashes }
    }

    #[inline(always)]
    pub fn contains(&self, value: &[u8]) -> bool {
        match &self.hashes {
            None => self.values.iter().any(|known| known == value),
            Some(filter) => {
                filter.may_contain(hash_bytes(value))
                    && self.values.binary_search_by(|known| known.as_slice().cmp(value)).is_ok()
            }
        }
    }

    /// The first value in ascending order for which `is_below` is false. `is_below` is true for the values before it.
    pub fn first_not(&self, is_below: impl Fn(&[u8]) -> bool) -> Option<&[u8]> {
        let first = self.values.partition_point(|value| is_below(value));
        self.values.get(first).map(Vec::as_slice)
    }
}

impl HashFilter {
    fn new(hashes: impl ExactSizeIterator<Item = u64>) -> Self {
        let shift = 64 - (hashes.len() * SPARSE_BITS).next_power_of_two().max(64).ilog2();
        let mut bits = vec![0; 1 << (64 - shift - 6)];
        hashes.for_each(|hash| set_bit(&mut bits, hash >> shift));
        Self { shift, bits }
    }

    #[inline(always)]
    fn may_contain(&self, hash: u64) -> bool {
        bit(&self.bits, hash >> self.shift)
    }
}

#[inline(always)]
fn hash_int(value: i64) -> u64 {
    (value as u64).wrapping_mul(FACTOR)
}

#[inline(always)]
fn hash_bytes(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let mut state = bytes.len() as u64;
    for word in words.iter().chain([&last]) {
        state = (state ^ u64::from_le_bytes(*word)).wrapping_mul(FACTOR).rotate_left(29);
    }
    state.wrapping_mul(FACTOR)
}

#[inline(always)]
fn bit(words: &[u64], at: u64) -> bool {
    usize::try_from(at / 64).ok().and_then(|word| words.get(word)).is_some_and(|word| word >> (at % 64) & 1 == 1)
}

fn set_bit(words: &mut [u64], at: u64) {
    words[(at / 64) as usize] |= 1 << (at % 64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[track_caller]
    fn check(values: &[i64]) {
        check_set(values, &IntSet::new(values.to_vec()));
        check_set(values, &IntSet::from(&Integers::new(values.to_vec())));
    }

    #[track_caller]
    fn check_set(values: &[i64], set: &IntSet) {
        let strings = BytesSet::new(values.iter().map(|value| value.to_string().into_bytes()).collect());
        let expected: BTreeSet<i64> = values.iter().copied().collect();
        let near = values.iter().flat_map(|value| [value.wrapping_sub(1), *value, value.wrapping_add(1)]);
        for value in near.chain([i64::MIN, -1, 0, 1, i64::MAX]) {
            assert_eq!(set.contains(value), expected.contains(&value), "{value}");
            assert_eq!(strings.contains(value.to_string().as_bytes()), expected.contains(&value), "{value}");
            let overlaps = expected.range(value..=value.saturating_add(2)).next().is_some();
            assert_eq!(set.overlaps(value, value.saturating_add(2)), overlaps, "{value}");
        }
    }

    #[test]
    fn few_dense_and_sparse_values_are_found() {
        check(&[]);
        check(&[5, 5, -7]);
        check(&(0..1000).map(|i| i * 3 - 500).collect::<Vec<_>>());
        check(&(0..1000).map(|i: i64| i.wrapping_mul(0x1234_5678_9abc_def1)).collect::<Vec<_>>());
        check(&[i64::MIN, i64::MAX, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        check(&(0..20).map(|i| i64::MAX - i * 200).collect::<Vec<_>>());
        check(&(0..300).map(|i| i * 7 % 640 + 64).collect::<Vec<_>>());
    }

    #[test]
    fn the_form_depends_on_the_density() {
        assert_eq!(IntSet::new(vec![1, 1 << 40]), IntSet::Few(vec![1, 1 << 40]));
        assert!(matches!(IntSet::new((0..100).map(|i| i * 200).collect()), IntSet::Dense { .. }));
        assert!(matches!(IntSet::new((0..100).map(|i| i * 300).collect()), IntSet::Sparse { .. }));
    }

    #[test]
    fn the_first_value_not_below_a_bound_is_found() {
        let set = BytesSet::new([b"b".to_vec(), b"d".to_vec()].into());
        assert_eq!(set.first_not(|value| value < b"c"), Some(b"d".as_slice()));
        assert_eq!(set.first_not(|value| value < b"e"), None);
    }
}
