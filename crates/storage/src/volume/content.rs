//! File content: read, write, truncate, fallocate, copy and sync.
//!
//! A change takes the file's write lock, changes the versions of the touched regions, and updates the cached regions
//! and the backing files before the call returns. Until the backing files contain a write completely, readers overlay
//! the write in flight, so the page cache never loads a part of a write.

use super::free_space::{Need, SpacePriority};
use super::sync::fail_internal_sync;
use super::{Ino, Volume, now};
use crate::disk::no_wait::without_waiting;
use crate::error::{Error, ErrorKind, Result};
use crate::file::{FileData, PAGE, SyncGuard, Units, WriteGuard, regions};
use crate::meta::CommitSequence;
use cellar_format::units::{AuIndex, PageInAu, REGION_BYTES, RegionIndex};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes per step of a copy.
const COPY_CHUNK: usize = 1 << 20;

/// An operation on the space of a range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallocate {
    /// Allocate space; with `keep_size` the file does not grow.
    Reserve { keep_size: bool },
    /// Free the space; the range reads as zeros, the size does not change.
    PunchHole,
    /// Make the range read as zeros, with space allocated.
    Zero { keep_size: bool },
}

impl Volume {
    /// Reads at `offset`; returns fewer bytes only at the end of the file. Pages that fail their checksums are repaired
    /// from another copy, if there is one.
    pub fn read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let count = self.read_once(ino, offset, buffer)?;
        match self.repair_after_read(ino, offset, &buffer[..count])? {
            true => self.read_once(ino, offset, buffer),
            false => Ok(count),
        }
    }

    fn read_once(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let file = self.file(ino)?;
        let region_bytes = REGION_BYTES as u64;
        let region = offset / region_bytes;
        let at = (offset % region_bytes) as usize;
        if at + buffer.len() <= REGION_BYTES
            && let Some(cached) = self.cache.try_find(&file.cached, RegionIndex(region as u32))
            && region <= u64::from(u32::MAX)
        {
            let bytes = cached.bytes().get(at..).unwrap_or_default();
            let count = bytes.len().min(buffer.len());
            // A short region may be outdated: the file may have grown since it was loaded.
            if count == buffer.len() {
                buffer.copy_from_slice(&bytes[..count]);
                return Ok(count);
            }
        }
        file.read(buffer, offset).map_err(|error| self.with_path(ino, error))
    }

    /// Reads like [`Self::read`], unless the read would wait for a device. Returns None in this case; the caller must repeat
    /// the read with [`Self::read`].
    pub fn try_read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<Option<usize>> {
        without_waiting(|| self.read(ino, offset, buffer)).transpose()
    }

    /// Reads without the cell's page cache. The bytes are at least as new as any region version read before the call;
    /// the page cache may lack the write in flight.
    pub fn read_uncached(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.file(ino)?.read(buffer, offset).map_err(|error| self.with_path(ino, error))
    }

    /// Writes all of `data` at `offset`, growing the file as needed.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_with(ino, offset, data, SpacePriority::Normal)
    }

    /// Writes like [`Self::write`]; `priority` applies if the write needs new space.
    pub fn write_with(&self, ino: Ino, offset: u64, data: &[u8], priority: SpacePriority) -> Result<usize> {
        let file = self.file(ino)?;
        let end = file.check_end(offset, data.len() as u64)?;
        self.ensure_log_space(&file)?;
        self.with_space(|| {
            let write = file.lock_write();
            for need in space_needs(&write, offset..end)?.into_iter().filter(|need| need.bytes() > 0) {
                self.free_space.check(need, priority, self.disks_behind(&file, offset..end))?;
            }
            self.write_locked(&file, &write, offset, data).inspect_err(|_| write.undo_growth())
        })
    }

    /// Writes like [`Self::write`], unless the write would wait: for a sync, for a metadata transaction, for the file's
    /// write lock, for a read from disk, for the load of a cached region, or for a measurement of free space. Returns None
    /// in these cases, and if the disks refuse the write; the caller must repeat the write with [`Self::write_with`], which
    /// undoes a failed write first.
    pub fn try_write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<Option<usize>> {
        let file = self.file(ino)?;
        let end = file.check_end(offset, data.len() as u64)?;
        // Before the redo log, whose lock is held during a rewrite of the log under the write lock.
        let Some(write) = file.try_lock_write() else { return Ok(None) };
        let changed = offset.min(file.size()?)..end;
        if file.units().is_some_and(|units| units.is_redo_log_full() || write.splits_unit_page(units, offset..end))
            || self.cache.is_busy(&file.cached, regions(changed))
        {
            return Ok(None);
        }
        // The redo log of a file in a group with copies may need a durable record, too.
        let is_logged = self.group.mirror().is_some() && file.units().is_some();
        if is_logged || write.write_waits(offset..end) {
            return Ok(None);
        }
        let needed = space_needs(&write, offset..end)?.map(Need::bytes).iter().sum();
        if needed > 0 && !self.free_space.is_ample(needed, self.disks_behind(&file, offset..end)) {
            return Ok(None);
        }
        // A flash cache that needs an intent only now, for a read that fills it, makes the write wait, too.
        match crate::flash::without_waiting(|| self.write_locked(&file, &write, offset, data)) {
            Ok(written) => Ok(Some(written)),
            // Undoing the write waits for the disks. Completing pending frees, or a higher priority, may find space.
            Err(error) => {
                log::debug!("repeating a write that failed: {error}");
                Ok(None)
            }
        }
    }

    /// Writes data for which the disks have space. After an error, the backing files may be longer than the file.
    fn write_locked(&self, file: &Arc<FileData>, write: &WriteGuard<'_>, offset: u64, data: &[u8]) -> Result<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        let (end, size) = (offset + data.len() as u64, file.size()?);
        file.torn_blocks.begin(&(offset..end));
        let version = write.begin_write(offset, data, size);
        if offset > size {
            // The cached regions of the gap end at the old end of the file.
            self.forget_cached(file, size..offset);
        }
        self.cache.patch(&file.cached, offset, data, version);
        if let Err(error) = write.write_through(offset, data) {
            let changed = offset.min(size)..end;
            write.undo_write(changed.clone(), size);
            self.forget_cached(file, changed);
            return Err(self.with_path(file.ino, error));
        }
        if file.is_redo() && self.captures_redo() {
            write.capture_write(offset, data);
        }
        write.end_write();
        file.torn_blocks.end(&(offset..end));
        self.touch_content(file);
        // Under the write lock, because a later holder of the write lock may keep the redo log's lock for long.
        self.request_checkpoint_if_due(file);
        Ok(data.len())
    }

    /// Truncates the file or extends it with a hole. A truncate through compression units is durable on return.
    pub fn truncate(&self, ino: Ino, size: u64) -> Result<()> {
        let file = self.file(ino)?;
        file.check_end(size, 0)?;
        let (sync_guard, write) = file.lock_sync_and_write();
        let before = file.size()?;
        if before == size {
            return Ok(());
        }
        let units = sync_guard.as_ref().zip(file.units()).filter(|_| size < before);
        if let Some((_, units)) = units.filter(|_| !size.is_multiple_of(PAGE)) {
            // Move the page that the new end splits to the backing file, where the truncate removes the page's tail.
            self.with_reserve(|| write.supersede_unchanged(units, size))?;
        }
        let first_change = before.min(size);
        file.versions.bump_from(first_change);
        let result = write.truncate(size);
        // If the file grows again, the pages beyond the new size must read as zeros, not from the units.
        let truncated =
            units.filter(|_| result.is_ok()).map(|(sync, units)| (sync, units, units.truncate(&write, size)));
        // Bump the versions again: a region loaded since the first bump may contain old or new bytes.
        file.versions.bump_from(first_change);
        self.cache.forget(&file.cached, RegionIndex::containing(first_change)..RegionIndex::MAX);
        result?;
        self.touch_content(&file);
        if let Some((sync, units, (changed, unused))) = truncated.filter(|(_, _, (changed, _))| !changed.is_empty()) {
            let mut sequence = self.namespace.write().mark_extents(ino, changed);
            if !unused.is_empty() {
                sequence = self.drop_units(ino, unused);
            }
            self.checkpoint_locked(sync, &write, units, sequence)?;
            drop((write, sync_guard));
            self.run_post_commit_actions();
        }
        Ok(())
    }

    /// Runs a whole checkpoint under the write lock, for a change of units that must be durable on return.
    fn checkpoint_locked(
        &self,
        sync: &SyncGuard<'_>,
        write: &WriteGuard<'_>,
        units: &Units,
        changed: CommitSequence,
    ) -> Result<()> {
        let checkpoint = sync.begin_checkpoint(units, write)?;
        let finished = self.finish_checkpoint(sync, units, &checkpoint, changed);
        finished.inspect_err(|error| fail_internal_sync(write, units, error))
    }

    /// Replaces a range by a hole, which reads as zeros. Supersedes the pages of compression units in the range; such a
    /// punch is durable on return.
    fn punch(&self, sync: Option<&SyncGuard<'_>>, write: &WriteGuard<'_>, range: Range<u64>) -> Result<()> {
        let aus = write.layout.aus(range.clone());
        let units = sync.zip(write.units()).filter(|(_, units)| units.any_in(aus.clone()));
        let Some((sync, units)) = units else { return write.punch(range) };
        // Rewrite before the punch: a later rewrite would restore the punched pages from the redo log.
        write.rewrite_after_failed_sync(units)?;
        for end in [range.start, range.end].into_iter().filter(|end| !end.is_multiple_of(PAGE)) {
            self.with_reserve(|| write.supersede_unchanged(units, end))?;
        }
        write.punch(range.clone())?;
        sync.sync_backing_of(units).inspect_err(|error| fail_internal_sync(write, units, error))?;
        for au in (aus.start.index()..aus.end.index()).map(AuIndex) {
            let au_range = write.layout.au_range(au);
            let (start, end) = (range.start.max(au_range.start), range.end.min(au_range.end));
            let whole = (start - au_range.start).div_ceil(PAGE) as u32..((end - au_range.start) / PAGE) as u32;
            units.mark_superseded(write, au, whole.map(PageInAu));
        }
        self.checkpoint_locked(sync, write, units, CommitSequence(0))
    }

    /// Changes the space of a range. A punch or zero over compression units is durable on return.
    pub fn fallocate(&self, ino: Ino, offset: u64, length: u64, operation: Fallocate) -> Result<()> {
        self.fallocate_with(ino, offset, length, operation, SpacePriority::Normal)
    }

    /// Works like [`Self::fallocate`]; `priority` applies if the operation needs new space.
    pub fn fallocate_with(
        &self,
        ino: Ino,
        offset: u64,
        length: u64,
        operation: Fallocate,
        priority: SpacePriority,
    ) -> Result<()> {
        let file = self.file(ino)?;
        let end = file.check_end(offset, length)?;
        if length == 0 {
            return Err(Error::new(ErrorKind::Invalid, "fallocate of a range of 0 bytes"));
        }
        self.with_space(|| self.fallocate_once(&file, offset..end, operation, priority))
    }

    fn fallocate_once(
        &self,
        file: &FileData,
        range: Range<u64>,
        operation: Fallocate,
        priority: SpacePriority,
    ) -> Result<()> {
        let Range { start: offset, end } = range;
        let (sync, write) = match operation {
            // A reservation changes no page, so no unit: like a write, it may run during a sync of the file.
            Fallocate::Reserve { .. } => (None, file.lock_write()),
            Fallocate::PunchHole | Fallocate::Zero { .. } => file.lock_sync_and_write(),
        };
        let size = file.size()?;
        if let Fallocate::Reserve { .. } | Fallocate::Zero { .. } = operation {
            self.free_space.check_size(end - offset)?;
            self.free_space.check_growth(&self.bytes_by_disk(file, &(offset..end)), priority)?;
        }
        if let Fallocate::Zero { .. } = operation {
            // Before the punch: a request that the disks refuse must change nothing.
            write.allocate(offset..end, true)?;
        }
        if let Fallocate::PunchHole | Fallocate::Zero { .. } = operation {
            let hole = offset..end.min(size.max(offset));
            file.versions.bump(hole.clone());
            let punched = self.punch(sync.as_ref(), &write, hole.clone());
            // Bump the versions again, as in `truncate`.
            file.versions.bump(hole);
            self.forget_cached(file, offset..end);
            punched?;
        }
        if let Fallocate::Reserve { keep_size } | Fallocate::Zero { keep_size } = operation {
            write.allocate(offset..end, keep_size)?;
            if !keep_size && end > size {
                write.grow(end);
                file.versions.bump_from(size);
                self.cache.forget(&file.cached, RegionIndex::containing(size)..RegionIndex::MAX);
            }
        }
        self.touch_content(file);
        Ok(())
    }

    /// Copies between files of the volume; returns the bytes copied, fewer than `length` only at the end of the source.
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

    /// Makes a file's data, size, names and attributes durable. The times become durable with the next metadata
    /// transaction.
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

    /// Makes every change durable.
    pub fn sync(&self) -> Result<()> {
        let files: Vec<Arc<FileData>> = {
            let namespace = self.namespace.read();
            namespace.nodes().filter_map(|(_, node)| node.file.clone()).collect()
        };
        let mut result = Ok(());
        for file in files {
            result = result.and(self.sync_file(&file, CommitSequence(0)));
        }
        self.commit_everything()?;
        result
    }

    fn forget_cached(&self, file: &FileData, range: Range<u64>) {
        self.cache.forget(&file.cached, regions(range));
    }

    /// Sets mtime and ctime to now.
    pub(super) fn touch_content(&self, file: &FileData) {
        let time = now();
        file.mtime.store(time, Ordering::Relaxed);
        file.ctime.store(time, Ordering::Relaxed);
        if !file.times_dirty.swap(true, Ordering::Relaxed) {
            self.times_dirty.lock().push(file.ino);
        }
    }
}

/// Returns the new space that a write to `range` needs: for growth of the file, and for overwritten pages of compression
/// units. Other overwritten bytes have their space already.
fn space_needs(write: &WriteGuard<'_>, range: Range<u64>) -> Result<[Need; 2]> {
    let Range { start, end } = range;
    let size = write.size()?;
    let overwritten = write.units().map_or(0, |units| write.overwrite_bytes(units, start..end.min(size)));
    Ok([Need::Growth(end.saturating_sub(size.max(start))), Need::Overwrite(overwritten)])
}
