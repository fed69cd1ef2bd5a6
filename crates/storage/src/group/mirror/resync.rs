//! Resync: makes copies equal. After a crash, these are all copies of the regions with intents; when a disk returns, the disk's
//! copies of the regions that changed while the disk was offline.
//!
//! The copy on the first online disk of a copy set is the source. After a crash, the copy on any disk may be the source, because
//! every change that a sync acknowledged is on all online disks. But the same disk must be the source of all regions of a set, so
//! that the result is what a crash leaves of a single disk. Pages with checksums are the exception: an undamaged page of another
//! disk replaces a damaged page of the source, as if the crash had left that version of the page.

use super::intents::{FileKey, Intents, REGION, Record, WHOLE, bytes_of, regions as regions_of};
use super::mirror_disk::{file_number, inode_of};
use super::{AbsentDisk, DiskMode, Membership, Mirror};
use crate::disk::{Disk, DiskFile, Stream, on_each};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::group::superblock::Superblock;
use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes that are compared at once.
const PIECE: u64 = 64 << 10;

/// What a resync did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    pub files: u64,
    /// Bytes read from the source, without holes.
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// Changes bytes of the source before they replace those of the target: keeps what only the target has undamaged. Called with
/// the offset, the bytes of the source, and the bytes of the target, while no change of the file is under way.
pub type Keep<'a> = Box<dyn Fn(u64, &mut [u8], &[u8]) + 'a>;

/// Why copies are made equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// A disk returns. Its copies may be outdated, and the cell writes to the files meanwhile.
    Return,
    /// The cell starts after a crash. Every copy has all acknowledged changes, and the cell does not write to the files yet.
    Start,
}

/// Knows which bytes of files are damaged.
pub trait DamageCheck {
    /// Returns whether raw pages of a file of the copy set may have checksums. Reads no file: before a start has made copies
    /// equal, only files without checksums are read to find out which pages have them.
    fn may_have_checksums(&self, ino: u64) -> bool;

    /// Returns how to keep undamaged bytes of raw pages of a file of the copy set; None if nothing tells which bytes are damaged.
    fn keep(&self, ino: u64, occasion: Occasion) -> Option<Keep<'_>>;
}

/// A file to copy, and which parts of it.
type Work = (FileKey, Vec<u32>);

/// A file on the source and on the target.
type Copies = (Arc<dyn DiskFile>, Arc<dyn DiskFile>);

/// Why a file could not be copied.
struct CopyError {
    /// The disk that failed.
    disk: u16,
    error: io::Error,
}

/// Copies files of a copy set from one disk to another.
struct Copier<'a> {
    mirror: &'a Mirror,
    source: u16,
    target: u16,
    occasion: Occasion,
    check: &'a dyn DamageCheck,
    copied: Copied,
    /// A damaged page of the source was rewritten from the target.
    is_source_repaired: bool,
}

impl Mirror {
    /// Syncs the writes that an earlier process left unsynced, and reads which copies a crash may have left different.
    /// Must run before anything reads or changes the disks. [`Self::equalize`] follows.
    pub fn restore_intents(&self) -> Result<()> {
        let Some(intents) = &self.intents else { return Ok(()) };
        let online = self.online();
        let read = |disk: &usize| {
            self.disk(*disk).sync_everything()?;
            Intents::read(self.disk(*disk).as_ref())
        };
        for (disk, records) in online.iter().zip(on_each(&online, read)) {
            let path = self.member(*disk).path().display();
            match records {
                Ok(mut records) => {
                    records.retain(|record| record.key.set < self.set_count() && self.is_live(record.key.set));
                    intents.restore(&records);
                }
                Err(error) => self.fail_disk(*disk, &error).context(|| format!("could not use cell disk {path}"))?,
            }
        }
        Ok(())
    }

    /// Returns the files of a stream whose copies a crash may have left different: their containers, their numbers there, and the
    /// bytes that may differ.
    pub fn written(&self, stream: Stream) -> Vec<(u16, u64, Vec<Range<u64>>)> {
        let Some(intents) = &self.intents else { return Vec::new() };
        let bytes = |region: u32| if region == WHOLE { 0..u64::MAX } else { bytes_of(region) };
        let files = self.live_sets().flat_map(|set| intents.written(set)).filter(|(key, _)| key.stream == stream);
        files.map(|(key, regions)| (key.set, key.ino, regions.into_iter().map(bytes).collect())).collect()
    }

