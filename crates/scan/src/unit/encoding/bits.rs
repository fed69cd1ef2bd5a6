//! Bit packing of one block: up to 1024 unsigned numbers of the same width.
//!
//! A whole block is in the transposed order of FastLanes, with lanes of 8, 16, 32 or 64 bits, the narrowest that fit the
//! width. A shorter block, the last one of a chunk, is a plain stream of bits, lowest first. Both orders are part of the
//! format. Source: Afroozeh, Boncz, *The FastLanes Compression Layout*, VLDB 2023.

use crate::vectors::vectorized;
use cellar_format::bytes::Corrupt;

/// Rows of a block: the values that are packed, and verified, together.
pub const BLOCK_ROWS: usize = 1024;

/// The number of bits of `value`.
pub fn width_of(value: u64) -> u8 {
    (u64::BITS - value.leading_zeros()) as u8
}

/// Size in bytes of a packed block of `count` numbers.
pub fn packed_bytes(count: usize, width: u8) -> usize {
    (count * width as usize).div_ceil(8)
}

/// FastLanes' order of the rows of a lane, in groups of eight rows and within a group.
const ORDER: [usize; 8] = [0, 4, 2, 6, 1, 5, 3, 7];

macro_rules! lanes {
    ($module:ident, $lane:ty, [$($width:literal)*]) => {
        mod $module {
            use super::{BLOCK_ROWS, OffsetRange, ORDER, vectorized};
            use fastlanes::BitPacking;

            const BITS: usize = <$lane>::BITS as usize;
            const BYTES: usize = size_of::<$lane>();
            const LANES: usize = BLOCK_ROWS / BITS;

            pub fn pack(values: &[u64], width: u8, out: &mut Vec<u8>) {
                let mut input = [0 as $lane; BLOCK_ROWS];
                for (slot, value) in input.iter_mut().zip(values) {
                    *slot = *value as $lane;
                }
                match width {
                    $($width => {
                        let mut packed = [0 as $lane; BLOCK_ROWS * $width / BITS];
                        <$lane>::pack::<$width, { BLOCK_ROWS * $width / BITS }>(&input, &mut packed);
                        out.extend_from_slice(bytemuck::cast_slice(&packed));
                    })*
                    _ => {}
                }
            }

            /// One number of each lane: the numbers of a row of all lanes.
            #[inline(always)]
            fn row_of_lanes(bytes: &[u8], width: usize, row: usize) -> [$lane; LANES] {
                let mask = <$lane>::MAX >> (BITS - width);
                let words = bytes.as_chunks::<BYTES>().0.as_chunks::<LANES>().0;
                let (word, shift) = (row * width / BITS, row * width % BITS);
                let mut numbers = [0; LANES];
                for (number, low) in numbers.iter_mut().zip(&words[word]) {
                    *number = <$lane>::from_le_bytes(*low) >> shift;
                }
                if shift + width > BITS {
                    for (number, high) in numbers.iter_mut().zip(&words[word + 1]) {
                        *number |= <$lane>::from_le_bytes(*high) << (BITS - shift);
                    }
                }
                numbers.iter_mut().for_each(|number| *number &= mask);
                numbers
            }

            /// Calls `visit` for each row of all lanes, with the position of the row's first number in the block.
            #[inline(always)]
            fn for_each_row(bytes: &[u8], width: u8, mut visit: impl FnMut(usize, &[$lane; LANES])) {
                for row in 0..BITS {
                    let numbers = row_of_lanes(bytes, width as usize, row);
                    visit(ORDER[row / 8] * 16 + row % 8 * 128, &numbers);
                }
            }

            /// The row of lanes that contains the number at a position. `ORDER` is its own inverse.
            #[inline(always)]
            fn row_of(at: usize) -> usize {
                ORDER[at % 128 / LANES * (LANES / 16)] * 8 + at / 128
            }

            vectorized! {
                pub fn unpack(bytes: &[u8], width: u8, base: i64, out: &mut [i64; BLOCK_ROWS]) {
                    for_each_row(bytes, width, |at, numbers| {
                        for (slot, number) in out[at..at + LANES].iter_mut().zip(numbers) {
                            *slot = base.wrapping_add(*number as i64);
                        }
                    });
                }

                /// Fills `out` with the numbers from position `from` on.
                pub fn unpack_run(bytes: &[u8], width: u8, base: i64, from: usize, out: &mut [i64]) {
                    let mut at = from;
                    let mut out = out;
                    while !out.is_empty() {
                        let lane = at % LANES;
                        let numbers = row_of_lanes(bytes, width as usize, row_of(at));
                        let numbers = numbers.map(|number| base.wrapping_add(number as i64));
                        let (now, later) = out.split_at_mut(out.len().min(LANES - lane));
                        now.copy_from_slice(&numbers[lane..lane + now.len()]);
                        at += now.len();
                        out = later;
                    }
                }

                pub fn sum(bytes: &[u8], width: u8) -> u64 {
                    // A lane can sum its own numbers if the sum of one number from each row fits the lane.
                    if width as u32 + BITS.ilog2() <= <$lane>::BITS {
                        let mut sums = [0 as $lane; LANES];
                        for_each_row(bytes, width, |_, numbers| {
                            sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += *number);
                        });
                        return sums.iter().map(|sum| *sum as u64).sum();
                    }
                    let mut sums = [0; LANES];
                    for_each_row(bytes, width, |_, numbers| {
                        sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += *number as u64);
                    });
                    sums.iter().sum()
                }

                pub fn retain(bytes: &[u8], width: u8, offsets: OffsetRange, marks: &mut [u8; BLOCK_ROWS]) {
                    let (first, span) = (offsets.first as $lane, offsets.span as $lane);
                    let outside = u8::from(!offsets.inside);
                    for_each_row(bytes, width, |at, numbers| {
                        for (mark, number) in marks[at..at + LANES].iter_mut().zip(numbers) {
                            *mark &= u8::from(number.wrapping_sub(first) <= span) ^ outside;
                        }
                    });
                }
            }

            /// The number at one position.
            #[inline(always)]
            pub fn number(bytes: &[u8], width: u8, at: usize) -> u64 {
                let (width, mask) = (width as usize, <$lane>::MAX >> (BITS - width as usize));
                let (row, lane) = (row_of(at), at % LANES);
                let (word, shift) = (row * width / BITS, row * width % BITS);
                let words = bytes.as_chunks::<BYTES>().0;
                let mut number = <$lane>::from_le_bytes(words[word * LANES + lane]) >> shift;
                if shift + width > BITS {
                    number |= <$lane>::from_le_bytes(words[(word + 1) * LANES + lane]) << (BITS - shift);
                }
                (number & mask) as u64
            }
        }
    };
}

