//! Crashes of the process: synced files survive, and no file has bytes of another file.

use crate::support;
use cellar_storage::{Kind, NewNode, ROOT_INO, RenameMode, Volume};
use std::path::Path;
use std::sync::Arc;
use support::{MIB, Random, create, new_file, open, read_all};

fn crash(volume: Arc<Volume>, folder: &Path, disks: usize) -> Arc<Volume> {
    volume.abandon();
    drop(volume);
    open(folder, disks)
}

fn backing_files(volume: &Volume) -> Vec<u64> {
    let listed = volume.disks().iter().flat_map(|disk| disk.backing_files().unwrap());
    let mut all: Vec<u64> = listed.map(|(ino, _)| ino).collect();
    all.sort();
    all.dedup();
    all
}

#[test]
fn synced_data_and_names_survive_and_unsynced_files_leave_no_backing_files() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 2);
    let kept = create(&volume, "kept");
    volume.write(kept, 3 * MIB - 5, b"0123456789").unwrap();
    volume.fsync(kept).unwrap();
    volume.write(kept, 0, b"later").unwrap();
    let lost = create(&volume, "lost");
    volume.write(lost, 0, &[1; 100_000]).unwrap();
    let volume = crash(volume, folder.path(), 2);
    assert_eq!(volume.resolve("kept"), Some(kept));
    let bytes = read_all(&volume, kept);
    assert_eq!(bytes.len() as u64, 3 * MIB + 5);
    assert_eq!(&bytes[bytes.len() - 10..], b"0123456789");
    assert!(bytes.starts_with(b"later"), "an acknowledged write survives a crash of the process");
    assert_eq!(volume.resolve("lost"), None);
    assert_eq!(backing_files(&volume), [kept]);
}

#[test]
fn an_acknowledged_write_to_a_file_with_a_committed_name_survives_a_crash_of_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 2);
    let ino = create(&volume, "file");
    volume.fsyncdir(ROOT_INO).unwrap();
    let bytes: Vec<u8> = (0..3 * MIB + 100).map(|at| (at / 8192 + at) as u8).collect();
    volume.write(ino, 0, &bytes).unwrap();
    volume.write(ino, MIB - 4, b"replaced").unwrap();
    let volume = crash(volume, folder.path(), 2);
    assert_eq!(volume.resolve("file"), Some(ino));
    let mut expected = bytes;
    expected[MIB as usize - 4..][..8].copy_from_slice(b"replaced");
    assert!(read_all(&volume, ino) == expected);
    volume.close().unwrap();
}

#[test]
fn a_rename_over_a_file_is_atomic() {
    let folder = tempfile::tempdir().unwrap();
    let mut volume = open(folder.path(), 2);
    for round in 0..6_u8 {
        let new = create(&volume, "new");
        volume.write(new, 0, &[round; 9000]).unwrap();
        volume.fsync(new).unwrap();
        volume.rename((ROOT_INO, b"new"), (ROOT_INO, b"file"), RenameMode::Replace).unwrap();
        let synced = round % 2 == 0;
        if synced {
            volume.fsyncdir(ROOT_INO).unwrap();
        }
        volume = crash(volume, folder.path(), 2);
        match (volume.resolve("file"), volume.resolve("new")) {
            (Some(file), None) => assert_eq!(read_all(&volume, file), [round; 9000]),
            (Some(file), Some(new)) if !synced => {
                assert_eq!(read_all(&volume, file), [round - 1; 9000]);
                assert_eq!(read_all(&volume, new), [round; 9000]);
                volume.unlink(ROOT_INO, b"new").unwrap();
            }
            other => panic!("round {round}: {other:?}"),
        }
    }
}

