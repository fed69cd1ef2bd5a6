//! The record of regions whose copies may differ: the write intents. Layout: `docs/format/disk.md`.
//!
//! Invariants:
//! - The intent of a region is durable on every accessible disk of its copy set before any copy changes. After a crash
//!   only these regions can differ.
//! - An intent is removed only while all disks of its copy set are online, and after a sync on all of them that followed
//!   the last write. The intents therefore also contain every region that an offline disk lacks.
//!
//! To save syncs of the record, there are more intents than necessary: a sequence of writes records the next regions in advance,
//! and an intent remains for a while after the sync.

use crate::disk::{Disk, DiskFile, Stream, on_each};
use cellar_format::bytes::{Reader, Write};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a region of a file.
pub const REGION: u64 = 1 << 20;
/// Stands for all regions of a file.
pub const WHOLE: u32 = u32::MAX;
/// Contains all bytes beyond the other regions.
const REGION_LAST: u32 = WHOLE - 1;
/// Regions recorded in advance when writes are sequential.
const LOOK_AHEAD: u32 = 31;
const NOTE: &str = "intents";
const LOG: &str = "intents.log";
const MAGIC: &[u8; 8] = b"CELLINTT";
const RECORD_BYTES: usize = 32;
/// Records that are appended together start at a multiple of this, so that a torn write damages no earlier record.
const SECTOR: u64 = 512;
/// A log longer than this is replaced by a note.
const LOG_BYTES_MAX: u64 = 1 << 20;

/// A file of a copy set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    pub set: u16,
    pub ino: u64,
    pub stream: Stream,
}

/// Successive regions of a file, as recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    pub key: FileKey,
    pub first: u32,
    pub count: u32,
}

impl Record {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.put_u32(0);
        bytes.put_u16(self.key.set);
        bytes.put_u8(self.key.stream as u8);
        bytes.put_u8(0);
        bytes.put_u64(self.key.ino);
        bytes.put_u32(self.first);
        bytes.put_u32(self.count);
        bytes.put_u64(0);
        let checksum = crc32c::crc32c(&bytes[start + 4..]);
        bytes[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Returns None for bytes that are not a complete record.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        if reader.u32("checksum").ok()? != crc32c::crc32c(bytes.get(4..)?) {
            return None;
        }
        let set = reader.u16("copy set").ok()?;
        let stream = reader.u8("stream").ok()?;
        let stream = Stream::ALL.into_iter().find(|known| *known as u8 == stream)?;
        reader.u8("reserved").ok()?;
        let key = FileKey { set, ino: reader.u64("inode").ok()?, stream };
        Some(Self { key, first: reader.u32("region").ok()?, count: reader.u32("regions").ok()? })
    }
}

/// The intent of one region.
#[derive(Debug, Clone)]
struct Intent {
    /// Changes that have begun and not ended.
    in_flight: u32,
    /// False for a region that was only recorded in advance.
    is_written: bool,
    /// All accessible copies were synced after the last change.
    is_synced: bool,
    /// A change reached some online copies and not others. The intent stays until the next start makes the copies equal.
    is_diverged: bool,
    /// Changes with every begin and end of a change.
    version: u64,
    idle_since: Instant,
}

#[derive(Debug, Default)]
struct State {
    files: HashMap<FileKey, BTreeMap<u32, Intent>>,
    pending: Vec<Record>,
    version: u64,
}

impl State {
    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn insert(&mut self, record: &Record, is_written: bool) {
        let version = self.next_version();
        let (is_diverged, idle_since) = (false, Instant::now());
        let intent = Intent { in_flight: 0, is_written, is_synced: true, is_diverged, version, idle_since };
        let file = self.files.entry(record.key).or_default();
        for region in record.first..record.first.saturating_add(record.count) {
            file.entry(region).or_insert_with(|| intent.clone()).is_written |= is_written;
        }
        if record.first == WHOLE {
            file.entry(WHOLE).or_insert(intent).is_written |= is_written;
        }
    }
}

