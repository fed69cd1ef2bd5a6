//! Failing disks: an error is returned to the caller that it concerns, is never lost, and never causes wrong bytes.

use crate::support;
use cellar_format::units::{AuIndex, RegionIndex};
use cellar_storage::disk::{Disk, Fault, FaultyDisk, Stream};
use cellar_storage::{ErrorKind, Ino, ROOT_INO, Volume, VolumeOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::codec::{compress, superseded};
use support::{MIB, create, disks, options, read_all};

const EIO: i32 = libc::EIO;

fn faulty(folder: &std::path::Path, options: VolumeOptions) -> (Vec<Arc<FaultyDisk>>, Arc<Volume>) {
    let wrap = |(seed, disk)| Arc::new(FaultyDisk::new(disk, seed as u64 + 1));
    let faulty: Vec<Arc<FaultyDisk>> = disks(folder, 2).into_iter().enumerate().map(wrap).collect();
    let as_disks = faulty.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect();
    (faulty, Volume::open(as_disks, options).unwrap())
}

fn set(disks: &[Arc<FaultyDisk>], faults: &[Fault]) {
    disks.iter().for_each(|disk| disk.set_faults(faults));
}

fn set_named(disks: &[Arc<FaultyDisk>], faults: &[Fault]) {
    disks.iter().for_each(|disk| disk.set_named_faults(faults));
}

/// Returns the bytes that a file's backing files occupy on the disks.
fn allocated(volume: &Volume, ino: Ino) -> u64 {
    volume.disks().iter().map(|disk| disk.measure(ino, Stream::Data).unwrap().1).sum()
}

fn two_blocks(volume: &Volume) -> Ino {
    let ino = create(volume, "file");
    volume.write(ino, 0, &[1; 8192]).unwrap();
    volume.write(ino, MIB, &[2; 8192]).unwrap();
    ino
}

#[test]
fn a_failed_write_returns_its_error_and_can_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let (disks, volume) = faulty(folder.path(), options());
    let ino = two_blocks(&volume);
    assert_eq!(volume.region(ino, RegionIndex(0)).unwrap()[..8192], [1; 8192]);
    let version = volume.region_version(ino, RegionIndex(0));
    set(&disks, &[Fault::Write { errno: EIO, one_in: 1 }]);
    assert_eq!(volume.write(ino, 0, &[3; 8192]).unwrap_err().errno(), EIO);
    assert!(disks.iter().any(|disk| disk.injected() > 0));
    set(&disks, &[]);
    assert_ne!(volume.region_version(ino, RegionIndex(0)), version);
    let bytes = read_all(&volume, ino);
    assert_eq!(
        volume.region(ino, RegionIndex(0)).unwrap()[..],
        bytes[..MIB as usize],
        "the cache and the disk have the same content"
    );
    let arrived = bytes.iter().take_while(|byte| **byte == 3).count();
    assert_eq!(bytes[arrived..8192], [1; 8192][arrived..]);
    volume.fsync(ino).unwrap();
    volume.write(ino, 0, &[3; 8192]).unwrap();
    assert_eq!(volume.region(ino, RegionIndex(0)).unwrap()[..8192], [3; 8192]);
    volume.abandon();
    drop((volume, disks));
    let volume = support::open(folder.path(), 2);
    let bytes = read_all(&volume, ino);
    assert!(bytes[..8192] == [3; 8192] && bytes[MIB as usize..] == [2; 8192]);
}

#[test]
fn a_sync_that_fails_repeatedly_returns_an_error_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let (disks, volume) = faulty(folder.path(), options());
    let ino = two_blocks(&volume);
    set(&disks, &[Fault::Sync { errno: EIO, one_in: 1 }]);
    for _ in 0..3 {
        assert_eq!(volume.fsync(ino).unwrap_err().errno(), EIO);
    }
    set(&disks, &[]);
    volume.fsync(ino).unwrap();
}

#[test]
fn a_failed_read_is_an_error_for_reads_and_scans_and_leaves_no_cached_region() {
    let folder = tempfile::tempdir().unwrap();
    let (disks, volume) = faulty(folder.path(), options());
    let ino = two_blocks(&volume);
    volume.fsync(ino).unwrap();
    set(&disks, &[Fault::Read { errno: EIO, one_in: 1 }]);
    assert_eq!(volume.read(ino, 0, &mut [0; 10]).unwrap_err().errno(), EIO);
    assert_eq!(volume.region(ino, RegionIndex(0)).map(drop).unwrap_err().errno(), EIO);
    volume.prefetch(ino, RegionIndex(0)..RegionIndex(2));
    std::thread::sleep(Duration::from_millis(100));
    set(&disks, &[]);
    assert_eq!(volume.region(ino, RegionIndex(0)).unwrap()[..8192], [1; 8192]);
    assert_eq!(volume.region(ino, RegionIndex(1)).unwrap()[..], [2; 8192]);
}

