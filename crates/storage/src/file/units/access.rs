//! A file's bytes where some allocation units have compression units: reading pages from wherever they are current,
//! writing pages back to the backing file, and what happens to the log of pending pages.

use super::super::FileData;
use super::{CachedUnit, Extent, PAGE, PAGE_BYTES, PlaceReader, Settling, Units};
use crate::cache::{Cache, RegionSource};
use crate::disk::{Disk, Stream};
use crate::error::{Error, ErrorKind, Result};
use crate::file::backing::Backing;
use crate::file::units::PendingLog;
use crate::meta::ExtentRecord;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Pages rebuilt at once where many are.
pub const BATCH_PAGES: u32 = 32;

impl FileData {
    /// The file's compression units; None while it never had any.
    pub fn units(&self) -> Option<&Units> {
        self.units.get().map(|units| &**units)
    }

    pub fn units_or_new(&self, codec: Option<&Arc<dyn super::UnitCodec>>, cache: &Arc<Cache>) -> &Units {
        self.units.get_or_init(|| {
            let disks: Vec<Arc<dyn Disk>> = self.backing.iter().map(|backing| backing.disk().clone()).collect();
            let homes = disks.iter().map(|disk| Backing::new(self.ino, Stream::Units, disk.clone())).collect();
            let segment = |stream| Backing::new(self.ino, stream, disks[0].clone());
            let log = PendingLog::new(self.ino, [segment(Stream::Pending0), segment(Stream::Pending1)]);
            Box::new(Units::new(self.ino, &self.layout, codec.cloned(), cache.clone(), homes, log))
        })
    }

    pub fn extent_record(&self, au: u64) -> Option<ExtentRecord> {
        self.units()?.record(au)
    }

    fn au_bytes(&self) -> u64 {
        self.layout.au_size.bytes()
    }

    /// Whole pages that the file has in an allocation unit.
    pub fn whole_pages(&self, au: u64) -> Result<u32> {
        let start = au.saturating_mul(self.au_bytes());
        Ok((self.size()?.saturating_sub(start).min(self.au_bytes()) / PAGE) as u32)
    }

    fn au_regions(&self, au: u64) -> Range<u32> {
        crate::file::regions(au * self.au_bytes()..(au + 1) * self.au_bytes())
    }

    /// The highest version of the regions in an allocation unit: it changes with every change of one of them.
    pub fn au_version(&self, au: u64) -> u64 {
        self.versions.latest(self.au_regions(au)).0
    }

    /// When the allocation unit was last changed, in nanoseconds since 1970.
    pub fn au_changed(&self, au: u64) -> i64 {
        self.versions.latest(self.au_regions(au)).1
    }

    /// Reads what the disks hold, wherever it is current, and what that took.
    pub(in crate::file) fn load_mixed(
        &self,
        units: &Units,
        buffer: &mut [u8],
        offset: u64,
        direct: bool,
        cost: &mut RegionSource,
    ) -> Result<()> {
        let (mut at, end) = (offset, offset + buffer.len() as u64);
        while at < end {
            let au = at / self.au_bytes();
            let stop = end.min((au + 1) * self.au_bytes());
            let part = &mut buffer[(at - offset) as usize..(stop - offset) as usize];
            match units.extent(au) {
                Some(extent) => self.load_extent(units, &extent, part, at, direct, cost)?,
                None => self.load_raw(part, at, direct, cost)?,
            }
            at = stop;
        }
        Ok(())
    }

    fn load_extent(
        &self,
        units: &Units,
        extent: &Extent,
        buffer: &mut [u8],
        offset: u64,
        direct: bool,
        cost: &mut RegionSource,
    ) -> Result<()> {
        let start = extent.place.au * self.au_bytes();
        let (mut at, end) = (offset, offset + buffer.len() as u64);
        while at < end {
            let first = ((at - start) / PAGE) as u32;
            let is_live = extent.is_live(first);
            let mut after = first + 1;
            while start + u64::from(after) * PAGE < end && extent.is_live(after) == is_live {
                after += 1;
            }
            let stop = end.min(start + u64::from(after) * PAGE);
            let part = &mut buffer[(at - offset) as usize..(stop - offset) as usize];
            if !is_live {
                self.load_raw(part, at, direct, cost)?;
            } else if part.len() == (after - first) as usize * PAGE_BYTES {
                rebuild(units, extent, first..after, part, cost)?;
            } else {
                let mut pages = vec![0; (after - first) as usize * PAGE_BYTES];
                rebuild(units, extent, first..after, &mut pages, cost)?;
                part.copy_from_slice(&pages[(at - start) as usize - first as usize * PAGE_BYTES..][..part.len()]);
            }
            at = stop;
        }
        Ok(())
    }

