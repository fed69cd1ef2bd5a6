//! A copy set as one disk: every file of the set is stored identically on each disk of the set.
//!
//! Invariant: a read returns bytes of an online disk, and an error only if no online disk has the bytes.
//!
//! The disk with the number of the set stores a file under its inode number. Other disks store it under [`file_number`]:
//! they also store files of other sets.

use super::intents::{ChangeGuard, FileKey, Snapshot, regions};
use super::{DiskMode, Mirror, is_refusal};
use crate::disk::{Check, Condition, Disk, DiskFile, Examined, FileStamp, FileStore, Stream, no_wait, on_each};
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Bits of an inode number below the number of the copy set.
const SET_SHIFT: u32 = 48;

/// Returns the number under which `disk` stores the files of an inode in a copy set.
pub fn file_number(ino: u64, set: u16, disk: u16) -> u64 {
    debug_assert!(ino >> SET_SHIFT == 0);
    if disk == set { ino } else { ino | (u64::from(set) + 1) << SET_SHIFT }
}

/// Returns the inode of a file on `disk`, if the file belongs to the copy set.
pub fn inode_of(number: u64, set: u16, disk: u16) -> Option<u64> {
    let ino = number & ((1 << SET_SHIFT) - 1);
    (file_number(ino, set, disk) == number).then_some(ino)
}

#[derive(Debug, Clone)]
pub struct MirrorDisk {
    pub(super) mirror: Arc<Mirror>,
    pub(super) set: u16,
    /// In the order in which reads try them.
    copies: Arc<[u16]>,
}

impl MirrorDisk {
    pub fn new(mirror: Arc<Mirror>, set: u16) -> Self {
        let mut copies = mirror.set(set).to_vec();
        let is_preferred =
            |disk: &u16| mirror.preferred_read.as_deref() == Some(mirror.failure_group(usize::from(*disk)));
        copies.sort_by_key(|disk| !is_preferred(disk));
        Self { copies: copies.into(), mirror, set }
    }

    fn disk(&self, disk: u16) -> &Arc<dyn Disk> {
        self.mirror.disk(usize::from(disk))
    }

    fn mode(&self, disk: u16) -> DiskMode {
        self.mirror.member(usize::from(disk)).mode()
    }

    fn number(&self, disk: u16, ino: u64) -> u64 {
        file_number(ino, self.set, disk)
    }

