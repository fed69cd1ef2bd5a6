//! Block and region sizes, which every crate shares.

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
