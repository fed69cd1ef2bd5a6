//! Changing files with compression units: writes over units, publishing a unit, copying pages back.

use super::units::{Extent, NewUnit, RECORD_BYTES, Units};
use super::{ConversionGuard, LogSequence, PAGE, PAGE_BYTES, StoredUnit, WriteGuard};
use crate::cache::IoCost;
use crate::error::Result;
use cellar_format::units::{AuIndex, PageInAu};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl WriteGuard<'_> {
    /// Writes over compression units, and supersedes each touched page: (1) writes the page to the backing file, (2)
    /// appends a record of the page to the redo log, (3) marks the page superseded in memory. `docs/format/disk.md`
    /// explains the order.
    pub(super) fn write_over_units(&self, units: &Units, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset + data.len() as u64;
        if !units.any_in(self.layout.aus(offset..end)) {
            return self.write_raw(offset, data);
        }
        let (offset, data) = self.widen_to_pages(units, offset, data)?;
        self.write_raw(offset, &data)?;
        let end = offset + data.len() as u64;
        let whole = offset.div_ceil(PAGE)..end / PAGE;
        let logged: Vec<u64> = whole.filter(|page| self.is_logged(units, page * PAGE)).collect();
        if logged.is_empty() {
            return Ok(());
        }
        let records = logged.iter().map(|page| {
            let (au, page_in_au) = self.au_and_page(page * PAGE);
            (au, page_in_au, &data[(page * PAGE - offset) as usize..][..PAGE_BYTES])
        });
        units.append_to_redo_log(records)?;
        let au_of = |page: &u64| self.layout.au_at(page * PAGE);
        for pages in logged.chunk_by(|one, other| au_of(one) == au_of(other)) {
            let in_au = pages.iter().map(|page| self.au_and_page(page * PAGE).1);
            units.mark_superseded(self, au_of(&pages[0]), in_au);
        }
        Ok(())
    }

    /// Returns the bytes of new space that an overwrite of `range`, which the file has already, needs on one disk at
    /// most: raw space for each page that is current in a unit, and a record in the redo log for each page that the
    /// metadata on disk do not name superseded. Raw pages need none.
    pub fn overwrite_bytes(&self, units: &Units, range: Range<u64>) -> u64 {
        if range.is_empty() || !units.any_in(self.layout.aus(range.clone())) {
            return 0;
        }
        let of_page = |page: u64| {
            let (au, page) = self.au_and_page(page * PAGE);
            let Some(extent) = units.extent(au) else { return 0 };
            let raw = if extent.is_current(page) { PAGE } else { 0 };
            raw + if extent.has_uncommitted(page) { RECORD_BYTES as u64 } else { 0 }
        };
        (range.start / PAGE..range.end.div_ceil(PAGE)).map(of_page).sum()
    }

    /// Returns the allocation unit, and the page in it, of the byte at `offset`.
    fn au_and_page(&self, offset: u64) -> (AuIndex, PageInAu) {
        let au = self.layout.au_at(offset);
        (au, PageInAu(((offset - self.layout.au_range(au).start) / PAGE) as u32))
    }

    /// Returns whether a write to the page at `offset` needs a record in the redo log: the page belongs to a
    /// compression unit and the metadata on disk do not name it superseded.
    fn is_logged(&self, units: &Units, offset: u64) -> bool {
        let (au, page) = self.au_and_page(offset);
        units.extent(au).is_some_and(|extent| extent.has_uncommitted(page))
    }

    fn splits_logged_page(&self, units: &Units, at: u64) -> bool {
        !at.is_multiple_of(PAGE) && self.is_logged(units, at)
    }

    /// Returns whether a write to `range` reads the rest of a page that its start or its end splits.
    pub fn splits_unit_page(&self, units: &Units, range: Range<u64>) -> bool {
        self.splits_logged_page(units, range.start) || self.splits_logged_page(units, range.end)
    }

    /// Extends a write to whole pages at each end where the page must be logged, with the page's present content.
    fn widen_to_pages<'a>(&self, units: &Units, offset: u64, data: &'a [u8]) -> Result<(u64, Cow<'a, [u8]>)> {
        let end = offset + data.len() as u64;
        let start = if self.splits_logged_page(units, offset) { offset / PAGE * PAGE } else { offset };
        let stop = if self.splits_logged_page(units, end) { end.next_multiple_of(PAGE) } else { end };
        if (start, stop) == (offset, end) {
            return Ok((offset, Cow::Borrowed(data)));
        }
        let mut wide = vec![0; (stop - start) as usize];
        if start < offset {
            self.load_stored(units, &mut wide[..PAGE_BYTES], start)?;
        }
        if stop > end && (start == offset || stop - start > PAGE) {
            let last = wide.len() - PAGE_BYTES;
            self.load_stored(units, &mut wide[last..], stop - PAGE)?;
        }
        wide[(offset - start) as usize..][..data.len()].copy_from_slice(data);
        Ok((start, Cow::Owned(wide)))
    }

    /// Supersedes the page that contains the byte at `offset` by its own content, if the page is current in a unit.
    pub fn supersede_unchanged(&self, units: &Units, offset: u64) -> Result<()> {
        let (au, page) = self.au_and_page(offset);
        let Some(extent) = units.extent(au).filter(|extent| extent.is_current(page)) else { return Ok(()) };
        let mut content = vec![0; PAGE_BYTES];
        units.rebuild(&extent, page.0..page.0 + 1, &mut content, &mut IoCost::default())?;
        self.write_over_units(units, offset / PAGE * PAGE, &content)
    }

    /// Copies the current pages of `pages` to the backing file, where no reader looks for them yet.
    pub fn copy_current_pages(&self, units: &Units, extent: &Extent, pages: Range<u32>) -> Result<()> {
        for run in extent.current_runs(pages) {
            let mut content = vec![0; run.len() * PAGE_BYTES];
            units.rebuild(extent, run.clone(), &mut content, &mut IoCost::default())?;
            self.write_raw(self.offset_of(extent, run.start), &content)?;
        }
        Ok(())
    }

    /// Punches the backing file under the current pages of a unit, unless a decompression is writing there.
    pub fn punch_current_pages(&self, extent: &Extent) -> Result<()> {
        if extent.is_decompressing {
            return Ok(());
        }
        let runs = extent.current_runs(0..extent.page_count());
        let range = |run: &Range<u32>| self.offset_of(extent, run.start)..self.offset_of(extent, run.end);
        runs.iter().try_for_each(|run| self.punch(range(run)))
    }

    fn offset_of(&self, extent: &Extent, page: u32) -> u64 {
        self.layout.au_range(extent.stored.au).start + u64::from(page) * PAGE
    }

    /// Publishes a stored unit: all its pages become current in the unit. Returns the log sequence of the new extent,
    /// and the unit that it replaces.
    pub fn publish_unit(
        &self,
        _: &ConversionGuard<'_>,
        units: &Units,
        unit: NewUnit,
    ) -> (LogSequence, Option<Arc<StoredUnit>>) {
        let published = units.publish(self, unit);
        self.published_units.fetch_add(1, Ordering::AcqRel);
        published
    }
}
