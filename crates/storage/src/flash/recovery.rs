//! Opening a flash cache: what a clean stop, a crash or a loss of power left.
//!
//! Recovery reads the newest checkpoint and the records after it, in the order of their sequence, up to the first one that is
//! missing or invalid. Pages after it do not count, but intents do. A later record that says that the missing one was durable
//! means damage, as does a header with other bytes: then nothing counts.

use super::checkpoint;
use super::eviction::Maintenance;
use super::filler::Filler;
use super::format::{BLOCK, Checkpoint, DiskNote, Generation, ListedSegment, Object, Piece, Queue, RecordHeader};
use super::ghost::Ghost;
use super::index::CachedObject;
use super::location::{Location, PAGE, PAGE_BYTES, SEGMENT_BLOCKS_MAX, SEGMENTS_MAX, SegmentPages};
use super::log::{Log, Segment, disk_of, ino_of, segment_of};
use super::notes::{IntentNotes, Named};
use super::setting::FlashSetting;
use super::statistics::Counters;
use super::usage::Usage;
use super::{CellDisks, FLASH_LOG_NOTE, FlashCache, FlashOptions, Mode, could_not, notes};
use crate::disk::{Disk, Stream, WatchedDisk};
use crate::error::{Context, Error, ErrorKind, Result};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};

/// The part of the free space of the flash disks that the cache uses by default, in percent.
const DEFAULT_PERCENT: u64 = 90;

/// The contents that an earlier process left.
struct Contents {
    /// Segments in use, by number.
    segments: BTreeMap<u32, Arc<Segment>>,
    objects: HashMap<Object, Arc<CachedObject>>,
    pages: i64,
    segment_pages: Arc<SegmentPages>,
    settings: BTreeMap<u64, FlashSetting>,
    /// The highest sequence that was found.
    last_sequence: u64,
    /// The slot of the checkpoint that was used.
    slot: Option<usize>,
}

impl Contents {
    fn empty(segments: u32, last_sequence: u64) -> Self {
        let segment_pages = Arc::new(SegmentPages::new(segments));
        let (segments, objects, settings) = (BTreeMap::new(), HashMap::new(), BTreeMap::new());
        Self { segments, objects, pages: 0, segment_pages, settings, last_sequence, slot: None }
    }

    fn damaged(segments: u32, number: u32) -> Self {
        ::log::error!("segment {number} of the flash cache is damaged; the flash cache is emptied, no data are lost");
        Self::empty(segments, 0)
    }
}

/// What the notes of the flash disks say.
struct Layout {
    note: DiskNote,
    /// The note is from an earlier process whose contents count.
    is_valid: bool,
}

impl FlashCache {
    /// Opens the flash cache of a group: with the contents of an earlier process, if the disks of the group name it and
    /// `may_reuse`, otherwise empty. Changes nothing before [`Self::start`]. Returns None if the flash disks cannot be used: the
    /// cell then works without.
    pub fn open(options: &FlashOptions, cell_disks: Arc<dyn CellDisks>, may_reuse: bool) -> Result<Option<Arc<Self>>> {
        let opened = Self::try_open(options, &cell_disks, may_reuse);
        match opened {
            Err(error) => {
                ::log::error!("{error}; the cell works without flash cache");
                notes::revoke(cell_disks.as_ref())?;
                Ok(None)
            }
            Ok(cache) => Ok(Some(cache)),
        }
    }

