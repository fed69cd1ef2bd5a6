//! Damaged copies: finding them, and rewriting them from an undamaged one.
//!
//! A copy of a range is damaged if its disk cannot read it, if its bytes are not valid, if the operating system's page cache
//! and the medium have different bytes, or if it differs from most of the copies. Two valid copies that differ, without a
//! majority, are left as they are: nothing tells which one is right.
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

/// The bytes of a range on one disk.
struct CopyOfRange {
    disk: u16,
    file: Arc<dyn DiskFile>,
    /// None if the disk cannot read the range.
    bytes: Option<Vec<u8>>,
    /// The operating system's page cache and the medium have different bytes.
    is_inconsistent: bool,
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
        if files
            .iter()
            .try_fold(true, |all, (_, file)| Ok::<_, io::Error>(all && file.is_hole(range.start, length)?))?
        {
            return Ok(Examined { is_sound: true, read_bytes: 0 });
        }
        let (mut first, mut read_bytes, mut is_sound) = (None, 0, true);
        for (_, file) in &files {
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
            let _no_change = mirror.set_locks[usize::from(self.set.set)].write();
            let now = self.read_copies(range)?;
            let is_unchanged = now.len() == before.len()
                && now.iter().zip(&before).all(|(now, before)| (now.disk, &now.bytes) == (before.disk, &before.bytes));
            match decide(&now, is_valid) {
                Decision::Nothing(condition) => return Ok(condition),
                Decision::RewriteFrom { source, damaged } if is_unchanged => {
                    damaged.iter().try_for_each(|copy| self.rewrite(range, &now[source], &now[*copy]))?;
                    return Ok(Condition::Repaired);
                }
                Decision::RewriteFrom { .. } => {}
            }
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "the range is changed all the time"))
    }

    /// Writes the source's bytes over a damaged copy and syncs the copy. A disk that fails leaves the group.
    fn rewrite(&self, range: &Range<u64>, source: &CopyOfRange, damaged: &CopyOfRange) -> io::Result<()> {
        let bytes = source.bytes.as_ref().expect("the source is readable");
        let length = source.file.len()?.min(range.end).saturating_sub(range.start) as usize;
        let written = damaged.file.write_at(&bytes[..length], range.start).and_then(|()| damaged.file.sync());
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

    fn online_files(&self) -> io::Result<Vec<(u16, Arc<dyn DiskFile>)>> {
        self.set.online().map(|disk| Ok((disk, self.existing(disk)?))).collect()
    }

    fn read_copies(&self, range: &Range<u64>) -> io::Result<Vec<CopyOfRange>> {
        let read = |(disk, file): (u16, Arc<dyn DiskFile>)| {
            let medium = read_range(&*file, range).ok();
            let mut cached = vec![0; (range.end - range.start) as usize];
            let cached = file.read_at(&mut cached, range.start).ok().map(|count| {
                cached[count..].fill(0);
                cached
            });
            let is_inconsistent = medium != cached;
            CopyOfRange { disk, file, bytes: medium.or(cached), is_inconsistent }
        };
        Ok(self.online_files()?.into_iter().map(read).collect())
    }
}

fn decide(copies: &[CopyOfRange], is_valid: &dyn Fn(&[u8]) -> bool) -> Decision {
    let bytes: Vec<Option<&Vec<u8>>> =
        copies.iter().map(|copy| copy.bytes.as_ref().filter(|bytes| is_valid(bytes))).collect();
    let votes = |copy: usize| bytes.iter().filter(|other| **other == bytes[copy]).count();
    let candidates = (0..copies.len()).filter(|copy| bytes[*copy].is_some());
    let Some(source) = candidates.clone().max_by_key(|copy| (votes(*copy), std::cmp::Reverse(*copy))) else {
        return Decision::Nothing(Condition::Damaged);
    };
    let is_decided = candidates.clone().count() == votes(source) || 2 * votes(source) > copies.len();
    if !is_decided {
        return Decision::Nothing(Condition::Differ);
    }
    let is_damaged = |copy: &usize| bytes[*copy] != bytes[source] || copies[*copy].is_inconsistent;
    let damaged: Vec<usize> = (0..copies.len()).filter(is_damaged).collect();
    match damaged.is_empty() {
        true => Decision::Nothing(Condition::Sound),
        false => Decision::RewriteFrom { source, damaged },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{DirectoryDisk, Disk, Stream};

    fn decide_about(bytes: &[Option<&[u8]>], is_valid: &dyn Fn(&[u8]) -> bool) -> Decision {
        let folder = tempfile::tempdir().unwrap();
        let disk = DirectoryDisk::new(folder.path().join("disk")).unwrap();
        let file = disk.open(1, Stream::Data, true).unwrap().unwrap();
        let copy = |(disk, bytes): (usize, &Option<&[u8]>)| CopyOfRange {
            disk: disk as u16,
            file: file.clone(),
            bytes: bytes.map(<[u8]>::to_vec),
            is_inconsistent: false,
        };
        decide(&bytes.iter().enumerate().map(copy).collect::<Vec<_>>(), is_valid)
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
}
