//! The stripe layout of a file: the mapping from its offsets to cell disks.
//!
//! Allocation unit `a` of a file is stored on the disk at the position `start + a` of the layout's [`StripeOrder`], at the same byte
//! offset as in the file, so a backing file has holes where the bytes are on other disks.

use super::stripe_order::StripeOrder;
use crate::error::{Error, ErrorKind, Result};
use cellar_format::units::AuIndex;
use std::ops::Range;

/// Size of an allocation unit: a power of two from 1 to 64 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AuSize(u8);

impl AuSize {
    pub const DEFAULT: AuSize = AuSize(22);

    pub fn from_bytes(bytes: u64) -> Result<Self> {
        if bytes.is_power_of_two()
            && let Ok(size) = Self::from_shift(bytes.trailing_zeros() as u8)
        {
            return Ok(size);
        }
        let found = match bytes % (1 << 20) {
            0 => format!("{} MiB", bytes >> 20),
            _ => format!("{bytes} bytes"),
        };
        Err(Error::new(
            ErrorKind::Invalid,
            format!("{found} is not an allocation unit size: 1, 2, 4, 8, 16, 32 or 64 MiB"),
        ))
    }

    pub(crate) fn from_shift(shift: u8) -> Result<Self> {
        if !(20..=26).contains(&shift) {
            let message = format!("allocation unit size of 2^{shift} bytes is not between 1 MiB and 64 MiB");
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

/// The disks of one file, in striping order; part of the inode record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripeLayout {
    pub au_size: AuSize,
    /// Position of allocation unit 0 in the order.
    pub start: u16,
    /// Disk numbers in the group, each once; never empty.
    pub disks: Vec<u16>,
    pub order: StripeOrder,
}

/// A byte range of a file that is stored on one disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Index into the layout's `disks`.
    pub disk_index: usize,
    pub range: Range<u64>,
}

impl StripeLayout {
    /// Returns the index into `disks` of the disk with the byte at `offset`.
    pub fn disk_index(&self, offset: u64) -> usize {
        self.order.index_at((offset >> self.au_size.shift()) + u64::from(self.start), self.disks.len())
    }

    /// Returns the allocation units on the disk with an index into `disks`, ascending and without end.
    pub fn aus_of(&self, disk_index: usize) -> impl Iterator<Item = AuIndex> + use<> {
        let (period, own) = (self.order.period(self.disks.len()) as u64, self.first_aus_of(disk_index));
        (0..).step_by(period as usize).flat_map(move |turn| own.clone().into_iter().map(move |au| AuIndex(turn + au)))
    }

