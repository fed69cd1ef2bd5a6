//! Disks that return: resyncs that are interrupted or requested twice, and groups whose copies are on devices.

use crate::support;
use cellar_storage::disk::{DeviceDisk, Disk, Fault, FaultyDisk};
use cellar_storage::{DiskMode, ErrorKind, Ino, Volume, VolumeOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::breakable_disk::{BreakableDisk, Breaker};
use support::codec::compress;
use support::mirrored::{mirrored, modes, wait_for_resync};
use support::{MIB, Random, create, disks, open_with, read_all};

const DEVICE_BYTES: u64 = 64 << 20;

fn second(folder: &Path) -> Arc<dyn Disk> {
    disks(folder, 2).pop().unwrap()
}

/// Changes a file in some regions while the second disk is offline. Returns the file's content.
fn change_without_second(volume: &Volume, folder: &Path, ino: Ino, seed: u64) -> Vec<u8> {
    volume.offline_disk(&folder.join("disk1")).unwrap();
    let mut random = Random::seeded(seed);
    for region in 0..6 {
        volume.write(ino, region * MIB + 1000, &random.bytes(200_000)).unwrap();
    }
    volume.fsync(ino).unwrap();
    read_all(volume, ino)
}

/// Closes the volume, and checks that the second disk alone has the content of the file.
fn close_and_check_second(volume: Arc<Volume>, folder: &Path, expected: &[u8]) {
    volume.close().unwrap();
    drop(volume);
    std::fs::rename(folder.join("disk0"), folder.join("lost")).unwrap();
    let volume = open_with(folder, 2, || VolumeOptions { force_degraded: true, ..mirrored() });
    assert!(read_all(&volume, volume.resolve("file").unwrap()) == expected);
    volume.close().unwrap();
}

#[test]
fn a_stop_ends_a_resync_and_the_next_start_continues() {
    let folder = tempfile::tempdir().unwrap();
    let first = Arc::new(FaultyDisk::new(disks(folder.path(), 1).pop().unwrap(), 1));
    let volume = Volume::open(vec![first.clone(), second(folder.path())], mirrored()).unwrap();
    let ino = create(&volume, "file");
    volume.write(ino, 0, &vec![1; 6 * MIB as usize]).unwrap();
    volume.sync().unwrap();
    let expected = change_without_second(&volume, folder.path(), ino, 1);
    first.set_faults(&[Fault::HeldRead]);
    std::thread::scope(|scope| {
        let resync = scope.spawn(|| volume.online_disk(second(folder.path())));
        while first.held() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(modes(&volume)[1], DiskMode::Syncing);
        volume.abandon();
        first.set_faults(&[]);
        let error = resync.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("the cell stops; the next start continues"), "{error}");
    });
    assert_eq!(modes(&volume)[1], DiskMode::Offline);
    drop((volume, first));

    let volume = open_with(folder.path(), 2, || VolumeOptions { online_returned_disks: true, ..mirrored() });
    wait_for_resync(&volume);
    close_and_check_second(volume, folder.path(), &expected);
}

#[test]
fn of_two_resyncs_of_a_disk_one_brings_it_online() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 2, mirrored);
    let ino = create(&volume, "file");
    volume.write(ino, 0, &vec![1; 6 * MIB as usize]).unwrap();
    volume.sync().unwrap();
    let mut expected = Vec::new();
    for round in 0..8 {
        expected = change_without_second(&volume, folder.path(), ino, round);
        let engine = second(folder.path());
        let results: Vec<_> = std::thread::scope(|scope| {
            let online = || volume.online_disk(engine.clone());
            let threads = [scope.spawn(online), scope.spawn(online)];
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
        for error in results.into_iter().filter_map(Result::err) {
            assert!(error.to_string().contains("is not offline"), "{error}");
        }
        assert_eq!(modes(&volume), [DiskMode::Online; 2], "round {round}");
    }
    close_and_check_second(volume, folder.path(), &expected);
}

#[test]
fn a_commit_during_a_resync_does_not_use_the_metadata_from_before_the_disk_was_offline() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 2, mirrored);
    let ino = create(&volume, "file");
    volume.write(ino, 0, &vec![1; 6 * MIB as usize]).unwrap();
    volume.sync().unwrap();
    // Nothing commits while the disk is offline.
    volume.offline_disk(&folder.path().join("disk1")).unwrap();
    volume.write(ino, 0, &[2; 100]).unwrap();
    let breaker = Breaker::new();
    breaker.hold_one_write();
    let breakable = Arc::new(BreakableDisk { inner: second(folder.path()), breaker: breaker.clone() });
    std::thread::scope(|scope| {
        let resync = scope.spawn(|| volume.online_disk(breakable));
        while !breaker.has_held() {
            std::thread::yield_now();
        }
        create(&volume, "another");
        volume.sync().unwrap();
        breaker.release_writes();
        resync.join().unwrap().unwrap();
    });
    assert_eq!(modes(&volume), [DiskMode::Online; 2]);
    let expected = read_all(&volume, ino);
    close_and_check_second(volume, folder.path(), &expected);
}

