//! Groups in which the files of one type have another number of copies than the others.

use crate::support;
use cellar_format::wire::FileType;
use cellar_storage::disk::{Disk, Stream};
use cellar_storage::{DiskMode, Ino, ROOT_INO, Redundancy, Superblock, Volume, VolumeOptions};
use std::path::Path;
use std::sync::Arc;
use support::codec::compress;
use support::disk_changes::{disk, path, while_writing};
use support::mirrored::{mirrored, modes};
use support::{MIB, Random, create, disks, new_directory, new_file, open_with, options, read_all};

/// Files whose names start with "wal" are WAL, and so are those in the folder "log".
fn file_type(path: &str) -> FileType {
    if path.starts_with("wal") || path.starts_with("log/") { FileType::Wal } else { FileType::Relation }
}

fn quiet() -> VolumeOptions {
    VolumeOptions { rebalances: false, rebalance_power: 11, file_type, ..mirrored() }
}

fn filled(volume: &Volume, name: &str, seed: u64) -> (Ino, Vec<u8>) {
    let (ino, content) = (create(volume, name), Random::seeded(seed).bytes(6 * MIB as usize + 5000));
    volume.write(ino, 0, &content).unwrap();
    volume.sync().unwrap();
    (ino, content)
}

/// Returns how often each MiB of the space of a file's streams is stored: the least and the most, over all disks.
fn copies(folder: &Path, count: usize, ino: Ino, stream: Stream) -> (u64, u64) {
    let mut stored = std::collections::BTreeMap::new();
    for number in 0..count {
        let disk = disk(folder, number);
        for (tagged, _) in
            disk.backing_files().unwrap().into_iter().filter(|(n, of)| n & 0xff_ffff == ino && *of == stream)
        {
            let file = disk.open(tagged, stream, false).unwrap().unwrap();
            let is_there = |at: &u64| !file.is_hole(at * MIB, 4096).unwrap();
            (0..file.len().unwrap().div_ceil(MIB)).filter(is_there).for_each(|at| *stored.entry(at).or_insert(0) += 1);
        }
    }
    (*stored.values().min().unwrap(), *stored.values().max().unwrap())
}

#[test]
fn files_get_the_copies_of_their_type_and_a_rebalance_converts_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 3, quiet);
    let (early, early_content) = filled(&volume, "wal early", 1);
    let (table, table_content) = filled(&volume, "table", 2);
    compress(&volume, early, 1, 0).unwrap();
    volume.set_file_redundancy(FileType::Wal, Some(Redundancy::High)).unwrap();
    let (late, late_content) = filled(&volume, "wal late", 3);
    let of = |ino| copies(folder.path(), 3, ino, Stream::Data);
    assert_eq!((of(early), of(table), of(late)), ((2, 2), (2, 2), (3, 3)));

    // Reopened, the type still has its redundancy; a rebalance converts, while the files change.
    volume.close().unwrap();
    drop(volume);
    let volume = open_with(folder.path(), 3, quiet);
    let wal = volume.file_redundancy().into_iter().find(|found| found.file_type == FileType::Wal).unwrap();
    assert_eq!((wal.redundancy, wal.is_of_group), (Redundancy::High, false));
    let files = vec![(early, early_content), (table, table_content), (late, late_content)];
    let files = while_writing(&volume, files, || volume.rebalance().unwrap());
    volume.sync().unwrap();
    let check = |volume: &Volume| {
        for (ino, content) in &files {
            assert!(read_all(volume, *ino) == *content, "inode {ino}");
        }
    };
    check(&volume);
    assert_eq!((of(early), of(table), of(late)), ((3, 3), (2, 2), (3, 3)));
    assert_eq!(copies(folder.path(), 3, early, Stream::Units), (3, 3));
    // Where a converted file grows, it has the new number of copies, too.
    volume.write(early, 9 * MIB, &[7; MIB as usize]).unwrap();
    volume.truncate(early, 9 * MIB).unwrap();
    volume.truncate(early, files[0].1.len() as u64).unwrap();
    volume.rebalance().unwrap();
    assert_eq!(volume.rebalance_status().moved, 0, "everything is converted");

    // And back: then the type has the redundancy of the group again.
    volume.set_file_redundancy(FileType::Wal, None).unwrap();
    assert!(volume.file_redundancy().iter().all(|found| found.is_of_group));
    volume.rebalance().unwrap();
    check(&volume);
    assert_eq!((of(early), of(table), of(late)), ((2, 2), (2, 2), (2, 2)));
    volume.close().unwrap();
    drop(volume);
    let volume = open_with(folder.path(), 3, quiet);
    check(&volume);
    volume.close().unwrap();
}