lanes!(lanes8, u8, [1 2 3 4 5 6 7 8]);
lanes!(lanes16, u16, [9 10 11 12 13 14 15 16]);
lanes!(lanes32, u32, [17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32]);
lanes!(lanes64, u64, [
    33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64
]);

/// Appends a packed block. No value has more than `width` bits.
pub fn pack(values: &[u64], width: u8, out: &mut Vec<u8>) {
    debug_assert!(values.len() <= BLOCK_ROWS && values.iter().all(|value| width_of(*value) <= width));
    match (values.len(), width) {
        (_, 0) => {}
        (BLOCK_ROWS, 1..=8) => lanes8::pack(values, width, out),
        (BLOCK_ROWS, 9..=16) => lanes16::pack(values, width, out),
        (BLOCK_ROWS, 17..=32) => lanes32::pack(values, width, out),
        (BLOCK_ROWS, _) => lanes64::pack(values, width, out),
        _ => {
            let (mut pending, mut bits) = (0u128, 0u32);
            for value in values {
                pending |= (*value as u128) << bits;
                bits += width as u32;
                while bits >= 8 {
                    out.push(pending as u8);
                    pending >>= 8;
                    bits -= 8;
                }
            }
            if bits > 0 {
                out.push(pending as u8);
            }
        }
    }
}

/// One number of a block shorter than [`BLOCK_ROWS`]; `width` is 1 to 64.
#[inline(always)]
fn number_at(bytes: &[u8], width: u8, index: usize) -> u64 {
    let (start, shift) = (index * width as usize / 8, index * width as usize % 8);
    let word = match bytes.get(start..start + 16) {
        Some(word) => u128::from_le_bytes(word.try_into().unwrap_or_default()),
        None => {
            let rest = bytes.get(start..).unwrap_or_default();
            let mut word = [0; 16];
            word[..rest.len()].copy_from_slice(rest);
            u128::from_le_bytes(word)
        }
    };
    (word >> shift) as u64 & u64::MAX >> (64 - width as u32)
}

