//! Which pages of an object are in flash, and which of its regions may differ from what the log says about them.
//!
//! An object is one file of an inode on one stripe. Its index consists of regions of 1 MiB; a region has lines of 64 KiB,
//! each with the locations of eight pages.
//!
//! Invariants, all under the lock of the object:
//! - A page has a location only while the disk contains the same bytes.
//! - Before a change of a region reaches the disk, the log contains a durable intent of the region if the log may contain
//!   pages of the region that count after a crash (see `README.md`).
//! - A fill that was reserved before a change never gives the page a location.

use super::format::Object;
use super::location::{Location, PAGE, SegmentPages};
use super::region::{LINE_PAGES, REGION_PAGES, Region};
use super::setting::{FlashSetting, Uses};
use super::waiting;
use crate::request::{self, DatabaseId};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// A change of more regions is recorded as a change of everything from its first region on.
const REGIONS_LISTED_MAX: u32 = 1024;
/// Pages with higher numbers are not cached.
pub const PAGES_MAX: u64 = u32::MAX as u64;

#[derive(Debug, Default)]
struct State {
    regions: HashMap<u32, Region>,
    /// Regions whose `is_unsynced` is set.
    unsynced: Vec<u32>,
    /// Regions from this one on count as unsynced, also those that are not in `regions`.
    unsynced_from: Option<u32>,
    /// Increased with each change that sets `unsynced_from`.
    from_changes: u32,
    from_changing: u32,
    /// Set when the bytes on disk are uncertain, or the object was removed: nothing is cached any more.
    is_refused: bool,
    /// Records up to this sequence are in the newest checkpoint that contains the object.
    copied: u64,
    /// The sequence of the last intent.
    intent: u64,
    /// Pages in flash.
    pages: i64,
}

impl State {
    fn is_unsynced(&self, number: u32, region: &Region) -> bool {
        region.is_unsynced || region.changing > 0 || self.unsynced_from.is_some_and(|from| number >= from)
    }
}

/// The index of one object.
#[derive(Debug)]
pub struct CachedObject {
    pub object: Object,
    /// Changes of the file hold it shared; a repair, which writes the bytes of a page that it read before, exclusively.
    repairs: RwLock<()>,
    segments: Arc<SegmentPages>,
    /// A [`FlashSetting`]; changes under the lock of the state.
    setting: AtomicU8,
    /// The [`DatabaseId`] of the request that used the object last.
    database: AtomicU32,
    uses: Uses,
    state: Mutex<State>,
}

/// A change that is under way.
#[derive(Debug, Default)]
pub struct Change {
    /// The regions, and how often each had changed when this change began.
    regions: Vec<(u32, u32)>,
    is_from: bool,
}

/// The regions that a change needs an intent for: from the first to the last one.
#[derive(Debug, PartialEq, Eq)]
pub struct NeedsIntent(pub Range<u32>);

/// Changes that a sync makes durable.
#[derive(Debug)]
pub struct Syncing {
    regions: Vec<(u32, u32)>,
    from_changes: Option<u32>,
}

/// A page range within one region that will be filled, with the changes of the region at this moment.
#[derive(Debug)]
pub struct Reservation {
    pub pages: Range<u32>,
    changes: u32,
}

/// A region in a checkpoint.
#[derive(Debug)]
pub enum Snapshot {
    Page {
        page: u32,
        location: Location,
    },
    /// Regions whose pages do not count after a crash.
    Open {
        first: u32,
        last: u32,
    },
}

/// Returns the pages that a byte range touches. Bytes beyond the last page that can be cached are left out.
pub fn pages_of(range: &Range<u64>) -> Range<u32> {
    let page = |number: u64| number.min(PAGES_MAX) as u32;
    page(range.start / PAGE)..page(range.end.div_ceil(PAGE))
}

fn regions_of(pages: &Range<u32>) -> Range<u32> {
    if pages.is_empty() {
        return 0..0;
    }
    pages.start / REGION_PAGES..(pages.end - 1) / REGION_PAGES + 1
}

fn pages_in(region: u32, pages: &Range<u32>) -> Range<u32> {
    let start = region * REGION_PAGES;
    pages.start.max(start)..pages.end.min(start.saturating_add(REGION_PAGES))
}

