//! Regions as scans see them: whole pages, current bytes, and a new version with every change.

use crate::support;
use cellar_format::units::RegionIndex;
use cellar_storage::{Fallocate, Ino, Volume, VolumeOptions};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::{MIB, Random, create, disks, open, options};

const PAGE: usize = 8192;

fn filled(volume: &Volume, name: &str, mib: u64) -> Ino {
    let ino = create(volume, name);
    let data: Vec<u8> = (0..mib * MIB).map(|at| (at / PAGE as u64) as u8).collect();
    volume.write(ino, 0, &data).unwrap();
    volume.fsync(ino).unwrap();
    ino
}

#[test]
fn a_region_is_read_from_disk_once_and_then_from_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 2);
    let ino = filled(&volume, "file", 3);
    volume.write(ino, 3 * MIB, &[5; 100]).unwrap();
    let first = volume.region(ino, RegionIndex(1)).unwrap();
    assert_eq!((first.cost().disk_bytes, first.cost().disk_requests, first.len() as u64), (MIB, 1, MIB));
    drop(first);
    let second = volume.region(ino, RegionIndex(1)).unwrap();
    assert_eq!((second.cost().disk_bytes, second.cost().disk_requests), (0, 0));
    drop(second);
    assert_eq!(volume.region(ino, RegionIndex(3)).unwrap()[..], [5; 100], "short at the end of the file");
    assert!(volume.region(ino, RegionIndex(4)).unwrap().is_empty());
    let stats = volume.cache_stats();
    assert_eq!((stats.hits, stats.misses, stats.used_bytes), (1, 2, 2 * MIB));
}

#[test]
fn the_first_reader_of_a_prefetched_region_reports_its_cost() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 2);
    let ino = filled(&volume, "file", 4);
    volume.prefetch(ino, RegionIndex(0)..RegionIndex(100));
    let started = Instant::now();
    while volume.cache_stats().used_bytes < 4 * MIB {
        assert!(started.elapsed() < Duration::from_secs(10));
        std::thread::yield_now();
    }
    assert_eq!(volume.region(ino, RegionIndex(2)).unwrap().cost().disk_bytes, MIB);
    assert_eq!(volume.region(ino, RegionIndex(2)).unwrap().cost().disk_bytes, 0);
}

#[test]
fn a_region_with_a_torn_block_is_not_whole() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 2);
    let ino = filled(&volume, "file", 2);
    let is_whole = |region| volume.region(ino, RegionIndex(region)).unwrap().is_whole();
    let block = MIB + 5 * PAGE as u64;
    // The kernel splits writes at page boundaries of the writer's buffer.
    for (cut, whole) in [(0..1792, false), (1792..5888, false), (5888..PAGE, true)] {
        volume.write(ino, block + cut.start as u64, &[9; PAGE][cut]).unwrap();
        assert_eq!((is_whole(0), is_whole(1)), (true, whole));
        assert_eq!(volume.has_torn_block(ino, block..block + PAGE as u64).unwrap(), !whole);
    }
    volume.write(ino, block, &[1; 100]).unwrap();
    assert!(!is_whole(1));
    volume.write(ino, block - PAGE as u64, &[2; 3 * PAGE]).unwrap();
    assert!(is_whole(1), "a write of the whole block completes it");
}

#[test]
fn every_change_changes_the_versions_of_the_regions_that_it_touches() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 2);
    let ino = filled(&volume, "file", 4);
    let versions = || (0..4).map(|region| volume.region_version(ino, RegionIndex(region))).collect::<Vec<_>>();
    let changed = |change: &dyn Fn()| {
        let before = versions();
        change();
        before.iter().zip(versions()).map(|(before, after)| *before != after).collect::<Vec<_>>()
    };
    assert_eq!(changed(&|| drop(volume.write(ino, 2 * MIB - 1, b"ab"))), [false, true, true, false]);
    let punch = || volume.fallocate(ino, 3 * MIB, 10, Fallocate::PunchHole).unwrap();
    assert_eq!(changed(&punch), [false, false, false, true]);
    assert_eq!(changed(&|| volume.truncate(ino, MIB + 1).unwrap()), [false, true, true, true]);
    assert_eq!(changed(&|| volume.truncate(ino, 4 * MIB).unwrap()), [false, true, true, true]);
    let guard = volume.region(ino, RegionIndex(0)).unwrap();
    assert_eq!(guard.version(), volume.region_version(ino, RegionIndex(0)));
}

#[test]
fn the_last_region_grows_when_a_later_region_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 2);
    let ino = create(&volume, "file");
    volume.write(ino, 0, b"abc").unwrap();
    let guard = volume.region(ino, RegionIndex(0)).unwrap();
    let version = guard.version();
    assert_eq!(guard[..], *b"abc");
    drop(guard);
    volume.write(ino, 2 * MIB, b"x").unwrap();
    assert_ne!(volume.region_version(ino, RegionIndex(0)), version);
    let guard = volume.region(ino, RegionIndex(0)).unwrap();
    assert_eq!(guard.len() as u64, MIB);
    assert!(guard.starts_with(b"abc\0"));
}

