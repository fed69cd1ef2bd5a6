//! A disk of a group with copies: passes calls on to its engine while the disk is accessible, and fails them while the
//! disk is offline. The engine can be replaced, so that a disk that was absent or failed can return.

use super::member_file::OpenFiles;
use crate::disk::{Disk, DiskFile, FileStamp, ModelStatus, Space, Stream};
use parking_lot::RwLock;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// How the group uses a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum DiskMode {
    /// Has every acknowledged change; serves reads.
    Online,
    /// Is not accessed, and may lack changes.
    Offline,
    /// Takes writes and may lack changes, which are being copied to it; serves no reads.
    Syncing,
}

impl DiskMode {
    /// Returns the name as in Oracle's `v$asm_disk.mode_status`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Online => "ONLINE",
            Self::Offline => "OFFLINE",
            Self::Syncing => "SYNCING",
        }
    }
}

#[derive(Debug)]
pub struct Member {
    path: PathBuf,
    engine: RwLock<Arc<dyn Disk>>,
    mode: AtomicU8,
    /// Increases when the disk goes offline and when it returns. Files that were opened before are opened again.
    epoch: AtomicU64,
    files: OpenFiles,
}

impl Member {
    pub fn new(engine: Arc<dyn Disk>, mode: DiskMode) -> Self {
        let (path, mode) = (engine.path().to_owned(), AtomicU8::new(mode as u8));
        Self { path, engine: RwLock::new(engine), mode, epoch: AtomicU64::new(0), files: OpenFiles::default() }
    }

    pub fn mode(&self) -> DiskMode {
        match self.mode.load(Ordering::Acquire) {
            0 => DiskMode::Online,
            2 => DiskMode::Syncing,
            _ => DiskMode::Offline,
        }
    }

    pub fn is_online(&self) -> bool {
        self.mode() == DiskMode::Online
    }

    pub fn set_mode(&self, mode: DiskMode) {
        if mode == DiskMode::Offline || self.mode() == DiskMode::Offline {
            self.epoch.fetch_add(1, Ordering::AcqRel);
        }
        self.mode.store(mode as u8, Ordering::Release);
        if mode == DiskMode::Offline {
            self.files.close_all();
        }
    }

    /// Takes the disk offline and drops its engine, and with it the lock of the disk: the disk can be unmounted.
    pub fn leave(&self) {
        self.set_mode(DiskMode::Offline);
        self.replace_engine(Arc::new(AbsentDisk::new(&self.path)));
    }

    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Returns the engine also while the disk is offline.
    pub fn engine(&self) -> Arc<dyn Disk> {
        self.engine.read().clone()
    }

    /// Replaces the engine of an offline disk.
    pub fn replace_engine(&self, engine: Arc<dyn Disk>) {
        debug_assert_eq!(self.mode(), DiskMode::Offline);
        *self.engine.write() = engine;
    }

    /// Returns a file that is closed when the disk goes offline.
    fn opened(&self, file: Arc<dyn DiskFile>) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.files.add(file);
        if self.mode() == DiskMode::Offline {
            // The disk went offline after the file was opened.
            self.files.close_all();
        }
        Ok(file)
    }

    fn accessible(&self) -> io::Result<Arc<dyn Disk>> {
        match self.mode() {
            DiskMode::Offline => Err(io::Error::from_raw_os_error(libc::ENODEV)),
            DiskMode::Online | DiskMode::Syncing => Ok(self.engine()),
        }
    }
}

impl Disk for Member {
    fn path(&self) -> &Path {
        &self.path
    }
    fn lock(&self) -> io::Result<bool> {
        self.accessible()?.lock()
    }
    fn is_blank(&self) -> io::Result<bool> {
        self.accessible()?.is_blank()
    }
    fn read_note(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.accessible()?.read_note(name)
    }
    fn write_note(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.accessible()?.write_note(name, bytes)
    }
    fn open_named(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.opened(self.accessible()?.open_named(name)?)
    }
    fn open_existing(&self, name: &str) -> io::Result<Option<Arc<dyn DiskFile>>> {
        self.accessible()?.open_existing(name)?.map(|file| self.opened(file)).transpose()
    }
    fn remove_named(&self, name: &str) -> io::Result<()> {
        self.accessible()?.remove_named(name)
    }
    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        self.accessible()?.open(ino, stream, create)?.map(|file| self.opened(file)).transpose()
    }
    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)> {
        self.accessible()?.measure(ino, stream)
    }
    fn stamp(&self, ino: u64, stream: Stream) -> io::Result<Option<FileStamp>> {
        self.accessible()?.stamp(ino, stream)
    }
    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()> {
        self.accessible()?.remove(ino, stream)
    }
    fn sync_name(&self, ino: u64) -> io::Result<()> {
        self.accessible()?.sync_name(ino)
    }
    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>> {
        self.accessible()?.backing_files()
    }
    fn space(&self) -> io::Result<Space> {
        self.accessible()?.space()
    }
    fn sync_everything(&self) -> io::Result<()> {
        self.accessible()?.sync_everything()
    }
    fn is_accessible(&self) -> bool {
        self.mode() != DiskMode::Offline
    }
    fn writes_wait(&self) -> bool {
        self.engine().writes_wait()
    }
    fn model_status(&self) -> Option<ModelStatus> {
        self.engine().model_status()
    }
}

/// Stands for a disk whose directory does not exist: every operation fails.
#[derive(Debug)]
pub struct AbsentDisk(PathBuf);

impl AbsentDisk {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }
}

fn absent<T>() -> io::Result<T> {
    Err(io::Error::from_raw_os_error(libc::ENOENT))
}

impl Disk for AbsentDisk {
    fn path(&self) -> &Path {
        &self.0
    }
    fn lock(&self) -> io::Result<bool> {
        absent()
    }
    fn is_blank(&self) -> io::Result<bool> {
        absent()
    }
    fn read_note(&self, _: &str) -> io::Result<Option<Vec<u8>>> {
        absent()
    }
    fn write_note(&self, _: &str, _: &[u8]) -> io::Result<()> {
        absent()
    }
    fn open_named(&self, _: &str) -> io::Result<Arc<dyn DiskFile>> {
        absent()
    }
    fn open_existing(&self, _: &str) -> io::Result<Option<Arc<dyn DiskFile>>> {
        absent()
    }
    fn remove_named(&self, _: &str) -> io::Result<()> {
        absent()
    }
    fn open(&self, _: u64, _: Stream, _: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        absent()
    }
    fn measure(&self, _: u64, _: Stream) -> io::Result<(u64, u64)> {
        absent()
    }
    fn stamp(&self, _: u64, _: Stream) -> io::Result<Option<FileStamp>> {
        absent()
    }
    fn remove(&self, _: u64, _: Stream) -> io::Result<()> {
        absent()
    }
    fn sync_name(&self, _: u64) -> io::Result<()> {
        absent()
    }
    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>> {
        absent()
    }
    fn space(&self) -> io::Result<Space> {
        absent()
    }
    fn sync_everything(&self) -> io::Result<()> {
        absent()
    }
    fn is_accessible(&self) -> bool {
        false
    }
}
