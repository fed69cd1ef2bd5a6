//! Compression by zstd, for string frames, string dictionaries, exceptions, residue groups and the page table.
//!
//! The uncompressed size of each piece is stored in the unit, so decompression does not rely on the content size in the zstd frame.

use super::super::section::{Result, corrupt};
use std::cell::RefCell;

thread_local! {
    // Contexts are reused: creating a context costs more than compressing most pieces.
    static COMPRESSOR: RefCell<zstd::bulk::Compressor<'static>> = RefCell::default();
    static DECOMPRESSOR: RefCell<zstd::bulk::Decompressor<'static>> = RefCell::default();
}

/// Frees this thread's compression contexts, about 20 MB at ARCHIVE HIGH. For long-lived threads that compress rarely.
pub fn release_memory() {
    COMPRESSOR.take();
    DECOMPRESSOR.take();
}

pub fn compress(bytes: &[u8], level: i32) -> Vec<u8> {
    let compressed = COMPRESSOR.with_borrow_mut(|compressor| {
        compressor.set_compression_level(level)?;
        compressor.compress(bytes)
    });
    compressed.expect("compression fails only when memory is exhausted")
}

/// Decompresses to exactly `raw_bytes` bytes; the caller has checked that this size is plausible.
pub fn decompress(bytes: &[u8], raw_bytes: usize, what: &'static str) -> Result<Vec<u8>> {
    match DECOMPRESSOR.with_borrow_mut(|decompressor| decompressor.decompress(bytes, raw_bytes)) {
        Ok(raw) if raw.len() == raw_bytes => Ok(raw),
        Ok(raw) => corrupt(what, 0, format!("{} bytes decompressed instead of {raw_bytes}", raw.len())),
        Err(error) => corrupt(what, 0, error.to_string()),
    }
}