#[test]
fn a_failed_write_does_not_grow_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (disks, volume) = faulty(folder.path(), options());
    let ino = two_blocks(&volume);
    set(&disks, &[Fault::Write { errno: libc::ENOSPC, one_in: 1 }]);
    let error = volume.write(ino, MIB + 8192, &vec![3; 3 * MIB as usize]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    set(&disks, &[]);
    assert_eq!(volume.size(ino).unwrap(), MIB + 8192);
    volume.close().unwrap();
    drop((volume, disks));
    let volume = support::open(folder.path(), 2);
    assert_eq!(volume.size(ino).unwrap(), MIB + 8192, "after a restart");
}

/// A small filesystem. None without permission to mount; then the test does nothing.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(bytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("size={bytes}");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(folder.path())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_fails_the_write_and_space_of_unlinked_files_is_reused() {
    let Some(small) = SmallDisk::new(24 * MIB) else { return };
    let volume = support::open(small.0.path(), 2);
    let fill = |name: &str, byte: u8| {
        let ino = create(&volume, name);
        let mut written = 0;
        loop {
            match volume.write(ino, written, &[byte; 65536]) {
                Ok(_) => written += 65536,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                    break;
                }
            }
        }
        assert!(written > 10 * MIB, "{written}");
        assert_eq!(volume.size(ino).unwrap(), written, "a failed write does not grow the file");
        assert!(read_all(&volume, ino).iter().all(|found| *found == byte));
        volume.write(ino, 0, &[byte; 65536]).expect("an overwrite needs no new space");
        volume.fsync(ino).unwrap();
        volume.unlink(ROOT_INO, name.as_bytes()).unwrap();
        volume.forget(ino, 1);
    };
    fill("a", 1);
    fill("b", 2);
    volume.close().unwrap();
}

#[test]
fn a_failed_metadata_transaction_succeeds_once_the_disk_works_again() {
    let folder = tempfile::tempdir().unwrap();
    let (disks, volume) = faulty(folder.path(), options());
    for (round, fault) in
        [Fault::Write { errno: EIO, one_in: 1 }, Fault::Sync { errno: EIO, one_in: 1 }].iter().enumerate()
    {
        create(&volume, &format!("file{round}"));
        disks[1].set_named_faults(&[*fault]);
        for _ in 0..2 {
            assert_eq!(volume.fsyncdir(ROOT_INO).unwrap_err().errno(), EIO);
        }
        disks[1].set_named_faults(&[]);
        volume.fsyncdir(ROOT_INO).unwrap();
    }
    volume.abandon();
    drop((volume, disks));
    let volume = support::open(folder.path(), 2);
    assert!(volume.resolve("file0").is_some() && volume.resolve("file1").is_some());
}

#[test]
fn failed_background_commits_are_retried_with_increasing_delays_and_after_a_successful_sync() {
    let folder = tempfile::tempdir().unwrap();
    let (disks, volume) = faulty(folder.path(), options());
    disks[1].set_named_faults(&[Fault::Sync { errno: EIO, one_in: 1 }]);
    let other = create(&volume, "other");
    volume.fsync(other).unwrap_err();
    let before = disks[1].injected();
    std::thread::sleep(Duration::from_millis(6500));
    // After about 1 and 3 s; the next retry is due 4 s later.
    let attempts = disks[1].injected() - before;
    assert!((1..=2).contains(&attempts), "{attempts}");
    disks[1].set_named_faults(&[]);
    volume.fsync(other).unwrap();
    create(&volume, "file");
    std::thread::sleep(Duration::from_millis(2500));
    volume.abandon();
    drop((volume, disks));
    let volume = support::open(folder.path(), 2);
    assert!(volume.resolve("file").is_some(), "a commit in the background follows a successful sync at once");
}

/// Without a transaction of the maintenance thread, a file that no sync made durable does not exist after a restart.
fn assert_maintenance_commits(volume: Arc<Volume>, disks: Vec<Arc<FaultyDisk>>, folder: &std::path::Path, name: &str) {
    create(&volume, name);
    std::thread::sleep(Duration::from_millis(3500));
    volume.abandon();
    drop((volume, disks));
    assert!(support::open(folder, 2).resolve(name).is_some(), "the maintenance thread no longer commits");
}