    /// Makes the copies equal that a crash may have left different. Must run before anything reads files, except that `check`
    /// reads those without checksums after their copies are equal. Intents of regions that an offline disk lacks remain.
    pub fn equalize(&self, check: &dyn DamageCheck) -> Result<Copied> {
        let Some(intents) = &self.intents else { return Ok(Copied::default()) };
        let mut copied = Copied::default();
        for with_checksums in [false, true] {
            for set in self.live_sets().collect::<Vec<_>>() {
                let has_checksums = |key: &FileKey| key.stream == Stream::Data && check.may_have_checksums(key.ino);
                let mut files = intents.written(set);
                files.retain(|(key, _)| has_checksums(key) == with_checksums);
                copied.add(&self.equalize_set(set, &files, check)?);
            }
        }
        if copied.files > 0 {
            let online = self.online();
            for (disk, synced) in online.iter().zip(on_each(&online, |disk| self.disk(*disk).sync_everything())) {
                if let Err(error) = synced {
                    let path = self.member(*disk).path().display();
                    self.fail_disk(*disk, &error).context(|| format!("could not sync cell disk {path}"))?;
                }
            }
        }
        self.record_forced_out(intents)?;
        self.trim(Duration::ZERO, true);
        Ok(copied)
    }

    /// Makes the copies of files of one set equal. A disk that fails leaves the group; another online disk replaces a failed
    /// source.
    fn equalize_set(&self, set: u16, files: &[Work], check: &dyn DamageCheck) -> Result<Copied> {
        let mut copied = Copied::default();
        let is_online = |disk: &u16| self.member(usize::from(*disk)).mode() == DiskMode::Online;
        let mut was_repeated = false;
        // Of a copy that a source began before its failure, each region is as on one of the disks.
        while let Some(source) = self.set(set).iter().copied().find(is_online) {
            let targets = self.set(set).iter().copied().filter(|disk| *disk != source && is_online(disk));
            let targets: Vec<u16> = targets.collect();
            let mut is_source_repaired = false;
            for target in targets.iter().copied() {
                let mut copier = Copier::new(self, (source, target), Occasion::Start, check);
                let result = files.iter().try_for_each(|(key, regions)| copier.copy_file(*key, regions));
                copied.add(&copier.copied);
                is_source_repaired |= copier.is_source_repaired;
                if let Err(CopyError { disk, error }) = result {
                    let path = self.member(usize::from(disk)).path().display();
                    let failed = || format!("could not make the copies on cell disk {path} equal");
                    self.fail_disk(usize::from(disk), &error).context(failed)?;
                }
                if !is_online(&source) {
                    break;
                }
            }
            // A target before the one with the undamaged page has the damaged one.
            let is_equal = targets.len() < 2 || !is_source_repaired || was_repeated;
            if is_online(&source) && is_equal {
                break;
            }
            was_repeated |= is_online(&source);
        }
        Ok(copied)
    }

    /// Records that disks that were left out by force may lack every region of every file.
    fn record_forced_out(&self, intents: &Intents) -> Result<()> {
        for set in self.forced_out.iter().flat_map(|disk| self.sets_of(usize::from(*disk))) {
            let is_online = |disk: &&u16| self.member(usize::from(**disk)).mode() == DiskMode::Online;
            while let Some(source) = self.set(set).iter().find(is_online) {
                let disk = self.disk(usize::from(*source));
                let files = match disk.backing_files() {
                    Ok(files) => files,
                    Err(error) => {
                        let failed = || format!("could not list cell disk {}", disk.path().display());
                        self.fail_disk(usize::from(*source), &error).context(failed)?;
                        continue;
                    }
                };
                let record = |(number, stream): &(u64, _)| {
                    let key = FileKey { set, ino: inode_of(*number, set, *source)?, stream: *stream };
                    Some(Record { key, first: WHOLE, count: 1 })
                };
                intents.restore(&files.iter().filter_map(record).collect::<Vec<_>>());
                break;
            }
        }
        Ok(())
    }

    fn online(&self) -> Vec<usize> {
        (0..self.disks.all().len()).filter(|disk| self.member(*disk).mode() == DiskMode::Online).collect()
    }

