//! Options for opening a volume.

use super::{FlashCacheMode, PageCheck};
use crate::disk::Disk;
use crate::error::Result;
use crate::file::UnitCodec;
use crate::flash::FlashOptions;
use crate::flash_log::FlashLogOptions;
use crate::group::mirror::Patience;
use crate::group::{AuSize, GroupOptions, Redundancy};
use crate::write_back::WriteBackOptions;
use cellar_format::wire::FileType;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct VolumeOptions {
    /// Allocation-unit size of new files.
    pub au_size: AuSize,
    pub redundancy: Redundancy,
    /// The failure group of each disk, in the order of the disks; a disk without one forms its own. Used with redundancy
    /// normal or high.
    pub failure_groups: Vec<Option<String>>,
    /// Returns the type of a file with a path below the root.
    pub file_type: fn(&str) -> FileType,
    /// The redundancy of files of some types when the group is formed, if it differs from the group's. Later,
    /// [`super::Volume::set_file_redundancy`] changes it.
    pub file_redundancy: Vec<(FileType, Redundancy)>,
    /// The failure group whose disks are read if possible.
    pub preferred_read: Option<String>,
    /// How long a group with copies waits for its disks; None for no limit.
    pub patience: Option<Patience>,
    /// Opens a group without a majority of the disks that have the newest data, if a copy of everything is present.
    pub force_degraded: bool,
    /// Brings disks online in the background that were offline when the volume was opened and that are present.
    pub online_returned_disks: bool,
    /// How long a region's write intent stays after the last write to the region.
    pub intent_idle: Duration,
    /// Runs rebalances in the background. Without it they run in [`super::Volume::rebalance`] only.
    pub rebalances: bool,
    /// Power of rebalances, until [`super::Volume::set_rebalance_power`] sets another one: 0 (none) to 11.
    pub rebalance_power: u32,
    /// How long a disk of a group with copies may be offline before it is dropped by force, until
    /// [`super::Volume::set_disk_repair_time`] sets another time. Zero for ever.
    pub disk_repair_time: Duration,
    /// Size of the reserve of each disk in bytes: free space that only overwrites of pages in compression units, and
    /// requests of a higher [`super::SpacePriority`] than normal, may use.
    pub reserve_bytes: u64,
    pub cache_bytes: u64,
    /// Stores new WAL files on one disk each, and gives the kernel their backing files where
    /// [`super::Volume::begin_passthrough`] permits it.
    pub wal_passthrough: bool,
    /// Caches pages of files on flash disks.
    pub flash: Option<FlashOptions>,
    /// Writes small changes to a log on the disks of the flash cache, and to the cell disks later.
    pub write_back: Option<WriteBackOptions>,
    /// Begins no log until [`super::Volume::set_flash_cache_mode`] says so.
    pub writes_through: bool,
    /// Leaves space for the log on the flash disks also while everything is written through.
    pub reserves_write_back: bool,
    /// The flash disks that could be opened, if `flash` has none because another one could not. They may have the log of an earlier
    /// start.
    pub present_flash_disks: Vec<Arc<dyn Disk>>,
    /// Writes redo to a flash disk, too, and acknowledges it when flash or the cell disks have it.
    pub flash_log: Option<FlashLogOptions>,
    /// Threads that load regions ahead of scans.
    pub prefetch_threads: usize,
    /// Maximum number of backing files kept open, with up to two descriptors each.
    pub handles_max: usize,
    /// Owner of the root directory when the group is formed.
    pub root_uid: u32,
    pub root_gid: u32,
    /// Rebuilds pages from compression units. Without a codec no unit can be stored or read.
    pub unit_codec: Option<Arc<dyn UnitCodec>>,
    /// Knows the checksums of pages. Without it, no page is checked.
    pub page_check: Option<Arc<dyn PageCheck>>,
    /// Called before each file with compression units is recovered, with the number of files done and of all files.
    pub recovery_progress: fn(usize, usize),
}

impl VolumeOptions {
    /// Checks whether a new group can be formed on a number of disks with these options.
    pub fn check_new_group(&self, disks: usize) -> Result<()> {
        self.of_group().new_copy_sets(disks).map(drop)
    }

    pub(super) fn of_group(&self) -> GroupOptions {
        let Self { au_size, redundancy, force_degraded, patience, .. } = *self;
        let (failure_groups, preferred_read) = (self.failure_groups.clone(), self.preferred_read.clone());
        let file_copies = self.file_redundancy.iter().map(|(_, redundancy)| redundancy.copies()).collect();
        GroupOptions { au_size, redundancy, file_copies, failure_groups, preferred_read, force_degraded, patience }
    }

    pub(super) fn flash_cache_mode(&self) -> FlashCacheMode {
        match self.write_back.is_some() && !self.writes_through {
            true => FlashCacheMode::WriteBack,
            false => FlashCacheMode::WriteThrough,
        }
    }
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            au_size: AuSize::DEFAULT,
            redundancy: Redundancy::External,
            failure_groups: Vec::new(),
            file_type: |_| FileType::Other,
            file_redundancy: Vec::new(),
            preferred_read: None,
            patience: None,
            force_degraded: false,
            online_returned_disks: true,
            intent_idle: Duration::from_secs(30),
            rebalances: true,
            rebalance_power: 4,
            disk_repair_time: Duration::from_secs(12 * 3600),
            reserve_bytes: 0,
            cache_bytes: 64 << 20,
            wal_passthrough: false,
            flash: None,
            write_back: None,
            writes_through: false,
            reserves_write_back: false,
            present_flash_disks: Vec::new(),
            flash_log: None,
            prefetch_threads: 8,
            handles_max: 4096,
            root_uid: 0,
            root_gid: 0,
            unit_codec: None,
            page_check: None,
            recovery_progress: |_, _| {},
        }
    }
}
