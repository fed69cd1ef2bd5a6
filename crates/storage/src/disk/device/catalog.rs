//! The files of a device in memory: names, lengths and extents; and its free blocks.
//!
//! Invariants: extents of a file do not overlap, neither in the file nor on the device; every data block is in one extent,
//! free, or waiting for a sync that makes its release durable. The catalog changes by records only.

use super::layout::{BLOCK, corrupt};
use super::record::{Record, decode_key, encode_key};
use crate::disk::FileKey;
use cellar_format::bytes::{Corrupt, Reader, Write};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;

/// Blocks of a run that a file starts with while there are such runs, so that files that grow together stay contiguous.
const RUN: u64 = 256;

/// Neighbouring blocks of a file that are neighbours on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub physical: u64,
    pub count: u64,
    /// False for allocated blocks that read as zeros.
    pub written: bool,
}

/// A part of a file, by block number; `extent` is None in a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub logical: u64,
    pub count: u64,
    pub extent: Option<Extent>,
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub key: FileKey,
    pub length: u64,
    /// By logical block.
    pub extents: BTreeMap<u64, Extent>,
    /// The session that last changed the file.
    pub changed_in: u64,
    /// The file has no name any more, and exists until it is closed.
    pub is_removed: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Catalog {
    pub files: HashMap<u64, Entry>,
    pub names: HashMap<FileKey, u64>,
    pub notes: BTreeMap<String, Vec<u8>>,
    pub next_id: u64,
    /// Number of the process that writes to the device, counted from 1.
    pub session: u64,
    /// Extents of all files.
    pub extents: usize,
}

impl Entry {
    pub fn allocated_blocks(&self) -> u64 {
        self.extents.values().map(|extent| extent.count).sum()
    }

    /// Splits a range of blocks into extents and holes.
    pub fn segments(&self, blocks: Range<u64>) -> Vec<Segment> {
        let (mut found, mut next) = (Vec::new(), blocks.start);
        let before = self.extents.range(..blocks.start).next_back().map(|(logical, _)| *logical);
        for (logical, extent) in self.extents.range(before.unwrap_or(blocks.start)..blocks.end) {
            let (start, end) = ((*logical).max(blocks.start), (logical + extent.count).min(blocks.end));
            if start >= end {
                continue;
            }
            if next < start {
                found.push(Segment { logical: next, count: start - next, extent: None });
            }
            let extent = Extent { physical: extent.physical + (start - logical), count: end - start, ..*extent };
            found.push(Segment { logical: start, count: end - start, extent: Some(extent) });
            next = end;
        }
        if next < blocks.end {
            found.push(Segment { logical: next, count: blocks.end - next, extent: None });
        }
        found
    }

    /// Removes a range of blocks, and returns the device blocks that the range occupied.
    fn unmap(&mut self, blocks: Range<u64>) -> Vec<Range<u64>> {
        let mut freed = Vec::new();
        for Segment { logical, count, extent } in self.segments(blocks) {
            let Some(extent) = extent else { continue };
            freed.push(extent.physical..extent.physical + count);
            let (start, whole) =
                self.extents.range(..=logical).next_back().map(|(at, whole)| (*at, *whole)).expect("found");
            self.extents.remove(&start);
            if start < logical {
                self.extents.insert(start, Extent { count: logical - start, ..whole });
            }
            let (end, whole_end) = (logical + count, start + whole.count);
            if end < whole_end {
                let rest = Extent { physical: whole.physical + (end - start), count: whole_end - end, ..whole };
                self.extents.insert(end, rest);
            }
        }
        freed
    }

    /// Adds an extent where the file has a hole, and joins it with its neighbours.
    fn map(&mut self, mut logical: u64, mut extent: Extent) {
        let follows =
            |one: &Extent, other: &Extent| one.written == other.written && one.physical + one.count == other.physical;
        if let Some((at, before)) = self.extents.range(..logical).next_back().map(|(at, before)| (*at, *before))
            && at + before.count == logical
            && follows(&before, &extent)
        {
            self.extents.remove(&at);
            extent = Extent { physical: before.physical, count: before.count + extent.count, ..extent };
            logical = at;
        }
        if let Some(after) = self.extents.get(&(logical + extent.count)).copied()
            && follows(&extent, &after)
        {
            self.extents.remove(&(logical + extent.count));
            extent.count += after.count;
        }
        self.extents.insert(logical, extent);
    }
}