#[test]
fn a_panic_in_a_metadata_transaction_is_an_error_and_loses_no_change() {
    let folder = tempfile::tempdir().unwrap();
    let (disks, volume) = faulty(folder.path(), options());
    create(&volume, "before");
    set_named(&disks, &[Fault::WritePanic]);
    for _ in 0..2 {
        assert_eq!(volume.fsyncdir(ROOT_INO).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    std::thread::sleep(Duration::from_millis(1500));
    set_named(&disks, &[]);
    volume.fsyncdir(ROOT_INO).unwrap();
    assert_maintenance_commits(volume, disks, folder.path(), "after");
    assert!(support::open(folder.path(), 2).resolve("before").is_some());
}

#[test]
fn maintenance_continues_after_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let (disks, volume) = faulty(folder.path(), options());
    let ino = create(&volume, "file");
    volume.write(ino, 0, &vec![7; MIB as usize]).unwrap();
    volume.fsync(ino).unwrap();
    // The transaction of the unit fails, so that the maintenance thread repeats it and punches the raw pages.
    set_named(&disks, &[Fault::Write { errno: EIO, one_in: 1 }]);
    compress(&volume, ino, 0, 0).unwrap_err();
    set(&disks, &[Fault::WritePanic]);
    set_named(&disks, &[]);
    let started = std::time::Instant::now();
    while volume.fsyncdir(ROOT_INO).is_err() || disks.iter().all(|disk| disk.panics() == 0) {
        assert!(started.elapsed() < Duration::from_secs(10), "the maintenance thread did not punch");
        std::thread::sleep(Duration::from_millis(50));
    }
    set(&disks, &[]);
    assert_maintenance_commits(volume, disks, folder.path(), "after");
}

#[test]
fn a_panic_during_the_load_of_a_region_leaves_neither_a_pin_nor_bytes_in_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let (disks, volume) = faulty(folder.path(), options());
    let ino = create(&volume, "file");
    volume.write(ino, 0, &vec![1; 16 * MIB as usize]).unwrap();
    let other = create(&volume, "other");
    volume.write(other, 0, &vec![2; 16 * MIB as usize]).unwrap();
    // Every slot of the cache contains a region of the other file.
    (0..16).for_each(|region| drop(volume.region(other, RegionIndex(region)).unwrap()));
    set(&disks, &[Fault::ReadPanic { after: 0 }]);
    let load = |region| drop(volume.region(ino, RegionIndex(region)));
    for region in 0..16 {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| load(region))).unwrap_err();
    }
    volume.prefetch(ino, RegionIndex(0)..RegionIndex(16));
    std::thread::sleep(Duration::from_millis(300));
    set(&disks, &[]);
    for region in 0..16 {
        let offset = u64::from(region) * MIB;
        assert_eq!(volume.try_write(ino, offset, &[3; 8192]).unwrap(), Some(8192), "region {region} is pinned");
        let bytes = volume.region(ino, RegionIndex(region)).unwrap();
        assert!(bytes[..8192] == [3; 8192] && bytes[8192..].iter().all(|byte| *byte == 1), "region {region}");
    }
    // The prefetch threads survive the panics.
    let used = volume.cache_stats().used_bytes;
    assert_eq!(used, 16 * MIB);
    volume.truncate(ino, 0).unwrap();
    volume.prefetch(other, RegionIndex(0)..RegionIndex(16));
    let started = std::time::Instant::now();
    while volume.cache_stats().used_bytes < 16 * MIB {
        assert!(started.elapsed() < Duration::from_secs(10), "no prefetch thread is left");
        std::thread::yield_now();
    }
}

#[test]
fn a_unit_that_cannot_be_stored_leaves_the_pages_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let (disks, volume) = faulty(folder.path(), options());
    let ino = create(&volume, "file");
    let mut model = vec![7; MIB as usize];
    volume.write(ino, 0, &model).unwrap();
    volume.fsync(ino).unwrap();
    for fault in [Fault::Write { errno: EIO, one_in: 1 }, Fault::Sync { errno: EIO, one_in: 1 }] {
        set(&disks, &[fault]);
        assert_eq!(compress(&volume, ino, 0, 0).unwrap_err().errno(), EIO);
        set(&disks, &[]);
        assert_eq!(superseded(&volume, ino, 0), None);
        assert!(read_all(&volume, ino) == model);
    }
    // If only the transaction fails, the unit is current and the next transaction includes its record.
    set_named(&disks, &[Fault::Write { errno: EIO, one_in: 1 }]);
    assert_eq!(compress(&volume, ino, 0, 0).unwrap_err().errno(), EIO);
    volume.write(ino, 8192, &[8; 100]).unwrap();
    model[8192..8292].fill(8);
    assert!(read_all(&volume, ino) == model);
    assert_eq!(volume.fsync(ino).unwrap_err().errno(), EIO);
    set_named(&disks, &[]);
    volume.fsync(ino).unwrap();
    assert_eq!(superseded(&volume, ino, 0).unwrap(), [1]);
    assert!(read_all(&volume, ino) == model);
    assert!(allocated(&volume, ino) <= 16384);
    volume.abandon();
    drop((volume, disks));
    assert!(read_all(&support::open(folder.path(), 2), ino) == model);
}

