//! What a cell disk is: the interface that every disk engine offers to the disk group.
//!
//! Invariants: a read past a backing file's end is short, never an error; a write is whole or an error; an engine
//! keeps no state that a crash could separate from its medium. It knows neither stripes nor names of the namespace.

mod directory;
mod faulty;

pub use directory::DirectoryDisk;
pub use faulty::{Fault, FaultyDisk};

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// What O_DIRECT reads are aligned to: buffer, offset and length.
pub const DIRECT_ALIGN: usize = 4096;

/// Room on a disk, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    pub total: u64,
    pub free: u64,
    /// Free for processes without privileges.
    pub available: u64,
    pub files: u64,
    pub files_free: u64,
}

/// The files that one inode may have on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// The backing file: bytes at the file's own offsets.
    Data,
    /// Compression units.
    Units,
    /// Pages that were written over a compression unit and not yet synced, in two segments.
    Pending0,
    Pending1,
}

impl Stream {
    pub const ALL: [Stream; 4] = [Stream::Data, Stream::Units, Stream::Pending0, Stream::Pending1];

    /// What follows the inode's number in the file's name.
    pub fn suffix(self) -> &'static str {
        match self {
            Stream::Data => "",
            Stream::Units => ".units",
            Stream::Pending0 => ".pending0",
            Stream::Pending1 => ".pending1",
        }
    }
}

/// One cell disk.
pub trait Disk: Send + Sync + Debug {
    /// Where the disk is, for messages.
    fn path(&self) -> &Path;

    /// Takes the disk for this process alone until the value is dropped; false when another process has it.
    fn lock(&self) -> io::Result<bool>;

    /// True when nothing was ever stored here.
    fn is_blank(&self) -> io::Result<bool>;

    /// Reads a small named record whole; None when there is none.
    fn read_note(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Replaces a small named record: atomically, and durable on return.
    fn write_note(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Opens a named file, created when missing (the metadata store).
    fn open_named(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    fn remove_named(&self, name: &str) -> io::Result<()>;

    /// Opens a file of an inode; None when it is missing and `create` is false.
    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>>;

    /// Length of an inode's file and the bytes allocated to it, without opening it; zeros when missing.
    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)>;

    /// Removes a file of an inode, if there is one.
    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()>;

    /// Makes the creation of an inode's files durable.
    fn sync_name(&self, ino: u64) -> io::Result<()>;

    /// The files of inodes that are here.
    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>>;

    fn space(&self) -> io::Result<Space>;

    /// Makes everything on the disk durable that anybody wrote before the call.
    fn sync_everything(&self) -> io::Result<()>;
}

/// One file on a cell disk.
pub trait DiskFile: Send + Sync + Debug {
    fn len(&self) -> io::Result<u64>;

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buffer` from `offset`; returns fewer bytes only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Tells which ranges will be read with `read_at` soon, in ascending order: a hint, to fetch them all at once where
    /// they are not in memory.
    fn expect(&self, _ranges: &[Range<u64>]) {}

    /// Like `read_at`, past the operating system's page cache where the filesystem can. Buffer, offset and length are
    /// multiples of [`DIRECT_ALIGN`].
    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;

    fn set_len(&self, length: u64) -> io::Result<()>;

    /// Reserves room for a range; the length grows to its end.
    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> io::Result<()>;

    /// Gives a range's room back; it reads as zeros, the length stays.
    fn punch(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Makes data and length durable.
    fn sync(&self) -> io::Result<()>;
}
