//! Compression units of random tables: every page is rebuilt byte for byte, directories describe the pages, and damage is
//! reported.
//!
//! `CELLAR_SEED` and `CELLAR_CASES` select the random tables. The files in `fixtures/` belong to the format version in their
//! name and never change; `CELLAR_WRITE_FIXTURES` writes the files of a new format version.

use crate::support::tables::Table;
use crate::support::{Random, setting};
use cellar_format::ByteSource;
use cellar_format::units::BLOCK_BYTES;
use cellar_scan::heap::Page;
use cellar_scan::unit::{
    Bounds, HeaderField, Level, PageKind, Rebuilder, Shape, Unit, UnitError, VERSION, encode, encode_raw, verify,
};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::path::PathBuf;

fn seeds(default: u64) -> std::ops::Range<u64> {
    let first = setting("CELLAR_SEED", 1);
    first..first + setting("CELLAR_CASES", default)
}

fn level_of(seed: u64) -> Level {
    Level::ALL[seed as usize % 4]
}

fn random_unit(seed: u64, level: Level) -> (Random, Vec<u8>, Vec<u8>) {
    let mut random = Random::new(seed);
    let mut table = Table::random(&mut random);
    let count = *random.pick(&[1, 3, 17, 70]);
    let pages = table.pages(&mut random, count);
    let unit = encode(&pages, &table.shape(), level).expect("any pages can be encoded");
    (random, pages, unit)
}

#[test]
fn every_page_of_any_table_is_rebuilt_at_every_level() {
    for seed in seeds(60) {
        let level = level_of(seed);
        let (mut random, pages, bytes) = random_unit(seed, level);
        let unit = Unit::open(&bytes).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(unit.level(), level);
        assert_eq!(unit.bytes(), bytes.len() as u64);
        // Pages in random order and in runs, by one rebuilder and by new ones.
        let mut rebuilder = Rebuilder::new();
        let mut page = [0; BLOCK_BYTES];
        let mut number = 0;
        for _ in 0..4 * unit.pages().len() {
            number = if random.one_in(2) { number + 1 } else { random.below(unit.pages().len()) } % unit.pages().len();
            if random.one_in(8) {
                unit.rebuild_page(&bytes, number, &mut page).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            } else {
                rebuilder.page(&unit, &bytes, number, &mut page).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            }
            assert!(page == pages[number * BLOCK_BYTES..][..BLOCK_BYTES], "seed {seed}, page {number}");
        }
        assert!(rebuilder.page(&unit, &bytes, unit.pages().len(), &mut page).is_err());
    }
}

/// The parser decides which pages need no patch. A wrong decision would change a bit of the rebuilt page.
#[test]
fn any_bit_of_a_page_may_differ_from_its_prediction() {
    for seed in seeds(12) {
        let mut random = Random::new(seed);
        let mut table = Table::random(&mut random);
        let page = table.pages(&mut random, 1);
        let shape = table.shape();
        for _ in 0..100 {
            let mut changed = page.clone();
            let (at, bit) = (random.below(BLOCK_BYTES), random.below(8));
            changed[at] ^= 1 << bit;
            let unit = encode(&changed, &shape, Level::QueryLow).unwrap();
            let wrong = verify(&unit, &changed).unwrap_or_else(|error| panic!("seed {seed}, byte {at}: {error}"));
            assert_eq!(wrong, None, "seed {seed}, byte {at}, bit {bit}");
        }
    }
}

#[test]
fn raw_pages_are_rebuilt_and_verify_reports_a_changed_page() {
    for seed in seeds(8) {
        let (_, mut pages, _) = random_unit(seed, Level::QueryLow);
        let unit = encode_raw(&pages, &Shape::default(), level_of(seed)).unwrap();
        assert!(Unit::open(&unit).unwrap().pages().iter().all(|page| page.kind == PageKind::Raw));
        assert_eq!(verify(&unit, &pages).unwrap(), None, "seed {seed}");
        let last = pages.len() - 1;
        pages[last] ^= 1;
        assert_eq!(verify(&unit, &pages).unwrap(), Some(last / BLOCK_BYTES), "seed {seed}");
    }
}

