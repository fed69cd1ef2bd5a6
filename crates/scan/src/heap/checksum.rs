//! The checksum of a data page, as `storage/checksum_impl.h` computes it: 32 interleaved FNV-1a-like sums.

use super::page::u32_at;
use cellar_format::units::BLOCK_BYTES;

const SUMS: usize = 32;
const PRIME: u32 = 16_777_619;
const BASE_OFFSETS: [u32; SUMS] = [
    0x5B1F36E9, 0xB8525960, 0x02AB50AA, 0x1DE66D2A, 0x79FF467A, 0x9BB9F8A3, 0x217E7CD2, 0x83E13D2C, 0xF8D4474F,
    0xE39EB970, 0x42C6AE16, 0x993216FA, 0x7B093B5D, 0x98DAFF3C, 0xF718902A, 0x0B1C9CDB, 0xE58F764B, 0x187636BC,
    0x5D7B3BB1, 0xE73DE7DE, 0x92BEC979, 0xCCA6C0B2, 0x304A0979, 0x85AA43D4, 0x783125BB, 0x6CA8EAA2, 0xE407EAC6,
    0x4B5CFC3E, 0x9FBF8C76, 0x15CA20BE, 0xF2CA9FD3, 0x959BD756,
];

fn mix(sum: u32, value: u32) -> u32 {
    let mixed = sum ^ value;
    mixed.wrapping_mul(PRIME) ^ (mixed >> 17)
}

/// The correct value of `pd_checksum` for this page at this block number.
pub fn page_checksum(page: &[u8; BLOCK_BYTES], block: u32) -> u16 {
    let mut sums = BASE_OFFSETS;
    for (row, bytes) in page.chunks_exact(SUMS * 4).enumerate() {
        let mut values = [0u32; SUMS];
        for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(4)) {
            *value = u32_at(bytes, 0);
        }
        if row == 0 {
            // pd_checksum, bytes 8 and 9, is summed as zero.
            values[2] &= 0xffff_0000;
        }
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum = mix(*sum, value);
        }
    }
    for _ in 0..2 {
        sums.iter_mut().for_each(|sum| *sum = mix(*sum, 0));
    }
    let folded = sums.iter().fold(0, |all, sum| all ^ sum) ^ block;
    (folded % 65535 + 1) as u16
}
