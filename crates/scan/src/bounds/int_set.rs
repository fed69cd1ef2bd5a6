//! A set of integers with a fast membership test: the constants of `column = ANY (...)`, up to hundreds of thousands.

/// Bits of the bitmap per value, at most, if the bitmap has one bit per integer between the smallest and the largest value.
const DENSE_BITS: u64 = 256;
/// Sets of at most this size are searched one by one.
const FEW: usize = 8;
/// Bits of the bitmap per value, at least, if the bitmap has a bit per hash.
const SPARSE_BITS: usize = 16;

#[derive(Debug, PartialEq, Eq)]
pub struct IntSet {
    /// The values in ascending order, without duplicates.
    values: Vec<i64>,
    bitmap: Bitmap,
}

#[derive(Debug, PartialEq, Eq)]
enum Bitmap {
    /// For few values.
    None,
    /// Bit `i` says whether the set contains `first + i`.
    Dense { first: i64, words: Vec<u64> },
    /// A bit that is 0 says that the set contains no value with this hash. The number of bits is `1 << (64 - shift)`.
    Hashed { shift: u32, words: Vec<u64> },
}

impl IntSet {
    pub fn new(mut values: Vec<i64>) -> Self {
        values.sort_unstable();
        values.dedup();
        let bitmap = Bitmap::new(&values);
        Self { values, bitmap }
    }

    #[inline(always)]
    pub fn contains(&self, value: i64) -> bool {
        match &self.bitmap {
            Bitmap::None => self.values.contains(&value),
            Bitmap::Dense { first, words } => bit(words, value.wrapping_sub(*first) as u64),
            Bitmap::Hashed { shift, words } => {
                bit(words, hash(value) >> shift) && self.values.binary_search(&value).is_ok()
            }
        }
    }

    /// Whether the set contains a value from `min` to `max`.
    pub fn overlaps(&self, min: i64, max: i64) -> bool {
        let first = self.values.partition_point(|value| *value < min);
        self.values.get(first).is_some_and(|value| *value <= max)
    }
}

impl Bitmap {
    fn new(values: &[i64]) -> Self {
        let (Some(&first), Some(&last)) = (values.first(), values.last()) else { return Self::None };
        if values.len() <= FEW {
            return Self::None;
        }
        let span = last.wrapping_sub(first) as u64;
        let dense = span / DENSE_BITS < values.len() as u64;
        let shift = 64 - (values.len() * SPARSE_BITS).next_power_of_two().ilog2();
        let bits = if dense { span + 1 } else { 1 << (64 - shift) };
        let mut words = vec![0; bits.div_ceil(64) as usize];
        for value in values {
            let at = if dense { value.wrapping_sub(first) as u64 } else { hash(*value) >> shift };
            words[(at / 64) as usize] |= 1 << (at % 64);
        }
        if dense { Self::Dense { first, words } } else { Self::Hashed { shift, words } }
    }
}

/// Fibonacci hashing: the upper bits depend on all bits of the value.
fn hash(value: i64) -> u64 {
    (value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline(always)]
fn bit(words: &[u64], at: u64) -> bool {
    usize::try_from(at / 64).ok().and_then(|word| words.get(word)).is_some_and(|word| word >> (at % 64) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[track_caller]
    fn check(values: &[i64]) {
        let set = IntSet::new(values.to_vec());
        let expected: BTreeSet<i64> = values.iter().copied().collect();
        let near = values.iter().flat_map(|value| [value.wrapping_sub(1), *value, value.wrapping_add(1)]);
        for value in near.chain([i64::MIN, -1, 0, 1, i64::MAX]) {
            assert_eq!(set.contains(value), expected.contains(&value), "{value}");
            let overlaps = expected.range(value..value.saturating_add(3)).next().is_some();
            if value < i64::MAX - 3 {
                assert_eq!(set.overlaps(value, value + 2), overlaps, "{value}");
            }
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
    }

    #[test]
    fn the_kind_of_bitmap_depends_on_the_density() {
        assert!(matches!(IntSet::new(vec![1, 1 << 40]).bitmap, Bitmap::None));
        assert!(matches!(IntSet::new((0..100).map(|i| i * 200).collect()).bitmap, Bitmap::Dense { .. }));
        assert!(matches!(IntSet::new((0..100).map(|i| i * 300).collect()).bitmap, Bitmap::Hashed { .. }));
    }
}
