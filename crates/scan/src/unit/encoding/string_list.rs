//! A list of byte strings in one allocation, and fast comparison of short strings.

/// Strings up to this length are copied with this constant length, which is faster than a copy of the exact length. A dictionary
/// has as many zero bytes after its last entry.
pub const COPY_BYTES: usize = 32;

/// Upper bound of a chunk's or a dictionary's strings in bytes: they come from at most 64 MiB of pages.
pub const STRINGS_BYTES_MAX: usize = 1 << 27;

/// Byte strings, one after another.
#[derive(Debug, Default, Clone)]
pub struct Strings {
    pub bytes: Vec<u8>,
    /// Where each string ends in `bytes`.
    pub ends: Vec<u32>,
}

impl Strings {
    /// Returns the allocated memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * 4
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len() as u32);
    }

    #[inline]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let (start, end) = self.span(index)?;
        self.bytes.get(start..end)
    }

    /// Start and end of a string in `bytes`. None if there is no such string, or if the string ends before its start in a damaged
    /// unit.
    #[inline(always)]
    pub fn span(&self, index: usize) -> Option<(usize, usize)> {
        let start = if index == 0 { 0 } else { *self.ends.get(index - 1)? as usize };
        let end = *self.ends.get(index)? as usize;
        (start <= end).then_some((start, end))
    }

    /// Appends the entry of each code. On a code without an entry, returns the code.
    pub fn push_entries(&mut self, entries: &Strings, codes: &[i64]) -> Result<(), i64> {
        let mut end = self.bytes.len();
        for (index, code) in codes.iter().enumerate() {
            let Some((start, stop)) = entries.span(*code as usize) else { return Err(*code) };
            let count = stop - start;
            if self.bytes.len() < end + count + COPY_BYTES {
                // Reserves memory for the remaining entries, assuming their lengths are similar.
                self.bytes.resize(end + count * (codes.len() - index) + COPY_BYTES, 0);
            }
            match entries.bytes.get(start..start + COPY_BYTES) {
                Some(wide) if count <= COPY_BYTES => self.bytes[end..end + COPY_BYTES].copy_from_slice(wide),
                _ => self.bytes[end..end + count].copy_from_slice(entries.bytes.get(start..stop).unwrap_or_default()),
            }
            end += count;
            self.ends.push(end as u32);
        }
        self.bytes.truncate(end);
        Ok(())
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index).unwrap_or_default())
    }
}

/// As `==`, without a call of `memcmp`, which costs more than the comparison of short strings.
#[inline(always)]
pub fn is_equal(left: &[u8], right: &[u8]) -> bool {
    let ((left_words, left_rest), (right_words, right_rest)) = (left.as_chunks::<8>(), right.as_chunks::<8>());
    left.len() == right.len()
        && left_words.iter().zip(right_words).all(|(left, right)| left == right)
        && first_bytes(left_rest) == first_bytes(right_rest)
}

/// The first eight bytes, padded with zeros, as a big-endian number: numbers order as the bytes do.
#[inline(always)]
pub fn first_bytes(bytes: &[u8]) -> u64 {
    let short = |at: usize, byte: u8| u64::from(byte) << (56 - 8 * at);
    if let Some(whole) = bytes.first_chunk() {
        return u64::from_be_bytes(*whole);
    }
    // Overlapping loads of a constant length are faster than one copy of a variable length.
    match (bytes.first_chunk(), bytes.last_chunk(), bytes) {
        (Some(first), Some(last), _) => {
            u64::from(u32::from_be_bytes(*first)) << 32 | u64::from(u32::from_be_bytes(*last)) << (64 - 8 * bytes.len())
        }
        (_, _, [first, .., last]) => {
            let middle = bytes.len() / 2;
            short(0, *first) | short(middle, bytes[middle]) | short(bytes.len() - 1, *last)
        }
        (_, _, [only]) => short(0, *only),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_order_as_strings_do_and_only_equal_strings_are_equal() {
        let text = b"abcdefghijklmnopqrs";
        let strings: Vec<&[u8]> = (0..text.len()).flat_map(|end| [&text[..end], &text[end / 3..end]]).collect();
        for left in &strings {
            let mut padded = left.to_vec();
            padded.resize(left.len().max(8), 0);
            assert_eq!(first_bytes(left).to_be_bytes(), padded[..8]);
            assert!(strings.iter().all(|right| is_equal(left, right) == (left == right)));
            let mut other = left.to_vec();
            (0..left.len()).for_each(|at| {
                other[at] ^= 1;
                assert!(!is_equal(left, &other));
                other[at] ^= 1;
            });
        }
    }
}