/// The log of one disk.
#[derive(Debug, Default)]
struct Log {
    /// The opened file with its length, and the disk's epoch when it was opened.
    file: Option<(Arc<dyn DiskFile>, u64, u64)>,
}

/// A disk that stores intents, for the time of one call.
pub struct LogDisk<'a> {
    pub number: usize,
    pub disk: &'a dyn Disk,
    pub epoch: u64,
    /// The copy sets of the disk.
    pub sets: Vec<u16>,
}

#[derive(Debug)]
pub struct Intents {
    state: Mutex<State>,
    /// By disk number. Held while records are written, so that intents enter the state in the order of the log.
    logs: Mutex<Vec<Log>>,
}

/// A change of a file under way. Dropping the value ends the change.
pub struct ChangeGuard<'a> {
    intents: &'a Intents,
    key: FileKey,
    regions: Range<u32>,
    is_whole: bool,
}

/// Intents of a file with their versions.
pub type Snapshot = Vec<(u32, u64)>;

/// Returns the regions that a byte range touches; of an empty range, the region with its start.
pub fn regions(range: &Range<u64>) -> Range<u32> {
    let number = |region: u64| region.min(u64::from(REGION_LAST)) as u32;
    let first = number(range.start / REGION);
    first..number(range.end.div_ceil(REGION)).max(first + 1)
}

/// Returns the bytes of a region.
pub fn bytes_of(region: u32) -> Range<u64> {
    let start = u64::from(region) * REGION;
    match region {
        REGION_LAST.. => start..u64::MAX,
        _ => start..start + REGION,
    }
}

impl Intents {
    pub fn new(disks: usize) -> Self {
        Self { state: Mutex::default(), logs: Mutex::new((0..disks).map(|_| Log::default()).collect()) }
    }

    /// Reads the intents that a disk has stored.
    pub fn read(disk: &dyn Disk) -> io::Result<Vec<Record>> {
        let damaged =
            || io::Error::new(io::ErrorKind::InvalidData, "the record of write intents is damaged or missing");
        let note = disk.read_note(NOTE)?.ok_or_else(damaged)?;
        let body = note.strip_prefix(MAGIC).and_then(|body| body.split_last_chunk::<4>()).ok_or_else(damaged)?;
        if u32::from_le_bytes(*body.1) != crc32c::crc32c(body.0) {
            return Err(damaged());
        }
        let mut bytes = body.0.to_vec();
        if let Some(file) = disk.open_existing(LOG)? {
            let start = bytes.len();
            bytes.resize(start + file.len()? as usize, 0);
            let count = file.read_at(&mut bytes[start..], 0)?;
            bytes.truncate(start + count);
        }
        Ok(bytes.chunks_exact(RECORD_BYTES).filter_map(Record::decode).collect())
    }

    /// Makes the disk store `records` and nothing else.
    pub fn store(disk: &dyn Disk, records: impl Iterator<Item = Record>) -> io::Result<()> {
        let mut body = Vec::new();
        records.for_each(|record| record.encode(&mut body));
        let checksum = crc32c::crc32c(&body);
        let note = [MAGIC, &body[..], &checksum.to_le_bytes()].concat();
        disk.write_note(NOTE, &note)?;
        // If a crash undoes the truncation, the log contains more than it must.
        disk.open_existing(LOG)?.map_or(Ok(()), |file| file.set_len(0))
    }

    /// Adds intents of an earlier process, whose changes are synced on all accessible disks.
    pub fn restore(&self, records: &[Record]) {
        let mut state = self.state.lock();
        records.iter().for_each(|record| state.insert(record, true));
    }

