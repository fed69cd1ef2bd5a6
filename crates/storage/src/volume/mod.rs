//! The volume: a POSIX namespace of files on a disk group, with the cell's page cache, for the FUSE file service and
//! for scans.
//!
//! Invariants:
//! - Changes that a sync acknowledged survive a crash of the process or of the machine.
//! - A write reaches the operating system before it is acknowledged, so a crash of the process alone loses no
//!   acknowledged write of a file whose name is committed. A cluster with only a tablespace on the cell survives the crash
//!   without recovery, and relies on this. Of files with a flash log (WAL), a write that no sync followed may have been undone.
//! - After a crash of the machine, a block without a sync reads as an earlier version or as zeros, never as bytes of
//!   another file.
//! - A scan never sees part of a write, unless the write failed.
//!
//! The volume does not check permissions (the kernel does) and knows nothing of FUSE.

mod attributes;
mod background;
mod backlog;
mod checkpoints;
mod columnar;
mod content;
mod disk_changes;
mod file_redundancy;
mod flash_cache_mode;
mod flash_log;
mod free_space;
mod inspect;
mod names;
mod options;
mod pages;
mod passthrough;
mod placed;
mod prefetcher;
mod rebalance;
mod recovery;
mod redundancy;
mod regions;
mod rename;
mod repair_time;
mod reserve_file;
mod saved_facts;
mod scrub;
mod sync;
mod unit_reader;
mod units;

pub use crate::file::CachedUnit;
pub use attributes::{Attr, SetAttr, SetTime};
pub use backlog::Backlog;
pub use columnar::CachedColumns;
pub use content::Fallocate;
pub use file_redundancy::FileRedundancy;
pub use flash_cache_mode::FlashCacheMode;
pub use free_space::{DiskSpace, SpacePriority};
pub use inspect::{DiskState, ReadOnlyVolume, StreamUsage, UnitExtent, disk_states, forms_new_group};
pub use names::{DirEntry, NewNode};
pub use options::VolumeOptions;
pub use pages::PageCheck;
pub use rebalance::{RebalanceState, RebalanceStatus};
pub use redundancy::{GroupDisk, GroupStatus};
pub use regions::RegionGuard;
pub use rename::RenameMode;
pub use saved_facts::{FactsWriter, SavedFacts};
pub use scrub::{ScrubFinding, ScrubReport, ScrubState};
pub use unit_reader::UnitReader;
pub use units::{AuFormat, AuInfo, StagedUnits, UnitStored};

pub use crate::disk::Space as SpaceTotals;
pub use crate::meta::{Kind, ROOT_INO};

use crate::cache::{Cache, CacheStats};
use crate::columnar::ColumnarCache;
use crate::disk::Disk;
use crate::error::{Error, ErrorKind, Result};
use crate::file::FileData;
use crate::flash::{FlashContent, FlashSetting, FlashStats};
use crate::flash_log::FlashLog;
use crate::group::Group;
use crate::iorm::{FlashLimits, Medium};
use crate::meta::{CommitSequence, Stores};
use crate::now;
use crate::request::DatabaseId;
use crate::write_back::LackingFiles;
use background::Background;
use checkpoints::CheckpointRequests;
use free_space::FreeSpace;
use parking_lot::{Mutex, RwLock};
use prefetcher::Prefetcher;
use rebalance::Rebalance;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use sync::PostCommitAction;

pub type Ino = u64;
type Namespace = crate::meta::Namespace<FileData>;
type Node = crate::meta::Node<FileData>;

