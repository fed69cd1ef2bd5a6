//! On which disks the allocation units of files are, and how much space new ones have.

use super::Volume;
use crate::disk::Stream;
use crate::file::FileData;
use crate::group::rebalance::FileKey;
use crate::meta::SLOTS_PER_AU;
use cellar_format::units::AuIndex;
use std::ops::Range;

/// Allocation units for which a disk must have space so that new files use the disk.
const FULL_AUS: u64 = 2;

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
        let (placement, layout, mut disks) = (self.group.placement(), &file.layout, 0);
        let slots = if stream == Stream::Units { u64::from(SLOTS_PER_AU) } else { 1 };
        for au in (layout.au_at(range.start).index()..layout.aus(range).end.index()).map(AuIndex) {
            let Range { start, end } = layout.au_range(au);
            let key = FileKey { ino: file.ino, stripe: layout.disks[layout.disk_index(start)], stream };
            placement.each_container(key, start * slots..end * slots, |container| {
                self.group.disks_of(container).into_iter().for_each(|disk| disks |= 1 << disk);
            });
        }
        disks
    }

    /// Lets the group place new files by the last measurement of the disks.
    pub(super) fn note_space(&self) {
        let (sizes, full) = self.free_space.facts(FULL_AUS * self.options.au_size.bytes());
        self.group.note_space(&sizes, full);
    }

    /// Returns by how many bytes files with `copies` copies may grow.
    pub fn usable_bytes(&self, copies: usize) -> u64 {
        let available: Vec<u64> = self.free_space.by_disk().into_iter().map(|space| space.available).collect();
        self.group.usable_bytes(&available, copies)
    }
}
