//! A cell disk whose operations are counted and timed.
//!
//! The wrapper changes no result. Every read, write, sync and change of allocation of a file on the disk is counted once,
//! after the operation has returned; times include the operating system's cache. Counters never decrease.

use super::{Disk, DiskFile, FileStamp, ModelStatus, ReadDone, Space, StartedRead, Stream};
use crate::operation_counters::{LATENCY_BUCKETS, OperationCounters, OperationCounts};
use crate::request::SMALL_BYTES_MAX;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The kinds of operations that are counted separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskOperation {
    Read,
    Write,
    Sync,
    /// Changes of a file's length or allocated space.
    Allocate,
}

impl DiskOperation {
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Sync, Self::Allocate];

    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Allocate => "allocate",
        }
    }
}

/// The counters of one operation on one disk at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskIoCount {
    pub operation: DiskOperation,
    pub operations: u64,
    pub bytes: u64,
    pub nanoseconds: u64,
    pub histogram: [u64; LATENCY_BUCKETS],
    /// The operations among them that moved more than [`SMALL_BYTES_MAX`].
    pub large: OperationCounts,
    /// Operations that failed because the disk was full.
    pub no_space_errors: u64,
    /// Operations that failed for another reason.
    pub io_errors: u64,
}

#[derive(Debug, Default)]
struct Counters {
    done: OperationCounters,
    large: OperationCounters,
    no_space_errors: AtomicU64,
    io_errors: AtomicU64,
}

/// The counters of one disk.
#[derive(Debug, Default)]
pub struct DiskIoStats([Counters; DiskOperation::ALL.len()]);

impl DiskIoStats {
    pub fn counts(&self) -> [DiskIoCount; DiskOperation::ALL.len()] {
        DiskOperation::ALL.map(|operation| {
            let counters = &self.0[operation as usize];
            // Read before the counters of all operations, which are increased first: the large ones are never more.
            let large = counters.large.read();
            let OperationCounts { operations, bytes, nanoseconds, histogram } = counters.done.read();
            DiskIoCount {
                operation,
                operations,
                bytes,
                nanoseconds,
                histogram,
                large,
                no_space_errors: counters.no_space_errors.load(Ordering::Relaxed),
                io_errors: counters.io_errors.load(Ordering::Relaxed),
            }
        })
    }

    /// Runs and counts an operation; `bytes` returns how many bytes a successful operation moved, and `is_open` whether the
    /// disk was not offline, which is asked after an error.
    fn count<T>(
        &self,
        operation: DiskOperation,
        work: impl FnOnce() -> io::Result<T>,
        bytes: impl FnOnce(&T) -> usize,
        is_open: impl FnOnce() -> bool,
    ) -> io::Result<T> {
        let started = Instant::now();
        let result = work();
        let took = started.elapsed();
        // A worker thread repeats a read that would have waited, and counts the read.
        if matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            return result;
        }
        self.record(operation, took, result.as_ref().map(bytes), is_open);
        result
    }

    /// Counts an operation that has ended, with the bytes that it moved.
    fn record(
        &self,
        operation: DiskOperation,
        took: Duration,
        result: Result<usize, &io::Error>,
        is_open: impl FnOnce() -> bool,
    ) {
        let counters = &self.0[operation as usize];
        let bytes = *result.as_ref().unwrap_or(&0);
        counters.done.count(bytes, took);
        if bytes > SMALL_BYTES_MAX {
            counters.large.count(bytes, took);
        }
        // A member of a group refuses the operations of files that it has closed, which is no error of the disk. A device may
        // fail with the same code.
        if let Err(error) = result
            && (error.raw_os_error() != Some(libc::ENODEV) || is_open())
        {
            let errors = match error.kind() {
                io::ErrorKind::StorageFull => &counters.no_space_errors,
                _ => &counters.io_errors,
            };
            errors.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A disk that counts the operations on its files.
#[derive(Debug)]
pub struct CountedDisk {
    disk: Arc<dyn Disk>,
    stats: Arc<DiskIoStats>,
}

impl CountedDisk {
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, stats: Arc::default() }
    }

    fn counted(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(CountedFile { file, stats: self.stats.clone() })
    }
}

