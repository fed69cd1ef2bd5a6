//! Failing disks: an error is reported to the caller that it concerns, is never lost, and never becomes wrong bytes.

mod support;

use cellar_storage::disk::{Disk, Fault, FaultyDisk};
use cellar_storage::{ErrorKind, Ino, ROOT_INO, Volume, VolumeOptions};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{MIB, create, disks, options, read_all};

const EIO: i32 = libc::EIO;

fn faulty(folder: &std::path::Path, options: VolumeOptions) -> (Vec<Arc<FaultyDisk>>, Arc<Volume>) {
    let wrap = |(seed, disk)| Arc::new(FaultyDisk::new(disk, seed as u64 + 1));
    let faulty: Vec<Arc<FaultyDisk>> = disks(folder, 2).into_iter().enumerate().map(wrap).collect();
    let as_disks = faulty.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect();
    (faulty, Volume::open(as_disks, options).unwrap())
}

/// Writes wait in memory.
fn buffered() -> VolumeOptions {
    VolumeOptions { write_buffer_bytes: 256 << 20, ..options() }
}

fn set(disks: &[Arc<FaultyDisk>], faults: &[Fault]) {
    disks.iter().for_each(|disk| disk.set_faults(faults));
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn two_blocks(volume: &Volume) -> Ino {
    let ino = create(volume, "file");
    volume.write(ino, 0, &[1; 8192]).unwrap();
    volume.write(ino, MIB, &[2; 8192]).unwrap();
    ino
}

#[test]
fn a_failed_background_write_is_made_up_for_by_the_next_sync_that_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let (disks, volume) = faulty(folder.path(), buffered());
    set(&disks, &[Fault::Write { errno: EIO, one_in: 1 }]);
    let ino = two_blocks(&volume);
    wait_until("the flusher meets the fault", || disks.iter().any(|disk| disk.injected() > 0));
    std::thread::sleep(Duration::from_millis(50));
    set(&disks, &[]);
    volume.fsync(ino).unwrap();
    volume.abandon();
    drop((volume, disks));
    let volume = support::open(folder.path(), 2);
    let bytes = read_all(&volume, ino);
    assert!(bytes[..8192] == [1; 8192] && bytes[MIB as usize..] == [2; 8192]);
}

#[test]
fn a_failed_write_of_a_sync_is_told_by_that_sync_and_tried_again_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let (disks, volume) = faulty(folder.path(), buffered());
    set(&disks, &[Fault::Write { errno: EIO, one_in: 1 }]);
    let ino = two_blocks(&volume);
    assert_eq!(volume.fsync(ino).unwrap_err().errno(), EIO);
    assert!(read_all(&volume, ino).starts_with(&[1; 8192]), "reads still see what was written");
    set(&disks, &[]);
    while volume.fsync(ino).is_err() {}
    assert!(read_all(&volume, ino).starts_with(&[1; 8192]));
}

#[test]
fn a_failed_sync_is_an_error_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let (disks, volume) = faulty(folder.path(), options());
    let ino = two_blocks(&volume);
    set(&disks, &[Fault::Sync { errno: EIO, one_in: 1 }]);
    for _ in 0..3 {
        assert_eq!(volume.fsync(ino).unwrap_err().errno(), EIO);
    }
    set(&disks, &[]);
    volume.fsync(ino).unwrap();
}

#[test]
fn a_failed_read_is_an_error_for_reads_and_scans_and_leaves_no_region_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (disks, volume) = faulty(folder.path(), options());
    let ino = two_blocks(&volume);
    volume.fsync(ino).unwrap();
    set(&disks, &[Fault::Read { errno: EIO, one_in: 1 }]);
    assert_eq!(volume.read(ino, 0, &mut [0; 10]).unwrap_err().errno(), EIO);
    assert_eq!(volume.region(ino, 0).map(drop).unwrap_err().errno(), EIO);
    volume.prefetch(ino, 0..2);
    std::thread::sleep(Duration::from_millis(100));
    set(&disks, &[]);
    assert_eq!(volume.region(ino, 0).unwrap()[..8192], [1; 8192]);
    assert_eq!(volume.region(ino, 1).unwrap()[..], [2; 8192]);
}

#[test]
fn a_write_through_that_fails_does_not_grow_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (disks, volume) = faulty(folder.path(), VolumeOptions { write_buffer_bytes: 0, ..options() });
    let ino = two_blocks(&volume);
    set(&disks, &[Fault::Write { errno: libc::ENOSPC, one_in: 1 }]);
    let error = volume.write(ino, MIB + 8192, &vec![3; 3 * MIB as usize]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    set(&disks, &[]);
    assert_eq!(volume.size(ino).unwrap(), MIB + 8192);
    volume.close().unwrap();
    drop((volume, disks));
    let volume = support::open(folder.path(), 2);
    assert_eq!(volume.size(ino).unwrap(), MIB + 8192, "nor after a restart");
}

/// Needs the right to mount; without it there is nothing to test.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(bytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("size={bytes}");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(folder.path())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_fails_the_write_and_room_of_unlinked_files_is_used_again() {
    let Some(small) = SmallDisk::new(24 * MIB) else { return };
    let volume = support::open(small.0.path(), 2);
    let fill = |name: &str, byte: u8| {
        let ino = create(&volume, name);
        let mut written = 0;
        loop {
            match volume.write(ino, written, &[byte; 65536]) {
                Ok(_) => written += 65536,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                    break;
                }
            }
        }
        assert!(written > 10 * MIB, "{written}");
        assert_eq!(volume.size(ino).unwrap(), written, "a failed write does not grow the file");
        assert!(read_all(&volume, ino).iter().all(|found| *found == byte));
        volume.fsync(ino).unwrap();
        volume.unlink(ROOT_INO, name.as_bytes()).unwrap();
        volume.forget(ino, 1);
    };
    fill("a", 1);
    fill("b", 2);
    volume.close().unwrap();
}
