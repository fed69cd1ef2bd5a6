//! The cell disk interface that every disk engine implements.
//!
//! Invariants: a read beyond the end of a file is short, never an error; a write is complete or an error; an engine has
//! no state outside its medium that a crash could lose. An engine knows neither stripe layouts nor file names.

mod counted;
mod device;
mod directory;
mod faulty;
mod model;
pub(crate) mod no_wait;
mod overlay;

pub use counted::{CountedDisk, DiskIoCount, DiskIoStats, DiskOperation};
pub use device::{DeviceDisk, FileMedium, Medium};
pub use directory::DirectoryDisk;
pub use faulty::{Fault, FaultyDisk};
pub use model::{
    Access, Completion, ModelCounts, ModelDisk, ModelParameters, ModelStatus, ModelTime, Request, Service,
};
pub use overlay::OverlayDisk;

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;

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

    /// Returns whether a write to a range of an inode's file would first make a record of the write durable.
    fn write_waits(&self, _ino: u64, _stream: Stream, _range: &Range<u64>) -> bool {
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

/// One file on a cell disk.
pub trait DiskFile: Send + Sync + Debug {
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

    /// Looks at all copies of a range, and rewrites those that are not valid from one that is. Returns whether there is a
    /// valid copy and another was rewritten. False if there are no copies.
    fn repair(&self, _range: &Range<u64>, _is_valid: &dyn Fn(&[u8]) -> bool) -> io::Result<bool> {
        Ok(false)
    }

    /// Makes data and length durable.
    fn sync(&self) -> io::Result<()>;
}