#[derive(Debug)]
pub struct Volume {
    group: Group,
    stores: Mutex<Stores>,
    namespace: RwLock<Namespace>,
    /// The [`CommitSequence`] up to which changes are durable in the stores.
    committed: AtomicU64,
    cache: Arc<Cache>,
    prefetcher: Prefetcher,
    free_space: FreeSpace,
    /// Set if a panic lost the record of which metadata changed; every later commit is an error.
    metadata_lost: AtomicBool,
    /// Metadata transactions that failed since the volume was opened.
    commit_failures: AtomicU64,
    /// Files without names and references, with the change after whose commit their backing files are removed.
    removed_files: Mutex<Vec<(CommitSequence, Arc<FileData>)>>,
    /// Held while backing files of `removed_files` are removed.
    removing: Mutex<()>,
    /// Number of inodes without names that still have references.
    unlinked_in_use: AtomicUsize,
    /// When a request without space last waited for the release of such an inode, in nanoseconds since 1970.
    waited_for_release: AtomicI64,
    /// Actions with the change that must be committed before.
    post_commit_actions: Mutex<Vec<(CommitSequence, PostCommitAction)>>,
    /// Files whose times differ from the stores'.
    times_dirty: Mutex<Vec<Ino>>,
    /// Files whose redo logs need a checkpoint.
    checkpoint_requests: Arc<CheckpointRequests>,
    /// Compression units of raw allocation units on flash disks; None without a columnar cache.
    columnar: Option<ColumnarCache>,
    rebalance: Arc<Rebalance>,
    repair_time: repair_time::RepairTime,
    /// Valid facts about files that the last clean stop saved.
    saved_facts: Mutex<Option<SavedFacts>>,
    passthrough: passthrough::Passthrough,
    /// Set if the start was forced without the write-back log, or without a part of the log.
    lacking_files: OnceLock<LackingFiles>,
    flash_cache_mode: flash_cache_mode::ModeState,
    /// Set at the end of the recovery.
    flash_log: OnceLock<Arc<FlashLog>>,
    options: VolumeOptions,
    background: Mutex<Option<Background>>,
    scrub: scrub::Scrub,
    damage_log: pages::DamageLog,
}

impl Volume {
    /// Opens the disk group on `disks`, forms it first if all disks are blank, and recovers from an earlier crash.
    pub fn open(disks: Vec<Arc<dyn Disk>>, options: VolumeOptions) -> Result<Arc<Self>> {
        let volume = Arc::new(Self::recover(disks, options)?);
        volume.join_configured_disks()?;
        *volume.background.lock() = Some(Background::start(&volume)?);
        Ok(volume)
    }

    /// Makes every change durable and stops. The volume must not be used afterwards.
    pub fn close(&self) -> Result<()> {
        if let Some(write_back) = self.group.write_back() {
            // A command that flushes the log ends.
            write_back.stop();
        }
        let _no_command = self.end_mode_commands();
        let close_write_back = || {
            let _changing = self.flash_cache_mode.changing.lock();
            self.group.write_back().map_or(Ok(()), |write_back| write_back.close())
        };
        let result = self.sync().and_then(|()| self.close_flash_log()).and_then(|()| close_write_back());
        self.abandon();
        if result.is_ok() {
            if let Some(flash) = self.group.flash()
                && let Err(error) = flash.close()
            {
                log::warn!("{error}; the next start opens the flash cache as after a crash");
            }
            if let Some(mirror) = self.group.mirror() {
                mirror.close();
            }
        }
        result
    }

    /// Stops the volume's threads without committing anything, like a crash.
    pub fn abandon(&self) {
        if let Some(mirror) = self.group.mirror() {
            mirror.stop_resyncs();
        }
        self.stop_scrub();
        self.rebalance.stop();
        if let Some(background) = self.background.lock().take() {
            background.stop();
        }
        self.prefetcher.stop();
        if let Some(log) = self.flash_log.get() {
            log.stop();
        }
        if let Some(write_back) = self.group.write_back() {
            write_back.stop();
        }
        if let Some(flash) = self.group.flash() {
            flash.stop();
        }
    }

    /// Returns the group's identity, for messages and statistics.
    pub fn group_id(&self) -> String {
        self.group.id().to_string()
    }

    pub fn disks(&self) -> &[Arc<dyn Disk>] {
        self.group.disks()
    }

