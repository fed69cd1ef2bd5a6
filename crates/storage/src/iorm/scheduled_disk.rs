//! A cell disk whose requests the resource manager orders.
//!
//! The wrapper changes no result. Reads, and writes that no session waits for, start when the scheduler of the device lets them;
//! other writes start at once and are charged. A read of a thread that must not wait ([`no_wait`]) fails with
//! [`io::ErrorKind::WouldBlock`] if it would wait here.

use super::device::{DeviceQueue, Operation};
use super::manager::{Iorm, Medium};
use crate::disk::{
    Disk, DiskFile, DiskIoStats, FileStamp, ModelParameters, ModelStatus, Space, StartedRead, Stream, no_wait,
};
use crate::request::{IoKind, Origin, current};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A request is sequential if it begins at most this many times its length from the end of the previous one of the file: threads
/// of a scan, and read-ahead, read neighbouring parts out of order.
const SEQUENTIAL_LENGTHS: u64 = 16;

#[derive(Debug)]
pub struct ScheduledDisk {
    disk: Arc<dyn Disk>,
    queue: Arc<DeviceQueue>,
}

impl ScheduledDisk {
    /// Gives `disk` a queue of the resource manager. `model` is the disk's device model, with real seconds per model second.
    pub fn new(disk: Arc<dyn Disk>, iorm: &Iorm, medium: Medium, model: Option<(&ModelParameters, f64)>) -> Self {
        let queue = iorm.add_device(&disk, medium, model);
        Self { disk, queue }
    }

    fn scheduled(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(ScheduledFile { file, queue: self.queue.clone(), last_end: AtomicU64::new(0) })
    }
}

impl Disk for ScheduledDisk {
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
        // The metadata store: every commit waits for it.
        self.disk.open_named(name)
    }
    fn open_existing(&self, name: &str) -> io::Result<Option<Arc<dyn DiskFile>>> {
        self.disk.open_existing(name)
    }
    fn remove_named(&self, name: &str) -> io::Result<()> {
        self.disk.remove_named(name)
    }
    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        Ok(self.disk.open(ino, stream, create)?.map(|file| self.scheduled(file)))
    }
    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)> {
        self.disk.measure(ino, stream)
    }
    fn stamp(&self, ino: u64, stream: Stream) -> io::Result<Option<FileStamp>> {
        self.disk.stamp(ino, stream)
    }
    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()> {
        self.disk.remove(ino, stream)
    }
    fn sync_name(&self, ino: u64) -> io::Result<()> {
        self.disk.sync_name(ino)
    }
    fn kernel_file(&self, ino: u64) -> io::Result<Option<File>> {
        self.disk.kernel_file(ino)
    }
    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>> {
        self.disk.backing_files()
    }
    fn space(&self) -> io::Result<Space> {
        self.disk.space()
    }
    fn sync_everything(&self) -> io::Result<()> {
        self.disk.sync_everything()
    }
    fn is_accessible(&self) -> bool {
        self.disk.is_accessible()
    }
    fn wrapped_inside(&self, wrap: &dyn Fn(Arc<dyn Disk>) -> Arc<dyn Disk>) -> Option<Arc<dyn Disk>> {
        Some(Arc::new(Self { disk: wrap(self.disk.clone()), queue: self.queue.clone() }))
    }
    fn writes_wait(&self) -> bool {
        self.disk.writes_wait()
    }
    fn is_watched(&self) -> bool {
        self.disk.is_watched()
    }
    fn io_stats(&self) -> Option<&DiskIoStats> {
        self.disk.io_stats()
    }
    fn model_status(&self) -> Option<ModelStatus> {
        self.disk.model_status()
    }
}

#[derive(Debug)]
struct ScheduledFile {
    file: Arc<dyn DiskFile>,
    queue: Arc<DeviceQueue>,
    /// Where the last request ended.
    last_end: AtomicU64,
}

fn is_sequential(last_end: u64, offset: u64, bytes: usize) -> bool {
    offset.abs_diff(last_end) <= SEQUENTIAL_LENGTHS * bytes as u64
}

/// How to read a file.
type Read = fn(&dyn DiskFile, &mut [u8], u64) -> io::Result<usize>;