impl Catalog {
    /// Applies a record, and returns the blocks that it releases. A record of an unknown file changes nothing: the file was
    /// removed while it was open.
    pub fn apply(&mut self, record: &Record) -> Vec<Range<u64>> {
        let Some(id) = record.file() else { return Vec::new() };
        let session = self.session;
        match record {
            Record::Create { id, key } => {
                let (length, extents) = (0, BTreeMap::new());
                let entry = Entry { key: key.clone(), length, extents, changed_in: session, is_removed: false };
                self.files.insert(*id, entry);
                self.names.insert(key.clone(), *id);
                self.next_id = self.next_id.max(id + 1);
                return Vec::new();
            }
            Record::Remove { id } => {
                let Some(entry) = self.files.remove(id) else { return Vec::new() };
                self.extents -= entry.extents.len();
                if self.names.get(&entry.key) == Some(id) {
                    self.names.remove(&entry.key);
                }
                return entry.extents.values().map(|extent| extent.physical..extent.physical + extent.count).collect();
            }
            _ => {}
        }
        let Some(entry) = self.files.get_mut(&id) else { return Vec::new() };
        let before = entry.extents.len();
        entry.changed_in = session;
        let freed = match record {
            Record::Map { logical, physical, count, .. } => {
                // Blocks that were reserved keep their place.
                let mut freed = entry.unmap(*logical..logical + count);
                let place = *physical..physical + count;
                freed.retain(|range| range.start < place.start || range.end > place.end);
                entry.map(*logical, Extent { physical: *physical, count: *count, written: true });
                freed
            }
            Record::Reserve { logical, physical, count, .. } => {
                let freed = entry.unmap(*logical..logical + count);
                entry.map(*logical, Extent { physical: *physical, count: *count, written: false });
                freed
            }
            Record::Unmap { logical, count, .. } => entry.unmap(*logical..logical.saturating_add(*count)),
            Record::Grow { length, .. } => {
                entry.length = entry.length.max(*length);
                Vec::new()
            }
            Record::Shrink { length, .. } => {
                entry.length = entry.length.min(*length);
                entry.unmap(length.div_ceil(BLOCK)..u64::MAX)
            }
            _ => Vec::new(),
        };
        self.extents = self.extents + entry.extents.len() - before;
        freed
    }

    /// Unmaps data beyond the end of files: a write of which only a part was recorded.
    pub fn drop_data_beyond_ends(&mut self) {
        for entry in self.files.values_mut() {
            let end = entry.length.div_ceil(BLOCK);
            let beyond = entry.segments(end..u64::MAX).into_iter();
            let written = beyond.filter(|segment| segment.extent.is_some_and(|extent| extent.written));
            let before = entry.extents.len();
            for Segment { logical, count, .. } in written.collect::<Vec<_>>() {
                entry.unmap(logical..logical + count);
            }
            self.extents = self.extents + entry.extents.len() - before;
        }
    }

