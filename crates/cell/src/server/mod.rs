//! The Smart Scan server: a Unix socket with one thread per connection.
//!
//! Only the cluster's user and the daemon's own user may connect. The kernel identifies the user and the groups of each
//! connection ([`peer`]), in addition to the mode of the socket file. A session refuses requests that name a file for which
//! the peer lacks the permission ([`crate::access`]). An error or a panic of a session closes only that session's
//! connection.

mod error;
mod peer;
mod range;
mod scan;
mod session;

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::sockopt::set_socket_send_buffer_size;

use crate::alerts::Alerts;
use crate::background::Background;
use crate::cell_request;
use crate::config::Config;
use crate::frame_stream::FrameStream;
use crate::fuse::IoStats;
use crate::history::History;
use crate::http::{HttpServer, Pages};
use crate::instance::Instance;
use crate::log_context;
use crate::metrics::{Metrics, ProcessMetrics};
use crate::reclaim::Reclaimer;
use crate::state::CellState;
use crate::status::CellInfo;
use peer::Peer;
use session::{Session, SessionContext};

/// Starts the Smart Scan server and, if configured, the HTTP endpoint.
pub fn start(
    state: Arc<CellState>,
    config: &Config,
    instance: Arc<Instance>,
    io_stats: Arc<IoStats>,
) -> io::Result<ServerHandle> {
    let (volume, memory, iorm) = (state.volume.clone(), state.memory.clone(), state.iorm.clone());
    let metrics = Metrics::new(ProcessMetrics::new(config), volume, memory, io_stats, iorm);
    let history = History::new(&config.socket, metrics.clone(), state.volume.clone());
    let recorder = history.clone().start(config.history_interval)?;
    let alerts = Alerts::load(&config.name, &config.socket, metrics.clone(), state.volume.clone());
    let watch = alerts.clone().start(config.history_interval, config.alert_hook.as_deref())?;
    let context = SessionContext {
        state,
        metrics,
        history,
        alerts,
        info: Arc::new(CellInfo::new(config)),
        instance,
        slow_scan_log: config.slow_scan_log,
    };
    let http = match config.metrics_listen {
        Some(listen) => Some(start_http(listen, &context)?),
        None => None,
    };
    ServerHandle::start(context, &config.socket, config.user.uid, (http, [watch, recorder]))
        .map_err(|error| io::Error::new(error.kind(), format!("socket {}: {error}", config.socket.display())))
}

fn start_http(listen: SocketAddr, context: &SessionContext) -> io::Result<HttpServer> {
    let SessionContext { state, metrics, info, .. } = context;
    let pages = Pages { state: state.clone(), metrics: metrics.clone(), info: info.clone() };
    let server = HttpServer::start(listen, move |path| pages.get(path)).map_err(|error| {
        let message = format!("could not serve metrics on {listen}: {error}; change [metrics] listen");
        io::Error::new(error.kind(), message)
    })?;
    log::info!("serving metrics on http://{}/", server.address());
    Ok(server)
}

/// Send buffer of a connection: while the backend processes one batch, the next batch is already in the kernel.
const SEND_BUFFER_BYTES: usize = 1 << 20;

pub struct ServerHandle {
    shared: Arc<Shared>,
    socket: PathBuf,
    listener: Mutex<Option<JoinHandle<()>>>,
    _http: Option<HttpServer>,
    /// The alerts and the history of metrics, which stop with the server, while the disks are open.
    background: Mutex<Option<[Background; 2]>>,
    _reclaimer: Reclaimer,
}

struct Shared {
    context: SessionContext,
    /// The users that may connect: the cluster's and the daemon's own.
    users: [u32; 2],
    connections: Mutex<HashMap<u64, UnixStream>>,
    last_session: AtomicU64,
    stopping: AtomicBool,
}

