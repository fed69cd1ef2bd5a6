//! What compressing a file costs, as the cell does it on command, and then reading one page of it, as the mount does:
//! `cargo run --release -p cellar-cell --example page_latency -- HEAP_FILE COLUMNS FOLDER [LEVEL [PAGES [READS]]]`.
//!
//! COLUMNS and LEVEL are those of `unit_tool`. FOLDER is made to hold a cell disk, and removed. The first PAGES pages of
//! the file are stored raw and read at random, then compressed and read again; every page is compared. Compressing is
//! timed with the storage's own verification, in all and by the CPU time of the process. What the units have on disk is
//! in the kernel's page cache, and their directories are in memory; then, for a hundredth of the reads, neither is.

#[path = "../../scan/examples/columns/mod.rs"]
mod columns;

use cellar_cell::compression::{Codec, CompressionError, UnitTable, Unpaid, compress};
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::{Attribute, BlockRange, CompressRequest, Missing, ScanMode, ScanRequest, Snapshot};
use cellar_storage::disk::{DirectoryDisk, Disk};
use cellar_storage::{Ino, Kind, NewNode, ROOT_INO, Volume, VolumeOptions};
use columns::percentile;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::resource::{UsageWho, getrusage};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Has the kernel forget what it keeps of the folder's files.
fn forget(folder: &Path) {
    for entry in std::fs::read_dir(folder).expect("a folder can be listed") {
        let path = entry.expect("a folder can be listed").path();
        if path.is_dir() {
            forget(&path);
        } else {
            let file = std::fs::File::open(&path).expect("a file of the disk can be opened");
            posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).expect("advice is taken");
        }
    }
}

/// Reads pages at random, each after `before`; the times of the second half, in microseconds.
fn measure(volume: &Volume, ino: Ino, heap: &[u8], reads: usize, before: impl Fn()) -> Vec<f64> {
    let mut page = [0; BLOCK_BYTES];
    let mut times = Vec::new();
    let mut place = 0usize;
    for read in 0..2 * reads {
        place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (place >> 20) % (heap.len() / BLOCK_BYTES) * BLOCK_BYTES;
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

/// CPU time of the process in seconds.
fn cpu_seconds() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process can ask for its own usage");
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

    let disk = Arc::new(DirectoryDisk::new(folder).expect("a cell disk can be made")) as Arc<dyn Disk>;
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
    let attribute = |of: &cellar_scan::unit::Attribute| Attribute {
        type_oid: of.type_oid,
        typmod: -1,
        width: of.width,
        align: of.align,
        by_value: of.by_value,
        missing: Missing::Null,
    };
    let relation = ScanRequest {
        file: "heap".into(),
        segment_blocks: u32::MAX,
        checksums: false,
        encoding: 6,
        attributes: shape.attributes.iter().map(attribute).collect(),
        quals: Vec::new(),
        projection: Vec::new(),
        mode: ScanMode::Rows,
        snapshot: Snapshot::default(),
        threads: 1,
        aggregation: None,
        top_n: None,
    };
    let range = BlockRange { first: 0, end: (heap.len() / BLOCK_BYTES) as u32 };
    let request = CompressRequest { level: level as u8, range, relation };
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let tell = |_| Ok::<_, CompressionError>(());
    let done = compress(&volume, &Unpaid::default(), &request, &AtomicBool::new(false), tell).expect("it compresses");
    assert_eq!(done.units_skipped, 0);
    let rate = |seconds: f64| heap.len() as f64 / 1e6 / seconds;
    println!(
        "compressed at {:.0} MB/s, {:.0} MB a CPU second",
        rate(start.elapsed().as_secs_f64()),
        rate(cpu_seconds() - cpu)
    );
    print(&format!("a page at {}", level.name()), measure(&volume, ino, &heap, reads, || {}));
    volume.close().expect("the volume can be closed");
    drop(volume);

    let disk = Arc::new(DirectoryDisk::new(folder).expect("the cell disk is there")) as Arc<dyn Disk>;
    let codec = Codec::new(Arc::new(UnitTable::with_max(0)));
    let options = VolumeOptions { unit_codec: Some(Arc::new(codec)), ..VolumeOptions::default() };
    let volume = Volume::open(vec![disk], options).expect("the volume opens");
    let cold = measure(&volume, ino, &heap, reads.div_ceil(100), || forget(folder));
    print(&format!("a page at {}, cold", level.name()), cold);
    volume.close().expect("the volume can be closed");
    std::fs::remove_dir_all(folder).expect("the folder can be removed");
}
