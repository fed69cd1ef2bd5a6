//! The log of pending pages: what was written over a compression unit since the metadata last named its dead pages.
//!
//! A record holds the page's whole new content. The page itself was written to the backing file before; the record makes
//! it count after the daemon's death, and after a power loss when it happens to have reached the disk. The log is never
//! synced: a sync makes the page and the metadata durable instead, after which the record is not needed.
//!
//! Two segments: a sync turns to the empty one first, so that records of pages written during the sync stay when it
//! empties the other. Layout and reasoning: `docs/format/disk.md`.

use super::super::backing::Backing;
use super::PAGE_BYTES;
use crate::error::Result;
use cellar_format::bytes::{Reader, Write};
use std::collections::BTreeMap;

const MAGIC: u32 = u32::from_le_bytes(*b"CPND");
const HEADER_BYTES: usize = 40;
const RECORD_BYTES: usize = HEADER_BYTES + PAGE_BYTES;
/// With more than this the writer itself syncs the file.
const LOG_BYTES_MAX: u64 = 32 << 20;

#[derive(Debug)]
pub struct PendingLog {
    ino: u64,
    segments: [Backing; 2],
    lengths: [u64; 2],
    active: usize,
    next_stamp: u64,
}

/// Where the newest record of a page lies.
#[derive(Debug, Clone, Copy)]
struct Found {
    stamp: u64,
    segment: usize,
    offset: u64,
}

/// The newest records of all pages, by allocation unit and page.
#[derive(Debug, Default)]
pub struct Records(BTreeMap<(u64, u32), Found>);

impl PendingLog {
    pub fn new(ino: u64, segments: [Backing; 2]) -> Self {
        Self { ino, segments, lengths: [0; 2], active: 0, next_stamp: 1 }
    }

    /// A number above that of every record before, and not above that of any later one.
    pub fn take_stamp(&mut self) -> u64 {
        self.next_stamp += 1;
        self.next_stamp
    }

    /// No stamp up to this one will be given again.
    pub fn skip_stamps(&mut self, stamp: u64) {
        self.next_stamp = self.next_stamp.max(stamp + 1);
    }

    /// Brings the new content of pages (allocation unit, page, bytes) to the operating system.
    pub fn append<'a>(&mut self, pages: impl Iterator<Item = (u64, u32, &'a [u8])>) -> Result<()> {
        let mut bytes = Vec::new();
        for (au, page, content) in pages {
            assert_eq!(content.len(), PAGE_BYTES);
            self.next_stamp += 1;
            let start = bytes.len();
            bytes.put_u32(0);
            bytes.put_u32(MAGIC);
            bytes.put_u64(self.ino);
            bytes.put_u64(au);
            bytes.put_u64(self.next_stamp);
            bytes.put_u32(page);
            bytes.put_u32(0);
            bytes.put_bytes(content);
            let checksum = crc32c::crc32c(&bytes[start + 4..]);
            bytes[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
        }
        let (segment, length) = (&self.segments[self.active], self.lengths[self.active]);
        if let Err(error) = segment.write(&bytes, length) {
            // What arrived of it must not count.
            if let Err(error) = segment.set_length(length, true) {
                log::warn!("after a failed write: {error}");
            }
            return Err(error);
        }
        self.lengths[self.active] += bytes.len() as u64;
        Ok(())
    }

    pub fn is_full(&self) -> bool {
        self.lengths[0] + self.lengths[1] > LOG_BYTES_MAX
    }

    /// Turns to the other segment if that is empty: what is appended from now on outlives the next [`Self::empty`].
    pub fn turn(&mut self) {
        if self.lengths[1 - self.active] == 0 {
            self.active = 1 - self.active;
        }
    }

    /// Empties the segment that is not appended to.
    pub fn empty(&mut self) -> Result<()> {
        let other = 1 - self.active;
        if self.lengths[other] > 0 {
            self.segments[other].clear()?;
            self.lengths[other] = 0;
        }
        Ok(())
    }

    /// Finds the log that an earlier daemon left.
    pub fn open(&mut self) -> Result<()> {
        for (length, segment) in self.lengths.iter_mut().zip(&self.segments) {
            // A record that was cut short counts no more, but its room does: records lie at multiples of their size.
            *length = segment.length()?.next_multiple_of(RECORD_BYTES as u64);
        }
        Ok(())
    }

    /// The newest whole record of each page.
    pub fn records(&mut self) -> Result<Records> {
        let mut records = Records::default();
        let mut bytes = vec![0; RECORD_BYTES];
        for segment in 0..2 {
            for offset in (0..self.lengths[segment]).step_by(RECORD_BYTES) {
                self.segments[segment].read(&mut bytes, offset, false)?;
                let Some((au, page, stamp)) = parse(&bytes, self.ino) else { continue };
                self.next_stamp = self.next_stamp.max(stamp);
                let found = Found { stamp, segment, offset };
                let newest = records.0.entry((au, page)).or_insert(found);
                if newest.stamp < stamp {
                    *newest = found;
                }
            }
        }
        Ok(records)
    }

    /// Calls `apply` with allocation unit, page, stamp and content of each record.
    pub fn replay(&self, records: &Records, mut apply: impl FnMut(u64, u32, u64, &[u8]) -> Result<()>) -> Result<()> {
        let mut bytes = vec![0; RECORD_BYTES];
        for ((au, page), found) in &records.0 {
            self.segments[found.segment].read(&mut bytes, found.offset, false)?;
            if parse(&bytes, self.ino) == Some((*au, *page, found.stamp)) {
                apply(*au, *page, found.stamp, &bytes[HEADER_BYTES..])?;
            }
        }
        Ok(())
    }

    pub fn segments(&self) -> &[Backing] {
        &self.segments
    }
}

/// Allocation unit, page and stamp of a whole record of this file.
fn parse(bytes: &[u8], ino: u64) -> Option<(u64, u32, u64)> {
    let mut reader = Reader::new(bytes);
    let checksum = reader.u32("checksum").ok()?;
    if checksum != crc32c::crc32c(&bytes[4..]) || reader.u32("magic").ok()? != MAGIC || reader.u64("inode").ok()? != ino
    {
        return None;
    }
    let (au, stamp, page) = (reader.u64("unit").ok()?, reader.u64("stamp").ok()?, reader.u32("page").ok()?);
    Some((au, page, stamp))
}
