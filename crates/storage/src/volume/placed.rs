//! On which disks the allocation units of files are, and how much space new ones have.

use super::Volume;
use crate::disk::Stream;
use crate::file::FileData;
use crate::group::rebalance::FileKey;
use crate::meta::SLOTS_PER_AU;
use cellar_format::units::AuIndex;
use std::ops::Range;

/// The disks of a range with up to this many allocation units are looked up for each allocation unit.
const LOOK_UPS_MAX: u64 = 64;
/// A disk is full if it has space for fewer allocation units than this.
const FULL_AUS: u64 = 2;
/// A disk that was full is used again if it has space for this many. More than [`FULL_AUS`], so that new files do not change their disks
/// each time that a little space becomes free.
const FREE_AUS: u64 = 5;

fn is_full(was_full: bool, available: u64, au_bytes: u64) -> bool {
    available < au_bytes * if was_full { FREE_AUS } else { FULL_AUS }
}

impl Volume {
    /// Returns the disks with a range of a file: bit n of disk n.
    pub(super) fn disks_behind(&self, file: &FileData, range: Range<u64>) -> u64 {
        self.disks_of_stream(file, range, Stream::Data)
    }

    /// Returns the disks with the compression units of a range of a file: bit n of disk n.
    pub(super) fn disks_behind_units(&self, file: &FileData, range: Range<u64>) -> u64 {
        self.disks_of_stream(file, range, Stream::Units)
    }

    fn disks_of_stream(&self, file: &FileData, range: Range<u64>, stream: Stream) -> u64 {
        let (placement, layout, all, mut disks) = (self.group.placement(), &file.layout, self.group.present(), 0);
        let slots = if stream == Stream::Units { u64::from(SLOTS_PER_AU) } else { 1 };
        let mut note = |stripe: u16, Range { start, end }: Range<u64>| {
            let key = FileKey { ino: file.ino, stripe, stream };
            placement.each_container(key, start * slots..end * slots, |container| {
                self.group.disks_of(container).into_iter().for_each(|disk| disks |= 1 << disk);
            });
            disks
        };
        let (first, end) = (layout.au_at(range.start), layout.aus(range).end);
        if let [stripe] = layout.disks[..] {
            return note(stripe, layout.au_range(first).start..layout.au_range(end).start);
        }
        // A range may have millions of allocation units: that many look-ups would take long.
        (first.index()..end.index())
            .map(|au| layout.au_range(AuIndex(au)))
            .map(|au| note(layout.disks[layout.disk_index(au.start)], au))
            .find(|disks| disks & all == all)
            .unwrap_or(disks)
    }

    /// Returns how many bytes of a range of a file are on each disk, by disk number; all copies count.
    pub(super) fn bytes_by_disk(&self, file: &FileData, range: &Range<u64>) -> Vec<u64> {
        let (layout, placement, mut sums) = (&file.layout, self.group.placement(), vec![0; self.disks().len()]);
        let mut add = |container: u16, bytes: u64| {
            for disk in self.group.disks_of(container) {
                // A disk may join meanwhile.
                if let Some(sum) = sums.get_mut(disk) {
                    *sum += bytes;
                }
            }
        };
        let key_of = |index: usize| FileKey { ino: file.ino, stripe: layout.disks[index], stream: Stream::Data };
        let aus = layout.aus(range.clone());
        if aus.end.index() - aus.start.index() <= LOOK_UPS_MAX {
            for piece in layout.pieces(range.clone()) {
                placement.each_piece(key_of(piece.disk_index), piece.range, |part, container| {
                    add(container, part.end - part.start);
                });
            }
            return sums;
        }
        for index in 0..layout.disks.len() {
            let (mut parts, mut containers) = (Vec::new(), Vec::new());
            placement.each_piece(key_of(index), range.clone(), |part, container| {
                parts.push(part);
                containers.push(container);
            });
            containers.into_iter().zip(layout.bytes_on(index, parts)).for_each(|(container, own)| add(container, own));
        }
        sums
    }

    /// Lets the group place new files by the last measurement of the disks.
    pub(super) fn note_space(&self) {
        let (was_full, au_bytes) = (self.group.full(), self.options.au_size.bytes());
        let facts = |disk: usize, available: u64| is_full(was_full >> disk & 1 == 1, available, au_bytes);
        let (sizes, full) = self.free_space.facts(facts);
        self.group.note_space(&sizes, full);
    }

    /// Returns by how many bytes files with `copies` copies may grow.
    pub fn usable_bytes(&self, copies: usize) -> u64 {
        let available: Vec<u64> = self.free_space.by_disk().into_iter().map(|space| space.available).collect();
        self.group.usable_bytes(&available, copies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_used_again_when_it_has_space_for_several_allocation_units() {
        let states = |aus: u64| [false, true].map(|was_full| is_full(was_full, aus << 22, 1 << 22));
        assert_eq!([1, 2, 4, 5].map(states), [[true, true], [false, true], [false, true], [false, false]]);
    }
}