#[test]
fn syncing_a_file_makes_its_directories_links_and_modes_durable() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 1);
    let directory = NewNode { kind: Kind::Directory, mode: 0o2750, uid: 7, gid: 8, ..new_file() };
    let directory = volume.create(ROOT_INO, b"d", &directory).unwrap().ino;
    let symlink = NewNode { kind: Kind::Symlink, target: b"over/there", ..new_file() };
    let symlink = volume.create(directory, b"s", &symlink).unwrap().ino;
    let file = volume.create(directory, b"f", &new_file()).unwrap();
    assert_eq!(file.gid, 8, "a set-group-id directory determines the group");
    volume.link(file.ino, ROOT_INO, b"g").unwrap();
    volume.fsync(file.ino).unwrap();
    let volume = crash(volume, folder.path(), 1);
    assert_eq!(volume.resolve("d/f"), Some(file.ino));
    assert_eq!(volume.resolve("g"), Some(file.ino));
    assert_eq!(volume.readlink(symlink).unwrap(), b"over/there");
    let attr = volume.getattr(directory).unwrap();
    assert_eq!((attr.mode, attr.uid, attr.gid, attr.nlink), (0o2750, 7, 8, 2));
    assert_eq!(volume.getattr(file.ino).unwrap().nlink, 2);
}

#[test]
fn an_unlinked_file_exists_while_it_is_referenced_and_not_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 2);
    let ino = create(&volume, "file");
    volume.write(ino, 0, b"still here").unwrap();
    volume.fsync(ino).unwrap();
    volume.unlink(ROOT_INO, b"file").unwrap();
    volume.fsyncdir(ROOT_INO).unwrap();
    assert_eq!(read_all(&volume, ino), b"still here");
    assert_eq!(backing_files(&volume), [ino]);
    let volume = crash(volume, folder.path(), 2);
    assert_eq!(backing_files(&volume), [0; 0]);

    let ino = create(&volume, "file");
    volume.write(ino, 0, b"x").unwrap();
    volume.fsync(ino).unwrap();
    volume.unlink(ROOT_INO, b"file").unwrap();
    volume.forget(ino, 1);
    volume.fsyncdir(ROOT_INO).unwrap();
    assert_eq!(backing_files(&volume), [0; 0], "the last reference was released");
    assert!(volume.getattr(ino).is_err());
}

#[test]
fn random_crashes_never_mix_the_bytes_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::from_environment();
    let mut volume = open(folder.path(), 2);
    // Name, fill byte and size of each synced file.
    let mut synced: Vec<(String, u8, usize)> = Vec::new();
    for round in 0..12 {
        for number in 0..random.below(8) {
            let name = format!("{round}-{number}");
            let fill = 1 + random.below(255) as u8;
            let ino = create(&volume, &name);
            let size = 1 + random.below(3 * MIB) as usize;
            volume.write(ino, 0, &vec![fill; size]).unwrap();
            if random.below(2) == 0 {
                volume.fsync(ino).unwrap();
                synced.push((name, fill, size));
            } else if random.below(2) == 0 {
                volume.fsyncdir(ROOT_INO).unwrap();
            }
        }
        if random.below(2) == 0 && !synced.is_empty() {
            let (name, ..) = synced.swap_remove(random.below(synced.len() as u64) as usize);
            volume.unlink(ROOT_INO, name.as_bytes()).unwrap();
        }
        volume = crash(volume, folder.path(), 2);
        for (name, fill, size) in &synced {
            let bytes = read_all(&volume, volume.resolve(name).expect(name));
            assert!(bytes.len() == *size && bytes.iter().all(|byte| byte == fill), "{name}");
        }
        let mut names = Vec::new();
        let visit = |entry: cellar_storage::DirEntry<'_>| {
            names.push(entry.ino);
            true
        };
        volume.readdir(ROOT_INO, 0, visit).unwrap();
        for ino in names {
            let bytes = read_all(&volume, ino);
            let fill = bytes.iter().copied().find(|byte| *byte != 0).unwrap_or(0);
            assert!(bytes.iter().all(|byte| *byte == 0 || *byte == fill), "inode {ino} has bytes of two files");
        }
    }
}
