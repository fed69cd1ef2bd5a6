//! A region of an object's index: 1 MiB of the file, in lines of 64 KiB with the locations of eight pages each.

use super::location::{Location, SegmentPages};
use std::ops::Range;

/// Pages of a line.
pub const LINE_PAGES: u32 = 8;
/// Pages of a region, the unit of intents.
pub const REGION_PAGES: u32 = 128;

#[derive(Debug)]
pub struct Line {
    /// Number in the region.
    pub number: u8,
    pub pages: [Location; LINE_PAGES as usize],
}

const _: () = assert!(size_of::<Line>() <= 40, "the index needs at most 40 bytes a line");

#[derive(Debug, Default)]
pub struct Region {
    pub lines: Vec<Line>,
    /// Increased at the start and at the end of each change.
    pub changes: u32,
    /// Changes under way.
    pub changing: u16,
    /// Fills that are reserved.
    pub filling: u16,
    /// Changed since the last sync of the object's file.
    pub is_unsynced: bool,
    /// The log contains an intent of the region that no checkpoint has ended.
    pub has_intent: bool,
}

impl Region {
    /// Returns whether pages of the region may count after a crash.
    pub fn may_count(&self) -> bool {
        self.filling > 0 || !self.lines.is_empty()
    }

    pub fn location(&self, page: u32) -> Location {
        let number = (page % REGION_PAGES / LINE_PAGES) as u8;
        let line = self.lines.iter().find(|line| line.number == number);
        line.map_or(Location::NONE, |line| line.pages[(page % LINE_PAGES) as usize])
    }

    pub fn slot(&mut self, page: u32) -> Option<&mut Location> {
        let number = (page % REGION_PAGES / LINE_PAGES) as u8;
        let line = self.lines.iter_mut().find(|line| line.number == number)?;
        Some(&mut line.pages[(page % LINE_PAGES) as usize])
    }

    /// Sets the location of a page. Returns by how much the number of pages in flash changes.
    pub fn set(&mut self, page: u32, location: Location, segments: &SegmentPages) -> i64 {
        let former = match self.slot(page) {
            Some(slot) => std::mem::replace(slot, location),
            None if location.is_none() => return 0,
            None => {
                let mut pages = [Location::NONE; LINE_PAGES as usize];
                pages[(page % LINE_PAGES) as usize] = location;
                self.lines.push(Line { number: (page % REGION_PAGES / LINE_PAGES) as u8, pages });
                Location::NONE
            }
        };
        segments.moved(former, location);
        if location.is_none() {
            self.lines.retain(|line| line.pages.iter().any(|page| !page.is_none()));
        }
        i64::from(former.is_none()) - i64::from(location.is_none())
    }

    pub fn clear(&mut self, pages: Range<u32>, segments: &SegmentPages) -> i64 {
        if self.lines.is_empty() {
            return 0;
        }
        pages.map(|page| self.set(page, Location::NONE, segments)).sum()
    }

    /// Removes all pages.
    pub fn clear_all(&mut self, segments: &SegmentPages) -> i64 {
        let pages = self.lines.drain(..).flat_map(|line| line.pages).filter(|page| !page.is_none());
        pages.map(|page| segments.moved(page, Location::NONE)).map(|()| -1).sum()
    }

    /// Removes the pages in a segment.
    pub fn clear_segment(&mut self, number: u32, segments: &SegmentPages) -> i64 {
        let mut removed = 0;
        for page in self.lines.iter_mut().flat_map(|line| &mut line.pages) {
            if !page.is_none() && page.segment() == number {
                segments.moved(std::mem::replace(page, Location::NONE), Location::NONE);
                removed -= 1;
            }
        }
        self.lines.retain(|line| line.pages.iter().any(|page| !page.is_none()));
        removed
    }

    pub fn is_forgettable(&self) -> bool {
        !self.may_count() && !self.is_unsynced && !self.has_intent && self.changing == 0
    }
}
