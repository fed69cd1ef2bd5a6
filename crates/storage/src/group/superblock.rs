//! The superblock: the identity of a cell disk and of its group, with the state of forming the group. Layout:
//! `docs/format/disk.md`.

use super::stripe_layout::AuSize;
use crate::disk::Disk;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::group::failure_groups::{self, FAILURE_GROUP_BYTES};
use cellar_format::bytes::{Corrupt, Reader, Write};
use std::fmt;
use std::io::Read;
use std::ops::RangeInclusive;

pub const DISKS_MAX: usize = 64;
const NAME: &str = "superblock";
const MAGIC: &[u8; 8] = b"CELLARDK";
/// The version of a group with external redundancy.
const VERSION_EXTERNAL: u32 = 1;
/// The version of a group with copies, which has failure groups.
const VERSION_MIRRORED: u32 = 2;
/// The version of a group with external redundancy whose disks have changed since it was formed.
const VERSION_CHANGED: u32 = 3;
/// The version of a group with copies whose disks have changed since it was formed.
const VERSION_SETS: u32 = 4;
/// The version of a group with copy sets of different size.
const VERSION_SIZES: u32 = 5;
const BYTES: usize = 4096;
const CHECKSUM_AT: usize = BYTES - 4;
const DISK_IDS_AT: usize = 40;
const FAILURE_GROUPS_AT: usize = DISK_IDS_AT + 16 * DISKS_MAX;
const CHANGES_AT: usize = FAILURE_GROUPS_AT + FAILURE_GROUP_BYTES * DISKS_MAX;
const SETS_AT: usize = CHANGES_AT + 16;
const SET_BYTES: usize = 3;
/// Maximum number of copy sets. The numbers of files on containers limit it, too.
pub const SETS_MAX: usize = 254;
/// Copy sets that disks of different size leave to later changes of the disks.
const SETS_KEPT: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Uuid([u8; 16]);

impl Uuid {
    fn random() -> Result<Self> {
        let mut bytes = [0; 16];
        std::fs::File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut bytes))
            .context(|| "could not read /dev/urandom".into())?;
        // RFC 9562, version 4.
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Ok(Self(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The number of copies of an allocation unit that the group stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Redundancy {
    /// One copy; the devices provide redundancy.
    #[default]
    External = 1,
    Normal = 2,
    High = 3,
}

impl Redundancy {
    /// Returns the number of copies of an allocation unit.
    pub fn copies(self) -> usize {
        self as usize
    }

    /// Returns the redundancy with a name, as in a configuration.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::External, Self::Normal, Self::High]
            .into_iter()
            .find(|known| known.to_string().eq_ignore_ascii_case(name))
    }

    /// Returns the name as in Oracle's `v$asm_diskgroup.type`.
    pub fn oracle_name(self) -> &'static str {
        match self {
            Self::External => "EXTERN",
            Self::Normal => "NORMAL",
            Self::High => "HIGH",
        }
    }
}

impl fmt::Display for Redundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Redundancy::External => "external",
            Redundancy::Normal => "normal",
            Redundancy::High => "high",
        })
    }
}

/// How far the group of a disk is formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// The group is being formed and contains no data.
    Forming = 1,
    Ready = 2,
    /// The disk was dropped from the group and contains nothing that the group needs.
    Dropped = 3,
}

/// The identity of a cell disk and of its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    pub group_id: Uuid,
    pub disk_ids: Vec<Uuid>,
    /// This disk's position in `disk_ids`.
    pub index: u16,
    pub state: State,
    pub redundancy: Redundancy,
    /// The failure group of each disk; empty with external redundancy.
    pub failure_groups: Vec<String>,
    /// As configured when the group was formed; informative, files record their own.
    pub au_size: AuSize,
    /// Increases when a disk joins or leaves the group. The highest one is authoritative.
    pub generation: u64,
    /// Bit n is set if disk n was dropped. Its number is not used again.
    pub dropped: u64,
    /// The disks of each copy set, in the order of their numbers, if the disks of a group with copies have changed. Otherwise
    /// empty: then a formula determines them.
    pub sets: Vec<Vec<u16>>,
}