#[test]
fn ordinary_pages_are_stored_as_rows_and_others_raw() {
    let (mut rows, mut raw, mut zero) = (0, 0, 0);
    for seed in seeds(60) {
        let (_, pages, bytes) = random_unit(seed, Level::QueryLow);
        let unit = Unit::open(&bytes).unwrap();
        for (entry, page) in unit.pages().iter().zip(pages.chunks_exact(BLOCK_BYTES)) {
            match entry.kind {
                PageKind::Rows => rows += 1,
                PageKind::Raw => raw += 1,
                PageKind::Zero => zero += 1,
            }
            assert_eq!(entry.kind == PageKind::Zero, page.iter().all(|byte| *byte == 0), "seed {seed}");
        }
    }
    assert!(rows > 5 * raw && raw > 0 && zero > 0, "{rows} as rows, {raw} raw, {zero} zero");
}

#[test]
fn rows_are_the_tuples_of_the_pages_in_their_order() {
    for seed in seeds(40) {
        let (_, pages, bytes) = random_unit(seed, level_of(seed));
        let unit = Unit::open(&bytes).unwrap();
        let mut row = 0;
        for (number, page) in pages.chunks_exact(BLOCK_BYTES).enumerate() {
            let mut lines = Vec::new();
            if unit.pages()[number].kind == PageKind::Rows
                && let Ok(Some(page)) = Page::new(page)
                && page.for_each_tuple(|line, _| lines.push(line)).is_ok()
            {
                assert_eq!(unit.row_lines(&bytes, number).unwrap(), lines, "seed {seed}, page {number}");
                assert_eq!(unit.page_rows(number), row..row + lines.len(), "seed {seed}, page {number}");
            }
            for row in unit.page_rows(number) {
                assert_eq!(unit.page_of_row(row), Some(number), "seed {seed}, row {row}");
            }
            row = unit.page_rows(number).end;
        }
        assert_eq!(unit.rows(), row);
        assert_eq!(unit.page_of_row(row), None);
    }
}

#[test]
fn chunk_visibility_holds_for_every_tuple() {
    let mut all_visible = 0;
    for seed in seeds(60) {
        let (_, pages, bytes) = random_unit(seed, Level::QueryLow);
        let unit = Unit::open(&bytes).unwrap();
        for chunk in unit.chunks() {
            let visibility = unit.visibility(chunk);
            all_visible += usize::from(visibility.all_committed);
            for number in chunk.pages().filter(|number| unit.pages()[*number].kind == PageKind::Rows) {
                let Ok(Some(page)) = Page::new(&pages[number * BLOCK_BYTES..][..BLOCK_BYTES]) else { continue };
                let _ = page.for_each_tuple(|_, tuple| {
                    assert!(!visibility.all_frozen || tuple.infomask & 0x0300 == 0x0300, "seed {seed}");
                    assert!(!visibility.all_committed || tuple.infomask & 0x0100 != 0, "seed {seed}");
                    assert!(!visibility.no_xmax || tuple.infomask & 0x0800 != 0, "seed {seed}");
                    assert!((visibility.xmin_min..=visibility.xmin_max).contains(&tuple.xmin), "seed {seed}");
                });
                assert!(!visibility.all_visible || page.all_visible() || page.normal_count() == 0, "seed {seed}");
            }
            assert_eq!(chunk.header(HeaderField::Xmin).min as u32, visibility.xmin_min);
        }
    }
    assert!(all_visible > 0);
}

