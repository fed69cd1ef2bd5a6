//! Converts the volume's types to FUSE's, for both transports.

use super::ring::AttrOut;
use cellar_storage::{Attr, Error, Kind};
use fuser::{Errno, FileAttr, FileType, INodeNo};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long the kernel may cache names and attributes. Long, because all changes go through the kernel.
pub const TTL: Duration = Duration::from_secs(3600);
/// `st_blksize`, the preferred size of I/O in bytes.
const ST_BLKSIZE: u32 = 4096;
/// The unit of `st_blocks`, in bytes.
const ST_BLOCKS_UNIT: u64 = 512;

pub fn errno(error: &Error) -> Errno {
    Errno::from_i32(error.errno())
}

pub fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

pub fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.stored_bytes.div_ceil(ST_BLOCKS_UNIT),
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.birth),
        kind: file_type(attr.kind),
        perm: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.device,
        blksize: ST_BLKSIZE,
        flags: 0,
    }
}

/// Returns the attributes in the form of the ring's ABI.
pub fn attr_out(attr: &Attr) -> AttrOut {
    let [atime, mtime, ctime] = [attr.atime, attr.mtime, attr.ctime].map(seconds_and_nanoseconds);
    AttrOut {
        valid_seconds: TTL.as_secs(),
        ino: attr.ino,
        size: attr.size,
        blocks: attr.stored_bytes.div_ceil(ST_BLOCKS_UNIT),
        atime: atime.0,
        mtime: mtime.0,
        ctime: ctime.0,
        atime_nanoseconds: atime.1,
        mtime_nanoseconds: mtime.1,
        ctime_nanoseconds: ctime.1,
        mode: type_bits(attr.kind) | u32::from(attr.mode),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        device: attr.device,
        block_bytes: ST_BLKSIZE,
        ..AttrOut::default()
    }
}

/// Returns the attributes for a name that does not exist; inode 0 lets the kernel cache the absence.
pub fn absent() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: ST_BLKSIZE,
        flags: 0,
    }
}

fn system_time(nanoseconds: i64) -> SystemTime {
    let distance = Duration::from_nanos(nanoseconds.unsigned_abs());
    if nanoseconds >= 0 { UNIX_EPOCH + distance } else { UNIX_EPOCH - distance }
}

/// Returns nanoseconds since 1970, saturated at the limits of an i64.
pub fn nanoseconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |distance| -distance),
    }
}

/// Splits a time into FUSE's seconds since 1970 and nanoseconds.
fn seconds_and_nanoseconds(nanoseconds: i64) -> (u64, u32) {
    (nanoseconds.div_euclid(1_000_000_000) as u64, nanoseconds.rem_euclid(1_000_000_000) as u32)
}

/// Returns the file type bits of `st_mode`.
fn type_bits(kind: Kind) -> u32 {
    match kind {
        Kind::File => libc::S_IFREG,
        Kind::Directory => libc::S_IFDIR,
        Kind::Symlink => libc::S_IFLNK,
        Kind::Fifo => libc::S_IFIFO,
        Kind::Socket => libc::S_IFSOCK,
        Kind::CharDevice => libc::S_IFCHR,
        Kind::BlockDevice => libc::S_IFBLK,
    }
}