    fn accessible(&self) -> impl Iterator<Item = u16> + '_ {
        self.copies.iter().copied().filter(|disk| self.mode(*disk) != DiskMode::Offline)
    }

    pub(super) fn online(&self) -> impl Iterator<Item = u16> + '_ {
        self.copies.iter().copied().filter(|disk| self.mode(*disk) == DiskMode::Online)
    }

    /// Returns the path of a disk, for messages.
    pub(super) fn path_of(&self, disk: u16) -> impl std::fmt::Display + '_ {
        self.disk(disk).path().display()
    }

    pub(super) fn fail(&self, disk: u16, error: &io::Error) -> io::Result<()> {
        self.mirror.fail_disk(usize::from(disk), error)
    }

    /// Calls `work` for each accessible disk. Disks that fail leave the group; the result is an error if the group needs
    /// one of them, if no disk is left, or if an online disk refuses. Unless `concurrently`, a refusal spares the next disks.
    fn on_all(&self, work: impl Fn(u16) -> io::Result<()> + Sync, concurrently: bool) -> io::Result<()> {
        let disks: Vec<u16> = self.accessible().collect();
        let mut at_once = concurrently.then(|| on_each(&disks, |disk| work(*disk)).into_iter());
        let (mut done, mut failed) = (0, Vec::new());
        for disk in disks {
            match at_once.as_mut().map_or_else(|| work(disk), |results| results.next().expect("one result per disk")) {
                Ok(()) => done += usize::from(self.mode(disk) == DiskMode::Online),
                Err(error) if is_refusal(&error) && self.mode(disk) == DiskMode::Online => return Err(error),
                Err(error) => failed.push((disk, error)),
            }
        }
        for (disk, error) in failed {
            if done == 0 {
                return Err(error);
            }
            self.fail(disk, &error)?;
        }
        if done > 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ENODEV)) }
    }

    /// Calls `work` for the online disks in the order of reads until one succeeds. A disk that fails although another
    /// succeeds leaves the group.
    fn on_first<T>(&self, work: impl Fn(u16) -> io::Result<T>) -> io::Result<T> {
        let mut failed: Vec<(u16, io::Error)> = Vec::new();
        for disk in self.online() {
            match work(disk) {
                Ok(result) => {
                    for (disk, error) in failed {
                        Mirror::count(&self.mirror.events.reads_from_other_copy, 1);
                        // The read has its bytes; a group that cannot lose the disk keeps it.
                        let _logged = self.fail(disk, &error);
                    }
                    return Ok(result);
                }
                Err(error) if is_refusal(&error) => return Err(error),
                Err(error) => failed.push((disk, error)),
            }
        }
        Err(failed.pop().map_or_else(|| io::Error::from_raw_os_error(libc::ENODEV), |(_, error)| error))
    }

    /// Compares a fact about a file on all online disks. If the disks disagree, takes those out whose superblocks cannot
    /// be read: a directory that was unmounted or removed looks empty. Returns the largest value.
    fn agreed<T: Ord>(&self, fact: impl Fn(u16) -> io::Result<T>) -> io::Result<T> {
        let gather = || {
            let mut facts = Vec::new();
            for disk in self.online().collect::<Vec<_>>() {
                match fact(disk) {
                    Ok(value) => facts.push(value),
                    Err(error) if is_refusal(&error) => return Err(error),
                    Err(error) => self.fail(disk, &error)?,
                }
            }
            Ok(facts)
        };
        let is_agreed = |facts: &[T]| facts.windows(2).all(|pair| pair[0] == pair[1]);
        let mut facts = gather()?;
        if !is_agreed(&facts) {
            // A change under way has reached some of the disks.
            let _no_change = self.mirror.lock_of(self.set).write();
            facts = gather()?;
            if !is_agreed(&facts) {
                for disk in self.online().collect::<Vec<_>>() {
                    if let Err(error) = self.mirror.probe(usize::from(disk)) {
                        self.fail(disk, &error)?;
                    }
                }
                facts = gather()?;
            }
        }
        facts.into_iter().max().ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }

    fn key(&self, ino: u64, stream: Stream) -> FileKey {
        FileKey { set: self.set, ino, stream }
    }
}

impl FileStore for MirrorDisk {
    fn path(&self) -> &Path {
        self.disk(self.mirror.set(self.set)[0]).path()
    }
    fn sync_everything(&self) -> io::Result<()> {
        self.on_all(|disk| self.disk(disk).sync_everything(), true)
    }

    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let slots = self.copies.iter().map(|_| Mutex::new(None)).collect();
        let file = MirroredFile { set: self.clone(), ino, stream, slots };
        if create {
            file.create()?;
        } else {
            let exists = |disk: u16| Ok(self.disk(disk).open(self.number(disk, ino), stream, false)?.is_some());
            if !self.agreed(exists)? {
                return Ok(None);
            }
        }
        Ok(Some(Arc::new(file)))
    }

    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)> {
        let measure = |disk: u16| self.disk(disk).measure(self.number(disk, ino), stream);
        let length = self.agreed(|disk| measure(disk).map(|(length, _)| length))?;
        Ok((length, self.on_first(|disk| measure(disk).map(|(_, allocated)| allocated))?))
    }

    fn stamp(&self, ino: u64, stream: Stream) -> io::Result<Option<FileStamp>> {
        self.on_first(|disk| self.disk(disk).stamp(self.number(disk, ino), stream))
    }

    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()> {
        let _shared = self.mirror.lock_of(self.set).read();
        self.on_all(|disk| self.disk(disk).remove(self.number(disk, ino), stream), false)?;
        if let Some(intents) = &self.mirror.intents {
            intents.forget(self.key(ino, stream));
        }
        Ok(())
    }

    fn sync_name(&self, ino: u64) -> io::Result<()> {
        let sync = |disk: u16| match self.disk(disk).sync_name(self.number(disk, ino)) {
            // The resync has not copied the file yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.mode(disk) == DiskMode::Syncing => Ok(()),
            result => result,
        };
        self.on_all(sync, true)
    }

    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>> {
        let mut files = Vec::new();
        for disk in self.accessible().collect::<Vec<_>>() {
            match self.disk(disk).backing_files() {
                Ok(listed) => files.extend(
                    listed.into_iter().filter_map(|(number, stream)| Some((inode_of(number, self.set, disk)?, stream))),
                ),
                Err(error) => self.fail(disk, &error)?,
            }
        }
        files.sort_unstable();
        files.dedup();
        Ok(files)
    }

    fn has_copies(&self) -> bool {
        true
    }

    fn write_waits(&self, ino: u64, stream: Stream, range: &Range<u64>) -> bool {
        let intents = self.mirror.intents.as_ref();
        intents.is_some_and(|intents| !intents.is_recorded(self.key(ino, stream), &regions(range)))
            || self.accessible().any(|disk| self.disk(disk).writes_wait())
    }
}

