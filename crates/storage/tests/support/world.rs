//! Disks in memory with one clock of changes, so that a crash, of the daemon or of the machine, can be had after any of
//! them, while the volume on them goes on. After a loss of power each unsynced change of each sector is there or not.
//!
//! Names are always durable here; `power` loses them too, and fails what comes after the loss.

use super::Random;
use cellar_storage::disk::{Disk, DiskFile, Space, Stream};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What reaches a medium whole or not at all.
const SECTOR: u64 = 4096;

#[derive(Debug, Clone, Default)]
struct Content {
    durable: Vec<u8>,
    current: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Change {
    Write(u64, Vec<u8>),
    SetLength(u64),
    Punch(u64, u64),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Write(offset, data) => {
                let end = *offset as usize + data.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*offset as usize..end].copy_from_slice(data);
            }
            Change::SetLength(length) => bytes.resize(*length as usize, 0),
            Change::Punch(offset, length) => {
                let end = (offset + length).min(bytes.len() as u64);
                bytes[(*offset).min(end) as usize..end as usize].fill(0);
            }
        }
    }

    /// As an operating system brings it to the medium: whole sectors, as they are now.
    fn in_whole_sectors(self, current: &[u8]) -> Self {
        let Change::Write(offset, data) = &self else { return self };
        let start = offset / SECTOR * SECTOR;
        let end = (offset + data.len() as u64).next_multiple_of(SECTOR).min(current.len() as u64);
        Change::Write(start, current[start as usize..end as usize].to_vec())
    }

    /// The same as several changes each of which a medium has or has not.
    fn sectors(&self) -> Vec<Change> {
        let Change::Write(offset, data) = self else { return vec![self.clone()] };
        let (mut at, end, mut parts) = (*offset, offset + data.len() as u64, Vec::new());
        while at < end {
            let stop = end.min((at / SECTOR + 1) * SECTOR);
            parts.push(Change::Write(at, data[(at - offset) as usize..(stop - offset) as usize].to_vec()));
            at = stop;
        }
        parts
    }
}

type Files = BTreeMap<(usize, String), Content>;

#[derive(Debug, Default)]
struct State {
    files: Files,
    notes: BTreeMap<(usize, String), Vec<u8>>,
    changes: u64,
    freeze_at: Option<u64>,
    /// The next sync of a backing file fails and drops what was to be synced, as the kernel does.
    loses_sync: bool,
    frozen: Option<Files>,
}

