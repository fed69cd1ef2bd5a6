//! Forming, opening and rejecting disk groups, and the metadata copies on their disks.

use crate::support;
use cellar_storage::disk::{DirectoryDisk, Disk};
use cellar_storage::{Error, ErrorKind, ROOT_INO, Volume, VolumeOptions};
use std::path::Path;
use std::sync::Arc;
use support::{create, disks, open, options, read_all};

fn open_error(disks: Vec<Arc<dyn Disk>>, options: VolumeOptions) -> Error {
    Volume::open(disks, options).map(drop).expect_err("the group must be rejected")
}

fn disk(path: &Path) -> Arc<dyn Disk> {
    Arc::new(DirectoryDisk::new(path).unwrap())
}

#[test]
fn files_survive_a_restart_with_disks_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 3);
    let ino = create(&volume, "file");
    let data: Vec<u8> = (0..5_000_000).map(|at| (at / 4096) as u8).collect();
    volume.write(ino, 0, &data).unwrap();
    volume.close().unwrap();
    drop(volume);
    let mut reversed = disks(folder.path(), 3);
    reversed.reverse();
    let volume = Volume::open(reversed, options()).unwrap();
    assert_eq!(read_all(&volume, volume.resolve("file").unwrap()), data);
}

#[test]
fn a_disk_that_is_in_use_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let _volume = open(folder.path(), 2);
    let error = open_error(disks(folder.path(), 2), options());
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.to_string().contains("in use by another cell daemon"), "{error}");
}

#[test]
fn missing_foreign_duplicate_and_unformed_disks_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    open(&folder.path().join("."), 2).close().unwrap();
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    open(&other, 1).close().unwrap();

    let [a, b] = [folder.path().join("disk0"), folder.path().join("disk1")];
    let check = |disks: Vec<Arc<dyn Disk>>, expected: &str| {
        let error = open_error(disks, options());
        assert_eq!(error.kind(), ErrorKind::ForeignDisk);
        assert!(error.to_string().contains(expected), "{error} lacks {expected}");
    };
    check(vec![disk(&a)], "disk 1");
    let full = folder.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("something"), "x").unwrap();
    check(vec![disk(&a), disk(&b), disk(&full)], "neither empty nor a cell disk");
    check(vec![disk(&a), disk(&other.join("disk0"))], "belongs to disk group");
    std::fs::write(other.join("something"), "x").unwrap();
    check(vec![disk(&other)], "neither empty nor a cell disk");
    open(folder.path(), 2).close().unwrap();
}

#[test]
fn a_group_whose_forming_was_interrupted_is_formed_again() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path(), 2).abandon();
    // Like a crash before the disks were written.
    std::fs::remove_dir_all(folder.path().join("disk1")).unwrap();
    std::fs::remove_dir_all(folder.path().join("disk0")).unwrap();
    let volume = open(folder.path(), 2);
    create(&volume, "file");
    volume.close().unwrap();
}

#[test]
fn an_outdated_or_lost_metadata_copy_is_rewritten_from_the_newest() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["disk0", "disk1"].map(|disk| folder.path().join(disk).join("metadata.redb"));
    let volume = open(folder.path(), 2);
    create(&volume, "old");
    volume.close().unwrap();
    drop(volume);
    let outdated = std::fs::read(&second).unwrap();
    let volume = open(folder.path(), 2);
    create(&volume, "new");
    volume.close().unwrap();
    drop(volume);
    for damage in [Some(outdated), None] {
        match damage {
            Some(bytes) => std::fs::write(&second, bytes).unwrap(),
            None => std::fs::remove_file(&second).unwrap(),
        }
        let volume = open(folder.path(), 2);
        assert!(volume.resolve("old").is_some() && volume.resolve("new").is_some());
        volume.close().unwrap();
        drop(volume);
        // The rewritten copy is complete: the other copy can be rewritten from it.
        std::fs::remove_file(&first).unwrap();
        let volume = open(folder.path(), 2);
        assert!(volume.resolve("new").is_some());
        volume.close().unwrap();
    }
}

#[test]
fn a_group_without_readable_metadata_is_an_error_not_an_empty_volume() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 1);
    create(&volume, "file");
    volume.close().unwrap();
    drop(volume);
    std::fs::write(folder.path().join("disk0/metadata.redb"), vec![7; 100_000]).unwrap();
    assert_ne!(open_error(disks(folder.path(), 1), options()).kind(), ErrorKind::Locked);
}

#[test]
fn the_options_set_the_owner_of_the_root_directory() {
    let folder = tempfile::tempdir().unwrap();
    let volume = Volume::open(disks(folder.path(), 1), VolumeOptions { root_uid: 101, root_gid: 104, ..options() });
    let root = volume.unwrap().getattr(ROOT_INO).unwrap();
    assert_eq!((root.uid, root.gid, root.nlink), (101, 104, 2));
}
