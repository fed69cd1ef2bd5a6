//! Groups with copies on directories: lost disks, their return, damaged copies.

use crate::support;
use cellar_storage::disk::{Disk, Stream};
use cellar_storage::{DiskMode, Redundancy, Superblock, Volume, VolumeOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use support::breakable_disk::{BreakableDisk, Breaker};
use support::codec::compress;
use support::mirrored::{mirrored, modes, wait_for_resync};
use support::{MIB, Random, create, disks, open_with, options, read_all};

fn disk(folder: &Path, number: usize) -> Arc<dyn Disk> {
    disks(folder, number + 1).pop().unwrap()
}

/// Opens a volume on two disks of which the second can break.
fn open_breakable(folder: &Path) -> (Arc<Volume>, Breaker) {
    let breaker = Breaker::new();
    let second = BreakableDisk { inner: disk(folder, 1), breaker: breaker.clone() };
    let volume = Volume::open(vec![disk(folder, 0), Arc::new(second)], mirrored()).unwrap();
    (volume, breaker)
}

#[test]
fn a_disk_that_returns_gets_what_changed_and_no_more() {
    const SIZE: u64 = 100 * MIB;
    let folder = tempfile::tempdir().unwrap();
    let (volume, breaker) = open_breakable(folder.path());
    let (ino, removed) = (create(&volume, "file"), create(&volume, "removed"));
    let mut random = Random::seeded(7);
    let mut expected = random.bytes(SIZE as usize);
    volume.write(ino, 0, &expected).unwrap();
    volume.write(removed, 0, b"removed").unwrap();
    volume.sync().unwrap();
    volume.trim_intents();
    assert_eq!(volume.group_status().intents, 0);

    breaker.break_after(0);
    // One percent of the file.
    let at = 37 * MIB as usize;
    let change = random.bytes(MIB as usize);
    expected[at..at + change.len()].copy_from_slice(&change);
    volume.write(ino, at as u64, &change).unwrap();
    volume.unlink(cellar_storage::ROOT_INO, b"removed").unwrap();
    volume.forget(removed, 1);
    volume.fsync(ino).unwrap();
    volume.fsyncdir(cellar_storage::ROOT_INO).unwrap();
    assert_eq!(modes(&volume), [DiskMode::Online, DiskMode::Offline]);
    assert!(read_all(&volume, ino) == expected, "the first disk has everything");

    breaker.repair();
    let copied = volume.online_disk(disk(folder.path(), 1)).unwrap();
    assert_eq!(modes(&volume), [DiskMode::Online; 2]);
    assert!(copied.read_bytes <= SIZE * 3 / 200, "read {} of {SIZE} bytes", copied.read_bytes);
    assert!((1..=SIZE * 3 / 200).contains(&copied.written_bytes), "wrote {}", copied.written_bytes);
    volume.close().unwrap();
    drop(volume);

    std::fs::rename(folder.path().join("disk0"), folder.path().join("lost")).unwrap();
    let force = || VolumeOptions { force_degraded: true, ..mirrored() };
    let volume = open_with(folder.path(), 2, force);
    assert_eq!(modes(&volume), [DiskMode::Offline, DiskMode::Online]);
    assert!(read_all(&volume, volume.resolve("file").unwrap()) == expected, "the second disk has everything");
    assert_eq!(volume.resolve("removed"), None);
    volume.close().unwrap();
}

#[test]
fn a_stale_disk_is_not_used_and_is_resynced_at_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, breaker) = open_breakable(folder.path());
    let ino = create(&volume, "file");
    volume.write(ino, 0, &[1; 100_000]).unwrap();
    volume.fsync(ino).unwrap();
    breaker.break_after(0);
    volume.write(ino, 50_000, &[2; 100_000]).unwrap();
    volume.fsync(ino).unwrap();
    let expected = read_all(&volume, ino);
    volume.abandon();
    drop(volume);

    std::fs::rename(folder.path().join("disk0"), folder.path().join("away")).unwrap();
    let alone = Volume::open(disks(folder.path(), 2), mirrored()).map(drop).unwrap_err().to_string();
    assert!(alone.contains("disk 0") && alone.contains("is missing and may have newer data"), "{alone}");
    std::fs::remove_dir_all(folder.path().join("disk0")).unwrap();
    std::fs::rename(folder.path().join("away"), folder.path().join("disk0")).unwrap();

    let volume = open_with(folder.path(), 2, || VolumeOptions { online_returned_disks: true, ..mirrored() });
    assert!(read_all(&volume, volume.resolve("file").unwrap()) == expected);
    wait_for_resync(&volume);
    volume.close().unwrap();
    drop(volume);
    std::fs::rename(folder.path().join("disk0"), folder.path().join("lost")).unwrap();
    let volume = open_with(folder.path(), 2, || VolumeOptions { force_degraded: true, ..mirrored() });
    assert!(read_all(&volume, volume.resolve("file").unwrap()) == expected);
    volume.close().unwrap();
}

