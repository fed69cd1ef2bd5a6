//! The status of a running cell. The daemon collects it; an operator's command requests it over the cell's socket.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use cellar_format::wire::CellStatus;
use cellar_format::wire::{DiskStatus, Kind, MemoryStatus};

use crate::cell_request::{CellRequest, RequestError};
use crate::config::Config;
use crate::metrics::Metrics;
use crate::state::CellState;

/// Time limit of each send and receive.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The properties of a cell that are fixed at the start of its daemon.
#[derive(Debug)]
pub struct CellInfo {
    name: String,
    mount: PathBuf,
    started: Instant,
}

impl CellInfo {
    pub fn new(config: &Config) -> Self {
        Self { name: config.name.clone(), mount: config.mount.clone(), started: Instant::now() }
    }

    pub fn status(&self, state: &CellState, metrics: &Metrics) -> CellStatus {
        let disks = state.volume.disk_spaces().into_iter().map(|disk| DiskStatus {
            path: disk.path.display().to_string(),
            total_bytes: disk.total,
            available_bytes: disk.available,
            reserve_bytes: disk.reserve,
            reserve_free_bytes: disk.reserve_free,
        });
        let (cache, (scans, counts)) = (state.volume.cache_stats(), metrics.totals());
        let memory = state.memory.usage(cache.used_bytes).map(|usage| MemoryStatus {
            kind: usage.kind.name().to_owned(),
            used_bytes: usage.used_bytes,
            limit_bytes: usage.limit_bytes,
        });
        CellStatus {
            name: self.name.clone(),
            mount: self.mount.display().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            disks: disks.collect(),
            cache_capacity_bytes: cache.capacity_bytes,
            cache_used_bytes: cache.used_bytes,
            memory: memory.to_vec(),
            scans,
            eligible_bytes: counts.eligible_bytes,
            saved_by_storage_index_bytes: counts.saved_by_storage_index_bytes,
            returned_bytes: counts.returned_bytes,
        }
    }
}

/// Requests the status of the cell that listens on `socket`.
pub fn query(socket: &Path) -> Result<CellStatus, RequestError> {
    CellRequest::send(socket, TIMEOUT, Kind::StatusQuery, |_| {})?.receive(Kind::Status, CellStatus::decode)
}
