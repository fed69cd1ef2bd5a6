//! Random reads of a hard disk model through a flash cache on a flash model: cold, then from flash.

use crate::support;
use cellar_storage::disk::{DirectoryDisk, Disk, ModelDisk, ModelParameters};
use cellar_storage::{FlashOptions, Volume, VolumeOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{MIB, create, options};

const PAGE: u64 = 8192;
const READS: u64 = 60;
const FILE_BYTES: u64 = 48 * MIB;
/// Real seconds per second of the models.
const TIME_SCALE: f64 = 0.02;

fn model(path: &Path, name: &str) -> Arc<dyn Disk> {
    let parameters = ModelParameters::read(name).unwrap();
    let disk = Arc::new(DirectoryDisk::new(path).unwrap());
    Arc::new(ModelDisk::new(disk, name, &parameters, 1, TIME_SCALE))
}

/// Reads pages one after the other: each once, in no order.
fn read(volume: &Volume, ino: u64) {
    let mut page = vec![0; PAGE as usize];
    for number in 0..READS {
        let at = number * 7919 % (FILE_BYTES / PAGE) * PAGE;
        assert_eq!(volume.read(ino, at, &mut page).unwrap(), page.len());
    }
}

/// Returns the number of reads of a device model, and the sum of their durations in its time.
fn reads_of(disk: &Arc<dyn Disk>) -> (u64, Duration) {
    let latency = disk.model_status().unwrap().read_latency;
    (latency.operations, Duration::from_nanos(latency.nanoseconds))
}

#[test]
fn random_reads_from_flash_are_ten_times_as_fast_as_those_of_a_hard_disk() {
    let folder = tempfile::tempdir().unwrap();
    let flash_disk = model(&folder.path().join("flash"), "flash-slc");
    let hard_disk = model(&folder.path().join("disk"), "hdd-7k2");
    let flash = FlashOptions {
        disks: vec![flash_disk.clone()],
        size: Some(FlashOptions::SEGMENTS_MIN * MIB),
        columnar_bytes: 0,
        segment_bytes: MIB,
        fills_in_background: true,
        timeout: Some(FlashOptions::TIMEOUT),
    };
    let volume = Volume::open(vec![hard_disk.clone()], VolumeOptions { flash: Some(flash), ..options() }).unwrap();
    let ino = create(&volume, "file");
    volume.write(ino, 0, &vec![7; FILE_BYTES as usize]).unwrap();
    volume.fsync(ino).unwrap();
    let started = reads_of(&hard_disk);
    read(&volume, ino);
    let cold = reads_of(&hard_disk);
    let deadline = Instant::now() + Duration::from_secs(30);
    while volume.flash_stats().unwrap().used_bytes < READS * PAGE {
        assert!(Instant::now() < deadline, "the cache is not filled: {:?}", volume.flash_stats());
        std::thread::sleep(Duration::from_millis(5));
    }
    let filled = reads_of(&flash_disk);
    read(&volume, ino);
    let (warm, stats) = (reads_of(&flash_disk), volume.flash_stats().unwrap());
    assert_eq!((stats.read_hits, stats.read_misses), (READS, READS), "{stats:?}");
    assert_eq!((cold.0 - started.0, warm.0 - filled.0, reads_of(&hard_disk).0), (READS, READS, cold.0));
    let (of_disk, of_flash) = (cold.1 - started.1, warm.1 - filled.1);
    let times = of_disk.as_secs_f64() / of_flash.as_secs_f64();
    let (of_disk, of_flash) = (of_disk / READS as u32, of_flash / READS as u32);
    println!("{of_disk:.1?} a read of the hard disk, {of_flash:.1?} of flash: {times:.1} times");
    assert!(times > 10.0, "{times:.1} times as fast");
    volume.close().unwrap();
}
