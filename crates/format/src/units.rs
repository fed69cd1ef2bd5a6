//! Block and region sizes, which every crate shares.

/// Bytes in a Postgres block (`BLCKSZ`). Cellar does not support clusters built with another size.
pub const BLOCK_BYTES: usize = 8192;
/// Bytes in a region: the unit of the storage index and of the cell's page cache.
pub const REGION_BYTES: usize = 1 << 20;
/// Postgres blocks in a region.
pub const REGION_BLOCKS: u32 = (REGION_BYTES / BLOCK_BYTES) as u32;
