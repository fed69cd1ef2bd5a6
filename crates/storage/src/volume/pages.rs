//! Pages that contain checksums: a page that fails its checksum when it is read is repaired from another copy.
//!
//! The storage does not know which files consist of such pages, nor how to compute the checksums: [`PageCheck`] does.

use super::{Ino, Volume};
use crate::disk::{Check, Condition, no_wait};
use crate::error::{Error, Result};
use crate::file::{FileData, PAGE, PAGE_BYTES};
use crate::group::mirror::{DamageCheck, Keep, Occasion};
use crate::group::rebalance::inode_of;
use cellar_format::units::PageInAu;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the damage of the same page is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(600);
/// Maximum number of pages whose damage is logged in an interval.
const LOGGED_PAGES_MAX: usize = 100;

/// Knows the checksums of pages.
pub trait PageCheck: Send + Sync + Debug {
    /// Returns whether the pages of a file may have checksums, by its path alone: reads no file.
    fn may_have_checksums(&self, path: &str) -> bool;

    /// Returns the number of a file's first page if its pages have checksums. May be outdated by a second. Reads from the
    /// volume with [`Volume::read_uncached`] only.
    fn first_page(&self, volume: &Volume, path: &str) -> Option<u32>;

    /// Returns whether the pages of the file have checksums now; not while the checksums are being switched on or off.
    fn applies_now(&self, volume: &Volume, path: &str) -> bool;

    /// Returns whether a page is valid: its checksum is right, or the page is empty.
    fn is_valid(&self, page: &[u8], number: u32) -> bool;

    /// Returns a number that differs between a page before and after a change. The page need not be valid.
    fn version(&self, page: &[u8]) -> u64;
}

/// A file whose pages have checksums.
pub(super) struct CheckedFile<'a> {
    volume: &'a Volume,
    check: Arc<dyn PageCheck>,
    path: String,
    first_page: u32,
}

impl CheckedFile<'_> {
    fn is_valid(&self, page: u64, bytes: &[u8]) -> bool {
        self.check.is_valid(bytes, self.first_page.wrapping_add(page as u32))
    }

    /// Returns whether all whole pages of a range are valid.
    pub(super) fn are_valid(&self, start: u64, bytes: &[u8]) -> bool {
        self.damaged_in(start, bytes).next().is_none()
    }

    /// Returns the numbers in the file of the invalid ones among the whole pages of a range.
    fn damaged_in(&self, start: u64, bytes: &[u8]) -> impl Iterator<Item = u64> {
        let first = start.div_ceil(PAGE);
        let pages = bytes.get((first * PAGE - start) as usize..).unwrap_or_default().chunks_exact(PAGE_BYTES);
        (first..).zip(pages).filter(|(page, bytes)| !self.is_valid(*page, bytes)).map(|(page, _)| page)
    }

    /// Repairs the raw copies of a page.
    pub(super) fn repair(&self, file: &FileData, page: u64) -> Result<Condition> {
        let is_valid = |bytes: &[u8]| self.is_valid(page, bytes);
        let still_applies = || self.check.applies_now(self.volume, &self.path);
        let check = Check { is_valid: &is_valid, still_applies: &still_applies };
        let condition = file.repair(&range_of(page), &check)?;
        let (path, number) = (&self.path, self.first_page.wrapping_add(page as u32));
        match condition {
            Condition::Sound => {}
            Condition::Repaired => log::warn!("repaired block {number} of {path}"),
            Condition::Differ | Condition::Damaged => {
                if self.volume.damage_log.is_due((file.ino, page), Instant::now()) {
                    log::error!("block {number} of {path} is damaged on all copies");
                }
            }
        }
        if condition <= Condition::Repaired {
            self.volume.forget_page(file, page);
        }
        Ok(condition)
    }

    /// Decides about pages of a disk that are to be replaced by those of another disk: keeps the valid ones for which the
    /// other disk has a damaged page, by copying them to `replacement`. No change of the file is under way.
    ///
    /// On a disk that returns, a page of another version may be outdated, so a damaged page replaces it. After a crash, all
    /// disks have every acknowledged change; but an empty page has no checksum, and replaces no damaged one.
    pub(super) fn keep_undamaged(
        &self,
        file: &FileData,
        (start, occasion): (u64, Occasion),
        replacement: &mut [u8],
        present: &[u8],
    ) {
        let damaged: Vec<u64> = self.damaged_in(start, replacement).collect();
        for page in damaged {
            let at = (page * PAGE - start) as usize..((page + 1) * PAGE - start) as usize;
            let (new, old) = (&replacement[at.clone()], &present[at.clone()]);
            let version = self.check.version(new);
            let is_current = match occasion {
                // Pages without a version, such as those of unlogged tables, may be outdated.
                Occasion::Return => {
                    version != 0 && version == self.check.version(old) && !file.torn_blocks.any_in(&range_of(page))
                }
                Occasion::Start => old.iter().any(|byte| *byte != 0),
            };
            let (path, number) = (&self.path, self.first_page.wrapping_add(page as u32));
            if is_current && self.is_valid(page, old) {
                log::warn!("block {number} of {path} is damaged on one disk; keeping the copy of another disk");
                replacement[at.clone()].copy_from_slice(&present[at]);
            } else if new != old && self.volume.damage_log.is_due((file.ino, page), Instant::now()) {
                log::error!("block {number} of {path} is damaged, and the copy on another disk is damaged or outdated");
            }
        }
    }
}

