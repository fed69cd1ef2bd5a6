//! The device engine: a cell disk that is a block device, a partition or a preallocated regular file, without a file
//! system.
//!
//! Layout: `docs/format/disk.md`. Data bypass the operating system's cache. The metadata are a catalog of extents in memory, and a
//! journal of its changes on the device. Invariants: see [`core`].

mod catalog;
mod core;
mod file;
mod journal;
mod layout;
mod medium;
mod record;

pub use medium::{FileMedium, Medium};

use self::core::Core;
use super::{Disk, DiskFile, FileKey, FileStamp, Space, Stream};
use file::DeviceFile;
use layout::{BLOCK, Header, SIZE_MIN, foreign_content};
use parking_lot::Mutex;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files that `space` reports as possible in addition to those that exist.
const FILES_FREE: u64 = 1 << 20;

#[derive(Debug)]
pub struct DeviceDisk {
    path: PathBuf,
    medium: Arc<dyn Medium>,
    is_read_only: bool,
    /// None until the metadata are read. Another daemon may change them until the device is locked.
    core: Mutex<Option<Arc<Core>>>,
    is_locked: Mutex<bool>,
}

impl DeviceDisk {
    /// Uses a device. A device that contains zeros at its start and end is formatted by the first change; other content
    /// is an error of every operation until [`DeviceDisk::format`].
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let medium = Arc::new(FileMedium::open(&path, false)?);
        Self::on(medium, path, false)
    }

    /// Uses a device without changing it. The lock is shared, which fails while a daemon has locked the device.
    pub fn read_only(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let medium = Arc::new(FileMedium::open(&path, true)?);
        Self::on(medium, path, true)
    }

    /// Uses a medium; `path` is for messages.
    pub fn on(medium: Arc<dyn Medium>, path: PathBuf, is_read_only: bool) -> io::Result<Self> {
        if medium.size() < SIZE_MIN {
            let message = format!("the device has {} bytes; a cell disk needs at least {SIZE_MIN}", medium.size());
            return Err(io::Error::other(message));
        }
        Ok(Self { path, medium, is_read_only, core: Mutex::new(None), is_locked: Mutex::new(false) })
    }

    /// Returns what a device contains: None if it is blank.
    pub fn content(medium: &dyn Medium) -> io::Result<Option<&'static str>> {
        match Header::read(medium)? {
            Some(_) => Ok(Some("a cell disk")),
            None => foreign_content(medium),
        }
    }

    /// Formats a device: all that it contains is lost. The caller has locked the medium.
    pub fn format(medium: &dyn Medium) -> io::Result<()> {
        if medium.size() < SIZE_MIN {
            let message = format!("the device has {} bytes; a cell disk needs at least {SIZE_MIN}", medium.size());
            return Err(io::Error::other(message));
        }
        Header::new(random()?, medium.size()).write(medium)
    }

    fn core(&self) -> io::Result<Arc<Core>> {
        let mut loaded = self.core.lock();
        if let Some(core) = &*loaded {
            return Ok(core.clone());
        }
        let header = Header::read(&*self.medium)?;
        if header.is_none()
            && let Some(content) = foreign_content(&*self.medium)?
        {
            let path = self.path.display();
            let message = format!(
                "{path} contains {content}; if its content may be lost, run \"cellar disk format --force {path}\" first"
            );
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        let (is_formatted, header) = match header {
            Some(header) => (true, header),
            None => (false, Header::new(random()?, self.medium.size())),
        };
        let core = Arc::new(Core::load(self.medium.clone(), header, is_formatted, self.is_read_only)?);
        *loaded = Some(core.clone());
        Ok(core)
    }

    fn file(&self, key: FileKey, create: bool) -> io::Result<Option<(Arc<dyn DiskFile>, bool)>> {
        let opened = self.core()?.open(key, create)?;
        Ok(opened.map(|(file, is_new)| (Arc::new(DeviceFile(file)) as Arc<dyn DiskFile>, is_new)))
    }
}

fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

impl Disk for DeviceDisk {
    fn path(&self) -> &Path {
        &self.path
    }

    fn lock(&self) -> io::Result<bool> {
        let mut is_locked = self.is_locked.lock();
        if !*is_locked {
            *is_locked = self.medium.lock()?;
            // What was read before the lock may have changed.
            *self.core.lock() = None;
        }
        Ok(*is_locked)
    }

    fn is_blank(&self) -> io::Result<bool> {
        let core = self.core()?;
        let state = core.state();
        Ok(state.catalog.names.is_empty() && state.catalog.notes.is_empty())
    }

    fn read_note(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.core()?.state().catalog.notes.get(name).cloned())
    }

    fn write_note(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.core()?.write_note(name, bytes)
    }

    fn open_named(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        if name.len() > record::NAME_MAX {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        let (file, is_new) = self.file(FileKey::Named(name.into()), true)?.expect("a missing file is created");
        if is_new {
            file.sync()?;
        }
        Ok(file)
    }

    fn open_existing(&self, name: &str) -> io::Result<Option<Arc<dyn DiskFile>>> {
        Ok(self.file(FileKey::Named(name.into()), false)?.map(|(file, _)| file))
    }

    fn remove_named(&self, name: &str) -> io::Result<()> {
        let core = self.core()?;
        match core.remove(&FileKey::Named(name.into()))? {
            true => core.sync(),
            false => Ok(()),
        }
    }

    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        Ok(self.file(FileKey::OfInode(ino, stream), create)?.map(|(file, _)| file))
    }

    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)> {
        let core = self.core()?;
        let state = core.state();
        let entry = state.catalog.names.get(&FileKey::OfInode(ino, stream)).map(|id| &state.catalog.files[id]);
        Ok(entry.map_or((0, 0), |entry| (entry.length, entry.allocated_blocks() * BLOCK)))
    }

    /// Returns numbers instead of times: the session of the last change, which a change in a later session increases.
    fn stamp(&self, ino: u64, stream: Stream) -> io::Result<Option<FileStamp>> {
        let core = self.core()?;
        let state = core.state();
        let Some(id) = state.catalog.names.get(&FileKey::OfInode(ino, stream)) else { return Ok(None) };
        let (length, changed) = (state.catalog.files[id].length, state.catalog.files[id].changed_in as i64);
        Ok(Some(FileStamp { number: *id, length, modified: changed, changed }))
    }

    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()> {
        self.core()?.remove(&FileKey::OfInode(ino, stream)).map(drop)
    }

    fn sync_name(&self, _: u64) -> io::Result<()> {
        self.core()?.sync()
    }

    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>> {
        let core = self.core()?;
        let state = core.state();
        let of_inode = |key: &FileKey| match key {
            FileKey::OfInode(ino, stream) => Some((*ino, *stream)),
            FileKey::Named(_) => None,
        };
        Ok(state.catalog.names.keys().filter_map(of_inode).collect())
    }

    fn space(&self) -> io::Result<Space> {
        let core = self.core()?;
        let state = core.state();
        let data = core.header.data_blocks();
        let (total, free) = ((data.end - data.start) * BLOCK, (state.free.blocks + state.pending_blocks()) * BLOCK);
        let files = state.catalog.files.len() as u64;
        Ok(Space { total, free, available: free, files: files + FILES_FREE, files_free: FILES_FREE })
    }

    /// Data bypass the operating system's cache, and a file that grows needs a record of the journal.
    fn writes_wait(&self) -> bool {
        true
    }
    fn sync_everything(&self) -> io::Result<()> {
        self.core()?.sync()
    }
}