#[test]
fn cached_regions_follow_writes_truncates_and_extensions() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 2);
    let ino = filled(&volume, "file", 2);
    let region = |number| volume.region(ino, RegionIndex(number)).unwrap().to_vec();
    region(1);
    volume.write(ino, MIB + 5, b"new").unwrap();
    assert_eq!(&region(1)[5..8], b"new");
    volume.truncate(ino, MIB + 6).unwrap();
    assert_eq!(&region(1)[5..], b"n");
    volume.write(ino, MIB + 20, b"z").unwrap();
    assert_eq!(&region(1)[5..], b"n\0\0\0\0\0\0\0\0\0\0\0\0\0\0z");
    volume.truncate(ino, MIB + 22).unwrap();
    assert_eq!(&region(1)[20..], b"z\0");
    let mut read = [9; 30];
    assert_eq!(volume.read(ino, MIB, &mut read).unwrap(), 22);
    assert_eq!(read[..22], region(1)[..22]);
}

/// Stops the other threads of a test, also if an assertion fails.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writers fill whole pages with one number. A scan must see every page filled with one number, and the same content
/// for the same version.
fn no_torn_page(options: VolumeOptions) {
    const PAGES: u64 = 3 * MIB / PAGE as u64;
    let folder = tempfile::tempdir().unwrap();
    let volume = Volume::open(disks(folder.path(), 2), options).unwrap();
    let ino = filled(&volume, "file", 3);
    let stop = Arc::new(AtomicBool::new(false));
    let mut random = Random::from_environment();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (mut random, volume, stop) = (Random::from_environment(), &volume, stop.clone());
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let fill = random.next() as u8;
                    let pages = 1 + random.below(3);
                    let first = random.below(PAGES - pages);
                    volume.write(ino, first * PAGE as u64, &vec![fill; PAGE * pages as usize]).unwrap();
                }
            });
        }
        let syncer = (&volume, stop.clone());
        scope.spawn(move || {
            while !syncer.1.load(Ordering::Relaxed) {
                syncer.0.fsync(ino).unwrap();
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        let _stop = StopOnDrop(stop.clone());
        let started = Instant::now();
        let (mut scans, mut seen) = (0, HashMap::new());
        while started.elapsed() < Duration::from_secs(2) {
            let region = random.below(3) as u32;
            if random.below(4) == 0 {
                volume.prefetch(ino, RegionIndex(0)..RegionIndex(3));
            }
            let guard = volume.region(ino, RegionIndex(region)).unwrap();
            for (number, page) in guard.chunks_exact(PAGE).enumerate() {
                assert!(page.iter().all(|byte| *byte == page[0]), "torn page {number} of region {region}");
            }
            let fills: Vec<u8> = guard.iter().step_by(PAGE).copied().collect();
            let known = seen.entry((region, guard.version())).or_insert_with(|| fills.clone());
            assert!(*known == fills, "version {} of region {region} has two contents", guard.version());
            scans += 1;
            drop(guard);
        }
        assert!(scans > 10, "{scans}");
    });
    // The cache and the file have the same content.
    for region in 0..3 {
        let cached = volume.region(ino, RegionIndex(region)).unwrap().to_vec();
        let mut read = vec![0; 2 * MIB as usize];
        let count = volume.read(ino, u64::from(region) * MIB, &mut read).unwrap().min(MIB as usize);
        assert!(cached[..] == read[..count], "region {region}");
    }
}

#[test]
fn scans_see_no_torn_page_with_a_cache() {
    no_torn_page(options());
}

#[test]
fn scans_see_no_torn_page_with_a_cache_that_evicts() {
    no_torn_page(VolumeOptions { cache_bytes: 2 * MIB, ..options() });
}

#[test]
fn scans_see_no_torn_page_without_a_cache() {
    no_torn_page(VolumeOptions { cache_bytes: 0, ..options() });
}

/// While a file grows page by page, a region has one length per version.
fn one_length_per_version(options: VolumeOptions) {
    let folder = tempfile::tempdir().unwrap();
    let volume = Volume::open(disks(folder.path(), 2), options).unwrap();
    let newest = AtomicU64::new(create(&volume, "0"));
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (stopped, volume, newest) = (stop.clone(), &volume, &newest);
        scope.spawn(move || {
            for number in 1.. {
                let ino = newest.load(Ordering::Relaxed);
                for page in 0..2 * MIB / PAGE as u64 {
                    if stopped.load(Ordering::Relaxed) {
                        return;
                    }
                    volume.write(ino, page * PAGE as u64, &[1; PAGE]).unwrap();
                }
                newest.store(create(volume, &number.to_string()), Ordering::Relaxed);
            }
        });
        let _stop = StopOnDrop(stop);
        let (started, mut seen) = (Instant::now(), HashMap::new());
        while started.elapsed() < Duration::from_secs(2) {
            let ino = newest.load(Ordering::Relaxed);
            for region in 0..2 {
                let guard = volume.region(ino, RegionIndex(region)).unwrap();
                assert!(guard.iter().step_by(PAGE).all(|byte| *byte == 1), "a page is visible before its bytes");
                let known = *seen.entry((ino, region, guard.version())).or_insert(guard.len());
                assert_eq!(known, guard.len(), "version {} of region {region}", guard.version());
            }
        }
    });
}

#[test]
fn a_growing_region_has_one_length_per_version_with_a_cache() {
    one_length_per_version(options());
}

#[test]
fn a_growing_region_has_one_length_per_version_without_a_cache() {
    one_length_per_version(VolumeOptions { cache_bytes: 0, ..options() });
}
