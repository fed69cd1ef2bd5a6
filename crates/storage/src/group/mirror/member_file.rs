//! The open files of a disk of a group with copies. The files are closed when the disk goes offline, so that the disk can be
//! unmounted, or opened again as a device, while the cell runs.

use crate::disk::{DiskFile, StartedRead};
use parking_lot::{Mutex, RwLock};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// The number of entries from which files that were dropped are removed from the list.
const PRUNE_MIN: usize = 64;

/// An opened file of a disk. After [`OpenFiles::close_all`] every operation is an error.
#[derive(Debug)]
pub struct MemberFile(RwLock<Option<Arc<dyn DiskFile>>>);

/// The opened files of one disk.
#[derive(Debug, Default)]
pub struct OpenFiles(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    files: Vec<Weak<MemberFile>>,
    /// The length at which dropped files are removed next.
    prune_at: usize,
}

impl OpenFiles {
    pub fn add(&self, file: Arc<dyn DiskFile>) -> Arc<MemberFile> {
        let file = Arc::new(MemberFile(RwLock::new(Some(file))));
        let mut list = self.0.lock();
        if list.files.len() >= list.prune_at.max(PRUNE_MIN) {
            list.files.retain(|file| file.strong_count() > 0);
            list.prune_at = 2 * list.files.len();
        }
        list.files.push(Arc::downgrade(&file));
        file
    }

    /// Closes all files. An operation under way keeps its file open until it returns.
    pub fn close_all(&self) {
        let files = std::mem::take(&mut self.0.lock().files);
        for file in files.iter().filter_map(Weak::upgrade) {
            let closed = file.0.write().take();
            drop(closed);
        }
    }
}

impl MemberFile {
    fn opened(&self) -> io::Result<Arc<dyn DiskFile>> {
        self.0.read().clone().ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }
}

impl DiskFile for MemberFile {
    fn is_open(&self) -> bool {
        self.0.read().is_some()
    }

    fn len(&self) -> io::Result<u64> {
        self.opened()?.len()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.opened()?.read_at(buffer, offset)
    }
    fn prefetch(&self, ranges: &[Range<u64>]) {
        if let Ok(file) = self.opened() {
            file.prefetch(ranges);
        }
    }
    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.opened()?.read_direct(buffer, offset)
    }
    fn read_medium(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.opened()?.read_medium(buffer, offset)
    }
    fn start_read(&self, read: StartedRead) {
        match self.opened() {
            Ok(file) => file.start_read(read),
            Err(error) => (read.done)(Err(error)),
        }
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.opened()?.write_at(data, offset)
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.opened()?.set_len(length)
    }
    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> io::Result<()> {
        self.opened()?.allocate(offset, length, keep_size)
    }
    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.opened()?.punch(offset, length)
    }
    fn is_hole(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.opened()?.is_hole(offset, length)
    }
    fn has_unwritten_space(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.opened()?.has_unwritten_space(offset, length)
    }
    fn sync(&self) -> io::Result<()> {
        self.opened()?.sync()
    }
}
