//! The cell disk interface that every disk engine implements.
//!
//! Invariants: a read beyond the end of a file is short, never an error; a write is complete or an error; an engine has
//! no state outside its medium that a crash could lose. An engine knows neither stripe layouts nor file names.

mod counted;
mod device;
mod directory;
mod faulty;
mod file_store;
mod model;
pub(crate) mod no_wait;
mod overlay;
pub(crate) mod pool;
mod watched;

pub use counted::{CountedDisk, DiskIoCount, DiskIoStats, DiskOperation};
pub use device::{DeviceDisk, FileMedium, Medium};
pub use directory::DirectoryDisk;
pub use faulty::{Fault, FaultyDisk};
pub use file_store::FileStore;
pub use model::{
    Access, Completion, ModelCounts, ModelDisk, ModelParameters, ModelStatus, ModelTime, Request, Service,
};
pub use overlay::OverlayDisk;
pub(crate) use watched::WatchedDisk;

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

/// Alignment of O_DIRECT reads in bytes: of buffer, offset and length.
pub const DIRECT_ALIGN: usize = 4096;

/// Space on a disk, in bytes, and inodes of its filesystem.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    pub total: u64,
    pub free: u64,
    /// Free bytes for unprivileged processes.
    pub available: u64,
    pub files: u64,
    pub files_free: u64,
}

/// The files that one inode may have on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// The backing file: bytes at the file's own offsets.
    Data,
    /// The unit file: compression units.
    Units,
    /// The two segments of the redo log. Their file names end in `.pending0` and `.pending1`.
    Redo0,
    Redo1,
}

impl Stream {
    pub const ALL: [Stream; 4] = [Stream::Data, Stream::Units, Stream::Redo0, Stream::Redo1];

    /// Returns the part of the file's name after the inode number.
    pub fn suffix(self) -> &'static str {
        match self {
            Stream::Data => "",
            Stream::Units => ".units",
            Stream::Redo0 => ".pending0",
            Stream::Redo1 => ".pending1",
        }
    }
}

/// Which file of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum FileKey {
    Named(String),
    OfInode(u64, Stream),
}

/// Facts about one file of an inode that every change of the file's bytes changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    /// Identifies the file on its filesystem, so that a copy of the file has another stamp.
    pub number: u64,
    pub length: u64,
    /// Times of the last change of the content, and of content or attributes: nanoseconds since 1970.
    pub modified: i64,
    pub changed: i64,
}

/// One cell disk.
pub trait Disk: Send + Sync + Debug {
    /// Returns the disk's path, for messages.
    fn path(&self) -> &Path;

    /// Locks the disk for this process until this object is dropped. Returns false if another process has locked it.
    fn lock(&self) -> io::Result<bool>;

    /// Ends the lock of [`Self::lock`]. An engine without this method ends it when the object is dropped.
    fn unlock(&self) {}

    /// Returns whether nothing was ever stored here.
    fn is_blank(&self) -> io::Result<bool>;

