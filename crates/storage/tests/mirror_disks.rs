//! Disks that join groups with copies, leave them, are lost, and are replaced.

use crate::support;
use cellar_storage::disk::{DeviceDisk, Disk};
use cellar_storage::{AbsentDisk, DiskMode, ErrorKind, RebalanceState, Redundancy, Volume, VolumeOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::codec::compress;
use support::disk_changes::{allocated, disk, path, while_writing};
use support::mirrored::{mirrored, modes};
use support::{MIB, Random, create, open_with, read_all};

const SIZE: u64 = 8 * MIB;

fn quiet() -> VolumeOptions {
    VolumeOptions { rebalances: false, rebalance_power: 11, ..mirrored() }
}

/// Creates files, some of them with compression units. Returns them with their content.
fn fill(volume: &Volume) -> Vec<(u64, Vec<u8>)> {
    let mut random = Random::seeded(3);
    let fill = |number| {
        let (ino, content) = (create(volume, &format!("file{number}")), random.bytes(SIZE as usize));
        volume.write(ino, 0, &content).unwrap();
        (ino, content)
    };
    let files: Vec<(u64, Vec<u8>)> = (0..3).map(fill).collect();
    for au in 0..5 {
        compress(volume, files[2].0, au, 0).unwrap();
    }
    volume.sync().unwrap();
    files
}

fn check(volume: &Volume, files: &[(u64, Vec<u8>)]) {
    for (number, (_, content)) in files.iter().enumerate() {
        let ino = volume.resolve(&format!("file{number}")).unwrap();
        assert!(read_all(volume, ino) == *content, "file{number} has other content");
    }
}

/// Opens a group on some of the disks in a folder.
fn open_some(folder: &Path, numbers: &[usize], force_degraded: bool) -> cellar_storage::Result<Arc<Volume>> {
    let disks: Vec<Arc<dyn Disk>> = numbers.iter().map(|number| disk(folder, *number)).collect();
    Volume::open(disks, VolumeOptions { force_degraded, ..quiet() })
}

/// Checks that the content survives the loss of each one of some disks.
fn check_without_each(folder: &Path, numbers: &[usize], files: &[(u64, Vec<u8>)]) {
    for lost in numbers {
        let others: Vec<usize> = numbers.iter().copied().filter(|number| number != lost).collect();
        let copy = tempfile::tempdir().unwrap();
        for number in &others {
            copy_folder(&path(folder, *number), &path(copy.path(), *number));
        }
        let volume =
            open_some(copy.path(), &others, true).unwrap_or_else(|error| panic!("without disk {lost}: {error}"));
        check(&volume, files);
        volume.abandon();
    }
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

fn used(volume: &Volume) -> Vec<u64> {
    let used = |disk: &Arc<dyn Disk>| allocated(disk.as_ref()) / MIB;
    volume.member_disks().map(used).collect()
}

fn is_even(used: &[u64]) -> bool {
    let mean = used.iter().sum::<u64>() as f64 / used.len() as f64;
    used.iter().all(|used| (*used as f64 - mean).abs() <= mean * 0.03 + 1.0)
}

#[test]
fn a_disk_joins_a_group_with_copies_while_files_change_and_another_one_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 2, quiet);
    let files = fill(&volume);
    volume.add_disk(disk(folder.path(), 2), None).unwrap();
    assert_eq!(modes(&volume), [DiskMode::Online; 3]);
    let files = while_writing(&volume, files, || volume.rebalance().unwrap());
    let (copied, least) = (volume.rebalance_status().copied_bytes, allocated(volume.disks()[2].as_ref()));
    assert!(copied <= least * 11 / 10 + 3 * MIB, "copied {copied} bytes, at least {least} had to move");
    volume.rebalance().unwrap();
    assert!(is_even(&used(&volume)), "{:?}", used(&volume));
    check(&volume, &files);
    let ino = create(&volume, "new");
    volume.write(ino, 0, &vec![7; 6 * MIB as usize]).unwrap();
    volume.sync().unwrap();
    assert!(is_even(&used(&volume)), "a new file is spread evenly: {:?}", used(&volume));
    volume.close().unwrap();
    drop(volume);
    check_without_each(folder.path(), &[0, 1, 2], &files);

    let volume = open_with(folder.path(), 3, quiet);
    let files: Vec<_> = files.into_iter().map(|(_, content)| content).enumerate().collect();
    let ino = |number| volume.resolve(&format!("file{number}")).unwrap();
    let files = files.into_iter().map(|(number, content)| (ino(number), content)).collect();
    volume.drop_disk(&path(folder.path(), 0), false).unwrap();
    let files = while_writing(&volume, files, || volume.rebalance().unwrap());
    assert_eq!(volume.group_status().disks.iter().map(|disk| disk.number).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(allocated(disk(folder.path(), 0).as_ref()), 0);
    check(&volume, &files);
    volume.close().unwrap();
    drop(volume);
    check_without_each(folder.path(), &[1, 2], &files);
    // The dropped disk is not used, and never opens the group alone.
    assert!(open_some(folder.path(), &[0], true).is_err());
    let volume = open_with(folder.path(), 3, quiet);
    assert_eq!(modes(&volume), [DiskMode::Online; 2]);
    check(&volume, &files);
    volume.close().unwrap();
}

#[test]
fn a_lost_disk_is_dropped_by_force_and_never_wins_when_it_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 3, quiet);
    let files = fill(&volume);
    volume.offline_disk(&path(folder.path(), 1)).unwrap();
    // The disk is lost: its copy of this change is missing.
    let files = while_writing(&volume, files, || std::thread::sleep(Duration::from_millis(20)));
    volume.sync().unwrap();
    let error = volume.drop_disk(&path(folder.path(), 1), false).unwrap_err().to_string();
    assert!(error.contains("is offline; bring the disk online first, or drop it by force"), "{error}");
    assert!(
        volume
            .rebalance()
            .unwrap_err()
            .to_string()
            .contains("is not online; bring the disk online, or drop it by force")
    );
    volume.drop_disk(&path(folder.path(), 1), true).unwrap();
    assert!(volume.group_status().disks[1].is_dropping);
    let files = while_writing(&volume, files, || volume.rebalance().unwrap());
    assert_eq!(modes(&volume), [DiskMode::Online; 2]);
    check(&volume, &files);
    let error = volume.online_disk(disk(folder.path(), 1)).unwrap_err().to_string();
    assert!(error.contains("was dropped from the disk group"), "{error}");
    volume.close().unwrap();
    drop(volume);
    check_without_each(folder.path(), &[0, 2], &files);
    let error = open_some(folder.path(), &[1], false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ForeignDisk, "{error}");
    let volume = open_with(folder.path(), 3, quiet);
    assert_eq!(modes(&volume), [DiskMode::Online; 2]);
    check(&volume, &files);
    // It can join as another disk: what it stored is removed.
    volume.add_disk(disk(folder.path(), 1), None).unwrap();
    volume.rebalance().unwrap();
    assert_eq!(volume.group_status().disks.iter().map(|disk| disk.number).collect::<Vec<_>>(), [0, 2, 3]);
    check(&volume, &files);
    volume.close().unwrap();
    drop(volume);
    check_without_each(folder.path(), &[0, 1, 2], &files);
}

