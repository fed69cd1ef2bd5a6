//! Moving allocation units between disks: disks that join or leave a group, and even use of all disks.
//!
//! The code above stripes files over *stripes* as over disks. A stripe is stored on a *container*: a disk, or a copy set.
//! At first each stripe is on the container of the same number. A rebalance moves regions of a stripe's files to other
//! containers, and stores where they are (`runs.rs`).
//!
//! Invariants:
//! - A region of a file of a stripe is on exactly one container. The metadata stores have the authoritative record.
//! - A move copies the region, syncs the copy, commits the new place, and only then frees the old one. While the region is
//!   copied, writes go to both places; until the commit, reads use the old one. After a crash before the commit, the region is in
//!   the old place; after a crash after the commit, in the new place.
//! - Before a move writes bytes to a container, the record names these bytes a *leftover*. The commit of the move makes the bytes
//!   in the old place the leftover. A start frees all leftovers.
//!
//! Nothing here chooses what to move, except `plan.rs`; `volume/rebalance.rs` runs the moves.

mod moves;
mod opened_parts;
mod placed_disk;
mod placed_file;
mod placement;
mod plan;
mod runs;

pub use moves::Move;
pub use placement::{FileKey, Placement, PlacementRecord, inode_of, key_of};
pub use plan::{Chunk, Inventory, plan};
pub use runs::{OPEN_END, REGION, regions_of};
