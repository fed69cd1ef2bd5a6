//! Variable-length values: their headers, and the payloads of inline values.
//!
//! Source: `include/varatt.h` (`postgres.h` before 16), `access/common/detoast.c`, `toast_compression.c`.

use super::page::u32_at;
use super::pglz;
use std::borrow::Cow;

/// Bytes of an external TOAST pointer: header, tag, `varatt_external`.
const EXTERNAL_BYTES: usize = 18;
const VARTAG_ONDISK: u8 = 18;
/// Maximum bytes of a decompressed value: a compressed value fits in a page, and lz4 compresses by at most a factor of 255.
const RAW_BYTES_MAX: usize = 4 << 20;

/// The length of the datum at `at`, header included; `at` is already aligned. None: no datum within `bytes[..end]`
/// starts there.
#[inline(always)]
pub fn datum_bytes(bytes: &[u8], at: usize, end: usize) -> Option<usize> {
    let first = *bytes.get(at)?;
    let length = if first & 1 == 1 {
        if first == 1 {
            if bytes.get(at + 1) != Some(&VARTAG_ONDISK) {
                return None;
            }
            EXTERNAL_BYTES
        } else {
            (first >> 1) as usize
        }
    } else {
        let word = bytes.get(at..at + 4)?;
        let length = (u32_at(word, 0) >> 2) as usize;
        if length < 4 {
            return None;
        }
        length
    };
    (at < end && length <= end - at).then_some(length)
}

/// The payload of an inline, uncompressed datum; None for other datums.
#[inline(always)]
pub fn plain_payload(datum: &[u8]) -> Option<&[u8]> {
    match *datum.first()? {
        0x01 => None,
        first if first & 1 == 1 => datum.get(1..(first >> 1) as usize),
        first if first & 3 == 0 => datum.get(4..(u32_at(datum.get(..4)?, 0) >> 2) as usize),
        _ => None,
    }
}

/// The payload of a datum, decompressed if necessary. None: the value is stored out of line or malformed.
pub fn payload(datum: &[u8]) -> Option<Cow<'_, [u8]>> {
    if let Some(payload) = plain_payload(datum) {
        return Some(Cow::Borrowed(payload));
    }
    let first = *datum.first()?;
    if first & 3 != 2 || datum.len() < 8 {
        return None;
    }
    let (length, info) = ((u32_at(datum, 0) >> 2) as usize, u32_at(datum, 4));
    let (raw_bytes, method) = ((info & 0x3fff_ffff) as usize, info >> 30);
    let compressed = datum.get(8..length)?;
    if raw_bytes > RAW_BYTES_MAX {
        return None;
    }
    match method {
        0 => pglz::decompress(compressed, raw_bytes).map(Cow::Owned),
        1 => {
            let mut raw = vec![0; raw_bytes];
            let written = lz4_flex::block::decompress_into(compressed, &mut raw).ok()?;
            (written == raw_bytes).then_some(Cow::Owned(raw))
        }
        _ => None,
    }
}
