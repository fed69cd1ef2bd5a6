//! The part of the disk interface that stores the files of inodes. Disks, copy sets and stripes implement this part. Notes, locks
//! and free space belong to disks only.

use super::{Disk, DiskFile, FileStamp, Stream};
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// [`Disk`] describes the methods, which have the same names there.
pub trait FileStore: Send + Sync + Debug {
    fn path(&self) -> &Path;
    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>>;
    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)>;
    fn stamp(&self, ino: u64, stream: Stream) -> io::Result<Option<FileStamp>>;
    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()>;
    fn sync_name(&self, ino: u64) -> io::Result<()>;
    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>>;
    fn sync_everything(&self) -> io::Result<()>;

    /// Opens the one file of a filesystem that contains exactly the bytes of the inode's data, for the kernel to use without the
    /// cell. Returns None if there is no such file.
    fn kernel_file(&self, _ino: u64) -> io::Result<Option<File>> {
        Ok(None)
    }

    /// Returns whether the files are stored on several disks.
    fn has_copies(&self) -> bool;

    /// Returns whether a write to a range of an inode's file would wait: for the device, or for a durable record of the write.
    fn write_waits(&self, ino: u64, stream: Stream, range: &Range<u64>) -> bool;
}

/// A disk without copies.
impl FileStore for Arc<dyn Disk> {
    fn path(&self) -> &Path {
        (**self).path()
    }
    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        (**self).open(ino, stream, create)
    }
    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)> {
        (**self).measure(ino, stream)
    }
    fn stamp(&self, ino: u64, stream: Stream) -> io::Result<Option<FileStamp>> {
        (**self).stamp(ino, stream)
    }
    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()> {
        (**self).remove(ino, stream)
    }
    fn sync_name(&self, ino: u64) -> io::Result<()> {
        (**self).sync_name(ino)
    }
    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>> {
        (**self).backing_files()
    }
    fn sync_everything(&self) -> io::Result<()> {
        (**self).sync_everything()
    }
    fn kernel_file(&self, ino: u64) -> io::Result<Option<File>> {
        (**self).kernel_file(ino)
    }
    fn has_copies(&self) -> bool {
        false
    }
    fn write_waits(&self, _: u64, _: Stream, _: &Range<u64>) -> bool {
        (**self).writes_wait()
    }
}
