//! Copies of repositories: export files, their import, masking, and AWR snapshots of one server in the repository of another.

mod copy;
mod export;
mod file;
mod import;
mod mask;
mod remote;

pub use export::{Selection, export};
pub use import::import;
pub use mask::Masking;
pub use remote::store_snapshot_of;