impl State {
    fn tick(&mut self) {
        self.changes += 1;
        if self.freeze_at == Some(self.changes) {
            self.frozen = Some(self.files.clone());
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The daemon was killed: what the operating system has stays.
    Kill,
    /// The machine lost its power.
    Power,
}

#[derive(Debug, Clone)]
pub struct World {
    state: Arc<Mutex<State>>,
    count: usize,
}

impl World {
    pub fn new(count: usize) -> Self {
        Self { state: Arc::default(), count }
    }

    pub fn disks(&self) -> Vec<Arc<dyn Disk>> {
        let disk = |number| {
            let (state, path) = (self.state.clone(), PathBuf::from(format!("memory{number}")));
            Arc::new(MemoryDisk { state, number, path }) as Arc<dyn Disk>
        };
        (0..self.count).map(disk).collect()
    }

    /// Changes so far: writes, cuts, syncs and the like.
    pub fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// The next [`World::crash`] takes the state as it is after so many changes, if there are so many until then.
    pub fn freeze_after(&self, changes: u64) {
        let mut state = self.state.lock();
        state.frozen = None;
        state.freeze_at = Some(state.changes + changes);
    }

    /// Whether the moment asked for has come.
    pub fn is_frozen(&self) -> bool {
        self.state.lock().frozen.is_some()
    }

    pub fn thaw(&self) {
        let mut state = self.state.lock();
        (state.freeze_at, state.frozen) = (None, None);
    }

    /// The disks after a crash; those of this world go on as if nothing had happened.
    pub fn crash(&self, crash: Crash, random: &mut Random) -> Self {
        let state = self.state.lock();
        let mut files = state.frozen.clone().unwrap_or_else(|| state.files.clone());
        for content in files.values_mut() {
            // Nothing, everything, or each with a chance.
            let chance = [0, 1, 2, 3, 4][random.below(5) as usize];
            for change in std::mem::take(&mut content.unsynced) {
                for part in change.sectors() {
                    if crash == Crash::Kill || random.below(4) < chance {
                        part.apply(&mut content.durable);
                    }
                }
            }
            content.current = content.durable.clone();
        }
        let state = State { files, notes: state.notes.clone(), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), count: self.count }
    }

    pub fn lose_next_sync(&self) {
        self.state.lock().loses_sync = true;
    }

    /// Flips a bit in every unit file whose length reaches `offset`.
    pub fn damage_units(&self, offset: u64) {
        for ((_, name), content) in &mut self.state.lock().files {
            if name.ends_with(Stream::Units.suffix())
                && let Some(byte) = content.current.get_mut(offset as usize)
            {
                *byte ^= 4;
            }
        }
    }
}

#[derive(Debug)]
struct MemoryDisk {
    state: Arc<Mutex<State>>,
    number: usize,
    path: PathBuf,
}

#[derive(Debug)]
struct MemoryFile {
    state: Arc<Mutex<State>>,
    key: (usize, String),
}

fn name_of(ino: u64, stream: Stream) -> String {
    format!("{ino}{}", stream.suffix())
}

impl MemoryDisk {
    fn file(&self, name: String) -> Arc<dyn DiskFile> {
        Arc::new(MemoryFile { state: self.state.clone(), key: (self.number, name) })
    }
}

impl Disk for MemoryDisk {
    fn path(&self) -> &Path {
        &self.path
    }
    fn lock(&self) -> io::Result<bool> {
        Ok(true)
    }
    fn is_blank(&self) -> io::Result<bool> {
        let state = self.state.lock();
        Ok(state.files.keys().chain(state.notes.keys()).all(|(number, _)| *number != self.number))
    }
    fn read_note(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.state.lock().notes.get(&(self.number, name.into())).cloned())
    }
    fn write_note(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.state.lock().notes.insert((self.number, name.into()), bytes.to_vec());
        Ok(())
    }
    fn open_named(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.state.lock().files.entry((self.number, name.into())).or_default();
        Ok(self.file(name.into()))
    }
    fn remove_named(&self, name: &str) -> io::Result<()> {
        self.state.lock().files.remove(&(self.number, name.into()));
        Ok(())
    }
    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let name = name_of(ino, stream);
        let mut state = self.state.lock();
        if create {
            state.files.entry((self.number, name.clone())).or_default();
        }
        Ok(state.files.contains_key(&(self.number, name.clone())).then(|| self.file(name)))
    }
    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)> {
        let state = self.state.lock();
        let Some(content) = state.files.get(&(self.number, name_of(ino, stream))) else { return Ok((0, 0)) };
        // A block that holds zeros only counts as a hole.
        let used = content.current.chunks(4096).filter(|block| **block != [0; 4096][..block.len()]).count();
        Ok((content.current.len() as u64, used as u64 * 4096))
    }
    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()> {
        let mut state = self.state.lock();
        state.files.remove(&(self.number, name_of(ino, stream)));
        state.tick();
        Ok(())
    }
    fn sync_name(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>> {
        let state = self.state.lock();
        let ours = state.files.keys().filter(|(number, _)| *number == self.number);
        let parse = |(_, name): &(usize, String)| {
            let (number, suffix) = name.split_at(name.find('.').unwrap_or(name.len()));
            let stream = Stream::ALL.into_iter().find(|stream| stream.suffix() == suffix)?;
            Some((number.parse().ok()?, stream))
        };
        Ok(ours.filter_map(parse).collect())
    }
    fn space(&self) -> io::Result<Space> {
        let total = 1 << 40;
        Ok(Space { total, free: total, available: total, files: 1000, files_free: 1000 })
    }
    fn sync_everything(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        for ((number, _), content) in &mut state.files {
            if *number == self.number {
                content.durable.clone_from(&content.current);
                content.unsynced.clear();
            }
        }
        Ok(())
    }
}

impl MemoryFile {
    fn change(&self, change: Change) -> io::Result<()> {
        let mut state = self.state.lock();
        if let Some(content) = state.files.get_mut(&self.key) {
            change.apply(&mut content.current);
            content.unsynced.push(change.in_whole_sectors(&content.current));
        }
        state.tick();
        Ok(())
    }
}

impl DiskFile for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().files.get(&self.key).map_or(0, |content| content.current.len() as u64))
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.state.lock();
        let Some(content) = state.files.get(&self.key) else { return Ok(0) };
        let bytes = content.current.get(offset as usize..).unwrap_or_default();
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }
    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.change(Change::Write(offset, data.to_vec()))
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.change(Change::SetLength(length))
    }
    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> io::Result<()> {
        match !keep_size && offset + length > self.len()? {
            true => self.change(Change::SetLength(offset + length)),
            false => Ok(()),
        }
    }
    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.change(Change::Punch(offset, length))
    }
    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.loses_sync && !self.key.1.contains('.') {
            state.loses_sync = false;
            if let Some(content) = state.files.get_mut(&self.key) {
                content.current.clone_from(&content.durable);
                content.unsynced.clear();
            }
            return Err(io::Error::from_raw_os_error(5));
        }
        if let Some(content) = state.files.get_mut(&self.key) {
            content.durable.clone_from(&content.current);
            content.unsynced.clear();
        }
        state.tick();
        Ok(())
    }
}
