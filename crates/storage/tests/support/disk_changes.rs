//! Disks that join and leave groups on directories.

use super::{Random, disks};
use cellar_storage::Volume;
use cellar_storage::disk::Disk;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub fn disk(folder: &Path, number: usize) -> Arc<dyn Disk> {
    disks(folder, number + 1).pop().unwrap()
}

pub fn path(folder: &Path, number: usize) -> std::path::PathBuf {
    folder.join(format!("disk{number}"))
}

/// Returns the bytes that the files of inodes occupy on a disk.
pub fn allocated(disk: &dyn Disk) -> u64 {
    let files = disk.backing_files().unwrap().into_iter();
    files.map(|(number, stream)| disk.measure(number, stream).unwrap().1).sum()
}

/// Writes blocks of a file until `stop`, and returns the expected content.
pub fn write_until(volume: &Volume, ino: u64, mut expected: Vec<u8>, stop: &AtomicBool) -> Vec<u8> {
    let mut random = Random::seeded(ino);
    while !stop.load(Ordering::Acquire) {
        let at = random.below(expected.len() as u64 / 8192) as usize * 8192;
        let block = random.bytes(8192);
        volume.write(ino, at as u64, &block).unwrap();
        expected[at..at + 8192].copy_from_slice(&block);
        if random.below(8) == 0 {
            volume.fsync(ino).unwrap();
        }
        let (from, mut read) = (random.below(expected.len() as u64 - 30_000), vec![0; 30_000]);
        volume.read(ino, from, &mut read).unwrap();
        assert!(read == expected[from as usize..from as usize + 30_000], "a read at {from} returns other bytes");
    }
    expected
}

/// Writes to files in threads while `work` runs. Returns the files with their content.
pub fn while_writing(volume: &Volume, files: Vec<(u64, Vec<u8>)>, work: impl FnOnce()) -> Vec<(u64, Vec<u8>)> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let write = |(ino, content): (u64, Vec<u8>)| {
            let stop = &stop;
            scope.spawn(move || (ino, write_until(volume, ino, content, stop)))
        };
        let threads: Vec<_> = files.into_iter().map(write).collect();
        work();
        stop.store(true, Ordering::Release);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
