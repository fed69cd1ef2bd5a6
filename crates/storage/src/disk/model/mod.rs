//! A cell disk that takes the time of a modelled device. Another engine stores the bytes.
//!
//! Invariants: every operation returns the result of the other engine. A read, write or sync returns no earlier than the model
//! completes the request, even if the operating system has cached the bytes. Operations on names, lengths and notes, and reads of
//! holes, take no model time.

mod array_link;
mod device;
mod flash;
mod hard_disk;
mod parameters;
mod placement;
mod service;
mod translation;

pub use device::ModelStatus;
pub use parameters::ModelParameters;
pub use service::{Access, Completion, ModelCounts, ModelTime, Request, Service};

use super::{Disk, DiskFile, DiskIoStats, FileKey, FileStamp, Space, Stream, no_wait};
use array_link::ArrayLink;
use device::ModelDevice;
use flash::Flash;
use hard_disk::HardDisk;
use parking_lot::Mutex;
use placement::Placement;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Bytes that a device transfers at least.
const SECTOR: u64 = 4096;

#[derive(Debug)]
pub struct ModelDisk {
    disk: Arc<dyn Disk>,
    modelled: Arc<Modelled>,
    capacity: u64,
}

#[derive(Debug)]
struct Modelled {
    device: ModelDevice,
    placement: Mutex<Placement>,
}

impl ModelParameters {
    /// Creates the device. Devices of different seeds have different phases: rotation, first die.
    pub fn service(&self, seed: u64) -> Box<dyn Service> {
        match self {
            Self::HardDisk(disk) => Box::new(HardDisk::new(disk, seed)),
            Self::Flash(flash) => Box::new(Flash::new(flash, seed)),
            Self::ArrayLink(link) => Box::new(ArrayLink::new(link, link.device.service(seed))),
        }
    }
}

impl ModelDisk {
    /// Gives `disk` the times of a device. `time_scale` is real seconds per model second, more than 0: 0.1 is ten times as
    /// fast as the device. Disks of different seeds are not synchronized.
    pub fn new(disk: Arc<dyn Disk>, name: &str, parameters: &ModelParameters, seed: u64, time_scale: f64) -> Self {
        let capacity = parameters.capacity_bytes();
        let device = ModelDevice::new(name, parameters, seed, time_scale);
        let modelled = Arc::new(Modelled { device, placement: Mutex::new(Placement::new(capacity)) });
        Self { disk, modelled, capacity }
    }

    fn opened(&self, key: FileKey, file: Arc<dyn DiskFile>) -> io::Result<Arc<dyn DiskFile>> {
        self.modelled.placement.lock().opened(&key, &*file)?;
        Ok(Arc::new(ModelFile { file, key, modelled: self.modelled.clone() }))
    }

    fn removed(&self, key: &FileKey) {
        let freed = self.modelled.placement.lock().remove(key);
        self.modelled.device.discard(freed);
    }
}

impl Modelled {
    fn sync(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        sync()?;
        self.device.wait(self.device.submit(Access::Flush, &[]));
        Ok(())
    }
}

