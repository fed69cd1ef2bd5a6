//! Names and inodes. The namespace in memory is authoritative while the daemon runs; a transactional store on every
//! disk of the group makes its changes durable.
//!
//! Invariants: the store always contains one consistent state of the namespace; a change that a sync acknowledged is in
//! the store on every disk. This module knows nothing of file content beyond the [`FileContent`] trait.

mod batch;
mod extent;
mod namespace;
mod record;
mod store;
mod verify;

pub use batch::{AuKey, Batch, CommitSequence, Contents, PlacementKey};
pub use extent::{ExtentRecord, SLOTS_PER_AU, SlotFormat};
pub use namespace::{FileContent, Namespace, Node};
pub use record::{Inode, Kind};
pub use store::{HEADER_BYTES, Stores, generation_of, header_of};

/// Inode number of the root directory, as FUSE requires.
pub const ROOT_INO: u64 = 1;
/// The first number of ordinary inodes; lower numbers are reserved.
pub const FIRST_INO: u64 = 16;