    /// Returns the disks that have not been dropped, in the order of their numbers, each path once: of a disk and the one that
    /// replaces it at the same path, the new one.
    pub fn member_disks(&self) -> impl Iterator<Item = &Arc<dyn Disk>> {
        let disks = self.disks().iter().enumerate();
        disks.filter(|(number, _)| self.is_at_its_path(*number)).map(|(_, disk)| disk)
    }

    fn is_at_its_path(&self, number: usize) -> bool {
        let disks = self.disks();
        let is_same = |later: usize| disks[later].path() == disks[number].path() && !self.group.is_dropped(later);
        !self.group.is_dropped(number) && !(number + 1..disks.len()).any(is_same)
    }

    /// Returns the space for files: the sums over all disks, divided by the number of copies. `free` includes the reserves,
    /// `available` excludes them.
    pub fn statfs(&self) -> Result<SpaceTotals> {
        let (SpaceTotals { total, free, available, files, files_free }, copies) =
            (self.free_space.totals()?, self.group.redundancy().copies() as u64);
        let [total, free, available] = [total, free, available].map(|bytes| bytes / copies);
        Ok(SpaceTotals { total, free, available, files, files_free })
    }

    /// Returns the space of each of [`Self::member_disks`].
    pub fn disk_spaces(&self) -> Vec<DiskSpace> {
        let spaces = self.free_space.by_disk().into_iter().enumerate();
        spaces.filter(|(number, _)| self.is_at_its_path(*number)).map(|(_, space)| space).collect()
    }

    pub fn inode_count(&self) -> usize {
        self.namespace.read().len()
    }

    pub fn cache_stats(&self) -> CacheStats {
        self.cache.stats()
    }

    /// Returns whether the volume reads and writes the disk of a medium that has a path.
    pub fn uses_disk(&self, path: &Path, medium: Medium) -> bool {
        match medium {
            Medium::Disk => self.member_disks().any(|disk| disk.path() == path && disk.is_accessible()),
            Medium::Flash => {
                let has_cache = self.group.flash().is_some_and(|flash| flash.is_on());
                has_cache
                    || self.flash_log.get().is_some()
                    || self.columnar.as_ref().is_some_and(|columnar| columnar.is_on())
            }
        }
    }

    /// Switches the flash cache, the columnar cache on the same disks and write-back off until the next start.
    pub fn drop_flash_cache(&self) -> Result<()> {
        let _one_at_a_time = self.begin_mode_command()?;
        match self.group.flash() {
            Some(flash) if !flash.is_dropped() => {
                self.end_write_back()?;
                if let Some(columnar) = &self.columnar {
                    columnar.switch_off();
                }
                flash.switch_off()
            }
            None if self.options.flash.is_some() => {
                let message = "the flash disks of cell.toml cannot be used, so there is nothing to drop; remove flash_disks \
                               if the flash cache is not to return";
                Err(Error::new(ErrorKind::NotFound, message))
            }
            _ => Err(Error::new(ErrorKind::NotFound, "the cell has no flash cache")),
        }
    }

    /// Returns the counters of the flash cache; None if none is configured, or it was dropped. A flash cache whose disks cannot be
    /// used is off.
    pub fn flash_stats(&self) -> Option<FlashStats> {
        if self.group.flash().is_some_and(|flash| flash.is_dropped()) {
            return None;
        }
        let unusable = || self.options.flash.as_ref().map(|_| FlashStats::default());
        self.group.flash().map(|flash| flash.stats()).or_else(unusable)
    }

    /// Returns the bytes that databases have in the flash cache; nothing without a flash cache that is in use.
    pub fn flash_bytes_of_databases(&self) -> HashMap<DatabaseId, u64> {
        let flash = self.group.flash().filter(|flash| flash.is_on() && !flash.is_dropped());
        flash.map(|flash| flash.bytes_of_databases()).unwrap_or_default()
    }

    /// Returns the files that may lack synced changes, if the start was forced without the write-back log, or without a part of it.
    pub fn lacking_files(&self) -> Option<&LackingFiles> {
        self.lacking_files.get()
    }