/// Returns the lengths of the files on a disk, in ascending order.
fn lengths(folder: &Path, number: usize) -> Vec<u64> {
    let disk = disk(folder, number);
    let files = disk.backing_files().unwrap().into_iter();
    let mut lengths: Vec<u64> = files.map(|(number, stream)| disk.measure(number, stream).unwrap().0).collect();
    lengths.sort_unstable();
    lengths
}

#[test]
fn copies_are_equal_after_changes_that_one_disk_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, breaker) = open_breakable(folder.path());
    let ino = create(&volume, "file");
    volume.write(ino, 0, &[1; 100_000]).unwrap();
    volume.sync().unwrap();
    volume.trim_intents();
    assert_eq!(volume.group_status().intents, 0);

    breaker.refuse(true);
    volume.write(ino, 100_000, &[2; 3 * MIB as usize]).unwrap_err();
    volume.write(create(&volume, "new"), 0, b"new").unwrap_err();
    assert_eq!(modes(&volume), [DiskMode::Online; 2], "a disk that refuses stays online");
    assert_eq!(lengths(folder.path(), 0), lengths(folder.path(), 1), "what was extended or created is undone");
    volume.write(ino, 8192, &[3; 8192]).unwrap_err();
    breaker.refuse(false);
    volume.sync().unwrap();
    volume.trim_intents();
    assert!(volume.group_status().intents > 0, "the copies of the region may differ");
    volume.close().unwrap();
    drop(volume);

    let volume = open_with(folder.path(), 2, mirrored);
    assert_eq!(volume.group_status().intents, 0);
    let expected = read_all(&volume, volume.resolve("file").unwrap());
    assert_eq!(expected.len(), 100_000);
    volume.close().unwrap();
    drop(volume);
    std::fs::rename(folder.path().join("disk0"), folder.path().join("lost")).unwrap();
    let volume = open_with(folder.path(), 2, || VolumeOptions { force_degraded: true, ..mirrored() });
    assert!(read_all(&volume, volume.resolve("file").unwrap()) == expected, "the copies were made equal");
    volume.close().unwrap();
}

/// A disk that breaks while a start makes copies equal leaves the group, whether it is the source or the target.
#[test]
fn a_start_survives_a_disk_that_fails_while_copies_are_made_equal() {
    for broken in 0..2 {
        let mut degraded = 0;
        for operations in (0..80).step_by(9) {
            let folder = tempfile::tempdir().unwrap();
            let volume = open_with(folder.path(), 2, mirrored);
            for name in ["first", "second"] {
                volume.write(create(&volume, name), 0, &[1; 200_000]).unwrap();
            }
            volume.sync().unwrap();
            volume.abandon();
            drop(volume);
            let breaker = Breaker::new();
            breaker.break_after(operations);
            let wrap = |number: usize| -> Arc<dyn Disk> {
                let inner = disk(folder.path(), number);
                if number == broken { Arc::new(BreakableDisk { inner, breaker: breaker.clone() }) } else { inner }
            };
            // A disk that fails before the group is open counts as missing, and one of two disks does not suffice.
            let Ok(volume) = Volume::open((0..2).map(wrap).collect(), mirrored()) else {
                assert_eq!(degraded, 0, "disk {broken} broke after {operations} operations");
                continue;
            };
            degraded += usize::from(volume.group_status().is_degraded());
            let content = |name: &str| read_all(&volume, volume.resolve(name).unwrap());
            assert!([content("first"), content("second")] == [[1; 200_000]; 2]);
            volume.close().unwrap();
        }
        assert!(degraded > 0, "disk {broken} never failed during a start");
    }
}