    /// Returns the number of the offline disk that `engine` is, after checking that it can return.
    pub fn identify(&self, engine: &dyn Disk) -> Result<usize> {
        let path = engine.path().display();
        let refused = |message: String| Err(Error::new(ErrorKind::ForeignDisk, message));
        let Some(superblock) = Superblock::read(engine)? else {
            return refused(format!(
                "{path} is not a cell disk: it has no superblock; mount the disk that belongs there, or replace the disk with \
                 another one"
            ));
        };
        if superblock.group_id != self.group_id {
            return refused(format!(
                "{path} belongs to disk group {}, not to {}; check the path",
                superblock.group_id, self.group_id
            ));
        }
        let disk = usize::from(superblock.index);
        if disk >= self.disks.all().len() || self.is_dropped(disk) {
            return refused(format!("{path} was dropped from the disk group; add the disk with cellar group add"));
        }
        if self.member(disk).mode() != DiskMode::Offline {
            let message = format!("cell disk {path} is not offline; cellar group status shows its state");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let own = Membership::read(engine, self.group_id)?;
        match own.filter(|own| own.number <= self.membership.lock().number) {
            Some(_) => Ok(disk),
            None => refused(format!("cell disk {path} was used without the other disks and has other data")),
        }
    }

    /// Ends resyncs under way soon, and lets no other one copy: their disks stay offline.
    pub fn stop_resyncs(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    /// Drops the former engine of an offline disk, and with it the lock of the disk, unless `engine` is the same or a resync
    /// uses the former engine.
    pub fn release_engine(&self, disk: usize, engine: &Arc<dyn Disk>) {
        let Some(_no_resync) = self.disks.all()[disk].resync.try_lock() else { return };
        let _membership = self.membership.lock();
        let member = self.member(disk);
        if member.mode() == DiskMode::Offline && !Arc::ptr_eq(&member.engine(), engine) {
            member.replace_engine(Arc::new(AbsentDisk::new(engine.path())));
        }
    }

    /// Brings a disk online that was offline: copies what changed meanwhile. `engine` replaces the disk's former engine
    /// and is locked by this process. `finish` runs when the files are equal and stores the metadata on the disk.
    pub fn bring_online(
        &self,
        disk: usize,
        engine: Arc<dyn Disk>,
        check: &dyn DamageCheck,
        finish: impl FnOnce() -> Result<()>,
    ) -> Result<Copied> {
        // A second resync of the disk must not find the first one's mode.
        let _resync = self.disks.all()[disk].resync.lock();
        {
            let _membership = self.membership.lock();
            if self.member(disk).mode() != DiskMode::Offline || self.is_dropped(disk) {
                let path = engine.path().display();
                let message = format!("cell disk {path} is not offline; cellar group status shows its state");
                return Err(Error::new(ErrorKind::Invalid, message));
            }
            // A write from before the failure must not reach the disk after the resync.
            let outstanding = self.disks.all()[disk].pool.outstanding();
            if outstanding > 0 && !engine.is_watched() {
                let message = format!(
                    "{outstanding} operations on cell disk {} from before its failure have not ended; wait, or restart the \
                     cell",
                    engine.path().display()
                );
                return Err(Error::new(ErrorKind::Invalid, message));
            }
            self.member(disk).replace_engine(super::watched(engine, &self.disks.all()[disk].pool, self.patience));
        }
        let result = self.resync(disk, check, finish);
        if result.is_err() {
            let _membership = self.membership.lock();
            if self.member(disk).mode() != DiskMode::Online {
                self.member(disk).leave();
            }
        }
        result
    }

    fn resync(&self, disk: usize, check: &dyn DamageCheck, finish: impl FnOnce() -> Result<()>) -> Result<Copied> {
        let path = self.member(disk).path().display();
        let work = self.begin_resync(disk).context(|| format!("could not begin the resync of cell disk {path}"))?;
        // The disk's record of intents is from before its failure.
        self.try_trim(Duration::MAX, true).context(|| format!("could not begin the resync of cell disk {path}"))?;
        let mut copied = Copied::default();
        for (source, (key, regions)) in work {
            let mut copier = Copier::new(self, (source, disk as u16), Occasion::Return, check);
            copier.copy_file(key, &regions).map_err(|CopyError { error, .. }| error).context(|| {
                let (ino, from) = (key.ino, self.member(usize::from(source)).path().display());
                format!("could not copy files of inode {ino} from {from} to {path}")
            })?;
            copied.add(&copier.copied);
        }
        self.disk(disk).sync_everything().context(|| format!("could not sync cell disk {path}"))?;
        finish()?;
        let mut membership = self.membership.lock();
        if self.member(disk).mode() != DiskMode::Syncing {
            return Err(Error::new(ErrorKind::Io, format!("cell disk {path} failed during its resync")));
        }
        let join = |offline: &mut Vec<Option<i64>>| offline[disk] = None;
        self.change_membership(&mut membership, join, false)
            .context(|| format!("could not bring cell disk {path} online"))?;
        match self.member(disk).mode() {
            DiskMode::Online => Ok(copied),
            _ => Err(Error::new(ErrorKind::Io, format!("cell disk {path} failed during its resync"))),
        }
    }

    /// Determines what the disk lacks, removes files that it must not have, and lets changes reach the disk from now on.
    /// Returns the files to copy, with the disk that has them.
    fn begin_resync(&self, disk: usize) -> io::Result<Vec<(u16, Work)>> {
        let Some(intents) = &self.intents else { return Err(io::ErrorKind::Unsupported.into()) };
        let engine = self.member(disk).engine();
        let sets = self.sets_of(disk);
        let _no_changes: Vec<_> = sets.iter().map(|set| self.lock_of(*set).write()).collect();
        let present = engine.backing_files()?;
        let mut work = Vec::new();
        for set in sets {
            let files_of = |listed: &[(u64, Stream)], on: u16| -> HashSet<FileKey> {
                let key = |(number, stream): &(u64, _)| {
                    Some(FileKey { set, ino: inode_of(*number, set, on)?, stream: *stream })
                };
                listed.iter().filter_map(key).collect()
            };
            let here = files_of(&present, disk as u16);
            let remove = |key: &FileKey| engine.remove(file_number(key.ino, set, disk as u16), key.stream);
            if !self.is_live(set) {
                here.iter().try_for_each(remove)?;
                continue;
            }
            let is_online = |other: &&u16| self.member(usize::from(**other)).mode() == DiskMode::Online;
            let source = *self.set(set).iter().find(is_online).ok_or(io::ErrorKind::NotFound)?;
            let there = files_of(&self.disk(usize::from(source)).backing_files()?, source);
            // An unmounted directory looks empty.
            self.probe(usize::from(source))?;
            here.difference(&there).try_for_each(remove)?;
            let new = there.difference(&here).map(|key| (*key, vec![WHOLE]));
            let changed = intents.written(set).into_iter().filter(|(key, _)| here.contains(key) && there.contains(key));
            let files: Vec<Work> = new.chain(changed).collect();
            // What a resync creates or extends has holes until it is copied, so the record must have all of that.
            for (key, regions) in &files {
                if regions.contains(&WHOLE) {
                    intents.restore(&[Record { key: *key, first: WHOLE, count: 1 }]);
                    continue;
                }
                let length = |disk: &dyn Disk, on: u16| disk.measure(file_number(key.ino, set, on), key.stream);
                let (ours, _) = length(engine.as_ref(), disk as u16)?;
                let (theirs, _) = length(self.disk(usize::from(source)).as_ref(), source)?;
                if ours < theirs {
                    let missing = regions_of(&(ours..theirs));
                    intents.restore(&[Record { key: *key, first: missing.start, count: missing.len() as u32 }]);
                }
            }
            work.extend(files.into_iter().map(|work| (source, work)));
        }
        self.member(disk).set_mode(DiskMode::Syncing);
        Ok(work)
    }
}

impl Copied {
    fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }
}

impl<'a> Copier<'a> {
    fn new(mirror: &'a Mirror, (source, target): (u16, u16), occasion: Occasion, check: &'a dyn DamageCheck) -> Self {
        Self { mirror, source, target, occasion, check, copied: Copied::default(), is_source_repaired: false }
    }