impl ServerHandle {
    /// Listens on `socket`, which is owned by `user`.
    fn start(
        context: SessionContext,
        socket: &Path,
        user: u32,
        (http, background): (Option<HttpServer>, [Background; 2]),
    ) -> io::Result<Self> {
        let reclaimer = Reclaimer::start(context.state.clone())?;
        let listener = bind(socket, user)?;
        let own = rustix::process::geteuid().as_raw();
        let shared = Arc::new(Shared {
            context,
            users: [user, own],
            connections: Mutex::default(),
            last_session: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        });
        let accepting = shared.clone();
        let thread =
            std::thread::Builder::new().name("listener".to_owned()).spawn(move || accept(&accepting, &listener))?;
        let (listener, background) = (Mutex::new(Some(thread)), Mutex::new(Some(background)));
        Ok(Self { shared, socket: socket.to_owned(), listener, _http: http, background, _reclaimer: reclaimer })
    }

    /// Stops the listener and waits for its thread. Running scans and compressions fail; idle sessions end.
    pub fn stop(&self) {
        let Some(listener) = self.listener.lock().take() else { return };
        let background = self.background.lock().take();
        background.iter().flatten().for_each(Background::begin_to_stop);
        drop(background);
        self.shared.context.state.stopping.store(true, Ordering::Relaxed);
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the listener, which checks `stopping` after each connection.
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

/// Checks that no other process uses the path of a socket: the locks on the cell disks exclude a second daemon of the same cell,
/// but not another cell whose configuration names the same socket.
pub fn check_unused(socket: &Path) -> io::Result<()> {
    let refused = |message: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, message.to_owned()));
    match std::fs::symlink_metadata(socket) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return refused("a file with this name exists and is not a socket; name another path");
        }
        Ok(_) => {}
    }
    match cell_request::connect(socket, Duration::from_secs(1)).map_err(|error| (error.kind(), error)) {
        Err((io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound, _)) => Ok(()),
        // A process that hangs does not accept connections.
        Ok(_) | Err((io::ErrorKind::WouldBlock, _)) => {
            refused("another process uses the socket; give each cell its own socket")
        }
        Err((_, error)) => Err(error),
    }
}

/// Replaces a socket file of an earlier daemon.
fn bind(socket: &Path, user: u32) -> io::Result<UnixListener> {
    if let Some(folder) = socket.parent() {
        std::fs::create_dir_all(folder)?;
    }
    check_unused(socket)?;
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
            log::warn!("refused a connection: {error}");
            if error.raw_os_error() == Some(libc::EMFILE) {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn serve(shared: &Arc<Shared>, stream: UnixStream) -> io::Result<()> {
    let Peer { credentials, process } = Peer::of(&stream)?;
    let user = credentials.uid;
    if !shared.users.contains(&user) {
        let message = format!("user id {user} (process {process}) is not allowed to connect");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES)?;
    let id = shared.last_session.fetch_add(1, Ordering::Relaxed) + 1;
    shared.connections.lock().insert(id, stream.try_clone()?);
    let serving = shared.clone();
    let spawned = std::thread::Builder::new().name(format!("scan {process}")).spawn(move || {
        log_context::set(format!("session {id}, process {process}"));
        let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Session::serve(FrameStream::new(stream), credentials, &serving.context)
        }));
        match served {
            Ok(Ok(())) => {}
            Ok(Err(error)) if error.is_wrong_name() => log::debug!("closing the connection after an error: {error}"),
            Ok(Err(error)) if error.is_refusal() => log::info!("refused a request of an operator: {error}"),
            Ok(Err(error)) => log::warn!("closing the connection after an error: {error}"),
            Err(_) => log::error!("closing the connection after a panic"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_a_process_that_accepts_no_connections_is_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("cell.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let connect = || cell_request::connect(&socket, Duration::from_secs(1));
        let mut waiting = Vec::new();
        while let Ok(connection) = connect() {
            waiting.push(connection);
        }
        assert_eq!(connect().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(check_unused(&socket).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop((listener, waiting));
        check_unused(&socket).unwrap();
    }
}