#[test]
fn pages_written_over_a_unit_survive_a_failed_write_and_a_failed_sync() {
    let folder = tempfile::tempdir().unwrap();
    let (disks, volume) = faulty(folder.path(), options());
    let ino = create(&volume, "file");
    let mut model = vec![7; MIB as usize];
    volume.write(ino, 0, &model).unwrap();
    compress(&volume, ino, 0, 0).unwrap();
    volume.write(ino, 3 * 8192, &[8; 8192]).unwrap();
    model[3 * 8192..4 * 8192].fill(8);
    set(&disks, &[Fault::Write { errno: EIO, one_in: 1 }]);
    assert_eq!(volume.write(ino, 5 * 8192, &[9; 100]).unwrap_err().errno(), EIO);
    set(&disks, &[Fault::Sync { errno: EIO, one_in: 1 }]);
    assert!(read_all(&volume, ino) == model, "a failed write over a unit changes no page");
    assert_eq!(volume.fsync(ino).unwrap_err().errno(), EIO);
    assert_eq!(volume.decompress(ino, AuIndex(0)).unwrap_err().errno(), EIO);
    assert!(allocated(&volume, ino) <= 4 * 8192, "the copied pages are punched");
    set(&disks, &[]);
    assert_eq!(volume.fsync(ino).unwrap_err().errno(), EIO, "the deferred error of the decompression");
    volume.fsync(ino).unwrap();
    assert!(read_all(&volume, ino) == model);
    volume.abandon();
    drop((volume, disks));
    assert!(read_all(&support::open(folder.path(), 2), ino) == model);
}

#[test]
fn the_raw_pages_of_a_unit_remain_until_a_transaction_names_the_unit() {
    let folder = tempfile::tempdir().unwrap();
    let (disks, volume) = faulty(folder.path(), options());
    let ino = create(&volume, "file");
    let model = vec![7; MIB as usize];
    volume.write(ino, 0, &model).unwrap();
    volume.fsync(ino).unwrap();
    set_named(&disks, &[Fault::Write { errno: EIO, one_in: 1 }]);
    assert_eq!(compress(&volume, ino, 0, 0).unwrap_err().errno(), EIO);
    set(&disks, &[Fault::Sync { errno: EIO, one_in: 1 }]);
    assert_eq!(volume.decompress(ino, AuIndex(0)).unwrap_err().errno(), EIO);
    volume.abandon();
    drop((volume, disks));
    assert!(read_all(&support::open(folder.path(), 2), ino) == model);
}

/// The kernel reports a failed sync once. If that was the internal sync of a decompression, the next fsync by a client
/// must fail too, because the lost pages may be the client's.
#[test]
fn the_error_of_an_internal_sync_is_also_returned_by_the_next_fsync() {
    let folder = tempfile::tempdir().unwrap();
    let (disks, volume) = faulty(folder.path(), options());
    let ino = create(&volume, "file");
    let au_bytes = volume.au_bytes(ino).unwrap();
    let mut failed = 0;
    for round in 0..100u8 {
        volume.write(ino, 0, &vec![round; au_bytes as usize]).unwrap();
        volume.fsync(ino).unwrap();
        compress(&volume, ino, 0, 0).unwrap();
        set(&disks, &[Fault::Sync { errno: EIO, one_in: 3 }]);
        let is_done = AtomicBool::new(false);
        let decompressed = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    volume.write(ino, au_bytes, &[round; 8192]).unwrap();
                }
            });
            let decompressed = volume.decompress(ino, AuIndex(0));
            is_done.store(true, Ordering::Relaxed);
            decompressed
        });
        set(&disks, &[]);
        let synced = volume.fsync(ino);
        if let Err(error) = decompressed {
            assert_eq!((error.errno(), synced.map_err(|error| error.errno())), (EIO, Err(EIO)), "round {round}");
            failed += 1;
        }
        volume.fsync(ino).unwrap();
        assert!(read_all(&volume, ino)[..au_bytes as usize].iter().all(|byte| *byte == round));
    }
    assert!(failed > 20, "{failed}");
}