/// Both disks are used without the other: the first after a failure, the second by force. The operator's choice wins, and
/// no part of the first disk's history is left.
#[test]
fn a_disk_that_was_left_out_by_force_is_copied_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, breaker) = open_breakable(folder.path());
    let ino = create(&volume, "file");
    volume.write(ino, 0, &vec![1; 5 * MIB as usize]).unwrap();
    volume.sync().unwrap();
    volume.trim_intents();
    breaker.break_after(0);
    volume.write(ino, 3 * MIB, &[2; 8192]).unwrap();
    volume.write(create(&volume, "first only"), 0, b"first").unwrap();
    volume.close().unwrap();
    drop(volume);

    let path = |name: &str| folder.path().join(name);
    std::fs::rename(path("disk0"), path("away")).unwrap();
    let volume = open_with(folder.path(), 2, || VolumeOptions { force_degraded: true, ..mirrored() });
    volume.write(ino, 0, &[3; 8192]).unwrap();
    let expected = read_all(&volume, ino);
    volume.close().unwrap();
    drop(volume);
    std::fs::remove_dir_all(path("disk0")).unwrap();
    std::fs::rename(path("away"), path("disk0")).unwrap();

    let volume = open_with(folder.path(), 2, mirrored);
    assert_eq!(modes(&volume), [DiskMode::Offline, DiskMode::Online]);
    volume.online_disk(disk(folder.path(), 0)).unwrap();
    volume.close().unwrap();
    drop(volume);
    std::fs::rename(path("disk1"), path("lost")).unwrap();
    let volume = open_with(folder.path(), 2, || VolumeOptions { force_degraded: true, ..mirrored() });
    assert!(read_all(&volume, ino) == expected);
    assert_eq!(volume.resolve("first only"), None);
    volume.close().unwrap();
}

#[test]
fn a_damaged_unit_is_repaired_from_its_other_copy() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 2, || VolumeOptions { cache_bytes: 0, ..mirrored() });
    let ino = create(&volume, "file");
    volume.write(ino, 0, &Random::seeded(3).bytes(2 * MIB as usize)).unwrap();
    let expected = read_all(&volume, ino);
    for au in 0..2 {
        compress(&volume, ino, au, 0).unwrap();
    }
    let mut damaged = 0;
    for (stream, tagged) in disk(folder.path(), 0).backing_files().unwrap().into_iter().map(|(n, s)| (s, n)) {
        if stream == Stream::Units {
            let name = format!("disk0/data/{:02x}/{tagged:016x}.units", tagged & 0xff);
            let file = std::fs::OpenOptions::new().read(true).write(true).open(folder.path().join(name)).unwrap();
            for at in [3, 100, 1000] {
                let slots = file.metadata().unwrap().len() / MIB;
                for slot in 0..=slots {
                    let mut byte = [0];
                    if file.read_at(&mut byte, slot * MIB + at).unwrap() == 1 && byte != [0] {
                        file.write_at(&[byte[0] ^ 8], slot * MIB + at).unwrap();
                        damaged += 1;
                    }
                }
            }
        }
    }
    assert!(damaged > 0, "no unit file was damaged");
    assert!(read_all(&volume, ino) == expected);
    assert!(volume.group_status().repairs > 0);
    let repairs = volume.group_status().repairs;
    assert!(read_all(&volume, ino) == expected);
    assert_eq!(volume.group_status().repairs, repairs, "a repaired unit needs no second repair");
    volume.close().unwrap();
}

#[test]
fn a_group_with_external_redundancy_keeps_its_superblock_version() {
    let folder = tempfile::tempdir().unwrap();
    open_with(folder.path(), 2, options).close().unwrap();
    let superblock = std::fs::read(folder.path().join("disk0/superblock")).unwrap();
    assert_eq!(superblock[8..14], [1, 0, 0, 0, 2, 1]);
    assert!(!folder.path().join("disk0/membership").exists());

    let other = tempfile::tempdir().unwrap();
    open_with(other.path(), 3, || VolumeOptions { redundancy: Redundancy::High, ..mirrored() }).close().unwrap();
    let superblock = Superblock::read(disk(other.path(), 2).as_ref()).unwrap().unwrap();
    assert_eq!((superblock.redundancy, superblock.failure_groups.len()), (Redundancy::High, 3));
}
