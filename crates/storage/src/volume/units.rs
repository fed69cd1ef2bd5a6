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

/// A unit in its slot that is not published yet. Dropping the value frees the slot.
#[derive(Debug)]
struct Candidate {
    /// None after the unit was published.
    unit: Option<NewUnit>,
    /// Version of the allocation unit whose pages were encoded.
    version: RegionVersion,
    /// Failed syncs of the unit files before the unit was written.
    failed_syncs: u64,
}

impl Candidate {
    fn unit(&self) -> &NewUnit {
        self.unit.as_ref().expect("a candidate is published once")
    }

    fn take(&mut self) -> NewUnit {
        self.unit.take().expect("a candidate is published once")
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        if let Some(unit) = &self.unit {
            unit.stored.mark_unused();
        }
    }
}

/// Compression units of one file that are written but neither durable nor current. Dropping the value drops the units.
#[derive(Debug)]
pub struct StagedUnits {
    file: Arc<FileData>,
    candidates: Vec<Candidate>,
    priority: SpacePriority,
}

impl StagedUnits {
    pub fn ino(&self) -> Ino {
        self.file.ino
    }

    /// Lets the units that are staged from now on use the reserve, because they replace more bytes than they need.
    pub fn use_reserve(&mut self) {
        self.priority = SpacePriority::Freeing;
    }

    pub fn is_empty(&self) -> bool {
        self.candidates.is_empty()
    }

    pub fn len(&self) -> usize {
        self.candidates.len()
    }

    /// Returns the bytes of the staged units.
    pub fn bytes(&self) -> u64 {
        self.candidates.iter().map(|candidate| u64::from(candidate.unit().stored.length)).sum()
    }
}

impl Volume {
    /// Returns the allocation-unit size of a file in bytes.
    pub fn au_bytes(&self, ino: Ino) -> Result<u64> {
        Ok(self.file(ino)?.layout.au_size.bytes())
    }

