//! File content: read, write, truncate, fallocate, copy, and the syncs.
//!
//! A change takes the file's `write` lock, gives the touched regions new versions and reaches the cached regions and
//! the backing files, all before the call returns. Until the backing files have all of a write, readers find it in
//! memory: a loader never takes half of it for a region.

use super::settle::fail_unasked;
use super::{Ino, Volume, now};
use crate::error::{Error, ErrorKind, Result};
use crate::file::{FileData, PAGE, Place, Units, regions};
use cellar_format::units::REGION_BYTES;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes moved at once by a copy.
const COPY_CHUNK: usize = 1 << 20;

/// What to do with a range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallocate {
    /// Reserve room; with `keep_size` the file does not grow.
    Reserve { keep_size: bool },
    /// Give the room back; the range reads as zeros, the size stays.
    PunchHole,
    /// Make the range read as zeros, with room reserved.
    Zero { keep_size: bool },
}

impl Volume {
    /// Reads at `offset`; short only at the end of the file.
    pub fn read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let file = self.file(ino)?;
        let region_bytes = REGION_BYTES as u64;
        let region = offset / region_bytes;
        let at = (offset % region_bytes) as usize;
        if at + buffer.len() <= REGION_BYTES
            && let Some(cached) = self.cache.find(&file.cached, region as u32)
            && region <= u64::from(u32::MAX)
        {
            let bytes = cached.bytes().get(at..).unwrap_or_default();
            let count = bytes.len().min(buffer.len());
            // A region that ends early may have been followed by more since; then the file knows better.
            if count == buffer.len() {
                buffer.copy_from_slice(&bytes[..count]);
                return Ok(count);
            }
        }
        file.read(buffer, offset).map_err(|error| self.named(ino, error))
    }

    /// As [`Self::read`], with all bytes that a version taken before announced, also of a write under way.
    pub fn read_announced(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.file(ino)?.read(buffer, offset).map_err(|error| self.named(ino, error))
    }

    /// Writes at `offset`, growing the file as needed; all of `data` or an error.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        let file = self.file(ino)?;
        let end = file.check_end(offset, data.len() as u64)?;
        let write = file.write.lock();
        let size = file.size()?;
        // What replaces bytes of the file has its room already, unless they lie in a compression unit.
        if end > size || file.units().is_some() {
            self.with_reclaim(|| self.check_room(end - offset))?;
        }
        file.halves.begin(&(offset..end));
        let version = file.begin_write(offset, data, size);
        if offset > size {
            // What is cached of the gap ends at the old end of the file.
            self.forget_cached(&file, size..offset);
        }
        self.cache.patch(&file.cached, offset, data, version);
        if let Err(error) = self.with_reclaim(|| file.write_through(offset, data)) {
            let changed = offset.min(size)..end;
            file.undo_write(changed.clone(), size);
            self.forget_cached(&file, changed);
            return Err(self.named(ino, error));
        }
        file.end_write();
        file.halves.end(&(offset..end));
        self.touch_content(&file);
        drop(write);
        self.settle_when_full(&file);
        Ok(data.len())
    }

    /// Cuts the file or extends it with a hole. A cut through compression units is durable on return.
    pub fn truncate(&self, ino: Ino, size: u64) -> Result<()> {
        let file = self.file(ino)?;
        file.check_end(size, 0)?;
        let _locks = file.lock_for_cut();
        let before = file.size()?;
        if before == size {
            return Ok(());
        }
        let units = file.units().filter(|_| size < before);
        if let Some(units) = units.filter(|_| !size.is_multiple_of(PAGE)) {
            // The rest of the page at the end becomes zeros with the cut of its raw form.
            file.materialize(units, size)?;
        }
        let first_change = before.min(size);
        file.versions.bump_from(first_change);
        let result = file.truncate(size);
        // What comes past the cut later must not be mistaken for what units hold there.
        let cut = units.filter(|_| result.is_ok()).map(|units| (units, units.cut(size)));
        // Once more: who loaded a region meanwhile may have seen the old bytes or the new.
        file.versions.bump_from(first_change);
        self.cache.forget(&file.cached, (first_change / REGION_BYTES as u64) as u32, u32::MAX);
        result?;
        self.touch_content(&file);
        match cut {
            Some((units, (changed, unused))) if !changed.is_empty() => self.settle_cut(&file, units, changed, unused),
            _ => Ok(()),
        }
    }

    /// Makes durable which pages are in no unit any more. The caller holds the file's locks for a cut.
    fn settle_cut(&self, file: &FileData, units: &Units, changed: Vec<u64>, unused: Vec<Arc<Place>>) -> Result<()> {
        let mut sequence = self.namespace.write().mark_extents(file.ino, changed);
        if !unused.is_empty() {
            sequence = self.drop_places(file.ino, unused.into_iter().map(|place| (place.au, place)).collect());
        }
        let settling = file.begin_settling(units)?;
        self.settle(file, units, &settling, sequence).inspect_err(|error| fail_unasked(file, units, error))
    }

    /// Makes the pages of a range zeros, and raw where they are in compression units, durably then. The caller holds
    /// the file's locks for a cut.
    fn punch(&self, file: &FileData, range: std::ops::Range<u64>) -> Result<()> {
        let au_bytes = file.layout.au_size.bytes();
        let aus = range.start / au_bytes..range.end.div_ceil(au_bytes);
        let Some(units) = file.units().filter(|units| units.touches(aus.clone())) else { return file.punch(range) };
        // Not later: it would bring back what is punched now.
        file.resend(units)?;
        for end in [range.start, range.end].into_iter().filter(|end| !end.is_multiple_of(PAGE)) {
            file.materialize(units, end)?;
        }
        file.punch(range.clone())?;
        file.sync_pages(units).inspect_err(|error| fail_unasked(file, units, error))?;
        for au in aus {
            let (start, end) = (range.start.max(au * au_bytes), range.end.min((au + 1) * au_bytes));
            units.mark_raw(au, ((start - au * au_bytes).div_ceil(PAGE) as u32)..((end - au * au_bytes) / PAGE) as u32);
        }
        let settling = file.begin_settling(units)?;
        self.settle(file, units, &settling, 0).inspect_err(|error| fail_unasked(file, units, error))
    }

    pub fn fallocate(&self, ino: Ino, offset: u64, length: u64, what: Fallocate) -> Result<()> {
        let file = self.file(ino)?;
        let end = file.check_end(offset, length)?;
        if length == 0 {
            return Err(Error::new(ErrorKind::Invalid, "fallocate of no bytes"));
        }
        let _locks = file.lock_for_cut();
        let size = file.size()?;
        if let Fallocate::PunchHole | Fallocate::Zero { .. } = what {
            let hole = offset..end.min(size.max(offset));
            file.versions.bump(hole.clone());
            let punched = self.punch(&file, hole.clone());
            // Once more, as for a cut.
            file.versions.bump(hole);
            self.forget_cached(&file, offset..end);
            punched?;
        }
        if let Fallocate::Reserve { keep_size } | Fallocate::Zero { keep_size } = what {
            self.with_reclaim(|| {
                self.check_room(length)?;
                file.allocate(offset..end, keep_size)
            })?;
            if !keep_size && end > size {
                file.grow(end);
                file.versions.bump_from(size);
                self.cache.forget(&file.cached, (size / REGION_BYTES as u64) as u32, u32::MAX);
            }
        }
        self.touch_content(&file);
        Ok(())
    }

    /// Copies between files of the volume; returns the bytes copied, fewer only at the source's end.
    pub fn copy_range(&self, from: (Ino, u64), to: (Ino, u64), length: u64) -> Result<u64> {
        let mut buffer = vec![0; COPY_CHUNK.min(length as usize)];
        let mut done = 0;
        while done < length {
            let want = buffer.len().min((length - done) as usize);
            let count = self.read(from.0, from.1 + done, &mut buffer[..want])?;
            if count == 0 {
                break;
            }
            self.write(to.0, to.1 + done, &buffer[..count])?;
            done += count as u64;
        }
        Ok(done)
    }

    /// Makes a file's data durable, and its names and attributes when they changed (times and size aside).
    pub fn fsync(&self, ino: Ino) -> Result<()> {
        let (file, changed) = {
            let namespace = self.namespace.read();
            let node = namespace.node(ino)?;
            (node.file.clone(), node.changed)
        };
        match file {
            Some(file) => self.sync_file(&file, changed),
            None => self.commit(changed),
        }
    }

    /// Makes a directory's entries durable.
    pub fn fsyncdir(&self, ino: Ino) -> Result<()> {
        let changed = self.namespace.read().node(ino)?.changed;
        self.commit(changed)
    }

    /// Makes everything durable.
    pub fn sync(&self) -> Result<()> {
        let files: Vec<Arc<FileData>> = {
            let namespace = self.namespace.read();
            namespace.nodes().filter_map(|(_, node)| node.file.clone()).collect()
        };
        let mut result = Ok(());
        for file in files {
            result = result.and(self.sync_file(&file, 0));
        }
        self.commit_everything()?;
        result
    }

    pub(super) fn check_room(&self, length: u64) -> Result<()> {
        self.room.check(length, self.group.disks())
    }

    fn forget_cached(&self, file: &FileData, range: std::ops::Range<u64>) {
        let touched = regions(range);
        self.cache.forget(&file.cached, touched.start, touched.end);
    }

    /// Tries again once when the disks are full and unlinked files still occupy room.
    pub(super) fn with_reclaim<T>(&self, attempt: impl Fn() -> Result<T>) -> Result<T> {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::NoSpace && self.reclaim() => attempt(),
            result => result,
        }
    }

    fn touch_content(&self, file: &FileData) {
        let time = now();
        file.mtime.store(time, Ordering::Relaxed);
        file.ctime.store(time, Ordering::Relaxed);
        if !file.times_dirty.swap(true, Ordering::Relaxed) {
            self.times_dirty.lock().push(file.ino);
        }
    }
}
