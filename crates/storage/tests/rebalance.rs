//! Disks that join and leave a group on directories, and what is refused.

use crate::support;
use cellar_storage::disk::{Disk, Stream};
use cellar_storage::{ErrorKind, Fallocate, RebalanceState, Volume, VolumeOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::codec::compress;
use support::disk_changes::{allocated, disk, path, while_writing};
use support::limited_disk::LimitedDisk;
use support::{MIB, Random, create, open_with, options, read_all};

fn quiet() -> VolumeOptions {
    VolumeOptions { rebalances: false, rebalance_power: 11, ..options() }
}

fn is_even(used: &[u64]) -> bool {
    let mean = used.iter().sum::<u64>() as f64 / used.len() as f64;
    used.iter().all(|used| (*used as f64 - mean).abs() <= mean * 0.03 + MIB as f64 / 2.0)
}

#[test]
fn a_new_disk_gets_its_share_while_files_change_and_an_emptied_disk_leaves() {
    const SIZE: u64 = 30 * MIB;
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 2, quiet);
    let mut random = Random::seeded(3);
    let files: Vec<(u64, Vec<u8>)> = (0..3)
        .map(|number| {
            let (ino, content) = (create(&volume, &format!("file{number}")), random.bytes(SIZE as usize));
            volume.write(ino, 0, &content).unwrap();
            (ino, content)
        })
        .collect();
    for au in 0..6 {
        compress(&volume, files[2].0, au, 0).unwrap();
    }
    volume.sync().unwrap();

    volume.add_disk(disk(folder.path(), 2), None).unwrap();
    let files = while_writing(&volume, files, || volume.rebalance().unwrap());
    let (copied, least) = (volume.rebalance_status().copied_bytes, allocated(volume.disks()[2].as_ref()));
    // Writes over compression units occupied space meanwhile.
    volume.rebalance().unwrap();
    let used: Vec<u64> = volume.disks().iter().map(|disk| allocated(disk.as_ref())).collect();
    assert!(is_even(&used), "{used:?}");
    assert!(copied <= least * 11 / 10 + 3 * MIB, "copied {copied} bytes, at least {least} had to move");
    files.iter().for_each(|(ino, content)| assert!(read_all(&volume, *ino) == *content));

    volume.drop_disk(&path(folder.path(), 0), false).unwrap();
    let files = while_writing(&volume, files, || volume.rebalance().unwrap());
    volume.rebalance().unwrap();
    let used: Vec<u64> = volume.disks().iter().map(|disk| allocated(disk.as_ref())).collect();
    assert!(used[0] == 0 && is_even(&used[1..]), "{used:?}");
    assert_eq!(volume.group_status().disks.len(), 2);
    files.iter().for_each(|(ino, content)| assert!(read_all(&volume, *ino) == *content));
    let ino = create(&volume, "new");
    volume.write(ino, 0, &vec![7; 5 * MIB as usize]).unwrap();
    volume.close().unwrap();
    drop(volume);

    std::fs::remove_dir_all(path(folder.path(), 0)).unwrap();
    let remaining = || vec![disk(folder.path(), 1), disk(folder.path(), 2)];
    let volume = Volume::open(remaining(), quiet()).unwrap();
    for (number, (_, content)) in files.iter().enumerate() {
        assert!(read_all(&volume, volume.resolve(&format!("file{number}")).unwrap()) == *content);
    }
    assert!(read_all(&volume, volume.resolve("new").unwrap()) == vec![7; 5 * MIB as usize]);
    volume.close().unwrap();
}