    /// Returns a file; an error if the allocation unit starts beyond the maximum file size.
    pub(super) fn file_with_au(&self, ino: Ino, au: AuIndex) -> Result<Arc<FileData>> {
        let file = self.file(ino)?;
        match file.may_contain(au) {
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

    /// Replaces the raw pages of an allocation unit by a compression unit, see [`Self::stage_unit`]. Durable on return
    /// of `Stored`.
    pub fn store_unit(
        &self,
        ino: Ino,
        au: AuIndex,
        version: RegionVersion,
        bytes: &[u8],
        tag: u32,
    ) -> Result<UnitStored> {
        let mut staged = self.stage_units(ino)?;
        match self.stage_unit(&mut staged, au, version, bytes, tag)? {
            UnitStored::Stored => Ok(self.publish_units(staged)?[0]),
            not_stored => Ok(not_stored),
        }
    }

    /// Returns an empty batch of units of a file, for [`Self::stage_unit`].
    pub fn stage_units(&self, ino: Ino) -> Result<StagedUnits> {
        let file = self.file(ino)?;
        file.check_not_passed_through()?;
        self.end_redo(&file)?;
        Ok(StagedUnits { file, candidates: Vec::new(), priority: SpacePriority::Normal })
    }

    /// Writes a compression unit that [`Self::publish_units`] then makes current in place of the raw pages of its
    /// allocation unit: all whole pages that the file has there. The caller must read `version` before the pages that
    /// it encodes. The storage rebuilds every page from the stored bytes and compares it with the file's: a difference
    /// is an error of kind `Corrupt`. Without the result `Stored`, the unit is not part of the batch.
    ///
    /// `tag` is opaque to the storage, which returns it in [`AuFormat`]. The cell stores the compression level there.
    pub fn stage_unit(
        &self,
        staged: &mut StagedUnits,
        au: AuIndex,
        version: RegionVersion,
        bytes: &[u8],
        tag: u32,
    ) -> Result<UnitStored> {
        let ino = staged.file.ino;
        let file = &*self.file_with_au(ino, au)?;
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
        if units.has_failed_sync() {
            // The caller may have read pages that the kernel dropped after a failed sync.
            self.sync_internally(&staged.file)?;
            return Ok(UnitStored::Changed);
        }
        if file.au_version(au) != version {
            return Ok(UnitStored::Changed);
        }
        // Storing a unit frees more space than it uses.
        let need = Need::Overwrite(crate::file::stored_bytes(bytes.len() as u32));
        let Some(stored) = StoredUnit::reserve(units.slots(), au, bytes) else { return Ok(UnitStored::Busy) };
        let unit = NewUnit { stored: Arc::new(stored), page_count, tag };
        let candidate = Candidate { unit: Some(unit), version, failed_syncs: units.slots().failed_syncs() };
        let disks = self.disks_behind_units(file, file.layout.au_range(au));
        // Other programs may use up the space before the write: the write is repeated like the check.
        self.with_space(|| {
            self.free_space.check(need, staged.priority, disks)?;
            candidate.unit().stored.write(bytes)
        })?;
        if !self.verify_unit(file, units, &candidate)? {
            return Ok(UnitStored::Changed);
        }
        staged.candidates.push(candidate);
        Ok(UnitStored::Stored)
    }

    /// Calls `work`, which frees space on the cell disks, and adds the space to the reserve while that is incomplete, so that no
    /// other program uses the space up.
    pub fn freeing<T>(&self, work: impl FnOnce() -> T) -> T {
        self.free_space.freeing(work)
    }

    /// Makes staged units current, all of them with one sync of each unit file and one metadata transaction. Durable on
    /// return. Returns for each unit, in the order of staging, whether it was stored: a unit becomes current only if no
    /// write changed its allocation unit since the version that it was staged with.
    pub fn publish_units(&self, mut staged: StagedUnits) -> Result<Vec<UnitStored>> {
        let Some(units) = staged.file.units().filter(|_| !staged.is_empty()) else { return Ok(Vec::new()) };
        let aus: Vec<AuIndex> = staged.candidates.iter().map(|candidate| candidate.unit().stored.au).collect();
        let conversion = staged.file.lock_conversion();
        units.slots().sync(&conversion)?;
        let (results, sequence) = self.publish(&staged.file, units, &conversion, &mut staged.candidates)?;
        self.commit(sequence)?;
        self.run_post_commit_actions();
        if let Some(columnar) = &self.columnar {
            // Scans use the unit that is stored now.
            aus.into_iter().for_each(|au| columnar.remove(staged.file.ino, au));
        }
        Ok(results)
    }

    /// Compares the pages that a stored unit rebuilds with the file's pages. Returns false if the file's pages changed
    /// since they were encoded. A difference without a change is an error of kind `Corrupt`.
    fn verify_unit(&self, file: &FileData, units: &Units, candidate: &Candidate) -> Result<bool> {
        let (NewUnit { stored, page_count, .. }, version) = (candidate.unit(), &candidate.version);
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

    /// Publishes the candidates whose allocation units did not change. Returns the result for each, and the commit
    /// sequence of the change.
    fn publish(
        &self,
        file: &Arc<FileData>,
        units: &Units,
        conversion: &ConversionGuard<'_>,
        candidates: &mut [Candidate],
    ) -> Result<(Vec<UnitStored>, CommitSequence)> {
        // During a sync that fails, the kernel may drop pages, and restoring them changes the versions: publish before
        // the sync or after it.
        let _sync = file.lock_sync();
        let write = file.lock_write();
        let (mut results, mut published, mut actions) = (Vec::new(), Vec::new(), Vec::new());
        for candidate in candidates {
            let NewUnit { stored, page_count, .. } = candidate.unit();
            let au = stored.au;
            let is_unchanged = file.au_version(au) == candidate.version
                && file.whole_pages(au).is_ok_and(|count| count == *page_count);
            // A failed sync, also of another batch, may have lost the bytes of the unit.
            let may_be_lost = candidate.failed_syncs != units.slots().failed_syncs();
            if !is_unchanged || may_be_lost || units.has_failed_sync() {
                results.push(UnitStored::Changed);
                continue;
            }
            let (log_sequence, replaced) = write.publish_unit(conversion, units, candidate.take());
            results.push(UnitStored::Stored);
            published.push(au);
            actions.push(PostCommitAction::PunchRaw { file: file.clone(), au, log_sequence });
            actions.extend(replaced.map(PostCommitAction::FreeSlot));
        }
        if published.is_empty() {
            return Ok((results, CommitSequence(0)));
        }
        let sequence = self.namespace.write().mark_extents(file.ino, published);
        self.post_commit_actions.lock().extend(actions.into_iter().map(|action| (sequence, action)));
        Ok((results, sequence))
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
        let disks = self.disks_behind(file, file.layout.au_range(au));
        self.with_space(|| self.free_space.check(need, SpacePriority::Normal, disks))?;
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