    /// Makes the target's copy of a file equal to the source's in the given regions, in length, and where the target was
    /// shorter.
    fn copy_file(&mut self, key: FileKey, regions: &[u32]) -> Result<(), CopyError> {
        let mirror = self.mirror;
        self.copied.files += 1;
        let (of_source, of_target) = (failed(self.source), failed(self.target));
        // Changes must wait while a piece is copied.
        let (is_shared, check, occasion) = (self.occasion == Occasion::Return, self.check, self.occasion);
        let lock = || is_shared.then(|| mirror.lock_of(key.set).write());
        // Before the lock: looking the file up reads from the group.
        let has_pages = key.stream == Stream::Data && check.may_have_checksums(key.ino);
        let keep = has_pages.then(|| check.keep(key.ino, occasion)).flatten();
        let ranges = {
            let _no_change = lock();
            let Some((source, target)) = self.open(key)? else { return Ok(()) };
            let (length, before) = (source.len().map_err(of_source)?, target.len().map_err(of_target)?);
            if before != length {
                target.set_len(length).map_err(of_target)?;
            }
            let is_whole = regions.contains(&WHOLE);
            let start = if is_whole { 0 } else { before.min(length) };
            let changed = regions.iter().filter(|_| !is_whole).map(|region| bytes_of(*region));
            changed.chain(std::iter::once(start..length)).collect::<Vec<Range<u64>>>()
        };
        for range in ranges {
            let mut start = range.start;
            while start < range.end {
                if mirror.is_stopping.load(Ordering::Acquire) {
                    return Err(of_target(io::Error::other("the cell stops; the next start continues")));
                }
                let _no_change = lock();
                let Some((source, target)) = self.open(key)? else { return Ok(()) };
                let end = range.end.min(source.len().map_err(of_source)?);
                if start >= end {
                    break;
                }
                let stop = end.min((start / REGION + 1) * REGION);
                let copied = self.copy((&*source, &*target), start..stop, keep.as_ref())?;
                self.copied.add(&copied);
                Mirror::count(&mirror.events.resync_read_bytes, copied.read_bytes);
                Mirror::count(&mirror.events.resync_written_bytes, copied.written_bytes);
                start = stop;
            }
        }
        Ok(())
    }

