//! The redo log of a file: full images of pages that were written over a compression unit and that the metadata do not
//! yet name superseded.
//!
//! A write stores the page in the backing file first, then appends the page's record to the log. The log is never
//! synced. After a crash of the process, the record is in the operating system's memory and restores the page. After a
//! loss of power, the record exists only if it happened to reach the disk. A checkpoint syncs the page and commits the
//! metadata, which makes the record obsolete.
//!
//! The log has two segments. A checkpoint first switches appends to the empty segment, so that records of pages written
//! during the checkpoint survive when the checkpoint empties the other segment. Layout and reasoning:
//! `docs/format/disk.md`.

use super::PAGE_BYTES;
use crate::error::Result;
use crate::file::backing::Backing;
use cellar_format::bytes::{Reader, Write};
use cellar_format::units::{AuIndex, PageInAu};
use std::collections::BTreeMap;
use std::sync::Arc;

const MAGIC: u32 = u32::from_le_bytes(*b"CPND");
const HEADER_BYTES: usize = 40;
/// Bytes of a record: header and page.
pub const RECORD_BYTES: usize = HEADER_BYTES + PAGE_BYTES;
/// A writer that finds the log longer than this requests a checkpoint in the background.
const CHECKPOINT_BYTES: u64 = 32 << 20;
/// A writer that finds the log longer than this waits for a checkpoint. Bounds the log to this length and one write, and
/// so the duration of recovery.
const LOG_BYTES_MAX: u64 = 2 * CHECKPOINT_BYTES;

/// Position in the redo log of a file. Log sequences increase from record to record. The log sequence of a compression
/// unit is above those of all records whose content the unit includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogSequence(pub u64);

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRecord {
    pub au: AuIndex,
    pub page: PageInAu,
    pub sequence: LogSequence,
}

#[derive(Debug)]
pub struct RedoLog {
    ino: u64,
    segments: [Arc<Backing>; 2],
    lengths: [u64; 2],
    /// Index of the segment that records are appended to.
    active: usize,
    last_sequence: u64,
}

/// The location of a record.
#[derive(Debug, Clone, Copy)]
struct Location {
    segment: usize,
    offset: u64,
}

impl RedoLog {
    pub fn new(ino: u64, segments: [Backing; 2]) -> Self {
        Self { ino, segments: segments.map(Arc::new), lengths: [0; 2], active: 0, last_sequence: 1 }
    }

    /// Returns a sequence above the sequence of every earlier record and below the sequence of every later record.
    pub fn next_sequence(&mut self) -> LogSequence {
        self.last_sequence += 1;
        LogSequence(self.last_sequence)
    }

    /// Makes all later sequences higher than `sequence`.
    pub fn advance_beyond(&mut self, sequence: LogSequence) {
        self.last_sequence = self.last_sequence.max(sequence.0 + 1);
    }