    /// Reads a note, a small named record; None if the note does not exist.
    fn read_note(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Replaces a note atomically; durable on return.
    fn write_note(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Opens a named file (the metadata store), creating it if it does not exist.
    fn open_named(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a named file; None if the file does not exist. An open file stays readable after its removal.
    fn open_existing(&self, name: &str) -> io::Result<Option<Arc<dyn DiskFile>>>;

    /// Removes a named file, if it exists; durable on return.
    fn remove_named(&self, name: &str) -> io::Result<()>;

    /// Opens a file of an inode; None if it does not exist and `create` is false.
    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>>;

    /// Returns the length of an inode's file and the bytes allocated to it, without opening it; zeros if it does not
    /// exist.
    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)>;

    /// Returns the stamp of an inode's file; None if the file does not exist.
    fn stamp(&self, ino: u64, stream: Stream) -> io::Result<Option<FileStamp>>;

    /// Opens the file of the operating system that contains exactly the bytes of the inode's data; None if there is none.
    fn kernel_file(&self, _ino: u64) -> io::Result<Option<File>> {
        Ok(None)
    }

    /// Removes a file of an inode, if it exists.
    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()>;

    /// Makes the creation of an inode's files durable.
    fn sync_name(&self, ino: u64) -> io::Result<()>;

    /// Lists the files of inodes on this disk.
    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>>;

    fn space(&self) -> io::Result<Space>;

    /// Makes every change before the call durable, also changes by other processes.
    fn sync_everything(&self) -> io::Result<()>;

    /// Returns false while the disk group does not use the disk, because the disk failed or is absent.
    fn is_accessible(&self) -> bool {
        true
    }

    /// Returns the disk with a wrapper around the part that uses the device, for a disk whose requests wait in a queue of the cell;
    /// None for other disks.
    fn wrapped_inside(&self, _wrap: &dyn Fn(Arc<dyn Disk>) -> Arc<dyn Disk>) -> Option<Arc<dyn Disk>> {
        None
    }

    /// Returns whether writes to files wait for the device, instead of leaving its bytes in the operating system's cache.
    fn writes_wait(&self) -> bool {
        false
    }

    /// Returns whether operations end after a time limit.
    fn is_watched(&self) -> bool {
        false
    }

    /// Returns the counters of the disk's I/O; None for an engine that does not count.
    fn io_stats(&self) -> Option<&DiskIoStats> {
        None
    }

    /// Returns the state of the device model; None for an engine without one.
    fn model_status(&self) -> Option<ModelStatus> {
        None
    }
}

/// Runs `work` in another thread and waits for the result, at most for `timeout`: to open a path that may hang.
pub fn within<T: Send + 'static>(
    timeout: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    Arc::<pool::Pool>::default().run(timeout, work)
}

/// Calls `work` for each disk, or file on a disk, in a thread for each. Returns the results in the order of the disks.
pub(crate) fn on_each<D: Sync, T: Send>(disks: &[D], work: impl Fn(&D) -> T + Sync) -> Vec<T> {
    if let [disk] = disks {
        return vec![work(disk)];
    }
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = disks.iter().map(|disk| scope.spawn(move || work(disk))).collect();
        let join = |thread: ScopedJoinHandle<'_, T>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        threads.into_iter().map(join).collect()
    })
}

/// How to tell valid bytes of a range from damaged ones.
pub struct Check<'a> {
    /// Returns whether bytes, zeros beyond the end of the file, can be the content of the range.
    pub is_valid: &'a dyn Fn(&[u8]) -> bool,
    /// Called after copies were found not to be valid: returns whether `is_valid` applied to them.
    pub still_applies: &'a dyn Fn() -> bool,
}

impl<'a> Check<'a> {
    pub fn new(is_valid: &'a dyn Fn(&[u8]) -> bool) -> Self {
        Self { is_valid, still_applies: &|| true }
    }
}

/// The result of [`DiskFile::examine`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Examined {
    /// The copies are equal and valid. False also if a change was under way: then [`DiskFile::repair`] decides.
    pub is_sound: bool,
    /// Bytes read, of all copies together.
    pub read_bytes: u64,
}

/// The condition of the copies of a range, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// The copies are equal and valid.
    Sound,
    /// Damaged copies were rewritten.
    Repaired,
    /// The copies are valid but differ, and none has a majority.
    Differ,
    /// No copy is valid.
    Damaged,
}