/// Splits a page range into ranges of one region and at most `pages_max` pages each.
pub fn parts(pages: Range<u32>, pages_max: u32) -> impl Iterator<Item = Range<u32>> {
    let split = move |pages: Range<u32>| {
        let starts = (pages.start..pages.end).step_by(pages_max as usize);
        starts.map(move |start| start..pages.end.min(start + pages_max))
    };
    regions_of(&pages).map(move |region| pages_in(region, &pages)).flat_map(split)
}

impl CachedObject {
    /// `intent` is the sequence of the last intent of any object: the file may be the successor of a removed one.
    pub fn new(object: Object, segments: Arc<SegmentPages>, intent: u64) -> Self {
        let state = Mutex::new(State { intent, ..State::default() });
        let (setting, uses) = (AtomicU8::new(FlashSetting::default() as u8), Uses::default());
        let database = AtomicU32::new(DatabaseId::OTHER.0);
        Self { object, repairs: RwLock::new(()), segments, setting, database, uses, state }
    }

    pub fn database(&self) -> DatabaseId {
        DatabaseId(self.database.load(Ordering::Relaxed))
    }

    /// Records the database of the calling thread. Work of the cell belongs to no database.
    pub fn used_by_current(&self) {
        let database = request::current().database;
        if database != DatabaseId::OTHER && database != self.database() {
            self.database.store(database.0, Ordering::Relaxed);
        }
    }

    pub fn setting(&self) -> FlashSetting {
        FlashSetting::from_code(self.setting.load(Ordering::Acquire)).unwrap_or_default()
    }

    /// Returns whether other pages may not displace those of the object.
    pub fn is_kept(&self) -> bool {
        self.setting() == FlashSetting::Keep
    }

    /// Changes the setting. From now on, no fill of an object with `NONE` is reserved; a change ends those that were.
    pub fn set_setting(&self, setting: FlashSetting) {
        let _state = self.state.lock();
        self.setting.store(setting as u8, Ordering::Release);
    }

    pub fn uses(&self) -> &Uses {
        &self.uses
    }

