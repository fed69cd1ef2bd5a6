//! What a running cell says of itself, and how an operator's command asks for it over the cell's socket.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use cellar_format::wire::CellStatus;
use cellar_format::wire::{DiskStatus, ErrorReport, Hello, Kind};
use cellar_storage::Volume;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::config::Config;
use crate::metrics::Metrics;
use crate::server::{FrameStream, StreamError};

/// How long a cell may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a daemon knows of itself from its start on.
#[derive(Debug)]
pub struct About {
    name: String,
    mount: PathBuf,
    started: Instant,
}

impl About {
    pub fn new(config: &Config) -> Self {
        Self { name: config.name.clone(), mount: config.mount.clone(), started: Instant::now() }
    }

    pub fn status(&self, volume: &Volume, metrics: &Metrics) -> CellStatus {
        let disks = volume.disks().iter().map(|disk| {
            let space = disk.space().unwrap_or_default();
            let path = disk.path().display().to_string();
            DiskStatus { path, total_bytes: space.total, available_bytes: space.available }
        });
        let (cache, (scans, counts)) = (volume.cache_stats(), metrics.totals());
        CellStatus {
            name: self.name.clone(),
            mount: self.mount.display().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            disks: disks.collect(),
            cache_capacity_bytes: cache.capacity_bytes,
            cache_used_bytes: cache.used_bytes,
            scans,
            eligible_bytes: counts.eligible_bytes,
            saved_by_storage_index_bytes: counts.saved_by_storage_index_bytes,
            returned_bytes: counts.returned_bytes,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    #[error("no cell answers at {socket}: {source}; start it, or look into its log")]
    Unreachable { socket: String, source: io::Error },
    #[error("the cell at {socket} does not answer: {source}")]
    Silent { socket: String, source: StreamError },
    #[error("the cell at {socket} refuses: {message}: {detail}")]
    Refused { socket: String, message: String, detail: String },
}

/// Asks the cell that serves `socket`; only the cluster's user and the daemon's own get an answer.
pub fn ask(socket: &Path) -> Result<CellStatus, StatusError> {
    let at = || socket.display().to_string();
    let silent = |source| StatusError::Silent { socket: at(), source };
    let stream = connect(socket).map_err(|source| StatusError::Unreachable { socket: at(), source })?;
    let mut stream = FrameStream::new(stream);
    let hello = Hello { backend_pid: std::process::id(), database: 0, system_identifier: 0, incarnation: 0 };
    stream.send(Kind::Hello, |out| hello.encode(out)).map_err(silent)?;
    stream.send(Kind::StatusQuery, |_| {}).map_err(silent)?;
    loop {
        match stream.receive().map_err(silent)? {
            (Kind::Welcome, _) => {}
            (Kind::Status, payload) => return CellStatus::decode(payload).map_err(|error| silent(error.into())),
            (Kind::Error, payload) => {
                let ErrorReport { message, detail, .. } =
                    ErrorReport::decode(payload).map_err(|error| silent(error.into()))?;
                return Err(StatusError::Refused { socket: at(), message, detail });
            }
            (kind, _) => return Err(silent(io::Error::other(format!("it sent {kind:?}")).into())),
        }
    }
}

/// A connection on which nothing takes longer than [`PATIENCE`].
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = UnixStream::from(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?);
    rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}
