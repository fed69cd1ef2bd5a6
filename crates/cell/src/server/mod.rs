//! The Smart Scan server: a Unix socket that the cluster's user may connect to, and a thread a connection.
//!
//! The user is checked by the kernel's word (`SO_PEERCRED`), not by the socket file's mode alone. Nothing that a
//! connection sends ends more than that connection.

mod range;
mod session;
mod stream;

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use cellar_storage::Volume;
use parking_lot::Mutex;
use rustix::net::sockopt;

use crate::compression::UnitTable;
use crate::config::Config;
use crate::fuse::IoStats;
use crate::metrics::{Metrics, MetricsServer};
use crate::smart_scan::SmartScanState;
use crate::status::About;
use session::Session;
pub use stream::{FrameStream, StreamError};

/// Starts the Smart Scan server and, where one is configured, the metrics' endpoint.
pub fn start(
    volume: Arc<Volume>,
    units: Arc<UnitTable>,
    config: &Config,
    io_stats: Arc<IoStats>,
) -> io::Result<ServerHandle> {
    let metrics = Metrics::new(Some(volume.clone()), io_stats);
    let metrics_server = match config.metrics_listen {
        Some(listen) => Some(MetricsServer::start(listen, metrics.clone()).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("could not serve metrics on {listen}: {error}; change [metrics] listen"),
            )
        })?),
        None => None,
    };
    let state = Arc::new(SmartScanState::new(volume, units));
    ServerHandle::start(state, metrics, About::new(config), &config.socket, config.user.uid, metrics_server)
        .map_err(|error| io::Error::new(error.kind(), format!("socket {}: {error}", config.socket.display())))
}

/// What the kernel may hold of a connection's results: a backend that works on one batch finds the next one there.
const SEND_BUFFER_BYTES: usize = 1 << 20;

pub struct ServerHandle {
    shared: Arc<Shared>,
    socket: PathBuf,
    listener: Mutex<Option<JoinHandle<()>>>,
    _metrics: Option<MetricsServer>,
}

struct Shared {
    state: Arc<SmartScanState>,
    metrics: Arc<Metrics>,
    about: Arc<About>,
    /// The users that may connect: the cluster's and the daemon's own.
    users: [u32; 2],
    connections: Mutex<HashMap<u64, UnixStream>>,
    last_connection: AtomicU64,
    stopping: AtomicBool,
}

impl ServerHandle {
    /// Listens on `socket`, which `user` will own.
    fn start(
        state: Arc<SmartScanState>,
        metrics: Arc<Metrics>,
        about: About,
        socket: &Path,
        user: u32,
        metrics_server: Option<MetricsServer>,
    ) -> io::Result<Self> {
        let listener = bind(socket, user)?;
        let own = rustix::process::geteuid().as_raw();
        let shared = Arc::new(Shared {
            state,
            metrics,
            about: Arc::new(about),
            users: [user, own],
            connections: Mutex::default(),
            last_connection: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        });
        let accepting = shared.clone();
        let thread =
            std::thread::Builder::new().name("listener".to_owned()).spawn(move || accept(&accepting, &listener))?;
        Ok(Self { shared, socket: socket.to_owned(), listener: Mutex::new(Some(thread)), _metrics: metrics_server })
    }

    /// Ends all scans and connections; returns when the listener is gone.
    pub fn stop(&self) {
        let Some(listener) = self.listener.lock().take() else { return };
        self.shared.state.stopping.store(true, Ordering::Relaxed);
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the listener, which then sees that it has to stop.
        let _ = UnixStream::connect(&self.socket);
        let _ = listener.join();
        for connection in self.shared.connections.lock().values() {
            let _ = connection.shutdown(Shutdown::Read);
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A socket file that an earlier daemon left behind is replaced: the disks' locks say that no other daemon runs.
fn bind(socket: &Path, user: u32) -> io::Result<UnixListener> {
    if let Some(folder) = socket.parent() {
        std::fs::create_dir_all(folder)?;
    }
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600))?;
    if user != rustix::process::geteuid().as_raw() {
        std::os::unix::fs::chown(socket, Some(user), None)?;
    }
    Ok(listener)
}

fn accept(shared: &Arc<Shared>, listener: &UnixListener) {
    for stream in listener.incoming() {
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        if let Err(error) = stream.and_then(|stream| serve(shared, stream)) {
            log::warn!("Smart Scan connection refused: {error}");
            if error.raw_os_error() == Some(libc::EMFILE) {
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        }
    }
}

fn serve(shared: &Arc<Shared>, stream: UnixStream) -> io::Result<()> {
    let peer = sockopt::socket_peercred(&stream)?;
    if !shared.users.contains(&peer.uid.as_raw()) {
        let message =
            format!("user id {} (process {}) may not use this cell", peer.uid.as_raw(), peer.pid.as_raw_pid());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES)?;
    let id = shared.last_connection.fetch_add(1, Ordering::Relaxed);
    shared.connections.lock().insert(id, stream.try_clone()?);
    let serving = shared.clone();
    let name = format!("scan {}", peer.pid.as_raw_pid());
    let spawned = std::thread::Builder::new().name(name).spawn(move || {
        let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&serving, stream)));
        if served.is_err() {
            log::error!("a Smart Scan panicked; its connection is closed");
        }
        if let Some(stream) = serving.connections.lock().remove(&id) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
    if spawned.is_err() {
        shared.connections.lock().remove(&id);
    }
    spawned.map(drop)
}

fn run(shared: &Shared, stream: UnixStream) {
    let stream = FrameStream::new(stream);
    let ended = match Session::greet(stream, shared.state.clone(), shared.metrics.clone(), shared.about.clone()) {
        Ok(session) => session.run(),
        Err((mut stream, error)) => {
            let _ = session::tell(&mut stream, &error);
            Err(error)
        }
    };
    if let Err(error) = ended {
        log::warn!("Smart Scan ended: {error}");
    }
}