    /// Returns how many bytes of each range are on the disk with an index into `disks`.
    pub fn bytes_on<'a>(
        &'a self,
        disk_index: usize,
        ranges: impl IntoIterator<Item = Range<u64>> + 'a,
    ) -> impl Iterator<Item = u64> + 'a {
        let (period, own) = (self.order.period(self.disks.len()) as u64, self.first_aus_of(disk_index));
        let bytes_before = move |offset: u64| {
            let au = self.au_at(offset).index();
            let whole = au / period * own.len() as u64 + own.partition_point(|own| *own < au % period) as u64;
            let part = if self.disk_index(offset) == disk_index { offset - (au << self.au_size.shift()) } else { 0 };
            (whole << self.au_size.shift()) + part
        };
        ranges.into_iter().map(move |range| bytes_before(range.end) - bytes_before(range.start))
    }

    /// Returns the allocation units on a disk before the order repeats, ascending.
    fn first_aus_of(&self, disk_index: usize) -> Vec<u64> {
        let period = self.order.period(self.disks.len()) as u64;
        let is_own = |au: &u64| self.disk_index(au << self.au_size.shift()) == disk_index;
        (0..period).filter(is_own).collect()
    }

    /// Returns the allocation unit that contains the byte at `offset`.
    pub fn au_at(&self, offset: u64) -> AuIndex {
        AuIndex(offset >> self.au_size.shift())
    }

    /// Returns the allocation units that a byte range touches.
    pub fn aus(&self, range: Range<u64>) -> Range<AuIndex> {
        self.au_at(range.start)..AuIndex(range.end.div_ceil(self.au_size.bytes()))
    }

    /// Returns the byte range of an allocation unit.
    pub fn au_range(&self, au: AuIndex) -> Range<u64> {
        let start = au.index() * self.au_size.bytes();
        start..start + self.au_size.bytes()
    }

    /// Splits a range at allocation-unit boundaries where the disk changes.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Piece> + '_ {
        let mut next = range.start;
        std::iter::from_fn(move || {
            if next >= range.end {
                return None;
            }
            let start = next;
            let au_end = (start | (self.au_size.bytes() - 1)).saturating_add(1);
            next = if self.disks.len() == 1 { range.end } else { au_end.min(range.end) };
            Some(Piece { disk_index: self.disk_index(start), range: start..next })
        })
    }

    /// Returns the index into `disks` of the disk with the last byte of a file of `size` bytes; None if the file is
    /// empty. The backing file there is exactly `size` bytes long, the others at most.
    pub fn last_disk_index(&self, size: u64) -> Option<usize> {
        (size > 0).then(|| self.disk_index(size - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_disks() -> StripeLayout {
        StripeLayout {
            au_size: AuSize::from_bytes(1 << 20).unwrap(),
            start: 1,
            disks: vec![0, 1],
            order: StripeOrder::Equal,
        }
    }

    #[test]
    fn a_range_is_split_where_the_disk_changes() {
        let pieces: Vec<_> = two_disks().pieces((1 << 20) - 10..(2 << 20) + 5).collect();
        let expected = [(1, (1 << 20) - 10..1 << 20), (0, 1 << 20..2 << 20), (1, 2 << 20..(2 << 20) + 5)];
        assert_eq!(pieces, expected.map(|(disk_index, range)| Piece { disk_index, range }));
    }

    #[test]
    fn the_allocation_units_of_a_disk_are_those_of_its_positions() {
        let order = StripeOrder::of(&[3, 2]).unwrap();
        for layout in [two_disks(), StripeLayout { start: 4, order, ..two_disks() }] {
            for index in 0..2 {
                let of_disk = |au: &AuIndex| layout.disk_index(layout.au_range(*au).start) == index;
                let expected: Vec<AuIndex> = (0..20).map(AuIndex).filter(of_disk).collect();
                let found = layout.aus_of(index).take_while(|au| au.index() < 20);
                assert_eq!(found.collect::<Vec<_>>(), expected);
            }
        }
    }

    #[test]
    fn the_bytes_of_a_range_are_counted_on_each_disk() {
        let order = StripeOrder::of(&[3, 2]).unwrap();
        for layout in [two_disks(), StripeLayout { start: 4, order, ..two_disks() }] {
            let mib = 1 << 20;
            let ranges = [0..0, 5..7, 0..mib, mib - 1..mib + 1, 3 * mib + 17..19 * mib - 5, 4 * mib..14 * mib];
            for index in 0..2 {
                let pieces = |range: &Range<u64>| -> u64 {
                    let own = layout.pieces(range.clone()).filter(|piece| piece.disk_index == index);
                    own.map(|piece| piece.range.end - piece.range.start).sum()
                };
                let found: Vec<u64> = layout.bytes_on(index, ranges.clone()).collect();
                assert_eq!(found, ranges.iter().map(pieces).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn on_a_single_disk_a_range_is_one_piece() {
        let layout = StripeLayout { disks: vec![3], start: 0, ..two_disks() };
        assert_eq!(layout.pieces(5..1 << 30).collect::<Vec<_>>(), [Piece { disk_index: 0, range: 5..1 << 30 }]);
        assert_eq!(layout.pieces(5..5).count(), 0);
    }

    #[test]
    fn allocation_unit_sizes_are_powers_of_two_within_limits() {
        for bytes in [0, 1 << 19, 3 << 20, 1 << 27] {
            assert_eq!(AuSize::from_bytes(bytes).unwrap_err().kind(), ErrorKind::Invalid, "{bytes}");
        }
        assert_eq!(AuSize::from_bytes(4 << 20).unwrap(), AuSize::DEFAULT);
    }
}