#[test]
fn a_start_continues_a_rebalance_and_uses_no_blank_disk_that_is_configured() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 1, quiet);
    let (ino, content) = (create(&volume, "file"), Random::seeded(5).bytes(20 * MIB as usize));
    volume.write(ino, 0, &content).unwrap();
    volume.close().unwrap();
    drop(volume);
    // A directory whose disk was dropped, or is not mounted, must not be filled.
    let volume = open_with(folder.path(), 2, || VolumeOptions { rebalance_power: 11, ..options() });
    assert_eq!(volume.group_status().disks.len(), 1);
    volume.add_disk(disk(folder.path(), 1), None).unwrap();
    assert_eq!(volume.group_status().disks.len(), 2);
    let deadline = Instant::now() + Duration::from_secs(60);
    while volume.rebalance_status().state != RebalanceState::Idle {
        assert!(Instant::now() < deadline, "{:?}", volume.rebalance_status());
        std::thread::sleep(Duration::from_millis(5));
    }
    let used: Vec<u64> = volume.disks().iter().map(|disk| allocated(disk.as_ref())).collect();
    assert!(is_even(&used), "{used:?}");
    assert!(read_all(&volume, ino) == content);
    volume.set_rebalance_power(0).unwrap();
    volume.drop_disk(&path(folder.path(), 1), false).unwrap();
    volume.abandon();
    drop(volume);

    let volume = open_with(folder.path(), 2, options);
    assert_eq!((volume.rebalance_status().power, volume.rebalance_status().state), (0, RebalanceState::Waiting));
    assert!(volume.group_status().disks[1].is_dropping);
    volume.set_rebalance_power(11).unwrap();
    while volume.group_status().disks.len() > 1 {
        assert!(Instant::now() < deadline, "{:?}", volume.rebalance_status());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(read_all(&volume, volume.resolve("file").unwrap()) == content);
    volume.close().unwrap();
    drop(volume);
    // A dropped disk that is still configured is not used.
    let volume = open_with(folder.path(), 2, options);
    assert_eq!(volume.group_status().disks.len(), 1);
    // It can join again, as another disk.
    volume.add_disk(disk(folder.path(), 1), None).unwrap();
    assert_eq!(volume.group_status().disks.iter().map(|disk| disk.number).collect::<Vec<_>>(), [0, 2]);
    volume.close().unwrap();
}

#[test]
fn disks_of_different_size_are_filled_in_proportion() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = [100 * MIB, 300 * MIB, 200 * MIB];
    let limited =
        |number: usize| Arc::new(LimitedDisk::new(disk(folder.path(), number), sizes[number])) as Arc<dyn Disk>;
    let volume = Volume::open(vec![limited(0), limited(1)], quiet()).unwrap();
    let ino = create(&volume, "file");
    let content = Random::seeded(5).bytes(60 * MIB as usize);
    volume.write(ino, 0, &content).unwrap();
    volume.sync().unwrap();
    volume.add_disk(limited(2), None).unwrap();
    volume.rebalance().unwrap();
    for (disk, expected) in volume.disks().iter().zip([10, 30, 20]) {
        let used = allocated(disk.as_ref()) / MIB;
        assert!((expected - 1..=expected + 1).contains(&used), "{} has {used} MiB", disk.path().display());
    }
    assert!(read_all(&volume, ino) == content);
    volume.close().unwrap();
}

#[test]
fn space_that_was_allocated_in_advance_moves() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 1, quiet);
    let ino = create(&volume, "file");
    volume.write(ino, 0, &vec![1; MIB as usize]).unwrap();
    volume.fallocate(ino, MIB, 3 * MIB, Fallocate::Reserve { keep_size: false }).unwrap();
    volume.sync().unwrap();
    let before = allocated(volume.disks()[0].as_ref());
    assert!(before >= 4 * MIB, "the file system allocates space in advance: {before}");
    volume.add_disk(disk(folder.path(), 1), None).unwrap();
    volume.drop_disk(&path(folder.path(), 0), false).unwrap();
    volume.rebalance().unwrap();
    assert_eq!(allocated(volume.disks()[1].as_ref()), before);
    assert!(read_all(&volume, ino)[MIB as usize..].iter().all(|byte| *byte == 0));
    volume.close().unwrap();
}

#[test]
fn a_rebalance_waits_for_space_and_then_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let large = LimitedDisk::new(disk(folder.path(), 0), 4096 * MIB);
    let volume = Volume::open(vec![Arc::new(large)], quiet()).unwrap();
    let ino = create(&volume, "file");
    let content = Random::seeded(5).bytes(20 * MIB as usize);
    volume.write(ino, 0, &content).unwrap();
    volume.sync().unwrap();
    let small = LimitedDisk::new(disk(folder.path(), 1), 4096 * MIB);
    volume.add_disk(Arc::new(small.clone()), None).unwrap();
    small.occupy_all_but(3 * MIB);
    let error = volume.rebalance().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(error.to_string().contains("free space or add a disk"), "{error}");
    assert!(volume.rebalance_status().error.is_some());
    let refused = volume.drop_disk(&path(folder.path(), 0), false).unwrap_err().to_string();
    assert!(refused.contains("must move, but the other disks have"), "{refused}");
    assert!(read_all(&volume, ino) == content);
    small.occupy_all_but(1000 * MIB);
    volume.rebalance().unwrap();
    assert!(volume.rebalance_status().error.is_none());
    assert!(allocated(volume.disks()[1].as_ref()) > 0);
    assert!(read_all(&volume, ino) == content);
    volume.close().unwrap();
}