    /// Returns the free blocks of `data`; an error if two extents overlap or one is outside.
    pub fn free_space(&self, data: Range<u64>) -> io::Result<FreeSpace> {
        let mut used: Vec<Range<u64>> = Vec::new();
        for entry in self.files.values() {
            used.extend(
                entry.extents.values().map(|extent| extent.physical..extent.physical.saturating_add(extent.count)),
            );
        }
        used.sort_by_key(|range| range.start);
        let (mut free, mut next) = (FreeSpace { next: data.start, ..FreeSpace::default() }, data.start);
        for range in used {
            if range.start < next || range.end > data.end {
                let found = format!("blocks {range:?} are used twice or outside of the device");
                return Err(corrupt(Corrupt::new("extents", 0, found)));
            }
            free.insert(next..range.start);
            next = range.end;
        }
        free.insert(next..data.end);
        Ok(free)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.put_u64(self.next_id);
        bytes.put_u32(self.notes.len() as u32);
        for (name, note) in &self.notes {
            bytes.put_blob(name.as_bytes());
            bytes.put_blob(note);
        }
        let mut files: Vec<(&u64, &Entry)> = self.files.iter().filter(|(_, entry)| !entry.is_removed).collect();
        files.sort_by_key(|(id, _)| **id);
        bytes.put_u64(files.len() as u64);
        for (id, entry) in files {
            bytes.put_u64(*id);
            encode_key(&entry.key, &mut bytes);
            bytes.put_u64(entry.length);
            bytes.put_u64(entry.changed_in);
            bytes.put_u32(entry.extents.len() as u32);
            for (logical, extent) in &entry.extents {
                bytes.put_u64(*logical);
                bytes.put_u64(extent.physical);
                bytes.put_u64(extent.count << 1 | u64::from(extent.written));
            }
        }
        bytes
    }

    /// Returns an upper bound of the length of [`Self::encode`] without the notes.
    pub fn encoded_bytes_max(&self) -> usize {
        64 + self.files.len() * 320 + self.extents * 24
    }

    pub fn decode(bytes: &[u8], session: u64) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes);
        let mut catalog = Self { next_id: reader.u64("next file id")?, session, ..Self::default() };
        for _ in 0..reader.u32("number of notes")? {
            let name = reader.string("name of a note")?;
            catalog.notes.insert(name, reader.blob("note")?.to_vec());
        }
        for _ in 0..reader.u64("number of files")? {
            let id = reader.u64("file id")?;
            let key = decode_key(&mut reader)?;
            let (length, changed_in) = (reader.u64("file length")?, reader.u64("session")?);
            let mut extents = BTreeMap::new();
            for _ in 0..reader.u32("number of extents")? {
                let (logical, physical) = (reader.u64("extent")?, reader.u64("extent")?);
                let count = reader.u64("extent")?;
                extents.insert(logical, Extent { physical, count: count >> 1, written: count & 1 == 1 });
            }
            catalog.extents += extents.len();
            catalog.names.insert(key.clone(), id);
            catalog.files.insert(id, Entry { key, length, extents, changed_in, is_removed: false });
        }
        reader.finish("catalog")?;
        Ok(catalog)
    }
}

/// Free blocks, as runs that do not touch.
#[derive(Debug, Default)]
pub struct FreeSpace {
    /// Start and end of each run.
    runs: BTreeMap<u64, u64>,
    pub blocks: u64,
    /// Where the search for an empty run starts.
    next: u64,
}

