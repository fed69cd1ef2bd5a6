//! Resolves a relation's file name to the disk objects of its segments.
//!
//! Requests name a relation by the path of its first segment; later segments have the suffixes `.1`, `.2`, …. A session
//! resolves the name with [`Segments`] and passes disk objects and block ranges to Smart Scan and compression, which
//! use no file names. Segments are resolved when a range is split, not when a request arrives, so a scan finds segments
//! that were added after the request. Each resolution checks the peer's permissions.

use std::ops::Range;
use std::sync::Arc;

use cellar_format::units::{AuIndex, BLOCK_BYTES, REGION_BLOCKS};
use cellar_format::wire::{BlockRange, Relation};
use cellar_storage::{Ino, Result, Volume};

use crate::access::{Credentials, Permission};

/// A stored file, identified independently of its name. Inode numbers are not reused while the daemon runs.
pub type DiskObject = Ino;

/// Finds the segments of one relation.
#[derive(Clone)]
pub struct Segments {
    volume: Arc<Volume>,
    file: String,
    /// Blocks of a full segment (`RELSEG_SIZE`).
    segment_blocks: u32,
    peer: Arc<Credentials>,
    permission: Permission,
}

/// The disk object of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentObject {
    pub object: DiskObject,
    /// Blocks of an allocation unit of the object.
    pub au_blocks: u32,
    /// Maximum blocks of the object (`RELSEG_SIZE`).
    pub blocks_max: u32,
}

/// Consecutive blocks of one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentRange {
    /// None if the cell does not store the segment.
    pub segment: Option<SegmentObject>,
    /// Block number in the relation of the segment's first block.
    pub base: u32,
    /// Block numbers within the segment.
    pub blocks: Range<u32>,
}

/// An allocation unit of a relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelationAu {
    pub object: DiskObject,
    pub au: AuIndex,
    /// Block numbers in the relation of the unit's blocks.
    pub blocks: Range<u32>,
}

impl Segments {
    /// `permission` is the permission that the request of the peer needs on each segment.
    pub fn new(volume: Arc<Volume>, relation: &Relation, peer: Arc<Credentials>, permission: Permission) -> Self {
        let Relation { file, segment_blocks, .. } = relation;
        Self { volume, file: file.clone(), segment_blocks: *segment_blocks, peer, permission }
    }

    /// Returns the path of the relation's first segment, for log lines.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the blocks of the allocation unit that contains a block; those of a region if the block's segment is
    /// missing.
    pub fn au_blocks(&self, block: u32) -> u32 {
        let segment = self.segment(block / self.segment_blocks);
        segment.ok().flatten().map_or(REGION_BLOCKS, |segment| segment.au_blocks)
    }

    /// Splits a range of the relation's blocks at segment boundaries and resolves each segment.
    pub fn split(&self, range: BlockRange) -> impl Iterator<Item = Result<SegmentRange>> + '_ {
        let mut next = range.first;
        std::iter::from_fn(move || {
            if next >= range.end {
                return None;
            }
            let base = next - next % self.segment_blocks;
            let end = base.saturating_add(self.segment_blocks).min(range.end);
            let blocks = next - base..end - base;
            next = end;
            let segment = self.segment(base / self.segment_blocks);
            Some(segment.map(|segment| SegmentRange { segment, base, blocks }))
        })
    }

    /// Returns the allocation units that contain a range of blocks, in block order. Missing segments have none.
    pub fn allocation_units(&self, range: BlockRange) -> Result<Vec<RelationAu>> {
        let mut units = Vec::new();
        for part in self.split(range) {
            let SegmentRange { segment, base, blocks } = part?;
            let Some(SegmentObject { object, au_blocks, blocks_max }) = segment else { continue };
            let size = ((self.volume.size(object)? / BLOCK_BYTES as u64) as u32).min(blocks_max);
            let first = blocks.start / au_blocks * au_blocks;
            let end = size.min(blocks.end);
            units.extend((first..end).step_by(au_blocks as usize).map(|block| RelationAu {
                object,
                au: AuIndex(u64::from(block / au_blocks)),
                blocks: base + block..base + (block + au_blocks).min(size),
            }));
        }
        Ok(units)
    }

    /// Returns the disk object of a segment; None if the cell does not store the segment.
    fn segment(&self, number: u32) -> Result<Option<SegmentObject>> {
        let resolve = |path: &str| self.peer.resolve(&self.volume, path, self.permission);
        let object = match number {
            0 => resolve(&self.file)?,
            _ => resolve(&format!("{}.{number}", self.file))?,
        };
        let Some(object) = object else { return Ok(None) };
        let au_blocks = (self.volume.au_bytes(object)? / BLOCK_BYTES as u64) as u32;
        Ok(Some(SegmentObject { object, au_blocks, blocks_max: self.segment_blocks }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn ranges_are_split_at_segments_and_missing_segments_have_no_object() {
        let folder = tempfile::tempdir().unwrap();
        let volume = fixtures::volume(folder.path(), 1 << 20);
        let objects = ["1", "1.2"].map(|name| fixtures::create(&volume, name));
        volume.write(objects[1], 0, &vec![1; 130 * BLOCK_BYTES]).unwrap();
        let relation = Relation { segment_blocks: 256, ..fixtures::relation("1") };
        let segments = Segments::new(volume.clone(), &relation, Credentials::root(), Permission::Read);

        let split = |first, end| -> Vec<_> {
            let parts = segments.split(BlockRange { first, end });
            parts
                .map(|part| part.map(|part| (part.segment.map(|it| it.object), part.base, part.blocks)).unwrap())
                .collect()
        };
        assert_eq!(split(7, 7), []);
        assert_eq!(
            split(200, 600),
            [(Some(objects[0]), 0, 200..256), (None, 256, 0..256), (Some(objects[1]), 512, 0..88)]
        );
        assert_eq!(split(u32::MAX - 5, u32::MAX), [(None, u32::MAX - 255, 250..255)]);

        let units = segments.allocation_units(BlockRange { first: 200, end: 2000 }).unwrap();
        let au = |au, blocks| RelationAu { object: objects[1], au: AuIndex(au), blocks };
        assert_eq!(units, [au(0, 512..640), au(1, 640..642)]);
        assert_eq!(segments.allocation_units(BlockRange { first: 641, end: 642 }).unwrap(), [au(1, 640..642)]);
        volume.close().unwrap();
    }
}