    /// Begins a change. Returns None if the intent of a region is not durable yet: then record it with
    /// [`Self::announce`] and [`Self::write_pending`], and begin again.
    pub fn begin(&self, key: FileKey, regions: Range<u32>, is_whole: bool) -> Option<ChangeGuard<'_>> {
        let mut state = self.state.lock();
        if !is_recorded(&state, key, &regions, is_whole) {
            return None;
        }
        let version = state.next_version();
        let file = state.files.get_mut(&key).expect("the file has intents");
        let begin = |intent: &mut Intent| {
            intent.in_flight += 1;
            (intent.is_written, intent.is_synced, intent.version) = (true, false, version);
        };
        file.range_mut(regions.clone()).for_each(|(_, intent)| begin(intent));
        if is_whole {
            file.get_mut(&WHOLE).into_iter().for_each(begin);
        }
        Some(ChangeGuard { intents: self, key, regions, is_whole })
    }

    /// Returns whether a change needs no new durable intent.
    pub fn is_recorded(&self, key: FileKey, regions: &Range<u32>) -> bool {
        is_recorded(&self.state.lock(), key, regions, false)
    }

    /// Queues the intents of a change for [`Self::write_pending`].
    pub fn announce(&self, key: FileKey, regions: &Range<u32>, is_whole: bool) {
        let mut state = self.state.lock();
        let file = state.files.get(&key);
        let is_sequential = regions.start > 0 && file.is_some_and(|file| file.contains_key(&(regions.start - 1)));
        let ahead = if is_sequential { LOOK_AHEAD } else { 0 };
        let count = regions.len() as u32 + ahead;
        state.pending.push(Record { key, first: regions.start, count });
        if is_whole {
            state.pending.push(Record { key, first: WHOLE, count: 1 });
        }
    }

    /// Makes the queued intents durable on all of `disks` that store their copy sets; a record without such a disk is an error.
    /// `disks` is called while no other records are written, and so sees every copy set of the records. `on_failure` takes a disk that
    /// failed out of the group.
    pub fn write_pending<'d>(
        &self,
        disks: impl FnOnce() -> Vec<LogDisk<'d>>,
        on_failure: impl Fn(usize, &io::Error) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut logs = self.logs.lock();
        let pending = std::mem::take(&mut self.state.lock().pending);
        if pending.is_empty() {
            return Ok(());
        }
        // Only now: a copy set of the records may be new.
        let disks = disks();
        let is_stored = |record: &Record| disks.iter().any(|disk| disk.sets.contains(&record.key.set));
        if !pending.iter().all(is_stored) {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        let append = |(log, disk): &(Mutex<&mut Log>, &LogDisk<'_>)| {
            let mut bytes = Vec::new();
            pending.iter().filter(|record| disk.sets.contains(&record.key.set)).for_each(|r| r.encode(&mut bytes));
            if bytes.is_empty() { Ok(()) } else { log.lock().append(disk, &bytes) }
        };
        let mut by_number: Vec<Option<&mut Log>> = logs.iter_mut().map(Some).collect();
        let work: Vec<_> = disks
            .iter()
            .map(|disk| (Mutex::new(by_number[disk.number].take().expect("each disk is listed once")), disk))
            .collect();
        for (disk, result) in disks.iter().zip(on_each(&work, append)) {
            match result {
                Err(error) if super::is_refusal(&error) => return Err(error),
                Err(error) => on_failure(disk.number, &error)?,
                Ok(()) => {}
            }
        }
        let mut state = self.state.lock();
        pending.iter().for_each(|record| state.insert(record, false));
        Ok(())
    }

    /// Returns the intents of a file that no sync has covered and that no change is using.
    pub fn unsynced(&self, key: FileKey) -> Snapshot {
        let state = self.state.lock();
        let of_file = state.files.get(&key).into_iter().flatten();
        of_file.filter(|(_, i)| !i.is_synced && i.in_flight == 0).map(|(region, i)| (*region, i.version)).collect()
    }

    /// Records that all accessible copies of a file were synced after [`Self::unsynced`] returned `snapshot`.
    pub fn note_synced(&self, key: FileKey, snapshot: &Snapshot) {
        let mut state = self.state.lock();
        let Some(file) = state.files.get_mut(&key) else { return };
        for (region, version) in snapshot {
            if let Some(intent) = file.get_mut(region).filter(|intent| intent.version == *version) {
                intent.is_synced = true;
            }
        }
    }

    /// Records that all copies were synced while no change was under way.
    pub fn note_all_synced(&self) {
        let mut state = self.state.lock();
        let intents = state.files.values_mut().flat_map(BTreeMap::values_mut);
        intents.filter(|intent| intent.in_flight == 0).for_each(|intent| intent.is_synced = true);
    }

    /// Prepares for the records of one more disk.
    pub fn add_disk(&self) {
        self.logs.lock().push(Log::default());
    }

    /// Forgets the intents of a copy set that stores nothing any more.
    pub fn forget_set(&self, set: u16) {
        self.state.lock().files.retain(|key, _| key.set != set);
    }

    /// Forgets the intents of a file that was removed.
    pub fn forget(&self, key: FileKey) {
        self.state.lock().files.remove(&key);
    }

    /// Returns the regions of the files of a copy set that were written, by file.
    pub fn written(&self, set: u16) -> Vec<(FileKey, Vec<u32>)> {
        let state = self.state.lock();
        let written = |file: &BTreeMap<u32, Intent>| -> Vec<u32> {
            file.iter().filter(|(_, intent)| intent.is_written).map(|(region, _)| *region).collect()
        };
        let of_set = state.files.iter().filter(|(key, _)| key.set == set);
        of_set.map(|(key, file)| (*key, written(file))).filter(|(_, regions)| !regions.is_empty()).collect()
    }

    /// Returns the number of regions with intents.
    pub fn len(&self) -> usize {
        self.state.lock().files.values().map(BTreeMap::len).sum()
    }

    /// Removes synced intents of sets that `is_complete` and that were idle for `idle`, and makes the disks store the
    /// others. Does nothing if nothing was removed and the logs are short, unless `always`.
    pub fn trim<'d>(
        &self,
        disks: impl FnOnce() -> Vec<LogDisk<'d>>,
        is_complete: impl Fn(u16) -> bool,
        idle: Duration,
        always: bool,
        on_failure: impl Fn(usize, &io::Error) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut logs = self.logs.lock();
        let mut removed = 0;
        let now = Instant::now();
        let left: Vec<Record> = {
            let mut state = self.state.lock();
            for (key, file) in &mut state.files {
                let before = file.len();
                if is_complete(key.set) {
                    file.retain(|_, intent| {
                        let is_idle = intent.is_synced && now.duration_since(intent.idle_since) >= idle;
                        intent.in_flight > 0 || intent.is_diverged || !is_idle
                    });
                }
                if always {
                    file.retain(|_, intent| intent.in_flight > 0 || intent.is_written);
                }
                removed += before - file.len();
            }
            state.files.retain(|_, file| !file.is_empty());
            state.files.iter().flat_map(|(key, file)| records(*key, file)).collect()
        };
        let is_long = logs.iter().any(|log| log.file.as_ref().is_some_and(|(_, length, _)| *length > LOG_BYTES_MAX));
        if removed == 0 && !is_long && !always {
            return Ok(());
        }
        for disk in &disks() {
            let own = left.iter().filter(|record| disk.sets.contains(&record.key.set)).copied();
            logs[disk.number].file = None;
            match Self::store(disk.disk, own) {
                Err(error) if super::is_refusal(&error) => return Err(error),
                Err(error) => on_failure(disk.number, &error)?,
                Ok(()) => {}
            }
        }
        Ok(())
    }
}

