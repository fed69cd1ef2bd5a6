//! Mounts for the tests of the file service. They need /dev/fuse, and fusermount3 or root.

use cellar_cell::fuse::{FileService, IoStats, Mount, MountOptions};
use cellar_cell::instance::Instance;
use cellar_storage::{AuSize, Volume, VolumeOptions};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The limit of the memory for groups that the mounts report.
pub const GROUP_BYTES: u64 = 7 << 20;

/// Creates a mount point in `folder`. Returns its path, and options of a volume with allocation units of 1 MiB whose root
/// directory belongs to the present user.
pub fn mount_point(folder: &Path) -> (PathBuf, VolumeOptions) {
    let root = folder.join("mount");
    fs::create_dir(&root).unwrap();
    let user = fs::metadata(&root).unwrap();
    let au_size = AuSize::from_bytes(1 << 20).unwrap();
    let options = VolumeOptions { au_size, root_uid: user.uid(), root_gid: user.gid(), ..VolumeOptions::default() };
    (root, options)
}

pub fn mount(
    volume: &Arc<Volume>,
    instance: &Arc<Instance>,
    stats: &Arc<IoStats>,
    root: &Path,
    use_ring: bool,
) -> Mount {
    let (volume, socket) = (volume.clone(), Path::new("/run/cell.sock"));
    let service = FileService::new(volume, socket, GROUP_BYTES, instance.clone(), stats.clone());
    let allow_other = fs::metadata(root).unwrap().uid() == 0;
    let options = MountOptions { name: "test".into(), allow_other, use_ring, keep_awake_program: None };
    Mount::new(service, root, &options).unwrap()
}

/// Unmounts, and closes the volume. Both must succeed, unless the test has failed already.
pub fn stop(mount: Mount, volume: &Volume) {
    let unmounted = mount.unmount(Duration::from_secs(5));
    let closed = volume.close();
    if !std::thread::panicking() {
        unmounted.unwrap();
        closed.unwrap();
    }
}
