//! Measures the throughput of compression and the latency of page reads:
//! `cargo run --release -p cellar-cell --example page_latency -- HEAP_FILE COLUMNS FOLDER [LEVEL [PAGES [READS]]]`.
//!
//! COLUMNS and LEVEL have the syntax of `unit_tool`. The program creates a cell disk in FOLDER and removes the folder
//! at the end. It stores the first PAGES pages of HEAP_FILE raw and reads pages at random, then compresses the file and
//! reads again; every read is compared with the original page. The time of the compression includes the storage's
//! verification. In the warm measurement, units are in the kernel's page cache and their directories are in memory; in
//! the cold measurement, a hundredth of the reads, neither is.

#[path = "../../scan/examples/columns/mod.rs"]
mod columns;

use cellar_cell::access::{Credentials, Permission};
use cellar_cell::compression::{CompressionError, compress};
use cellar_cell::relation::Segments;
use cellar_cell::state::{CellState, UnitDirectories};
use cellar_cell::unit_codec::Codec;
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::{BlockRange, Relation};
use cellar_scan::Account;
use cellar_storage::disk::{DirectoryDisk, Disk};
use cellar_storage::{Ino, Kind, NewNode, ROOT_INO, Volume, VolumeOptions};
use columns::percentile;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::resource::{UsageWho, getrusage};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Drops the folder's files from the kernel's page cache.
fn drop_page_cache(folder: &Path) {
    for entry in std::fs::read_dir(folder).expect("a folder can be listed") {
        let path = entry.expect("a folder can be listed").path();
        if path.is_dir() {
            drop_page_cache(&path);
        } else {
            let file = std::fs::File::open(&path).expect("a file of the disk can be opened");
            posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).expect("the kernel accepts the advice");
        }
    }
}

/// Reads pages at random and calls `before` before each read. Returns the times of the second half in microseconds; the
/// first half warms up.
fn measure(volume: &Volume, ino: Ino, heap: &[u8], reads: usize, before: impl Fn()) -> Vec<f64> {
    let mut page = [0; BLOCK_BYTES];
    let mut times = Vec::new();
    let mut position = 0usize;
    for read in 0..2 * reads {
        position = position.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (position >> 20) % (heap.len() / BLOCK_BYTES) * BLOCK_BYTES;
        before();
        let start = Instant::now();
        volume.read(ino, at as u64, &mut page).expect("the page can be read");
        if read >= reads {
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        assert_eq!(page[..], heap[at..at + BLOCK_BYTES], "page {}", at / BLOCK_BYTES);
    }
    times
}

/// Returns the CPU time of the process in seconds.
fn cpu_seconds() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process can read its own usage");
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}

fn print(what: &str, mut times: Vec<f64>) {
    println!("{what}: {:.1} us p50, {:.1} us p99", percentile(&mut times, 0.5), percentile(&mut times, 0.99));
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize| arguments.get(index).map(String::as_str);
    let number = |index: usize, default: usize| argument(index).map_or(default, |text| text.parse().expect("a number"));
    let file = argument(0).expect("HEAP_FILE");
    let shape = columns::shape(argument(1).expect("COLUMNS"));
    let folder = Path::new(argument(2).expect("FOLDER"));
    let level = columns::level(argument(3).unwrap_or("low"));
    let (pages, reads) = (number(4, 8192), number(5, 5000));
    let mut heap = Vec::new();
    let opened = std::fs::File::open(file).expect("the heap file can be opened");
    opened.take((pages * BLOCK_BYTES) as u64).read_to_end(&mut heap).expect("the heap file can be read");
    heap.truncate(heap.len() / BLOCK_BYTES * BLOCK_BYTES);

    let disk = Arc::new(DirectoryDisk::new(folder).expect("the cell disk can be created")) as Arc<dyn Disk>;
    let options = VolumeOptions { unit_codec: Some(Arc::new(Codec::default())), ..VolumeOptions::default() };
    let volume = Volume::open(vec![disk], options).expect("the volume opens");
    let new = NewNode { kind: Kind::File, mode: 0o600, uid: 0, gid: 0, device: 0, target: b"" };
    let ino = volume.create(ROOT_INO, b"heap", &new).expect("the file can be created").ino;
    let au_bytes = volume.au_bytes(ino).expect("a file has allocation units") as usize;
    for (au, pages) in heap.chunks(au_bytes).enumerate() {
        volume.write(ino, (au * au_bytes) as u64, pages).expect("the file can be written");
    }
    volume.fsync(ino).expect("the file can be synced");
    print("a raw page", measure(&volume, ino, &heap, reads, || {}));
    let relation = Relation {
        file: "heap".into(),
        segment_blocks: u32::MAX,
        checksums: false,
        encoding: 6,
        attributes: Vec::new(),
    };
    let state = CellState::new(volume.clone(), Arc::default(), Arc::default());
    let range = BlockRange { first: 0, end: (heap.len() / BLOCK_BYTES) as u32 };
    let units = Segments::new(volume.clone(), &relation, Credentials::root(), Permission::Read)
        .allocation_units(range)
        .expect("the file has a size");
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let report = |_| Ok::<_, CompressionError>(());
    let done = compress(&state, &units, &shape, Some(level), report).expect("the pages can be compressed");
    drop(state);
    assert_eq!(done.units_skipped, 0);
    let rate = |seconds: f64| heap.len() as f64 / 1e6 / seconds;
    println!(
        "compressed at {:.0} MB/s, {:.0} MB per CPU second",
        rate(start.elapsed().as_secs_f64()),
        rate(cpu_seconds() - cpu)
    );
    print(&format!("a page at {}", level.name()), measure(&volume, ino, &heap, reads, || {}));
    volume.close().expect("the volume can be closed");
    drop(volume);

    let disk = Arc::new(DirectoryDisk::new(folder).expect("the cell disk exists")) as Arc<dyn Disk>;
    let codec = Codec::new(Arc::new(UnitDirectories::new(&Account::new(0))));
    let options = VolumeOptions { unit_codec: Some(Arc::new(codec)), ..VolumeOptions::default() };
    let volume = Volume::open(vec![disk], options).expect("the volume opens");
    let cold = measure(&volume, ino, &heap, reads.div_ceil(100), || drop_page_cache(folder));
    print(&format!("a page at {}, cold", level.name()), cold);
    volume.close().expect("the volume can be closed");
    std::fs::remove_dir_all(folder).expect("the folder can be removed");
}
