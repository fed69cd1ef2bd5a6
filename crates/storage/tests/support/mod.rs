//! Shared by the storage tests: volumes on temporary directories, disks in memory, a codec, and a seeded random number
//! generator.

#![allow(dead_code)]

pub mod breakable_disk;
pub mod closed_loop;
pub mod codec;
pub mod conformance;
pub mod disk_changes;
pub mod history;
pub mod limited_disk;
pub mod memory_disk;
pub mod memory_medium;
pub mod mirrored;
mod random;

pub use random::Random;

use cellar_storage::disk::{DirectoryDisk, Disk};
use cellar_storage::{AuSize, ErrorKind, Ino, Kind, NewNode, ROOT_INO, Volume, VolumeOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub const MIB: u64 = 1 << 20;

pub fn options() -> VolumeOptions {
    VolumeOptions {
        au_size: AuSize::from_bytes(MIB).unwrap(),
        cache_bytes: 16 * MIB,
        prefetch_threads: 2,
        unit_codec: Some(Arc::new(codec::PageCodec)),
        ..VolumeOptions::default()
    }
}

pub fn disks(folder: &Path, count: usize) -> Vec<Arc<dyn Disk>> {
    let disk = |index| Arc::new(DirectoryDisk::new(folder.join(format!("disk{index}"))).unwrap()) as Arc<dyn Disk>;
    (0..count).map(disk).collect()
}

/// Opens a volume on disks that another volume was using: on a busy machine, its last thread unlocks them a little
/// later.
pub fn open(folder: &Path, count: usize) -> Arc<Volume> {
    open_with(folder, count, options)
}

/// Like [`open`], with other options.
pub fn open_with(folder: &Path, count: usize, options: impl Fn() -> VolumeOptions) -> Arc<Volume> {
    for _ in 0..500 {
        match Volume::open(disks(folder, count), options()) {
            Err(error) if error.kind() == ErrorKind::Locked => std::thread::sleep(Duration::from_millis(10)),
            opened => return opened.unwrap(),
        }
    }
    panic!("the disks in {} are still locked", folder.display());
}

pub fn new_file() -> NewNode<'static> {
    NewNode { kind: Kind::File, mode: 0o600, uid: 0, gid: 0, device: 0, target: b"" }
}

pub fn new_directory() -> NewNode<'static> {
    NewNode { kind: Kind::Directory, mode: 0o700, ..new_file() }
}

pub fn create(volume: &Volume, name: &str) -> Ino {
    volume.create(ROOT_INO, name.as_bytes(), &new_file()).unwrap().ino
}

pub fn read_all(volume: &Volume, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0; volume.size(ino).unwrap() as usize];
    let count = volume.read(ino, 0, &mut bytes).unwrap();
    assert_eq!(count, bytes.len());
    bytes
}

/// Unpacks the files of a fixture into a folder.
pub fn unpack(packed: &[u8], folder: &Path) {
    let bytes = lz4_flex::decompress_size_prepended(packed).unwrap();
    let mut rest = &bytes[..];
    let mut next = || {
        let (length, after) = rest.split_first_chunk().unwrap();
        let (part, after) = after.split_at(u32::from_le_bytes(*length) as usize);
        rest = after;
        (part, rest.is_empty())
    };
    loop {
        let (name, _) = next();
        let (content, is_last) = next();
        let path = folder.join(std::str::from_utf8(name).unwrap());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        if is_last {
            break;
        }
    }
}
