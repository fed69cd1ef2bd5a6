//! Striping: which disk holds which allocation unit of a file.
//!
//! Allocation unit `a` of a file lies on the disk `disks[(start + a) % disks.len()]`, at the same byte offset as in
//! the file, so a backing file has holes where other disks hold the data.

use crate::error::{Error, ErrorKind, Result};
use std::ops::Range;

/// Size of an allocation unit: a power of two from 1 to 64 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AuSize(u8);

impl AuSize {
    pub const DEFAULT: AuSize = AuSize(22);

    pub fn from_bytes(bytes: u64) -> Result<Self> {
        if bytes.is_power_of_two() {
            return Self::from_shift(bytes.trailing_zeros() as u8);
        }
        Err(Error::new(ErrorKind::Invalid, format!("an allocation unit of {bytes} bytes is no power of two")))
    }

    pub(crate) fn from_shift(shift: u8) -> Result<Self> {
        if !(20..=26).contains(&shift) {
            let message = format!("an allocation unit is 1 to 64 MiB, not 2^{shift} bytes");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(Self(shift))
    }

    pub fn bytes(self) -> u64 {
        1 << self.0
    }

    pub(crate) fn shift(self) -> u8 {
        self.0
    }
}

/// How one file's allocation units are spread; kept with the inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub au_size: AuSize,
    /// Index into `disks` of the disk that holds allocation unit 0.
    pub start: u16,
    /// Disk numbers in the group; never empty.
    pub disks: Vec<u16>,
}

/// A byte range of a file that lies on one disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Index into the layout's `disks`.
    pub slot: usize,
    pub range: Range<u64>,
}

impl Layout {
    /// The slot (index into `disks`) that holds the byte at `offset`.
    pub fn slot(&self, offset: u64) -> usize {
        ((offset >> self.au_size.shift()) + u64::from(self.start)) as usize % self.disks.len()
    }

    /// Cuts a range at allocation-unit boundaries; neighbours on the same disk stay together.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Piece> + '_ {
        let mut next = range.start;
        std::iter::from_fn(move || {
            if next >= range.end {
                return None;
            }
            let start = next;
            let au_end = (start | (self.au_size.bytes() - 1)).saturating_add(1);
            next = if self.disks.len() == 1 { range.end } else { au_end.min(range.end) };
            Some(Piece { slot: self.slot(start), range: start..next })
        })
    }

    /// The length of every slot's backing file when the file is `size` bytes long and nothing is missing: the slot
    /// of the last byte is exactly `size`, the others are at most that.
    pub fn last_slot(&self, size: u64) -> Option<usize> {
        (size > 0).then(|| self.slot(size - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_disks() -> Layout {
        Layout { au_size: AuSize::from_bytes(1 << 20).unwrap(), start: 1, disks: vec![0, 1] }
    }

    #[test]
    fn a_range_is_cut_where_the_disk_changes() {
        let pieces: Vec<_> = two_disks().pieces((1 << 20) - 10..(2 << 20) + 5).collect();
        let expected = [(1, (1 << 20) - 10..1 << 20), (0, 1 << 20..2 << 20), (1, 2 << 20..(2 << 20) + 5)];
        assert_eq!(pieces, expected.map(|(slot, range)| Piece { slot, range }));
    }

    #[test]
    fn a_single_disk_takes_a_range_whole() {
        let layout = Layout { disks: vec![3], start: 0, ..two_disks() };
        assert_eq!(layout.pieces(5..1 << 30).collect::<Vec<_>>(), [Piece { slot: 0, range: 5..1 << 30 }]);
        assert_eq!(layout.pieces(5..5).count(), 0);
    }

    #[test]
    fn allocation_units_are_powers_of_two_within_limits() {
        for bytes in [0, 1 << 19, 3 << 20, 1 << 27] {
            assert_eq!(AuSize::from_bytes(bytes).unwrap_err().kind(), ErrorKind::Invalid, "{bytes}");
        }
        assert_eq!(AuSize::from_bytes(4 << 20).unwrap(), AuSize::DEFAULT);
    }
}
