//! The directory engine: a cell disk that is a plain directory on a local filesystem.
//!
//! Layout: `docs/format/disk.md`. The filesystem provides space allocation, holes and their crash safety. Only the
//! daemon that has locked the file `lock` may change the directory.

use super::{DIRECT_ALIGN, Disk, DiskFile, FileStamp, Space, Stream, no_wait};
use parking_lot::Mutex;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

const DATA: &str = "data";
const LOCK: &str = "lock";
/// Entries that a directory may contain and still count as blank.
const IGNORED: [&str; 5] = ["lost+found", LOCK, "cell.sock", "mounts", "metric-history"];
/// cachestat(2) has no binding in the libc crate; the number is the same on all architectures.
const SYS_CACHESTAT: libc::c_long = 451;
/// Number of u64 fields of `struct cachestat`: cached, dirty, written back, evicted, recently evicted pages.
const CACHESTAT_FIELDS: usize = 5;
/// The smallest page size of any kernel. With larger pages a cached range looks smaller than it is, which is safe.
const PAGE_BYTES: usize = 4096;
/// Nanoseconds of a second.
const NANOSECONDS: i64 = 1_000_000_000;

#[derive(Debug)]
pub struct DirectoryDisk {
    root: PathBuf,
    is_read_only: bool,
    lock: Mutex<Option<File>>,
    /// Held while a note is written: two writers of a note would use the same temporary file.
    notes: Mutex<()>,
    /// The 256 fan-out directories.
    fans: [Fan; 256],
}

/// One fan-out directory, as far as this process knows.
#[derive(Debug)]
struct Fan {
    exists: AtomicBool,
    is_durable: AtomicBool,
}

impl Fan {
    const fn new() -> Self {
        Self { exists: AtomicBool::new(false), is_durable: AtomicBool::new(false) }
    }
}

impl DirectoryDisk {
    /// Uses `root` as a cell disk. Creates the directory if it does not exist, but not its parents.
    pub fn new(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        match fs::DirBuilder::new().mode(0o700).create(&root) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        Self::existing(root, false)
    }

    /// Uses an existing directory without changing it: files are opened for reading, and the lock is shared, which fails
    /// while a daemon has locked the disk. [`super::OverlayDisk`] accepts writes on top.
    pub(super) fn read_only(root: impl Into<PathBuf>) -> io::Result<Self> {
        Self::existing(root.into(), true)
    }