    /// Keeps repairs out during a change. Fails on a thread that must not wait, if a repair is under way.
    pub fn lock_out_repairs(&self) -> io::Result<RwLockReadGuard<'_, ()>> {
        match self.repairs.try_read() {
            Some(guard) => Ok(guard),
            None => waiting::check().map(|()| self.repairs.read()),
        }
    }

    /// Keeps changes out during a repair.
    pub fn lock_out_changes(&self) -> RwLockWriteGuard<'_, ()> {
        self.repairs.write()
    }

    /// Returns the locations of pages if all are in flash, and counts the use of each.
    pub fn find(&self, pages: Range<u32>) -> Option<Vec<Location>> {
        let mut state = self.state.lock();
        if pages.is_empty() || state.is_refused || state.pages < pages.len() as i64 {
            return None;
        }
        let mut locations = Vec::with_capacity(pages.len());
        for page in pages.clone() {
            let location = state.regions.get(&(page / REGION_PAGES))?.location(page);
            if location.is_none() {
                return None;
            }
            locations.push(location);
        }
        for page in pages {
            let slot = state.regions.get_mut(&(page / REGION_PAGES)).and_then(|region| region.slot(page));
            let slot = slot.expect("the page was found");
            *slot = slot.with_uses(slot.uses() + 1);
        }
        Some(locations)
    }

    /// Returns whether pages, from `first` on, are at places where [`Self::find`] found them.
    pub fn are_at(&self, first: u32, locations: &[Location]) -> bool {
        let state = self.state.lock();
        !state.is_refused
            && (first..).zip(locations).all(|(page, location)| {
                let region = state.regions.get(&(page / REGION_PAGES));
                region.is_some_and(|region| region.location(page).place() == location.place())
            })
    }

    /// Returns whether all pages are in flash.
    pub fn has_all(&self, mut pages: Range<u32>) -> bool {
        let state = self.state.lock();
        !state.is_refused
            && state.pages >= pages.len() as i64
            && pages.all(|page| {
                state.regions.get(&(page / REGION_PAGES)).is_some_and(|region| !region.location(page).is_none())
            })
    }

    /// Returns whether some of the pages are in flash.
    pub fn has_any(&self, pages: Range<u32>) -> bool {
        let state = self.state.lock();
        state.pages > 0
            && pages.into_iter().any(|page| {
                state.regions.get(&(page / REGION_PAGES)).is_some_and(|region| !region.location(page).is_none())
            })
    }

    /// Reserves the pages of a range within one region that are not in flash for fills, before their bytes are read from the disk.
    /// None while a change is under way. The caller must call [`Self::end_fill`] for each.
    pub fn reserve(&self, pages: Range<u32>) -> Vec<Reservation> {
        self.reserve_in(&mut self.state.lock(), pages)
    }

    fn reserve_in(&self, state: &mut State, pages: Range<u32>) -> Vec<Reservation> {
        match self.setting() {
            FlashSetting::None => Vec::new(),
            _ => reserve(state, pages),
        }
    }

    /// Returns whether the bytes that were read after the reservation are still those on disk, and whether the record of
    /// the fill must contain an intent. The caller holds the lock of the log until the record is written and
    /// [`Self::end_fill`] was called.
    pub fn check_fill(&self, reservation: &Reservation) -> Option<bool> {
        let state = self.state.lock();
        let number = reservation.pages.start / REGION_PAGES;
        let region = state.regions.get(&number)?;
        let is_current = !state.is_refused
            && state.from_changing == 0
            && region.changing == 0
            && region.changes == reservation.changes;
        // A page with two places in the log would count at the older one when the newer one is evicted, or lost in a crash: the
        // index could not tell any more that the log contains the page.
        let is_new = reservation.pages.clone().all(|page| region.location(page).is_none());
        let needs_intent = !region.has_intent && state.is_unsynced(number, region);
        (is_current && is_new).then_some(needs_intent)
    }

    /// Ends a fill. With locations, one for each page, the pages are in flash unless a change began; `has_intent` says
    /// that the record contained an intent. Returns by how much the number of pages in flash changed.
    pub fn end_fill(&self, reservation: Reservation, filled: Option<(&[Location], bool)>) -> i64 {
        let mut state = self.state.lock();
        let number = reservation.pages.start / REGION_PAGES;
        let is_refused = state.is_refused || state.from_changing > 0;
        let Some(region) = state.regions.get_mut(&number) else { return 0 };
        region.filling -= 1;
        let mut added = 0;
        if let Some((locations, has_intent)) = filled {
            region.has_intent |= has_intent;
            if !is_refused && region.changing == 0 && region.changes == reservation.changes {
                added = reservation
                    .pages
                    .zip(locations)
                    .map(|(page, location)| region.set(page, *location, &self.segments))
                    .sum();
            }
        }
        if region.is_forgettable() {
            state.regions.remove(&number);
        }
        state.pages += added;
        added
    }

    /// Begins a change of pages on disk, which removes them from the index. With an error, the caller first makes the intent
    /// durable, calls [`Self::set_intent`], and tries again. The page range may be unbounded (`..u32::MAX`).
    pub fn begin_change(&self, pages: &Range<u32>) -> Result<(Change, i64), NeedsIntent> {
        let regions = regions_of(pages);
        let is_from = regions.len() > REGIONS_LISTED_MAX as usize;
        let mut state = self.state.lock();
        let mut existing: Vec<u32> = match is_from {
            true => state.regions.keys().copied().filter(|number| regions.contains(number)).collect(),
            false => regions.clone().filter(|number| state.regions.contains_key(number)).collect(),
        };
        existing.sort_unstable();
        let needs = |number: &&u32| {
            let region = &state.regions[*number];
            region.may_count() && !region.has_intent
        };
        if let Some(first) = existing.iter().find(needs) {
            let last = existing.iter().rfind(needs).unwrap_or(first);
            return Err(NeedsIntent(*first..*last + 1));
        }
        let changed = if is_from { existing } else { regions.clone().collect() };
        let (mut removed, mut changes) = (0, Vec::with_capacity(changed.len()));
        for number in changed {
            let region = state.regions.entry(number).or_default();
            region.changes = region.changes.wrapping_add(1);
            region.changing += 1;
            changes.push((number, region.changes));
            removed += region.clear(pages_in(number, pages), &self.segments);
            if !std::mem::replace(&mut region.is_unsynced, true) {
                state.unsynced.push(number);
            }
        }
        if is_from {
            state.unsynced_from = Some(state.unsynced_from.map_or(regions.start, |from| from.min(regions.start)));
            state.from_changes = state.from_changes.wrapping_add(1);
            state.from_changing += 1;
        }
        state.pages += removed;
        Ok((Change { regions: changes, is_from }, removed))
    }

    /// Returns whether a change of pages would first need an intent.
    pub fn needs_intent(&self, pages: &Range<u32>) -> bool {
        let state = self.state.lock();
        regions_of(pages)
            .take(REGIONS_LISTED_MAX as usize)
            .any(|number| state.regions.get(&number).is_some_and(|region| region.may_count() && !region.has_intent))
    }

    /// Records that the log contains a durable intent with this sequence. Returns false if a checkpoint contains the intent
    /// already, and so has ended it.
    pub fn set_intent(&self, regions: &Range<u32>, sequence: u64) -> bool {
        let mut state = self.state.lock();
        if state.copied >= sequence {
            return false;
        }
        state.intent = state.intent.max(sequence);
        for (_, region) in state.regions.iter_mut().filter(|(number, _)| regions.contains(number)) {
            region.has_intent = true;
        }
        true
    }

    /// Returns the sequence of the last intent, which the cell disks record before a sync of the file ends.
    pub fn intent(&self) -> u64 {
        self.state.lock().intent
    }

    /// Ends a change, and reserves fills of at most `pages_max` pages with the bytes of `written` that the change wrote: in the
    /// regions that no other change touched meanwhile.
    pub fn end_change(&self, change: Change, written: Range<u32>, pages_max: u32) -> Vec<Reservation> {
        let mut state = self.state.lock();
        let mut alone = Vec::new();
        for (number, changes) in change.regions {
            let region = state.regions.get_mut(&number).expect("a region that changes is kept");
            if region.changes == changes {
                alone.push(number);
            }
            region.changing -= 1;
            region.changes = region.changes.wrapping_add(1);
        }
        if change.is_from {
            state.from_changing -= 1;
            state.from_changes = state.from_changes.wrapping_add(1);
        }
        let parts = parts(written, pages_max).filter(|part| alone.contains(&(part.start / REGION_PAGES)));
        parts.flat_map(|part| self.reserve_in(&mut state, part)).collect()
    }

    /// Begins a sync of the object's file.
    pub fn begin_sync(&self) -> Syncing {
        let mut state = self.state.lock();
        let unsynced = std::mem::take(&mut state.unsynced);
        let with_changes = |number: u32| (number, state.regions.get(&number).map_or(0, |region| region.changes));
        let regions = unsynced.into_iter().map(with_changes).collect();
        let from_changes = state.unsynced_from.map(|_| state.from_changes);
        Syncing { regions, from_changes }
    }

    /// Ends a sync. After a failed one the bytes on disk are uncertain, so the object is not cached any more. Returns by
    /// how much the number of pages in flash changed.
    pub fn end_sync(&self, syncing: Syncing, is_synced: bool) -> i64 {
        let mut state = self.state.lock();
        if !is_synced {
            state.unsynced.extend(syncing.regions.into_iter().map(|(number, _)| number));
            return refuse(&mut state, &self.segments);
        }
        for (number, changes) in syncing.regions {
            let Some(region) = state.regions.get_mut(&number) else { continue };
            if region.changing > 0 || region.changes != changes {
                state.unsynced.push(number);
                continue;
            }
            region.is_unsynced = false;
            if region.is_forgettable() {
                state.regions.remove(&number);
            }
        }
        if syncing.from_changes == Some(state.from_changes) && state.from_changing == 0 {
            state.unsynced_from = None;
        }
        0
    }

    /// Answers no read any more and refuses new pages. Returns by how much the number of pages in flash changed.
    pub fn refuse(&self) -> i64 {
        refuse(&mut self.state.lock(), &self.segments)
    }

    /// Returns the uses of a page if it is at a location.
    pub fn uses_at(&self, page: u32, location: Location) -> Option<u32> {
        let state = self.state.lock();
        let found = state.regions.get(&(page / REGION_PAGES))?.location(page);
        (!found.is_none() && found.place() == location.place()).then(|| found.uses())
    }

    /// Replaces the location of a page if it is at `old`. Returns by how much the number of pages in flash changed.
    pub fn relocate(&self, page: u32, old: Location, new: Location, uses: u32) -> i64 {
        let mut state = self.state.lock();
        let number = page / REGION_PAGES;
        let Some(region) = state.regions.get_mut(&number) else { return 0 };
        if region.location(page).place() != old.place() {
            return 0;
        }
        let added = region.set(page, if new.is_none() { new } else { new.with_uses(uses) }, &self.segments);
        if region.is_forgettable() {
            state.regions.remove(&number);
        }
        state.pages += added;
        added
    }

    /// Puts a page at the location that recovery found.
    pub fn restore(&self, page: u32, location: Location) -> i64 {
        let mut state = self.state.lock();
        let added = state.regions.entry(page / REGION_PAGES).or_default().set(page, location, &self.segments);
        state.pages += added;
        added
    }

    /// Returns the number of pages in flash.
    pub fn pages(&self) -> i64 {
        self.state.lock().pages
    }

    /// Removes regions before the first change. Returns by how much the number of pages in flash changed.
    pub fn forget(&self, regions: Range<u64>) -> i64 {
        let mut state = self.state.lock();
        let mut removed = 0;
        state.regions.retain(|number, region| {
            let is_kept = !regions.contains(&u64::from(*number));
            if !is_kept {
                removed += region.clear_all(&self.segments);
            }
            is_kept
        });
        state.pages += removed;
        removed
    }

    /// Removes the pages in a segment that is retired. Returns by how much the number of pages in flash changed.
    pub fn forget_segment(&self, number: u32) -> i64 {
        let mut state = self.state.lock();
        let mut removed = 0;
        state.regions.retain(|_, region| {
            removed += region.clear_segment(number, &self.segments);
            !region.is_forgettable()
        });
        state.pages += removed;
        removed
    }

    /// Calls `visit` for each page in flash and each region that is open, and ends the intents of the other regions, for a
    /// checkpoint of the records up to `sequence`. No page is filled or moved meanwhile.
    pub fn snapshot(&self, sequence: u64, mut visit: impl FnMut(Snapshot)) {
        let mut state = self.state.lock();
        state.copied = sequence;
        let from = state.unsynced_from;
        let is_open = |number: u32, region: &Region| {
            region.is_unsynced || region.changing > 0 || from.is_some_and(|from| number >= from)
        };
        for (number, region) in &mut state.regions {
            if is_open(*number, region) {
                if region.has_intent || region.may_count() {
                    visit(Snapshot::Open { first: *number, last: *number });
                }
                continue;
            }
            region.has_intent = false;
            for line in &region.lines {
                let first = number * REGION_PAGES + u32::from(line.number) * LINE_PAGES;
                let pages = (first..).zip(line.pages).filter(|(_, location)| !location.is_none());
                pages.for_each(|(page, location)| visit(Snapshot::Page { page, location }));
            }
        }
        state.regions.retain(|_, region| !region.is_forgettable());
    }
}

