//! A disk that can break: every operation then fails, until the disk is repaired. It can also refuse, as a full disk does, to
//! write and to create files of inodes, hold writes and the creation of files, and panic.

use cellar_storage::disk::{Disk, DiskFile, FileStamp, Space, Stream};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// Shared by a disk and its files: the number of operations until the disk breaks, negative if it never breaks.
#[derive(Debug, Clone)]
pub struct Breaker(Arc<AtomicI64>, Arc<AtomicBool>, Arc<More>);

#[derive(Debug, Default)]
struct More {
    says_so: AtomicBool,
    holds: AtomicBool,
    holds_one: AtomicBool,
    held: AtomicBool,
    holds_metadata: AtomicBool,
    refuses_files: AtomicBool,
    panics: AtomicBool,
}

impl Breaker {
    pub fn new() -> Self {
        Self(Arc::new(AtomicI64::new(-1)), Arc::default(), Arc::default())
    }

    pub fn break_after(&self, operations: u64) {
        self.0.store(operations as i64, Ordering::SeqCst);
    }

    pub fn repair(&self) {
        self.0.store(-1, Ordering::SeqCst);
    }

    pub fn is_broken(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }

    /// Returns whether the disk is broken or will break.
    pub fn is_armed(&self) -> bool {
        self.0.load(Ordering::SeqCst) >= 0
    }

    pub fn refuse(&self, refuses: bool) {
        self.1.store(refuses, Ordering::SeqCst);
    }

    /// Refuses to create files of inodes only: existing files have their space.
    pub fn refuse_files(&self, refuses: bool) {
        self.2.refuses_files.store(refuses, Ordering::SeqCst);
    }

    /// Lets the disk say that writes wait.
    pub fn let_writes_wait(&self) {
        self.2.says_so.store(true, Ordering::SeqCst);
    }

    /// Lets the next write of a file of an inode panic.
    pub fn panic_at_write(&self) {
        self.2.panics.store(true, Ordering::SeqCst);
    }

    /// Holds writes of files of inodes, and their creation, until [`Self::release_writes`].
    pub fn hold_writes(&self) {
        self.2.holds.store(true, Ordering::SeqCst);
    }

    /// Holds writes of the metadata until [`Self::release_writes`].
    pub fn hold_metadata_writes(&self) {
        self.2.holds_metadata.store(true, Ordering::SeqCst);
    }

    /// As [`Self::hold_writes`], for the next one only.
    pub fn hold_one_write(&self) {
        self.2.holds_one.store(true, Ordering::SeqCst);
        self.hold_writes();
    }

    pub fn release_writes(&self) {
        self.2.holds.store(false, Ordering::SeqCst);
        self.2.holds_metadata.store(false, Ordering::SeqCst);
    }

    /// Returns whether a write, or the creation of a file, was held.
    pub fn has_held(&self) -> bool {
        self.2.held.load(Ordering::SeqCst)
    }

