//! Damaged copies: finding them, and rewriting them from an undamaged one.
//!
//! A copy of a range is damaged if its disk cannot open or read it, if its bytes are not valid, if the operating system's page
//! cache and the medium have different bytes, or if it differs from most of the copies. Two valid copies that differ, without
//! a majority, are left as they are: nothing tells which one is right.
//!
//! Where page cache and medium differ, valid bytes of the page cache count: writes go to the page cache first, so after a
//! failed write of the operating system the medium has older bytes.
//!
//! Invariant: a copy is rewritten only while no change of its copy set is under way, with bytes of another copy that is
//! valid, and only if all copies are as they were before [`Check::still_applies`] was called.

use super::mirror_disk::MirroredFile;
use super::{Mirror, is_refusal};
use crate::disk::{Check, Condition, DiskFile, Examined, read_range};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Attempts to repair a range that other threads change meanwhile.
const ATTEMPTS: usize = 3;

/// The file on a disk; an error if the disk cannot open it.
type OpenedCopy = (u16, io::Result<Arc<dyn DiskFile>>);

/// The bytes of a range on one disk.
struct CopyOfRange {
    disk: u16,
    /// An error if the disk cannot open the file.
    file: io::Result<Arc<dyn DiskFile>>,
    /// None if the disk cannot read the range.
    medium: Option<Vec<u8>>,
    /// From the operating system's page cache, if it has the range.
    cached: Option<Vec<u8>>,
}

impl CopyOfRange {
    /// Returns the valid bytes of the copy.
    fn valid(&self, is_valid: &dyn Fn(&[u8]) -> bool) -> Option<&Vec<u8>> {
        [&self.cached, &self.medium].into_iter().flatten().find(|bytes| is_valid(bytes))
    }

    fn is_inconsistent(&self) -> bool {
        self.medium != self.cached
    }
}

/// What to do about the copies of a range.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Nothing(Condition),
    /// Rewrite the other copies from this one.
    RewriteFrom {
        source: usize,
        damaged: Vec<usize>,
    },
}

impl MirroredFile {
    /// Reads a range of all copies from their media.
    pub(super) fn examine_copies(&self, range: &Range<u64>, check: &Check<'_>) -> io::Result<Examined> {
        let files = self.online_files()?;
        let length = range.end - range.start;
        let is_hole = |file: &Arc<dyn DiskFile>| file.is_hole(range.start, length).unwrap_or(false);
        if files.iter().all(|(_, file)| file.as_ref().is_ok_and(is_hole)) {
            return Ok(Examined { is_sound: true, read_bytes: 0 });
        }
        let (mut first, mut read_bytes, mut is_sound) = (None, 0, true);
        for (_, file) in &files {
            let Ok(file) = file else {
                is_sound = false;
                continue;
            };
            read_bytes += length;
            match (read_range(&**file, range), &first) {
                (Ok(bytes), None) => {
                    is_sound &= (check.is_valid)(&bytes);
                    first = Some(bytes);
                }
                (Ok(bytes), Some(first)) => is_sound &= bytes == *first,
                (Err(_), _) => is_sound = false,
            }
        }
        Ok(Examined { is_sound, read_bytes })
    }

