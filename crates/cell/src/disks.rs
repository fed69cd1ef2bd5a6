//! The cell disks of a configuration: which engine stores them, and which device model they follow.

use cellar_storage::disk::{CountedDisk, DeviceDisk, DirectoryDisk, Disk, FileMedium, ModelDisk, ModelParameters};
use cellar_storage::iorm::{Iorm, Medium, ScheduledDisk};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A device model of a disk.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskModel {
    /// Name of a built-in model, or path of a file.
    pub name: String,
    pub parameters: ModelParameters,
    /// Real seconds per model second.
    pub time_scale: f64,
}

/// Opens the cell disk at `path` for a daemon: a device if the path is a block device or a regular file, a directory
/// otherwise. `number` is the disk's position in the configuration; models of different
/// numbers are not synchronized. `iorm` orders the disk's requests.
pub fn open(path: &Path, number: usize, model: Option<&DiskModel>, iorm: &Iorm) -> io::Result<Arc<dyn Disk>> {
    open_medium(path, number, model, (iorm, Medium::Disk))
}

/// Like [`open`], a disk of the flash cache.
pub fn open_flash(path: &Path, number: usize, model: Option<&DiskModel>, iorm: &Iorm) -> io::Result<Arc<dyn Disk>> {
    open_medium(path, number, model, (iorm, Medium::Flash))
}

fn open_medium(
    path: &Path,
    number: usize,
    model: Option<&DiskModel>,
    (iorm, medium): (&Iorm, Medium),
) -> io::Result<Arc<dyn Disk>> {
    let disk: Arc<dyn Disk> = match FileMedium::is_device(path) {
        true => Arc::new(DeviceDisk::open(path)?),
        false if !path.exists() && !is_creatable(path) => {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the device does not exist"));
        }
        false => Arc::new(DirectoryDisk::new(path)?),
    };
    let disk = match model {
        Some(DiskModel { name, parameters, time_scale }) => {
            log::warn!("disk {} follows the device model {name}, {time_scale} times as slow", path.display());
            Arc::new(ModelDisk::new(disk, name, parameters, number as u64, *time_scale)) as Arc<dyn Disk>
        }
        None => disk,
    };
    // Outside the counters: latencies of disks do not include the time in the queue.
    let parameters = model.map(|model| (&model.parameters, model.time_scale));
    Ok(Arc::new(ScheduledDisk::new(Arc::new(CountedDisk::new(disk)), iorm, medium, parameters)))
}

/// Returns whether a start creates a directory at a path that does not exist: not where the path of a device would be.
pub fn is_creatable(path: &Path) -> bool {
    !path.starts_with("/dev") || path.starts_with("/dev/shm")
}

/// Returns the cell disks that are directories. If there are none, returns the directory of the socket: a file that the
/// daemon keeps beside its data then goes there.
pub fn directories(disks: &[PathBuf], socket: &Path) -> Vec<PathBuf> {
    let directories: Vec<PathBuf> = disks.iter().filter(|disk| !FileMedium::is_device(disk)).cloned().collect();
    match directories.is_empty() {
        true => socket.parent().map(Path::to_owned).into_iter().collect(),
        false => directories,
    }
}
