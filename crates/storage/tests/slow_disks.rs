//! Disks of a group with copies that are slow, and disks that hang.

use crate::support;
use cellar_storage::disk::{Disk, Fault, FaultyDisk};
use cellar_storage::{DiskMode, Ino, Patience, Redundancy, Volume, VolumeOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::mirrored::modes;
use support::{MIB, Random, create, disks, options, read_all};

/// A volume on two disks, both of which can be slow.
struct Group {
    volume: Arc<Volume>,
    disks: [Arc<FaultyDisk>; 2],
    ino: Ino,
    content: Vec<u8>,
}

const CAP: Duration = Duration::from_millis(20);

fn open(folder: &Path, patience: Patience) -> Group {
    let faulty: Vec<Arc<FaultyDisk>> =
        disks(folder, 2).into_iter().map(|disk| Arc::new(FaultyDisk::new(disk, 1))).collect();
    let options = VolumeOptions {
        redundancy: Redundancy::Normal,
        patience: Some(patience),
        cache_bytes: 0,
        online_returned_disks: false,
        ..options()
    };
    let engines = faulty.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect();
    let volume = Volume::open(engines, options).unwrap();
    let (ino, content) = (create(&volume, "file"), Random::seeded(4).bytes(3 * MIB as usize));
    volume.write(ino, 0, &content).unwrap();
    volume.sync().unwrap();
    Group { volume, disks: faulty.try_into().unwrap(), ino, content }
}

impl Group {
    fn modes(&self) -> Vec<DiskMode> {
        modes(&self.volume)
    }

    fn wait_until(&self, what: &str, condition: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !condition() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn a_read_past_the_cap_is_answered_by_the_other_disk_and_the_slow_disk_stays() {
    let folder = tempfile::tempdir().unwrap();
    let group = open(folder.path(), Patience { read_latency_cap: Some(CAP), timeout: Duration::from_secs(60) });
    assert!(read_all(&group.volume, group.ino) == group.content);
    for slow in 0..2 {
        let before = group.volume.group_status().reads_past_cap;
        group.disks[slow].set_faults(&[Fault::HeldRead]);
        let started = Instant::now();
        assert!(read_all(&group.volume, group.ino) == group.content, "disk {slow} is slow");
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        assert!(group.volume.group_status().reads_past_cap > before);
        group.disks[slow].set_faults(&[]);
        assert_eq!(group.modes(), [DiskMode::Online; 2]);
    }
    // Both disks answer late: the read waits.
    group.disks.iter().for_each(|disk| disk.set_faults(&[Fault::HeldRead]));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_all(&group.volume, group.ino));
        group.wait_until("no disk got the read", || group.disks.iter().all(|disk| disk.held() > 0));
        group.disks[1].set_faults(&[]);
        group.disks[0].set_faults(&[]);
        assert!(reader.join().unwrap() == group.content);
    });
    group.volume.close().unwrap();
}

#[test]
fn a_disk_that_hangs_goes_offline_and_requests_go_on() {
    for fault in [Fault::HeldRead, Fault::HeldSync] {
        let folder = tempfile::tempdir().unwrap();
        // The healthy disk must answer in time on a busy machine, too.
        let timeout = Duration::from_secs(2);
        let mut group = open(folder.path(), Patience { read_latency_cap: Some(CAP), timeout });
        group.disks[1].set_faults(&[fault]);
        let change = Random::seeded(5).bytes(10_000);
        group.volume.write(group.ino, MIB - 5000, &change).unwrap();
        group.content[MIB as usize - 5000..][..10_000].copy_from_slice(&change);
        assert!(read_all(&group.volume, group.ino) == group.content, "{fault:?}");
        group.volume.fsync(group.ino).unwrap();
        group.wait_until("the disk does not go offline", || group.modes()[1] == DiskMode::Offline);
        assert_eq!(group.modes()[0], DiskMode::Online);
        group.volume.write(group.ino, 0, &change).unwrap();
        group.volume.fsync(group.ino).unwrap();
        group.content[..10_000].copy_from_slice(&change);
        assert!(read_all(&group.volume, group.ino) == group.content);

        // A hanging operation of before the failure keeps the disk away.
        let engine = || group.disks[1].clone() as Arc<dyn Disk>;
        let refused = group.volume.online_disk(engine()).unwrap_err().to_string();
        assert!(refused.contains("from before its failure have not ended"), "{refused}");
        group.disks[1].set_faults(&[]);
        group.wait_until("the disk cannot return", || group.volume.online_disk(engine()).is_ok());
        assert_eq!(group.modes(), [DiskMode::Online; 2]);
        assert!(read_all(&group.volume, group.ino) == group.content);
        group.volume.close().unwrap();
    }
}