/// The numbers of files are those on a container, which have the stripe in them.
impl DamageCheck for Volume {
    fn may_have_checksums(&self, ino: u64) -> bool {
        let path = || self.path_of(inode_of(ino));
        self.options.page_check.as_ref().is_some_and(|check| path().is_some_and(|path| check.may_have_checksums(&path)))
    }

    fn keep(&self, ino: u64, occasion: Occasion) -> Option<Keep<'_>> {
        let ino = inode_of(ino);
        let (checked, file) = (self.checked_file(ino)?, self.file(ino).ok()?);
        Some(Box::new(move |start, replacement, present| {
            checked.keep_undamaged(&file, (start, occasion), replacement, present);
        }))
    }
}

/// Limits how often damage of a page is logged that nothing repairs: every read finds it.
#[derive(Debug, Default)]
pub(super) struct DamageLog(Mutex<Option<Logged>>);

/// What was logged during an interval.
#[derive(Debug)]
struct Logged {
    since: Instant,
    pages: HashSet<(Ino, u64)>,
    omitted: u64,
}

impl DamageLog {
    /// Returns whether the damage of a page is to be logged now: once in an interval, and for a limited number of pages.
    fn is_due(&self, page: (Ino, u64), now: Instant) -> bool {
        let mut logged = self.0.lock();
        if logged.as_ref().is_none_or(|logged| now.duration_since(logged.since) >= LOG_INTERVAL) {
            if let Some(Logged { omitted: omitted @ 1.., .. }) = &*logged {
                log::error!(
                    "{omitted} more reads found pages that are damaged on all copies; cellar group scrub lists them"
                );
            }
            *logged = Some(Logged { since: now, pages: HashSet::new(), omitted: 0 });
        }
        let logged = logged.as_mut().expect("just set");
        if logged.pages.contains(&page) {
            return false;
        }
        let is_due = logged.pages.len() < LOGGED_PAGES_MAX;
        match is_due {
            true => drop(logged.pages.insert(page)),
            false => logged.omitted += 1,
        }
        is_due
    }
}

/// Returns the bytes of a page.
pub(super) fn range_of(page: u64) -> Range<u64> {
    page * PAGE..(page + 1) * PAGE
}

impl Volume {
    /// Returns how the pages of a file are checked; None if they have no checksums.
    pub(super) fn checked_file(&self, ino: Ino) -> Option<CheckedFile<'_>> {
        let check = self.options.page_check.clone()?;
        let path = self.path_of(ino)?;
        let first_page = check.first_page(self, &path)?;
        Some(CheckedFile { volume: self, check, path, first_page })
    }

    /// Repairs the pages of a range, as it was read, that fail their checksums. Returns whether the range must be read
    /// again.
    pub(super) fn repair_after_read(&self, ino: Ino, start: u64, bytes: &[u8]) -> Result<bool> {
        let has_copies = self.group.mirror().is_some() || self.group.flash().is_some();
        if !has_copies || bytes.len() < PAGE_BYTES || no_wait::will_be_repeated() {
            return Ok(false);
        }
        let Some(checked) = self.checked_file(ino) else { return Ok(false) };
        let damaged: Vec<u64> = checked.damaged_in(start, bytes).collect();
        if damaged.is_empty() {
            return Ok(false);
        }
        if no_wait::is_on() {
            return Err(Error::io("a damaged page must be repaired", no_wait::would_wait()));
        }
        let file = self.file(ino)?;
        let mut is_repaired = false;
        // A page in a compression unit had this checksum when it was compressed; of a torn block, a part is missing.
        for page in damaged.into_iter().filter(|page| !is_in_unit(&file, *page)) {
            if !file.torn_blocks.any_in(&range_of(page)) {
                is_repaired |= checked.repair(&file, page)? <= Condition::Repaired;
            }
        }
        Ok(is_repaired)
    }

    /// Reads the pages of a range, and repairs those that fail their checksums. Does nothing in a group without copies.
    pub fn verify_pages(&self, ino: Ino, range: Range<u64>) -> Result<()> {
        if self.group.mirror().is_none() {
            return Ok(());
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.read(ino, range.start, &mut bytes).map(drop)
    }

    /// Returns whether the thread serves a read of [`Self::try_read`] and must not do work that takes long; then the read is
    /// repeated by a thread that may.
    pub fn leave_to_waiting_thread(&self) -> bool {
        let is_on = no_wait::is_on();
        if is_on {
            no_wait::would_wait();
        }
        is_on
    }

    /// Makes readers load a repaired page again.
    fn forget_page(&self, file: &FileData, page: u64) {
        let _write = file.lock_write();
        file.versions.bump(range_of(page));
        self.cache.forget(&file.cached, crate::file::regions(range_of(page)));
    }
}

/// Returns whether a page is current in a compression unit.
pub(super) fn is_in_unit(file: &FileData, page: u64) -> bool {
    let au = file.layout.au_at(page * PAGE);
    let in_au = PageInAu((page - file.layout.au_range(au).start / PAGE) as u32);
    file.units().and_then(|units| units.extent(au)).is_some_and(|extent| extent.is_current(in_au))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_damage_of_a_page_is_logged_once_in_an_interval() {
        let (log, start) = (DamageLog::default(), Instant::now());
        assert!(log.is_due((1, 5), start) && log.is_due((1, 6), start) && log.is_due((2, 5), start));
        assert!((0..10).all(|second| !log.is_due((1, 5), start + Duration::from_secs(second))));
        let due = (0..1000).filter(|page| log.is_due((3, *page), start)).count();
        assert_eq!(due, LOGGED_PAGES_MAX - 3);
        assert!(log.is_due((1, 5), start + LOG_INTERVAL));
        assert!(!log.is_due((1, 5), start + LOG_INTERVAL));
    }
}