#[test]
fn a_group_is_formed_with_the_configured_redundancy_of_types() {
    let folder = tempfile::tempdir().unwrap();
    let configured = || VolumeOptions { file_redundancy: vec![(FileType::Wal, Redundancy::High)], ..quiet() };
    let volume = open_with(folder.path(), 3, configured);
    let (ino, _) = filled(&volume, "wal", 1);
    assert_eq!(copies(folder.path(), 3, ino, Stream::Data), (3, 3));
    let log = volume.create(ROOT_INO, b"log", &new_directory()).unwrap().ino;
    let ino = volume.create(log, b"segment", &new_file()).unwrap().ino;
    volume.write(ino, 0, &[1; 8192]).unwrap();
    assert_eq!(copies(folder.path(), 3, ino, Stream::Data), (3, 3), "the path counts");
    // Later, the group decides.
    volume.set_file_redundancy(FileType::Wal, None).unwrap();
    volume.close().unwrap();
    drop(volume);
    let volume = open_with(folder.path(), 3, configured);
    assert!(volume.file_redundancy().iter().all(|found| found.redundancy == Redundancy::Normal));
    volume.close().unwrap();
    let superblock = Superblock::read(disk(folder.path(), 0).as_ref()).unwrap().unwrap();
    assert_eq!(superblock.sets.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 2, 3, 3, 3]);
    let version = std::fs::read(path(folder.path(), 0).join("superblock")).unwrap()[8];
    assert_eq!(version, 5, "releases that know one size only refuse the group");
}

#[test]
fn what_a_group_cannot_store_is_refused() {
    let set = |volume: &Volume, redundancy| {
        volume.set_file_redundancy(FileType::Wal, Some(redundancy)).map_err(|error| error.to_string())
    };
    let folder = tempfile::tempdir().unwrap();
    let external = open_with(folder.path(), 3, options);
    let error = set(&external, Redundancy::High).unwrap_err();
    assert!(error.contains("redundancy \"external\", so all its files have one copy"), "{error}");
    external.close().unwrap();

    let folder = tempfile::tempdir().unwrap();
    let configured = || VolumeOptions { file_redundancy: vec![(FileType::Wal, Redundancy::High)], ..quiet() };
    let error = Volume::open(disks(folder.path(), 2), configured()).map(drop).unwrap_err().to_string();
    assert!(error.contains("redundancy of file types: 3 copies need 3 failure groups"), "{error}");
    assert!(!path(folder.path(), 0).join("superblock").exists(), "no group was formed");
    let volume = open_with(folder.path(), 3, quiet);
    let error = set(&volume, Redundancy::External).unwrap_err();
    assert!(error.contains("would be lost with its disk"), "{error}");
    volume.offline_disk(&path(folder.path(), 1)).unwrap();
    let error = set(&volume, Redundancy::High).unwrap_err();
    assert!(error.contains("disk1 is not online"), "{error}");
    volume.online_disk(disk(folder.path(), 1)).unwrap();
    set(&volume, Redundancy::High).unwrap();
    // Three copies need three failure groups, as long as a type has them.
    let error = volume.drop_disk(&path(folder.path(), 2), false).unwrap_err().to_string();
    assert!(error.contains("cannot be dropped") && error.contains("3 copies need 3 failure groups"), "{error}");
    volume.set_file_redundancy(FileType::Wal, None).unwrap();
    volume.drop_disk(&path(folder.path(), 2), false).unwrap();
    volume.rebalance().unwrap();
    assert_eq!(modes(&volume).len(), 2);
    let error = set(&volume, Redundancy::High).unwrap_err();
    assert!(error.contains("3 copies need 3 failure groups, but the disks are in 2"), "{error}");
    volume.close().unwrap();
}