#[test]
fn two_disks_of_a_copy_set_are_dropped_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 4, quiet);
    let files = fill(&volume);
    volume.drop_disk(&path(folder.path(), 0), false).unwrap();
    volume.drop_disk(&path(folder.path(), 1), true).unwrap();
    let files = while_writing(&volume, files, || volume.rebalance().unwrap());
    assert_eq!(volume.group_status().disks.iter().map(|disk| disk.number).collect::<Vec<_>>(), [2, 3]);
    check(&volume, &files);
    create(&volume, "after");
    volume.close().unwrap();
    drop(volume);
    check_without_each(folder.path(), &[2, 3], &files);
}

#[test]
fn a_sync_after_a_move_neither_fails_nor_takes_a_disk_offline() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 5, quiet);
    let ino = create(&volume, "file");
    // The open file has not seen its copies on the disk that returns.
    volume.offline_disk(&path(folder.path(), 1)).unwrap();
    let content = Random::seeded(9).bytes(10 * MIB as usize);
    volume.write(ino, 0, &content).unwrap();
    volume.online_disk(disk(folder.path(), 1)).unwrap();
    volume.drop_disk(&path(folder.path(), 0), false).unwrap();
    volume.rebalance().unwrap();
    volume.fsync(ino).unwrap();
    assert_eq!(modes(&volume), [DiskMode::Online; 4]);
    volume.write(ino, 0, &content).unwrap();
    volume.drop_disk(&path(folder.path(), 1), false).unwrap();
    volume.drop_disk(&path(folder.path(), 2), false).unwrap();
    volume.rebalance().unwrap();
    volume.fsync(ino).unwrap();
    assert_eq!(modes(&volume), [DiskMode::Online; 2]);
    assert!(read_all(&volume, ino) == content);
    volume.close().unwrap();
}

