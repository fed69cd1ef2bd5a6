//! A cell disk whose operations end after a time limit, with an error if the disk has not answered by then.
//!
//! Operations run in the threads of a [`Pool`]. A read that does not wait for the device runs in the caller's thread.

use super::pool::Pool;
use super::{AlignedBytes, Disk, DiskFile, DiskIoStats, FileStamp, ModelStatus, Space, StartedRead, Stream, no_wait};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone)]
struct Watch {
    pool: Arc<Pool>,
    timeout: Duration,
}

#[derive(Debug)]
pub struct WatchedDisk {
    disk: Arc<dyn Disk>,
    watch: Watch,
}

impl WatchedDisk {
    pub fn new(disk: Arc<dyn Disk>, pool: Arc<Pool>, timeout: Duration) -> Self {
        Self { disk, watch: Watch { pool, timeout } }
    }

    fn run<T: Send + 'static>(&self, work: impl FnOnce(&dyn Disk) -> io::Result<T> + Send + 'static) -> io::Result<T> {
        let disk = self.disk.clone();
        self.watch.pool.run(self.watch.timeout, move || work(&*disk))
    }

    fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Disk) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let disk = self.disk.clone();
        self.watch.pool.change(self.watch.timeout, move || work(&*disk))
    }

    fn watched(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(WatchedFile { file, watch: self.watch.clone() })
    }
}

impl Disk for WatchedDisk {
    fn path(&self) -> &Path {
        self.disk.path()
    }
    fn lock(&self) -> io::Result<bool> {
        self.run(|disk| disk.lock())
    }
    fn is_blank(&self) -> io::Result<bool> {
        self.run(|disk| disk.is_blank())
    }
    fn read_note(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let name = name.to_owned();
        self.run(move |disk| disk.read_note(&name))
    }
    fn write_note(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (name, bytes) = (name.to_owned(), bytes.to_vec());
        self.change(move |disk| disk.write_note(&name, &bytes))
    }
    fn open_named(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let name = name.to_owned();
        self.run(move |disk| disk.open_named(&name)).map(|file| self.watched(file))
    }
    fn open_existing(&self, name: &str) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let name = name.to_owned();
        Ok(self.run(move |disk| disk.open_existing(&name))?.map(|file| self.watched(file)))
    }
    fn remove_named(&self, name: &str) -> io::Result<()> {
        let name = name.to_owned();
        self.change(move |disk| disk.remove_named(&name))
    }
    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let open = move |disk: &dyn Disk| disk.open(ino, stream, create);
        let file = if create { self.change(open)? } else { self.run(open)? };
        Ok(file.map(|file| self.watched(file)))
    }
    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)> {
        self.run(move |disk| disk.measure(ino, stream))
    }
    fn stamp(&self, ino: u64, stream: Stream) -> io::Result<Option<FileStamp>> {
        self.run(move |disk| disk.stamp(ino, stream))
    }
    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()> {
        self.change(move |disk| disk.remove(ino, stream))
    }
    fn sync_name(&self, ino: u64) -> io::Result<()> {
        self.run(move |disk| disk.sync_name(ino))
    }
    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>> {
        self.run(|disk| disk.backing_files())
    }
    fn space(&self) -> io::Result<Space> {
        self.run(|disk| disk.space())
    }
    fn sync_everything(&self) -> io::Result<()> {
        self.run(|disk| disk.sync_everything())
    }
    /// A thread of the pool writes.
    fn writes_wait(&self) -> bool {
        true
    }
    fn is_watched(&self) -> bool {
        true
    }
    fn io_stats(&self) -> Option<&DiskIoStats> {
        self.disk.io_stats()
    }
    fn model_status(&self) -> Option<ModelStatus> {
        self.disk.model_status()
    }
}

#[derive(Debug)]
struct WatchedFile {
    file: Arc<dyn DiskFile>,
    watch: Watch,
}

/// How to read a file.
type Read = fn(&dyn DiskFile, &mut [u8], u64) -> io::Result<usize>;

impl WatchedFile {
    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn DiskFile) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let file = self.file.clone();
        self.watch.pool.run(self.watch.timeout, move || work(&*file))
    }

    fn change(&self, work: impl FnOnce(&dyn DiskFile) -> io::Result<()> + Send + 'static) -> io::Result<()> {
        let file = self.file.clone();
        self.watch.pool.change(self.watch.timeout, move || work(&*file))
    }

    fn read(&self, buffer: &mut [u8], offset: u64, read: Read) -> io::Result<usize> {
        if no_wait::is_on() {
            return read(&*self.file, buffer, offset);
        }
        if let Some(result) = no_wait::without_waiting(|| read(&*self.file, buffer, offset)) {
            return result;
        }
        self.read_in_pool(buffer, offset, read)
    }

    fn read_in_pool(&self, buffer: &mut [u8], offset: u64, read: Read) -> io::Result<usize> {
        let length = buffer.len();
        let (bytes, count) = self.run(move |file| {
            let mut bytes = AlignedBytes::new(length);
            let count = read(file, &mut bytes, offset)?;
            Ok((bytes, count))
        })?;
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }
}

impl DiskFile for WatchedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(buffer, offset, |file, buffer, offset| file.read_at(buffer, offset))
    }
    fn prefetch(&self, ranges: &[Range<u64>]) {
        let (file, ranges) = (self.file.clone(), ranges.to_vec());
        // A prefetch is optional.
        let _spawned = self.watch.pool.spawn(move || file.prefetch(&ranges));
    }
    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(buffer, offset, |file, buffer, offset| file.read_direct(buffer, offset))
    }
    fn read_medium(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_in_pool(buffer, offset, |file, buffer, offset| file.read_medium(buffer, offset))
    }
    fn start_read(&self, read: StartedRead) {
        let file = self.file.clone();
        // Without a thread, the reader waits in vain and then reads from another disk.
        let _spawned = self.watch.pool.spawn(move || file.start_read(read));
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let data = data.to_vec();
        self.change(move |file| file.write_at(&data, offset))
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.change(move |file| file.set_len(length))
    }
    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> io::Result<()> {
        self.change(move |file| file.allocate(offset, length, keep_size))
    }
    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.change(move |file| file.punch(offset, length))
    }
    fn is_hole(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.run(move |file| file.is_hole(offset, length))
    }
    fn has_unwritten_space(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.run(move |file| file.has_unwritten_space(offset, length))
    }
    fn sync(&self) -> io::Result<()> {
        self.run(|file| file.sync())
    }
}