    fn try_open(options: &FlashOptions, cell_disks: &Arc<dyn CellDisks>, may_reuse: bool) -> Result<Arc<Self>> {
        if options.disks.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "a flash disk could not be opened"));
        }
        let disks = order(&watched(options))?;
        let named = notes::read(cell_disks.as_ref());
        let Layout { note, is_valid } = layout(options, &disks, &named, may_reuse)?;
        let contents = match is_valid {
            true => recover(&disks, &note, &named).context(|| "could not read the flash cache".into())?,
            false => Contents::empty(note.segments, 0),
        };
        let generation = Generation::random().context(|| "could not read /dev/urandom".into())?;
        // Sequences of a cache that was emptied must not be those of before.
        let now = (crate::now() / 1000).max(1) as u64;
        let mut log = Log::new(disks.clone(), note.segment_bytes, generation, contents.last_sequence.max(now) + 1);
        let mut written: Vec<&Arc<Segment>> = contents.segments.values().collect();
        written.sort_by_key(|segment| segment.incarnation);
        written.iter().for_each(|segment| log.add(segment.number, Some(Arc::clone(segment))));
        let segments: Vec<_> = (0..note.segments).map(|number| contents.segments.get(&number).cloned()).collect();
        for (number, _) in (0..).zip(&segments).filter(|(_, segment)| segment.is_none()) {
            log.add(number, None);
        }
        let (free, kept) = (log.free_segments() as u64, log.segments_of(Queue::Keep));
        let pages_of_main =
            note.segments as usize * Log::pages_max(note.segment_bytes).max(1) * note.segment_bytes as usize
                / (BLOCK + Log::pages_max(note.segment_bytes) * PAGE_BYTES);
        let next_checkpoint = contents.slot.map_or(0, |slot| 1 - slot);
        let cache = Self {
            disks,
            cell_disks: cell_disks.clone(),
            segment_bytes: note.segment_bytes,
            segment_count: note.segments,
            generation,
            intents: IntentNotes::new(generation),
            mode: AtomicU8::new(Mode::On as u8),
            is_dropped: AtomicBool::new(false),
            fills: AtomicBool::new(false),
            revoking: Mutex::new(()),
            objects: Mutex::new(contents.objects),
            settings: Mutex::new(contents.settings),
            changing_settings: Mutex::new(()),
            segments: RwLock::new(segments),
            log: Mutex::new(log),
            maintenance: Mutex::new(Maintenance { ghost: Ghost::new(pages_of_main), next_checkpoint }),
            checkpointed: AtomicU64::new(0),
            free_segments: AtomicU64::new(free),
            keep_segments: AtomicU64::new(kept),
            pages: AtomicI64::new(contents.pages),
            segment_pages: contents.segment_pages,
            counters: Counters::default(),
            filler: Filler::default(),
            usage: Usage::default(),
        };
        Ok(Arc::new(cache))
    }

    /// Makes the cache usable, before the first change of a file of the group. Pages of objects for which `is_known` is
    /// false are dropped: a new file may get the inode number of a file that was never synced. An error of a flash disk
    /// switches the cache off. Reads fill the cache after [`Self::begin_fills`].
    pub fn start(self: &Arc<Self>, options: &FlashOptions, is_known: impl Fn(Object) -> bool) -> Result<()> {
        self.objects.lock().retain(|object, cached| {
            let is_kept = is_known(*object);
            if !is_kept {
                self.add_pages(cached.forget(0..u64::MAX));
            }
            is_kept
        });
        let is_file = |ino: u64| is_known(Object { stripe: 0, ino, stream: Stream::Data });
        self.settings.lock().retain(|ino, _| is_file(*ino));
        if let Err(error) = self.write_generation() {
            self.fail(&error);
            return notes::revoke(self.cell_disks.as_ref());
        }
        // What the new checkpoint contains.
        self.intents.sync(self.cell_disks.as_ref(), self.checkpointed.load(Ordering::Acquire))?;
        // Last: without this note, the flash disks do not count.
        notes::write(self.cell_disks.as_ref(), self.generation, None)?;
        if options.fills_in_background {
            self.filler.start(self).context(|| "could not start the thread of the flash cache".into())?;
        }
        let mib = |pages: i64| (pages * PAGE as i64) >> 20;
        ::log::info!(
            "flash cache of {} MiB on {} flash disks, {} MiB cached",
            (self.segment_bytes * u64::from(self.segment_count)) >> 20,
            self.disks.len(),
            mib(self.pages.load(Ordering::Relaxed))
        );
        Ok(())
    }

    /// Writes the contents under the new generation, then removes files that do not belong to them.
    fn write_generation(&self) -> io::Result<()> {
        for (index, disk) in self.disks.iter().enumerate() {
            if disk.read_note(DiskNote::NAME)?.is_none() {
                // Makes the disk a flash disk before it contains anything else.
                self.write_note(disk, index, Generation([0; Generation::BYTES]))?;
            }
        }
        self.checkpoint(&mut self.maintenance.lock())?;
        for (index, disk) in self.disks.iter().enumerate() {
            self.write_note(disk, index, self.generation)?;
        }
        // After the notes: a part of the files could pass for contents.
        for (index, disk) in self.disks.iter().enumerate() {
            for (ino, stream) in disk.backing_files()? {
                let Some(number) = segment_of(ino) else { continue };
                let is_used = self.segment(number).is_some() && number as usize % self.disks.len() == index;
                if !is_used {
                    disk.remove(ino, stream)?;
                }
            }
        }
        Ok(())
    }

    fn write_note(&self, disk: &Arc<dyn Disk>, index: usize, generation: Generation) -> io::Result<()> {
        let (count, segment_bytes) = (self.disks.len() as u32, self.segment_bytes);
        let note = DiskNote { generation, index: index as u32, count, segment_bytes, segments: self.segment_count };
        disk.write_note(DiskNote::NAME, &note.encode())
    }
}