#[test]
fn an_undropped_disk_has_its_repair_time_again() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 3, quiet);
    volume.set_disk_repair_time(Duration::from_secs(1)).unwrap();
    volume.offline_disk(&path(folder.path(), 2)).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    volume.drop_expired_disks();
    assert!(volume.group_status().disks[2].is_dropping);
    volume.undrop_disk(&path(folder.path(), 2)).unwrap();
    volume.drop_expired_disks();
    assert!(!volume.group_status().disks[2].is_dropping, "the time has begun again");
    volume.close().unwrap();
}

#[test]
fn a_disk_is_replaced_by_another_one_at_the_same_path() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 2, quiet);
    let files = fill(&volume);
    volume.offline_disk(&path(folder.path(), 1)).unwrap();
    let error = volume.drop_disk(&path(folder.path(), 1), true).unwrap_err().to_string();
    assert!(error.contains("2 copies need 2 failure groups, but the disks are in 1"), "{error}");
    assert!(error.contains("replace the disk"), "{error}");
    std::fs::rename(path(folder.path(), 1), folder.path().join("broken")).unwrap();
    volume.replace_disk(&path(folder.path(), 1), disk(folder.path(), 1)).unwrap();
    let files = while_writing(&volume, files, || volume.rebalance().unwrap());
    let status = volume.group_status();
    assert_eq!(status.disks.iter().map(|disk| disk.number).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(status.disks[1].failure_group.as_deref(), Some("disk1"));
    check(&volume, &files);
    volume.close().unwrap();
    drop(volume);
    check_without_each(folder.path(), &[0, 1], &files);
    // The former disk beside the new ones is not used.
    std::fs::rename(folder.path().join("broken"), path(folder.path(), 2)).unwrap();
    let volume = open_with(folder.path(), 3, quiet);
    assert_eq!(modes(&volume), [DiskMode::Online; 2]);
    check(&volume, &files);
    volume.close().unwrap();
}

#[test]
fn a_start_continues_to_rebuild_the_copies_of_a_disk_that_is_absent() {
    let folder = tempfile::tempdir().unwrap();
    let volume = Volume::open(
        (0..4).map(|number| disk(folder.path(), number)).collect(),
        VolumeOptions { redundancy: Redundancy::High, ..quiet() },
    )
    .unwrap();
    let files = fill(&volume);
    volume.offline_disk(&path(folder.path(), 3)).unwrap();
    volume.drop_disk(&path(folder.path(), 3), true).unwrap();
    volume.abandon();
    drop(volume);
    std::fs::remove_dir_all(path(folder.path(), 3)).unwrap();
    let disks = (0..3).map(|number| disk(folder.path(), number)).collect();
    let volume = Volume::open(disks, VolumeOptions { redundancy: Redundancy::High, ..quiet() }).unwrap();
    assert!(volume.group_status().disks[3].is_dropping);
    assert_eq!(volume.group_status().disks[3].path, path(folder.path(), 3), "the path is known without the disk");
    volume.rebalance().unwrap();
    assert_eq!(modes(&volume), [DiskMode::Online; 3]);
    check(&volume, &files);
    let total: u64 = used(&volume).iter().sum();
    assert!(
        used(&volume).iter().all(|used| used * 3 >= total - 3),
        "each disk has a copy of everything: {:?}",
        used(&volume)
    );
    volume.close().unwrap();
}

#[test]
fn a_disk_is_dropped_when_its_repair_time_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 3, || VolumeOptions { rebalances: true, ..quiet() });
    let files = fill(&volume);
    assert_eq!(volume.group_status().disk_repair_time, Some(Duration::from_secs(12 * 3600)));
    volume.offline_disk(&path(folder.path(), 2)).unwrap();
    let left = volume.group_status().disks[2].repair_left.unwrap();
    assert!(left > Duration::from_secs(11 * 3600) && left <= Duration::from_secs(12 * 3600), "{left:?}");
    volume.set_disk_repair_time(Duration::ZERO).unwrap();
    assert_eq!(volume.group_status().disks[2].repair_left, None);
    volume.abandon();
    drop(volume);
    let volume = open_with(folder.path(), 3, || VolumeOptions { rebalances: true, ..quiet() });
    assert_eq!(volume.disk_repair_time(), Duration::ZERO, "the time is durable");
    volume.set_disk_repair_time(Duration::from_secs(1)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while volume.group_status().disks.len() > 2 || volume.rebalance_status().state != RebalanceState::Idle {
        assert!(Instant::now() < deadline, "{:?}", volume.group_status());
        std::thread::sleep(Duration::from_millis(20));
    }
    check(&volume, &files);
    volume.close().unwrap();
}