#[test]
fn a_disk_that_goes_offline_and_returns_during_a_commit_stays_in_its_resync() {
    let folder = tempfile::tempdir().unwrap();
    let breaker = Breaker::new();
    let breakable = Arc::new(BreakableDisk { inner: second(folder.path()), breaker: breaker.clone() });
    let volume = Volume::open(vec![disks(folder.path(), 1).pop().unwrap(), breakable], mirrored()).unwrap();
    let ino = create(&volume, "file");
    volume.write(ino, 0, &vec![1; MIB as usize]).unwrap();
    volume.sync().unwrap();
    create(&volume, "another");
    breaker.hold_metadata_writes();
    std::thread::scope(|scope| {
        let commit = scope.spawn(|| volume.sync());
        while !breaker.has_held() {
            std::thread::yield_now();
        }
        volume.offline_disk(&folder.path().join("disk1")).unwrap();
        let resync = scope.spawn(|| volume.online_disk(second(folder.path())));
        while modes(&volume)[1] != DiskMode::Syncing {
            std::thread::yield_now();
        }
        breaker.release_writes();
        commit.join().unwrap().unwrap();
        resync.join().unwrap().unwrap();
    });
    assert_eq!(modes(&volume), [DiskMode::Online; 2]);
    let expected = read_all(&volume, ino);
    close_and_check_second(volume, folder.path(), &expected);
}

#[test]
fn a_disk_that_fails_during_its_resync_can_return_again() {
    let mut interrupted = 0;
    for operations in (0..60).step_by(6) {
        let folder = tempfile::tempdir().unwrap();
        let volume = open_with(folder.path(), 2, mirrored);
        let ino = create(&volume, "file");
        volume.write(ino, 0, &vec![1; 6 * MIB as usize]).unwrap();
        volume.sync().unwrap();
        let expected = change_without_second(&volume, folder.path(), ino, operations);
        let breaker = Breaker::new();
        let breakable = BreakableDisk { inner: second(folder.path()), breaker: breaker.clone() };
        breaker.break_after(operations);
        let is_interrupted = volume.online_disk(Arc::new(breakable)).is_err();
        interrupted += usize::from(is_interrupted);
        assert!(read_all(&volume, ino) == expected, "after {operations} operations");
        if is_interrupted {
            assert_eq!(modes(&volume), [DiskMode::Online, DiskMode::Offline], "after {operations} operations");
            volume.write(ino, 5 * MIB, &[9; 100]).unwrap();
            volume.online_disk(second(folder.path())).unwrap();
        }
        let expected = read_all(&volume, ino);
        close_and_check_second(volume, folder.path(), &expected);
    }
    assert!(interrupted > 3, "the disk failed in {interrupted} resyncs only");
}

/// Opens the device at `disk0` or `disk1`; its former engine may be dropped a little later.
fn device(folder: &Path, number: usize) -> Arc<dyn Disk> {
    let path = folder.join(format!("disk{number}"));
    let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path).unwrap();
    file.set_len(DEVICE_BYTES).unwrap();
    Arc::new(DeviceDisk::open(&path).unwrap())
}

fn open_devices(folder: &Path, options: impl Fn() -> VolumeOptions) -> Arc<Volume> {
    for _ in 0..500 {
        match Volume::open((0..2).map(|number| device(folder, number)).collect(), options()) {
            Err(error) if error.kind() == ErrorKind::Locked => std::thread::sleep(Duration::from_millis(10)),
            opened => return opened.unwrap(),
        }
    }
    panic!("the devices in {} are still locked", folder.display());
}

#[test]
fn copies_on_devices_return_after_a_kill_and_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_devices(folder.path(), mirrored);
    let (ino, units) = (create(&volume, "file"), create(&volume, "units"));
    let mut random = Random::seeded(11);
    for file in [ino, units] {
        volume.write(file, 0, &random.bytes(4 * MIB as usize)).unwrap();
    }
    for au in 0..4 {
        compress(&volume, units, au, 0).unwrap();
    }
    volume.sync().unwrap();
    volume.abandon();
    drop(volume);

    let volume = open_devices(folder.path(), mirrored);
    assert_eq!(modes(&volume), [DiskMode::Online; 2]);
    volume.offline_disk(&folder.path().join("disk1")).unwrap();
    volume.write(ino, MIB + 77, &random.bytes(300_000)).unwrap();
    volume.write(units, 3 * MIB, &random.bytes(50_000)).unwrap();
    volume.unlink(cellar_storage::ROOT_INO, b"file").unwrap();
    volume.write(create(&volume, "new"), 0, b"new").unwrap();
    volume.sync().unwrap();
    let expected = read_all(&volume, units);
    // The device is closed, so that it can be opened and locked again while the cell runs.
    let deadline = Instant::now() + Duration::from_secs(20);
    let copied = loop {
        match volume.online_disk(device(folder.path(), 1)) {
            Err(error) if error.kind() == ErrorKind::Locked && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => break result.unwrap(),
        }
    };
    assert!((1..4 * MIB).contains(&copied.written_bytes), "{copied:?}");
    assert_eq!(modes(&volume), [DiskMode::Online; 2]);
    volume.start_scrub(0).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while volume.scrub_report().unwrap().ended.is_none() {
        assert!(Instant::now() < deadline, "the scrub does not end");
        std::thread::sleep(Duration::from_millis(2));
    }
    let report = volume.scrub_report().unwrap();
    assert_eq!((report.repaired, report.unrepaired), (0, 0), "{report:?}");
    volume.close().unwrap();
    drop(volume);

    std::fs::rename(folder.path().join("disk0"), folder.path().join("lost")).unwrap();
    let volume = open_devices(folder.path(), || VolumeOptions { force_degraded: true, ..mirrored() });
    assert!(read_all(&volume, volume.resolve("units").unwrap()) == expected);
    assert_eq!(read_all(&volume, volume.resolve("new").unwrap()), b"new");
    assert_eq!(volume.resolve("file"), None);
    volume.close().unwrap();
}