/// Returns the flash disks, with a time limit for each operation if there is one.
fn watched(options: &FlashOptions) -> Vec<Arc<dyn Disk>> {
    let watched = |disk: &Arc<dyn Disk>| -> Arc<dyn Disk> {
        match options.timeout {
            Some(timeout) => Arc::new(WatchedDisk::new(disk.clone(), Arc::default(), timeout)),
            None => disk.clone(),
        }
    };
    options.disks.iter().map(watched).collect()
}

/// Locks the flash disks, and returns them in the order of their notes.
fn order(disks: &[Arc<dyn Disk>]) -> Result<Vec<Arc<dyn Disk>>> {
    let mut noted = Vec::new();
    for disk in disks {
        let path = disk.path().display();
        if !disk.lock().context(|| could_not("lock", disk.as_ref()))? {
            let message = format!("flash disk {path} is in use by another cell daemon; stop that daemon first");
            return Err(Error::new(ErrorKind::Locked, message));
        }
        let note = disk.read_note(DiskNote::NAME).context(|| could_not("read", disk.as_ref()))?;
        if note.is_none() && !is_usable(disk.as_ref()).context(|| could_not("read", disk.as_ref()))? {
            let message =
                format!("{path} is neither empty nor a flash disk; name an empty directory or a blank device");
            return Err(Error::new(ErrorKind::ForeignDisk, message));
        }
        noted.push((note.and_then(|bytes| DiskNote::decode(&bytes).ok()), disk.clone()));
    }
    noted.sort_by_key(|(note, _)| note.map_or(u32::MAX, |note| note.index));
    Ok(noted.into_iter().map(|(_, disk)| disk).collect())
}

