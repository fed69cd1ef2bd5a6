//! The membership of a group with copies: which disks have every acknowledged change. Layout: `docs/format/disk.md`.
//!
//! Each disk stores the membership that it last belonged to. A disk leaves before the group acknowledges a change that
//! the disk lacks: the new membership is durable on every remaining disk first. A start therefore finds the newest
//! membership if it finds a majority of the disks of any membership, and a disk that is not a member never serves reads.
//!
//! Safety: a membership of n disks is followed by one of at least n/2 of them (rounded up), stored on all of them. Any
//! majority of the n disks contains one of these, and so learns that its membership is outdated.

use crate::disk::Disk;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::group::superblock::{DISKS_MAX, Uuid};
use crate::now;
use cellar_format::bytes::{Corrupt, Reader, Write};
use std::sync::Arc;

const NAME: &str = "membership";
const MAGIC: &[u8; 8] = b"CELLMEMB";
const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// Increases with every membership.
    pub number: u64,
    /// Of each disk of the group: None if the disk is a member, else since when it is not, in nanoseconds since 1970.
    pub offline_since: Vec<Option<i64>>,
    /// The last known path of each disk, for messages.
    pub paths: Vec<String>,
}

impl Membership {
    pub fn is_member(&self, disk: usize) -> bool {
        self.offline_since[disk].is_none()
    }

    /// Returns the numbers of the disks that are members.
    pub fn members(&self) -> Vec<usize> {
        (0..self.offline_since.len()).filter(|disk| self.is_member(*disk)).collect()
    }

    /// Returns the membership with entries for `count` disks, of which the new ones are no members; None if the membership has
    /// more disks.
    pub fn resized(&self, count: usize) -> Option<Self> {
        let mut resized = self.clone();
        (self.offline_since.len() <= count).then(|| {
            resized.offline_since.resize(count, Some(now()));
            resized.paths.resize(count, String::new());
            resized
        })
    }

    /// Returns whether a disk with this membership never belonged to a later or another one than `candidate`.
    pub fn leads_to(&self, candidate: &Self) -> bool {
        self.number < candidate.number || self.number == candidate.number && self.members() == candidate.members()
    }

