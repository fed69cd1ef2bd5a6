//! The status of a running cell. The daemon collects it; an operator's command requests it over the cell's socket.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use cellar_format::wire::CellStatus;
use cellar_format::wire::{DiskStatus, ErrorReport, Hello, Kind, MemoryStatus};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::config::Config;
use crate::frame_stream::{FrameStream, StreamError};
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
        let volume = &state.volume;
        let disks = volume.disks().iter().map(|disk| {
            let space = disk.space().unwrap_or_default();
            let path = disk.path().display().to_string();
            DiskStatus { path, total_bytes: space.total, available_bytes: space.available }
        });
        let (cache, (scans, counts)) = (volume.cache_stats(), metrics.totals());
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

#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    #[error("could not connect to a cell at {socket}: {source}; start the cell, or check its log")]
    Unreachable { socket: String, source: io::Error },
    #[error("no answer from the cell at {socket}: {source}")]
    NoAnswer { socket: String, source: StreamError },
    #[error("the cell at {socket} refused the request: {reason}")]
    Refused { socket: String, reason: String },
}

/// Requests the status of the cell that listens on `socket`. The cell accepts connections from
/// the cluster's user and from the daemon's own user only.
pub fn query(socket: &Path) -> Result<CellStatus, StatusError> {
    let at = || socket.display().to_string();
    let no_answer = |source| StatusError::NoAnswer { socket: at(), source };
    let stream = connect(socket, TIMEOUT).map_err(|source| StatusError::Unreachable { socket: at(), source })?;
    let mut stream = FrameStream::new(stream);
    let hello = Hello { backend_pid: std::process::id(), database: 0, system_identifier: 0, incarnation: 0 };
    stream.send(Kind::Hello, |out| hello.encode(out)).map_err(no_answer)?;
    stream.send(Kind::StatusQuery, |_| {}).map_err(no_answer)?;
    loop {
        match stream.receive().map_err(no_answer)? {
            (Kind::Welcome, _) => {}
            (Kind::Status, payload) => return CellStatus::decode(payload).map_err(|error| no_answer(error.into())),
            (Kind::Error, payload) => return Err(refused(socket, payload)),
            (kind, _) => return Err(no_answer(io::Error::other(format!("unexpected frame {kind:?}")).into())),
        }
    }
}

/// Returns the error that an error frame reports.
pub(crate) fn refused(socket: &Path, payload: &[u8]) -> StatusError {
    let socket = socket.display().to_string();
    match ErrorReport::decode(payload) {
        Ok(ErrorReport { message, detail, .. }) => {
            let reason = if detail.is_empty() { message } else { format!("{message}: {detail}") };
            StatusError::Refused { socket, reason }
        }
        Err(error) => StatusError::NoAnswer { socket, source: error.into() },
    }
}

/// Connects without waiting; sends and receives on the connection fail after `timeout`.
pub(crate) fn connect(socket: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = UnixStream::from(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?);
    rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    Ok(stream)
}
