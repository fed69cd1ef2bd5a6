//! Changing a file's bytes: into memory, through to disk, from memory to disk, and making them durable.

use super::{Extents, FileData, Pending};
use crate::error::{Error, ErrorKind, Result};
use crate::group::Piece;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One request of a flush is at most this long.
const REQUEST_MAX: u64 = 4 << 20;

impl FileData {
    /// Keeps a write in memory until the next flush. The caller holds `write`. Returns the change in pending bytes.
    pub fn write_pending(&self, offset: u64, data: &[u8]) -> isize {
        let mut pending = self.pending.write();
        let before = pending.active.bytes();
        pending.active.write(offset, data);
        pending.active.bytes() as isize - before as isize
    }

    /// Takes back a write that could not reach the disk; the file is as long as before. The caller holds `write`. Returns
    /// the bytes that no longer wait.
    pub fn undo_pending(&self, range: Range<u64>, size: u64) -> usize {
        let forgotten = {
            let mut pending = self.pending.write();
            let before = pending.active.bytes();
            pending.active.remove(range);
            before - pending.active.bytes()
        };
        self.size.store(size, Ordering::Release);
        for backing in &self.backing {
            if let Err(error) = backing.set_length(size, false) {
                log::warn!("after a failed write: {error}");
            }
        }
        forgotten
    }

    /// True when a background write failed and nobody knows yet: no more is to be kept in memory.
    pub fn has_unreported_error(&self) -> bool {
        self.pending.read().error.is_some()
    }

    /// Writes what waits in memory. Returns the bytes that no longer wait; on failure they all wait on.
    pub fn flush(&self) -> Result<usize> {
        let _flush = self.flush.lock();
        self.flush_locked()
    }

    fn flush_locked(&self) -> Result<usize> {
        let flushing = {
            let mut pending = self.pending.write();
            if pending.active.is_empty() {
                return Ok(0);
            }
            let Pending { active, flushing, .. } = &mut *pending;
            *flushing = Arc::new(std::mem::take(active));
            flushing.clone()
        };
        let dead = self.dead.load(Ordering::Acquire);
        let result = if dead { Ok(()) } else { self.write_extents(&flushing) };
        let mut pending = self.pending.write();
        pending.flushing = Arc::default();
        match result {
            Ok(()) => {
                // What failed before has reached the disk now, too.
                if pending.active.is_empty() {
                    pending.error = None;
                }
                Ok(flushing.bytes())
            }
            Err(error) => {
                // What came later lies over what failed.
                let later = std::mem::take(&mut pending.active);
                let mut merged = Arc::into_inner(flushing).expect("readers copy under the lock");
                later.iter().for_each(|(start, data)| merged.write(start, data));
                pending.active = merged;
                Err(error)
            }
        }
    }

    fn write_extents(&self, extents: &Extents) -> Result<()> {
        let mut run: Vec<&[u8]> = Vec::new();
        let (mut slot, mut start, mut end) = (0, 0, 0);
        for (offset, data) in extents.iter() {
            for piece in self.layout.pieces(offset..offset + data.len() as u64) {
                let Piece { slot: piece_slot, range } = piece;
                let bytes = &data[(range.start - offset) as usize..(range.end - offset) as usize];
                if !run.is_empty() && (range.start != end || piece_slot != slot || range.end - start > REQUEST_MAX) {
                    self.backing[slot].write(&run, start)?;
                    run.clear();
                }
                if run.is_empty() {
                    (slot, start) = (piece_slot, range.start);
                }
                run.push(bytes);
                end = range.end;
            }
        }
        if !run.is_empty() {
            self.backing[slot].write(&run, start)?;
        }
        Ok(())
    }

    /// Like `flush`, but a failure is also kept for the next `sync`.
    pub fn flush_in_background(&self) -> Result<usize> {
        self.flush().inspect_err(|error| {
            self.pending.write().error.get_or_insert_with(|| error.clone());
        })
    }

    /// Makes everything that was written before the call durable. Returns the bytes that no longer wait in memory.
    pub fn sync(&self) -> Result<usize> {
        let _sync = self.sync.lock();
        let flushed = self.flush()?;
        let earlier = self.pending.write().error.take();
        for backing in &self.backing {
            backing.sync()?;
        }
        match earlier {
            Some(error) => Err(error),
            None => Ok(flushed),
        }
    }

    /// Sets the size; the caller holds `write`. Returns the bytes that no longer wait in memory.
    pub fn truncate(&self, size: u64) -> Result<usize> {
        let _flush = self.flush.lock();
        let forgotten = {
            let mut pending = self.pending.write();
            let before = pending.active.bytes();
            pending.active.remove(size..u64::MAX);
            before - pending.active.bytes()
        };
        let last_slot = self.layout.last_slot(size);
        let waiting_end = self.pending.read().active.end();
        for (slot, backing) in self.backing.iter().enumerate() {
            // The flush of what waits extends the backing file by itself when it reaches the end.
            backing.set_length(size, Some(slot) == last_slot && waiting_end < size)?;
        }
        self.size.store(size, Ordering::Release);
        Ok(forgotten)
    }

    /// Reserves room; the caller holds `write` and grows the size afterwards unless it keeps the size.
    pub fn allocate(&self, range: Range<u64>, keep_size: bool) -> Result<()> {
        let size = self.size()?;
        let result = self.layout.pieces(range.clone()).try_for_each(|Piece { slot, range }| {
            self.backing[slot].allocate(range.start, range.end - range.start, keep_size)
        });
        if result.is_err() && range.end > size {
            for backing in &self.backing {
                backing.set_length(size, false)?;
            }
        }
        result
    }

    /// Makes a range a hole; the caller holds `write`. Returns the bytes that no longer wait in memory.
    pub fn punch(&self, range: Range<u64>) -> Result<usize> {
        let _flush = self.flush.lock();
        let flushed = self.flush_locked()?;
        for Piece { slot, range } in self.layout.pieces(range) {
            self.backing[slot].punch(range.start, range.end - range.start)?;
        }
        Ok(flushed)
    }

    /// Drops what waits in memory, for a file that nobody can reach any more; returns the bytes.
    pub fn forget_pending(&self) -> usize {
        let _flush = self.flush.lock();
        let mut pending = self.pending.write();
        std::mem::take(&mut pending.active).bytes()
    }

    /// An error for a write that would end past the largest file.
    pub fn check_end(&self, offset: u64, length: u64) -> Result<u64> {
        match offset.checked_add(length) {
            Some(end) if end <= super::SIZE_MAX => Ok(end),
            _ => Err(Error::new(ErrorKind::TooLarge, format!("inode {} cannot grow to {offset}+{length}", self.ino))),
        }
    }
}
