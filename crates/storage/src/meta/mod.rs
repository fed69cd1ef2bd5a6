//! Names and inodes: in memory, where they are authoritative while the daemon runs, and in a transactional store on
//! every disk of the group, where they survive it.
//!
//! Invariants: the store always holds one consistent moment of the namespace; a change that a sync acknowledged is in
//! it on every disk. This folder knows no file content.

mod extent;
mod namespace;
mod record;
mod store;

pub use extent::{ExtentRecord, HOMES};
pub use namespace::{Batch, Namespace, Node, Sequence};
pub use record::{Inode, Kind};
pub use store::Stores;

/// Number of the root directory, as FUSE has it.
pub const ROOT_INO: u64 = 1;
/// The first number of ordinary inodes; those between are reserved.
pub const FIRST_INO: u64 = 16;