impl Superblock {
    /// Returns the superblocks of `count` disks that form a new group. `failure_groups` are empty with external
    /// redundancy.
    pub(super) fn for_new_group(
        count: usize,
        au_size: AuSize,
        redundancy: Redundancy,
        failure_groups: &[String],
    ) -> Result<Vec<Self>> {
        let group_id = Uuid::random()?;
        let disk_ids = (0..count).map(|_| Uuid::random()).collect::<Result<Vec<_>>>()?;
        let failure_groups = failure_groups.to_vec();
        let state = State::Forming;
        let (generation, dropped, sets, index) = (0, 0, Vec::new(), 0);
        let example =
            Self { group_id, disk_ids, index, state, redundancy, failure_groups, au_size, generation, dropped, sets };
        let superblock = |index| Self { index, ..example.clone() };
        Ok((0..count as u16).map(superblock).collect())
    }

    /// Returns the superblock of a disk that joins the group, in the group's next generation.
    pub(super) fn for_new_disk(&self, failure_group: Option<String>) -> Result<Self> {
        let mut disk_ids = self.disk_ids.clone();
        disk_ids.push(Uuid::random()?);
        let failure_groups = self.failure_groups.iter().cloned().chain(failure_group).collect();
        let (index, generation, state) = (self.disk_ids.len() as u16, self.generation + 1, State::Forming);
        let sets = if self.redundancy == Redundancy::External { Vec::new() } else { self.copy_sets()? };
        Ok(Self { disk_ids, index, failure_groups, generation, state, sets, ..self.clone() })
    }

    pub fn is_dropped(&self, disk: usize) -> bool {
        self.dropped >> disk & 1 == 1
    }

    /// Returns whether two superblocks describe the same disks and copy sets.
    pub fn describes_same(&self, other: &Self) -> bool {
        let Self { group_id, disk_ids, failure_groups, generation, dropped, sets, .. } = self;
        (group_id, generation, dropped) == (&other.group_id, &other.generation, &other.dropped)
            && (disk_ids, failure_groups, sets) == (&other.disk_ids, &other.failure_groups, &other.sets)
    }

    /// Returns the disks of each copy set of a group with copies.
    pub fn copy_sets(&self) -> Result<Vec<Vec<u16>>> {
        match self.sets.is_empty() {
            true => failure_groups::copy_sets(&self.failure_groups, self.redundancy.copies()),
            false => Ok(self.sets.clone()),
        }
    }

    /// Returns the copy sets over which new files with `copies` copies are striped if the disks in `avoided` are not used: bit n
    /// of disk n.
    pub fn wanted_sets(&self, avoided: u64, copies: usize) -> Result<Vec<Vec<u16>>> {
        failure_groups::copy_sets_without(avoided, &self.failure_groups, copies)
    }

