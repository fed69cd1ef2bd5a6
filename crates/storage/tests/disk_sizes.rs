//! Groups of disks of different size: new files fill the disks in proportion to their sizes, and full disks get no new files.

use crate::support;
use cellar_storage::disk::Disk;
use cellar_storage::{ErrorKind, Fallocate, Redundancy, Volume, VolumeOptions};
use std::path::Path;
use std::sync::Arc;
use support::disk_changes::allocated;
use support::limited_disk::LimitedDisk;
use support::{MIB, Random, create, options, read_all};

/// Bytes that are written of each allocation unit.
const PART: usize = 4096;

fn open(folder: &Path, sizes: &[u64], redundancy: Redundancy, groups: &[&str]) -> (Vec<LimitedDisk>, Arc<Volume>) {
    let disks: Vec<LimitedDisk> = support::disks(folder, sizes.len())
        .into_iter()
        .zip(sizes)
        .map(|(disk, size)| LimitedDisk::new(disk, *size * MIB))
        .collect();
    let failure_groups = groups.iter().map(|group| Some(group.to_string())).collect();
    let volume = open_on(&disks, VolumeOptions { redundancy, failure_groups, ..quiet() });
    (disks, volume)
}

fn open_on(disks: &[LimitedDisk], options: VolumeOptions) -> Arc<Volume> {
    Volume::open(disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect(), options).unwrap()
}

fn quiet() -> VolumeOptions {
    VolumeOptions { rebalances: false, online_returned_disks: false, ..options() }
}

/// Creates files, and writes a part of each of their allocation units.
fn fill(volume: &Volume, files: u64, aus: u64) {
    for number in 0..files {
        let ino = create(volume, &format!("file{number}"));
        for au in 0..aus {
            volume.write(ino, au * MIB, &[7; PART]).unwrap();
        }
    }
    volume.sync().unwrap();
}

fn check_proportion(disks: &[LimitedDisk], expected: &[f64]) {
    let used: Vec<f64> = disks.iter().map(|disk| allocated(disk) as f64).collect();
    let sums: [f64; 2] = [used.iter().sum(), expected.iter().sum()];
    for (disk, (used, expected)) in used.iter().zip(expected).enumerate() {
        let (share, target) = (used / sums[0], expected / sums[1]);
        assert!((share / target - 1.0).abs() <= 0.03, "disk {disk} has {share} of the data instead of {target}");
    }
}

#[test]
fn new_files_fill_disks_in_proportion_to_their_sizes() {
    for sizes in [&[1440, 1440, 671][..], &[4096, 2048, 1024, 1024], &[900, 1000]] {
        let folder = tempfile::tempdir().unwrap();
        let (disks, volume) = open(folder.path(), sizes, Redundancy::External, &[]);
        fill(&volume, 3, 400);
        let expected: Vec<f64> = sizes.iter().map(|size| *size as f64).collect();
        check_proportion(&disks, &expected);
        volume.abandon();
    }
}

#[test]
fn copies_fill_disks_and_failure_groups_in_proportion() {
    type Case<'a> = (&'a [u64], Redundancy, &'a [&'a str], &'a [f64]);
    let cases: [Case<'_>; 4] = [
        (&[2000, 1000, 1000, 1000], Redundancy::Normal, &["a", "b", "c", "d"], &[2.0, 1.0, 1.0, 1.0]),
        // Half of all copies are on the largest disk, at most.
        (&[9000, 1000, 2000], Redundancy::Normal, &["a", "b", "c"], &[3.0, 1.0, 2.0]),
        (&[1000, 1000, 1000], Redundancy::Normal, &["a", "a", "b"], &[1.0, 1.0, 2.0]),
        (&[1500, 1000, 1000, 1000, 500], Redundancy::High, &["a", "b", "c", "d", "e"], &[3.0, 2.0, 2.0, 2.0, 1.0]),
    ];
    for (sizes, redundancy, groups, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let (disks, volume) = open(folder.path(), sizes, redundancy, groups);
        fill(&volume, 1, 200);
        check_proportion(&disks, expected);
        volume.abandon();
    }
}

