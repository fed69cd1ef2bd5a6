//! The dirty pages of one object: those that flash has, and the cell disks not yet.
//!
//! Invariants:
//! - All dirty pages are within the length that the file has on the cell disks.
//! - Each page of a record that counts is dirty at that record, or an earlier version of a dirty page.

use super::format::Piece;
use super::log::{Appended, Segment};
use crate::disk::no_wait;
use crate::flash::Object;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where a dirty page is.
#[derive(Debug, Clone)]
pub struct Place {
    pub segment: Arc<Segment>,
    pub offset: u64,
    pub sequence: u64,
}

#[derive(Debug, Default)]
pub struct State {
    pub pages: BTreeMap<u32, Place>,
    /// The sequence of the last record with pages of the object.
    pub last: u64,
    /// The file was removed: a late write goes to the cell disks only.
    pub is_removed: bool,
    /// The write of a record failed or panicked, and a start may find the record: it must not replace a later write, so that all
    /// later writes of the file fail as long as this log exists.
    pub has_failed_record: bool,
}

#[derive(Debug)]
pub struct DirtyObject {
    pub object: Object,
    /// Held while pages are written to the cell disks and stop being dirty, and while the file becomes shorter.
    pub cleaning: Mutex<()>,
    pub state: Mutex<State>,
    /// The cell disks may have changes that are not durable. Set at first, because an earlier process may have left some.
    pub is_unsynced: AtomicBool,
    /// A sync of the cell disks that no client requested failed: the next sync of the file reports that.
    has_failed_sync: AtomicBool,
    /// The cell disks name the file among those that may lack changes.
    pub is_noted: AtomicBool,
    /// Pages became dirty by other writes than redo: the cell disks name the file if it may lack changes.
    pub needs_note: AtomicBool,
    /// Held during a sync of the cell disks: a sync that finds nothing to do must not return before the one that has begun, nor
    /// before one that fails.
    syncing: Mutex<()>,
    /// Set while the running sync is one that no client requested. Changed with `syncing` locked.
    is_internal: Mutex<bool>,
}

/// Pages that the cell disks have durably.
#[derive(Debug)]
pub struct Cleaned {
    pub object: Arc<DirtyObject>,
    /// Numbers, and sequences of the records.
    pages: Vec<(u32, u64)>,
}

impl DirtyObject {
    pub fn new(object: Object) -> Self {
        let (cleaning, state) = (Mutex::default(), Mutex::default());
        let (is_unsynced, has_failed_sync) = (AtomicBool::new(true), AtomicBool::new(false));
        Self {
            object,
            cleaning,
            state,
            is_unsynced,
            has_failed_sync,
            is_noted: AtomicBool::new(false),
            needs_note: AtomicBool::new(false),
            syncing: Mutex::default(),
            is_internal: Mutex::default(),
        }
    }

    pub fn is_dirty(&self) -> bool {
        !self.state.lock().pages.is_empty()
    }

