//! The conformance test of all encodings: generated inputs × every encoding that accepts them.
//!
//! Each encoded chunk must return its values by block, by range and by selected rows, evaluate ranges and sums as plain
//! code does, and have the minimum and maximum of its values. Its directory entry must decode to an equal chunk. Damage must be
//! reported as an error.

use super::super::section::{DataSection, UnitError};
use super::super::shape::Level;
use super::{BLOCK_ROWS, CHUNK_ROWS, IntBlockCache, IntChunk, StringCache, StringChunk, Strings};
use crate::bounds::IntRange;
use cellar_format::bytes::Reader;
use std::collections::BTreeSet;
use std::ops::Range;

pub fn noise(index: u64) -> u64 {
    let mixed = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ ((mixed as i64) >> 31) as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9)).rotate_left(23)
}

pub fn text(index: usize) -> Vec<u8> {
    let words = ["carefully", "final", "deposits", "sleep", "quickly", "ironic", "requests", "pinto beans"];
    let pick = |shift: usize| words[(index.wrapping_mul(2_654_435_761) >> shift) % words.len()];
    format!("{} {} {index} {}", pick(3), pick(11), pick(19)).into_bytes()
}

fn int_inputs() -> Vec<(&'static str, Vec<i64>)> {
    fn ints(count: i64, value: impl Fn(i64) -> i64) -> Vec<i64> {
        (0..count).map(value).collect()
    }
    let noise = |index: i64| noise(index as u64) as i64;
    let pages = move |i: i64| i / 2 + i / 53 % 2 * (noise(i / 53) >> 40);
    vec![
        ("one value", vec![i64::MIN]),
        ("two extremes", vec![i64::MIN, i64::MAX]),
        ("equal values", ints(3000, |_| -3)),
        ("one block of equal values", ints(BLOCK_ROWS as i64, |_| 0)),
        ("narrow noise", ints(5000, |i| noise(i) >> 50)),
        ("a short block", ints(70, |i| noise(i) >> 44)),
        ("one block", ints(BLOCK_ROWS as i64, |i| noise(i) >> 59)),
        ("one block and one row", ints(BLOCK_ROWS as i64 + 1, |i| noise(i) >> 33)),
        ("any values", ints(3000, noise)),
        ("blocks far apart", ints(9000, |i| i / 1024 * 1_000_000 + (noise(i) >> 58))),
        ("rising by similar steps", ints(9000, |i| i * 1000 + (noise(i) >> 60))),
        ("rising by two different steps", ints(9000, |i| i / 2 * 1000 + i % 2 * 3)),
        ("rising with rare large steps", ints(9000, |i| i / 4 + i / 32 * 24)),
        ("keys of two sessions", ints(30_000, pages)),
        ("few distinct values", ints(9000, |i| (noise(i) >> 60) * 1_000_000_007)),
        ("few close values", ints(4000, |i| 40 + (noise(i) >> 60))),
        ("runs in a whole chunk", ints(CHUNK_ROWS as i64, |i| i / 1000)),
        ("runs and extremes", [&ints(4000, |i| i / 100)[..], &[i64::MAX, i64::MIN]].concat()),
        ("all but one equal", ints(2500, |i| i64::from(i == 2047))),
    ]
}

fn string_inputs() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    fn strings(count: usize, row: impl Fn(usize) -> Vec<u8>) -> Vec<Vec<u8>> {
        (0..count).map(row).collect()
    }
    let bytes = |index: usize| -> Vec<u8> {
        (0..index * 31 % 300).map(|at| (index.wrapping_mul(0x9e37_79b9) >> (at % 24)) as u8 ^ at as u8).collect()
    };
    vec![
        ("one string", vec![b"only".to_vec()]),
        ("one empty string", vec![Vec::new()]),
        ("equal strings", strings(3000, |_| b"same".to_vec())),
        ("few distinct strings", strings(3000, |index| vec![b'a' + (index % 7) as u8; 1 + index % 7])),
        ("few distinct long strings", strings(2000, |index| vec![b'a' + (index % 5) as u8; 40 + index % 5])),
        ("text", strings(3000, text)),
        ("a short block of text", strings(80, text)),
        ("any bytes, some empty", strings(1100, bytes)),
        ("one long string among empty ones", strings(1500, |index| vec![7; if index == 1023 { 8000 } else { 0 }])),
    ]
}