#[test]
fn files_with_weights_have_their_content_after_a_restart_a_rebalance_and_another_disk() {
    let folder = tempfile::tempdir().unwrap();
    let (mut disks, volume) = open(folder.path(), &[1000, 2000], Redundancy::External, &[]);
    let mut random = Random::seeded(1);
    let content = random.bytes(30 * MIB as usize + 12_345);
    let ino = create(&volume, "file");
    volume.write(ino, 0, &content).unwrap();
    volume.fsync(ino).unwrap();
    volume.truncate(ino, 20 * MIB).unwrap();
    volume.write(ino, 20 * MIB, &content[20 * MIB as usize..]).unwrap();
    for au in 0..5 {
        support::codec::compress(&volume, ino, au, 1).unwrap();
    }
    volume.close().unwrap();
    while Arc::strong_count(&volume) > 1 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    drop(volume);
    let inner = support::disks(folder.path(), 3);
    disks = disks.into_iter().zip(&inner).map(|(disk, inner)| disk.restarted(|| inner.clone())).collect();
    let volume = open_on(&disks, quiet());
    assert!(read_all(&volume, ino) == content);
    let third = LimitedDisk::new(inner[2].clone(), 500 * MIB);
    volume.add_disk(Arc::new(third.clone()), None).unwrap();
    volume.rebalance().unwrap();
    assert!(read_all(&volume, ino) == content);
    disks.push(third);
    let used: Vec<u64> = disks.iter().map(|disk| allocated(disk) / MIB).collect();
    assert!(used[1] > used[0] && used[0] > used[2] && used[2] > 0, "{used:?}");
    volume.abandon();
}

#[test]
fn files_fill_a_disk_that_has_just_joined_in_proportion_to_its_size() {
    for (redundancy, size, expected) in [(Redundancy::External, 1000, 0.5), (Redundancy::Normal, 500, 0.25)] {
        let folder = tempfile::tempdir().unwrap();
        let (mut disks, volume) = open(folder.path(), &[2000, 2000, 2000], redundancy, &[]);
        let added = LimitedDisk::new(support::disks(folder.path(), 4).remove(3), size * MIB);
        volume.add_disk(Arc::new(added.clone()), None).unwrap();
        disks.push(added);
        fill(&volume, 1, 300);
        check_proportion(&disks, &[1.0, 1.0, 1.0, expected]);
        volume.abandon();
    }
}

#[test]
fn new_files_leave_out_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let (disks, volume) = open(folder.path(), &[1000, 1000, 1000], Redundancy::External, &[]);
    let before = create(&volume, "before");
    volume.write(before, 0, &vec![1; 3 * MIB as usize]).unwrap();
    disks[1].occupy_all_but(64 * MIB);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    for number in 0.. {
        assert!(std::time::Instant::now() < deadline, "new files still use the full disk");
        let ino = create(&volume, &format!("file{number}"));
        if volume.write(ino, 0, &vec![2; 6 * MIB as usize]).is_ok() && number > 3 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    volume.abandon();
}

/// Appends MiB by MiB until the volume refuses. Returns the content.
fn grow_until_refused(volume: &Volume, ino: u64, mut content: Vec<u8>) -> Vec<u8> {
    let mut random = Random::seeded(ino);
    loop {
        let part = random.bytes(MIB as usize);
        match volume.write(ino, content.len() as u64, &part) {
            Ok(_) => content.extend(part),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                return content;
            }
        }
    }
}

#[test]
fn a_file_on_full_disks_grows_after_a_rebalance() {
    let folder = tempfile::tempdir().unwrap();
    let (_limited, volume) = open(folder.path(), &[80, 80], Redundancy::External, &[]);
    let (ino, mut random) = (create(&volume, "file"), Random::seeded(9));
    let content = random.bytes(6 * MIB as usize + 4321);
    volume.write(ino, 0, &content).unwrap();
    let third = LimitedDisk::new(support::disks(folder.path(), 3).remove(2), 80 * MIB);
    volume.add_disk(Arc::new(third), None).unwrap();
    let content = grow_until_refused(&volume, ino, content);
    let refused = content.len() as u64 / MIB;
    volume.sync().unwrap();
    volume.rebalance().unwrap();
    assert!(read_all(&volume, ino) == content);
    let content = grow_until_refused(&volume, ino, content);
    let grown = content.len() as u64 / MIB;
    assert!(grown > refused + 30, "the file has {grown} MiB after the rebalance, {refused} MiB before");
    assert!(read_all(&volume, ino) == content);
    volume.abandon();
}