impl ScheduledFile {
    fn operation(&self, is_write: bool, bytes: usize, offset: u64) -> Operation {
        let last_end = self.last_end.swap(offset + bytes as u64, Ordering::Relaxed);
        Operation { is_write, bytes, is_sequential: is_sequential(last_end, offset, bytes) }
    }

    fn read(&self, buffer: &mut [u8], offset: u64, read: Read) -> io::Result<usize> {
        let origin = current();
        if no_wait::is_on() {
            if self.queue.would_wait(origin, buffer.len()) {
                return Err(no_wait::would_wait());
            }
            let started = Instant::now();
            let count = read(&*self.file, buffer, offset)?;
            let operation = self.operation(false, buffer.len(), offset);
            self.queue.count(origin, operation, started.elapsed());
            return Ok(count);
        }
        // The parts of a large read have its kind, whatever their length.
        let kind = origin.kind_of(buffer.len());
        let origin = Origin { kind, ..origin };
        let split_bytes = (kind == IoKind::Large).then(|| self.queue.split_bytes()).flatten();
        let part_bytes = split_bytes.unwrap_or(buffer.len()).max(1);
        let mut total = 0;
        for part in buffer.chunks_mut(part_bytes) {
            let (length, at) = (part.len(), offset + total as u64);
            let operation = self.operation(false, length, at);
            let count = self.queue.run(origin, operation, || read(&*self.file, part, at))?;
            total += count;
            if count < length {
                break;
            }
        }
        Ok(total)
    }
}

