//! Every disk engine, and every disk that wraps another one, passes the conformance suite.

use crate::support;
use cellar_storage::disk::{CountedDisk, DeviceDisk, DirectoryDisk, Disk, FaultyDisk, ModelDisk, ModelParameters};
use std::path::Path;
use std::sync::Arc;
use support::conformance::Engine;
use support::limited_disk::LimitedDisk;

fn directory(path: &Path) -> Arc<dyn Disk> {
    Arc::new(DirectoryDisk::new(path).unwrap())
}

#[test]
fn the_directory_engine_conforms() {
    let small = |path: &Path, bytes| Arc::new(LimitedDisk::new(directory(path), bytes)) as Arc<dyn Disk>;
    Engine { open: &directory, open_small: Some(&small) }.check_all();
}

#[test]
fn a_faulty_disk_without_faults_conforms() {
    Engine { open: &|path| Arc::new(FaultyDisk::new(directory(path), 1)), open_small: None }.check_all();
}

#[test]
fn a_counted_disk_conforms() {
    Engine { open: &|path| Arc::new(CountedDisk::new(directory(path))), open_small: None }.check_all();
}

/// Every model, a million times as fast as its device.
#[test]
fn a_disk_with_a_device_model_conforms() {
    for name in ModelParameters::built_in() {
        let modelled = |path: &Path, capacity: Option<u64>| {
            let mut parameters = ModelParameters::read(name).unwrap();
            if let (ModelParameters::HardDisk(disk), Some(bytes)) = (&mut parameters, capacity) {
                disk.capacity_bytes = bytes;
            }
            Arc::new(ModelDisk::new(directory(path), name, &parameters, 1, 1e-6)) as Arc<dyn Disk>
        };
        let small = |path: &Path, bytes| modelled(path, Some(bytes));
        let has_capacity = name.starts_with("hdd");
        Engine { open: &|path| modelled(path, None), open_small: has_capacity.then_some(&small) }.check_all();
    }
}

fn device(path: &Path, bytes: u64) -> Arc<dyn Disk> {
    let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(path).unwrap();
    if file.metadata().unwrap().len() == 0 {
        file.set_len(bytes).unwrap();
    }
    Arc::new(DeviceDisk::open(path).unwrap())
}

#[test]
fn the_device_engine_conforms() {
    Engine { open: &|path| device(path, 256 << 20), open_small: Some(&device) }.check_all();
}
