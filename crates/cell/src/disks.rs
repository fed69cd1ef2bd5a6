//! The cell disks of a configuration: which engine stores them, and which device model they follow.

use cellar_storage::disk::{CountedDisk, DirectoryDisk, Disk, ModelDisk, ModelParameters};
use std::io;
use std::path::Path;
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

/// Opens the cell disk at `path` for a daemon. `number` is the disk's position in the configuration; models of different
/// numbers are not synchronized.
pub fn open(path: &Path, number: usize, model: Option<&DiskModel>) -> io::Result<Arc<dyn Disk>> {
    let disk = Arc::new(DirectoryDisk::new(path)?) as Arc<dyn Disk>;
    let disk = match model {
        Some(DiskModel { name, parameters, time_scale }) => {
            log::warn!("cell disk {} follows the device model {name}, {time_scale} times as slow", path.display());
            Arc::new(ModelDisk::new(disk, name, parameters, number as u64, *time_scale)) as Arc<dyn Disk>
        }
        None => disk,
    };
    Ok(Arc::new(CountedDisk::new(disk)))
}