impl DiskFile for ScheduledFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn lengths(&self) -> io::Result<(u64, u64)> {
        self.file.lengths()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(buffer, offset, |file, buffer, offset| file.read_at(buffer, offset))
    }
    fn prefetch(&self, ranges: &[Range<u64>]) {
        // A prefetch is optional, and would pass the queue.
        let bytes: u64 = ranges.iter().map(|range| range.end.saturating_sub(range.start)).sum();
        if !self.queue.would_wait(current(), bytes as usize) {
            self.file.prefetch(ranges);
        }
    }
    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(buffer, offset, |file, buffer, offset| file.read_direct(buffer, offset))
    }
    fn read_medium(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(buffer, offset, |file, buffer, offset| file.read_medium(buffer, offset))
    }
    fn start_read(&self, read: StartedRead) {
        let operation = self.operation(false, read.length, read.offset);
        let queue = self.queue.clone();
        let ended = match no_wait::is_on() {
            true => DeviceQueue::begin_at_once(queue, current(), operation),
            false => DeviceQueue::begin(queue, current(), operation),
        };
        let done = read.done;
        let done = Box::new(move |result| {
            drop(ended);
            done(result);
        });
        self.file.start_read(StartedRead { done, ..read });
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let (origin, operation) = (current(), self.operation(true, data.len(), offset));
        match origin.kind {
            IoKind::Background => self.queue.run(origin, operation, || self.file.write_at(data, offset)),
            _ => self.queue.pass(origin, operation, || self.file.write_at(data, offset)),
        }
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }
    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> io::Result<()> {
        self.file.allocate(offset, length, keep_size)
    }
    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.file.punch(offset, length)
    }
    fn is_hole(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.file.is_hole(offset, length)
    }
    fn has_unwritten_space(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.file.has_unwritten_space(offset, length)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::pool::Pool;
    use crate::disk::{AlignedBytes, CountedDisk, DirectoryDisk, DiskOperation, WatchedDisk};
    use crate::request::{DatabaseId, within};
    use std::time::Duration;

    #[test]
    fn large_reads_are_split_while_small_ones_are_active_and_return_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Arc::new(DirectoryDisk::new(folder.path().join("disk")).unwrap());
        let (counted, iorm) = (Arc::new(CountedDisk::new(directory)), Iorm::default());
        let disk = ScheduledDisk::new(counted.clone(), &iorm, Medium::Disk, None);
        let file = disk.open(7, Stream::Data, true).unwrap().unwrap();
        let bytes: Vec<u8> = (0..900_000_u32).map(|number| (number % 251) as u8).collect();
        file.write_at(&bytes, 0).unwrap();
        let reads = || counted.io_stats().unwrap().counts()[DiskOperation::Read as usize].operations;
        let mut buffer = vec![0; 1 << 20];
        let mut read = |expected: u64| {
            let before = reads();
            assert_eq!(file.read_at(&mut buffer, 0).unwrap(), bytes.len());
            assert!(buffer[..bytes.len()] == bytes);
            assert_eq!(reads() - before, expected);
        };
        read(1);
        iorm.alter(Some("auto"), None).unwrap();
        read(1);
        file.read_at(&mut [0; 8192], 0).unwrap();
        read(4);
        iorm.alter(Some("off"), None).unwrap();
        read(1);
    }

    #[test]
    fn random_reads_of_a_small_file_are_not_sequential() {
        let of_blocks = |from: u64, to: u64| is_sequential(from * 8192, to * 8192, 8192);
        assert!(of_blocks(1, 1) && of_blocks(1, 9) && of_blocks(9, 1));
        assert!(!of_blocks(1, 64) && !of_blocks(64, 1));
        assert!(is_sequential(1 << 20, 9 << 20, 1 << 20), "threads of a scan");
    }

    #[test]
    fn the_time_in_the_queue_does_not_count_towards_the_time_limit_of_the_disk() {
        const TIMEOUT: Duration = Duration::from_millis(60);
        let folder = tempfile::tempdir().unwrap();
        let directory = Arc::new(DirectoryDisk::new(folder.path().join("disk")).unwrap());
        let (iorm, pool) = (Iorm::default(), Arc::new(Pool::default()));
        let scheduled = ScheduledDisk::new(directory, &iorm, Medium::Disk, None);
        let watch = |disk| Arc::new(WatchedDisk::new(disk, pool.clone(), TIMEOUT)) as Arc<dyn Disk>;
        let disk = scheduled.wrapped_inside(&watch).unwrap();
        let file = disk.open(7, Stream::Data, true).unwrap().unwrap();
        file.write_at(&[1; 8192], 0).unwrap();
        iorm.alter(Some("high_throughput"), Some("((name=16384,share=1,limit=1))")).unwrap();
        let origin = Origin { database: iorm.database("", 16384), ..Origin::default() };
        // A cost of 4 ms: the next request is due after 0.4 s.
        let use_up = || {
            let operation = Operation { is_write: false, bytes: 4 << 20, is_sequential: true };
            scheduled.queue.run(origin, operation, || std::thread::sleep(Duration::from_millis(8)));
        };
        let started = Instant::now();
        let waited = || started.elapsed() > 3 * TIMEOUT;
        use_up();
        let read = within(origin, || file.read_direct(&mut AlignedBytes::new(8192), 0));
        assert_eq!((read.unwrap(), waited()), (8192, true));
        assert_eq!(pool.oldest().filter(|age| *age >= TIMEOUT), None);

        let started = Instant::now();
        use_up();
        let (sender, receiver) = std::sync::mpsc::channel();
        let done = Box::new(move |result: io::Result<(AlignedBytes, usize)>| sender.send(result).unwrap());
        within(origin, || file.start_read(StartedRead { length: 8192, offset: 0, direct: true, done }));
        assert!(started.elapsed() > 3 * TIMEOUT, "the time of the read begins after the time in the queue");
        assert_eq!(receiver.recv_timeout(TIMEOUT).unwrap().unwrap().1, 8192);
    }

    #[test]
    fn a_thread_that_must_not_wait_does_not_wait_in_the_queue() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Arc::new(DirectoryDisk::new(folder.path().join("disk")).unwrap());
        let iorm = Iorm::default();
        let disk = ScheduledDisk::new(directory, &iorm, Medium::Disk, None);
        let file = disk.open(7, Stream::Data, true).unwrap().unwrap();
        file.write_at(&[1; 8192], 0).unwrap();
        iorm.alter(Some("high_throughput"), None).unwrap();
        let origin = Origin { database: DatabaseId(0), kind: IoKind::Small, ..Origin::default() };
        let busy = Operation { is_write: false, bytes: 64 << 20, is_sequential: false };
        // The page cache has the bytes, but the device is busy with another request.
        let attempt = disk.queue.run(origin, busy, || {
            std::thread::scope(|scope| {
                let attempt = || no_wait::without_waiting(|| file.read_at(&mut [0; 8192], 0).ok());
                scope.spawn(attempt).join().unwrap()
            })
        });
        assert_eq!(attempt, None);
        let attempt = no_wait::without_waiting(|| within(origin, || file.read_at(&mut [0; 8192], 0).ok()));
        assert_eq!(attempt, Some(Some(8192)));
    }
}