/// Ranges of rows at the ends, within one block and across blocks.
fn row_ranges(count: usize) -> Vec<Range<usize>> {
    let (third, half) = (count / 3, count / 2 + 1);
    let mut ranges =
        vec![0..count, 0..1, count - 1..count, third..half.max(third), third..(third + 100).min(half.max(third))];
    ranges.push(count.min(BLOCK_ROWS) - 1..count.min(BLOCK_ROWS + 1));
    ranges
}

/// The data section's content before the encoded chunk.
pub const PREFIX: &[u8] = b"before";

/// Copies with one changed bit, and truncated copies, at several places from byte `from` on.
fn damaged(bytes: &[u8], from: usize) -> impl Iterator<Item = Vec<u8>> + '_ {
    let places = move || (from..bytes.len()).step_by(bytes.len() / 17 + 1);
    let flipped = places().map(|at| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 1 << (at % 8);
        bytes
    });
    flipped.chain(places().map(|at| bytes[..at].to_vec()))
}

fn section(data: &Vec<u8>) -> DataSection<'_> {
    DataSection { source: data, start: 0 }
}

#[track_caller]
fn assert_corrupt<T>(result: Result<T, UnitError>, case: &str) {
    match result {
        Err(UnitError::Corrupt(_)) => {}
        // The data section is shorter than the directory says.
        Err(UnitError::Source(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
        Err(error) => panic!("{case}: {error}"),
        Ok(_) => panic!("{case}: damage was not noticed"),
    }
}

fn read_ints(chunk: &IntChunk, data: &Vec<u8>, rows: Range<usize>, sparse: bool) -> Result<Vec<i64>, UnitError> {
    let mut cache = IntBlockCache { sparse, ..IntBlockCache::default() };
    let mut out = Vec::new();
    chunk.read(section(data), 0, rows, &mut cache, &mut out)?;
    Ok(out)
}

#[test]
fn every_encoding_of_integers_conforms() {
    let mut names = BTreeSet::new();
    for (input, values) in int_inputs() {
        for (chunk, data) in IntChunk::encode_in_each_encoding(&values) {
            let case = format!("{input}, {}", chunk.encoding_name());
            names.insert(chunk.encoding_name());
            let mut entry = Vec::new();
            chunk.put(&mut entry);
            check_ints(&chunk, &data, &values, &case);
            let mut reader = Reader::new(&entry);
            let reopened = IntChunk::get(&mut reader, values.len()).unwrap();
            reader.finish("entry").unwrap();
            assert_eq!(reopened.encoding_name(), chunk.encoding_name(), "{case}");
            let mut again = Vec::new();
            reopened.put(&mut again);
            assert_eq!(again, entry, "{case}");
            check_ints(&reopened, &data, &values, &case);
            check_damaged_ints(&entry, &data, &values, &case);
        }
    }
    let all = [
        "bit-packed",
        "bit-packed by block",
        "constant",
        "delta",
        "delta dictionary",
        "delta dictionary, patched",
        "dictionary",
        "runs",
    ];
    assert!(names.iter().copied().eq(all), "{names:?}");
}

#[test]
fn scattered_reads_decode_a_block_of_deltas_once() {
    let values: Vec<i64> = (0..2 * BLOCK_ROWS as i64).map(|value| value * value / 7).collect();
    for (chunk, data) in IntChunk::encode_in_each_encoding(&values) {
        let mut cache = IntBlockCache { sparse: true, ..IntBlockCache::default() };
        let mut cached = Vec::new();
        for row in [3, 900, 1000, 7, BLOCK_ROWS + 1, BLOCK_ROWS + 3, 8] {
            let mut out = Vec::new();
            chunk.read(section(&data), 0, row..row + 1, &mut cache, &mut out).unwrap();
            assert_eq!(out, [values[row]], "{}", chunk.encoding_name());
            cached.push(cache.key.map(|(_, block)| block));
        }
        let expected: [Option<usize>; 7] = match chunk.encoding_name().starts_with("delta") {
            true => [None, Some(0), Some(0), Some(0), Some(0), Some(1), Some(1)],
            false => [None; 7],
        };
        assert_eq!(cached, expected, "{}", chunk.encoding_name());
    }
}

fn check_ints(chunk: &IntChunk, data: &Vec<u8>, values: &[i64], case: &str) {
    let section = section(data);
    assert_eq!(chunk.count(), values.len(), "{case}");
    assert_eq!((chunk.min, chunk.max), (*values.iter().min().unwrap(), *values.iter().max().unwrap()), "{case}");
    assert!(chunk.data_bytes() <= data.len(), "{case}");
    let mut out = Vec::new();
    for rows in row_ranges(values.len()) {
        for sparse in [false, true] {
            assert_eq!(read_ints(chunk, data, rows.clone(), sparse).unwrap(), values[rows.clone()], "{case}, {rows:?}");
        }
        let range = chunk.row_bytes(rows.clone());
        assert!(range.start <= range.end && range.end as usize <= data.len(), "{case}, {rows:?}");
        let sum: i128 = values[rows.clone()].iter().map(|value| *value as i128).sum();
        assert_eq!(chunk.sum(section, rows.clone(), &mut out).unwrap(), sum, "{case}, {rows:?}");
    }
    for (block, values) in values.chunks(BLOCK_ROWS).enumerate() {
        chunk.decode_block(section, block, &mut out).unwrap();
        assert_eq!(out, values, "{case}, block {block}");
        check_block(chunk, section, block, values, case);
    }
}

fn check_block(chunk: &IntChunk, section: DataSection<'_>, block: usize, values: &[i64], case: &str) {
    let (mut out, mut scratch) = (Vec::new(), Vec::new());
    for step in [1, 2, 3, 97] {
        let rows: Vec<u16> = (0..values.len() as u16).step_by(step).collect();
        chunk.gather(section, block, &rows, &mut scratch, &mut out).unwrap();
        assert!(out.iter().eq(rows.iter().map(|row| &values[*row as usize])), "{case}, block {block}, every {step}");
    }
    let (first, last) = (values[0], values[values.len() / 2]);
    let bounds = [(first, first), (first.min(last), first.max(last)), (i64::MIN, last), (1, 0), (i64::MIN, i64::MAX)];
    for (lo, hi) in bounds {
        for inside in [false, true] {
            let range = IntRange { lo, hi, inside };
            let mut marks: Vec<u8> = (0..values.len()).map(|row| u8::from(row % 3 != 1)).collect();
            chunk.retain(section, block, &range, &mut scratch, &mut marks).unwrap();
            let wanted = values.iter().enumerate().map(|(row, value)| u8::from(row % 3 != 1 && range.passes(*value)));
            assert!(wanted.eq(marks), "{case}, block {block}, {range:?}");
            if let Some(all) = chunk.all_pass(&range) {
                assert!(values.iter().all(|value| range.passes(*value) == all), "{case}, {range:?}");
            }
        }
    }
}

fn check_damaged_ints(entry: &[u8], data: &Vec<u8>, values: &[i64], case: &str) {
    // A truncated entry is an error. The directory's checksum covers the entry, so a changed entry must only not panic.
    for entry in damaged(entry, 0) {
        if let Ok(chunk) = IntChunk::get(&mut Reader::new(&entry), values.len()) {
            let _ = read_ints(&chunk, data, 0..values.len(), false);
            let _ = read_ints(&chunk, data, 0..values.len().min(3), true);
            let _ = chunk.sum(section(data), 0..values.len(), &mut Vec::new());
        }
    }
    for end in 0..entry.len() {
        assert!(IntChunk::get(&mut Reader::new(&entry[..end]), values.len()).is_err(), "{case}, {end} bytes");
    }
    for data in damaged(data, PREFIX.len()) {
        // Decode the entry again: a chunk caches its decoded dictionary.
        let chunk = IntChunk::get(&mut Reader::new(entry), values.len()).unwrap();
        assert_corrupt(read_ints(&chunk, &data, 0..values.len(), false), case);
    }
}

fn read_strings(
    chunk: &StringChunk,
    data: &Vec<u8>,
    rows: Range<usize>,
    single_reads: bool,
) -> Result<Strings, UnitError> {
    let mut cache = StringCache { single_reads, ..StringCache::default() };
    let mut out = Strings::default();
    chunk.read(section(data), 0, rows, &mut cache, &mut out)?;
    Ok(out)
}

#[test]
fn every_encoding_of_strings_conforms() {
    let mut names = BTreeSet::new();
    for (input, values) in string_inputs() {
        let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        for level in Level::ALL {
            for (chunk, data) in StringChunk::encode_in_each_encoding(&values, level) {
                let case = format!("{input}, {}, {level:?}", chunk.encoding_name());
                names.insert(chunk.encoding_name());
                let mut entry = Vec::new();
                chunk.put(&mut entry);
                check_strings(&chunk, &data, &values, &case);
                let mut reader = Reader::new(&entry);
                let reopened = StringChunk::get(&mut reader, values.len()).unwrap();
                reader.finish("entry").unwrap();
                assert_eq!(reopened.encoding_name(), chunk.encoding_name(), "{case}");
                let mut again = Vec::new();
                reopened.put(&mut again);
                assert_eq!(again, entry, "{case}");
                check_strings(&reopened, &data, &values, &case);
                check_damaged_strings(&entry, &data, values.len(), &case);
            }
        }
    }
    assert!(names.iter().copied().eq(["constant", "dictionary", "plain", "symbols", "zstd"]), "{names:?}");
}

fn check_strings(chunk: &StringChunk, data: &Vec<u8>, values: &[&[u8]], case: &str) {
    assert!(chunk.data_bytes() <= data.len(), "{case}");
    for rows in row_ranges(values.len()) {
        for single_reads in [false, true] {
            let found = read_strings(chunk, data, rows.clone(), single_reads).unwrap();
            assert!(found.iter().eq(values[rows.clone()].iter().copied()), "{case}, {rows:?}");
        }
        let range = chunk.row_bytes(rows.clone());
        assert!(range.start <= range.end && range.end as usize <= data.len(), "{case}, {rows:?}");
    }
    // One cache for rows of different frames.
    let (mut cache, mut out) = (StringCache::default(), Strings::default());
    for row in (0..values.len()).step_by(values.len() / 40 + 1) {
        chunk.read(section(data), 0, row..row + 1, &mut cache, &mut out).unwrap();
    }
    assert!(out.iter().eq(values.iter().copied().step_by(values.len() / 40 + 1)), "{case}");
    if let Some((entries, codes)) = chunk.dictionary(section(data)).unwrap() {
        assert!(entries.iter().is_sorted_by(|left, right| left < right), "{case}");
        assert_eq!((codes.min, codes.max), (0, entries.len() as i64 - 1), "{case}");
    }
    assert_eq!(chunk.has_list(), matches!(chunk.encoding_name(), "constant" | "dictionary"), "{case}");
}

fn check_damaged_strings(entry: &[u8], data: &Vec<u8>, count: usize, case: &str) {
    // See `check_damaged_ints`.
    for entry in damaged(entry, 0) {
        if let Ok(chunk) = StringChunk::get(&mut Reader::new(&entry), count) {
            let _ = read_strings(&chunk, data, 0..count, false);
            let _ = read_strings(&chunk, data, 0..count.min(3), true);
            let _ = chunk.dictionary(section(data));
        }
    }
    for end in 0..entry.len() {
        assert!(StringChunk::get(&mut Reader::new(&entry[..end]), count).is_err(), "{case}, {end} bytes");
    }
    for data in damaged(data, PREFIX.len()) {
        let chunk = StringChunk::get(&mut Reader::new(entry), count).unwrap();
        assert_corrupt(read_strings(&chunk, &data, 0..count, false), case);
    }
}