    fn wait(&self) {
        if self.2.holds_one.load(Ordering::SeqCst) && self.2.held.swap(true, Ordering::SeqCst) {
            return;
        }
        while self.2.holds.load(Ordering::SeqCst) {
            self.2.held.store(true, Ordering::SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn wait_for_metadata(&self) {
        while self.2.holds_metadata.load(Ordering::SeqCst) {
            self.2.held.store(true, Ordering::SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn check_refusal(&self) -> io::Result<()> {
        match self.1.load(Ordering::SeqCst) {
            true => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            false => Ok(()),
        }
    }

    fn check(&self) -> io::Result<()> {
        let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| (left > 0).then(|| left - 1));
        match left {
            Err(0) => Err(io::Error::from_raw_os_error(libc::EIO)),
            _ => Ok(()),
        }
    }
}

#[derive(Debug)]
pub struct BreakableDisk {
    pub inner: Arc<dyn Disk>,
    pub breaker: Breaker,
}

#[derive(Debug)]
struct BreakableFile {
    inner: Arc<dyn DiskFile>,
    breaker: Breaker,
    is_of_inode: bool,
    is_metadata: bool,
}

impl BreakableDisk {
    /// Wraps a file of an inode, or the one with a name.
    fn wrap(&self, inner: Arc<dyn DiskFile>, name: Option<&str>) -> Arc<dyn DiskFile> {
        let (is_of_inode, is_metadata) = (name.is_none(), name == Some("metadata.redb"));
        Arc::new(BreakableFile { inner, breaker: self.breaker.clone(), is_of_inode, is_metadata })
    }
}

impl Disk for BreakableDisk {
    fn path(&self) -> &Path {
        self.inner.path()
    }
    fn lock(&self) -> io::Result<bool> {
        self.breaker.check()?;
        self.inner.lock()
    }
    fn is_blank(&self) -> io::Result<bool> {
        self.breaker.check()?;
        self.inner.is_blank()
    }
    fn read_note(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.breaker.check()?;
        self.inner.read_note(name)
    }
    fn write_note(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.breaker.check()?;
        self.inner.write_note(name, bytes)
    }
    fn open_named(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.breaker.check()?;
        self.inner.open_named(name).map(|file| self.wrap(file, Some(name)))
    }
    fn open_existing(&self, name: &str) -> io::Result<Option<Arc<dyn DiskFile>>> {
        self.breaker.check()?;
        Ok(self.inner.open_existing(name)?.map(|file| self.wrap(file, Some(name))))
    }
    fn remove_named(&self, name: &str) -> io::Result<()> {
        self.breaker.check()?;
        self.inner.remove_named(name)
    }
    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        self.breaker.check()?;
        if create && self.inner.open(ino, stream, false)?.is_none() {
            self.breaker.wait();
            self.breaker.check_refusal()?;
            if self.breaker.2.refuses_files.load(Ordering::SeqCst) {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
        }
        Ok(self.inner.open(ino, stream, create)?.map(|file| self.wrap(file, None)))
    }
    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)> {
        self.breaker.check()?;
        self.inner.measure(ino, stream)
    }
    fn stamp(&self, ino: u64, stream: Stream) -> io::Result<Option<FileStamp>> {
        self.breaker.check()?;
        self.inner.stamp(ino, stream)
    }
    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()> {
        self.breaker.check()?;
        self.inner.remove(ino, stream)
    }
    fn sync_name(&self, ino: u64) -> io::Result<()> {
        self.breaker.check()?;
        self.inner.sync_name(ino)
    }
    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>> {
        self.breaker.check()?;
        self.inner.backing_files()
    }
    fn space(&self) -> io::Result<Space> {
        self.breaker.check()?;
        self.inner.space()
    }
    fn sync_everything(&self) -> io::Result<()> {
        self.breaker.check()?;
        self.inner.sync_everything()
    }
    fn writes_wait(&self) -> bool {
        self.breaker.2.says_so.load(Ordering::SeqCst)
    }
}

impl DiskFile for BreakableFile {
    fn len(&self) -> io::Result<u64> {
        self.breaker.check()?;
        self.inner.len()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.breaker.check()?;
        self.inner.read_at(buffer, offset)
    }
    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.breaker.check()?;
        self.inner.read_direct(buffer, offset)
    }
    fn prefetch(&self, ranges: &[Range<u64>]) {
        self.inner.prefetch(ranges);
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if self.is_of_inode {
            self.breaker.wait();
            assert!(!self.breaker.2.panics.swap(false, Ordering::SeqCst), "a disk panics");
        }
        if self.is_metadata {
            self.breaker.wait_for_metadata();
        }
        self.breaker.check()?;
        if self.is_of_inode {
            self.breaker.check_refusal()?;
        }
        self.inner.write_at(data, offset)
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.breaker.check()?;
        self.inner.set_len(length)
    }
    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> io::Result<()> {
        self.breaker.check()?;
        self.inner.allocate(offset, length, keep_size)
    }
    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.breaker.check()?;
        self.inner.punch(offset, length)
    }
    fn is_hole(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.inner.is_hole(offset, length)
    }
    fn sync(&self) -> io::Result<()> {
        self.breaker.check()?;
        self.inner.sync()
    }
}