/// Unpacks a block into `out`, adding `base` to each number.
pub fn unpack(bytes: &[u8], width: u8, base: i64, out: &mut [i64]) -> Result<(), Corrupt> {
    if width > 64 || bytes.len() != packed_bytes(out.len(), width) || out.len() > BLOCK_ROWS {
        let found = format!("{} values of {width} bits in {} bytes", out.len(), bytes.len());
        return Err(Corrupt::new("packed block", 0, found));
    }
    if width == 0 {
        out.fill(base);
        return Ok(());
    }
    match (out.first_chunk_mut::<BLOCK_ROWS>(), width) {
        (Some(out), 1..=8) => lanes8::unpack(bytes, width, base, out),
        (Some(out), 9..=16) => lanes16::unpack(bytes, width, base, out),
        (Some(out), 17..=32) => lanes32::unpack(bytes, width, base, out),
        (Some(out), _) => lanes64::unpack(bytes, width, base, out),
        _ => {
            for (index, slot) in out.iter_mut().enumerate() {
                *slot = base.wrapping_add(number_at(bytes, width, index) as i64);
            }
        }
    }
    Ok(())
}

/// The sum of a block of numbers of at most this width fits 64 bits.
pub const SUM_WIDTH_MAX: u8 = 54;

/// The sum of the numbers of a block of `count`; `width` is 1 to [`SUM_WIDTH_MAX`].
pub fn sum(bytes: &[u8], width: u8, count: usize) -> Result<u64, Corrupt> {
    if !(1..=SUM_WIDTH_MAX).contains(&width) || bytes.len() != packed_bytes(count, width) || count > BLOCK_ROWS {
        let found = format!("{count} values of {width} bits in {} bytes", bytes.len());
        return Err(Corrupt::new("packed block", 0, found));
    }
    Ok(match (count, width) {
        (BLOCK_ROWS, 1..=8) => lanes8::sum(bytes, width),
        (BLOCK_ROWS, 9..=16) => lanes16::sum(bytes, width),
        (BLOCK_ROWS, 17..=32) => lanes32::sum(bytes, width),
        (BLOCK_ROWS, _) => lanes64::sum(bytes, width),
        _ => (0..count).map(|index| number_at(bytes, width, index)).sum(),
    })
}

/// Rows of a block, by number.
#[derive(Debug, Clone, Copy)]
pub enum Selection<'a> {
    /// In ascending order.
    Each(&'a [u16]),
    /// First row and number of rows.
    Run(usize, usize),
}

impl Selection<'_> {
    pub fn len(&self) -> usize {
        match self {
            Self::Each(rows) => rows.len(),
            Self::Run(_, count) => *count,
        }
    }

    pub fn get(&self, index: usize) -> usize {
        match self {
            Self::Each(rows) => rows[index] as usize,
            Self::Run(first, _) => first + index,
        }
    }
}

/// Appends the selected numbers of a block of `count`, adding `base` to each. Faster than [`unpack`] for a few rows. The rows
/// are within the block.
pub fn unpack_rows(
    bytes: &[u8],
    width: u8,
    base: i64,
    count: usize,
    rows: Selection<'_>,
    out: &mut Vec<i64>,
) -> Result<(), Corrupt> {
    if width > 64 || bytes.len() != packed_bytes(count, width) || count > BLOCK_ROWS {
        let found = format!("{count} values of {width} bits in {} bytes", bytes.len());
        return Err(Corrupt::new("packed block", 0, found));
    }
    let start = out.len();
    out.resize(start + rows.len(), base);
    let out = &mut out[start..];
    macro_rules! numbers {
        ($number:expr) => {
            for (index, slot) in out.iter_mut().enumerate() {
                *slot = base.wrapping_add($number(bytes, width, rows.get(index) % BLOCK_ROWS) as i64);
            }
        };
    }
    macro_rules! lanes {
        ($lanes:ident) => {
            match rows {
                Selection::Run(first, _) => $lanes::unpack_run(bytes, width, base, first % BLOCK_ROWS, out),
                Selection::Each(_) => numbers!($lanes::number),
            }
        };
    }
    match (count, width) {
        (_, 0) => {}
        (BLOCK_ROWS, 1..=8) => lanes!(lanes8),
        (BLOCK_ROWS, 9..=16) => lanes!(lanes16),
        (BLOCK_ROWS, 17..=32) => lanes!(lanes32),
        (BLOCK_ROWS, _) => lanes!(lanes64),
        _ => numbers!(number_at),
    }
    Ok(())
}

