//! Changing a file's content: the phases of a write, truncate, allocate and punch.

use super::{FileData, InFlightWrite, WriteGuard};
use crate::error::{Error, ErrorKind, Result};
use crate::group::Piece;
use cellar_format::units::RegionVersion;
use std::ops::Range;
use std::sync::atomic::Ordering;

impl FileData {
    /// Returns `offset + length`, or an error if that exceeds the maximum file size.
    pub fn check_end(&self, offset: u64, length: u64) -> Result<u64> {
        match offset.checked_add(length) {
            Some(end) if end <= super::SIZE_MAX => Ok(end),
            _ => Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "a range of {length} bytes at offset {offset} of inode {} exceeds the maximum file size",
                    self.ino
                ),
            )),
        }
    }
}

impl WriteGuard<'_> {
    /// Grows the size in memory to at least `end`.
    pub fn grow(&self, end: u64) {
        self.size.fetch_max(end, Ordering::AcqRel);
    }

    /// Makes a whole write visible to readers before the disks have any byte of it. `size` is the file's size before
    /// the write. Returns the new version of the regions that change.
    ///
    /// Bytes, size and version change in one step. A reader that reads the version, then the size and the bytes, then
    /// the same version again has seen all of them from before the write or all from after it.
    pub fn begin_write(&self, offset: u64, data: &[u8], size: u64) -> RegionVersion {
        let end = offset + data.len() as u64;
        let write = InFlightWrite { offset, data: data.into() };
        let mut in_flight = self.in_flight.write();
        debug_assert!(in_flight.is_none(), "inode {}: a second write is in flight", self.ino);
        *in_flight = Some(write);
        self.grow(end);
        // The gap between the old end of the file and the write changes too: it now reads as zeros.
        self.versions.bump(offset.min(size)..end)
    }

    /// Writes the data of a write in flight to the backing files. After an error, a part of it may have arrived.
    pub fn write_through(&self, offset: u64, data: &[u8]) -> Result<()> {
        match self.units() {
            Some(units) => self.write_over_units(units, offset, data),
            None => self.write_raw(offset, data),
        }
    }

    /// Returns whether a write of a range would first make a record of the write durable. The redo log is not considered.
    pub fn write_waits(&self, range: Range<u64>) -> bool {
        let mut pieces = self.layout.pieces(range);
        pieces.any(|Piece { disk_index, range }| self.backing[disk_index].write_waits(&range))
    }

    pub(super) fn write_raw(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.layout.pieces(offset..offset + data.len() as u64).try_for_each(|Piece { disk_index, range }| {
            let bytes = &data[(range.start - offset) as usize..(range.end - offset) as usize];
            self.backing[disk_index].write(bytes, range.start)
        })
    }

    /// Ends a write that the backing files contain completely.
    pub fn end_write(&self) {
        let _freed_after_unlock = self.in_flight.write().take();
    }

    /// Ends a failed write. The file has `size` bytes again, but some of the overwritten bytes may be new. `changed` is
    /// the range whose versions [`Self::begin_write`] changed; the caller removes the range from the page cache
    /// afterwards. The backing files may be longer than the file until [`Self::undo_growth`] or the next
    /// [`FileData::lock_write`].
    pub fn undo_write(&self, changed: Range<u64>, size: u64) {
        self.require_disks();
        self.is_overlong.store(true, Ordering::Release);
        let mut in_flight = self.in_flight.write();
        *in_flight = None;
        self.size.store(size, Ordering::Release);
        self.versions.bump(changed);
    }

    /// Truncates the backing files to the size of the file if a failed write has left them longer.
    pub fn undo_growth(&self) {
        if !self.is_overlong.swap(false, Ordering::AcqRel) {
            return;
        }
        let size = match self.size() {
            Ok(size) => size,
            Err(error) => return self.keep_overlong(&error),
        };
        for backing in &self.backing {
            if let Err(error) = backing.set_length(size, false) {
                self.keep_overlong(&error);
            }
        }
    }

    /// Lets the next change try again to undo a failed write.
    fn keep_overlong(&self, error: &Error) {
        log::warn!("could not undo a failed write: {error}");
        self.is_overlong.store(true, Ordering::Release);
    }

    /// Truncates or extends the file to `size` bytes.
    pub fn truncate(&self, size: u64) -> Result<()> {
        self.require_disks();
        let last_disk_index = self.layout.last_disk_index(size);
        for (disk_index, backing) in self.backing.iter().enumerate() {
            backing.set_length(size, Some(disk_index) == last_disk_index)?;
        }
        self.size.store(size, Ordering::Release);
        Ok(())
    }

    /// Allocates disk space for a range. Unless `keep_size`, the caller grows the size afterwards.
    pub fn allocate(&self, range: Range<u64>, keep_size: bool) -> Result<()> {
        self.require_disks();
        let size = self.size()?;
        let result = self.layout.pieces(range.clone()).try_for_each(|Piece { disk_index, range }| {
            self.backing[disk_index].allocate(range.start, range.end - range.start, keep_size)
        });
        if result.is_err() && range.end > size {
            self.is_overlong.store(true, Ordering::Release);
            self.undo_growth();
        }
        result
    }

    /// Makes a range of the backing files a hole.
    pub fn punch(&self, range: Range<u64>) -> Result<()> {
        self.require_disks();
        let mut pieces = self.layout.pieces(range);
        pieces.try_for_each(|Piece { disk_index, range }| {
            self.backing[disk_index].punch(range.start, range.end - range.start)
        })
    }
}
