//! The volume: a POSIX namespace of files on a disk group, with the cell's page cache, for the FUSE file service and
//! for scans.
//!
//! Invariants: what a sync acknowledged survives the death of the process and of the machine. A write reaches the
//! operating system before it is acknowledged, so the death of the process alone loses nothing of a file that has a
//! committed name: a Postgres that survives it (only a tablespace lies on the cell) does not recover what it wrote and
//! did not sync. What a machine's death takes reads as it was, or as zeros, never as another file's bytes. A scan never
//! sees part of a write, unless the write failed.
//! It checks no permissions (the kernel does) and speaks no FUSE.

mod attributes;
mod background;
mod content;
mod names;
mod options;
mod recovery;
mod regions;
mod rename;
mod room;
mod settle;
mod units;

pub use crate::file::CachedUnit;
pub use attributes::{Attr, SetAttr, SetTime};
pub use content::Fallocate;
pub use names::{DirEntry, NewNode};
pub use options::VolumeOptions;
pub use regions::RegionGuard;
pub use rename::RenameMode;
pub use units::{UnitForm, UnitInfo, UnitReader, UnitStored};

pub use crate::disk::Space as SpaceTotals;
pub use crate::meta::{Kind, ROOT_INO};

use crate::cache::{Cache, CacheStats};
use crate::disk::Disk;
use crate::error::{Error, ErrorKind, Result};
use crate::file::FileData;
use crate::group::Group;
use crate::meta::{Namespace, Sequence, Stores};
use crate::now;
use background::Background;
use parking_lot::{Mutex, RwLock};
use regions::Prefetcher;
use room::Room;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub type Ino = u64;

#[derive(Debug)]
pub struct Volume {
    group: Group,
    stores: Mutex<Stores>,
    namespace: RwLock<Namespace>,
    /// The last change that the stores have.
    committed: AtomicU64,
    cache: Arc<Cache>,
    prefetcher: Prefetcher,
    room: Room,
    /// Files that have no name and no user, and the change after which their backing files may go.
    doomed: Mutex<Vec<(Sequence, Arc<FileData>)>>,
    /// What waits for a change to be committed.
    chores: Mutex<Vec<(Sequence, settle::Chore)>>,
    /// Files whose times the stores do not have.
    times_dirty: Mutex<Vec<Ino>>,
    options: VolumeOptions,
    background: Mutex<Option<Background>>,
}

impl Volume {
    /// Opens the disk group on `disks`, forming it first when all are blank, and recovers from an earlier crash.
    pub fn open(disks: Vec<Arc<dyn Disk>>, options: VolumeOptions) -> Result<Arc<Self>> {
        let volume = Arc::new(Self::recover(disks, options)?);
        *volume.background.lock() = Some(Background::start(&volume)?);
        Ok(volume)
    }

    /// Makes everything durable and stops. The volume must not be used afterwards.
    pub fn close(&self) -> Result<()> {
        let result = self.sync();
        self.abandon();
        result
    }

    /// Stops the volume's threads without saving anything, as a crash would.
    pub fn abandon(&self) {
        if let Some(background) = self.background.lock().take() {
            background.stop();
        }
        self.prefetcher.stop();
    }

    /// The group's identity, for messages and statistics.
    pub fn group_id(&self) -> String {
        self.group.id().to_string()
    }

    pub fn disks(&self) -> &[Arc<dyn Disk>] {
        self.group.disks()
    }

    pub fn statfs(&self) -> Result<SpaceTotals> {
        self.group.space()
    }

    pub fn inode_count(&self) -> usize {
        self.namespace.read().len()
    }

    pub fn cache_stats(&self) -> CacheStats {
        self.cache.stats()
    }

    /// Adds to an error about damaged bytes which file it concerns and what can be done.
    fn named(&self, ino: Ino, error: Error) -> Error {
        if error.kind() != ErrorKind::Corrupt {
            return error;
        }
        let path = self.path_of(ino).unwrap_or_else(|| "an unlinked file".into());
        let advice = "all other blocks can be read; restore the file from a backup or a replica, or recreate the table";
        Error::new(ErrorKind::Corrupt, format!("{path}: {error} ({advice})"))
    }

    fn file(&self, ino: Ino) -> Result<Arc<FileData>> {
        let namespace = self.namespace.read();
        let node = namespace.node(ino)?;
        node.file.clone().ok_or_else(|| match node.inode.kind {
            Kind::Directory => Error::new(ErrorKind::IsDirectory, format!("inode {ino} is a directory")),
            _ => Error::new(ErrorKind::Invalid, format!("inode {ino} is no regular file")),
        })
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.prefetcher.stop();
    }
}
