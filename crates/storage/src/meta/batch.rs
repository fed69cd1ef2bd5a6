//! The data that the namespace and the metadata stores exchange: all contents at start, then batches of changes.

use super::extent::ExtentRecord;
use super::record::Inode;
use super::{FIRST_INO, ROOT_INO};
use cellar_format::units::AuIndex;
use std::collections::{BTreeMap, HashMap};

pub type Name = Box<[u8]>;

/// The sequence number of a change to the namespace, which increases from change to change. A transaction makes all
/// changes up to one commit sequence durable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitSequence(pub u64);

/// An allocation unit of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuKey {
    pub ino: u64,
    pub au: AuIndex,
}

/// A file whose placement is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlacementKey {
    pub ino: u64,
    pub stripe: u16,
    pub stream: u8,
}

impl PlacementKey {
    pub fn row(&self) -> (u64, u64) {
        (self.ino, u64::from(self.stripe) << 8 | u64::from(self.stream))
    }

    pub fn of_row((ino, part): (u64, u64)) -> Self {
        Self { ino, stripe: (part >> 8) as u16, stream: part as u8 }
    }
}

/// Everything that a store contains.
#[derive(Debug, Default, PartialEq)]
pub struct Contents {
    pub inodes: HashMap<u64, Inode>,
    /// Directory, name and inode of each entry.
    pub dentries: Vec<(u64, Vec<u8>, u64)>,
    pub extents: Vec<(AuKey, ExtentRecord)>,
    pub next_ino: u64,
    /// Encoded placements of files; see [`crate::group::rebalance`].
    pub placements: Vec<(PlacementKey, Vec<u8>)>,
    /// The state of rebalances and of disks that leave, by name.
    pub group: BTreeMap<String, u64>,
}

/// The changes of one transaction. A value of None removes the row of its key.
#[derive(Debug, Default)]
pub struct Batch {
    pub inodes: Vec<(u64, Option<Vec<u8>>)>,
    pub dentries: Vec<((u64, Name), Option<u64>)>,
    /// Removing an inode also removes its extents.
    pub extents: Vec<(AuKey, Option<Vec<u8>>)>,
    pub next_ino: u64,
    /// Removing an inode also removes its placements.
    pub placements: Vec<(PlacementKey, Option<Vec<u8>>)>,
    pub group: Vec<(String, Option<u64>)>,
    /// After the batch is committed, all changes up to this one are durable.
    pub sequence: CommitSequence,
}

impl Batch {
    /// Returns the batch that fills an empty store with `contents`.
    pub fn everything(contents: &Contents) -> Self {
        let dentry = |(parent, name, ino): &(u64, Vec<u8>, u64)| ((*parent, name.clone().into()), Some(*ino));
        Self {
            inodes: contents.inodes.iter().map(|(ino, inode)| (*ino, Some(inode.encode()))).collect(),
            dentries: contents.dentries.iter().map(dentry).collect(),
            extents: contents.extents.iter().map(|(key, extent)| (*key, Some(extent.encode()))).collect(),
            next_ino: contents.next_ino,
            placements: contents.placements.iter().map(|(key, record)| (*key, Some(record.clone()))).collect(),
            group: contents.group.iter().map(|(name, value)| (name.clone(), Some(*value))).collect(),
            sequence: CommitSequence(0),
        }
    }

    /// Returns the first transaction of a new group: an empty root directory.
    pub fn initial(root: Inode) -> Self {
        Self { inodes: vec![(ROOT_INO, Some(root.encode()))], next_ino: FIRST_INO, ..Self::default() }
    }
}
