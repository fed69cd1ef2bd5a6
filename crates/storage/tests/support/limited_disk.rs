//! A disk of limited size: it wraps another engine, counts the allocated blocks of all files, and refuses writes that
//! need more blocks than the disk has left.

use cellar_storage::disk::{Disk, DiskFile, FileStamp, Space, Stream};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

const BLOCK: u64 = 4096;

#[derive(Debug, Default)]
struct State {
    capacity: u64,
    /// Bytes that other programs occupy.
    occupied: u64,
    /// Bytes that the disk reports as free, but that other programs occupy before the cell uses them.
    overstated: u64,
    /// Numbers of the allocated blocks of each file.
    blocks: HashMap<String, BTreeSet<u64>>,
}

impl State {
    fn free(&self) -> u64 {
        let used = self.blocks.values().map(|blocks| blocks.len() as u64 * BLOCK).sum::<u64>();
        self.capacity.saturating_sub(used + self.occupied)
    }

    fn allocate(&mut self, name: &str, range: Range<u64>) -> io::Result<()> {
        let blocks = range.start / BLOCK..range.end.div_ceil(BLOCK);
        let known = self.blocks.entry(name.into()).or_default();
        let added: Vec<u64> = blocks.filter(|block| !known.contains(block)).collect();
        if added.len() as u64 * BLOCK > self.free() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.blocks.entry(name.into()).or_default().extend(added);
        Ok(())
    }

    fn free_blocks(&mut self, name: &str, is_freed: impl Fn(u64) -> bool) {
        if let Some(blocks) = self.blocks.get_mut(name) {
            blocks.retain(|block| !is_freed(*block));
        }
    }
}

#[derive(Debug, Clone)]
pub struct LimitedDisk {
    inner: Arc<dyn Disk>,
    state: Arc<Mutex<State>>,
}

impl LimitedDisk {
    pub fn new(inner: Arc<dyn Disk>, capacity: u64) -> Self {
        Self { inner, state: Arc::new(Mutex::new(State { capacity, ..State::default() })) }
    }

    /// Returns the same disk after a restart of the process that used it. `open` opens the wrapped disk again.
    pub fn restarted(self, open: impl FnOnce() -> Arc<dyn Disk>) -> Self {
        let Self { inner, state } = self;
        drop(inner);
        Self { inner: open(), state }
    }

    /// Lets other programs occupy all free space except for `left` bytes.
    pub fn occupy_all_but(&self, left: u64) {
        let mut state = self.state.lock();
        state.occupied = 0;
        state.occupied = state.free().saturating_sub(left);
    }

    /// Lets the disk report more free bytes than it has.
    pub fn overstate(&self, bytes: u64) {
        self.state.lock().overstated = bytes;
    }

    fn file(&self, inner: Arc<dyn DiskFile>, name: String) -> Arc<dyn DiskFile> {
        Arc::new(LimitedFile { inner, name, state: self.state.clone() })
    }
}

fn name_of(ino: u64, stream: Stream) -> String {
    format!("{ino}{}", stream.suffix())
}

impl Disk for LimitedDisk {
    fn path(&self) -> &Path {
        self.inner.path()
    }
    fn lock(&self) -> io::Result<bool> {
        self.inner.lock()
    }
    fn is_blank(&self) -> io::Result<bool> {
        self.inner.is_blank()
    }
    fn read_note(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.inner.read_note(name)
    }
    fn write_note(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_note(name, bytes)
    }
    fn open_named(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(self.inner.open_named(name)?, name.into()))
    }
    fn open_existing(&self, name: &str) -> io::Result<Option<Arc<dyn DiskFile>>> {
        Ok(self.inner.open_existing(name)?.map(|inner| self.file(inner, name.into())))
    }
    fn remove_named(&self, name: &str) -> io::Result<()> {
        self.inner.remove_named(name)?;
        self.state.lock().blocks.remove(name);
        Ok(())
    }
    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        Ok(self.inner.open(ino, stream, create)?.map(|inner| self.file(inner, name_of(ino, stream))))
    }
    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)> {
        self.inner.measure(ino, stream)
    }
    fn stamp(&self, ino: u64, stream: Stream) -> io::Result<Option<FileStamp>> {
        self.inner.stamp(ino, stream)
    }
    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()> {
        self.inner.remove(ino, stream)?;
        self.state.lock().blocks.remove(&name_of(ino, stream));
        Ok(())
    }
    fn sync_name(&self, ino: u64) -> io::Result<()> {
        self.inner.sync_name(ino)
    }
    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>> {
        self.inner.backing_files()
    }
    fn space(&self) -> io::Result<Space> {
        let state = self.state.lock();
        let free = state.free() + state.overstated;
        Ok(Space { total: state.capacity, free, available: free, files: 1000, files_free: 1000 })
    }
    fn sync_everything(&self) -> io::Result<()> {
        self.inner.sync_everything()
    }
}

#[derive(Debug)]
struct LimitedFile {
    inner: Arc<dyn DiskFile>,
    name: String,
    state: Arc<Mutex<State>>,
}

impl DiskFile for LimitedFile {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, offset)
    }
    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_direct(buffer, offset)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.state.lock().allocate(&self.name, offset..offset + data.len() as u64)?;
        self.inner.write_at(data, offset)
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.inner.set_len(length)?;
        self.state.lock().free_blocks(&self.name, |block| block >= length.div_ceil(BLOCK));
        Ok(())
    }
    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> io::Result<()> {
        self.state.lock().allocate(&self.name, offset..offset + length)?;
        self.inner.allocate(offset, length, keep_size)
    }
    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.inner.punch(offset, length)?;
        let whole = offset.div_ceil(BLOCK)..(offset + length) / BLOCK;
        self.state.lock().free_blocks(&self.name, |block| whole.contains(&block));
        Ok(())
    }
    fn is_hole(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.inner.is_hole(offset, length)
    }
    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }
}
