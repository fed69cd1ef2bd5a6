//! Where the bytes of files lie on a modelled device.
//!
//! Files get chunks of 64 KiB, in the order of their first writes. A chunk follows the chunk before it in the file, also across a
//! hole, as long as that address is free. The placement is in memory only: files that exist when the disk is opened are
//! placed when they are first opened, each in the order of its offsets.

use crate::disk::{DiskFile, FileKey};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;

const CHUNK: u64 = 64 << 10;
/// Chunks of a group, whose use is one word. A file starts in an empty group while there is one.
const GROUP: u64 = u64::BITS as u64;

#[derive(Debug)]
pub struct Placement {
    /// One bit for each chunk of the device that a file uses.
    used: Vec<u64>,
    used_chunks: u64,
    /// Chunks of the device.
    chunks: u64,
    /// Groups below have been given out; they may be empty again.
    next_group: usize,
    files: HashMap<FileKey, BTreeMap<u64, u64>>,
}

impl Placement {
    pub fn new(capacity_bytes: u64) -> Self {
        let chunks = capacity_bytes / CHUNK;
        let used = vec![0; chunks.div_ceil(GROUP) as usize];
        Self { used, used_chunks: 0, chunks, next_group: 0, files: HashMap::new() }
    }

    pub fn free_bytes(&self) -> u64 {
        (self.chunks - self.used_chunks) * CHUNK
    }

    /// Places a file that was opened. A file that is known keeps its place.
    pub fn opened(&mut self, key: &FileKey, file: &dyn DiskFile) -> io::Result<()> {
        if self.files.contains_key(key) {
            return Ok(());
        }
        self.files.insert(key.clone(), BTreeMap::new());
        let length = file.len()?;
        for chunk in 0..length.div_ceil(CHUNK) {
            if !file.is_hole(chunk * CHUNK, CHUNK)? {
                self.place(key, chunk * CHUNK..(chunk * CHUNK + 1))?;
            }
        }
        Ok(())
    }

    /// Gives addresses to the chunks of a range that have none. The error of a full device leaves some of them placed.
    pub fn place(&mut self, key: &FileKey, range: Range<u64>) -> io::Result<()> {
        for chunk in chunks(&range) {
            let file = self.files.entry(key.clone()).or_default();
            if file.contains_key(&chunk) {
                continue;
            }
            let previous = file.range(..chunk).next_back().map(|(_, address)| address + 1);
            let address = match previous.filter(|address| *address < self.chunks && !self.is_used(*address)) {
                Some(address) => address,
                None => self.find()?,
            };
            self.used[(address / GROUP) as usize] |= 1 << (address % GROUP);
            self.used_chunks += 1;
            self.files.get_mut(key).expect("just inserted").insert(chunk, address);
        }
        Ok(())
    }

    fn is_used(&self, address: u64) -> bool {
        self.used[(address / GROUP) as usize] >> (address % GROUP) & 1 == 1
    }

    /// Returns a free chunk: the first of the next empty group, or else any.
    fn find(&mut self) -> io::Result<u64> {
        if self.used_chunks == self.chunks {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let empty = (self.next_group..self.used.len()).chain(0..self.next_group).find(|group| self.used[*group] == 0);
        if let Some(group) = empty {
            self.next_group = group + 1;
            return Ok(group as u64 * GROUP);
        }
        let free = (0..self.chunks).find(|address| !self.is_used(*address));
        Ok(free.expect("not all chunks are used"))
    }

    /// Returns the device ranges of a file's range, without holes. Neighbours are joined.
    pub fn ranges(&self, key: &FileKey, range: Range<u64>) -> Vec<Range<u64>> {
        let mut found: Vec<Range<u64>> = Vec::new();
        let Some(file) = self.files.get(key).filter(|_| !range.is_empty()) else { return found };
        for (chunk, address) in file.range(chunks(&range)) {
            let start = range.start.max(chunk * CHUNK) - chunk * CHUNK + address * CHUNK;
            let end = range.end.min((chunk + 1) * CHUNK) - chunk * CHUNK + address * CHUNK;
            match found.last_mut().filter(|last| last.end == start) {
                Some(last) => last.end = end,
                None => found.push(start..end),
            }
        }
        found
    }

    /// Frees the chunks that are wholly in a range, and returns their device ranges.
    pub fn free(&mut self, key: &FileKey, range: Range<u64>) -> Vec<Range<u64>> {
        let whole = range.start.div_ceil(CHUNK)..(range.end / CHUNK).max(range.start.div_ceil(CHUNK));
        let Some(file) = self.files.get_mut(key) else { return Vec::new() };
        let mut rest = file.split_off(&whole.start);
        file.append(&mut rest.split_off(&whole.end));
        for address in rest.values() {
            self.used[(address / GROUP) as usize] &= !(1 << (address % GROUP));
        }
        self.used_chunks -= rest.len() as u64;
        rest.values().map(|address| address * CHUNK..(address + 1) * CHUNK).collect()
    }

    /// Frees all chunks of a file, and returns their device ranges.
    pub fn remove(&mut self, key: &FileKey) -> Vec<Range<u64>> {
        let freed = self.free(key, 0..u64::MAX);
        self.files.remove(key);
        freed
    }
}

fn chunks(range: &Range<u64>) -> Range<u64> {
    range.start / CHUNK..range.end.div_ceil(CHUNK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Stream;

    fn key(ino: u64) -> FileKey {
        FileKey::OfInode(ino, Stream::Data)
    }

    #[test]
    fn files_that_grow_together_stay_contiguous() {
        let mut placement = Placement::new(64 << 20);
        for chunk in 0..40 {
            for ino in 0..2 {
                placement.place(&key(ino), chunk * CHUNK..(chunk + 1) * CHUNK).unwrap();
            }
        }
        for ino in 0..2 {
            let ranges = placement.ranges(&key(ino), 100..40 * CHUNK);
            assert_eq!(ranges, vec![ino * GROUP * CHUNK + 100..(ino * GROUP + 40) * CHUNK]);
        }
    }

    #[test]
    fn a_full_device_has_space_again_after_a_removal() {
        let mut placement = Placement::new(10 << 20);
        placement.place(&key(1), 0..5 << 20).unwrap();
        placement.place(&key(2), 0..5 << 20).unwrap();
        let error = placement.place(&key(2), 5 << 20..6 << 20).unwrap_err();
        assert_eq!((error.kind(), placement.free_bytes()), (io::ErrorKind::StorageFull, 0));
        placement.free(&key(1), 1 << 20..3 << 20);
        assert_eq!(placement.free_bytes(), 2 << 20);
        placement.place(&key(2), 5 << 20..7 << 20).unwrap();
        assert!(placement.ranges(&key(1), 1 << 20..3 << 20).is_empty());
        placement.remove(&key(2));
        assert_eq!(placement.free_bytes(), 7 << 20);
    }
}
