//! Updates of pages in no order, as PostgreSQL's checkpoints write them, on a hard disk model: written through, and with
//! write-back on two flash models.

use crate::support;
use cellar_storage::disk::{DirectoryDisk, Disk, ModelDisk, ModelParameters};
use cellar_storage::{FlashOptions, Volume, VolumeOptions, WriteBackOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use support::{MIB, Random, create, options};

const PAGE: u64 = 8192;
const FILE_BYTES: u64 = 48 * MIB;
const CHECKPOINTS: u64 = 16;
/// Pages that each checkpoint writes. Four of five are in a tenth of the file.
const WRITES: u64 = 300;
/// Real seconds per second of the models.
const TIME_SCALE: f64 = 0.01;

fn model(path: &Path, name: &str) -> Arc<dyn Disk> {
    let parameters = ModelParameters::read(name).unwrap();
    let disk = Arc::new(DirectoryDisk::new(path).unwrap());
    Arc::new(ModelDisk::new(disk, name, &parameters, 1, TIME_SCALE))
}

/// Returns how long the mechanics of the hard disk worked for the updates, up to a clean stop.
fn measure(write_back: Option<WriteBackOptions>) -> Duration {
    let folder = tempfile::tempdir().unwrap();
    let hard_disk = model(&folder.path().join("disk"), "hdd-7k2");
    let flash = FlashOptions {
        disks: ["one", "two"].map(|name| model(&folder.path().join(name), "flash-slc")).to_vec(),
        size: Some(2 * FlashOptions::SEGMENTS_MIN * MIB),
        columnar_bytes: 0,
        segment_bytes: MIB,
        fills_in_background: false,
        timeout: None,
    };
    let options = VolumeOptions { flash: Some(flash), write_back, ..options() };
    let volume = Volume::open(vec![hard_disk.clone()], options).unwrap();
    let ino = create(&volume, "file");
    volume.write(ino, 0, &vec![7; FILE_BYTES as usize]).unwrap();
    volume.sync().unwrap();
    let busy = || Duration::from_nanos(hard_disk.model_status().unwrap().counts.busy_ns);
    let (started, mut random) = (busy(), Random::seeded(1));
    for checkpoint in 0..CHECKPOINTS {
        for _ in 0..WRITES {
            let pages = FILE_BYTES / PAGE;
            let limit = if random.below(5) == 0 { pages } else { pages / 10 };
            let page = random.below(limit);
            volume.write(ino, page * PAGE, &[checkpoint as u8; PAGE as usize]).unwrap();
        }
        volume.fsync(ino).unwrap();
    }
    volume.close().unwrap();
    let stats = volume.write_back_stats();
    let took = busy() - started;
    println!("{took:.2?} {stats:?}");
    took
}

#[test]
fn updates_keep_a_hard_disk_busy_for_a_quarter_of_the_time_with_write_back() {
    let through = measure(None);
    let back = measure(Some(WriteBackOptions {
        size: 128 * MIB,
        segment_bytes: 4 * MIB,
        allows_one_disk: false,
        takes_redo: false,
        destages_in_background: false,
    }));
    let times = through.as_secs_f64() / back.as_secs_f64();
    println!("{times:.1} times");
    assert!(times > 4.0, "{times:.1} times");
}