impl Disk for ModelDisk {
    fn path(&self) -> &Path {
        self.disk.path()
    }
    fn lock(&self) -> io::Result<bool> {
        self.disk.lock()
    }
    fn unlock(&self) {
        self.disk.unlock();
    }
    fn is_blank(&self) -> io::Result<bool> {
        self.disk.is_blank()
    }
    fn read_note(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.disk.read_note(name)
    }
    fn write_note(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_note(name, bytes)
    }
    fn open_named(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.opened(FileKey::Named(name.into()), self.disk.open_named(name)?)
    }
    fn open_existing(&self, name: &str) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let file = self.disk.open_existing(name)?;
        file.map(|file| self.opened(FileKey::Named(name.into()), file)).transpose()
    }
    fn remove_named(&self, name: &str) -> io::Result<()> {
        self.disk.remove_named(name)?;
        self.removed(&FileKey::Named(name.into()));
        Ok(())
    }
    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let file = self.disk.open(ino, stream, create)?;
        file.map(|file| self.opened(FileKey::OfInode(ino, stream), file)).transpose()
    }
    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)> {
        self.disk.measure(ino, stream)
    }
    fn stamp(&self, ino: u64, stream: Stream) -> io::Result<Option<FileStamp>> {
        self.disk.stamp(ino, stream)
    }
    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()> {
        self.disk.remove(ino, stream)?;
        self.removed(&FileKey::OfInode(ino, stream));
        Ok(())
    }
    fn sync_name(&self, ino: u64) -> io::Result<()> {
        self.modelled.sync(|| self.disk.sync_name(ino))
    }
    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>> {
        self.disk.backing_files()
    }
    fn space(&self) -> io::Result<Space> {
        let space = self.disk.space()?;
        let free = self.modelled.placement.lock().free_bytes();
        let total = space.total.min(self.capacity);
        Ok(Space { total, free: space.free.min(free), available: space.available.min(free), ..space })
    }
    fn sync_everything(&self) -> io::Result<()> {
        self.modelled.sync(|| self.disk.sync_everything())
    }
    fn writes_wait(&self) -> bool {
        true
    }
    fn io_stats(&self) -> Option<&DiskIoStats> {
        self.disk.io_stats()
    }
    fn model_status(&self) -> Option<ModelStatus> {
        Some(self.modelled.device.status())
    }
}

#[derive(Debug)]
struct ModelFile {
    file: Arc<dyn DiskFile>,
    key: FileKey,
    modelled: Arc<Modelled>,
}

impl ModelFile {
    /// Runs a read of the other engine while the model reads.
    fn read(&self, offset: u64, length: usize, read: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
        let end = self.file.len()?.min(offset + length as u64);
        let range = offset.min(end) / SECTOR * SECTOR..end.next_multiple_of(SECTOR);
        let ranges = self.modelled.placement.lock().ranges(&self.key, range);
        if !ranges.is_empty() && no_wait::is_on() {
            return Err(no_wait::would_wait());
        }
        let submitted = self.modelled.device.submit(Access::Read, &ranges);
        let result = read();
        self.modelled.device.wait(submitted);
        result
    }

    fn place(&self, offset: u64, length: u64) -> io::Result<()> {
        self.modelled.placement.lock().place(&self.key, offset..offset + length)
    }
}

impl DiskFile for ModelFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(offset, buffer.len(), || self.file.read_at(buffer, offset))
    }
    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(offset, buffer.len(), || self.file.read_direct(buffer, offset))
    }
    fn read_medium(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(offset, buffer.len(), || self.file.read_medium(buffer, offset))
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if data.is_empty() {
            return self.file.write_at(data, offset);
        }
        self.place(offset, data.len() as u64)?;
        let range = offset / SECTOR * SECTOR..(offset + data.len() as u64).next_multiple_of(SECTOR);
        let ranges = self.modelled.placement.lock().ranges(&self.key, range);
        let submitted = self.modelled.device.submit(Access::Write, &ranges);
        let result = self.file.write_at(data, offset);
        self.modelled.device.wait(submitted);
        result
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        let freed = self.modelled.placement.lock().free(&self.key, length..u64::MAX);
        self.modelled.device.discard(freed);
        Ok(())
    }
    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> io::Result<()> {
        self.place(offset, length)?;
        self.file.allocate(offset, length, keep_size)
    }
    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.file.punch(offset, length)?;
        let freed = self.modelled.placement.lock().free(&self.key, offset..offset.saturating_add(length));
        self.modelled.device.discard(freed);
        Ok(())
    }
    fn is_hole(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.file.is_hole(offset, length)
    }
    fn has_unwritten_space(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.file.has_unwritten_space(offset, length)
    }
    fn sync(&self) -> io::Result<()> {
        self.modelled.sync(|| self.file.sync())
    }
}