fn is_recorded(state: &State, key: FileKey, regions: &Range<u32>, is_whole: bool) -> bool {
    let Some(file) = state.files.get(&key) else { return false };
    file.range(regions.clone()).count() == regions.len() && (!is_whole || file.contains_key(&WHOLE))
}

/// Joins successive regions to records.
fn records(key: FileKey, file: &BTreeMap<u32, Intent>) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    for region in file.keys().filter(|region| **region != WHOLE) {
        match records.last_mut() {
            Some(last) if last.first + last.count == *region => last.count += 1,
            _ => records.push(Record { key, first: *region, count: 1 }),
        }
    }
    if file.contains_key(&WHOLE) {
        records.push(Record { key, first: WHOLE, count: 1 });
    }
    records
}

impl Log {
    /// Appends records durably.
    fn append(&mut self, disk: &LogDisk<'_>, bytes: &[u8]) -> io::Result<()> {
        if self.file.as_ref().is_none_or(|(_, _, epoch)| *epoch != disk.epoch) {
            let file = disk.disk.open_named(LOG)?;
            let length = file.len()?.next_multiple_of(SECTOR);
            self.file = Some((file, length, disk.epoch));
        }
        let (file, length, _) = self.file.as_mut().expect("just opened");
        file.write_at(bytes, *length)?;
        file.sync()?;
        *length = (*length + bytes.len() as u64).next_multiple_of(SECTOR);
        Ok(())
    }
}