    /// Returns the newest membership of which a majority of members is present. `found` is the membership on each disk,
    /// None if the disk is absent. With `force`, a membership suffices whose present members have a copy of everything.
    /// An error names the disks that are missing.
    pub fn choose<'a>(found: &'a [Option<Self>], sets: &[Vec<u16>], force: bool) -> Result<&'a Self> {
        let mut candidates: Vec<&Self> = found.iter().flatten().collect();
        candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.number));
        let present = |candidate: &Self| -> Vec<usize> {
            let agrees = |disk: &usize| found[*disk].as_ref().is_some_and(|own| own.leads_to(candidate));
            candidate.members().into_iter().filter(agrees).collect()
        };
        let is_complete =
            |present: &[usize]| sets.iter().all(|set| set.iter().any(|disk| present.contains(&usize::from(*disk))));
        // An older membership with its majority comes before a newer one without.
        for force in [false, true].into_iter().take(1 + usize::from(force)) {
            for candidate in &candidates {
                let there = present(candidate);
                let is_majority = 2 * there.len() > candidate.members().len();
                if (is_majority || force) && is_complete(&there) {
                    return Ok(candidate);
                }
            }
        }
        let Some(newest) = candidates.first() else {
            return Err(Error::new(ErrorKind::Corrupt, "no disk of the group has a membership"));
        };
        let there = present(newest);
        let missing = newest.members().into_iter().filter(|disk| !there.contains(disk));
        let missing: Vec<String> = missing.map(|disk| format!("disk {disk} ({})", newest.paths[disk])).collect();
        let (is, disk) = if missing.len() == 1 { ("is", "the disk") } else { ("are", "the disks") };
        let (needed, have, missing) = (newest.members().len() / 2 + 1, there.len(), missing.join(", "));
        let message = match is_complete(&there) {
            true => format!(
                "only {have} of the {} disks with the newest data are present, and a start needs {needed}: {missing} {is} \
                 missing and may have newer data; add {disk}, or, if lost, start with --force-degraded",
                newest.members().len()
            ),
            false => format!("some data have no copy on the present disks: {missing} {is} missing; add {disk}"),
        };
        Err(Error::new(ErrorKind::ForeignDisk, message))
    }

    /// Returns the memberships of the disks of a group that are present. A disk whose membership cannot be read, or that knows
    /// more disks than the group has, counts as absent.
    pub fn find<'a>(
        engines: impl ExactSizeIterator<Item = Option<&'a Arc<dyn Disk>>>,
        group_id: Uuid,
    ) -> Vec<Option<Self>> {
        let count = engines.len();
        let read = |engine: Option<&Arc<dyn Disk>>| {
            let found = Self::read(engine?.as_ref(), group_id).unwrap_or_else(|error| {
                log::error!("{error}; the cell does not use the disk");
                None
            });
            found.and_then(|found| found.resized(count))
        };
        engines.map(read).collect()
    }

    /// Reads a disk's membership; None if the disk has none.
    pub fn read(disk: &dyn Disk, group_id: Uuid) -> Result<Option<Self>> {
        let path = disk.path().display();
        let bytes = disk.read_note(NAME).context(|| format!("could not read the membership of cell disk {path}"))?;
        let Some(bytes) = bytes else { return Ok(None) };
        let corrupt = |error: Corrupt| Error::new(ErrorKind::Corrupt, format!("cell disk {path}: {error}"));
        Self::decode(&bytes, group_id).map(Some).map_err(corrupt)
    }

    /// Makes the membership durable on a disk.
    pub fn write(&self, disk: &dyn Disk, group_id: Uuid) -> std::io::Result<()> {
        disk.write_note(NAME, &self.encode(group_id))
    }

    fn encode(&self, group_id: Uuid) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.put_bytes(MAGIC);
        bytes.put_u32(VERSION);
        bytes.put_u32(self.offline_since.len() as u32);
        bytes.put_bytes(group_id.bytes());
        bytes.put_u64(self.number);
        for (since, path) in self.offline_since.iter().zip(&self.paths) {
            bytes.put_u64(since.map_or(0, |since| since as u64));
            bytes.put_blob(path.as_bytes());
        }
        let checksum = crc32c::crc32c(&bytes);
        bytes.put_u32(checksum);
        bytes
    }

    fn decode(bytes: &[u8], group_id: Uuid) -> Result<Self, Corrupt> {
        let Some(checksum_at) = bytes.len().checked_sub(4) else {
            return Err(Corrupt::new("membership", 0, format!("{} bytes", bytes.len())));
        };
        let checksum = Reader::new(&bytes[checksum_at..]).u32("membership checksum")?;
        let computed = crc32c::crc32c(&bytes[..checksum_at]);
        if checksum != computed {
            let found = format!("{checksum:08x}, computed {computed:08x}");
            return Err(Corrupt::new("membership checksum", checksum_at, found));
        }
        let mut reader = Reader::new(&bytes[..checksum_at]);
        if reader.take(8, "membership magic")? != MAGIC {
            return Err(Corrupt::new("membership magic", 0, "not a membership"));
        }
        let version = reader.u32("membership version")?;
        let count = reader.u32("number of disks")?;
        if version != VERSION || count as usize > DISKS_MAX {
            return Err(Corrupt::new("membership version", 8, format!("version {version}, {count} disks")));
        }
        if reader.take(16, "group id")? != group_id.bytes() {
            return Err(Corrupt::new("group id of the membership", 16, "another group"));
        }
        let number = reader.u64("membership number")?;
        let (mut offline_since, mut paths) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let since = reader.u64("time")? as i64;
            offline_since.push((since != 0).then_some(since));
            paths.push(String::from_utf8_lossy(reader.blob("path")?).into_owned());
        }
        reader.finish("membership")?;
        Ok(Self { number, offline_since, paths })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership(number: u64, disks: usize, members: &[usize]) -> Membership {
        let offline_since = (0..disks).map(|disk| (!members.contains(&disk)).then_some(7)).collect();
        let paths = (0..disks).map(|disk| format!("/disk{disk}")).collect();
        Membership { number, offline_since, paths }
    }

    fn sets(disks: usize) -> Vec<Vec<u16>> {
        (0..disks).map(|disk| vec![disk as u16, ((disk + 1) % disks) as u16]).collect()
    }

    #[test]
    fn a_membership_reads_back_and_every_flipped_bit_is_detected() {
        let group_id = Uuid::from_bytes([5; 16]);
        let written = membership(9, 3, &[0, 2]);
        let bytes = written.encode(group_id);
        assert_eq!(Membership::decode(&bytes, group_id), Ok(written));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(Membership::decode(&damaged, group_id).is_err(), "byte {at}");
            assert!(Membership::decode(&bytes[..at], group_id).is_err(), "{at} bytes");
        }
        assert!(Membership::decode(&bytes, Uuid::from_bytes([6; 16])).is_err());
    }

    #[test]
    fn a_disk_that_was_left_behind_never_opens_a_group() {
        let (both, second) = (membership(1, 2, &[0, 1]), membership(2, 2, &[1]));
        let choose = |found: &[Option<Membership>], force| Membership::choose(found, &sets(2), force).cloned();
        assert_eq!(choose(&[Some(both.clone()), Some(second.clone())], false).unwrap(), second);
        assert_eq!(choose(&[None, Some(second.clone())], false).unwrap(), second);
        let error = choose(&[Some(both.clone()), None], false).unwrap_err().to_string();
        assert!(error.contains("disk 1 (/disk1) is missing and may have newer data"), "{error}");
        assert_eq!(choose(&[Some(both.clone()), None], true).unwrap(), both);
    }

    #[test]
    fn force_prefers_a_membership_that_has_its_majority() {
        let (newer, older) = (membership(3, 4, &[0, 3]), membership(2, 4, &[0, 1, 2]));
        let found = [Some(newer.clone()), Some(older.clone()), Some(older.clone()), None];
        let sets = [vec![0, 1], vec![0, 2]];
        assert_eq!(Membership::choose(&found, &sets, true).unwrap(), &older);
        assert_eq!(Membership::choose(&[Some(newer.clone()), None, None, None], &sets, true).unwrap(), &newer);
    }

    #[test]
    fn a_membership_that_some_disk_never_stored_does_not_compete() {
        // Disk 0 stored a membership without disk 1 and died; disks 1 and 2 continued without disk 0.
        let (orphan, continued) = (membership(2, 3, &[0, 2]), membership(2, 3, &[1, 2]));
        let found = [Some(orphan), Some(continued.clone()), Some(continued.clone())];
        assert_eq!(Membership::choose(&found, &sets(3), false).unwrap(), &continued);
        let old = membership(1, 3, &[0, 1, 2]);
        let alone = [None, Some(membership(2, 3, &[0, 1])), Some(old)];
        assert!(Membership::choose(&alone, &sets(3), false).is_err(), "disk 0 may have newer data");
    }
}