    fn existing(root: PathBuf, is_read_only: bool) -> io::Result<Self> {
        if !fs::metadata(&root)?.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
        }
        let (lock, notes) = (Mutex::new(None), Mutex::new(()));
        Ok(Self { root, is_read_only, lock, notes, fans: [const { Fan::new() }; 256] })
    }

    fn open_file(&self, path: PathBuf, create: bool) -> io::Result<BackingFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(!self.is_read_only).create(create && !self.is_read_only).mode(0o600);
        Ok(BackingFile { file: options.open(&path)?, path, direct: OnceLock::new() })
    }

    /// Locks a disk that is not to be changed. A directory without a lock file is not in use.
    fn lock_shared(&self) -> io::Result<bool> {
        let file = match File::open(self.root.join(LOCK)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
            file => file?,
        };
        match file.try_lock_shared() {
            Ok(()) => {
                *self.lock.lock() = Some(file);
                Ok(true)
            }
            Err(fs::TryLockError::WouldBlock) => Ok(false),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn fan_path(&self, ino: u64) -> PathBuf {
        self.root.join(DATA).join(format!("{:02x}", ino & 0xff))
    }

    fn backing_path(&self, ino: u64, stream: Stream) -> PathBuf {
        self.fan_path(ino).join(format!("{ino:016x}{}", stream.suffix()))
    }

    fn ensure_fan(&self, ino: u64) -> io::Result<()> {
        let fan = &self.fans[(ino & 0xff) as usize];
        if !fan.exists.load(Ordering::Acquire) {
            fs::create_dir_all(self.fan_path(ino))?;
            fan.exists.store(true, Ordering::Release);
        }
        Ok(())
    }
}

impl Disk for DirectoryDisk {
    fn path(&self) -> &Path {
        &self.root
    }

    fn lock(&self) -> io::Result<bool> {
        if self.is_read_only {
            return self.lock_shared();
        }
        let mut locked = self.lock.lock();
        if locked.is_some() {
            return Ok(true);
        }
        let path = self.root.join(LOCK);
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        match file.try_lock() {
            Ok(()) => {
                *locked = Some(file);
                Ok(true)
            }
            Err(fs::TryLockError::WouldBlock) => Ok(false),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn unlock(&self) {
        *self.lock.lock() = None;
    }

    fn is_blank(&self) -> io::Result<bool> {
        for entry in fs::read_dir(&self.root)? {
            let name = entry?.file_name();
            if !IGNORED.iter().any(|ignored| name == *ignored) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn read_note(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        found(fs::read(self.root.join(name)))
    }

    fn write_note(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let _only_writer = self.notes.lock();
        let temporary = self.root.join(format!("{name}.new"));
        let file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temporary)?;
        file.write_all_at(bytes, 0)?;
        file.sync_all()?;
        fs::rename(&temporary, self.root.join(name))?;
        File::open(&self.root)?.sync_all()
    }

    fn open_named(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.open_file(self.root.join(name), true)?;
        if !self.is_read_only {
            File::open(&self.root)?.sync_all()?;
        }
        Ok(Arc::new(file))
    }

    fn open_existing(&self, name: &str) -> io::Result<Option<Arc<dyn DiskFile>>> {
        found(self.open_file(self.root.join(name), false).map(|file| Arc::new(file) as Arc<dyn DiskFile>))
    }

    fn remove_named(&self, name: &str) -> io::Result<()> {
        match found(fs::remove_file(self.root.join(name)))? {
            Some(()) => File::open(&self.root)?.sync_all(),
            None => Ok(()),
        }
    }

    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        if create {
            self.ensure_fan(ino)?;
        }
        match self.open_file(self.backing_path(ino, stream), create) {
            Ok(opened) => {
                if stream == Stream::Units {
                    // Units are far apart with holes between them: read-ahead would fill memory with zeros.
                    advise(&opened.file, 0..0, libc::POSIX_FADV_RANDOM);
                }
                Ok(Some(Arc::new(opened)))
            }
            Err(error) if error.kind() == ErrorKind::NotFound && !create => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)> {
        match fs::metadata(self.backing_path(ino, stream)) {
            Ok(metadata) => Ok((metadata.len(), metadata.blocks() * 512)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok((0, 0)),
            Err(error) => Err(error),
        }
    }

    fn stamp(&self, ino: u64, stream: Stream) -> io::Result<Option<FileStamp>> {
        let stamp = |metadata: fs::Metadata| FileStamp {
            number: metadata.ino(),
            length: metadata.len(),
            modified: metadata.mtime() * NANOSECONDS + metadata.mtime_nsec(),
            changed: metadata.ctime() * NANOSECONDS + metadata.ctime_nsec(),
        };
        found(fs::metadata(self.backing_path(ino, stream)).map(stamp))
    }

    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()> {
        found(fs::remove_file(self.backing_path(ino, stream))).map(drop)
    }

    fn kernel_file(&self, ino: u64) -> io::Result<Option<File>> {
        if self.is_read_only {
            return Ok(None);
        }
        found(OpenOptions::new().read(true).write(true).open(self.backing_path(ino, Stream::Data)))
    }

    fn sync_name(&self, ino: u64) -> io::Result<()> {
        File::open(self.fan_path(ino))?.sync_all()?;
        let fan = &self.fans[(ino & 0xff) as usize];
        if !fan.is_durable.load(Ordering::Acquire) {
            File::open(self.root.join(DATA))?.sync_all()?;
            File::open(&self.root)?.sync_all()?;
            fan.is_durable.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>> {
        let mut inodes = Vec::new();
        let fans = match fs::read_dir(self.root.join(DATA)) {
            Ok(fans) => fans,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(inodes),
            Err(error) => return Err(error),
        };
        for fan in fans {
            let fan = fan?;
            if !fan.file_type()?.is_dir() {
                continue;
            }
            for file in fs::read_dir(fan.path())? {
                let name = file?.file_name();
                match name.to_str().and_then(parse_name) {
                    Some(found) => inodes.push(found),
                    None => log::warn!("{}: ignoring unexpected file {name:?}", fan.path().display()),
                }
            }
        }
        Ok(inodes)
    }

    fn sync_everything(&self) -> io::Result<()> {
        let root = File::open(&self.root)?;
        // SAFETY: the descriptor is open during the call.
        let result = unsafe { libc::syncfs(root.as_raw_fd()) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn space(&self) -> io::Result<Space> {
        let path = CString::new(self.root.as_os_str().as_bytes())?;
        let lock = self.lock.lock();
        // SAFETY: all-zero is a valid statvfs, `path` is NUL-terminated, `lock` is open, and all of them outlive the calls.
        let (result, stat) = unsafe {
            let mut stat: libc::statvfs = std::mem::zeroed();
            let result = match &*lock {
                // The path leads to another file system if that of the disk was unmounted meanwhile.
                Some(lock) => libc::fstatvfs(lock.as_raw_fd(), &mut stat),
                None => libc::statvfs(path.as_ptr(), &mut stat),
            };
            (result, stat)
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Space {
            total: stat.f_blocks * stat.f_frsize,
            free: stat.f_bfree * stat.f_frsize,
            available: stat.f_bavail * stat.f_frsize,
            files: stat.f_files,
            files_free: stat.f_ffree,
        })
    }
}

/// Returns the inode and stream of a file name; None if it is not the name of a backing file.
fn parse_name(name: &str) -> Option<(u64, Stream)> {
    let (number, suffix) = name.split_at(name.find('.').unwrap_or(name.len()));
    let stream = Stream::ALL.into_iter().find(|stream| stream.suffix() == suffix)?;
    Some((u64::from_str_radix(number, 16).ok()?, stream))
}

/// Returns None for the error that a file does not exist.
fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

#[derive(Debug)]
struct BackingFile {
    file: File,
    path: PathBuf,
    /// Opened at the first direct read; None if the filesystem does not support O_DIRECT.
    direct: OnceLock<Option<File>>,
}

impl BackingFile {
    fn direct(&self) -> Option<&File> {
        let open = || OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&self.path).ok();
        self.direct.get_or_init(open).as_ref()
    }

    /// Returns whether the operating system's page cache contains the whole range, or dirty pages of it: then a direct
    /// read would wait for the disk, a buffered read does not. False if the kernel has no cachestat (before Linux 6.5).
    fn is_in_page_cache(&self, offset: u64, length: usize) -> bool {
        let range = [offset, length as u64];
        let mut stat = [0u64; CACHESTAT_FIELDS];
        let file = self.file.as_raw_fd();
        // SAFETY: both structures have the kernel's layout (`cachestat_range`, `cachestat`) and outlive the call.
        let result = unsafe { libc::syscall(SYS_CACHESTAT, file, range.as_ptr(), stat.as_mut_ptr(), 0) };
        let [cached, dirty, written_back, ..] = stat;
        result == 0 && (dirty + written_back > 0 || cached as usize * PAGE_BYTES >= length)
    }

    fn fallocate(&self, mode: i32, offset: u64, length: u64) -> io::Result<()> {
        // SAFETY: the descriptor is open for as long as `self.file` lives.
        let result = unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset as i64, length as i64) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;

/// `struct fiemap` of the kernel, with space for one extent.
#[repr(C)]
struct ExtentMap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extent: [u64; 7],
}

impl Default for ExtentMap {
    fn default() -> Self {
        Self { start: 0, length: 0, flags: 0, mapped_extents: 0, extent_count: 1, reserved: 0, extent: [0; 7] }
    }
}

/// Advises the kernel about a range, or about the whole file if the range is empty. Ignores errors: advice is optional.
fn advise(file: &File, range: Range<u64>, advice: i32) {
    // SAFETY: the descriptor is open during the call.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), range.start as i64, (range.end - range.start) as i64, advice) };
}

/// Reads like [`read_fully`] if the operating system's page cache contains the bytes. Otherwise the kernel starts to read
/// them, and the error is [`ErrorKind::WouldBlock`]. Waits if the filesystem does not support RWF_NOWAIT.
fn read_cached(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        let rest = &mut buffer[done..];
        let part = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        let at = (offset + done as u64) as libc::off_t;
        // SAFETY: `part` describes the rest of the buffer, which outlives the call.
        let count = unsafe { libc::preadv2(file.as_raw_fd(), &part, 1, at, libc::RWF_NOWAIT) };
        match usize::try_from(count) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == ErrorKind::Interrupted => {}
                error if error.kind() == ErrorKind::WouldBlock => return Err(no_wait::would_wait()),
                error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                    return Ok(done + read_fully(file, &mut buffer[done..], offset + done as u64)?);
                }
                error => return Err(error),
            },
        }
    }
    Ok(done)
}

fn read_fully(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

impl DiskFile for BackingFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match no_wait::is_on() {
            true => read_cached(&self.file, buffer, offset),
            false => read_fully(&self.file, buffer, offset),
        }
    }

    fn prefetch(&self, ranges: &[Range<u64>]) {
        // Check the longest range only: mostly all ranges are in memory, and the advice would cost more than it saves.
        let length = |range: &Range<u64>| range.end.saturating_sub(range.start) as usize;
        let Some(longest) = ranges.iter().max_by_key(|range| length(range)) else { return };
        if length(longest) == 0 || self.is_in_page_cache(longest.start, length(longest)) {
            return;
        }
        let mut advised = 0;
        for range in ranges {
            let start = (range.start / PAGE_BYTES as u64 * PAGE_BYTES as u64).max(advised);
            let end = range.end.next_multiple_of(PAGE_BYTES as u64);
            if start < end {
                advise(&self.file, start..end, libc::POSIX_FADV_WILLNEED);
                advised = end;
            }
        }
    }

    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.direct().is_none() || self.is_in_page_cache(offset, buffer.len()) {
            return self.read_at(buffer, offset);
        }
        if no_wait::is_on() {
            return Err(no_wait::would_wait());
        }
        self.read_medium(buffer, offset)
    }

    fn read_medium(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        debug_assert!((buffer.as_ptr() as usize).is_multiple_of(DIRECT_ALIGN));
        debug_assert!(offset.is_multiple_of(DIRECT_ALIGN as u64));
        let Some(direct) = self.direct() else { return self.read_at(buffer, offset) };
        let mut done = 0;
        while done < buffer.len() {
            match direct.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => {
                    done += count;
                    // A short direct read means end of file, at an unaligned length.
                    if count % DIRECT_ALIGN != 0 {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    return Ok(done + self.read_at(&mut buffer[done..], offset + done as u64)?);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> io::Result<()> {
        self.fallocate(if keep_size { libc::FALLOC_FL_KEEP_SIZE } else { 0 }, offset, length)
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.fallocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, length)
    }

    fn is_hole(&self, offset: u64, length: u64) -> io::Result<bool> {
        // SAFETY: the descriptor is open during the call. No other call uses the descriptor's file position.
        let data = unsafe { libc::lseek(self.file.as_raw_fd(), offset as i64, libc::SEEK_DATA) };
        match (data, io::Error::last_os_error()) {
            (0.., _) => Ok(data as u64 >= offset + length),
            (_, error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(true),
            (_, error) => Err(error),
        }
    }

    fn has_unwritten_space(&self, offset: u64, length: u64) -> io::Result<bool> {
        let mut map = ExtentMap { start: offset, length, ..ExtentMap::default() };
        // SAFETY: the descriptor is open during the call, which fills at most `extent_count` extents of the map.
        let result = unsafe { libc::ioctl(self.file.as_raw_fd(), FS_IOC_FIEMAP, &mut map) };
        match (result, io::Error::last_os_error()) {
            (0.., _) => Ok(map.mapped_extents > 0),
            // The file system has no map of extents.
            (_, error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOTTY)) => Ok(false),
            (_, error) => Err(error),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
