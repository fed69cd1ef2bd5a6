//! Sizes of blocks and regions, and types for the indexes and versions that are easy to confuse.

use std::ops::Range;

/// Bytes in a Postgres block (`BLCKSZ`). Cellar does not support clusters built with another size.
pub const BLOCK_BYTES: usize = 8192;
/// Bytes in a region: the unit of the storage index and of the cell's page cache.
pub const REGION_BYTES: usize = 1 << 20;
/// Postgres blocks in a region.
pub const REGION_BLOCKS: u32 = (REGION_BYTES / BLOCK_BYTES) as u32;

/// Index of an allocation unit in its file. The allocation unit with index `n` starts at byte `n` times the file's
/// allocation-unit size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuIndex(pub u64);

impl AuIndex {
    pub fn index(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for AuIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Index of a region in its file or compression unit. The region with index `n` starts at byte `n` times
/// [`REGION_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionIndex(pub u32);

impl RegionIndex {
    /// The end of the largest range of regions.
    pub const MAX: Self = Self(u32::MAX);

    /// Returns the region that contains the byte at `offset`, which must be below the maximum file size.
    pub fn containing(offset: u64) -> Self {
        Self((offset / REGION_BYTES as u64) as u32)
    }

    /// Returns the offset of the region's first byte.
    pub fn start(self) -> u64 {
        u64::from(self.0) * REGION_BYTES as u64
    }

    /// Returns the region after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns an iterator over `regions`.
    pub fn iter(regions: Range<Self>) -> impl Iterator<Item = Self> {
        (regions.start.0..regions.end.0).map(Self)
    }
}

impl std::fmt::Display for RegionIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Version of a region's bytes. A region's version changes before any change of the region becomes visible. No version
/// is reused while the process lives. The version of an allocation unit is the highest version of its regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionVersion(pub u64);

impl RegionVersion {
    /// The lowest version. No region of a file has this version; every region of a compression unit has it, because a
    /// unit's bytes never change.
    pub const NONE: Self = Self(0);
}

impl std::fmt::Display for RegionVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a page in its allocation unit. A range of such numbers is a `Range<u32>`, which can be iterated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageInAu(pub u32);

impl std::fmt::Display for PageInAu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