/// Checks that the content survives the loss of each disk.
fn check_without_each(folder: &Path, numbers: &[usize], files: &[(Ino, Vec<u8>)]) {
    for lost in numbers {
        let (from, hidden) = (path(folder, *lost), folder.join("lost"));
        std::fs::rename(&from, &hidden).unwrap();
        let others = numbers.iter().filter(|number| *number != lost);
        let others: Vec<Arc<dyn Disk>> = others.map(|number| disk(folder, *number)).collect();
        let volume = Volume::open(others, VolumeOptions { force_degraded: true, ..quiet() });
        let volume = volume.unwrap_or_else(|error| panic!("without disk {lost}: {error}"));
        for (ino, content) in files {
            assert!(read_all(&volume, *ino) == *content, "inode {ino} without disk {lost}");
        }
        volume
            .online_disk({
                std::fs::rename(&hidden, &from).unwrap();
                disk(folder, *lost)
            })
            .unwrap();
        volume.close().unwrap();
    }
}

#[test]
fn disks_of_a_group_with_files_of_two_and_three_copies_fail_and_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let configured = || VolumeOptions { file_redundancy: vec![(FileType::Wal, Redundancy::High)], ..quiet() };
    let volume = open_with(folder.path(), 3, configured);
    let mut files = vec![filled(&volume, "wal", 1), filled(&volume, "table", 2)];
    compress(&volume, files[1].0, 2, 0).unwrap();
    // What changes while a disk is offline is resynced.
    volume.offline_disk(&path(folder.path(), 0)).unwrap();
    for (ino, content) in &mut files {
        content[MIB as usize..3 * MIB as usize].fill(9);
        volume.write(*ino, MIB, &content[MIB as usize..3 * MIB as usize]).unwrap();
    }
    files.push(filled(&volume, "wal while offline", 4));
    volume.online_disk(disk(folder.path(), 0)).unwrap();
    volume.close().unwrap();
    drop(volume);
    check_without_each(folder.path(), &[0, 1, 2], &files);

    // A lost disk is replaced: its copies of both kinds are rebuilt.
    let volume = open_with(folder.path(), 3, quiet);
    assert_eq!(modes(&volume), [DiskMode::Online; 3]);
    volume.offline_disk(&path(folder.path(), 1)).unwrap();
    volume.replace_disk(&path(folder.path(), 1), disk(folder.path(), 3)).unwrap();
    volume.rebalance().unwrap();
    assert_eq!(volume.group_status().disks.len(), 3);
    volume.close().unwrap();
    drop(volume);
    std::fs::remove_dir_all(path(folder.path(), 1)).unwrap();
    let open = || Volume::open([0, 2, 3].map(|number| disk(folder.path(), number)).into(), quiet());
    let volume = open().unwrap();
    for (ino, _) in &files {
        let expected = if *ino == files[1].0 { 2 } else { 3 };
        assert_eq!(copies(folder.path(), 4, *ino, Stream::Data), (expected, expected), "inode {ino}");
    }
    let mut scrubbed = None;
    volume.start_scrub(0).unwrap();
    while scrubbed.is_none() {
        std::thread::sleep(std::time::Duration::from_millis(2));
        scrubbed = volume.scrub_report().filter(|report| report.ended.is_some());
    }
    assert_eq!(scrubbed.map(|report| (report.repaired, report.unrepaired)), Some((0, 0)));
    volume.close().unwrap();
    drop(volume);
    check_without_each(folder.path(), &[0, 2, 3], &files);
}
