//! Caches of the most recently decoded block or frame of a column. The reader of the column owns the cache.
//!
//! A cache identifies a block by its number and by the number of its chunk. A reader that moves to another unit replaces
//! its caches.

/// The most recently decoded block of a column.
#[derive(Debug, Default)]
pub struct IntBlockCache {
    /// The caller reads scattered rows: decode a few rows without decoding and caching their block.
    pub sparse: bool,
    /// Chunk and block of `values`.
    pub(super) key: Option<(usize, usize)>,
    pub(super) values: Vec<i64>,
    /// Chunk and block of the last read that decoded a few rows.
    pub(super) few: Option<(usize, usize)>,
}

/// The most recently decoded frame, or block of codes, of a column.
#[derive(Debug, Default)]
pub struct StringCache {
    /// The next read is probably the only read of its frame: decode the wanted strings alone.
    pub single_reads: bool,
    /// Chunk and frame of `body`.
    pub(super) key: Option<(usize, usize)>,
    /// Where each string starts in `body`, and where the last one ends.
    pub(super) starts: Vec<u32>,
    pub(super) body: Vec<u8>,
    /// Rows in which a search found its pieces.
    pub(super) found: Vec<u16>,
    pub codes: IntBlockCache,
    pub(super) scratch: Vec<i64>,
}

impl StringCache {
    /// Memory in use, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.body.capacity()
    }
}
