//! A group of disks in memory that can crash after any change: the daemon is killed, or the machine loses power.
//!
//! All disks of a group count their changes together (creates, writes, truncates, syncs, removals). A test chooses the
//! change after which a crash happens, and what happens then: [`MemoryDisks::freeze_after`] remembers the state while
//! the volume continues, [`MemoryDisks::power_off_after`] makes all later operations fail. [`MemoryDisks::crash`]
//! returns the disks as they are after the crash. After a loss of power, each unsynced change of each sector is there
//! or not, whatever the order of the changes, and names that were created or removed without a sync are there or not.

use super::Random;
use cellar_storage::disk::{Disk, DiskFile, FileStamp, Space, Stream};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Bytes that a device writes atomically.
const SECTOR: u64 = 4096;

#[derive(Debug, Clone, Default)]
struct Content {
    durable: Vec<u8>,
    current: Vec<u8>,
    unsynced: Vec<Change>,
    has_durable_name: bool,
}

impl Content {
    fn sync(&mut self) {
        self.durable.clone_from(&self.current);
        self.unsynced.clear();
    }

    /// Returns what a crash leaves; None if the name is lost.
    fn after_crash(mut self, crash: Crash, random: &mut Random) -> Option<Self> {
        if crash == Crash::Power && !self.has_durable_name && random.below(2) == 0 {
            return None;
        }
        // No change, all changes, or each with a probability in between.
        let quarters = random.below(5);
        for part in std::mem::take(&mut self.unsynced).iter().flat_map(Change::sectors) {
            if crash == Crash::Kill || random.below(4) < quarters {
                part.apply_to_device(&mut self.durable);
            }
        }
        self.current.clone_from(&self.durable);
        // A kill leaves names in the operating system's memory, where the next sync of everything makes them durable.
        self.has_durable_name |= crash == Crash::Power;
        Some(self)
    }
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

    /// Applies a change in whole sectors. The last sector of a file contains zeros beyond the end of the file: without
    /// them, a lost truncate would join this change with bytes that the truncate removed.
    fn apply_to_device(&self, bytes: &mut Vec<u8>) {
        self.apply(bytes);
        if let Change::Write(offset, data) = self {
            let end = *offset as usize + data.len();
            let sector_end = end.next_multiple_of(SECTOR as usize).min(bytes.len());
            bytes[end..sector_end].fill(0);
        }
    }

    /// Widens a write to whole sectors of the current content, or to the end of the file, as an operating system writes
    /// them to the device.
    fn in_whole_sectors(self, current: &[u8]) -> Self {
        let Change::Write(offset, data) = &self else { return self };
        let start = offset / SECTOR * SECTOR;
        let end = (offset + data.len() as u64).next_multiple_of(SECTOR).min(current.len() as u64);
        Change::Write(start, current[start as usize..end as usize].to_vec())
    }

    /// Splits a write into sectors, each of which reaches the device or not.
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

/// Disk number and file name.
type Key = (usize, String);

#[derive(Debug, Clone, Default)]
struct Files {
    existing: BTreeMap<Key, Content>,
    /// Files whose removal is not durable.
    removed: BTreeMap<Key, Content>,
}

#[derive(Debug, Default)]
struct State {
    files: Files,
    notes: BTreeMap<Key, Vec<u8>>,
    /// Removed named files, which stay readable while they are open.
    unlinked: BTreeMap<Key, Vec<u8>>,
    changes: u64,
    freeze_at: Option<u64>,
    frozen: Option<Files>,
    power_off_at: Option<u64>,
    /// The next sync of a backing file fails and drops its unsynced changes, as the kernel does.
    loses_sync: bool,
    /// Syncs of backing files do not return, although the bytes are durable.
    holds_syncs: bool,
    held_syncs: u64,
}

impl State {
    fn is_off(&self) -> bool {
        self.power_off_at.is_some_and(|at| self.changes >= at)
    }