    /// Locks the pages. A thread that must not wait gets an error while a record of the object is written.
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        match no_wait::is_on() {
            true => self.state.try_lock().ok_or_else(no_wait::would_wait),
            false => Ok(self.state.lock()),
        }
    }

    pub fn dirty(&self, pages: Range<u32>) -> io::Result<Vec<(u32, Place)>> {
        Ok(self.state()?.pages.range(pages).map(|(page, place)| (*page, place.clone())).collect())
    }

    /// Returns whether a page is at a place.
    pub fn is_at(&self, page: u32, place: &Place) -> io::Result<bool> {
        Ok(self.state()?.pages.get(&page).is_some_and(|found| found.sequence == place.sequence))
    }

    /// Lets the next sync reach the cell disks.
    pub fn require_sync(&self) {
        self.is_unsynced.store(true, Ordering::Release);
    }

    /// Syncs the cell disks if they may have changes that are not durable. The log has the dirty pages durably.
    pub fn sync(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let Some(_syncing) = self.syncing_unless_durable() else { return Ok(()) };
        if self.is_unsynced.swap(false, Ordering::AcqRel) {
            let unless_synced = SetLater(&self.is_unsynced);
            sync()?;
            unless_synced.cancel();
        }
        match self.has_failed_sync.swap(false, Ordering::AcqRel) {
            true => Err(io::Error::other("an earlier sync of the cell disks failed")),
            false => Ok(()),
        }
    }

    /// Waits until no other sync of the file runs, and locks out later ones. Returns None without waiting if the running sync is an
    /// internal one and the cell disks have all changes durably except pages that the log has durably.
    ///
    /// Why the flags are enough: while `is_internal` is locked and set, no sync of a client runs, so each one that began has ended.
    /// `is_unsynced` is set after each change, and again by a client's sync that fails. If it is not set, a client's sync has made all
    /// changes durable.
    fn syncing_unless_durable(&self) -> Option<MutexGuard<'_, ()>> {
        if let Some(syncing) = self.syncing.try_lock() {
            return Some(syncing);
        }
        let is_durable = {
            let is_internal = self.is_internal.lock();
            *is_internal && !self.is_unsynced.load(Ordering::Acquire) && !self.has_failed_sync.load(Ordering::Acquire)
        };
        (!is_durable).then(|| self.syncing.lock())
    }

    /// Runs an internal sync: one of a destage, or of a file that becomes shorter. The kernel reports an error of earlier writes only
    /// once. If it reports the error here, the next sync of a client fails, too.
    pub fn sync_internally(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let _syncing = self.syncing.lock();
        let _internal = Internal::begin(self);
        let unless_synced = SetLater(&self.has_failed_sync);
        sync()?;
        unless_synced.cancel();
        Ok(())
    }
}

/// Sets a flag when it is dropped without [`Self::cancel`]: after an error or a panic.
struct SetLater<'a>(&'a AtomicBool);

impl SetLater<'_> {
    fn cancel(self) {
        std::mem::forget(self);
    }
}

impl Drop for SetLater<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Keeps `is_internal` set during an internal sync, and clears it also after a panic.
struct Internal<'a>(&'a DirtyObject);

impl<'a> Internal<'a> {
    fn begin(object: &'a DirtyObject) -> Self {
        *object.is_internal.lock() = true;
        Self(object)
    }
}

impl Drop for Internal<'_> {
    fn drop(&mut self) {
        *self.0.is_internal.lock() = false;
    }
}

impl State {
    /// Makes pages dirty at the places of a record. Returns how many were not dirty before.
    pub fn add(&mut self, pages: Range<u32>, appended: &Appended) -> u64 {
        let offsets = (appended.offset..).step_by(super::format::PAGE_BYTES);
        let mut added = 0;
        for (page, offset) in pages.zip(offsets) {
            let place = Place { segment: appended.segment.clone(), offset, sequence: appended.sequence };
            match self.pages.insert(page, place) {
                Some(former) => former.segment.remove_live(),
                None => added += 1,
            }
        }
        self.last = appended.sequence;
        added
    }

    /// Removes all pages from one on. Returns how many.
    pub fn remove_from(&mut self, first: u32) -> u64 {
        let removed = self.pages.split_off(&first);
        removed.values().for_each(|place| place.segment.remove_live());
        removed.len() as u64
    }
}

impl Cleaned {
    pub fn new(object: Arc<DirtyObject>, pages: &[(u32, Place)]) -> Self {
        Self { object, pages: pages.iter().map(|(page, place)| (*page, place.sequence)).collect() }
    }

    /// Returns what the log says about the pages.
    pub fn piece(&self) -> Piece {
        let (first, last) = (self.pages[0].0, self.pages[self.pages.len() - 1].0);
        let up_to = self.pages.iter().map(|(_, sequence)| *sequence).max().unwrap_or(0);
        Piece::Clean { object: self.object.object, first, last, up_to }
    }

    /// Removes the pages from the index, except those that were written since. Returns how many were removed.
    pub fn finish(&self) -> u64 {
        let mut state = self.object.state.lock();
        let mut removed = 0;
        for (page, sequence) in &self.pages {
            if state.pages.get(page).is_some_and(|place| place.sequence == *sequence)
                && let Some(place) = state.pages.remove(page)
            {
                place.segment.remove_live();
                removed += 1;
            }
        }
        removed
    }
}
