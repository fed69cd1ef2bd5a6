//! Disks in memory that lose their power: what was not synced is then there or not, page by page, whatever the order
//! in which it was written; files that were created or removed without a sync may be back or gone.
//!
//! All disks hang on one [`Power`], which ends after a number of changes; from then on every operation fails.

use super::Random;
use cellar_storage::disk::{Disk, DiskFile, Space, Stream};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a device writes as a whole.
const PAGE: usize = 4096;

#[derive(Debug)]
pub struct Power(Mutex<u64>);

impl Power {
    pub fn for_changes(changes: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(changes)))
    }

    pub fn is_off(&self) -> bool {
        *self.0.lock() == 0
    }

    fn check(&self) -> io::Result<()> {
        if self.is_off() { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }

    /// One more change; the one that spends the last of it fails.
    fn change(&self) -> io::Result<()> {
        let mut left = self.0.lock();
        *left = left.saturating_sub(1);
        if *left == 0 { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }
}

/// One file: what programs see, and what the medium has.
#[derive(Debug, Default, Clone)]
struct Content {
    current: Vec<u8>,
    durable: Vec<u8>,
    unsynced_pages: BTreeSet<usize>,
    has_durable_name: bool,
}

impl Content {
    fn touch(&mut self, from: usize, to: usize) {
        self.unsynced_pages.extend(from / PAGE..to.div_ceil(PAGE));
    }

    fn set_len(&mut self, length: usize) {
        let old = self.current.len();
        self.current.resize(length, 0);
        self.touch(old.min(length), old.max(length));
    }

    fn sync(&mut self) {
        self.durable.resize(self.current.len(), 0);
        for page in std::mem::take(&mut self.unsynced_pages) {
            copy_page(&self.current, &mut self.durable, page);
        }
    }

    /// What is left of it; None when its name is lost.
    fn after_loss(&self, random: &mut Random) -> Option<Self> {
        if !self.has_durable_name && random.below(2) == 0 {
            return None;
        }
        let length = if random.below(2) == 0 { self.current.len() } else { self.durable.len() };
        let mut left = vec![0; length];
        for page in 0..length.div_ceil(PAGE) {
            let arrived = self.unsynced_pages.contains(&page) && random.below(2) == 0;
            copy_page(if arrived { &self.current } else { &self.durable }, &mut left, page);
        }
        Some(Self { durable: left.clone(), current: left, has_durable_name: true, ..Self::default() })
    }
}

fn copy_page(from: &[u8], to: &mut [u8], page: usize) {
    let (start, end) = (page * PAGE, ((page + 1) * PAGE).min(from.len()).min(to.len()));
    if start < end {
        to[start..end].copy_from_slice(&from[start..end]);
    }
}

#[derive(Debug, Default)]
struct State {
    notes: BTreeMap<String, Vec<u8>>,
    named: BTreeMap<String, Arc<Mutex<Content>>>,
    backing: BTreeMap<(u64, Stream), Arc<Mutex<Content>>>,
    /// Backing files whose removal is not durable.
    removed: BTreeMap<(u64, Stream), Arc<Mutex<Content>>>,
}

#[derive(Debug)]
pub struct PowerDisk {
    path: PathBuf,
    power: Arc<Power>,
    state: Mutex<State>,
}

impl PowerDisk {
    pub fn blank(path: &str, power: Arc<Power>) -> Arc<Self> {
        Arc::new(Self { path: path.into(), power, state: Mutex::default() })
    }

    /// The disk as it is when there is power again.
    pub fn after_loss(&self, random: &mut Random, power: Arc<Power>) -> Arc<Self> {
        let state = self.state.lock();
        let mut left = State { notes: state.notes.clone(), ..State::default() };
        for (name, content) in &state.named {
            if let Some(content) = content.lock().after_loss(random) {
                left.named.insert(name.clone(), Arc::new(Mutex::new(content)));
            }
        }
        let undone: Vec<_> = state.removed.iter().filter(|_| random.below(2) == 0).collect();
        for (file, content) in undone.into_iter().chain(&state.backing) {
            if let Some(content) = content.lock().after_loss(random) {
                left.backing.insert(*file, Arc::new(Mutex::new(content)));
            }
        }
        Arc::new(Self { path: self.path.clone(), power, state: Mutex::new(left) })
    }

    fn file(&self, content: &Arc<Mutex<Content>>) -> Arc<dyn DiskFile> {
        Arc::new(PowerFile { power: self.power.clone(), content: content.clone() })
    }
}

impl Disk for PowerDisk {
    fn path(&self) -> &Path {
        &self.path
    }
    fn lock(&self) -> io::Result<bool> {
        Ok(true)
    }
    fn is_blank(&self) -> io::Result<bool> {
        self.power.check()?;
        let state = self.state.lock();
        Ok(state.notes.is_empty() && state.named.is_empty() && state.backing.is_empty())
    }
    fn read_note(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.power.check()?;
        Ok(self.state.lock().notes.get(name).cloned())
    }
    fn write_note(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.power.change()?;
        self.state.lock().notes.insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }
    fn open_named(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.power.change()?;
        // The directory engine syncs the name that it makes.
        let made = || Arc::new(Mutex::new(Content { has_durable_name: true, ..Content::default() }));
        Ok(self.file(self.state.lock().named.entry(name.to_owned()).or_insert_with(made)))
    }
    fn remove_named(&self, name: &str) -> io::Result<()> {
        self.power.change()?;
        self.state.lock().named.remove(name);
        Ok(())
    }
    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        self.power.check()?;
        let mut state = self.state.lock();
        if create && !state.backing.contains_key(&(ino, stream)) {
            self.power.change()?;
            state.backing.insert((ino, stream), Arc::default());
        }
        Ok(state.backing.get(&(ino, stream)).map(|content| self.file(content)))
    }
    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)> {
        self.power.check()?;
        let bytes =
            self.state.lock().backing.get(&(ino, stream)).map_or(0, |content| content.lock().current.len() as u64);
        Ok((bytes, bytes))
    }
    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()> {
        self.power.change()?;
        let mut state = self.state.lock();
        if let Some(content) = state.backing.remove(&(ino, stream)) {
            state.removed.insert((ino, stream), content);
        }
        Ok(())
    }
    fn sync_name(&self, ino: u64) -> io::Result<()> {
        self.power.change()?;
        for stream in Stream::ALL {
            if let Some(content) = self.state.lock().backing.get(&(ino, stream)) {
                content.lock().has_durable_name = true;
            }
        }
        Ok(())
    }
    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>> {
        self.power.check()?;
        Ok(self.state.lock().backing.keys().copied().collect())
    }
    fn space(&self) -> io::Result<Space> {
        Ok(Space { total: 1 << 40, free: 1 << 40, available: 1 << 40, files: 1 << 20, files_free: 1 << 20 })
    }
    fn sync_everything(&self) -> io::Result<()> {
        self.power.change()?;
        let mut state = self.state.lock();
        state.removed.clear();
        for content in state.named.values().chain(state.backing.values()) {
            let mut content = content.lock();
            content.sync();
            content.has_durable_name = true;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct PowerFile {
    power: Arc<Power>,
    content: Arc<Mutex<Content>>,
}

impl DiskFile for PowerFile {
    fn len(&self) -> io::Result<u64> {
        self.power.check()?;
        Ok(self.content.lock().current.len() as u64)
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.power.check()?;
        let content = self.content.lock();
        let bytes = content.current.get(offset as usize..).unwrap_or_default();
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }
    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let change = self.power.change();
        let (start, end) = (offset as usize, offset as usize + data.len());
        let mut content = self.content.lock();
        if content.current.len() < end {
            content.set_len(end);
        }
        content.current[start..end].copy_from_slice(data);
        content.touch(start, end);
        // What is written while the power goes may have arrived.
        change
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.power.change()?;
        self.content.lock().set_len(length as usize);
        Ok(())
    }
    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> io::Result<()> {
        self.power.change()?;
        let (mut content, end) = (self.content.lock(), (offset + length) as usize);
        if !keep_size && content.current.len() < end {
            content.set_len(end);
        }
        Ok(())
    }
    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.power.change()?;
        let mut content = self.content.lock();
        let (start, end) = (offset as usize, ((offset + length) as usize).min(content.current.len()));
        if start < end {
            content.current[start..end].fill(0);
            content.touch(start, end);
        }
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        self.power.change()?;
        self.content.lock().sync();
        Ok(())
    }
}
