//! A cell disk that is read but never changed: writes stay in memory, over the files of a directory or device.
//!
//! The metadata store repairs itself when it is opened after a crash, and the redo log is replayed over the backing
//! files. An overlay lets this code run for an inspection, and no byte of the disk changes. Removing files and
//! punching are errors.

use super::{DeviceDisk, DirectoryDisk, Disk, DiskFile, FileKey, FileMedium, FileStamp, Space, Stream};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BLOCK: u64 = 4096;
/// Bytes that [`OverlayDisk::load`] reads at once.
const LOAD_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub struct OverlayDisk {
    base: Arc<dyn Disk>,
    /// Every file that was opened, so that a later open finds the writes.
    files: Mutex<HashMap<FileKey, Arc<OverlayFile>>>,
}

#[derive(Debug)]
struct OverlayFile {
    /// None if the disk has no such file.
    base: Option<Arc<dyn DiskFile>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    length: u64,
    /// Bytes of `base` that are not truncated.
    base_length: u64,
    /// Written blocks, by number.
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl OverlayDisk {
    /// Uses an existing directory or device. [`Disk::lock`] takes a shared lock, which keeps daemons from starting.
    pub fn new(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        let base: Arc<dyn Disk> = match FileMedium::is_device(&root) {
            true => Arc::new(DeviceDisk::read_only(root)?),
            false => Arc::new(DirectoryDisk::read_only(root)?),
        };
        Ok(Self::over(base))
    }

    /// Uses a disk that is open. It must not be changed meanwhile.
    pub fn over(base: Arc<dyn Disk>) -> Self {
        Self { base, files: Mutex::default() }
    }

    /// Returns the length of a named file of the base, 0 if there is none.
    pub fn named_length(&self, name: &str) -> io::Result<u64> {
        self.open_existing(name)?.map_or(Ok(0), |file| file.len())
    }

    /// Copies a named file to memory. The base may be changed afterwards.
    pub fn load(&self, name: &str) -> io::Result<()> {
        let Some(file) = self.open_existing(name)? else { return Ok(()) };
        let (length, mut buffer) = (file.len()?, vec![0; LOAD_BYTES]);
        for start in (0..length).step_by(LOAD_BYTES) {
            let bytes = &mut buffer[..(length - start).min(LOAD_BYTES as u64) as usize];
            let count = file.read_at(bytes, start)?;
            bytes[count..].fill(0);
            file.write_at(bytes, start)?;
        }
        Ok(())
    }

    fn opened(
        &self,
        name: FileKey,
        open: impl FnOnce() -> io::Result<Option<Arc<dyn DiskFile>>>,
        create: bool,
    ) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let mut files = self.files.lock();
        if let Some(file) = files.get(&name) {
            return Ok(Some(file.clone()));
        }
        let base = open()?;
        if base.is_none() && !create {
            return Ok(None);
        }
        let length = base.as_ref().map_or(Ok(0), |file| file.len())?;
        let state = State { length, base_length: length, blocks: BTreeMap::new() };
        let file = Arc::new(OverlayFile { base, state: Mutex::new(state) });
        files.insert(name, file.clone());
        Ok(Some(file))
    }
}

fn read_only<T>() -> io::Result<T> {
    Err(io::Error::from_raw_os_error(libc::EROFS))
}

impl Disk for OverlayDisk {
    fn path(&self) -> &Path {
        self.base.path()
    }

    fn lock(&self) -> io::Result<bool> {
        self.base.lock()
    }

    fn is_blank(&self) -> io::Result<bool> {
        self.base.is_blank()
    }

    fn read_note(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.base.read_note(name)
    }

    fn write_note(&self, _: &str, _: &[u8]) -> io::Result<()> {
        read_only()
    }

    fn open_named(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.opened(FileKey::Named(name.into()), || self.base.open_existing(name), true)?;
        Ok(file.expect("an overlay creates a missing file"))
    }

    fn open_existing(&self, name: &str) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let file = self.opened(FileKey::Named(name.into()), || self.base.open_existing(name), false)?;
        Ok(file.map(|file| file as Arc<dyn DiskFile>))
    }

    fn remove_named(&self, _: &str) -> io::Result<()> {
        read_only()
    }

    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        self.opened(FileKey::OfInode(ino, stream), || self.base.open(ino, stream, false), create)
    }

    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)> {
        let (length, allocated) = self.base.measure(ino, stream)?;
        let opened = self.files.lock().get(&FileKey::OfInode(ino, stream)).map(|file| file.state.lock().length);
        Ok((opened.unwrap_or(length), allocated))
    }

    fn stamp(&self, ino: u64, stream: Stream) -> io::Result<Option<FileStamp>> {
        self.base.stamp(ino, stream)
    }

    fn remove(&self, _: u64, _: Stream) -> io::Result<()> {
        read_only()
    }

    fn sync_name(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>> {
        self.base.backing_files()
    }

    fn space(&self) -> io::Result<Space> {
        self.base.space()
    }

    fn sync_everything(&self) -> io::Result<()> {
        Ok(())
    }
}

