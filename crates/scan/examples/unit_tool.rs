//! Encodes a heap file into compression units, in memory: `cargo run --release --example unit_tool -- HEAP_FILE COLUMNS [LEVEL [PAGES [UNIT_PAGES]]]`.
//!
//! `columns/mod.rs` describes COLUMNS and LEVEL; PAGES limits the pages of the file that are encoded. Prints sizes and a checksum
//! of the units, speeds of one thread, and the latency of single pages of units in memory.

mod columns;

use cellar_format::units::BLOCK_BYTES;
use cellar_scan::unit::{HEADER_FIELDS, Rebuilder, Unit, encode, verify};
use columns::percentile;
use std::io::Read;
use std::time::Instant;

/// CPU time of this thread in seconds: less affected by other processes than elapsed time.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize| arguments.get(index).map(String::as_str);
    let (file, columns) = (argument(0).expect("HEAP_FILE"), argument(1).unwrap_or("lineitem"));
    let shape = columns::shape(columns);
    let level = columns::level(argument(2).unwrap_or("low"));
    let number = |index: usize, default: usize| argument(index).map_or(default, |text| text.parse().expect("a number"));
    let (pages_max, unit_pages) = (number(3, usize::MAX), number(4, 512));
    let mut heap = Vec::new();
    let opened = std::fs::File::open(file).expect("the heap file can be opened");
    let bytes_max = pages_max.saturating_mul(BLOCK_BYTES) as u64;
    opened.take(bytes_max).read_to_end(&mut heap).expect("the heap file can be read");
    heap.truncate(heap.len() / BLOCK_BYTES * BLOCK_BYTES);

    let start = cpu_seconds();
    let units: Vec<Vec<u8>> = heap
        .chunks(unit_pages * BLOCK_BYTES)
        .map(|pages| encode(pages, &shape, level).expect("pages can be encoded"))
        .collect();
    let encoding = cpu_seconds() - start;
    let start = cpu_seconds();
    for (pages, unit) in heap.chunks(unit_pages * BLOCK_BYTES).zip(&units) {
        assert_eq!(verify(unit, pages).expect("the unit can be read"), None, "a page is rebuilt wrongly");
    }
    let verifying = cpu_seconds() - start;
    let start = Instant::now();
    let opened: Vec<Unit> = units.iter().map(|unit| Unit::open(unit).expect("the unit opens")).collect();
    let opening = start.elapsed().as_secs_f64();

    let total: u64 = opened.iter().map(Unit::bytes).sum();
    let rows: usize = opened.iter().map(Unit::rows).sum();
    let checksum = units.iter().fold(0, |checksum, unit| crc32c::crc32c_append(checksum, unit));
    println!(
        "{} {} pages, {rows} rows, {} units, CRC-32C {checksum:08x}",
        level.name(),
        heap.len() / BLOCK_BYTES,
        units.len()
    );
    println!(
        "heap {:.1} MB, units {:.1} MB, ratio {:.2}",
        heap.len() as f64 / 1e6,
        total as f64 / 1e6,
        heap.len() as f64 / total as f64
    );
    println!(
        "encoded at {:.0} MB/s, verified at {:.0} MB/s, both at {:.0} MB/s; opening takes {:.0} us a unit",
        heap.len() as f64 / 1e6 / encoding,
        heap.len() as f64 / 1e6 / verifying,
        heap.len() as f64 / 1e6 / (encoding + verifying),
        opening * 1e6 / units.len() as f64
    );
    let line = |name: String, bytes: u64, coding: String| {
        if bytes * 2000 > total {
            println!("  {name:24} {:9.2} MB {:6.3} B/row  {coding}", bytes as f64 / 1e6, bytes as f64 / rows as f64);
        }
    };
    line("directory".into(), opened.iter().map(Unit::directory_bytes).sum(), String::new());
    line("patches and raw pages".into(), opened.iter().map(Unit::residue_bytes).sum(), String::new());
    for field in HEADER_FIELDS {
        let chunks = || opened.iter().flat_map(|unit| unit.chunks()).map(|chunk| chunk.header(field));
        let coding = chunks().next().map_or("", |chunk| chunk.encoding_name());
        line(format!("{field:?}"), chunks().map(|chunk| chunk.data_bytes() as u64).sum(), coding.into());
    }
    for index in 0..shape.attributes.len() {
        let chunks = || opened.iter().flat_map(|unit| unit.column(index));
        let coding = chunks().next().map_or(String::new(), |chunk| chunk.encoding_name());
        line(format!("attribute {}", index + 1), chunks().map(|chunk| chunk.data_bytes() as u64).sum(), coding);
    }

    let mut page = [0; BLOCK_BYTES];
    let mut rebuilder = Rebuilder::new();
    let start = cpu_seconds();
    for (unit, source) in opened.iter().zip(&units) {
        for number in 0..unit.pages().len() {
            rebuilder.page(unit, source, number, &mut page).expect("the page is rebuilt");
        }
    }
    println!("all pages rebuilt at {:.0} MB/s", heap.len() as f64 / 1e6 / (cpu_seconds() - start));
    let mut times = Vec::new();
    let mut random = 0usize;
    for _ in 0..2000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let index = (random >> 33) % units.len();
        let number = (random >> 13) % opened[index].pages().len();
        let start = Instant::now();
        rebuilder.page(&opened[index], &units[index], number, &mut page).expect("the page is rebuilt");
        times.push(start.elapsed().as_secs_f64() * 1e6);
        assert_eq!(page[..], heap[(index * unit_pages + number) * BLOCK_BYTES..][..BLOCK_BYTES]);
        // Every page is measured without decoded blocks of the one before.
        rebuilder.clear();
    }
    println!("a random page: {:.1} us p50, {:.1} us p99", percentile(&mut times, 0.5), percentile(&mut times, 0.99));
}