/// Zeroed memory that is aligned to [`DIRECT_ALIGN`].
pub struct AlignedBytes {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBytes {
    pub fn new(length: usize) -> Self {
        let memory = vec![0; length + DIRECT_ALIGN];
        let start = memory.as_ptr().align_offset(DIRECT_ALIGN);
        Self { memory, start, length }
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

/// A read for [`DiskFile::start_read`].
pub struct StartedRead {
    pub length: usize,
    pub offset: u64,
    /// Read like [`DiskFile::read_direct`], otherwise like [`DiskFile::read_at`].
    pub direct: bool,
    /// Gets the bytes, and how many were read.
    pub done: ReadDone,
}

/// Called with the result of a read.
pub type ReadDone = Box<dyn FnOnce(io::Result<(AlignedBytes, usize)>) + Send>;

/// Calls `work` with zeroed memory that is aligned to [`DIRECT_ALIGN`].
pub(crate) fn with_aligned<T>(length: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    work(&mut AlignedBytes::new(length))
}

/// Reads a range from the medium; zeros beyond the end of the file.
pub(crate) fn read_range<F: DiskFile + ?Sized>(file: &F, range: &Range<u64>) -> io::Result<Vec<u8>> {
    let align = DIRECT_ALIGN as u64;
    let (start, end) = (range.start / align * align, range.end.next_multiple_of(align));
    with_aligned((end - start) as usize, |buffer| {
        let count = file.read_medium(buffer, start)?;
        buffer[count..].fill(0);
        Ok(buffer[(range.start - start) as usize..(range.end - start) as usize].to_vec())
    })
}

/// One file on a cell disk.
pub trait DiskFile: Send + Sync + Debug {
    /// Returns false if the file was closed because its disk went offline: every operation is an error.
    fn is_open(&self) -> bool {
        true
    }

    fn len(&self) -> io::Result<u64>;

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns the lengths of the shortest and of the longest copy. They differ after a change that some disks refused.
    fn lengths(&self) -> io::Result<(u64, u64)> {
        self.len().map(|length| (length, length))
    }

    /// Fills `buffer` from `offset`; returns fewer bytes only at the end of the file. During [`no_wait::without_waiting`],
    /// an engine that knows that the read would wait for the device returns [`io::ErrorKind::WouldBlock`].
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Announces reads with `read_at`, in ascending order, so that the ranges that are not in memory are fetched at
    /// once.
    fn prefetch(&self, _ranges: &[Range<u64>]) {}

    /// Reads like `read_at`, bypassing the operating system's page cache if the filesystem can. Buffer address, offset
    /// and length are multiples of [`DIRECT_ALIGN`].
    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Reads like `read_direct`, also what the operating system's page cache contains, if the engine can: finds damage of
    /// the medium.
    fn read_medium(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_direct(buffer, offset)
    }

    /// Starts a read whose result another thread may deliver. An engine without threads reads at once.
    fn start_read(&self, StartedRead { length, offset, direct, done }: StartedRead) {
        let mut bytes = AlignedBytes::new(length);
        let count = if direct { self.read_direct(&mut bytes, offset) } else { self.read_at(&mut bytes, offset) };
        done(count.map(|count| (bytes, count)));
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;

    fn set_len(&self, length: u64) -> io::Result<()>;

    /// Allocates space for a range. Unless `keep_size`, the length grows to the end of the range.
    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> io::Result<()>;

    /// Frees the space of a range, which then reads as zeros. The length does not change.
    fn punch(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Returns whether no space is allocated in a range, or the range is beyond the end of the file. Engines without holes
    /// return false.
    fn is_hole(&self, _offset: u64, _length: u64) -> io::Result<bool> {
        Ok(false)
    }

    /// Returns whether [`Self::is_hole`] may be true although space is allocated in a range, which was never written: a later
    /// write must not fail for lack of space. Engines whose allocated space is no hole return false.
    fn has_unwritten_space(&self, _offset: u64, _length: u64) -> io::Result<bool> {
        Ok(false)
    }

    /// Reads all copies of a range from their media, without locking out changes.
    fn examine(&self, range: &Range<u64>, check: &Check<'_>) -> io::Result<Examined> {
        let read_bytes = range.end - range.start;
        if self.is_hole(range.start, read_bytes)? {
            return Ok(Examined { is_sound: true, read_bytes: 0 });
        }
        let is_sound = read_range(self, range).is_ok_and(|bytes| (check.is_valid)(&bytes));
        Ok(Examined { is_sound, read_bytes })
    }

    /// Looks at all copies of a range, and rewrites those that are damaged if it is certain which ones are.
    fn repair(&self, range: &Range<u64>, check: &Check<'_>) -> io::Result<Condition> {
        match (check.is_valid)(&read_range(self, range)?) {
            true => Ok(Condition::Sound),
            false => Ok(Condition::Damaged),
        }
    }

    /// Makes data and length durable.
    fn sync(&self) -> io::Result<()>;
}
