//! The cell's storage: files, striped over cell disks, that survive crashes and that scans read without copying.
//!
//! Invariants: the crate moves bytes and knows neither tuples nor FUSE; every byte on a cell disk is read and written
//! through the [`disk::Disk`] trait; bytes from a disk never panic the process. [`Volume`] is the whole public face.

mod cache;
pub mod disk;
mod error;
mod file;
mod group;
mod meta;
mod volume;

pub use cache::CacheStats;
pub use error::{Error, ErrorKind, Result};
pub use file::{OpenUnit, PageSet, UnitCodec, stored_bytes};
pub use group::{AuSize, Redundancy};
pub use volume::{
    Attr, CachedUnit, DirEntry, Fallocate, Ino, Kind, NewNode, ROOT_INO, RegionGuard, RenameMode, SetAttr, SetTime,
    SpaceTotals, UnitForm, UnitInfo, UnitReader, UnitStored, Volume, VolumeOptions,
};

/// Now, in nanoseconds since 1970.
fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |elapsed| elapsed.as_nanos() as i64)
}
