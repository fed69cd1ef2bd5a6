//! Reading a file's bytes from the write in flight, its compression units and its backing files.

use super::units::{Extent, Units};
use super::{FileData, PAGE, PAGE_BYTES};
use crate::cache::IoCost;
use crate::error::Result;
use cellar_format::units::PageInAu;
use std::ops::Range;
use std::sync::atomic::Ordering;

impl FileData {
    /// Reads at most `buffer.len()` bytes at `offset`; returns fewer only at the end of the file.
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let size = self.size()?;
        let length = size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        self.load(&mut buffer[..length], offset, false)?;
        Ok(length)
    }

    /// Fills `buffer` with the content at `offset`, zeros where the file was never written; returns the I/O cost.
    /// `direct` bypasses the operating system's page cache; buffer and offset are then aligned to
    /// [`crate::disk::DIRECT_ALIGN`].
    ///
    /// The write in flight is looked up before the disk is read: if the write ends in between, the disk has the same
    /// bytes. A write that begins in between is concurrent with this read and may be seen in part; a caller that must
    /// not see a partial write uses [`super::Versions::stable`]. If a compression unit was published during the read,
    /// the raw pages under it may be punched, so the read is repeated.
    pub fn load(&self, buffer: &mut [u8], offset: u64, direct: bool) -> Result<IoCost> {
        let range = offset..offset + buffer.len() as u64;
        let mut load = Load { file: self, direct, cost: IoCost::default() };
        loop {
            let published_units = self.published_units.load(Ordering::Acquire);
            let in_flight = self.in_flight.read().clone();
            let overlay = in_flight.as_ref().and_then(|write| write.part(&range));
            if overlay.is_none_or(|(_, data)| data.len() < buffer.len()) {
                match self.units() {
                    None => load.raw(buffer, offset)?,
                    Some(units) => load.with_units(units, buffer, offset)?,
                }
            }
            if let Some((start, data)) = overlay {
                let at = (start - offset) as usize;
                buffer[at..at + data.len()].copy_from_slice(data);
            }
            if published_units == self.published_units.load(Ordering::Acquire) {
                return Ok(load.cost);
            }
        }
    }

    /// Fills `buffer` without looking at the write in flight.
    pub(super) fn load_stored(&self, units: &Units, buffer: &mut [u8], offset: u64) -> Result<()> {
        Load { file: self, direct: false, cost: IoCost::default() }.with_units(units, buffer, offset)
    }

    /// Returns the pages, by number in the file, that the write in flight touches within `range`; None if there are
    /// none.
    pub fn pages_in_flight(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let in_flight = self.in_flight.read();
        let (start, data) = in_flight.as_ref()?.part(range)?;
        Some(start / PAGE..(start + data.len() as u64).div_ceil(PAGE))
    }
}

/// One read, with the I/O that it took so far.
struct Load<'a> {
    file: &'a FileData,
    direct: bool,
    cost: IoCost,
}

impl Load<'_> {
    /// Reads the backing files, also where a compression unit has the current pages.
    fn raw(&mut self, buffer: &mut [u8], offset: u64) -> Result<()> {
        for piece in self.file.layout.pieces(offset..offset + buffer.len() as u64) {
            let at = (piece.range.start - offset) as usize..(piece.range.end - offset) as usize;
            let backing = &self.file.backing[piece.disk_index];
            let read = || backing.read(&mut buffer[at], piece.range.start, self.direct).map(|count| count as u64);
            self.cost.add(IoCost::of_request(read)?);
        }
        Ok(())
    }

    /// Reads each page from where it is current: its compression unit or the backing file.
    fn with_units(&mut self, units: &Units, buffer: &mut [u8], offset: u64) -> Result<()> {
        let (mut at, end) = (offset, offset + buffer.len() as u64);
        while at < end {
            let au = self.file.layout.au_at(at);
            let stop = end.min(self.file.layout.au_range(au).end);
            let part = &mut buffer[(at - offset) as usize..(stop - offset) as usize];
            match units.extent(au) {
                Some(extent) => self.within_extent(units, &extent, part, at)?,
                None => self.raw(part, at)?,
            }
            at = stop;
        }
        Ok(())
    }

    fn within_extent(&mut self, units: &Units, extent: &Extent, buffer: &mut [u8], offset: u64) -> Result<()> {
        let start = self.file.layout.au_range(extent.stored.au).start;
        let (mut at, end) = (offset, offset + buffer.len() as u64);
        while at < end {
            let first = ((at - start) / PAGE) as u32;
            let is_current = extent.is_current(PageInAu(first));
            let mut after = first + 1;
            while start + u64::from(after) * PAGE < end && extent.is_current(PageInAu(after)) == is_current {
                after += 1;
            }
            let stop = end.min(start + u64::from(after) * PAGE);
            let part = &mut buffer[(at - offset) as usize..(stop - offset) as usize];
            if !is_current {
                self.raw(part, at)?;
            } else if part.len() == (after - first) as usize * PAGE_BYTES {
                units.rebuild(extent, first..after, part, &mut self.cost)?;
            } else {
                let mut pages = vec![0; (after - first) as usize * PAGE_BYTES];
                units.rebuild(extent, first..after, &mut pages, &mut self.cost)?;
                part.copy_from_slice(&pages[(at - start) as usize - first as usize * PAGE_BYTES..][..part.len()]);
            }
            at = stop;
        }
        Ok(())
    }
}
