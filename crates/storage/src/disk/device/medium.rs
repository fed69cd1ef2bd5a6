//! The bytes below a device engine: a block device, a partition or a preallocated regular file.

use crate::disk::{DIRECT_ALIGN, with_aligned};
use parking_lot::Mutex;
use std::fmt::Debug;
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// `BLKDISCARD` of linux/fs.h: `_IO(0x12, 119)`.
const BLKDISCARD: libc::Ioctl = 0x1277;

/// A fixed number of bytes. Offsets and lengths are multiples of [`DIRECT_ALIGN`].
///
/// Until a sync, each written block is on the medium or not after a loss of power, whatever the order of the writes.
pub trait Medium: Send + Sync + Debug {
    fn size(&self) -> u64;

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes data of files, past the operating system's cache if possible.
    fn write(&self, data: &[u8], offset: u64) -> io::Result<()>;

    /// Writes metadata, through the operating system's cache. A range belongs either to data or to metadata.
    fn write_metadata(&self, data: &[u8], offset: u64) -> io::Result<()>;

    fn read_metadata(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Makes every earlier write durable.
    fn sync(&self) -> io::Result<()>;

    /// Tells the device that the content of a range is not needed. The range then reads as anything.
    fn discard(&self, range: Range<u64>) -> io::Result<()>;

    /// Identifies the time since the last loss of power: the id of the machine's boot.
    fn power_session(&self) -> [u8; 16];

    /// Locks the medium until this object is dropped; shared if it is read-only. Returns false if another process has
    /// locked it.
    fn lock(&self) -> io::Result<bool>;
}

#[derive(Debug)]
pub struct FileMedium {
    path: PathBuf,
    size: u64,
    is_block_device: bool,
    is_read_only: bool,
    /// Through the operating system's cache; carries the lock.
    cached: File,
    /// Past the cache; None if the filesystem below a regular file does not support that.
    direct: Option<File>,
    /// Keeps the kernel from mounting the device.
    exclusive: Mutex<Option<File>>,
}

impl FileMedium {
    /// Returns whether the path is of a kind that [`FileMedium::open`] accepts.
    pub fn is_device(path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() || metadata.file_type().is_block_device())
    }

    pub fn open(path: &Path, is_read_only: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(!is_read_only);
        let mut cached = options.open(path)?;
        let kind = cached.metadata()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(io::Error::other("is neither a block device nor a regular file"));
        }
        let size = cached.seek(SeekFrom::End(0))? / DIRECT_ALIGN as u64 * DIRECT_ALIGN as u64;
        let direct = options.custom_flags(libc::O_DIRECT).open(path).ok();
        Ok(Self {
            path: path.to_owned(),
            size,
            is_block_device: kind.is_block_device(),
            is_read_only,
            cached,
            direct,
            exclusive: Mutex::new(None),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn is_aligned(bytes: &[u8]) -> bool {
    (bytes.as_ptr() as usize).is_multiple_of(DIRECT_ALIGN)
}

impl Medium for FileMedium {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.direct {
            Some(direct) if is_aligned(buffer) => direct.read_exact_at(buffer, offset),
            Some(direct) => with_aligned(buffer.len(), |aligned| {
                direct.read_exact_at(aligned, offset)?;
                buffer.copy_from_slice(aligned);
                Ok(())
            }),
            None => self.cached.read_exact_at(buffer, offset),
        }
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        match &self.direct {
            Some(direct) if is_aligned(data) => direct.write_all_at(data, offset),
            Some(direct) => with_aligned(data.len(), |aligned| {
                aligned.copy_from_slice(data);
                direct.write_all_at(aligned, offset)
            }),
            None => self.cached.write_all_at(data, offset),
        }
    }

    fn write_metadata(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.cached.write_all_at(data, offset)
    }

    fn read_metadata(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.cached.read_exact_at(buffer, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.cached.sync_data()
    }

    fn discard(&self, range: Range<u64>) -> io::Result<()> {
        let (offset, length) = (range.start, range.end - range.start);
        let result = if self.is_block_device {
            let range = [offset, length];
            // SAFETY: the descriptor is open, and BLKDISCARD reads two u64 from the pointer.
            unsafe { libc::ioctl(self.cached.as_raw_fd(), BLKDISCARD, range.as_ptr()) }
        } else {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: the descriptor is open during the call.
            unsafe { libc::fallocate(self.cached.as_raw_fd(), mode, offset as i64, length as i64) }
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn power_session(&self) -> [u8; 16] {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        // Without a boot id, power may have been lost: the random number is never found again.
        let random = || RandomState::new().build_hasher().finish();
        let unknown = |_| u128::from(random()) << 64 | u128::from(random());
        u128::from_str_radix(&digits, 16).unwrap_or_else(unknown).to_be_bytes()
    }

    fn lock(&self) -> io::Result<bool> {
        let locked = if self.is_read_only { self.cached.try_lock_shared() } else { self.cached.try_lock() };
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let mut exclusive = self.exclusive.lock();
        if self.is_block_device && !self.is_read_only && exclusive.is_none() {
            let file = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(&self.path);
            *exclusive = Some(file.map_err(|error| match error.kind() {
                ErrorKind::ResourceBusy => io::Error::other("the device is mounted, or another device uses it"),
                _ => error,
            })?);
        }
        Ok(true)
    }
}