    fn check_power(&self) -> io::Result<()> {
        if self.is_off() { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }

    /// Counts a change. The change that uses up the power fails, although it may reach the disk.
    fn count_change(&mut self) -> io::Result<()> {
        self.changes += 1;
        if self.freeze_at == Some(self.changes) {
            self.frozen = Some(self.files.clone());
        }
        self.check_power()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The daemon is killed: all changes stay in the operating system's memory.
    Kill,
    /// The machine loses power.
    Power,
}

const SIZE: u64 = 1 << 40;

#[derive(Debug, Clone)]
pub struct MemoryDisks {
    state: Arc<Mutex<State>>,
    /// Bytes that each disk claims to have.
    sizes: Vec<u64>,
}

impl MemoryDisks {
    pub fn new(count: usize) -> Self {
        Self { state: Arc::default(), sizes: vec![SIZE; count] }
    }

    /// Disks of random sizes, half of the time of equal ones.
    pub fn of_random_sizes(count: usize, random: &mut Random) -> Self {
        let most = [1, 4][random.below(2) as usize];
        Self { state: Arc::default(), sizes: (0..count).map(|_| SIZE * (1 + random.below(most))).collect() }
    }

    pub fn disks(&self) -> Vec<Arc<dyn Disk>> {
        let disk = |(number, size): (usize, &u64)| {
            let (state, path) = (self.state.clone(), PathBuf::from(format!("memory{number}")));
            Arc::new(MemoryDisk { state, number, path, size: *size }) as Arc<dyn Disk>
        };
        self.sizes.iter().enumerate().map(disk).collect()
    }

    pub fn count(&self) -> u64 {
        self.sizes.len() as u64
    }

    /// Makes the next [`Self::crash`] return the state after `changes` more changes, if there are as many until then.
    pub fn freeze_after(&self, changes: u64) {
        let mut state = self.state.lock();
        state.frozen = None;
        state.freeze_at = Some(state.changes + changes);
    }

    /// Returns whether the state of [`Self::freeze_after`] was reached.
    pub fn is_frozen(&self) -> bool {
        self.state.lock().frozen.is_some()
    }

    pub fn thaw(&self) {
        let mut state = self.state.lock();
        (state.freeze_at, state.frozen) = (None, None);
    }

    /// Makes the last of the next `changes` changes, and every operation after it, fail.
    pub fn power_off_after(&self, changes: u64) {
        let mut state = self.state.lock();
        state.power_off_at = Some(state.changes + changes);
    }

    pub fn is_off(&self) -> bool {
        self.state.lock().is_off()
    }

    /// Keeps the power on while `work` runs: background threads change the disks meanwhile. Does nothing if the power is off.
    pub fn with_power(&self, work: impl FnOnce()) {
        let left = {
            let mut state = self.state.lock();
            if state.is_off() {
                return;
            }
            let changes = state.changes;
            state.power_off_at.take().map(|at| at - changes)
        };
        work();
        left.into_iter().for_each(|left| self.power_off_after(left));
    }

    /// Returns the disks after a crash, with the power on. The disks of `self` continue as if there had been no crash.
    pub fn crash(&self, crash: Crash, random: &mut Random) -> Self {
        let state = self.state.lock();
        let Files { mut existing, removed } = state.frozen.clone().unwrap_or_else(|| state.files.clone());
        if crash == Crash::Power {
            for (key, content) in removed.into_iter().filter(|_| random.below(2) == 0) {
                existing.entry(key).or_insert(content);
            }
        }
        let left = existing.into_iter().filter_map(|(key, content)| Some((key, content.after_crash(crash, random)?)));
        let files = Files { existing: left.collect(), removed: BTreeMap::new() };
        let state = State { files, notes: state.notes.clone(), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), sizes: self.sizes.clone() }
    }

    /// Like [`Self::crash`], with a random kind of crash. The power goes off again after a random number of changes: at most `few` in
    /// a third of the cases, otherwise at most `many`.
    pub fn crash_until_next(&self, (few, many): (u64, u64), random: &mut Random) -> Self {
        let limit = if random.below(3) == 0 { few } else { many };
        let changes = 1 + random.below(limit);
        let crash = if random.below(3) == 0 { Crash::Kill } else { Crash::Power };
        let disks = self.crash(crash, random);
        disks.power_off_after(changes);
        disks
    }

    pub fn lose_next_sync(&self) {
        self.state.lock().loses_sync = true;
    }

    /// With true, syncs of backing files return only after a call with false. Changes during the hold stay unsynced.
    pub fn hold_syncs(&self, hold: bool) {
        self.state.lock().holds_syncs = hold;
    }

    /// Returns whether a sync is waiting for the end of the hold.
    pub fn is_sync_held(&self) -> bool {
        self.state.lock().held_syncs > 0
    }

    /// Flips a bit at `offset` of every unit file that is long enough.
    pub fn damage_units(&self, offset: u64) {
        for ((_, name), content) in &mut self.state.lock().files.existing {
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
    size: u64,
}

#[derive(Debug)]
struct MemoryFile {
    state: Arc<Mutex<State>>,
    key: Key,
}

fn name_of(ino: u64, stream: Stream) -> String {
    format!("{ino}{}", stream.suffix())
}

impl MemoryDisk {
    fn key(&self, ino: u64, stream: Stream) -> Key {
        (self.number, name_of(ino, stream))
    }

    fn file(&self, key: Key) -> Arc<dyn DiskFile> {
        Arc::new(MemoryFile { state: self.state.clone(), key })
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
        state.check_power()?;
        Ok(state.files.existing.keys().chain(state.notes.keys()).all(|(number, _)| *number != self.number))
    }
    fn read_note(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let state = self.state.lock();
        state.check_power()?;
        Ok(state.notes.get(&(self.number, name.into())).cloned())
    }
    fn write_note(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power()?;
        state.notes.insert((self.number, name.into()), bytes.to_vec());
        state.count_change()
    }
    fn open_named(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let (mut state, key) = (self.state.lock(), (self.number, name.to_string()));
        state.check_power()?;
        // The directory engine syncs the name.
        state.files.existing.entry(key.clone()).or_default().has_durable_name = true;
        state.count_change()?;
        Ok(self.file(key))
    }
    fn open_existing(&self, name: &str) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let (state, key) = (self.state.lock(), (self.number, name.to_string()));
        state.check_power()?;
        Ok(state.files.existing.contains_key(&key).then(|| self.file(key)))
    }
    fn remove_named(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power()?;
        let key = (self.number, name.into());
        if let Some(content) = state.files.existing.remove(&key) {
            state.unlinked.insert(key, content.current);
        }
        state.count_change()
    }
    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let (mut state, key) = (self.state.lock(), self.key(ino, stream));
        state.check_power()?;
        if create && !state.files.existing.contains_key(&key) {
            state.files.existing.insert(key.clone(), Content::default());
            state.count_change()?;
        }
        Ok(state.files.existing.contains_key(&key).then(|| self.file(key)))
    }
    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)> {
        let state = self.state.lock();
        state.check_power()?;
        let Some(content) = state.files.existing.get(&self.key(ino, stream)) else { return Ok((0, 0)) };
        // A block of zeros counts as a hole.
        let used = content.current.chunks(4096).filter(|block| **block != [0; 4096][..block.len()]).count();
        Ok((content.current.len() as u64, used as u64 * 4096))
    }
    fn stamp(&self, ino: u64, stream: Stream) -> io::Result<Option<FileStamp>> {
        let state = self.state.lock();
        state.check_power()?;
        // The stamp of a disk whose clock stands still: tests rely on other evidence of changes.
        let stamp = FileStamp { number: ino, length: 0, modified: 0, changed: 0 };
        Ok(state.files.existing.contains_key(&self.key(ino, stream)).then_some(stamp))
    }
    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()> {
        let (mut state, key) = (self.state.lock(), self.key(ino, stream));
        state.check_power()?;
        if let Some(content) = state.files.existing.remove(&key) {
            state.files.removed.insert(key, content);
        }
        state.count_change()
    }
    fn sync_name(&self, ino: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power()?;
        for stream in Stream::ALL {
            let key = self.key(ino, stream);
            // The sync of the directory makes removals durable, too.
            state.files.removed.remove(&key);
            if let Some(content) = state.files.existing.get_mut(&key) {
                content.has_durable_name = true;
            }
        }
        state.count_change()
    }
    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>> {
        let state = self.state.lock();
        state.check_power()?;
        let ours = state.files.existing.keys().filter(|(number, _)| *number == self.number);
        let parse = |(_, name): &Key| {
            let (number, suffix) = name.split_at(name.find('.').unwrap_or(name.len()));
            let stream = Stream::ALL.into_iter().find(|stream| stream.suffix() == suffix)?;
            Some((number.parse().ok()?, stream))
        };
        Ok(ours.filter_map(parse).collect())
    }
    fn space(&self) -> io::Result<Space> {
        let total = self.size;
        Ok(Space { total, free: total, available: total, files: 1000, files_free: 1000 })
    }
    fn sync_everything(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power()?;
        let number = self.number;
        state.files.removed.retain(|(disk, _), _| *disk != number);
        for (_, content) in state.files.existing.iter_mut().filter(|((disk, _), _)| *disk == number) {
            content.sync();
            content.has_durable_name = true;
        }
        state.count_change()
    }
}

impl MemoryFile {
    fn change(&self, change: Change) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power()?;
        if let Some(content) = state.files.existing.get_mut(&self.key) {
            change.apply(&mut content.current);
            content.unsynced.push(change.in_whole_sectors(&content.current));
        }
        state.count_change()
    }
}

impl DiskFile for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        let state = self.state.lock();
        state.check_power()?;
        Ok(state.files.existing.get(&self.key).map_or(0, |content| content.current.len() as u64))
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.state.lock();
        state.check_power()?;
        let existing = state.files.existing.get(&self.key).map(|content| &content.current);
        let Some(bytes) = existing.or(state.unlinked.get(&self.key)) else { return Ok(0) };
        let bytes = bytes.get(offset as usize..).unwrap_or_default();
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
        state.check_power()?;
        let loses_sync = state.loses_sync && !self.key.1.contains('.');
        if loses_sync {
            state.loses_sync = false;
        }
        let Some(content) = state.files.existing.get_mut(&self.key) else { return Ok(()) };
        if loses_sync {
            content.current.clone_from(&content.durable);
            content.unsynced.clear();
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        content.sync();
        state.count_change()?;
        if state.holds_syncs && !self.key.1.contains('.') {
            state.held_syncs += 1;
            while state.holds_syncs {
                MutexGuard::unlocked(&mut state, || std::thread::sleep(Duration::from_millis(1)));
            }
            state.held_syncs -= 1;
        }
        Ok(())
    }
}
