//! Changing a file's bytes: the write under way, from its first byte to its last; cuts, holes, room; the sync.

use super::{FileData, UnderWay};
use crate::error::{Error, ErrorKind, Result};
use crate::group::Piece;
use std::ops::Range;
use std::sync::atomic::Ordering;

impl FileData {
    /// Shows a write to readers and loaders, whole, before the disks have any of it; the caller holds `write`, and
    /// `size` is the file's before. Returns the new version of the regions that change.
    ///
    /// Bytes, size and version change in one step for whoever reads a version, then the size, then the bytes, then the
    /// version again: the same number twice, and all three are of before the write, or all of after it.
    pub fn begin_write(&self, offset: u64, data: &[u8], size: u64) -> u64 {
        let end = offset + data.len() as u64;
        let write = UnderWay { offset, data: data.into() };
        let mut under_way = self.under_way.write();
        debug_assert!(under_way.is_none(), "inode {}: two writes at once", self.ino);
        *under_way = Some(write);
        self.grow(end);
        // A gap between the old end and the write comes into being as zeros.
        self.versions.bump(offset.min(size)..end)
    }

    /// Sends a write under way to the backing files; on failure a part of it may have arrived.
    pub fn write_through(&self, offset: u64, data: &[u8]) -> Result<()> {
        match self.units() {
            Some(units) => self.write_mixed(units, offset, data),
            None => self.write_raw(offset, data),
        }
    }

    pub(super) fn write_raw(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.layout.pieces(offset..offset + data.len() as u64).try_for_each(|Piece { slot, range }| {
            let bytes = &data[(range.start - offset) as usize..(range.end - offset) as usize];
            self.backing[slot].write(bytes, range.start)
        })
    }

    /// Ends a write all of which the backing files have.
    pub fn end_write(&self) {
        let _freed_unlocked = self.under_way.write().take();
    }

    /// Takes back a write that failed: the file is `size` bytes long, as before; of the bytes that were to be replaced,
    /// some may be new. `changed` is the range that `begin_write` gave a version; the caller then forgets what is
    /// cached of it.
    pub fn undo_write(&self, changed: Range<u64>, size: u64) {
        // The cut is done while readers still find the write whole.
        for backing in &self.backing {
            if let Err(error) = backing.set_length(size, false) {
                log::warn!("after a failed write: {error}");
            }
        }
        let mut under_way = self.under_way.write();
        *under_way = None;
        self.size.store(size, Ordering::Release);
        self.versions.bump(changed);
    }

    /// Makes everything durable that was acknowledged before the call, of a file that has no units.
    pub fn sync(&self) -> Result<()> {
        let _sync = self.sync.lock();
        self.sync_backing()?;
        self.owed.lock().take().map_or(Ok(()), Err)
    }

    /// Syncs the backing files; the caller holds the sync's lock.
    pub fn sync_backing(&self) -> Result<()> {
        self.backing.iter().try_for_each(|backing| backing.sync())
    }

    /// Keeps the error of a sync that nobody had asked for.
    pub fn owe(&self, error: Error) {
        self.owed.lock().get_or_insert(error);
    }

    /// The error of an earlier sync that nobody was told about.
    pub fn owed(&self) -> Option<Error> {
        self.owed.lock().take()
    }

    /// Sets the size; the caller holds `write`.
    pub fn truncate(&self, size: u64) -> Result<()> {
        let last_slot = self.layout.last_slot(size);
        for (slot, backing) in self.backing.iter().enumerate() {
            backing.set_length(size, Some(slot) == last_slot)?;
        }
        self.size.store(size, Ordering::Release);
        Ok(())
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

    /// Makes a range a hole; the caller holds `write`.
    pub fn punch(&self, range: Range<u64>) -> Result<()> {
        let mut pieces = self.layout.pieces(range);
        pieces.try_for_each(|Piece { slot, range }| self.backing[slot].punch(range.start, range.end - range.start))
    }

    /// An error for a write that would end past the largest file.
    pub fn check_end(&self, offset: u64, length: u64) -> Result<u64> {
        match offset.checked_add(length) {
            Some(end) if end <= super::SIZE_MAX => Ok(end),
            _ => Err(Error::new(ErrorKind::TooLarge, format!("inode {} cannot grow to {offset}+{length}", self.ino))),
        }
    }
}