/// An opened copy with the disk's epoch when it was opened; None before the first use.
type Slot = Mutex<Option<(u64, Arc<dyn DiskFile>)>>;

/// A file of a copy set.
#[derive(Debug)]
pub(super) struct MirroredFile {
    pub(super) set: MirrorDisk,
    pub(super) ino: u64,
    stream: Stream,
    /// In the order of the set's copies.
    slots: Box<[Slot]>,
}

impl MirroredFile {
    fn key(&self) -> FileKey {
        self.set.key(self.ino, self.stream)
    }

    /// Returns the file on one disk; None if it does not exist there and `create` is false.
    fn copy(&self, disk: u16, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let epoch = self.set.mirror.member(usize::from(disk)).epoch();
        let mut slot = self.slot(disk).lock();
        if let Some((opened_at, file)) = &*slot
            && *opened_at == epoch
        {
            return Ok(Some(file.clone()));
        }
        let opened = self.set.disk(disk).open(self.set.number(disk, self.ino), self.stream, create)?;
        *slot = opened.clone().map(|file| (epoch, file));
        Ok(opened)
    }

    /// Returns the file on a disk that must have it.
    pub(super) fn existing(&self, disk: u16) -> io::Result<Arc<dyn DiskFile>> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "a file is missing that another copy has");
        self.copy(disk, false)?.ok_or_else(missing)
    }

    /// Changes all copies. `range` are the bytes that may change.
    fn change(&self, range: &Range<u64>, work: impl Fn(&dyn DiskFile) -> io::Result<()> + Sync) -> io::Result<()> {
        let mirror = &self.set.mirror;
        let _shared = mirror.lock_of(self.set.set).read();
        let intent = mirror.begin(self.key(), regions(range), false)?;
        let change = |disk: u16| match self.set.mode(disk) {
            // The resync has not copied the file yet.
            DiskMode::Syncing => work(&*self.copy(disk, true)?.expect("a disk creates a missing file")),
            _ => work(&*self.existing(disk)?),
        };
        let changed = self.set.on_all(change, false);
        if changed.is_err() {
            intent.iter().for_each(ChangeGuard::keep);
        }
        changed
    }

    fn create(&self) -> io::Result<()> {
        let mirror = &self.set.mirror;
        let _shared = mirror.lock_of(self.set.set).read();
        // A disk that is offline may have the file of an earlier inode with the same number.
        let is_whole = self.set.copies.iter().any(|disk| self.set.mode(*disk) == DiskMode::Offline);
        let intent = mirror.begin(self.key(), 0..1, is_whole)?;
        let created = Mutex::new(Vec::new());
        let create = |disk: u16| {
            if self.copy(disk, false)?.is_none() {
                created.lock().push(disk);
                self.copy(disk, true)?;
            }
            Ok(())
        };
        let result = self.set.on_all(create, false);
        if result.is_err() {
            for disk in created.into_inner() {
                *self.slot(disk).lock() = None;
                let number = self.set.number(disk, self.ino);
                if let Err(error) = self.set.disk(disk).remove(number, self.stream) {
                    let path = self.set.disk(disk).path().display();
                    log::warn!("could not undo the creation of a file on cell disk {path}: {error}");
                    intent.iter().for_each(ChangeGuard::keep);
                }
            }
        }
        result
    }

    /// Returns whether no online disk has the file by name any more.
    fn was_removed(&self) -> io::Result<bool> {
        for disk in self.set.online() {
            if self.set.disk(disk).open(self.set.number(disk, self.ino), self.stream, false)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn slot(&self, disk: u16) -> &Slot {
        &self.slots[self.set.copies.iter().position(|known| *known == disk).expect("a copy of the set")]
    }

    fn read(&self, work: impl Fn(&dyn DiskFile) -> io::Result<usize>) -> io::Result<usize> {
        self.set.on_first(|disk| {
            let result = self.existing(disk).and_then(|file| work(&*file));
            // A thread that must not wait leaves the failure of a disk to the repetition of the read.
            result.map_err(|error| match no_wait::is_on() && !is_refusal(&error) {
                true => no_wait::would_wait(),
                false => error,
            })
        })
    }
}

impl DiskFile for MirroredFile {
    fn len(&self) -> io::Result<u64> {
        self.set.on_first(|disk| self.existing(disk)?.len())
    }

    fn lengths(&self) -> io::Result<(u64, u64)> {
        let length = self.len()?;
        let (mut shortest, mut longest) = (length, length);
        for disk in self.set.accessible().collect::<Vec<_>>() {
            match self.copy(disk, false).and_then(|file| file.map(|file| file.len()).transpose()) {
                Ok(Some(length)) => (shortest, longest) = (shortest.min(length), longest.max(length)),
                Ok(None) => {}
                Err(error) if is_refusal(&error) => return Err(error),
                Err(error) => self.set.fail(disk, &error)?,
            }
        }
        Ok((shortest, longest))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some(result) = self.race(buffer, offset, false) {
            return result;
        }
        let buffer = Mutex::new(buffer);
        self.read(|file| file.read_at(&mut buffer.lock(), offset))
    }

    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some(result) = self.race(buffer, offset, true) {
            return result;
        }
        let buffer = Mutex::new(buffer);
        self.read(|file| file.read_direct(&mut buffer.lock(), offset))
    }

    fn prefetch(&self, ranges: &[Range<u64>]) {
        if let Some(disk) = self.set.online().next()
            && let Ok(Some(file)) = self.copy(disk, false)
        {
            file.prefetch(ranges);
        }
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.change(&(offset..offset + data.len() as u64), |file| file.write_at(data, offset))
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        // A truncated file may grow again; then the truncated range reads as zeros.
        let end = self.lengths()?.1.max(length);
        self.change(&(length..end), |file| file.set_len(length))
    }

    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> io::Result<()> {
        self.change(&(offset..offset + length), |file| file.allocate(offset, length, keep_size))
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let end = (offset + length).min(self.len()?.max(offset));
        self.change(&(offset..end), |file| file.punch(offset, length))
    }

    fn examine(&self, range: &Range<u64>, check: &Check<'_>) -> io::Result<Examined> {
        self.examine_copies(range, check)
    }

    fn repair(&self, range: &Range<u64>, check: &Check<'_>) -> io::Result<Condition> {
        self.repair_copies(range, check)
    }

    fn is_hole(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.set.on_first(|disk| self.existing(disk)?.is_hole(offset, length))
    }

    fn has_unwritten_space(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.set.on_first(|disk| self.existing(disk)?.has_unwritten_space(offset, length))
    }

    fn sync(&self) -> io::Result<()> {
        let intents = self.set.mirror.intents.as_ref();
        let snapshot: Option<Snapshot> = intents.map(|intents| intents.unsynced(self.key()));
        let sync = |disk: u16| match self.set.mode(disk) {
            // The end of the resync syncs everything.
            DiskMode::Syncing => self.copy(disk, false)?.map_or(Ok(()), |file| file.sync()),
            _ => match self.existing(disk) {
                // A rebalance has moved the file, and the disk has nothing to sync.
                Err(error) if error.kind() == io::ErrorKind::NotFound && self.was_removed()? => Ok(()),
                file => file?.sync(),
            },
        };
        self.set.on_all(sync, true)?;
        if let (Some(intents), Some(snapshot)) = (intents, snapshot) {
            intents.note_synced(self.key(), &snapshot);
        }
        Ok(())
    }
}