#[test]
fn bounds_are_minimum_and_maximum_of_the_values() {
    use cellar_format::postgres::{Align, Width, type_oid};
    use cellar_scan::unit::Attribute;
    let attribute = |type_oid, width, align| Attribute { type_oid, width, align, by_value: false, dropped: false };
    let shape = Shape {
        attributes: vec![
            attribute(type_oid::INT4, Width::Fixed(4), Align::Int),
            attribute(type_oid::NUMERIC, Width::Varlena, Align::Int),
            attribute(type_oid::TEXT, Width::Varlena, Align::Int),
        ],
    };
    let mut page = vec![0; BLOCK_BYTES];
    let (mut lower, mut upper) = (24, BLOCK_BYTES);
    for row in 0..100i32 {
        // The first ten rows are NULL in all columns.
        let is_null = row < 10;
        let mut tuple = vec![0; 24];
        tuple[18] = 3;
        tuple[20] = u8::from(is_null);
        tuple[22] = 24;
        if !is_null {
            tuple.extend((1000 + row).to_le_bytes());
            // The row number plus 0.25: weight 0, scale 2, two digits.
            tuple.extend([15, 0x00, 0x81, row as u8, 0]);
            tuple.extend(2500u16.to_le_bytes());
            tuple.push(7 << 1 | 1);
            tuple.extend(format!("row {row:02}").into_bytes());
        }
        upper -= tuple.len().next_multiple_of(8);
        page[upper..upper + tuple.len()].copy_from_slice(&tuple);
        page[lower..lower + 4].copy_from_slice(&(upper as u32 | 1 << 15 | (tuple.len() as u32) << 17).to_le_bytes());
        lower += 4;
    }
    page[12..14].copy_from_slice(&(lower as u16).to_le_bytes());
    page[14..16].copy_from_slice(&(upper as u16).to_le_bytes());
    page[16..18].copy_from_slice(&(BLOCK_BYTES as u16).to_le_bytes());
    page[18..20].copy_from_slice(&(BLOCK_BYTES as u16 | 4).to_le_bytes());
    let bytes = encode(&page, &shape, Level::QueryLow).unwrap();
    let unit = Unit::open(&bytes).unwrap();
    let chunks: Vec<_> = (0..3).map(|index| unit.column(index).next().unwrap()).collect();
    assert!(chunks.iter().all(|chunk| chunk.nulls == 10 && chunk.missing == 0 && chunk.rows() == 100));
    assert_eq!(chunks[0].bounds(), Bounds::Number { min: 1010, max: 1099 });
    assert_eq!(chunks[1].bounds(), Bounds::Numeric { min: 1025, max: 9925, scale: 2 });
    let (min, max) = (b"row 10".to_vec(), b"row 99".to_vec());
    assert_eq!(chunks[2].bounds(), Bounds::Bytes { min, max, max_is_cut: false });
}

/// A source that fails on every read outside of the prefetched ranges, and counts the reads.
struct Announced<'a> {
    bytes: &'a [u8],
    ranges: RefCell<Vec<Range<u64>>>,
    reads: Cell<usize>,
}

impl ByteSource for Announced<'_> {
    fn length(&self) -> u64 {
        self.bytes.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        let end = offset + buffer.len() as u64;
        let is_prefetched = self.ranges.borrow().iter().any(|range| range.start <= offset && end <= range.end);
        assert!(is_prefetched, "{offset}..{end} of {:?}", self.ranges.borrow());
        self.reads.set(self.reads.get() + 1);
        self.bytes.read_at(buffer, offset)
    }

    fn prefetch(&self, ranges: &[Range<u64>]) {
        assert!(ranges.is_sorted_by_key(|range| range.start));
        *self.ranges.borrow_mut() = ranges.to_vec();
    }
}

#[test]
fn opening_a_unit_reads_once_and_rebuilding_one_page_prefetches_all_that_it_reads() {
    const OPEN_BYTES: u64 = 16 << 10;
    let mut small = 0;
    for seed in seeds(40) {
        let (_, pages, bytes) = random_unit(seed, level_of(seed));
        // A longer directory needs another read.
        if Unit::open(&bytes).unwrap().directory_bytes() > OPEN_BYTES {
            continue;
        }
        small += 1;
        let ranges = std::iter::once(0..OPEN_BYTES).collect();
        let source = Announced { bytes: &bytes, ranges: RefCell::new(ranges), reads: Cell::new(0) };
        let unit = Unit::open(&source).unwrap();
        assert_eq!(source.reads.get(), 1, "seed {seed}");
        let mut rebuilder = Rebuilder::new();
        let mut page = [0; BLOCK_BYTES];
        for (number, expected) in pages.chunks_exact(BLOCK_BYTES).enumerate().rev() {
            rebuilder.page(&unit, &source, number, &mut page).unwrap();
            assert!(page == expected, "seed {seed}, page {number}");
        }
    }
    assert!(small > 10, "{small}");
}

#[test]
fn a_flipped_bit_is_an_error_and_never_a_wrong_page() {
    let mut noticed = 0;
    for seed in seeds(40) {
        let (mut random, pages, mut bytes) = random_unit(seed, level_of(seed));
        for _ in 0..20 {
            let (at, bit) = (random.below(bytes.len()), 1 << random.below(8));
            bytes[at] ^= bit;
            match Unit::open(&bytes) {
                Err(UnitError::Corrupt(_)) => noticed += 1,
                Err(UnitError::Source(error)) => panic!("seed {seed}, byte {at}: {error}"),
                Ok(unit) => {
                    let mut rebuilder = Rebuilder::new();
                    let mut page = [0; BLOCK_BYTES];
                    for (number, expected) in pages.chunks_exact(BLOCK_BYTES).enumerate() {
                        match rebuilder.page(&unit, &bytes, number, &mut page) {
                            Ok(()) => assert!(page == expected, "seed {seed}, byte {at}, page {number}"),
                            Err(_) => noticed += 1,
                        }
                    }
                }
            }
            bytes[at] ^= bit;
        }
    }
    assert!(noticed > 100);
}