    /// The range, widened so that pages which must be written whole are; the caller holds `write`.
    fn widen<'a>(&self, units: &Units, offset: u64, data: &'a [u8]) -> Result<(u64, Cow<'a, [u8]>)> {
        let end = offset + data.len() as u64;
        let whole = |at: u64| !at.is_multiple_of(PAGE) && self.is_logged(units, at / PAGE);
        let start = if whole(offset) { offset / PAGE * PAGE } else { offset };
        let stop = if whole(end) { end.next_multiple_of(PAGE) } else { end };
        if (start, stop) == (offset, end) {
            return Ok((offset, Cow::Borrowed(data)));
        }
        let (mut wide, mut cost) = (vec![0; (stop - start) as usize], RegionSource::default());
        if start < offset {
            self.load_mixed(units, &mut wide[..PAGE_BYTES], start, false, &mut cost)?;
        }
        if stop > end && (start == offset || stop - start > PAGE) {
            let last = wide.len() - PAGE_BYTES;
            self.load_mixed(units, &mut wide[last..], stop - PAGE, false, &mut cost)?;
        }
        wide[(offset - start) as usize..][..data.len()].copy_from_slice(data);
        Ok((start, Cow::Owned(wide)))
    }

    /// Whether a write to the page (by its number in the file) goes to the log.
    fn is_logged(&self, units: &Units, page: u64) -> bool {
        let pages = self.au_bytes() / PAGE;
        let page_in_au = (page % pages) as u32;
        units
            .extent(page / pages)
            .is_some_and(|extent| page_in_au < extent.page_count() && !extent.committed.contains(page_in_au))
    }

    /// Writes over compression units: each touched page becomes raw. The order matters (`docs/format/disk.md`): the
    /// page, its record, then the mark. The caller holds `write`.
    pub(in crate::file) fn write_mixed(&self, units: &Units, offset: u64, data: &[u8]) -> Result<()> {
        if !units.touches(offset / self.au_bytes()..(offset + data.len() as u64).div_ceil(self.au_bytes())) {
            return self.write_raw(offset, data);
        }
        let (offset, data) = self.widen(units, offset, data)?;
        self.write_raw(offset, &data)?;
        let pages_per_au = self.au_bytes() / PAGE;
        let end = offset + data.len() as u64;
        let whole = offset.div_ceil(PAGE)..end / PAGE;
        let logged: Vec<u64> = whole.filter(|page| self.is_logged(units, *page)).collect();
        if logged.is_empty() {
            return Ok(());
        }
        let records = logged.iter().map(|page| {
            let content = &data[(page * PAGE - offset) as usize..][..PAGE_BYTES];
            (page / pages_per_au, (page % pages_per_au) as u32, content)
        });
        units.log.lock().append(records)?;
        for pages in logged.chunk_by(|one, other| one / pages_per_au == other / pages_per_au) {
            units.mark_raw(pages[0] / pages_per_au, pages.iter().map(|page| (page % pages_per_au) as u32));
        }
        Ok(())
    }

    /// Makes the page that holds the byte at `offset` raw, content unchanged, if it is live. The caller holds `write`.
    pub fn materialize(&self, units: &Units, offset: u64) -> Result<()> {
        let (au, start) = (offset / self.au_bytes(), offset / PAGE * PAGE);
        let page = (start % self.au_bytes() / PAGE) as u32;
        let Some(extent) = units.extent(au).filter(|extent| extent.is_live(page)) else { return Ok(()) };
        let mut content = vec![0; PAGE_BYTES];
        rebuild(units, &extent, page..page + 1, &mut content, &mut RegionSource::default())?;
        self.write_mixed(units, start, &content)
    }

    /// Writes live pages of `pages` to their places in the backing file, where nobody looks for them yet. The caller
    /// holds `write`.
    pub fn copy_out(&self, units: &Units, extent: &Extent, pages: Range<u32>) -> Result<()> {
        for run in extent.live_runs(pages) {
            let mut content = vec![0; run.len() * PAGE_BYTES];
            rebuild(units, extent, run.clone(), &mut content, &mut RegionSource::default())?;
            self.write_raw(extent.place.au * self.au_bytes() + u64::from(run.start) * PAGE, &content)?;
        }
        Ok(())
    }

    /// Gives back the raw room under the live pages of a unit. The caller holds `write`.
    pub fn punch_live(&self, extent: &Extent) -> Result<()> {
        if extent.is_leaving {
            return Ok(());
        }
        let start = extent.place.au * self.au_bytes();
        extent
            .live_runs(0..extent.page_count())
            .into_iter()
            .try_for_each(|run| self.punch(start + u64::from(run.start) * PAGE..start + u64::from(run.end) * PAGE))
    }

    /// Makes the backing files durable; when that fails, pending pages have to be written once more.
    pub fn sync_pages(&self, units: &Units) -> Result<()> {
        self.sync_backing().inspect_err(|_| units.resend.store(true, Ordering::Release))
    }

    /// Begins a sync of the pending pages. The caller holds `sync`'s and `write`'s locks.
    pub fn begin_settling(&self, units: &Units) -> Result<Settling> {
        self.resend(units)?;
        units.log.lock().turn();
        Ok(units.settling())
    }

    /// After a failed sync: writes the pending pages to the backing file once more. The caller holds `write`.
    pub fn resend(&self, units: &Units) -> Result<()> {
        if units.resend.load(Ordering::Acquire) {
            let mut log = units.log.lock();
            let records = log.records()?;
            self.replay(units, &log, &records)?;
            units.resend.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Brings the newest pending pages from the log to the backing files.
    fn replay(&self, units: &Units, log: &PendingLog, records: &super::pending::Records) -> Result<()> {
        let size = self.size()?;
        log.replay(records, |au, page, stamp, content| {
            let Some(extent) = units.extent(au) else { return Ok(()) };
            if stamp < extent.stamp || page >= extent.page_count() || extent.committed.contains(page) {
                return Ok(());
            }
            let start = au * self.au_bytes() + u64::from(page) * PAGE;
            let length = size.saturating_sub(start).min(PAGE) as usize;
            self.write_raw(start, &content[..length])?;
            units.mark_raw(au, std::iter::once(page));
            Ok(())
        })
    }

    /// Takes over what an earlier daemon left: pages in the log, and units that reach past the end of the file because
    /// it was cut when the daemon died. Returns the allocation units whose records must change, and their places that
    /// became unused. Syncing the file then settles it.
    pub fn recover_units(&self, units: &Units) -> Result<(Vec<u64>, Vec<Arc<super::Place>>)> {
        {
            let mut log = units.log.lock();
            log.open()?;
            let records = log.records()?;
            self.replay(units, &log, &records)?;
        }
        let size = self.size()?;
        let (au, page) = (size / self.au_bytes(), (size % self.au_bytes() / PAGE) as u32);
        let split = units.extent(au).filter(|extent| !size.is_multiple_of(PAGE) && extent.is_live(page));
        if let Some(extent) = split {
            let mut content = vec![0; PAGE_BYTES];
            let start = size / PAGE * PAGE;
            match rebuild(units, &extent, page..page + 1, &mut content, &mut RegionSource::default()) {
                Ok(()) => self.write_raw(start, &content[..(size - start) as usize])?,
                // The cell must start; the page was about to be cut when the daemon died.
                Err(error) => log::error!("{error}; what is left of that page is lost"),
            }
        }
        let (mut changed, mut unused) = units.cut(size);
        let dead = units.drop_dead();
        changed.extend(dead.iter().map(|place| place.au));
        unused.extend(dead);
        Ok((changed, unused))
    }

    /// Gives back room that a crash kept from being given back, as far as the disks' accounts show some.
    pub fn punch_leftovers(&self, units: &Units) -> Result<()> {
        let extents = units.extents();
        let claimed: u64 = extents.iter().map(|(_, extent)| extent.place.allocated()).sum();
        units.homes().punch_leftovers(claimed)?;
        let live: u64 =
            extents.iter().map(|(_, extent)| u64::from(extent.page_count() - extent.raw.len()) * PAGE).sum();
        let mut allocated = 0;
        for backing in &self.backing {
            allocated += backing.measure()?.1;
        }
        if allocated + live > self.size()?.next_multiple_of(PAGE) {
            extents.iter().try_for_each(|(_, extent)| self.punch_live(extent))?;
        }
        Ok(())
    }
}

/// Rebuilds live pages of a unit.
fn rebuild(units: &Units, extent: &Extent, pages: Range<u32>, out: &mut [u8], cost: &mut RegionSource) -> Result<()> {
    assert_eq!(out.len(), pages.len() * PAGE_BYTES);
    let reader = PlaceReader::new(&extent.place);
    let cached = CachedUnit::new(&reader, &extent.place, units.cache(), extent.place.is_worth_loading());
    let opened = units.codec()?.open(&cached, extent.place.id);
    let result = opened.and_then(|mut unit| unit.rebuild(&cached, pages.clone(), out));
    let (bytes, requests) = reader.cost();
    cost.disk_bytes += bytes;
    cost.disk_requests += requests;
    result.map_err(|error| not_rebuilt(error, &extent.place, pages))
}

/// An error of a codec, with the place of what is damaged.
pub fn not_rebuilt(error: Error, place: &super::Place, pages: Range<u32>) -> Error {
    match error.kind() {
        ErrorKind::Corrupt => {
            let pages = format!("pages {} to {} of {}", pages.start, pages.end - 1, place.describe());
            Error::new(ErrorKind::Corrupt, format!("cannot rebuild {pages}: {error}"))
        }
        _ => error,
    }
}
