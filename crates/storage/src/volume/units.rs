//! Compression units: replacing the raw pages of an allocation unit by a unit, and restoring the raw pages.

use super::free_space::{Need, SpacePriority};
use super::sync::{PostCommitAction, fail_internal_sync};
use super::{Ino, Volume};
use crate::error::{Error, ErrorKind, Result};
use crate::file::{
    BATCH_PAGES, ConversionGuard, FileData, NewUnit, PAGE, PAGE_BYTES, StoredUnit, UnitImage, Units, cannot_rebuild,
};
use crate::meta::CommitSequence;
use crate::page_set::PageSet;
use cellar_format::units::{AuIndex, PageInAu, RegionVersion};
use std::sync::Arc;
use std::time::Duration;

/// The result of storing a compression unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitStored {
    Stored,
    /// The allocation unit changed after its pages were read for encoding; the unit was not stored.
    Changed,
    /// Both unit slots are in use because a replaced unit still has a reader; the unit was not stored.
    Busy,
}

/// How an allocation unit is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuFormat {
    Raw,
    /// As a compression unit of `bytes` bytes. `tag` is that of [`Volume::store_unit`]. `superseded` are the pages of
    /// the unit whose current content is raw; later pages of the allocation unit are raw too.
    Unit {
        bytes: u64,
        tag: u32,
        superseded: PageSet,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuInfo {
    pub au: AuIndex,
    pub format: AuFormat,
    pub version: RegionVersion,
}

/// A unit in its slot that is not published yet.
struct Candidate {
    unit: NewUnit,
    /// Version of the allocation unit whose pages were encoded.
    version: RegionVersion,
}

impl Volume {
    /// Returns the allocation-unit size of a file in bytes.
    pub fn au_bytes(&self, ino: Ino) -> Result<u64> {
        Ok(self.file(ino)?.layout.au_size.bytes())
    }

    /// Returns a file; an error if the allocation unit starts beyond the maximum file size.
    pub(super) fn file_with_au(&self, ino: Ino, au: AuIndex) -> Result<Arc<FileData>> {
        let file = self.file(ino)?;
        match au.index().checked_mul(file.layout.au_size.bytes()).is_some_and(|start| start < crate::file::SIZE_MAX) {
            true => Ok(file),
            false => Err(Error::new(ErrorKind::Invalid, format!("allocation unit {au} of inode {ino} does not exist"))),
        }
    }

    /// Returns the version of an allocation unit. It changes with every change of a byte in the allocation unit, before
    /// the change is visible.
    pub fn au_version(&self, ino: Ino, au: AuIndex) -> Result<RegionVersion> {
        let file = self.file_with_au(ino, au)?;
        Ok(file.au_version(au))
    }

    /// Returns the time since the last write to an allocation unit; since the last write to the file if nothing wrote
    /// to the allocation unit since the volume was opened.
    pub fn au_idle(&self, ino: Ino, au: AuIndex) -> Result<Duration> {
        let file = self.file_with_au(ino, au)?;
        Ok(Duration::from_nanos(crate::now().saturating_sub(file.au_changed(au)).max(0) as u64))
    }

    /// Replaces the raw pages of an allocation unit, all whole pages that the file has there, by a compression unit.
    /// Durable on return of `Stored`. The caller must read `version` before the pages that it encodes; the unit becomes
    /// current only if the allocation unit did not change since. The storage first rebuilds every page from the stored
    /// bytes and compares it with the file's: a difference is an error of kind `Corrupt`, and the allocation unit
    /// does not change.
    ///
    /// `tag` is opaque to the storage, which returns it in [`AuFormat`]. The cell stores the compression level there.
    pub fn store_unit(
        &self,
        ino: Ino,
        au: AuIndex,
        version: RegionVersion,
        bytes: &[u8],
        tag: u32,
    ) -> Result<UnitStored> {
        let file = self.file_with_au(ino, au)?;
        let au_bytes = file.layout.au_size.bytes();
        let page_count = file.whole_pages(au)?;
        if page_count == 0
            || bytes.is_empty()
            || crate::file::stored_bytes(bytes.len() as u32) > au_bytes
            || bytes.len() as u64 > au_bytes
        {
            let message =
                format!("invalid compression unit of {} bytes for {page_count} pages of inode {ino}", bytes.len());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let units = file.units_or_new(self.options.unit_codec.as_ref(), &self.cache);
        units.codec()?;
        let conversion = file.lock_conversion();
        if units.has_failed_sync() {
            // The caller may have read pages that the kernel dropped after a failed sync.
            self.sync_internally(&file)?;
            return Ok(UnitStored::Changed);
        }
        if file.au_version(au) != version {
            return Ok(UnitStored::Changed);
        }
        // Storing a unit frees more space than it uses.
        let need = Need::Overwrite(crate::file::stored_bytes(bytes.len() as u32));
        self.with_space(|| self.free_space.check(need, SpacePriority::Normal))?;
        let Some(stored) = StoredUnit::reserve(units.slots(), au, bytes) else { return Ok(UnitStored::Busy) };
        let stored = Arc::new(stored);
        let candidate = Candidate { unit: NewUnit { stored: stored.clone(), page_count, tag }, version };
        let published = match stored.store(bytes).and_then(|()| self.verify_unit(&file, units, &candidate)) {
            Ok(true) => self.publish(&file, units, &conversion, candidate),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        };
        if !matches!(published, Ok(Some(_))) {
            stored.mark_unused();
        }
        let Some(sequence) = published? else { return Ok(UnitStored::Changed) };
        self.commit(sequence)?;
        self.run_post_commit_actions();
        Ok(UnitStored::Stored)
    }

    /// Compares the pages that a stored unit rebuilds with the file's pages. Returns false if the file's pages changed
    /// since they were encoded. A difference without a change is an error of kind `Corrupt`.
    fn verify_unit(&self, file: &FileData, units: &Units, candidate: &Candidate) -> Result<bool> {
        let Candidate { unit: NewUnit { stored, page_count, .. }, version } = candidate;
        let image = UnitImage::read(stored)?;
        let opened = units.codec()?.open(&image, stored.id);
        let mut unit = opened.map_err(|error| cannot_rebuild(error, stored, 0..*page_count))?;
        let start = file.layout.au_range(stored.au).start;
        let (mut rebuilt, mut current) = (Vec::new(), Vec::new());
        for first in (0..*page_count).step_by(BATCH_PAGES as usize) {
            let batch = first..(*page_count).min(first + BATCH_PAGES);
            rebuilt.resize(batch.len() * PAGE_BYTES, 0);
            current.resize(batch.len() * PAGE_BYTES, 0);
            let result = unit.rebuild(&image, batch.clone(), &mut rebuilt);
            result.map_err(|error| cannot_rebuild(error, stored, batch.clone()))?;
            file.load(&mut current, start + u64::from(first) * PAGE, false)?;
            if rebuilt != current {
                if file.au_version(stored.au) != *version {
                    return Ok(false);
                }
                let differs = |page: &u32| {
                    let at = (page - first) as usize * PAGE_BYTES;
                    rebuilt[at..at + PAGE_BYTES] != current[at..at + PAGE_BYTES]
                };
                let page = batch.into_iter().find(differs).expect("the batches differ");
                let message = format!("{} does not rebuild page {page}; it was not stored", stored.describe());
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
        }
        Ok(true)
    }

    /// Publishes a stored unit. Returns the commit sequence of the change; None if the allocation unit changed since
    /// its pages were encoded.
    fn publish(
        &self,
        file: &Arc<FileData>,
        units: &Units,
        conversion: &ConversionGuard<'_>,
        candidate: Candidate,
    ) -> Result<Option<CommitSequence>> {
        let Candidate { unit, version } = candidate;
        let au = unit.stored.au;
        let write = file.lock_write();
        if file.au_version(au) != version || file.whole_pages(au)? != unit.page_count {
            return Ok(None);
        }
        let (log_sequence, replaced) = write.publish_unit(conversion, units, unit);
        let sequence = self.namespace.write().mark_extents(file.ino, [au]);
        let mut actions = self.post_commit_actions.lock();
        actions.push((sequence, PostCommitAction::PunchRaw { file: file.clone(), au, log_sequence }));
        actions.extend(replaced.map(|replaced| (sequence, PostCommitAction::FreeSlot(replaced))));
        Ok(Some(sequence))
    }

    /// Returns how each allocation unit of a file is stored.
    pub fn au_infos(&self, ino: Ino) -> Result<Vec<AuInfo>> {
        let file = self.file(ino)?;
        let count = file.size()?.div_ceil(file.layout.au_size.bytes());
        Ok((0..count).map(|au| info(&file, AuIndex(au))).collect())
    }

    /// Returns how one allocation unit is stored.
    pub fn au_info(&self, ino: Ino, au: AuIndex) -> Result<AuInfo> {
        let file = self.file_with_au(ino, au)?;
        Ok(info(&file, au))
    }

    /// Writes the pages of a compression unit back as raw pages and drops the unit. Durable on return. Returns false if
    /// there is no unit.
    pub fn decompress(&self, ino: Ino, au: AuIndex) -> Result<bool> {
        let file = self.file_with_au(ino, au)?;
        let Some(units) = file.units() else { return Ok(false) };
        let _conversion = file.lock_conversion();
        let had_unit = self.write_back(&file, units, au).inspect_err(|_| self.cancel_write_back(&file, units, au))?;
        if had_unit {
            self.sync_internally(&file)?;
            let changed = self.namespace.read().node(ino).map_or(CommitSequence(0), |node| node.changed);
            self.commit(changed)?;
            self.run_post_commit_actions();
        }
        Ok(had_unit)
    }

    /// Writes the pages of a compression unit to the backing file and marks them superseded. Returns false if there is
    /// no unit.
    fn write_back(&self, file: &FileData, units: &Units, au: AuIndex) -> Result<bool> {
        // Set the flag before the first copy: a post-commit punch of the unit's current pages must not remove the
        // copies.
        let Some(extent) = units.set_decompressing(&file.lock_write(), au, true) else { return Ok(false) };
        let need = Need::Growth(u64::from(extent.current_count()) * PAGE);
        self.with_space(|| self.free_space.check(need, SpacePriority::Normal))?;
        for first in (0..extent.page_count()).step_by(BATCH_PAGES as usize) {
            let write = file.lock_write();
            // The file may have been truncated or overwritten since the last batch.
            let Some(extent) = units.extent(au) else { return Ok(true) };
            let batch = first..extent.page_count().min(first.saturating_add(BATCH_PAGES));
            write.copy_current_pages(units, &extent, batch)?;
        }
        // The pages are not in the redo log, so they must be durable before they count as superseded.
        let sync = file.lock_sync();
        let synced = sync.sync_backing_of(units);
        let write = file.lock_write();
        synced.inspect_err(|error| fail_internal_sync(&write, units, error))?;
        let Some(extent) = units.extent(au) else { return Ok(true) };
        units.mark_superseded(&write, au, (0..extent.page_count()).map(PageInAu));
        Ok(true)
    }

    /// Undoes a failed [`Self::write_back`]: punches the copies of pages that are still current in the unit, once a
    /// transaction has named the unit.
    fn cancel_write_back(&self, file: &Arc<FileData>, units: &Units, au: AuIndex) {
        let kept = units.set_decompressing(&file.lock_write(), au, false);
        if let Some(extent) = kept {
            let sequence = self.namespace.read().node(file.ino).map_or(CommitSequence(0), |node| node.changed);
            let action = PostCommitAction::PunchRaw { file: file.clone(), au, log_sequence: extent.log_sequence };
            self.post_commit_actions.lock().push((sequence, action));
            self.run_post_commit_actions();
        }
    }
}

fn info(file: &FileData, au: AuIndex) -> AuInfo {
    let version = file.au_version(au);
    let format = match file.units().and_then(|units| units.extent(au)) {
        None => AuFormat::Raw,
        Some(extent) => {
            let (bytes, superseded) = (u64::from(extent.stored.length), extent.superseded.clone());
            AuFormat::Unit { bytes, tag: extent.tag, superseded }
        }
    };
    AuInfo { au, format, version }
}