/// The packed numbers from `first` to `first + span`, or all other numbers.
#[derive(Debug, Clone, Copy)]
pub struct OffsetRange {
    pub first: u64,
    /// `first + span` fits the width.
    pub span: u64,
    /// False: all numbers except those from `first` to `first + span`.
    pub inside: bool,
}

/// Clears the marks (0 or 1, one per number) of the numbers of a block that are not in `offsets`.
pub fn retain(bytes: &[u8], width: u8, offsets: OffsetRange, marks: &mut [u8]) -> Result<(), Corrupt> {
    if width > 64 || bytes.len() != packed_bytes(marks.len(), width) || marks.len() > BLOCK_ROWS {
        let found = format!("{} values of {width} bits in {} bytes", marks.len(), bytes.len());
        return Err(Corrupt::new("packed block", 0, found));
    }
    match (marks.first_chunk_mut::<BLOCK_ROWS>(), width) {
        (Some(marks), 1..=8) => lanes8::retain(bytes, width, offsets, marks),
        (Some(marks), 9..=16) => lanes16::retain(bytes, width, offsets, marks),
        (Some(marks), 17..=32) => lanes32::retain(bytes, width, offsets, marks),
        (Some(marks), 33..) => lanes64::retain(bytes, width, offsets, marks),
        _ => {
            let mut block = [0; BLOCK_ROWS];
            unpack(bytes, width, 0, &mut block[..marks.len()])?;
            for (mark, value) in marks.iter_mut().zip(&block) {
                *mark &= u8::from(((*value as u64).wrapping_sub(offsets.first) <= offsets.span) == offsets.inside);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::tests::with_each;

    #[test]
    fn blocks_of_any_width_and_length_unpack_with_every_instruction_set() {
        with_each(|vectors| {
            println!("{vectors:?}");
            blocks_unpack();
        });
    }

    fn blocks_unpack() {
        for width in 0..=64u8 {
            for count in [1usize, 2, 63, 1000, 1023, 1024] {
                let mask = if width == 0 { 0 } else { u64::MAX >> (64 - width as u32) };
                let values: Vec<u64> =
                    (0..count as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) & mask).collect();
                let mut bytes = Vec::new();
                pack(&values, width, &mut bytes);
                assert_eq!(bytes.len(), packed_bytes(count, width));
                let mut out = vec![0; count];
                unpack(&bytes, width, -7, &mut out).unwrap();
                let expected: Vec<i64> = values.iter().map(|value| (*value as i64).wrapping_add(-7)).collect();
                assert_eq!(out, expected, "width {width}, {count} values");
                if (1..=SUM_WIDTH_MAX).contains(&width) {
                    assert_eq!(
                        sum(&bytes, width, count).unwrap(),
                        values.iter().sum(),
                        "width {width}, {count} values"
                    );
                }
                let (from, to) = (count / 3, count / 2 + 1);
                let mut selected = Vec::new();
                unpack_rows(&bytes, width, -7, count, Selection::Run(from, to - from), &mut selected).unwrap();
                assert_eq!(selected, expected[from..to], "width {width}, {count} values");
                selected.clear();
                let rows: Vec<u16> = (from as u16..to as u16).step_by(3).collect();
                unpack_rows(&bytes, width, -7, count, Selection::Each(&rows), &mut selected).unwrap();
                assert!(rows.iter().map(|row| expected[*row as usize]).eq(selected), "width {width}, {count} values");
                let (first, last) = (values[from].min(values[to - 1]), values[from].max(values[to - 1]));
                for inside in [false, true] {
                    let offsets = OffsetRange { first, span: last - first, inside };
                    let mut marks: Vec<u8> = (0..count).map(|row| u8::from(row % 3 != 1)).collect();
                    retain(&bytes, width, offsets, &mut marks).unwrap();
                    let wanted = |row: usize| row % 3 != 1 && (first..=last).contains(&values[row]) == inside;
                    assert!((0..count).all(|row| marks[row] == u8::from(wanted(row))), "width {width}, {count} values");
                }
            }
        }
    }

    #[test]
    fn a_block_of_the_wrong_length_is_refused() {
        assert!(unpack(&[0; 3], 5, 0, &mut [0; 4]).is_ok());
        assert!(unpack(&[0; 4], 5, 0, &mut [0; 4]).is_err());
        assert!(unpack(&[0; 65], 65, 0, &mut [0; 8]).is_err());
        assert!(sum(&[0; 3], 5, 4).is_ok());
        assert!(sum(&[0; 4], 5, 4).is_err() && sum(&[], 0, 4).is_err() && sum(&[0; 55], 55, 8).is_err());
    }
}
