//! The cell's storage: crash-safe files, striped over cell disks, that scans read without copying.
//!
//! Invariants: the crate knows neither tuples nor FUSE; all I/O on a cell disk goes through the [`disk::Disk`] trait;
//! no bytes on a disk make the process panic. [`Volume`] is the public interface.

// Unit tests share the disks of `tests/support`, which name the crate.
#[cfg(test)]
extern crate self as cellar_storage;

mod cache;
mod columnar;
pub mod disk;
mod error;
mod file;
mod flash;
mod flash_log;
mod group;
mod growing;
pub mod iorm;
mod meta;
mod operation_counters;
mod page_set;
pub mod request;
mod volume;
mod write_back;

pub use cache::{CacheStats, IoCost};
pub use columnar::{ColumnarStats, ColumnsStored, NewColumns};
pub use error::{Error, ErrorKind, Result};
pub use file::{OpenUnit, UnitCodec, stored_bytes};
pub use flash::{FlashContent, FlashOptions, FlashSetting, FlashStats};
pub use flash_log::{FlashLogOptions, FlashLogStats};
pub use group::mirror::{AbsentDisk, Copied, DiskMode, Patience};
pub use group::{AuSize, Redundancy, State as GroupState, Superblock, Uuid};
pub use operation_counters::{OperationCounters, OperationCounts};
pub use page_set::PageSet;
pub use volume::{
    Attr, AuFormat, AuInfo, Backlog, CachedColumns, CachedUnit, DirEntry, DiskSpace, DiskState, FactsWriter, Fallocate,
    FileRedundancy, FlashCacheMode, GroupDisk, GroupStatus, Ino, Kind, NewNode, PageCheck, ROOT_INO, ReadOnlyVolume,
    RebalanceState, RebalanceStatus, RegionGuard, RenameMode, SavedFacts, ScrubFinding, ScrubReport, ScrubState,
    SetAttr, SetTime, SpacePriority, SpaceTotals, StagedUnits, StreamUsage, UnitExtent, UnitReader, UnitStored, Volume,
    VolumeOptions, disk_states, forms_new_group,
};
pub use write_back::{LackingFiles, WriteBackOptions, WriteBackStats};

/// Returns the time in nanoseconds since 1970.
fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |elapsed| elapsed.as_nanos() as i64)
}
