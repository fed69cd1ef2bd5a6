//! The cell: the daemon that stores a cluster's files, serves their I/O, and scans and compresses them next to the
//! data.
//!
//! The crate joins `cellar-storage` (bytes, no tuples) and `cellar-scan` (tuples, no I/O); neither knows the other.
//!
//! Names and identities: the file service ([`fuse`]) and requests on the wire use file names. A session of the
//! [`server`] resolves the name of a relation once, in [`relation`]. [`smart_scan`], [`compression`] and [`state`] use
//! disk objects with block ranges, regions or allocation units, and never names.
//!
//! Modules depend on each other in one direction: `daemon` → `server`, `unit_codec`, `config`; `config` → `disks`; `server` → `http` → `status`; `server` → `reclaim`, `alerts`, `history`,
//! `smart_scan`, `compression`, `inspect`; `alerts` → `cell_metrics` → `names`; `alerts` → `history`, `metrics`; `history`, `alerts` → `background`; `smart_scan`, `daemon` → `columnar` → `compression`; `http`, `status` → `metrics` → `fuse` → `instance`; `status`, `inspect` →
//! `cell_request`; `metrics`, `config`, `reclaim`, `smart_scan`, `compression`, `inspect`, `unit_codec` → `state` →
//! `relation` → `access`.

pub mod access;
pub mod alerts;
mod background;
pub mod cell_metrics;
pub mod cell_request;
pub mod columnar;
pub mod compression;
pub mod config;
pub mod daemon;
pub mod disks;
#[cfg(test)]
mod fixtures;
mod frame_stream;
pub mod fuse;
pub mod group;
pub mod history;
pub mod http;
pub mod inspect;
pub mod instance;
pub mod iorm;
pub mod log_context;
pub mod metrics;
pub mod names;
mod page_check;
mod reclaim;
pub mod relation;
pub mod server;
mod service_manager;
mod shared_devices;
pub mod smart_scan;
pub mod state;
pub mod status;
pub mod unit_codec;
