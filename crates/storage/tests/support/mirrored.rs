//! Groups with two copies.

use super::options;
use cellar_storage::{DiskMode, Redundancy, Volume, VolumeOptions};
use std::time::{Duration, Instant};

/// Two copies. Disks that return stay offline, and write intents end with their writes.
pub fn mirrored() -> VolumeOptions {
    VolumeOptions {
        redundancy: Redundancy::Normal,
        intent_idle: Duration::ZERO,
        online_returned_disks: false,
        ..options()
    }
}

pub fn modes(volume: &Volume) -> Vec<DiskMode> {
    volume.group_status().disks.iter().map(|disk| disk.mode).collect()
}

/// Waits until a group of two disks is complete.
pub fn wait_for_resync(volume: &Volume) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while modes(volume) != [DiskMode::Online; 2] {
        assert!(Instant::now() < deadline, "the resync does not end: {:?}", modes(volume));
        std::thread::sleep(Duration::from_millis(5));
    }
}