/// Returns the size of the cache, and whether its contents are those that the cell disks name.
fn layout(options: &FlashOptions, disks: &[Arc<dyn Disk>], named: &Named, may_reuse: bool) -> Result<Layout> {
    let mut found = Vec::new();
    let mut smallest = u64::MAX;
    for disk in disks {
        let note = disk.read_note(DiskNote::NAME).context(|| could_not("read", disk.as_ref()))?;
        found.push(note.and_then(|bytes| DiskNote::decode(&bytes).ok()));
        crate::iorm::remove_left_over(disk.as_ref());
        // The files of an earlier cache are reused or removed.
        let mut used = 0;
        for (ino, stream) in disk.backing_files().context(|| could_not("list", disk.as_ref()))? {
            used += disk.measure(ino, stream).context(|| could_not("measure", disk.as_ref()))?.1;
        }
        let space = disk.space().context(|| could_not("measure", disk.as_ref()))?;
        smallest = smallest.min(space.available + used);
    }
    check_mounted(disks, &found, named)?;
    // Every disk stores as many segments as the others.
    let space = smallest.saturating_mul(disks.len() as u64).saturating_sub(options.columnar_bytes);
    let fits =
        |size: u64| size.saturating_add(checkpoint_bytes(size, options.segment_bytes) * disks.len() as u64) <= space;
    // The free space changes from start to start, but another size empties the cache.
    let keeps = |note: &DiskNote| {
        note.count == disks.len() as u32
            && note.segment_bytes == options.segment_bytes
            && fits(u64::from(note.segments) * note.segment_bytes)
    };
    let kept = found.first().copied().flatten().filter(keeps).map(|note| u64::from(note.segments) * note.segment_bytes);
    let is_too_large = |note: &DiskNote| !fits(u64::from(note.segments) * note.segment_bytes);
    if options.columnar_bytes > 0
        && options.size.is_none()
        && found.first().copied().flatten().as_ref().is_some_and(is_too_large)
    {
        log::warn!(
            "the flash cache does not fit beside the columnar cache any more, and begins empty with a smaller size; set \
             flash_cache_size to choose one"
        );
    }
    let size = options.size.or(kept).unwrap_or(space / 100 * DEFAULT_PERCENT);
    let segments = (size / options.segment_bytes).min(u64::from(SEGMENTS_MAX));
    if segments < FlashOptions::SEGMENTS_MIN || !fits(size) {
        let message = format!(
            "the flash cache of {} MiB does not fit: the flash disks have {} MiB for it, and the smallest size is {} MiB; \
             change flash_cache_size, columnar_cache_size or flash_write_back_size, or free space on the flash disks",
            size >> 20,
            space >> 20,
            (FlashOptions::SEGMENTS_MIN * options.segment_bytes).div_ceil(1 << 20)
        );
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    assert!(options.segment_bytes / BLOCK as u64 <= u64::from(SEGMENT_BLOCKS_MAX));
    let segments = segments as u32;
    let wanted = named.generation.filter(|_| may_reuse);
    let is_valid = wanted.is_some_and(|generation| {
        let expected = |index: usize| DiskNote {
            generation,
            index: index as u32,
            count: disks.len() as u32,
            segment_bytes: options.segment_bytes,
            segments,
        };
        found.iter().enumerate().all(|(index, note)| *note == Some(expected(index)))
    });
    let generation = wanted.unwrap_or(Generation([0; Generation::BYTES]));
    let note =
        DiskNote { generation, index: 0, count: disks.len() as u32, segment_bytes: options.segment_bytes, segments };
    Ok(Layout { note, is_valid })
}

/// Returns the bytes of the two checkpoints at most, which are on the first flash disk, if no two pages are at successive places.
fn checkpoint_bytes(size: u64, segment_bytes: u64) -> u64 {
    let run_bytes = 16;
    2 * run_bytes * (size / segment_bytes) * (segment_bytes / PAGE)
}

/// Refuses an empty directory in place of a flash disk, unless a file system is mounted on it. A directory whose device is not
/// mounted looks empty, and the cache would fill the file system that the directory belongs to.
fn check_mounted(disks: &[Arc<dyn Disk>], notes: &[Option<DiskNote>], named: &Named) -> Result<()> {
    // With another number of flash disks, an empty one was added.
    let is_changed = notes.iter().flatten().any(|note| note.count as usize != disks.len());
    let empty = disks.iter().zip(notes).find(|(disk, note)| note.is_none() && is_plain_directory(disk.path()));
    match empty.map(|(disk, _)| disk.path().display()) {
        Some(path) if named.by_any && !is_changed => {
            let message = format!(
                "flash disk {path} is an empty directory, but the cell has a flash cache; mount the device of the flash disk and \
                 restart the cell; to use the empty directory, first start the cell once without flash_disks"
            );
            Err(Error::new(ErrorKind::ForeignDisk, message))
        }
        _ => Ok(()),
    }
}

/// Returns whether a disk is a flash disk, or blank.
pub fn is_usable(disk: &dyn Disk) -> io::Result<bool> {
    let has = |name| disk.read_note(name).map(|note| note.is_some());
    Ok(has(DiskNote::NAME)? || has(FLASH_LOG_NOTE)? || disk.is_blank()?)
}

/// Returns whether a flash disk is a directory on which no file system is mounted.
pub fn is_plain_directory(path: &Path) -> bool {
    path.is_dir() && !is_mount_point(path)
}

fn is_mount_point(path: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.dev());
    matches!((device(path), device(&path.join(".."))), (Ok(own), Ok(parent)) if own != parent)
}

/// A record whose header is valid.
struct Record {
    header: RecordHeader,
    /// The block of the header in the segment.
    block: u32,
    /// The pages are those that were written.
    is_whole: bool,
}

/// A segment as it was found.
struct Found {
    segment: Arc<Segment>,
    records: Vec<Record>,
}

/// What is in the file of a segment.
enum FoundFile {
    Segment(Found),
    Nothing,
    /// A place of a header has other bytes: they may have been intents.
    Damaged,
}