#[test]
fn errors_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 2, quiet);
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    open_with(&other, 1, quiet).close().unwrap();
    let full = folder.path().join("full");
    std::fs::create_dir_all(full.join("disk0")).unwrap();
    std::fs::write(full.join("disk0/letter"), "x").unwrap();
    let refused = |disk: Arc<dyn Disk>, expected: &str| {
        let error = volume.add_disk(disk, None).unwrap_err().to_string();
        assert!(error.contains(expected), "{error} lacks {expected}");
    };
    refused(disk(folder.path(), 1), "is in the disk group already");
    refused(disk(&other, 0), "belongs to disk group");
    refused(disk(&full, 0), "is neither empty nor a cell disk");
    let refused = |number: usize, expected: &str| {
        let error = volume.drop_disk(&path(folder.path(), number), false).unwrap_err().to_string();
        assert!(error.contains(expected), "{error} lacks {expected}");
    };
    refused(7, "is not a disk of the group");
    std::fs::rename(path(folder.path(), 1), folder.path().join("unmounted")).unwrap();
    std::fs::create_dir(path(folder.path(), 1)).unwrap();
    refused(1, "a lost disk of a group without copies cannot be dropped");
    std::fs::remove_dir(path(folder.path(), 1)).unwrap();
    std::fs::rename(folder.path().join("unmounted"), path(folder.path(), 1)).unwrap();
    volume.drop_disk(&path(folder.path(), 0), false).unwrap();
    refused(0, "is being dropped already");
    refused(1, "is the last disk of the group");
    volume.undrop_disk(&path(folder.path(), 0)).unwrap();
    assert!(volume.undrop_disk(&path(folder.path(), 0)).unwrap_err().to_string().contains("is not being dropped"));
    assert!(volume.set_rebalance_power(12).unwrap_err().to_string().contains("between 0 and 11"));
    volume.close().unwrap();
}

#[test]
fn earlier_releases_refuse_a_group_whose_units_may_have_moved() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 2, quiet);
    volume.rebalance().unwrap();
    for number in 0..2 {
        assert_eq!(std::fs::read(path(folder.path(), number).join("superblock")).unwrap()[8], 3);
    }
    volume.close().unwrap();
    drop(volume);
    open_with(folder.path(), 2, quiet).close().unwrap();
}

#[test]
fn the_disks_of_a_group_that_has_not_changed_keep_their_format() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 1, quiet);
    let version = || std::fs::read(path(folder.path(), 0).join("superblock")).unwrap()[8];
    let ino = create(&volume, "file");
    volume.write(ino, 0, &vec![3; 4 * MIB as usize]).unwrap();
    volume.sync().unwrap();
    assert_eq!(version(), 1);
    volume.add_disk(disk(folder.path(), 1), None).unwrap();
    assert_eq!(version(), 3);
    volume.rebalance().unwrap();
    let moved = volume.disks()[1].backing_files().unwrap();
    assert!(moved.iter().all(|(number, stream)| *number == ino | 1 << 40 && *stream == Stream::Data), "{moved:?}");
    volume.close().unwrap();
}

#[test]
fn a_disk_of_an_earlier_release_gets_a_second_disk_and_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/disk_v2.lz4");
    support::unpack(&std::fs::read(fixture).unwrap(), folder.path());
    let volume = open_with(folder.path(), 1, quiet);
    let ino = volume.resolve("file").unwrap();
    let content = read_all(&volume, ino);
    volume.add_disk(disk(folder.path(), 1), None).unwrap();
    volume.rebalance().unwrap();
    assert!(read_all(&volume, ino) == content);
    volume.drop_disk(&path(folder.path(), 0), false).unwrap();
    volume.rebalance().unwrap();
    volume.close().unwrap();
    drop(volume);
    std::fs::remove_dir_all(path(folder.path(), 0)).unwrap();
    let volume = Volume::open(vec![disk(folder.path(), 1)], quiet()).unwrap();
    assert!(read_all(&volume, volume.resolve("file").unwrap()) == content);
    volume.close().unwrap();
}