#[test]
fn small_disks_leave_although_sparse_parts_of_files_are_larger_than_their_free_space() {
    let folder = tempfile::tempdir().unwrap();
    let device = |number: usize| {
        let file = std::fs::File::create(path(folder.path(), number)).unwrap();
        file.set_len(64 * MIB).unwrap();
        Arc::new(DeviceDisk::open(path(folder.path(), number)).unwrap()) as Arc<dyn Disk>
    };
    let options = VolumeOptions { redundancy: Redundancy::High, ..quiet() };
    let volume = Volume::open((0..12).map(device).collect(), options).unwrap();
    let mut random = Random::seeded(5);
    let (ino, content) = (create(&volume, "file"), random.bytes(60 * MIB as usize));
    for (at, piece) in (0..).step_by(MIB as usize).zip(content.chunks(MIB as usize)) {
        volume.write(ino, at, piece).unwrap();
    }
    volume.sync().unwrap();
    (0..3).for_each(|number| volume.drop_disk(&path(folder.path(), number), false).unwrap());
    volume.rebalance().unwrap();
    let left: Vec<usize> = volume.group_status().disks.iter().map(|disk| disk.number).collect();
    assert_eq!(left, (3..12).collect::<Vec<_>>());
    assert!(is_even(&used(&volume)), "{:?}", used(&volume));
    assert!(read_all(&volume, ino) == content);
    volume.close().unwrap();
}

#[test]
fn the_first_estimate_of_a_rebalance_includes_parts_of_files_without_space() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 3, quiet);
    for number in 0..40 {
        let ino = create(&volume, &format!("file{number}"));
        volume.write(ino, 0, &[1; 9000]).unwrap();
    }
    volume.sync().unwrap();
    volume.drop_disk(&path(folder.path(), 0), false).unwrap();
    volume.set_rebalance_power(0).unwrap();
    std::thread::scope(|scope| {
        let rebalance = scope.spawn(|| volume.rebalance());
        let deadline = Instant::now() + Duration::from_secs(60);
        let estimated = loop {
            let status = volume.rebalance_status();
            if status.copied_bytes > 0 {
                break status.estimated;
            }
            assert!(Instant::now() < deadline, "the rebalance does not begin: {status:?}");
            std::thread::sleep(Duration::from_millis(5));
        };
        volume.set_rebalance_power(11).unwrap();
        rebalance.join().unwrap().unwrap();
        let status = volume.rebalance_status();
        assert_eq!(status.estimated, status.moved);
        assert!(estimated * 10 >= status.moved * 9, "{estimated} were estimated, {} moved", status.moved);
    });
    volume.close().unwrap();
}

#[test]
fn errors_say_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 3, quiet);
    let refused = |result: cellar_storage::Result<()>, expected: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(expected), "{error} lacks {expected}");
    };
    let at = |number| path(folder.path(), number);
    refused(volume.add_disk(disk(folder.path(), 1), None), "is in the disk group already");
    refused(volume.add_disk(disk(folder.path(), 4), Some("x".repeat(40))), "failure group");
    let nested = |path| -> Arc<dyn Disk> { Arc::new(AbsentDisk::new(path)) };
    refused(volume.add_disk(nested(at(1).join("inner")), None), "is below cell disk");
    refused(volume.add_disk(nested(folder.path().into()), None), "is above cell disk");
    refused(volume.replace_disk(&at(1), nested(at(1).join("inner"))), "is below cell disk");
    refused(volume.replace_disk(&at(1), disk(folder.path(), 1)), "is in the disk group already");
    refused(volume.online_disk(disk(folder.path(), 4)).map(drop), "mount the disk that belongs there");
    volume.offline_disk(&at(1)).unwrap();
    refused(volume.drop_disk(&at(0), true), "some data have their last copy on cell disk");
    volume.drop_disk(&at(1), true).unwrap();
    refused(volume.drop_disk(&at(1), true), "is being dropped already");
    refused(volume.drop_disk(&at(0), false), "2 copies need 2 failure groups, but the disks are in 1");
    volume.undrop_disk(Path::new("1")).unwrap();
    refused(volume.undrop_disk(Path::new("7")), "7 is not a disk of the group");
    volume.online_disk(disk(folder.path(), 1)).unwrap();
    assert_eq!(modes(&volume), [DiskMode::Online; 3]);
    refused(volume.add_disk(Arc::new(AbsentDisk::new("/nowhere")), None), "/nowhere");
    refused(volume.set_disk_repair_time(Duration::from_secs(u64::MAX)), "too long");
    volume.close().unwrap();
}