/// Reads the records of a segment, or only the first one, which names the incarnation, if a checkpoint lists the segment as closed.
fn read_segment(disks: &[Arc<dyn Disk>], number: u32, listed: Option<&ListedSegment>) -> io::Result<FoundFile> {
    let file = disk_of(disks, number).open(ino_of(number), Stream::Data, false)?;
    let Some(file) = file else { return Ok(FoundFile::Nothing) };
    let mut block = vec![0; BLOCK];
    let count = file.read_at(&mut block, 0)?;
    // A header that did not reach the disk before a loss of power consists of zeros.
    let is_written = |bytes: &[u8]| bytes.iter().any(|byte| *byte != 0);
    let first = match RecordHeader::decode(&block[..count]) {
        Ok(first) if first.sequence == first.incarnation => first,
        Ok(_) => return Ok(FoundFile::Nothing),
        // What a closed segment says besides pages, the checkpoint contains.
        Err(_) if is_written(&block[..count]) && listed.is_none_or(|listed| listed.is_open) => {
            return Ok(FoundFile::Damaged);
        }
        Err(_) => return Ok(FoundFile::Nothing),
    };
    let listed = listed.filter(|listed| listed.incarnation == first.incarnation);
    let length = disk_of(disks, number).measure(ino_of(number), Stream::Data)?.0;
    if listed.is_some_and(|listed| length < u64::from(listed.length)) {
        return Ok(FoundFile::Damaged);
    }
    let mut end = listed.map_or(0, |listed| u64::from(listed.length));
    let mut records = Vec::new();
    if listed.is_none_or(|listed| listed.is_open) {
        let mut bytes = vec![0; length as usize];
        let count = file.read_at(&mut bytes, 0)?;
        // Also after an invalid record: later ones may contain intents, and tell damage from the end of the log.
        let (mut at, mut is_in_gap) = (0, false);
        while at + BLOCK <= count {
            let header = RecordHeader::decode(&bytes[at..count]);
            let Some(header) = header.ok().filter(|header| header.incarnation == first.incarnation) else {
                if !std::mem::replace(&mut is_in_gap, true) && is_written(&bytes[at..at + BLOCK]) {
                    return Ok(FoundFile::Damaged);
                }
                at += BLOCK;
                continue;
            };
            is_in_gap = false;
            let (length, block) = (header.length(), (at / BLOCK) as u32);
            let is_whole = header.has_payload(&bytes[at + BLOCK..count]);
            records.push(Record { header, block, is_whole });
            at += length;
            end = end.max(at as u64);
        }
    }
    let segment = Arc::new(Segment::new(number, first.incarnation, first.queue, file, end.min(length)));
    Ok(FoundFile::Segment(Found { segment, records }))
}

/// Reads the contents. After a clean stop, they are those of the checkpoint that the cell disks name.
fn recover(disks: &[Arc<dyn Disk>], note: &DiskNote, named: &Named) -> io::Result<Contents> {
    let mut checkpoints = checkpoint::read(&disks[0])?.into_iter();
    let Some((checkpoint, slot)) = checkpoints.find(|(checkpoint, _)| checkpoint.generation == note.generation) else {
        return Ok(Contents::empty(note.segments, 0));
    };
    let older = || {
        ::log::error!(
            "the flash disks lack what the cell disks say about them: they are older copies, or damaged; the flash cache is \
             emptied, no data are lost"
        );
        Ok(Contents::empty(note.segments, 0))
    };
    if named.sequence.is_some_and(|sequence| sequence != checkpoint.sequence) {
        return older();
    }
    let listed: HashMap<u32, ListedSegment> =
        checkpoint.segments.iter().map(|listed| (listed.number, *listed)).collect();
    let mut found = BTreeMap::new();
    for (index, disk) in disks.iter().enumerate() {
        let segments = disk.backing_files()?.into_iter().filter(|(_, stream)| *stream == Stream::Data);
        let numbers = segments.filter_map(|(ino, _)| segment_of(ino));
        for number in numbers.filter(|number| *number < note.segments && *number as usize % disks.len() == index) {
            match read_segment(disks, number, listed.get(&number))? {
                FoundFile::Segment(segment) => drop(found.insert(number, segment)),
                FoundFile::Nothing => {}
                FoundFile::Damaged => return Ok(Contents::damaged(note.segments, number)),
            }
        }
    }
    // A segment is not removed before a checkpoint contains its last record.
    let is_lost = |listed: &&ListedSegment| {
        let is_same = |found: &Found| found.segment.incarnation == listed.incarnation;
        listed.is_open && !found.get(&listed.number).is_some_and(is_same)
    };
    if let Some(lost) = checkpoint.segments.iter().find(is_lost) {
        return Ok(Contents::damaged(note.segments, lost.number));
    }
    let mut last_sequence = checkpoint.sequence;
    let mut records: Vec<(&Record, &Segment)> = Vec::new();
    for Found { segment, records: of_segment } in found.values() {
        for record in of_segment {
            last_sequence = last_sequence.max(record.header.sequence);
            if record.header.generation == note.generation && record.header.sequence > checkpoint.sequence {
                records.push((record, segment));
            }
        }
    }
    records.sort_by_key(|(record, _)| record.header.sequence);
    let is_next = |(nth, (record, _)): &(usize, &(&Record, &Segment))| {
        record.is_whole && record.header.sequence == checkpoint.sequence + 1 + *nth as u64
    };
    let applied = records.iter().enumerate().take_while(is_next).count();
    let applied_sequence = checkpoint.sequence + applied as u64;
    let damaged = records.iter().map(|(record, _)| &record.header).find(|header| header.flushed > applied_sequence);
    if let Some(damaged) = damaged {
        ::log::error!(
            "the flash cache is damaged: record {} is missing, although it was durable when record {} was written; the flash \
             cache is emptied, no data are lost",
            applied_sequence + 1,
            damaged.sequence
        );
        return Ok(Contents::empty(note.segments, last_sequence));
    }
    // A change of a file relied on a record that is not here.
    if named.intent > applied_sequence {
        return older();
    }
    let mut replay = Replay { alive: HashMap::new(), contents: Contents::empty(note.segments, 0), open: Vec::new() };
    // Intents and retired segments count wherever they are: a change may have relied on a record after the missing one, if
    // damage, not a crash, is why it is missing.
    let retired: HashSet<(u32, u64)> = records
        .iter()
        .flat_map(|(record, _)| &record.header.pieces)
        .filter_map(|piece| match piece {
            Piece::Retired { segment, incarnation } => Some((*segment, *incarnation)),
            Piece::Pages { .. } | Piece::Intent { .. } => None,
        })
        .collect();
    let listed: HashMap<u32, u64> =
        checkpoint.segments.iter().map(|listed| (listed.number, listed.incarnation)).collect();
    for Found { segment, .. } in found.values() {
        let is_listed = listed.get(&segment.number) == Some(&segment.incarnation);
        let is_later = (checkpoint.sequence + 1..=applied_sequence).contains(&segment.incarnation);
        if (is_listed || is_later) && !retired.contains(&(segment.number, segment.incarnation)) {
            replay.alive.insert(segment.number, segment.incarnation);
            replay.contents.segments.insert(segment.number, segment.clone());
        }
    }
    replay.checkpoint(&checkpoint, &listed);
    replay.contents.settings = checkpoint.settings.iter().copied().collect();
    records[..applied].iter().for_each(|(record, segment)| replay.pages(record, segment));
    records.iter().for_each(|(record, _)| replay.intents(&record.header));
    Ok(Contents { last_sequence, slot: Some(slot), ..replay.finish() })
}