impl Disk for CountedDisk {
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
        self.disk.open_named(name).map(|file| self.counted(file))
    }

    fn open_existing(&self, name: &str) -> io::Result<Option<Arc<dyn DiskFile>>> {
        Ok(self.disk.open_existing(name)?.map(|file| self.counted(file)))
    }

    fn remove_named(&self, name: &str) -> io::Result<()> {
        self.disk.remove_named(name)
    }

    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        Ok(self.disk.open(ino, stream, create)?.map(|file| self.counted(file)))
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
        self.stats.count(DiskOperation::Sync, || self.disk.sync_everything(), |()| 0, || self.disk.is_accessible())
    }

    fn is_accessible(&self) -> bool {
        self.disk.is_accessible()
    }

    fn writes_wait(&self) -> bool {
        self.disk.writes_wait()
    }

    fn is_watched(&self) -> bool {
        self.disk.is_watched()
    }

    fn io_stats(&self) -> Option<&DiskIoStats> {
        Some(&self.stats)
    }

    fn model_status(&self) -> Option<ModelStatus> {
        self.disk.model_status()
    }
}

#[derive(Debug)]
struct CountedFile {
    file: Arc<dyn DiskFile>,
    stats: Arc<DiskIoStats>,
}

impl CountedFile {
    fn count<T>(
        &self,
        operation: DiskOperation,
        work: impl FnOnce() -> io::Result<T>,
        bytes: impl FnOnce(&T) -> usize,
    ) -> io::Result<T> {
        self.stats.count(operation, work, bytes, || self.file.is_open())
    }
}

impl DiskFile for CountedFile {
    fn is_open(&self) -> bool {
        self.file.is_open()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.count(DiskOperation::Read, || self.file.read_at(buffer, offset), |bytes| *bytes)
    }

