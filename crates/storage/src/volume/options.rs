//! Options for opening a volume.

use crate::file::UnitCodec;
use crate::group::{AuSize, Redundancy};
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct VolumeOptions {
    /// Allocation-unit size of new files.
    pub au_size: AuSize,
    pub redundancy: Redundancy,
    /// Size of the reserve of each disk in bytes: free space that only overwrites of pages in compression units, and
    /// requests of a higher [`super::SpacePriority`] than normal, may use.
    pub reserve_bytes: u64,
    pub cache_bytes: u64,
    /// Threads that load regions ahead of scans.
    pub prefetch_threads: usize,
    /// Maximum number of backing files kept open, with up to two descriptors each.
    pub handles_max: usize,
    /// Owner of the root directory when the group is formed.
    pub root_uid: u32,
    pub root_gid: u32,
    /// Rebuilds pages from compression units. Without a codec no unit can be stored or read.
    pub unit_codec: Option<Arc<dyn UnitCodec>>,
    /// Called before each file with compression units is recovered, with the number of files done and of all files.
    pub recovery_progress: fn(usize, usize),
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            au_size: AuSize::DEFAULT,
            redundancy: Redundancy::External,
            reserve_bytes: 0,
            cache_bytes: 64 << 20,
            prefetch_threads: 8,
            handles_max: 4096,
            root_uid: 0,
            root_gid: 0,
            unit_codec: None,
            recovery_progress: |_, _| {},
        }
    }
}