struct Replay {
    /// Incarnations of the segments whose pages count.
    alive: HashMap<u32, u64>,
    contents: Contents,
    open: Vec<(Object, u32, u32)>,
}

impl Replay {
    fn checkpoint(&mut self, checkpoint: &Checkpoint, listed: &HashMap<u32, u64>) {
        for run in &checkpoint.runs {
            let number = run.place.segment();
            if self.alive.get(&number).is_none_or(|incarnation| listed.get(&number) != Some(incarnation)) {
                continue;
            }
            for nth in 0..run.count {
                let block = run.place.block() + nth * (PAGE_BYTES / BLOCK) as u32;
                self.page(checkpoint.objects[run.object as usize], run.first + nth, number, block);
            }
        }
        let open = checkpoint.open.iter();
        self.open.extend(open.map(|(object, first, last)| (checkpoint.objects[*object as usize], *first, *last)));
    }

    fn intents(&mut self, header: &RecordHeader) {
        let intents = header.pieces.iter().filter_map(|piece| match piece {
            Piece::Intent { object, first, last } => Some((*object, *first, *last)),
            Piece::Pages { .. } | Piece::Retired { .. } => None,
        });
        self.open.extend(intents);
    }

    fn pages(&mut self, record: &Record, segment: &Segment) {
        if self.alive.get(&segment.number) == Some(&segment.incarnation) {
            for (object, page, block) in record.header.page_blocks(record.block) {
                self.page(object, page, segment.number, block);
            }
        }
    }

    fn page(&mut self, object: Object, page: u32, segment: u32, block: u32) {
        let new = || Arc::new(CachedObject::new(object, self.contents.segment_pages.clone(), 0));
        let cached = self.contents.objects.entry(object).or_insert_with(new);
        cached.restore(page, Location::new(segment, block));
    }

    fn finish(mut self) -> Contents {
        for (object, first, last) in &self.open {
            if let Some(cached) = self.contents.objects.get(object) {
                cached.forget(u64::from(*first)..u64::from(*last) + 1);
            }
        }
        for (object, cached) in &self.contents.objects {
            cached.set_setting(self.contents.settings.get(&object.ino).copied().unwrap_or_default());
        }
        self.contents.pages = self.contents.objects.values().map(|cached| cached.pages()).sum();
        self.contents
    }
}