#[test]
fn a_truncated_unit_is_an_error() {
    let (_, _, bytes) = random_unit(7, Level::QueryHigh);
    for length in (0..bytes.len()).step_by(bytes.len() / 50 + 1) {
        let cut = &bytes[..length];
        let Ok(unit) = Unit::open(&cut) else { continue };
        let mut page = [0; BLOCK_BYTES];
        let all = (0..unit.pages().len()).all(|number| unit.rebuild_page(&cut, number, &mut page).is_ok());
        assert!(!all, "{length} bytes of {}", bytes.len());
    }
}

/// Decoding does not trust a directory whose checksum is valid.
#[test]
fn a_malicious_directory_never_panics() {
    for seed in seeds(20) {
        let (mut random, pages, good) = random_unit(seed, level_of(seed));
        let length = u32::from_le_bytes(good[20..24].try_into().unwrap()) as usize;
        for _ in 0..20 {
            let mut bytes = good.clone();
            for _ in 0..1 + random.below(4) {
                let at = 64 + random.below(length);
                let noise = random.next() as u8;
                bytes[at] = *random.pick(&[0, 1, 2, 3, 4, 0x7f, 0x80, 0xff, noise]);
            }
            let checksum = crc32c::crc32c(&bytes[64..64 + length]);
            bytes[24..28].copy_from_slice(&checksum.to_le_bytes());
            let checksum = crc32c::crc32c(&bytes[..60]);
            bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
            let Ok(unit) = Unit::open(&bytes) else { continue };
            let mut rebuilder = Rebuilder::new();
            let mut page = [0; BLOCK_BYTES];
            for number in 0..pages.len() / BLOCK_BYTES {
                let _ = rebuilder.page(&unit, &bytes, number, &mut page);
                let _ = unit.row_lines(&bytes, number);
            }
        }
    }
}

#[test]
fn incomplete_pages_are_refused() {
    let mut random = Random::new(1);
    let shape = Table::random(&mut random).shape();
    assert!(encode(&[0; BLOCK_BYTES - 1], &shape, Level::QueryLow).is_err());
    let empty = encode(&[], &shape, Level::QueryLow).unwrap();
    assert_eq!(Unit::open(&empty).unwrap().pages().len(), 0);
}

fn fixture(level: Level) -> PathBuf {
    let name = level.name().to_lowercase().replace(' ', "_");
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/unit_v{VERSION}_{name}"))
}

/// A fixture is a unit and a text file with the CRC-32C of each of its pages.
#[test]
fn units_of_earlier_releases_are_rebuilt() {
    for level in Level::ALL {
        let (file, sums) = (fixture(level).with_extension("unit"), fixture(level).with_extension("crc"));
        if std::env::var_os("CELLAR_WRITE_FIXTURES").is_some() && !file.exists() {
            let mut random = Random::new(20 + level as u64);
            let mut table = Table::random(&mut random);
            let pages = table.pages(&mut random, 6);
            std::fs::write(&file, encode(&pages, &table.shape(), level).unwrap()).unwrap();
            let lines = pages.chunks_exact(BLOCK_BYTES).map(|page| format!("{:08x}\n", crc32c::crc32c(page)));
            std::fs::write(&sums, lines.collect::<String>()).unwrap();
        }
        let bytes = std::fs::read(&file).expect("the fixture exists");
        let sums = std::fs::read_to_string(&sums).expect("the checksums exist");
        let unit = Unit::open(&bytes).unwrap();
        assert_eq!(unit.pages().len(), sums.lines().count());
        let mut page = [0; BLOCK_BYTES];
        for (number, expected) in sums.lines().enumerate() {
            unit.rebuild_page(&bytes, number, &mut page).unwrap();
            assert_eq!(format!("{:08x}", crc32c::crc32c(&page)), expected, "{level:?}, page {number}");
        }
    }
}
