//! Concurrent readers, writers, syncs and scans while compression units are stored and decompressed.

use crate::support;
use cellar_format::ByteSource;
use cellar_format::units::{AuIndex, PageInAu, RegionIndex, RegionVersion};
use cellar_storage::{Fallocate, Ino, UnitCodec, Volume, VolumeOptions};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::codec::{PAGE, PageCodec, compress};
use support::memory_disk::{Crash, MemoryDisks};
use support::{MIB, Random, create, disks, options, read_all};

const AUS: u64 = 2;
const PAGES: u64 = AUS * MIB / PAGE as u64;

/// Stops the other threads, also if an assertion fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns whether a page is filled with one number, as every page is at any time.
fn one_fill(page: &[u8]) -> bool {
    page.iter().all(|byte| *byte == page[0])
}

/// Scans an allocation unit like a cell: current pages from the unit, the rest from the file. None if the allocation
/// unit changed meanwhile.
fn scan(volume: &Volume, ino: Ino, au: u64) -> Option<(RegionVersion, Vec<u8>)> {
    let reader = volume.unit_reader(ino, AuIndex(au)).unwrap()?;
    assert!(reader.length() > 0);
    let mut fills = Vec::new();
    for page in 0..reader.superseded().page_count() {
        let mut bytes = vec![0; PAGE];
        if reader.superseded().contains(PageInAu(page)) {
            volume.read(ino, au * MIB + u64::from(page) * PAGE as u64, &mut bytes).unwrap();
        } else {
            let mut unit = PageCodec.open(&reader, reader.id()).unwrap();
            unit.rebuild(&reader, page..page + 1, &mut bytes).unwrap();
            assert!(one_fill(&bytes), "page {page} of unit {au}");
        }
        fills.push(bytes[0]);
    }
    (volume.au_version(ino, AuIndex(au)).unwrap() == reader.version()).then(|| (reader.version(), fills))
}

fn check(options: VolumeOptions) {
    let folder = tempfile::tempdir().unwrap();
    let volume = &*Volume::open(disks(folder.path(), 2), options).unwrap();
    let ino = create(volume, "file");
    volume.write(ino, 0, &vec![1; (AUS * MIB) as usize]).unwrap();
    volume.fsync(ino).unwrap();
    let stopped = &AtomicBool::new(false);
    let running = || !stopped.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        // Two writers, each with its own pages, which read back their writes.
        for writer in 0..2 {
            let mut random = Random::from_environment();
            scope.spawn(move || {
                let _stop = Stop(stopped);
                let mut written = HashMap::new();
                while running() {
                    let page = random.below(PAGES / 2) * 2 + writer;
                    let fill = random.next() as u8;
                    volume.write(ino, page * PAGE as u64, &[fill; PAGE]).unwrap();
                    written.insert(page, fill);
                    let (page, fill) = written.iter().nth(random.below(written.len() as u64) as usize).unwrap();
                    let mut bytes = [0; PAGE];
                    volume.read(ino, page * PAGE as u64, &mut bytes).unwrap();
                    assert!(bytes == [*fill; PAGE], "page {page} of writer {writer}: {} and {}", bytes[0], bytes[4096]);
                    // Sometimes pause long enough for a unit to be stored.
                    match random.below(64) {
                        0 => std::thread::sleep(Duration::from_millis(150)),
                        1..8 => std::thread::sleep(Duration::from_millis(1)),
                        _ => {}
                    }
                }
            });
        }
        scope.spawn(move || {
            let _stop = Stop(stopped);
            while running() {
                volume.fsync(ino).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        scope.spawn(move || {
            let _stop = Stop(stopped);
            let (mut random, mut versions) = (Random::from_environment(), HashMap::new());
            while running() {
                let au = random.below(AUS);
                if let Some((version, fills)) = scan(volume, ino, au) {
                    let known = versions.entry((au, version)).or_insert_with(|| fills.clone());
                    assert!(*known == fills, "version {version} of unit {au} has two contents");
                }
                let guard = volume.region(ino, RegionIndex(au as u32)).unwrap();
                assert!(guard.chunks_exact(PAGE).all(one_fill), "a torn page in region {au}");
            }
        });
        let _stop = Stop(stopped);
        let mut random = Random::from_environment();
        let (started, mut stored) = (Instant::now(), 0);
        while running() && started.elapsed() < Duration::from_secs(4) {
            let au = random.below(AUS);
            // Mostly not stored, because of the writers.
            stored += (compress(volume, ino, au, 0).unwrap() == cellar_storage::UnitStored::Stored) as u32;
            if random.below(16) == 0 {
                volume.decompress(ino, AuIndex(au)).unwrap();
            }
        }
        println!("{stored} units stored");
    });
    let cached = volume.region(ino, RegionIndex(1)).unwrap().to_vec();
    let mut read = vec![0; MIB as usize];
    volume.read(ino, MIB, &mut read[..]).unwrap();
    assert!(cached == read);
    volume.close().unwrap();
}

#[test]
fn units_are_stored_and_decompressed_under_load_with_a_cache() {
    check(options());
}

#[test]
fn units_are_stored_and_decompressed_under_load_without_a_cache() {
    check(VolumeOptions { cache_bytes: 0, ..options() });
}

/// PostgreSQL extends relations by fallocate while its checkpointer syncs the same file.
#[test]
fn fallocate_reserves_space_during_a_sync_of_the_same_file() {
    for has_unit in [false, true] {
        let disks = MemoryDisks::new(2);
        let volume = &*Volume::open(disks.disks(), options()).unwrap();
        let ino = create(volume, "file");
        volume.write(ino, 0, &vec![1; MIB as usize]).unwrap();
        volume.fsync(ino).unwrap();
        if has_unit {
            compress(volume, ino, 0, 0).unwrap();
        }
        volume.write(ino, 0, &[2; PAGE]).unwrap();
        disks.hold_syncs(true);
        std::thread::scope(|scope| {
            let sync = scope.spawn(|| volume.fsync(ino));
            while !disks.is_sync_held() {
                std::thread::yield_now();
            }
            let (sender, reserved) = std::sync::mpsc::channel();
            scope.spawn(move || {
                for keep_size in [false, true] {
                    volume.fallocate(ino, MIB, 2 * MIB, Fallocate::Reserve { keep_size }).unwrap();
                }
                let _ = sender.send(());
            });
            let reserved = reserved.recv_timeout(Duration::from_secs(5));
            let is_syncing = disks.is_sync_held() && !sync.is_finished();
            disks.hold_syncs(false);
            sync.join().unwrap().unwrap();
            assert!(reserved.is_ok() && is_syncing, "fallocate waits for the sync, unit: {has_unit}");
        });
        // The held sync did not include the new size; the next sync does.
        volume.fsync(ino).unwrap();
        volume.abandon();
        let crashed = disks.crash(Crash::Power, &mut Random::from_environment());
        let volume = Volume::open(crashed.disks(), options()).unwrap();
        let bytes = read_all(&volume, ino);
        assert_eq!(bytes.len() as u64, 3 * MIB);
        assert!(bytes[..PAGE] == [2; PAGE] && bytes[PAGE..MIB as usize].iter().all(|byte| *byte == 1));
    }
}