    /// Writes records of pages (allocation unit, page in it, whole new content) to the active segment. After an error
    /// the log contains none of these records.
    pub fn append<'a>(&mut self, pages: impl Iterator<Item = (AuIndex, PageInAu, &'a [u8])>) -> Result<()> {
        let mut bytes = Vec::new();
        for (au, page, content) in pages {
            assert_eq!(content.len(), PAGE_BYTES);
            let sequence = self.next_sequence();
            let start = bytes.len();
            bytes.put_u32(0);
            bytes.put_u32(MAGIC);
            bytes.put_u64(self.ino);
            bytes.put_u64(au.index());
            bytes.put_u64(sequence.0);
            bytes.put_u32(page.0);
            bytes.put_u32(0);
            bytes.put_bytes(content);
            let checksum = crc32c::crc32c(&bytes[start + 4..]);
            bytes[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
        }
        let (segment, length) = (&self.segments[self.active], self.lengths[self.active]);
        if let Err(error) = segment.write(&bytes, length) {
            // A prefix of the records may have arrived; it must not be replayed.
            if let Err(error) = segment.set_length(length, true) {
                log::warn!("could not undo a failed write: {error}");
            }
            return Err(error);
        }
        self.lengths[self.active] += bytes.len() as u64;
        Ok(())
    }

    /// Returns the length of both segments in bytes.
    pub fn length(&self) -> u64 {
        self.lengths[0] + self.lengths[1]
    }

    /// Returns whether the log is long enough for a checkpoint.
    pub fn needs_checkpoint(&self) -> bool {
        self.length() > CHECKPOINT_BYTES
    }

    /// Returns whether a checkpoint must shorten the log before the next write.
    pub fn is_full(&self) -> bool {
        self.length() > LOG_BYTES_MAX
    }

    /// Makes the other segment active if it is empty: records appended from now on survive the end of the checkpoint
    /// that begins now.
    pub fn switch_segment(&mut self) {
        if self.lengths[1 - self.active] == 0 {
            self.active = 1 - self.active;
        }
    }

    /// Returns the segment that is not active, to be emptied; None if the segment is empty.
    pub fn inactive(&self) -> Option<Arc<Backing>> {
        let inactive = 1 - self.active;
        (self.lengths[inactive] > 0).then(|| self.segments[inactive].clone())
    }

    /// Records that the segment that is not active was emptied.
    pub fn note_emptied(&mut self) {
        self.lengths[1 - self.active] = 0;
    }

    /// Measures the segments of an earlier process, so that appends follow their records.
    pub fn open(&mut self) -> Result<()> {
        for (length, segment) in self.lengths.iter_mut().zip(&self.segments) {
            // Records start at multiples of their size, so an append skips the space of a partial record.
            *length = segment.length()?.next_multiple_of(RECORD_BYTES as u64);
        }
        Ok(())
    }

    /// Calls `apply` with the header and the content of the newest valid record of each page.
    pub fn replay(&mut self, mut apply: impl FnMut(LogRecord, &[u8]) -> Result<()>) -> Result<()> {
        let newest = self.newest_records()?;
        let mut bytes = vec![0; RECORD_BYTES];
        for (record, Location { segment, offset }) in newest {
            self.segments[segment].read(&mut bytes, offset, false)?;
            if parse(&bytes, self.ino) == Some(record) {
                apply(record, &bytes[HEADER_BYTES..])?;
            }
        }
        Ok(())
    }

    /// Returns the newest valid record of each page, in order of allocation unit and page.
    fn newest_records(&mut self) -> Result<Vec<(LogRecord, Location)>> {
        let mut newest: BTreeMap<(AuIndex, PageInAu), (LogRecord, Location)> = BTreeMap::new();
        let mut bytes = vec![0; RECORD_BYTES];
        for segment in 0..2 {
            for offset in (0..self.lengths[segment]).step_by(RECORD_BYTES) {
                self.segments[segment].read(&mut bytes, offset, false)?;
                let Some(record) = parse(&bytes, self.ino) else { continue };
                self.last_sequence = self.last_sequence.max(record.sequence.0);
                let found = (record, Location { segment, offset });
                let known = newest.entry((record.au, record.page)).or_insert(found);
                if known.0.sequence < record.sequence {
                    *known = found;
                }
            }
        }
        Ok(newest.into_values().collect())
    }

    pub fn segments(&self) -> &[Arc<Backing>] {
        &self.segments
    }
}

/// Decodes the header of a record; None if the checksum fails or the record belongs to another inode.
fn parse(bytes: &[u8], ino: u64) -> Option<LogRecord> {
    let mut reader = Reader::new(bytes);
    let checksum = reader.u32("checksum").ok()?;
    if checksum != crc32c::crc32c(&bytes[4..]) || reader.u32("magic").ok()? != MAGIC || reader.u64("inode").ok()? != ino
    {
        return None;
    }
    let au = AuIndex(reader.u64("allocation unit").ok()?);
    let sequence = LogSequence(reader.u64("log sequence").ok()?);
    Some(LogRecord { au, page: PageInAu(reader.u32("page").ok()?), sequence })
}
