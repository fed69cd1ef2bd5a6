//! Byte ranges that were written but not yet sent to disk: disjoint, sorted, coalesced when written in sequence.
//!
//! Invariants: extents never overlap and are never empty; none grows past [`EXTENT_MAX`]; the byte count is exact.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;

/// An extent stops growing here, so that appending to it stays cheap and a flush can be cut into requests.
const EXTENT_MAX: usize = 1 << 20;

/// From here on an extent that is appended to gets a full-size buffer.
const POOLED_MIN: usize = 64 << 10;
const POOL_MAX: usize = 64;

/// Full-size buffers for reuse: fresh ones cost a page fault for every 4 KiB.
static POOL: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

#[derive(Debug, Default)]
pub struct Extents {
    by_start: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
}

impl Extents {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.by_start.iter().map(|(start, data)| (*start, data.as_slice()))
    }

    /// The first byte after the last extent.
    pub fn end(&self) -> u64 {
        self.by_start.last_key_value().map_or(0, |(start, data)| start + data.len() as u64)
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let end = offset + data.len() as u64;
        if let Some((start, extent)) = self.by_start.range_mut(..=offset).next_back() {
            let at = (offset - start) as usize;
            if at + data.len() <= extent.len() {
                extent[at..at + data.len()].copy_from_slice(data);
                return;
            }
        }
        self.remove(offset..end);
        self.bytes += data.len();
        if let Some((start, extent)) = self.by_start.range_mut(..offset).next_back()
            && start + extent.len() as u64 == offset
            && extent.len() + data.len() <= EXTENT_MAX
        {
            append(extent, data);
            return;
        }
        self.by_start.insert(offset, data.to_vec());
    }

    /// Forgets a range; extents that reach into it are cut.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        if let Some((&start, extent)) = self.by_start.range_mut(..range.start).next_back() {
            let end = start + extent.len() as u64;
            if end > range.start {
                if end > range.end {
                    let tail = extent[(range.end - start) as usize..].to_vec();
                    self.bytes += tail.len();
                    self.by_start.insert(range.end, tail);
                }
                let extent = self.by_start.get_mut(&start).expect("just found");
                self.bytes -= (end - range.start) as usize;
                extent.truncate((range.start - start) as usize);
            }
        }
        while let Some((&start, extent)) = self.by_start.range(range.clone()).next() {
            let end = start + extent.len() as u64;
            let extent = self.by_start.remove(&start).expect("just found");
            self.bytes -= extent.len();
            if end > range.end {
                let tail = extent[(range.end - start) as usize..].to_vec();
                self.bytes += tail.len();
                self.by_start.insert(range.end, tail);
            }
        }
    }

    /// The parts of `range` that extents cover.
    pub fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &[u8])> {
        let first = match self.by_start.range(..range.start).next_back() {
            Some((start, extent)) if start + extent.len() as u64 > range.start => *start,
            _ => range.start,
        };
        let Range { start: from, end: to } = range;
        self.by_start.range(first..to.max(first)).map(move |(&start, extent)| {
            let cut_start = from.max(start);
            let cut_end = to.min(start + extent.len() as u64);
            (cut_start, &extent[(cut_start - start) as usize..(cut_end - start) as usize])
        })
    }
}

fn append(extent: &mut Vec<u8>, data: &[u8]) {
    let length = extent.len() + data.len();
    if length > extent.capacity() && length > POOLED_MIN {
        let mut buffer = POOL.lock().pop().unwrap_or_else(|| Vec::with_capacity(EXTENT_MAX));
        buffer.clear();
        buffer.extend_from_slice(extent);
        *extent = buffer;
    }
    extent.extend_from_slice(data);
}

impl Drop for Extents {
    fn drop(&mut self) {
        let full_size = std::mem::take(&mut self.by_start).into_values().filter(|data| data.capacity() == EXTENT_MAX);
        let mut full_size = full_size.peekable();
        if full_size.peek().is_some() {
            let mut pool = POOL.lock();
            let room = POOL_MAX.saturating_sub(pool.len());
            pool.extend(full_size.take(room));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(extents: &Extents, model: &BTreeMap<u64, u8>) {
        let mut flat = BTreeMap::new();
        let mut last_end = 0;
        for (start, data) in extents.iter() {
            assert!(start >= last_end && !data.is_empty());
            last_end = start + data.len() as u64;
            flat.extend(data.iter().enumerate().map(|(at, byte)| (start + at as u64, *byte)));
        }
        assert_eq!(extents.bytes(), model.len());
        assert_eq!(&flat, model);
    }

    #[test]
    fn random_writes_and_removals_match_a_byte_map() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |limit: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % limit
        };
        let (mut extents, mut model) = (Extents::default(), BTreeMap::new());
        for step in 0..4000 {
            let (start, length) = (next(300), next(40));
            if next(3) == 0 {
                extents.remove(start..start + length);
                (start..start + length).for_each(|at| _ = model.remove(&at));
            } else {
                extents.write(start, &vec![step as u8; length as usize]);
                (start..start + length).for_each(|at| _ = model.insert(at, step as u8));
            }
            check(&extents, &model);
            let (from, to) = (next(300), next(60));
            let mut copied = vec![0; to as usize];
            for (start, data) in extents.overlapping(from..from + to) {
                let at = (start - from) as usize;
                copied[at..at + data.len()].copy_from_slice(data);
            }
            let expected: Vec<u8> = (from..from + to).map(|at| model.get(&at).copied().unwrap_or(0)).collect();
            assert_eq!(copied, expected);
        }
    }

    #[test]
    fn appends_in_sequence_become_one_extent() {
        let mut extents = Extents::default();
        (0..16).for_each(|block| extents.write(block * 8192, &[block as u8; 8192]));
        assert_eq!(extents.iter().count(), 1);
    }
}