    /// Returns the superblock of the next generation with copy sets for all disks except those in `avoided`, of each of the given
    /// numbers of copies, and with as many of the `extra` copy sets as it can have; None if the group has them already.
    pub(super) fn with_sets(&self, avoided: u64, copies: &[usize], extra: Vec<Vec<u16>>) -> Result<Option<Self>> {
        let (mut sets, before) = (self.copy_sets()?, self.copy_sets()?.len());
        for count in copies {
            for wanted in self.wanted_sets(avoided, *count)? {
                if !sets.contains(&wanted) {
                    sets.push(wanted);
                }
            }
        }
        if sets.len() > SETS_MAX {
            let message =
                format!("the disks of the group have changed too often: it would have {} copy sets", sets.len());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let mut skipped = 0;
        for set in extra {
            match sets.contains(&set) {
                true => {}
                false if sets.len() < SETS_MAX - SETS_KEPT => sets.push(set),
                false => skipped += 1,
            }
        }
        if skipped > 0 {
            log::warn!(
                "the group has {} copy sets, so {skipped} for disks of different size are not added; such disks may be filled unevenly",
                sets.len()
            );
        }
        let is_new = sets.len() > before;
        Ok(is_new.then(|| Self { sets, generation: self.generation + 1, ..self.clone() }))
    }

    /// Reads a disk's superblock; None if the disk has none.
    pub fn read(disk: &dyn Disk) -> Result<Option<Self>> {
        let path = disk.path().display();
        let Some(bytes) =
            disk.read_note(NAME).context(|| format!("could not read the superblock of cell disk {path}"))?
        else {
            return Ok(None);
        };
        let corrupt = |error: Corrupt| Error::new(ErrorKind::Corrupt, format!("cell disk {path}: {error}"));
        Self::decode(&bytes).map(Some).map_err(corrupt)
    }

    pub(super) fn write(&self, disk: &dyn Disk) -> Result<()> {
        let path = disk.path().display();
        disk.write_note(NAME, &self.encode()).context(|| format!("could not write the superblock of cell disk {path}"))
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.put_bytes(MAGIC);
        let has_changed = self.generation > 0;
        let has_sizes = self.sets.iter().any(|set| set.len() != self.redundancy.copies());
        bytes.put_u32(match self.redundancy {
            Redundancy::Normal | Redundancy::High if has_sizes => VERSION_SIZES,
            Redundancy::External if has_changed => VERSION_CHANGED,
            Redundancy::External => VERSION_EXTERNAL,
            Redundancy::Normal | Redundancy::High if has_changed => VERSION_SETS,
            Redundancy::Normal | Redundancy::High => VERSION_MIRRORED,
        });
        bytes.put_u8(self.state as u8);
        bytes.put_u8(self.redundancy as u8);
        bytes.put_u8(self.au_size.shift());
        bytes.put_u8(0);
        bytes.put_bytes(&self.group_id.0);
        bytes.put_u16(self.index);
        bytes.put_u16(self.disk_ids.len() as u16);
        bytes.put_u32(0);
        for id in &self.disk_ids {
            bytes.put_bytes(&id.0);
        }
        for (index, name) in self.failure_groups.iter().enumerate() {
            bytes.resize(FAILURE_GROUPS_AT + index * FAILURE_GROUP_BYTES, 0);
            bytes.put_bytes(name.as_bytes());
        }
        if has_changed {
            bytes.resize(CHANGES_AT, 0);
            bytes.put_u64(self.generation);
            bytes.put_u64(self.dropped);
            bytes.put_u16(self.sets.len() as u16);
            for set in &self.sets {
                // 0 stands for no disk.
                (0..SET_BYTES).for_each(|copy| bytes.put_u8(set.get(copy).map_or(0, |disk| *disk as u8 + 1)));
            }
        }
        bytes.resize(CHECKSUM_AT, 0);
        let checksum = crc32c::crc32c(&bytes);
        bytes.put_u32(checksum);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        if bytes.len() != BYTES {
            return Err(Corrupt::new("superblock", 0, format!("{} bytes instead of {BYTES}", bytes.len())));
        }
        let mut reader = Reader::new(bytes);
        if reader.take(8, "superblock magic")? != MAGIC {
            return Err(Corrupt::new("superblock magic", 0, "not a cell disk"));
        }
        let checksum = Reader::new(&bytes[CHECKSUM_AT..]).u32("superblock checksum")?;
        let computed = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
        if checksum != computed {
            let found = format!("{checksum:08x}, computed {computed:08x}");
            return Err(Corrupt::new("superblock checksum", CHECKSUM_AT, found));
        }
        let version = reader.u32("superblock version")?;
        if !(VERSION_EXTERNAL..=VERSION_SIZES).contains(&version) {
            let found = format!("version {version}; this release reads versions up to {VERSION_SIZES}");
            return Err(Corrupt::new("superblock version", 8, found));
        }
        let state = match reader.u8("disk state")? {
            1 => State::Forming,
            2 => State::Ready,
            3 => State::Dropped,
            other => return Err(Corrupt::new("disk state", 12, format!("{other}"))),
        };
        let redundancy = match (version, reader.u8("redundancy")?) {
            (VERSION_EXTERNAL | VERSION_CHANGED, 1) => Redundancy::External,
            (VERSION_MIRRORED | VERSION_CHANGED | VERSION_SETS | VERSION_SIZES, 2) => Redundancy::Normal,
            (VERSION_MIRRORED | VERSION_CHANGED | VERSION_SETS | VERSION_SIZES, 3) => Redundancy::High,
            (_, other) => return Err(Corrupt::new("redundancy", 13, format!("{other} in version {version}"))),
        };
        let shift = reader.u8("allocation unit size")?;
        let au_size = AuSize::from_shift(shift).map_err(|e| Corrupt::new("allocation unit size", 14, e.to_string()))?;
        reader.u8("padding")?;
        let group_id = Uuid(reader.take(16, "group id")?.try_into().expect("16 bytes"));
        let index = reader.u16("disk index")?;
        let count = reader.u16("disk count")?;
        reader.u32("padding")?;
        if count == 0 || count as usize > DISKS_MAX || index >= count {
            return Err(Corrupt::new("disk count", 34, format!("disk {index} of {count}")));
        }
        let mut disk_ids = Vec::with_capacity(count as usize);
        for _ in 0..count {
            disk_ids.push(Uuid(reader.take(16, "disk id")?.try_into().expect("16 bytes")));
        }
        let mut failure_groups = Vec::new();
        if redundancy != Redundancy::External {
            for disk in 0..usize::from(count) {
                let at = FAILURE_GROUPS_AT + disk * FAILURE_GROUP_BYTES;
                let field = &bytes[at..at + FAILURE_GROUP_BYTES];
                let name = &field[..field.iter().position(|byte| *byte == 0).unwrap_or(FAILURE_GROUP_BYTES)];
                let name = std::str::from_utf8(name).ok().filter(|name| !name.is_empty());
                failure_groups.push(name.ok_or_else(|| Corrupt::new("failure group", at, "no name"))?.to_owned());
            }
        }
        let (generation, dropped) = match version {
            VERSION_CHANGED | VERSION_SETS | VERSION_SIZES => {
                let mut reader = Reader::new(&bytes[CHANGES_AT..]);
                (reader.u64("generation")?, reader.u64("dropped disks")?)
            }
            _ => (0, 0),
        };
        let sets = match version {
            VERSION_SETS => decode_sets(bytes, redundancy.copies()..=redundancy.copies(), count)?,
            VERSION_SIZES => decode_sets(bytes, Redundancy::Normal.copies()..=Redundancy::High.copies(), count)?,
            _ => Vec::new(),
        };
        Ok(Self { group_id, disk_ids, index, state, redundancy, failure_groups, au_size, generation, dropped, sets })
    }
}

fn decode_sets(bytes: &[u8], sizes: RangeInclusive<usize>, disks: u16) -> Result<Vec<Vec<u16>>, Corrupt> {
    let mut reader = Reader::new(&bytes[SETS_AT..CHECKSUM_AT]);
    let count = usize::from(reader.u16("number of copy sets")?);
    if count > SETS_MAX {
        return Err(Corrupt::new("number of copy sets", SETS_AT, count.to_string()));
    }
    let mut sets = Vec::with_capacity(count);
    for number in 0..count {
        let entries = reader.take(SET_BYTES, "copy set")?.iter().filter(|entry| **entry > 0);
        let set: Vec<u16> = entries.map(|entry| u16::from(*entry) - 1).collect();
        let is_repeated = |at: usize| set[..at].contains(&set[at]);
        let is_valid = sizes.contains(&set.len()) && !(0..set.len()).any(is_repeated);
        if !is_valid || set.iter().any(|disk| *disk >= disks) {
            let at = SETS_AT + 2 + number * SET_BYTES;
            return Err(Corrupt::new("copy set", at, format!("disks {set:?} of {disks}")));
        }
        sets.push(set);
    }
    Ok(sets)
}

const _: () = assert!(SETS_AT + 2 + SET_BYTES * SETS_MAX <= CHECKSUM_AT && DISKS_MAX <= 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superblock_reads_back_as_written() {
        let superblock = Superblock::for_new_group(3, AuSize::DEFAULT, Redundancy::External, &[]).unwrap().remove(1);
        assert_eq!(Superblock::decode(&superblock.encode()).unwrap(), superblock);
        let names: Vec<String> = (0..DISKS_MAX).map(|index| format!("{index:032}")).collect();
        let all = Superblock::for_new_group(DISKS_MAX, AuSize::DEFAULT, Redundancy::High, &names).unwrap();
        assert_eq!(Superblock::decode(&all[63].encode()).unwrap(), all[63]);
        let joined = Superblock { dropped: 2, ..superblock.for_new_disk(None).unwrap() };
        assert_eq!((joined.index, joined.disk_ids.len(), joined.generation), (3, 4, 1));
        assert_eq!(Superblock::decode(&joined.encode()).unwrap(), joined);
        let copies = Superblock::for_new_group(64, AuSize::DEFAULT, Redundancy::High, &names).unwrap().remove(7);
        let sets = (0..SETS_MAX as u16).map(|set| vec![set % 64, (set + 1) % 64, (set + 63) % 64]).collect();
        let copies = Superblock { generation: 3, sets, ..copies };
        assert_eq!(copies.encode()[8], VERSION_SETS as u8);
        assert_eq!(Superblock::decode(&copies.encode()).unwrap(), copies);
        let sizes = Superblock { sets: vec![vec![0, 1, 2], vec![1, 2], vec![63, 0]], ..copies };
        assert_eq!(sizes.encode()[8], VERSION_SIZES as u8);
        assert_eq!(Superblock::decode(&sizes.encode()).unwrap(), sizes);
        let one = Superblock { sets: vec![vec![0, 1, 2], vec![1]], ..sizes };
        assert!(Superblock::decode(&one.encode()).is_err(), "a copy set of one disk");
    }

    #[test]
    fn a_disk_that_joins_or_leaves_needs_few_new_copy_sets() {
        let names = ["a", "b"].map(String::from);
        let two = Superblock::for_new_group(2, AuSize::DEFAULT, Redundancy::Normal, &names).unwrap().remove(0);
        assert_eq!(two.with_sets(0, &[2], Vec::new()).unwrap(), None);
        let three = two.for_new_disk(Some("c".into())).unwrap();
        let three = three.with_sets(0, &[2], Vec::new()).unwrap().unwrap();
        assert_eq!(three.sets, [[0, 1], [1, 0], [1, 2], [2, 0]]);
        assert_eq!(three.wanted_sets(0, 2).unwrap(), [[0, 1], [1, 2], [2, 0]]);
        let sizes = three.with_sets(0, &[2, 3], Vec::new()).unwrap().unwrap();
        assert_eq!(sizes.sets[4..], [[0, 1, 2], [1, 2, 0], [2, 0, 1]]);
        assert_eq!(sizes.with_sets(0, &[2, 3], Vec::new()).unwrap(), None);
        let without = three.with_sets(1, &[2], Vec::new()).unwrap().unwrap();
        assert_eq!(without.sets[4..], [[2, 1]]);
        assert_eq!(without.wanted_sets(1, 2).unwrap(), [[1, 2], [2, 1]]);
        assert!(
            three.with_sets(3, &[2], Vec::new()).unwrap_err().to_string().contains("2 copies need 2 failure groups")
        );
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let bytes = Superblock::for_new_group(2, AuSize::DEFAULT, Redundancy::External, &[]).unwrap()[0].encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(Superblock::decode(&damaged).is_err(), "byte {at}");
        }
        assert!(Superblock::decode(&bytes[..100]).is_err());
    }
}
