//! The first bytes of a string, as a minimum or maximum of strings.
//!
//! Invariant: a comparison returns true only if it holds for every string that starts with the prefix.

use cellar_format::bytes::{Corrupt, Reader, Write};
use std::cmp::Ordering;

/// Maximum bytes of a prefix.
const PREFIX_BYTES: usize = 16;

/// The first bytes of a byte string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    bytes: [u8; PREFIX_BYTES],
    length: u8,
    /// The string is longer than the prefix.
    cut: bool,
}

impl Prefix {
    pub fn new(string: &[u8]) -> Self {
        let length = string.len().min(PREFIX_BYTES);
        let mut bytes = [0; PREFIX_BYTES];
        bytes[..length].copy_from_slice(&string[..length]);
        Self { bytes, length: length as u8, cut: string.len() > PREFIX_BYTES }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.length);
        out.put_bool(self.cut);
        out.put_bytes(self.bytes());
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let at = reader.position();
        let (length, cut) = (usize::from(reader.u8("length of a prefix")?), reader.bool("end of a prefix")?);
        if length > PREFIX_BYTES || cut && length < PREFIX_BYTES {
            return Err(Corrupt::new("length of a prefix", at, length.to_string()));
        }
        Ok(Self { cut, ..Self::new(reader.take(length, "prefix")?) })
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length as usize]
    }

    /// Whether every string with this prefix is less than `other`.
    pub fn is_below(&self, other: &[u8]) -> bool {
        match self.cut {
            true => self.bytes() < &other[..other.len().min(PREFIX_BYTES)],
            false => self.bytes() < other,
        }
    }

    /// Whether every string with this prefix is greater than `other`.
    pub fn is_above(&self, other: &[u8]) -> bool {
        self.bytes() > other || self.cut && self.bytes() == other
    }

    /// Whether every string with this prefix is greater than `other` and than every string that starts with `other`.
    pub fn is_above_all_with(&self, other: &[u8]) -> bool {
        self.bytes() > other && !self.bytes().starts_with(other)
    }

    /// The lesser of two minimums.
    pub fn lower(self, other: Self) -> Self {
        match self.bytes().cmp(other.bytes()) {
            Ordering::Less => self,
            Ordering::Greater => other,
            // A string is less than every longer string that starts with it.
            Ordering::Equal if self.cut => other,
            Ordering::Equal => self,
        }
    }

    /// The greater of two maximums.
    pub fn upper(self, other: Self) -> Self {
        match self.bytes().cmp(other.bytes()) {
            Ordering::Less => other,
            Ordering::Greater => self,
            Ordering::Equal if self.cut => self,
            Ordering::Equal => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_prefix_does_not_decide_about_longer_strings() {
        let long = Prefix::new(b"abcdefghijklmnopqrstuvwxyz");
        assert!(!long.is_below(b"abcdefghijklmnopzzz"));
        assert!(!long.is_above(b"abcdefghijklmnopaaa"));
        assert!(long.is_below(b"abcdefghijklmnoq"));
        assert!(long.is_above(b"abcdefghijklmnop"));
        assert!(long.is_above(b"abcdefghijklmno"));
        let short = Prefix::new(b"abc");
        assert!(short.is_below(b"abca") && !short.is_below(b"abc") && !short.is_above(b"abc"));
    }
}