impl FreeSpace {
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.blocks += range.end - range.start;
        let (mut start, mut end) = (range.start, range.end);
        if let Some((before, until)) = self.runs.range(..start).next_back().map(|(before, until)| (*before, *until)) {
            debug_assert!(until <= start, "a block is freed twice");
            if until == start {
                self.runs.remove(&before);
                start = before;
            }
        }
        if let Some(until) = self.runs.remove(&end) {
            end = until;
        }
        self.runs.insert(start, end);
    }

    fn remove(&mut self, range: Range<u64>) {
        let (start, end) =
            self.runs.range(..=range.start).next_back().map(|(start, end)| (*start, *end)).expect("free");
        self.runs.remove(&start);
        if start < range.start {
            self.runs.insert(start, range.start);
        }
        if range.end < end {
            self.runs.insert(range.end, end);
        }
        self.blocks -= range.end - range.start;
    }

    /// Takes `count` blocks, at `hint` if the blocks there are free. Returns None, and takes nothing, if fewer are free.
    pub fn allocate(&mut self, mut count: u64, hint: Option<u64>) -> Option<Vec<Range<u64>>> {
        if self.blocks < count {
            return None;
        }
        let (mut taken, mut hint) = (Vec::new(), hint);
        while count > 0 {
            let at_hint = hint.and_then(|hint| {
                let (start, end) = self.runs.range(..=hint).next_back()?;
                (*start <= hint && hint < *end).then_some(hint..*end)
            });
            let run = at_hint.or_else(|| self.find()).expect("blocks are free");
            let part = run.start..run.end.min(run.start + count);
            self.remove(part.clone());
            count -= part.end - part.start;
            hint = Some(part.end);
            taken.push(part);
        }
        Some(taken)
    }

    /// Returns a run that is long enough for a file to grow, or else the longest.
    fn find(&mut self) -> Option<Range<u64>> {
        let is_long = |(start, end): (&u64, &u64)| {
            let aligned = start.next_multiple_of(RUN);
            (aligned + RUN <= *end).then_some(aligned..*end)
        };
        let inside =
            self.runs.range(..self.next).next_back().and_then(|(start, end)| is_long((&(*start).max(self.next), end)));
        let found = inside
            .or_else(|| self.runs.range(self.next..).find_map(is_long))
            .or_else(|| self.runs.iter().find_map(is_long));
        match found {
            Some(run) => {
                self.next = run.start + RUN;
                Some(run)
            }
            None => self.runs.iter().max_by_key(|(start, end)| *end - *start).map(|(start, end)| *start..*end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        let key = FileKey::Named("file".into());
        Entry { key, length: 0, extents: BTreeMap::new(), changed_in: 0, is_removed: false }
    }

    #[test]
    fn extents_are_joined_and_split() {
        let mut file = entry();
        file.map(0, Extent { physical: 100, count: 4, written: true });
        file.map(4, Extent { physical: 104, count: 4, written: true });
        file.map(8, Extent { physical: 108, count: 4, written: false });
        assert_eq!(file.extents.len(), 2);
        assert_eq!(file.unmap(2..9), [102..108, 108..109]);
        let extents: Vec<_> = file.extents.iter().map(|(at, extent)| (*at, extent.physical, extent.count)).collect();
        assert_eq!(extents, [(0, 100, 2), (9, 109, 3)]);
        let segments: Vec<_> = file.segments(1..20).iter().map(|s| (s.logical, s.count, s.extent.is_some())).collect();
        assert_eq!(segments, [(1, 1, true), (2, 7, false), (9, 3, true), (12, 8, false)]);
    }

    #[test]
    fn files_that_grow_together_get_long_runs_until_the_device_is_nearly_full() {
        let mut free = FreeSpace::default();
        free.insert(10..5000);
        let mut files: Vec<Vec<Range<u64>>> = vec![Vec::new(); 3];
        for round in 0..4990 {
            if round == 4200 {
                assert!(files.iter().all(|file| file.len() < 10), "{files:?}");
            }
            let file = &mut files[round % 3];
            let hint = file.last().map(|range| range.end);
            for part in free.allocate(1, hint).unwrap() {
                match file.last_mut().filter(|last| last.end == part.start) {
                    Some(last) => last.end = part.end,
                    None => file.push(part),
                }
            }
        }
        assert_eq!((free.blocks, free.allocate(1, None)), (0, None), "every block is used");
    }

    #[test]
    fn a_catalog_reads_back_as_written() {
        let mut catalog = Catalog { session: 3, ..Catalog::default() };
        catalog.notes.insert("superblock".into(), vec![1; 4096]);
        catalog.apply(&Record::Create { id: 0, key: FileKey::Named("a".into()) });
        catalog.apply(&Record::Reserve { id: 0, logical: 4, physical: 1000, count: 9 });
        catalog.apply(&Record::Map { id: 0, logical: 5, physical: 1001, count: 2 });
        catalog.apply(&Record::Grow { id: 0, length: 30_000 });
        let read = Catalog::decode(&catalog.encode(), 3).unwrap();
        assert_eq!(read.encode(), catalog.encode());
        assert_eq!(read.files[&0].extents.len(), 3);
        assert_eq!(read.free_space(900..1100).unwrap().blocks, 191);
        assert!(read.free_space(1002..1100).is_err() && read.free_space(0..1005).is_err());
    }
}