#[test]
fn a_reservation_needs_of_each_disk_only_what_the_disk_stores() {
    let cases = [(Redundancy::External, 2 * 700 - 100, &[][..]), (Redundancy::Normal, 600, &["a", "b"][..])];
    let operations = [Fallocate::Reserve { keep_size: true }, Fallocate::Zero { keep_size: false }];
    for ((redundancy, mib, groups), operation) in cases.into_iter().zip(operations) {
        let folder = tempfile::tempdir().unwrap();
        let (_disks, volume) = open(folder.path(), &[800, 800], redundancy, groups);
        let ino = create(&volume, "file");
        let refused = volume.fallocate(ino, 0, (mib + 400) * MIB, operation).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
        volume.fallocate(ino, 0, mib * MIB, operation).unwrap();
        volume.abandon();
    }
}

#[test]
fn a_reservation_counts_allocation_units_that_a_rebalance_has_moved() {
    let folder = tempfile::tempdir().unwrap();
    let (_disks, volume) = open(folder.path(), &[80, 80], Redundancy::External, &[]);
    let (ino, mut random) = (create(&volume, "file"), Random::seeded(9));
    let content = random.bytes(60 * MIB as usize);
    volume.write(ino, 0, &content).unwrap();
    let third = LimitedDisk::new(support::disks(folder.path(), 3).remove(2), 80 * MIB);
    volume.add_disk(Arc::new(third), None).unwrap();
    volume.sync().unwrap();
    volume.rebalance().unwrap();
    // The first two disks have less space than half of the range.
    volume.fallocate(ino, 0, 60 * MIB, Fallocate::Reserve { keep_size: true }).unwrap();
    assert!(read_all(&volume, ino) == content);
    volume.abandon();
}

#[test]
fn a_reservation_of_more_than_the_disks_have_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (_disks, volume) = open(folder.path(), &[900, 1000], Redundancy::External, &[]);
    let ino = create(&volume, "file");
    // The file is not on all disks, so the search for the disks of a range does not end early.
    let third = LimitedDisk::new(support::disks(folder.path(), 3).remove(2), 900 * MIB);
    volume.add_disk(Arc::new(third), None).unwrap();
    for operation in [Fallocate::Reserve { keep_size: false }, Fallocate::Zero { keep_size: true }] {
        // An allocation unit of such a range after the other would take minutes.
        let refused = volume.fallocate(ino, 0, 1 << 51, operation).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    }
    assert_eq!(volume.size(ino).unwrap(), 0);
    volume.abandon();
}

#[test]
fn usable_bytes_leave_out_disks_that_are_offline() {
    for (groups, expected) in [(&["a", "b"][..], 950..1001), (&["a", "b", "c"], 950..1001)] {
        let folder = tempfile::tempdir().unwrap();
        let (disks, volume) = open(folder.path(), &vec![1000; groups.len()], Redundancy::Normal, groups);
        volume.offline_disk(disks[1].path()).unwrap();
        let usable = volume.usable_bytes(2) / MIB;
        assert!(expected.contains(&usable), "{usable} MiB, {} failure groups", groups.len());
        volume.abandon();
    }
}

#[test]
fn usable_bytes_follow_the_sizes() {
    let cases: [(&[u64], Redundancy, std::ops::Range<u64>); 4] = [
        (&[1000, 1000, 500], Redundancy::External, 2450..2501),
        (&[1000, 1000, 500], Redundancy::Normal, 1225..1251),
        // Of the largest disk, only as much as the others have copies of.
        (&[4000, 300, 200], Redundancy::Normal, 480..501),
        (&[4000, 300, 200], Redundancy::High, 180..201),
    ];
    for (sizes, redundancy, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let (_disks, volume) = open(folder.path(), sizes, redundancy, &[]);
        let usable = volume.usable_bytes(redundancy.copies()) / MIB;
        assert!(expected.contains(&usable), "{usable} MiB of {sizes:?}");
        volume.abandon();
    }
}