    /// Opens both copies; creates the target's copy. None if the source has no file; the target then has none, either.
    fn open(&self, key: FileKey) -> Result<Option<Copies>, CopyError> {
        let (of_source, of_target) = (failed(self.source), failed(self.target));
        let disk = |disk: u16| (self.mirror.disk(usize::from(disk)), file_number(key.ino, key.set, disk));
        let ((source, source_number), (target, target_number)) = (disk(self.source), disk(self.target));
        let Some(source) = source.open(source_number, key.stream, false).map_err(of_source)? else {
            self.mirror.probe(usize::from(self.source)).map_err(of_source)?;
            target.remove(target_number, key.stream).map_err(of_target)?;
            return Ok(None);
        };
        let target = target.open(target_number, key.stream, true).map_err(of_target)?;
        Ok(Some((source, target.expect("a disk creates a missing file"))))
    }

    /// Makes a range of the target equal to the source, holes included, except for what `keep` keeps. At a start, the source gets
    /// that, too. A disk that returns cannot give the source anything: the next read of the page repairs the source.
    fn copy(
        &mut self,
        (source, target): (&dyn DiskFile, &dyn DiskFile),
        range: Range<u64>,
        keep: Option<&Keep<'_>>,
    ) -> Result<Copied, CopyError> {
        let (of_source, of_target) = (failed(self.source), failed(self.target));
        let mut copied = Copied::default();
        let (mut ours, mut theirs) = (vec![0; PIECE as usize], vec![0; PIECE as usize]);
        let mut start = range.start;
        while start < range.end {
            let stop = range.end.min((start / PIECE + 1) * PIECE);
            let length = (stop - start) as usize;
            let is_target_hole = target.is_hole(start, length as u64).map_err(of_target)?;
            if source.is_hole(start, length as u64).map_err(of_source)? {
                if !is_target_hole {
                    target.punch(start, length as u64).map_err(of_target)?;
                }
                if source.has_unwritten_space(start, length as u64).map_err(of_source)? {
                    target.allocate(start, length as u64, true).map_err(of_target)?;
                }
            } else {
                read_fully(source, &mut ours[..length], start).map_err(of_source)?;
                copied.read_bytes += length as u64;
                theirs[..length].fill(0);
                if !is_target_hole {
                    read_fully(target, &mut theirs[..length], start).map_err(of_target)?;
                }
                if let Some(keep) = keep.filter(|_| ours[..length] != theirs[..length]) {
                    let before = (self.occasion == Occasion::Start).then(|| ours[..length].to_vec());
                    keep(start, &mut ours[..length], &theirs[..length]);
                    if before.is_some_and(|before| before != ours[..length]) {
                        source.write_at(&ours[..length], start).map_err(of_source)?;
                        copied.written_bytes += length as u64;
                        self.is_source_repaired = true;
                        Mirror::count(&self.mirror.events.repairs, 1);
                    }
                }
                if is_target_hole || ours[..length] != theirs[..length] {
                    target.write_at(&ours[..length], start).map_err(of_target)?;
                    copied.written_bytes += length as u64;
                }
            }
            start = stop;
        }
        Ok(copied)
    }
}

/// Returns how an I/O error of a disk becomes a [`CopyError`].
fn failed(disk: u16) -> impl Fn(io::Error) -> CopyError + Copy {
    move |error| CopyError { disk, error }
}

fn read_fully(file: &dyn DiskFile, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let count = file.read_at(buffer, offset)?;
    buffer[count..].fill(0);
    Ok(())
}