fn reserve(state: &mut State, pages: Range<u32>) -> Vec<Reservation> {
    debug_assert_eq!(regions_of(&pages).len(), 1, "{pages:?}");
    let (number, mut reservations) = (pages.start / REGION_PAGES, Vec::new());
    if state.is_refused || state.from_changing > 0 {
        return reservations;
    }
    let region = state.regions.entry(number).or_default();
    let mut start = pages.start;
    while start < pages.end && region.changing == 0 && region.filling < u16::MAX {
        let is_cached = |page: &u32| !region.location(*page).is_none();
        let end = (start..pages.end).find(is_cached).unwrap_or(pages.end);
        if start < end {
            region.filling += 1;
            reservations.push(Reservation { pages: start..end, changes: region.changes });
        }
        start = end + 1;
    }
    if region.is_forgettable() {
        state.regions.remove(&number);
    }
    reservations
}

/// Regions that are not open keep their pages, which are not read any more: a change of them still needs an intent.
fn refuse(state: &mut State, segments: &SegmentPages) -> i64 {
    state.is_refused = true;
    let (from, mut removed) = (state.unsynced_from, 0);
    for (number, region) in &mut state.regions {
        let is_open = region.is_unsynced || region.changing > 0 || from.is_some_and(|from| *number >= from);
        if is_open {
            removed += region.clear_all(segments);
        }
    }
    state.pages += removed;
    removed
}