impl OverlayFile {
    fn read(&self, state: &State, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let length = state.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..length];
        let from_base = state.base_length.saturating_sub(offset).min(length as u64) as usize;
        let count = match &self.base {
            Some(base) if from_base > 0 => base.read_at(&mut buffer[..from_base], offset)?,
            _ => 0,
        };
        buffer[count..].fill(0);
        let end = offset + length as u64;
        for (number, block) in state.blocks.range(offset / BLOCK..end.div_ceil(BLOCK)) {
            let start = (number * BLOCK).max(offset);
            let stop = ((number + 1) * BLOCK).min(end);
            let written = &block[(start - number * BLOCK) as usize..(stop - number * BLOCK) as usize];
            buffer[(start - offset) as usize..(stop - offset) as usize].copy_from_slice(written);
        }
        Ok(length)
    }

    /// Returns the content of a block, zeros beyond the end of the file.
    fn block(&self, state: &State, number: u64) -> io::Result<Box<[u8]>> {
        let mut block = vec![0; BLOCK as usize].into_boxed_slice();
        self.read(state, &mut block, number * BLOCK)?;
        Ok(block)
    }
}

impl DiskFile for OverlayFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().length)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(&self.state.lock(), buffer, offset)
    }

    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let end = offset + data.len() as u64;
        for number in offset / BLOCK..end.div_ceil(BLOCK) {
            let mut block = self.block(&state, number)?;
            let (start, stop) = ((number * BLOCK).max(offset), ((number + 1) * BLOCK).min(end));
            block[(start - number * BLOCK) as usize..(stop - number * BLOCK) as usize]
                .copy_from_slice(&data[(start - offset) as usize..(stop - offset) as usize]);
            state.blocks.insert(number, block);
        }
        state.length = state.length.max(end);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        if length < state.length && !length.is_multiple_of(BLOCK) {
            let mut last = self.block(&state, length / BLOCK)?;
            last[(length % BLOCK) as usize..].fill(0);
            state.blocks.insert(length / BLOCK, last);
        }
        state.blocks.split_off(&length.div_ceil(BLOCK));
        state.base_length = state.base_length.min(length);
        state.length = length;
        Ok(())
    }

    fn allocate(&self, _: u64, _: u64, _: bool) -> io::Result<()> {
        read_only()
    }

    fn punch(&self, _: u64, _: u64) -> io::Result<()> {
        read_only()
    }

    fn is_hole(&self, offset: u64, length: u64) -> io::Result<bool> {
        let end = (offset + length).div_ceil(BLOCK);
        if self.state.lock().blocks.range(offset / BLOCK..end).next().is_some() {
            return Ok(false);
        }
        self.base.as_ref().map_or(Ok(true), |base| base.is_hole(offset, length))
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_read_back_and_the_directory_is_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let original: Vec<u8> = (0..20_000_u32).map(|number| number as u8).collect();
        std::fs::write(folder.path().join("note"), &original).unwrap();
        let disk = OverlayDisk::new(folder.path()).unwrap();
        let file = disk.open_named("note").unwrap();
        let mut expected = original.clone();
        let check = |expected: &[u8]| {
            let mut bytes = vec![9; expected.len() + 10];
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), expected.len());
            assert!(bytes[..expected.len()] == *expected);
        };
        file.write_at(&[7; 5000], 4000).unwrap();
        expected[4000..9000].fill(7);
        check(&expected);
        file.set_len(4500).unwrap();
        file.set_len(19_000).unwrap();
        expected.truncate(4500);
        expected.resize(19_000, 0);
        check(&expected);
        file.write_at(&[5; 10], 30_000).unwrap();
        expected.resize(30_000, 0);
        expected.extend([5; 10]);
        check(&expected);
        drop(file);
        assert_eq!(disk.open_named("note").unwrap().len().unwrap(), 30_010);
        assert!(std::fs::read(folder.path().join("note")).unwrap() == original);
        assert!(disk.open(20, Stream::Data, false).unwrap().is_none());
        disk.write_note("note", &[]).unwrap_err();

        let loaded = OverlayDisk::new(folder.path()).unwrap();
        assert_eq!((loaded.named_length("note").unwrap(), loaded.named_length("other").unwrap()), (20_000, 0));
        loaded.load("note").unwrap();
        std::fs::write(folder.path().join("note"), [1; 30_000]).unwrap();
        let mut bytes = vec![9; 40_000];
        assert_eq!(loaded.open_named("note").unwrap().read_at(&mut bytes, 0).unwrap(), 20_000);
        assert!(bytes[..20_000] == original);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