    /// Decides which copies of a range are damaged and rewrites them.
    pub(super) fn repair_copies(&self, range: &Range<u64>, check: &Check<'_>) -> io::Result<Condition> {
        let mirror = &self.set.mirror;
        for _ in 0..ATTEMPTS {
            let before = self.read_copies(range)?;
            if decide(&before, check.is_valid) == Decision::Nothing(Condition::Sound) {
                return Ok(Condition::Sound);
            }
            let is_valid: &dyn Fn(&[u8]) -> bool = if (check.still_applies)() { check.is_valid } else { &|_| true };
            let _no_change = mirror.lock_of(self.set.set).write();
            let now = self.read_copies(range)?;
            let content = |copy: &CopyOfRange| (copy.disk, copy.medium.clone(), copy.cached.clone());
            let is_unchanged = now.iter().map(content).eq(before.iter().map(content));
            match decide(&now, is_valid) {
                Decision::Nothing(condition) => return Ok(condition),
                Decision::RewriteFrom { source, damaged } if is_unchanged => {
                    let bytes = now[source].valid(is_valid).expect("the source is valid");
                    damaged.iter().try_for_each(|copy| self.rewrite(range, (&now[source], bytes), &now[*copy]))?;
                    return Ok(Condition::Repaired);
                }
                Decision::RewriteFrom { .. } => {}
            }
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "the range is changed all the time"))
    }

    /// Writes the source's bytes over a damaged copy and syncs the copy. A disk that fails leaves the group.
    fn rewrite(
        &self,
        range: &Range<u64>,
        (source, bytes): (&CopyOfRange, &[u8]),
        damaged: &CopyOfRange,
    ) -> io::Result<()> {
        let file = match &damaged.file {
            Ok(file) => file,
            Err(error) => return self.set.fail(damaged.disk, error),
        };
        let length = match &source.file {
            Ok(file) => file.len()?.min(range.end).saturating_sub(range.start) as usize,
            Err(_) => 0,
        };
        let written = file.write_at(&bytes[..length], range.start).and_then(|()| file.sync());
        match written {
            Ok(()) => {
                Mirror::count(&self.set.mirror.events.repairs, 1);
                let (from, to, path) = (range.start, range.end, self.set.path_of(damaged.disk));
                let good = self.set.path_of(source.disk);
                log::warn!(
                    "repaired bytes {from} to {to} of a file of inode {} on cell disk {path} from the copy on {good}",
                    self.ino
                );
                Ok(())
            }
            Err(error) if is_refusal(&error) => Err(error),
            Err(error) => self.set.fail(damaged.disk, &error),
        }
    }

    /// Opens the copies. Returns an error if the process lacks resources.
    fn online_files(&self) -> io::Result<Vec<OpenedCopy>> {
        let open = |disk: u16| match self.existing(disk) {
            Err(error) if is_refusal(&error) => Err(error),
            opened => Ok((disk, opened)),
        };
        self.set.online().map(open).collect()
    }

    fn read_copies(&self, range: &Range<u64>) -> io::Result<Vec<CopyOfRange>> {
        let read = |(disk, file): OpenedCopy| {
            let (mut medium, mut cached) = (None, None);
            if let Ok(file) = &file {
                medium = read_range(&**file, range).ok();
                let mut bytes = vec![0; (range.end - range.start) as usize];
                cached = file.read_at(&mut bytes, range.start).ok().map(|count| {
                    bytes[count..].fill(0);
                    bytes
                });
            }
            CopyOfRange { disk, file, medium, cached }
        };
        Ok(self.online_files()?.into_iter().map(read).collect())
    }
}

