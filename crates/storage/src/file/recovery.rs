//! Restores a consistent state of a file with compression units: after a restart, from the redo log and the metadata;
//! after a failed sync, from the redo log.

use super::units::{RedoLog, Units};
use super::{FileData, PAGE, PAGE_BYTES, StoredUnit, WriteGuard};
use crate::cache::IoCost;
use crate::error::Result;
use cellar_format::units::{AuIndex, PageInAu};
use std::sync::Arc;

/// Changes that recovery made in memory and that the metadata do not contain yet.
#[derive(Debug, Default)]
pub struct Recovered {
    pub changed_aus: Vec<AuIndex>,
    pub unused: Vec<Arc<StoredUnit>>,
}

impl FileData {
    /// Replays the redo log that an earlier process left: writes its pages to the backing file and marks them superseded.
    pub fn replay_redo_log(&self, units: &Units) -> Result<()> {
        self.lock_write().open_and_replay(units)
    }

    /// Replays the redo log that an earlier process left and truncates units that extend beyond the end of the file,
    /// as a crash during a truncate leaves them. Syncing the file twice afterwards makes the result durable and empties
    /// both log segments.
    pub fn recover_units(&self, units: &Units) -> Result<Recovered> {
        let write = self.lock_write();
        write.open_and_replay(units)?;
        let size = self.size()?;
        write.supersede_last_page(units, size)?;
        let (mut changed_aus, mut unused) = units.truncate(&write, size);
        let fully_superseded = units.drop_fully_superseded(&write);
        changed_aus.extend(fully_superseded.iter().map(|stored| stored.au));
        unused.extend(fully_superseded);
        Ok(Recovered { changed_aus, unused })
    }

    /// Punches unused unit slots and raw bytes under current pages that a crash left behind. Does so only if the disks
    /// report more allocated blocks than the file needs.
    pub fn punch_leftovers(&self, units: &Units) -> Result<()> {
        let extents = units.extents();
        let claimed: u64 = extents.iter().map(|extent| extent.stored.allocated()).sum();
        units.slots().punch_leftovers(claimed)?;
        let current: u64 = extents.iter().map(|extent| u64::from(extent.current_count()) * PAGE).sum();
        let mut allocated = 0;
        for backing in &self.backing {
            allocated += backing.measure()?.1;
        }
        if allocated + current > self.size()?.next_multiple_of(PAGE) {
            let write = self.lock_write();
            extents.iter().try_for_each(|extent| write.punch_current_pages(extent))?;
        }
        Ok(())
    }
}

impl WriteGuard<'_> {
    /// Opens the redo log of an earlier process and replays its records.
    fn open_and_replay(&self, units: &Units) -> Result<()> {
        units.with_redo_log(|log| {
            log.open()?;
            self.replay(units, log)
        })
    }

    /// If a sync failed: writes the pages of the redo log to the backing file again. The kernel may have dropped them
    /// and would report the next sync of the lost pages as a success.
    pub fn rewrite_after_failed_sync(&self, units: &Units) -> Result<()> {
        if units.has_failed_sync() {
            units.with_redo_log(|log| self.replay(units, log))?;
            units.clear_failed_sync();
        }
        Ok(())
    }

    /// Writes the newest record of each page to the backing file, except records that are obsolete: of allocation units
    /// without a unit, older than the unit, beyond its last page, or of pages that the metadata name superseded.
    fn replay(&self, units: &Units, log: &mut RedoLog) -> Result<()> {
        let size = self.size()?;
        log.replay(|record, content| {
            let Some(extent) = units.extent(record.au) else { return Ok(()) };
            if record.sequence < extent.log_sequence || !extent.has_uncommitted(record.page) {
                return Ok(());
            }
            let start = self.layout.au_range(record.au).start + u64::from(record.page.0) * PAGE;
            let length = size.saturating_sub(start).min(PAGE) as usize;
            // A reader may have seen the page without the write that a failed sync dropped.
            self.versions.bump(start..start + length as u64);
            self.write_raw(start, &content[..length])?;
            units.mark_superseded(self, record.au, std::iter::once(record.page));
            Ok(())
        })
    }

    /// Copies the file's last page to the backing file if the page is partial and current in a unit.
    fn supersede_last_page(&self, units: &Units, size: u64) -> Result<()> {
        let au = self.layout.au_at(size);
        let start = size / PAGE * PAGE;
        let page = ((start - self.layout.au_range(au).start) / PAGE) as u32;
        let extent = units.extent(au).filter(|extent| !size.is_multiple_of(PAGE) && extent.is_current(PageInAu(page)));
        let Some(extent) = extent else { return Ok(()) };
        let mut content = vec![0; PAGE_BYTES];
        match units.rebuild(&extent, page..page + 1, &mut content, &mut IoCost::default()) {
            Ok(()) => self.write_raw(start, &content[..(size - start) as usize]),
            // The cell must start although the page is damaged: a crash interrupted the truncate through this page.
            Err(error) => {
                log::error!("{error}; the rest of page {} of inode {} is lost", start / PAGE, self.ino);
                Ok(())
            }
        }
    }
}
