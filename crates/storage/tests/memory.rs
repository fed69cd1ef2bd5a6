//! The memory of metadata: bytes per file, per written region and per allocation unit with a compression unit. These
//! bounds are part of docs/operations.md.
//!
//! The test is the only one in its process, because it counts the bytes that the whole process has allocated.

mod support;

use cellar_storage::{AuSize, UnitStored, Volume, VolumeOptions};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};
use support::codec::{PAGE, compress};
use support::{MIB, create, disks, options};

/// Counts the allocated bytes.
struct Counting;

static ALLOCATED: AtomicI64 = AtomicI64::new(0);

// SAFETY: all memory comes from the system's allocator; counting does not change pointers or layouts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `add`, which adds `count` things to the volume, and returns the bytes per thing that stay allocated.
fn bytes_each(volume: &Volume, count: u64, add: impl FnOnce()) -> i64 {
    // A sync empties the lists of changes that are not committed.
    volume.sync().unwrap();
    let before = ALLOCATED.load(Ordering::Relaxed);
    add();
    volume.sync().unwrap();
    (ALLOCATED.load(Ordering::Relaxed) - before) / count as i64
}

#[test]
fn files_regions_and_allocation_units_need_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let options = VolumeOptions { au_size: AuSize::DEFAULT, cache_bytes: MIB, ..options() };
    let volume = Volume::open(disks(folder.path(), 2), options).unwrap();
    let au_bytes = AuSize::DEFAULT.bytes();

    const FILES: u64 = 1000;
    let per_file = bytes_each(&volume, FILES, || {
        for number in 0..FILES {
            create(&volume, &format!("{}", 16384 + number));
        }
    });
    let ino = create(&volume, "table");
    const UNITS: u64 = 16;
    const REGIONS: u64 = 1000;
    let per_region = bytes_each(&volume, REGIONS, || {
        let first = UNITS * au_bytes / MIB;
        for region in first..first + REGIONS {
            volume.write(ino, region * MIB, &[1; PAGE]).unwrap();
        }
    });
    let pages: Vec<u8> = (0..UNITS * au_bytes).map(|at| (at / PAGE as u64 * 7 + at % 64) as u8).collect();
    volume.write(ino, 0, &pages).unwrap();
    volume.fsync(ino).unwrap();
    drop(pages);
    let per_unit = bytes_each(&volume, UNITS, || {
        (0..UNITS).for_each(|au| assert_eq!(compress(&volume, ino, au, 1).unwrap(), UnitStored::Stored));
    });
    println!("{per_file} bytes per file, {per_region} per written region, {per_unit} per unit");
    assert!((1..=2048).contains(&per_file), "{per_file} bytes per file");
    assert!((1..=64).contains(&per_region), "{per_region} bytes per written region");
    assert!((1..=2048).contains(&per_unit), "{per_unit} bytes per allocation unit with a compression unit");
    volume.close().unwrap();
}
