//! The cell: the daemon that serves a cluster's files and runs its big scans next to the data.
//!
//! It joins `cellar-storage` (bytes, no tuples) and `cellar-scan` (tuples, no I/O); neither knows the other.

pub mod compression;
pub mod config;
pub mod daemon;
pub mod fuse;
pub mod metrics;
pub mod server;
pub mod smart_scan;
pub mod status;