    fn prefetch(&self, ranges: &[Range<u64>]) {
        self.file.prefetch(ranges);
    }

    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.count(DiskOperation::Read, || self.file.read_direct(buffer, offset), |bytes| *bytes)
    }

    fn read_medium(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.count(DiskOperation::Read, || self.file.read_medium(buffer, offset), |bytes| *bytes)
    }

    fn start_read(&self, read: StartedRead) {
        let (stats, file, started, done) = (self.stats.clone(), self.file.clone(), Instant::now(), read.done);
        let done: ReadDone = Box::new(move |result| {
            let bytes = result.as_ref().map(|(_, count)| *count);
            stats.record(DiskOperation::Read, started.elapsed(), bytes, || file.is_open());
            done(result);
        });
        self.file.start_read(StartedRead { done, ..read });
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.count(DiskOperation::Write, || self.file.write_at(data, offset), |()| data.len())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.count(DiskOperation::Allocate, || self.file.set_len(length), |()| 0)
    }

    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> io::Result<()> {
        self.count(DiskOperation::Allocate, || self.file.allocate(offset, length, keep_size), |()| 0)
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.count(DiskOperation::Allocate, || self.file.punch(offset, length), |()| 0)
    }

    fn is_hole(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.file.is_hole(offset, length)
    }

    fn has_unwritten_space(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.file.has_unwritten_space(offset, length)
    }

    fn sync(&self) -> io::Result<()> {
        self.count(DiskOperation::Sync, || self.file.sync(), |()| 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{DirectoryDisk, Fault, FaultyDisk, no_wait};
    use crate::group::mirror::{DiskMode, Member};

    fn counts_of(disk: &CountedDisk, operation: DiskOperation) -> DiskIoCount {
        disk.io_stats().unwrap().counts()[operation as usize].clone()
    }

    #[test]
    fn operations_bytes_and_times_of_a_disk_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let disk = CountedDisk::new(Arc::new(DirectoryDisk::new(folder.path().join("disk")).unwrap()));
        let file = disk.open(7, Stream::Data, true).unwrap().unwrap();
        file.write_at(&[1; 5000], 0).unwrap();
        assert_eq!(file.read_at(&mut [0; 8192], 0).unwrap(), 5000);
        file.sync().unwrap();
        for (operation, bytes) in [(DiskOperation::Read, 5000), (DiskOperation::Write, 5000), (DiskOperation::Sync, 0)]
        {
            let count = counts_of(&disk, operation);
            assert_eq!((count.operations, count.bytes, count.io_errors), (1, bytes, 0), "{operation:?}");
            assert_eq!(count.histogram.iter().sum::<u64>(), 1, "{operation:?}");
            assert!(count.nanoseconds > 0, "{operation:?}");
        }
    }

    #[test]
    fn large_operations_are_counted_separately_too() {
        let folder = tempfile::tempdir().unwrap();
        let disk = CountedDisk::new(Arc::new(DirectoryDisk::new(folder.path().join("disk")).unwrap()));
        let file = disk.open(7, Stream::Data, true).unwrap().unwrap();
        for length in [SMALL_BYTES_MAX, SMALL_BYTES_MAX + 1, 1 << 20] {
            file.write_at(&vec![1; length], 0).unwrap();
        }
        let count = counts_of(&disk, DiskOperation::Write);
        assert_eq!((count.operations, count.large.operations), (3, 2));
        assert_eq!(count.bytes - count.large.bytes, SMALL_BYTES_MAX as u64);
        assert!(count.large.nanoseconds > 0 && count.large.nanoseconds <= count.nanoseconds);
    }

    #[test]
    fn errors_are_counted_apart_from_full_disks() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Arc::new(DirectoryDisk::new(folder.path().join("disk")).unwrap());
        let faulty = Arc::new(FaultyDisk::new(directory, 1));
        let disk = CountedDisk::new(faulty.clone());
        let file = disk.open(7, Stream::Data, true).unwrap().unwrap();
        faulty.set_faults(&[Fault::Write { errno: libc::EIO, one_in: 1 }]);
        file.write_at(&[1; 8192], 0).unwrap_err();
        faulty.set_faults(&[Fault::Write { errno: libc::ENOSPC, one_in: 1 }]);
        file.write_at(&[1; 8192], 0).unwrap_err();
        file.write_at(&[1; 8192], 0).unwrap_err();
        let count = counts_of(&disk, DiskOperation::Write);
        assert_eq!((count.operations, count.bytes, count.io_errors, count.no_space_errors), (3, 0, 1, 2));
    }

    #[test]
    fn a_device_that_is_gone_has_errors_and_an_offline_member_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Arc::new(DirectoryDisk::new(folder.path().join("disk")).unwrap());
        let faulty = Arc::new(FaultyDisk::new(directory, 1));
        let member = Arc::new(Member::new(faulty.clone(), DiskMode::Online));
        let disk = CountedDisk::new(member.clone());
        let file = disk.open(7, Stream::Data, true).unwrap().unwrap();
        faulty.set_faults(&[Fault::Write { errno: libc::ENODEV, one_in: 1 }]);
        file.write_at(&[1; 8192], 0).unwrap_err();
        assert_eq!(counts_of(&disk, DiskOperation::Write).io_errors, 1);
        member.set_mode(DiskMode::Offline);
        file.write_at(&[1; 8192], 0).unwrap_err();
        disk.sync_everything().unwrap_err();
        // Files that were opened before the disk was offline stay closed.
        member.set_mode(DiskMode::Syncing);
        file.write_at(&[1; 8192], 0).unwrap_err();
        assert_eq!(counts_of(&disk, DiskOperation::Write).io_errors, 1);
        assert_eq!(counts_of(&disk, DiskOperation::Sync).io_errors, 0);
    }

    /// The attempt on a queue's thread and the read on a worker thread are one read.
    #[test]
    fn a_read_that_would_wait_is_no_operation_and_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Arc::new(DirectoryDisk::new(folder.path().join("disk")).unwrap());
        let faulty = Arc::new(FaultyDisk::new(directory, 1));
        let disk = CountedDisk::new(faulty.clone());
        let file = disk.open(7, Stream::Data, true).unwrap().unwrap();
        file.write_at(&[1; 8192], 0).unwrap();
        faulty.set_faults(&[Fault::HeldRead]);
        let attempt = no_wait::without_waiting(|| file.read_at(&mut [0; 8192], 0).map_err(|error| error.kind()));
        assert_eq!(attempt, None);
        faulty.set_faults(&[]);
        assert_eq!(file.read_at(&mut [0; 8192], 0).unwrap(), 8192);
        let count = counts_of(&disk, DiskOperation::Read);
        assert_eq!((count.operations, count.bytes, count.io_errors), (1, 8192, 0));
        assert_eq!(count.histogram.iter().sum::<u64>(), 1);
    }
}
