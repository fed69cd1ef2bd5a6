//! Tags: the first byte of an encoding's directory entry. Layout: `docs/format/compression-unit.md`.

/// Encodings of integers.
pub mod integers {
    pub const CONSTANT: u8 = 0;
    pub const PACKED: u8 = 1;
    pub const PACKED_BY_BLOCK: u8 = 2;
    pub const DELTA: u8 = 3;
    pub const DICTIONARY: u8 = 4;
    pub const RUNS: u8 = 5;
    /// Encodes only the differences of [`DELTA`].
    pub const PATCHED_DICTIONARY: u8 = 6;
}

/// Encodings of strings.
pub mod strings {
    pub const CONSTANT: u8 = 0;
    pub const DICTIONARY: u8 = 1;
    pub const PLAIN: u8 = 2;
    pub const SYMBOLS: u8 = 3;
    pub const ZSTD: u8 = 4;
}