    /// Applies limits of databases to the flash cache. They may change later. Later calls have no effect.
    pub fn set_flash_limits(&self, limits: Arc<FlashLimits>) {
        if let Some(flash) = self.group.flash() {
            flash.set_limits(limits);
        }
    }

    /// Returns the setting of a file; None if no flash cache is configured.
    pub fn flash_setting(&self, ino: Ino) -> Option<FlashSetting> {
        self.options.flash.as_ref()?;
        Some(self.group.flash().map(|flash| flash.setting(ino)).unwrap_or_default())
    }

    /// Changes the setting of a file. Returns the former one; None if no flash cache is configured.
    pub fn set_flash_setting(&self, ino: Ino, setting: FlashSetting) -> Result<Option<FlashSetting>> {
        let file = self.file(ino)?;
        let Some(flash) = self.group.flash() else { return Ok(self.flash_setting(ino)) };
        let former = flash.set_setting(ino, setting)?;
        if let Some(columnar) = &self.columnar {
            columnar.set_setting(ino, setting);
        }
        if former != setting && (setting == FlashSetting::None || former == FlashSetting::Keep) {
            // Until a sync, the flash cache takes the dropped pages for changed ones.
            file.require_sync();
            self.fsync(ino)?;
        }
        Ok(Some(former))
    }

    /// As [`Self::set_flash_setting`] for a file that was created just now. Waits for no disk.
    pub fn set_flash_setting_of_new(&self, ino: Ino, setting: FlashSetting) {
        if let Some(flash) = self.group.flash() {
            flash.set_setting_of_new(ino, setting);
        }
    }

    /// Returns what the flash cache has of a file; None if no flash cache is configured.
    pub fn flash_content(&self, ino: Ino) -> Option<FlashContent> {
        let setting = self.flash_setting(ino)?;
        let nothing = FlashContent { ino, setting, cached_bytes: 0, hits: 0, misses: 0 };
        let stripes = self.group.stripes().len() as u16;
        Some(self.group.flash().map_or(nothing, |flash| flash.content_of(ino, stripes)))
    }

    /// Returns what the flash cache has of each file.
    pub fn flash_contents(&self) -> Vec<FlashContent> {
        self.group.flash().map(|flash| flash.contents()).unwrap_or_default()
    }

    /// Returns the flash disks; none without a flash cache.
    pub fn flash_disks(&self) -> &[Arc<dyn Disk>] {
        self.group.flash().map_or(&[], |flash| flash.disks())
    }

    fn committed(&self) -> CommitSequence {
        CommitSequence(self.committed.load(Ordering::Acquire))
    }

    /// Adds the file's path to an error about damaged bytes.
    fn with_path(&self, ino: Ino, error: Error) -> Error {
        if error.kind() != ErrorKind::Corrupt {
            return error;
        }
        let path = self.path_of(ino).unwrap_or_else(|| "an unlinked file".into());
        Error::new(ErrorKind::Corrupt, format!("{path}: {error}"))
    }

    /// Returns the regular files of all names. The namespace is not locked while the caller uses them.
    pub(super) fn regular_files(&self) -> Vec<Arc<FileData>> {
        self.namespace.read().nodes().filter_map(|(_, node)| node.file.clone()).collect()
    }

    fn file(&self, ino: Ino) -> Result<Arc<FileData>> {
        let namespace = self.namespace.read();
        let node = namespace.node(ino)?;
        node.file.clone().ok_or_else(|| match node.inode.kind {
            Kind::Directory => Error::new(ErrorKind::IsDirectory, format!("inode {ino} is a directory")),
            _ => Error::new(ErrorKind::Invalid, format!("inode {ino} is not a regular file")),
        })
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.checkpoint_requests.stop();
        self.prefetcher.stop();
        if let Some(log) = self.flash_log.get() {
            log.stop();
        }
        if let Some(write_back) = self.group.write_back() {
            write_back.stop();
        }
        if let Some(flash) = self.group.flash() {
            flash.stop();
        }
    }
}