impl ChangeGuard<'_> {
    /// Keeps the intents of the change until the next start: the change failed, and online copies may differ.
    pub fn keep(&self) {
        let mut state = self.intents.state.lock();
        self.for_each_intent(&mut state, |intent| intent.is_diverged = true);
    }

    fn for_each_intent(&self, state: &mut State, mut work: impl FnMut(&mut Intent)) {
        let Some(file) = state.files.get_mut(&self.key) else { return };
        file.range_mut(self.regions.clone()).for_each(|(_, intent)| work(intent));
        if self.is_whole {
            file.get_mut(&WHOLE).into_iter().for_each(work);
        }
    }
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.intents.state.lock();
        let version = state.next_version();
        self.for_each_intent(&mut state, |intent| {
            intent.in_flight = intent.in_flight.saturating_sub(1);
            (intent.version, intent.idle_since) = (version, Instant::now());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::DirectoryDisk;

    const KEY: FileKey = FileKey { set: 1, ino: 77, stream: Stream::Units };

    #[test]
    fn intents_read_back_from_note_and_log() {
        let folder = tempfile::tempdir().unwrap();
        let disk = DirectoryDisk::new(folder.path().join("disk")).unwrap();
        assert!(Intents::read(&disk).is_err(), "a missing record is an error");
        let in_note = Record { key: KEY, first: 5, count: 3 };
        Intents::store(&disk, std::iter::once(in_note)).unwrap();
        let intents = Intents::new(1);
        let disks = || vec![LogDisk { number: 0, disk: &disk, epoch: 0, sets: vec![1] }];
        let (regions, fail) = (2..4, |_: usize, error: &io::Error| panic!("{error}"));
        assert!(intents.begin(KEY, regions.clone(), true).is_none());
        intents.announce(KEY, &regions, true);
        intents.write_pending(disks, fail).unwrap();
        let expected = [in_note, Record { key: KEY, first: 2, count: 2 }, Record { key: KEY, first: WHOLE, count: 1 }];
        assert_eq!(Intents::read(&disk).unwrap(), expected);

        drop(intents.begin(KEY, regions.clone(), false).unwrap());
        let trim = || intents.trim(disks, |_| true, Duration::ZERO, false, fail).unwrap();
        trim();
        assert!(intents.is_recorded(KEY, &regions), "the regions are not synced");
        let snapshot = intents.unsynced(KEY);
        drop(intents.begin(KEY, 3..4, false).unwrap());
        intents.note_synced(KEY, &snapshot);
        trim();
        assert_eq!(Intents::read(&disk).unwrap(), [Record { key: KEY, first: 3, count: 1 }]);
        assert_eq!(intents.written(1), [(KEY, vec![3])]);
        intents.announce(FileKey { set: 2, ..KEY }, &regions, false);
        assert!(intents.write_pending(disks, fail).is_err(), "no disk stores the copy set");
    }
}