fn decide(copies: &[CopyOfRange], is_valid: &dyn Fn(&[u8]) -> bool) -> Decision {
    let bytes: Vec<Option<&Vec<u8>>> = copies.iter().map(|copy| copy.valid(is_valid)).collect();
    let votes = |copy: usize| bytes.iter().filter(|other| **other == bytes[copy]).count();
    let candidates = (0..copies.len()).filter(|copy| bytes[*copy].is_some());
    let Some(source) = candidates.clone().max_by_key(|copy| (votes(*copy), std::cmp::Reverse(*copy))) else {
        return Decision::Nothing(Condition::Damaged);
    };
    let is_decided = candidates.clone().count() == votes(source) || 2 * votes(source) > copies.len();
    if !is_decided {
        return Decision::Nothing(Condition::Differ);
    }
    let is_damaged = |copy: &usize| bytes[*copy] != bytes[source] || copies[*copy].is_inconsistent();
    let damaged: Vec<usize> = (0..copies.len()).filter(is_damaged).collect();
    match damaged.is_empty() {
        true => Decision::Nothing(Condition::Sound),
        false => Decision::RewriteFrom { source, damaged },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The medium's bytes of a copy, and those in the page cache.
    type Bytes<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

    fn decide_among(copies: &[Bytes<'_>], is_valid: &dyn Fn(&[u8]) -> bool) -> Decision {
        let copy = |(disk, (medium, cached)): (usize, &Bytes<'_>)| CopyOfRange {
            disk: disk as u16,
            file: Err(io::ErrorKind::NotFound.into()),
            medium: medium.map(<[u8]>::to_vec),
            cached: cached.map(<[u8]>::to_vec),
        };
        decide(&copies.iter().enumerate().map(copy).collect::<Vec<_>>(), is_valid)
    }

    fn decide_about(bytes: &[Option<&[u8]>], is_valid: &dyn Fn(&[u8]) -> bool) -> Decision {
        decide_among(&bytes.iter().map(|bytes| (*bytes, *bytes)).collect::<Vec<_>>(), is_valid)
    }

    #[test]
    fn a_valid_copy_is_the_source_and_a_majority_decides_among_valid_ones() {
        let (a, b, c): (&[u8], &[u8], &[u8]) = (b"a", b"b", b"c");
        let any = |_: &[u8]| true;
        let only_b = |bytes: &[u8]| bytes == b"b";
        let rewrite = |source, damaged: &[usize]| Decision::RewriteFrom { source, damaged: damaged.to_vec() };
        assert_eq!(decide_about(&[Some(a), Some(a)], &any), Decision::Nothing(Condition::Sound));
        assert_eq!(decide_about(&[Some(a), Some(b)], &any), Decision::Nothing(Condition::Differ));
        assert_eq!(decide_about(&[Some(a), Some(b)], &only_b), rewrite(1, &[0]));
        assert_eq!(decide_about(&[None, Some(b)], &only_b), rewrite(1, &[0]));
        assert_eq!(decide_about(&[Some(a), Some(c)], &only_b), Decision::Nothing(Condition::Damaged));
        assert_eq!(decide_about(&[None, None], &any), Decision::Nothing(Condition::Damaged));
        assert_eq!(decide_about(&[Some(a), Some(b), Some(a)], &any), rewrite(0, &[1]));
        assert_eq!(decide_about(&[Some(a), Some(b), Some(c)], &any), Decision::Nothing(Condition::Differ));
        assert_eq!(decide_about(&[Some(a), Some(b), None], &only_b), rewrite(1, &[0, 2]));
        assert_eq!(decide_about(&[Some(b)], &only_b), Decision::Nothing(Condition::Sound));
    }

    #[test]
    fn the_page_cache_is_newer_than_a_medium_that_missed_a_write() {
        let (old, new, bad): (&[u8], &[u8], &[u8]) = (b"old", b"new", b"bad");
        let (any, not_bad) = (|_: &[u8]| true, |bytes: &[u8]| bytes != b"bad");
        let rewrite = |source, damaged: &[usize]| Decision::RewriteFrom { source, damaged: damaged.to_vec() };
        let both = |bytes| (Some(bytes), Some(bytes));
        let missed = (Some(old), Some(new));
        assert_eq!(decide_among(&[missed, both(new)], &any), rewrite(0, &[0]));
        assert_eq!(decide_among(&[both(new), missed], &any), rewrite(0, &[1]));
        assert_eq!(decide_among(&[missed, missed], &any), rewrite(0, &[0, 1]));
        assert_eq!(decide_among(&[missed, both(old)], &any), Decision::Nothing(Condition::Differ));
        assert_eq!(decide_among(&[missed, both(bad)], &not_bad), rewrite(0, &[0, 1]));
        // A damaged page in the page cache, over a good medium.
        assert_eq!(decide_among(&[(Some(new), Some(bad)), both(new)], &not_bad), rewrite(0, &[0]));
        // A medium that cannot be read.
        assert_eq!(decide_among(&[(None, Some(new)), both(new)], &any), rewrite(0, &[0]));
    }
}
