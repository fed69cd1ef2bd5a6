//! What a volume can be told when it is opened.

use crate::file::UnitCodec;
use crate::group::{AuSize, Redundancy};
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct VolumeOptions {
    /// Of files created from now on.
    pub au_size: AuSize,
    pub redundancy: Redundancy,
    pub cache_bytes: u64,
    /// Threads that load regions ahead of scans.
    pub prefetch_threads: usize,
    /// Backing files kept open; two descriptors each at most.
    pub handles_max: usize,
    /// Owner of the root directory when the group is formed.
    pub root_uid: u32,
    pub root_gid: u32,
    /// Rebuilds pages from compression units; without it there can be none.
    pub unit_codec: Option<Arc<dyn UnitCodec>>,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            au_size: AuSize::DEFAULT,
            redundancy: Redundancy::External,
            cache_bytes: 64 << 20,
            prefetch_threads: 8,
            handles_max: 4096,
            root_uid: 0,
            root_gid: 0,
            unit_codec: None,
        }
    }
}
