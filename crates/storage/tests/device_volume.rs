//! Volumes on devices without a file system.

use crate::support;
use cellar_storage::disk::{DeviceDisk, DirectoryDisk, Disk, FileMedium, Medium, OverlayDisk};
use cellar_storage::{ErrorKind, ReadOnlyVolume, Volume};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use support::codec::compress;
use support::limited_disk::LimitedDisk;
use support::{MIB, Random, create, options, read_all};

const DEVICE_BYTES: u64 = 128 << 20;

fn device(path: PathBuf) -> PathBuf {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).unwrap();
    file.set_len(DEVICE_BYTES).unwrap();
    path
}

/// Two devices and a directory of the same size: each of them gets the same share of new files.
fn disks(folder: &Path) -> Vec<Arc<dyn Disk>> {
    let device = |name: &str| Arc::new(DeviceDisk::open(device(folder.join(name))).unwrap()) as Arc<dyn Disk>;
    let directory = Arc::new(DirectoryDisk::new(folder.join("two")).unwrap());
    vec![device("one"), Arc::new(LimitedDisk::new(directory, DEVICE_BYTES)), device("three")]
}

fn open(folder: &Path) -> Arc<Volume> {
    for _ in 0..500 {
        match Volume::open(disks(folder), options()) {
            Err(error) if error.kind() == ErrorKind::Locked => std::thread::sleep(Duration::from_millis(10)),
            opened => return opened.unwrap(),
        }
    }
    panic!("the disks in {} are still locked", folder.display());
}

#[test]
fn a_group_of_devices_and_directories_keeps_its_files_after_a_kill_and_a_clean_stop() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::seeded(20);
    let volume = open(folder.path());
    let (plain, units) = (create(&volume, "plain"), create(&volume, "units"));
    let bytes: Vec<u8> = (0..7 * MIB + 1000).map(|at| (at / 8192 % 251) as u8).collect();
    for ino in [plain, units] {
        volume.write(ino, 0, &bytes).unwrap();
    }
    volume.fsync(units).unwrap();
    for au in 0..7 {
        compress(&volume, units, au, 0).unwrap();
    }
    let mut expected = bytes.clone();
    for _ in 0..200 {
        let (at, data) = (random.below(7 * MIB) as usize, random.bytes(300));
        expected[at..at + 300].copy_from_slice(&data);
        volume.write(units, at as u64, &data).unwrap();
    }
    volume.fsync(plain).unwrap();
    volume.abandon();
    drop(volume);

    let volume = open(folder.path());
    assert!(read_all(&volume, volume.resolve("plain").unwrap()) == bytes);
    assert!(read_all(&volume, volume.resolve("units").unwrap()) == expected, "acknowledged writes survive a kill");
    volume.truncate(plain, 3 * MIB).unwrap();
    volume.close().unwrap();
    drop(volume);

    let volume = open(folder.path());
    assert!(read_all(&volume, plain) == bytes[..3 * MIB as usize]);
    volume.close().unwrap();
    drop(volume);

    let before = std::fs::read(folder.path().join("one")).unwrap();
    let overlays = ["one", "two", "three"].map(|name| OverlayDisk::new(folder.path().join(name)).unwrap());
    let inspected = ReadOnlyVolume::open(overlays.into(), options()).unwrap();
    assert_eq!(inspected.size(units).unwrap(), expected.len() as u64);
    drop(inspected);
    assert!(std::fs::read(folder.path().join("one")).unwrap() == before, "an inspection changes nothing");
}

/// A write that waits for a device is left to a thread that may wait, also if it overwrites blocks in place.
#[test]
fn a_write_to_a_device_waits_and_a_write_to_a_directory_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path());
    let file = create(&volume, "file");
    volume.write(file, 0, &vec![1; 6 * MIB as usize]).unwrap();
    let is_done = |au: u64| volume.try_write(file, au * MIB, &[2; 8192]).unwrap().is_some();
    let done = (0..6).filter(|au| is_done(*au)).count();
    assert_eq!(done, 2, "two of six allocation units are on the directory");
}

#[test]
fn a_device_with_other_content_is_refused_until_it_is_formatted() {
    let folder = tempfile::tempdir().unwrap();
    let path = device(folder.path().join("device"));
    for (offset, magic, expected) in
        [(1080, &b"\x53\xef"[..], "ext4"), (510, b"\x55\xaa", "partition table"), (MIB - 5, b"x", "unknown kind")]
    {
        let mut bytes = vec![0; DEVICE_BYTES as usize];
        bytes[offset as usize..offset as usize + magic.len()].copy_from_slice(magic);
        std::fs::write(&path, &bytes).unwrap();
        let disk = Arc::new(DeviceDisk::open(&path).unwrap());
        let error = Volume::open(vec![disk], options()).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("cellar disk format --force"), "{error}");
        assert!(std::fs::read(&path).unwrap() == bytes, "a refused device is unchanged");
    }
    let medium = FileMedium::open(&path, false).unwrap();
    DeviceDisk::format(&medium).unwrap();
    drop(medium);
    Volume::open(vec![Arc::new(DeviceDisk::open(&path).unwrap())], options()).unwrap().close().unwrap();
}

#[test]
fn a_disk_of_another_group_and_a_device_that_shrank_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["one", "two"].map(|name| device(folder.path().join(name)));
    for path in &paths {
        Volume::open(vec![Arc::new(DeviceDisk::open(path).unwrap())], options()).unwrap().close().unwrap();
    }
    let both = paths.iter().map(|path| Arc::new(DeviceDisk::open(path).unwrap()) as Arc<dyn Disk>).collect();
    let error = Volume::open(both, options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ForeignDisk, "{error}");
    OpenOptions::new().write(true).open(&paths[0]).unwrap().set_len(DEVICE_BYTES / 2).unwrap();
    let error = Volume::open(vec![Arc::new(DeviceDisk::open(&paths[0]).unwrap())], options()).unwrap_err().to_string();
    assert!(error.contains("was formatted with"), "{error}");
}

#[test]
fn one_damaged_copy_of_the_device_header_is_survived() {
    let folder = tempfile::tempdir().unwrap();
    let path = device(folder.path().join("device"));
    let disk = || Arc::new(DeviceDisk::open(&path).unwrap());
    Volume::open(vec![disk()], options()).unwrap().close().unwrap();
    let intact = std::fs::read(&path).unwrap();
    for at in [0, 1 << 20] {
        let mut damaged = intact.clone();
        damaged[at..at + 4096].fill(0x5a);
        std::fs::write(&path, damaged).unwrap();
        Volume::open(vec![disk()], options()).unwrap().close().unwrap();
    }
    let mut damaged = intact;
    damaged[0..4096].fill(0x5a);
    damaged[1 << 20..(1 << 20) + 4096].fill(0x5a);
    std::fs::write(&path, damaged).unwrap();
    assert!(Volume::open(vec![disk()], options()).unwrap_err().to_string().contains("unknown kind"));
    assert!(FileMedium::open(&path, false).unwrap().size() == DEVICE_BYTES);
}
